/*
 * tally.h - the sums of all counters of a family: an open hash in bounded memory. Pure.
 *
 * An entry takes 16 bytes and 8 for each column, and the table is at most three quarters full. Keys
 * are told apart by 125 bits of their hash: a false match has a chance below 10^-20 for 10 million.
 */
#ifndef IDEMSINK_CORE_TALLY_H
#define IDEMSINK_CORE_TALLY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bson/bson.h>

#include "base/err.h"

struct tally;

/* Only keys whose hash is the part-th of so many parts are kept. max_bytes: of the table. */
struct tally *tally_new(size_t n_columns, size_t max_bytes, uint32_t part, uint32_t parts);
void tally_free(struct tally *t); /* NULL is fine */
size_t tally_bytes(const struct tally *t);
uint64_t tally_entries(const struct tally *t);
bool tally_wants(const struct tally *t, const bson_t *key);

/* Adds n sums to the columns. False: the table is full, begin again with more parts. A sum that
 * does not fit into an int64 stays as it was, and the key is in doubt. */
bool tally_add(struct tally *t, const bson_t *key, const size_t *columns, const int64_t *sums,
               size_t n) MUST_CHECK;
/* The key is in doubt: its sums don't fit. False: the table is full. */
bool tally_doubt(struct tally *t, const bson_t *key) MUST_CHECK;

/* What was counted, n_columns of them; NULL: nothing. It has been seen then. */
const int64_t *tally_see(struct tally *t, const bson_t *key, bool *doubt);

/* Something was counted that is not zero or is in doubt, and no counter document was seen. Told
 * once. */
bool tally_is_left(struct tally *t, const bson_t *key);
bool tally_any_left(const struct tally *t);

#endif
