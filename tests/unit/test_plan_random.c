/* The plan against a model of the server: random batches, faults, and how many commands it takes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core/look.h"
#include "core/plan.h"

#include "fakes/dice.h"

#include "plan_ops.h"

/* ---- a model of the server ---- */

enum fault_kind { GOOD, INVALID, HUGE_ONE, DEEP, ODD };

struct model_op {
    struct write_op op;
    enum fault_kind fault;
    int key, mail, lane; /* mail: under a second unique index */
    char content;        /* what its payload's hash is made of */
    int64_t executed_at; /* when the server first did it; 0: never */
    bool lied;           /* E11000 without a reason was given once */
    bool final, suspected, conflict;
    enum fate fate;
    enum reason reason;
};

struct model {
    struct dice dice;
    struct model_op *all;
    size_t n;
    int keys, mails;
    int *stored_by; /* per key: index + 1 of the operation whose content is stored; -1: it was there
                       before */
    int *mail_of;   /* per mail: key + 1 */
    char *content;  /* per key: of the payload that is stored; 0: it does not say */
    struct plan_rules rules;
    unsigned before_permille;  /* documents that are there before */
    unsigned strange_permille; /* stored documents whose key's bytes don't tell */
    int64_t clock;
    unsigned trouble_permille;
    size_t commands, sent;
    struct plan_limits limits;
};

static struct model_op *model_of(struct model *m, const struct write_op *op,
                                 const struct write_op *batch, const size_t *index)
{
    return &m->all[index[op - batch]];
}

/* What the server does with one operation. 0 inserted, -1 matched, else a code. */
static int model_execute(struct model *m, struct model_op *o)
{
    bool insert = o->op.kind == WRITE_KIND_INSERT;

    if (dice_permille(&m->dice, m->trouble_permille))
        return dice_below(&m->dice, 2) ? 112 : 424243;
    if (!o->lied && dice_permille(&m->dice, m->trouble_permille)) {
        o->lied = true;
        return 11000;
    }
    if (m->stored_by[o->key] && !insert) {
        if (!o->executed_at)
            o->executed_at = ++m->clock;
        return -1;
    }
    if (o->fault == INVALID)
        return 121;
    if (m->stored_by[o->key] || m->mail_of[o->mail]) {
        if (m->stored_by[o->key] && !o->executed_at)
            o->executed_at = ++m->clock;
        return 11000;
    }
    m->stored_by[o->key] = (int)(o - m->all) + 1;
    m->content[o->key] = o->content;
    m->mail_of[o->mail] = o->key + 1;
    if (!o->executed_at)
        o->executed_at = ++m->clock;
    return 0;
}

static void add_error(bson_t *errors, int32_t index, int code)
{
    char key[16];
    bson_t e;

    snprintf(key, sizeof key, "%u", bson_count_keys(errors));
    BSON_APPEND_DOCUMENT_BEGIN(errors, key, &e);
    BSON_APPEND_INT32(&e, "index", index);
    BSON_APPEND_INT32(&e, "code", code);
    BSON_APPEND_UTF8(&e, "errmsg", "why");
    bson_append_document_end(errors, &e);
}

static void check_command(const struct model *m, const struct plan_command *c)
{
    size_t bytes = 0;

    assert_true(c->n > 0 && c->n <= m->limits.max_ops);
    for (size_t i = 0; i < c->n; i++) {
        bytes += c->ops[i]->filter->len + c->ops[i]->document->len;
        assert_true(!c->ops[i]->alone || c->n == 1);
        assert_int_equal(c->ops[i]->kind,
                         c->kind == PLAN_INSERT ? WRITE_KIND_INSERT : WRITE_KIND_UPSERT);
        for (size_t j = 0; j < i; j++) {
            if (c->ops[i]->lane && c->ops[i]->lane == c->ops[j]->lane)
                assert_true(c->ordered);
            assert_true(c->ops[j] < c->ops[i]);
        }
    }
    assert_true(c->n == 1 || bytes <= m->limits.max_bytes);
}

/* A fault of the whole command; true when it was answered by that, maybe after some were executed.
 */
static bool model_whole(struct model *m, struct plan *p, const struct plan_command *c,
                        struct outcome_call *call, const struct write_op *batch,
                        const size_t *index)
{
    for (size_t i = 0; i < c->n; i++) {
        enum fault_kind f = model_of(m, c->ops[i], batch, index)->fault;
        if (f == HUGE_ONE || f == DEEP || f == ODD) {
            call->fault = f == HUGE_ONE ? CALL_DOCUMENT : CALL_SERVER;
            call->code = f == DEEP ? 15 : f == ODD ? 424242 : 0;
            call->message = "too large";
            plan_reply(p, call, NULL);
            return true;
        }
    }
    if (!dice_permille(&m->dice, m->trouble_permille))
        return false;
    for (size_t i = 0; i < c->n && dice_below(&m->dice, 8); i++)
        if (model_execute(m, model_of(m, c->ops[i], batch, index)) > 0 && c->ordered)
            break;
    call->fault = dice_below(&m->dice, 2) ? CALL_NETWORK : CALL_SERVER;
    call->code = call->fault == CALL_SERVER ? 11602 : 4;
    plan_reply(p, call, NULL);
    return true;
}

static void model_write(struct model *m, struct plan *p, const struct plan_command *c,
                        const struct write_op *batch, const size_t *index)
{
    struct outcome_call call = {.ordered = c->ordered, .is_insert = c->kind == PLAN_INSERT};
    bson_t b = BSON_INITIALIZER, upserted = BSON_INITIALIZER, errors = BSON_INITIALIZER, e;
    int32_t done = 0, inserted = 0;
    char key[16];

    check_command(m, c);
    if (model_whole(m, p, c, &call, batch, index))
        goto out;
    for (size_t i = 0; i < c->n; i++) {
        int code = model_execute(m, model_of(m, c->ops[i], batch, index));
        if (code > 0) {
            add_error(&errors, (int32_t)i, code);
            call.fault = CALL_SERVER;
            call.code = code;
            if (c->ordered)
                break;
            continue;
        }
        done++;
        if (code == 0 && c->kind == PLAN_UPSERT) {
            snprintf(key, sizeof key, "%d", inserted++);
            BSON_APPEND_DOCUMENT_BEGIN(&upserted, key, &e);
            BSON_APPEND_INT32(&e, "index", (int32_t)i);
            bson_append_document_end(&upserted, &e);
        }
    }
    BSON_APPEND_INT32(&b, "nInserted", c->kind == PLAN_INSERT ? done : 0);
    BSON_APPEND_INT32(&b, "nMatched", c->kind == PLAN_INSERT ? 0 : done - inserted);
    BSON_APPEND_INT32(&b, "nUpserted", inserted);
    if (inserted)
        BSON_APPEND_ARRAY(&b, "upserted", &upserted);
    BSON_APPEND_ARRAY(&b, "writeErrors", &errors);
    if (dice_permille(&m->dice, m->trouble_permille)) {
        bson_t concern = BSON_INITIALIZER;
        add_error(&concern, 0, 64);
        BSON_APPEND_ARRAY(&b, "writeConcernErrors", &concern);
        bson_destroy(&concern);
    }
    plan_reply(p, &call, &b);
out:
    bson_destroy(&b);
    bson_destroy(&upserted);
    bson_destroy(&errors);
}

static void append_hash(bson_t *b, char content)
{
    uint8_t hash[CANONICAL_HASH_BYTES];

    memset(hash, content, sizeof hash);
    BSON_APPEND_BINARY(b, "h", BSON_SUBTYPE_BINARY, hash, sizeof hash);
}

static void model_found(struct model *m, struct plan *p, const struct model_op *o)
{
    bson_t b = BSON_INITIALIZER, array;

    if ((unsigned)o->key % 1000 < m->strange_permille) {
        BSON_APPEND_ARRAY_BEGIN(&b, "k", &array);
        bson_append_array_end(&b, &array);
    } else {
        bson_concat(&b, o->op.filter);
    }
    if (m->content[o->key])
        append_hash(&b, m->content[o->key]);
    plan_found(p, &b);
    bson_destroy(&b);
}

static void model_look(struct model *m, struct plan *p, const struct plan_command *c,
                       const struct write_op *batch, const size_t *index)
{
    struct outcome_call call = {.fault = CALL_FINE};

    assert_true(c->n > 0 && c->n <= m->limits.max_ops);
    for (size_t i = 0; i < c->n; i++) {
        const struct model_op *o = model_of(m, c->ops[i], batch, index);
        if (m->stored_by[o->key])
            model_found(m, p, o);
    }
    if (dice_permille(&m->dice, m->trouble_permille))
        call = (struct outcome_call){.fault = dice_below(&m->dice, 2) ? CALL_NETWORK : CALL_SERVER,
                                     .code = 10334};
    plan_looked(p, &call);
}

/* One batch: index names the operations in all, in order. */
static void model_batch(struct model *m, struct plan *p, const size_t *index, size_t n)
{
    struct write_op *batch = mem_array(n, sizeof *batch);
    struct plan_command c;
    size_t commands = 0;

    for (size_t i = 0; i < n; i++) {
        batch[i] = m->all[index[i]].op;
        batch[i].alone = m->all[index[i]].suspected;
    }
    plan_begin(p, batch, n, &m->rules);
    while (plan_next(p, &c)) {
        m->commands++;
        m->sent += c.n;
        if (++commands > 20 * n + 32)
            fail_msg("no end after %zu commands for %zu operations", commands, n);
        if (c.kind == PLAN_LOOK)
            model_look(m, p, &c, batch, index);
        else
            model_write(m, p, &c, batch, index);
        if (dice_permille(&m->dice, m->trouble_permille / 2))
            plan_stop(p, RETRY_TIMEOUT);
    }
    const struct outcome *r = plan_results(p);
    for (size_t i = 0; i < n; i++) {
        struct model_op *o = &m->all[index[i]];
        o->fate = r[i].fate;
        o->reason = r[i].reason;
        o->conflict = r[i].conflict;
        o->suspected = r[i].doubt != DOUBT_NONE || dice_permille(&m->dice, m->trouble_permille);
        o->final = o->fate == FATE_INSERTED || o->fate == FATE_DUPLICATE || o->fate == FATE_NEVER;
        assert_true(o->final || o->fate == FATE_LATER || o->fate == FATE_UNKNOWN);
        assert_true((o->fate == FATE_NEVER || r[i].doubt == DOUBT_ALONE) == (r[i].text != NULL));
        assert_true(r[i].doubt == DOUBT_NONE || o->fate == FATE_UNKNOWN);
        assert_true(o->final || r[i].retry != RETRY_NONE);
    }
    mem_free(batch);
}

/* What must hold after each batch. */
static void model_check_batch(struct model *m, const size_t *index, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct model_op *o = &m->all[index[i]];
        int by = m->stored_by[o->key];
        if (o->fate == FATE_INSERTED) {
            assert_true(by > 0);
            assert_ptr_equal(&m->all[by - 1], o);
        }
        if (o->fate == FATE_DUPLICATE)
            assert_true(by != 0);
        bool differs = m->content[o->key] && m->content[o->key] != o->content;
        if (o->fate == FATE_INSERTED)
            assert_false(o->conflict);
        if (o->fate == FATE_DUPLICATE)
            assert_int_equal(o->conflict, differs && m->rules.conflict == CONFLICT_COUNT);
        if (o->fate == FATE_DUPLICATE && m->rules.conflict == CONFLICT_DEAD_LETTER)
            assert_false(differs);
        if (o->fate == FATE_NEVER && o->reason == REASON_CONFLICT)
            assert_true(by != 0 && differs && m->rules.conflict == CONFLICT_DEAD_LETTER);
        if (o->fate == FATE_NEVER && o->reason == REASON_UNIQUE_CONFLICT)
            assert_true(m->mail_of[o->mail] != 0);
        if (o->fate == FATE_NEVER && o->reason == REASON_VALIDATION)
            assert_int_equal(o->fault, INVALID);
        if (o->fate == FATE_NEVER && o->reason == REASON_TOO_LARGE)
            assert_int_equal(o->fault, HUGE_ONE);
        if (o->fate == FATE_NEVER && o->reason == REASON_TOO_DEEP)
            assert_int_equal(o->fault, DEEP);
        if (o->final)
            continue;
        /* It failed for now: nothing behind it may be settled, nor applied while nothing with its
         * key is. */
        for (size_t j = i + 1; j < n; j++) {
            struct model_op *later = &m->all[index[j]];
            if (o->lane < 0 || later->lane != o->lane)
                continue;
            if (later->final)
                fail_msg("%zu is settled behind %zu, which failed for now", index[j], index[i]);
            if (later->executed_at && !o->executed_at && !by)
                fail_msg("%zu was applied before %zu of its lane", index[j], index[i]);
        }
    }
}

/* What must hold in the end: G1, G2, G3, G6. */
static void model_check_end(struct model *m)
{
    for (int k = 0; k < m->keys; k++) {
        int by = m->stored_by[k];
        for (size_t i = 0; by > 0 && i + 1 < (size_t)by; i++)
            if (m->all[i].key == k && m->all[i].lane >= 0 &&
                m->all[i].lane == m->all[by - 1].lane && m->all[i].fate != FATE_NEVER &&
                m->all[i].fault != ODD)
                fail_msg("key %d: %d is stored, %zu of its lane was first", k, by - 1, i);
    }
    for (size_t i = 0; i < m->n; i++) {
        struct model_op *o = &m->all[i];
        if (o->fault == ODD && !o->final) {
            assert_true(o->fate != FATE_NEVER); /* never dead-lettered */
            continue;
        }
        if (!o->final)
            fail_msg("%zu has no end", i);
        if (o->fate != FATE_NEVER)
            assert_true(m->stored_by[o->key] != 0);
        if (o->fault == GOOD && o->fate == FATE_NEVER)
            assert_true(o->reason == REASON_UNIQUE_CONFLICT || o->reason == REASON_CONFLICT);
        for (size_t j = i + 1; j < m->n; j++)
            if (o->lane >= 0 && m->all[j].lane == o->lane && o->executed_at &&
                m->all[j].executed_at && m->all[j].executed_at < o->executed_at &&
                m->all[j].fate == FATE_INSERTED)
                fail_msg("%zu was stored before %zu of its lane", j, i);
    }
}

/* A third each by upsert, insert and auto; half of them with a check. Some documents are there
 * before, some of these without a hash. */
static void model_rules(struct model *m)
{
    m->rules.look_first = dice_below(&m->dice, 3) == 0;
    if (dice_below(&m->dice, 2)) {
        m->rules.conflict = dice_below(&m->dice, 2) ? CONFLICT_COUNT : CONFLICT_DEAD_LETTER;
        m->rules.conflict_field = "h";
    }
    m->strange_permille = dice_below(&m->dice, 4) ? 0 : (unsigned)dice_below(&m->dice, 60);
    m->before_permille = dice_below(&m->dice, 2) ? 0 : (unsigned)dice_below(&m->dice, 500);
}

static void model_fill(struct model *m, size_t n)
{
    static const enum fault_kind faults[] = {INVALID, HUGE_ONE, DEEP, ODD};
    int lanes = 1 + (int)dice_below(&m->dice, 12);
    unsigned bad = dice_below(&m->dice, 3) ? 0 : 60;
    unsigned clash = dice_below(&m->dice, 3) ? 0 : 200;

    m->n = n;
    m->all = mem_array(n, sizeof *m->all);
    m->keys = 1 + (int)dice_below(&m->dice, 2 * n);
    m->mails = m->keys;
    m->stored_by = mem_array((size_t)m->keys, sizeof *m->stored_by);
    m->mail_of = mem_array((size_t)m->mails, sizeof *m->mail_of);
    m->content = mem_array((size_t)m->keys, 1);
    model_rules(m);
    bool inserts = m->rules.look_first || dice_below(&m->dice, 2);
    for (int k = 0; k < m->keys; k++)
        if (dice_permille(&m->dice, m->before_permille)) {
            m->stored_by[k] = -1;
            m->content[k] = dice_below(&m->dice, 4) ? 'x' : 0;
        }
    for (size_t i = 0; i < n; i++) {
        struct model_op *o = &m->all[i];
        char key[16], lane[2];
        o->key = (int)dice_below(&m->dice, (uint64_t)m->keys);
        o->mail =
            dice_permille(&m->dice, clash) ? (int)dice_below(&m->dice, (uint64_t)m->mails) : o->key;
        o->lane = dice_permille(&m->dice, 50) ? -1 : (int)dice_below(&m->dice, (uint64_t)lanes);
        if (dice_below(&m->dice, 2)) /* most often a key has one lane */
            o->lane = o->key % lanes;
        o->fault = dice_permille(&m->dice, bad) ? faults[dice_below(&m->dice, 4)] : GOOD;
        snprintf(key, sizeof key, "k%d", o->key);
        snprintf(lane, sizeof lane, "%c", 'A' + o->lane);
        o->content = (char)('x' + (int)dice_below(&m->dice, 3) / 2); /* mostly the same */
        o->op = op_new(inserts || !dice_below(&m->dice, 8) ? WRITE_KIND_INSERT : WRITE_KIND_UPSERT,
                       key, o->lane < 0 ? NULL : lane, dice_below(&m->dice, 300));
        if (m->rules.conflict != CONFLICT_OFF)
            append_hash(o->op.document, o->content);
        if (o->fault == DEEP)
            op_deepen(&o->op, 100);
    }
}

/* Something that will have an end has none yet. */
static bool model_open(const struct model *m)
{
    for (size_t i = 0; i < m->n; i++)
        if (!m->all[i].final && m->all[i].fault != ODD)
            return true;
    return false;
}

/* Batches in order; what failed for now comes back in its old place, as the scheduler would do it.
 */
static void model_run(struct model *m, struct plan *p)
{
    size_t *index = mem_array(m->n, sizeof *index);

    for (int round = 0; model_open(m); round++) {
        size_t n = 0, cap = 1 + dice_below(&m->dice, m->n);
        bool held[64] = {false};
        for (size_t i = 0; i < m->n; i++) {
            const struct model_op *o = &m->all[i];
            /* In the end the odd ones are taken out, or their lanes would never move. */
            if (o->final || (round > 100 && o->fault == ODD))
                continue;
            if (n < cap && !(o->lane >= 0 && held[o->lane]))
                index[n++] = i;
            else if (o->lane >= 0)
                held[o->lane] = true;
        }
        if (round > 60)
            m->trouble_permille = 0;
        model_batch(m, p, index, n);
        model_check_batch(m, index, n);
        assert_true(round < 400);
    }
    mem_free(index);
}

static void test_random_batches(void **state)
{
    struct dice dice = dice_seed("test_plan");
    struct plan_limits limits = {0};
    size_t commands = 0, sent = 0;

    (void)state;
    for (int run = 0; run < 1500; run++) {
        limits.max_ops = 1 + dice_below(&dice, 40);
        limits.max_bytes = 200 + dice_below(&dice, 20000);
        struct plan *p = plan_new(&limits);
        struct model m = {.dice = dice_split(&dice), .limits = limits};
        m.trouble_permille = dice_below(&m.dice, 2) ? 0 : 30;
        model_fill(&m, 1 + dice_below(&m.dice, 80));
        model_run(&m, p);
        model_check_end(&m);
        commands += m.commands;
        sent += m.sent;
        plan_free(p);
        for (size_t i = 0; i < m.n; i++)
            ops_free(&m.all[i].op, 1);
        mem_free(m.all);
        mem_free(m.stored_by);
        mem_free(m.content);
        mem_free(m.mail_of);
    }
    fprintf(stderr, "test_plan: %zu commands, %zu operations sent\n", commands, sent);
}

/* How many commands a batch of n takes when the operations of the given faults are as they are. */
static size_t commands_for(size_t n, size_t lane_length, size_t bad_every, enum fault_kind fault)
{
    struct plan_limits limits = {.max_ops = 1000, .max_bytes = 1 << 24};
    struct plan *p = plan_new(&limits);
    struct model m = {.n = n, .limits = limits, .keys = (int)n, .mails = (int)n};
    size_t *index = mem_array(n, sizeof *index);

    m.all = mem_array(n, sizeof *m.all);
    m.stored_by = mem_array(n, sizeof *m.stored_by);
    m.content = mem_array(n, 1);
    m.mail_of = mem_array(n, sizeof *m.mail_of);
    char *lanes = mem_array(n, 1);
    for (size_t i = 0; i < n; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", (int)i);
        m.all[i] = (struct model_op){.key = (int)i, .mail = (int)i, .lane = -1};
        m.all[i].op = op_new(WRITE_KIND_UPSERT, key, NULL, 10);
        m.all[i].op.lane = &lanes[i % (n / lane_length)];
        m.all[i].fault = bad_every && i % bad_every == bad_every / 2 ? fault : GOOD;
        index[i] = i;
    }
    model_batch(&m, p, index, n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(m.all[i].fate, m.all[i].fault == GOOD ? FATE_INSERTED : FATE_NEVER);
        ops_free(&m.all[i].op, 1);
    }
    plan_free(p);
    mem_free(m.all);
    mem_free(m.stored_by);
    mem_free(m.content);
    mem_free(m.mail_of);
    mem_free(index);
    mem_free(lanes);
    return m.commands;
}

static void test_how_many_commands(void **state)
{
    (void)state;
    assert_int_equal(commands_for(1000, 1, 0, GOOD), 1);
    assert_int_equal(commands_for(1000, 4, 0, GOOD), 1);
    /* Errors of an unordered command cost nothing. */
    assert_int_equal(commands_for(1000, 1, 2, INVALID), 1);
    /* One stop: one command more. */
    assert_int_equal(commands_for(1000, 1000, 1000, INVALID), 2);
    /* Many stops with short lanes: as many rounds as a lane is long, and as many stops before. */
    assert_in_range(commands_for(1000, 4, 2, INVALID), 4, 10);
    /* One that can't be sent: halving down and doubling up. */
    assert_in_range(commands_for(1000, 1, 1000, HUGE_ONE), 10, 25);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_how_many_commands),
        cmocka_unit_test(test_random_batches),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
