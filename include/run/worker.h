/*
 * worker.h - takes batches from the pipeline, writes them, and sends every
 * record on its one way out.
 *
 * A worker thread owns its sink session and its buffers. Everything in struct
 * worker_shared is read only, or safe from any thread by its own contract.
 */
#ifndef IDEMSINK_RUN_WORKER_H
#define IDEMSINK_RUN_WORKER_H

#include <stdatomic.h>

#include "core/config.h"
#include "core/mapping.h"
#include "ports/deadletter.h"
#include "ports/sink.h"
#include "run/guard.h"
#include "run/notifier.h"
#include "run/pipeline.h"
#include "run/route_state.h"
#include "run/run_metrics.h"
#include "run/seen_cache.h"
#include "run/stop.h"

struct worker_shared {
    const struct config *config;
    struct mapping *const *mappings; /* by route */
    struct pipeline *pipeline;
    struct sink sink;
    struct deadletter deadletter;
    struct guards *guards;     /* NULL: no route has a lock */
    struct notifier *notifier; /* NULL: nothing is told to anybody */
    struct seen_cache *seen;   /* NULL: no route has one */
    struct run_metrics *metrics;
    struct route_state *routes;
    struct stop *stop;
    _Atomic int64_t
        dead_letters_at_ms; /* 0: in order; else monotonic: not before this is it tried again */
};

/* The thread's function; arg is a struct worker_shared *. Ends when pipeline_take() says so.
 * Returns NULL. */
void *worker_main(void *arg);

#endif
