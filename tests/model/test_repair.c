/*
 * The set of core/repair.h loses and repeats no increment, whatever a worker does between any two
 * of its steps: every interleaving is run through, step by step, on a database that is a few
 * numbers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/log_doc.h"
#include "core/repair.h"

enum { EVENTS = 3, BEFORE = 2, CHOICES_MAX = 400 };

/* ---- all runs, one after another ---- */

struct choices {
    uint8_t taken[CHOICES_MAX], of[CHOICES_MAX];
    size_t at, n;
};

static unsigned choose(struct choices *c, unsigned of)
{
    assert_true(c->at < CHOICES_MAX);
    if (c->at == c->n) {
        c->taken[c->n] = 0;
        c->of[c->n++] = (uint8_t)of;
    }
    assert_int_equal(c->of[c->at], of);
    return c->taken[c->at++];
}

/* The next run; false: that was the last. */
static bool next_run(struct choices *c)
{
    c->at = 0;
    while (c->n > 0 && c->taken[c->n - 1] + 1 == c->of[c->n - 1])
        c->n--;
    if (c->n > 0)
        c->taken[c->n - 1]++;
    return c->n > 0;
}

/* ---- the database ---- */

enum event_state { EVENT_ABSENT, EVENT_OPEN, EVENT_CLOSED, EVENT_FAILED };

struct data {
    int before; /* closed documents, or entities, from before */
    enum event_state events[EVENTS];
    bool counter;         /* its document is there */
    bool has_version;     /* false: somebody else has made it */
    int64_t n, version;   /* of the counter */
    bool applied[EVENTS]; /* ids in it */
    /* That of the first two events. */
    struct {
        bool there;
        int by, removed_by; /* events; -1: none */
    } entity;
};

struct world {
    struct data now, snapshot;
    bool operation, repair_locks, worker_locks, waits, committed_unseen;
    struct data pending;       /* what the repair has set and not committed */
    int stamp, snapshot_stamp; /* of the counter document: one more per commit to it */
    int step[2];               /* of the two workers */
    bool prunes;
    bool opened[EVENTS]; /* what the first OPEN told */
    bool second_open;
    struct choices choices;
    struct config *config;
    struct reconcile_plan plan;
};

static struct config *config_of(bool operation, bool log)
{
    static char db[] = "db", c[] = "c", k[] = "k", ledger[] = "l", none[] = "", e[] = "e",
                x[] = "x", u[] = "u", id[] = "_id", n[] = "n", one[] = "1";
    static char *event[] = {e}, *entity[] = {x, u};
    static struct config_pair filter = {.name = id, .value = u}, inc = {.name = n, .value = one};
    static struct config_counter counter;
    static struct config_route route;
    static struct config config;

    counter = (struct config_counter){.collection = k,
                                      .database = db,
                                      .filter = {.items = &filter, .n = 1},
                                      .inc = {.items = &inc, .n = 1},
                                      .upsert = true,
                                      .mirror = none};
    route = (struct config_route){
        .name = c,
        .database = db,
        .collection = c,
        .under = none,
        .source_fields = none,
        .effects = log ? EFFECTS_LOG : EFFECTS_AUTO,
        .dedup = {.key = {.items = event, .n = 1}, .fields = {.items = event, .n = 1}},
        .counters = &counter,
        .n_counters = 1};
    if (operation) {
        route.entity.key = route.entity.fields = (struct config_list){.items = entity, .n = 2};
        route.operation.ledger = ledger;
        route.operation.ledger_database = db;
    }
    config = (struct config){.routes = &route, .n_routes = 1};
    return &config;
}

static void event_id(const struct world *w, int event, struct log_id *id)
{
    bson_t *filter =
        w->operation ? BCON_NEW("_id", BCON_INT64(event)) : BCON_NEW("e", BCON_INT64(event));

    log_event_id(&w->config->routes[0], filter, id);
    bson_destroy(filter);
}

static void append_event_id(const struct world *w, bson_t *to, const char *name, int event)
{
    struct log_id id;

    event_id(w, event, &id);
    BSON_APPEND_BINARY(to, name, BSON_SUBTYPE_BINARY, id.bytes, sizeof id.bytes);
}

static bson_t *counter_document(const struct world *w, const struct data *d)
{
    bson_t *out = BCON_NEW("_id", "u", "n", BCON_INT64(d->n)), list, entry;
    char number[16];
    int k = 0;

    if (!d->has_version)
        return out;
    BSON_APPEND_INT64(out, "_version", d->version);
    BSON_APPEND_ARRAY_BEGIN(out, "_applied", &list);
    for (int i = 0; i < EVENTS; i++) {
        if (!d->applied[i])
            continue;
        (void)snprintf(number, sizeof number, "%d", k++);
        BSON_APPEND_DOCUMENT_BEGIN(&list, number, &entry);
        append_event_id(w, &entry, "i", i);
        BSON_APPEND_DATE_TIME(&entry, "t", 1);
        bson_append_document_end(&list, &entry);
    }
    bson_append_array_end(out, &list);
    return out;
}

/* ---- a worker without transactions: one step of its way; false: it can't move, or is through ----
 */

static bool count(struct world *w, int event, int by)
{
    struct data *d = &w->now;

    if (!d->counter) { /* MAKE */
        d->counter = d->has_version = true;
        d->n = d->version = 0;
        return false;
    }
    if (!d->applied[event]) {
        d->n += by;
        d->version++;
        d->has_version = d->applied[event] = true;
    }
    return true;
}

static void prune(struct world *w)
{
    for (int i = 0; i < EVENTS; i++)
        if (w->now.events[i] == EVENT_CLOSED)
            w->now.applied[i] = false;
}

/* WRITE COUNT CLOSE PRUNE of one event. */
static bool plain_step(struct world *w, int *step, int event)
{
    switch (*step) {
    case 0:
        w->now.events[event] = EVENT_OPEN;
        break;
    case 1:
        if (!count(w, event, 1))
            return true;
        break;
    case 2:
        w->now.events[event] = EVENT_CLOSED;
        break;
    case 3:
        prune(w);
        break;
    default:
        return false;
    }
    ++*step;
    return true;
}

/* WRITE ADD COUNT CLEAN CLOSE */
static bool insert_step(struct world *w, int step, int event)
{
    switch (step) {
    case 0:
        w->now.events[event] = EVENT_OPEN;
        break;
    case 1:
        w->now.entity.there = true;
        w->now.entity.by = event;
        w->now.entity.removed_by = -1;
        break;
    case 2:
        return count(w, event, 1);
    case 3:
        w->now.entity.by = -1;
        break;
    default:
        w->now.events[event] = EVENT_CLOSED;
        prune(w);
        break;
    }
    return true;
}

/* WRITE MARK COUNT REMOVE CLOSE */
static bool remove_step(struct world *w, int step, int event)
{
    switch (step) {
    case 0:
        w->now.events[event] = EVENT_OPEN;
        break;
    case 1:
        w->now.entity.removed_by = event;
        break;
    case 2:
        return count(w, event, -1);
    case 3:
        w->now.entity.there = false;
        break;
    default:
        w->now.events[event] = EVENT_CLOSED;
        prune(w);
        break;
    }
    return true;
}

/* An entity is added and removed. */
static bool operation_step(struct world *w)
{
    int *step = &w->step[0];

    if (*step < 5 ? insert_step(w, *step, 0) : remove_step(w, *step - 5, 1))
        ++*step;
    return true;
}

/* ---- a worker with transactions ---- */

/* COUNT, and COMMIT of it together with the document. */
static bool transaction_step(struct world *w, int worker)
{
    int *step = &w->step[worker];

    switch (*step) {
    case 0: /* a WriteConflict sends it back to its start */
        if (w->repair_locks || w->worker_locks)
            return false;
        w->worker_locks = true;
        break;
    case 1:
        w->now.events[worker] = EVENT_CLOSED;
        w->now.n = (w->now.counter ? w->now.n : 0) + 1;
        w->now.counter = true;
        w->worker_locks = w->waits = false;
        w->stamp++;
        break;
    default:
        return false;
    }
    ++*step;
    return true;
}

static bool worker_step(struct world *w, enum repair_way way, int worker)
{
    if (way == REPAIR_SNAPSHOT)
        return transaction_step(w, worker);
    return w->operation ? operation_step(w) : plain_step(w, &w->step[worker], worker);
}

/* ---- what the repair asks ---- */

static bson_t *group(bool apart, int id, int64_t sum)
{
    bson_t *g = bson_new();

    if (apart)
        BSON_APPEND_INT32(g, "_id", id);
    else
        BSON_APPEND_NULL(g, "_id");
    BSON_APPEND_INT64(g, "s0", sum);
    return g;
}

static void give(struct repair *r, bson_t *g)
{
    repair_counted(r, 0, g);
    bson_destroy(g);
}

static void tell_events(const struct data *d, struct repair *r)
{
    int64_t closed = d->before;

    for (int i = 0; i < EVENTS; i++) {
        if (d->events[i] == EVENT_OPEN) {
            bson_t *g = group(true, i, 1), e;

            BSON_APPEND_DOCUMENT_BEGIN(g, "e", &e);
            BSON_APPEND_INT64(&e, "e", i);
            bson_append_document_end(g, &e);
            give(r, g);
        } else if (d->events[i] != EVENT_ABSENT) {
            closed++;
        }
    }
    give(r, group(false, 0, closed));
}

/* Apart are those that are marked, and those that an event of the first OPEN has added. */
static void tell_entities(const struct world *w, const struct data *d, struct repair *r)
{
    int by = d->entity.by, removed_by = d->entity.removed_by;
    bool apart = removed_by >= 0 || (by >= 0 && w->opened[by]);

    if (d->entity.there && apart) {
        bson_t *g = group(true, 1, 1);

        if (by >= 0)
            append_event_id(w, g, "by", by);
        if (removed_by >= 0)
            append_event_id(w, g, "rm", removed_by);
        give(r, g);
    }
    give(r, group(false, 0, d->before + (d->entity.there && !apart)));
}

static void tell_opened(struct world *w, const struct data *d, struct repair *r)
{
    for (int i = 0; i < EVENTS; i++) {
        bool open = d->events[i] == EVENT_OPEN;

        if (!w->second_open)
            w->opened[i] = open;
        if (open) {
            bson_t *event = BCON_NEW("_id", BCON_INT64(i));

            repair_opened(r, event);
            bson_destroy(event);
        }
    }
    w->second_open = true;
}

/* Does the counter match a filter of {$eq} and {$exists: false}? */
static bool matches(const struct world *w, const struct data *d, const bson_t *filter)
{
    bson_t *document = counter_document(w, d);
    bson_iter_t it, op, found;
    bool ok = d->counter;

    assert_true(bson_iter_init(&it, filter));
    while (bson_iter_next(&it)) {
        assert_true(bson_iter_recurse(&it, &op) && bson_iter_next(&op));
        bool there = bson_iter_init_find(&found, document, bson_iter_key(&it));

        if (strcmp(bson_iter_key(&op), "$exists") == 0)
            ok = ok && there == bson_iter_bool(&op);
        else if (BSON_ITER_HOLDS_INT64(&op))
            ok = ok && there && bson_iter_int64(&found) == bson_iter_int64(&op);
        else
            ok = ok && there; /* the key */
    }
    bson_destroy(document);
    return ok;
}

static void update(struct data *d, const bson_t *change, bool makes)
{
    bson_iter_t it, found;

    assert_true(bson_iter_init(&it, change));
    if (makes)
        d->counter = true, d->version = 0;
    if (bson_iter_find_descendant(&it, makes ? "$setOnInsert.n" : "$set.n", &found))
        d->n = bson_iter_int64(&found);
    assert_true(bson_iter_init(&it, change));
    if (bson_iter_find_descendant(&it, makes ? "$setOnInsert._version" : "$inc._version", &found))
        d->version += 1, d->has_version = true;
}

static enum repair_answer set(struct world *w, struct repair *r, enum repair_way way)
{
    bson_t filter = BSON_INITIALIZER, change = BSON_INITIALIZER;
    bool makes = repair_makes(r), done;

    repair_filter(r, &filter);
    repair_update(r, &change);
    if (way == REPAIR_SNAPSHOT) {
        done = !w->worker_locks && w->stamp == w->snapshot_stamp;
        w->repair_locks = done;
        w->waits = w->worker_locks; /* until that one is through: else there is no end of runs */
        w->pending = w->snapshot;
        if (done)
            update(&w->pending, &change, makes);
    } else {
        done = matches(w, &w->now, &filter) != makes;
        if (done)
            update(&w->now, &change, makes);
    }
    bson_destroy(&filter);
    bson_destroy(&change);
    return done ? REPAIR_DONE : REPAIR_MISSED;
}

static enum repair_answer look(struct world *w, struct repair *r)
{
    bson_t filter = BSON_INITIALIZER;

    repair_filter(r, &filter);
    bool there = matches(w, &w->now, &filter);
    bson_destroy(&filter);
    return there == repair_found_document(r) ? REPAIR_DONE : REPAIR_MISSED;
}

/* Nobody may say whether it was committed: it was, or not. */
static enum repair_answer commit(struct world *w)
{
    unsigned how = w->committed_unseen ? 0 : choose(&w->choices, 3);

    w->committed_unseen = w->committed_unseen || how > 0;
    if (how < 2) {
        w->now.n = w->pending.n;
        w->now.counter = w->pending.counter;
        w->stamp++;
    }
    w->repair_locks = false;
    return how == 0 ? REPAIR_DONE : REPAIR_MISSED;
}

/* One step of the repair; false: it is through. */
static bool repair_step(struct world *w, struct repair *r, enum repair_way way)
{
    const struct data *d = way == REPAIR_SNAPSHOT ? &w->snapshot : &w->now;
    enum repair_answer answer = REPAIR_DONE;
    size_t source;

    switch (repair_next(r, &source)) {
    case REPAIR_END:
        return false;
    case REPAIR_BEGIN:
        w->snapshot = w->now;
        w->snapshot_stamp = w->stamp;
        break;
    case REPAIR_READ:
        w->second_open = false;
        if (d->counter) {
            bson_t *document = counter_document(w, d);

            repair_counter(r, document);
            bson_destroy(document);
        }
        break;
    case REPAIR_OPEN:
        tell_opened(w, d, r);
        break;
    case REPAIR_COUNT:
        if (w->operation)
            tell_entities(w, d, r);
        else
            tell_events(d, r);
        break;
    case REPAIR_SET:
        answer = set(w, r, way);
        break;
    case REPAIR_LOOK:
        answer = look(w, r);
        break;
    case REPAIR_COMMIT:
        answer = commit(w);
        break;
    case REPAIR_ABORT:
        w->repair_locks = false;
        break;
    case REPAIR_WAIT:
        break;
    }
    repair_answer(r, answer);
    return true;
}

/* ---- runs ---- */

struct scenario {
    enum repair_way way;
    bool operation, apply;
    int workers;
    bool counter;   /* there at the start */
    bool versioned; /* by a worker; else somebody else has made it */
    int64_t damage; /* what it has too much */
    int from, to;   /* of an operation: the worker's steps; 5 begins the removal */
};

static int64_t truth(const struct world *w)
{
    int64_t n = w->now.before;

    for (int i = 0; i < EVENTS; i++)
        n += !w->operation && w->now.events[i] != EVENT_ABSENT;
    return n + w->now.entity.there;
}

static void begin(struct world *w, const struct scenario *s)
{
    w->now = (struct data){.before = s->counter ? BEFORE : 0,
                           .counter = s->counter,
                           .has_version = s->versioned,
                           .version = 5,
                           .n = BEFORE + s->damage};
    w->now.entity.by = w->now.entity.removed_by = -1;
    w->step[0] = w->step[1] = 0;
    if (s->operation) { /* as far as it is */
        for (int i = 0; i < s->from; i++)
            MUST(operation_step(w));
        w->now.n = w->now.before + w->now.entity.there + s->damage;
    }
    w->repair_locks = w->worker_locks = w->waits = w->committed_unseen = false;
    w->stamp = 0;
}

/* How many steps a worker takes. With two of them nothing is pruned, or there would be too many
 * runs. */
static int steps_of(const struct scenario *s)
{
    if (s->way == REPAIR_SNAPSHOT)
        return 2;
    if (!s->operation)
        return s->workers > 1 ? 3 : 4;
    return s->to;
}

/* Nobody sees whether something is between this step and the one before. */
static bool is_unseen(struct repair *r, enum repair_way way)
{
    size_t source;
    enum repair_step step = repair_next(r, &source);

    return step == REPAIR_WAIT || step == REPAIR_ABORT ||
           (way == REPAIR_SNAPSHOT && (step == REPAIR_READ || step == REPAIR_COUNT));
}

static bool can_move(const struct world *w, const struct scenario *s, unsigned who, bool through)
{
    if (who == 0)
        return !through && !w->waits;
    return (int)who <= s->workers && w->step[who - 1] < steps_of(s) &&
           !(s->way == REPAIR_SNAPSHOT && w->step[who - 1] == 0 &&
             (w->repair_locks || w->worker_locks));
}

/* Whoever can move may be next. */
static void run_once(struct world *w, const struct scenario *s, struct repair *r)
{
    bool through = false;

    for (;;) {
        unsigned who[3], n = 0, next;

        for (unsigned i = 0; i < 3; i++)
            if (can_move(w, s, i, through))
                who[n++] = i;
        if (n == 0)
            return;
        next = n == 1 ? who[0] : who[choose(&w->choices, n)];
        if (next > 0) {
            (void)worker_step(w, s->way, (int)next - 1);
            continue;
        }
        through = !repair_step(w, r, s->way);
        while (!through && is_unseen(r, s->way))
            (void)repair_step(w, r, s->way);
    }
}

static uint64_t run_all(const struct scenario *s)
{
    struct world w = {.operation = s->operation,
                      .config = config_of(s->operation, s->way == REPAIR_COMPARE)};
    bson_t *key = BCON_NEW("_id", "u");
    uint64_t runs = 0;

    reconcile_plan_init(&w.plan, w.config);
    assert_int_equal(w.plan.n, 1);
    assert_null(w.plan.families[0].unable);
    do {
        const struct repair_column *columns;
        struct repair *r = repair_new(&w.plan.families[0], w.config, s->way, s->apply, 0);

        begin(&w, s);
        repair_begin(r, key);
        run_once(&w, s, r);
        enum repair_end end = repair_result(r, &columns);
        int64_t expected = truth(&w) + (s->apply ? 0 : s->damage);
        if (w.now.n != expected && (w.now.counter || expected != 0))
            fail_msg("run %llu: the counter is %lld and should be %lld", (unsigned long long)runs,
                     (long long)w.now.n, (long long)expected);
        /* A right one is never told to be wrong, and the other way round. */
        if (end != (s->damage == 0 ? REPAIR_SAME : s->apply ? REPAIR_REPAIRED : REPAIR_DIFFERS))
            fail_msg("run %llu ends with %d", (unsigned long long)runs, (int)end);
        repair_free(r);
        runs++;
    } while (next_run(&w.choices));
    reconcile_plan_clear(&w.plan);
    bson_destroy(key);
    return runs;
}

static void run_kinds(struct scenario s, uint64_t at_least)
{
    uint64_t runs = 0;

    for (int damage = -1; damage <= 1; damage++)
        for (int apply = 0; apply < 2; apply++) {
            s.damage = damage;
            s.apply = apply == 1;
            runs += run_all(&s);
        }
    print_message("%llu runs\n", (unsigned long long)runs);
    assert_true(runs >= at_least);
}

static void test_compare(void **state)
{
    (void)state;
    run_kinds(
        (struct scenario){.way = REPAIR_COMPARE, .workers = 1, .counter = true, .versioned = true},
        100);
    run_kinds((struct scenario){.way = REPAIR_COMPARE, .workers = 1, .counter = true}, 100);
    run_kinds(
        (struct scenario){.way = REPAIR_COMPARE, .workers = 2, .counter = true, .versioned = true},
        10000);
}

/* Workers make the counter while it is looked for. */
static void test_compare_without_a_document(void **state)
{
    const struct scenario s = {.way = REPAIR_COMPARE, .workers = 2, .apply = true};

    (void)state;
    assert_true(run_all(&s) > 1000);
}

static void test_compare_operations(void **state)
{
    /* Inserted; removed; the end of one and the begin of the other. */
    static const int parts[][2] = {{0, 5}, {5, 10}, {3, 9}};

    (void)state;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        run_kinds((struct scenario){.way = REPAIR_COMPARE,
                                    .operation = true,
                                    .workers = 1,
                                    .counter = true,
                                    .versioned = true,
                                    .from = parts[i][0],
                                    .to = parts[i][1]},
                  1000);
}

static void test_snapshot(void **state)
{
    (void)state;
    run_kinds((struct scenario){.way = REPAIR_SNAPSHOT, .workers = 2, .counter = true}, 1000);
    const struct scenario s = {.way = REPAIR_SNAPSHOT, .workers = 2, .apply = true};
    assert_true(run_all(&s) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_compare_without_a_document),
        cmocka_unit_test(test_compare_operations),
        cmocka_unit_test(test_snapshot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
