/*
 * config_pairs.c - tables whose names are free: kafka.properties, route.types, route.rename,
 * route.set, route.counter.filter, route.counter.inc.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"

/* Returns the text that is kept for one value (mem_free()), or NULL after config_fail(). name:
 * joined with dots. */
typedef char *convert_fn(struct config_parse_state *s, const char *name, const json_t *wrapped);

static const json_t *plain_text(const json_t *wrapped)
{
    const json_t *v = json_object_get(wrapped, "v");

    return json_is_string(v) && !json_object_get(wrapped, "t") ? v : NULL;
}

static char *refuse_kind(struct config_parse_state *s, const char *wanted, bool secret,
                         const json_t *wrapped)
{
    struct buf kind = {0};

    config_add_kind(wrapped, secret, &kind);
    config_fail(s, "has to be %s, not %s", wanted, buf_text(&kind));
    buf_clear(&kind);
    return NULL;
}

static char *convert_property(struct config_parse_state *s, const char *name, const json_t *wrapped)
{
    const json_t *v = json_object_get(wrapped, "v");

    if (plain_text(wrapped))
        return mem_text(json_string_value(v));
    if (json_is_integer(v))
        return mem_printf("%" JSON_INTEGER_FORMAT, json_integer_value(v));
    if (json_is_boolean(v))
        return mem_text(json_is_true(v) ? "true" : "false");
    return refuse_kind(s, "a string, an integer or true or false", config_property_secret(name),
                       wrapped);
}

static char *convert_type(struct config_parse_state *s, const char *name, const json_t *wrapped)
{
    const struct config_key *k = config_key_find("", "route.types");
    const json_t *v = plain_text(wrapped);
    const char *fault = config_path_fault(name, false);
    struct buf nearest = {0};

    if (fault) {
        config_fail(s, "\"%s\" %s", name, fault);
        return NULL;
    }
    if (!v)
        return refuse_kind(s, "the name of a type in quotes", false, wrapped);
    if (config_choice_of(k->choices, json_string_value(v)) >= 0)
        return mem_text(json_string_value(v));
    config_add_nearest_choice(k->choices, json_string_value(v), &nearest);
    config_fail(s, "\"%.60s\" is not a type; possible: %s%s", json_string_value(v), k->choices,
                buf_text(&nearest));
    buf_clear(&nearest);
    return NULL;
}

static char *convert_rename(struct config_parse_state *s, const char *name, const json_t *wrapped)
{
    const json_t *v = plain_text(wrapped);
    const char *fault = config_path_fault(name, false);

    if (fault)
        config_fail(s, "\"%s\" %s", name, fault);
    else if (!v)
        return refuse_kind(s, "a path in quotes", false, wrapped);
    else if ((fault = config_path_fault(json_string_value(v), true)))
        config_fail(s, "\"%.60s\" %s", json_string_value(v), fault);
    else
        return mem_text(json_string_value(v));
    return NULL;
}

static int add_to_buf(const char *text, size_t len, void *out)
{
    buf_add(out, text, len);
    return 0;
}

static char *json_text(const json_t *v)
{
    struct buf out = {0};

    MUST(json_dump_callback(v, add_to_buf, &out, JSON_ENCODE_ANY) == 0);
    return out.data;
}

static char *convert_constant(struct config_parse_state *s, const char *name, const json_t *wrapped)
{
    const json_t *v = json_object_get(wrapped, "v");
    const char *fault = config_path_fault(name, true), *text = json_string_value(v);
    char *out;
    json_t *literal;

    if (fault)
        config_fail(s, "\"%s\" %s", name, fault);
    else if (json_object_get(wrapped, "t") || json_is_array(v))
        return refuse_kind(s, "a string, a number or true or false", false, wrapped);
    else if (!text || *text != '@')
        return json_text(v);
    else if (text[1] == '@') {
        literal = json_string(text + 1);
        out = json_text(literal);
        json_decref(literal);
        return out;
    } else if ((fault =
                    config_source_fault(text, SOURCE_TOPIC | SOURCE_PARTITION | SOURCE_OFFSET |
                                                  SOURCE_TIMESTAMP | SOURCE_KEY | SOURCE_HEADER)))
        config_fail(s, "\"%.60s\" %s", text, fault);
    else
        return mem_text(text);
    return NULL;
}

static char *convert_source(struct config_parse_state *s, const char *name, const json_t *wrapped)
{
    const json_t *v = plain_text(wrapped);
    const char *fault = config_path_fault(name, true);

    if (fault)
        config_fail(s, "\"%s\" %s", name, fault);
    else if (!v)
        return refuse_kind(s, "a source in quotes", false, wrapped);
    else if ((fault = config_source_fault(json_string_value(v),
                                          SOURCE_KEY | SOURCE_TOPIC | SOURCE_HEADER | SOURCE_PATH)))
        config_fail(s, "\"%.60s\" %s", json_string_value(v), fault);
    else
        return mem_text(json_string_value(v));
    return NULL;
}

/* JSON: a number, or a path as a string. */
static char *convert_amount(struct config_parse_state *s, const char *name, const json_t *wrapped)
{
    const json_t *v = json_object_get(wrapped, "v");
    const char *fault = config_path_fault(name, true);

    if (fault)
        config_fail(s, "\"%s\" %s", name, fault);
    else if (json_is_integer(v) && json_integer_value(v) == 0)
        config_fail(s, "0 moves nothing");
    else if (json_is_integer(v) && json_integer_value(v) == INT64_MIN)
        config_fail(s, "has no counterpart with the other sign");
    else if (!json_is_integer(v) && !plain_text(wrapped))
        return refuse_kind(s, "an integer, or a value path in quotes", false, wrapped);
    else if (json_is_string(v) && (fault = config_path_fault(json_string_value(v), false)))
        config_fail(s, "\"%.60s\" %s", json_string_value(v), fault);
    else
        return json_text(v);
    return NULL;
}

static const struct {
    const char *key;
    convert_fn *convert;
} converters[] = {
    {"kafka.properties", convert_property},   {"route.types", convert_type},
    {"route.rename", convert_rename},         {"route.set", convert_constant},
    {"route.counter.filter", convert_source}, {"route.counter.inc", convert_amount},
};

static convert_fn *converter_of(const struct config_key *k)
{
    convert_fn *convert = NULL;

    for (size_t i = 0; i < sizeof converters / sizeof converters[0]; i++)
        if (strcmp(converters[i].key, k->name) == 0)
            convert = converters[i].convert;
    MUST(convert); /* every table of free names has a row */
    return convert;
}

struct pairs_reader {
    struct config_parse_state *s;
    const struct config_key *key;
    convert_fn *convert;
    struct config_pairs *out;
};

static bool add_pair(struct pairs_reader *r, const char *name, const json_t *wrapped)
{
    struct config_pairs *out = r->out;
    char *value;

    for (size_t i = 0; i < out->n; i++)
        if (strcmp(out->items[i].name, name) == 0)
            return config_fail(r->s, "is there twice, as a name with dots and as a table");
    if ((int64_t)out->n >= r->key->max)
        return config_fail(r->s, "more than %" PRId64 " entries", r->key->max);
    if (!(value = r->convert(r->s, name, wrapped)))
        return false;
    out->items = mem_grow(out->items, out->n + 1, sizeof out->items[0]);
    out->items[out->n++] = (struct config_pair){.name = mem_text(name), .value = value};
    return true;
}

/* The depth is bounded by toml.h. */
static bool read_level(struct pairs_reader *r, const char *prefix, json_t *table)
{
    const char *member;
    json_t *wrapped;

    json_object_foreach(table, member, wrapped)
    {
        json_t *v = json_object_get(wrapped, "v");
        char *name = mem_printf("%s%s%s", prefix, *prefix ? "." : "", member);
        size_t mark = config_enter(r->s, member);
        bool fine = json_is_object(v) ? read_level(r, name, v) : add_pair(r, name, wrapped);

        mem_free(name);
        if (!fine)
            return false;
        config_leave(r->s, mark);
    }
    return true;
}

bool config_read_pairs(struct config_parse_state *s, const struct config_key *k,
                       struct config_pairs *out, const json_t *wrapped)
{
    struct pairs_reader r = {.s = s, .key = k, .convert = converter_of(k), .out = out};
    json_t *v = json_object_get(wrapped, "v");

    if (!json_is_object(v))
        return config_fail(s, "has to be a table, not %s", config_kind_of(wrapped));
    return read_level(&r, "", v);
}
