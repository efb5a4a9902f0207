/*
 * progress.h - how far a long pass is, how fast, and how long it still takes. The time comes from
 * outside.
 */
#ifndef IDEMSINK_CORE_PROGRESS_H
#define IDEMSINK_CORE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"

struct progress {
    const char *what; /* "records" */
    int64_t started_ms, next_ms, every_ms;
};

/* first_ms: when it is due for the first time, after the begin. */
struct progress progress_begin(const char *what, int64_t now_ms, int64_t first_ms,
                               int64_t every_ms);

/* Is it time to show it again? */
bool progress_due(struct progress *p, int64_t now_ms);

/* "records: 1234567 of 10000000 (12 %), 105000/s, about 1 min 23 s left". total 0: not known. */
void progress_text(const struct progress *p, int64_t now_ms, uint64_t done, uint64_t total,
                   struct buf *out);

#endif
