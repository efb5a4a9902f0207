/* What the user may do, as the server says when it is asked. */
#include <string.h>

#include "base/mem.h"
#include "io/mongo_needs.h"
#include "io/mongo_private.h"

/* In the order of enum need_action, but insert comes first: what a reader expects. */
static const struct {
    const char *name;
    unsigned bit;
} needed[NEED_ACTIONS] = {{"insert", NEED_DO_INSERT},
                          {"update", NEED_DO_UPDATE},
                          {"remove", NEED_DO_REMOVE},
                          {"find", NEED_DO_FIND},
                          {"listIndexes", NEED_DO_LIST_INDEXES},
                          {"createIndex", NEED_DO_CREATE_INDEX}};

static void add_names(unsigned actions, struct buf *out)
{
    size_t start = out->len;

    for (size_t i = 0; i < NEED_ACTIONS; i++)
        if (actions & needed[i].bit)
            buf_printf(out, "%s%s", out->len > start ? ", " : "", needed[i].name);
}

static bool sub_iter(const bson_t *doc, const char *path, bson_iter_t *out)
{
    bson_iter_t it, at;

    return bson_iter_init(&it, doc) && bson_iter_find_descendant(&it, path, &at) &&
           bson_iter_recurse(&at, out);
}

/* {db, collection}, where "" means every one; {anyResource: true}; {cluster: true} is not for
 * collections. */
static bool covers(bson_iter_t *resource, const struct need_collection *c)
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
    return db != NULL && collection != NULL && (*db == '\0' || strcmp(db, c->database) == 0) &&
           (*collection == '\0' || strcmp(collection, c->collection) == 0);
}

/* One {resource: {...}, actions: [...]}. */
static void add_privilege(const bson_iter_t *privilege, const struct need_collection *c,
                          unsigned *have)
{
    bson_iter_t field, resource, action;

    if (!bson_iter_recurse(privilege, &field) || !bson_iter_find(&field, "resource") ||
        !bson_iter_recurse(&field, &resource) || !covers(&resource, c))
        return;
    if (!bson_iter_recurse(privilege, &field) || !bson_iter_find(&field, "actions") ||
        !bson_iter_recurse(&field, &action))
        return;
    while (bson_iter_next(&action))
        for (size_t i = 0; i < NEED_ACTIONS && BSON_ITER_HOLDS_UTF8(&action); i++)
            if (strcmp(bson_iter_utf8(&action, NULL), needed[i].name) == 0)
                *have |= needed[i].bit;
}

static bool judge(unsigned have, const struct need_collection *c, struct err *e)
{
    struct buf missing = {0};

    add_names(c->actions & ~have, &missing);
    bool ok = missing.len == 0;
    if (!ok)
        err_set(e, ERR_AUTH, 13,
                "the user has no right to %s on %s.%s; grant it: role readWrite on database %s, or "
                "a role with these actions on the collection",
                buf_text(&missing), c->database, c->collection, c->database);
    buf_clear(&missing);
    return ok;
}

bool mongo_check_need_rights(struct mongo *m, const struct need_collection *c, struct buf *found,
                             struct err *e)
{
    bson_t command = BSON_INITIALIZER, reply;
    bson_error_t be = {0};
    bson_iter_t users, privileges;
    unsigned have = 0;
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);

    BSON_APPEND_INT32(&command, "connectionStatus", 1);
    BSON_APPEND_BOOL(&command, "showPrivileges", true);
    bool ok = mongoc_client_command_simple(client, "admin", &command, m->primary, &reply, &be);
    if (!ok) {
        mongo_fail(e, "mongodb: connectionStatus", &be);
    } else if (!sub_iter(&reply, "authInfo.authenticatedUsers", &users) ||
               !bson_iter_next(&users)) {
        buf_add_text(found, "no access control seen: nobody is logged in");
    } else if (!sub_iter(&reply, "authInfo.authenticatedUserPrivileges", &privileges)) {
        buf_add_text(found, "the server does not tell them");
    } else {
        while (bson_iter_next(&privileges))
            add_privilege(&privileges, c, &have);
        add_names(c->actions, found);
        ok = judge(have, c, e);
    }
    bson_destroy(&reply);
    bson_destroy(&command);
    mongoc_client_pool_push(m->pool, client);
    return ok;
}

/* Which right it is that is missing, in any of the route's collections. False: none that is known.
 */
static bool missing_right(struct mongo *m, uint32_t index, struct err *e)
{
    const struct config_route *route = &m->config->routes[index];
    struct needs needs;
    struct buf found = {0};
    bool missing = false;

    needs_of(route, m->decided && m->ways[index] == MONGO_STEPWISE, &needs);
    for (size_t i = 0; i < needs.n_collections && !missing; i++)
        missing = !mongo_check_need_rights(m, &needs.collections[i], &found, e);
    buf_clear(&found);
    needs_clear(&needs);
    return missing && e->kind == ERR_AUTH;
}

void mongo_explain_no(void *sink, uint32_t route, enum retry_class why, int code, struct buf *out)
{
    enum { UNAUTHORIZED = 13 }; /* the server's code: we are logged in, so it can be asked */
    struct mongo *m = sink;
    struct err e;

    if (why == RETRY_RIGHTS && code == UNAUTHORIZED && missing_right(m, route, &e))
        buf_add_text(out, e.text);
    else
        buf_add_text(out, outcome_advice(why, code));
}
