#include "cli/needs.h"

#include <stdio.h>
#include <string.h>

#include "base/log.h"

static bool needs_here(struct mongo *m, const struct config_route *r, struct needs *out,
                       struct err *e)
{
    enum mongo_way way;
    struct buf why = {0};
    bool ok = mongo_check_way(m, r, &way, &why, e);

    buf_clear(&why);
    if (ok)
        needs_of(r, way == MONGO_STEPWISE, out);
    return ok;
}

/* --- before run --- */

static bool prove_one(struct mongo *m, const struct config_route *r, const struct need_index *need,
                      struct err *e)
{
    bool made;

    return (!r->ensure_index || need->name[0] == '\0' || mongo_ensure_need(m, need, &made, e)) &&
           mongo_prove_need(m, need, e);
}

static bool make_collections(struct mongo *m, const struct needs *needs, struct err *e)
{
    bool made;

    for (size_t i = 0; i < needs->n_collections; i++)
        if (needs->collections[i].before &&
            !mongo_ensure_collection(m, &needs->collections[i], &made, e))
            return false;
    return true;
}

/*
 * All documents where that takes two seconds at most, else the newest: a start should not cost a
 * big collection's reading each time, in each process. What lags mostly does because documents were
 * imported or restored, and those are the newest. Were a number given twice all the same, the
 * unique index would refuse the document: a dead letter, and no double.
 */
static bool compare_sequence(struct mongo *m, const struct config_route *r, struct err *e)
{
    struct mongo_lag lag;

    if (!mongo_compare_sequence(m, r, MONGO_LAG_QUICK, NEEDS_QUICK_MS, &lag, e))
        return false;
    if (lag.sample)
        log_info("the sequence was compared with the newest documents only; check --connect "
                 "compares all",
                 LOG_TEXT("route", r->name));
    return lag.behind == 0 || mongo_lag_fail(r, &lag, e);
}

/* What the identity doesn't rest on. */
static bool prove_effects(struct mongo *m, const struct config_route *r, struct err *e)
{
    struct needs needs;
    bool ok = true;

    if (!needs_here(m, r, &needs, e))
        return false;
    for (size_t i = 1; ok && i < needs.n_indexes; i++)
        ok = prove_one(m, r, &needs.indexes[i], e);
    ok = ok && make_collections(m, &needs, e) && compare_sequence(m, r, e);
    needs_clear(&needs);
    return ok;
}

static bool prove_identity(struct mongo *m, const struct config_route *r, struct err *e)
{
    return (!r->ensure_index || mongo_make_index(m, r, e)) && mongo_prove_index(m, r, e);
}

bool needs_prove_route(struct mongo *m, const struct config_route *r, struct err *e)
{
    return prove_identity(m, r, e) && prove_effects(m, r, e);
}

bool needs_prove(struct mongo *m, const struct config *c, struct err *e)
{
    for (size_t i = 0; i < c->n_routes; i++) /* first of all unique ones, wherever */
        if (!prove_identity(m, &c->routes[i], e))
            return cli_wrap_route(e, &c->routes[i]);
    for (size_t i = 0; i < c->n_routes; i++)
        if (!prove_effects(m, &c->routes[i], e))
            return cli_wrap_route(e, &c->routes[i]);
    return true;
}

/* --- init --- */

static bool make_index(struct mongo *m, const struct need_index *need, struct err *e)
{
    bool made = false;

    if ((need->name[0] != '\0' && !mongo_ensure_need(m, need, &made, e)) ||
        !mongo_prove_need(m, need, e))
        return false;
    if (need->name[0] != '\0' || need->use == NEED_IDENTITY)
        printf("%s of %s.%s: %s\n", need->what, need->database, need->collection,
               made ? "made" : "there and right");
    return true;
}

static bool make_collection(struct mongo *m, const struct need_collection *c, struct err *e)
{
    bool made;

    if (!mongo_ensure_collection(m, c, &made, e))
        return false;
    printf("collection %s.%s (%s): %s\n", c->database, c->collection, c->what,
           made ? "made" : "was there");
    return true;
}

static bool align_sequence(struct mongo *m, const struct config_route *r, bool raise, struct err *e)
{
    const struct config_sequence *q = &r->sequence;
    struct mongo_lag lag;

    if (!config_has_sequence(r) || q->mode == SEQUENCE_MAX)
        return true;
    if (!mongo_compare_sequence(m, r, raise ? MONGO_LAG_RAISE : MONGO_LAG_ALL, 0, &lag, e))
        return false;
    if (lag.behind > 0 && !raise)
        return mongo_lag_fail(r, &lag, e);
    printf("sequence of %s.%s: ", r->database, r->collection);
    if (lag.impossible)
        puts("can't be compared, because the documents don't hold the group");
    else if (lag.behind > 0)
        printf("%zu of %zu counters raised in %s.%s\n", lag.behind, lag.groups, q->database,
               q->collection);
    else
        printf("no counter lags (%zu group%s)\n", lag.groups, lag.groups == 1 ? "" : "s");
    return true;
}

static bool make_effects(struct mongo *m, const struct config_route *r, bool raise, struct err *e)
{
    struct needs needs;
    bool ok = true;

    if (!needs_here(m, r, &needs, e))
        return false;
    for (size_t i = 1; ok && i < needs.n_indexes; i++)
        ok = make_index(m, &needs.indexes[i], e);
    for (size_t i = 1; ok && i < needs.n_collections; i++) /* the first has its index */
        ok = !needs.collections[i].before || make_collection(m, &needs.collections[i], e);
    ok = ok && align_sequence(m, r, raise, e);
    needs_clear(&needs);
    return ok;
}

bool needs_make(struct mongo *m, const struct config *c, bool raise, struct err *e)
{
    struct need_index need;

    for (size_t i = 0; i < c->n_routes; i++) {
        need_identity(&c->routes[i], &need);
        bool ok = make_index(m, &need, e);
        need_index_clear(&need);
        if (!ok)
            return cli_wrap_route(e, &c->routes[i]);
    }
    for (size_t i = 0; i < c->n_routes; i++)
        if (!make_effects(m, &c->routes[i], raise, e))
            return cli_wrap_route(e, &c->routes[i]);
    return true;
}

/* --- order --- */

static void order_text(const struct config_route *r, enum need_order order, const char *of,
                       struct buf *out)
{
    if (order == NEED_ORDER_NONE)
        return;
    buf_add_text(out, out->len > 0 ? "; " : "");
    if (order == NEED_ORDER_PROVED)
        buf_printf(out, "%s: in order (order_by = %s)", of, r->order_by);
    else if (order == NEED_ORDER_SAID)
        buf_printf(out,
                   "%s: in order if equal ones always have an equal %s, which the configuration "
                   "can't tell",
                   of, r->order_by);
    else
        buf_printf(out, "%s: in no order, because order_by = %s makes each event its own lane", of,
                   r->order_by);
}

void needs_order_text(const struct config_route *r, struct buf *out)
{
    order_text(r, need_order_of_entity(r), "events of an entity", out);
    order_text(r, need_order_of_group(r), "numbers of a group", out);
}

/* --- the line at start --- */

static void add_list(const struct config_list *list, struct buf *out)
{
    for (size_t i = 0; i < list->n; i++)
        buf_printf(out, "%s%s", i ? ", " : "", list->items[i]);
}

static void counters_text(const struct config_route *r, struct buf *out)
{
    for (size_t i = 0; i < r->n_counters; i++) {
        const struct config_counter *c = &r->counters[i];

        buf_printf(out, "%s%s.%s:", i ? "; " : "", c->database, c->collection);
        for (size_t k = 0; k < c->inc.n; k++)
            buf_printf(out, "%s %s", k ? "," : "", c->inc.items[k].name);
    }
}

static void sequence_text(const struct config_route *r, struct buf *out)
{
    static const char *const modes[] = {
        [SEQUENCE_GAPLESS] = "gapless", [SEQUENCE_BLOCK] = "block", [SEQUENCE_MAX] = "max"};
    const struct config_sequence *q = &r->sequence;

    if (!config_has_sequence(r))
        return;
    buf_printf(out, "%s, %s", q->field, modes[q->mode]);
    buf_add_text(out, q->group.n > 0 ? ", per " : ", one for all");
    add_list(&q->group, out);
    if (q->mode != SEQUENCE_MAX)
        buf_printf(out, ", counted in %s.%s", q->database, q->collection);
}

static void operation_text(const struct config_route *r, struct buf *out)
{
    const struct config_operation *o = &r->operation;

    if (!config_has_operation(r))
        return;
    if (o->source[0]) {
        buf_printf(out, "%s: ", o->source);
        add_list(&o->insert, out);
        buf_add_text(out, " adds, ");
        add_list(&o->remove, out);
        buf_add_text(out, " removes");
    } else {
        buf_add_text(out, "records add");
    }
    buf_printf(out, "%s; entity ", r->tombstone == TOMBSTONE_DELETE ? ", tombstones remove" : "");
    add_list(&r->entity.key, out);
    buf_printf(out, "; ledger %s.%s", o->ledger_database, o->ledger);
}

void needs_log_effects(const struct config_route *r)
{
    struct buf counters = {0}, sequence = {0}, operation = {0}, order = {0};

    if (!config_has_effects(r))
        return;
    counters_text(r, &counters);
    sequence_text(r, &sequence);
    operation_text(r, &operation);
    needs_order_text(r, &order);
    log_info("what a new event moves", LOG_TEXT("route", r->name),
             LOG_TEXT("counters", buf_text(&counters)), LOG_TEXT("sequence", buf_text(&sequence)),
             LOG_TEXT("operation", buf_text(&operation)), LOG_TEXT("order", buf_text(&order)));
    if (need_order_of_entity(r) == NEED_ORDER_BROKEN)
        log_warn("events of one entity may overtake each other, so that what comes first is undone "
                 "last: order_by should be a part of entity.key, or @key",
                 LOG_TEXT("route", r->name), LOG_TEXT("order_by", r->order_by));
    buf_clear(&counters);
    buf_clear(&sequence);
    buf_clear(&operation);
    buf_clear(&order);
}
