/*
 * pipeline.h - the one place where threads meet.
 *
 * Puts a mutex around one scheduler and one tracker. All functions may be
 * called from any thread; the comment says which thread does.
 *
 * The mutex is a leaf: while it is held only sched.c and tracker.c run. No
 * log, no callback, no I/O, no second lock, no freeing of records.
 *
 * Life of a record:
 *
 *   offer -> take -> finish -----------> settle   written, or already there, or skipped by a rule
 *              |`--> defer -> take ...            failed for now (database or dead-letter topic
 * away)
 *              `---> (dead letter) -> finish -> settle
 *   dropped by drain, revoke, or defer, when its partition has been taken away
 *
 * Budget (docs/decisions/003). A partition may be read while the whole budget
 * is less than half used, or while it holds less than its share of the other
 * half (half / assigned partitions). So a stuck partition never stops the
 * others, and a single busy one has at least half of everything. When shares
 * shrink, because partitions are added to a full process, the sum still stays
 * within the budget, but for one record of each partition, and those only up to
 * one and a half budgets. The same rule
 * bounds, at PIPELINE_WINDOW_FACTOR times max_records, the records between
 * watermarks and positions: behind one stuck record others settle, leave the
 * budget and still have to be remembered (and repeated after a crash).
 */
#ifndef IDEMSINK_RUN_PIPELINE_H
#define IDEMSINK_RUN_PIPELINE_H

#include <stdatomic.h>

#include "base/err.h"
#include "core/record.h"
#include "core/sched.h"

enum { PIPELINE_WINDOW_FACTOR = 8 };

struct pipeline;

struct pipeline_limits {
    size_t max_records; /* offered, neither settled nor dropped */
    size_t max_bytes;   /* sum of record.bytes of these */
    size_t routes;
    size_t run_max;
    /* Called without the lock, by whichever thread made the room, once after pipeline_wants() said
     * no to a slot and that slot has a quarter of its bound free again. May be NULL. */
    void (*wake)(void *ctx);
    void *wake_ctx;
    /* By route, may be NULL: while it is set, a slot of this route that has a record in force here
     * is not wanted. After it was reset: pipeline_nudge(). */
    const atomic_bool *held;
};

struct pipeline *pipeline_new(const struct pipeline_limits *limits);
void pipeline_free(struct pipeline *p); /* must be empty, threads joined */

/* Intake. Takes r when true. False: not above what was read before in this epoch, or the slot is
 * not assigned (see tracker_begin()); r stays with the caller. Never blocks; may exceed the budget
 * by this one record. */
bool pipeline_offer(struct pipeline *p, struct record *r) MUST_CHECK;

/* Intake. May this slot be read now? again: it was set aside because others had to go on without
 * it; then only when it holds less than half of its share, or a stuck one would take what room the
 * others leave, again and again. */
bool pipeline_wants(struct pipeline *p, uint32_t slot, bool again);

/* Intake. See tracker_end(). */
void pipeline_end(struct pipeline *p, uint32_t slot, int64_t end_offset);

/* Worker. Blocks until records may run; gathers up to cap of one route for at most linger_ms after
 * the first became ready. 0: stopping and nothing left to run. All workers should pass the same cap
 * and linger_ms: those of the last call decide when a sleeping one is woken. */
size_t pipeline_take(struct pipeline *p, struct record **out, size_t cap, size_t max_bytes,
                     int64_t linger_ms);

/* Worker. A route is not held any more: wakes the intake if it waits for that. */
void pipeline_nudge(struct pipeline *p);

/* Worker. The lanes go on; the records stay with the caller. */
void pipeline_finish(struct pipeline *p, struct record *const *r, size_t n);

/* Worker. Gives the records back for another attempt after wait_ms, or drops those whose epoch is
 * over (late) or whose slot is being drained. Counts the attempt. */
void pipeline_defer(struct pipeline *p, struct record *const *r, size_t n, int64_t wait_ms);

/* Worker. Which of these are still of the epoch in force: current[i] is set. */
void pipeline_current(struct pipeline *p, struct record *const *r, size_t n, bool *current);

/* Worker or notifier, after finish. The offsets are done; frees the records. outcome says under
 * what the books count them. A late record counts as late. */
enum pipeline_outcome {
    PIPELINE_INSERTED,
    PIPELINE_DUPLICATE,
    PIPELINE_DEAD,
    PIPELINE_SKIPPED,
    PIPELINE_OUTCOMES
};
struct settled {
    struct record *record;
    enum pipeline_outcome outcome;
};
void pipeline_settle(struct pipeline *p, const struct settled *s, size_t n);

/* Intake, inside the rebalance callback. next_offset as in tracker_assign(). */
void pipeline_assign(struct pipeline *p, uint32_t slot, int64_t next_offset);

/* Intake. Stops dispatch of these slots, drops what has not started, waits for the rest: with a
 * worker, or finished and not settled. False: the deadline passed with records still out; they
 * will come back late and be ignored. Ends at revoke (or at the next assign): until then nothing of
 * these slots is handed out, and what is offered is dropped. Dropped records stay unsettled, so the
 * watermark never passes them. */
bool pipeline_drain(struct pipeline *p, const uint32_t *slots, size_t n, int64_t timeout_ms);

/* Intake. Ends the epoch, drops what is queued and returns the offset to commit (-1: none). */
int64_t pipeline_revoke(struct pipeline *p, uint32_t slot);

int64_t pipeline_watermark(struct pipeline *p, uint32_t slot);

/* Intake. What the group has committed of this slot, for the statistics; -1: nothing known. */
void pipeline_committed(struct pipeline *p, uint32_t slot, int64_t offset);

/* Supervisor. Workers leave pipeline_take() once nothing is queued; nobody lingers any more. Drain
 * first what should not be waited for. */
void pipeline_stop(struct pipeline *p);

/* Any thread: the books. consumed = offered; consumed = sum of outcomes + late + dropped + open,
 * always: pipeline_stats() and pipeline_revoke() abort when it is not so. */
struct pipeline_slot_stats {
    uint32_t slot;
    bool assigned;
    uint64_t consumed, outcomes[PIPELINE_OUTCOMES], late, dropped;
    size_t open, open_bytes; /* late ones that are still out included */
    size_t letters; /* of the open ones: deferred because their dead letter was not taken */
    int64_t watermark, position;
    int64_t committed;    /* as pipeline_committed() was told; -1: not known */
    int64_t oldest_at_ms; /* when the record that holds the watermark was offered; 0 when none */
};
struct pipeline_stats {
    struct sched_stats sched;
    size_t open, open_bytes;
    size_t in_flight; /* with a worker: taken, neither finished nor deferred */
    size_t n_slots;   /* ever assigned */
};
/* Fills *stats, and up to cap slots. Slots that were ever assigned, by number. */
void pipeline_stats(struct pipeline *p, struct pipeline_stats *stats,
                    struct pipeline_slot_stats *slots, size_t cap);

#endif
