#include "core/need.h"

#include <string.h>

#include "base/mem.h"

static bool is_set(const char *text)
{
    return text != NULL && *text != '\0';
}

/* --- making one --- */

static void add_field(struct need_index *n, const char *path)
{
    n->fields.items = mem_grow(n->fields.items, n->fields.n + 1, sizeof n->fields.items[0]);
    n->fields.items[n->fields.n++] = mem_text(path);
}

static void add_fields(struct need_index *n, const struct config_list *paths)
{
    for (size_t i = 0; i < paths->n; i++)
        add_field(n, paths->items[i]);
}

void need_index_clear(struct need_index *n)
{
    for (size_t i = 0; i < n->fields.n; i++)
        mem_free(n->fields.items[i]);
    mem_free(n->fields.items);
    mem_free(n->name);
    *n = (struct need_index){0};
}

static bool same_fields(const struct config_list *a, const struct config_list *b)
{
    size_t found = 0;

    for (size_t i = 0; i < a->n; i++)
        for (size_t j = 0; j < b->n; j++)
            found += strcmp(a->items[i], b->items[j]) == 0;
    return a->n == b->n && found == a->n;
}

static bool same(const struct need_index *a, const struct need_index *b)
{
    return a->use == b->use && strcmp(a->database, b->database) == 0 &&
           strcmp(a->collection, b->collection) == 0 && same_fields(&a->fields, &b->fields);
}

/* Takes *n over. */
static void add_index(struct needs *out, struct need_index *n)
{
    for (size_t i = 0; i < out->n_indexes; i++)
        if (same(&out->indexes[i], n)) {
            need_index_clear(n);
            return;
        }
    out->indexes = mem_grow(out->indexes, out->n_indexes + 1, sizeof out->indexes[0]);
    out->indexes[out->n_indexes++] = *n;
}

static struct need_index on_route(const struct config_route *r, enum need_use use, const char *what,
                                  const char *name)
{
    return (struct need_index){.use = use,
                               .what = what,
                               .name = mem_text(name),
                               .database = r->database,
                               .collection = r->collection,
                               .unique = true,
                               .expire_s = -1,
                               .trust = r->trust_index};
}

void need_identity(const struct config_route *r, struct need_index *out)
{
    if (config_has_operation(r)) {
        *out = on_route(r, NEED_IDENTITY, "entity index", NEED_INDEX_ENTITY);
        add_fields(out, &r->entity.fields);
        out->if_expired = "an entity that vanishes by itself is taken back from no counter";
        return;
    }
    *out = on_route(r, NEED_IDENTITY, "dedup index", r->dedup.into_id ? "" : NEED_INDEX_DEDUP);
    if (r->dedup.into_id)
        add_field(out, "_id");
    else
        add_fields(out, &r->dedup.fields);
    out->if_expired = "an event delivered again after that would be stored again";
}

static void need_by_id(const struct config_route *r, const char *what, const char *database,
                       const char *collection, const char *if_expired, struct needs *out)
{
    struct need_index n = on_route(r, NEED_BY_ID, what, "");

    n.database = database;
    n.collection = collection;
    n.if_expired = if_expired;
    add_field(&n, "_id");
    add_index(out, &n);
}

/* --- ledger --- */

static void need_ledger(const struct config_route *r, struct needs *out)
{
    const struct config_operation *o = &r->operation;

    if (!config_has_operation(r))
        return;
    need_by_id(r, "ledger", o->ledger_database, o->ledger,
               "an event delivered again after that would count again", out);
    if (o->ledger_expire_ms == 0)
        return;
    out->indexes[out->n_indexes - 1].may_expire = "at";
    struct need_index n = on_route(r, NEED_EXPIRY, "expiry of the ledger", NEED_INDEX_EXPIRE);
    n.database = o->ledger_database;
    n.collection = o->ledger;
    n.unique = false;
    n.expire_s = (o->ledger_expire_ms + 999) / 1000;
    add_field(&n, "at");
    add_index(out, &n);
}

/* --- sequence --- */

/* The group's places in the document, but for those that the text holds when it is about the text.
 * False: one has none. */
static bool add_group(struct need_index *n, const struct config_route *r, bool text)
{
    const struct config_sequence *q = &r->sequence;
    bool all = true;

    for (size_t i = 0; i < q->group.n; i++) {
        bool in_text = text && config_is_in_text(q, q->group.items[i]);
        char *place = in_text ? NULL : config_stored_path(r, q->group.items[i]);

        if (place != NULL)
            add_field(n, place);
        all = all && (in_text || place != NULL);
        mem_free(place);
    }
    return all;
}

static void need_number(const struct config_route *r, bool text, struct needs *out)
{
    const struct config_sequence *q = &r->sequence;
    struct need_index n =
        text ? on_route(r, NEED_SEQUENCE_TEXT, "sequence text index", NEED_INDEX_SEQUENCE_TEXT)
             : on_route(r, NEED_SEQUENCE, "sequence index", NEED_INDEX_SEQUENCE);

    n.partial = text ? q->template_field : q->field;
    n.before = !text && is_set(q->template) ? q->template_field : NULL;
    bool all = add_group(&n, r, text);
    add_field(&n, n.partial);
    if (all)
        add_index(out, &n);
    else
        need_index_clear(&n); /* the text alone keeps them apart: config_effects.c has seen to it */
}

static void need_sequence(const struct config_route *r, struct needs *out)
{
    if (!config_has_sequence(r))
        return;
    need_number(r, false, out);
    if (is_set(r->sequence.template))
        need_number(r, true, out);
    if (r->sequence.mode != SEQUENCE_MAX)
        need_by_id(r, "sequence counters", r->sequence.database, r->sequence.collection,
                   "its numbers would begin again", out);
}

/* --- counters --- */

/* Of two counters in one collection each has its own. */
static char *counter_name(const struct config_counter *c)
{
    enum { NAME_MAX_BYTES = 100 }; /* servers before 4.2 take 127 with the namespace */
    struct buf b = {0};

    buf_add_text(&b, NEED_INDEX_COUNTER);
    for (size_t i = 0; i < c->filter.n; i++)
        buf_printf(&b, "_%s", c->filter.items[i].name);
    char *name = mem_text_n(b.data, b.len < NAME_MAX_BYTES ? b.len : NAME_MAX_BYTES);
    buf_clear(&b);
    return name;
}

/* By steps of several documents with one key the second would take an event that comes again. */
static void need_counter(const struct config_route *r, const struct config_counter *c, bool steps,
                         struct needs *out)
{
    struct need_index n =
        on_route(r, c->upsert || steps ? NEED_COUNTER : NEED_COUNTER_FOUND, "counter index", "");
    bool by_id = c->filter.n == 1 && strcmp(c->filter.items[0].name, "_id") == 0;

    n.database = c->database;
    n.collection = c->collection;
    for (size_t i = 0; i < c->filter.n; i++)
        add_field(&n, c->filter.items[i].name);
    if (!by_id) {
        mem_free(n.name);
        n.name = counter_name(c);
    }
    add_index(out, &n);
}

/* --- the lock's fence, effects that are not done yet --- */

static void need_fence(const struct config_route *r, struct needs *out)
{
    if (config_has_lock(r) && is_set(r->lock.fence))
        need_by_id(r, "fence", r->lock.fence_database, r->lock.fence,
                   "its numbers would begin again, and a late holder could write", out);
}

/* By steps only counters and operations leave something to be done. */
static bool leaves_open(const struct config_route *r, bool steps)
{
    return steps && (r->n_counters > 0 || config_has_operation(r));
}

static void need_open(const struct config_route *r, bool steps, struct needs *out)
{
    struct need_index n;

    if (!leaves_open(r, steps))
        return;
    n = on_route(r, NEED_OPEN, "index of open effects", NEED_INDEX_OPEN);
    if (config_has_operation(r)) {
        n.database = r->operation.ledger_database;
        n.collection = r->operation.ledger;
    }
    n.unique = false;
    add_field(&n, "_effects.at");
    n.partial = n.fields.items[0];
    add_index(out, &n);
}

/* --- collections --- */

static void add_collection(struct needs *out, const char *what, const char *database,
                           const char *collection, unsigned actions)
{
    for (size_t i = 0; i < out->n_collections; i++) {
        struct need_collection *c = &out->collections[i];

        if (strcmp(c->database, database) == 0 && strcmp(c->collection, collection) == 0) {
            c->actions |= actions;
            return;
        }
    }
    out->collections =
        mem_grow(out->collections, out->n_collections + 1, sizeof out->collections[0]);
    out->collections[out->n_collections++] = (struct need_collection){
        .what = what, .database = database, .collection = collection, .actions = actions};
}

static unsigned actions_of_route(const struct config_route *r, bool steps)
{
    unsigned actions = NEED_DO_FIND | NEED_DO_INSERT;

    if (config_has_operation(r))
        return actions | NEED_DO_UPDATE | NEED_DO_REMOVE;
    if (config_has_effects(r) ? steps : r->write == WRITE_UPSERT)
        actions |= NEED_DO_UPDATE;
    return actions;
}

static void collections_of(const struct config_route *r, bool steps, struct needs *out)
{
    const unsigned moves = NEED_DO_FIND | NEED_DO_UPDATE, makes = moves | NEED_DO_INSERT;

    add_collection(out, "documents", r->database, r->collection, actions_of_route(r, steps));
    if (config_has_operation(r))
        add_collection(out, "ledger", r->operation.ledger_database, r->operation.ledger,
                       NEED_DO_FIND | NEED_DO_INSERT | (steps ? NEED_DO_UPDATE : 0));
    for (size_t i = 0; i < r->n_counters; i++)
        add_collection(out, "counters", r->counters[i].database, r->counters[i].collection,
                       r->counters[i].upsert ? makes : moves);
    if (config_has_sequence(r) && r->sequence.mode != SEQUENCE_MAX)
        add_collection(out, "sequence counters", r->sequence.database, r->sequence.collection,
                       makes);
    if (config_has_lock(r) && is_set(r->lock.fence))
        add_collection(out, "fence", r->lock.fence_database, r->lock.fence, makes);
    for (size_t i = 0; i < out->n_collections; i++) /* those so far, where something is made */
        out->collections[i].before =
            config_has_effects(r) && !steps && (out->collections[i].actions & NEED_DO_INSERT) != 0;
    if (leaves_open(r, steps))
        add_collection(out, "leases", r->database, NEED_LEASES, makes);
    /* Whoever has the right to list a collection's indexes there looks at them, and who has
     * ensure_index makes them. */
    for (size_t i = 0; i < out->n_collections; i++)
        for (size_t k = 0; k < out->n_indexes; k++)
            if (strcmp(out->indexes[k].database, out->collections[i].database) == 0 &&
                strcmp(out->indexes[k].collection, out->collections[i].collection) == 0)
                out->collections[i].actions |=
                    (r->trust_index ? 0 : NEED_DO_LIST_INDEXES) |
                    (r->ensure_index && (i == 0 || out->indexes[k].name[0] != '\0')
                         ? NEED_DO_CREATE_INDEX
                         : 0);
}

void needs_of(const struct config_route *r, bool steps, struct needs *out)
{
    struct need_index identity;

    *out = (struct needs){0};
    need_identity(r, &identity);
    add_index(out, &identity);
    need_ledger(r, out);
    need_sequence(r, out);
    for (size_t i = 0; i < r->n_counters; i++)
        need_counter(r, &r->counters[i], steps, out);
    need_fence(r, out);
    need_open(r, steps, out);
    collections_of(r, steps, out);
}

void needs_clear(struct needs *n)
{
    for (size_t i = 0; i < n->n_indexes; i++)
        need_index_clear(&n->indexes[i]);
    mem_free(n->indexes);
    mem_free(n->collections);
    *n = (struct needs){0};
}

/* --- order --- */

static bool has(const struct config_list *list, const char *word)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i], word) == 0)
            return true;
    return false;
}

static bool within(const struct config_list *inner, const struct config_list *outer)
{
    for (size_t i = 0; i < inner->n; i++)
        if (!has(outer, inner->items[i]))
            return false;
    return true;
}

/* Of what these sources make equal. */
static enum need_order order_of(const struct config_route *r, const struct config_list *sources)
{
    if (strcmp(r->order_by, "@partition") == 0 || has(sources, r->order_by))
        return NEED_ORDER_PROVED;
    if (strcmp(r->order_by, "@dedup") == 0)
        return within(&r->dedup.key, sources) ? NEED_ORDER_PROVED : NEED_ORDER_BROKEN;
    return NEED_ORDER_SAID;
}

enum need_order need_order_of_entity(const struct config_route *r)
{
    return config_has_operation(r) ? order_of(r, &r->entity.key) : NEED_ORDER_NONE;
}

enum need_order need_order_of_group(const struct config_route *r)
{
    return config_has_sequence(r) ? order_of(r, &r->sequence.group) : NEED_ORDER_NONE;
}

/* --- counters by steps --- */

/* Is it one document whenever their filters are equal, and never else? */
static bool told_apart(const struct config_counter *a, const struct config_counter *b)
{
    if (strcmp(a->database, b->database) != 0 || strcmp(a->collection, b->collection) != 0)
        return true;
    if (a->filter.n != b->filter.n)
        return false;
    for (size_t i = 0; i < a->filter.n; i++)
        if (strcmp(a->filter.items[i].name, b->filter.items[i].name) != 0)
            return false;
    return true;
}

const struct config_counter *need_counter_named_twice(const struct config_route *r)
{
    for (size_t i = 0; i < r->n_counters; i++)
        for (size_t j = 0; j < i; j++)
            if (!told_apart(&r->counters[i], &r->counters[j]))
                return &r->counters[i];
    return NULL;
}
