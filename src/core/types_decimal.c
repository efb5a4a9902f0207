/*
 * JSON numbers to Decimal128 without losing a digit, and the one form that equal ones share.
 *
 * libbson 1.23.1 alone would take too much (measured): "Infinity", "nan", "+1", "01", "1.", "-.5";
 * it counts exponents modulo 2^32 ("1e4294967297" became 10); and digits behind many zeros it cuts
 * off without a word ("0.0000009", 40 digits later another 9). So the text is read here, and
 * libbson gets at most 34 digits with an exponent.
 */
#include <stdlib.h>
#include <string.h>

#include "core/types.h"

enum {
    DIGITS = 34,         /* of a Decimal128 */
    EXPONENT_MAX = 6111, /* of its last digit */
    EXPONENT_DIGITS = 5, /* more can't be in range: LONGEST has four */
    LONGEST = 6200,      /* of a text; all the zeros of the largest and the smallest fit */
    INT64_DIGITS = 19
};

struct number {
    bool negative;
    char digits[DIGITS]; /* the first is not 0, except of 0 itself */
    int n;
    int exponent; /* of the last digit */
    int zeros;    /* read, but no other digit came behind them yet */
};

/* False: more digits than there is room for. */
static bool add_digit(struct number *to, char digit)
{
    if (digit == '0') {
        to->zeros += to->n > 0;
        return true;
    }
    if (to->n + to->zeros >= DIGITS)
        return false;
    for (; to->zeros > 0; to->zeros--)
        to->digits[to->n++] = '0';
    to->digits[to->n++] = digit;
    return true;
}

/* Zeros at the end stay as written where they fit. */
static void end_digits(struct number *to)
{
    if (to->n == 0)
        to->digits[to->n++] = '0';
    for (; to->zeros > 0 && to->n < DIGITS; to->zeros--)
        to->digits[to->n++] = '0';
    to->exponent += to->zeros;
    to->zeros = 0;
}

static bool is_digit(const char *at, const char *end)
{
    return at < end && *at >= '0' && *at <= '9';
}

/* At least one digit; *at moves behind them. */
static bool read_digits(const char **at, const char *end, struct number *to)
{
    if (!is_digit(*at, end))
        return false;
    for (; is_digit(*at, end); (*at)++) {
        if (!add_digit(to, **at))
            return false;
    }
    return true;
}

static bool read_exponent(const char **at, const char *end, struct number *to)
{
    bool negative = *at < end && **at == '-';
    int value = 0, n = 0;

    if (*at < end && (**at == '-' || **at == '+'))
        (*at)++;
    if (!is_digit(*at, end))
        return false;
    for (; is_digit(*at, end); (*at)++) {
        n += n > 0 || **at != '0';
        if (n > EXPONENT_DIGITS)
            return false;
        value = value * 10 + (**at - '0');
    }
    to->exponent += negative ? -value : value;
    return true;
}

/* RFC 8259 section 6. False: it is none, or not exactly a Decimal128. */
static bool read_number(const char *text, size_t len, struct number *to)
{
    const char *at = text, *end = text + len, *first;

    *to = (struct number){.negative = len > 0 && text[0] == '-'};
    if (len > LONGEST)
        return false;
    at += to->negative;
    first = at;
    if (!read_digits(&at, end, to) || (*first == '0' && at > first + 1))
        return false;
    if (at < end && *at == '.') {
        first = ++at;
        if (!read_digits(&at, end, to))
            return false;
        to->exponent -= (int)(at - first);
    }
    end_digits(to);
    if (at < end && (*at == 'e' || *at == 'E')) {
        at++;
        if (!read_exponent(&at, end, to))
            return false;
    }
    return at == end;
}

static bool make(const struct number *from, bson_decimal128_t *out)
{
    char text[DIGITS + 16];

    bson_snprintf(text, sizeof(text), "%s%.*sE%d", from->negative ? "-" : "", from->n, from->digits,
                  from->exponent);
    return bson_decimal128_from_string(text, out);
}

bool types_decimal(const char *text, size_t len, bson_decimal128_t *out)
{
    struct number number;

    return read_number(text, len, &number) && make(&number, out);
}

/* The first digits of it, and zeros behind them when it has fewer, with its sign. */
static bool leading(const struct number *from, int digits, int64_t *out)
{
    int64_t value = 0;

    if (digits > INT64_DIGITS)
        return false;
    for (int i = 0; i < digits; i++) {
        int digit = i < from->n ? from->digits[i] - '0' : 0;

        /* on the negative side, which is longer by one */
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_sub_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return from->negative || !__builtin_sub_overflow(0, value, out);
}

/* Takes what has no zeros at its end. */
static bool is_int64(const struct number *from, int64_t *out)
{
    return from->exponent >= 0 && leading(from, from->n + from->exponent, out);
}

bool types_scaled(const char *text, size_t len, int scale, int64_t *out)
{
    struct number number;
    int whole;
    bool cut = false;

    *out = 0;
    if (!read_number(text, len, &number))
        return false;
    if (number.digits[0] == '0')
        return true;
    whole = number.n + number.exponent + scale;
    for (int i = whole > 0 ? whole : 0; i < number.n; i++)
        cut = cut || number.digits[i] != '0';
    if (!leading(&number, whole, out))
        return false;
    return !cut || !number.negative || !__builtin_sub_overflow(*out, 1, out);
}

bool types_whole(const char *text, size_t len)
{
    struct number number;

    if (!read_number(text, len, &number))
        return false;
    for (int i = number.n + number.exponent > 0 ? number.n + number.exponent : 0; i < number.n; i++)
        if (number.digits[i] != '0')
            return false;
    return true;
}

bool types_decimal_is_finite(const bson_decimal128_t *d)
{
    return ((d->high >> 58) & 0x1F) < 0x1E; /* IEEE 754-2008: 11110 infinity, 11111 NaN */
}

void types_double_text(double d, char text[TYPES_DOUBLE_TEXT])
{
    for (int precision = 15; precision <= 17; precision++) {
        (void)bson_snprintf(text, TYPES_DOUBLE_TEXT, "%.*g", precision, d);
        double back = strtod(text, NULL);
        if (!(back < d || back > d))
            break;
    }
}

void types_canonical_decimal(const bson_decimal128_t *from, bson_value_t *out)
{
    char text[BSON_DECIMAL128_STRING];
    struct number number;

    out->value_type = BSON_TYPE_DECIMAL128;
    out->value.v_decimal128 = *from;
    bson_decimal128_to_string(from, text);
    if (!read_number(text, strlen(text), &number)) /* NaN, Infinity */
        return;
    /* Not beyond what an exponent can be: there the number of zeros is fixed anyway. */
    while (number.n > 1 && number.digits[number.n - 1] == '0' && number.exponent < EXPONENT_MAX) {
        number.n--;
        number.exponent++;
    }
    if (number.digits[0] == '0')
        number.exponent = 0;
    if (is_int64(&number, &out->value.v_int64))
        out->value_type = BSON_TYPE_INT64;
    else
        make(&number, &out->value.v_decimal128);
}
