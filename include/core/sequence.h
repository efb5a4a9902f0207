/*
 * sequence.h - the text that is made of a sequence's number: "{category}-{seq:06}". Pure.
 *
 * Placeholders are sources (core/pick.h; the configuration takes those of the group alone) and,
 * exactly once, {seq} or {seq:0N}: N digits at least.
 * Two of them need a text between them (behind the number none that begins with a digit). A value
 * may hold that text: ("a-b", "c") and ("a", "b-c") can make one text of two, and then the unique
 * index on it arbitrates.
 */
#ifndef IDEMSINK_CORE_SEQUENCE_H
#define IDEMSINK_CORE_SEQUENCE_H

#include "base/bytes.h"
#include "base/err.h"
#include "core/record.h"

struct sequence_text;

/* ERR_CONFIG: the text names what is wrong. */
struct sequence_text *sequence_text_new(const char *text, struct err *e) MUST_CHECK;
void sequence_text_free(struct sequence_text *t); /* NULL is fine */
/* The i-th source in it, borrowed from t; NULL: there are no more. */
const char *sequence_text_source(const struct sequence_text *t, size_t i);

/* Appends what stands before and behind the number. False: a value is missing, no scalar or
 * empty; *what is the source and *why the reason, borrowed from t. */
bool sequence_text_fill(const struct sequence_text *t, const struct record *r, struct buf *before,
                        struct buf *behind, const char **what, const char **why);

int sequence_text_digits(const struct sequence_text *t); /* least; 1: as they come */
void sequence_add_number(struct buf *out, int64_t number, int digits);

#endif
