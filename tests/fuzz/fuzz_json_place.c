/* The place of a fault: it agrees with jansson about what is sound, and every place lies in the
 * text. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/json_place.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok)
{
    if (!ok)
        abort();
}

static void look_up(struct slice text, const char *path_text)
{
    struct json_place p;
    struct path path;
    struct err e;

    must(path_init(&path, path_text, &e));
    (void)json_value_find(text, &path, &p);
    must(p.byte <= text.len);
    json_place_clear(&p);
    path_clear(&path);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct slice text = slice_of(size > 0 ? (const void *)data : "", size);
    struct json_place p;
    struct buf shown = {0};
    bool faulty = json_fault_find(text, &p);
    json_t *theirs =
        json_loadb(text.ptr, size, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, NULL);

    /* jansson passes over a NUL behind a number or a word; core/payload.c does not. */
    must(faulty == (theirs == NULL || memchr(text.ptr, '\0', size) != NULL));
    if (faulty) {
        must(p.byte <= size && p.what != NULL);
        json_place_print(&p, &shown);
    } else {
        look_up(text, "a");
        look_up(text, "a.b.c");
        json_place_clear(&p);
        (void)json_deep_find(text, 3, &p);
    }
    json_place_clear(&p);
    buf_clear(&shown);
    json_decref(theirs);
    return 0;
}
