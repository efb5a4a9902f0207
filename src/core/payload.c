#include "core/payload.h"

#include <jansson.h>
#include <string.h>

#include "core/json_place.h"
#include "core/payload_private.h"

/* Names that occur twice are refused, \u0000 inside a string is kept. */
static const size_t FLAGS = JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL;

static bool starts_with(struct slice s, const char *magic, size_t len)
{
    return s.len >= len && memcmp(s.ptr, magic, len) == 0;
}

/* What a payload can't begin with and operators should be told by name. Looked at only after a
 * failure: BSON of 256 bytes begins with a zero too. */
static bool name_the_framing(struct record *r)
{
    static const struct {
        const char *magic, *name;
        size_t len;
    } compressed[] = {
        {"\x1f\x8b", "gzip", 2},
        {"\x28\xb5\x2f\xfd", "zstd", 4},
        {"\x04\x22\x4d\x18", "lz4", 4},
        {"\xff\x06\x00\x00sNaPpY", "snappy", 10},
        {"\x82SNAPPY\x00", "snappy (xerial)", 8},
        {"\x78\x9c", "zlib", 2},
        {"\x78\xda", "zlib", 2},
    };

    for (size_t i = 0; i < sizeof(compressed) / sizeof(compressed[0]); i++) {
        if (starts_with(r->value, compressed[i].magic, compressed[i].len)) {
            record_reject(r, REASON_COMPRESSED, 0, "the value is compressed with %s",
                          compressed[i].name);
            return true;
        }
    }
    if (r->value.len >= 5 && starts_with(r->value, "\x00", 1)) {
        record_reject(r, REASON_SCHEMA_REGISTRY_FRAMING, 0,
                      "the value begins with byte 0x00 and a schema id: a schema registry "
                      "serializer wrote it");
        return true;
    }
    return false;
}

/* The text is a JSON value, but none that json_loadb() takes at the top. */
static bool is_bare_value(struct slice text)
{
    json_error_t error;
    json_t *value = json_loadb(text.ptr, text.len, FLAGS | JSON_DECODE_ANY, &error);
    bool is = value != NULL && !json_is_object(value);

    json_decref(value);
    return is;
}

static void reject_fault(struct record *r, enum json_error_code code, size_t at, const char *what)
{
    switch (code) {
    case json_error_invalid_utf8:
        record_reject(r, REASON_INVALID_UTF8, 0, "not UTF-8 at byte %zu", at);
        break;
    case json_error_duplicate_key:
        record_reject(r, REASON_DUPLICATE_NAME, 0, "a name occurs twice in one object, at byte %zu",
                      at);
        break;
    case json_error_numeric_overflow:
        record_reject(r, REASON_NUMBER_RANGE, 0, "a number outside int64 or double, at byte %zu",
                      at);
        break;
    case json_error_stack_overflow:
        record_reject(r, REASON_TOO_DEEP, 0, "nested more than %d levels deep, at byte %zu", 2048,
                      at);
        break;
    case json_error_null_byte_in_key:
        record_reject(r, REASON_UNSAFE_NAME, 0, "a name with a NUL in it, at byte %zu", at);
        break;
    case json_error_end_of_input_expected:
        record_reject(r, REASON_JSON_SYNTAX, 0, "something follows the JSON value, at byte %zu",
                      at);
        break;
    default:
        if (at >= r->value.len)
            record_reject(r, REASON_JSON_SYNTAX, 0, "the JSON text ends too early, at byte %zu",
                          at);
        else
            record_reject(r, REASON_JSON_SYNTAX, 0, "not JSON at byte %zu: %s", at, what);
        break;
    }
}

/* jansson says what is wrong, and of the place only where it stopped reading, which may be far
 * behind; its text is not used, as it quotes the payload. */
static void explain(struct record *r, const json_error_t *error)
{
    struct json_place place;

    if (name_the_framing(r))
        return;
    if (starts_with(r->value, "\xef\xbb\xbf", 3)) {
        record_reject(r, REASON_JSON_SYNTAX, 0,
                      "the value begins with a byte order mark (BOM), which JSON forbids");
        return;
    }
    if (json_error_code(error) == json_error_invalid_syntax && is_bare_value(r->value)) {
        record_reject(r, REASON_NOT_AN_OBJECT, 0, "a bare JSON value, not an object");
        return;
    }
    if (!json_fault_find(r->value, &place)) { /* fuzzed: it agrees with jansson 2.14 */
        place.byte = error->position > 0 ? (size_t)error->position - 1 : 0;
        place.what = "it can't be read";
    }
    reject_fault(r, json_error_code(error), place.byte, place.what);
    json_place_clear(&place);
}

static bool parse_json(struct record *r, bool reject)
{
    json_error_t error;
    json_t *json = json_loadb(r->value.ptr, r->value.len, FLAGS, &error);

    if (json == NULL) {
        if (reject)
            explain(r, &error);
        return false;
    }
    /* jansson 2.14 passes over a NUL behind a number or a word. */
    const char *nul = memchr(r->value.ptr, '\0', r->value.len);
    if (nul != NULL || !json_is_object(json)) {
        json_decref(json);
        if (reject && nul != NULL)
            record_reject(r, REASON_JSON_SYNTAX, 0, "a NUL that is not escaped, at byte %zu",
                          (size_t)(nul - (const char *)r->value.ptr));
        else if (reject)
            record_reject(r, REASON_NOT_AN_OBJECT, 0, "a JSON array, not an object");
        return false;
    }
    r->json = json;
    return true;
}

/* What payload_extjson() and payload_bson() say. */
static bool finish(struct record *r, bool ok, const struct payload_fault *f, bool reject)
{
    if (ok)
        return true;
    payload_release(r);
    if (reject && !(r->value.len > 0 && f->reason == REASON_BSON_SYNTAX && name_the_framing(r)))
        record_reject(r, f->reason, 0, "%s, at byte %zu", f->what, f->at);
    return false;
}

static bool parse_extjson(struct record *r, bool reject)
{
    struct payload_fault f = {0};

    if (!parse_json(r, reject))
        return false;
    r->values = values_new(slice_of(NULL, 0));
    return finish(r, payload_extjson(r->value, r->json, r->values, &f), &f, reject);
}

static bool parse_bson(struct record *r, bool reject)
{
    struct payload_fault f = {0};

    r->values = values_new(r->value);
    r->json = payload_bson(r->value, r->values, &f);
    return finish(r, r->json != NULL, &f, reject);
}

static bool extjson_fault_find(struct slice text, struct payload_fault *f)
{
    json_t *root = json_loadb(text.ptr, text.len, FLAGS, NULL);
    struct values *values = values_new(slice_of(NULL, 0));
    bool faulty = root != NULL && !payload_extjson(text, root, values, f);

    json_decref(root);
    values_free(values);
    return faulty;
}

static bool bson_fault_find(struct slice bytes, struct payload_fault *f)
{
    struct values *values = values_new(bytes);
    json_t *root = payload_bson(bytes, values, f);
    bool faulty = root == NULL;

    json_decref(root);
    values_free(values);
    return faulty;
}

bool payload_fault_find(struct slice value, enum config_format format, struct json_place *out)
{
    struct payload_fault f;

    *out = (struct json_place){0};
    if (value.len == 0 || !payload_has_fields(format))
        return false;
    if (format == FORMAT_BSON) {
        if (!bson_fault_find(value, &f))
            return false;
        out->byte = f.at;
        out->what = f.what;
        return true;
    }
    if (json_fault_find(value, out))
        return true;
    if (format != FORMAT_EXTJSON || !extjson_fault_find(value, &f))
        return false;
    MUST(json_byte_find(value, f.at, out)); /* an object begins there */
    out->what = f.what;
    return true;
}

static void put_value(struct record *r, const struct path *field, json_t *value)
{
    r->json = json_object();
    MUST(path_put(field, r->json, value)); /* nothing else is there */
    json_decref(value);
}

static bool parse_string(struct record *r, const struct path *field, bool reject)
{
    if (!payload_is_utf8(r->value)) {
        if (reject && !name_the_framing(r))
            record_reject(r, REASON_INVALID_UTF8, 0, "the value is not UTF-8");
        return false;
    }
    put_value(r, field, json_stringn_nocheck(r->value.ptr, r->value.len));
    return true;
}

/* The bytes as BSON has them: length, subtype 0, the value. A document is never that large, so what
 * is longer than the length can say is too_large in any case. */
static bool parse_bytes(struct record *r, const struct path *field)
{
    struct value value = {.type = BSON_TYPE_BINARY, .len = 5 + r->value.len};
    uint32_t len = (uint32_t)r->value.len;

    r->values = values_new(slice_of(NULL, 0));
    buf_add(&r->values->made, &len, 4);
    buf_add_char(&r->values->made, BSON_SUBTYPE_BINARY);
    buf_add(&r->values->made, r->value.ptr, r->value.len);
    put_value(r, field, values_add(r->values, &value));
    return true;
}

static bool is_empty(struct record *r, bool reject)
{
    if (r->value.len > 0)
        return false;
    if (reject)
        record_reject(r, REASON_EMPTY_VALUE, 0, "the value has no bytes");
    return true;
}

bool payload_has_fields(enum config_format format)
{
    return format != FORMAT_STRING && format != FORMAT_BYTES;
}

bool payload_parse(struct record *r, const struct payload_rule *rule, bool reject)
{
    if (r->json != NULL)
        return true;
    if (r->value.ptr == NULL) {
        if (reject)
            record_reject(r, REASON_TOMBSTONE, 0, "the record has no value");
        return false;
    }
    switch (rule->format) {
    case FORMAT_JSON:
        return !is_empty(r, reject) && parse_json(r, reject);
    case FORMAT_EXTJSON:
        return !is_empty(r, reject) && parse_extjson(r, reject);
    case FORMAT_BSON:
        return !is_empty(r, reject) && parse_bson(r, reject);
    case FORMAT_STRING: /* of no bytes is a text too */
        return parse_string(r, &rule->field, reject);
    case FORMAT_BYTES:
        return parse_bytes(r, &rule->field);
    }
    return false;
}

void payload_release(struct record *r)
{
    json_decref(r->json);
    values_free(r->values);
    r->json = NULL;
    r->values = NULL;
}

/*
 * Sizes of jansson 2.14 with what glibc's malloc adds, each with the largest value that needs no
 * further bracket or comma (a text: 48 and 32 more than its bytes): an object 80 and its first
 * buckets 144, an array 48 and its first places 80, a member 82 and 32 of buckets, an element 16.
 */
size_t payload_tree_bytes(struct slice text, size_t enough)
{
    enum { TEXT = 80, OBJECT = 80 + 144 + 82 + TEXT, OTHER = 48 + 80 + TEXT };
    const char *at = text.ptr, *end = at + text.len;
    size_t bytes = text.len;

    for (; at < end && bytes <= enough; at++) {
        if (*at == '{')
            bytes += OBJECT;
        else if (*at == '[' || *at == ',')
            bytes += OTHER;
    }
    return bytes;
}

/* --- the text of one number: a walk over text that is known to be valid --- */

struct scan {
    const char *at, *end;
};

static void skip_space(struct scan *s)
{
    while (s->at < s->end && (*s->at == ' ' || *s->at == '\t' || *s->at == '\n' || *s->at == '\r'))
        s->at++;
}

static void skip_string(struct scan *s)
{
    for (s->at++; s->at < s->end && *s->at != '"'; s->at++) {
        if (*s->at == '\\')
            s->at++;
    }
    s->at++;
}

/* Brackets are counted and not matched: the text is valid. */
static void skip_value(struct scan *s)
{
    size_t depth = 0;

    skip_space(s);
    while (s->at < s->end) {
        char c = *s->at;

        if (c == '"') {
            skip_string(s);
        } else if (c == '{' || c == '[') {
            depth++;
            s->at++;
        } else if (c == '}' || c == ']') {
            if (depth == 0)
                return;
            depth--;
            s->at++;
        } else if (c == ',' && depth == 0) {
            return;
        } else {
            s->at++;
            continue;
        }
        if (depth == 0)
            return;
    }
}

/* To the value of the member that is the n-th of the object that begins here. */
static void enter_member(struct scan *s, size_t n)
{
    skip_space(s);
    s->at++; /* { */
    for (size_t i = 0;; i++) {
        skip_space(s);
        skip_string(s);
        skip_space(s);
        s->at++; /* : */
        if (i == n)
            break;
        skip_value(s);
        skip_space(s);
        s->at++; /* , */
    }
    skip_space(s);
}

/* jansson keeps the members in the order of the text, so a name need not be read (escapes!), only
 * counted. */
static size_t position_of(json_t *object, const char *name)
{
    size_t n = 0;

    for (void *i = json_object_iter(object); i != NULL; i = json_object_iter_next(object, i), n++) {
        if (strcmp(json_object_iter_key(i), name) == 0)
            break;
    }
    return n;
}

struct slice payload_number_text(struct slice text, const json_t *root, const struct path *path)
{
    struct scan s = {.at = text.ptr, .end = (const char *)text.ptr + text.len};
    union {
        const json_t *in;
        json_t *out;
    } at = {.in = root}; /* jansson's iterators want it without const and change nothing */
    const char *start;

    for (size_t i = 0; i < path->n; i++) {
        enter_member(&s, position_of(at.out, path->names[i]));
        at.out = json_object_get(at.in, path->names[i]);
    }
    start = s.at;
    while (s.at < s.end && strchr("+-.0123456789eE", *s.at) != NULL && *s.at != '\0')
        s.at++;
    return slice_of(start, (size_t)(s.at - start));
}

/* How many bytes the character at s[i] has; 0: it is none. */
static size_t character(const unsigned char *s, size_t left)
{
    unsigned char c = s[0];
    size_t n = c < 0x80                 ? 1
               : c >= 0xC2 && c <= 0xDF ? 2
               : (c & 0xF0) == 0xE0     ? 3
               : c >= 0xF0 && c <= 0xF4 ? 4
                                        : 0;

    if (n == 0 || n > left)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80)
            return 0;
    }
    if ((c == 0xE0 && s[1] < 0xA0) || (c == 0xED && s[1] > 0x9F) || (c == 0xF0 && s[1] < 0x90) ||
        (c == 0xF4 && s[1] > 0x8F))
        return 0;
    return n;
}

bool payload_is_utf8(struct slice s)
{
    const unsigned char *at = s.ptr;

    for (size_t i = 0; i < s.len;) {
        size_t n = character(at + i, s.len - i);

        if (n == 0)
            return false;
        i += n;
    }
    return true;
}
