#include "core/plan.h"

#include <stdint.h>
#include <string.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/culprit.h"
#include "core/look.h"

enum {
    OP_OVERHEAD =
        128, /* of one operation in a command: q, u, $setOnInsert, upsert and their lengths */
    ECHO_OVERHEAD =
        1024, /* of one error in a reply beside the key, which comes as text and as value */
    ECHO_MAX = 12 << 20, /* of all errors of a command: the reply is one document below 16 MiB */
    LOOKS_MAX =
        2, /* how often E11000 and "not found" contradict each other before it is believed */
    LOOK_OPS_MAX = 1000,      /* of one read; see look.h for what it costs */
    LOOK_BYTES_MAX = 4 << 20, /* of their filters: a read is one document below 16 MiB */
    LONE_FAILURES_MAX =
        2, /* how many members may fail alone for an unknown reason before it is everybody's */
};

enum item_state {
    ITEM_WAITING, /* to be sent; a folded one waits for its leader */
    ITEM_SENT,    /* in the command that is out */
    ITEM_LOOKING, /* waits for a read */
    ITEM_DONE     /* its result is final */
};

enum look_why {
    LOOK_FIRST,   /* before anything is sent: what is there need not be */
    LOOK_REFUSED, /* E11000: is it there? */
    LOOK_COMPARE  /* it is there: with which content? */
};

struct item {
    enum item_state state;
    uint32_t lane;   /* index into lanes; NO_LANE: none */
    uint32_t leader; /* the first with the same filter; itself when it is that one */
    uint32_t heir; /* of a leader that can never be stored: the next that was tried. 0: none (never
                      item 0) */
    unsigned looked;
    enum look_why why;
    bool look_alone; /* a read of many could not tell */
    bool present;    /* the document of its key is there */
    bool has_stored; /* it says of which payload it is */
    uint8_t stored[CANONICAL_HASH_BYTES];
};

struct lane_state {
    const void *name;
    size_t waiting;    /* how many of it are not done; only right after count_waiting() */
    uint32_t in;       /* stamp: a member is in the command being gathered */
    uint32_t held;     /* stamp: an earlier member is not, so no later one may be */
    size_t blocked_at; /* the first member that failed for now: nothing behind it may be applied;
                          SIZE_MAX */
    enum retry_class why;
    int code;
};

#define NO_LANE UINT32_MAX

struct plan {
    struct plan_limits limits;
    struct plan_rules rules;
    const struct write_op *ops;
    size_t n, cap;

    struct item *items;               /* cap */
    struct outcome *results;          /* cap; n_results of them may hold text */
    struct outcome *judged;           /* cap */
    const struct write_op **sent_ops; /* cap */
    uint32_t *sent;                   /* cap; indexes of the command that is out */
    size_t n_sent;
    struct lane_state *lanes; /* cap */
    size_t n_lanes;
    uint32_t *slots; /* n_slots, a power of two >= 2 * cap: open addressing; index + 1, 0 empty */
    size_t n_slots;

    size_t from;        /* all before it are done */
    size_t looking;     /* how many are ITEM_LOOKING */
    struct look *look;  /* the read that is out */
    bool *found;        /* cap; by place in it */
    bool look_strange;  /* a document of its answer is of none of its operations, by its bytes */
    bool looked_ahead;  /* see look_ahead() */
    size_t split_limit; /* most operations of the next command while halving; max_ops otherwise */
    size_t stops;       /* ordered commands that ended early */
    size_t lone_failures;
    uint32_t stamp;
    bool one_per_lane; /* see plan.h: stopped too often */
    bool stored_some;  /* of this batch */
    bool out;          /* a command is out */
    bool out_is_look;
};

struct plan *plan_new(const struct plan_limits *limits)
{
    struct plan *p = mem_new(sizeof *p);

    p->limits = *limits;
    if (p->limits.max_ops == 0)
        p->limits.max_ops = 1;
    p->look = look_new();
    return p;
}

static void clear_results(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++)
        if (p->results[i].text)
            outcome_clear(&p->results[i]);
}

void plan_free(struct plan *p)
{
    if (!p)
        return;
    clear_results(p);
    mem_free(p->items);
    mem_free(p->results);
    mem_free(p->judged);
    mem_free(p->sent_ops);
    mem_free(p->sent);
    mem_free(p->lanes);
    mem_free(p->slots);
    mem_free(p->found);
    look_free(p->look);
    mem_free(p);
}

static void make_room(struct plan *p, size_t n)
{
    if (n <= p->cap)
        return;
    size_t cap = p->cap ? p->cap : 64;
    while (cap < n)
        cap *= 2;
    MUST(cap < UINT32_MAX / 4);
    p->cap = cap;
    p->items = mem_grow(p->items, cap, sizeof *p->items);
    p->results = mem_grow(p->results, cap, sizeof *p->results);
    p->judged = mem_grow(p->judged, cap, sizeof *p->judged);
    p->sent_ops = mem_grow(p->sent_ops, cap, sizeof *p->sent_ops);
    p->sent = mem_grow(p->sent, cap, sizeof *p->sent);
    p->found = mem_grow(p->found, cap, sizeof *p->found);
    p->lanes = mem_grow(p->lanes, cap, sizeof *p->lanes);
    p->n_slots = 2 * cap;
    p->slots = mem_grow(p->slots, p->n_slots, sizeof *p->slots);
}

/* Points every operation to the first one with the same filter. */
static void fold(struct plan *p)
{
    size_t mask = p->n_slots - 1;

    memset(p->slots, 0, p->n_slots * sizeof *p->slots);
    for (size_t i = 0; i < p->n; i++) {
        const bson_t *f = p->ops[i].filter;
        size_t at = (size_t)XXH3_64bits(bson_get_data(f), f->len) & mask;
        while (p->slots[at] && !bson_equal(p->ops[p->slots[at] - 1].filter, f))
            at = (at + 1) & mask;
        if (!p->slots[at])
            p->slots[at] = (uint32_t)i + 1;
        p->items[i] = (struct item){.leader = p->slots[at] - 1, .look_alone = p->ops[i].alone};
    }
}

/* Gives every lane a small number. */
static void number_lanes(struct plan *p)
{
    size_t mask = p->n_slots - 1;

    memset(p->slots, 0, p->n_slots * sizeof *p->slots);
    p->n_lanes = 0;
    for (size_t i = 0; i < p->n; i++) {
        const void *name = p->ops[i].lane;
        if (!name) {
            p->items[i].lane = NO_LANE;
            continue;
        }
        size_t at = (size_t)XXH3_64bits(&name, sizeof name) & mask;
        while (p->slots[at] && p->lanes[p->slots[at] - 1].name != name)
            at = (at + 1) & mask;
        if (!p->slots[at]) {
            p->lanes[p->n_lanes++] = (struct lane_state){.name = name, .blocked_at = SIZE_MAX};
            p->slots[at] = (uint32_t)p->n_lanes;
        }
        p->items[i].lane = p->slots[at] - 1;
    }
}

static size_t leader_of(struct plan *p, size_t i);
static bool is_blocked(const struct plan *p, size_t i);

static void start_look(struct plan *p, size_t i, enum look_why why)
{
    p->items[i].state = ITEM_LOOKING;
    p->items[i].why = why;
    p->looking++;
}

/*
 * Reads before anything is sent, for what is still to be inserted: an insert that finds its
 * document there costs an error, and in an ordered command a stop, so a lane full of duplicates
 * would take two round trips for each.
 */
static void look_ahead(struct plan *p)
{
    p->looked_ahead = true;
    for (size_t i = p->from; i < p->n; i++) {
        const struct item *item = &p->items[i];

        if (item->state == ITEM_WAITING && !item->present && !is_blocked(p, i) &&
            (p->rules.look_first || p->ops[i].kind == WRITE_KIND_INSERT) && leader_of(p, i) == i)
            start_look(p, i, LOOK_FIRST);
    }
}

void plan_begin(struct plan *p, const struct write_op *ops, size_t n,
                const struct plan_rules *rules)
{
    clear_results(p);
    make_room(p, n);
    p->rules = rules ? *rules : (struct plan_rules){0};
    p->ops = ops;
    p->n = n;
    for (size_t i = 0; i < n; i++)
        p->results[i] = (struct outcome){.fate = FATE_UNKNOWN};
    if (n > 0) {
        fold(p);
        number_lanes(p);
    }
    p->n_sent = p->from = p->looking = p->stops = p->lone_failures = 0;
    p->split_limit = p->limits.max_ops;
    p->stamp = 0;
    p->one_per_lane = p->out = p->stored_some = p->looked_ahead = false;
    if (p->rules.look_first)
        look_ahead(p);
}

/* Takes o's text. */
static void done(struct plan *p, size_t i, struct outcome o)
{
    struct item *item = &p->items[i];

    if (item->state == ITEM_LOOKING)
        p->looking--;
    item->state = ITEM_DONE;
    item->present = item->present || o.fate == FATE_INSERTED || o.fate == FATE_DUPLICATE;
    mem_free(p->results[i].text);
    p->results[i] = o;
    p->stored_some = p->stored_some || o.fate == FATE_INSERTED;
    if (item->lane == NO_LANE || (o.fate != FATE_LATER && o.fate != FATE_UNKNOWN))
        return;
    struct lane_state *lane = &p->lanes[item->lane];
    if (i < lane->blocked_at) {
        lane->blocked_at = i;
        lane->why = o.retry;
        lane->code = o.code;
    }
}

static uint32_t last_heir(const struct plan *p, uint32_t leader)
{
    while (p->items[leader].heir)
        leader = p->items[leader].heir;
    return leader;
}

/* The first that is still to be tried of those that have this leader, whoever asks: with a later
 * one two lanes could wait for each other, each for what stands behind the other's. */
static uint32_t heir_of(const struct plan *p, uint32_t leader, size_t asking)
{
    for (size_t k = p->from; k < asking; k++)
        if (p->items[k].state != ITEM_DONE && !is_blocked(p, k) &&
            last_heir(p, p->items[k].leader) == leader)
            return (uint32_t)k;
    return (uint32_t)asking;
}

/* Whose result i will share; i itself when it has to be tried, because those before it can never be
 * stored. */
static size_t leader_of(struct plan *p, size_t i)
{
    struct item *item = &p->items[i];

    item->leader = last_heir(p, item->leader);
    const struct item *leader = &p->items[item->leader];
    if (item->leader != i && leader->state == ITEM_DONE && !leader->present &&
        p->results[item->leader].fate == FATE_NEVER) {
        uint32_t heir = heir_of(p, item->leader, i);

        p->items[item->leader].heir = heir;
        item->leader = heir;
    }
    return item->leader;
}

/* Has the document that is there, for operations with this leader, another payload than i's? */
static bool is_other_content(const struct plan *p, size_t i, size_t leader)
{
    const char *field = p->rules.conflict_field;
    uint8_t own[CANONICAL_HASH_BYTES], stored[CANONICAL_HASH_BYTES];

    if (p->rules.conflict == CONFLICT_OFF || !look_hash(p->ops[i].document, field, own))
        return false;
    if (p->results[leader].fate == FATE_INSERTED)
        return look_hash(p->ops[leader].document, field, stored) &&
               memcmp(own, stored, sizeof own) != 0;
    return p->items[leader].has_stored && memcmp(own, p->items[leader].stored, sizeof own) != 0;
}

/* The document of its key is there, as its leader knows. */
static void done_present(struct plan *p, size_t i, size_t leader)
{
    struct outcome o = {.fate = FATE_DUPLICATE, .conflict = is_other_content(p, i, leader)};

    if (o.conflict && p->rules.conflict == CONFLICT_DEAD_LETTER) {
        o.fate = FATE_NEVER;
        o.reason = REASON_CONFLICT;
        o.text = mem_printf("the document with this dedup key is of another payload (its %s says "
                            "so)",
                            p->rules.conflict_field);
    }
    p->items[i].present = true;
    done(p, i, o);
}

static bool is_blocked(const struct plan *p, size_t i)
{
    uint32_t lane = p->items[i].lane;

    return lane != NO_LANE && i > p->lanes[lane].blocked_at;
}

/* What is settled behind one that is not would overtake it, if the check of its content was still
 * to come: both are sent again. */
static void unsettle(struct plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct outcome *o = &p->results[i];

        if (!is_blocked(p, i) || o->fate == FATE_LATER || o->fate == FATE_UNKNOWN)
            continue;
        const struct lane_state *lane = &p->lanes[p->items[i].lane];
        mem_free(o->text);
        *o = (struct outcome){.fate = FATE_UNKNOWN, .retry = lane->why, .code = lane->code};
    }
}

/* Everything that is not done gets LATER; what may have been tried gets UNKNOWN. */
static void give_up(struct plan *p, enum retry_class retry, int code)
{
    for (size_t i = p->from; i < p->n; i++) {
        const struct item *item = &p->items[i];
        size_t leader;

        if (item->state == ITEM_DONE)
            continue;
        leader = leader_of(p, i);
        if (p->items[leader].present && !is_blocked(p, i))
            done_present(p, i, leader);
        else
            done(p, i,
                 (struct outcome){.fate = item->state == ITEM_LOOKING && item->why != LOOK_FIRST
                                              ? FATE_UNKNOWN
                                              : FATE_LATER,
                                  .retry = retry,
                                  .code = code});
    }
    p->from = p->n;
    unsettle(p);
}

void plan_stop(struct plan *p, enum retry_class retry)
{
    MUST(!p->out);
    give_up(p, retry, 0);
}

/* The longest lane of what is left decides whether ordered commands or one per lane cost fewer
 * round trips. */
static size_t longest_lane(struct plan *p)
{
    size_t longest = 0;

    for (size_t l = 0; l < p->n_lanes; l++)
        p->lanes[l].waiting = 0;
    for (size_t i = p->from; i < p->n; i++) {
        if (p->items[i].state == ITEM_DONE || p->items[i].lane == NO_LANE)
            continue;
        size_t waiting = ++p->lanes[p->items[i].lane].waiting;
        if (waiting > longest)
            longest = waiting;
    }
    return longest;
}

/* The command being gathered. */
struct gather {
    enum write_kind kind;
    size_t bytes, echo;
    size_t max_ops;
    bool ordered, full;
    bool alone; /* the turn of those that have to be alone: nothing else can be sent */
};

static bool fits(const struct plan *p, const struct gather *g, const struct write_op *op)
{
    size_t bytes = (size_t)op->filter->len + op->document->len;

    if (p->n_sent == 0)
        return true;
    return op->kind == g->kind && p->n_sent < g->max_ops &&
           g->bytes + bytes + OP_OVERHEAD <= p->limits.max_bytes &&
           g->echo + 2 * bytes + ECHO_OVERHEAD <= ECHO_MAX;
}

static void put(struct plan *p, struct gather *g, size_t i)
{
    const struct write_op *op = &p->ops[i];
    size_t bytes = (size_t)op->filter->len + op->document->len;

    if (p->n_sent == 0)
        g->kind = op->kind;
    g->bytes += bytes + OP_OVERHEAD;
    g->echo += 2 * bytes + ECHO_OVERHEAD;
    p->sent[p->n_sent] = (uint32_t)i;
    p->sent_ops[p->n_sent++] = op;
    p->items[i].state = ITEM_SENT;
}

/* The operation leads and no earlier one of its lane is left out: into the command, if it may. */
static bool try_put(struct plan *p, struct gather *g, size_t i, bool behind_another)
{
    if (behind_another && p->one_per_lane)
        return false;
    if (p->ops[i].alone != g->alone)
        return false;
    if (!fits(p, g, &p->ops[i])) {
        g->full = g->full || p->n_sent >= g->max_ops;
        return false;
    }
    put(p, g, i);
    g->ordered = g->ordered || behind_another;
    g->full = g->alone;
    return true;
}

/* Decides about one operation that is not done: its result, in the command, or its lane waits
 * behind it. */
static void gather_one(struct plan *p, struct gather *g, size_t i)
{
    const struct item *item = &p->items[i];
    struct lane_state *lane = item->lane == NO_LANE ? NULL : &p->lanes[item->lane];

    if (lane && lane->held == p->stamp)
        return;
    if (lane && is_blocked(p, i)) {
        done(p, i, (struct outcome){.fate = FATE_LATER, .retry = lane->why, .code = lane->code});
        return;
    }
    bool behind_another = lane && lane->in == p->stamp;
    size_t leader = leader_of(p, i);
    const struct item *lead = &p->items[leader];
    bool goes;
    if (lead->present) {
        if (!behind_another) {
            done_present(p, i, leader);
            return;
        }
        goes = true; /* those of its lane that are still on their way come first: they may fail */
    } else if (leader == i) {
        goes = try_put(p, g, i, behind_another);
    } else if (lead->state == ITEM_DONE) { /* it failed for now */
        const struct outcome *o = &p->results[leader];
        if (!behind_another) {
            done(p, i, (struct outcome){.fate = FATE_LATER, .retry = o->retry, .code = o->code});
            return;
        }
        goes = false;
    } else {
        /* With its leader in this command, what is behind it in its lane has to come behind the
         * leader. */
        goes = lead->state == ITEM_SENT && !p->one_per_lane;
    }
    if (lane && goes)
        lane->in = p->stamp;
    else if (lane)
        lane->held = p->stamp;
}

static bool next_command(struct plan *p, struct plan_command *command)
{
    struct gather g = {0};

    if (!p->one_per_lane && p->stops > 0)
        p->one_per_lane = p->stops > longest_lane(p);
    p->n_sent = 0;
    for (int turn = 0; turn < 2 && p->n_sent == 0; turn++) {
        g = (struct gather){.max_ops = p->split_limit, .alone = turn == 1};
        p->stamp++;
        for (size_t i = p->from; i < p->n && !g.full; i++)
            if (p->items[i].state != ITEM_DONE)
                gather_one(p, &g, i);
    }
    while (p->from < p->n && p->items[p->from].state == ITEM_DONE)
        p->from++;
    if (p->n_sent == 0) {
        MUST(p->from == p->n);
        return false;
    }
    *command =
        (struct plan_command){.kind = g.kind == WRITE_KIND_INSERT ? PLAN_INSERT : PLAN_UPSERT,
                              .ordered = g.ordered,
                              .ops = p->sent_ops,
                              .n = p->n_sent};
    return true;
}

/* The next read: of many, and of one that a read of many could not tell about when only such are
 * left. */
static void next_look(struct plan *p, struct plan_command *command)
{
    size_t max = p->limits.max_ops < LOOK_OPS_MAX ? p->limits.max_ops : LOOK_OPS_MAX;
    size_t bytes = 0, lone = SIZE_MAX;

    p->n_sent = 0;
    for (size_t i = p->from; i < p->n && p->n_sent < max; i++) {
        if (p->items[i].state != ITEM_LOOKING)
            continue;
        if (p->items[i].look_alone) {
            lone = lone == SIZE_MAX ? i : lone;
            continue;
        }
        bytes += p->ops[i].filter->len + OP_OVERHEAD;
        if (p->n_sent > 0 && bytes > LOOK_BYTES_MAX)
            break;
        p->sent[p->n_sent] = (uint32_t)i;
        p->sent_ops[p->n_sent++] = &p->ops[i];
    }
    if (p->n_sent == 0) {
        MUST(lone != SIZE_MAX);
        p->sent[0] = (uint32_t)lone;
        p->sent_ops[p->n_sent++] = &p->ops[lone];
    }
    memset(p->found, 0, p->n_sent * sizeof *p->found);
    p->look_strange = false;
    look_begin(p->look, p->sent_ops, p->n_sent);
    *command = (struct plan_command){.kind = PLAN_LOOK, .ops = p->sent_ops, .n = p->n_sent};
}

bool plan_next(struct plan *p, struct plan_command *command)
{
    MUST(!p->out);
    p->out_is_look = p->looking > 0;
    if (!p->out_is_look) {
        p->out = next_command(p, command);
        return p->out;
    }
    next_look(p, command);
    p->out = true;
    return true;
}

/* Takes the text of judged[k]. */
static void take_answer(struct plan *p, size_t k)
{
    size_t i = p->sent[k];
    struct item *item = &p->items[i];
    struct outcome *o = &p->judged[k];

    switch (o->fate) {
    case FATE_NOT_RUN:
    case FATE_SPLIT:
        mem_free(o->text);
        item->state = ITEM_WAITING;
        return;
    case FATE_LOOK:
        start_look(p, i, LOOK_REFUSED);
        mem_free(p->results[i].text);
        p->results[i] = *o; /* its text is wanted when the read finds nothing */
        return;
    case FATE_DUPLICATE:
        if (p->rules.conflict != CONFLICT_OFF)
            start_look(p, i, LOOK_COMPARE);
        else
            done(p, i, *o);
        return;
    case FATE_INSERTED:
    case FATE_LATER:
    case FATE_UNKNOWN:
    case FATE_NEVER:
        done(p, i, *o);
        return;
    }
}

/* One that was alone failed for an unknown reason. */
static void lone_failure(struct plan *p)
{
    enum retry_class retry = p->judged[0].retry;
    int code = p->judged[0].code;
    bool suspected = p->sent_ops[0]->alone;

    take_answer(p, 0);
    if (suspected && p->stored_some) /* as expected: others pass */
        return;
    if (++p->lone_failures >= LONE_FAILURES_MAX) /* it hits whatever is sent */
        give_up(p, retry, code);
}

/* Refused as a whole: halve it, or, when it is alone, that is the culprit. */
static void split(struct plan *p)
{
    struct outcome *o = &p->judged[0];

    if (p->n_sent > 1) {
        p->split_limit = p->n_sent / 2;
        for (size_t k = 0; k < p->n_sent; k++)
            take_answer(p, k);
        return;
    }
    bool by_driver = o->code == 0 && o->reason != REASON_NONE; /* it was never sent */
    if (by_driver || culprit_can_be(o->reason, p->sent_ops[0])) {
        o->fate = FATE_NEVER;
        o->retry = RETRY_NONE;
        take_answer(p, 0);
        return;
    }
    o->fate = FATE_UNKNOWN;
    o->reason = REASON_NONE;
    o->doubt = DOUBT_ALONE;
    lone_failure(p);
}

void plan_reply(struct plan *p, const struct outcome_call *call, const bson_t *reply)
{
    size_t not_run = 0;
    bool refused = false;

    MUST(p->out && !p->out_is_look);
    p->out = false;
    bool each = outcome_judge(call, reply, p->n_sent, p->judged);
    if (!each && p->judged[0].fate == FATE_SPLIT) {
        split(p);
        return;
    }
    if (each && p->sent_ops[0]->alone && p->judged[0].doubt == DOUBT_ALONE) {
        lone_failure(p);
        return;
    }
    enum retry_class retry = p->judged[0].retry;
    int code = p->judged[0].code;
    for (size_t k = 0; k < p->n_sent; k++) {
        not_run += p->judged[k].fate == FATE_NOT_RUN;
        refused = refused || p->judged[k].fate == FATE_LOOK;
        take_answer(p, k);
    }
    if (!each) {
        give_up(p, retry, code);
        return;
    }
    p->stops += not_run > 0;
    if (refused && not_run > 0 && call->is_insert && !p->looked_ahead)
        look_ahead(p);
    p->lone_failures = 0;
    if (p->split_limit < p->limits.max_ops)
        p->split_limit =
            p->split_limit > p->limits.max_ops / 2 ? p->limits.max_ops : p->split_limit * 2;
}

void plan_found(struct plan *p, const bson_t *document)
{
    MUST(p->out && p->out_is_look);

    size_t k = look_find(p->look, document);
    if (k == SIZE_MAX) {
        p->look_strange = true;
        return;
    }
    struct item *item = &p->items[p->sent[k]];
    if (!p->found[k] && p->rules.conflict != CONFLICT_OFF)
        item->has_stored = look_hash(document, p->rules.conflict_field, item->stored);
    p->found[k] = true;
}

/* The read of many can't tell: each by itself. */
static void look_alone(struct plan *p)
{
    for (size_t k = 0; k < p->n_sent; k++)
        p->items[p->sent[k]].look_alone = !p->found[k];
}

/* The read has found nothing. */
static void looked_in_vain(struct plan *p, size_t i)
{
    struct item *item = &p->items[i];
    struct outcome o;

    switch (item->why) {
    case LOOK_FIRST:
        break;
    case LOOK_COMPARE: /* it has gone since; that it was there was acknowledged */
        done(p, i, (struct outcome){.fate = FATE_DUPLICATE});
        return;
    case LOOK_REFUSED:
        if (++item->looked < LOOKS_MAX)
            break;
        o = p->results[i];
        p->results[i].text = NULL; /* moves */
        o.fate = FATE_NEVER;
        o.retry = RETRY_NONE;
        o.reason = REASON_UNIQUE_CONFLICT;
        done(p, i, o);
        return;
    }
    item->state = ITEM_WAITING;
    p->looking--;
}

void plan_looked(struct plan *p, const struct outcome_call *call)
{
    struct outcome o;

    MUST(p->out && p->out_is_look);
    p->out = false;
    if (call->fault != CALL_FINE) {
        memset(p->found, 0, p->n_sent * sizeof *p->found);
        bool somebody = outcome_may_be_one_of_many(call);
        if (somebody && p->n_sent > 1) {
            look_alone(p);
            return;
        }
        outcome_of_failure(call, &o);
        if (somebody && o.code != 0) { /* as for a write that is not understood */
            o.doubt = DOUBT_ALONE;
            o.text = mem_text(call->message ? call->message : "the read was refused");
            done(p, p->sent[0], o);
        }
        give_up(p, o.retry, o.code);
        return;
    }
    if (p->look_strange)
        look_alone(p);
    for (size_t k = 0; k < p->n_sent; k++) {
        struct item *item = &p->items[p->sent[k]];

        if (p->found[k]) {
            item->present = true;
            item->state = ITEM_WAITING; /* settled in its lane's order */
            p->looking--;
        } else if (!p->look_strange) {
            looked_in_vain(p, p->sent[k]);
        }
    }
}

const struct outcome *plan_results(const struct plan *p)
{
    MUST(!p->out && p->from == p->n);
    return p->results;
}
