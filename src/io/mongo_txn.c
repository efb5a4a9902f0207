/*
 * Carries the commands of core/txn_plan.h: a batch with its effects, in transactions.
 *
 * One libmongoc session per worker, for all its transactions. The server aborts an open one by
 * itself when the next begins on the same session, and after 60 s (transactionLifetimeLimitSeconds)
 * in any case: nothing here takes as long.
 */
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "core/look.h"
#include "io/mongo_private.h"
#include "io/mongo_txn_commands.h"

enum {
    TRANSACTION_BYTES_MAX = 12 << 20, /* an oplog entry of 16 MB, with room for what comes along */
    BATCH_MS_MAX = 20000,             /* far below the server's 60 s */
    WRITE_CONFLICT = 112              /* the server's code */
};

struct mongo_txn {
    struct mongo *m;
    mongoc_client_t *client;
    struct txn_plan *plan;
    mongoc_client_session_t *session; /* NULL until the first transaction */
    bson_t *in_session;               /* {sessionId: ...} of it */
    mongoc_client_session_t *looks;   /* of look-ups behind a transaction; NULL until the first */
    mongoc_client_session_t *left;    /* with a transaction that could not be ended in time */
    mongoc_transaction_opt_t *opts;
    struct mongo_gate_pass pass;
    bson_t *command, *look_opts;
    const struct config_route *route; /* of the batch */
    int64_t deadline_ms;              /* of the batch: nothing is begun after it */
    bool has_begun;                   /* a transaction of the batch */
};

struct mongo_txn *mongo_txn_new(struct mongo *m, mongoc_client_t *client)
{
    struct mongo_txn *t = mem_new(sizeof *t);
    struct txn_limits limits = {.max_ops = (size_t)m->config->worker.batch,
                                .max_bytes = TRANSACTION_BYTES_MAX};
    mongoc_read_concern_t *snapshot = mongoc_read_concern_new();

    t->m = m;
    t->client = client;
    t->plan = txn_plan_new(&limits);
    t->opts = mongoc_transaction_opts_new();
    t->command = bson_new();
    t->look_opts = mongo_look_opts(m->config);
    mongoc_read_concern_set_level(snapshot, MONGOC_READ_CONCERN_LEVEL_SNAPSHOT);
    mongoc_transaction_opts_set_read_concern(t->opts, snapshot);
    mongoc_transaction_opts_set_write_concern(t->opts, m->concern);
    mongoc_transaction_opts_set_read_prefs(t->opts, m->primary);
    mongoc_transaction_opts_set_max_commit_time_ms(t->opts, m->config->mongo.write_timeout_ms);
    mongoc_read_concern_destroy(snapshot);
    return t;
}

static void end_session(mongoc_client_session_t **session)
{
    if (*session)
        mongoc_client_session_destroy(*session); /* aborts what is open */
    *session = NULL;
}

void mongo_txn_free(struct mongo_txn *t)
{
    if (!t)
        return;
    end_session(&t->left);
    end_session(&t->looks);
    end_session(&t->session);
    mongoc_transaction_opts_destroy(t->opts);
    mongo_gate_pass_clear(&t->pass);
    txn_plan_free(t->plan);
    bson_destroy(t->in_session);
    bson_destroy(t->command);
    bson_destroy(t->look_opts);
    mem_free(t);
}

/* ---- answers ---- */

static enum txn_label label_of(const bson_t *reply)
{
    if (mongoc_error_has_label(reply, "UnknownTransactionCommitResult"))
        return TXN_LABEL_UNKNOWN_COMMIT;
    if (mongoc_error_has_label(reply, "TransientTransactionError"))
        return TXN_LABEL_TRANSIENT;
    return TXN_LABEL_NONE;
}

/* The answer did not come. */
static bool is_cut(enum call_fault fault)
{
    return fault == CALL_NETWORK || fault == CALL_SELECTION || fault == CALL_AUTH;
}

/* ok: as libmongoc says; commit: what didn't answer may have been done. */
static void take_fault(bool ok, bool commit, const bson_error_t *be, const bson_t *reply,
                       struct txn_call *call)
{
    if (ok)
        return;
    call->call.fault = mongo_fault(be);
    call->call.code = (int)be->code;
    call->call.message = be->message;
    call->label = label_of(reply);
    if (is_cut(call->call.fault) && call->label == TXN_LABEL_NONE)
        call->label = commit ? TXN_LABEL_UNKNOWN_COMMIT : TXN_LABEL_TRANSIENT;
    mongo_say_no_answer("transaction", call->call.fault, be);
}

static void answer_fine(struct mongo_txn *t)
{
    struct txn_call call = {.call = {.fault = CALL_FINE}};

    txn_plan_answer(t->plan, &call, NULL);
}

/* ---- reads of many ---- */

static void found_one(void *ctx, const bson_t *document)
{
    txn_plan_found(ctx, document);
}

/* The filter of counter documents that hold a double or a decimal where they are moved. */
static void only_inexact(const struct config_counter *counter, bson_t *filter)
{
    bson_t documents = BSON_INITIALIZER, list, one, type;
    char digits[16];
    const char *key;

    bson_steal(&documents, filter);
    bson_init(filter);
    BSON_APPEND_ARRAY_BEGIN(filter, "$or", &list);
    for (size_t i = 0; i < counter->inc.n; i++) {
        (void)bson_uint32_to_string((uint32_t)i, &key, digits, sizeof digits);
        BSON_APPEND_DOCUMENT_BEGIN(&list, key, &one);
        BSON_APPEND_DOCUMENT_BEGIN(&one, counter->inc.items[i].name, &type);
        BCON_APPEND(&type, "$type", "[", BCON_UTF8("double"), BCON_UTF8("decimal"), "]");
        bson_append_document_end(&one, &type);
        bson_append_document_end(&list, &one);
    }
    bson_append_array_end(filter, &list);
    BCON_APPEND(filter, "$and", "[", BCON_DOCUMENT(&documents), "]");
    bson_destroy(&documents);
}

static void project(const struct mongo_txn *t, const struct txn_command *c, bson_t *projection)
{
    const struct config_dedup *dedup = &t->route->dedup;
    bool hash = c->kind == TXN_LOOK && dedup->conflict != CONFLICT_OFF;

    look_projection(c->ops[0]->filter, hash ? dedup->conflict_field : NULL, projection);
    if (c->kind == TXN_LOOK && c->events)
        BSON_APPEND_BOOL(projection, "op", true);
}

/*
 * What refused an insert may not be with the majority yet, and the abort waits for that no longer
 * than the write concern does: a look-up behind a transaction waits until everything is there that
 * the server had when it answered. Else a stored event would pass for a conflict with another one.
 */
static bool see_what_refused(struct mongo_txn *t, bson_t *opts, bson_error_t *be)
{
    uint32_t seconds, increment;

    if (!t->has_begun || !t->session)
        return true;
    if (!t->looks && !(t->looks = mongoc_client_start_session(t->client, NULL, be))) /* causal */
        return false;
    mongoc_client_session_get_operation_time(t->session, &seconds, &increment);
    mongoc_client_session_advance_operation_time(t->looks, seconds, increment);
    return mongoc_client_session_append(t->looks, opts, be);
}

static void read_many(struct mongo_txn *t, const struct txn_command *c)
{
    const struct config_route *r = t->route;
    bool events = c->kind == TXN_LOOK && c->events;
    const struct config_counter *counter = c->kind == TXN_CHECK ? &r->counters[c->counter] : NULL;
    const char *database = counter  ? counter->database
                           : events ? r->operation.ledger_database
                                    : r->database;
    const char *collection = counter  ? counter->collection
                             : events ? r->operation.ledger
                                      : r->collection;
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER, said = BSON_INITIALIZER,
           opts = BSON_INITIALIZER;
    bson_error_t be = {0};
    struct txn_call call = {.label = TXN_LABEL_NONE};
    struct mongo_read read = {.filter = &filter,
                              .projection = &projection,
                              .opts = &opts,
                              .n = c->n,
                              .prefs = t->m->primary,
                              .found = found_one,
                              .ctx = t->plan};

    read.collection = mongoc_client_get_collection(t->client, database, collection);
    MUST(bson_concat(&opts, c->kind == TXN_LOOK ? t->look_opts : t->in_session));
    look_filter(c->ops, c->n, &filter);
    if (counter)
        only_inexact(counter, &filter);
    project(t, c, &projection);
    bool ok = c->kind != TXN_LOOK || see_what_refused(t, &opts, &be);
    if (ok) {
        mongo_read(&read, &call.call, &be, &said);
        ok = call.call.fault == CALL_FINE;
    }
    take_fault(ok, false, &be, &said, &call);
    if (call.call.fault == CALL_FINE)
        end_session(&t->left); /* it answers again */
    txn_plan_answer(t->plan, &call, NULL);
    mongoc_collection_destroy(read.collection);
    bson_destroy(&opts);
    bson_destroy(&said);
    bson_destroy(&projection);
    bson_destroy(&filter);
}

/* ---- commands inside ---- */

/* reply is initialised in any case. */
static bool run(struct mongo_txn *t, const char *database, bson_t *reply, bson_error_t *be)
{
    return mongoc_client_write_command_with_opts(t->client, database, t->command, t->in_session,
                                                 reply, be);
}

static void write_many(struct mongo_txn *t, const struct txn_command *c)
{
    bool inserts = c->kind == TXN_EVENTS || c->kind == TXN_INSERT || c->kind == TXN_REPLACE;
    struct txn_call call = {.call = {.ordered = true, .is_insert = inserts}};
    bson_error_t be = {0};
    bson_t reply;

    bson_reinit(t->command);
    const char *database = mongo_txn_command(t->route, c, clock_wall_ms(), t->command);
    take_fault(run(t, database, &reply, &be), false, &be, &reply, &call);
    txn_plan_answer(t->plan, &call, &reply);
    bson_destroy(&reply);
}

/* Removed and added again under one _id or another: replaceOne could not change that. */
static void replace_many(struct mongo_txn *t, const struct txn_command *c)
{
    struct txn_call call = {.call = {.ordered = true}};
    bson_error_t be = {0};
    bson_iter_t it;
    bson_t reply;

    bson_reinit(t->command);
    mongo_txn_delete(t->route, c, t->command);
    take_fault(run(t, t->route->database, &reply, &be), false, &be, &reply, &call);
    bool fine = call.call.fault == CALL_FINE && !bson_iter_init_find(&it, &reply, "writeErrors");
    if (!fine)
        txn_plan_answer(t->plan, &call, &reply);
    bson_destroy(&reply);
    FAULT("txn.inside_replace");
    if (fine)
        write_many(t, c);
}

/* ---- numbers ---- */

/* No number can be given, whatever is tried; nothing of the server's says so. */
static void no_number(struct txn_call *call, const char *message)
{
    enum { BAD_VALUE = 2 }; /* as the server has it for an $inc that passes int64 */

    call->call.fault = CALL_SERVER;
    call->call.code = BAD_VALUE;
    call->call.message = message;
}

static void take_number(struct mongo_txn *t, const struct txn_command *c)
{
    struct txn_call call = {.label = TXN_LABEL_NONE};
    bson_error_t be = {0};
    int64_t last;
    bson_t reply;

    bson_reinit(t->command);
    const char *database = mongo_txn_command(t->route, c, 0, t->command);
    take_fault(run(t, database, &reply, &be), false, &be, &reply, &call);
    if (call.call.fault == CALL_FINE && mongo_txn_number(&reply, &last))
        txn_plan_number(t->plan, last);
    else if (call.call.fault == CALL_FINE ||
             (call.call.fault == CALL_SERVER && mongo_txn_is_no_number(call.call.code)))
        no_number(&call, mongo_txn_no_number);
    txn_plan_answer(t->plan, &call, NULL);
    bson_destroy(&reply);
}

static void read_highest(struct mongo_txn *t, const struct txn_command *c)
{
    const struct config_sequence *q = &t->route->sequence;
    struct txn_call call = {.label = TXN_LABEL_NONE};
    bson_t filter = BSON_INITIALIZER, opts = BSON_INITIALIZER, none = BSON_INITIALIZER;
    const bson_t *found, *said = NULL;
    bson_error_t be = {0};
    int64_t last = q->start - 1, highest = 0;
    bool number = true;

    MUST(bson_concat(&opts, t->in_session));
    mongo_txn_highest(t->route, c, &filter, &opts);
    mongoc_collection_t *collection =
        mongoc_client_get_collection(t->client, t->route->database, t->route->collection);
    mongoc_cursor_t *cursor =
        mongoc_collection_find_with_opts(collection, &filter, &opts, t->m->primary);
    if (mongoc_cursor_next(cursor, &found)) {
        number = mongo_txn_highest_of(t->route, found, &highest);
        last = highest >= q->start ? highest : last;
    }
    bool ok = !mongoc_cursor_error_document(cursor, &be, &said);
    take_fault(ok, false, &be, said ? said : &none, &call);
    if (ok && (!number || __builtin_add_overflow(last, c->count, &last)))
        no_number(&call, "behind the highest number of the group there is no 64-bit integer");
    else if (ok)
        txn_plan_number(t->plan, last);
    txn_plan_answer(t->plan, &call, NULL);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(collection);
    bson_destroy(&none);
    bson_destroy(&opts);
    bson_destroy(&filter);
}

/* ---- begin and end ---- */

static bool open_session(struct mongo_txn *t, bson_error_t *be)
{
    if (t->session)
        return true;
    mongoc_session_opt_t *opts = mongoc_session_opts_new();

    /* Its commands are of transactions, which see what is there; see_what_refused() for others. */
    mongoc_session_opts_set_causal_consistency(opts, false);
    t->session = mongoc_client_start_session(t->client, opts, be);
    mongoc_session_opts_destroy(opts);
    if (!t->session)
        return false;
    bson_destroy(t->in_session);
    t->in_session = bson_new();
    MUST(mongoc_client_session_append(t->session, t->in_session, NULL));
    return true;
}

static void begin(struct mongo_txn *t, const struct txn_command *c)
{
    struct txn_call call = {.label = TXN_LABEL_NONE};
    bson_t none = BSON_INITIALIZER;
    bson_error_t be = {0};

    if (!mongo_gate_enter(t->m->gate, &t->pass, c->keys, c->n_keys, t->deadline_ms)) {
        call = (struct txn_call){.call = {.fault = CALL_SERVER,
                                          .code = WRITE_CONFLICT,
                                          .message = "others move the same counters"},
                                 .label = TXN_LABEL_TRANSIENT};
    } else {
        t->has_begun = true;
        bool ok = open_session(t, &be) &&
                  mongoc_client_session_start_transaction(t->session, t->opts, &be);
        take_fault(ok, false, &be, &none, &call);
        if (!ok)
            mongo_gate_leave(t->m->gate, &t->pass);
    }
    txn_plan_answer(t->plan, &call, NULL);
    bson_destroy(&none);
}

static void commit(struct mongo_txn *t)
{
    struct txn_call call = {.label = TXN_LABEL_NONE};
    bson_error_t be = {0};
    bson_t reply;

    bool ok = mongoc_client_session_commit_transaction(t->session, &reply, &be);
    FAULT("txn.after_commit");
    take_fault(ok, true, &be, &reply, &call);
    if (ok)
        mongo_gate_leave(t->m->gate, &t->pass);
    txn_plan_answer(t->plan, &call, &reply);
    bson_destroy(&reply);
}

/*
 * A server that has taken a whole time-out for this batch is not waited for once more, so that
 * write() ends in time: the transaction stays open until this worker's next look-up is answered, or
 * until the server's 60 s are over. Others who need its counters have to wait for as long.
 */
static void abandon(struct mongo_txn *t)
{
    if (t->session && mongoc_client_session_in_transaction(t->session)) {
        if (clock_mono_ms() >= t->deadline_ms) {
            end_session(&t->left);
            t->left = t->session;
            t->session = NULL;
        } else {
            (void)mongoc_client_session_abort_transaction(t->session, NULL);
        }
    }
    mongo_gate_leave(t->m->gate, &t->pass);
}

static void wait_for(const struct mongo_txn *t, int64_t ms)
{
    int64_t left_ms = t->deadline_ms - clock_mono_ms();

    ms = ms < left_ms ? ms : left_ms;
    if (ms <= 0)
        return;
    struct timespec time = {.tv_sec = (time_t)(ms / 1000), .tv_nsec = (long)(ms % 1000) * 1000000};
    (void)nanosleep(&time, NULL);
}

/* ---- a batch ---- */

static void carry(struct mongo_txn *t, const struct txn_command *c)
{
    switch (c->kind) {
    case TXN_LOOK:
        FAULT("txn.before_look");
        read_many(t, c);
        break;
    case TXN_BEGIN:
        FAULT("txn.before_begin");
        begin(t, c);
        break;
    case TXN_STATE:
        FAULT("txn.before_state");
        read_many(t, c);
        break;
    case TXN_COUNT:
        FAULT("txn.before_count");
        write_many(t, c);
        break;
    case TXN_CHECK:
        FAULT("txn.before_check");
        read_many(t, c);
        break;
    case TXN_NUMBER:
        FAULT("txn.before_number");
        if (t->route->sequence.mode == SEQUENCE_MAX)
            read_highest(t, c);
        else
            take_number(t, c);
        break;
    case TXN_EVENTS:
        FAULT("txn.before_events");
        write_many(t, c);
        break;
    case TXN_INSERT:
        FAULT("txn.before_insert");
        write_many(t, c);
        break;
    case TXN_FENCE:
        FAULT("txn.before_fence");
        write_many(t, c);
        break;
    case TXN_DELETE:
        FAULT("txn.before_delete");
        write_many(t, c);
        break;
    case TXN_REPLACE:
        FAULT("txn.before_replace");
        replace_many(t, c);
        break;
    case TXN_COMMIT:
        FAULT("txn.before_commit");
        commit(t);
        break;
    case TXN_ABORT:
        abandon(t);
        answer_fine(t);
        break;
    case TXN_WAIT:
        wait_for(t, c->wait_ms);
        answer_fine(t);
        break;
    }
}

static void say_missing(const struct mongo_txn *t)
{
    enum { SAY_AGAIN_MS = 10000 };
    static struct log_limit limit;
    uint64_t missing = txn_plan_done(t->plan).moves_missing;
    int64_t held_back;

    if (missing > 0 && log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
        log_warn("counter documents are not there, and upsert = false: what they would have got is "
                 "dropped (idemsink reconcile finds what is missing)",
                 LOG_TEXT("route", t->route->name), LOG_INT("documents", (int64_t)missing),
                 LOG_INT("held_back", held_back));
}

void mongo_txn_did(const struct mongo_txn *t, struct sink_effects *out)
{
    struct txn_done done = txn_plan_done(t->plan);

    *out = (struct sink_effects){.transactions = (int64_t)done.transactions,
                                 .conflicts = (int64_t)done.conflicts,
                                 .missing = (int64_t)done.moves_missing};
}

const struct outcome *mongo_txn_write(struct mongo_txn *t, uint32_t route,
                                      const struct write_op *ops, size_t n)
{
    int64_t now_ms = clock_mono_ms(), last_ms = t->m->socket_timeout_ms;
    struct txn_rules rules = {.route = &t->m->config->routes[route],
                              .random = (uint32_t)random_bits()};
    struct txn_command c;

    t->deadline_ms = now_ms + (last_ms < BATCH_MS_MAX ? last_ms : BATCH_MS_MAX);
    rules.deadline_ms = t->deadline_ms;
    t->route = rules.route;
    t->has_begun = false;
    txn_plan_begin(t->plan, ops, n, &rules);
    while (txn_plan_next(t->plan, now_ms, &c)) {
        carry(t, &c);
        now_ms = clock_mono_ms();
    }
    abandon(t); /* nothing, but for a COMMIT whose end nobody knows */
    say_missing(t);
    return txn_plan_results(t->plan);
}
