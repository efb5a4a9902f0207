/*
 * RFC 3339 to milliseconds since 1970. The grammar is taken literally, with the choices that the
 * RFC leaves open: T, t or a space in the middle; Z or z; any number of fraction digits (what is
 * below a millisecond is cut off); second 60 where a leap second can be (23:59:60 UTC on the
 * last day of a month, ITU-R TF.460): it becomes the first moment of the next minute, because BSON
 * dates have no leap seconds.
 */
#include "core/types.h"

struct text {
    const char *at, *end;
};

static bool digits(struct text *t, int n, int64_t *out)
{
    *out = 0;
    if (t->end - t->at < n)
        return false;
    for (; n > 0; n--, t->at++) {
        if (*t->at < '0' || *t->at > '9')
            return false;
        *out = *out * 10 + (*t->at - '0');
    }
    return true;
}

static bool one_of(struct text *t, const char *choices)
{
    for (; *choices != '\0'; choices++) {
        if (t->at < t->end && *t->at == *choices) {
            t->at++;
            return true;
        }
    }
    return false;
}

static bool leap_year(int64_t y)
{
    return y % 4 == 0 && (y % 100 != 0 || y % 400 == 0);
}

static int64_t days_in(int64_t y, int64_t m)
{
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};

    return days[m - 1] + (m == 2 && leap_year(y));
}

/* Since 1970-01-01, proleptic Gregorian; years count from March so that the leap day is the last
 * one (Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms"). */
static int64_t days_since_1970(int64_t y, int64_t m, int64_t d)
{
    y -= m <= 2;
    int64_t era = (y >= 0 ? y : y - 399) / 400;
    int64_t year = y - era * 400;
    int64_t day = (153 * (m > 2 ? m - 3 : m + 9) + 2) / 5 + d - 1;

    return era * 146097 + year * 365 + year / 4 - year / 100 + day - 719468;
}

/* Days since 1970; *first and *last: those of the first and the last day of the month. */
static bool date_part(struct text *t, int64_t *days, int64_t *first, int64_t *last)
{
    int64_t y, m, d;

    if (!digits(t, 4, &y) || !one_of(t, "-") || !digits(t, 2, &m) || !one_of(t, "-") ||
        !digits(t, 2, &d))
        return false;
    if (m < 1 || m > 12 || d < 1 || d > days_in(y, m))
        return false;
    *first = days_since_1970(y, m, 1);
    *last = *first + days_in(y, m) - 1;
    *days = *first + d - 1;
    return true;
}

/* Minutes east of UTC. */
static bool zone_part(struct text *t, int64_t *minutes)
{
    int64_t h, m, sign;

    *minutes = 0;
    if (one_of(t, "Zz"))
        return true;
    sign = t->at < t->end && *t->at == '-' ? -1 : 1;
    if (!one_of(t, "+-") || !digits(t, 2, &h) || !one_of(t, ":") || !digits(t, 2, &m) || h > 23 ||
        m > 59)
        return false;
    *minutes = sign * (h * 60 + m);
    return true;
}

/* Milliseconds; digits behind the third are read and dropped. */
static bool fraction_part(struct text *t, int64_t *ms)
{
    int64_t unit = 100;

    *ms = 0;
    if (!one_of(t, "."))
        return true;
    if (t->at >= t->end || *t->at < '0' || *t->at > '9')
        return false;
    for (; t->at < t->end && *t->at >= '0' && *t->at <= '9'; t->at++, unit /= 10)
        *ms += (*t->at - '0') * unit;
    return true;
}

bool types_date(const char *text, size_t len, int64_t *ms)
{
    struct text t = {.at = text, .end = text + len};
    int64_t days, first, last, h, m, s, fraction, zone;

    if (!date_part(&t, &days, &first, &last) || !one_of(&t, "Tt "))
        return false;
    if (!digits(&t, 2, &h) || !one_of(&t, ":") || !digits(&t, 2, &m) || !one_of(&t, ":") ||
        !digits(&t, 2, &s))
        return false;
    if (!fraction_part(&t, &fraction) || !zone_part(&t, &zone) || t.at != t.end)
        return false;
    if (h > 23 || m > 59 || s > 60)
        return false;

    int64_t minute = days * 1440 + h * 60 + m - zone;
    if (s == 60) {
        int64_t next = minute + 1; /* midnight of the first day of a month, in UTC */

        if (next != first * 1440 && next != (last + 1) * 1440)
            return false;
        fraction = 0;
    }
    *ms = (minute * 60 + s) * 1000 + fraction;
    return true;
}
