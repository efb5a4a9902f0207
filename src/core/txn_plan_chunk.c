/*
 * A chunk: the operations of one transaction, and what they ask for together. Counter documents,
 * groups, entities and fences are numbers here; sums and counts are kept per number.
 */
#include <stdlib.h>
#include <string.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/txn_plan_private.h"

enum { OP_OVERHEAD = 256 /* of one operation: a document of the ledger, and what commands add */ };

/* --- members --- */

void txn_chunk_clear(struct txn_chunk *c)
{
    struct txn_names *names[] = {&c->docs, &c->groups, &c->entities, &c->fences};
    void *arrays[] = {c->items,          c->doc_of,        c->group_of,  c->entity_of, c->fence_of,
                      c->order,          c->reach,         c->sums,      c->moved,     c->count,
                      c->next,           c->there,         c->ask_alone, c->asked,     c->events,
                      c->steps,          c->ends,          c->numbers,   c->keys,      c->filters,
                      c->first_of_group, c->first_of_fence};

    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        txn_names_clear(names[i]);
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        mem_free(arrays[i]);
    *c = (struct txn_chunk){0};
}

static size_t most_fields(const struct config_route *route)
{
    size_t most = 1;

    for (size_t i = 0; i < route->n_counters; i++)
        if (route->counters[i].inc.n > most)
            most = route->counters[i].inc.n;
    return most;
}

#define GROW(array, n) ((array) = mem_grow((array), (n), sizeof *(array)))

static void make_room(struct txn_chunk *c, size_t n, size_t counters)
{
    size_t docs = n * (counters ? counters : 1), names = docs + 2 * n;

    if (n <= c->cap && docs * c->fields <= c->cap_sums)
        return;
    c->cap = n > c->cap ? n : c->cap;
    c->cap_sums = docs * c->fields > c->cap_sums ? docs * c->fields : c->cap_sums;
    n = c->cap;
    docs = c->cap_sums;
    GROW(c->items, n);
    GROW(c->group_of, n);
    GROW(c->entity_of, n);
    GROW(c->fence_of, n);
    GROW(c->first_of_group, n);
    GROW(c->first_of_fence, n);
    GROW(c->count, n);
    GROW(c->next, n);
    GROW(c->there, n);
    GROW(c->asked, n);
    GROW(c->ask_alone, n);
    GROW(c->events, n);
    GROW(c->steps, n);
    GROW(c->ends, n);
    GROW(c->numbers, n);
    GROW(c->doc_of, docs);
    GROW(c->moved, docs);
    GROW(c->filters, docs);
    GROW(c->reach, docs);
    GROW(c->sums, docs);
    GROW(c->order, docs + n);
    GROW(c->keys, docs + names);
}

void txn_chunk_begin(struct txn_chunk *c, const struct txn_batch *b, size_t most)
{
    size_t counters = b->route->n_counters;

    c->route = b->route;
    c->ops = b->ops;
    c->fields = most_fields(b->route);
    c->n = c->bytes = 0;
    make_room(c, most, counters);
    txn_names_reset(&c->docs, most * counters);
    txn_names_reset(&c->groups, most);
    txn_names_reset(&c->entities, most);
    txn_names_reset(&c->fences, most);
}

static uint64_t without_sign(int64_t v)
{
    return v < 0 ? (uint64_t)0 - (uint64_t)v : (uint64_t)v;
}

bool txn_chunk_fits(const struct txn_chunk *c, const struct write_op *op)
{
    const struct effects *f = op->effects;

    for (size_t m = 0; c->n > 0 && m < f->n_moves; m++) {
        const struct effect_move *move = &f->moves[m];
        uint32_t doc = txn_names_find(&c->docs, txn_name_of(move->counter, move->filter));

        for (size_t k = 0; doc != TXN_NONE && k < c->route->counters[move->counter].inc.n; k++) {
            uint64_t reach = c->reach[doc * c->fields + k];

            if (reach > INT64_MAX || without_sign(move->by[k]) > INT64_MAX - reach)
                return false;
        }
    }
    return true;
}

size_t txn_chunk_bytes_of(const struct write_op *op)
{
    return (size_t)op->filter->len + op->document->len + op->effects->bytes + OP_OVERHEAD;
}

static void add_move(struct txn_chunk *c, size_t member, size_t m, const struct effect_move *move)
{
    size_t known = c->docs.n;
    uint32_t doc = txn_names_add(&c->docs, txn_name_of(move->counter, move->filter));
    uint64_t *reach = &c->reach[doc * c->fields];

    if (c->docs.n > known) {
        memset(reach, 0, c->fields * sizeof *reach);
        c->filters[doc] = move->filter;
    }
    for (size_t k = 0; k < c->route->counters[move->counter].inc.n; k++)
        reach[k] += without_sign(move->by[k]);
    c->doc_of[member * c->route->n_counters + m] = doc;
}

static void add_entity(struct txn_chunk *c, size_t member, const struct effects *f)
{
    size_t known = c->entities.n;
    uint32_t entity = txn_names_add(&c->entities, txn_name_of(0, f->entity));

    if (c->entities.n > known)
        c->asked[entity] = c->ask_alone[entity] = c->there[entity] = false;
    c->entity_of[member] = entity;
    c->events[member] =
        (struct entity_event){.entity = entity, .remove = f->action == EFFECT_DELETE};
}

/* The number of a name; first: the members that brought one first. */
static uint32_t add_name(struct txn_names *names, struct txn_name name, uint32_t *first,
                         size_t member)
{
    size_t known = names->n;
    uint32_t number = txn_names_add(names, name);

    if (names->n > known)
        first[number] = (uint32_t)member;
    return number;
}

void txn_chunk_add(struct txn_chunk *c, size_t item)
{
    const struct write_op *op = &c->ops[item];
    const struct effects *f = op->effects;
    size_t k = c->n++;

    c->items[k] = (uint32_t)item;
    c->bytes += txn_chunk_bytes_of(op);
    c->group_of[k] = c->fence_of[k] = c->entity_of[k] = TXN_NONE;
    MUST(f->n_moves <= c->route->n_counters);
    for (size_t m = 0; m < f->n_moves; m++)
        add_move(c, k, m, &f->moves[m]);
    if (f->number)
        c->group_of[k] =
            add_name(&c->groups, txn_name_of(0, f->number->group), c->first_of_group, k);
    if (f->fence)
        c->fence_of[k] = add_name(&c->fences, txn_name_of((uint64_t)f->fence_number, f->fence),
                                  c->first_of_fence, k);
    if (f->entity)
        add_entity(c, k, f);
}

/* --- the gate --- */

/* Two routes may move one collection's documents: its name tells, not the counter's number. */
static uint64_t key_of(const char *database, const char *collection, const struct txn_name *name)
{
    uint64_t seed = XXH3_64bits_withSeed(collection, strlen(collection),
                                         XXH3_64bits(database, strlen(database)));

    return XXH3_64bits_withSeed(name->bytes, name->len, seed);
}

static int by_value(const void *a, const void *b)
{
    const uint64_t *x = a, *y = b;

    return *x < *y ? -1 : *x > *y;
}

size_t txn_chunk_keys(struct txn_chunk *c)
{
    const struct config_sequence *q = &c->route->sequence;
    const struct config_lock *l = &c->route->lock;
    size_t n = 0, different = 0;

    for (size_t i = 0; i < c->docs.n; i++) {
        const struct config_counter *counter = &c->route->counters[c->docs.list[i].tag];
        c->keys[n++] = key_of(counter->database, counter->collection, &c->docs.list[i]);
    }
    for (size_t i = 0; i < c->groups.n; i++)
        c->keys[n++] = key_of(q->database, q->collection, &c->groups.list[i]);
    for (size_t i = 0; i < c->fences.n; i++)
        c->keys[n++] = key_of(l->fence_database, l->fence, &c->fences.list[i]);
    if (n > 1)
        qsort(c->keys, n, sizeof *c->keys, by_value);
    for (size_t i = 0; i < n; i++)
        if (different == 0 || c->keys[different - 1] != c->keys[i])
            c->keys[different++] = c->keys[i];
    return different;
}

/* --- what moves --- */

enum entity_step txn_chunk_step(const struct txn_chunk *c, size_t member)
{
    return c->entity_of[member] == TXN_NONE ? ENTITY_ADDED : c->steps[member];
}

static void sum_up(struct txn_chunk *c, size_t member)
{
    const struct effects *f = c->ops[c->items[member]].effects;
    bool removed = txn_chunk_step(c, member) == ENTITY_REMOVED;

    for (size_t m = 0; m < f->n_moves; m++) {
        const struct effect_move *move = &f->moves[m];
        uint32_t doc = c->doc_of[member * c->route->n_counters + m];
        int64_t *sum = &c->sums[doc * c->fields];

        c->moved[doc] = true;
        for (size_t k = 0; k < c->route->counters[move->counter].inc.n; k++)
            MUST(!(removed ? __builtin_sub_overflow(sum[k], move->by[k], &sum[k])
                           : __builtin_add_overflow(sum[k], move->by[k], &sum[k])));
    }
}

void txn_chunk_fold(struct txn_chunk *c)
{
    memset(c->sums, 0, c->docs.n * c->fields * sizeof *c->sums);
    memset(c->moved, 0, c->docs.n * sizeof *c->moved);
    memset(c->count, 0, c->groups.n * sizeof *c->count);
    if (c->entities.n > 0)
        entity_fold(c->events, c->n, c->there, c->entities.n, c->steps, c->ends);
    for (size_t k = 0; k < c->n; k++) {
        enum entity_step step = txn_chunk_step(c, k);

        if (step != ENTITY_NOTHING)
            sum_up(c, k);
        if (step == ENTITY_ADDED && c->group_of[k] != TXN_NONE)
            c->count[c->group_of[k]]++;
    }
}

bool txn_chunk_moves(const struct txn_chunk *c, size_t member, uint32_t doc)
{
    size_t n = c->ops[c->items[member]].effects->n_moves;

    if (txn_chunk_step(c, member) == ENTITY_NOTHING)
        return false;
    for (size_t m = 0; m < n; m++)
        if (c->doc_of[member * c->route->n_counters + m] == doc)
            return true;
    return false;
}

/* --- in canonical order --- */

static int by_name(const void *a, const void *b, void *names)
{
    const struct txn_names *t = names;

    return txn_name_compare(&t->list[*(const uint32_t *)a], &t->list[*(const uint32_t *)b]);
}

static void sort_order(struct txn_chunk *c, size_t n, struct txn_names *names)
{
    c->n_order = n;
    if (n > 1)
        qsort_r(c->order, n, sizeof *c->order, by_name, names);
}

void txn_chunk_docs(struct txn_chunk *c, uint32_t counter)
{
    size_t n = 0;

    for (size_t d = 0; d < c->docs.n; d++)
        if (c->moved[d] && c->docs.list[d].tag == counter)
            c->order[n++] = (uint32_t)d;
    sort_order(c, n, &c->docs);
}

void txn_chunk_groups(struct txn_chunk *c)
{
    size_t n = 0;

    for (size_t g = 0; g < c->groups.n; g++)
        if (c->count[g] > 0)
            c->order[n++] = (uint32_t)g;
    sort_order(c, n, &c->groups);
}

void txn_chunk_fences(struct txn_chunk *c)
{
    for (size_t f = 0; f < c->fences.n; f++)
        c->order[f] = (uint32_t)f;
    sort_order(c, c->fences.n, &c->fences);
}

/* --- numbers --- */

bool txn_chunk_number(struct txn_chunk *c, uint32_t group, int64_t last)
{
    return !__builtin_sub_overflow(last, c->count[group] - 1, &c->next[group]);
}

void txn_chunk_hand_out(struct txn_chunk *c)
{
    for (size_t k = 0; k < c->n; k++) {
        int64_t *next;

        c->numbers[k] = 0;
        if (c->group_of[k] == TXN_NONE || txn_chunk_step(c, k) != ENTITY_ADDED)
            continue;
        next = &c->next[c->group_of[k]];
        c->numbers[k] = *next;
        *next = (int64_t)((uint64_t)*next + 1); /* behind the last of all, nobody asks */
    }
}
