/*
 * mongo_log_sweep.c - completes what has been open for long.
 */
#include <string.h>

#include "base/mem.h"
#include "io/mongo_log_private.h"

enum { SWEEP_BATCH = 500, ROUNDS_MAX = 200 };

struct mongo_sweep {
    struct mongo *m;
    mongoc_client_t *client; /* NULL until the first sweep */
    struct mongo_log *log;
};

struct mongo_sweep *mongo_sweep_new(struct mongo *m)
{
    struct mongo_sweep *s = mem_new(sizeof *s);

    s->m = m;
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
 * oldest without the first `skip`: those that this sweep has left are still there, and still the
 * oldest. (Has somebody else completed one of them, others are passed over: the next sweep has
 * them.)
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

    if (ok)
        ok = find_open(l, route, mongo_log_now(l) - s->m->config->effects.sweep_after_ms, out->left,
                       &f, &be);
    if (!ok)
        (void)mongo_fail(e, "sweep", &be);
    if (ok && f.n > 0) {
        const struct outcome *results = mongo_log_run(l, route, ops, f.n, true);

        for (size_t i = 0; i < f.n; i++) { /* a duplicate: others were faster, or a payload's */
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
    mem_free(ops);
    return ok;
}
