/* What the user may do, as the server says when it is asked. */
#include <string.h>

#include "base/mem.h"
#include "io/mongo_private.h"

enum { INSERT, UPDATE, FIND, LIST_INDEXES, CREATE_INDEX, NEEDED };
static const char *const needed[NEEDED] = {"insert", "update", "find", "listIndexes",
                                           "createIndex"};

static bool is_needed(const struct config_route *route, size_t i)
{
    return (i != CREATE_INDEX || route->ensure_index) &&
           (i != LIST_INDEXES || !route->trust_index) &&
           (i != UPDATE || route->write == WRITE_UPSERT);
}

static const char *all_needed(const struct config_route *route)
{
    static const char *const texts[2][2][2] = {
        {{"insert, update, find, listIndexes", "insert, update, find, listIndexes, createIndex"},
         {"insert, update, find", "insert, update, find, createIndex"}},
        {{"insert, find, listIndexes", "insert, find, listIndexes, createIndex"},
         {"insert, find", "insert, find, createIndex"}}};

    return texts[route->write != WRITE_UPSERT][route->trust_index][route->ensure_index];
}

static bool sub_iter(const bson_t *doc, const char *path, bson_iter_t *out)
{
    bson_iter_t it, at;

    return bson_iter_init(&it, doc) && bson_iter_find_descendant(&it, path, &at) &&
           bson_iter_recurse(&at, out);
}

/* {db, collection}, where "" means every one; {anyResource: true}; {cluster: true} is not for
 * collections. */
static bool covers(bson_iter_t *resource, const struct config_route *route)
{
    const char *db = NULL, *collection = NULL;

    while (bson_iter_next(resource)) {
        if (strcmp(bson_iter_key(resource), "anyResource") == 0)
            return bson_iter_as_bool(resource);
        if (strcmp(bson_iter_key(resource), "db") == 0)
            db = bson_iter_utf8(resource, NULL);
        else if (strcmp(bson_iter_key(resource), "collection") == 0)
            collection = bson_iter_utf8(resource, NULL);
    }
    return db != NULL && collection != NULL && (*db == '\0' || strcmp(db, route->database) == 0) &&
           (*collection == '\0' || strcmp(collection, route->collection) == 0);
}

/* One {resource: {...}, actions: [...]}. */
static void add_privilege(const bson_iter_t *privilege, const struct config_route *route,
                          bool have[NEEDED])
{
    bson_iter_t field, resource, action;

    if (!bson_iter_recurse(privilege, &field) || !bson_iter_find(&field, "resource") ||
        !bson_iter_recurse(&field, &resource) || !covers(&resource, route))
        return;
    if (!bson_iter_recurse(privilege, &field) || !bson_iter_find(&field, "actions") ||
        !bson_iter_recurse(&field, &action))
        return;
    while (bson_iter_next(&action))
        for (size_t i = 0; i < NEEDED && BSON_ITER_HOLDS_UTF8(&action); i++)
            if (strcmp(bson_iter_utf8(&action, NULL), needed[i]) == 0)
                have[i] = true;
}

static bool judge(const bool have[NEEDED], const struct config_route *route, struct err *e)
{
    struct buf missing = {0};

    for (size_t i = 0; i < NEEDED; i++)
        if (!have[i] && is_needed(route, i))
            buf_printf(&missing, "%s%s", missing.len > 0 ? ", " : "", needed[i]);
    bool ok = missing.len == 0;
    if (!ok)
        err_set(e, ERR_AUTH, 13,
                "the user has no right to %s on %s.%s; grant it: role readWrite on database %s, or "
                "a role with these actions on the collection",
                buf_text(&missing), route->database, route->collection, route->database);
    buf_clear(&missing);
    return ok;
}

bool mongo_check_rights(struct mongo *m, const struct config_route *route, const char **found,
                        struct err *e)
{
    bson_t command = BSON_INITIALIZER, reply;
    bool have[NEEDED] = {false}, ok;
    bson_error_t be = {0};
    bson_iter_t users, privileges;
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);

    *found = all_needed(route);
    BSON_APPEND_INT32(&command, "connectionStatus", 1);
    BSON_APPEND_BOOL(&command, "showPrivileges", true);
    ok = mongoc_client_command_simple(client, "admin", &command, m->primary, &reply, &be);
    if (!ok) {
        mongo_fail(e, "mongodb: connectionStatus", &be);
    } else if (!sub_iter(&reply, "authInfo.authenticatedUsers", &users) ||
               !bson_iter_next(&users)) {
        *found = "no access control seen: nobody is logged in";
    } else if (!sub_iter(&reply, "authInfo.authenticatedUserPrivileges", &privileges)) {
        *found = "the server does not tell them";
    } else {
        while (bson_iter_next(&privileges))
            add_privilege(&privileges, route, have);
        ok = judge(have, route, e);
    }
    bson_destroy(&reply);
    bson_destroy(&command);
    mongoc_client_pool_push(m->pool, client);
    return ok;
}

void mongo_explain_no(void *sink, uint32_t route, enum retry_class why, int code, struct buf *out)
{
    enum { UNAUTHORIZED = 13 }; /* the server's code: we are logged in, so it can be asked */
    struct mongo *m = sink;
    const char *found;
    struct err e;

    if (why == RETRY_RIGHTS && code == UNAUTHORIZED &&
        !mongo_check_rights(m, &m->config->routes[route], &found, &e) && e.kind == ERR_AUTH)
        buf_add_text(out, e.text);
    else
        buf_add_text(out, outcome_advice(why, code));
}
