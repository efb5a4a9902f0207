/*
 * What a real server answers, and what becomes of it: each kind of E11000, the situations of
 * tests/data/mongo-replies.jsonl, transactions, late answers, killed operations, a standalone, and
 * every code of the table that passes. H-numbers are the cases that shaped the design.
 */
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "mongo_help.h"

/* ---- H-001: E11000 ---- */

/* First, second and a third one; second is refused by an index that is not the dedup index, and so
 * is no duplicate; the first again is one, whichever index the server names. */
static void check_e11000(const char *index, bool earlier, const char *first, const char *second,
                         const char *text)
{
    struct help h;

    help_begin(&h, "id");
    help_connect(&h);
    if (earlier && index)
        help_make_index(&h, index);
    help_start(&h);
    if (!earlier && index)
        help_make_index(&h, index);
    for (int by_insert = 0; by_insert < 2; by_insert++) {
        struct write_op ops[] = {
            help_upsert(help_bson("{'id':'e1'}"), help_bson("%s", first)),
            help_upsert(help_bson("{'id':'E1'}"), help_bson("%s", second)),
            help_upsert(help_bson("{'id':'e3'}"), help_bson("{'id':'e3','email':'z'}")),
        };
        for (int i = 0; i < 3 && by_insert; i++)
            ops[i].kind = WRITE_KIND_INSERT;
        for (int again = 0; again < 2; again++) {
            bool new = !by_insert && !again;
            const struct outcome *r = help_write(&h, ops, 3, new ? "INI" : "DND");
            assert_int_equal(r[1].reason, REASON_UNIQUE_CONFLICT);
            assert_int_equal(r[1].code, 11000);
            if (!strstr(r[1].text, text))
                fail_msg("%s: not in: %s", text, r[1].text);
        }
        help_clear(ops, 3);
    }
    assert_int_equal(help_count(&h, "{}"), 2);
    help_close(&h);
}

static void test_h001_every_kind_of_e11000(void **state)
{
    static const char email[] = "{'key':{'email':1},'name':'email_1','unique':true}";
    static const char hostile[] = "{'key':{'email':1},'unique':true,'name':'idemsink_dedup dup "
                                  "key: { id: #e1# } index: id_1'}";
    static const char twin[] = "{'key':{'id':1},'name':'twin','unique':true,"
                               "'collation':{'locale':'en','strength':2}}";

    (void)state;
    for (int earlier = 0; earlier < 2; earlier++) {
        check_e11000(email, earlier, "{'id':'e1','email':'x'}", "{'id':'E1','email':'x'}",
                     "email_1");
        /* Names and values that look like the dedup index. */
        check_e11000(hostile, earlier, "{'id':'e1','email':'x'}", "{'id':'E1','email':'x'}",
                     "dup key: { id: #e1# }");
        check_e11000(email, earlier, "{'id':'e1','email':'} index: idemsink_dedup dup key: {'}",
                     "{'id':'E1','email':'} index: idemsink_dedup dup key: {'}", "email_1");
    }
    /* The dedup index's own pattern, under which E1 and e1 are one. */
    check_e11000(twin, false, "{'id':'e1'}", "{'id':'E1'}", "twin");
    /* _id: another event has it. */
    check_e11000(NULL, false, "{'id':'e1','_id':7}", "{'id':'E1','_id':7}", "_id");
}

/* A clustered collection: the text names no index at all. */
static void test_h001_without_a_name(void **state)
{
    struct help h;

    (void)state;
    help_begin(&h, "_id");
    help_command(&h, h.route.database,
                 help_bson("{'create':'%s','clusteredIndex':{'key':{'_id':1},'unique':true}}",
                           h.collection));
    help_make_index(&h, "{'key':{'email':1},'name':'email_1','unique':true}");
    help_connect(&h);
    h.session = h.sink.ops->open(h.sink.self);
    struct write_op ops[] = {
        help_insert(help_bson("{'_id':'a'}"), help_bson("{'_id':'a','email':'x'}")),
        help_insert(help_bson("{'_id':'b'}"), help_bson("{'_id':'b','email':'x'}")),
        help_insert(help_bson("{'_id':'c'}"), help_bson("{'_id':'c','email':'y'}")),
    };
    help_write(&h, ops, 3, "INI");
    help_write(&h, ops, 3, "DND");
    help_clear(ops, 3);
    help_close(&h);
}

/* ---- H-008: the recorded situations, made anew ---- */

/* Letters as in help_write(), and K: to be looked up. */
static void judge_command(struct help *h, bson_t *command, bool is_insert, const char *want)
{
    static const char names[] = {
        [FATE_INSERTED] = 'I', [FATE_DUPLICATE] = 'D', [FATE_LOOK] = 'K',    [FATE_LATER] = 'L',
        [FATE_UNKNOWN] = 'U',  [FATE_NEVER] = 'N',     [FATE_NOT_RUN] = 'R', [FATE_SPLIT] = 'S'};
    struct outcome out[8] = {0};
    struct outcome_call call = {.is_insert = is_insert};
    size_t n = strlen(want);
    char got[9] = "";
    bson_error_t be = {0};
    bson_t reply;

    if (!mongoc_client_command_simple(h->raw, h->route.database, command, NULL, &reply, &be)) {
        call.fault = CALL_SERVER;
        call.code = (int)be.code;
    }
    outcome_judge(&call, &reply, n, out);
    for (size_t i = 0; i < n; i++) {
        got[i] = names[out[i].fate];
        outcome_clear(&out[i]);
    }
    char *json = bson_as_relaxed_extended_json(&reply, NULL);
    if (strcmp(got, want) != 0)
        fail_msg("judged %s, expected %s: %s", got, want, json);
    bson_free(json);
    bson_destroy(&reply);
    bson_destroy(command);
}

#define UPSERT(k, rest) "{'q':{'k':" k "},'u':{'$setOnInsert':{" rest "}},'upsert':true}"

static void test_h008_the_recorded_replies_live(void **state)
{
    struct help h;

    (void)state;
    help_open(&h, "k");
    help_make_index(&h, "{'key':{'email':1},'name':'email_1','unique':true,'sparse':true}");
#define UPDATE(list, more)                                                                         \
    help_bson("{'update':'%s','ordered':false,'updates':[" list "]" more "}", h.collection)
    /* upserted; matched-existing */
    judge_command(&h, UPDATE(UPSERT("'k1'", "'email':'x'"), ""), false, "I");
    judge_command(&h, UPDATE(UPSERT("'k1'", "'email':'x'"), ""), false, "D");
    /* E11000-dedup-index, -other-index, -on-_id */
    judge_command(
        &h,
        help_bson("{'insert':'%s','ordered':false,'documents':[{'_id':1,'k':'k1'},"
                  "{'_id':2,'k':'k2','email':'x'},{'_id':3,'k':'k3'},{'_id':3,'k':'k4'}]}",
                  h.collection),
        true, "KKIK");
    /* writeErrors-and-writeConcernError, writeConcernError-only: a set of one */
    judge_command(&h,
                  UPDATE(UPSERT("'k5'", "'email':'x'") "," UPSERT("'k6'", "'v':1"),
                         ",'writeConcern':{'w':2,'wtimeout':100}"),
                  false, "UU");
    judge_command(&h, UPDATE(UPSERT("'k7'", "'v':1"), ",'writeConcern':{'w':2,'wtimeout':100}"),
                  false, "U");
    assert_int_equal(help_count(&h, "{'k':{'$in':['k6','k7']}}"), 2); /* applied all the same */
    /* mixed-bulk */
    judge_command(
        &h,
        UPDATE(UPSERT("'k8'", "'v':1") "," UPSERT("'k9'", "'a':{},'a.b':1") "," UPSERT(
                   "'k1'", "'v':1") "," UPSERT("'k10'", "'_id':[1]") "," UPSERT("'k11'", "'v':1"),
               ""),
        false, "INDNI");
    /* Command-level errors: with a code, and for everybody. */
    judge_command(&h, UPDATE(UPSERT("'k12'", "'v':1"), ",'writeConcern':{'w':'nowhere'}"), false,
                  "U");
    judge_command(&h, help_bson("{'update':'%s','updates':7}", h.collection), false, "SS");
    help_close(&h);
}

/* ---- bad members ---- */

/* H-010, G6: three bad ones among a thousand of one lane; the others are stored, in order. Depths
 * of 250 are refused with their whole command, a text in v alone. */
static void test_h010_three_bad_ones_among_a_thousand(void **state)
{
    enum { N = 1000 };
    static const int places[][3] = {{0, 1, 2}, {0, 500, 999}, {997, 998, 999}, {333, 334, 700}};
    struct write_op *ops = mem_array(N, sizeof *ops);
    struct help h;

    (void)state;
    for (size_t t = 0; t < sizeof places / sizeof *places; t++) {
        help_begin(&h, "id");
        help_command(&h, h.route.database,
                     help_bson("{'create':'%s','validator':{'v':{'$not':{'$type':'string'}}}}",
                               h.collection));
        help_connect(&h);
        help_start(&h);
        for (int i = 0; i < N; i++) {
            bool whole = i == places[t][0] || i == places[t][2];
            bson_t *doc = whole               ? help_deep(i, 250)
                          : i == places[t][1] ? help_bson("{'id':%d,'v':'text'}", i)
                                              : help_bson("{'id':%d}", i);
            ops[i] = t % 2 ? help_insert(help_bson("{'id':%d}", i), doc)
                           : help_upsert(help_bson("{'id':%d}", i), doc);
            ops[i].lane = &h;
        }
        const struct outcome *r = h.sink.ops->write(h.session, 0, ops, N);
        for (int i = 0; i < N; i++) {
            bool whole = i == places[t][0] || i == places[t][2], one = i == places[t][1];
            if (r[i].fate != (whole || one ? FATE_NEVER : FATE_INSERTED))
                fail_msg("%d: fate %d, code %d", i, (int)r[i].fate, r[i].code);
            assert_int_equal(r[i].reason, whole ? REASON_TOO_DEEP
                                          : one ? REASON_VALIDATION
                                                : REASON_NONE);
        }
        bson_t *all = bson_new(), *opts = help_bson("{'sort':{'$natural':1}}");
        mongoc_cursor_t *c = mongoc_collection_find_with_opts(h.c, all, opts, NULL);
        const bson_t *doc;
        int n = 0, last = -1;
        bson_iter_t it;
        for (; mongoc_cursor_next(c, &doc); n++) {
            assert_true(bson_iter_init_find(&it, doc, "id"));
            assert_true(bson_iter_int32(&it) > last);
            last = bson_iter_int32(&it);
        }
        assert_int_equal(n, N - 3);
        mongoc_cursor_destroy(c);
        bson_destroy(all);
        bson_destroy(opts);
        help_clear(ops, N);
        help_close(&h);
    }
    mem_free(ops);
}

/* ---- H-011, H-012, H-013 ---- */

/* A redelivery whose insert shares a transaction with a counter: the E11000 aborts it, and what
 * follows in the same transaction is told to try again (251), for ever if one believes that. The
 * first answer decides: it is looked up, found, and that is all. */
static void test_h011_a_redelivery_in_a_transaction(void **state)
{
    struct help h;
    bson_error_t be;
    bson_t opts = BSON_INITIALIZER, reply;
    struct outcome out[1] = {0};

    (void)state;
    help_open(&h, "id");
    struct write_op op = help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}"));
    help_write(&h, &op, 1, "I");
    mongoc_client_session_t *session = mongoc_client_start_session(h.raw, NULL, &be);
    assert_non_null(session);
    assert_true(mongoc_client_session_start_transaction(session, NULL, &be));
    assert_true(mongoc_client_session_append(session, &opts, &be));
    bson_t *insert = help_bson("{'insert':'%s','documents':[{'id':1}]}", h.collection);
    bool ok =
        mongoc_client_write_command_with_opts(h.raw, h.route.database, insert, &opts, &reply, &be);
    struct outcome_call call = {
        .is_insert = true, .fault = ok ? CALL_FINE : CALL_SERVER, .code = ok ? 0 : (int)be.code};
    outcome_judge(&call, &reply, 1, out);
    assert_int_equal(out[0].fate, FATE_LOOK);
    outcome_clear(&out[0]);
    bson_destroy(&reply);
    bson_t *more = help_bson(
        "{'update':'%s','updates':[{'q':{'counter':1},'u':{'$inc':{'n':1}},'upsert':true}]}",
        h.collection);
    assert_false(
        mongoc_client_write_command_with_opts(h.raw, h.route.database, more, &opts, &reply, &be));
    assert_int_equal(be.code, 251);
    call = (struct outcome_call){.fault = CALL_SERVER, .code = 251};
    outcome_judge(&call, &reply, 1, out);
    assert_int_equal(out[0].fate, FATE_UNKNOWN);
    assert_int_equal(out[0].retry, RETRY_CONFLICT);
    bson_destroy(&reply);
    (void)mongoc_client_session_abort_transaction(session, NULL);
    mongoc_client_session_destroy(session);
    help_write(&h, &op, 1, "D");
    assert_int_equal(help_count(&h, "{}"), 1); /* no counter */
    bson_destroy(&opts);
    bson_destroy(insert);
    bson_destroy(more);
    help_clear(&op, 1);
    help_close(&h);
}

/* A NUL in a key is a character like any other. */
static void test_h012_nul_in_a_key(void **state)
{
    static const struct {
        const char *key;
        int len;
    } keys[] = {{"a\0b", 3}, {"a\0c", 3}, {"a", 1}, {"a\0", 2}};
    struct help h;
    struct write_op ops[4];

    (void)state;
    help_open(&h, "id");
    for (size_t i = 0; i < 4; i++) {
        ops[i] = i % 2 ? help_upsert(bson_new(), bson_new()) : help_insert(bson_new(), bson_new());
        bson_append_utf8(ops[i].filter, "id", -1, keys[i].key, keys[i].len);
        bson_append_utf8(ops[i].document, "id", -1, keys[i].key, keys[i].len);
    }
    help_write(&h, ops, 4, "IIII");
    help_write(&h, ops, 4, "DDDD");
    assert_int_equal(help_count(&h, "{}"), 4);
    help_clear(ops, 4);
    help_close(&h);
}

/* The answer to one event comes too late twice, and each time it was applied or will be. */
static void test_h013_two_answers_that_come_too_late(void **state)
{
    struct help h;

    (void)state;
    help_begin(&h, "id");
    h.config.mongo.socket_timeout_ms = 600;
    h.config.mongo.write_timeout_ms = 400;
    help_connect(&h);
    help_start(&h);
    struct write_op ops[] = {help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
                             help_insert(help_bson("{'id':2}"), help_bson("{'id':2}"))};
    help_fail_point(&h, 4,
                    "'failCommands':['update','insert'],'blockConnection':true,'blockTimeMS':900");
    for (int i = 0; i < 2; i++) {
        const struct outcome *r = help_write(&h, ops, 2, "UL");
        assert_int_equal(r[0].retry, RETRY_NETWORK);
    }
    help_fail_point_off(&h);
    for (int tries = 0; h.sink.ops->write(h.session, 0, ops, 2)[1].fate == FATE_LATER; tries++) {
        assert_true(tries < 20);
        usleep(100000); /* the server is busy with the two before */
    }
    help_write(&h, ops, 2, "DD");
    assert_int_equal(help_count(&h, "{}"), 2);
    help_clear(ops, 2);
    help_close(&h);
}

/* ---- what passes ---- */

/* Every code of the table that is no record's fault, as the answer to a real command. */
static void test_every_passing_code(void **state)
{
    enum { EXTRA_INFO_MISSING = 40671 }; /* the fail point can't make those that carry more */
    struct help h;
    size_t seen = 0;

    (void)state;
    help_begin(&h, "id");
    (void)snprintf(h.uri + strlen(h.uri), sizeof h.uri - strlen(h.uri),
                   "&heartbeatFrequencyMS=500");
    help_connect(&h);
    help_start(&h);
    for (size_t i = 0; i < outcome_codes_count; i++) {
        const struct outcome_code *row = &outcome_codes[i];
        char data[128];
        if (row->whole != FATE_UNKNOWN || row->one == FATE_LOOK)
            continue;
        struct write_op ops[] = {
            help_upsert(help_bson("{'id':%zu}", i), help_bson("{'id':%zu}", i)),
            help_insert(help_bson("{'id':'b%zu'}", i), help_bson("{'id':'b%zu'}", i)),
        };
        (void)snprintf(data, sizeof data, "'failCommands':['update'],'errorCode':%d", row->code);
        help_fail_point(&h, 1, data);
        const struct outcome *r = h.sink.ops->write(h.session, 0, ops, 2);
        bool closes = r[0].code == 0 && r[0].retry == RETRY_NETWORK; /* and tells nobody why */
        bool can_be_made = r[0].code != EXTRA_INFO_MISSING && !closes;
        if (can_be_made &&
            (r[0].fate != FATE_UNKNOWN || r[1].fate != FATE_LATER || r[0].code != row->code ||
             r[0].retry != row->retry || r[1].retry != row->retry || r[0].doubt != DOUBT_NONE))
            fail_msg("code %d: fate %d, class %s, code %d", row->code, (int)r[0].fate,
                     retry_class_name(r[0].retry), r[0].code);
        help_clear(ops, 2);
        seen += can_be_made;
    }
    help_fail_point_off(&h);
    assert_true(seen > 100);
    help_close(&h);
}

struct killer {
    struct help *h;
    mongoc_client_t *client;
    bool killed;
};

/* Kills the sink's update, which hangs; then lets go of it. */
static void *killer_main(void *arg)
{
    struct killer *k = arg;
    bson_t *ask = help_bson("{'aggregate':1,'cursor':{},'pipeline':[{'$currentOp':{}},"
                            "{'$match':{'appName':'idemsink','op':'update','ns':'%s.%s'}},"
                            "{'$project':{'opid':1}}]}",
                            k->h->route.database, k->h->collection);

    for (int64_t end_ms = clock_mono_ms() + 2500; !k->killed && clock_mono_ms() < end_ms;) {
        bson_t reply;
        bson_iter_t it, at;
        if (mongoc_client_command_simple(k->client, "admin", ask, NULL, &reply, NULL) &&
            bson_iter_init(&it, &reply) &&
            bson_iter_find_descendant(&it, "cursor.firstBatch.0.opid", &at)) {
            bson_t *kill_op = BCON_NEW("killOp", BCON_INT32(1), "op",
                                       BCON_INT32((int32_t)bson_iter_as_int64(&at)));
            k->killed = mongoc_client_command_simple(k->client, "admin", kill_op, NULL, NULL, NULL);
            bson_destroy(kill_op);
        }
        bson_destroy(&reply);
        usleep(5000); /* between two looks */
    }
    bson_destroy(ask);
    return NULL;
}

static void test_a_killed_operation(void **state)
{
    static const char point[] = "{'configureFailPoint':'hangDuringBatchUpdate','mode':'%s',"
                                "'data':{'shouldCheckForInterrupt':true,'nss':'%s.%s'}}";
    struct help h;
    pthread_t thread;

    (void)state;
    help_open(&h, "id");
    struct killer k = {.h = &h, .client = mongoc_client_new(help_uri())};
    struct write_op ops[] = {help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
                             help_upsert(help_bson("{'id':2}"), help_bson("{'id':2}"))};
    help_command(&h, "admin", help_bson(point, "alwaysOn", h.route.database, h.collection));
    assert_int_equal(pthread_create(&thread, NULL, killer_main, &k), 0);
    const struct outcome *r = h.sink.ops->write(h.session, 0, ops, 2);
    pthread_join(thread, NULL);
    help_command(&h, "admin", help_bson(point, "off", h.route.database, h.collection));
    assert_true(k.killed);
    assert_int_equal(r[0].fate, FATE_UNKNOWN);
    assert_int_equal(r[0].code, 11601);
    assert_int_equal(r[0].doubt, DOUBT_NONE);
    help_write(&h, ops, 2, "II");
    mongoc_client_destroy(k.client);
    help_clear(ops, 2);
    help_close(&h);
}

/* ---- a standalone ---- */

static int free_port(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof a;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0 && bind(fd, (struct sockaddr *)&a, sizeof a) == 0 &&
                getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    close(fd);
    return ntohs(a.sin_port);
}

/* The same binary as the stack's, without a replica set. */
static pid_t start_standalone(int port, char *folder)
{
    const char *pids = getenv("MONGO_PIDS");
    char exe[64], binary[512], port_text[16];

    assert_non_null(pids);
    (void)snprintf(exe, sizeof exe, "/proc/%ld/exe", strtol(pids, NULL, 10));
    ssize_t len = readlink(exe, binary, sizeof binary - 1);
    assert_true(len > 0);
    binary[len] = '\0';
    (void)snprintf(port_text, sizeof port_text, "%d", port);
    assert_non_null(mkdtemp(folder));
    pid_t pid = fork();
    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing behind */
        (void)freopen("/dev/null", "w", stdout);
        (void)freopen("/dev/null", "w", stderr);
        (void)execl(binary, binary, "--bind_ip", "127.0.0.1", "--port", port_text, "--dbpath",
                    folder, "--wiredTigerCacheSizeGB", "0.25", "--setParameter",
                    "diagnosticDataCollectionEnabled=false", (char *)NULL);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static void stop_standalone(pid_t pid, const char *folder)
{
    char command[256];
    int status;

    (void)kill(pid, SIGKILL);
    (void)waitpid(pid, &status, 0);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    assert_int_equal(system(command), 0);
}

/* 20: what needs a replica set is nobody's data. Plain writes need none, and are stored. */
static void test_a_standalone(void **state)
{
    char folder[] = "/tmp/idemsink-standalone-XXXXXX";
    int port = free_port();
    pid_t pid = start_standalone(port, folder);
    struct help h;
    struct err e = {0};
    bool there = false;

    (void)state;
    help_begin(&h, "id");
    (void)snprintf(h.uri, sizeof h.uri, "mongodb://127.0.0.1:%d/?serverSelectionTryOnce=false",
                   port);
    help_connect(&h);
    for (int64_t end_ms = clock_mono_ms() + 30000; !there && clock_mono_ms() < end_ms;) {
        there = mongo_make_index(h.mongo, &h.route, &e);
        if (!there)
            usleep(50000); /* until it listens */
    }
    if (!there)
        fail_msg("%s", e.text);
    h.session = h.sink.ops->open(h.sink.self);
    struct write_op ops[] = {help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
                             help_insert(help_bson("{'id':2}"), help_bson("{'id':2}"))};
    help_write(&h, ops, 2, "II");
    help_write(&h, ops, 2, "DD");
    help_clear(ops, 2);

    mongoc_client_t *raw = mongoc_client_new(h.uri);
    bson_error_t be = {0};
    bson_t reply, opts = BSON_INITIALIZER;
    bson_t *insert = help_bson("{'insert':'x','documents':[{'id':3}]}");
    mongoc_client_set_error_api(raw, MONGOC_ERROR_API_VERSION_2);
    mongoc_client_session_t *session = mongoc_client_start_session(raw, NULL, &be);
    assert_non_null(session);
    assert_true(mongoc_client_session_start_transaction(session, NULL, &be));
    assert_true(mongoc_client_session_append(session, &opts, &be));
    assert_false(
        mongoc_client_write_command_with_opts(raw, "idemsink_test", insert, &opts, &reply, &be));
    struct outcome out[1] = {0};
    struct outcome_call call = {.fault = CALL_SERVER, .code = (int)be.code, .is_insert = true};
    outcome_judge(&call, &reply, 1, out);
    assert_int_equal(out[0].code, 20);
    assert_int_equal(out[0].fate, FATE_UNKNOWN);
    assert_int_equal(out[0].retry, RETRY_CONFIG);
    assert_int_equal(out[0].doubt, DOUBT_NONE);
    bson_destroy(&reply);
    bson_destroy(&opts);
    bson_destroy(insert);
    (void)mongoc_client_session_abort_transaction(session, NULL);
    mongoc_client_session_destroy(session);
    mongoc_client_destroy(raw);
    help_close(&h);
    stop_standalone(pid, folder);
}

/* ---- codes that nobody knows ---- */

static void test_a_suspected_one_goes_alone(void **state)
{
    struct help h;

    (void)state;
    help_open(&h, "id");
    struct write_op ops[] = {
        help_upsert(help_bson("{'id':1}"), help_bson("{'id':1}")),
        help_upsert(help_bson("{'id':2}"), help_bson("{'id':2}")),
        help_upsert(help_bson("{'id':3}"), help_bson("{'id':3}")),
    };
    help_fail_point(&h, 3, "'failCommands':['update'],'errorCode':424242");
    const struct outcome *r = help_write(&h, ops, 3, "UUL"); /* 3, 1 and 1 operations */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(r[i].doubt, DOUBT_ALONE);
        assert_non_null(strstr(r[i].text, "failCommand"));
    }
    ops[0].alone = ops[1].alone = true;
    help_command(&h, "admin",
                 help_bson("{'configureFailPoint':'failCommand','mode':{'skip':1},'data':{"
                           "'appName':'idemsink','failCommands':['update'],'errorCode':424242}}"));
    r = help_write(&h, ops, 3, "UUI"); /* the third one first; they don't take it with them */
    assert_int_equal(r[1].doubt, DOUBT_ALONE);
    help_fail_point_off(&h);
    help_write(&h, ops, 3, "IID");
    help_clear(ops, 3);
    help_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_h001_every_kind_of_e11000),
        cmocka_unit_test(test_h001_without_a_name),
        cmocka_unit_test(test_h008_the_recorded_replies_live),
        cmocka_unit_test(test_h010_three_bad_ones_among_a_thousand),
        cmocka_unit_test(test_h011_a_redelivery_in_a_transaction),
        cmocka_unit_test(test_h012_nul_in_a_key),
        cmocka_unit_test(test_h013_two_answers_that_come_too_late),
        cmocka_unit_test(test_every_passing_code),
        cmocka_unit_test(test_a_killed_operation),
        cmocka_unit_test(test_a_standalone),
        cmocka_unit_test(test_a_suspected_one_goes_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
