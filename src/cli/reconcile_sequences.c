/* Sequences and ledgers: groups first, then each suspicion by itself, at one moment. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/reconcile.h"
#include "core/log_doc.h"
#include "core/reconcile_sequence.h"
#include "io/mongo_reconcile.h"

struct sequence_work {
    struct reconcile_work *w;
    const struct config_route *route;
    struct sequence_audit one; /* of the group that is looked at by itself */
    bool there;
};

static void forget(void *ctx)
{
    struct sequence_work *s = ctx;

    s->one = (struct sequence_audit){0};
    s->there = false;
}

static bool take_group(const bson_t *result, void *ctx)
{
    struct sequence_work *s = ctx;
    bson_t group = BSON_INITIALIZER;

    s->there = sequence_audit_group(s->route, result, &group, &s->one);
    bson_destroy(&group);
    return true;
}

/* Behind the documents: a counter is moved before its numbers are used, so it is never below. */
static bool take_counter(const bson_t *document, void *ctx)
{
    struct sequence_work *s = ctx;
    bson_iter_t it;

    if (bson_iter_init_find(&it, document, "n") &&
        (BSON_ITER_HOLDS_INT64(&it) || BSON_ITER_HOLDS_INT32(&it))) {
        s->one.counter = true;
        s->one.last = bson_iter_as_int64(&it);
    }
    return true;
}

static void tell_group(struct sequence_work *s, const bson_t *group, enum sequence_fault fault,
                       const char *done)
{
    const struct config_sequence *q = &s->route->sequence;
    const struct sequence_audit *a = &s->one;
    char counted[24], stored[24] = "";
    struct reconcile_finding f = {.what = sequence_fault_name(fault),
                                  .database = s->route->database,
                                  .collection = s->route->collection,
                                  .key = group,
                                  .field = q->field,
                                  .counted = counted,
                                  .stored = stored,
                                  .done = done};
    int64_t number = fault == SEQUENCE_UNNUMBERED ? a->unnumbered
                     : fault == SEQUENCE_DOUBLE   ? a->doubles
                     : fault == SEQUENCE_HOLES    ? a->numbers
                                                  : a->highest;

    (void)snprintf(counted, sizeof counted, "%" PRId64, number);
    if (fault == SEQUENCE_HOLES)
        (void)snprintf(stored, sizeof stored, "%" PRId64, a->highest - q->start + 1);
    else if (a->counter)
        (void)snprintf(stored, sizeof stored, "%" PRId64, a->last);
    s->w->books->differences++;
    s->w->books->repaired += *done != '\0';
    s->w->calls->found(s->w->calls->ctx, &f);
}

/* Numbers and counter of one group at one moment. */
static bool look_at_group(struct sequence_work *s, const bson_t *group)
{
    const struct config_route *r = s->route;
    struct reconcile_work *w = s->w;
    bson_t documents = BSON_INITIALIZER, counter = BSON_INITIALIZER;
    const struct mongo_reading readings[] = {
        {r->database, r->collection, &documents, take_group},
        {r->sequence.database, r->sequence.collection, &counter, take_counter}};
    bool with_counter = r->sequence.mode != SEQUENCE_MAX, ok;
    const char *done = "";

    sequence_audit_pipeline(r, group, &documents);
    sequence_audit_counter(group, &counter);
    ok = mongo_read_together(w->m, w->snapshots, readings, with_counter ? 2 : 1, forget, s, w->e);
    enum sequence_fault fault =
        ok && s->there ? sequence_audit_judge(r, &s->one, with_counter) : SEQUENCE_FINE;
    if (fault == SEQUENCE_LAGS && w->o->apply) {
        ok = mongo_raise(w->m, r->sequence.database, r->sequence.collection, group, "n",
                         s->one.highest, w->e);
        done = ok ? "repaired" : "";
    }
    if (fault != SEQUENCE_FINE)
        tell_group(s, group, fault, done);
    bson_destroy(&documents);
    bson_destroy(&counter);
    w->failed = w->failed || !ok;
    return ok;
}

static bool group(const bson_t *result, void *ctx)
{
    struct sequence_work *s = ctx;
    bson_t key = BSON_INITIALIZER;
    struct sequence_audit a;
    bool go_on = true;

    if (!sequence_audit_group(s->route, result, &key, &a)) {
        s->w->books->foreign++;
    } else {
        s->w->books->groups++;
        if (s->route->sequence.mode != SEQUENCE_MAX ||
            sequence_audit_judge(s->route, &a, false) != SEQUENCE_FINE)
            go_on = look_at_group(s, &key);
    }
    bson_destroy(&key);
    return go_on && reconcile_go_on(s->w);
}

static void tell_unable(struct reconcile_work *w, const struct config_route *r, const char *what,
                        const char *why)
{
    char *text = mem_printf("%s of route %s", what, r->name);

    w->books->unable++;
    w->calls->unable(w->calls->ctx, text, why);
    mem_free(text);
}

static bool audit_sequence(struct reconcile_work *w, const struct config_route *r)
{
    struct sequence_work s = {.w = w, .route = r};
    bson_t pipeline = BSON_INITIALIZER;

    if (r->sequence.group_fields.n < r->sequence.group.n) {
        tell_unable(w, r, "sequence",
                    "a part of its group is not stored in the documents; [route.set] can store it");
        bson_destroy(&pipeline);
        return true;
    }
    sequence_audit_pipeline(r, NULL, &pipeline);
    bool ok = mongo_aggregate(w->m, r->database, r->collection, &pipeline, w->o->secondary, group,
                              &s, w->e);
    bson_destroy(&pipeline);
    w->failed = w->failed || !ok;
    return !w->failed && !w->books->stopped;
}

/* ---- ledgers ---- */

struct ledger_work {
    int64_t added, removed, open, there;
    bool read; /* once */
};

static void forget_ledger(void *ctx)
{
    *(struct ledger_work *)ctx = (struct ledger_work){0};
}

static int64_t number_of(const bson_t *b, const char *name)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, b, name) ? bson_iter_as_int64(&it) : 0;
}

static bool take_ledger(const bson_t *result, void *ctx)
{
    struct ledger_work *l = ctx;
    int64_t added = number_of(result, "added"), removed = number_of(result, "removed");

    l->open += number_of(result, "open");
    /* Another one than before the entities were counted: it has moved meanwhile. */
    if (l->read && (added != l->added || removed != l->removed))
        l->open++;
    l->read = true;
    l->added = added;
    l->removed = removed;
    return true;
}

static bool take_there(const bson_t *result, void *ctx)
{
    struct ledger_work *l = ctx;

    l->there = number_of(result, "n");
    return true;
}

/* One that was given up (failed) is not open: its did says what became of it. */
static bson_t *ledger_pipeline(void)
{
    return BCON_NEW("pipeline", "[", "{", "$group", "{", "_id", BCON_NULL, "added", "{", "$sum",
                    "{", "$cond", "[", "{", "$and", "[", "$did", "{", "$eq", "[", "$op",
                    BCON_UTF8("insert"), "]", "}", "]", "}", BCON_INT64(1), BCON_INT64(0), "]", "}",
                    "}", "removed", "{", "$sum", "{", "$cond", "[", "{", "$and", "[", "$did", "{",
                    "$eq", "[", "$op", BCON_UTF8("delete"), "]", "}", "]", "}", BCON_INT64(1),
                    BCON_INT64(0), "]", "}", "}", "open", "{", "$sum", "{", "$cond", "[", "{",
                    "$and", "[", "{", "$ne", "[", "{", "$type", BCON_UTF8("$" LOG_EFFECTS), "}",
                    BCON_UTF8("missing"), "]", "}", "{", "$eq", "[", "{", "$type",
                    BCON_UTF8("$" LOG_EFFECTS ".failed"), "}", BCON_UTF8("missing"), "]", "}", "]",
                    "}", BCON_INT64(1), BCON_INT64(0), "]", "}", "}", "}", "}", "]");
}

static void tell_ledger(struct reconcile_work *w, const struct config_route *r,
                        const struct ledger_work *l)
{
    bson_t none = BSON_INITIALIZER;
    char counted[24], stored[24];
    const struct reconcile_finding f = {.what = "ledger",
                                        .database = r->database,
                                        .collection = r->collection,
                                        .key = &none,
                                        .field = "documents",
                                        .counted = counted,
                                        .stored = stored,
                                        .done = ""};

    (void)snprintf(counted, sizeof counted, "%" PRId64, l->added - l->removed);
    (void)snprintf(stored, sizeof stored, "%" PRId64, l->there);
    w->books->differences++;
    w->calls->found(w->calls->ctx, &f);
    bson_destroy(&none);
}

static bool is_shared(const struct config *c, const struct config_route *r)
{
    for (size_t i = 0; i < c->n_routes; i++)
        if (&c->routes[i] != r && strcmp(c->routes[i].database, r->database) == 0 &&
            strcmp(c->routes[i].collection, r->collection) == 0)
            return true;
    return false;
}

static void say_not_compared(struct reconcile_work *w, const struct config_route *r,
                             const char *why)
{
    char *text = mem_printf("%s: the entities that are there are not compared with the events: %s",
                            r->name, why);

    w->calls->note(w->calls->ctx, text);
    mem_free(text);
}

/* Entities that were added, less those removed, are there. */
static bool audit_ledger(struct reconcile_work *w, const struct config_route *r)
{
    const struct config_operation *o = &r->operation;
    bson_t *events = ledger_pipeline(),
           *there = BCON_NEW("pipeline", "[", "{", "$group", "{", "_id", BCON_NULL, "n", "{",
                             "$sum", BCON_INT64(1), "}", "}", "}", "]");
    const struct mongo_reading readings[] = {{o->ledger_database, o->ledger, events, take_ledger},
                                             {r->database, r->collection, there, take_there},
                                             {o->ledger_database, o->ledger, events, take_ledger}};
    struct ledger_work l = {0};
    const char *why = o->ledger_expire_ms > 0   ? "its ledger forgets (ledger_expire)"
                      : is_shared(w->config, r) ? "another route stores in the same collection"
                                                : NULL;
    bool ok = true;

    if (why == NULL)
        ok = mongo_read_together(w->m, w->snapshots, readings, 3, forget_ledger, &l, w->e);
    w->failed = !ok;
    if (why == NULL && l.open > 0)
        why = "events of its ledger are being worked on";
    if (ok && why != NULL)
        say_not_compared(w, r, why);
    else if (ok && l.added - l.removed != l.there)
        tell_ledger(w, r, &l);
    bson_destroy(events);
    bson_destroy(there);
    return ok;
}

bool reconcile_sequences(struct reconcile_work *w)
{
    for (size_t i = 0; i < w->config->n_routes; i++) {
        const struct config_route *r = &w->config->routes[i];

        if (w->o->route && strcmp(w->o->route, r->name) != 0)
            continue;
        if (config_has_sequence(r) && !audit_sequence(w, r))
            return false;
        if (config_has_operation(r) && !audit_ledger(w, r))
            return false;
    }
    return true;
}
