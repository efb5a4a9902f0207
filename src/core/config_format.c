/*
 * config_format.c - what a route can say about payloads of its format.
 */
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"

static const char *const format_names[] = {"json", "extjson", "bson", "string", "bytes"};

bool config_has_fields(const struct config_route *r)
{
    return r->format != FORMAT_STRING && r->format != FORMAT_BYTES;
}

static bool no_fields(struct config_parse_state *s, const char *format, const char *instead)
{
    return config_fail(s, "format = \"%s\": such a payload has no fields that could be named%s",
                       format, instead);
}

/* What speaks of the payload's fields, where it has none. */
static bool check_no_paths(struct config_parse_state *s, size_t i, const char *format)
{
    const struct config_route *r = &s->config->routes[i];
    const struct {
        const char *key;
        bool said;
    } keys[] = {{"types", r->types.n > 0},
                {"include", r->include.n > 0},
                {"exclude", r->exclude.n > 0},
                {"rename", r->rename.n > 0},
                {"drop_nulls", r->drop_nulls}};

    for (size_t k = 0; k < sizeof keys / sizeof keys[0]; k++)
        if (keys[k].said)
            return no_fields(config_at(s, "route.%zu.%s", i, keys[k].key), format, "");
    for (size_t j = 0; j < r->dedup.key.n; j++)
        if (*r->dedup.key.items[j] != '@')
            return no_fields(config_at(s, "route.%zu.dedup.key.%zu", i, j), format,
                             "; the identity can be @key, @header.NAME or @offset");
    if (*r->order_by != '@')
        return no_fields(config_at(s, "route.%zu.order_by", i), format,
                         "; possible here: @key, @partition, @dedup or @header.NAME");
    return true;
}

/* NULL: nothing else goes where the value goes. */
static const char *taken_by(const struct config_route *r, const char *place)
{
    if (config_paths_collide(place, "_id"))
        return "the document's _id";
    if (*r->source_fields && config_paths_collide(place, r->source_fields))
        return "source_fields";
    for (size_t j = 0; j < r->dedup.fields.n; j++)
        if (config_paths_collide(place, r->dedup.fields.items[j]))
            return "a field of the dedup key";
    for (size_t j = 0; j < r->set.n; j++)
        if (config_paths_collide(place, r->set.items[j].name))
            return "a field of [route.set]";
    if (r->dedup.conflict != CONFLICT_OFF && config_paths_collide(place, r->dedup.conflict_field))
        return "dedup.conflict_field";
    return NULL;
}

static bool check_value_field(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];
    const char *fault = config_path_fault(r->value_field, true), *taken;

    config_at(s, "route.%zu.value_field", i);
    if (fault)
        return config_fail(s, "\"%.60s\" %s", r->value_field, fault);

    char *place = mem_printf("%s%s%s", r->under, *r->under ? "." : "", r->value_field);
    taken = taken_by(r, place);
    mem_free(place);
    return !taken || config_fail(s, "\"%.60s\", where the payload goes, collides with %s",
                                 r->value_field, taken);
}

bool config_check_format(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];
    const char *format = format_names[r->format];

    if (!config_has_fields(r))
        return check_value_field(s, i) && check_no_paths(s, i, format);
    return strcmp(r->value_field, "value") == 0 || /* the default, which `check` prints */
           config_fail(config_at(s, "route.%zu.value_field", i),
                       "has no meaning with format = \"%s\": the payload's own fields are stored",
                       format);
}
