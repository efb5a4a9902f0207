/*
 * seen_cache.h - duplicates that need no database, because this process knows that they are stored.
 *
 * One bounded set (core/seen.h) per route with [route.seen], shared by the workers, each under a
 * lock of its own that is a leaf. What enters it has been acknowledged (INSERTED or DUPLICATE) with
 * write concern majority and journal, which the configuration demands; not so a conflict. It is
 * asked "stored?", and "don't know" goes to the database.
 */
#ifndef IDEMSINK_RUN_SEEN_CACHE_H
#define IDEMSINK_RUN_SEEN_CACHE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/metrics.h"
#include "core/config.h"
#include "core/mapping.h"
#include "core/outcome.h"
#include "core/seen.h"
#include "ports/seen_store.h"

struct seen_cache;

/* Which collection a route's events are remembered for. */
struct seen_identity {
    bool known;
    uint8_t uuid[SEEN_UUID_BYTES];
};

struct seen_cache_options {
    const struct config *config;
    const struct seen_identity *identities; /* by route; NULL: none is known */
    /* For routes with seen.redis whose identity is known: what this process has not seen is looked
     * for there. While it does not answer it is left alone, longer each time, up to 30 s. */
    struct seen_store store;
    struct metrics *metrics;
};

/* NULL when no route has one. Everything but identities stays borrowed. */
struct seen_cache *seen_cache_new(const struct seen_cache_options *options);
void seen_cache_free(struct seen_cache *c); /* NULL is fine; no session is left */

/* Any thread: what the route has seen is not known any more in this process. */
void seen_cache_forget(struct seen_cache *c, uint32_t route);

/* Any thread. Routes with seen.drop_on begin without trust: as long as there is none, nothing is
 * known, in neither level. */
void seen_cache_trust(struct seen_cache *c, uint32_t route, bool trusted);

/* A worker's own. */
struct seen_session;
struct seen_session *seen_session_open(struct seen_cache *c); /* NULL for NULL */
void seen_session_close(struct seen_session *s);              /* NULL is fine */

/*
 * The operations of one route that are to be written; record[i] is where ops[i] comes from. Those
 * that are known to be stored go behind the others: n becomes the number of those that are left,
 * and the n_seen behind them are duplicates. The order of both is that of before.
 */
struct seen_part {
    struct write_op *ops;
    size_t *record;
    size_t n, n_seen;
    const bool *by_others; /* n_seen: not this process has seen it; the session's, until the next */
};
void seen_ask(struct seen_session *s, uint32_t route, struct seen_part *part);

/* What processes share of the route is worth nothing from now on. True where nothing is shared. */
bool seen_forget_shared(struct seen_session *s, uint32_t route, struct err *e);

/* What became of the n that were left by the last seen_ask(). */
void seen_learn(struct seen_session *s, uint32_t route, const struct outcome *outcomes, size_t n);

#endif
