/*
 * dice.h - random numbers that can be thrown again (splitmix64).
 *
 * Every random test starts with dice_seed(), which prints the seed; IDEMSINK_SEED=N repeats a run.
 */
#ifndef IDEMSINK_TESTS_DICE_H
#define IDEMSINK_TESTS_DICE_H

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct dice {
    uint64_t state;
};

static inline uint64_t dice_next(struct dice *d)
{
    uint64_t z = (d->state += 0x9E3779B97F4A7C15u);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* Below n, which is not 0. */
static inline uint64_t dice_below(struct dice *d, uint64_t n)
{
    return dice_next(d) % n;
}

/* True in so many of a thousand. */
static inline bool dice_permille(struct dice *d, unsigned permille)
{
    return dice_below(d, 1000) < permille;
}

/* Independent dice for another thread. */
static inline struct dice dice_split(struct dice *d)
{
    struct dice other = {.state = dice_next(d)};

    return other;
}

/* From IDEMSINK_SEED, else from the time; prints it. */
static inline struct dice dice_seed(const char *test)
{
    const char *text = getenv("IDEMSINK_SEED");
    struct timespec now;
    struct dice d;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    d.state = text != NULL ? strtoull(text, NULL, 10)
                           : ((uint64_t)now.tv_sec * 1000000007u + (uint64_t)now.tv_nsec) % 1000000;
    (void)fprintf(stderr, "%s: IDEMSINK_SEED=%" PRIu64 "\n", test, d.state);
    return d;
}

#endif
