/* Each reply that was recorded, and the table in the documentation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/outcome.h"

enum { MAX = 16 };

static const struct outcome_call fine = {.fault = CALL_FINE};

static enum fate fate_after_look(const struct outcome *o, const char *found)
{
    if (o->fate != FATE_LOOK)
        return o->fate;
    return found && strncmp(found, "nothing", 7) == 0 ? FATE_NEVER : FATE_DUPLICATE;
}

static enum fate fate_of_word(const char *word)
{
    if (strcmp(word, "INSERTED") == 0)
        return FATE_INSERTED;
    if (strcmp(word, "ALREADY") == 0)
        return FATE_DUPLICATE;
    if (strcmp(word, "REJECT_PERMANENT") == 0)
        return FATE_NEVER;
    assert_string_equal(word, "UNKNOWN_RETRY");
    return FATE_UNKNOWN;
}

static void check_recorded(const bson_t *test)
{
    struct outcome out[MAX] = {0};
    const char *name = "?", *found = NULL;
    bson_iter_t it, right;
    bson_t reply;
    uint32_t len;
    const uint8_t *data;
    size_t n = 0;

    assert_true(bson_iter_init_find(&it, test, "name"));
    name = bson_iter_utf8(&it, NULL);
    if (bson_iter_init_find(&it, test, "read_by_dedup_key_finds"))
        found = bson_iter_utf8(&it, NULL);
    assert_true(bson_iter_init_find(&it, test, "right") && bson_iter_recurse(&it, &right));
    while (bson_iter_next(&right))
        n++;
    assert_true(bson_iter_init_find(&it, test, "reply"));
    bson_iter_document(&it, &len, &data);
    assert_true(bson_init_static(&reply, data, len));

    outcome_judge(&fine, &reply, n, out);
    assert_true(bson_iter_init_find(&it, test, "right") && bson_iter_recurse(&it, &right));
    for (size_t i = 0; bson_iter_next(&right); i++) {
        enum fate want = fate_of_word(bson_iter_utf8(&right, NULL));
        if (fate_after_look(&out[i], found) != want)
            fail_msg("%s: operation %zu has fate %d", name, i, out[i].fate);
    }
    for (size_t i = 0; i < n; i++)
        outcome_clear(&out[i]);
}

static void test_recorded_replies(void **state)
{
    char line[8192];
    int lines = 0;
    FILE *f = fopen(TEST_DATA "/mongo-replies.jsonl", "r");

    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        bson_error_t e;
        bson_t *b = bson_new_from_json((const uint8_t *)line, -1, &e);
        if (!b)
            fail_msg("line %d: %s", lines + 1, e.message);
        check_recorded(b);
        bson_destroy(b);
        lines++;
    }
    fclose(f);
    assert_int_equal(lines, 11);
}

/* docs/outcomes.md has a row for each, and none besides. */
static void test_the_table_in_the_documentation(void **state)
{
    static const char *const fates[] = {
        [FATE_LOOK] = "look",   [FATE_LATER] = "later", [FATE_UNKNOWN] = "unknown",
        [FATE_NEVER] = "never", [FATE_SPLIT] = "split", [FATE_NOT_RUN] = ""};
    char line[1024], want[1024];
    size_t i = 0;
    FILE *f = fopen(TEST_DATA "/../../docs/outcomes.md", "r");

    (void)state;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (strncmp(line, "| ", 2) != 0 || line[2] < '0' || line[2] > '9')
            continue;
        assert_true(i < outcome_codes_count);
        const struct outcome_code *row = &outcome_codes[i++];
        snprintf(want, sizeof want, "| %d | %s | %s | %s%s | %s | %s | %s |\n", row->code,
                 row->name, fates[row->one], fates[row->whole], row->member ? "!" : "",
                 retry_class_name(row->retry), row->reason ? reason_name(row->reason) : "",
                 row->source);
        assert_string_equal(line, want);
    }
    fclose(f);
    assert_int_equal(i, outcome_codes_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_replies),
        cmocka_unit_test(test_the_table_in_the_documentation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
