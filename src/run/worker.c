/*
 * Each record of a batch leaves it on exactly one of three ways: deferred into
 * its lane; dead-lettered and settled; or finished and settled, by way of the
 * notifier when somebody wants to be told.
 *
 * Order inside a lane: records of one lane are adjacent and in order in a batch,
 * the sink keeps that order and reports LATER for what stands behind a record
 * that failed for now. So whatever is deferred is a tail of its run.
 */
#include "run/worker.h"

#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/random.h"
#include "core/mirror.h"
#include "core/retry.h"
#include "run/large.h"

enum {
    DEAD_LETTER_HOLD_MS = 30000, /* longer than any send() lasts */
    PART_BYTES = 16 * 1024 * 1024,
    SAY_AGAIN_MS = 60000,
    LOCKED_OFTEN = 6 /* attempts for a lock that are worth a line */
};

struct worker {
    struct worker_shared *shared;
    void *session;
    struct guard *guard; /* NULL: no route has a lock */
    size_t cap;
    size_t n;    /* records of the batch */
    size_t next; /* the first that is not mapped yet */
    struct record **records;
    struct record **dead, **later, **finished;
    size_t n_dead, n_later;
    size_t n_unlocked; /* of the later ones: their locks are somebody else's */
    struct write_op *ops;
    size_t *op_record; /* ops[i] is records[op_record[i]] */
    size_t n_ops, n_mapped;
    struct seen_session *seen; /* NULL: no route has one */
    size_t n_seen, next_seen;  /* of the ops, behind the n_ops that are written: known duplicates */
    const bool *seen_by_others;   /* n_seen */
    const struct lane *late_lane; /* of the last record that goes back */
    struct settled *done;
    size_t n_done;
    bool *sent;
};

static void worker_init(struct worker *w, struct worker_shared *shared)
{
    size_t cap = (size_t)shared->config->worker.batch;

    *w = (struct worker){.shared = shared, .cap = cap};
    w->session = shared->sink.ops->open(shared->sink.self);
    w->seen = seen_session_open(shared->seen);
    if (shared->guards)
        w->guard = guard_open(shared->guards, &shared->sink, w->session);
    w->records = mem_array(cap, sizeof(struct record *));
    w->dead = mem_array(cap, sizeof(struct record *));
    w->later = mem_array(cap, sizeof(struct record *));
    w->finished = mem_array(cap, sizeof(struct record *));
    w->ops = mem_array(cap, sizeof *w->ops);
    w->op_record = mem_array(cap, sizeof *w->op_record);
    w->done = mem_array(cap, sizeof *w->done);
    w->sent = mem_array(cap, sizeof *w->sent);
}

static void worker_clear(struct worker *w)
{
    guard_close(w->guard);
    w->shared->sink.ops->close(w->session);
    seen_session_close(w->seen);
    mem_free(w->records);
    mem_free(w->dead);
    mem_free(w->later);
    mem_free(w->finished);
    mem_free(w->ops);
    mem_free(w->op_record);
    mem_free(w->done);
    mem_free(w->sent);
}

static void part_goes_on(struct worker *w, struct record *r)
{
    int64_t lasted_ms;

    if (route_state_part_goes_on(w->shared->routes, r->route, &r->waits, &lasted_ms))
        log_info("records that waited for somebody go on",
                 LOG_TEXT("route", w->shared->config->routes[r->route].name),
                 LOG_INT("after_ms", lasted_ms));
}

/* r gets its end. */
static void add_done(struct worker *w, struct record *r, enum pipeline_outcome outcome)
{
    part_goes_on(w, r);
    w->done[w->n_done].record = r;
    w->done[w->n_done].outcome = outcome;
    w->n_done++;
}

static enum mapping_verdict map_one(const struct mapping *mapping, struct record *r,
                                    struct write_op *op)
{
    enum mapping_verdict verdict;

    large_begin(r);
    verdict = mapping_build(mapping, r, op);
    large_end(r);
    return verdict;
}

/* Until the documents are so large together that they are sent first: [1,1,...] becomes eight times
 * its text, and the driver makes a copy of it. */
static void batch_map(struct worker *w, const struct mapping *mapping)
{
    size_t bytes = 0;

    w->n_ops = 0;
    for (; w->next < w->n && bytes < PART_BYTES; w->next++) {
        struct record *r = w->records[w->next];
        struct write_op *op = &w->ops[w->n_ops];

        if (r->rejected.reason != REASON_NONE) { /* judged before; its dead letter was not taken */
            w->dead[w->n_dead++] = r;
            continue;
        }
        *op = (struct write_op){0};
        switch (map_one(mapping, r, op)) {
        case MAPPING_WRITE:
            bytes += op->document->len + op->filter->len;
            op->lane = r->lane;
            op->alone = r->suspicion.code != 0;
            w->op_record[w->n_ops++] = w->next;
            break;
        case MAPPING_SKIP:
            add_done(w, r, PIPELINE_SKIPPED);
            break;
        case MAPPING_REJECTED:
            w->dead[w->n_dead++] = r;
            break;
        }
    }
}

/* What is known to be stored is not written. */
static void batch_seen(struct worker *w, uint32_t route)
{
    struct seen_part part = {.ops = w->ops, .record = w->op_record, .n = w->n_ops};

    w->n_mapped = w->n_ops;
    w->n_seen = w->next_seen = 0;
    if (w->seen == NULL || w->n_ops == 0)
        return;
    seen_ask(w->seen, route, &part);
    w->n_ops = part.n;
    w->n_seen = part.n_seen;
    w->seen_by_others = part.by_others;
}

static void put_off(struct worker *w, struct record *r)
{
    w->later[w->n_later++] = r;
    w->late_lane = r->lane;
}

/* The known duplicates of the batch before this record of it. One that stands in its lane behind a
 * record that failed for now waits with that: the lane's records end in their order. */
static void settle_seen(struct worker *w, size_t record)
{
    for (; w->next_seen < w->n_seen; w->next_seen++) {
        size_t at = w->op_record[w->n_ops + w->next_seen];
        struct record *r = w->records[at];

        if (at > record)
            return;
        if (w->late_lane != NULL && r->lane == w->late_lane)
            put_off(w, r);
        else
            add_done(w, r, PIPELINE_DUPLICATE);
    }
}

/* What the driver said stands in the sink's own line; here is what it means for the route. Once
 * for a route and not for each record. */
static void trouble(struct worker *w, uint32_t route, const struct record *r,
                    const struct outcome *o)
{
    const struct config_route *c = &w->shared->config->routes[route];
    const struct sink *sink = &w->shared->sink;
    bool somebody = o->retry == RETRY_RIGHTS || o->retry == RETRY_CONFIG;
    struct buf todo = {0};

    if (!route_state_trouble(w->shared->routes, route, o->retry, o->code))
        return;
    if (somebody && sink->ops->explain)
        sink->ops->explain(sink->self, route, o->retry, o->code, &todo);
    else
        buf_add_text(&todo, outcome_advice(o->retry, o->code));
    route_state_explain(w->shared->routes, route, buf_text(&todo));
    log_write(somebody ? LOG_LEVEL_ERROR : LOG_LEVEL_WARN,
              somebody
                  ? "write refused until somebody acts; nothing is dead-lettered for it, and no "
                    "more is read for this route meanwhile"
                  : "write not acknowledged, will be sent again",
              LOG_FIELDS(LOG_TEXT("route", c->name), LOG_TEXT("database", c->database),
                         LOG_TEXT("collection", c->collection),
                         LOG_TEXT("class", retry_class_name(o->retry)), LOG_INT("code", o->code),
                         LOG_TEXT("to_do", buf_text(&todo)), LOG_TEXT("topic", r->topic),
                         LOG_INT("partition", r->partition), LOG_INT("offset", r->offset),
                         LOG_INT("attempts", r->attempts + 1)));
    buf_clear(&todo);
}

/* Where others of the route go on, nothing is held. */
static void part_waits(struct worker *w, uint32_t route, struct record *r, const struct outcome *o)
{
    const struct config_route *c = &w->shared->config->routes[route];

    if (route_state_part_waits(w->shared->routes, route, &r->waits, o->text))
        log_error("records wait until somebody acts, others of their route go on",
                  LOG_TEXT("route", c->name), LOG_TEXT("database", c->database),
                  LOG_TEXT("collection", c->collection),
                  LOG_TEXT("class", retry_class_name(o->retry)), LOG_INT("code", o->code),
                  LOG_TEXT("to_do", o->text), LOG_TEXT("topic", r->topic),
                  LOG_INT("partition", r->partition), LOG_INT("offset", r->offset),
                  LOG_INT("attempts", r->attempts + 1));
}

static void trouble_is_over(struct worker *w, uint32_t route)
{
    int64_t lasted_ms;
    bool was_held = atomic_load(&route_state_held(w->shared->routes)[route]);
    bool was_said = route_state_fine(w->shared->routes, route, &lasted_ms);

    if (was_held)
        pipeline_nudge(w->shared->pipeline);
    if (was_said)
        log_info("writes are acknowledged again",
                 LOG_TEXT("route", w->shared->config->routes[route].name),
                 LOG_INT("after_ms", lasted_ms));
}

static void log_suspicion(const struct record *r, uint32_t max)
{
    static struct log_limit limit;
    int64_t held_back;

    if (log_limit_pass(&limit, 5000, &held_back))
        log_warn("MongoDB refuses a record with a code that is not known to be permanent, and "
                 "takes others: it is sent again alone",
                 LOG_INT("code", r->suspicion.code), LOG_TEXT("topic", r->topic),
                 LOG_INT("partition", r->partition), LOG_INT("offset", r->offset),
                 LOG_INT("repeated_alone", r->suspicion.repeats), LOG_INT("retry.max_unknown", max),
                 LOG_INT("like_this_not_logged", held_back));
}

/* What the batch says about the route as a whole. */
struct verdict {
    struct suspicion_signs signs;
    const struct outcome
        *blocked; /* the first that was not acknowledged, for no fault of its own */
    const struct record *blocked_record;
    const struct outcome *late; /* the first that was put off, and not for one before it */
    const struct record *late_record;
    bool answered; /* something has got its end */
    bool part;     /* some wait until somebody acts, and the others don't wait for that */
};

static void reject_suspected(struct record *r, const struct outcome *o)
{
    const struct outcome_code *row = outcome_code_find(o->code);

    record_reject(r, REASON_REJECTED, o->code,
                  "code %d%s%s%s, %" PRIu32 " times alone, while others were stored: %s", o->code,
                  row ? " (" : "", row ? row->name : "",
                  row ? "), which is not known to be permanent" : ", which nobody knows",
                  r->suspicion.repeats + 1, o->text ? o->text : "no message");
}

/* Nobody knows whether r was applied. True: it will be given up. */
static bool judge_unknown(struct worker *w, struct verdict *v, struct record *r,
                          const struct outcome *o)
{
    uint32_t max = (uint32_t)w->shared->config->retry.max_unknown;

    switch (o->doubt == DOUBT_NONE ? SUSPICION_NONE
                                   : suspicion_judge(&r->suspicion, o, &v->signs, max)) {
    case SUSPICION_NONE:
        if (v->blocked == NULL) {
            v->blocked = o;
            v->blocked_record = r;
        }
        return false;
    case SUSPICION_AGAIN:
        log_suspicion(r, max);
        return false;
    case SUSPICION_GUILTY:
        reject_suspected(r, o);
        return true;
    }
    return false;
}

/* Nothing of r was applied. Conflicts and locks pass by themselves. */
static void judge_late(struct worker *w, uint32_t route, struct verdict *v, struct record *r,
                       const struct outcome *o)
{
    bool behind = r->lane != NULL && r->lane == w->late_lane;

    if (o->text) {
        v->part = true;
        part_waits(w, route, r, o);
    } else if (v->late == NULL && !behind && o->retry != RETRY_CONFLICT && o->retry != RETRY_LOCK) {
        v->late = o;
        v->late_record = r;
    }
}

/* A dead letter has its own line. */
static void log_conflict(const struct record *r, const struct outcome *o)
{
    static struct log_limit limit;
    int64_t held_back;

    if (o->fate == FATE_DUPLICATE && log_limit_pass(&limit, 1000, &held_back))
        log_warn("a duplicate has another payload than the stored document",
                 LOG_TEXT("topic", r->topic), LOG_INT("partition", r->partition),
                 LOG_INT("offset", r->offset), LOG_INT("like_this_not_logged", held_back));
}

static void count_signs(struct worker *w, uint32_t route, const struct outcome *outcomes,
                        struct suspicion_signs *signs)
{
    uint64_t inserted = 0, cleared = 0;

    for (size_t i = 0; i < w->n_ops; i++) {
        enum fate fate = outcomes[i].fate;

        inserted += fate == FATE_INSERTED;
        cleared += (fate == FATE_INSERTED || fate == FATE_DUPLICATE) &&
                   w->records[w->op_record[i]]->suspicion.code != 0;
    }
    signs->stored = route_state_stored(w->shared->routes, route, inserted);
    signs->cleared = route_state_cleared(w->shared->routes, route, cleared);
    signs->among_stored = inserted > 0;
}

static void batch_route(struct worker *w, uint32_t route, struct verdict *v,
                        const struct outcome *outcomes)
{
    count_signs(w, route, outcomes, &v->signs);
    for (size_t i = 0; i < w->n_ops; i++) {
        struct record *r = w->records[w->op_record[i]];
        const struct outcome *o = &outcomes[i];

        settle_seen(w, w->op_record[i]);
        v->answered = v->answered || (o->fate != FATE_LATER && o->fate != FATE_UNKNOWN);
        if (o->conflict) {
            metric_add(w->shared->metrics->routes[route].conflicts, 1);
            log_conflict(r, o);
        }
        if (o->fate == FATE_INSERTED) {
            add_done(w, r, PIPELINE_INSERTED);
        } else if (o->fate == FATE_DUPLICATE) {
            add_done(w, r, PIPELINE_DUPLICATE);
        } else if (o->fate == FATE_NEVER) {
            record_refused(r, o);
            w->dead[w->n_dead++] = r;
        } else if (o->fate == FATE_UNKNOWN && judge_unknown(w, v, r, o)) {
            w->dead[w->n_dead++] = r;
        } else {
            if (o->fate == FATE_LATER)
                judge_late(w, route, v, r, o);
            metric_add(w->shared->metrics->retries[o->retry], 1);
            put_off(w, r);
        }
    }
}

static void batch_finish(struct worker *w, uint32_t route);

/*
 * What readers find in Redis instead of asking MongoDB, before they are told that it has changed.
 * Of duplicates, too: whoever stored them may have died before he came to this. So of those that
 * others are known to have stored, and not of those that this process has.
 */
static void batch_mirror(struct worker *w, uint32_t route, const struct outcome *outcomes)
{
    const struct sink_ops *sink = w->shared->sink.ops;
    struct invalidation_list list = {0};
    const struct write_op **ops;
    size_t n = 0;

    if (!w->shared->notifier || !sink->moved || !mirror_any(&w->shared->config->routes[route]))
        return;
    ops = mem_array(w->n_ops + w->n_seen, sizeof(const struct write_op *));
    for (size_t i = 0; i < w->n_seen; i++)
        if (w->seen_by_others[i])
            ops[n++] = &w->ops[w->n_ops + i];
    for (size_t i = 0; i < w->n_ops; i++)
        if (outcomes[i].fate == FATE_INSERTED || outcomes[i].fate == FATE_DUPLICATE)
            ops[n++] = &w->ops[i];
    if (n > 0)
        sink->moved(w->session, route, ops, n, &list);
    if (list.n > 0)
        notifier_mirror(w->shared->notifier, &list);
    mem_free(ops);
}

static const struct outcome *batch_write(struct worker *w, uint32_t route)
{
    const struct route_metrics *m = &w->shared->metrics->routes[route];
    int64_t start_us = clock_mono_us();
    struct verdict v = {0};
    const struct outcome *outcomes;

    if (w->n_ops == 0) {
        batch_mirror(w, route, NULL);
        settle_seen(w, w->n);
        return NULL;
    }
    FAULT("worker.before_write");
    outcomes = w->shared->sink.ops->write(w->session, route, w->ops, w->n_ops);
    FAULT("worker.after_write");
    run_metrics_effects(m, &w->shared->sink, w->session);
    metric_observe(m->batch_records, (double)w->n_ops);
    metric_observe(m->batch_seconds, (double)(clock_mono_us() - start_us) / 1e6);
    if (w->seen)
        seen_learn(w->seen, route, outcomes, w->n_ops);
    batch_route(w, route, &v, outcomes);
    batch_mirror(w, route, outcomes);
    settle_seen(w, w->n);
    if (v.blocked)
        trouble(w, route, v.blocked_record, v.blocked);
    else if (v.late && !v.answered && !v.part) /* nothing has got its end */
        trouble(w, route, v.late_record, v.late);
    else if (v.answered)
        trouble_is_over(w, route);
    return outcomes;
}

/* Nothing of the route is written meanwhile, and nothing is lost by that. */
static void locks_fail(struct worker *w, uint32_t route, const char *text)
{
    if (!route_state_trouble(w->shared->routes, route, RETRY_LOCK, 0))
        return;
    route_state_explain(w->shared->routes, route, text);
    log_warn("locks can't be taken: nothing of this route is written until they can",
             LOG_TEXT("route", w->shared->config->routes[route].name), LOG_TEXT("error", text));
}

/* Without a fault of ours, but a lock without a ttl would hold them up for ever. */
static void say_locked(struct worker *w, uint32_t route, const struct record *r)
{
    static struct log_limit limit;
    int64_t held_back;

    if (r->attempts + 1 >= LOCKED_OFTEN && log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
        log_warn("records wait for a lock that somebody else holds, again and again; explain "
                 "--offset shows its key, PTTL in Redis for how long it is held",
                 LOG_TEXT("route", w->shared->config->routes[route].name),
                 LOG_TEXT("topic", r->topic), LOG_INT("partition", r->partition),
                 LOG_INT("offset", r->offset), LOG_INT("attempts", r->attempts + 1),
                 LOG_INT("like_this_not_logged", held_back));
}

/* The operations from..n have no locks: their records go back. asked: for want of them, not because
 * something went wrong before they were asked for. */
static void batch_unlocked(struct worker *w, uint32_t route, size_t from, size_t n, bool asked)
{
    const char *text;

    for (size_t i = from; i < n; i++)
        put_off(w, w->records[w->op_record[i]]);
    if (!asked)
        return;
    const struct outcome *why = guard_why(w->guard, n - from, &text);

    if (why && why->retry == RETRY_LOCK) {
        locks_fail(w, route, text);
    } else if (why) {
        trouble(w, route, w->records[w->op_record[from]], why);
    } else {
        w->n_unlocked += n - from;
        for (size_t i = from; i < n; i++)
            say_locked(w, route, w->records[w->op_record[i]]);
    }
    metric_add(w->shared->metrics->retries[why ? why->retry : RETRY_LOCK], (int64_t)(n - from));
}

static const struct outcome *batch_plain(struct worker *w, uint32_t route)
{
    batch_seen(w, route);
    return batch_write(w, route);
}

/* As batch_plain(), in as many parts as their locks come in. */
static void batch_guarded(struct worker *w, uint32_t route)
{
    size_t n = w->n_ops, done = 0, taken;
    struct write_op *ops = w->ops;
    size_t *op_record = w->op_record;
    bool asked = false;

    while (done < n && w->n_later == 0) {
        taken = guard_take(w->guard, &ops[done], &op_record[done], n - done);
        asked = taken == 0;
        if (asked)
            break;
        w->ops = &ops[done];
        w->op_record = &op_record[done];
        w->n_ops = taken;
        const struct outcome *outcomes = batch_plain(w, route);
        guard_release(w->guard, outcomes, outcomes ? w->n_ops : 0);
        batch_finish(w, route); /* nobody waits for the locks of others */
        done += taken;
    }
    w->ops = ops;
    w->op_record = op_record;
    w->n_ops = w->n_mapped = n;
    w->n_seen = 0;
    if (done < n)
        batch_unlocked(w, route, done, n, asked);
}

/*
 * The server's texts quote the document, E11000 behind its first brace ("... dup key: { email:
 * ..."), others anywhere. That has no place in a log; the dead letter has it all.
 */
static char *text_without_data(const struct record *r)
{
    const char *text = r->rejected.text ? r->rejected.text : "";

    if (r->rejected.code == 0) /* ours */
        return mem_text(text);
    if (r->rejected.reason == REASON_UNIQUE_CONFLICT)
        return mem_text_n(text, strcspn(text, "{"));
    return mem_text("refused by the server; the dead letter has its words");
}

static void log_bad_record(const struct record *r, const char *what)
{
    static struct log_limit limits[REASON_COUNT];
    int64_t held_back;

    if (!log_limit_pass(&limits[r->rejected.reason], 1000, &held_back))
        return;
    char *text = text_without_data(r);
    log_warn(what, LOG_TEXT("reason", reason_name(r->rejected.reason)), LOG_TEXT("error", text),
             LOG_INT("code", r->rejected.code), LOG_TEXT("topic", r->topic),
             LOG_INT("partition", r->partition), LOG_INT("offset", r->offset),
             LOG_INT("like_this_not_logged", held_back));
    mem_free(text);
}

/* Without a dead-letter topic: skip when the operator wrote that down, else stop before harm is
 * done. */
static void batch_bad_without_topic(struct worker *w)
{
    if (w->shared->config->dead_letter.on_bad_record == ON_BAD_SKIP) {
        for (size_t i = 0; i < w->n_dead; i++) {
            log_bad_record(w->dead[i], "bad record skipped");
            metric_add(w->shared->metrics->dead_letters[w->dead[i]->rejected.reason], 1);
            add_done(w, w->dead[i], PIPELINE_SKIPPED);
        }
        return;
    }
    struct err e;
    const struct record *r = w->dead[0];
    char *text = text_without_data(r);
    (void)err_set(
        &e, ERR_CONFIG, 0,
        "%s partition %d offset %lld: %s: %s; there is no dead-letter topic, so the record stays "
        "uncommitted "
        "(set dead_letter.topic, or dead_letter.on_bad_record = \"skip\" to drop such records)",
        r->topic, (int)r->partition, (long long)r->offset, reason_name(r->rejected.reason), text);
    mem_free(text);
    stop_ask(w->shared->stop, &e);
    for (size_t i = 0; i < w->n_dead; i++)
        w->later[w->n_later++] = w->dead[i];
}

/* Exponential, with full jitter, in the number of attempts that have failed. */
static int64_t wait_ms_after(const struct worker *w, uint32_t attempts)
{
    struct retry_policy policy = {.first_ms = w->shared->config->retry.first_ms,
                                  .max_ms = w->shared->config->retry.max_ms};

    return retry_wait_ms(&policy, attempts, (uint32_t)random_bits());
}

static struct log_limit dead_letters_limit;

static void dead_letters_failed(struct worker *w, const struct err *e)
{
    size_t first = 0;

    while (first + 1 < w->n_dead && w->sent[first])
        first++;
    const struct record *r = w->dead[first];
    atomic_store(&w->shared->dead_letters_at_ms,
                 clock_mono_ms() + wait_ms_after(w, r->attempts + 1));
    if (log_limit_pass(&dead_letters_limit, SAY_AGAIN_MS, NULL))
        log_error("dead letter not acknowledged, will be sent again; its partition is not "
                  "committed past it",
                  LOG_TEXT("dead_letter_topic", w->shared->config->dead_letter.topic),
                  LOG_TEXT("error", e->text), LOG_TEXT("topic", r->topic),
                  LOG_INT("partition", r->partition), LOG_INT("offset", r->offset));
}

static void dead_letters_taken(struct worker *w)
{
    if (atomic_exchange(&w->shared->dead_letters_at_ms, 0) == 0)
        return;
    atomic_store(&dead_letters_limit.next_at_ms, 0); /* the next trouble is news */
    log_info("dead letters are acknowledged again",
             LOG_TEXT("dead_letter_topic", w->shared->config->dead_letter.topic));
}

/* Whether to try the dead-letter topic now. After a failure one worker at a time does. */
static bool dead_letters_turn(struct worker *w)
{
    int64_t now_ms = clock_mono_ms();
    int64_t at_ms = atomic_load(&w->shared->dead_letters_at_ms);

    if (at_ms == 0)
        return true;
    return now_ms >= at_ms && atomic_compare_exchange_strong(&w->shared->dead_letters_at_ms, &at_ms,
                                                             now_ms + DEAD_LETTER_HOLD_MS);
}

/*
 * While the dead-letter topic doesn't answer, a worker that tries it loses the producer's time-out
 * on every batch with a bad record in it: so after a failure only one tries, now and then, and the
 * others put theirs back at once.
 */
static void batch_dead_letters(struct worker *w)
{
    struct err e;

    if (w->n_dead == 0)
        return;
    if (w->shared->deadletter.ops == NULL) {
        batch_bad_without_topic(w);
        return;
    }
    memset(w->sent, 0, w->n_dead * sizeof *w->sent);
    if (dead_letters_turn(w)) {
        if (w->shared->deadletter.ops->send(w->shared->deadletter.self, w->dead, w->n_dead, w->sent,
                                            &e))
            dead_letters_taken(w);
        else
            dead_letters_failed(w, &e);
    }
    for (size_t i = 0; i < w->n_dead; i++) {
        struct record *r = w->dead[i];

        if (w->sent[i]) {
            metric_add(w->shared->metrics->dead_letters[r->rejected.reason], 1);
            log_bad_record(r, "record dead-lettered");
            add_done(w, r, PIPELINE_DEAD);
        } else {
            metric_add(w->shared->metrics->retries[RETRY_DEAD_LETTER], 1);
            w->later[w->n_later++] = r;
        }
    }
}

/* All of a batch wait for the same time, so that they come back as one batch. */
static void batch_defer(struct worker *w)
{
    uint32_t attempts = 1;

    int64_t wait_ms;

    if (w->n_later == 0)
        return;
    for (size_t i = 0; i < w->n_later; i++)
        attempts = w->later[i]->attempts + 1 > attempts ? w->later[i]->attempts + 1 : attempts;
    wait_ms = wait_ms_after(w, attempts);
    if (w->n_unlocked == w->n_later && wait_ms > guard_wait_max_ms(w->guard))
        wait_ms = guard_wait_max_ms(w->guard);
    pipeline_defer(w->shared->pipeline, w->later, w->n_later, wait_ms);
}

/* The lanes go on; then whoever wants to be told is told, and the offsets are settled. */
static void batch_finish(struct worker *w, uint32_t route)
{
    if (w->n_done == 0)
        return;
    for (size_t i = 0; i < w->n_done; i++) {
        w->finished[i] = w->done[i].record;
        metric_add(w->shared->metrics->routes[route].outcomes[w->done[i].outcome], 1);
    }
    pipeline_finish(w->shared->pipeline, w->finished, w->n_done);
    FAULT("worker.before_settle");
    if (w->shared->notifier)
        notifier_push(w->shared->notifier, w->shared->mappings[route], route, w->done, w->n_done);
    else
        pipeline_settle(w->shared->pipeline, w->done, w->n_done);
    w->n_done = 0;
}

static void batch_run(struct worker *w)
{
    uint32_t route = w->records[0]->route;

    w->n_dead = w->n_later = w->n_unlocked = w->n_done = w->next = 0;
    w->late_lane = NULL;
    while (w->next < w->n && w->n_later == 0) {
        batch_map(w, w->shared->mappings[route]);
        if (guard_begin(w->guard, route))
            batch_guarded(w, route);
        else
            (void)batch_plain(w, route);
        for (size_t i = 0; i < w->n_mapped; i++)
            write_op_clear(&w->ops[i]);
        batch_finish(w, route); /* the good ones don't wait for the dead-letter topic */
    }
    for (; w->next < w->n; w->next++) /* some of their lanes may not go on yet */
        w->later[w->n_later++] = w->records[w->next];
    batch_dead_letters(w);
    batch_finish(w, route);
    batch_defer(w);
}

void *worker_main(void *arg)
{
    struct worker w;
    struct worker_shared *shared = arg;
    size_t max_bytes = (size_t)shared->config->worker.max_bytes / 4;

    worker_init(&w, shared);
    while ((w.n = pipeline_take(shared->pipeline, w.records, w.cap, max_bytes,
                                shared->config->worker.linger_ms)) > 0)
        batch_run(&w);
    worker_clear(&w);
    return NULL;
}
