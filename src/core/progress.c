#include "core/progress.h"

#include <inttypes.h>

struct progress progress_begin(const char *what, int64_t now_ms, int64_t first_ms, int64_t every_ms)
{
    return (struct progress){
        .what = what, .started_ms = now_ms, .next_ms = now_ms + first_ms, .every_ms = every_ms};
}

bool progress_due(struct progress *p, int64_t now_ms)
{
    if (now_ms < p->next_ms)
        return false;
    p->next_ms = now_ms + p->every_ms;
    return true;
}

static void time_text(uint64_t seconds, struct buf *out)
{
    if (seconds >= 3600)
        buf_printf(out, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600, seconds / 60 % 60);
    else if (seconds >= 60)
        buf_printf(out, "%" PRIu64 " min %" PRIu64 " s", seconds / 60, seconds % 60);
    else
        buf_printf(out, "%" PRIu64 " s", seconds);
}

void progress_text(const struct progress *p, int64_t now_ms, uint64_t done, uint64_t total,
                   struct buf *out)
{
    double seconds = (double)(now_ms - p->started_ms) / 1000.0;
    double rate = seconds > 0 ? (double)done / seconds : 0;

    buf_printf(out, "%s: %" PRIu64, p->what, done);
    if (total > 0)
        buf_printf(out, " of %" PRIu64 " (%.0f %%)", total,
                   done < total ? 100.0 * (double)done / (double)total : 100.0);
    buf_printf(out, ", %.0f/s", rate);
    if (total <= done)
        return;
    if (rate <= 0) {
        buf_add_text(out, ", no telling how long");
        return;
    }
    buf_add_text(out, ", about ");
    time_text((uint64_t)((double)(total - done) / rate + 0.5), out);
    buf_add_text(out, " left");
}
