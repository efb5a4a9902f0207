/*
 * stop.h - one flag for "the process must leave, and why", set by whoever sees
 * it first.
 */
#ifndef IDEMSINK_RUN_STOP_H
#define IDEMSINK_RUN_STOP_H

#include <pthread.h>
#include <stdbool.h>

#include "base/err.h"

struct stop {
    pthread_mutex_t lock; /* leaf */
    bool asked;           /* lock */
    bool failed;          /* lock; why says what happened */
    struct err why;       /* lock */
    void (*on_ask)(
        void *ctx); /* called once, without the lock, by whoever asked first; constant after init */
    void *ctx;
};

void stop_init(struct stop *s, void (*on_ask)(void *ctx), void *ctx);
void stop_clear(struct stop *s);

/* Any thread. why == NULL: a wish (end reached, signal), not a failure. The first one counts. */
void stop_ask(struct stop *s, const struct err *why);
bool stop_asked(struct stop *s);

/* Whether it was a failure; *why is filled then. */
bool stop_failed(struct stop *s, struct err *why);

#endif
