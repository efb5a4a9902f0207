#include "core/mirror.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/types.h"

bool mirror_wanted(const struct config_counter *c)
{
    return c->mirror != NULL && c->mirror[0] != '\0';
}

bool mirror_any(const struct config_route *r)
{
    for (size_t i = 0; i < r->n_counters; i++)
        if (mirror_wanted(&r->counters[i]))
            return true;
    return false;
}

/* --- what is to be read --- */

static int by_bytes(const void *a, const void *b)
{
    const bson_t *x = *(const bson_t *const *)a, *y = *(const bson_t *const *)b;

    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return memcmp(bson_get_data(x), bson_get_data(y), x->len);
}

const bson_t **mirror_moved(const struct write_op *const *ops, size_t n, uint32_t counter,
                            size_t *n_out)
{
    const bson_t **found = mem_array(n, sizeof(const bson_t *));
    size_t kept = 0, all = 0;

    for (size_t i = 0; i < n; i++) {
        const struct effects *f = ops[i]->effects;

        for (size_t k = 0; f && k < f->n_moves; k++)
            if (f->moves[k].counter == counter && all < n)
                found[all++] = f->moves[k].filter;
    }
    qsort(found, all, sizeof(const bson_t *), by_bytes);
    for (size_t i = 0; i < all; i++)
        if (i == 0 || by_bytes(&found[i], &found[kept - 1]) != 0)
            found[kept++] = found[i];
    *n_out = kept;
    return found;
}

/* {name: {$in: [...]}} */
static void filter_of_one_field(const bson_t *const *filters, size_t n, bson_t *out)
{
    bson_iter_t at;
    bson_t in, array;

    MUST(bson_iter_init(&at, filters[0]) && bson_iter_next(&at));
    BSON_APPEND_DOCUMENT_BEGIN(out, bson_iter_key(&at), &in);
    BSON_APPEND_ARRAY_BEGIN(&in, "$in", &array);
    for (size_t i = 0; i < n; i++) {
        const char *name;
        char text[16];

        (void)bson_uint32_to_string((uint32_t)i, &name, text, sizeof text);
        MUST(bson_iter_init(&at, filters[i]) && bson_iter_next(&at));
        MUST(bson_append_iter(&array, name, -1, &at));
    }
    bson_append_array_end(&in, &array);
    bson_append_document_end(out, &in);
}

void mirror_filter(const bson_t *const *filters, size_t n, bson_t *out)
{
    bson_t array;

    if (bson_count_keys(filters[0]) == 1) {
        filter_of_one_field(filters, n, out);
        return;
    }
    BSON_APPEND_ARRAY_BEGIN(out, "$or", &array);
    for (size_t i = 0; i < n; i++) {
        const char *name;
        char text[16];

        (void)bson_uint32_to_string((uint32_t)i, &name, text, sizeof text);
        MUST(bson_append_document(&array, name, -1, filters[i]));
    }
    bson_append_array_end(out, &array);
}

void mirror_projection(const struct config_counter *c, bson_t *out)
{
    bool has_id = false;

    for (size_t i = 0; i < c->filter.n; i++) {
        BSON_APPEND_BOOL(out, c->filter.items[i].name, true);
        has_id = has_id || strcmp(c->filter.items[i].name, "_id") == 0;
    }
    for (size_t i = 0; i < c->inc.n; i++)
        BSON_APPEND_BOOL(out, c->inc.items[i].name, true);
    BSON_APPEND_BOOL(out, MIRROR_VERSION, true);
    if (!has_id)
        BSON_APPEND_BOOL(out, "_id", false);
}

/* --- what is told --- */

static bool find(const bson_t *document, const char *path, bson_iter_t *out)
{
    bson_iter_t at;

    return bson_iter_init_find(out, document, path) || /* a filter has dotted names */
           (bson_iter_init(&at, document) && bson_iter_find_descendant(&at, path, out));
}

static void add_double(double v, struct buf *out)
{
    int64_t whole;

    if (types_exact_integer(v, &whole))
        buf_printf(out, "%" PRId64, whole);
    else
        buf_printf(out, "%.17g", v);
}

static void add_hex(const uint8_t *bytes, uint32_t len, struct buf *out)
{
    for (uint32_t i = 0; i < len; i++)
        buf_printf(out, "%02x", bytes[i]);
}

/* False: no scalar, or nothing that a key can hold. */
static bool add_text(const bson_iter_t *v, struct buf *out)
{
    char text[BSON_DECIMAL128_STRING];
    bson_decimal128_t decimal;
    const uint8_t *bytes;
    const char *utf8;
    uint32_t len;

    switch (bson_iter_type(v)) {
    case BSON_TYPE_UTF8:
        utf8 = bson_iter_utf8(v, &len);
        buf_add(out, utf8, len);
        return len > 0 && strlen(utf8) == len;
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
        buf_printf(out, "%" PRId64, bson_iter_as_int64(v));
        return true;
    case BSON_TYPE_DOUBLE:
        add_double(bson_iter_double(v), out);
        return true;
    case BSON_TYPE_BOOL:
        buf_add_text(out, bson_iter_bool(v) ? "true" : "false");
        return true;
    case BSON_TYPE_DATE_TIME:
        buf_printf(out, "%" PRId64, bson_iter_date_time(v));
        return true;
    case BSON_TYPE_OID:
        bson_oid_to_string(bson_iter_oid(v), text);
        buf_add_text(out, text);
        return true;
    case BSON_TYPE_DECIMAL128:
        (void)bson_iter_decimal128(v, &decimal);
        bson_decimal128_to_string(&decimal, text);
        buf_add_text(out, text);
        return true;
    case BSON_TYPE_BINARY:
        bson_iter_binary(v, NULL, &len, &bytes);
        add_hex(bytes, len, out);
        return len > 0;
    default:
        return false;
    }
}

/* The configuration has seen to it that each brace closes around a field of the filter. */
bool mirror_key(const struct config_counter *c, const bson_t *document, struct buf *out)
{
    for (const char *at = c->mirror; *at != '\0';) {
        size_t len = strcspn(at, "{");
        bson_iter_t value;

        buf_add(out, at, len);
        at += len;
        if (*at == '\0')
            break;
        len = strcspn(at, "}");
        char *name = mem_text_n(at + 1, len - 1);
        bool ok = find(document, name, &value) && add_text(&value, out);
        mem_free(name);
        if (!ok)
            return false;
        at += len + 1;
    }
    return out->len > 0;
}

/* A field that was never counted is 0. */
static void add_values(const struct config_counter *c, const bson_t *document, struct buf *out)
{
    for (size_t i = 0; i < c->inc.n; i++) {
        bson_iter_t value;

        if (i > 0)
            buf_add_char(out, ' ');
        if (!find(document, c->inc.items[i].name, &value) || !BSON_ITER_HOLDS_NUMBER(&value) ||
            !add_text(&value, out))
            buf_add_char(out, '0');
    }
}

bool mirror_add(const struct config_counter *c, const bson_t *document,
                struct invalidation_list *out)
{
    struct buf key = {0}, values = {0};
    struct invalidation *added;
    bson_iter_t version;

    if (!mirror_key(c, document, &key)) {
        buf_clear(&key);
        return false;
    }
    add_values(c, document, &values);
    added = invalidation_add(out, INVALIDATION_MIRROR, c->index, key.data, values.data);
    added->fields = &c->inc;
    if (find(document, MIRROR_VERSION, &version) && BSON_ITER_HOLDS_NUMBER(&version))
        added->version = bson_iter_as_int64(&version);
    return true;
}
