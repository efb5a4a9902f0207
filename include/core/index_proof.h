/*
 * index_proof.h - does what a server lists give a route what it needs: an index that keeps its
 * dedup key unique for ever, and the others of core/need.h?
 *
 * Pure: io/mongo_index.c asks and hands over each answer as it came. In this order:
 *
 *   index_proof_begin()
 *   index_proof_collection()   what listCollections says, when the collection is there
 *   index_proof_shard_key()    its document of config.collections, when it is sharded
 *   index_proof_index()        each of listIndexes (with includeBuildUUIDs), in the server's order
 *   index_proof_end()
 *
 * A question that may not be asked is left out and named with index_proof_forbidden().
 */
#ifndef IDEMSINK_CORE_INDEX_PROOF_H
#define IDEMSINK_CORE_INDEX_PROOF_H

#include <bson/bson.h>

#include "base/err.h"
#include "core/need.h"

/* The members are the proof's own, but for reading `exists` `found` `found_name` and `earlier`. */
struct index_proof {
    const struct need_index *need; /* borrowed */
    char ns[256];                  /* "database.collection", for texts */

    bool exists; /* the collection is there */
    bool found;  /* an index that does it */
    char found_name[128];
    char wrong[320];     /* an index over these fields that does not do it, and why; "" when none */
    char earlier[128];   /* a unique index that was made before ours: the server names that one */
    char expiring[128];  /* an index that removes documents, and may not */
    char forbidden[128]; /* what the user may not ask; "" when nothing */
};

void index_proof_begin(struct index_proof *p, const struct need_index *need);

/* ERR_CONFIG: its kind or options forbid it. */
bool index_proof_collection(struct index_proof *p, const bson_t *info, struct err *e) MUST_CHECK;
/* ERR_CONFIG: a field of the shard key lies outside of the index's fields, so that two equal keys
 * may live on two shards, where no index sees both. */
bool index_proof_shard_key(struct index_proof *p, const bson_t *entry, struct err *e) MUST_CHECK;
void index_proof_index(struct index_proof *p, const bson_t *listed);

/* Appends "a, b.c". */
void index_proof_fields(const struct index_proof *p, struct buf *out);

/* action: "listIndexes"; role: a built-in role that has it. */
void index_proof_forbidden(struct index_proof *p, const char *action, const char *role);

/*
 * The verdict: ERR_CONFIG: it is wrong, and what to do; ERR_AUTH (code 13): something may not be
 * asked and route.trust_index does not make up for that. What is seen to be wrong is wrong with
 * trust too.
 */
bool index_proof_end(const struct index_proof *p, struct err *e) MUST_CHECK;

/* Whether the index is missing and may be made: nothing that is there is in its way. With an
 * ERR_CONFIG or ERR_AUTH: no. */
bool index_proof_may_make(const struct index_proof *p, bool *missing, struct err *e) MUST_CHECK;

#endif
