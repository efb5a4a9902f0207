/*
 * The real worker with the real pipeline, mapping and plan, against a server that refuses: single
 * records with codes that nobody knows, everything for a while, or for want of a right.
 *
 * Records have the value {"id": N, "odd": "whole" | "each" | "known"}; route r0 and r1 write
 * shop.orders, r2 shop.other.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/plan.h"
#include "fakes/check.h"
#include "fakes/dice.h"
#include "run/worker.h"

enum { IDS = 4096, ROUTES = 3, LANES = 10, LONG_MS = 20000, ODD_CODE = 424242 };

enum weather {
    FAIR,
    REFUSES_ALL,  /* each command as a whole, with a code that nobody knows */
    REFUSES_EACH, /* each operation, with such a code */
    FLAPS,        /* nine of ten commands, as a whole, with such a code */
    NO_RIGHTS,
    NO_DISK
};

struct server {
    _Atomic int weather[ROUTES];
    _Atomic int commands, explained;
    pthread_mutex_t lock;
    struct dice dice;   /* lock */
    bool stored[IDS];   /* lock */
    int64_t order[IDS]; /* lock; when it was stored: 1, 2, ... */
    int64_t clock;
    bool dead[IDS]; /* lock */
    char text[IDS][200];
    enum reason reason[IDS];
};

struct world {
    struct server server;
    struct config *config;
    struct mapping *mappings[ROUTES];
    struct metrics *metrics;
    struct pipeline *pipeline;
    struct run_metrics *run_metrics;
    struct stop stop;
    struct worker_shared shared;
    pthread_t threads[2];
    size_t n_threads;
    _Atomic int wakes;
    int64_t next_offset[ROUTES];
};

/* ---- the server ---- */

struct session {
    struct server *server;
    struct plan *plan;
};

static void *session_open(void *self)
{
    struct session *s = mem_new(sizeof *s);
    struct plan_limits limits = {.max_ops = 1000, .max_bytes = 1 << 20};

    s->server = self;
    s->plan = plan_new(&limits);
    return s;
}

static void session_close(void *session)
{
    struct session *s = session;

    plan_free(s->plan);
    mem_free(s);
}

static int64_t id_of(const struct write_op *op)
{
    bson_iter_t it;

    CHECK(bson_iter_init_find(&it, op->filter, "id"), "a filter without id");
    return bson_iter_as_int64(&it);
}

/* 'w' refuses its command, 'k' too, with a code that is permanent for one; 'e' itself, 0: none. */
static char odd_of(const struct write_op *op)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, op->document, "odd") ? *bson_iter_utf8(&it, NULL) : '\0';
}

static void append_error(bson_t *errors, uint32_t n, size_t index)
{
    char key[16];
    bson_t e;

    (void)snprintf(key, sizeof key, "%u", n);
    BSON_APPEND_DOCUMENT_BEGIN(errors, key, &e);
    BSON_APPEND_INT32(&e, "index", (int32_t)index);
    BSON_APPEND_INT32(&e, "code", ODD_CODE);
    BSON_APPEND_UTF8(&e, "errmsg", "this one");
    bson_append_document_end(errors, &e);
}

static void append_upserted(bson_t *upserted, uint32_t n, size_t index)
{
    char key[16];
    bson_t e;

    (void)snprintf(key, sizeof key, "%u", n);
    BSON_APPEND_DOCUMENT_BEGIN(upserted, key, &e);
    BSON_APPEND_INT32(&e, "index", (int32_t)index);
    bson_append_document_end(upserted, &e);
}

static int code_of_all(struct server *s, enum weather weather, const struct plan_command *c)
{
    if (weather == REFUSES_ALL || (weather == FLAPS && dice_permille(&s->dice, 900)))
        return ODD_CODE;
    if (weather == NO_RIGHTS)
        return 13;
    if (weather == NO_DISK)
        return 14031;
    for (size_t i = 0; i < c->n; i++)
        if (odd_of(c->ops[i]) == 'w' || odd_of(c->ops[i]) == 'k')
            return odd_of(c->ops[i]) == 'w' ? ODD_CODE : 9;
    return 0;
}

static void answer(struct session *s, enum weather weather, const struct plan_command *c)
{
    struct outcome_call call = {.ordered = c->ordered, .is_insert = c->kind == PLAN_INSERT};
    bson_t b = BSON_INITIALIZER, upserted = BSON_INITIALIZER, errors = BSON_INITIALIZER;
    uint32_t n_upserted = 0, n_errors = 0;
    int32_t done = 0;

    (void)pthread_mutex_lock(&s->server->lock);
    int code = code_of_all(s->server, weather, c);
    for (size_t i = 0; i < c->n && code == 0; i++) {
        int64_t id = id_of(c->ops[i]);

        if (weather == REFUSES_EACH || odd_of(c->ops[i]) == 'e') {
            append_error(&errors, n_errors++, i);
            if (c->ordered)
                break;
            continue;
        }
        done++;
        if (s->server->stored[id])
            continue;
        s->server->stored[id] = true;
        s->server->order[id] = ++s->server->clock;
        append_upserted(&upserted, n_upserted++, i);
    }
    (void)pthread_mutex_unlock(&s->server->lock);
    if (code != 0) {
        BSON_APPEND_INT32(&b, "ok", 0);
        BSON_APPEND_INT32(&b, "code", code);
        BSON_APPEND_UTF8(&b, "errmsg", "all of it");
    } else {
        BSON_APPEND_INT32(&b, "n", done);
        BSON_APPEND_ARRAY(&b, "upserted", &upserted);
        BSON_APPEND_ARRAY(&b, "writeErrors", &errors);
        BSON_APPEND_INT32(&b, "ok", 1);
    }
    plan_reply(s->plan, &call, &b);
    bson_destroy(&b);
    bson_destroy(&upserted);
    bson_destroy(&errors);
}

static const struct outcome *session_write(void *session, uint32_t route,
                                           const struct write_op *ops, size_t n)
{
    struct session *s = session;
    struct plan_command c;

    plan_begin(s->plan, ops, n, NULL);
    while (plan_next(s->plan, &c)) {
        atomic_fetch_add(&s->server->commands, 1);
        answer(s, (enum weather)atomic_load(&s->server->weather[route]), &c);
    }
    return plan_results(s->plan);
}

static void explain(void *sink, uint32_t route, enum retry_class why, int code, struct buf *out)
{
    struct server *s = sink;

    (void)route;
    (void)why;
    atomic_fetch_add(&s->explained, 1);
    buf_add_text(out, code == 13 ? "grant update" : "make room");
}

static bool send_dead(void *self, struct record *const *records, size_t n, bool *ok, struct err *e)
{
    struct server *s = self;

    (void)e;
    (void)pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < n; i++) {
        int64_t id = records[i]->timestamp_ms;
        CHECK(!s->dead[id], "%" PRId64 " is dead-lettered twice", id);
        s->dead[id] = true;
        s->reason[id] = records[i]->rejected.reason;
        (void)snprintf(s->text[id], sizeof s->text[id], "%s", records[i]->rejected.text);
        ok[i] = true;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return true;
}

/* ---- the world ---- */

static const char toml[] =
    "kafka.brokers = \"b\"\nkafka.group = \"g\"\nmongo.uri = \"mongodb://h\"\n"
    "dead_letter.topic = \"dead\"\nretry.first = \"1ms\"\nretry.max = \"2ms\"\n"
    "retry.max_unknown = 4\nworker.linger = \"0s\"\n"
    "[[route]]\nname = \"r0\"\ntopics = [\"t0\"]\ncollection = \"shop.orders\"\ndedup.key = "
    "[\"id\"]\n"
    "[[route]]\nname = \"r1\"\ntopics = [\"t1\"]\ncollection = \"shop.orders\"\ndedup.key = "
    "[\"id\"]\n"
    "[[route]]\nname = \"r2\"\ntopics = [\"t2\"]\ncollection = \"shop.other\"\ndedup.key = "
    "[\"id\"]\n";

static void on_wake(void *ctx)
{
    struct world *w = ctx;

    atomic_fetch_add(&w->wakes, 1);
}

static void on_stop(void *ctx)
{
    (void)ctx;
}

/* batch 0: as it is by default. The workers read it when they begin. */
static void world_open(struct world *w, size_t threads, int64_t batch)
{
    static const struct sink_ops sink = {
        .open = session_open, .close = session_close, .write = session_write, .explain = explain};
    static const struct deadletter_ops dead = {.send = send_dead};
    static const struct mapping_env env = {.instance_id = "me"};
    struct config_input in = {.name = "test", .text = slice_text(toml)};
    struct err e = {0};

    memset(w, 0, sizeof *w);
    (void)pthread_mutex_init(&w->server.lock, NULL);
    w->config = config_parse(&in, &e);
    CHECK(w->config, "%s", e.text);
    if (batch > 0)
        w->config->worker.batch = batch;
    for (size_t i = 0; i < ROUTES; i++) {
        w->mappings[i] = mapping_new(&w->config->routes[i], &env, &e);
        CHECK(w->mappings[i], "%s", e.text);
    }
    w->metrics = metrics_new();
    w->shared.routes = route_state_new(w->config, w->metrics);
    struct pipeline_limits limits = {.max_records = 100000,
                                     .max_bytes = 1u << 30,
                                     .routes = ROUTES,
                                     .run_max = 100,
                                     .wake = on_wake,
                                     .wake_ctx = w,
                                     .held = route_state_held(w->shared.routes)};
    w->pipeline = pipeline_new(&limits);
    w->run_metrics = run_metrics_new(metrics_new(), w->config, w->pipeline, (struct source){0});
    stop_init(&w->stop, on_stop, NULL);
    w->shared.config = w->config;
    w->shared.mappings = w->mappings;
    w->shared.pipeline = w->pipeline;
    w->shared.sink = (struct sink){.ops = &sink, .self = &w->server};
    w->shared.deadletter = (struct deadletter){.ops = &dead, .self = &w->server};
    w->shared.metrics = w->run_metrics;
    w->shared.stop = &w->stop;
    for (uint32_t slot = 0; slot < ROUTES; slot++)
        pipeline_assign(w->pipeline, slot, 0);
    w->n_threads = threads;
    for (size_t i = 0; i < threads; i++)
        CHECK(pthread_create(&w->threads[i], NULL, worker_main, &w->shared) == 0, "thread");
}

static void world_close(struct world *w)
{
    for (uint32_t slot = 0; slot < ROUTES; slot++)
        (void)pipeline_drain(w->pipeline, &slot, 1, 0);
    pipeline_stop(w->pipeline);
    for (size_t i = 0; i < w->n_threads; i++)
        (void)pthread_join(w->threads[i], NULL);
    for (uint32_t slot = 0; slot < ROUTES; slot++)
        (void)pipeline_revoke(w->pipeline, slot);
    struct metrics *of_run = w->run_metrics->registry;
    run_metrics_free(w->run_metrics);
    metrics_free(of_run);
    pipeline_free(w->pipeline);
    route_state_free(w->shared.routes);
    metrics_free(w->metrics);
    for (size_t i = 0; i < ROUTES; i++)
        mapping_free(w->mappings[i]);
    stop_clear(&w->stop);
    config_free(w->config);
    (void)pthread_mutex_destroy(&w->server.lock);
}

static void offer(struct world *w, uint32_t route, int64_t id, const char *odd)
{
    char value[64], key[8];
    struct record_source from = {
        .topic = "t", .slot = route, .offset = w->next_offset[route]++, .timestamp_ms = id};

    CHECK(id < IDS, "%" PRId64, id);
    if (odd)
        (void)snprintf(value, sizeof value, "{\"id\":%" PRId64 ",\"odd\":\"%s\"}", id, odd);
    else
        (void)snprintf(value, sizeof value, "{\"id\":%" PRId64 "}", id);
    (void)snprintf(key, sizeof key, "%d", (int)(id % LANES));
    from.value = slice_text(value);
    from.key = slice_text(key);
    struct record *r = record_new(&from);
    r->route = route;
    mapping_order(w->mappings[route], r);
    CHECK(pipeline_offer(w->pipeline, r), "refused");
}

static size_t open_records(struct world *w)
{
    struct pipeline_stats stats;

    pipeline_stats(w->pipeline, &stats, NULL, 0);
    return stats.open;
}

static void pause_ms(int64_t ms)
{
    struct timespec t = {.tv_nsec = (long)ms * 1000000};

    (void)nanosleep(&t, NULL);
}

static void wait_open(struct world *w, size_t n)
{
    for (int64_t end_ms = clock_mono_ms() + LONG_MS; open_records(w) != n; pause_ms(1))
        CHECK(clock_mono_ms() < end_ms, "%zu records are open and not %zu", open_records(w), n);
}

static void wait_commands(struct world *w, int n)
{
    int until = atomic_load(&w->server.commands) + n;

    for (int64_t end_ms = clock_mono_ms() + LONG_MS; atomic_load(&w->server.commands) < until;
         pause_ms(1))
        CHECK(clock_mono_ms() < end_ms, "no more commands");
}

static size_t dead_count(struct world *w)
{
    size_t n = 0;

    (void)pthread_mutex_lock(&w->server.lock);
    for (size_t i = 0; i < IDS; i++)
        n += w->server.dead[i];
    (void)pthread_mutex_unlock(&w->server.lock);
    return n;
}

/* Everything is where it belongs, and each lane of a route was stored in order. */
static void check_end(struct world *w, int64_t ids, bool (*is_odd)(int64_t id))
{
    for (int64_t id = 0; id < ids; id++) {
        CHECK(w->server.dead[id] == is_odd(id), "%" PRId64 " is%s dead-lettered: %s", id,
              w->server.dead[id] ? "" : " not", w->server.text[id]);
        CHECK(w->server.stored[id] == !is_odd(id), "%" PRId64, id);
        CHECK(!is_odd(id) ||
                  (w->server.reason[id] == REASON_REJECTED && strstr(w->server.text[id], "424242")),
              "%" PRId64 ": %s", id, w->server.text[id]);
        for (int64_t before = id - LANES; before >= 0 && !is_odd(id); before -= LANES) {
            if (is_odd(before))
                continue;
            CHECK(w->server.order[before] < w->server.order[id],
                  "%" PRId64 " was stored behind %" PRId64, before, id);
            break;
        }
    }
}

/* ---- single records ---- */

/* Odd ones of both kinds in one lane, neighbours in a row, at the beginning and at the end. */
static bool is_odd(int64_t id)
{
    return id == 0 || id == 1 || id == 3 || id == 53 || id == 63 || id == 199;
}

static void test_odd_records_are_given_up(void **state)
{
    static struct world w;

    (void)state;
    world_open(&w, 2, 0);
    for (int64_t id = 0; id < 200; id++)
        offer(&w, 0, id, is_odd(id) ? (id % 2 ? "whole" : "each") : NULL);
    /* Each repetition needs a document that was stored meanwhile; another lane brings them. */
    for (int64_t id = 1000; dead_count(&w) < 6; id++) {
        CHECK(id < IDS, "they are not given up");
        offer(&w, 0, id, NULL);
        pause_ms(2);
    }
    wait_open(&w, 0);
    check_end(&w, 200, is_odd);
    assert_non_null(strstr(w.server.text[0], "this one"));
    assert_non_null(strstr(w.server.text[1], "all of it"));
    assert_int_equal(metric_value(w.run_metrics->dead_letters[REASON_REJECTED]), 6);
    world_close(&w);
}

/* A code of the table that is not believed of a whole command: its words say so. */
static void test_a_code_that_is_known(void **state)
{
    static struct world w;

    (void)state;
    world_open(&w, 1, 0);
    offer(&w, 0, 0, "known");
    for (int64_t id = 1000; dead_count(&w) == 0; id++) {
        CHECK(id < IDS, "it is not given up");
        offer(&w, 0, id, NULL);
        pause_ms(2);
    }
    wait_open(&w, 0);
    assert_non_null(strstr(w.server.text[0], "code 9 (FailedToParse), which is not known to be "
                                             "permanent, 5 times alone, while others"));
    world_close(&w);
}

/* What is stored by another route into the same collection counts, into another one it does not. */
static void test_others_of_the_collection(void **state)
{
    static struct world w;

    (void)state;
    world_open(&w, 2, 0);
    offer(&w, 0, 0, "whole");
    for (int64_t id = 1000; id < 1100; id++) {
        offer(&w, 2, id, NULL);
        pause_ms(1);
    }
    wait_commands(&w, 50);
    assert_int_equal(dead_count(&w), 0);
    for (int64_t id = 2000; dead_count(&w) == 0; id++) {
        CHECK(id < IDS, "it is not given up");
        offer(&w, 1, id, NULL);
        pause_ms(2);
    }
    wait_open(&w, 0);
    world_close(&w);
}

/* Alone with duplicates: a server that refuses all writes would look the same. */
static void test_duplicates_are_no_sign(void **state)
{
    static struct world w;

    (void)state;
    world_open(&w, 1, 0);
    offer(&w, 0, 5, NULL);
    wait_open(&w, 0);
    offer(&w, 0, 0, "each");
    for (int i = 0; i < 100; i++) {
        offer(&w, 0, 5, NULL);
        pause_ms(1);
    }
    wait_commands(&w, 50);
    assert_int_equal(dead_count(&w), 0);
    assert_int_equal(open_records(&w), 1);
    for (int64_t id = 11; dead_count(&w) == 0; id++) {
        offer(&w, 0, id, NULL);
        pause_ms(2);
    }
    wait_open(&w, 0);
    world_close(&w);
}

/* ---- everything ---- */

static bool none_is_odd(int64_t id)
{
    (void)id;
    return false;
}

/* G7: a code that nobody knows for everything, however long. */
static void test_an_outage_with_unknown_codes(void **state)
{
    static struct world w;

    (void)state;
    for (int weather = REFUSES_ALL; weather <= REFUSES_EACH; weather++) {
        world_open(&w, 2, 0);
        for (int64_t id = 0; id < 300; id++)
            offer(&w, 0, id, NULL);
        wait_open(&w, 0);
        atomic_store(&w.server.weather[0], weather);
        for (int64_t id = 300; id < 600; id++)
            offer(&w, 0, id, NULL);
        wait_commands(&w, 500);
        struct buf why = {0};
        assert_true(route_state_describe(w.shared.routes, &why));
        assert_non_null(strstr(buf_text(&why), "other (code 424242), route r0"));
        buf_clear(&why);
        assert_int_equal(open_records(&w), 300);
        atomic_store(&w.server.weather[0], FAIR);
        wait_open(&w, 0);
        check_end(&w, 600, none_is_odd);
        world_close(&w);
    }
}

static bool is_first(int64_t id)
{
    return id == 0;
}

/* G7: nine of ten commands fail, one by one. What fails is stored in the end, and that clears all;
 * a bad one is given up when it is over. */
static void test_a_server_that_flaps(void **state)
{
    static struct world w;

    (void)state;
    for (int bad = 0; bad <= 1; bad++) {
        world_open(&w, 2, 1);
        w.server.dice = dice_seed("test_worker flaps");
        w.config->retry.max_unknown = 20;
        atomic_store(&w.server.weather[0], FLAPS);
        for (int64_t id = 0; id < 500; id++)
            offer(&w, 0, id, bad && id == 0 ? "each" : NULL);
        wait_open(&w, bad ? 500 / LANES : 0); /* all but its lane */
        assert_int_equal(dead_count(&w), 0);
        atomic_store(&w.server.weather[0], FAIR);
        for (int64_t id = 1000; bad && dead_count(&w) == 0; id++) {
            CHECK(id < IDS, "it is not given up");
            offer(&w, 0, id, NULL);
            pause_ms(2);
        }
        wait_open(&w, 0);
        check_end(&w, 500, bad ? is_first : none_is_odd);
        world_close(&w);
    }
}

/* It comes and goes, with odd ones in between: only these are given up. */
static void test_outages_and_odd_ones(void **state)
{
    static struct world w;
    struct dice dice = dice_seed("test_worker");
    int64_t id = 0, filler = 1000;

    (void)state;
    world_open(&w, 2, 0);
    w.config->retry.max_unknown = 12;
    for (int round = 0; round < 40; round++) {
        atomic_store(&w.server.weather[0], (int)dice_below(&dice, 2) * REFUSES_ALL +
                                               (int)dice_below(&dice, 2) * NO_RIGHTS);
        for (int i = 0; i < 5; i++, id++)
            offer(&w, 0, id, is_odd(id) ? (dice_below(&dice, 2) ? "whole" : "each") : NULL);
        pause_ms((int64_t)dice_below(&dice, 6));
        atomic_store(&w.server.weather[0], FAIR);
        pause_ms(6);
    }
    while (dead_count(&w) < 6) {
        CHECK(filler < IDS, "they are not given up");
        offer(&w, 0, filler++, NULL);
        pause_ms(2);
    }
    wait_open(&w, 0);
    check_end(&w, id, is_odd);
    world_close(&w);
}

/* Rights and a full disk: one route stands still and says why; the other goes on. */
static void test_a_route_that_nobody_can_write(void **state)
{
    static const struct {
        enum weather weather;
        const char *says;
    } t[] = {{NO_RIGHTS, "rights (code 13), route r0, collection shop.orders"},
             {NO_DISK, "config (code 14031), route r0, collection shop.orders"}};
    static struct world w;
    struct buf why = {0}, page = {0};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        world_open(&w, 2, 0);
        assert_true(pipeline_wants(w.pipeline, 0, false));
        atomic_store(&w.server.weather[0], (int)t[i].weather);
        for (int64_t id = 0; id < 100; id++)
            offer(&w, 0, id, NULL);
        wait_commands(&w, 30);
        assert_false(pipeline_wants(w.pipeline, 0, false)); /* nothing more is read */
        assert_true(pipeline_wants(w.pipeline, 1, false));  /* but for one to try with */
        assert_true(pipeline_wants(w.pipeline, 2, false));
        buf_reset(&why);
        assert_true(route_state_describe(w.shared.routes, &why));
        assert_non_null(strstr(buf_text(&why), t[i].says));
        assert_non_null(strstr(buf_text(&why), i == 0 ? ": grant update" : ": make room"));
        buf_reset(&page);
        metrics_render(w.metrics, &page);
        assert_non_null(strstr(buf_text(&page), i == 0 ? "{route=\"r0\",class=\"rights\"} 1"
                                                       : "{route=\"r0\",class=\"config\"} 1"));
        assert_non_null(strstr(buf_text(&page), "{route=\"r2\",class=\"rights\"} 0"));
        assert_int_equal(atomic_load(&w.server.explained), 1); /* asked and said once */
        for (int64_t id = 2000; id < 2100; id++)
            offer(&w, 2, id, NULL);
        wait_open(&w, 100);
        assert_int_equal(dead_count(&w), 0);
        assert_false(pipeline_wants(w.pipeline, 0, false));
        int wakes = atomic_load(&w.wakes);
        atomic_store(&w.server.weather[0], FAIR);
        wait_open(&w, 0);
        assert_true(pipeline_wants(w.pipeline, 0, false));
        assert_true(atomic_load(&w.wakes) > wakes); /* the intake was told */
        assert_false(route_state_describe(w.shared.routes, &why));
        check_end(&w, 100, none_is_odd);
        world_close(&w);
    }
    buf_clear(&why);
    buf_clear(&page);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_odd_records_are_given_up),
        cmocka_unit_test(test_a_code_that_is_known),
        cmocka_unit_test(test_others_of_the_collection),
        cmocka_unit_test(test_duplicates_are_no_sign),
        cmocka_unit_test(test_an_outage_with_unknown_codes),
        cmocka_unit_test(test_a_server_that_flaps),
        cmocka_unit_test(test_outages_and_odd_ones),
        cmocka_unit_test(test_a_route_that_nobody_can_write),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
