/*
 * guard.h - between mapping and write, for routes with [route.lock]: nothing is written without its
 * lock.
 *
 *   guard_begin(g, route)
 *   while ((k = guard_take(g, ops, index, n)) > 0)
 *       ops[0..k) are written now, then guard_release(g), and the others are taken next
 *
 * A batch doesn't wait while it holds locks: what is given is written and released, then the rest
 * is asked for again until route.lock.wait is over. Whoever gets nothing goes back into his lane.
 *
 * Before something is handed out for writing, its lock was seen to be ours; the keeper renews it
 * while the write lasts. A process that sleeps between that and the arrival of its write can't be
 * held back by a lock, only by a fence: with one, the number is given after the lock was taken, and
 * the lock is confirmed after the number was given, so no later holder has a lower number.
 */
#ifndef IDEMSINK_RUN_GUARD_H
#define IDEMSINK_RUN_GUARD_H

#include "base/metrics.h"
#include "core/config.h"
#include "core/mapping.h"
#include "core/outcome.h"
#include "ports/lock.h"
#include "ports/sink.h"
#include "run/stop.h"

/* What the workers share. Any thread. */
struct guards;

/* Starts the keeper's thread. NULL: no route has a lock. Everything stays borrowed; stop may be
 * NULL. The registry must not render any more when it is freed. */
struct guards *guards_new(const struct config *c, struct lock lock, struct metrics *registry,
                          struct stop *stop);
void guards_free(struct guards *s); /* NULL is fine; every guard is closed */

/* One for each thread that writes. session: the thread's own of this sink, borrowed. */
struct guard;
struct guard *guard_open(struct guards *s, const struct sink *sink, void *session);
void guard_close(struct guard *g); /* NULL is fine; nothing is held */

/* A batch of this route begins. False: it has no lock, and nothing is to be taken. */
bool guard_begin(struct guard *g, uint32_t route);

/*
 * Waits until some of the operations have their locks. They stand in front then, in their order,
 * with their fencing number; the others behind, in theirs; index[] goes with them. Returns how
 * many; 0: none got any within the time, see guard_why().
 */
size_t guard_take(struct guard *g, struct write_op *ops, size_t *index, size_t n);

/* Before the operations are cleared. outcomes: of the n that were written, for the metrics. */
void guard_release(struct guard *g, const struct outcome *outcomes, size_t n);

/* After guard_take() said 0: NULL: the locks are somebody else's. Else what is wrong: class lock,
 * then *text is about Redis; or what MongoDB said about a fencing number. n: records that go back.
 */
const struct outcome *guard_why(struct guard *g, size_t n, const char **text);

/* Who goes back for want of a lock waits at most that long: a dead holder's is gone by then. */
int64_t guard_wait_max_ms(const struct guard *g);

#endif
