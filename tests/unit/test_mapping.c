/*
 * From a record to a write: what is refused, what is stored, in which lane it goes.
 */
#include "unit/mapping_fixture.h"

#include <jansson.h>

#include "core/json_bson.h"
#include "core/payload.h"

/* --- what is JSON --- */

static char *run_bytes(const char *value, size_t len)
{
    return fixture_run("dedup id", value, len, true);
}

static void test_what_is_refused_and_why(void **state)
{
    static const struct {
        const char *value;
        size_t len;
        const char *expected;
    } rows[] = {
#define ROW(text, expected) {(text), sizeof(text) - 1, (expected)}
        ROW("", "empty_value: the value has no bytes"),
        ROW(" \n", "json_syntax: the JSON text ends too early, at byte 2"),
        ROW("{\"id\":1", "json_syntax: the JSON text ends too early, at byte 7"),
        ROW("{\"id\":1,}", "json_syntax: not JSON at byte 8: a name in quotes must stand here"),
        ROW("{'id':1}", "json_syntax: not JSON at byte 1: a name in quotes must stand here"),
        ROW("{\"id\":01}", "json_syntax: not JSON at byte 6: a number with a zero in front"),
        ROW("{\"id\":1\0}", "json_syntax: a NUL that is not escaped, at byte 7"),
        ROW("{\"id\":1,\"x\":null\0}", "json_syntax: a NUL that is not escaped, at byte 16"),
        ROW("{\"id\":+1}", "json_syntax: not JSON at byte 6: no value begins like this"),
        ROW("{\"id\":.5}", "json_syntax: not JSON at byte 6: no value begins like this"),
        ROW("{\"id\":1.}", "json_syntax: not JSON at byte 8: no digit behind the decimal point"),
        ROW("{\"id\":NaN}", "json_syntax: not JSON at byte 6: a word that JSON does not know"),
        ROW("{\"id\":Infinity}", "json_syntax: not JSON at byte 6: a word that JSON does not know"),
        ROW("{\"id\":1} x", "json_syntax: something follows the JSON value, at byte 9"),
        ROW("{\"id\":1}{\"id\":2}", "json_syntax: something follows the JSON value, at byte 8"),
        ROW("{\"id\":1}\0", "json_syntax: something follows the JSON value, at byte 8"),
        ROW("{\"id\":\"a\nb\"}",
            "json_syntax: not JSON at byte 8: a control character in a text; it must be escaped"),
        ROW("{\"id\":\"\\ud800\"}", "json_syntax: not JSON at byte 7: half of a surrogate pair"),
        ROW("{\"id\":\"\\udc00\"}", "json_syntax: not JSON at byte 7: half of a surrogate pair"),
        ROW("{\"id\":\"\\x\"}", "json_syntax: not JSON at byte 7: an unknown escape"),
        ROW("// c\n{\"id\":1}", "json_syntax: not JSON at byte 0: no value begins like this"),
        ROW("\xef\xbb\xbf{\"id\":1}",
            "json_syntax: the value begins with a byte order mark (BOM), which JSON forbids"),
        ROW("[{\"id\":1}]", "not_an_object: a JSON array, not an object"),
        ROW("null", "not_an_object: a bare JSON value, not an object"),
        ROW("5", "not_an_object: a bare JSON value, not an object"),
        ROW("\"x\"", "not_an_object: a bare JSON value, not an object"),
        ROW("{\"id\":\"\xff\"}", "invalid_utf8: not UTF-8 at byte 7"),
        ROW("{\"\xc0\xaf\":1}", "invalid_utf8: not UTF-8 at byte 2"),
        ROW("{\"id\":\"\xed\xa0\x80\"}", "invalid_utf8: not UTF-8 at byte 7"),
        ROW("{\"id\":1,\"id\":1}", "duplicate_name: a name occurs twice in one object, at byte 8"),
        ROW("{\"id\":1,\"a\":{\"b\":1,\"\\u0062\":2}}",
            "duplicate_name: a name occurs twice in one object, at byte 19"),
        ROW("{\"id\":9223372036854775808}",
            "number_range: a number outside int64 or double, at byte 6"),
        ROW("{\"id\":-9223372036854775809}",
            "number_range: a number outside int64 or double, at byte 6"),
        ROW("{\"id\":1,\"v\":-1e400}",
            "number_range: a number outside int64 or double, at byte 12"),
        ROW("{\"a\\u0000b\":1}", "unsafe_name: a name with a NUL in it, at byte 1"),
        ROW("\x00\x00\x00\x00\x07{\"id\":1}", "schema_registry_framing: the value begins with byte "
                                              "0x00 and a schema id: a schema registry serializer "
                                              "wrote it"),
        ROW("\x00\x01",
            "json_syntax: not JSON at byte 0: no value begins like this"), /* too short for a schema
                                                                              id */
        ROW("\x1f\x8b\x08\x00", "compressed: the value is compressed with gzip"),
        ROW("\x28\xb5\x2f\xfd\x04", "compressed: the value is compressed with zstd"),
        ROW("\x04\x22\x4d\x18\x40", "compressed: the value is compressed with lz4"),
        ROW("\xff\x06\x00\x00sNaPpY", "compressed: the value is compressed with snappy"),
        ROW("\x82SNAPPY\x00\x00\x00\x00\x01",
            "compressed: the value is compressed with snappy (xerial)"),
#undef ROW
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        char *got = run_bytes(rows[i].value, rows[i].len);

        if (strcmp(got, rows[i].expected) != 0)
            fail_msg("row %zu: %s\n  got      %s\n  expected %s", i, rows[i].value, got,
                     rows[i].expected);
        mem_free(got);
    }
}

/* jansson checks payloads; keys and headers are checked by us. */
static void test_utf8(void **state)
{
    static const char *const good[] = {"",
                                       "a",
                                       "\xc2\x80",
                                       "\xdf\xbf",
                                       "\xe0\xa0\x80",
                                       "\xed\x9f\xbf",
                                       "\xee\x80\x80",
                                       "\xf0\x90\x80\x80",
                                       "\xf4\x8f\xbf\xbf"};
    static const char *const bad[] = {"\x80",
                                      "\xc2",
                                      "\xc1\xbf",
                                      "\xc2\xc2",
                                      "\xe0\x9f\xbf",
                                      "\xe1\x80",
                                      "\xed\xa0\x80",
                                      "\xed\xbf\xbf",
                                      "\xf0\x8f\xbf\xbf",
                                      "\xf4\x90\x80\x80",
                                      "\xf5\x80\x80\x80",
                                      "\xff"};

    (void)state;
    for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++)
        assert_true(payload_is_utf8(slice_text(good[i])));
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_false(payload_is_utf8(slice_text(bad[i])));
    assert_true(payload_is_utf8(slice_of("a\0b", 3)));
}

static void test_tombstones(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id", NULL, "skip"},
        {"dedup id\ntombstone_dlq", NULL, "tombstone"},
        {"dedup id", "", "empty_value"}, /* no tombstone */
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

static void test_values_stay_what_they_are(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id",
         " {\"id\":1,\"a\":[1,2.5,true,false,null,\"x\",[],{}],\"b\":{\"\":{\"$c\":1,\"d.e\":2}}}"
         "\r\n",
         "upsert {\"id\":1} "
         "{\"id\":1,\"a\":[1,f2.5,true,false,null,\"x\",[],{}],\"b\":{\"\":{\"$c\":1,\"d.e\":2}}}"},
        {"dedup id",
         "{\"id\":\"\xc3\xa9\\u00e9\\ud83d\\ude00\\u0000\",\"v\":-0,\"w\":-0.0,\"x\":1e-400,\"y\":"
         "9007199254740993}",
         "upsert {\"id\":\"\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\\u0000\"} "
         "{\"id\":\"\xc3\xa9\xc3\xa9\xf0\x9f\x98\x80\\u0000\",\"v\":0,\"w\":f-0,\"x\":f0,\"y\":"
         "9007199254740993}"},
        {"dedup id", "{\"id\":-9223372036854775808,\"v\":1.7976931348623157e308}",
         "upsert {\"id\":-9223372036854775808} "
         "{\"id\":-9223372036854775808,\"v\":f1.7976931348623157e+308}"},
        {"dedup id", "{\"id\":1,\"_id\":null}", "upsert {\"id\":1} {\"id\":1,\"_id\":null}"},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

/* --- identity --- */

static void test_dedup_values(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id", "{}", "dedup_missing: dedup key: \"id\" is missing"},
        {"dedup id", "{\"id\":null}", "dedup_null: dedup key: \"id\" is null"},
        {"dedup id", "{\"id\":\"\"}", "dedup_empty: dedup key: \"id\" is empty"},
        {"dedup id", "{\"id\":{}}", "dedup_not_scalar: dedup key: \"id\" is an object or an array"},
        {"dedup id", "{\"id\":[]}", "dedup_not_scalar: dedup key: \"id\" is an object or an array"},
        /* Their doubles are 1, 0 and 0. */
        {"dedup id", "{\"id\":1.00000000000000000001}",
         "dedup_not_scalar: dedup key: \"id\" is a number that is no exact integer"},
        {"dedup a.id", "{\"x\":[1.5],\"a\":{\"y\":{},\"id\":1e-400}}",
         "dedup_not_scalar: dedup key: \"a.id\" is a number that is no exact integer"},
        {"dedup id", "{\"id\":-1e-400}",
         "dedup_not_scalar: dedup key: \"id\" is a number that is no exact integer"},
        {"dedup id", "{\"id\":10e-1}", "upsert {\"id\":1} {\"id\":f1}"},
        {"dedup id", "{\"id\":1.000000000000000000000}", "upsert {\"id\":1} {\"id\":f1}"},
        {"dedup id", "{\"id\":0e-400}", "upsert {\"id\":0} {\"id\":f0}"},
        {"dedup id", "{\"id\":1.5}",
         "dedup_not_scalar: dedup key: \"id\" is a number that is no exact integer"},
        {"dedup id", "{\"id\":1e300}",
         "dedup_not_scalar: dedup key: \"id\" is a number that is no exact integer"},
        /* 2^53 as a real may have been 2^53 + 1 in the text */
        {"dedup id", "{\"id\":9007199254740992.0}",
         "dedup_not_scalar: dedup key: \"id\" is a number that is no exact integer"},
        {"dedup id", "{\"id\":9007199254740991.0}",
         "upsert {\"id\":9007199254740991} {\"id\":f9007199254740991}"},
        {"dedup id", "{\"id\":-1.0}", "upsert {\"id\":-1} {\"id\":f-1}"},
        {"dedup id", "{\"id\":0}", "upsert {\"id\":0} {\"id\":0}"},
        {"dedup id", "{\"id\":false}", "upsert {\"id\":false} {\"id\":false}"},
        {"dedup a.b.c", "{\"a\":{\"b\":{\"c\":7,\"d\":1}}}",
         "upsert {\"a.b.c\":7} {\"a\":{\"b\":{\"c\":7,\"d\":1}}}"},
        {"dedup a.b", "{\"a\":5}", "dedup_missing: dedup key: \"a.b\" is missing"},
        {"dedup a.b", "{\"a\":null}", "dedup_missing: dedup key: \"a.b\" is missing"},
        {"dedup a.b", "{\"a.b\":1}", "dedup_missing: dedup key: \"a.b\" is missing"},
        {"dedup a.b", "{\"a\":[{\"b\":1}]}",
         "dedup_not_scalar: dedup key: \"a.b\" runs through an array"},
        {"dedup a.0", "{\"a\":[1]}", "dedup_not_scalar: dedup key: \"a.0\" runs through an array"},
        /* a second part at fault */
        {"dedup id t", "{\"id\":1,\"t\":\"\"}", "dedup_empty: dedup key: \"t\" is empty"},
        {"dedup id t\ninto_id", "{\"id\":1,\"t\":{\"$gt\":1}}",
         "dedup_not_scalar: dedup key: \"t\" is an object or an array"},
    };

    (void)state;
    FIXTURE_CHECK_TEXTS(rows);
}

static void test_dedup_with_types(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id\ntypes id objectid", "{\"id\":\"507f1f77bcf86cd799439011\"}",
         "upsert {\"id\":oid(507f1f77bcf86cd799439011)} {\"id\":oid(507f1f77bcf86cd799439011)}"},
        {"dedup id\ninto_id\ntypes id objectid", "{\"id\":\"507f1f77bcf86cd799439011\"}",
         "upsert {\"_id\":oid(507f1f77bcf86cd799439011)} {\"id\":oid(507f1f77bcf86cd799439011)}"},
        {"dedup id\ntypes id date", "{\"id\":\"1970-01-01T00:00:00Z\"}",
         "upsert {\"id\":date(0)} {\"id\":date(0)}"},
        {"dedup id\ntypes id uuid", "{\"id\":\"00112233-4455-6677-8899-aabbccddeeff\"}",
         "upsert {\"id\":bin4(00112233445566778899aabbccddeeff)} "
         "{\"id\":bin4(00112233445566778899aabbccddeeff)}"},
        {"dedup id\ntypes id binary", "{\"id\":\"AAE=\"}",
         "upsert {\"id\":bin0(0001)} {\"id\":bin0(0001)}"},
        {"dedup id\ntypes id decimal", "{\"id\":\"1.10\"}",
         "upsert {\"id\":dec(1.1)} {\"id\":dec(1.10)}"},
        {"dedup id\ntypes id decimal", "{\"id\":1.00}", "upsert {\"id\":1} {\"id\":dec(1.00)}"},
        {"dedup id\ntypes id decimal", "{\"id\":\"-0.0\"}", "upsert {\"id\":0} {\"id\":dec(-0.0)}"},
        {"dedup id\ntypes id decimal", "{\"id\":\"9223372036854775807.0\"}",
         "upsert {\"id\":9223372036854775807} {\"id\":dec(9223372036854775807.0)}"},
        {"dedup id\ntypes id decimal", "{\"id\":\"9223372036854775808\"}",
         "upsert {\"id\":dec(9223372036854775808)} {\"id\":dec(9223372036854775808)}"},
        {"dedup id\ntypes id decimal", "{\"id\":\"-9223372036854775808\"}",
         "upsert {\"id\":-9223372036854775808} {\"id\":dec(-9223372036854775808)}"},
        {"dedup id t\ninto_id\ntypes id decimal", "{\"id\":\"1.50\",\"t\":\"x\"}",
         "upsert {\"_id\":{\"id\":dec(1.5),\"t\":\"x\"}} {\"id\":dec(1.50),\"t\":\"x\"}"},
        {"dedup id\ntypes id long", "{\"id\":\"7\"}", "upsert {\"id\":7} {\"id\":7}"},
        {"dedup id\ntypes id double", "{\"id\":\"7\"}", "upsert {\"id\":7} {\"id\":f7}"},
        {"dedup id\ntypes id double", "{\"id\":\"7.5\"}", "dedup_not_scalar"},
        {"dedup id\ntypes id date", "{\"id\":\"soon\"}", "type_conversion"},
        {"dedup id\ntypes id date", "{\"id\":null}", "dedup_null"},
        {"dedup id\ntypes id date", "{\"id\":\"\"}", "dedup_empty"},
        {"dedup id\ntypes id date", "{\"id\":{\"$date\":0}}", "dedup_not_scalar"},
        {"dedup id\ntypes id date", "{}", "dedup_missing"},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

static void test_dedup_from_the_record(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup @key\nfields k", "{\"a\":1}",
         "upsert {\"k\":\"kafka-key\"} {\"a\":1,\"k\":\"kafka-key\"}"},
        {"dedup @key\nfields m.k", "{\"m\":{\"x\":1}}",
         "upsert {\"m.k\":\"kafka-key\"} {\"m\":{\"x\":1,\"k\":\"kafka-key\"}}"},
        {"dedup @key\nfields m.k", "{\"m\":[]}", "unsafe_name"},
        {"dedup @key\nfields m.k", "{\"m\":5}", "unsafe_name"},
        {"dedup @key\nfields k", "{\"k\":\"other\"}", "unsafe_name"},
        {"dedup @key\nfields k", "{\"k\":{\"$gt\":\"\"}}", "unsafe_name"},
        {"dedup @key\nfields k", "{\"k\":\"kafka-key\"}",
         "upsert {\"k\":\"kafka-key\"} {\"k\":\"kafka-key\"}"},
        {"dedup @key\nfields k\ntypes k binary", "{\"k\":\"AAAA\"}", "unsafe_name"},
        /* the same text, but one of them is stored as a number */
        {"dedup a\nfields b\ntypes b long", "{\"a\":\"5\",\"b\":\"5\"}", "unsafe_name"},
        {"dedup a\nfields b\ntypes a long", "{\"a\":\"5\",\"b\":\"5\"}", "unsafe_name"},
        {"dedup a\nfields b", "{\"a\":\"5\",\"b\":\"5\"}",
         "upsert {\"b\":\"5\"} {\"a\":\"5\",\"b\":\"5\"}"},
        {"dedup @key\ninto_id", "{\"a\":1}", "upsert {\"_id\":\"kafka-key\"} {\"a\":1}"},
        {"dedup @header.h\ninto_id", "{}",
         "upsert {\"_id\":\"hv\"} {}"}, /* the last one of that name */
        {"dedup @header.no\ninto_id", "{}", "dedup_missing"},
        {"dedup @header.none\ninto_id", "{}", "dedup_missing"},
        {"dedup @header.empty\ninto_id", "{}", "dedup_empty"},
        {"dedup @header.bytes\ninto_id", "{}", "dedup_not_scalar"},
        {"dedup @offset\ninto_id", "{\"a\":1}",
         "upsert {\"_id\":{\"topic\":\"top\",\"partition\":3,\"offset\":42}} {\"a\":1}"},
        {"dedup @offset\nfields src", "{\"a\":1}",
         "upsert {\"src\":{\"topic\":\"top\",\"partition\":3,\"offset\":42}} "
         "{\"a\":1,\"src\":{\"topic\":\"top\",\"partition\":3,\"offset\":42}}"},
        {"dedup @topic @partition @timestamp id\ninto_id", "{\"id\":2}",
         "upsert "
         "{\"_id\":{\"topic\":\"top\",\"partition\":3,\"timestamp\":date(1700000000123),\"id\":2}} "
         "{\"id\":2}"},
        {"dedup @timestamp\nfields at", "{}",
         "upsert {\"at\":date(1700000000123)} {\"at\":date(1700000000123)}"},
        {"dedup a.b @header.h\ninto_id", "{\"a\":{\"b\":1}}",
         "upsert {\"_id\":{\"a_b\":1,\"header_h\":\"hv\"}} {\"a\":{\"b\":1}}"},
        {"dedup @key\nfields _id", "{\"a\":1}", "upsert {\"_id\":\"kafka-key\"} {\"a\":1}"},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

static void test_ids_of_the_payload(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id", "{\"id\":1,\"_id\":{\"a\":[{\"b\":1}]}}",
         "upsert {\"id\":1} {\"id\":1,\"_id\":{\"a\":[{\"b\":1}]}}"},
        {"dedup id", "{\"id\":1,\"_id\":[1]}", "unsafe_name"},
        {"dedup id", "{\"id\":1,\"_id\":{\"$a\":1}}", "unsafe_name"},
        {"dedup id", "{\"id\":1,\"_id\":{\"a\":[{\"$b\":1}]}}", "unsafe_name"},
        {"dedup _id\ninto_id", "{\"_id\":5,\"a\":1}", "upsert {\"_id\":5} {\"a\":1}"},
        {"dedup _id", "{\"_id\":5.0,\"a\":1}", "upsert {\"_id\":5} {\"a\":1}"},
        {"dedup id\ninto_id", "{\"id\":5,\"_id\":5}", "unsafe_name"},
        {"dedup _id id\ninto_id", "{\"_id\":5,\"id\":1}", "unsafe_name"},
        {"dedup _id id\ninto_id\nexclude _id", "{\"_id\":5,\"id\":1}",
         "upsert {\"_id\":{\"_id\":5,\"id\":1}} {\"id\":1}"},
        /* the insert path has no filter that brings _id */
        {"dedup id\ninto_id", "{\"id\":5,\"a.b\":1}",
         "insert {\"_id\":5} {\"id\":5,\"a.b\":1,\"_id\":5}"},
        {"dedup _id\ninto_id", "{\"_id\":5,\"$a\":1}", "insert {\"_id\":5} {\"$a\":1,\"_id\":5}"},
        {"dedup @offset\ninto_id", "{\"\":1}",
         "insert {\"_id\":{\"topic\":\"top\",\"partition\":3,\"offset\":42}} "
         "{\"\":1,\"_id\":{\"topic\":\"top\",\"partition\":3,\"offset\":42}}"},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

/* --- shape --- */

static void test_shape(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id\ninclude id a.b", "{\"id\":1,\"a\":{\"b\":2,\"c\":3},\"d\":4}",
         "upsert {\"id\":1} {\"id\":1,\"a\":{\"b\":2}}"},
        {"dedup id\ninclude id a.b a.c", "{\"id\":1,\"a\":{\"c\":3,\"b\":2}}",
         "upsert {\"id\":1} {\"id\":1,\"a\":{\"b\":2,\"c\":3}}"},
        {"dedup id\ninclude id a.b", "{\"id\":1,\"a\":[{\"b\":2}]}",
         "upsert {\"id\":1} {\"id\":1}"},
        /* the dedup field is in the document whatever include and exclude say */
        {"dedup id\ninclude a", "{\"id\":1,\"a\":2}", "upsert {\"id\":1} {\"a\":2,\"id\":1}"},
        {"dedup a.id\nexclude a", "{\"a\":{\"id\":1,\"x\":2},\"b\":3}",
         "upsert {\"a.id\":1} {\"b\":3,\"a\":{\"id\":1}}"},
        {"dedup a.id\nexclude a.id", "{\"a\":{\"id\":1,\"x\":2}}",
         "upsert {\"a.id\":1} {\"a\":{\"x\":2,\"id\":1}}"},
        {"dedup id\nexclude a.b c", "{\"id\":1,\"a\":{\"b\":2,\"c\":3},\"c\":4}",
         "upsert {\"id\":1} {\"id\":1,\"a\":{\"c\":3}}"},
        {"dedup id\nexclude a.b x.y", "{\"id\":1,\"a\":[{\"b\":2}]}",
         "upsert {\"id\":1} {\"id\":1,\"a\":[{\"b\":2}]}"},
        {"dedup id\nrename a b", "{\"id\":1,\"a\":2}", "upsert {\"id\":1} {\"id\":1,\"b\":2}"},
        {"dedup id\nrename a b", "{\"id\":1}", "upsert {\"id\":1} {\"id\":1}"},
        {"dedup id\nrename a.x m.n.o", "{\"id\":1,\"a\":{\"x\":2,\"y\":3}}",
         "upsert {\"id\":1} {\"id\":1,\"a\":{\"y\":3},\"m\":{\"n\":{\"o\":2}}}"},
        {"dedup id\nrename a b\nrename b a", "{\"id\":1,\"a\":2,\"b\":3}",
         "upsert {\"id\":1} {\"id\":1,\"b\":2,\"a\":3}"},
        {"dedup id\nrename a b", "{\"id\":1,\"a\":2,\"b\":3}", "unsafe_name"},
        {"dedup id\nrename a b.c", "{\"id\":1,\"a\":2,\"b\":3}", "unsafe_name"},
        {"dedup id\nexclude b\nrename a b", "{\"id\":1,\"a\":2,\"b\":3}",
         "upsert {\"id\":1} {\"id\":1,\"b\":2}"},
        /* dedup field where rename puts it */
        {"dedup id\nfields event\nrename id event", "{\"id\":1,\"a\":2}",
         "upsert {\"event\":1} {\"a\":2,\"event\":1}"},
        {"dedup id\nfields p.id\nunder p", "{\"id\":1,\"a\":2}",
         "upsert {\"p.id\":1} {\"p\":{\"id\":1,\"a\":2}}"},
        {"dedup id\nunder p", "{\"id\":1}", "upsert {\"id\":1} {\"p\":{\"id\":1},\"id\":1}"},
        {"dedup id\nunder p.q", "{\"id\":1}",
         "upsert {\"id\":1} {\"p\":{\"q\":{\"id\":1}},\"id\":1}"},
        {"dedup id\ninto_id\nunder p", "{\"id\":1,\"_id\":2,\"a.b\":3}",
         "upsert {\"_id\":1} {\"p\":{\"id\":1,\"_id\":2,\"a.b\":3}}"},
        /* types follow their value */
        {"dedup id\ntypes a.t date\nrename a.t at\nunder p\ninto_id",
         "{\"id\":1,\"a\":{\"t\":0,\"u\":0}}",
         "upsert {\"_id\":1} {\"p\":{\"id\":1,\"a\":{\"u\":0},\"at\":date(0)}}"},
        {"dedup id\ntypes id objectid\nfields p.id\nunder p",
         "{\"id\":\"507f1f77bcf86cd799439011\"}",
         "upsert {\"p.id\":oid(507f1f77bcf86cd799439011)} "
         "{\"p\":{\"id\":oid(507f1f77bcf86cd799439011)}}"},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

static void test_set_and_source_fields(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id\nset a {\"b\":[1,null]}\nset c \"x\"\nset d.e 5", "{\"id\":1}",
         "upsert {\"id\":1} {\"id\":1,\"a\":{\"b\":[1,null]},\"c\":\"x\",\"d\":{\"e\":5}}"},
        {"dedup id\nset d.e 5", "{\"id\":1,\"d\":{\"f\":6}}",
         "upsert {\"id\":1} {\"id\":1,\"d\":{\"f\":6,\"e\":5}}"},
        {"dedup id\nset a 5", "{\"id\":1,\"a\":6}", "unsafe_name"},
        {"dedup id\nset a 5\nexclude a", "{\"id\":1,\"a\":6}",
         "upsert {\"id\":1} {\"id\":1,\"a\":5}"},
        {"dedup id\nset id 5", "{\"id\":1}", "unsafe_name"},
        {"dedup id\nset _id 5", "{\"id\":1}", "upsert {\"id\":1} {\"id\":1,\"_id\":5}"},
        {"dedup id\ninto_id\nset _id 5", "{\"id\":1}", "unsafe_name"},
        {"dedup id\nset k @key\nset h @header.h\nset n @header.no\nset t @topic\nset p "
         "@partition\nset o @offset\n"
         "set s @timestamp",
         "{\"id\":1}",
         "upsert {\"id\":1} "
         "{\"id\":1,\"k\":\"kafka-key\",\"h\":\"hv\",\"t\":\"top\",\"p\":3,\"o\":42,"
         "\"s\":date(1700000000123)}"},
        {"dedup id\nset b @header.bytes\nset e @header.empty", "{\"id\":1}",
         "upsert {\"id\":1} {\"id\":1,\"b\":bin0(fffe),\"e\":\"\"}"},
        {"dedup id\nsource_fields _src", "{\"id\":1}",
         "upsert {\"id\":1} {\"id\":1,\"_src\":{\"topic\":\"top\",\"partition\":3,\"offset\":42,"
         "\"timestamp\":date(1700000000123),\"key\":\"kafka-key\"}}"},
        {"dedup id\nsource_fields _src", "{\"id\":1,\"_src\":1}", "unsafe_name"},
        {"dedup id\nunder p\nset q 1\nsource_fields p.s\ninto_id", "{\"id\":1,\"q\":2}",
         "upsert {\"_id\":1} "
         "{\"p\":{\"id\":1,\"q\":2,\"s\":{\"topic\":\"top\",\"partition\":3,\"offset\":42,"
         "\"timestamp\":date(1700000000123),\"key\":\"kafka-key\"}},\"q\":1}"},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

/* More conversions than fit on the stack. */
static void test_many_types(void **state)
{
    struct buf spec = {0}, value = {0}, expected = {0};

    (void)state;
    buf_add_text(&spec, "dedup id\n");
    buf_add_text(&value, "{\"id\":1");
    buf_add_text(&expected, "upsert {\"id\":1} {\"id\":1");
    for (int i = 0; i < 100; i++) {
        buf_printf(&spec, "types f%d date\n", i);
        buf_printf(&value, ",\"f%d\":%d", i, i);
        buf_printf(&expected, ",\"f%d\":date(%d)", i, i);
    }
    buf_add_text(&value, "}");
    buf_add_text(&expected, "}");
    char *got = fixture_run(spec.data, value.data, value.len, false);
    assert_string_equal(got, expected.data);
    mem_free(got);
    buf_clear(&spec);
    buf_clear(&value);
    buf_clear(&expected);
}

/* --- limits --- */

static char *nested(int levels, char open, char close, const char *member)
{
    struct buf b = {0};

    buf_add_text(&b, "{\"id\":1,\"a\":");
    for (int i = 0; i < levels - 1; i++) {
        buf_add_char(&b, open);
        if (open == '{' && i < levels - 2)
            buf_add_text(&b, member);
    }
    for (int i = 0; i < levels - 1; i++)
        buf_add_char(&b, close);
    buf_add_char(&b, '}');
    return b.data;
}

static void check_reason(const char *spec, char *value, size_t len, const char *expected)
{
    char *got = fixture_run(spec, value, len, false);

    if (strncmp(got, expected, strlen(expected)) != 0)
        fail_msg("got %.100s, expected %s", got, expected);
    mem_free(got);
    mem_free(value);
}

static void depth_case(const char *spec, int levels, char open, char close, const char *expected)
{
    char *value = nested(levels, open, close, "\"a\":");

    check_reason(spec, value, strlen(value), expected);
}

/* A value at the bottom of 100 levels is no level of its own. */
static void test_a_value_in_the_deepest_id(void **state)
{
    struct buf b = {0};

    (void)state;
    buf_add_text(&b, "{\"id\":1,\"_id\":");
    for (int i = 0; i < 99; i++)
        buf_add_text(&b, "{\"a\":");
    buf_add_char(&b, '7');
    for (int i = 0; i < 100; i++)
        buf_add_char(&b, '}');
    check_reason("dedup id", b.data, b.len, "upsert");
}

static void test_depths(void **state)
{
    (void)state;
    depth_case("dedup id", 100, '{', '}', "upsert");
    depth_case("dedup id", 101, '{', '}', "too_deep");
    depth_case("dedup id", 100, '[', ']', "upsert");
    depth_case("dedup id", 101, '[', ']', "too_deep");
    depth_case("dedup id", 2000, '[', ']', "too_deep");
    depth_case("dedup id", 3000, '[', ']', "too_deep"); /* jansson's own limit */
    depth_case("dedup id\ninto_id\nunder p", 99, '{', '}', "upsert");
    depth_case("dedup id\ninto_id\nunder p", 100, '{', '}', "too_deep");
    depth_case("dedup id\nexclude a", 2000, '[', ']', "upsert"); /* what counts is the document */
    depth_case("dedup id\nrename a _id", 100, '{', '}', "upsert");
    depth_case("dedup id\nrename a _id", 101, '{', '}', "too_deep");
    depth_case("dedup id\nrename a _id", 2000, '{', '}', "too_deep");
}

/* "upsert" or the reason for {"id":1,"a":"xxx..."}. */
static void size_case(const char *spec, size_t len, const char *expected)
{
    struct buf b = {0};
    char *text = mem_array(len + 1, 1);

    memset(text, 'x', len);
    buf_add_text(&b, "{\"id\":1,\"a\":\"");
    buf_add(&b, text, len);
    buf_add_text(&b, "\"}");
    mem_free(text);
    check_reason(spec, b.data, b.len, expected);
}

/* 16 MiB - 1 KiB for document and filter together; the document is 4 + 12 + 8 + len + 1 bytes, the
 * filter 17
 * ({"id": 1}), or 18 ({"_id": 1}) which count twice. */
static void test_size(void **state)
{
    enum { LIMIT = 16 * 1024 * 1024 - 1024, DOCUMENT = 4 + 12 + 8 + 1 };

    (void)state;
    size_case("dedup id", LIMIT - DOCUMENT - 17, "upsert");
    size_case("dedup id", LIMIT - DOCUMENT - 17 + 1, "too_large");
    size_case("dedup id\ninto_id", LIMIT - DOCUMENT - 2 * 18, "upsert");
    size_case("dedup id\ninto_id", LIMIT - DOCUMENT - 2 * 18 + 1, "too_large");
}

/* JSON numbers of two bytes become elements of 15: the walk stops early and doesn't fill the memory
 * first. */
static void test_size_of_many_small_values(void **state)
{
    struct buf b = {0};

    (void)state;
    buf_add_text(&b, "{\"id\":1,\"a\":[0");
    for (int i = 0; i < 1500000; i++)
        buf_add_text(&b, ",0");
    buf_add_text(&b, "]}");
    check_reason("dedup id", b.data, b.len, "too_large");
}

/* --- lanes --- */

struct order_row {
    const char *spec, *key, *value;
    enum order_space space;
    const char *order_key; /* NULL: not compared */
};

static struct record *ordered(const char *spec, const char *key, const char *value)
{
    struct config_route *route = fixture_route(spec);
    struct mapping *m = fixture_mapping(route);
    struct record *r = fixture_record(key, value, value ? strlen(value) : 0);

    mapping_order(m, r);
    mapping_free(m);
    fixture_route_free(route);
    return r;
}

static void test_order_spaces(void **state)
{
    static const struct order_row rows[] = {
        {"dedup id", "K", "not json", ORDER_KEY, "K"},
        {"dedup id", "", "not json", ORDER_KEY, ""}, /* an empty key is a key */
        {"dedup id", NULL, "{\"id\":1}", ORDER_DEDUP, NULL},
        {"dedup id", NULL, "{\"id\":null}", ORDER_NONE, NULL},
        {"dedup id", NULL, "not json", ORDER_NONE, NULL},
        {"dedup id", NULL, NULL, ORDER_NONE, NULL},
        {"dedup id\norder @dedup", "K", "{\"id\":1}", ORDER_DEDUP, NULL},
        {"dedup id\norder @dedup", "K", "{}", ORDER_NONE, NULL},
        {"dedup id\norder @partition", "K", "{\"id\":1}", ORDER_PARTITION, ""},
        {"dedup id\norder @header.h", "K", "{\"id\":1}", ORDER_VALUE, "hv"},
        {"dedup id\norder @header.no", "K", "{\"id\":1}", ORDER_DEDUP, NULL},
        {"dedup id\norder u.id", "K", "{\"id\":1,\"u\":{\"id\":\"x\"}}", ORDER_VALUE, "sx"},
        {"dedup id\norder u.id", "K", "{\"id\":1,\"u\":{\"id\":null}}", ORDER_DEDUP, NULL},
        {"dedup id\norder u.id", "K", "{\"id\":1,\"u\":[]}", ORDER_DEDUP, NULL},
        {"dedup id\norder u.id", "K", "{\"id\":1,\"u\":{\"id\":{}}}", ORDER_DEDUP, NULL},
        {"dedup id\norder u.id", "K", "{}", ORDER_NONE, NULL},
        {"dedup id\norder u", "K", "{\"id\":1,\"u\":2.5}", ORDER_VALUE, NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct record *r = ordered(rows[i].spec, rows[i].key, rows[i].value);

        if (r->order_space != rows[i].space)
            fail_msg("row %zu: space %d", i, (int)r->order_space);
        assert_non_null(r->order_key.ptr);
        if (rows[i].order_key != NULL)
            assert_true(slice_equal(r->order_key, slice_text(rows[i].order_key)));
        record_free(r);
    }
}

static bool same_lane(const char *spec, const char *a_value, const char *b_value)
{
    struct record *a = ordered(spec, NULL, a_value), *b = ordered(spec, NULL, b_value);
    bool same = a->order_space == b->order_space && slice_equal(a->order_key, b->order_key);

    assert_int_equal(same, a->order_hash == b->order_hash);
    record_free(a);
    record_free(b);
    return same;
}

static void test_equal_values_share_a_lane(void **state)
{
    static const char *const specs[] = {"dedup id\norder id", "dedup id\norder @dedup",
                                        "dedup id\ninto_id\norder @dedup"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        assert_true(same_lane(specs[i], "{\"id\":1}", "{\"id\":1.0,\"x\":2}"));
        assert_true(same_lane(specs[i], "{\"id\":\"a\"}", "{\"id\":\"\\u0061\"}"));
        assert_false(same_lane(specs[i], "{\"id\":1}", "{\"id\":\"1\"}"));
        assert_false(same_lane(specs[i], "{\"id\":1}", "{\"id\":true}"));
        assert_false(same_lane(specs[i], "{\"id\":0}", "{\"id\":false}"));
        assert_false(same_lane(specs[i], "{\"id\":1}", "{\"id\":2}"));
        assert_false(same_lane(specs[i], "{\"id\":9007199254740993}", "{\"id\":9007199254740992}"));
    }
    assert_true(same_lane("dedup id\norder u", "{\"u\":2.5}", "{\"u\":25e-1}"));
    assert_false(
        same_lane("dedup a b", "{\"a\":\"a\",\"b\":\"b-c\"}", "{\"a\":\"a-b\",\"b\":\"c\"}"));
}

/* Decimals by their value: each row is one number. */
static void test_equal_decimals_share_a_lane(void **state)
{
    static const char *const rows[][4] = {
        {"1", "\"1.00\"", "1E0", "\"10e-1\""},
        {"0", "\"-0\"", "-0.0", "\"0E+6111\""},
        {"1.5", "1.50", "\"1500e-3\"", "\"0.15E1\""},
        {"1e18", "\"1000000000000000000\"", "1000000000000000000.0", "\"10e17\""},
        {"1e19", "\"10000000000000000000\"", "\"10000000000000000000.00\"", "\"100e17\""},
        {"\"1e6112\"", "\"10e6111\"", "\"100e6110\"", "\"1000e6109\""},
        {"-1", "-1.0", "\"-1.000\"", "\"-0.1e1\""},
    };
    enum { N = sizeof(rows) / sizeof(rows[0]) * 4 };
    char *values[N];

    (void)state;
    for (size_t i = 0; i < N; i++)
        values[i] = mem_printf("{\"id\":%s}", rows[i / 4][i % 4]);
    for (size_t i = 0; i < N; i++) {
        for (size_t j = 0; j < i; j++) {
            if (same_lane("dedup id\norder @dedup\ntypes id decimal", values[i], values[j]) !=
                (i / 4 == j / 4))
                fail_msg("%s and %s", values[i], values[j]);
        }
    }
    for (size_t i = 0; i < N; i++)
        mem_free(values[i]);
}

static void test_slot_and_space_are_in_the_hash(void **state)
{
    struct record *a = ordered("dedup id", "hv", "{}"),
                  *b = ordered("dedup id\norder @header.h", "hv", "{}");

    (void)state;
    assert_true(slice_equal(a->order_key, b->order_key));
    assert_true(a->order_hash != b->order_hash);
    record_free(b);

    struct config_route *route = fixture_route("dedup id");
    struct mapping *m = fixture_mapping(route);
    uint64_t before = a->order_hash;
    a->slot++;
    mapping_order(m, a);
    assert_true(a->order_hash != before);
    record_free(a);
    mapping_free(m);
    fixture_route_free(route);
}

/* Verify knows a lane by its hash alone: no two of these share one, however short the keys are. */
static void test_short_keys_of_many_slots_differ(void **state)
{
    enum { KEYS = 10, SLOTS = 16 };
    struct config_route *route = fixture_route("dedup id\norder @key");
    struct mapping *m = fixture_mapping(route);
    uint64_t hashes[KEYS * SLOTS];
    char key[] = "k20";

    (void)state;
    for (uint32_t i = 0; i < KEYS * SLOTS; i++) {
        key[2] = (char)('0' + i % KEYS);
        struct record *r = fixture_record(key, "{}", 2);

        r->slot = i / KEYS;
        mapping_order(m, r);
        hashes[i] = r->order_hash;
        for (uint32_t j = 0; j < i; j++)
            assert_true(hashes[i] != hashes[j]);
        record_free(r);
    }
    mapping_free(m);
    fixture_route_free(route);
}

/* What the intake parsed is counted, used by the build, and gone afterwards. */
static void test_the_parsed_payload_travels_and_ends(void **state)
{
    struct config_route *route = fixture_route("dedup id\norder u");
    struct mapping *m = fixture_mapping(route);
    struct record *r = fixture_record("k", "{\"id\":1,\"u\":2}", 14);
    size_t bytes = r->bytes;

    (void)state;
    mapping_order(m, r);
    assert_non_null(r->json);
    assert_true(r->bytes >= bytes + 14 * 8);           /* the tree is several times the text */
    json_object_set_new(r->json, "seen", json_true()); /* it is this tree that is used */
    for (int i = 0; i < 2; i++) {
        char *got = fixture_map(m, r, false);

        assert_string_equal(
            got, i == 0 ? "upsert {\"id\":1} {\"id\":1,\"u\":2,\"seen\":true}"
                        : "upsert {\"id\":1} {\"id\":1,\"u\":2}"); /* a retry parses again */
        assert_null(r->json);
        mem_free(got);
    }
    record_free(r);
    r = fixture_record("k", "{\"id\":1}", 8);
    mapping_free(m);
    fixture_route_free(route);

    route = fixture_route("dedup id");
    m = fixture_mapping(route);
    bytes = r->bytes;
    mapping_order(m, r); /* by the Kafka key: nothing is parsed */
    assert_null(r->json);
    assert_int_equal(r->bytes, bytes);
    record_free(r);
    mapping_free(m);
    fixture_route_free(route);
}

/* --- what can't be a route --- */

static void test_configuration_errors(void **state)
{
    static const struct {
        const char *spec, *text;
    } rows[] = {
        {"order @key", "dedup.key: a route needs a source of identity"},
        {"dedup a..b", "is not a path"},
        {"dedup .a", "is not a path"},
        {"dedup @nothing\nfields k", "is no source"},
        {"dedup @header.\nfields k", "is no source"},
        {"dedup a\nfields $a", "as an operator"},
        {"dedup a\nfields x.$a", "as an operator"},
        {"dedup a b\nfields a", "1 fields for 2 parts"},
        {"dedup a b\nfields x x", "would go to one place"},
        {"dedup a b\nfields x x.y", "would go to one place"},
        {"dedup a.b a_b\ninto_id", "would go to one place"},
        {"dedup a b\nfields _id b", "dedup.into"},
        {"dedup a\nfields _id.x", "dedup.into"},
        {"dedup a\norder @topic", "order_by"},
        {"dedup a\norder x..y", "order_by"},
        {"dedup a\ntypes x int", "is none of date, "},
        {"dedup a\ninclude a a.b", "\"a\" covers \"a.b\""},
        {"dedup a\nrename x y\nrename x.z y", "covers"},
        {"dedup a\nrename x ..", "rename"},
        {"dedup a\nset x {\"a\":", "set"},
        {"dedup a\nset x @no", "set"},
        {"dedup a\nset x a.b", "neither JSON nor an @source"},
        {"dedup a\nset x. 1", "set"},
        {"dedup a\nunder .", "under"},
        {"dedup a\nsource_fields .", "source_fields"},
        {"dedup a\nexclude a.", "exclude"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct config_route *route = fixture_route(rows[i].spec);
        struct err e = {0};

        if (mapping_new(route, &fixture_env, &e) != NULL)
            fail_msg("row %zu: %s was taken", i, rows[i].spec);
        assert_int_equal(e.kind, ERR_CONFIG);
        if (strstr(e.text, rows[i].text) == NULL)
            fail_msg("row %zu: %s: %s", i, rows[i].spec, e.text);
        fixture_route_free(route);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_refused_and_why),
        cmocka_unit_test(test_utf8),
        cmocka_unit_test(test_tombstones),
        cmocka_unit_test(test_values_stay_what_they_are),
        cmocka_unit_test(test_dedup_values),
        cmocka_unit_test(test_dedup_with_types),
        cmocka_unit_test(test_dedup_from_the_record),
        cmocka_unit_test(test_ids_of_the_payload),
        cmocka_unit_test(test_shape),
        cmocka_unit_test(test_set_and_source_fields),
        cmocka_unit_test(test_many_types),
        cmocka_unit_test(test_depths),
        cmocka_unit_test(test_a_value_in_the_deepest_id),
        cmocka_unit_test(test_size),
        cmocka_unit_test(test_size_of_many_small_values),
        cmocka_unit_test(test_order_spaces),
        cmocka_unit_test(test_equal_values_share_a_lane),
        cmocka_unit_test(test_equal_decimals_share_a_lane),
        cmocka_unit_test(test_slot_and_space_are_in_the_hash),
        cmocka_unit_test(test_short_keys_of_many_slots_differ),
        cmocka_unit_test(test_the_parsed_payload_travels_and_ends),
        cmocka_unit_test(test_configuration_errors),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
