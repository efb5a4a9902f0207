/*
 * suspicion.h - when an answer of the server that nobody knows is the record's own fault. Pure.
 *
 * A code that is not known to be permanent is an unknown outcome: the same is sent again (G7). If
 * it is the record's fault after all, that would hold up its lane for ever. So a record that was
 * refused in such a way is sent again alone, and each attempt speaks against it only when other
 * documents were stored in the same collection since the attempt before: in an outage, or while
 * nothing else is written, it waits, however long that takes. After `max` such repetitions with one
 * and the same code it is given up.
 *
 * A record that was refused in such a way and was stored after all proves that the trouble passes:
 * then everybody's repetitions start again at 0. A bad one is never stored, so it clears nobody,
 * nor do several; where a server flaps, somebody is cleared all the time and nobody is given up.
 *
 * Only stored documents count as a sign that the server takes writes: a server that refuses all
 * writes may still find duplicates.
 */
#ifndef IDEMSINK_CORE_SUSPICION_H
#define IDEMSINK_CORE_SUSPICION_H

#include <stdbool.h>
#include <stdint.h>

#include "core/outcome.h"

/* Kept with the record from attempt to attempt; zero: none. */
struct suspicion {
    int code; /* the last one that nobody knew; 0: none */
    uint32_t repeats;
    uint64_t stored; /* the signs at the attempt before */
    uint64_t cleared;
};

/* What else is known of the collection, by whichever route. Both counts only grow. */
struct suspicion_signs {
    uint64_t stored;  /* documents that this process has stored so far */
    uint64_t cleared; /* records under suspicion (of whatever code) that were stored, or found to be
                         duplicates, after all */
    bool among_stored; /* the batch that the operation was part of stored something */
};

enum suspicion_verdict {
    SUSPICION_NONE,  /* not this record's own: everybody fails */
    SUSPICION_AGAIN, /* it may be its own: send it again, alone */
    SUSPICION_GUILTY
};

/* An operation is UNKNOWN with o->doubt set. max: 0 for never GUILTY. */
enum suspicion_verdict suspicion_judge(struct suspicion *s, const struct outcome *o,
                                       const struct suspicion_signs *signs, uint32_t max);

#endif
