/*
 * notifier.c - see notifier.h.
 *
 * The lock is a leaf. It is held while targets are added, handed out and taken back, and never
 * while Redis, the pipeline or the log is at work.
 */
#include "run/notifier.h"

#include <pthread.h>
#include <signal.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "core/coalesce.h"
#include "core/mirror.h"
#include "core/template.h"
#include "run/large.h"

enum { SET_MAX = 512, BACKOFF_STEP_MS = 50, BACKOFF_MAX_MS = 2000, LOG_EVERY_MS = 10000 };

/* A record whose offset waits for its invalidations. waiter is first, so that it is the record's,
 * too. */
struct waiting {
    struct coalesce_waiter waiter;
    struct settled settled;
    int64_t since_ms;
    struct waiting *prev, *next; /* oldest first */
};

struct rule_metrics {
    struct metric *sent, *repeated, *failed, *coalesced, *collapsed, *dropped;
    struct coalesce_counts shown; /* lock; what the metrics were told already */
};

struct notifier {
    struct bus bus;
    struct pipeline *pipeline;
    int64_t limit_ms;  /* 0: records wait without limit */
    int64_t window_ms; /* the longest coalesce that records wait for */
    size_t n_rules;    /* those of [[route.invalidate]], then those of the counters, for mirrors */
    size_t n_invalidate;
    bool *waits; /* by rule */

    struct rule_metrics *rules;
    struct metric **skipped; /* by route */
    struct metric *pending_now, *waiting_now, *up_now, *receivers, *reconnects, *expired, *seconds;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* lock; something was added, or stopping */
    struct coalesce *set;   /* lock */
    struct waiting *oldest; /* lock */
    struct waiting *newest; /* lock */
    size_t n_waiting;       /* lock */
    bool up;                /* lock */
    bool stopping;          /* lock */
    int64_t stop_at_ms;     /* lock */
    int64_t hold_until_ms;  /* lock; nothing is sent before */
    uint32_t failures;      /* lock; sets in a row that were not answered rightly */
    bool ended;             /* lock; the thread is gone */
    struct err last;        /* lock; why a set was not sent; kept while records wait */

    /* The thread's own. */
    struct invalidation messages[SET_MAX];
    bool sent[SET_MAX];
    int64_t down_since_ms;
};

static void lock(struct notifier *n)
{
    MUST(pthread_mutex_lock(&n->lock) == 0);
}

static void unlock(struct notifier *n)
{
    MUST(pthread_mutex_unlock(&n->lock) == 0);
}

/* --- metrics --- */

/* Which rule of the configuration, and how it tells. */
struct rule_name {
    const char *route, *mode;
    uint32_t number;
};

static struct metric *rule_counter(struct metrics *m, const struct rule_name *rule,
                                   const char *result)
{
    struct buf labels = {0};
    char number[16];

    (void)snprintf(number, sizeof number, "%u", rule->number);
    metrics_label(&labels, "route", rule->route);
    metrics_label(&labels, "rule", number);
    metrics_label(&labels, "mode", rule->mode);
    metrics_label(&labels, "result", result);
    struct metric *series = metrics_counter(m, "idemsink_invalidations_total",
                                            "Invalidations by what became of them (rule counts the "
                                            "configuration's [[route.invalidate]] from 0).",
                                            labels.data);
    buf_clear(&labels);
    return series;
}

static void make_rule_metrics(struct rule_metrics *to, struct metrics *m,
                              const struct rule_name *rule)
{
    to->sent = rule_counter(m, rule, "sent");
    to->repeated = rule_counter(m, rule, "repeated");
    to->failed = rule_counter(m, rule, "failed");
    to->coalesced = rule_counter(m, rule, "coalesced");
    to->collapsed = rule_counter(m, rule, "collapsed");
    to->dropped = rule_counter(m, rule, "dropped");
}

static void make_metrics(struct notifier *n, struct metrics *m)
{
    static const double bounds[] = {0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05,
                                    0.1,    0.25,  0.5,    1,     2.5,  5};

    n->pending_now = metrics_gauge(m, "idemsink_invalidations_pending",
                                   "Invalidations that are to be sent.", "");
    n->waiting_now = metrics_gauge(m, "idemsink_invalidations_waiting_records",
                                   "Records whose offset waits for their invalidations.", "");
    n->up_now = metrics_gauge(m, "idemsink_redis_up", "1 when Redis answered last time.", "");
    n->receivers = metrics_counter(m, "idemsink_invalidation_receivers_total",
                                   "Sum of the subscribers that PUBLISH reported.", "");
    n->reconnects = metrics_counter(m, "idemsink_redis_reconnects_total",
                                    "How often Redis answered again after it had not.", "");
    n->expired = metrics_counter(m, "idemsink_invalidations_expired_total",
                                 "Records settled without their invalidations after "
                                 "redis.before_commit_limit.",
                                 "");
    n->seconds = metrics_histogram(m, "idemsink_redis_send_seconds",
                                   "Time of one set of invalidations, with its answers.", "",
                                   bounds, sizeof bounds / sizeof bounds[0]);
    metric_set(n->up_now, 1);
}

static void show_one(struct metric *series, uint64_t now, uint64_t *shown)
{
    if (now != *shown)
        metric_add(series, (int64_t)(now - *shown));
    *shown = now;
}

static void show_locked(struct notifier *n)
{
    for (uint32_t i = 0; i < n->n_rules; i++) {
        struct coalesce_counts now = coalesce_counts(n->set, i), *shown = &n->rules[i].shown;
        show_one(n->rules[i].sent, now.sent, &shown->sent);
        show_one(n->rules[i].repeated, now.repeated, &shown->repeated);
        show_one(n->rules[i].failed, now.failed, &shown->failed);
        show_one(n->rules[i].coalesced, now.merged, &shown->merged);
        show_one(n->rules[i].collapsed, now.collapsed, &shown->collapsed);
        show_one(n->rules[i].dropped, now.dropped, &shown->dropped);
    }
    metric_set(n->pending_now, (int64_t)coalesce_pending(n->set));
    metric_set(n->waiting_now, (int64_t)n->n_waiting);
}

/* --- records that wait --- */

static void wait_locked(struct notifier *n, struct waiting *w)
{
    w->prev = n->newest;
    w->next = NULL;
    if (n->newest)
        n->newest->next = w;
    else
        n->oldest = w;
    n->newest = w;
    n->n_waiting++;
}

static void unwait_locked(struct notifier *n, struct waiting *w)
{
    if (w->prev)
        w->prev->next = w->next;
    else
        n->oldest = w->next;
    if (w->next)
        w->next->prev = w->prev;
    else
        n->newest = w->prev;
    n->n_waiting--;
}

/* Records on their way out of the lock. */
struct done {
    struct settled *items;
    size_t n, cap;
};

static void done_add(struct done *d, const struct settled *s)
{
    if (d->n == d->cap) {
        d->cap = d->cap ? 2 * d->cap : 64;
        d->items = mem_grow(d->items, d->cap, sizeof *d->items);
    }
    d->items[d->n++] = *s;
}

static void done_settle(struct done *d, struct pipeline *p)
{
    if (d->n > 0)
        pipeline_settle(p, d->items, d->n);
    mem_free(d->items);
    *d = (struct done){0};
}

static void release_locked(struct notifier *n, struct coalesce_waiter *released, struct done *done)
{
    while (released) {
        struct waiting *w = (struct waiting *)released;
        released = released->next;
        unwait_locked(n, w);
        done_add(done, &w->settled);
        mem_free(w);
    }
}

static void abandon_locked(struct notifier *n, struct waiting *w, struct done *done)
{
    coalesce_abandon(n->set, &w->waiter);
    unwait_locked(n, w);
    done_add(done, &w->settled);
    mem_free(w);
}

/* Records that have waited for too long go on without. */
static void expire_locked(struct notifier *n, int64_t now_ms, struct done *done)
{
    while (n->limit_ms > 0 && n->oldest && n->oldest->since_ms + n->limit_ms <= now_ms) {
        abandon_locked(n, n->oldest, done);
        metric_add(n->expired, 1);
    }
}

/* --- sending --- */

/* The text, with the time put in where the placeholder stands; NULL: there is none. */
static bool send_set(struct notifier *n, const struct invalidation *const *due, size_t count,
                     struct err *e)
{
    int64_t wall_ms = clock_wall_ms(), started_us = clock_mono_us();
    char *texts[SET_MAX];
    uint64_t receivers = 0;

    for (size_t i = 0; i < count; i++) {
        texts[i] = invalidation_stamped(due[i]->body, wall_ms);
        n->messages[i] = *due[i];
        if (texts[i])
            n->messages[i].body = texts[i];
        n->sent[i] = false;
    }
    bool ok = n->bus.ops->send(n->bus.self, n->messages, count, n->sent, &receivers, e);
    metric_observe(n->seconds, (double)(clock_mono_us() - started_us) / 1e6);
    metric_add(n->receivers, (int64_t)receivers);
    for (size_t i = 0; i < count; i++)
        mem_free(texts[i]);
    return ok;
}

static int64_t backoff_ms(uint32_t failures)
{
    return failures < BACKOFF_MAX_MS / BACKOFF_STEP_MS ? (int64_t)failures * BACKOFF_STEP_MS
                                                       : BACKOFF_MAX_MS;
}

/* Without the lock. */
static void log_outcome(struct notifier *n, bool was_up, bool up, const struct err *e,
                        size_t pending)
{
    static struct log_limit away, refused;
    int64_t now_ms = clock_mono_ms(), held_back = 0;

    if (was_up && !up)
        n->down_since_ms = now_ms;
    if (!was_up && up) {
        metric_add(n->reconnects, 1);
        log_info("redis is back", LOG_INT("away_ms", now_ms - n->down_since_ms),
                 LOG_INT("pending", pending));
    }
    if (!up && log_limit_pass(&away, LOG_EVERY_MS, &held_back))
        log_warn("redis is away: invalidations are kept and sent later", LOG_TEXT("error", e->text),
                 LOG_INT("pending", pending), LOG_INT("held_back", held_back));
    else if (up && e->kind != ERR_NONE && log_limit_pass(&refused, LOG_EVERY_MS, &held_back))
        log_error("redis refuses invalidations: they are tried again", LOG_TEXT("error", e->text),
                  LOG_INT("pending", pending), LOG_INT("held_back", held_back));
}

static bool any(const bool *flags, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (flags[i])
            return true;
    return false;
}

/* Takes and gives back the lock. */
static void send_locked(struct notifier *n, const struct invalidation *const *due, size_t count,
                        struct done *done)
{
    struct err e = {.kind = ERR_NONE};
    bool was_up = n->up;

    unlock(n);
    FAULT("notifier.before_send");
    bool ok = send_set(n, due, count, &e);
    FAULT("notifier.after_send");
    lock(n);
    int64_t now_ms = clock_mono_ms(), retry_at_ms;
    n->failures = ok ? 0 : n->failures + 1;
    retry_at_ms = now_ms + backoff_ms(n->failures);
    n->up = ok || e.kind == ERR_CONFIG;
    if (!n->up || !any(n->sent, count)) /* nothing gets through: new targets don't try either */
        n->hold_until_ms = retry_at_ms;
    release_locked(n, coalesce_sent(n->set, n->sent, retry_at_ms), done);
    if (!ok)
        n->last = e;
    else if (n->oldest == NULL)
        n->last.kind = ERR_NONE;
    metric_set(n->up_now, n->up ? 1 : 0);
    bool up = n->up;
    size_t pending = coalesce_pending(n->set);
    unlock(n);
    log_outcome(n, was_up, up, &e, pending);
    lock(n);
}

static int64_t wake_at_locked(const struct notifier *n)
{
    int64_t at = coalesce_next_due(n->set);

    if (at < n->hold_until_ms)
        at = n->hold_until_ms;
    if (n->limit_ms > 0 && n->oldest && n->oldest->since_ms + n->limit_ms < at)
        at = n->oldest->since_ms + n->limit_ms;
    if (n->stopping && n->stop_at_ms < at)
        at = n->stop_at_ms;
    return at;
}

/* One look at what there is to do. False: it is over. */
static bool turn_locked(struct notifier *n)
{
    static struct log_limit expired_limit;
    int64_t now_ms = clock_mono_ms(), held_back = 0;
    const struct invalidation *const *due;
    struct done done = {0};
    size_t count = 0, expired;

    expire_locked(n, now_ms, &done);
    expired = done.n;
    bool over = n->stopping && (coalesce_pending(n->set) == 0 || now_ms >= n->stop_at_ms);
    if (!over && now_ms >= n->hold_until_ms) {
        count = coalesce_due(n->set, now_ms, &due);
        if (count > 0)
            send_locked(n, due, count, &done);
    }
    show_locked(n);
    if (!over && count == 0 && done.n == 0)
        clock_cond_wait(&n->changed, &n->lock, wake_at_locked(n));
    unlock(n);
    done_settle(&done, n->pipeline);
    if (expired > 0 && log_limit_pass(&expired_limit, LOG_EVERY_MS, &held_back))
        log_error(
            "records are committed without their invalidations: redis.before_commit_limit passed",
            LOG_INT("records", expired), LOG_INT("held_back", held_back));
    lock(n);
    return !over;
}

static void *notifier_main(void *arg)
{
    struct notifier *n = arg;

    lock(n);
    while (turn_locked(n))
        ;
    unlock(n);
    return NULL;
}

/* --- the calls --- */

/* Signals are for the main thread; SIGPIPE would end the process when Redis hangs up. */
static void start_thread(struct notifier *n)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    MUST(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    MUST(pthread_create(&n->thread, NULL, notifier_main, n) == 0);
    MUST(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
}

/* They are due at once, and remembered no longer than until they are sent. */
static void make_mirror_rules(struct notifier *n, const struct config_route *r, struct metrics *m)
{
    for (size_t j = 0; j < r->n_counters; j++)
        if (mirror_wanted(&r->counters[j]))
            make_rule_metrics(&n->rules[n->n_invalidate + r->counters[j].index], m,
                              &(struct rule_name){.route = r->name,
                                                  .mode = "mirror",
                                                  .number = r->counters[j].index});
}

static void make_rules(struct notifier *n, const struct config *c, struct mapping *const *mappings,
                       struct metrics *m)
{
    struct coalesce_rule *rules = mem_array(n->n_rules + 1, sizeof *rules);
    struct invalidation *collapsed = mem_array(n->n_rules + 1, sizeof *collapsed);

    for (size_t i = 0; i < c->n_routes; i++) {
        struct buf labels = {0};
        metrics_label(&labels, "route", c->routes[i].name);
        n->skipped[i] =
            metrics_counter(m, "idemsink_invalidations_skipped_total",
                            "Invalidations left out because their template could not be "
                            "filled from the record.",
                            labels.data);
        buf_clear(&labels);
        make_mirror_rules(n, &c->routes[i], m);
        for (size_t j = 0; j < c->routes[i].n_invalidate; j++) {
            const struct config_invalidate *v = &c->routes[i].invalidate[j];
            struct coalesce_rule *rule = &rules[v->index];
            MUST(v->index < n->n_invalidate);
            rule->coalesce_ms = v->coalesce_ms;
            rule->repeat_after_ms = v->repeat_after_ms;
            rule->waits = n->waits[v->index] = v->delivery == DELIVERY_BEFORE_COMMIT;
            if (rule->waits && v->coalesce_ms > n->window_ms)
                n->window_ms = v->coalesce_ms;
            if (mappings && mapping_collapsed(mappings[i], j, &collapsed[v->index]))
                rule->collapsed = &collapsed[v->index];
            make_rule_metrics(&n->rules[v->index], m,
                              &(struct rule_name){.route = c->routes[i].name,
                                                  .mode = config_invalidate_mode_name(v->mode),
                                                  .number = v->index});
        }
    }
    n->set = coalesce_new(rules, n->n_rules, (size_t)c->redis.max_pending,
                          (size_t)c->redis.max_pending_bytes, SET_MAX);
    for (size_t i = 0; i < n->n_rules; i++)
        invalidation_clear(&collapsed[i]);
    mem_free(collapsed);
    mem_free(rules);
}

struct notifier *notifier_new(const struct config *config, struct mapping *const *mappings,
                              struct bus bus, struct pipeline *pipeline, struct metrics *metrics)
{
    struct notifier *n = mem_new(sizeof *n);

    MUST(bus.ops);
    n->bus = bus;
    n->pipeline = pipeline;
    n->limit_ms = config->redis.before_commit_limit_ms;
    for (size_t i = 0; i < config->n_routes; i++) {
        n->n_invalidate += config->routes[i].n_invalidate;
        n->n_rules += config->routes[i].n_invalidate + config->routes[i].n_counters;
    }
    n->waits = mem_array(n->n_rules + 1, sizeof *n->waits);
    n->rules = mem_array(n->n_rules + 1, sizeof *n->rules);
    n->skipped = mem_array(config->n_routes + 1, sizeof(struct metric *));
    n->up = true;
    make_metrics(n, metrics);
    make_rules(n, config, mappings, metrics);
    MUST(pthread_mutex_init(&n->lock, NULL) == 0);
    clock_cond_init(&n->changed);
    start_thread(n);
    return n;
}

static bool list_waits(const struct notifier *n, const struct invalidation_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (n->waits[l->items[i].rule])
            return true;
    return false;
}

static void add_locked(struct notifier *n, const struct settled *s, struct invalidation_list *l,
                       int64_t now_ms, struct done *done)
{
    struct waiting *w = NULL;

    if (n->ended) /* a promise broken by the caller, but not a reason to lose a record */
        invalidation_list_clear(l);
    if (list_waits(n, l)) {
        w = mem_new(sizeof *w);
        w->settled = *s;
        w->since_ms = now_ms;
    }
    if (l->n > 0)
        coalesce_add(n->set, l, w ? &w->waiter : NULL, now_ms);
    if (w) {
        MUST(w->waiter.missing > 0);
        wait_locked(n, w);
    } else {
        done_add(done, s);
    }
}

void notifier_push(struct notifier *n, const struct mapping *m, uint32_t route,
                   const struct settled *settled, size_t count)
{
    struct invalidation_list *lists = mem_array(count, sizeof *lists);
    struct done done = {0};
    size_t skipped = 0;

    for (size_t i = 0; i < count; i++) {
        enum pipeline_outcome outcome = settled[i].outcome;

        if (outcome != PIPELINE_INSERTED && outcome != PIPELINE_DUPLICATE)
            continue;
        large_begin(settled[i].record);
        mapping_invalidations(m, settled[i].record, outcome == PIPELINE_INSERTED, &lists[i],
                              &skipped);
        large_end(settled[i].record);
    }
    lock(n);
    int64_t now_ms = clock_mono_ms();
    for (size_t i = 0; i < count; i++)
        add_locked(n, &settled[i], &lists[i], now_ms, &done);
    show_locked(n);
    MUST(pthread_cond_signal(&n->changed) == 0);
    unlock(n);
    if (skipped > 0)
        metric_add(n->skipped[route], (int64_t)skipped);
    mem_free(lists);
    done_settle(&done, n->pipeline);
}

void notifier_mirror(struct notifier *n, struct invalidation_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        l->items[i].rule += (uint32_t)n->n_invalidate;
    lock(n);
    if (n->ended)
        invalidation_list_clear(l);
    coalesce_add(n->set, l, NULL, clock_mono_ms());
    show_locked(n);
    MUST(pthread_cond_signal(&n->changed) == 0);
    unlock(n);
}

bool notifier_stop(struct notifier *n, int64_t timeout_ms)
{
    struct done done = {0};

    lock(n);
    MUST(!n->stopping);
    int64_t now_ms = clock_mono_ms();
    n->stopping = true;
    n->stop_at_ms = now_ms + timeout_ms;
    n->hold_until_ms = now_ms;
    n->failures = 0;
    coalesce_drain(n->set, now_ms);
    MUST(pthread_cond_signal(&n->changed) == 0);
    unlock(n);
    MUST(pthread_join(n->thread, NULL) == 0);
    lock(n);
    n->ended = true;
    size_t left = coalesce_pending(n->set);
    while (n->oldest)
        abandon_locked(n, n->oldest, &done);
    show_locked(n);
    unlock(n);
    size_t waited = done.n;
    if (left > 0)
        log_warn("ended with invalidations unsent: redis did not answer in time",
                 LOG_INT("invalidations", left), LOG_INT("records_to_be_read_again", waited));
    done_settle(&done, n->pipeline);
    return waited == 0;
}

void notifier_free(struct notifier *n)
{
    if (!n)
        return;
    MUST(n->ended);
    coalesce_free(n->set);
    mem_free(n->waits);
    mem_free(n->rules);
    mem_free(n->skipped);
    (void)pthread_cond_destroy(&n->changed);
    (void)pthread_mutex_destroy(&n->lock);
    mem_free(n);
}

struct notifier_stats notifier_stats(struct notifier *n)
{
    struct notifier_stats stats;

    lock(n);
    stats.pending = coalesce_pending(n->set);
    stats.waiting = n->n_waiting;
    stats.up = n->up;
    unlock(n);
    return stats;
}

bool notifier_stuck(struct notifier *n, int64_t patience_ms, struct buf *why)
{
    lock(n);
    int64_t waits_ms = n->oldest ? clock_mono_ms() - n->oldest->since_ms - n->window_ms : -1;
    bool stuck = waits_ms >= patience_ms && n->oldest;

    if (stuck) {
        buf_printf(why,
                   "%zu record%s wait%s for Redis (delivery = \"before_commit\"), for %lld s: ",
                   n->n_waiting, n->n_waiting == 1 ? "" : "s", n->n_waiting == 1 ? "s" : "",
                   (long long)waits_ms / 1000);
        if (n->last.kind != ERR_NONE)
            secret_hide(n->last.text, why);
        else
            buf_add_text(why, "it takes too long");
    }
    unlock(n);
    return stuck;
}
