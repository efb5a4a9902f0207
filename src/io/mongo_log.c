/*
 * mongo_log.c - carries core/log_plan.h: batches whose effects need no transaction.
 */
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/mongo_log_private.h"

enum { COMMAND_BYTES_MAX = 14 << 20, SAY_AGAIN_MS = 10000, CLOCK_EVERY_MS = 2000 };

struct mongo_log *mongo_log_new(struct mongo *m, mongoc_client_t *client)
{
    struct mongo_log *l = mem_new(sizeof *l);
    struct log_limits limits = {.max_ops = (size_t)m->config->worker.batch,
                                .max_bytes = COMMAND_BYTES_MAX};

    l->m = m;
    l->client = client;
    l->plan = log_plan_new(&limits);
    MUST(getentropy(&l->seed, sizeof l->seed) == 0);
    l->horizons = mem_array(m->config->n_routes ? m->config->n_routes : 1, sizeof *l->horizons);
    for (size_t i = 0; i < m->config->n_routes; i++)
        log_horizon_init(&l->horizons[i], m->config->effects.attempt_ms);
    return l;
}

void mongo_log_free(struct mongo_log *l)
{
    if (!l)
        return;
    log_plan_free(l->plan);
    mem_free(l->horizons);
    mem_free(l);
}

/* --- errors --- */

void mongo_log_failed(struct mongo_log *l, const bson_error_t *be, struct outcome_call *call)
{
    call->fault = mongo_fault(be);
    call->code = (int)be->code;
    call->message = be->message;
    l->clock_stale = true; /* the next server may have another clock */
    mongo_say_no_answer("effects", call->fault, be);
}

/* --- the server's clock --- */

/* Never ahead of it: it showed localTime before the reply was here. */
int64_t mongo_log_now(const struct mongo_log *l)
{
    return l->clock_server_ms + (clock_mono_ms() - l->clock_mono_ms);
}

bool mongo_log_clock(struct mongo_log *l, struct outcome_call *call, bson_error_t *be)
{
    bson_t reply;
    bson_iter_t at;

    if (l->clock_mono_ms != 0 && !l->clock_stale &&
        clock_mono_ms() - l->clock_mono_ms < CLOCK_EVERY_MS)
        return true;
    bool ok = mongo_hello(l->client, l->m->primary, &reply, be);
    int64_t mono_ms = clock_mono_ms();
    if (!ok) {
        mongo_log_failed(l, be, call);
    } else if (bson_iter_init_find(&at, &reply, "localTime") && BSON_ITER_HOLDS_DATE_TIME(&at)) {
        l->clock_server_ms = bson_iter_date_time(&at);
        l->clock_mono_ms = mono_ms;
        l->clock_stale = false;
    } else {
        *call = (struct outcome_call){.fault = CALL_DRIVER, .message = "hello has no localTime"};
        ok = false;
    }
    bson_destroy(&reply);
    return ok;
}

/* --- a batch --- */

/* Between every two commands. */
static void fault_before(enum log_command_kind kind)
{
    switch (kind) {
    case LOG_LOOK:
        FAULT("log.before_look");
        break;
    case LOG_NUMBER:
        FAULT("log.before_number");
        break;
    case LOG_START:
        FAULT("log.before_start");
        break;
    case LOG_HIGHEST:
        FAULT("log.before_highest");
        break;
    case LOG_WRITE:
        FAULT("log.before_write");
        break;
    case LOG_REOPEN:
        FAULT("log.before_reopen");
        break;
    case LOG_CLAIM:
        FAULT("log.before_claim");
        break;
    case LOG_ADD:
        FAULT("log.before_add");
        break;
    case LOG_MARK:
        FAULT("log.before_mark");
        break;
    case LOG_READ:
        FAULT("log.before_read");
        break;
    case LOG_DID:
        FAULT("log.before_did");
        break;
    case LOG_COUNT:
        FAULT("log.before_count");
        break;
    case LOG_CHECK:
        FAULT("log.before_check");
        break;
    case LOG_MAKE:
        FAULT("log.before_make");
        break;
    case LOG_REMOVE:
        FAULT("log.before_remove");
        break;
    case LOG_CLEAN:
        FAULT("log.before_clean");
        break;
    case LOG_FAIL:
        FAULT("log.before_fail");
        break;
    case LOG_CLOSE:
        FAULT("log.before_close");
        break;
    case LOG_PRUNE:
        FAULT("log.before_prune");
        break;
    case LOG_WAIT:
        break;
    }
}

static void carry(struct mongo_log *l, uint32_t route, const struct log_command *c)
{
    fault_before(c->kind);
    switch (c->kind) {
    case LOG_LOOK:
    case LOG_CHECK:
    case LOG_READ:
    case LOG_HIGHEST:
        mongo_log_read(l, route, c);
        return;
    case LOG_NUMBER:
    case LOG_START:
        mongo_log_number(l, route, c);
        return;
    case LOG_WAIT:
        (void)usleep((useconds_t)c->wait_ms * 1000);
        log_plan_answer(l->plan, &(struct outcome_call){.fault = CALL_FINE}, NULL);
        return;
    default:
        mongo_log_update(l, route, c);
    }
}

static void tell(struct mongo_log *l, uint32_t route)
{
    struct log_done done = log_plan_done(l->plan);
    struct mongo_log_counts *counts = &l->m->log_counts[route];

    atomic_fetch_add(&counts->failed, done.failed);
    atomic_fetch_add(&counts->missing, done.missing);
    atomic_fetch_add(&counts->completed, done.completed);
    atomic_fetch_add(&counts->full, done.full);
    if (done.failed > 0)
        log_error("an event's counters can't be moved: its document stays, and its _effects.failed "
                  "says why; idemsink reconcile repairs the counters",
                  LOG_TEXT("route", l->m->config->routes[route].name),
                  LOG_INT("events", (int64_t)done.failed));
    if (done.missing > 0) {
        static struct log_limit limit;
        int64_t held_back;

        if (log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
            log_warn("counter documents are missing, and upsert = false: not counted",
                     LOG_TEXT("route", l->m->config->routes[route].name),
                     LOG_INT("documents", done.missing), LOG_INT("held_back", held_back));
    }
}

const struct outcome *mongo_log_run(struct mongo_log *l, uint32_t route, const struct write_op *ops,
                                    size_t n, bool complete_only)
{
    struct log_command c;
    struct outcome_call call = {.fault = CALL_FINE};
    bson_error_t be = {0};
    int64_t deadline_ms = clock_mono_ms() + l->m->socket_timeout_ms;
    const struct config *config = l->m->config;
    bool ready = mongo_log_clock(l, &call, &be) && mongo_log_register(l, route, &call, &be);
    struct log_rules rules = {.route = &config->routes[route],
                              .now_ms = mongo_log_now(l),
                              .attempt_ms = config->effects.attempt_ms,
                              .keep = config->effects.keep,
                              .prune_ms = l->horizons[route].usable_ms,
                              .random = l->seed ^ (uint64_t)clock_mono_us(),
                              .complete_only = complete_only};

    log_plan_begin(l->plan, ops, n, &rules);
    if (!ready) {
        struct outcome o;

        outcome_of_failure(&call, &o);
        log_plan_stop(l->plan, o.retry);
    } else if (!mongo_log_is_registered(l, route, rules.now_ms)) { /* we have slept meanwhile */
        log_plan_stop(l->plan, RETRY_TIMEOUT);
    }
    while (log_plan_next(l->plan, mongo_log_now(l), &c)) {
        carry(l, route, &c);
        if (clock_mono_ms() >= deadline_ms)
            log_plan_stop(l->plan, RETRY_TIMEOUT);
    }
    tell(l, route);
    return log_plan_results(l->plan);
}

struct mongo_log_seen mongo_log_seen_of(const struct mongo *m, uint32_t route)
{
    struct mongo_log_counts *counts = &m->log_counts[route];

    return (struct mongo_log_seen){.failed = atomic_load(&counts->failed),
                                   .missing = atomic_load(&counts->missing),
                                   .completed = atomic_load(&counts->completed),
                                   .full = atomic_load(&counts->full)};
}

const struct outcome *mongo_log_write(struct mongo_log *l, uint32_t route,
                                      const struct write_op *ops, size_t n)
{
    MUST(route < l->m->config->n_routes);
    return mongo_log_run(l, route, ops, n, false);
}
