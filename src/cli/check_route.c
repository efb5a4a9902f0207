/* What check --connect asks MongoDB about each route. */
#include <string.h>

#include "cli/check.h"
#include "cli/needs.h"

struct asking {
    struct checks *checks;
    struct mongo *mongo;
    const struct config_route *route;
    struct needs needs;
    struct buf what;
};

static const char *name_of(struct asking *a, const char *what, const char *database,
                           const char *collection)
{
    buf_reset(&a->what);
    buf_printf(&a->what, "%s %s.%s", what, database, collection);
    return buf_text(&a->what);
}

static void rights(struct asking *a, const struct need_collection *c)
{
    struct buf found = {0};
    struct err e;
    bool ok = mongo_check_need_rights(a->mongo, c, &found, &e);

    (void)check_answer(a->checks, name_of(a, "rights on", c->database, c->collection), ok, &e,
                       buf_text(&found));
    buf_clear(&found);
}

static void one_index(struct asking *a, const struct need_index *n)
{
    char what[64];
    const char *found = "";
    struct err e;
    bool ok = mongo_check_need(a->mongo, n, a->route->ensure_index, &found, &e);

    snprintf(what, sizeof what, "%s of", n->what);
    (void)name_of(a, what, n->database, n->collection);
    if (n->use == NEED_COUNTER_FOUND && !ok && e.kind == ERR_CONFIG)
        check_line(a->checks, a->what.data, CHECK_WARNING, e.text);
    else if (n->use == NEED_COUNTER && n->name[0] == '\0')
        (void)check_answer(a->checks, a->what.data, ok, &e, "_id");
    else
        (void)check_answer(a->checks, a->what.data, ok, &e, found);
}

static void collection(struct asking *a, const struct need_collection *c)
{
    bool there = false;
    struct err e;
    bool ok = mongo_has_collection(a->mongo, c, &there, &e);
    char what[64];

    snprintf(what, sizeof what, "collection of %s", c->what);
    (void)check_answer(a->checks, name_of(a, what, c->database, c->collection), ok, &e,
                       there ? "there" : "not there yet: init or run makes it");
}

static void types(struct asking *a, const struct config_counter *c)
{
    struct buf fields = {0};
    struct err e;
    bool ok = mongo_check_counter_types(a->mongo, c, NEEDS_TYPES_MS, &e);

    for (size_t i = 0; i < c->inc.n; i++)
        buf_printf(&fields, "%s%s", i ? ", " : "", c->inc.items[i].name);
    buf_reset(&a->what);
    buf_printf(&a->what, "counter %s in %s.%s", buf_text(&fields), c->database, c->collection);
    if (!ok && e.kind == ERR_TRANSIENT)
        check_line(a->checks, a->what.data, CHECK_UNKNOWN, e.text);
    else
        (void)check_answer(a->checks, a->what.data, ok, &e, "an integer wherever it is there");
    buf_clear(&fields);
}

static void sequence(struct asking *a)
{
    const struct config_route *r = a->route;
    struct mongo_lag lag;
    struct buf found = {0};
    struct err e;

    if (!config_has_sequence(r))
        return;
    name_of(a, "sequence of", r->database, r->collection);
    if (r->sequence.mode == SEQUENCE_MAX) {
        check_line(a->checks, a->what.data, CHECK_OK,
                   "mode max has no counters; where nobody else gives numbers, block and gapless "
                   "cost less");
        return;
    }
    bool ok = mongo_compare_sequence(a->mongo, r, MONGO_LAG_ALL, NEEDS_CHECK_MS, &lag, &e) &&
              (lag.behind == 0 || mongo_lag_fail(r, &lag, &e));
    if (ok && lag.impossible) {
        check_line(a->checks, a->what.data, CHECK_UNKNOWN,
                   "the documents don't hold the group, so its counters can't be compared");
    } else if (!ok && e.kind == ERR_TRANSIENT && e.code == 50) {
        check_line(a->checks, a->what.data, CHECK_UNKNOWN, e.text);
    } else {
        if (ok)
            buf_printf(&found, "no counter lags behind the highest number (%zu group%s)",
                       lag.groups, lag.groups == 1 ? "" : "s");
        (void)check_answer(a->checks, a->what.data, ok, &e, buf_text(&found));
        buf_clear(&found);
    }
}

static void order(struct asking *a)
{
    enum need_order entity = need_order_of_entity(a->route);
    struct buf text = {0};

    needs_order_text(a->route, &text);
    buf_reset(&a->what);
    buf_printf(&a->what, "order in %s", a->route->name);
    if (text.len > 0)
        check_line(a->checks, a->what.data, entity == NEED_ORDER_BROKEN ? CHECK_WARNING : CHECK_OK,
                   text.data);
    buf_clear(&text);
}

/* Allowed: the unique index has what the text leaves out. People may take two for one. */
static void text(struct asking *a)
{
    const struct config_route *r = a->route;
    const char *source = config_not_in_text(&r->sequence);

    buf_reset(&a->what);
    buf_printf(&a->what, "text in %s", r->name);
    if (source != NULL)
        check_printf(a->checks, a->what.data, CHECK_WARNING,
                     "sequence.template doesn't name \"%s\" of the group: documents of groups that "
                     "differ in it get equal texts, which are unique only together with it",
                     source);
}

/* *steps: where it can't be told, or is wrong, as with transactions. */
static void way(struct asking *a, bool *steps)
{
    enum mongo_way way = MONGO_PLAIN;
    struct buf found = {0};
    struct err e;

    if (!config_has_effects(a->route))
        return;
    buf_reset(&a->what);
    buf_printf(&a->what, "effects of %s", a->route->name);
    bool ok = mongo_check_way(a->mongo, a->route, &way, &found, &e);
    (void)check_answer(a->checks, a->what.data, ok, &e, buf_text(&found));
    *steps = way == MONGO_STEPWISE;
    buf_clear(&found);
}

static void effects(struct asking *a)
{
    const struct config_route *r = a->route;

    for (size_t i = 1; i < a->needs.n_indexes; i++)
        one_index(a, &a->needs.indexes[i]);
    for (size_t i = 1; i < a->needs.n_collections; i++)
        if (a->needs.collections[i].before)
            collection(a, &a->needs.collections[i]);
    for (size_t i = 0; i < r->n_counters; i++)
        types(a, &r->counters[i]);
    sequence(a);
    order(a);
    text(a);
}

void check_route(struct checks *c, struct mongo *mongo, const struct config_route *r)
{
    struct asking a = {.checks = c, .mongo = mongo, .route = r};
    bool steps = false;

    way(&a, &steps);
    needs_of(r, steps, &a.needs);
    for (size_t i = 0; i < a.needs.n_collections; i++)
        rights(&a, &a.needs.collections[i]);
    one_index(&a, &a.needs.indexes[0]);
    effects(&a);
    needs_clear(&a.needs);
    buf_clear(&a.what);
}

void check_leases(struct checks *c, struct mongo *mongo)
{
    struct asking a = {.checks = c, .mongo = mongo};
    struct need_collection leases = {.what = "leases",
                                     .database = c->config->routes[0].database,
                                     .collection = NEED_LEASES,
                                     .actions = NEED_DO_FIND | NEED_DO_INSERT | NEED_DO_UPDATE};

    if (c->config->effects.reconcile_every_ms > 0)
        rights(&a, &leases);
    buf_clear(&a.what);
}
