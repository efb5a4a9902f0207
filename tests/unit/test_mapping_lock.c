/*
 * The key of a record's lock, its fence, and the place of the fence's number in the document.
 */
#include "unit/mapping_fixture.h"

#include "core/effect.h"

static char key_id[] = "{id}", key_long[] = "{key}", key_key[] = "k:{@key}",
            prefix[] = "p:", fence[] = "fences", fence_database[] = "db", field[] = "_n",
            off[] = "";

static char *lock_of(struct config_lock lock, const char *value, struct write_op *op)
{
    struct config_route *route = fixture_route("dedup id");
    struct record *r = fixture_record("K", value, strlen(value));
    struct err e;
    char *text;

    route->lock = lock;
    struct mapping *m = mapping_new(route, &fixture_env, &e);

    if (m == NULL)
        fail_msg("%s", e.text);
    *op = (struct write_op){0};
    if (mapping_build(m, r, op) == MAPPING_WRITE)
        text = mem_printf("%s", op->lock);
    else
        text = mem_printf("%s: %s", reason_name(r->rejected.reason), r->rejected.text);
    record_free(r);
    mapping_free(m);
    fixture_route_free(route);
    return text;
}

static void check_lock(char *key, const char *value, const char *expected)
{
    struct write_op op;
    char *got = lock_of((struct config_lock){.key = key, .prefix = prefix}, value, &op);

    assert_string_equal(got, expected);
    assert_null(op.effects); /* a lock alone needs no transaction */
    write_op_clear(&op);
    mem_free(got);
}

static void the_key_is_the_prefix_and_the_filled_template(void **state)
{
    (void)state;
    check_lock(key_id, "{\"id\":7}", "p:7");
    check_lock(key_id, "{\"id\":\"a*b\"}", "p:a*b");
    check_lock(key_key, "{\"id\":1}", "p:k:K");
}

static void a_value_that_is_missing_is_no_key(void **state)
{
    (void)state;
    check_lock(key_long, "{\"id\":7}", "effect_value: lock.key: \"key\" is missing or no scalar");
    check_lock(key_long, "{\"id\":7,\"key\":null}",
               "effect_value: lock.key: \"key\" is missing or no scalar");
    check_lock(key_long, "{\"id\":7,\"key\":[1]}",
               "effect_value: lock.key: \"key\" is missing or no scalar");
}

static void keys_have_a_bound(void **state)
{
    char value[1100], expected[1100];
    int n = 998; /* and the prefix */

    (void)state;
    (void)snprintf(value, sizeof value, "{\"id\":7,\"key\":\"%0*d\"}", n, 0);
    (void)snprintf(expected, sizeof expected, "p:%0*d", n, 0);
    check_lock(key_long, value, expected);
    (void)snprintf(value, sizeof value, "{\"id\":7,\"key\":\"%0*d\"}", n + 1, 0);
    check_lock(key_long, value,
               "effect_value: lock.key: \"{key}\" makes a key of more than 1000 bytes");
}

static void a_fence_has_the_key(void **state)
{
    struct config_lock lock = {.key = key_id,
                               .prefix = prefix,
                               .fence = fence,
                               .fence_database = fence_database,
                               .fence_field = off};
    struct write_op op;
    char *got = lock_of(lock, "{\"id\":7}", &op);
    struct buf shown = {0};

    (void)state;
    assert_string_equal(got, "p:7");
    assert_non_null(op.effects);
    fixture_show(op.effects->fence, false, &shown);
    assert_string_equal(buf_text(&shown), "{\"_id\":\"p:7\"}");
    assert_int_equal(op.kind, WRITE_KIND_INSERT);
    buf_clear(&shown);
    write_op_clear(&op);
    mem_free(got);
}

static void its_number_needs_a_place(void **state)
{
    struct config_lock lock = {.key = key_id,
                               .prefix = prefix,
                               .fence = fence,
                               .fence_database = fence_database,
                               .fence_field = field};
    struct write_op op;
    char *got = lock_of(lock, "{\"id\":7,\"_n\":1}", &op);

    (void)state;
    assert_string_equal(got, "unsafe_name: the document has a field \"_n\" of its own, where "
                             "lock.fence_field goes (exclude or rename it, or choose another "
                             "fence_field)");
    mem_free(got);
    got = lock_of(lock, "{\"id\":7,\"n\":1}", &op);
    assert_string_equal(got, "p:7");
    write_op_clear(&op);
    mem_free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_key_is_the_prefix_and_the_filled_template),
        cmocka_unit_test(a_value_that_is_missing_is_no_key),
        cmocka_unit_test(keys_have_a_bound),
        cmocka_unit_test(a_fence_has_the_key),
        cmocka_unit_test(its_number_needs_a_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
