/*
 * seen_store.h - where processes share what they have seen (core/seen.h). A convenience: whatever
 * it does not say costs a look into the database and nothing else.
 *
 * What is there belongs to a generation of the route. Who has to forget all of a route begins a new
 * one, and what was entered before is not found any more, whoever entered it. A caller enters under
 * the generation that stood before he wrote: so what he knew before it ended does not get into the
 * next.
 */
#ifndef IDEMSINK_PORTS_SEEN_STORE_H
#define IDEMSINK_PORTS_SEEN_STORE_H

#include "base/err.h"
#include "core/seen.h"

struct seen_generation {
    char text[24]; /* "": not known: nothing was found, and nothing can be entered */
};

struct seen_store_ops {
    /* A thread's own; never NULL: connecting happens later. */
    void *(*open)(void *self);
    void (*close)(void *session);

    /* Which of the ids are there, in one exchange, and under which generation. False: it didn't
     * answer in time, or refuses; nothing is found. All calls return within a short time-out, and
     * connect again when they have to. */
    bool (*ask)(void *session, uint32_t route, const struct seen_id *ids, size_t n, bool *found,
                struct seen_generation *generation, struct err *e);

    /* They are settled; for the route's ttl. */
    bool (*enter)(void *session, uint32_t route, const struct seen_id *ids, size_t n,
                  const struct seen_generation *generation, struct err *e);

    /* A new generation. */
    bool (*forget)(void *session, uint32_t route, struct err *e);
};

/* ops NULL: there is none. */
struct seen_store {
    const struct seen_store_ops *ops;
    void *self;
};

#endif
