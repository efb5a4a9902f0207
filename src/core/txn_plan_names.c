#include <string.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/txn_plan_private.h"

void txn_names_reset(struct txn_names *t, size_t most)
{
    size_t need = t->n_slots ? t->n_slots : 64;

    while (need < 2 * most)
        need *= 2;
    MUST(need <= UINT32_MAX);
    if (need > t->n_slots) {
        t->slots = mem_grow(t->slots, need, sizeof *t->slots);
        t->cap = need / 2;
        t->list = mem_grow(t->list, t->cap, sizeof *t->list);
    }
    t->n_slots = need;
    t->n = 0;
    memset(t->slots, 0, t->n_slots * sizeof *t->slots);
}

void txn_names_clear(struct txn_names *t)
{
    mem_free(t->list);
    mem_free(t->slots);
    *t = (struct txn_names){0};
}

struct txn_name txn_name_of(uint64_t tag, const bson_t *document)
{
    return (struct txn_name){.tag = tag, .bytes = bson_get_data(document), .len = document->len};
}

int txn_name_compare(const struct txn_name *a, const struct txn_name *b)
{
    if (a->tag != b->tag)
        return a->tag < b->tag ? -1 : 1;
    if (a->len != b->len)
        return a->len < b->len ? -1 : 1;
    return memcmp(a->bytes, b->bytes, a->len);
}

static size_t slot_of(const struct txn_names *t, const struct txn_name *name)
{
    size_t mask = t->n_slots - 1;
    size_t at = (size_t)XXH3_64bits_withSeed(name->bytes, name->len, name->tag) & mask;

    while (t->slots[at] && txn_name_compare(&t->list[t->slots[at] - 1], name) != 0)
        at = (at + 1) & mask;
    return at;
}

uint32_t txn_names_find(const struct txn_names *t, struct txn_name name)
{
    uint32_t found = t->slots[slot_of(t, &name)];

    return found ? found - 1 : TXN_NONE;
}

uint32_t txn_names_add(struct txn_names *t, struct txn_name name)
{
    size_t at = slot_of(t, &name);

    if (!t->slots[at]) {
        MUST(t->n < t->cap);
        t->list[t->n++] = name;
        t->slots[at] = (uint32_t)t->n;
    }
    return t->slots[at] - 1;
}
