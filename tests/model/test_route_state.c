/* What the workers know together of a route. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "run/route_state.h"

static char shop[] = "shop", orders[] = "orders", other[] = "other", depot[] = "depot";
static struct config_route routes[] = {
    {.name = (char[]){"a"}, .database = shop, .collection = orders},
    {.name = (char[]){"b"}, .database = shop, .collection = orders},
    {.name = (char[]){"c"}, .database = shop, .collection = other},
    {.name = (char[]){"d"}, .database = depot, .collection = orders},
};

static struct config config_of(int64_t retry_max_ms)
{
    struct config c = {.routes = routes, .n_routes = 4};

    c.retry.max_ms = retry_max_ms;
    return c;
}

static bool describes(struct route_state *s, const char *text)
{
    struct buf b = {0};
    bool any = route_state_describe(s, &b);
    bool found = any && strstr(buf_text(&b), text) != NULL;

    assert_true(any == (b.len > 0));
    if (any && !found)
        print_message("%s\n", buf_text(&b));
    buf_clear(&b);
    return found;
}

/* A collection is one, by whichever route; the same name elsewhere is another. */
static void test_stored_is_of_the_collection(void **state)
{
    struct config c = config_of(1000);
    struct metrics *m = metrics_new();
    struct route_state *s = route_state_new(&c, m);

    (void)state;
    assert_int_equal(route_state_stored(s, 0, 3), 3);
    assert_int_equal(route_state_stored(s, 1, 4), 7);
    assert_int_equal(route_state_stored(s, 2, 5), 5);
    assert_int_equal(route_state_stored(s, 3, 6), 6);
    assert_int_equal(route_state_stored(s, 0, 0), 7);
    assert_int_equal(route_state_cleared(s, 0, 1), 1);
    assert_int_equal(route_state_cleared(s, 1, 2), 3);
    assert_int_equal(route_state_cleared(s, 2, 0), 0);
    route_state_free(s);
    metrics_free(m);
}

static void test_said_once(void **state)
{
    struct config c = config_of(60000);
    struct metrics *m = metrics_new();
    struct route_state *s = route_state_new(&c, m);
    int64_t lasted_ms;

    (void)state;
    assert_false(describes(s, ""));
    assert_false(route_state_fine(s, 0, &lasted_ms)); /* nothing was said */
    assert_true(route_state_trouble(s, 0, RETRY_NETWORK, 0));
    for (int i = 0; i < 1000; i++) /* not once for each record */
        assert_false(route_state_trouble(s, 0, RETRY_NETWORK, 0));
    assert_true(route_state_trouble(s, 1, RETRY_NETWORK, 0)); /* another route */
    assert_true(route_state_trouble(s, 0, RETRY_RIGHTS, 13)); /* another class */
    assert_false(route_state_trouble(s, 0, RETRY_NETWORK, 0));
    assert_true(route_state_fine(s, 0, &lasted_ms));
    assert_false(route_state_fine(s, 0, &lasted_ms));
    assert_false(route_state_trouble(s, 0, RETRY_NETWORK, 0)); /* comes and goes */
    assert_false(route_state_fine(s, 0, &lasted_ms));
    route_state_free(s);
    metrics_free(m);
}

static void test_what_is_held(void **state)
{
    static const bool held[RETRY_CLASSES] = {[RETRY_RIGHTS] = true, [RETRY_CONFIG] = true};
    struct config c = config_of(60000);
    struct metrics *m = metrics_new();
    struct route_state *s = route_state_new(&c, m);
    int64_t lasted_ms;

    (void)state;
    for (int why = RETRY_NONE + 1; why < RETRY_CLASSES; why++) {
        (void)route_state_trouble(s, 2, (enum retry_class)why, 0);
        assert_int_equal(atomic_load(&route_state_held(s)[2]), held[why]);
        assert_false(atomic_load(&route_state_held(s)[0]));
    }
    (void)route_state_trouble(s, 2, RETRY_CONFIG, 14031);
    (void)route_state_fine(s, 2, &lasted_ms);
    assert_false(atomic_load(&route_state_held(s)[2]));
    route_state_free(s);
    metrics_free(m);
}

static void test_described_while_it_is_confirmed(void **state)
{
    struct config c = config_of(60000);
    struct metrics *m = metrics_new();
    struct route_state *s = route_state_new(&c, m);
    struct buf page = {0};
    int64_t lasted_ms;

    (void)state;
    (void)route_state_trouble(s, 2, RETRY_RIGHTS, 13);
    assert_true(describes(s, "MongoDB does not acknowledge: rights (code 13), route c, collection "
                             "shop.other, for 0 s: grant the user"));
    route_state_explain(s, 2, "grant update");
    assert_true(describes(s, "for 0 s: grant update"));
    (void)route_state_trouble(s, 2, RETRY_NETWORK, 0); /* what was said of the rights is over */
    assert_true(
        describes(s, "acknowledge: network, route c, collection shop.other, for 0 s: see "));
    metrics_render(m, &page);
    assert_non_null(
        strstr(buf_text(&page), "idemsink_route_blocked{route=\"c\",class=\"network\"} 1"));
    assert_non_null(
        strstr(buf_text(&page), "idemsink_route_blocked{route=\"c\",class=\"rights\"} 0"));
    assert_null(strstr(buf_text(&page), "class=\"dead_letter\""));
    assert_null(strstr(buf_text(&page), "class=\"none\""));
    assert_false(route_state_fine(s, 0, &lasted_ms));
    assert_true(describes(s, "route c"));
    (void)route_state_fine(s, 2, &lasted_ms);
    assert_false(describes(s, ""));
    route_state_explain(s, 2, "too late");
    assert_false(describes(s, ""));
    route_state_free(s);

    c = config_of(0); /* its partitions went away: no attempt will ever confirm it */
    s = route_state_new(&c, m);
    (void)route_state_trouble(s, 2, RETRY_RIGHTS, 13);
    assert_false(describes(s, ""));
    buf_clear(&page);
    metrics_free(m);
    route_state_free(s);
}

/* Beside what is said of the route, and not in the way of it. */
static void test_a_part_that_waits(void **state)
{
    struct config c = config_of(60000);
    struct metrics *m = metrics_new();
    struct route_state *s = route_state_new(&c, m);
    struct buf page = {0};
    int64_t lasted_ms;
    bool waits = false;

    (void)state;
    assert_false(route_state_part_goes_on(s, 2, &waits, &lasted_ms));
    assert_true(route_state_part_waits(s, 2, &waits, "raise a"));
    assert_false(route_state_part_waits(s, 2, &waits, "raise a"));
    assert_false(
        route_state_part_waits(s, 2, &waits, "raise b")); /* soon behind: not said, but shown */
    assert_true(describes(s,
                          "records wait until somebody acts: route c, collection shop.other, for "
                          "0 s: raise b"));
    assert_false(atomic_load(&route_state_held(s)[2]));
    (void)route_state_fine(s, 2, &lasted_ms); /* others are written */
    assert_true(describes(s, "raise b"));
    assert_true(route_state_trouble(s, 2, RETRY_NETWORK, 0));
    assert_true(describes(s, "raise b\nMongoDB does not acknowledge: network"));
    metrics_render(m, &page);
    assert_non_null(
        strstr(buf_text(&page), "idemsink_route_blocked{route=\"c\",class=\"config\"} 1"));
    assert_non_null(
        strstr(buf_text(&page), "idemsink_route_blocked{route=\"b\",class=\"config\"} 0"));
    (void)route_state_fine(s, 2, &lasted_ms);
    assert_true(route_state_part_goes_on(s, 2, &waits, &lasted_ms));
    assert_false(route_state_part_goes_on(s, 2, &waits, &lasted_ms));
    assert_false(describes(s, ""));
    route_state_free(s);

    c = config_of(0);
    s = route_state_new(&c, m);
    waits = false;
    (void)route_state_part_waits(s, 2, &waits, "raise a"); /* its partitions went away */
    assert_false(describes(s, ""));
    buf_clear(&page);
    metrics_free(m);
    route_state_free(s);
}

/* As long as one of them waits, somebody has to act. */
static void test_several_that_wait(void **state)
{
    struct config c = config_of(60000);
    struct metrics *m = metrics_new();
    struct route_state *s = route_state_new(&c, m);
    int64_t lasted_ms;
    bool one = false, two = false, lost = false, third = false;

    (void)state;
    assert_true(route_state_part_waits(s, 2, &one, "raise a"));
    assert_false(route_state_part_waits(s, 2, &two, "raise a"));
    assert_false(route_state_part_waits(s, 2, &one, "raise a")); /* the next attempt */
    assert_false(route_state_part_goes_on(s, 2, &one, &lasted_ms));
    assert_true(describes(s, "raise a"));
    assert_false(route_state_part_goes_on(s, 2, &one, &lasted_ms)); /* that was counted */
    assert_false(route_state_part_goes_on(s, 2, &third, &lasted_ms));
    assert_true(describes(s, "raise a"));
    assert_true(route_state_part_goes_on(s, 2, &two, &lasted_ms));
    assert_false(describes(s, ""));
    route_state_free(s);

    c = config_of(0); /* a partition goes away; nothing is said of it, so it is forgotten */
    s = route_state_new(&c, m);
    assert_true(route_state_part_waits(s, 2, &lost, "raise a"));
    (void)route_state_part_waits(s, 2, &third, "raise b");
    assert_true(route_state_part_goes_on(s, 2, &third, &lasted_ms));
    metrics_free(m);
    route_state_free(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stored_is_of_the_collection),
        cmocka_unit_test(test_said_once),
        cmocka_unit_test(test_what_is_held),
        cmocka_unit_test(test_described_while_it_is_confirmed),
        cmocka_unit_test(test_a_part_that_waits),
        cmocka_unit_test(test_several_that_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
