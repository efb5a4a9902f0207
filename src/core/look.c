#include "core/look.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"

/*
 * --- the read ---
 *
 * One field: {k: {$in: [...]}}. Several: {$or: [...]}, where operations that differ in one field
 * only share a branch, {tenant: "t", id: {$in: [...]}}, because the server plans each branch by
 * itself. The field is the one that makes the fewest branches.
 */

/* One operation on its way into a branch: equal rest, same branch. */
struct member {
    uint64_t rest; /* hash of its fields but the one that is free */
    uint32_t index;
};

static int by_rest(const void *a, const void *b)
{
    const struct member *x = a, *y = b;

    if (x->rest != y->rest)
        return x->rest < y->rest ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void append_value(bson_t *array, size_t i, const bson_iter_t *value)
{
    char text[16];
    const char *name;

    (void)bson_uint32_to_string((uint32_t)i, &name, text, sizeof text);
    MUST(bson_append_iter(array, name, -1, value));
}

/* The free field of a filter, counted from 0. */
static bson_iter_t field_of(const bson_t *filter, size_t field)
{
    bson_iter_t at;

    MUST(bson_iter_init(&at, filter));
    for (size_t i = 0; i <= field; i++)
        MUST(bson_iter_next(&at));
    return at;
}

/* A filter's bytes before and behind the element of a field. */
struct rest {
    struct slice before, behind;
};

static struct rest rest_of(const bson_t *filter, size_t field)
{
    const uint8_t *data = bson_get_data(filter);
    bson_iter_t at = field_of(filter, field);
    size_t start = bson_iter_offset(&at), head = sizeof(int32_t); /* its length is no field's */
    size_t end = bson_iter_next(&at) ? bson_iter_offset(&at) : filter->len - 1;

    return (struct rest){slice_of(data + head, start - head),
                         slice_of(data + end, filter->len - end)};
}

static uint64_t hash_of_rest(const bson_t *filter, size_t field)
{
    struct rest r = rest_of(filter, field);

    return XXH3_64bits_withSeed(r.behind.ptr, r.behind.len,
                                XXH3_64bits(r.before.ptr, r.before.len));
}

static bool same_rest(const bson_t *a, const bson_t *b, size_t field)
{
    struct rest x = rest_of(a, field), y = rest_of(b, field);

    return slice_equal(x.before, y.before) && slice_equal(x.behind, y.behind);
}

/* Sorted by their rest; how many branches that makes. */
static size_t group(const struct write_op *const *ops, size_t n, size_t field, struct member *out)
{
    size_t groups = 1;

    for (size_t i = 0; i < n; i++)
        out[i] = (struct member){hash_of_rest(ops[i]->filter, field), (uint32_t)i};
    qsort(out, n, sizeof *out, by_rest);
    for (size_t i = 1; i < n; i++)
        groups += out[i].rest != out[i - 1].rest;
    return groups;
}

/* Appends {field: {$in: [...]}} with the values of n members, and their other fields. */
static void append_branch(bson_t *to, const struct write_op *const *ops, const struct member *m,
                          size_t n, size_t field)
{
    const bson_t *first = ops[m[0].index]->filter;
    bson_iter_t at;
    bson_t in, array;

    MUST(bson_iter_init(&at, first));
    for (size_t i = 0; bson_iter_next(&at); i++) {
        if (i != field || n == 1) {
            MUST(bson_append_iter(to, bson_iter_key(&at), -1, &at));
            continue;
        }
        MUST(bson_append_document_begin(to, bson_iter_key(&at), -1, &in));
        MUST(BSON_APPEND_ARRAY_BEGIN(&in, "$in", &array));
        for (size_t k = 0; k < n; k++) {
            bson_iter_t value = field_of(ops[m[k].index]->filter, field);
            append_value(&array, k, &value);
        }
        MUST(bson_append_array_end(&in, &array));
        MUST(bson_append_document_end(to, &in));
    }
}

/* The field that makes the fewest branches; members are grouped by it. */
static size_t best_field(const struct write_op *const *ops, size_t n, size_t fields,
                         struct member *members)
{
    size_t best = 0, least = SIZE_MAX;

    for (size_t f = 0; f < fields; f++) {
        size_t groups = group(ops, n, f, members);

        if (groups < least) {
            least = groups;
            best = f;
        }
    }
    (void)group(ops, n, best, members);
    return best;
}

static void append_branches(bson_t *filter, const struct write_op *const *ops, size_t n,
                            size_t fields)
{
    struct member *members = mem_array(n, sizeof *members);
    size_t field = best_field(ops, n, fields, members);
    bson_t array, branch;

    MUST(BSON_APPEND_ARRAY_BEGIN(filter, "$or", &array));
    for (size_t i = 0, end, branches = 0; i < n; i = end, branches++) {
        char text[16];
        const char *name;

        for (end = i + 1;
             end < n && members[end].rest == members[i].rest &&
             same_rest(ops[members[i].index]->filter, ops[members[end].index]->filter, field);)
            end++;
        (void)bson_uint32_to_string((uint32_t)branches, &name, text, sizeof text);
        MUST(bson_append_document_begin(&array, name, -1, &branch));
        append_branch(&branch, ops, &members[i], end - i, field);
        MUST(bson_append_document_end(&array, &branch));
    }
    MUST(bson_append_array_end(filter, &array));
    mem_free(members);
}

void look_filter(const struct write_op *const *ops, size_t n, bson_t *filter)
{
    size_t fields = bson_count_keys(ops[0]->filter);

    if (fields > 1 && n > 1) {
        append_branches(filter, ops, n, fields);
        return;
    }
    struct member *members = mem_array(n, sizeof *members);
    for (size_t i = 0; i < n; i++)
        members[i].index = (uint32_t)i;
    append_branch(filter, ops, members, n, 0);
    mem_free(members);
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
