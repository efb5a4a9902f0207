/* Collections that have to be there, and counter documents that can be counted in. */
#include <string.h>

#include "io/mongo_needs.h"
#include "io/mongo_private.h"

enum {
    UNAUTHORIZED = 13, /* the server's codes */
    NAMESPACE_EXISTS = 48,
    MAX_TIME_EXPIRED = 50
};

/* --- collections --- */

bool mongo_has_collection(struct mongo *m, const struct need_collection *c, bool *there,
                          struct err *e)
{
    bson_t opts = BSON_INITIALIZER, filter;
    bson_error_t be = {0};
    const bson_t *info;
    char what[256];
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    mongoc_database_t *db = mongoc_client_get_database(client, c->database);

    snprintf(what, sizeof what, "%s.%s", c->database, c->collection);
    BSON_APPEND_DOCUMENT_BEGIN(&opts, "filter", &filter);
    BSON_APPEND_UTF8(&filter, "name", c->collection);
    bson_append_document_end(&opts, &filter);
    BSON_APPEND_BOOL(&opts, "nameOnly", true); /* then nobody but who may use it has to be asked */
    BSON_APPEND_BOOL(&opts, "authorizedCollections", true);
    mongoc_cursor_t *cursor = mongoc_database_find_collections_with_opts(db, &opts);
    *there = mongoc_cursor_next(cursor, &info);
    bool ok = *there || !mongoc_cursor_error(cursor, &be) || mongo_fail(e, what, &be);
    mongoc_cursor_destroy(cursor);
    mongoc_database_destroy(db);
    mongoc_client_pool_push(m->pool, client);
    bson_destroy(&opts);
    return ok;
}

bool mongo_ensure_collection(struct mongo *m, const struct need_collection *c, bool *made,
                             struct err *e)
{
    bson_t command = BSON_INITIALIZER;
    bson_error_t be = {0};
    char what[256];
    bool there;

    *made = false;
    snprintf(what, sizeof what, "%s.%s", c->database, c->collection);
    if (!mongo_has_collection(m, c, &there, e))
        return false;
    if (there)
        return true;
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    BSON_APPEND_UTF8(&command, "create", c->collection);
    *made = mongoc_client_write_command_with_opts(client, c->database, &command, NULL, NULL, &be);
    mongoc_client_pool_push(m->pool, client);
    bson_destroy(&command);
    if (*made || (mongo_fault(&be) == CALL_SERVER && be.code == NAMESPACE_EXISTS))
        return true;
    if (mongo_fault(&be) == CALL_SERVER && be.code == UNAUTHORIZED)
        return err_set(e, ERR_AUTH, UNAUTHORIZED,
                       "%s is not there, and the user may not make it: grant insert on it (role "
                       "readWrite has it), which its %s need anyway",
                       what, c->what);
    return mongo_fail(e, what, &be);
}

/* --- counter documents --- */

/* [{$match: one of the fields is there and no integer}, {$limit: 1}, {$project: their types}] */
static void types_pipeline(const struct config_counter *c, bson_t *out)
{
    bson_t stages, stage, match, list, one, field, no, types, project;
    char key[16], name[24];
    const char *index;

    BSON_APPEND_ARRAY_BEGIN(out, "pipeline", &stages);
    BSON_APPEND_DOCUMENT_BEGIN(&stages, "0", &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$match", &match);
    BSON_APPEND_ARRAY_BEGIN(&match, "$or", &list);
    for (uint32_t i = 0; i < c->inc.n; i++) {
        (void)bson_uint32_to_string(i, &index, key, sizeof key);
        BSON_APPEND_DOCUMENT_BEGIN(&list, index, &one);
        BSON_APPEND_DOCUMENT_BEGIN(&one, c->inc.items[i].name, &field);
        BSON_APPEND_BOOL(&field, "$exists", true);
        BSON_APPEND_DOCUMENT_BEGIN(&field, "$not", &no);
        BSON_APPEND_ARRAY_BEGIN(&no, "$type", &types);
        BSON_APPEND_UTF8(&types, "0", "int");
        BSON_APPEND_UTF8(&types, "1", "long");
        bson_append_array_end(&no, &types);
        bson_append_document_end(&field, &no);
        bson_append_document_end(&one, &field);
        bson_append_document_end(&list, &one);
    }
    bson_append_array_end(&match, &list);
    bson_append_document_end(&stage, &match);
    bson_append_document_end(&stages, &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stages, "1", &stage);
    BSON_APPEND_INT32(&stage, "$limit", 1);
    bson_append_document_end(&stages, &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stages, "2", &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$project", &project);
    BSON_APPEND_INT32(&project, "_id", 0);
    for (size_t i = 0; i < c->inc.n; i++) {
        char path[512];

        snprintf(name, sizeof name, "f%zu", i);
        snprintf(path, sizeof path, "$%.500s", c->inc.items[i].name);
        BSON_APPEND_DOCUMENT_BEGIN(&project, name, &field);
        BSON_APPEND_UTF8(&field, "$type", path);
        bson_append_document_end(&project, &field);
    }
    bson_append_document_end(&stage, &project);
    bson_append_document_end(&stages, &stage);
    bson_append_array_end(out, &stages);
}

static bool not_countable(const struct config_counter *c, const bson_t *types, struct err *e)
{
    for (size_t i = 0; i < c->inc.n; i++) {
        const char *field = c->inc.items[i].name, *type;
        char name[24];

        snprintf(name, sizeof name, "f%zu", i);
        type = mongo_text_field(types, name);
        if (strcmp(type, "int") == 0 || strcmp(type, "long") == 0 || strcmp(type, "missing") == 0)
            continue;
        bool number = strcmp(type, "double") == 0 || strcmp(type, "decimal") == 0;
        return err_set(e, ERR_INPUT, 0,
                       "%s.%s: there is a document whose %s is of type %s: $inc %s; make it an "
                       "integer: db.%s.updateMany({\"%s\": {$type: \"%s\"}}, [{$set: {\"%s\": "
                       "{$toLong: \"$%s\"}}}])",
                       c->database, c->collection, field, type,
                       number ? "leaves it one, which counts exactly up to 2^53 only"
                              : "fails on it, and every event that moves it is a dead letter",
                       c->collection, field, type, field, field);
    }
    return true;
}

bool mongo_check_counter_types(struct mongo *m, const struct config_counter *c, int64_t max_ms,
                               struct err *e)
{
    bson_t pipeline = BSON_INITIALIZER, opts = BSON_INITIALIZER;
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    mongoc_collection_t *collection =
        mongoc_client_get_collection(client, c->database, c->collection);
    const bson_t *types;
    bson_error_t be = {0};
    char what[256];
    bool ok = true;

    snprintf(what, sizeof what, "%s.%s", c->database, c->collection);
    types_pipeline(c, &pipeline);
    BSON_APPEND_INT64(&opts, "maxTimeMS", max_ms);
    mongoc_cursor_t *cursor =
        mongoc_collection_aggregate(collection, MONGOC_QUERY_NONE, &pipeline, &opts, m->primary);
    if (mongoc_cursor_next(cursor, &types))
        ok = not_countable(c, types, e);
    else if (mongoc_cursor_error(cursor, &be) && mongo_fault(&be) == CALL_SERVER &&
             be.code == MAX_TIME_EXPIRED)
        ok = err_set(e, ERR_TRANSIENT, MAX_TIME_EXPIRED,
                     "%s: not all documents could be looked at within %lld ms; none of those seen "
                     "is wrong",
                     what, (long long)max_ms);
    else if (be.code != 0 || be.domain != 0)
        ok = mongo_fail(e, what, &be);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(collection);
    mongoc_client_pool_push(m->pool, client);
    bson_destroy(&pipeline);
    bson_destroy(&opts);
    return ok;
}
