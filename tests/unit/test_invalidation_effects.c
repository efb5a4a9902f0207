/*
 * What is told about routes with effects.
 */
#include "unit/mapping_fixture.h"

#include "core/invalidation.h"

#define ROUTE                                                                                      \
    "[kafka]\nbrokers = \"b:9092\"\ngroup = \"g\"\n[mongo]\nuri = \"mongodb://h/\"\n"              \
    "[redis]\nuri = \"redis://h\"\n[[route]]\ntopics = [\"top\"]\ncollection = \"d.c\"\n"
#define COUNTED                                                                                    \
    "[[route.counter]]\ncollection = \"d.users\"\nfilter = {_id = \"to\"}\ninc = {n = 1}\n"
#define PROFILES "[[route.invalidate]]\nmode = \"unlink\"\npublish_on = \"inserted\"\n"
#define FOLLOWS                                                                                    \
    ROUTE "[route.dedup]\nkey = [\"id\"]\n[route.entity]\nkey = [\"from\", \"to\"]\n"              \
          "[route.operation]\nsource = \"what\"\ninsert = [\"follow\"]\ndelete = [\"unfollow\"]\n"
#define TOMBSTONES                                                                                 \
    ROUTE "tombstone = \"delete\"\n[route.dedup]\nkey = [\"@offset\"]\n"                           \
          "[route.entity]\nkey = [\"@key\"]\nfields = [\"user\"]\n"

/* value NULL: a tombstone. */
static void assert_told(const char *toml, const char *value, bool is_new, size_t skipped,
                        const char *expected)
{
    struct err e;
    struct config *c =
        config_parse(&(struct config_input){.name = "f", .text = slice_text(toml)}, &e);

    if (c == NULL)
        fail_msg("%s\n%s", toml, e.text);
    struct mapping *m = fixture_mapping(&c->routes[0]);
    struct record *r = fixture_record("kk", value, value ? strlen(value) : 0);
    struct invalidation_list list = {0};
    struct write_op op = {0};
    struct buf out = {0};
    size_t left_out = 0;

    assert_int_equal(mapping_build(m, r, &op), MAPPING_WRITE);
    mapping_invalidations(m, r, is_new, &list, &left_out);
    for (size_t i = 0; i < list.n; i++)
        buf_printf(&out, "%s ", list.items[i].name);
    assert_string_equal(buf_text(&out), expected);
    assert_int_equal(left_out, skipped);
    buf_clear(&out);
    invalidation_list_clear(&list);
    write_op_clear(&op);
    record_free(r);
    mapping_free(m);
    config_free(c);
}

/* A removal is a change as an addition is: "inserted" says that the event was new. */
static void test_whose_counters_moved(void **state)
{
    static const char follows[] =
        FOLLOWS COUNTED PROFILES "keys = [\"user:{to}:profile\", \"user:{from}:profile\"]\n";
    static const char removal[] = "{\"id\":1,\"what\":\"unfollow\",\"from\":\"a\",\"to\":\"b\"}",
                      addition[] = "{\"id\":1,\"what\":\"follow\",\"from\":\"a\",\"to\":\"b\"}";

    (void)state;
    assert_told(follows, addition, true, 0, "user:b:profile user:a:profile ");
    assert_told(follows, removal, true, 0, "user:b:profile user:a:profile ");
    assert_told(follows, removal, false, 0, "");
    /* A tombstone has a key, and no values. */
    assert_told(TOMBSTONES PROFILES "keys = [\"user:{@key}\", \"user:{name}\"]\n", NULL, true, 1,
                "user:kk ");
    assert_told(TOMBSTONES PROFILES "keys = [\"user:{@key}\", \"user:{name}\"]\n",
                "{\"name\":\"n\"}", true, 0, "user:kk user:n ");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whose_counters_moved),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
