/*
 * lock_batch.h - which keys the operations of a batch ask for, and which of them may be written
 * with the keys that were given. Pure.
 *
 * Nobody waits while he holds a lock: what is given is written and released, and only then is the
 * rest asked for again. So two processes that want the same keys can't wait for each other, in
 * whatever order they ask; the keys are sorted so that each is asked for once.
 */
#ifndef IDEMSINK_CORE_LOCK_BATCH_H
#define IDEMSINK_CORE_LOCK_BATCH_H

#include "core/mapping.h"

struct lock_batch;

struct lock_batch *lock_batch_new(void); /* reused from batch to batch */
void lock_batch_free(struct lock_batch *b);

/* ops stay borrowed until the last of the other calls; each has a lock. */
void lock_batch_begin(struct lock_batch *b, const struct write_op *ops, size_t n);

/* Their different keys, in the order of their bytes; *n of them. */
const char *const *lock_batch_keys(const struct lock_batch *b, size_t *n);

/* Index of the key of ops[i]. */
size_t lock_batch_key_of(const struct lock_batch *b, size_t i);

/*
 * given: by key. ready[i]: ops[i] has its key, and no operation before it in its lane has to wait.
 * needed[k]: a ready operation is written under key k. Returns how many are ready.
 */
size_t lock_batch_ready(struct lock_batch *b, const bool *given, bool *ready, bool *needed);

/* Brings the operations that are ready to the front, in their order, the others behind them in
 * theirs; and with them, when it is not NULL, what index[] says of each. */
void lock_batch_part(struct write_op *ops, size_t *index, const bool *ready, size_t n);

#endif
