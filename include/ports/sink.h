/*
 * sink.h - what a worker needs from a database.
 *
 * The MongoDB sink implements it for production, tests/fakes for everything
 * that does not need a server.
 */
#ifndef IDEMSINK_PORTS_SINK_H
#define IDEMSINK_PORTS_SINK_H

#include "base/bytes.h"
#include "base/err.h"
#include "core/invalidation.h"
#include "core/mapping.h"
#include "core/outcome.h"

struct sink_effects {
    int64_t transactions, conflicts; /* committed; begun again, because others were in the way */
    int64_t missing; /* counter documents that were not there, with upsert = false: not counted */
};

struct sink_ops {
    /* One session per worker thread; never shared. NULL never: connecting happens in write(). */
    void *(*open)(void *sink);
    void (*close)(void *session);

    /*
     * Writes n operations of one route, those of one lane in the order given. Every operation gets
     * a result (INSERTED, DUPLICATE, LATER, UNKNOWN or NEVER): a lost connection is n times
     * UNKNOWN, not a second way of failing. INSERTED and DUPLICATE say that nothing of the event is
     * left to be done by another delivery: its effects are there, too. Returns within the
     * configured time-outs. The results belong to the session until the next write().
     */
    const struct outcome *(*write)(void *session, uint32_t route, const struct write_op *ops,
                                   size_t n);

    /*
     * Gives each of n different, sorted keys its next fencing number (route.lock.fence), durably:
     * numbers of a key only rise, whatever restarts. numbers[i] is 0 when somebody was given a
     * later one meanwhile. token: of the locks that are held on the keys, never used before. False:
     * *why says how it failed (FATE_UNKNOWN); numbers may have been skipped. NULL: there are no
     * fences here.
     */
    bool (*issue)(void *session, uint32_t route, const char *token, const char *const *keys,
                  size_t n, int64_t *numbers, struct outcome *why);

    /*
     * What an operator must do so that this route can be written again, when `why` is RETRY_RIGHTS
     * or RETRY_CONFIG; appends it. May ask the database, once. NULL: nobody knows better than
     * outcome_advice(). Any thread.
     */
    void (*explain)(void *sink, uint32_t route, enum retry_class why, int code, struct buf *out);

    /* What the last write() of the session did in transactions, for metrics; all 0 where there were
     * none. NULL: there never are. */
    void (*effects)(void *session, struct sink_effects *out);

    /*
     * What has become of the mirrored counter documents that these operations moved, as
     * acknowledged by the majority: adds a MIRROR for each (core/mirror.h). After write(), of the
     * same session, before the operations are cleared. What can't be read is left out, and logged.
     * One read per counter, within the time of a write. NULL: nothing is ever mirrored.
     */
    void (*moved)(void *session, uint32_t route, const struct write_op *const *ops, size_t n,
                  struct invalidation_list *out);
};

struct sink {
    const struct sink_ops *ops;
    void *self;
};

#endif
