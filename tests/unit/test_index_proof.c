/*
 * The proof of the dedup index, from answers as servers give them. listIndexes and listCollections:
 * seen on mongod 6.0.5 (tests/system/test_mongo_index.c makes them anew). config.collections: the
 * form of the MongoDB manual (5.0 to 8.0), and what 4.4 leaves of a dropped collection.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/index_proof.h"

#define ID_INDEX     "{\"v\":2,\"key\":{\"_id\":1},\"name\":\"_id_\"}"
#define UNIQUE(name) ",\"name\":\"" name "\",\"unique\":true}"

/* Fields as "a,b" or "_id" for into. */
static struct config_route route_of(char *fields, char *items[8])
{
    static char database[] = "d", collection[] = "c";
    struct config_route r = {.database = database, .collection = collection};
    char *save = NULL;

    r.dedup.into_id = strcmp(fields, "_id") == 0;
    r.dedup.fields.items = items;
    if (!r.dedup.into_id)
        for (char *f = strtok_r(fields, ",", &save); f; f = strtok_r(NULL, ",", &save))
            items[r.dedup.fields.n++] = f;
    return r;
}

static bson_t *bson_of(const char *json)
{
    bson_error_t error;
    bson_t *b = bson_new_from_json((const uint8_t *)json, -1, &error);

    if (!b)
        fail_msg("%s: %s", error.message, json);
    return b;
}

struct answers {
    const char *fields;
    const char *collection; /* NULL: not there */
    const char *shard_key;  /* of config.collections; NULL: not sharded */
    const char *indexes[4]; /* in the order listed */
    const char *forbidden;  /* "" nothing */
    bool trust;
    const char *wrong; /* words that the error has to hold; NULL: proved */
    enum err_kind kind;
};

static void say(const struct err *e, const struct answers *a)
{
    char words[256], *save = NULL;

    assert_int_equal(e->kind, a->kind ? a->kind : ERR_CONFIG);
    (void)snprintf(words, sizeof words, "%s|d.c", a->wrong);
    for (char *w = strtok_r(words, "|", &save); w; w = strtok_r(NULL, "|", &save))
        if (!strstr(e->text, w))
            fail_msg("\"%s\" does not say \"%s\"", e->text, w);
}

static bool ask(struct index_proof *p, const struct answers *a, struct err *e)
{
    bool ok = true;

    if (a->collection) {
        bson_t *info = bson_of(a->collection);
        ok = index_proof_collection(p, info, e);
        bson_destroy(info);
    }
    if (ok && a->shard_key) {
        bson_t *entry = bson_of(a->shard_key);
        ok = index_proof_shard_key(p, entry, e);
        bson_destroy(entry);
    }
    for (size_t i = 0; i < 4 && a->indexes[i]; i++) {
        bson_t *index = bson_of(a->indexes[i]);
        index_proof_index(p, index);
        bson_destroy(index);
    }
    if (a->forbidden)
        index_proof_forbidden(p, a->forbidden, "readWrite");
    return ok;
}

static void judge(const struct answers *a)
{
    struct index_proof p;
    char fields[64], *items[8];
    struct err e = {0};

    (void)snprintf(fields, sizeof fields, "%s", a->fields);
    struct config_route route = route_of(fields, items);
    route.trust_index = a->trust;
    struct need_index need;
    need_identity(&route, &need);
    index_proof_begin(&p, &need);
    bool ok = ask(&p, a, &e) && index_proof_end(&p, &e);
    if (ok && a->wrong)
        fail_msg("proved, though: %s", a->wrong);
    if (!ok && !a->wrong)
        fail_msg("not proved: %s", e.text);
    if (!ok)
        say(&e, a);
    need_index_clear(&need);
}

#define JUDGE_ALL(list)                                                                            \
    for (size_t i_ = 0; i_ < sizeof(list) / sizeof(list)[0]; i_++)                                 \
    judge(&(list)[i_])

#define PLAIN                                                                                      \
    "{\"name\":\"c\",\"type\":\"collection\",\"options\":{},\"info\":{\"readOnly\":false},"        \
    "\"idIndex\":" ID_INDEX "}"

static void indexes(void **state)
{
    static const struct answers list[] = {
        {"a",
         PLAIN,
         NULL,
         {ID_INDEX, "{\"v\":2,\"key\":{\"a\":1}" UNIQUE("x")},
         NULL,
         false,
         NULL,
         0},
        {"a",
         PLAIN,
         NULL,
         {ID_INDEX, "{\"v\":2,\"key\":{\"a\":-1},\"hidden\":true" UNIQUE("x")},
         NULL,
         false,
         NULL,
         0},
        {"a,b",
         PLAIN,
         NULL,
         {ID_INDEX, "{\"v\":2,\"key\":{\"b\":-1,\"a\":1}" UNIQUE("x")},
         NULL,
         false,
         NULL,
         0},
        {"a,b.c",
         PLAIN,
         NULL,
         {ID_INDEX, "{\"v\":2,\"key\":{\"a\":1,\"b.c\":1}" UNIQUE("x")},
         NULL,
         false,
         NULL,
         0},
        {"_id", PLAIN, NULL, {ID_INDEX}, NULL, false, NULL, 0},
        {"_id", NULL, NULL, {NULL}, NULL, false, NULL, 0},
        {"a", NULL, NULL, {NULL}, NULL, false, "not there|(a)|init", 0},
        {"a", PLAIN, NULL, {ID_INDEX}, NULL, false, "no unique index on exactly (a)|init", 0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":1},\"name\":\"x\"}"},
         NULL,
         false,
         "x is not unique|drop",
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":1},\"name\":\"x\",\"unique\":false}"},
         NULL,
         false,
         "x is not unique",
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":1},\"name\":\"x\",\"prepareUnique\":true}"},
         NULL,
         false,
         "x is not unique",
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":1},\"sparse\":true" UNIQUE("x")},
         NULL,
         false,
         "x is sparse",
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":1},\"partialFilterExpression\":{\"a\":1}" UNIQUE("x")},
         NULL,
         false,
         "x is partial",
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":1},\"collation\":{\"locale\":\"en\",\"strength\":1}" UNIQUE(
             "x")},
         NULL,
         false,
         "x has a collation",
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":1},\"collation\":{\"locale\":\"simple\"}" UNIQUE("x")},
         NULL,
         false,
         NULL,
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":\"hashed\"},\"name\":\"x\"}"},
         NULL,
         false,
         "x is hashed",
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":1,\"b\":1}" UNIQUE("x")},
         NULL,
         false,
         "exactly (a)",
         0},
        {"a,b",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":1}" UNIQUE("x")},
         NULL,
         false,
         "exactly (a, b)",
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a.b\":1}" UNIQUE("x")},
         NULL,
         false,
         "exactly (a)",
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":1}" UNIQUE("x"),
          "{\"v\":2,\"key\":{\"t\":1},\"name\":\"gone\",\"expireAfterSeconds\":5}"},
         NULL,
         false,
         "TTL index gone",
         0},
        {"_id",
         PLAIN,
         NULL,
         {ID_INDEX, "{\"v\":2,\"key\":{\"t\":1},\"name\":\"gone\",\"expireAfterSeconds\":5}"},
         NULL,
         false,
         "TTL index gone",
         0},
        {"a",
         PLAIN,
         NULL,
         {"{\"spec\":{\"v\":2,\"key\":{\"a\":1}" UNIQUE(
             "x") ",\"buildUUID\":{\"$uuid\":\"00000000-0000-0000-0000-000000000000\"}}"},
         NULL,
         false,
         "x is still being built",
         0},
        /* A wrong one beside a right one does no harm, whichever is first. */
        {"a",
         PLAIN,
         NULL,
         {"{\"v\":2,\"key\":{\"a\":-1},\"name\":\"y\"}", "{\"v\":2,\"key\":{\"a\":1}" UNIQUE("x")},
         NULL,
         false,
         NULL,
         0},
    };

    (void)state;
    JUDGE_ALL(list);
}

static void collections(void **state)
{
    static const struct answers list[] = {
        {"_id",
         "{\"name\":\"c\",\"type\":\"collection\",\"options\":{\"capped\":true,\"size\":100096}}",
         NULL,
         {ID_INDEX},
         NULL,
         false,
         "capped",
         0},
        {"_id",
         "{\"name\":\"c\",\"type\":\"timeseries\",\"options\":{\"timeseries\":{\"timeField\":\"t\"}"
         "}}",
         NULL,
         {NULL},
         NULL,
         false,
         "time-series",
         0},
        {"_id",
         "{\"name\":\"c\",\"type\":\"view\",\"options\":{\"viewOn\":\"x\",\"pipeline\":[]}}",
         NULL,
         {NULL},
         NULL,
         false,
         "view",
         0},
        {"_id",
         "{\"name\":\"c\",\"type\":\"collection\",\"options\":{\"collation\":{\"locale\":\"de\","
         "\"strength\":3}}}",
         NULL,
         {ID_INDEX},
         NULL,
         false,
         "default collation",
         0},
        {"_id",
         "{\"name\":\"c\",\"type\":\"collection\",\"options\":{\"collation\":{\"locale\":"
         "\"simple\"}}}",
         NULL,
         {ID_INDEX},
         NULL,
         false,
         NULL,
         0},
        {"_id",
         "{\"name\":\"c\",\"type\":\"collection\",\"options\":{\"clusteredIndex\":{\"v\":2,\"key\":"
         "{\"_id\":1},\"name\":\"_id_\",\"unique\":true}}}",
         NULL,
         {"{\"v\":2,\"key\":{\"_id\":1},\"clustered\":true" UNIQUE("_id_")},
         NULL,
         false,
         NULL,
         0},
        {"_id",
         "{\"name\":\"c\",\"type\":\"collection\",\"options\":{\"clusteredIndex\":{\"key\":{\"_"
         "id\":1},\"unique\":true},\"expireAfterSeconds\":5}}",
         NULL,
         {NULL},
         NULL,
         false,
         "expireAfterSeconds",
         0},
        {"_id",
         "{\"name\":\"c\",\"type\":\"collection\",\"options\":{\"validator\":{\"a\":1}}}",
         NULL,
         {ID_INDEX},
         NULL,
         false,
         NULL,
         0},
    };

    (void)state;
    JUDGE_ALL(list);
}

#define SHARDED(key, more)                                                                         \
    "{\"_id\":\"d.c\",\"lastmodEpoch\":{\"$oid\":\"6560a5d1e4b0c0ffee000001\"},"                   \
    "\"lastmod\":{\"$date\":0},\"timestamp\":{\"$timestamp\":{\"t\":1700000000,\"i\":3}},"         \
    "\"uuid\":{\"$uuid\":\"00000000-0000-0000-0000-000000000000\"},\"key\":" key                   \
    ",\"unique\":false,\"noBalance\":false" more "}"

static void shard_keys(void **state)
{
    static const char a[] = "{\"v\":2,\"key\":{\"a\":1}" UNIQUE("x");
    static const char ab[] = "{\"v\":2,\"key\":{\"a\":1,\"b\":1}" UNIQUE("x");
    static const struct answers list[] = {
        {"a", PLAIN, SHARDED("{\"a\":1}", ""), {a}, NULL, false, NULL, 0},
        {"a", PLAIN, SHARDED("{\"a\":\"hashed\"}", ""), {a}, NULL, false, NULL, 0},
        {"a,b", PLAIN, SHARDED("{\"a\":1}", ""), {ab}, NULL, false, NULL, 0},
        {"a,b", PLAIN, SHARDED("{\"b\":1,\"a\":1}", ""), {ab}, NULL, false, NULL, 0},
        {"_id", PLAIN, SHARDED("{\"_id\":1}", ""), {ID_INDEX}, NULL, false, NULL, 0},
        {"_id", PLAIN, SHARDED("{\"_id.tenant\":1}", ""), {ID_INDEX}, NULL, false, NULL, 0},
        {"a",
         PLAIN,
         SHARDED("{\"b\":1}", ""),
         {a},
         NULL,
         false,
         "sharded by b|no part of the dedup key|dedup.key",
         0},
        {"a", PLAIN, SHARDED("{\"a\":1,\"b\":1}", ""), {a}, NULL, false, "sharded by b", 0},
        {"a", PLAIN, SHARDED("{\"_id\":\"hashed\"}", ""), {a}, NULL, false, "sharded by _id", 0},
        {"a", PLAIN, SHARDED("{\"ab\":1}", ""), {a}, NULL, false, "sharded by ab", 0},
        {"a.b",
         PLAIN,
         SHARDED("{\"a\":1}", ""),
         {"{\"v\":2,\"key\":{\"a.b\":1}" UNIQUE("x")},
         NULL,
         false,
         "sharded by a,",
         0},
        /* The unique index that every collection has on _id is one for each shard. */
        {"_id",
         PLAIN,
         SHARDED("{\"tenant\":1}", ""),
         {ID_INDEX},
         NULL,
         false,
         "sharded by tenant",
         0},
        /* Not sharded, but listed: since 8.0; and what 4.4 leaves behind. */
        {"a", PLAIN, SHARDED("{\"_id\":1}", ",\"unsplittable\":true"), {a}, NULL, false, NULL, 0},
        {"a", PLAIN, "{\"_id\":\"d.c\",\"dropped\":true}", {a}, NULL, false, NULL, 0},
        {"a", PLAIN, SHARDED("{\"b\":1}", ",\"dropped\":true"), {a}, NULL, false, NULL, 0},
        {"a", PLAIN, "{\"_id\":\"d.c\"}", {a}, NULL, false, "without a shard key", 0},
    };

    (void)state;
    JUDGE_ALL(list);
}

static void what_may_not_be_asked(void **state)
{
    static const char good[] = "{\"v\":2,\"key\":{\"a\":1}" UNIQUE("x");
    static const char wrong[] = "{\"v\":2,\"key\":{\"a\":1},\"name\":\"x\"}";
    static const struct answers list[] = {
        {"a",
         PLAIN,
         NULL,
         {NULL},
         "listIndexes",
         false,
         "no right to listIndexes|readWrite|trust_index = true",
         ERR_AUTH},
        {"a",
         PLAIN,
         NULL,
         {good},
         "listCollections",
         false,
         "no right to listCollections|trust_index",
         ERR_AUTH},
        {"_id", NULL, NULL, {NULL}, "listIndexes", false, "no right to listIndexes", ERR_AUTH},
        {"a", PLAIN, NULL, {NULL}, "listIndexes", true, NULL, 0},
        {"a", NULL, NULL, {good}, "listCollections", true, NULL, 0},
        {"_id", NULL, NULL, {NULL}, "listIndexes", true, NULL, 0},
        /* Trust is no cure for what can be seen to be wrong. */
        {"a", NULL, NULL, {wrong}, "listCollections", true, "x is not unique", 0},
        {"a",
         "{\"type\":\"collection\",\"options\":{\"capped\":true}}",
         NULL,
         {NULL},
         "listIndexes",
         true,
         "capped",
         0},
        {"a", NULL, SHARDED("{\"b\":1}", ""), {NULL}, "listIndexes", true, "sharded by b", 0},
        {"a",
         NULL,
         NULL,
         {good, "{\"v\":2,\"key\":{\"t\":1},\"name\":\"gone\",\"expireAfterSeconds\":5}"},
         "listCollections",
         true,
         "TTL index gone",
         0},
        /* Nor is it asked for where everything could be asked. */
        {"a", PLAIN, NULL, {ID_INDEX}, NULL, true, "no unique index on exactly (a)", 0},
    };

    (void)state;
    JUDGE_ALL(list);
}

static void all_that_is_forbidden_is_named(void **state)
{
    char fields[] = "a", *items[8];
    struct config_route route = route_of(fields, items);
    struct index_proof p;
    struct err e = {0};

    (void)state;
    struct need_index need;
    need_identity(&route, &need);
    index_proof_begin(&p, &need);
    index_proof_forbidden(&p, "listCollections", "readWrite");
    index_proof_forbidden(&p, "find in config.collections", "clusterMonitor");
    assert_false(index_proof_end(&p, &e));
    assert_string_equal(
        e.text,
        "d.c: no right to listCollections (role readWrite has it), find in config.collections "
        "(role clusterMonitor has it), so it can't be proved that the dedup index is there; "
        "grant it, or set trust_index = true in the route");
    need_index_clear(&need);
}

/* fields, the one index, forbidden and trust -> may the index be made, and is it missing? */
static void what_may_be_made(void **state)
{
    static const struct {
        const char *fields, *index;
        bool forbidden, trust, ok, missing;
    } list[] = {
        {"a", ID_INDEX, false, false, true, true},
        {"a", "{\"key\":{\"a\":1}" UNIQUE("x"), false, false, true, false},
        {"a", "{\"key\":{\"a\":1},\"name\":\"x\"}", false, false, false, false},
        {"a", "{\"key\":{\"t\":1},\"name\":\"x\",\"expireAfterSeconds\":5}", false, false, false,
         false},
        {"_id", ID_INDEX, false, false, true, false},
        {"a", ID_INDEX, true, false, false, false},
        {"a", ID_INDEX, true, true, true, true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct index_proof p;
        char fields[64], *items[8];
        struct err e = {0};
        bool missing = !list[i].missing;

        (void)snprintf(fields, sizeof fields, "%s", list[i].fields);
        struct config_route route = route_of(fields, items);
        route.trust_index = list[i].trust;
        struct need_index need;
        need_identity(&route, &need);
        index_proof_begin(&p, &need);
        bson_t *index = bson_of(list[i].index);
        index_proof_index(&p, index);
        bson_destroy(index);
        if (list[i].forbidden)
            index_proof_forbidden(&p, "listIndexes", "readWrite");
        assert_int_equal(index_proof_may_make(&p, &missing, &e), list[i].ok);
        assert_int_equal(missing, list[i].missing);
        need_index_clear(&need);
    }
}

static void an_earlier_unique_index_is_told(void **state)
{
    static const char *const order[2][2] = {
        {"{\"key\":{\"email\":1}" UNIQUE("email_1"), "{\"key\":{\"a\":1}" UNIQUE("x")},
        {"{\"key\":{\"a\":1}" UNIQUE("x"), "{\"key\":{\"email\":1}" UNIQUE("email_1")},
    };

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct index_proof p;
        char fields[] = "a", *items[8];
        struct err e = {0};
        struct config_route route = route_of(fields, items);

        struct need_index need;
        need_identity(&route, &need);
        index_proof_begin(&p, &need);
        for (size_t j = 0; j < 2; j++) {
            bson_t *index = bson_of(order[i][j]);
            index_proof_index(&p, index);
            bson_destroy(index);
        }
        assert_true(index_proof_end(&p, &e));
        assert_string_equal(p.found_name, "x");
        assert_string_equal(p.earlier, i == 0 ? "email_1" : "");
        need_index_clear(&need);
    }
}

/* A server names the index that was made first: the number's has to be before its text's. */
static void the_number_comes_before_the_text(void **state)
{
    static const char number[] = "{\"key\":{\"g\":1,\"no\":1}" UNIQUE("n"),
                      text[] = "{\"key\":{\"ref\":1}" UNIQUE("t"),
                      plain[] = "{\"key\":{\"ref\":1},\"name\":\"plain\"}",
                      other[] = "{\"key\":{\"email\":1}" UNIQUE("email_1");
    static const struct {
        const char *listed[3];
        bool fine, missing;
    } t[] = {{{other, number, text}, true, false}, {{plain, number, text}, true, false},
             {{number, NULL, NULL}, true, false},  {{other, plain, NULL}, false, true},
             {{text, number, NULL}, false, false}, {{text, other, NULL}, false, false}};
    char d[] = "d", g[] = "g", no[] = "no", ref[] = "ref", name[] = "idemsink_sequence",
         *items[] = {g, no};
    const struct need_index need = {.use = NEED_SEQUENCE,
                                    .what = "sequence index",
                                    .name = name,
                                    .database = d,
                                    .collection = d,
                                    .fields = {items, 2},
                                    .unique = true,
                                    .partial = no,
                                    .before = ref,
                                    .expire_s = -1};

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        struct index_proof p;
        struct err e = {0};
        bool missing;

        index_proof_begin(&p, &need);
        for (size_t j = 0; j < 3 && t[i].listed[j]; j++) {
            bson_t *index = bson_of(t[i].listed[j]);
            index_proof_index(&p, index);
            bson_destroy(index);
        }
        assert_int_equal(index_proof_end(&p, &e), t[i].fine);
        assert_int_equal(index_proof_may_make(&p, &missing, &e), t[i].fine || t[i].missing);
        assert_int_equal(missing, t[i].missing);
        if (!t[i].fine && !t[i].missing)
            assert_non_null(strstr(e.text, "the unique index t on ref was made before the sequence "
                                           "index"));
    }
}

/* Counters may be meant to expire, but not to roll out. */
static void counters_roll_out_of_capped_ones(void **state)
{
    static const enum need_use uses[] = {NEED_COUNTER, NEED_COUNTER_FOUND};
    bson_t *capped = bson_of("{\"type\":\"collection\",\"options\":{\"capped\":true}}");
    bson_t *plain = bson_of(PLAIN);

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct need_index need = {.use = uses[i], .database = "d", .collection = "c"};
        struct index_proof p;
        struct err e = {0};

        index_proof_begin(&p, &need);
        assert_false(index_proof_collection(&p, capped, &e));
        assert_int_equal(e.kind, ERR_CONFIG);
        assert_non_null(strstr(e.text, "d.c is capped"));
        index_proof_begin(&p, &need);
        assert_true(index_proof_collection(&p, plain, &e));
    }
    bson_destroy(capped);
    bson_destroy(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indexes),
        cmocka_unit_test(collections),
        cmocka_unit_test(shard_keys),
        cmocka_unit_test(what_may_not_be_asked),
        cmocka_unit_test(all_that_is_forbidden_is_named),
        cmocka_unit_test(what_may_be_made),
        cmocka_unit_test(counters_roll_out_of_capped_ones),
        cmocka_unit_test(an_earlier_unique_index_is_told),
        cmocka_unit_test(the_number_comes_before_the_text),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
