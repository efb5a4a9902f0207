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
void buf_add_json(struct buf *b, const char *text,
                  size_t len);             /* escaped for a JSON string, no quotes */
const char *buf_text(const struct buf *b); /* "" when empty */
void buf_reset(struct buf *b);             /* empty, memory kept */
void buf_clear(struct buf *b);             /* empty, memory released */

#endif
