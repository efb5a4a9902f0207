/*
 * clock.h - the time of day and the time that only goes forward.
 */
#ifndef IDEMSINK_BASE_CLOCK_H
#define IDEMSINK_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>

int64_t clock_mono_ms(void); /* since some start; never goes back */
int64_t clock_mono_us(void);
int64_t clock_wall_ms(void); /* since 1970 */

/* "2026-01-02T03:04:05.678Z"; buf holds at least 25 bytes. */
void clock_format(int64_t wall_ms, char *buf);

/* A condition variable whose timed waits follow the monotonic clock. */
void clock_cond_init(pthread_cond_t *cond);

/* Waits until signalled or until the monotonic clock shows until_ms. Spurious wake-ups happen. */
void clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ms);

#endif
