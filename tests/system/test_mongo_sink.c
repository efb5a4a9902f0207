/*
 * The sink on a real server: what is stored, and what each operation is told. H-numbers are the
 * cases that shaped the design: the small inputs on which sinks lose or double events.
 */
#include "mongo_help.h"

/* ---- what is stored ---- */

static void test_inserted_and_duplicate(void **state)
{
    struct help h;

    (void)state;
    help_open(&h, "id");
    struct write_op ops[] = {
        help_upsert(help_bson("{'id':1}"), help_bson("{'id':1,'v':'first'}")),
        help_upsert(help_bson("{'id':2}"), help_bson("{'id':2,'v':'x'}")),
        help_upsert(help_bson("{'id':1}"), help_bson("{'id':1,'v':'second'}")),
    };
    help_write(&h, ops, 3, "IID");
    help_write(&h, ops, 3, "DDD");
    assert_int_equal(help_count(&h, "{}"), 2);
    assert_int_equal(help_count(&h, "{'id':1,'v':'first'}"), 1);
    help_clear(ops, 3);
    help_close(&h);
}

/* Folded in the batch, and for the server where the bytes differ: 1 and 1.0 are one key there. */
static void test_numbers_of_different_types(void **state)
{
    struct help h;

    (void)state;
    help_open(&h, "id");
    struct write_op ops[] = {
        help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
        help_upsert(help_bson("{'id':{'$numberLong':'1'}}"),
                    help_bson("{'id':{'$numberLong':'1'}}")),
        help_upsert(help_bson("{'id':'1'}"), help_bson("{'id':'1'}")),
        help_insert(help_bson("{'id':{'$numberDouble':'1.0'}}"),
                    help_bson("{'id':{'$numberDouble':'1.0'}}")),
    };
    help_write(&h, ops, 4, "IDID");
    help_clear(ops, 4);
    help_close(&h);
}

static void test_insert_path(void **state)
{
    struct help h;

    (void)state;
    help_open(&h, "id");
    struct write_op ops[] = {
        help_insert(help_bson("{'id':1}"), help_bson("{'id':1,'a.b':1,'a':{},'':2,'$x':3}")),
        help_insert(help_bson("{'id':2}"), help_bson("{'id':2}")),
        help_insert(help_bson("{'id':1}"), help_bson("{'id':1,'other':1}")),
        help_upsert(help_bson("{'id':3}"), help_bson("{'id':3}")),
    };
    help_write(&h, ops, 4, "IIDI");
    help_write(&h, ops, 4, "DDDD");
    bson_t *f = help_bson("{'id':1}");
    mongoc_cursor_t *c = mongoc_collection_find_with_opts(h.c, f, NULL, NULL);
    const bson_t *doc;
    assert_true(mongoc_cursor_next(c, &doc));
    bson_iter_t it;
    assert_true(bson_iter_init(&it, doc));
    bool dotted = false, empty = false, dollar = false;
    while (bson_iter_next(&it)) {
        dotted = dotted || strcmp(bson_iter_key(&it), "a.b") == 0;
        dollar = dollar || strcmp(bson_iter_key(&it), "$x") == 0;
        empty = empty || strcmp(bson_iter_key(&it), "") == 0;
    }
    assert_true(dotted && empty && dollar);
    mongoc_cursor_destroy(c);
    bson_destroy(f);
    help_clear(ops, 4);
    help_close(&h);
}

static void test_nested_and_compound_keys(void **state)
{
    struct help h;

    (void)state;
    help_open(&h, "order.id,tenant");
    struct write_op ops[] = {
        help_upsert(help_bson("{'order.id':7,'tenant':'a'}"),
                    help_bson("{'tenant':'a','order':{'lines':[1,2],'id':7}}")),
        help_upsert(help_bson("{'order.id':7,'tenant':'b'}"),
                    help_bson("{'tenant':'b','order':{'lines':[3],'id':7}}")),
        help_upsert(help_bson("{'order.id':7,'tenant':'a'}"),
                    help_bson("{'tenant':'a','order':{'lines':[9],'id':7}}")),
    };
    help_write(&h, ops, 2, "II");
    help_write(&h, ops, 3, "DDD");
    assert_int_equal(help_count(&h, "{'tenant':'a','order':{'lines':[1,2],'id':7}}"), 1);
    help_clear(ops, 3);
    help_close(&h);
}

static void test_key_as_id(void **state)
{
    struct help h;

    (void)state;
    help_open(&h, "_id");
    struct write_op ops[] = {
        help_upsert(help_bson("{'_id':{'t':'a','n':'b-c'}}"), help_bson("{'v':1}")),
        help_upsert(help_bson("{'_id':{'t':'a-b','n':'c'}}"), help_bson("{'v':2}")),
        help_upsert(help_bson("{'_id':'plain'}"), help_bson("{}")),
        help_insert(help_bson("{'_id':'other'}"), help_bson("{'_id':'other','a.b':1}")),
    };
    help_write(&h, ops, 4, "IIII");
    help_write(&h, ops, 4, "DDDD");
    assert_int_equal(help_count(&h, "{'_id':{'t':'a','n':'b-c'},'v':1}"), 1);
    help_clear(ops, 4);
    help_close(&h);
}

/* ---- E11000 ---- */

/* H-001: another unique index refuses an event; that is no duplicate. */
static void test_h001_another_unique_index(void **state)
{
    struct help h;

    (void)state;
    for (int earlier = 0; earlier < 2; earlier++) {
        help_begin(&h, "id");
        help_connect(&h);
        struct err e = {0};
        if (!earlier)
            assert_true(mongo_make_index(h.mongo, &h.route, &e));
        help_make_index(&h, "{'key':{'email':1},'name':'email_1','unique':true}");
        help_start(&h); /* warns when email_1 was earlier */
        struct write_op ops[] = {
            help_upsert(help_bson("{'id':'e1'}"), help_bson("{'id':'e1','email':'x'}")),
            help_upsert(help_bson("{'id':'e2'}"), help_bson("{'id':'e2','email':'x'}")),
            help_upsert(help_bson("{'id':'e3'}"), help_bson("{'id':'e3','email':'y'}")),
        };
        const struct outcome *r = help_write(&h, ops, 3, "INI");
        assert_int_equal(r[1].reason, REASON_UNIQUE_CONFLICT);
        assert_non_null(strstr(r[1].text, "email_1"));
        /* A true redelivery that goes by insert is refused by both indexes; whichever is named, it
         * is one. */
        struct write_op again[] = {
            help_insert(help_bson("{'id':'e1'}"), help_bson("{'id':'e1','email':'x'}")),
            help_insert(help_bson("{'id':'e2'}"), help_bson("{'id':'e2','email':'x'}"))};
        help_write(&h, again, 2, "DN");
        help_clear(ops, 3);
        help_clear(again, 2);
        help_close(&h);
    }
}

/* 600 errors that echo keys of 50 kB would make a reply above 16 MB, for which the server closes
 * the connection. */
static void test_big_keys(void **state)
{
    enum { N = 600, KEY = 50000 };
    struct help h;
    struct write_op *ops = mem_array(N, sizeof *ops);
    char *key = mem_new(KEY + 1);

    (void)state;
    help_open(&h, "id");
    memset(key, 'k', KEY);
    for (int i = 0; i < N; i++) {
        char digits[8];
        (void)snprintf(digits, sizeof digits, "%06d", i);
        memcpy(key, digits, 6);
        ops[i] = help_insert(BCON_NEW("id", BCON_UTF8(key)), BCON_NEW("id", BCON_UTF8(key)));
    }
    const struct outcome *r = h.sink.ops->write(h.session, 0, ops, N);
    for (int i = 0; i < N; i++)
        assert_int_equal(r[i].fate, FATE_INSERTED);
    r = h.sink.ops->write(h.session, 0, ops, N);
    for (int i = 0; i < N; i++) /* each of the 600 is looked up; the rest may have to wait */
        assert_true(r[i].fate == FATE_DUPLICATE ||
                    (r[i].fate == FATE_LATER && r[i].retry == RETRY_TIMEOUT));
    assert_int_equal(r[0].fate, FATE_DUPLICATE);
    help_clear(ops, N);
    mem_free(ops);
    mem_free(key);
    help_close(&h);
}

/* ---- bad members ---- */

/* H-009: names. Stored exactly as sent where the server takes them, refused alone where it does
 * not. */
static void test_h009_names(void **state)
{
    struct help h;

    (void)state;
    help_open(&h, "id");
    struct write_op ops[] = {
        help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
        help_upsert(help_bson("{'id':2}"), help_bson("{'id':2,'sub':{'':1,'x.y':2,'$z':3}}")),
        help_upsert(help_bson("{'id':3}"), help_bson("{'id':3}")),
        help_upsert(help_bson("{'id':4}"), help_bson("{'id':4,'a':{},'a.b':1}")),
        help_upsert(help_bson("{'id':5}"), help_bson("{'id':5}")),
        help_upsert(help_bson("{'id':6}"), help_bson("{'id':6,'':1}")),
        help_upsert(help_bson("{'id':7}"), help_bson("{'id':7,'a..b':1}")),
        help_upsert(help_bson("{'id':8}"), help_bson("{'id':8,'a.':1}")),
        help_upsert(help_bson("{'id':9}"), help_bson("{'id':9,'.a':1}")),
        help_upsert(help_bson("{'id':10}"), help_bson("{'id':10}")),
    };
    const struct outcome *r = help_write(&h, ops, 10, "IIININNNNI");
    assert_int_equal(r[3].reason, REASON_UNSAFE_NAME);
    assert_int_equal(r[3].code, 40);
    assert_int_equal(r[5].reason, REASON_UNSAFE_NAME);
    assert_int_equal(r[5].code, 56);
    for (int i = 6; i < 9; i++)
        assert_int_equal(r[i].code, 56);
    help_clear(ops, 10);
    help_close(&h);
}

static bson_t *fat(int id, size_t bytes)
{
    char *text = mem_new(bytes + 1);

    memset(text, 'f', bytes);
    bson_t *doc = BCON_NEW("id", BCON_INT32(id), "fat", BCON_UTF8(text));
    mem_free(text);
    return doc;
}

/* H-010: one that the driver or the server refuses with its whole command. */
static void test_h010_too_large_and_too_deep(void **state)
{
    static const struct {
        size_t bytes;
        int levels;
        enum reason reason;
    } bad[] = {
        {16777216, 0, REASON_TOO_LARGE}, /* a little above 16 MiB: refused alone */
        {16793700, 0, REASON_TOO_LARGE}, /* above 16 MiB + 16 KiB: with its command */
        {40000000, 0, REASON_TOO_LARGE}, {60000000, 0, REASON_TOO_LARGE}, {0, 185, REASON_TOO_DEEP},
        {0, 199, REASON_TOO_DEEP},       {0, 1000, REASON_TOO_DEEP},
    };
    struct help h;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        for (int insert = 0; insert < 2; insert++) {
            help_open(&h, "id");
            bson_t *doc = bad[i].bytes ? fat(2, bad[i].bytes) : help_deep(2, bad[i].levels);
            struct write_op ops[] = {
                help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
                help_upsert(help_bson("{'id':2}"), doc),
                help_upsert(help_bson("{'id':3}"), help_bson("{'id':3}")),
            };
            for (int k = 0; k < 3 && insert; k++)
                ops[k].kind = WRITE_KIND_INSERT;
            ops[0].lane = ops[1].lane = ops[2].lane = &h; /* in order, too */
            const struct outcome *r = help_write(&h, ops, 3, "INI");
            if (r[1].reason != bad[i].reason)
                fail_msg("%zu bytes, %d levels, insert %d: reason %s, code %d, %s", bad[i].bytes,
                         bad[i].levels, insert, reason_name(r[1].reason), r[1].code, r[1].text);
            assert_int_equal(help_count(&h, "{}"), 2);
            help_clear(ops, 3);
            help_close(&h);
        }
    }
    help_open(&h, "id"); /* and what just fits */
    struct write_op ops[] = {help_upsert(help_bson("{'id':1}"), fat(1, 16777216 - 200)),
                             help_upsert(help_bson("{'id':2}"), help_deep(2, 170)),
                             help_upsert(help_bson("{'id':3}"), fat(3, 16777216 - 200)),
                             help_upsert(help_bson("{'id':4}"), fat(4, 16777216 - 200))};
    help_write(&h, ops, 4, "IIII");
    help_clear(ops, 4);
    help_close(&h);
}

/* Codes that the server gives to one operation because of its content. */
static void test_permanent_codes(void **state)
{
    static const struct {
        const char *options, *index, *document;
        int code;
        enum reason reason;
    } t[] = {
        {",'validator':{'v':{'$type':'int'}}", NULL, "{'id':2,'v':'text'}", 121, REASON_VALIDATION},
        {"", "{'key':{'x':1,'y':1},'name':'xy'}", "{'id':2,'x':[1],'y':[2]}", 171, REASON_REJECTED},
        {"", "{'key':{'g':'2dsphere'},'name':'g'}",
         "{'id':2,'g':{'type':'Point','coordinates':[500,0]}}", 16755, REASON_REJECTED},
        {"", "{'key':{'h':'hashed'},'name':'h'}", "{'id':2,'h':[1]}", 16766, REASON_REJECTED},
        {"", "{'key':{'g':'2d'},'name':'g'}", "{'id':2,'g':[1,'x']}", 13026, REASON_REJECTED},
        {"", "{'key':{'g':'2d'},'name':'g'}", "{'id':2,'g':[500,1]}", 13027, REASON_REJECTED},
        {"", "{'key':{'g':'2d'},'name':'g'}", "{'id':2,'g':[1]}", 13068, REASON_REJECTED},
        {"", "{'key':{'g':'2d'},'name':'g'}", "{'id':2,'g':['x',1]}", 16804, REASON_REJECTED},
        {"", "{'key':{'t':'text','a':1},'name':'t'}", "{'id':2,'t':'x','a':[1]}", 201,
         REASON_REJECTED},
        {"", "{'key':{'t':'text'},'name':'t'}", "{'id':2,'t':'x','language':7}", 17261,
         REASON_REJECTED},
        {"", "{'key':{'t':'text'},'name':'t'}", "{'id':2,'t':'x','language':'martian'}", 17262,
         REASON_REJECTED},
        {"", NULL, "{'id':2,'_id':[1]}", 53, REASON_REJECTED},
        {"", NULL, "{'id':2,'_id':{'$regularExpression':{'pattern':'x','options':''}}}", 53,
         REASON_REJECTED},
        {"", NULL, "{'id':2,'_id':{'$x':1}}", 52, REASON_UNSAFE_NAME},
        {"", NULL, "{'id.x':1}", 28, REASON_UNSAFE_NAME},
    };
    struct help h;

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        help_begin(&h, "id");
        help_command(&h, h.route.database,
                     help_bson("{'create':'%s'%s}", h.collection, t[i].options));
        if (t[i].index)
            help_make_index(&h, t[i].index);
        help_connect(&h);
        help_start(&h);
        struct write_op ops[] = {
            help_upsert(help_bson("{'id':1}"), help_bson("{'id':1,'v':1}")),
            help_upsert(help_bson("{'id':2}"), help_bson("%s", t[i].document)),
            help_upsert(help_bson("{'id':3}"), help_bson("{'id':3,'v':1}")),
        };
        const struct outcome *r = h.sink.ops->write(h.session, 0, ops, 3);
        if (r[0].fate != FATE_INSERTED || r[1].fate != FATE_NEVER || r[2].fate != FATE_INSERTED ||
            r[1].code != t[i].code || r[1].reason != t[i].reason)
            fail_msg("%s: fate %d, code %d instead of %d, reason %s, %s", t[i].document,
                     (int)r[1].fate, r[1].code, t[i].code, reason_name(r[1].reason),
                     r[1].text ? r[1].text : "");
        if (t[i].code == 121) { /* which rule, and not the value */
            assert_non_null(strstr(r[1].text, ": $type { \"v\" : { \"$type\" : \"int\" } }"));
            assert_null(strstr(r[1].text, "text"));
        }
        help_clear(ops, 3);
        help_close(&h);
    }
}

/* ---- what is nobody's fault ---- */

/* H-007: applied, but not acknowledged as asked: nothing of it may be committed. */
static void test_h007_write_concern(void **state)
{
    struct help h;
    static char two[] = "2";

    (void)state;
    help_open(&h, "id");
    struct write_op ops[] = {
        help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
        help_insert(help_bson("{'id':2}"), help_bson("{'id':2}")),
        help_insert(help_bson("{'id':3}"), help_bson("{'id':3}")),
    };
    help_fail_point(
        &h, 1,
        "'failCommands':['update'],'writeConcernError':{'code':64,'errmsg':'waiting timed out'}");
    const struct outcome *r = help_write(&h, ops, 3, "ULL");
    assert_int_equal(r[0].retry, RETRY_WRITE_CONCERN);
    assert_int_equal(r[0].code, 64);
    help_write(&h, ops, 3, "DII"); /* it was there */
    help_fail_point_off(&h);
    help_clear(ops, 3);
    help_close(&h);

    /* A set of one can't give two acknowledgements. */
    help_open(&h, "id");
    h.sink.ops->close(h.session);
    mongo_free(h.mongo);
    h.config.mongo.write_concern = two;
    help_connect(&h);
    h.session = h.sink.ops->open(h.sink.self);
    struct write_op more[] = {help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
                              help_upsert(help_bson("{'id':1.5}"), help_bson("{'id':1.5,'':1}"))};
    r = help_write(&h, more, 2, "UU");
    assert_int_equal(r[0].retry, RETRY_WRITE_CONCERN);
    assert_int_equal(r[0].code, 100);
    help_clear(more, 2);
    help_close(&h);
}

static void test_whole_commands_that_fail(void **state)
{
    static const struct {
        const char *data;
        enum retry_class retry;
    } t[] = {
        {"'failCommands':['update'],'errorCode':11602", RETRY_NO_PRIMARY},
        {"'failCommands':['update'],'errorCode':10107", RETRY_NO_PRIMARY},
        {"'failCommands':['update'],'errorCode':91", RETRY_NO_PRIMARY},
        {"'failCommands':['update'],'errorCode':13", RETRY_RIGHTS},
        {"'failCommands':['update'],'errorCode':8000", RETRY_RIGHTS},
        {"'failCommands':['update'],'errorCode':20", RETRY_CONFIG},
        {"'failCommands':['update'],'errorCode':50", RETRY_TIMEOUT},
        {"'failCommands':['update'],'errorCode':112", RETRY_CONFLICT},
        {"'failCommands':['update'],'closeConnection':true", RETRY_NETWORK},
    };
    struct help h;

    (void)state;
    help_open(&h, "id");
    for (int i = 0; i < (int)(sizeof t / sizeof *t); i++) {
        struct write_op ops[] = {
            help_upsert(help_bson("{'id':'a%d'}", i), help_bson("{'id':'a%d'}", i)),
            help_upsert(help_bson("{'id':'b%d'}", i), help_bson("{'id':'b%d'}", i)),
            help_insert(help_bson("{'id':'c%d'}", i), help_bson("{'id':'c%d'}", i)),
        };
        help_fail_point(&h, 1, t[i].data);
        const struct outcome *r = help_write(&h, ops, 3, "UUL");
        if (r[0].retry != t[i].retry || r[2].retry != t[i].retry)
            fail_msg("%s: class %s", t[i].data, retry_class_name(r[0].retry));
        help_write(&h, ops, 3, "III");
        help_clear(ops, 3);
    }
    help_fail_point_off(&h);
    help_close(&h);
}

/* A code that nobody knows is sent again, alone, and never dead-lettered. */
static void test_unknown_code(void **state)
{
    struct help h;

    (void)state;
    help_open(&h, "id");
    struct write_op ops[] = {
        help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
        help_upsert(help_bson("{'id':2}"), help_bson("{'id':2}")),
    };
    help_fail_point(&h, 2, "'failCommands':['update'],'errorCode':424242");
    const struct outcome *r = help_write(&h, ops, 2, "UI");
    assert_int_equal(r[0].code, 424242);
    help_fail_point_off(&h);
    help_write(&h, ops, 2, "ID");
    help_clear(ops, 2);
    help_close(&h);
}

/* The look-up fails although the write was answered. */
static void test_look_that_fails(void **state)
{
    struct help h;

    (void)state;
    help_open(&h, "id");
    struct write_op ops[] = {help_insert(help_bson("{'id':1}"), help_bson("{'id':1}")),
                             help_insert(help_bson("{'id':2}"), help_bson("{'id':2}"))};
    help_write(&h, ops, 2, "II");
    help_fail_point(&h, 4, "'failCommands':['find'],'errorCode':13");
    const struct outcome *r = help_write(&h, ops, 2, "UU");
    assert_int_equal(r[0].retry, RETRY_RIGHTS);
    help_fail_point_off(&h);
    help_write(&h, ops, 2, "DD");
    help_clear(ops, 2);
    help_close(&h);
}

/* Answers too late: the same write again must not store twice, and the session is usable at once.
 */
static void test_answer_that_comes_too_late(void **state)
{
    struct help h;

    (void)state;
    help_begin(&h, "id");
    h.config.mongo.socket_timeout_ms = 1000;
    h.config.mongo.write_timeout_ms = 500;
    help_connect(&h);
    help_start(&h);
    struct write_op ops[] = {help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}"))};
    help_fail_point(&h, 1, "'failCommands':['update'],'blockConnection':true,'blockTimeMS':2000");
    int64_t start_ms = clock_mono_ms();
    const struct outcome *r = help_write(&h, ops, 1, "U");
    int64_t took_ms = clock_mono_ms() - start_ms;
    assert_int_equal(r[0].retry, RETRY_NETWORK);
    assert_in_range(took_ms, 900, 1900);
    r = h.sink.ops->write(h.session, 0, ops, 1); /* whichever of the two comes first */
    assert_true(r[0].fate == FATE_INSERTED || r[0].fate == FATE_DUPLICATE);
    help_fail_point_off(&h);
    assert_int_equal(help_count(&h, "{}"), 1);
    help_clear(ops, 1);
    help_close(&h);
}

static void test_nobody_there(void **state)
{
    struct help h;
    struct err e = {0};

    (void)state;
    help_begin(&h, "id");
    (void)snprintf(h.uri, sizeof h.uri, "mongodb://127.0.0.1:1/?replicaSet=rs0");
    h.config.mongo.server_selection_timeout_ms = 500;
    help_connect(&h);
    assert_false(mongo_ping(h.mongo, &e));
    assert_int_equal(e.kind, ERR_TRANSIENT);
    h.session = h.sink.ops->open(h.sink.self);
    struct write_op ops[] = {help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
                             help_insert(help_bson("{'id':2}"), help_bson("{'id':2}"))};
    int64_t start_ms = clock_mono_ms();
    const struct outcome *r = help_write(&h, ops, 2, "UL");
    assert_true(clock_mono_ms() - start_ms < 2500);
    assert_int_equal(r[0].retry, RETRY_NO_PRIMARY);
    assert_int_equal(r[1].retry, RETRY_NO_PRIMARY);
    help_clear(ops, 2);
    help_close(&h);
}

/* ---- reading ---- */

struct scanned {
    int64_t n, stop_at, sum;
};

static bool scan_one(const bson_t *document, void *ctx)
{
    struct scanned *s = ctx;
    bson_iter_t it;

    assert_true(bson_iter_init_find(&it, document, "id"));
    s->sum += bson_iter_int32(&it);
    return ++s->n != s->stop_at;
}

static void test_scan(void **state)
{
    enum { N = 2500 };
    struct help h;
    struct err e = {0};
    struct scanned all = {0}, some = {.stop_at = 7};
    struct write_op *ops = mem_array(N, sizeof *ops);

    (void)state;
    help_open(&h, "id");
    for (int i = 0; i < N; i++)
        ops[i] = help_upsert(help_bson("{'id':%d}", i), help_bson("{'id':%d}", i));
    h.sink.ops->write(h.session, 0, ops, N);
    assert_true(mongo_scan(h.mongo, &h.route, scan_one, &all, &e));
    assert_int_equal(all.n, N);
    assert_int_equal(all.sum, N * (N - 1) / 2);
    assert_true(mongo_scan(h.mongo, &h.route, scan_one, &some, &e));
    assert_int_equal(some.n, 7);
    assert_int_equal(mongo_count(h.mongo, &h.route), N);
    help_fail_point(&h, 2, "'failCommands':['find'],'errorCode':13");
    assert_false(mongo_scan(h.mongo, &h.route, scan_one, &all, &e));
    assert_int_equal(e.kind, ERR_AUTH);
    help_fail_point_off(&h);
    help_clear(ops, N);
    mem_free(ops);
    help_close(&h);
}

static void test_the_replica_set(void **state)
{
    struct help h;
    struct err e = {0};

    (void)state;
    help_begin(&h, "id");
    help_connect(&h);
    assert_true(mongo_ping(h.mongo, &e));
    assert_true(mongo_init_replica_set(&h.config, &e)); /* it is: nothing to do */
    help_close(&h);

    /* Another name than the set's: the error says so, not only that nothing was found. */
    help_begin(&h, "id");
    (void)snprintf(h.uri, sizeof h.uri, "%s", help_uri());
    char *name = strstr(h.uri, "replicaSet=");
    assert_non_null(name);
    (void)snprintf(name, sizeof h.uri - (size_t)(name - h.uri), "replicaSet=another");
    h.config.mongo.server_selection_timeout_ms = 500;
    help_connect(&h);
    assert_false(mongo_ping(h.mongo, &e));
    assert_int_equal(e.kind, ERR_CONFIG);
    assert_non_null(strstr(e.text, "replicaSet=another"));
    help_close(&h);
}

static void test_wrong_uris(void **state)
{
    static const char *const uris[] = {"mongodb://user:hush/hush@h/", "mongodb://user:hush@h:port/",
                                       "mongodb://user:hush@h/?tls=hush", "mongodb://"};
    struct help h;
    struct err e;

    (void)state;
    help_begin(&h, "id");
    for (size_t i = 0; i < sizeof uris / sizeof *uris; i++) {
        (void)snprintf(h.uri, sizeof h.uri, "%s", uris[i]);
        assert_null(mongo_new(&h.config, &e));
        assert_int_equal(e.kind, ERR_CONFIG);
        assert_non_null(strstr(e.text, "mongo.uri"));
        assert_null(strstr(e.text, "hush"));
    }
    help_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_inserted_and_duplicate),
        cmocka_unit_test(test_numbers_of_different_types),
        cmocka_unit_test(test_insert_path),
        cmocka_unit_test(test_nested_and_compound_keys),
        cmocka_unit_test(test_key_as_id),
        cmocka_unit_test(test_h001_another_unique_index),
        cmocka_unit_test(test_big_keys),
        cmocka_unit_test(test_h009_names),
        cmocka_unit_test(test_h010_too_large_and_too_deep),
        cmocka_unit_test(test_permanent_codes),
        cmocka_unit_test(test_h007_write_concern),
        cmocka_unit_test(test_whole_commands_that_fail),
        cmocka_unit_test(test_unknown_code),
        cmocka_unit_test(test_look_that_fails),
        cmocka_unit_test(test_answer_that_comes_too_late),
        cmocka_unit_test(test_nobody_there),
        cmocka_unit_test(test_scan),
        cmocka_unit_test(test_the_replica_set),
        cmocka_unit_test(test_wrong_uris),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
