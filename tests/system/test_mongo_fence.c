/* Fencing numbers on a real server: each is given once, and those of a key only rise. */
#include "mongo_help.h"

#include <pthread.h>

enum { KEYS = 3, THREADS = 4, ROUNDS = 40, MANY = 1000 };

static char fence_name[80];
static const char *const keys[KEYS] = {"p:a", "p:b", "p:c"};

static void open_help(struct help *h)
{
    help_open(h, "a");
    (void)snprintf(fence_name, sizeof fence_name, "%s_fences", h->collection);
    h->route.lock.fence = fence_name;
    h->route.lock.fence_database = h->route.database;
}

static void close_help(struct help *h)
{
    help_command(h, h->route.database, help_bson("{'drop':'%s'}", fence_name));
    help_close(h);
}

static void issue(struct help *h, void *session, const char *token, int64_t *numbers)
{
    struct outcome why = {0};

    if (!h->sink.ops->issue(session, 0, token, keys, KEYS, numbers, &why))
        fail_msg("class %d, code %d", (int)why.retry, why.code);
}

static void test_numbers_rise(void **state)
{
    struct help h;
    int64_t numbers[KEYS];

    (void)state;
    open_help(&h);
    for (int64_t round = 1; round <= 3; round++) {
        char token[8];

        (void)snprintf(token, sizeof token, "t%d", (int)round);
        issue(&h, h.session, token, numbers);
        for (size_t i = 0; i < KEYS; i++)
            assert_int_equal(numbers[i], round);
    }
    close_help(&h);
}

struct drawer {
    struct help *h;
    int number;
    int64_t drawn[ROUNDS][KEYS];
};

static void *drawer_main(void *arg)
{
    struct drawer *me = arg;
    void *session = me->h->sink.ops->open(me->h->sink.self);

    for (int round = 0; round < ROUNDS; round++) {
        char token[32];

        (void)snprintf(token, sizeof token, "%d-%d", me->number, round);
        issue(me->h, session, token, me->drawn[round]);
    }
    me->h->sink.ops->close(session);
    return NULL;
}

/* Who is overtaken between the count and the look gets none, never another's. */
static void test_nobody_gets_anothers(void **state)
{
    static struct drawer all[THREADS];
    static bool given[KEYS][THREADS * ROUNDS + 1];
    pthread_t threads[THREADS];
    struct help h;
    int64_t last[KEYS];

    (void)state;
    open_help(&h);
    memset(given, 0, sizeof given);
    for (int t = 0; t < THREADS; t++) {
        all[t] = (struct drawer){.h = &h, .number = t};
        assert_int_equal(pthread_create(&threads[t], NULL, drawer_main, &all[t]), 0);
    }
    for (int t = 0; t < THREADS; t++)
        (void)pthread_join(threads[t], NULL);
    for (int t = 0; t < THREADS; t++)
        for (size_t i = 0; i < KEYS; i++) {
            int64_t before = 0;

            for (int round = 0; round < ROUNDS; round++) {
                int64_t number = all[t].drawn[round][i];

                if (number == 0)
                    continue;
                assert_in_range(number, before + 1, THREADS * ROUNDS);
                assert_false(given[i][number]);
                given[i][number] = true;
                before = number;
            }
        }
    issue(&h, h.session, "last", last);
    for (size_t i = 0; i < KEYS; i++) /* less only where two made the document at once */
        assert_in_range(last[i], THREADS * (ROUNDS - 1) + 1, THREADS * ROUNDS + 1);
    close_help(&h);
}

/* What somebody has put there keeps its own lock waiting, and no other. */
static void test_odd_documents_stop_nobody_else(void **state)
{
    static const char *const odd[] = {"1.5", "'text'", "{'$numberLong':'9223372036854775807'}"};
    struct help h;
    int64_t numbers[KEYS];

    (void)state;
    open_help(&h);
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        help_command(&h, h.route.database,
                     help_bson("{'update':'%s','updates':[{'q':{'_id':'p:a'},"
                               "'u':{'$set':{'issued':%s}},'upsert':true}]}",
                               fence_name, odd[i]));
        issue(&h, h.session, odd[i], numbers);
        assert_int_equal(numbers[0], 0);
        assert_int_equal(numbers[1], i + 1);
        assert_int_equal(numbers[2], i + 1);
    }
    close_help(&h);
}

static void test_what_it_costs(void **state)
{
    static char *names[MANY];
    int64_t numbers[MANY], start_us;
    struct help h;
    struct outcome why = {0};

    (void)state;
    open_help(&h);
    for (int i = 0; i < MANY; i++)
        names[i] = mem_printf("k%04d", i);
    for (int round = 1; round <= 2; round++) {
        start_us = clock_mono_us();
        assert_true(h.sink.ops->issue(h.session, 0, round == 1 ? "x" : "y",
                                      (const char *const *)names, MANY, numbers, &why));
        print_message("%d numbers, %s: %lld us\n", MANY, round == 1 ? "new keys" : "known keys",
                      (long long)(clock_mono_us() - start_us));
        for (int i = 0; i < MANY; i++)
            assert_int_equal(numbers[i], round);
    }
    for (int i = 0; i < MANY; i++)
        mem_free(names[i]);
    close_help(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers_rise),
        cmocka_unit_test(test_nobody_gets_anothers),
        cmocka_unit_test(test_odd_documents_stop_nobody_else),
        cmocka_unit_test(test_what_it_costs),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
