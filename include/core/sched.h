/*
 * sched.h - which record may run next.
 *
 * Records of one slot and ordering key form a lane and are applied one after
 * another, in the order they were pushed. Lanes do not wait for each other.
 *
 * A take hands out *runs*: several consecutive records of one lane to one
 * worker, so that a key which carries half of the traffic is not bound to one
 * record per round trip. The worker keeps their order.
 *
 * A lane is in exactly one state, and each state is exactly one container:
 *
 *   READY    in the ready list of its route   its first records may be taken
 *   RUNNING  in neither                       a run of it is with a worker
 *   DELAYED  in the due-time heap             its first record waits to be tried again
 *
 * Only one function in sched.c changes a state. A RUNNING lane becomes READY,
 * DELAYED or is freed when the last record of its run is back (done, deferred
 * or dropped): until then no other worker gets anything of it. That also holds
 * across an epoch: after revoke and re-assign the new records of a key wait
 * behind the old run of that key.
 *
 * Plain data structure: no thread, no lock, no clock. The caller brings the
 * time and serialises the calls.
 */
#ifndef IDEMSINK_CORE_SCHED_H
#define IDEMSINK_CORE_SCHED_H

#include <stddef.h>
#include <stdint.h>

#include "core/record.h"

struct sched;

struct sched_limits {
    size_t routes;  /* r->route is below it */
    size_t run_max; /* records of one lane in one take; 1: no runs */
};

struct sched *sched_new(const struct sched_limits *limits);
void sched_free(struct sched *s); /* must be empty */

/* Appends r to the lane of (slot, order_space, order_key). The scheduler now holds r. */
void sched_push(struct sched *s, struct record *r);

/*
 * What a take could return now: the largest number of records of one route in READY lanes
 * (cut at run_max per lane), and since when the oldest READY lane is ready. Lanes whose due time
 * has come count. since_ms is INT64_MAX when nothing is ready.
 */
struct sched_ready {
    size_t records;
    int64_t since_ms;
};
struct sched_ready sched_ready(struct sched *s, int64_t now_ms);

/*
 * Takes records of ONE route, up to cap and max_bytes (at least one record when any is READY):
 * of the route that can fill cap, else of the one whose lane is READY longest. Lanes in the order
 * in which they became READY; records of one lane adjacent and in order. The caller holds them.
 */
size_t sched_take(struct sched *s, int64_t now_ms, struct record **out, size_t cap,
                  size_t max_bytes);

/* r, taken before, is applied (or will be dead-lettered without holding up its lane). r stays with
 * the caller. */
void sched_done(struct sched *s, struct record *r);

/* r, taken before, failed for now: back to its old place in its lane (before everything with a
 * higher offset), the lane not before due_ms. Several records of a run may be given back in any
 * order. */
void sched_defer(struct sched *s, struct record *r, int64_t due_ms);

/* When the next DELAYED lane is due; INT64_MAX when none is. */
int64_t sched_next_due(const struct sched *s);

/* Hands every record of this slot that is queued (not with a worker) to drop(). Returns how many.
 */
typedef void sched_drop_fn(struct record *r, void *arg);
size_t sched_drop_slot(struct sched *s, uint32_t slot, sched_drop_fn *drop, void *arg);

struct sched_stats {
    size_t queued, lanes, running, delayed; /* records, lanes, lanes, lanes */
};
struct sched_stats sched_stats(const struct sched *s);

#endif
