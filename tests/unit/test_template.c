#include "unit/mapping_fixture.h"

#include <jansson.h>

#include "core/payload.h"
#include "core/template.h"

static const struct template_names names = {.database = "shop", .collection = "or\"ders"};

/* The filled text, "-" when it is left out, "! message" when the template is refused. mem_free()
 * it. */
static char *fill(enum template_kind kind, const char *text, const char *key, const char *value)
{
    struct err e = {0};
    struct template *t = template_new(kind, text, &names, &e);
    struct buf out = {0};

    if (t == NULL) {
        assert_int_equal(e.kind, ERR_CONFIG);
        return mem_printf("! %s", e.text);
    }

    struct record *r = fixture_record(key, value, strlen(value));
    assert_true(payload_parse(r, &(struct payload_rule){.format = FORMAT_JSON}, false));
    bool ok = template_fill(t, r, &out);

    if (ok && kind == TEMPLATE_JSON) { /* what is sent is JSON, whatever came in */
        json_t *json = json_loadb(out.data, out.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
        assert_true(json != NULL || strstr(out.data, TEMPLATE_TIMESTAMP) != NULL);
        json_decref(json);
    }
    record_free(r);
    template_free(t);
    if (ok)
        return out.data;
    buf_clear(&out);
    return mem_text("-");
}

struct template_row {
    enum template_kind kind;
    const char *text, *value, *expected;
};

static void check(const struct template_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *got = fill(rows[i].kind, rows[i].text, "k:1", rows[i].value);
        bool error = rows[i].expected[0] == '!'; /* then the expected is a part of the text */

        if (error ? got[0] != '!' || strstr(got, rows[i].expected + 2) == NULL
                  : strcmp(got, rows[i].expected) != 0)
            fail_msg("row %zu: %s\n  %s\n  got      %s\n  expected %s", i, rows[i].text,
                     rows[i].value, got, rows[i].expected);
        mem_free(got);
    }
}
#define CHECK(rows) check((rows), sizeof(rows) / sizeof((rows)[0]))

static void test_which_placeholder_is_not_filled(void **state)
{
    static const struct {
        enum template_kind kind;
        const char *text, *value, *source;
    } rows[] = {
        {TEMPLATE_TEXT, "a:{id}:{o.user}", "{\"id\":1}", "o.user"},
        {TEMPLATE_TEXT, "a:{id}:{o.user}", "{\"o\":{\"user\":1}}", "id"},
        {TEMPLATE_TEXT, "a:{id}", "{\"id\":1}", NULL},
        {TEMPLATE_GLOB, "a:{id}:{name}", "{\"id\":1,\"name\":\"*\"}", "name"},
        {TEMPLATE_TEXT, "{@topic}:{@header.tenant}", "{}", "@header.tenant"},
        {TEMPLATE_TEXT, "{@key}", "{}", "@key"},
        {TEMPLATE_TEXT, "{@partition}{@offset}{@timestamp}", "{}", "@timestamp"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct err e;
        struct template *t = template_new(rows[i].kind, rows[i].text, &names, &e);
        struct record *r = fixture_record(NULL, rows[i].value, strlen(rows[i].value));

        r->timestamp_type = RECORD_TIMESTAMP_NONE;
        assert_true(payload_parse(r, &(struct payload_rule){.format = FORMAT_JSON}, false));
        char *source = template_unfilled(t, r);
        if ((source == NULL) != (rows[i].source == NULL) ||
            (source != NULL && strcmp(source, rows[i].source) != 0))
            fail_msg("%s: %s", rows[i].text, source);
        mem_free(source);
        record_free(r);
        template_free(t);
    }
}

static void test_text(void **state)
{
    static const struct template_row rows[] = {
        {TEMPLATE_TEXT, "plain", "{}", "plain"},
        {TEMPLATE_TEXT, "user:{u.id}:x", "{\"u\":{\"id\":7}}", "user:7:x"},
        {TEMPLATE_TEXT, "{a}{b}", "{\"a\":\"x y\",\"b\":\"\xc3\xa9\"}", "x y\xc3\xa9"},
        {TEMPLATE_TEXT, "{a}", "{\"a\":true}", "true"},
        {TEMPLATE_TEXT, "{a}", "{\"a\":-9223372036854775808}", "-9223372036854775808"},
        {TEMPLATE_TEXT, "{a},{b},{c},{d}", "{\"a\":1.5,\"b\":1.0,\"c\":0.1,\"d\":1e100}",
         "1.5,1,0.1,1e+100"},
        {TEMPLATE_TEXT, "{a}", "{\"a\":0.30000000000000004}", "0.30000000000000004"},
        {TEMPLATE_TEXT, "{a}", "{\"a\":\"*?[x]\\\\\"}",
         "*?[x]\\"}, /* no pattern: nothing is special */
        {TEMPLATE_TEXT, "{@key}|{@header.h}|{@topic}|{@partition}|{@offset}|{@timestamp}", "{}",
         "k:1|hv|top|3|42|1700000000123"},
        {TEMPLATE_TEXT, "{@db}.{@collection}", "{}", "shop.or\"ders"},
        {TEMPLATE_TEXT, "{{{a}}} {{}}", "{\"a\":1}", "{1} {}"},
        {TEMPLATE_TEXT, "{a}", "{}", "-"},
        {TEMPLATE_TEXT, "{a}", "{\"a\":null}", "-"},
        {TEMPLATE_TEXT, "{a}", "{\"a\":{}}", "-"},
        {TEMPLATE_TEXT, "{a}", "{\"a\":[1]}", "-"},
        {TEMPLATE_TEXT, "{a.b}", "{\"a\":[{\"b\":1}]}", "-"},
        {TEMPLATE_TEXT, "{a}", "{\"a\":\"x\\u0000y\"}", "-"},
        {TEMPLATE_TEXT, "{@header.no}", "{}", "-"},
        {TEMPLATE_TEXT, "{@header.bytes}", "{}", "\xff\xfe"},
        {TEMPLATE_TEXT, "{a", "{}", "! \"{\" without \"}\""},
        {TEMPLATE_TEXT, "a}", "{}", "! \"}\" without \"{\""},
        {TEMPLATE_TEXT, "{}", "{}", "! is not a path"},
        {TEMPLATE_TEXT, "{a..b}", "{}", "! is not a path"},
        {TEMPLATE_TEXT, "{@wat}", "{}", "! is no source"},
        {TEMPLATE_TEXT, "", "{}", "! empty"},
    };

    (void)state;
    CHECK(rows);
}

static void test_glob_refuses_wildcards_of_the_data(void **state)
{
    static const struct template_row rows[] = {
        {TEMPLATE_GLOB, "u:{a}:*", "{\"a\":\"x\"}", "u:x:*"}, /* the operator's own is fine */
        {TEMPLATE_GLOB, "u:{a}:*", "{\"a\":\"*\"}", "-"},
        {TEMPLATE_GLOB, "u:{a}", "{\"a\":\"x?\"}", "-"},
        {TEMPLATE_GLOB, "u:{a}", "{\"a\":\"[x\"}", "-"},
        {TEMPLATE_GLOB, "u:{a}", "{\"a\":\"x]\"}", "-"},
        {TEMPLATE_GLOB, "u:{a}", "{\"a\":\"\\\\x\"}", "-"},
        {TEMPLATE_GLOB, "u:{@key}", "{}", "u:k:1"},
    };

    (void)state;
    CHECK(rows);
}

static void test_json(void **state)
{
    static const struct template_row rows[] = {
        {TEMPLATE_JSON, "{\"id\":{id},\"b\":{ok},\"s\":{s}}",
         "{\"id\":7,\"ok\":false,\"s\":\"a\\\"b\\n\"}",
         "{\"id\":7,\"b\":false,\"s\":\"a\\\"b\\n\"}"},
        {TEMPLATE_JSON, "{\"k\":\"u:{id}:{s}\"}", "{\"id\":7,\"s\":\"a\\\"\\\\b\"}",
         "{\"k\":\"u:7:a\\\"\\\\b\"}"},
        {TEMPLATE_JSON, "{\"{s}\":1}", "{\"s\":\"x\"}", "{\"x\":1}"},
        {TEMPLATE_JSON, "[{id},{\"a\":{}}, {} , { }]", "{\"id\":7}", "[7,{\"a\":{}}, {} , { }]"},
        {TEMPLATE_JSON, "{id}", "{\"id\":\"x\"}", "\"x\""},
        {TEMPLATE_JSON,
         "{\"c\":{@collection},\"d\":\"{@db}.{@collection}\",\"p\":{@partition},\"k\":{@key}}",
         "{}", "{\"c\":\"or\\\"ders\",\"d\":\"shop.or\\\"ders\",\"p\":3,\"k\":\"k:1\"}"},
        {TEMPLATE_JSON, "{\"a\":\"\\\"{id}\\\\\",\"b\":\"\\u007bid}\"}", "{\"id\":7}",
         "{\"a\":\"\\\"7\\\\\",\"b\":\"\\u007bid}\"}"},
        {TEMPLATE_JSON, "{\"a\":\"{1}{ x}\"}", "{}",
         "{\"a\":\"{1}{ x}\"}"}, /* no letter behind: no placeholder */
        {TEMPLATE_JSON, "{\"at\":@TIMESTAMP@}", "{}", "{\"at\":@TIMESTAMP@}"},
        /* data can't make the sender put a time in */
        {TEMPLATE_JSON, "{\"a\":{s},\"b\":\"{s}\"}", "{\"s\":\"x@TIMESTAMP@TIMESTAMP@\"}",
         "{\"a\":\"x\\u0040TIMESTAMP\\u0040TIMESTAMP@\",\"b\":\"x\\u0040TIMESTAMP\\u0040TIMESTAMP@"
         "\"}"},
        {TEMPLATE_JSON, "{\"a\":{s}}", "{\"s\":\"\\u0000\"}", "{\"a\":\"\\u0000\"}"},
        {TEMPLATE_JSON, "{\"a\":{s}}", "{}", "-"},
        {TEMPLATE_JSON, "{\"a\":{s}}", "{\"s\":null}", "-"},
        {TEMPLATE_JSON, "{\"a\":{s}}", "{\"s\":{}}", "-"},
        {TEMPLATE_JSON, "{\"a\":{@header.bytes}}", "{}", "-"}, /* not UTF-8 */
        {TEMPLATE_JSON, "null", "{}", "! says nothing"},
        {TEMPLATE_JSON, "", "{}", "! "},
        {TEMPLATE_JSON, "{\"a\":{s}", "{}", "! "},
        {TEMPLATE_JSON, "{\"a\":1}{s}", "{}", "! "},
        {TEMPLATE_JSON, "{{s}:1}", "{}", "! "}, /* a name must be between quotes */
        {TEMPLATE_JSON, "{\"a\":-{s}}", "{}", "! "},
        {TEMPLATE_JSON, "{\"a\":1{s}}", "{}", "! "},
        {TEMPLATE_JSON, "{\"a\":{s}.5}", "{}", "! "},
        {TEMPLATE_JSON, "{\"a\":\"\\{s}\"}", "{}", "! "},
        {TEMPLATE_JSON, "{\"a\":\"\\u00{s}\"}", "{}", "! "},
        {TEMPLATE_JSON, "{\"a\":1@TIMESTAMP@}", "{}", "! "},
        {TEMPLATE_JSON, "{\"a\":{s}{s}}", "{}", "! "},
        {TEMPLATE_JSON, "{\"a\":{@wat}}", "{}", "! is no source"},
        {TEMPLATE_JSON, "{\"a\":{s", "{}", "! without"},
        {TEMPLATE_JSON, "{\"a\":x{s}}", "{}", "! "},
        {TEMPLATE_JSON, "{\"a\":\"x\"{s}}", "{}", "! "},
    };

    (void)state;
    CHECK(rows);
}

static void test_what_needs_the_payload(void **state)
{
    static const struct {
        const char *text;
        bool needs;
    } rows[] = {{"x", false}, {"{@key}{@db}", false}, {"{@key}{a}", true}};
    struct err e;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct template *t = template_new(TEMPLATE_TEXT, rows[i].text, &names, &e);

        assert_int_equal(template_needs_payload(t), rows[i].needs);
        template_free(t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_which_placeholder_is_not_filled),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_glob_refuses_wildcards_of_the_data),
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_what_needs_the_payload),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
