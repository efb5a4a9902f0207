/*
 * Which keys a batch asks for, and what may be written with those that were given.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "core/lock_batch.h"

enum { MOST = 64, LANES = 5, KEYS = 7, ROUNDS = 3000 };

static char lanes[LANES];

/* "a1 b2": key a in lane 1, key b in lane 2; lane 0: none. */
static size_t parse(const char *text, struct write_op *ops)
{
    size_t n = 0;

    for (const char *at = text; *at; at += 2 + (at[2] == ' ')) {
        ops[n] = (struct write_op){.lock = mem_text_n(at, 1)};
        if (at[1] != '0')
            ops[n].lane = &lanes[at[1] - '0'];
        n++;
    }
    return n;
}

static void clear(struct write_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mem_free(ops[i].lock);
}

/* Given the keys of this text: which are ready, as a text of operations in their new order, those
 * that have to wait behind a bar; and which keys were needed. */
static void check(const char *batch, const char *given_keys, const char *expected,
                  const char *expected_needed)
{
    struct write_op ops[MOST];
    size_t index[MOST], n = parse(batch, ops), n_keys, n_ready;
    bool given[MOST], ready[MOST], needed[MOST];
    struct lock_batch *b = lock_batch_new();
    struct buf got = {0}, got_needed = {0};
    const char *const *keys;

    lock_batch_begin(b, ops, n);
    keys = lock_batch_keys(b, &n_keys);
    for (size_t k = 0; k < n_keys; k++)
        given[k] = strchr(given_keys, keys[k][0]) != NULL;
    n_ready = lock_batch_ready(b, given, ready, needed);
    for (size_t k = 0; k < n_keys; k++)
        if (needed[k])
            buf_add_text(&got_needed, keys[k]);
    for (size_t i = 0; i < n; i++)
        index[i] = i;
    lock_batch_part(ops, index, ready, n);
    for (size_t i = 0; i < n; i++)
        buf_printf(&got, "%s%zu", i == n_ready ? "|" : "", index[i]);
    assert_string_equal(buf_text(&got), expected);
    assert_string_equal(buf_text(&got_needed), expected_needed);
    buf_clear(&got);
    buf_clear(&got_needed);
    clear(ops, n);
    lock_batch_free(b);
}

static void keys_are_asked_for_once_and_in_order(void **state)
{
    struct write_op ops[MOST];
    size_t n = parse("c1 a2 b3 a4 c1", ops), n_keys;
    struct lock_batch *b = lock_batch_new();
    const char *const *keys;

    (void)state;
    lock_batch_begin(b, ops, n);
    keys = lock_batch_keys(b, &n_keys);
    assert_int_equal(n_keys, 3);
    assert_string_equal(keys[0], "a");
    assert_string_equal(keys[1], "b");
    assert_string_equal(keys[2], "c");
    for (size_t i = 0; i < n; i++)
        assert_string_equal(keys[lock_batch_key_of(b, i)], ops[i].lock);
    lock_batch_begin(b, ops, 0);
    (void)lock_batch_keys(b, &n_keys);
    assert_int_equal(n_keys, 0);
    clear(ops, n);
    lock_batch_free(b);
}

static void who_has_no_key_holds_back_its_lane(void **state)
{
    (void)state;
    check("a1 b2 a3", "a", "02|1", "a");
    check("a1 b2 a3", "ab", "012", "ab");
    check("a1 b2 a3", "", "|012", "");
    /* Behind b in lane 1 even what has its key waits; b's key alone is not enough for c. */
    check("b1 a1 a2", "a", "2|01", "a");
    check("a1 b1 c1 a1", "ac", "0|123", "a");
    check("a1 b1 c1", "bc", "|012", "");
    /* No lane: nobody waits for anybody. */
    check("b0 a0 b0 a0", "a", "13|02", "a");
}

/* Against the rule said again in the simplest way. */
static void at_random(void **state)
{
    unsigned seed = (unsigned)time(NULL);

    (void)state;
    print_message("seed %u\n", seed);
    srandom(seed);
    for (int round = 0; round < ROUNDS; round++) {
        struct write_op ops[MOST];
        size_t n = 1 + (size_t)random() % MOST, n_keys, expected = 0;
        bool given[MOST], ready[MOST], needed[MOST];
        struct lock_batch *b = lock_batch_new();

        for (size_t i = 0; i < n; i++) {
            ops[i] = (struct write_op){.lock = mem_printf("k%ld", random() % KEYS)};
            if (random() % 6 > 0)
                ops[i].lane = &lanes[random() % LANES];
        }
        lock_batch_begin(b, ops, n);
        (void)lock_batch_keys(b, &n_keys);
        for (size_t k = 0; k < n_keys; k++)
            given[k] = random() % 3 > 0;
        size_t n_ready = lock_batch_ready(b, given, ready, needed);

        for (size_t i = 0; i < n; i++) {
            bool may = given[lock_batch_key_of(b, i)];

            for (size_t j = 0; j < i; j++)
                may = may && (ops[i].lane == NULL || ops[j].lane != ops[i].lane || ready[j]);
            assert_int_equal(ready[i], may);
            assert_true(!ready[i] || needed[lock_batch_key_of(b, i)]);
            expected += may;
        }
        assert_int_equal(n_ready, expected);
        clear(ops, n);
        lock_batch_free(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_asked_for_once_and_in_order),
        cmocka_unit_test(who_has_no_key_holds_back_its_lane),
        cmocka_unit_test(at_random),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
