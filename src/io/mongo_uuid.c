#include <string.h>

#include "io/mongo_private.h"

static bool uuid_in(const bson_t *entry, uint8_t uuid[MONGO_UUID_BYTES])
{
    const uint8_t *bytes;
    bson_subtype_t subtype;
    bson_iter_t at, found;
    uint32_t len;

    if (!bson_iter_init(&at, entry) || !bson_iter_find_descendant(&at, "info.uuid", &found) ||
        !BSON_ITER_HOLDS_BINARY(&found))
        return false;
    bson_iter_binary(&found, &subtype, &len, &bytes);
    if (subtype != BSON_SUBTYPE_UUID || len != MONGO_UUID_BYTES)
        return false;
    memcpy(uuid, bytes, len);
    return true;
}

bool mongo_collection_uuid(struct mongo *m, const char *database, const char *collection,
                           uint8_t uuid[MONGO_UUID_BYTES], struct err *e)
{
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    mongoc_database_t *db = mongoc_client_get_database(client, database);
    bson_t *opts = BCON_NEW("filter", "{", "name", BCON_UTF8(collection), "}");
    mongoc_cursor_t *cursor = mongoc_database_find_collections_with_opts(db, opts);
    const bson_t *entry;
    bson_error_t be = {0};
    bool ok = false;

    while (!ok && mongoc_cursor_next(cursor, &entry))
        ok = uuid_in(entry, uuid);
    if (mongoc_cursor_error(cursor, &be))
        ok = mongo_fail(e, "listCollections", &be);
    else if (!ok)
        (void)err_set(e, ERR_CONFIG, 0,
                      "%s.%s: listCollections shows no collection of this name with a UUID",
                      database, collection);
    mongoc_cursor_destroy(cursor);
    bson_destroy(opts);
    mongoc_database_destroy(db);
    mongoc_client_pool_push(m->pool, client);
    return ok;
}
