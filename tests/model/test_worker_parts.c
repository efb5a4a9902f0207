/*
 * A batch whose documents are large is written in parts, in the order of its lanes also when a part
 * fails; and one large payload at a time is parsed.
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
#include "base/mem.h"
#include "fakes/check.h"
#include "run/large.h"
#include "run/worker.h"

enum { RECORDS = 10, VALUE_BYTES = 5 * 1024 * 1024, LONG_MS = 20000, WRITES_MAX = 20 };

/* --- a batch in parts --- */

struct server {
    size_t failing_write; /* counted from 1; its first operation is not stored; 0: none */
    size_t n_writes, per_write[WRITES_MAX];
    int64_t next; /* the offset that must be stored next */
    struct outcome results[RECORDS];
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
    struct server *s = session;
    bool failed = false;

    (void)route;
    CHECK(s->n_writes < WRITES_MAX, "too many writes");
    s->per_write[s->n_writes++] = n;
    for (size_t i = 0; i < n; i++) {
        failed = failed || (i == 0 && s->n_writes == s->failing_write);
        s->results[i] = (struct outcome){.fate = !failed  ? FATE_INSERTED
                                                 : i == 0 ? FATE_UNKNOWN
                                                          : FATE_LATER};
        if (failed)
            continue;
        CHECK(offset_of(&ops[i]) == s->next, "offset %d is written where %d is due",
              (int)offset_of(&ops[i]), (int)s->next);
        s->next++;
    }
    return s->results;
}

/* Texts of one array each, because the configuration owns its own and they are not const. */
static char name[] = "r", topic[] = "t", database[] = "a", collection[] = "b", off[] = "",
            value_field[] = "value", order_by[] = "@partition", dedup_key[] = "@offset";
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
    .worker = {.threads = 1, .batch = 1000, .run_max = 1000, .max_bytes = 1 << 30},
    .retry = {.first_ms = 1, .max_ms = 2},
    .routes = routes_of_config,
    .n_routes = 1};

static void nothing(void *ctx)
{
    (void)ctx;
}

static struct record *large_record(int64_t offset)
{
    char *value = mem_array(VALUE_BYTES, 1);
    struct record_source from = {.topic = "t", .offset = offset, .timestamp_ms = -1};

    memset(value, 'x', VALUE_BYTES);
    from.value = slice_of(value, VALUE_BYTES);
    struct record *r = record_new(&from);
    mem_free(value);
    return r;
}

static void wait_done(struct pipeline *p)
{
    struct pipeline_stats stats;

    for (int64_t end_ms = clock_mono_ms() + LONG_MS;;) {
        struct timespec t = {.tv_nsec = 1000000};

        pipeline_stats(p, &stats, NULL, 0);
        if (stats.open == 0)
            return;
        CHECK(clock_mono_ms() < end_ms, "%zu records are open", stats.open);
        (void)nanosleep(&t, NULL);
    }
}

static void run(struct server *server)
{
    static const struct sink_ops sink = {
        .open = session_open, .close = session_close, .write = session_write};
    static const struct mapping_env env = {.instance_id = "me"};
    struct err e = {0};
    struct metrics *metrics = metrics_new(), *of_run = metrics_new();
    struct stop stop;
    uint32_t slot = 0;
    pthread_t thread;

    struct mapping *mapping = mapping_new(&config.routes[0], &env, &e);
    CHECK(mapping, "%s", e.text);
    struct route_state *routes = route_state_new(&config, metrics);
    struct pipeline_limits limits = {.max_records = 1000,
                                     .max_bytes = 1U << 30,
                                     .routes = 1,
                                     .run_max = 100,
                                     .wake = nothing,
                                     .held = route_state_held(routes)};
    struct pipeline *pipeline = pipeline_new(&limits);
    stop_init(&stop, nothing, NULL);
    struct worker_shared shared = {
        .config = &config,
        .mappings = &mapping,
        .pipeline = pipeline,
        .sink = {.ops = &sink, .self = server},
        .metrics = run_metrics_new(of_run, &config, pipeline, (struct source){0}),
        .routes = routes,
        .stop = &stop};

    pipeline_assign(pipeline, slot, 0);
    for (int64_t i = 0; i < RECORDS; i++) { /* all are there before the worker looks */
        struct record *r = large_record(i);

        mapping_order(mapping, r);
        CHECK(pipeline_offer(pipeline, r), "refused");
    }
    CHECK(pthread_create(&thread, NULL, worker_main, &shared) == 0, "thread");
    wait_done(pipeline);
    (void)pipeline_drain(pipeline, &slot, 1, 0);
    pipeline_stop(pipeline);
    (void)pthread_join(thread, NULL);
    (void)pipeline_revoke(pipeline, slot);
    run_metrics_free(shared.metrics);
    metrics_free(of_run);
    pipeline_free(pipeline);
    route_state_free(routes);
    metrics_free(metrics);
    mapping_free(mapping);
    stop_clear(&stop);
}

static void test_large_documents_are_sent_in_parts(void **state)
{
    struct server server = {0};

    (void)state;
    run(&server);
    assert_int_equal(server.next, RECORDS);
    assert_int_equal(server.n_writes, 3);
    assert_int_equal(server.per_write[0], 4); /* 16 MiB are reached with the fourth */
    assert_int_equal(server.per_write[1], 4);
    assert_int_equal(server.per_write[2], 2);
}

static void test_what_stands_behind_a_part_that_failed_waits(void **state)
{
    struct server server = {.failing_write = 2};

    (void)state;
    run(&server);
    assert_int_equal(server.next, RECORDS);
    assert_int_equal(server.n_writes, 4); /* 4, the failed 4, 4, 2: never the 2 before */
    assert_int_equal(server.per_write[2], 4);
    assert_int_equal(server.per_write[3], 2);
}

/* --- one large payload at a time --- */

struct crowd {
    _Atomic int inside, most;
};

static void stay(void)
{
    struct timespec t = {.tv_nsec = 20000};

    (void)nanosleep(&t, NULL);
}

static void *parse_large(void *arg)
{
    struct crowd *c = arg;
    struct record r = {.value = {"", VALUE_BYTES}};

    for (int i = 0; i < 200; i++) {
        large_begin(&r);
        int now = atomic_fetch_add(&c->inside, 1) + 1;
        int most = atomic_load(&c->most);

        while (now > most && !atomic_compare_exchange_weak(&c->most, &most, now))
            ;
        stay();
        atomic_fetch_sub(&c->inside, 1);
        large_end(&r);
    }
    return NULL;
}

static void test_one_large_payload_at_a_time(void **state)
{
    struct crowd c = {0};
    struct record large = {.value = {"", VALUE_BYTES}}, small = {.value = {"", 1000}};
    pthread_t threads[4];

    (void)state;
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, parse_large, &c), 0);
    for (size_t i = 0; i < 4; i++)
        (void)pthread_join(threads[i], NULL);
    assert_int_equal(c.most, 1);

    large_begin(&large); /* small ones don't wait: else this would never end */
    large_begin(&small);
    large_end(&small);
    large_end(&large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_large_documents_are_sent_in_parts),
        cmocka_unit_test(test_what_stands_behind_a_part_that_failed_waits),
        cmocka_unit_test(test_one_large_payload_at_a_time),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
