/*
 * test_coalesce.c - the set of invalidations: rules one by one, then against a
 * naive model under random adds, sends, failures and time.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core/coalesce.h"
#include "fakes/dice.h"

enum { RULE_PLAIN, RULE_WAITS, RULE_COLLAPSES, RULE_AT_ONCE, RULES };
enum { WINDOW_MS = 100, REPEAT_MS = 2000, SET = 8 };

static const struct invalidation everything = {
    .kind = INVALIDATION_PUBLISH, .rule = RULE_COLLAPSES, .name = (char *)(uintptr_t) "all"};

static const struct coalesce_rule rules[RULES] = {
    [RULE_PLAIN] = {.coalesce_ms = WINDOW_MS},
    [RULE_WAITS] = {.coalesce_ms = WINDOW_MS, .repeat_after_ms = REPEAT_MS, .waits = true},
    [RULE_COLLAPSES] = {.coalesce_ms = WINDOW_MS,
                        .repeat_after_ms = 30,
                        .waits = true,
                        .collapsed = &everything},
    [RULE_AT_ONCE] = {.repeat_after_ms = 50, .waits = true},
};

static void add(struct coalesce *c, enum invalidation_kind kind, uint32_t rule, const char *name,
                struct coalesce_waiter *w, int64_t now_ms)
{
    struct invalidation_list l = {0};

    invalidation_add(&l, kind, rule, mem_text(name),
                     invalidation_goes_first(kind) ? NULL : mem_text("{}"));
    coalesce_add(c, &l, w, now_ms);
    assert_int_equal(l.n, 0);
}

static void add_pair(struct coalesce *c, uint32_t rule, const char *key, const char *channel,
                     int64_t now_ms)
{
    struct invalidation_list l = {0};

    invalidation_add(&l, INVALIDATION_PUBLISH, rule, mem_text(channel), mem_text("{}"));
    invalidation_add(&l, INVALIDATION_UNLINK, rule, mem_text(key), NULL);
    coalesce_add(c, &l, NULL, now_ms);
}

/* What is due, as "name name", all answered well or all not. */
static const char *send_all(struct coalesce *c, int64_t now_ms, bool well, int64_t retry_at_ms,
                            struct coalesce_waiter **released)
{
    static char text[512];
    const struct invalidation *const *out;
    bool ok[SET];
    size_t n = coalesce_due(c, now_ms, &out);
    struct coalesce_waiter *done = NULL;

    text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        size_t used = strlen(text);
        (void)snprintf(text + used, sizeof text - used, "%s%s", i ? " " : "", out[i]->name);
        ok[i] = well;
    }
    if (n > 0)
        done = coalesce_sent(c, ok, retry_at_ms);
    if (released)
        *released = done;
    else
        assert_null(done);
    return text;
}

static const char *sent(struct coalesce *c, int64_t now_ms)
{
    return send_all(c, now_ms, true, 0, NULL);
}

static void first_is_sent_at_once_and_the_rest_at_the_end(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, SIZE_MAX, SET);

    (void)state;
    assert_int_equal(coalesce_next_due(c), INT64_MAX);
    add(c, INVALIDATION_PUBLISH, RULE_PLAIN, "a", NULL, 1000);
    assert_int_equal(coalesce_next_due(c), 1000);
    assert_string_equal(sent(c, 1000), "a");
    for (int64_t at = 1001; at < 1100; at += 9)
        add(c, INVALIDATION_PUBLISH, RULE_PLAIN, "a", NULL, at);
    assert_int_equal(coalesce_next_due(c), 1100);
    assert_string_equal(sent(c, 1099), "");
    assert_string_equal(sent(c, 1100), "a");
    assert_string_equal(sent(c, 1200), "");
    assert_int_equal(coalesce_targets(c), 0);
    add(c, INVALIDATION_PUBLISH, RULE_PLAIN, "a", NULL, 1201);
    assert_string_equal(sent(c, 1201), "a");
    assert_int_equal(coalesce_counts(c, RULE_PLAIN).sent, 3);
    assert_int_equal(coalesce_counts(c, RULE_PLAIN).merged, 10);
    coalesce_free(c);
}

static void targets_differ_by_kind_name_body_and_rule(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, SIZE_MAX, SET);
    struct invalidation_list l = {0};
    const struct invalidation *const *out;
    bool ok[SET] = {true, true, true, true, true};

    (void)state;
    invalidation_add(&l, INVALIDATION_PUBLISH, RULE_PLAIN, mem_text("a"), mem_text("{}"));
    invalidation_add(&l, INVALIDATION_PUBLISH, RULE_PLAIN, mem_text("a"), mem_text("[]"));
    invalidation_add(&l, INVALIDATION_PUBLISH, RULE_PLAIN, mem_text("a{}"), mem_text(""));
    invalidation_add(&l, INVALIDATION_PUBLISH, RULE_COLLAPSES, mem_text("a"), mem_text("{}"));
    invalidation_add(&l, INVALIDATION_UNLINK, RULE_PLAIN, mem_text("a"), NULL);
    invalidation_add(&l, INVALIDATION_UNLINK, RULE_PLAIN, mem_text("a"), NULL);
    coalesce_add(c, &l, NULL, 5);
    assert_int_equal(coalesce_pending(c), 5);
    assert_int_equal(coalesce_due(c, 5, &out), 5);
    assert_int_equal(out[0]->kind, INVALIDATION_UNLINK);
    assert_null(out[0]->body);
    assert_string_equal(out[2]->body, "[]");
    assert_null(coalesce_sent(c, ok, 0));
    coalesce_free(c);
}

/* What rules say about their keys and streams comes out as it went in. */
static void version_and_stream_keep_what_they_need(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, SIZE_MAX, SET);
    struct invalidation_list l = {0};
    const struct invalidation *const *out;
    bool ok[SET] = {true, true, true, true};

    (void)state;
    invalidation_add(&l, INVALIDATION_XADD, RULE_PLAIN, mem_text("a"), mem_text("{}"))->maxlen = 7;
    invalidation_add(&l, INVALIDATION_PUBLISH, RULE_PLAIN, mem_text("a"), mem_text("{}"));
    invalidation_add(&l, INVALIDATION_INCR, RULE_PLAIN, mem_text("a"), NULL)->expire_ms = 9;
    invalidation_add(&l, INVALIDATION_UNLINK, RULE_PLAIN, mem_text("a"), NULL);
    coalesce_add(c, &l, NULL, 5);
    assert_int_equal(coalesce_due(c, 5, &out), 4);
    assert_int_equal(out[0]->kind, INVALIDATION_INCR);
    assert_int_equal(out[0]->expire_ms, 9);
    assert_int_equal(out[1]->kind, INVALIDATION_UNLINK);
    assert_int_equal(out[2]->kind, INVALIDATION_XADD);
    assert_int_equal(out[2]->maxlen, 7);
    assert_string_equal(out[2]->body, "{}");
    assert_int_equal(out[3]->kind, INVALIDATION_PUBLISH);
    assert_null(coalesce_sent(c, ok, 0));
    coalesce_free(c);
}

static void version_and_stream_have_windows_and_repetitions(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, SIZE_MAX, SET);

    (void)state;
    for (int64_t at = 0; at < 90; at += 10) {
        add(c, INVALIDATION_INCR, RULE_WAITS, "g", NULL, at);
        add(c, INVALIDATION_XADD, RULE_WAITS, "s", NULL, at);
        assert_string_equal(sent(c, at), at == 0 ? "g s" : "");
    }
    assert_string_equal(sent(c, 100), "g s");
    assert_string_equal(sent(c, 99 + REPEAT_MS), "");
    assert_string_equal(sent(c, 100 + REPEAT_MS), "g s");
    assert_int_equal(coalesce_targets(c), 0);
    /* The generation's window is open; an entry of the same event must not overtake it. */
    add(c, INVALIDATION_INCR, RULE_PLAIN, "g", NULL, 5000);
    assert_string_equal(sent(c, 5000), "g");
    struct invalidation_list l = {0};
    invalidation_add(&l, INVALIDATION_XADD, RULE_PLAIN, mem_text("s"), mem_text("{}"));
    invalidation_add(&l, INVALIDATION_INCR, RULE_PLAIN, mem_text("g"), NULL);
    coalesce_add(c, &l, NULL, 5010);
    assert_string_equal(sent(c, 5010), "g s");
    coalesce_free(c);
}

/* A pattern covers monSQLize's keys; generations and entries of streams are not covered by
 * anything.
 */
static void nothing_stands_for_version_and_stream(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 3, SIZE_MAX, SET);
    struct coalesce_waiter w = {0}, *released;

    (void)state;
    add(c, INVALIDATION_INCR, RULE_COLLAPSES, "g", NULL, 0);
    add(c, INVALIDATION_XADD, RULE_COLLAPSES, "s", NULL, 0);
    add(c, INVALIDATION_PUBLISH, RULE_COLLAPSES, "p", NULL, 0);
    add(c, INVALIDATION_INCR, RULE_COLLAPSES, "g2", NULL, 0);
    add(c, INVALIDATION_XADD, RULE_COLLAPSES, "s2", NULL, 0);
    assert_int_equal(coalesce_counts(c, RULE_COLLAPSES).dropped, 2);
    assert_int_equal(coalesce_counts(c, RULE_COLLAPSES).collapsed, 0);
    add(c, INVALIDATION_XADD, RULE_WAITS, "s3", &w, 0); /* somebody waits: above the cap */
    assert_int_equal(w.missing, 1);
    add(c, INVALIDATION_PUBLISH, RULE_COLLAPSES, "p2", NULL, 0);
    assert_int_equal(coalesce_counts(c, RULE_COLLAPSES).collapsed, 2); /* p and p2, not s */
    assert_string_equal(send_all(c, 0, true, 0, &released), "g s s3 all");
    assert_ptr_equal(released, &w);
    coalesce_free(c);
}

static void repeats_once_and_a_newer_send_replaces_it(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, SIZE_MAX, SET);

    (void)state;
    add(c, INVALIDATION_PUBLISH, RULE_WAITS, "a", NULL, 0);
    assert_string_equal(sent(c, 0), "a");
    assert_int_equal(coalesce_pending(c), 0);
    assert_int_equal(coalesce_next_due(c), REPEAT_MS);
    add(c, INVALIDATION_PUBLISH, RULE_WAITS, "a", NULL, 500);
    assert_string_equal(sent(c, 500), "a");
    assert_string_equal(sent(c, REPEAT_MS), "");
    assert_string_equal(sent(c, 500 + REPEAT_MS), "a");
    assert_int_equal(coalesce_next_due(c), INT64_MAX);
    assert_int_equal(coalesce_targets(c), 0);
    assert_int_equal(coalesce_counts(c, RULE_WAITS).sent, 2);
    assert_int_equal(coalesce_counts(c, RULE_WAITS).repeated, 1);
    coalesce_free(c);
}

static void repetition_delays_nobody(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, SIZE_MAX, SET);
    struct coalesce_waiter w = {0}, *released;
    const struct invalidation *const *out;
    bool ok[SET] = {true};

    (void)state;
    add(c, INVALIDATION_PUBLISH, RULE_WAITS, "a", NULL, 0);
    assert_string_equal(sent(c, 0), "a");
    assert_int_equal(coalesce_due(c, REPEAT_MS, &out), 1); /* the repetition is on its way */
    add(c, INVALIDATION_PUBLISH, RULE_WAITS, "a", &w, REPEAT_MS + 1);
    assert_int_equal(w.missing, 1);
    assert_int_equal(coalesce_pending(c), 1);
    assert_null(coalesce_sent(c, ok, 0));
    assert_string_equal(send_all(c, REPEAT_MS + 1, true, 0, &released), "a");
    assert_ptr_equal(released, &w);
    assert_null(released->next);
    coalesce_free(c);
}

static void waiter_needs_a_send_that_started_after_it(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, SIZE_MAX, SET);
    struct coalesce_waiter w1 = {0}, w2 = {0}, w3 = {0}, *released;
    const struct invalidation *const *out;
    bool ok[SET] = {true};

    (void)state;
    add(c, INVALIDATION_UNLINK, RULE_PLAIN, "nobody waits for this", &w3, 0);
    assert_int_equal(w3.missing, 0);
    assert_string_equal(sent(c, 0), "nobody waits for this");
    add(c, INVALIDATION_UNLINK, RULE_AT_ONCE, "k", &w1, 0);
    assert_int_equal(coalesce_due(c, 0, &out), 1);
    add(c, INVALIDATION_UNLINK, RULE_AT_ONCE, "k", &w2, 1);
    ok[0] = false;
    assert_null(coalesce_sent(c, ok, 50));
    assert_int_equal(coalesce_next_due(c), 50);
    assert_int_equal(coalesce_due(c, 50, &out), 1); /* after a failure one send is for both */
    add(c, INVALIDATION_UNLINK, RULE_AT_ONCE, "k", &w3, 51);
    ok[0] = true;
    released = coalesce_sent(c, ok, 0);
    assert_non_null(released);
    assert_non_null(released->next);
    assert_null(released->next->next);
    assert_int_equal(w1.missing + w2.missing, 0);
    assert_int_equal(w3.missing, 1);
    assert_string_equal(send_all(c, 51, true, 0, &released), "k");
    assert_ptr_equal(released, &w3);
    coalesce_free(c);
}

static void unlink_goes_before_the_publish_it_was_added_with(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, SIZE_MAX, SET);

    (void)state;
    add_pair(c, RULE_PLAIN, "key", "channel 1", 0);
    assert_string_equal(sent(c, 0), "key channel 1");
    /* The key's window is open until 100, another channel's is not open at all. */
    add_pair(c, RULE_PLAIN, "key", "channel 2", 40);
    assert_string_equal(sent(c, 40), "key channel 2");
    /* This channel is pending for 100, the key's window ends at 140. */
    add(c, INVALIDATION_PUBLISH, RULE_PLAIN, "channel 1", NULL, 50);
    add_pair(c, RULE_PLAIN, "key", "channel 1", 60);
    assert_int_equal(coalesce_next_due(c), 100);
    assert_string_equal(sent(c, 100), "key channel 1");
    assert_int_equal(coalesce_pending(c), 0);
    coalesce_free(c);
}

static void unlink_keeps_its_place_after_a_failure(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, SIZE_MAX, SET);
    const struct invalidation *const *out;
    bool ok[SET] = {false};

    (void)state;
    add_pair(c, RULE_PLAIN, "key", "channel", 0);
    assert_int_equal(coalesce_due(c, 0, &out), 2);
    add(c, INVALIDATION_UNLINK, RULE_PLAIN, "key", NULL, 1); /* would be due at 100 */
    assert_null(coalesce_sent(c, ok, 50));
    assert_string_equal(sent(c, 50), "key channel");
    coalesce_free(c);
}

static void at_the_cap_keys_collapse(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 3, SIZE_MAX, SET);
    struct coalesce_counts counts;

    (void)state;
    add(c, INVALIDATION_PUBLISH, RULE_COLLAPSES, "a", NULL, 0);
    add(c, INVALIDATION_PUBLISH, RULE_COLLAPSES, "b", NULL, 0);
    add(c, INVALIDATION_UNLINK, RULE_COLLAPSES, "key", NULL, 0);
    add(c, INVALIDATION_PUBLISH, RULE_COLLAPSES, "c", NULL, 0);
    counts = coalesce_counts(c, RULE_COLLAPSES);
    assert_int_equal(counts.collapsed, 3);
    assert_int_equal(counts.dropped, 0);
    assert_int_equal(coalesce_targets(c), 2);
    assert_string_equal(sent(c, 0), "key all");
    coalesce_free(c);
}

/* The cap in bytes is one like that in targets: what rests is forgotten first, then what comes is
 * dropped. */
static void bytes_are_capped_too(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, 4000, SET);
    char name[1500];

    (void)state;
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    name[0] = 'a';
    add(c, INVALIDATION_PUBLISH, RULE_PLAIN, name, NULL, 0);
    (void)sent(c, 0); /* rests until its window ends */
    for (name[0] = 'b'; name[0] <= 'g'; name[0]++)
        add(c, INVALIDATION_PUBLISH, RULE_PLAIN, name, NULL, 1);
    assert_int_equal(coalesce_targets(c), 3);
    assert_int_equal(coalesce_counts(c, RULE_PLAIN).dropped, 3);
    for (int64_t now = 1; now < 10000; now += 500)
        (void)sent(c, now);
    assert_int_equal(coalesce_counts(c, RULE_PLAIN).sent, 4);
    add(c, INVALIDATION_PUBLISH, RULE_PLAIN, name, NULL, 10000); /* there is room again */
    assert_int_equal(coalesce_counts(c, RULE_PLAIN).dropped, 3);
    coalesce_free(c);
}

static void collapsing_keeps_unlinks_in_front(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 3, SIZE_MAX, SET);

    (void)state;
    add_pair(c, RULE_COLLAPSES, "key", "a", 0);
    assert_string_equal(sent(c, 0), "key a");
    add_pair(c, RULE_COLLAPSES, "key", "a", 10); /* both due at 100 */
    assert_string_equal(sent(c, 10), "");
    add(c, INVALIDATION_UNLINK, RULE_AT_ONCE, "other", NULL, 20);
    add(c, INVALIDATION_PUBLISH, RULE_COLLAPSES, "b", NULL, 20);
    assert_string_equal(sent(c, 20), "key other all");
    coalesce_free(c);
}

static void at_the_cap_what_nobody_waits_for_is_dropped(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 2, SIZE_MAX, SET);
    struct coalesce_waiter w = {0}, w2 = {0};

    (void)state;
    add(c, INVALIDATION_UNLINK, RULE_PLAIN, "a", NULL, 0);
    assert_string_equal(sent(c, 0), "a");
    add(c, INVALIDATION_UNLINK, RULE_PLAIN, "b", NULL, 1);
    add(c, INVALIDATION_UNLINK, RULE_PLAIN, "c", NULL, 1); /* a rested: forgotten */
    assert_int_equal(coalesce_targets(c), 2);
    add(c, INVALIDATION_UNLINK, RULE_PLAIN, "d", NULL, 1);
    assert_int_equal(coalesce_counts(c, RULE_PLAIN).dropped, 1);
    add(c, INVALIDATION_UNLINK, RULE_PLAIN, "c", NULL, 1); /* is there: no room needed */
    assert_int_equal(coalesce_counts(c, RULE_PLAIN).dropped, 1);
    add(c, INVALIDATION_UNLINK, RULE_WAITS, "e", &w, 1);
    add(c, INVALIDATION_UNLINK, RULE_WAITS, "e", &w2, 1);
    assert_int_equal(coalesce_targets(c), 3);
    coalesce_abandon(c, &w);
    assert_int_equal(coalesce_targets(c), 3);
    coalesce_abandon(c, &w2);
    assert_int_equal(coalesce_targets(c), 2);
    assert_int_equal(coalesce_counts(c, RULE_WAITS).dropped, 1);
    assert_string_equal(sent(c, 1), "b c");
    coalesce_free(c);
}

static void drain_sends_what_is_pending_and_repeats_nothing(void **state)
{
    struct coalesce *c = coalesce_new(rules, RULES, 100, SIZE_MAX, SET);
    const struct invalidation *const *out;
    bool ok[SET] = {true};

    (void)state;
    add(c, INVALIDATION_PUBLISH, RULE_WAITS, "rests", NULL, 0);
    add(c, INVALIDATION_PUBLISH, RULE_WAITS, "a", NULL, 0);
    assert_string_equal(sent(c, 0), "rests a");
    add(c, INVALIDATION_PUBLISH, RULE_WAITS, "a", NULL, 1);
    add(c, INVALIDATION_PUBLISH, RULE_PLAIN, "b", NULL, 1);
    assert_int_equal(coalesce_due(c, 1, &out), 1); /* b */
    add(c, INVALIDATION_PUBLISH, RULE_PLAIN, "b", NULL, 2);
    coalesce_drain(c, 3);
    assert_null(coalesce_sent(c, ok, 0));
    assert_int_equal(coalesce_pending(c), 2);
    assert_string_equal(sent(c, 3), "a b");
    add(c, INVALIDATION_PUBLISH, RULE_WAITS, "a", NULL, 4);
    assert_string_equal(sent(c, 4), "a");
    assert_int_equal(coalesce_next_due(c), INT64_MAX);
    assert_int_equal(coalesce_targets(c), 0);
    assert_int_equal(coalesce_counts(c, RULE_WAITS).repeats_dropped, 1);
    coalesce_free(c);
}

/* --- the model: everything that was added and sent, looked through from the start each time --- */

enum {
    NAMES = 8,
    KINDS = INVALIDATION_XADD + 1, /* MIRRORs: test_mirror.c */
    TARGETS = RULES * NAMES * KINDS + 1,
    ADDS = 4000,
    GROUP = 4
};

struct seen { /* one target */
    bool wanted, failed, ever, repeating, repeated;
    int64_t last_at; /* start of the last send that was no repetition */
    uint64_t ok_seq; /* number of the set that last was answered; 0: none */
};

struct added {
    size_t target[GROUP];
    size_t n;
    uint64_t seq; /* sets numbered above this started after the add */
    bool waits, abandoned, released;
    struct coalesce_waiter waiter;
};

struct model {
    struct coalesce *c;
    struct dice dice;
    size_t cap;
    struct seen seen[TARGETS];
    struct added *adds;
    size_t n_adds;
    uint64_t seq; /* of the last set started */
    int64_t now_ms, hold_until_ms;
    bool draining;
};

static size_t target_index(enum invalidation_kind kind, uint32_t rule, const char *name)
{
    if (strcmp(name, "all") == 0)
        return TARGETS - 1;
    return ((size_t)rule * NAMES + (size_t)(name[0] - 'a')) * KINDS + (size_t)kind;
}

static void model_add(struct model *m)
{
    struct added *a = &m->adds[m->n_adds++];
    struct invalidation_list l = {0};
    bool waits = dice_permille(&m->dice, 500);

    a->n = 1 + dice_below(&m->dice, GROUP);
    a->seq = m->seq;
    for (size_t i = 0; i < a->n; i++) {
        const char name[2] = {(char)('a' + dice_below(&m->dice, NAMES)), '\0'};
        uint32_t rule = (uint32_t)dice_below(&m->dice, RULES);
        enum invalidation_kind kind = (enum invalidation_kind)dice_below(&m->dice, KINDS);
        a->target[i] = target_index(kind, rule, name);
        a->waits |= waits && rules[rule].waits;
        m->seen[a->target[i]].wanted = true;
        invalidation_add(&l, kind, rule, mem_text(name),
                         invalidation_goes_first(kind) ? NULL : mem_text("{}"));
    }
    coalesce_add(m->c, &l, waits ? &a->waiter : NULL, m->now_ms);
    assert_int_equal(a->waiter.missing > 0, a->waits);
}

static uint32_t rule_of_target(size_t target)
{
    return target == TARGETS - 1 ? RULE_COLLAPSES : (uint32_t)(target / KINDS / NAMES);
}

static enum invalidation_kind kind_of_target(size_t target)
{
    return target == TARGETS - 1 ? INVALIDATION_PUBLISH : (enum invalidation_kind)(target % KINDS);
}

static bool is_key(size_t target)
{
    return target != TARGETS - 1 && (kind_of_target(target) == INVALIDATION_UNLINK ||
                                     kind_of_target(target) == INVALIDATION_INCR);
}

/* A send may happen for three reasons: it is wanted, the last one failed, or it is the one
 * repetition. */
static void check_allowed(struct model *m, size_t target)
{
    struct seen *s = &m->seen[target];
    const struct coalesce_rule *rule = &rules[rule_of_target(target)];

    if (s->failed && s->repeating && !s->wanted) {
        return;
    } else if (s->wanted || s->failed) {
        if (s->ever && !s->failed && !is_key(target) && !m->draining)
            assert_true(m->now_ms >= s->last_at + rule->coalesce_ms);
        s->last_at = m->now_ms;
        s->ever = true;
        s->repeating = s->repeated = false;
    } else {
        assert_true(rule->repeat_after_ms > 0 && !s->repeated);
        assert_true(m->now_ms >= s->last_at + rule->repeat_after_ms);
        assert_true(m->now_ms >= s->last_at + rule->coalesce_ms);
        s->repeating = s->repeated = true;
        assert_false(m->draining);
    }
    s->wanted = false;
}

/* No message of a group before its keys. Those of this set up to `upto` count as sent. */
static void check_order(struct model *m, size_t target)
{
    for (size_t i = 0; i < m->n_adds; i++) {
        const struct added *a = &m->adds[i];
        bool in = false;
        for (size_t j = 0; j < a->n; j++)
            in |= a->target[j] == target;
        for (size_t j = 0; in && a->seq < m->seq && j < a->n; j++)
            if (is_key(a->target[j]))
                assert_true(m->seen[a->target[j]].ok_seq > a->seq);
    }
}

static bool satisfied(const struct model *m, const struct added *a, bool only_waited)
{
    for (size_t i = 0; i < a->n; i++) {
        uint32_t rule = rule_of_target(a->target[i]);
        bool covered = rules[rule].collapsed &&
                       kind_of_target(a->target[i]) == INVALIDATION_PUBLISH &&
                       m->seen[TARGETS - 1].ok_seq > a->seq;
        if (only_waited && !rules[rule].waits)
            continue;
        if (m->seen[a->target[i]].ok_seq <= a->seq && !covered)
            return false;
    }
    return true;
}

static void check_released(struct model *m, struct coalesce_waiter *released)
{
    for (; released; released = released->next) {
        struct added *a =
            (struct added *)(void *)((char *)released - offsetof(struct added, waiter));
        assert_true(a->waits && !a->released && !a->abandoned);
        a->released = true;
    }
    for (size_t i = 0; i < m->n_adds; i++) {
        const struct added *a = &m->adds[i];
        if (a->released)
            assert_true(satisfied(m, a, true));
        else if (a->waits && !a->abandoned && m->cap > TARGETS)
            assert_false(satisfied(m, a, true));
    }
}

static void model_abandon(struct model *m)
{
    struct added *a = &m->adds[dice_below(&m->dice, m->n_adds)];

    if (!a->waits || a->released || a->abandoned)
        return;
    a->abandoned = true;
    coalesce_abandon(m->c, &a->waiter);
}

/* One set: hands out, perhaps adds meanwhile, answers. A connection that is lost fails everything
 * behind. */
static void model_send(struct model *m, unsigned fail_permille, unsigned add_permille)
{
    const struct invalidation *const *out;
    size_t target[SET], n, good;
    bool ok[SET] = {false};

    if (m->now_ms < m->hold_until_ms)
        return;
    n = coalesce_due(m->c, m->now_ms, &out);
    assert_true(n <= SET);
    if (n == 0) {
        assert_true(coalesce_next_due(m->c) > m->now_ms);
        for (size_t i = 0; i < TARGETS && m->cap > TARGETS; i++) /* nothing was forgotten */
            assert_false(m->seen[i].wanted &&
                         (!m->seen[i].ever ||
                          m->now_ms >= m->seen[i].last_at + rules[rule_of_target(i)].coalesce_ms));
        return;
    }
    m->seq++;
    for (size_t i = 0; i < n; i++) {
        target[i] = target_index(out[i]->kind, out[i]->rule, out[i]->name);
        if (m->cap > TARGETS)
            check_allowed(m, target[i]);
    }
    while (m->n_adds < ADDS && dice_permille(&m->dice, add_permille))
        model_add(m);
    good = dice_permille(&m->dice, fail_permille) ? dice_below(&m->dice, n) : n;
    for (size_t i = 0; i < n; i++) {
        ok[i] = i < good;
        m->seen[target[i]].failed = !ok[i];
        if (!ok[i])
            continue;
        m->seen[target[i]].ok_seq = m->seq;
        if (!is_key(target[i]) && m->cap > TARGETS)
            check_order(m, target[i]);
    }
    if (good < n)
        m->hold_until_ms = m->now_ms + (int64_t)dice_below(&m->dice, 60);
    check_released(m, coalesce_sent(m->c, ok, m->hold_until_ms));
}

static void check_bounds(const struct model *m)
{
    bool waited[TARGETS] = {false};
    size_t n = 0;

    for (size_t i = 0; i < m->n_adds; i++)
        for (size_t j = 0; j < m->adds[i].n && m->adds[i].waits && !m->adds[i].released; j++)
            waited[m->adds[i].target[j]] = true;
    for (size_t i = 0; i < TARGETS; i++)
        n += waited[i];
    assert_true(coalesce_targets(m->c) <= m->cap + RULES + n);
}

static void model_run(struct dice *dice, size_t cap)
{
    struct model m = {.dice = dice_split(dice), .cap = cap};
    uint64_t lost = 0, dropped = 0;

    m.c = coalesce_new(rules, RULES, cap, dice_permille(dice, 500) ? cap * 150 : SIZE_MAX, SET);
    m.adds = mem_array(ADDS, sizeof *m.adds);
    unsigned fail = (unsigned)dice_below(dice, 400), more = (unsigned)dice_below(dice, 500);
    size_t adds = 50 + dice_below(dice, 300);
    while (m.n_adds < adds) {
        m.now_ms += (int64_t)dice_below(&m.dice, dice_permille(&m.dice, 50) ? 3000 : 30);
        if (dice_permille(&m.dice, 600))
            model_add(&m);
        if (dice_permille(&m.dice, 500))
            model_send(&m, fail, more);
        if (m.n_adds > 0 && dice_permille(&m.dice, 20))
            model_abandon(&m);
        check_bounds(&m);
    }
    m.draining = dice_permille(dice, 300);
    if (m.draining)
        coalesce_drain(m.c, m.now_ms);
    for (size_t turns = 0; coalesce_next_due(m.c) < INT64_MAX; turns++) {
        assert_true(turns < 5000);
        if (coalesce_next_due(m.c) > m.now_ms && m.cap <= TARGETS)
            m.now_ms = coalesce_next_due(m.c);
        else
            m.now_ms++;
        model_send(&m, 0, 0);
    }
    assert_int_equal(coalesce_targets(m.c), 0);
    for (uint32_t i = 0; i < RULES; i++)
        dropped += coalesce_counts(m.c, i).dropped;
    for (size_t i = 0; i < m.n_adds; i++) {
        lost += !satisfied(&m, &m.adds[i], false);
        assert_true(!m.adds[i].waits || m.adds[i].released || m.adds[i].abandoned);
    }
    assert_true(lost == 0 || dropped > 0);
    if (cap > TARGETS)
        assert_int_equal(dropped, 0);
    mem_free(m.adds);
    coalesce_free(m.c);
}

static void random_against_the_model(void **state)
{
    struct dice dice = dice_seed("test_coalesce");

    (void)state;
    for (size_t i = 0; i < 150; i++) {
        model_run(&dice, 1000);
        model_run(&dice, 1 + dice_below(&dice, 30));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_is_sent_at_once_and_the_rest_at_the_end),
        cmocka_unit_test(targets_differ_by_kind_name_body_and_rule),
        cmocka_unit_test(version_and_stream_keep_what_they_need),
        cmocka_unit_test(version_and_stream_have_windows_and_repetitions),
        cmocka_unit_test(nothing_stands_for_version_and_stream),
        cmocka_unit_test(repeats_once_and_a_newer_send_replaces_it),
        cmocka_unit_test(repetition_delays_nobody),
        cmocka_unit_test(waiter_needs_a_send_that_started_after_it),
        cmocka_unit_test(unlink_goes_before_the_publish_it_was_added_with),
        cmocka_unit_test(unlink_keeps_its_place_after_a_failure),
        cmocka_unit_test(at_the_cap_keys_collapse),
        cmocka_unit_test(bytes_are_capped_too),
        cmocka_unit_test(collapsing_keeps_unlinks_in_front),
        cmocka_unit_test(at_the_cap_what_nobody_waits_for_is_dropped),
        cmocka_unit_test(drain_sends_what_is_pending_and_repeats_nothing),
        cmocka_unit_test(random_against_the_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
