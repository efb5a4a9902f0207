/*
 * mongo_mirror.c - reads back the counter documents that a batch has moved, for their mirrors.
 *
 * With majority: what Redis is told can't be rolled back any more. The write before has waited for
 * the majority, so what it did is visible to such a read, and its version is at least the one that
 * the write made.
 */
#include "base/log.h"
#include "base/mem.h"
#include "core/mirror.h"
#include "io/mongo_private.h"
#include "io/mongo_reconcile.h"

enum { SAY_AGAIN_MS = 10000 };

static void say_unread(const struct config_counter *c, const bson_error_t *be)
{
    static struct log_limit limit;
    int64_t held_back;
    struct err e;

    if (!log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
        return;
    (void)mongo_fail(&e, "reading counters back", be);
    log_warn("mirrors keep their values until their counters move again",
             LOG_TEXT("database", c->database), LOG_TEXT("collection", c->collection),
             LOG_TEXT("error", e.text), LOG_INT("held_back", held_back));
}

static void say_unfilled(const struct config_counter *c)
{
    static struct log_limit limit;
    int64_t held_back;

    if (log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
        log_warn("a counter document can't be mirrored: a field of its key is empty or no scalar",
                 LOG_TEXT("database", c->database), LOG_TEXT("collection", c->collection),
                 LOG_TEXT("mirror", c->mirror), LOG_INT("held_back", held_back));
}

static mongoc_cursor_t *read_back(struct mongo *m, mongoc_collection_t *collection,
                                  const struct config_counter *c, const bson_t *const *filters,
                                  size_t n)
{
    bson_t filter = BSON_INITIALIZER, opts = BSON_INITIALIZER, projection;
    mongoc_read_concern_t *majority = mongoc_read_concern_new();

    mirror_filter(filters, n, &filter);
    mongoc_read_concern_set_level(majority, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
    mongoc_read_concern_append(majority, &opts);
    /* One more than there can be, so that the first batch is the last. */
    BSON_APPEND_INT64(&opts, "batchSize", (int64_t)n + 1);
    BSON_APPEND_INT64(&opts, "maxTimeMS", m->config->mongo.write_timeout_ms);
    BSON_APPEND_DOCUMENT_BEGIN(&opts, "projection", &projection);
    mirror_projection(c, &projection);
    bson_append_document_end(&opts, &projection);
    mongoc_cursor_t *cursor =
        mongoc_collection_find_with_opts(collection, &filter, &opts, m->primary);
    mongoc_read_concern_destroy(majority);
    bson_destroy(&filter);
    bson_destroy(&opts);
    return cursor;
}

static bool mirror_counter(struct mongo *m, mongoc_client_t *client, const struct config_counter *c,
                           const bson_t *const *filters, size_t n, struct invalidation_list *out,
                           bson_error_t *be)
{
    mongoc_collection_t *collection =
        mongoc_client_get_collection(client, c->database, c->collection);
    mongoc_cursor_t *cursor = read_back(m, collection, c, filters, n);
    const bson_t *found;

    while (mongoc_cursor_next(cursor, &found))
        if (!mirror_add(c, found, out))
            say_unfilled(c);
    bool ok = !mongoc_cursor_error(cursor, be);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(collection);
    return ok;
}

void mongo_mirror(struct mongo *m, mongoc_client_t *client, uint32_t route,
                  const struct write_op *const *ops, size_t n, struct invalidation_list *out)
{
    const struct config_route *r = &m->config->routes[route];
    bson_error_t be = {0};

    for (uint32_t i = 0; i < r->n_counters; i++) {
        size_t n_filters = 0;

        if (!mirror_wanted(&r->counters[i]))
            continue;
        const bson_t **filters = mirror_moved(ops, n, i, &n_filters);
        if (n_filters > 0 &&
            !mirror_counter(m, client, &r->counters[i], filters, n_filters, out, &be))
            say_unread(&r->counters[i], &be);
        mem_free(filters);
    }
}

bool mongo_mirror_again(struct mongo *m, const struct config_counter *c, const bson_t *key,
                        struct invalidation_list *out, struct err *e)
{
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    bson_error_t be = {0};
    bool ok = mirror_counter(m, client, c, &key, 1, out, &be);

    mongoc_client_pool_push(m->pool, client);
    return ok || mongo_fail(e, "reading a counter back for its mirror", &be);
}
