/*
 * Writes the bytes itself (bsonspec.org 1.1) instead of calling bson_append_*() per value: that
 * costs half of the walk.
 */
#include "core/json_bson.h"

#include <jansson.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* Bytes that grow; the first ones are on the stack, which is all that most documents need. */
struct writer {
    uint8_t *data;
    size_t len, cap;
    size_t max;
    uint8_t *heap; /* data when it had to grow */
    const struct json_bson_in *in;
    enum json_bson_result result;
};

enum { ON_STACK = 4096 };

static void grow(struct writer *w, size_t more)
{
    size_t cap = w->cap * 2;

    while (cap < w->len + more)
        cap *= 2;

    uint8_t *heap = mem_grow(w->heap, cap, 1);
    if (w->heap == NULL)
        memcpy(heap, w->data, w->len);
    w->heap = w->data = heap;
    w->cap = cap;
}

static inline void reserve(struct writer *w, size_t more)
{
    if (w->cap - w->len < more)
        grow(w, more);
}

/* x86 and ARM are little endian, as BSON is. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "BSON is little endian");

static inline void put(struct writer *w, const void *bytes, size_t n)
{
    memcpy(w->data + w->len, bytes, n);
    w->len += n;
}

static inline void put_int32(struct writer *w, size_t value)
{
    uint32_t v = (uint32_t)value;

    put(w, &v, sizeof(v));
}

/* Type, name, and room for a fixed value behind. */
static inline void put_head(struct writer *w, uint8_t type, const char *name, size_t name_len)
{
    reserve(w, name_len + 2 + 32);
    w->data[w->len++] = type;
    put(w, name, name_len + 1);
}

static void put_text(struct writer *w, const char *text, size_t len)
{
    reserve(w, len + 5);
    put_int32(w, len + 1);
    put(w, text, len);
    w->data[w->len++] = 0;
}

static void put_typed(struct writer *w, const struct typed *t, const char *name, size_t name_len)
{
    const bson_value_t *v = &t->value;

    put_head(w, (uint8_t)v->value_type, name, name_len);
    switch (v->value_type) {
    case BSON_TYPE_DATE_TIME:
        put(w, &v->value.v_datetime, 8);
        break;
    case BSON_TYPE_INT64:
        put(w, &v->value.v_int64, 8);
        break;
    case BSON_TYPE_DOUBLE:
        put(w, &v->value.v_double, 8);
        break;
    case BSON_TYPE_OID:
        put(w, v->value.v_oid.bytes, 12);
        break;
    case BSON_TYPE_DECIMAL128:
        put(w, &v->value.v_decimal128.low, 8);
        put(w, &v->value.v_decimal128.high, 8);
        break;
    case BSON_TYPE_BINARY: {
        uint8_t subtype = (uint8_t)v->value.v_binary.subtype;

        put_int32(w, v->value.v_binary.data_len);
        put(w, &subtype, 1);
        reserve(w, v->value.v_binary.data_len);
        if (v->value.v_binary.data_len > 0)
            put(w, v->value.v_binary.data, v->value.v_binary.data_len);
        break;
    }
    default:
        MUST(false); /* types_convert() makes no other */
    }
}

static const struct typed *note_of(const struct writer *w, const json_t *node)
{
    for (size_t i = 0; i < w->in->n_notes; i++) {
        if (w->in->notes[i].node == node)
            return &w->in->notes[i].typed;
    }
    return NULL;
}

static void put_object(struct writer *w, json_t *object, unsigned level);
static void put_array(struct writer *w, const json_t *array, unsigned level);

static void put_encoded(struct writer *w, const struct value *value, const char *name,
                        size_t name_len, unsigned level)
{
    put_head(w, value->type, name, name_len);
    reserve(w, value->len);
    if (value->len > 0) /* a key that is less than any other has none */
        put(w, values_bytes(w->in->values, value), value->len);
    if (level + value->levels > JSON_BSON_LEVELS)
        w->result = JSON_BSON_TOO_DEEP;
}

static void put_scalar(struct writer *w, const json_t *value, const char *name, size_t name_len)
{
    switch (json_typeof(value)) {
    case JSON_STRING:
        put_head(w, BSON_TYPE_UTF8, name, name_len);
        put_text(w, json_string_value(value), json_string_length(value));
        break;
    case JSON_INTEGER: {
        int64_t i = json_integer_value(value);

        put_head(w, BSON_TYPE_INT64, name, name_len);
        put(w, &i, 8);
        break;
    }
    case JSON_REAL: {
        double d = json_real_value(value);

        put_head(w, BSON_TYPE_DOUBLE, name, name_len);
        put(w, &d, 8);
        break;
    }
    case JSON_TRUE:
    case JSON_FALSE:
        put_head(w, BSON_TYPE_BOOL, name, name_len);
        w->data[w->len++] = json_is_true(value);
        break;
    default:
        put_head(w, BSON_TYPE_NULL, name, name_len);
        break;
    }
}

static void put_value(struct writer *w, json_t *value, const char *name, size_t name_len,
                      unsigned level)
{
    const struct typed *typed;
    const struct value *encoded;

    if (json_is_object(value)) {
        put_head(w, BSON_TYPE_DOCUMENT, name, name_len);
        put_object(w, value, level + 1);
    } else if (json_is_array(value)) {
        put_head(w, BSON_TYPE_ARRAY, name, name_len);
        put_array(w, value, level + 1);
    } else if (w->in->n_notes > 0 && (typed = note_of(w, value)) != NULL) {
        put_typed(w, typed, name, name_len);
    } else if (w->in->values != NULL && (encoded = values_get(w->in->values, value)) != NULL) {
        put_encoded(w, encoded, name, name_len, level);
    } else {
        put_scalar(w, value, name, name_len);
    }
}

/* Where the length goes once it is known. */
static size_t begin(struct writer *w, unsigned level)
{
    size_t start = w->len;

    if (level > JSON_BSON_LEVELS)
        w->result = JSON_BSON_TOO_DEEP;
    if (w->len > w->max && w->result == JSON_BSON_OK)
        w->result = JSON_BSON_TOO_LARGE;
    reserve(w, 8);
    w->len += 4;
    return start;
}

static void end(struct writer *w, size_t start)
{
    uint32_t len;

    reserve(w, 1);
    w->data[w->len++] = 0;
    len = (uint32_t)(w->len - start);
    memcpy(w->data + start, &len, sizeof(len));
}

static inline bool is_dropped(const struct json_bson_in *in, const json_t *value)
{
    return in->drop_nulls && json_is_null(value);
}

static void put_object(struct writer *w, json_t *object, unsigned level)
{
    size_t start = begin(w, level);

    for (void *i = json_object_iter(object); i != NULL && w->result == JSON_BSON_OK;
         i = json_object_iter_next(object, i)) {
        const char *name = json_object_iter_key(i);
        json_t *value = json_object_iter_value(i);

        if (!is_dropped(w->in, value))
            put_value(w, value, name, strlen(name), level);
    }
    end(w, start);
}

/* An array is a document with the names "0", "1", ... */
static void put_array(struct writer *w, const json_t *array, unsigned level)
{
    size_t start = begin(w, level);
    size_t n = json_array_size(array);

    for (size_t i = 0; i < n && w->result == JSON_BSON_OK; i++) {
        char text[16];
        const char *name;
        size_t name_len = bson_uint32_to_string((uint32_t)i, &name, text, sizeof(text));

        if (w->len > w->max)
            w->result = JSON_BSON_TOO_LARGE;
        put_value(w, json_array_get(array, i), name, name_len, level);
    }
    end(w, start);
}

static void put_root(struct writer *w, bool *odd_names)
{
    const struct json_bson_in *in = w->in;
    size_t start = begin(w, 1);

    for (void *i = json_object_iter(in->root); i != NULL && w->result == JSON_BSON_OK;
         i = json_object_iter_next(in->root, i)) {
        const char *name = json_object_iter_key(i);
        size_t len = strlen(name);

        if (is_dropped(in, json_object_iter_value(i)))
            continue;
        if (len == 0 || name[0] == '$' || memchr(name, '.', len) != NULL)
            *odd_names = true;
        if (in->skip_id && strcmp(name, "_id") == 0)
            continue;
        put_value(w, json_object_iter_value(i), name, len, 1);
    }
    end(w, start);
}

enum json_bson_result json_bson_build(const struct json_bson_in *in, size_t max_bytes, bson_t **out,
                                      bool *odd_names)
{
    uint8_t stack[ON_STACK];
    struct writer w = {
        .data = stack, .cap = sizeof(stack), .max = max_bytes, .in = in, .result = JSON_BSON_OK};

    *odd_names = false;
    put_root(&w, odd_names);
    if (w.result == JSON_BSON_OK && w.len > max_bytes)
        w.result = JSON_BSON_TOO_LARGE;
    if (w.result == JSON_BSON_OK) {
        *out = bson_new_from_data(w.data, w.len);
        MUST(*out != NULL);
    }
    mem_free(w.heap);
    return w.result;
}
