/*
 * bytes.h - borrowed bytes and a buffer that grows.
 */
#ifndef IDEMSINK_BASE_BYTES_H
#define IDEMSINK_BASE_BYTES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Borrowed bytes. ptr == NULL means absent (a Kafka null), which is not the same as len == 0. */
struct slice {
    const void *ptr;
    size_t len;
};

struct slice slice_of(const void *ptr, size_t len);
struct slice slice_text(const char *text); /* without the NUL; absent for NULL */
bool slice_equal(struct slice a, struct slice b);

/* How much of a UTF-8 text of len bytes to show in at most max: no character is left half. */
size_t bytes_cut_utf8(const char *text, size_t len, size_t max);

/* Bytes that grow. Zero-initialised is empty; data is always followed by a NUL
 * (data is NULL until something was added: use buf_text()). */
struct buf {
    char *data;
    size_t len, cap;
};

void buf_add(struct buf *b, const void *ptr, size_t len);
void buf_add_text(struct buf *b, const char *text);
void buf_add_char(struct buf *b, char c);
void buf_printf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/*
 * For eyes: what a terminal obeys (C0, DEL, C1), what is invisible or turns the reading direction
 * around, and what is no UTF-8, is escaped.
 */
/* The length of the character here when it may be shown as it is, else 0. */
size_t bytes_shown(const char *text, size_t len);
void buf_add_shown(struct buf *b, const char *text, size_t len); /* as \xNN, byte by byte */
/* For a JSON (or TOML) string, no quotes; as \uNNNN, no UTF-8 as \ufffd. */
void buf_add_json(struct buf *b, const char *text, size_t len);
/* The same in a whole JSON value. */
void buf_add_json_shown(struct buf *b, const char *json, size_t len);

const char *buf_text(const struct buf *b); /* "" when empty */
void buf_reset(struct buf *b);             /* empty, memory kept */
void buf_clear(struct buf *b);             /* empty, memory released */

#endif
