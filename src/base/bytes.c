#include "base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

struct slice slice_of(const void *ptr, size_t len)
{
    return (struct slice){.ptr = ptr, .len = len};
}

struct slice slice_text(const char *text)
{
    return slice_of(text, text ? strlen(text) : 0);
}

bool slice_equal(struct slice a, struct slice b)
{
    if (a.ptr == NULL || b.ptr == NULL)
        return a.ptr == b.ptr;
    return a.len == b.len && memcmp(a.ptr, b.ptr, a.len) == 0;
}

size_t bytes_cut_utf8(const char *text, size_t len, size_t max)
{
    if (len <= max)
        return len;
    while (max > 0 && ((unsigned char)text[max] & 0xC0) == 0x80)
        max--;
    return max;
}

/* Room for more bytes and the NUL behind them. */
static void buf_reserve(struct buf *b, size_t more)
{
    size_t need = b->len + more + 1;
    size_t cap = b->cap ? b->cap : 64;

    MUST(need > more);
    if (need <= b->cap)
        return;
    while (cap < need)
        cap *= 2;
    b->data = mem_grow(b->data, cap, 1);
    b->cap = cap;
}

void buf_add(struct buf *b, const void *ptr, size_t len)
{
    buf_reserve(b, len);
    if (len > 0)
        memcpy(b->data + b->len, ptr, len);
    b->len += len;
    b->data[b->len] = '\0';
}

void buf_add_text(struct buf *b, const char *text)
{
    buf_add(b, text, strlen(text));
}

void buf_add_char(struct buf *b, char c)
{
    buf_add(b, &c, 1);
}

void buf_printf(struct buf *b, const char *fmt, ...)
{
    va_list args;
    int n;

    buf_reserve(b, 128);
    va_start(args, fmt);
    n = vsnprintf(b->data + b->len, b->cap - b->len, fmt, args);
    va_end(args);
    MUST(n >= 0);
    if ((size_t)n >= b->cap - b->len) {
        buf_reserve(b, (size_t)n);
        va_start(args, fmt);
        n = vsnprintf(b->data + b->len, b->cap - b->len, fmt, args);
        va_end(args);
    }
    b->len += (size_t)n;
}

void buf_add_json(struct buf *b, const char *text, size_t len)
{
    size_t plain = 0; /* where the part that needs no escape began */

    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)text[i];

        if (c >= 0x20 && c != 0x7f && c != '"' && c != '\\') /* DEL: TOML takes none */
            continue;
        buf_add(b, text + plain, i - plain);
        plain = i + 1;
        if (c == '"' || c == '\\')
            buf_printf(b, "\\%c", c);
        else if (c == '\n')
            buf_add_text(b, "\\n");
        else
            buf_printf(b, "\\u%04x", (unsigned)c);
    }
    buf_add(b, text + plain, len - plain);
}

const char *buf_text(const struct buf *b)
{
    return b->data ? b->data : "";
}

void buf_reset(struct buf *b)
{
    b->len = 0;
    if (b->data)
        b->data[0] = '\0';
}

void buf_clear(struct buf *b)
{
    mem_free(b->data);
    *b = (struct buf){0};
}
