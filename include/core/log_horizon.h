/*
 * log_horizon.h - which ids in counter documents nobody can repeat any more. Pure.
 *
 * X is read at some moment: older than the oldest event that is open then, and than that moment by
 * attempt and margin. An id older than X is one of an event that was closed then: it was counted
 * by an attempt that was over, so its event stood there to be seen. Whoever saw it open before is
 * too late once attempt and margin have passed since: so long X waits before it is used.
 */
#ifndef IDEMSINK_CORE_LOG_HORIZON_H
#define IDEMSINK_CORE_LOG_HORIZON_H

#include <stdbool.h>
#include <stdint.h>

/* By how much two servers of one set may differ in what they hold for now, and clocks in how fast
 * they go. */
enum { LOG_MARGIN_MS = 1000 };

struct log_horizon {
    int64_t usable_ms; /* ids before this may go; INT64_MIN: none */
    int64_t read_ms;   /* usable later */
    int64_t read_at_ms;
    bool reading; /* read_ms and read_at_ms are set */
};

void log_horizon_init(struct log_horizon *h);

/* Is X to be read again? mono_ms: a clock that only goes forward. */
bool log_horizon_due(struct log_horizon *h, int64_t mono_ms, int64_t attempt_ms);

/* Read: server_ms as it was before, not ahead; mono_ms as it is behind the answer. oldest_open_ms:
 * INT64_MAX: none is open. */
void log_horizon_read(struct log_horizon *h, int64_t server_ms, int64_t mono_ms,
                      int64_t oldest_open_ms, int64_t attempt_ms);

#endif
