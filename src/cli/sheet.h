/*
 * sheet.h - rows of name and text that a command prints, for people or as one JSON object.
 */
#ifndef IDEMSINK_CLI_SHEET_H
#define IDEMSINK_CLI_SHEET_H

#include <stdbool.h>
#include <stdio.h>

#include <bson/bson.h>

#include "base/bytes.h"

struct sheet_row {
    const char *name; /* borrowed; "dedup key" is "dedup_key" in JSON */
    char *text;       /* for people */
    char *json;       /* a JSON value */
    bool list;        /* all rows of this name are one JSON array */
};

/* Zero-initialised is empty. */
struct sheet {
    struct sheet_row *rows;
    size_t n;
};
void sheet_clear(struct sheet *s);

/* json NULL: the text as a JSON string. Both are copied; the text as buf_add_shown() has it, and
 * json has to be so already. */
void sheet_add(struct sheet *s, const char *name, const char *text, const char *json);
void sheet_add_item(struct sheet *s, const char *name, const char *text, const char *json);
void sheet_printf(struct sheet *s, const char *name, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As relaxed Extended JSON, for both. */
void sheet_add_bson(struct sheet *s, const char *name, const bson_t *b);

/* "name          text" lines, or one JSON object in one line. */
void sheet_print(const struct sheet *s, bool json, FILE *out);

#endif
