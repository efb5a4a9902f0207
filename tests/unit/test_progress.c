/* When progress is shown, and what it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/progress.h"

static void test_when(void **state)
{
    struct progress p = progress_begin("records", 1000, 500, 10000);

    (void)state;
    assert_false(progress_due(&p, 1499));
    assert_true(progress_due(&p, 1500));
    assert_false(progress_due(&p, 11499));
    assert_true(progress_due(&p, 12000));
    assert_false(progress_due(&p, 21999)); /* 10 s behind the last one, not behind its turn */
    assert_true(progress_due(&p, 22000));
}

static void test_text(void **state)
{
    static const struct {
        int64_t after_ms;
        uint64_t done, total;
        const char *text;
    } rows[] = {
        {0, 0, 100, "records: 0 of 100 (0 %), 0/s, no telling how long"},
        {10000, 1000, 10000, "records: 1000 of 10000 (10 %), 100/s, about 1 min 30 s left"},
        {500, 1000, 1000, "records: 1000 of 1000 (100 %), 2000/s"},
        {1000, 1100, 1000, "records: 1100 of 1000 (100 %), 1100/s"},
        {2000, 50, 0, "records: 50, 25/s"},
        {1000, 10, 100, "records: 10 of 100 (10 %), 10/s, about 9 s left"},
        {1000, 1, 7261, "records: 1 of 7261 (0 %), 1/s, about 2 h 1 min left"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct progress p = progress_begin("records", 5000, 0, 1000);
        struct buf b = {0};

        progress_text(&p, 5000 + rows[i].after_ms, rows[i].done, rows[i].total, &b);
        assert_string_equal(buf_text(&b), rows[i].text);
        buf_clear(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_when), cmocka_unit_test(test_text)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
