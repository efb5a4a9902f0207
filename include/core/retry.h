/*
 * retry.h - how long to wait before the next attempt. A pure function.
 *
 * Exponential with full jitter: a uniform draw from [0, min(max, first * 2^(attempts-1))], so that
 * many processes that failed together don't come back together. There is no "give up": an outage
 * is not the data's fault, however long it lasts (G7).
 */
#ifndef IDEMSINK_CORE_RETRY_H
#define IDEMSINK_CORE_RETRY_H

#include <stdint.h>

struct retry_policy {
    int64_t first_ms; /* longest wait before the second attempt; at least 1 */
    int64_t max_ms;   /* longest wait at all */
};

/* random: 32 uniform bits from the caller. attempts: how many have failed, at least 1. */
int64_t retry_wait_ms(const struct retry_policy *p, uint32_t attempts, uint32_t random);

#endif
