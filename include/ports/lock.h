/*
 * lock.h - what the guard needs from whoever keeps the locks.
 *
 * Locks run out by themselves: whoever holds one has it until the time that it was taken or renewed
 * for is over by the keeper's clock, or until somebody takes it away.
 */
#ifndef IDEMSINK_PORTS_LOCK_H
#define IDEMSINK_PORTS_LOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { LOCK_TOKEN_SIZE = 33 }; /* 128 random bits as hexadecimal, and a NUL */

/* Keys that are taken together under one token; all borrowed for the call. */
struct lock_set {
    const char *token; /* never used before, so that nobody takes it for his own */
    int64_t ttl_ms;
    const char *const *keys; /* different from each other */
    size_t n;
};

struct lock_ops {
    /* One session per thread, never shared. NULL never: connecting happens in the calls. */
    void *(*open)(void *self);
    void (*close)(void *session); /* releases nothing */

    /*
     * All three ask for every key in one pipelined set, and return within a small multiple of the
     * configured time-out. False: *e says why; nothing is known about any of the keys, so whatever
     * may have been taken is to be released. ERR_CONFIG, ERR_AUTH: an operator must act.
     *
     * take     yes[i]: the key was nobody's and has the token now, for ttl_ms
     * renew    yes[i]: it had the token, and has it for ttl_ms from now on
     * release  yes[i]: it had the token, and is nobody's now; others' are left alone
     */
    bool (*take)(void *session, const struct lock_set *set, bool *yes, struct err *e);
    bool (*renew)(void *session, const struct lock_set *set, bool *yes, struct err *e);
    bool (*release)(void *session, const struct lock_set *set, bool *yes, struct err *e);
};

/* ops == NULL: no route has a lock. */
struct lock {
    const struct lock_ops *ops;
    void *self;
};

#endif
