/*
 * From the payload to the tree of the document. The order is fixed:
 *
 *   types          paths are the payload's own, whatever happens to them afterwards
 *   include        only these paths stay
 *   exclude        these go
 *   rename         all are taken out, then all are put in: two may swap
 *   under          everything so far goes below one field
 *                  (dedup.conflict: here the hash of the payload is made)
 *   set            constants and @sources
 *   source_fields  where the record came from
 *   dedup fields   parts of the dedup key that the document does not hold yet
 *
 * Nothing that is put in replaces something that is there: that would change what was sent without
 * a word. It is unsafe_name; who wants to overwrite a field excludes it first.
 */
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "core/mapping_private.h"
#include "core/payload.h"

#if !JSON_HAVE_ATOMIC_BUILTINS && !JSON_HAVE_SYNC_BUILTINS
#error "jansson without atomic reference counts: the constants of set are shared by all workers"
#endif

/* --- compiling --- */

static bool paths_new(struct mapping_paths *paths, const struct config_list *list, const char *what,
                      struct err *e)
{
    paths->items = mem_array(list->n, sizeof(*paths->items));
    for (; paths->n < list->n; paths->n++) {
        if (!path_init(&paths->items[paths->n], list->items[paths->n], e))
            return err_wrap(e, what);
    }
    return true;
}

/* "a" and "a.b" together: one of them was not meant. */
static bool paths_apart(const struct mapping_paths *paths, const char *what, struct err *e)
{
    for (size_t i = 0; i < paths->n; i++) {
        for (size_t j = 0; j < paths->n; j++) {
            if (i != j && path_is_prefix(&paths->items[i], &paths->items[j]))
                return err_set(e, ERR_CONFIG, 0, "%s: \"%s\" covers \"%s\"", what,
                               paths->items[i].text, paths->items[j].text);
        }
    }
    return true;
}

static bool types_new(struct mapping *m, struct err *e)
{
    const struct config_pairs *pairs = &m->route->types;

    m->types = mem_array(pairs->n, sizeof(*m->types));
    for (; m->n_types < pairs->n; m->n_types++) {
        const struct config_pair *pair = &pairs->items[m->n_types];
        struct mapping_type *type = &m->types[m->n_types];

        if (!types_parse(pair->value, &type->type))
            return err_set(e, ERR_CONFIG, 0, "types.\"%s\": \"%s\" is none of %s", pair->name,
                           pair->value, types_names());
        if (!path_init(&type->path, pair->name, e))
            return err_wrap(e, "types");
    }
    return true;
}

static bool renames_new(struct mapping *m, struct err *e)
{
    const struct config_pairs *pairs = &m->route->rename;

    m->renames = mem_array(pairs->n, sizeof(*m->renames));
    for (; m->n_renames < pairs->n; m->n_renames++) {
        const struct config_pair *pair = &pairs->items[m->n_renames];
        struct mapping_rename *rename = &m->renames[m->n_renames];

        if (!path_init(&rename->from, pair->name, e))
            return err_wrap(e, "rename");
        if (!path_init(&rename->to, pair->value, e)) {
            path_clear(&rename->from);
            return err_wrap(e, "rename");
        }
    }
    for (size_t i = 0; i < m->n_renames; i++) {
        for (size_t j = 0; j < m->n_renames; j++) {
            if (i != j && path_is_prefix(&m->renames[i].from, &m->renames[j].from))
                return err_set(e, ERR_CONFIG, 0, "rename: \"%s\" covers \"%s\"",
                               m->renames[i].from.text, m->renames[j].from.text);
        }
    }
    return true;
}

static bool sets_new(struct mapping *m, struct err *e)
{
    const struct config_pairs *pairs = &m->route->set;

    m->sets = mem_array(pairs->n, sizeof(*m->sets));
    for (; m->n_sets < pairs->n; m->n_sets++) {
        const struct config_pair *pair = &pairs->items[m->n_sets];
        struct mapping_set *set = &m->sets[m->n_sets];

        if (pair->value[0] != '@')
            set->constant = json_loads(
                pair->value, JSON_DECODE_ANY | JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (pair->value[0] != '@' && set->constant == NULL)
            return err_set(e, ERR_CONFIG, 0, "set: \"%s\" is neither JSON nor an @source",
                           pair->name);
        if (set->constant == NULL && !pick_init(&set->pick, pair->value, e))
            return err_wrap(e, "set");
        if (!path_init(&set->to, pair->name, e)) {
            json_decref(set->constant);
            pick_clear(&set->pick);
            return err_wrap(e, "set");
        }
    }
    return true;
}

static bool field_new(struct path *p, const char *text, const char *what, struct err *e)
{
    if (text == NULL || text[0] == '\0')
        return true;
    return path_init(p, text, e) || err_wrap(e, what);
}

static void settle_flags(struct mapping *m)
{
    bool moved = m->include.n > 0 || m->exclude.n > 0 || m->n_renames > 0 || m->under.n > 0;

    m->shaped = moved || m->n_sets > 0 || m->source_fields.n > 0;
    m->adds = m->n_sets > 0 || m->source_fields.n > 0;
    for (size_t i = 0; i < m->own->n && m->own->form == MAPPING_KEY_FIELDS; i++) {
        struct mapping_part *part = &m->own->parts[i];

        part->in_place =
            !moved && part->pick.kind == PICK_VALUE && strcmp(part->text, part->place.text) == 0;
        m->shaped = m->shaped || !part->in_place;
        m->adds = m->adds || !part->in_place;
    }
    m->max_notes =
        m->n_types + m->n_sets + m->own->n + 2; /* 2: key and timestamp of source_fields */
}

bool mapping_shape_new(struct mapping *m, struct err *e)
{
    const struct config_route *route = m->route;

    if (!types_new(m, e) || !paths_new(&m->include, &route->include, "include", e) ||
        !paths_apart(&m->include, "include", e) ||
        !paths_new(&m->exclude, &route->exclude, "exclude", e) || !renames_new(m, e) ||
        !sets_new(m, e) || !field_new(&m->under, route->under, "under", e) ||
        !field_new(&m->source_fields, route->source_fields, "source_fields", e))
        return false;
    settle_flags(m);
    return true;
}

static void paths_free(struct mapping_paths *paths)
{
    for (size_t i = 0; i < paths->n; i++)
        path_clear(&paths->items[i]);
    mem_free(paths->items);
}

void mapping_shape_free(struct mapping *m)
{
    for (size_t i = 0; i < m->n_types; i++)
        path_clear(&m->types[i].path);
    for (size_t i = 0; i < m->n_renames; i++) {
        path_clear(&m->renames[i].from);
        path_clear(&m->renames[i].to);
    }
    for (size_t i = 0; i < m->n_sets; i++) {
        path_clear(&m->sets[i].to);
        pick_clear(&m->sets[i].pick);
        json_decref(m->sets[i].constant);
    }
    mem_free(m->types);
    mem_free(m->renames);
    mem_free(m->sets);
    paths_free(&m->include);
    paths_free(&m->exclude);
    path_clear(&m->under);
    path_clear(&m->source_fields);
}

/* --- one record --- */

static struct typed *add_note(struct mapping_work *w, const json_t *node)
{
    MUST(w->n_notes < w->m->max_notes);

    struct json_bson_note *note = &w->notes[w->n_notes++];
    note->node = node;
    note->typed.owned = NULL;
    return &note->typed;
}

/* Is it written as something else than it seems? */
static bool has_note(const struct mapping_work *w, const json_t *node)
{
    if (values_get(w->r->values, node) != NULL)
        return true;
    for (size_t i = 0; i < w->n_notes; i++) {
        if (w->notes[i].node == node)
            return true;
    }
    return false;
}

/* null stays null: it says that there is no such value. */
static bool note_type(struct mapping_work *w, const struct mapping_type *type)
{
    struct record *r = w->r;
    const char *why;
    json_t *node;

    switch (path_get(&type->path, r->json, &node)) {
    case PATH_MISSING:
        return true;
    case PATH_IN_ARRAY:
        record_reject(r, REASON_TYPE_CONVERSION, 0, "types: \"%s\" runs through an array",
                      type->path.text);
        record_reject_at(r, type->path.text);
        return false;
    case PATH_FOUND:
        break;
    }
    if (json_is_null(node))
        return true;
    switch (mapping_convert(w->m, r, type, node, add_note(w, node), &why)) {
    case TYPES_CONVERTED:
        return true;
    case TYPES_SAME:
        w->n_notes--;
        return true;
    case TYPES_REFUSED:
        break;
    }
    w->n_notes--;
    record_reject(r, REASON_TYPE_CONVERSION, 0, "\"%s\" must be %s", type->path.text, why);
    record_reject_at(r, type->path.text);
    return false;
}

static bool put(struct mapping_work *w, const struct path *to, json_t *value, const char *what)
{
    if (path_put(to, w->tree, value))
        return true;
    record_reject(w->r, REASON_UNSAFE_NAME, 0,
                  "%s: \"%s\" can't be put where the payload has something already (exclude it or "
                  "choose another place)",
                  what, to->text);
    if (w->m->under.n == 0)
        record_reject_at(w->r, to->text);
    return false;
}

/* value's reference is used up; NULL is nothing to put. */
static bool put_new(struct mapping_work *w, const struct path *to, json_t *value, const char *what)
{
    bool ok = value == NULL || put(w, to, value, what);

    json_decref(value);
    return ok;
}

static bool keep_included(struct mapping_work *w)
{
    json_t *node;

    w->tree = json_object();
    for (size_t i = 0; i < w->m->include.n; i++) {
        const struct path *p = &w->m->include.items[i];

        if (path_get(p, w->r->json, &node) == PATH_FOUND && !put(w, p, node, "include"))
            return false;
    }
    return true;
}

static bool rename_all(struct mapping_work *w)
{
    const struct mapping *m = w->m;
    json_t **taken = mem_array(m->n_renames, sizeof(void *));
    bool ok = true;

    for (size_t i = 0; i < m->n_renames; i++)
        taken[i] = path_take(&m->renames[i].from, w->tree);
    for (size_t i = 0; i < m->n_renames; i++) {
        ok = ok && (taken[i] == NULL || put(w, &m->renames[i].to, taken[i], "rename"));
        json_decref(taken[i]);
    }
    mem_free(taken);
    return ok;
}

static json_t *text_node(struct mapping_work *w, struct slice s)
{
    json_t *node;

    if (payload_is_utf8(s))
        return json_stringn_nocheck(s.ptr, s.len);

    /* A key or header of any bytes is kept, as BSON's binary. */
    node = json_stringn_nocheck("", 0);
    struct typed *typed = add_note(w, node);

    typed->owned = mem_text_n(s.ptr, s.len);
    typed->value.value_type = BSON_TYPE_BINARY;
    typed->value.value.v_binary.subtype = BSON_SUBTYPE_BINARY;
    typed->value.value.v_binary.data = typed->owned;
    typed->value.value.v_binary.data_len = (uint32_t)s.len;
    return node;
}

/* A JSON value for what a pick without a path gives; NULL: nothing is there. A new reference, with
 * a note where JSON has no such value. */
static json_t *record_node(struct mapping_work *w, const struct pick *p)
{
    struct slice bytes;
    int64_t number;
    json_t *node;

    if (pick_bytes(p, w->r, &bytes))
        return text_node(w, bytes);
    if (!pick_number(p, w->r, &number))
        return NULL;
    node = json_integer(number);
    if (p->kind == PICK_TIMESTAMP) {
        struct typed *typed = add_note(w, node);

        typed->value.value_type = BSON_TYPE_DATE_TIME;
        typed->value.value.v_datetime = number;
    }
    return node;
}

static bool set_all(struct mapping_work *w)
{
    for (size_t i = 0; i < w->m->n_sets; i++) {
        const struct mapping_set *set = &w->m->sets[i];
        json_t *node =
            set->constant != NULL ? json_incref(set->constant) : record_node(w, &set->pick);

        if (!put_new(w, &set->to, node, "set"))
            return false;
    }
    return true;
}

static json_t *source_node(struct mapping_work *w)
{
    static const struct {
        const char *name;
        enum pick_kind kind;
    } fields[] = {{"topic", PICK_TOPIC},
                  {"partition", PICK_PARTITION},
                  {"offset", PICK_OFFSET},
                  {"timestamp", PICK_TIMESTAMP},
                  {"key", PICK_KEY}};
    json_t *object = json_object();

    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        json_t *node = record_node(w, &(struct pick){.kind = fields[i].kind});

        if (node != NULL)
            json_object_set_new_nocheck(object, fields[i].name, node);
    }
    return object;
}

static json_t *dedup_node(struct mapping_work *w, const struct pick *p)
{
    json_t *node = NULL;

    if (p->kind == PICK_VALUE)
        return path_get(&p->path, w->r->json, &node) == PATH_FOUND ? json_incref(node) : NULL;
    if (p->kind == PICK_OFFSET) /* the same fields in the same order as in the filter */
        return json_pack("{s:s, s:I, s:I}", "topic", w->r->topic, "partition",
                         (json_int_t)w->r->partition, "offset", (json_int_t)w->r->offset);
    return record_node(w, p);
}

/* The document must hold exactly the key's value at the dedup field: MongoDB stores the document's
 * without a word when it differs from the filter's (measured), and the event would be found under
 * another key. */
static bool place_part(struct mapping_work *w, const struct mapping_part *part)
{
    json_t *node = dedup_node(w, &part->pick), *there;
    bool ok;

    if (node != NULL && path_get(&part->place, w->tree, &there) == PATH_FOUND) {
        ok =
            there == node || (json_equal(there, node) && !has_note(w, there) && !has_note(w, node));
        if (!ok)
            record_reject(w->r, REASON_UNSAFE_NAME, 0,
                          "the dedup field \"%s\" is there already, with another value than \"%s\"",
                          part->place.text, part->text);
        json_decref(node);
        return ok;
    }
    return put_new(w, &part->place, node, "dedup field");
}

static bool place_parts(struct mapping_work *w)
{
    const struct mapping_key *own = w->m->own;

    for (size_t i = 0; i < own->n && own->form == MAPPING_KEY_FIELDS; i++) {
        if (!own->parts[i].in_place && !place_part(w, &own->parts[i]))
            return false;
    }
    return true;
}

bool mapping_shape(struct mapping_work *w)
{
    const struct mapping *m = w->m;

    for (size_t i = 0; i < m->n_types; i++) {
        if (!note_type(w, &m->types[i]))
            return false;
    }
    if (!m->shaped) {
        w->tree = json_incref(w->r->json);
        return true;
    }
    if (m->include.n == 0)
        w->tree = json_copy(w->r->json);
    else if (!keep_included(w))
        return false;
    for (size_t i = 0; i < m->exclude.n; i++)
        json_decref(path_take(&m->exclude.items[i], w->tree));
    if (m->n_renames > 0 && !rename_all(w))
        return false;
    if (m->under.n > 0) {
        json_t *payload = w->tree;

        w->tree = json_object();
        if (!put_new(w, &m->under, payload, "under"))
            return false;
    }
    if (m->adds && m->conflict_field != NULL)
        mapping_hash_payload(w);
    return set_all(w) &&
           (m->source_fields.n == 0 ||
            put_new(w, &m->source_fields, source_node(w), "source_fields")) &&
           place_parts(w);
}
