/*
 * mapping_private.h - what the files of the mapping share. For src/core/mapping*.c only.
 */
#ifndef IDEMSINK_CORE_MAPPING_PRIVATE_H
#define IDEMSINK_CORE_MAPPING_PRIVATE_H

#include "core/canonical.h"
#include "core/json_bson.h"
#include "core/mapping.h"
#include "core/payload.h"
#include "core/pick.h"
#include "core/sequence.h"
#include "core/template.h"

/* One part of a key. */
struct mapping_part {
    const char *text; /* as the operator wrote it */
    struct pick pick;
    bool has_type; /* of the route's types, for this very path */
    enum value_type type;
    struct path place; /* FIELDS: where the document holds it */
    char *name;        /* in the filter, or in the sub-document of _id */
    bool in_place;     /* the payload has it there and nothing moves it */
};

enum mapping_key_form {
    MAPPING_KEY_FIELDS,      /* in fields of the document */
    MAPPING_KEY_NAMES,       /* in fields of another document */
    MAPPING_KEY_ID,          /* one part, as _id */
    MAPPING_KEY_ID_DOCUMENT, /* parts as a sub-document that is _id */
};

/* Zero-initialised but for what and of_effect. */
struct mapping_key {
    const char *what; /* "dedup key" */
    bool of_effect;   /* what can't be in it is REASON_EFFECT_VALUE */
    enum mapping_key_form form;
    struct mapping_part *parts;
    size_t n;
};

/* What one [[route.counter]] adds to a field: amount, or the value at the path. */
struct mapping_amount {
    const char *name; /* of the field */
    int64_t amount;
    struct path path; /* n == 0: amount */
    bool has_type;    /* of the route's types, for this very path */
    enum value_type type;
};

struct mapping_counter {
    struct mapping_key filter;
    struct mapping_amount *amounts;
    size_t n_amounts;
};

struct mapping_type {
    struct path path;
    enum value_type type;
};

struct mapping_rename {
    struct path from, to;
};

struct mapping_set {
    struct path to;
    struct json_t *constant; /* NULL: pick, which is no value path */
    struct pick pick;
};

struct mapping_paths {
    struct path *items;
    size_t n;
};

/* One [[route.invalidate]]. */
struct mapping_tell {
    const struct config_invalidate *config;
    struct template *name, *payload; /* the channel or stream, and what is said there */
    struct template **keys;
    size_t n_keys;
    char **patterns; /* monsqlize: finished bodies */
    size_t n_patterns;
};

enum mapping_order_by { ORDER_BY_PICK, ORDER_BY_DEDUP, ORDER_BY_PARTITION };

struct mapping {
    const struct config_route *route;
    struct mapping_env env; /* a copy: its texts are borrowed, the struct is not */
    struct payload_rule payload;

    struct mapping_key dedup;
    /* The key by which a document is found in the route's collection: the dedup key, or, with
     * [route.entity], that. Its parts are in the document. */
    const struct mapping_key *own;

    struct mapping_key entity; /* [route.entity] */
    struct pick operation;     /* [route.operation] */
    bool has_operation;        /* the record says what it does */
    struct mapping_counter *counters;
    size_t n_counters;
    struct mapping_key group; /* [route.sequence] */
    struct sequence_text *sequence_text;
    struct template *lock; /* [route.lock]; NULL: none */

    enum mapping_order_by order_by;
    struct pick order;

    struct mapping_type *types;
    size_t n_types;
    struct mapping_paths include, exclude;
    struct mapping_rename *renames;
    size_t n_renames;
    struct mapping_set *sets;
    size_t n_sets;
    struct path under, source_fields; /* n == 0: off */
    bool shaped;                      /* the document is not simply the payload */
    bool adds;                        /* what is not the payload's own may be in the document */
    const char *conflict_field;       /* NULL: no check */
    size_t max_notes;                 /* of one record */

    struct mapping_tell *tells;
    size_t n_tells;
    bool tells_payload; /* some template needs the payload */
};

/* One record on its way to a document. */
struct mapping_work {
    const struct mapping *m;
    struct record *r;
    struct json_t *tree; /* the document so far; a reference of its own */
    struct json_bson_note *notes;
    size_t n_notes;
    uint8_t hash[CANONICAL_HASH_BYTES]; /* of the payload, once hashed is set */
    bool hashed;
};

/* mapping_value.c */
/* The number, or other scalar that JSON has no word for. False: it is a text, boolean, null, object
 * or array, or nothing that has one value. */
bool mapping_scalar(const struct record *r, const struct json_t *node, bson_value_t *out);
/* node is neither null nor missing, and type's path leads to it. As types_convert(). */
enum types_fit mapping_convert(const struct mapping *m, const struct record *r,
                               const struct mapping_type *type, const struct json_t *node,
                               struct typed *out, const char **why);
/* MongoDB takes no regular expression and no undefined as an _id (code 53, measured). */
bool mapping_type_fits_id(const struct record *r, const struct json_t *id);
/* Would an insert store another document? It does for Timestamp(0, 0) at the top, except in _id; an
 * upsert does not (measured on 6.0.5). */
bool mapping_insert_changes(const struct mapping_work *w);

/* mapping.c: the hash of what w->tree is now. */
void mapping_hash_payload(struct mapping_work *w);

/* mapping_key.c */
bool mapping_dedup_new(struct mapping *m, struct err *e) MUST_CHECK;
bool mapping_key_fields(const struct mapping *m, struct mapping_key *key,
                        const struct config_list *sources, const struct config_list *fields,
                        struct err *e) MUST_CHECK;
bool mapping_key_id(const struct mapping *m, struct mapping_key *key,
                    const struct config_list *sources, enum mapping_key_form form,
                    struct err *e) MUST_CHECK;
bool mapping_key_pairs(const struct mapping *m, struct mapping_key *key,
                       const struct config_pairs *pairs, struct err *e) MUST_CHECK;
void mapping_key_clear(struct mapping_key *key);
/* Appends the filter to an empty document; r->json is parsed, or NULL for a tombstone. False: the
 * key is not usable; r is rejected when `reject` is set. */
bool mapping_key_filter(const struct mapping *m, const struct mapping_key *key, struct record *r,
                        bson_t *filter, bool reject);

/* mapping_effects.c */
bool mapping_effects_new(struct mapping *m, struct err *e) MUST_CHECK;
void mapping_effects_free(struct mapping *m);
/* out->effects, where the route has some. False: r is rejected. */
bool mapping_effects(const struct mapping *m, struct record *r, enum effect_action action,
                     struct write_op *out);
/* out->lock, and the fence of out->effects, where the route has them. False: r is rejected. */
bool mapping_lock(const struct mapping *m, struct record *r, struct write_op *out);
/* What the record does. False: it is rejected. */
bool mapping_action(const struct mapping *m, struct record *r, enum effect_action *out);

/* mapping_shape.c */
bool mapping_shape_new(struct mapping *m, struct err *e) MUST_CHECK;
void mapping_shape_free(struct mapping *m);
/* w->tree becomes the document's tree, with w->notes. False: r is rejected. */
bool mapping_shape(struct mapping_work *w);
/* mapping_tell.c */
bool mapping_tell_new(struct mapping *m, struct err *e) MUST_CHECK;
void mapping_tell_free(struct mapping *m);

#endif
