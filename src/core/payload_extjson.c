/*
 * Extended JSON v2, relaxed and canonical: {"$oid": "..."} and its like in a tree become values.
 * The JSON itself was parsed as strictly as plain JSON. libbson's own reader is not used
 * (docs/decisions/006).
 *
 * An object with a name that Extended JSON keeps for itself is exactly one of the forms, or it is
 * refused: what looks like a type and is stored as a document would be found by nobody. Other names
 * that begin with $ ($ref and $id of a DBRef, $gt) are ordinary.
 */
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/json_bson.h"
#include "core/payload_private.h"
#include "core/types.h"

struct walk {
    struct values *values;
    size_t objects; /* seen so far, in the order of the text */
    bool in_scope;
    const char *what; /* set: a fault, in this object */
    size_t object;
    enum reason reason;
};

static bool fault(struct walk *w, const char *what)
{
    if (w->what == NULL) {
        w->what = what;
        w->reason = REASON_EXTJSON_SYNTAX;
    }
    return false;
}

/* --- bytes as BSON has them --- */

static void add_int32(struct buf *b, int64_t value)
{
    uint32_t v = (uint32_t)value;

    buf_add(b, &v, 4);
}

static void add_cstring(struct buf *b, const json_t *text)
{
    buf_add(b, json_string_value(text), json_string_length(text));
    buf_add_char(b, 0);
}

static void add_string(struct buf *b, const json_t *text)
{
    add_int32(b, (int64_t)json_string_length(text) + 1);
    add_cstring(b, text);
}

static void add_binary(struct buf *b, uint8_t subtype, const uint8_t *bytes, uint32_t len)
{
    bool old = subtype == BSON_SUBTYPE_BINARY_DEPRECATED; /* has its length twice */

    add_int32(b, (int64_t)len + (old ? 4 : 0));
    buf_add(b, &subtype, 1);
    if (old)
        add_int32(b, len);
    buf_add(b, bytes, len);
}

/* --- texts --- */

static bool is_text(const json_t *in, const char *text)
{
    return json_string_length(in) == strlen(text) && strcmp(json_string_value(in), text) == 0;
}

/* Digits with or without a minus, no zero in front. */
static bool whole(const json_t *in, int64_t *out)
{
    const char *text = json_string_value(in), *digits = text;
    char *end;
    long long i;

    if (text == NULL)
        return false;
    digits += *text == '-';
    if (*digits < '0' || *digits > '9' || (*digits == '0' && digits[1] != '\0'))
        return false;
    if (json_string_length(in) > 20) /* so that strtoll() has an end */
        return false;
    i = strtoll(text, &end, 10);
    *out = i;
    return end == text + json_string_length(in) &&
           !((i == INT64_MAX && strcmp(digits, "9223372036854775807") != 0) ||
             (i == INT64_MIN && strcmp(digits, "9223372036854775808") != 0));
}

/* The grammar of JSON numbers. */
static bool is_number(const json_t *in)
{
    json_t *number;
    const char *text = json_string_value(in);
    size_t len = json_string_length(in);

    if (len == 0 || strspn(text, "+-.0123456789eE") != len)
        return false;
    number = json_loadb(text, len, JSON_DECODE_ANY | JSON_DECODE_INT_AS_REAL, NULL);
    json_decref(number);
    return number != NULL;
}

/* --- the forms: each appends its bytes to b --- */

typedef bool make_fn(struct walk *w, json_t *in, struct buf *b);

static bool make_oid(struct walk *w, json_t *in, struct buf *b)
{
    struct typed t;
    const char *why;

    if (!types_convert(TYPE_OBJECTID, in, slice_of(NULL, 0), &t, &why))
        return fault(w, "\"$oid\" is not 24 hexadecimal digits as text");
    buf_add(b, t.value.value.v_oid.bytes, 12);
    return true;
}

static bool make_int32(struct walk *w, json_t *in, struct buf *b)
{
    int64_t i;

    if (!whole(in, &i) || i < INT32_MIN || i > INT32_MAX)
        return fault(w, "\"$numberInt\" is not a whole number within int32 as text");
    add_int32(b, i);
    return true;
}

static bool make_int64(struct walk *w, json_t *in, struct buf *b)
{
    int64_t i;

    if (!whole(in, &i))
        return fault(w, "\"$numberLong\" is not a whole number within int64 as text");
    buf_add(b, &i, 8);
    return true;
}

static bool make_double(struct walk *w, json_t *in, struct buf *b)
{
    double d;

    if (is_text(in, "NaN"))
        d = (double)NAN;
    else if (is_text(in, "Infinity"))
        d = (double)INFINITY;
    else if (is_text(in, "-Infinity"))
        d = -(double)INFINITY;
    else if (is_number(in))
        d = strtod(json_string_value(in), NULL);
    else
        return fault(w, "\"$numberDouble\" is not a number, NaN, Infinity or -Infinity as text");
    buf_add(b, &d, 8);
    return true;
}

static bool make_decimal(struct walk *w, json_t *in, struct buf *b)
{
    bson_decimal128_t d;
    const char *text = json_string_value(in);

    if (is_text(in, "NaN") || is_text(in, "Infinity") || is_text(in, "-Infinity"))
        MUST(bson_decimal128_from_string(text, &d));
    else if (text == NULL || !types_decimal(text, json_string_length(in), &d))
        return fault(w, "\"$numberDecimal\" is not a number that a decimal holds exactly, as text");
    buf_add(b, &d.low, 8);
    buf_add(b, &d.high, 8);
    return true;
}

/* The inner object of a form, with exactly n members. */
static bool inner(struct walk *w, json_t *in, size_t n)
{
    if (!json_is_object(in))
        return false;
    w->objects++;
    return json_object_size(in) == n;
}

static bool subtype_of(const json_t *in, uint8_t *out)
{
    const char *text = json_string_value(in);
    size_t len = json_string_length(in);

    if (len < 1 || len > 2 || strspn(text, "0123456789abcdefABCDEF") != len)
        return false;
    *out = (uint8_t)strtoul(text, NULL, 16);
    return true;
}

static bool make_binary(struct walk *w, json_t *in, struct buf *b)
{
    struct typed t;
    uint8_t subtype;
    const char *why;
    json_t *base64 = NULL;

    if (!inner(w, in, 2) || !subtype_of(json_object_get(in, "subType"), &subtype) ||
        (base64 = json_object_get(in, "base64")) == NULL ||
        !types_convert(TYPE_BINARY, base64, slice_of(NULL, 0), &t, &why))
        return fault(w, "\"$binary\" is not {\"base64\": text, \"subType\": one or two hexadecimal "
                        "digits as text}");
    add_binary(b, subtype, t.value.value.v_binary.data, t.value.value.v_binary.data_len);
    typed_clear(&t);
    return true;
}

static bool make_uuid(struct walk *w, json_t *in, struct buf *b)
{
    struct typed t;
    const char *why;

    if (!types_convert(TYPE_UUID, in, slice_of(NULL, 0), &t, &why))
        return fault(w, "\"$uuid\" is not 8-4-4-4-12 hexadecimal digits as text");
    add_binary(b, BSON_SUBTYPE_UUID, t.bytes, sizeof(t.bytes));
    return true;
}

static bool make_date(struct walk *w, json_t *in, struct buf *b)
{
    int64_t ms;
    bool ok;

    if (json_is_string(in))
        ok = types_date(json_string_value(in), json_string_length(in), &ms);
    else
        ok = inner(w, in, 1) && whole(json_object_get(in, "$numberLong"), &ms);
    if (!ok)
        return fault(w, "\"$date\" is neither an RFC 3339 date and time nor {\"$numberLong\": "
                        "milliseconds as text}");
    buf_add(b, &ms, 8);
    return true;
}

static bool is_uint32(const json_t *in)
{
    return json_is_integer(in) && json_integer_value(in) >= 0 &&
           json_integer_value(in) <= UINT32_MAX;
}

static bool make_timestamp(struct walk *w, json_t *in, struct buf *b)
{
    const json_t *t = json_object_get(in, "t"), *i = json_object_get(in, "i");

    if (!inner(w, in, 2) || !is_uint32(t) || !is_uint32(i))
        return fault(w, "\"$timestamp\" is not {\"t\": seconds, \"i\": increment}, both whole "
                        "numbers within uint32");
    add_int32(b, json_integer_value(i));
    add_int32(b, json_integer_value(t));
    return true;
}

static bool has_no_nul(const json_t *text)
{
    return json_is_string(text) && strlen(json_string_value(text)) == json_string_length(text);
}

static bool make_regex(struct walk *w, json_t *in, struct buf *b)
{
    const json_t *pattern = json_object_get(in, "pattern"),
                 *options = json_object_get(in, "options");

    if (!inner(w, in, 2) || !has_no_nul(pattern) || !has_no_nul(options))
        return fault(w,
                     "\"$regularExpression\" is not {\"pattern\": text, \"options\": text}, both "
                     "without NUL");
    add_cstring(b, pattern);
    add_cstring(b, options);
    return true;
}

static bool make_pointer(struct walk *w, json_t *in, struct buf *b)
{
    const json_t *ref = json_object_get(in, "$ref");
    json_t *id = json_object_get(in, "$id");

    if (!inner(w, in, 2) || !json_is_string(ref) || !inner(w, id, 1) ||
        json_object_get(id, "$oid") == NULL)
        return fault(w, "\"$dbPointer\" is not {\"$ref\": text, \"$id\": {\"$oid\": text}}");
    add_string(b, ref);
    return make_oid(w, json_object_get(id, "$oid"), b);
}

static bool make_text(struct walk *w, json_t *in, struct buf *b)
{
    if (!json_is_string(in))
        return fault(w, "\"$symbol\" or \"$code\" is not a text");
    add_string(b, in);
    return true;
}

static bool make_key(struct walk *w, json_t *in, struct buf *b)
{
    (void)b;
    return (json_is_integer(in) && json_integer_value(in) == 1) ||
           fault(w, "\"$minKey\" or \"$maxKey\" is not 1");
}

static bool make_undefined(struct walk *w, json_t *in, struct buf *b)
{
    (void)b;
    return json_is_true(in) || fault(w, "\"$undefined\" is not true");
}

/* NULL: a name that is kept for types and is no form by itself ($scope, and those of version 1). */
static const struct form {
    const char *name;
    make_fn *make;
    bson_type_t type;
} forms[] = {
    {"$oid", make_oid, BSON_TYPE_OID},
    {"$symbol", make_text, BSON_TYPE_SYMBOL},
    {"$numberInt", make_int32, BSON_TYPE_INT32},
    {"$numberLong", make_int64, BSON_TYPE_INT64},
    {"$numberDouble", make_double, BSON_TYPE_DOUBLE},
    {"$numberDecimal", make_decimal, BSON_TYPE_DECIMAL128},
    {"$binary", make_binary, BSON_TYPE_BINARY},
    {"$uuid", make_uuid, BSON_TYPE_BINARY},
    {"$code", make_text, BSON_TYPE_CODE},
    {"$timestamp", make_timestamp, BSON_TYPE_TIMESTAMP},
    {"$regularExpression", make_regex, BSON_TYPE_REGEX},
    {"$dbPointer", make_pointer, BSON_TYPE_DBPOINTER},
    {"$date", make_date, BSON_TYPE_DATE_TIME},
    {"$minKey", make_key, BSON_TYPE_MINKEY},
    {"$maxKey", make_key, BSON_TYPE_MAXKEY},
    {"$undefined", make_undefined, BSON_TYPE_UNDEFINED},
    {"$scope", NULL, BSON_TYPE_EOD},
    {"$type", NULL, BSON_TYPE_EOD},
    {"$regex", NULL, BSON_TYPE_EOD},
    {"$options", NULL, BSON_TYPE_EOD},
};

/* The first name of the object that is kept for types; NULL: it is an ordinary object. */
static const struct form *form_of(json_t *object)
{
    for (void *i = json_object_iter(object); i != NULL; i = json_object_iter_next(object, i)) {
        const char *name = json_object_iter_key(i);

        if (name[0] != '$')
            continue;
        for (size_t f = 0; f < sizeof(forms) / sizeof(forms[0]); f++) {
            if (strcmp(forms[f].name, name) == 0)
                return &forms[f];
        }
    }
    return NULL;
}

/* --- the walk --- */

static bool walk_object(struct walk *w, json_t *object);

static unsigned levels_of(const struct values *v, json_t *node)
{
    unsigned deepest = 0, levels;
    void *i;

    if (json_is_object(node)) {
        for (i = json_object_iter(node); i != NULL; i = json_object_iter_next(node, i)) {
            levels = levels_of(v, json_object_iter_value(i));
            deepest = levels > deepest ? levels : deepest;
        }
    } else if (json_is_array(node)) {
        for (size_t n = 0; n < json_array_size(node); n++) {
            levels = levels_of(v, json_array_get(node, n));
            deepest = levels > deepest ? levels : deepest;
        }
    } else {
        return 0;
    }
    return deepest + 1;
}

enum { SCOPE_BYTES = 16 * 1024 * 1024 }; /* no document can hold a larger one */

/* {"$code": text, "$scope": object}. The scope is a document of its own inside of a value: its
 * bytes are there twice for a moment, which is why there is none inside of another. */
static json_t *scoped_code(struct walk *w, json_t *form)
{
    json_t *code = json_object_get(form, "$code"), *scope = json_object_get(form, "$scope");
    size_t known = w->values->n;
    struct buf *b = &w->values->made;
    struct value value = {.type = BSON_TYPE_CODEWSCOPE};
    bson_t *document = NULL;
    bool odd;

    if (w->in_scope || !json_is_string(code) || !json_is_object(scope) ||
        json_object_size(form) != 2 || form_of(scope) != NULL) {
        (void)fault(w,
                    "\"$code\" with \"$scope\" is not a text and an object, or in another scope");
        return NULL;
    }
    w->in_scope = true;
    if (!walk_object(w, scope))
        return NULL;
    w->in_scope = false;
    struct json_bson_in in = {.root = scope, .values = w->values};
    value.levels = levels_of(w->values, scope);
    if (json_bson_build(&in, SCOPE_BYTES, &document, &odd) != JSON_BSON_OK) {
        (void)fault(w, "\"$scope\" is too deep or too large");
        w->reason = value.levels > JSON_BSON_LEVELS ? REASON_TOO_DEEP : REASON_TOO_LARGE;
        return NULL;
    }
    value.at = b->len;
    value.len = 4 + 4 + json_string_length(code) + 1 + document->len;
    add_int32(b, (int64_t)value.len);
    add_string(b, code);
    buf_add(b, bson_get_data(document), document->len);
    bson_destroy(document);
    values_cut(w->values, known); /* their nodes go with the form */
    return values_add(w->values, &value);
}

static json_t *int32_value(struct walk *w, int64_t i)
{
    struct value value = {.type = BSON_TYPE_INT32, .at = w->values->made.len, .len = 4};

    add_int32(&w->values->made, i);
    return values_add(w->values, &value);
}

/* What the node is to be replaced by; the caller owns it. NULL: it stays, or w->what is set. */
static json_t *form_value(struct walk *w, const struct form *form, json_t *object)
{
    struct value value = {.type = (uint8_t)form->type, .at = w->values->made.len};

    if (json_object_get(object, "$scope") != NULL)
        return scoped_code(w, object);
    if (form->make == NULL || json_object_size(object) != 1) {
        (void)fault(w, "a name that Extended JSON keeps for its types stands in an object that is "
                       "none of its forms");
        return NULL;
    }
    if (!form->make(w, json_object_get(object, form->name), &w->values->made))
        return NULL;
    value.len = w->values->made.len - value.at;
    return values_add(w->values, &value);
}

static bool walk_array(struct walk *w, json_t *array);

/* *to: what the node is to be replaced by, or NULL. */
static bool walk_value(struct walk *w, json_t *node, json_t **to)
{
    const struct form *form;
    size_t object;

    *to = NULL;
    if (json_is_integer(node)) {
        int64_t i = json_integer_value(node);

        if (i >= INT32_MIN && i <= INT32_MAX)
            *to = int32_value(w, i);
        return true;
    }
    if (json_is_array(node))
        return walk_array(w, node);
    if (!json_is_object(node))
        return true;
    if ((form = form_of(node)) == NULL)
        return walk_object(w, node);
    object = ++w->objects;
    *to = form_value(w, form, node);
    if (*to == NULL && w->object == 0)
        w->object = object;
    return *to != NULL;
}

static bool walk_array(struct walk *w, json_t *array)
{
    json_t *to;

    for (size_t i = 0; i < json_array_size(array); i++) {
        if (!walk_value(w, json_array_get(array, i), &to))
            return false;
        if (to != NULL)
            json_array_set_new(array, i, to);
    }
    return true;
}

static bool walk_object(struct walk *w, json_t *object)
{
    json_t *to;

    w->objects++;
    for (void *i = json_object_iter(object); i != NULL; i = json_object_iter_next(object, i)) {
        if (!walk_value(w, json_object_iter_value(i), &to))
            return false;
        if (to != NULL)
            json_object_iter_set_new(object, i, to);
    }
    return true;
}

/* The byte where the n-th object begins; the text is known to be valid. */
static size_t place_of(struct slice text, size_t n)
{
    const char *at = text.ptr, *end = at + text.len;
    bool in_string = false;

    for (; at < end; at++) {
        if (*at == '\\' && in_string)
            at++;
        else if (*at == '"')
            in_string = !in_string;
        else if (*at == '{' && !in_string && --n == 0)
            break;
    }
    return (size_t)(at - (const char *)text.ptr);
}

bool payload_extjson(struct slice text, json_t *root, struct values *values,
                     struct payload_fault *f)
{
    struct walk w = {.values = values};

    if (form_of(root) != NULL) {
        w.object = 1;
        (void)fault(&w, "the whole value is a type of Extended JSON, or looks like one");
    } else if (walk_object(&w, root)) {
        return true;
    }
    *f = (struct payload_fault){.reason = w.reason, .what = w.what, .at = place_of(text, w.object)};
    return false;
}
