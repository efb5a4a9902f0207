#include "run/pipeline.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/tracker.h"

struct slot {
    bool known;    /* was ever assigned */
    bool assigned; /* as the tracker sees it */
    bool draining; /* from pipeline_drain() until revoke or assign */
    bool refused;  /* pipeline_wants() said no for want of room, and nobody was woken since */
    bool again;    /* as it was asked then */
    size_t open, open_bytes;
    size_t letters; /* open, and waiting for the dead-letter topic */
    size_t live;    /* open and of the epoch in force: what a drain waits for */
    uint32_t route; /* of its records; once there was one */
    int64_t committed;
    uint64_t consumed, outcomes[PIPELINE_OUTCOMES], late, dropped;
};

/* A worker asleep in pipeline_take(). */
struct sleeper {
    int64_t until_ms;
};

/*
 * Who wakes whom. Of the sleeping workers one, the watcher, has a timer; the others sleep until
 * they are signalled. The invariant whenever the lock is free and somebody sleeps: at watched_ms,
 * and that is not after the moment at which a take could return something, a worker wakes by its
 * timer (watcher is its sleeper) or has been signalled already (watcher is NULL). Only a change
 * that brings the moment forward signals, and only one worker; who leaves with records hands the
 * watch on.
 */
struct pipeline {
    pthread_mutex_t lock;    /* leaf: nothing else is locked while it is held */
    pthread_cond_t work;     /* lock; a take could return earlier than watched_ms, or stopping */
    pthread_cond_t back;     /* lock; a draining slot has nothing live any more */
    struct sched *sched;     /* lock */
    struct tracker *tracker; /* lock */
    struct slot *slots;      /* lock */
    size_t n_slots;          /* lock; length of slots */
    size_t assigned;         /* lock; slots that are */
    size_t open, open_bytes; /* lock; sums over the slots */
    size_t in_flight;        /* lock */
    size_t refused;          /* lock; slots that are */
    size_t sleepers;         /* lock; workers waiting on work */
    int64_t watched_ms;      /* lock; INT64_MAX: nobody watches */
    struct sleeper *watcher; /* lock */
    size_t cap;              /* lock; of the last take */
    int64_t linger_ms;       /* lock; of the last take */
    bool stopping;           /* lock; never goes back to false */
    struct pipeline_limits limits; /* constant after new */
};

struct pipeline *pipeline_new(const struct pipeline_limits *limits)
{
    struct pipeline *p = mem_new(sizeof(*p));
    struct sched_limits sched = {.routes = limits->routes, .run_max = limits->run_max};

    MUST(pthread_mutex_init(&p->lock, NULL) == 0);
    clock_cond_init(&p->work);
    clock_cond_init(&p->back);
    p->sched = sched_new(&sched);
    p->tracker = tracker_new();
    p->watched_ms = INT64_MAX;
    p->cap = 1;
    p->limits = *limits;
    return p;
}

void pipeline_free(struct pipeline *p)
{
    if (p == NULL)
        return;
    MUST(p->open == 0 && p->sleepers == 0);
    sched_free(p->sched);
    tracker_free(p->tracker);
    (void)pthread_cond_destroy(&p->work);
    (void)pthread_cond_destroy(&p->back);
    (void)pthread_mutex_destroy(&p->lock);
    mem_free(p->slots);
    mem_free(p);
}

static void lock(struct pipeline *p)
{
    MUST(pthread_mutex_lock(&p->lock) == 0);
}

static void unlock(struct pipeline *p)
{
    MUST(pthread_mutex_unlock(&p->lock) == 0);
}

/* ---- waking workers ---- */

static int64_t add_ms(int64_t a, int64_t b)
{
    return b > 0 && a > INT64_MAX - b ? INT64_MAX : a + b;
}

/* When a take could return something, as things are; now_ms or earlier: at once. */
static int64_t take_at_locked(struct pipeline *p, int64_t now_ms, size_t cap, int64_t linger_ms)
{
    struct sched_ready ready = sched_ready(p->sched, now_ms);
    int64_t due_ms = sched_next_due(p->sched);

    if (ready.records == 0)
        return due_ms;
    if (p->stopping || ready.records >= cap)
        return INT64_MIN;
    int64_t ripe_ms = add_ms(ready.since_ms, linger_ms);
    return ripe_ms < due_ms ? ripe_ms : due_ms;
}

/* To be called after every change of the scheduler, before the lock is released. */
static void notify_locked(struct pipeline *p, int64_t now_ms)
{
    if (p->sleepers == 0)
        return;
    if (p->stopping) { /* rare, and everybody may have to leave */
        (void)pthread_cond_broadcast(&p->work);
        return;
    }
    int64_t at_ms = take_at_locked(p, now_ms, p->cap, p->linger_ms);
    if (at_ms < p->watched_ms) {
        p->watched_ms = at_ms;
        p->watcher = NULL;
        (void)pthread_cond_signal(&p->work);
    }
}

static void sleep_locked(struct pipeline *p, int64_t until_ms)
{
    struct sleeper self = {.until_ms = INT64_MAX};

    if (until_ms < p->watched_ms) {
        self.until_ms = until_ms;
        p->watched_ms = until_ms;
        p->watcher = &self;
    }
    p->sleepers++;
    clock_cond_wait(&p->work, &p->lock, self.until_ms);
    p->sleepers--;
    if (p->watcher == &self || p->watcher == NULL) {
        p->watched_ms = INT64_MAX;
        p->watcher = NULL;
    }
}

/* ---- room ---- */

/*
 * May a slot that holds own go on, when used is held in all? Yes below a half of the limit, or
 * below its share of the other half; of both only that many quarters count. Above the limit never,
 * but for one record of a slot that has none, up to one and a half times the limit: shares shrink
 * when partitions are added, and what was taken under larger ones does not go away.
 */
static bool fits(size_t limit, size_t used, size_t own, size_t shares, size_t quarters)
{
    size_t half = limit / 2 > 0 ? limit / 2 : 1;
    size_t share = half / shares > 0 ? half / shares : 1;

    half = half / 4 * quarters + half % 4 * quarters / 4;
    share = share / 4 * quarters + share % 4 * quarters / 4;
    return (own == 0 && used / 3 * 2 < limit) || ((used < half || own < share) && used < limit);
}

static size_t window_limit(const struct pipeline *p)
{
    return p->limits.max_records > SIZE_MAX / PIPELINE_WINDOW_FACTOR
               ? SIZE_MAX
               : p->limits.max_records * PIPELINE_WINDOW_FACTOR;
}

static bool has_room_locked(const struct pipeline *p, uint32_t slot, size_t quarters)
{
    const struct slot *s = &p->slots[slot];
    size_t n = p->assigned > 0 ? p->assigned : 1;

    return fits(p->limits.max_records, p->open, s->open, n, quarters) &&
           fits(p->limits.max_bytes, p->open_bytes, s->open_bytes, n, quarters) &&
           fits(window_limit(p), tracker_window_total(p->tracker), tracker_window(p->tracker, slot),
                n, quarters);
}

/* Does a slot hold less than half of its share? */
static bool is_little(size_t limit, size_t own, size_t shares)
{
    return own == 0 || own < limit / 4 / shares;
}

static bool holds_little_locked(const struct pipeline *p, uint32_t slot)
{
    const struct slot *s = &p->slots[slot];
    size_t n = p->assigned > 0 ? p->assigned : 1;

    return is_little(p->limits.max_records, s->open, n) &&
           is_little(p->limits.max_bytes, s->open_bytes, n) &&
           is_little(window_limit(p), tracker_window(p->tracker, slot), n);
}

/* Nothing more is read for a route that nobody can write, but for what tries whether it still is
 * so. */
static bool is_held_locked(const struct pipeline *p, uint32_t slot)
{
    const struct slot *s = &p->slots[slot];

    return s->live > 0 && p->limits.held != NULL && atomic_load(&p->limits.held[s->route]);
}

bool pipeline_wants(struct pipeline *p, uint32_t slot, bool again)
{
    bool yes = false;

    lock(p);
    if (slot < p->n_slots && p->slots[slot].assigned && !p->slots[slot].draining) {
        struct slot *s = &p->slots[slot];

        yes = has_room_locked(p, slot, 4) && (!again || holds_little_locked(p, slot)) &&
              !is_held_locked(p, slot);
        p->refused += (size_t)(!yes && !s->refused);
        p->refused -= (size_t)(yes && s->refused);
        s->refused = !yes;
        s->again = again;
    }
    unlock(p);
    return yes;
}

/* Must the intake be told? Three quarters and not the bound itself, so that it is not woken, and
 * stopped again, for each single record. */
static bool wake_wanted_locked(struct pipeline *p)
{
    bool wake = false;

    for (uint32_t i = 0; p->refused > 0 && i < p->n_slots && !wake; i++)
        wake = p->slots[i].refused && has_room_locked(p, i, 3) &&
               (!p->slots[i].again || holds_little_locked(p, i)) && !is_held_locked(p, i);
    for (uint32_t i = 0; wake && i < p->n_slots; i++)
        p->slots[i].refused = false;
    if (wake)
        p->refused = 0;
    return wake;
}

/* ---- records leave ---- */

static void free_chain(struct record *r)
{
    while (r != NULL) {
        struct record *next = r->chain;

        record_free(r);
        r = next;
    }
}

/* After everything that closed records or changed the scheduler on behalf of a worker. */
static void unlock_and_tell(struct pipeline *p)
{
    bool wake = wake_wanted_locked(p);

    notify_locked(p, clock_mono_ms());
    unlock(p);
    if (wake && p->limits.wake != NULL)
        p->limits.wake(p->limits.wake_ctx);
}

/* r is settled, dropped or late: it leaves budget and books as open. */
static void close_locked(struct pipeline *p, const struct record *r, bool current)
{
    struct slot *s = &p->slots[r->slot];

    s->open--;
    s->open_bytes -= r->bytes;
    s->letters -= r->letter_waits;
    p->open--;
    p->open_bytes -= r->bytes;
    if (current && --s->live == 0 && s->draining)
        (void)pthread_cond_signal(&p->back);
}

struct drop {
    struct pipeline *pipeline;
    struct record *chain; /* to be freed after unlock */
};

/* What is queued is of the epoch in force: revoke and assign drop the rest. */
static void drop_queued(struct record *r, void *arg)
{
    struct drop *d = arg;

    d->pipeline->slots[r->slot].dropped++;
    close_locked(d->pipeline, r, true);
    r->chain = d->chain;
    d->chain = r;
}

void pipeline_settle(struct pipeline *p, const struct settled *s, size_t n)
{
    lock(p);
    for (size_t i = 0; i < n; i++) {
        const struct record *r = s[i].record;
        struct slot *slot = &p->slots[r->slot];
        bool current = tracker_settle(p->tracker, r);

        MUST(!sched_holds_lane(r));
        if (current)
            slot->outcomes[s[i].outcome]++;
        else
            slot->late++;
        close_locked(p, r, current);
    }
    unlock_and_tell(p);
    for (size_t i = 0; i < n; i++)
        record_free(s[i].record);
}

/* ---- intake ---- */

bool pipeline_offer(struct pipeline *p, struct record *r)
{
    bool dropped = false;

    r->offered_at_ms = clock_mono_ms();
    r->order_hash = sched_hash(r); /* here, so that the lock isn't held for it */
    lock(p);
    if (!tracker_begin(p->tracker, r)) {
        unlock(p);
        return false;
    }
    struct slot *s = &p->slots[r->slot];
    s->consumed++;
    if (s->draining) {
        s->dropped++;
        dropped = true;
    } else {
        s->open++;
        s->open_bytes += r->bytes;
        s->live++;
        s->route = r->route;
        p->open++;
        p->open_bytes += r->bytes;
        sched_push(p->sched, r);
        notify_locked(p, r->offered_at_ms);
    }
    unlock(p);
    if (dropped)
        record_free(r);
    return true;
}

void pipeline_end(struct pipeline *p, uint32_t slot, int64_t end_offset)
{
    lock(p);
    tracker_end(p->tracker, slot, end_offset);
    unlock(p);
}

static void slots_grow_locked(struct pipeline *p, uint32_t slot)
{
    size_t n = (size_t)slot + 1;

    if (n <= p->n_slots)
        return;
    p->slots = mem_grow(p->slots, n, sizeof(*p->slots));
    for (size_t i = p->n_slots; i < n; i++)
        p->slots[i] = (struct slot){0};
    p->n_slots = n;
}

/* Ends what was of the old epoch; those with workers and the notifier stay open, as late ones. */
static void end_epoch_locked(struct pipeline *p, uint32_t slot, struct drop *d)
{
    struct slot *s = &p->slots[slot];

    (void)sched_drop_slot(p->sched, slot, drop_queued, d);
    tracker_revoke(p->tracker, slot);
    p->assigned -= (size_t)s->assigned;
    p->refused -= (size_t)s->refused;
    s->assigned = s->draining = s->refused = false;
    s->live = 0;
    notify_locked(p, clock_mono_ms());
}

void pipeline_assign(struct pipeline *p, uint32_t slot, int64_t next_offset)
{
    struct drop d = {.pipeline = p};

    lock(p);
    slots_grow_locked(p, slot);
    end_epoch_locked(p, slot, &d);
    tracker_assign(p->tracker, slot, next_offset);
    p->slots[slot].known = p->slots[slot].assigned = true;
    p->assigned++;
    unlock(p);
    free_chain(d.chain);
}

static void check_books(const struct slot *s)
{
    uint64_t sum = s->late + s->dropped + s->open;

    for (size_t i = 0; i < PIPELINE_OUTCOMES; i++)
        sum += s->outcomes[i];
    MUST(s->consumed == sum && s->live <= s->open);
}

int64_t pipeline_revoke(struct pipeline *p, uint32_t slot)
{
    struct drop d = {.pipeline = p};

    lock(p);
    int64_t watermark = tracker_watermark(p->tracker, slot);
    if (slot < p->n_slots) {
        end_epoch_locked(p, slot, &d);
        check_books(&p->slots[slot]);
    }
    unlock(p);
    free_chain(d.chain);
    return watermark;
}

static size_t live_locked(const struct pipeline *p, const uint32_t *slots, size_t n)
{
    size_t live = 0;

    for (size_t i = 0; i < n; i++)
        live += slots[i] < p->n_slots ? p->slots[slots[i]].live : 0;
    return live;
}

bool pipeline_drain(struct pipeline *p, const uint32_t *slots, size_t n, int64_t timeout_ms)
{
    struct drop d = {.pipeline = p};
    int64_t until_ms = add_ms(clock_mono_ms(), timeout_ms);

    lock(p);
    for (size_t i = 0; i < n; i++) {
        if (slots[i] >= p->n_slots || !p->slots[slots[i]].assigned)
            continue;
        p->slots[slots[i]].draining = true;
        (void)sched_drop_slot(p->sched, slots[i], drop_queued, &d);
    }
    notify_locked(p, clock_mono_ms());
    unlock(p);
    free_chain(d.chain);

    lock(p);
    while (live_locked(p, slots, n) > 0 && clock_mono_ms() < until_ms)
        clock_cond_wait(&p->back, &p->lock, until_ms);
    bool empty = live_locked(p, slots, n) == 0;
    unlock(p);
    return empty;
}

int64_t pipeline_watermark(struct pipeline *p, uint32_t slot)
{
    lock(p);
    int64_t watermark = tracker_watermark(p->tracker, slot);
    unlock(p);
    return watermark;
}

void pipeline_committed(struct pipeline *p, uint32_t slot, int64_t offset)
{
    lock(p);
    if (slot < p->n_slots)
        p->slots[slot].committed = offset;
    unlock(p);
}

/* ---- workers ---- */

size_t pipeline_take(struct pipeline *p, struct record **out, size_t cap, size_t max_bytes,
                     int64_t linger_ms)
{
    size_t n = 0;

    MUST(cap > 0);
    lock(p);
    p->cap = cap;
    p->linger_ms = linger_ms;
    for (;;) {
        int64_t now_ms = clock_mono_ms();
        int64_t at_ms = take_at_locked(p, now_ms, cap, linger_ms);

        if (at_ms <= now_ms)
            n = sched_take(p->sched, now_ms, linger_ms, out, cap, max_bytes);
        if (n > 0 || (p->stopping && sched_stats(p->sched).queued == 0))
            break;
        sleep_locked(p, at_ms);
    }
    p->in_flight += n;
    notify_locked(p, clock_mono_ms());
    unlock(p);
    return n;
}

void pipeline_nudge(struct pipeline *p)
{
    lock(p);
    unlock_and_tell(p);
}

void pipeline_finish(struct pipeline *p, struct record *const *r, size_t n)
{
    lock(p);
    for (size_t i = 0; i < n; i++)
        sched_done(p->sched, r[i]);
    p->in_flight -= n;
    notify_locked(p, clock_mono_ms());
    unlock(p);
}

void pipeline_defer(struct pipeline *p, struct record *const *r, size_t n, int64_t wait_ms)
{
    struct record *chain = NULL;
    int64_t due_ms = add_ms(clock_mono_ms(), wait_ms);

    lock(p);
    for (size_t i = 0; i < n; i++) {
        struct slot *s = &p->slots[r[i]->slot];
        bool current = tracker_current(p->tracker, r[i]);

        r[i]->attempts++;
        if (r[i]->rejected.reason != REASON_NONE && !r[i]->letter_waits) {
            r[i]->letter_waits = true;
            s->letters++;
        }
        if (current && !s->draining) {
            sched_defer(p->sched, r[i], due_ms);
            continue;
        }
        if (current)
            s->dropped++;
        else
            s->late++;
        sched_done(p->sched, r[i]);
        close_locked(p, r[i], current);
        r[i]->chain = chain;
        chain = r[i];
    }
    p->in_flight -= n;
    unlock_and_tell(p);
    free_chain(chain);
}

void pipeline_current(struct pipeline *p, struct record *const *r, size_t n, bool *current)
{
    lock(p);
    for (size_t i = 0; i < n; i++)
        current[i] = tracker_current(p->tracker, r[i]);
    unlock(p);
}

void pipeline_stop(struct pipeline *p)
{
    lock(p);
    p->stopping = true;
    (void)pthread_cond_broadcast(&p->work);
    unlock(p);
}

/* ---- the books ---- */

void pipeline_stats(struct pipeline *p, struct pipeline_stats *stats,
                    struct pipeline_slot_stats *slots, size_t cap)
{
    lock(p);
    *stats = (struct pipeline_stats){.sched = sched_stats(p->sched),
                                     .open = p->open,
                                     .open_bytes = p->open_bytes,
                                     .in_flight = p->in_flight};
    for (uint32_t i = 0; i < p->n_slots; i++) {
        const struct slot *s = &p->slots[i];

        if (!s->known)
            continue;
        check_books(s);
        if (stats->n_slots++ >= cap)
            continue;
        struct pipeline_slot_stats *out = &slots[stats->n_slots - 1];
        *out = (struct pipeline_slot_stats){
            .slot = i,
            .assigned = s->assigned,
            .consumed = s->consumed,
            .late = s->late,
            .dropped = s->dropped,
            .open = s->open,
            .open_bytes = s->open_bytes,
            .letters = s->letters,
            .watermark = tracker_watermark(p->tracker, i),
            .committed = s->committed,
            .position = tracker_position(p->tracker, i),
            .oldest_at_ms = tracker_oldest_at_ms(p->tracker, i),
        };
        for (size_t k = 0; k < PIPELINE_OUTCOMES; k++)
            out->outcomes[k] = s->outcomes[k];
    }
    unlock(p);
}
