/*
 * source.h - what the pipeline needs from a log of records.
 *
 * One thread, the intake, makes every call except wake(). The events run inside
 * poll() and close(), on that same thread, so a handler may take its time up to
 * the group's rebalance timeout but must not call back into the source other
 * than commit().
 */
#ifndef IDEMSINK_PORTS_SOURCE_H
#define IDEMSINK_PORTS_SOURCE_H

#include "base/err.h"
#include "core/record.h"

struct commit_point {
    uint32_t slot;
    int64_t offset; /* the next offset to read after a restart */
};

struct source_events {
    /* next_offset: where reading starts; -1 when the group has committed nothing. Called for every
     * slot of a new assignment, before any record of it. */
    void (*assigned)(void *ctx, uint32_t slot, int64_t next_offset);
    /* lost: somebody else may own them already, so commit nothing. The handler drains and, unless
     * lost, commits (source commit() with wait). */
    void (*revoked)(void *ctx, const uint32_t *slots, size_t n, bool lost);
    /* The end of the partition was reached at this offset. */
    void (*end)(void *ctx, uint32_t slot, int64_t end_offset);
    /* May a record of this slot be handed out now? (budget; no while shutting down) again: the
     * source went on with others instead, after a no. */
    bool (*wants)(void *ctx, uint32_t slot, bool again);
    /* A commit that was sent without wait was answered; inside poll(), or inside a commit() that
     * waited for it. ok false: unknown whether it counted. points: without the slots that were
     * revoked meanwhile, so n may be 0. */
    void (*committed)(void *ctx, const struct commit_point *points, size_t n, bool ok);
    void *ctx;
};

struct source_ops {
    /*
     * true with *out == NULL: nothing within wait_ms, or wake() was called. false: the consumer
     * is finished (fatal error, ERR_CONFIG, ERR_AUTH, ERR_TRANSIENT): the process must leave.
     * Errors that heal by themselves are logged by the source and not returned. What may be read is
     * asked by events.wants(); whatever that says, group membership is kept as long as poll() is
     * called.
     */
    bool (*poll)(void *self, int wait_ms, struct record **out, struct err *e);

    /*
     * Slots that are not assigned, or lost, are left out; nothing left to send is true with *sent
     * false. At most one commit is in flight: commit() while one is returns true with *sent false.
     * wait: returns after the answer, or after wait_ms (then false, ERR_TRANSIENT: unknown whether
     * it counted); a commit that is in flight is waited for first. Without wait the answer comes as
     * events.committed().
     */
    bool (*commit)(void *self, const struct commit_point *points, size_t n, int wait_ms, bool *sent,
                   struct err *e);

    /* Any thread, also a signal-handling one: makes poll() return soon. */
    void (*wake)(void *self);

    /* For --until-end. snapshot: end offsets of all partitions of the subscribed topics, seen now,
     * before the first poll. reached: whether the group has committed up to all of them (asks the
     * broker for what is not assigned here, mine[] brings the acknowledged commits of what is). */
    bool (*end_snapshot)(void *self, struct err *e);
    bool (*end_reached)(void *self, const struct commit_point *mine, size_t n, bool *reached,
                        struct err *e);

    /* Name of a slot, for the books and the log; topic lives as long as the source. */
    void (*slot_name)(void *self, uint32_t slot, const char **topic, int32_t *partition);
    /* The highest offset known (high watermark), -1 unknown; for the lag. Any thread. */
    int64_t (*slot_end)(void *self, uint32_t slot);

    /* Leaves the group, waiting at most wait_ms; revoked() runs inside. false: it did not end in
     * time: the process must _exit() without freeing the source. */
    bool (*close)(void *self, int wait_ms, struct err *e);
};

struct source {
    const struct source_ops *ops;
    void *self;
};

#endif
