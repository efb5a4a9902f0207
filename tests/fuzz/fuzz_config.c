/*
 * Any bytes as a configuration: no crash, an error with a place, and what is accepted and printed
 * is accepted again and printed the same. What stands behind a line "--set" are overrides, one a
 * line.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/config.h"

enum { OVERRIDES_MAX = 8 };

static void must(int cond)
{
    if (!cond)
        abort();
}

static const char *env(const char *name)
{
    return strcmp(name, "HOME") == 0 ? "/home/\xc3\xa9" : strcmp(name, "EMPTY") == 0 ? "" : NULL;
}

/* Secrets are printed as "***", which reads back as another value, but the same text. */
static void check_accepted(struct config *c)
{
    struct buf first = {0}, second = {0};
    struct err e = {0};
    struct config *again;

    config_print(c, &first);
    again = config_parse(
        &(struct config_input){.name = "again", .text = slice_of(first.data, first.len)}, &e);
    must(again != NULL);
    config_print(again, &second);
    must(strcmp(first.data, second.data) == 0);
    must(config_route_of(c, "no/topic") < (int)c->n_routes);
    for (size_t i = 0; i < c->n_routes; i++) {
        const struct config_route *r = &c->routes[i];

        must(r->topics.n > 0 && r->dedup.key.n > 0 && *r->database && *r->collection);
        must(r->dedup.into_id ? r->dedup.fields.n == 0 : r->dedup.fields.n == r->dedup.key.n);
        if (r->topics.items[0][0] != '^')
            must(config_route_of(c, r->topics.items[0]) == (int)i);
    }
    config_free(again);
    config_free(c);
    buf_clear(&first);
    buf_clear(&second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char separator[] = "\n--set\n";
    char *text = mem_text_n((const char *)data, size), *sets, *next;
    const char *overrides[OVERRIDES_MAX];
    struct config_input in = {
        .name = "f", .text = slice_of(text, size), .overrides = overrides, .env = env};
    struct err e = {0};
    struct config *c;

    sets = memmem(text, size, separator, strlen(separator));
    if (sets) {
        in.text.len = (size_t)(sets - text);
        sets += strlen(separator);
        for (; *sets && in.n_overrides < OVERRIDES_MAX; sets = next) {
            size_t len = strcspn(sets, "\n");

            next = sets + len + (sets[len] == '\n');
            sets[len] = '\0';
            overrides[in.n_overrides++] = sets;
        }
    }
    c = config_parse(&in, &e);
    if (c) {
        must(e.kind == ERR_NONE);
        check_accepted(c);
    } else
        must(e.kind == ERR_CONFIG &&
             (strncmp(e.text, "f:", 2) == 0 || strncmp(e.text, "--set", 5) == 0));
    mem_free(text);
    return 0;
}
