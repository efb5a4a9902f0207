/*
 * core/log_plan.h and core/log_doc.h, step by step, over the database of fakes/log_db.h.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "fakes/log_db.h"

enum { ATTEMPT_MS = 5000, KEEP = 10 };

static struct db db;
static struct config_route route;
static struct config_counter counters[2];
static char users[] = "users", database[] = "db", events_name[] = "events", none[] = "",
            key[] = "k", hash_field[] = "_h", seq[] = "seq", ref[] = "ref",
            sequences[] = "sequences", group_field[] = "g", followers[] = "followers",
            following[] = "following";
static char *keys[] = {key}, *group_fields[] = {group_field};
static struct config_pair inc[2] = {{followers, NULL}, {following, NULL}};
static struct log_plan *plan;
static struct log_horizon horizon;
static size_t sent[LOG_WAIT + 1]; /* commands by kind, of the last batch */

static int begin(void **state)
{
    struct log_limits limits = {.max_ops = 100, .max_bytes = 1 << 20};

    (void)state;
    db_clear(&db);
    db.now = 1000000;
    db.route = &route;
    memset(&route, 0, sizeof route);
    route.name = route.collection = events_name;
    route.database = database;
    route.dedup.fields = (struct config_list){keys, 1};
    route.dedup.conflict_field = hash_field;
    for (int i = 0; i < 2; i++)
        counters[i] = (struct config_counter){
            .database = database, .collection = users, .inc = {&inc[i], 1}, .upsert = true};
    route.counters = counters;
    route.n_counters = 2;
    route.sequence.field = route.sequence.template_field = none;
    route.operation.source = none;
    plan = log_plan_new(&limits);
    log_horizon_init(&horizon, ATTEMPT_MS);
    return 0;
}

static int end(void **state)
{
    (void)state;
    log_plan_free(plan);
    db_clear(&db);
    return 0;
}

static struct write_op event(int64_t index, int64_t who, int64_t by0, int64_t whom, int64_t by1)
{
    struct write_op op = {.filter = BCON_NEW("k", BCON_INT64(index)),
                          .document = BCON_NEW("k", BCON_INT64(index))};
    struct effects *f = op.effects = mem_new(sizeof *f);

    f->moves = mem_array(2, sizeof *f->moves);
    for (uint32_t k = 0; k < 2 && route.n_counters > 0; k++, f->n_moves++) {
        f->moves[k].counter = k;
        f->moves[k].filter = BCON_NEW("_id", BCON_INT64(k ? whom : who));
        f->moves[k].by = mem_array(1, sizeof *f->moves[k].by);
        f->moves[k].by[0] = k ? by1 : by0;
    }
    return op;
}

static struct write_op numbered(int64_t index, int64_t group)
{
    struct write_op op = event(index, 0, 0, 0, 0);

    BSON_APPEND_INT64(op.document, "g", group);
    op.effects->number = mem_new(sizeof *op.effects->number);
    op.effects->number->group = BCON_NEW("_id", "{", "g", BCON_INT64(group), "}");
    return op;
}

static void with_sequence(enum config_sequence_mode mode)
{
    route.n_counters = 0;
    route.sequence = (struct config_sequence){.field = seq,
                                              .mode = mode,
                                              .start = 5,
                                              .collection = sequences,
                                              .database = database,
                                              .template = none,
                                              .template_field = ref,
                                              .group_fields = {group_fields, 1}};
}

/* ops end with one without a filter. Returns one letter per operation. */
static const char *run_at(const struct write_op *ops, int64_t now)
{
    static char letters[64];
    static const char names[] = {[FATE_INSERTED] = 'I',
                                 [FATE_DUPLICATE] = 'D',
                                 [FATE_LATER] = 'L',
                                 [FATE_UNKNOWN] = 'U',
                                 [FATE_NEVER] = 'N'};
    struct log_rules rules = {.route = &route,
                              .now_ms = now,
                              .attempt_ms = ATTEMPT_MS,
                              .keep = KEEP,
                              .prune_ms = horizon.usable_ms,
                              .random = 1};
    struct log_command c;
    size_t n = 0;

    memset(sent, 0, sizeof sent);
    while (ops[n].filter)
        n++;
    log_plan_begin(plan, ops, n, &rules);
    while (log_plan_next(plan, now, &c)) {
        sent[c.kind]++;
        if (c.kind == LOG_WAIT) {
            log_plan_answer(plan, &(struct outcome_call){.fault = CALL_FINE}, NULL);
            continue;
        }
        struct db_flight *f = db_send(&db, &c);
        while (db_step(&db, f))
            continue;
        db_answer(plan, f);
        db_flight_free(f);
    }
    for (size_t i = 0; i < n; i++)
        letters[i] = names[log_plan_results(plan)[i].fate];
    letters[n] = '\0';
    return letters;
}

static const char *run(const struct write_op *ops)
{
    return run_at(ops, db.now);
}

static void free_ops(struct write_op *ops)
{
    for (; ops->filter; ops++) {
        bson_destroy(ops->filter);
        bson_destroy(ops->document);
        effects_free(ops->effects);
    }
}

#define OPS(...) ((struct write_op[]){__VA_ARGS__, {.filter = NULL}})

static void expect(struct write_op *ops, const char *letters)
{
    assert_string_equal(run(ops), letters);
    free_ops(ops);
}

/* --- counters --- */

static void a_counter_document_is_moved_once_for_all(void **state)
{
    (void)state;
    expect(OPS(event(1, 1, 1, 2, 10), event(2, 1, 1, 2, 20), event(3, 1, 1, 1, 5)), "III");
    assert_int_equal(db.counters[1].value[0], 3);
    assert_int_equal(db.counters[1].value[1], 5);
    assert_int_equal(db.counters[2].value[1], 30);
    assert_int_equal(db.counters[1].n, 3);
    assert_int_equal(db.counters[1].version, 1);
    assert_int_equal(sent[LOG_LOOK], 1);
    assert_int_equal(sent[LOG_WRITE], 1);
    assert_int_equal(sent[LOG_COUNT], 2); /* they had to be made */
    assert_int_equal(sent[LOG_CLOSE], 1);
    expect(OPS(event(4, 1, 1, 2, 1)), "I");
    assert_int_equal(sent[LOG_COUNT] + sent[LOG_CHECK] + sent[LOG_MAKE], 1);
}

static void duplicates_move_nothing(void **state)
{
    (void)state;
    expect(OPS(event(1, 1, 1, 2, 1), event(1, 1, 1, 2, 1)), "ID");
    expect(OPS(event(1, 1, 1, 2, 1)), "D");
    assert_int_equal(db.counters[1].value[0], 1);
    assert_int_equal(sent[LOG_COUNT], 0);
}

/* Event 1, open, with other moves than event() has; id NULL: not of idemsink's making. */
static bson_t *opened(const struct log_id *id)
{
    bson_t *d = BCON_NEW("k", BCON_INT64(1), "_effects", "{", "at", BCON_DATE_TIME(5), "moves", "[",
                         "{", "c", BCON_UTF8("db.users"), "f", "{", "_id", BCON_INT64(3), "}", "by",
                         "{", "followers", BCON_INT64(7), "}", "}", "]", "}");
    bson_t *whole = bson_new(), effects;
    bson_iter_t at, in;

    MUST(bson_iter_init_find(&at, d, "_effects") && bson_iter_recurse(&at, &in));
    BSON_APPEND_INT64(whole, "k", 1);
    BSON_APPEND_DOCUMENT_BEGIN(whole, "_effects", &effects);
    while (bson_iter_next(&in))
        MUST(bson_append_iter(&effects, NULL, 0, &in));
    if (id)
        BSON_APPEND_BINARY(&effects, "id", BSON_SUBTYPE_BINARY, id->bytes, sizeof id->bytes);
    bson_append_document_end(whole, &effects);
    bson_destroy(d);
    return whole;
}

/* A payload of an older time may look like one of ours. What tells ours is the event's own id. */
static void what_a_payload_says_is_not_done(void **state)
{
    struct write_op *other = OPS(event(2, 1, 1, 2, 1));
    struct log_id id;
    bson_t *left;

    (void)state;
    db.counters[3].exists = true;
    db.events[1] = opened(NULL);
    expect(OPS(event(1, 1, 1, 2, 1)), "D");
    bson_destroy(db.events[1]);
    log_event_id(&route, other->filter, &id);
    db.events[1] = opened(&id);
    expect(OPS(event(1, 1, 1, 2, 1)), "D");
    assert_int_equal(db.counters[3].value[0], 0);
    assert_false(db.counters[1].exists);
    left = db_effects(&db, 1);
    assert_non_null(left);
    bson_destroy(left);
    free_ops(other);
}

/* What stands in _effects is done, whatever the mapping says today. */
static void what_is_open_is_completed_as_it_stands(void **state)
{
    struct write_op *same = OPS(event(1, 1, 1, 2, 1));
    struct log_id id;

    (void)state;
    log_event_id(&route, same->filter, &id);
    free_ops(same);
    db.counters[3].exists = true;
    db.events[1] = opened(&id);
    expect(OPS(event(1, 1, 1, 2, 1)), "I");
    assert_int_equal(db.counters[3].value[0], 7);
    assert_false(db.counters[1].exists);
    assert_null(db_effects(&db, 1));
    assert_int_equal(log_plan_done(plan).completed, 1);
}

/* A repeated one of an event that has to wait is not settled before it. */
static void followers_wait_with_their_leader(void **state)
{
    static const char lanes[2];

    (void)state;
    expect(OPS(event(9, 4, 1, 4, 1)), "I");
    struct write_op *ops = OPS(event(1, 4, 1, 4, 1), event(1, 4, 1, 4, 1), event(2, 5, 1, 5, 1));
    for (size_t i = 0; i < 2; i++)
        ops[i].lane = &lanes[i];
    memset(db.counters[4].applied, 7, sizeof db.counters[4].applied);
    db.counters[4].n = KEEP;
    expect(OPS(event(3, 4, 1, 5, 1)), "I"); /* finds out that it is full */
    expect(ops, "LLI");
    assert_null(db.events[1]);
}

static void a_counter_that_is_missing(void **state)
{
    (void)state;
    counters[0].upsert = false;
    expect(OPS(event(1, 1, 1, 2, 3)), "I");
    assert_false(db.counters[1].exists);
    assert_int_equal(db.counters[2].value[1], 3);
    assert_int_equal(log_plan_done(plan).missing, 1);
}

/* Who would pass int64 is named in its own document; the others are counted. */
static void overflow_is_the_fault_of_one(void **state)
{
    bson_iter_t at, value;

    (void)state;
    db.counters[1] = (struct db_counter){.exists = true, .value = {INT64_MAX - 5, 0}};
    expect(OPS(event(1, 1, 3, 2, 1), event(2, 1, 4, 2, 1), event(3, 1, 2, 2, 1)), "III");
    assert_int_equal(db.counters[1].value[0], INT64_MAX);
    assert_int_equal(db.counters[2].value[1], 3);
    assert_int_equal(log_plan_done(plan).failed, 1);
    assert_true(bson_iter_init(&at, db.events[2]) &&
                bson_iter_find_descendant(&at, "_effects.failed", &value));
    assert_non_null(strstr(bson_iter_utf8(&value, NULL), "db.users"));
    expect(OPS(event(2, 1, 4, 2, 1)), "D");
    /* So it is when their own sum does. */
    expect(OPS(event(4, 3, INT64_MAX, 2, 1), event(5, 3, INT64_MAX, 2, 1)), "II");
    assert_int_equal(db.counters[3].value[0], INT64_MAX);
    assert_int_equal(log_plan_done(plan).failed, 1);
}

static void a_double_is_no_counter(void **state)
{
    (void)state;
    db.counters[1] = (struct db_counter){.exists = true, .is_double = true};
    expect(OPS(event(1, 1, 3, 2, 1)), "I");
    assert_int_equal(log_plan_done(plan).failed, 1);
    assert_int_equal(db.counters[2].value[1], 1);
}

/* MAKE is answered with this code, each time. */
static size_t run_without_making(const struct write_op *ops, size_t n, int code)
{
    struct log_rules rules = {.route = &route,
                              .now_ms = db.now,
                              .attempt_ms = ATTEMPT_MS,
                              .keep = KEEP,
                              .prune_ms = INT64_MIN};
    struct log_command c;
    size_t makes = 0;

    log_plan_begin(plan, ops, n, &rules);
    while (log_plan_next(plan, db.now, &c)) {
        if (c.kind == LOG_MAKE) {
            bson_t *reply =
                BCON_NEW("n", BCON_INT32(0), "writeErrors", "[", "{", "index", BCON_INT32(0),
                         "code", BCON_INT32(code), "errmsg", BCON_UTF8("not here"), "}", "]");

            assert_int_equal(c.n_moves, 1);
            makes++;
            log_plan_answer(plan, &(struct outcome_call){.fault = CALL_SERVER, .code = code},
                            reply);
            bson_destroy(reply);
            continue;
        }
        struct db_flight *f = db_send(&db, &c);
        while (db_step(&db, f))
            continue;
        db_answer(plan, f);
        db_flight_free(f);
    }
    return makes;
}

/* A validator, or a unique index of somebody else's: an event that stayed open for that would keep
 * every counter's ids for ever. */
static void a_counter_that_cannot_be_made(void **state)
{
    static const struct {
        int code;
        size_t makes;
    } cases[] = {{121, 1}, {11000, 2}};

    (void)state;
    db.counters[2].exists = true;
    for (int64_t i = 0; i < 2; i++) {
        struct write_op *ops = OPS(event(1 + i, 1, 1, 2, 1));
        bson_iter_t at, value;

        assert_int_equal(run_without_making(ops, 1, cases[i].code), cases[i].makes);
        assert_int_equal(log_plan_results(plan)[0].fate, FATE_INSERTED);
        assert_int_equal(log_plan_done(plan).failed, 1);
        assert_true(bson_iter_init(&at, db.events[1 + i]) &&
                    bson_iter_find_descendant(&at, "_effects.failed", &value));
        assert_string_equal(bson_iter_utf8(&value, NULL), "db.users: not here");
        assert_int_equal(db.counters[2].value[1], 1 + i);
        free_ops(ops);
    }
}

/* --- operations --- */

static char ledger[] = "ledger", part[] = "s";
static char *parts[] = {part};

static struct write_op operation(int64_t index, int64_t entity, bool remove)
{
    struct write_op op = event(index, entity, 1, 9, 1);
    bson_t *filter = BCON_NEW("_id", BCON_INT64(index));

    bson_destroy(op.filter);
    op.filter = filter;
    BSON_APPEND_INT64(op.document, "s", entity);
    op.effects->action = remove ? EFFECT_DELETE : EFFECT_INSERT;
    op.effects->entity = BCON_NEW("s", BCON_INT64(entity));
    if (remove)
        bson_reinit(op.document);
    return op;
}

static void with_operation(void)
{
    route.dedup.conflict_field = none;
    route.operation.ledger = ledger;
    route.operation.ledger_database = database;
    route.entity.key = route.entity.fields = (struct config_list){parts, 1};
    db.counters[9].exists = true;
}

/* What a lane takes away makes room for what it adds behind that. */
static void removals_come_before_what_is_added_behind_them(void **state)
{
    static const char lane;
    struct write_op *ops = OPS(operation(2, 1, true), operation(3, 2, false));

    (void)state;
    with_operation();
    db.one_of = DB_ENTITIES;
    expect(OPS(operation(1, 1, false)), "I");
    ops[0].lane = ops[1].lane = &lane;
    expect(ops, "II");
    assert_false(db.entities[1].exists);
    assert_true(db.entities[2].exists);
    assert_int_equal(db.counters[9].value[1], 1);
    /* The other order needs no round of its own. */
    db.one_of = 0;
    ops = OPS(operation(4, 3, false), operation(5, 4, false), operation(6, 2, true));
    ops[0].lane = ops[1].lane = ops[2].lane = &lane;
    expect(ops, "III");
    assert_int_equal(sent[LOG_WRITE], 1);
}

/* Its dead letter is delivered again, and now it can be done: once. */
static void what_was_refused_is_tried_again(void **state)
{
    bson_iter_t did;

    (void)state;
    with_operation();
    db.one_of = DB_ENTITIES;
    expect(OPS(operation(1, 1, false), operation(2, 2, false)), "IN");
    assert_int_equal(db.counters[9].value[1], 1);
    db.now += 1;
    expect(OPS(operation(2, 2, false)), "N");
    assert_int_equal(sent[LOG_REOPEN], 1);
    db.entities[1].exists = false;
    db.now += 1;
    expect(OPS(operation(2, 2, false)), "I");
    assert_true(db.entities[2].exists && !db.entities[2].has_by);
    assert_int_equal(db.counters[9].value[1], 2);
    assert_null(db_effects(&db, 2));
    assert_true(bson_iter_init_find(&did, db.events[2], "did") && bson_iter_as_bool(&did));
    expect(OPS(operation(2, 2, false)), "D");
    assert_int_equal(db.counters[9].value[1], 2);
    assert_int_equal(db.counters[2].value[0], 1);
}

/* Not what has done its part, and not what another attempt may still be at. */
static void what_was_done_is_not_tried_again(void **state)
{
    (void)state;
    with_operation();
    db.counters[1] = (struct db_counter){.exists = true, .value = {INT64_MAX, 0}};
    expect(OPS(operation(1, 1, false)), "I");
    assert_int_equal(log_plan_done(plan).failed, 1);
    db.now += 1;
    expect(OPS(operation(1, 1, false)), "D");
    assert_int_equal(sent[LOG_REOPEN], 0);
    db.one_of = DB_ENTITIES;
    expect(OPS(operation(2, 2, false)), "N");
    expect(OPS(operation(2, 2, true)), "D"); /* another event's content: as it was */
}

/* --- time --- */

/* One COUNT stays on its way while the process sleeps. */
static struct db_flight *sleeping_count(struct write_op *ops, struct log_plan *p)
{
    struct log_rules rules = {.route = &route,
                              .now_ms = db.now,
                              .attempt_ms = ATTEMPT_MS,
                              .keep = KEEP,
                              .prune_ms = INT64_MIN};
    struct log_command c;

    log_plan_begin(p, ops, 1, &rules);
    while (log_plan_next(p, db.now, &c) && c.kind != LOG_COUNT) {
        struct db_flight *f = db_send(&db, &c);

        while (db_step(&db, f))
            continue;
        db_answer(p, f);
        db_flight_free(f);
    }
    return db_send(&db, &c);
}

/* The horizon is read and let come; then the ids of user 1 are pruned as it allows. */
static void prune(void)
{
    assert_true(log_horizon_due(&horizon, db.now));
    log_horizon_read(&horizon, db.now, db.now, db_oldest_open(&db));
    db.now += ATTEMPT_MS + LOG_MARGIN_MS;
    assert_true(log_horizon_due(&horizon, db.now));
    struct db_flight f = {.before_ms = horizon.usable_ms};
    struct db_statement s = {.key = 1};
    db_prune(&db, &f, &s);
}

/* The bound: a sleeper may come back any time, and the clock may go back by the margin. */
static void sleeper(int64_t clock_goes_back_ms, int64_t expected)
{
    struct log_limits limits = {.max_ops = 10, .max_bytes = 1 << 20};
    struct log_plan *other = log_plan_new(&limits);
    struct write_op *ops = OPS(event(1, 1, 1, 1, 1));

    db.counters[1].exists = true;
    struct db_flight *late = sleeping_count(ops, other);
    int64_t until = db.now + ATTEMPT_MS;
    assert_string_equal(run(ops), "I"); /* somebody else completes it */
    assert_int_equal(db.counters[1].value[0], 1);
    prune();
    assert_int_equal(db.counters[1].n, 1); /* too young */
    db.now += 1;
    prune();
    assert_int_equal(db.counters[1].n, 0);
    db.now = clock_goes_back_ms ? until + LOG_MARGIN_MS - clock_goes_back_ms : db.now;
    (void)db_step(&db, late);
    assert_int_equal(db.counters[1].value[0], expected);
    db_flight_free(late);
    log_plan_answer(other, &(struct outcome_call){.fault = CALL_NETWORK}, NULL);
    log_plan_free(other);
    free_ops(ops);
}

static void a_sleeper_comes_back_whenever_it_likes(void **state)
{
    (void)state;
    sleeper(0, 1);
}

static void the_clock_goes_back_by_the_margin(void **state)
{
    (void)state;
    sleeper(LOG_MARGIN_MS, 1);
}

/* Beyond the bound, as docs/effects.md says: counted twice. */
static void the_clock_goes_back_by_more(void **state)
{
    (void)state;
    sleeper(LOG_MARGIN_MS + 1, 2);
}

/* Who completes it when the clock has gone back is not earlier than the event for that. */
static void an_id_is_not_older_than_its_event(void **state)
{
    struct log_limits limits = {.max_ops = 10, .max_bytes = 1 << 20};
    struct log_plan *other = log_plan_new(&limits);
    struct write_op *ops = OPS(event(1, 1, 1, 1, 1));
    int64_t written_at_ms = db.now;

    (void)state;
    db.counters[1].exists = true;
    db_flight_free(sleeping_count(ops, other)); /* it never arrives */
    db.now -= LOG_MARGIN_MS;
    assert_string_equal(run(ops), "I");
    assert_int_equal(db.counters[1].n, 1);
    assert_int_equal(db.counters[1].applied[0].t, written_at_ms);
    log_plan_answer(other, &(struct outcome_call){.fault = CALL_NETWORK}, NULL);
    log_plan_free(other);
    free_ops(ops);
}

/* One operation; the server's clock is there so late at this step, and set back by the margin then.
 */
static void late_at(struct write_op *ops, enum log_command_kind kind, int64_t late_ms)
{
    struct log_rules rules = {.route = &route,
                              .now_ms = db.now,
                              .attempt_ms = ATTEMPT_MS,
                              .keep = KEEP,
                              .prune_ms = INT64_MIN};
    int64_t now = db.now;
    struct log_command c;

    log_plan_begin(plan, ops, 1, &rules);
    while (log_plan_next(plan, now, &c)) {
        struct db_flight *f = db_send(&db, &c);

        db.now += c.kind == kind ? ATTEMPT_MS + late_ms : 0;
        while (db_step(&db, f))
            continue;
        db.now -= c.kind == kind ? LOG_MARGIN_MS : 0;
        db_answer(plan, f);
        db_flight_free(f);
    }
    free_ops(ops);
}

/* What was refused as too late is not closed when the clock goes back. */
static void a_refused_step_is_not_closed(void **state)
{
    static const enum log_command_kind steps[] = {LOG_DID, LOG_REMOVE, LOG_CLEAN};

    (void)state;
    for (size_t i = 0; i < 6; i++) {
        enum log_command_kind step = steps[i / 2];
        bool remove = step != LOG_CLEAN;

        with_operation();
        if (remove)
            expect(OPS(operation(1, 1, false)), "I");
        late_at(OPS(operation(2, 1, remove)), step, i % 2 ? LOG_MARGIN_MS : 0);
        assert_int_equal(bson_has_field(db.events[2], "_effects"), i % 2);
        db.now += 2 * ATTEMPT_MS;
        expect(OPS(operation(2, 1, remove)), i % 2 ? "I" : "D");
        assert_false(bson_has_field(db.events[2], "_effects"));
        assert_int_equal(db_number(db.events[2], "did"), 1);
        assert_int_equal(db.entities[1].exists, !remove);
        assert_false(db.entities[1].has_by || db.entities[1].has_removed);
        (void)end(NULL);
        (void)begin(NULL);
    }
}

/* The server was not in time to close it: it may be gone through again, so nothing of its entity
 * goes on before that. */
static void what_is_not_closed_is_not_over(void **state)
{
    (void)state;
    with_operation();
    late_at(OPS(operation(1, 1, false)), LOG_CLOSE, 0);
    assert_int_equal(log_plan_results(plan)[0].fate, FATE_UNKNOWN);
    assert_int_equal(log_plan_results(plan)[0].retry, RETRY_CONFLICT);
    assert_true(bson_has_field(db.events[1], "_effects"));
    db.now += 2 * ATTEMPT_MS;
    expect(OPS(operation(1, 1, false)), "I");
    assert_false(bson_has_field(db.events[1], "_effects"));
    assert_int_equal(db.counters[9].value[1], 1);
}

static void ids_of_what_is_open_are_kept(void **state)
{
    (void)state;
    expect(OPS(event(1, 1, 1, 1, 1)), "I");
    db.events[2] = BCON_NEW("k", BCON_INT64(2), "_effects", "{", "at", BCON_DATE_TIME(db.now - 1),
                            "moves", "[", "]", "}");
    db.now += 100 * ATTEMPT_MS;
    prune();
    assert_int_equal(db.counters[1].n, 1);
    db_set_effects(&db, 2, NULL);
    db.now += 1;
    prune();
    prune();
    assert_int_equal(db.counters[1].n, 0);
}

static void nothing_is_begun_when_it_is_too_late(void **state)
{
    struct write_op *ops = OPS(event(1, 1, 1, 1, 1));

    (void)state;
    struct log_rules rules = {.route = &route,
                              .now_ms = db.now,
                              .attempt_ms = ATTEMPT_MS,
                              .keep = KEEP,
                              .prune_ms = INT64_MIN};
    struct log_command c;
    log_plan_begin(plan, ops, 1, &rules);
    assert_true(log_plan_next(plan, db.now, &c));
    log_plan_answer(plan, &(struct outcome_call){.fault = CALL_FINE}, NULL);
    assert_false(log_plan_next(plan, db.now + ATTEMPT_MS, &c));
    assert_int_equal(log_plan_results(plan)[0].retry, RETRY_TIMEOUT);
    free_ops(ops);
}

/* --- the number of ids --- */

static void keep_and_one_more(void **state)
{
    struct write_op ops[KEEP + 1] = {{.filter = NULL}};

    (void)state;
    for (int64_t i = 0; i < KEEP; i++)
        ops[i] = event(i, 1, 1, 1, 1);
    db.counters[1].exists = true;
    assert_string_equal(run(ops), "IIIIIIIIII");
    assert_int_equal(log_plan_done(plan).full, 0);
    expect(OPS(event(100, 1, 1, 1, 1)), "I"); /* it was written, so it is counted */
    assert_int_equal(log_plan_done(plan).full, 1);
    expect(OPS(event(101, 1, 1, 1, 1), event(102, 2, 1, 2, 1)), "LI"); /* this one waits */
    assert_null(db.events[101]);
    db.now += ATTEMPT_MS;
    prune();
    db.now += 1;
    prune();
    expect(OPS(event(101, 1, 1, 1, 1)), "I");
    assert_int_equal(db.counters[1].value[0], KEEP + 2);
    free_ops(ops);
}

/* --- numbers --- */

static void a_block_for_each_group(void **state)
{
    (void)state;
    with_sequence(SEQUENCE_BLOCK);
    expect(OPS(numbered(1, 1), numbered(2, 2), numbered(3, 1), numbered(1, 1)), "IIID");
    assert_int_equal(db_number(db.events[1], "seq"), 5);
    assert_int_equal(db_number(db.events[3], "seq"), 6);
    assert_int_equal(db_number(db.events[2], "seq"), 5);
    assert_int_equal(db.sequence[1], 6);
    assert_int_equal(sent[LOG_START], 2);
    expect(OPS(numbered(1, 1), numbered(4, 1)), "DI");
    assert_int_equal(db_number(db.events[4], "seq"), 7);
    assert_false(bson_has_field(db.events[4], "_effects"));
}

static void the_highest_and_one(void **state)
{
    (void)state;
    with_sequence(SEQUENCE_MAX);
    db.unique_number = true;
    expect(OPS(numbered(1, 1), numbered(2, 1)), "II");
    assert_int_equal(db_number(db.events[2], "seq"), 6);
    assert_int_equal(sent[LOG_NUMBER], 0);
}

/* What others have given below `start` is not gone on with. */
static void the_highest_is_below_start(void **state)
{
    (void)state;
    with_sequence(SEQUENCE_MAX);
    db.unique_number = true;
    db.events[50] = BCON_NEW("k", BCON_INT64(50), "g", BCON_INT64(1), "seq", BCON_INT64(2));
    expect(OPS(numbered(1, 1), numbered(2, 1)), "II");
    assert_int_equal(db_number(db.events[1], "seq"), 5);
    assert_int_equal(db_number(db.events[2], "seq"), 6);
}

/* Somebody else takes a number between the read and the write: those behind it are taken for old,
 * too, and not tried one after the other. */
static void a_number_that_is_taken(void **state)
{
    static const char lane[1];
    struct log_rules rules = {.route = &route,
                              .now_ms = db.now,
                              .attempt_ms = ATTEMPT_MS,
                              .keep = KEEP,
                              .prune_ms = INT64_MIN};
    struct log_command c;
    size_t writes = 0, waits = 0;

    (void)state;
    with_sequence(SEQUENCE_MAX);
    struct write_op *ops = OPS(numbered(1, 1), numbered(2, 1), numbered(3, 1));
    for (size_t i = 0; i < 3; i++)
        ops[i].lane = lane;
    db.unique_number = true;
    log_plan_begin(plan, ops, 3, &rules);
    while (log_plan_next(plan, db.now, &c)) {
        if (c.kind == LOG_WAIT) {
            waits++;
            log_plan_answer(plan, &(struct outcome_call){.fault = CALL_FINE}, NULL);
            continue;
        }
        for (int64_t k = 0; c.kind == LOG_WRITE && writes == 0 && k < 3; k++)
            db.events[50 + k] =
                BCON_NEW("k", BCON_INT64(50 + k), "g", BCON_INT64(1), "seq", BCON_INT64(5 + k));
        writes += c.kind == LOG_WRITE;
        struct db_flight *f = db_send(&db, &c);
        while (db_step(&db, f))
            continue;
        db_answer(plan, f);
        db_flight_free(f);
    }
    for (int64_t i = 0; i < 3; i++) {
        assert_int_equal(log_plan_results(plan)[i].fate, FATE_INSERTED);
        assert_int_equal(db_number(db.events[1 + i], "seq"), 8 + i);
    }
    assert_int_equal(writes, 2);
    assert_int_equal(waits, 1);
    free_ops(ops);
}

static void others_have(int64_t first, int64_t n)
{
    for (int64_t k = 0; k < n; k++) {
        if (db.events[50 + k])
            bson_destroy(db.events[50 + k]);
        db.events[50 + k] =
            BCON_NEW("k", BCON_INT64(50 + k), "g", BCON_INT64(1), "seq", BCON_INT64(first + k));
    }
}

/* Mode block: another document has the next numbers. It goes past them by itself, without waits;
 * where there are many, somebody is told how to do that at once, and the others don't wait. */
static void a_counter_that_lags(void **state)
{
    (void)state;
    with_sequence(SEQUENCE_BLOCK);
    db.unique_number = true;
    others_have(5, 3);
    expect(OPS(numbered(1, 1), numbered(2, 2)), "II");
    assert_int_equal(db_number(db.events[1], "seq"), 8);
    assert_int_equal(sent[LOG_WAIT], 0);
    others_have(9, 60);
    expect(OPS(numbered(3, 1), numbered(4, 2)), "LI");
    const struct outcome *o = log_plan_results(plan);
    assert_int_equal(o[0].retry, RETRY_CONFIG);
    assert_int_equal(o[0].code, 11000);
    assert_non_null(strstr(o[0].text, "group { \"_id\" : { \"g\" : 1 } } of the sequence waits"));
    assert_non_null(strstr(o[0].text, "number, 58, stands in seq"));
    assert_non_null(strstr(o[0].text, "--raise-sequences"));
    expect(OPS(numbered(3, 1)), "I");
    assert_int_equal(db_number(db.events[3], "seq"), 69);
}

/* Another document has the text: there is no use in other numbers. */
static void a_text_that_is_taken(void **state)
{
    enum config_sequence_mode modes[] = {SEQUENCE_BLOCK, SEQUENCE_MAX};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        with_sequence(modes[i]);
        db.unique_number = true;
        db.taken_text = 5;
        expect(OPS(numbered(1, 1 + (int64_t)i)), "N");
        const struct outcome *o = log_plan_results(plan);
        assert_int_equal(o->reason, REASON_UNIQUE_CONFLICT);
        assert_string_equal(o->text, "another document has its text in ref "
                                     "(sequence.template_field; the number is in seq): index: x");
        assert_int_equal(sent[LOG_WRITE], 2);
        assert_int_equal(sent[LOG_NUMBER] + sent[LOG_HIGHEST], i == 0 ? 2 : 1);
    }
}

/* --- documents --- */

/* The last numbers go to those who come first; nobody else is to blame. */
static void the_last_numbers(void **state)
{
    (void)state;
    with_sequence(SEQUENCE_BLOCK);
    db.sequence[1] = INT64_MAX - 2;
    expect(OPS(numbered(1, 1), numbered(2, 1), numbered(3, 1), numbered(4, 2)), "IINI");
    assert_int_equal(db_number(db.events[2], "seq"), INT64_MAX);
    with_sequence(SEQUENCE_MAX);
    db.unique_number = true;
    bson_destroy(db.events[1]);
    bson_destroy(db.events[2]);
    db.events[1] =
        BCON_NEW("k", BCON_INT64(1), "g", BCON_INT64(3), "seq", BCON_INT64(INT64_MAX - 1));
    db.events[2] = NULL;
    expect(OPS(numbered(5, 3), numbered(6, 3)), "IN");
    assert_int_equal(db_number(db.events[5], "seq"), INT64_MAX);
}

static void two_routes_have_ids_of_their_own(void **state)
{
    struct write_op *ops = OPS(event(1, 1, 1, 1, 1));
    struct config_route second = route;
    struct log_id one, two;
    static char other[] = "other";

    (void)state;
    second.collection = other;
    log_event_id(&route, ops[0].filter, &one);
    log_event_id(&second, ops[0].filter, &two);
    assert_memory_not_equal(&one, &two, 4);
    assert_memory_equal(one.bytes + 4, two.bytes + 4, EFFECT_ID_BYTES - 4);
    free_ops(ops);
}

static void the_text_of_a_number(void **state)
{
    struct write_op op = numbered(1, 1);
    const struct write_op *ops[] = {&op};
    int64_t number = 42;
    struct log_command c = {.kind = LOG_WRITE, .ops = ops, .n = 1, .numbers = &number};
    bson_t document = BSON_INITIALIZER;
    bson_iter_t at;

    (void)state;
    with_sequence(SEQUENCE_BLOCK);
    op.effects->number->before = mem_text("A-");
    op.effects->number->behind = mem_text("!");
    op.effects->number->digits = 4;
    log_event_document(&route, &c, 0, &document);
    assert_true(bson_iter_init_find(&at, &document, "ref"));
    assert_string_equal(bson_iter_utf8(&at, NULL), "A-0042!");
    bson_destroy(&document);
    free_ops(OPS(op));
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
    const struct CMUnitTest tests[] = {
        TEST(a_counter_document_is_moved_once_for_all),
        TEST(duplicates_move_nothing),
        TEST(what_is_open_is_completed_as_it_stands),
        TEST(what_a_payload_says_is_not_done),
        TEST(followers_wait_with_their_leader),
        TEST(a_counter_that_is_missing),
        TEST(overflow_is_the_fault_of_one),
        TEST(a_double_is_no_counter),
        TEST(a_counter_that_cannot_be_made),
        TEST(a_sleeper_comes_back_whenever_it_likes),
        TEST(the_clock_goes_back_by_the_margin),
        TEST(the_clock_goes_back_by_more),
        TEST(a_refused_step_is_not_closed),
        TEST(what_is_not_closed_is_not_over),
        TEST(an_id_is_not_older_than_its_event),
        TEST(ids_of_what_is_open_are_kept),
        TEST(nothing_is_begun_when_it_is_too_late),
        TEST(keep_and_one_more),
        TEST(a_block_for_each_group),
        TEST(the_highest_and_one),
        TEST(the_highest_is_below_start),
        TEST(a_number_that_is_taken),
        TEST(a_counter_that_lags),
        TEST(a_text_that_is_taken),
        TEST(the_last_numbers),
        TEST(two_routes_have_ids_of_their_own),
        TEST(the_text_of_a_number),
        TEST(removals_come_before_what_is_added_behind_them),
        TEST(what_was_refused_is_tried_again),
        TEST(what_was_done_is_not_tried_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
