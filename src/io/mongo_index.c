/* Is the dedup key unique for ever? Asks the server, believes nothing else. */
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "io/mongo_private.h"

#define INDEX_NAME "idemsink_dedup"

/* What is asked once and judged then. */
struct look {
    struct mongo *m;
    const struct config_route *route;
    mongoc_client_t *client;
    const char *const *fields; /* of the dedup index */
    size_t n_fields;
    char ns[256]; /* for texts */

    bool exists; /* the collection is there */
    bool found;  /* an index that does it */
    char found_name[128];
    char wrong[320];    /* an index over these fields that does not do it, and why; "" when none */
    char earlier[128];  /* a unique index that was made before ours */
    char expiring[128]; /* an index that removes documents */
};

static const char *const id_field[] = {"_id"};

/* ---- small readers ---- */

static bool sub_document(const bson_t *doc, const char *name, bson_t *out)
{
    bson_iter_t it;
    uint32_t len;
    const uint8_t *data;

    if (!bson_iter_init_find(&it, doc, name) || !BSON_ITER_HOLDS_DOCUMENT(&it))
        return false;
    bson_iter_document(&it, &len, &data);
    return bson_init_static(out, data, len);
}

/* Absent is simple. */
static bool simple_collation(const bson_t *options)
{
    bson_t collation;

    return !sub_document(options, "collation", &collation) ||
           strcmp(mongo_text_field(&collation, "locale"), "simple") == 0;
}

static bool is_field(const struct look *l, const char *name)
{
    for (size_t i = 0; i < l->n_fields; i++)
        if (strcmp(l->fields[i], name) == 0)
            return true;
    return false;
}

/* Exactly our fields, in any order. plain: all of them ascending or descending. */
static bool same_fields(const struct look *l, const bson_t *key, bool *plain)
{
    bson_iter_t it;
    size_t n = 0;

    *plain = true;
    if (!bson_iter_init(&it, key))
        return false;
    while (bson_iter_next(&it)) {
        if (!is_field(l, bson_iter_key(&it)))
            return false;
        if (!BSON_ITER_HOLDS_NUMBER(&it)) /* "hashed", "text", "2dsphere" */
            *plain = false;
        n++;
    }
    return n == l->n_fields; /* names are pairwise different on both sides */
}

static void fields_text(const struct look *l, struct buf *out)
{
    for (size_t i = 0; i < l->n_fields; i++)
        buf_printf(out, "%s%s", i ? ", " : "", l->fields[i]);
}

/* ---- judging ---- */

/* What keeps this index over our fields from doing its work; NULL: nothing. */
static const char *flaw_of(const bson_t *index, bool plain, bool is_id)
{
    if (bson_has_field(index, "buildUUID"))
        return "is still being built: wait for it";
    if (!plain)
        return "is hashed, text or geo, and such an index can't be unique";
    if (!is_id && !mongo_true_field(index, "unique"))
        return "is not unique";
    if (bson_has_field(index, "partialFilterExpression"))
        return "is partial: what its filter leaves out is not unique";
    if (mongo_true_field(index, "sparse"))
        return "is sparse: documents without the fields are not unique";
    if (bson_has_field(index, "expireAfterSeconds"))
        return "is a TTL index: an event delivered again after its expiry would be stored again";
    if (!simple_collation(index))
        return "has a collation: different keys would count as equal";
    return NULL;
}

static void judge_index(struct look *l, const bson_t *listed)
{
    bson_t spec, key;
    const bson_t *index = listed;
    bool plain, building = sub_document(listed, "spec", &spec);

    if (building) /* {spec: {...}, buildUUID: ...} */
        index = &spec;
    if (!sub_document(index, "key", &key))
        return;
    const char *name = mongo_text_field(index, "name");
    bool is_id = bson_has_field(&key, "_id") && bson_count_keys(&key) == 1;

    if (bson_has_field(index, "expireAfterSeconds"))
        snprintf(l->expiring, sizeof l->expiring, "%s", name);
    if (!same_fields(l, &key, &plain)) {
        if (!l->found && !is_id && mongo_true_field(index, "unique") && !l->earlier[0])
            snprintf(l->earlier, sizeof l->earlier, "%s", name);
        return;
    }
    const char *flaw = building ? flaw_of(listed, plain, is_id) : flaw_of(index, plain, is_id);
    if (flaw)
        snprintf(l->wrong, sizeof l->wrong, "index %.120s %s", name, flaw);
    else if (!l->found)
        snprintf(l->found_name, sizeof l->found_name, "%s", name);
    l->found = l->found || !flaw;
}

/* ---- asking ---- */

/* ERR_AUTH says which right is missing. */
static bool ask_fail(const struct look *l, struct err *e, const char *action,
                     const bson_error_t *be)
{
    if (mongo_fault(be) != CALL_SERVER || be->code != 13)
        return mongo_fail(e, l->ns, be);
    return err_set(
        e, ERR_AUTH, 13,
        "%s: no right to %s, so it can't be proved that the dedup index is there; grant it "
        "(role readWrite has it), or set trust_index = true in the route",
        l->ns, action);
}

/* Kind and options of the collection. */
static bool judge_collection(const struct look *l, const bson_t *info, struct err *e)
{
    const char *type = mongo_text_field(info, "type");
    bson_t options;

    if (strcmp(type, "view") == 0 || strcmp(type, "timeseries") == 0)
        return err_set(e, ERR_CONFIG, 0,
                       "%s is a %s, which can't have a unique index: choose a plain collection",
                       l->ns, strcmp(type, "view") == 0 ? "view" : "time-series collection");
    if (!sub_document(info, "options", &options))
        return true;
    if (mongo_true_field(&options, "capped"))
        return err_set(e, ERR_CONFIG, 0,
                       "%s is capped: an event delivered again after its document was rolled out "
                       "would be stored again; choose a plain collection",
                       l->ns);
    if (bson_has_field(&options, "expireAfterSeconds"))
        return err_set(e, ERR_CONFIG, 0,
                       "%s expires its documents (expireAfterSeconds): an event delivered again "
                       "after that would be stored again",
                       l->ns);
    if (!simple_collation(&options))
        return err_set(e, ERR_CONFIG, 0,
                       "%s has a default collation: look-ups would take different keys for equal; "
                       "choose a collection without one",
                       l->ns);
    return true;
}

static bool ask_collection(struct look *l, struct err *e)
{
    bson_t opts = BSON_INITIALIZER, filter;
    const bson_t *info;
    bson_error_t be;
    bool ok = true;

    BSON_APPEND_DOCUMENT_BEGIN(&opts, "filter", &filter);
    BSON_APPEND_UTF8(&filter, "name", l->route->collection);
    bson_append_document_end(&opts, &filter);
    mongoc_database_t *db = mongoc_client_get_database(l->client, l->route->database);
    mongoc_cursor_t *cursor = mongoc_database_find_collections_with_opts(db, &opts);
    if (mongoc_cursor_next(cursor, &info)) {
        l->exists = true;
        ok = judge_collection(l, info, e);
    } else if (mongoc_cursor_error(cursor, &be)) {
        ok = ask_fail(l, e, "listCollections", &be);
    }
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
        mongoc_client_get_collection(l->client, l->route->database, l->route->collection);
    mongoc_cursor_t *cursor = mongoc_collection_find_indexes_with_opts(c, &opts);
    while (mongoc_cursor_next(cursor, &index))
        judge_index(l, index);
    if (mongoc_cursor_error(cursor, &be))
        ok = ask_fail(l, e, "listIndexes", &be);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    bson_destroy(&opts);
    return ok;
}

static bool judge_shard_key(const struct look *l, const bson_t *entry, struct err *e)
{
    bson_t key;
    bson_iter_t it;

    if (!sub_document(entry, "key", &key) || !bson_iter_init(&it, &key))
        return true;
    while (bson_iter_next(&it))
        if (!is_field(l, bson_iter_key(&it)))
            return err_set(
                e, ERR_CONFIG, 0,
                "%s is sharded by %s, which is no part of the dedup key: no index is unique "
                "across shards then; add it to dedup.key or shard by the dedup key",
                l->ns, bson_iter_key(&it));
    return true;
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
        mongo_fail(e, l->ns, &be);
    if (mongos) {
        BSON_APPEND_UTF8(&filter, "_id", l->ns);
        mongoc_collection_t *c = mongoc_client_get_collection(l->client, "config", "collections");
        mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, &filter, NULL, l->m->primary);
        if (mongoc_cursor_next(cursor, &entry))
            ok = mongo_true_field(entry, "dropped") || judge_shard_key(l, entry, e);
        else if (mongoc_cursor_error(cursor, &be))
            ok = ask_fail(l, e, "find in config.collections", &be);
        mongoc_cursor_destroy(cursor);
        mongoc_collection_destroy(c);
    }
    bson_destroy(&filter);
    return ok;
}

static void look_begin(struct look *l, struct mongo *m, const struct config_route *route,
                       mongoc_client_t *client)
{
    const struct config_dedup *d = &route->dedup;

    *l = (struct look){.m = m, .route = route, .client = client};
    l->fields = d->into_id ? id_field : (const char *const *)d->fields.items;
    l->n_fields = d->into_id ? 1 : d->fields.n;
    snprintf(l->ns, sizeof l->ns, "%s.%s", route->database, route->collection);
}

/* true: all was asked and nothing forbids the collection; l->found tells about the index. */
static bool look_at(struct look *l, struct err *e)
{
    if (!ask_collection(l, e) || !ask_sharding(l, e) || !ask_indexes(l, e))
        return false;
    if (l->expiring[0])
        return err_set(e, ERR_CONFIG, 0,
                       "%s has the TTL index %s, which removes documents: an event delivered again "
                       "after that would be stored again; drop it or choose another collection",
                       l->ns, l->expiring);
    return true;
}

/* ---- the two questions of mongo.h ---- */

static bool not_proved(const struct look *l, struct err *e)
{
    struct buf fields = {0};

    fields_text(l, &fields);
    if (l->wrong[0])
        err_set(
            e, ERR_CONFIG, 0,
            "%s: no unique index on exactly (%s): %s; drop that index, then run: idemsink init -c "
            "FILE",
            l->ns, buf_text(&fields), l->wrong);
    else
        err_set(e, ERR_CONFIG, 0,
                "%s: %s has no unique index on exactly (%s); run: idemsink init -c FILE (or set "
                "ensure_index = true in the route)",
                l->ns, l->exists ? "the collection" : "the collection is not there and so",
                buf_text(&fields));
    buf_clear(&fields);
    return false;
}

static void warn_about_order(const struct look *l)
{
    if (l->earlier[0])
        log_warn("another unique index was made before the dedup index: the server may name it for "
                 "a mere duplicate, which costs a look-up each",
                 LOG_TEXT("collection", l->ns), LOG_TEXT("index", l->earlier),
                 LOG_TEXT("dedup_index", l->found_name));
}

bool mongo_prove_index(struct mongo *m, const struct config_route *route, struct err *e)
{
    struct look l;
    struct err why;
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);

    look_begin(&l, m, route, client);
    bool ok = look_at(&l, &why);
    mongoc_client_pool_push(m->pool, client);
    if (!ok && why.kind == ERR_AUTH && why.code == 13 && route->trust_index) {
        log_warn("the dedup index is trusted, not proved", LOG_TEXT("collection", l.ns),
                 LOG_TEXT("why", "no right to look, and trust_index = true"));
        return true;
    }
    if (!ok) {
        *e = why;
        return false;
    }
    /* Every collection gets a unique index on _id when it is made. */
    if (!l.found && !(route->dedup.into_id && !l.wrong[0]))
        return not_proved(&l, e);
    warn_about_order(&l);
    return true;
}

static bool create_fail(const struct look *l, struct err *e, const bson_error_t *be)
{
    struct buf fields = {0};
    bool ok;

    fields_text(l, &fields);
    if (mongo_fault(be) != CALL_SERVER)
        ok = mongo_fail(e, l->ns, be);
    else if (be->code == 11000) /* the server's text names the key: payload */
        ok = err_set(
            e, ERR_CONFIG, 11000,
            "%s: the dedup index on (%s) can't be made, because documents with equal values "
            "(a missing field counts as null) are there already; remove them, then run: "
            "idemsink init -c FILE",
            l->ns, buf_text(&fields));
    else if (be->code == 13)
        ok =
            err_set(e, ERR_AUTH, 13,
                    "%s: no right to createIndex on (%s); grant it (role readWrite has it) or make "
                    "the unique index by hand",
                    l->ns, buf_text(&fields));
    else if (be->code == 85 || be->code == 86)
        ok = err_set(e, ERR_CONFIG, (int)be->code,
                     "%s: an index with the name %s or with these keys is there with other "
                     "properties; drop it, then run: idemsink init -c FILE",
                     l->ns, INDEX_NAME);
    else
        ok = mongo_fail(e, l->ns, be);
    buf_clear(&fields);
    return ok;
}

/* A client of its own: building an index takes as long as it takes, and the pool's time-out is
 * short. */
static mongoc_client_t *patient_client(const struct mongo *m)
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

static bool create_index(struct look *l, struct err *e)
{
    bson_t command = BSON_INITIALIZER, list, index, key, collation;
    bson_error_t be = {0};

    BSON_APPEND_UTF8(&command, "createIndexes", l->route->collection);
    BSON_APPEND_ARRAY_BEGIN(&command, "indexes", &list);
    BSON_APPEND_DOCUMENT_BEGIN(&list, "0", &index);
    BSON_APPEND_DOCUMENT_BEGIN(&index, "key", &key);
    for (size_t i = 0; i < l->n_fields; i++)
        BSON_APPEND_INT32(&key, l->fields[i], 1);
    bson_append_document_end(&index, &key);
    BSON_APPEND_UTF8(&index, "name", INDEX_NAME);
    BSON_APPEND_BOOL(&index, "unique", true);
    BSON_APPEND_DOCUMENT_BEGIN(&index, "collation", &collation);
    BSON_APPEND_UTF8(&collation, "locale", "simple");
    bson_append_document_end(&index, &collation);
    bson_append_document_end(&list, &index);
    bson_append_array_end(&command, &list);

    log_info("making the dedup index", LOG_TEXT("collection", l->ns),
             LOG_TEXT("index", INDEX_NAME));
    bool ok = mongoc_client_write_command_with_opts(l->client, l->route->database, &command, NULL,
                                                    NULL, &be);
    bson_destroy(&command);
    return ok || create_fail(l, e, &be);
}

bool mongo_make_index(struct mongo *m, const struct config_route *route, struct err *e)
{
    struct look l;
    mongoc_client_t *client = patient_client(m);

    look_begin(&l, m, route, client);
    bool ok = look_at(&l, e);
    if (ok && !l.found && !route->dedup.into_id)
        ok = l.wrong[0] ? not_proved(&l, e) : create_index(&l, e);
    mongoc_client_destroy(client);
    return ok;
}
