/*
 * The shared cases (tests/data/cases, H-numbers): every line of every file with the right verdict.
 * The dedup key is event_id. "upsert" and "insert" lines show filter and document; the server's
 * part (E11000 and so on) is tested against a real one.
 */
#include "unit/mapping_fixture.h"

struct file {
    const char *name, *spec;
    const char *const *expected;
    size_t n;
};

#define LINES(...)                                                                                 \
    .expected = (const char *const[]){__VA_ARGS__},                                                \
    .n = sizeof((const char *const[]){__VA_ARGS__}) / sizeof(char *)

static void check_line(const struct mapping *m, const struct file *f, size_t i, char *line,
                       size_t len)
{
    char *colon = memchr(line, ':', len);
    struct record *r;
    char *got;

    assert_non_null(colon);
    *colon = '\0';
    r = fixture_record(line, colon + 1, len - (size_t)(colon + 1 - line));
    got = fixture_map(m, r, false);
    if (i >= f->n)
        fail_msg("%s has more lines than are expected: %s", f->name, got);
    if (strcmp(got, f->expected[i]) != 0)
        fail_msg("%s line %zu\n  got      %s\n  expected %s", f->name, i + 1, got, f->expected[i]);
    mem_free(got);
    record_free(r);
}

static void check_file(const struct file *f)
{
    struct config_route *route = fixture_route(f->spec);
    struct mapping *m = fixture_mapping(route);
    char *name = mem_printf("%s/cases/%s", TEST_DATA, f->name), *line = NULL;
    FILE *in = fopen(name, "r");
    size_t cap = 0, i = 0;
    ssize_t len;

    if (in == NULL)
        fail_msg("%s is not there", name);
    while ((len = getline(&line, &cap, in)) > 0) {
        size_t n = (size_t)len - (line[len - 1] == '\n');

        check_line(m, f, i++, line, n);
    }
    assert_int_equal(i, f->n);
    fclose(in);
    free(line);
    mem_free(name);
    mapping_free(m);
    fixture_route_free(route);
}

static void test_h002_missing_ids(void **state)
{
    (void)state;
    check_file(&(struct file){.name = "H-002-missing-id.kv",
                              .spec = "dedup event_id",
                              LINES("dedup_missing", "dedup_missing", "dedup_null", "dedup_null",
                                    "dedup_empty", "dedup_empty")});
}

/* Numbers are one identity whatever they look like, text and truth are others. */
static void test_h003_numeric_ids(void **state)
{
    (void)state;
    check_file(&(struct file){.name = "H-003-numeric-ids.kv",
                              .spec = "dedup event_id",
                              LINES("upsert {\"event_id\":1} {\"event_id\":1,\"n\":1}",
                                    "upsert {\"event_id\":1} {\"event_id\":f1,\"n\":2}",
                                    "upsert {\"event_id\":1} {\"event_id\":f1,\"n\":3}",
                                    "upsert {\"event_id\":\"1\"} {\"event_id\":\"1\",\"n\":4}",
                                    "upsert {\"event_id\":true} {\"event_id\":true,\"n\":5}",
                                    "upsert {\"event_id\":\"01\"} {\"event_id\":\"01\",\"n\":6}")});
}

static void test_h004_non_scalar_ids(void **state)
{
    (void)state;
    check_file(&(struct file){
        .name = "H-004-non-scalar-ids.kv",
        .spec = "dedup event_id",
        LINES("upsert {\"event_id\":\"seed\"} {\"event_id\":\"seed\",\"n\":0}", "dedup_not_scalar",
              "dedup_not_scalar", "dedup_not_scalar", "dedup_not_scalar", "dedup_not_scalar",
              "dedup_not_scalar", "upsert {\"event_id\":\"p\"} {\"event_id\":\"p\",\"n\":7}")});
}

/* By insert, under exactly these names. */
static void test_h005_dotted_names(void **state)
{
    (void)state;
    check_file(&(struct file){
        .name = "H-005-dotted-names.kv",
        .spec = "dedup event_id",
        LINES("insert {\"event_id\":\"d1\"} {\"event_id\":\"d1\",\"a.b\":1}",
              "insert {\"event_id\":\"d2\"} {\"event_id\":\"d2\",\"a\":{\"x\":1},\"a.b\":2}",
              "insert {\"event_id\":\"d3\"} "
              "{\"event_id\":\"d3\",\"price.usd\":f9.5,\"price\":{\"eur\":9}}",
              "insert {\"event_id\":\"d4\"} {\"event_id\":\"d4\",\"arr.0\":\"x\"}",
              "insert {\"event_id\":\"d5\"} {\"event_id\":\"d5\",\"a.\":1}",
              "insert {\"event_id\":\"d6\"} {\"event_id\":\"d6\",\".a\":1}",
              "insert {\"event_id\":\"d7\"} {\"event_id\":\"d7\",\"a..b\":1}",
              "insert {\"event_id\":\"d8\"} {\"event_id\":\"d8\",\"\":1}",
              "insert {\"event_id\":\"d9\"} "
              "{\"event_id\":\"d9\",\"$price\":1,\"doc\":{\"$inc\":1,\"x.y\":2}}",
              "insert {\"event_id\":\"d10\"} {\"event_id\":\"d10\",\"meta.$\":1}")});
}

/* The second _id "X" is another event: the server answers E11000 on _id_, and the look by event_id
 * finds nothing. */
static void test_h006_path_shadow(void **state)
{
    (void)state;
    check_file(&(struct file){
        .name = "H-006-path-shadow.kv",
        .spec = "dedup event_id",
        LINES("upsert {\"event_id\":\"A\"} {\"event_id\":\"A\",\"dedup\":\"B\",\"n\":1}",
              "upsert {\"event_id\":\"C\"} {\"event_id\":\"C\",\"dedup\":\"B\",\"n\":2}",
              "upsert {\"event_id\":\"D\"} {\"event_id\":\"D\",\"_id\":\"X\",\"n\":3}",
              "upsert {\"event_id\":\"E\"} {\"event_id\":\"E\",\"_id\":\"X\",\"n\":4}",
              "unsafe_name")});
    /* The key is to be stored where the payload has something else. */
    check_file(&(struct file){
        .name = "H-006-path-shadow.kv",
        .spec = "dedup event_id\nfields dedup",
        LINES("unsafe_name", "unsafe_name",
              "upsert {\"dedup\":\"D\"} {\"event_id\":\"D\",\"_id\":\"X\",\"n\":3,\"dedup\":\"D\"}",
              "upsert {\"dedup\":\"E\"} {\"event_id\":\"E\",\"_id\":\"X\",\"n\":4,\"dedup\":\"E\"}",
              "unsafe_name")});
    check_file(
        &(struct file){.name = "H-006-path-shadow.kv",
                       .spec = "dedup event_id\ninto_id",
                       LINES("upsert {\"_id\":\"A\"} {\"event_id\":\"A\",\"dedup\":\"B\",\"n\":1}",
                             "upsert {\"_id\":\"C\"} {\"event_id\":\"C\",\"dedup\":\"B\",\"n\":2}",
                             "unsafe_name", "unsafe_name", "unsafe_name")});
}

static void test_h012_nul_in_id(void **state)
{
    (void)state;
    check_file(&(struct file){
        .name = "H-012-nul-in-id.kv",
        .spec = "dedup event_id",
        LINES(
            "upsert {\"event_id\":\"a\"} {\"event_id\":\"a\",\"n\":1}",
            "upsert {\"event_id\":\"a\\u0000b\"} {\"event_id\":\"a\\u0000b\",\"n\":2}",
            "upsert {\"event_id\":\"a\\u0000c\"} {\"event_id\":\"a\\u0000c\",\"n\":3}",
            "upsert {\"event_id\":\"ok\"} {\"event_id\":\"ok\",\"note\":\"x\\u0000y\",\"n\":4}")});
}

/* b8 is a real: the nearest double. */
static void test_h014_big_integers(void **state)
{
    (void)state;
    check_file(&(struct file){
        .name = "H-014-big-integers.kv",
        .spec = "dedup event_id",
        LINES("upsert {\"event_id\":\"b1\"} {\"event_id\":\"b1\",\"v\":9223372036854775807}",
              "upsert {\"event_id\":\"b2\"} {\"event_id\":\"b2\",\"v\":9007199254740993}",
              "number_range", "number_range", "number_range", "number_range", "number_range",
              "upsert {\"event_id\":\"b8\"} {\"event_id\":\"b8\",\"v\":f1.2345678901234568e+29}")});
}

static void test_h015_two_documents(void **state)
{
    (void)state;
    check_file(&(struct file){.name = "H-015-two-documents.kv",
                              .spec = "dedup event_id",
                              LINES("json_syntax", "json_syntax", "json_syntax", "json_syntax",
                                    "upsert {\"event_id\":\"t7\"} {\"event_id\":\"t7\",\"n\":7}")});
}

static void test_h016_extended_json(void **state)
{
    (void)state;
    check_file(&(struct file){
        .name = "H-016-extended-json.kv",
        .spec = "dedup event_id",
        LINES("upsert {\"event_id\":\"x1\"} "
              "{\"event_id\":\"x1\",\"d\":{\"$date\":\"2020-01-01T00:00:00Z\"}}",
              "upsert {\"event_id\":\"x2\"} "
              "{\"event_id\":\"x2\",\"o\":{\"$oid\":\"507f1f77bcf86cd799439011\"}}",
              "upsert {\"event_id\":\"x3\"} {\"event_id\":\"x3\",\"filter\":{\"$type\":\"00\"}}",
              "upsert {\"event_id\":\"x4\"} {\"event_id\":\"x4\",\"filter\":{\"$options\":\"i\"}}",
              "upsert {\"event_id\":\"x5\"} {\"event_id\":\"x5\",\"u\":{\"$undefined\":true}}",
              "upsert {\"event_id\":\"x6\"} {\"event_id\":\"x6\",\"n\":{\"$numberLong\":\"5\"}}",
              "upsert {\"event_id\":\"x7\"} {\"event_id\":\"x7\",\"c\":{\"$code\":\"f()\"}}",
              "upsert {\"event_id\":\"x8\"} {\"event_id\":\"x8\",\"o\":{\"$oid\":\"zz\"}}",
              "dedup_not_scalar")});
}

/* Parts are never glued: lines 1 to 4 are four events, line 5 is the first again. */
static void test_h020_several_parts(void **state)
{
    (void)state;
    check_file(&(struct file){
        .name = "H-020-concat-ids.kv",
        .spec = "dedup tenant id",
        LINES("upsert {\"tenant\":\"A1\",\"id\":\"2\"} {\"tenant\":\"A1\",\"id\":\"2\",\"n\":1}",
              "upsert {\"tenant\":\"A\",\"id\":\"12\"} {\"tenant\":\"A\",\"id\":\"12\",\"n\":2}",
              "upsert {\"tenant\":\"A|1\",\"id\":\"2\"} {\"tenant\":\"A|1\",\"id\":\"2\",\"n\":3}",
              "upsert {\"tenant\":\"A\",\"id\":\"1|2\"} {\"tenant\":\"A\",\"id\":\"1|2\",\"n\":4}",
              "upsert {\"tenant\":\"A1\",\"id\":\"2\"} {\"tenant\":\"A1\",\"id\":\"2\",\"n\":5}")});
    check_file(&(struct file){.name = "H-020-concat-ids.kv",
                              .spec = "dedup tenant id\ninto_id",
                              LINES("upsert {\"_id\":{\"tenant\":\"A1\",\"id\":\"2\"}} "
                                    "{\"tenant\":\"A1\",\"id\":\"2\",\"n\":1}",
                                    "upsert {\"_id\":{\"tenant\":\"A\",\"id\":\"12\"}} "
                                    "{\"tenant\":\"A\",\"id\":\"12\",\"n\":2}",
                                    "upsert {\"_id\":{\"tenant\":\"A|1\",\"id\":\"2\"}} "
                                    "{\"tenant\":\"A|1\",\"id\":\"2\",\"n\":3}",
                                    "upsert {\"_id\":{\"tenant\":\"A\",\"id\":\"1|2\"}} "
                                    "{\"tenant\":\"A\",\"id\":\"1|2\",\"n\":4}",
                                    "upsert {\"_id\":{\"tenant\":\"A1\",\"id\":\"2\"}} "
                                    "{\"tenant\":\"A1\",\"id\":\"2\",\"n\":5}")});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_h002_missing_ids),    cmocka_unit_test(test_h003_numeric_ids),
        cmocka_unit_test(test_h004_non_scalar_ids), cmocka_unit_test(test_h005_dotted_names),
        cmocka_unit_test(test_h006_path_shadow),    cmocka_unit_test(test_h012_nul_in_id),
        cmocka_unit_test(test_h014_big_integers),   cmocka_unit_test(test_h015_two_documents),
        cmocka_unit_test(test_h016_extended_json),  cmocka_unit_test(test_h020_several_parts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
