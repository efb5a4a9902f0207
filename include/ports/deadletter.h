/*
 * deadletter.h - where records go that can never be stored.
 */
#ifndef IDEMSINK_PORTS_DEADLETTER_H
#define IDEMSINK_PORTS_DEADLETTER_H

#include "base/err.h"
#include "core/record.h"

struct deadletter_ops {
    /*
     * Sends the n records (each with its rejection) and returns when the fate of each is known.
     * ok[i]: acknowledged by all in-sync replicas. Any worker thread, several at once. When some
     * are not ok, *e says why (the first reason) and the result is false; these may be sent again
     * later.
     *
     * Takes one message time-out of the producer at most when the brokers take or refuse nothing,
     * and a second more the first time and when it has to find out why.
     * What they refuse for its size or timestamp goes again alone, up to four times, one record
     * after the other, each within a message time-out of its own; the first that times out ends
     * that, and the rest are not ok. So when the brokers go away in the middle it takes two message
     * time-outs and what was answered in between.
     */
    bool (*send)(void *self, struct record *const *records, size_t n, bool *ok, struct err *e);
};

/* ops == NULL: there is no dead-letter topic. */
struct deadletter {
    const struct deadletter_ops *ops;
    void *self;
};

#endif
