#include "core/bson_diff.h"

#include <string.h>

#include "base/bytes.h"

struct diff {
    bson_diff_fn *each;
    void *ctx;
    struct buf path;
    size_t n;
};

static void tell(struct diff *d, enum bson_diff_kind kind)
{
    d->n++;
    if (d->each)
        d->each(d->ctx, kind, buf_text(&d->path));
}

static size_t enter(struct diff *d, const char *name)
{
    size_t before = d->path.len;

    if (before > 0)
        buf_add_char(&d->path, '.');
    buf_add_text(&d->path, name);
    return before;
}

static void leave(struct diff *d, size_t before)
{
    d->path.len = before;
    if (d->path.data)
        d->path.data[before] = '\0';
}

static bool nested(const bson_iter_t *it, bson_t *out)
{
    const uint8_t *data = NULL;
    uint32_t len = 0;

    if (BSON_ITER_HOLDS_DOCUMENT(it))
        bson_iter_document(it, &len, &data);
    else if (BSON_ITER_HOLDS_ARRAY(it))
        bson_iter_array(it, &len, &data);
    return data != NULL && bson_init_static(out, data, len);
}

/* Scalars of one type, byte by byte: 0.0 and -0.0 differ, as they do in what is stored. */
static bool same_bytes(const bson_iter_t *a, const bson_iter_t *b)
{
    bson_t left = BSON_INITIALIZER, right = BSON_INITIALIZER;
    bool same = bson_append_iter(&left, "", 0, a) && bson_append_iter(&right, "", 0, b) &&
                bson_equal(&left, &right);

    bson_destroy(&left);
    bson_destroy(&right);
    return same;
}

static void compare(struct diff *d, const bson_t *left, const bson_t *right, bool top);

static void compare_values(struct diff *d, const bson_iter_t *a, const bson_iter_t *b)
{
    bson_t left, right;

    if (bson_iter_type(a) != bson_iter_type(b))
        tell(d, BSON_DIFF_TYPE);
    else if (nested(a, &left) && nested(b, &right))
        compare(d, &left, &right, false);
    else if (!same_bytes(a, b))
        tell(d, BSON_DIFF_VALUE);
}

static void compare(struct diff *d, const bson_t *left, const bson_t *right, bool top)
{
    size_t differences = d->n;
    bson_iter_t a, b;

    if (bson_equal(left, right) || !bson_iter_init(&a, left))
        return;
    while (bson_iter_next(&a)) {
        size_t before = enter(d, bson_iter_key(&a));

        if (top && strcmp(bson_iter_key(&a), "_id") == 0)
            ;
        else if (bson_iter_init_find(&b, right, bson_iter_key(&a)))
            compare_values(d, &a, &b);
        else
            tell(d, BSON_DIFF_LEFT);
        leave(d, before);
    }
    if (!bson_iter_init(&b, right))
        return;
    while (bson_iter_next(&b)) {
        size_t before = enter(d, bson_iter_key(&b));

        if (!(top && strcmp(bson_iter_key(&b), "_id") == 0) &&
            !bson_iter_init_find(&a, left, bson_iter_key(&b)))
            tell(d, BSON_DIFF_RIGHT);
        leave(d, before);
    }
    if (!top && d->n == differences)
        tell(d, BSON_DIFF_ORDER);
}

size_t bson_diff(const bson_t *left, const bson_t *right, bson_diff_fn *each, void *ctx)
{
    struct diff d = {.each = each, .ctx = ctx};

    compare(&d, left, right, true);
    buf_clear(&d.path);
    return d.n;
}
