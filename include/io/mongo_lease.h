/*
 * mongo_lease.h - one of all processes does it: a document in <database>.idemsink_leases.
 *
 *   {_id: name, owner: text for people, token, until: date, ran: date}
 *
 * Only the server's clock counts ($$NOW in pipeline updates), so the clocks of the processes may
 * differ. Who dies holds it no longer than hold_ms. A lease keeps others from doing the same work
 * at the same time; it can't keep a process that sleeps past its end from going on when it wakes,
 * so what is done under it has to be harmless when two do it.
 */
#ifndef IDEMSINK_IO_MONGO_LEASE_H
#define IDEMSINK_IO_MONGO_LEASE_H

#include <bson/bson.h>

#include "io/mongo.h"

#define MONGO_LEASES "idemsink_leases" /* the collection */

struct mongo_lease_terms {
    const char *database;
    const char *name;  /* of the work: "sweep shop.orders" */
    const char *owner; /* for people who look */
    int64_t hold_ms;
    /* Nobody gets it before so long after the last mongo_lease_done(); 0: at once. So a work that
     * is due every hour is done once an hour by all processes together. */
    int64_t every_ms;
};

/* The texts of the terms stay borrowed. */
struct mongo_lease {
    struct mongo_lease_terms terms;
    bson_oid_t token; /* of this holding */
    int64_t until_ms; /* on our monotonic clock; it ends no earlier at the server */
};

/* *held: we have it. False: the server did not say (then we may have it: it runs out by itself). */
bool mongo_lease_take(struct mongo *m, const struct mongo_lease_terms *terms,
                      struct mongo_lease *out, bool *held, struct err *e) MUST_CHECK;

/* hold_ms from now on. *held: false: it has run out, or somebody else has it. */
bool mongo_lease_renew(struct mongo *m, struct mongo_lease *l, bool *held,
                       struct err *e) MUST_CHECK;

/* Renews it when less than half of it is left. */
bool mongo_lease_keep(struct mongo *m, struct mongo_lease *l, bool *held, struct err *e) MUST_CHECK;

/* Gives it back. done: the work has come to its end (every_ms counts from now on). Nothing happens
 * when it is not ours any more. */
bool mongo_lease_release(struct mongo *m, const struct mongo_lease *l, bool done,
                         struct err *e) MUST_CHECK;

#endif
