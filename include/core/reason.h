/*
 * reason.h - why a record can never be stored. The names are public: they are
 * the header idemsink.reason of a dead letter and a label on /metrics.
 */
#ifndef IDEMSINK_CORE_REASON_H
#define IDEMSINK_CORE_REASON_H

#include <stdbool.h>

enum reason {
    REASON_NONE = 0,
    REASON_JSON_SYNTAX,
    REASON_EXTJSON_SYNTAX,
    REASON_BSON_SYNTAX,
    REASON_NOT_AN_OBJECT,
    REASON_INVALID_UTF8,
    REASON_DUPLICATE_NAME,
    REASON_NUMBER_RANGE,
    REASON_SCHEMA_REGISTRY_FRAMING,
    REASON_COMPRESSED,
    REASON_DEDUP_MISSING,
    REASON_DEDUP_NULL,
    REASON_DEDUP_EMPTY,
    REASON_DEDUP_NOT_SCALAR,
    REASON_TYPE_CONVERSION,
    REASON_UNSAFE_NAME,
    REASON_EMPTY_VALUE,
    REASON_TOMBSTONE,
    REASON_TOO_LARGE,
    REASON_TOO_DEEP,
    REASON_EFFECT_VALUE,
    REASON_OPERATION_UNKNOWN,
    REASON_UNIQUE_CONFLICT,
    REASON_CONFLICT,
    REASON_VALIDATION,
    REASON_REJECTED,
    REASON_COUNT /* how many there are, not a reason */
};

const char *reason_name(enum reason reason); /* "json_syntax" */
const char *
reason_help(enum reason reason); /* one sentence for the operator: meaning and what to do */
bool reason_parse(const char *name, enum reason *out);

#endif
