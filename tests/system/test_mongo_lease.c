/* Leases on a real server: one holder, an end by itself, and a time between two runs. */
#include "mongo_help.h"

#include "io/mongo_lease.h"

enum { LONG_MS = 600 * 1000, SHORT_MS = 300, PATIENCE_MS = 60000 };

static void open_help(struct help *h)
{
    help_begin(h, "a");
    help_connect(h);
}

/* The name is that of the collection: a new one for each test. */
static struct mongo_lease_terms terms(const struct help *h, int64_t hold_ms)
{
    return (struct mongo_lease_terms){
        .database = h->route.database, .name = h->collection, .owner = "$x", .hold_ms = hold_ms};
}

static bool take(struct help *h, const struct mongo_lease_terms *t, struct mongo_lease *out)
{
    struct err e = {0};
    bool held;

    if (!mongo_lease_take(h->mongo, t, out, &held, &e))
        fail_msg("%s", e.text);
    return held;
}

static bool renew(struct help *h, struct mongo_lease *l)
{
    struct err e = {0};
    bool held;

    if (!mongo_lease_renew(h->mongo, l, &held, &e))
        fail_msg("%s", e.text);
    return held;
}

static bool keep(struct help *h, struct mongo_lease *l)
{
    struct err e = {0};
    bool held;

    if (!mongo_lease_keep(h->mongo, l, &held, &e))
        fail_msg("%s", e.text);
    return held;
}

static void release(struct help *h, const struct mongo_lease *l, bool done)
{
    struct err e = {0};

    if (!mongo_lease_release(h->mongo, l, done, &e))
        fail_msg("%s", e.text);
}

/* Whoever holds it lets it go or dies; how long that took. */
static void take_at_last(struct help *h, const struct mongo_lease_terms *t, struct mongo_lease *out)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;

    while (!take(h, t, out))
        if (clock_mono_ms() > until_ms)
            fail_msg("the lease did not run out");
}

static void forget(struct help *h)
{
    help_command(h, h->route.database,
                 help_bson("{'delete':'" MONGO_LEASES "','deletes':[{'q':{'_id':'%s'},'limit':1}]}",
                           h->collection));
    help_close(h);
}

static void test_one_holder(void **state)
{
    struct mongo_lease a, b;
    struct help h;

    (void)state;
    open_help(&h);
    struct mongo_lease_terms t = terms(&h, LONG_MS);
    assert_true(take(&h, &t, &a));
    assert_false(take(&h, &t, &b)); /* the same process is another one, too */
    assert_true(renew(&h, &a));
    assert_false(renew(&h, &b));
    release(&h, &b, true); /* not ours: nothing happens */
    assert_false(take(&h, &t, &b));
    release(&h, &a, false);
    assert_false(renew(&h, &a));
    assert_true(take(&h, &t, &b));
    release(&h, &a, false); /* again, late: that is b's now */
    assert_true(renew(&h, &b));
    release(&h, &b, true);
    forget(&h);
}

static void test_runs_out(void **state)
{
    struct mongo_lease a, b;
    struct help h;

    (void)state;
    open_help(&h);
    struct mongo_lease_terms t = terms(&h, SHORT_MS);
    assert_true(take(&h, &t, &a));
    int64_t before_ms = clock_mono_ms();
    take_at_last(&h, &t, &b);
    assert_true(clock_mono_ms() >= before_ms + SHORT_MS / 2);
    assert_false(renew(&h, &a)); /* it has slept */
    take_at_last(&h, &t, &a);    /* b sleeps, and nobody takes it from a */
    take_at_last(&h, &t, &b);
    assert_false(renew(&h, &a));
    forget(&h);
}

/* Renewed while one works, but not each time one asks. */
static void test_kept(void **state)
{
    struct mongo_lease a, b;
    struct help h;

    (void)state;
    open_help(&h);
    struct mongo_lease_terms t = terms(&h, 10000);
    assert_true(take(&h, &t, &a));
    int64_t first_ms = a.until_ms;
    assert_true(keep(&h, &a));
    assert_int_equal(a.until_ms, first_ms);
    a.until_ms -= 6000; /* time has passed */
    assert_true(keep(&h, &a));
    assert_true(a.until_ms >= first_ms);
    release(&h, &a, false);
    a.until_ms -= 6000;
    assert_false(keep(&h, &a));
    assert_true(take(&h, &t, &b));
    forget(&h);
}

/* What is due once an hour is not done by the next process a minute later. */
static void test_every(void **state)
{
    struct mongo_lease a;
    struct help h;

    (void)state;
    open_help(&h);
    struct mongo_lease_terms t = terms(&h, LONG_MS);
    t.every_ms = LONG_MS;
    assert_true(take(&h, &t, &a));
    release(&h, &a, false); /* not finished: the next one may */
    assert_true(take(&h, &t, &a));
    release(&h, &a, true);
    assert_false(take(&h, &t, &a));
    t.every_ms = 1;
    take_at_last(&h, &t, &a);
    release(&h, &a, false);
    t.every_ms = LONG_MS;
    assert_false(take(&h, &t, &a)); /* it has run a moment ago */
    t.every_ms = 0;
    assert_true(take(&h, &t, &a));
    forget(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_holder),
        cmocka_unit_test(test_runs_out),
        cmocka_unit_test(test_kept),
        cmocka_unit_test(test_every),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
