/* In which fields two documents differ. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "core/bson_diff.h"

static void note(void *ctx, enum bson_diff_kind kind, const char *path)
{
    static const char *const names[] = {"left", "right", "type", "value", "order"};

    buf_printf(ctx, "%s %s\n", names[kind], path);
}

static void test_differences(void **state)
{
    static const struct {
        const char *left, *right, *told;
    } rows[] = {
        {"{\"a\": 1, \"b\": [1, {\"c\": 2}]}", "{\"a\": 1, \"b\": [1, {\"c\": 2}]}", ""},
        {"{\"_id\": 1, \"a\": 1, \"b\": 2}", "{\"b\": 2, \"_id\": 7, \"a\": 1}", ""},
        {"{\"a\": 1}", "{\"_id\": 7, \"a\": 1}", ""},
        {"{\"a\": 1}", "{\"a\": 2}", "value a\n"},
        {"{\"a\": 1}", "{\"a\": 1.0}", "type a\n"},
        {"{\"a\": 1, \"b\": 1}", "{\"c\": 1, \"a\": 1}", "left b\nright c\n"},
        {"{\"o\": {\"_id\": 1, \"x\": [1, 2]}}", "{\"o\": {\"_id\": 2, \"x\": [1, 3, 4]}}",
         "value o._id\nvalue o.x.1\nright o.x.2\n"},
        {"{\"o\": {\"x\": 1, \"y\": 2}}", "{\"o\": {\"y\": 2, \"x\": 1}}", "order o\n"},
        {"{\"o\": {\"x\": 1, \"y\": 2}}", "{\"o\": {\"y\": 3, \"x\": 1}}", "value o.y\n"},
        {"{\"o\": {}}", "{\"o\": []}", "type o\n"},
        {"{\"a.b\": 1}", "{\"a\": {\"b\": 1}}", "left a.b\nright a\n"},
        {"{\"a\": \"x\\u0000y\"}", "{\"a\": \"x\\u0000z\"}", "value a\n"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bson_t *left = bson_new_from_json((const uint8_t *)rows[i].left, -1, NULL);
        bson_t *right = bson_new_from_json((const uint8_t *)rows[i].right, -1, NULL);
        struct buf told = {0};
        size_t lines = 0, n = bson_diff(left, right, note, &told);

        for (const char *at = buf_text(&told); (at = strchr(at, '\n')) != NULL; at++)
            lines++;
        if (strcmp(buf_text(&told), rows[i].told) != 0 || n != lines)
            fail_msg("row %zu: %zu: %s", i, n, buf_text(&told));
        assert_int_equal(bson_diff(left, right, NULL, NULL), n);
        buf_clear(&told);
        bson_destroy(left);
        bson_destroy(right);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_differences)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
