/* How each route is written: decided once, by what it asks for and what the server can do. */
#include <string.h>

#include "base/log.h"
#include "core/need.h"
#include "io/mongo_private.h"

enum { WIRE_4_0 = 7, WIRE_4_2 = 8 }; /* transactions: replica sets since 4.0, sharded since 4.2 */

/* Numbers that are taken before the document is written, and nothing else: lost numbers are holes,
 * which these modes allow. */
static bool only_numbers(const struct config_route *r)
{
    return config_has_sequence(r) && r->sequence.mode != SEQUENCE_GAPLESS && r->n_counters == 0 &&
           !config_has_operation(r) && !config_has_fence(r);
}

struct topology {
    char text[128];
    bool transactions;
};

static bool ask_topology(struct mongo *m, struct topology *t, struct err *e)
{
    struct mongo_facts f;

    if (!mongo_look(m, &f, e))
        return false;
    t->transactions = f.mongos ? f.wire >= WIRE_4_2 : f.set[0] != '\0' && f.wire >= WIRE_4_0;
    if (f.mongos)
        (void)snprintf(t->text, sizeof t->text, "a sharded cluster");
    else if (f.set[0] != '\0')
        (void)snprintf(t->text, sizeof t->text, "replica set %s", f.set);
    else
        (void)snprintf(t->text, sizeof t->text, "a standalone mongod");
    if (!t->transactions && (f.mongos || f.set[0] != '\0'))
        (void)snprintf(t->text + strlen(t->text), sizeof t->text - strlen(t->text), " of %s",
                       f.version);
    return true;
}

/* What of it works in transactions alone; NULL: nothing. */
static const char *needs_transactions(const struct config_route *r)
{
    if (config_has_sequence(r) && r->sequence.mode == SEQUENCE_GAPLESS)
        return "sequence.mode = \"gapless\" (\"block\" does without: its only holes are those of "
               "crashes)";
    if (config_has_sequence(r) && config_has_operation(r))
        return "a sequence of what an operation adds";
    if (config_has_fence(r))
        return "lock.fence (without it the lock is there, but a holder that is late can still "
               "write)";
    if (r->effects == EFFECTS_TRANSACTION)
        return "effects = \"transaction\" (\"log\" does without)";
    return NULL;
}

static bool decide(const struct config_route *r, const struct topology *t, enum mongo_way *way,
                   const char **why, struct err *e)
{
    const char *needs = needs_transactions(r);

    *way = MONGO_ATOMIC;
    if (needs && !t->transactions)
        return err_set(e, ERR_CONFIG, 0,
                       "%s needs transactions, and %s has none: make it a replica set (one member "
                       "is enough: mongod --replSet NAME, then idemsink init --replica-set)",
                       needs, t->text);
    if (r->effects == EFFECTS_TRANSACTION) {
        *why = "effects = \"transaction\"";
    } else if (only_numbers(r)) {
        *way = MONGO_STEPWISE;
        *why = "a sequence of this mode alone needs no transaction";
    } else if (r->effects == EFFECTS_LOG) {
        *way = MONGO_STEPWISE;
        *why = "effects = \"log\"";
    } else if (!t->transactions) {
        *way = MONGO_STEPWISE;
        *why = "effects = \"auto\", and it has no transactions";
    } else {
        *why = "it has transactions";
    }
    return true;
}

/* The state of an entity is one document, and step by step an event meets it without those that
 * were before it: what they had begun would be taken for its own, or lost. A transaction reads what
 * is there. */
static bool order_is_enough(const struct config_route *r, enum mongo_way way, struct err *e)
{
    if (way != MONGO_STEPWISE || need_order_of_entity(r) != NEED_ORDER_BROKEN)
        return true;
    return err_set(e, ERR_CONFIG, 0,
                   "order_by = \"%s\" makes each event a lane of its own, and without transactions "
                   "the events of one entity have to be of one lane: make order_by a part of "
                   "entity.key, or \"@key\" where the producer gives an entity one key (or use a "
                   "replica set and effects = \"transaction\")",
                   r->order_by);
}

static bool counters_are_apart(const struct config_route *r, enum mongo_way way, struct err *e)
{
    const struct config_counter *c = need_counter_named_twice(r);

    if (way != MONGO_STEPWISE || !c)
        return true;
    return err_set(e, ERR_CONFIG, 0,
                   "two [[route.counter]] find documents of %.80s.%.80s by different fields: where "
                   "both mean one document, without transactions only one of them would be "
                   "counted: give both the same filter fields in the same order (or use a replica "
                   "set and effects = \"transaction\")",
                   c->database, c->collection);
}

static bool way_of(const struct config_route *r, const struct topology *t, enum mongo_way *way,
                   const char **why, struct err *e)
{
    return (decide(r, t, way, why, e) && order_is_enough(r, *way, e) &&
            counters_are_apart(r, *way, e)) ||
           err_wrap(e, r->name);
}

static const char *const names[] = {
    [MONGO_PLAIN] = "none", [MONGO_ATOMIC] = "transaction", [MONGO_STEPWISE] = "log"};

static void say(const struct config_route *r, const struct topology *t, enum mongo_way way,
                const char *why)
{
    bool numbers = way == MONGO_STEPWISE && only_numbers(r);

    log_info("effects of a route", LOG_TEXT("route", r->name),
             LOG_TEXT("way", numbers ? "numbers, then documents" : names[way]),
             LOG_TEXT("why", why), LOG_TEXT("mongodb", t->text));
    if (config_has_sequence(r) && r->sequence.mode == SEQUENCE_MAX)
        log_info("sequence.mode = \"max\" reads the highest number for each batch and begins again "
                 "whenever somebody was faster; where nobody else gives numbers in this "
                 "collection, \"block\" is cheaper and \"gapless\" has no holes",
                 LOG_TEXT("route", r->name), LOG_TEXT("field", r->sequence.field));
}

bool mongo_decide_ways(struct mongo *m, struct err *e)
{
    const struct config *c = m->config;
    struct topology t = {.transactions = false};
    bool asked = false;

    for (size_t i = 0; i < c->n_routes; i++) {
        const struct config_route *r = &c->routes[i];
        const char *why = "";

        m->ways[i] = MONGO_PLAIN;
        if (!config_has_effects(r))
            continue;
        if ((!asked && !ask_topology(m, &t, e)) || !way_of(r, &t, &m->ways[i], &why, e))
            return false;
        asked = true;
        say(r, &t, m->ways[i], why);
    }
    m->decided = true;
    return true;
}

bool mongo_check_way(struct mongo *m, const struct config_route *route, enum mongo_way *way,
                     struct buf *found, struct err *e)
{
    struct topology t = {.transactions = false};
    const char *why = "";

    *way = MONGO_PLAIN;
    if (!config_has_effects(route)) {
        buf_add_text(found, "none");
        return true;
    }
    if (!ask_topology(m, &t, e) || !way_of(route, &t, way, &why, e))
        return false;
    buf_printf(found, "%s (%s; %s)", names[*way], why, t.text);
    return true;
}

enum mongo_way mongo_way_of(const struct mongo *m, uint32_t route)
{
    MUST(m->decided || !config_has_effects(&m->config->routes[route]));
    return m->ways[route];
}
