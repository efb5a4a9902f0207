#include "base/random.h"

#include <sys/random.h>

#include "base/clock.h"

uint64_t random_bits(void)
{
    uint64_t bits;

    if (getrandom(&bits, sizeof bits, GRND_NONBLOCK) != (ssize_t)sizeof bits)
        bits = (uint64_t)clock_mono_us() * UINT64_C(0x9E3779B97F4A7C15); /* all bits differ */
    return bits;
}
