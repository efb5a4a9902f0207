/*
 * Which write a document becomes, and the hash of its payload.
 */
#include "unit/mapping_fixture.h"

#include "core/look.h"

/* The write of this value; key and offset are the record's. */
static struct write_op write_of(const char *spec, const char *value, const char *key,
                                int64_t offset)
{
    struct config_route *route = fixture_route(spec);
    struct write_op op = {0};
    struct err e;
    struct mapping *m = mapping_new(route, &fixture_env, &e);

    if (m == NULL)
        fail_msg("%s: %s", spec, e.text);
    struct record *r = fixture_record(key, value, strlen(value));
    r->offset = offset;
    if (mapping_build(m, r, &op) != MAPPING_WRITE)
        fail_msg("%s: %s", value, r->rejected.text);
    record_free(r);
    mapping_free(m);
    fixture_route_free(route);
    return op;
}

static void check_write(const char *spec, const char *value, const char *expected)
{
    char *got = fixture_run(spec, value, strlen(value), true);

    assert_string_equal(got, expected);
    mem_free(got);
}

static void test_modes(void **state)
{
    (void)state;
    check_write("dedup id", "{\"b\":1,\"id\":2}", "upsert {\"id\":2} {\"b\":1,\"id\":2}");
    check_write("dedup id\nwrite insert", "{\"b\":1,\"id\":2}",
                "insert {\"id\":2} {\"b\":1,\"id\":2}");
    check_write("dedup id\nwrite auto", "{\"b\":1,\"id\":2}",
                "insert {\"id\":2} {\"b\":1,\"id\":2}");
    /* An insert brings the _id that the filter of an upsert would have brought. */
    check_write("dedup id\ninto_id", "{\"id\":2.0}", "upsert {\"_id\":2} {\"id\":f2}");
    check_write("dedup id\ninto_id\nwrite insert", "{\"id\":2.0}",
                "insert {\"_id\":2} {\"id\":f2,\"_id\":2}");
    check_write("dedup _id\ninto_id\nwrite auto", "{\"_id\":2.0,\"v\":true}",
                "insert {\"_id\":2} {\"v\":true,\"_id\":2}");
    check_write("dedup a b\ninto_id\nwrite insert", "{\"a\":1,\"b\":\"x\"}",
                "insert {\"_id\":{\"a\":1,\"b\":\"x\"}} "
                "{\"a\":1,\"b\":\"x\",\"_id\":{\"a\":1,\"b\":\"x\"}}");
}

static void test_the_hash_is_stored(void **state)
{
    (void)state;
    /* xxh3_128(bson.encode({"b": "x", "id": Int64(1)})), whatever the order and the number's form
     */
    static const char expected[] =
        "upsert {\"id\":1} {\"b\":\"x\",\"id\":1,\"h\":bin0(22a9820fd92e2b0cabc8955dc8e9f77b)}";
    static const char insert[] =
        "insert {\"id\":1} {\"id\":f1,\"b\":\"x\",\"h\":bin0(22a9820fd92e2b0cabc8955dc8e9f77b)}";

    check_write("dedup id\nconflict h", "{\"b\":\"x\",\"id\":1}", expected);
    check_write("dedup id\nconflict h\nwrite insert", "{\"id\":1.0,\"b\":\"x\"}", insert);
    check_write("dedup id\nconflict h", "{\"id\":1,\"h\":null}",
                "unsafe_name: the document has a field \"h\" of its own, where "
                "dedup.conflict_field goes (exclude or rename it, or choose another "
                "conflict_field)");
    check_write("dedup id\nconflict h\nrename x h", "{\"id\":1,\"x\":2}",
                "unsafe_name: the document has a field \"h\" of its own, where "
                "dedup.conflict_field goes (exclude or rename it, or choose another "
                "conflict_field)");
}

/* Two deliveries of one event: is it one payload? */
static bool same(const char *spec, const char *a, const char *b)
{
    struct write_op x = write_of(spec, a, "key one", 1), y = write_of(spec, b, "key two", 2);
    uint8_t hx[CANONICAL_HASH_BYTES], hy[CANONICAL_HASH_BYTES];

    assert_true(look_hash(x.document, "h", hx));
    assert_true(look_hash(y.document, "h", hy));
    write_op_clear(&x);
    write_op_clear(&y);
    return memcmp(hx, hy, sizeof hx) == 0;
}

static void test_what_the_hash_is_of(void **state)
{
#define E  "{\"id\":1,\"v\":2}"
#define E2 "{\"id\":1,\"v\":3}"
    static const struct {
        const char *spec, *a, *b;
        bool same;
    } rows[] = {
        {"dedup id\nconflict h", E, "{ \"v\": 2.0, \"id\": 1 }", true},
        {"dedup id\nconflict h", E, E2, false},
        {"dedup id\nconflict h\nexclude v", E, E2, true},
        {"dedup id\nconflict h\ninclude id", E, E2, true},
        {"dedup id\nconflict h\nunder p", E, E, true},
        /* What differs from delivery to delivery is not the payload's. */
        {"dedup id\nconflict h\nsource_fields s", E, E, true},
        {"dedup id\nconflict h\nsource_fields s", E, E2, false},
        {"dedup id\nconflict h\nset s.o @offset\nset k @key", E, E, true},
        {"dedup @header.h\nfields hd\nconflict h\nset o @offset", E, E, true},
        {"dedup id\ninto_id\nconflict h", E, E, true},
        {"dedup id\ninto_id\nconflict h", E, E2, false},
        {"dedup id\ninto_id\nconflict h\nset o @offset", E, E, true},
        {"dedup id\nconflict h\ntypes v decimal", E, "{\"id\":1,\"v\":2.00}", true},
        {"dedup id\nconflict h\ntypes v decimal", E, "{\"id\":1,\"v\":2.01}", false},
        {"dedup id\nconflict h\ntypes v date", "{\"id\":1,\"v\":\"2026-01-01T00:00:00Z\"}",
         "{\"id\":1,\"v\":\"2026-01-01T01:00:00+01:00\"}", true},
        {"dedup id\nconflict h", "{\"id\":1,\"\":{\"a.b\":1}}", "{\"\":{\"a.b\":2},\"id\":1}",
         false},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (same(rows[i].spec, rows[i].a, rows[i].b) != rows[i].same)
            fail_msg("%s: %s and %s", rows[i].spec, rows[i].a, rows[i].b);
}

/* The write mode and what is put beside the payload don't change the hash: the configuration may.
 */
static void test_the_hash_survives_changes_of_the_route(void **state)
{
    static const char *const specs[] = {
        "dedup id\nconflict h\nwrite insert",
        "dedup id\nconflict h\nset a 1\nsource_fields s",
        "dedup @key\nfields k\nconflict h",
    };
    struct write_op first = write_of("dedup id\nconflict h", E, "k", 1);
    uint8_t expected[CANONICAL_HASH_BYTES], hash[CANONICAL_HASH_BYTES];

    (void)state;
    assert_true(look_hash(first.document, "h", expected));
    write_op_clear(&first);
    for (size_t i = 0; i < sizeof specs / sizeof specs[0]; i++) {
        struct write_op op = write_of(specs[i], E, "k", 1);
        assert_true(look_hash(op.document, "h", hash));
        assert_memory_equal(hash, expected, sizeof hash);
        write_op_clear(&op);
    }
}

static void test_a_document_without_its_hash(void **state)
{
    struct config_route *route = fixture_route("dedup id\nconflict h");
    struct err e;
    struct mapping *m = mapping_new(route, &fixture_env, &e);
    struct write_op op = write_of("dedup id\nconflict h", E, NULL, 1);
    bson_t rest, *plain = BCON_NEW("id", BCON_INT64(1), "v", BCON_INT64(2));
    bson_t *own = BCON_NEW("id", BCON_INT64(1), "h", BCON_UTF8("sixteen bytes .."));

    (void)state;
    assert_true(mapping_without_hash(m, op.document, &rest));
    assert_true(bson_equal(&rest, plain));
    bson_destroy(&rest);
    assert_false(mapping_without_hash(m, plain, &rest));
    assert_false(mapping_without_hash(m, own, &rest)); /* somebody's text is no hash */
    bson_destroy(plain);
    bson_destroy(own);
    write_op_clear(&op);
    mapping_free(m);
    fixture_route_free(route);
}

/* More cases, from whole configurations, are in test_mapping_effects.c. */
static void test_a_document_without_effects(void **state)
{
    static char db[] = "db", a[] = "a", b[] = "b", key[] = "k", fences[] = "fences",
                field[] = "_fence";
    struct config_counter counter = {.collection = fences, .database = db};
    struct config_route routes[] = {
        {.database = db,
         .collection = a,
         .counters = &counter,
         .n_counters = 1,
         .lock = {.key = key, .fence = fences, .fence_field = field}},
        {.database = db, .collection = b},
    };
    struct config c = {.routes = routes, .n_routes = 2};
    bson_t *document = BCON_NEW("id", BCON_INT64(1), "_fence", BCON_INT64(2), "_effects", "{", "}",
                                "_by", BCON_INT64(3));
    bson_t *plain = BCON_NEW("id", BCON_INT64(1), "_by", BCON_INT64(3)), rest;

    (void)state;
    assert_true(mapping_without_effects(&c, &routes[0], document, &rest));
    assert_true(bson_equal(&rest, plain));
    bson_destroy(&rest);
    assert_false(mapping_without_effects(&c, &routes[1], document, &rest));
    bson_destroy(plain);
    bson_destroy(document);
}

/* The read for many operations. */
static void check_look(const char *spec, const char *const *values, size_t n, const char *expected)
{
    struct write_op ops[4];
    const struct write_op *list[4];
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER;
    struct buf text = {0};

    for (size_t i = 0; i < n; i++) {
        ops[i] = write_of(spec, values[i], "k", 1);
        list[i] = &ops[i];
    }
    look_filter(list, n, &filter);
    look_projection(ops[0].filter, strstr(spec, "conflict") ? "h" : NULL, &projection);
    fixture_show(&filter, false, &text);
    char *json = bson_as_relaxed_extended_json(&projection, NULL);
    buf_printf(&text, " %s", json);
    assert_string_equal(text.data, expected);
    bson_free(json);
    buf_clear(&text);
    bson_destroy(&filter);
    bson_destroy(&projection);
    for (size_t i = 0; i < n; i++)
        write_op_clear(&ops[i]);
}

static void test_reads(void **state)
{
    static const char *const values[] = {"{\"id\":1,\"b\":\"x\"}", "{\"id\":\"2\",\"b\":\"y\"}"};
    static const char *const shared[] = {
        "{\"id\":1,\"b\":\"x\",\"c\":0}", "{\"id\":1,\"b\":\"y\",\"c\":0}",
        "{\"id\":2,\"b\":\"x\",\"c\":0}", "{\"id\":3,\"b\":\"y\",\"c\":0}"};

    (void)state;
    check_look("dedup id", values, 1, "{\"id\":1} { \"id\" : 1, \"_id\" : 0 }");
    check_look("dedup id", values, 2, "{\"id\":{\"$in\":[1,\"2\"]}} { \"id\" : 1, \"_id\" : 0 }");
    check_look("dedup id\ninto_id\nconflict h", values, 2,
               "{\"_id\":{\"$in\":[1,\"2\"]}} { \"_id\" : 1, \"h\" : 1 }");
    check_look("dedup id b", values, 2,
               "{\"$or\":[{\"id\":1,\"b\":\"x\"},{\"id\":\"2\",\"b\":\"y\"}]} "
               "{ \"id\" : 1, \"b\" : 1, \"_id\" : 0 }");
    /* Those that differ in one field only share a branch. */
    check_look("dedup id b", shared, 4,
               "{\"$or\":[{\"id\":{\"$in\":[1,2]},\"b\":\"x\"},{\"id\":{\"$in\":[1,3]},"
               "\"b\":\"y\"}]} { \"id\" : 1, \"b\" : 1, \"_id\" : 0 }");
    check_look("dedup b id", shared, 4,
               "{\"$or\":[{\"b\":\"x\",\"id\":{\"$in\":[1,2]}},{\"b\":\"y\","
               "\"id\":{\"$in\":[1,3]}}]} { \"b\" : 1, \"id\" : 1, \"_id\" : 0 }");
    check_look("dedup id c b", shared, 4,
               "{\"$or\":[{\"id\":{\"$in\":[1,2]},\"c\":0,\"b\":\"x\"},{\"id\":{\"$in\":[1,3]},"
               "\"c\":0,\"b\":\"y\"}]} { \"id\" : 1, \"c\" : 1, \"b\" : 1, \"_id\" : 0 }");
    check_look("dedup id b\ninto_id", values, 2,
               "{\"_id\":{\"$in\":[{\"id\":1,\"b\":\"x\"},{\"id\":\"2\",\"b\":\"y\"}]}} "
               "{ \"_id\" : 1 }");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_modes),
        cmocka_unit_test(test_the_hash_is_stored),
        cmocka_unit_test(test_what_the_hash_is_of),
        cmocka_unit_test(test_the_hash_survives_changes_of_the_route),
        cmocka_unit_test(test_a_document_without_its_hash),
        cmocka_unit_test(test_a_document_without_effects),
        cmocka_unit_test(test_reads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
