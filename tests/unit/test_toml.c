#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/bytes.h"
#include "core/toml.h"

/* The tree as compact JSON, or the error. */
static void assert_gives_bytes(const char *text, size_t len, const char *expected)
{
    struct err e = {0};
    json_t *tree = toml_parse("f", text, len, &e);
    char *dump = tree ? json_dumps(tree, JSON_COMPACT) : NULL;

    assert_string_equal(tree ? dump : e.text, expected);
    assert_int_equal(tree ? ERR_NONE : ERR_CONFIG, e.kind);
    free(dump);
    json_decref(tree);
}

static void assert_gives(const char *text, const char *expected)
{
    assert_gives_bytes(text, strlen(text), expected);
}

static void every_key_has_its_place(void **state)
{
    (void)state;
    assert_gives("", "{\"l\":1,\"c\":1,\"v\":{}}");
    assert_gives("a = 1\n  b.c = 'x'", "{\"l\":1,\"c\":1,\"v\":{\"a\":{\"l\":1,\"c\":1,\"v\":1},"
                                       "\"b\":{\"l\":2,\"c\":3,\"v\":{\"c\":{\"l\":2,\"c\":5,\"v\":"
                                       "\"x\"}}}}}");
    assert_gives(
        "[a.b]\nc = true\n[[d]]\n[[d]]",
        "{\"l\":1,\"c\":1,\"v\":{\"a\":{\"l\":1,\"c\":2,\"v\":{\"b\":{\"l\":1,\"c\":4,"
        "\"v\":{\"c\":{\"l\":2,\"c\":1,\"v\":true}}}}},"
        "\"d\":{\"l\":3,\"c\":3,\"v\":[{\"l\":3,\"c\":1,\"v\":{}},{\"l\":4,\"c\":1,\"v\":{}}]"
        "}}}");
    assert_gives("a = [1,\n 'x']", "{\"l\":1,\"c\":1,\"v\":{\"a\":{\"l\":1,\"c\":1,\"v\":[{\"l\":1,"
                                   "\"c\":6,\"v\":1},{\"l\":2,\"c\":2,\"v\":\"x\"}]}}}");
}

static void members_come_in_the_order_of_the_text(void **state)
{
    struct err e;
    const char text[] = "z = 1\na = 2\nm.y = 3\nb = 4\n";
    json_t *tree = toml_parse("f", text, strlen(text), &e);
    const char *expected[] = {"z", "a", "m", "b"}, *name;
    json_t *value;
    size_t i = 0;

    (void)state;
    assert_non_null(tree);
    json_object_foreach(json_object_get(tree, "v"), name, value)
        assert_string_equal(name, expected[i++]);
    assert_int_equal(i, 4);
    json_decref(tree);
}

static void columns_count_letters_not_bytes(void **state)
{
    (void)state;
    assert_gives("a = [\"\xc3\xa9\xe2\x82\xac\", nein]",
                 "f:1:13: Error while parsing floating-point: expected 'nan', saw 'ne'");
}

static void other_types_come_as_named_text(void **state)
{
    static const struct {
        const char *toml, *type, *text;
    } cases[] = {
        {"1979-05-27T07:32:00Z", "datetime", "1979-05-27T07:32:00Z"},
        {"1979-05-27 07:32:00.250-07:30", "datetime", "1979-05-27T07:32:00.25-07:30"},
        {"1979-05-27T07:32:00", "datetime-local", "1979-05-27T07:32:00"},
        {"1979-05-27", "date-local", "1979-05-27"},
        {"07:32:00.5", "time-local", "07:32:00.5"},
        {"inf", "float", "inf"},
        {"-inf", "float", "-inf"},
        {"nan", "float", "nan"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf text = {0}, expected = {0};

        buf_printf(&text, "a = %s", cases[i].toml);
        buf_printf(&expected,
                   "{\"l\":1,\"c\":1,\"v\":{\"a\":{\"l\":1,\"c\":1,\"t\":\"%s\",\"v\":\"%s\"}}}",
                   cases[i].type, cases[i].text);
        assert_gives(buf_text(&text), buf_text(&expected));
        buf_clear(&text);
        buf_clear(&expected);
    }
}

static void numbers_keep_their_kind_and_value(void **state)
{
    (void)state;
    assert_gives("a = 9223372036854775807",
                 "{\"l\":1,\"c\":1,\"v\":{\"a\":{\"l\":1,\"c\":1,\"v\":9223372036854775807}}}");
    assert_gives("a = -9223372036854775808",
                 "{\"l\":1,\"c\":1,\"v\":{\"a\":{\"l\":1,\"c\":1,\"v\":-9223372036854775808}}}");
    assert_gives("a = 1.0", "{\"l\":1,\"c\":1,\"v\":{\"a\":{\"l\":1,\"c\":1,\"v\":1.0}}}");
    assert_gives("a = 9223372036854775808",
                 "f:1:24: Error while parsing decimal integer: '9223372036854775808' is not "
                 "representable in 64 bits");
}

static void mistakes_are_told_with_their_place(void **state)
{
    static const struct {
        const char *text, *expected;
    } cases[] = {
        {"a = 1\nb = \n", "f:2:5: Error while parsing key-value pair: expected value, saw '\\n'"},
        {"a = 1\na = 2", "f:2:1: the key a is there twice"},
        {"[t]\n \"u.ri\" = \"x\"\n \"u.ri\"\t=\"y\"", "f:3:2: the key \"u.ri\" is there twice"},
        {"x = {\"\xc3\xa9\" = 1, 'a' = 1, a.b = 1, 'a' = 2}",
         "f:1:24: Error while parsing key-value pair: cannot redefine existing integer as dotted "
         "key-value pair"},
        {"x = {\"\xc3\xa9\" = 1, a-b = 1, a-b = 2}", "f:1:24: the key a-b is there twice"},
        {"a.b = 1\r\na.'b' = 2", "f:2:1: the key a.'b' is there twice"},
        {"[a]\n[a]", "f:2:1: Error while parsing table header: cannot redefine existing table 'a'"},
        {"[ ?a]", "f:1:3: Error while parsing key: expected bare key starting character or string "
                  "delimiter, saw '?'"},
        {"[]",
         "f:1:2: Error while parsing table header: tables with blank bare keys are explicitly "
         "prohibited"},
        {"a = localhost",
         "f:1:5: Error while parsing value: could not determine value type (text needs quotes)"},
        {"a = \"x", "f:1:7: Error while parsing string: encountered end-of-file"},
        {"a = \"\\q\"", "f:1:7: Error while parsing string: unknown escape sequence '\\q'"},
        {"a = \"\xff\"", "f:1:5: Encountered invalid utf-8 sequence"},
        {"a = \"\xed\xa0\x80\"", "f:1:5: Encountered invalid utf-8 sequence"},
        /* letters that 3.3.0 takes for unreachable: seen under UBSan, and by whatever the compiler
           makes of it */
        {"[a\xd2\x97]", "f:1:3: Error while parsing table header: expected ']', saw '\xd2\x97'"},
        {"a = 1 \xc3\xa9", "f:1:7: Error while parsing key-value pair: expected a comment or "
                           "whitespace, saw '\xc3\xa9'"},
        {"\"a\\u0000b\" = 1", "f:1:1: a NUL in a key has no use here"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_gives(cases[i].text, cases[i].expected);
    assert_gives_bytes("a\0b = 1", 7,
                       "f:1:2: Error while parsing key-value pair: expected '=', saw "
                       "'\\u0000'");
    assert_gives_bytes("a = \"x\0y\"", 9,
                       "f:1:7: Error while parsing string: unescaped control characters other than "
                       "TAB (U+0009) are explicitly prohibited");
}

static void a_nul_in_a_string_is_kept(void **state)
{
    (void)state;
    assert_gives("a = \"x\\u0000y\"",
                 "{\"l\":1,\"c\":1,\"v\":{\"a\":{\"l\":1,\"c\":1,\"v\":\"x\\u0000y\"}}}");
}

/* n times text, between start and end. */
static void repeat(struct buf *out, const char *start, const char *text, size_t n, const char *end)
{
    buf_reset(out);
    buf_add_text(out, start);
    for (size_t i = 0; i < n; i++)
        buf_add_text(out, text);
    buf_add_text(out, end);
}

static void depth_is_bounded(void **state)
{
    struct buf b = {0}, end = {0};
    struct err e;
    json_t *tree;

    (void)state;
    repeat(&b, "", "a.", 31, "z = 1");
    tree = toml_parse("f", b.data, b.len, &e);
    assert_non_null(tree);
    json_decref(tree);
    repeat(&b, "", "a.", 32, "z = 1");
    assert_gives(b.data, "f:1:64: a key with more than 32 parts");
    repeat(&b, "x = 'a.b.c' # .\n[", "\"a\" . ", 100000, "z]");
    assert_gives(b.data, "f:2:192: a key with more than 32 parts");
    repeat(&b, "x = '''\n", "a.", 1000, "''' # don't look in here .\ny = \"\\\".......\"");
    tree = toml_parse("f", b.data, b.len, &e);
    assert_non_null(tree);
    json_decref(tree);
    repeat(&end, "", "]", 33, "");
    repeat(&b, "a = ", "[", 33, end.data);
    assert_gives(b.data,
                 "f:1:37: Error while parsing value: exceeded maximum nested value depth of "
                 "32 (TOML_MAX_NESTED_VALUES)");
    repeat(&b, "a = ", "[", 500000, "");
    assert_gives(b.data,
                 "f:1:37: Error while parsing value: exceeded maximum nested value depth of "
                 "32 (TOML_MAX_NESTED_VALUES)");
    repeat(&b, "", "a", 1024 * 1024 + 1, "");
    assert_gives(b.data, "f:1:1: larger than 1 MiB: not a configuration");
    buf_clear(&b);
    buf_clear(&end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_key_has_its_place),
        cmocka_unit_test(members_come_in_the_order_of_the_text),
        cmocka_unit_test(columns_count_letters_not_bytes),
        cmocka_unit_test(other_types_come_as_named_text),
        cmocka_unit_test(numbers_keep_their_kind_and_value),
        cmocka_unit_test(mistakes_are_told_with_their_place),
        cmocka_unit_test(a_nul_in_a_string_is_kept),
        cmocka_unit_test(depth_is_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
