/*
 * need.h - what a route needs in MongoDB before its first record: indexes, collections, rights. One
 * table for init, start, check and explain. Pure.
 *
 *   identity   the dedup index, or with [route.entity] the unique index on the entity, and _id of
 *              the ledger
 *   counter    _id, or a unique index on exactly the fields of its filter, where upsert = true:
 *              without it two writers make two documents of one counter; by steps always: an event
 *              that comes again would move the other one of two
 *   sequence   the number is unique in its group (stored paths of group, field), and so is the
 *              text; partial, so that documents without a number don't count as equal
 *   expiry     TTL on `at` of the ledger, where ledger_expire is set
 *   open       _effects.at of documents whose effects are not done yet (core/log_plan.h), partial
 *
 * What the identity rests on comes first: a server names the unique index that was made first. And
 * the number comes before the text: whose text is there may have to wait for its group's counter.
 */
#ifndef IDEMSINK_CORE_NEED_H
#define IDEMSINK_CORE_NEED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config.h"

/* Names of the indexes that we make ourselves. */
#define NEED_INDEX_DEDUP         "idemsink_dedup"
#define NEED_INDEX_ENTITY        "idemsink_entity"
#define NEED_INDEX_COUNTER       "idemsink_counter" /* "_" and its fields behind it */
#define NEED_INDEX_SEQUENCE      "idemsink_sequence"
#define NEED_INDEX_SEQUENCE_TEXT "idemsink_sequence_text"
#define NEED_INDEX_EXPIRE        "idemsink_expire"
#define NEED_INDEX_OPEN          "idemsink_open"
#define NEED_LEASES              "idemsink_leases" /* collection, in the route's database */

enum need_use {
    NEED_IDENTITY,      /* of the documents in the route's collection */
    NEED_BY_ID,         /* documents of our own that _id keeps unique: ledger, counters of groups */
    NEED_COUNTER,       /* unique: counter documents are made, or moved by steps */
    NEED_COUNTER_FOUND, /* upsert = false, by transaction: what is missing is a warning */
    NEED_SEQUENCE,
    NEED_SEQUENCE_TEXT,
    NEED_EXPIRY,
    NEED_OPEN
};

struct need_index {
    enum need_use use;
    const char *what;                  /* "dedup index" */
    char *name;                        /* "": _id is enough, there is nothing to make */
    const char *database, *collection; /* borrowed from the route */
    struct config_list fields;
    bool unique;
    const char *partial; /* only documents with this field, one of fields; NULL: all */
    const char *before;  /* made before every unique index with this field; NULL: whenever */
    int64_t expire_s;    /* -1: no TTL */
    bool trust;          /* route.trust_index */
    /* What follows when documents vanish by themselves, as a clause; NULL: that is not ours to
     * judge here. A TTL on the field `may_expire` is. */
    const char *if_expired, *may_expire;
};

enum need_action {
    NEED_DO_FIND = 1,
    NEED_DO_INSERT = 2,
    NEED_DO_UPDATE = 4,
    NEED_DO_REMOVE = 8,
    NEED_DO_LIST_INDEXES = 16,
    NEED_DO_CREATE_INDEX = 32
};
enum { NEED_ACTIONS = 6 };

struct need_collection {
    const char *what;                  /* "ledger" */
    const char *database, *collection; /* borrowed */
    unsigned actions;                  /* all that is done there */
    bool before;                       /* has to be there before the first transaction */
};

/* Zero-initialised is empty. */
struct needs {
    struct need_index *indexes; /* no two of them are the same */
    size_t n_indexes;
    struct need_collection *collections; /* the route's own first */
    size_t n_collections;
};

/* steps: effects go without transactions (docs/effects.md). For a route without effects it does not
 * matter. */
void needs_of(const struct config_route *route, bool steps, struct needs *out);
void needs_clear(struct needs *n);

/* The identity alone; need_index_clear() it. */
void need_identity(const struct config_route *route, struct need_index *out);
void need_index_clear(struct need_index *n);

/* Does a lane hold all events of an entity, all of a group? "order_by" alone decides. */
enum need_order {
    NEED_ORDER_NONE,   /* nothing of the kind is configured */
    NEED_ORDER_PROVED, /* equal entities (groups) have equal ordering keys */
    NEED_ORDER_SAID,   /* the configuration can't tell: it is so when the producer keeps to it */
    NEED_ORDER_BROKEN  /* each event is a lane of its own */
};
enum need_order need_order_of_entity(const struct config_route *route);
enum need_order need_order_of_group(const struct config_route *route);

/* A counter that finds documents of a collection by other fields (or in another order) than another
 * counter of the route does: both may mean one document. Transactions don't care. By steps an event
 * leaves one id in a document, and the second of them would be taken for done. NULL: there is none.
 */
const struct config_counter *need_counter_named_twice(const struct config_route *route);

#endif
