#include "base/clock.h"

#include <stdio.h>
#include <time.h>

#include "base/err.h"

static int64_t now_us(clockid_t id)
{
    struct timespec t;

    MUST(clock_gettime(id, &t) == 0);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

int64_t clock_mono_ms(void)
{
    return now_us(CLOCK_MONOTONIC) / 1000;
}

int64_t clock_mono_us(void)
{
    return now_us(CLOCK_MONOTONIC);
}

int64_t clock_wall_ms(void)
{
    return now_us(CLOCK_REALTIME) / 1000;
}

void clock_format(int64_t wall_ms, char *buf)
{
    time_t seconds = (time_t)(wall_ms / 1000);
    int ms = (int)(wall_ms % 1000);
    struct tm tm;

    if (ms < 0) {
        ms += 1000;
        seconds--;
    }
    (void)gmtime_r(&seconds, &tm);
    size_t n = strftime(buf, 25, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(buf + n, 25 - n, ".%03dZ", ms);
}

void clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attr;

    MUST(pthread_condattr_init(&attr) == 0);
    MUST(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    MUST(pthread_cond_init(cond, &attr) == 0);
    (void)pthread_condattr_destroy(&attr);
}

void clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, int64_t until_ms)
{
    struct timespec t = {.tv_sec = (time_t)(until_ms / 1000),
                         .tv_nsec = (until_ms % 1000) * 1000000};

    if (until_ms == INT64_MAX) {
        MUST(pthread_cond_wait(cond, lock) == 0);
        return;
    }
    (void)pthread_cond_timedwait(cond, lock, &t);
}
