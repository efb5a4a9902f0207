/* Is the dedup key unique for ever, and is what effects need there? Asks the server, believes
 * nothing else. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "core/index_proof.h"
#include "io/mongo_needs.h"
#include "io/mongo_private.h"

/* One proof being asked for. */
struct look {
    struct mongo *m;
    const struct need_index *need;
    mongoc_client_t *client;
    struct index_proof proof;
};

/* ---- asking ---- */

/* True: no right to ask, which is for the proof to judge. False: *e says what else went wrong. */
static bool forbidden(struct look *l, struct err *e, const char *action, const char *role,
                      const bson_error_t *be)
{
    if (mongo_fault(be) != CALL_SERVER || be->code != 13)
        return mongo_fail(e, l->proof.ns, be);
    index_proof_forbidden(&l->proof, action, role);
    return true;
}

static bool ask_collection(struct look *l, struct err *e)
{
    bson_t opts = BSON_INITIALIZER, filter;
    const bson_t *info;
    bson_error_t be;
    bool ok = true;

    BSON_APPEND_DOCUMENT_BEGIN(&opts, "filter", &filter);
    BSON_APPEND_UTF8(&filter, "name", l->need->collection);
    bson_append_document_end(&opts, &filter);
    mongoc_database_t *db = mongoc_client_get_database(l->client, l->need->database);
    mongoc_cursor_t *cursor = mongoc_database_find_collections_with_opts(db, &opts);
    if (mongoc_cursor_next(cursor, &info))
        ok = index_proof_collection(&l->proof, info, e);
    else if (mongoc_cursor_error(cursor, &be))
        ok = forbidden(l, e, "listCollections", "readWrite", &be);
    mongoc_cursor_destroy(cursor);
    mongoc_database_destroy(db);
    bson_destroy(&opts);
    return ok;
}

static bool ask_indexes(struct look *l, struct err *e)
{
    bson_t opts = BSON_INITIALIZER;
    const bson_t *index;
    bson_error_t be;
    bool ok = true;

    BSON_APPEND_BOOL(&opts, "includeBuildUUIDs", true); /* marks those that are still being built */
    mongoc_collection_t *c =
        mongoc_client_get_collection(l->client, l->need->database, l->need->collection);
    mongoc_cursor_t *cursor = mongoc_collection_find_indexes_with_opts(c, &opts);
    while (mongoc_cursor_next(cursor, &index))
        index_proof_index(&l->proof, index);
    if (mongoc_cursor_error(cursor, &be))
        ok = forbidden(l, e, "listIndexes", "readWrite", &be);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    bson_destroy(&opts);
    return ok;
}

/* On a sharded cluster: config.collections has one document per sharded collection. */
static bool ask_sharding(struct look *l, struct err *e)
{
    bson_t reply, filter = BSON_INITIALIZER;
    bson_error_t be = {0};
    const bson_t *entry;
    bool ok = mongo_hello(l->client, l->m->primary, &reply, &be);
    bool mongos = ok && strcmp(mongo_text_field(&reply, "msg"), "isdbgrid") == 0;

    bson_destroy(&reply);
    if (!ok)
        mongo_fail(e, l->proof.ns, &be);
    if (mongos) {
        BSON_APPEND_UTF8(&filter, "_id", l->proof.ns);
        mongoc_collection_t *c = mongoc_client_get_collection(l->client, "config", "collections");
        mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, &filter, NULL, l->m->primary);
        if (mongoc_cursor_next(cursor, &entry))
            ok = index_proof_shard_key(&l->proof, entry, e);
        else if (mongoc_cursor_error(cursor, &be))
            ok = forbidden(l, e, "find in config.collections", "clusterMonitor", &be);
        mongoc_cursor_destroy(cursor);
        mongoc_collection_destroy(c);
    }
    bson_destroy(&filter);
    return ok;
}

/* true: all was asked that may be asked, and nothing of it forbids the collection. */
static bool look_at(struct look *l, struct mongo *m, const struct need_index *need,
                    mongoc_client_t *client, struct err *e)
{
    *l = (struct look){.m = m, .need = need, .client = client};
    index_proof_begin(&l->proof, need);
    return ask_collection(l, e) && ask_sharding(l, e) && ask_indexes(l, e);
}

/* ---- the two questions ---- */

static void warn(const struct index_proof *p)
{
    if (p->forbidden[0])
        log_warn(p->need->use == NEED_IDENTITY ? "the dedup index is trusted, not proved"
                                               : "an index is trusted, not proved",
                 LOG_TEXT("collection", p->ns), LOG_TEXT("index", p->need->what),
                 LOG_TEXT("why", "trust_index = true and no right to look"),
                 LOG_TEXT("missing", p->forbidden));
    if (p->earlier[0] && p->need->use == NEED_IDENTITY)
        log_warn("another unique index was made before the dedup index: the server may name it for "
                 "a mere duplicate, which costs a look-up each",
                 LOG_TEXT("collection", p->ns), LOG_TEXT("index", p->earlier),
                 LOG_TEXT("dedup_index", p->found_name));
}

/* What a counter that is never made could do without. */
static bool can_do_without(const struct index_proof *p, const struct err *e)
{
    return p->need->use == NEED_COUNTER_FOUND && (e->kind == ERR_CONFIG || e->kind == ERR_AUTH);
}

bool mongo_prove_need(struct mongo *m, const struct need_index *need, struct err *e)
{
    struct look l;
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    bool ok = look_at(&l, m, need, client, e) && index_proof_end(&l.proof, e);

    mongoc_client_pool_push(m->pool, client);
    if (ok)
        warn(&l.proof);
    if (!ok && can_do_without(&l.proof, e)) {
        log_warn("a counter has no index of its own", LOG_TEXT("error", e->text));
        return true;
    }
    return ok;
}

bool mongo_check_need(struct mongo *m, const struct need_index *need, bool ensure,
                      const char **found, struct err *e)
{
    struct look l;
    struct err why;
    bool missing = false;
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    bool looked = look_at(&l, m, need, client, e), ok = looked && index_proof_end(&l.proof, e);

    mongoc_client_pool_push(m->pool, client);
    *found =
        ok && l.proof.forbidden[0] ? "trusted: it may not be asked for (trust_index)" : "proved";
    if (looked && !ok && ensure && index_proof_may_make(&l.proof, &missing, &why) && missing)
        *found = "not there yet: run makes it (ensure_index)";
    return ok || missing;
}

bool mongo_prove_index(struct mongo *m, const struct config_route *route, struct err *e)
{
    struct need_index need;

    need_identity(route, &need);
    bool ok = mongo_prove_need(m, &need, e);
    need_index_clear(&need);
    return ok;
}

bool mongo_check_index(struct mongo *m, const struct config_route *route, const char **found,
                       struct err *e)
{
    struct need_index need;

    need_identity(route, &need);
    bool ok = mongo_check_need(m, &need, route->ensure_index, found, e);
    need_index_clear(&need);
    return ok;
}

/* ---- making ---- */

static bool create_fail(const struct index_proof *p, struct err *e, const bson_error_t *be)
{
    struct buf fields = {0};
    bool ok;

    index_proof_fields(p, &fields);
    if (mongo_fault(be) != CALL_SERVER)
        ok = mongo_fail(e, p->ns, be);
    else if (be->code == 11000) /* the server's text names the key: payload */
        ok = err_set(
            e, ERR_CONFIG, 11000,
            "%s: the %s on (%s) can't be made, because documents with equal values (a missing "
            "field counts as null) are there already; remove them, then run: idemsink init -c FILE",
            p->ns, p->need->what, buf_text(&fields));
    else if (be->code == 13)
        ok =
            err_set(e, ERR_AUTH, 13,
                    "%s: no right to createIndex on (%s); grant it (role readWrite has it) or make "
                    "the %sindex by hand",
                    p->ns, buf_text(&fields), p->need->unique ? "unique " : "");
    else if (be->code == 85 || be->code == 86)
        ok = err_set(e, ERR_CONFIG, (int)be->code,
                     "%s: an index with the name %s or with these keys is there with other "
                     "properties; drop it, then run: idemsink init -c FILE",
                     p->ns, p->need->name);
    else
        ok = mongo_fail(e, p->ns, be);
    buf_clear(&fields);
    return ok;
}

/* A client of its own: building an index takes as long as it takes, and the pool's time-out is
 * short. */
mongoc_client_t *mongo_patient_client(const struct mongo *m)
{
    mongoc_uri_t *uri = mongoc_uri_copy(m->uri);

    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SOCKETTIMEOUTMS, 24 * 3600 * 1000);
    mongoc_uri_set_option_as_bool(uri, MONGOC_URI_SERVERSELECTIONTRYONCE, false);
    mongoc_client_t *client = mongoc_client_new_from_uri(uri);
    mongoc_uri_destroy(uri);
    MUST(client != NULL); /* the pool took the same URI */
    mongoc_client_set_error_api(client, MONGOC_ERROR_API_VERSION_2);
    return client;
}

static void append_filter(bson_t *index, const char *field)
{
    bson_t filter, exists;

    BSON_APPEND_DOCUMENT_BEGIN(index, "partialFilterExpression", &filter);
    BSON_APPEND_DOCUMENT_BEGIN(&filter, field, &exists);
    BSON_APPEND_BOOL(&exists, "$exists", true);
    bson_append_document_end(&filter, &exists);
    bson_append_document_end(index, &filter);
}

static void append_index(bson_t *index, const struct need_index *need)
{
    bson_t key, collation;

    BSON_APPEND_DOCUMENT_BEGIN(index, "key", &key);
    for (size_t i = 0; i < need->fields.n; i++)
        BSON_APPEND_INT32(&key, need->fields.items[i], 1);
    bson_append_document_end(index, &key);
    BSON_APPEND_UTF8(index, "name", need->name);
    if (need->unique)
        BSON_APPEND_BOOL(index, "unique", true);
    if (need->expire_s >= 0)
        BSON_APPEND_INT64(index, "expireAfterSeconds", need->expire_s);
    if (need->partial)
        append_filter(index, need->partial);
    BSON_APPEND_DOCUMENT_BEGIN(index, "collation", &collation);
    BSON_APPEND_UTF8(&collation, "locale", "simple");
    bson_append_document_end(index, &collation);
}

static bool create_index(struct look *l, bool *made, struct err *e)
{
    bson_t command = BSON_INITIALIZER, list, index;
    bson_error_t be = {0};

    BSON_APPEND_UTF8(&command, "createIndexes", l->need->collection);
    BSON_APPEND_ARRAY_BEGIN(&command, "indexes", &list);
    BSON_APPEND_DOCUMENT_BEGIN(&list, "0", &index);
    append_index(&index, l->need);
    bson_append_document_end(&list, &index);
    bson_append_array_end(&command, &list);

    log_info("making an index", LOG_TEXT("what", l->need->what),
             LOG_TEXT("collection", l->proof.ns), LOG_TEXT("index", l->need->name));
    bool ok = mongoc_client_write_command_with_opts(l->client, l->need->database, &command, NULL,
                                                    NULL, &be);
    bson_destroy(&command);
    /* Who can't look, and says that it is there, is believed when it can't be made either. */
    bool trusted = l->proof.forbidden[0] && mongo_fault(&be) == CALL_SERVER &&
                   (be.code == 13 || be.code == 85);
    *made = ok;
    return ok || trusted || create_fail(&l->proof, e, &be);
}

bool mongo_ensure_need(struct mongo *m, const struct need_index *need, bool *made, struct err *e)
{
    struct look l;
    bool missing = false;
    mongoc_client_t *client = mongo_patient_client(m);

    *made = false;
    bool ok = look_at(&l, m, need, client, e) && index_proof_may_make(&l.proof, &missing, e) &&
              (!missing || create_index(&l, made, e));

    mongoc_client_destroy(client);
    if (!ok && can_do_without(&l.proof, e)) {
        log_warn("a counter's index is not made", LOG_TEXT("error", e->text));
        return true;
    }
    return ok;
}

bool mongo_ensure_index(struct mongo *m, const struct config_route *route, bool *made,
                        struct err *e)
{
    struct need_index need;

    need_identity(route, &need);
    bool ok = mongo_ensure_need(m, &need, made, e);
    need_index_clear(&need);
    return ok;
}

bool mongo_make_index(struct mongo *m, const struct config_route *route, struct err *e)
{
    bool made;

    return mongo_ensure_index(m, route, &made, e);
}
