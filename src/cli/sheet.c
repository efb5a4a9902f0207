#include "cli/sheet.h"

#include <stdarg.h>
#include <string.h>

#include "base/mem.h"

static char *quoted(const char *text)
{
    struct buf b = {0};

    buf_add_char(&b, '"');
    buf_add_json(&b, text, strlen(text));
    buf_add_char(&b, '"');
    return b.data;
}

static void add(struct sheet *s, struct sheet_row row)
{
    s->rows = mem_grow(s->rows, s->n + 1, sizeof *s->rows);
    s->rows[s->n++] = row;
}

void sheet_clear(struct sheet *s)
{
    for (size_t i = 0; i < s->n; i++) {
        mem_free(s->rows[i].text);
        mem_free(s->rows[i].json);
    }
    mem_free(s->rows);
    *s = (struct sheet){0};
}

void sheet_add(struct sheet *s, const char *name, const char *text, const char *json)
{
    struct buf shown = {0};

    buf_add_shown(&shown, text, strlen(text));
    add(s, (struct sheet_row){.name = name,
                              .text = mem_text(buf_text(&shown)),
                              .json = json ? mem_text(json) : quoted(text)});
    buf_clear(&shown);
}

void sheet_add_item(struct sheet *s, const char *name, const char *text, const char *json)
{
    sheet_add(s, name, text, json);
    s->rows[s->n - 1].list = true;
}

void sheet_printf(struct sheet *s, const char *name, const char *fmt, ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    sheet_add(s, name, text, NULL);
}

void sheet_add_bson(struct sheet *s, const char *name, const bson_t *b)
{
    char *text = bson_as_relaxed_extended_json(b, NULL);
    struct buf shown = {0};

    if (text) {
        buf_add_json_shown(&shown, text, strlen(text));
        sheet_add(s, name, buf_text(&shown), buf_text(&shown));
    } else
        sheet_add(s, name, "(can't be shown)", NULL);
    buf_clear(&shown);
    bson_free(text);
}

/* --- printing --- */

static void print_name(const char *name, FILE *out)
{
    fputc('"', out);
    for (; *name; name++)
        fputc(*name == ' ' ? '_' : *name, out);
    fputs("\":", out);
}

static bool printed_before(const struct sheet *s, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (strcmp(s->rows[k].name, s->rows[i].name) == 0)
            return true;
    return false;
}

static void print_list(const struct sheet *s, size_t from, FILE *out)
{
    const char *between = "[";

    for (size_t i = from; i < s->n; i++) {
        if (strcmp(s->rows[i].name, s->rows[from].name) != 0)
            continue;
        fprintf(out, "%s%s", between, s->rows[i].json);
        between = ",";
    }
    fputc(']', out);
}

static void print_json(const struct sheet *s, FILE *out)
{
    const char *between = "{";

    for (size_t i = 0; i < s->n; i++) {
        if (printed_before(s, i))
            continue;
        fputs(between, out);
        print_name(s->rows[i].name, out);
        if (s->rows[i].list)
            print_list(s, i, out);
        else
            fputs(s->rows[i].json, out);
        between = ",";
    }
    fputs(s->n > 0 ? "}\n" : "{}\n", out);
}

void sheet_print(const struct sheet *s, bool json, FILE *out)
{
    if (json) {
        print_json(s, out);
        return;
    }
    for (size_t i = 0; i < s->n; i++)
        fprintf(out, "%-13s %s\n", s->rows[i].name, s->rows[i].text);
}
