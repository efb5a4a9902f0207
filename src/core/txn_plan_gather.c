/*
 * Which operations are the next transaction: in the order given, those of a lane behind each other,
 * what is known told on the way.
 */
#include "base/err.h"
#include "core/txn_plan_steps.h"

struct gather {
    struct txn_plan *p;
    size_t most;
    bool alone; /* the turn of those that have to be alone: nothing else is left */
    bool full;
};

/* False: it is not in this chunk. */
static bool try_take(struct gather *g, size_t i)
{
    struct txn_batch *b = &g->p->batch;
    struct txn_chunk *c = &g->p->chunk;

    if (b->items[i].alone != g->alone)
        return false;
    if (c->n > 0 && (c->n >= g->most || !txn_chunk_fits(c, &b->ops[i]) ||
                     c->bytes + txn_chunk_bytes_of(&b->ops[i]) > g->p->limits.max_bytes)) {
        g->full = true;
        return false;
    }
    txn_chunk_add(c, i);
    b->items[i].state = TXN_ITEM_TAKEN;
    g->full = g->alone;
    return true;
}

/* It shares the result of another one, which is not known to be there. False: it has to wait for
 * more than this chunk. */
static bool follow(struct gather *g, size_t i, size_t leader, bool behind_another)
{
    struct txn_batch *b = &g->p->batch;
    const struct outcome *o = &b->results[leader];

    if (b->items[leader].state != TXN_ITEM_DONE)
        return b->items[leader].state == TXN_ITEM_TAKEN;
    if (behind_another)
        return false;
    txn_batch_done(b, i, (struct outcome){.fate = FATE_LATER, .retry = o->retry, .code = o->code});
    return true;
}

/* Decides about one operation that is not done: its result, in the chunk, or its lane waits. */
static void gather_one(struct gather *g, size_t i)
{
    struct txn_batch *b = &g->p->batch;
    struct txn_item *item = &b->items[i];
    struct txn_lane *lane = item->lane == TXN_NONE ? NULL : &b->lanes[item->lane];
    bool behind_another = lane && lane->in == g->p->stamp, goes;
    size_t leader;

    if (lane && lane->held == g->p->stamp)
        return;
    if (lane && txn_batch_is_blocked(b, i)) {
        txn_batch_done(
            b, i, (struct outcome){.fate = FATE_LATER, .retry = lane->why, .code = lane->code});
        return;
    }
    leader = txn_batch_leader(b, i);
    if (b->items[leader].present || (leader == i && item->never)) {
        goes = true; /* those of its lane that are on their way come first: they may fail */
        if (!behind_another)
            txn_batch_tell(b, i, leader);
    } else {
        goes = leader == i ? try_take(g, i) : follow(g, i, leader, behind_another);
    }
    if (item->state == TXN_ITEM_DONE)
        return;
    if (lane && goes)
        lane->in = g->p->stamp;
    else if (lane)
        lane->held = g->p->stamp;
}

static void gather(struct txn_plan *p, bool alone)
{
    struct gather g = {.p = p, .most = p->split_limit, .alone = alone};

    p->stamp++;
    for (size_t i = p->batch.from; i < p->batch.n && i < p->part_end && !g.full; i++)
        if (p->batch.items[i].state != TXN_ITEM_DONE)
            gather_one(&g, i);
}

bool txn_gather(struct txn_plan *p)
{
    struct txn_batch *b = &p->batch;
    struct txn_chunk *c = &p->chunk;
    size_t most = p->limits.max_ops < b->n ? p->limits.max_ops : b->n;

    for (size_t k = 0; k < c->n; k++)
        if (b->items[c->items[k]].state == TXN_ITEM_TAKEN)
            b->items[c->items[k]].state = TXN_ITEM_WAITING;
    txn_chunk_begin(c, b, most);
    for (;;) {
        for (int turn = 0; turn < 2 && c->n == 0; turn++)
            gather(p, turn == 1);
        if (c->n > 0 || p->part_end >= b->n)
            break;
        p->part_end = SIZE_MAX;
    }
    MUST(c->n > 0 || b->from == b->n);
    return c->n > 0;
}
