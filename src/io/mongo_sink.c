#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/look.h"
#include "core/plan.h"
#include "io/mongo_private.h"

/* One wire command answers each command of the plan: below maxMessageSizeBytes (48,000,000) with
 * room. */
enum { COMMAND_BYTES_MAX = 32 << 20 };
enum { SAY_AGAIN_MS = 10000 };

struct session {
    struct mongo *m;
    mongoc_client_t *client;
    mongoc_collection_t **collections; /* by route; NULL until first used */
    struct plan *plan;
    bson_t *update;          /* {$setOnInsert: ...}, rewritten for each operation */
    bson_t *upsert_opts;     /* {upsert: true, validate: false} */
    bson_t *insert_opts;     /* {validate: false} */
    bson_t *command_opts[2]; /* {ordered: ...} */
    bson_t *look_opts;
};

/* Of a read: what every route's have in common. */
static bson_t *look_opts_new(const struct config *c)
{
    bson_t *opts = bson_new();

    /*
     * Only what can't be rolled back any more is a duplicate. The command before waited for the
     * majority, so what stood in its way is visible to such a read. After a weaker write concern it
     * need not be, and would pass for a conflict with another event.
     */
    if (strcmp(c->mongo.write_concern, "majority") == 0) {
        mongoc_read_concern_t *majority = mongoc_read_concern_new();

        mongoc_read_concern_set_level(majority, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
        mongoc_read_concern_append(majority, opts);
        mongoc_read_concern_destroy(majority);
    }
    return opts;
}

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
    s->look_opts = look_opts_new(m->config);
    return s;
}

static void sink_close(void *session)
{
    struct session *s = session;

    for (size_t i = 0; i < s->m->config->n_routes; i++)
        if (s->collections[i])
            mongoc_collection_destroy(s->collections[i]);
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

/* Outcomes carry no text of a server that did not answer; the operator wants it, once. */
static void say_no_answer(enum call_fault fault, const bson_error_t *be)
{
    static struct log_limit limit;
    int64_t held_back;
    struct err e;

    if (fault != CALL_NETWORK && fault != CALL_SELECTION && fault != CALL_AUTH)
        return;
    if (!log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
        return;
    (void)mongo_fail(&e, "bulk write", be);
    log_warn("MongoDB does not answer, trying on", LOG_TEXT("error", e.text),
             LOG_INT("held_back", held_back));
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
        say_no_answer(call.fault, &be);
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

/* One more than there can be, so that the first batch is the last. */
static void look_opts_for(const struct session *s, uint32_t route, const struct plan_command *c,
                          bson_t *opts)
{
    bson_t fields;

    MUST(bson_concat(opts, s->look_opts));
    BSON_APPEND_INT64(opts, "batchSize", (int64_t)c->n + 1);
    BSON_APPEND_DOCUMENT_BEGIN(opts, "projection", &fields);
    look_projection(c->ops[0]->filter, conflict_field_of(s, route), &fields);
    bson_append_document_end(opts, &fields);
}

static void run_look(struct session *s, mongoc_collection_t *collection, uint32_t route,
                     const struct plan_command *c)
{
    struct outcome_call call = {.fault = CALL_FINE};
    bson_t filter = BSON_INITIALIZER, opts = BSON_INITIALIZER;
    const bson_t *found;
    bson_error_t be = {0};

    look_filter(c->ops, c->n, &filter);
    look_opts_for(s, route, c, &opts);
    mongoc_cursor_t *cursor =
        mongoc_collection_find_with_opts(collection, &filter, &opts, s->m->primary);
    while (mongoc_cursor_next(cursor, &found))
        plan_found(s->plan, found);
    if (mongoc_cursor_error(cursor, &be)) {
        call.fault = mongo_fault(&be);
        call.code = (int)be.code;
        call.message = be.message;
    }
    plan_looked(s->plan, &call);
    mongoc_cursor_destroy(cursor);
    bson_destroy(&filter);
    bson_destroy(&opts);
}

static const struct outcome *sink_write(void *session, uint32_t route, const struct write_op *ops,
                                        size_t n)
{
    struct session *s = session;
    struct plan_command c;
    /* No further command once one socket time-out is used up: the last one may take another. */
    int64_t deadline_ms = clock_mono_ms() + s->m->socket_timeout_ms;

    MUST(route < s->m->config->n_routes);
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
                                        .explain = mongo_explain_no,
                                        .moved = sink_moved};

    return (struct sink){.ops = &ops, .self = m};
}
