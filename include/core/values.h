/*
 * values.h - what BSON can hold and a JSON tree can't, beside the tree.
 *
 * The tree has an integer node for each such value. Its number is the value's place in the list, so
 * that it is found without a search; the address tells it from an integer of the payload. A node
 * that goes before its list must be taken out with it: values_cut().
 */
#ifndef IDEMSINK_CORE_VALUES_H
#define IDEMSINK_CORE_VALUES_H

#include <bson/bson.h>

#include "base/bytes.h"

struct json_t;

struct value {
    const struct json_t *node;
    size_t at; /* where its bytes begin, as BSON encodes it behind type and name */
    size_t len;
    uint8_t type;    /* bson_type_t */
    unsigned levels; /* of documents in it: the scope of code */
};

struct values {
    struct slice raw; /* where the bytes lie when they are part of the payload; borrowed */
    struct buf made;  /* where they lie otherwise */
    struct value *items;
    size_t n, cap;
};

struct values *values_new(struct slice raw);
void values_free(struct values *v); /* NULL is fine */

/* A new node for the tree, which the caller owns. */
struct json_t *values_add(struct values *v, const struct value *value);

/* What it takes in memory; 0 for NULL. */
size_t values_memory(const struct values *v);

/* Forgets all but the first n. */
void values_cut(struct values *v, size_t n);

/* The value that this node stands for; NULL: the node is what it seems, or v is NULL. */
const struct value *values_get(const struct values *v, const struct json_t *node);

const uint8_t *values_bytes(const struct values *v, const struct value *value);

/* int32, int64, double, decimal, date, ObjectId and binary, which out borrows. False: another type.
 */
bool values_scalar(const struct values *v, const struct value *value, bson_value_t *out);

#endif
