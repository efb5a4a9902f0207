/*
 * template.h - texts with values of the record in them: cache keys, channels, payloads.
 *
 *   user:{order.user}:profile          TEXT, GLOB: "{{" and "}}" are braces
 *   {"type":"order","id":{order.id}}   JSON: "{" and a letter, "_" or "@" begin a placeholder,
 * other braces are JSON's
 *
 * A placeholder is a source (core/pick.h), @db or @collection. Values are scalars: strings as they
 * are, numbers in their shortest form, true and false. In JSON a placeholder between quotes becomes
 * escaped text, one outside quotes a JSON value.
 */
#ifndef IDEMSINK_CORE_TEMPLATE_H
#define IDEMSINK_CORE_TEMPLATE_H

#include "base/bytes.h"
#include "base/err.h"
#include "core/record.h"

enum template_kind {
    TEMPLATE_TEXT,
    TEMPLATE_GLOB, /* as TEXT; a value may not hold * ? [ ] or \, which receivers would read as a
                      pattern */
    TEMPLATE_JSON
};

struct template_names {
    const char *database, *collection;
};

struct template;

/* ERR_CONFIG: unknown source, brace without partner, or (JSON) not JSON once the placeholders are
 * filled. */
struct template *template_new(enum template_kind kind, const char *text,
                              const struct template_names *names, struct err *e) MUST_CHECK;
void template_free(struct template *t);

/* Does it hold a value path? Then r->json must be there when it is filled. */
bool template_needs_payload(const struct template *t);

/*
 * Appends the text. False, with out in any state: a value is missing, null, no scalar, holds a NUL
 * (TEXT, GLOB), a wildcard (GLOB) or is not UTF-8 (JSON).
 */
bool template_fill(const struct template *t, const struct record *r, struct buf *out);

/* The source of the first placeholder for which it is false ("order.user", "@key"); NULL: for none.
 * mem_free() it. */
char *template_unfilled(const struct template *t, const struct record *r);

/* What the sender replaces by the time; may stand in a JSON template where a number may stand. */
#define TEMPLATE_TIMESTAMP "@TIMESTAMP@"

/* As buf_add_json(), and TEMPLATE_TIMESTAMP coming from data is made harmless. */
void template_add_json(struct buf *out, struct slice text);

#endif
