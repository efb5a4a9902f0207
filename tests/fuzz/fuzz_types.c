/*
 * Any text as each type, against oracles that are not our code: dates against timegm() and back
 * from gmtime_r(), decimals against libbson where that is right, whole numbers and doubles against
 * strtoll() and strtod(), scaled numbers against 128 bits, base64 and hexadecimal text by writing
 * it again.
 */
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/types.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* --- dates --- */

static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* A date that our parser made, written by the C library and read again. */
static void check_date_round_trip(int64_t ms)
{
    time_t seconds = floor_div(ms, 1000);
    struct tm tm;
    char text[64];
    int64_t back;

    MUST(gmtime_r(&seconds, &tm) != NULL);
    if (tm.tm_year < -1900 || tm.tm_year > 8099)
        return; /* an offset moved it out of the years that have four digits */
    (void)snprintf(text, sizeof(text), "%04d-%02d-%02dT%02d:%02d:%02d.%03dZ", tm.tm_year + 1900,
                   tm.tm_mon + 1, tm.tm_mday, tm.tm_hour, tm.tm_min, tm.tm_sec,
                   (int)(ms - seconds * 1000));
    MUST(types_date(text, strlen(text), &back) && back == ms);
}

static void check_date(const char *text, size_t len)
{
    struct tm tm = {0};
    int64_t ms, fraction = 0, unit = 100, offset = 0;
    int h, m;

    if (!types_date(text, len, &ms))
        return;
    check_date_round_trip(ms);
    MUST(sscanf(text, "%4d-%2d-%2d%*c%2d:%2d:%2d", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
                &tm.tm_hour, &tm.tm_min, &tm.tm_sec) == 6);
    MUST(tm.tm_mon >= 1 && tm.tm_mon <= 12 && tm.tm_mday <= 31 && tm.tm_hour <= 23);
    tm.tm_year -= 1900;
    tm.tm_mon--;
    if (text[19] == '.') {
        for (size_t i = 20; text[i] >= '0' && text[i] <= '9'; i++, unit /= 10)
            fraction += (text[i] - '0') * unit;
    }
    if (text[len - 1] != 'Z' && text[len - 1] != 'z') {
        MUST(sscanf(text + len - 5, "%2d:%2d", &h, &m) == 2);
        offset = (text[len - 6] == '-' ? -1 : 1) * (h * 60 + m);
    }
    if (tm.tm_sec == 60)
        fraction = 0;
    /* timegm() takes a second 60 as the next minute, as we do. */
    MUST(ms == ((int64_t)timegm(&tm) - offset * 60) * 1000 + fraction);
}

/* --- numbers --- */

/* -?(0|[1-9][0-9]*)(\.[0-9]+)? of at most so many digits before and behind the point */
static bool is_plain(const char *text, size_t len, size_t before, size_t behind, size_t *fraction)
{
    size_t i = len > 0 && text[0] == '-', n = 0;

    *fraction = 0;
    for (; i < len && text[i] >= '0' && text[i] <= '9'; i++)
        n++;
    if (n == 0 || n > before || (n > 1 && text[i - n] == '0'))
        return false;
    if (i == len)
        return true;
    if (text[i++] != '.')
        return false;
    *fraction = len - i;
    for (; i < len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
    }
    return *fraction > 0 && *fraction <= behind;
}

static bool same(const bson_decimal128_t *a, const bson_decimal128_t *b)
{
    return a->high == b->high && a->low == b->low;
}

static void check_decimal(const char *text, size_t len)
{
    bson_decimal128_t ours, theirs;
    bson_value_t value = {0}, again = {0};
    char back[BSON_DECIMAL128_STRING];
    bool ok = types_decimal(text, len, &ours);
    size_t fraction;

    if (is_plain(text, len, 17, 17, &fraction)) { /* nothing to round */
        MUST(ok && bson_decimal128_from_string(text, &theirs));
        MUST(same(&ours, &theirs));
    }
    if (!ok)
        return;
    MUST(types_decimal_is_finite(&ours));
    bson_decimal128_to_string(&ours, back);
    MUST(types_decimal(back, strlen(back), &theirs) && same(&ours, &theirs));
    types_canonical_decimal(&ours, &value);
    if (value.value_type == BSON_TYPE_DECIMAL128) {
        types_canonical_decimal(&value.value.v_decimal128, &again);
        MUST(again.value_type == BSON_TYPE_DECIMAL128 &&
             same(&value.value.v_decimal128, &again.value.v_decimal128));
    } else {
        (void)snprintf(back, sizeof(back), "%" PRId64, value.value.v_int64);
        MUST(types_decimal(back, strlen(back), &theirs));
        types_canonical_decimal(&theirs, &again);
        MUST(again.value_type == BSON_TYPE_INT64 && again.value.v_int64 == value.value.v_int64);
        /* As doubles, which are near enough to find a wrong power of ten. */
        MUST(fabs(strtod(text, NULL) - (double)value.value.v_int64) <=
             fabs((double)value.value.v_int64) * 1e-15);
    }
}

static void check_scaled(const char *text, size_t len)
{
    __extension__ typedef __int128 wide;
    size_t fraction;
    wide value = 0, unit = 1;
    int64_t got;

    if (!is_plain(text, len, 15, 15, &fraction))
        return;
    for (size_t i = 0; i < len; i++) {
        if (text[i] >= '0' && text[i] <= '9')
            value = value * 10 + (text[i] - '0');
    }
    value = text[0] == '-' ? -value * 1000 : value * 1000;
    for (; fraction > 0; fraction--)
        unit *= 10;
    MUST(types_scaled(text, len, 3, &got));
    MUST((wide)got == value / unit - (value % unit < 0));
}

static void check_double_text(const char *text)
{
    double d = strtod(text, NULL), back;
    char shown[TYPES_DOUBLE_TEXT];

    if (!isfinite(d))
        return;
    types_double_text(d, shown);
    back = strtod(shown, NULL);
    MUST(memcmp(&d, &back, sizeof(d)) == 0);
}

/* --- conversions --- */

static bool convert(enum value_type type, const json_t *in, const char *text, struct typed *out)
{
    const char *why = NULL;
    struct slice number = json_is_number(in) ? slice_text(text) : slice_of(NULL, 0);
    bool ok = types_convert(type, in, number, out, &why);

    MUST(why != NULL && strlen(why) > 10);
    return ok;
}

static void check_number(enum value_type type, const json_t *in, const char *text)
{
    struct typed t;
    char *end;

    if (!convert(type, in, text, &t))
        return;
    if (type == TYPE_DOUBLE) {
        double d = strtod(text, &end);

        MUST(*end == '\0' && fabs(d - t.value.value.v_double) <= 0);
    } else if (strpbrk(text, ".eE") == NULL) {
        errno = 0;
        long long i = strtoll(text, &end, 10);
        MUST(*end == '\0' && errno == 0 && i == t.value.value.v_int64);
    }
    typed_clear(&t);
}

static void check_base64(bool url, const json_t *in, const char *text, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
    struct typed t;
    size_t at = 0, held = 0, n;
    uint32_t bits = 0;

    if (!convert(url ? TYPE_BINARY_URL : TYPE_BINARY, in, text, &t))
        return;
    n = t.value.value.v_binary.data_len;
    for (size_t i = 0; i < n || held > 0;) {
        if (held < 6) {
            bits = bits << 8 | (i < n ? t.value.value.v_binary.data[i] : 0U);
            held += 8;
            i++;
        }
        for (; held >= 6 || (i >= n && held > 0); at++) {
            uint32_t digit = held >= 6 ? bits >> (held - 6) & 63 : bits << (6 - held) & 63;
            char c = digit < 62    ? digits[digit]
                     : digit == 62 ? (url ? '-' : '+')
                                   : (url ? '_' : '/');

            MUST(at < len && text[at] == c);
            held = held >= 6 ? held - 6 : 0;
        }
    }
    MUST(url ? at <= len : (at + 3) / 4 * 4 == len);
    for (; at < len; at++)
        MUST(text[at] == '=');
    typed_clear(&t);
}

static void check_hex(enum value_type type, const json_t *in, const char *text)
{
    struct typed t;
    char shown[64];
    size_t n = 0;

    if (!convert(type, in, text, &t))
        return;
    const uint8_t *bytes =
        type == TYPE_UUID ? t.value.value.v_binary.data : t.value.value.v_oid.bytes;
    for (size_t i = 0; i < (type == TYPE_UUID ? 16U : 12U); i++)
        n += (size_t)snprintf(
            shown + n, sizeof(shown) - n, "%s%02x",
            type == TYPE_UUID && (i == 4 || i == 6 || i == 8 || i == 10) ? "-" : "", bytes[i]);
    MUST(strcasecmp(shown, text) == 0);
    typed_clear(&t);
}

static void check_all(const json_t *in, const char *text)
{
    static const enum value_type dates[] = {TYPE_DATE, TYPE_DATE_MS, TYPE_DATE_S, TYPE_DATE_US,
                                            TYPE_DECIMAL};
    size_t len = strlen(text);
    struct typed t;

    for (size_t i = 0; i < sizeof(dates) / sizeof(dates[0]); i++) {
        if (convert(dates[i], in, text, &t))
            typed_clear(&t);
    }
    check_number(TYPE_LONG, in, text);
    check_number(TYPE_DOUBLE, in, text);
    check_hex(TYPE_OBJECTID, in, text);
    check_hex(TYPE_UUID, in, text);
    check_base64(false, in, text, len);
    check_base64(true, in, text, len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_text_n((const char *)data, size);
    size_t len = strlen(text); /* what is behind a NUL is refused by the length alone */
    json_t *string = json_stringn_nocheck(text, len);
    json_t *number = json_loadb(text, len, JSON_DECODE_ANY, NULL);
    int64_t ms;

    if (size > len) {
        bson_decimal128_t decimal;

        MUST(!types_date(text, size, &ms) && !types_decimal(text, size, &decimal));
    }
    check_date(text, len);
    check_decimal(text, len);
    check_scaled(text, len);
    check_double_text(text);
    check_all(string, text);
    if (json_is_number(number) && strspn(text, "+-.0123456789eE") == len)
        check_all(number, text);
    if (size >= 8) {
        memcpy(&ms, data, 8);
        check_date_round_trip(ms % INT64_C(253402300800000));
    }
    json_decref(number);
    json_decref(string);
    mem_free(text);
    return 0;
}
