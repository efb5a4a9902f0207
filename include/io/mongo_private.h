/*
 * mongo_private.h - shared by src/io/mongo_*.c only.
 */
#ifndef IDEMSINK_IO_MONGO_PRIVATE_H
#define IDEMSINK_IO_MONGO_PRIVATE_H

#include <mongoc/mongoc.h>

#include "core/outcome.h"
#include "io/mongo.h"
#include "io/mongo_gate.h"

struct mongo {
    const struct config *config;
    mongoc_uri_t *uri; /* with our options */
    int64_t socket_timeout_ms;
    mongoc_client_pool_t *pool;
    mongoc_write_concern_t *concern;
    mongoc_read_prefs_t *primary;
    struct mongo_gate *gate;
    enum mongo_way *ways; /* by route; valid once decided */
    bool decided;
    struct mongo_log_counts *log_counts; /* by route; mongo_log.c */
};

/* Of a route since the start. */
struct mongo_log_counts {
    _Atomic uint64_t failed, missing, completed, full;
    bool left; /* written in transactions now, by log once: mongo_finish_open() */
};

/* The URI with our options in it. */
mongoc_uri_t *mongo_uri(const struct config *c, struct err *e);

enum call_fault mongo_fault(const bson_error_t *be);

/* Fills *e: kind from the error, text "what: message", and what to do about credentials and rights.
 * Returns false. */
bool mongo_fail(struct err *e, const char *what, const bson_error_t *be);

/* The first batch of a hello on the primary (a client of the pool). reply is to be destroyed in any
 * case. */
bool mongo_hello(mongoc_client_t *client, const mongoc_read_prefs_t *prefs, bson_t *reply,
                 bson_error_t *be);

/* No server could be selected: asks the URI's first host why, and puts a better text into *e when
 * it says. */
void mongo_explain_selection(const mongoc_uri_t *uri, struct err *e);

/* Outcomes carry no text of a server that did not answer; the operator wants it, now and then. */
void mongo_say_no_answer(const char *what, enum call_fault fault, const bson_error_t *be);

/* mongo_read.c: one read for many; every document of the answer goes to found. */
typedef void mongo_found_fn(void *ctx, const bson_t *document);
struct mongo_read {
    mongoc_collection_t *collection;
    const bson_t *filter, *projection;
    const bson_t *opts; /* read concern, or a session */
    size_t n;           /* documents at most */
    mongoc_read_prefs_t *prefs;
    mongo_found_fn *found;
    void *ctx;
};
/* *be stays as it is when all went well, and holds what call->message points to. reply, when not
 * NULL, is a document for what the server said to a read that failed. */
void mongo_read(const struct mongo_read *r, struct outcome_call *call, bson_error_t *be,
                bson_t *reply);
/* {readConcern: majority}, or {}: what a look-up of duplicates needs; the caller's. */
bson_t *mongo_look_opts(const struct config *c);

/* mongo_txn.c: the batches of routes that go the way MONGO_ATOMIC, as mongo_log.c below. */
struct mongo_txn;
struct mongo_txn *mongo_txn_new(struct mongo *m, mongoc_client_t *client);
void mongo_txn_free(struct mongo_txn *t); /* NULL is fine */
const struct outcome *mongo_txn_write(struct mongo_txn *t, uint32_t route,
                                      const struct write_op *ops, size_t n);
void mongo_txn_did(const struct mongo_txn *t, struct sink_effects *out); /* in the last write */

/* sink_ops.explain: names the right that the user lacks, where it is that. */
void mongo_explain_no(void *sink, uint32_t route, enum retry_class why, int code, struct buf *out);

/* A client of its own: building an index, or adding up a collection, takes as long as it takes, and
 * the pool's time-out is short. mongoc_client_destroy(). */
mongoc_client_t *mongo_patient_client(const struct mongo *m);

/* "" when the field is not there or no string. Borrowed from doc. */
const char *mongo_text_field(const bson_t *doc, const char *name);
bool mongo_true_field(const bson_t *doc, const char *name);

/* mongo_mirror.c: as sink_ops.moved, with a client of the pool. */
void mongo_mirror(struct mongo *m, mongoc_client_t *client, uint32_t route,
                  const struct write_op *const *ops, size_t n, struct invalidation_list *out);

/*
 * mongo_log.c: the batches of routes whose effects need no transaction (core/log_plan.h): effects =
 * "log", and sequences of mode block or max alone. One per session and thread; client is the
 * session's, borrowed. As sink_ops.write; the results belong to it until the next call.
 */
struct mongo_log;
struct mongo_log *mongo_log_new(struct mongo *m, mongoc_client_t *client);
void mongo_log_free(struct mongo_log *l); /* NULL is fine */
const struct outcome *mongo_log_write(struct mongo_log *l, uint32_t route,
                                      const struct write_op *ops, size_t n);

/* mongo_fence.c: sink_ops.issue over the session's client. The keys are sorted. */
struct mongo_fence {
    uint32_t route;
    const char *token;
    const char *const *keys;
    size_t n;
};
bool mongo_fence_issue(struct mongo *m, mongoc_client_t *client, const struct mongo_fence *what,
                       int64_t *numbers, struct outcome *why);

#endif
