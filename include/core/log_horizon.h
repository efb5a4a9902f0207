/*
 * log_horizon.h - which ids in counter documents nobody can repeat any more. Pure.
 *
 * X is read at some moment: older than the oldest event that is open then, and than that moment by
 * attempt and margin. An id older than X is one of an event that was closed then: it was counted
 * by an attempt that was over, so its event stood there to be seen. Whoever saw it open before is
 * too late once attempt and margin have passed since: so long X waits before it is used.
 *
 * "Attempt" is the longest of all processes. A process registers its own before it begins one: a
 * document in the database says what the longest is, and until when, by the server's clock, all
 * attempts are over that were begun under it. Nothing is begun that would end later; one that has
 * run out counts no more. It is looked at behind the open events: who saw one of them open had
 * registered before.
 */
#ifndef IDEMSINK_CORE_LOG_HORIZON_H
#define IDEMSINK_CORE_LOG_HORIZON_H

#include <stdbool.h>
#include <stdint.h>

/* By how much two servers of one set may differ in what they hold for now, and clocks in how fast
 * they go. */
enum { LOG_MARGIN_MS = 1000 };

/* By how much behind its until_ms an attempt is over, and another one is let in: its last steps are
 * refused from until_ms + margin on (log_plan_next()), by a clock that may go back by as much. */
enum { LOG_OVER_MS = 2 * LOG_MARGIN_MS };

struct log_horizon {
    int64_t attempt_ms;          /* our own */
    int64_t longest_ms, over_ms; /* as registered last: of all, and when they are over */
    int64_t usable_ms;           /* ids before this may go; INT64_MIN: none */
    int64_t read_ms;             /* usable later */
    int64_t usable_from_ms;      /* by the clock that only goes forward */
    bool reading;                /* read_ms and usable_from_ms are set */
};

void log_horizon_init(struct log_horizon *h, int64_t attempt_ms);

/* For how long a registration is good: the one document has the longest, and nobody's ends
 * earlier than it was told. */
int64_t log_horizon_hold(int64_t attempt_ms);

/* May an attempt begin that is over at now + attempt, by the server's clock? Else register. */
bool log_horizon_is_registered(const struct log_horizon *h, int64_t now_ms);
void log_horizon_registered(struct log_horizon *h, int64_t longest_ms, int64_t over_ms);

/* Is X to be read again? mono_ms: a clock that only goes forward. */
bool log_horizon_due(struct log_horizon *h, int64_t mono_ms);

/* Read: server_ms as it was before, not ahead; then the open events (oldest_open_ms: INT64_MAX:
 * none is open), then registered; mono_ms as it is behind both answers. */
void log_horizon_read(struct log_horizon *h, int64_t server_ms, int64_t mono_ms,
                      int64_t oldest_open_ms);

#endif
