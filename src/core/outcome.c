#include "core/outcome.h"

#include <stdint.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/outcome_rule.h"

enum { TEXT_MAX = 1024 }; /* of a server's message; it may echo a key of any size */

const char *retry_class_name(enum retry_class c)
{
    static const char *const names[RETRY_CLASSES] = {
        [RETRY_NONE] = "none",
        [RETRY_NETWORK] = "network",
        [RETRY_NO_PRIMARY] = "no_primary",
        [RETRY_TIMEOUT] = "timeout",
        [RETRY_WRITE_CONCERN] = "write_concern",
        [RETRY_CONFLICT] = "conflict",
        [RETRY_RIGHTS] = "rights",
        [RETRY_CONFIG] = "config",
        [RETRY_DEAD_LETTER] = "dead_letter",
        [RETRY_LOCK] = "lock",
        [RETRY_OTHER] = "other",
    };
    return (unsigned)c < RETRY_CLASSES ? names[c] : "other";
}

void outcome_clear(struct outcome *o)
{
    mem_free(o->text);
    *o = (struct outcome){.fate = FATE_UNKNOWN};
}

/* Cut at the end of a character, so that the text stays UTF-8. */
static char *text_cut(const char *s, size_t len)
{
    return mem_text_n(s, bytes_cut_utf8(s, len, TEXT_MAX));
}

/* What the top level of a reply says. Iterators stand on the value, where has_ says so. */
struct reply {
    bool usable;  /* there is something to judge by */
    bool broken;  /* a field has a type or value that can't be */
    bool refused; /* ok: 0 */
    bool has_done, has_upserted_count;
    int64_t done;           /* operations that matched, inserted or upserted */
    int64_t upserted_count; /* as counted by the driver */
    bool has_upserted, has_errors, has_concern;
    bson_iter_t upserted, errors;
    bool passes; /* a label says that it will go away by itself */
    int concern_code;
    int code;
    const char *message;
    size_t message_len;
};

/* A count or code: any number type without a fraction that fits. */
static bool number_of(const bson_iter_t *it, int64_t *out)
{
    if (BSON_ITER_HOLDS_INT32(it)) {
        *out = bson_iter_int32(it);
    } else if (BSON_ITER_HOLDS_INT64(it)) {
        *out = bson_iter_int64(it);
    } else if (BSON_ITER_HOLDS_DOUBLE(it)) {
        double d = bson_iter_double(it);
        if (!(d > -1e15 && d < 1e15) || (double)(int64_t)d != d)
            return false;
        *out = (int64_t)d;
    } else {
        return false;
    }
    return *out >= INT32_MIN && *out <= INT32_MAX;
}

static bool truth_of(const bson_iter_t *it)
{
    int64_t v;
    return BSON_ITER_HOLDS_BOOL(it) ? bson_iter_bool(it) : number_of(it, &v) && v != 0;
}

static void add_count(struct reply *r, const bson_iter_t *it)
{
    int64_t v;
    if (number_of(it, &v) && v >= 0) {
        r->done += v;
        r->has_done = true;
    } else {
        r->broken = true;
    }
}

static void read_concern_error(struct reply *r, const bson_iter_t *it)
{
    bson_iter_t in, code;
    int64_t v;

    if (BSON_ITER_HOLDS_ARRAY(it)) { /* the driver's list: take the first */
        bson_iter_t list;
        if (!bson_iter_recurse(it, &list) || !bson_iter_next(&list))
            return;
        r->has_concern = true;
        if (!BSON_ITER_HOLDS_DOCUMENT(&list) || !bson_iter_recurse(&list, &in))
            return;
    } else {
        r->has_concern = true;
        if (!BSON_ITER_HOLDS_DOCUMENT(it) || !bson_iter_recurse(it, &in))
            return;
    }
    if (bson_iter_find_descendant(&in, "code", &code) && number_of(&code, &v))
        r->concern_code = (int)v;
}

static void read_array(struct reply *r, const bson_iter_t *it, bson_iter_t *out, bool *has)
{
    *has = BSON_ITER_HOLDS_ARRAY(it) && bson_iter_recurse(it, out);
    if (!*has)
        r->broken = true;
}

/* Labels of the servers and of the driver: what carries one is nobody's data. */
static bool has_passing_label(const bson_iter_t *it)
{
    static const char *const labels[] = {"RetryableWriteError", "TransientTransactionError",
                                         "UnknownTransactionCommitResult", "RetryableError",
                                         "SystemOverloadedError"};
    bson_iter_t list;

    if (!BSON_ITER_HOLDS_ARRAY(it) || !bson_iter_recurse(it, &list))
        return false;
    while (bson_iter_next(&list))
        for (size_t i = 0; BSON_ITER_HOLDS_UTF8(&list) && i < sizeof labels / sizeof *labels; i++)
            if (strcmp(bson_iter_utf8(&list, NULL), labels[i]) == 0)
                return true;
    return false;
}

static void read_field(struct reply *r, const bson_iter_t *it)
{
    const char *key = bson_iter_key(it);
    int64_t v;

    if (strcmp(key, "ok") == 0) {
        r->refused = !truth_of(it);
    } else if (strcmp(key, "n") == 0 || strcmp(key, "nMatched") == 0 ||
               strcmp(key, "nInserted") == 0) {
        add_count(r, it);
    } else if (strcmp(key, "nUpserted") == 0) {
        add_count(r, it);
        r->has_upserted_count = number_of(it, &r->upserted_count);
    } else if (strcmp(key, "upserted") == 0) {
        read_array(r, it, &r->upserted, &r->has_upserted);
    } else if (strcmp(key, "writeErrors") == 0) {
        read_array(r, it, &r->errors, &r->has_errors);
    } else if (strcmp(key, "writeConcernError") == 0 || strcmp(key, "writeConcernErrors") == 0) {
        read_concern_error(r, it);
    } else if (strcmp(key, "errorLabels") == 0) {
        r->passes = has_passing_label(it);
    } else if (strcmp(key, "code") == 0 && number_of(it, &v)) {
        r->code = (int)v;
    } else if (strcmp(key, "errmsg") == 0 && BSON_ITER_HOLDS_UTF8(it)) {
        uint32_t len;
        r->message = bson_iter_utf8(it, &len);
        r->message_len = len;
    }
}

static void read_reply(const bson_t *reply, struct reply *r)
{
    bson_iter_t it;

    *r = (struct reply){0};
    if (!reply || bson_empty(reply))
        return;
    r->usable = true;
    if (!bson_iter_init(&it, reply)) {
        r->broken = true;
        return;
    }
    while (bson_iter_next(&it))
        read_field(r, &it);
    if (it.err_off)
        r->broken = true;
}

static void fill(struct outcome *out, size_t n, struct outcome with)
{
    for (size_t i = 0; i < n; i++)
        out[i] = with;
}

/* The list ["writeErrors"] is not empty. */
static bool has_elements(bson_iter_t list)
{
    return bson_iter_next(&list);
}

static enum retry_class class_of_fault(enum call_fault fault)
{
    switch (fault) {
    case CALL_NETWORK:
        return RETRY_NETWORK;
    case CALL_SELECTION:
        return RETRY_NO_PRIMARY;
    case CALL_AUTH:
        return RETRY_RIGHTS;
    case CALL_FINE:
    case CALL_SERVER:
    case CALL_DOCUMENT:
    case CALL_DRIVER:
        break;
    }
    return RETRY_OTHER;
}

void outcome_of_failure(const struct outcome_call *call, struct outcome *out)
{
    enum { AUTHENTICATION_FAILED = 18 }; /* the server's code, which the driver withholds */

    *out = (struct outcome){.fate = FATE_UNKNOWN, .retry = class_of_fault(call->fault)};
    if (call->fault == CALL_AUTH)
        out->code = AUTHENTICATION_FAILED;
    if (call->fault == CALL_SERVER) {
        const struct outcome_code *row = outcome_code_find(call->code);
        out->code = call->code;
        if (row && row->retry != RETRY_NONE)
            out->retry = row->retry;
    }
}

bool outcome_may_be_one_of_many(const struct outcome_call *call)
{
    const struct outcome_code *row = outcome_code_find(call->code);

    return call->fault == CALL_DOCUMENT ||
           (call->fault == CALL_SERVER && (!row || row->whole == FATE_SPLIT));
}

/* The command as a whole failed with this code of the server (0: it gave none). */
static struct outcome judge_code_of_whole(int code)
{
    const struct outcome_code *row = outcome_code_find(code);

    if (row)
        return (struct outcome){.fate = row->whole,
                                .retry = row->retry,
                                .reason = row->member ? row->reason : REASON_NONE,
                                .code = code};
    /* Nothing known: some member may be the cause, so find out which, but never dead-letter it. */
    return (struct outcome){
        .fate = code ? FATE_SPLIT : FATE_UNKNOWN, .retry = RETRY_OTHER, .code = code};
}

/* The server's message; with the index's pattern where it does not name the index itself. */
static char *text_of_error(const char *message, size_t len, const bson_iter_t *pattern)
{
    static const char none[] = "the server gave no message";
    char *text = message ? text_cut(message, len) : mem_text(none);

    if (pattern && !strstr(text, "index:")) {
        bson_t doc;
        uint32_t doc_len;
        const uint8_t *data;
        bson_iter_document(pattern, &doc_len, &data);
        char *json = bson_init_static(&doc, data, doc_len)
                         ? bson_as_relaxed_extended_json(&doc, NULL)
                         : NULL;
        if (json) {
            char *cut = text_cut(json, strlen(json));
            char *both = mem_printf("%s (index on %s)", text, cut);
            mem_free(cut);
            mem_free(text);
            text = both;
        }
        bson_free(json);
    }
    return text;
}

/* The message of a validator, which is always the same, with the rule. Takes text. */
static char *text_with_rule(char *text, const bson_iter_t *err_info)
{
    struct buf rule = {0};

    outcome_add_rule(err_info, &rule);
    if (rule.len > 0) {
        char *both = mem_printf("%s: %s", text, buf_text(&rule));
        mem_free(text);
        text = both;
    }
    buf_clear(&rule);
    return text;
}

static void judge_whole(const struct outcome_call *call, const struct reply *r, size_t n,
                        struct outcome *out)
{
    struct outcome o;
    const char *message = call->message;
    size_t len = message ? strlen(message) : 0;

    if (r->refused) {
        o = judge_code_of_whole(r->code);
        if (r->message) {
            message = r->message;
            len = r->message_len;
        }
    } else if (call->fault == CALL_DOCUMENT) {
        bool large = message && strstr(message, "too large");
        o = (struct outcome){.fate = FATE_SPLIT,
                             .retry = RETRY_OTHER,
                             .reason = large ? REASON_TOO_LARGE : REASON_REJECTED};
    } else if (call->fault == CALL_SERVER) {
        o = judge_code_of_whole(call->code);
    } else {
        outcome_of_failure(call, &o);
    }
    if (o.fate == FATE_SPLIT && o.reason == REASON_NONE) { /* somebody's or everybody's */
        if (r->passes)
            o.fate = FATE_UNKNOWN;
        else if (n == 1)
            o.doubt = DOUBT_ALONE;
    }
    for (size_t i = 0; i < n; i++) {
        out[i] = o;
        if (o.fate == FATE_SPLIT && n == 1)
            out[i].text = text_of_error(message, len, NULL);
    }
}

/* mongod has no code of its own for an insert that is too large (seen: 2, "object to insert too
 * large. size ..."). */
static enum reason reason_of(const struct outcome_code *row, const char *message, size_t len)
{
    static const char large[] = "object to insert too large";
    size_t n = sizeof large - 1;

    if (row->code == 2 && message && len >= n && memcmp(message, large, n) == 0)
        return REASON_TOO_LARGE;
    return row->reason;
}

/* One element of writeErrors. false: it is not one. passes: a label says that it will go away. */
static bool judge_error(const bson_iter_t *element, bool passes, size_t n, struct outcome *out,
                        size_t *index)
{
    bson_iter_t it, pattern, info;
    bool has_index = false, has_code = false, has_pattern = false, has_info = false;
    int64_t at = -1, code = 0;
    const char *message = NULL;
    uint32_t len = 0;

    if (!BSON_ITER_HOLDS_DOCUMENT(element) || !bson_iter_recurse(element, &it))
        return false;
    while (bson_iter_next(&it)) {
        const char *key = bson_iter_key(&it);
        if (strcmp(key, "index") == 0) {
            has_index = number_of(&it, &at);
        } else if (strcmp(key, "code") == 0) {
            has_code = number_of(&it, &code);
        } else if (strcmp(key, "errmsg") == 0 && BSON_ITER_HOLDS_UTF8(&it)) {
            message = bson_iter_utf8(&it, &len);
        } else if (strcmp(key, "keyPattern") == 0 && BSON_ITER_HOLDS_DOCUMENT(&it)) {
            pattern = it;
            has_pattern = true;
        } else if (strcmp(key, "errInfo") == 0) {
            info = it;
            has_info = true;
        }
    }
    if (it.err_off || !has_index || !has_code || at < 0 || (uint64_t)at >= n)
        return false;

    *index = (size_t)at;
    struct outcome *o = &out[at];
    if (o->fate != FATE_NOT_RUN) /* told twice */
        return false;
    const struct outcome_code *row = outcome_code_find((int)code);
    *o = (struct outcome){.fate = row ? row->one : FATE_UNKNOWN,
                          .retry = row ? row->retry : RETRY_OTHER,
                          .reason = row ? row->reason : REASON_NONE,
                          .code = (int)code};
    if (o->fate == FATE_LOOK || o->fate == FATE_NEVER) {
        o->retry = RETRY_NONE;
        if (row)
            o->reason = reason_of(row, message, len);
        o->text = text_of_error(message, len, has_pattern ? &pattern : NULL);
        if (has_info && o->reason == REASON_VALIDATION)
            o->text = text_with_rule(o->text, &info);
    } else {
        o->reason = REASON_NONE;
        if (!row && code != 0 && !passes)
            o->doubt = n == 1 ? DOUBT_ALONE : DOUBT_AMONG;
        if (o->doubt == DOUBT_ALONE)
            o->text = text_of_error(message, len, NULL);
    }
    return true;
}

static bool judge_upserted(const bson_iter_t *element, size_t n, struct outcome *out)
{
    bson_iter_t it;
    int64_t at;

    if (!BSON_ITER_HOLDS_DOCUMENT(element) || !bson_iter_recurse(element, &it) ||
        !bson_iter_find(&it, "index") || !number_of(&it, &at) || at < 0 || (uint64_t)at >= n ||
        out[at].fate != FATE_NOT_RUN)
        return false;
    out[at] = (struct outcome){.fate = FATE_INSERTED};
    return true;
}

/*
 * Judges each operation; out is all NOT_RUN before, which here means "not spoken of yet". false:
 * the reply contradicts itself, and out holds anything.
 */
static bool judge_each(const struct outcome_call *call, struct reply *r, size_t n,
                       struct outcome *out)
{
    size_t errors = 0, stop = n, upserted = 0, index = 0;

    while (r->has_errors && bson_iter_next(&r->errors)) {
        if (!judge_error(&r->errors, r->passes, n, out, &index))
            return false;
        errors++;
        if (call->ordered)
            stop = index;
    }
    if (call->ordered && errors > 1)
        return false;
    while (r->has_upserted && bson_iter_next(&r->upserted)) {
        if (call->is_insert || !judge_upserted(&r->upserted, n, out))
            return false;
        upserted++;
    }
    if ((r->has_errors && r->errors.err_off) || (r->has_upserted && r->upserted.err_off))
        return false;

    size_t done = call->ordered ? stop : n - errors;
    if (!r->has_done || r->done != (int64_t)done)
        return false;
    if (r->has_upserted_count && r->upserted_count != (int64_t)upserted)
        return false;

    for (size_t i = 0; i < n; i++) {
        bool unspoken = out[i].fate == FATE_NOT_RUN;
        if (i > stop && !unspoken) /* something behind the stop was done after all */
            return false;
        if (i < stop && unspoken)
            out[i].fate = call->is_insert ? FATE_INSERTED : FATE_DUPLICATE;
    }
    return true;
}

/* Which class a missed write concern is: a primary that went away while waiting is no missed one.
 */
static enum retry_class class_of_concern(int code)
{
    const struct outcome_code *row = outcome_code_find(code);

    if (row && (row->retry == RETRY_NO_PRIMARY || row->retry == RETRY_CONFIG))
        return row->retry;
    return RETRY_WRITE_CONCERN;
}

bool outcome_judge(const struct outcome_call *call, const bson_t *reply, size_t n,
                   struct outcome *out)
{
    struct reply r;

    read_reply(reply, &r);
    bool spoke = r.usable && !r.broken && !r.refused;

    if (r.has_concern) {
        fill(out, n,
             (struct outcome){.fate = FATE_UNKNOWN,
                              .retry = class_of_concern(r.concern_code),
                              .code = r.concern_code});
        return false;
    }
    /* An error beside a reply that names none is one of the whole command. */
    if (!spoke || (call->fault != CALL_FINE && !(r.has_errors && has_elements(r.errors)))) {
        if (r.broken || (!r.usable && call->fault == CALL_FINE))
            fill(out, n, (struct outcome){.fate = FATE_UNKNOWN, .retry = RETRY_OTHER});
        else
            judge_whole(call, &r, n, out);
        return false;
    }
    fill(out, n, (struct outcome){.fate = FATE_NOT_RUN});
    if (judge_each(call, &r, n, out))
        return true;
    for (size_t i = 0; i < n; i++)
        mem_free(out[i].text);
    fill(out, n, (struct outcome){.fate = FATE_UNKNOWN, .retry = RETRY_OTHER});
    return false;
}
