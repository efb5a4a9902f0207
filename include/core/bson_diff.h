/*
 * bson_diff.h - in which fields two documents differ, for people.
 */
#ifndef IDEMSINK_CORE_BSON_DIFF_H
#define IDEMSINK_CORE_BSON_DIFF_H

#include <bson/bson.h>

enum bson_diff_kind {
    BSON_DIFF_LEFT,  /* only the left one has it */
    BSON_DIFF_RIGHT, /* only the right one has it */
    BSON_DIFF_TYPE,  /* both have it, as values of different types */
    BSON_DIFF_VALUE,
    BSON_DIFF_ORDER /* equal members in another order, which MongoDB holds for different */
};

/* path: "order.items.3.price". */
typedef void bson_diff_fn(void *ctx, enum bson_diff_kind kind, const char *path);

/*
 * Returns how many differences there are; 0: equal. As verify compares: the top-level _id does not
 * count, and neither does the order of the top-level fields (an upsert changes it).
 */
size_t bson_diff(const bson_t *left, const bson_t *right, bson_diff_fn *each, void *ctx);

#endif
