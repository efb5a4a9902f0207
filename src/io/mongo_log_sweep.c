/*
 * mongo_log_sweep.c - completes what has been open for long.
 */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/need.h"
#include "io/mongo_log_private.h"

enum { SWEEP_BATCH = 500, ROUNDS_MAX = 200 };

struct mongo_sweep {
    struct mongo *m;
    mongoc_client_t *client; /* NULL until the first sweep */
    struct mongo_log *log;
    int64_t before_ms; /* only what was begun before; INT64_MAX: by effects.sweep_after */
};

struct mongo_sweep *mongo_sweep_new(struct mongo *m)
{
    struct mongo_sweep *s = mem_new(sizeof *s);

    s->m = m;
    s->before_ms = INT64_MAX;
    return s;
}

void mongo_sweep_free(struct mongo_sweep *s)
{
    if (!s)
        return;
    mongo_log_free(s->log);
    if (s->client)
        mongoc_client_pool_push(s->m->pool, s->client);
    mem_free(s);
}

struct found {
    struct write_op *ops; /* SWEEP_BATCH, n of them are filled */
    size_t n, nameless;
};

/*
 * The events that have been open since before, as operations that say no more than which; the
 * oldest without the first `skip`: those that this sweep has left, or that are none of ours, are
 * still there, and still the oldest. (Has somebody else completed one of them, others are passed
 * over: the next sweep has them.)
 */
static bool find_open(struct mongo_log *l, uint32_t route, int64_t before_ms, uint64_t skip,
                      struct found *out, bson_error_t *be)
{
    const struct config_route *r = &l->m->config->routes[route];
    bson_t filter = BSON_INITIALIZER, opts = BSON_INITIALIZER, sort;
    const bson_t *found;
    mongoc_collection_t *c = mongo_log_events(l, route);

    mongo_log_open_filter(&filter, before_ms);
    mongo_log_read_opts(l->m, &opts);
    BSON_APPEND_DOCUMENT_BEGIN(&opts, "sort", &sort);
    BSON_APPEND_INT32(&sort, LOG_EFFECTS ".at", 1);
    bson_append_document_end(&opts, &sort);
    BSON_APPEND_INT64(&opts, "skip", (int64_t)skip);
    BSON_APPEND_INT64(&opts, "limit", SWEEP_BATCH);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, &filter, &opts, l->m->primary);
    while (mongoc_cursor_next(cursor, &found) && out->n < SWEEP_BATCH) {
        struct write_op *op = &out->ops[out->n];

        *op = (struct write_op){.filter = bson_new(), .document = bson_new()};
        if (log_event_filter(r, found, op->filter)) {
            out->n++;
        } else { /* somebody has taken its key away: nothing that we could name it by */
            bson_destroy(op->filter);
            bson_destroy(op->document);
            out->nameless++;
        }
    }
    bool ok = !mongoc_cursor_error(cursor, be);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    bson_destroy(&filter);
    bson_destroy(&opts);
    return ok;
}

/* One batch, behind what was left before. *more: there may be others. */
static bool sweep_some(struct mongo_sweep *s, uint32_t route, struct write_op *ops,
                       struct mongo_swept *out, bool *more, struct err *e)
{
    struct mongo_log *l = s->log;
    struct outcome_call call = {.fault = CALL_FINE};
    struct found f = {.ops = ops};
    bson_error_t be = {0};
    size_t left = 0;
    bool ok = mongo_log_clock(l, &call, &be);

    int64_t before_ms = mongo_log_now(l) - s->m->config->effects.sweep_after_ms;
    if (s->before_ms == INT64_MIN) /* from now on */
        s->before_ms = mongo_log_now(l) + 1;
    if (s->before_ms != INT64_MAX)
        before_ms = s->before_ms;
    if (ok)
        ok = find_open(l, route, before_ms, out->left + out->others, &f, &be);
    if (!ok)
        (void)mongo_fail(e, "sweep", &be);
    if (ok && f.n > 0) {
        FAULT("sweep.before_run");
        const struct outcome *results = mongo_log_run(l, route, ops, f.n, true);

        for (size_t i = 0; i < f.n; i++) { /* a duplicate: others were faster, or a payload's */
            out->others += results[i].fate == FATE_DUPLICATE;
            left += results[i].fate == FATE_LATER || results[i].fate == FATE_UNKNOWN;
            out->completed += results[i].fate == FATE_INSERTED || results[i].fate == FATE_NEVER;
        }
        out->failed += log_plan_done(l->plan).failed;
    }
    out->left += left + f.nameless;
    *more = ok && f.n + f.nameless == SWEEP_BATCH;
    for (size_t i = 0; i < f.n; i++) {
        bson_destroy(ops[i].filter);
        bson_destroy(ops[i].document);
    }
    return ok;
}

bool mongo_log_sweep(struct mongo_sweep *s, uint32_t route, bool (*stop)(void *ctx), void *ctx,
                     struct mongo_swept *out, struct err *e)
{
    struct write_op *ops;
    bool ok = true, more = true;

    *out = (struct mongo_swept){0};
    if (!log_has_effects(&s->m->config->routes[route]))
        return true;
    if (!s->log) {
        s->client = mongoc_client_pool_pop(s->m->pool);
        s->log = mongo_log_new(s->m, s->client);
    }
    ops = mem_array(SWEEP_BATCH, sizeof *ops);
    for (int round = 0; ok && more && round < ROUNDS_MAX && !(stop && stop(ctx)); round++)
        ok = sweep_some(s, route, ops, out, &more, e);
    out->more = more;
    mem_free(ops);
    return ok;
}

/* --- from log to transactions --- */

enum { FINISH_MS = 30000, FINISH_AGAIN_MS = 200, NOT_ALLOWED = 13 };

/* The index that goes with the log tells. */
bool mongo_was_log(struct mongo *m, uint32_t route, bool *was, struct err *e)
{
    const struct config_route *r = &m->config->routes[route];
    bool ledger = config_has_operation(r);
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    mongoc_collection_t *c =
        mongoc_client_get_collection(client, ledger ? r->operation.ledger_database : r->database,
                                     ledger ? r->operation.ledger : r->collection);
    mongoc_cursor_t *cursor = mongoc_collection_find_indexes_with_opts(c, NULL);
    const bson_t *index;
    bson_error_t be;
    bson_iter_t at;

    *was = false;
    while (mongoc_cursor_next(cursor, &index))
        *was = *was || (bson_iter_init_find(&at, index, "name") && BSON_ITER_HOLDS_UTF8(&at) &&
                        strcmp(bson_iter_utf8(&at, NULL), NEED_INDEX_OPEN) == 0);
    bool failed = mongoc_cursor_error(cursor, &be);
    if (failed && be.code == NOT_ALLOWED) { /* it may be there */
        *was = true;
        failed = false;
    }
    if (failed)
        (void)mongo_fail(e, "indexes of open effects", &be);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    mongoc_client_pool_push(m->pool, client);
    return !failed;
}

static bool finish(struct mongo *m, uint32_t route, struct err *e)
{
    const struct config_route *r = &m->config->routes[route];
    int64_t deadline_ms = clock_mono_ms() + FINISH_MS + 2 * m->config->effects.attempt_ms;
    struct mongo_sweep *s = mongo_sweep_new(m);
    struct mongo_swept swept = {0};
    uint64_t completed = 0;
    bool ok, all = false;

    s->before_ms = INT64_MIN;
    for (;;) {
        ok = mongo_log_sweep(s, route, NULL, NULL, &swept, e);
        completed += swept.completed;
        /* Behind one that had nothing to do: what others have completed may have hidden some. */
        all = ok && swept.left == 0 && swept.completed == 0 && !swept.more;
        if (!ok || all || clock_mono_ms() >= deadline_ms)
            break;
        if (swept.left > 0)
            (void)usleep(FINISH_AGAIN_MS * 1000);
    }
    mongo_sweep_free(s);
    if (completed > 0)
        log_info("effects that the log has left open are completed, from now on transactions",
                 LOG_TEXT("route", r->name), LOG_INT("events", (int64_t)completed));
    if (!ok || all)
        return ok || err_wrap(e, r->name);
    return err_set(e, ERR_CONFIG, 0,
                   "%s: %llu events%s of the time when it was written by log still have effects to "
                   "be done, and they can't be done now (is another process at them, is a counter "
                   "document full?): start again later, or go on with effects = \"log\"",
                   r->name, (unsigned long long)swept.left, swept.more ? ", and others," : "");
}

bool mongo_finish_open(struct mongo *m, struct err *e)
{
    for (uint32_t i = 0; i < m->config->n_routes; i++) {
        if (!log_has_effects(&m->config->routes[i]) || mongo_way_of(m, i) != MONGO_ATOMIC)
            continue;
        if (!mongo_was_log(m, i, &m->log_counts[i].left, e) ||
            (m->log_counts[i].left && !finish(m, i, e)))
            return false;
    }
    return true;
}

bool mongo_is_swept(const struct mongo *m, uint32_t route)
{
    return log_has_effects(&m->config->routes[route]) &&
           (mongo_way_of(m, route) == MONGO_STEPWISE || m->log_counts[route].left);
}
