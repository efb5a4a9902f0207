#include "core/canonical.h"

#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/types.h"

/* --- keys --- */

/* _id of several parts, "@offset" */
static bool append_parts(bson_t *to, const char *name, const bson_iter_t *from)
{
    bson_iter_t part;
    bson_t child;
    bool ok = true;

    if (!bson_iter_recurse(from, &part) || !bson_append_document_begin(to, name, -1, &child))
        return false;
    while (ok && bson_iter_next(&part))
        ok = canonical_append(&child, bson_iter_key(&part), &part);
    return bson_append_document_end(to, &child) && ok && part.err_off == 0;
}

bool canonical_append(bson_t *to, const char *name, const bson_iter_t *from)
{
    bson_decimal128_t decimal;
    bson_value_t value = {0};
    int64_t i;

    if (BSON_ITER_HOLDS_DOCUMENT(from))
        return append_parts(to, name, from);
    if (BSON_ITER_HOLDS_DECIMAL128(from)) {
        if (!bson_iter_decimal128(from, &decimal))
            return false;
        types_canonical_decimal(&decimal, &value);
        return bson_append_value(to, name, -1, &value);
    }
    if (BSON_ITER_HOLDS_INT32(from))
        return bson_append_int64(to, name, -1, bson_iter_int32(from));
    if (BSON_ITER_HOLDS_DOUBLE(from) && types_exact_integer(bson_iter_double(from), &i))
        return bson_append_int64(to, name, -1, i);
    return bson_append_iter(to, name, -1, from);
}

/* Where the path leads, through objects only. */
static bool find_plain(const bson_t *document, const char *path, bson_iter_t *at)
{
    bson_iter_t in;

    if (!bson_iter_init(&in, document))
        return false;
    for (;;) {
        size_t len = strcspn(path, ".");

        if (!bson_iter_find_w_len(&in, path, (int)len))
            return false;
        if (path[len] == '\0')
            break;
        path += len + 1;
        if (!BSON_ITER_HOLDS_DOCUMENT(&in) || !bson_iter_recurse(&in, at))
            return false;
        in = *at;
    }
    *at = in;
    return !BSON_ITER_HOLDS_ARRAY(at);
}

bool canonical_key(const bson_t *document, const bson_t *like, bson_t *key)
{
    bson_iter_t field, at;

    if (!bson_iter_init(&field, like))
        return false;
    while (bson_iter_next(&field)) {
        const char *path = bson_iter_key(&field);

        if (!find_plain(document, path, &at) || !canonical_append(key, path, &at))
            return false;
    }
    return true;
}

/* --- contents --- */

struct field {
    const char *name;
    bson_type_t type;
    size_t start, value, end; /* of the element in its document */
};

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct field *)a)->name, ((const struct field *)b)->name);
}

static bool put_document(struct buf *out, const uint8_t *data, size_t len, bool array);

static void put_head(struct buf *out, const struct field *f, bson_type_t type)
{
    buf_add_char(out, (char)type);
    buf_add(out, f->name, f->value - f->start - 1);
}

static void put_int64(struct buf *out, const struct field *f, int64_t i)
{
    put_head(out, f, BSON_TYPE_INT64);
    buf_add(out, &i, sizeof i);
}

static void put_decimal(struct buf *out, const struct field *f, const uint8_t *at)
{
    bson_decimal128_t decimal;
    bson_value_t value = {0};

    memcpy(&decimal.low, at, 8);
    memcpy(&decimal.high, at + 8, 8);
    types_canonical_decimal(&decimal, &value);
    if (value.value_type == BSON_TYPE_INT64) {
        put_int64(out, f, value.value.v_int64);
        return;
    }
    put_head(out, f, BSON_TYPE_DECIMAL128);
    buf_add(out, &value.value.v_decimal128.low, 8);
    buf_add(out, &value.value.v_decimal128.high, 8);
}

static bool put_field(struct buf *out, const uint8_t *data, const struct field *f)
{
    const uint8_t *at = data + f->value;
    size_t len = f->end - f->value;
    int32_t small;
    int64_t i;
    double d;

    if (f->type == BSON_TYPE_DOCUMENT || f->type == BSON_TYPE_ARRAY) {
        put_head(out, f, f->type);
        return put_document(out, at, len, f->type == BSON_TYPE_ARRAY);
    }
    if (f->type == BSON_TYPE_INT32) {
        memcpy(&small, at, sizeof small);
        put_int64(out, f, small);
        return true;
    }
    if (f->type == BSON_TYPE_DECIMAL128) {
        put_decimal(out, f, at);
        return true;
    }
    if (f->type == BSON_TYPE_DOUBLE) {
        memcpy(&d, at, sizeof d);
        if (types_exact_integer(d, &i)) {
            put_int64(out, f, i);
            return true;
        }
    }
    buf_add(out, data + f->start, f->end - f->start);
    return true;
}

static struct field field_at(bson_iter_t *at)
{
    const char *name = bson_iter_key(at);
    size_t start = bson_iter_offset(at);

    return (struct field){.name = name,
                          .type = bson_iter_type(at),
                          .start = start,
                          .value = start + strlen(name) + 2};
}

/* How many fields there are, and whether their order is that of their names. False: no BSON. */
static bool count_fields(const uint8_t *data, size_t len, size_t *n, bool *sorted)
{
    const char *before = NULL;
    bson_iter_t at;

    *n = 0;
    *sorted = true;
    if (!bson_iter_init_from_data(&at, data, len))
        return false;
    for (; bson_iter_next(&at); ++*n) {
        const char *name = bson_iter_key(&at);

        *sorted = *sorted && (before == NULL || strcmp(before, name) <= 0);
        before = name;
    }
    return at.err_off == 0;
}

/* In the order in which they are: an array may have millions of elements, so nothing is kept. */
static bool put_as_they_are(struct buf *out, const uint8_t *data, size_t len)
{
    struct field last = {.name = NULL}, next;
    bson_iter_t at;

    if (!bson_iter_init_from_data(&at, data, len))
        return false;
    for (; bson_iter_next(&at); last = next) {
        next = field_at(&at);
        last.end = next.start;
        if (last.name != NULL && !put_field(out, data, &last))
            return false;
    }
    last.end = len - 1;
    return at.err_off == 0 && (last.name == NULL || put_field(out, data, &last));
}

static bool put_sorted(struct buf *out, const uint8_t *data, size_t len, size_t n)
{
    enum { FEW = 16 }; /* on the stack of every level */
    struct field few[FEW], *fields = n <= FEW ? few : mem_array(n, sizeof *fields);
    bson_iter_t at;
    bool ok = bson_iter_init_from_data(&at, data, len);

    for (size_t i = 0; i < n && bson_iter_next(&at); i++) {
        fields[i] = field_at(&at);
        if (i > 0)
            fields[i - 1].end = fields[i].start;
    }
    fields[n - 1].end = len - 1;
    qsort(fields, n, sizeof *fields, by_name);
    for (size_t i = 0; i < n && ok; i++)
        ok = put_field(out, data, &fields[i]);
    if (fields != few)
        mem_free(fields);
    return ok;
}

static bool put_fields(struct buf *out, const uint8_t *data, size_t len, bool array)
{
    size_t n;
    bool sorted;

    if (array)
        return put_as_they_are(out, data, len);
    if (!count_fields(data, len, &n, &sorted))
        return false;
    return sorted ? put_as_they_are(out, data, len) : put_sorted(out, data, len, n);
}

static bool put_document(struct buf *out, const uint8_t *data, size_t len, bool array)
{
    size_t start = out->len;
    uint32_t own_len = 0;

    buf_add(out, &own_len, sizeof own_len);
    if (!put_fields(out, data, len, array))
        return false;
    buf_add_char(out, '\0');
    own_len = (uint32_t)(out->len - start); /* x86 and ARM are little endian, as BSON is */
    memcpy(out->data + start, &own_len, sizeof own_len);
    return true;
}

bool canonical_hash(const bson_t *document, uint8_t hash[CANONICAL_HASH_BYTES])
{
    struct buf bytes = {0};
    bool ok = put_document(&bytes, bson_get_data(document), document->len, false);

    if (ok) {
        XXH128_canonical_t digest;

        XXH128_canonicalFromHash(&digest, XXH3_128bits(bytes.data, bytes.len));
        memcpy(hash, digest.digest, CANONICAL_HASH_BYTES);
    }
    buf_clear(&bytes);
    return ok;
}
