/*
 * log_plan_entity.c - operations: what becomes of the entities of a round.
 *
 * An open event is gone through by one attempt at a time. WRITE and CLAIM put until and try into
 * its _effects; the server refuses the attempt's steps from until_ms on, and another attempt is
 * let in LOG_OVER_MS later. So a sleeper that wakes behind an event's end can't add the entity
 * again that a later event has removed.
 *
 *   ADD   the entity's document, with _by: id, where none is
 *   MARK  _removed_by: id, where there is none
 *   READ  whose it is: only the event that added or marked it counts
 *   DID   the ledger tells, before it is counted
 *   COUNT (log_plan_count.c), then REMOVE what is marked, CLEAN: _by goes; CLOSE
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/log_horizon.h"
#include "core/log_plan_private.h"

enum step { STEP_CLAIM, STEP_ADD, STEP_MARK, STEP_READ, STEP_DID, STEP_END };

static bson_t *copy_of(const bson_t *effects, const char *name)
{
    bson_iter_t at;
    const uint8_t *data;
    uint32_t len;

    if (!bson_iter_init_find(&at, effects, name) || !BSON_ITER_HOLDS_DOCUMENT(&at))
        return NULL;
    bson_iter_document(&at, &len, &data);
    return bson_new_from_data(data, len);
}

void log_entity_open(struct log_plan *p, size_t i)
{
    struct log_item *item = &p->items[i];
    bson_iter_t at;
    int64_t try_id = -1;

    if (!p->has_operation)
        return;
    item->entity = copy_of(item->open, "entity");
    item->document = copy_of(item->open, "document");
    item->remove = item->document == NULL;
    item->until_ms = 0;
    if (bson_iter_init_find(&at, item->open, "until") && BSON_ITER_HOLDS_DATE_TIME(&at))
        item->until_ms = bson_iter_date_time(&at);
    if (bson_iter_init_find(&at, item->open, "try"))
        try_id = bson_iter_as_int64(&at);
    item->claimed = try_id == p->try_id;
    if (!item->entity)
        item->failed = mem_text("_effects is not of idemsink's making");
}

static const bson_t *entity_of(const struct log_plan *p, size_t i)
{
    return p->items[i].entity ? p->items[i].entity : p->ops[i].effects->entity;
}

static bool is_claimed(const struct log_plan *p, size_t i)
{
    return log_is_effective(p, i) && (p->items[i].claimed || p->items[i].wrote);
}

static void put_entity(struct log_plan *p, size_t i)
{
    const struct log_item *item = &p->items[i];

    p->sent_entities[p->n_entities++] = (struct log_entity){
        .filter = entity_of(p, i),
        .document = item->open ? item->document : p->ops[i].document,
        .id = item->id,
    };
}

/* What is open by another attempt: asked for when that one is over, else its lane waits. */
static bool claim_next(struct log_plan *p)
{
    for (size_t k = 0; k < p->n_round; k++) {
        size_t i = p->round[k];
        struct log_item *item = &p->items[i];

        if (item->state != LOG_OPEN || item->wrote || item->claimed || item->failed)
            continue;
        if (item->claim_asked || item->until_ms >= p->now_ms) {
            log_settle(p, i, log_later(RETRY_CONFLICT, 0));
            continue;
        }
        item->claim_asked = true;
        log_put(p, i);
    }
    return p->n_sent > 0;
}

static bool entities_next(struct log_plan *p, bool remove)
{
    for (size_t k = 0; k < p->n_round; k++) {
        size_t i = p->round[k];

        if (!is_claimed(p, i) || p->items[i].remove != remove)
            continue;
        log_put(p, i);
        put_entity(p, i);
    }
    return p->n_sent > 0;
}

static bool read_next(struct log_plan *p)
{
    for (size_t k = 0; k < p->n_round; k++) {
        size_t i = p->round[k];
        struct write_op *op = &p->entity_ops[p->n_sent];

        if (!is_claimed(p, i))
            continue;
        p->items[i].there = p->items[i].other = p->items[i].ours = false;
        *op = (struct write_op){.filter = NULL};
        op->filter = p->items[i].entity ? p->items[i].entity : p->ops[i].effects->entity;
        p->sent_ops[p->n_sent] = op;
        p->sent[p->n_sent++] = (uint32_t)i;
    }
    if (p->n_sent > 0)
        look_begin(p->look, p->sent_ops, p->n_sent);
    p->look_strange = false;
    return p->n_sent > 0;
}

static bool did_next(struct log_plan *p)
{
    for (size_t k = 0; k < p->n_round; k++)
        if (is_claimed(p, p->round[k]) && p->items[p->round[k]].ours)
            log_put(p, p->round[k]);
    return p->n_sent > 0;
}

bool log_entity_next(struct log_plan *p, struct log_command *c)
{
    static const enum log_command_kind kinds[] = {[STEP_CLAIM] = LOG_CLAIM,
                                                  [STEP_ADD] = LOG_ADD,
                                                  [STEP_MARK] = LOG_MARK,
                                                  [STEP_READ] = LOG_READ,
                                                  [STEP_DID] = LOG_DID};

    for (; p->has_operation && p->step < STEP_END; p->step++) {
        bool any = false;

        p->n_sent = p->n_entities = 0;
        switch ((enum step)p->step) {
        case STEP_CLAIM:
            any = claim_next(p);
            break;
        case STEP_ADD:
            any = entities_next(p, false);
            break;
        case STEP_MARK:
            any = entities_next(p, true);
            break;
        case STEP_READ:
            any = read_next(p);
            break;
        case STEP_DID:
            any = did_next(p);
            break;
        case STEP_END:
            break;
        }
        if (!any)
            continue;
        c->kind = kinds[p->step];
        return true;
    }
    return false;
}

bool log_leave_next(struct log_plan *p, struct log_command *c)
{
    for (; p->has_operation && p->step < 2; p->step++) {
        p->n_sent = p->n_entities = 0;
        for (size_t k = 0; k < p->n_round; k++) {
            size_t i = p->round[k];

            if (!is_claimed(p, i) || !p->items[i].ours || p->items[i].remove != (p->step == 0))
                continue;
            log_put(p, i);
            put_entity(p, i);
        }
        if (p->n_sent == 0)
            continue;
        c->kind = p->step == 0 ? LOG_REMOVE : LOG_CLEAN;
        return true;
    }
    return false;
}

/* --- answers --- */

static bool is_id(const bson_t *document, const char *field, const struct log_id *id, bool *any)
{
    bson_iter_t at;
    const uint8_t *bytes;
    uint32_t len;

    *any = bson_iter_init_find(&at, document, field);
    if (!*any || !BSON_ITER_HOLDS_BINARY(&at))
        return false;
    bson_iter_binary(&at, NULL, &len, &bytes);
    return len == sizeof id->bytes && memcmp(bytes, id->bytes, len) == 0;
}

void log_entity_found(struct log_plan *p, const bson_t *document)
{
    size_t k = look_find(p->look, document);
    bool any;

    if (k == SIZE_MAX) {
        p->look_strange = true;
        return;
    }
    struct log_item *item = &p->items[p->sent[k]];
    bool by = is_id(document, "_by", &item->id, &any);
    bool removed = is_id(document, "_removed_by", &item->id, &any);
    item->there = true;
    item->ours = item->remove ? removed : by && !any;
    item->other = any && !removed;
}

/* Whose entity it is, or why that can't be said. */
static void read_answer(struct log_plan *p)
{
    for (size_t k = 0; k < p->n_sent; k++) {
        struct log_item *item = &p->items[p->sent[k]];

        if (item->ours)
            continue;
        if (!item->there && item->refused.text && !p->look_strange)
            item->failed = mem_text(item->refused.text);
        else if (item->other || (!item->there && (!item->remove || p->look_strange)) ||
                 (item->there && item->remove))
            item->late = true; /* refused: too late, or another event is taking it out */
    }
}

/* What the server refuses for ever. */
static void add_refused(struct log_plan *p, const struct outcome_call *call, const bson_t *reply)
{
    size_t n = p->n_sent;

    (void)outcome_judge(call, reply, n, p->judged);
    for (size_t k = 0; k < n; k++) {
        struct outcome *o = &p->judged[k];
        struct log_item *item = &p->items[p->sent[k]];

        if (o->fate == FATE_LOOK || o->fate == FATE_NEVER) {
            outcome_clear(&item->refused);
            item->refused = *o;
            if (o->fate == FATE_LOOK)
                item->refused.reason = REASON_UNIQUE_CONFLICT;
            item->refused.fate = FATE_NEVER;
            if (!item->refused.text)
                item->refused.text = mem_text("refused");
        } else {
            mem_free(o->text);
        }
    }
}

void log_entity_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply)
{
    if (p->out_kind == LOG_READ && call->fault != CALL_FINE) {
        struct outcome o;

        outcome_of_failure(call, &o);
        log_give_up(p, o.retry, o.code);
        return;
    }
    if (p->out_kind != LOG_READ && !log_whole_fine(p, call, reply))
        return;
    if (p->out_kind == LOG_CLAIM)
        for (size_t k = 0; k < p->n_sent; k++)
            p->items[p->sent[k]].state = LOG_LOOKING;
    if (p->out_kind == LOG_ADD && reply)
        add_refused(p, call, reply);
    if (p->out_kind == LOG_READ)
        read_answer(p);
    p->step++;
}
