/*
 * random.h - random numbers for waits and names; no secrets.
 */
#ifndef IDEMSINK_BASE_RANDOM_H
#define IDEMSINK_BASE_RANDOM_H

#include <stdint.h>

/* The system's, or the clock's where it has none yet: never waits for them. Any thread. */
uint64_t random_bits(void);

#endif
