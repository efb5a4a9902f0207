/*
 * config_stored.c - where the document holds what a source says.
 */
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"

static bool covers(const char *above, const char *path)
{
    size_t n = strlen(above);

    return strncmp(path, above, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

static bool one_covers(const struct config_list *paths, const char *path)
{
    for (size_t i = 0; i < paths->n; i++)
        if (covers(paths->items[i], path))
            return true;
    return false;
}

/* As mapping_key.c names the parts of an _id. */
static char *id_part(const char *source)
{
    char *name = mem_printf("_id.%s", source + (source[0] == '@'));

    for (char *c = name + strlen("_id."); *c != '\0'; c++)
        if (*c == '.' || *c == '$')
            *c = '_';
    return name;
}

/* What a document is found by is in it in any case. */
static char *place_in_key(const struct config_route *r, const char *source)
{
    bool entity = config_has_operation(r);
    const struct config_list *key = entity ? &r->entity.key : &r->dedup.key;
    const struct config_list *fields = entity ? &r->entity.fields : &r->dedup.fields;

    for (size_t i = 0; i < key->n; i++) {
        if (strcmp(key->items[i], source) != 0)
            continue;
        if (!entity && r->dedup.into_id)
            return key->n == 1 ? mem_text("_id") : id_part(source);
        return mem_text(fields->items[i]);
    }
    return NULL;
}

/* route.set and source_fields. */
static char *place_of_source(const struct config_route *r, const char *source)
{
    static const char *const names[] = {"@topic", "@partition", "@offset", "@timestamp", "@key"};

    for (size_t i = 0; i < r->set.n; i++)
        if (strcmp(r->set.items[i].value, source) == 0)
            return mem_text(r->set.items[i].name);
    for (size_t i = 0; r->source_fields[0] && i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], source) == 0)
            return mem_printf("%s.%s", r->source_fields, source + 1);
    return NULL;
}

char *config_stored_path(const struct config_route *r, const char *source)
{
    char *place = place_in_key(r, source);

    if (place != NULL)
        return place;
    if (*source == '@')
        return place_of_source(r, source);
    if ((r->include.n > 0 && !one_covers(&r->include, source)) || one_covers(&r->exclude, source))
        return NULL;
    return config_document_path(r, source);
}
