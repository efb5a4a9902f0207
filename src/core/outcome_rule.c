/*
 * Which rule of a validator refused a document: from errInfo (MongoDB 5.0 and later) to one line
 * of rules, names and types. Values of the document are never in it: what may hold them
 * (consideredValue, failingDocumentId and what a later server adds) is not looked at.
 */
#include "core/outcome_rule.h"

#include <string.h>

enum { LEVELS = 32, RULE_MAX = 500, SPECIFIED_MAX = 100 };

struct rules {
    struct buf *out;
    struct buf path; /* of the property that the walk is in */
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_nested(const char *key)
{
    return strcmp(key, "details") == 0 || ends_with(key, "Satisfied");
}

static void add_utf8(struct buf *out, const bson_iter_t *it)
{
    uint32_t len;
    const char *text = bson_iter_utf8(it, &len);

    buf_add(out, text, len);
}

/* The rule as the validator has it, when that is short. */
static void add_specified(struct buf *out, const bson_iter_t *it)
{
    const uint8_t *data;
    uint32_t len;
    bson_t doc;

    bson_iter_document(it, &len, &data);
    if (len > SPECIFIED_MAX || !bson_init_static(&doc, data, len))
        return;
    char *json = bson_as_relaxed_extended_json(&doc, NULL);
    if (json)
        buf_printf(out, " %s", json);
    bson_free(json);
}

/* A list of names: missingProperties, additionalProperties. */
static void add_names(struct buf *out, const char *word, const bson_iter_t *it)
{
    const char *between = "";
    bson_iter_t in;

    buf_printf(out, ", %s ", word);
    if (!bson_iter_recurse(it, &in))
        return;
    while (bson_iter_next(&in)) {
        if (!BSON_ITER_HOLDS_UTF8(&in))
            continue;
        buf_add_text(out, between);
        add_utf8(out, &in);
        between = ", ";
    }
}

/* One rule that has no rules in it. */
static void add_leaf(struct rules *r, bson_iter_t it)
{
    struct buf tail = {0};

    if (r->out->len > 0)
        buf_add_text(r->out, "; ");
    if (r->path.len > 0)
        buf_printf(r->out, "%s: ", buf_text(&r->path));
    while (bson_iter_next(&it)) {
        const char *key = bson_iter_key(&it);

        if (strcmp(key, "operatorName") == 0 && BSON_ITER_HOLDS_UTF8(&it)) {
            add_utf8(r->out, &it);
        } else if (strcmp(key, "specifiedAs") == 0 && BSON_ITER_HOLDS_DOCUMENT(&it)) {
            add_specified(&tail, &it);
        } else if (strcmp(key, "reason") == 0 && BSON_ITER_HOLDS_UTF8(&it)) {
            buf_add_text(&tail, ", ");
            add_utf8(&tail, &it);
        } else if (strcmp(key, "consideredType") == 0 && BSON_ITER_HOLDS_UTF8(&it)) {
            buf_add_text(&tail, ", it is ");
            add_utf8(&tail, &it);
        } else if (strcmp(key, "missingProperties") == 0 && BSON_ITER_HOLDS_ARRAY(&it)) {
            add_names(&tail, "missing:", &it);
        } else if (strcmp(key, "additionalProperties") == 0 && BSON_ITER_HOLDS_ARRAY(&it)) {
            add_names(&tail, "not allowed:", &it);
        }
    }
    buf_add_text(r->out, buf_text(&tail));
    buf_clear(&tail);
}

static bool has_nested(bson_iter_t it)
{
    while (bson_iter_next(&it))
        if (is_nested(bson_iter_key(&it)) &&
            (BSON_ITER_HOLDS_ARRAY(&it) || BSON_ITER_HOLDS_DOCUMENT(&it)))
            return true;
    return false;
}

/* "propertyName" or "itemIndex" of this document go to the path. */
static void enter(struct rules *r, bson_iter_t it)
{
    while (bson_iter_next(&it)) {
        const char *key = bson_iter_key(&it);

        if (strcmp(key, "propertyName") == 0 && BSON_ITER_HOLDS_UTF8(&it)) {
            if (r->path.len > 0)
                buf_add_char(&r->path, '.');
            add_utf8(&r->path, &it);
        } else if (strcmp(key, "itemIndex") == 0 && BSON_ITER_HOLDS_INT(&it)) {
            buf_printf(&r->path, "[%lld]", (long long)bson_iter_as_int64(&it));
        }
    }
}

static void walk(struct rules *r, bson_iter_t it, bool array, unsigned level)
{
    size_t path = r->path.len;

    if (level > LEVELS || r->out->len > RULE_MAX)
        return;
    if (!array) {
        enter(r, it);
        if (!has_nested(it))
            add_leaf(r, it);
    }
    while (bson_iter_next(&it)) {
        bson_iter_t in;
        bool list = BSON_ITER_HOLDS_ARRAY(&it);

        if ((list || BSON_ITER_HOLDS_DOCUMENT(&it)) && (array || is_nested(bson_iter_key(&it))) &&
            bson_iter_recurse(&it, &in))
            walk(r, in, list, level + 1);
    }
    if (r->path.len > path) {
        r->path.len = path;
        r->path.data[path] = '\0';
    }
}

void outcome_add_rule(const bson_iter_t *err_info, struct buf *out)
{
    struct buf text = {0};
    struct rules r = {.out = &text};
    bson_iter_t in, details;

    if (!BSON_ITER_HOLDS_DOCUMENT(err_info) || !bson_iter_recurse(err_info, &in) ||
        !bson_iter_find(&in, "details") || !BSON_ITER_HOLDS_DOCUMENT(&in) ||
        !bson_iter_recurse(&in, &details))
        return;
    walk(&r, details, false, 0);
    buf_add(out, buf_text(&text), bytes_cut_utf8(buf_text(&text), text.len, RULE_MAX));
    if (text.len > RULE_MAX)
        buf_add_text(out, " ...");
    buf_clear(&r.path);
    buf_clear(&text);
}
