#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "base/mem.h"
#include "core/record.h"

static const struct slice ABSENT = {.ptr = NULL, .len = 0};

static struct slice empty(void)
{
    return slice_of("", 0);
}

static void copies_everything(void **state)
{
    char key[] = "k\0k", value[] = "{\"a\":1}", name[] = "h", content[] = "v";
    struct record_header headers[] = {{.name = slice_of(name, 1), .value = slice_of(content, 1)}};
    struct record_source from = {.topic = "orders",
                                 .partition = 3,
                                 .slot = 5,
                                 .offset = 77,
                                 .timestamp_type = RECORD_TIMESTAMP_CREATE,
                                 .timestamp_ms = 123,
                                 .key = slice_of(key, 3),
                                 .value = slice_of(value, 7),
                                 .headers = headers,
                                 .n_headers = 1};
    struct record *r = record_new(&from);
    struct slice got;

    (void)state;
    memset(key, 'x', sizeof(key)); /* the source may go away */
    memset(value, 'x', sizeof(value));
    memset(name, 'x', sizeof(name));
    memset(content, 'x', sizeof(content));
    headers[0].name.len = 0;
    assert_string_equal(r->topic, "orders");
    assert_int_equal(r->partition, 3);
    assert_int_equal(r->slot, 5);
    assert_int_equal(r->offset, 77);
    assert_int_equal(r->timestamp_type, RECORD_TIMESTAMP_CREATE);
    assert_int_equal(r->timestamp_ms, 123);
    assert_true(slice_equal(r->key, slice_of("k\0k", 3)));
    assert_true(slice_equal(r->value, slice_text("{\"a\":1}")));
    assert_int_equal(r->n_headers, 1);
    assert_true(record_header(r, "h", &got));
    assert_true(slice_equal(got, slice_text("v")));
    assert_int_equal(r->bytes, sizeof(struct record) + sizeof(struct record_header) + 3 + 7 + 2);
    assert_null(r->json);
    assert_null(r->lane);
    assert_int_equal(r->attempts, 0);
    assert_int_equal(r->rejected.reason, REASON_NONE);
    record_free(r);
}

static void null_is_not_empty(void **state)
{
    struct record_header headers[] = {{.name = empty(), .value = ABSENT},
                                      {.name = slice_text("e"), .value = empty()}};
    struct record_source null = {.topic = "t", .key = ABSENT, .value = empty()};
    struct record_source hollow = {
        .topic = "t", .key = empty(), .value = ABSENT, .headers = headers, .n_headers = 2};
    struct record *a = record_new(&null), *b = record_new(&hollow);
    struct slice got;

    (void)state;
    assert_null(a->key.ptr);
    assert_non_null(a->value.ptr);
    assert_int_equal(a->value.len, 0);
    assert_null(a->headers);
    assert_non_null(b->key.ptr);
    assert_null(b->value.ptr);
    assert_true(record_header(b, "", &got));
    assert_null(got.ptr);
    assert_true(record_header(b, "e", &got));
    assert_non_null(got.ptr);
    assert_int_equal(got.len, 0);
    record_free(a);
    record_free(b);
}

static void the_last_header_of_a_name_counts(void **state)
{
    struct record_header headers[] = {{.name = slice_text("id"), .value = slice_text("1")},
                                      {.name = slice_text("id"), .value = slice_text("2")},
                                      {.name = slice_text("idx"), .value = slice_text("3")}};
    struct record_source from = {.topic = "t", .headers = headers, .n_headers = 3};
    struct record *r = record_new(&from);
    struct slice got = slice_text("untouched");

    (void)state;
    assert_false(record_header(r, "i", &got));
    assert_true(slice_equal(got, slice_text("untouched")));
    assert_true(record_header(r, "id", &got));
    assert_true(slice_equal(got, slice_text("2")));
    record_free(r);
}

static void the_first_rejection_stays(void **state)
{
    struct record_source from = {.topic = "t"};
    struct record *r = record_new(&from);

    (void)state;
    record_reject(r, REASON_VALIDATION, 121, "field %s", "a");
    record_reject(r, REASON_REJECTED, 7, "another");
    assert_int_equal(r->rejected.reason, REASON_VALIDATION);
    assert_int_equal(r->rejected.code, 121);
    assert_string_equal(r->rejected.text, "field a");
    record_free(r);
}

static void long_rejections_are_cut_between_characters(void **state)
{
    struct record_source from = {.topic = "t"};
    char text[2000];

    (void)state;
    for (size_t lead = 0; lead < 4; lead++) { /* the euro sign at all places around the cut */
        struct record *r = record_new(&from);

        memset(text, 'a', lead);
        for (size_t i = lead; i + 3 < sizeof(text); i += 3)
            memcpy(text + i, "\xe2\x82\xac", 4);
        record_reject(r, REASON_REJECTED, 0, "%s", text);
        size_t len = strlen(r->rejected.text);
        assert_in_range(len, 1021, 1023);
        assert_int_equal((len - lead) % 3, 0);
        record_free(r);
    }
}

static void frees_what_was_added(void **state) /* the leak sanitizer looks */
{
    struct record_source from = {.topic = "t"};
    struct record *r = record_new(&from);

    (void)state;
    r->json = json_object();
    r->order_owned = mem_text("key");
    record_reject(r, REASON_TOO_LARGE, 0, "too large");
    record_free(r);
    record_free(NULL);
}

/* The code stands in the text where the reason does not say what it is. */
static void says_what_the_server_said(void **state)
{
    char text[] = "no, {a: 1}";
    static const char *const wanted[] = {"code 9: no, {a: 1}", "no, {a: 1}",
                                         "refused by the server"};
    const struct outcome outcomes[] = {
        {.fate = FATE_NEVER, .reason = REASON_REJECTED, .code = 9, .text = text},
        {.fate = FATE_NEVER, .reason = REASON_VALIDATION, .code = 121, .text = text},
        {.fate = FATE_NEVER, .reason = REASON_REJECTED},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(outcomes) / sizeof(outcomes[0]); i++) {
        struct record_source from = {.topic = "t"};
        struct record *r = record_new(&from);

        record_refused(r, &outcomes[i]);
        assert_int_equal(r->rejected.reason, outcomes[i].reason);
        assert_int_equal(r->rejected.code, outcomes[i].code);
        assert_string_equal(r->rejected.text, wanted[i]);
        record_free(r);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_everything),
        cmocka_unit_test(null_is_not_empty),
        cmocka_unit_test(the_last_header_of_a_name_counts),
        cmocka_unit_test(the_first_rejection_stays),
        cmocka_unit_test(long_rejections_are_cut_between_characters),
        cmocka_unit_test(frees_what_was_added),
        cmocka_unit_test(says_what_the_server_said),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
