/* One repair: what is set, and what is asked. That it loses nothing: tests/model/test_repair.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core/repair.h"

#define HEAD                                                                                       \
    "[kafka]\nbrokers='b:1'\ngroup='g'\n[mongo]\nuri='mongodb://h'\n[dead_letter]\ntopic='d'\n"    \
    "[redis]\nuri='redis://h'\n[[route]]\ntopics=['a']\ncollection='db.x'\nname='a'\n"
#define DEDUP       "[route.dedup]\nkey=['e']\n"
#define OPERATION   "operation={source='op',insert=['f'],delete=['u']}\nentity={key=['u']}\n"
#define COUNTER     "[[route.counter]]\ncollection='db.k'\nfilter={_id='u'}\ninc={n=1,m=1}\n"
#define WITH_MIRROR "mirror='k:{_id}'\n"

enum { NOW = 1700000000 };

struct one {
    struct config *config;
    struct reconcile_plan plan;
    struct repair *r;
};

static bson_t *bson(const char *json)
{
    char *text = mem_text(json);
    bson_error_t be;

    for (char *c = text; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    bson_t *b = bson_new_from_json((const uint8_t *)text, -1, &be);
    if (b == NULL)
        fail_msg("%s: %s", text, be.message);
    mem_free(text);
    return b;
}

static void begin(struct one *o, const char *text, enum repair_way way, bool logged)
{
    struct config_input in = {.name = "test", .text = slice_text(text)};
    bson_t *key = BCON_NEW("_id", "u");
    struct err e = {0};

    o->config = config_parse(&in, &e);
    if (o->config == NULL)
        fail_msg("%s", e.text);
    reconcile_plan_init(&o->plan, o->config);
    o->plan.families[0].sources[0].logged = logged;
    o->r = repair_new(&o->plan.families[0], o->config, way, true, NOW);
    repair_begin(o->r, key);
    bson_destroy(key);
}

static void end(struct one *o)
{
    repair_free(o->r);
    reconcile_plan_clear(&o->plan);
    config_free(o->config);
}

/* Up to this step: the counter document (NULL: none) and the sums are handed over. */
static void go_to(struct one *o, enum repair_step to, const char *counter, const char *sums)
{
    size_t source;

    for (enum repair_step s; (s = repair_next(o->r, &source)) != to;) {
        bson_t *found = s == REPAIR_READ && counter ? bson(counter)
                        : s == REPAIR_COUNT         ? bson(sums)
                                                    : NULL;

        assert_int_not_equal(s, REPAIR_END);
        if (found && s == REPAIR_READ)
            repair_counter(o->r, found);
        else if (found)
            repair_counted(o->r, source, found);
        bson_destroy(found);
        repair_answer(o->r, REPAIR_DONE);
    }
}

static void expect_update(const char *text, enum repair_way way, const char *counter,
                          const char *expected)
{
    bson_t update = BSON_INITIALIZER, *right = bson(expected);
    struct one o;

    begin(&o, text, way, false);
    go_to(&o, REPAIR_SET, counter, "{'_id':null,'s0':{'$numberLong':'3'},'s1':3}");
    repair_update(o.r, &update);
    char *got = bson_as_canonical_extended_json(&update, NULL),
         *want = bson_as_canonical_extended_json(right, NULL);
    assert_string_equal(got, want);
    bson_free(got);
    bson_free(want);
    bson_destroy(right);
    bson_destroy(&update);
    end(&o);
}

#define NUMBER(n) "{'$numberLong':'" n "'}"
#define RIGHT_M   "'m':" NUMBER("3")
#define MIRRORED  HEAD DEDUP COUNTER WITH_MIRROR
#define PLAIN     HEAD DEDUP COUNTER

/* Each repair has a version of its own; that of a mirrored one is above what was ever in Redis. */
static void test_versions(void **state)
{
    (void)state;
    expect_update(MIRRORED, REPAIR_SNAPSHOT, "{'_id':'u','n':9," RIGHT_M ",'_version':7}",
                  "{'$set':{'n':" NUMBER("3") ",'_version':" NUMBER("1700000000") "}}");
    expect_update(MIRRORED, REPAIR_COMPARE,
                  "{'_id':'u','n':9," RIGHT_M ",'_version':" NUMBER("1700000001") "}",
                  "{'$set':{'n':" NUMBER("3") ",'_version':" NUMBER("1700000002") "}}");
    expect_update(MIRRORED, REPAIR_SNAPSHOT, NULL,
                  "{'$setOnInsert':{'n':" NUMBER("3") "," RIGHT_M
                                                      ",'_version':" NUMBER("1700000000") "}}");
    expect_update(PLAIN, REPAIR_COMPARE, NULL,
                  "{'$setOnInsert':{'n':" NUMBER("3") "," RIGHT_M ",'_version':" NUMBER("1") "}}");
    expect_update(PLAIN, REPAIR_COMPARE, "{'_id':'u','n':9," RIGHT_M "}",
                  "{'$set':{'n':" NUMBER("3") "},'$inc':{'_version':" NUMBER("1") "}}");
    expect_update(PLAIN, REPAIR_SNAPSHOT, "{'_id':'u','n':9," RIGHT_M "}",
                  "{'$set':{'n':" NUMBER("3") "}}");
}

/* A ledger is asked for what is open where log may have left something. */
static void test_logged(void **state)
{
    const struct {
        enum repair_way way;
        bool logged;
        enum repair_step step;
    } rows[] = {{REPAIR_SNAPSHOT, false, REPAIR_COUNT},
                {REPAIR_SNAPSHOT, true, REPAIR_OPEN},
                {REPAIR_COMPARE, false, REPAIR_OPEN}};

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        size_t source;
        struct one o;

        begin(&o, HEAD OPERATION DEDUP COUNTER, rows[i].way, rows[i].logged);
        go_to(&o, REPAIR_READ, NULL, NULL);
        repair_answer(o.r, REPAIR_DONE);
        assert_int_equal(repair_next(o.r, &source), rows[i].step);
        end(&o);
    }
}

/* The field whose sum doesn't fit, and no other; nothing is set. */
static void test_too_large(void **state)
{
    const struct repair_column *columns;
    struct one o;

    (void)state;
    begin(&o, PLAIN, REPAIR_SNAPSHOT, false);
    go_to(&o, REPAIR_END, "{'_id':'u','n':9,'m':9}",
          "{'_id':null,'s0':1e30,'s1':{'$numberLong':'3'}}");
    assert_int_equal(repair_result(o.r, &columns), REPAIR_TOO_LARGE);
    assert_true(columns[0].too_large);
    assert_false(columns[1].too_large);
    assert_int_equal(columns[1].difference, RECONCILE_DIFFERENT);
    assert_int_equal(columns[1].counted, 3);
    end(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_versions),
        cmocka_unit_test(test_logged),
        cmocka_unit_test(test_too_large),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
