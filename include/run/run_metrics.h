/*
 * run_metrics.h - what the running daemon counts, by name. docs/metrics.md lists
 * every one; the names are public.
 */
#ifndef IDEMSINK_RUN_RUN_METRICS_H
#define IDEMSINK_RUN_RUN_METRICS_H

#include "base/metrics.h"
#include "core/config.h"
#include "core/outcome.h"
#include "core/reason.h"
#include "ports/sink.h"
#include "ports/source.h"
#include "run/pipeline.h"

/* Series of one route. */
struct route_metrics {
    struct metric *outcomes[PIPELINE_OUTCOMES];
    struct metric *batch_records, *batch_seconds;
    struct metric *conflicts; /* beside the outcomes, not one of them */
    struct metric *transactions, *transaction_conflicts, *missing; /* NULL: it has no effects */
};

enum move { MOVE_ASSIGNED, MOVE_REVOKED, MOVE_LOST, MOVES };

struct run_metrics {
    struct metrics *registry; /* borrowed */
    struct route_metrics *routes;
    struct metric *retries[RETRY_CLASSES];
    struct metric *dead_letters[REASON_COUNT];
    struct metric *commits_ok, *commits_failed;
    struct metric *rebalances[MOVES], *partitions[MOVES];
    struct metric *rewritten_logs;
    struct pipeline *pipeline; /* borrowed */
    struct source source;      /* borrowed */
};

/* Makes every series at once, so that a counter is there with 0 before its first event. */
struct run_metrics *run_metrics_new(struct metrics *registry, const struct config *c,
                                    struct pipeline *p, struct source source);
void run_metrics_free(struct run_metrics *m);

/* What a batch did beside its documents. */
void run_metrics_effects(const struct route_metrics *r, const struct sink *sink, void *session);

/* The books of every partition that was ever assigned, one log line each, and one line in all. */
void run_metrics_log_books(const struct run_metrics *m);

const char *pipeline_outcome_name(enum pipeline_outcome outcome);

#endif
