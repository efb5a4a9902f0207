/*
 * pick.h - where a value is taken from: a value path of the payload, or the record around it.
 *
 *   order.id        a value path
 *   @key            the Kafka key
 *   @header.NAME    the last header of this name
 *   @topic @partition @offset @timestamp
 */
#ifndef IDEMSINK_CORE_PICK_H
#define IDEMSINK_CORE_PICK_H

#include "core/path.h"
#include "core/record.h"

enum pick_kind {
    PICK_VALUE,
    PICK_KEY,
    PICK_HEADER,
    PICK_TOPIC,
    PICK_PARTITION,
    PICK_OFFSET,
    PICK_TIMESTAMP
};

struct pick {
    enum pick_kind kind;
    struct path path; /* VALUE */
    char *header;     /* HEADER */
};

bool pick_init(struct pick *p, const char *text, struct err *e) MUST_CHECK;
void pick_clear(struct pick *p);

/* As it is written in the configuration; mem_free() it. */
char *pick_text(const struct pick *p);

/* What its part is called in an _id of several, or in that of a group's counter: the source without
 * "@", and "_" for what a path would misread. mem_free() it. */
char *pick_part_name(const char *source);

/* The bytes of KEY, HEADER and TOPIC. False: there are none (no key, no such header, a null value).
 */
bool pick_bytes(const struct pick *p, const struct record *r, struct slice *out);

/* The number of PARTITION, OFFSET and TIMESTAMP. False: the record has no timestamp. */
bool pick_number(const struct pick *p, const struct record *r, int64_t *out);

#endif
