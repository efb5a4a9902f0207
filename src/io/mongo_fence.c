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

#include "base/log.h"
#include "base/mem.h"
#include "io/mongo_private.h"

struct fence {
    const char *const *keys;
    size_t n;
    const char *token;
    int64_t *numbers;
    size_t odd; /* keys whose documents hold no number that could be raised */
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

/*
 * Of one document, and no reason to leave the others without numbers: two who make it at once, one
 * of them is refused with 11000, and has none then; or what stands there can't be raised (no
 * number, 2^63-1), which somebody has to mend.
 */
static bool is_of_one(int64_t code, size_t *odd)
{
    enum { BAD_VALUE = 2, TYPE_MISMATCH = 14, DUPLICATE_KEY = 11000 };

    *odd += code == BAD_VALUE || code == TYPE_MISMATCH;
    return code == BAD_VALUE || code == TYPE_MISMATCH || code == DUPLICATE_KEY;
}

static bool only_of_some(const bson_t *reply, size_t *odd)
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
            !is_of_one(bson_iter_as_int64(&one), odd))
            return false;
    }
    return any;
}

static bool count(mongoc_collection_t *collection, struct fence *f, struct outcome *why)
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
        ok = mongoc_bulk_operation_execute(bulk, &reply, &be) != 0 || only_of_some(&reply, &f->odd);
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
static void take_number(struct fence *f, const bson_t *found)
{
    bson_iter_t at;
    const char *key = mongo_text_field(found, "_id");
    size_t low = 0, high = f->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = strcmp(f->keys[middle], key);

        if (order == 0) {
            if (bson_iter_init_find(&at, found, "issued") && BSON_ITER_HOLDS_INT64(&at))
                f->numbers[middle] = bson_iter_int64(&at);
            else
                f->odd++; /* a double: it would stand still at 2^53 */
            return;
        }
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
}

static bool look(mongoc_collection_t *collection, const mongoc_read_prefs_t *primary,
                 struct fence *f, struct outcome *why)
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

static void say_odd(const struct config_route *r, size_t odd)
{
    enum { SAY_AGAIN_MS = 10000 };
    static struct log_limit limit;
    int64_t held_back;

    if (odd > 0 && log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
        log_error("fencing numbers can't be raised, and the records of these locks wait until "
                  "somebody sets `issued` to an integer of 64 bits below 2^63-1 that is above each "
                  "number that was given; find them: {$or: [{issued: {$not: {$type: \"long\"}}}, "
                  "{issued: {$gte: NumberLong(\"9223372036854775807\")}}]}",
                  LOG_TEXT("route", r->name), LOG_TEXT("database", r->lock.fence_database),
                  LOG_TEXT("collection", r->lock.fence), LOG_INT("documents", (int64_t)odd),
                  LOG_INT("held_back", held_back));
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
    say_odd(&m->config->routes[what->route], f.odd);
    mongoc_collection_destroy(collection);
    mongoc_write_concern_destroy(concern);
    return ok;
}
