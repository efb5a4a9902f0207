/*
 * payload.h - the bytes of a record's value to one JSON object, or the reason why not.
 *
 * Whatever the format is, a record is one tree of jansson's afterwards, with values.h beside it for
 * what JSON has no word for: paths, types and templates then need not know where it came from.
 * Errors name a byte offset and never a byte of the payload.
 */
#ifndef IDEMSINK_CORE_PAYLOAD_H
#define IDEMSINK_CORE_PAYLOAD_H

#include "core/config.h"
#include "core/path.h"
#include "core/record.h"

struct json_t;
struct json_place;

struct payload_rule {
    enum config_format format;
    struct path field; /* STRING, BYTES: where the value goes in the tree */
};

/* Do payloads of this format have fields that a path can name? */
bool payload_has_fields(enum config_format format);

/* Fills r->json and r->values when they are not there yet. False: they can't be, and r is rejected
 * with the reason when `reject` is set. */
bool payload_parse(struct record *r, const struct payload_rule *rule, bool reject);

/* For people: the first fault of the bytes as such, byte as in the error that payload_parse()
 * gives; of BSON with no path and no line. False: there is none; *out is empty. */
bool payload_fault_find(struct slice value, enum config_format format, struct json_place *out);

/* Drops r->json and r->values. */
void payload_release(struct record *r);

/*
 * At least what the tree of this payload takes in memory, by its brackets and commas: the factor
 * to the text lies between 1 and 80 ("[{},{},...") and the sender chooses it. Stops counting above
 * `enough`. Brackets and commas inside of texts are counted too, which is only ever too much.
 */
size_t payload_tree_bytes(struct slice text, size_t enough);

/*
 * The text of the number at this path, as the producer wrote it (a double would have lost digits).
 * text is the payload that root was parsed from; the path leads to a number in root.
 */
struct slice payload_number_text(struct slice text, const struct json_t *root,
                                 const struct path *path);

/* Is it UTF-8 (RFC 3629: no surrogates, nothing overlong, at most U+10FFFF)? */
bool payload_is_utf8(struct slice s);

#endif
