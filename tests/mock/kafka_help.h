/*
 * kafka_help.h - a configuration by hand, a producer, and a group member that checks what it is
 * handed. For the tests of io/kafka_*.c, on the mock cluster and on a real broker.
 */
#ifndef IDEMSINK_TESTS_KAFKA_HELP_H
#define IDEMSINK_TESTS_KAFKA_HELP_H

#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/kafka.h"

enum { HELP_SLOTS = 64, HELP_PROPERTIES = 16 };
enum { HELP_PATIENCE = 3 }; /* as PATIENCE in tests/system/harness.py */

/* --- configuration ------------------------------------------------------------------------- */

struct help_config {
    struct config config;
    struct config_route route;
    char brokers[200], group[100], topic[100], dead[100];
    char *topics[1];
    struct config_pair properties[HELP_PROPERTIES];
    char property_text[HELP_PROPERTIES][2][100];
    char name[20], database[20];
};

static inline void help_config(struct help_config *h, const char *brokers, const char *group,
                               const char *topic)
{
    memset(h, 0, sizeof *h);
    (void)snprintf(h->brokers, sizeof h->brokers, "%s", brokers);
    (void)snprintf(h->group, sizeof h->group, "%s", group);
    (void)snprintf(h->topic, sizeof h->topic, "%s", topic);
    (void)snprintf(h->name, sizeof h->name, "test");
    h->topics[0] = h->topic;
    h->route.name = h->route.database = h->route.collection = h->name;
    h->route.topics.items = h->topics;
    h->route.topics.n = 1;
    h->config.routes = &h->route;
    h->config.n_routes = 1;
    h->config.kafka.brokers = h->brokers;
    h->config.kafka.group = h->group;
    h->config.kafka.instance_id = h->database; /* "" */
    h->config.kafka.client_id = h->name;
    h->config.kafka.properties.items = h->properties;
    h->config.dead_letter.topic = h->dead;
    h->config.worker.max_bytes = 64 << 20;
    h->config.worker.max_records = 50000;
    h->config.worker.drain_timeout_ms = 3000;
}

static inline void help_property(struct help_config *h, const char *name, const char *value)
{
    size_t i = h->config.kafka.properties.n++;

    assert_true(i < HELP_PROPERTIES);
    (void)snprintf(h->property_text[i][0], sizeof h->property_text[i][0], "%s", name);
    (void)snprintf(h->property_text[i][1], sizeof h->property_text[i][1], "%s", value);
    h->properties[i] = (struct config_pair){h->property_text[i][0], h->property_text[i][1]};
}

/* --- producing ----------------------------------------------------------------------------- */

static inline void help_on_delivery(rd_kafka_t *rk, const rd_kafka_message_t *m, void *opaque)
{
    (void)rk;
    (void)opaque;
    if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR)
        fprintf(stderr, "produce: %s\n", rd_kafka_err2str(m->err));
    assert_int_equal(m->err, RD_KAFKA_RESP_ERR_NO_ERROR);
}

static inline rd_kafka_t *help_producer(const char *brokers, const char *transactional_id)
{
    char text[200];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    rd_kafka_conf_set(conf, "bootstrap.servers", brokers, text, sizeof text);
    rd_kafka_conf_set(conf, "linger.ms", "5", text, sizeof text);
    rd_kafka_conf_set(conf, "message.max.bytes", "10000000", text, sizeof text);
    if (transactional_id != NULL)
        rd_kafka_conf_set(conf, "transactional.id", transactional_id, text, sizeof text);
    rd_kafka_conf_set_dr_msg_cb(conf, help_on_delivery);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    assert_non_null(rk);
    return rk;
}

static inline void help_produce(rd_kafka_t *rk, const char *topic, int32_t partition,
                                const char *key, const char *value)
{
    rd_kafka_vu_t parts[] = {
        {.vtype = RD_KAFKA_VTYPE_TOPIC, .u.cstr = topic},
        {.vtype = RD_KAFKA_VTYPE_PARTITION, .u.i32 = partition},
        {.vtype = RD_KAFKA_VTYPE_KEY, .u.mem = {(void *)(uintptr_t)key, key ? strlen(key) : 0}},
        {.vtype = RD_KAFKA_VTYPE_VALUE,
         .u.mem = {(void *)(uintptr_t)value, value ? strlen(value) : 0}},
        {.vtype = RD_KAFKA_VTYPE_MSGFLAGS, .u.i = RD_KAFKA_MSG_F_COPY},
    };
    rd_kafka_resp_err_t err;

    do {
        rd_kafka_error_t *error = rd_kafka_produceva(rk, parts, sizeof parts / sizeof *parts);

        err = rd_kafka_error_code(error); /* of NULL: no error */
        rd_kafka_error_destroy(error);
        rd_kafka_poll(rk, err == RD_KAFKA_RESP_ERR__QUEUE_FULL ? 10 : 0);
    } while (err == RD_KAFKA_RESP_ERR__QUEUE_FULL);
    assert_int_equal(err, RD_KAFKA_RESP_ERR_NO_ERROR);
}

static inline void help_flush(rd_kafka_t *rk)
{
    assert_int_equal(rd_kafka_flush(rk, 20000), RD_KAFKA_RESP_ERR_NO_ERROR);
}

/* --- a member ------------------------------------------------------------------------------ */

struct help_slot {
    bool assigned;
    int64_t next;      /* the offset that has to come next, -1: any */
    int64_t end;       /* the last end event, -1: none */
    int64_t committed; /* acknowledged */
};

struct help_member {
    struct help_config h;
    struct source source;
    struct help_slot slots[HELP_SLOTS];
    bool dense; /* the topic has no gaps: each offset is the one before plus one */
    bool commit_on_revoke;
    bool quiet;
    int commit_wait_ms;
    uint64_t skipped, again, foreign, records, ends;
    int assigns, revokes, losts;
    int answers, answers_ok;
    int64_t revoke_commit_took_ms;
    bool revoke_commit_ok;
    _Atomic bool wants, stop;
    _Atomic uint64_t seen; /* = records, for other threads */
    int slow_us;
    void (*on_record)(struct help_member *m, const struct record *r); /* may be NULL */
    bool (*choose)(struct help_member *m, uint32_t slot); /* which are wanted; may be NULL */
    void *user;
    pthread_t thread;
    bool failed;
    struct err err;
};

static inline size_t help_points(struct help_member *m, struct commit_point *points,
                                 const uint32_t *only, size_t n_only)
{
    size_t n = 0;

    for (uint32_t i = 0; i < HELP_SLOTS; i++) {
        bool in = only == NULL;

        for (size_t k = 0; k < n_only; k++)
            in = in || only[k] == i;
        int64_t to = m->slots[i].end > m->slots[i].next ? m->slots[i].end : m->slots[i].next;
        if (in && m->slots[i].assigned && to >= 0 && to > m->slots[i].committed)
            points[n++] = (struct commit_point){.slot = i, .offset = to};
    }
    return n;
}

static inline void help_on_assigned(void *ctx, uint32_t slot, int64_t next)
{
    struct help_member *m = ctx;

    assert_true(slot < HELP_SLOTS);
    assert_false(m->slots[slot].assigned);
    m->slots[slot] =
        (struct help_slot){.assigned = true, .next = next, .end = -1, .committed = next};
    m->assigns++;
}

static inline void help_on_revoked(void *ctx, const uint32_t *slots, size_t n, bool lost)
{
    struct help_member *m = ctx;
    struct commit_point points[HELP_SLOTS];
    struct err e = {0};
    bool sent;

    m->revokes++;
    m->losts += lost;
    if (!lost && m->commit_on_revoke) {
        size_t k = help_points(m, points, slots, n);
        int64_t at = clock_mono_ms();

        m->revoke_commit_ok =
            m->source.ops->commit(m->source.self, points, k, m->commit_wait_ms, &sent, &e);
        m->revoke_commit_took_ms = clock_mono_ms() - at;
        if (!m->revoke_commit_ok && !m->quiet)
            fprintf(stderr, "commit at revoke: %s\n", e.text);
    }
    for (size_t i = 0; i < n; i++) {
        assert_true(m->slots[slots[i]].assigned);
        m->slots[slots[i]].assigned = false;
    }
}

static inline void help_on_end(void *ctx, uint32_t slot, int64_t offset)
{
    struct help_member *m = ctx;

    m->ends++;
    m->slots[slot].end = offset;
}

static inline bool help_on_wants(void *ctx, uint32_t slot, bool again)
{
    struct help_member *m = ctx;

    (void)again;
    return atomic_load(&m->wants) && (m->choose == NULL || m->choose(m, slot));
}

static inline void help_on_committed(void *ctx, const struct commit_point *p, size_t n, bool ok)
{
    struct help_member *m = ctx;

    m->answers++;
    m->answers_ok += ok;
    for (size_t i = 0; ok && i < n; i++)
        m->slots[p[i].slot].committed = p[i].offset;
}

static inline void help_member_open(struct help_member *m)
{
    struct source_events events = {.assigned = help_on_assigned,
                                   .revoked = help_on_revoked,
                                   .end = help_on_end,
                                   .wants = help_on_wants,
                                   .committed = help_on_committed,
                                   .ctx = m};
    struct err e = {0};

    if (m->commit_wait_ms == 0)
        m->commit_wait_ms = 2000;
    atomic_store(&m->wants, true);
    if (!kafka_source_new(&m->h.config, &events, &m->source, &e))
        fail_msg("%s", e.text);
}

/* Checks one record and frees it. */
static inline void help_check(struct help_member *m, struct record *r)
{
    struct help_slot *s = &m->slots[r->slot];

    m->records++;
    if (m->on_record != NULL)
        m->on_record(m, r);
    if (!s->assigned)
        m->foreign++;
    else if (s->next >= 0 && r->offset < s->next)
        m->again++;
    else if (m->dense && s->next >= 0 && r->offset > s->next)
        m->skipped += (uint64_t)(r->offset - s->next);
    if (r->offset >= s->next)
        s->next = r->offset + 1;
    record_free(r);
    atomic_store(&m->seen, m->records);
}

/* One poll. False: nothing came. */
static inline bool help_step(struct help_member *m, int wait_ms)
{
    struct record *r;

    if (!m->source.ops->poll(m->source.self, wait_ms, &r, &m->err)) {
        m->failed = true;
        return false;
    }
    if (r == NULL)
        return false;
    help_check(m, r);
    return true;
}

static inline void help_commit(struct help_member *m)
{
    struct commit_point points[HELP_SLOTS];
    struct err e = {0};
    bool sent;
    size_t n = help_points(m, points, NULL, 0);

    if (n > 0 && !m->source.ops->commit(m->source.self, points, n, 0, &sent, &e))
        fprintf(stderr, "commit: %s\n", e.text);
}

static inline void *help_member_main(void *arg)
{
    struct help_member *m = arg;
    int64_t commit_at_ms = clock_mono_ms();
    struct err e = {0};

    while (!atomic_load(&m->stop) && !m->failed) {
        help_step(m, 200);
        if (clock_mono_ms() - commit_at_ms >= 100) {
            help_commit(m);
            commit_at_ms = clock_mono_ms();
            if (m->choose != NULL) /* others may be wanted by now */
                m->source.ops->wake(m->source.self);
        }
        if (m->slow_us > 0)
            (void)usleep((useconds_t)m->slow_us);
    }
    if (!m->source.ops->close(m->source.self, 8000, &e))
        fprintf(stderr, "close: %s\n", e.text), m->failed = true;
    kafka_source_free(&m->source);
    return NULL;
}

/* Polls until the condition holds; fails the test after so many seconds (of a quiet machine). */
#define help_until(m, seconds, condition)                                                          \
    do {                                                                                           \
        int64_t help_end = clock_mono_ms() + (int64_t)(seconds)*HELP_PATIENCE * 1000;              \
        while (!(condition)) {                                                                     \
            if (clock_mono_ms() > help_end)                                                        \
                fail_msg("not within %d s: %s", (int)(seconds)*HELP_PATIENCE, #condition);         \
            (void)help_step((m), 50);                                                              \
        }                                                                                          \
    } while (0)

static inline void help_member_close(struct help_member *m)
{
    struct err e = {0};

    assert_true(m->source.ops->close(m->source.self, 8000, &e));
    kafka_source_free(&m->source);
}

#endif
