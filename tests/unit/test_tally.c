/* The table of all counters. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/tally.h"

static bson_t *key_of(int i)
{
    return BCON_NEW("_id", BCON_INT64(i));
}

static void test_tally(void **state)
{
    enum { N = 5000 };
    const size_t columns[] = {1, 0};
    struct tally *t = tally_new(2, 1 << 20, 0, 1);
    bool doubt;

    (void)state;
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < N; i++) {
            bson_t *key = key_of(i);
            int64_t sums[] = {i, round};

            assert_true(tally_add(t, key, columns, sums, 2));
            bson_destroy(key);
        }
    assert_int_equal(tally_entries(t), N);
    assert_true(tally_any_left(t));
    for (int i = 0; i < N; i++) {
        bson_t *key = key_of(i);
        const int64_t *sums = i == 7 ? NULL : tally_see(t, key, &doubt);

        if (i != 7) {
            assert_non_null(sums);
            assert_int_equal(sums[1], 2 * i);
            assert_int_equal(sums[0], 1);
        }
        bson_destroy(key);
    }
    assert_true(tally_any_left(t));
    bson_t *seven = key_of(7), *eight = key_of(8), *other = key_of(-1);
    assert_false(tally_is_left(t, eight));
    assert_false(tally_is_left(t, other));
    assert_null(tally_see(t, other, &doubt));
    assert_true(tally_is_left(t, seven));
    assert_false(tally_is_left(t, seven)); /* told once */
    assert_false(tally_any_left(t));
    const int64_t huge[] = {INT64_MAX, 0};
    assert_true(tally_add(t, eight, columns, huge, 2));
    assert_int_equal(tally_see(t, eight, &doubt)[1], 16); /* stays as it was */
    assert_true(doubt);
    bson_destroy(seven);
    bson_destroy(eight);
    bson_destroy(other);
    tally_free(t);
}

/* Zero on both sides needs no counter document. */
static void test_zero_is_not_left(void **state)
{
    const size_t column = 0;
    const int64_t zero = 0;
    struct tally *t = tally_new(1, 1 << 20, 0, 1);
    bson_t *key = key_of(1);

    (void)state;
    assert_true(tally_add(t, key, &column, &zero, 1));
    assert_false(tally_any_left(t));
    assert_false(tally_is_left(t, key));
    bson_destroy(key);
    tally_free(t);
}

/* What doesn't fit is to be looked at, once, whatever the sums are. */
static void test_doubt(void **state)
{
    struct tally *t = tally_new(1, 1 << 20, 0, 1);
    bson_t *seen = key_of(1), *left = key_of(2);
    bool doubt;

    (void)state;
    assert_true(tally_doubt(t, seen) && tally_doubt(t, left) && tally_doubt(t, left));
    assert_int_equal(tally_entries(t), 2);
    assert_int_equal(tally_see(t, seen, &doubt)[0], 0);
    assert_true(doubt);
    assert_true(tally_any_left(t));
    assert_false(tally_is_left(t, seen));
    assert_true(tally_is_left(t, left));
    assert_false(tally_is_left(t, left));
    assert_false(tally_any_left(t));
    bson_destroy(seen);
    bson_destroy(left);
    tally_free(t);
}

/* Each key is of one part, and a table never grows beyond its bytes. */
static void test_parts(void **state)
{
    enum { N = 3000, BYTES = 64 << 10 };
    const size_t column = 0;
    const int64_t one = 1;
    size_t kept = 0;
    bool doubt;

    (void)state;
    for (uint32_t part = 0; part < 3; part++) {
        struct tally *t = tally_new(1, 2 * BYTES, part, 3);

        for (int i = 0; i < N; i++) {
            bson_t *key = key_of(i);

            assert_true(tally_add(t, key, &column, &one, 1));
            assert_true(tally_wants(t, key) == (tally_see(t, key, &doubt) != NULL));
            bson_destroy(key);
        }
        assert_true(tally_bytes(t) <= 2 * BYTES);
        assert_true(tally_entries(t) > N / 6);
        kept += tally_entries(t);
        tally_free(t);
    }
    assert_int_equal(kept, N);
    struct tally *t = tally_new(1, BYTES, 0, 1);
    int i = 0;
    for (bool room = true; room; i++) {
        bson_t *key = key_of(i);

        room = tally_add(t, key, &column, &one, 1);
        bson_destroy(key);
    }
    assert_true(i > 700 && i < N && tally_bytes(t) <= BYTES);
    tally_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tally),
        cmocka_unit_test(test_zero_is_not_left),
        cmocka_unit_test(test_doubt),
        cmocka_unit_test(test_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
