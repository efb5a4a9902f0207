/*
 * config_route.c - a route's paths, its dedup key, and what two routes into one collection must
 * share.
 */
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"

/* --- names
 * ----------------------------------------------------------------------------------------------------------
 */

/* MongoDB's own limits: 63 bytes for a database, 255 for "database.collection". */
bool config_split_namespace(struct config_parse_state *s, char **collection, char **database)
{
    char *text = *collection, *dot = strchr(text, '.');
    size_t database_len = dot ? (size_t)(dot - text) : 0;

    if (database_len == 0 || dot[1] == '\0')
        return config_fail(s, "\"%.60s\" has to be database.collection", text);
    if (strcspn(text, "/\\ \"$*<>:|?") < database_len || database_len > 63)
        return config_fail(s,
                           "\"%.60s\" is not a database name (64 bytes or more, or one of "
                           "/\\ \"$*<>:|?)",
                           text);
    if (strchr(dot, '$') || dot[1] == '.' || strncmp(dot + 1, "system.", 7) == 0)
        return config_fail(s, "\"%.60s\" is not a collection that documents can go to", text);
    if (strlen(text) > 255)
        return config_fail(s, "is longer than 255 bytes");
    *database = mem_text_n(text, database_len);
    *collection = mem_text(dot + 1);
    mem_free(text);
    return true;
}

static bool split_collection(struct config_parse_state *s, size_t i, struct config_route *r)
{
    if (*r->name == '\0') {
        mem_free(r->name);
        r->name = mem_text(r->collection);
    }
    return config_split_namespace(config_at(s, "route.%zu.collection", i), &r->collection,
                                  &r->database);
}

static bool check_name(struct config_parse_state *s, size_t i)
{
    const struct config_route *routes = s->config->routes;
    const char *name = routes[i].name;

    config_at(s, "route.%zu.name", i);
    if (strlen(name) > 255)
        return config_fail(s, "is longer than 255 bytes");
    if (strspn(name, "0123456789") == strlen(name))
        return config_fail(s, "\"%.20s\" is a number, and --set counts routes by number", name);
    for (const char *at = name; *at; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            return config_fail(s, "has a control character");
    for (size_t j = 0; j < i; j++)
        if (strcmp(routes[j].name, name) == 0)
            return config_fail(s,
                               "two routes are called \"%.60s\" (without a name a route is called "
                               "as its collection); give one of them another name",
                               name);
    return true;
}

/* --- paths
 * ------------------------------------------------------------------------------------------------------------
 */

static bool check_paths(struct config_parse_state *s, size_t i, const char *key,
                        const struct config_list *paths, bool document)
{
    for (size_t j = 0; j < paths->n; j++) {
        const char *fault = config_path_fault(paths->items[j], document);

        if (fault)
            return config_fail(config_at(s, "route.%zu.%s.%zu", i, key, j), "\"%.60s\" %s",
                               paths->items[j], fault);
    }
    return true;
}

static bool check_optional(struct config_parse_state *s, size_t i, const char *key,
                           const char *path)
{
    const char *fault = *path ? config_path_fault(path, true) : NULL;

    return !fault || config_fail(config_at(s, "route.%zu.%s", i, key), "\"%.60s\" %s", path, fault);
}

/* "a" and "a.b" together: one of them was not meant. */
static bool check_apart(struct config_parse_state *s, size_t i, const char *key,
                        const struct config_list *paths)
{
    for (size_t j = 0; j < paths->n; j++)
        for (size_t k = 0; k < j; k++)
            if (config_paths_collide(paths->items[j], paths->items[k]))
                return config_fail(config_at(s, "route.%zu.%s.%zu", i, key, j),
                                   "\"%.60s\" and \"%.60s\": one covers the other", paths->items[j],
                                   paths->items[k]);
    return true;
}

/* What has become a date has nothing below it any more. */
static bool check_types(struct config_parse_state *s, size_t i, const struct config_pairs *types)
{
    for (size_t j = 0; j < types->n; j++)
        for (size_t k = 0; k < j; k++)
            if (config_paths_collide(types->items[j].name, types->items[k].name))
                return config_fail(config_at(s, "route.%zu.types.%s", i, types->items[j].name),
                                   "covers, or is covered by, \"%.60s\"", types->items[k].name);
    return true;
}

static bool check_rename(struct config_parse_state *s, size_t i, const struct config_route *r)
{
    for (size_t j = 0; j < r->rename.n; j++)
        for (size_t k = 0; k < j; k++)
            if (config_paths_collide(r->rename.items[j].name, r->rename.items[k].name))
                return config_fail(config_at(s, "route.%zu.rename.%s", i, r->rename.items[j].name),
                                   "covers, or is covered by, \"%.60s\"", r->rename.items[k].name);
    for (size_t j = 0; j < r->rename.n; j++)
        for (size_t k = 0; k < j; k++)
            if (config_paths_collide(r->rename.items[j].value, r->rename.items[k].value))
                return config_fail(config_at(s, "route.%zu.rename.%s", i, r->rename.items[j].name),
                                   "\"%.60s\" collides with \"%.60s\", the new path of %.60s",
                                   r->rename.items[j].value, r->rename.items[k].value,
                                   r->rename.items[k].name);
    return true;
}

static bool check_shape(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];
    const char *fault = config_source_fault(
        r->order_by, SOURCE_KEY | SOURCE_PARTITION | SOURCE_DEDUP | SOURCE_HEADER | SOURCE_PATH);

    if (fault)
        return config_fail(config_at(s, "route.%zu.order_by", i), "\"%.60s\" %s", r->order_by,
                           fault);
    if (!check_paths(s, i, "include", &r->include, false) ||
        !check_paths(s, i, "exclude", &r->exclude, false) ||
        !check_optional(s, i, "under", r->under) ||
        !check_optional(s, i, "source_fields", r->source_fields))
        return false;
    if (r->include.n > 0 && r->exclude.n > 0)
        return config_fail(config_at(s, "route.%zu.exclude", i),
                           "include says what is stored, so exclude has nothing to say; use one of "
                           "them");
    if (!check_apart(s, i, "include", &r->include) || !check_types(s, i, &r->types))
        return false;
    return check_rename(s, i, r);
}

/* What we put into the document ourselves; none of it may lie inside of another. */
struct taken {
    const char *path;
    const char *what;
    size_t part; /* of the dedup key; SIZE_MAX: none */
};

static bool check_set(struct config_parse_state *s, size_t i, const struct taken *taken, size_t n)
{
    const struct config_route *r = &s->config->routes[i];

    for (size_t j = 0; j < r->set.n; j++) {
        const char *path = r->set.items[j].name;

        config_at(s, "route.%zu.set.%s", i, path);
        if (r->dedup.into_id && config_paths_collide(path, "_id"))
            return config_fail(s, "_id is the dedup key (dedup.into = \"_id\")");
        if (strcmp(path, "_id") == 0 && r->set.items[j].value[0] != '@')
            return config_fail(s, "every document would have this one _id, and only the first "
                                  "could be stored");
        for (size_t k = 0; k < n; k++)
            if (config_paths_collide(path, taken[k].path))
                return config_fail(s, "collides with \"%.60s\", %s", taken[k].path, taken[k].what);
        for (size_t k = 0; k < j; k++)
            if (config_paths_collide(path, r->set.items[k].name))
                return config_fail(s, "collides with \"%.60s\", also in [route.set]",
                                   r->set.items[k].name);
    }
    return true;
}

/* A rename that moves a part of the dedup key to its field. */
static bool moves_key(const struct config_route *r, const struct config_pair *rename, size_t part)
{
    const char *key = r->dedup.key.items[part];
    size_t n = strlen(rename->name);
    char *place = config_document_path(r, key);
    bool same = *key != '@' && strcmp(place, r->dedup.fields.items[part]) == 0;

    mem_free(place);
    return same && strncmp(key, rename->name, n) == 0 && (key[n] == '\0' || key[n] == '.');
}

/* A rename whose target is always taken would refuse every record that it moves something of. */
static bool check_moves(struct config_parse_state *s, size_t i, const struct taken *taken, size_t n)
{
    const struct config_route *r = &s->config->routes[i];

    for (size_t j = 0; j < r->rename.n; j++) {
        const struct config_pair *p = &r->rename.items[j];
        const char *fault = NULL, *other = NULL;
        char *to = config_document_path(r, p->name);
        bool is_key = r->dedup.key.n == 1 && strcmp(r->dedup.key.items[0], p->name) == 0;

        if (r->dedup.into_id && config_paths_collide(to, "_id") &&
            !(is_key && strcmp(to, "_id") == 0)) {
            other = "_id";
            fault = "which is the dedup key (dedup.into = \"_id\")";
        }
        for (size_t k = 0; k < n && !fault; k++)
            if (taken[k].part == SIZE_MAX
                    ? config_paths_collide(to, taken[k].path)
                    : config_paths_collide(to, taken[k].path) && !moves_key(r, p, taken[k].part)) {
                other = taken[k].path;
                fault = taken[k].what;
            }
        for (size_t k = 0; k < r->set.n && !fault; k++)
            if (config_paths_collide(to, r->set.items[k].name)) {
                other = r->set.items[k].name;
                fault = "where [route.set] puts something";
            }
        mem_free(to);
        if (fault)
            return config_fail(config_at(s, "route.%zu.rename.%s", i, p->name),
                               "\"%.60s\" collides with \"%.60s\", %s", p->value, other, fault);
    }
    return true;
}

/* dedup.conflict_field: a plain name at the top of the document, where nothing else is put. */
static bool check_conflict_field(struct config_parse_state *s, size_t i, const struct taken *taken,
                                 size_t n)
{
    const struct config_route *r = &s->config->routes[i];
    const char *field = r->dedup.conflict_field;
    const char *fault = config_path_fault(field, true);

    config_at(s, "route.%zu.dedup.conflict_field", i);
    if (fault)
        return config_fail(s, "\"%.60s\" %s", field, fault);
    if (strchr(field, '.') || strcmp(field, "_id") == 0)
        return config_fail(s, "\"%.60s\" is no name of its own at the top of the document", field);
    for (size_t k = 0; k < n; k++)
        if (config_paths_collide(field, taken[k].path))
            return config_fail(s, "\"%.60s\" collides with \"%.60s\", %s", field, taken[k].path,
                               taken[k].what);
    return true;
}

/* _id holds the dedup key: nothing else of the record may be put there. */
static bool check_id(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];

    if (!r->dedup.into_id)
        return true;
    if (*r->under && config_paths_collide(r->under, "_id"))
        return config_fail(config_at(s, "route.%zu.under", i),
                           "_id is the dedup key (dedup.into = \"_id\")");
    if (*r->source_fields && config_paths_collide(r->source_fields, "_id"))
        return config_fail(config_at(s, "route.%zu.source_fields", i),
                           "_id is the dedup key (dedup.into = \"_id\")");
    return true;
}

static bool check_collisions(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];
    struct taken taken[16]; /* 8 dedup fields, under, source_fields, conflict_field */
    size_t n = 0, moved;

    if (!check_id(s, i))
        return false;
    if (*r->source_fields)
        taken[n++] = (struct taken){r->source_fields, "which is source_fields", SIZE_MAX};
    for (size_t j = 0; j < r->dedup.fields.n; j++) {
        const char *field = r->dedup.fields.items[j];

        config_at(s, "route.%zu.dedup.fields.%zu", i, j);
        if (*r->source_fields && config_paths_collide(field, r->source_fields))
            return config_fail(s, "\"%.60s\" collides with source_fields", field);
        /* inside of it is fine: that is where the payload's own fields are */
        if (*r->under && strlen(field) <= strlen(r->under) && config_paths_collide(field, r->under))
            return config_fail(s,
                               "\"%.60s\" is taken: under puts the payload at \"%.60s\"; choose a "
                               "path beside or below that",
                               field, r->under);
        for (size_t k = 0; k < j; k++)
            if (config_paths_collide(field, r->dedup.fields.items[k]))
                return config_fail(s, "\"%.60s\" collides with \"%.60s\"", field,
                                   r->dedup.fields.items[k]);
        taken[n++] = (struct taken){field, "a field of the dedup key", j};
    }
    moved = n; /* under moves the whole payload: a rename's target lies inside of it */
    if (*r->under) {
        if (*r->source_fields && config_paths_collide(r->source_fields, r->under))
            return config_fail(config_at(s, "route.%zu.source_fields", i),
                               "collides with \"%.60s\", where under puts the payload", r->under);
        taken[n++] = (struct taken){r->under, "where under puts the payload", SIZE_MAX};
    }
    if (r->dedup.conflict != CONFLICT_OFF) {
        if (!check_conflict_field(s, i, taken, n))
            return false;
        taken[n++] =
            (struct taken){r->dedup.conflict_field, "which is dedup.conflict_field", SIZE_MAX};
        if (!*r->under)
            taken[moved++] = taken[n - 1]; /* the same place: there is no under */
    }
    return check_set(s, i, taken, n) && check_moves(s, i, taken, moved);
}

/* --- the dedup key
 * -------------------------------------------------------------------------------------------------------
 */

static bool default_fields(struct config_parse_state *s, size_t i, struct config_route *r)
{
    struct config_list *fields = &r->dedup.fields;

    mem_free(fields->items);
    fields->items = mem_array(r->dedup.key.n, sizeof fields->items[0]);
    for (size_t j = 0; j < r->dedup.key.n; j++) {
        const char *source = r->dedup.key.items[j];

        if (*source == '@')
            return config_fail(
                config_at(s, "route.%zu.dedup.key.%zu", i, j),
                "\"%.60s\" has no place in the document: name one for each part with "
                "dedup.fields, or set dedup.into = \"_id\"",
                source);
        fields->items[fields->n++] = config_document_path(r, source);
    }
    return true;
}

/* The names that mapping_dedup.c gives the parts in _id: without "@", and "_" for "." and "$". */
static bool same_id_name(const char *a, const char *b)
{
    a += *a == '@';
    b += *b == '@';
    for (; *a && *b; a++, b++) {
        int ca = *a == '.' || *a == '$' ? '_' : *a, cb = *b == '.' || *b == '$' ? '_' : *b;

        if (ca != cb)
            return false;
    }
    return *a == *b;
}

static bool check_id_names(struct config_parse_state *s, size_t i, const struct config_list *key)
{
    for (size_t j = 0; j < key->n; j++)
        for (size_t k = 0; k < j; k++)
            if (same_id_name(key->items[j], key->items[k]))
                return config_fail(
                    config_at(s, "route.%zu.dedup.key.%zu", i, j),
                    "\"%.60s\" and \"%.60s\" would have one name in the "
                    "sub-document that is _id (\"@\" is left out, \".\" and \"$\" are "
                    "\"_\" there)",
                    key->items[j], key->items[k]);
    return true;
}

static bool check_fields(struct config_parse_state *s, size_t i, struct config_route *r)
{
    const struct config_list *fields = &r->dedup.fields;

    config_at(s, "route.%zu.dedup.fields", i);
    if (config_has_operation(r)) {
        if (fields->n > 0 || r->dedup.into_id)
            return config_fail(config_at(s, "route.%zu.dedup.%s", i, fields->n ? "fields" : "into"),
                               "has no meaning together with [route.entity]: the identity of the "
                               "event is the _id of its document in the ledger");
        r->dedup.into_id = true;
        return check_id_names(s, i, &r->dedup.key);
    }
    if (r->dedup.into_id)
        return fields->n == 0 ||
               config_fail(s, "has no meaning together with dedup.into = \"_id\"");
    if (fields->n == 0) {
        if (!default_fields(s, i, r))
            return false;
    } else if (fields->n != r->dedup.key.n)
        return config_fail(s, "has %zu paths, and dedup.key has %zu parts: one each", fields->n,
                           r->dedup.key.n);
    if (!check_paths(s, i, "dedup.fields", fields, true))
        return false;
    for (size_t j = 0; j < fields->n; j++)
        if (config_paths_collide(fields->items[j], "_id"))
            return config_fail(config_at(s, "route.%zu.dedup.fields.%zu", i, j),
                               "\"%.60s\": for an identity that is the document's _id set "
                               "dedup.into = \"_id\"",
                               fields->items[j]);
    return true;
}

static bool check_dedup(struct config_parse_state *s, size_t i, struct config_route *r)
{
    for (size_t j = 0; j < r->dedup.key.n; j++) {
        const char *fault = config_source_fault(
            r->dedup.key.items[j], SOURCE_KEY | SOURCE_HEADER | SOURCE_OFFSET | SOURCE_PATH);

        if (fault)
            return config_fail(config_at(s, "route.%zu.dedup.key.%zu", i, j), "\"%.60s\" %s",
                               r->dedup.key.items[j], fault);
    }
    return (!r->dedup.into_id || check_id_names(s, i, &r->dedup.key)) && check_fields(s, i, r);
}

bool config_is_in(const struct config_list *list, const char *text)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], text) == 0)
            return true;
    return false;
}

bool config_same_list(const struct config_list *a, const struct config_list *b)
{
    for (size_t i = 0; i < a->n && i < b->n; i++)
        if (strcmp(a->items[i], b->items[i]) != 0)
            return false;
    return a->n == b->n;
}

/* One index (or _id) has to serve both. Several parts in _id are a sub-document named after the
 * sources. */
static bool same_identity(const struct config_dedup *a, const struct config_dedup *b)
{
    if (a->into_id != b->into_id)
        return false;
    if (!a->into_id)
        return config_same_list(&a->fields, &b->fields);
    return a->key.n == b->key.n && (a->key.n == 1 || config_same_list(&a->key, &b->key));
}

/* A document of one route is a duplicate in the other: both must look for its hash in one place. */
static bool same_check(const struct config_dedup *a, const struct config_dedup *b)
{
    return a->conflict == b->conflict &&
           (a->conflict == CONFLICT_OFF || strcmp(a->conflict_field, b->conflict_field) == 0);
}

static bool check_shared(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];

    for (size_t j = 0; j < i; j++) {
        const struct config_route *other = &s->config->routes[j];

        bool same_collection = strcmp(r->database, other->database) == 0 &&
                               strcmp(r->collection, other->collection) == 0;

        if (same_collection && !config_has_operation(r) && !config_has_operation(other) &&
            !same_identity(&r->dedup, &other->dedup))
            return config_fail(config_at(s, "route.%zu.dedup", i),
                               "route \"%.60s\" goes into the same collection %.80s.%.80s with "
                               "another dedup key: both need the same fields in the same order",
                               other->name, r->database, r->collection);
        if (same_collection && !same_check(&r->dedup, &other->dedup))
            return config_fail(config_at(s, "route.%zu.dedup.conflict", i),
                               "route \"%.60s\" goes into the same collection %.80s.%.80s with "
                               "another conflict or conflict_field: both need the same",
                               other->name, r->database, r->collection);
    }
    return true;
}

bool config_check_routes(struct config_parse_state *s)
{
    for (size_t i = 0; i < s->config->n_routes; i++) {
        struct config_route *r = &s->config->routes[i];

        if (!split_collection(s, i, r) || !check_name(s, i) || !check_shape(s, i) ||
            !config_check_format(s, i) || !config_check_entity_there(s, i) ||
            !check_dedup(s, i, r) || !check_collisions(s, i) || !check_shared(s, i))
            return false;
    }
    return true;
}
