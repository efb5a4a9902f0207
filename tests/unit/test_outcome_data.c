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

/*
 * Every category of src/mongo/base/error_codes.yml (mongodb/mongo, master of 2025) that tells of
 * something that passes or that an operator has to mend, and the lists of the drivers'
 * specifications (retryable writes; server discovery and monitoring: "not writable primary" and
 * "node is recovering"). None may be one record's fault, and none may be left to guessing.
 */
static void test_every_passing_code_is_known(void **state)
{
    static const struct {
        const char *category;
        int codes[32];
    } t[] = {
        {"retryable writes",
         {11600, 11602, 10107, 13435, 13436, 189, 91, 7, 6, 89, 9001, 262, 64, 134}},
        {"not writable primary", {10107, 13435, 10058}},
        {"node is recovering", {11600, 11602, 13436, 189, 91}},
        {"NetworkError", {6, 7, 89, 317, 384, 9001}},
        {"NetworkTimeoutError", {89, 202}},
        {"Interruption",
         {24, 50, 237, 262, 279, 281, 282, 290, 355, 453, 11600, 11601, 11602, 46841, 91331,
          10045600}},
        {"NotPrimaryError", {189, 10107, 11602, 13435, 13436}},
        {"StaleShardVersionError", {63, 150, 13388}},
        {"WriteConcernError", {64, 75, 79, 100}},
        {"ShutdownError", {91, 333, 11600}},
        {"CancellationError", {90, 91, 310, 312, 333, 355, 11600, 46841}},
        {"ExceededTimeLimitError", {50, 202, 262, 290, 407}},
        {"SnapshotError", {239, 246, 250, 272}},
        {"RetriableError",
         {6,   7,   89,  91,   134,   189,   262,   317,   358,   384,   402,   406,     407,
          412, 453, 462, 9001, 10107, 11600, 11602, 13435, 13436, 50915, 91331, 10045600}},
        {"SystemOverloadedError", {433, 449, 450, 462}},
        {"CloseConnectionError", {303, 372, 398}},
        {"VersionedAPIError", {322, 323, 324, 347}},
        {"VoteAbortError", {148, 225, 251, 263, 347, 356}},
        {"rights and credentials", {11, 13, 18, 31, 33, 214, 391, 8000}},
        {"topology and disk", {20, 26, 59, 61, 79, 115, 123, 166, 371, 14031}},
    };

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        for (size_t k = 0; t[i].codes[k] != 0; k++) {
            const struct outcome_code *row = outcome_code_find(t[i].codes[k]);
            if (!row || row->one == FATE_NEVER || row->one == FATE_LOOK ||
                row->whole != FATE_UNKNOWN || row->retry == RETRY_NONE)
                fail_msg("%s: code %d is not what it should be", t[i].category, t[i].codes[k]);
        }
    }
}

/* Where only a person can help, the row says what to do, and only there. */
static void test_what_to_do(void **state)
{
    (void)state;
    for (size_t i = 0; i < outcome_codes_count; i++) {
        const struct outcome_code *row = &outcome_codes[i];
        bool somebody = row->retry == RETRY_RIGHTS || row->retry == RETRY_CONFIG;
        if (somebody != (row->todo != NULL))
            fail_msg("code %d", row->code);
        if (somebody)
            assert_string_equal(outcome_advice(row->retry, row->code), row->todo);
    }
    for (int c = 0; c <= RETRY_CLASSES; c++)
        assert_true(strlen(outcome_advice((enum retry_class)c, 424242)) > 0);
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
        snprintf(want, sizeof want, "| %d | %s | %s | %s%s | %s | %s | %s | %s |\n", row->code,
                 row->name, fates[row->one], fates[row->whole], row->member ? "!" : "",
                 retry_class_name(row->retry), row->reason ? reason_name(row->reason) : "",
                 row->source, row->todo ? row->todo : "");
        assert_string_equal(line, want);
    }
    fclose(f);
    assert_int_equal(i, outcome_codes_count);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded_replies),
        cmocka_unit_test(test_every_passing_code_is_known),
        cmocka_unit_test(test_what_to_do),
        cmocka_unit_test(test_the_table_in_the_documentation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
