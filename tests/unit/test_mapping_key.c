/*
 * Back from the document: the key that verify finds is the one that the write had.
 */
#include "unit/mapping_fixture.h"

static void check_key_of(const char *spec, const char *value, const bson_t *document,
                         const char *expected)
{
    struct config_route *route = fixture_route(spec);
    struct mapping *m = fixture_mapping(route);
    struct record *r = fixture_record("kafka-key", value, value ? strlen(value) : 0);
    struct write_op op;
    bson_t filter = BSON_INITIALIZER;

    if (value != NULL) {
        assert_int_equal(mapping_build(m, r, &op), MAPPING_WRITE);
        if (route->dedup.into_id)
            assert_true(bson_concat(op.document, op.filter)); /* as the server stores it */
        assert_true(mapping_key_of_document(m, op.document, &filter));
        assert_true(bson_equal(&filter, op.filter));
        write_op_clear(&op);
    } else {
        struct buf out = {0};
        bool ok = mapping_key_of_document(m, document, &filter);

        assert_int_equal(ok, expected != NULL);
        if (ok) {
            fixture_show(&filter, false, &out);
            assert_string_equal(out.data, expected);
        }
        buf_clear(&out);
    }
    bson_destroy(&filter);
    record_free(r);
    mapping_free(m);
    fixture_route_free(route);
}

static void test_key_of_document(void **state)
{
    bson_t *stored =
        BCON_NEW("_id", BCON_INT32(1), "id", BCON_INT32(7), "d", BCON_DOUBLE(7.0), "o", "{", "id",
                 BCON_UTF8("x"), "}", "a", "[", "{", "id", BCON_INT32(1), "}", "]");
    bson_t *parts = BCON_NEW("_id", "{", "id", BCON_INT32(1), "t", BCON_DOUBLE(2.0), "}");
    bson_decimal128_t decimal;

    (void)state;
    assert_true(bson_decimal128_from_string("7.00", &decimal));
    BSON_APPEND_DECIMAL128(stored, "w", &decimal);
    assert_true(bson_decimal128_from_string("7.50", &decimal));
    BSON_APPEND_DECIMAL128(stored, "f", &decimal);
    assert_true(bson_decimal128_from_string("NaN", &decimal));
    BSON_APPEND_DECIMAL128(stored, "n", &decimal);
    check_key_of("dedup w", NULL, stored, "{\"w\":7}");
    check_key_of("dedup f", NULL, stored, "{\"f\":dec(7.5)}");
    check_key_of("dedup n", NULL, stored, "{\"n\":dec(NaN)}");
    check_key_of("dedup id\ntypes id decimal", "{\"id\":\"1.00\"}", NULL, NULL);
    check_key_of("dedup id\ntypes id decimal", "{\"id\":1.50}", NULL, NULL);
    check_key_of("dedup id\ninto_id\ntypes id decimal", "{\"id\":1.50}", NULL, NULL);
    check_key_of("dedup id t\ninto_id\ntypes id decimal", "{\"id\":1.50,\"t\":1}", NULL, NULL);
    check_key_of("dedup id t\ninto_id", NULL, parts, "{\"_id\":{\"id\":1,\"t\":2}}");
    check_key_of("dedup id", "{\"id\":1.0}", NULL, NULL);
    check_key_of("dedup a.b c", "{\"a\":{\"b\":\"x\"},\"c\":true}", NULL, NULL);
    check_key_of("dedup @key\nfields k", "{}", NULL, NULL);
    check_key_of("dedup @offset\ninto_id", "{}", NULL, NULL);
    check_key_of("dedup id t\ninto_id", "{\"id\":1.0,\"t\":2}", NULL, NULL);
    check_key_of("dedup id\ntypes id date", "{\"id\":0}", NULL, NULL);
    check_key_of("dedup id", NULL, stored, "{\"id\":7}"); /* int32 and double of other writers */
    check_key_of("dedup d", NULL, stored, "{\"d\":7}");
    check_key_of("dedup o.id", NULL, stored, "{\"o.id\":\"x\"}");
    check_key_of("dedup id\ninto_id", NULL, stored, "{\"_id\":1}");
    check_key_of("dedup a.id", NULL, stored, NULL);
    check_key_of("dedup o.no", NULL, stored, NULL);
    check_key_of("dedup no", NULL, stored, NULL);
    bson_destroy(stored);
    bson_destroy(parts);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_of_document),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
