/*
 * A partition's life as the intake sees it:
 *
 *   assigned   pipeline_assign: a new epoch begins where the group has committed
 *   read       every record is offered; commits follow the watermark, by timer
 *   revoked    drain (bounded), pipeline_revoke ends the epoch, the last commit, and only then does
 *              the source give the partition up
 *   lost       the same without the commit: somebody else may own it already
 *
 * One commit is in flight at most, and each is computed anew from the tracker:
 * a list that was refused is never sent again as it was.
 */
#include "run/intake.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/large.h"

enum {
    COMMIT_WAIT_MS = 1500, /* for the last commit of a partition at a revoke; at the end at least */
    CLOSE_MS = 1000,       /* what the end keeps for leaving the group */
    END_CHECK_MS = 200,
    POLL_MAX_MS = 500
};

struct intake_slot {
    bool assigned;
    int64_t committed; /* highest offset that a commit of ours was acknowledged for, or that was
                          found committed */
};

struct intake {
    struct intake_options o;
    struct source source;
    struct intake_slot *slots; /* by slot number */
    size_t n_slots;
    struct commit_point *points; /* n_slots of them */
    int64_t commit_at_ms;
    int64_t end_check_at_ms;
    int64_t deadline_ms; /* 0 until stopping */
    _Atomic int64_t round_at_ms;
    bool came; /* partitions, since this was last looked at */
    bool clean;
};

struct intake *intake_new(const struct intake_options *options)
{
    struct intake *in = mem_new(sizeof *in);

    in->o = *options;
    atomic_store(&in->round_at_ms, clock_mono_ms());
    return in;
}

bool intake_alive(const struct intake *in, int64_t ms)
{
    return clock_mono_ms() - atomic_load_explicit(&in->round_at_ms, memory_order_relaxed) < ms;
}

void intake_free(struct intake *in)
{
    if (in == NULL)
        return;
    mem_free(in->slots);
    mem_free(in->points);
    mem_free(in);
}

void intake_connect(struct intake *in, struct source source, struct run_metrics *metrics)
{
    in->source = source;
    in->o.metrics = metrics;
}

bool intake_clean(const struct intake *in)
{
    return in->clean;
}

static struct intake_slot *slot_get(struct intake *in, uint32_t slot)
{
    if (slot >= in->n_slots) {
        in->slots = mem_grow(in->slots, (size_t)slot + 1, sizeof *in->slots);
        in->points = mem_grow(in->points, (size_t)slot + 1, sizeof *in->points);
        for (; in->n_slots <= slot; in->n_slots++)
            in->slots[in->n_slots] = (struct intake_slot){.committed = -1};
    }
    return &in->slots[slot];
}

static void slot_log(const struct intake *in, const char *event, uint32_t slot, int64_t offset)
{
    const char *topic;
    int32_t partition;

    in->source.ops->slot_name(in->source.self, slot, &topic, &partition);
    log_info(event, LOG_TEXT("topic", topic), LOG_INT("partition", partition),
             LOG_INT("offset", offset));
}

static void on_assigned(void *ctx, uint32_t slot, int64_t next_offset)
{
    struct intake *in = ctx;
    struct intake_slot *s = slot_get(in, slot);

    s->assigned = true;
    /* What others committed meanwhile counts as well: a commit of ours must not lead back behind
     * it. */
    s->committed = next_offset;
    pipeline_assign(in->o.pipeline, slot, next_offset);
    pipeline_committed(in->o.pipeline, slot, next_offset);
    in->came = true;
    metric_add(in->o.metrics->partitions[MOVE_ASSIGNED], 1);
    slot_log(in, "partition assigned", slot, next_offset);
}

static void on_committed(void *ctx, const struct commit_point *points, size_t n, bool ok)
{
    struct intake *in = ctx;

    metric_add(ok ? in->o.metrics->commits_ok : in->o.metrics->commits_failed, 1);
    for (size_t i = 0; ok && i < n; i++) {
        struct intake_slot *s = slot_get(in, points[i].slot);

        if (points[i].offset > s->committed) {
            s->committed = points[i].offset;
            pipeline_committed(in->o.pipeline, points[i].slot, s->committed);
        }
    }
}

/* What may be committed now and is not yet: into in->points. Nothing ever leads back. */
static size_t points_due(struct intake *in)
{
    size_t n = 0;

    for (uint32_t slot = 0; slot < in->n_slots; slot++) {
        if (!in->slots[slot].assigned)
            continue;
        int64_t watermark = pipeline_watermark(in->o.pipeline, slot);
        if (watermark > in->slots[slot].committed)
            in->points[n++] = (struct commit_point){.slot = slot, .offset = watermark};
    }
    return n;
}

static void commit_by_timer(struct intake *in, int64_t now_ms)
{
    struct err e;
    bool sent = true;
    size_t n;

    if (now_ms < in->commit_at_ms)
        return;
    in->commit_at_ms = now_ms + in->o.config->worker.commit_interval_ms;
    if ((n = points_due(in)) == 0)
        return;
    if (!in->source.ops->commit(in->source.self, in->points, n, 0, &sent, &e))
        log_warn("commit could not be sent, will be computed anew", LOG_TEXT("error", e.text));
}

/* Returns whether everything that was due is acknowledged. */
static bool commit_and_wait(struct intake *in, struct commit_point *points, size_t n)
{
    struct err e;
    bool sent = false;
    int wait_ms = COMMIT_WAIT_MS;

    if (n == 0)
        return true;
    if (in->deadline_ms > 0) { /* the end: no later commit makes up for this one */
        int64_t left = in->deadline_ms - clock_mono_ms();
        int64_t most = left > COMMIT_WAIT_MS + CLOSE_MS ? left - CLOSE_MS : COMMIT_WAIT_MS;
        wait_ms = (int)(left < most ? (left > 100 ? left : 100) : most);
    }
    bool ok = in->source.ops->commit(in->source.self, points, n, wait_ms, &sent, &e);
    on_committed(in, points, n, ok);
    if (!ok)
        log_warn("last commit not acknowledged: what it covered may be delivered again, which is "
                 "harmless",
                 LOG_TEXT("error", e.text));
    return ok;
}

static int64_t drain_ms(const struct intake *in)
{
    int64_t left;

    if (in->deadline_ms == 0)
        return in->o.config->worker.drain_timeout_ms;
    left = in->deadline_ms - COMMIT_WAIT_MS - clock_mono_ms();
    return left > 0 ? left : 0;
}

static void on_revoked(void *ctx, const uint32_t *slots, size_t n, bool lost)
{
    struct intake *in = ctx;
    size_t due = 0;

    if (!pipeline_drain(in->o.pipeline, slots, n, lost ? 0 : drain_ms(in)) && !lost)
        log_warn("drain deadline passed with records still out: they come back late and are "
                 "ignored here",
                 LOG_INT("partitions", n));
    for (size_t i = 0; i < n; i++) {
        struct intake_slot *s = slot_get(in, slots[i]);
        int64_t watermark = pipeline_revoke(in->o.pipeline, slots[i]);

        if (watermark > s->committed)
            in->points[due++] = (struct commit_point){.slot = slots[i], .offset = watermark};
        slot_log(in, lost ? "partition lost" : "partition revoked", slots[i], watermark);
    }
    metric_add(in->o.metrics->rebalances[lost ? MOVE_LOST : MOVE_REVOKED], n > 0);
    metric_add(in->o.metrics->partitions[lost ? MOVE_LOST : MOVE_REVOKED], (int64_t)n);
    if (!lost)
        (void)commit_and_wait(in, in->points, due);
    for (size_t i = 0; i < n; i++)
        slot_get(in, slots[i])->assigned = false;
}

static void on_end(void *ctx, uint32_t slot, int64_t end_offset)
{
    struct intake *in = ctx;

    pipeline_end(in->o.pipeline, slot, end_offset);
}

static bool on_wants(void *ctx, uint32_t slot, bool again)
{
    struct intake *in = ctx;

    return in->deadline_ms == 0 && pipeline_wants(in->o.pipeline, slot, again);
}

struct source_events intake_events(struct intake *in)
{
    return (struct source_events){.assigned = on_assigned,
                                  .revoked = on_revoked,
                                  .end = on_end,
                                  .wants = on_wants,
                                  .committed = on_committed,
                                  .ctx = in};
}

/*
 * What is read lies below what the group has committed. If the log ends before that, the topic was
 * created anew, or cut: the committed offset has to follow, or a restart would skip what is written
 * up to it. This is the only way on which it goes back, and the log went first. If the log is as it
 * was, the library has only rewound (seen with 2.0.2: an answer about the start offset that was
 * asked for in an earlier assignment): the records are done again, and nothing is committed until
 * they have passed the committed offset.
 */
static void committed_follows(struct intake *in, uint32_t slot, int64_t offset)
{
    struct intake_slot *s = slot_get(in, slot);
    int64_t end = in->source.ops->slot_end(in->source.self, slot);
    bool sent = false;
    struct err e;

    if (offset >= s->committed || end < 0 || end >= s->committed)
        return;
    slot_log(in, "the log ends before the committed offset: it was created anew or cut", slot,
             offset);
    metric_add(in->o.metrics->rewritten_logs, 1);
    /* An answer that is still on its way speaks of the old log. */
    if (!in->source.ops->commit(in->source.self, NULL, 0, COMMIT_WAIT_MS, &sent, &e))
        log_warn("the commit before the log was rewritten is not answered",
                 LOG_TEXT("error", e.text));
    s->committed = offset;
    pipeline_committed(in->o.pipeline, slot, offset);
}

/*
 * The offset is not above what was read before in this epoch. A new epoch begins here; what is out
 * of the old one comes back late. What is stored stays stored.
 */
static void went_back(struct intake *in, struct record *r)
{
    uint32_t slot = r->slot;
    int64_t offset = r->offset;

    log_warn("offset went back; reading on from here", LOG_TEXT("topic", r->topic),
             LOG_INT("partition", r->partition), LOG_INT("offset", offset));
    (void)pipeline_drain(in->o.pipeline, &slot, 1, 0);
    pipeline_assign(in->o.pipeline, slot, offset);
    if (pipeline_offer(in->o.pipeline, r))
        committed_follows(in, slot, offset);
    else
        record_free(r);
}

static void take_in(struct intake *in, struct record *r)
{
    uint32_t slot = r->slot;
    int64_t offset = r->offset;
    const struct mapping *mapping = in->o.mappings[r->route];

    if (mapping_order_parses(mapping, r)) {
        large_begin(r);
        mapping_order(mapping, r);
        large_end(r);
    } else {
        mapping_order(mapping, r);
    }
    if (pipeline_offer(in->o.pipeline, r)) {
        if (offset < in->slots[slot].committed)
            committed_follows(in, slot, offset);
        return;
    }
    if (in->slots[slot].assigned)
        went_back(in, r);
    else
        record_free(r); /* of a partition that was taken away meanwhile */
}

static void check_end(struct intake *in, int64_t now_ms)
{
    struct err e;
    bool reached = false;
    size_t n = 0;

    if (!in->o.until_end || now_ms < in->end_check_at_ms)
        return;
    in->end_check_at_ms = now_ms + END_CHECK_MS;
    in->commit_at_ms = now_ms; /* what is settled should show as committed soon */
    for (uint32_t slot = 0; slot < in->n_slots; slot++)
        if (in->slots[slot].assigned)
            in->points[n++] =
                (struct commit_point){.slot = slot, .offset = in->slots[slot].committed};
    if (!in->source.ops->end_reached(in->source.self, in->points, n, &reached, &e))
        log_warn("can't ask how far the group has committed", LOG_TEXT("error", e.text));
    else if (reached)
        stop_ask(in->o.stop, NULL);
}

static bool intake_round(struct intake *in)
{
    int64_t now_ms = clock_mono_ms();
    int64_t wait_ms = in->commit_at_ms - now_ms;
    struct record *r = NULL;
    struct err e;

    atomic_store_explicit(&in->round_at_ms, now_ms, memory_order_relaxed);
    if (wait_ms > POLL_MAX_MS || wait_ms < 0)
        wait_ms = wait_ms < 0 ? 0 : POLL_MAX_MS;
    if (in->o.until_end && wait_ms > END_CHECK_MS)
        wait_ms = END_CHECK_MS;
    if (!in->source.ops->poll(in->source.self, (int)wait_ms, &r, &e)) {
        (void)err_wrap(&e, "kafka");
        stop_ask(in->o.stop, &e);
        return false;
    }
    if (in->came) { /* all partitions of one assignment come within one poll() */
        in->came = false;
        metric_add(in->o.metrics->rebalances[MOVE_ASSIGNED], 1);
    }
    if (r)
        take_in(in, r);
    check_end(in, now_ms);
    commit_by_timer(in, now_ms);
    return true;
}

/* Drain everything, commit, leave the group; each with what is left of the deadline. */
static void intake_leave(struct intake *in)
{
    struct err e;
    size_t n = 0;
    uint32_t *slots;
    bool drained, committed, closed;

    in->deadline_ms = clock_mono_ms() + in->o.config->worker.drain_timeout_ms;
    slots = mem_array(in->n_slots, sizeof *slots);
    for (uint32_t slot = 0; slot < in->n_slots; slot++)
        if (in->slots[slot].assigned)
            slots[n++] = slot;
    drained = pipeline_drain(in->o.pipeline, slots, n, drain_ms(in));
    mem_free(slots);
    if (!drained)
        log_warn("shutdown deadline passed with records still out: they are not committed and will "
                 "be delivered again",
                 LOG_INT("partitions", n));
    committed = commit_and_wait(in, in->points, points_due(in));
    int64_t left = in->deadline_ms - clock_mono_ms();
    closed = in->source.ops->close(in->source.self, left > 500 ? (int)left : 500, &e);
    if (!closed)
        log_warn("the consumer did not close in time", LOG_TEXT("error", e.text));
    in->clean = drained && committed && closed;
}

void *intake_main(void *arg)
{
    struct intake *in = arg;
    struct err e;

    if (in->o.until_end && !in->source.ops->end_snapshot(in->source.self, &e)) {
        (void)err_wrap(&e, "reading the end offsets");
        stop_ask(in->o.stop, &e);
    }
    while (!stop_asked(in->o.stop) && intake_round(in))
        ;
    intake_leave(in);
    return NULL;
}
