/* What is printed for eyes: nothing in it moves a cursor, hides or turns the line around. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"

typedef void add_fn(struct buf *b, const char *text, size_t len);

static void assert_adds(add_fn *add, const char *text, const char *expected)
{
    struct buf b = {0};

    add(&b, text, strlen(text));
    assert_string_equal(buf_text(&b), expected);
    buf_clear(&b);
}

static void characters_that_are_shown(void **state)
{
    static const char *const shown[] = {" ",
                                        "~",
                                        "\xc2\xa0",
                                        "\xc3\xbc",
                                        "\xe2\x80\x8c",
                                        "\xe2\x80\x8d",
                                        "\xe2\x80\x93",
                                        "\xe2\x80\xa6",
                                        "\xe2\x80\xaf",
                                        "\xed\x9f\xbf",
                                        "\xf0\x9f\x98\x80",
                                        "\xf4\x8f\xbf\xbf"};
    static const char *const hidden[] = {
        "\x1f", "\x7f", "\xc2\x80", "\xc2\x9b", "\xc2\x9f", "\xd8\x9c", "\xe1\xa0\x8e",
        "\xe2\x80\x8b", "\xe2\x80\x8e", "\xe2\x80\x8f", "\xe2\x80\xa8", "\xe2\x80\xae",
        "\xe2\x81\xa0", "\xe2\x81\xaf", "\xef\xbb\xbf", "\xef\xbf\xb9",
        /* no UTF-8 */
        "\x9b", "\xc2", "\xc2x", "\xc0\x9b", "\xe0\x82\x9b", "\xf0\x80\x82\x9b", "\xed\xa0\x80",
        "\xf4\x90\x80\x80", "\xff"};

    (void)state;
    for (size_t i = 0; i < sizeof shown / sizeof shown[0]; i++) {
        assert_int_equal(bytes_shown(shown[i], strlen(shown[i])), strlen(shown[i]));
        assert_adds(buf_add_shown, shown[i], shown[i]);
        assert_adds(buf_add_json, shown[i], shown[i]);
    }
    for (size_t i = 0; i < sizeof hidden / sizeof hidden[0]; i++)
        assert_int_equal(bytes_shown(hidden[i], strlen(hidden[i])), 0);
    assert_int_equal(bytes_shown("\xc3\xbc", 1), 0); /* cut */
}

static void escapes(void **state)
{
    static const char text[] = "a\x1b\"\\\n\x7f\xc2\x9b\xc3\xbc\xe2\x80\xae\x9bz";

    (void)state;
    assert_adds(buf_add_shown, text, "a\\x1b\"\\\\x0a\\x7f\\xc2\\x9b\xc3\xbc\\xe2\\x80\\xae\\x9bz");
    assert_adds(buf_add_json, text, "a\\u001b\\\"\\\\\\n\\u007f\\u009b\xc3\xbc\\u202e\\ufffdz");
    assert_adds(buf_add_json_shown, "{\"a\\n\": \"\xc2\x9b\x7f\xc3\xbc\xe2\x80\xae\"}\n",
                "{\"a\\n\": \"\\u009b\\u007f\xc3\xbc\\u202e\"}\n");
    assert_adds(buf_add_json, "", "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(characters_that_are_shown),
        cmocka_unit_test(escapes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
