/*
 * format = "bson", "string" and "bytes", and drop_nulls. Documents are written as hex: type, name,
 * value, as bsonspec.org has them; the length in front and the zero behind are added where a row
 * does not say otherwise.
 */
#include "unit/mapping_fixture.h"

#include <jansson.h>

#include "core/json_place.h"
#include "core/payload.h"

/* What explain shows is where the error says it is. */
static void check_place(struct slice value, const char *got)
{
    const char *at = strstr(got, ", at byte ");
    struct json_place p;
    bool found = payload_fault_find(value, FORMAT_BSON, &p);

    if (at != NULL && (!found || p.byte != strtoul(at + 10, NULL, 10) || p.line != 0))
        fail_msg("%s: %d, byte %zu", got, found, p.byte);
    if (strncmp(got, "upsert", 6) == 0)
        assert_false(found);
    json_place_clear(&p);
}

static size_t unhex(const char *hex, char *out)
{
    size_t n = 0;

    for (; *hex != '\0'; hex++) {
        if (*hex == ' ')
            continue;
        out[n++] = (char)strtol((char[]){hex[0], hex[1], '\0'}, NULL, 16);
        hex++;
    }
    return n;
}

struct row {
    const char *hex, *expected;
};

/* frame: the hex are elements, and {id: "x"} stands in front of them. */
static void check(const char *spec, const struct row *rows, size_t n, bool frame)
{
    for (size_t i = 0; i < n; i++) {
        static const char id[] = "\x02id\0\x02\0\0\0x\0";
        struct buf b = {0};
        char bytes[4096];
        size_t len = unhex(rows[i].hex, bytes);
        uint32_t whole = (uint32_t)(4 + sizeof(id) - 1 + len + 1);

        if (frame) {
            buf_add(&b, &whole, 4);
            buf_add(&b, id, sizeof(id) - 1);
        }
        buf_add(&b, bytes, len);
        if (frame)
            buf_add_char(&b, 0);

        char *got = fixture_run(spec, buf_text(&b), b.len,
                                strchr(rows[i].expected, ':') != NULL &&
                                    strncmp(rows[i].expected, "up", 2) != 0);
        if (strcmp(got, rows[i].expected) != 0)
            fail_msg("row %zu: %s\n  got      %s\n  expected %s", i, rows[i].hex, got,
                     rows[i].expected);
        if (strstr(spec, "format bson") != NULL)
            check_place(slice_of(buf_text(&b), b.len), got);
        mem_free(got);
        buf_clear(&b);
    }
}
#define CHECK(spec, rows)     check((spec), (rows), sizeof(rows) / sizeof((rows)[0]), true)
#define CHECK_ALL(spec, rows) check((spec), (rows), sizeof(rows) / sizeof((rows)[0]), false)
#define IS(bson)              "upsert {\"id\":\"x\"} {\"id\":\"x\"," bson "}"

static void test_every_type_stays_what_it_is(void **state)
{
    static const struct row rows[] = {
        {"01 7600 000000000000f83f", IS("\"v\":f1.5")},
        {"01 7600 0000000000000080", IS("\"v\":f-0")},
        {"01 7600 000000000000f87f", IS("\"v\":fnan")},
        {"01 7600 000000000000f0ff", IS("\"v\":f-inf")},
        {"02 7600 04000000 610062 00", IS("\"v\":\"a\\u0000b\"")},
        {"03 7600 0c000000 10 6100 05000000 00", IS("\"v\":{\"a\":i5}")},
        {"03 7600 05000000 00", IS("\"v\":{}")},
        {"04 7600 0f000000 0a 3000 12 3100 0500000000000000 00"
         /* length is wrong by intent of the next table only; here: 4+3+11+1 */,
         "bson_syntax"},
        {"04 7600 13000000 0a 3000 12 3100 0500000000000000 00", IS("\"v\":[null,5]")},
        {"05 7600 03000000 00 010203", IS("\"v\":bin0(010203)")},
        {"05 7600 00000000 80", IS("\"v\":bin128()")},
        {"05 7600 05000000 02 01000000 ff", IS("\"v\":bin2(ff)")},
        {"06 7600", IS("\"v\":undefined")},
        {"07 7600 507f1f77bcf86cd799439011", IS("\"v\":oid(507f1f77bcf86cd799439011)")},
        {"08 7600 01", IS("\"v\":true")},
        {"08 7600 00", IS("\"v\":false")},
        {"09 7600 ffffffffffffffff", IS("\"v\":date(-1)")},
        {"0a 7600", IS("\"v\":null")},
        {"0b 7600 5e6100 6900", IS("\"v\":/^a/i")},
        {"0c 7600 02000000 6300 507f1f77bcf86cd799439011",
         IS("\"v\":pointer(c,507f1f77bcf86cd799439011)")},
        {"0d 7600 02000000 6600", IS("\"v\":code(f)")},
        {"0e 7600 02000000 7300", IS("\"v\":symbol(s)")},
        {"0f 7600 16000000 02000000 6600 0c000000 10 6100 05000000 00",
         IS("\"v\":code(f,{\"a\":i5})")},
        {"10 7600 00000080", IS("\"v\":i-2147483648")},
        {"11 7600 01000000 02000000", IS("\"v\":ts(2,1)")},
        {"12 7600 0100000000002000", IS("\"v\":9007199254740993")},
        {"13 7600 96000000000000000000000000003c30", IS("\"v\":dec(1.50)")},
        {"ff 7600", IS("\"v\":minkey")},
        {"7f 7600", IS("\"v\":maxkey")},
        /* several, so that a value is not taken for its neighbour */
        {"10 6100 00000000 10 6200 01000000 12 6300 0000000000000000 12 6400 0100000000000000",
         IS("\"a\":i0,\"b\":i1,\"c\":0,\"d\":1")},
        {"0f 6100 16000000 02000000 6600 0c000000 10 6100 05000000 00 10 6200 07000000",
         IS("\"a\":code(f,{\"a\":i5}),\"b\":i7")},
    };

    (void)state;
    CHECK("dedup id\nformat bson", rows);
}

static void test_what_is_no_bson(void **state)
{
#define AT(byte) ", at byte " byte
#define LEN      "bson_syntax: a document with a wrong length, or without its end"
#define BEYOND   "bson_syntax: a value reaches beyond the end of its document"
#define TEXT     "bson_syntax: a text with a wrong length"
    static const struct row whole[] = {
        {"05000000", LEN AT("0")},
        {"0500000001", LEN AT("0")},
        {"0400000000", LEN AT("0")},
        {"0100000000", LEN AT("0")},
        {"ffffffff00", LEN AT("0")},
        {"060000000000", "bson_syntax: a name without an end, at byte 5"},
        {"0500000000 00", "bson_syntax: something follows the document" AT("5")},
        {"0500000000", "dedup_missing: dedup key: \"id\" is missing"},
        {"", "empty_value: the value has no bytes"},
        {"7b7d", BEYOND AT("0")},
        {"1f8b0800", "compressed: the value is compressed with gzip"},
        {"28b52ffd00", "compressed: the value is compressed with zstd"},
        {"0000000001 0a",
         "schema_registry_framing: the value begins with byte 0x00 and a schema id: "
         "a schema registry serializer wrote it"},
    };
    static const struct row rows[] = {
        {"02 7600 05000000 610062 00", TEXT AT("17")},
        {"02 7600 00000000 00", TEXT AT("17")},
        {"02 7600 ffffffff 00", TEXT AT("17")},
        {"02 7600 02000000 6161", TEXT AT("17")},
        {"02 7600 02000000 ff00", "invalid_utf8: a text that is not UTF-8" AT("17")},
        {"02 ff00 02000000 6100", "invalid_utf8: a name that is not UTF-8" AT("15")},
        {"0a 76", "bson_syntax: a name without an end" AT("15")},
        {"10 7600 000000", BEYOND AT("17")},
        {"12 7600 00000000000000", BEYOND AT("17")},
        {"01 7600 00000000000000", BEYOND AT("17")},
        {"07 7600 0000", BEYOND AT("17")},
        {"13 7600 0000", BEYOND AT("17")},
        {"08 7600", BEYOND AT("17")},
        {"08 7600 02", "bson_syntax: a boolean that is neither 0 nor 1" AT("17")},
        {"14 7600", "bson_syntax: a type that BSON does not have" AT("14")},
        {"05 7600 04000000 00 010203", "bson_syntax: binary with a wrong length" AT("17")},
        {"05 7600 ffffffff 00 010203", "bson_syntax: binary with a wrong length" AT("17")},
        {"05 7600 05000000 02 02000000 ff",
         "bson_syntax: binary of subtype 2 with a wrong length" AT("17")},
        {"05 7600 03000000 02 010000",
         "bson_syntax: binary of subtype 2 with a wrong length" AT("17")},
        {"03 7600 06000000 00", LEN AT("17")},
        {"03 7600 0c000000 10 6100 0500000001", LEN AT("17")},
        {"03 7600 0b000000 10 6100 05000000", BEYOND AT("24")},
        {"04 7600 08000000 0a 3100 00",
         "bson_syntax: an element of an array that is not called by its number" AT("21")},
        {"04 7600 09000000 0a 303000 00",
         "bson_syntax: an element of an array that is not called by its number" AT("21")},
        {"0b 7600 6100 69", "bson_syntax: a name without an end" AT("19")},
        {"0b 7600 ff00 6900", "invalid_utf8: a name that is not UTF-8" AT("17")},
        {"0c 7600 02000000 6300 507f", BEYOND AT("23")},
        {"0d 7600 03000000 6600", TEXT AT("17")},
        {"0f 7600 17000000 02000000 6600 0c000000 10 6100 05000000 00",
         "bson_syntax: code with a wrong length" AT("17")},
        {"0f 7600 16000000 02000000 6600 0d000000 10 6100 05000000 00", LEN AT("27")},
        {"0f 7600 11000000 02000000 6600 08000000 10 00 00", LEN AT("27")},
        {"0a 6900 0a 6900", "duplicate_name: a name occurs twice in one document" AT("17")},
        {"03 7600 0b000000 0a 6100 0a 6100 00",
         "duplicate_name: a name occurs twice in one document" AT("24")},
    };

    (void)state;
    CHECK_ALL("dedup id\nformat bson", whole);
    CHECK("dedup id\nformat bson", rows);
}

static void test_the_steps_behind(void **state)
{
    static const struct row keys[] = {
        {"10 6b00 05000000", "upsert {\"k\":5} {\"id\":\"x\",\"k\":i5}"},
        {"12 6b00 0500000000000000", "upsert {\"k\":5} {\"id\":\"x\",\"k\":5}"},
        {"01 6b00 0000000000001440", "upsert {\"k\":5} {\"id\":\"x\",\"k\":f5}"},
        {"13 6b00 96000000000000000000000000003c30",
         "upsert {\"k\":dec(1.5)} {\"id\":\"x\",\"k\":dec(1.50)}"},
        {"07 6b00 507f1f77bcf86cd799439011", "upsert {\"k\":oid(507f1f77bcf86cd799439011)} "
                                             "{\"id\":\"x\",\"k\":oid(507f1f77bcf86cd799439011)}"},
        {"09 6b00 0500000000000000", "upsert {\"k\":date(5)} {\"id\":\"x\",\"k\":date(5)}"},
        {"05 6b00 01000000 03 aa", "upsert {\"k\":bin3(aa)} {\"id\":\"x\",\"k\":bin3(aa)}"},
        {"05 6b00 00000000 04", "dedup_empty"},
        {"05 6b00 01000000 00 aa", "dedup_not_scalar"},
        {"02 6b00 01000000 00", "dedup_empty"},
        {"0a 6b00", "dedup_null"},
        {"06 6b00", "dedup_not_scalar"},
        {"ff 6b00", "dedup_not_scalar"},
        {"11 6b00 01000000 02000000", "dedup_not_scalar"},
        {"0b 6b00 6100 00", "dedup_not_scalar"},
        {"0d 6b00 02000000 6600", "dedup_not_scalar"},
        {"01 6b00 000000000000f87f", "dedup_not_scalar"},
        {"03 6b00 0f000000 02 24677400 01000000 00 00", "dedup_not_scalar"},
        {"04 6b00 05000000 00", "dedup_not_scalar"},
        {"02 7600 02000000 6100", "dedup_missing"},
    };
    static const struct row typed[] = {
        {"12 7600 0500000000000000", IS("\"v\":date(5)")},
        {"10 7600 05000000", IS("\"v\":date(5)")},
        {"01 7600 0000000000001440", IS("\"v\":date(5)")},
        {"01 7600 000000000000f83f", "type_conversion"},
        {"09 7600 0700000000000000", IS("\"v\":date(7)")},
        {"02 7600 15000000 313937302d30312d30315430303a30303a30305a 00", IS("\"v\":date(0)")},
        {"11 7600 01000000 02000000", "type_conversion"},
        {"0a 7600", IS("\"v\":null")},
    };
    static const struct row decimals[] = {
        {"01 7600 0000000000001440", IS("\"v\":dec(5)")},
        {"01 7600 000000000000f83f", "type_conversion"}, /* a double has no digits of its own */
        {"12 7600 0100000000002000", IS("\"v\":dec(9007199254740993)")},
        {"02 7600 05000000 312e3530 00", IS("\"v\":dec(1.50)")},
    };
    static const struct row seconds[] = {
        {"01 7600 8fc2756d959ed641", IS("\"v\":date(1517966773840)")},
        {"10 7600 05000000", IS("\"v\":date(5000)")},
    };
    static const struct row shaped[] = {
        {"07 7600 507f1f77bcf86cd799439011 0a 6e00 10 7800 01000000",
         "upsert {\"p.id\":\"x\"} "
         "{\"p\":{\"id\":\"x\",\"w\":oid(507f1f77bcf86cd799439011)},\"c\":7}"},
    };
    static const struct row dotted[] = {
        {"10 612e6200 01000000", "insert {\"id\":\"x\"} {\"id\":\"x\",\"a.b\":i1}"},
        {"10 612e6200 01000000 03 7300 10000000 11 7400 0000000000000000 00",
         "insert {\"id\":\"x\"} {\"id\":\"x\",\"a.b\":i1,\"s\":{\"t\":ts(0,0)}}"},
        {"10 612e6200 01000000 11 7400 0000000000000000", "unsafe_name"}, /* MongoDB's time */
        {"10 612e6200 01000000 11 7400 0000000001000000",
         "insert {\"id\":\"x\"} {\"id\":\"x\",\"a.b\":i1,\"t\":ts(1,0)}"},
        {"10 612e6200 01000000 11 5f696400 0000000000000000",
         "insert {\"id\":\"x\"} {\"id\":\"x\",\"a.b\":i1,\"_id\":ts(0,0)}"},
        {"11 7400 0000000000000000", IS("\"t\":ts(0,0)")},
        {"0b 5f696400 6100 00", "unsafe_name"},
        {"06 5f696400", "unsafe_name"},
        {"ff 5f696400", IS("\"_id\":minkey")},
        {"10 00 01000000", "insert {\"id\":\"x\"} {\"id\":\"x\",\"\":i1}"},
    };

    (void)state;
    CHECK("dedup k\nformat bson", keys);
    CHECK("dedup id\nformat bson\ntypes v date", typed);
    CHECK("dedup id\nformat bson\ntypes v decimal", decimals);
    CHECK("dedup id\nformat bson\ntypes v date_s", seconds);
    CHECK("dedup id\nformat bson\nfields p.id\nrename v w\nexclude x\nunder p\nset c 7\ndrop_nulls",
          shaped);
    CHECK("dedup id\nformat bson", dotted);
}

/* What stands behind the parse is the same as for JSON: order_by, templates. */
static void test_lanes(void **state)
{
    static const char *const same[] = {"10 6b00 05000000", "12 6b00 0500000000000000",
                                       "01 6b00 0000000000001440",
                                       "13 6b00 f40100000000000000000000 00003c30"};
    static const char *const others[] = {"10 6b00 06000000",
                                         "02 6b00 02000000 3500",
                                         "09 6b00 0500000000000000",
                                         "08 6b00 01",
                                         "13 6b00 96000000000000000000000000003c30",
                                         "07 6b00 507f1f77bcf86cd799439011"};
    struct config_route *route = fixture_route("dedup id\nformat bson\norder k");
    struct mapping *m = fixture_mapping(route);
    uint64_t first = 0, hashes[6];

    (void)state;
    for (size_t i = 0; i < 10; i++) {
        char value[256] = {0};
        size_t len = unhex(i < 4 ? same[i] : others[i - 4], value + 4) + 5;

        value[0] = (char)len;
        struct record *r = fixture_record("k", value, len);
        mapping_order(m, r);
        assert_int_equal(r->order_space, ORDER_VALUE);
        assert_null(r->json); /* no estimate of its size, so it does not wait */
        if (i == 0)
            first = r->order_hash;
        if (i < 4)
            assert_int_equal(r->order_hash, first);
        else
            hashes[i - 4] = r->order_hash;
        record_free(r);
    }
    for (size_t i = 0; i < 6; i++) {
        assert_int_not_equal(hashes[i], first);
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(hashes[i], hashes[j]);
    }
    mapping_free(m);
    fixture_route_free(route);
}

static void test_templates(void **state)
{
    static const struct row rows[] = {
        {"10 6b00 05000000", "i5 5"},
        {"12 6b00 0500000000000000", "i5 5"},
        {"01 6b00 000000000000f83f", "i1.5 1.5"},
        {"13 6b00 96000000000000000000000000003c30", "i1.50 1.50"},
        {"09 6b00 0500000000000000", "i5 5"},
        {"07 6b00 507f1f77bcf86cd799439011",
         "i507f1f77bcf86cd799439011 \"507f1f77bcf86cd799439011\""},
        {"05 6b00 10000000 04 00112233445566778899aabbccddeeff",
         "i00112233-4455-6677-8899-aabbccddeeff \"00112233-4455-6677-8899-aabbccddeeff\""},
        {"05 6b00 01000000 00 aa", "-"},
        {"01 6b00 000000000000f87f", "-"},
        {"11 6b00 01000000 02000000", "-"},
        {"ff 6b00", "-"},
    };
    struct config_route *route =
        fixture_route("dedup id\nformat bson\nunlink i{k}\npubsub c {\"k\":{k}}");
    struct mapping *m = fixture_mapping(route);

    (void)state;
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct invalidation_list list = {0};
        char value[256] = {0};
        size_t len = unhex(rows[i].hex, value + 4) + 5, skipped = 0;
        struct buf got = {0};

        value[0] = (char)len;
        struct record *r = fixture_record("k", value, len);
        mapping_invalidations(m, r, true, &list, &skipped);
        assert_int_equal(list.n + skipped, 2);
        if (list.n == 2)
            buf_printf(&got, "%s %.*s", list.items[0].name, (int)strlen(list.items[1].body) - 6,
                       list.items[1].body + 5);
        else
            buf_add_text(&got, list.n == 0 ? "-" : "one");
        if (strcmp(got.data, rows[i].expected) != 0)
            fail_msg("row %zu: %s\n  got      %s\n  expected %s", i, rows[i].hex, got.data,
                     rows[i].expected);
        buf_clear(&got);
        invalidation_list_clear(&list);
        record_free(r);
    }
    mapping_free(m);
    fixture_route_free(route);
}

/* --- text and bytes --- */

static void test_string(void **state)
{
    static const struct row rows[] = {
        {"6162", "upsert {\"key\":\"kafka-key\"} {\"value\":\"ab\",\"key\":\"kafka-key\"}"},
        {"", "upsert {\"key\":\"kafka-key\"} {\"value\":\"\",\"key\":\"kafka-key\"}"},
        {"00", "upsert {\"key\":\"kafka-key\"} {\"value\":\"\\u0000\",\"key\":\"kafka-key\"}"},
        {"7b226964223a317d",
         "upsert {\"key\":\"kafka-key\"} {\"value\":\"{\\\"id\\\":1}\",\"key\":\"kafka-key\"}"},
        {"ff", "invalid_utf8: the value is not UTF-8"},
        {"1f8b08", "compressed: the value is compressed with gzip"},
        {"789c03", "compressed: the value is compressed with zlib"},
        {"78da03", "compressed: the value is compressed with zlib"},
        {"785e32", "upsert {\"key\":\"kafka-key\"} {\"value\":\"x^2\",\"key\":\"kafka-key\"}"},
        {"0000000001ff",
         "schema_registry_framing: the value begins with byte 0x00 and a schema id: "
         "a schema registry serializer wrote it"},
    };

    (void)state;
    CHECK_ALL("dedup @key\nfields key\nformat string", rows);
}

static void test_bytes(void **state)
{
    static const struct row rows[] = {
        {"6162", "upsert {\"_id\":\"kafka-key\"} {\"p\":{\"raw\":{\"b\":bin0(6162)}},\"c\":7}"},
        {"", "upsert {\"_id\":\"kafka-key\"} {\"p\":{\"raw\":{\"b\":bin0()}},\"c\":7}"},
        {"1f8b0800",
         "upsert {\"_id\":\"kafka-key\"} {\"p\":{\"raw\":{\"b\":bin0(1f8b0800)}},\"c\":7}"},
    };
    static const struct fixture_row tombstones[] = {
        {"dedup @key\ninto_id\nformat bytes", NULL, "skip"},
        {"dedup @key\ninto_id\nformat string", NULL, "skip"},
        {"dedup @key\ninto_id\nformat bson", NULL, "skip"},
        {"dedup @key\ninto_id\nformat bytes\ntombstone_dlq", NULL, "tombstone"},
    };

    (void)state;
    CHECK_ALL("dedup @key\ninto_id\nformat bytes\nvalue_field raw.b\nunder p\nset c 7", rows);
    FIXTURE_CHECK(tombstones);
}

/* --- drop_nulls --- */

static void test_drop_nulls(void **state)
{
    static const struct fixture_row rows[] = {
        {"dedup id\ndrop_nulls",
         "{\"id\":1,\"a\":null,\"b\":{\"c\":null,\"d\":[null,{\"e\":null,\"f\":2},null]},\"g\":{"
         "\"h\":null}}",
         "upsert {\"id\":1} {\"id\":1,\"b\":{\"d\":[null,{\"f\":2},null]},\"g\":{}}"},
        {"dedup id", "{\"id\":1,\"a\":null}", "upsert {\"id\":1} {\"id\":1,\"a\":null}"},
        {"dedup id\ndrop_nulls", "{\"id\":null}", "dedup_null"},
        {"dedup a.b c\ndrop_nulls", "{\"a\":{\"b\":1},\"c\":null}", "dedup_null"},
        {"dedup id\ndrop_nulls", "{\"id\":1,\"a.b\":null,\"\":null}",
         "upsert {\"id\":1} {\"id\":1}"},
        {"dedup id\ndrop_nulls", "{\"id\":1,\"_id\":null}", "upsert {\"id\":1} {\"id\":1}"},
        {"dedup id\ndrop_nulls\ntypes a date\nrename a b", "{\"id\":1,\"a\":null}",
         "upsert {\"id\":1} {\"id\":1}"},
        {"dedup id\ndrop_nulls\nunder p\nfields p.id", "{\"id\":1,\"a\":null}",
         "upsert {\"p.id\":1} {\"p\":{\"id\":1}}"},
    };

    (void)state;
    FIXTURE_CHECK(rows);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_stays_what_it_is),
        cmocka_unit_test(test_what_is_no_bson),
        cmocka_unit_test(test_the_steps_behind),
        cmocka_unit_test(test_lanes),
        cmocka_unit_test(test_templates),
        cmocka_unit_test(test_string),
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_drop_nulls),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
