/*
 * The way of one record: parse, dedup key to filter, shape (mapping_shape.c has the order of its
 * steps), checks of _id, one walk from the tree to BSON, checks of depth and size.
 */
#include <jansson.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "core/canonical.h"
#include "core/log_doc.h"
#include "core/look.h"
#include "core/mapping_private.h"
#include "core/payload.h"

/*
 * Document and filter together. MongoDB takes documents of 16 MiB; a command may be 16 KiB larger,
 * and our {q, u: {$setOnInsert}, upsert} wrapper and the server's own _id fit into the 1 KiB that
 * is kept back. A key in _id counts twice: the server's operation log names it beside the document
 * (measured: 10334 for a document of 16 MiB with an _id of 5 MB).
 */
enum { MAX_BYTES = 16 * 1024 * 1024 - 1024 };

/* --- making one --- */

static bool order_new(struct mapping *m, struct err *e)
{
    const char *by = m->route->order_by;

    if (strcmp(by, "@dedup") == 0)
        m->order_by = ORDER_BY_DEDUP;
    else if (strcmp(by, "@partition") == 0)
        m->order_by = ORDER_BY_PARTITION;
    else if (!pick_init(&m->order, by, e))
        return err_wrap(e, "order_by");
    else if (m->order.kind != PICK_VALUE && m->order.kind != PICK_KEY &&
             m->order.kind != PICK_HEADER)
        return err_set(
            e, ERR_CONFIG, 0,
            "order_by: \"%s\" is none of @key, @dedup, @partition, @header.NAME and a value path",
            by);
    return true;
}

static bool payload_new(struct mapping *m, struct err *e)
{
    m->payload.format = m->route->format;
    if (payload_has_fields(m->payload.format))
        return true;
    return path_init(&m->payload.field, m->route->value_field, e) || err_wrap(e, "value_field");
}

struct mapping *mapping_new(const struct config_route *route, const struct mapping_env *env,
                            struct err *e)
{
    struct mapping *m = mem_new(sizeof(*m));

    m->route = route;
    if (route->dedup.conflict != CONFLICT_OFF)
        m->conflict_field = route->dedup.conflict_field;
    if (env != NULL)
        m->env = *env;
    m->own = &m->dedup;
    if (payload_new(m, e) && mapping_dedup_new(m, e) && order_new(m, e) &&
        mapping_effects_new(m, e) && mapping_shape_new(m, e) && mapping_tell_new(m, e))
        return m;
    mapping_free(m);
    return NULL;
}

void mapping_free(struct mapping *m)
{
    if (m == NULL)
        return;
    mapping_tell_free(m);
    mapping_shape_free(m);
    mapping_effects_free(m);
    mapping_key_clear(&m->dedup);
    pick_clear(&m->order);
    path_clear(&m->payload.field);
    mem_free(m);
}

void write_op_clear(struct write_op *op)
{
    bson_destroy(op->filter);
    bson_destroy(op->document);
    effects_free(op->effects);
    mem_free(op->lock);
    op->filter = op->document = NULL;
    op->lock = NULL;
    op->effects = NULL;
}

/* --- the ordering key --- */

/* The slot is hashed and not a seed: of short keys a difference of seeds cancels one of the bytes,
 * and verify knows a lane by its hash alone. */
static void order_is(struct record *r, enum order_space space, struct slice key)
{
    const uint64_t lane[] = {XXH3_64bits(key.ptr, key.len), (uint64_t)space << 32 | r->slot};

    r->order_space = space;
    r->order_key = key;
    r->order_hash = XXH3_64bits(lane, sizeof lane);
}

/* What is not the record's own bytes is kept with it. */
static void order_owns(struct record *r, enum order_space space, const void *bytes, size_t len)
{
    r->order_owned = mem_text_n(bytes, len);
    order_is(r, space, slice_of(r->order_owned, len));
}

static void order_by_dedup(const struct mapping *m, struct record *r)
{
    bson_t filter = BSON_INITIALIZER;
    bool tombstone = r->value.ptr == NULL;

    if (!tombstone && payload_parse(r, &m->payload, false) &&
        mapping_key_filter(m, &m->dedup, r, &filter, false))
        order_owns(r, ORDER_DEDUP, bson_get_data(&filter), filter.len);
    else
        order_is(r, ORDER_NONE, slice_of(&r->offset, sizeof(r->offset)));
    bson_destroy(&filter);
}

static void order_by_number(struct record *r, char kind, int64_t i, double d)
{
    struct {
        char kind[8]; /* no padding */
        int64_t i;
        double d;
    } number = {.kind = {kind}, .i = i, .d = d};

    order_owns(r, ORDER_VALUE, &number, sizeof(number));
}

/* What is no whole number: a fraction, a date, an ObjectId, binary, as the BSON of a document that
 * holds it. */
static void order_by_value(struct record *r, const bson_value_t *value)
{
    bson_t holder = BSON_INITIALIZER;

    MUST(bson_append_value(&holder, "", 0, value));
    order_owns(r, ORDER_VALUE, bson_get_data(&holder), holder.len);
    bson_destroy(&holder);
}

static void order_by_text(struct record *r, const json_t *text)
{
    size_t len = json_string_length(text);
    char *bytes = mem_grow(NULL, len + 1, 1);

    bytes[0] = 's';
    memcpy(bytes + 1, json_string_value(text), len);
    r->order_owned = bytes;
    order_is(r, ORDER_VALUE, slice_of(bytes, len + 1));
}

/* A scalar as its kind and its bytes, equal numbers as equal bytes. False: it is none, or null. */
static bool order_by_node(struct record *r, const json_t *node)
{
    bson_value_t value = {0}, canonical = {0};
    int64_t i;

    if (json_is_string(node)) {
        order_by_text(r, node);
        return true;
    }
    if (json_is_boolean(node)) {
        order_by_number(r, 'b', json_is_true(node), 0);
        return true;
    }
    if (!mapping_scalar(r, node, &value))
        return false;
    if (value.value_type == BSON_TYPE_DECIMAL128) {
        types_canonical_decimal(&value.value.v_decimal128, &canonical);
        value = canonical;
    }
    if (value.value_type == BSON_TYPE_INT32)
        order_by_number(r, 'i', value.value.v_int32, 0);
    else if (value.value_type == BSON_TYPE_INT64)
        order_by_number(r, 'i', value.value.v_int64, 0);
    else if (value.value_type != BSON_TYPE_DOUBLE)
        order_by_value(r, &value);
    else if (types_exact_integer(value.value.v_double, &i))
        order_by_number(r, 'i', i, 0);
    else
        order_by_number(r, 'd', 0, value.value.v_double);
    return true;
}

static bool order_by_pick(const struct mapping *m, struct record *r)
{
    struct slice bytes;
    json_t *node;

    if (m->order.kind == PICK_VALUE)
        return payload_parse(r, &m->payload, false) &&
               path_get(&m->order.path, r->json, &node) == PATH_FOUND && order_by_node(r, node);
    if (!pick_bytes(&m->order, r, &bytes))
        return false;
    order_is(r, m->order.kind == PICK_KEY ? ORDER_KEY : ORDER_VALUE, bytes);
    return true;
}

bool mapping_order_value(const struct mapping *m, const struct record *r, bson_t *out)
{
    const char *name = m->route->order_by;
    bson_value_t value = {0};
    json_t *node;

    if (r->order_space != ORDER_VALUE || m->order.kind != PICK_VALUE || !r->json ||
        path_get(&m->order.path, r->json, &node) != PATH_FOUND)
        return false;
    if (json_is_string(node))
        return bson_append_utf8(out, name, -1, json_string_value(node),
                                (int)json_string_length(node));
    if (json_is_boolean(node))
        return bson_append_bool(out, name, -1, json_is_true(node));
    return mapping_scalar(r, node, &value) && bson_append_value(out, name, -1, &value);
}

bool mapping_order_parses(const struct mapping *m, const struct record *r)
{
    struct slice bytes;

    if (m->order_by == ORDER_BY_PARTITION || r->json != NULL)
        return false;
    return m->order_by == ORDER_BY_DEDUP || m->order.kind == PICK_VALUE ||
           !pick_bytes(&m->order, r, &bytes);
}

/*
 * A tree may wait with its record for long, so the budget must know of all of it, and a large one
 * (some 300 values) doesn't wait at all: mapping_build() parses again.
 */
enum { TREE_KEPT_MAX = 64 * 1024 };

static void keep_or_release(const struct mapping *m, struct record *r)
{
    size_t bytes = payload_tree_bytes(r->value, TREE_KEPT_MAX) + values_memory(r->values);

    if (m->payload.format == FORMAT_BSON || bytes > TREE_KEPT_MAX) /* BSON has no brackets */
        payload_release(r);
    else
        r->bytes += bytes;
}

void mapping_order(const struct mapping *m, struct record *r)
{
    bool parsed = r->json != NULL;

    mem_free(r->order_owned);
    r->order_owned = NULL;
    if (m->order_by == ORDER_BY_PARTITION)
        order_is(r, ORDER_PARTITION, slice_of("", 0));
    else if (m->order_by == ORDER_BY_DEDUP || !order_by_pick(m, r))
        order_by_dedup(m, r);
    if (r->order_owned != NULL)
        r->bytes += r->order_key.len;
    if (r->json != NULL && !parsed)
        keep_or_release(m, r);
}

/* --- the write --- */

/* MongoDB refuses names that begin with $ at any depth of _id (code 52, measured). */
static bool has_dollar_name(json_t *node, unsigned level)
{
    if (level > JSON_BSON_LEVELS)
        return false; /* too deep, which to_document() says */
    if (json_is_array(node)) {
        for (size_t i = 0; i < json_array_size(node); i++) {
            if (has_dollar_name(json_array_get(node, i), level + 1))
                return true;
        }
    }
    if (!json_is_object(node))
        return false;
    for (void *i = json_object_iter(node); i != NULL; i = json_object_iter_next(node, i)) {
        if (json_object_iter_key(i)[0] == '$' ||
            has_dollar_name(json_object_iter_value(i), level + 1))
            return true;
    }
    return false;
}

/* The payload's own _id is stored as it is, or the record is refused; it is never replaced. */
static bool id_is_usable(const struct mapping_work *w)
{
    const struct mapping_key *own_key = w->m->own;
    json_t *id = json_object_get(w->tree, "_id");
    json_t *source = NULL;

    if (id == NULL)
        return true;
    if (own_key->form != MAPPING_KEY_FIELDS) {
        const struct mapping_part *part = &own_key->parts[0];
        bool own = own_key->n == 1 && part->pick.kind == PICK_VALUE &&
                   path_get(&part->pick.path, w->r->json, &source) == PATH_FOUND && source == id;
        if (!own)
            record_reject(w->r, REASON_UNSAFE_NAME, 0,
                          "the document has an _id of its own, where the dedup key goes (exclude "
                          "or rename it)");
        if (!own)
            record_reject_at(w->r, "_id");
        return own;
    }
    if (json_is_array(id) || has_dollar_name(id, 2) || !mapping_type_fits_id(w->r, id)) {
        record_reject(
            w->r, REASON_UNSAFE_NAME, 0,
            "MongoDB takes no _id that is an array, a regular expression or undefined, or "
            "holds names that begin with $");
        record_reject_at(w->r, "_id");
        return false;
    }
    return true;
}

/* Nothing in the document is there twice, and nothing of the payload is taken for the hash. */
static bool hash_has_place(const struct mapping_work *w)
{
    const char *field = w->m->conflict_field;

    if (field == NULL || json_object_get(w->tree, field) == NULL)
        return true;
    record_reject(w->r, REASON_UNSAFE_NAME, 0,
                  "the document has a field \"%s\" of its own, where dedup.conflict_field goes "
                  "(exclude or rename it, or choose another conflict_field)",
                  field);
    return false;
}

/* Nor for the number of the fence, which the document gets once its lock is there. */
static bool fence_has_place(const struct mapping_work *w)
{
    const char *field = w->m->route->lock.fence_field;

    if (!config_has_fence(w->m->route) || field == NULL || json_object_get(w->tree, field) == NULL)
        return true;
    record_reject(w->r, REASON_UNSAFE_NAME, 0,
                  "the document has a field \"%s\" of its own, where lock.fence_field goes "
                  "(exclude or rename it, or choose another fence_field)",
                  field);
    return false;
}

/* Nor for the number of a sequence and its text. */
static bool number_has_place(const struct mapping_work *w)
{
    const struct config_sequence *q = &w->m->route->sequence;
    const char *names[] = {q->field, w->m->sequence_text ? q->template_field : NULL};
    static const char *const keys[] = {"field", "template_field"};

    for (size_t i = 0; config_has_sequence(w->m->route) && i < 2; i++) {
        if (names[i] == NULL || json_object_get(w->tree, names[i]) == NULL)
            continue;
        record_reject(w->r, REASON_UNSAFE_NAME, 0,
                      "the document has a field \"%s\" of its own, where sequence.%s goes "
                      "(exclude or rename it, or choose another %s)",
                      names[i], keys[i], keys[i]);
        record_reject_at(w->r, names[i]);
        return false;
    }
    return true;
}

/* Nor for what the way without transactions writes beside it (log_doc.h), whatever the way is now:
 * it may be another one tomorrow. */
static bool steps_have_place(const struct mapping_work *w)
{
    const struct config_route *route = w->m->route;
    bool operation = config_has_operation(route) || route->beside_operation;
    bool effects = operation || log_has_effects(route) || route->beside_counters;
    static const char *const names[] = {LOG_EFFECTS, LOG_BY, LOG_REMOVED_BY};

    for (size_t i = 0; effects && i < (operation ? 3u : 1u); i++) {
        if (json_object_get(w->tree, names[i]) == NULL)
            continue;
        record_reject(w->r, REASON_UNSAFE_NAME, 0,
                      "the document has a field \"%s\" of its own, where effects without "
                      "transactions write down how far they are (exclude or rename it)",
                      names[i]);
        record_reject_at(w->r, names[i]);
        return false;
    }
    return true;
}

/* What is put into the document once it is built: name, type and value of each. */
static size_t bytes_behind(const struct mapping *m, const struct effects *f)
{
    const struct config_route *route = m->route;
    size_t bytes = 0;

    if (m->conflict_field != NULL)
        bytes += strlen(m->conflict_field) + 7 + CANONICAL_HASH_BYTES;
    if (config_has_fence(route) && route->lock.fence_field != NULL)
        bytes += strlen(route->lock.fence_field) + 10;
    if (f != NULL && f->number != NULL)
        bytes += strlen(route->sequence.field) + 10;
    if (f != NULL && f->number != NULL && f->number->before != NULL)
        bytes += strlen(route->sequence.template_field) + strlen(f->number->before) +
                 strlen(f->number->behind) + 27; /* a number has 20 at most */
    return bytes;
}

static struct json_bson_in bson_in(const struct mapping_work *w)
{
    return (struct json_bson_in){.root = w->tree,
                                 .notes = w->notes,
                                 .n_notes = w->n_notes,
                                 .values = w->r->values,
                                 .skip_id = w->m->own->form != MAPPING_KEY_FIELDS,
                                 .drop_nulls = w->m->route->drop_nulls};
}

/*
 * The payload's own part: with types, include, exclude, rename and under, but without set,
 * source_fields and what the dedup key brings, which differ from delivery to delivery (an offset)
 * or with the configuration. Too deep or too large a one is refused with its document.
 */
void mapping_hash_payload(struct mapping_work *w)
{
    struct json_bson_in in = bson_in(w);
    bson_t *payload;
    bool odd_names;

    if (json_bson_build(&in, MAX_BYTES, &payload, &odd_names) != JSON_BSON_OK)
        return;
    w->hashed = canonical_hash(payload, w->hash);
    bson_destroy(payload);
}

static void add_hash(struct mapping_work *w, bson_t *document)
{
    if (!w->hashed)
        MUST(canonical_hash(document, w->hash));
    MUST(bson_append_binary(document, w->m->conflict_field, -1, BSON_SUBTYPE_BINARY, w->hash,
                            CANONICAL_HASH_BYTES));
}

static bool to_document(struct mapping_work *w, struct write_op *out)
{
    struct json_bson_in in = bson_in(w);
    bool in_id = w->m->own->form != MAPPING_KEY_FIELDS;
    size_t used = (size_t)out->filter->len * (in_id ? 2 : 1);
    bool odd_names;

    used += bytes_behind(w->m, out->effects);
    switch (
        json_bson_build(&in, used < MAX_BYTES ? MAX_BYTES - used : 0, &out->document, &odd_names)) {
    case JSON_BSON_TOO_DEEP:
        record_reject(w->r, REASON_TOO_DEEP, 0, "the document has more than %d levels",
                      JSON_BSON_LEVELS);
        return false;
    case JSON_BSON_TOO_LARGE:
        record_reject(w->r, REASON_TOO_LARGE, 0,
                      "document and dedup key together have more than %d bytes of BSON", MAX_BYTES);
        return false;
    case JSON_BSON_OK:
        break;
    }
    if (w->m->conflict_field != NULL)
        add_hash(w, out->document);
    out->kind = odd_names || w->m->route->write != WRITE_UPSERT || config_has_effects(w->m->route)
                    ? WRITE_KIND_INSERT
                    : WRITE_KIND_UPSERT;
    if (out->kind == WRITE_KIND_INSERT && mapping_insert_changes(w)) {
        record_reject(w->r, REASON_UNSAFE_NAME, 0,
                      "MongoDB puts its own time where a timestamp of zeros stands at the top of a "
                      "document that is inserted (write = \"upsert\" would store it)");
        return false;
    }
    if (out->kind == WRITE_KIND_INSERT && in_id) /* it has no filter that brings _id */
        MUST(bson_concat(out->document, out->filter));
    return true;
}

static enum mapping_verdict no_value(const struct mapping *m, struct record *r)
{
    if (m->route->tombstone == TOMBSTONE_SKIP)
        return MAPPING_SKIP;
    record_reject(r, REASON_TOMBSTONE, 0,
                  "the record has no value, and tombstone = \"dead_letter\"");
    return MAPPING_REJECTED;
}

static bool build_document(struct mapping_work *w, struct write_op *out)
{
    return mapping_shape(w) && id_is_usable(w) && hash_has_place(w) && fence_has_place(w) &&
           number_has_place(w) && steps_have_place(w) && to_document(w, out);
}

static bool build(struct mapping_work *w, struct write_op *out)
{
    enum effect_action action;
    bool ok;

    *out = (struct write_op){.filter = bson_new()};
    ok = mapping_key_filter(w->m, &w->m->dedup, w->r, out->filter, true) &&
         mapping_action(w->m, w->r, &action) && mapping_effects(w->m, w->r, action, out) &&
         mapping_lock(w->m, w->r, out);
    if (ok && action == EFFECT_DELETE)
        out->document = bson_new();
    else
        ok = ok && build_document(w, out);
    if (!ok)
        write_op_clear(out);
    return ok;
}

enum mapping_verdict mapping_build(const struct mapping *m, struct record *r, struct write_op *out)
{
    enum { FEW = 16 };
    struct json_bson_note few[FEW];
    struct mapping_work w = {.m = m, .r = r};

    if (r->value.ptr == NULL && m->route->tombstone != TOMBSTONE_DELETE)
        return no_value(m, r);
    if (r->value.ptr != NULL && !payload_parse(r, &m->payload, true))
        return MAPPING_REJECTED;
    w.notes = m->max_notes <= FEW ? few : mem_array(m->max_notes, sizeof(*w.notes));

    bool ok = build(&w, out);

    for (size_t i = 0; i < w.n_notes; i++)
        typed_clear(&w.notes[i].typed);
    if (w.notes != few)
        mem_free(w.notes);
    json_decref(w.tree);
    payload_release(r); /* nothing waits with a tree of several times its size */
    return ok ? MAPPING_WRITE : MAPPING_REJECTED;
}

/* --- back from a document --- */

bool mapping_without_hash(const struct mapping *m, const bson_t *document, bson_t *rest)
{
    const char *field = m->route->dedup.conflict_field;
    uint8_t hash[CANONICAL_HASH_BYTES];

    if (field == NULL || !look_hash(document, field, hash))
        return false;
    bson_init(rest);
    bson_copy_to_excluding_noinit(document, rest, field, NULL);
    return true;
}

/* The names that number_has_place(), fence_has_place() and steps_have_place() keep free. */
static bool is_of_effects(const struct config_route *r, const char *name)
{
    bool operation = config_has_operation(r);
    const char *const names[] = {r->sequence.field,         r->sequence.template_field,
                                 r->lock.fence_field,       log_has_effects(r) ? LOG_EFFECTS : NULL,
                                 operation ? LOG_BY : NULL, operation ? LOG_REMOVED_BY : NULL};

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (names[i] && *names[i] && strcmp(names[i], name) == 0)
            return true;
    return false;
}

static bool is_beside(const struct config_route *a, const struct config_route *b)
{
    return strcmp(a->database, b->database) == 0 && strcmp(a->collection, b->collection) == 0;
}

bool mapping_without_effects(const struct config *c, const struct config_route *r,
                             const bson_t *document, bson_t *rest)
{
    const struct config_route *routes = c->routes;
    bool any = false;
    bson_iter_t it;

    for (size_t i = 0; i < c->n_routes; i++)
        any = any || (is_beside(r, &routes[i]) && config_has_effects(&routes[i]));
    if (!any || !bson_iter_init(&it, document))
        return false;
    bson_init(rest);
    while (bson_iter_next(&it)) {
        bool ours = false;

        for (size_t i = 0; i < c->n_routes; i++)
            ours =
                ours || (is_beside(r, &routes[i]) && is_of_effects(&routes[i], bson_iter_key(&it)));
        if (!ours)
            MUST(bson_append_iter(rest, NULL, 0, &it));
    }
    return true;
}

bool mapping_key_of_document(const struct mapping *m, const bson_t *document, bson_t *filter)
{
    bson_iter_t top, at;

    if (m->own->form != MAPPING_KEY_FIELDS)
        return bson_iter_init_find(&top, document, "_id") && canonical_append(filter, "_id", &top);
    for (size_t i = 0; i < m->own->n; i++) {
        const struct path *p = &m->own->parts[i].place;

        if (!bson_iter_init_find(&at, document, p->names[0]))
            return false;
        for (size_t n = 1; n < p->n; n++) {
            bson_iter_t child;

            if (!BSON_ITER_HOLDS_DOCUMENT(&at) || !bson_iter_recurse(&at, &child) ||
                !bson_iter_find(&child, p->names[n]))
                return false;
            at = child;
        }
        if (!canonical_append(filter, m->own->parts[i].name, &at))
            return false;
    }
    return true;
}
