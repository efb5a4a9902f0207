/*
 * reconcile.h - all counters and sequences against their truth: for `idemsink reconcile`, for the
 * job of `run`, and for `verify`.
 */
#ifndef IDEMSINK_CLI_RECONCILE_H
#define IDEMSINK_CLI_RECONCILE_H

#include "core/invalidation.h"
#include "core/repair.h"
#include "io/mongo.h"
#include "io/mongo_lease.h"

/* One thing that is not as it should be. Valid during the call. */
struct reconcile_finding {
    const char *what; /* "different", see docs/effects.md */
    const char *database, *collection;
    const bson_t *key; /* of the counter document, or of the group */
    const char *field;
    const char *counted, *stored; /* as text; "" for nothing */
    const char *done;             /* "", "repaired", "unsettled" */
};

struct reconcile_options {
    bool apply;     /* repair */
    bool secondary; /* count there; what differs is looked at on the primary */
    bool counters, sequences;
    const char *route;      /* NULL: all */
    int64_t counter;        /* its number within the route, from 0; -1: all */
    int64_t per_second;     /* counters that are looked at one by one, at most */
    size_t memory_bytes;    /* of the table */
    int64_t lease_every_ms; /* see mongo_lease_terms; 0 */
    bool lease;             /* one process at a time */
    const char *owner;      /* of the lease, for people */
};

struct reconcile_calls {
    void (*found)(void *ctx, const struct reconcile_finding *f);
    /* A counter, sequence or ledger that can't be looked at, and why. */
    void (*unable)(void *ctx, const char *what, const char *why);
    void (*note)(void *ctx, const char *text); /* what makes it slow */
    void (*progress)(void *ctx, const char *what, uint64_t done, uint64_t total);
    /* What Redis is told of a counter that was repaired; takes the items. False: it was not told.
     * NULL: it is not to be told. */
    bool (*mirror)(void *ctx, struct invalidation_list *l, struct err *e);
    /* True: come to an end. Waits for it so long at most. */
    bool (*stopping)(void *ctx, int64_t wait_ms);
    void *ctx;
};

struct reconcile_books {
    uint64_t counters;    /* documents with a counting field, and those that are missing */
    uint64_t groups;      /* of sequences */
    uint64_t differences; /* fields */
    uint64_t repaired;
    uint64_t foreign; /* kinds of documents that no event of a route can have made: not counted */
    uint64_t unable;
    size_t table_bytes; /* at most */
    bool busy;          /* another process has the lease, or it is not yet time: nothing was done */
    bool stopped;       /* early, as it was asked */
};

/* False: a service failed; what was found until then has been told. */
bool reconcile_all(struct mongo *m, const struct config *config, const struct reconcile_options *o,
                   const struct reconcile_calls *calls, struct reconcile_books *books,
                   struct err *e) MUST_CHECK;

/* For reconcile*.c */
struct reconcile_work {
    struct mongo *m;
    const struct config *config;
    const struct reconcile_options *o;
    const struct reconcile_calls *calls;
    struct reconcile_books *books;
    struct mongo_lease lease;
    int64_t next_us; /* when the next one may be looked at */
    bool snapshots;
    struct err *e;
    bool failed; /* *e says why */
};
/* Between two steps: keeps the lease, asks for the end. False: leave (failed or stopped). */
bool reconcile_go_on(struct reconcile_work *w);
/* The same, and waits for its turn. */
bool reconcile_turn(struct reconcile_work *w);
bool reconcile_sequences(struct reconcile_work *w);

#endif
