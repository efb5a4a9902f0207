/*
 * log_plan_look.c - which events of a round are stored, and which of them are open.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/log_plan_private.h"

enum { LOOKS_MAX = 2 }; /* see plan.c */

/* --- REOPEN --- */

/* Delivered again: what was in its way may be gone. By one attempt at a time, as with CLAIM. */
static bool reopen_next(struct log_plan *p, struct log_command *c)
{
    p->n_sent = 0;
    for (size_t k = 0; k < p->n_round; k++) {
        size_t i = p->round[k];
        struct log_item *item = &p->items[i];

        if (item->state != LOG_LOOKING || !item->was_refused)
            continue;
        item->was_refused = false;
        if (item->reopened || item->until_ms >= p->now_ms) {
            log_settle(p, i, log_later(RETRY_CONFLICT, 0));
            continue;
        }
        item->reopened = true;
        log_put(p, i);
    }
    c->kind = LOG_REOPEN;
    return p->n_sent > 0;
}

void log_reopen_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply)
{
    (void)log_whole_fine(p, call, reply); /* the next LOOK tells */
}

static int64_t until_of(const bson_t *effects)
{
    bson_iter_t at;

    return bson_iter_init_find(&at, effects, "until") && BSON_ITER_HOLDS_DATE_TIME(&at)
               ? bson_iter_date_time(&at)
               : 0;
}

/* Nothing of it has been done: its dead letter says why. */
static bool is_refused(const struct log_plan *p, size_t i, const bson_t *document)
{
    bson_iter_t did;

    return p->has_operation && !p->rules.complete_only && p->ops[i].effects &&
           !p->items[i].other_op && bson_iter_init_find(&did, document, "did") &&
           !bson_iter_as_bool(&did) && !log_is_other_content(p, i, i);
}

/* --- LOOK --- */

bool log_look_next(struct log_plan *p, struct log_command *c)
{
    size_t lone = SIZE_MAX;

    if (reopen_next(p, c))
        return true;
    p->n_sent = 0;
    for (size_t k = 0; k < p->n_round; k++) {
        size_t i = p->round[k];

        if (p->items[i].state != LOG_LOOKING)
            continue;
        p->items[i].found = false;
        if (p->items[i].look_alone)
            lone = lone == SIZE_MAX ? i : lone;
        else
            log_put(p, i);
    }
    if (p->n_sent == 0 && lone != SIZE_MAX)
        log_put(p, lone);
    if (p->n_sent == 0)
        return false;
    p->look_strange = false;
    look_begin(p->look, p->sent_ops, p->n_sent);
    c->kind = LOG_LOOK;
    return true;
}

void log_look_found(struct log_plan *p, const bson_t *document)
{
    const struct config_dedup *d = &p->rules.route->dedup;
    size_t k = look_find(p->look, document);
    bson_iter_t at;
    bson_t effects;

    if (k == SIZE_MAX) {
        p->look_strange = true;
        return;
    }
    struct log_item *item = &p->items[p->sent[k]];
    if (item->found)
        return;
    item->found = true;
    log_clear_item(item);
    if (d->conflict != CONFLICT_OFF)
        item->has_stored = look_hash(document, d->conflict_field, item->stored);
    if (p->has_operation && p->ops[p->sent[k]].effects &&
        bson_iter_init_find(&at, document, "op") && BSON_ITER_HOLDS_UTF8(&at))
        item->other_op = (strcmp(bson_iter_utf8(&at, NULL), "delete") == 0) !=
                         (p->ops[p->sent[k]].effects->action == EFFECT_DELETE);
    if (!p->has_effects || !bson_iter_init_find(&at, document, LOG_EFFECTS) ||
        !BSON_ITER_HOLDS_DOCUMENT(&at))
        return;
    const uint8_t *data;
    uint32_t len;
    bson_iter_document(&at, &len, &data);
    if (!bson_init_static(&effects, data, len) || !log_is_ours(&effects, &item->id))
        return;
    if (!bson_has_field(&effects, "failed"))
        item->open = bson_copy(&effects);
    else
        item->was_refused = is_refused(p, p->sent[k], document);
    item->until_ms = until_of(&effects);
}

static void look_alone(struct log_plan *p)
{
    for (size_t k = 0; k < p->n_sent; k++)
        p->items[p->sent[k]].look_alone = !p->items[p->sent[k]].found;
}

static void look_failed(struct log_plan *p, const struct outcome_call *call)
{
    struct outcome o;
    bool somebody = outcome_may_be_one_of_many(call);

    if (somebody && p->n_sent > 1) {
        for (size_t k = 0; k < p->n_sent; k++)
            p->items[p->sent[k]].found = false;
        look_alone(p);
        return;
    }
    outcome_of_failure(call, &o);
    if (somebody && o.code != 0) {
        o.doubt = DOUBT_ALONE;
        o.text = mem_text(call->message ? call->message : "the read was refused");
        log_settle(p, p->sent[0], o);
    }
    log_give_up(p, o.retry, o.code);
}

static void looked_in_vain(struct log_plan *p, size_t i)
{
    struct log_item *item = &p->items[i];
    struct outcome o = p->results[i];

    item->state = LOG_NEW;
    if (p->rules.complete_only) {
        log_settle(p, i, (struct outcome){.fate = FATE_DUPLICATE});
    } else if (o.text && ++item->looked >= LOOKS_MAX) { /* E11000, and nothing there: another's */
        p->results[i].text = NULL;                      /* moves */
        log_settle(p, i,
                   (struct outcome){.fate = FATE_NEVER,
                                    .code = o.code,
                                    .reason = REASON_UNIQUE_CONFLICT,
                                    .text = o.text});
    }
}

void log_look_answer(struct log_plan *p, const struct outcome_call *call)
{
    if (call->fault != CALL_FINE) {
        look_failed(p, call);
        return;
    }
    if (p->look_strange)
        look_alone(p);
    for (size_t k = 0; k < p->n_sent; k++) {
        size_t i = p->sent[k];
        struct log_item *item = &p->items[i];

        if (item->found && item->open) {
            item->present = true;
            item->state = LOG_OPEN;
            p->done.completed++;
            log_entity_open(p, i);
        } else if (item->found && item->was_refused) {
            continue; /* REOPEN, and looked for once more */
        } else if (item->found) {
            log_settle_present(p, i, i, FATE_DUPLICATE);
        } else if (!p->look_strange) {
            looked_in_vain(p, i);
        }
    }
}
