/*
 * listener.h - hears what others say on channels.
 */
#ifndef IDEMSINK_PORTS_LISTENER_H
#define IDEMSINK_PORTS_LISTENER_H

#include "base/bytes.h"
#include "base/err.h"

enum listener_event {
    LISTENER_NOTHING, /* within the time */
    LISTENER_JOINED,  /* listens from now on; what was said before may have been missed */
    LISTENER_MESSAGE,
    LISTENER_LOST /* does not listen: *e says why */
};

struct listener_message {
    struct slice channel, text; /* the listener's, until the next call */
};

struct listener_ops {
    /* One thread. Joins when it has not, which is LISTENER_JOINED or LISTENER_LOST. A connection
     * over which nothing comes any more is LOST within a few seconds. Returns after wait_ms and a
     * time-out at the latest. */
    enum listener_event (*next)(void *self, int wait_ms, struct listener_message *out,
                                struct err *e);
    /* The same thread: the next call joins anew. */
    void (*leave)(void *self);
};

/* ops NULL: there is none. */
struct listener {
    const struct listener_ops *ops;
    void *self;
};

#endif
