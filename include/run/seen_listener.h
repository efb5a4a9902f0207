/*
 * seen_listener.h - the thread that hears from others that they changed a collection
 * (route.seen.drop_on), and makes the seen cache forget.
 *
 * As long as it does not listen, the caches of these routes answer nothing: what was said meanwhile
 * was missed. So it is until it has joined, and whenever it has joined all is forgotten.
 */
#ifndef IDEMSINK_RUN_SEEN_LISTENER_H
#define IDEMSINK_RUN_SEEN_LISTENER_H

#include "ports/listener.h"
#include "run/seen_cache.h"

struct seen_listener;

struct seen_listener_options {
    const struct config *config;
    struct seen_cache *cache;
    struct listener listener; /* of all channels of drop_on */
    const char *instance_id;  /* ours, in messages of monSQLize; NULL: none */
    struct metrics *metrics;
};

/* The channels of the configuration, each once; the texts are its own, the array the caller's to
 * mem_free(). */
const char **seen_listener_channels(const struct config *c, size_t *n);

/* Everything stays borrowed until the stop. */
struct seen_listener *seen_listener_start(const struct seen_listener_options *options);

/* Ends the thread: within half a second and a time-out of Redis. NULL is fine. */
void seen_listener_stop(struct seen_listener *l);

#endif
