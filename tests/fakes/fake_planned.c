#include "fakes/fake_planned.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "core/look.h"
#include "fakes/check.h"

static const char hash_field[] = "h";
enum { ODD_CODE = 424242, MAX_UNKNOWN = 6 };

/* Documents stored by all of them; the suspicions need to know. */
static _Atomic uint64_t stored[FAKE_ROUTES];
static _Atomic uint64_t cleared[FAKE_ROUTES];

struct fake_planned {
    struct fake_planned_options o;
    struct plan *plan;
    struct write_op *ops;
    size_t n, cap;
    struct record *const *records;
    struct fake_planned_stats stats;
};

struct fake_planned *fake_planned_new(const struct fake_planned_options *options)
{
    struct fake_planned *f = mem_new(sizeof *f);
    struct plan_limits limits = {.max_ops = 20, .max_bytes = 1 << 20};

    f->o = *options;
    f->plan = plan_new(&limits);
    return f;
}

void fake_planned_free(struct fake_planned *f)
{
    plan_free(f->plan);
    mem_free(f->ops);
    mem_free(f);
}

struct fake_planned_stats fake_planned_stats(const struct fake_planned *f)
{
    return f->stats;
}

/* --- operations --- */

/* Every fourth repetition is of a payload of its own. */
static uint32_t payload_of(const struct fake_planned *f, const struct record *r)
{
    uint32_t index = fake_log_index(r), first = fake_log_entry(f->o.log, r)->first;

    return index % 4 == 3 ? index : first;
}

static void append_hash(bson_t *b, uint32_t payload)
{
    uint8_t hash[CANONICAL_HASH_BYTES] = {0};

    memcpy(hash, &payload, sizeof payload);
    BSON_APPEND_BINARY(b, hash_field, BSON_SUBTYPE_BINARY, hash, sizeof hash);
}

/* Half of the bad ones are refused with a code that nobody knows: 'e' with itself, 'w' with their
 * whole command, 0: not odd. None in partition 0, which is one lane. */
static char odd_of(const struct fake_planned *f, const struct record *r)
{
    static const char kinds[4] = {0, 'e', 'w', 0};

    return fake_log_entry(f->o.log, r)->bad && r->partition != 0 ? kinds[fake_log_index(r) % 4]
                                                                 : '\0';
}

static void op_begin(const struct fake_planned *f, struct write_op *op, const struct record *r)
{
    bool insert = f->o.write[r->route] != WRITE_UPSERT;

    *op = (struct write_op){.kind = insert ? WRITE_KIND_INSERT : WRITE_KIND_UPSERT,
                            .filter = bson_new(),
                            .document = bson_new(),
                            .lane = r->lane,
                            .alone = r->suspicion.code != 0};
    BSON_APPEND_INT64(op->filter, "p", r->partition);
    BSON_APPEND_INT64(op->filter, "k", fake_log_entry(f->o.log, r)->first);
    append_hash(op->document, payload_of(f, r));
}

static const struct record *record_of(const struct fake_planned *f, const struct write_op *op)
{
    return f->records[op - f->ops];
}

/* --- the server --- */

struct answer {
    bson_t upserted, errors;
    int32_t done, n_upserted, n_errors;
};

static void add_error(struct answer *a, int32_t index, int32_t code)
{
    char name[16];
    bson_t e;

    (void)snprintf(name, sizeof name, "%d", a->n_errors++);
    BSON_APPEND_DOCUMENT_BEGIN(&a->errors, name, &e);
    BSON_APPEND_INT32(&e, "index", index);
    BSON_APPEND_INT32(&e, "code", code);
    BSON_APPEND_UTF8(&e, "errmsg", "why");
    bson_append_document_end(&a->errors, &e);
}

static void add_upserted(struct answer *a, int32_t index)
{
    char name[16];
    bson_t e;

    (void)snprintf(name, sizeof name, "%d", a->n_upserted++);
    BSON_APPEND_DOCUMENT_BEGIN(&a->upserted, name, &e);
    BSON_APPEND_INT32(&e, "index", index);
    bson_append_document_end(&a->upserted, &e);
}

/* False: the command stops here. */
static bool execute(struct fake_planned *f, struct dice *dice, const struct plan_command *c,
                    size_t i, struct answer *a)
{
    if (dice_permille(dice, f->o.trouble)) {
        add_error(a, (int32_t)i, dice_below(dice, 2) ? 112 : ODD_CODE);
        return !c->ordered;
    }
    if (odd_of(f, record_of(f, c->ops[i])) == 'e') {
        add_error(a, (int32_t)i, ODD_CODE);
        return !c->ordered;
    }
    switch (fake_sink_execute(f->o.sink, record_of(f, c->ops[i]))) {
    case FAKE_INSERTED:
        if (c->kind == PLAN_UPSERT)
            add_upserted(a, (int32_t)i);
        break;
    case FAKE_DUPLICATE:
        if (c->kind == PLAN_UPSERT)
            break;
        add_error(a, (int32_t)i, 11000);
        return !c->ordered;
    case FAKE_NEVER:
    case FAKE_LATER:
        add_error(a, (int32_t)i, 121);
        return !c->ordered;
    }
    a->done++;
    return true;
}

/* The command as a whole gets a code that nobody knows, for one of its members or for none. */
static bool refuse(struct fake_planned *f, struct dice *dice, const struct plan_command *c)
{
    struct outcome_call call = {.fault = CALL_SERVER,
                                .code = ODD_CODE,
                                .ordered = c->ordered,
                                .is_insert = c->kind == PLAN_INSERT,
                                .message = "why"};
    bool refused = dice_permille(dice, f->o.trouble / 2);

    for (size_t i = 0; i < c->n; i++)
        refused = refused || odd_of(f, record_of(f, c->ops[i])) == 'w';
    if (refused)
        plan_reply(f->plan, &call, NULL);
    return refused;
}

static void serve_write(struct fake_planned *f, struct dice *dice, const struct plan_command *c)
{
    bool lost = dice_permille(dice, f->o.trouble); /* the connection breaks in the middle */
    size_t reach = lost ? dice_below(dice, c->n + 1) : c->n;
    struct outcome_call call = {.fault = lost ? CALL_NETWORK : CALL_FINE,
                                .ordered = c->ordered,
                                .is_insert = c->kind == PLAN_INSERT};
    struct answer a = {.done = 0};
    bson_t reply = BSON_INITIALIZER;
    bool goes_on = true;

    if (refuse(f, dice, c))
        return;
    bson_init(&a.upserted);
    bson_init(&a.errors);
    for (size_t i = 0; i < reach && goes_on; i++)
        goes_on = execute(f, dice, c, i, &a);
    BSON_APPEND_INT32(&reply, "n", a.done);
    BSON_APPEND_ARRAY(&reply, "upserted", &a.upserted);
    BSON_APPEND_ARRAY(&reply, "writeErrors", &a.errors);
    if (dice_permille(dice, f->o.trouble)) {
        bson_t concern;
        BSON_APPEND_DOCUMENT_BEGIN(&reply, "writeConcernError", &concern);
        BSON_APPEND_INT32(&concern, "code", 64);
        bson_append_document_end(&reply, &concern);
    }
    BSON_APPEND_INT32(&reply, "ok", 1);
    plan_reply(f->plan, &call, lost ? NULL : &reply);
    bson_destroy(&reply);
    bson_destroy(&a.upserted);
    bson_destroy(&a.errors);
}

static void serve_look(struct fake_planned *f, struct dice *dice, const struct plan_command *c)
{
    struct outcome_call call = {.fault =
                                    dice_permille(dice, f->o.trouble) ? CALL_NETWORK : CALL_FINE};

    f->stats.looks++;
    for (size_t i = 0; i < c->n; i++) {
        const struct record *r = record_of(f, c->ops[i]);
        uint32_t first = fake_log_entry(f->o.log, r)->first;
        bson_t found = BSON_INITIALIZER;

        if (fake_sink_has(f->o.sink, r)) {
            bson_concat(&found, c->ops[i]->filter);
            append_hash(&found, first);
            plan_found(f->plan, &found);
        }
        bson_destroy(&found);
    }
    plan_looked(f->plan, &call);
}

/* --- fates --- */

static enum fake_fate fate_of(struct fake_planned *f, const struct record *r,
                              const struct outcome *o)
{
    const struct fake_entry *e = fake_log_entry(f->o.log, r);
    enum config_conflict check = f->o.conflict[r->route];
    bool differs = check != CONFLICT_OFF && payload_of(f, r) != e->first;
    bool dead = differs && check == CONFLICT_DEAD_LETTER;

    switch (o->fate) {
    case FATE_INSERTED:
        CHECK(e->first == fake_log_index(r), "partition %d: offset %" PRId64 " was inserted",
              r->partition, r->offset);
        return FAKE_INSERTED;
    case FATE_DUPLICATE:
        CHECK(o->conflict == differs && !dead,
              "partition %d: offset %" PRId64 " is a duplicate, of another payload: %d",
              r->partition, r->offset, differs);
        f->stats.conflicts += o->conflict;
        fake_sink_known(f->o.sink, r);
        return FAKE_DUPLICATE;
    case FATE_NEVER:
        CHECK(o->reason == REASON_CONFLICT ? dead && e->first != fake_log_index(r) : e->bad,
              "partition %d: offset %" PRId64 " is dead for %s", r->partition, r->offset,
              reason_name(o->reason));
        if (o->reason == REASON_CONFLICT) {
            f->stats.conflicts++;
            fake_sink_known(f->o.sink, r);
        }
        return FAKE_NEVER;
    default:
        return FAKE_LATER;
    }
}

/* Nobody knows what became of r: as a worker does it. Only the odd ones may be given up. */
static enum fake_fate fate_of_unknown(struct fake_planned *f, struct record *r,
                                      const struct outcome *o, uint64_t inserted)
{
    const struct suspicion_signs signs = {.stored = atomic_load(&stored[r->route]),
                                          .cleared = atomic_load(&cleared[r->route]),
                                          .among_stored = inserted > 0};

    if (o->fate != FATE_UNKNOWN || o->doubt == DOUBT_NONE ||
        suspicion_judge(&r->suspicion, o, &signs, MAX_UNKNOWN) != SUSPICION_GUILTY)
        return FAKE_LATER;
    CHECK(odd_of(f, r) && strcmp(o->text, "why") == 0,
          "partition %d: offset %" PRId64 " is given up, and could have been stored", r->partition,
          r->offset);
    f->stats.given_up++;
    return fake_sink_execute(f->o.sink, r);
}

void fake_planned_write(struct fake_planned *f, struct dice *dice, int worker,
                        struct record *const *records, size_t n, enum fake_fate *fates)
{
    uint32_t route = records[0]->route;
    struct plan_rules rules = {.look_first = f->o.write[route] == WRITE_AUTO,
                               .conflict = f->o.conflict[route],
                               .conflict_field = hash_field};
    struct plan_command c;

    if (n > f->cap) {
        f->cap = n;
        f->ops = mem_grow(f->ops, n, sizeof *f->ops);
    }
    f->records = records;
    for (size_t i = 0; i < n; i++)
        op_begin(f, &f->ops[i], records[i]);
    fake_sink_enter(f->o.sink, worker, records, n);
    plan_begin(f->plan, f->ops, n, &rules);
    while (plan_next(f->plan, &c)) {
        f->stats.commands++;
        if (c.kind == PLAN_LOOK)
            serve_look(f, dice, &c);
        else
            serve_write(f, dice, &c);
        if (dice_permille(dice, f->o.trouble))
            plan_stop(f->plan, RETRY_TIMEOUT);
    }
    const struct outcome *o = plan_results(f->plan);
    uint64_t inserted = 0;
    for (size_t i = 0; i < n; i++) {
        inserted += o[i].fate == FATE_INSERTED;
        if (records[i]->suspicion.code != 0)
            atomic_fetch_add(&cleared[route],
                             o[i].fate == FATE_INSERTED || o[i].fate == FATE_DUPLICATE);
    }
    /* Another route into the collection stores something most of the time, to the very end. */
    atomic_fetch_add(&stored[route], inserted + dice_permille(dice, 800));
    for (size_t i = 0; i < n; i++) {
        fates[i] = fate_of(f, records[i], &o[i]);
        if (fates[i] == FAKE_LATER)
            fates[i] = fate_of_unknown(f, records[i], &o[i], inserted);
    }
    for (size_t i = 1; i < n; i++) /* a lane's records are adjacent */
        CHECK(fates[i] == FAKE_LATER || fates[i - 1] != FAKE_LATER || records[i]->lane == NULL ||
                  records[i]->lane != records[i - 1]->lane,
              "partition %d: offset %" PRId64 " is settled before %" PRId64 " of its lane",
              records[i]->partition, records[i]->offset, records[i - 1]->offset);
    fake_sink_leave(f->o.sink, records, n);
    for (size_t i = 0; i < n; i++)
        write_op_clear(&f->ops[i]);
}
