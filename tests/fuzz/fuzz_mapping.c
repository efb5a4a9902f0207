/*
 * Any bytes as a payload of each format, and a few routes that use everything. Must hold: no crash,
 * the same verdict every time, a verdict's BSON is valid and within the limits, a filter of a
 * scalar only, the key of the document is the filter, and the ordering key of equal filters is
 * equal.
 *
 * Of a route that changes nothing: BSON is stored byte for byte, what Extended JSON became is
 * printed by libbson and read to the same document again, and a text and bytes are what was sent.
 *
 * First byte: which route. Rest: the value.
 */
#include <bson/bson.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/mapping.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    ROUTES = 13,
    EXTJSON = 5,
    BSON = 8,
    STRING = 10,
    BYTES = 11,
    MAX_BYTES = 16 * 1024 * 1024 - 1024
};

static struct mapping *mappings[ROUTES];
static bool into_id[ROUTES] = {[1] = true, [4] = true, [9] = true, [STRING] = true, [12] = true};

#define LIST(array)                                                                                \
    {                                                                                              \
        .items = (array), .n = sizeof(array) / sizeof((array)[0])                                  \
    }
#define TEXT(name, text) static char name[] = text

static void make(void)
{
    TEXT(id, "id");
    TEXT(a, "a");
    TEXT(ab, "a.b");
    TEXT(c, "c");
    TEXT(pab, "p.a.b");
    TEXT(key, "@key");
    TEXT(k, "k");
    TEXT(empty, "");
    TEXT(p, "p");
    TEXT(src, "_src");
    TEXT(order_dedup, "@dedup");
    TEXT(one, "1");
    TEXT(date, "date");
    TEXT(date_s, "date_s");
    TEXT(decimal, "decimal");
    TEXT(oid, "objectid");
    TEXT(uuid, "uuid");
    TEXT(binary, "binary");
    TEXT(longs, "long");
    TEXT(doubles, "double");
    TEXT(d, "d");
    TEXT(e, "e");
    TEXT(f, "f");
    TEXT(g, "g");
    TEXT(h, "h");
    TEXT(payload, "{\"a\":{a},\"b\":\"{a.b}\",\"t\":@TIMESTAMP@}");
    TEXT(unlink, "k:{id}");
    TEXT(hash, "hash");
    TEXT(offset, "@offset");
    static char *ids[] = {id}, *two[] = {ab, c}, *two_in_p[] = {pab, c}, *abs[] = {ab},
                *unlinks[] = {unlink}, *offsets[] = {offset};
    static struct config_pair types[] = {{ab, decimal}, {c, date},  {d, oid},     {e, uuid},
                                         {f, binary},   {g, longs}, {h, doubles}, {id, date_s}};
    static struct config_pair rename[] = {{a, d}, {d, a}}, set[] = {{g, one}, {k, key}};
    static struct config_invalidate tells[] = {
        {.mode = INVALIDATE_PUBSUB, .channel = c, .payload = payload},
        {.mode = INVALIDATE_UNLINK, .keys = LIST(unlinks)},
        {.mode = INVALIDATE_MONSQLIZE, .channel = c, .flavor = 3, .keys = LIST(unlinks)},
        {.mode = INVALIDATE_VERSION, .keys = LIST(unlinks), .expire_ms = 1000},
        {.mode = INVALIDATE_STREAM, .stream = unlink, .payload = payload, .maxlen = 1},
    };
    static const struct mapping_env env = {.instance_id = "me"};
    static struct config_route routes[ROUTES] = {
        {.dedup = {.key = LIST(ids), .fields = LIST(ids)}, .invalidate = tells, .n_invalidate = 5},
        {.dedup = {.key = LIST(ids), .into_id = true}},
        {.dedup = {.key = LIST(two), .fields = LIST(two)}, .types = LIST(types)},
        {.dedup = {.key = LIST(two), .fields = LIST(two_in_p)},
         .types = LIST(types),
         .under = p,
         .source_fields = src,
         .set = LIST(set),
         .exclude = LIST(abs)},
        {.dedup = {.key = LIST(two), .into_id = true},
         .rename = LIST(rename),
         .types = LIST(types)},
        [EXTJSON] = {.format = FORMAT_EXTJSON,
                     .dedup = {.key = LIST(ids), .fields = LIST(ids)},
                     .invalidate = tells,
                     .n_invalidate = 3},
        {.format = FORMAT_EXTJSON,
         .dedup = {.key = LIST(two), .fields = LIST(two)},
         .types = LIST(types),
         .write = WRITE_INSERT},
        {.format = FORMAT_EXTJSON,
         .dedup = {.key = LIST(ids), .fields = LIST(two_in_p)},
         .drop_nulls = true,
         .source_fields = src},
        [BSON] = {.format = FORMAT_BSON,
                  .dedup = {.key = LIST(ids), .fields = LIST(ids)},
                  .invalidate = tells,
                  .n_invalidate = 3},
        {.format = FORMAT_BSON,
         .dedup = {.key = LIST(two),
                   .into_id = true,
                   .conflict = CONFLICT_COUNT,
                   .conflict_field = hash},
         .rename = LIST(rename),
         .types = LIST(types),
         .set = LIST(set),
         .drop_nulls = true,
         .write = WRITE_INSERT},
        [STRING] = {.format = FORMAT_STRING, .dedup = {.key = LIST(offsets), .into_id = true}},
        [BYTES] = {.format = FORMAT_BYTES,
                   .dedup = {.key = LIST(offsets), .fields = LIST(ids)},
                   .under = p,
                   .set = LIST(set)},
        {.dedup = {.key = LIST(ids),
                   .into_id = true,
                   .conflict = CONFLICT_DEAD_LETTER,
                   .conflict_field = hash},
         .drop_nulls = true},
    };
    routes[EXTJSON + 2].dedup.fields.n = 1;
    struct err error;

    for (size_t i = 0; i < ROUTES; i++) {
        struct config_route *r = &routes[i];

        r->database = r->collection = c;
        r->order_by = i % 2 == 0 || i == BYTES ? order_dedup : ab;
        r->value_field = ab;
        r->under = r->under != NULL ? r->under : empty;
        r->source_fields = r->source_fields != NULL ? r->source_fields : empty;
        mappings[i] = mapping_new(r, &env, &error);
        MUST(mappings[i] != NULL);
    }
}

static void check_scalar(const bson_iter_t *i)
{
    bson_type_t type = bson_iter_type(i);

    MUST(type == BSON_TYPE_UTF8 || type == BSON_TYPE_INT64 || type == BSON_TYPE_BOOL ||
         type == BSON_TYPE_OID || type == BSON_TYPE_DATE_TIME || type == BSON_TYPE_DECIMAL128 ||
         type == BSON_TYPE_BINARY);
}

static void check_filter(const bson_t *filter, bool id)
{
    bson_iter_t i, child;

    MUST(bson_iter_init(&i, filter));
    while (bson_iter_next(&i)) {
        MUST(bson_iter_key(&i)[0] != '$');
        if (id && BSON_ITER_HOLDS_DOCUMENT(&i)) {
            MUST(bson_iter_recurse(&i, &child));
            while (bson_iter_next(&child))
                check_scalar(&child);
        } else {
            check_scalar(&i);
        }
    }
}

static void check_write(const struct mapping *m, const struct write_op *op, bool id)
{
    bson_t filter = BSON_INITIALIZER, whole;

    MUST(bson_validate(op->filter, BSON_VALIDATE_UTF8 | BSON_VALIDATE_UTF8_ALLOW_NULL, NULL));
    MUST(bson_validate(op->document, BSON_VALIDATE_UTF8 | BSON_VALIDATE_UTF8_ALLOW_NULL, NULL));
    MUST(op->filter->len + op->document->len <= MAX_BYTES + (id ? op->filter->len : 0));
    check_filter(op->filter, id || m == mappings[BYTES]); /* @offset is a sub-document */
    bson_copy_to(op->document, &whole);
    if (id && op->kind == WRITE_KIND_UPSERT)
        MUST(bson_concat(&whole, op->filter));
    MUST(mapping_key_of_document(m, &whole, &filter));
    MUST(bson_equal(&filter, op->filter));
    bson_destroy(&filter);
    bson_destroy(&whole);
}

static struct record *record_of(const void *value, size_t len)
{
    struct record_source source = {.topic = "t", .offset = 5, .timestamp_ms = -1};

    source.value = slice_of(value, len);
    return record_new(&source);
}

/* Compared as texts, because libbson prints only those options of a regular expression that it
 * knows, and in its own order. */
static void check_extjson(const bson_t *document)
{
    size_t len;
    char *text = bson_as_canonical_extended_json(document, &len), *again;
    struct write_op op;

    MUST(text != NULL);
    struct record *r = record_of(text, len);
    MUST(mapping_build(mappings[EXTJSON], r, &op) == MAPPING_WRITE);
    again = bson_as_canonical_extended_json(op.document, NULL);
    MUST(again != NULL && strcmp(text, again) == 0);
    write_op_clear(&op);
    record_free(r);
    bson_free(text);
    bson_free(again);
}

static void check_raw(const bson_t *document, const char *path, struct slice value)
{
    bson_iter_t i, at;
    bson_subtype_t subtype;
    const uint8_t *bytes = NULL;
    uint32_t len;

    MUST(bson_iter_init(&i, document) && bson_iter_find_descendant(&i, path, &at));
    if (BSON_ITER_HOLDS_UTF8(&at))
        bytes = (const uint8_t *)bson_iter_utf8(&at, &len);
    else
        bson_iter_binary(&at, &subtype, &len, &bytes);
    MUST(slice_equal(slice_of(bytes, len), value));
}

static void check_unchanged(size_t which, const struct record *r, const struct write_op *op)
{
    if (which == EXTJSON)
        check_extjson(op->document);
    else if (which == BSON)
        MUST(slice_equal(r->value, slice_of(bson_get_data(op->document), op->document->len)));
    else if (which == STRING)
        check_raw(op->document, "a.b", r->value);
    else if (which == BYTES)
        check_raw(op->document, "p.a.b", r->value);
}

/* What is told is JSON once the time is in. */
static void check_told(const struct mapping *m, struct record *r)
{
    struct invalidation_list list = {0};
    size_t skipped = 0;

    mapping_invalidations(m, r, true, &list, &skipped);
    MUST(list.n + skipped <= 5);
    for (size_t i = 0; i < list.n; i++) {
        char *at;

        if (list.items[i].body == NULL)
            continue;
        while ((at = strstr(list.items[i].body, "@TIMESTAMP@")) != NULL)
            memcpy(at, "10000000000", 11);
        json_t *json = json_loads(list.items[i].body, JSON_ALLOW_NUL, NULL);
        MUST(json_is_object(json));
        json_decref(json);
    }
    invalidation_list_clear(&list);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct write_op op, again;

    if (mappings[0] == NULL)
        make();
    if (size == 0)
        return 0;

    size_t which = data[0] % ROUTES;
    const struct mapping *m = mappings[which];
    struct record *r = record_of(data + 1, size - 1);

    mapping_order(m, r);
    MUST(r->order_key.ptr != NULL);
    enum mapping_verdict verdict = mapping_build(m, r, &op);
    MUST(verdict != MAPPING_SKIP);
    MUST((verdict == MAPPING_REJECTED) == (r->rejected.reason != REASON_NONE));
    if (verdict == MAPPING_WRITE) {
        MUST(r->order_space != ORDER_NONE);
        check_write(m, &op, into_id[which]);
        check_unchanged(which, r, &op);
        check_told(m, r);
        MUST(mapping_build(m, r, &again) == MAPPING_WRITE);
        MUST(bson_equal(op.filter, again.filter) && bson_equal(op.document, again.document));
        write_op_clear(&again);
        write_op_clear(&op);
    }
    record_free(r);
    return 0;
}
