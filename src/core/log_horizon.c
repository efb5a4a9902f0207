#include "core/log_horizon.h"

enum { HOLD_ATTEMPTS = 4 }; /* renewed with each reading of X, which is after one */

void log_horizon_init(struct log_horizon *h, int64_t attempt_ms)
{
    *h = (struct log_horizon){.attempt_ms = attempt_ms,
                              .longest_ms = attempt_ms,
                              .over_ms = INT64_MIN,
                              .usable_ms = INT64_MIN};
}

int64_t log_horizon_hold(int64_t attempt_ms)
{
    return HOLD_ATTEMPTS * (attempt_ms + LOG_MARGIN_MS);
}

bool log_horizon_is_registered(const struct log_horizon *h, int64_t now_ms)
{
    return now_ms + h->attempt_ms + LOG_MARGIN_MS <= h->over_ms;
}

void log_horizon_registered(struct log_horizon *h, int64_t longest_ms, int64_t over_ms)
{
    h->longest_ms = longest_ms;
    h->over_ms = over_ms;
}

bool log_horizon_due(struct log_horizon *h, int64_t mono_ms)
{
    if (!h->reading)
        return true;
    if (mono_ms < h->usable_from_ms)
        return false;
    h->usable_ms = h->read_ms;
    h->reading = false;
    return true;
}

void log_horizon_read(struct log_horizon *h, int64_t server_ms, int64_t mono_ms,
                      int64_t oldest_open_ms)
{
    int64_t over_ms = server_ms - h->longest_ms - LOG_MARGIN_MS;

    h->read_ms = oldest_open_ms < over_ms ? oldest_open_ms : over_ms;
    h->usable_from_ms = mono_ms + h->longest_ms + LOG_MARGIN_MS;
    h->reading = true;
}
