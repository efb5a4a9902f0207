/*
 * seen_cache.c - see seen_cache.h.
 *
 * Two levels: this process, and a store that it shares with others. What the store knows does not
 * enter the process' own: how much of its time is left there is not known here.
 *
 * What was asked before somebody said "forget" is not learnt afterwards: the answer may be older
 * than what made them say so. generation tells.
 */
#include "run/seen_cache.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "core/look.h"
#include "core/seen.h"

enum { QUIET_FIRST_MS = 1000, QUIET_MAX_MS = 30000, SAY_AGAIN_MS = 60000 };

struct route_seen {
    const char *conflict_field; /* NULL: no check */
    uint64_t seed;
    bool shared; /* it is looked for in the store, too */
    struct metric *hits, *misses, *entries, *bytes, *forgotten;
    struct metric *shared_hits, *shared_misses;
    pthread_mutex_t lock;
    struct seen *set;    /* lock; NULL: the route has none */
    uint64_t generation; /* lock */
    bool trusted;        /* lock */
};

struct seen_cache {
    const struct config *config;
    struct route_seen *routes;
    size_t n_routes;
    struct seen_store store;
    struct metric *failures;
    _Atomic int64_t quiet_until_ms; /* 0: the store answers; else not asked before this */
    _Atomic uint32_t n_failed;      /* in a row */
};

struct seen_session {
    struct seen_cache *cache;
    size_t cap;
    struct seen_id *ids;
    bool *known, *hit;      /* ids[i] is one; and it is in there */
    struct write_op *aside; /* hits, while the others close up */
    size_t *aside_record;
    uint64_t generation;

    void *store; /* of the port; NULL: there is none */
    struct seen_id *asked;
    size_t *asked_op; /* asked[i] is of ops[asked_op[i]] */
    bool *found;
    bool *others;                  /* ids[i] was found there */
    bool *by_others;               /* the same of the hits, in their order */
    struct seen_generation shared; /* of the last ask; "": not known */
};

static void lock(struct route_seen *r)
{
    MUST(pthread_mutex_lock(&r->lock) == 0);
}

static void unlock(struct route_seen *r)
{
    MUST(pthread_mutex_unlock(&r->lock) == 0);
}

/* --- the routes --- */

static struct metric *lookups(struct metrics *m, const char *route, const char *level,
                              const char *result)
{
    struct buf labels = {0};

    metrics_label(&labels, "route", route);
    metrics_label(&labels, "level", level);
    metrics_label(&labels, "result", result);
    struct metric *series = metrics_counter(
        m, "idemsink_seen_lookups_total",
        "Events that were looked for in the seen cache, by what it knew of them.", labels.data);
    buf_clear(&labels);
    return series;
}

static void make_route(struct route_seen *r, const struct config_route *c,
                       const struct seen_identity *identity, struct metrics *m)
{
    struct buf labels = {0};

    MUST(pthread_mutex_init(&r->lock, NULL) == 0);
    if (!config_has_seen(c))
        return;
    metrics_label(&labels, "route", c->name);
    r->hits = lookups(m, c->name, "process", "hit");
    r->misses = lookups(m, c->name, "process", "miss");
    r->entries = metrics_gauge(m, "idemsink_seen_entries",
                               "Events that the seen cache of this process holds.", labels.data);
    r->bytes = metrics_gauge(m, "idemsink_seen_bytes",
                             "Memory that the seen cache of this process has used.", labels.data);
    r->forgotten =
        metrics_counter(m, "idemsink_seen_forgotten_total",
                        "How often all that a route has seen was forgotten.", labels.data);
    buf_clear(&labels);
    r->conflict_field = c->dedup.conflict == CONFLICT_OFF ? NULL : c->dedup.conflict_field;
    r->seed = identity ? seen_seed(identity->uuid) : random_bits();
    r->shared = identity && config_shares_seen(c);
    if (r->shared) {
        r->shared_hits = lookups(m, c->name, "redis", "hit");
        r->shared_misses = lookups(m, c->name, "redis", "miss");
    }
    r->trusted = c->seen.drop_on == NULL || c->seen.drop_on[0] == '\0';
    r->set = seen_new((size_t)c->seen.entries, (size_t)c->seen.bytes, c->seen.ttl_ms);
    metric_set(r->bytes, (int64_t)seen_bytes(r->set));
}

static const struct seen_identity *identity_of(const struct seen_cache_options *o, size_t route)
{
    return o->identities && o->identities[route].known ? &o->identities[route] : NULL;
}

struct seen_cache *seen_cache_new(const struct seen_cache_options *o)
{
    const struct config *config = o->config;
    struct seen_cache *c;
    bool any = false;

    for (size_t i = 0; i < config->n_routes; i++)
        any = any || config_has_seen(&config->routes[i]);
    if (!any)
        return NULL;
    c = mem_new(sizeof *c);
    c->config = config;
    c->n_routes = config->n_routes;
    c->routes = mem_array(c->n_routes, sizeof *c->routes);
    for (size_t i = 0; i < c->n_routes; i++)
        make_route(&c->routes[i], &config->routes[i], identity_of(o, i), o->metrics);
    c->store = o->store;
    if (c->store.ops)
        c->failures = metrics_counter(
            o->metrics, "idemsink_seen_redis_failures_total",
            "Exchanges with Redis about what others have seen that were not answered.", "");
    return c;
}

void seen_cache_free(struct seen_cache *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_routes; i++) {
        seen_free(c->routes[i].set);
        (void)pthread_mutex_destroy(&c->routes[i].lock);
    }
    mem_free(c->routes);
    mem_free(c);
}

void seen_cache_forget(struct seen_cache *c, uint32_t route)
{
    struct route_seen *r = &c->routes[route];

    lock(r);
    if (r->set) {
        r->generation++;
        seen_forget(r->set);
        metric_set(r->entries, 0);
        metric_add(r->forgotten, 1);
    }
    unlock(r);
}

void seen_cache_trust(struct seen_cache *c, uint32_t route, bool trusted)
{
    struct route_seen *r = &c->routes[route];

    lock(r);
    r->trusted = trusted;
    unlock(r);
}

/* --- a worker's part --- */

struct seen_session *seen_session_open(struct seen_cache *c)
{
    struct seen_session *s;

    if (!c)
        return NULL;
    s = mem_new(sizeof *s);
    s->cache = c;
    s->cap = (size_t)c->config->worker.batch;
    s->ids = mem_array(s->cap, sizeof *s->ids);
    s->known = mem_array(s->cap, sizeof *s->known);
    s->hit = mem_array(s->cap, sizeof *s->hit);
    s->aside = mem_array(s->cap, sizeof *s->aside);
    s->aside_record = mem_array(s->cap, sizeof *s->aside_record);
    s->by_others = mem_array(s->cap, sizeof *s->by_others);
    s->others = mem_array(s->cap, sizeof *s->others);
    if (c->store.ops) {
        s->store = c->store.ops->open(c->store.self);
        s->asked = mem_array(s->cap, sizeof *s->asked);
        s->asked_op = mem_array(s->cap, sizeof *s->asked_op);
        s->found = mem_array(s->cap, sizeof *s->found);
    }
    return s;
}

void seen_session_close(struct seen_session *s)
{
    if (!s)
        return;
    if (s->store)
        s->cache->store.ops->close(s->store);
    mem_free(s->asked);
    mem_free(s->asked_op);
    mem_free(s->found);
    mem_free(s->by_others);
    mem_free(s->others);
    mem_free(s->ids);
    mem_free(s->known);
    mem_free(s->hit);
    mem_free(s->aside);
    mem_free(s->aside_record);
    mem_free(s);
}

/* False: it has to go to the database whatever we know. */
static bool id_of(const struct route_seen *r, const struct write_op *op, struct seen_id *out)
{
    uint8_t hash[CANONICAL_HASH_BYTES];

    if (op->alone) /* under suspicion: the server's answer is wanted */
        return false;
    if (r->conflict_field && !look_hash(op->document, r->conflict_field, hash))
        return false;
    *out = seen_id(r->seed, op->filter, r->conflict_field ? hash : NULL);
    return true;
}

static void ask_process(struct seen_session *s, struct route_seen *r, size_t n)
{
    int64_t now_ms = clock_mono_ms(), hits = 0, asked = 0;

    lock(r);
    s->generation = r->generation;
    for (size_t i = 0; i < n; i++) {
        s->known[i] = s->known[i] && r->trusted;
        s->hit[i] = s->known[i] && seen_has(r->set, s->ids[i], now_ms);
        asked += s->known[i];
        hits += s->hit[i];
    }
    unlock(r);
    metric_add(r->hits, hits);
    metric_add(r->misses, asked - hits);
}

/* --- the store --- */

static bool is_settled(const struct outcome *o)
{
    return (o->fate == FATE_INSERTED || o->fate == FATE_DUPLICATE) && !o->conflict;
}

/* Is it to be asked now? After a failure one thread at a time tries, now and then. */
static bool store_turn(struct seen_cache *c)
{
    int64_t at_ms = atomic_load(&c->quiet_until_ms), now_ms;

    if (at_ms == 0)
        return true;
    now_ms = clock_mono_ms();
    return now_ms >= at_ms &&
           atomic_compare_exchange_strong(&c->quiet_until_ms, &at_ms, now_ms + QUIET_FIRST_MS);
}

static void store_failed(struct seen_cache *c, const struct err *e)
{
    static struct log_limit limit;
    uint32_t failed = atomic_fetch_add(&c->n_failed, 1);
    int64_t held_back,
        quiet_ms = failed < 5 ? (int64_t)QUIET_FIRST_MS << failed : (int64_t)QUIET_MAX_MS;

    atomic_store(&c->quiet_until_ms, clock_mono_ms() + quiet_ms);
    metric_add(c->failures, 1);
    if (log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
        log_warn("redis does not say what others have seen: MongoDB is asked instead",
                 LOG_TEXT("error", e->text), LOG_INT("held_back", held_back));
}

static void store_answered(struct seen_cache *c)
{
    if (atomic_load(&c->n_failed) == 0)
        return;
    atomic_store(&c->n_failed, 0);
    atomic_store(&c->quiet_until_ms, 0);
}

/* What this process doesn't know. */
static void ask_store(struct seen_session *s, uint32_t route, size_t n)
{
    struct seen_cache *c = s->cache;
    struct route_seen *r = &c->routes[route];
    size_t asked = 0;
    int64_t hits = 0;
    struct err e;

    for (size_t i = 0; i < n; i++) {
        if (!s->known[i] || s->hit[i])
            continue;
        s->asked[asked] = s->ids[i];
        s->asked_op[asked++] = i;
    }
    if (asked == 0 || !store_turn(c))
        return;
    if (!c->store.ops->ask(s->store, route, s->asked, asked, s->found, &s->shared, &e)) {
        s->shared.text[0] = '\0';
        store_failed(c, &e);
        return;
    }
    store_answered(c);
    for (size_t i = 0; i < asked; i++) {
        s->hit[s->asked_op[i]] = s->found[i];
        s->others[s->asked_op[i]] = s->found[i];
        hits += s->found[i];
    }
    metric_add(r->shared_hits, hits);
    metric_add(r->shared_misses, (int64_t)asked - hits);
}

static void enter_store(struct seen_session *s, uint32_t route, const struct outcome *outcomes,
                        size_t n)
{
    struct seen_cache *c = s->cache;
    size_t settled = 0;
    struct err e;

    for (size_t i = 0; i < n; i++)
        if (s->known[i] && is_settled(&outcomes[i]))
            s->asked[settled++] = s->ids[i];
    if (settled > 0 && s->shared.text[0] &&
        !c->store.ops->enter(s->store, route, s->asked, settled, &s->shared, &e))
        store_failed(c, &e);
}

/* The hits go behind the others; ids[] of the others closes up with them. */
static void part_sort(struct seen_session *s, struct seen_part *part)
{
    size_t left = 0;

    part->n_seen = 0;
    for (size_t i = 0; i < part->n; i++) {
        if (s->hit[i]) {
            s->aside[part->n_seen] = part->ops[i];
            s->by_others[part->n_seen] = s->others[i];
            s->aside_record[part->n_seen++] = part->record[i];
            continue;
        }
        part->ops[left] = part->ops[i];
        part->record[left] = part->record[i];
        s->ids[left] = s->ids[i];
        s->known[left++] = s->known[i];
    }
    part->n = left;
    for (size_t i = 0; i < part->n_seen; i++) {
        part->ops[left + i] = s->aside[i];
        part->record[left + i] = s->aside_record[i];
    }
}

void seen_ask(struct seen_session *s, uint32_t route, struct seen_part *part)
{
    struct route_seen *r = &s->cache->routes[route];

    part->n_seen = 0;
    if (!r->set)
        return;
    MUST(part->n <= s->cap);
    for (size_t i = 0; i < part->n; i++)
        s->known[i] = id_of(r, &part->ops[i], &s->ids[i]);
    memset(s->others, 0, part->n * sizeof *s->others);
    s->shared.text[0] = '\0';
    ask_process(s, r, part->n);
    if (r->shared && s->store)
        ask_store(s, route, part->n);
    part_sort(s, part);
    part->by_others = s->by_others;
}

bool seen_forget_shared(struct seen_session *s, uint32_t route, struct err *e)
{
    if (!s->store || !s->cache->routes[route].shared)
        return true;
    return s->cache->store.ops->forget(s->store, route, e);
}

void seen_learn(struct seen_session *s, uint32_t route, const struct outcome *outcomes, size_t n)
{
    struct route_seen *r = &s->cache->routes[route];

    if (!r->set)
        return;
    int64_t now_ms = clock_mono_ms();
    lock(r);
    for (size_t i = 0; i < n && s->generation == r->generation; i++)
        if (s->known[i] && is_settled(&outcomes[i]))
            seen_add(r->set, s->ids[i], now_ms);
    metric_set(r->entries, (int64_t)seen_entries(r->set));
    metric_set(r->bytes, (int64_t)seen_bytes(r->set));
    unlock(r);
    if (r->shared && s->store)
        enter_store(s, route, outcomes, n);
}
