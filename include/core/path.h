/*
 * path.h - a dotted path through JSON objects, compiled once.
 *
 * "order.id" is the member id of the member order. A path goes through objects
 * only: it has no array index and does not look into the elements of an array.
 * A name that holds a dot itself, or is empty, can't be reached by a path.
 */
#ifndef IDEMSINK_CORE_PATH_H
#define IDEMSINK_CORE_PATH_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct json_t;

struct path {
    char *text; /* as written */
    char **names;
    size_t n;
};

/* ERR_CONFIG: empty, or with an empty name in it. */
bool path_init(struct path *p, const char *text, struct err *e) MUST_CHECK;
void path_clear(struct path *p);

enum path_result {
    PATH_FOUND,
    PATH_MISSING, /* a name is not there, or what should hold it is a scalar or null */
    PATH_IN_ARRAY /* it would run through an array */
};
/* *out is borrowed. */
enum path_result path_get(const struct path *p, const struct json_t *root, struct json_t **out);

/* Is a the same as b, or on the way to it? */
bool path_is_prefix(const struct path *a, const struct path *b);

/*
 * Changes to a tree whose root is the caller's own shallow copy. What is below may be shared with
 * the original: an object on the way is replaced by a copy of its own before it is changed.
 */

/* Puts value (borrowed) there and makes the objects on the way. False: something is there already,
 * or on the way stands something that is no object. */
bool path_put(const struct path *p, struct json_t *root, struct json_t *value);

/* Takes the value out; the caller owns it. NULL: not there. */
struct json_t *path_take(const struct path *p, struct json_t *root);

#endif
