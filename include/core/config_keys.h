/*
 * config_keys.h - the table of all keys. For src/core/config*.c and its tests.
 */
#ifndef IDEMSINK_CORE_CONFIG_KEYS_H
#define IDEMSINK_CORE_CONFIG_KEYS_H

#include "core/config.h"

/*
 * One line per key is the only place where a key exists: parser, default, bounds, `idemsink check`,
 * the commented config/idemsink.toml and docs/configuration.md are all made from it or tested
 * against it.
 */
enum config_type {
    CONFIG_BOOL,
    CONFIG_INT,
    CONFIG_DURATION, /* "5ms" "8s" "1m" "1h"; stored in ms */
    CONFIG_BYTES,    /* "64MiB" "1kB" "5B" */
    CONFIG_STRING,
    CONFIG_ENUM,
    CONFIG_LIST, /* of strings */
    CONFIG_PAIRS /* a table of free names */
};
enum {
    CONFIG_REQUIRED = 1,
    CONFIG_SECRET = 2,
    CONFIG_AS_BOOL = 4 /* an enum of two that is kept in a bool */
};
/* NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): the order in which a row reads */
struct config_key {
    const char *name; /* "worker.threads", "route.collection", "route.invalidate.mode" */
    enum config_type type;
    size_t field;         /* offsetof in its struct */
    const char *fallback; /* as written in TOML, without quotes; NULL: none, empty, or made from
                             other keys */
    int64_t min, max; /* int, duration (ms), bytes; a list's or table's least and most entries */
    const char
        *choices; /* enum: "a|b|c", in the order of the C enum; table: what its values may be */
    unsigned flags;
    const char *help; /* one sentence; what, not how */
};
extern const struct config_key config_keys[];
extern const size_t config_keys_count;

#endif
