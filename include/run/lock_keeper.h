/*
 * lock_keeper.h - the thread that renews the locks of whoever works longer than a third of their
 * time, and releases later what could not be released when it was due.
 *
 * It has a session of its own. One lock, a leaf; nothing is asked while it is held.
 */
#ifndef IDEMSINK_RUN_LOCK_KEEPER_H
#define IDEMSINK_RUN_LOCK_KEEPER_H

#include "ports/lock.h"

struct lock_keeper;

/* What one worker holds. Zero-initialised; the worker's own until it is given to the keeper. */
struct lock_held {
    struct lock_set set; /* borrowed, as long as it is held */
    uint64_t id;
    int64_t renew_at_ms; /* monotonic */
    struct lock_held *next;
};

struct lock_keeper *lock_keeper_start(struct lock lock);
/* Tries once more to release what is left, until that fails, and ends the thread. NULL is fine. */
void lock_keeper_stop(struct lock_keeper *k);

/* From now on h->set, which was asked for at asked_at_ms, is renewed; until lock_keeper_drop(). */
void lock_keeper_hold(struct lock_keeper *k, struct lock_held *h, int64_t asked_at_ms);
void lock_keeper_drop(struct lock_keeper *k, struct lock_held *h);

/* Nobody knows whether these are still ours: they are released as soon as that can be, or they have
 * run out. Copies the set. */
void lock_keeper_owe(struct lock_keeper *k, const struct lock_set *set);

#endif
