/* The text that is made of a number: what is refused at start, what a record makes of it. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "core/sequence.h"

#define NO_NUMBER                                                                                  \
    " is neither {seq} nor {seq:0N} (N digits at least, 1 to 19; {seq:06} makes 000042)"

/* --- what can't be meant --- */

static void refused_at_start(void **state)
{
    static const struct {
        const char *text, *why;
    } cases[] = {
        {"", "{seq} is missing"},
        {"{a}-{b}", "{seq} is missing"},
        {"{{seq}}", "{seq} is missing"},
        {"{seq}-{seq}", "the number is there twice"},
        {"{seq:06}-{seq}", "the number is there twice"},
        {"{seq:0}", "\"{seq:0}\"" NO_NUMBER},
        {"{seq:}", "\"{seq:}\"" NO_NUMBER},
        {"{seq:020}", "\"{seq:020}\"" NO_NUMBER},
        {"{seq:99999999999999999999}", "\"{seq:99999999999999999999}\"" NO_NUMBER},
        {"{seq:0x}", "\"{seq:0x}\"" NO_NUMBER},
        {"{seq:6}", "\"{seq:6}\"" NO_NUMBER},
        {"{seq:006}", "\"{seq:006}\"" NO_NUMBER},
        {"{seq:06x}", "\"{seq:06x}\"" NO_NUMBER},
        {"{seq:-6}", "\"{seq:-6}\"" NO_NUMBER},
        {"{seq", "a brace has no partner (\"{{\" is a brace)"},
        {"seq}", "a brace has no partner (\"{{\" is a brace)"},
        {"{seq}-}", "a brace has no partner (\"{{\" is a brace)"},
        {"{a{b}}{seq}", "a brace has no partner (\"{{\" is a brace)"},
        {"{a}{seq}", "nothing stands between \"{a}\" and what follows it, so nobody could tell "
                     "where one ends: put a separator there"},
        {"{seq}{a}", "nothing stands between \"{seq}\" and what follows it, so nobody could tell "
                     "where one ends: put a separator there"},
        {"{a}-{b.c}{seq}", "nothing stands between \"{b.c}\" and what follows it, so nobody could "
                           "tell where one ends: put a separator there"},
        {"{seq}0{a}", "a digit stands behind {seq}, so nobody could tell where the number ends"},
        {"{b}-{seq:04}1-{a}",
         "a digit stands behind {seq}, so nobody could tell where the number ends"},
        {"{a}-{a}-{a}-{a}-{a}-{a}-{a}-{a}-{a}-{a}-{a}-{a}-{a}-{a}-{a}-{a}-{seq}",
         "more than 16 placeholders"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct err e = {0};
        struct sequence_text *t = sequence_text_new(cases[i].text, &e);

        if (t || strcmp(e.text, cases[i].why) != 0)
            fail_msg("\"%s\": %s", cases[i].text, t ? "accepted" : e.text);
        assert_int_equal(e.kind, ERR_CONFIG);
    }
}

/* --- what a record makes of it --- */

static struct record *record_of(const char *json)
{
    static const struct record_header headers[] = {{{"H", 1}, {"head", 4}}};
    struct record_source from = {.topic = "topic",
                                 .partition = 3,
                                 .offset = 12,
                                 .timestamp_ms = -1,
                                 .key = slice_text("key"),
                                 .value = slice_text(json),
                                 .headers = headers,
                                 .n_headers = 1};
    struct record *r = record_new(&from);

    r->json = json_loads(json, JSON_ALLOW_NUL, NULL);
    assert_non_null(r->json);
    return r;
}

/* "before<number>behind"; or "source: why". */
static void make(const char *template, const char *json, int64_t number, struct buf *out)
{
    struct err e = {0};
    struct sequence_text *t = sequence_text_new(template, &e);
    struct record *r = record_of(json);
    struct buf behind = {0};
    const char *what, *why;

    if (!t)
        fail_msg("\"%s\": %s", template, e.text);
    if (sequence_text_fill(t, r, out, &behind, &what, &why)) {
        sequence_add_number(out, number, sequence_text_digits(t));
        buf_add_text(out, buf_text(&behind));
    } else {
        buf_reset(out);
        buf_printf(out, "%s: %s", what, why);
    }
    buf_clear(&behind);
    record_free(r);
    sequence_text_free(t);
}

static void what_is_made(void **state)
{
    static const char missing[] = "a: is missing or no scalar", empty[] = "a: is empty";
    static const struct {
        const char *template, *json;
        int64_t number;
        const char *made;
    } cases[] = {
        {"{seq}", "{}", 7, "7"},
        {"{a}-{b}-{seq:06}", "{\"a\": \"food\", \"b\": 12}", 42, "food-12-000042"},
        {"{seq}/{a}", "{\"a\": true}", 1, "1/true"},
        {"no {seq:03}.", "{}", 5, "no 005."},
        {"no {seq:03}.", "{}", 12345, "no 12345."},
        {"{seq:019}", "{}", INT64_MAX, "9223372036854775807"},
        {"{seq}", "{}", INT64_MIN, "-9223372036854775808"},
        {"{seq:04}", "{}", -7, "-0007"},
        {"{seq}", "{}", 0, "0"},
        {"{{{seq}}}", "{}", 8, "{8}"},
        {"{a}0{seq}0", "{\"a\": \"x\"}", 8, "x080"},
        {"{a}--{seq}", "{\"a\": \"x-\"}", 8, "x---8"},
        {"{{seq}}{seq}", "{}", 8, "{seq}8"},
        {"{a}}}{{{seq}", "{\"a\": 1}", 8, "1}{8"},
        {"{o.p}:{seq}", "{\"o\": {\"p\": \"x\"}}", 8, "x:8"},
        {"{@key}:{@topic}:{@header.H}:{seq}", "{}", 8, "key:topic:head:8"},
        {"{a}:{seq}", "{}", 8, missing},
        {"{a}:{seq}", "{\"a\": {}}", 8, missing},
        {"{a}:{seq}", "{\"a\": []}", 8, missing},
        {"{a}:{seq}", "{\"a\": null}", 8, missing},
        {"{seq}:{a}", "{\"a\": \"x\\u0000y\"}", 8, missing},
        {"{a}:{seq}", "{\"a\": \"\"}", 8, empty},
        {"{seq}:{a}", "{\"a\": \"\"}", 8, empty},
        /* ("x-y", "z") and ("x", "y-z") are one text in "{a}-{b}-{seq}": the index arbitrates */
        {"{a}-{seq}", "{\"a\": \"x-y\"}", 8, "x-y-8"},
        {"{a}-{seq}", "{\"a\": -5}", 8, "-5-8"},
        {"{a}--{seq}", "{\"a\": \"x-y\"}", 8, "x-y--8"},
        {"{seq}-{a}", "{\"a\": \"x-y\"}", 8, "8-x-y"},
        {"{seq}-{a}-", "{\"a\": \"x-y\"}", 8, "8-x-y-"},
        {"{b}-{a}-{seq}", "{\"a\": \"x-y\", \"b\": 1}", 8, "1-x-y-8"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct buf out = {0};

        make(cases[i].template, cases[i].json, cases[i].number, &out);
        if (strcmp(buf_text(&out), cases[i].made) != 0)
            fail_msg("\"%s\" of %s made \"%s\"", cases[i].template, cases[i].json, buf_text(&out));
        buf_clear(&out);
    }
}

static void sources(void **state)
{
    struct err e = {0};
    struct sequence_text *t = sequence_text_new("{{x}}{a.b}-{seq:03}-{@key}.{@topic}", &e);

    (void)state;
    assert_non_null(t);
    assert_string_equal(sequence_text_source(t, 0), "a.b");
    assert_string_equal(sequence_text_source(t, 1), "@key");
    assert_string_equal(sequence_text_source(t, 2), "@topic");
    assert_null(sequence_text_source(t, 3));
    sequence_text_free(t);
    t = sequence_text_new("{seq}", &e);
    assert_null(sequence_text_source(t, 0));
    sequence_text_free(t);
    sequence_text_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_at_start),
                                       cmocka_unit_test(what_is_made), cmocka_unit_test(sources)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
