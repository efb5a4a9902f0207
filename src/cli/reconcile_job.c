#include "cli/reconcile_job.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "cli/reconcile.h"

/* The table is beside all that a worker needs; more counters than fit are done in parts. */
enum {
    TABLE_BYTES = 64 << 20,
    PER_SECOND = 200,
    POLL_LEAST_MS = 1000,
    POLL_MOST_MS = 60000,
    AGAIN_MS = 10000,
    LISTED = 20
};

struct reconcile_job {
    struct mongo *mongo;
    const struct config *config;
    const char *owner;
    struct notifier *notifier;     /* NULL: nothing is mirrored */
    const struct chore_stop *stop; /* of the run */
    struct metric *differences, *repaired, *unable, *last;
    int listed;
};

struct reconcile_job *reconcile_job_new(struct mongo *m, const struct config *config,
                                        const char *owner, struct notifier *notifier,
                                        struct metrics *metrics)
{
    struct reconcile_job *j;
    bool any = false;

    for (size_t i = 0; i < config->n_routes; i++)
        any = any || config_has_effects(&config->routes[i]);
    if (!any || config->effects.reconcile_every_ms == 0)
        return NULL;
    j = mem_new(sizeof *j);
    *j = (struct reconcile_job){.mongo = m, .config = config, .owner = owner, .notifier = notifier};
    j->differences = metrics_counter(metrics, "idemsink_reconcile_differences_total",
                                     "Counters and sequences that were not what they count.", "");
    j->repaired = metrics_counter(metrics, "idemsink_reconcile_repaired_total",
                                  "Those of them that were repaired.", "");
    j->unable = metrics_gauge(metrics, "idemsink_reconcile_unable",
                              "Counters and sequences that the last run could not look at.", "");
    j->last = metrics_gauge(metrics, "idemsink_reconcile_last_run_seconds",
                            "When this process last came to the end of a run, since 1970.", "");
    return j;
}

void reconcile_job_free(struct reconcile_job *j)
{
    mem_free(j);
}

/* No keys: they come out of payloads. */
static void found(void *ctx, const struct reconcile_finding *f)
{
    struct reconcile_job *j = ctx;

    if (j->listed++ >= LISTED)
        return;
    log_warn("a counter is not what it counts", LOG_TEXT("what", f->what),
             LOG_TEXT("database", f->database), LOG_TEXT("collection", f->collection),
             LOG_TEXT("field", f->field), LOG_TEXT("counted", f->counted),
             LOG_TEXT("stored", f->stored), LOG_TEXT("done", f->done));
}

static void unable(void *ctx, const char *what, const char *why)
{
    (void)ctx;
    log_warn("can't be reconciled", LOG_TEXT("what", what), LOG_TEXT("why", why));
}

static void note(void *ctx, const char *text)
{
    (void)ctx;
    log_info("reconcile is slow", LOG_TEXT("why", text));
}

static void progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    (void)ctx, (void)what, (void)done, (void)total;
}

static bool mirror(void *ctx, struct invalidation_list *l, struct err *e)
{
    const struct reconcile_job *j = ctx;

    (void)e;
    if (j->notifier)
        notifier_mirror(j->notifier, l);
    return true;
}

static bool stopping(void *ctx, int64_t wait_ms)
{
    const struct reconcile_job *j = ctx;

    return j->stop->asked(j->stop->self, wait_ms);
}

static bool run(void *ctx, const struct chore_stop *stop)
{
    struct reconcile_job *j = ctx;
    const struct config *c = j->config;
    const struct reconcile_options options = {.apply = true,
                                              .secondary =
                                                  c->effects.reconcile_from == READ_FROM_SECONDARY,
                                              .counters = true,
                                              .sequences = true,
                                              .counter = -1,
                                              .per_second = PER_SECOND,
                                              .memory_bytes = TABLE_BYTES,
                                              .lease_every_ms = c->effects.reconcile_every_ms,
                                              .lease = true,
                                              .owner = j->owner};
    const struct reconcile_calls calls = {.found = found,
                                          .unable = unable,
                                          .note = note,
                                          .progress = progress,
                                          .mirror = mirror,
                                          .stopping = stopping,
                                          .ctx = j};
    int64_t started_ms = clock_mono_ms();
    struct reconcile_books books;
    struct err e;

    j->stop = stop;
    j->listed = 0;
    bool ok = reconcile_all(j->mongo, c, &options, &calls, &books, &e);
    metric_add(j->differences, (int64_t)books.differences);
    metric_add(j->repaired, (int64_t)books.repaired);
    if (!ok) {
        log_warn("counters could not be reconciled", LOG_TEXT("error", e.text),
                 LOG_INT("again_in_ms", AGAIN_MS));
        return false;
    }
    if (books.busy || books.stopped)
        return true;
    metric_set(j->unable, (int64_t)books.unable);
    metric_set(j->last, clock_wall_ms() / 1000);
    log_info("counters reconciled", LOG_INT("counters", (int64_t)books.counters),
             LOG_INT("groups", (int64_t)books.groups),
             LOG_INT("differences", (int64_t)books.differences),
             LOG_INT("repaired", (int64_t)books.repaired), LOG_INT("unable", (int64_t)books.unable),
             LOG_INT("ms", clock_mono_ms() - started_ms));
    return true;
}

/* Asked more often than it is due: the lease says when somebody has done it last. */
struct chore reconcile_job_chore(struct reconcile_job *j)
{
    int64_t every_ms = j->config->effects.reconcile_every_ms / 4;

    if (every_ms < POLL_LEAST_MS)
        every_ms = POLL_LEAST_MS;
    if (every_ms > POLL_MOST_MS)
        every_ms = POLL_MOST_MS;
    return (struct chore){.name = "reconcile",
                          .first_ms = every_ms,
                          .every_ms = every_ms,
                          .again_ms = AGAIN_MS,
                          .ctx = j,
                          .run = run};
}
