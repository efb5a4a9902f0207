/*
 * Commits: one in flight, answered on a queue of our own.
 *
 * The broker does not guard ownership: a member may commit any partition of its group. So what is
 * not assigned here never enters a request. rd_kafka_commit() could block for as long as the
 * brokers like, a reply queue is waited for as long as we like.
 */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "io/kafka_private.h"

enum { API_JOIN_GROUP = 11, API_SYNC_GROUP = 14 }; /* numbers of the Kafka protocol */
enum { JOIN_LOOK_MS = 10 };

/* --- joins: on librdkafka's threads ---------------------------------------------------------- */

static rd_kafka_resp_err_t on_request_sent(rd_kafka_t *rk, int fd, const char *broker,
                                           int32_t broker_id, int16_t api, int16_t version,
                                           int32_t correlation, size_t size, void *opaque)
{
    struct kafka_source *s = opaque;

    (void)rk, (void)fd, (void)broker, (void)broker_id, (void)version, (void)correlation, (void)size;
    if (api == API_JOIN_GROUP)
        atomic_store(&s->joining, true);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* A join that fails is followed by another one; SyncGroup is the end of one that does not. */
static rd_kafka_resp_err_t on_response_received(rd_kafka_t *rk, int fd, const char *broker,
                                                int32_t broker_id, int16_t api, int16_t version,
                                                int32_t correlation, size_t size, int64_t rtt,
                                                rd_kafka_resp_err_t err, void *opaque)
{
    struct kafka_source *s = opaque;

    (void)rk, (void)fd, (void)broker, (void)broker_id, (void)version, (void)correlation, (void)size;
    (void)rtt, (void)err;
    if (api == API_SYNC_GROUP)
        atomic_store(&s->joining, false);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

/* NOLINTBEGIN(readability-non-const-parameter): librdkafka's type */
static rd_kafka_resp_err_t on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque,
                                  char *text, size_t size)
/* NOLINTEND(readability-non-const-parameter) */
{
    (void)conf, (void)text, (void)size;
    (void)rd_kafka_interceptor_add_on_request_sent(rk, "idemsink", on_request_sent, opaque);
    (void)rd_kafka_interceptor_add_on_response_received(rk, "idemsink", on_response_received,
                                                        opaque);
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

void kafka_commit_heed_joins(struct kafka_source *s, rd_kafka_conf_t *conf)
{
    (void)rd_kafka_conf_interceptor_add_on_new(conf, "idemsink", on_new, s);
}

/* --- commits: on the intake thread ----------------------------------------------------------- */

/* 2.0.2 marks all partitions of a request as failed when one is, and a partition by itself too. */
static bool all_ok(rd_kafka_event_t *event, struct err *e)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    rd_kafka_topic_partition_list_t *list = rd_kafka_event_topic_partition_list(event);

    for (int i = 0; err == RD_KAFKA_RESP_ERR_NO_ERROR && list != NULL && i < list->cnt; i++)
        err = list->elems[i].err;
    if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
        return true;
    return err_set(e, kafka_error_kind(err), err, "kafka: commit not accepted: %s",
                   rd_kafka_err2str(err));
}

/* Drops the points whose assignment is over: whoever reads the partition now decides. */
static size_t still_ours(struct kafka_source *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_flight; i++) {
        const struct kafka_slot *slot = s->slots[s->flight[i].slot];

        if (slot->open && slot->generation == s->flight_generation[i])
            s->flight[n++] = s->flight[i];
    }
    return n;
}

/* One answer, or false after wait_ms. */
static bool take_answer(struct kafka_source *s, int wait_ms)
{
    rd_kafka_event_t *event = rd_kafka_queue_poll(s->replies, wait_ms);

    if (event == NULL)
        return false;
    if (rd_kafka_event_type(event) == RD_KAFKA_EVENT_OFFSET_COMMIT && s->in_flight) {
        s->in_flight = false;
        s->flight_ok = all_ok(event, &s->flight_err);
        FAULT("kafka.after_commit");
        if (s->flight_ok)
            kafka_health_clear(s);
        s->n_flight = still_ours(s);
    }
    rd_kafka_event_destroy(event);
    return true;
}

static void tell(struct kafka_source *s)
{
    int64_t held_back = 0;

    if (!s->flight_ok && log_limit_pass(&s->limits[LIMIT_COMMIT], 30000, &held_back))
        log_warn("commit failed, the next one is computed anew",
                 LOG_TEXT("why", s->flight_err.text), LOG_INT("held_back", held_back));
    s->events.committed(s->events.ctx, s->flight, s->n_flight, s->flight_ok);
}

void kafka_commit_serve(struct kafka_source *s)
{
    bool was_in_flight = s->in_flight;

    while (take_answer(s, 0))
        if (was_in_flight && !s->in_flight) {
            was_in_flight = false;
            tell(s);
        }
}

/* Until nothing is in flight. */
static bool wait_answer(struct kafka_source *s, int64_t until_ms)
{
    while (s->in_flight) {
        int64_t left_ms = until_ms - clock_mono_ms();

        if (left_ms < 0 || (!take_answer(s, (int)left_ms) && left_ms == 0))
            return false;
    }
    return true;
}

static bool wait_joined(struct kafka_source *s, int64_t until_ms)
{
    while (atomic_load(&s->joining)) {
        int64_t left_ms = until_ms - clock_mono_ms();

        if (left_ms <= 0)
            return false;
        (void)take_answer(s, left_ms < JOIN_LOOK_MS ? (int)left_ms : JOIN_LOOK_MS);
    }
    return true;
}

static bool request(struct kafka_source *s, const struct commit_point *points, size_t n, bool *sent,
                    struct err *e)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);
    rd_kafka_resp_err_t err = RD_KAFKA_RESP_ERR_NO_ERROR;

    s->flight = mem_grow(s->flight, n, sizeof *s->flight);
    s->flight_generation = mem_grow(s->flight_generation, n, sizeof *s->flight_generation);
    s->n_flight = 0;
    for (size_t i = 0; i < n; i++) {
        MUST(points[i].slot < s->n_slots);
        const struct kafka_slot *slot = s->slots[points[i].slot];

        if (!atomic_load(&slot->assigned) || points[i].offset < 0)
            continue;
        rd_kafka_topic_partition_list_add(list, slot->topic, slot->partition)->offset =
            points[i].offset;
        s->flight[s->n_flight] = points[i];
        s->flight_generation[s->n_flight++] = slot->generation;
    }
    if (list->cnt > 0)
        FAULT("kafka.before_commit");
    if (list->cnt > 0)
        err = rd_kafka_commit_queue(s->rk, list, s->replies, NULL, NULL);
    *sent = s->in_flight = list->cnt > 0 && err == RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_topic_partition_list_destroy(list);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return err_set(e, ERR_TRANSIENT, err, "kafka: can't send the commit: %s",
                       rd_kafka_err2str(err));
    return true;
}

bool kafka_commit(void *self, const struct commit_point *points, size_t n, int wait_ms, bool *sent,
                  struct err *e)
{
    struct kafka_source *s = self;
    int64_t until_ms = clock_mono_ms() + wait_ms;

    *sent = false;
    if (s->close_until_ms != 0 && until_ms > s->close_until_ms)
        until_ms = s->close_until_ms; /* close() promised an end */
    if (s->in_flight) {
        kafka_commit_serve(s);
        if (s->in_flight && wait_ms == 0)
            return true;
        if (s->in_flight) {
            if (!wait_answer(s, until_ms))
                return err_set(e, ERR_TRANSIENT, 0,
                               "kafka: the commit before is not answered within %d ms", wait_ms);
            tell(s);
        }
    }
    if (n == 0)
        return true;
    /* A last commit is worth half of its time; after that it is tried all the same. */
    if (!wait_joined(s, until_ms - wait_ms / 2) && wait_ms == 0)
        return true;
    if (!request(s, points, n, sent, e))
        return false;
    if (wait_ms == 0 || !*sent)
        return true;
    if (!wait_answer(s, until_ms))
        return err_set(e, ERR_TRANSIENT, 0, "kafka: commit not answered within %d ms", wait_ms);
    if (s->flight_ok)
        return true;
    *e = s->flight_err;
    return false;
}
