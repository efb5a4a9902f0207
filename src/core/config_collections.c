/*
 * config_collections.c - which collections may serve more than one purpose. Documents of different
 * kinds share no collection: _id of one may be that of another, unique indexes of one hold for the
 * other, and what looks for its own takes the other's for it.
 */
#include <string.h>

#include "core/config_private.h"

enum kind { KIND_DOCUMENTS, KIND_COUNTERS, KIND_NUMBERS, KIND_LEDGER, KIND_FENCE };
enum { KINDS_BUT_COUNTERS = 4, KEY_BYTES = 64 };

static const char *const words[] = {"the documents", "a counter", "the counters of the sequence",
                                    "the ledger", "the fence"};

struct place {
    enum kind kind;
    size_t route, counter; /* counter: of KIND_COUNTERS */
    const char *database, *collection;
};

/* The n-th of a route; false: there is none. */
static bool place_of(const struct config *c, size_t route, size_t n, struct place *out)
{
    const struct config_route *r = &c->routes[route];
    const struct place all[] = {
        {KIND_DOCUMENTS, route, 0, r->database, r->collection},
        {KIND_NUMBERS, route, 0, r->sequence.database, r->sequence.collection},
        {KIND_LEDGER, route, 0, r->operation.ledger_database, r->operation.ledger},
        {KIND_FENCE, route, 0, r->lock.fence_database, r->lock.fence}};
    const bool there[] = {true, config_has_sequence(r) && r->sequence.mode != SEQUENCE_MAX,
                          config_has_operation(r), config_has_fence(r)};

    if (n >= KINDS_BUT_COUNTERS) {
        const struct config_counter *k = &r->counters[n - KINDS_BUT_COUNTERS];

        *out = (struct place){KIND_COUNTERS, route, n - KINDS_BUT_COUNTERS, k->database,
                              k->collection};
        return true;
    }
    *out = all[n];
    return there[n];
}

/* Where the configuration says it, or would. */
static void go_to(struct config_parse_state *s, const struct place *p)
{
    static const char *const keys[] = {"collection", "", "sequence.collection", "operation.ledger",
                                       "lock.fence"};

    if (p->kind == KIND_COUNTERS)
        config_at(s, "route.%zu.counter.%zu.collection", p->route, p->counter);
    else
        config_at(s, "route.%zu.%s", p->route, keys[p->kind]);
}

/* One group's numbers go on whichever route gives them only if it is the same group, and the unique
 * index that keeps them apart is one. */
static bool same_numbers(const struct config_route *a, const struct config_route *b)
{
    return strcmp(a->database, b->database) == 0 && strcmp(a->collection, b->collection) == 0 &&
           strcmp(a->sequence.field, b->sequence.field) == 0 &&
           config_same_list(&a->sequence.group, &b->sequence.group);
}

/* Of one kind, of two routes. NULL: may be. */
static const char *why_not_shared(const struct config_route *a, const struct config_route *b,
                                  enum kind kind)
{
    if (kind == KIND_LEDGER)
        return "an event of one would be a duplicate in the other, and be stored by none; name "
               "another one";
    if (kind == KIND_NUMBERS && !same_numbers(a, b))
        return "a number of one would be missing in the other: both have to go into one "
               "collection with the same field and group, or have counters of their own";
    if (kind == KIND_FENCE && strcmp(a->lock.prefix, b->lock.prefix) != 0)
        return "with another lock.prefix equal keys are different locks, and their numbers would "
               "be one: name another one";
    return NULL;
}

static bool check_pair(struct config_parse_state *s, const struct place *a, const struct place *b)
{
    const struct config_route *ra = &s->config->routes[a->route];
    const struct config_route *rb = &s->config->routes[b->route];
    const char *why;

    if (strcmp(a->database, b->database) != 0 || strcmp(a->collection, b->collection) != 0)
        return true;
    /* The place that was chosen for what is beside the documents is the one to change. */
    go_to(s, a->kind == KIND_DOCUMENTS ? b : a);
    if (a->kind != b->kind) {
        const struct place *other = a->kind == KIND_DOCUMENTS ? a : b;

        return config_fail(s,
                           "%.80s.%.80s is the collection of %s of route \"%.60s\", too: each kind "
                           "of document needs a collection of its own",
                           a->database, a->collection, words[other->kind],
                           s->config->routes[other->route].name);
    }
    why = a->route == b->route ? NULL : why_not_shared(ra, rb, a->kind);
    return why == NULL || config_fail(s, "%.80s.%.80s is that of route \"%.60s\", too: %s",
                                      a->database, a->collection, rb->name, why);
}

static bool check_against(struct config_parse_state *s, const struct place *a, size_t n)
{
    struct place b;

    for (size_t j = 0; j <= a->route; j++) {
        size_t all = KINDS_BUT_COUNTERS + s->config->routes[j].n_counters;

        for (size_t m = 0; m < (j == a->route ? n : all); m++)
            if (place_of(s->config, j, m, &b) && !check_pair(s, a, &b))
                return false;
    }
    return true;
}

bool config_check_collections(struct config_parse_state *s)
{
    struct place a;

    for (size_t i = 0; i < s->config->n_routes; i++)
        for (size_t n = 0; n < KINDS_BUT_COUNTERS + s->config->routes[i].n_counters; n++)
            if (place_of(s->config, i, n, &a) && !check_against(s, &a, n))
                return false;
    return true;
}
