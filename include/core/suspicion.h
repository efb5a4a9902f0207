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
    uint64_t stored; /* how many documents had been stored at the attempt before */
};

enum suspicion_verdict {
    SUSPICION_NONE,  /* not this record's own: everybody fails */
    SUSPICION_AGAIN, /* it may be its own: send it again, alone */
    SUSPICION_GUILTY
};

/*
 * An operation is UNKNOWN with o->doubt set. stored: documents stored in the collection so far by
 * this process, by whichever route; it only grows. among_stored: the batch that this was part of
 * stored something. max: 0 for never GUILTY.
 */
enum suspicion_verdict suspicion_judge(struct suspicion *s, const struct outcome *o,
                                       uint64_t stored, bool among_stored, uint32_t max);

#endif
