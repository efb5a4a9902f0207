/*
 * Which messages and keys a write asks for. One a line: "unlink RULE KEY", "incr RULE KEY
 * (EXPIRE)", "publish RULE CHANNEL BODY" or "xadd RULE STREAM (MAXLEN) BODY".
 */
#include "unit/mapping_fixture.h"

#include "core/invalidation.h"

static char *tell(const char *spec, const char *value, bool inserted, bool build_first,
                  size_t *skipped)
{
    struct config_route *route = fixture_route(spec);
    struct mapping *m = fixture_mapping(route);
    struct record *r = fixture_record("kk", value, strlen(value));
    struct invalidation_list list = {0};
    struct buf out = {0};

    *skipped = 0;
    if (build_first)
        mem_free(fixture_map(m, r, false));
    mapping_invalidations(m, r, inserted, &list, skipped);
    assert_null(r->json);
    for (size_t i = 0; i < list.n; i++) {
        const struct invalidation *v = &list.items[i];

        assert_int_equal(invalidation_goes_first(v->kind), v->body == NULL);
        assert_true(v->expire_ms == 0 || v->kind == INVALIDATION_INCR);
        assert_true(v->maxlen == 0 || v->kind == INVALIDATION_XADD);
        if (v->kind == INVALIDATION_UNLINK)
            buf_printf(&out, "unlink %u %s\n", v->rule, v->name);
        else if (v->kind == INVALIDATION_INCR)
            buf_printf(&out, "incr %u %s (%" PRId64 ")\n", v->rule, v->name, v->expire_ms);
        else if (v->kind == INVALIDATION_XADD)
            buf_printf(&out, "xadd %u %s (%" PRId64 ") %s\n", v->rule, v->name, v->maxlen, v->body);
        else
            buf_printf(&out, "publish %u %s %s\n", v->rule, v->name, v->body);
    }
    invalidation_list_clear(&list);
    assert_int_equal(list.n, 0);
    record_free(r);
    mapping_free(m);
    fixture_route_free(route);
    return out.data != NULL ? out.data : mem_text("");
}

struct tell_row {
    const char *spec, *value;
    bool inserted;
    size_t skipped;
    const char *expected;
};

static void check(const struct tell_row *rows, size_t n)
{
    for (size_t i = 0; i < 2 * n; i++) {
        const struct tell_row *row = &rows[i / 2];
        size_t skipped;
        char *got = tell(row->spec, row->value, row->inserted, i % 2 == 1, &skipped);

        if (strcmp(got, row->expected) != 0 || skipped != row->skipped)
            fail_msg("row %zu: %s\n  got      %s (%zu skipped)\n  expected %s", i / 2, row->spec,
                     got, skipped, row->expected);
        mem_free(got);
    }
}
#define CHECK(rows) check((rows), sizeof(rows) / sizeof((rows)[0]))

static void test_unlink_and_pubsub(void **state)
{
    static const struct tell_row rows[] = {
        {"dedup id", "{\"id\":1}", true, 0, ""},
        {"dedup id\nunlink order:{id} user:{u.n} all", "{\"id\":1,\"u\":{\"n\":\"x*\"}}", true, 0,
         "unlink 0 order:1\nunlink 0 user:x*\nunlink 0 all\n"},
        {"dedup id\nunlink order:{id} user:{u.n}", "{\"id\":1}", true, 1, "unlink 0 order:1\n"},
        {"dedup id\nunlink {s}", "{\"id\":1,\"s\":\"\"}", true, 1, ""}, /* an empty key is no key */
        {"dedup id\npubsub changed:{@collection} {\"id\":{id},\"topic\":\"{@topic}\"}",
         "{\"id\":1}", true, 0, "publish 0 changed:coll {\"id\":1,\"topic\":\"top\"}\n"},
        {"dedup id\npubsub c {\"id\":{x}}", "{\"id\":1}", true, 1, ""},
        {"dedup id\npubsub c:{x} {\"id\":{id}}", "{\"id\":1}", true, 1, ""},
        {"dedup id\nunlink a\nunlink b\ninserted\npubsub c {\"k\":{@key}}", "{\"id\":1}", false, 0,
         "unlink 0 a\npublish 2 c {\"k\":\"kk\"}\n"},
        {"dedup id\nunlink a\nunlink b\ninserted", "{\"id\":1}", true, 0,
         "unlink 0 a\nunlink 1 b\n"},
    };

    (void)state;
    CHECK(rows);
}

static void test_version_and_stream(void **state)
{
    static const struct tell_row rows[] = {
        {"dedup id\nversion 0 gen:{id} gen:{u} all", "{\"id\":1,\"u\":\"x*\"}", true, 0,
         "incr 0 gen:1 (0)\nincr 0 gen:x* (0)\nincr 0 all (0)\n"},
        {"dedup id\nversion 3600000 gen:{u} {s}", "{\"id\":1,\"u\":true,\"s\":\"\"}", true, 1,
         "incr 0 gen:true (3600000)\n"},
        {"dedup id\nstream changes:{@collection} 500 {\"id\":{id},\"at\":@TIMESTAMP@}",
         "{\"id\":1}", true, 0, "xadd 0 changes:coll (500) {\"id\":1,\"at\":@TIMESTAMP@}\n"},
        {"dedup id\nstream s:{x} 500 {\"id\":{id}}", "{\"id\":1}", true, 1, ""},
        {"dedup id\nstream s 500 {\"id\":{x}}", "{\"id\":1}", true, 1, ""},
        {"dedup id\nstream s 9 [1]\ninserted\nversion 0 g\nunlink u\npubsub c [2]", "{\"id\":1}",
         false, 0, "incr 1 g (0)\nunlink 2 u\npublish 3 c [2]\n"},
    };

    (void)state;
    CHECK(rows);
}

static void test_monsqlize(void **state)
{
#define CHANNEL "monsqlize:cache:invalidate "
#define TAIL    ",\"instanceId\":\"me\",\"timestamp\":@TIMESTAMP@}\n"
    static const struct tell_row rows[] = {
        {"dedup id\nmonsqlize 1\npatterns", "{\"id\":1}", true, 0,
         "publish 0 " CHANNEL "{\"type\":\"invalidate\",\"pattern\":\"*\\\"ns\\\":{"
         "\\\"collection\\\":\\\"coll\\\",\\\"db\\\":\\\"db\\\",*\"" TAIL},
        {"dedup id\nmonsqlize 3\nkey a:{id}\nkey b:{@key}", "{\"id\":\"x\\\"y\"}", true, 0,
         "publish 0 " CHANNEL "{\"type\":\"invalidateKey\",\"key\":\"a:x\\\"y\"" TAIL
         "publish 0 " CHANNEL "{\"type\":\"invalidateKey\",\"key\":\"b:kk\"" TAIL},
        {"dedup id\nmonsqlize 3\npatterns\nbookmarks\necho_safe", "{\"id\":1}", true, 0,
         "publish 0 " CHANNEL "{\"type\":\"invalidate\",\"pattern\":\"*:db.coll:*\"" TAIL
         "publish 0 " CHANNEL "{\"type\":\"invalidate\",\"pattern\":\"db:coll:bm:*\"" TAIL},
        /* of other collections instead: those of counters */
        {"dedup id\nmonsqlize 1\npatterns\ncollections shop.users a.b.c", "{\"id\":1}", true, 0,
         "publish 0 " CHANNEL "{\"type\":\"invalidate\",\"pattern\":\"*\\\"ns\\\":{"
         "\\\"collection\\\":\\\"users\\\",\\\"db\\\":\\\"shop\\\",*\"" TAIL "publish 0 " CHANNEL
         "{\"type\":\"invalidate\",\"pattern\":\"*\\\"ns\\\":{"
         "\\\"collection\\\":\\\"b.c\\\",\\\"db\\\":\\\"a\\\",*\"" TAIL},
        {"dedup id\nmonsqlize 3\npatterns\nbookmarks\necho_safe\ncollections shop.users",
         "{\"id\":1}", true, 0,
         "publish 0 " CHANNEL "{\"type\":\"invalidate\",\"pattern\":\"*:shop.users:*\"" TAIL
         "publish 0 " CHANNEL "{\"type\":\"invalidate\",\"pattern\":\"shop:users:bm:*\"" TAIL},
        /* a wildcard, or what is not UTF-8, coming from data */
        {"dedup id\nmonsqlize 3\nkey a:{id}\nkey b:{@header.bytes}\nkey c", "{\"id\":\"*\"}", true,
         2, "publish 0 " CHANNEL "{\"type\":\"invalidateKey\",\"key\":\"c\"" TAIL},
        {"dedup id\nmonsqlize 3\nkey a:{id}", "{\"id\":\"@TIMESTAMP@\"}", true, 0,
         "publish 0 " CHANNEL "{\"type\":\"invalidateKey\",\"key\":\"a:\\u0040TIMESTAMP@\"" TAIL},
    };

    (void)state;
    CHECK(rows);
}

static void test_what_is_refused(void **state)
{
    static const struct {
        const char *spec, *text;
    } rows[] = {
        {"dedup id\nunlink {a", "without"},           {"dedup id\npubsub c {\"a\":", "template"},
        {"dedup id\nversion 0 a}", "without"},        {"dedup id\nstream s{ 1 {}", "without"},
        {"dedup id\nstream s 1 {\"a\":", "template"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct config_route *route = fixture_route(rows[i].spec);
        struct err e = {0};

        if (mapping_new(route, &fixture_env, &e) != NULL || e.kind != ERR_CONFIG ||
            strstr(e.text, rows[i].text) == NULL)
            fail_msg("row %zu: %s: %s", i, rows[i].spec, e.text);
        fixture_route_free(route);
    }
}

static void test_a_sender_without_a_name(void **state)
{
    struct config_route *route = fixture_route("dedup id\nmonsqlize 1\npatterns");
    struct mapping_env nameless = {.instance_id = ""};
    struct err e = {0};

    (void)state;
    assert_null(
        mapping_new(route, &nameless, &e)); /* receivers ignore their own id: ours must be one */
    assert_non_null(strstr(e.text, "instance id"));
    fixture_route_free(route);
}

static void assert_collapsed(const char *spec, const char *pattern)
{
    struct config_route *route = fixture_route(spec);
    struct mapping *m = fixture_mapping(route);
    struct invalidation out = {0};

    assert_int_equal(mapping_collapsed(m, 0, &out), pattern != NULL);
    if (pattern && !strstr(out.body, pattern))
        fail_msg("%s: %s", spec, out.body);
    invalidation_clear(&out);
    mapping_free(m);
    fixture_route_free(route);
}

static void test_what_stands_for_all(void **state)
{
    (void)state;
    assert_collapsed("dedup id\nmonsqlize 3\nkey a:{id}\necho_safe", "\"*:db.coll:*\"");
    assert_collapsed("dedup id\nmonsqlize 3\nkey a:{id}\nbookmarks\necho_safe\ncollections s.u",
                     "\"*:s.u:*\"");
    assert_collapsed("dedup id\nmonsqlize 3\nkey a:{id}\nbookmarks\necho_safe\ncollections s.u s.v",
                     NULL);
    assert_collapsed("dedup id\nmonsqlize 3\nkey a:{id}", NULL);
    assert_collapsed("dedup id\nunlink a", NULL);
}

static void test_the_list_grows_and_owns(void **state)
{
    struct invalidation_list list = {0};

    (void)state;
    for (uint32_t i = 0; i < 100; i++)
        invalidation_add(&list, INVALIDATION_PUBLISH, i, mem_printf("n%u", i),
                         mem_printf("b%u", i));
    assert_int_equal(list.n, 100);
    assert_string_equal(list.items[99].name, "n99");
    assert_string_equal(list.items[0].body, "b0");
    invalidation_clear(&list.items[0]);
    assert_null(list.items[0].name);
    invalidation_list_clear(&list);
    assert_null(list.items);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_unlink_and_pubsub),
        cmocka_unit_test(test_version_and_stream),
        cmocka_unit_test(test_monsqlize),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_a_sender_without_a_name),
        cmocka_unit_test(test_what_stands_for_all),
        cmocka_unit_test(test_the_list_grows_and_owns),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
