/*
 * mongo_needs.h - what a route needs in MongoDB before it starts (core/need.h): looked at, made,
 * compared.
 *
 * As mongo.h: nothing retries; ERR_TRANSIENT may be tried again by the caller.
 */
#ifndef IDEMSINK_IO_MONGO_NEEDS_H
#define IDEMSINK_IO_MONGO_NEEDS_H

#include "core/need.h"
#include "io/mongo.h"

/*
 * Proves that the index is there and does its work; ERR_CONFIG: it is not so, and what to do;
 * ERR_AUTH: no right to look, unless it is trusted. NEED_COUNTER_FOUND: what is missing is a
 * warning in the log.
 */
bool mongo_prove_need(struct mongo *m, const struct need_index *need, struct err *e) MUST_CHECK;

/* The same for check and explain. ensure: route.ensure_index, with which one that run would make
 * is fine; *found says which. */
bool mongo_check_need(struct mongo *m, const struct need_index *need, bool ensure,
                      const char **found, struct err *e) MUST_CHECK;

/* Makes the index (and with it the collection) unless it is there; never drops or changes one. May
 * take as long as the collection is big. */
bool mongo_ensure_need(struct mongo *m, const struct need_index *need, bool *made,
                       struct err *e) MUST_CHECK;

/*
 * Makes a collection unless it is there: servers before 4.4 refuse that within a transaction, and
 * on others the first two transactions get in each other's way. Who may insert there may do it
 * (seen on 6.0.5). ERR_AUTH: who may not.
 */
bool mongo_ensure_collection(struct mongo *m, const struct need_collection *c, bool *made,
                             struct err *e) MUST_CHECK;
bool mongo_has_collection(struct mongo *m, const struct need_collection *c, bool *there,
                          struct err *e) MUST_CHECK;

/*
 * May the user that we are logged in as do all that is done there? Asks connectionStatus, whose
 * answer is cluster-wide and needs no right. What was found is appended to found. ERR_AUTH: what is
 * missing and how to grant it.
 */
bool mongo_check_need_rights(struct mongo *m, const struct need_collection *c, struct buf *found,
                             struct err *e) MUST_CHECK;

/*
 * Compares the counter of each group with the highest number in the route's collection. A counter
 * that lags (imported documents, a restored collection, one that was dropped) would give out
 * numbers that are there already.
 */
struct mongo_lag {
    size_t groups;   /* compared */
    size_t behind;   /* whose counter lags */
    bool sample;     /* only the newest documents were looked at */
    bool impossible; /* the documents don't hold their group */
    /* Of the first one that lags. group: extended JSON of the counter's _id. */
    char group[160];
    int64_t counter, highest;
};
enum mongo_lag_how {
    MONGO_LAG_ALL,   /* all documents; ERR_TRANSIENT when max_ms are not enough */
    MONGO_LAG_QUICK, /* the newest ones when max_ms are not enough */
    MONGO_LAG_RAISE  /* all documents; counters that lag are raised, each atomically ($max) */
};
/* max_ms 0: without limit. True: compared, whatever came of it. */
bool mongo_compare_sequence(struct mongo *m, const struct config_route *route,
                            enum mongo_lag_how how, int64_t max_ms, struct mongo_lag *out,
                            struct err *e) MUST_CHECK;
/* What is wrong when out->behind > 0, and what to run (ERR_CONFIG). Returns false. */
bool mongo_lag_fail(const struct config_route *route, const struct mongo_lag *lag, struct err *e);

/*
 * Is there a counter document whose field is a number of another type than integers, or no number?
 * $inc would keep a double a double, and fail on a text. Looks for max_ms at most; ERR_TRANSIENT:
 * that was not enough. ERR_INPUT: there is one.
 */
bool mongo_check_counter_types(struct mongo *m, const struct config_counter *c, int64_t max_ms,
                               struct err *e) MUST_CHECK;

#endif
