/*
 * config_effects.h - what a route can ask for beside its document; and the lists that all of the
 * configuration is made of.
 */
#ifndef IDEMSINK_CORE_CONFIG_EFFECTS_H
#define IDEMSINK_CORE_CONFIG_EFFECTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct config_list {
    char **items;
    size_t n;
};

struct config_pair {
    char *name, *value;
};
struct config_pairs {
    struct config_pair *items;
    size_t n;
};

enum config_effects { EFFECTS_AUTO, EFFECTS_TRANSACTION, EFFECTS_LOG };
enum config_sequence_mode { SEQUENCE_GAPLESS, SEQUENCE_BLOCK, SEQUENCE_MAX };

/* [[route.counter]]: documents that count, moved once per new event. */
struct config_counter {
    uint32_t index; /* counted through all routes */
    int64_t line;   /* of the file, where its table begins; below 1: it came from --set */
    char *collection, *database; /* of the counter documents */
    /* Field of the counter document -> source of the record, by which it is found. */
    struct config_pairs filter;
    /* Field of the counter document -> JSON integer, or a value path. */
    struct config_pairs inc;
    bool upsert;  /* make a counter document that is not there */
    char *mirror; /* "" off; else a key of Redis, with the filter's fields in braces */
};

/* [route.sequence]; field is "" where there is none. */
struct config_sequence {
    char *field;              /* of the document, a name at its top */
    struct config_list group; /* sources; empty: one group for all */
    /* Document paths of the parts, as many; fewer: not all are in the document (never with MAX). */
    struct config_list group_fields;
    enum config_sequence_mode mode;
    int64_t start;
    char *collection, *database;     /* of the groups' counters */
    char *template, *template_field; /* "" off */
};

/* [route.operation] and [route.entity]; entity.key is empty where there is none. */
struct config_operation {
    char *source;                      /* "": every record inserts, tombstones delete */
    struct config_list insert, remove; /* its values */
    char *ledger, *ledger_database;    /* the collection */
    int64_t ledger_expire_ms;          /* 0: for ever */
};
struct config_entity {
    struct config_list key;    /* sources */
    struct config_list fields; /* document paths, as many */
};

/* [route.lock]; key is "" where there is none. */
struct config_lock {
    char *key;    /* template */
    char *prefix; /* before it */
    int64_t ttl_ms, wait_ms;
    char *fence, *fence_database; /* collection; "" off */
    char *fence_field;            /* of the document, a name at its top; "" off */
};

/* [route.seen]; entries is 0 where there is none. */
struct config_seen {
    int64_t entries, bytes, ttl_ms;
    char *redis;   /* "" off; else the prefix of its keys */
    char *drop_on; /* "" off; else a channel */
};

#endif
