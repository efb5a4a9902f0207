/*
 * log_plan_count.c - the counters of a round: gathered, summed, sent, read back where it is not
 * sure.
 */
#include <string.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/log_plan_private.h"

enum {
    TRIES_MAX = 3,   /* of one counter document before its events have to wait */
    DOUBLES_MAX = 2, /* E11000 behind so many reads: another unique index, not somebody else */
    IDS_MAX = 20000, /* of one COUNT */
    COUNT_BYTES = 8 << 20, /* of one COUNT, about */
    MOVE_OVERHEAD = 400,
    ID_BYTES = 80,     /* of one id: in the filter and in the update */
    PRUNE_ONE_OF = 32, /* ids: how often a counter document that is moved is pruned, too */
};

#define NONE UINT32_MAX

void log_count_free(struct log_plan *p)
{
    log_count_round_end(p);
    for (size_t i = 0; i < p->n_ns; i++)
        mem_free(p->ns[i]);
    mem_free(p->ns);
    mem_free(p->moves);
    mem_free(p->parts);
    mem_free(p->changes);
    mem_free(p->owned);
    mem_free(p->move_slots);
    mem_free(p->out_moves);
    mem_free(p->out_changes);
    mem_free(p->out_ids);
}

void log_count_begin(struct log_plan *p)
{
    const struct config_route *r = p->rules.route;

    if (p->ns_route == r)
        return;
    for (size_t i = 0; i < p->n_ns; i++)
        mem_free(p->ns[i]);
    p->ns_route = r;
    p->n_ns = r->n_counters;
    p->ns = mem_grow(p->ns, p->n_ns ? p->n_ns : 1, sizeof *p->ns);
    for (size_t i = 0; i < p->n_ns; i++)
        p->ns[i] = mem_printf("%s.%s", r->counters[i].database, r->counters[i].collection);
}

void log_count_round_end(struct log_plan *p)
{
    for (size_t i = 0; i < p->n_owned; i++)
        bson_destroy(p->owned[i]);
    p->n_owned = p->n_moves = p->n_parts = p->n_changes = 0;
}

/* Room for one more. */
static void *grown(void *array, size_t n, size_t *cap, size_t size)
{
    if (n < *cap)
        return array;
    *cap = *cap ? *cap * 2 : 64;
    return mem_grow(array, *cap, size);
}

static void reserve(struct log_plan *p)
{
    if (p->cap_out_moves < p->n_moves) {
        p->cap_out_moves = 2 * p->n_moves;
        p->out_moves = mem_grow(p->out_moves, p->cap_out_moves, sizeof *p->out_moves);
    }
    if (p->cap_out_changes < p->n_changes) {
        p->cap_out_changes = 2 * p->n_changes;
        p->out_changes = mem_grow(p->out_changes, p->cap_out_changes, sizeof *p->out_changes);
    }
    if (p->cap_out_ids < p->n_parts) {
        p->cap_out_ids = 2 * p->n_parts;
        p->out_ids = mem_grow(p->out_ids, p->cap_out_ids, sizeof *p->out_ids);
    }
}

/* --- gathering --- */

static uint64_t hash_of(const char *ns, const bson_t *filter)
{
    return XXH3_64bits_withSeed(bson_get_data(filter), filter->len, XXH3_64bits(ns, strlen(ns)));
}

static bool same_move(const struct log_move_item *m, const char *ns, const bson_t *filter)
{
    return strcmp(m->ns, ns) == 0 && m->filter->len == filter->len &&
           memcmp(bson_get_data(m->filter), bson_get_data(filter), filter->len) == 0;
}

static void index_moves(struct log_plan *p)
{
    size_t need = p->n_move_slots ? p->n_move_slots : 128;

    while (need < 2 * (p->n_moves + 1))
        need *= 2;
    if (need != p->n_move_slots)
        p->move_slots = mem_grow(p->move_slots, need, sizeof *p->move_slots);
    p->n_move_slots = need;
    memset(p->move_slots, 0, need * sizeof *p->move_slots);
    for (size_t m = 0; m < p->n_moves; m++) {
        size_t at = p->moves[m].hash & (need - 1);

        while (p->move_slots[at])
            at = (at + 1) & (need - 1);
        p->move_slots[at] = (uint32_t)m + 1;
    }
}

static size_t add_move(struct log_plan *p, const char *ns, const bson_t *filter, uint64_t hash)
{
    p->moves = grown(p->moves, p->n_moves, &p->cap_moves, sizeof *p->moves);
    p->moves[p->n_moves] = (struct log_move_item){
        .ns = ns, .filter = filter, .hash = hash, .first = NONE, .last = NONE};
    return p->n_moves++;
}

static size_t move_of(struct log_plan *p, const char *ns, const bson_t *filter)
{
    uint64_t hash = hash_of(ns, filter);

    if (p->n_move_slots < 2 * (p->n_moves + 1))
        index_moves(p);
    size_t mask = p->n_move_slots - 1, at = hash & mask;
    for (; p->move_slots[at]; at = (at + 1) & mask)
        if (same_move(&p->moves[p->move_slots[at] - 1], ns, filter))
            return p->move_slots[at] - 1;
    p->move_slots[at] = (uint32_t)p->n_moves + 1;
    return add_move(p, ns, filter, hash);
}

static void link_part(struct log_plan *p, size_t move, uint32_t part)
{
    struct log_move_item *m = &p->moves[move];

    p->parts[part].next = NONE;
    if (m->first == NONE)
        m->first = part;
    else
        p->parts[m->last].next = part;
    m->last = part;
}

/* A new part of the item; its changes follow with add_change(). */
static struct log_part *add_part(struct log_plan *p, size_t move, size_t item)
{
    p->parts = grown(p->parts, p->n_parts, &p->cap_parts, sizeof *p->parts);
    p->parts[p->n_parts] =
        (struct log_part){.item = (uint32_t)item, .change = (uint32_t)p->n_changes};
    link_part(p, move, (uint32_t)p->n_parts);
    return &p->parts[p->n_parts++];
}

static void add_change(struct log_plan *p, struct log_part *part, const char *field, int64_t by)
{
    p->changes = grown(p->changes, p->n_changes, &p->cap_changes, sizeof *p->changes);
    p->changes[p->n_changes++] = (struct log_change){field, by};
    part->n_changes++;
}

static void add_mapped(struct log_plan *p, size_t i)
{
    const struct config_route *r = p->rules.route;
    const struct effects *f = p->ops[i].effects;

    for (size_t k = 0; f && k < f->n_moves; k++) {
        const struct effect_move *from = &f->moves[k];
        const struct config_counter *c = &r->counters[from->counter];
        size_t m = move_of(p, p->ns[from->counter], from->filter);
        struct log_part *part = add_part(p, m, i);

        p->moves[m].make = p->moves[m].make || c->upsert;
        for (size_t j = 0; j < c->inc.n; j++)
            add_change(p, part, c->inc.items[j].name,
                       f->action == EFFECT_DELETE ? -from->by[j] : from->by[j]);
    }
}

/* One of _effects.moves. */
static void add_stored_move(struct log_plan *p, size_t i, bson_iter_t in)
{
    const char *ns = NULL;
    bson_t *filter = NULL;
    bson_iter_t by = {0};
    bool has_by = false, make = true;

    while (bson_iter_next(&in)) {
        const char *key = bson_iter_key(&in);
        const uint8_t *data;
        uint32_t len;

        if (strcmp(key, "c") == 0 && BSON_ITER_HOLDS_UTF8(&in)) {
            ns = bson_iter_utf8(&in, NULL);
        } else if (strcmp(key, "f") == 0 && BSON_ITER_HOLDS_DOCUMENT(&in) && !filter) {
            bson_iter_document(&in, &len, &data);
            filter = bson_new_from_data(data, len);
        } else if (strcmp(key, "by") == 0 && BSON_ITER_HOLDS_DOCUMENT(&in)) {
            has_by = bson_iter_recurse(&in, &by);
        } else if (strcmp(key, "make") == 0) {
            make = bson_iter_as_bool(&in);
        }
    }
    if (filter) {
        p->owned = grown(p->owned, p->n_owned, &p->cap_owned, sizeof *p->owned);
        p->owned[p->n_owned++] = filter;
    }
    if (!ns || !filter || !has_by || !strchr(ns, '.')) {
        if (!p->items[i].failed)
            p->items[i].failed = mem_text("_effects.moves is not of idemsink's making");
        return;
    }
    size_t m = move_of(p, ns, filter);
    struct log_part *part = add_part(p, m, i);
    p->moves[m].make = p->moves[m].make || make;
    while (bson_iter_next(&by))
        add_change(p, part, bson_iter_key(&by), bson_iter_as_int64(&by));
}

static void add_stored(struct log_plan *p, size_t i)
{
    bson_iter_t at, list;

    if (bson_iter_init_find(&at, p->items[i].open, "at") && BSON_ITER_HOLDS_DATE_TIME(&at))
        p->items[i].at_ms = bson_iter_date_time(&at);
    if (!bson_iter_init_find(&at, p->items[i].open, "moves") || !bson_iter_recurse(&at, &list))
        return;
    while (bson_iter_next(&list)) {
        bson_iter_t in;

        if (BSON_ITER_HOLDS_DOCUMENT(&list) && bson_iter_recurse(&list, &in))
            add_stored_move(p, i, in);
    }
}

void log_count_round(struct log_plan *p)
{
    log_count_round_end(p);
    if (p->n_move_slots)
        memset(p->move_slots, 0, p->n_move_slots * sizeof *p->move_slots);
    for (size_t k = 0; k < p->n_round; k++) {
        size_t i = p->round[k];

        if (p->items[i].state != LOG_OPEN || p->items[i].late ||
            (p->has_operation && !p->items[i].ours))
            continue;
        p->done.removed += p->has_operation && p->items[i].remove;
        p->done.added += p->has_operation && !p->items[i].remove;
        if (p->items[i].open)
            add_stored(p, i);
        else
            add_mapped(p, i);
    }
}

bool log_count_held(struct log_plan *p, size_t i)
{
    const struct effects *f = p->ops[i].effects;

    for (size_t k = 0; f && k < f->n_moves; k++) {
        uint64_t hash = hash_of(p->ns[f->moves[k].counter], f->moves[k].filter);
        size_t slot = hash % LOG_HELD_MAX;

        if (p->held[slot].hash == hash && p->held[slot].until_ms > p->now_ms)
            return true;
    }
    return false;
}

/* --- sending --- */

/* Its sums, into the room that is reserved from here on. False: a sum would pass int64. */
static bool sum_changes(const struct log_plan *p, const struct log_move_item *m,
                        struct log_change *out, size_t *n)
{
    *n = 0;
    for (uint32_t at = m->first; at != NONE; at = p->parts[at].next) {
        const struct log_part *part = &p->parts[at];

        for (size_t k = 0; k < part->n_changes && !part->applied; k++) {
            const struct log_change *c = &p->changes[part->change + k];
            size_t j = 0;

            while (j < *n && strcmp(out[j].field, c->field) != 0)
                j++;
            if (j == *n)
                out[(*n)++] = *c;
            else if (__builtin_add_overflow(out[j].by, c->by, &out[j].by))
                return false;
        }
    }
    return true;
}

/* Of its items, each once: the parts of one item stand side by side. */
static size_t gather_ids(const struct log_plan *p, const struct log_move_item *m,
                         struct log_id *out)
{
    size_t n = 0;
    uint32_t last = NONE;

    for (uint32_t at = m->first; at != NONE; at = p->parts[at].next) {
        const struct log_part *part = &p->parts[at];

        if (!part->applied && part->item != last)
            out[n++] = p->items[last = part->item].id;
    }
    return n;
}

static void fail_items(struct log_plan *p, const struct log_move_item *m, const char *why)
{
    for (uint32_t at = m->first; at != NONE; at = p->parts[at].next) {
        struct log_item *item = &p->items[p->parts[at].item];

        if (!p->parts[at].applied && !item->failed)
            item->failed = mem_printf("%s: %s", m->ns, why);
    }
}

static void delay_items(struct log_plan *p, const struct log_move_item *m)
{
    for (uint32_t at = m->first; at != NONE; at = p->parts[at].next)
        if (!p->parts[at].applied)
            p->items[p->parts[at].item].late = true;
}

/* Each item's share by itself: one of them is refused, and the others are not to blame. */
static void take_apart(struct log_plan *p, size_t move, const char *why)
{
    uint32_t first = p->moves[move].first, item = NONE;
    size_t target = 0, pieces = 0;

    for (uint32_t at = first; at != NONE; at = p->parts[at].next) {
        pieces += !p->parts[at].applied && p->parts[at].item != item;
        item = p->parts[at].item;
    }
    if (pieces <= 1) {
        fail_items(p, &p->moves[move], why);
        p->moves[move].state = LOG_MOVE_DONE;
        return;
    }
    item = NONE;
    for (uint32_t at = first, next; at != NONE; at = next) {
        next = p->parts[at].next;
        if (p->parts[at].applied)
            continue;
        if (p->parts[at].item != item) {
            target = add_move(p, p->moves[move].ns, p->moves[move].filter, p->moves[move].hash);
            p->moves[target].make = p->moves[move].make;
            p->moves[target].forced = p->moves[move].forced;
            p->moves[target].lone = true;
        }
        item = p->parts[at].item;
        link_part(p, target, at);
    }
    p->moves[move].first = p->moves[move].last = NONE;
    p->moves[move].state = LOG_MOVE_DONE;
}

struct room {
    size_t changes, ids, bytes;
    int64_t at_ms;
};

/* Into the command, if it fits. */
static void put_move(struct log_plan *p, struct log_command *c, struct room *r, size_t move)
{
    const struct log_move_item *m = &p->moves[move];
    struct log_move *out = &p->out_moves[c->n_moves];
    size_t n_changes, n_ids;

    if (!sum_changes(p, m, p->out_changes + r->changes, &n_changes)) {
        take_apart(p, move, "the sum of its changes is no integer of 64 bits");
        return;
    }
    n_ids = gather_ids(p, m, p->out_ids + r->ids);
    *out = (struct log_move){.ns = m->ns,
                             .filter = m->filter,
                             .changes = p->out_changes + r->changes,
                             .n_changes = n_changes,
                             .ids = p->out_ids + r->ids,
                             .n_ids = n_ids,
                             .make = m->make,
                             .forced = m->forced};
    r->changes += n_changes;
    r->ids += n_ids;
    r->bytes += m->filter->len + MOVE_OVERHEAD + n_ids * ID_BYTES;
    for (uint32_t at = m->first; at != NONE; at = p->parts[at].next)
        if (p->items[p->parts[at].item].at_ms > r->at_ms)
            r->at_ms = p->items[p->parts[at].item].at_ms;
    p->sent[c->n_moves++] = (uint32_t)move;
}

/* The moves in this state, all of one collection. */
static bool gather(struct log_plan *p, struct log_command *c, enum log_move_state state)
{
    struct room r = {.at_ms = p->now_ms};
    const char *ns = NULL;
    size_t n = p->n_moves;

    c->n_moves = 0;
    for (size_t m = 0; m < p->n_moves; m++) {
        reserve(p);
        const struct log_move_item *move = &p->moves[m];

        if (move->state != state || (ns && strcmp(ns, move->ns) != 0))
            continue;
        if (c->n_moves > 0 && (r.ids > IDS_MAX || r.bytes > COUNT_BYTES || move->check_alone ||
                               c->n_moves == p->cap || p->n_moves != n))
            break;
        ns = move->ns;
        put_move(p, c, &r, m);
        if (p->moves[m].check_alone)
            break;
    }
    if (c->n_moves == 0 && p->n_moves != n) /* taken apart: those that were made */
        return gather(p, c, state);
    c->moves = p->out_moves;
    c->keep = (size_t)p->rules.keep;
    c->at_ms = r.at_ms;
    p->n_sent = c->n_moves;
    return c->n_moves > 0;
}

bool log_count_next(struct log_plan *p, struct log_command *c)
{
    static const struct {
        enum log_move_state state;
        enum log_command_kind kind;
    } order[] = {
        {LOG_MOVE_CHECK, LOG_CHECK}, {LOG_MOVE_MAKE, LOG_MAKE}, {LOG_MOVE_SEND, LOG_COUNT}};

    for (size_t k = 0; k < sizeof order / sizeof order[0]; k++) {
        if (!gather(p, c, order[k].state))
            continue;
        c->kind = order[k].kind;
        for (size_t m = 0; m < p->n_sent && c->kind == LOG_CHECK; m++)
            p->moves[p->sent[m]].seen = false;
        p->look_strange = false;
        return true;
    }
    return false;
}

bool log_prune_next(struct log_plan *p, struct log_command *c)
{
    if (p->rules.prune_ms == INT64_MIN)
        return false;
    c->n_moves = 0;
    reserve(p);
    for (size_t k = 0; k < p->n_moves && c->n_moves < p->cap; k++) {
        struct log_move_item *m = &p->moves[k];
        int64_t *last = &p->pruned[m->hash % LOG_PRUNED_SLOTS];
        bool due = m->full;

        if (m->state != LOG_MOVE_DONE || m->lone || m->first == NONE ||
            (c->n_moves > 0 && strcmp(p->out_moves[0].ns, m->ns) != 0))
            continue;
        for (uint32_t at = m->first; at != NONE && !due; at = p->parts[at].next)
            due = p->items[p->parts[at].item].id.bytes[EFFECT_ID_BYTES - 1] % PRUNE_ONE_OF == 0;
        m->state = LOG_MOVE_SEND; /* not twice */
        if (!due || p->now_ms - *last < p->rules.attempt_ms / 4)
            continue;
        *last = p->now_ms;
        p->out_moves[c->n_moves++] = (struct log_move){.ns = m->ns, .filter = m->filter};
    }
    c->kind = LOG_PRUNE;
    c->moves = p->out_moves;
    c->before_ms = p->rules.prune_ms;
    p->n_sent = 0;
    return c->n_moves > 0;
}

/* --- answers --- */

/* Whatever is tried: else an event that is open for ever would hold back all that may be pruned. */
static bool is_final(const struct log_move_item *m, int code)
{
    const struct outcome_code *row = outcome_code_find(code);

    return row && (row->one == FATE_NEVER || (row->one == FATE_LOOK && m->tries >= DOUBLES_MAX));
}

/* The document is not to be made, so nobody's share is to blame. */
static void cannot_make(struct log_plan *p, size_t move, const char *why)
{
    fail_items(p, &p->moves[move], why);
    p->moves[move].state = LOG_MOVE_DONE;
}

/* The refusals of one COUNT or MAKE, by its moves. True: there were errors. */
static bool refused(struct log_plan *p, const bson_t *reply)
{
    bson_iter_t list, error, at;
    bool any = false;

    if (!reply || !bson_iter_init_find(&list, reply, "writeErrors") ||
        !BSON_ITER_HOLDS_ARRAY(&list) || !bson_iter_recurse(&list, &error))
        return false;
    while (bson_iter_next(&error)) {
        int64_t index = -1;
        int code = 0;
        const char *text = "refused";

        if (!BSON_ITER_HOLDS_DOCUMENT(&error) || !bson_iter_recurse(&error, &at))
            continue;
        any = true;
        while (bson_iter_next(&at)) {
            if (strcmp(bson_iter_key(&at), "index") == 0)
                index = bson_iter_as_int64(&at);
            else if (strcmp(bson_iter_key(&at), "code") == 0)
                code = (int)bson_iter_as_int64(&at);
            else if (strcmp(bson_iter_key(&at), "errmsg") == 0 && BSON_ITER_HOLDS_UTF8(&at))
                text = bson_iter_utf8(&at, NULL);
        }
        if (index < 0 || index >= (int64_t)p->n_sent || !is_final(&p->moves[p->sent[index]], code))
            continue;
        if (p->out_kind == LOG_MAKE)
            cannot_make(p, p->sent[index], text);
        else
            take_apart(p, p->sent[index], text);
    }
    return any;
}

static void count_answer(struct log_plan *p, const bson_t *reply)
{
    bool sure = !refused(p, reply) && log_matched(reply) == (int64_t)p->n_sent;

    for (size_t k = 0; k < p->n_sent; k++) {
        struct log_move_item *m = &p->moves[p->sent[k]];

        if (m->state == LOG_MOVE_SEND)
            m->state = sure ? LOG_MOVE_DONE : LOG_MOVE_CHECK;
    }
}

static size_t move_found(struct log_plan *p, const bson_t *document)
{
    if (p->n_sent == 1)
        return p->sent[0];
    bson_reinit(p->key);
    for (size_t k = 0; k < p->n_sent; k++) { /* filters of one collection are nearly all alike */
        const struct log_move_item *m = &p->moves[p->sent[k]];

        if (k > 0 && bson_count_keys(m->filter) == bson_count_keys(p->moves[p->sent[0]].filter))
            continue;
        bson_reinit(p->key);
        if (!canonical_key(document, m->filter, p->key))
            continue;
        size_t mask = p->n_move_slots - 1, at = hash_of(m->ns, p->key) & mask;
        for (; p->move_slots[at]; at = (at + 1) & mask)
            if (same_move(&p->moves[p->move_slots[at] - 1], m->ns, p->key))
                return p->move_slots[at] - 1;
    }
    return SIZE_MAX;
}

static void mark_applied(struct log_plan *p, const struct log_move_item *m, const uint8_t *id)
{
    for (uint32_t at = m->first; at != NONE; at = p->parts[at].next)
        if (memcmp(p->items[p->parts[at].item].id.bytes, id, EFFECT_ID_BYTES) == 0)
            p->parts[at].applied = true;
}

/* A field that it changes holds a double or a decimal: $inc would go on with that. */
static bool is_inexact(const struct log_plan *p, const struct log_move_item *m,
                       const bson_t *document)
{
    for (uint32_t at = m->first; at != NONE; at = p->parts[at].next) {
        for (size_t k = 0; k < p->parts[at].n_changes; k++) {
            bson_iter_t it, value;

            if (bson_iter_init(&it, document) &&
                bson_iter_find_descendant(&it, p->changes[p->parts[at].change + k].field, &value) &&
                (BSON_ITER_HOLDS_DOUBLE(&value) || BSON_ITER_HOLDS_DECIMAL128(&value)))
                return true;
        }
    }
    return false;
}

static void found_for(struct log_plan *p, struct log_move_item *m, const bson_t *document)
{
    bson_iter_t at, list, in;

    m->seen = true;
    m->strange_field = is_inexact(p, m, document);
    m->full =
        bson_iter_init_find(&at, document, "_size") && bson_iter_as_int64(&at) >= p->rules.keep;
    if (!bson_iter_init_find(&at, document, LOG_APPLIED) || !BSON_ITER_HOLDS_ARRAY(&at) ||
        !bson_iter_recurse(&at, &list))
        return;
    while (bson_iter_next(&list)) {
        const uint8_t *id;
        uint32_t len;

        if (!BSON_ITER_HOLDS_DOCUMENT(&list) || !bson_iter_recurse(&list, &in) ||
            !bson_iter_find(&in, "i") || !BSON_ITER_HOLDS_BINARY(&in))
            continue;
        bson_iter_binary(&in, NULL, &len, &id);
        if (len == EFFECT_ID_BYTES)
            mark_applied(p, m, id);
    }
}

void log_count_found(struct log_plan *p, const bson_t *document)
{
    size_t m = move_found(p, document);

    if (m == SIZE_MAX) {
        p->look_strange = true;
        return;
    }
    /* A document that was taken apart stands there several times. */
    for (size_t k = 0; k < p->n_sent; k++) {
        struct log_move_item *other = &p->moves[p->sent[k]];

        if (p->sent[k] == m || (other->lone && other->hash == p->moves[m].hash &&
                                same_move(other, p->moves[m].ns, p->moves[m].filter)))
            found_for(p, other, document);
    }
}

static bool is_all_applied(const struct log_plan *p, const struct log_move_item *m)
{
    for (uint32_t at = m->first; at != NONE; at = p->parts[at].next)
        if (!p->parts[at].applied)
            return false;
    return true;
}

/* It takes no more ids, so nothing new for it for a while. What has been written already has to be
 * counted, or nothing that came later could ever be pruned. */
static void hold(struct log_plan *p, struct log_move_item *m)
{
    size_t slot = m->hash % LOG_HELD_MAX;

    p->held[slot].hash = m->hash;
    p->held[slot].until_ms = p->now_ms + p->rules.attempt_ms / 2;
    p->done.full++;
    m->forced = true;
}

static void checked(struct log_plan *p, struct log_move_item *m)
{
    if (!m->seen && p->look_strange) {
        m->check_alone = true;
        return;
    }
    m->state = LOG_MOVE_SEND;
    if (m->seen && is_all_applied(p, m)) {
        m->state = LOG_MOVE_DONE;
    } else if (m->seen && m->strange_field) {
        fail_items(p, m, "a field that counts holds no integer");
        m->state = LOG_MOVE_DONE;
    } else if (!m->seen && !m->make) {
        p->done.missing++;
        m->state = LOG_MOVE_DONE;
    } else if (++m->tries >= TRIES_MAX) {
        delay_items(p, m);
        m->state = LOG_MOVE_DONE;
    } else if (!m->seen) {
        m->state = LOG_MOVE_MAKE;
    } else if (m->full && !m->forced) {
        hold(p, m);
    }
}

static void check_failed(struct log_plan *p, const struct outcome_call *call)
{
    struct outcome o;

    outcome_of_failure(call, &o);
    log_give_up(p, o.retry, o.code);
}

void log_count_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply)
{
    switch (p->out_kind) {
    case LOG_COUNT:
        if (log_whole_fine(p, call, reply))
            count_answer(p, reply);
        return;
    case LOG_CHECK:
        if (call->fault != CALL_FINE) {
            check_failed(p, call);
            return;
        }
        for (size_t k = 0; k < p->n_sent; k++)
            checked(p, &p->moves[p->sent[k]]);
        return;
    case LOG_MAKE: /* E11000: somebody else made it */
        if (!log_whole_fine(p, call, reply))
            return;
        (void)refused(p, reply);
        for (size_t k = 0; k < p->n_sent; k++)
            if (p->moves[p->sent[k]].state == LOG_MOVE_MAKE)
                p->moves[p->sent[k]].state = LOG_MOVE_SEND;
        return;
    default: /* PRUNE: another time */
        return;
    }
}
