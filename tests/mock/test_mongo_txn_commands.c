/* What is sent inside of a transaction, literally, and what is read from the answers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "io/mongo_txn_commands.h"

static char database[] = "d", other[] = "e", collection[] = "docs", ledger[] = "ledger",
            counters[] = "counters", sequences[] = "sequences", fences[] = "fences",
            number[] = "no", text[] = "ref", hash_field[] = "_h", mirror[] = "m:{_id}", none[] = "",
            n_field[] = "n", sum_field[] = "sum.all", a_field[] = "a", b_field[] = "sub.b";

static struct config_pair inc_fields[] = {{n_field, none}, {sum_field, none}};
static char *group_fields[] = {a_field, b_field};
static struct config_counter all_counters[] = {
    {.collection = counters,
     .database = other,
     .inc = {inc_fields, 2},
     .upsert = true,
     .mirror = mirror},
    {.collection = counters, .database = database, .inc = {inc_fields, 1}, .mirror = none}};

static struct config_route route(void)
{
    struct config_route r = {
        .database = database, .collection = collection, .counters = all_counters, .n_counters = 2};

    r.dedup.conflict = CONFLICT_COUNT;
    r.dedup.conflict_field = hash_field;
    r.operation.ledger = ledger;
    r.operation.ledger_database = other;
    r.sequence.field = number;
    r.sequence.template_field = text;
    r.sequence.collection = sequences;
    r.sequence.database = other;
    r.sequence.start = 1000;
    r.sequence.group_fields = (struct config_list){group_fields, 2};
    r.lock.fence = fences;
    r.lock.fence_database = other;
    return r;
}

static bson_t *json(const char *s)
{
    char *quoted = mem_text(s);
    bson_error_t e;

    for (char *c = quoted; *c; c++)
        if (*c == '\'')
            *c = '"';
    bson_t *b = bson_new_from_json((const uint8_t *)quoted, -1, &e);
    if (b == NULL)
        fail_msg("%s: %s", s, e.message);
    mem_free(quoted);
    return b;
}

static void same(const bson_t *got, const char *want)
{
    bson_t *w = json(want);

    if (!bson_equal(got, w)) {
        char *a = bson_as_canonical_extended_json(got, NULL);
        char *b = bson_as_canonical_extended_json(w, NULL);
        print_error("got  %s\nwant %s\n", a, b);
        bson_free(a);
        bson_free(b);
        fail();
    }
    bson_destroy(w);
}

static void sent(const struct txn_command *c, const char *where, const char *want)
{
    struct config_route r = route();
    bson_t command = BSON_INITIALIZER;

    assert_string_equal(mongo_txn_command(&r, c, 5000, &command), where);
    same(&command, want);
    bson_destroy(&command);
}

static void test_count(void **state)
{
    bson_t *one = json("{'_id':'x'}"), *two = json("{'_id':'y'}");
    const int64_t by[] = {3, -4}, by_two[] = {INT64_MAX, 0};
    struct txn_move moves[] = {{one, by}, {two, by_two}};
    struct txn_command c = {.kind = TXN_COUNT, .moves = moves, .n_moves = 2};

    (void)state;
    sent(&c, "e",
         "{'update':'counters','updates':["
         "{'q':{'_id':'x'},'u':{'$inc':{'n':{'$numberLong':'3'},'sum.all':{'$numberLong':'-4'},"
         "'_version':{'$numberLong':'1'}}},'upsert':true},"
         "{'q':{'_id':'y'},'u':{'$inc':{'n':{'$numberLong':'9223372036854775807'},"
         "'sum.all':{'$numberLong':'0'},'_version':{'$numberLong':'1'}}},'upsert':true}]}");
    c.counter = 1;
    c.n_moves = 1;
    sent(&c, "d",
         "{'update':'counters','updates':[{'q':{'_id':'x'},'u':{'$inc':{'n':{'$numberLong':'3'}}}}"
         "]}");
    bson_destroy(one);
    bson_destroy(two);
}

static void test_number(void **state)
{
    bson_t *group = json("{'_id':{'a':1}}");
    struct txn_command c = {.kind = TXN_NUMBER, .group = group, .count = 7};
    struct {
        const char *reply;
        bool fine;
        int64_t n;
    } replies[] = {{"{'value':{'_id':{'a':1},'n':{'$numberLong':'1006'}},'ok':1}", true, 1006},
                   {"{'value':{'_id':{'a':1},'n':1006},'ok':1}", false, 0},
                   {"{'value':{'_id':{'a':1},'n':1006.0},'ok':1}", false, 0},
                   {"{'value':null,'ok':1}", false, 0},
                   {"{'n':{'$numberLong':'1'}}", false, 0}};

    (void)state;
    sent(&c, "e",
         "{'findAndModify':'sequences','query':{'_id':{'a':1}},"
         "'update':[{'$set':{'n':{'$toLong':{'$cond':["
         "{'$in':[{'$type':{'$cond':[{'$eq':[{'$type':'$n'},'missing']},{'$numberLong':'999'},"
         "'$n']}},['int','long']]},"
         "{'$add':[{'$cond':[{'$eq':[{'$type':'$n'},'missing']},{'$numberLong':'999'},'$n']},"
         "{'$numberLong':'7'}]},"
         "'none']}}}}],"
         "'upsert':true,'new':true,'fields':{'n':true}}");
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++) {
        bson_t *reply = json(replies[i].reply);
        int64_t n = 0;

        assert_int_equal(mongo_txn_number(reply, &n), replies[i].fine);
        assert_int_equal(n, replies[i].n);
        bson_destroy(reply);
    }
    bson_destroy(group);
}

static void test_highest(void **state)
{
    struct config_route r = route();
    bson_t *group = json("{'_id':{'x':1,'y':'t'}}"), *none_of_it = json("{'_id':{}}");
    struct txn_command c = {.kind = TXN_NUMBER, .group = group, .count = 7};
    bson_t filter = BSON_INITIALIZER, opts = BSON_INITIALIZER;
    struct {
        const char *document;
        bool fine;
        int64_t n;
    } found[] = {{"{'no':5}", true, 5},
                 {"{'no':{'$numberLong':'9223372036854775807'}}", true, INT64_MAX},
                 {"{'no':7.5}", true, 7},
                 {"{'no':-7.5}", true, -8},
                 {"{'no':{'$numberDecimal':'12.00'}}", true, 12},
                 {"{'no':{'$numberDecimal':'12.5'}}", false, 0},
                 {"{'no':9.3e18}", false, 0},
                 {"{'no':{'$numberDouble':'Infinity'}}", false, 0},
                 {"{'no':'7'}", false, 0},
                 {"{}", false, 0}};

    (void)state;
    mongo_txn_highest(&r, &c, &filter, &opts);
    same(&filter, "{'a':1,'sub.b':'t','no':{'$gte':{'$numberDouble':'-Infinity'}}}");
    same(&opts, "{'sort':{'no':-1},'limit':{'$numberLong':'1'},'singleBatch':true,"
                "'projection':{'no':true,'_id':false}}");
    bson_reinit(&filter);
    bson_reinit(&opts);
    c.group = none_of_it;
    r.sequence.group_fields.n = 0;
    mongo_txn_highest(&r, &c, &filter, &opts);
    same(&filter, "{'no':{'$gte':{'$numberDouble':'-Infinity'}}}");
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        bson_t *document = json(found[i].document);
        int64_t n = 0;

        if (mongo_txn_highest_of(&r, document, &n) != found[i].fine || n != found[i].n)
            fail_msg("%s: %lld", found[i].document, (long long)n);
        bson_destroy(document);
    }
    bson_destroy(&filter);
    bson_destroy(&opts);
    bson_destroy(group);
    bson_destroy(none_of_it);
}

/* ---- documents ---- */

static char before[] = "a-", behind[] = "-z";

static void test_documents(void **state)
{
    struct effect_number with_text = {.before = before, .behind = behind, .digits = 4},
                         plain = {.digits = 1};
    struct effects f[] = {{.number = &with_text}, {.number = &with_text}, {.number = &plain}};
    struct write_op ops[] = {{.document = json("{'x':1}"), .effects = &f[0]},
                             {.document = json("{'x':2}"), .effects = &f[1]},
                             {.document = json("{'ref':4}"), .effects = &f[2]}};
    const struct write_op *list[] = {&ops[0], &ops[1], &ops[2]};
    const int64_t numbers[] = {7, 8, 12345};
    struct txn_command c = {.kind = TXN_INSERT, .ops = list, .n = 3, .numbers = numbers};

    (void)state;
    sent(&c, "d",
         "{'insert':'docs','documents':["
         "{'x':1,'no':{'$numberLong':'7'},'ref':'a-0007-z'},"
         "{'x':2,'no':{'$numberLong':'8'},'ref':'a-0008-z'},"
         "{'ref':4,'no':{'$numberLong':'12345'}}]}");
    c.kind = TXN_REPLACE;
    c.numbers = NULL;
    c.n = 1;
    sent(&c, "d", "{'insert':'docs','documents':[{'x':1}]}");
    for (size_t i = 0; i < 3; i++)
        bson_destroy(ops[i].document);
}

static void test_events_and_what_they_remove(void **state)
{
    struct effects f[] = {{.action = EFFECT_INSERT, .entity = json("{'a':1,'b':2}")},
                          {.action = EFFECT_DELETE, .entity = json("{'a':3,'b':4}")}};
    struct write_op ops[] = {
        {.filter = json("{'_id':'e1'}"),
         .document = json("{'a':1,'_h':{'$binary':{'base64':'AAECAwQFBgcICQoLDA0ODw==',"
                          "'subType':'00'}}}"),
         .effects = &f[0]},
        {.filter = json("{'_id':{'k':2}}"), .document = json("{}"), .effects = &f[1]}};
    const struct write_op *list[] = {&ops[0], &ops[1]};
    const bool did[] = {true, false};
    struct txn_command c = {.kind = TXN_EVENTS, .ops = list, .n = 2, .did = did};

    (void)state;
    sent(&c, "e",
         "{'insert':'ledger','documents':["
         "{'_id':'e1','at':{'$date':{'$numberLong':'5000'}},'op':'insert','did':true,"
         "'_h':{'$binary':{'base64':'AAECAwQFBgcICQoLDA0ODw==','subType':'00'}}},"
         "{'_id':{'k':2},'at':{'$date':{'$numberLong':'5000'}},'op':'delete','did':false}]}");
    c.kind = TXN_DELETE;
    sent(&c, "d",
         "{'delete':'docs','deletes':[{'q':{'a':1,'b':2},'limit':1},{'q':{'a':3,'b':4},'limit':1}]"
         "}");
    for (size_t i = 0; i < 2; i++) {
        bson_destroy(ops[i].filter);
        bson_destroy(ops[i].document);
        bson_destroy(f[i].entity);
    }
}

static void test_fence(void **state)
{
    struct effects f = {.fence = json("{'_id':'k','issued':{'$numberLong':'9'}}"),
                        .fence_number = 9};
    struct write_op op = {.effects = &f};
    const struct write_op *list[] = {&op};
    struct txn_command c = {.kind = TXN_FENCE, .ops = list, .n = 1};

    (void)state;
    sent(&c, "e",
         "{'update':'fences','updates':[{'q':{'_id':'k','issued':{'$numberLong':'9'}},"
         "'u':{'$set':{'fence':{'$numberLong':'9'}}},'upsert':true}]}");
    bson_destroy(f.fence);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_count),
        cmocka_unit_test(test_number),
        cmocka_unit_test(test_highest),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_events_and_what_they_remove),
        cmocka_unit_test(test_fence),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
