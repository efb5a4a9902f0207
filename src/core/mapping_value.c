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
    bool needed =
        type == TYPE_DECIMAL ? json_is_number(node) : type == TYPE_DATE_S && json_is_real(node);

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
