/* Where in a JSON text the fault is, or a value; and that it agrees with jansson about what is
 * sound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "core/json_place.h"

#define TEXT(s) slice_of(s, sizeof(s) - 1)

static void test_faults(void **state)
{
    static const struct {
        const char *text;
        size_t len, byte;
        const char *path, *what;
    } rows[] = {
#define ROW(text, byte, path, what) {text, sizeof(text) - 1, byte, path, what}
        ROW("", 0, "", "the text ends too early"),
        ROW("{\"id\": 7", 8, "", "the text ends too early"),
        ROW("{\"a\": {\"b\": [1, 2, }", 19, "a.b[2]", "no value begins like this"),
        ROW("{\"a\": [1 2]}", 9, "a", "neither ',' nor ']' behind the value"),
        ROW("{\"a\": 1 \"b\": 2}", 8, "", "neither ',' nor '}' behind the value"),
        ROW("{\"a\" 1}", 5, "a", "no ':' behind the name"),
        ROW("{a: 1}", 1, "", "a name in quotes must stand here"),
        ROW("{\"a\": 1,}", 8, "", "a name in quotes must stand here"),
        ROW("{\"a\": NaN}", 6, "a", "a word that JSON does not know"),
        ROW("{\"a\": truer}", 6, "a", "a word that JSON does not know"),
        ROW("{\"a\": 1} x", 9, "", "something follows the JSON value"),
        ROW("{\"a\": 'x'}", 6, "a", "no value begins like this"),
        ROW("{\"a\": 01}", 6, "a", "a number with a zero in front"),
        ROW("{\"a\": 1.}", 8, "a", "no digit behind the decimal point"),
        ROW("{\"a\": 1e}", 8, "a", "an exponent without digits"),
        ROW("{\"a\": -}", 7, "a", "a number without digits"),
        ROW("{\"a\": +1}", 6, "a", "no value begins like this"),
        ROW("{\"x\": [0, 99999999999999999999]}", 10, "x[1]", "an integer outside int64"),
        ROW("{\"x\": -9223372036854775809}", 6, "x", "an integer outside int64"),
        ROW("{\"x\": {\"y\": 1e400}}", 12, "x.y", "a number too large for double"),
        ROW("{\"a\": \"x\ty\"}", 8, "a", "a control character in a text; it must be escaped"),
        ROW("{\"a\": \"x\\q\"}", 8, "a", "an unknown escape"),
        ROW("{\"a\": \"x\\u12g4\"}", 8, "a", "\\u without four hexadecimal digits"),
        ROW("{\"a\": \"\\udc00\"}", 7, "a", "half of a surrogate pair"),
        ROW("{\"a\": \"\\ud800\"}", 7, "a", "half of a surrogate pair"),
        ROW("{\"a\": \"\\ud800\\u0041\"}", 7, "a", "half of a surrogate pair"),
        ROW("{\"a\": \"x\xff\"}", 8, "a", "no UTF-8"),
        ROW("{\"a\": \"\xed\xa0\x80\"}", 7, "a", "no UTF-8"),
        ROW("{\"a\": \xff}", 6, "a", "no UTF-8"),
        ROW("{\"a\": \xc3\xa4}", 6, "a", "no value begins like this"),
        ROW("{\"a\0b\": 1}", 3, "", "a control character in a text; it must be escaped"),
        ROW("{\"a\\u0000b\": 1}", 1, "", "a name with a NUL in it"),
        ROW("\xef\xbb\xbf{}", 0, "", "no value begins like this"),
        ROW("{\"a.b\": {\"\": {\"c d\": x}}}", 21, "[\"a.b\"][\"\"][\"c d\"]",
            "a word that JSON does not know"),
#undef ROW
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct json_place p;

        if (!json_fault_find(slice_of(rows[i].text, rows[i].len), &p))
            fail_msg("row %zu: no fault found in %s", i, rows[i].text);
        if (p.byte != rows[i].byte || strcmp(buf_text(&p.path), rows[i].path) != 0 ||
            strcmp(p.what, rows[i].what) != 0)
            fail_msg("row %zu: %s: byte %zu, path %s, %s", i, rows[i].text, p.byte,
                     buf_text(&p.path), p.what);
        json_place_clear(&p);
    }
}

static void test_duplicate_name_tells_both(void **state)
{
    struct json_place p;
    struct buf text = {0};

    (void)state;
    assert_true(json_fault_find(TEXT("{\n \"o\": {\"a\": 1,\n  \"\\u0061\": 2}}"), &p));
    assert_true(p.has_first);
    assert_int_equal(p.first, 9);
    assert_int_equal(p.byte, 19);
    assert_int_equal(p.line, 3);
    assert_int_equal(p.column, 3);
    json_place_print(&p, &text);
    assert_string_equal(buf_text(&text),
                        "byte 19 (line 3, column 3), at o.a: a name that this object has already; "
                        "the first one is at byte 9");
    json_place_clear(&p);
    buf_clear(&text);
    /* Not in one object */
    assert_false(json_fault_find(TEXT("{\"a\": {\"a\": 1}, \"b\": {\"a\": 1}}"), &p));
}

static void test_values(void **state)
{
    static const char text[] = "{\"id\": 1, \"order\" : {\"x\": [{\"at\": 1}], \"at\": \"soon\"}}";
    static const struct {
        const char *path;
        bool found;
        size_t byte;
        const char *where;
    } rows[] = {
        {"id", true, 7, "id"},
        {"order.at", true, 45, "order.at"},
        {"order", true, 20, "order"},
        {"order.x.at", false, 26, "order.x"},
        {"order.no", false, 20, "order"},
        {"no", false, 0, ""},
        {"at", false, 0, ""},
        {"id.deeper", false, 7, "id"},
    };
    struct err e;

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct path path;
        struct json_place p;

        assert_true(path_init(&path, rows[i].path, &e));
        bool found = json_value_find(TEXT(text), &path, &p);
        if (found != rows[i].found || p.byte != rows[i].byte ||
            strcmp(buf_text(&p.path), rows[i].where) != 0)
            fail_msg("%s: %d, byte %zu, %s", rows[i].path, found, p.byte, buf_text(&p.path));
        json_place_clear(&p);
        path_clear(&path);
    }
}

static void test_depth(void **state)
{
    struct json_place p;

    (void)state;
    for (size_t levels = 2047; levels <= 2049; levels++) {
        struct buf b = {0};

        for (size_t i = 0; i < levels; i++)
            buf_add_char(&b, '[');
        for (size_t i = 0; i < levels; i++)
            buf_add_char(&b, ']');
        json_t *theirs = json_loadb(b.data, b.len, JSON_REJECT_DUPLICATES, NULL);
        bool ours = json_fault_find(slice_of(b.data, b.len), &p);
        assert_int_equal(theirs == NULL, ours);
        if (ours)
            assert_int_equal(p.byte, 2048);
        json_place_clear(&p);
        json_decref(theirs);
        buf_clear(&b);
    }
}

static void test_too_deep_for_a_document(void **state)
{
    struct json_place p;

    (void)state;
    assert_false(json_deep_find(TEXT("{\"a\": [1, {\"b\": 2}]}"), 3, &p));
    assert_true(json_deep_find(TEXT("{\"a\": [1, {\"b\": 2}]}"), 2, &p));
    assert_int_equal(p.byte, 10);
    assert_string_equal(buf_text(&p.path), "a[1]");
    json_place_clear(&p);
    assert_true(json_deep_find(TEXT("{\"a\": x}"), 9, &p)); /* what comes first */
    assert_int_equal(p.byte, 6);
    json_place_clear(&p);
}

/* --- against jansson --- */

static void same_as_jansson(const char *text, size_t len)
{
    struct json_place p;
    json_error_t e;
    json_t *theirs =
        json_loadb(text, len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL | JSON_DECODE_ANY, &e);
    bool faulty = json_fault_find(slice_of(text, len), &p);

    if (theirs != NULL &&
        memchr(text, '\0', len) != NULL) { /* it passes over some; payload.c not */
        json_decref(theirs);
        theirs = NULL;
    }
    if (faulty != (theirs == NULL))
        fail_msg("jansson: %s (%s), here: %s: %.*s", theirs ? "sound" : "faulty",
                 theirs ? "" : e.text, faulty ? p.what : "sound", (int)len, text);
    if (faulty)
        assert_true(p.byte <= len);
    json_place_clear(&p);
    json_decref(theirs);
}

static void test_agrees_with_jansson_about_mutated_texts(void **state)
{
    static const char *const seeds[] = {
        "{\"a\": {\"b\": [1, 2.5e3, -0, \"x\\u0041\\n\", null, true, false]}, \"c\": {}}",
        "[\"\\ud83d\\ude00\", \"\xf0\x9f\x98\x80\", 9223372036854775807, 1e308, [], [[]]]",
        "{\"a\":1,\"b\":{\"a\":1,\"c\":[{\"a\":2}]},\"\":\"\\u0000\"}",
    };
    static const char bits[] = "{}[]:,\"\\u0019.eE+-tfn \t\n\x01\x80\xc3\xed\xff\0"
                               "ab";
    unsigned seed = getenv("IDEMSINK_SEED") ? (unsigned)strtoul(getenv("IDEMSINK_SEED"), NULL, 10)
                                            : (unsigned)time(NULL);

    (void)state;
    print_message("IDEMSINK_SEED=%u\n", seed);
    srandom(seed);
    for (int round = 0; round < 40000; round++) {
        const char *from = seeds[(size_t)random() % 3];
        size_t len = strlen(from);
        char *text = mem_grow(NULL, len + 8, 1);

        memcpy(text, from, len);
        for (long n = 1 + random() % 3; n > 0 && len > 1; n--) {
            size_t at = (size_t)random() % len;
            switch (random() % 4) {
            case 0:
                text[at] = bits[(size_t)random() % (sizeof bits - 1)];
                break;
            case 1: /* one out */
                memmove(text + at, text + at + 1, len - at - 1);
                len--;
                break;
            case 2: /* one in */
                memmove(text + at + 1, text + at, len - at);
                text[at] = bits[(size_t)random() % (sizeof bits - 1)];
                len++;
                break;
            default:
                len = at + 1;
                break;
            }
        }
        same_as_jansson(text, len);
        mem_free(text);
    }
}

/* The value that begins at a byte. */
static void test_values_by_byte(void **state)
{
    static const struct {
        size_t byte;
        const char *path; /* NULL: none begins there */
    } rows[] = {{0, ""},      {1, NULL},      {6, "a"},   {7, "a[0]"}, {9, NULL},
                {10, "a[1]"}, {16, "a[1].b"}, {21, NULL}, {99, NULL}};
    struct slice text = TEXT("{\"a\": [1, {\"b\": null}]}");
    struct json_place p;

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        bool found = json_byte_find(text, rows[i].byte, &p);

        if (found != (rows[i].path != NULL) ||
            strcmp(buf_text(&p.path), found ? rows[i].path : "") ||
            (found && (p.byte != rows[i].byte || p.line != 1 || p.column != rows[i].byte + 1)))
            fail_msg("byte %zu: %d, %zu %s", rows[i].byte, found, p.byte, buf_text(&p.path));
        json_place_clear(&p);
    }
}

/* {"id":"x","o":{"v":5},"l":[{"v":1}]} in BSON. */
static void test_values_in_bson(void **state)
{
    static const uint8_t bytes[] = "\x35\0\0\0"
                                   "\x02id\0\x02\0\0\0x\0"
                                   "\x03o\0\x0c\0\0\0\x10v\0\x05\0\0\0\0"
                                   "\x04l\0\x14\0\0\0\x03"
                                   "0\0\x0c\0\0\0\x10v\0\x01\0\0\0\0\0";
    static const struct {
        const char *path;
        bool found;
        size_t byte;
        const char *to;
    } rows[] = {{"id", true, 8, "id"},   {"o", true, 17, "o"},     {"o.v", true, 24, "o.v"},
                {"o.w", false, 17, "o"}, {"id.x", false, 8, "id"}, {"l", true, 32, "l"},
                {"l.v", false, 32, "l"}, {"none", false, 0, ""},   {"o.v.x", false, 24, "o.v"}};
    struct slice text = slice_of(bytes, sizeof(bytes));
    struct json_place p;
    struct buf shown = {0};
    struct path path;
    struct err e;

    (void)state;
    assert_int_equal(bytes[0], sizeof(bytes));
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        assert_true(path_init(&path, rows[i].path, &e));
        bool found = bson_value_find(text, &path, &p);

        if (found != rows[i].found || p.byte != rows[i].byte ||
            strcmp(buf_text(&p.path), rows[i].to) != 0)
            fail_msg("%s: %d, byte %zu, %s", rows[i].path, found, p.byte, buf_text(&p.path));
        if (strcmp(rows[i].path, "o.v") == 0)
            json_place_print(&p, &shown);
        json_place_clear(&p);
        path_clear(&path);
    }
    assert_string_equal(buf_text(&shown), "byte 24, at o.v"); /* no line */
    buf_clear(&shown);
    assert_true(path_init(&path, "id", &e));
    assert_false(bson_value_find(slice_of("\x05", 1), &path, &p));
    path_clear(&path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_values_by_byte),
        cmocka_unit_test(test_values_in_bson),
        cmocka_unit_test(test_duplicate_name_tells_both),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_depth),
        cmocka_unit_test(test_too_deep_for_a_document),
        cmocka_unit_test(test_agrees_with_jansson_about_mutated_texts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
