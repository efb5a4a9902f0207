#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/look.h"
#include "core/plan.h"
#include "io/mongo_private.h"

/* One wire command answers each command of the plan: below maxMessageSizeBytes (48,000,000) with
 * room. */
enum { COMMAND_BYTES_MAX = 32 << 20 };

struct session {
    struct mongo *m;
    mongoc_client_t *client;
    mongoc_collection_t **collections; /* by route; NULL until first used */
    struct plan *plan;
    struct mongo_txn *txn;   /* NULL until a route needs it */
    struct mongo_log *log;   /* the same */
    enum mongo_way last;     /* of write() */
    bson_t *update;          /* {$setOnInsert: ...}, rewritten for each operation */
    bson_t *upsert_opts;     /* {upsert: true, validate: false} */
    bson_t *insert_opts;     /* {validate: false} */
    bson_t *command_opts[2]; /* {ordered: ...} */
    bson_t *look_opts;
};

static void *sink_open(void *sink)
{
    struct mongo *m = sink;
    struct session *s = mem_new(sizeof *s);
    struct plan_limits limits = {.max_ops = (size_t)m->config->worker.batch,
                                 .max_bytes = COMMAND_BYTES_MAX};

    s->m = m;
    s->client = mongoc_client_pool_pop(m->pool);
    s->collections =
        mem_array(m->config->n_routes ? m->config->n_routes : 1, sizeof *s->collections);
    s->plan = plan_new(&limits);
    s->update = bson_new();
    /* validate: the documents are made here, not by users, and the server judges names by itself.
     */
    s->upsert_opts = BCON_NEW("upsert", BCON_BOOL(true), "validate", BCON_BOOL(false));
    s->insert_opts = BCON_NEW("validate", BCON_BOOL(false));
    s->command_opts[0] = BCON_NEW("ordered", BCON_BOOL(false));
    s->command_opts[1] = BCON_NEW("ordered", BCON_BOOL(true));
    s->look_opts = mongo_look_opts(m->config);
    return s;
}

static void sink_close(void *session)
{
    struct session *s = session;

    for (size_t i = 0; i < s->m->config->n_routes; i++)
        if (s->collections[i])
            mongoc_collection_destroy(s->collections[i]);
    mongo_txn_free(s->txn);
    mongo_log_free(s->log);
    mongoc_client_pool_push(s->m->pool, s->client);
    plan_free(s->plan);
    bson_destroy(s->update);
    bson_destroy(s->upsert_opts);
    bson_destroy(s->insert_opts);
    bson_destroy(s->command_opts[0]);
    bson_destroy(s->command_opts[1]);
    bson_destroy(s->look_opts);
    mem_free(s->collections);
    mem_free(s);
}

static mongoc_collection_t *collection_of(struct session *s, uint32_t route)
{
    const struct config_route *r = &s->m->config->routes[route];

    if (!s->collections[route]) {
        s->collections[route] = mongoc_client_get_collection(s->client, r->database, r->collection);
        mongoc_collection_set_write_concern(s->collections[route], s->m->concern);
    }
    return s->collections[route];
}

/* false: the driver refused an operation, and nothing may be sent. */
static bool fill_bulk(struct session *s, mongoc_bulk_operation_t *bulk,
                      const struct plan_command *c, bson_error_t *be)
{
    for (size_t i = 0; i < c->n; i++) {
        const struct write_op *op = c->ops[i];
        bool ok;
        if (c->kind == PLAN_INSERT) {
            ok = mongoc_bulk_operation_insert_with_opts(bulk, op->document, s->insert_opts, be);
        } else {
            bson_reinit(s->update);
            ok = BSON_APPEND_DOCUMENT(s->update, "$setOnInsert", op->document);
            if (!ok)
                bson_set_error(be, MONGOC_ERROR_BSON, MONGOC_ERROR_BSON_INVALID,
                               "document is too large");
            ok = ok && mongoc_bulk_operation_update_one_with_opts(bulk, op->filter, s->update,
                                                                  s->upsert_opts, be);
        }
        if (!ok)
            return false;
    }
    return true;
}

static void run_write(struct session *s, mongoc_collection_t *collection,
                      const struct plan_command *c)
{
    bson_t reply = BSON_INITIALIZER;
    bson_error_t be = {0};
    struct outcome_call call = {.ordered = c->ordered, .is_insert = c->kind == PLAN_INSERT};
    mongoc_bulk_operation_t *bulk =
        mongoc_collection_create_bulk_operation_with_opts(collection, s->command_opts[c->ordered]);
    bool ok = fill_bulk(s, bulk, c, &be);

    if (ok) {
        bson_destroy(&reply); /* execute always initialises it */
        ok = mongoc_bulk_operation_execute(bulk, &reply, &be) != 0;
    }
    if (!ok) {
        call.fault = mongo_fault(&be);
        call.code = (int)be.code;
        call.message = be.message;
        mongo_say_no_answer("bulk write", call.fault, &be);
    }
    plan_reply(s->plan, &call, &reply);
    bson_destroy(&reply);
    mongoc_bulk_operation_destroy(bulk);
}

static const char *conflict_field_of(const struct session *s, uint32_t route)
{
    const struct config_dedup *dedup = &s->m->config->routes[route].dedup;

    return dedup->conflict == CONFLICT_OFF ? NULL : dedup->conflict_field;
}

static void found_one(void *ctx, const bson_t *document)
{
    plan_found(ctx, document);
}

static void run_look(struct session *s, mongoc_collection_t *collection, uint32_t route,
                     const struct plan_command *c)
{
    struct outcome_call call;
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER;
    bson_error_t be = {0};
    struct mongo_read read = {.collection = collection,
                              .filter = &filter,
                              .projection = &projection,
                              .opts = s->look_opts,
                              .n = c->n,
                              .prefs = s->m->primary,
                              .found = found_one,
                              .ctx = s->plan};

    look_filter(c->ops, c->n, &filter);
    look_projection(c->ops[0]->filter, conflict_field_of(s, route), &projection);
    mongo_read(&read, &call, &be, NULL);
    plan_looked(s->plan, &call);
    bson_destroy(&filter);
    bson_destroy(&projection);
}

static const struct outcome *write_plainly(struct session *s, uint32_t route,
                                           const struct write_op *ops, size_t n)
{
    struct plan_command c;
    /* No further command once one socket time-out is used up: the last one may take another. */
    int64_t deadline_ms = clock_mono_ms() + s->m->socket_timeout_ms;
    const struct config_route *r = &s->m->config->routes[route];
    struct plan_rules rules = {.look_first = r->write == WRITE_AUTO,
                               .conflict = r->dedup.conflict,
                               .conflict_field = r->dedup.conflict_field};
    mongoc_collection_t *collection = collection_of(s, route);

    plan_begin(s->plan, ops, n, &rules);
    while (plan_next(s->plan, &c)) {
        if (c.kind == PLAN_LOOK)
            run_look(s, collection, route, &c);
        else
            run_write(s, collection, &c);
        if (clock_mono_ms() >= deadline_ms)
            plan_stop(s->plan, RETRY_TIMEOUT);
    }
    return plan_results(s->plan);
}

static const struct outcome *sink_write(void *session, uint32_t route, const struct write_op *ops,
                                        size_t n)
{
    struct session *s = session;

    MUST(route < s->m->config->n_routes);
    s->last = mongo_way_of(s->m, route);
    switch (s->last) {
    case MONGO_ATOMIC:
        if (!s->txn)
            s->txn = mongo_txn_new(s->m, s->client);
        return mongo_txn_write(s->txn, route, ops, n);
    case MONGO_STEPWISE:
        if (!s->log)
            s->log = mongo_log_new(s->m, s->client);
        return mongo_log_write(s->log, route, ops, n);
    case MONGO_PLAIN:
        break;
    }
    return write_plainly(s, route, ops, n);
}

static void sink_effects(void *session, struct sink_effects *out)
{
    struct session *s = session;

    *out = (struct sink_effects){0};
    if (s->last == MONGO_ATOMIC)
        mongo_txn_did(s->txn, out);
}

static bool sink_issue(void *session, uint32_t route, const char *token, const char *const *keys,
                       size_t n, int64_t *numbers, struct outcome *why)
{
    struct session *s = session;
    struct mongo_fence what = {.route = route, .token = token, .keys = keys, .n = n};

    return mongo_fence_issue(s->m, s->client, &what, numbers, why);
}

static void sink_moved(void *session, uint32_t route, const struct write_op *const *ops, size_t n,
                       struct invalidation_list *out)
{
    struct session *s = session;

    mongo_mirror(s->m, s->client, route, ops, n, out);
}

struct sink mongo_sink(struct mongo *m)
{
    static const struct sink_ops ops = {.open = sink_open,
                                        .close = sink_close,
                                        .write = sink_write,
                                        .issue = sink_issue,
                                        .effects = sink_effects,
                                        .explain = mongo_explain_no,
                                        .moved = sink_moved};

    return (struct sink){.ops = &ops, .self = m};
}
