#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <string.h>

#include "core/reason.h"

/* The names are public: this list is the contract, the table in reason.c must agree. */
static const char *const public_names[] = {
    "json_syntax",       "extjson_syntax",  "bson_syntax",  "not_an_object",
    "invalid_utf8",      "duplicate_name",  "number_range", "schema_registry_framing",
    "compressed",        "dedup_missing",   "dedup_null",   "dedup_empty",
    "dedup_not_scalar",  "type_conversion", "unsafe_name",  "empty_value",
    "tombstone",         "too_large",       "too_deep",     "effect_value",
    "operation_unknown", "unique_conflict", "conflict",     "validation",
    "rejected",
};

static void test_names_are_the_public_ones_in_order(void **state)
{
    (void)state;
    assert_int_equal(sizeof(public_names) / sizeof(public_names[0]), REASON_COUNT - 1);
    for (int i = 1; i < REASON_COUNT; i++)
        assert_string_equal(reason_name((enum reason)i), public_names[i - 1]);
}

static void test_parse_is_the_way_back(void **state)
{
    enum reason reason;

    (void)state;
    for (int i = 1; i < REASON_COUNT; i++) {
        assert_true(reason_parse(reason_name((enum reason)i), &reason));
        assert_int_equal(reason, i);
    }
    assert_false(reason_parse("none", &reason)); /* no dead letter has it */
    assert_false(reason_parse("", &reason));
    assert_false(reason_parse("Json_Syntax", &reason));
}

static void test_every_reason_helps(void **state)
{
    (void)state;
    for (int i = 1; i < REASON_COUNT; i++)
        assert_true(strlen(reason_help((enum reason)i)) > 30);
    assert_string_equal(reason_name(REASON_COUNT), "unknown");
    assert_non_null(reason_help((enum reason)999));
}

/* The tables of reasons in docs/dead-letters.md have a row for each and no other. */
static void test_the_documentation_has_every_reason(void **state)
{
    FILE *in = fopen(TEST_DATA "/../../docs/dead-letters.md", "r");
    char line[2000], name[64];
    bool seen[REASON_COUNT] = {false}, of_reasons = false;
    enum reason reason;

    (void)state;
    assert_non_null(in);
    while (fgets(line, sizeof(line), in) != NULL) {
        int whole = 0; /* 0 as long as the text behind the name does not match */

        of_reasons = line[0] == '|' && (of_reasons || strncmp(line, "| reason |", 10) == 0);
        if (!of_reasons || sscanf(line, "| `%63[a-z0-9_]` |%n", name, &whole) != 1 || whole == 0)
            continue;
        if (!reason_parse(name, &reason))
            fail_msg("no such reason: %s", name);
        assert_false(seen[reason]);
        seen[reason] = true;
    }
    fclose(in);
    for (int i = 1; i < REASON_COUNT; i++) {
        if (!seen[i])
            fail_msg("not documented: %s", reason_name((enum reason)i));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names_are_the_public_ones_in_order),
        cmocka_unit_test(test_parse_is_the_way_back),
        cmocka_unit_test(test_every_reason_helps),
        cmocka_unit_test(test_the_documentation_has_every_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
