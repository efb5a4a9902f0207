#include "fakes/fake_txn_db.h"

#include <string.h>

#include "base/mem.h"
#include "fakes/check.h"

enum { ODD_CODE = 424242, NUMBERS_OF_GROUP = 1024 };

/* Whatever can be written: a document, or a key of a unique index. */
struct value {
    bool there;
    int64_t a, b;
};
struct cell {
    struct value value;
    uint64_t at; /* of its last commit */
    int owner;   /* the session whose open transaction has written it */
};

struct session {
    bool open,
        committed; /* committed: its last one was, and a COMMIT that comes again is told so */
    uint64_t snapshot;
    int64_t begun;
    struct value *view;
    uint32_t *dirty;
    size_t n_dirty;
    uint32_t *events;
    size_t n_events;
};

struct fake_db {
    struct fake_db_shape shape;
    struct dice dice;
    struct cell *cells;
    size_t n;
    size_t entities, counters, groups, numbers, mails, fences; /* where their cells begin */
    struct session sessions[FAKE_DB_SESSIONS];
    uint64_t clock;
    uint32_t *applied;
    size_t n_applied;
    int64_t issued, *foreign; /* by group */
};

bool fake_db_counts(uint32_t counter, uint32_t account)
{
    return counter == 0 || account % 2 == 0;
}

bool fake_db_inexact(const struct fake_db_shape *shape, uint32_t counter, uint32_t account)
{
    return shape->doubles && counter == 0 && account % 3 == 1;
}

static size_t counter_cell(const struct fake_db *db, uint32_t counter, uint32_t account)
{
    return db->counters + counter * db->shape.accounts + account;
}

struct fake_db *fake_db_new(const struct fake_db_shape *shape, const struct dice *dice)
{
    struct fake_db *db = mem_new(sizeof *db);

    db->shape = *shape;
    db->dice = *dice;
    db->entities = shape->n;
    db->counters = db->entities + shape->entities;
    db->groups = db->counters + FAKE_DB_COUNTERS * (size_t)shape->accounts;
    db->numbers = db->groups + shape->groups;
    db->mails = db->numbers + shape->groups * (size_t)NUMBERS_OF_GROUP;
    db->fences = db->mails + shape->n;
    db->n = db->fences + shape->lanes;
    db->cells = mem_array(db->n, sizeof *db->cells);
    db->applied = mem_array(shape->n, sizeof *db->applied);
    db->foreign = mem_array(shape->groups, sizeof *db->foreign);
    for (size_t i = 0; i < db->n; i++)
        db->cells[i].owner = FAKE_DB_NOBODY;
    for (uint32_t i = 0; i < shape->accounts; i++)
        db->cells[counter_cell(db, 1, i)].value.there = fake_db_counts(1, i);
    for (int s = 0; s < FAKE_DB_SESSIONS; s++) {
        db->sessions[s].view = mem_array(db->n, sizeof(struct value));
        db->sessions[s].dirty = mem_array(db->n, sizeof(uint32_t));
        db->sessions[s].events = mem_array(shape->n, sizeof(uint32_t));
    }
    return db;
}

void fake_db_free(struct fake_db *db)
{
    for (int s = 0; s < FAKE_DB_SESSIONS; s++) {
        mem_free(db->sessions[s].view);
        mem_free(db->sessions[s].dirty);
        mem_free(db->sessions[s].events);
    }
    mem_free(db->cells);
    mem_free(db->applied);
    mem_free(db->foreign);
    mem_free(db);
}

void fake_db_calm(struct fake_db *db)
{
    db->shape.trouble = 0;
}

/* --- transactions --- */

static void end_transaction(struct fake_db *db, int s, bool commit)
{
    struct session *t = &db->sessions[s];

    if (!t->open)
        return;
    db->clock += commit;
    for (size_t i = 0; i < t->n_dirty; i++) {
        struct cell *cell = &db->cells[t->dirty[i]];

        cell->owner = FAKE_DB_NOBODY;
        if (commit) {
            cell->value = t->view[t->dirty[i]];
            cell->at = db->clock;
        }
    }
    for (size_t i = 0; commit && i < t->n_events; i++)
        db->applied[db->n_applied++] = t->events[i];
    t->open = false;
    t->committed = commit;
}

static void begin_transaction(struct fake_db *db, int s, int64_t now)
{
    struct session *t = &db->sessions[s];

    end_transaction(db, s, false); /* the server does so with the session's next number */
    *t = (struct session){.open = true,
                          .snapshot = db->clock,
                          .begun = now,
                          .view = t->view,
                          .dirty = t->dirty,
                          .events = t->events};
    for (size_t i = 0; i < db->n; i++)
        t->view[i] = db->cells[i].value;
}

static void expire(struct fake_db *db, int64_t now)
{
    for (int s = 0; s < FAKE_DB_SESSIONS; s++)
        if (db->sessions[s].open && now - db->sessions[s].begun > db->shape.lifetime)
            end_transaction(db, s, false);
}

/* 0, or 112. */
static int write_cell(struct fake_db *db, int s, size_t i, struct value value)
{
    struct session *t = &db->sessions[s];
    struct cell *cell = &db->cells[i];

    if (cell->owner != s && (cell->owner != FAKE_DB_NOBODY || cell->at > t->snapshot))
        return 112;
    if (cell->owner != s) {
        cell->owner = s;
        t->dirty[t->n_dirty++] = (uint32_t)i;
    }
    t->view[i] = value;
    return 0;
}

/* 0, 112 or 11000. */
static int insert_cell(struct fake_db *db, int s, size_t i, struct value value)
{
    const struct cell *cell = &db->cells[i];

    if (db->sessions[s].view[i].there)
        return 11000;
    if (cell->owner == FAKE_DB_NOBODY && cell->value.there && cell->at > db->sessions[s].snapshot &&
        dice_below(&db->dice, 2))
        return 11000;
    value.there = true;
    return write_cell(db, s, i, value);
}

/* --- commands --- */

static int64_t id_of(const bson_t *b)
{
    bson_iter_t at;

    CHECK(bson_iter_init(&at, b) && bson_iter_next(&at), "a filter is empty%s", "");
    return bson_iter_int64(&at);
}

struct answer {
    int code; /* 0: none; of the operation `at`, or of the whole command */
    bool whole, of_sequence;
    size_t at, n;
};

static int add_field(struct fake_db *db, int s, size_t cell, int64_t first, int64_t second)
{
    struct value v = db->sessions[s].view[cell];

    if (__builtin_add_overflow(v.a, first, &v.a) || __builtin_add_overflow(v.b, second, &v.b))
        return 2;
    v.there = true;
    return write_cell(db, s, cell, v);
}

static void count(struct fake_db *db, int s, const struct txn_command *c, struct answer *a)
{
    for (; a->at < c->n_moves && a->code == 0; a->at += a->code == 0) {
        const struct txn_move *move = &c->moves[a->at];
        uint32_t account = (uint32_t)id_of(move->filter);
        size_t cell = counter_cell(db, c->counter, account);

        if (a->at > 0)
            CHECK(id_of(c->moves[a->at - 1].filter) != account, "%u is counted twice", account);
        if (!fake_db_counts(c->counter, account))
            continue;
        a->code = add_field(db, s, cell, move->by[0], c->counter == 0 ? move->by[1] : 0);
        a->n += a->code == 0;
    }
}

static void fence(struct fake_db *db, int s, const struct txn_command *c, struct answer *a)
{
    for (; a->at < c->n && a->code == 0; a->at += a->code == 0) {
        size_t cell = db->fences + (size_t)id_of(c->ops[a->at]->effects->fence);
        struct value v = db->sessions[s].view[cell];

        if (v.a != c->ops[a->at]->effects->fence_number)
            a->code = 11000;
        else
            a->code = write_cell(db, s, cell, v);
        a->n += a->code == 0;
    }
}

static size_t number_cell(const struct fake_db *db, uint32_t group, int64_t number)
{
    int64_t at = number - db->shape.start;

    CHECK(at >= 0 && at < NUMBERS_OF_GROUP, "group %u: number %" PRId64, group, number);
    return db->numbers + group * (size_t)NUMBERS_OF_GROUP + (size_t)at;
}

static int64_t highest(const struct fake_db *db, int s, uint32_t group)
{
    for (int64_t k = NUMBERS_OF_GROUP - 1; k >= 0; k--)
        if (db->sessions[s].view[number_cell(db, group, db->shape.start + k)].there)
            return db->shape.start + k;
    return db->shape.start - 1;
}

static void number(struct fake_db *db, int s, struct txn_plan *p, const struct txn_command *c,
                   struct answer *a)
{
    uint32_t group = (uint32_t)id_of(c->group);
    struct value v = db->sessions[s].view[db->groups + group];

    if (db->shape.mode == SEQUENCE_MAX) {
        txn_plan_number(p, highest(db, s, group) + c->count);
        return;
    }
    v.a = (v.there ? v.a : db->shape.start - 1) + c->count;
    v.there = true;
    a->code = write_cell(db, s, db->groups + group, v);
    a->whole = true;
    if (a->code == 0)
        txn_plan_number(p, v.a);
}

static void events(struct fake_db *db, int s, const struct txn_command *c, struct answer *a)
{
    for (; a->at < c->n && a->code == 0; a->at += a->code == 0) {
        uint32_t id = (uint32_t)id_of(c->ops[a->at]->filter);

        a->code = insert_cell(db, s, id, (struct value){.a = c->did[a->at]});
        if (a->code == 0)
            db->sessions[s].events[db->sessions[s].n_events++] = id;
        a->n += a->code == 0;
    }
}

/* The document of an event: 0, 112, 121 or 11000. */
static int insert_one(struct fake_db *db, int s, uint32_t id, int64_t number, struct answer *a)
{
    const struct fake_db_event *e = &db->shape.events[id];
    size_t doc = db->shape.operation ? db->entities + e->entity : id;
    int code = 0;

    if (e->invalid)
        return 121;
    code = insert_cell(db, s, doc, (struct value){.a = id, .b = number});
    if (code == 0 && db->shape.mails)
        code = insert_cell(db, s, db->mails + e->mail, (struct value){.a = id});
    if (code == 0 && db->shape.sequence) {
        code = insert_cell(db, s, number_cell(db, e->group, number), (struct value){.a = id});
        a->of_sequence = code == 11000;
    }
    if (code == 0 && !db->shape.operation)
        db->sessions[s].events[db->sessions[s].n_events++] = id;
    return code;
}

static int remove_one(struct fake_db *db, int s, uint32_t entity)
{
    const struct value v = db->sessions[s].view[db->entities + entity];
    const struct fake_db_event *e = &db->shape.events[v.a];
    int code = write_cell(db, s, db->entities + entity, (struct value){0});

    CHECK(v.there, "entity %u is removed and not there", entity);
    if (code == 0 && db->shape.mails)
        code = write_cell(db, s, db->mails + e->mail, (struct value){0});
    if (code == 0 && db->shape.sequence)
        code = write_cell(db, s, number_cell(db, e->group, v.b), (struct value){0});
    return code;
}

static void documents(struct fake_db *db, int s, const struct txn_command *c, struct answer *a)
{
    for (; a->at < c->n && a->code == 0; a->at += a->code == 0) {
        const struct write_op *op = c->ops[a->at];
        uint32_t id = (uint32_t)id_of(op->filter);

        if (a->at > 0)
            CHECK(c->ops[a->at - 1] < op, "event %u is not written in order", id);
        if (c->kind != TXN_INSERT)
            a->code = remove_one(db, s, (uint32_t)id_of(op->effects->entity));
        if (c->kind != TXN_DELETE && a->code == 0)
            a->code = insert_one(db, s, id, c->numbers ? c->numbers[a->at] : 0, a);
        a->n += a->code == 0;
    }
}

/* --- reads --- */

static void tell(struct txn_plan *p, const bson_t *like, bool remove)
{
    bson_t b = BSON_INITIALIZER;

    bson_concat(&b, like);
    BSON_APPEND_UTF8(&b, "op", remove ? "delete" : "insert");
    txn_plan_found(p, &b);
    bson_destroy(&b);
}

static void look(struct fake_db *db, struct txn_plan *p, const struct txn_command *c)
{
    CHECK(c->events == db->shape.operation, "looked up in the wrong place%s", "");
    for (size_t i = 0; i < c->n; i++) {
        int64_t id = id_of(c->ops[i]->filter);

        if (db->cells[id].value.there)
            tell(p, c->ops[i]->filter, db->shape.events[id].remove);
    }
}

static void state(struct fake_db *db, int s, struct txn_plan *p, const struct txn_command *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (db->sessions[s].view[db->entities + (size_t)id_of(c->ops[i]->filter)].there)
            txn_plan_found(p, c->ops[i]->filter);
}

static void check(struct fake_db *db, int s, struct txn_plan *p, const struct txn_command *c)
{
    for (size_t i = 0; i < c->n; i++) {
        uint32_t account = (uint32_t)id_of(c->ops[i]->filter);
        size_t cell = counter_cell(db, c->counter, account);

        CHECK(!fake_db_counts(c->counter, account) || db->cells[cell].owner == s,
              "%u is looked at and not moved", account);
        if (fake_db_inexact(&db->shape, c->counter, account))
            txn_plan_found(p, c->ops[i]->filter);
    }
}

/* --- answers --- */

static void add_error(bson_t *reply, const struct answer *a)
{
    bson_t list, one, pattern;

    BSON_APPEND_ARRAY_BEGIN(reply, "writeErrors", &list);
    BSON_APPEND_DOCUMENT_BEGIN(&list, "0", &one);
    BSON_APPEND_INT32(&one, "index", (int32_t)a->at);
    BSON_APPEND_INT32(&one, "code", a->code);
    BSON_APPEND_DOCUMENT_BEGIN(&one, "keyPattern", &pattern);
    BSON_APPEND_INT32(&pattern, a->of_sequence ? "seq" : "x", 1);
    bson_append_document_end(&one, &pattern);
    BSON_APPEND_UTF8(&one, "errmsg", "why");
    bson_append_document_end(&list, &one);
    bson_append_array_end(reply, &list);
}

static void answer_failure(struct txn_plan *p, enum call_fault fault, int code,
                           enum txn_label label)
{
    struct txn_call call = {.call = {.fault = fault, .code = code, .message = "why"},
                            .label = label};

    txn_plan_answer(p, &call, NULL);
}

static void answer(struct txn_plan *p, const struct answer *a)
{
    struct txn_call call = {.call = {.fault = CALL_FINE}};
    bson_t reply = BSON_INITIALIZER;

    if (a->code != 0 && (a->whole || a->code == 112)) {
        bson_destroy(&reply);
        answer_failure(p, CALL_SERVER, a->code,
                       a->code == 112 ? TXN_LABEL_TRANSIENT : TXN_LABEL_NONE);
        return;
    }
    BSON_APPEND_INT32(&reply, "n", (int32_t)a->n);
    if (a->code != 0)
        add_error(&reply, a);
    BSON_APPEND_INT32(&reply, "ok", 1);
    txn_plan_answer(p, &call, &reply);
    bson_destroy(&reply);
}

static void serve_commit(struct fake_db *db, int s, struct txn_plan *p)
{
    struct session *t = &db->sessions[s];
    bool lost = dice_permille(&db->dice, 4 * db->shape.trouble);
    struct answer done = {.code = 0};

    if (lost && dice_below(&db->dice, 2)) { /* it did not get there */
        answer_failure(p, CALL_NETWORK, 0, TXN_LABEL_UNKNOWN_COMMIT);
        return;
    }
    if (t->open && dice_permille(&db->dice, db->shape.trouble))
        end_transaction(db, s, false);
    if (t->open)
        end_transaction(db, s, true);
    if (lost)
        answer_failure(p, dice_below(&db->dice, 2) ? CALL_NETWORK : CALL_SERVER, 91,
                       TXN_LABEL_UNKNOWN_COMMIT);
    else if (!t->committed)
        answer_failure(p, CALL_SERVER, 251, TXN_LABEL_TRANSIENT);
    else
        answer(p, &done);
}

static void execute(struct fake_db *db, int s, struct txn_plan *p, const struct txn_command *c,
                    struct answer *a)
{
    switch (c->kind) {
    case TXN_FENCE:
        fence(db, s, c, a);
        break;
    case TXN_STATE:
        state(db, s, p, c);
        break;
    case TXN_COUNT:
        count(db, s, c, a);
        break;
    case TXN_CHECK:
        check(db, s, p, c);
        break;
    case TXN_NUMBER:
        number(db, s, p, c, a);
        break;
    case TXN_EVENTS:
        events(db, s, c, a);
        break;
    default:
        documents(db, s, c, a);
    }
}

/* A command inside of a transaction. */
static void serve_inside(struct fake_db *db, int s, struct txn_plan *p, const struct txn_command *c)
{
    bool lost = dice_permille(&db->dice, db->shape.trouble);
    struct answer a = {.code = 0};

    if (!db->sessions[s].open) {
        answer_failure(p, CALL_SERVER, 251, TXN_LABEL_TRANSIENT);
        return;
    }
    if (dice_permille(&db->dice, db->shape.trouble)) {
        static const int codes[] = {112, 251, ODD_CODE, 10107};
        int code = codes[dice_below(&db->dice, 4)];

        end_transaction(db, s, false);
        answer_failure(p, CALL_SERVER, code,
                       code == ODD_CODE ? TXN_LABEL_NONE : TXN_LABEL_TRANSIENT);
        return;
    }
    if (lost && dice_below(&db->dice, 2)) {
        answer_failure(p, CALL_NETWORK, 0, TXN_LABEL_TRANSIENT);
        return;
    }
    execute(db, s, p, c, &a);
    if (a.code != 0)
        end_transaction(db, s, false);
    if (lost)
        answer_failure(p, CALL_NETWORK, 0, TXN_LABEL_TRANSIENT);
    else
        answer(p, &a);
}

void fake_db_serve(struct fake_db *db, int s, int64_t now, struct txn_plan *p,
                   const struct txn_command *c)
{
    struct answer fine = {.code = 0};
    bool lost = dice_permille(&db->dice, db->shape.trouble);

    expire(db, now);
    switch (c->kind) {
    case TXN_LOOK:
        if (!lost)
            look(db, p, c);
        if (lost)
            answer_failure(p, CALL_NETWORK, 0, TXN_LABEL_NONE);
        else
            answer(p, &fine);
        break;
    case TXN_BEGIN:
        begin_transaction(db, s, now);
        answer(p, &fine);
        break;
    case TXN_COMMIT:
        serve_commit(db, s, p);
        break;
    case TXN_ABORT:
        if (!lost) /* else it keeps what it wrote until its time is up */
            end_transaction(db, s, false);
        answer(p, &fine);
        break;
    default:
        serve_inside(db, s, p, c);
    }
}

void fake_db_foreign(struct fake_db *db, uint32_t group)
{
    const struct value *v = &db->cells[db->groups + group].value;
    struct cell *cell =
        &db->cells[number_cell(db, group, (v->there ? v->a : db->shape.start - 1) + 1)];

    if (cell->owner != FAKE_DB_NOBODY || cell->value.there)
        return;
    cell->value.there = true;
    cell->at = ++db->clock;
    db->foreign[group]++;
}

void fake_db_raise(struct fake_db *db)
{
    for (uint32_t g = 0; g < db->shape.groups; g++) {
        struct cell *cell = &db->cells[db->groups + g];
        int64_t highest = db->shape.start + NUMBERS_OF_GROUP - 1;

        while (highest >= db->shape.start && !db->cells[number_cell(db, g, highest)].value.there)
            highest--;
        if (highest < db->shape.start || cell->owner != FAKE_DB_NOBODY ||
            (cell->value.there && cell->value.a >= highest))
            continue;
        cell->value = (struct value){.there = true, .a = highest};
        cell->at = ++db->clock;
    }
}

int64_t fake_db_issue(struct fake_db *db, uint32_t lane)
{
    struct cell *cell = &db->cells[db->fences + lane];

    if (cell->owner != FAKE_DB_NOBODY) /* it waits for the transaction; here: that one loses */
        end_transaction(db, cell->owner, false);
    cell->value.a = ++db->issued;
    cell->at = ++db->clock;
    return cell->value.a;
}

/* --- what is committed --- */

int64_t fake_db_foreigners(const struct fake_db *db, uint32_t group)
{
    return db->foreign[group];
}

bool fake_db_has_event(const struct fake_db *db, uint32_t event)
{
    return db->cells[event].value.there;
}

bool fake_db_did(const struct fake_db *db, uint32_t event)
{
    return db->shape.operation ? db->cells[event].value.a != 0 : db->cells[event].value.there;
}

int64_t fake_db_number(const struct fake_db *db, uint32_t event)
{
    return db->cells[event].value.b;
}

int64_t fake_db_entity(const struct fake_db *db, uint32_t entity)
{
    const struct value *v = &db->cells[db->entities + entity].value;

    return v->there ? v->a : FAKE_DB_NOBODY;
}

bool fake_db_counter(const struct fake_db *db, uint32_t counter, uint32_t account,
                     int64_t fields[FAKE_DB_FIELDS])
{
    const struct value *v = &db->cells[counter_cell(db, counter, account)].value;

    fields[0] = v->a;
    fields[1] = v->b;
    return v->there;
}

int64_t fake_db_group(const struct fake_db *db, uint32_t group)
{
    const struct value *v = &db->cells[db->groups + group].value;

    return v->there ? v->a : db->shape.start - 1;
}

const uint32_t *fake_db_applied(const struct fake_db *db, size_t *n)
{
    *n = db->n_applied;
    return db->applied;
}
