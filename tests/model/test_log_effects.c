/*
 * test_log_effects.c - the real core/log_plan.h over a database that is made up: several workers,
 * statement by statement in any order, each able to die or to sleep anywhere, answers that get
 * lost, commands that arrive much later, redelivery in other compositions, sweeps and pruning; two
 * settings of effects.attempt side by side.
 *
 * At the end every event counted once, entities are what their events in their order make of them,
 * and nothing is open.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "fakes/dice.h"
#include "fakes/log_db.h"

enum {
    WORKERS = 4,
    LANES = 6,
    PER_LANE_ENTITIES = 4,
    PER_LANE = 250, /* deliveries, repeated ones among them */
    USERS = 5,
    BATCH = 8,
    GHOSTS = 64,
    RUNS = 8,
    ATTEMPT_MS = 5000,           /* effects.attempt of one configuration, */
    LONGEST_MS = 4 * ATTEMPT_MS, /* and of another one: the processes have this or that */
    KEEP = 40,
    BACK_MS_MAX = 1000, /* docs/effects.md, "The bound, exactly": not by more than this */
};

static struct db db;
static struct dice dice;
static struct config_route route;
static struct config_counter counters[2];
static char followers[] = "followers", following[] = "following";
static struct config_pair inc[2] = {{followers, NULL}, {following, NULL}};

/* --- events --- */

struct event {
    int64_t users[2], by[2];
    int64_t entity;
    bool remove;
};
static struct event events[DB_EVENTS];
static size_t n_events;

struct lane {
    int32_t log[PER_LANE]; /* which event */
    size_t n, committed, read;
    int owner;
    unsigned epoch;
};
static struct lane lanes[LANES];

static void make_route(bool operation)
{
    static char database[] = "db", collection[] = "events", users[] = "users", name[] = "route",
                none[] = "", ledger[] = "ledger", key[] = "k", part[] = "s";
    static char *keys[] = {key}, *parts[] = {part};

    memset(&route, 0, sizeof route);
    memset(counters, 0, sizeof counters);
    route.name = name;
    route.database = database;
    route.collection = collection;
    route.dedup.fields = (struct config_list){keys, 1};
    route.dedup.conflict_field = none;
    for (int i = 0; i < 2; i++) {
        counters[i].database = database;
        counters[i].collection = users;
        counters[i].inc = (struct config_pairs){&inc[i], 1};
        counters[i].upsert = true;
    }
    route.counters = counters;
    route.n_counters = 2;
    route.sequence.field = route.sequence.template_field = none;
    route.operation.source = none;
    route.operation.ledger = ledger;
    route.operation.ledger_database = database;
    if (operation)
        route.entity.key = route.entity.fields = (struct config_list){parts, 1};
}

/* A unique index lets only one entity of a lane be there at a time: an event that would add a
 * second one removes the first instead. There: the one that is, or -1. */
static void take_turns(struct event *e, int64_t *there)
{
    if (!e->remove && *there >= 0 && *there != e->entity) {
        e->entity = *there;
        e->remove = true;
    }
    if (!e->remove)
        *there = e->entity;
    else if (*there == e->entity)
        *there = -1;
}

static void make_events(bool operation)
{
    n_events = 0;
    for (size_t l = 0; l < LANES; l++) {
        struct lane *lane = &lanes[l];
        size_t first = n_events;
        int64_t there = -1;

        *lane = (struct lane){.n = PER_LANE, .owner = (int)(l % WORKERS)};
        for (size_t i = 0; i < PER_LANE; i++) {
            if (i > 0 && dice_permille(&dice, 250)) { /* an old one again */
                lane->log[i] = (int32_t)(first + dice_below(&dice, n_events - first));
                continue;
            }
            struct event *e = &events[n_events];
            for (int k = 0; k < 2; k++) {
                e->users[k] = (int64_t)dice_below(&dice, USERS);
                e->by[k] = operation ? 1 : 1 + (int64_t)dice_below(&dice, 1000);
            }
            e->entity = (int64_t)(l * PER_LANE_ENTITIES + dice_below(&dice, PER_LANE_ENTITIES));
            e->remove = operation && dice_permille(&dice, 450);
            if (db.one_of)
                take_turns(e, &there);
            if (operation) { /* what an entity counts for is the same for all of its events */
                e->users[0] = e->entity % USERS;
                e->users[1] = e->entity / 2 % USERS;
            }
            lane->log[i] = (int32_t)n_events++;
        }
    }
}

static struct write_op op_of(int32_t index, const void *lane)
{
    const struct event *e = &events[index];
    bool operation = config_has_operation(&route);
    struct write_op op = {.filter = bson_new(), .document = bson_new(), .lane = lane};
    struct effects *f = mem_new(sizeof *f);

    BSON_APPEND_INT64(op.filter, operation ? "_id" : "k", index);
    op.effects = f;
    f->action = !operation ? EFFECT_STORE : e->remove ? EFFECT_DELETE : EFFECT_INSERT;
    if (f->action != EFFECT_DELETE)
        BSON_APPEND_INT64(op.document, "k", index);
    if (operation) {
        f->entity = BCON_NEW("s", BCON_INT64(e->entity));
        if (!e->remove)
            BSON_APPEND_INT64(op.document, "s", e->entity);
    }
    f->moves = mem_array(2, sizeof *f->moves);
    f->n_moves = 2;
    for (uint32_t k = 0; k < 2; k++) {
        f->moves[k].counter = k;
        f->moves[k].filter = BCON_NEW("_id", BCON_INT64(e->users[k]));
        f->moves[k].by = mem_array(1, sizeof *f->moves[k].by);
        f->moves[k].by[0] = e->by[k];
    }
    return op;
}

/* --- workers --- */

struct worker {
    struct log_plan *plan;
    struct log_horizon horizon;
    struct write_op ops[BATCH];
    size_t n;
    struct {
        size_t lane, at;
        unsigned epoch;
    } from[BATCH];
    bool sweeps, running, calm;
    bool lost; /* the answer to what is in the air */
    struct db_flight *flight;
    int64_t asleep_until;
    int64_t behind; /* what it takes for the server's clock is behind db.now */
    enum { ASK_NOTHING, ASK_OPEN, ASK_REGISTER, ASK_DONE } asking; /* horizon */
    int64_t read_server_ms, read_open;
};
static struct worker workers[WORKERS];
static struct db_flight *ghosts[GHOSTS];
static uint64_t clock_went_back;

static void clear_ops(struct worker *w)
{
    for (size_t i = 0; i < w->n; i++) {
        bson_destroy(w->ops[i].filter);
        bson_destroy(w->ops[i].document);
        effects_free(w->ops[i].effects);
    }
    w->n = 0;
}

static void start_worker(struct worker *w)
{
    struct log_limits limits = {.max_ops = 1 + dice_below(&dice, BATCH), .max_bytes = 1 << 20};

    *w = (struct worker){.plan = log_plan_new(&limits), .behind = -1};
    log_horizon_init(&w->horizon, dice_permille(&dice, 300) ? LONGEST_MS : ATTEMPT_MS);
}

static void let_fly(struct db_flight *f)
{
    for (size_t i = 0; i < GHOSTS; i++) {
        if (!ghosts[i]) {
            ghosts[i] = f;
            return;
        }
    }
    db_flight_free(f); /* it never arrives */
}

static void hand_on(size_t l)
{
    lanes[l].owner = (int)dice_below(&dice, WORKERS);
    lanes[l].epoch++;
    lanes[l].read = lanes[l].committed;
}

static void stop_worker(struct worker *w)
{
    if (w->flight)
        let_fly(w->flight);
    clear_ops(w);
    log_plan_free(w->plan);
    w->plan = NULL;
}

static void die(size_t i)
{
    stop_worker(&workers[i]);
    start_worker(&workers[i]);
    for (size_t l = 0; l < LANES; l++)
        if (lanes[l].owner == (int)i)
            hand_on(l);
}

static int64_t server_now(const struct worker *w)
{
    return db.now - w->behind;
}

static void take_batch(struct worker *w, size_t me)
{
    size_t max = 1 + dice_below(&dice, BATCH);

    for (size_t l = 0; l < LANES; l++) {
        struct lane *lane = &lanes[(l + me) % LANES];

        for (size_t at = lane->read; lane->owner == (int)me && at < lane->n && w->n < max; at++) {
            w->from[w->n].lane = (l + me) % LANES;
            w->from[w->n].at = at;
            w->from[w->n].epoch = lane->epoch;
            w->ops[w->n++] = op_of(lane->log[at], lane);
        }
    }
}

/* What has been open for long; its operations say no more than what stands there. */
static void take_sweep(struct worker *w)
{
    size_t start = dice_below(&dice, n_events);

    for (size_t i = 0; i < n_events && w->n < BATCH; i++) {
        int64_t e = (int64_t)((start + i) % n_events);
        bson_t *effects = db_effects(&db, e);

        if (!effects)
            continue;
        if (db_number(effects, "at") < db.now - 2 * ATTEMPT_MS) {
            struct write_op op = {.filter = bson_new(), .document = bson_new()};

            CHECK(log_event_filter(&route, db.events[e], op.filter), "its key is there");
            w->ops[w->n++] = op;
        }
        bson_destroy(effects);
    }
}

/* One command at a time, and any time may pass in between. False: one was needed. */
static bool is_registered(struct worker *w)
{
    if (!w->asking && log_horizon_due(&w->horizon, db.now)) {
        w->read_server_ms = server_now(w);
        w->asking = ASK_OPEN;
        return false;
    }
    if (w->asking == ASK_OPEN) {
        w->read_open = db_oldest_open(&db);
        w->asking = ASK_REGISTER;
        return false;
    }
    if (w->asking == ASK_REGISTER) {
        db_register(&db, &w->horizon, w->read_server_ms);
        w->asking = ASK_DONE;
        return false;
    }
    if (w->asking == ASK_DONE)
        log_horizon_read(&w->horizon, w->read_server_ms, db.now, w->read_open);
    w->asking = ASK_NOTHING;
    if (log_horizon_is_registered(&w->horizon, server_now(w)))
        return true;
    db_register(&db, &w->horizon, server_now(w));
    return false;
}

static void begin(struct worker *w, size_t me)
{
    struct log_rules rules = {.route = &route, .attempt_ms = w->horizon.attempt_ms, .keep = KEEP};

    if (w->behind < 0 || dice_permille(&dice, 400)) /* asked for the clock now, or some time ago */
        w->behind = db.back + (int64_t)dice_below(&dice, 300);
    if (!is_registered(w))
        return;
    clear_ops(w);
    w->sweeps = dice_permille(&dice, 100);
    if (w->sweeps)
        take_sweep(w);
    else
        take_batch(w, me);
    if (w->n == 0)
        return;
    rules.now_ms = server_now(w);
    rules.prune_ms = w->horizon.usable_ms;
    rules.random = dice_next(&dice);
    rules.complete_only = w->sweeps;
    log_plan_begin(w->plan, w->ops, w->n, &rules);
    w->running = true;
}

static void finish(struct worker *w)
{
    const struct outcome *results = log_plan_results(w->plan);

    w->running = false;
    CHECK(log_plan_done(w->plan).failed == 0, "%s", log_plan_done(w->plan).failed_text);
    for (size_t i = 0; i < w->n && !w->sweeps; i++) {
        struct lane *lane = &lanes[w->from[i].lane];
        bool fine = results[i].fate == FATE_INSERTED || results[i].fate == FATE_DUPLICATE;

        CHECK(results[i].fate != FATE_NEVER, "%s", results[i].text);
        CHECK(!fine || db.events[lane->log[w->from[i].at]], "what is settled is stored: %d",
              results[i].fate);
        if (lane->epoch != w->from[i].epoch)
            continue;
        if (fine && lane->read == w->from[i].at)
            lane->read++;
        if (dice_permille(&dice, 300))
            lane->committed = lane->read;
    }
}

static void answer(struct worker *w)
{
    if (w->lost) {
        let_fly(w->flight);
        log_plan_answer(w->plan, &(struct outcome_call){.fault = CALL_NETWORK}, NULL);
    } else {
        db_answer(w->plan, w->flight);
        db_flight_free(w->flight);
    }
    w->flight = NULL;
}

/* Its lanes are given to others, unless that takes too long. */
static void fall_asleep(struct worker *w, size_t me, int64_t ms)
{
    w->asleep_until = db.now + ms;
    for (size_t l = 0; l < LANES; l++)
        if (lanes[l].owner == (int)me && dice_permille(&dice, 800))
            hand_on(l);
}

/* Just what must not be done later: behind the moment from which those with the shorter attempt
 * could forget its ids, and before it is over, or behind that. */
static int64_t long_sleep(void)
{
    return 2 * (ATTEMPT_MS + LOG_MARGIN_MS) + (int64_t)dice_below(&dice, LONGEST_MS);
}

static void step_worker(size_t i, bool calm)
{
    struct worker *w = &workers[i];
    struct log_command c;

    if (w->asleep_until > db.now)
        return;
    if (!calm && dice_permille(&dice, 2)) {
        fall_asleep(w, i, (int64_t)dice_below(&dice, 4 * ATTEMPT_MS));
        return;
    }
    if (!calm && w->flight && w->flight->kind == LOG_COUNT && dice_permille(&dice, 30)) {
        fall_asleep(w, i, long_sleep());
        return;
    }
    if (!calm && dice_permille(&dice, 2)) {
        die(i);
    } else if (!w->running) {
        begin(w, i);
    } else if (w->flight) {
        if (w->lost ? dice_permille(&dice, 300) : !db_step(&db, w->flight))
            answer(w);
        else if (w->lost)
            (void)db_step(&db, w->flight);
    } else if (!log_plan_next(w->plan, server_now(w), &c)) {
        finish(w);
    } else if (c.kind == LOG_WAIT) {
        log_plan_answer(w->plan, &(struct outcome_call){.fault = CALL_FINE}, NULL);
    } else {
        w->flight = db_send(&db, &c);
        w->lost = !calm && dice_permille(&dice, 20);
    }
}

static void step_ghost(void)
{
    size_t i = dice_below(&dice, GHOSTS);

    if (!ghosts[i] || !dice_permille(&dice, 200))
        return;
    (void)db_step(&db, ghosts[i]);
    if (db_is_over(ghosts[i])) {
        db_flight_free(ghosts[i]);
        ghosts[i] = NULL;
    }
}

static bool all_read(void)
{
    for (size_t l = 0; l < LANES; l++)
        if (lanes[l].read < lanes[l].n)
            return false;
    return true;
}

static bool all_done(void)
{
    if (!all_read())
        return false;
    for (size_t i = 0; i < WORKERS; i++)
        if (workers[i].running)
            return false;
    return db_oldest_open(&db) == INT64_MAX;
}

/* Any process prunes whatever it touches, as far as it knows. */
static void prune(void)
{
    const struct worker *w = &workers[dice_below(&dice, WORKERS)];
    struct db_flight f = {.before_ms = w->horizon.usable_ms};
    struct db_statement s = {.key = (int64_t)dice_below(&dice, USERS)};

    if (w->asleep_until <= db.now)
        db_prune(&db, &f, &s);
}

/* Somebody sets the clock, or another member is primary. */
static void set_clock(void)
{
    int64_t was = db.back;

    db.back = dice_permille(&dice, 500) ? BACK_MS_MAX : (int64_t)dice_below(&dice, BACK_MS_MAX);
    clock_went_back += db.back > was;
}

static void run(void)
{
    for (size_t i = 0; i < WORKERS; i++)
        start_worker(&workers[i]);
    size_t step = 0;
    for (; step < 60000 && (step % 64 != 0 || !all_read()); step++) {
        db.now += dice_permille(&dice, 1) ? (int64_t)dice_below(&dice, 2 * ATTEMPT_MS)
                                          : (int64_t)dice_below(&dice, 10);
        step_worker(dice_below(&dice, WORKERS), false);
        step_ghost();
        if (dice_permille(&dice, 50))
            prune();
        if (dice_permille(&dice, 1))
            hand_on(dice_below(&dice, LANES));
        if (dice_permille(&dice, 3))
            set_clock();
    }
    for (step = 0; step % 64 != 0 || !all_done(); step++) {
        CHECK(step < 2000000, "it comes to an end");
        db.now += (int64_t)dice_below(&dice, 20);
        step_worker(dice_below(&dice, WORKERS), true);
        step_ghost();
        if (dice_permille(&dice, 50))
            prune();
    }
    for (size_t i = 0; i < 20000; i++) /* what is still in the air arrives at last */
        step_ghost();
}

static void clean_up(void)
{
    for (size_t i = 0; i < WORKERS; i++)
        stop_worker(&workers[i]);
    for (size_t i = 0; i < GHOSTS; i++) {
        db_flight_free(ghosts[i]);
        ghosts[i] = NULL;
    }
    db_clear(&db);
}

/* --- the truth --- */

static void check_counters(int64_t truth[USERS][2])
{
    for (size_t u = 0; u < USERS; u++)
        for (size_t k = 0; k < 2; k++)
            CHECK(db.counters[u].value[k] == truth[u][k],
                  "user %zu field %zu: %" PRId64 " instead of %" PRId64, u, k,
                  db.counters[u].value[k], truth[u][k]);
}

static void one_run_of_counters(void)
{
    int64_t truth[USERS][2] = {{0}};

    db_clear(&db);
    db.now = 1000000;
    db.route = &route;
    make_route(false);
    make_events(false);
    run();
    CHECK(db.twice == 0, "%zu ids are counted twice", db.twice);
    for (size_t e = 0; e < n_events; e++) {
        CHECK(db.events[e], "event %zu is stored", e);
        CHECK(!bson_has_field(db.events[e], "_effects"), "event %zu is closed", e);
        for (int k = 0; k < 2; k++)
            truth[events[e].users[k]][k] += events[e].by[k];
    }
    check_counters(truth);
    clean_up();
}

static void one_run_of_operations(size_t one_of)
{
    int64_t truth[USERS][2] = {{0}};
    bool there[DB_ENTITIES] = {false}, seen[DB_EVENTS] = {false};
    int32_t of[DB_ENTITIES] = {0};

    db_clear(&db);
    db.now = 1000000;
    db.route = &route;
    db.one_of = one_of;
    make_route(true);
    make_events(true);
    run();
    CHECK(db.twice == 0, "%zu ids are counted twice", db.twice);
    for (size_t l = 0; l < LANES; l++) {
        for (size_t i = 0; i < lanes[l].n; i++) {
            int32_t e = lanes[l].log[i];
            int64_t entity = events[e].entity;

            if (seen[e] || !(seen[e] = true) || there[entity] == !events[e].remove)
                continue;
            there[entity] = !events[e].remove;
            of[entity] = e;
            for (int k = 0; k < 2; k++)
                truth[events[e].users[k]][k] += there[entity] ? 1 : -1;
        }
    }
    for (size_t e = 0; e < n_events; e++)
        CHECK(db.events[e] && !bson_has_field(db.events[e], "_effects"), "event %zu is closed: %s",
              e, db.events[e] ? bson_as_relaxed_extended_json(db.events[e], NULL) : "not there");
    for (size_t s = 0; s < LANES * PER_LANE_ENTITIES; s++) {
        const struct db_entity *entity = &db.entities[s];

        CHECK(entity->exists == there[s], "entity %zu: %d", s, entity->exists);
        CHECK(!there[s] || entity->of == of[s], "entity %zu is of %d, not of %d", s, entity->of,
              of[s]);
        CHECK(!entity->has_by && !entity->has_removed, "entity %zu is left clean", s);
    }
    check_counters(truth);
    clean_up();
}

static void counters_equal_the_truth(void **state)
{
    (void)state;
    dice = dice_seed("counters");
    for (int i = 0; i < RUNS; i++)
        one_run_of_counters();
    assert_true(clock_went_back > 20);
}

static void entities_and_their_counters_equal_the_truth(void **state)
{
    (void)state;
    dice = dice_seed("operations");
    for (int i = 0; i < RUNS; i++)
        one_run_of_operations(0);
}

/* What is unique goes from one entity to the next within a lane, and nobody is refused. */
static void what_is_unique_goes_from_one_to_the_next(void **state)
{
    (void)state;
    dice = dice_seed("unique");
    for (int i = 0; i < RUNS / 2; i++)
        one_run_of_operations(PER_LANE_ENTITIES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_equal_the_truth),
        cmocka_unit_test(entities_and_their_counters_equal_the_truth),
        cmocka_unit_test(what_is_unique_goes_from_one_to_the_next),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
