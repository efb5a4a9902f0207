/* Which value of a sequence a refusal is about, as servers say it, and what people are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core/sequence_taken.h"

static char database[] = "shop", orders[] = "orders", sequences[] = "orders_sequences", no[] = "no",
            ref[] = "ref", none[] = "";

static struct config_route route_of(char *template_field)
{
    return (struct config_route){.database = database,
                                 .collection = orders,
                                 .sequence = {.field = no,
                                              .template_field = template_field,
                                              .database = database,
                                              .collection = sequences}};
}

static enum sequence_taken taken(const struct config_route *route, const char *error)
{
    char *text = mem_printf("{\"writeErrors\":[%s]}", error);
    bson_error_t be;
    bson_t *b = bson_new_from_json((const uint8_t *)text, -1, &be);
    bson_iter_t at, list;

    if (!b)
        fail_msg("%s: %s", be.message, text);
    assert_true(bson_iter_init_find(&at, b, "writeErrors") && bson_iter_recurse(&at, &list) &&
                bson_iter_next(&list));
    enum sequence_taken found = sequence_taken_of(route, &list);
    bson_destroy(b);
    mem_free(text);
    return found;
}

static void which_it_is(void **state)
{
    static const struct {
        const char *error;
        enum sequence_taken taken, without_text;
    } t[] = {
        {"{\"keyPattern\":{\"cat\":1,\"no\":1}}", SEQUENCE_TAKEN_NUMBER, SEQUENCE_TAKEN_NUMBER},
        {"{\"keyPattern\":{\"no\":1}}", SEQUENCE_TAKEN_NUMBER, SEQUENCE_TAKEN_NUMBER},
        {"{\"keyPattern\":{\"ref\":1}}", SEQUENCE_TAKEN_TEXT, SEQUENCE_TAKEN_NOTHING},
        {"{\"keyPattern\":{\"sub\":1,\"ref\":1}}", SEQUENCE_TAKEN_TEXT, SEQUENCE_TAKEN_NOTHING},
        {"{\"keyPattern\":{\"ref\":1,\"no\":1}}", SEQUENCE_TAKEN_NUMBER, SEQUENCE_TAKEN_NUMBER},
        {"{\"keyPattern\":{\"cat\":1}}", SEQUENCE_TAKEN_NOTHING, SEQUENCE_TAKEN_NOTHING},
        {"{\"keyPattern\":{\"no.x\":1,\"refs\":1}}", SEQUENCE_TAKEN_NOTHING,
         SEQUENCE_TAKEN_NOTHING},
        {"{\"keyPattern\":{}}", SEQUENCE_TAKEN_NOTHING, SEQUENCE_TAKEN_NOTHING},
        {"{\"keyPattern\":7}", SEQUENCE_TAKEN_NOTHING, SEQUENCE_TAKEN_NOTHING},
        {"{\"index\":0}", SEQUENCE_TAKEN_NOTHING, SEQUENCE_TAKEN_NOTHING},
        {"{}", SEQUENCE_TAKEN_NOTHING, SEQUENCE_TAKEN_NOTHING},
        {"7", SEQUENCE_TAKEN_NOTHING, SEQUENCE_TAKEN_NOTHING},
    };
    struct config_route with = route_of(ref), without = route_of(none), no_sequence = route_of(ref);

    (void)state;
    no_sequence.sequence.field = none;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        assert_int_equal(taken(&with, t[i].error), t[i].taken);
        assert_int_equal(taken(&without, t[i].error), t[i].without_text);
        assert_int_equal(taken(&no_sequence, t[i].error), SEQUENCE_TAKEN_NOTHING);
    }
}

static void what_is_told(void **state)
{
    struct config_route route = route_of(ref);
    bson_t *group = BCON_NEW("_id", "{", "cat", BCON_UTF8("a"), "}");
    char *text = sequence_number_taken(&route, group, INT64_MAX);

    (void)state;
    assert_string_equal(
        text,
        "group { \"_id\" : { \"cat\" : \"a\" } } of the sequence waits, others go on: its "
        "next number, 9223372036854775807, stands in no of a document in shop.orders already, "
        "so its counter in shop.orders_sequences lags. Run idemsink init -c FILE "
        "--raise-sequences (it may run beside this), or take that document away");
    mem_free(text);
    text =
        sequence_text_taken(&route.sequence, mem_text("E11000 index: t dup key: { ref: \"x\" }"));
    assert_string_equal(text, "another document has its text in ref (sequence.template_field; the "
                              "number is in no): E11000 index: t dup key: { ref: \"x\" }");
    mem_free(text);
    text = sequence_text_taken(&route.sequence, NULL);
    assert_non_null(strstr(text, "): E11000"));
    mem_free(text);
    bson_destroy(group);
}

/* Of a group of any length only the beginning, whole characters. */
static void a_long_group(void **state)
{
    struct config_route route = route_of(ref);
    char long_value[602];
    bson_t group = BSON_INITIALIZER;

    (void)state;
    for (size_t i = 0; i < 600; i += 2) {
        long_value[i] = (char)0xC3;
        long_value[i + 1] = (char)0xA4;
    }
    long_value[600] = '\0';
    BSON_APPEND_UTF8(&group, "_id", long_value);
    char *text = sequence_number_taken(&route, &group, 1);
    assert_true(strlen(text) < 600);
    assert_true(bson_utf8_validate(text, strlen(text), false));
    assert_non_null(strstr(text, "... of the sequence"));
    mem_free(text);
    bson_destroy(&group);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(which_it_is),
                                       cmocka_unit_test(what_is_told),
                                       cmocka_unit_test(a_long_group)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
