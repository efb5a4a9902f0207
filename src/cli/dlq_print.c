/*
 * Dead letters hold what anybody sent, so nothing of them goes to a terminal as it is.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "cli/dlq.h"
#include "core/payload.h"

void dlq_add_text(struct buf *out, struct slice s)
{
    buf_add_shown(out, s.ptr, s.len);
}

static void add_base64(struct buf *out, struct slice s)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const unsigned char *at = s.ptr;

    for (size_t i = 0; i < s.len; i += 3) {
        size_t n = s.len - i < 3 ? s.len - i : 3;
        unsigned bits = (unsigned)at[i] << 16 | (n > 1 ? (unsigned)at[i + 1] << 8 : 0U) |
                        (n > 2 ? (unsigned)at[i + 2] : 0U);

        for (unsigned k = 0; k <= n; k++)
            buf_add_char(out, digits[bits >> (18 - 6 * k) & 63]);
        for (; n < 3; n++)
            buf_add_char(out, '=');
    }
}

void dlq_add_json(struct buf *out, struct slice s)
{
    if (s.ptr == NULL) {
        buf_add_text(out, "null");
    } else if (payload_is_utf8(s)) {
        buf_add_char(out, '"');
        buf_add_json(out, s.ptr, s.len);
        buf_add_char(out, '"');
    } else {
        buf_add_text(out, "{\"base64\":\"");
        add_base64(out, s);
        buf_add_text(out, "\"}");
    }
}

/* Lines and tabs are as good as any other character here. */
static bool is_text(struct slice s)
{
    const char *at = s.ptr;

    for (size_t i = 0; i < s.len;) {
        size_t n =
            at[i] == '\n' || at[i] == '\t' || (at[i] == '\r' && i + 1 < s.len && at[i + 1] == '\n')
                ? 1
                : bytes_shown(at + i, s.len - i);

        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

static void dump_line(const unsigned char *at, size_t from, size_t len)
{
    printf("  %08zx ", from);
    for (size_t i = 0; i < 16; i++) {
        if (i < len)
            printf(" %02x", at[from + i]);
        else
            fputs("   ", stdout);
    }
    fputs("  |", stdout);
    for (size_t i = 0; i < len; i++)
        putchar(at[from + i] >= 0x20 && at[from + i] < 0x7F ? at[from + i] : '.');
    puts("|");
}

void dlq_print_payload(struct slice s)
{
    if (is_text(s)) {
        (void)fwrite(s.ptr, 1, s.len, stdout);
        putchar('\n');
        return;
    }
    for (size_t from = 0; from < s.len; from += 16)
        dump_line(s.ptr, from, s.len - from < 16 ? s.len - from : 16);
}

void dlq_add_origin(struct buf *out, const struct letter *l)
{
    if (l->kind != LETTER_OURS) {
        buf_add_char(out, '-');
        return;
    }
    dlq_add_text(out, l->topic);
    buf_printf(out, ":%d:%" PRId64, (int)l->partition, l->offset);
}

static void add_member(struct buf *out, const char *name, struct slice s)
{
    buf_printf(out, ",\"%s\":", name);
    dlq_add_json(out, s);
}

void dlq_add_members(struct buf *out, const struct record *r, const struct letter *l,
                     enum dlq_state state)
{
    char at[32];

    buf_printf(out, "\"dead_letter\":\"%d:%" PRId64 "\",\"state\":\"%s\"", (int)r->partition,
               r->offset, dlq_state_name(state));
    if (l->kind == LETTER_BROKEN)
        add_member(out, "fault", slice_text(l->fault));
    if (l->kind == LETTER_OURS) {
        clock_format(l->time_ms, at);
        buf_printf(out, ",\"time\":\"%s\"", at);
        add_member(out, "reason", l->reason);
        add_member(out, "error", l->error);
        add_member(out, "topic", l->topic);
        buf_printf(out, ",\"partition\":%d,\"offset\":%" PRId64 ",\"attempts\":%" PRIu32,
                   (int)l->partition, l->offset, l->attempts);
        add_member(out, "group", l->group);
        add_member(out, "version", l->version);
    }
    buf_printf(out, ",\"value_bytes\":%zu", r->value.len);
}
