#include "core/retry.h"

/* floor(range * random / 2^32) without the 96-bit product. */
static uint64_t scale(uint64_t range, uint32_t random)
{
    return (range >> 32) * random + (((range & UINT32_MAX) * random) >> 32);
}

int64_t retry_wait_ms(const struct retry_policy *p, uint32_t attempts, uint32_t random)
{
    int64_t longest = p->first_ms > 0 ? p->first_ms : 1;
    int64_t max = p->max_ms > 0 ? p->max_ms : 1;

    for (uint32_t i = 1; i < attempts && longest < max; i++)
        longest = longest > max / 2 ? max : longest * 2;
    if (longest > max)
        longest = max;
    return (int64_t)scale((uint64_t)longest + 1, random);
}
