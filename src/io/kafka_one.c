/* One record by its place. No group: it needs no right to one and disturbs none. */
#include "base/clock.h"
#include "base/mem.h"
#include "io/kafka_private.h"

struct one {
    const char *topic;
    int32_t partition;
    int64_t offset;
    int64_t until_ms;
    rd_kafka_t *rk;
    rd_kafka_topic_t *rkt;
    struct err refusal;
};

static void on_error(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
    struct one *o = opaque;

    (void)rk;
    kafka_refusal_keep(&o->refusal, (rd_kafka_resp_err_t)err, reason);
}

static int left_ms(const struct one *o)
{
    int64_t left = o->until_ms - clock_mono_ms();

    return left > 1 ? (int)left : 1;
}

static bool handle(struct one *o, const struct config *config, struct err *e)
{
    static const struct kafka_setting defaults[] = {
        {.name = "queued.min.messages", .value = "1"},
        {.name = "fetch.wait.max.ms", .value = "100"},
        {.name = "log.connection.close", .value = "false"},
        {0},
    };
    static const struct kafka_setting musts[] = {
        {"group.id", ""},
        {"auto.offset.reset", "error"},
        {"enable.partition.eof", "true"},
        {"isolation.level", "read_committed"},
        {"enable.auto.commit", "false"},
        {0},
    };
    rd_kafka_conf_t *conf;

    if (!kafka_conf_build(config, defaults, musts, &conf, e))
        return false;
    rd_kafka_conf_set_opaque(conf, o);
    rd_kafka_conf_set_error_cb(conf, on_error);
    o->rk = kafka_handle_new(RD_KAFKA_CONSUMER, conf, e);
    if (o->rk == NULL)
        return false;
    o->rkt = rd_kafka_topic_new(o->rk, o->topic, NULL);
    if (o->rkt == NULL)
        return err_set(e, ERR_CONFIG, 0, "kafka: topic %s: %s", o->topic,
                       rd_kafka_err2str(rd_kafka_last_error()));
    return true;
}

static bool refuse(const struct one *o, rd_kafka_resp_err_t err, struct err *e)
{
    return err_set(e, kafka_error_kind(err), err, "kafka: can't read %s partition %d: %s", o->topic,
                   (int)o->partition, rd_kafka_err2str(err));
}

/* Asked first: a place outside would make librdkafka say no more than "out of range", and a topic
 * that is not there nothing at all. */
static bool inside(struct one *o, struct err *e)
{
    const struct rd_kafka_metadata *all;
    int64_t low, end;
    rd_kafka_resp_err_t err = rd_kafka_metadata(o->rk, 0, o->rkt, &all, left_ms(o));
    int partitions = 0;

    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return refuse(o, err, e);
    if (all->topic_cnt == 1) {
        err = all->topics[0].err;
        partitions = all->topics[0].partition_cnt;
    }
    rd_kafka_metadata_destroy(all);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return refuse(o, err, e);
    if (o->partition >= partitions)
        return err_set(e, ERR_INPUT, 0, "topic %s has no partition %d: it has %d", o->topic,
                       (int)o->partition, partitions);
    err = rd_kafka_query_watermark_offsets(o->rk, o->topic, o->partition, &low, &end, left_ms(o));
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return refuse(o, err, e);
    if (o->offset >= low && o->offset < end)
        return true;
    if (low == end)
        return err_set(e, ERR_INPUT, 0, "topic %s partition %d holds no record", o->topic,
                       (int)o->partition);
    return err_set(e, ERR_INPUT, 0,
                   "topic %s partition %d has no offset %lld: it holds %lld to %lld", o->topic,
                   (int)o->partition, (long long)o->offset, (long long)low, (long long)end - 1);
}

/* Behind a gap (compaction, a mark of a transaction) the next record comes, or the end. */
static struct record *judge(const struct one *o, const rd_kafka_message_t *m, struct err *e)
{
    struct kafka_scratch scratch = {0};
    struct record *r;

    if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR && m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        (void)refuse(o, m->err, e);
        return NULL;
    }
    if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF || m->offset != o->offset) {
        (void)err_set(e, ERR_INPUT, 0,
                      "topic %s partition %d has no record at offset %lld: compacted away, or a "
                      "mark of a transaction",
                      o->topic, (int)o->partition, (long long)o->offset);
        return NULL;
    }
    r = kafka_record_new(m, o->topic, 0, &scratch);
    mem_free(scratch.headers);
    return r;
}

static struct record *consume(struct one *o, struct err *e)
{
    struct record *r = NULL;
    rd_kafka_message_t *m = NULL;

    if (rd_kafka_consume_start(o->rkt, o->partition, o->offset) != 0) {
        (void)refuse(o, rd_kafka_last_error(), e);
        return NULL;
    }
    while (m == NULL && o->refusal.kind == ERR_NONE && clock_mono_ms() < o->until_ms) {
        m = rd_kafka_consume(o->rkt, o->partition, 100);
        rd_kafka_poll(o->rk, 0);
    }
    if (m != NULL) {
        r = judge(o, m, e);
        rd_kafka_message_destroy(m);
    } else {
        (void)err_set(e, ERR_TRANSIENT, 0, "kafka: %s partition %d did not answer in time",
                      o->topic, (int)o->partition);
    }
    (void)rd_kafka_consume_stop(o->rkt, o->partition);
    return r;
}

struct record *kafka_read_one(const struct config *config, const char *topic, int32_t partition,
                              int64_t offset, int wait_ms, struct err *e)
{
    struct one o = {.topic = topic,
                    .partition = partition,
                    .offset = offset,
                    .until_ms = clock_mono_ms() + wait_ms};
    struct record *r = NULL;

    if (handle(&o, config, e) && inside(&o, e))
        r = consume(&o, e);
    if (r == NULL && o.rk != NULL)
        (void)kafka_refused(o.rk, &o.refusal, e);
    if (o.rkt != NULL)
        rd_kafka_topic_destroy(o.rkt);
    if (o.rk != NULL)
        rd_kafka_destroy(o.rk);
    return r;
}
