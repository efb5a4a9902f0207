#include "core/types.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"

static const struct {
    const char *name;
    enum value_type type;
} names[] = {
    {"date", TYPE_DATE},       {"date_ms", TYPE_DATE_MS},   {"date_s", TYPE_DATE_S},
    {"date_us", TYPE_DATE_US}, {"objectid", TYPE_OBJECTID}, {"decimal", TYPE_DECIMAL},
    {"long", TYPE_LONG},       {"double", TYPE_DOUBLE},     {"uuid", TYPE_UUID},
    {"binary", TYPE_BINARY},
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
    return "date, date_ms, date_s, date_us, objectid, decimal, long, double, uuid, binary";
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

/* unit_ms: how many milliseconds one has; 0 for microseconds. */
static bool epoch(const json_t *in, int64_t unit_ms, struct typed *out)
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

    double d = json_real_value(in);
    if (unit_ms != 1000)
        return types_exact_integer(d, &i) &&
               date_is(out, unit_ms == 0 ? i / 1000 - (i % 1000 < 0) : i);
    /* Seconds: to the nearest millisecond, because 1517966773.84 * 1000 is a hair below what was
     * meant. */
    d = d * 1000 + (d < 0 ? -0.5 : 0.5);
    return d > -TYPES_EXACT_DOUBLE && d < TYPES_EXACT_DOUBLE && date_is(out, (int64_t)d);
}

static bool to_date(const json_t *in, struct typed *out)
{
    int64_t ms;

    if (json_is_string(in))
        return types_date(json_string_value(in), json_string_length(in), &ms) && date_is(out, ms);
    return epoch(in, 1, out);
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

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* RFC 4648 section 4: padded, no line breaks, the bits behind the end are zero. */
static bool to_binary(const json_t *in, struct typed *out)
{
    size_t len = json_string_length(in), n = 0;
    const char *text = json_string_value(in);

    if (text == NULL || len % 4 != 0 || len > UINT32_MAX)
        return false;

    size_t padding = len == 0 || text[len - 1] != '=' ? 0 : text[len - 2] != '=' ? 1 : 2;
    uint8_t *bytes = mem_grow(NULL, len / 4 * 3 + 1, 1);
    uint32_t bits = 0, held = 0;

    for (size_t i = 0; i < len - padding; i++) {
        int digit = base64_digit(text[i]);

        if (digit < 0) {
            mem_free(bytes);
            return false;
        }
        bits = bits << 6 | (uint32_t)digit;
        held += 6;
        if (held >= 8) {
            held -= 8;
            bytes[n++] = (uint8_t)(bits >> held);
            bits &= (1U << held) - 1;
        }
    }
    if (bits != 0) {
        mem_free(bytes);
        return false;
    }
    out->owned = bytes;
    return binary_is(out, BSON_SUBTYPE_BINARY, bytes, n);
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
    if (json_is_real(in))
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

static bool long_of(const json_t *number, struct typed *out)
{
    out->value.value_type = BSON_TYPE_INT64;
    if (json_is_real(number))
        return types_exact_integer(json_real_value(number), &out->value.value.v_int64);
    out->value.value.v_int64 = json_integer_value(number);
    return json_is_integer(number);
}

/* A real is the nearest double anyway; an integer must be one exactly. */
static bool double_of(const json_t *number, struct typed *out)
{
    int64_t i, back;

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

static bool to_number(const json_t *in, bool (*of)(const json_t *, struct typed *),
                      struct typed *out)
{
    json_t *number;
    bool ok;

    if (!json_is_string(in))
        return of(in, out);
    number = number_in(in);
    ok = number != NULL && of(number, out);
    json_decref(number);
    return ok;
}

bool types_convert(enum value_type type, const json_t *in, struct slice number, struct typed *out,
                   const char **why)
{
    out->owned = NULL;
    out->value.padding = 0;
    switch (type) {
    case TYPE_DATE:
        *why = "an RFC 3339 date and time, or epoch milliseconds as a number";
        return to_date(in, out);
    case TYPE_DATE_MS:
        *why = "epoch milliseconds as a whole number";
        return epoch(in, 1, out);
    case TYPE_DATE_S:
        *why = "epoch seconds as a number";
        return epoch(in, 1000, out);
    case TYPE_DATE_US:
        *why = "epoch microseconds as a whole number";
        return epoch(in, 0, out);
    case TYPE_OBJECTID:
        *why = "24 hexadecimal digits as text";
        return to_objectid(in, out);
    case TYPE_DECIMAL:
        *why = "a number of at most 34 digits, as a number or as text";
        return to_decimal(in, number, out);
    case TYPE_LONG:
        *why = "a whole number within int64, as a number or as text";
        return to_number(in, long_of, out);
    case TYPE_DOUBLE:
        *why = "a number that a double can hold, as a number or as text";
        return to_number(in, double_of, out);
    case TYPE_UUID:
        *why = "a UUID as text: 8-4-4-4-12 hexadecimal digits";
        return to_uuid(in, out);
    case TYPE_BINARY:
        *why = "base64 with padding as text";
        return to_binary(in, out);
    }
    return false;
}
