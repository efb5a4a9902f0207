/*
 * log_plan_write.c - numbers, and the documents of new events.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/log_plan_private.h"
#include "core/sequence_taken.h"

enum {
    NUMBERS_MAX = 50, /* how many numbers others may have had before an event has to wait */
    LONE_FAILURES_MAX = 2,
    LARGE_BYTES = 15 << 20, /* see plan.c */
};

/* --- NUMBER, START, HIGHEST --- */

static const bson_t *group_of(const struct log_plan *p, size_t i)
{
    return p->ops[i].effects->number->group;
}

static bool lacks_number(const struct log_plan *p, size_t i)
{
    const struct log_item *item = &p->items[i];

    return p->has_number && item->state == LOG_NEW && !item->numbered && p->ops[i].effects &&
           p->ops[i].effects->number;
}

bool log_number_next(struct log_plan *p, struct log_command *c)
{
    const bson_t *group = NULL;

    p->n_sent = 0;
    for (size_t k = 0; p->has_number && k < p->n_round; k++) {
        size_t i = p->round[k];

        if (!lacks_number(p, i))
            continue;
        if (!group)
            group = group_of(p, i);
        if (bson_equal(group, group_of(p, i)))
            log_put(p, i);
        if (p->number_alone && p->n_sent > 0)
            break;
    }
    if (p->n_sent == 0)
        return false;
    c->kind = p->step                                         ? LOG_START
              : p->rules.route->sequence.mode == SEQUENCE_MAX ? LOG_HIGHEST
                                                              : LOG_NUMBER;
    c->group = group;
    c->count = (int64_t)p->n_sent;
    p->got_number = false;
    return true;
}

static void give_numbers(struct log_plan *p, int64_t before)
{
    for (size_t k = 0; k < p->n_sent; k++) {
        struct log_item *item = &p->items[p->sent[k]];

        item->number = before + 1 + (int64_t)k;
        item->numbered = true;
    }
}

/* No number can be given in this group: overflow, or what stands there is no integer. */
static void number_refused(struct log_plan *p, const struct outcome_call *call)
{
    const struct config_sequence *q = &p->rules.route->sequence;

    if (p->n_sent > 1 && !p->number_alone) { /* there may be some for a few of them */
        p->number_alone = true;
        return;
    }
    for (size_t k = 0; k < p->n_sent; k++)
        log_settle(
            p, p->sent[k],
            (struct outcome){.fate = FATE_NEVER,
                             .code = call->code,
                             .reason = REASON_REJECTED,
                             .text = mem_printf("sequence %s.%s: %s", q->database, q->collection,
                                                call->message ? call->message : "refused")});
}

/* Of HIGHEST: numbers of others may lie below the start. */
static int64_t highest_given(const struct log_plan *p)
{
    int64_t before = p->rules.route->sequence.start - 1;

    return p->got_number && p->last_number > before ? p->last_number : before;
}

/* So many numbers there are, and no more. */
static void give_to_some(struct log_plan *p, size_t n)
{
    size_t rest = p->n_sent - n;

    p->n_sent = n;
    give_numbers(p, highest_given(p));
    memmove(p->sent, p->sent + n, rest * sizeof *p->sent);
    p->n_sent = rest;
    p->number_alone = true; /* these are to blame */
    number_refused(p, &(struct outcome_call){.message = "what comes next passes 2^63 - 1"});
}

void log_number_answer(struct log_plan *p, const struct outcome_call *call)
{
    const struct outcome_code *row = outcome_code_find(call->code);
    bool start = p->out_kind == LOG_START, highest = p->out_kind == LOG_HIGHEST;
    int64_t count = (int64_t)p->n_sent;

    p->step = 0;
    if (call->fault == CALL_FINE || (start && call->code == 11000)) {
        if (start)
            return;
        if (!highest && !p->got_number) {
            p->step = 1;
        } else if (highest && highest_given(p) > INT64_MAX - count) {
            give_to_some(p, (size_t)(INT64_MAX - highest_given(p)));
        } else {
            give_numbers(p, highest ? highest_given(p) : p->last_number - count);
        }
        return;
    }
    if (call->fault == CALL_SERVER && row && row->one == FATE_NEVER) {
        number_refused(p, call);
        return;
    }
    struct outcome o;
    outcome_of_failure(call, &o);
    log_give_up(p, o.retry, o.code);
}

/* --- WRITE --- */

bool log_write_next(struct log_plan *p, struct log_command *c)
{
    p->n_sent = 0;
    p->stamp++;
    for (size_t k = 0; k < p->n_round; k++) {
        size_t i = p->round[k];
        struct log_item *item = &p->items[i];
        struct log_lane *lane = item->lane == LOG_NO_LANE ? NULL : &p->lanes[item->lane];

        if (item->state != LOG_NEW)
            continue;
        if (lacks_number(p, i)) { /* somebody else had it: first another one */
            if (lane)
                lane->held = p->stamp;
            continue;
        }
        if (lane && lane->held == p->stamp)
            continue;
        if (lane && log_is_blocked(p, i)) {
            log_settle(p, i, log_later(lane->why, lane->code));
            continue;
        }
        if (log_count_held(p, i)) {
            log_settle(p, i, log_later(RETRY_CONFLICT, 0));
            continue;
        }
        c->ordered = c->ordered || (lane && lane->in == p->stamp);
        if (lane)
            lane->in = p->stamp;
        item->at_ms = p->now_ms;
        item->until_ms = p->until_ms;
        log_put(p, i);
    }
    c->kind = LOG_WRITE;
    return p->n_sent > 0;
}

/* Which value of the sequence is another document's, as the k-th error has it. */
static enum sequence_taken taken_of(const struct log_plan *p, const bson_t *reply, size_t k)
{
    bson_iter_t list, error, at;

    if (!p->has_number || !reply || !bson_iter_init_find(&list, reply, "writeErrors") ||
        !BSON_ITER_HOLDS_ARRAY(&list) || !bson_iter_recurse(&list, &error))
        return SEQUENCE_TAKEN_NOTHING;
    while (bson_iter_next(&error))
        if (BSON_ITER_HOLDS_DOCUMENT(&error) && bson_iter_recurse(&error, &at) &&
            bson_iter_find(&at, "index") && bson_iter_as_int64(&at) == (int64_t)k)
            return sequence_taken_of(p->rules.route, &error);
    return SEQUENCE_TAKEN_NOTHING;
}

/* Somebody else had a number of this command. With mode max the numbers behind it are as old, and
 * would be refused one after the other. */
static void forget_numbers(struct log_plan *p)
{
    for (size_t k = 0; k < p->n_sent; k++)
        if (p->items[p->sent[k]].state == LOG_NEW)
            p->items[p->sent[k]].numbered = false;
}

/*
 * Somebody else had its number: another one. With mode max after a moment, since he may be at it;
 * with mode block the counter is above that number by now, and lags far where that is of no use.
 */
static void number_again(struct log_plan *p, size_t i)
{
    struct log_item *item = &p->items[i];
    bool max = p->rules.route->sequence.mode == SEQUENCE_MAX;

    if (++item->numbers >= NUMBERS_MAX) {
        struct outcome o = log_later(max ? RETRY_CONFLICT : RETRY_CONFIG, 11000);

        if (!max)
            o.text = sequence_number_taken(p->rules.route, group_of(p, i), item->number);
        log_settle(p, i, o);
        return;
    }
    item->state = LOG_NEW;
    item->numbered = false;
    if (max && p->wait_ms == 0)
        log_wait(p);
}

static void written(struct log_plan *p, size_t i)
{
    struct log_item *item = &p->items[i];

    item->wrote = item->present = true;
    if (p->has_effects)
        item->state = LOG_OPEN;
    else
        log_settle(p, i, (struct outcome){.fate = FATE_INSERTED});
}

/* Takes the text of judged[k]. */
static void take_answer(struct log_plan *p, size_t k, const bson_t *reply)
{
    struct outcome *o = &p->judged[k];
    size_t i = p->sent[k];

    switch (o->fate) {
    case FATE_NOT_RUN:
    case FATE_SPLIT:
        mem_free(o->text);
        return;
    case FATE_LOOK:
        mem_free(p->results[i].text);
        p->results[i].text = NULL;
        switch (taken_of(p, reply, k)) {
        case SEQUENCE_TAKEN_NUMBER:
            mem_free(o->text);
            number_again(p, i);
            return;
        case SEQUENCE_TAKEN_TEXT:
            o->text = sequence_text_taken(&p->rules.route->sequence, o->text);
            break;
        case SEQUENCE_TAKEN_NOTHING:
            break;
        }
        p->items[i].state = LOG_LOOKING;
        p->results[i] = *o; /* its text is wanted when the read finds nothing */
        return;
    case FATE_INSERTED:
        written(p, i);
        return;
    case FATE_DUPLICATE:
    case FATE_LATER:
    case FATE_UNKNOWN:
    case FATE_NEVER:
        log_settle(p, i, *o);
        return;
    }
}

/* Refused as a whole: smaller rounds, or, when it is alone, that is the culprit. */
static void split(struct log_plan *p)
{
    struct outcome *o = &p->judged[0];
    size_t i = p->sent[0];

    if (p->n_sent > 1) {
        p->round_max = p->n_sent / 2;
        for (size_t k = 0; k < p->n_sent; k++) {
            mem_free(p->judged[k].text);
            p->items[p->sent[k]].state = LOG_WAITING;
        }
        return;
    }
    bool by_driver = o->code == 0 && o->reason != REASON_NONE;
    if (by_driver || (o->reason == REASON_TOO_LARGE && p->ops[i].document->len > LARGE_BYTES)) {
        o->fate = FATE_NEVER;
        o->retry = RETRY_NONE;
        log_settle(p, i, *o);
        return;
    }
    o->fate = FATE_UNKNOWN;
    o->reason = REASON_NONE;
    o->doubt = DOUBT_ALONE;
    enum retry_class retry = o->retry;
    int code = o->code;
    log_settle(p, i, *o);
    if (!(p->ops[i].alone && p->stored_some) && ++p->lone_failures >= LONE_FAILURES_MAX)
        log_give_up(p, retry, code);
}

void log_write_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply)
{
    struct outcome_call insert = *call;

    insert.is_insert = true;
    bool each = outcome_judge(&insert, reply, p->n_sent, p->judged);
    if (!each && p->judged[0].fate == FATE_SPLIT) {
        split(p);
        return;
    }
    enum retry_class retry = p->judged[0].retry;
    int code = p->judged[0].code;
    for (size_t k = 0; k < p->n_sent; k++)
        take_answer(p, k, reply);
    if (p->wait_ms > 0 && p->rules.route->sequence.mode == SEQUENCE_MAX)
        forget_numbers(p);
    if (!each)
        log_give_up(p, retry, code);
}
