#include "core/log_plan.h"

#include <string.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/log_horizon.h"
#include "core/log_plan_private.h"

enum {
    OP_OVERHEAD = 512, /* of one event beside its document and what it moves */
    WAIT_FIRST_MS = 2,
    WAIT_MAX_MS = 50,
};

struct log_plan *log_plan_new(const struct log_limits *limits)
{
    struct log_plan *p = mem_new(sizeof *p);

    p->limits = *limits;
    if (p->limits.max_ops == 0)
        p->limits.max_ops = 1;
    p->look = look_new();
    p->key = bson_new();
    return p;
}

void log_clear_item(struct log_item *item)
{
    if (item->open)
        bson_destroy(item->open);
    item->open = NULL;
    if (item->entity)
        bson_destroy(item->entity);
    if (item->document)
        bson_destroy(item->document);
    item->entity = item->document = NULL;
    mem_free(item->failed);
    item->failed = NULL;
    outcome_clear(&item->refused);
}

static void clear_batch(struct log_plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        mem_free(p->results[i].text);
        p->results[i].text = NULL;
        log_clear_item(&p->items[i]);
    }
}

void log_plan_free(struct log_plan *p)
{
    if (!p)
        return;
    clear_batch(p);
    log_count_free(p);
    mem_free(p->items);
    mem_free(p->results);
    mem_free(p->judged);
    mem_free(p->lanes);
    mem_free(p->slots);
    mem_free(p->round);
    mem_free(p->sent);
    mem_free(p->sent_ops);
    mem_free(p->sent_numbers);
    mem_free(p->sent_entities);
    mem_free(p->entity_ops);
    mem_free(p->failed_text);
    look_free(p->look);
    bson_destroy(p->key);
    mem_free(p);
}

static void make_room(struct log_plan *p, size_t n)
{
    size_t cap = p->cap ? p->cap : 64;

    while (cap < n)
        cap *= 2;
    if (cap == p->cap)
        return;
    MUST(cap < UINT32_MAX / 4);
    p->cap = cap;
    p->items = mem_grow(p->items, cap, sizeof *p->items);
    p->results = mem_grow(p->results, cap, sizeof *p->results);
    p->judged = mem_grow(p->judged, cap, sizeof *p->judged);
    p->lanes = mem_grow(p->lanes, cap, sizeof *p->lanes);
    p->round = mem_grow(p->round, cap, sizeof *p->round);
    p->sent = mem_grow(p->sent, cap, sizeof *p->sent);
    p->sent_ops = mem_grow(p->sent_ops, cap, sizeof *p->sent_ops);
    p->sent_numbers = mem_grow(p->sent_numbers, cap, sizeof *p->sent_numbers);
    p->sent_entities = mem_grow(p->sent_entities, cap, sizeof *p->sent_entities);
    p->entity_ops = mem_grow(p->entity_ops, cap, sizeof *p->entity_ops);
    p->n_slots = 2 * cap;
    p->slots = mem_grow(p->slots, p->n_slots, sizeof *p->slots);
}

/* --- small things --- */

uint64_t log_dice(struct log_plan *p)
{
    uint64_t z = (p->dice += 0x9E3779B97F4A7C15u);

    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* The next command is a wait: random, so that those who met don't meet again. */
void log_wait(struct log_plan *p)
{
    int64_t most = WAIT_FIRST_MS << (p->waits < 5 ? p->waits : 5);

    p->waits++;
    if (most > WAIT_MAX_MS)
        most = WAIT_MAX_MS;
    p->wait_ms = 1 + (int64_t)(log_dice(p) % (uint64_t)most);
}

struct outcome log_later(enum retry_class retry, int code)
{
    return (struct outcome){.fate = FATE_LATER, .retry = retry, .code = code};
}

bool log_is_blocked(const struct log_plan *p, size_t i)
{
    uint32_t lane = p->items[i].lane;

    return lane != LOG_NO_LANE && i > p->lanes[lane].blocked_at;
}

void log_settle(struct log_plan *p, size_t i, struct outcome o)
{
    struct log_item *item = &p->items[i];

    item->state = LOG_SETTLED;
    item->present = item->present || o.fate == FATE_INSERTED || o.fate == FATE_DUPLICATE;
    p->stored_some = p->stored_some || o.fate == FATE_INSERTED;
    mem_free(p->results[i].text);
    p->results[i] = o;
    if (item->lane == LOG_NO_LANE || (o.fate != FATE_LATER && o.fate != FATE_UNKNOWN))
        return;
    struct log_lane *lane = &p->lanes[item->lane];
    if (i < lane->blocked_at) {
        lane->blocked_at = i;
        lane->why = o.retry;
        lane->code = o.code;
    }
}

/* What is settled behind one that is not would overtake it: both are sent again. */
static void unsettle(struct log_plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct outcome *o = &p->results[i];

        if (!log_is_blocked(p, i) || o->fate == FATE_LATER || o->fate == FATE_UNKNOWN)
            continue;
        const struct log_lane *lane = &p->lanes[p->items[i].lane];
        mem_free(o->text);
        *o = (struct outcome){.fate = FATE_UNKNOWN, .retry = lane->why, .code = lane->code};
    }
}

void log_give_up(struct log_plan *p, enum retry_class retry, int code)
{
    for (size_t i = p->from; i < p->n; i++) {
        struct outcome o = log_later(retry, code);

        if (p->items[i].state == LOG_SETTLED)
            continue;
        if (p->items[i].state != LOG_WAITING)
            o.fate = FATE_UNKNOWN;
        log_settle(p, i, o);
    }
    p->from = p->n;
    p->phase = LOG_PHASE_END;
    p->wait_ms = 0;
}

void log_plan_stop(struct log_plan *p, enum retry_class retry)
{
    MUST(!p->out);
    log_give_up(p, retry, 0);
}

bool log_is_effective(const struct log_plan *p, size_t i)
{
    const struct log_item *item = &p->items[i];

    return item->state == LOG_OPEN && !item->late && !item->failed;
}

void log_put(struct log_plan *p, size_t i)
{
    p->sent_ops[p->n_sent] = &p->ops[i];
    p->sent_numbers[p->n_sent] = p->items[i].number;
    p->sent[p->n_sent++] = (uint32_t)i;
}

/* --- the begin --- */

static void fold(struct log_plan *p)
{
    size_t mask = p->n_slots - 1;

    memset(p->slots, 0, p->n_slots * sizeof *p->slots);
    for (size_t i = 0; i < p->n; i++) {
        const bson_t *f = p->ops[i].filter;
        size_t at = (size_t)XXH3_64bits(bson_get_data(f), f->len) & mask;

        while (p->slots[at] && !bson_equal(p->ops[p->slots[at] - 1].filter, f))
            at = (at + 1) & mask;
        if (!p->slots[at])
            p->slots[at] = (uint32_t)i + 1;
        p->items[i] = (struct log_item){.leader = p->slots[at] - 1,
                                        .look_alone = p->ops[i].alone,
                                        .remove = p->ops[i].effects &&
                                                  p->ops[i].effects->action == EFFECT_DELETE};
        log_event_id(p->rules.route, f, &p->items[i].id);
    }
}

static void number_lanes(struct log_plan *p)
{
    size_t mask = p->n_slots - 1;

    memset(p->slots, 0, p->n_slots * sizeof *p->slots);
    p->n_lanes = 0;
    for (size_t i = 0; i < p->n; i++) {
        const void *name = p->ops[i].lane;

        p->items[i].lane = LOG_NO_LANE;
        if (!name)
            continue;
        size_t at = (size_t)XXH3_64bits(&name, sizeof name) & mask;
        while (p->slots[at] && p->lanes[p->slots[at] - 1].name != name)
            at = (at + 1) & mask;
        if (!p->slots[at]) {
            p->lanes[p->n_lanes++] = (struct log_lane){.name = name, .blocked_at = SIZE_MAX};
            p->slots[at] = (uint32_t)p->n_lanes;
        }
        p->items[i].lane = p->slots[at] - 1;
    }
}

void log_plan_begin(struct log_plan *p, const struct write_op *ops, size_t n,
                    const struct log_rules *rules)
{
    clear_batch(p);
    log_count_round_end(p);
    make_room(p, n);
    p->rules = *rules;
    p->ops = ops;
    p->n = n;
    p->has_effects = log_has_effects(rules->route);
    p->has_operation = config_has_operation(rules->route);
    p->has_number = config_has_sequence(rules->route) && !rules->complete_only;
    p->until_ms = rules->now_ms + rules->attempt_ms;
    p->dice ^= rules->random;
    p->try_id = (int64_t)(log_dice(p) >> 1);
    p->n_entities = 0;
    for (size_t i = 0; i < n; i++)
        p->results[i] = (struct outcome){.fate = FATE_UNKNOWN};
    fold(p);
    number_lanes(p);
    p->n_round = p->from = p->lone_failures = 0;
    p->stamp = p->waits = 0;
    p->wait_ms = 0;
    p->round_max = p->limits.max_ops;
    p->out = p->stored_some = p->number_alone = false;
    p->phase = LOG_PHASE_PICK;
    p->done = (struct log_done){0};
    log_count_begin(p);
}

/* --- a round --- */

bool log_is_other_content(const struct log_plan *p, size_t i, size_t leader)
{
    const struct config_dedup *d = &p->rules.route->dedup;
    uint8_t own[CANONICAL_HASH_BYTES], stored[CANONICAL_HASH_BYTES];

    if (d->conflict == CONFLICT_OFF || p->rules.complete_only)
        return false;
    if (i == leader && p->items[i].other_op)
        return true;
    if (!look_hash(p->ops[i].document, d->conflict_field, own))
        return false;
    if (p->items[leader].wrote)
        return look_hash(p->ops[leader].document, d->conflict_field, stored) &&
               memcmp(own, stored, sizeof own) != 0;
    return p->items[leader].has_stored && memcmp(own, p->items[leader].stored, sizeof own) != 0;
}

/* The document of its key is there, and has been before; as its leader knows. */
void log_settle_present(struct log_plan *p, size_t i, size_t leader, enum fate fate)
{
    struct outcome o = {.fate = fate, .conflict = log_is_other_content(p, i, leader)};

    if (o.conflict && p->rules.route->dedup.conflict == CONFLICT_DEAD_LETTER) {
        o.fate = FATE_NEVER;
        o.reason = REASON_CONFLICT;
        o.text = mem_printf("the document with this dedup key is of another payload (its %s says "
                            "so)",
                            p->rules.route->dedup.conflict_field);
    }
    p->items[i].present = true;
    log_settle(p, i, o);
}

/* Whose result i shares; i itself when those before it can never be stored. */
static size_t leader_of(struct log_plan *p, size_t i)
{
    uint32_t at = p->items[i].leader;

    while (p->items[at].leader != at)
        at = p->items[at].leader;
    if (at != i && p->items[at].state == LOG_SETTLED && !p->items[at].present &&
        p->results[at].fate == FATE_NEVER) {
        p->items[at].leader = (uint32_t)i;
        p->items[i].leader = (uint32_t)i;
        return i;
    }
    return at;
}

/* Into the slots; false: it is there already. */
static bool take_entity(struct log_plan *p, size_t i)
{
    const bson_t *entity = p->ops[i].effects ? p->ops[i].effects->entity : NULL;
    size_t mask = p->n_slots - 1;

    if (!entity)
        return true;
    size_t at = (size_t)XXH3_64bits(bson_get_data(entity), entity->len) & mask;
    for (; p->slots[at]; at = (at + 1) & mask)
        if (bson_equal(p->ops[p->slots[at] - 1].effects->entity, entity))
            return false;
    p->slots[at] = (uint32_t)i + 1;
    return true;
}

static size_t bytes_of(const struct write_op *op)
{
    return OP_OVERHEAD + 2 * (size_t)op->filter->len + op->document->len +
           (op->effects ? op->effects->bytes + 64 * op->effects->n_moves : 0);
}

/* One that is not settled: its result, into the round, or its lane waits behind it. */
static void pick_one(struct log_plan *p, size_t i, bool alone, size_t *bytes)
{
    struct log_item *item = &p->items[i];
    struct log_lane *lane = item->lane == LOG_NO_LANE ? NULL : &p->lanes[item->lane];
    size_t leader = leader_of(p, i);
    const struct log_item *lead = &p->items[leader];

    if (lane && lane->held == p->stamp)
        return;
    if (lane && log_is_blocked(p, i)) {
        log_settle(p, i, log_later(lane->why, lane->code));
        return;
    }
    if (leader != i && lead->state == LOG_SETTLED && (!lane || lane->in != p->stamp)) {
        enum fate fate = p->results[leader].fate;

        if (fate == FATE_LATER || fate == FATE_UNKNOWN)
            log_settle(p, i, log_later(p->results[leader].retry, p->results[leader].code));
        else
            log_settle_present(p, i, leader, FATE_DUPLICATE);
        return;
    }
    size_t more = bytes_of(&p->ops[i]);
    bool fits =
        p->n_round == 0 || (p->n_round < p->round_max && *bytes + more <= p->limits.max_bytes);
    /* In a round ADD is before REMOVE, and what is added may need what is taken away. */
    bool behind_removal = lane && lane->removes == p->stamp && !item->remove;
    if (leader != i || behind_removal || p->ops[i].alone != alone || (alone && p->n_round > 0) ||
        !fits || !take_entity(p, i)) {
        if (lane)
            lane->held = p->stamp;
        return;
    }
    *bytes += more;
    p->round[p->n_round++] = (uint32_t)i;
    item->state = LOG_LOOKING;
    if (lane)
        lane->in = p->stamp;
    if (lane && item->remove)
        lane->removes = p->stamp;
}

/* false: nothing is left. */
static bool pick(struct log_plan *p)
{
    p->n_round = 0;
    for (int turn = 0; turn < 2 && p->n_round == 0; turn++) {
        size_t bytes = 0;

        p->stamp++;
        if (p->has_operation)
            memset(p->slots, 0, p->n_slots * sizeof *p->slots);
        for (size_t i = p->from; i < p->n; i++)
            if (p->items[i].state == LOG_WAITING)
                pick_one(p, i, turn == 1, &bytes);
    }
    while (p->from < p->n && p->items[p->from].state == LOG_SETTLED)
        p->from++;
    return p->n_round > 0;
}

/* --- FAIL, CLOSE --- */

static bool fail_next(struct log_plan *p, struct log_command *c)
{
    for (size_t k = 0; k < p->n_round; k++) {
        size_t i = p->round[k];

        if (p->items[i].state != LOG_OPEN || !p->items[i].failed)
            continue;
        p->n_sent = 0;
        log_put(p, i);
        c->kind = LOG_FAIL;
        c->at_ms = p->has_operation ? p->now_ms - 1 : 0;
        c->text = p->items[i].failed;
        return true;
    }
    return false;
}

static void fail_answer(struct log_plan *p)
{
    size_t i = p->sent[0];
    struct log_item *item = &p->items[i];

    if (!item->refused.text || p->rules.complete_only) { /* else the dead letter tells */
        p->done.failed++;
        mem_free(p->failed_text);
        p->failed_text = item->failed;
        item->failed = NULL;
        p->done.failed_text = p->failed_text;
        outcome_clear(&item->refused);
    }
    struct outcome o = {.fate = FATE_INSERTED};
    if (item->refused.text) {
        o = item->refused;
        item->refused.text = NULL; /* moves */
    }
    log_settle(p, i, o);
}

static bool close_next(struct log_plan *p, struct log_command *c)
{
    p->n_sent = 0;
    for (size_t k = 0; k < p->n_round; k++) {
        size_t i = p->round[k];

        if (p->items[i].state == LOG_OPEN && p->items[i].late)
            log_settle(p, i, log_later(RETRY_CONFLICT, 0));
        if (p->items[i].state == LOG_OPEN)
            log_put(p, i);
    }
    c->kind = LOG_CLOSE;
    return p->n_sent > 0;
}

/*
 * Their effects are done, whether they have been closed now or by somebody else, or will be. Not so
 * with entities: what is open may be gone through again, and the next event of the entity has to
 * wait for that.
 */
static void close_answer(struct log_plan *p, const bson_t *reply)
{
    bool sure = !p->has_operation || log_matched(reply) == (int64_t)p->n_sent;

    for (size_t k = 0; k < p->n_sent; k++) {
        size_t i = p->sent[k];

        if (!sure)
            log_settle(p, i, (struct outcome){.fate = FATE_UNKNOWN, .retry = RETRY_CONFLICT});
        else if (p->items[i].wrote || p->rules.complete_only)
            log_settle(p, i, (struct outcome){.fate = FATE_INSERTED});
        else
            log_settle_present(p, i, i, FATE_INSERTED);
    }
}

int64_t log_matched(const bson_t *reply)
{
    bson_iter_t at;

    if (!reply ||
        (!bson_iter_init_find(&at, reply, "nMatched") && !bson_iter_init_find(&at, reply, "n")))
        return -1;
    return bson_iter_as_int64(&at);
}

bool log_whole_fine(struct log_plan *p, const struct outcome_call *call, const bson_t *reply)
{
    struct outcome o;
    bson_iter_t at;
    bool concern = reply && (bson_iter_init_find(&at, reply, "writeConcernError") ||
                             (bson_iter_init_find(&at, reply, "writeConcernErrors") &&
                              BSON_ITER_HOLDS_ARRAY(&at) && bson_iter_recurse(&at, &at) &&
                              bson_iter_next(&at)));
    bool each = reply && bson_iter_init_find(&at, reply, "writeErrors") &&
                BSON_ITER_HOLDS_ARRAY(&at) && bson_iter_recurse(&at, &at) && bson_iter_next(&at);

    if (concern) {
        log_give_up(p, RETRY_WRITE_CONCERN, 0);
        return false;
    }
    if (call->fault == CALL_FINE || (call->fault == CALL_SERVER && each))
        return true;
    outcome_of_failure(call, &o);
    log_give_up(p, o.retry, o.code);
    return false;
}

/* --- the phases --- */

static bool is_any(const struct log_plan *p, enum log_state state)
{
    for (size_t k = 0; k < p->n_round; k++)
        if (p->items[p->round[k]].state == state)
            return true;
    return false;
}

/* The next command of this phase; false: it is over. */
static bool phase_next(struct log_plan *p, struct log_command *c)
{
    switch (p->phase) {
    case LOG_PHASE_LOOK:
        return log_look_next(p, c);
    case LOG_PHASE_NUMBER:
        return log_number_next(p, c);
    case LOG_PHASE_WRITE:
        return log_write_next(p, c);
    case LOG_PHASE_ENTITY:
        return log_entity_next(p, c);
    case LOG_PHASE_COUNT:
        return log_count_next(p, c);
    case LOG_PHASE_FAIL:
        return fail_next(p, c);
    case LOG_PHASE_LEAVE:
        return log_leave_next(p, c);
    case LOG_PHASE_CLOSE:
        return close_next(p, c);
    case LOG_PHASE_PRUNE:
        return log_prune_next(p, c);
    case LOG_PHASE_PICK:
    case LOG_PHASE_END:
        break;
    }
    return false;
}

/* Where it goes on behind a phase. */
static enum log_phase phase_after(struct log_plan *p)
{
    p->step = 0;
    switch (p->phase) {
    case LOG_PHASE_PICK:
        return pick(p) ? LOG_PHASE_LOOK : LOG_PHASE_END;
    case LOG_PHASE_WRITE: /* what met E11000 is looked for, and may be written again */
        if (is_any(p, LOG_LOOKING) || is_any(p, LOG_NEW))
            return LOG_PHASE_LOOK;
        if (!p->has_effects)
            return LOG_PHASE_PICK;
        if (!p->has_operation)
            log_count_round(p);
        return LOG_PHASE_ENTITY;
    case LOG_PHASE_ENTITY:
        if (is_any(p, LOG_LOOKING)) /* what has been claimed, if it was */
            return LOG_PHASE_LOOK;
        if (p->has_operation)
            log_count_round(p);
        return LOG_PHASE_COUNT;
    case LOG_PHASE_LOOK:
        return is_any(p, LOG_LOOKING) ? LOG_PHASE_LOOK : LOG_PHASE_NUMBER;
    case LOG_PHASE_PRUNE:
        log_count_round_end(p);
        return LOG_PHASE_PICK;
    case LOG_PHASE_END:
        return LOG_PHASE_END;
    case LOG_PHASE_NUMBER:
        return LOG_PHASE_WRITE;
    case LOG_PHASE_COUNT:
        return LOG_PHASE_FAIL;
    case LOG_PHASE_FAIL:
        return LOG_PHASE_LEAVE;
    case LOG_PHASE_LEAVE:
        return LOG_PHASE_CLOSE;
    case LOG_PHASE_CLOSE:
        return LOG_PHASE_PRUNE;
    }
    return LOG_PHASE_END;
}

/*
 * Steps that nobody looks after. One that was refused as too late must not be followed by a CLOSE
 * that is in time again, because the clock went back: so they have the margin more than CLOSE.
 */
static bool is_unproved(enum log_command_kind kind)
{
    return kind == LOG_DID || kind == LOG_REMOVE || kind == LOG_CLEAN || kind == LOG_FAIL;
}

bool log_plan_next(struct log_plan *p, int64_t now_ms, struct log_command *c)
{
    MUST(!p->out);
    *c = (struct log_command){.until_ms = p->until_ms};
    p->now_ms = now_ms;
    p->n_entities = 0;
    if (p->phase != LOG_PHASE_END && now_ms >= p->until_ms)
        log_give_up(p, p->waits > 0 ? RETRY_CONFLICT : RETRY_TIMEOUT, 0); /* it would be refused */
    if (p->wait_ms > 0) {
        c->kind = LOG_WAIT;
        c->wait_ms = p->wait_ms;
        p->wait_ms = 0;
    } else {
        while (p->phase != LOG_PHASE_END && !phase_next(p, c)) {
            *c = (struct log_command){.until_ms = p->until_ms};
            p->phase = phase_after(p);
        }
        if (p->phase == LOG_PHASE_END) {
            unsettle(p);
            log_count_round_end(p);
            return false;
        }
    }
    p->out = true;
    p->out_kind = c->kind;
    if (is_unproved(c->kind))
        c->until_ms += LOG_MARGIN_MS;
    c->ops = p->sent_ops;
    c->n = c->kind == LOG_WAIT ? 0 : p->n_sent;
    c->entities = p->sent_entities;
    c->n_entities = p->n_entities;
    c->try_id = p->try_id;
    if (c->kind == LOG_REOPEN)
        c->at_ms = now_ms;
    if (c->kind == LOG_WRITE) {
        c->numbers = p->sent_numbers;
        c->at_ms = now_ms;
    }
    return true;
}

void log_plan_found(struct log_plan *p, const bson_t *document)
{
    MUST(p->out);
    if (p->out_kind == LOG_LOOK)
        log_look_found(p, document);
    else if (p->out_kind == LOG_CHECK)
        log_count_found(p, document);
    else
        log_entity_found(p, document);
}

void log_plan_number(struct log_plan *p, int64_t last)
{
    MUST(p->out && (p->out_kind == LOG_NUMBER || p->out_kind == LOG_HIGHEST));
    p->got_number = true;
    p->last_number = last;
}

void log_plan_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply)
{
    MUST(p->out);
    p->out = false;
    switch (p->out_kind) {
    case LOG_LOOK:
        log_look_answer(p, call);
        return;
    case LOG_REOPEN:
        log_reopen_answer(p, call, reply);
        return;
    case LOG_NUMBER:
    case LOG_START:
    case LOG_HIGHEST:
        log_number_answer(p, call);
        return;
    case LOG_WRITE:
        log_write_answer(p, call, reply);
        return;
    case LOG_COUNT:
    case LOG_CHECK:
    case LOG_MAKE:
    case LOG_PRUNE:
        log_count_answer(p, call, reply);
        return;
    case LOG_FAIL:
        if (log_whole_fine(p, call, reply))
            fail_answer(p);
        return;
    case LOG_CLOSE:
        if (log_whole_fine(p, call, reply))
            close_answer(p, reply);
        return;
    case LOG_CLAIM:
    case LOG_ADD:
    case LOG_MARK:
    case LOG_READ:
    case LOG_DID:
    case LOG_REMOVE:
    case LOG_CLEAN:
        log_entity_answer(p, call, reply);
        return;
    case LOG_WAIT:
        return;
    }
}

const struct outcome *log_plan_results(const struct log_plan *p)
{
    MUST(!p->out && p->phase == LOG_PHASE_END);
    return p->results;
}

struct log_done log_plan_done(const struct log_plan *p)
{
    return p->done;
}
