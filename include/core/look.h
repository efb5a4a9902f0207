/*
 * look.h - one read for many operations by their dedup keys, and which of them a document answers.
 * Pure.
 *
 * Measured on mongod 6.0.5, 200,000 documents, one key each: {k: {$in: [1,000 keys]}} takes 1 ms
 * when none is there and 2.3 ms when all are; 1,000 reads of one key each take 300 ms. Of two
 * fields, {$or: [1,000 equalities]} takes 23 to 26 ms (each is planned by itself), and mongod 57 us
 * for each new record of write = "auto"; with the 20 values of one field shared, 23 us (insert
 * alone: 19).
 */
#ifndef IDEMSINK_CORE_LOOK_H
#define IDEMSINK_CORE_LOOK_H

#include "core/canonical.h"
#include "core/mapping.h"

/* Appends to an empty document. ops are of one route, n at least 1. */
void look_filter(const struct write_op *const *ops, size_t n, bson_t *filter);

/* What the answer must hold: the fields of a filter of the route, and conflict_field unless NULL.
 * Appends to an empty document. */
void look_projection(const bson_t *like, const char *conflict_field, bson_t *projection);

/* The payload hash that a document holds there; false: none. */
bool look_hash(const bson_t *document, const char *conflict_field,
               uint8_t hash[CANONICAL_HASH_BYTES]);

struct look *look_new(void); /* reused; no allocation in steady state */
void look_free(struct look *l);

/* The read of these goes out; ops stay borrowed, their filters differ. */
void look_begin(struct look *l, const struct write_op *const *ops, size_t n);

/*
 * Which of them a document of the answer is about. SIZE_MAX: bytes don't tell (an array in the
 * place of a key, a number that only the server holds for equal). Then what was not found has to be
 * read by itself: whatever comes back for one operation alone is about that one.
 */
size_t look_find(struct look *l, const bson_t *document);

#endif
