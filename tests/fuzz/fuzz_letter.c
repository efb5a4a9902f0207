/*
 * Any headers in the dead-letter topic. Must hold: no crash; what is believed is believed once for
 * each of our headers, has a topic's name, and becomes a record that has no header of ours; read
 * again as a letter of its own it is foreign.
 *
 * Parts end with a NUL: name, value, name, value, ... A value "-" is a null. The first letter of a
 * name, a to n, stands for one of our names, so that they need not be found.
 */
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/letter.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { HEADERS = 32 };

static const char *const ours[] = {"reason",   "error", "topic",   "partition", "offset",
                                   "attempts", "time",  "group",   "version",   "timestamp",
                                   "value",    "key",   "headers", ""};

/* The next part, a text of its own. */
static char *part(const uint8_t **at, const uint8_t *end)
{
    const uint8_t *nul = memchr(*at, 0, (size_t)(end - *at));
    size_t len = (size_t)((nul != NULL ? nul : end) - *at);
    char *text = mem_text_n((const char *)*at, len);

    *at = nul != NULL ? nul + 1 : end;
    return text;
}

static char *name_of(char *text)
{
    size_t which = (size_t)(unsigned char)text[0] - 'a';

    if (which >= sizeof ours / sizeof ours[0])
        return text;
    char *name = mem_printf("idemsink.%s%s", ours[which], text + 1);
    mem_free(text);
    return name;
}

static void check(const struct record *r)
{
    struct letter l, again;

    letter_read(r, &l);
    MUST((l.kind == LETTER_BROKEN) == (l.fault != NULL));
    if (l.kind != LETTER_OURS)
        return;
    MUST(l.partition >= 0 && l.offset >= 0 && l.topic.len > 0 && l.topic.len < 250);
    MUST(memchr(l.topic.ptr, '^', l.topic.len) == NULL);
    char *topic = mem_text_n(l.topic.ptr, l.topic.len);
    struct record *restored = letter_restore(r, &l, topic);
    MUST(restored->partition == l.partition && restored->offset == l.offset);
    MUST(restored->n_headers <= r->n_headers - 9);
    letter_read(restored, &again);
    MUST(again.kind == LETTER_FOREIGN);
    struct letter_table *t = letter_table_new();
    letter_table_add(t, &l, 1, 2);
    MUST(letter_table_newest(t, &l, 1, 2));
    letter_table_free(t);
    record_free(restored);
    mem_free(topic);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct record_header headers[HEADERS];
    char *texts[2 * HEADERS];
    const uint8_t *at = data, *end = data + size;
    size_t n = 0;

    for (; at < end && n < HEADERS; n++) {
        texts[2 * n] = name_of(part(&at, end));
        texts[2 * n + 1] = part(&at, end);
        headers[n].name = slice_text(texts[2 * n]);
        headers[n].value =
            strcmp(texts[2 * n + 1], "-") == 0 ? slice_of(NULL, 0) : slice_text(texts[2 * n + 1]);
    }
    struct record *r = record_new(&(struct record_source){.topic = "dead",
                                                          .timestamp_ms = -1,
                                                          .value = slice_text("v"),
                                                          .headers = headers,
                                                          .n_headers = n});
    check(r);
    record_free(r);
    for (size_t i = 0; i < 2 * n; i++)
        mem_free(texts[i]);
    return 0;
}
