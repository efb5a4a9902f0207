#include "run/guard.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "core/lock_batch.h"
#include "core/retry.h"
#include "run/lock_keeper.h"

enum { POLL_MIN_MS = 4, POLL_SPAN_MS = 16, TURN_MS = 30000, LOST_SAY_MS = 5000 };

struct route_locks {
    struct metric *taken, *waited, *lost, *refused;
};

struct guards {
    const struct config *config;
    struct lock lock;
    struct lock_keeper *keeper;
    struct stop *stop;
    struct route_locks *routes;
    struct metric *held;
    /* While Redis does not answer one worker at a time tries it, now and then: the others would
     * only lose its time-out on every batch. 0: in order; else monotonic: not before. */
    _Atomic int64_t redis_at_ms;
    _Atomic uint32_t failures; /* in a row */
};

struct guard {
    struct guards *shared;
    const struct sink_ops *sink;
    void *sink_session, *session;
    uint32_t route;
    const struct config_lock *config; /* of the route */
    int64_t deadline_ms;

    struct lock_batch *batch;
    size_t cap; /* of the arrays */
    bool *given, *needed, *ready, *yes;
    const char **keys; /* of held.set */
    size_t *key_index; /* keys[i] is the batch's key key_index[i] */
    int64_t *numbers;  /* by key of the batch */
    int64_t *issued;   /* by held key */

    struct lock_held held;
    char token[LOCK_TOKEN_SIZE];
    bool holds;
    struct outcome why; /* fate INSERTED: nothing is wrong */
    struct err redis;
};

/* --- what is shared --- */

static struct metric *counter(struct metrics *registry, const char *name, const char *help,
                              const char *route)
{
    struct buf labels = {0};
    struct metric *m;

    metrics_label(&labels, "route", route);
    m = metrics_counter(registry, name, help, labels.data);
    buf_clear(&labels);
    return m;
}

static void make_metrics(struct guards *s, struct metrics *registry)
{
    const struct config *c = s->config;

    s->held = metrics_gauge(registry, "idemsink_locks_held", "Locks that are held now.", "");
    for (size_t i = 0; i < c->n_routes; i++) {
        struct route_locks *r = &s->routes[i];
        const char *name = c->routes[i].name;

        if (!config_has_lock(&c->routes[i]))
            continue;
        r->taken = counter(registry, "idemsink_locks_taken_total", "Locks that were taken.", name);
        r->waited = counter(registry, "idemsink_lock_waits_total",
                            "Records that went back into their lane for want of a lock.", name);
        r->lost = counter(registry, "idemsink_locks_lost_total",
                          "Locks that were not ours any more when they were released.", name);
        r->refused = counter(registry, "idemsink_fence_refused_total",
                             "Records that were not written because somebody was given a later "
                             "fencing number.",
                             name);
    }
}

struct guards *guards_new(const struct config *c, struct lock lock, struct metrics *registry,
                          struct stop *stop)
{
    bool any = false;
    struct guards *s;

    for (size_t i = 0; i < c->n_routes; i++)
        any = any || config_has_lock(&c->routes[i]);
    if (!any)
        return NULL;
    s = mem_new(sizeof *s);
    s->config = c;
    s->lock = lock;
    s->stop = stop;
    s->routes = mem_array(c->n_routes, sizeof *s->routes);
    make_metrics(s, registry);
    s->keeper = lock_keeper_start(lock);
    return s;
}

void guards_free(struct guards *s)
{
    if (s == NULL)
        return;
    lock_keeper_stop(s->keeper);
    mem_free(s->routes);
    mem_free(s);
}

/* --- trouble with Redis --- */

static void redis_failed(struct guard *g)
{
    struct guards *s = g->shared;
    struct retry_policy policy = {.first_ms = s->config->retry.first_ms,
                                  .max_ms = s->config->retry.max_ms};
    uint32_t failures = atomic_fetch_add(&s->failures, 1) + 1;
    int64_t wait_ms = retry_wait_ms(&policy, failures, (uint32_t)random_bits());

    /* Half a second is enough to spare the others, and short enough for whoever waits. */
    atomic_store(&s->redis_at_ms, clock_mono_ms() + 1 + (wait_ms > 500 ? 500 : wait_ms));
    g->why = (struct outcome){.fate = FATE_LATER, .retry = RETRY_LOCK};
}

static void redis_fine(struct guards *s)
{
    atomic_store(&s->failures, 0);
    atomic_store(&s->redis_at_ms, 0);
}

static bool redis_turn(struct guard *g)
{
    struct guards *s = g->shared;
    int64_t now_ms = clock_mono_ms();
    int64_t at_ms = atomic_load(&s->redis_at_ms);

    if (at_ms == 0 || (now_ms >= at_ms &&
                       atomic_compare_exchange_strong(&s->redis_at_ms, &at_ms, now_ms + TURN_MS)))
        return true;
    g->why = (struct outcome){.fate = FATE_LATER, .retry = RETRY_LOCK};
    (void)err_set(&g->redis, ERR_TRANSIENT, 0,
                  "Redis did not answer another worker a moment ago, and is asked again soon");
    return false;
}

/* --- a thread's own --- */

struct guard *guard_open(struct guards *s, const struct sink *sink, void *session)
{
    struct guard *g = mem_new(sizeof *g);

    g->shared = s;
    g->sink = sink->ops;
    g->sink_session = session;
    g->session = s->lock.ops->open(s->lock.self);
    g->batch = lock_batch_new();
    return g;
}

static void free_arrays(struct guard *g)
{
    mem_free(g->given);
    mem_free(g->needed);
    mem_free(g->ready);
    mem_free(g->yes);
    mem_free(g->keys);
    mem_free(g->key_index);
    mem_free(g->numbers);
    mem_free(g->issued);
}

void guard_close(struct guard *g)
{
    if (g == NULL)
        return;
    MUST(!g->holds);
    g->shared->lock.ops->close(g->session);
    lock_batch_free(g->batch);
    free_arrays(g);
    mem_free(g);
}

static void reserve(struct guard *g, size_t n)
{
    if (n <= g->cap)
        return;
    free_arrays(g);
    g->cap = n;
    g->given = mem_array(n, sizeof *g->given);
    g->needed = mem_array(n, sizeof *g->needed);
    g->ready = mem_array(n, sizeof *g->ready);
    g->yes = mem_array(n, sizeof *g->yes);
    g->keys = mem_array(n, sizeof *g->keys);
    g->key_index = mem_array(n, sizeof *g->key_index);
    g->numbers = mem_array(n, sizeof *g->numbers);
    g->issued = mem_array(n, sizeof *g->issued);
}

bool guard_begin(struct guard *g, uint32_t route)
{
    const struct config_route *r;

    if (g == NULL)
        return false;
    r = &g->shared->config->routes[route];
    if (!config_has_lock(r))
        return false;
    g->route = route;
    g->config = &r->lock;
    g->deadline_ms = clock_mono_ms() + r->lock.wait_ms;
    return true;
}

/* --- one attempt --- */

static void new_token(char token[LOCK_TOKEN_SIZE])
{
    uint64_t random[2];

    MUST(getrandom(random, sizeof random, 0) == (ssize_t)sizeof random);
    (void)snprintf(token, LOCK_TOKEN_SIZE, "%016" PRIx64 "%016" PRIx64, random[0], random[1]);
}

static void hold(struct guard *g, int64_t asked_at_ms)
{
    size_t n_keys;
    const char *const *all = lock_batch_keys(g->batch, &n_keys);
    struct lock_set *set = &g->held.set;

    set->keys = g->keys;
    set->n = 0;
    for (size_t k = 0; k < n_keys; k++) {
        if (!g->given[k])
            continue;
        g->keys[set->n] = all[k];
        g->key_index[set->n++] = k;
    }
    if (set->n == 0)
        return;
    g->holds = true;
    lock_keeper_hold(g->shared->keeper, &g->held, asked_at_ms);
    metric_add(g->shared->held, (int64_t)set->n);
    metric_add(g->shared->routes[g->route].taken, (int64_t)set->n);
}

static bool take_keys(struct guard *g, int64_t *asked_at_ms)
{
    struct lock_set *set = &g->held.set;
    bool ok;

    if (!redis_turn(g))
        return false;
    new_token(g->token);
    *set = (struct lock_set){.token = g->token, .ttl_ms = g->config->ttl_ms};
    set->keys = lock_batch_keys(g->batch, &set->n);
    *asked_at_ms = clock_mono_ms();
    FAULT("lock.before_take");
    ok = g->shared->lock.ops->take(g->session, set, g->given, &g->redis);
    if (ok) {
        redis_fine(g->shared);
        hold(g, *asked_at_ms);
    } else {
        lock_keeper_owe(g->shared->keeper, set);
        redis_failed(g);
    }
    return ok;
}

/* Which of the held keys are still ours. */
static bool confirm(struct guard *g)
{
    const struct lock_set *set = &g->held.set;

    FAULT("lock.before_confirm");
    if (!g->shared->lock.ops->renew(g->session, set, g->yes, &g->redis)) {
        redis_failed(g);
        return false;
    }
    for (size_t i = 0; i < set->n; i++)
        g->given[g->key_index[i]] = g->given[g->key_index[i]] && g->yes[i];
    return true;
}

static bool number_keys(struct guard *g)
{
    const struct lock_set *set = &g->held.set;

    MUST(g->sink->issue != NULL);
    FAULT("lock.before_number");
    if (!g->sink->issue(g->sink_session, g->route, g->token, set->keys, set->n, g->issued, &g->why))
        return false;
    for (size_t i = 0; i < set->n; i++) {
        g->numbers[g->key_index[i]] = g->issued[i];
        if (g->issued[i] == 0)
            g->given[g->key_index[i]] = false;
    }
    return true;
}

/* The lock must have been ours after the number was given: then whoever holds it later has a later
 * number. */
static bool make_sure(struct guard *g, int64_t asked_at_ms)
{
    if (*g->config->fence)
        return number_keys(g) && confirm(g);
    return clock_mono_ms() - asked_at_ms < g->config->ttl_ms / 3 || confirm(g);
}

static void set_number(const struct guard *g, struct write_op *op, int64_t number)
{
    struct effects *f = op->effects;

    MUST(f != NULL && f->fence != NULL);
    f->fence_number = number;
    bson_destroy(f->fence);
    f->fence = BCON_NEW("_id", BCON_UTF8(op->lock), "issued", BCON_INT64(number));
    if (*g->config->fence_field && f->action != EFFECT_DELETE)
        MUST(BSON_APPEND_INT64(op->document, g->config->fence_field, number));
}

/* How many may be written; g->ready says which. 0: nothing is held. */
static size_t attempt(struct guard *g, struct write_op *ops, size_t n)
{
    int64_t asked_at_ms;
    size_t n_ready = 0;

    lock_batch_begin(g->batch, ops, n);
    if (!take_keys(g, &asked_at_ms) || !g->holds)
        return 0;
    if (make_sure(g, asked_at_ms))
        n_ready = lock_batch_ready(g->batch, g->given, g->ready, g->needed);
    if (n_ready == 0) {
        memset(g->needed, 0, g->cap * sizeof *g->needed);
        guard_release(g, NULL, 0);
        return 0;
    }
    for (size_t i = 0; *g->config->fence && i < n; i++)
        if (g->ready[i])
            set_number(g, &ops[i], g->numbers[lock_batch_key_of(g->batch, i)]);
    return n_ready;
}

static void nap(int64_t left_ms)
{
    int64_t ms = POLL_MIN_MS + (int64_t)(random_bits() % POLL_SPAN_MS);
    struct timespec t = {.tv_nsec = (ms < left_ms ? ms : left_ms) * 1000000};

    (void)nanosleep(&t, NULL);
}

size_t guard_take(struct guard *g, struct write_op *ops, size_t *index, size_t n)
{
    g->why = (struct outcome){.fate = FATE_INSERTED};
    if (n == 0)
        return 0;
    reserve(g, n);
    for (;;) {
        size_t ready = attempt(g, ops, n);
        int64_t left_ms = g->deadline_ms - clock_mono_ms();

        if (ready > 0) {
            lock_batch_part(ops, index, g->ready, n);
            return ready;
        }
        if (g->why.fate != FATE_INSERTED || left_ms <= 0 ||
            (g->shared->stop && stop_asked(g->shared->stop)))
            return 0;
        nap(left_ms);
    }
}

/* --- afterwards --- */

static void tell_lost(struct guard *g)
{
    static struct log_limit limit;
    const struct lock_set *set = &g->held.set;
    int64_t lost = 0, held_back;

    for (size_t i = 0; i < set->n; i++)
        lost += g->needed[g->key_index[i]] && !g->yes[i];
    if (lost == 0)
        return;
    metric_add(g->shared->routes[g->route].lost, lost);
    if (log_limit_pass(&limit, LOST_SAY_MS, &held_back))
        log_warn(*g->config->fence
                     ? "a lock ran out or was taken away while it was held; what was written under "
                       "it was written before anybody was given a later fencing number, or not"
                     : "a lock ran out or was taken away while it was held: somebody else may have "
                       "been in the section at the same time (lock.ttl longer, or lock.fence)",
                 LOG_TEXT("route", g->shared->config->routes[g->route].name),
                 LOG_INT("locks", lost), LOG_INT("ttl_ms", g->config->ttl_ms),
                 LOG_INT("like_this_not_logged", held_back));
}

void guard_release(struct guard *g, const struct outcome *outcomes, size_t n)
{
    const struct lock_set *set = &g->held.set;
    struct err e;

    MUST(g->holds);
    for (size_t i = 0; i < n; i++)
        if (outcomes[i].fate == FATE_LATER && outcomes[i].retry == RETRY_LOCK)
            metric_add(g->shared->routes[g->route].refused, 1);
    lock_keeper_drop(g->shared->keeper, &g->held);
    FAULT("lock.before_release");
    if (g->shared->lock.ops->release(g->session, set, g->yes, &e))
        tell_lost(g);
    else
        lock_keeper_owe(g->shared->keeper, set);
    metric_add(g->shared->held, -(int64_t)set->n);
    g->holds = false;
}

const struct outcome *guard_why(struct guard *g, size_t n, const char **text)
{
    *text = g->redis.text;
    metric_add(g->shared->routes[g->route].waited, (int64_t)n);
    return g->why.fate == FATE_INSERTED ? NULL : &g->why;
}

int64_t guard_wait_max_ms(const struct guard *g)
{
    return g->config->ttl_ms;
}
