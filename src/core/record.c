#include "core/record.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/values.h"

enum { REJECTION_TEXT_MAX = 1024 };

/* Copies into the block and moves the place on. Absent stays absent; empty stays empty, because the
 * place is never NULL. */
static struct slice copy_to(char **place, struct slice from)
{
    struct slice copy = {.ptr = NULL, .len = 0};

    if (from.ptr == NULL)
        return copy;
    copy = slice_of(*place, from.len);
    if (from.len > 0)
        memcpy(*place, from.ptr, from.len);
    *place += from.len;
    return copy;
}

static size_t size_of(struct slice s)
{
    return s.ptr != NULL ? s.len : 0;
}

/* The block: the record, its headers, then all bytes. */
struct record *record_new(const struct record_source *from)
{
    size_t fixed = sizeof(struct record) + from->n_headers * sizeof(struct record_header);
    size_t bytes = fixed + size_of(from->key) + size_of(from->value);

    for (size_t i = 0; i < from->n_headers; i++)
        bytes += size_of(from->headers[i].name) + size_of(from->headers[i].value);

    struct record *r =
        mem_grow(NULL, bytes + 1, 1); /* + 1: an empty slice at the end points inside */
    struct record_header *headers = (struct record_header *)(r + 1);
    char *place = (char *)r + fixed;

    *r = (struct record){.topic = from->topic,
                         .partition = from->partition,
                         .slot = from->slot,
                         .offset = from->offset,
                         .timestamp_type = from->timestamp_type,
                         .timestamp_ms = from->timestamp_ms,
                         .headers = from->n_headers > 0 ? headers : NULL,
                         .n_headers = from->n_headers,
                         .bytes = bytes};
    r->key = copy_to(&place, from->key);
    r->value = copy_to(&place, from->value);
    for (size_t i = 0; i < from->n_headers; i++) {
        headers[i].name = copy_to(&place, from->headers[i].name);
        headers[i].value = copy_to(&place, from->headers[i].value);
    }
    return r;
}

void record_free(struct record *r)
{
    if (r == NULL)
        return;
    json_decref(r->json);
    values_free(r->values);
    mem_free(r->order_owned);
    mem_free(r->rejected.text);
    mem_free(r);
}

/* Where to cut text so that no UTF-8 character is left half: len, or a little before. */
static size_t whole_characters(const char *text, size_t len)
{
    size_t start = len;

    while (start > 0 && len - start < 4 && ((unsigned char)text[start - 1] & 0xC0) == 0x80)
        start--;
    if (start == 0 || len - start >= 4)
        return len;

    unsigned char lead = (unsigned char)text[start - 1];
    size_t follow = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : lead >= 0xC0 ? 1 : 0;
    return len - start < follow ? start - 1 : len;
}

void record_reject(struct record *r, enum reason reason, int code, const char *fmt, ...)
{
    char text[REJECTION_TEXT_MAX];
    va_list args;

    if (r->rejected.reason != REASON_NONE)
        return;
    va_start(args, fmt);
    int n = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    if (n < 0)
        text[0] = '\0';
    else if ((size_t)n >= sizeof(text))
        text[whole_characters(text, sizeof(text) - 1)] = '\0';
    r->rejected = (struct rejection){.reason = reason, .code = code, .text = mem_text(text)};
}

void record_refused(struct record *r, const struct outcome *o)
{
    const char *text = o->text ? o->text : "refused by the server";

    if (o->reason == REASON_REJECTED && o->code != 0) /* the other reasons say what it is */
        record_reject(r, o->reason, o->code, "code %d: %s", o->code, text);
    else
        record_reject(r, o->reason, o->code, "%s", text);
}

void record_reject_at(struct record *r, const char *path)
{
    if (r->rejected.path == NULL)
        r->rejected.path = path;
}

bool record_header(const struct record *r, const char *name, struct slice *out)
{
    struct slice wanted = slice_text(name);

    for (size_t i = r->n_headers; i > 0; i--) {
        if (slice_equal(r->headers[i - 1].name, wanted)) {
            *out = r->headers[i - 1].value;
            return true;
        }
    }
    return false;
}
