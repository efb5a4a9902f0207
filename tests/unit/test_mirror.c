/* From a counter document to what Redis is told of it; and of several such the newest is sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "core/coalesce.h"
#include "core/mirror.h"
#include "fakes/dice.h"

/* --- what is told --- */

static char by_id[] = "_id", by_shop[] = "shop", by_day[] = "on.day", source[] = "s",
            followers[] = "followers", deep[] = "n.of", key_by_id[] = "user:{_id}:followers",
            key_by_two[] = "{shop}/{on.day}", no_key[] = "";
static struct config_pair one_field[] = {{by_id, source}},
                          two_fields[] = {{by_shop, source}, {by_day, source}},
                          counted[] = {{followers, source}, {deep, source}};
static const struct config_counter
    one = {.index = 3, .mirror = key_by_id, .filter = {one_field, 1}, .inc = {counted, 2}},
    two = {.index = 4, .mirror = key_by_two, .filter = {two_fields, 2}, .inc = {counted, 1}},
    none = {.mirror = no_key, .filter = {one_field, 1}, .inc = {counted, 1}};

static void assert_told(const struct config_counter *c, const char *json, const char *name,
                        const char *values, int64_t version)
{
    bson_error_t e;
    bson_t *document = bson_new_from_json((const uint8_t *)json, -1, &e);
    struct invalidation_list l = {0};

    if (!document)
        fail_msg("%s: %s", json, e.message);
    if (name == NULL) {
        assert_false(mirror_add(c, document, &l));
        assert_int_equal(l.n, 0);
    } else {
        assert_true(mirror_add(c, document, &l));
        assert_int_equal(l.n, 1);
        assert_int_equal(l.items[0].kind, INVALIDATION_MIRROR);
        assert_int_equal(l.items[0].rule, c->index);
        assert_string_equal(l.items[0].name, name);
        assert_string_equal(l.items[0].body, values);
        assert_int_equal(l.items[0].version, version);
        assert_ptr_equal(l.items[0].fields, &c->inc);
    }
    invalidation_list_clear(&l);
    bson_destroy(document);
}

static void test_what_is_told(void **state)
{
    (void)state;
    assert_told(&one,
                "{\"_id\":\"u7\",\"followers\":{\"$numberLong\":\"9223372036854775807\"},"
                "\"n\":{\"of\":-2},\"_version\":{\"$numberLong\":\"12\"}}",
                "user:u7:followers", "9223372036854775807 -2", 12);
    assert_told(&one, "{\"_id\":7}", "user:7:followers", "0 0", 0);
    assert_told(&one, "{\"_id\":{\"$numberLong\":\"7\"},\"followers\":2.5,\"_version\":3}",
                "user:7:followers", "2.5 0", 3);
    assert_told(&one, "{\"_id\":7.0,\"followers\":\"many\"}", "user:7:followers", "0 0", 0);
    assert_told(&one, "{\"_id\":{\"$oid\":\"0123456789abcdef01234567\"}}",
                "user:0123456789abcdef01234567:followers", "0 0", 0);
    assert_told(&one, "{\"_id\":{\"$numberDecimal\":\"1.50\"}}", "user:1.50:followers", "0 0", 0);
    assert_told(&one, "{\"_id\":{\"$date\":{\"$numberLong\":\"5\"}}}", "user:5:followers", "0 0",
                0);
    assert_told(&one, "{\"_id\":{\"$binary\":{\"base64\":\"AP8=\",\"subType\":\"00\"}}}",
                "user:00ff:followers", "0 0", 0);
    assert_told(&one, "{\"_id\":true}", "user:true:followers", "0 0", 0);
    assert_told(&two, "{\"shop\":\"a{b}\",\"on\":{\"day\":3},\"followers\":1}", "a{b}/3", "1", 0);
    assert_told(&two, "{\"shop\":\"a\",\"followers\":1}", NULL, NULL, 0);
    assert_told(&two, "{\"shop\":\"\",\"on\":{\"day\":3}}", NULL, NULL, 0);
    assert_told(&two, "{\"shop\":\"a\\u0000b\",\"on\":{\"day\":3}}", NULL, NULL, 0);
    assert_told(&two, "{\"shop\":[1],\"on\":{\"day\":3}}", NULL, NULL, 0);
}

/* Of an operation, before anything is read: its filter has the names as they are written. */
static void test_key_of_a_filter(void **state)
{
    bson_t *filter = BCON_NEW("shop", "a", "on.day", BCON_INT64(3)),
           *empty = BCON_NEW("shop", "", "on.day", BCON_INT64(3));
    struct buf key = {0};

    (void)state;
    assert_true(mirror_key(&two, filter, &key));
    assert_string_equal(key.data, "a/3");
    buf_reset(&key);
    assert_false(mirror_key(&two, empty, &key));
    buf_clear(&key);
    bson_destroy(filter);
    bson_destroy(empty);
}

/* --- what is read --- */

static void assert_json(bson_t *b, const char *expected)
{
    char *json = bson_as_relaxed_extended_json(b, NULL);

    assert_string_equal(json, expected);
    bson_free(json);
    bson_reinit(b);
}

static void test_what_is_read(void **state)
{
    bson_t out = BSON_INITIALIZER;
    bson_t *a = BCON_NEW("_id", BCON_UTF8("a")), *b = BCON_NEW("_id", BCON_UTF8("b")),
           *c = BCON_NEW("shop", BCON_INT64(1), "on.day", BCON_INT64(2));
    const bson_t *both[] = {a, b};
    const bson_t *other[] = {c};
    struct config_counter counters[] = {none, one};
    struct config_route with = {.counters = counters, .n_counters = 2},
                        without = {.counters = counters, .n_counters = 1};

    (void)state;
    mirror_filter(both, 2, &out);
    assert_json(&out, "{ \"_id\" : { \"$in\" : [ \"a\", \"b\" ] } }");
    mirror_filter(other, 1, &out);
    assert_json(&out, "{ \"$or\" : [ { \"shop\" : 1, \"on.day\" : 2 } ] }");
    mirror_projection(&one, &out);
    assert_json(&out,
                "{ \"_id\" : true, \"followers\" : true, \"n.of\" : true, \"_version\" : true }");
    mirror_projection(&two, &out);
    assert_json(&out, "{ \"shop\" : true, \"on.day\" : true, \"followers\" : true, \"_version\" : "
                      "true, \"_id\" : false }");
    assert_true(mirror_wanted(&one) && !mirror_wanted(&none));
    assert_true(mirror_any(&with) && !mirror_any(&without));
    bson_destroy(&out);
    bson_destroy(a);
    bson_destroy(b);
    bson_destroy(c);
}

static void test_each_document_is_read_once(void **state)
{
    bson_t *filters[] = {BCON_NEW("_id", BCON_INT64(1)), BCON_NEW("_id", BCON_INT64(2)),
                         BCON_NEW("_id", BCON_INT64(1)), BCON_NEW("_id", BCON_INT64(9))};
    struct effect_move moves[4];
    struct effects effects[4];
    struct write_op ops[5] = {{0}};
    const struct write_op *all[5];
    size_t n;

    (void)state;
    for (size_t i = 0; i < 4; i++) {
        moves[i] = (struct effect_move){.counter = i == 3 ? 1 : 0, .filter = filters[i]};
        effects[i] = (struct effects){.moves = &moves[i], .n_moves = 1};
        ops[i].effects = &effects[i];
    }
    for (size_t i = 0; i < 5; i++)
        all[i] = &ops[i];
    const bson_t **found = mirror_moved(all, 5, 0, &n);
    assert_int_equal(n, 2);
    assert_true(bson_equal(found[0], filters[0]) && bson_equal(found[1], filters[1]));
    mem_free(found);
    found = mirror_moved(all, 5, 1, &n);
    assert_int_equal(n, 1);
    mem_free(found);
    mem_free(mirror_moved(all, 5, 2, &n));
    assert_int_equal(n, 0);
    for (size_t i = 0; i < 4; i++)
        bson_destroy(filters[i]);
}

/* --- which is sent --- */

static void put(struct coalesce *c, const char *name, const char *values, int64_t version)
{
    struct invalidation_list l = {0};
    struct invalidation *i =
        invalidation_add(&l, INVALIDATION_MIRROR, 0, mem_text(name), mem_text(values));

    i->version = version;
    i->fields = &one.inc;
    coalesce_add(c, &l, NULL, 0);
}

static void assert_due(struct coalesce *c, const char *values, int64_t version)
{
    const struct invalidation *const *out;

    if (values == NULL) {
        assert_int_equal(coalesce_next_due(c), INT64_MAX);
        return;
    }
    assert_int_equal(coalesce_due(c, 0, &out), 1);
    assert_string_equal(out[0]->body, values);
    assert_int_equal(out[0]->version, version);
    assert_ptr_equal(out[0]->fields, &one.inc);
}

static void answer(struct coalesce *c, bool ok)
{
    assert_null(coalesce_sent(c, &ok, 0));
}

static void test_the_newest_is_sent(void **state)
{
    struct coalesce *c = coalesce_new(&(struct coalesce_rule){0}, 1, 10, 10000, 10);

    (void)state;
    put(c, "k", "5", 5);
    put(c, "k", "7", 7);
    put(c, "k", "6", 6); /* comes late */
    assert_due(c, "7", 7);
    put(c, "k", "6", 6);
    answer(c, true);
    assert_due(c, NULL, 0);
    assert_int_equal(coalesce_targets(c), 0);
    assert_int_equal(coalesce_counts(c, 0).merged, 3);
    coalesce_free(c);
}

static void test_newer_ones_while_it_is_on_its_way(void **state)
{
    struct coalesce *c = coalesce_new(&(struct coalesce_rule){0}, 1, 10, 10000, 10);

    (void)state;
    put(c, "k", "5", 5);
    assert_due(c, "5", 5);
    put(c, "k", "a longer text than before", 7);
    put(c, "k", "9", 9);
    put(c, "k", "8", 8);
    answer(c, false); /* and it failed: the newest all the same */
    assert_due(c, "9", 9);
    put(c, "k", "10", 10);
    answer(c, true);
    assert_due(c, "10", 10);
    answer(c, false);
    assert_due(c, "10", 10);
    answer(c, true);
    assert_due(c, NULL, 0);
    coalesce_free(c);
}

static void test_what_is_on_its_way_does_not_change(void **state)
{
    struct coalesce *c = coalesce_new(&(struct coalesce_rule){0}, 1, 10, 10000, 10);
    const struct invalidation *const *out;

    (void)state;
    put(c, "k", "5", 5);
    assert_int_equal(coalesce_due(c, 0, &out), 1);
    const char *body = out[0]->body;
    put(c, "k", "6", 6);
    assert_ptr_equal(out[0]->body, body); /* another thread reads it */
    assert_string_equal(body, "5");
    answer(c, true);
    assert_due(c, "6", 6);
    answer(c, true);
    coalesce_free(c);
}

/* It counts for the bound in bytes as everything else. */
static void test_bytes(void **state)
{
    struct coalesce *c = coalesce_new(&(struct coalesce_rule){0}, 1, 10, 1000, 10);
    struct dice d = dice_seed("mirror");
    char text[40];

    (void)state;
    for (int64_t i = 1; i <= 10000; i++) {
        size_t n = 1 + (size_t)dice_below(&d, sizeof text - 1);

        memset(text, '1', n);
        text[n - 1] = '\0';
        put(c, "k", text, i);
        if (dice_permille(&d, 300)) {
            const struct invalidation *const *out;
            assert_int_equal(coalesce_due(c, 0, &out), 1);
            for (size_t more = (size_t)dice_below(&d, 3); more > 0; more--)
                put(c, "k", "22", ++i);
            answer(c, dice_permille(&d, 500));
        }
    }
    assert_int_equal(coalesce_counts(c, 0).dropped, 0);
    for (int i = 0; i < 9; i++) { /* fewer than the other cap */
        (void)snprintf(text, sizeof text, "k%d", i);
        put(c, text, "1", 1);
    }
    assert_true(coalesce_counts(c, 0).dropped > 0);
    coalesce_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_told),
        cmocka_unit_test(test_key_of_a_filter),
        cmocka_unit_test(test_what_is_read),
        cmocka_unit_test(test_each_document_is_read_once),
        cmocka_unit_test(test_the_newest_is_sent),
        cmocka_unit_test(test_newer_ones_while_it_is_on_its_way),
        cmocka_unit_test(test_what_is_on_its_way_does_not_change),
        cmocka_unit_test(test_bytes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
