/*
 * config.c - text to struct: the order of the steps, places for errors, and the walk of the tree.
 */
#include "core/config.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"
#include "core/toml.h"

/* --- where we are
 * -------------------------------------------------------------------------------------------------
 */

size_t config_enter(struct config_parse_state *s, const char *member)
{
    size_t mark = s->path.len;

    if (mark > 0)
        buf_add_char(&s->path, '.');
    buf_add_text(&s->path, member);
    return mark;
}

size_t config_enter_index(struct config_parse_state *s, size_t index)
{
    char text[24];

    (void)snprintf(text, sizeof text, "%zu", index);
    return config_enter(s, text);
}

void config_leave(struct config_parse_state *s, size_t mark)
{
    s->path.len = mark;
    s->path.data[mark] = '\0';
}

struct config_parse_state *config_at(struct config_parse_state *s, const char *fmt, ...)
{
    char text[512];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    buf_reset(&s->path);
    buf_add_text(&s->path, text);
    s->beside = NULL;
    return s;
}

struct config_parse_state *config_beside(struct config_parse_state *s, const char *path,
                                         const char *beside)
{
    config_at(s, "%s", path)->beside = beside;
    return s;
}

/* What a path leads to, or the last thing on its way that is there. */
struct found {
    json_t *wrapped;
    bool whole;
};

/* The element of a list that a number stands for; *rest what follows it. */
static json_t *element_at(const json_t *list, const char *path, const char **rest)
{
    size_t index = 0;
    const char *at = path;

    for (; *at >= '0' && *at <= '9' && at - path < 9; at++)
        index = index * 10 + (size_t)(*at - '0');
    if (at == path || (*at != '.' && *at != '\0'))
        return NULL;
    *rest = *at ? at + 1 : at;
    return json_array_get(list, index);
}

/* Names may hold dots themselves, so the longest that is there is tried first. */
static struct found find_below(json_t *wrapped, const char *path)
{
    json_t *v = json_object_get(wrapped, "v"), *next;
    struct found best = {.wrapped = wrapped, .whole = *path == '\0'};
    const char *rest;

    if (json_is_array(v))
        return (next = element_at(v, path, &rest)) ? find_below(next, rest) : best;
    if (!json_is_object(v))
        return best;
    for (size_t n = strlen(path); n > 0; n--) {
        char *name;

        if (path[n] != '.' && path[n] != '\0')
            continue;
        name = mem_text_n(path, n);
        next = json_object_get(v, name);
        mem_free(name);
        if (next)
            return find_below(next, path + n + (path[n] == '.'));
    }
    return best;
}

json_t *config_find(const struct config_parse_state *s, const char *fmt, ...)
{
    char path[512];
    va_list args;
    struct found found;

    va_start(args, fmt);
    (void)vsnprintf(path, sizeof path, fmt, args);
    va_end(args);
    found = find_below(s->tree, path);
    return found.whole ? found.wrapped : NULL;
}

/* "route.0.dedup.key.1" is known to people as route.dedup.key. */
static void add_known_name(const char *path, struct buf *out)
{
    bool route = strncmp(path, "route.", 6) == 0;

    for (const char *at = path; *at;) {
        size_t len = strcspn(at, ".");
        bool number = len > 0 && strspn(at, "0123456789") == len;

        if (!(route && number)) {
            buf_add_text(out, out->len ? "." : "");
            buf_add_json(out, at, len);
        }
        at += len + (at[len] == '.');
    }
}

static int64_t line_of(const struct found *found)
{
    return json_integer_value(json_object_get(found->wrapped, "l"));
}

static struct found place_of(const struct config_parse_state *s)
{
    struct found found = find_below(s->tree, buf_text(&s->path)), other;

    if (!s->beside)
        return found;
    other = find_below(s->tree, s->beside);
    return other.whole && (!found.whole || line_of(&other) < 0) ? other : found;
}

/* Do both names end with the same one? "route.0.write" and "route.write" do. */
static bool ends_alike(const char *key, size_t len, const char *known)
{
    const char *dot = strrchr(known, '.');
    const char *last = dot ? dot + 1 : known;
    size_t n = strlen(last);

    return len >= n && strncmp(key + len - n, last, n) == 0 &&
           (len == n || key[len - n - 1] == '.');
}

bool config_fail(struct config_parse_state *s, const char *fmt, ...)
{
    struct found found = place_of(s);
    int64_t line = line_of(&found);
    int64_t column = json_integer_value(json_object_get(found.wrapped, "c"));
    struct buf text = {0}, key = {0};
    char what[ERR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    add_known_name(buf_text(&s->path), &key);
    if (line > 0)
        buf_printf(&text, "%s:%" PRId64 ":%" PRId64 ": ", s->in->name, line, column);
    else { /* an override: its number, counted down from -1 */
        const char *override = s->in->overrides[-1 - line];
        size_t len = strcspn(override, "=");

        buf_printf(&text, "--set %.*s: ", (int)len, override);
        if (ends_alike(override, len, buf_text(&key)))
            buf_reset(&key);
    }
    err_set(s->e, ERR_CONFIG, 0, "%s%s%s%s", buf_text(&text), buf_text(&key), key.len ? ": " : "",
            what);
    buf_clear(&text);
    buf_clear(&key);
    return false;
}

const char *config_kind_of(const json_t *wrapped)
{
    const json_t *v = json_object_get(wrapped, "v");
    const char *type = json_string_value(json_object_get(wrapped, "t"));

    if (type)
        return strcmp(type, "float") == 0 ? "inf or nan" : "a date or time";
    switch (json_typeof(v)) {
    case JSON_OBJECT:
        return "a table";
    case JSON_ARRAY:
        return "a list";
    case JSON_STRING:
        return "a string";
    case JSON_INTEGER:
        return "an integer";
    case JSON_REAL:
        return "a float";
    default:
        return "a boolean";
    }
}

/* --- the walk
 * --------------------------------------------------------------------------------------------------------
 */

static void set_defaults(enum config_group group, void *base)
{
    for (size_t i = 0; i < config_keys_count; i++)
        if (config_group_of(&config_keys[i]) == group)
            config_set_default(&config_keys[i], base);
}

static bool read_table(struct config_parse_state *s, const char *section, void *base,
                       json_t *wrapped);

/* route.0 or route.0.invalidate.1: number is where its tables begin to be counted. */
static bool read_one(struct config_parse_state *s, enum config_group group, void *base,
                     json_t *wrapped)
{
    const char *section = group == GROUP_ROUTE     ? "route"
                          : group == GROUP_COUNTER ? "route.counter"
                                                   : "route.invalidate";
    char *here = mem_text(buf_text(&s->path));
    bool fine;

    set_defaults(group, base);
    fine = json_is_object(json_object_get(wrapped, "v"))
               ? read_table(s, section, base, wrapped)
               : config_fail(s, "has to be a table, not %s", config_kind_of(wrapped));
    for (size_t i = 0; fine && i < config_keys_count; i++) {
        const struct config_key *k = &config_keys[i];
        const char *name = k->name + strlen(section) + 1;

        if (config_group_of(k) != group || !(k->flags & CONFIG_REQUIRED))
            continue;
        if (!config_find(s, "%s.%s", here, name))
            fine = config_fail(config_at(s, "%s.%s", here, name), "is missing");
    }
    mem_free(here);
    return fine;
}

static int64_t line_of_table(const json_t *wrapped)
{
    return json_integer_value(json_object_get(wrapped, "l"));
}

static bool is_list(struct config_parse_state *s, const char *section, const json_t *wrapped)
{
    return json_is_array(json_object_get(wrapped, "v")) ||
           config_fail(s, "has to be a list of tables, [[%s]], not %s", section,
                       config_kind_of(wrapped));
}

static bool read_invalidations(struct config_parse_state *s, struct config_route *route,
                               json_t *wrapped)
{
    json_t *v = json_object_get(wrapped, "v");
    size_t n = json_array_size(v);

    if (!is_list(s, "route.invalidate", wrapped))
        return false;
    route->invalidate = mem_array(n, sizeof route->invalidate[0]);
    route->n_invalidate = n;
    for (size_t i = 0; i < n; i++) {
        size_t mark = config_enter_index(s, i);

        if (!read_one(s, GROUP_INVALIDATE, &route->invalidate[i], json_array_get(v, i)))
            return false;
        route->invalidate[i].line = line_of_table(json_array_get(v, i));
        config_leave(s, mark);
    }
    return true;
}

static bool read_counters(struct config_parse_state *s, struct config_route *route, json_t *wrapped)
{
    json_t *v = json_object_get(wrapped, "v");
    size_t n = json_array_size(v);

    if (!is_list(s, "route.counter", wrapped))
        return false;
    route->counters = mem_array(n, sizeof route->counters[0]);
    route->n_counters = n;
    for (size_t i = 0; i < n; i++) {
        size_t mark = config_enter_index(s, i);

        if (!read_one(s, GROUP_COUNTER, &route->counters[i], json_array_get(v, i)))
            return false;
        route->counters[i].line = line_of_table(json_array_get(v, i));
        config_leave(s, mark);
    }
    return true;
}

static bool read_routes(struct config_parse_state *s, json_t *wrapped)
{
    json_t *v = json_object_get(wrapped, "v");
    size_t n = json_array_size(v);

    if (!is_list(s, "route", wrapped))
        return false;
    s->config->routes = mem_array(n, sizeof s->config->routes[0]);
    s->config->n_routes = n;
    for (size_t i = 0; i < n; i++) {
        size_t mark = config_enter_index(s, i);

        if (!read_one(s, GROUP_ROUTE, &s->config->routes[i], json_array_get(v, i)))
            return false;
        config_leave(s, mark);
    }
    return true;
}

static bool read_member(struct config_parse_state *s, const char *section, const char *member,
                        void *base, json_t *wrapped)
{
    const struct config_key *k = config_key_find(section, member);
    char *below = mem_printf("%s%s%s", section, *section ? "." : "", member);
    bool fine;

    if (k)
        fine = config_set_value(s, k, base, wrapped);
    else if (strcmp(below, "route") == 0)
        fine = read_routes(s, wrapped);
    else if (strcmp(below, "route.invalidate") == 0)
        fine = read_invalidations(s, base, wrapped);
    else if (strcmp(below, "route.counter") == 0)
        fine = read_counters(s, base, wrapped);
    else if (!config_section_exists(below))
        fine = config_fail_unknown(s, section, member);
    else if (!json_is_object(json_object_get(wrapped, "v")))
        fine = config_fail(s, "has to be a table, not %s", config_kind_of(wrapped));
    else
        fine = read_table(s, below, base, wrapped);
    mem_free(below);
    return fine;
}

/* In the order of the text, so that the first mistake is the one that is told. */
static bool read_table(struct config_parse_state *s, const char *section, void *base,
                       json_t *wrapped)
{
    const char *member;
    json_t *child;

    json_object_foreach(json_object_get(wrapped, "v"), member, child)
    {
        size_t mark = config_enter(s, member);

        if (!read_member(s, section, member, base, child))
            return false;
        config_leave(s, mark);
    }
    return true;
}

bool config_read(struct config_parse_state *s)
{
    set_defaults(GROUP_MAIN, s->config);
    buf_reset(&s->path);
    if (!read_table(s, "", s->config, s->tree))
        return false;
    for (size_t i = 0; i < config_keys_count; i++) {
        const struct config_key *k = &config_keys[i];

        if (config_group_of(k) == GROUP_MAIN && (k->flags & CONFIG_REQUIRED) &&
            !config_find(s, "%s", k->name))
            return config_fail(config_at(s, "%s", k->name), "is missing");
    }
    if (s->config->n_routes == 0)
        return config_fail(config_at(s, "route"),
                           "there is no [[route]], so there is nothing to do");
    return true;
}

/* --- in and out
 * ---------------------------------------------------------------------------------------------------------
 */

struct config *config_parse(const struct config_input *in, struct err *e)
{
    struct config_parse_state s = {.in = in, .e = e};
    bool fine = false;

    s.tree = toml_parse(in->name, in->text.ptr, in->text.len, e);
    if (!s.tree)
        return NULL;
    s.config = mem_new(sizeof *s.config);
    buf_add_text(&s.path, "");
    fine =
        config_apply_overrides(&s) && config_substitute(&s) && config_read(&s) && config_check(&s);
    json_decref(s.tree);
    buf_clear(&s.path);
    if (fine)
        return s.config;
    config_free(s.config);
    return NULL;
}

static void clear_group(enum config_group group, void *base)
{
    for (size_t i = 0; i < config_keys_count; i++)
        if (config_group_of(&config_keys[i]) == group)
            config_clear_value(&config_keys[i], base);
}

void config_free(struct config *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < c->n_routes; i++) {
        struct config_route *r = &c->routes[i];

        for (size_t j = 0; j < r->n_invalidate; j++)
            clear_group(GROUP_INVALIDATE, &r->invalidate[j]);
        for (size_t j = 0; j < r->n_counters; j++) {
            clear_group(GROUP_COUNTER, &r->counters[j]);
            mem_free(r->counters[j].database);
        }
        clear_group(GROUP_ROUTE, r);
        mem_free(r->counters);
        mem_free(r->invalidate);
        mem_free(r->database);
        mem_free(r->sequence.database);
        for (size_t j = 0; j < r->sequence.group_fields.n; j++)
            mem_free(r->sequence.group_fields.items[j]);
        mem_free(r->sequence.group_fields.items);
        mem_free(r->operation.ledger_database);
        mem_free(r->lock.fence_database);
    }
    mem_free(c->routes);
    clear_group(GROUP_MAIN, c);
    mem_free(c);
}

static bool route_takes(const struct config_route *r, const char *topic)
{
    for (size_t i = 0; i < r->topics.n; i++) {
        const char *entry = r->topics.items[i];

        if (*entry == '^' ? config_topic_matches(entry, topic) : strcmp(entry, topic) == 0)
            return true;
    }
    return false;
}

int config_route_of(const struct config *c, const char *topic)
{
    int found = CONFIG_NO_ROUTE;

    for (size_t i = 0; i < c->n_routes; i++)
        if (route_takes(&c->routes[i], topic)) {
            if (found != CONFIG_NO_ROUTE)
                return CONFIG_TWO_ROUTES;
            found = (int)i;
        }
    return found;
}

bool config_route_fail(const struct config *c, const char *topic, struct err *e)
{
    const char *first = NULL;

    for (size_t i = 0; i < c->n_routes; i++) {
        const struct config_route *r = &c->routes[i];

        if (!route_takes(r, topic))
            continue;
        if (first)
            return err_set(
                e, ERR_CONFIG, 0,
                "topic %s is taken by route \"%.60s\" and by route \"%.60s\" (\"%.60s\"): a "
                "topic belongs to one route; change one of the two expressions",
                topic, first, r->name, r->topics.items[0]);
        first = r->name;
    }
    return err_set(e, ERR_CONFIG, 0, "no route reads topic %s", topic);
}

bool config_has_invalidations(const struct config *c)
{
    for (size_t i = 0; i < c->n_routes; i++)
        if (c->routes[i].n_invalidate > 0)
            return true;
    return false;
}
