/*
 * What the answer to one command of a transaction says. Until COMMIT nothing is stored, so that a
 * command that failed is never in doubt: only why it failed matters.
 */
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/txn_plan_private.h"

/* The first one of writeErrors, by its index; false: there is none that can be understood. */
static bool first_error(const bson_t *reply, size_t n, bson_iter_t *error, size_t *at)
{
    bson_iter_t list, element, index;
    bool found = false;

    if (!reply || !bson_iter_init_find(&list, reply, "writeErrors") ||
        !BSON_ITER_HOLDS_ARRAY(&list) || !bson_iter_recurse(&list, &element))
        return false;
    while (bson_iter_next(&element)) {
        int64_t i;

        if (!BSON_ITER_HOLDS_DOCUMENT(&element) || !bson_iter_recurse(&element, &index) ||
            !bson_iter_find(&index, "index") || !BSON_ITER_HOLDS_INT(&index))
            continue;
        i = bson_iter_as_int64(&index);
        if (i < 0 || (uint64_t)i >= n || (found && (uint64_t)i >= *at))
            continue;
        *at = (size_t)i;
        *error = element;
        found = true;
    }
    return found;
}

/* The reply that a command of this one operation would have got. */
static void reply_of_one(const bson_t *reply, const bson_iter_t *error, bson_t *out)
{
    bson_iter_t in, labels;
    bson_t list, one;

    BSON_APPEND_INT32(out, "n", 0);
    (void)BSON_APPEND_ARRAY_BEGIN(out, "writeErrors", &list);
    (void)BSON_APPEND_DOCUMENT_BEGIN(&list, "0", &one);
    BSON_APPEND_INT32(&one, "index", 0);
    if (bson_iter_recurse(error, &in))
        while (bson_iter_next(&in))
            if (strcmp(bson_iter_key(&in), "index") != 0)
                (void)bson_append_iter(&one, NULL, 0, &in);
    (void)bson_append_document_end(&list, &one);
    (void)bson_append_array_end(out, &list);
    if (bson_iter_init_find(&labels, reply, "errorLabels"))
        (void)bson_append_iter(out, NULL, 0, &labels);
    BSON_APPEND_INT32(out, "ok", 1);
}

/* An operator, another server or the network is needed: what was begun is left. */
static bool ends_batch(const struct txn_call *call, enum retry_class retry)
{
    switch (call->call.fault) {
    case CALL_NETWORK:
    case CALL_SELECTION:
    case CALL_AUTH:
    case CALL_DRIVER:
        return true;
    case CALL_FINE:
    case CALL_SERVER:
    case CALL_DOCUMENT:
        break;
    }
    return retry == RETRY_NO_PRIMARY || retry == RETRY_NETWORK || retry == RETRY_RIGHTS ||
           retry == RETRY_CONFIG;
}

static bool passes(const struct txn_call *call, const struct outcome *o)
{
    return !ends_batch(call, o->retry) &&
           (o->retry == RETRY_CONFLICT || call->label == TXN_LABEL_TRANSIENT);
}

static enum txn_says what_one_says(const struct txn_call *call, const struct outcome *o)
{
    if (o->fate == FATE_LOOK || o->fate == FATE_NEVER)
        return TXN_SAYS_ONE;
    if (passes(call, o))
        return TXN_SAYS_CONFLICT;
    return o->doubt != DOUBT_NONE ? TXN_SAYS_ONE : TXN_SAYS_END;
}

static enum txn_says what_whole_says(const struct txn_call *call, const struct outcome *o)
{
    if (passes(call, o))
        return TXN_SAYS_CONFLICT;
    return o->fate == FATE_SPLIT ? TXN_SAYS_SPLIT : TXN_SAYS_END;
}

static bool has_errors(const bson_t *reply)
{
    bson_iter_t at;

    if (!reply || !bson_iter_init_find(&at, reply, "writeErrors"))
        return false;
    if (BSON_ITER_HOLDS_ARRAY(&at)) {
        bson_iter_t list;
        return !bson_iter_recurse(&at, &list) || bson_iter_next(&list);
    }
    return true;
}

static bool is_refused(const bson_t *reply)
{
    bson_iter_t at;

    return reply && bson_iter_init_find(&at, reply, "ok") && !bson_iter_as_bool(&at);
}

static int64_t count_of(const bson_t *reply)
{
    bson_iter_t at;

    return reply && bson_iter_init_find(&at, reply, "n") &&
                   (BSON_ITER_HOLDS_INT(&at) || BSON_ITER_HOLDS_DOUBLE(&at))
               ? bson_iter_as_int64(&at)
               : -1;
}

static void drop_text(struct txn_verdict *v)
{
    if (v->says == TXN_SAYS_ONE || v->says == TXN_SAYS_SPLIT)
        return;
    mem_free(v->outcome.text);
    v->outcome.text = NULL;
}

struct txn_verdict txn_judge(const struct txn_call *call, const bson_t *reply, size_t n,
                             const struct config_route *route)
{
    struct txn_verdict v = {.says = TXN_SAYS_DONE, .n = count_of(reply)};
    struct outcome_call one = {.fault = CALL_FINE};
    bson_iter_t error;

    if (!is_refused(reply) && first_error(reply, n, &error, &v.at)) {
        bson_t alone = BSON_INITIALIZER;

        reply_of_one(reply, &error, &alone);
        (void)outcome_judge(&one, &alone, 1, &v.outcome);
        bson_destroy(&alone);
        v.says = what_one_says(call, &v.outcome);
        if (v.outcome.fate == FATE_LOOK)
            v.taken = sequence_taken_of(route, &error);
    } else if (call->call.fault != CALL_FINE || is_refused(reply)) {
        (void)outcome_judge(&call->call, reply, 1, &v.outcome);
        v.says = what_whole_says(call, &v.outcome);
    } else if (has_errors(reply)) { /* whose, nobody knows */
        v.says = TXN_SAYS_END;
        v.outcome = (struct outcome){.fate = FATE_UNKNOWN, .retry = RETRY_OTHER};
    }
    drop_text(&v);
    return v;
}

/* --- the commit --- */

static bool has_concern_error(const bson_t *reply)
{
    return reply && (bson_has_field(reply, "writeConcernError") ||
                     bson_has_field(reply, "writeConcernErrors"));
}

static enum txn_commit commit_says(const struct txn_call *call, const bson_t *reply,
                                   const struct outcome *o)
{
    if (has_concern_error(reply)) /* it is there, on too few members */
        return o->retry == RETRY_CONFIG ? TXN_COMMIT_FAILED : TXN_COMMIT_UNKNOWN;
    if (call->label == TXN_LABEL_UNKNOWN_COMMIT)
        return TXN_COMMIT_UNKNOWN;
    if (call->label == TXN_LABEL_TRANSIENT)
        return TXN_COMMIT_NOT;
    if (call->call.fault != CALL_SERVER && !is_refused(reply))
        return call->call.fault == CALL_AUTH ? TXN_COMMIT_FAILED : TXN_COMMIT_UNKNOWN;
    if (o->retry == RETRY_RIGHTS || o->retry == RETRY_CONFIG)
        return TXN_COMMIT_FAILED;
    if (o->retry == RETRY_CONFLICT)
        return TXN_COMMIT_NOT;
    return o->fate == FATE_SPLIT ? TXN_COMMIT_SPLIT : TXN_COMMIT_UNKNOWN;
}

enum txn_commit txn_judge_commit(const struct txn_call *call, const bson_t *reply,
                                 struct outcome *out)
{
    enum txn_commit says;

    *out = (struct outcome){.fate = FATE_INSERTED};
    if (call->call.fault == CALL_FINE && !is_refused(reply) && !has_concern_error(reply))
        return TXN_COMMIT_DONE;
    (void)outcome_judge(&call->call, reply, 1, out);
    says = commit_says(call, reply, out);
    if (says != TXN_COMMIT_SPLIT) {
        mem_free(out->text);
        out->text = NULL;
    }
    return says;
}
