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

/* The strict UTF-8 character here, and its length; 0: there is none. */
static size_t decode(const char *text, size_t len, uint32_t *c)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    unsigned char first = (unsigned char)text[0];
    size_t n = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC0 ? 2 : 0;

    if (n == 0 || n > len)
        return 0;
    *c = n == 1 ? first : first & (0x7FU >> n);
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)text[i] & 0xC0) != 0x80)
            return 0;
        *c = *c << 6 | ((unsigned char)text[i] & 0x3F);
    }
    return *c < least[n] || *c > 0x10FFFF || (*c >= 0xD800 && *c <= 0xDFFF) ? 0 : n;
}

/* What a terminal obeys, what nobody sees, and what turns the reading direction around, so that a
 * line says something else than it does. U+200C and U+200D are spelling in some languages. All are
 * below U+10000, so that TOML takes their escapes. */
static bool is_shown(uint32_t c)
{
    static const struct {
        uint32_t from, to;
    } hidden[] = {{0, 0x1F},        {0x7F, 0x9F},     {0x61C, 0x61C},   {0x180E, 0x180E},
                  {0x200B, 0x200B}, {0x200E, 0x200F}, {0x2028, 0x202E}, {0x2060, 0x206F},
                  {0xFEFF, 0xFEFF}, {0xFFF9, 0xFFFB}};

    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        if (c >= hidden[i].from && c <= hidden[i].to)
            return false;
    return true;
}

size_t bytes_shown(const char *text, size_t len)
{
    uint32_t c = 0;
    size_t n = decode(text, len, &c);

    return n > 0 && is_shown(c) ? n : 0;
}

void buf_add_shown(struct buf *b, const char *text, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = bytes_shown(text + i, len - i);

        if (n > 0)
            buf_add(b, text + i, n);
        else
            buf_printf(b, "\\x%02x", (unsigned)(unsigned char)text[i]);
        i += n > 0 ? n : 1;
    }
}

/* specials: control characters, '"' and '\' are escaped as well. */
static void add_json(struct buf *b, const char *text, size_t len, bool specials)
{
    size_t plain = 0; /* where the part that needs no escape began */

    for (size_t i = 0, n; i < len; i += n) {
        unsigned char first = (unsigned char)text[i];
        uint32_t c = 0xFFFD; /* for what is no UTF-8 */

        if (first < 0x7F && (!specials || (first >= 0x20 && first != '"' && first != '\\'))) {
            n = 1;
            continue;
        }
        n = decode(text + i, len - i, &c);
        if (n > 0 && c >= 0x7F && is_shown(c))
            continue;
        buf_add(b, text + plain, i - plain);
        if (n == 0) {
            n = 1;
            c = 0xFFFD;
        }
        plain = i + n;
        if (c == '"' || c == '\\')
            buf_printf(b, "\\%c", (int)c);
        else if (c == '\n')
            buf_add_text(b, "\\n");
        else
            buf_printf(b, "\\u%04x", (unsigned)c);
    }
    buf_add(b, text + plain, len - plain);
}

void buf_add_json(struct buf *b, const char *text, size_t len)
{
    add_json(b, text, len, true);
}

void buf_add_json_shown(struct buf *b, const char *json, size_t len)
{
    add_json(b, json, len, false);
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
