#include "run/replay.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "core/mirror.h"
#include "core/retry.h"

enum {
    SET_MAX = 512,   /* invalidations in one set, as the notifier has them */
    BEST_EFFORTS = 4 /* attempts at invalidations that may be lost */
};

struct replay {
    struct replay_options o;
    void *session;
    struct guard *guard;       /* NULL: no route has a lock */
    size_t cap;                /* worker.batch */
    struct replay_item **open; /* cap; of the round, in order */
    struct replay_item **told; /* cap; stored */
    struct replay_item **dead; /* cap */
    struct record **letters;   /* cap; of dead */
    bool *sent;                /* cap, and at least SET_MAX */
    struct write_op *ops;      /* cap */
    size_t *op_item;           /* cap; ops[i] is open[op_item[i]] */
    size_t n_open, n_told, n_dead, n_ops;
    struct invalidation_list list; /* of the round: mirrors of what has moved, then the rules' */
    uint64_t untold;
    int64_t give_up_at_ms;
    struct err why; /* of the last that was not acknowledged */
};

const char *replay_fate_name(enum replay_fate fate)
{
    static const char *const names[REPLAY_FATES] = {"open", "inserted", "duplicate", "skipped",
                                                    "refused"};

    return (size_t)fate < REPLAY_FATES ? names[fate] : "?";
}

struct replay *replay_new(const struct replay_options *options)
{
    struct replay *r = mem_new(sizeof *r);
    size_t cap = (size_t)options->config->worker.batch;

    r->o = *options;
    r->cap = cap;
    r->session = r->o.sink.ops->open(r->o.sink.self);
    if (r->o.guards)
        r->guard = guard_open(r->o.guards, &r->o.sink, r->session);
    r->open = mem_array(cap, sizeof(struct replay_item *));
    r->told = mem_array(cap, sizeof(struct replay_item *));
    r->dead = mem_array(cap, sizeof(struct replay_item *));
    r->letters = mem_array(cap, sizeof(struct record *));
    r->sent = mem_array(cap > SET_MAX ? cap : SET_MAX, sizeof *r->sent);
    r->ops = mem_array(cap, sizeof *r->ops);
    r->op_item = mem_array(cap, sizeof *r->op_item);
    return r;
}

void replay_free(struct replay *r)
{
    if (r == NULL)
        return;
    guard_close(r->guard);
    r->o.sink.ops->close(r->session);
    invalidation_list_clear(&r->list);
    mem_free(r->open);
    mem_free(r->told);
    mem_free(r->dead);
    mem_free(r->letters);
    mem_free(r->sent);
    mem_free(r->ops);
    mem_free(r->op_item);
    mem_free(r);
}

uint64_t replay_untold(const struct replay *r)
{
    return r->untold;
}

/* --- patience ------------------------------------------------------------------------------ */

static void acknowledged(struct replay *r)
{
    r->give_up_at_ms = clock_mono_ms() + r->o.patience_ms;
}

/* Waits before the next attempt. False: the patience is over. */
static bool wait_more(const struct replay *r, uint32_t attempts)
{
    struct retry_policy policy = {.first_ms = r->o.config->retry.first_ms,
                                  .max_ms = r->o.config->retry.max_ms};
    int64_t left_ms = r->give_up_at_ms - clock_mono_ms();
    int64_t wait_ms;

    if (left_ms <= 0)
        return false;
    wait_ms = retry_wait_ms(&policy, attempts, (uint32_t)random_bits());
    if (wait_ms > left_ms)
        wait_ms = left_ms;
    struct timespec t = {.tv_sec = wait_ms / 1000, .tv_nsec = (wait_ms % 1000) * 1000000};
    (void)nanosleep(&t, NULL);
    return true;
}

/* --- writing ------------------------------------------------------------------------------- */

static void finish(struct replay *r, struct replay_item *item, enum replay_fate fate)
{
    item->fate = fate;
    r->o.done(r->o.ctx, item);
}

/* One value for each lane: a collision makes two lanes one, which costs speed and nothing else. */
static const void *lane_of(const struct record *record)
{
    uint64_t hash = record->order_hash;

    if (record->order_space == ORDER_NONE)
        return NULL;
    for (const char *c = record->topic; *c != '\0'; c++)
        hash = hash * 31 + (unsigned char)*c;
    hash = hash * 31 + (uint64_t)record->partition;
    return (const void *)(uintptr_t)(hash | 1);
}

static void build(struct replay *r, uint32_t route)
{
    r->n_ops = 0;
    for (size_t i = 0; i < r->n_open; i++) {
        struct record *record = r->open[i]->record;
        struct write_op *op = &r->ops[r->n_ops];

        if (record->rejected.reason != REASON_NONE) { /* its new letter was not taken yet */
            r->dead[r->n_dead++] = r->open[i];
            continue;
        }
        *op = (struct write_op){0};
        mapping_order(r->o.mappings[route], record);
        switch (mapping_build(r->o.mappings[route], record, op)) {
        case MAPPING_WRITE:
            op->lane = lane_of(record);
            r->op_item[r->n_ops++] = i;
            break;
        case MAPPING_SKIP:
            finish(r, r->open[i], REPLAY_SKIPPED);
            break;
        case MAPPING_REJECTED:
            r->dead[r->n_dead++] = r->open[i];
            break;
        }
    }
}

static void not_acknowledged(struct replay *r, const struct outcome *o)
{
    enum err_kind kind = o->retry == RETRY_RIGHTS   ? ERR_AUTH
                         : o->retry == RETRY_CONFIG ? ERR_CONFIG
                                                    : ERR_TRANSIENT;

    if (o->fate == FATE_UNKNOWN || r->why.kind == ERR_NONE)
        (void)err_set(&r->why, kind, o->code, "MongoDB does not acknowledge (%s, code %d): %s",
                      retry_class_name(o->retry), o->code,
                      o->fate == FATE_LATER && o->text ? o->text
                                                       : outcome_advice(o->retry, o->code));
}

/* The mirrored counters that these have moved, duplicates as in the worker. */
static void read_back(struct replay *r, uint32_t route, const struct outcome *outcomes, size_t from,
                      size_t n_outcomes)
{
    const struct sink_ops *sink = r->o.sink.ops;
    const struct write_op **ops;
    size_t n = 0;

    if (r->o.bus.ops == NULL || !sink->moved || !mirror_any(&r->o.config->routes[route]))
        return;
    ops = mem_array(n_outcomes, sizeof(const struct write_op *));
    for (size_t i = 0; i < n_outcomes; i++)
        if (outcomes[i].fate == FATE_INSERTED || outcomes[i].fate == FATE_DUPLICATE)
            ops[n++] = &r->ops[from + i];
    if (n > 0)
        sink->moved(r->session, route, ops, n, &r->list);
    mem_free(ops);
}

/* The n operations from `from`. */
static const struct outcome *write_some(struct replay *r, uint32_t route, size_t from, size_t n)
{
    const struct outcome *outcomes = r->o.sink.ops->write(r->session, route, &r->ops[from], n);

    for (size_t i = 0; i < n; i++) {
        struct replay_item *item = r->open[r->op_item[from + i]];

        if (outcomes[i].fate == FATE_INSERTED || outcomes[i].fate == FATE_DUPLICATE) {
            item->fate = outcomes[i].fate == FATE_INSERTED ? REPLAY_INSERTED : REPLAY_DUPLICATE;
            item->conflict = outcomes[i].conflict;
            r->told[r->n_told++] = item;
        } else if (outcomes[i].fate == FATE_NEVER) {
            record_refused(item->record, &outcomes[i]);
            r->dead[r->n_dead++] = item;
        } else {
            not_acknowledged(r, &outcomes[i]);
        }
    }
    read_back(r, route, outcomes, from, n);
    return outcomes;
}

static void not_locked(struct replay *r, size_t n)
{
    const char *text;
    const struct outcome *why = guard_why(r->guard, n, &text);

    if (why && why->retry != RETRY_LOCK)
        not_acknowledged(r, why);
    else
        (void)err_set(&r->why, ERR_TRANSIENT, 0, "locks can't be taken: %s",
                      why ? text : "somebody else holds them");
}

/* In as many parts as their locks come in; what failed for now ends it, for the sake of its lane.
 */
static void write_guarded(struct replay *r, uint32_t route)
{
    size_t done = 0, taken;

    r->why = (struct err){0};
    while (done < r->n_ops && r->why.kind == ERR_NONE &&
           (taken = guard_take(r->guard, &r->ops[done], &r->op_item[done], r->n_ops - done)) > 0) {
        guard_release(r->guard, write_some(r, route, done, taken), taken);
        done += taken;
    }
    if (done < r->n_ops && r->why.kind == ERR_NONE)
        not_locked(r, r->n_ops - done);
}

static void write_all(struct replay *r, uint32_t route)
{
    if (r->n_ops == 0)
        return;
    if (guard_begin(r->guard, route))
        write_guarded(r, route);
    else
        (void)write_some(r, route, 0, r->n_ops);
    for (size_t i = 0; i < r->n_ops; i++)
        write_op_clear(&r->ops[i]);
    if (r->n_told + r->n_dead > 0)
        acknowledged(r);
}

/* --- telling ------------------------------------------------------------------------------- */

static bool same_target(const struct invalidation *a, const struct invalidation *b)
{
    return a->kind == b->kind && strcmp(a->name, b->name) == 0 &&
           (a->body == NULL ? b->body == NULL : b->body != NULL && strcmp(a->body, b->body) == 0);
}

/* Each target once; in the order of the first. */
static void drop_doubles(struct invalidation_list *list)
{
    size_t kept = 0;

    for (size_t i = 0; i < list->n; i++) {
        bool there = false;

        for (size_t k = 0; k < kept && !there; k++)
            there = same_target(&list->items[k], &list->items[i]);
        if (there)
            invalidation_clear(&list->items[i]);
        else
            list->items[kept++] = list->items[i];
    }
    list->n = kept;
}

static bool may_be_lost(const struct replay *r, uint32_t route, const struct invalidation *item)
{
    const struct config_route *c = &r->o.config->routes[route];

    for (size_t i = 0; i < c->n_invalidate; i++)
        if (item->kind != INVALIDATION_MIRROR && c->invalidate[i].index == item->rule)
            return c->invalidate[i].delivery == DELIVERY_BEST_EFFORT;
    return item->kind == INVALIDATION_MIRROR;
}

/* What was sent leaves the list. */
static void send_set(struct replay *r, struct invalidation_list *list)
{
    size_t n = list->n < SET_MAX ? list->n : SET_MAX, kept = 0;
    struct invalidation messages[SET_MAX];
    char *texts[SET_MAX];
    int64_t wall_ms = clock_wall_ms();
    uint64_t receivers = 0;

    for (size_t i = 0; i < n; i++) {
        texts[i] = invalidation_stamped(list->items[i].body, wall_ms);
        messages[i] = list->items[i];
        if (texts[i] != NULL)
            messages[i].body = texts[i];
        r->sent[i] = false;
    }
    (void)r->o.bus.ops->send(r->o.bus.self, messages, n, r->sent, &receivers, &r->why);
    for (size_t i = 0; i < n; i++)
        mem_free(texts[i]);
    for (size_t i = 0; i < list->n; i++) {
        if (i < n && r->sent[i]) {
            invalidation_clear(&list->items[i]);
            acknowledged(r);
        } else {
            list->items[kept++] = list->items[i];
        }
    }
    list->n = kept;
}

static bool all_may_be_lost(const struct replay *r, uint32_t route,
                            const struct invalidation_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        if (!may_be_lost(r, route, &list->items[i]))
            return false;
    return true;
}

/* False: somebody had to be told and Redis does not take it. */
static bool send_list(struct replay *r, uint32_t route, struct invalidation_list *list)
{
    uint32_t attempts = 0;
    bool ok;

    while (list->n > 0) {
        size_t before = list->n;

        send_set(r, list);
        attempts = list->n < before ? 0 : attempts + 1;
        if (attempts == BEST_EFFORTS && all_may_be_lost(r, route, list))
            break;
        if (attempts > 0 && !wait_more(r, attempts))
            break;
    }
    ok = all_may_be_lost(r, route, list);
    r->untold += ok ? list->n : 0;
    return ok;
}

static bool tell_all(struct replay *r, uint32_t route)
{
    const struct config_route *c = &r->o.config->routes[route];
    size_t skipped = 0;
    bool ok = true;

    if (r->o.bus.ops != NULL && (c->n_invalidate > 0 || r->list.n > 0)) {
        for (size_t i = 0; i < r->n_told; i++)
            mapping_invalidations(r->o.mappings[route], r->told[i]->record,
                                  r->told[i]->fate == REPLAY_INSERTED, &r->list, &skipped);
        drop_doubles(&r->list);
        ok = send_list(r, route, &r->list);
    }
    invalidation_list_clear(&r->list);
    for (size_t i = 0; i < r->n_told; i++) {
        if (ok)
            finish(r, r->told[i], r->told[i]->fate);
        else
            r->told[i]->fate = REPLAY_OPEN;
    }
    return ok;
}

/* --- dead letters -------------------------------------------------------------------------- */

static void bury(struct replay *r)
{
    if (r->n_dead == 0)
        return;
    for (size_t i = 0; i < r->n_dead; i++) {
        r->letters[i] = r->dead[i]->record;
        r->sent[i] = false;
    }
    (void)r->o.deadletter.ops->send(r->o.deadletter.self, r->letters, r->n_dead, r->sent, &r->why);
    for (size_t i = 0; i < r->n_dead; i++) {
        if (!r->sent[i])
            continue;
        acknowledged(r);
        finish(r, r->dead[i], REPLAY_REFUSED);
    }
}

/* --- all ----------------------------------------------------------------------------------- */

/* Up to r->cap of one route, until the fate of each is known. any: of one it is. */
static bool run_chunk(struct replay *r, struct replay_item *items, size_t n, bool *any,
                      struct err *e)
{
    uint32_t route = items[0].record->route;

    acknowledged(r);
    for (uint32_t attempts = 1;; attempts++) {
        r->n_open = r->n_told = r->n_dead = 0;
        r->why = (struct err){0};
        for (size_t i = 0; i < n; i++)
            if (items[i].fate == REPLAY_OPEN)
                r->open[r->n_open++] = &items[i];
        if (r->n_open == 0)
            return true;
        size_t before = r->n_open;
        build(r, route);
        write_all(r, route);
        bool told = tell_all(r, route);
        bury(r);
        size_t still = 0;
        for (size_t i = 0; i < n; i++)
            still += items[i].fate == REPLAY_OPEN;
        if (still < before)
            attempts = 1;
        *any = *any || still < n;
        if (!told || (still > 0 && (r->why.kind == ERR_AUTH || !wait_more(r, attempts)))) {
            *e = r->why;
            return false;
        }
    }
}

static int by_place(const void *left, const void *right)
{
    const struct record *a = ((const struct replay_item *)left)->record,
                        *b = ((const struct replay_item *)right)->record;
    int topics = strcmp(a->topic, b->topic);

    if (a->route != b->route)
        return a->route < b->route ? -1 : 1;
    if (topics != 0)
        return topics;
    if (a->partition != b->partition)
        return a->partition < b->partition ? -1 : 1;
    return (a->offset > b->offset) - (a->offset < b->offset);
}

bool replay_run(struct replay *r, struct replay_item *items, size_t n, struct err *e)
{
    bool ok = true;

    if (n > 0)
        qsort(items, n, sizeof *items, by_place);
    for (size_t from = 0; from < n;) {
        size_t len = 1;
        bool any = false;
        struct err why;

        while (len < r->cap && from + len < n &&
               items[from + len].record->route == items[from].record->route)
            len++;
        if (!run_chunk(r, &items[from], len, &any, &why)) {
            if (ok)
                *e = why;
            ok = false;
            if (!any) /* nothing gets through; else it was something about those that are left */
                return false;
        }
        from += len;
    }
    return ok;
}
