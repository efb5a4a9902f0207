/*
 * notifier.h - tells other programs' caches, after MongoDB has acknowledged.
 *
 * One thread sends what core/coalesce.h says is due, and settles the records that waited for it
 * (delivery = "before_commit"). Records that nobody waits for are settled at once: best effort.
 *
 * Pushing never blocks. What is pending is bounded: best effort by redis.max_pending, before_commit
 * by the records themselves, which stay in the pipeline's budget until they are settled, so that
 * the intake stops reading.
 *
 * Redis away: the pending set is kept and sent when it is back, tried every min(n x 50 ms, 2 s).
 */
#ifndef IDEMSINK_RUN_NOTIFIER_H
#define IDEMSINK_RUN_NOTIFIER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/bytes.h"
#include "base/metrics.h"
#include "core/config.h"
#include "core/mapping.h"
#include "ports/bus.h"
#include "run/pipeline.h"

struct notifier;

/* Everything stays borrowed until notifier_free(). mappings: one per route; they tell what a rule's
 * keys collapse to when too many are pending. Starts the thread. */
struct notifier *notifier_new(const struct config *config, struct mapping *const *mappings,
                              struct bus bus, struct pipeline *pipeline, struct metrics *metrics);

/*
 * Any worker, after pipeline_finish(). Takes the records: what is to be told about those that are
 * in MongoDB (inserted or duplicate) is queued, and each is settled when nothing has to be waited
 * for, at once or later. m is the mapping of their route.
 */
void notifier_push(struct notifier *n, const struct mapping *m, uint32_t route,
                   const struct settled *settled, size_t count);

/*
 * Any thread, before notifier_push() of the records that moved the counters. Takes the items
 * (MIRRORs; rule: the counter's index) and leaves the list empty.
 */
void notifier_mirror(struct notifier *n, struct invalidation_list *l);

/*
 * Supervisor, once: no notifier_push() may be running or follow, and the epochs of all records must
 * be over (pipeline_revoke). Sends what is pending, without repetitions, for at most timeout_ms and
 * one set, then ends the thread. False: records were still waiting; their offsets were not
 * committed, they will be read again. What nobody waited for and was not sent is lost, counted and
 * logged.
 */
bool notifier_stop(struct notifier *n, int64_t timeout_ms);

void notifier_free(struct notifier *n); /* stopped; NULL is fine */

/* Any thread. */
struct notifier_stats {
    size_t pending; /* invalidations to be sent */
    size_t waiting; /* records that are settled only after theirs */
    bool up;        /* the last set was answered; true before the first */
};
struct notifier_stats notifier_stats(struct notifier *n);

/* Has the record that waits longest (before_commit) waited for Redis for patience_ms, beside the
 * window of coalesce? Appends how many wait, since when and why, for /readyz. Any thread. */
bool notifier_stuck(struct notifier *n, int64_t patience_ms, struct buf *why);

#endif
