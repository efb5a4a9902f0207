#include "core/types.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"

static const struct {
    const char *name;
    enum value_type type;
} names[] = {
    {"date", TYPE_DATE},       {"date_ms", TYPE_DATE_MS},       {"date_s", TYPE_DATE_S},
    {"date_us", TYPE_DATE_US}, {"objectid", TYPE_OBJECTID},     {"decimal", TYPE_DECIMAL},
    {"long", TYPE_LONG},       {"double", TYPE_DOUBLE},         {"uuid", TYPE_UUID},
    {"binary", TYPE_BINARY},   {"binary_url", TYPE_BINARY_URL},
};

bool types_parse(const char *name, enum value_type *out)
{
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        if (strcmp(names[i].name, name) == 0) {
            *out = names[i].type;
            return true;
        }
    }
    return false;
}

const char *types_names(void)
{
    return "date, date_ms, date_s, date_us, objectid, decimal, long, double, uuid, binary, "
           "binary_url";
}

void typed_clear(struct typed *t)
{
    mem_free(t->owned);
    t->owned = NULL;
}

bool types_exact_integer(double d, int64_t *out)
{
    if (!(d > -TYPES_EXACT_DOUBLE && d < TYPES_EXACT_DOUBLE))
        return false;
    int64_t i = (int64_t)d;
    if ((double)i < d || (double)i > d)
        return false;
    *out = i;
    return true;
}

static bool date_is(struct typed *out, int64_t ms)
{
    out->value.value_type = BSON_TYPE_DATE_TIME;
    out->value.value.v_datetime = ms;
    return true;
}

/* A whole number by its double and by its text, where there is one: 1.00000000000000000001 is none.
 */
static bool real_is_whole(const json_t *in, struct slice number, int64_t *out)
{
    return types_exact_integer(json_real_value(in), out) &&
           (number.len == 0 || types_whole(number.ptr, number.len));
}

/* unit_ms: how many milliseconds one has; 0 for microseconds. Only seconds may have a fraction. */
static bool epoch(const json_t *in, int64_t unit_ms, struct slice number, struct typed *out)
{
    int64_t i;

    if (json_is_integer(in)) {
        i = json_integer_value(in);
        if (unit_ms == 0) /* towards the past, also before 1970 */
            return date_is(out, i / 1000 - (i % 1000 < 0));
        return !__builtin_mul_overflow(i, unit_ms, &i) && date_is(out, i);
    }
    if (!json_is_real(in))
        return false;

    if (unit_ms == 1000)
        return types_scaled(number.ptr, number.len, 3, &i) && date_is(out, i);
    return real_is_whole(in, number, &i) &&
           date_is(out, unit_ms == 0 ? i / 1000 - (i % 1000 < 0) : i);
}

static bool to_date(const json_t *in, struct slice number, struct typed *out)
{
    int64_t ms;

    if (json_is_string(in))
        return types_date(json_string_value(in), json_string_length(in), &ms) && date_is(out, ms);
    return epoch(in, 1, number, out);
}

static int hex(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Two hex digits a byte. */
static bool hex_bytes(const char *text, uint8_t *out, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int high = hex(text[2 * i]), low = hex(text[2 * i + 1]);

        if (high < 0 || low < 0)
            return false;
        out[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool to_objectid(const json_t *in, struct typed *out)
{
    out->value.value_type = BSON_TYPE_OID;
    return json_string_length(in) == 24 && /* 0 for what is no string */
           hex_bytes(json_string_value(in), out->value.value.v_oid.bytes, 12);
}

static bool binary_is(struct typed *out, bson_subtype_t subtype, uint8_t *bytes, size_t len)
{
    out->value.value_type = BSON_TYPE_BINARY;
    out->value.value.v_binary.subtype = subtype;
    out->value.value.v_binary.data = bytes;
    out->value.value.v_binary.data_len = (uint32_t)len;
    return true;
}

/* 8-4-4-4-12, as RFC 4122 writes it; upper case is taken too. */
static bool to_uuid(const json_t *in, struct typed *out)
{
    static const size_t groups[] = {4, 2, 2, 2, 6};
    const char *text = json_string_value(in);
    uint8_t *to = out->bytes;

    if (json_string_length(in) != 36)
        return false;
    for (size_t i = 0; i < 5; i++) {
        if (i > 0 && *text++ != '-')
            return false;
        if (!hex_bytes(text, to, groups[i]))
            return false;
        text += 2 * groups[i];
        to += groups[i];
    }
    return binary_is(out, BSON_SUBTYPE_UUID, out->bytes, sizeof(out->bytes));
}

static int base64_digit(char c, bool url)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == (url ? '-' : '+') ? 62 : c == (url ? '_' : '/') ? 63 : -1;
}

/* Digits alone to bytes; returns how many, or -1. No line breaks, and the bits behind the end are
 * zero: a text that says nothing else has one form only. */
static ptrdiff_t base64_bytes(const char *text, size_t len, bool url, uint8_t *bytes)
{
    uint32_t bits = 0, held = 0;
    ptrdiff_t n = 0;

    if (len % 4 == 1)
        return -1;
    for (size_t i = 0; i < len; i++) {
        int digit = base64_digit(text[i], url);

        if (digit < 0)
            return -1;
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            bytes[n++] = (uint8_t)(bits >> held);
            bits &= (1U << held) - 1;
        }
    }
    return bits == 0 ? n : -1;
}

/* RFC 4648 section 4, padded; or section 5, where padding may be left out. */
static bool to_binary(const json_t *in, bool url, struct typed *out)
{
    size_t len = json_string_length(in), digits = len;
    const char *text = json_string_value(in);
    uint8_t *bytes;
    ptrdiff_t n;

    if (text == NULL || len > UINT32_MAX)
        return false;
    if (len % 4 == 0)
        digits -= len == 0 || text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
    else if (!url)
        return false;
    bytes = mem_grow(NULL, len / 4 * 3 + 3, 1);
    n = base64_bytes(text, digits, url, bytes);
    if (n < 0) {
        mem_free(bytes);
        return false;
    }
    out->owned = bytes;
    return binary_is(out, BSON_SUBTYPE_BINARY, bytes, (size_t)n);
}

static bool decimal_text(const char *text, size_t len, struct typed *out)
{
    out->value.value_type = BSON_TYPE_DECIMAL128;
    return types_decimal(text, len, &out->value.value.v_decimal128);
}

static bool to_decimal(const json_t *in, struct slice number, struct typed *out)
{
    char text[24];

    if (json_is_string(in))
        return decimal_text(json_string_value(in), json_string_length(in), out);
    if (json_is_number(in) && number.ptr != NULL) /* also an integer: -0 has a sign */
        return decimal_text(number.ptr, number.len, out);
    if (!json_is_integer(in))
        return false;
    int n = bson_snprintf(text, sizeof(text), "%lld", (long long)json_integer_value(in));
    return decimal_text(text, (size_t)n, out);
}

/* A string that is one JSON number, read by the same rules as a number; NULL otherwise. The caller
 * owns it. */
static json_t *number_in(const json_t *in)
{
    const char *text = json_string_value(in);
    size_t len = json_string_length(in);
    json_t *number;

    if (len == 0 || !(text[0] == '-' || (text[0] >= '0' && text[0] <= '9')))
        return NULL;
    if (strchr("0123456789", text[len - 1]) == NULL ||
        text[len - 1] == '\0') /* no space behind it */
        return NULL;
    number = json_loadb(text, len, JSON_DECODE_ANY, NULL);
    if (number != NULL && !json_is_number(number)) {
        json_decref(number);
        return NULL;
    }
    return number;
}

static bool long_of(const json_t *number, struct slice text, struct typed *out)
{
    out->value.value_type = BSON_TYPE_INT64;
    if (json_is_real(number))
        return real_is_whole(number, text, &out->value.value.v_int64);
    out->value.value.v_int64 = json_integer_value(number);
    return json_is_integer(number);
}

/* A real is the nearest double anyway; an integer must be one exactly. */
static bool double_of(const json_t *number, struct slice text, struct typed *out)
{
    int64_t i, back;

    (void)text;

    out->value.value_type = BSON_TYPE_DOUBLE;
    if (json_is_real(number)) {
        out->value.value.v_double = json_real_value(number);
        return true;
    }
    if (!json_is_integer(number))
        return false;
    i = json_integer_value(number);
    out->value.value.v_double = (double)i;
    if (out->value.value.v_double >= 9223372036854775808.0)
        return false;
    back = (int64_t)out->value.value.v_double;
    return back == i;
}

static bool to_number(const json_t *in, struct slice text,
                      bool (*of)(const json_t *, struct slice, struct typed *), struct typed *out)
{
    json_t *number;
    bool ok;

    if (!json_is_string(in))
        return of(in, text, out);
    number = number_in(in);
    ok = number != NULL && of(number, slice_of(json_string_value(in), json_string_length(in)), out);
    json_decref(number);
    return ok;
}

static const char *expected(enum value_type type)
{
    switch (type) {
    case TYPE_DATE:
        return "an RFC 3339 date and time, or epoch milliseconds as a number";
    case TYPE_DATE_MS:
        return "epoch milliseconds as a whole number";
    case TYPE_DATE_S:
        return "epoch seconds as a number";
    case TYPE_DATE_US:
        return "epoch microseconds as a whole number";
    case TYPE_OBJECTID:
        return "24 hexadecimal digits as text";
    case TYPE_DECIMAL:
        return "a number of at most 34 digits, as a number or as text";
    case TYPE_LONG:
        return "a whole number within int64, as a number or as text";
    case TYPE_DOUBLE:
        return "a number that a double can hold, as a number or as text";
    case TYPE_UUID:
        return "a UUID as text: 8-4-4-4-12 hexadecimal digits";
    case TYPE_BINARY:
        return "base64 with padding as text";
    case TYPE_BINARY_URL:
        return "base64 of the alphabet for URLs as text";
    }
    return "of a known type";
}

bool types_convert(enum value_type type, const json_t *in, struct slice number, struct typed *out,
                   const char **why)
{
    out->owned = NULL;
    out->value.padding = 0;
    *why = expected(type);
    switch (type) {
    case TYPE_DATE:
        return to_date(in, number, out);
    case TYPE_DATE_MS:
        return epoch(in, 1, number, out);
    case TYPE_DATE_S:
        return epoch(in, 1000, number, out);
    case TYPE_DATE_US:
        return epoch(in, 0, number, out);
    case TYPE_OBJECTID:
        return to_objectid(in, out);
    case TYPE_DECIMAL:
        return to_decimal(in, number, out);
    case TYPE_LONG:
        return to_number(in, number, long_of, out);
    case TYPE_DOUBLE:
        return to_number(in, number, double_of, out);
    case TYPE_UUID:
        return to_uuid(in, out);
    case TYPE_BINARY:
        return to_binary(in, false, out);
    case TYPE_BINARY_URL:
        return to_binary(in, true, out);
    }
    return false;
}

/* --- from BSON --- */

/* The type that the value would have; EOD: any number that fits. */
static bool is_already(enum value_type type, const bson_value_t *in)
{
    switch (type) {
    case TYPE_DATE:
    case TYPE_DATE_MS:
    case TYPE_DATE_S:
    case TYPE_DATE_US:
        return in->value_type == BSON_TYPE_DATE_TIME;
    case TYPE_OBJECTID:
        return in->value_type == BSON_TYPE_OID;
    case TYPE_DECIMAL:
        return in->value_type == BSON_TYPE_DECIMAL128;
    case TYPE_LONG:
        return in->value_type == BSON_TYPE_INT64;
    case TYPE_DOUBLE:
        return in->value_type == BSON_TYPE_DOUBLE;
    case TYPE_UUID:
        return in->value_type == BSON_TYPE_BINARY && in->value.v_binary.data_len == 16 &&
               in->value.v_binary.subtype == BSON_SUBTYPE_UUID;
    case TYPE_BINARY:
    case TYPE_BINARY_URL:
        return in->value_type == BSON_TYPE_BINARY;
    }
    return false;
}

/* A number as JSON would have it, for the same rules; NULL: it is none, or a decimal that is no
 * int64. */
static json_t *number_of(enum value_type type, const bson_value_t *in)
{
    bson_value_t canonical = {0};
    int64_t i;

    switch (in->value_type) {
    case BSON_TYPE_INT32:
        return json_integer(in->value.v_int32);
    case BSON_TYPE_INT64:
        return json_integer(in->value.v_int64);
    case BSON_TYPE_DOUBLE:
        if (type != TYPE_DECIMAL)
            return json_real(in->value.v_double); /* NULL for NaN and infinities */
        return types_exact_integer(in->value.v_double, &i) ? json_integer(i) : NULL;
    case BSON_TYPE_DECIMAL128:
        types_canonical_decimal(&in->value.v_decimal128, &canonical);
        return canonical.value_type == BSON_TYPE_INT64 ? json_integer(canonical.value.v_int64)
                                                       : NULL;
    default:
        return NULL;
    }
}

enum types_fit types_convert_bson(enum value_type type, const bson_value_t *in, struct typed *out,
                                  const char **why)
{
    char text[TYPES_DOUBLE_TEXT];
    struct slice number = {0};
    json_t *node;
    bool ok;

    if (is_already(type, in))
        return TYPES_SAME;
    node = number_of(type, in);
    if (json_is_real(node)) {
        types_double_text(in->value.v_double, text);
        number = slice_text(text);
    }
    ok = node != NULL && types_convert(type, node, number, out, why);
    *why = expected(type);
    json_decref(node);
    return ok ? TYPES_CONVERTED : TYPES_REFUSED;
}
