/*
 * plan_ops.h - operations for the tests of the plan.
 */
#ifndef IDEMSINK_TESTS_PLAN_OPS_H
#define IDEMSINK_TESTS_PLAN_OPS_H

#include <string.h>

#include "base/mem.h"
#include "core/mapping.h"

/* Lanes are compared, never followed: the address of a letter will do. */
static const char lane_names[256];

static inline struct write_op op_new(enum write_kind kind, const char *key, const char *lane,
                                     size_t fat)
{
    struct write_op op = {.kind = kind,
                          .filter = bson_new(),
                          .document = bson_new(),
                          .lane = lane ? &lane_names[(unsigned char)*lane] : NULL};
    char *blob = mem_new(fat + 1);

    memset(blob, 'x', fat);
    BSON_APPEND_UTF8(op.filter, "k", key);
    BSON_APPEND_UTF8(op.document, "fat", blob);
    mem_free(blob);
    return op;
}

/* Makes its document `levels` levels deep, itself being the first. */
static inline void op_deepen(struct write_op *op, unsigned levels)
{
    bson_t *inner = bson_new();

    for (unsigned i = 2; i < levels; i++) {
        bson_t *outer = bson_new();
        MUST(BSON_APPEND_DOCUMENT(outer, "a", inner));
        bson_destroy(inner);
        inner = outer;
    }
    MUST(BSON_APPEND_DOCUMENT(op->document, "deep", inner));
    bson_destroy(inner);
}

static inline void ops_free(struct write_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bson_destroy(ops[i].filter);
        bson_destroy(ops[i].document);
    }
}

#endif
