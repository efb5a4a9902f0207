/*
 * The producer of dead letters. Several workers send at once; each polls while it waits, so whoever
 * polls serves the delivery reports of all.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "io/kafka_private.h"

enum {
    POLL_MS = 10,
    ERROR_TEXT_MAX = 1024,
    SAY_AGAIN_MS = 30000,
    FULL_WAIT_MS = 5000,
    ASK_MS = 1000
};

struct kafka_deadletter {
    const struct config *config;
    pthread_mutex_t lock; /* leaf, but for making and ending the handle */
    rd_kafka_t *rk;       /* lock; NULL: to be made */
    unsigned users;       /* lock; of rk */
    bool broken;          /* lock; a fatal error: a new one when nobody uses it any more */
    bool asked;           /* lock; rk knows the topic, or was told to */
    struct log_limit limit;
};

/* What has to go so that the brokers take it. */
struct shape {
    enum { WHOLE, WITHOUT_VALUE, BARE } strip;
    bool without_time;
};

struct report {
    rd_kafka_resp_err_t err;
    _Atomic size_t *left;
};

/* --- the handle ---------------------------------------------------------------------------- */

static void on_report(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    struct report *report = m->_private;

    (void)rk;
    (void)opaque;
    report->err = m->err;
    atomic_fetch_sub(report->left, 1); /* the last touch: the sender may go on */
}

static void on_error(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
    struct kafka_deadletter *d = opaque;
    int64_t held_back = 0;

    (void)rk;
    (void)err;
    if (log_limit_pass(&d->limit, SAY_AGAIN_MS, &held_back))
        log_warn("dead-letter producer", LOG_TEXT("why", reason), LOG_INT("held_back", held_back));
}

static rd_kafka_t *handle_new(struct kafka_deadletter *d, struct err *e)
{
    static const struct kafka_setting defaults[] = {
        {.name = "message.timeout.ms", .value = "5000"},
        {.name = "linger.ms", .value = "5"},
        {.name = "topic.metadata.propagation.max.ms", .value = "3000"},
        /* The topic's own limit shall decide; the brokers cut the connection above 100 MiB. */
        {.name = "message.max.bytes", .value = "67108864"},
        {.name = "socket.nagle.disable", .value = "true"},
        {.name = "log.connection.close", .value = "false"},
        {0},
    };
    static const struct kafka_setting musts[] = {
        {"acks", "all"},
        {"enable.idempotence", "true"},
        {"delivery.report.only.error", "false"},
        {0},
    };
    rd_kafka_conf_t *conf;

    if (!kafka_conf_build(d->config, defaults, musts, &conf, e))
        return NULL;
    rd_kafka_conf_set_opaque(conf, d);
    rd_kafka_conf_set_dr_msg_cb(conf, on_report);
    rd_kafka_conf_set_error_cb(conf, on_error);
    return kafka_handle_new(RD_KAFKA_PRODUCER, conf, e);
}

/* A message for a topic that librdkafka has not heard of waits until it looks around, once a
 * second. Whatever the answer is, sending finds out by itself. */
static void ask_for_topic(const struct kafka_deadletter *d, rd_kafka_t *rk)
{
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, d->config->dead_letter.topic, NULL);
    const struct rd_kafka_metadata *answer;

    if (rkt == NULL)
        return;
    if (rd_kafka_metadata(rk, 0, rkt, &answer, ASK_MS) == RD_KAFKA_RESP_ERR_NO_ERROR)
        rd_kafka_metadata_destroy(answer);
    rd_kafka_topic_destroy(rkt);
}

static rd_kafka_t *handle_take(struct kafka_deadletter *d, struct err *e)
{
    rd_kafka_t *rk;
    bool ask;

    pthread_mutex_lock(&d->lock);
    if (d->rk == NULL) {
        d->rk = handle_new(d, e);
        d->broken = d->asked = false;
    }
    rk = d->rk;
    d->users += rk != NULL;
    ask = rk != NULL && !d->asked;
    d->asked = true;
    pthread_mutex_unlock(&d->lock);
    if (ask)
        ask_for_topic(d, rk);
    return rk;
}

static void handle_return(struct kafka_deadletter *d)
{
    rd_kafka_t *old = NULL;
    char text[256] = "";

    pthread_mutex_lock(&d->lock);
    if (!d->broken &&
        rd_kafka_fatal_error(d->rk, text, sizeof text) != RD_KAFKA_RESP_ERR_NO_ERROR) {
        d->broken = true;
        log_warn("dead-letter producer is made anew", LOG_TEXT("why", text));
    }
    d->users--;
    if (d->broken && d->users == 0) {
        old = d->rk;
        d->rk = NULL;
    }
    pthread_mutex_unlock(&d->lock);
    if (old != NULL)
        rd_kafka_destroy(old);
}

/* --- one dead letter ----------------------------------------------------------------------- */

static const char prefix[] = "idemsink.";

static void add_text(rd_kafka_headers_t *list, const char *name, const char *text, size_t len)
{
    char full[64];

    (void)snprintf(full, sizeof full, "%s%s", prefix, name);
    (void)rd_kafka_header_add(list, full, -1, text, (ssize_t)len);
}

static void add_number(rd_kafka_headers_t *list, const char *name, int64_t number)
{
    char text[24];

    add_text(list, name, text, (size_t)snprintf(text, sizeof text, "%" PRId64, number));
}

static void add_dropped(rd_kafka_headers_t *list, const char *name, size_t bytes)
{
    char text[64];

    add_text(list, name, text,
             (size_t)snprintf(text, sizeof text, "dropped: too large, %zu bytes", bytes));
}

static size_t add_theirs(rd_kafka_headers_t *list, const struct record *r, bool add)
{
    size_t bytes = 0;

    for (size_t i = 0; i < r->n_headers; i++) {
        const struct record_header *h = &r->headers[i];

        /* Ours from an earlier passage are replaced: they would grow with every round. */
        if (h->name.len >= sizeof prefix - 1 && memcmp(h->name.ptr, prefix, sizeof prefix - 1) == 0)
            continue;
        bytes += h->name.len + h->value.len;
        if (add)
            (void)rd_kafka_header_add(list, h->name.ptr, (ssize_t)h->name.len, h->value.ptr,
                                      (ssize_t)h->value.len);
    }
    return bytes;
}

/* Its timestamp, if it has one. 0 is librdkafka's word for now. */
static bool time_can_be_sent(const struct record *r)
{
    return r->timestamp_type == RECORD_TIMESTAMP_NONE || r->timestamp_ms > 0;
}

static rd_kafka_headers_t *headers_of(const struct kafka_deadletter *d, const struct record *r,
                                      const struct shape *shape)
{
    rd_kafka_headers_t *list = rd_kafka_headers_new(r->n_headers + 12);
    const char *reason = reason_name(r->rejected.reason);
    const char *text = r->rejected.text != NULL ? r->rejected.text : "";
    char now[32];
    size_t theirs = add_theirs(list, r, shape->strip < BARE);

    clock_format(clock_wall_ms(), now);
    add_text(list, "reason", reason, strlen(reason));
    add_text(list, "error", text, bytes_cut_utf8(text, strlen(text), ERROR_TEXT_MAX));
    add_text(list, "topic", r->topic, strlen(r->topic));
    add_number(list, "partition", r->partition);
    add_number(list, "offset", r->offset);
    add_number(list, "attempts", r->attempts);
    add_text(list, "time", now, strlen(now));
    add_text(list, "group", d->config->kafka.group, strlen(d->config->kafka.group));
    add_text(list, "version", IDEMSINK_VERSION, strlen(IDEMSINK_VERSION));
    /* Always: a topic that puts in its own (LogAppendTime) keeps no other, and `dlq replay` needs
     * it. */
    if (r->timestamp_type == RECORD_TIMESTAMP_NONE)
        add_text(list, "timestamp", "none", 4);
    else
        add_number(list, "timestamp", r->timestamp_ms);
    if (shape->strip >= WITHOUT_VALUE)
        add_dropped(list, "value", r->value.len);
    if (shape->strip >= BARE) {
        add_dropped(list, "headers", theirs);
        add_dropped(list, "key", r->key.len);
    }
    return list;
}

/* Hands it to librdkafka; a refusal at once is a report too. */
static void produce(struct kafka_deadletter *d, rd_kafka_t *rk, const struct record *r,
                    const struct shape *shape, struct report *report)
{
    struct slice value = shape->strip >= WITHOUT_VALUE ? (struct slice){.ptr = NULL} : r->value;
    struct slice key = shape->strip >= BARE ? (struct slice){.ptr = NULL} : r->key;
    int64_t give_up_at_ms = clock_mono_ms() + FULL_WAIT_MS;
    rd_kafka_resp_err_t err;

    for (;;) {
        rd_kafka_vu_t parts[] = {
            {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = d->config->dead_letter.topic},
            {.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {(void *)(uintptr_t)key.ptr, key.len}},
            {.vtype = RD_KAFKA_VTYPE_VALUE, .u.mem = {(void *)(uintptr_t)value.ptr, value.len}},
            {.vtype = RD_KAFKA_VTYPE_TIMESTAMP,
             .u.i64 = shape->without_time || !time_can_be_sent(r) || r->timestamp_ms < 0
                          ? 0
                          : r->timestamp_ms},
            {.vtype = RD_KAFKA_VTYPE_HEADERS, .u.headers = headers_of(d, r, shape)},
            {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
            {.vtype = RD_KAFKA_VTYPE_OPAQUE, .u.ptr = report},
        };
        rd_kafka_error_t *error = rd_kafka_produceva(rk, parts, sizeof parts / sizeof *parts);

        if (error == NULL)
            return; /* the headers are librdkafka's now */
        err = rd_kafka_error_code(error);
        rd_kafka_error_destroy(error);
        rd_kafka_headers_destroy(parts[4].u.headers);
        if (err != RD_KAFKA_RESP_ERR__QUEUE_FULL || clock_mono_ms() >= give_up_at_ms)
            break;
        rd_kafka_poll(rk, POLL_MS);
    }
    report->err = err;
    atomic_fetch_sub(report->left, 1);
}

static void wait_reports(rd_kafka_t *rk, const _Atomic size_t *left)
{
    /* Ends: librdkafka reports every message after message.timeout.ms at the latest. */
    while (atomic_load(left) > 0)
        rd_kafka_poll(rk, POLL_MS);
}

/* --- a send -------------------------------------------------------------------------------- */

static void log_shape(const struct record *r, const struct shape *shape)
{
    if (shape->strip == WHOLE && !shape->without_time)
        return;
    log_warn("dead letter sent incomplete, as the brokers refused it whole",
             LOG_TEXT("topic", r->topic), LOG_INT("partition", r->partition),
             LOG_INT("offset", r->offset), LOG_INT("value_bytes", r->value.len),
             LOG_TEXT("without", shape->strip == BARE            ? "value, headers, key"
                                 : shape->strip == WITHOUT_VALUE ? "value"
                                                                 : "timestamp"));
}

/* Alone: the brokers refuse a whole batch for one of its records. Then with less and less. */
static rd_kafka_resp_err_t rescue(struct kafka_deadletter *d, rd_kafka_t *rk,
                                  const struct record *r)
{
    struct shape shape = {.strip = WHOLE};

    for (;;) {
        _Atomic size_t left = 1;
        struct report report = {.left = &left};

        produce(d, rk, r, &shape, &report);
        wait_reports(rk, &left);
        if (report.err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE && shape.strip < BARE) {
            shape.strip++;
        } else if (report.err == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP && !shape.without_time) {
            shape.without_time = true;
        } else {
            if (report.err == RD_KAFKA_RESP_ERR_NO_ERROR)
                log_shape(r, &shape);
            return report.err;
        }
    }
}

static bool wants_rescue(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE ||
           err == RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP || err == RD_KAFKA_RESP_ERR_INVALID_RECORD;
}

/* --- why not ------------------------------------------------------------------------------- */

/*
 * librdkafka says "timed out" and no more, also when the brokers answer each time that too few
 * replicas are in sync. Asks them; takes ASK_MS at most.
 */
static const char *why_timed_out(const struct kafka_deadletter *d, rd_kafka_t *rk)
{
    const struct rd_kafka_metadata *answer;
    rd_kafka_topic_t *rkt = rd_kafka_topic_new(rk, d->config->dead_letter.topic, NULL);
    const char *why = "the brokers can't be reached";
    bool leaders = true;

    if (rkt == NULL)
        return "";
    if (rd_kafka_metadata(rk, 0, rkt, &answer, ASK_MS) == RD_KAFKA_RESP_ERR_NO_ERROR) {
        for (int i = 0; answer->topic_cnt == 1 && i < answer->topics[0].partition_cnt; i++)
            leaders = leaders && answer->topics[0].partitions[i].leader >= 0;
        why = leaders ? "the brokers answer, so they are slow, or fewer replicas are in sync than "
                        "its min.insync.replicas asks for"
                      : "a partition of it has no leader";
        rd_kafka_metadata_destroy(answer);
    }
    rd_kafka_topic_destroy(rkt);
    return why;
}

static const char *advice(const struct kafka_deadletter *d, rd_kafka_t *rk, rd_kafka_resp_err_t err)
{
    switch ((int)err) {
    case RD_KAFKA_RESP_ERR__MSG_TIMED_OUT:
        return why_timed_out(d, rk);
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
        return "idemsink init makes it";
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
        return "grant write and describe on it";
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
        return "grant idempotent write on the cluster, or write on the topic to brokers of 2.8 and "
               "later";
    case RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE:
        return "its max.message.bytes is too small even for the headers";
    case RD_KAFKA_RESP_ERR_INVALID_RECORD:
        return "a topic with cleanup.policy = compact refuses records without a key";
    default:
        return "";
    }
}

static void explain(const struct kafka_deadletter *d, rd_kafka_t *rk, rd_kafka_resp_err_t err,
                    struct err *e)
{
    char text[256] = "";
    /* After a fatal error the reports say "timed out", or "fatal" and not why. */
    rd_kafka_resp_err_t behind = rd_kafka_fatal_error(rk, text, sizeof text);

    if (behind != RD_KAFKA_RESP_ERR_NO_ERROR)
        err = behind;
    const char *more = advice(d, rk, err);
    err_set(e, kafka_error_kind(err), err, "dead-letter topic %s: %s%s%s",
            d->config->dead_letter.topic, text[0] != '\0' ? text : rd_kafka_err2str(err),
            *more != '\0' ? ": " : "", more);
}

/* --- all of it ----------------------------------------------------------------------------- */

static bool deadletter_send(void *self, struct record *const *records, size_t n, bool *ok,
                            struct err *e)
{
    struct kafka_deadletter *d = self;
    const struct shape whole = {.strip = WHOLE};
    rd_kafka_resp_err_t first = RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_t *rk;
    _Atomic size_t left = n;
    struct report *reports;
    bool away = false;

    memset(ok, 0, n * sizeof *ok);
    if (n == 0)
        return true;
    rk = handle_take(d, e);
    if (rk == NULL)
        return false;

    reports = mem_array(n, sizeof *reports);
    for (size_t i = 0; i < n; i++) {
        reports[i].left = &left;
        produce(d, rk, records[i], &whole, &reports[i]);
    }
    wait_reports(rk, &left);
    for (size_t i = 0; i < n; i++) {
        rd_kafka_resp_err_t err = reports[i].err;

        if (wants_rescue(err) && away) {
            /* Each of up to n rescues would take as long as this one did. */
            err = RD_KAFKA_RESP_ERR__MSG_TIMED_OUT;
        } else if (wants_rescue(err)) {
            err = rescue(d, rk, records[i]);
            away = err == RD_KAFKA_RESP_ERR__MSG_TIMED_OUT;
        }
        ok[i] = err == RD_KAFKA_RESP_ERR_NO_ERROR;
        if (!ok[i] && first == RD_KAFKA_RESP_ERR_NO_ERROR)
            first = err;
    }
    mem_free(reports);
    if (first != RD_KAFKA_RESP_ERR_NO_ERROR)
        explain(d, rk, first, e);
    handle_return(d);
    return first == RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* --- life ---------------------------------------------------------------------------------- */

static const struct deadletter_ops ops = {.send = deadletter_send};

bool kafka_deadletter_new(const struct config *config, struct deadletter *out, struct err *e)
{
    struct kafka_deadletter *d;

    *out = (struct deadletter){0};
    if (config->dead_letter.topic == NULL || config->dead_letter.topic[0] == '\0')
        return true;
    d = mem_new(sizeof *d);
    d->config = config;
    pthread_mutex_init(&d->lock, NULL);
    d->rk = handle_new(d, e);
    if (d->rk == NULL) {
        pthread_mutex_destroy(&d->lock);
        mem_free(d);
        return false;
    }
    *out = (struct deadletter){.ops = &ops, .self = d};
    return true;
}

void kafka_deadletter_free(struct deadletter *dead)
{
    struct kafka_deadletter *d = dead->self;

    if (d == NULL)
        return;
    if (d->rk != NULL)
        rd_kafka_destroy(d->rk);
    pthread_mutex_destroy(&d->lock);
    mem_free(d);
    *dead = (struct deadletter){0};
}
