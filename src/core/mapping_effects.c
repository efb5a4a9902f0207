/*
 * What a record moves beside its document: its entity, counters, a number.
 */
#include <jansson.h>
#include <string.h>

#include "base/mem.h"
#include "core/mapping_private.h"

/* --- compiling --- */

static bool entity_new(struct mapping *m, struct err *e)
{
    const struct config_route *route = m->route;

    if (!config_has_operation(route))
        return true;
    m->entity = (struct mapping_key){.what = "entity", .of_effect = true};
    m->own = &m->entity;
    if (!mapping_key_fields(m, &m->entity, &route->entity.key, &route->entity.fields, e))
        return false;
    m->has_operation = route->operation.source[0] != '\0';
    return !m->has_operation || pick_init(&m->operation, route->operation.source, e) ||
           err_wrap(e, "operation.source");
}

static void find_type(const struct config_route *route, const char *path, struct mapping_amount *a)
{
    for (size_t i = 0; i < route->types.n; i++)
        if (strcmp(route->types.items[i].name, path) == 0)
            a->has_type = types_parse(route->types.items[i].value, &a->type);
}

static bool amount_new(const struct config_route *route, struct mapping_amount *a,
                       const struct config_pair *pair, struct err *e)
{
    json_t *value = json_loads(pair->value, JSON_DECODE_ANY, NULL);
    bool ok = true;

    a->name = pair->name;
    if (json_is_integer(value)) {
        a->amount = json_integer_value(value);
    } else if (json_is_string(value)) {
        find_type(route, json_string_value(value), a);
        ok = path_init(&a->path, json_string_value(value), e) || err_wrap(e, "counter.inc");
    } else {
        ok = err_set(e, ERR_CONFIG, 0, "counter.inc: \"%s\" is neither a number nor a path",
                     pair->name);
    }
    json_decref(value);
    return ok;
}

static bool counter_new(struct mapping *m, const struct config_counter *c, struct err *e)
{
    struct mapping_counter *counter = &m->counters[m->n_counters++];

    counter->filter = (struct mapping_key){.what = "counter", .of_effect = true};
    if (!mapping_key_pairs(m, &counter->filter, &c->filter, e))
        return false;
    counter->amounts = mem_array(c->inc.n, sizeof(*counter->amounts));
    for (size_t i = 0; i < c->inc.n; i++) {
        if (!amount_new(m->route, &counter->amounts[counter->n_amounts++], &c->inc.items[i], e))
            return false;
    }
    return true;
}

static bool sequence_new(struct mapping *m, struct err *e)
{
    const struct config_sequence *q = &m->route->sequence;

    if (!config_has_sequence(m->route))
        return true;
    m->group = (struct mapping_key){.what = "sequence.group", .of_effect = true};
    if (!mapping_key_id(m, &m->group, &q->group, MAPPING_KEY_ID_DOCUMENT, e))
        return false;
    if (q->template[0] == '\0')
        return true;
    m->sequence_text = sequence_text_new(q->template, e);
    return m->sequence_text != NULL || err_wrap(e, "sequence.template");
}

static bool lock_new(struct mapping *m, struct err *e)
{
    const struct config_route *r = m->route;
    struct template_names names = {.database = r->database, .collection = r->collection};

    if (!config_has_lock(r))
        return true;
    m->lock = template_new(TEMPLATE_TEXT, r->lock.key, &names, e);
    return m->lock != NULL || err_wrap(e, "lock.key");
}

bool mapping_effects_new(struct mapping *m, struct err *e)
{
    const struct config_route *route = m->route;

    m->counters = mem_array(route->n_counters, sizeof(*m->counters));
    for (size_t i = 0; i < route->n_counters; i++) {
        if (!counter_new(m, &route->counters[i], e))
            return false;
    }
    return entity_new(m, e) && sequence_new(m, e) && lock_new(m, e);
}

void mapping_effects_free(struct mapping *m)
{
    for (size_t i = 0; i < m->n_counters; i++) {
        struct mapping_counter *c = &m->counters[i];

        for (size_t j = 0; j < c->n_amounts; j++)
            path_clear(&c->amounts[j].path);
        mem_free(c->amounts);
        mapping_key_clear(&c->filter);
    }
    mem_free(m->counters);
    mapping_key_clear(&m->entity);
    mapping_key_clear(&m->group);
    pick_clear(&m->operation);
    sequence_text_free(m->sequence_text);
    template_free(m->lock);
}

/* --- what the record does --- */

static bool is_one_of(const struct config_list *words, struct slice word)
{
    for (size_t i = 0; i < words->n; i++) {
        if (strlen(words->items[i]) == word.len && memcmp(words->items[i], word.ptr, word.len) == 0)
            return true;
    }
    return false;
}

static bool operation_word(const struct mapping *m, const struct record *r, struct slice *out)
{
    json_t *node;

    if (m->operation.kind != PICK_VALUE)
        return pick_bytes(&m->operation, r, out);
    if (r->json == NULL || path_get(&m->operation.path, r->json, &node) != PATH_FOUND ||
        !json_is_string(node) || (r->values != NULL && values_get(r->values, node) != NULL))
        return false;
    *out = slice_of(json_string_value(node), json_string_length(node));
    return true;
}

bool mapping_action(const struct mapping *m, struct record *r, enum effect_action *out)
{
    const struct config_operation *o = &m->route->operation;
    struct slice word;

    *out = EFFECT_STORE;
    if (!config_has_operation(m->route))
        return true;
    *out = r->value.ptr == NULL ? EFFECT_DELETE : EFFECT_INSERT;
    if (!m->has_operation || r->value.ptr == NULL)
        return true;
    if (!operation_word(m, r, &word)) {
        record_reject(r, REASON_OPERATION_UNKNOWN, 0,
                      "operation: \"%s\" is missing, or its value is no text", o->source);
        return false;
    }
    if (is_one_of(&o->insert, word))
        return true;
    *out = EFFECT_DELETE;
    if (is_one_of(&o->remove, word))
        return true;
    record_reject(r, REASON_OPERATION_UNKNOWN, 0,
                  "operation: the value of \"%s\" is neither in operation.insert nor in "
                  "operation.delete",
                  o->source);
    return false;
}

/* --- what it moves --- */

/* The value as the document has it. */
static bool amount_node(const struct mapping *m, const struct record *r,
                        const struct mapping_amount *a, const json_t *node, bson_value_t *out)
{
    struct mapping_type type = {.path = a->path, .type = a->type};
    struct typed typed;
    const char *why;

    if (!a->has_type || json_is_null(node))
        return mapping_scalar(r, node, out);
    switch (mapping_convert(m, r, &type, node, &typed, &why)) {
    case TYPES_REFUSED:
        return false;
    case TYPES_SAME:
        return mapping_scalar(r, node, out);
    case TYPES_CONVERTED:
        break;
    }
    *out = typed.value;
    typed_clear(&typed);
    return out->value_type == BSON_TYPE_INT64 || out->value_type == BSON_TYPE_DOUBLE;
}

static bool amount_value(const struct mapping *m, const struct record *r,
                         const struct mapping_amount *a, int64_t *out)
{
    bson_value_t value = {0};
    json_t *node;

    if (a->path.n == 0) {
        *out = a->amount;
        return true;
    }
    if (r->json == NULL || path_get(&a->path, r->json, &node) != PATH_FOUND ||
        !amount_node(m, r, a, node, &value))
        return false;
    if (value.value_type == BSON_TYPE_INT32)
        *out = value.value.v_int32;
    else if (value.value_type == BSON_TYPE_INT64)
        *out = value.value.v_int64;
    else if (value.value_type != BSON_TYPE_DOUBLE ||
             !types_exact_integer(value.value.v_double, out))
        return false;
    return *out != INT64_MIN; /* it has no counterpart with the other sign */
}

static bool add_move(const struct mapping *m, struct record *r, uint32_t counter, struct effects *f)
{
    const struct mapping_counter *c = &m->counters[counter];
    struct effect_move *move = &f->moves[f->n_moves++];

    move->counter = counter;
    move->filter = bson_new();
    move->by = mem_array(c->n_amounts, sizeof(*move->by));
    f->bytes += c->n_amounts * sizeof(*move->by);
    if (!mapping_key_filter(m, &c->filter, r, move->filter, true))
        return false;
    f->bytes += move->filter->len;
    for (size_t i = 0; i < c->n_amounts; i++) {
        if (amount_value(m, r, &c->amounts[i], &move->by[i]))
            continue;
        record_reject(
            r, REASON_EFFECT_VALUE, 0,
            "counter: \"%s\", the amount of its field \"%s\", is missing or no integer of 64 "
            "bits",
            c->amounts[i].path.text, c->amounts[i].name);
        return false;
    }
    return true;
}

static bool add_number(const struct mapping *m, struct record *r, struct effects *f)
{
    struct effect_number *number = f->number = mem_new(sizeof(*number));
    struct buf before = {0}, behind = {0};
    const char *what, *why;
    bool ok;

    number->group = bson_new();
    if (!mapping_key_filter(m, &m->group, r, number->group, true))
        return false;
    f->bytes += number->group->len;
    if (m->sequence_text == NULL)
        return true;
    ok = sequence_text_fill(m->sequence_text, r, &before, &behind, &what, &why);
    if (!ok)
        record_reject(r, REASON_EFFECT_VALUE, 0, "sequence.template: \"%s\" %s", what, why);
    buf_add_text(&behind, "");
    number->before = before.data;
    number->behind = behind.data;
    number->digits = sequence_text_digits(m->sequence_text);
    f->bytes += before.len + behind.len;
    return ok;
}

bool mapping_effects(const struct mapping *m, struct record *r, enum effect_action action,
                     struct write_op *out)
{
    struct effects *f;

    if (!config_has_effects(m->route))
        return true;
    f = out->effects = mem_new(sizeof(*f));
    f->action = action;
    if (action != EFFECT_STORE) {
        f->entity = bson_new();
        if (!mapping_key_filter(m, &m->entity, r, f->entity, true))
            return false;
        f->bytes += f->entity->len;
    }
    f->moves = mem_array(m->n_counters, sizeof(*f->moves));
    for (size_t i = 0; i < m->n_counters; i++) {
        if (!add_move(m, r, (uint32_t)i, f))
            return false;
    }
    return !config_has_sequence(m->route) || action == EFFECT_DELETE || add_number(m, r, f);
}

/* --- its lock --- */

/* It becomes a key of Redis, and with a fence the _id of a document: an index entry of 1,024 bytes
 * was the most before MongoDB 4.2. */
enum { LOCK_KEY_MAX = 1000 };

static const char *lock_fault(const struct buf *key)
{
    if (key->len > LOCK_KEY_MAX)
        return "makes a key of more than 1000 bytes";
    return payload_is_utf8(slice_of(key->data, key->len)) ? NULL : "makes a key that is no UTF-8";
}

bool mapping_lock(const struct mapping *m, struct record *r, struct write_op *out)
{
    struct buf key = {0};
    const char *fault;

    if (m->lock == NULL)
        return true;
    buf_add_text(&key, m->route->lock.prefix);
    if ((r->json == NULL && template_needs_payload(m->lock)) || !template_fill(m->lock, r, &key)) {
        char *source = r->json == NULL ? NULL : template_unfilled(m->lock, r);

        record_reject(r, REASON_EFFECT_VALUE, 0, "lock.key: \"%s\" is missing or no scalar",
                      source ? source : m->route->lock.key);
        mem_free(source);
        buf_clear(&key);
        return false;
    }
    fault = lock_fault(&key);
    if (fault != NULL) {
        record_reject(r, REASON_EFFECT_VALUE, 0, "lock.key: \"%s\" %s", m->route->lock.key, fault);
        buf_clear(&key);
        return false;
    }
    out->lock = key.data;
    if (out->effects != NULL && config_has_fence(m->route)) {
        out->effects->fence = BCON_NEW("_id", BCON_UTF8(out->lock));
        out->effects->bytes += out->effects->fence->len;
    }
    return true;
}
