/*
 * config_path.c - the small languages inside of values: paths and sources.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"

enum { PATH_SEGMENTS_MAX = 50 };

const char *config_path_fault(const char *path, bool document)
{
    size_t segments = 0;

    if (*path == '\0')
        return "is an empty path";
    if (*path == '@')
        return "is a source, and a path is needed here";
    for (const char *at = path;; at++) {
        size_t len = strcspn(at, ".");

        if (len == 0)
            return "has an empty name between its dots";
        if (document && *at == '$')
            return "has a name that starts with $, which MongoDB keeps for itself";
        if (++segments > PATH_SEGMENTS_MAX)
            return "goes deeper than 50 names";
        at += len;
        if (*at == '\0')
            return NULL;
    }
}

static const struct {
    const char *name;
    unsigned bit;
} source_names[] = {
    {"@key", SOURCE_KEY},     {"@offset", SOURCE_OFFSET},
    {"@topic", SOURCE_TOPIC}, {"@partition", SOURCE_PARTITION},
    {"@dedup", SOURCE_DEDUP}, {"@timestamp", SOURCE_TIMESTAMP},
};

const char *config_source_fault(const char *source, unsigned allowed)
{
    static const char header[] = "@header.";
    size_t n = sizeof header - 1;

    if (*source != '@')
        return allowed & SOURCE_PATH ? config_path_fault(source, false) : "is not a source";
    if ((allowed & SOURCE_HEADER) && strncmp(source, header, n) == 0)
        return source[n] ? NULL : "names no header";
    for (size_t i = 0; i < sizeof source_names / sizeof source_names[0]; i++)
        if (strcmp(source, source_names[i].name) == 0 && (source_names[i].bit & allowed))
            return NULL;
    if (allowed & SOURCE_DEDUP)
        return "is not possible here: @key, @partition, @dedup, @header.NAME or a value path";
    if (!(allowed & SOURCE_PATH))
        return "is not possible here: @topic, @partition, @offset, @timestamp, @key or "
               "@header.NAME (a text that starts with @ is written @@...)";
    if (allowed & SOURCE_OFFSET)
        return "is not possible here: @key, @header.NAME, @offset or a value path";
    if (allowed & SOURCE_TOPIC)
        return "is not possible here: @key, @topic, @header.NAME or a value path";
    return allowed & SOURCE_KEY ? "is not possible here: @key, @header.NAME or a value path"
                                : "is not possible here: @header.NAME or a value path";
}

static bool inside(const char *path, const char *of)
{
    size_t n = strlen(of);

    return strncmp(path, of, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

bool config_paths_collide(const char *a, const char *b)
{
    return inside(a, b) || inside(b, a);
}

/* At most one rename applies: none covers another. */
char *config_document_path(const struct config_route *r, const char *path)
{
    const char *dot = *r->under ? "." : "";

    for (size_t i = 0; i < r->rename.n; i++) {
        const struct config_pair *p = &r->rename.items[i];

        if (inside(path, p->name))
            return mem_printf("%s%s%s%s", r->under, dot, p->value, path + strlen(p->name));
    }
    return mem_printf("%s%s%s", r->under, dot, path);
}
