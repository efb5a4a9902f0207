#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/mongo_private.h"

enum { SCAN_BATCH = 1000, PRIMARY_WAIT_MS = 30000, PRIMARY_POLL_MS = 100 };

/* ---- reading a collection ---- */

static bool fail_on(struct err *e, const char *doing, const char *database, const char *collection,
                    const bson_error_t *be)
{
    char what[256];

    snprintf(what, sizeof what, "%s %s.%s", doing, database, collection);
    return mongo_fail(e, what, be);
}

bool mongo_scan(struct mongo *m, const struct config_route *route, mongo_scan_fn *each, void *ctx,
                struct err *e)
{
    bson_t filter = BSON_INITIALIZER, opts = BSON_INITIALIZER;
    mongoc_read_concern_t *majority = mongoc_read_concern_new();
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    mongoc_collection_t *c =
        mongoc_client_get_collection(client, route->database, route->collection);
    const bson_t *doc;
    bson_error_t be;
    bool ok = true, more = true;

    BSON_APPEND_INT32(&opts, "batchSize", SCAN_BATCH);
    /* Its reader may think for longer than ten minutes; each batch keeps the server's session
     * alive. */
    BSON_APPEND_BOOL(&opts, "noCursorTimeout", true);
    mongoc_read_concern_set_level(majority, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
    mongoc_read_concern_append(majority, &opts);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, &filter, &opts, m->primary);
    while (more && mongoc_cursor_next(cursor, &doc))
        more = each(doc, ctx);
    if (more && mongoc_cursor_error(cursor, &be))
        ok = fail_on(e, "reading", route->database, route->collection, &be);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    mongoc_client_pool_push(m->pool, client);
    mongoc_read_concern_destroy(majority);
    bson_destroy(&filter);
    bson_destroy(&opts);
    return ok;
}

bool mongo_find_in(struct mongo *m, const char *database, const char *collection,
                   const bson_t *filter, bson_t **out, struct err *e)
{
    bson_t opts = BSON_INITIALIZER;
    mongoc_read_concern_t *majority = mongoc_read_concern_new();
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    mongoc_collection_t *c = mongoc_client_get_collection(client, database, collection);
    const bson_t *doc;
    bson_error_t be;
    bool ok = true;

    *out = NULL;
    BSON_APPEND_INT64(&opts, "limit", 1);
    BSON_APPEND_BOOL(&opts, "singleBatch", true);
    mongoc_read_concern_set_level(majority, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
    mongoc_read_concern_append(majority, &opts);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, filter, &opts, m->primary);
    if (mongoc_cursor_next(cursor, &doc))
        *out = bson_copy(doc);
    else if (mongoc_cursor_error(cursor, &be))
        ok = fail_on(e, "reading", database, collection, &be);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    mongoc_client_pool_push(m->pool, client);
    mongoc_read_concern_destroy(majority);
    bson_destroy(&opts);
    return ok;
}

bool mongo_find(struct mongo *m, const struct config_route *route, const bson_t *filter,
                bson_t **out, struct err *e)
{
    bool ledger = config_has_operation(route);

    return mongo_find_in(m, ledger ? route->operation.ledger_database : route->database,
                         ledger ? route->operation.ledger : route->collection, filter, out, e);
}

int64_t mongo_count(struct mongo *m, const struct config_route *route)
{
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    mongoc_collection_t *c =
        mongoc_client_get_collection(client, route->database, route->collection);
    bson_error_t be;
    int64_t n = mongoc_collection_estimated_document_count(c, NULL, m->primary, NULL, &be);

    mongoc_collection_destroy(c);
    mongoc_client_pool_push(m->pool, client);
    return n;
}

/* ---- one member, asked directly ---- */

/*
 * To one member, whatever state it is in. Without credentials: before the first user is made the
 * server takes an initiation from localhost only, and from anybody when access control is off.
 */
static mongoc_client_t *direct_client(const mongoc_uri_t *given, const mongoc_host_list_t *host)
{
    mongoc_uri_t *uri = mongoc_uri_new_for_host_port(host->host, host->port);
    bson_iter_t it;

    MUST(uri != NULL);
    mongoc_uri_set_option_as_bool(uri, MONGOC_URI_DIRECTCONNECTION, true);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS, 2000);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_CONNECTTIMEOUTMS, 2000);
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SOCKETTIMEOUTMS, 10000);
    if (bson_iter_init(&it, mongoc_uri_get_options(given)))
        while (bson_iter_next(&it)) {
            if (strncmp(bson_iter_key(&it), "tls", 3) != 0)
                continue;
            if (BSON_ITER_HOLDS_BOOL(&it))
                mongoc_uri_set_option_as_bool(uri, bson_iter_key(&it), bson_iter_bool(&it));
            else if (BSON_ITER_HOLDS_UTF8(&it))
                mongoc_uri_set_option_as_utf8(uri, bson_iter_key(&it), bson_iter_utf8(&it, NULL));
        }
    mongoc_client_t *client = mongoc_client_new_from_uri(uri);
    mongoc_uri_destroy(uri);
    if (client)
        mongoc_client_set_error_api(client, MONGOC_ERROR_API_VERSION_2);
    return client;
}

/* Why the member that says hello is not what the URI asks for; the error stays as it is when it
 * says nothing new. */
static void explain(const bson_t *hello, const char *host, const char *set, struct err *e)
{
    const char *its_set = mongo_text_field(hello, "setName");

    if (*its_set && *set && strcmp(its_set, set) != 0)
        err_set(e, ERR_CONFIG, 0,
                "mongodb: %s is a member of the replica set %.100s, but mongo.uri says "
                "replicaSet=%.100s",
                host, its_set, set);
    else if (!*its_set && mongo_true_field(hello, "isreplicaset"))
        err_set(e, ERR_TRANSIENT, 0,
                "mongodb: %s answers, but its replica set is not initiated; run: idemsink init "
                "--replica-set -c FILE",
                host);
    else if (!*its_set && *set)
        err_set(e, ERR_CONFIG, 0,
                "mongodb: %s is no member of a replica set, but mongo.uri says replicaSet=%.100s",
                host, set);
    else if (!mongo_true_field(hello, "isWritablePrimary"))
        err_set(
            e, ERR_TRANSIENT, 0,
            "mongodb: %s answers, but there is no primary that can be reached (it names %.200s)",
            host,
            *mongo_text_field(hello, "primary") ? mongo_text_field(hello, "primary") : "none");
}

void mongo_explain_selection(const mongoc_uri_t *uri, struct err *e)
{
    const mongoc_host_list_t *host = mongoc_uri_get_hosts(uri);
    const char *set = mongoc_uri_get_replica_set(uri);
    mongoc_client_t *client = host ? direct_client(uri, host) : NULL;
    bson_error_t be;
    bson_t hello;

    if (!client)
        return;
    if (mongo_hello(client, NULL, &hello, &be))
        explain(&hello, host->host_and_port, set ? set : "", e);
    bson_destroy(&hello);
    mongoc_client_destroy(client);
}

/* ---- initiating a replica set ---- */

struct rs_init {
    const mongoc_host_list_t *hosts;
    mongoc_uri_t *uri;
    const char *set;
    int64_t deadline_ms;
};

static bool initiate(const struct rs_init *r, mongoc_client_t *client, bson_error_t *be)
{
    bson_t command = BSON_INITIALIZER, conf, members, member;
    int32_t i = 0;

    BSON_APPEND_DOCUMENT_BEGIN(&command, "replSetInitiate", &conf);
    BSON_APPEND_UTF8(&conf, "_id", r->set);
    BSON_APPEND_ARRAY_BEGIN(&conf, "members", &members);
    for (const mongoc_host_list_t *h = r->hosts; h; h = h->next, i++) {
        char key[16];
        snprintf(key, sizeof key, "%d", (int)i);
        BSON_APPEND_DOCUMENT_BEGIN(&members, key, &member);
        BSON_APPEND_INT32(&member, "_id", i);
        BSON_APPEND_UTF8(&member, "host", h->host_and_port);
        bson_append_document_end(&members, &member);
    }
    bson_append_array_end(&conf, &members);
    bson_append_document_end(&command, &conf);
    bool ok = mongoc_client_command_simple(client, "admin", &command, NULL, NULL, be);
    bson_destroy(&command);
    return ok || (be->domain == MONGOC_ERROR_SERVER && be->code == 23 /* AlreadyInitialized */);
}

/* One try. *again: it may work a little later. */
static bool try_to_initiate(const struct rs_init *r, bool *again, struct err *e)
{
    mongoc_client_t *client = direct_client(r->uri, r->hosts);
    bson_error_t be = {0};
    bson_t hello;
    bool ok;

    *again = false;
    if (!client)
        return err_set(e, ERR_CONFIG, 0, "mongo.uri: no client for its first host");
    if (!mongo_hello(client, NULL, &hello, &be)) {
        *again = true;
        ok = mongo_fail(e, r->hosts->host_and_port, &be);
    } else if (*mongo_text_field(&hello, "setName")) {
        ok = strcmp(mongo_text_field(&hello, "setName"), r->set) == 0 ||
             err_set(e, ERR_CONFIG, 0, "%s is a member of the replica set %.100s, not of %s",
                     r->hosts->host_and_port, mongo_text_field(&hello, "setName"), r->set);
    } else {
        ok = initiate(r, client, &be) || mongo_fail(e, "replSetInitiate", &be);
        if (ok)
            log_info("replica set initiated", LOG_TEXT("set", r->set),
                     LOG_TEXT("first_member", r->hosts->host_and_port));
        else
            *again = e->kind == ERR_TRANSIENT;
    }
    bson_destroy(&hello);
    mongoc_client_destroy(client);
    return ok;
}

static bool has_primary(const struct rs_init *r)
{
    for (const mongoc_host_list_t *h = r->hosts; h; h = h->next) {
        mongoc_client_t *client = direct_client(r->uri, h);
        bson_error_t be;
        bson_t hello;
        if (!client)
            continue;
        bool yes =
            mongo_hello(client, NULL, &hello, &be) && mongo_true_field(&hello, "isWritablePrimary");
        bson_destroy(&hello);
        mongoc_client_destroy(client);
        if (yes)
            return true;
    }
    return false;
}

static bool wait_a_little(const struct rs_init *r)
{
    if (clock_mono_ms() >= r->deadline_ms)
        return false;
    usleep(PRIMARY_POLL_MS * 1000);
    return true;
}

static bool run_init(const struct rs_init *r, struct err *e)
{
    bool again;

    while (!try_to_initiate(r, &again, e))
        if (!again || !wait_a_little(r))
            return false;
    while (!has_primary(r))
        if (!wait_a_little(r))
            return err_set(e, ERR_TRANSIENT, 0, "replica set %s has no writable primary after %d s",
                           r->set, PRIMARY_WAIT_MS / 1000);
    return true;
}

bool mongo_init_replica_set(const struct config *c, struct err *e)
{
    struct rs_init r = {.uri = mongo_uri(c, e), .deadline_ms = clock_mono_ms() + PRIMARY_WAIT_MS};
    bool ok;

    if (!r.uri)
        return false;
    r.hosts = mongoc_uri_get_hosts(r.uri);
    r.set = mongoc_uri_get_replica_set(r.uri);
    if (!r.hosts)
        ok = err_set(e, ERR_CONFIG, 0,
                     "mongo.uri: initiating a replica set needs mongodb:// with its members");
    else if (!r.set)
        ok = err_set(e, ERR_CONFIG, 0,
                     "mongo.uri: initiating a replica set needs its name, ?replicaSet=NAME");
    else
        ok = run_init(&r, e);
    mongoc_uri_destroy(r.uri);
    return ok;
}
