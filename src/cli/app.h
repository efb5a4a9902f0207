/*
 * app.h - the parts of a running worker, wired together. The only code that
 * knows both io and run.
 */
#ifndef IDEMSINK_CLI_APP_H
#define IDEMSINK_CLI_APP_H

#include <stdatomic.h>

#include "base/metrics.h"
#include "cli/cli.h"
#include "io/http.h"
#include "io/kafka.h"
#include "io/mongo.h"
#include "io/redis.h"
#include "run/chores.h"
#include "run/daemon.h"
#include "run/intake.h"
#include "run/notifier.h"
#include "run/pipeline.h"
#include "run/run_metrics.h"
#include "run/seen_listener.h"
#include "run/worker.h"

enum { APP_CHORES_MAX = 8 };
enum app_phase { APP_STARTING, APP_RUNNING, APP_STOPPING };

struct app {
    struct config *config;
    char *instance_id;
    struct mapping **mappings;
    struct metrics *metrics;
    struct http *http;
    struct mongo *mongo;
    struct pipeline *pipeline;
    struct source source;
    struct deadletter deadletter;
    struct bus bus;
    struct seen_cache *seen;
    struct seen_store seen_store;
    struct listener listener;
    struct seen_listener *seen_listener;
    struct lock lock;
    struct guards *guards;
    struct notifier *notifier;
    struct run_metrics *run_metrics;
    struct route_state *routes;
    struct intake *intake;
    struct stop stop;
    struct worker_shared shared;
    struct daemon *daemon;
    struct sweep *sweep;               /* NULL: no route needs it */
    struct reconcile_job *reconcile;   /* NULL: not asked for */
    struct chore jobs[APP_CHORES_MAX]; /* what chores gets at the start */
    size_t n_jobs;
    struct chores *chores; /* NULL: no jobs */
    _Atomic int phase;     /* enum app_phase; read by the HTTP thread */
};

/* What needs no service: configuration, mappings, metrics, the HTTP pages, the clients. on_stop:
 * see stop.h. */
bool app_open(struct app *a, struct config *config, void (*on_stop)(void *ctx),
              struct err *e) MUST_CHECK;

/* How each route is written is decided; its dedup index, and what its effects need, is made where
 * it says so, and proved. ERR_TRANSIENT: ask again later. */
bool app_prove_indexes(struct app *a, struct err *e) MUST_CHECK;

/* A job for the thread of the chores; before app_start(). Its ctx outlives app_stop(). */
void app_add_chore(struct app *a, const struct chore *job);

/* Joins the group and starts the threads. */
bool app_start(struct app *a, bool until_end, struct err *e) MUST_CHECK;

/* The first line: with what it runs, what is consumed, what the guarantees rest on. */
void app_log_start(const struct app *a);

/* After stop was asked. False: records are stuck with a worker; the caller must _exit() and not
 * call app_close(). */
bool app_stop(struct app *a, int64_t notifier_ms);

void app_close(struct app *a);

#endif
