/* What --memory, --sample, --since and --list say. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/verify.h"
#include "core/types.h"

static bool wrong(const char *option, const char *text, const char *what)
{
    fprintf(stderr, "idemsink: %s %s: %s\n", option, text, what);
    return false;
}

static bool parse_count(const char *text, uint64_t *out, char **end)
{
    if (text[0] < '0' || text[0] > '9')
        return false;
    *out = strtoull(text, end, 10);
    return *out < UINT64_C(1) << 40;
}

static bool parse_memory(const char *text, size_t *out)
{
    char *end;
    uint64_t n;

    *out = (size_t)2 << 30;
    if (text == NULL)
        return true;
    if (!parse_count(text, &n, &end) || (strcmp(end, "MiB") != 0 && strcmp(end, "GiB") != 0))
        return wrong("--memory", text, "a size like 512MiB or 2GiB");
    *out = (size_t)n << (*end == 'M' ? 20 : 30);
    return true;
}

/* "5%", "0.1%", "1/20": the first part of so many; "3/20": the third. */
static bool parse_sample(const char *text, struct verify_options *o)
{
    char *end;
    uint64_t k, n;
    double percent;

    o->part = 1;
    o->from = 0;
    o->to = UINT64_MAX;
    if (text == NULL)
        return true;
    if (parse_count(text, &k, &end) && *end == '/' && parse_count(end + 1, &n, &end) &&
        *end == '\0' && k >= 1 && k <= n && n <= 1000000) {
        o->part = 1.0 / (double)n;
        o->from = UINT64_MAX / n * (k - 1) + (k > 1);
        o->to = k == n ? UINT64_MAX : UINT64_MAX / n * k;
        return true;
    }
    percent = text[0] >= '0' && text[0] <= '9' ? strtod(text, &end) : 0;
    if (!(percent > 0 && percent <= 100) || strcmp(end, "%") != 0)
        return wrong("--sample", text, "a part like 5%, 0.1%, 1/20 (the first of 20) or 3/20");
    o->part = percent / 100;
    if (percent < 100)
        o->to = (uint64_t)ldexp(o->part, 64);
    return true;
}

/* "2026-11-30", "2026-11-30T08:00:00Z", "36h" */
static bool parse_since(const char *text, int64_t now_ms, int64_t *out)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    char day[32];
    char *end;
    uint64_t n;

    *out = -1;
    if (text == NULL || types_date(text, strlen(text), out))
        return true;
    if (strlen(text) == 10) {
        (void)snprintf(day, sizeof day, "%sT00:00:00Z", text);
        if (types_date(day, strlen(day), out))
            return true;
    }
    if (parse_count(text, &n, &end))
        for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
            if (strcmp(end, units[i].name) == 0 && (int64_t)n <= now_ms / units[i].ms) {
                *out = now_ms - (int64_t)n * units[i].ms;
                return true;
            }
    return wrong("--since", text,
                 "a time like 2026-11-30T08:00:00Z or 2026-11-30 (UTC), or how long ago: 90m, 36h, "
                 "7d");
}

bool verify_options_parse(const struct args *args, int64_t now_ms, struct verify_options *out)
{
    char *end;
    uint64_t n = args->json ? 1000 : 10;

    if (args->list && !(parse_count(args->list, &n, &end) && *end == '\0' && n <= 1000000))
        return wrong("--list", args->list, "a number up to 1000000");
    out->listed = (size_t)n;
    return parse_memory(args->memory, &out->memory_bytes) && parse_sample(args->sample, out) &&
           parse_since(args->since, now_ms, &out->since_ms);
}
