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

/* A text that is larger, or a key with more parts, is refused: the tree is built and freed by
 * recursion. */
enum { TOML_TEXT_MAX = 1024 * 1024, TOML_KEY_PARTS_MAX = 32 };

/*
 * The tree as jansson values: a table is an object, an array of tables an array of objects. Every
 * value is wrapped, so that its place goes along: {"l": line, "c": column, "v": value}; tables and
 * arrays too (the root as well). The place is the key's for a member of a table, its own for an
 * element of an array; columns count code points from 1. Members are in the order of the text.
 *
 * What JSON has no type for comes as its text with a member "t", named as toml-test names it:
 * "datetime", "datetime-local", "date-local", "time-local", and "float" for inf and nan.
 *
 * TOML 1.0, with two things refused that no configuration needs: a NUL in a key (a string may have
 * one), and the sizes above. NULL: *e is ERR_CONFIG with "name:line:column: what". The caller
 * json_decref()s the result.
 */
struct json_t *toml_parse(const char *name, const char *text, size_t len, struct err *e) MUST_CHECK;

#ifdef __cplusplus
}
#endif

#endif
