/*
 * config_counters.c - [[route.counter]]: what each needs, and which keys of Redis may mirror them.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"

/* Names that we keep in counter documents ourselves. */
static const char *const kept_names[] = {"_applied", "_version"};

static bool is_set(const char *text)
{
    return text != NULL && *text != '\0';
}

static bool check_counter_names(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_counter *c = &s->config->routes[i].counters[j];

    for (size_t k = 0; k < c->inc.n; k++) {
        const char *name = c->inc.items[k].name;

        config_at(s, "route.%zu.counter.%zu.inc.%s", i, j, name);
        for (size_t n = 0; n < c->filter.n; n++)
            if (config_paths_collide(name, c->filter.items[n].name))
                return config_fail(s,
                                   "collides with \"%.60s\" of filter, by which the counter is "
                                   "found",
                                   c->filter.items[n].name);
        for (size_t n = 0; n < k; n++)
            if (config_paths_collide(name, c->inc.items[n].name))
                return config_fail(s, "collides with \"%.60s\"", c->inc.items[n].name);
        for (size_t n = 0; n < sizeof kept_names / sizeof kept_names[0]; n++)
            if (config_paths_collide(name, kept_names[n]))
                return config_fail(s, "is a name that idemsink keeps for itself");
        if (config_paths_collide(name, "_id"))
            return config_fail(s, "_id can't be counted");
    }
    for (size_t k = 0; k < c->filter.n; k++)
        for (size_t n = 0; n < k; n++)
            if (config_paths_collide(c->filter.items[k].name, c->filter.items[n].name))
                return config_fail(
                    config_at(s, "route.%zu.counter.%zu.filter.%s", i, j, c->filter.items[k].name),
                    "collides with \"%.60s\"", c->filter.items[n].name);
    return true;
}

/* Formats without fields have nothing that a path could name. */
static bool check_counter_sources(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_route *r = &s->config->routes[i];
    const struct config_counter *c = &r->counters[j];
    static const char why[] = "a payload of this format has no fields";

    for (size_t k = 0; !config_has_fields(r) && k < c->filter.n; k++)
        if (*c->filter.items[k].value != '@')
            return config_fail(
                config_at(s, "route.%zu.counter.%zu.filter.%s", i, j, c->filter.items[k].name),
                "\"%.60s\": %s", c->filter.items[k].value, why);
    for (size_t k = 0; !config_has_fields(r) && k < c->inc.n; k++)
        if (*c->inc.items[k].value == '"')
            return config_fail(
                config_at(s, "route.%zu.counter.%zu.inc.%s", i, j, c->inc.items[k].name),
                "%.60s: %s", c->inc.items[k].value, why);
    return true;
}

/* @topic is the same for all events of an entity where there is one topic. */
static bool is_of_entity(const struct config_route *r, const char *source)
{
    return config_is_in(&r->entity.key, source) ||
           (strcmp(source, "@topic") == 0 && r->topics.n == 1 && *r->topics.items[0] != '^');
}

/* What removes an entity takes back what added it: the same amount, from the same counter. Both
 * come from the removing event, so nothing may go in that could be another there. */
static bool check_counter_of_entity(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_route *r = &s->config->routes[i];
    const struct config_counter *c = &r->counters[j];

    for (size_t k = 0; k < c->filter.n; k++)
        if (!is_of_entity(r, c->filter.items[k].value))
            return config_fail(
                config_at(s, "route.%zu.counter.%zu.filter.%s", i, j, c->filter.items[k].name),
                "\"%.60s\" is no part of entity.key: an event that removes could name another "
                "counter than the one that added; possible are the parts of entity.key, and @topic "
                "in a route of one topic",
                c->filter.items[k].value);
    for (size_t k = 0; k < c->inc.n; k++)
        if (*c->inc.items[k].value == '"')
            return config_fail(
                config_at(s, "route.%zu.counter.%zu.inc.%s", i, j, c->inc.items[k].name),
                "%.60s: with [route.entity] only integers: an event that removes could take back "
                "another amount than was added",
                c->inc.items[k].value);
    return true;
}

/* --- mirrors --- */

static void add_fields(const struct config_counter *c, struct buf *out)
{
    for (size_t k = 0; k < c->filter.n; k++)
        buf_printf(out, "%s{%s}", k ? ", " : "", c->filter.items[k].name);
}

static bool fail_naming_fields(struct config_parse_state *s, const struct config_counter *c,
                               const char *field, const char *what)
{
    struct buf fields = {0};

    add_fields(c, &fields);
    (void)config_fail(s, "{%.60s} %s; the fields of filter are %s", field, what, buf_text(&fields));
    buf_clear(&fields);
    return false;
}

/* Each placeholder is a field of the filter. */
static bool check_mirror_braces(struct config_parse_state *s, const struct config_counter *c)
{
    for (const char *at = strchr(c->mirror, '{'); at; at = strchr(at + 1, '{')) {
        size_t len = strcspn(at + 1, "{}");
        bool known = false;

        if (at[1 + len] != '}')
            return config_fail(s, "a brace has no partner");
        for (size_t k = 0; k < c->filter.n; k++)
            known = known || (strlen(c->filter.items[k].name) == len &&
                              memcmp(c->filter.items[k].name, at + 1, len) == 0);
        if (!known) {
            char name[64];

            (void)snprintf(name, sizeof name, "%.*s", (int)(len < 60 ? len : 60), at + 1);
            return fail_naming_fields(s, c, name, "is no field of the counter's filter");
        }
    }
    return true;
}

/* And each field is a placeholder: a key is that of one counter document. */
static bool check_mirror_fields(struct config_parse_state *s, const struct config_counter *c)
{
    for (size_t k = 0; k < c->filter.n; k++) {
        char *placeholder = mem_printf("{%s}", c->filter.items[k].name);
        bool there = strstr(c->mirror, placeholder) != NULL;

        mem_free(placeholder);
        if (!there)
            return fail_naming_fields(
                s, c, c->filter.items[k].name,
                "is missing, so that counters which differ in it alone would share one key of "
                "Redis");
    }
    return true;
}

static bool same_names(const struct config_pairs *a, const struct config_pairs *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->items[i].name, b->items[i].name) != 0)
            return false;
    return true;
}

/* Two counters in one key: of two values with one version Redis takes the first alone. */
static bool check_mirror_apart(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_counter *c = &s->config->routes[i].counters[j];

    for (size_t r = 0; r <= i; r++)
        for (size_t k = 0; k < (r == i ? j : s->config->routes[r].n_counters); k++) {
            const struct config_counter *o = &s->config->routes[r].counters[k];
            bool same = strcmp(c->database, o->database) == 0 &&
                        strcmp(c->collection, o->collection) == 0 &&
                        same_names(&c->filter, &o->filter) && same_names(&c->inc, &o->inc);

            if (strcmp(c->mirror, o->mirror) == 0 && !same)
                return config_fail(
                    s,
                    "is the key of another counter of route \"%.60s\", too, and Redis would take "
                    "the values of one of them alone: name another key",
                    s->config->routes[r].name);
        }
    return true;
}

static bool check_mirror(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_counter *c = &s->config->routes[i].counters[j];

    config_at(s, "route.%zu.counter.%zu.mirror", i, j);
    if (!is_set(c->mirror))
        return true;
    for (size_t k = 0; k < c->inc.n; k++)
        if (strcmp(c->inc.items[k].name, "version") == 0)
            return config_fail(config_at(s, "route.%zu.counter.%zu.inc.version", i, j),
                               "is the name under which a mirror holds its version; count it under "
                               "another one, or without mirror");
    if (!is_set(s->config->redis.uri))
        return config_fail(s, "needs redis.uri, and there is none");
    return check_mirror_braces(s, c) && check_mirror_fields(s, c) && check_mirror_apart(s, i, j);
}

/* --- all of it --- */

bool config_check_counters(struct config_parse_state *s, size_t i, uint32_t *index)
{
    struct config_route *r = &s->config->routes[i];

    for (size_t j = 0; j < r->n_counters; j++) {
        struct config_counter *c = &r->counters[j];

        c->index = (*index)++;
        config_at(s, "route.%zu.counter.%zu.filter", i, j);
        if (c->filter.n == 0)
            return config_fail(s, "is empty: which counter document is it?");
        config_at(s, "route.%zu.counter.%zu.inc", i, j);
        if (c->inc.n == 0)
            return config_fail(s, "is empty: nothing would be counted");
        config_at(s, "route.%zu.counter.%zu.collection", i, j);
        if (!config_split_namespace(s, &c->collection, &c->database) ||
            !check_counter_names(s, i, j) || !check_counter_sources(s, i, j) ||
            (config_has_operation(r) && !check_counter_of_entity(s, i, j)) ||
            !check_mirror(s, i, j))
            return false;
    }
    return true;
}
