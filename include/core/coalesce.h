/*
 * coalesce.h - which invalidations are to be sent when. A set, not a queue.
 *
 * Two invalidations are one target when rule, kind, name and body are equal. A
 * target is sent at once when it was not sent within its rule's coalesce_ms
 * (leading edge); what is added within that time is one send at its end
 * (trailing edge). repeat_after_ms behind the last send it is sent once more:
 * a reader may have put the old state back meanwhile (it read before the write
 * and stored after the invalidation).
 *
 *   PENDING  in one of two heaps        to be sent at due_at
 *   SENDING  handed out by coalesce_due until coalesce_sent
 *   RESTING  in the rest heap           remembered for its window and its repetition
 *
 * Promises:
 * - Every add is followed by a send that starts at or after it, unless it was
 *   dropped (counted). A failed send is repeated until it succeeds.
 * - Two sends of one message (PUBLISH, XADD) start at least coalesce_ms apart
 *   (repetitions and sends after a failure aside).
 * - Of what was added together, no message is sent before the keys (UNLINK,
 *   INCR): a receiver that refills from Redis must not find the old value
 *   there. For this a key may be sent before the end of its window, and keys
 *   that are due go first. (One that the server refuses doesn't hold back the
 *   message for ever.)
 * - At most max_targets and max_bytes (and the one that passes it), plus one per rule, plus those
 *   that somebody waits for.
 *   At the cap first what rests is forgotten, then the PUBLISHes of a rule
 *   collapse into its `collapsed` form (nothing can stand for keys and
 *   entries of streams), then what nobody waits for is dropped.
 * - A waiter is released by sends that started after its add.
 * - Of a MIRROR the highest version that was added is sent; an older one that comes later changes
 *   nothing. Nobody waits for one.
 *
 * Plain data: no thread, no clock. O(log targets) per call and target.
 */
#ifndef IDEMSINK_CORE_COALESCE_H
#define IDEMSINK_CORE_COALESCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/invalidation.h"

struct coalesce;

struct coalesce_rule {
    int64_t coalesce_ms, repeat_after_ms; /* 0: off */
    bool waits;                           /* before_commit: waiters wait for this rule's targets */
    const struct invalidation
        *collapsed; /* what covers all PUBLISHes of the rule; NULL: none. Copied */
};

/* Belongs to the caller, who puts it inside what waits. Zero-initialised. */
struct coalesce_waiter {
    size_t missing;               /* targets that were not sent since; 0: it waits for nothing */
    struct coalesce_waiter *next; /* in the list of coalesce_sent() */
    struct coalesce_link *links;  /* private */
    size_t n_links;               /* private */
};

/* A rule's number is its index. max_set: most targets of one coalesce_due(). */
struct coalesce *coalesce_new(const struct coalesce_rule *rules, size_t n_rules, size_t max_targets,
                              size_t max_bytes, size_t max_set);
void coalesce_free(struct coalesce *c); /* NULL is fine. All waiters must have been abandoned */

/*
 * Adds what one write asks for; takes the items and leaves the list empty. w (may be NULL) waits
 * for those whose rule `waits`: afterwards w->missing tells.
 */
void coalesce_add(struct coalesce *c, struct invalidation_list *l, struct coalesce_waiter *w,
                  int64_t now_ms);

/* w waits no longer, and may be freed. Targets above the cap that nobody else waits for are
 * dropped. */
void coalesce_abandon(struct coalesce *c, struct coalesce_waiter *w);

/*
 * The targets to send now, keys first; *out is valid until coalesce_sent(), which must follow
 * before the next call when the result is not 0. Between the two all other calls are allowed.
 */
size_t coalesce_due(struct coalesce *c, int64_t now_ms, const struct invalidation *const **out);

/* ok[i]: whether the i-th was sent. The others are due again at retry_at_ms. The waiters that have
 * nothing to wait for any more, linked by next. */
struct coalesce_waiter *coalesce_sent(struct coalesce *c, const bool *ok, int64_t retry_at_ms);

/* When coalesce_due() has something to do next; INT64_MAX: never. */
int64_t coalesce_next_due(const struct coalesce *c);

/* The end is near: everything pending is due now, windows and repetitions are over, for later adds
 * too. */
void coalesce_drain(struct coalesce *c, int64_t now_ms);

/* Targets to be sent or being sent, without repetitions. */
size_t coalesce_pending(const struct coalesce *c);
/* All that are remembered: what the cap counts. */
size_t coalesce_targets(const struct coalesce *c);

struct coalesce_counts {
    uint64_t sent, repeated;  /* answered; first and later sends, and repetitions */
    uint64_t failed;          /* attempts that were not */
    uint64_t merged;          /* adds that a send already to come covers */
    uint64_t collapsed;       /* targets and adds covered by the collapsed form instead */
    uint64_t dropped;         /* targets and adds lost at the cap */
    uint64_t repeats_dropped; /* repetitions forgotten at the cap or at the end */
};
struct coalesce_counts coalesce_counts(const struct coalesce *c, uint32_t rule);

#endif
