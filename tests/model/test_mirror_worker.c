/*
 * The real workers and notifier with a mirrored counter: whatever order the read values come in,
 * and however often Redis is away, in the end it has the last value of each counter.
 *
 * Records have the value {"id": N, "user": U}; each new id moves user U's counter by 1.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/mirror.h"
#include "fakes/check.h"
#include "fakes/dice.h"
#include "run/worker.h"

enum { IDS = 3000, USERS = 5, THREADS = 3, BATCH = 20, LONG_MS = 20000 };

/* --- the database and Redis --- */

struct server {
    pthread_mutex_t lock;
    struct dice dice;                                 /* lock */
    bool stored[IDS];                                 /* lock */
    int64_t count[USERS];                             /* lock; the version, too */
    int64_t redis_value[USERS], redis_version[USERS]; /* lock */
    unsigned away, lost; /* lock; permille of the sets that fail; of the answers to inserts */
    size_t asked, sets, published; /* lock */
};

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

static int64_t number_of(const bson_t *b, const char *name)
{
    bson_iter_t it;

    CHECK(bson_iter_init_find(&it, b, name), "no %s", name);
    return bson_iter_as_int64(&it);
}

static const struct outcome *session_write(void *session, uint32_t route,
                                           const struct write_op *ops, size_t n)
{
    struct session *s = session;
    struct server *server = s->server;

    (void)route;
    (void)pthread_mutex_lock(&server->lock);
    for (size_t i = 0; i < n; i++) {
        int64_t id = number_of(ops[i].filter, "id");
        int64_t user = number_of(ops[i].effects->moves[0].filter, "_id");

        s->results[i] = (struct outcome){.fate = FATE_DUPLICATE};
        if (dice_permille(&server->dice, 20)) {
            s->results[i] = (struct outcome){.fate = FATE_LATER, .retry = RETRY_OTHER};
            continue; /* all lanes are of one record */
        }
        if (server->stored[id])
            continue;
        server->stored[id] = true;
        server->count[user]++;
        /* The answer may be lost: then the duplicate that comes of it has to bring the value. */
        s->results[i] = dice_permille(&server->dice, server->lost)
                            ? (struct outcome){.fate = FATE_UNKNOWN, .retry = RETRY_NETWORK}
                            : (struct outcome){.fate = FATE_INSERTED};
    }
    (void)pthread_mutex_unlock(&server->lock);
    return s->results;
}

static void pause_us(long us)
{
    (void)nanosleep(&(struct timespec){.tv_nsec = us * 1000}, NULL);
}

static const struct config_counter *counter_of_config(void);

/* Read, then delayed, so that values overtake each other. */
static void session_moved(void *session, uint32_t route, const struct write_op *const *ops,
                          size_t n, struct invalidation_list *out)
{
    struct server *server = ((struct session *)session)->server;
    size_t n_filters;
    const bson_t **filters = mirror_moved(ops, n, 0, &n_filters);
    long wait_us;

    (void)route;
    (void)pthread_mutex_lock(&server->lock);
    server->asked += n_filters;
    for (size_t i = 0; i < n_filters; i++) {
        int64_t user = number_of(filters[i], "_id");
        bson_t *document =
            BCON_NEW("_id", BCON_INT64(user), "followers", BCON_INT64(server->count[user]),
                     MIRROR_VERSION, BCON_INT64(server->count[user]));

        CHECK(mirror_add(counter_of_config(), document, out), "not filled");
        bson_destroy(document);
    }
    wait_us = (long)dice_below(&server->dice, 2000);
    (void)pthread_mutex_unlock(&server->lock);
    mem_free(filters);
    if (wait_us < 500)
        pause_us(wait_us);
}

static void apply_locked(struct server *s, const struct invalidation *m)
{
    int64_t user = m->name[strlen("user:")] - '0';

    CHECK(user >= 0 && user < USERS, "%s", m->name);
    if (m->version <= s->redis_version[user])
        return;
    s->redis_version[user] = m->version;
    s->redis_value[user] = strtoll(m->body, NULL, 10);
}

static bool bus_send(void *self, const struct invalidation *messages, size_t n, bool *sent,
                     uint64_t *receivers, struct err *e)
{
    struct server *s = self;
    bool all = true;

    *receivers = 0;
    (void)pthread_mutex_lock(&s->lock);
    bool away = dice_permille(&s->dice, s->away);
    s->sets++;
    for (size_t i = 0; i < n; i++) {
        sent[i] = !away && !dice_permille(&s->dice, s->away / 4);
        all = all && sent[i];
        if (sent[i] && messages[i].kind == INVALIDATION_MIRROR)
            apply_locked(s, &messages[i]);
        s->published += messages[i].kind == INVALIDATION_PUBLISH;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return all || err_set(e, ERR_TRANSIENT, 0, "away");
}

/* --- the world --- */

static char id_part[] = "id", user_part[] = "user", off[] = "", by_dedup[] = "@dedup", db[] = "s",
            collection[] = "a", name[] = "r", counter_id[] = "_id", followers[] = "followers",
            amount[] = "1", key[] = "user:{_id}", channel[] = "c", payload[] = "{\"u\": {user}}";
static char *key_parts[] = {id_part};
static struct config_pair filter_pair[] = {{counter_id, user_part}},
                          inc_pair[] = {{followers, amount}};
static struct config_counter counters[] = {{.collection = collection,
                                            .database = db,
                                            .filter = {filter_pair, 1},
                                            .inc = {inc_pair, 1},
                                            .upsert = true,
                                            .mirror = key}};
static struct config_invalidate rules[] = {
    {.mode = INVALIDATE_PUBSUB, .channel = channel, .payload = payload}};
static struct config_route routes[] = {
    {.name = name,
     .database = db,
     .collection = collection,
     .order_by = by_dedup,
     .under = off,
     .source_fields = off,
     .dedup = {.key = {key_parts, 1}, .fields = {key_parts, 1}},
     .counters = counters,
     .n_counters = 1,
     .seen = {.entries = 100, .bytes = 1 << 20, .ttl_ms = 600000},
     .invalidate = rules,
     .n_invalidate = 1}};
static const struct config config = {.worker = {.batch = BATCH, .max_bytes = 1 << 30},
                                     .redis = {.max_pending = 1000, .max_pending_bytes = 1 << 20},
                                     .retry = {.first_ms = 1, .max_ms = 2, .max_unknown = 16},
                                     .routes = routes,
                                     .n_routes = 1};

static const struct config_counter *counter_of_config(void)
{
    return &counters[0];
}

static void on_stop(void *ctx)
{
    (void)ctx;
}

static void offer(struct pipeline *p, const struct mapping *m, int64_t offset, int64_t id)
{
    char value[64];
    struct record_source from = {.topic = "t", .offset = offset, .timestamp_ms = 1};

    (void)snprintf(value, sizeof value, "{\"id\":%" PRId64 ",\"user\":%" PRId64 "}", id,
                   id % USERS);
    from.value = slice_text(value);
    struct record *r = record_new(&from);
    mapping_order(m, r);
    CHECK(pipeline_offer(p, r), "refused");
}

static void wait_done(struct pipeline *p)
{
    struct pipeline_stats stats;

    for (int64_t end_ms = clock_mono_ms() + LONG_MS;; pause_us(1000)) {
        pipeline_stats(p, &stats, NULL, 0);
        if (stats.open == 0)
            return;
        CHECK(clock_mono_ms() < end_ms, "%zu records are open", stats.open);
    }
}

static void run(unsigned lost)
{
    static const struct sink_ops sink = {.open = session_open,
                                         .close = session_close,
                                         .write = session_write,
                                         .moved = session_moved};
    static const struct bus_ops bus = {.send = bus_send};
    static const struct mapping_env env = {.instance_id = "me"};
    static struct server server;
    struct dice d = dice_seed("mirror worker");
    struct metrics *metrics = metrics_new();
    struct pipeline_limits limits = {
        .max_records = 100000, .max_bytes = 1u << 30, .routes = 1, .run_max = 100};
    struct pipeline *pipeline = pipeline_new(&limits);
    struct stop stop;
    pthread_t threads[THREADS];
    uint32_t slot = 0;
    struct err e;

    server = (struct server){.dice = dice_split(&d), .away = 200, .lost = lost};
    (void)pthread_mutex_init(&server.lock, NULL);
    struct mapping *mapping = mapping_new(&routes[0], &env, &e);
    CHECK(mapping, "%s", e.text);
    stop_init(&stop, on_stop, NULL);
    struct notifier *notifier =
        notifier_new(&config, &mapping, (struct bus){&bus, &server}, pipeline, metrics);
    struct worker_shared shared = {
        .config = &config,
        .mappings = &mapping,
        .pipeline = pipeline,
        .sink = {.ops = &sink, .self = &server},
        .notifier = notifier,
        .seen = seen_cache_new(&(struct seen_cache_options){.config = &config, .metrics = metrics}),
        .routes = route_state_new(&config, metrics),
        .stop = &stop};
    shared.metrics = run_metrics_new(metrics, &config, pipeline, (struct source){0});
    pipeline_assign(pipeline, slot, 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, worker_main, &shared) == 0, "thread");
    for (int64_t i = 0; i < 2 * IDS; i++)
        offer(pipeline, mapping, i, i < IDS ? i : (int64_t)dice_below(&d, IDS));
    wait_done(pipeline);
    (void)pipeline_drain(pipeline, &slot, 1, 0);
    pipeline_stop(pipeline);
    for (size_t i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    (void)pipeline_revoke(pipeline, slot);
    (void)pthread_mutex_lock(&server.lock);
    server.away = 0;
    (void)pthread_mutex_unlock(&server.lock);
    CHECK(notifier_stop(notifier, LONG_MS), "records wait");
    for (size_t i = 0; i < USERS; i++)
        CHECK(server.redis_value[i] == server.count[i] && server.count[i] == IDS / USERS,
              "user %zu has %" PRId64 ", and Redis says %" PRId64, i, server.count[i],
              server.redis_value[i]);
    notifier_free(notifier);
    run_metrics_free(shared.metrics);
    pipeline_free(pipeline);
    seen_cache_free(shared.seen);
    route_state_free(shared.routes);
    metrics_free(metrics);
    mapping_free(mapping);
    stop_clear(&stop);
    (void)pthread_mutex_destroy(&server.lock);
}

static void test_the_last_value_is_there(void **state)
{
    (void)state;
    run(50);
}

/* As after a crash: who stored the event never came to its mirror. */
static void test_duplicates_bring_it_too(void **state)
{
    (void)state;
    run(1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_last_value_is_there),
        cmocka_unit_test(test_duplicates_bring_it_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
