/*
 * replay.h - dead letters through the way of a record once more: mapping, sink, dead letter,
 * invalidations, in the order in which the worker takes it and by the same parts; but one after the
 * other, in the caller's thread, because somebody is waiting for the result.
 *
 * Nothing is remembered: what was stored in an earlier replay is a duplicate, what was refused is
 * there as a newer letter. So a crash anywhere costs work that is done again, and no more.
 */
#ifndef IDEMSINK_RUN_REPLAY_H
#define IDEMSINK_RUN_REPLAY_H

#include "core/config.h"
#include "core/mapping.h"
#include "ports/bus.h"
#include "ports/deadletter.h"
#include "ports/sink.h"
#include "run/guard.h"

enum replay_fate {
    REPLAY_OPEN, /* not known yet */
    REPLAY_INSERTED,
    REPLAY_DUPLICATE,
    REPLAY_SKIPPED, /* by a rule of the configuration */
    REPLAY_REFUSED, /* it is a dead letter again: record->rejected, record->attempts */
    REPLAY_FATES
};
const char *replay_fate_name(enum replay_fate fate); /* "inserted" */

struct replay_item {
    struct record *record; /* as letter_restore() made it; route is set */
    int32_t partition;     /* of the letter, in the dead-letter topic */
    int64_t offset;
    enum replay_fate fate; /* REPLAY_OPEN at first */
    bool conflict;         /* DUPLICATE: the stored document is of another payload */
};

struct replay_options {
    const struct config *config;
    struct mapping *const *mappings; /* by route */
    struct sink sink;
    struct deadletter deadletter;
    struct bus bus;        /* ops NULL: nobody is told */
    struct guards *guards; /* NULL: no route has a lock */
    /* For how long nothing may be acknowledged before it gives up. */
    int64_t patience_ms;
    /* Called once for each item when its fate is final: the document or the new letter is
     * acknowledged, and who is to be told was told. */
    void (*done)(void *ctx, const struct replay_item *item);
    void *ctx;
};

struct replay;
struct replay *replay_new(const struct replay_options *options);
void replay_free(struct replay *r); /* NULL is fine */

/*
 * All items, first in the order of their first places: topic, partition, offset. The items may
 * change places; they and their records stay the caller's. False: it gave up on some
 * (ERR_TRANSIENT, ERR_AUTH, ERR_CONFIG): those that are still REPLAY_OPEN may be stored or not. It
 * goes on behind them only when some beside them were acknowledged.
 */
bool replay_run(struct replay *r, struct replay_item *items, size_t n, struct err *e) MUST_CHECK;

/* Invalidations that Redis did not take within the patience, of rules with delivery =
 * "best_effort". */
uint64_t replay_untold(const struct replay *r);

#endif
