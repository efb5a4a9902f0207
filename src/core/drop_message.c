#include "core/drop_message.h"

#include <string.h>

#include <jansson.h>

#include "base/mem.h"

#define WILDCARDS "*?[]\\"

static bool contains_and_free(const char *text, char *part)
{
    bool found = strstr(text, part) != NULL;

    mem_free(part);
    return found;
}

static char *json_of(const char *name)
{
    struct buf b = {0};

    buf_add_json(&b, name, strlen(name));
    buf_add_text(&b, "");
    return b.data;
}

/* As readers of version 1.x have it in their keys: "ns":{"collection":"C","db":"D", */
static bool names_in_json(const char *text, const char *database, const char *collection)
{
    char *db = json_of(database), *coll = json_of(collection);
    bool found = contains_and_free(text, mem_printf("\"collection\":\"%s\"", coll)) &&
                 contains_and_free(text, mem_printf("\"db\":\"%s\"", db));

    mem_free(db);
    mem_free(coll);
    return found;
}

/* As those of 3.x: ...:D.C:... and D:C:bm:... */
static bool names_in_text(const char *text, const char *database, const char *collection)
{
    return contains_and_free(text, mem_printf("%s.%s", database, collection)) ||
           contains_and_free(text, mem_printf("%s:%s", database, collection));
}

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* *"ns":{"collection":"X","db":"Y",*, with nothing open in it */
static bool is_pattern_of_1(const char *text)
{
    static const char start[] = "*\"ns\":{\"collection\":\"", middle[] = "\",\"db\":\"",
                      end[] = "\",*";
    const char *at = text + strlen(start);

    if (!starts_with(text, start))
        return false;
    at += strcspn(at, WILDCARDS "\"");
    if (!starts_with(at, middle))
        return false;
    at += strlen(middle);
    at += strcspn(at, WILDCARDS "\"");
    return strcmp(at, end) == 0;
}

/* *:X.Y:* or X:Y:bm:*, with nothing open in it */
static bool is_pattern_of_3(const char *text)
{
    bool whole = starts_with(text, "*:");
    const char *at = text + (whole ? 2 : 0);
    size_t open = strcspn(at, WILDCARDS), dot = strcspn(at, ".");
    const char *end = at + open;

    if (strcmp(end, "*") != 0)
        return false;
    if (whole)
        return dot < open && open > 0 && end[-1] == ':' && memchr(at, ':', open - 1) == NULL;
    return open > 4 && memcmp(end - 4, ":bm:", 4) == 0;
}

static bool concerns(const json_t *root, const char *database, const char *collection,
                     const char *instance_id)
{
    const char *from = json_string_value(json_object_get(root, "instanceId"));
    const char *pattern = json_string_value(json_object_get(root, "pattern"));

    if (from && instance_id && strcmp(from, instance_id) == 0)
        return false;
    if (!pattern || json_object_get(root, "key") != NULL)
        return true; /* a key may be named by anybody as he likes */
    if (names_in_json(pattern, database, collection) ||
        names_in_text(pattern, database, collection))
        return true;
    return !is_pattern_of_1(pattern) && !is_pattern_of_3(pattern);
}

bool drop_message_concerns(struct slice message, const char *database, const char *collection,
                           const char *instance_id)
{
    json_t *root = json_loadb(message.ptr, message.len, JSON_DECODE_ANY, NULL);
    bool ours = !json_is_object(root) || concerns(root, database, collection, instance_id);

    json_decref(root);
    return ours;
}
