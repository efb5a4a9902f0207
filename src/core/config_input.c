/*
 * config_input.c - what changes the tree before it is read: --set and ${NAME}.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"
#include "core/toml.h"

/* --- --set
 * ----------------------------------------------------------------------------------------------------------
 */

/* What a key may hold, in --set. */
#define KEY_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.\""

/* One override on its way to its place. Every value that it makes has the line -1 - number. */
struct override {
    struct config_parse_state *s;
    const char *text, *value; /* of --set; behind the '=' */
    int64_t line;
    char *key;           /* before the '=' */
    const char *rest;    /* of key: not gone yet */
    json_t *at;          /* the wrapped table that is reached */
    const char *section; /* its name: "" "route" "route.invalidate" */
    bool known;          /* a key was found: what goes wrong then has been told */
};

static bool fail(struct override *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
static bool fail(struct override *o, const char *fmt, ...)
{
    char what[ERR_TEXT_MAX];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(what, sizeof what, fmt, args);
    va_end(args);
    /* A forgotten "mongo.uri=" makes the value the key: only what a key may hold is shown. */
    return err_set(o->s->e, ERR_CONFIG, 0, "--set %.*s: %s", (int)strspn(o->key, KEY_CHARS), o->key,
                   what);
}

static json_t *wrap(const struct override *o, json_t *v)
{
    json_t *out = json_object();

    json_object_set_new(out, "l", json_integer(o->line));
    json_object_set_new(out, "c", json_integer(1));
    json_object_set_new(out, "v", v);
    return out;
}

static void mark_all(const struct override *o, json_t *wrapped)
{
    json_t *v = json_object_get(wrapped, "v"), *child;
    const char *member;
    size_t i;

    json_object_set_new(wrapped, "l", json_integer(o->line));
    if (json_is_array(v))
        json_array_foreach(v, i, child) mark_all(o, child);
    else if (json_is_object(v))
        json_object_foreach(v, member, child) mark_all(o, child);
}

/* Whether name is what rest begins with, up to a dot. */
static bool starts(const char *rest, const char *name)
{
    size_t n = strlen(name);

    return n > 0 && strncmp(rest, name, n) == 0 && rest[n] == '.';
}

/* The number at the start of rest, up to a dot; -1: there is none. */
static int64_t number_of(const char *rest)
{
    size_t len = strspn(rest, "0123456789");
    int64_t n = 0;

    if (len == 0 || len > 6 || rest[len] != '.')
        return -1;
    for (size_t i = 0; i < len; i++)
        n = n * 10 + (rest[i] - '0');
    return n;
}

static const char *text_at(const json_t *wrapped, const char *member)
{
    const json_t *found = json_object_get(json_object_get(wrapped, "v"), member);

    return json_string_value(json_object_get(found, "v"));
}

/* The route that is called so, by its name or else by its collection; the longest, as names may
 * hold dots. */
static int64_t route_by_name(const json_t *routes, const char *rest)
{
    size_t best = 0, i;
    int64_t found = -1;
    json_t *route;

    json_array_foreach(routes, i, route)
    {
        const char *name = text_at(route, "name");

        if (!name)
            name = text_at(route, "collection");
        if (name && starts(rest, name) && strlen(name) > best) {
            best = strlen(name);
            found = (int64_t)i;
        }
    }
    return found;
}

/* Past "route.0." or "route.NAME." or "invalidate.1." or "counter.0.". */
static bool enter_element(struct override *o, const char *list)
{
    json_t *array = json_object_get(json_object_get(json_object_get(o->at, "v"), list), "v");
    bool route = strcmp(list, "route") == 0;
    const char *rest = o->rest + strlen(list) + 1;
    int64_t number = number_of(rest);
    size_t skip;

    if (number < 0 && route && (number = route_by_name(array, rest)) >= 0) {
        const char *name = text_at(json_array_get(array, (size_t)number), "name");

        skip = strlen(name ? name : text_at(json_array_get(array, (size_t)number), "collection"));
    } else
        skip = strcspn(rest, ".");
    if (number < 0)
        return route ? fail(o, "no route has this name; write route.NUMBER.KEY or route.NAME.KEY")
                     : fail(o, "write %s.NUMBER.KEY", list);
    if (!json_is_array(array) || (size_t)number >= json_array_size(array))
        return fail(o, "there is no %s number %" PRId64 ", the file has %zu (counted from 0)", list,
                    number, json_array_size(array));
    o->at = json_array_get(array, (size_t)number);
    o->section = route                          ? "route"
                 : strcmp(list, "counter") == 0 ? "route.counter"
                                                : "route.invalidate";
    o->rest = rest + skip + 1;
    return true;
}

static bool enter_table(struct override *o, const char *name, size_t len)
{
    json_t *v = json_object_get(o->at, "v"), *next;
    char *member = mem_text_n(name, len);

    if (!json_is_object(v)) {
        mem_free(member);
        return fail(o, "lies below something that is no table");
    }
    next = json_object_get(v, member);
    if (!next) {
        next = wrap(o, json_object());
        json_object_set_new(v, member, next);
    }
    o->at = next;
    mem_free(member);
    return true;
}

/* A bare word is a string. What a string goes to is taken as it is; else TOML is tried first. */
static json_t *value_of(struct override *o, const struct config_key *k)
{
    bool quoted = o->value[0] && strchr("\"'[{", o->value[0]);
    bool free_type = strcmp(k->name, "route.set") == 0;
    struct err why;
    char *text;
    json_t *tree, *out;

    if (!quoted && !free_type) {
        out = wrap(o, json_string(o->value));
        if (k->type != CONFIG_LIST)
            return out;
        tree = json_array();
        json_array_append_new(tree, out);
        return wrap(o, tree);
    }
    text = mem_printf("v = %s", o->value);
    tree = toml_parse("value", text, strlen(text), &why);
    mem_free(text);
    if (!tree && !quoted)
        return wrap(o, json_string(o->value));
    if (!tree) {
        fail(o, "the value is not TOML: %s", k->flags & CONFIG_SECRET ? "(not shown)" : why.text);
        return NULL;
    }
    out = json_object_get(json_object_get(tree, "v"), "v");
    if (json_object_size(json_object_get(tree, "v")) != 1) {
        fail(o, "has to be one value");
        out = NULL;
    }
    json_incref(out);
    json_decref(tree);
    if (out)
        mark_all(o, out);
    return out;
}

/* Makes way for the name "a.b" where it is written as a table a with b. */
static void remove_name(json_t *table, const char *name)
{
    for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
        char *first = mem_text_n(name, (size_t)(dot - name));
        json_t *below = json_object_get(json_object_get(table, first), "v");

        mem_free(first);
        if (json_is_object(below)) {
            json_object_del(below, dot + 1);
            remove_name(below, dot + 1);
        }
    }
}

static bool put(struct override *o, const struct config_key *k, const char *member)
{
    json_t *table = json_object_get(o->at, "v"), *value;

    if (!json_is_object(table))
        return fail(o, "lies below something that is no table");
    if (!(value = value_of(o, k)))
        return false;
    if (k->type == CONFIG_PAIRS)
        remove_name(table, member);
    json_object_set_new(table, member, value);
    return true;
}

/* rest is now a key of the section, or a name below a table of free names. */
static bool put_below(struct override *o)
{
    const struct config_key *k = config_key_find(o->section, o->rest);
    const char *dot;

    o->known = k != NULL;
    if (k && k->type == CONFIG_PAIRS)
        return fail(o, "write %s.NAME=VALUE", o->key);
    if (k) {
        while ((dot = strchr(o->rest, '.'))) {
            if (!enter_table(o, o->rest, (size_t)(dot - o->rest)))
                return false;
            o->rest = dot + 1;
        }
        return put(o, k, o->rest);
    }
    for (size_t i = 0; i < config_keys_count; i++) {
        const char *name = config_keys[i].name;
        size_t n = strlen(o->section);

        if (config_keys[i].type != CONFIG_PAIRS || strncmp(name, o->section, n) != 0)
            continue;
        name += n > 0 ? n + 1 : 0;
        if (!starts(o->rest, name))
            continue;
        o->known = true;
        o->rest += strlen(name) + 1;
        for (; (dot = strchr(name, '.')); name = dot + 1)
            if (!enter_table(o, name, (size_t)(dot - name)))
                return false;
        return enter_table(o, name, strlen(name)) && put(o, &config_keys[i], o->rest);
    }
    return false;
}

/* The first name on the way that nobody knows, with the nearest that is known. */
static bool unknown(struct override *o)
{
    struct err found;
    struct config_parse_state quiet = {.in = o->s->in, .tree = o->at, .e = &found};
    char *section = mem_text(o->section), *next, *name;

    for (;;) {
        size_t len = strcspn(o->rest, ".");

        name = mem_text_n(o->rest, len);
        next = mem_printf("%s%s%s", section, *section ? "." : "", name);
        if (!o->rest[len] || !config_section_exists(next))
            break;
        o->rest += len + 1;
        mem_free(section);
        mem_free(name);
        section = next;
    }
    config_fail_unknown(&quiet, section, name);
    fail(o, "%s", strstr(found.text, "unknown key"));
    buf_clear(&quiet.path);
    mem_free(section);
    mem_free(next);
    mem_free(name);
    return false;
}

static bool apply(struct override *o)
{
    static const char *const lists[] = {"counter", "invalidate"};
    const char *equals = strchr(o->text, '=');
    json_t *probe;

    o->key = equals ? mem_text_n(o->text, (size_t)(equals - o->text)) : mem_text(o->text);
    if (!equals) /* not shown: it may be a value whose key was forgotten */
        return err_set(o->s->e, ERR_CONFIG, 0,
                       "--set number %" PRId64 " has no '=': has to be KEY=VALUE", -o->line);
    if (!(probe = json_string(o->text)))
        return err_set(o->s->e, ERR_CONFIG, 0, "--set: not valid UTF-8");
    json_decref(probe);
    o->value = equals + 1;
    o->rest = o->key;
    o->at = o->s->tree;
    o->section = "";
    if (starts(o->rest, "route") && !enter_element(o, "route"))
        return false;
    for (size_t i = 0; *o->section && i < sizeof lists / sizeof lists[0]; i++)
        if (starts(o->rest, lists[i]))
            return enter_element(o, lists[i]) && (put_below(o) || (!o->known && unknown(o)));
    return put_below(o) || (!o->known && unknown(o));
}

bool config_apply_overrides(struct config_parse_state *s)
{
    for (size_t i = 0; i < s->in->n_overrides; i++) {
        struct override o = {.s = s, .text = s->in->overrides[i], .line = -1 - (int64_t)i};
        bool fine = apply(&o);

        mem_free(o.key);
        if (!fine)
            return false;
    }
    return true;
}

/* --- ${NAME}
 * -----------------------------------------------------------------------------------------------------------
 */

static bool name_letter(char c, bool first)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

/* What stands between "${" and "}" is put into out. */
static bool substitute_one(struct config_parse_state *s, const char *inner, size_t len,
                           struct buf *out)
{
    char *name;
    const char *value, *fallback = NULL;
    size_t fallback_len = 0, n = 0;
    bool fine = true;

    while (n < len && name_letter(inner[n], n == 0))
        n++;
    if (n > 0 && n + 2 <= len && inner[n] == ':' && inner[n + 1] == '-') {
        fallback = inner + n + 2;
        fallback_len = len - n - 2;
    } else if (n == 0 || n < len)
        return config_fail(s, "after ${ comes NAME} or NAME:-default}; a dollar sign itself is $$");
    name = mem_text_n(inner, n);
    value = s->in->env ? s->in->env(name) : NULL;
    if (fallback && (!value || !*value))
        buf_add(out, fallback, fallback_len);
    else if (value)
        buf_add_text(out, value);
    else
        fine = config_fail(s,
                           "the environment variable %s is not set; ${%s:-default} would give a "
                           "default",
                           name, name);
    mem_free(name);
    return fine;
}

static bool substitute_text(struct config_parse_state *s, const char *text, struct buf *out)
{
    while (*text) {
        size_t plain = strcspn(text, "$");
        const char *end;

        buf_add(out, text, plain);
        text += plain;
        if (*text == '\0')
            break;
        if (text[1] == '{') {
            if (!(end = strchr(text, '}')))
                return config_fail(s, "${ without its }; a dollar sign itself is $$");
            if (!substitute_one(s, text + 2, (size_t)(end - text - 2), out))
                return false;
            text = end + 1;
        } else {
            buf_add_char(out, '$');
            text += text[1] == '$' ? 2 : 1;
        }
    }
    return true;
}

static bool substitute_string(struct config_parse_state *s, json_t *wrapped, const json_t *v)
{
    const char *text = json_string_value(v);
    struct buf out = {0};
    json_t *changed = NULL;
    bool fine = true;

    if (strlen(text) != json_string_length(v))
        return config_fail(s, "holds a NUL");
    if (!strchr(text, '$'))
        return true;
    if ((fine = substitute_text(s, text, &out)) && !(changed = json_string(buf_text(&out))))
        fine = config_fail(s, "the environment gives something that is not UTF-8");
    if (fine)
        json_object_set_new(wrapped, "v", changed);
    buf_clear(&out);
    return fine;
}

static bool substitute(struct config_parse_state *s, json_t *wrapped)
{
    json_t *v = json_object_get(wrapped, "v"), *child;
    const char *member;
    bool fine = true;
    size_t i, mark = s->path.len;

    if (json_is_string(v))
        return substitute_string(s, wrapped, v);
    if (json_is_array(v))
        json_array_foreach(v, i, child)
        {
            config_enter_index(s, i);
            if (!(fine = substitute(s, child)))
                return false;
            config_leave(s, mark);
        }
    else if (json_is_object(v))
        json_object_foreach(v, member, child)
        {
            config_enter(s, member);
            if (!(fine = substitute(s, child)))
                return false;
            config_leave(s, mark);
        }
    return fine;
}

bool config_substitute(struct config_parse_state *s)
{
    buf_reset(&s->path);
    return substitute(s, s->tree);
}
