/*
 * types.h - what JSON can't say: from a JSON value to a date, an ObjectId, a decimal, ...
 *
 * docs/payloads.md says what each type accepts; the same table is tests/unit/test_types.c.
 */
#ifndef IDEMSINK_CORE_TYPES_H
#define IDEMSINK_CORE_TYPES_H

#include <bson/bson.h>

#include "base/bytes.h"

struct json_t;

enum value_type {
    TYPE_DATE,    /* RFC 3339 text, or epoch milliseconds as a number */
    TYPE_DATE_MS, /* epoch milliseconds */
    TYPE_DATE_S,  /* epoch seconds, may have a fraction */
    TYPE_DATE_US, /* epoch microseconds */
    TYPE_OBJECTID,
    TYPE_DECIMAL,
    TYPE_LONG,
    TYPE_DOUBLE,
    TYPE_UUID,
    TYPE_BINARY,    /* base64 */
    TYPE_BINARY_URL /* base64 of the alphabet for URLs */
};

bool types_parse(const char *name, enum value_type *out);
const char *types_names(void); /* "date, date_ms, ..." for messages */

/* A BSON value. Its text and bytes are borrowed from the JSON value, or in here. */
struct typed {
    bson_value_t value;
    uint8_t bytes[16]; /* a uuid's */
    void *owned;       /* mem_free()d by typed_clear() */
};
void typed_clear(struct typed *t);

/*
 * in is neither null nor missing. number: the text of the number when in is a real, for decimal
 * also of an integer. Dates are cut to milliseconds, towards the past. False: *why says what was
 * expected, and nothing of *out is to be cleared. out may not move afterwards: a uuid points into
 * it.
 */
bool types_convert(enum value_type type, const struct json_t *in, struct slice number,
                   struct typed *out, const char **why);

/* The same for a value that is BSON already. SAME: it is of this type, and out was not touched. */
enum types_fit { TYPES_SAME, TYPES_CONVERTED, TYPES_REFUSED };
enum types_fit types_convert_bson(enum value_type type, const bson_value_t *in, struct typed *out,
                                  const char **why);

/* RFC 3339 to milliseconds since 1970. */
bool types_date(const char *text, size_t len, int64_t *ms);

/* A JSON number (RFC 8259) to exactly that Decimal128; false: it is none, or would be rounded. */
bool types_decimal(const char *text, size_t len, bson_decimal128_t *out);

/* A JSON number times 10^scale, cut towards minus infinity; false: none, or outside int64, or of
 * more digits than a decimal has. */
bool types_scaled(const char *text, size_t len, int scale, int64_t *out);

/* Is it a whole number to the letter? 1.0 and 10e-1 are; what a double only rounds to one is not.
 * False: also what has more digits than a decimal. */
bool types_whole(const char *text, size_t len);

/* Is it neither NaN nor infinite? */
bool types_decimal_is_finite(const bson_decimal128_t *d);

/* The shortest text that reads back as d, which is finite. */
enum { TYPES_DOUBLE_TEXT = 32 };
void types_double_text(double d, char text[TYPES_DOUBLE_TEXT]);

/*
 * The one form of all decimals that are numerically equal (MongoDB compares them so, also with
 * integers): int64 where that can hold it, else without zeros at the end. -0 is 0. out owns
 * nothing.
 */
void types_canonical_decimal(const bson_decimal128_t *from, bson_value_t *out);

/* The largest magnitude below which every integer has a double of its own. */
#define TYPES_EXACT_DOUBLE 9007199254740992.0

/* The integer that d is, when d is one and no other integer has the same double. */
bool types_exact_integer(double d, int64_t *out);

#endif
