/*
 * mapping.h - from a record to the idempotent write it asks for. Needs no server.
 *
 * One mapping per route, made at start, read only afterwards: any thread may use it.
 *
 * The steps, in this order (docs/payloads.md explains them to users):
 *   parse, dedup key to filter, types, include, exclude, rename, under, (hash of the payload), set,
 *   source_fields, dedup fields that are not in the document yet, checks of _id, BSON, checks of
 *   depth and size, the hash into dedup.conflict_field.
 * Paths in dedup.key, order_by, types, include, exclude and rename are the payload's own names.
 *
 * Measured on mongod 6.0.5, four connections racing for 2,000 events each: an equality filter on
 * exactly the index fields is resolved by the server without one E11000, also for nested fields
 * ({"order.id": 1} with $setOnInsert {order: {id: 1, x: 2}}: no path conflict, order is stored as
 * sent), for several fields in another order than the index has them, for sub-document values, and
 * when filter and document hold equal numbers of different types. An upsert stores the top-level
 * fields in the filter's order and then by name, not in the order sent; an insert keeps the order.
 */
#ifndef IDEMSINK_CORE_MAPPING_H
#define IDEMSINK_CORE_MAPPING_H

#include <bson/bson.h>

#include "base/err.h"
#include "core/config.h"
#include "core/effect.h"
#include "core/invalidation.h"
#include "core/record.h"

struct mapping;

enum write_kind {
    WRITE_KIND_UPSERT, /* updateOne(filter, {$setOnInsert: document}, upsert) */
    WRITE_KIND_INSERT  /* route.write says so, or the document has top-level names that
                          $setOnInsert would read as paths or refuse */
};

/*
 * One idempotent write. Owns both documents until write_op_clear(). Pointers, not
 * values: bson_t asks for 128-byte alignment, which malloc() does not give.
 */
struct write_op {
    enum write_kind kind;
    bson_t *filter;   /* equality on exactly the dedup index's fields; canonical: equal keys, equal
                         bytes, numbers by their value */
    bson_t *document; /* UPSERT: without _id when that is the dedup key (the filter brings it).
                         INSERT: whole */
    struct effects *effects; /* what it moves beside its document; NULL: the route has none. With
                                [route.entity] filter is the event's _id in the ledger, and document
                                that of the entity */
    char *lock; /* [route.lock]: the key in Redis that is held while this is written; NULL: none */
    const void *lane; /* operations of one lane must be applied in order; only compared */
    bool alone; /* under suspicion (core/suspicion.h): a command of its own, behind the others */
};
void write_op_clear(struct write_op *op);

/* What a mapping must know that is not in its route. */
struct mapping_env {
    const char *instance_id; /* monsqlize's sender; unique to this process */
};

/* route and env's texts stay borrowed. ERR_CONFIG: a template or source can't be understood. */
struct mapping *mapping_new(const struct config_route *route, const struct mapping_env *env,
                            struct err *e) MUST_CHECK;
void mapping_free(struct mapping *m);

/*
 * Sets r->order_space, order_key (and order_owned), order_hash. A record without the value that
 * order_by names (no Kafka key, no header, a path that leads to no scalar) is ordered by its dedup
 * key. Parses the payload only where the ordering key needs it, leaves a small tree in r->json for
 * mapping_build(), and adds what that takes to r->bytes: call it before the record is counted.
 * Cannot fail: without a usable key it is ORDER_NONE, and mapping_build() will say why.
 */
void mapping_order(const struct mapping *m, struct record *r);

/* Does mapping_order() parse the payload of this record? */
bool mapping_order_parses(const struct mapping *m, const struct record *r);

enum mapping_verdict {
    MAPPING_WRITE,   /* *out is filled */
    MAPPING_SKIP,    /* a rule of the operator: a tombstone with tombstone = "skip" */
    MAPPING_REJECTED /* record_reject() was called */
};

/* Uses r->json when it is there, and releases it in every case: a record may have to wait for long,
 * and the tree is several times the size of its text. May be called again for the same record (a
 * retry). */
enum mapping_verdict mapping_build(const struct mapping *m, struct record *r, struct write_op *out);

/* Adds what is to be told after r's write. Never fails: a target whose template can't be filled
 * (missing or non-scalar value, a '*' coming from data in a pattern) is left out and counted in
 * *skipped. inserted: the document is new. */
void mapping_invalidations(const struct mapping *m, struct record *r, bool inserted,
                           struct invalidation_list *out, size_t *skipped);

/* For people: the value of the payload that makes the lane, as {order_by: value}. False: something
 * else makes it. r has been to mapping_order(). */
bool mapping_order_value(const struct mapping *m, const struct record *r, bson_t *out);

/* For people: each target that mapping_invalidations() would leave out. source: the placeholder in
 * braces ("order.user"); NULL: the text as a whole is empty, or no UTF-8 where it has to be. */
typedef void left_out_fn(void *ctx, const struct config_invalidate *rule, const char *source);
void mapping_left_out(const struct mapping *m, struct record *r, bool inserted, left_out_fn *tell,
                      void *ctx);

/* What can stand for all keys of the route's rule-th [[route.invalidate]] when too many are
 * pending: the pattern of the whole collection, where the rule allows one. False: nothing can. *out
 * is the caller's, invalidation_clear(). */
bool mapping_collapsed(const struct mapping *m, size_t rule, struct invalidation *out);

/* Is there a payload hash in this document, at the route's conflict_field? Then *rest is the
 * document without it, the caller's to bson_destroy(). It may be there though the check is off. */
bool mapping_without_hash(const struct mapping *m, const bson_t *document, bson_t *rest);
/* Does any route of r's collection put fields into documents by its effects (a number and its text,
 * a fence's number, how far the steps without transactions are)? Then *rest is the document without
 * them, the caller's to bson_destroy(). A field of such a name that no effect makes stays. */
bool mapping_without_effects(const struct config *c, const struct config_route *r,
                             const bson_t *document, bson_t *rest);

/* For verify: the filter of a stored document, from its dedup fields. false: they are not there. */
bool mapping_key_of_document(const struct mapping *m, const bson_t *document, bson_t *filter);

#endif
