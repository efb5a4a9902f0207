/*
 * Whole topics from begin to end. librdkafka's simple consumer: it knows no group, so it needs no
 * right to one and disturbs none.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/kafka_private.h"

struct part {
    rd_kafka_topic_t *rkt; /* borrowed from the topics of the reader */
    const char *topic;
    int32_t partition;
    int route;
    int64_t low, end, position;
    bool reading;
};

struct kafka_reader {
    const struct config *config;
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    rd_kafka_topic_t **rkts;
    size_t n_rkts;
    struct part *parts;
    size_t n_parts, n_reading;
    struct kafka_topics found; /* owns the names */
    struct kafka_scratch scratch;
    int64_t since_ms; /* -1: from the first record */
    unsigned since_poll;
    size_t taken_bytes; /* since the fetchers were woken */
    struct err failure; /* kind ERR_NONE: none */
};

static void on_error(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
    struct kafka_reader *r = opaque;

    (void)rk;
    kafka_refusal_keep(&r->failure, (rd_kafka_resp_err_t)err, reason);
    if (r->failure.kind == ERR_NONE)
        log_warn("kafka error, trying on", LOG_TEXT("why", reason));
}

static bool open_handle(struct kafka_reader *r, int brokers, struct err *e)
{
    struct kafka_prefetch prefetch;

    kafka_prefetch_limits(r->config->worker.max_bytes / 2, brokers, &prefetch);
    const struct kafka_setting defaults[] = {
        {.name = "queued.max.messages.kbytes", .value = prefetch.kbytes},
        {.name = "queued.min.messages", .value = prefetch.messages},
        {.name = "fetch.message.max.bytes", .value = prefetch.fetch_bytes},
        {.name = "fetch.max.bytes", .value = prefetch.response_bytes},
        {.name = "fetch.wait.max.ms", .value = "100"},
        {.name = "fetch.error.backoff.ms", .value = "100"},
        {.name = "log.connection.close", .value = "false"},
        {0},
    };
    static const struct kafka_setting musts[] = {
        {"group.id", ""},
        {"auto.offset.reset", "earliest"},
        {"enable.partition.eof", "true"}, /* ends the reading */
        {"isolation.level", "read_committed"},
        {"enable.auto.commit", "false"},
        {"message.max.bytes", "1000"}, /* a producer's, but fetch.max.bytes may not be below it */
        {0},
    };
    rd_kafka_conf_t *conf;

    if (!kafka_conf_build(r->config, defaults, musts, &conf, e))
        return false;
    rd_kafka_conf_set_opaque(conf, r);
    rd_kafka_conf_set_error_cb(conf, on_error);
    r->rk = kafka_handle_new(RD_KAFKA_CONSUMER, conf, e);
    if (r->rk == NULL)
        return false;
    r->queue = rd_kafka_queue_new(r->rk);
    return true;
}

/* Only the topics of the list stay; one that is not there is an error. */
static bool select_topics(struct kafka_reader *r, const char *const *topics, size_t n, int wait_ms,
                          struct err *e)
{
    struct err refusal;
    rd_kafka_t *rk = kafka_admin_handle(r->config, &refusal, e);
    bool ok;

    if (rk == NULL)
        return false;
    if (topics == NULL) {
        ok = kafka_topics_list(rk, r->config, wait_ms, &r->found, e);
        if (ok && r->found.missing != NULL)
            ok = err_set(e, ERR_CONFIG, 0, "topic %s does not exist", r->found.missing);
    } else {
        ok = kafka_topics_named(rk, r->config, topics, n, wait_ms, &r->found, e);
    }
    ok = ok || kafka_refused(rk, &refusal, e);
    rd_kafka_destroy(rk);
    return ok;
}

/* Moves the begin to the first record of this time or later; the end when there is none. */
static bool since(struct kafka_reader *r, struct part *p, int wait_ms, struct err *e)
{
    rd_kafka_topic_partition_list_t *list;
    rd_kafka_topic_partition_t *at;
    rd_kafka_resp_err_t err;

    if (r->since_ms < 0)
        return true;
    list = rd_kafka_topic_partition_list_new(1);
    at = rd_kafka_topic_partition_list_add(list, p->topic, p->partition);
    at->offset = r->since_ms; /* the question; the answer comes in its place */
    err = rd_kafka_offsets_for_times(r->rk, list, wait_ms);
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
        err = at->err;
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR && (at->offset < 0 || at->offset > p->end))
        p->low = p->end;
    else if (err == RD_KAFKA_RESP_ERR_NO_ERROR && at->offset > p->low)
        p->low = at->offset;
    rd_kafka_topic_partition_list_destroy(list);
    return err == RD_KAFKA_RESP_ERR_NO_ERROR ||
           err_set(e, kafka_error_kind(err), err, "kafka: can't ask %s[%d] for a time: %s",
                   p->topic, (int)p->partition, rd_kafka_err2str(err));
}

static bool start_part(struct kafka_reader *r, struct part *p, int wait_ms, struct err *e)
{
    rd_kafka_resp_err_t err =
        rd_kafka_query_watermark_offsets(r->rk, p->topic, p->partition, &p->low, &p->end, wait_ms);

    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return err_set(e, kafka_error_kind(err), err, "kafka: can't ask for the end of %s[%d]: %s",
                       p->topic, (int)p->partition, rd_kafka_err2str(err));
    if (!since(r, p, wait_ms, e))
        return false;
    p->position = p->low;
    if (p->end <= p->low)
        return true;
    if (rd_kafka_consume_start_queue(p->rkt, p->partition, p->low, r->queue) != 0) {
        err = rd_kafka_last_error();
        return err_set(e, kafka_error_kind(err), err, "kafka: can't read %s[%d]: %s", p->topic,
                       (int)p->partition, rd_kafka_err2str(err));
    }
    p->reading = true;
    r->n_reading++;
    return true;
}

static bool start(struct kafka_reader *r, int wait_ms, struct err *e)
{
    int partitions = 0;

    for (size_t t = 0; t < r->found.n; t++)
        partitions += r->found.items[t].partitions;
    if (!open_handle(r, r->found.brokers, e))
        return false;
    r->rkts = mem_array(r->found.n + 1, sizeof(rd_kafka_topic_t *));
    r->parts = mem_array((size_t)partitions + 1, sizeof *r->parts);
    for (size_t t = 0; t < r->found.n; t++) {
        const struct kafka_topic *topic = &r->found.items[t];
        rd_kafka_topic_t *rkt = rd_kafka_topic_new(r->rk, topic->name, NULL);

        if (rkt == NULL)
            return err_set(e, ERR_CONFIG, 0, "kafka: topic %s: %s", topic->name,
                           rd_kafka_err2str(rd_kafka_last_error()));
        r->rkts[r->n_rkts++] = rkt;
        for (int p = 0; p < topic->partitions; p++) {
            struct part *part = &r->parts[r->n_parts++];

            *part = (struct part){
                .rkt = rkt, .topic = topic->name, .partition = p, .route = topic->route};
            if (!start_part(r, part, wait_ms, e))
                return kafka_refused(r->rk, &r->failure, e);
        }
    }
    return true;
}

struct kafka_reader *kafka_reader_new(const struct config *config, const char *const *topics,
                                      size_t n, int wait_ms, struct err *e)
{
    return kafka_reader_since(config, topics, n, -1, wait_ms, e);
}

struct kafka_reader *kafka_reader_since(const struct config *config, const char *const *topics,
                                        size_t n, int64_t since_ms, int wait_ms, struct err *e)
{
    struct kafka_reader *r = mem_new(sizeof *r);

    r->config = config;
    r->since_ms = since_ms;
    if (!select_topics(r, topics, n, wait_ms, e) || !start(r, wait_ms, e)) {
        kafka_reader_free(r);
        return NULL;
    }
    return r;
}

static void stop_part(struct kafka_reader *r, struct part *p)
{
    if (!p->reading)
        return;
    p->reading = false;
    r->n_reading--;
    (void)rd_kafka_consume_stop(p->rkt, p->partition);
}

void kafka_reader_free(struct kafka_reader *r)
{
    if (r == NULL)
        return;
    for (size_t i = 0; i < r->n_parts; i++)
        stop_part(r, &r->parts[i]);
    if (r->queue != NULL)
        rd_kafka_queue_destroy(r->queue);
    for (size_t i = 0; i < r->n_rkts; i++)
        rd_kafka_topic_destroy(r->rkts[i]);
    if (r->rk != NULL)
        rd_kafka_destroy(r->rk);
    kafka_topics_clear(&r->found);
    mem_free(r->rkts);
    mem_free(r->parts);
    mem_free(r->scratch.headers);
    mem_free(r);
}

static struct part *part_of(struct kafka_reader *r, const rd_kafka_message_t *m)
{
    for (size_t i = 0; i < r->n_parts; i++)
        if (r->parts[i].rkt == m->rkt && r->parts[i].partition == m->partition)
            return &r->parts[i];
    /* librdkafka may use another handle for the same topic. */
    for (size_t i = 0; m->rkt != NULL && i < r->n_parts; i++)
        if (r->parts[i].partition == m->partition &&
            strcmp(r->parts[i].topic, rd_kafka_topic_name(m->rkt)) == 0)
            return &r->parts[i];
    return NULL;
}

/* kafka_prefetch.c says why: a broker's thread that found the queue full looks again after a second
 * only. */
static void wake_fetchers(struct kafka_reader *r, size_t bytes)
{
    rd_kafka_topic_partition_list_t *list;

    r->taken_bytes += bytes + KAFKA_MESSAGE_BYTES;
    if (r->taken_bytes < (size_t)r->config->worker.max_bytes / 16 ||
        rd_kafka_version() >= 0x020200ff)
        return;
    r->taken_bytes = 0;
    list = rd_kafka_topic_partition_list_new((int)r->n_parts);
    for (size_t i = 0; i < r->n_parts; i++)
        if (r->parts[i].reading)
            rd_kafka_topic_partition_list_add(list, r->parts[i].topic, r->parts[i].partition)
                ->offset = RD_KAFKA_OFFSET_END;
    (void)rd_kafka_offsets_for_times(r->rk, list, 0);
    rd_kafka_topic_partition_list_destroy(list);
}

/* NULL: an event, or behind the end. */
static struct record *take(struct kafka_reader *r, const rd_kafka_message_t *m)
{
    struct part *p = part_of(r, m);
    struct record *record = NULL;

    if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR && m->err != RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        enum err_kind kind = kafka_error_kind(m->err);

        if (kind == ERR_AUTH || kind == ERR_CONFIG)
            err_set(&r->failure, kind, m->err, "kafka: can't read %s: %s",
                    p != NULL ? p->topic : "a topic", rd_kafka_message_errstr(m));
        else
            log_warn("kafka error, trying on", LOG_TEXT("why", rd_kafka_message_errstr(m)));
        return NULL;
    }
    if (p == NULL || !p->reading)
        return NULL;
    if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR && m->offset < p->end) {
        record = kafka_record_new(m, p->topic, (uint32_t)(p - r->parts), &r->scratch);
        record->route = p->route < 0 ? UINT32_MAX : (uint32_t)p->route;
        p->position = m->offset + 1;
    } else {
        p->position = p->end < m->offset ? p->end : m->offset;
    }
    if (p->position >= p->end)
        stop_part(r, p);
    return record;
}

enum kafka_read kafka_reader_next(struct kafka_reader *r, int wait_ms, struct record **out,
                                  struct err *e)
{
    int64_t until_ms = clock_mono_ms() + wait_ms;

    *out = NULL;
    for (;;) {
        if (r->failure.kind != ERR_NONE) {
            *e = r->failure;
            return KAFKA_READ_ERROR;
        }
        if (r->n_reading == 0)
            return KAFKA_READ_END;
        if (r->since_poll++ >= 1000) {
            r->since_poll = 0;
            rd_kafka_poll(r->rk, 0);
        }

        int64_t left_ms = until_ms - clock_mono_ms();
        rd_kafka_message_t *m = rd_kafka_consume_queue(r->queue, left_ms > 0 ? (int)left_ms : 0);
        if (m == NULL) {
            rd_kafka_poll(r->rk, 0);
            if (r->failure.kind == ERR_NONE && left_ms <= 0)
                return KAFKA_READ_NOTHING;
            continue;
        }
        wake_fetchers(r, m->key_len + m->len);
        *out = take(r, m);
        rd_kafka_message_destroy(m);
        if (*out != NULL)
            return KAFKA_READ_RECORD;
    }
}

void kafka_reader_progress(const struct kafka_reader *r, uint64_t *done, uint64_t *total)
{
    *done = *total = 0;
    for (size_t i = 0; i < r->n_parts; i++) {
        const struct part *p = &r->parts[i];

        if (p->end > p->low) {
            *total += (uint64_t)(p->end - p->low);
            *done += (uint64_t)(p->position - p->low);
        }
    }
}

bool kafka_reader_range(const struct kafka_reader *r, size_t slot, struct kafka_range *out)
{
    if (slot >= r->n_parts)
        return false;
    *out = (struct kafka_range){.topic = r->parts[slot].topic,
                                .partition = r->parts[slot].partition,
                                .from = r->parts[slot].low,
                                .end = r->parts[slot].end};
    return true;
}
