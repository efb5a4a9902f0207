#include "core/log_horizon.h"

void log_horizon_init(struct log_horizon *h)
{
    *h = (struct log_horizon){.usable_ms = INT64_MIN};
}

bool log_horizon_due(struct log_horizon *h, int64_t mono_ms, int64_t attempt_ms)
{
    if (!h->reading)
        return true;
    if (mono_ms - h->read_at_ms < attempt_ms + LOG_MARGIN_MS)
        return false;
    h->usable_ms = h->read_ms;
    h->reading = false;
    return true;
}

void log_horizon_read(struct log_horizon *h, int64_t server_ms, int64_t mono_ms,
                      int64_t oldest_open_ms, int64_t attempt_ms)
{
    int64_t over_ms = server_ms - attempt_ms - LOG_MARGIN_MS;

    h->read_ms = oldest_open_ms < over_ms ? oldest_open_ms : over_ms;
    h->read_at_ms = mono_ms;
    h->reading = true;
}
