#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/retry.h"

static int64_t longest(int64_t first_ms, int64_t max_ms, uint32_t attempts)
{
    struct retry_policy p = {.first_ms = first_ms, .max_ms = max_ms};

    return retry_wait_ms(&p, attempts, UINT32_MAX);
}

static void doubles_up_to_the_maximum(void **state)
{
    (void)state;
    assert_int_equal(longest(100, 30000, 1), 100);
    assert_int_equal(longest(100, 30000, 2), 200);
    assert_int_equal(longest(100, 30000, 3), 400);
    assert_int_equal(longest(100, 30000, 9), 25600);
    assert_int_equal(longest(100, 30000, 10), 30000);
    assert_int_equal(longest(100, 30000, UINT32_MAX), 30000);
    assert_int_equal(longest(100, 50, 1), 50);
}

static void draws_from_nought_and_evenly(void **state)
{
    struct retry_policy p = {.first_ms = 9, .max_ms = 1000};
    unsigned seen[10] = {0};

    (void)state;
    assert_int_equal(retry_wait_ms(&p, 1, 0), 0);
    for (uint32_t i = 0; i < 1000; i++)
        seen[retry_wait_ms(&p, 1, i * 4294967u)]++;
    for (size_t i = 0; i < 10; i++)
        assert_in_range(seen[i], 99, 101);
}

static void does_not_overflow(void **state)
{
    struct retry_policy huge = {.first_ms = INT64_MAX / 2 + 1, .max_ms = INT64_MAX};

    (void)state;
    assert_true(retry_wait_ms(&huge, 1, UINT32_MAX) <= INT64_MAX / 2 + 1);
    assert_true(retry_wait_ms(&huge, 1, UINT32_MAX) > INT64_MAX / 2 - INT32_MAX);
    for (uint32_t attempts = 1; attempts < 100; attempts++)
        assert_true(retry_wait_ms(&huge, attempts, 0x80000000u) >= INT64_MAX / 4);
    assert_true(longest(1, INT64_MAX, 64) > INT64_MAX - (INT64_MAX >> 31));
    assert_true(longest(1, INT64_MAX, 63) <= (int64_t)1 << 62);
}

static void nonsense_still_waits_within_bounds(void **state)
{
    (void)state;
    assert_int_equal(longest(100, 1000, 0), 100);
    assert_int_equal(longest(0, 1000, 1), 1);
    assert_int_equal(longest(-5, -7, 3), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(doubles_up_to_the_maximum),
        cmocka_unit_test(draws_from_nought_and_evenly),
        cmocka_unit_test(does_not_overflow),
        cmocka_unit_test(nonsense_still_waits_within_bounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
