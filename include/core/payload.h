/*
 * payload.h - the bytes of a record's value to one JSON object, or the reason why not.
 *
 * Strict RFC 8259. Errors name a byte offset and never a byte of the payload.
 */
#ifndef IDEMSINK_CORE_PAYLOAD_H
#define IDEMSINK_CORE_PAYLOAD_H

#include "core/path.h"
#include "core/record.h"

struct json_t;

/* Fills r->json when it is not there yet. False: it can't be, and r is rejected with the reason
 * when `reject` is set. */
bool payload_parse(struct record *r, bool reject);

/* Drops r->json. */
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
