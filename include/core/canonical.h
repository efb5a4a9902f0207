/*
 * canonical.h - one form for all BSON that is equal: dedup keys and payloads are compared by it.
 *
 * Numbers that MongoDB holds for equal get the same bytes: int32, int64, a double that is an exact
 * integer and a decimal that is one become the int64; decimals lose the zeros at their end. Other
 * values stay as they are.
 */
#ifndef IDEMSINK_CORE_CANONICAL_H
#define IDEMSINK_CORE_CANONICAL_H

#include <bson/bson.h>

/* Appends the value at from; the fields of a sub-document keep their order (MongoDB compares them
 * with it). False: it does not fit, or is no BSON. */
bool canonical_append(bson_t *to, const char *name, const bson_iter_t *from);

/*
 * Appends the dedup key of a stored document in the form of `like`, a filter of its route, whose
 * names are paths. False: it is not there as plain values (a field is missing, or an array stands
 * on the way or at its end), so bytes don't tell whether the server holds it for equal.
 */
bool canonical_key(const bson_t *document, const bson_t *like, bson_t *key);

/*
 * The hash of a payload: XXH3-128 with seed 0, its digest (the high half first, as big endian), of
 * the document with the fields of every object sorted by name (as bytes) and its values as above.
 * So it depends neither on the order of fields nor on how a number was written. False: no BSON.
 */
enum { CANONICAL_HASH_BYTES = 16 };
bool canonical_hash(const bson_t *document, uint8_t hash[CANONICAL_HASH_BYTES]);

#endif
