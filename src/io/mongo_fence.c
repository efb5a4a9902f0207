/*
 * mongo_fence.c - fencing numbers (route.lock.fence): one document per key,
 * {_id: key, issued: the last number that was given, by: token of the lock it was given to, fence:
 * the last number that has written}.
 *
 * A batch costs two commands, whatever it has of keys: one update that counts, one read that shows
 * the number only where `by` is ours still. (findAndModify would do both at once, one key at a
 * time.) Majority and journal, whatever mongo.write_concern says: a number that was rolled back
 * would be given twice.
 */
#include <string.h>

#include "base/mem.h"
#include "io/mongo_private.h"

struct fence {
    const char *const *keys;
    size_t n;
    const char *token;
    int64_t *numbers;
};

static void fail(const bson_error_t *be, struct outcome *why)
{
    struct outcome_call call = {
        .fault = mongo_fault(be), .code = (int)be->code, .message = be->message};

    outcome_of_failure(&call, why);
}

static mongoc_write_concern_t *majority(void)
{
    mongoc_write_concern_t *w = mongoc_write_concern_new();

    mongoc_write_concern_set_w(w, MONGOC_WRITE_CONCERN_W_MAJORITY);
    mongoc_write_concern_set_journal(w, true);
    return w;
}

/* Two who make one document at once: one of them is refused with 11000, and has no number then. */
static bool only_doubles(const bson_t *reply)
{
    bson_iter_t top, errors, one;

    if (bson_iter_init_find(&top, reply, "writeConcernErrors") && BSON_ITER_HOLDS_ARRAY(&top) &&
        bson_iter_recurse(&top, &errors) && bson_iter_next(&errors))
        return false;
    if (!bson_iter_init_find(&top, reply, "writeErrors") || !BSON_ITER_HOLDS_ARRAY(&top) ||
        !bson_iter_recurse(&top, &errors))
        return false;
    bool any = false;

    while (bson_iter_next(&errors)) {
        any = true;
        if (!bson_iter_recurse(&errors, &one) || !bson_iter_find(&one, "code") ||
            bson_iter_as_int64(&one) != 11000)
            return false;
    }
    return any;
}

static bool count(mongoc_collection_t *collection, const struct fence *f, struct outcome *why)
{
    bson_t *opts = BCON_NEW("ordered", BCON_BOOL(false)), reply;
    bson_t *upsert = BCON_NEW("upsert", BCON_BOOL(true));
    bson_t *update = BCON_NEW("$inc", "{", "issued", BCON_INT64(1), "}", "$set", "{", "by",
                              BCON_UTF8(f->token), "}");
    mongoc_bulk_operation_t *bulk =
        mongoc_collection_create_bulk_operation_with_opts(collection, opts);
    bson_error_t be = {0};
    bool ok = true;

    for (size_t i = 0; ok && i < f->n; i++) {
        bson_t *filter = BCON_NEW("_id", BCON_UTF8(f->keys[i]));

        ok = mongoc_bulk_operation_update_one_with_opts(bulk, filter, update, upsert, &be);
        bson_destroy(filter);
    }
    if (ok) {
        ok = mongoc_bulk_operation_execute(bulk, &reply, &be) != 0 || only_doubles(&reply);
        bson_destroy(&reply);
    }
    if (!ok)
        fail(&be, why);
    mongoc_bulk_operation_destroy(bulk);
    bson_destroy(update);
    bson_destroy(upsert);
    bson_destroy(opts);
    return ok;
}

/* The keys are sorted. */
static void take_number(const struct fence *f, const bson_t *found)
{
    bson_iter_t at;
    const char *key = mongo_text_field(found, "_id");
    size_t low = 0, high = f->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(f->keys[middle], key);

        if (order == 0 && bson_iter_init_find(&at, found, "issued") && BSON_ITER_HOLDS_INT64(&at))
            f->numbers[middle] = bson_iter_int64(&at);
        if (order == 0)
            return;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
}

static bool look(mongoc_collection_t *collection, const mongoc_read_prefs_t *primary,
                 const struct fence *f, struct outcome *why)
{
    bson_t filter = BSON_INITIALIZER, in, keys;
    bson_t *opts = BCON_NEW("projection", "{", "issued", BCON_INT32(1), "}", "batchSize",
                            BCON_INT64((int64_t)f->n + 1));
    const bson_t *found;
    bson_error_t be = {0};
    mongoc_cursor_t *cursor;
    bool ok;

    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &in);
    BSON_APPEND_ARRAY_BEGIN(&in, "$in", &keys);
    for (size_t i = 0; i < f->n; i++) {
        char buffer[16];
        const char *index;

        (void)bson_uint32_to_string((uint32_t)i, &index, buffer, sizeof buffer);
        BSON_APPEND_UTF8(&keys, index, f->keys[i]);
    }
    bson_append_array_end(&in, &keys);
    bson_append_document_end(&filter, &in);
    BSON_APPEND_UTF8(&filter, "by", f->token);
    cursor = mongoc_collection_find_with_opts(collection, &filter, opts, primary);
    while (mongoc_cursor_next(cursor, &found))
        take_number(f, found);
    ok = !mongoc_cursor_error(cursor, &be);
    if (!ok)
        fail(&be, why);
    mongoc_cursor_destroy(cursor);
    bson_destroy(opts);
    bson_destroy(&filter);
    return ok;
}

bool mongo_fence_issue(struct mongo *m, mongoc_client_t *client, const struct mongo_fence *what,
                       int64_t *numbers, struct outcome *why)
{
    const struct config_lock *lock = &m->config->routes[what->route].lock;
    struct fence f = {.keys = what->keys, .n = what->n, .token = what->token, .numbers = numbers};
    mongoc_write_concern_t *concern = majority();
    mongoc_collection_t *collection =
        mongoc_client_get_collection(client, lock->fence_database, lock->fence);
    bool ok;

    memset(numbers, 0, f.n * sizeof *numbers);
    mongoc_collection_set_write_concern(collection, concern);
    ok = count(collection, &f, why) && look(collection, m->primary, &f, why);
    mongoc_collection_destroy(collection);
    mongoc_write_concern_destroy(concern);
    return ok;
}
