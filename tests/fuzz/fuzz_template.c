/*
 * Any template over any values. Must hold: no crash; what a JSON template gives is JSON for every
 * value; a glob has no wildcard that was not in the template.
 *
 * Text up to the first NUL: the template. Rest: the value of s, and the Kafka key.
 */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/payload.h"
#include "core/template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t wild(const char *text, size_t len)
{
    size_t n = 0;

    for (size_t i = 0; i < len; i++)
        n +=
            text[i] == '*' || text[i] == '?' || text[i] == '[' || text[i] == ']' || text[i] == '\\';
    return n;
}

static struct record *record_of(struct slice value)
{
    struct record_source source = {
        .topic = "to*pic", .timestamp_ms = -1, .key = value, .value = slice_text("x")};
    struct record *r = record_new(&source);
    json_t *s = json_stringn(value.ptr, value.len); /* NULL when it is not UTF-8 */

    r->json =
        json_pack("{s:i, s:f, s:b, s:n, s:{s:i}}", "i", 5, "f", 0.1, "b", 1, "n", "o", "i", -1);
    if (s != NULL)
        json_object_set_new(r->json, "s", s);
    return r;
}

static void check_json(char *text, size_t len)
{
    char *at;

    while ((at = memmem(text, len, TEMPLATE_TIMESTAMP, strlen(TEMPLATE_TIMESTAMP))) != NULL)
        memcpy(at, "10000000000", 11);
    json_error_t error;
    json_t *json = json_loadb(text, len, JSON_DECODE_ANY | JSON_ALLOW_NUL, &error);
    /* "{s}" as a name, with a NUL in s: JSON, but jansson has no such names. */
    bool nul_name = json == NULL && json_error_code(&error) == json_error_null_byte_in_key;
    MUST(nul_name || (json != NULL && !json_is_null(json)));
    json_decref(json);
}

static void run(enum template_kind kind, const char *text, const struct record *r)
{
    struct template_names names = {.database = "d\"b", .collection = "c"};
    struct err e;
    struct template *t = template_new(kind, text, &names, &e);
    struct buf out = {0};

    if (t == NULL)
        return;
    if (template_fill(t, r, &out)) {
        if (kind == TEMPLATE_JSON)
            check_json(out.data, out.len);
        if (kind == TEMPLATE_GLOB)
            MUST(wild(out.data, out.len) <= wild(text, strlen(text)));
    }
    buf_clear(&out);
    template_free(t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *nul = size > 0 ? memchr(data, 0, size) : NULL;
    size_t text_len = nul != NULL ? (size_t)(nul - data) : size;
    char *text = mem_text_n((const char *)data, text_len);
    struct record *r =
        record_of(slice_of(nul != NULL ? nul + 1 : data, nul != NULL ? size - text_len - 1 : 0));

    run(TEMPLATE_TEXT, text, r);
    run(TEMPLATE_GLOB, text, r);
    run(TEMPLATE_JSON, text, r);
    record_free(r);
    mem_free(text);
    return 0;
}
