/*
 * reconcile_sequence.h - the numbers of a sequence, group by group, against what is promised of
 * them, and a ledger against the entities that are there. Pure: the aggregations, and what their
 * results mean.
 */
#ifndef IDEMSINK_CORE_RECONCILE_SEQUENCE_H
#define IDEMSINK_CORE_RECONCILE_SEQUENCE_H

#include <bson/bson.h>

#include "core/config.h"

/* Appends {"pipeline": [...]}: one result for each group. only: a group's {_id: {...}}; NULL: all.
 */
void sequence_audit_pipeline(const struct config_route *r, const bson_t *only, bson_t *out);
/* The counter of one group: {"pipeline": [...]} in the sequence's collection. */
void sequence_audit_counter(const bson_t *group, bson_t *out);

struct sequence_audit {
    int64_t highest, lowest; /* numbers; 0 when there is none */
    int64_t documents, numbers, doubles, unnumbered;
    bool counter; /* it is there, as an int64 or int32: */
    int64_t last;
};

/* From a result: the counter's {_id: {...}}, appended to an empty document. False: no event can
 * have made such a document. */
bool sequence_audit_group(const struct config_route *r, const bson_t *result, bson_t *group,
                          struct sequence_audit *out);

enum sequence_fault {
    SEQUENCE_FINE,
    SEQUENCE_UNNUMBERED, /* documents without a number */
    SEQUENCE_DOUBLE,     /* numbers that several documents have */
    SEQUENCE_HOLES,      /* gapless: numbers that none has */
    SEQUENCE_LAGS,       /* the counter is below the highest: it would give numbers again */
    SEQUENCE_AHEAD       /* gapless: the counter is above the highest */
};
/* with_counter: out->counter and last are known. */
enum sequence_fault sequence_audit_judge(const struct config_route *r,
                                         const struct sequence_audit *a, bool with_counter);
const char *sequence_fault_name(enum sequence_fault f);

#endif
