/*
 * mongo.h - everything that is said to MongoDB: the sink, the proof of the dedup
 * index, what `init`, `check` and `verify` need.
 *
 * One struct mongo for the process, safe from many threads; it holds libmongoc's pool. Nothing here
 * retries: an err of kind ERR_TRANSIENT may be tried again by the caller. Texts of errors name no
 * payload and no secret.
 */
#ifndef IDEMSINK_IO_MONGO_H
#define IDEMSINK_IO_MONGO_H

#include <stdbool.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/bytes.h"
#include "base/err.h"
#include "core/config.h"
#include "ports/sink.h"

struct mongo;

/*
 * Connects to nothing yet. c stays borrowed. Time-outs of the URI win over those of c; the write
 * concern is c's, and retryWrites is off whatever the URI says (both with a warning in the log).
 * ERR_CONFIG: the URI is wrong.
 */
struct mongo *mongo_new(const struct config *c, struct err *e) MUST_CHECK;
void mongo_free(struct mongo *m); /* NULL is fine; all sessions must be closed */

/* config_drivers.mongo_uri: does libmongoc read it? */
bool mongo_uri_fine(const char *uri, struct buf *why) MUST_CHECK;

/* Sessions are per thread. write() ends within the server selection, connect and two socket
 * time-outs; a session holds one connection per server. */
struct sink mongo_sink(struct mongo *m);

/*
 * How the batches of a route are written, decided once at start by its configuration and by what
 * the server can do:
 */
enum mongo_way {
    MONGO_PLAIN,   /* no effects: core/plan.h */
    MONGO_ATOMIC,  /* documents and effects in transactions: core/txn_plan.h */
    MONGO_STEPWISE /* one after the other, without transactions: core/log_plan.h */
};

/* Before the first write(), and before other threads use m; one line per route with effects in the
 * log. Asks the server only when a route has some. ERR_CONFIG: a route asks for what this server
 * can't do; ERR_TRANSIENT: it does not answer. */
bool mongo_decide_ways(struct mongo *m, struct err *e) MUST_CHECK;
enum mongo_way mongo_way_of(const struct mongo *m, uint32_t route); /* once decided */

/* The same for check and explain: appends to found which it would be, and why. */
bool mongo_check_way(struct mongo *m, const struct config_route *route, enum mongo_way *way,
                     struct buf *found, struct err *e) MUST_CHECK;

/* What a route that goes the way MONGO_STEPWISE has met since the start, in this process. */
struct mongo_log_seen {
    uint64_t failed;    /* events whose effects can't be done */
    uint64_t missing;   /* counter documents that were not there, upsert = false */
    uint64_t completed; /* events that another attempt had left open */
    uint64_t full;      /* times that a counter document had effects.keep ids */
};
struct mongo_log_seen mongo_log_seen_of(const struct mongo *m, uint32_t route);

/*
 * mongo_log_sweep.c: completes the events of a route that have been open for longer than
 * effects.sweep_after: nobody else may come back for them. One at a time of one struct; harmless
 * when several processes do it, but for the work. stop, unless NULL, is asked between its steps.
 * False: *e says what did not go on.
 */
struct mongo_sweep;
struct mongo_sweep *mongo_sweep_new(struct mongo *m);
void mongo_sweep_free(struct mongo_sweep *s); /* NULL is fine */
struct mongo_swept {
    uint64_t completed, failed, left; /* left: could not be done now */
    uint64_t others;                  /* completed by others meanwhile, or not of our making */
    bool more;                        /* there may be more of them: it does so many at a time */
};
bool mongo_log_sweep(struct mongo_sweep *s, uint32_t route, bool (*stop)(void *ctx), void *ctx,
                     struct mongo_swept *out, struct err *e) MUST_CHECK;

/*
 * What a route that is written in transactions now has left open when it was written by log: nobody
 * else would complete it, and it would pass for done. Completes all of it that was begun before
 * this call, once the attempts at it are over. False: it can't be done now, and nothing may be
 * begun. mongo_decide_ways() comes first.
 */
bool mongo_finish_open(struct mongo *m, struct err *e) MUST_CHECK;
/* Was the route ever written by log? Without idemsink_open never; who may not look believes so. */
bool mongo_was_log(struct mongo *m, uint32_t route, bool *was, struct err *e) MUST_CHECK;
/* Has the route anything to be swept: is it written by log, or was it once? Behind the above. */
bool mongo_is_swept(const struct mongo *m, uint32_t route);

/* A writable primary answers. ERR_TRANSIENT: none can be reached; ERR_AUTH: credentials were
 * refused; ERR_CONFIG: wrong topology. */
bool mongo_ping(struct mongo *m, struct err *e) MUST_CHECK;

/* Who answers there, for check: mongo_check.c */
struct mongo_facts {
    char version[24], set[104], primary[208]; /* set "": no replica set */
    int wire;                                 /* maxWireVersion: 9 is 4.4, 17 is 6.0 */
    int members;                              /* with data */
    bool mongos, has_clock;
    int64_t clock_ahead_ms, clock_unsure_ms; /* of ours, give or take */
};
bool mongo_look(struct mongo *m, struct mongo_facts *out, struct err *e) MUST_CHECK;
const char *mongo_library_version(void); /* of the libmongoc that is loaded */

/*
 * Proves that the server keeps the route's dedup key (its entity, with [route.entity]) unique, and
 * that nothing removes documents by itself: docs/outcomes.md has the list, io/mongo_needs.h what
 * else a route needs. ERR_CONFIG: it is not so; the text says what is wrong and
 * what to do. ERR_AUTH: no right to look, unless route->trust_index (then true, with a warning).
 */
bool mongo_prove_index(struct mongo *m, const struct config_route *route, struct err *e) MUST_CHECK;

/* The same for check and explain, where one that run would make is fine; *found says which. */
bool mongo_check_index(struct mongo *m, const struct config_route *route, const char **found,
                       struct err *e) MUST_CHECK;

/* Makes the dedup index (idemsink_dedup; with [route.entity] idemsink_entity) and with it the
 * collection, unless it is there. Never drops or changes anything. May take as long as the
 * collection is big. */
bool mongo_make_index(struct mongo *m, const struct config_route *route, struct err *e) MUST_CHECK;

/* The same; *made: it was not there. */
bool mongo_ensure_index(struct mongo *m, const struct config_route *route, bool *made,
                        struct err *e) MUST_CHECK;

/* Calls each with every document of the route's collection, majority-committed, in no order; false
 * from each ends it early (and is no error). */
typedef bool mongo_scan_fn(const bson_t *document, void *ctx);
bool mongo_scan(struct mongo *m, const struct config_route *route, mongo_scan_fn *each, void *ctx,
                struct err *e) MUST_CHECK;

/* The document of this filter, majority-committed; *out is NULL when there is none, the caller's
 * otherwise. With a route: where its events are, the ledger when it has one. */
bool mongo_find(struct mongo *m, const struct config_route *route, const bson_t *filter,
                bson_t **out, struct err *e) MUST_CHECK;
bool mongo_find_in(struct mongo *m, const char *database, const char *collection,
                   const bson_t *filter, bson_t **out, struct err *e) MUST_CHECK;

/* What tells this collection from every other one, also from one that had its name before and was
 * dropped. ERR_CONFIG: it is not there; ERR_AUTH: no right to listCollections. */
enum { MONGO_UUID_BYTES = 16 };
bool mongo_collection_uuid(struct mongo *m, const char *database, const char *collection,
                           uint8_t uuid[MONGO_UUID_BYTES], struct err *e) MUST_CHECK;

/* About how many documents there are, from the collection's metadata; -1: not known. */
int64_t mongo_count(struct mongo *m, const struct config_route *route);

/*
 * Initiates the replica set that the URI names, with the URI's hosts as members, unless it is
 * initiated; then waits (30 s at most) until it has a writable primary. For a fresh stack.
 */
bool mongo_init_replica_set(const struct config *c, struct err *e) MUST_CHECK;

#endif
