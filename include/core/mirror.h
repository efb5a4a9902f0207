/*
 * mirror.h - a counter document as others find it in Redis ([[route.counter]] mirror): a hash of
 * its counted fields and its version. Pure.
 */
#ifndef IDEMSINK_CORE_MIRROR_H
#define IDEMSINK_CORE_MIRROR_H

#include "core/config.h"
#include "core/invalidation.h"
#include "core/mapping.h"

/* The field of a mirrored counter document that is 1 more after each update. */
#define MIRROR_VERSION "_version"

bool mirror_wanted(const struct config_counter *c);
bool mirror_any(const struct config_route *r);

/* Which documents of the route's counter-th [[route.counter]] the operations move: filters, each
 * once. ops are borrowed by the result, which is the caller's to mem_free(). */
const bson_t **mirror_moved(const struct write_op *const *ops, size_t n, uint32_t counter,
                            size_t *n_out);

/* What has to be read of them. Appends to empty documents. filters: n of them, at least 1. */
void mirror_filter(const bson_t *const *filters, size_t n, bson_t *out);
void mirror_projection(const struct config_counter *c, bson_t *out);

/* Appends its key of Redis. document: one that has the fields of the filter, or an operation's
 * filter itself. False: a field is missing, empty or no scalar; something may have been appended.
 */
bool mirror_key(const struct config_counter *c, const bson_t *document, struct buf *out);

/* Adds what Redis is told of the document as it was read; rule is the counter's index. False: its
 * key can't be filled (a field of the filter is missing, empty or no scalar): nothing is added. */
bool mirror_add(const struct config_counter *c, const bson_t *document,
                struct invalidation_list *out);

#endif
