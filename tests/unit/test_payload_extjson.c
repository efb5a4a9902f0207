/*
 * format = "extjson": each form of Extended JSON v2 with what it becomes, and what only looks like
 * one. "i5" is an int32.
 */
#include "unit/mapping_fixture.h"

#include "core/json_place.h"
#include "core/payload.h"

/* The value of v: the expected BSON as the fixture shows it, or a reason. */
struct row {
    const char *json, *expected;
};

static void check(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const char *is = rows[i].expected;
        char *value = mem_printf("{\"id\":\"x\",\"a\":[{\"v\":%s}]}", rows[i].json);
        char *expected =
            strstr(is, "syntax") || strstr(is, "number_range") || strstr(is, "duplicate")
                ? mem_text(is)
                : mem_printf("upsert {\"id\":\"x\"} {\"id\":\"x\",\"a\":[{\"v\":%s}]}", is);
        char *got = fixture_run("dedup id\nformat extjson", value, strlen(value), false);

        if (strcmp(got, expected) != 0)
            fail_msg("row %zu: %s\n  got      %s\n  expected %s", i, rows[i].json, got, expected);
        mem_free(value);
        mem_free(expected);
        mem_free(got);
    }
}
#define CHECK(rows) check((rows), sizeof(rows) / sizeof((rows)[0]))
#define BAD         "extjson_syntax"

static void test_numbers(void **state)
{
    static const struct row rows[] = {
        /* relaxed */
        {"5", "i5"},
        {"-2147483648", "i-2147483648"},
        {"2147483647", "i2147483647"},
        {"2147483648", "2147483648"},
        {"-2147483649", "-2147483649"},
        {"9223372036854775807", "9223372036854775807"},
        {"9223372036854775808", "number_range"},
        {"1.0", "f1"},
        {"1e400", "number_range"},
        {"-0", "i0"},
        /* canonical */
        {"{\"$numberInt\":\"5\"}", "i5"},
        {"{\"$numberInt\":\"-2147483648\"}", "i-2147483648"},
        {"{\"$numberInt\":\"2147483648\"}", BAD},
        {"{\"$numberInt\":5}", BAD},
        {"{\"$numberInt\":\"5.0\"}", BAD},
        {"{\"$numberInt\":\" 5\"}", BAD},
        {"{\"$numberInt\":\"+5\"}", BAD},
        {"{\"$numberInt\":\"05\"}", BAD},
        {"{\"$numberInt\":\"\"}", BAD},
        {"{\"$numberInt\":\"-\"}", BAD},
        {"{\"$numberInt\":\"5\\u0000\"}", BAD},
        {"{\"$numberLong\":\"5\"}", "5"},
        {"{\"$numberLong\":\"-9223372036854775808\"}", "-9223372036854775808"},
        {"{\"$numberLong\":\"9223372036854775807\"}", "9223372036854775807"},
        {"{\"$numberLong\":\"9223372036854775808\"}", BAD},
        {"{\"$numberLong\":\"-9223372036854775809\"}", BAD},
        {"{\"$numberLong\":\"123456789012345678901\"}", BAD},
        {"{\"$numberLong\":9007199254740993}", BAD},
        {"{\"$numberLong\":null}", BAD},
        {"{\"$numberDouble\":\"5\"}", "f5"},
        {"{\"$numberDouble\":\"-0.0\"}", "f-0"},
        {"{\"$numberDouble\":\"1E+2\"}", "f100"},
        {"{\"$numberDouble\":\"12345678901234567168\"}", "f1.2345678901234567e+19"},
        {"{\"$numberDouble\":\"NaN\"}", "fnan"},
        {"{\"$numberDouble\":\"Infinity\"}", "finf"},
        {"{\"$numberDouble\":\"-Infinity\"}", "f-inf"},
        {"{\"$numberDouble\":\"nan\"}", BAD},
        {"{\"$numberDouble\":\"inf\"}", BAD},
        {"{\"$numberDouble\":\"0x1p3\"}", BAD},
        {"{\"$numberDouble\":\"1e400\"}", BAD},
        {"{\"$numberDouble\":\"1.5 \"}", BAD},
        {"{\"$numberDouble\":1.5}", BAD},
        {"{\"$numberDecimal\":\"1.50\"}", "dec(1.50)"},
        {"{\"$numberDecimal\":\"-0\"}", "dec(-0)"},
        {"{\"$numberDecimal\":\"1E+6111\"}", "dec(1E+6111)"},
        {"{\"$numberDecimal\":\"NaN\"}", "dec(NaN)"},
        {"{\"$numberDecimal\":\"-Infinity\"}", "dec(-Infinity)"},
        {"{\"$numberDecimal\":\"12345678901234567890123456789012345\"}", BAD},
        {"{\"$numberDecimal\":\"1e4294967297\"}", BAD},
        {"{\"$numberDecimal\":1.5}", BAD},
    };

    (void)state;
    CHECK(rows);
}

static void test_other_types(void **state)
{
    static const struct row rows[] = {
        {"{\"$oid\":\"507f1f77bcf86cd799439011\"}", "oid(507f1f77bcf86cd799439011)"},
        {"{\"$oid\":\"zz\"}", BAD},
        {"{\"$oid\":5}", BAD},
        {"{\"$date\":\"1970-01-01T00:00:00.001Z\"}", "date(1)"},
        {"{\"$date\":\"2026-01-02T03:04:05+01:00\"}", "date(1767319445000)"},
        {"{\"$date\":{\"$numberLong\":\"-62135596800001\"}}", "date(-62135596800001)"},
        {"{\"$date\":\"2026-01-02\"}", BAD},
        {"{\"$date\":0}", BAD},
        {"{\"$date\":{\"$numberInt\":\"0\"}}", BAD},
        {"{\"$date\":{\"$numberLong\":\"0\",\"x\":1}}", BAD},
        {"{\"$binary\":{\"base64\":\"AAEC\",\"subType\":\"00\"}}", "bin0(000102)"},
        {"{\"$binary\":{\"subType\":\"5\",\"base64\":\"AA==\"}}", "bin5(00)"},
        {"{\"$binary\":{\"base64\":\"AAEC\",\"subType\":\"02\"}}", "bin2(000102)"},
        {"{\"$binary\":{\"base64\":\"\",\"subType\":\"ff\"}}", "bin255()"},
        {"{\"$binary\":{\"base64\":\"AA\",\"subType\":\"00\"}}", BAD},
        {"{\"$binary\":{\"base64\":\"AA==\",\"subType\":\"000\"}}", BAD},
        {"{\"$binary\":{\"base64\":\"AA==\",\"subType\":0}}", BAD},
        {"{\"$binary\":{\"base64\":\"AA==\"}}", BAD},
        {"{\"$binary\":\"AA==\",\"$type\":\"00\"}", BAD}, /* version 1 */
        {"{\"$binary\":\"AA==\"}", BAD},
        {"{\"$uuid\":\"00112233-4455-6677-8899-aabbccddeeff\"}",
         "bin4(00112233445566778899aabbccddeeff)"},
        {"{\"$uuid\":\"00112233445566778899aabbccddeeff\"}", BAD},
        {"{\"$timestamp\":{\"t\":4294967295,\"i\":1}}", "ts(4294967295,1)"},
        {"{\"$timestamp\":{\"t\":4294967296,\"i\":1}}", BAD},
        {"{\"$timestamp\":{\"t\":1,\"i\":-1}}", BAD},
        {"{\"$timestamp\":{\"t\":1}}", BAD},
        {"{\"$timestamp\":5}", BAD},
        {"{\"$regularExpression\":{\"pattern\":\"^a\",\"options\":\"i\"}}", "/^a/i"},
        {"{\"$regularExpression\":{\"pattern\":\"a\\u0000\",\"options\":\"\"}}", BAD},
        {"{\"$regularExpression\":{\"pattern\":\"a\"}}", BAD},
        {"{\"$regex\":\"^a\",\"$options\":\"i\"}", BAD}, /* version 1 */
        {"{\"$symbol\":\"s\"}", "symbol(s)"},
        {"{\"$code\":\"f()\"}", "code(f())"},
        {"{\"$code\":\"f()\",\"$scope\":{\"x\":1,\"y\":{\"$oid\":\"507f1f77bcf86cd799439011\"}}}",
         "code(f(),{\"x\":i1,\"y\":oid(507f1f77bcf86cd799439011)})"},
        {"{\"$scope\":{},\"$code\":\"\"}", "code(,{})"},
        {"{\"$code\":5}", BAD},
        {"{\"$code\":\"f()\",\"$scope\":1}", BAD},
        {"{\"$code\":\"f()\",\"$scope\":{\"$oid\":\"507f1f77bcf86cd799439011\"}}", BAD},
        {"{\"$code\":\"f()\",\"$scope\":{\"c\":{\"$code\":\"\",\"$scope\":{}}}}", BAD},
        {"{\"$code\":\"f()\",\"$scope\":{\"c\":{\"$oid\":\"\"}}}", BAD},
        {"{\"$code\":\"f()\",\"$scope\":{},\"x\":1}", BAD},
        {"{\"$scope\":{}}", BAD},
        {"{\"$dbPointer\":{\"$ref\":\"d.c\",\"$id\":{\"$oid\":\"507f1f77bcf86cd799439011\"}}}",
         "pointer(d.c,507f1f77bcf86cd799439011)"},
        {"{\"$dbPointer\":{\"$ref\":\"d.c\",\"$id\":\"x\"}}", BAD},
        {"{\"$minKey\":1}", "minkey"},
        {"{\"$maxKey\":1}", "maxkey"},
        {"{\"$maxKey\":\"1\"}", BAD},
        {"{\"$minKey\":2}", BAD},
        {"{\"$undefined\":true}", "undefined"},
        {"{\"$undefined\":1}", BAD},
    };

    (void)state;
    CHECK(rows);
}

/* A name that is kept for types makes a type or nothing; other names with $ are names. */
static void test_names_that_are_kept(void **state)
{
    static const struct row rows[] = {
        {"{\"$oid\":\"507f1f77bcf86cd799439011\",\"x\":1}", BAD},
        {"{\"x\":1,\"$oid\":\"507f1f77bcf86cd799439011\"}", BAD},
        {"{\"$type\":\"00\"}", BAD},
        {"{\"$options\":\"i\"}", BAD},
        {"{\"$gt\":5}", "{\"$gt\":i5}"},
        {"{\"$ref\":\"c\",\"$id\":{\"$oid\":\"507f1f77bcf86cd799439011\"}}",
         "{\"$ref\":\"c\",\"$id\":oid(507f1f77bcf86cd799439011)}"},
        {"{\"$OID\":\"x\"}", "{\"$OID\":\"x\"}"},
        {"[{\"$numberInt\":\"1\"},[2,{\"x\":{\"$numberInt\":\"3\"}}],null,true,\"$oid\"]",
         "[i1,[i2,{\"x\":i3}],null,true,\"$oid\"]"},
        {"{\"a\":1,\"a\":2}", "duplicate_name"},
        {"{\"$oid\":\"507f1f77bcf86cd799439011\",\"$oid\":\"507f1f77bcf86cd799439012\"}",
         "duplicate_name"},
        {"NaN", "json_syntax"},
        {"1}]}{", "json_syntax"},
    };

    (void)state;
    CHECK(rows);
}

static void test_the_error_says_where(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id\nformat extjson",
         "{\"id\":\"{\\\"\",\"a\":{\"b\":1},\"c\":{\"$oid\":\"secret\"}}",
         "extjson_syntax: \"$oid\" is not 24 hexadecimal digits as text, at byte 28"},
        {"dedup id\nformat extjson",
         "{\"t\":{\"$timestamp\":{\"t\":1,\"i\":2}},\"p\":{\"$dbPointer\":{\"$ref\":\"c\",\"$id\":{"
         "\"$oid\":\"507f1f77bcf86cd799439011\"}}},\"d\":{\"$date\":{\"$numberLong\":\"1\"}},"
         "\"x\":{\"$type\":2}}",
         "extjson_syntax: a name that Extended JSON keeps for its types stands in an object that "
         "is "
         "none of its forms, at byte 146"},
        {"dedup id\nformat extjson",
         "{\"id\":1,\"c\":{\"$code\":\"\",\"$scope\":{\"a\":{},\"b\":{\"$oid\":1}}}}",
         "extjson_syntax: \"$oid\" is not 24 hexadecimal digits as text, at byte 45"},
        {"dedup id\nformat extjson", "{\"$oid\":\"507f1f77bcf86cd799439011\"}",
         "extjson_syntax: the whole value is a type of Extended JSON, or looks like one, at byte "
         "0"},
        {"dedup id\nformat extjson", "[]", "not_an_object: a JSON array, not an object"},
        {"dedup id\nformat extjson", "", "empty_value: the value has no bytes"},
        {"dedup id\nformat extjson", "\x1f\x8b\x08",
         "compressed: the value is compressed with gzip"},
        {"dedup id\nformat extjson", NULL, "skip"},
    };

    (void)state;
    FIXTURE_CHECK_TEXTS(rows);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const char *at = strstr(rows[i].expected, ", at byte ");
        struct json_place p;

        if (rows[i].value == NULL)
            continue;
        assert_int_equal(payload_fault_find(slice_text(rows[i].value), FORMAT_EXTJSON, &p),
                         at != NULL || rows[i].value[0] == '\x1f');
        if (at != NULL) {
            assert_int_equal(p.byte, strtoul(at + 10, NULL, 10));
            assert_int_equal(p.column, p.byte + 1);
            assert_string_equal(buf_text(&p.path), i == 0   ? "c"
                                                   : i == 1 ? "x"
                                                   : i == 2 ? "c.$scope.b"
                                                            : "");
        }
        json_place_clear(&p);
    }
}

/* The dedup key, types, shape and templates see the values, not the forms. */
static void test_the_steps_behind(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id\nformat extjson", "{\"id\":{\"$numberLong\":\"1\"}}",
         "upsert {\"id\":1} {\"id\":1}"},
        {"dedup id\nformat extjson", "{\"id\":1}", "upsert {\"id\":1} {\"id\":i1}"},
        {"dedup id\nformat extjson", "{\"id\":{\"$numberDouble\":\"1.0\"}}",
         "upsert {\"id\":1} {\"id\":f1}"},
        {"dedup id\nformat extjson", "{\"id\":{\"$numberDecimal\":\"1.00\"}}",
         "upsert {\"id\":1} {\"id\":dec(1.00)}"},
        {"dedup id\nformat extjson", "{\"id\":{\"$oid\":\"507f1f77bcf86cd799439011\"}}",
         "upsert {\"id\":oid(507f1f77bcf86cd799439011)} {\"id\":oid(507f1f77bcf86cd799439011)}"},
        {"dedup id\nformat extjson", "{\"id\":{\"$date\":\"1970-01-01T00:00:00Z\"}}",
         "upsert {\"id\":date(0)} {\"id\":date(0)}"},
        {"dedup id\nformat extjson\ninto_id",
         "{\"id\":{\"$uuid\":\"00112233-4455-6677-8899-aabbccddeeff\"}}",
         "upsert {\"_id\":bin4(00112233445566778899aabbccddeeff)} "
         "{\"id\":bin4(00112233445566778899aabbccddeeff)}"},
        {"dedup id\nformat extjson", "{\"id\":{\"$numberDouble\":\"NaN\"}}", "dedup_not_scalar"},
        {"dedup id\nformat extjson", "{\"id\":{\"$numberDouble\":\"1.5\"}}", "dedup_not_scalar"},
        {"dedup id\nformat extjson", "{\"id\":{\"$numberDecimal\":\"NaN\"}}", "dedup_not_scalar"},
        {"dedup id\nformat extjson", "{\"id\":{\"$numberDecimal\":\"Infinity\"}}",
         "dedup_not_scalar"},
        {"dedup id\nformat extjson", "{\"id\":{\"$symbol\":\"s\"}}", "dedup_not_scalar"},
        {"dedup id\nformat extjson", "{\"id\":{\"$minKey\":1}}", "dedup_not_scalar"},
        {"dedup id\nformat extjson", "{\"id\":{\"$undefined\":true}}", "dedup_not_scalar"},
        {"dedup id\nformat extjson",
         "{\"id\":{\"$regularExpression\":{\"pattern\":\"\",\"options\":\"\"}}}",
         "dedup_not_scalar"},
        {"dedup id\nformat extjson", "{\"id\":{\"$timestamp\":{\"t\":1,\"i\":1}}}",
         "dedup_not_scalar"},
        {"dedup id\nformat extjson",
         "{\"id\":{\"$binary\":{\"base64\":\"AA==\",\"subType\":\"0\"}}}", "dedup_not_scalar"},
        {"dedup id\nformat extjson\ntypes id binary",
         "{\"id\":{\"$binary\":{\"base64\":\"AA==\",\"subType\":\"0\"}}}",
         "upsert {\"id\":bin0(00)} {\"id\":bin0(00)}"},
        {"dedup id\nformat extjson\ntypes id binary",
         "{\"id\":{\"$binary\":{\"base64\":\"\",\"subType\":\"0\"}}}", "dedup_empty"},
        {"dedup a.id\nformat extjson", "{\"a\":{\"$numberInt\":\"1\"}}", "dedup_missing"},
        {"dedup id\nfields key\nformat extjson", "{\"id\":1,\"key\":1}", "unsafe_name"},
        {"dedup id\nfields key\nformat extjson", "{\"id\":{\"$oid\":\"507f1f77bcf86cd799439011\"}}",
         "upsert {\"key\":oid(507f1f77bcf86cd799439011)} "
         "{\"id\":oid(507f1f77bcf86cd799439011),\"key\":oid(507f1f77bcf86cd799439011)}"},
        {"dedup id\nformat extjson\nrename v w\nexclude x\nunder p\nfields p.id\nset n 5",
         "{\"id\":\"a\",\"v\":{\"$date\":{\"$numberLong\":\"7\"}},\"x\":{\"$minKey\":1}}",
         "upsert {\"p.id\":\"a\"} {\"p\":{\"id\":\"a\",\"w\":date(7)},\"n\":5}"},
        {"dedup id\nformat extjson\ninclude id v\nsource_fields s",
         "{\"id\":\"a\",\"v\":1,\"x\":{\"$minKey\":1}}",
         "upsert {\"id\":\"a\"} {\"id\":\"a\",\"v\":i1,\"s\":{\"topic\":\"top\",\"partition\":3,"
         "\"offset\":42,\"timestamp\":date(1700000000123),\"key\":\"kafka-key\"}}"},
        {"dedup id\nformat extjson\ndrop_nulls",
         "{\"id\":\"a\",\"v\":null,\"u\":{\"$undefined\":true},\"c\":{\"$code\":\"\",\"$scope\":{"
         "\"n\":"
         "null}}}",
         "upsert {\"id\":\"a\"} {\"id\":\"a\",\"u\":undefined,\"c\":code(,{\"n\":null})}"},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

static void test_types_of_values(void **state)
{
#define REFUSED(type, in)                                                                          \
    {                                                                                              \
        "dedup id\nformat extjson\ntypes v " type, "{\"id\":\"x\",\"v\":" in "}",                  \
            "type_conversion"                                                                      \
    }
#define IS(type, in, out)                                                                          \
    {                                                                                              \
        "dedup id\nformat extjson\ntypes v " type, "{\"id\":\"x\",\"v\":" in "}",                  \
            "upsert {\"id\":\"x\"} {\"id\":\"x\",\"v\":" out "}"                                   \
    }
    static const struct fixture_row rows[] = {
        IS("date", "{\"$date\":{\"$numberLong\":\"5\"}}", "date(5)"),
        IS("date_s", "{\"$date\":{\"$numberLong\":\"5\"}}", "date(5)"),
        IS("date", "5", "date(5)"),
        IS("date", "{\"$numberLong\":\"5\"}", "date(5)"),
        IS("date", "\"1970-01-01T00:00:00.005Z\"", "date(5)"),
        IS("date_s", "1517966773.84", "date(1517966773840)"),
        IS("date_s", "{\"$numberDouble\":\"1517966773.84\"}", "date(1517966773840)"),
        IS("date_s", "{\"$numberInt\":\"5\"}", "date(5000)"),
        REFUSED("date", "{\"$numberDouble\":\"NaN\"}"),
        REFUSED("date_s", "{\"$numberDouble\":\"Infinity\"}"),
        REFUSED("date", "{\"$oid\":\"507f1f77bcf86cd799439011\"}"),
        IS("decimal", "1.50", "dec(1.50)"),
        IS("decimal", "5", "dec(5)"),
        IS("decimal", "{\"$numberLong\":\"9007199254740993\"}", "dec(9007199254740993)"),
        IS("decimal", "{\"$numberDecimal\":\"1.50\"}", "dec(1.50)"),
        IS("decimal", "{\"$numberDouble\":\"5.0\"}", "dec(5)"),
        REFUSED("decimal", "{\"$numberDouble\":\"0.1\"}"),
        IS("long", "{\"$numberInt\":\"5\"}", "5"),
        IS("long", "5", "5"),
        IS("long", "{\"$numberDouble\":\"5.0\"}", "5"),
        IS("long", "{\"$numberDecimal\":\"5.00\"}", "5"),
        REFUSED("long", "{\"$numberDecimal\":\"5.5\"}"),
        REFUSED("long", "{\"$numberDecimal\":\"1E+19\"}"),
        IS("double", "{\"$numberInt\":\"5\"}", "f5"),
        IS("double", "{\"$numberDouble\":\"NaN\"}", "fnan"),
        REFUSED("double", "{\"$numberDecimal\":\"5.5\"}"),
        REFUSED("double", "{\"$numberLong\":\"9007199254740993\"}"),
        IS("objectid", "{\"$oid\":\"507f1f77bcf86cd799439011\"}", "oid(507f1f77bcf86cd799439011)"),
        IS("objectid", "\"507f1f77bcf86cd799439011\"", "oid(507f1f77bcf86cd799439011)"),
        REFUSED("objectid", "{\"$symbol\":\"507f1f77bcf86cd799439011\"}"),
        IS("uuid", "{\"$uuid\":\"00112233-4455-6677-8899-aabbccddeeff\"}",
           "bin4(00112233445566778899aabbccddeeff)"),
        REFUSED("uuid", "{\"$binary\":{\"base64\":\"AA==\",\"subType\":\"4\"}}"),
        IS("binary", "{\"$binary\":{\"base64\":\"AA==\",\"subType\":\"80\"}}", "bin128(00)"),
        IS("binary", "\"AA==\"", "bin0(00)"),
        IS("date", "null", "null"),
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

/* 100 levels with the scope of code, which are documents too. */
static void test_levels_of_a_scope(void **state)
{
    (void)state;
    for (int levels = 99; levels <= 103; levels++) {
        struct buf b = {0};

        buf_add_text(&b, "{\"id\":\"x\",\"a\":[{\"$code\":\"\",\"$scope\":{\"s\":");
        for (int i = 3; i < levels; i++)
            buf_add_text(&b, "[");
        for (int i = 3; i < levels; i++)
            buf_add_text(&b, "]");
        buf_add_text(&b, "}}]}");
        char *got = fixture_run("dedup id\nformat extjson", b.data, b.len, false);

        assert_int_equal(strncmp(got, levels <= 100 ? "upsert" : "too_deep", 6), 0);
        mem_free(got);
        buf_clear(&b);
    }
}

/* H-016 with format = "extjson". */
static void test_h016(void **state)
{
#define LINE(id, rest) "{\"event_id\":\"" id "\"," rest "}"
    static const struct fixture_row rows[] = {
        {"dedup event_id\nformat extjson", LINE("x1", "\"d\":{\"$date\":\"2020-01-01T00:00:00Z\"}"),
         "upsert {\"event_id\":\"x1\"} {\"event_id\":\"x1\",\"d\":date(1577836800000)}"},
        {"dedup event_id\nformat extjson", LINE("x3", "\"filter\":{\"$type\":\"00\"}"), BAD},
        {"dedup event_id\nformat extjson", LINE("x4", "\"filter\":{\"$options\":\"i\"}"), BAD},
        {"dedup event_id\nformat extjson", LINE("x5", "\"u\":{\"$undefined\":true}"),
         "upsert {\"event_id\":\"x5\"} {\"event_id\":\"x5\",\"u\":undefined}"},
        {"dedup event_id\nformat extjson", LINE("x8", "\"o\":{\"$oid\":\"zz\"}"), BAD},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers),
        cmocka_unit_test(test_other_types),
        cmocka_unit_test(test_names_that_are_kept),
        cmocka_unit_test(test_the_error_says_where),
        cmocka_unit_test(test_the_steps_behind),
        cmocka_unit_test(test_types_of_values),
        cmocka_unit_test(test_levels_of_a_scope),
        cmocka_unit_test(test_h016),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
