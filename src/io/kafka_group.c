/* Membership: assignments, revokes, and everything that librdkafka has to say about the group. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/kafka_private.h"

enum { COMMITTED_WAIT_MS = 5000, SAY_AGAIN_MS = 30000, PROBLEM_MS = 60000 };

static void health_set(struct kafka_source *s, bool joined)
{
    pthread_mutex_lock(&s->lock);
    s->health.joined = joined;
    s->health.assigned = s->n_parts;
    if (joined)
        s->health.problem[0] = '\0';
    pthread_mutex_unlock(&s->lock);
}

static void health_problem(struct kafka_source *s, const char *what, const char *text)
{
    pthread_mutex_lock(&s->lock);
    (void)snprintf(s->health.problem, sizeof s->health.problem, "%s: %s", what, text);
    s->problem_at_ms = clock_mono_ms();
    pthread_mutex_unlock(&s->lock);
    s->troubled = true;
}

void kafka_health_clear(struct kafka_source *s)
{
    if (!s->troubled)
        return;
    s->troubled = false;
    pthread_mutex_lock(&s->lock);
    s->health.problem[0] = '\0';
    pthread_mutex_unlock(&s->lock);
}

/* librdkafka does not say when an error is over, so one that is not met again grows old. */
void kafka_health_at(struct kafka_source *s, int64_t now_ms, struct kafka_health *out)
{
    pthread_mutex_lock(&s->lock);
    *out = s->health;
    if (now_ms - s->problem_at_ms >= PROBLEM_MS)
        out->problem[0] = '\0';
    pthread_mutex_unlock(&s->lock);
}

/* --- assign -------------------------------------------------------------------------------- */

/* Puts the committed offsets into the list, so that what we were told and where librdkafka starts
 * are the same. What the group has not committed stays logical and follows auto.offset.reset. */
static void ask_committed(struct kafka_source *s, rd_kafka_topic_partition_list_t *list)
{
    rd_kafka_resp_err_t err = rd_kafka_committed(s->rk, list, COMMITTED_WAIT_MS);

    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        log_warn("committed offsets could not be asked for, librdkafka finds them itself",
                 LOG_TEXT("why", rd_kafka_err2str(err)));
    for (int i = 0; i < list->cnt; i++) {
        rd_kafka_topic_partition_t *tp = &list->elems[i];

        if (err != RD_KAFKA_RESP_ERR_NO_ERROR || tp->err != RD_KAFKA_RESP_ERR_NO_ERROR ||
            tp->offset < 0)
            tp->offset = RD_KAFKA_OFFSET_INVALID;
        tp->err = RD_KAFKA_RESP_ERR_NO_ERROR;
    }
}

static rd_kafka_resp_err_t assign_call(rd_kafka_t *rk, rd_kafka_topic_partition_list_t *list,
                                       bool cooperative)
{
    rd_kafka_error_t *error;
    rd_kafka_resp_err_t err;

    if (!cooperative)
        return rd_kafka_assign(rk, list);
    error = rd_kafka_incremental_assign(rk, list);
    err = rd_kafka_error_code(error);
    rd_kafka_error_destroy(error);
    return err;
}

static void on_assign(struct kafka_source *s, rd_kafka_topic_partition_list_t *list,
                      bool cooperative)
{
    rd_kafka_resp_err_t err;
    struct err why;

    s->ever_assigned = true;
    if (list->cnt > 0)
        ask_committed(s, list);
    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *tp = &list->elems[i];
        struct kafka_slot *slot = kafka_slot_of(s, tp->topic, tp->partition);

        if (slot->route < 0 && !config_route_fail(s->config, tp->topic, &why))
            kafka_source_fail(s, ERR_CONFIG, 0, "kafka: %s", why.text);
        if (slot->open) /* assigned twice without a revoke: librdkafka promises not to */
            kafka_source_fail(s, ERR_BUG, 0, "%s[%d] was assigned twice", tp->topic,
                              (int)tp->partition);
    }
    if (s->failed) {
        (void)assign_call(s->rk, list, cooperative); /* the group waits for an answer */
        return;
    }

    for (int i = 0; i < list->cnt; i++) {
        const rd_kafka_topic_partition_t *tp = &list->elems[i];
        struct kafka_slot *slot = kafka_slot_of(s, tp->topic, tp->partition);
        int64_t start = tp->offset >= 0 ? tp->offset : -1;

        kafka_part_open(s, slot, start);
        s->events.assigned(s->events.ctx, slot->number, start);
    }
    err = assign_call(s->rk, list, cooperative);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        kafka_source_fail(s, ERR_TRANSIENT, err,
                          "kafka: can't take over the assigned partitions: %s",
                          rd_kafka_err2str(err));
    health_set(s, true);
    log_info("partitions assigned", LOG_INT("new", list->cnt), LOG_INT("all", s->n_parts));
}

/* --- revoke -------------------------------------------------------------------------------- */

static void take_away(struct kafka_source *s, struct kafka_slot **slots, size_t n, bool lost)
{
    uint32_t *numbers = mem_array(n > 0 ? n : 1, sizeof *numbers);

    for (size_t i = 0; i < n; i++) {
        numbers[i] = slots[i]->number;
        if (lost) /* from here on no commit names it, whatever the handler does */
            atomic_store(&slots[i]->assigned, false);
    }
    if (n > 0)
        s->events.revoked(s->events.ctx, numbers, n, lost);
    for (size_t i = 0; i < n; i++)
        kafka_part_close(s, slots[i]);
    mem_free(numbers);
}

void kafka_group_lose_all(struct kafka_source *s)
{
    size_t n = s->n_parts;
    struct kafka_slot **all;

    if (n == 0)
        return;
    all = mem_array(n, sizeof(struct kafka_slot *));
    memcpy(all, s->parts, n * sizeof(struct kafka_slot *));
    take_away(s, all, n, true);
    mem_free(all);
    health_set(s, false);
}

static void on_revoke(struct kafka_source *s, const rd_kafka_topic_partition_list_t *list,
                      bool cooperative)
{
    bool lost = rd_kafka_assignment_lost(s->rk) != 0;
    size_t n = 0;
    struct kafka_slot **slots = mem_array((size_t)list->cnt + 1, sizeof(struct kafka_slot *));

    for (int i = 0; i < list->cnt; i++) {
        struct kafka_slot *slot = kafka_slot_of(s, list->elems[i].topic, list->elems[i].partition);

        if (slot->open)
            slots[n++] = slot;
    }
    take_away(s, slots, n, lost);
    mem_free(slots);

    if (cooperative)
        rd_kafka_error_destroy(rd_kafka_incremental_unassign(s->rk, list));
    else
        (void)rd_kafka_assign(s->rk, NULL);
    /* Cooperative and not lost: still a member, and the rest is being worked on. */
    health_set(s, cooperative && !lost);
    if (lost)
        log_warn("partitions lost to the group", LOG_INT("lost", n), LOG_INT("left", s->n_parts));
    else
        log_info("partitions revoked", LOG_INT("revoked", n), LOG_INT("left", s->n_parts));
}

void kafka_on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                        rd_kafka_topic_partition_list_t *list, void *opaque)
{
    struct kafka_source *s = opaque;
    bool cooperative = strcmp(rd_kafka_rebalance_protocol(rk), "COOPERATIVE") == 0;

    if (err == RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS) {
        on_assign(s, list, cooperative);
    } else if (err == RD_KAFKA_RESP_ERR__REVOKE_PARTITIONS) {
        on_revoke(s, list, cooperative);
    } else {
        log_warn("rebalance failed", LOG_TEXT("why", rd_kafka_err2str(err)));
        kafka_group_lose_all(s);
        (void)rd_kafka_assign(rk, NULL);
    }
}

/* --- errors -------------------------------------------------------------------------------- */

static void say(struct kafka_source *s, enum kafka_limit limit, enum log_level level,
                const char *event, const char *text)
{
    int64_t held_back = 0;

    if (log_limit_pass(&s->limits[limit], SAY_AGAIN_MS, &held_back))
        log_write(level, event, LOG_FIELDS(LOG_TEXT("why", text), LOG_INT("held_back", held_back)));
}

static void on_fatal(struct kafka_source *s)
{
    char text[256] = "";
    rd_kafka_resp_err_t code = rd_kafka_fatal_error(s->rk, text, sizeof text);

    if (code == RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID)
        kafka_source_fail(
            s, ERR_CONFIG, code,
            "kafka.instance_id: another process has joined the group with the same id %s",
            s->config->kafka.instance_id);
    else
        kafka_source_fail(s, ERR_TRANSIENT, code, "kafka: the consumer is finished: %s", text);
}

static void on_any_error(struct kafka_source *s, rd_kafka_resp_err_t err, const char *text)
{
    switch ((int)err) {
    case RD_KAFKA_RESP_ERR__FATAL:
    case RD_KAFKA_RESP_ERR_FENCED_INSTANCE_ID:
        on_fatal(s);
        return;
    case RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT:
        kafka_source_fail(s, ERR_CONFIG, err,
                          "kafka.properties.\"session.timeout.ms\": the brokers don't allow it "
                          "(group.min.session.timeout.ms, group.max.session.timeout.ms): %s",
                          text);
        return;
    case RD_KAFKA_RESP_ERR__MAX_POLL_EXCEEDED:
        log_error("the group gave us up: no poll within max.poll.interval.ms, joining again",
                  LOG_TEXT("why", text));
        return;
    case RD_KAFKA_RESP_ERR_INCONSISTENT_GROUP_PROTOCOL:
        health_problem(s, "the other members use another partition.assignment.strategy", text);
        say(s, LIMIT_RIGHTS, LOG_LEVEL_ERROR,
            "the group refuses us: its other members use another partition.assignment.strategy",
            text);
        return;
    case RD_KAFKA_RESP_ERR__ALL_BROKERS_DOWN:
    case RD_KAFKA_RESP_ERR__TRANSPORT:
    case RD_KAFKA_RESP_ERR__RESOLVE:
        say(s, LIMIT_BROKERS, LOG_LEVEL_WARN, "kafka can't be reached, trying on", text);
        return;
    default:
        break;
    }

    enum err_kind kind = kafka_error_kind(err);
    if (kind == ERR_AUTH) {
        /* Rights can come back without us; a million uncommitted records are no reason to
         * crash-loop. */
        health_problem(s, "kafka refuses us", text);
        say(s, LIMIT_RIGHTS, LOG_LEVEL_ERROR, "kafka refuses our credentials or rights, trying on",
            text);
    } else if (kind == ERR_CONFIG) {
        health_problem(s, "a topic is missing", text);
        say(s, LIMIT_TOPIC, LOG_LEVEL_WARN,
            "a topic that a route reads is not there, waiting for it", text);
    } else {
        say(s, LIMIT_OTHER, LOG_LEVEL_WARN, "kafka error, trying on", text);
    }
}

void kafka_on_error(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
    (void)rk;
    on_any_error(opaque, (rd_kafka_resp_err_t)err, reason);
}

void kafka_on_consumer_error(struct kafka_source *s, const struct kafka_slot *slot,
                             const rd_kafka_message_t *m)
{
    if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF)
        return;
    if (m->err == RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET) {
        kafka_source_fail(
            s, ERR_CONFIG, m->err,
            "the offset to read next of %s[%d] is not in the log any more and auto.offset.reset is "
            "\"error\": set the group's offset with kafka-consumer-groups.sh --reset-offsets",
            m->rkt != NULL ? rd_kafka_topic_name(m->rkt) : "a topic", (int)m->partition);
        return;
    }
    (void)slot;
    on_any_error(s, m->err, rd_kafka_message_errstr(m));
}
