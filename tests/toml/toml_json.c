/* TOML on stdin to the tagged JSON of toml-test on stdout; exit 1 and the error on stderr when it
 * is not TOML. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <jansson.h>

#include "base/bytes.h"
#include "core/toml.h"

static json_t *tagged(const char *type, json_t *text)
{
    return json_pack("{s:s, s:o}", "type", type, "value", text);
}

static json_t *number(const char *type, const char *fmt, double real, int64_t integer)
{
    char text[64];

    if (strcmp(type, "integer") == 0)
        snprintf(text, sizeof text, "%" PRId64, integer);
    else
        snprintf(text, sizeof text, fmt, real);
    return tagged(type, json_string(text));
}

static json_t *convert(json_t *wrapped)
{
    json_t *v = json_object_get(wrapped, "v"), *child, *out;
    const char *type = json_string_value(json_object_get(wrapped, "t")), *name;
    size_t i;

    switch (json_typeof(v)) {
    case JSON_OBJECT:
        out = json_object();
        json_object_foreach(v, name, child) json_object_set_new(out, name, convert(child));
        return out;
    case JSON_ARRAY:
        out = json_array();
        json_array_foreach(v, i, child) json_array_append_new(out, convert(child));
        return out;
    case JSON_STRING:
        return tagged(type ? type : "string", json_incref(v));
    case JSON_INTEGER:
        return number("integer", "", 0, json_integer_value(v));
    case JSON_REAL:
        return number("float", "%.17g", json_real_value(v), 0);
    default:
        return tagged("bool", json_string(json_is_true(v) ? "true" : "false"));
    }
}

int main(void)
{
    struct buf text = {0};
    char block[65536];
    struct err e;
    json_t *tree, *out;
    size_t n;

    while ((n = fread(block, 1, sizeof block, stdin)) > 0)
        buf_add(&text, block, n);
    tree = toml_parse("stdin", text.data, text.len, &e);
    buf_clear(&text);
    if (!tree) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    out = convert(tree);
    json_dumpf(out, stdout, 0);
    json_decref(out);
    json_decref(tree);
    return 0;
}
