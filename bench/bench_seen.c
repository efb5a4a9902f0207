/*
 * bench_seen - what the seen cache costs for each record: nanoseconds to name an event, to find it,
 * not to find it, to add it to a full cache, and the bytes that an entry takes.
 *
 *   bench_seen [ENTRIES]      1,000,000 without
 *
 * The events come in random order, as far as a cache is concerned.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/seen.h"

enum { ROUNDS = 5, FILTERS = 1000 };

static double ns_each(int64_t since_us, size_t n)
{
    return (double)(clock_mono_us() - since_us) * 1000 / (double)n;
}

static void keep_least(double *least, double now)
{
    if (*least <= 0 || now < *least)
        *least = now;
}

static double name_events(bson_t *const *filters, struct seen_id *out)
{
    int64_t start_us = clock_mono_us();

    for (size_t round = 0; round < 100; round++)
        for (size_t i = 0; i < FILTERS; i++)
            out[i] = seen_id(round, filters[i], NULL);
    return ns_each(start_us, (size_t)100 * FILTERS);
}

static struct seen_id event(uint64_t n)
{
    uint64_t z = (n + 1) * UINT64_C(0x9E3779B97F4A7C15);

    z = (z ^ (z >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    return (struct seen_id){.high = n, .low = z ^ (z >> 27)};
}

static double ask(struct seen *s, uint64_t from, size_t n, size_t *found)
{
    int64_t start_us = clock_mono_us();

    for (uint64_t i = 0; i < n; i++)
        *found += seen_has(s, event(from + (i * UINT64_C(2654435761)) % n), 1);
    return ns_each(start_us, n);
}

static double add(struct seen *s, uint64_t from, size_t n)
{
    int64_t start_us = clock_mono_us();

    for (uint64_t i = 0; i < n; i++)
        seen_add(s, event(from + i), 1);
    return ns_each(start_us, n);
}

int main(int argc, char **argv)
{
    size_t n = argc > 1 ? (size_t)strtoull(argv[1], NULL, 10) : 1000000, found = 0;
    double name = 0, hit = 0, miss = 0, adding = 0;
    bson_t *filters[FILTERS];
    struct seen_id ids[FILTERS];
    struct seen *s = seen_new(n, (size_t)1 << 40, INT64_MAX / 2);

    for (size_t i = 0; i < FILTERS; i++)
        filters[i] =
            BCON_NEW("eventId", "c0ffee-4711-of-usual-length", "n", BCON_INT64((int64_t)i));
    (void)add(s, 0, n);
    for (uint64_t round = 0; round < ROUNDS; round++) {
        keep_least(&name, name_events(filters, ids));
        keep_least(&hit, ask(s, round * n, n, &found));
        keep_least(&miss, ask(s, UINT64_C(1) << 40, n, &found));
        keep_least(&adding, add(s, (round + 1) * n, n));
    }
    printf(
        "%zu entries, %.1f bytes each, ns per record: name %.0f, hit %.0f, miss %.0f, add %.0f\n",
        seen_capacity(s), (double)seen_max_bytes(s) / (double)seen_capacity(s), name, hit, miss,
        adding);
    for (size_t i = 0; i < FILTERS; i++)
        bson_destroy(filters[i]);
    seen_free(s);
    return found == ROUNDS * n ? 0 : 1;
}
