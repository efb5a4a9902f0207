/*
 * The gate before transactions, with threads: nobody is inside together with another who holds the
 * same key, whoever came first goes first, and who can't wait leaves nothing behind.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "io/mongo_gate.h"

enum { LONG_MS = 10000, SHORT_MS = 30 };

static bool enter(struct mongo_gate *g, struct mongo_gate_pass *p, const uint64_t *keys, size_t n,
                  int64_t wait_ms)
{
    return mongo_gate_enter(g, p, keys, n, clock_mono_ms() + wait_ms);
}

static void test_one_thread(void **state)
{
    static const uint64_t ab[] = {1, 2}, bc[] = {2, 3}, d[] = {4};
    struct mongo_gate_pass p[5] = {{0}};
    struct mongo_gate *g = mongo_gate_new();

    (void)state;
    assert_true(enter(g, &p[0], ab, 2, 0));
    assert_true(enter(g, &p[1], d, 1, 0));
    assert_true(enter(g, &p[2], NULL, 0, 0)); /* touches nothing: waits for nobody */
    assert_false(enter(g, &p[3], bc, 2, SHORT_MS));
    assert_false(p[3].inside);
    mongo_gate_leave(g, &p[3]); /* not inside: fine */
    mongo_gate_leave(g, &p[0]);
    assert_true(enter(g, &p[4], bc, 2, 0));
    for (size_t i = 0; i < 5; i++) {
        mongo_gate_leave(g, &p[i]);
        mongo_gate_pass_clear(&p[i]);
    }
    mongo_gate_free(g);
}

/* ---- order ---- */

struct visitor {
    struct mongo_gate *gate;
    uint64_t keys[2];
    size_t n;
    atomic_int *turn; /* who got in, counted */
    int got;
    pthread_t thread;
};

static void *visitor_main(void *arg)
{
    struct visitor *v = arg;
    struct mongo_gate_pass p = {0};

    if (enter(v->gate, &p, v->keys, v->n, LONG_MS))
        v->got = atomic_fetch_add(v->turn, 1) + 1;
    mongo_gate_leave(v->gate, &p);
    mongo_gate_pass_clear(&p);
    return NULL;
}

/* A small batch that came later doesn't pass a large one that waits for another of its keys: it
 * would starve. */
static void test_who_came_first_goes_first(void **state)
{
    static const uint64_t a[] = {1}, b[] = {2};
    struct mongo_gate *g = mongo_gate_new();
    struct mongo_gate_pass holder = {0}, other = {0};
    atomic_int turn = 0;
    struct visitor large = {.gate = g, .keys = {1, 2}, .n = 2, .turn = &turn};

    (void)state;
    assert_true(enter(g, &holder, a, 1, LONG_MS));
    assert_int_equal(pthread_create(&large.thread, NULL, visitor_main, &large), 0);
    /* Key 2 is free until the large one stands there, and no longer. */
    int64_t end_ms = clock_mono_ms() + LONG_MS / 10;
    while (enter(g, &other, b, 1, SHORT_MS)) {
        mongo_gate_leave(g, &other);
        assert_true(clock_mono_ms() < end_ms);
        sched_yield();
    }
    assert_int_equal(atomic_load(&turn), 0);
    mongo_gate_leave(g, &holder);
    assert_int_equal(pthread_join(large.thread, NULL), 0);
    assert_int_equal(large.got, 1);
    assert_true(enter(g, &other, b, 1, LONG_MS));
    mongo_gate_leave(g, &other);
    mongo_gate_pass_clear(&holder);
    mongo_gate_pass_clear(&other);
    mongo_gate_free(g);
}

/* Whoever gives up lets those pass who had come behind it. */
static void test_who_gives_up_is_in_nobodys_way(void **state)
{
    static const uint64_t a[] = {1}, ab[] = {1, 2};
    struct mongo_gate *g = mongo_gate_new();
    struct mongo_gate_pass holder = {0}, impatient = {0};
    atomic_int turn = 0;
    struct visitor small = {.gate = g, .keys = {2}, .n = 1, .turn = &turn};

    (void)state;
    assert_true(enter(g, &holder, a, 1, LONG_MS));
    assert_int_equal(pthread_create(&small.thread, NULL, visitor_main, &small), 0);
    assert_false(enter(g, &impatient, ab, 2, SHORT_MS));
    assert_int_equal(pthread_join(small.thread, NULL), 0);
    assert_int_equal(small.got, 1);
    mongo_gate_leave(g, &holder);
    mongo_gate_pass_clear(&holder);
    mongo_gate_pass_clear(&impatient);
    mongo_gate_free(g);
}

/* ---- many ---- */

enum { THREADS = 8, KEYS = 12, ROUNDS = 3000 };

struct crowd {
    struct mongo_gate *gate;
    int held[KEYS]; /* plain on purpose: the gate is what keeps threads apart, and TSan looks */
    atomic_int wrong, refused, entered;
};

struct one {
    struct crowd *crowd;
    unsigned seed;
    pthread_t thread;
};

static size_t some_keys(unsigned *seed, uint64_t *keys)
{
    size_t n = 0;

    for (uint64_t k = 0; k < KEYS; k++)
        if (rand_r(seed) % 5 == 0)
            keys[n++] = k;
    return n;
}

static void *one_main(void *arg)
{
    struct one *me = arg;
    struct crowd *c = me->crowd;
    struct mongo_gate_pass p = {0};
    uint64_t keys[KEYS];

    for (int round = 0; round < ROUNDS; round++) {
        size_t n = some_keys(&me->seed, keys);

        if (!enter(c->gate, &p, keys, n, rand_r(&me->seed) % 20 == 0 ? 0 : LONG_MS)) {
            atomic_fetch_add(&c->refused, 1);
            continue;
        }
        atomic_fetch_add(&c->entered, 1);
        for (size_t i = 0; i < n; i++)
            if (c->held[keys[i]]++ != 0)
                atomic_fetch_add(&c->wrong, 1);
        if (round % 16 == 0)
            sched_yield();
        for (size_t i = 0; i < n; i++)
            c->held[keys[i]]--;
        mongo_gate_leave(c->gate, &p);
    }
    mongo_gate_pass_clear(&p);
    return NULL;
}

static void test_many(void **state)
{
    struct crowd c = {.gate = mongo_gate_new()};
    struct one all[THREADS];
    unsigned seed = (unsigned)clock_mono_us();

    (void)state;
    print_message("seed %u\n", seed);
    for (unsigned i = 0; i < THREADS; i++) {
        all[i] = (struct one){.crowd = &c, .seed = seed + i};
        assert_int_equal(pthread_create(&all[i].thread, NULL, one_main, &all[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(all[i].thread, NULL), 0);
    assert_int_equal(atomic_load(&c.wrong), 0);
    assert_int_equal(atomic_load(&c.entered) + atomic_load(&c.refused), THREADS * ROUNDS);
    /* A deadline of now refuses only who would have had to wait. */
    assert_true(atomic_load(&c.refused) < THREADS * ROUNDS / 10);
    mongo_gate_free(c.gate); /* nobody is left in it */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_thread),
        cmocka_unit_test(test_who_came_first_goes_first),
        cmocka_unit_test(test_who_gives_up_is_in_nobodys_way),
        cmocka_unit_test(test_many),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
