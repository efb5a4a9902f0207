#include "core/values.h"

#include <jansson.h>
#include <string.h>

#include "base/mem.h"

struct values *values_new(struct slice raw)
{
    struct values *v = mem_new(sizeof(*v));

    v->raw = raw;
    return v;
}

void values_free(struct values *v)
{
    if (v == NULL)
        return;
    buf_clear(&v->made);
    mem_free(v->items);
    mem_free(v);
}

json_t *values_add(struct values *v, const struct value *value)
{
    json_t *node = json_integer((json_int_t)v->n);

    if (v->n == v->cap) {
        v->cap = v->cap > 0 ? v->cap * 2 : 8;
        v->items = mem_grow(v->items, v->cap, sizeof(*v->items));
    }
    v->items[v->n] = *value;
    v->items[v->n++].node = node;
    return node;
}

size_t values_memory(const struct values *v)
{
    enum { OF_MALLOC = 3 * 16 };

    return v == NULL ? 0 : sizeof(*v) + v->cap * sizeof(*v->items) + v->made.cap + OF_MALLOC;
}

void values_cut(struct values *v, size_t n)
{
    v->n = n;
}

const struct value *values_get(const struct values *v, const json_t *node)
{
    json_int_t i;

    if (v == NULL || !json_is_integer(node))
        return NULL;
    i = json_integer_value(node);
    return i >= 0 && (uint64_t)i < v->n && v->items[i].node == node ? &v->items[i] : NULL;
}

const uint8_t *values_bytes(const struct values *v, const struct value *value)
{
    const void *base = v->raw.ptr != NULL ? v->raw.ptr : buf_text(&v->made);

    return (const uint8_t *)base + value->at;
}

/* libbson's struct has no const; nobody writes through it. */
static uint8_t *borrowed(const uint8_t *bytes)
{
    union {
        const uint8_t *in;
        uint8_t *out;
    } u = {.in = bytes};

    return u.out;
}

static void binary(const uint8_t *bytes, bson_value_t *out)
{
    uint32_t len;

    memcpy(&len, bytes, 4);
    out->value.v_binary.subtype = (bson_subtype_t)bytes[4];
    out->value.v_binary.data_len = len;
    out->value.v_binary.data = borrowed(bytes + 5);
}

bool values_scalar(const struct values *v, const struct value *value, bson_value_t *out)
{
    const uint8_t *bytes = values_bytes(v, value);

    out->value_type = (bson_type_t)value->type;
    switch (out->value_type) {
    case BSON_TYPE_INT32:
        memcpy(&out->value.v_int32, bytes, 4);
        return true;
    case BSON_TYPE_INT64:
        memcpy(&out->value.v_int64, bytes, 8);
        return true;
    case BSON_TYPE_DOUBLE:
        memcpy(&out->value.v_double, bytes, 8);
        return true;
    case BSON_TYPE_DATE_TIME:
        memcpy(&out->value.v_datetime, bytes, 8);
        return true;
    case BSON_TYPE_DECIMAL128:
        memcpy(&out->value.v_decimal128.low, bytes, 8);
        memcpy(&out->value.v_decimal128.high, bytes + 8, 8);
        return true;
    case BSON_TYPE_OID:
        memcpy(out->value.v_oid.bytes, bytes, 12);
        return true;
    case BSON_TYPE_BINARY:
        binary(bytes, out);
        return true;
    default:
        return false;
    }
}
