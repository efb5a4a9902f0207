/*
 * The commands of a transaction, and the reads: what each holds.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/look.h"
#include "core/txn_plan_steps.h"

enum {
    LOOK_OPS_MAX = 1000,      /* of one read; see look.h for what it costs */
    LOOK_BYTES_MAX = 4 << 20, /* of their filters: a read is one document below 16 MiB */
};

#define GROW(array, n) ((array) = mem_grow((array), (n), sizeof *(array)))

static void make_room(struct txn_plan *p)
{
    size_t n = p->batch.n < LOOK_OPS_MAX ? LOOK_OPS_MAX : p->batch.n;

    if (n > p->cap) {
        p->cap = n;
        GROW(p->what, n);
        GROW(p->ops, n);
        GROW(p->entities, n);
        GROW(p->numbers, n);
        GROW(p->did, n);
        GROW(p->found, n);
        GROW(p->moves, n);
    }
    p->n = 0;
}

static void put(struct txn_plan *p, size_t what, const struct write_op *op)
{
    p->what[p->n] = (uint32_t)what;
    p->ops[p->n++] = op;
}

/* Member k of the chunk. */
static const struct write_op *member(const struct txn_plan *p, size_t k)
{
    return &p->batch.ops[p->chunk.items[k]];
}

static bool with_ops(struct txn_plan *p, struct txn_command *command, enum txn_command_kind kind)
{
    *command = (struct txn_command){.kind = kind, .ops = p->ops, .n = p->n};
    return p->n > 0;
}

/* --- reads --- */

static void begin_read(struct txn_plan *p)
{
    memset(p->found, 0, p->n * sizeof *p->found);
    p->strange = false;
    look_begin(p->look, p->ops, p->n);
}

static bool has_room(size_t n, size_t *bytes, const bson_t *filter)
{
    *bytes += filter->len + 16;
    return n == 0 || (n < LOOK_OPS_MAX && *bytes <= LOOK_BYTES_MAX);
}

/* Of many; of one that a read of many could not tell about when only such are left. */
void txn_command_look(struct txn_plan *p, struct txn_command *command)
{
    struct txn_batch *b = &p->batch;
    size_t bytes = 0, lone = SIZE_MAX;

    make_room(p);
    for (size_t i = b->from; i < b->n; i++) {
        if (!b->items[i].look)
            continue;
        if (b->items[i].look_alone) {
            lone = lone == SIZE_MAX ? i : lone;
            continue;
        }
        if (!has_room(p->n, &bytes, b->ops[i].filter))
            break;
        put(p, i, &b->ops[i]);
    }
    if (p->n == 0) {
        MUST(lone != SIZE_MAX);
        put(p, lone, &b->ops[lone]);
    }
    begin_read(p);
    (void)with_ops(p, command, TXN_LOOK);
    command->events = config_has_operation(b->route);
}

static bool fill_state(struct txn_plan *p, struct txn_command *command)
{
    struct txn_chunk *c = &p->chunk;
    size_t bytes = 0, lone = SIZE_MAX;

    for (size_t k = 0; k < c->n; k++) {
        bson_t *entity = member(p, k)->effects->entity;
        uint32_t e = c->entity_of[k];

        if (e == TXN_NONE || c->asked[e])
            continue;
        if (c->ask_alone[e]) {
            lone = lone == SIZE_MAX ? k : lone;
            continue;
        }
        if (!has_room(p->n, &bytes, entity))
            break;
        c->asked[e] = true;
        p->entities[p->n] = (struct write_op){.filter = entity};
        put(p, e, &p->entities[p->n]);
    }
    if (p->n == 0 && lone != SIZE_MAX) {
        c->asked[c->entity_of[lone]] = true;
        p->entities[0] = (struct write_op){.filter = member(p, lone)->effects->entity};
        put(p, c->entity_of[lone], &p->entities[0]);
    }
    begin_read(p);
    return with_ops(p, command, TXN_STATE);
}

/* --- what moves --- */

static bool fill_fence(struct txn_plan *p, struct txn_command *command)
{
    struct txn_chunk *c = &p->chunk;

    if (p->cursor++ == 0) {
        txn_chunk_fences(c);
        for (size_t i = 0; i < c->n_order; i++)
            put(p, c->order[i], member(p, c->first_of_fence[c->order[i]]));
    }
    return with_ops(p, command, TXN_FENCE);
}

/* The documents of the counters one after another, as many as a read takes. */
static bool fill_check(struct txn_plan *p, struct txn_command *command)
{
    struct txn_chunk *c = &p->chunk;
    uint32_t counter = 0;
    size_t bytes = 0;

    for (; p->n == 0 && p->cursor < c->route->n_counters; p->cursor += p->n == 0) {
        counter = (uint32_t)p->cursor;
        txn_chunk_docs(c, counter);
        for (; p->checked < c->n_order && !(p->check_alone && p->n > 0); p->checked++) {
            uint32_t doc = c->order[p->checked];

            if (!has_room(p->n, &bytes, c->filters[doc]))
                break;
            p->entities[p->n] = (struct write_op){.filter = c->filters[doc]};
            put(p, doc, &p->entities[p->n]);
        }
        if (p->n == 0)
            p->checked = 0;
    }
    begin_read(p);
    (void)with_ops(p, command, TXN_CHECK);
    command->counter = counter;
    return p->n > 0;
}

/* The counter documents of the next counter that has any. */
static bool fill_count(struct txn_plan *p, struct txn_command *command)
{
    struct txn_chunk *c = &p->chunk;
    uint32_t counter = 0;

    c->n_order = 0;
    while (c->n_order == 0 && p->cursor < c->route->n_counters) {
        counter = (uint32_t)p->cursor++;
        txn_chunk_docs(c, counter);
    }
    p->n = c->n_order;
    for (size_t i = 0; i < p->n; i++) {
        uint32_t doc = p->what[i] = c->order[i];

        p->moves[i] = (struct txn_move){.filter = c->filters[doc], .by = &c->sums[doc * c->fields]};
    }
    *command = (struct txn_command){
        .kind = TXN_COUNT, .counter = counter, .moves = p->moves, .n_moves = p->n};
    return p->n > 0;
}

static bool fill_number(struct txn_plan *p, struct txn_command *command)
{
    struct txn_chunk *c = &p->chunk;
    uint32_t group;

    p->numbered = false;
    if (p->cursor == 0)
        txn_chunk_groups(c);
    if (p->cursor == c->n_order) {
        txn_chunk_hand_out(c);
        return false;
    }
    p->n = 1;
    p->what[0] = group = c->order[p->cursor++];
    *command =
        (struct txn_command){.kind = TXN_NUMBER,
                             .group = member(p, c->first_of_group[group])->effects->number->group,
                             .count = c->count[group]};
    return true;
}

/* --- documents --- */

static bool fill_events(struct txn_plan *p, struct txn_command *command)
{
    size_t n = config_has_operation(p->batch.route) && p->cursor == 0 ? p->chunk.n : 0;

    p->cursor++;
    for (size_t k = 0; k < n; k++) {
        p->did[k] = txn_chunk_step(&p->chunk, k) != ENTITY_NOTHING;
        put(p, k, member(p, k));
    }
    (void)with_ops(p, command, TXN_EVENTS);
    command->did = p->did;
    return n > 0;
}

/* Is the member's document, or its entity, what this step writes? */
static bool is_written(const struct txn_chunk *c, size_t k, enum entity_write write)
{
    uint32_t entity = c->entity_of[k];

    if (entity == TXN_NONE)
        return write == ENTITY_INSERT;
    return c->ends[entity].write == write && c->ends[entity].last == k;
}

static bool fill_documents(struct txn_plan *p, struct txn_command *command,
                           enum txn_command_kind kind, enum entity_write write)
{
    size_t n = p->cursor == 0 ? p->chunk.n : 0;

    p->cursor++;
    for (size_t k = 0; k < n; k++) {
        if (!is_written(&p->chunk, k, write))
            continue;
        p->numbers[p->n] = p->chunk.numbers[k];
        put(p, k, member(p, k));
    }
    (void)with_ops(p, command, kind);
    if (config_has_sequence(p->batch.route) && kind != TXN_DELETE)
        command->numbers = p->numbers;
    return p->n > 0;
}

bool txn_command_fill(struct txn_plan *p, struct txn_command *command)
{
    make_room(p);
    switch (p->step) {
    case TXN_STEP_BEGIN:
        *command = (struct txn_command){.kind = TXN_BEGIN};
        command->n_keys = txn_chunk_keys(&p->chunk);
        command->keys = p->chunk.keys;
        return p->cursor++ == 0;
    case TXN_STEP_FENCE:
        return fill_fence(p, command);
    case TXN_STEP_STATE:
        return fill_state(p, command);
    case TXN_STEP_COUNT:
        return fill_count(p, command);
    case TXN_STEP_CHECK:
        return fill_check(p, command);
    case TXN_STEP_NUMBER:
        return fill_number(p, command);
    case TXN_STEP_EVENTS:
        return fill_events(p, command);
    case TXN_STEP_INSERT:
        return fill_documents(p, command, TXN_INSERT, ENTITY_INSERT);
    case TXN_STEP_DELETE:
        return fill_documents(p, command, TXN_DELETE, ENTITY_DELETE);
    case TXN_STEP_REPLACE:
        return fill_documents(p, command, TXN_REPLACE, ENTITY_REPLACE);
    case TXN_STEP_COMMIT:
        *command = (struct txn_command){.kind = TXN_COMMIT};
        return true;
    case TXN_STEP_IDLE:
    case TXN_STEP_COMMIT_WAIT:
    case TXN_STEP_ABORT:
    case TXN_STEP_WAIT:
        break;
    }
    return false;
}
