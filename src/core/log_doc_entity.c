/* What the steps of operations write into the documents of entities, and into the ledger. */
#include <string.h>

#include "base/err.h"
#include "core/log_doc.h"
#include "core/log_horizon.h"

static void append_id(bson_t *to, const char *name, const struct log_id *id)
{
    MUST(bson_append_binary(to, name, -1, BSON_SUBTYPE_BINARY, id->bytes, sizeof id->bytes));
}

/* How many names a document has at its top that is made of this filter. */
static int32_t names_of(const bson_t *filter)
{
    bson_iter_t at, earlier;
    int32_t n = 0;

    MUST(bson_iter_init(&at, filter));
    for (size_t i = 0; bson_iter_next(&at); i++) {
        size_t len = strcspn(bson_iter_key(&at), ".");
        bool first = true;

        MUST(bson_iter_init(&earlier, filter));
        for (size_t j = 0; j < i && bson_iter_next(&earlier); j++)
            if (strcspn(bson_iter_key(&earlier), ".") == len &&
                memcmp(bson_iter_key(&earlier), bson_iter_key(&at), len) == 0)
                first = false;
        n += first;
    }
    return n;
}

/* {$mergeObjects: ["$$ROOT", {$literal: document}, {_by: id}]} */
static void append_whole(bson_t *to, const char *name, const struct log_entity *e)
{
    bson_t merge, list, literal, by;

    MUST(bson_append_document_begin(to, name, -1, &merge));
    MUST(BSON_APPEND_ARRAY_BEGIN(&merge, "$mergeObjects", &list));
    MUST(BSON_APPEND_UTF8(&list, "0", "$$ROOT"));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&list, "1", &literal));
    MUST(BSON_APPEND_DOCUMENT(&literal, "$literal", e->document));
    MUST(bson_append_document_end(&list, &literal));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&list, "2", &by));
    append_id(&by, "_by", &e->id);
    MUST(bson_append_document_end(&list, &by));
    MUST(bson_append_array_end(&merge, &list));
    MUST(bson_append_document_end(to, &merge));
}

/* Raises an error: what is too late must not be stored, and an upsert's filter can't say so
 * (measured on 6.0.5: $expr there is refused with 224). */
static void append_too_late(bson_t *to, const char *name)
{
    bson_t error;

    MUST(bson_append_document_begin(to, name, -1, &error));
    MUST(BSON_APPEND_UTF8(&error, "$toInt", "$$NOW"));
    MUST(bson_append_document_end(to, &error));
}

/* {$eq: [{$size: {$objectToArray: "$$ROOT"}}, n]}: nothing is there but the filter's own fields */
static void append_is_new(bson_t *to, const char *name, int32_t n)
{
    bson_t eq, list, size, pairs;

    MUST(bson_append_document_begin(to, name, -1, &eq));
    MUST(BSON_APPEND_ARRAY_BEGIN(&eq, "$eq", &list));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&list, "0", &size));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&size, "$size", &pairs));
    MUST(BSON_APPEND_UTF8(&pairs, "$objectToArray", "$$ROOT"));
    MUST(bson_append_document_end(&size, &pairs));
    MUST(bson_append_document_end(&list, &size));
    MUST(BSON_APPEND_INT32(&list, "1", n));
    MUST(bson_append_array_end(&eq, &list));
    MUST(bson_append_document_end(to, &eq));
}

static void append_in_time(bson_t *to, const char *name, int64_t until_ms)
{
    bson_t less, pair;

    MUST(bson_append_document_begin(to, name, -1, &less));
    MUST(BSON_APPEND_ARRAY_BEGIN(&less, "$lt", &pair));
    MUST(BSON_APPEND_UTF8(&pair, "0", "$$NOW"));
    MUST(BSON_APPEND_DATE_TIME(&pair, "1", until_ms));
    MUST(bson_append_array_end(&less, &pair));
    MUST(bson_append_document_end(to, &less));
}

/* A pipeline, as an array: [{$replaceWith: {$cond: [new, {$cond: [in time, whole, error]}, as it
 * is]}}] */
static void add_update(const struct log_command *c, const struct log_entity *e, bson_t *update)
{
    bson_t stage, replace, cond, inner, inner_cond;

    MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "0", &stage));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&stage, "$replaceWith", &replace));
    MUST(BSON_APPEND_ARRAY_BEGIN(&replace, "$cond", &cond));
    append_is_new(&cond, "0", names_of(e->filter));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&cond, "1", &inner));
    MUST(BSON_APPEND_ARRAY_BEGIN(&inner, "$cond", &inner_cond));
    append_in_time(&inner_cond, "0", c->until_ms);
    append_whole(&inner_cond, "1", e);
    append_too_late(&inner_cond, "2");
    MUST(bson_append_array_end(&inner, &inner_cond));
    MUST(bson_append_document_end(&cond, &inner));
    MUST(BSON_APPEND_UTF8(&cond, "2", "$$ROOT"));
    MUST(bson_append_array_end(&replace, &cond));
    MUST(bson_append_document_end(&stage, &replace));
    MUST(bson_append_document_end(update, &stage));
}

void log_entity_filter(const struct log_command *c, size_t k, bson_t *filter)
{
    const struct log_entity *e = &c->entities[k];
    bson_t in;

    MUST(bson_concat(filter, e->filter));
    if (c->kind == LOG_ADD)
        return;
    if (c->kind == LOG_MARK) {
        MUST(BSON_APPEND_DOCUMENT_BEGIN(filter, "_removed_by", &in));
        MUST(BSON_APPEND_BOOL(&in, "$exists", false));
        MUST(bson_append_document_end(filter, &in));
    } else {
        append_id(filter, c->kind == LOG_REMOVE ? "_removed_by" : "_by", &e->id);
    }
    log_append_until(filter, c->until_ms);
}

void log_entity_update(const struct log_command *c, size_t k, bson_t *update)
{
    const struct log_entity *e = &c->entities[k];
    bson_t in;

    if (c->kind == LOG_ADD) {
        add_update(c, e, update);
        return;
    }
    if (c->kind == LOG_MARK) {
        MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &in));
        append_id(&in, "_removed_by", &e->id);
    } else {
        MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &in));
        MUST(BSON_APPEND_BOOL(&in, "_by", true));
    }
    MUST(bson_append_document_end(update, &in));
}

void log_read_projection(const struct log_command *c, bson_t *projection)
{
    look_projection(c->ops[0]->filter, NULL, projection);
    MUST(BSON_APPEND_INT32(projection, "_by", 1));
    MUST(BSON_APPEND_INT32(projection, "_removed_by", 1));
}

/* --- CLAIM, REOPEN --- */

/* The last attempt is over, and ours is not. */
static void append_our_turn(const struct log_command *c, bool failed, bson_t *filter)
{
    bson_t expr, both, less, pair;

    MUST(BSON_APPEND_DOCUMENT_BEGIN(filter, LOG_EFFECTS ".failed", &less));
    MUST(BSON_APPEND_BOOL(&less, "$exists", failed));
    MUST(bson_append_document_end(filter, &less));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(filter, "$expr", &expr));
    MUST(BSON_APPEND_ARRAY_BEGIN(&expr, "$and", &both));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&both, "0", &less));
    MUST(BSON_APPEND_ARRAY_BEGIN(&less, "$lt", &pair));
    MUST(BSON_APPEND_UTF8(&pair, "0", "$" LOG_EFFECTS ".until"));
    MUST(BSON_APPEND_UTF8(&pair, "1", "$$NOW"));
    MUST(bson_append_array_end(&less, &pair));
    MUST(bson_append_document_end(&both, &less));
    append_in_time(&both, "1", c->until_ms);
    MUST(bson_append_array_end(&expr, &both));
    MUST(bson_append_document_end(filter, &expr));
}

void log_reopen_filter(const struct log_command *c, size_t k, bson_t *filter)
{
    MUST(bson_concat(filter, c->ops[k]->filter));
    MUST(BSON_APPEND_BOOL(filter, "did", false));
    append_our_turn(c, true, filter);
}

void log_claim_filter(const struct log_command *c, bson_t *filter)
{
    look_filter(c->ops, c->n, filter);
    append_our_turn(c, false, filter);
}

void log_claim_update(const struct log_command *c, bson_t *update)
{
    bson_t set;

    MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set));
    MUST(BSON_APPEND_DATE_TIME(&set, LOG_EFFECTS ".until", c->until_ms + LOG_OVER_MS));
    MUST(BSON_APPEND_INT64(&set, LOG_EFFECTS ".try", c->try_id));
    MUST(bson_append_document_end(update, &set));
}
