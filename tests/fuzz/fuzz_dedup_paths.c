/*
 * Any two paths and any JSON object: what a path finds, puts and takes, against a walk that is
 * written here once more, and what of it becomes a dedup key.
 *
 * The input: two lines of paths, then the payload.
 */
#include <bson/bson.h>
#include <jansson.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/mapping.h"
#include "core/path.h"
#include "core/types.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* --- the oracle --- */

static enum path_result find(const char *path, const json_t *at, json_t **out)
{
    for (;;) {
        size_t len = strcspn(path, ".");
        char *name = mem_text_n(path, len);

        if (json_is_array(at)) {
            mem_free(name);
            return PATH_IN_ARRAY;
        }
        *out = json_is_object(at) ? json_object_get(at, name) : NULL;
        mem_free(name);
        if (*out == NULL)
            return PATH_MISSING;
        if (path[len] == '\0')
            return PATH_FOUND;
        path += len + 1;
        at = *out;
    }
}

static bool is_path(const char *text)
{
    size_t len = strlen(text);

    if (len == 0 || text[0] == '.' || text[len - 1] == '.')
        return false;
    return strstr(text, "..") == NULL;
}

/* What a dedup key makes of it; NONE: a value. */
static enum reason verdict_of(enum path_result result, const json_t *node)
{
    int64_t i;

    if (result == PATH_MISSING)
        return REASON_DEDUP_MISSING;
    if (result == PATH_IN_ARRAY || json_is_object(node) || json_is_array(node))
        return REASON_DEDUP_NOT_SCALAR;
    if (json_is_null(node))
        return REASON_DEDUP_NULL;
    if (json_is_string(node) && json_string_length(node) == 0)
        return REASON_DEDUP_EMPTY;
    if (json_is_real(node) && !types_exact_integer(json_real_value(node), &i))
        return REASON_DEDUP_NOT_SCALAR;
    return REASON_NONE;
}

/* --- paths --- */

static void check_put_and_take(const struct path *p, json_t *root, enum path_result result)
{
    char *before = json_dumps(root, 0), *after;
    json_t *copy = json_copy(root), *value = json_string("new"), *found = NULL;
    bool put = path_put(p, copy, value);

    MUST(result != PATH_FOUND || !put);
    if (put) {
        MUST(path_get(p, copy, &found) == PATH_FOUND && found == value);
        json_t *taken = path_take(p, copy);
        MUST(taken == value && path_get(p, copy, &found) == PATH_MISSING);
        json_decref(taken);
    } else {
        json_t *taken = path_take(p, copy);
        MUST((taken != NULL) == (result == PATH_FOUND));
        json_decref(taken);
    }
    after = json_dumps(root, 0);
    MUST(strcmp(before, after) == 0); /* only the copy was changed */
    json_decref(value);
    json_decref(copy);
    mem_free(before);
    mem_free(after);
}

static void check_path(const char *text, json_t *root)
{
    struct path p = {0};
    struct err e;
    bool ok = path_init(&p, text, &e);
    json_t *found = NULL, *wanted = NULL;

    MUST(ok == is_path(text));
    if (!ok)
        return;
    enum path_result result = find(text, root, &wanted);
    MUST(path_get(&p, root, &found) == result);
    MUST(result != PATH_FOUND || found == wanted);
    MUST(path_is_prefix(&p, &p));
    check_put_and_take(&p, root, result);
    path_clear(&p);
}

/* --- the dedup key --- */

static void check_value(const bson_iter_t *at, const json_t *node)
{
    uint32_t len;
    int64_t i;

    if (json_is_string(node)) {
        const char *text = bson_iter_utf8(at, &len);

        MUST(BSON_ITER_HOLDS_UTF8(at) && len == json_string_length(node) &&
             memcmp(text, json_string_value(node), len) == 0);
    } else if (json_is_boolean(node)) {
        MUST(BSON_ITER_HOLDS_BOOL(at) && bson_iter_bool(at) == json_is_true(node));
    } else {
        MUST(BSON_ITER_HOLDS_INT64(at));
        if (json_is_integer(node))
            i = json_integer_value(node);
        else
            MUST(types_exact_integer(json_real_value(node), &i));
        MUST(bson_iter_int64(at) == i);
    }
}

static void check_filter(const struct write_op *op, char *const *paths, size_t n, bool id,
                         const json_t *root)
{
    bson_iter_t at, child;
    json_t *node = NULL;

    MUST(bson_iter_init(&at, op->filter) && bson_iter_next(&at));
    if (id && n > 1) {
        MUST(strcmp(bson_iter_key(&at), "_id") == 0 && bson_iter_recurse(&at, &child));
        MUST(!bson_iter_next(&at) && bson_iter_next(&child));
        at = child;
    }
    for (size_t i = 0; i < n; i++) {
        MUST(i == 0 || bson_iter_next(&at));
        MUST(id || strcmp(bson_iter_key(&at), paths[i]) == 0);
        MUST(find(paths[i], root, &node) == PATH_FOUND);
        check_value(&at, node);
    }
    MUST(!bson_iter_next(&at));
}

static void check_key(char **paths, size_t n, bool id, struct slice payload, json_t *root)
{
    static char order[] = "@dedup", name[] = "c", off[] = "";
    static const struct mapping_env env = {.instance_id = "me"};
    struct config_route route = {.database = name,
                                 .collection = name,
                                 .order_by = order,
                                 .under = off,
                                 .source_fields = off,
                                 .dedup = {.key = {.items = paths, .n = n},
                                           .fields = {.items = paths, .n = id ? 0 : n},
                                           .into_id = id}};
    struct record_source source = {.topic = "t", .timestamp_ms = -1, .value = payload};
    struct write_op op;
    struct err e;
    struct mapping *m = mapping_new(&route, &env, &e);
    enum reason wanted = REASON_NONE;
    bool reals = false;

    if (m == NULL)
        return; /* a source that is no path, _id, $, two parts in one place */
    for (size_t i = n; i > 0; i--) {
        json_t *node = NULL;
        enum reason verdict = verdict_of(find(paths[i - 1], root, &node), node);

        wanted = verdict != REASON_NONE ? verdict : wanted; /* the first part's */
        reals = reals || json_is_real(node);
    }
    struct record *r = record_new(&source);
    if (mapping_build(m, r, &op) == MAPPING_WRITE) {
        MUST(wanted == REASON_NONE);
        check_filter(&op, paths, n, id, root);
        write_op_clear(&op);
    } else if (wanted != REASON_NONE) {
        MUST(r->rejected.reason == wanted || (reals && n > 1));
    } else if (!reals) { /* a whole double may be that of a text that is no whole number */
        MUST(r->rejected.reason == REASON_TOO_DEEP || r->rejected.reason == REASON_UNSAFE_NAME);
    }
    record_free(r);
    mapping_free(m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = mem_text_n((const char *)data, size), *rest = text;
    char *paths[2] = {strsep(&rest, "\n"), rest != NULL ? strsep(&rest, "\n") : NULL};
    json_t *root = NULL;

    if (rest != NULL && strlen(paths[0]) < 200 && strlen(paths[1]) < 200) {
        struct slice payload = slice_of(rest, size - (size_t)(rest - text));

        /* A bare NUL is no JSON; jansson passes over some, the mapping does not. */
        if (memchr(payload.ptr, '\0', payload.len) == NULL)
            root =
                json_loadb(payload.ptr, payload.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
        if (json_is_object(root)) {
            check_path(paths[0], root);
            check_path(paths[1], root);
            if (paths[0][0] != '@' && paths[1][0] != '@') {
                check_key(paths, 1, false, payload, root);
                check_key(paths, 1, true, payload, root);
                check_key(paths, 2, false, payload, root);
                check_key(paths, 2, true, payload, root);
            }
        }
    }
    json_decref(root);
    mem_free(text);
    return 0;
}
