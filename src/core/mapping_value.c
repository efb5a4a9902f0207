/*
 * A node of the payload's tree as the BSON value it stands for, and a type that the route asks for.
 */
#include <jansson.h>
#include <string.h>

#include "core/mapping_private.h"

bool mapping_scalar(const struct record *r, const json_t *node, bson_value_t *out)
{
    const struct value *value = values_get(r->values, node);

    if (value != NULL)
        return values_scalar(r->values, value, out);
    switch (json_typeof(node)) {
    case JSON_INTEGER:
        out->value_type = BSON_TYPE_INT64;
        out->value.v_int64 = json_integer_value(node);
        return true;
    case JSON_REAL:
        out->value_type = BSON_TYPE_DOUBLE;
        out->value.v_double = json_real_value(node);
        return true;
    default:
        return false;
    }
}

/* A double would have lost digits; so the number is read again where the payload has it as text. */
static struct slice number_text(const struct record *r, const json_t *node, const struct path *path,
                                enum value_type type)
{
    bool needed = type == TYPE_DECIMAL ? json_is_number(node) : json_is_real(node);

    return needed ? payload_number_text(r->value, r->json, path) : slice_of(NULL, 0);
}

enum types_fit mapping_convert(const struct mapping *m, const struct record *r,
                               const struct mapping_type *type, const json_t *node,
                               struct typed *out, const char **why)
{
    bool encoded = values_get(r->values, node) != NULL;
    bson_value_t value = {0};

    out->owned = NULL;
    if (encoded || (m->payload.format == FORMAT_BSON && json_is_number(node))) {
        (void)mapping_scalar(r, node, &value); /* what is no scalar fits no type */
        return types_convert_bson(type->type, &value, out, why);
    }
    return types_convert(type->type, node, number_text(r, node, &type->path, type->type), out, why)
               ? TYPES_CONVERTED
               : TYPES_REFUSED;
}

bool mapping_type_fits_id(const struct record *r, const json_t *id)
{
    const struct value *value = values_get(r->values, id);

    return value == NULL || (value->type != BSON_TYPE_REGEX && value->type != BSON_TYPE_UNDEFINED);
}

bool mapping_insert_changes(const struct mapping_work *w)
{
    static const uint8_t zeros[8];
    const struct values *values = w->r->values;

    if (values == NULL)
        return false;
    for (void *i = json_object_iter(w->tree); i != NULL; i = json_object_iter_next(w->tree, i)) {
        const struct value *value = values_get(values, json_object_iter_value(i));

        if (value != NULL && value->type == BSON_TYPE_TIMESTAMP &&
            memcmp(values_bytes(values, value), zeros, sizeof(zeros)) == 0 &&
            strcmp(json_object_iter_key(i), "_id") != 0)
            return true;
    }
    return false;
}
