/*
 * bus.h - what the notifier needs from Redis.
 */
#ifndef IDEMSINK_PORTS_BUS_H
#define IDEMSINK_PORTS_BUS_H

#include "base/err.h"
#include "core/invalidation.h"

struct bus_ops {
    /*
     * Sends n messages in one pipelined set, those that go first (invalidation_goes_first) before
     * the others, both in the order given, and reads all answers. sent[i]: answered without an
     * error. receivers: sum of what PUBLISH answered. False: at least one was not answered rightly;
     * *e has the first reason: ERR_TRANSIENT, ERR_AUTH  nothing can be sent now; what was not
     * answered may have been carried out all the same. The next call connects again. ERR_CONFIG the
     * server answers, but refuses at least one of these (a replica, no right to a channel): an
     * operator must change something. Returns within a small multiple of the configured time-out.
     * One thread, the notifier.
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
