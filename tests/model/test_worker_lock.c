/*
 * The real pipeline and workers on a route with a lock, while others hold some of its locks, Redis
 * loses answers and the database says "later": each lane is written in its order, each record under
 * a lock that is ours at that moment, and all of them in the end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fakes/check.h"
#include "fakes/dice.h"
#include "run/worker.h"

enum { RECORDS = 900, LANES = 13, KEYS = 9, WORKERS = 3, BATCH = 60, LONG_MS = 60000 };

struct world {
    pthread_mutex_t lock;
    struct dice dice;                   /* lock */
    char holder[KEYS][LOCK_TOKEN_SIZE]; /* lock; "": nobody; "other": somebody else */
    int64_t last[LANES]; /* lock; the number of the lane's last record that was stored */
    size_t stored;       /* lock */
    size_t refused;      /* lock: takes that got nothing for some key */
    size_t later;        /* lock: records that the database has put off */
    bool one_key;        /* a lane has one key, nobody else is there, a take gets one key only */
    struct mapping *mapping;
    struct pipeline *pipeline;
    struct worker_shared shared;
    struct metrics *of_locks;
    struct stop stop;
};

static void *open_self(void *self)
{
    return self;
}

static void close_self(void *session)
{
    (void)session;
}

/* --- Redis: others come and go, answers get lost --- */

static size_t key_index(const char *key)
{
    CHECK(key[0] == 'p' && key[1] >= 'a' && key[1] < 'a' + KEYS, "key %s", key);
    return (size_t)(key[1] - 'a');
}

static void set_holder(char *to, const char *token)
{
    (void)snprintf(to, LOCK_TOKEN_SIZE, "%s", token);
}

static bool answered(struct world *w, struct err *e)
{
    return w->one_key || !dice_permille(&w->dice, 20) || err_set(e, ERR_TRANSIENT, 0, "away");
}

static bool take(void *session, const struct lock_set *set, bool *yes, struct err *e)
{
    struct world *w = session;

    (void)pthread_mutex_lock(&w->lock);
    for (size_t k = 0; k < KEYS && !w->one_key; k++) {
        if (w->holder[k][0] == '\0' && dice_permille(&w->dice, 100))
            set_holder(w->holder[k], "other");
        else if (strcmp(w->holder[k], "other") == 0 && dice_permille(&w->dice, 300))
            w->holder[k][0] = '\0';
    }
    for (size_t i = 0; i < set->n; i++) {
        char *holder = w->holder[key_index(set->keys[i])];

        yes[i] = holder[0] == '\0' && (i == 0 || !w->one_key);
        w->refused += !yes[i];
        if (yes[i])
            set_holder(holder, set->token);
    }
    bool ok = answered(w, e);
    (void)pthread_mutex_unlock(&w->lock);
    return ok;
}

static bool renew(void *session, const struct lock_set *set, bool *yes, struct err *e)
{
    struct world *w = session;

    (void)e;
    (void)pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < set->n; i++)
        yes[i] = strcmp(w->holder[key_index(set->keys[i])], set->token) == 0;
    (void)pthread_mutex_unlock(&w->lock);
    return true;
}

static bool release(void *session, const struct lock_set *set, bool *yes, struct err *e)
{
    struct world *w = session;

    (void)pthread_mutex_lock(&w->lock);
    bool ok = answered(w, e); /* lost on its way there */

    for (size_t i = 0; ok && i < set->n; i++) {
        char *holder = w->holder[key_index(set->keys[i])];

        yes[i] = strcmp(holder, set->token) == 0;
        if (yes[i])
            holder[0] = '\0';
    }
    (void)pthread_mutex_unlock(&w->lock);
    return ok;
}

/* --- the database --- */

struct session {
    struct world *w;
    struct outcome outcomes[BATCH];
};

static void *session_open(void *self)
{
    struct session *s = mem_new(sizeof *s);

    s->w = self;
    return s;
}

static void session_close(void *session)
{
    mem_free(session);
}

static int64_t field_of(const struct write_op *op, const char *name)
{
    bson_iter_t at;

    CHECK(bson_iter_init_find(&at, op->document, name), "no %s", name);
    return bson_iter_as_int64(&at);
}

static void store(struct world *w, const struct write_op *op)
{
    int64_t lane = field_of(op, "l"), number = field_of(op, "n");
    const char *holder = w->holder[key_index(op->lock)];

    CHECK(holder[0] != '\0' && strcmp(holder, "other") != 0, "%s is not ours", op->lock);
    CHECK(number == w->last[lane] + 1, "lane %d: %d behind %d", (int)lane, (int)number,
          (int)w->last[lane]);
    w->last[lane] = number;
    w->stored++;
}

static const struct outcome *session_write(void *session, uint32_t route,
                                           const struct write_op *ops, size_t n)
{
    struct session *s = session;
    struct world *w = s->w;

    (void)route;
    CHECK(n <= BATCH, "a batch of %zu", n);
    (void)pthread_mutex_lock(&w->lock);
    for (size_t i = 0; i < n; i++) {
        bool later = dice_permille(&w->dice, 20);

        for (size_t k = 0; k < i; k++)
            later = later || (ops[k].lane == ops[i].lane && s->outcomes[k].fate == FATE_LATER);
        s->outcomes[i] = (struct outcome){.fate = later ? FATE_LATER : FATE_INSERTED,
                                          .retry = later ? RETRY_CONFLICT : RETRY_NONE};
        w->later += later;
        if (!later)
            store(w, &ops[i]);
    }
    (void)pthread_mutex_unlock(&w->lock);
    return s->outcomes;
}

/* --- all of it --- */

static const char toml[] =
    "[kafka]\nbrokers = \"b\"\ngroup = \"g\"\n[mongo]\nuri = \"mongodb://h/\"\n"
    "[redis]\nuri = \"redis://h\"\n[retry]\nfirst = \"1ms\"\nmax = \"4ms\"\n"
    "[worker]\nbatch = 60\nlinger = \"0ms\"\n[[route]]\nname = \"r\"\ntopics = [\"t\"]\n"
    "collection = \"d.c\"\norder_by = \"l\"\n[route.dedup]\nkey = [\"id\"]\n"
    "[route.lock]\nkey = \"{k}\"\nprefix = \"p\"\nwait = \"10ms\"\nttl = \"1m\"\n";

static void nothing(void *ctx)
{
    (void)ctx;
}

static void offer_all(struct world *w)
{
    int64_t numbers[LANES] = {0};

    for (int64_t i = 0; i < RECORDS; i++) {
        unsigned lane = (unsigned)dice_below(&w->dice, LANES);
        unsigned key = w->one_key ? lane % KEYS : (unsigned)dice_below(&w->dice, KEYS);
        char *value = mem_printf("{\"id\":%d,\"l\":%u,\"n\":%d,\"k\":\"%c\"}", (int)i, lane,
                                 (int)++numbers[lane], (char)('a' + key));
        struct record_source from = {.topic = "t", .offset = i, .timestamp_ms = -1};

        from.value = slice_of(value, strlen(value));
        struct record *r = record_new(&from);

        mem_free(value);
        mapping_order(w->mapping, r);
        CHECK(pipeline_offer(w->pipeline, r), "refused");
    }
}

static void wait_done(struct world *w)
{
    struct pipeline_stats stats;

    for (int64_t end_ms = clock_mono_ms() + LONG_MS;;) {
        struct timespec t = {.tv_nsec = 1000000};

        pipeline_stats(w->pipeline, &stats, NULL, 0);
        if (stats.open == 0)
            return;
        CHECK(clock_mono_ms() < end_ms, "%zu records are open", stats.open);
        (void)nanosleep(&t, NULL);
    }
}

static void run(struct world *w, struct config *config, struct route_state *routes,
                struct metrics *metrics)
{
    static const struct sink_ops sink = {
        .open = session_open, .close = session_close, .write = session_write};
    static const struct lock_ops locks = {
        .open = open_self, .close = close_self, .take = take, .renew = renew, .release = release};
    int workers = w->one_key ? 1 : WORKERS;
    pthread_t threads[WORKERS];
    uint32_t slot = 0;

    w->shared = (struct worker_shared){
        .config = config,
        .mappings = &w->mapping,
        .pipeline = w->pipeline,
        .sink = {.ops = &sink, .self = w},
        .guards =
            guards_new(config, (struct lock){.ops = &locks, .self = w}, w->of_locks, &w->stop),
        .metrics = run_metrics_new(metrics, config, w->pipeline, (struct source){0}),
        .routes = routes,
        .stop = &w->stop};
    pipeline_assign(w->pipeline, slot, 0);
    offer_all(w);
    for (int i = 0; i < workers; i++)
        CHECK(pthread_create(&threads[i], NULL, worker_main, &w->shared) == 0, "thread");
    wait_done(w);
    (void)pipeline_drain(w->pipeline, &slot, 1, 0);
    pipeline_stop(w->pipeline);
    for (int i = 0; i < workers; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pipeline_revoke(w->pipeline, slot);
    guards_free(w->shared.guards);
}

static void expect_no_waits(struct metrics *of_locks)
{
    struct buf text = {0};

    metrics_render(of_locks, &text);
    CHECK(strstr(buf_text(&text), "idemsink_lock_waits_total{route=\"r\"} 0\n"), "%s",
          buf_text(&text));
    buf_clear(&text);
}

static void run_world(bool one_key)
{
    static const struct mapping_env env = {.instance_id = "me"};
    static struct world w;
    struct err e = {0};
    struct metrics *metrics = metrics_new();
    struct config *config =
        config_parse(&(struct config_input){.name = "f", .text = slice_text(toml)}, &e);

    CHECK(config, "%s", e.text);
    w = (struct world){.dice = dice_seed("test_worker_lock"), .one_key = one_key};
    w.of_locks = metrics_new();
    CHECK(pthread_mutex_init(&w.lock, NULL) == 0, "mutex");
    w.mapping = mapping_new(&config->routes[0], &env, &e);
    CHECK(w.mapping, "%s", e.text);
    stop_init(&w.stop, nothing, NULL);
    struct route_state *routes = route_state_new(config, metrics);
    struct pipeline_limits limits = {.max_records = 2 * RECORDS,
                                     .max_bytes = 1U << 30,
                                     .routes = 1,
                                     .run_max = 7,
                                     .wake = nothing,
                                     .held = route_state_held(routes)};

    w.pipeline = pipeline_new(&limits);
    run(&w, config, routes, metrics);
    assert_int_equal(w.stored, RECORDS);
    assert_true(w.refused > 0);
    if (one_key) {
        assert_true(w.later > 0);
        expect_no_waits(w.of_locks);
    }
    run_metrics_free(w.shared.metrics);
    pipeline_free(w.pipeline);
    route_state_free(routes);
    metrics_free(metrics);
    metrics_free(w.of_locks);
    mapping_free(w.mapping);
    stop_clear(&w.stop);
    config_free(config);
    (void)pthread_mutex_destroy(&w.lock);
}

static void test_each_under_its_lock_and_in_its_lane(void **state)
{
    (void)state;
    run_world(false);
}

/* The rest of a batch goes back when the database puts off one part of it: no lock was missing. */
static void test_what_was_not_asked_for_did_not_wait(void **state)
{
    (void)state;
    run_world(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_under_its_lock_and_in_its_lane),
        cmocka_unit_test(test_what_was_not_asked_for_did_not_wait),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
