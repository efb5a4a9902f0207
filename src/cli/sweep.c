#include "cli/sweep.h"

#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/mongo_lease.h"

enum { LEASE_MS = 30000, EVERY_MIN_MS = 500, SAY_AGAIN_MS = 60000 };

struct sweep {
    struct mongo *mongo;
    const struct config *config;
    const char *owner;
    struct mongo_sweep *sweep;
};

static bool is_swept(const struct sweep *s, size_t route)
{
    return mongo_is_swept(s->mongo, (uint32_t)route);
}

static void collect(struct buf *out, void *ctx)
{
    static const struct {
        const char *name, *help;
    } families[] = {
        {"idemsink_effects_failed_total",
         "Events whose counters can't be moved (overflow, no integer there)."},
        {"idemsink_effects_missing_total",
         "Counter documents that were not there, with upsert = false."},
        {"idemsink_effects_completed_total", "Events whose effects another attempt had left open."},
        {"idemsink_effects_full_total", "Times that a counter document held effects.keep ids."},
    };
    const struct sweep *s = ctx;

    for (size_t f = 0; f < sizeof families / sizeof families[0]; f++) {
        metrics_head(out, families[f].name, "counter", families[f].help);
        for (size_t i = 0; i < s->config->n_routes; i++) {
            struct mongo_log_seen seen = mongo_log_seen_of(s->mongo, (uint32_t)i);
            const uint64_t values[] = {seen.failed, seen.missing, seen.completed, seen.full};
            struct buf labels = {0};

            if (!is_swept(s, i))
                continue;
            metrics_label(&labels, "route", s->config->routes[i].name);
            metrics_line(out, families[f].name, buf_text(&labels), (double)values[f]);
            buf_clear(&labels);
        }
    }
}

struct sweep *sweep_new(struct mongo *m, const struct config *config, const char *owner,
                        struct metrics *metrics)
{
    struct sweep *s = mem_new(sizeof *s);
    bool any = false;

    *s = (struct sweep){.mongo = m, .config = config, .owner = owner};
    for (size_t i = 0; i < config->n_routes; i++)
        any = any || is_swept(s, i);
    if (!any) {
        mem_free(s);
        return NULL;
    }
    s->sweep = mongo_sweep_new(m);
    metrics_collector(metrics, collect, s);
    return s;
}

void sweep_free(struct sweep *s)
{
    if (!s)
        return;
    mongo_sweep_free(s->sweep);
    mem_free(s);
}

static bool is_stop_asked(void *ctx)
{
    const struct chore_stop *stop = ctx;

    return stop->asked(stop->self, 0);
}

static bool sweep_route(struct sweep *s, uint32_t route, struct chore_stop *stop, struct err *e)
{
    const struct config_route *r = &s->config->routes[route];
    char *name = mem_printf("sweep %s.%s", r->database, r->collection);
    struct mongo_lease_terms terms = {
        .database = r->database, .name = name, .owner = s->owner, .hold_ms = LEASE_MS};
    struct mongo_lease lease;
    struct mongo_swept swept = {0};
    struct err ignored;
    bool held = false, ok = mongo_lease_take(s->mongo, &terms, &lease, &held, e);

    if (ok && held) {
        FAULT("sweep.before_find");
        ok = mongo_log_sweep(s->sweep, route, is_stop_asked, stop, &swept, e);
        FAULT("sweep.before_release");
        (void)!mongo_lease_release(s->mongo, &lease, ok, &ignored);
        if (swept.completed > 0 || swept.left > 0)
            log_info("effects that were left open are completed", LOG_TEXT("route", r->name),
                     LOG_INT("events", (int64_t)swept.completed),
                     LOG_INT("failed", (int64_t)swept.failed),
                     LOG_INT("left", (int64_t)swept.left));
    }
    mem_free(name);
    return ok;
}

static bool run(void *ctx, const struct chore_stop *stop)
{
    static struct log_limit limit;
    struct sweep *s = ctx;
    struct chore_stop own = *stop;
    int64_t held_back;
    struct err e;
    bool ok = true;

    for (size_t i = 0; i < s->config->n_routes && !stop->asked(stop->self, 0); i++) {
        if (!is_swept(s, i) || sweep_route(s, (uint32_t)i, &own, &e))
            continue;
        ok = false;
        if (log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
            log_warn("effects that were left open can't be completed now",
                     LOG_TEXT("route", s->config->routes[i].name), LOG_TEXT("error", e.text),
                     LOG_INT("held_back", held_back));
    }
    return ok;
}

struct chore sweep_chore(struct sweep *s)
{
    int64_t every_ms = s->config->effects.sweep_after_ms / 2;

    if (every_ms < EVERY_MIN_MS)
        every_ms = EVERY_MIN_MS;
    return (struct chore){
        .name = "sweep", .first_ms = every_ms, .every_ms = every_ms, .ctx = s, .run = run};
}
