/*
 * The steps of a batch: look, then one transaction after another; what each answer leads to.
 */
#include "core/txn_plan.h"

#include <string.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "core/culprit.h"
#include "core/look.h"
#include "core/txn_plan_steps.h"

enum {
    HALVE_EVERY = 4,       /* conflicts in a row */
    COUNT_TWICE_MAX = 3,   /* E11000 of a counter document: two made it at once, or never */
    LONE_FAILURES_MAX = 2, /* as in plan.c */
    WAIT_LEAST_MS = 2,
    WAIT_MOST_MS = 50,
    CONVERSION_FAILED = 241 /* what io raises where a group holds no number */
};

struct txn_plan *txn_plan_new(const struct txn_limits *limits)
{
    struct txn_plan *p = mem_new(sizeof *p);

    p->limits = *limits;
    if (p->limits.max_ops == 0)
        p->limits.max_ops = 1;
    p->look = look_new();
    return p;
}

void txn_plan_free(struct txn_plan *p)
{
    if (!p)
        return;
    txn_batch_clear(&p->batch);
    txn_chunk_clear(&p->chunk);
    mem_free(p->what);
    mem_free(p->ops);
    mem_free(p->entities);
    mem_free(p->numbers);
    mem_free(p->did);
    mem_free(p->found);
    mem_free(p->moves);
    look_free(p->look);
    mem_free(p);
}

void txn_plan_begin(struct txn_plan *p, const struct write_op *ops, size_t n,
                    const struct txn_rules *rules)
{
    p->rules = *rules;
    txn_batch_begin(&p->batch, ops, n, rules->route);
    p->chunk.n = 0;
    p->step = TXN_STEP_IDLE;
    p->split_limit = p->limits.max_ops;
    p->part_end = SIZE_MAX;
    p->in_row = p->lone_failures = 0;
    p->stamp = 0;
    p->random = rules->random | 1;
    p->out = p->is_look = p->ends = false;
    p->done = (struct txn_done){0};
}

const struct outcome *txn_plan_results(const struct txn_plan *p)
{
    MUST(!p->out && p->batch.from == p->batch.n);
    return p->batch.results;
}

struct txn_done txn_plan_done(const struct txn_plan *p)
{
    return p->done;
}

/* --- the next command --- */

static uint32_t throw_dice(struct txn_plan *p)
{
    p->random ^= p->random << 13;
    p->random ^= p->random >> 17;
    p->random ^= p->random << 5;
    return p->random;
}

/* Somewhere in the upper half of a time that doubles from conflict to conflict. */
static int64_t wait_of(struct txn_plan *p)
{
    unsigned doublings = p->in_row < 6 ? p->in_row : 6;
    uint32_t most = (uint32_t)WAIT_LEAST_MS << doublings;

    if (most > WAIT_MOST_MS)
        most = WAIT_MOST_MS;
    return most / 2 + throw_dice(p) % (most / 2 + 1);
}

static bool fill_wait(struct txn_plan *p, int64_t now_ms, struct txn_command *command)
{
    int64_t left = p->rules.deadline_ms - now_ms, wait = wait_of(p);

    *command = (struct txn_command){.kind = TXN_WAIT, .wait_ms = wait < left ? wait : left};
    return left > 0;
}

static void begin_transaction(struct txn_plan *p)
{
    p->step = TXN_STEP_BEGIN;
    p->cursor = p->checked = 0;
    p->check_alone = false;
    p->missing = 0;
    p->asked_again = false;
}

/* False: nothing is left. */
static bool next_of_idle(struct txn_plan *p, int64_t now_ms, struct txn_command *command)
{
    if (p->batch.from == p->batch.n)
        return false;
    if (now_ms >= p->rules.deadline_ms) {
        txn_batch_give_up(&p->batch, p->in_row > 0 ? RETRY_CONFLICT : RETRY_TIMEOUT, 0);
        return false;
    }
    p->is_look = p->batch.looking > 0;
    if (p->is_look) {
        txn_command_look(p, command);
        return true;
    }
    if (!txn_gather(p))
        return false;
    begin_transaction(p);
    return txn_command_fill(p, command);
}

/* The transaction's outcome stays unknown, and the batch ends. */
static void leave_unknown(struct txn_plan *p)
{
    struct outcome o = {.fate = FATE_UNKNOWN, .retry = p->end.retry, .code = p->end.code};

    for (size_t k = 0; k < p->chunk.n; k++)
        txn_batch_done(&p->batch, p->chunk.items[k], o);
    txn_batch_give_up(&p->batch, o.retry, o.code);
    p->step = TXN_STEP_IDLE;
}

/* Steps of a transaction that have nothing to do are passed over. */
static bool next_of_transaction(struct txn_plan *p, struct txn_command *command)
{
    while (!txn_command_fill(p, command)) {
        MUST(p->step < TXN_STEP_COMMIT);
        if (p->step == TXN_STEP_STATE)
            txn_chunk_fold(&p->chunk);
        p->step++;
        p->cursor = 0;
    }
    return true;
}

bool txn_plan_next(struct txn_plan *p, int64_t now_ms, struct txn_command *command)
{
    MUST(!p->out);
    p->is_look = false;
    switch (p->step) {
    case TXN_STEP_ABORT:
        *command = (struct txn_command){.kind = TXN_ABORT};
        p->out = true;
        return true;
    case TXN_STEP_WAIT:
        p->out = fill_wait(p, now_ms, command);
        if (p->out)
            return true;
        p->step = TXN_STEP_IDLE;
        break;
    case TXN_STEP_COMMIT_WAIT:
        p->out = fill_wait(p, now_ms, command);
        if (!p->out)
            leave_unknown(p);
        else
            return true;
        break;
    case TXN_STEP_IDLE:
        break;
    default:
        p->out = next_of_transaction(p, command);
        return true;
    }
    p->out = next_of_idle(p, now_ms, command);
    return p->out;
}

/* --- after an answer that says no --- */

static void abort_then(struct txn_plan *p, enum txn_step after)
{
    p->step = TXN_STEP_ABORT;
    p->after = after;
}

static void end_batch(struct txn_plan *p, enum retry_class retry, int code)
{
    p->ends = true;
    p->end = (struct outcome){.retry = retry, .code = code};
    abort_then(p, TXN_STEP_IDLE);
}

static void halve(struct txn_plan *p)
{
    if (p->chunk.n > 1)
        p->split_limit = p->chunk.n / 2;
}

static void conflict(struct txn_plan *p)
{
    p->done.conflicts++;
    if (++p->in_row % HALVE_EVERY == 0)
        halve(p);
    abort_then(p, TXN_STEP_WAIT);
}

/* The only one of its chunk failed, and nobody knows why. Takes o's text. */
static void lone_failure(struct txn_plan *p, struct outcome o)
{
    size_t i = p->chunk.items[0];
    bool expected = p->batch.ops[i].alone && p->batch.stored_some;

    o.fate = FATE_UNKNOWN;
    o.reason = REASON_NONE;
    o.doubt = DOUBT_ALONE;
    abort_then(p, TXN_STEP_IDLE);
    if (!expected && ++p->lone_failures >= LONE_FAILURES_MAX) /* it hits whatever is sent */
        end_batch(p, o.retry, o.code);
    txn_batch_done(&p->batch, i, o);
}

/* Refused as a whole: halve it; alone, it is the culprit if that can be. Takes o's text. */
static void split(struct txn_plan *p, struct outcome o)
{
    const struct write_op *op = &p->batch.ops[p->chunk.items[0]];
    bool by_driver = o.code == 0 && o.reason != REASON_NONE;

    if (p->chunk.n > 1) {
        mem_free(o.text);
        halve(p);
        abort_then(p, TXN_STEP_IDLE);
    } else if (by_driver || culprit_can_be(o.reason, op)) {
        txn_batch_never(&p->batch, p->chunk.items[0], o);
        abort_then(p, TXN_STEP_IDLE);
    } else {
        lone_failure(p, o);
    }
}

/* What stands before the member is known to be good so far: it is committed first. */
static void cut_before(struct txn_plan *p, size_t member)
{
    if (member > 0)
        p->part_end = p->chunk.items[member];
}

/*
 * The member's number is another document's. Those of its group that came before it have theirs,
 * those from it on would meet the same document: they wait until somebody acts, the others don't.
 */
static void number_taken(struct txn_plan *p, size_t member, int code)
{
    const struct txn_chunk *c = &p->chunk;
    const struct write_op *op = &p->batch.ops[c->items[member]];
    struct outcome o = {.fate = FATE_LATER, .retry = RETRY_CONFIG, .code = code};

    if (p->batch.route->sequence.mode == SEQUENCE_MAX) { /* somebody was faster */
        conflict(p);
        return;
    }
    o.text = sequence_number_taken(p->batch.route, op->effects->number->group, c->numbers[member]);
    for (size_t k = member; k < c->n; k++) {
        if (c->group_of[k] != c->group_of[member])
            continue;
        txn_batch_done(&p->batch, c->items[k], o);
        o.text = NULL; /* one is enough */
    }
    abort_then(p, TXN_STEP_IDLE);
}

/* A document of the member was refused. Takes o's text. */
static void member_refused(struct txn_plan *p, size_t member, struct txn_verdict *v)
{
    size_t i = p->chunk.items[member];
    struct outcome o = v->outcome;

    if (o.fate == FATE_LOOK && v->taken == SEQUENCE_TAKEN_NUMBER) {
        mem_free(o.text);
        number_taken(p, member, o.code);
        return;
    }
    if (o.fate == FATE_LOOK && v->taken == SEQUENCE_TAKEN_TEXT)
        o.text = sequence_text_taken(&p->batch.route->sequence, o.text);
    if (o.fate != FATE_LOOK && o.fate != FATE_NEVER) {
        if (p->chunk.n == 1) {
            lone_failure(p, o);
            return;
        }
        mem_free(o.text);
        p->batch.items[i].alone = true;
        abort_then(p, TXN_STEP_IDLE);
        return;
    }
    cut_before(p, member);
    if (o.fate == FATE_NEVER) {
        txn_batch_never(&p->batch, i, o);
    } else {
        txn_batch_refused(&p->batch, i, o);
        for (size_t k = member + 1; k < p->chunk.n; k++)
            txn_batch_look(&p->batch, p->chunk.items[k]);
    }
    abort_then(p, TXN_STEP_IDLE);
}

/* A larger number is there: who holds the lock now is somebody else. */
static void fence_refused(struct txn_plan *p, uint32_t fence, struct txn_verdict *v)
{
    struct outcome o = {.fate = FATE_LATER, .retry = RETRY_LOCK, .code = v->outcome.code};

    mem_free(v->outcome.text);
    if (v->outcome.fate != FATE_LOOK) {
        end_batch(p, RETRY_CONFIG, o.code);
        return;
    }
    for (size_t k = 0; k < p->chunk.n; k++)
        if (p->chunk.fence_of[k] == fence)
            txn_batch_done(&p->batch, p->chunk.items[k], o);
    abort_then(p, TXN_STEP_IDLE);
}

/* A counter document, or a group's, can't be moved: who is it? Takes o's text. */
static void effect_refused(struct txn_plan *p,
                           bool (*is_of)(const struct txn_chunk *, size_t, uint32_t), uint32_t what,
                           const char *name, struct outcome o)
{
    const struct txn_chunk *c = &p->chunk;
    bool unknown = o.fate == FATE_UNKNOWN;

    if (c->n == 1 && unknown) {
        lone_failure(p, o);
        return;
    }
    if (c->n == 1) {
        char *text = mem_printf("%s: %s", name, o.text ? o.text : "refused");

        mem_free(o.text);
        o.text = text;
        o.reason = o.fate == FATE_LOOK ? REASON_UNIQUE_CONFLICT : REASON_REJECTED;
        txn_batch_never(&p->batch, c->items[0], o);
    } else {
        mem_free(o.text);
        for (size_t k = 0; k < c->n; k++)
            if (is_of(c, k, what))
                p->batch.items[c->items[k]].alone = true;
    }
    abort_then(p, TXN_STEP_IDLE);
}

static void count_refused(struct txn_plan *p, uint32_t doc, struct txn_verdict *v)
{
    const struct config_counter *c = &p->batch.route->counters[p->chunk.docs.list[doc].tag];
    char *name;

    if (v->outcome.fate == FATE_LOOK && p->in_row < COUNT_TWICE_MAX) {
        mem_free(v->outcome.text);
        conflict(p);
        return;
    }
    name = mem_printf("counter %s.%s", c->database, c->collection);
    effect_refused(p, txn_chunk_moves, doc, name, v->outcome);
    mem_free(name);
}

/* It holds what $inc leaves a double or a decimal. */
static void count_inexact(struct txn_plan *p, uint32_t doc)
{
    enum { TYPE_MISMATCH = 14 }; /* as the server has it for an $inc of what is no number */
    const struct config_counter *c = &p->batch.route->counters[p->chunk.docs.list[doc].tag];
    struct buf fields = {0};

    for (size_t i = 0; i < c->inc.n; i++)
        buf_printf(&fields, "%s%s", i ? ", " : "", c->inc.items[i].name);
    char *name = mem_printf("counter %s.%s", c->database, c->collection);
    struct outcome o = {.fate = FATE_NEVER,
                        .code = TYPE_MISMATCH,
                        .text = mem_printf("a field that it moves (%s) holds a double or a "
                                           "decimal, which would not count exactly: make it an "
                                           "integer (check --connect says how)",
                                           buf_text(&fields))};
    effect_refused(p, txn_chunk_moves, doc, name, o);
    mem_free(name);
    buf_clear(&fields);
}

static void checked(struct txn_plan *p)
{
    if (p->strange && p->n > 1) {
        p->check_alone = true;
        p->checked -= p->n;
        return;
    }
    for (size_t k = 0; k < p->n; k++) {
        if (!p->found[k] && !p->strange)
            continue;
        count_inexact(p, p->what[k]);
        if (p->chunk.n == 1) /* it has its end */
            return;
    }
}

static bool is_of_group(const struct txn_chunk *c, size_t member, uint32_t group)
{
    return c->group_of[member] == group;
}

/* The whole command was refused with a code that says that it is this group. Else: false. */
static bool number_refused(struct txn_plan *p, struct txn_verdict *v)
{
    const struct config_sequence *q = &p->batch.route->sequence;
    const struct outcome_code *row = outcome_code_find(v->outcome.code);
    char *name;

    if (v->outcome.code != CONVERSION_FAILED && (!row || row->one != FATE_NEVER))
        return false;
    v->outcome.fate = FATE_NEVER;
    name = mem_printf("sequence %s.%s", q->database, q->collection);
    effect_refused(p, is_of_group, p->what[0], name, v->outcome);
    mem_free(name);
    return true;
}

/* --- answers --- */

static void one_refused(struct txn_plan *p, struct txn_verdict *v)
{
    uint32_t what = p->what[v->at];

    switch (p->step) {
    case TXN_STEP_FENCE:
        fence_refused(p, what, v);
        break;
    case TXN_STEP_COUNT:
        count_refused(p, what, v);
        break;
    case TXN_STEP_EVENTS:
    case TXN_STEP_INSERT:
    case TXN_STEP_DELETE:
    case TXN_STEP_REPLACE:
        member_refused(p, what, v);
        break;
    default: /* no command of several operations */
        mem_free(v->outcome.text);
        end_batch(p, RETRY_OTHER, v->outcome.code);
    }
}

static bool counts_right(struct txn_plan *p, int64_t n)
{
    switch (p->step) {
    case TXN_STEP_COUNT:
        if (n < 0 || (uint64_t)n > p->n)
            return false;
        p->missing += p->n - (uint64_t)n;
        return true;
    case TXN_STEP_NUMBER:
        return p->numbered;
    case TXN_STEP_EVENTS:
    case TXN_STEP_INSERT:
    case TXN_STEP_DELETE:
    case TXN_STEP_REPLACE:
        return n >= 0 && (uint64_t)n == p->n;
    default:
        return true;
    }
}

static void transaction_answered(struct txn_plan *p, const struct txn_call *call,
                                 const bson_t *reply)
{
    struct txn_verdict v = txn_judge(call, reply, p->n, p->batch.route);

    switch (v.says) {
    case TXN_SAYS_DONE:
        if (!counts_right(p, v.n))
            end_batch(p, RETRY_OTHER, 0);
        else if (p->step == TXN_STEP_STATE)
            txn_state_known(p);
        else if (p->step == TXN_STEP_CHECK)
            checked(p);
        break;
    case TXN_SAYS_ONE:
        one_refused(p, &v);
        break;
    case TXN_SAYS_CONFLICT:
        conflict(p);
        break;
    case TXN_SAYS_SPLIT:
        if (p->step != TXN_STEP_NUMBER || !number_refused(p, &v))
            split(p, v.outcome);
        break;
    case TXN_SAYS_END:
        end_batch(p, v.outcome.retry, v.outcome.code);
        break;
    }
}

static void count_done(struct txn_plan *p)
{
    const struct txn_chunk *c = &p->chunk;

    p->done.transactions++;
    p->done.moves_missing += p->missing;
    for (size_t k = 0; k < c->n; k++) {
        p->done.added += c->entity_of[k] != TXN_NONE && c->steps[k] == ENTITY_ADDED;
        p->done.removed += c->entity_of[k] != TXN_NONE && c->steps[k] == ENTITY_REMOVED;
    }
}

static void committed(struct txn_plan *p)
{
    count_done(p);
    for (size_t k = 0; k < p->chunk.n; k++)
        txn_batch_done(&p->batch, p->chunk.items[k], (struct outcome){.fate = FATE_INSERTED});
    p->part_end = SIZE_MAX;
    p->in_row = p->lone_failures = 0;
    if (p->split_limit < p->limits.max_ops)
        p->split_limit =
            p->split_limit > p->limits.max_ops / 2 ? p->limits.max_ops : p->split_limit * 2;
    p->step = TXN_STEP_IDLE;
}

/* Nothing was committed. Where an earlier answer was lost, somebody may have repeated it all. */
static void look_again(struct txn_plan *p)
{
    for (size_t k = 0; p->asked_again && k < p->chunk.n; k++)
        txn_batch_look(&p->batch, p->chunk.items[k]);
}

static void commit_answered(struct txn_plan *p, const struct txn_call *call, const bson_t *reply)
{
    struct outcome o;

    switch (txn_judge_commit(call, reply, &o)) {
    case TXN_COMMIT_DONE:
        committed(p);
        break;
    case TXN_COMMIT_UNKNOWN:
        p->asked_again = true;
        p->end = o;
        p->step = TXN_STEP_COMMIT_WAIT;
        break;
    case TXN_COMMIT_FAILED:
        p->end = o;
        leave_unknown(p);
        break;
    case TXN_COMMIT_NOT:
        look_again(p);
        conflict(p);
        break;
    case TXN_COMMIT_SPLIT:
        p->asked_again = true;
        look_again(p);
        split(p, o);
        break;
    }
}

static void aborted(struct txn_plan *p)
{
    p->step = p->after;
    if (p->ends)
        txn_batch_give_up(&p->batch, p->end.retry, p->end.code);
}

void txn_plan_answer(struct txn_plan *p, const struct txn_call *call, const bson_t *reply)
{
    MUST(p->out);
    p->out = false;
    switch (p->step) {
    case TXN_STEP_IDLE:
        txn_looked(p, call);
        break;
    case TXN_STEP_COMMIT:
        commit_answered(p, call, reply);
        break;
    case TXN_STEP_COMMIT_WAIT:
        p->step = TXN_STEP_COMMIT;
        break;
    case TXN_STEP_ABORT:
        aborted(p);
        break;
    case TXN_STEP_WAIT:
        p->step = TXN_STEP_IDLE;
        break;
    default:
        transaction_answered(p, call, reply);
    }
}

void txn_plan_number(struct txn_plan *p, int64_t last)
{
    MUST(p->out && p->step == TXN_STEP_NUMBER);
    p->numbered = txn_chunk_number(&p->chunk, p->what[0], last);
}
