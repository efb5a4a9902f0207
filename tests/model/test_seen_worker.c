/*
 * The real workers with a seen cache, against a database that fails now and then: what is known to
 * be stored is not written, nothing is taken for known that is not stored, and lanes keep their
 * order.
 *
 * Records have the value {"id": N, "v": V}; the dedup key is id, the ordering key is the Kafka key
 * (id % LANES). Route r0 has no conflict check; r1 counts conflicts.
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
#include "core/look.h"
#include "fakes/check.h"
#include "fakes/dice.h"
#include "run/seen_listener.h"
#include "run/worker.h"

enum { IDS = 400, ROUTES = 2, LANES = 7, LONG_MS = 20000, BATCH = 50, GATE = IDS - 1 };

struct server {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct dice dice; /* lock */
    unsigned fails;   /* lock; permille */
    bool gate_closed; /* lock; GATE is not answered while it is */
    bool at_gate;     /* lock */
    int64_t refused;  /* lock; this id fails for now; -1: none */
    bool stored[ROUTES][IDS];
    uint8_t hash[ROUTES][IDS][CANONICAL_HASH_BYTES];
    int written[ROUTES][IDS]; /* how often it was asked to */
    bool lost;                /* the answers of a batch */
};

struct world {
    struct server server;
    struct config *config;
    struct mapping *mappings[ROUTES];
    struct metrics *metrics;
    struct run_metrics *run_metrics;
    struct worker_shared shared;
    struct stop stop;
    pthread_t threads[2];
    size_t n_threads;
    int64_t next_offset[ROUTES];
};

/* --- the server --- */

struct session {
    struct server *server;
    struct outcome results[BATCH];
};

static void *session_open(void *self)
{
    struct session *s = mem_new(sizeof *s);

    s->server = self;
    return s;
}

static void session_close(void *session)
{
    mem_free(session);
}

static int64_t id_of(const struct write_op *op)
{
    bson_iter_t it;

    CHECK(bson_iter_init_find(&it, op->filter, "id"), "a filter without id");
    return bson_iter_as_int64(&it);
}

static void apply_locked(struct server *s, uint32_t route, const struct write_op *op,
                         struct outcome *o)
{
    int64_t id = id_of(op);
    uint8_t hash[CANONICAL_HASH_BYTES] = {0};
    bool checked = route == 1;

    CHECK(!checked || look_hash(op->document, "_hash", hash), "no hash");
    if (!s->stored[route][id]) {
        s->stored[route][id] = true;
        memcpy(s->hash[route][id], hash, sizeof hash);
        o->fate = FATE_INSERTED;
        return;
    }
    o->fate = FATE_DUPLICATE;
    o->conflict = checked && memcmp(s->hash[route][id], hash, sizeof hash) != 0;
}

/* As a sink does: what stands behind a failed one in its lane is not applied. */
static const struct outcome *session_write(void *session, uint32_t route,
                                           const struct write_op *ops, size_t n)
{
    struct session *s = session;
    struct server *server = s->server;
    const void *failed = NULL;

    (void)pthread_mutex_lock(&server->lock);
    bool lost = dice_permille(&server->dice, server->fails);
    for (size_t i = 0; i < n; i++) {
        struct outcome *o = &s->results[i];
        int64_t id = id_of(&ops[i]);

        while (id == GATE && server->gate_closed) {
            server->at_gate = true;
            (void)pthread_cond_broadcast(&server->changed);
            (void)pthread_cond_wait(&server->changed, &server->lock);
        }
        server->written[route][id]++;
        *o = (struct outcome){.fate = FATE_LATER, .retry = RETRY_OTHER};
        if (failed != NULL && ops[i].lane == failed)
            continue;
        if (id == server->refused || dice_permille(&server->dice, server->fails)) {
            failed = ops[i].lane;
            continue;
        }
        if (lost && dice_permille(&server->dice, 500)) { /* not carried out, and nobody knows */
            failed = ops[i].lane;
            o->fate = FATE_UNKNOWN;
            continue;
        }
        apply_locked(server, route, &ops[i], o);
        if (lost) {
            failed = ops[i].lane;
            *o = (struct outcome){.fate = FATE_UNKNOWN, .retry = RETRY_NETWORK};
        }
    }
    (void)pthread_mutex_unlock(&server->lock);
    return s->results;
}

/* --- the world --- */

static char id_part[] = "id", by_key[] = "@key", off[] = "", hash_field[] = "_hash", db[] = "s";
static char *key_parts[] = {id_part};
static char r0_name[] = "r0", r1_name[] = "r1", r0_collection[] = "a", r1_collection[] = "b";
#define SEEN_ROUTE(r)                                                                              \
    {                                                                                              \
        .name = r##_name, .database = db, .collection = r##_collection, .order_by = by_key,        \
        .under = off, .source_fields = off,                                                        \
        .dedup = {.key = {key_parts, 1}, .fields = {key_parts, 1}, .conflict_field = hash_field},  \
        .seen = {                                                                                  \
            .entries = 300,                                                                        \
            .bytes = 1 << 20,                                                                      \
            .ttl_ms = 600000                                                                       \
        }                                                                                          \
    }
static struct config_route routes[ROUTES] = {SEEN_ROUTE(r0), SEEN_ROUTE(r1)};
static struct config config = {.worker = {.batch = BATCH, .max_bytes = 1 << 30},
                               .retry = {.first_ms = 1, .max_ms = 2, .max_unknown = 16},
                               .routes = routes,
                               .n_routes = ROUTES};

#define UUID_OF_R0                                                                                 \
    {                                                                                              \
        1, 2, 3                                                                                    \
    }

static void on_stop(void *ctx)
{
    (void)ctx;
}

static void world_open_with(struct world *w, size_t threads, struct seen_store store)
{
    static const struct seen_identity identities[ROUTES] = {{.known = true, .uuid = UUID_OF_R0}};
    static const struct sink_ops sink = {
        .open = session_open, .close = session_close, .write = session_write};
    static const struct mapping_env env = {.instance_id = "me"};
    struct pipeline_limits limits = {
        .max_records = 100000, .max_bytes = 1u << 30, .routes = ROUTES, .run_max = 100};
    struct err e;

    memset(w, 0, sizeof *w);
    w->server.refused = -1;
    (void)pthread_mutex_init(&w->server.lock, NULL);
    (void)pthread_cond_init(&w->server.changed, NULL);
    w->config = &config;
    routes[1].dedup.conflict = CONFLICT_COUNT;
    for (size_t i = 0; i < ROUTES; i++) {
        w->mappings[i] = mapping_new(&w->config->routes[i], &env, &e);
        CHECK(w->mappings[i], "%s", e.text);
    }
    w->metrics = metrics_new();
    stop_init(&w->stop, on_stop, NULL);
    w->shared = (struct worker_shared){
        .config = w->config,
        .mappings = w->mappings,
        .pipeline = pipeline_new(&limits),
        .sink = {.ops = &sink, .self = &w->server},
        .seen = seen_cache_new(&(struct seen_cache_options){
            .config = w->config, .identities = identities, .store = store, .metrics = w->metrics}),
        .routes = route_state_new(w->config, w->metrics),
        .stop = &w->stop};
    w->shared.metrics = w->run_metrics =
        run_metrics_new(w->metrics, w->config, w->shared.pipeline, (struct source){0});
    for (uint32_t slot = 0; slot < ROUTES; slot++)
        pipeline_assign(w->shared.pipeline, slot, 0);
    w->n_threads = threads;
    for (size_t i = 0; i < threads; i++)
        CHECK(pthread_create(&w->threads[i], NULL, worker_main, &w->shared) == 0, "thread");
}

static void world_open(struct world *w, size_t threads)
{
    world_open_with(w, threads, (struct seen_store){0});
}

static void world_close(struct world *w)
{
    for (uint32_t slot = 0; slot < ROUTES; slot++)
        (void)pipeline_drain(w->shared.pipeline, &slot, 1, 0);
    pipeline_stop(w->shared.pipeline);
    for (size_t i = 0; i < w->n_threads; i++)
        (void)pthread_join(w->threads[i], NULL);
    for (uint32_t slot = 0; slot < ROUTES; slot++)
        (void)pipeline_revoke(w->shared.pipeline, slot);
    run_metrics_free(w->run_metrics);
    pipeline_free(w->shared.pipeline);
    seen_cache_free(w->shared.seen);
    route_state_free(w->shared.routes);
    metrics_free(w->metrics);
    for (size_t i = 0; i < ROUTES; i++)
        mapping_free(w->mappings[i]);
    stop_clear(&w->stop);
    (void)pthread_cond_destroy(&w->server.changed);
    (void)pthread_mutex_destroy(&w->server.lock);
}

static void offer_to_lane(struct world *w, uint32_t route, int64_t id, int v, int lane)
{
    char value[64], key[16];
    struct record_source from = {
        .topic = "t", .slot = route, .offset = w->next_offset[route]++, .timestamp_ms = 1};

    (void)snprintf(value, sizeof value, "{\"id\":%" PRId64 ",\"v\":%d}", id, v);
    (void)snprintf(key, sizeof key, "%d", lane);
    from.value = slice_text(value);
    from.key = slice_text(key);
    struct record *r = record_new(&from);
    r->route = route;
    mapping_order(w->mappings[route], r);
    CHECK(pipeline_offer(w->shared.pipeline, r), "refused");
}

static void offer(struct world *w, uint32_t route, int64_t id, int v)
{
    offer_to_lane(w, route, id, v, (int)(id % LANES));
}

static size_t open_records(struct world *w)
{
    struct pipeline_stats stats;

    pipeline_stats(w->shared.pipeline, &stats, NULL, 0);
    return stats.open;
}

static void pause_1ms(void)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static void wait_open(struct world *w, size_t n)
{
    for (int64_t end_ms = clock_mono_ms() + LONG_MS; open_records(w) != n; pause_1ms())
        CHECK(clock_mono_ms() < end_ms, "%zu records are open and not %zu", open_records(w), n);
}

static int64_t outcome(struct world *w, uint32_t route, enum pipeline_outcome o)
{
    return metric_value(w->run_metrics->routes[route].outcomes[o]);
}

static int64_t looked_up_at(struct world *w, const char *route, const char *level,
                            const char *result)
{
    struct buf labels = {0};

    metrics_label(&labels, "route", route);
    metrics_label(&labels, "level", level);
    metrics_label(&labels, "result", result);
    int64_t n =
        metric_value(metrics_counter(w->metrics, "idemsink_seen_lookups_total", "", labels.data));
    buf_clear(&labels);
    return n;
}

static int64_t looked_up(struct world *w, const char *route, const char *result)
{
    return looked_up_at(w, route, "process", result);
}

static int times_written(struct world *w, uint32_t route, int64_t id)
{
    (void)pthread_mutex_lock(&w->server.lock);
    int n = w->server.written[route][id];
    (void)pthread_mutex_unlock(&w->server.lock);
    return n;
}

static void set_refused(struct world *w, int64_t id)
{
    (void)pthread_mutex_lock(&w->server.lock);
    w->server.refused = id;
    (void)pthread_mutex_unlock(&w->server.lock);
}

/* --- one thing at a time --- */

static void test_a_duplicate_is_not_written(void **state)
{
    static struct world w;

    (void)state;
    world_open(&w, 1);
    for (int64_t id = 0; id < 10; id++)
        offer(&w, 0, id, 0);
    wait_open(&w, 0);
    for (int times = 0; times < 3; times++)
        for (int64_t id = 0; id < 10; id++)
            offer(&w, 0, id, 0);
    wait_open(&w, 0);
    for (int64_t id = 0; id < 10; id++)
        assert_int_equal(times_written(&w, 0, id), 1);
    assert_int_equal(outcome(&w, 0, PIPELINE_INSERTED), 10);
    assert_int_equal(outcome(&w, 0, PIPELINE_DUPLICATE), 30);
    assert_int_equal(looked_up(&w, "r0", "hit"), 30);
    assert_int_equal(looked_up(&w, "r0", "miss"), 10);
    seen_cache_forget(w.shared.seen, 0);
    offer(&w, 0, 5, 0);
    wait_open(&w, 0);
    assert_int_equal(times_written(&w, 0, 5), 2);
    world_close(&w);
}

static void test_another_payload_is_a_conflict_all_the_same(void **state)
{
    static struct world w;

    (void)state;
    world_open(&w, 1);
    offer(&w, 1, 1, 0);
    wait_open(&w, 0);
    offer(&w, 1, 1, 0);
    offer(&w, 1, 1, 99); /* another one */
    offer(&w, 1, 1, 99); /* it doesn't become known by that */
    offer(&w, 1, 1, 0);
    wait_open(&w, 0);
    assert_int_equal(metric_value(w.run_metrics->routes[1].conflicts), 2);
    assert_int_equal(times_written(&w, 1, 1), 3);
    assert_int_equal(looked_up(&w, "r1", "hit"), 2);
    world_close(&w);
}

static void close_gate(struct world *w)
{
    w->server.gate_closed = true;
    w->server.at_gate = false;
    offer(w, 0, GATE, 0);
    (void)pthread_mutex_lock(&w->server.lock);
    while (!w->server.at_gate)
        (void)pthread_cond_wait(&w->server.changed, &w->server.lock);
    (void)pthread_mutex_unlock(&w->server.lock);
}

static void open_gate(struct world *w)
{
    (void)pthread_mutex_lock(&w->server.lock);
    w->server.gate_closed = false;
    (void)pthread_cond_broadcast(&w->server.changed);
    (void)pthread_mutex_unlock(&w->server.lock);
}

/* In one batch: a new record that fails for now, behind it in its lane a known one and another new
 * one; a known one in another lane. */
static void test_a_hit_waits_for_its_lane(void **state)
{
    static struct world w;

    (void)state;
    world_open(&w, 1);
    offer(&w, 0, 1, 0);
    offer(&w, 0, 2, 0);
    wait_open(&w, 0);
    close_gate(&w);
    set_refused(&w, 10);
    offer_to_lane(&w, 0, 10, 0, 50);
    offer_to_lane(&w, 0, 1, 0, 50);
    offer_to_lane(&w, 0, 11, 0, 50);
    offer_to_lane(&w, 0, 2, 0, 51);
    open_gate(&w);
    wait_open(&w, 3);
    while (times_written(&w, 0, 10) < 4) {
        assert_int_equal(open_records(&w), 3);
        pause_1ms();
    }
    assert_false(w.server.stored[0][11]);
    set_refused(&w, -1);
    wait_open(&w, 0);
    assert_int_equal(times_written(&w, 0, 1), 1);
    assert_int_equal(times_written(&w, 0, 2), 1);
    assert_int_equal(outcome(&w, 0, PIPELINE_DUPLICATE), 2);
    assert_int_equal(outcome(&w, 0, PIPELINE_INSERTED), 5);
    world_close(&w);
}

/* What was asked before everything was forgotten is not learnt behind it. */
static void test_what_was_on_its_way_is_forgotten_too(void **state)
{
    static struct world w;

    (void)state;
    world_open(&w, 1);
    close_gate(&w);
    seen_cache_forget(w.shared.seen, 0);
    open_gate(&w);
    wait_open(&w, 0);
    offer(&w, 0, GATE, 0);
    wait_open(&w, 0);
    assert_int_equal(times_written(&w, 0, GATE), 2);
    offer(&w, 0, GATE, 0);
    wait_open(&w, 0);
    assert_int_equal(times_written(&w, 0, GATE), 2);
    world_close(&w);
}

/* --- what others have seen --- */

struct store {
    pthread_mutex_t lock;
    struct seen_id ids[IDS]; /* lock, all */
    size_t n;
    bool away;
    size_t asks, enters, sessions, forgets;
};

static void *store_open(void *self)
{
    struct store *s = self;

    (void)pthread_mutex_lock(&s->lock);
    s->sessions++;
    (void)pthread_mutex_unlock(&s->lock);
    return s;
}

static void store_close(void *session)
{
    struct store *s = session;

    (void)pthread_mutex_lock(&s->lock);
    s->sessions--;
    (void)pthread_mutex_unlock(&s->lock);
}

static bool store_has_locked(const struct store *s, struct seen_id id)
{
    for (size_t i = 0; i < s->n; i++)
        if (s->ids[i].high == id.high && s->ids[i].low == id.low)
            return true;
    return false;
}

static bool store_ask(void *session, uint32_t route, const struct seen_id *ids, size_t n,
                      bool *found, struct seen_generation *generation, struct err *e)
{
    struct store *s = session;

    CHECK(route == 0, "it is not shared");
    (void)pthread_mutex_lock(&s->lock);
    bool ok = !s->away;
    s->asks++;
    for (size_t i = 0; i < n; i++)
        found[i] = ok && store_has_locked(s, ids[i]);
    (void)snprintf(generation->text, sizeof generation->text, "%s", ok ? "g" : "");
    (void)pthread_mutex_unlock(&s->lock);
    return ok || err_set(e, ERR_TRANSIENT, 0, "away");
}

static bool store_enter(void *session, uint32_t route, const struct seen_id *ids, size_t n,
                        const struct seen_generation *generation, struct err *e)
{
    struct store *s = session;

    CHECK(route == 0 && strcmp(generation->text, "g") == 0, "%s", generation->text);
    (void)pthread_mutex_lock(&s->lock);
    bool ok = !s->away;
    s->enters++;
    for (size_t i = 0; ok && i < n; i++)
        if (!store_has_locked(s, ids[i]))
            s->ids[s->n++] = ids[i];
    (void)pthread_mutex_unlock(&s->lock);
    return ok || err_set(e, ERR_TRANSIENT, 0, "away");
}

static bool store_forget(void *session, uint32_t route, struct err *e)
{
    struct store *s = session;

    CHECK(route == 0, "it is not shared");
    (void)pthread_mutex_lock(&s->lock);
    bool ok = !s->away;
    s->n = ok ? 0 : s->n;
    s->forgets++;
    (void)pthread_mutex_unlock(&s->lock);
    return ok || err_set(e, ERR_TRANSIENT, 0, "away");
}

static const struct seen_store_ops store_ops = {.open = store_open,
                                                .close = store_close,
                                                .ask = store_ask,
                                                .enter = store_enter,
                                                .forget = store_forget};

static struct seen_id id_in_r0(int64_t id)
{
    static const uint8_t uuid[SEEN_UUID_BYTES] = UUID_OF_R0;
    bson_t *filter = BCON_NEW("id", BCON_INT64(id));
    struct seen_id named = seen_id(seen_seed(uuid), filter, NULL);

    bson_destroy(filter);
    return named;
}

static char shared_prefix[] = "p:";

static void test_what_others_have_seen(void **state)
{
    struct store store = {.lock = PTHREAD_MUTEX_INITIALIZER, .ids = {id_in_r0(5)}, .n = 1};
    static struct world w;

    (void)state;
    routes[0].seen.redis = shared_prefix;
    world_open_with(&w, 1, (struct seen_store){&store_ops, &store});
    offer(&w, 0, 5, 0);
    wait_open(&w, 0);
    offer(&w, 0, 5, 0); /* this process has not seen it itself, and asks again */
    wait_open(&w, 0);
    offer(&w, 0, 6, 0);
    wait_open(&w, 0);
    offer(&w, 0, 6, 0);
    offer(&w, 1, 7, 0); /* of a route that is not shared */
    wait_open(&w, 0);
    assert_int_equal(times_written(&w, 0, 5), 0);
    assert_int_equal(times_written(&w, 0, 6), 1);
    assert_true(store_has_locked(&store, id_in_r0(6)));
    assert_int_equal(store.n, 2);
    assert_int_equal(store.asks, 3);
    assert_int_equal(looked_up_at(&w, "r0", "redis", "hit"), 2);
    assert_int_equal(looked_up_at(&w, "r0", "redis", "miss"), 1);
    assert_int_equal(outcome(&w, 0, PIPELINE_DUPLICATE), 3);
    world_close(&w);
    assert_int_equal(store.sessions, 0);
    routes[0].seen.redis = NULL;
}

/* It costs one attempt now and then, and no record waits for it or is lost by it. */
static void test_the_store_is_away(void **state)
{
    struct store store = {.lock = PTHREAD_MUTEX_INITIALIZER, .away = true};
    static struct world w;
    int64_t start_ms, took_ms;

    (void)state;
    routes[0].seen.redis = shared_prefix;
    world_open_with(&w, 2, (struct seen_store){&store_ops, &store});
    start_ms = clock_mono_ms();
    for (int64_t id = 0; id < 200; id++) {
        offer(&w, 0, id, 0);
        wait_open(&w, 0);
    }
    took_ms = clock_mono_ms() - start_ms;
    assert_int_equal(outcome(&w, 0, PIPELINE_INSERTED), 200);
    assert_true(store.asks >= 1 && store.asks <= 1 + (size_t)took_ms / 1000);
    assert_int_equal(store.enters, 0); /* without an answer there is no generation */
    (void)pthread_mutex_lock(&store.lock);
    store.away = false;
    (void)pthread_mutex_unlock(&store.lock);
    for (int64_t id = 200; looked_up_at(&w, "r0", "redis", "miss") == 0;
         id = 200 + (id + 1) % 100) {
        CHECK(clock_mono_ms() < start_ms + LONG_MS, "it is not asked any more");
        seen_cache_forget(w.shared.seen, 0);
        offer(&w, 0, id, 0);
        wait_open(&w, 0);
        pause_1ms();
    }
    world_close(&w);
    assert_true(store.n > 0);
    routes[0].seen.redis = NULL;
}

/* --- what others say --- */

struct voice {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    enum listener_event event; /* lock; the next, NOTHING: none yet */
    const char *channel, *text;
    size_t taken, left; /* lock */
};

static enum listener_event voice_next(void *self, int wait_ms, struct listener_message *out,
                                      struct err *e)
{
    struct voice *v = self;

    (void)wait_ms;
    (void)err_set(e, ERR_TRANSIENT, 0, "gone");
    (void)pthread_mutex_lock(&v->lock);
    enum listener_event event = v->event;
    v->event = LISTENER_NOTHING;
    *out = (struct listener_message){slice_text(v->channel), slice_text(v->text)};
    v->taken += event != LISTENER_NOTHING;
    (void)pthread_mutex_unlock(&v->lock);
    pause_1ms();
    return event;
}

static void voice_leave(void *self)
{
    struct voice *v = self;

    (void)pthread_mutex_lock(&v->lock);
    v->left++;
    (void)pthread_mutex_unlock(&v->lock);
}

static size_t taken(struct voice *v)
{
    (void)pthread_mutex_lock(&v->lock);
    size_t n = v->taken;
    (void)pthread_mutex_unlock(&v->lock);
    return n;
}

/* Until it was acted upon: the second is taken after that. */
static void say(struct voice *v, enum listener_event event, const char *channel, const char *text)
{
    int64_t end_ms = clock_mono_ms() + LONG_MS;

    for (int i = 0; i < 2; i++) {
        size_t before = taken(v);

        (void)pthread_mutex_lock(&v->lock);
        v->event = i == 0 ? event : LISTENER_MESSAGE;
        v->channel = i == 0 ? channel : "nobody's";
        v->text = text;
        (void)pthread_mutex_unlock(&v->lock);
        for (; taken(v) == before; pause_1ms())
            CHECK(clock_mono_ms() < end_ms, "nobody listens");
    }
}

/* Is event 1 known? It is stored, and acknowledged once more when it is not. */
static bool is_known(struct world *w)
{
    int before = times_written(w, 0, 1);

    offer(w, 0, 1, 0);
    wait_open(w, 0);
    return times_written(w, 0, 1) == before;
}

static char drop_channel[] = "c";

static void test_others_say_forget(void **state)
{
    static const char ours[] = "{\"pattern\":\"*:s.a:*\",\"instanceId\":\"you\"}",
                      of_others[] = "{\"pattern\":\"*:s.b:*\",\"instanceId\":\"you\"}",
                      own[] = "{\"pattern\":\"*:s.a:*\",\"instanceId\":\"me\"}";
    static const struct listener_ops ops = {.next = voice_next, .leave = voice_leave};
    struct voice v = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct store store = {.lock = PTHREAD_MUTEX_INITIALIZER};
    static struct world w;
    size_t n;

    (void)state;
    routes[0].seen.drop_on = drop_channel;
    routes[0].seen.redis = shared_prefix;
    const char **channels = seen_listener_channels(&config, &n);
    assert_int_equal(n, 1);
    assert_string_equal(channels[0], "c");
    mem_free(channels);
    world_open_with(&w, 1, (struct seen_store){&store_ops, &store});
    struct seen_listener_options o = {.config = &config,
                                      .cache = w.shared.seen,
                                      .listener = {&ops, &v},
                                      .instance_id = "me",
                                      .metrics = w.metrics};
    struct seen_listener *l = seen_listener_start(&o);
    assert_false(is_known(&w)); /* nobody has joined yet: nothing is known, and not learnt */
    assert_false(is_known(&w));
    say(&v, LISTENER_JOINED, "", "");
    assert_int_equal(store.forgets, 1);
    assert_false(is_known(&w));
    assert_true(is_known(&w));
    say(&v, LISTENER_MESSAGE, "c", of_others);
    say(&v, LISTENER_MESSAGE, "c", own);
    say(&v, LISTENER_MESSAGE, "another", ours);
    assert_true(is_known(&w));
    say(&v, LISTENER_MESSAGE, "c", ours);
    assert_int_equal(store.forgets, 2);
    assert_false(is_known(&w));
    assert_true(is_known(&w));
    say(&v, LISTENER_LOST, "", "");
    assert_false(is_known(&w));
    assert_false(is_known(&w));
    say(&v, LISTENER_JOINED, "", "");
    assert_false(is_known(&w));
    assert_true(is_known(&w));
    (void)pthread_mutex_lock(&store.lock);
    store.away = true; /* others can't be told: who doesn't know whether they know must not trust */
    (void)pthread_mutex_unlock(&store.lock);
    size_t left = v.left;
    say(&v, LISTENER_MESSAGE, "c", ours);
    assert_int_equal(v.left, left + 1);
    assert_false(is_known(&w));
    assert_false(is_known(&w));
    seen_listener_stop(l);
    world_close(&w);
    assert_int_equal(store.sessions, 0);
    routes[0].seen.redis = routes[0].seen.drop_on = NULL;
}

/* --- all at once --- */

static void test_faults(void **state)
{
    static struct world w;
    struct dice d = dice_seed("seen worker");
    int64_t offered[ROUTES] = {0}, conflicts = 0;
    bool first[IDS] = {false};

    (void)state;
    world_open(&w, 2);
    w.server.dice = dice_split(&d);
    w.server.fails = 60;
    for (int i = 0; i < 20000; i++) {
        uint32_t route = (uint32_t)dice_below(&d, ROUTES);
        int64_t id = (int64_t)dice_below(&d, IDS - 1);
        bool other = route == 1 && first[id] && dice_permille(&d, 20);

        first[id] = first[id] || route == 1;
        conflicts += other;
        offered[route]++;
        offer(&w, route, id, other ? 1 : 0);
        if (dice_permille(&d, 1))
            seen_cache_forget(w.shared.seen, route);
        while (open_records(&w) > 300)
            pause_1ms();
    }
    wait_open(&w, 0);
    for (uint32_t route = 0; route < ROUTES; route++) {
        assert_int_equal(outcome(&w, route, PIPELINE_INSERTED) +
                             outcome(&w, route, PIPELINE_DUPLICATE),
                         offered[route]);
        for (int64_t id = 0; id < IDS - 1; id++)
            CHECK(w.server.stored[route][id] || w.server.written[route][id] == 0,
                  "%" PRId64 " was settled without being stored", id);
    }
    assert_int_equal(metric_value(w.run_metrics->routes[1].conflicts), conflicts);
    assert_true(looked_up(&w, "r0", "hit") > 1000 && looked_up(&w, "r1", "hit") > 1000);
    assert_true(looked_up(&w, "r0", "miss") > 1000);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_duplicate_is_not_written),
        cmocka_unit_test(test_another_payload_is_a_conflict_all_the_same),
        cmocka_unit_test(test_a_hit_waits_for_its_lane),
        cmocka_unit_test(test_what_was_on_its_way_is_forgotten_too),
        cmocka_unit_test(test_what_others_have_seen),
        cmocka_unit_test(test_the_store_is_away),
        cmocka_unit_test(test_others_say_forget),
        cmocka_unit_test(test_faults),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
