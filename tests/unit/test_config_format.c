/*
 * What a route of each format can say, and what is an error at start.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "base/mem.h"
#include "core/config.h"

/* The lines of a row begin in line 11. */
static const char head[] = "[kafka]\nbrokers = \"b\"\ngroup = \"g\"\n"
                           "[mongo]\nuri = \"mongodb://m\"\n[redis]\nuri = \"redis://r\"\n"
                           "[[route]]\ntopics = [\"t\"]\ncollection = \"d.c\"\n";

static char *error_of(const char *lines)
{
    char *text = mem_printf("%s%s", head, lines);
    struct config_input in = {.name = "f", .text = slice_text(text)};
    struct err e = {0};
    struct config *c = config_parse(&in, &e);

    mem_free(text);
    if (c == NULL)
        return mem_text(e.text);
    config_free(c);
    return mem_text("");
}

struct row {
    const char *lines, *error;
};

static void check(const struct row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char *error = error_of(rows[i].lines);

        if (strcmp(error, rows[i].error) != 0)
            fail_msg("row %zu\n%s\n  got      %s\n  expected %s", i, rows[i].lines, error,
                     rows[i].error);
        mem_free(error);
    }
}
#define CHECK(rows) check((rows), sizeof(rows) / sizeof((rows)[0]))

#define NO_FIELDS "format = \"string\": such a payload has no fields that could be named"

static void test_a_payload_without_fields_has_none_that_could_be_named(void **state)
{
    static const struct row rows[] = {
        {"format = \"string\"\n[route.dedup]\nkey = [\"@key\", \"id\"]\nfields = [\"a\", \"b\"]",
         "f:13:16: route.dedup.key: " NO_FIELDS
         "; the identity can be @key, @header.NAME or @offset"},
        {"format = \"bytes\"\norder_by = \"a.b\"\n[route.dedup]\nkey = [\"@key\"]\ninto = \"_id\"",
         "f:12:1: route.order_by: format = \"bytes\": such a payload has no fields that could be "
         "named; possible here: @key, @partition, @dedup or @header.NAME"},
        {"format = \"string\"\ninclude = [\"a\"]\n[route.dedup]\nkey = [\"@key\"]\ninto = \"_id\"",
         "f:12:1: route.include: " NO_FIELDS},
        {"format = \"string\"\nexclude = [\"a\"]\n[route.dedup]\nkey = [\"@key\"]\ninto = \"_id\"",
         "f:12:1: route.exclude: " NO_FIELDS},
        {"format = \"string\"\ndrop_nulls = true\n[route.dedup]\nkey = [\"@key\"]\ninto = \"_id\"",
         "f:12:1: route.drop_nulls: " NO_FIELDS},
        {"format = \"string\"\n[route.dedup]\nkey = [\"@key\"]\ninto = \"_id\"\n"
         "[route.types]\nvalue = \"date\"",
         "f:15:8: route.types: " NO_FIELDS},
        {"format = \"string\"\n[route.dedup]\nkey = [\"@key\"]\ninto = \"_id\"\n"
         "[route.rename]\nvalue = \"v\"",
         "f:15:8: route.rename: " NO_FIELDS},
        {"format = \"string\"\n[route.dedup]\nkey = [\"@key\"]\ninto = \"_id\"\n"
         "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"k:{@key}\", \"k:{value}\"]",
         "f:17:21: route.invalidate.keys: a value path, and a payload of this format has no "
         "fields; possible are @key, @header.NAME and what else begins with @"},
        {"format = \"string\"\n[route.dedup]\nkey = [\"@key\"]\ninto = \"_id\"\n"
         "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"k:{@key}\"]",
         ""},
        {"format = \"bytes\"\nunder = \"p\"\nsource_fields = \"src\"\nvalue_field = \"raw.bytes\"\n"
         "order_by = \"@header.h\"\n[route.dedup]\nkey = [\"@key\", \"@header.h\", \"@offset\"]\n"
         "fields = [\"k\", \"h\", \"o\"]\n[route.set]\nat = \"@timestamp\"",
         ""},
    };

    (void)state;
    CHECK(rows);
}

static void test_where_the_value_goes(void **state)
{
#define ROUTE "\n[route.dedup]\nkey = [\"@key\"]\nfields = [\"k\"]"
    static const struct row rows[] = {
        {"format = \"json\"\nvalue_field = \"v\"" ROUTE,
         "f:12:1: route.value_field: has no meaning with format = \"json\": the payload's own "
         "fields are stored"},
        {"format = \"bson\"\nvalue_field = \"v\"" ROUTE,
         "f:12:1: route.value_field: has no meaning with format = \"bson\": the payload's own "
         "fields are stored"},
        {"format = \"bson\"\nvalue_field = \"value\"" ROUTE, ""},
        {"format = \"string\"\nvalue_field = \"\"" ROUTE,
         "f:12:1: route.value_field: \"\" is an empty path"},
        {"format = \"string\"\nvalue_field = \"a.$b\"" ROUTE,
         "f:12:1: route.value_field: \"a.$b\" has a name that starts with $, which MongoDB keeps "
         "for itself"},
        {"format = \"string\"\nvalue_field = \"_id\"" ROUTE,
         "f:12:1: route.value_field: \"_id\", where the payload goes, collides with the "
         "document's _id"},
        {"format = \"string\"\nvalue_field = \"k.v\"" ROUTE,
         "f:12:1: route.value_field: \"k.v\", where the payload goes, collides with a field of "
         "the dedup key"},
        {"format = \"string\"\nvalue_field = \"_id\"\nunder = \"p\"" ROUTE, ""},
        {"format = \"string\"\nvalue_field = \"_payload_hash\"" ROUTE "\nconflict = \"count\"",
         "f:12:1: route.value_field: \"_payload_hash\", where the payload goes, collides with "
         "dedup.conflict_field"},
        {"format = \"string\"\nvalue_field = \"v\"\nunder = \"p\"\nsource_fields = \"p.v.s\"" ROUTE,
         "f:12:1: route.value_field: \"v\", where the payload goes, collides with source_fields"},
        {"format = \"string\"" ROUTE "\n[route.set]\nvalue.x = 1",
         "f:8:1: route.value_field: \"value\", where the payload goes, collides with a field of "
         "[route.set]"},
    };

    (void)state;
    CHECK(rows);
}

static void test_formats_with_fields_take_everything(void **state)
{
    static const char *const formats[] = {"json", "extjson", "bson"};

    (void)state;
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        char *lines =
            mem_printf("format = \"%s\"\ndrop_nulls = true\norder_by = \"a\"\nexclude = [\"b\"]\n"
                       "[route.dedup]\nkey = [\"a\"]\n[route.types]\na = \"binary_url\"\n"
                       "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"k:{a}\"]",
                       formats[i]);
        char *error = error_of(lines);

        assert_string_equal(error, "");
        mem_free(error);
        mem_free(lines);
    }
    char *error = error_of("format = \"avro\"\n[route.dedup]\nkey = [\"a\"]");

    assert_string_equal(error, "f:11:1: route.format: \"avro\" is not known; possible: \"json\", "
                               "\"extjson\", \"bson\", \"string\", \"bytes\"");
    mem_free(error);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_payload_without_fields_has_none_that_could_be_named),
        cmocka_unit_test(test_where_the_value_goes),
        cmocka_unit_test(test_formats_with_fields_take_everything),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
