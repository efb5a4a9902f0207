#include "io/mongo_reconcile.h"

#include <string.h>

#include "base/fault.h"
#include "base/mem.h"
#include "io/mongo_private.h"

/* Whoever reads may repair between two documents: a batch has to be through before the server
 * forgets the cursor (ten minutes). */
enum { BATCH = 200 };

static bool fail(struct err *e, const char *doing, const char *database, const char *collection,
                 const bson_error_t *be)
{
    char what[256];

    (void)snprintf(what, sizeof what, "%s %.100s.%.100s", doing, database, collection);
    return mongo_fail(e, what, be);
}

bool mongo_has_snapshots(struct mongo *m, bool *snapshot, struct err *e)
{
    struct mongo_facts facts;

    if (!mongo_look(m, &facts, e))
        return false;
    *snapshot = facts.mongos || facts.set[0] != '\0';
    return true;
}

/* ---- reading many ---- */

static void append_majority(bson_t *opts)
{
    mongoc_read_concern_t *majority = mongoc_read_concern_new();

    mongoc_read_concern_set_level(majority, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
    mongoc_read_concern_append(majority, opts);
    mongoc_read_concern_destroy(majority);
}

struct reading {
    mongoc_client_t *client;
    mongoc_collection_t *c;
    mongoc_read_prefs_t *prefs;
    bson_t opts;
};

static void reading_begin(struct reading *r, struct mongo *m, const char *database,
                          const char *collection, bool secondary)
{
    r->client = mongoc_client_pool_pop(m->pool);
    r->c = mongoc_client_get_collection(r->client, database, collection);
    r->prefs =
        mongoc_read_prefs_new(secondary ? MONGOC_READ_SECONDARY_PREFERRED : MONGOC_READ_PRIMARY);
    bson_init(&r->opts);
    BSON_APPEND_INT32(&r->opts, "batchSize", BATCH);
    append_majority(&r->opts);
}

static bool reading_end(struct reading *r, struct mongo *m, mongoc_cursor_t *cursor,
                        mongo_scan_fn *each, void *ctx, bson_error_t *be)
{
    const bson_t *doc;
    bool more = true;

    while (more && mongoc_cursor_next(cursor, &doc))
        more = each(doc, ctx);
    bool ok = !more || !mongoc_cursor_error(cursor, be);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(r->c);
    mongoc_read_prefs_destroy(r->prefs);
    bson_destroy(&r->opts);
    mongoc_client_pool_push(m->pool, r->client);
    return ok;
}

bool mongo_aggregate(struct mongo *m, const char *database, const char *collection,
                     const bson_t *pipeline, bool secondary, mongo_scan_fn *each, void *ctx,
                     struct err *e)
{
    bson_error_t be = {0};
    struct reading r;

    reading_begin(&r, m, database, collection, secondary);
    BSON_APPEND_BOOL(&r.opts, "allowDiskUse", true);
    mongoc_cursor_t *cursor =
        mongoc_collection_aggregate(r.c, MONGOC_QUERY_NONE, pipeline, &r.opts, r.prefs);
    return reading_end(&r, m, cursor, each, ctx, &be) ||
           fail(e, "counting in", database, collection, &be);
}

bool mongo_scan_some(struct mongo *m, const char *database, const char *collection,
                     const bson_t *filter, const bson_t *projection, bool secondary,
                     mongo_scan_fn *each, void *ctx, struct err *e)
{
    bson_error_t be = {0};
    struct reading r;

    reading_begin(&r, m, database, collection, secondary);
    BSON_APPEND_BOOL(&r.opts, "noCursorTimeout", true);
    BSON_APPEND_DOCUMENT(&r.opts, "projection", projection);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(r.c, filter, &r.opts, r.prefs);
    return reading_end(&r, m, cursor, each, ctx, &be) ||
           fail(e, "reading", database, collection, &be);
}

bool mongo_raise(struct mongo *m, const char *database, const char *collection, const bson_t *id,
                 const char *field, int64_t number, struct err *e)
{
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    mongoc_collection_t *c = mongoc_client_get_collection(client, database, collection);
    bson_t *update = BCON_NEW("$max", "{", field, BCON_INT64(number), "}");
    bson_t *opts = BCON_NEW("upsert", BCON_BOOL(true));
    bson_error_t be = {0};

    MUST(mongoc_write_concern_append(m->concern, opts));
    FAULT("repair.before_raise");
    bool ok = mongoc_collection_update_one(c, id, update, opts, NULL, &be);
    bson_destroy(opts);
    bson_destroy(update);
    mongoc_collection_destroy(c);
    mongoc_client_pool_push(m->pool, client);
    return ok || fail(e, "raising a counter in", database, collection, &be);
}

/* Are the first n fields of an index these, in any order? */
static bool serves(const bson_t *index, char *const *fields, size_t n)
{
    bson_iter_t it, key;
    size_t at = 0;

    if (!bson_iter_init_find(&it, index, "key") || !bson_iter_recurse(&it, &key))
        return false;
    for (; at < n && bson_iter_next(&key); at++) {
        bool known = false;

        for (size_t i = 0; i < n; i++)
            known = known || strcmp(fields[i], bson_iter_key(&key)) == 0;
        if (!known)
            return at > 0; /* a part of the filter is in front: it helps */
    }
    return at > 0;
}

bool mongo_has_index(struct mongo *m, const char *database, const char *collection,
                     char *const *fields, size_t n)
{
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    mongoc_collection_t *c = mongoc_client_get_collection(client, database, collection);
    mongoc_cursor_t *cursor = mongoc_collection_find_indexes_with_opts(c, NULL);
    const bson_t *index;
    bson_error_t be;
    bool found = false;

    while (!found && mongoc_cursor_next(cursor, &index))
        found = serves(index, fields, n);
    found = found || mongoc_cursor_error(cursor, &be); /* no right to look: nothing to warn of */
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    mongoc_client_pool_push(m->pool, client);
    return found;
}

/* ---- several of one moment ---- */

enum { TOGETHER_TRIES = 10 };

static bool read_one(mongoc_client_t *client, const struct mongo_reading *r, const bson_t *opts,
                     const mongoc_read_prefs_t *primary, void *ctx, bool *again, struct err *e)
{
    mongoc_collection_t *c = mongoc_client_get_collection(client, r->database, r->collection);
    mongoc_cursor_t *cursor =
        mongoc_collection_aggregate(c, MONGOC_QUERY_NONE, r->pipeline, opts, primary);
    const bson_t *doc, *reply = NULL;
    bson_error_t be = {0};
    bool more = true, ok = true;

    while (more && mongoc_cursor_next(cursor, &doc))
        more = r->each(doc, ctx);
    if (more && mongoc_cursor_error_document(cursor, &be, &reply)) {
        ok = fail(e, "reading", r->database, r->collection, &be);
        *again = reply && mongoc_error_has_label(reply, "TransientTransactionError");
    }
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    return ok;
}

static bool read_all(struct mongo *m, mongoc_client_t *client, mongoc_client_session_t *session,
                     const struct mongo_reading *readings, size_t n, void *ctx, bool *again,
                     struct err *e)
{
    bson_t opts = BSON_INITIALIZER;
    bson_error_t be = {0};
    bool ok = true;

    if (session)
        ok = mongoc_client_session_append(session, &opts, &be);
    else
        append_majority(&opts);
    MUST(ok);
    BSON_APPEND_BOOL(&opts, "allowDiskUse", true);
    for (size_t i = 0; ok && i < n; i++)
        ok = read_one(client, &readings[i], &opts, m->primary, ctx, again, e);
    bson_destroy(&opts);
    return ok;
}

static bool read_in_transaction(struct mongo *m, mongoc_client_t *client,
                                const struct mongo_reading *readings, size_t n, void *ctx,
                                bool *again, struct err *e)
{
    mongoc_transaction_opt_t *opts = mongoc_transaction_opts_new();
    mongoc_read_concern_t *snapshot = mongoc_read_concern_new();
    bson_error_t be = {0};
    mongoc_client_session_t *session = mongoc_client_start_session(client, NULL, &be);

    mongoc_read_concern_set_level(snapshot, MONGOC_READ_CONCERN_LEVEL_SNAPSHOT);
    mongoc_transaction_opts_set_read_concern(opts, snapshot);
    mongoc_transaction_opts_set_read_prefs(opts, m->primary);
    bool ok = session && mongoc_client_session_start_transaction(session, opts, &be);
    if (ok) {
        ok = read_all(m, client, session, readings, n, ctx, again, e);
        (void)mongoc_client_session_abort_transaction(session, NULL);
    } else {
        ok = mongo_fail(e, "beginning a transaction", &be);
    }
    if (session)
        mongoc_client_session_destroy(session);
    mongoc_read_concern_destroy(snapshot);
    mongoc_transaction_opts_destroy(opts);
    return ok;
}

bool mongo_read_together(struct mongo *m, bool snapshots, const struct mongo_reading *readings,
                         size_t n, void (*begin)(void *ctx), void *ctx, struct err *e)
{
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    bool ok, again = true;

    for (int i = 0; again && i < TOGETHER_TRIES; i++) {
        again = false;
        begin(ctx);
        ok = snapshots ? read_in_transaction(m, client, readings, n, ctx, &again, e)
                       : read_all(m, client, NULL, readings, n, ctx, &again, e);
        if (ok)
            again = false;
    }
    mongoc_client_pool_push(m->pool, client);
    return ok;
}
