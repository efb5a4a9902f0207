#include "core/look.h"

#include <stdint.h>
#include <string.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"

/* --- the read --- */

static bool has_one_field(const bson_t *filter)
{
    return bson_count_keys(filter) == 1;
}

static void append_element(bson_t *array, size_t i, const struct write_op *op, bool whole)
{
    char text[16];
    const char *name;
    bson_iter_t at;

    (void)bson_uint32_to_string((uint32_t)i, &name, text, sizeof text);
    if (whole)
        MUST(bson_append_document(array, name, -1, op->filter));
    else
        MUST(bson_iter_init(&at, op->filter) && bson_iter_next(&at) &&
             bson_append_iter(array, name, -1, &at));
}

void look_filter(const struct write_op *const *ops, size_t n, bson_t *filter)
{
    bool one_field = has_one_field(ops[0]->filter);
    bson_iter_t first;
    bson_t in, array;

    if (n == 1) {
        MUST(bson_concat(filter, ops[0]->filter));
        return;
    }
    if (one_field) {
        MUST(bson_iter_init(&first, ops[0]->filter) && bson_iter_next(&first));
        MUST(bson_append_document_begin(filter, bson_iter_key(&first), -1, &in));
        MUST(BSON_APPEND_ARRAY_BEGIN(&in, "$in", &array));
    } else {
        MUST(BSON_APPEND_ARRAY_BEGIN(filter, "$or", &array));
    }
    for (size_t i = 0; i < n; i++)
        append_element(&array, i, ops[i], !one_field);
    if (one_field) {
        MUST(bson_append_array_end(&in, &array));
        MUST(bson_append_document_end(filter, &in));
    } else {
        MUST(bson_append_array_end(filter, &array));
    }
}

void look_projection(const bson_t *like, const char *conflict_field, bson_t *projection)
{
    bson_iter_t at;
    bool id = false;

    MUST(bson_iter_init(&at, like));
    while (bson_iter_next(&at)) {
        id = id || strcmp(bson_iter_key(&at), "_id") == 0;
        BSON_APPEND_INT32(projection, bson_iter_key(&at), 1);
    }
    if (conflict_field)
        BSON_APPEND_INT32(projection, conflict_field, 1);
    if (!id)
        BSON_APPEND_INT32(projection, "_id", 0);
}

bool look_hash(const bson_t *document, const char *conflict_field,
               uint8_t hash[CANONICAL_HASH_BYTES])
{
    bson_iter_t at;
    const uint8_t *bytes;
    uint32_t len;

    if (!bson_iter_init_find(&at, document, conflict_field) || !BSON_ITER_HOLDS_BINARY(&at))
        return false;
    bson_iter_binary(&at, NULL, &len, &bytes);
    if (len != CANONICAL_HASH_BYTES)
        return false;
    memcpy(hash, bytes, CANONICAL_HASH_BYTES);
    return true;
}

/* --- the answer --- */

struct look {
    const struct write_op *const *ops;
    size_t n;
    uint32_t *slots; /* open addressing by the filters' bytes; index + 1, 0 empty */
    size_t n_slots;  /* a power of two >= 2 * n */
    bson_t *key;     /* of the document that is looked for */
};

struct look *look_new(void)
{
    struct look *l = mem_new(sizeof *l);

    l->key = bson_new();
    return l;
}

void look_free(struct look *l)
{
    if (!l)
        return;
    bson_destroy(l->key);
    mem_free(l->slots);
    mem_free(l);
}

static size_t slot_of(const struct look *l, const bson_t *key)
{
    size_t mask = l->n_slots - 1;
    size_t at = (size_t)XXH3_64bits(bson_get_data(key), key->len) & mask;

    while (l->slots[at] && !bson_equal(l->ops[l->slots[at] - 1]->filter, key))
        at = (at + 1) & mask;
    return at;
}

void look_begin(struct look *l, const struct write_op *const *ops, size_t n)
{
    size_t need = l->n_slots ? l->n_slots : 64;

    while (need < 2 * n)
        need *= 2;
    if (need > l->n_slots)
        l->slots = mem_grow(l->slots, need, sizeof *l->slots);
    l->n_slots = need;
    memset(l->slots, 0, l->n_slots * sizeof *l->slots);
    l->ops = ops;
    l->n = n;
    for (size_t i = 0; i < n && n > 1; i++)
        l->slots[slot_of(l, ops[i]->filter)] = (uint32_t)i + 1;
}

size_t look_find(struct look *l, const bson_t *document)
{
    if (l->n == 1)
        return 0;
    bson_reinit(l->key);
    if (!canonical_key(document, l->ops[0]->filter, l->key))
        return SIZE_MAX;
    uint32_t found = l->slots[slot_of(l, l->key)];
    return found ? found - 1 : SIZE_MAX;
}
