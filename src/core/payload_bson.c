/*
 * One BSON document (bsonspec.org 1.1) to a tree, every byte of it checked: lengths, ends, UTF-8,
 * names, types. What JSON has no word for stays as the bytes that were sent.
 *
 * libbson's bson_validate() leaves much of that alone (measured with 1.23.1): names that occur
 * twice, names of array elements, a boolean of 2, bytes behind the end.
 */
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "core/payload_private.h"

struct reader {
    const uint8_t *start, *at;
    const uint8_t *element; /* the one that is read: where its type stands */
    struct values *values;
    struct payload_fault *fault;
    unsigned deepest; /* level that was reached */
};

static bool fault(struct reader *r, enum reason reason, const char *what)
{
    *r->fault =
        (struct payload_fault){.reason = reason, .what = what, .at = (size_t)(r->at - r->start)};
    return false;
}

static bool broken(struct reader *r, const char *what)
{
    return fault(r, REASON_BSON_SYNTAX, what);
}

static bool take(struct reader *r, const uint8_t *end, size_t n, const uint8_t **out)
{
    if ((size_t)(end - r->at) < n)
        return broken(r, "a value reaches beyond the end of its document");
    *out = r->at;
    r->at += n;
    return true;
}

static bool take_int32(struct reader *r, const uint8_t *end, int32_t *out)
{
    const uint8_t *bytes;

    if (!take(r, end, 4, &bytes))
        return false;
    memcpy(out, bytes, 4);
    return true;
}

/* Without its NUL. */
static bool take_cstring(struct reader *r, const uint8_t *end, struct slice *out)
{
    const uint8_t *nul = r->at < end ? memchr(r->at, 0, (size_t)(end - r->at)) : NULL;

    if (nul == NULL)
        return broken(r, "a name without an end");
    *out = slice_of(r->at, (size_t)(nul - r->at));
    if (!payload_is_utf8(*out))
        return fault(r, REASON_INVALID_UTF8, "a name that is not UTF-8");
    r->at = nul + 1;
    return true;
}

static bool take_string(struct reader *r, const uint8_t *end, struct slice *out)
{
    const uint8_t *bytes, *start = r->at;
    int32_t len;

    if (!take_int32(r, end, &len))
        return false;
    if (len < 1 || !take(r, end, (size_t)len, &bytes) || bytes[len - 1] != 0) {
        r->at = start;
        return broken(r, "a text with a wrong length");
    }
    *out = slice_of(bytes, (size_t)len - 1);
    if (payload_is_utf8(*out))
        return true;
    r->at = start;
    return fault(r, REASON_INVALID_UTF8, "a text that is not UTF-8");
}

static bool take_binary(struct reader *r, const uint8_t *end)
{
    const uint8_t *subtype, *bytes, *start = r->at;
    int32_t len, inner;

    if (!take_int32(r, end, &len) || !take(r, end, 1, &subtype))
        return false;
    if (len < 0 || !take(r, end, (size_t)len, &bytes)) {
        r->at = start;
        return broken(r, "binary with a wrong length");
    }
    if (*subtype != BSON_SUBTYPE_BINARY_DEPRECATED)
        return true;
    if (len >= 4)
        memcpy(&inner, bytes, 4);
    if (len >= 4 && inner == len - 4)
        return true;
    r->at = start;
    return broken(r, "binary of subtype 2 with a wrong length");
}

static json_t *read_document(struct reader *r, const uint8_t *end, bool array, unsigned level);

/* code_w_scope: a length of all, a text, a document */
static bool take_scoped_code(struct reader *r, const uint8_t *end, unsigned level)
{
    const uint8_t *start = r->at;
    size_t known = r->values->n;
    struct slice code;
    int32_t len;
    json_t *scope;

    if (!take_int32(r, end, &len) || !take_string(r, end, &code))
        return false;
    scope = read_document(r, end, false, level + 1);
    if (scope == NULL)
        return false;
    json_decref(scope); /* checked; what is stored are its bytes */
    values_cut(r->values, known);
    if (len >= 0 && (size_t)len == (size_t)(r->at - start))
        return true;
    r->at = start;
    return broken(r, "code with a wrong length");
}

/* Moves behind the value. */
static bool skip_value(struct reader *r, const uint8_t *end, uint8_t type, unsigned level)
{
    const uint8_t *bytes;
    struct slice text, options;

    switch (type) {
    case BSON_TYPE_UNDEFINED:
    case BSON_TYPE_MINKEY:
    case BSON_TYPE_MAXKEY:
        return true;
    case BSON_TYPE_INT32:
        return take(r, end, 4, &bytes);
    case BSON_TYPE_INT64:
    case BSON_TYPE_DOUBLE:
    case BSON_TYPE_DATE_TIME:
    case BSON_TYPE_TIMESTAMP:
        return take(r, end, 8, &bytes);
    case BSON_TYPE_OID:
        return take(r, end, 12, &bytes);
    case BSON_TYPE_DECIMAL128:
        return take(r, end, 16, &bytes);
    case BSON_TYPE_BINARY:
        return take_binary(r, end);
    case BSON_TYPE_REGEX:
        return take_cstring(r, end, &text) && take_cstring(r, end, &options);
    case BSON_TYPE_CODE:
    case BSON_TYPE_SYMBOL:
        return take_string(r, end, &text);
    case BSON_TYPE_DBPOINTER:
        return take_string(r, end, &text) && take(r, end, 12, &bytes);
    case BSON_TYPE_CODEWSCOPE:
        return take_scoped_code(r, end, level);
    default:
        r->at = r->element;
        return broken(r, "a type that BSON does not have");
    }
}

/* A value that stays as it is. */
static json_t *read_encoded(struct reader *r, const uint8_t *end, uint8_t type, unsigned level)
{
    struct value value = {.at = (size_t)(r->at - r->start), .type = type};
    unsigned before = r->deepest;

    r->deepest = level;
    if (!skip_value(r, end, type, level))
        return NULL;
    value.len = (size_t)(r->at - r->start) - value.at;
    value.levels = r->deepest - level;
    if (r->deepest < before)
        r->deepest = before;
    return values_add(r->values, &value);
}

static json_t *read_double(struct reader *r, const uint8_t *end, unsigned level)
{
    double d;

    if (end - r->at >= 8) {
        memcpy(&d, r->at, 8);
        if (isfinite(d)) { /* jansson has no NaN and no infinity */
            r->at += 8;
            return json_real(d);
        }
    }
    return read_encoded(r, end, BSON_TYPE_DOUBLE, level);
}

/* NULL: broken. */
static json_t *read_value(struct reader *r, const uint8_t *end, uint8_t type, unsigned level)
{
    const uint8_t *bytes;
    struct slice text;
    int64_t i;

    switch (type) {
    case BSON_TYPE_DOUBLE:
        return read_double(r, end, level);
    case BSON_TYPE_UTF8:
        return take_string(r, end, &text) ? json_stringn_nocheck(text.ptr, text.len) : NULL;
    case BSON_TYPE_DOCUMENT:
    case BSON_TYPE_ARRAY:
        return read_document(r, end, type == BSON_TYPE_ARRAY, level + 1);
    case BSON_TYPE_BOOL:
        if (!take(r, end, 1, &bytes))
            return NULL;
        if (*bytes <= 1)
            return json_boolean(*bytes);
        r->at = bytes;
        (void)broken(r, "a boolean that is neither 0 nor 1");
        return NULL;
    case BSON_TYPE_NULL:
        return json_null();
    case BSON_TYPE_INT64:
        if (!take(r, end, 8, &bytes))
            return NULL;
        memcpy(&i, bytes, 8);
        return json_integer(i);
    default:
        return read_encoded(r, end, type, level);
    }
}

/* The elements of an array are called "0", "1", ...; other names would be lost. */
static bool name_is_index(struct slice name, size_t n)
{
    char text[16];
    const char *wanted;
    size_t len = bson_uint32_to_string((uint32_t)n, &wanted, text, sizeof(text));

    return slice_equal(name, slice_of(wanted, len));
}

static bool add(struct reader *r, json_t *to, struct slice name, json_t *value)
{
    if (json_is_array(to))
        return json_array_append_new(to, value) == 0;
    return json_object_set_new_nocheck(to, name.ptr, value) == 0 || broken(r, "no room");
}

static bool read_element(struct reader *r, const uint8_t *end, json_t *to, unsigned level)
{
    const uint8_t *start = r->at;
    uint8_t type = *r->at++;
    struct slice name;
    json_t *value;

    r->element = start;
    if (!take_cstring(r, end, &name))
        return false;
    if (json_is_array(to) && !name_is_index(name, json_array_size(to))) {
        r->at = start;
        return broken(r, "an element of an array that is not called by its number");
    }
    if (json_is_object(to) && json_object_get(to, name.ptr) != NULL) {
        r->at = start;
        return fault(r, REASON_DUPLICATE_NAME, "a name occurs twice in one document");
    }
    value = read_value(r, end, type, level);
    return value != NULL && add(r, to, name, value);
}

static json_t *read_document(struct reader *r, const uint8_t *end, bool array, unsigned level)
{
    const uint8_t *start = r->at, *last;
    json_t *to;
    int32_t len;

    if (level > PAYLOAD_LEVELS) {
        (void)fault(r, REASON_TOO_DEEP, "nested more than 2048 levels deep");
        return NULL;
    }
    if (level > r->deepest)
        r->deepest = level;
    if (!take_int32(r, end, &len))
        return NULL;
    if (len < 5 || len > end - start || start[len - 1] != 0) {
        r->at = start;
        (void)broken(r, "a document with a wrong length, or without its end");
        return NULL;
    }
    last = start + len - 1;
    to = array ? json_array() : json_object();
    while (r->at < last) {
        if (!read_element(r, last, to, level)) {
            json_decref(to);
            return NULL;
        }
    }
    r->at++;
    return to;
}

json_t *payload_bson(struct slice bytes, struct values *values, struct payload_fault *f)
{
    struct reader r = {.start = bytes.ptr, .at = bytes.ptr, .values = values, .fault = f};
    const uint8_t *end = r.start + bytes.len;
    json_t *root = read_document(&r, end, false, 1);

    if (root == NULL || r.at == end)
        return root;
    json_decref(root);
    (void)broken(&r, "something follows the document");
    return NULL;
}
