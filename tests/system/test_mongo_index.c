/* The proof of the dedup index on a real server: each way in which it can be wrong. */
#include "mongo_help.h"

/* Proves or not; the text has to hold each word of why ("a|b"). */
static void expect(struct help *h, enum err_kind kind, const char *why)
{
    struct err e = {0};
    char words[256], *save = NULL;
    bool ok = mongo_prove_index(h->mongo, &h->route, &e);

    if (ok != (kind == ERR_NONE))
        fail_msg("%s: %s", ok ? "proved, expected" : "not proved", ok ? why : e.text);
    if (ok)
        return;
    if (e.kind != kind)
        fail_msg("kind %s: %s", err_kind_name(e.kind), e.text);
    (void)snprintf(words, sizeof words, "%s|%s", why, h->collection);
    for (char *w = strtok_r(words, "|", &save); w; w = strtok_r(NULL, "|", &save))
        if (!strstr(e.text, w))
            fail_msg("\"%s\" does not say \"%s\"", e.text, w);
    assert_true(strlen(e.text) < ERR_TEXT_MAX - 1); /* not cut */
}

static void make_index(struct help *h, const char *index)
{
    help_command(h, h->route.database,
                 help_bson("{'createIndexes':'%s','indexes':[%s]}", h->collection, index));
}

static void make_collection(struct help *h, const char *options)
{
    help_command(h, h->route.database, help_bson("{'create':'%s'%s}", h->collection, options));
}

/* A collection with these options and index (either may be NULL): what does the proof say? */
static void check(const char *dedup, const char *options, const char *index, enum err_kind kind,
                  const char *why)
{
    struct help h;

    help_begin(&h, dedup);
    help_connect(&h);
    if (options)
        make_collection(&h, options);
    if (index)
        make_index(&h, index);
    expect(&h, kind, why);
    help_close(&h);
}

static void test_made_and_proved(void **state)
{
    struct help h;
    struct err e = {0};

    (void)state;
    help_begin(&h, "a,b.c");
    help_connect(&h);
    expect(&h, ERR_CONFIG, "not there|(a, b.c)|idemsink init");
    assert_true(mongo_make_index(h.mongo, &h.route, &e));
    expect(&h, ERR_NONE, "");
    assert_true(mongo_make_index(h.mongo, &h.route, &e)); /* again: nothing to do */
    help_close(&h);
}

static void test_right_ones(void **state)
{
    (void)state;
    check("a", NULL, "{'key':{'a':1},'name':'x','unique':true}", ERR_NONE, "");
    check("a", NULL, "{'key':{'a':-1},'name':'x','unique':true}", ERR_NONE, "");
    check("a", NULL, "{'key':{'a':1},'name':'x','unique':true,'hidden':true}", ERR_NONE, "");
    check("a,b", NULL, "{'key':{'b':1,'a':-1},'name':'x','unique':true}", ERR_NONE, "");
    /* A wrong one beside the right one does no harm. */
    check("a", NULL, "{'key':{'a':1},'name':'x','unique':true},{'key':{'a':-1},'name':'y'}",
          ERR_NONE, "");
    check("_id", NULL, NULL, ERR_NONE, "");
    check("_id", "", NULL, ERR_NONE, "");
    check("_id", ",'clusteredIndex':{'key':{'_id':1},'unique':true}", NULL, ERR_NONE, "");
    check("_id", "", "{'key':{'a':1},'name':'x'}", ERR_NONE, "");
}

static void test_wrong_ones(void **state)
{
    (void)state;
    check("a", "", NULL, ERR_CONFIG, "no unique index on exactly (a)|idemsink init");
    check("a", NULL, "{'key':{'a':1},'name':'x'}", ERR_CONFIG, "x is not unique|drop");
    check("a", NULL, "{'key':{'a':'hashed'},'name':'x'}", ERR_CONFIG, "x is hashed");
    check("a", NULL, "{'key':{'a':1},'name':'x','unique':true,'sparse':true}", ERR_CONFIG,
          "x is sparse");
    check("a", NULL, "{'key':{'a':1},'name':'x','unique':true,'partialFilterExpression':{'t':1}}",
          ERR_CONFIG, "x is partial");
    check("a", NULL, "{'key':{'a':1},'name':'x','unique':true,'expireAfterSeconds':1000}",
          ERR_CONFIG, "TTL index x");
    check("a", NULL,
          "{'key':{'a':1},'name':'x','unique':true},"
          "{'key':{'t':1},'name':'gone','expireAfterSeconds':1000}",
          ERR_CONFIG, "TTL index gone");
    check("a", NULL, "{'key':{'a':1},'name':'x','unique':true,'collation':{'locale':'de'}}",
          ERR_CONFIG, "x has a collation");
    check("a", NULL, "{'key':{'a':1,'b':1},'name':'x','unique':true}", ERR_CONFIG,
          "no unique index on exactly (a)");
    check("a,b", NULL, "{'key':{'a':1},'name':'x','unique':true}", ERR_CONFIG,
          "no unique index on exactly (a, b)");
    check("a.b", NULL, "{'key':{'a':1},'name':'x','unique':true}", ERR_CONFIG,
          "no unique index on exactly (a.b)");
}

static void test_wrong_collections(void **state)
{
    (void)state;
    check("_id", ",'capped':true,'size':100000", NULL, ERR_CONFIG, "capped");
    check("a", ",'capped':true,'size':100000", "{'key':{'a':1},'name':'x','unique':true}",
          ERR_CONFIG, "capped");
    check("_id", ",'collation':{'locale':'de'}", NULL, ERR_CONFIG, "default collation");
    check("a", ",'collation':{'locale':'de'}",
          "{'key':{'a':1},'name':'x','unique':true,'collation':{'locale':'simple'}}", ERR_CONFIG,
          "default collation");
    check("_id", ",'timeseries':{'timeField':'t'}", NULL, ERR_CONFIG, "time-series");
    check("_id", ",'viewOn':'somewhere','pipeline':[]", NULL, ERR_CONFIG, "view");
    check("_id", ",'clusteredIndex':{'key':{'_id':1},'unique':true},'expireAfterSeconds':1000",
          NULL, ERR_CONFIG, "expireAfterSeconds");
}

/* An index that is still being built keeps nothing unique yet. */
static void test_being_built(void **state)
{
    struct help h;
    bson_t *doc = help_bson("{'a':1}");

    (void)state;
    help_begin(&h, "a");
    help_connect(&h);
    assert_true(mongoc_collection_insert_one(h.c, doc, NULL, NULL, NULL));
    bson_destroy(doc);
    help_command(
        &h, "admin",
        help_bson("{'configureFailPoint':'hangAfterStartingIndexBuild','mode':'alwaysOn'}"));
    mongoc_client_t *other = mongoc_client_new(help_uri());
    /* It answers only when it is built, so the client gives up waiting at once. */
    bson_t *command =
        help_bson("{'createIndexes':'%s','indexes':[{'key':{'a':1},'name':'x','unique':true}],"
                  "'maxTimeMS':60000}",
                  h.collection);
    mongoc_uri_t *uri = mongoc_uri_new(help_uri());
    mongoc_uri_set_option_as_int32(uri, MONGOC_URI_SOCKETTIMEOUTMS, 500);
    mongoc_client_t *hasty = mongoc_client_new_from_uri(uri);
    assert_false(mongoc_client_command_simple(hasty, h.route.database, command, NULL, NULL, NULL));
    expect(&h, ERR_CONFIG, "x is still being built");
    help_command(&h, "admin",
                 help_bson("{'configureFailPoint':'hangAfterStartingIndexBuild','mode':'off'}"));
    bson_destroy(command);
    mongoc_uri_destroy(uri);
    mongoc_client_destroy(hasty);
    mongoc_client_destroy(other);
    /* Whether it is finished or was given up with its client, the collection can be dropped. */
    help_close(&h);
}

static void expect_not_made(struct help *h, const char *why)
{
    struct err e = {0};
    char words[256], *save = NULL;

    assert_false(mongo_make_index(h->mongo, &h->route, &e));
    assert_int_equal(e.kind, ERR_CONFIG);
    (void)snprintf(words, sizeof words, "%s|%s", why, h->collection);
    for (char *w = strtok_r(words, "|", &save); w; w = strtok_r(NULL, "|", &save))
        if (!strstr(e.text, w))
            fail_msg("\"%s\" does not say \"%s\"", e.text, w);
    assert_null(strstr(e.text, "secret")); /* no values */
}

static void test_make_refuses(void **state)
{
    struct help h;

    (void)state;
    help_begin(&h, "a");
    help_connect(&h);
    for (int i = 0; i < 2; i++) {
        bson_t *doc = help_bson("{'a':'secret'}");
        assert_true(mongoc_collection_insert_one(h.c, doc, NULL, NULL, NULL));
        bson_destroy(doc);
    }
    expect_not_made(&h, "equal values|remove them|idemsink init");
    help_close(&h);

    help_begin(&h, "a");
    help_connect(&h);
    make_index(&h, "{'key':{'a':1},'name':'mine'}");
    expect_not_made(&h, "mine is not unique|drop that index");
    help_close(&h);

    help_begin(&h, "a");
    help_connect(&h);
    make_index(&h, "{'key':{'z':1},'name':'idemsink_dedup'}");
    expect_not_made(&h, "idemsink_dedup|drop it");
    help_close(&h);

    help_begin(&h, "_id");
    help_connect(&h);
    make_collection(&h, ",'capped':true,'size':100000");
    expect_not_made(&h, "capped");
    help_close(&h);
}

static void test_no_right_to_look(void **state)
{
    static const char *const commands[] = {"listIndexes", "listCollections"};
    struct help h;

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        char data[128];
        (void)snprintf(data, sizeof data, "'failCommands':['%s'],'errorCode':13", commands[i]);
        help_begin(&h, "a");
        help_connect(&h);
        make_index(&h, "{'key':{'a':1},'name':'x','unique':true}");
        help_fail_point(&h, 2, data);
        expect(&h, ERR_AUTH, "no right to|trust_index = true|grant");
        h.route.trust_index = true;
        expect(&h, ERR_NONE, "");
        help_fail_point_off(&h);
        help_close(&h);
    }
    /* Trust is no cure for what can be seen to be wrong. */
    help_begin(&h, "a");
    help_connect(&h);
    h.route.trust_index = true;
    make_index(&h, "{'key':{'a':1},'name':'x'}");
    expect(&h, ERR_CONFIG, "x is not unique");
    help_close(&h);
}

static void test_an_outage_is_no_wrong_index(void **state)
{
    struct help h;

    (void)state;
    help_begin(&h, "a");
    help_connect(&h);
    make_index(&h, "{'key':{'a':1},'name':'x','unique':true}");
    help_fail_point(&h, 2, "'failCommands':['listIndexes'],'errorCode':91"); /* it reads twice */
    expect(&h, ERR_TRANSIENT, "");
    help_fail_point_off(&h);
    help_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_and_proved),  cmocka_unit_test(test_right_ones),
        cmocka_unit_test(test_wrong_ones),       cmocka_unit_test(test_wrong_collections),
        cmocka_unit_test(test_being_built),      cmocka_unit_test(test_make_refuses),
        cmocka_unit_test(test_no_right_to_look), cmocka_unit_test(test_an_outage_is_no_wrong_index),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
