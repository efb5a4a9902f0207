/*
 * reconcile.h - what counters should be: which documents they are counted from, and the comparison
 * of all of them in bounded memory. Pure. One counter exactly, and its repair: core/repair.h.
 *
 * Counter documents of one collection that are found by the same fields are a family: several
 * [[route.counter]], of several routes, may move their fields. The truth of a field is the sum over
 * all of them.
 *
 * A comparison of all reads each side once, at different moments and without an order, so what it
 * finds while workers run is a suspicion; core/repair.h looks at each one exactly.
 */
#ifndef IDEMSINK_CORE_RECONCILE_H
#define IDEMSINK_CORE_RECONCILE_H

#include <bson/bson.h>

#include "base/bytes.h"
#include "core/config.h"

/* One [[route.counter]] of a family. */
struct reconcile_source {
    uint32_t route;
    const struct config_counter *counter;
    char **paths;   /* where the route's documents hold the parts of the filter */
    char **amounts; /* and what is added, one for each inc; NULL: the constant */
    int64_t *constants;
    size_t *columns; /* of the family, one for each inc */
    bool logged;     /* set by whoever knows: events of its route may have been left open by log,
                        though transactions write it now */
};

struct reconcile_family {
    const char *database, *collection;
    const struct config_pairs *fields; /* their names are those of the filter */
    const char **columns;              /* the fields that count */
    size_t n_columns;
    struct reconcile_source *sources;
    size_t n_sources;
    bool upsert; /* a counter document that is missing is made */
    bool mirrored;
    char *unable; /* NULL; else why it can't be counted */
};

struct reconcile_plan {
    struct reconcile_family *families;
    size_t n;
};
/* config stays borrowed. */
void reconcile_plan_init(struct reconcile_plan *p, const struct config *config);
void reconcile_plan_clear(struct reconcile_plan *p);

/* Does it move counter documents of this family? */
bool reconcile_is_of(const struct reconcile_family *f, const struct config_counter *c);

/* Appends the aggregation over the documents of the source's route: {"pipeline": [...]}. Its
 * results are for reconcile_group(). */
void reconcile_truth(const struct reconcile_family *f, size_t source, bson_t *out);
/* From one of its results: the canonical key {filter field: value, ...} (appended to an empty
 * document) and the sums, as many as the source has inc fields. False: no counter has such a key (a
 * part is missing or no scalar: such a document was written by others), or a sum is no int64
 * (*too_large). */
bool reconcile_group(const struct reconcile_family *f, size_t source, const bson_t *group,
                     bson_t *key, int64_t *sums, bool *too_large);

/* Appends a value in the form that it has in a key. False: the mapping takes no such value. */
bool reconcile_add_part(bson_t *key, const char *name, const bson_iter_t *value);

/* The filter and projection of the counter documents that count something. */
void reconcile_counters(const struct reconcile_family *f, bson_t *filter, bson_t *projection);
/* The canonical key of a counter document. False: it is none. */
bool reconcile_counter_key(const struct reconcile_family *f, const bson_t *document, bson_t *key);

/* ---- one field of a counter document ---- */

enum reconcile_type { RECONCILE_ABSENT, RECONCILE_INT64, RECONCILE_INT32, RECONCILE_OTHER };
struct reconcile_value {
    enum reconcile_type type;
    int64_t number; /* INT64, INT32 */
};
struct reconcile_value reconcile_value_of(const bson_t *document, const char *column);

enum reconcile_difference {
    RECONCILE_SAME,
    RECONCILE_MISSING,   /* the field or the document is not there, and something was counted */
    RECONCILE_EXTRA,     /* nothing was counted */
    RECONCILE_DIFFERENT, /* both, and not the same */
    RECONCILE_TYPE       /* the number may be right, but $inc would not keep it an int64 */
};
/* An int32 zero, as an application may put it into a new document, is the same as none: the first
 * increment makes an int64 of it. */
enum reconcile_difference reconcile_compare(int64_t counted, struct reconcile_value stored);
const char *reconcile_difference_name(enum reconcile_difference d);

#endif
