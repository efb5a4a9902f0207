/* When an unknown answer is the record's own fault, and when it never is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/suspicion.h"

static enum suspicion_verdict alone(struct suspicion *s, int code, uint64_t stored)
{
    const struct outcome o = {.fate = FATE_UNKNOWN, .doubt = DOUBT_ALONE, .code = code};

    return suspicion_judge(s, &o, &(struct suspicion_signs){.stored = stored}, 3);
}

static enum suspicion_verdict among(struct suspicion *s, int code, uint64_t stored, bool others)
{
    const struct outcome o = {.fate = FATE_UNKNOWN, .doubt = DOUBT_AMONG, .code = code};

    return suspicion_judge(s, &o,
                           &(struct suspicion_signs){.stored = stored, .among_stored = others}, 3);
}

static void test_guilty_after_max_repetitions(void **state)
{
    struct suspicion s = {0};

    (void)state;
    assert_int_equal(alone(&s, 424242, 10), SUSPICION_NONE); /* who else passes is not known yet */
    assert_int_equal(s.code, 424242);
    assert_int_equal(alone(&s, 424242, 11), SUSPICION_AGAIN);
    assert_int_equal(alone(&s, 424242, 12), SUSPICION_AGAIN);
    assert_int_equal(alone(&s, 424242, 90), SUSPICION_GUILTY);
}

/* Each repetition needs a document that was stored since the one before: an outage has none. */
static void test_never_while_nothing_is_stored(void **state)
{
    struct suspicion s = {0};

    (void)state;
    alone(&s, 7, 10);
    alone(&s, 7, 11);
    alone(&s, 7, 12);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(alone(&s, 7, 12), SUSPICION_NONE);
    assert_int_equal(alone(&s, 7, 13), SUSPICION_GUILTY);
}

/* Others of its batch were stored: it is told by its place in the reply, and goes alone from now
 * on. Not alone it is never given up. */
static void test_among_others(void **state)
{
    struct suspicion s = {0};

    (void)state;
    assert_int_equal(among(&s, 7, 10, false), SUSPICION_NONE);
    assert_int_equal(s.code, 0); /* so that a whole outage isn't sent one by one */
    assert_int_equal(among(&s, 7, 11, true), SUSPICION_AGAIN);
    assert_int_equal(s.code, 7);
    for (uint64_t i = 0; i < 100; i++)
        assert_int_equal(among(&s, 7, 12 + i, true), SUSPICION_AGAIN);
    assert_int_equal(s.repeats, 0);
    for (uint64_t i = 0; i < 2; i++)
        assert_int_equal(alone(&s, 7, 200 + i), SUSPICION_AGAIN);
    assert_int_equal(alone(&s, 7, 300), SUSPICION_GUILTY);
}

static void test_another_code_begins_anew(void **state)
{
    struct suspicion s = {0};

    (void)state;
    alone(&s, 7, 1);
    alone(&s, 7, 2);
    alone(&s, 7, 3);
    assert_int_equal(alone(&s, 8, 4), SUSPICION_AGAIN);
    assert_int_equal(s.repeats, 0);
    alone(&s, 8, 5);
    alone(&s, 8, 6);
    assert_int_equal(alone(&s, 8, 7), SUSPICION_GUILTY);
}

/* Somebody under suspicion was stored after all: what is refused passes. */
static void test_who_is_stored_clears_all(void **state)
{
    struct suspicion_signs signs = {.stored = 10, .cleared = 5};
    const struct outcome o = {.fate = FATE_UNKNOWN, .doubt = DOUBT_ALONE, .code = 7};
    struct suspicion s = {0};

    (void)state;
    assert_int_equal(suspicion_judge(&s, &o, &signs, 3), SUSPICION_NONE);
    for (int i = 0; i < 1000; i++) { /* a server that flaps */
        for (int repeat = 0; repeat < 2; repeat++) {
            signs.stored++;
            assert_int_equal(suspicion_judge(&s, &o, &signs, 3), SUSPICION_AGAIN);
        }
        assert_int_equal(s.repeats, 2);
        signs.stored++;
        signs.cleared++;
        assert_int_equal(suspicion_judge(&s, &o, &signs, 3), SUSPICION_AGAIN);
        assert_int_equal(s.repeats, 0);
    }
    signs.cleared++; /* a duplicate: nothing was stored */
    assert_int_equal(suspicion_judge(&s, &o, &signs, 3), SUSPICION_NONE);
    for (int repeat = 0; repeat < 2; repeat++) { /* and one that stopped flapping */
        signs.stored++;
        assert_int_equal(suspicion_judge(&s, &o, &signs, 3), SUSPICION_AGAIN);
    }
    signs.stored++;
    assert_int_equal(suspicion_judge(&s, &o, &signs, 3), SUSPICION_GUILTY);
}

static void test_zero_is_never(void **state)
{
    const struct outcome o = {.fate = FATE_UNKNOWN, .doubt = DOUBT_ALONE, .code = 7};
    struct suspicion s = {0};

    (void)state;
    for (uint64_t i = 0; i < 1000; i++)
        assert_int_not_equal(
            suspicion_judge(&s, &o, &(struct suspicion_signs){.stored = i, .among_stored = true},
                            0),
            SUSPICION_GUILTY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_guilty_after_max_repetitions),
        cmocka_unit_test(test_never_while_nothing_is_stored),
        cmocka_unit_test(test_among_others),
        cmocka_unit_test(test_another_code_begins_anew),
        cmocka_unit_test(test_who_is_stored_clears_all),
        cmocka_unit_test(test_zero_is_never),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
