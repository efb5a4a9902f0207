/*
 * The real txn_plan over a fake database: several workers, one command of one of them after the
 * other, in an order that dice decide. Answers are lost, transactions aborted, lanes handed over in
 * the middle, workers sleep and go on late with what isn't theirs any more, batches come again in
 * other compositions, events come again long after. In the end each event has moved everything
 * exactly once.
 *
 * IDEMSINK_SEED repeats a run; IDEMSINK_SOAK_SECONDS sets how long (6).
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/mem.h"
#include "core/mapping.h"
#include "fakes/check.h"
#include "fakes/fake_txn_db.h"

enum {
    WORKERS = 4,
    MAX_EVENTS = 160,
    MAX_LANES = 6,
    MAX_LOG = 3 * MAX_EVENTS,
    MAX_BATCH = 48,
    MAX_NUMBERS = 1024,
    CALM_STEPS = 400000, /* by then everything is settled, or somebody hangs */
};

struct lane {
    uint32_t log[MAX_LOG]; /* events, repetitions among them */
    size_t n, settled;     /* what is settled of it */
    uint32_t epoch;        /* counts its owners */
    int owner;
    int64_t fence;
};

/* What is on its way. */
struct flight {
    uint32_t lane, epoch;
    size_t at; /* in the lane's log */
};

struct worker {
    struct txn_plan *plan;
    struct write_op ops[MAX_BATCH];
    struct flight flights[MAX_BATCH];
    size_t n;
    bool busy;
    int64_t sleeps_until;
};

struct world {
    struct dice dice;
    struct fake_db *db;
    struct fake_db_shape shape;
    struct fake_db_event events[MAX_EVENTS];
    struct lane lanes[MAX_LANES];
    struct worker workers[WORKERS];
    struct config_route route;
    struct config_counter counters[FAKE_DB_COUNTERS];
    struct config_pair inc[FAKE_DB_FIELDS];
    unsigned inserted[MAX_EVENTS], refused[MAX_EVENTS];
    int64_t now;
    bool calm;
    uint64_t batches, late, conflicts, transactions, missing;
};

static char name_a[] = "a", name_b[] = "b", name_d[] = "d", name_seq[] = "seq", name_none[] = "";

/* --- the world --- */

static void make_event(struct world *w, uint32_t id)
{
    struct fake_db_event *e = &w->events[id];
    struct dice *d = &w->dice;

    *e = (struct fake_db_event){.entity = (uint32_t)dice_below(d, w->shape.entities),
                                .group = (uint32_t)dice_below(d, w->shape.groups),
                                .mail =
                                    dice_permille(d, 60) ? (uint32_t)dice_below(d, w->shape.n) : id,
                                .by = (int64_t)dice_below(d, 1000) - 300,
                                .invalid = dice_permille(d, 30)};
    for (int c = 0; c < FAKE_DB_COUNTERS; c++)
        e->account[c] = (uint32_t)dice_below(d, w->shape.accounts);
    if (dice_permille(d, 30)) /* two of these don't fit into one counter */
        e->by = INT64_MAX - 1000;
    /* One lane has all of an entity: the order within it counts. */
    e->lane =
        w->shape.operation ? e->entity % w->shape.lanes : (uint32_t)dice_below(d, w->shape.lanes);
    e->remove = w->shape.operation && dice_permille(d, 450);
}

/* Each event in its lane, some again right behind, some again much later. */
static void fill_lanes(struct world *w)
{
    for (uint32_t id = 0; id < w->shape.n; id++) {
        struct lane *lane = &w->lanes[w->events[id].lane];

        lane->log[lane->n++] = id;
        if (dice_permille(&w->dice, 200))
            lane->log[lane->n++] = id;
        if (dice_permille(&w->dice, 300)) {
            uint32_t old = lane->log[dice_below(&w->dice, lane->n)];
            lane->log[lane->n++] = old;
        }
    }
    for (uint32_t l = 0; l < w->shape.lanes; l++)
        w->lanes[l].owner = (int)dice_below(&w->dice, WORKERS);
}

static void make_route(struct world *w)
{
    w->inc[0].name = w->inc[1].name = name_seq;
    for (int c = 0; c < FAKE_DB_COUNTERS; c++)
        w->counters[c] = (struct config_counter){.collection = c ? name_b : name_a,
                                                 .database = name_d,
                                                 .inc = {w->inc, c ? 1 : 2},
                                                 .upsert = c == 0};
    w->route = (struct config_route){.database = name_d,
                                     .collection = name_d,
                                     .counters = w->counters,
                                     .n_counters = FAKE_DB_COUNTERS};
    w->route.lock.fence = w->route.lock.fence_database = name_d;
    w->route.entity.key.n = w->shape.operation;
    if (w->shape.sequence)
        w->route.sequence = (struct config_sequence){.field = name_seq,
                                                     .template_field = name_none,
                                                     .mode = w->shape.mode,
                                                     .start = w->shape.start,
                                                     .collection = name_b,
                                                     .database = name_d};
}

static struct world *world_new(struct dice *dice)
{
    struct world *w = mem_new(sizeof *w);
    struct txn_limits limits = {.max_ops = 1 + dice_below(dice, 30),
                                .max_bytes = 1000 + dice_below(dice, 20000)};

    w->dice = dice_split(dice);
    w->shape = (struct fake_db_shape){.events = w->events,
                                      .n = 20 + (uint32_t)dice_below(dice, MAX_EVENTS - 20),
                                      .lanes = 1 + (uint32_t)dice_below(dice, MAX_LANES),
                                      .entities = 1 + (uint32_t)dice_below(dice, 20),
                                      .groups = 1 + (uint32_t)dice_below(dice, 3),
                                      .accounts = 1 + (uint32_t)dice_below(dice, 8),
                                      .operation = dice_below(dice, 2),
                                      .sequence = dice_below(dice, 2),
                                      .mails = dice_below(dice, 2),
                                      .fences = dice_below(dice, 3) == 0,
                                      .doubles = dice_below(dice, 3) == 0,
                                      .mode = (enum config_sequence_mode)dice_below(dice, 3),
                                      .start = (int64_t)dice_below(dice, 3) - 1,
                                      .trouble = (unsigned)dice_below(dice, 40),
                                      .lifetime = 200 + (int64_t)dice_below(dice, 1000)};
    for (uint32_t id = 0; id < w->shape.n; id++)
        make_event(w, id);
    fill_lanes(w);
    make_route(w);
    w->db = fake_db_new(&w->shape, &w->dice);
    for (int i = 0; i < WORKERS; i++)
        w->workers[i].plan = txn_plan_new(&limits);
    return w;
}

static void clear_ops(struct worker *worker)
{
    for (size_t i = 0; i < worker->n; i++)
        write_op_clear(&worker->ops[i]);
    worker->n = 0;
}

static void world_free(struct world *w)
{
    for (int i = 0; i < WORKERS; i++) {
        clear_ops(&w->workers[i]);
        txn_plan_free(w->workers[i].plan);
    }
    fake_db_free(w->db);
    mem_free(w);
}

/* --- operations --- */

static bson_t *number_of(const char *name, int64_t value)
{
    bson_t *b = bson_new();

    BSON_APPEND_INT64(b, name, value);
    return b;
}

static struct effects *effects_of(const struct world *w, uint32_t id, int64_t fence)
{
    const struct fake_db_event *e = &w->events[id];
    struct effects *f = mem_new(sizeof *f);

    f->action = !w->shape.operation ? EFFECT_STORE : e->remove ? EFFECT_DELETE : EFFECT_INSERT;
    f->entity = w->shape.operation ? number_of("e", e->entity) : NULL;
    f->n_moves = FAKE_DB_COUNTERS;
    f->moves = mem_array(f->n_moves, sizeof *f->moves);
    for (uint32_t c = 0; c < FAKE_DB_COUNTERS; c++) {
        f->moves[c] = (struct effect_move){.counter = c,
                                           .filter = number_of("_id", e->account[c]),
                                           .by = mem_array(FAKE_DB_FIELDS, sizeof(int64_t))};
        f->moves[c].by[0] = 1;
        f->moves[c].by[1] = e->by;
    }
    if (w->shape.sequence && !e->remove) {
        f->number = mem_new(sizeof *f->number);
        f->number->group = number_of("_id", e->group);
    }
    if (w->shape.fences) {
        f->fence = number_of("_id", e->lane);
        f->fence_number = fence;
    }
    return f;
}

static void add_op(struct world *w, struct worker *worker, uint32_t l, size_t at)
{
    struct lane *lane = &w->lanes[l];
    uint32_t id = lane->log[at];

    worker->flights[worker->n] = (struct flight){.lane = l, .epoch = lane->epoch, .at = at};
    worker->ops[worker->n++] = (struct write_op){.kind = WRITE_KIND_INSERT,
                                                 .filter = number_of("_id", id),
                                                 .document = number_of("event", id),
                                                 .effects = effects_of(w, id, lane->fence),
                                                 .lane = lane,
                                                 .alone = !w->calm && dice_permille(&w->dice, 10)};
}

/* What is next of some of its lanes, mixed. False: nothing is. */
static bool take(struct world *w, int i)
{
    struct worker *worker = &w->workers[i];
    size_t most = 1 + dice_below(&w->dice, MAX_BATCH), next[MAX_LANES];
    bool more = true;

    for (uint32_t l = 0; l < w->shape.lanes; l++) {
        struct lane *lane = &w->lanes[l];

        next[l] = lane->owner == i ? lane->settled : lane->n;
        if (next[l] < lane->n && w->shape.fences)
            lane->fence = fake_db_issue(w->db, l);
    }
    while (more && worker->n < most) {
        more = false;
        for (uint32_t l = 0; l < w->shape.lanes; l++) {
            more = more || next[l] < w->lanes[l].n;
            for (uint64_t run = dice_below(&w->dice, 4);
                 run > 0 && next[l] < w->lanes[l].n && worker->n < most; run--)
                add_op(w, worker, l, next[l]++);
        }
    }
    return worker->n > 0;
}

static void begin(struct world *w, int i)
{
    struct worker *worker = &w->workers[i];
    struct txn_rules rules = {.route = &w->route,
                              .deadline_ms = w->now + 50 + (int64_t)dice_below(&w->dice, 3000),
                              .random = (uint32_t)dice_next(&w->dice)};

    clear_ops(worker);
    if (!take(w, i))
        return;
    w->batches++;
    txn_plan_begin(worker->plan, worker->ops, worker->n, &rules);
    worker->busy = true;
}

/* --- results --- */

static void check_refused(const struct world *w, uint32_t id, const struct outcome *o)
{
    const struct fake_db_event *e = &w->events[id];
    bool why = false;

    if (o->reason == REASON_VALIDATION)
        why = e->invalid;
    for (uint32_t k = 0; o->reason == REASON_UNIQUE_CONFLICT && k < w->shape.n; k++)
        why = why || (w->shape.mails && k != id && w->events[k].mail == e->mail);
    for (uint32_t k = 0; o->reason == REASON_REJECTED && k < w->shape.n; k++)
        why = why || (w->events[k].by > 1000 && w->events[k].account[0] == e->account[0]);
    for (int c = 0; o->reason == REASON_REJECTED && c < FAKE_DB_COUNTERS; c++)
        why = why || fake_db_inexact(&w->shape, (uint32_t)c, e->account[c]);
    CHECK(why && o->text, "event %u is dead for %s (%d)", id, reason_name(o->reason), o->code);
}

static bool is_settled(const struct outcome *o)
{
    return o->fate == FATE_INSERTED || o->fate == FATE_DUPLICATE || o->fate == FATE_NEVER;
}

static void take_result(struct world *w, const struct flight *flight, const struct outcome *o)
{
    struct lane *lane = &w->lanes[flight->lane];
    uint32_t id = lane->log[flight->at];

    CHECK(is_settled(o) || o->fate == FATE_LATER || o->fate == FATE_UNKNOWN,
          "event %u has the fate %d", id, o->fate);
    w->inserted[id] += o->fate == FATE_INSERTED;
    w->refused[id] += o->fate == FATE_NEVER;
    if (o->fate == FATE_NEVER)
        check_refused(w, id, o);
    else if (is_settled(o))
        CHECK(fake_db_has_event(w->db, id), "event %u is settled and not there", id);
    if (lane->epoch != flight->epoch)
        w->late++;
    else if (is_settled(o) && lane->settled == flight->at)
        lane->settled++;
}

static void finish(struct world *w, int i)
{
    struct worker *worker = &w->workers[i];
    const struct outcome *o = txn_plan_results(worker->plan);
    struct txn_done done = txn_plan_done(worker->plan);
    bool stopped[MAX_LANES] = {false};

    for (size_t k = 0; k < worker->n; k++) {
        uint32_t l = worker->flights[k].lane;

        CHECK(!stopped[l] || !is_settled(&o[k]),
              "lane %u: event %u is settled behind one that is not", l,
              w->lanes[l].log[worker->flights[k].at]);
        stopped[l] = stopped[l] || !is_settled(&o[k]);
        take_result(w, &worker->flights[k], &o[k]);
    }
    w->conflicts += done.conflicts;
    w->transactions += done.transactions;
    w->missing += done.moves_missing;
    worker->busy = false;
}

/* --- steps --- */

static void hand_over(struct world *w)
{
    struct lane *lane = &w->lanes[dice_below(&w->dice, w->shape.lanes)];

    lane->owner = (int)dice_below(&w->dice, WORKERS);
    lane->epoch++;
}

/* Mode max takes what is there as it is. */
static void others_number(struct world *w)
{
    if (!w->shape.sequence || w->shape.mode == SEQUENCE_MAX)
        return;
    if (!w->calm && dice_permille(&w->dice, w->shape.trouble / 8))
        fake_db_foreign(w->db, (uint32_t)dice_below(&w->dice, w->shape.groups));
    if (dice_permille(&w->dice, 5))
        fake_db_raise(w->db);
}

static void step(struct world *w)
{
    int i = (int)dice_below(&w->dice, WORKERS);
    struct worker *worker = &w->workers[i];
    struct txn_command c;

    w->now++;
    others_number(w);
    if (!w->calm && dice_permille(&w->dice, 4))
        hand_over(w);
    if (worker->sleeps_until > w->now)
        return;
    if (!w->calm && dice_permille(&w->dice, 5)) { /* maybe past the end of its transaction */
        worker->sleeps_until = w->now + (int64_t)dice_below(&w->dice, 3000);
        return;
    }
    if (!worker->busy) {
        begin(w, i);
    } else if (!txn_plan_next(worker->plan, w->now, &c)) {
        finish(w, i);
    } else if (c.kind == TXN_WAIT) {
        const struct txn_call fine = {.call = {.fault = CALL_FINE}};

        worker->sleeps_until = w->now + c.wait_ms;
        txn_plan_answer(worker->plan, &fine, NULL);
    } else {
        fake_db_serve(w->db, i, w->now, worker->plan, &c);
    }
}

static bool all_settled(const struct world *w)
{
    for (uint32_t l = 0; l < w->shape.lanes; l++)
        if (w->lanes[l].settled < w->lanes[l].n)
            return false;
    for (int i = 0; i < WORKERS; i++)
        if (w->workers[i].busy)
            return false;
    return true;
}

/* --- the truth --- */

static void check_events(const struct world *w)
{
    for (uint32_t id = 0; id < w->shape.n; id++) {
        bool there = fake_db_has_event(w->db, id);

        CHECK(w->inserted[id] <= 1, "event %u was inserted %u times", id, w->inserted[id]);
        CHECK(there || w->refused[id] > 0, "event %u is lost", id);
        CHECK(there || w->inserted[id] == 0, "event %u is gone", id);
    }
}

static void check_counters(const struct world *w)
{
    for (uint32_t c = 0; c < FAKE_DB_COUNTERS; c++) {
        for (uint32_t a = 0; a < w->shape.accounts; a++) {
            int64_t truth[FAKE_DB_FIELDS] = {0}, is[FAKE_DB_FIELDS];
            bool there = fake_db_counter(w->db, c, a, is);

            CHECK(!fake_db_inexact(&w->shape, c, a) || (is[0] == 0 && is[1] == 0),
                  "counter %u of %u holds a double and was moved", c, a);

            for (uint32_t id = 0; id < w->shape.n && there; id++) {
                const struct fake_db_event *e = &w->events[id];

                if (e->account[c] != a || !fake_db_has_event(w->db, id) || !fake_db_did(w->db, id))
                    continue;
                truth[0] += e->remove ? -1 : 1;
                truth[1] = (int64_t)((uint64_t)truth[1] +
                                     (e->remove ? (uint64_t)0 - (uint64_t)e->by : (uint64_t)e->by));
            }
            CHECK(truth[0] == is[0] || !there,
                  "counter %u of %u: %" PRId64 ", it should be %" PRId64, c, a, is[0], truth[0]);
            CHECK(c == 1 || !there || truth[1] == is[1],
                  "counter %u of %u: sum %" PRId64 ", it should be %" PRId64, c, a, is[1],
                  truth[1]);
        }
    }
}

/* Each entity as its events left it, in the order in which they were committed. */
static void check_entities(const struct world *w)
{
    int64_t entity[MAX_EVENTS];
    size_t n;
    const uint32_t *applied = fake_db_applied(w->db, &n);

    for (uint32_t k = 0; k < w->shape.entities; k++)
        entity[k] = FAKE_DB_NOBODY;
    for (size_t k = 0; k < n; k++) {
        const struct fake_db_event *e = &w->events[applied[k]];
        bool there = entity[e->entity] != FAKE_DB_NOBODY;

        /* One that was refused to somebody may pass for a late worker, who saw the entity there and
         * does nothing: that is right at his snapshot, and not at his commit. */
        if (w->refused[applied[k]] > 0 && !fake_db_did(w->db, applied[k]))
            continue;
        CHECK(fake_db_did(w->db, applied[k]) == (there == e->remove),
              "event %u: the ledger says %d of entity %u", applied[k],
              fake_db_did(w->db, applied[k]), e->entity);
        if (there == e->remove)
            entity[e->entity] = e->remove ? FAKE_DB_NOBODY : (int64_t)applied[k];
    }
    for (uint32_t k = 0; k < w->shape.entities; k++)
        CHECK(fake_db_entity(w->db, k) == entity[k], "entity %u is of %" PRId64 ", not of %" PRId64,
              k, fake_db_entity(w->db, k), entity[k]);
}

/* 1..N in each group, none twice; with operations as many were given as entities were added. */
static void check_numbers(const struct world *w)
{
    for (uint32_t g = 0; g < w->shape.groups; g++) {
        bool seen[MAX_NUMBERS] = {false};
        int64_t n = 0;

        for (uint32_t id = 0; id < w->shape.n; id++)
            n += w->events[id].group == g && !w->events[id].remove &&
                 fake_db_has_event(w->db, id) && fake_db_did(w->db, id);
        /* What is added and removed at once takes a number and stores none: another one's, maybe.
         */
        int64_t last = w->shape.start - 1 + n, foreign = fake_db_foreigners(w->db, g);
        int64_t least = w->shape.operation ? last : last + foreign;
        if (w->shape.mode != SEQUENCE_MAX)
            CHECK(fake_db_group(w->db, g) >= least && fake_db_group(w->db, g) <= last + foreign,
                  "group %u is at %" PRId64 " with %" PRId64 " events and %" PRId64 " of others", g,
                  fake_db_group(w->db, g), n, foreign);
        n += foreign;
        for (uint32_t id = 0; id < w->shape.n && !w->shape.operation; id++) {
            int64_t at = fake_db_number(w->db, id) - w->shape.start;

            if (w->events[id].group != g || !fake_db_has_event(w->db, id))
                continue;
            CHECK(at >= 0 && at < n && at < MAX_NUMBERS && !seen[at],
                  "group %u: event %u has number %" PRId64, g, id, at + w->shape.start);
            seen[at] = true;
        }
    }
}

static void check_order(const struct world *w)
{
    size_t place[MAX_EVENTS] = {0}, n;
    const uint32_t *applied = fake_db_applied(w->db, &n);

    for (size_t k = 0; k < n; k++)
        place[applied[k]] = k + 1;
    for (uint32_t l = 0; l < w->shape.lanes; l++) {
        size_t last = 0;
        bool seen[MAX_EVENTS] = {false};

        for (size_t k = 0; k < w->lanes[l].n; k++) {
            uint32_t id = w->lanes[l].log[k];

            if (seen[id] || w->refused[id] > 0)
                continue;
            seen[id] = true;
            CHECK(place[id] > last, "lane %u: event %u was written before the one in front of it",
                  l, id);
            last = place[id];
        }
    }
}

static void check_truth(const struct world *w)
{
    check_events(w);
    check_counters(w);
    check_order(w);
    if (w->shape.operation)
        check_entities(w);
    if (w->shape.sequence)
        check_numbers(w);
}

/* --- main --- */

static void live(struct world *w)
{
    int64_t trouble = 2000 + (int64_t)dice_below(&w->dice, 20000);

    while (!all_settled(w) && w->now < trouble)
        step(w);
    w->calm = true;
    fake_db_calm(w->db);
    while (!all_settled(w)) {
        step(w);
        CHECK(w->now < trouble + CALM_STEPS, "it never ends (%" PRIu64 " batches)", w->batches);
    }
    fake_db_raise(w->db);
    check_truth(w);
}

int main(void)
{
    const char *text = getenv("IDEMSINK_SOAK_SECONDS");
    double seconds = text ? strtod(text, NULL) : 6;
    struct dice dice = dice_seed("test_txn_effects");
    uint64_t worlds = 0, late = 0, conflicts = 0, transactions = 0, missing = 0;
    clock_t end = clock() + (clock_t)(seconds * CLOCKS_PER_SEC);

    do {
        struct world *w = world_new(&dice);

        live(w);
        worlds++;
        late += w->late;
        conflicts += w->conflicts;
        transactions += w->transactions;
        missing += w->missing;
        world_free(w);
    } while (clock() < end);
    (void)printf("%" PRIu64 " worlds, %" PRIu64 " transactions, %" PRIu64 " conflicts, %" PRIu64
                 " results too late, %" PRIu64 " moves of nothing\n",
                 worlds, transactions, conflicts, late, missing);
    CHECK(worlds < 20 || (late > 0 && conflicts > 0 && missing > 0), "too quiet a world%s", "");
    return 0;
}
