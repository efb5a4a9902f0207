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
 * Only lane_move() in sched.c changes a state. A RUNNING lane becomes READY,
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

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/record.h"

struct sched;

enum { SCHED_WINDOW = 2 };

struct sched_limits {
    size_t routes;  /* r->route is below it */
    size_t run_max; /* records of one lane in one take; 1: no runs */
};

struct sched *sched_new(const struct sched_limits *limits);
void sched_free(struct sched *s); /* must be empty */

/*
 * The hash of r's lane: r->order_hash, or when that is 0 one of slot, order_space and order_key. A
 * caller that sets order_hash must derive it from these three alone. Never 0. Touches nothing but
 * r, so it can be called before a lock is taken.
 */
uint64_t sched_hash(const struct record *r);

/* Appends r to the lane of (slot, order_space, order_key); with ORDER_NONE its offset is the key.
 * The scheduler now holds r. All records of a lane have the same route. */
void sched_push(struct sched *s, struct record *r);

/*
 * What a take could return now: the largest number of records of one route in READY lanes (cut at
 * run_max per lane), and since when the lane that is READY longest may be taken: the time at which
 * its first record was offered or came due. INT64_MAX when nothing is ready. Lanes whose due time
 * has come count.
 */
struct sched_ready {
    size_t records;
    int64_t since_ms;
};
struct sched_ready sched_ready(struct sched *s, int64_t now_ms);

/*
 * Takes records of ONE route, up to cap and max_bytes (at least one record when any is READY),
 * lanes in the order in which they became READY; records of one lane adjacent and in order. The
 * caller holds them.
 *
 * Of each lane comes its first record, and behind it what arrived within SCHED_WINDOW * cap records
 * of the route after the first record of the first lane. So a key that carries half of the traffic
 * gets half of a batch, and the records are still taken about in the order in which they came:
 * otherwise long runs leave holes behind them, the watermark stands still for as long as the whole
 * queue takes, and a crash repeats all of it.
 *
 * Which route: of those that can fill cap, or whose first lane is ready for linger_ms, the one
 * whose first lane waits longest; of all when there are none of these. So a route with a backlog
 * gets full batches and a quiet one is neither starved nor taken record by record.
 */
size_t sched_take(struct sched *s, int64_t now_ms, int64_t linger_ms, struct record **out,
                  size_t cap, size_t max_bytes);

/* r, taken before, is applied (or will be dead-lettered without holding up its lane). r stays with
 * the caller. */
void sched_done(struct sched *s, struct record *r);

/* r, taken before, failed for now: back to its old place in its lane (before everything with a
 * higher offset), the lane not before due_ms (the latest of the run's). Several records of a run
 * may be given back in any order. */
void sched_defer(struct sched *s, struct record *r, int64_t due_ms);

/* Is r in a lane: queued, or taken and neither done nor deferred? */
bool sched_holds_lane(const struct record *r);

/* When the next DELAYED lane is due; INT64_MAX when none is. */
int64_t sched_next_due(const struct sched *s);

/* Hands every record of this slot that is queued (not with a worker) to drop(), which must not call
 * back. Returns how many. */
typedef void sched_drop_fn(struct record *r, void *arg);
size_t sched_drop_slot(struct sched *s, uint32_t slot, sched_drop_fn *drop, void *arg);

struct sched_stats {
    size_t queued, lanes, running, delayed; /* records, lanes, lanes, lanes */
};
struct sched_stats sched_stats(const struct sched *s);

#endif
