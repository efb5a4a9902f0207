/* Each rule of outcome.h, each code, and replies that no server would send. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "core/outcome.h"

enum { MAX = 16 };

/* Judges a reply in JSON with ' for ". */
static void judge(const struct outcome_call *call, const char *json, size_t n, struct outcome *out)
{
    char text[4096];
    bson_error_t e;

    memset(out, 0, n * sizeof *out);
    if (!json) {
        outcome_judge(call, NULL, n, out);
        return;
    }
    snprintf(text, sizeof text, "%s", json);
    for (char *p = text; *p; p++)
        if (*p == '\'')
            *p = '"';
    bson_t *b = bson_new_from_json((const uint8_t *)text, -1, &e);
    if (!b)
        fail_msg("%s: %s", json, e.message);
    outcome_judge(call, b, n, out);
    bson_destroy(b);
}

static void clear(struct outcome *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        outcome_clear(&out[i]);
}

/* One letter per operation: Inserted Duplicate looK Later Unknown Never not-Run Split. */
static void expect(const struct outcome_call *call, const char *json, const char *letters)
{
    static const char names[] = {
        [FATE_INSERTED] = 'I', [FATE_DUPLICATE] = 'D', [FATE_LOOK] = 'K',    [FATE_LATER] = 'L',
        [FATE_UNKNOWN] = 'U',  [FATE_NEVER] = 'N',     [FATE_NOT_RUN] = 'R', [FATE_SPLIT] = 'S'};
    struct outcome out[MAX];
    char got[MAX + 1] = "";
    size_t n = strlen(letters);

    judge(call, json, n, out);
    for (size_t i = 0; i < n; i++)
        got[i] = names[out[i].fate];
    if (strcmp(got, letters) != 0)
        fail_msg("%s\n  is judged %s, expected %s", json, got, letters);
    clear(out, n);
}

static const struct outcome_call fine = {.fault = CALL_FINE};
static const struct outcome_call ordered = {.fault = CALL_FINE, .ordered = true};
static const struct outcome_call insert = {.fault = CALL_FINE, .is_insert = true};

/* ---- the server's reply and the driver's ---- */

static void test_upserts(void **state)
{
    (void)state;
    expect(&fine, "{'n':3,'nModified':0,'upserted':[{'index':1,'_id':7}],'ok':1}", "DID");
    expect(&fine,
           "{'nInserted':0,'nMatched':2,'nModified':0,'nRemoved':0,'nUpserted':1,"
           "'upserted':[{'index':1,'_id':7}],'writeErrors':[]}",
           "DID");
    expect(&fine,
           "{'n':{'$numberLong':'2'},'upserted':[{'index':{'$numberDouble':'0.0'},'_id':7}],"
           "'ok':true}",
           "ID");
}

static void test_inserts(void **state)
{
    (void)state;
    expect(&insert, "{'n':2,'ok':1}", "II");
    expect(&insert,
           "{'nInserted':1,'nMatched':0,'nUpserted':0,"
           "'writeErrors':[{'index':0,'code':11000,'errmsg':'x'}]}",
           "KI");
    expect(&insert, "{'n':2,'upserted':[{'index':0,'_id':1}],'ok':1}", "UU");
}

static void test_ordered_stop(void **state)
{
    static const struct outcome_call ordered_insert = {.ordered = true, .is_insert = true};
    (void)state;
    expect(&ordered,
           "{'n':2,'upserted':[{'index':1,'_id':7}],"
           "'writeErrors':[{'index':2,'code':121,'errmsg':'x'}],'ok':1}",
           "DINRR");
    expect(&ordered, "{'n':0,'writeErrors':[{'index':0,'code':11000,'errmsg':'x'}],'ok':1}", "KRR");
    expect(&ordered, "{'n':2,'writeErrors':[{'index':2,'code':112,'errmsg':'x'}],'ok':1}", "DDL");
    expect(&ordered_insert, "{'n':1,'writeErrors':[{'index':1,'code':40,'errmsg':'x'}],'ok':1}",
           "INR");
    /* Unordered: what lies behind was run. */
    expect(&fine, "{'n':4,'writeErrors':[{'index':2,'code':121,'errmsg':'x'}],'ok':1}", "DDNDD");
    /* Nothing can have been done behind the stop, and there is one stop only. */
    expect(&ordered,
           "{'n':1,'upserted':[{'index':2,'_id':7}],"
           "'writeErrors':[{'index':1,'code':121,'errmsg':'x'}],'ok':1}",
           "UUU");
    expect(&ordered,
           "{'n':1,'writeErrors':[{'index':1,'code':121,'errmsg':'x'},"
           "{'index':2,'code':121,'errmsg':'x'}],'ok':1}",
           "UUU");
}

static void test_write_concern(void **state)
{
    struct outcome out[2];
    static const struct outcome_call dup = {
        .fault = CALL_SERVER, .code = 11000, .message = "E11000"};

    (void)state;
    expect(&dup,
           "{'nMatched':0,'nUpserted':1,'upserted':[{'index':1,'_id':7}],"
           "'writeErrors':[{'index':0,'code':11000,'errmsg':'x'}],"
           "'writeConcernErrors':[{'code':64,'errmsg':'waiting timed out'}]}",
           "UU");
    expect(&fine, "{'n':2,'ok':1,'writeConcernError':7}", "UU");
    expect(&fine, "{'nMatched':2,'nUpserted':0,'writeErrors':[],'writeConcernErrors':[]}", "DD");
    expect(&fine, "{'ok':0,'code':91,'writeConcernError':{'code':64}}", "UU");

    judge(&fine, "{'n':2,'ok':1,'writeConcernError':{'code':64}}", 2, out);
    assert_int_equal(out[1].retry, RETRY_WRITE_CONCERN);
    assert_int_equal(out[1].code, 64);
    judge(&fine, "{'n':2,'ok':1,'writeConcernError':{'code':11602}}", 2, out);
    assert_int_equal(out[0].retry, RETRY_NO_PRIMARY);
    judge(&fine, "{'n':2,'ok':1,'writeConcernError':{'code':79}}", 2, out);
    assert_int_equal(out[0].retry, RETRY_CONFIG);
}

/* Whatever index it names, or none, or one that only looks like it: the text decides nothing. */
static void test_e11000(void **state)
{
    static const char *const errors[] = {
        "'errmsg':'E11000 duplicate key error collection: d.c index: idemsink_dedup dup key: { id: "
        "1 }','keyPattern':{'id':1},'keyValue':{'id':1}",
        "'errmsg':'E11000 duplicate key error collection: d.c index: email_1 dup key: { email: 1 "
        "}','keyPattern':{'email':1},'keyValue':{'email':1}",
        /* One pattern, two indexes. */
        "'errmsg':'E11000 duplicate key error collection: d.c index: twin dup key: { id: 1 }',"
        "'keyPattern':{'id':1},'collation':{'locale':'en','strength':2},'keyValue':{'id':1}",
        /* A clustered collection names none. */
        "'errmsg':'E11000 duplicate key error collection: d.c dup key: { _id: 1 }',"
        "'keyPattern':{'_id':1},'keyValue':{'_id':1}",
        /* Before 4.2. */
        "'errmsg':'E11000 duplicate key error collection: d.c index: id_1 dup key: { : 1 }'",
        /* Names and values of whoever wants to be taken for the dedup index. */
        "'errmsg':'E11000 duplicate key error collection: d.c index: x dup key: { id: 1 } index: "
        "idemsink_dedup dup key: { id: 1 }','keyPattern':{'email':1}",
        "'errmsg':'E11000 duplicate key error collection: d.index: idemsink_dedup index: y dup "
        "key: "
        "{ email: \\u0000 }','keyPattern':{'email':1}",
        "'keyPattern':7",
        "'errmsg':7,'keyPattern':{}",
    };
    static const int codes[] = {11000, 11001, 12582};
    char json[1024];
    struct outcome out[2];

    (void)state;
    for (size_t c = 0; c < sizeof codes / sizeof *codes; c++) {
        for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
            snprintf(json, sizeof json,
                     "{'n':1,'writeErrors':[{'index':0,'code':%d,%s}],'nModified':0,'ok':1}",
                     codes[c], errors[i]);
            judge(&fine, json, 2, out);
            assert_int_equal(out[0].fate, FATE_LOOK);
            assert_non_null(out[0].text);
            assert_int_equal(out[1].fate, FATE_DUPLICATE);
            clear(out, 2);
        }
    }
    /* As the answer to the whole command it says nothing about any of them. */
    expect(&fine, "{'ok':0,'code':11000,'errmsg':'E11000','keyPattern':{'id':1}}", "UU");
}

/* ok: 0 with or without counts, with or without lists: nothing of them is believed. */
static void test_command_level_errors(void **state)
{
    static const struct outcome_call driver = {.fault = CALL_SERVER, .code = 11602};

    (void)state;
    expect(&fine, "{'ok':0,'code':11602}", "UU");
    expect(&fine, "{'ok':0,'code':11602,'n':2,'nModified':0}", "UU");
    expect(&fine, "{'ok':0,'code':11602,'n':2,'upserted':[{'index':0,'_id':1}]}", "UU");
    expect(&fine, "{'ok':0,'code':11602,'n':1,'writeErrors':[{'index':0,'code':121}]}", "UU");
    expect(&driver,
           "{'nInserted':0,'nMatched':1,'nUpserted':1,'upserted':[{'index':0,'_id':1}],"
           "'writeErrors':[]}",
           "UU");
    expect(&driver, "{'nInserted':0,'nMatched':0,'nUpserted':0,'writeErrors':[]}", "UU");
    expect(&ordered, "{'ok':0,'code':15,'n':1}", "SS");
}

/* ---- every row of the table ---- */

static void test_every_code(void **state)
{
    char json[256];
    struct outcome out[3];

    (void)state;
    for (size_t i = 0; i < outcome_codes_count; i++) {
        const struct outcome_code *row = &outcome_codes[i];
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(outcome_codes[j].code, row->code);
        assert_ptr_equal(outcome_code_find(row->code), row);
        assert_true(strlen(row->name) > 0 && strlen(row->source) > 0);
        assert_true((row->one == FATE_NEVER) == (row->reason != REASON_NONE));
        assert_true(!row->member || row->whole == FATE_SPLIT);
        assert_true(row->whole == FATE_SPLIT || row->whole == FATE_UNKNOWN);

        snprintf(json, sizeof json,
                 "{'n':2,'writeErrors':[{'index':1,'code':%d,'errmsg':'why'}],'ok':1}", row->code);
        judge(&fine, json, 3, out);
        assert_int_equal(out[0].fate, FATE_DUPLICATE);
        assert_int_equal(out[1].fate, row->one);
        assert_int_equal(out[1].code, row->code);
        assert_int_equal(out[2].fate, FATE_DUPLICATE);
        if (row->one == FATE_NEVER) {
            assert_int_equal(out[1].reason, row->reason);
            assert_string_equal(out[1].text, "why");
        } else {
            assert_int_equal(out[1].reason, REASON_NONE);
        }
        if (row->one == FATE_LATER || row->one == FATE_UNKNOWN)
            assert_int_equal(out[1].retry, row->retry);
        clear(out, 3);

        snprintf(json, sizeof json, "{'ok':0,'code':%d,'errmsg':'why'}", row->code);
        judge(&fine, json, 2, out);
        assert_int_equal(out[0].fate, row->whole);
        assert_int_equal(out[0].retry, row->retry);
        assert_int_equal(out[1].fate, row->whole);
        assert_int_equal(out[1].reason, row->member ? row->reason : REASON_NONE);
        clear(out, 2);
    }
}

static void test_insert_too_large(void **state)
{
    struct outcome out[2];

    (void)state;
    judge(
        &insert,
        "{'n':0,'writeErrors':[{'index':0,'code':2,'errmsg':'object to insert too large. size in "
        "bytes: "
        "16777256, max size: 16777216'},{'index':1,'code':2,'errmsg':'object to insert'}],'ok':1}",
        2, out);
    assert_int_equal(out[0].reason, REASON_TOO_LARGE);
    assert_int_equal(out[1].reason, REASON_REJECTED);
    clear(out, 2);
}

/* G7: nothing that an operator or a server has to mend may reach the dead-letter topic. */
static void test_what_is_never_the_records_fault(void **state)
{
    static const int codes[] = {6,     7,     13,    18,  20,  26,    50,    64,    79,
                                89,    91,    100,   112, 189, 262,   391,   8000,  9001,
                                10058, 10107, 251,   371, 402, 11600, 11601, 11602, 13388,
                                13435, 13436, 14031, 0,   1,   8,     123456};
    char json[256];
    struct outcome out[1];

    (void)state;
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        snprintf(json, sizeof json,
                 "{'n':0,'writeErrors':[{'index':0,'code':%d,'errmsg':'x'}],'ok':1}", codes[i]);
        judge(&fine, json, 1, out);
        assert_true(out[0].fate == FATE_UNKNOWN || out[0].fate == FATE_LATER);
        clear(out, 1);
        snprintf(json, sizeof json, "{'ok':0,'code':%d,'errmsg':'x'}", codes[i]);
        judge(&fine, json, 1, out);
        assert_true(out[0].fate == FATE_UNKNOWN ||
                    (out[0].fate == FATE_SPLIT && out[0].reason == REASON_NONE));
        clear(out, 1);
    }
}

static void test_unknown_code(void **state)
{
    (void)state;
    expect(&fine, "{'n':1,'writeErrors':[{'index':0,'code':424242,'errmsg':'x'}],'ok':1}", "UD");
    expect(&fine, "{'ok':0,'code':424242,'errmsg':'x'}", "SS");
    expect(&fine, "{'ok':0,'errmsg':'x'}", "UU");
}

/* What may be one operation's own fault, and the words for its dead letter. */
static void test_doubt(void **state)
{
    struct outcome out[2];

    (void)state;
    judge(&fine, "{'n':1,'writeErrors':[{'index':1,'code':424242,'errmsg':'why'}],'ok':1}", 2, out);
    assert_int_equal(out[0].doubt, DOUBT_NONE);
    assert_int_equal(out[1].doubt, DOUBT_AMONG);
    assert_null(out[1].text);
    judge(&fine, "{'n':0,'writeErrors':[{'index':0,'code':424242,'errmsg':'why'}],'ok':1}", 1, out);
    assert_int_equal(out[0].fate, FATE_UNKNOWN);
    assert_int_equal(out[0].doubt, DOUBT_ALONE);
    assert_string_equal(out[0].text, "why");
    clear(out, 1);
    /* As the answer to all: somebody's. Also a code that is permanent for one. */
    for (int code = 2; code < 424243; code += 424240) {
        char json[64];
        snprintf(json, sizeof json, "{'ok':0,'code':%d}", code);
        judge(&fine, json, 2, out);
        assert_int_equal(out[0].fate, FATE_SPLIT);
        assert_int_equal(out[0].doubt, DOUBT_NONE);
        judge(&fine, json, 1, out);
        assert_int_equal(out[0].fate, FATE_SPLIT);
        assert_int_equal(out[0].doubt, DOUBT_ALONE);
        assert_string_equal(out[0].text, "the server gave no message");
        clear(out, 1);
    }
    /* Known not to be the data's fault, or known to be: no doubt. */
    judge(&fine, "{'ok':0,'code':11602}", 1, out);
    assert_int_equal(out[0].doubt, DOUBT_NONE);
    judge(&fine, "{'ok':0,'code':15}", 1, out);
    assert_int_equal(out[0].doubt, DOUBT_NONE);
    clear(out, 1);
    judge(&fine, "{'ok':0}", 1, out);
    assert_int_equal(out[0].doubt, DOUBT_NONE);
    judge(&(struct outcome_call){.fault = CALL_NETWORK, .code = 4}, NULL, 1, out);
    assert_int_equal(out[0].doubt, DOUBT_NONE);
}

/* Servers to come have codes that are not in the table; their labels say what kind they are. */
static void test_labels(void **state)
{
    static const char *const labels[] = {"RetryableWriteError", "TransientTransactionError",
                                         "UnknownTransactionCommitResult", "RetryableError",
                                         "SystemOverloadedError"};
    struct outcome out[2];
    char json[256];

    (void)state;
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++) {
        snprintf(json, sizeof json,
                 "{'ok':0,'code':424242,'errmsg':'x','errorLabels':['NoWritesPerformed','%s']}",
                 labels[i]);
        expect(&fine, json, "UU"); /* not halved */
        judge(&fine, json, 1, out);
        assert_int_equal(out[0].doubt, DOUBT_NONE);
    }
    expect(&(struct outcome_call){.fault = CALL_SERVER, .code = 424242},
           "{'nMatched':0,'nUpserted':0,'writeErrors':[],'errorLabels':['RetryableWriteError']}",
           "UU");
    judge(&fine,
          "{'n':0,'writeErrors':[{'index':0,'code':424242}],'ok':1,"
          "'errorLabels':['RetryableWriteError']}",
          1, out);
    assert_int_equal(out[0].doubt, DOUBT_NONE);
    expect(&fine, "{'ok':0,'code':424242,'errorLabels':['Other',7]}", "SS");
    expect(&fine, "{'ok':0,'code':424242,'errorLabels':'RetryableWriteError'}", "SS");
    expect(&fine, "{'ok':0,'code':15,'errorLabels':['RetryableWriteError']}", "SS");
}

/* ---- failures of the whole call ---- */

static void test_faults(void **state)
{
    static const struct {
        struct outcome_call call;
        enum fate fate;
        enum retry_class retry;
        enum reason reason;
    } t[] = {
        {{.fault = CALL_NETWORK, .message = "socket"}, FATE_UNKNOWN, RETRY_NETWORK, REASON_NONE},
        {{.fault = CALL_SELECTION}, FATE_UNKNOWN, RETRY_NO_PRIMARY, REASON_NONE},
        {{.fault = CALL_AUTH}, FATE_UNKNOWN, RETRY_RIGHTS, REASON_NONE},
        {{.fault = CALL_DRIVER}, FATE_UNKNOWN, RETRY_OTHER, REASON_NONE},
        {{.fault = CALL_FINE}, FATE_UNKNOWN, RETRY_OTHER, REASON_NONE},
        {{.fault = CALL_SERVER, .code = 11602}, FATE_UNKNOWN, RETRY_NO_PRIMARY, REASON_NONE},
        {{.fault = CALL_SERVER, .code = 15}, FATE_SPLIT, RETRY_OTHER, REASON_TOO_DEEP},
        {{.fault = CALL_SERVER, .code = 10334}, FATE_SPLIT, RETRY_OTHER, REASON_TOO_LARGE},
        {{.fault = CALL_SERVER, .code = 2}, FATE_SPLIT, RETRY_OTHER, REASON_NONE},
        {{.fault = CALL_DOCUMENT, .message = "Document 1 is too large for the cluster."},
         FATE_SPLIT,
         RETRY_OTHER,
         REASON_TOO_LARGE},
        {{.fault = CALL_DOCUMENT, .message = "empty key"},
         FATE_SPLIT,
         RETRY_OTHER,
         REASON_REJECTED},
    };
    static const char *const replies[] = {
        NULL, "{}", "{'nInserted':0,'nMatched':0,'nModified':0,'nUpserted':0,'writeErrors':[]}"};
    struct outcome out[2];

    (void)state;
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        for (size_t r = 0; r < 3; r++) {
            if (t[i].call.fault == CALL_FINE && r == 2)
                continue;
            judge(&t[i].call, replies[r], 2, out);
            for (size_t k = 0; k < 2; k++) {
                assert_int_equal(out[k].fate, t[i].fate);
                assert_int_equal(out[k].retry, t[i].retry);
                assert_int_equal(out[k].reason, t[i].reason);
            }
            clear(out, 2);
        }
    }
    /* libmongoc drops a command's error behind one that worked: no error, no success, no count. */
    expect(&(struct outcome_call){.fault = CALL_DRIVER},
           "{'nMatched':1,'nUpserted':0,'writeErrors':[]}", "UU");
    /* The message of a lone one is kept for its dead letter. */
    judge(&(struct outcome_call){.fault = CALL_SERVER, .code = 15, .message = "deep"}, NULL, 1,
          out);
    assert_string_equal(out[0].text, "deep");
    clear(out, 1);
}

static void test_failure_of_a_read(void **state)
{
    struct outcome o;

    (void)state;
    outcome_of_failure(&(struct outcome_call){.fault = CALL_SERVER, .code = 13}, &o);
    assert_int_equal(o.fate, FATE_UNKNOWN);
    assert_int_equal(o.retry, RETRY_RIGHTS);
    assert_int_equal(o.code, 13);
    outcome_of_failure(&(struct outcome_call){.fault = CALL_SERVER, .code = 424242}, &o);
    assert_int_equal(o.retry, RETRY_OTHER);
    outcome_of_failure(&(struct outcome_call){.fault = CALL_NETWORK, .code = 4}, &o);
    assert_int_equal(o.retry, RETRY_NETWORK);
    assert_int_equal(o.code, 0);
}

/* ---- replies that contradict themselves ---- */

static void test_contradictions(void **state)
{
    static const char *const replies[] = {
        "{'ok':1}",       /* no count */
        "{'n':1,'ok':1}", /* too few */
        "{'n':3,'ok':1}", /* too many */
        "{'n':-2,'ok':1}",
        "{'n':2.5,'ok':1}",
        "{'n':'2','ok':1}",
        "{'n':{'$numberLong':'9223372036854775807'},'ok':1}",
        "{'n':{'$numberDouble':'NaN'},'ok':1}",
        "{'n':2,'ok':'yes'}",
        "{'n':2,'upserted':[{'index':2,'_id':1}],'ok':1}", /* out of range */
        "{'n':2,'upserted':[{'index':-1,'_id':1}],'ok':1}",
        "{'n':2,'upserted':[{'index':0,'_id':1},{'index':0,'_id':1}],'ok':1}", /* twice */
        "{'n':2,'upserted':[{'_id':1}],'ok':1}",
        "{'n':2,'upserted':[7],'ok':1}",
        "{'n':2,'upserted':{},'ok':1}",
        "{'n':2,'upserted':7,'ok':1}",
        "{'n':1,'writeErrors':[{'index':2,'code':121}],'ok':1}",
        "{'n':1,'writeErrors':[{'index':4294967296,'code':121}],'ok':1}",
        "{'n':1,'writeErrors':[{'index':0}],'ok':1}",
        "{'n':1,'writeErrors':[{'code':121}],'ok':1}",
        "{'n':1,'writeErrors':[{'index':0,'code':'121'}],'ok':1}",
        "{'n':1,'writeErrors':['x'],'ok':1}",
        "{'n':1,'writeErrors':{'index':0,'code':121},'ok':1}",
        "{'n':0,'writeErrors':[{'index':0,'code':121},{'index':0,'code':121}],'ok':1}",
        "{'n':1,'upserted':[{'index':0,'_id':1}],'writeErrors':[{'index':0,'code':121}],'ok':1}",
        "{'n':2,'writeErrors':[{'index':0,'code':121}],'ok':1}", /* the error counts as done */
        "{'nMatched':0,'nUpserted':2,'upserted':[{'index':0,'_id':1}],'writeErrors':[]}",
    };

    (void)state;
    for (size_t i = 0; i < sizeof replies / sizeof *replies; i++)
        expect(&fine, replies[i], "UU");
}

/* ---- texts ---- */

static void test_texts(void **state)
{
    struct outcome out[1];
    char json[4096], key[2001];

    (void)state;
    judge(&fine,
          "{'n':0,'writeErrors':[{'index':0,'code':11000,'errmsg':'E11000 dup key: {}',"
          "'keyPattern':{'_id':1},'keyValue':{'_id':'a'}}],'ok':1}",
          1, out);
    assert_string_equal(out[0].text, "E11000 dup key: {} (index on { \"_id\" : 1 })");
    clear(out, 1);
    judge(&fine,
          "{'n':0,'writeErrors':[{'index':0,'code':11000,'errmsg':'E11000 index: a_1 dup',"
          "'keyPattern':{'a':1}}],'ok':1}",
          1, out);
    assert_string_equal(out[0].text, "E11000 index: a_1 dup");
    clear(out, 1);
    judge(&fine, "{'n':0,'writeErrors':[{'index':0,'code':121}],'ok':1}", 1, out);
    assert_string_equal(out[0].text, "the server gave no message");
    clear(out, 1);

    /* Cut between characters: 2-byte ones from an odd place on. */
    for (size_t i = 0; i < 2000; i += 2)
        memcpy(key + i, "\xC3\xA4", 3);
    snprintf(json, sizeof json,
             "{'n':0,'writeErrors':[{'index':0,'code':121,'errmsg':'x%s'}],'ok':1}", key);
    judge(&fine, json, 1, out);
    assert_int_equal(strlen(out[0].text), 1023);
    assert_true(bson_utf8_validate(out[0].text, 1023, false));
    clear(out, 1);
}

/* errInfo as MongoDB 6.0 sends it, and what anybody may send. */
static void test_rule_of_a_validator(void **state)
{
#define DETAILS(d) "{'failingDocumentId':'secret','details':" d "}"
#define SCHEMA(rules)                                                                              \
    DETAILS("{'operatorName':'$jsonSchema','schemaRulesNotSatisfied':[" rules "]}")
    static const struct {
        const char *info, *expected;
    } rows[] = {
        {SCHEMA("{'operatorName':'properties','propertiesNotSatisfied':[{'propertyName':'v',"
                "'description':'d','details':[{'operatorName':'bsonType','specifiedAs':{'bsonType':"
                "'int'},'reason':'type did not match','consideredValue':'secret',"
                "'consideredType':'string'}]}]},{'operatorName':'required','specifiedAs':"
                "{'required':['id','v']},'missingProperties':['w','x']}"),
         ": v: bsonType { \"bsonType\" : \"int\" }, type did not match, it is string; required "
         "{ \"required\" : [ \"id\", \"v\" ] }, missing: w, x"},
        {SCHEMA("{'operatorName':'properties','propertiesNotSatisfied':[{'propertyName':'o',"
                "'details':[{'operatorName':'properties','propertiesNotSatisfied':[{'propertyName':"
                "'list','details':[{'operatorName':'items','reason':'r','itemIndex':2,'details':"
                "[{'operatorName':'maximum'}]}]}]}]},{'propertyName':'z','details':[{"
                "'operatorName':'minimum'}]}]},{'operatorName':'additionalProperties',"
                "'specifiedAs':{'additionalProperties':false},'additionalProperties':['y']}"),
         ": o.list[2]: maximum; z: minimum; additionalProperties "
         "{ \"additionalProperties\" : false }, not allowed: y"},
        {DETAILS("{'operatorName':'$eq','specifiedAs':{'ok':{'$eq':true}},'reason':"
                 "'field was missing'}"),
         ": $eq { \"ok\" : { \"$eq\" : true } }, field was missing"},
        {DETAILS("{'operatorName':'$and','clausesNotSatisfied':[{'index':0,'details':{"
                 "'operatorName':'$gt','specifiedAs':{'a':1},'consideredValues':['secret']}}]}"),
         ": $gt { \"a\" : 1 }"},
        {DETAILS("{'operatorName':5,'reason':6,'missingProperties':7,'specifiedAs':8}"), ""},
        {"{'details':[]}", ""},
        {"{'details':5}", ""},
        {"7", ""},
        {"{}", ""},
    };
    struct outcome out[1];
    char json[2048];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        snprintf(json, sizeof json,
                 "{'n':0,'writeErrors':[{'index':0,'code':121,'errInfo':%s,"
                 "'errmsg':'Document failed validation'}],'ok':1}",
                 rows[i].info);
        judge(&fine, json, 1, out);
        assert_memory_equal(out[0].text, "Document failed validation", 26);
        assert_string_equal(out[0].text + 26, rows[i].expected);
        clear(out, 1);
    }
#undef SCHEMA
#undef DETAILS
}

/* However much it says, and however deep. */
static void test_rule_is_bounded(void **state)
{
    struct buf json = {0};
    struct outcome out[1];

    (void)state;
    buf_add_text(&json, "{'n':0,'writeErrors':[{'index':0,'code':121,'errmsg':'x','errInfo':"
                        "{'details':{'all':1,'allSatisfied':[");
    for (int i = 0; i < 65; i++)
        buf_printf(&json, "%s{'propertyName':'\xC3\xA4\xC3\xB6','details':[{'operatorName':'o'}]}",
                   i > 0 ? "," : "");
    buf_add_text(&json, "]}}}],'ok':1}");
    judge(&fine, buf_text(&json), 1, out);
    assert_in_range(strlen(out[0].text), 490, 510);
    assert_true(bson_utf8_validate(out[0].text, strlen(out[0].text), false));
    clear(out, 1);
    buf_reset(&json);
    buf_add_text(&json, "{'n':0,'writeErrors':[{'index':0,'code':121,'errmsg':'x','errInfo':"
                        "{'details':");
    for (int i = 0; i < 90; i++)
        buf_add_text(&json, "{'details':");
    buf_add_text(&json, "{'operatorName':'deep'}");
    for (int i = 0; i < 90; i++)
        buf_add_char(&json, '}');
    buf_add_text(&json, "}}],'ok':1}");
    judge(&fine, buf_text(&json), 1, out);
    assert_string_equal(out[0].text, "x");
    clear(out, 1);
    buf_clear(&json);
}

static void test_class_names(void **state)
{
    (void)state;
    for (int c = 0; c < RETRY_CLASSES; c++) {
        assert_true(strlen(retry_class_name((enum retry_class)c)) > 0);
        for (int d = 0; d < c; d++)
            assert_string_not_equal(retry_class_name((enum retry_class)c),
                                    retry_class_name((enum retry_class)d));
    }
    assert_string_equal(retry_class_name((enum retry_class)99), "other");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_upserts),
        cmocka_unit_test(test_inserts),
        cmocka_unit_test(test_ordered_stop),
        cmocka_unit_test(test_write_concern),
        cmocka_unit_test(test_e11000),
        cmocka_unit_test(test_command_level_errors),
        cmocka_unit_test(test_every_code),
        cmocka_unit_test(test_insert_too_large),
        cmocka_unit_test(test_rule_of_a_validator),
        cmocka_unit_test(test_rule_is_bounded),
        cmocka_unit_test(test_what_is_never_the_records_fault),
        cmocka_unit_test(test_unknown_code),
        cmocka_unit_test(test_doubt),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_faults),
        cmocka_unit_test(test_failure_of_a_read),
        cmocka_unit_test(test_contradictions),
        cmocka_unit_test(test_texts),
        cmocka_unit_test(test_class_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
