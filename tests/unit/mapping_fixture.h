/*
 * Routes from a few words, and what a mapping makes of a record as one line of text.
 *
 *   route("dedup event_id\ntypes at date\n")   lines of: option, a space, its arguments
 *
 * Options: dedup SOURCE..., fields PATH..., into_id, order SOURCE, tombstone_dlq, types PATH NAME,
 * include PATH..., exclude PATH..., rename FROM TO, set PATH TEXT, under PATH, source_fields PATH,
 * format NAME, value_field PATH, drop_nulls,
 * write MODE, conflict FIELD,
 * and for invalidations pubsub CHANNEL PAYLOAD, stream NAME MAXLEN PAYLOAD, unlink KEY..., version
 * EXPIRE_MS KEY..., monsqlize FLAVOR (then key TEMPLATE,
 * patterns, collections, bookmarks, echo_safe), inserted.
 */
#ifndef IDEMSINK_TESTS_MAPPING_FIXTURE_H
#define IDEMSINK_TESTS_MAPPING_FIXTURE_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/mapping.h"

static const struct mapping_env fixture_env = {.instance_id = "me"};

static inline void fixture_list_add(struct config_list *l, const char *text)
{
    l->items = mem_grow(l->items, l->n + 1, sizeof(char *));
    l->items[l->n++] = mem_text(text);
}

static inline void fixture_words(struct config_list *l, char *words)
{
    for (char *word; (word = strsep(&words, " ")) != NULL;)
        fixture_list_add(l, word);
}

static inline void fixture_pair(struct config_pairs *p, char *words)
{
    const char *name = strsep(&words, " ");

    p->items = mem_grow(p->items, p->n + 1, sizeof(*p->items));
    p->items[p->n++] =
        (struct config_pair){.name = mem_text(name), .value = mem_text(words ? words : "")};
}

static inline struct config_invalidate *fixture_tell(struct config_route *r,
                                                     enum config_invalidate_mode mode)
{
    r->invalidate = mem_grow(r->invalidate, r->n_invalidate + 1, sizeof(*r->invalidate));
    r->invalidate[r->n_invalidate] =
        (struct config_invalidate){.index = (uint32_t)r->n_invalidate, .mode = mode, .flavor = 1};
    return &r->invalidate[r->n_invalidate++];
}

static inline bool fixture_invalidate(struct config_route *r, const char *option, char *words)
{
    struct config_invalidate *c = r->n_invalidate > 0 ? &r->invalidate[r->n_invalidate - 1] : NULL;

    if (strcmp(option, "pubsub") == 0) {
        c = fixture_tell(r, INVALIDATE_PUBSUB);
        c->channel = mem_text(strsep(&words, " "));
        c->payload = mem_text(words ? words : "");
    } else if (strcmp(option, "stream") == 0) {
        c = fixture_tell(r, INVALIDATE_STREAM);
        c->stream = mem_text(strsep(&words, " "));
        c->maxlen = strtol(strsep(&words, " "), NULL, 10);
        c->payload = mem_text(words);
    } else if (strcmp(option, "version") == 0) {
        c = fixture_tell(r, INVALIDATE_VERSION);
        c->expire_ms = strtol(strsep(&words, " "), NULL, 10);
        fixture_words(&c->keys, words);
    } else if (strcmp(option, "unlink") == 0) {
        c = fixture_tell(r, INVALIDATE_UNLINK);
        if (words != NULL)
            fixture_words(&c->keys, words);
    } else if (strcmp(option, "monsqlize") == 0) {
        c = fixture_tell(r, INVALIDATE_MONSQLIZE);
        c->channel = mem_text("monsqlize:cache:invalidate");
        c->flavor = strtol(words, NULL, 10);
    } else if (strcmp(option, "key") == 0) {
        fixture_list_add(&c->keys, words);
    } else if (strcmp(option, "patterns") == 0) {
        c->patterns = true;
    } else if (strcmp(option, "collections") == 0) {
        fixture_words(&c->collections, words);
    } else if (strcmp(option, "bookmarks") == 0) {
        c->bookmarks = true;
    } else if (strcmp(option, "echo_safe") == 0) {
        c->receivers_echo_safe = true;
    } else if (strcmp(option, "inserted") == 0) {
        c->publish_on = PUBLISH_INSERTED;
    } else {
        return false;
    }
    return true;
}

static inline void fixture_replace(char **field, const char *text)
{
    mem_free(*field);
    *field = mem_text(text);
}

static inline enum config_format fixture_format(const char *name)
{
    static const char *const names[] = {"json", "extjson", "bson", "string", "bytes"};

    for (int i = 0; i < 5; i++) {
        if (strcmp(names[i], name) == 0)
            return (enum config_format)i;
    }
    fail_msg("fixture: no format %s", name);
    return FORMAT_JSON;
}

static inline void fixture_option(struct config_route *r, char *line)
{
    char *words = line;
    const char *option = strsep(&words, " ");

    if (strcmp(option, "dedup") == 0)
        fixture_words(&r->dedup.key, words);
    else if (strcmp(option, "fields") == 0)
        fixture_words(&r->dedup.fields, words);
    else if (strcmp(option, "into_id") == 0)
        r->dedup.into_id = true;
    else if (strcmp(option, "order") == 0)
        fixture_replace(&r->order_by, words);
    else if (strcmp(option, "write") == 0)
        r->write = strcmp(words, "auto") == 0 ? WRITE_AUTO : WRITE_INSERT;
    else if (strcmp(option, "conflict") == 0) {
        r->dedup.conflict = CONFLICT_COUNT;
        fixture_replace(&r->dedup.conflict_field, words);
    } else if (strcmp(option, "tombstone_dlq") == 0)
        r->tombstone = TOMBSTONE_DEAD_LETTER;
    else if (strcmp(option, "types") == 0)
        fixture_pair(&r->types, words);
    else if (strcmp(option, "include") == 0)
        fixture_words(&r->include, words);
    else if (strcmp(option, "exclude") == 0)
        fixture_words(&r->exclude, words);
    else if (strcmp(option, "rename") == 0)
        fixture_pair(&r->rename, words);
    else if (strcmp(option, "set") == 0)
        fixture_pair(&r->set, words);
    else if (strcmp(option, "under") == 0)
        fixture_replace(&r->under, words);
    else if (strcmp(option, "source_fields") == 0)
        fixture_replace(&r->source_fields, words);
    else if (strcmp(option, "format") == 0)
        r->format = fixture_format(words);
    else if (strcmp(option, "value_field") == 0)
        fixture_replace(&r->value_field, words);
    else if (strcmp(option, "drop_nulls") == 0)
        r->drop_nulls = true;
    else if (!fixture_invalidate(r, option, words))
        fail_msg("fixture: no option %s", option);
}

/* fields default to the dedup key's own paths, as the configuration does it where nothing moves. */
static inline struct config_route *fixture_route(const char *spec)
{
    struct config_route *r = mem_new(sizeof(*r));
    char *copy = mem_text(spec), *rest = copy;

    r->database = mem_text("db");
    r->collection = mem_text("coll");
    r->order_by = mem_text("@key");
    r->under = mem_text("");
    r->source_fields = mem_text("");
    r->value_field = mem_text("value");
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (line[0] != '\0')
            fixture_option(r, line);
    }
    if (r->dedup.fields.n == 0 && !r->dedup.into_id) {
        for (size_t i = 0; i < r->dedup.key.n; i++)
            fixture_list_add(&r->dedup.fields, r->dedup.key.items[i]);
    }
    mem_free(copy);
    return r;
}

static inline void fixture_list_free(struct config_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->items[i]);
    mem_free(l->items);
}

static inline void fixture_pairs_free(struct config_pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        mem_free(p->items[i].name);
        mem_free(p->items[i].value);
    }
    mem_free(p->items);
}

static inline void fixture_route_free(struct config_route *r)
{
    mem_free(r->database);
    mem_free(r->collection);
    mem_free(r->order_by);
    mem_free(r->under);
    mem_free(r->source_fields);
    mem_free(r->value_field);
    mem_free(r->dedup.conflict_field);
    fixture_list_free(&r->dedup.key);
    fixture_list_free(&r->dedup.fields);
    fixture_list_free(&r->include);
    fixture_list_free(&r->exclude);
    fixture_pairs_free(&r->types);
    fixture_pairs_free(&r->rename);
    fixture_pairs_free(&r->set);
    for (size_t i = 0; i < r->n_invalidate; i++) {
        mem_free(r->invalidate[i].channel);
        mem_free(r->invalidate[i].stream);
        mem_free(r->invalidate[i].payload);
        fixture_list_free(&r->invalidate[i].keys);
        fixture_list_free(&r->invalidate[i].collections);
    }
    mem_free(r->invalidate);
    mem_free(r);
}

/* --- BSON as short text: 5 is int64, f1.5 a double, the rest says its type --- */

static inline void fixture_show(const bson_t *b, bool array, struct buf *out);

static inline void fixture_show_hex(const uint8_t *bytes, size_t n, struct buf *out)
{
    for (size_t i = 0; i < n; i++)
        buf_printf(out, "%02x", bytes[i]);
}

/* What no JSON makes. */
static inline void fixture_show_rare(const bson_iter_t *i, struct buf *out)
{
    const char *text, *options;
    uint32_t len, t, inc;
    const uint8_t *bytes;
    const bson_oid_t *oid;
    bson_t child;

    switch (bson_iter_type(i)) {
    case BSON_TYPE_INT32:
        buf_printf(out, "i%" PRId32, bson_iter_int32(i));
        break;
    case BSON_TYPE_REGEX:
        text = bson_iter_regex(i, &options);
        buf_printf(out, "/%s/%s", text, options);
        break;
    case BSON_TYPE_CODE:
        text = bson_iter_code(i, &len);
        buf_printf(out, "code(%.*s)", (int)len, text);
        break;
    case BSON_TYPE_CODEWSCOPE:
        text = bson_iter_codewscope(i, &len, &t, &bytes);
        buf_printf(out, "code(%.*s,", (int)len, text);
        assert_true(bson_init_static(&child, bytes, t));
        fixture_show(&child, false, out);
        buf_add_char(out, ')');
        break;
    case BSON_TYPE_SYMBOL:
        text = bson_iter_symbol(i, &len);
        buf_printf(out, "symbol(%.*s)", (int)len, text);
        break;
    case BSON_TYPE_DBPOINTER:
        bson_iter_dbpointer(i, &len, &text, &oid);
        buf_printf(out, "pointer(%.*s,", (int)len, text);
        fixture_show_hex(oid->bytes, 12, out);
        buf_add_char(out, ')');
        break;
    case BSON_TYPE_TIMESTAMP:
        bson_iter_timestamp(i, &t, &inc);
        buf_printf(out, "ts(%" PRIu32 ",%" PRIu32 ")", t, inc);
        break;
    case BSON_TYPE_MINKEY:
        buf_add_text(out, "minkey");
        break;
    case BSON_TYPE_MAXKEY:
        buf_add_text(out, "maxkey");
        break;
    case BSON_TYPE_UNDEFINED:
        buf_add_text(out, "undefined");
        break;
    default:
        fail_msg("fixture: BSON type %d", (int)bson_iter_type(i));
    }
}

static inline void fixture_show_value(const bson_iter_t *i, struct buf *out)
{
    uint32_t len;
    const uint8_t *bytes;
    bson_subtype_t subtype;
    bson_decimal128_t decimal;
    char text[BSON_DECIMAL128_STRING];
    bson_t child;

    switch (bson_iter_type(i)) {
    case BSON_TYPE_UTF8: {
        const char *s = bson_iter_utf8(i, &len);

        buf_add_char(out, '"');
        buf_add_json(out, s, len);
        buf_add_char(out, '"');
        break;
    }
    case BSON_TYPE_INT64:
        buf_printf(out, "%" PRId64, bson_iter_int64(i));
        break;
    case BSON_TYPE_DOUBLE:
        buf_printf(out, "f%.17g", bson_iter_double(i));
        break;
    case BSON_TYPE_BOOL:
        buf_add_text(out, bson_iter_bool(i) ? "true" : "false");
        break;
    case BSON_TYPE_NULL:
        buf_add_text(out, "null");
        break;
    case BSON_TYPE_DATE_TIME:
        buf_printf(out, "date(%" PRId64 ")", bson_iter_date_time(i));
        break;
    case BSON_TYPE_OID:
        buf_add_text(out, "oid(");
        fixture_show_hex(bson_iter_oid(i)->bytes, 12, out);
        buf_add_char(out, ')');
        break;
    case BSON_TYPE_DECIMAL128:
        bson_iter_decimal128(i, &decimal);
        bson_decimal128_to_string(&decimal, text);
        buf_printf(out, "dec(%s)", text);
        break;
    case BSON_TYPE_BINARY:
        bson_iter_binary(i, &subtype, &len, &bytes);
        buf_printf(out, "bin%d(", (int)subtype);
        fixture_show_hex(bytes, len, out);
        buf_add_char(out, ')');
        break;
    case BSON_TYPE_DOCUMENT:
        bson_iter_document(i, &len, &bytes);
        assert_true(bson_init_static(&child, bytes, len));
        fixture_show(&child, false, out);
        break;
    case BSON_TYPE_ARRAY:
        bson_iter_array(i, &len, &bytes);
        assert_true(bson_init_static(&child, bytes, len));
        fixture_show(&child, true, out);
        break;
    default:
        fixture_show_rare(i, out);
        break;
    }
}

static inline void fixture_show(const bson_t *b, bool array, struct buf *out)
{
    bson_iter_t i;
    bool first = true;

    buf_add_char(out, array ? '[' : '{');
    assert_true(bson_iter_init(&i, b));
    for (; bson_iter_next(&i); first = false) {
        if (!first)
            buf_add_char(out, ',');
        if (!array) {
            buf_add_char(out, '"');
            buf_add_json(out, bson_iter_key(&i), bson_iter_key_len(&i));
            buf_add_text(out, "\":");
        }
        fixture_show_value(&i, out);
    }
    buf_add_char(out, array ? ']' : '}');
}

/* --- a record through a mapping --- */

static inline struct record *fixture_record(const char *key, const char *value, size_t value_len)
{
    static const struct record_header headers[] = {
        {.name = {"h", 1}, .value = {"old", 3}},          {.name = {"h", 1}, .value = {"hv", 2}},
        {.name = {"none", 4}, .value = {NULL, 0}},        {.name = {"empty", 5}, .value = {"", 0}},
        {.name = {"bytes", 5}, .value = {"\xff\xfe", 2}},
    };
    struct record_source s = {.topic = "top",
                              .partition = 3,
                              .slot = 7,
                              .offset = 42,
                              .timestamp_type = RECORD_TIMESTAMP_CREATE,
                              .timestamp_ms = 1700000000123,
                              .key = slice_text(key),
                              .value = slice_of(value, value_len),
                              .headers = headers,
                              .n_headers = sizeof(headers) / sizeof(headers[0])};

    return record_new(&s);
}

/* "upsert FILTER DOCUMENT", "insert ...", "skip", or "REASON" with the text behind ": " when texts
 * is set. The caller mem_free()s it. */
static inline char *fixture_map(const struct mapping *m, struct record *r, bool texts)
{
    struct write_op op = {0};
    struct buf out = {0};

    switch (mapping_build(m, r, &op)) {
    case MAPPING_SKIP:
        buf_add_text(&out, "skip");
        break;
    case MAPPING_REJECTED:
        buf_add_text(&out, reason_name(r->rejected.reason));
        assert_non_null(r->rejected.text);
        if (texts)
            buf_printf(&out, ": %s", r->rejected.text);
        break;
    case MAPPING_WRITE:
        assert_int_equal(r->rejected.reason, REASON_NONE);
        assert_true(
            bson_validate(op.filter, BSON_VALIDATE_UTF8_ALLOW_NULL | BSON_VALIDATE_UTF8, NULL));
        assert_true(
            bson_validate(op.document, BSON_VALIDATE_UTF8_ALLOW_NULL | BSON_VALIDATE_UTF8, NULL));
        buf_add_text(&out, op.kind == WRITE_KIND_UPSERT ? "upsert " : "insert ");
        fixture_show(op.filter, false, &out);
        buf_add_char(&out, ' ');
        fixture_show(op.document, false, &out);
        write_op_clear(&op);
        break;
    }
    return out.data;
}

static inline struct mapping *fixture_mapping(const struct config_route *route)
{
    struct err e = {0};
    struct mapping *m = mapping_new(route, &fixture_env, &e);

    if (m == NULL)
        fail_msg("mapping_new: %s", e.text);
    return m;
}

/* All in one: the record has the key "kafka-key". */
static inline char *fixture_run(const char *spec, const char *value, size_t len, bool texts)
{
    struct config_route *route = fixture_route(spec);
    struct mapping *m = fixture_mapping(route);
    struct record *r = fixture_record("kafka-key", value, len);
    char *text = fixture_map(m, r, texts);

    record_free(r);
    mapping_free(m);
    fixture_route_free(route);
    return text;
}

struct fixture_row {
    const char *spec, *value, *expected;
};

static inline void fixture_check(const struct fixture_row *rows, size_t n, bool texts)
{
    for (size_t i = 0; i < n; i++) {
        char *got = fixture_run(rows[i].spec, rows[i].value,
                                rows[i].value ? strlen(rows[i].value) : 0, texts);

        if (strcmp(got, rows[i].expected) != 0)
            fail_msg("row %zu\n  %s\n  %s\n  got      %s\n  expected %s", i, rows[i].spec,
                     rows[i].value ? rows[i].value : "(null)", got, rows[i].expected);
        mem_free(got);
    }
}
#define FIXTURE_CHECK(rows)       fixture_check((rows), sizeof(rows) / sizeof((rows)[0]), false)
#define FIXTURE_CHECK_TEXTS(rows) fixture_check((rows), sizeof(rows) / sizeof((rows)[0]), true)

#endif
