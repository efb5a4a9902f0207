/* Nothing of a secret gets into an error, wherever it was cut. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/err.h"
#include "base/secret.h"

static const char *hidden(const char *text)
{
    static struct buf b;

    buf_reset(&b);
    secret_hide(text, &b);
    return buf_text(&b);
}

static void test_hide(void **state)
{
    (void)state;
    assert_false(secret_known());
    secret_add(NULL);
    secret_add("abc"); /* would be found in every other word */
    assert_false(secret_known());
    assert_string_equal(hidden("abc"), "abc");
    secret_add("S3CR");
    secret_add("S3CR-and-more");
    secret_add("S3CR");
    assert_string_equal(hidden("x S3CR y"), "x *** y");
    assert_string_equal(hidden("S3CRS3CR"), "******");
    assert_string_equal(hidden("a S3CR-and-more b"), "a *** b");
    assert_string_equal(hidden("a S3C b"), "a S3C b");
    assert_string_equal(hidden("a s3cr b"), "a *** b");    /* taken for a host */
    assert_string_equal(hidden("a S3CR-and-mo"), "a ***"); /* cut by somebody */
    assert_string_equal(hidden("a S3CR-and-mole"), "a ***-and-mole");
    assert_string_equal(hidden(""), "");
    secret_clear();
    assert_string_equal(hidden("x S3CR y"), "x S3CR y");
}

static void test_errors(void **state)
{
    char text[700];
    struct err e;

    (void)state;
    secret_add("the-password");
    err_set(&e, ERR_CONFIG, 0, "wrong: %s", "u:the-password@h");
    assert_string_equal(e.text, "wrong: u:***@h");
    err_wrap(&e, "the-password");
    assert_string_equal(e.text, "***: wrong: u:***@h");
    for (size_t cut = 500; cut < 513; cut++) {
        memset(text, 'x', sizeof text);
        memcpy(text + cut, "the-password", 13);
        err_set(&e, ERR_CONFIG, 0, "%s", text);
        assert_null(strstr(e.text, "the-"));
    }
    secret_clear();
}

static void test_errors_are_one_line(void **state)
{
    struct err e;

    (void)state;
    err_set(&e, ERR_CONFIG, 0, "%s", "first\nsecond\r\nthird \n\n");
    assert_string_equal(e.text, "first second  third");
    err_set(&e, ERR_CONFIG, 0, "%s", "\n");
    assert_string_equal(e.text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_hide), cmocka_unit_test(test_errors),
                                       cmocka_unit_test(test_errors_are_one_line)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
