/*
 * Which ids of events counters may forget: only what nobody can repeat any more.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "core/log_doc.h"
#include "core/log_horizon.h"

enum { ATTEMPT_MS = 5000, OVER_MS = ATTEMPT_MS + LOG_MARGIN_MS };

/* What was read at server and mono time 100 s (which are never the same), usable `later` ms after.
 */
static int64_t usable_after(int64_t oldest_open_ms, int64_t later_ms)
{
    struct log_horizon h;

    log_horizon_init(&h, ATTEMPT_MS);
    assert_true(log_horizon_due(&h, 7000));
    log_horizon_read(&h, 100000, 7000, oldest_open_ms);
    (void)log_horizon_due(&h, 7000 + later_ms);
    return h.usable_ms;
}

static void nothing_before_the_first_reading_has_aged(void **state)
{
    struct log_horizon h;

    (void)state;
    log_horizon_init(&h, ATTEMPT_MS);
    assert_true(h.usable_ms == INT64_MIN);
    assert_true(usable_after(INT64_MAX, 0) == INT64_MIN);
    assert_true(usable_after(INT64_MAX, OVER_MS - 1) == INT64_MIN);
}

static void without_open_events_what_an_attempt_can_not_reach(void **state)
{
    (void)state;
    assert_int_equal(usable_after(INT64_MAX, OVER_MS), 100000 - OVER_MS);
    assert_int_equal(usable_after(99999, OVER_MS), 100000 - OVER_MS);
}

static void an_open_event_keeps_its_ids_however_old_it_is(void **state)
{
    (void)state;
    assert_int_equal(usable_after(3, OVER_MS), 3);
    assert_int_equal(usable_after(100000 - OVER_MS - 1, OVER_MS), 100000 - OVER_MS - 1);
}

static void one_reading_at_a_time(void **state)
{
    struct log_horizon h;

    (void)state;
    log_horizon_init(&h, ATTEMPT_MS);
    log_horizon_read(&h, 100000, 7000, INT64_MAX);
    assert_false(log_horizon_due(&h, 7000 + OVER_MS - 1)); /* the first one ages */
    assert_true(log_horizon_due(&h, 7000 + OVER_MS));
    log_horizon_read(&h, 200000, 107000, INT64_MAX);
    assert_int_equal(h.usable_ms, 100000 - OVER_MS); /* until the second one has aged */
}

/* Somebody's attempts take longer: X is as old as that, and ages for as long. */
static void the_longest_attempt_of_all_counts(void **state)
{
    enum { LONGEST_MS = 60000, LATER_MS = LONGEST_MS + LOG_MARGIN_MS };
    struct log_horizon h;

    (void)state;
    log_horizon_init(&h, ATTEMPT_MS);
    log_horizon_registered(&h, LONGEST_MS, 300000);
    assert_true(log_horizon_due(&h, 7000));
    log_horizon_read(&h, 100000, 7000, INT64_MAX);
    log_horizon_registered(&h, ATTEMPT_MS, 300000); /* it has run out: not what was read before */
    assert_false(log_horizon_due(&h, 7000 + LATER_MS - 1));
    assert_true(h.usable_ms == INT64_MIN);
    assert_true(log_horizon_due(&h, 7000 + LATER_MS));
    assert_int_equal(h.usable_ms, 100000 - LATER_MS);
    log_horizon_read(&h, 200000, 107000, INT64_MAX);
    assert_true(log_horizon_due(&h, 107000 + OVER_MS));
    assert_int_equal(h.usable_ms, 200000 - OVER_MS);
}

/* Nothing begins that the others may take for over before it is. */
static void only_what_is_registered_begins(void **state)
{
    struct log_horizon h;

    (void)state;
    log_horizon_init(&h, ATTEMPT_MS);
    assert_false(log_horizon_is_registered(&h, 100000));
    log_horizon_registered(&h, ATTEMPT_MS, 100000 + OVER_MS);
    assert_true(log_horizon_is_registered(&h, 100000));
    assert_false(log_horizon_is_registered(&h, 100001));
    /* Who reads X as often as it can be read is registered all the time; a longer one's end is no
     * earlier than a shorter one's was told. */
    assert_true(log_horizon_hold(ATTEMPT_MS) >= 2 * OVER_MS);
    assert_true(log_horizon_hold(ATTEMPT_MS + 1) > log_horizon_hold(ATTEMPT_MS));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_before_the_first_reading_has_aged),
        cmocka_unit_test(without_open_events_what_an_attempt_can_not_reach),
        cmocka_unit_test(an_open_event_keeps_its_ids_however_old_it_is),
        cmocka_unit_test(one_reading_at_a_time),
        cmocka_unit_test(the_longest_attempt_of_all_counts),
        cmocka_unit_test(only_what_is_registered_begins),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
