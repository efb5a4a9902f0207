/*
 * Each type with what it takes and what it refuses: the table of docs/payloads.md, in the same
 * order.
 */
#include "unit/mapping_fixture.h"

#include "core/types.h"

/* The value of v, converted: the expected BSON as the fixture shows it, or NULL for
 * type_conversion. */
struct row {
    const char *type, *json, *expected;
};

static void check(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *spec = mem_printf("dedup id\ntypes a.v %s", rows[i].type);
        char *value = mem_printf("{\"id\":1,\"a\":{\"w\":[1,\"x\\\"}\"],\"v\":%s}}", rows[i].json);
        char *expected =
            rows[i].expected == NULL
                ? mem_text("type_conversion")
                : mem_printf("upsert {\"id\":1} {\"id\":1,\"a\":{\"w\":[1,\"x\\\"}\"],\"v\":%s}}",
                             rows[i].expected);
        char *got = fixture_run(spec, value, strlen(value), false);

        if (strcmp(got, expected) != 0)
            fail_msg("row %zu: %s of %s\n  got      %s\n  expected %s", i, rows[i].type,
                     rows[i].json, got, expected);
        mem_free(spec);
        mem_free(value);
        mem_free(expected);
        mem_free(got);
    }
}
#define CHECK(rows) check((rows), sizeof(rows) / sizeof((rows)[0]))

static void test_date_from_text(void **state)
{
    static const struct row rows[] = {
        {"date", "\"1970-01-01T00:00:00Z\"", "date(0)"},
        {"date", "\"1970-01-01t00:00:00z\"", "date(0)"},
        {"date", "\"1970-01-01 00:00:00Z\"", "date(0)"},
        {"date", "\"2026-01-02T03:04:05.678Z\"", "date(1767323045678)"},
        {"date", "\"2026-01-02T03:04:05.6Z\"", "date(1767323045600)"},
        {"date", "\"2026-01-02T03:04:05.67891234567890123456789Z\"",
         "date(1767323045678)"}, /* cut, not rounded */
        {"date", "\"2026-01-02T03:04:05.9999Z\"", "date(1767323045999)"},
        {"date", "\"2026-01-02T03:04:05+01:00\"", "date(1767319445000)"},
        {"date", "\"2026-01-02T03:04:05-23:59\"", "date(1767409385000)"},
        {"date", "\"2026-01-02T03:04:05-00:00\"",
         "date(1767323045000)"}, /* legal: offset unknown */
        {"date", "\"1937-01-01T12:00:27.87+00:20\"",
         "date(-1041337172130)"}, /* RFC 3339 section 5.8 */
        {"date", "\"1969-12-31T23:59:59.999Z\"", "date(-1)"},
        {"date", "\"0000-01-01T00:00:00Z\"", "date(-62167219200000)"},
        {"date", "\"9999-12-31T23:59:59.999Z\"", "date(253402300799999)"},
        {"date", "\"2000-02-29T00:00:00Z\"", "date(951782400000)"},
        {"date", "\"2024-02-29T00:00:00Z\"", "date(1709164800000)"},
        {"date", "\"1900-02-29T00:00:00Z\"", NULL},
        {"date", "\"2023-02-29T00:00:00Z\"", NULL},
        /* A leap second is the next moment; only the last minute of a UTC day has one. */
        {"date", "\"1990-12-31T23:59:60Z\"", "date(662688000000)"},
        {"date", "\"1990-12-31T15:59:60-08:00\"", "date(662688000000)"},
        {"date", "\"1990-12-31T23:59:60.9Z\"", "date(662688000000)"},
        {"date", "\"1990-12-31T23:58:60Z\"", NULL},
        {"date", "\"1990-12-31T15:59:60Z\"", NULL},
        {"date", "\"1990-12-31T23:59:61Z\"", NULL},
        {"date", "\"2016-12-31T23:59:60Z\"", "date(1483228800000)"},
        {"date", "\"2017-01-01T08:59:60+09:00\"", "date(1483228800000)"},
        {"date", "\"2024-02-29T23:59:60Z\"", "date(1709251200000)"}, /* the end of any month */
        {"date", "\"2024-02-28T23:59:60Z\"", NULL},
        {"date", "\"2026-01-02T23:59:60Z\"", NULL},
        {"date", "\"2017-01-01T23:59:60+00:01\"", NULL},
        {"date", "\"0000-01-01T00:00:00+23:59\"", "date(-62167305540000)"},
        {"date", "\"9999-12-31T23:59:59.999-23:59\"", "date(253402387139999)"},
        {"date", "\"1969-12-31T23:59:59.9999Z\"", "date(-1)"}, /* towards the past */
        {"date", "\"2026-01-02T03:04:05,678Z\"", NULL},        /* ISO 8601 would take these */
        {"date", "\"20260102T030405Z\"", NULL},
        {"date", "\"2026-W01-5T03:04:05Z\"", NULL},
        {"date", "\"+2026-01-02T03:04:05Z\"", NULL},
        {"date", "\"12026-01-02T03:04:05Z\"", NULL},
        {"date", "\"2026-01-02T03:04:05UTC\"", NULL},
        {"date", "\"2026-01-02T03:04:05+1:00\"", NULL},
        {"date", "\"2026-01-02T03:04:05+01\"", NULL},
        {"date", "\"2026-01-02T03:04:05+01:60\"", NULL},
        {"date", "\"2026-01-02_03:04:05Z\"", NULL},
        {"date", "\"2026-01-02\"", NULL},
        {"date", "\"2026-01-02T03:04Z\"", NULL},
        {"date", "\"2026-01-02T03:04:05\"", NULL}, /* no offset: nobody knows when that was */
        {"date", "\"2026-01-02T03:04:05.Z\"", NULL},
        {"date", "\"2026-01-02T24:00:00Z\"", NULL},
        {"date", "\"2026-01-02T03:60:05Z\"", NULL},
        {"date", "\"2026-13-02T03:04:05Z\"", NULL},
        {"date", "\"2026-00-02T03:04:05Z\"", NULL},
        {"date", "\"2026-01-32T03:04:05Z\"", NULL},
        {"date", "\"2026-01-00T03:04:05Z\"", NULL},
        {"date", "\"2026-01-02T03:04:05+24:00\"", NULL},
        {"date", "\"2026-01-02T03:04:05+0100\"", NULL},
        {"date", "\"2026-01-02T03:04:05Z \"", NULL},
        {"date", "\" 2026-01-02T03:04:05Z\"", NULL},
        {"date", "\"26-01-02T03:04:05Z\"", NULL},
        {"date", "\"2026-1-2T03:04:05Z\"", NULL},
        {"date", "\"2026-01-02T03:04:05Z\\u0000\"", NULL},
        {"date", "\"\"", NULL},
        {"date", "true", NULL},
        {"date", "{\"$date\":0}", NULL},
        {"date", "[0]", NULL},
    };

    (void)state;
    CHECK(rows);
}

static void test_date_from_numbers(void **state)
{
    static const struct row rows[] = {
        {"date", "1517966773840", "date(1517966773840)"},
        {"date", "1517966773840.0", "date(1517966773840)"},
        {"date", "1517966773840.5", NULL},
        {"date", "-1", "date(-1)"},
        {"date_ms", "1517966773840", "date(1517966773840)"},
        {"date_ms", "\"2026-01-02T03:04:05Z\"", NULL},
        {"date_ms", "9223372036854775807", "date(9223372036854775807)"},
        {"date_s", "1517966773", "date(1517966773000)"},
        {"date_s", "1517966773.84", "date(1517966773840)"},
        {"date_s", "1517966773.8409999999999999999", "date(1517966773840)"}, /* cut */
        {"date_s", "1517966773.841", "date(1517966773841)"},
        {"date_s", "1.517966773841e9", "date(1517966773841)"},
        {"date_s", "0.0009", "date(0)"},
        {"date_s", "-0.0009", "date(-1)"}, /* towards the past */
        {"date_s", "-0.0", "date(0)"},
        {"date_s", "9007199254740993.999", "date(9007199254740993999)"}, /* no double has these */
        {"date_s", "9223372036854775.807", "date(9223372036854775807)"},
        {"date_s", "9223372036854775.808", NULL},
        {"date_s", "-9223372036854775.808", "date(-9223372036854775808)"},
        {"date_s", "-9223372036854775.8081", NULL},
        {"date_s", "9223372036854775", "date(9223372036854775000)"},
        {"date_s", "9223372036854776", NULL},
        {"date_s", "0.12345678901234567890123456789012345", NULL}, /* 35 digits */
        {"date_s", "1e-300", "date(0)"},
        {"date_s", "-1e-300", "date(-1)"},
        {"date_s", "-1.5", "date(-1500)"},
        {"date_s", "9223372036854775807", NULL},
        {"date_s", "1e300", NULL},
        {"date_s", "\"1517966773\"", NULL},
        {"date_us", "1517966773840999", "date(1517966773840)"},
        {"date_us", "-1", "date(-1)"}, /* towards the past, as everything else */
        {"date_us", "-1000", "date(-1)"},
        {"date_us", "1.5", NULL},
        {"date_us", "1.5e3", "date(1)"},
        {"date_us", "9223372036854775807", "date(9223372036854775)"},
        {"date_us", "-9223372036854775808", "date(-9223372036854776)"},
        {"date_ms", "-9223372036854775808", "date(-9223372036854775808)"},
        {"date_ms", "1e3", "date(1000)"},
        {"date_ms", "9007199254740992.0", NULL}, /* a double that stands for two integers */
        {"date_ms", "1e300", NULL},
        {"date_ms", "true", NULL},
        {"date_us", "\"1\"", NULL},
    };

    (void)state;
    CHECK(rows);
}

static void test_objectid_and_uuid(void **state)
{
    static const struct row rows[] = {
        {"objectid", "\"507f1f77bcf86cd799439011\"", "oid(507f1f77bcf86cd799439011)"},
        {"objectid", "\"507F1F77BCF86CD799439011\"", "oid(507f1f77bcf86cd799439011)"},
        {"objectid", "\"507f1f77bcf86cd79943901\"", NULL},
        {"objectid", "\"507f1f77bcf86cd7994390111\"", NULL},
        {"objectid", "\"507f1f77bcf86cd79943901g\"", NULL},
        {"objectid", "5", NULL},
        {"uuid", "\"00112233-4455-6677-8899-aabbccddeeff\"",
         "bin4(00112233445566778899aabbccddeeff)"},
        {"uuid", "\"00112233-4455-6677-8899-AABBCCDDEEFF\"",
         "bin4(00112233445566778899aabbccddeeff)"},
        {"uuid", "\"00112233445566778899aabbccddeeff\"", NULL},
        {"uuid", "\"{00112233-4455-6677-8899-aabbccddeeff}\"", NULL},
        {"uuid", "\"00112233-4455-6677-8899-aabbccddeef-\"", NULL},
        {"uuid", "\"001122334-455-6677-8899-aabbccddeeff\"", NULL},
        {"uuid", "7", NULL},
    };

    (void)state;
    CHECK(rows);
}

/* Digit by digit what the JSON text says. */
static void test_decimal_is_exact(void **state)
{
    static const struct row rows[] = {
        {"decimal", "1", "dec(1)"},
        {"decimal", "-0", "dec(-0)"},
        {"decimal", "-0.0", "dec(-0.0)"},
        {"decimal", "0e-3", "dec(0.000)"},
        {"decimal", "-9223372036854775808", "dec(-9223372036854775808)"},
        {"decimal", "0.1", "dec(0.1)"},
        {"decimal", "1.50", "dec(1.50)"},
        {"decimal", "123456789012345678901234567890.5", "dec(123456789012345678901234567890.5)"},
        {"decimal", "0.3333333333333333333333333333333333",
         "dec(0.3333333333333333333333333333333333)"},
        {"decimal", "-2.5e-3", "dec(-0.0025)"},
        {"decimal", "1E+3", "dec(1E+3)"},
        {"decimal", "9223372036854775807", "dec(9223372036854775807)"},
        {"decimal", "\"99999999999999999999\"", "dec(99999999999999999999)"},
        {"decimal", "\"19.99\"", "dec(19.99)"},
        {"decimal", "\"-0\"", "dec(-0)"},
        {"decimal", "\"12345678901234567890123456789012345\"", NULL}, /* 35 digits */
        {"decimal", "0.33333333333333333333333333333333333", NULL},
        {"decimal", "\"NaN\"", NULL},
        {"decimal", "\"Infinity\"", NULL},
        {"decimal", "\"-Infinity\"", NULL},
        {"decimal", "\"+1\"", NULL},
        {"decimal", "\"1,5\"", NULL},
        {"decimal", "\"1e99999\"", NULL},
        {"decimal", "\"\"", NULL},
        {"decimal", "\"-\"", NULL},
        {"decimal", "\"1 \"", NULL},
        {"decimal", "\"1\\u0000\"", NULL},
        {"decimal", "true", NULL},
    };

    (void)state;
    CHECK(rows);
}

static void test_decimal_takes_json_numbers_only(void **state)
{
    static const struct row rows[] = {
        {"decimal", "\"0\"", "dec(0)"},
        {"decimal", "\"-0.50\"", "dec(-0.50)"},
        {"decimal", "\"1.5E5\"", "dec(1.5E+5)"},
        {"decimal", "\"1e-07\"", "dec(1E-7)"},
        {"decimal", "\"01\"", NULL},
        {"decimal", "\"-01\"", NULL},
        {"decimal", "\"00.5\"", NULL},
        {"decimal", "\"1.\"", NULL},
        {"decimal", "\".5\"", NULL},
        {"decimal", "\"-.5\"", NULL},
        {"decimal", "\"1.e5\"", NULL},
        {"decimal", "\"1e\"", NULL},
        {"decimal", "\"1e+\"", NULL},
        {"decimal", "\"1e5.0\"", NULL},
        {"decimal", "\"1e5e5\"", NULL},
        {"decimal", "\"1.5.5\"", NULL},
        {"decimal", "\"--1\"", NULL},
        {"decimal", "\"e5\"", NULL},
        {"decimal", "\"1e5\\u0000\"", NULL},
    };

    (void)state;
    CHECK(rows);
}

/* libbson counts exponents modulo 2^32. */
static void test_decimal_exponents_are_bounded(void **state)
{
    static const struct row rows[] = {
        {"decimal", "\"1e6111\"", "dec(1E+6111)"},
        {"decimal", "\"1e-6176\"", "dec(1E-6176)"},
        {"decimal", "\"1e0000000000000000000007\"", "dec(1E+7)"},
        {"decimal", "\"1e-00000000000000000000\"", "dec(1)"},
        {"decimal", "\"1e6145\"", NULL},
        {"decimal", "\"1e-6177\"", NULL},
        {"decimal", "\"1e100000\"", NULL},
        {"decimal", "\"1e4294967297\"", NULL},
        {"decimal", "\"1e-4294967296\"", NULL},
        {"decimal", "1e-4294967296", NULL}, /* a number: to jansson an underflow */
        {"decimal", "\"1e4294967296\"", NULL},
        {"decimal", "\"1e99999999999999999999\"", NULL},
        {"decimal", "\"1e-99999999999999999999\"", NULL},
        {"decimal", "\"0e4294967297\"", NULL},
    };

    (void)state;
    CHECK(rows);
}

/* Only zeros may go: what needs more than 34 digits is refused, never rounded. */
static void test_decimal_is_never_rounded(void **state)
{
    static const struct row rows[] = {
        {"decimal", "\"1234567890123456789012345678901234\"",
         "dec(1234567890123456789012345678901234)"},
        {"decimal", "\"1234567890123456789012345678901234000\"",
         "dec(1.234567890123456789012345678901234E+36)"},
        {"decimal", "\"0.12345678901234567890123456789012340000\"",
         "dec(0.1234567890123456789012345678901234)"},
        {"decimal", "\"1234567890123456789012345678901234.5\"", NULL},
        {"decimal", "\"1234567890123456789012345678901234.00000000001\"", NULL},
        {"decimal", "\"100000000000000000000000000000000000000000000000001\"", NULL},
        {"decimal", "\"1.00000000000000000000000000000000000000000000000001\"", NULL},
        {"decimal", "\"99999999999999999999999999999999999\"", NULL},
        {"decimal", "0.000000900090000000000000000000000000000000000009000000", NULL},
        {"decimal", "\"12e-6177\"", NULL}, /* the last digit lies below the smallest */
        {"decimal", "\"10e-6177\"", "dec(1E-6176)"},
    };

    (void)state;
    CHECK(rows);
}

/* The number's text is found by counting members, past escapes, brackets in strings and white
 * space. */
static void test_decimal_is_found_in_the_text(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id\ntypes price decimal",
         "{ \"a\\\"}\" : [ {\"price\": 1.1}, \"]\\\\\" ] , \"id\":\"x\",\n\"pr\\u0069ce\" : 2.20 }",
         "upsert {\"id\":\"x\"} "
         "{\"a\\\"}\":[{\"price\":f1.1000000000000001},\"]\\\\\"],\"id\":\"x\",\"price\":dec(2.20)"
         "}"},
        {"dedup id\ntypes a.b.c decimal",
         "{\"id\":1,\"x\":{},\"y\":[],\"a\":{\"q\":1e5,\"b\":{\"z\":null,\"c\":-7.70}}}",
         "upsert {\"id\":1} "
         "{\"id\":1,\"x\":{},\"y\":[],\"a\":{\"q\":f100000,\"b\":{\"z\":null,\"c\":dec(-7.70)}}}"},
        {"dedup id\ntypes id decimal", "{\"id\":1.50}",
         "upsert {\"id\":dec(1.5)} {\"id\":dec(1.50)}"},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

static void test_long_and_double(void **state)
{
    static const struct row rows[] = {
        {"long", "5", "5"},
        {"long", "5.0", "5"},
        {"long", "\"5\"", "5"},
        {"long", "\"-9223372036854775808\"", "-9223372036854775808"},
        {"long", "\"9223372036854775808\"", NULL},
        {"long", "\"5.0\"", "5"},
        {"long", "\"-0\"", "0"},
        {"long", "-9007199254740991.0", "-9007199254740991"},
        {"long", "9007199254740992.0", NULL},
        {"long", "\"5e0\"", "5"},
        {"long", "5.5", NULL},
        {"long", "\"50e-1\"", "5"},
        {"long", "\"5.00000000000000000001\"", NULL}, /* its double is 5 */
        {"long", "\"1e-400\"", NULL},
        {"long", "1e16", NULL}, /* above 2^53 a double is no exact integer any more */
        {"long", "\" 5\"", NULL},
        {"long", "\"5 \"", NULL},
        {"long", "\"05\"", NULL},
        {"long", "\"0x5\"", NULL},
        {"long", "\"\"", NULL},
        {"long", "\"[5]\"", NULL},
        {"long", "false", NULL},
        {"double", "5", "f5"},
        {"double", "0.1", "f0.10000000000000001"},
        {"double", "\"0.1\"", "f0.10000000000000001"},
        {"double", "\"-1e3\"", "f-1000"},
        {"double", "9007199254740992", "f9007199254740992"},
        {"double", "9007199254740993", NULL}, /* would become another number */
        {"double", "9223372036854775807", NULL},
        {"double", "-9223372036854775808", "f-9.2233720368547758e+18"},
        {"double", "1e-400", "f0"}, /* an underflow, as without a type */
        {"double", "-0.0", "f-0"},
        {"double", "\"1e999\"", NULL},
        {"double", "\"nan\"", NULL},
        {"double", "\"-\"", NULL},
        {"double", "[]", NULL},
    };

    (void)state;
    CHECK(rows);
}

static void test_binary(void **state)
{
    static const struct row rows[] = {
        {"binary", "\"\"", "bin0()"},
        {"binary", "\"AA==\"", "bin0(00)"},
        {"binary", "\"AAE=\"", "bin0(0001)"},
        {"binary", "\"AAEC\"", "bin0(000102)"},
        {"binary", "\"+/+/\"", "bin0(fbffbf)"},
        {"binary", "\"-_-_\"", NULL},
        {"binary", "\"AA\"", NULL},
        {"binary", "\"AA=A\"", NULL},
        {"binary", "\"A===\"", NULL},
        {"binary", "\"====\"", NULL},
        {"binary", "\"AB==\"", NULL}, /* bits behind the end */
        {"binary", "\"AAEC\\n\"", NULL},
        {"binary", "5", NULL},
        {"binary", "\" AAEC\"", NULL},
        {"binary", "\"AAEC\\u0000\"", NULL},
        {"binary_url", "\"\"", "bin0()"},
        {"binary_url", "\"-_-_\"", "bin0(fbffbf)"},
        {"binary_url", "\"AA\"", "bin0(00)"},
        {"binary_url", "\"AA==\"", "bin0(00)"},
        {"binary_url", "\"AAE\"", "bin0(0001)"},
        {"binary_url", "\"AAE=\"", "bin0(0001)"},
        {"binary_url", "\"+/+/\"", NULL},
        {"binary_url", "\"A\"", NULL},
        {"binary_url", "\"AAECA\"", NULL},
        {"binary_url", "\"AB\"", NULL}, /* bits behind the end */
        {"binary_url", "\"AA=\"", NULL},
        {"binary_url", "\"AA===\"", NULL},
        {"binary_url", "5", NULL},
    };

    (void)state;
    CHECK(rows);
}

static void test_null_missing_and_arrays(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id\ntypes v date", "{\"id\":1,\"v\":null}",
         "upsert {\"id\":1} {\"id\":1,\"v\":null}"},
        {"dedup id\ntypes v date", "{\"id\":1}", "upsert {\"id\":1} {\"id\":1}"},
        {"dedup id\ntypes a.v date", "{\"id\":1,\"a\":7}", "upsert {\"id\":1} {\"id\":1,\"a\":7}"},
        {"dedup id\ntypes a.v date", "{\"id\":1,\"a\":[{\"v\":1}]}", "type_conversion"},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

static void test_the_error_names_the_path_and_not_the_value(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id\ntypes a.v date", "{\"id\":1,\"a\":{\"v\":\"secret\"}}",
         "type_conversion: \"a.v\" must be an RFC 3339 date and time, or epoch milliseconds as a "
         "number"},
        {"dedup id\ntypes a.v date", "{\"id\":1,\"a\":[]}",
         "type_conversion: types: \"a.v\" runs through an array"},
    };

    (void)state;
    FIXTURE_CHECK_TEXTS(rows);
}

/* Each name of types_names() is a type, and no other is. */
static void test_names(void **state)
{
    char *all = mem_text(types_names()), *rest = all, *one;
    enum value_type type;
    int n = 0;

    (void)state;
    while ((one = strsep(&rest, ",")) != NULL) {
        assert_true(types_parse(one + (one[0] == ' '), &type));
        assert_int_equal(type, n++);
    }
    assert_int_equal(n, TYPE_BINARY_URL + 1);
    assert_false(types_parse("int", &type));
    mem_free(all);
}

/* docs/payloads.md has a row for each type. */
static void test_the_documentation_has_every_type(void **state)
{
    FILE *in = fopen(TEST_DATA "/../../docs/payloads.md", "r");
    char line[4000], name[64];
    enum value_type type;
    int n = 0;

    (void)state;
    assert_non_null(in);
    while (fgets(line, sizeof(line), in) != NULL)
        n += sscanf(line, "| `%63[a-z_]` |", name) == 1 && types_parse(name, &type) &&
             (int)type == n;
    fclose(in);
    assert_int_equal(n, TYPE_BINARY_URL + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_date_from_text),
        cmocka_unit_test(test_date_from_numbers),
        cmocka_unit_test(test_objectid_and_uuid),
        cmocka_unit_test(test_decimal_is_exact),
        cmocka_unit_test(test_decimal_takes_json_numbers_only),
        cmocka_unit_test(test_decimal_exponents_are_bounded),
        cmocka_unit_test(test_decimal_is_never_rounded),
        cmocka_unit_test(test_decimal_is_found_in_the_text),
        cmocka_unit_test(test_long_and_double),
        cmocka_unit_test(test_binary),
        cmocka_unit_test(test_null_missing_and_arrays),
        cmocka_unit_test(test_the_error_names_the_path_and_not_the_value),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_the_documentation_has_every_type),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
