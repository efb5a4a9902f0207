/*
 * payload_private.h - the formats of a payload beside JSON. For src/core/payload*.c only.
 */
#ifndef IDEMSINK_CORE_PAYLOAD_PRIVATE_H
#define IDEMSINK_CORE_PAYLOAD_PRIVATE_H

#include "core/payload.h"
#include "core/values.h"

/* The most levels that a payload may have, as jansson has it. The document may have fewer, but what
 * is too deep may be excluded. */
#define PAYLOAD_LEVELS 2048

struct payload_fault {
    enum reason reason;
    const char *what;
    size_t at; /* byte of the payload, counted from 0, where the fault begins */
};

/* Replaces the $-forms in root, which text was parsed to. False: one of them is none. */
bool payload_extjson(struct slice text, struct json_t *root, struct values *values,
                     struct payload_fault *f);

/* values->raw is bytes. The caller owns the tree; NULL: the bytes are not one BSON document. */
struct json_t *payload_bson(struct slice bytes, struct values *values, struct payload_fault *f);

#endif
