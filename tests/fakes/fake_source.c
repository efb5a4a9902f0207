#include "fakes/fake_source.h"

#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fakes/check.h"

enum { BATCH = 1500, ALL = FAKE_PARTITIONS };

enum owner {
    NOBODY,
    OURS,
    OTHER, /* and we know */
    STOLEN /* by another process, and we still think it is ours */
};

struct part {
    enum owner owner;
    uint32_t at;       /* the next entry to deliver to us */
    uint32_t other_at; /* the next entry for the other process */
    int64_t end_told;  /* the end event that was sent last in this assignment; -1 none */
};

struct fake_source {
    struct fake_source_options o;
    struct part parts[ALL];
    uint32_t turn; /* which partition is read next */
    int64_t rebalance_at_us;
    struct commit_point flight[ALL]; /* commits that are sent and not answered */
    size_t n_flight;
    bool flight_ok;
    bool settled; /* all is ours for good */
    struct fake_source_stats stats;
    atomic_bool calm;
    pthread_mutex_t lock;
    pthread_cond_t woken;
    bool wake; /* lock */
};

struct fake_source *fake_source_new(const struct fake_source_options *options)
{
    struct fake_source *s = mem_new(sizeof(*s));

    s->o = *options;
    (void)pthread_mutex_init(&s->lock, NULL);
    clock_cond_init(&s->woken);
    return s;
}

void fake_source_free(struct fake_source *s)
{
    (void)pthread_cond_destroy(&s->woken);
    (void)pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

void fake_source_calm(struct fake_source *s)
{
    atomic_store(&s->calm, true);
}

struct fake_source_stats fake_source_stats(const struct fake_source *s)
{
    return s->stats;
}

/* ---- the other process ---- */

static void other_works(struct fake_source *s, uint32_t p)
{
    struct part *part = &s->parts[p];
    const struct fake_partition *log = &s->o.log->partitions[p];
    uint64_t n = dice_below(&s->o.dice, 40);

    for (; n > 0 && part->other_at < log->n; n--) {
        fake_sink_other(s->o.sink, p, part->other_at++);
        s->stats.applied_by_others++;
    }
    if (part->other_at > 0 && dice_permille(&s->o.dice, 500)) {
        int64_t offset = log->entries[part->other_at - 1].offset + 1;

        if (offset > fake_sink_committed(s->o.sink, p))
            fake_sink_commit(s->o.sink, p, offset);
    }
}

static void other_starts(struct fake_source *s, uint32_t p, enum owner how)
{
    s->parts[p].owner = how;
    s->parts[p].other_at = fake_log_find(s->o.log, p, fake_sink_committed(s->o.sink, p));
}

/* ---- the group ---- */

static void give(struct fake_source *s, uint32_t p)
{
    struct part *part = &s->parts[p];
    int64_t committed = fake_sink_committed(s->o.sink, p);

    *part =
        (struct part){.owner = OURS, .at = fake_log_find(s->o.log, p, committed), .end_told = -1};
    s->o.events.assigned(s->o.events.ctx, fake_slot(p), committed);
}

static void take_away(struct fake_source *s, const bool *which, bool lost)
{
    uint32_t slots[ALL];
    size_t n = 0;

    for (uint32_t p = 0; p < ALL; p++) {
        if (which[p])
            slots[n++] = fake_slot(p);
    }
    if (n == 0)
        return;
    s->o.events.revoked(s->o.events.ctx, slots, n, lost);
    for (uint32_t p = 0; p < ALL; p++) {
        if (which[p] && s->parts[p].owner == OURS)
            s->parts[p].owner = NOBODY;
        else if (which[p])
            s->parts[p].owner = OTHER;
    }
}

/* Some partitions go the way of a session time-out: others have them before we are told. */
static void steal(struct fake_source *s)
{
    for (uint32_t p = 0; p < ALL; p++) {
        if (s->parts[p].owner == OURS && dice_permille(&s->o.dice, 300))
            other_starts(s, p, STOLEN);
    }
    s->stats.lost++;
}

static void rebalance(struct fake_source *s)
{
    bool stolen[ALL], some[ALL];
    bool eager = dice_permille(&s->o.dice, 400);

    for (uint32_t p = 0; p < ALL; p++) {
        stolen[p] = s->parts[p].owner == STOLEN;
        some[p] = s->parts[p].owner == OURS && (eager || dice_permille(&s->o.dice, 400));
    }
    take_away(s, stolen, true);
    take_away(s, some, false);
    s->stats.eager += eager;
    s->stats.cooperative += !eager;
    for (uint32_t p = 0; p < ALL; p++) {
        if (s->parts[p].owner == OURS)
            continue;
        uint64_t what = dice_below(&s->o.dice, 100);
        if (what < 60)
            give(s, p);
        else if (what < 80 && s->parts[p].owner == NOBODY)
            other_starts(s, p, OTHER);
        else if (what < 90)
            s->parts[p].owner = NOBODY; /* the other one died without a commit */
    }
}

static void all_ours(struct fake_source *s)
{
    bool stolen[ALL];

    for (uint32_t p = 0; p < ALL; p++)
        stolen[p] = s->parts[p].owner == STOLEN;
    take_away(s, stolen, true);
    for (uint32_t p = 0; p < ALL; p++) {
        if (s->parts[p].owner != OURS)
            give(s, p);
    }
    s->settled = true;
}

static void group_moves(struct fake_source *s)
{
    int64_t now_us = clock_mono_us();

    if (s->settled)
        return;
    if (atomic_load(&s->calm) || s->o.rebalance_us == 0) {
        all_ours(s);
        return;
    }
    for (uint32_t p = 0; p < ALL; p++) {
        if ((s->parts[p].owner == OTHER || s->parts[p].owner == STOLEN) &&
            dice_permille(&s->o.dice, 5))
            other_works(s, p);
    }
    if (now_us < s->rebalance_at_us)
        return;
    s->rebalance_at_us = now_us + (int64_t)dice_below(&s->o.dice, (uint64_t)s->o.rebalance_us * 2);
    if (dice_permille(&s->o.dice, 200))
        steal(s);
    else
        rebalance(s);
}

/* ---- commits ---- */

static void flight_lands(struct fake_source *s)
{
    if (s->n_flight == 0)
        return;
    size_t n = s->n_flight;
    s->n_flight = 0;
    s->o.events.committed(s->o.events.ctx, s->flight, n, s->flight_ok);
}

/* Returns whether the sender gets to know that it counted. */
static bool broker_commits(struct fake_source *s, const struct commit_point *points, size_t n)
{
    bool ok = true;

    for (size_t i = 0; i < n; i++) /* one wrong owner, and the whole request is refused */
        ok = ok && s->parts[fake_partition_of(points[i].slot)].owner == OURS;
    for (size_t i = 0; ok && i < n; i++)
        fake_sink_commit(s->o.sink, fake_partition_of(points[i].slot), points[i].offset);
    return ok && (s->settled || !dice_permille(&s->o.dice, 30));
}

static bool source_commit(void *self, const struct commit_point *points, size_t n, int wait_ms,
                          bool *sent, struct err *e)
{
    struct fake_source *s = self;

    *sent = wait_ms > 0 || s->n_flight == 0;
    if (!*sent)
        return true;
    if (wait_ms > 0) {
        flight_lands(s);
        return broker_commits(s, points, n) || err_set(e, ERR_TRANSIENT, 0, "no answer");
    }
    CHECK(n <= ALL, "%zu commit points", n);
    for (size_t i = 0; i < n; i++)
        s->flight[i] = points[i];
    s->n_flight = n;
    s->flight_ok = broker_commits(s, points, n);
    return true;
}

/* ---- records ---- */

/* The next record of p, if there is one and it is wanted; tells of the end. */
static struct record *read_one(struct fake_source *s, uint32_t p)
{
    struct part *part = &s->parts[p];
    const struct fake_partition *log = &s->o.log->partitions[p];

    if ((part->owner != OURS && part->owner != STOLEN) ||
        !s->o.events.wants(s->o.events.ctx, fake_slot(p), dice_permille(&s->o.dice, 50)))
        return NULL;
    if (part->at < log->n) {
        s->stats.delivered++;
        return fake_log_record(s->o.log, p, part->at++);
    }
    if (part->end_told != log->end) {
        part->end_told = log->end;
        s->o.events.end(s->o.events.ctx, fake_slot(p), log->end);
    } else if (!atomic_load(&s->calm) && part->owner == OURS) {
        (void)fake_log_grow(s->o.log, p, 1 + (uint32_t)dice_below(&s->o.dice, BATCH), &s->o.dice);
    }
    return NULL;
}

static void wait_for_wake(struct fake_source *s, int wait_ms)
{
    int64_t until_ms = clock_mono_ms() + wait_ms;

    (void)pthread_mutex_lock(&s->lock);
    while (!s->wake && clock_mono_ms() < until_ms)
        clock_cond_wait(&s->woken, &s->lock, until_ms);
    s->wake = false;
    (void)pthread_mutex_unlock(&s->lock);
}

static bool source_poll(void *self, int wait_ms, struct record **out, struct err *e)
{
    struct fake_source *s = self;

    (void)e;
    *out = NULL;
    flight_lands(s);
    group_moves(s);
    for (uint32_t i = 0; i < ALL && *out == NULL; i++)
        *out = read_one(s, s->turn++ % ALL);
    if (*out == NULL && wait_ms > 0)
        wait_for_wake(s, wait_ms);
    return true;
}

static void source_wake(void *self)
{
    struct fake_source *s = self;

    (void)pthread_mutex_lock(&s->lock);
    s->wake = true;
    (void)pthread_cond_signal(&s->woken);
    (void)pthread_mutex_unlock(&s->lock);
}

static bool source_close(void *self, int wait_ms, struct err *e)
{
    struct fake_source *s = self;
    bool ours[ALL], stolen[ALL];

    (void)wait_ms;
    (void)e;
    flight_lands(s);
    for (uint32_t p = 0; p < ALL; p++) {
        ours[p] = s->parts[p].owner == OURS;
        stolen[p] = s->parts[p].owner == STOLEN;
    }
    take_away(s, stolen, true);
    take_away(s, ours, false);
    return true;
}

bool fake_source_finished(struct fake_source *s)
{
    bool finished = s->settled;

    for (uint32_t p = 0; p < ALL && finished; p++)
        finished = fake_sink_committed(s->o.sink, p) == s->o.log->partitions[p].end;
    return finished;
}

/* ---- the rest of the port ---- */

static bool source_end_snapshot(void *self, struct err *e)
{
    (void)self;
    (void)e;
    return true;
}

static bool source_end_reached(void *self, const struct commit_point *mine, size_t n, bool *reached,
                               struct err *e)
{
    (void)mine;
    (void)n;
    (void)e;
    *reached = fake_source_finished(self);
    return true;
}

static void source_slot_name(void *self, uint32_t slot, const char **topic, int32_t *partition)
{
    (void)self;
    *topic = fake_partition_of(slot) % FAKE_ROUTES == 0 ? "even" : "odd";
    *partition = (int32_t)fake_partition_of(slot);
}

static int64_t source_slot_end(void *self, uint32_t slot)
{
    (void)self;
    (void)slot;
    return -1;
}

struct source fake_source_port(struct fake_source *s)
{
    static const struct source_ops ops = {.poll = source_poll,
                                          .commit = source_commit,
                                          .wake = source_wake,
                                          .end_snapshot = source_end_snapshot,
                                          .end_reached = source_end_reached,
                                          .slot_name = source_slot_name,
                                          .slot_end = source_slot_end,
                                          .close = source_close};

    return (struct source){.ops = &ops, .self = s};
}
