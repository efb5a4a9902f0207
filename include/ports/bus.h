/*
 * bus.h - what the notifier needs from Redis.
 */
#ifndef IDEMSINK_PORTS_BUS_H
#define IDEMSINK_PORTS_BUS_H

#include "base/err.h"
#include "core/invalidation.h"

struct bus_ops {
    /*
     * Sends n messages in one pipelined set, UNLINKs before PUBLISHes, and reads all answers.
     * sent[i]: answered without an error. receivers: sum of what PUBLISH answered. false: at least
     * one was not answered rightly; *e has the first reason, ERR_TRANSIENT when the connection is
     * gone (the next call connects again). Bounded by the configured time-out. One thread, the
     * notifier.
     */
    bool (*send)(void *self, const struct invalidation *messages, size_t n, bool *sent,
                 uint64_t *receivers, struct err *e);
};

/* ops == NULL: there is no Redis. */
struct bus {
    const struct bus_ops *ops;
    void *self;
};

#endif
