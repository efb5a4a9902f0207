/*
 * What is put off before anything of it is written: everything, for want of a right, which holds
 * the route; or one group and what is behind it in its lane, until somebody acts, which doesn't.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "fakes/check.h"
#include "run/worker.h"

enum { LANES = 10, BATCH = 1000, LONG_MS = 20000 };

enum weather {
    FAIR,
    NO_RIGHTS, /* all */
    CONFLICTS, /* all; it passes by itself */
    GROUP      /* the first lane; its first record says why */
};

struct server {
    _Atomic int weather, writes;
    struct outcome results[BATCH];
    int64_t stored; /* how many */
};

static void *session_open(void *self)
{
    return self;
}

static void session_close(void *session)
{
    (void)session;
}

static int64_t offset_of(const struct write_op *op)
{
    bson_iter_t it, at;

    CHECK(bson_iter_init(&it, op->filter) && bson_iter_find_descendant(&it, "_id.offset", &at),
          "a filter without an offset");
    return bson_iter_as_int64(&at);
}

static const struct outcome *session_write(void *session, uint32_t route,
                                           const struct write_op *ops, size_t n)
{
    static char todo[] = "raise it";
    struct server *s = session;
    enum weather weather = (enum weather)atomic_load(&s->weather);
    bool said = false;

    (void)route;
    CHECK(n <= BATCH, "%zu operations", n);
    for (size_t i = 0; i < n; i++) {
        struct outcome *o = &s->results[i];

        *o = (struct outcome){.fate = FATE_LATER};
        if (weather == NO_RIGHTS) {
            o->retry = RETRY_RIGHTS;
            o->code = 13;
        } else if (weather == CONFLICTS) {
            o->retry = RETRY_CONFLICT;
        } else if (weather == GROUP && offset_of(&ops[i]) % LANES == 0) {
            o->retry = RETRY_CONFIG;
            o->code = 11000;
            o->text = said ? NULL : todo;
            said = true;
        } else {
            o->fate = FATE_INSERTED;
            s->stored++;
        }
    }
    atomic_fetch_add(&s->writes, 1);
    return s->results;
}

/* --- the world --- */

static char name[] = "r", topic[] = "t", database[] = "a", collection[] = "b", off[] = "",
            value_field[] = "value", order_by[] = "@key", dedup_key[] = "@offset";
static char *topics[] = {topic}, *dedup_keys[] = {dedup_key};

static struct config_route routes_of_config[] = {
    {.name = name,
     .topics = {topics, 1},
     .database = database,
     .collection = collection,
     .order_by = order_by,
     .format = FORMAT_STRING,
     .value_field = value_field,
     .under = off,
     .source_fields = off,
     .dedup = {.key = {dedup_keys, 1}, .into_id = true}}};
static const struct config config = {
    .worker = {.threads = 1, .batch = BATCH, .run_max = BATCH, .max_bytes = 1 << 30},
    .retry = {.first_ms = 1, .max_ms = 60000},
    .routes = routes_of_config,
    .n_routes = 1};

struct world {
    struct server server;
    struct metrics *metrics, *of_run;
    struct stop stop;
    struct mapping *mapping;
    struct pipeline *pipeline;
    struct worker_shared shared;
    struct config config;
    pthread_t thread;
    int64_t next;
};

static void nothing(void *ctx)
{
    (void)ctx;
}

static void open_world(struct world *w)
{
    static const struct sink_ops sink = {
        .open = session_open, .close = session_close, .write = session_write};
    static const struct mapping_env env = {.instance_id = "me"};
    struct err e = {0};

    memset(w, 0, sizeof *w);
    w->config = config;
    w->config.retry.max_ms = 2;
    w->metrics = metrics_new();
    w->of_run = metrics_new();
    w->mapping = mapping_new(&config.routes[0], &env, &e);
    CHECK(w->mapping, "%s", e.text);
    w->shared.routes = route_state_new(&config, w->metrics); /* a wait lasts for 60 s */
    struct pipeline_limits limits = {.max_records = 100000,
                                     .max_bytes = 1U << 30,
                                     .routes = 1,
                                     .run_max = BATCH,
                                     .wake = nothing,
                                     .held = route_state_held(w->shared.routes)};
    w->pipeline = pipeline_new(&limits);
    stop_init(&w->stop, nothing, NULL);
    w->shared.config = &w->config;
    w->shared.mappings = &w->mapping;
    w->shared.pipeline = w->pipeline;
    w->shared.sink = (struct sink){.ops = &sink, .self = &w->server};
    w->shared.metrics = run_metrics_new(w->of_run, &w->config, w->pipeline, (struct source){0});
    w->shared.stop = &w->stop;
    pipeline_assign(w->pipeline, 0, 0);
    CHECK(pthread_create(&w->thread, NULL, worker_main, &w->shared) == 0, "thread");
}

static void close_world(struct world *w)
{
    uint32_t slot = 0;

    (void)pipeline_drain(w->pipeline, &slot, 1, 0);
    pipeline_stop(w->pipeline);
    (void)pthread_join(w->thread, NULL);
    (void)pipeline_revoke(w->pipeline, slot);
    run_metrics_free(w->shared.metrics);
    metrics_free(w->of_run);
    pipeline_free(w->pipeline);
    route_state_free(w->shared.routes);
    metrics_free(w->metrics);
    mapping_free(w->mapping);
    stop_clear(&w->stop);
}

/* n records, one of each lane after another. */
static void offer(struct world *w, int n)
{
    for (int i = 0; i < n; i++) {
        char key[2] = {(char)('0' + w->next % LANES)};
        struct record_source from = {.topic = "t", .offset = w->next++, .timestamp_ms = -1};

        from.key = from.value = slice_of(key, 1);
        struct record *r = record_new(&from);
        mapping_order(w->mapping, r);
        CHECK(pipeline_offer(w->pipeline, r), "refused");
    }
}

static void pause_ms(int64_t ms)
{
    struct timespec t = {.tv_nsec = (long)ms * 1000000};

    (void)nanosleep(&t, NULL);
}

static void wait_open(struct world *w, size_t n)
{
    struct pipeline_stats stats;

    for (int64_t end_ms = clock_mono_ms() + LONG_MS;; pause_ms(1)) {
        pipeline_stats(w->pipeline, &stats, NULL, 0);
        if (stats.open == n)
            return;
        CHECK(clock_mono_ms() < end_ms, "%zu records are open and not %zu", stats.open, n);
    }
}

static void wait_writes(struct world *w, int more)
{
    int until = atomic_load(&w->server.writes) + more;

    for (int64_t end_ms = clock_mono_ms() + LONG_MS; atomic_load(&w->server.writes) < until;
         pause_ms(1))
        CHECK(clock_mono_ms() < end_ms, "no more writes");
}

static bool describes(struct world *w, const char *text)
{
    struct buf b = {0};
    bool found = route_state_describe(w->shared.routes, &b) && strstr(buf_text(&b), text);

    buf_clear(&b);
    return found;
}

/* --- */

static void test_nothing_is_written(void **state)
{
    struct world w;

    (void)state;
    open_world(&w);
    atomic_store(&w.server.weather, NO_RIGHTS);
    offer(&w, 50);
    wait_writes(&w, 5);
    assert_true(describes(&w, "MongoDB does not acknowledge: rights (code 13), route r"));
    assert_false(pipeline_wants(w.pipeline, 0, false));
    atomic_store(&w.server.weather, FAIR);
    wait_open(&w, 0);
    assert_false(describes(&w, ""));
    assert_true(pipeline_wants(w.pipeline, 0, false));
    atomic_store(&w.server.weather, CONFLICTS);
    offer(&w, 50);
    wait_writes(&w, 5);
    assert_false(describes(&w, ""));
    atomic_store(&w.server.weather, FAIR);
    wait_open(&w, 0);
    assert_int_equal(w.server.stored, 100);
    close_world(&w);
}

static void test_a_group_waits(void **state)
{
    struct world w;
    struct buf page = {0};

    (void)state;
    open_world(&w);
    atomic_store(&w.server.weather, GROUP);
    offer(&w, 100);
    wait_open(&w, 100 / LANES);
    wait_writes(&w, 5); /* of nothing but its records */
    assert_true(pipeline_wants(w.pipeline, 0, false));
    assert_true(describes(&w, "records wait until somebody acts: route r, collection a.b, for "));
    assert_true(describes(&w, ": raise it"));
    assert_false(describes(&w, "does not acknowledge"));
    offer(&w, 10); /* the others go on */
    wait_open(&w, 110 / LANES);
    assert_true(describes(&w, ": raise it"));
    metrics_render(w.metrics, &page);
    assert_non_null(
        strstr(buf_text(&page), "idemsink_route_blocked{route=\"r\",class=\"config\"} 1"));
    atomic_store(&w.server.weather, FAIR);
    wait_open(&w, 0);
    assert_false(describes(&w, ""));
    assert_int_equal(w.server.stored, 110);
    buf_clear(&page);
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_nothing_is_written),
                                       cmocka_unit_test(test_a_group_waits)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
