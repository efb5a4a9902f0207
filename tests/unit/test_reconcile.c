/* Which counters belong together, and what they are counted from. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/reconcile.h"

#define HEAD                                                                                       \
    "[kafka]\nbrokers='b:1'\ngroup='g'\n[mongo]\nuri='mongodb://h'\n[dead_letter]\ntopic='d'\n"
#define ROUTE(topic, coll, more)                                                                   \
    "[[route]]\ntopics=['" topic "']\ncollection='db." coll "'\nname='" topic "'\n" more           \
    "[route.dedup]\nkey=['e']\n"
#define COUNTER(coll, filter, inc)                                                                 \
    "[[route.counter]]\ncollection='db." coll "'\nfilter={" filter "}\ninc={" inc "}\n"

struct planned {
    struct config *config;
    struct reconcile_plan plan;
};

static void plan(struct planned *p, const char *text)
{
    struct config_input in = {.name = "test", .text = slice_text(text)};
    struct err e = {0};

    p->config = config_parse(&in, &e);
    if (p->config == NULL)
        fail_msg("%s", e.text);
    reconcile_plan_init(&p->plan, p->config);
}

static void done(struct planned *p)
{
    reconcile_plan_clear(&p->plan);
    config_free(p->config);
}

static bson_t *bson(const char *json)
{
    bson_error_t be;
    bson_t *b = bson_new_from_json((const uint8_t *)json, -1, &be);

    if (b == NULL)
        fail_msg("%s: %s", json, be.message);
    return b;
}

static void test_families(void **state)
{
    struct planned p;

    (void)state;
    plan(&p, HEAD ROUTE("a", "x", "") COUNTER("k", "_id='u'", "n=1")
                 COUNTER("k", "_id='v'", "m=2,n='w.y'") COUNTER("l", "_id='u'", "n=1")
                     ROUTE("b", "y", "") COUNTER("k", "_id='u'", "o=-1"));
    assert_int_equal(p.plan.n, 2);
    const struct reconcile_family *f = &p.plan.families[0];
    assert_null(f->unable);
    assert_int_equal(f->n_sources, 3);
    assert_int_equal(f->n_columns, 3);
    assert_string_equal(f->columns[1], "m");
    assert_int_equal(f->sources[1].columns[1], 0);
    assert_string_equal(f->sources[1].amounts[1], "w.y");
    assert_int_equal(f->sources[1].constants[0], 2);
    assert_int_equal(f->sources[2].constants[0], -1);
    assert_int_equal(f->sources[2].route, 1);
    assert_string_equal(p.plan.families[1].collection, "l");
    done(&p);
}

static void expect_unable(const char *text, const char *word)
{
    struct planned p;

    plan(&p, text);
    if (p.plan.families[0].unable == NULL || strstr(p.plan.families[0].unable, word) == NULL)
        fail_msg("\"%s\" does not say %s",
                 p.plan.families[0].unable ? p.plan.families[0].unable : "", word);
    done(&p);
}

static void test_unable(void **state)
{
    struct planned p;

    (void)state;
    expect_unable(HEAD ROUTE("a", "x", "") COUNTER("k", "_id='@header.h'", "n=1"), "[route.set]");
    expect_unable(HEAD ROUTE("a", "x", "exclude=['w']\n") COUNTER("k", "_id='u'", "n='w'"),
                  "exclude");
    expect_unable(HEAD ROUTE("a", "x", "") COUNTER("k", "_id='u'", "n=1")
                      COUNTER("k", "i='u'", "n=1"),
                  "other fields");
    /* A document doesn't say which route it came by. */
    expect_unable(HEAD ROUTE("a", "x", "") COUNTER("k", "_id='u'", "n=1") ROUTE("b", "x", ""),
                  "told apart");
    expect_unable(HEAD ROUTE("a", "x", "") COUNTER("k", "_id='u'", "n=1") ROUTE("b", "x", "")
                      COUNTER("k", "_id='u'", "n=2"),
                  "told apart");
    plan(&p, HEAD ROUTE("a", "x", "") COUNTER("k", "_id='u'", "n=1") ROUTE("b", "x", "")
                 COUNTER("k", "_id='u'", "n=1"));
    assert_null(p.plan.families[0].unable);
    assert_int_equal(p.plan.families[0].n_sources, 1); /* counted once */
    done(&p);
}

/* keys: what a result of the aggregation gives, NULL for nothing. */
static void test_groups(void **state)
{
    static const struct {
        const char *group, *key;
    } rows[] = {
        {"{'_id':{'k0':'a','k1':1},'s0':2}", "{'a':'a','b':1}"},
        {"{'_id':{'k0':'a','k1':1.0},'s0':2}", "{'a':'a','b':1}"},
        {"{'_id':{'k0':'a','k1':{'$numberDecimal':'1.0'}},'s0':2}", "{'a':'a','b':1}"},
        {"{'_id':{'k0':'a','k1':1.5},'s0':2}", NULL},
        {"{'_id':{'k0':'a','k1':null},'s0':2}", NULL},
        {"{'_id':{'k0':'','k1':1},'s0':2}", NULL},
        {"{'_id':{'k0':'a','k1':[1]},'s0':2}", NULL},
        {"{'_id':{'k0':'a','k1':{'$x':1}},'s0':2}", NULL},
        {"{'_id':{'k0':'a'},'s0':2}", NULL},
        {"{'_id':{'k1':'a'},'s0':2}", NULL},
        {"{'_id':{'k0':'a','k1':1},'s0':2.5e30}", "large"},
    };
    struct planned p;

    (void)state;
    plan(&p, HEAD ROUTE("a", "x", "") COUNTER("k", "a='u',b='v'", "n=1"));
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[256];
        bson_t key = BSON_INITIALIZER;
        int64_t sum = 0;
        bool large;

        (void)snprintf(text, sizeof text, "%s", rows[i].group);
        for (char *c = text; *c; c++)
            *c = *c == '\'' ? '"' : *c;
        bson_t *group = bson(text);
        bool ok = reconcile_group(&p.plan.families[0], 0, group, &key, &sum, &large);
        bool want_large = rows[i].key && strcmp(rows[i].key, "large") == 0;
        if (ok != (rows[i].key && !want_large) || large != want_large)
            fail_msg("%s", rows[i].group);
        if (ok) {
            bson_iter_t it;

            assert_int_equal(sum, 2);
            assert_true(bson_iter_init_find(&it, &key, "b") && BSON_ITER_HOLDS_INT64(&it));
            assert_true(bson_iter_init_find(&it, &key, "a") && BSON_ITER_HOLDS_UTF8(&it));
        }
        bson_destroy(group);
        bson_destroy(&key);
    }
    done(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_families),
        cmocka_unit_test(test_unable),
        cmocka_unit_test(test_groups),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
