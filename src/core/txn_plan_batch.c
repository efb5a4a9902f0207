/*
 * The operations of a batch: which are of one event, which wait for each other, what is known of
 * each, and the results.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/look.h"
#include "core/txn_plan_private.h"

enum { IN_VAIN_MAX = 2 }; /* how often E11000 and "not found" contradict each other */

static void clear_results(struct txn_batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        mem_free(b->results[i].text);
    b->n = 0;
}

void txn_batch_clear(struct txn_batch *b)
{
    clear_results(b);
    mem_free(b->items);
    mem_free(b->results);
    mem_free(b->lanes);
    mem_free(b->first);
    txn_names_clear(&b->names);
}

static void make_room(struct txn_batch *b, size_t n)
{
    size_t cap = b->cap ? b->cap : 64;

    while (cap < n)
        cap *= 2;
    MUST(cap < UINT32_MAX / 8);
    if (cap == b->cap)
        return;
    b->cap = cap;
    b->items = mem_grow(b->items, cap, sizeof *b->items);
    b->results = mem_grow(b->results, cap, sizeof *b->results);
    b->lanes = mem_grow(b->lanes, cap, sizeof *b->lanes);
    b->first = mem_grow(b->first, cap, sizeof *b->first);
}

/* Points every operation to the first one of the same event. */
static void fold(struct txn_batch *b)
{
    txn_names_reset(&b->names, b->n);
    for (size_t i = 0; i < b->n; i++) {
        size_t known = b->names.n;
        uint32_t event = txn_names_add(&b->names, txn_name_of(0, b->ops[i].filter));

        if (b->names.n > known)
            b->first[event] = (uint32_t)i;
        b->items[i] = (struct txn_item){.leader = b->first[event],
                                        .lane = TXN_NONE,
                                        .alone = b->ops[i].alone,
                                        .look_alone = b->ops[i].alone};
    }
}

static void number_lanes(struct txn_batch *b)
{
    txn_names_reset(&b->names, b->n);
    for (size_t i = 0; i < b->n; i++) {
        const void *const *lane = &b->ops[i].lane;
        uint32_t number;

        if (*lane == NULL)
            continue;
        number = txn_names_add(&b->names, (struct txn_name){.bytes = lane, .len = sizeof *lane});
        b->lanes[number] = (struct txn_lane){.blocked_at = SIZE_MAX};
        b->items[i].lane = number;
    }
}

void txn_batch_begin(struct txn_batch *b, const struct write_op *ops, size_t n,
                     const struct config_route *route)
{
    clear_results(b);
    make_room(b, n);
    b->ops = ops;
    b->n = n;
    b->route = route;
    b->from = b->looking = 0;
    b->stored_some = false;
    for (size_t i = 0; i < n; i++)
        b->results[i] = (struct outcome){.fate = FATE_UNKNOWN};
    fold(b);
    number_lanes(b);
    for (size_t i = 0; i < n; i++)
        if (b->items[i].leader == i)
            txn_batch_look(b, i);
}

static void set_result(struct txn_batch *b, size_t i, struct outcome o)
{
    mem_free(b->results[i].text);
    b->results[i] = o;
}

static void stop_looking(struct txn_batch *b, size_t i)
{
    b->looking -= b->items[i].look;
    b->items[i].look = b->items[i].refused = false;
}

void txn_batch_done(struct txn_batch *b, size_t i, struct outcome o)
{
    struct txn_item *item = &b->items[i];
    struct txn_lane *lane = item->lane == TXN_NONE ? NULL : &b->lanes[item->lane];

    stop_looking(b, i);
    item->state = TXN_ITEM_DONE;
    item->present = item->present || o.fate == FATE_INSERTED || o.fate == FATE_DUPLICATE;
    b->stored_some = b->stored_some || o.fate == FATE_INSERTED;
    set_result(b, i, o);
    if (lane && i < lane->blocked_at && (o.fate == FATE_LATER || o.fate == FATE_UNKNOWN)) {
        lane->blocked_at = i;
        lane->why = o.retry;
        lane->code = o.code;
    }
    while (b->from < b->n && b->items[b->from].state == TXN_ITEM_DONE)
        b->from++;
}

/* --- what is known of one --- */

void txn_batch_never(struct txn_batch *b, size_t i, struct outcome o)
{
    o.fate = FATE_NEVER;
    o.retry = RETRY_NONE;
    o.doubt = DOUBT_NONE;
    stop_looking(b, i);
    b->items[i].never = true;
    set_result(b, i, o);
}

void txn_batch_look(struct txn_batch *b, size_t i)
{
    b->looking += !b->items[i].look;
    b->items[i].look = true;
}

void txn_batch_refused(struct txn_batch *b, size_t i, struct outcome o)
{
    txn_batch_look(b, i);
    b->items[i].refused = true;
    set_result(b, i, o);
}

void txn_batch_found(struct txn_batch *b, size_t i, const bson_t *document)
{
    struct txn_item *item = &b->items[i];
    bson_iter_t at;

    if (!item->present && b->route->dedup.conflict != CONFLICT_OFF) {
        item->has_hash = look_hash(document, b->route->dedup.conflict_field, item->hash);
        item->has_action = config_has_operation(b->route) &&
                           bson_iter_init_find(&at, document, "op") && BSON_ITER_HOLDS_UTF8(&at);
        if (item->has_action)
            item->action =
                strcmp(bson_iter_utf8(&at, NULL), "delete") == 0 ? EFFECT_DELETE : EFFECT_INSERT;
    }
    item->present = true;
    stop_looking(b, i);
}

void txn_batch_not_found(struct txn_batch *b, size_t i)
{
    struct txn_item *item = &b->items[i];
    struct outcome o = b->results[i];

    if (item->refused && ++item->in_vain >= IN_VAIN_MAX) {
        b->results[i].text = NULL; /* moves */
        o.reason = REASON_UNIQUE_CONFLICT;
        txn_batch_never(b, i, o);
        return;
    }
    stop_looking(b, i);
}

size_t txn_batch_leader(struct txn_batch *b, size_t i)
{
    struct txn_item *item = &b->items[i];
    struct txn_item *leader;

    while (b->items[item->leader].heir)
        item->leader = b->items[item->leader].heir;
    leader = &b->items[item->leader];
    if (item->leader != i && leader->state == TXN_ITEM_DONE && !leader->present &&
        b->results[item->leader].fate == FATE_NEVER) {
        leader->heir = (uint32_t)i;
        item->leader = (uint32_t)i;
    }
    return item->leader;
}

bool txn_batch_is_blocked(const struct txn_batch *b, size_t i)
{
    uint32_t lane = b->items[i].lane;

    return lane != TXN_NONE && i > b->lanes[lane].blocked_at;
}

/* --- telling --- */

/* Is the event that is there, for operations with this leader, another one than i's? */
static bool is_other_content(const struct txn_batch *b, size_t i, size_t leader)
{
    const struct config_dedup *dedup = &b->route->dedup;
    const struct txn_item *lead = &b->items[leader];
    enum effect_action own_action = b->ops[i].effects->action;
    uint8_t own[CANONICAL_HASH_BYTES], other[CANONICAL_HASH_BYTES];
    bool has_other;

    if (dedup->conflict == CONFLICT_OFF)
        return false;
    if (b->results[leader].fate == FATE_INSERTED) {
        if (b->ops[leader].effects->action != own_action)
            return true;
        has_other = look_hash(b->ops[leader].document, dedup->conflict_field, other);
    } else {
        if (lead->has_action && lead->action != own_action)
            return true;
        has_other = lead->has_hash;
        memcpy(other, lead->hash, sizeof other);
    }
    return has_other && look_hash(b->ops[i].document, dedup->conflict_field, own) &&
           memcmp(own, other, sizeof own) != 0;
}

void txn_batch_tell(struct txn_batch *b, size_t i, size_t leader)
{
    struct outcome o = {.fate = FATE_DUPLICATE};

    if (b->items[i].never) {
        o = b->results[i];
        b->results[i].text = NULL; /* moves */
        txn_batch_done(b, i, o);
        return;
    }
    o.conflict = is_other_content(b, i, leader);
    if (o.conflict && b->route->dedup.conflict == CONFLICT_DEAD_LETTER) {
        o.fate = FATE_NEVER;
        o.reason = REASON_CONFLICT;
        o.text =
            mem_printf("the event with this dedup key was made of another payload (%s says "
                       "so)",
                       b->items[leader].has_action ? "the ledger" : b->route->dedup.conflict_field);
    }
    b->items[i].present = true;
    txn_batch_done(b, i, o);
}

void txn_batch_give_up(struct txn_batch *b, enum retry_class retry, int code)
{
    for (size_t i = b->from; i < b->n; i++) {
        size_t leader;

        if (b->items[i].state == TXN_ITEM_DONE)
            continue;
        leader = txn_batch_leader(b, i);
        if (!txn_batch_is_blocked(b, i) &&
            (b->items[leader].present || (b->items[i].never && leader == i)))
            txn_batch_tell(b, i, leader);
        else
            txn_batch_done(b, i,
                           (struct outcome){.fate = FATE_LATER, .retry = retry, .code = code});
    }
}
