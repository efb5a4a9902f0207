/*
 * mongo_reconcile.h - carries out what core/reconcile.h and core/repair.h ask.
 */
#ifndef IDEMSINK_IO_MONGO_RECONCILE_H
#define IDEMSINK_IO_MONGO_RECONCILE_H

#include "core/invalidation.h"
#include "core/repair.h"
#include "io/mongo.h"

/* *snapshot: transactions are there (a replica set, or mongos). */
bool mongo_has_snapshots(struct mongo *m, bool *snapshot, struct err *e) MUST_CHECK;

/*
 * The documents of an aggregation (pipeline: {"pipeline": [...]}), majority-committed, to each();
 * false from each ends it early (and is no error). Grouping and sorting goes to the server's disk
 * where it has to. secondary: read there when there is one.
 */
bool mongo_aggregate(struct mongo *m, const char *database, const char *collection,
                     const bson_t *pipeline, bool secondary, mongo_scan_fn *each, void *ctx,
                     struct err *e) MUST_CHECK;

/* The same for the documents that a filter finds. */
bool mongo_scan_some(struct mongo *m, const char *database, const char *collection,
                     const bson_t *filter, const bson_t *projection, bool secondary,
                     mongo_scan_fn *each, void *ctx, struct err *e) MUST_CHECK;

/* Several aggregations of one moment: in a snapshot transaction, which is made anew when others are
 * in its way; without snapshots one after the other. begin: before each
 * attempt, to forget what an earlier one has told. */
struct mongo_reading {
    const char *database, *collection;
    const bson_t *pipeline;
    mongo_scan_fn *each;
};
bool mongo_read_together(struct mongo *m, bool snapshots, const struct mongo_reading *readings,
                         size_t n, void (*begin)(void *ctx), void *ctx, struct err *e) MUST_CHECK;

/* {_id: id} gets $max {field: number}: never back. */
bool mongo_raise(struct mongo *m, const char *database, const char *collection, const bson_t *id,
                 const char *field, int64_t number, struct err *e) MUST_CHECK;

/* The counter document with this key (core/reconcile.h) as the majority has it: adds a MIRROR, when
 * it is there and its key in Redis can be filled. */
bool mongo_mirror_again(struct mongo *m, const struct config_counter *c, const bson_t *key,
                        struct invalidation_list *out, struct err *e) MUST_CHECK;

/* Is there an index on exactly these fields, in front of others at most? For a warning. */
bool mongo_has_index(struct mongo *m, const char *database, const char *collection,
                     char *const *fields, size_t n);

/* Runs a repair that has begun to its end. One thread; it has its own connection. */
struct mongo_repairer;
struct mongo_repairer *mongo_repairer_new(struct mongo *m);
void mongo_repairer_free(struct mongo_repairer *p); /* NULL is fine */
bool mongo_repair(struct mongo_repairer *p, const struct reconcile_family *f, struct repair *r,
                  struct err *e) MUST_CHECK;

#endif
