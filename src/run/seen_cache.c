/*
 * seen_cache.c - see seen_cache.h.
 *
 * What was asked before somebody said "forget" is not learnt afterwards: the answer may be older
 * than what made them say so. generation tells.
 */
#include "run/seen_cache.h"

#include <pthread.h>
#include <string.h>
#include <sys/random.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"
#include "core/look.h"
#include "core/seen.h"

struct route_seen {
    const char *conflict_field; /* NULL: no check */
    uint64_t seed;
    struct metric *hits, *misses, *entries, *bytes, *forgotten;
    pthread_mutex_t lock;
    struct seen *set;    /* lock; NULL: the route has none */
    uint64_t generation; /* lock */
};

struct seen_cache {
    const struct config *config;
    struct route_seen *routes;
    size_t n_routes;
};

struct seen_session {
    struct seen_cache *cache;
    size_t cap;
    struct seen_id *ids;
    bool *known, *hit;      /* ids[i] is one; and it is in there */
    struct write_op *aside; /* hits, while the others close up */
    size_t *aside_record;
    uint64_t generation;
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

static uint64_t random_seed(void)
{
    uint64_t seed;

    if (getrandom(&seed, sizeof seed, 0) != (ssize_t)sizeof seed)
        seed = (uint64_t)clock_mono_us() ^ (uint64_t)(uintptr_t)&seed;
    return seed;
}

static void make_route(struct route_seen *r, const struct config_route *c, struct metrics *m)
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
    r->seed = random_seed();
    r->set = seen_new((size_t)c->seen.entries, (size_t)c->seen.bytes, c->seen.ttl_ms);
    metric_set(r->bytes, (int64_t)seen_bytes(r->set));
}

struct seen_cache *seen_cache_new(const struct config *config, struct metrics *metrics)
{
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
        make_route(&c->routes[i], &config->routes[i], metrics);
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
    return s;
}

void seen_session_close(struct seen_session *s)
{
    if (!s)
        return;
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
        s->hit[i] = s->known[i] && seen_has(r->set, s->ids[i], now_ms);
        asked += s->known[i];
        hits += s->hit[i];
    }
    unlock(r);
    metric_add(r->hits, hits);
    metric_add(r->misses, asked - hits);
}

/* The hits go behind the others; ids[] of the others closes up with them. */
static void part_sort(struct seen_session *s, struct seen_part *part)
{
    size_t left = 0;

    part->n_seen = 0;
    for (size_t i = 0; i < part->n; i++) {
        if (s->hit[i]) {
            s->aside[part->n_seen] = part->ops[i];
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
    ask_process(s, r, part->n);
    part_sort(s, part);
}

static bool is_settled(const struct outcome *o)
{
    return (o->fate == FATE_INSERTED || o->fate == FATE_DUPLICATE) && !o->conflict;
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
}
