/*
 * What a record that waits holds in memory is what it says: jansson's allocations are counted.
 */
#include "unit/mapping_fixture.h"

#include <jansson.h>
#include <malloc.h>

#include "core/values.h"

static size_t live;   /* bytes, with 8 of malloc's own for each block */
static size_t blocks; /* ever made */

static void *counting_malloc(size_t size)
{
    void *p = mem_grow(NULL, size, 1);

    live += malloc_usable_size(p) + 8;
    blocks++;
    return p;
}

static void counting_free(void *p)
{
    if (p != NULL)
        live -= malloc_usable_size(p) + 8;
    mem_free(p);
}

/* What lies beside a tree of Extended JSON. */
static size_t bytes_of(const struct values *v)
{
    return v != NULL ? sizeof(*v) + v->cap * sizeof(*v->items) + v->made.cap + 3 * 16 : 0;
}

/* Sets *kept and returns what the tree takes; fails when the record says less. */
static size_t check(const struct mapping *m, const char *value, size_t len, bool *kept)
{
    struct record *r = fixture_record("k", value, len);
    size_t before = live, bytes = r->bytes, held;

    mapping_order(m, r);
    assert_int_equal(r->order_space, ORDER_VALUE);
    held = live - before + bytes_of(r->values);
    *kept = r->json != NULL;
    bytes = r->bytes - bytes - r->order_key.len;
    if (held > bytes)
        fail_msg("%.60s... of %zu bytes: counted %zu, holds %zu", value, len, bytes, held);
    if (!*kept)
        assert_int_equal(bytes, 0);

    char *got = fixture_map(m, r, true);

    if (strncmp(got, "upsert", 6) != 0)
        fail_msg("%.60s...: %s", value, got);
    mem_free(got);
    record_free(r);
    assert_int_equal(live, before);
    return held;
}

/* One payload with n times the item; %zu in it is a number of its own. */
static void fill(struct buf *b, const char *begin, const char *item, const char *end, size_t n)
{
    const char *number = strstr(item, "%");

    buf_reset(b);
    buf_add_text(b, begin);
    for (size_t i = 0; i < n; i++) {
        if (i > 0)
            buf_add_char(b, ',');
        if (number != NULL)
            buf_printf(b, "%.*s%zu%s", (int)(number - item), item, i, number + 1);
        else
            buf_add_text(b, item);
    }
    buf_add_text(b, end);
}

static void test_what_waits_is_counted(void **state)
{
    static const struct {
        const char *begin, *item, *end;
    } rows[] = {
        {"{\"id\":1,\"a\":[", "{}", "]}"},
        {"{\"id\":1,\"a\":[", "[]", "]}"},
        {"{\"id\":1,\"a\":[", "\"\"", "]}"},
        {"{\"id\":1,\"a\":[", "0", "]}"},
        {"{\"id\":1,\"a\":[", "1.5", "]}"},
        {"{\"id\":1,\"a\":[", "null", "]}"},
        {"{\"id\":1,\"a\":[", "{\"\":\"\"}", "]}"},
        {"{\"id\":1,\"a\":[", "{\"\":{\"\":{}}}", "]}"},
        {"{\"id\":1,\"a\":[", "[[[\"\"]]]", "]}"},
        {"{\"id\":1,\"a\":[", "\"123456789012345678901234\"", "]}"},
        {"{\"id\":1,\"a\":[", "\"\\u00e9\\n, [ {\"", "]}"},
        {"{\"id\":1,\"a\":{", "\"%\":\"\"", "}}"},
        {"{\"id\":1,\"a\":{", "\"a name of some length %\":\"123456789\"", "}}"},
        {"{\"id\":1,\"a\":{", "\"%\":{}", "}}"},
        {"{\"id\":1,\"a\":{", "\"%\":[0]", "}}"},
        {"{\"id\":1,", "\"%\":0", "}"},
    };
    struct config_route *route = fixture_route("dedup id\norder id");
    struct mapping *m = fixture_mapping(route);
    struct buf b = {0};

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool kept = false;

        for (size_t n = 1; n < 200; n++) {
            fill(&b, rows[i].begin, rows[i].item, rows[i].end, n);
            (void)check(m, b.data, b.len, &kept);
            if (n <= 16)
                assert_true(kept);
        }
        fill(&b, rows[i].begin, rows[i].item, rows[i].end, 50000);
        assert_int_equal(check(m, b.data, b.len, &kept), 0); /* a large tree doesn't wait */
        assert_false(kept);
    }
    buf_clear(&b);
    mapping_free(m);
    fixture_route_free(route);
}

/* Here values are counted by their brackets too, and small integers are values. */
static void test_extended_json_that_waits(void **state)
{
    static const char *const items[] = {"0",
                                        "{\"$numberInt\":\"1\"}",
                                        "{\"$oid\":\"507f1f77bcf86cd799439011\"}",
                                        "{\"$date\":\"2026-01-02T03:04:05Z\"}",
                                        "{\"$symbol\":\"\"}",
                                        "{\"$minKey\":1}",
                                        "{\"$code\":\"\",\"$scope\":{\"a\":1}}",
                                        "{\"$binary\":{\"base64\":\"\",\"subType\":\"0\"}}",
                                        "{\"a\":0,\"b\":[1,2,3]}"};
    struct config_route *route = fixture_route("dedup id\norder id\nformat extjson");
    struct mapping *m = fixture_mapping(route);
    struct buf b = {0};
    bool kept;

    (void)state;
    for (size_t i = 0; i < sizeof(items) / sizeof(items[0]); i++) {
        for (size_t n = 1; n < 200; n++) {
            fill(&b, "{\"id\":1,\"a\":[", items[i], "]}", n);
            (void)check(m, b.data, b.len, &kept);
            if (n <= 16)
                assert_true(kept);
        }
    }
    buf_clear(&b);
    mapping_free(m);
    fixture_route_free(route);
}

/* One long text is a small tree by its number of values, and a large one by its bytes. */
static void test_a_long_text(void **state)
{
    struct config_route *route = fixture_route("dedup id\norder id");
    struct mapping *m = fixture_mapping(route);
    struct buf b = {0};
    bool kept;

    (void)state;
    for (size_t len = 1000; len <= 100 * 1000; len *= 10) {
        char *text = mem_array(len + 1, 1);

        memset(text, 'x', len);
        buf_reset(&b);
        buf_printf(&b, "{\"id\":1,\"a\":\"%s\"}", text);
        (void)check(m, b.data, b.len, &kept);
        assert_int_equal(kept, len < 64 * 1000);
        mem_free(text);
    }
    buf_clear(&b);
    mapping_free(m);
    fixture_route_free(route);
}

/* A large payload waits for its turn before it is parsed, and only then. */
static void test_what_parses_says_so(void **state)
{
    static const struct {
        const char *spec, *key;
        bool parses;
    } rows[] = {
        {"dedup id", "k", false},
        {"dedup id", "", false},
        {"dedup id", NULL, true}, /* by its dedup key */
        {"dedup id\norder id", "k", true},
        {"dedup id\norder nowhere", "k", true},
        {"dedup id\norder @dedup", "k", true},
        {"dedup id\norder @partition", NULL, false},
        {"dedup id\norder @header.h", NULL, false},
        {"dedup id\norder @header.nowhere", "k", true},
        {"dedup id\norder id\nformat extjson", "k", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct config_route *route = fixture_route(rows[i].spec);
        struct mapping *m = fixture_mapping(route);
        struct record *r = fixture_record(rows[i].key, "{\"id\":1}", 8);
        size_t before = blocks;

        assert_int_equal(mapping_order_parses(m, r), rows[i].parses);
        mapping_order(m, r);
        if ((blocks > before) != rows[i].parses)
            fail_msg("row %zu", i);
        assert_false(mapping_order_parses(m, r) && r->json != NULL);
        record_free(r);
        mapping_free(m);
        fixture_route_free(route);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_waits_is_counted),
        cmocka_unit_test(test_extended_json_that_waits),
        cmocka_unit_test(test_a_long_text),
        cmocka_unit_test(test_what_parses_says_so),
    };

    json_set_alloc_funcs(counting_malloc, counting_free);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
