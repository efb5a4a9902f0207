/* A read for many operations at once, as it is made before they are written. */
#include <string.h>

#include "io/mongo_private.h"

bson_t *mongo_look_opts(const struct config *c)
{
    bson_t *opts = bson_new();

    /*
     * Only what can't be rolled back any more is a duplicate. The command before waited for the
     * majority, so what stood in its way is visible to such a read. After a weaker write concern it
     * need not be, and would pass for a conflict with another event.
     */
    if (strcmp(c->mongo.write_concern, "majority") == 0) {
        mongoc_read_concern_t *majority = mongoc_read_concern_new();

        mongoc_read_concern_set_level(majority, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
        mongoc_read_concern_append(majority, opts);
        mongoc_read_concern_destroy(majority);
    }
    return opts;
}

void mongo_read(const struct mongo_read *r, struct outcome_call *call, bson_error_t *be,
                bson_t *reply)
{
    bson_t opts = BSON_INITIALIZER;
    const bson_t *found, *said = NULL;

    MUST(bson_concat(&opts, r->opts));
    /* One more than there can be, so that the first batch is the last. */
    BSON_APPEND_INT64(&opts, "batchSize", (int64_t)r->n + 1);
    BSON_APPEND_DOCUMENT(&opts, "projection", r->projection);
    *call = (struct outcome_call){.fault = CALL_FINE};
    mongoc_cursor_t *cursor =
        mongoc_collection_find_with_opts(r->collection, r->filter, &opts, r->prefs);
    while (mongoc_cursor_next(cursor, &found))
        r->found(r->ctx, found);
    if (mongoc_cursor_error_document(cursor, be, &said)) {
        call->fault = mongo_fault(be);
        call->code = (int)be->code;
        call->message = be->message;
        if (reply && said)
            MUST(bson_concat(reply, said));
    }
    mongoc_cursor_destroy(cursor);
    bson_destroy(&opts);
}
