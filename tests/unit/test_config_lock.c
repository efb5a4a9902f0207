/*
 * What [route.lock] needs, and what it excludes.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/config.h"

/* What a test adds begins in line 13. */
#define ENOUGH                                                                                     \
    "[kafka]\nbrokers = \"b:9092\"\ngroup = \"g\"\n[mongo]\nuri = \"mongodb://h/\"\n"              \
    "[redis]\nuri = \"redis://h\"\n[[route]]\ntopics = [\"t\"]\ncollection = \"d.c\"\n"
#define DEDUP "[route.dedup]\nkey = [\"id\"]\n"

static struct config *parse(const char *text, struct err *e)
{
    return config_parse(&(struct config_input){.name = "f", .text = slice_text(text)}, e);
}

static void assert_fails(const char *text, const char *expected)
{
    struct err e = {0};
    struct config *c = parse(text, &e);

    if (c)
        print_error("accepted: %s\n", text);
    assert_null(c);
    assert_string_equal(e.text, expected);
}

static void mistakes(void **state)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {ENOUGH DEDUP "[route.lock]\nttl = \"1s\"",
         "f:14:1: route.lock.ttl: has no meaning without lock.key"},
        {ENOUGH DEDUP "[route.lock]\nkey = \"a{\"",
         "f:14:1: route.lock.key: template \"a{\": \"{\" without \"}\""},
        {ENOUGH DEDUP "[route.lock]\nkey = \"{id}\"\nfence_field = \"n\"",
         "f:15:1: route.lock.fence_field: has no meaning without lock.fence"},
        {ENOUGH DEDUP "[route.lock]\nkey = \"{id}\"\nfence = \"d.f\"\nfence_field = \"a.b\"",
         "f:16:1: route.lock.fence_field: \"a.b\" is no name of its own at the top of the "
         "document"},
        {ENOUGH DEDUP "[route.lock]\nkey = \"{id}\"\nfence = \"d.f\"\nfence_field = \"id\"",
         "f:16:1: route.lock.fence_field: \"id\" is a field of the dedup key"},
        {ENOUGH DEDUP "[route.lock]\nkey = \"{id}\"\nfence = \"d.f\"\nfence_field = \"n\"\n"
                      "[route.sequence]\nfield = \"n\"",
         "f:16:1: route.lock.fence_field: is a field of the sequence, too"},
        {ENOUGH DEDUP "[route.lock]\nkey = \"{id}\"\nttl = \"99ms\"",
         "f:15:1: route.lock.ttl: 99ms is below the minimum 100ms"},
        {ENOUGH "effects = \"log\"\n" DEDUP "[route.lock]\nkey = \"{id}\"\nfence = \"d.f\"",
         "f:16:1: route.lock.fence: needs transactions, and effects = \"log\" is for where there "
         "are none"},
        {ENOUGH "write = \"insert\"\n" DEDUP "[route.lock]\nkey = \"{id}\"\nfence = \"d.f\"",
         "f:11:1: route.write: has no meaning together with counters, a sequence, an operation or "
         "a fence: they decide how the documents are written"},
        {ENOUGH "tombstone = \"delete\"\n[route.dedup]\nkey = [\"@offset\"]\n"
                "[route.entity]\nkey = [\"@key\"]\nfields = [\"k\"]\n"
                "[route.lock]\nkey = \"{id}\"",
         "f:18:1: route.lock.key: with tombstone = \"delete\" a record that removes has no "
         "payload; possible are @key, @header.NAME and what else begins with @"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_fails(cases[i].text, cases[i].expected);
    assert_fails("[kafka]\nbrokers = \"b:9092\"\ngroup = \"g\"\n[mongo]\nuri = \"mongodb://h/\"\n"
                 "[[route]]\ntopics = [\"t\"]\ncollection = \"d.c\"\n" DEDUP
                 "[route.lock]\nkey = \"{id}\"",
                 "f:12:1: route.lock.key: needs redis.uri, and there is none");
}

static void a_lock_with_all_it_can_have(void **state)
{
    struct err e = {0};
    struct config *c =
        parse(ENOUGH "write = \"insert\"\n" DEDUP "[route.lock]\nkey = \"{id}\"", &e);

    (void)state;
    assert_non_null(c);
    assert_true(config_has_lock(&c->routes[0]));
    assert_false(config_has_effects(&c->routes[0]));
    /* monSQLize's own, or its programs and we would not see each other. */
    assert_string_equal(c->routes[0].lock.prefix, "monsqlize:cache:lock:");
    config_free(c);
    c = parse(ENOUGH DEDUP "[route.lock]\nkey = \"{id}\"\nfence = \"d.f\"\nfence_field = \"n\"",
              &e);
    assert_non_null(c);
    assert_true(config_has_effects(&c->routes[0]));
    assert_string_equal(c->routes[0].lock.fence_database, "d");
    assert_string_equal(c->routes[0].lock.fence, "f");
    config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(mistakes),
        cmocka_unit_test(a_lock_with_all_it_can_have),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
