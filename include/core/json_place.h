/*
 * json_place.h - where in a JSON text something is: the first fault, or the value of a path.
 *
 * For people who look at one payload (`explain`, `dlq show`), and for the error of a record that is
 * broken: it walks the whole text and is slow. The way of the records is core/payload.h; this
 * agrees with it about what is sound (RFC 8259, no name twice in an object, no lone surrogates,
 * integers within int64, reals within double, at most 2048 levels) and knows the exact byte, where
 * jansson knows the end of the token.
 */
#ifndef IDEMSINK_CORE_JSON_PLACE_H
#define IDEMSINK_CORE_JSON_PLACE_H

#include "base/bytes.h"
#include "core/path.h"

struct json_place {
    size_t byte;         /* from 0 */
    size_t line, column; /* from 1; a column is a byte; 0 in BSON, which has no lines */
    struct buf path;     /* "order.items[3].price"; "" is the whole value */
    const char *what;    /* a fault: what is wrong there; static, nothing of the payload */
    bool has_first;      /* a name that occurs twice: */
    size_t first;        /* byte of the first one */
};
void json_place_clear(struct json_place *p);

/* True: there is a fault, at *out. False: the text is sound, and *out is empty. */
bool json_fault_find(struct slice text, struct json_place *out);

/* The first value on a level below `levels` (the whole value is the first) of a text without such
 * a fault. False: there is none. */
bool json_deep_find(struct slice text, unsigned levels, struct json_place *out);

/*
 * The place of the value at this path in a sound text. False: it is not there; *out is the
 * innermost value on the way that is (its path says which), at least the whole value.
 */
bool json_value_find(struct slice text, const struct path *path, struct json_place *out);

/* The value that begins at this byte of a sound text. False: none does; *out is empty. */
bool json_byte_find(struct slice text, size_t byte, struct json_place *out);

/* As json_value_find(), in the bytes of one BSON document that core/payload.h takes: the first byte
 * of the value, behind type and name. */
bool bson_value_find(struct slice bytes, const struct path *path, struct json_place *out);

/* "byte 12 (line 1, column 13), at order.id" */
void json_place_print(const struct json_place *p, struct buf *out);

#endif
