/*
 * What we may do at the brokers, asked by doing it in a way that changes nothing. The protocol's
 * own question (authorized operations) came to librdkafka with 2.3.0.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/kafka_private.h"

enum { PROBE_BYTES_MAX = 8 << 20 };

/* --- what librdkafka takes -------------------------------------------------------------------- */

static bool takes(const struct config *c, rd_kafka_type_t type, const struct kafka_setting *musts,
                  struct err *e)
{
    static const struct kafka_setting none[] = {{0}};
    char text[400];
    rd_kafka_conf_t *conf;
    rd_kafka_t *rk;

    if (!kafka_conf_build(c, none, musts, &conf, e))
        return false;
    /* Not kafka_handle_new(), whose handle would go and fetch a token. */
    rk = rd_kafka_new(type, conf, text, sizeof text);
    if (rk == NULL) {
        rd_kafka_conf_destroy(conf);
        return err_set(e, ERR_CONFIG, 0, "kafka: %s", text);
    }
    rd_kafka_destroy(rk);
    return true;
}

bool kafka_check_properties(const struct config *config, struct err *e)
{
    const struct kafka_setting consumer[] = {
        {"group.id", config->kafka.group},
        {"enable.auto.commit", "false"},
        {"enable.partition.eof", "true"},
        {"isolation.level", "read_committed"},
        {"log_level", "0"}, /* that there are no brokers */
        {0},
    };
    static const struct kafka_setting producer[] = {
        {"acks", "all"}, {"enable.idempotence", "true"}, {"log_level", "0"}, {0}};
    struct config alone = *config;
    char nobody[] = "";

    alone.kafka.brokers = nobody;
    return takes(&alone, RD_KAFKA_CONSUMER, consumer, e) &&
           (config->dead_letter.topic[0] == '\0' || takes(&alone, RD_KAFKA_PRODUCER, producer, e));
}

/* --- one who asks ----------------------------------------------------------------------------- */

struct kafka_asker {
    const struct config *config;
    int wait_ms;
    rd_kafka_t *consumer; /* of the group, but it never joins */
    rd_kafka_queue_t *queue;
    struct err refusal;
};

static void on_error(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
    struct kafka_asker *a = opaque;

    (void)rk;
    kafka_refusal_keep(&a->refusal, (rd_kafka_resp_err_t)err, reason);
}

struct kafka_asker *kafka_asker_new(const struct config *config, int wait_ms, struct err *e)
{
    static const struct kafka_setting defaults[] = {
        {.name = "fetch.wait.max.ms", .value = "100"},
        {.name = "log.connection.close", .value = "false"},
        {0},
    };
    const struct kafka_setting musts[] = {
        {"group.id", config->kafka.group},     {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"}, {"enable.partition.eof", "true"},
        {"queued.min.messages", "1"},          {0},
    };
    struct kafka_asker *a = mem_new(sizeof *a);
    rd_kafka_conf_t *conf;

    *a = (struct kafka_asker){.config = config, .wait_ms = wait_ms};
    if (kafka_conf_build(config, defaults, musts, &conf, e)) {
        rd_kafka_conf_set_opaque(conf, a);
        rd_kafka_conf_set_error_cb(conf, on_error);
        a->consumer = kafka_handle_new(RD_KAFKA_CONSUMER, conf, e);
    }
    if (a->consumer == NULL) {
        mem_free(a);
        return NULL;
    }
    a->queue = rd_kafka_queue_new(a->consumer);
    return a;
}

void kafka_asker_free(struct kafka_asker *a)
{
    if (a == NULL)
        return;
    rd_kafka_queue_destroy(a->queue);
    rd_kafka_destroy(a->consumer);
    mem_free(a);
}

static bool no_answer(struct err *e, const char *what)
{
    return err_set(e, ERR_TRANSIENT, 0, "no answer to %s in time", what);
}

/* An answer that is an error: a right that is missing, or anything else. */
static bool refused(struct err *e, rd_kafka_resp_err_t err, const char *right, const char *what)
{
    if (kafka_error_kind(err) == ERR_AUTH)
        return err_set(e, ERR_AUTH, err, "no right to %s; allow it (ACL) for our user", right);
    return err_set(e, kafka_error_kind(err), err, "%s: %s", what, rd_kafka_err2str(err));
}

/* --- topics -------------------------------------------------------------------------------- */

static bool judge_metadata(const struct rd_kafka_metadata_topic *t, struct kafka_topic_state *out,
                           struct err *e)
{
    if (t->err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
        return err_set(e, ERR_CONFIG, t->err, "the topic is not there");
    if (t->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return refused(e, t->err, "describe the topic", "the topic");
    out->partitions = t->partition_cnt;
    for (int i = 0; i < t->partition_cnt; i++) {
        if (t->partitions[i].leader < 0)
            out->leaderless++;
        if (i == 0 || t->partitions[i].replica_cnt < out->replicas)
            out->replicas = t->partitions[i].replica_cnt;
        if (i == 0 || t->partitions[i].isr_cnt < out->in_sync)
            out->in_sync = t->partitions[i].isr_cnt;
    }
    return true;
}

bool kafka_ask_topic(struct kafka_asker *a, const char *topic, struct kafka_topic_state *out,
                     struct err *e)
{
    const struct rd_kafka_metadata *all;
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(a->consumer, topic, NULL);
    rd_kafka_resp_err_t err;
    bool ok;

    *out = (struct kafka_topic_state){0};
    if (rkt == NULL)
        return err_set(e, ERR_CONFIG, 0, "topic %s: %s", topic,
                       rd_kafka_err2str(rd_kafka_last_error()));
    err = rd_kafka_metadata(a->consumer, 0, rkt, &all, a->wait_ms);
    rd_kafka_topic_destroy(rkt);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        refused(e, err, "describe the topic", "the topic");
        return kafka_refused(a->consumer, &a->refusal, e);
    }
    ok = all->topic_cnt == 1 ? judge_metadata(&all->topics[0], out, e)
                             : err_set(e, ERR_TRANSIENT, 0, "the brokers don't tell of the topic");
    rd_kafka_metadata_destroy(all);
    return ok;
}

/* --- reading a topic: one fetch behind its end ---------------------------------------------- */

/* False: nothing came that answers. */
static bool fetched(const rd_kafka_message_t *m, rd_kafka_resp_err_t *err)
{
    *err = m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF ? RD_KAFKA_RESP_ERR_NO_ERROR : m->err;
    return *err == RD_KAFKA_RESP_ERR_NO_ERROR || kafka_error_kind(*err) != ERR_TRANSIENT;
}

bool kafka_ask_read(struct kafka_asker *a, const char *topic, struct err *e)
{
    int64_t until_ms = clock_mono_ms() + a->wait_ms;
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(a->consumer, topic, NULL);
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR__TIMED_OUT;
    bool answered = false;

    if (rkt == NULL || rd_kafka_consume_start(rkt, 0, RD_KAFKA_OFFSET_END) != 0) {
        err = rd_kafka_last_error();
        if (rkt != NULL)
            rd_kafka_topic_destroy(rkt);
        return refused(e, err, "read the topic", "reading it");
    }
    while (!answered && clock_mono_ms() < until_ms) {
        rd_kafka_message_t *m = rd_kafka_consume(rkt, 0, 100);

        rd_kafka_poll(a->consumer, 0);
        if (m == NULL)
            continue;
        answered = fetched(m, &err);
        rd_kafka_message_destroy(m);
    }
    (void)rd_kafka_consume_stop(rkt, 0);
    rd_kafka_topic_destroy(rkt);
    if (!answered)
        return no_answer(e, "a fetch");
    return err == RD_KAFKA_RESP_ERR_NO_ERROR || refused(e, err, "read the topic", "reading it");
}

/* --- settings of a topic -------------------------------------------------------------------- */

static void take_setting(const rd_kafka_ConfigEntry_t *entry, struct kafka_topic_settings *out)
{
    const char *name = rd_kafka_ConfigEntry_name(entry), *value = rd_kafka_ConfigEntry_value(entry);

    if (value == NULL)
        return;
    if (strcmp(name, "max.message.bytes") == 0)
        out->max_message_bytes = strtoll(value, NULL, 10);
    else if (strcmp(name, "min.insync.replicas") == 0)
        out->min_insync = strtoll(value, NULL, 10);
    else if (strcmp(name, "retention.ms") == 0)
        out->retention_ms = strtoll(value, NULL, 10);
    else if (strcmp(name, "cleanup.policy") == 0)
        out->compacted = strstr(value, "compact") != NULL;
}

static bool take_settings(rd_kafka_event_t *event, struct kafka_topic_settings *out, struct err *e)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    const rd_kafka_ConfigResource_t **resources;
    const rd_kafka_ConfigEntry_t **entries;
    size_t n = 0;

    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        resources = rd_kafka_DescribeConfigs_result_resources(
            rd_kafka_event_DescribeConfigs_result(event), &n);
        if (n != 1)
            return no_answer(e, "describing its settings");
        err = rd_kafka_ConfigResource_error(resources[0]);
        entries = rd_kafka_ConfigResource_configs(resources[0], &n);
    }
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return refused(e, err, "describe its settings (DescribeConfigs)",
                       "describing its settings");
    for (size_t i = 0; i < n; i++)
        take_setting(entries[i], out);
    return true;
}

bool kafka_ask_settings(struct kafka_asker *a, const char *topic, struct kafka_topic_settings *out,
                        struct err *e)
{
    char text[256];
    rd_kafka_ConfigResource_t *resource =
        rd_kafka_ConfigResource_new(RD_KAFKA_RESOURCE_TOPIC, topic);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(a->consumer, RD_KAFKA_ADMIN_OP_DESCRIBECONFIGS);
    rd_kafka_event_t *event;
    bool ok;

    *out = (struct kafka_topic_settings){
        .max_message_bytes = -1, .min_insync = -1, .retention_ms = -1};
    (void)rd_kafka_AdminOptions_set_request_timeout(options, a->wait_ms, text, sizeof text);
    rd_kafka_DescribeConfigs(a->consumer, &resource, 1, options, a->queue);
    event = rd_kafka_queue_poll(a->queue, a->wait_ms + 1000);
    ok = event != NULL ? take_settings(event, out, e) : no_answer(e, "describing its settings");
    if (event != NULL)
        rd_kafka_event_destroy(event);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_ConfigResource_destroy(resource);
    return ok;
}

/* --- the group ------------------------------------------------------------------------------ */

static bool take_group(rd_kafka_event_t *event, struct kafka_group_state *out, struct err *e)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    const rd_kafka_ConsumerGroupDescription_t **groups;
    const rd_kafka_error_t *error;
    size_t n = 0;

    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        groups = rd_kafka_DescribeConsumerGroups_result_groups(
            rd_kafka_event_DescribeConsumerGroups_result(event), &n);
        if (n != 1)
            return no_answer(e, "describing the group");
        error = rd_kafka_ConsumerGroupDescription_error(groups[0]);
        err = error != NULL ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
    }
    if (err == RD_KAFKA_RESP_ERR_GROUP_ID_NOT_FOUND) /* Kafka 4 of one that nobody was in yet */
        return true;
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return refused(e, err, "the group (Read, Describe)", "describing the group");
    out->members = rd_kafka_ConsumerGroupDescription_member_count(groups[0]);
    (void)snprintf(
        out->state, sizeof out->state, "%s",
        rd_kafka_consumer_group_state_name(rd_kafka_ConsumerGroupDescription_state(groups[0])));
    return true;
}

static bool describe_group(struct kafka_asker *a, struct kafka_group_state *out, struct err *e)
{
    char text[256];
    const char *group = a->config->kafka.group;
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(a->consumer, RD_KAFKA_ADMIN_OP_DESCRIBECONSUMERGROUPS);
    rd_kafka_event_t *event;
    bool ok;

    (void)rd_kafka_AdminOptions_set_request_timeout(options, a->wait_ms, text, sizeof text);
    rd_kafka_DescribeConsumerGroups(a->consumer, &group, 1, options, a->queue);
    event = rd_kafka_queue_poll(a->queue, a->wait_ms + 1000);
    ok = event != NULL ? take_group(event, out, e) : no_answer(e, "describing the group");
    if (event != NULL)
        rd_kafka_event_destroy(event);
    rd_kafka_AdminOptions_destroy(options);
    return ok;
}

/*
 * A commit of a topic that is not there: the broker looks at the right to read the group first
 * (KafkaApis.handleOffsetCommitRequest, 2.0 to 4.1), and then finds nothing to commit.
 */
static bool may_commit(struct kafka_asker *a, struct err *e)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    const rd_kafka_topic_partition_list_t *answers;
    rd_kafka_resp_err_t err;
    rd_kafka_event_t *event;

    rd_kafka_topic_partition_list_add(list, "__idemsink_check_no_such_topic", 0)->offset = 0;
    err = rd_kafka_commit_queue(a->consumer, list, a->queue, NULL, NULL);
    rd_kafka_topic_partition_list_destroy(list);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return refused(e, err, "read the group", "a commit");
    event = rd_kafka_queue_poll(a->queue, a->wait_ms);
    if (event == NULL)
        return no_answer(e, "a commit");
    err = rd_kafka_event_error(event);
    answers = rd_kafka_event_topic_partition_list(event);
    if (answers != NULL && answers->cnt > 0 &&
        answers->elems[0].err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED)
        err = answers->elems[0].err;
    rd_kafka_event_destroy(event);
    if (err == RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED)
        return refused(e, err, "read the group", "a commit");
    if (err == RD_KAFKA_RESP_ERR__TIMED_OUT || err == RD_KAFKA_RESP_ERR__TRANSPORT ||
        err == RD_KAFKA_RESP_ERR__WAIT_COORD)
        return refused(e, err, "read the group", "a commit");
    return true; /* any other answer comes behind that of the right */
}

bool kafka_ask_group(struct kafka_asker *a, struct kafka_group_state *out, struct err *e)
{
    *out = (struct kafka_group_state){0};
    return (describe_group(a, out, e) && may_commit(a, e)) ||
           kafka_refused(a->consumer, &a->refusal, e);
}

/* --- writing a topic: a message that is one byte too large for it ---------------------------- */

struct delivery {
    bool done;
    rd_kafka_resp_err_t err;
    struct err refusal;
};

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    struct delivery *d = opaque;

    (void)rk;
    d->done = true;
    d->err = m->err;
}

static void on_write_error(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
    struct delivery *d = opaque;

    (void)rk;
    kafka_refusal_keep(&d->refusal, (rd_kafka_resp_err_t)err, reason);
}

static rd_kafka_t *writer(const struct kafka_asker *a, struct delivery *d, struct err *e)
{
    static const struct kafka_setting defaults[] = {
        {.name = "log.connection.close", .value = "false"}, {0}};
    char wait[24];
    const struct kafka_setting musts[] = {
        {"acks", "all"},
        {"enable.idempotence", "true"},
        {"compression.type", "none"},
        {"linger.ms", "0"},
        {"message.max.bytes", "16777216"},
        {"message.timeout.ms", wait},
        {0},
    };
    rd_kafka_conf_t *conf;

    (void)snprintf(wait, sizeof wait, "%d", a->wait_ms);
    if (!kafka_conf_build(a->config, defaults, musts, &conf, e))
        return NULL;
    rd_kafka_conf_set_opaque(conf, d);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_error_cb(conf, on_write_error);
    return kafka_handle_new(RD_KAFKA_PRODUCER, conf, e);
}

bool kafka_ask_write(struct kafka_asker *a, const char *topic, int64_t max_message_bytes,
                     struct err *e)
{
    int64_t until_ms = clock_mono_ms() + a->wait_ms + 1000;
    struct delivery d = {0};
    rd_kafka_t *rk;

    if (max_message_bytes < 0 || max_message_bytes > PROBE_BYTES_MAX)
        return err_set(e, ERR_TRANSIENT, 0,
                       "only a message that the topic is sure to refuse could be tried, and %s",
                       max_message_bytes < 0 ? "its max.message.bytes is not known"
                                             : "its max.message.bytes is large");
    rk = writer(a, &d, e);
    if (rk == NULL)
        return false;
    size_t n = (size_t)max_message_bytes + 1;
    char *value = mem_new(n);
    const rd_kafka_vu_t parts[] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = topic},
        {.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = 0},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
        {.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {value, n}},
    };
    rd_kafka_error_t *error = rd_kafka_produceva(rk, parts, sizeof parts / sizeof *parts);
    rd_kafka_resp_err_t err = error ? rd_kafka_error_code(error) : RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_error_destroy(error);
    mem_free(value);
    while (err == RD_KAFKA_RESP_ERR_NO_ERROR && !d.done && d.refusal.kind == ERR_NONE &&
           clock_mono_ms() < until_ms)
        rd_kafka_poll(rk, 100);
    (void)rd_kafka_purge(rk, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT);
    if (d.done)
        err = d.err;
    else if (d.refusal.kind != ERR_NONE)
        err = (rd_kafka_resp_err_t)d.refusal.code;
    else if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
        err = RD_KAFKA_RESP_ERR__TIMED_OUT;
    rd_kafka_destroy(rk);
    return err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ||
           refused(e, err,
                   "write the topic (Write; before Kafka 3.0 also IdempotentWrite on the cluster)",
                   "writing it");
}
