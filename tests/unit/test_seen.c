/* The set of settled events against a naive one; what stands for an event. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "core/canonical.h"
#include "core/seen.h"
#include "fakes/dice.h"

/* --- against a list, the newest first --- */

struct naive_entry {
    struct seen_id id;
    int64_t until_ms;
};
struct naive {
    struct naive_entry items[64];
    size_t n, cap;
    int64_t ttl_ms;
};

static bool naive_take(struct naive *m, struct seen_id id, struct naive_entry *out)
{
    for (size_t i = 0; i < m->n; i++) {
        if (m->items[i].id.low != id.low || m->items[i].id.high != id.high)
            continue;
        *out = m->items[i];
        memmove(&m->items[i], &m->items[i + 1], (m->n - i - 1) * sizeof *m->items);
        m->n--;
        return true;
    }
    return false;
}

static void naive_put(struct naive *m, struct naive_entry e)
{
    if (m->n == m->cap)
        m->n--;
    memmove(&m->items[1], &m->items[0], m->n * sizeof *m->items);
    m->items[0] = e;
    m->n++;
}

static bool naive_has(struct naive *m, struct seen_id id, int64_t now_ms)
{
    struct naive_entry e;

    if (!naive_take(m, id, &e) || e.until_ms <= now_ms)
        return false;
    naive_put(m, e);
    return true;
}

static void naive_add(struct naive *m, struct seen_id id, int64_t now_ms)
{
    struct naive_entry e;

    (void)naive_take(m, id, &e);
    naive_put(m, (struct naive_entry){.id = id, .until_ms = now_ms + m->ttl_ms});
}

/* Few ids that share few slots, so that runs of slots are long and wrap around. */
static struct seen_id some_id(struct dice *d)
{
    return (struct seen_id){.high = dice_below(d, 6), .low = UINT64_MAX - dice_below(d, 12)};
}

static void test_against_a_naive_one(void **state)
{
    struct dice d = dice_seed("seen");
    size_t hits = 0;

    (void)state;
    for (int round = 0; round < 200; round++) {
        struct naive m = {.cap = 1 + dice_below(&d, 50),
                          .ttl_ms = 1 + (int64_t)dice_below(&d, 200)};
        struct seen *s = seen_new(m.cap, 1 << 20, m.ttl_ms);
        int64_t now_ms = (int64_t)dice_below(&d, 1000);

        assert_int_equal(seen_capacity(s), m.cap);
        for (int step = 0; step < 2000; step++) {
            struct seen_id id = some_id(&d);
            uint64_t what = dice_below(&d, 1000);

            now_ms += dice_permille(&d, 300);
            if (what == 0) {
                seen_forget(s);
                m.n = 0;
            } else if (what < 500) {
                seen_add(s, id, now_ms);
                naive_add(&m, id, now_ms);
            } else {
                bool has = naive_has(&m, id, now_ms);

                assert_int_equal(seen_has(s, id, now_ms), has);
                hits += has;
            }
            assert_int_equal(seen_entries(s), m.n);
        }
        seen_free(s);
    }
    assert_true(hits > 1000);
}

/* --- bounds --- */

static struct seen_id number(uint64_t n)
{
    return (struct seen_id){.high = n, .low = n * UINT64_C(0x9E3779B97F4A7C15)};
}

static void test_bytes_bound_the_entries(void **state)
{
    static const size_t bounds[] = {1024, 4096, 65536, 1000000, 8 << 20};

    (void)state;
    for (size_t i = 0; i < sizeof bounds / sizeof bounds[0]; i++) {
        struct seen *s = seen_new(1000000000, bounds[i], 1000);
        size_t cap = seen_capacity(s);

        assert_true(seen_max_bytes(s) <= bounds[i]);
        assert_true(cap > bounds[i] / 60); /* and it is not much less */
        for (uint64_t n = 0; n < cap + 10; n++)
            seen_add(s, number(n), 0);
        assert_int_equal(seen_entries(s), cap);
        assert_int_equal(seen_bytes(s), seen_max_bytes(s));
        assert_false(seen_has(s, number(9), 0));
        assert_true(seen_has(s, number(10), 0));
        assert_true(seen_has(s, number(cap + 9), 0));
        seen_free(s);
    }
}

static void test_entries_bound_the_bytes(void **state)
{
    struct seen *s = seen_new(1000000, 1 << 30, 1000);

    (void)state;
    assert_int_equal(seen_capacity(s), 1000000);
    assert_true(seen_max_bytes(s) <= 41 * 1000000); /* 32 + 4 for each of 2^21 slots, and itself */
    assert_true(seen_bytes(s) < 9000000);           /* nothing of the entries is used yet */
    seen_free(s);
}

/* Few in a large table, and many: forgotten in two ways. */
static void test_all_is_forgotten(void **state)
{
    static const uint64_t counts[] = {0, 1, 5, 100, 20000};

    (void)state;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct seen *s = seen_new(20000, 1 << 30, 1000);

        for (int round = 0; round < 2; round++) {
            for (uint64_t n = 0; n < counts[i]; n++)
                seen_add(s, number(n), 0);
            assert_int_equal(seen_entries(s), counts[i]);
            seen_forget(s);
            assert_int_equal(seen_entries(s), 0);
            for (uint64_t n = 0; n < counts[i]; n++)
                assert_false(seen_has(s, number(n), 0));
        }
        seen_free(s);
    }
}

static void test_asking_does_not_prolong(void **state)
{
    struct seen *s = seen_new(10, 4096, 100);

    (void)state;
    seen_add(s, number(1), 1000);
    assert_true(seen_has(s, number(1), 1099));
    assert_false(seen_has(s, number(1), 1100));
    assert_int_equal(seen_entries(s), 0);
    seen_add(s, number(1), 1200);
    seen_add(s, number(1), 1250); /* settled once more, and told so by the database */
    assert_true(seen_has(s, number(1), 1349));
    assert_false(seen_has(s, number(1), 1350));
    seen_free(s);
    seen_free(NULL);
}

/* --- what stands for an event --- */

static bool same(struct seen_id a, struct seen_id b)
{
    return a.high == b.high && a.low == b.low;
}

static void test_ids(void **state)
{
    uint8_t hash[CANONICAL_HASH_BYTES] = {1}, other[CANONICAL_HASH_BYTES] = {2};
    uint8_t uuid[SEEN_UUID_BYTES] = {7}, another[SEEN_UUID_BYTES] = {8};
    bson_t *a = BCON_NEW("id", BCON_INT64(1)), *b = BCON_NEW("id", BCON_INT64(2));
    uint64_t seed = seen_seed(uuid);

    (void)state;
    assert_true(same(seen_id(seed, a, NULL), seen_id(seed, a, NULL)));
    assert_false(same(seen_id(seed, a, NULL), seen_id(seed, b, NULL)));
    assert_true(same(seen_id(seed, a, hash), seen_id(seed, a, hash)));
    assert_false(same(seen_id(seed, a, hash), seen_id(seed, a, other)));
    assert_false(same(seen_id(seed, a, hash), seen_id(seed, a, NULL)));
    assert_false(same(seen_id(seed, a, NULL), seen_id(seen_seed(another), a, NULL)));
    assert_int_equal(seen_seed(uuid), seed);
    bson_destroy(a);
    bson_destroy(b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_against_a_naive_one),
        cmocka_unit_test(test_bytes_bound_the_entries),
        cmocka_unit_test(test_entries_bound_the_bytes),
        cmocka_unit_test(test_all_is_forgotten),
        cmocka_unit_test(test_asking_does_not_prolong),
        cmocka_unit_test(test_ids),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
