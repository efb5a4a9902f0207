/* Each rule of plan.h by hand. */
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

#include "plan_ops.h"

static void append_hash(bson_t *b, char content)
{
    uint8_t hash[CANONICAL_HASH_BYTES];

    memset(hash, content, sizeof hash);
    BSON_APPEND_BINARY(b, "h", BSON_SUBTYPE_BINARY, hash, sizeof hash);
}

/* "Aa Ab Ba i:Cc Da=x": lane and key of each operation; i: an insert; - no lane; x: its payload's
 * hash. */
static size_t ops_of(const char *text, struct write_op *ops, size_t cap)
{
    size_t n = 0;

    for (const char *p = text; *p && n < cap; n++) {
        enum write_kind kind = WRITE_KIND_UPSERT;
        if (p[0] == 'i' && p[1] == ':') {
            kind = WRITE_KIND_INSERT;
            p += 2;
        }
        char lane[2] = {p[0], 0}, key[2] = {p[1], 0};
        ops[n] = op_new(kind, key, p[0] == '-' ? NULL : lane, 0);
        p += 2;
        if (*p == '=') {
            append_hash(ops[n].document, p[1]);
            p += 2;
        }
        while (*p == ' ')
            p++;
    }
    return n;
}

/* ---- scripted conversations ---- */

struct talk {
    struct plan *p;
    struct write_op ops[32];
    size_t n;
    struct plan_command c;
};

static void talk_begin_with(struct talk *t, const char *text, size_t max_ops,
                            const struct plan_rules *rules)
{
    struct plan_limits limits = {.max_ops = max_ops, .max_bytes = 1 << 20};

    t->p = plan_new(&limits);
    t->n = ops_of(text, t->ops, 32);
    plan_begin(t->p, t->ops, t->n, rules);
}

static void talk_begin(struct talk *t, const char *text, size_t max_ops)
{
    talk_begin_with(t, text, max_ops, NULL);
}

static void talk_end(struct talk *t)
{
    plan_free(t->p);
    ops_free(t->ops, t->n);
}

/* Expects a command like "U 0 1", "Uo 0 1" (ordered), "I 2", "L 3", or "" for the end. */
static void command(struct talk *t, const char *want)
{
    char got[256] = "";
    size_t len = 0;

    if (plan_next(t->p, &t->c)) {
        static const char kinds[] = {[PLAN_UPSERT] = 'U', [PLAN_INSERT] = 'I', [PLAN_LOOK] = 'L'};
        len += (size_t)snprintf(got, sizeof got, "%c%s", kinds[t->c.kind], t->c.ordered ? "o" : "");
        for (size_t i = 0; i < t->c.n; i++)
            len += (size_t)snprintf(got + len, sizeof got - len, " %td", t->c.ops[i] - t->ops);
    }
    assert_string_equal(got, want);
}

/* Answers it: I inserted, D matched, or a code that follows: "I D 121 I". */
static void reply(struct talk *t, const char *text)
{
    bson_t b = BSON_INITIALIZER, upserted, errors, e;
    struct outcome_call call = {
        .fault = CALL_FINE, .ordered = t->c.ordered, .is_insert = t->c.kind == PLAN_INSERT};
    int32_t done = 0, index = 0;
    char key[16];
    int32_t n_upserted = 0, n_errors = 0;

    bson_init(&upserted);
    bson_init(&errors);
    for (const char *p = text; *p; index++) {
        char *end;
        long code = strtol(p, &end, 10);
        if (end != p) {
            snprintf(key, sizeof key, "%d", n_errors++);
            BSON_APPEND_DOCUMENT_BEGIN(&errors, key, &e);
            BSON_APPEND_INT32(&e, "index", index);
            BSON_APPEND_INT32(&e, "code", (int32_t)code);
            BSON_APPEND_UTF8(&e, "errmsg", "index: x");
            bson_append_document_end(&errors, &e);
            p = end;
        } else {
            done++;
            if (*p == 'I' && t->c.kind == PLAN_UPSERT) {
                snprintf(key, sizeof key, "%d", n_upserted++);
                BSON_APPEND_DOCUMENT_BEGIN(&upserted, key, &e);
                BSON_APPEND_INT32(&e, "index", index);
                bson_append_document_end(&upserted, &e);
            }
            p++;
        }
        while (*p == ' ')
            p++;
    }
    BSON_APPEND_INT32(&b, "n", done);
    BSON_APPEND_ARRAY(&b, "upserted", &upserted);
    BSON_APPEND_ARRAY(&b, "writeErrors", &errors);
    BSON_APPEND_INT32(&b, "ok", 1);
    plan_reply(t->p, &call, &b);
    bson_destroy(&b);
    bson_destroy(&upserted);
    bson_destroy(&errors);
}

/* Answers a read, a letter for each: - not there, F there without a hash, else there with that one;
 * "?": besides a document whose key bytes can't tell. */
static void looked(struct talk *t, const char *text)
{
    static const struct outcome_call fine = {.fault = CALL_FINE};
    bson_t array, b;

    for (size_t i = 0; text[i]; i++) {
        bson_init(&b);
        if (text[i] == '?') {
            BSON_APPEND_ARRAY_BEGIN(&b, "k", &array);
            bson_append_array_end(&b, &array);
        } else {
            MUST(i < t->c.n);
            MUST(bson_concat(&b, t->c.ops[i]->filter));
            if (text[i] != 'F')
                append_hash(&b, text[i]);
        }
        if (text[i] != '-')
            plan_found(t->p, &b);
        bson_destroy(&b);
    }
    plan_looked(t->p, &fine);
}

static void refuse(struct talk *t, enum call_fault fault, int code)
{
    struct outcome_call call = {
        .fault = fault, .code = code, .message = "too large", .ordered = t->c.ordered};

    plan_reply(t->p, &call, NULL);
}

static void refuse_look(struct talk *t, int code)
{
    struct outcome_call call = {.fault = CALL_SERVER, .code = code};

    plan_looked(t->p, &call);
}

/* One letter each: I D L U N; C: D, and a conflict. */
static void results(struct talk *t, const char *want)
{
    char got[64] = "";
    struct plan_command c;

    assert_false(plan_next(t->p, &c));
    const struct outcome *r = plan_results(t->p);
    for (size_t i = 0; i < t->n; i++) {
        static const char names[] = {
            [FATE_INSERTED] = 'I', [FATE_DUPLICATE] = 'D', [FATE_LOOK] = '?',
            [FATE_LATER] = 'L',    [FATE_UNKNOWN] = 'U',   [FATE_NEVER] = 'N',
            [FATE_NOT_RUN] = '?',  [FATE_SPLIT] = '?'};
        got[i] = names[r[i].fate];
        if (r[i].conflict && r[i].fate == FATE_DUPLICATE)
            got[i] = 'C';
    }
    assert_string_equal(got, want);
}

static void test_nothing(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "", 10);
    command(&t, "");
    results(&t, "");
    talk_end(&t);
}

static void test_unordered(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Bb Cc -d -e", 10);
    command(&t, "U 0 1 2 3 4");
    reply(&t, "I D 121 I D");
    results(&t, "IDNID");
    assert_int_equal(plan_results(t.p)[2].reason, REASON_VALIDATION);
    assert_string_equal(plan_results(t.p)[2].text, "index: x");
    talk_end(&t);
}

static void test_ordered_goes_on_behind_a_stop(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Ab Bc Ad Be", 10);
    command(&t, "Uo 0 1 2 3 4");
    reply(&t, "I 121");
    command(&t, "Uo 2 3 4");
    reply(&t, "I D I");
    results(&t, "INIDI");
    talk_end(&t);
}

static void test_what_is_behind_a_failure_for_now_waits(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Bb Ac Bd Ae", 10);
    command(&t, "Uo 0 1 2 3 4");
    reply(&t, "112");
    command(&t, "Uo 1 3");
    reply(&t, "I I");
    results(&t, "LILIL");
    assert_int_equal(plan_results(t.p)[4].retry, RETRY_CONFLICT);
    assert_int_equal(plan_results(t.p)[4].code, 112);
    talk_end(&t);
}

static void test_folding(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Aa Bb Aa Bb", 10);
    command(&t, "U 0 2"); /* alone of their lanes once folded */
    reply(&t, "I D");
    results(&t, "IDDDD");
    talk_end(&t);

    talk_begin(&t, "Aa Aa Ab", 10);
    command(&t, "Uo 0 2");
    reply(&t, "112");
    results(&t, "LLL");
    talk_end(&t);

    /* The whole command unknown: folded ones too. */
    talk_begin(&t, "Aa Aa -a", 10);
    command(&t, "U 0");
    refuse(&t, CALL_NETWORK, 4);
    results(&t, "ULL");
    assert_int_equal(plan_results(t.p)[2].retry, RETRY_NETWORK);
    talk_end(&t);
}

static void test_folded_across_lanes_keeps_the_order(void **state)
{
    struct talk t;

    (void)state;
    /* 1 is of lane B and hangs on 0; 2 is behind it. */
    talk_begin(&t, "Aa Ba Bb", 10);
    command(&t, "Uo 0 2");
    reply(&t, "112");
    results(&t, "LLL");
    talk_end(&t);

    talk_begin(&t, "Aa Ba Bb", 1);
    command(&t, "U 0");
    reply(&t, "I");
    command(&t, "U 2");
    reply(&t, "I");
    results(&t, "IDI");
    talk_end(&t);

    /* B failed for now before its folded one: that one waits although its leader is stored. */
    talk_begin(&t, "Bb Aa Ba", 10);
    command(&t, "U 0 1");
    reply(&t, "112 I");
    results(&t, "LIL");
    talk_end(&t);
}

static void test_another_content_is_tried_when_the_first_can_never_be_stored(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Aa Ab Aa Aa", 10);
    command(&t, "Uo 0 2");
    reply(&t, "121");
    command(&t, "Uo 1 2");
    reply(&t, "121");
    command(&t, "Uo 2 3");
    reply(&t, "I I");
    results(&t, "NNIID");
    talk_end(&t);
}

static void test_kinds_are_not_mixed_and_keep_their_lanes_order(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa i:Ab Ac Bd i:Ce", 10);
    command(&t, "U 0 3"); /* 2 may not pass 1 */
    reply(&t, "I I");
    command(&t, "I 1 4");
    reply(&t, "I I");
    command(&t, "U 2");
    reply(&t, "I");
    results(&t, "IIIII");
    talk_end(&t);
}

static void test_look(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Bb Cc", 10);
    command(&t, "U 0 1 2");
    reply(&t, "11000 I 11000");
    command(&t, "L 0 2"); /* one read for all */
    looked(&t, "F-");
    command(&t, "U 2"); /* it may have gone in between: once more */
    reply(&t, "11000");
    command(&t, "L 2");
    looked(&t, "-");
    results(&t, "DIN");
    assert_int_equal(plan_results(t.p)[2].reason, REASON_UNIQUE_CONFLICT);
    assert_int_equal(plan_results(t.p)[2].code, 11000);
    assert_string_equal(plan_results(t.p)[2].text, "index: x");
    assert_null(plan_results(t.p)[0].text);
    talk_end(&t);

    /* It was a roll-back: the second time it is stored. */
    talk_begin(&t, "Aa Ab", 10);
    command(&t, "Uo 0 1");
    reply(&t, "11000");
    command(&t, "L 0");
    looked(&t, "-");
    command(&t, "Uo 0 1");
    reply(&t, "I I");
    results(&t, "II");
    talk_end(&t);
}

static void test_look_failed(void **state)
{
    struct talk t;
    static const struct outcome_call rights = {.fault = CALL_SERVER, .code = 13};

    (void)state;
    talk_begin(&t, "Aa Bb i:Cc", 10);
    command(&t, "U 0 1");
    reply(&t, "11000 11000");
    command(&t, "L 0 1");
    plan_looked(t.p, &rights);
    results(&t, "UUL");
    assert_int_equal(plan_results(t.p)[1].retry, RETRY_RIGHTS);
    assert_int_equal(plan_results(t.p)[2].retry, RETRY_RIGHTS);
    assert_null(plan_results(t.p)[0].text);
    talk_end(&t);
}

/* A document whose key is an array, or a number that only the server holds for equal: what was not
 * found by its bytes is read by itself, where any answer is the answer. */
static void test_look_alone(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Bb Cc", 10);
    command(&t, "U 0 1 2");
    reply(&t, "11000 11000 11000");
    command(&t, "L 0 1 2");
    looked(&t, "-F-?");
    command(&t, "L 0");
    looked(&t, "?");
    command(&t, "L 2");
    looked(&t, "-");
    command(&t, "U 2");
    reply(&t, "I");
    results(&t, "DDI");
    talk_end(&t);

    /* A read that is refused for its size or for one of its operations. */
    talk_begin(&t, "Aa Bb", 10);
    command(&t, "U 0 1");
    reply(&t, "11000 11000");
    command(&t, "L 0 1");
    refuse_look(&t, 10334);
    command(&t, "L 0");
    looked(&t, "F");
    command(&t, "L 1");
    refuse_look(&t, 10334);
    results(&t, "DU");
    talk_end(&t);

    /* No more of them than a command holds. */
    talk_begin(&t, "Aa Bb Cc", 2);
    command(&t, "U 0 1");
    reply(&t, "11000 11000");
    command(&t, "L 0 1");
    looked(&t, "FF");
    command(&t, "U 2");
    reply(&t, "I");
    results(&t, "DDI");
    talk_end(&t);
}

/* A read that is refused alone by a code that nobody knows is doubtful, as a write would be. */
static void test_look_that_nobody_understands(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Bb Cc Ad", 10);
    command(&t, "Uo 0 1 2 3");
    reply(&t, "I 11000");
    command(&t, "L 1");
    refuse_look(&t, 424242);
    results(&t, "IULL");
    assert_int_equal(plan_results(t.p)[1].doubt, DOUBT_ALONE);
    assert_non_null(plan_results(t.p)[1].text);
    assert_int_equal(plan_results(t.p)[2].doubt, DOUBT_NONE);
    talk_end(&t);

    talk_begin(&t, "Aa Bb Cc", 10); /* a suspected one is read by itself from the start */
    t.ops[1].alone = true;
    plan_begin(t.p, t.ops, t.n, &(struct plan_rules){.look_first = true});
    command(&t, "L 0 2");
    looked(&t, "F-");
    command(&t, "L 1");
    looked(&t, "-");
    command(&t, "U 2");
    reply(&t, "I");
    command(&t, "U 1");
    reply(&t, "I");
    results(&t, "DII");
    talk_end(&t);
}

/* 2 MB of key each: two of them are all that one read may hold. */
static void test_look_bytes(void **state)
{
    enum { N = 5, KEY = 1900000 };
    struct plan_limits limits = {.max_ops = 1000, .max_bytes = 40 << 20};
    struct plan_rules rules = {.look_first = true};
    struct plan *p = plan_new(&limits);
    struct write_op ops[N];
    char *key = mem_new(KEY + 1);
    struct plan_command c;
    size_t asked = 0;

    (void)state;
    memset(key, 'k', KEY);
    for (int i = 0; i < N; i++) {
        key[0] = (char)('0' + i);
        ops[i] = op_new(WRITE_KIND_INSERT, key, NULL, 0);
    }
    plan_begin(p, ops, N, &rules);
    while (plan_next(p, &c) && c.kind == PLAN_LOOK) {
        bson_t filter = BSON_INITIALIZER;
        static const struct outcome_call fine = {.fault = CALL_FINE};
        look_filter(c.ops, c.n, &filter);
        assert_true(c.n <= 2 && filter.len < 5000000);
        asked += c.n;
        bson_destroy(&filter);
        plan_looked(p, &fine);
    }
    assert_int_equal(asked, N);
    struct outcome_call call = {.fault = CALL_SELECTION};
    plan_reply(p, &call, NULL);
    assert_false(plan_next(p, &c));
    plan_free(p);
    ops_free(ops, N);
    mem_free(key);
}

/* write = "auto" */
static void test_look_first(void **state)
{
    static const struct plan_rules rules = {.look_first = true};
    struct talk t;

    (void)state;
    talk_begin_with(&t, "i:Aa i:Ab i:Ac i:Bd i:Aa", 10, &rules);
    command(&t, "L 0 1 2 3");
    looked(&t, "-F-F");
    command(&t, "Io 0 2"); /* 1 waits for 0, and is not sent */
    reply(&t, "I I");
    results(&t, "IDIDD");
    talk_end(&t);

    talk_begin_with(&t, "i:Aa i:Ab i:Bc", 10, &rules); /* nothing is settled behind a failure */
    command(&t, "L 0 1 2");
    looked(&t, "-FF");
    command(&t, "I 0");
    reply(&t, "112");
    results(&t, "LLD");
    talk_end(&t);

    talk_begin_with(&t, "i:Aa i:Bb", 10, &rules); /* it came meanwhile */
    command(&t, "L 0 1");
    looked(&t, "--");
    command(&t, "I 0 1");
    reply(&t, "11000 I");
    command(&t, "L 0");
    looked(&t, "F");
    results(&t, "DI");
    talk_end(&t);

    talk_begin_with(&t, "i:Aa i:Bb", 10, &rules); /* an outage: nothing was tried */
    command(&t, "L 0 1");
    refuse_look(&t, 11602);
    results(&t, "LL");
    talk_end(&t);

    talk_begin_with(&t, "i:Aa i:Bb i:Ac", 10, &rules);
    command(&t, "L 0 1 2");
    looked(&t, "F-F");
    plan_stop(t.p, RETRY_TIMEOUT);
    results(&t, "DLD");
    talk_end(&t);
}

/* A lane full of duplicates by insert: one stop, one read, not one of both for each. */
static void test_insert_looks_ahead_once_it_was_stopped(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "i:Aa i:Ab i:Ac i:Ad Ae i:Bf", 10);
    command(&t, "Io 0 1 2 3 5");
    reply(&t, "I 11000");
    command(&t, "L 1 2 3 5");
    looked(&t, "F-F-");
    command(&t, "I 2 5"); /* 3 is there */
    reply(&t, "I I");
    command(&t, "U 4");
    reply(&t, "I");
    results(&t, "IDIDII");
    talk_end(&t);
}

static const struct plan_rules count_rules = {.conflict = CONFLICT_COUNT, .conflict_field = "h"};
static const struct plan_rules dead_rules = {.conflict = CONFLICT_DEAD_LETTER,
                                             .conflict_field = "h"};

static void test_conflicts(void **state)
{
    struct talk t;

    (void)state;
    talk_begin_with(&t, "Aa=x Bb=x Cc=x Dd=x Ee=x", 10, &count_rules);
    command(&t, "U 0 1 2 3 4");
    reply(&t, "I D D D 11000");
    command(&t, "L 1 2 3 4");
    looked(&t, "xyFy");
    results(&t, "IDCDC"); /* no hash: no conflict */
    talk_end(&t);

    talk_begin_with(&t, "Aa=x Bb=x", 10, &dead_rules);
    command(&t, "U 0 1");
    reply(&t, "D D");
    command(&t, "L 0 1");
    looked(&t, "xy");
    results(&t, "DN");
    assert_int_equal(plan_results(t.p)[1].reason, REASON_CONFLICT);
    assert_int_equal(plan_results(t.p)[1].code, 0);
    assert_non_null(strstr(plan_results(t.p)[1].text, "its h says"));
    talk_end(&t);

    /* Gone when it was read: it was there, and that was acknowledged. */
    talk_begin_with(&t, "Aa=x", 10, &dead_rules);
    command(&t, "U 0");
    reply(&t, "D");
    command(&t, "L 0");
    looked(&t, "-");
    results(&t, "D");
    talk_end(&t);

    /* By insert. */
    static const struct plan_rules first = {
        .look_first = true, .conflict = CONFLICT_DEAD_LETTER, .conflict_field = "h"};
    talk_begin_with(&t, "i:Aa=x i:Bb=x i:Cc=x", 10, &first);
    command(&t, "L 0 1 2");
    looked(&t, "xy-");
    command(&t, "I 2");
    reply(&t, "11000");
    command(&t, "L 2");
    looked(&t, "y");
    results(&t, "DNN");
    assert_int_equal(plan_results(t.p)[2].reason, REASON_CONFLICT);
    talk_end(&t);
}

static void test_conflicts_of_folded_ones(void **state)
{
    struct talk t;

    (void)state;
    talk_begin_with(&t, "Aa=x Aa=x Ba=y -a=x", 10, &count_rules);
    command(&t, "U 0");
    reply(&t, "I");
    results(&t, "IDCD"); /* no read: what is stored is known */
    talk_end(&t);

    talk_begin_with(&t, "Aa=x Aa=y Ba=z", 10, &dead_rules);
    command(&t, "U 0");
    reply(&t, "D");
    command(&t, "L 0");
    looked(&t, "y");
    results(&t, "NDN"); /* the first is none, the second says what is stored */
    talk_end(&t);

    talk_begin_with(&t, "Aa=x Aa=y", 10, &dead_rules); /* the first can't be stored at all */
    command(&t, "U 0");
    reply(&t, "121");
    command(&t, "U 1");
    reply(&t, "I");
    results(&t, "NI");
    talk_end(&t);
}

/* The read that compares fails: what was stored behind it in its lane may not be settled before. */
static void test_nothing_is_settled_before_the_check(void **state)
{
    struct talk t;

    (void)state;
    talk_begin_with(&t, "Aa=x Ab=x Bc=x Ad=x", 10, &dead_rules);
    command(&t, "Uo 0 1 2 3");
    reply(&t, "D I I 121");
    command(&t, "L 0");
    refuse_look(&t, 11602);
    results(&t, "UUIU");
    for (size_t i = 0; i < 4; i++)
        assert_null(plan_results(t.p)[i].text);
    assert_int_equal(plan_results(t.p)[1].retry, RETRY_NO_PRIMARY);
    talk_end(&t);

    talk_begin_with(&t, "Aa=x Ab=x Ac=x", 10, &dead_rules);
    command(&t, "Uo 0 1 2");
    reply(&t, "I D I");
    plan_stop(t.p, RETRY_TIMEOUT);
    results(&t, "IUU");
    talk_end(&t);
}

static void test_an_outage_costs_one_command(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Bb Cc Dd", 2);
    command(&t, "U 0 1");
    refuse(&t, CALL_SELECTION, 13053);
    results(&t, "UULL");
    assert_int_equal(plan_results(t.p)[3].retry, RETRY_NO_PRIMARY);
    talk_end(&t);
}

/* G6: one operation that the server can't judge does not hold up what has another way. */
static void test_an_unknown_one_is_not_an_outage(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa i:Bb", 10);
    command(&t, "U 0");
    reply(&t, "424242");
    command(&t, "I 1");
    reply(&t, "I");
    results(&t, "UI");
    talk_end(&t);
}

static void test_stop(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Bb Cc", 2);
    command(&t, "U 0 1");
    reply(&t, "I 11000");
    plan_stop(t.p, RETRY_TIMEOUT);
    results(&t, "IUL");
    assert_int_equal(plan_results(t.p)[1].retry, RETRY_TIMEOUT);
    assert_int_equal(plan_results(t.p)[2].retry, RETRY_TIMEOUT);
    talk_end(&t);
}

static void test_split(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Ab Ac Bd Be", 10);
    op_deepen(&t.ops[1], 81);
    command(&t, "Uo 0 1 2 3 4");
    refuse(&t, CALL_DOCUMENT, 0);
    command(&t, "Uo 0 1");
    refuse(&t, CALL_SERVER, 15);
    command(&t, "U 0");
    reply(&t, "I");
    command(&t, "Uo 1 2");
    refuse(&t, CALL_SERVER, 15);
    command(&t, "U 1");
    refuse(&t, CALL_SERVER, 15);
    command(&t, "U 2");
    reply(&t, "I");
    command(&t, "Uo 3 4");
    reply(&t, "I I");
    results(&t, "INIII");
    assert_int_equal(plan_results(t.p)[1].reason, REASON_TOO_DEEP);
    assert_string_equal(plan_results(t.p)[1].text, "too large");
    talk_end(&t);
}

/* What a server says of the whole command is believed of one that is nearly so large or deep. */
static void test_split_by_a_code_that_can_be(void **state)
{
    enum { LARGE = 15 << 20 };
    static const struct {
        int code;
        size_t bytes; /* of filter and document */
        unsigned levels;
        char fate;
    } cases[] = {
        {10334, 100, 0, 'U'},       {10334, LARGE, 90, 'U'}, {10334, LARGE + 1, 0, 'N'},
        {17420, LARGE + 1, 0, 'N'}, {17419, 100, 0, 'U'},    {15, 100, 0, 'U'},
        {15, LARGE + 1, 80, 'U'},   {15, 100, 81, 'N'},      {22, LARGE + 1, 81, 'U'},
        {357, 100, 0, 'U'},         {378, 100, 0, 'U'},
    };

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char want[] = {cases[i].fate, 0};
        struct talk t;

        talk_begin(&t, "Aa", 10);
        if (cases[i].levels > 0)
            op_deepen(&t.ops[0], cases[i].levels);
        size_t less = t.ops[0].filter->len + t.ops[0].document->len + sizeof "\5b" + 5;
        if (cases[i].bytes > less) {
            uint8_t *blob = mem_new(cases[i].bytes - less);
            BSON_APPEND_BINARY(t.ops[0].document, "b", BSON_SUBTYPE_BINARY, blob,
                               (uint32_t)(cases[i].bytes - less));
            mem_free(blob);
            assert_int_equal(t.ops[0].filter->len + t.ops[0].document->len, cases[i].bytes);
        }
        command(&t, "U 0");
        refuse(&t, CALL_SERVER, cases[i].code);
        results(&t, want);
        const struct outcome *r = plan_results(t.p);
        assert_int_equal(r->code, cases[i].code);
        assert_string_equal(r->text, "too large");
        assert_int_equal(r->doubt, cases[i].fate == 'U' ? DOUBT_ALONE : DOUBT_NONE);
        assert_int_equal(r->reason, cases[i].fate == 'U'  ? REASON_NONE
                                    : cases[i].code == 15 ? REASON_TOO_DEEP
                                                          : REASON_TOO_LARGE);
        talk_end(&t);
    }
    (void)state;
}

static void test_split_by_an_unknown_code(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Bb Cc", 10);
    command(&t, "U 0 1 2");
    refuse(&t, CALL_SERVER, 424242);
    command(&t, "U 0");
    refuse(&t, CALL_SERVER, 424242);
    command(&t, "U 1");
    reply(&t, "I"); /* so it was 0's fault */
    command(&t, "U 2");
    reply(&t, "I");
    results(&t, "UII");
    assert_int_equal(plan_results(t.p)[0].code, 424242);
    talk_end(&t);

    talk_begin(&t, "Aa Bb Cc Dd", 10);
    command(&t, "U 0 1 2 3");
    refuse(&t, CALL_SERVER, 424242);
    command(&t, "U 0 1");
    refuse(&t, CALL_SERVER, 424242);
    command(&t, "U 0");
    refuse(&t, CALL_SERVER, 424242);
    command(&t, "U 1");
    refuse(&t, CALL_SERVER, 424242); /* everybody's */
    results(&t, "UULL");
    talk_end(&t);
}

/* A suspected one: by itself, when nothing else can be sent; it holds up its own lane alone. */
static void test_suspected_ones_are_sent_alone(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "Aa Bb Bc Cd De -f", 10);
    t.ops[0].alone = t.ops[1].alone = t.ops[4].alone = true;
    command(&t, "U 3 5");
    reply(&t, "I I");
    command(&t, "U 0");
    reply(&t, "424242");
    command(&t, "U 1"); /* what is refused so often does not end the batch: others pass */
    refuse(&t, CALL_SERVER, 424242);
    command(&t, "U 4");
    reply(&t, "I");
    results(&t, "UULIII");
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(plan_results(t.p)[i].doubt, DOUBT_ALONE);
        assert_non_null(plan_results(t.p)[i].text);
        assert_int_equal(plan_results(t.p)[i].code, 424242);
    }
    assert_int_equal(plan_results(t.p)[2].doubt, DOUBT_NONE);
    talk_end(&t);

    talk_begin(&t, "Bb Bc Ba", 10); /* its lane goes on when it is stored */
    t.ops[0].alone = true;
    command(&t, "U 0");
    reply(&t, "D");
    command(&t, "Uo 1 2");
    reply(&t, "I I");
    results(&t, "DII");
    talk_end(&t);

    talk_begin(&t, "Aa Bb Cc Dd", 10); /* nobody passes: two are enough */
    for (size_t i = 0; i < 4; i++)
        t.ops[i].alone = true;
    command(&t, "U 0");
    reply(&t, "424242");
    command(&t, "U 1");
    refuse(&t, CALL_SERVER, 424243);
    results(&t, "UULL");
    assert_int_equal(plan_results(t.p)[3].code, 424243);
    talk_end(&t);

    talk_begin(&t, "Aa Ba Cb", 10); /* a folded one waits for its leader */
    t.ops[0].alone = true;
    command(&t, "U 2");
    reply(&t, "I");
    command(&t, "U 0");
    reply(&t, "424242");
    results(&t, "ULI");
    talk_end(&t);
}

/* G6: bad ones at the beginning, in the middle and at the end of one lane. */
static void test_three_bad_ones_in_one_lane(void **state)
{
    enum { N = 1000 };
    static const char lane = 'A';
    struct plan_limits limits = {.max_ops = N, .max_bytes = 32 << 20};
    struct plan *p = plan_new(&limits);
    struct write_op *ops = mem_array(N, sizeof *ops);
    struct plan_command c;
    size_t next = 0, commands = 0;

    (void)state;
    for (int i = 0; i < N; i++) {
        char key[16];
        snprintf(key, sizeof key, "k%d", i);
        ops[i] = op_new(WRITE_KIND_INSERT, key, &lane, 0);
        if (i == 0 || i == N / 2 || i == N - 1)
            op_deepen(&ops[i], 100);
    }
    plan_begin(p, ops, N, NULL);
    while (plan_next(p, &c)) {
        struct outcome_call call = {.ordered = c.ordered, .is_insert = true};
        bool bad = false;
        commands++;
        for (size_t i = 0; i < c.n; i++) {
            size_t at = (size_t)(c.ops[i] - ops);
            bad = bad || at == 0 || at == N / 2 || at == N - 1;
        }
        if (bad) {
            call.fault = CALL_SERVER;
            call.code = 15;
            plan_reply(p, &call, NULL);
            continue;
        }
        for (size_t i = 0; i < c.n; i++, next++) { /* in order, none left out but a bad one */
            next += next == 0 || next == N / 2;
            assert_int_equal(c.ops[i] - ops, next);
        }
        bson_t b = BSON_INITIALIZER;
        BSON_APPEND_INT32(&b, "n", (int32_t)c.n);
        plan_reply(p, &call, &b);
        bson_destroy(&b);
    }
    const struct outcome *r = plan_results(p);
    for (size_t i = 0; i < N; i++) {
        bool bad = i == 0 || i == N / 2 || i == N - 1;
        assert_int_equal(r[i].fate, bad ? FATE_NEVER : FATE_INSERTED);
        assert_int_equal(r[i].reason, bad ? REASON_TOO_DEEP : REASON_NONE);
    }
    assert_in_range(commands, 20, 70);
    plan_free(p);
    ops_free(ops, N);
    mem_free(ops);
}

static void test_limits(void **state)
{
    struct plan_limits limits = {.max_ops = 1000, .max_bytes = 3000};
    struct plan *p = plan_new(&limits);
    struct write_op ops[4];
    struct plan_command c;
    struct outcome_call call = {.fault = CALL_SELECTION};

    (void)state;
    ops[0] = op_new(WRITE_KIND_UPSERT, "a", "A", 5000); /* alone, though above the limit */
    ops[1] = op_new(WRITE_KIND_UPSERT, "b", "B", 1000);
    ops[2] = op_new(WRITE_KIND_UPSERT, "c", "C", 1000);
    ops[3] = op_new(WRITE_KIND_UPSERT, "d", "D", 1000);
    plan_begin(p, ops, 4, NULL);
    assert_true(plan_next(p, &c));
    assert_int_equal(c.n, 1);
    plan_reply(p, &call, NULL);
    assert_false(plan_next(p, &c));

    plan_begin(p, ops + 1, 3, NULL);
    assert_true(plan_next(p, &c));
    assert_int_equal(c.n, 2);
    plan_reply(p, &call, NULL);
    assert_false(plan_next(p, &c));
    plan_free(p);
    ops_free(ops, 4);
}

/* 600 errors that echo 50 kB each would pass 16 MB. */
static void test_echo_limit(void **state)
{
    enum { N = 600, KEY = 50000 };
    struct plan_limits limits = {.max_ops = 1000, .max_bytes = 40 << 20};
    struct plan *p = plan_new(&limits);
    struct write_op *ops = mem_array(N, sizeof *ops);
    char *key = mem_new(KEY + 1);
    struct plan_command c;
    struct outcome_call call = {.fault = CALL_SELECTION};

    (void)state;
    memset(key, 'k', KEY);
    for (int i = 0; i < N; i++) {
        char digits[8];
        snprintf(digits, sizeof digits, "%06d", i);
        memcpy(key, digits, 6);
        ops[i] = op_new(WRITE_KIND_UPSERT, key, NULL, 0);
    }
    plan_begin(p, ops, N, NULL);
    assert_true(plan_next(p, &c));
    assert_true(c.n > 50 && c.n * 2 * KEY < 16000000);
    plan_reply(p, &call, NULL);
    assert_false(plan_next(p, &c));
    plan_free(p);
    ops_free(ops, N);
    mem_free(ops);
    mem_free(key);
}

/* Of those whose leader can't be stored the first is tried next, though a later one is looked at
 * before it: else A would wait for 7, which is behind 6 in B, and B for 5, which is behind 4 in A.
 */
static void test_the_first_is_tried_next(void **state)
{
    struct talk t;

    (void)state;
    talk_begin(&t, "i:Xk i:Cp i:Cr Ah Ak Am Bm i:Bk", 10);
    command(&t, "Io 0 1 2");
    reply(&t, "121");
    command(&t, "Io 1 2");
    reply(&t, "11000"); /* looks ahead for the inserts */
    command(&t, "L 1 2");
    looked(&t, "F-");
    command(&t, "I 2");
    reply(&t, "I");
    command(&t, "Uo 3 4 5");
    reply(&t, "I I I");
    results(&t, "NDIIIIDD");
    talk_end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_first_is_tried_next),
        cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_unordered),
        cmocka_unit_test(test_ordered_goes_on_behind_a_stop),
        cmocka_unit_test(test_what_is_behind_a_failure_for_now_waits),
        cmocka_unit_test(test_folding),
        cmocka_unit_test(test_folded_across_lanes_keeps_the_order),
        cmocka_unit_test(test_another_content_is_tried_when_the_first_can_never_be_stored),
        cmocka_unit_test(test_kinds_are_not_mixed_and_keep_their_lanes_order),
        cmocka_unit_test(test_look),
        cmocka_unit_test(test_look_failed),
        cmocka_unit_test(test_look_alone),
        cmocka_unit_test(test_look_that_nobody_understands),
        cmocka_unit_test(test_look_bytes),
        cmocka_unit_test(test_look_first),
        cmocka_unit_test(test_insert_looks_ahead_once_it_was_stopped),
        cmocka_unit_test(test_conflicts),
        cmocka_unit_test(test_conflicts_of_folded_ones),
        cmocka_unit_test(test_nothing_is_settled_before_the_check),
        cmocka_unit_test(test_an_outage_costs_one_command),
        cmocka_unit_test(test_an_unknown_one_is_not_an_outage),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_split),
        cmocka_unit_test(test_split_by_a_code_that_can_be),
        cmocka_unit_test(test_split_by_an_unknown_code),
        cmocka_unit_test(test_suspected_ones_are_sent_alone),
        cmocka_unit_test(test_three_bad_ones_in_one_lane),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_echo_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
