/*
 * mongo_log_steps.c - the commands of core/log_plan.h, one wire command each.
 */
#include <string.h>

#include "base/mem.h"
#include "core/look.h"
#include "io/mongo_log_private.h"
#include "io/mongo_txn_commands.h"

static mongoc_collection_t *collection(struct mongo_log *l, const char *database, const char *name)
{
    mongoc_collection_t *c = mongoc_client_get_collection(l->client, database, name);

    mongoc_collection_set_write_concern(c, l->m->concern);
    return c;
}

static mongoc_collection_t *collection_of_ns(struct mongo_log *l, const char *ns)
{
    const char *dot = strchr(ns, '.');

    MUST(dot != NULL);
    char *database = mem_text_n(ns, (size_t)(dot - ns));
    mongoc_collection_t *c = collection(l, database, dot + 1);
    mem_free(database);
    return c;
}

static mongoc_collection_t *documents(struct mongo_log *l, uint32_t route)
{
    const struct config_route *r = &l->m->config->routes[route];

    return collection(l, r->database, r->collection);
}

mongoc_collection_t *mongo_log_events(struct mongo_log *l, uint32_t route)
{
    const struct config_route *r = &l->m->config->routes[route];

    return config_has_operation(r)
               ? collection(l, r->operation.ledger_database, r->operation.ledger)
               : collection(l, r->database, r->collection);
}

void mongo_log_read_opts(const struct mongo *m, bson_t *opts)
{
    mongoc_read_concern_t *majority;

    if (strcmp(m->config->mongo.write_concern, "majority") != 0)
        return;
    majority = mongoc_read_concern_new();
    mongoc_read_concern_set_level(majority, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
    mongoc_read_concern_append(majority, opts);
    mongoc_read_concern_destroy(majority);
}

void mongo_log_open_filter(bson_t *filter, int64_t before_ms)
{
    bson_t in;

    BSON_APPEND_DOCUMENT_BEGIN(filter, LOG_EFFECTS ".at", &in);
    BSON_APPEND_BOOL(&in, "$exists", true);
    if (before_ms != INT64_MAX)
        BSON_APPEND_DATE_TIME(&in, "$lt", before_ms);
    bson_append_document_end(filter, &in);
    BSON_APPEND_DOCUMENT_BEGIN(filter, LOG_EFFECTS ".id", &in); /* log_is_ours() */
    BSON_APPEND_UTF8(&in, "$type", "binData");
    bson_append_document_end(filter, &in);
    BSON_APPEND_DOCUMENT_BEGIN(filter, LOG_EFFECTS ".failed", &in);
    BSON_APPEND_BOOL(&in, "$exists", false);
    bson_append_document_end(filter, &in);
}

/* --- reads --- */

static void what_to_read(struct mongo_log *l, uint32_t route, const struct log_command *c,
                         bson_t *filter, bson_t *opts)
{
    bson_t in;

    if (c->kind == LOG_HIGHEST) {
        struct txn_command same = {.group = c->group};

        mongo_txn_highest(&l->m->config->routes[route], &same, filter, opts);
        return;
    }
    /* What CHECK finds done is not done again: no failover may take it back. */
    if (c->kind == LOG_LOOK || c->kind == LOG_CHECK)
        mongo_log_read_opts(l->m, opts);
    BSON_APPEND_INT64(opts, "batchSize", (int64_t)(c->n + c->n_moves) + 1);
    BSON_APPEND_DOCUMENT_BEGIN(opts, "projection", &in);
    if (c->kind == LOG_CHECK) {
        log_check_filter(c, filter);
        log_check_projection(c, &in);
    } else if (c->kind == LOG_READ) {
        look_filter(c->ops, c->n, filter);
        log_read_projection(c, &in);
    } else {
        look_filter(c->ops, c->n, filter);
        log_look_projection(&l->m->config->routes[route], c->ops[0]->filter, &in);
    }
    bson_append_document_end(opts, &in);
}

static bool integer_of(const bson_t *document, const char *field, int64_t *out)
{
    bson_iter_t at;

    if (!bson_iter_init_find(&at, document, field) ||
        !(BSON_ITER_HOLDS_INT32(&at) || BSON_ITER_HOLDS_INT64(&at)))
        return false;
    *out = bson_iter_as_int64(&at);
    return true;
}

static void no_integer(struct outcome_call *call, const char *message)
{
    *call = (struct outcome_call){.fault = CALL_SERVER, .code = 14, .message = message};
}

void mongo_log_read(struct mongo_log *l, uint32_t route, const struct log_command *c)
{
    struct outcome_call call = {.fault = CALL_FINE};
    bson_t filter = BSON_INITIALIZER, opts = BSON_INITIALIZER;
    const bson_t *found;
    bson_error_t be = {0};
    int64_t number;
    mongoc_collection_t *from = c->kind == LOG_CHECK  ? collection_of_ns(l, c->moves[0].ns)
                                : c->kind == LOG_LOOK ? mongo_log_events(l, route)
                                                      : documents(l, route);

    what_to_read(l, route, c, &filter, &opts);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(from, &filter, &opts, l->m->primary);
    while (mongoc_cursor_next(cursor, &found)) {
        if (c->kind != LOG_HIGHEST)
            log_plan_found(l->plan, found);
        else if (mongo_txn_highest_of(&l->m->config->routes[route], found, &number))
            log_plan_number(l->plan, number);
        else
            no_integer(&call, "behind the highest number of the group there is no integer");
    }
    if (mongoc_cursor_error(cursor, &be))
        mongo_log_failed(l, &be, &call);
    log_plan_answer(l->plan, &call, NULL);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(from);
    bson_destroy(&filter);
    bson_destroy(&opts);
}

/* --- numbers --- */

static void add_concern(struct mongo_log *l, bson_t *opts)
{
    MUST(mongoc_write_concern_append(l->m->concern, opts));
}

static void reserve_numbers(struct mongo_log *l, const struct config_sequence *q,
                            const struct log_command *c)
{
    struct outcome_call call = {.fault = CALL_FINE};
    bson_t command = BSON_INITIALIZER, opts = BSON_INITIALIZER, reply, value;
    bson_error_t be = {0};
    bson_iter_t at;
    int64_t last;

    BSON_APPEND_UTF8(&command, "findAndModify", q->collection);
    BSON_APPEND_DOCUMENT(&command, "query", c->group);
    mongo_txn_number_update(q, c->count, &command);
    BSON_APPEND_BOOL(&command, "new", true);
    add_concern(l, &opts);
    if (!mongoc_client_write_command_with_opts(l->client, q->database, &command, &opts, &reply,
                                               &be)) {
        mongo_log_failed(l, &be, &call);
        if (call.fault == CALL_SERVER && mongo_txn_is_no_number(call.code))
            no_integer(&call, mongo_txn_no_number);
    } else if (bson_iter_init_find(&at, &reply, "writeConcernError")) {
        call = (struct outcome_call){.fault = CALL_SERVER, .code = 64, .message = "write concern"};
    } else if (bson_iter_init_find(&at, &reply, "value") && BSON_ITER_HOLDS_DOCUMENT(&at)) {
        const uint8_t *data;
        uint32_t len;

        bson_iter_document(&at, &len, &data);
        if (bson_init_static(&value, data, len) && integer_of(&value, "n", &last))
            log_plan_number(l->plan, last);
        else
            no_integer(&call, mongo_txn_no_number);
    }
    log_plan_answer(l->plan, &call, NULL);
    bson_destroy(&reply);
    bson_destroy(&command);
    bson_destroy(&opts);
}

void mongo_log_number(struct mongo_log *l, uint32_t route, const struct log_command *c)
{
    const struct config_sequence *q = &l->m->config->routes[route].sequence;
    struct outcome_call call = {.fault = CALL_FINE};
    bson_t document = BSON_INITIALIZER, reply;
    bson_error_t be = {0};

    if (c->kind == LOG_NUMBER) {
        reserve_numbers(l, q, c);
        return;
    }
    MUST(bson_concat(&document, c->group));
    BSON_APPEND_INT64(&document, "n", q->start - 1);
    mongoc_collection_t *to = collection(l, q->database, q->collection);
    if (!mongoc_collection_insert_one(to, &document, NULL, &reply, &be))
        mongo_log_failed(l, &be, &call);
    log_plan_answer(l->plan, &call, NULL);
    mongoc_collection_destroy(to);
    bson_destroy(&reply);
    bson_destroy(&document);
}

/* --- writes --- */

struct step {
    struct mongo_log *l;
    const struct config_route *route;
    const struct log_command *c;
    mongoc_bulk_operation_t *bulk;
    bson_t *plain, *upsert; /* options */
    bson_error_t *be;
};

/* Takes over neither. */
static bool add_update(struct step *s, const bson_t *filter, const bson_t *update, bool upsert)
{
    return mongoc_bulk_operation_update_one_with_opts(s->bulk, filter, update,
                                                      upsert ? s->upsert : s->plain, s->be);
}

static bool add_events(struct step *s)
{
    bool ok = true;

    for (size_t k = 0; ok && k < s->c->n; k++) {
        bson_t document = BSON_INITIALIZER;

        log_event_document(s->route, s->c, k, &document);
        ok = mongoc_bulk_operation_insert_with_opts(s->bulk, &document, s->plain, s->be);
        bson_destroy(&document);
    }
    return ok;
}

static bool add_reopened(struct step *s)
{
    bool ok = true;

    for (size_t k = 0; ok && k < s->c->n; k++) {
        bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER;

        log_reopen_filter(s->c, k, &filter);
        log_reopen_update(s->route, s->c, k, &update);
        ok = add_update(s, &filter, &update, false);
        bson_destroy(&filter);
        bson_destroy(&update);
    }
    return ok;
}

static bool add_moves(struct step *s)
{
    bool ok = true;

    for (size_t k = 0; ok && k < s->c->n_moves; k++) {
        const struct log_move *m = &s->c->moves[k];
        bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER;

        if (s->c->kind == LOG_COUNT) {
            log_count_filter(s->c, m, &filter);
            log_count_update(s->c, m, &update);
        } else if (s->c->kind == LOG_MAKE) {
            MUST(bson_concat(&filter, m->filter));
            log_make_update(m, &update);
        } else {
            log_prune_filter(s->c, m, &filter);
            log_prune_update(s->route, s->c, &update);
        }
        ok = add_update(s, &filter, &update, s->c->kind == LOG_MAKE);
        bson_destroy(&filter);
        bson_destroy(&update);
    }
    return ok;
}

static bool add_close(struct step *s)
{
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER;

    if (s->c->kind == LOG_CLAIM) {
        log_claim_filter(s->c, &filter);
        log_claim_update(s->c, &update);
    } else {
        log_close_filter(s->c, &filter);
        log_close_update(s->c, &update);
    }
    bool ok =
        mongoc_bulk_operation_update_many_with_opts(s->bulk, &filter, &update, s->plain, s->be);
    bson_destroy(&filter);
    bson_destroy(&update);
    return ok;
}

static bool add_entities(struct step *s)
{
    bool ok = true;

    for (size_t k = 0; ok && k < s->c->n_entities; k++) {
        bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER;

        log_entity_filter(s->c, k, &filter);
        if (s->c->kind == LOG_REMOVE) {
            ok = mongoc_bulk_operation_remove_one_with_opts(s->bulk, &filter, NULL, s->be);
        } else {
            log_entity_update(s->c, k, &update);
            ok = add_update(s, &filter, &update, s->c->kind == LOG_ADD);
        }
        bson_destroy(&filter);
        bson_destroy(&update);
    }
    return ok;
}

static mongoc_collection_t *target(struct mongo_log *l, uint32_t route, const struct log_command *c)
{
    switch (c->kind) {
    case LOG_COUNT:
    case LOG_MAKE:
    case LOG_PRUNE:
        return collection_of_ns(l, c->moves[0].ns);
    case LOG_ADD:
    case LOG_MARK:
    case LOG_REMOVE:
    case LOG_CLEAN:
        return documents(l, route);
    default:
        return mongo_log_events(l, route);
    }
}

static bool fill(struct step *s)
{
    switch (s->c->kind) {
    case LOG_WRITE:
        return add_events(s);
    case LOG_REOPEN:
        return add_reopened(s);
    case LOG_COUNT:
    case LOG_MAKE:
    case LOG_PRUNE:
        return add_moves(s);
    case LOG_CLOSE:
    case LOG_FAIL:
    case LOG_DID:
    case LOG_CLAIM:
        return add_close(s);
    default:
        return add_entities(s);
    }
}

void mongo_log_update(struct mongo_log *l, uint32_t route, const struct log_command *c)
{
    bson_t reply = BSON_INITIALIZER;
    bson_t *opts = BCON_NEW("ordered", BCON_BOOL(c->kind == LOG_WRITE && c->ordered));
    bson_error_t be = {0};
    struct outcome_call call = {.ordered = c->ordered, .is_insert = c->kind == LOG_WRITE};
    mongoc_collection_t *to = target(l, route, c);
    struct step s = {.l = l,
                     .route = &l->m->config->routes[route],
                     .c = c,
                     .bulk = mongoc_collection_create_bulk_operation_with_opts(to, opts),
                     .plain = BCON_NEW("validate", BCON_BOOL(false)),
                     .upsert = BCON_NEW("upsert", BCON_BOOL(true), "validate", BCON_BOOL(false)),
                     .be = &be};
    bool ok = fill(&s);

    if (ok) {
        bson_destroy(&reply); /* execute always initialises it */
        ok = mongoc_bulk_operation_execute(s.bulk, &reply, &be) != 0;
    }
    if (!ok)
        mongo_log_failed(l, &be, &call);
    log_plan_answer(l->plan, &call, &reply);
    mongoc_bulk_operation_destroy(s.bulk);
    mongoc_collection_destroy(to);
    bson_destroy(&reply);
    bson_destroy(opts);
    bson_destroy(s.plain);
    bson_destroy(s.upsert);
}
