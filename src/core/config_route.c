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
static bool split_namespace(struct config_parse_state *s, size_t i, struct config_route *r)
{
    char *text = r->collection, *dot = strchr(text, '.');
    size_t database_len = dot ? (size_t)(dot - text) : 0;

    config_at(s, "route.%zu.collection", i);
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
    if (*r->name == '\0') {
        mem_free(r->name);
        r->name = mem_text(text);
    }
    r->database = mem_text_n(text, database_len);
    r->collection = mem_text(dot + 1);
    mem_free(text);
    return true;
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
    if (!check_apart(s, i, "include", &r->include))
        return false;
    return check_rename(s, i, r);
}

/* What we put into the document ourselves; none of it may lie inside of another. */
struct taken {
    const char *path;
    const char *what;
};

static bool check_set(struct config_parse_state *s, size_t i, const struct taken *taken, size_t n)
{
    const struct config_route *r = &s->config->routes[i];

    for (size_t j = 0; j < r->set.n; j++) {
        const char *path = r->set.items[j].name;

        config_at(s, "route.%zu.set.%s", i, path);
        if (r->dedup.into_id && config_paths_collide(path, "_id"))
            return config_fail(s, "_id is the dedup key (dedup.into = \"_id\")");
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

static bool check_collisions(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];
    struct taken taken[16]; /* 8 dedup fields, under, source_fields */
    size_t n = 0;

    if (*r->under)
        taken[n++] = (struct taken){r->under, "where under puts the payload"};
    if (*r->source_fields) {
        if (n > 0 && config_paths_collide(r->source_fields, r->under))
            return config_fail(config_at(s, "route.%zu.source_fields", i),
                               "collides with \"%.60s\", where under puts the payload", r->under);
        taken[n++] = (struct taken){r->source_fields, "which is source_fields"};
    }
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
        taken[n++] = (struct taken){field, "a field of the dedup key"};
    }
    return check_set(s, i, taken, n);
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

static bool check_fields(struct config_parse_state *s, size_t i, struct config_route *r)
{
    const struct config_list *fields = &r->dedup.fields;

    config_at(s, "route.%zu.dedup.fields", i);
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
    return check_fields(s, i, r);
}

static bool same_list(const struct config_list *a, const struct config_list *b)
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
        return same_list(&a->fields, &b->fields);
    return a->key.n == b->key.n && (a->key.n == 1 || same_list(&a->key, &b->key));
}

static bool check_shared(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];

    for (size_t j = 0; j < i; j++) {
        const struct config_route *other = &s->config->routes[j];

        if (strcmp(r->database, other->database) == 0 &&
            strcmp(r->collection, other->collection) == 0 &&
            !same_identity(&r->dedup, &other->dedup))
            return config_fail(config_at(s, "route.%zu.dedup", i),
                               "route \"%.60s\" goes into the same collection %.80s.%.80s with "
                               "another dedup key: both need the same fields in the same order",
                               other->name, r->database, r->collection);
    }
    return true;
}

bool config_check_routes(struct config_parse_state *s)
{
    for (size_t i = 0; i < s->config->n_routes; i++) {
        struct config_route *r = &s->config->routes[i];

        if (!split_namespace(s, i, r) || !check_name(s, i) || !check_shape(s, i) ||
            !check_dedup(s, i, r) || !check_collisions(s, i) || !check_shared(s, i))
            return false;
    }
    return true;
}
