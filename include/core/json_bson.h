/*
 * json_bson.h - a JSON tree to one BSON document, in one walk.
 *
 * Integers become int64, always: a field keeps one type for ever, whatever the size of its values,
 * and a counter that MongoDB increments doesn't change its type on the way. Reals become doubles.
 */
#ifndef IDEMSINK_CORE_JSON_BSON_H
#define IDEMSINK_CORE_JSON_BSON_H

#include "core/types.h"
#include "core/values.h"

struct json_t;

/* Levels of objects and arrays, the document itself being the first: MongoDB's documented limit. A
 * real mongod 6.0.5 takes up to 179, fails the operation above, and from 199 on refuses the whole
 * command. */
#define JSON_BSON_LEVELS 100

/* A node of the tree that is to be written as another value. The tree is compared by address:
 * numbers and strings of jansson are never shared between two places. */
struct json_bson_note {
    const struct json_t *node;
    struct typed typed;
};

struct json_bson_in {
    struct json_t *root; /* an object */
    const struct json_bson_note *notes;
    size_t n_notes;
    const struct values *values; /* NULL: the tree has none */
    bool skip_id;                /* leave out the top-level _id */
    bool drop_nulls;             /* leave out members that are null; elements of arrays stay */
};

enum json_bson_result { JSON_BSON_OK, JSON_BSON_TOO_DEEP, JSON_BSON_TOO_LARGE };

/* *out is a new document when OK. *odd_names: some top-level name is empty, begins with $ or holds
 * a dot. */
enum json_bson_result json_bson_build(const struct json_bson_in *in, size_t max_bytes, bson_t **out,
                                      bool *odd_names);

#endif
