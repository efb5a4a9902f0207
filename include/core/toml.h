/*
 * toml.h - TOML text to a tree with the place of every key. toml++ does the
 * work behind this C interface; nothing else in the project is C++.
 */
#ifndef IDEMSINK_CORE_TOML_H
#define IDEMSINK_CORE_TOML_H

#include <stddef.h>

#include "base/err.h"

struct json_t;

#ifdef __cplusplus
extern "C" {
#endif

/*
 * The tree as jansson values: a table is an object, an array of tables an array of objects. Every
 * value is wrapped, so that its place goes along: {"l": line, "c": column, "v": value}; tables and
 * arrays too (the root as well). Dates and times come as their text with a member "t": "date".
 * NULL: *e is ERR_CONFIG with "name:line:column: what". The caller json_decref()s the result.
 */
struct json_t *toml_parse(const char *name, const char *text, size_t len, struct err *e) MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
