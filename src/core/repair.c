#include "core/repair.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/log_doc.h"

enum { ATTEMPTS = 50 };

/* Operations by their ids; sorted before it is asked. */
struct ids {
    uint8_t (*items)[EFFECT_ID_BYTES];
    size_t n, cap;
    bool sorted;
};

struct repair {
    const struct reconcile_family *f;
    const struct config *config;
    enum repair_way way;
    bool apply;
    int64_t wall_ms;

    bson_t *key;
    enum repair_step step;
    size_t source;
    bool again;           /* the second OPEN of a source */
    bool beginning_again; /* behind ABORT */
    int attempts;
    bool sent; /* a SET was sent, whose commit may have been done though nobody said so */

    bson_t *counter; /* NULL: not there */
    struct ids applied, opened;
    bool more_opened;
    struct repair_column *columns;
    enum repair_end end;
};

/* --- ids --- */

static int by_bytes(const void *a, const void *b)
{
    return memcmp(a, b, EFFECT_ID_BYTES);
}

static void ids_add(struct ids *s, const uint8_t id[EFFECT_ID_BYTES])
{
    if (s->n == s->cap) {
        s->cap = s->cap ? s->cap * 2 : 64;
        s->items = mem_grow(s->items, s->cap, sizeof *s->items);
    }
    memcpy(s->items[s->n++], id, EFFECT_ID_BYTES);
    s->sorted = false;
}

static bool ids_has(struct ids *s, const uint8_t id[EFFECT_ID_BYTES])
{
    if (s->n == 0)
        return false;
    if (!s->sorted)
        qsort(s->items, s->n, sizeof *s->items, by_bytes);
    s->sorted = true;
    return bsearch(id, s->items, s->n, sizeof *s->items, by_bytes) != NULL;
}

static bool binary_id(const bson_iter_t *it, uint8_t id[EFFECT_ID_BYTES])
{
    bson_subtype_t subtype;
    const uint8_t *data;
    uint32_t len;

    if (!BSON_ITER_HOLDS_BINARY(it))
        return false;
    bson_iter_binary(it, &subtype, &len, &data);
    if (len != EFFECT_ID_BYTES)
        return false;
    memcpy(id, data, EFFECT_ID_BYTES);
    return true;
}

/* _applied: [{i: id, t: date}, ...] */
static void read_applied(struct repair *r, const bson_t *document)
{
    uint8_t id[EFFECT_ID_BYTES];
    bson_iter_t it, list, entry;

    if (!bson_iter_init_find(&it, document, LOG_APPLIED) || !BSON_ITER_HOLDS_ARRAY(&it) ||
        !bson_iter_recurse(&it, &list))
        return;
    while (bson_iter_next(&list))
        if (BSON_ITER_HOLDS_DOCUMENT(&list) && bson_iter_recurse(&list, &entry) &&
            bson_iter_find(&entry, "i") && binary_id(&entry, id))
            ids_add(&r->applied, id);
}

/* --- begin and end --- */

struct repair *repair_new(const struct reconcile_family *f, const struct config *config,
                          enum repair_way way, bool apply, int64_t wall_ms)
{
    struct repair *r = mem_new(sizeof *r);

    *r = (struct repair){.f = f,
                         .config = config,
                         .way = way,
                         .apply = apply,
                         .wall_ms = wall_ms,
                         .step = REPAIR_END,
                         .columns = mem_array(f->n_columns, sizeof *r->columns)};
    return r;
}

static void forget(struct repair *r)
{
    bson_destroy(r->counter);
    r->counter = NULL;
    r->applied.n = r->opened.n = 0;
    r->more_opened = false;
    memset(r->columns, 0, r->f->n_columns * sizeof *r->columns);
}

void repair_free(struct repair *r)
{
    if (r == NULL)
        return;
    forget(r);
    bson_destroy(r->key);
    mem_free(r->applied.items);
    mem_free(r->opened.items);
    mem_free(r->columns);
    mem_free(r);
}

static void attempt(struct repair *r)
{
    forget(r);
    r->beginning_again = false;
    r->step = r->way == REPAIR_SNAPSHOT ? REPAIR_BEGIN : REPAIR_READ;
}

void repair_begin(struct repair *r, const bson_t *key)
{
    bson_destroy(r->key);
    r->key = bson_copy(key);
    r->attempts = 0;
    r->sent = false;
    attempt(r);
}

enum repair_end repair_result(const struct repair *r, const struct repair_column **columns)
{
    *columns = r->columns;
    return r->end;
}

bool repair_found_document(const struct repair *r)
{
    return r->counter != NULL;
}

/* --- the way through --- */

/* May there be documents of the source whose effects are a log beside them? To look at those of
 * events costs nothing; a ledger is asked for those that are open. */
static bool has_log(const struct repair *r, size_t source)
{
    const struct reconcile_source *s = &r->f->sources[source];
    const struct config_route *route = &r->config->routes[s->route];

    return r->way == REPAIR_COMPARE || route->effects == EFFECTS_LOG || s->logged ||
           !config_has_operation(route);
}

static bool has_ledger(const struct repair *r, size_t source)
{
    return has_log(r, source) &&
           config_has_operation(&r->config->routes[r->f->sources[source].route]);
}

static void judge(struct repair *r)
{
    bool made = r->counter != NULL || r->f->upsert, too_large = false;

    r->end = REPAIR_SAME;
    for (size_t i = 0; i < r->f->n_columns; i++) {
        struct repair_column *c = &r->columns[i];

        c->stored = r->counter ? reconcile_value_of(r->counter, r->f->columns[i])
                               : (struct reconcile_value){.type = RECONCILE_ABSENT};
        c->difference = made ? reconcile_compare(c->counted, c->stored) : RECONCILE_SAME;
        if (c->difference != RECONCILE_SAME)
            r->end = REPAIR_DIFFERS;
        too_large = too_large || c->too_large;
    }
    if (too_large)
        r->end = REPAIR_TOO_LARGE;
    else if (r->end == REPAIR_SAME && r->sent)
        r->end = REPAIR_REPAIRED; /* the set whose answer was lost */
}

/* All is read. */
static enum repair_step behind_reading(struct repair *r)
{
    judge(r);
    if (r->end == REPAIR_DIFFERS && r->apply)
        return REPAIR_SET;
    return r->way == REPAIR_SNAPSHOT ? REPAIR_ABORT : REPAIR_LOOK;
}

static enum repair_step next_source(struct repair *r)
{
    if (++r->source == r->f->n_sources)
        return behind_reading(r);
    r->opened.n = 0;
    r->again = false;
    return has_ledger(r, r->source) ? REPAIR_OPEN : REPAIR_COUNT;
}

/* Somebody was in the way. */
static enum repair_step missed(struct repair *r)
{
    bool open = r->way == REPAIR_SNAPSHOT && r->step != REPAIR_COMMIT && r->step != REPAIR_BEGIN;

    if (r->attempts++ == ATTEMPTS)
        r->end = REPAIR_UNSETTLED;
    r->beginning_again = r->attempts <= ATTEMPTS;
    return open ? REPAIR_ABORT : r->beginning_again ? REPAIR_WAIT : REPAIR_END;
}

static enum repair_step repaired(struct repair *r)
{
    r->end = REPAIR_REPAIRED;
    return REPAIR_END;
}

static enum repair_step behind(struct repair *r)
{
    switch (r->step) {
    case REPAIR_BEGIN:
        return REPAIR_READ;
    case REPAIR_READ:
        r->source = SIZE_MAX;
        return next_source(r);
    case REPAIR_OPEN:
        if (!r->again)
            return REPAIR_COUNT;
        return r->more_opened ? missed(r) : next_source(r);
    case REPAIR_COUNT:
        r->again = r->way == REPAIR_COMPARE && has_ledger(r, r->source);
        return r->again ? REPAIR_OPEN : next_source(r);
    case REPAIR_SET:
        r->sent = true;
        return r->way == REPAIR_SNAPSHOT ? REPAIR_COMMIT : repaired(r);
    case REPAIR_COMMIT:
        return repaired(r);
    case REPAIR_ABORT:
        return r->beginning_again ? REPAIR_WAIT : REPAIR_END;
    case REPAIR_WAIT:
        attempt(r);
        return r->step;
    case REPAIR_LOOK:
    case REPAIR_END:
        break;
    }
    return REPAIR_END;
}

enum repair_step repair_next(struct repair *r, size_t *source)
{
    *source = r->source;
    return r->step;
}

void repair_answer(struct repair *r, enum repair_answer answer)
{
    r->step = answer == REPAIR_MISSED && r->step != REPAIR_ABORT ? missed(r) : behind(r);
}

/* --- what is found --- */

void repair_counter(struct repair *r, const bson_t *document)
{
    r->counter = bson_copy(document);
    read_applied(r, document);
}

/* The id of a stored event. False: it is not ours, and has no key. */
static bool stored_id(const struct repair *r, size_t source, const bson_t *event,
                      uint8_t id[EFFECT_ID_BYTES])
{
    const struct config_route *route = &r->config->routes[r->f->sources[source].route];
    bson_t filter = BSON_INITIALIZER;
    struct log_id found;
    bool ok = log_event_filter(route, event, &filter);

    if (ok)
        log_event_id(route, &filter, &found);
    if (ok)
        memcpy(id, found.bytes, EFFECT_ID_BYTES);
    bson_destroy(&filter);
    return ok;
}

void repair_opened(struct repair *r, const bson_t *event)
{
    uint8_t id[EFFECT_ID_BYTES];

    if (!stored_id(r, r->source, event, id))
        return;
    if (!r->again)
        ids_add(&r->opened, id);
    else if (!ids_has(&r->opened, id))
        r->more_opened = true;
}

/* An open document of a route without an operation: it is its event. */
static int event_counts(struct repair *r, size_t source, const bson_t *group)
{
    uint8_t id[EFFECT_ID_BYTES];
    bson_t document;
    bson_iter_t it;
    const uint8_t *data;
    uint32_t len;

    if (!bson_iter_init_find(&it, group, "e") || !BSON_ITER_HOLDS_DOCUMENT(&it))
        return 1;
    bson_iter_document(&it, &len, &data);
    return !bson_init_static(&document, data, len) || !stored_id(r, source, &document, id) ||
                   ids_has(&r->applied, id)
               ? 1
               : 0;
}

/* An entity that an open event has added, or that one is about to remove. */
static int entity_counts(struct repair *r, const bson_t *group)
{
    uint8_t id[EFFECT_ID_BYTES];
    bson_iter_t it;
    int counts = 1;

    if (bson_iter_init_find(&it, group, "by") && binary_id(&it, id) && ids_has(&r->opened, id) &&
        !ids_has(&r->applied, id))
        counts = 0;
    if (bson_iter_init_find(&it, group, "rm") && binary_id(&it, id) && ids_has(&r->applied, id))
        counts -= 1;
    return counts;
}

void repair_counted(struct repair *r, size_t source, const bson_t *group)
{
    const struct reconcile_source *s = &r->f->sources[source];
    int64_t *sums = mem_array(s->counter->inc.n, sizeof *sums);
    bool *fits = mem_array(s->counter->inc.n, sizeof *fits);
    int counts = 1;
    bson_iter_t it;

    (void)!reconcile_sums(s, group, sums, fits);
    if (bson_iter_init_find(&it, group, "_id") && !BSON_ITER_HOLDS_NULL(&it))
        counts = has_ledger(r, source) ? entity_counts(r, group) : event_counts(r, source, group);
    for (size_t i = 0; i < s->counter->inc.n; i++) {
        struct repair_column *c = &r->columns[s->columns[i]];

        if (!fits[i] ||
            (counts < 0 ? __builtin_sub_overflow(c->counted, sums[i], &c->counted)
                        : counts > 0 && __builtin_add_overflow(c->counted, sums[i], &c->counted)))
            c->too_large = true;
    }
    mem_free(sums);
    mem_free(fits);
}

/* --- what is asked --- */

void repair_key(const struct repair *r, bson_t *filter)
{
    bson_iter_t it;

    MUST(bson_iter_init(&it, r->key));
    while (bson_iter_next(&it)) {
        bson_t equal;

        BSON_APPEND_DOCUMENT_BEGIN(filter, bson_iter_key(&it), &equal);
        (void)bson_append_iter(&equal, "$eq", 3, &it);
        bson_append_document_end(filter, &equal);
    }
}

void repair_open_filter(const struct repair *r, size_t source, bson_t *filter)
{
    const struct config_counter *c = r->f->sources[source].counter;
    char *ns = mem_printf("%s.%s", c->database, c->collection);

    BCON_APPEND(filter, LOG_EFFECTS ".at", "{", "$exists", BCON_BOOL(true), "}",
                LOG_EFFECTS ".failed", "{", "$exists", BCON_BOOL(false), "}", LOG_EFFECTS ".moves",
                "{", "$elemMatch", "{", "c", BCON_UTF8(ns), "f", BCON_DOCUMENT(r->key), "}", "}");
    mem_free(ns);
}

static void append_match(const struct repair *r, const struct reconcile_source *s, bson_t *stage)
{
    bson_t match, field, expr, all, equal, operands, literal;
    bson_iter_t it;
    char number[24];
    size_t i = 0;

    BSON_APPEND_DOCUMENT_BEGIN(stage, "$match", &match);
    MUST(bson_iter_init(&it, r->key));
    for (; bson_iter_next(&it); i++) {
        BSON_APPEND_DOCUMENT_BEGIN(&match, s->paths[i], &field);
        (void)bson_append_iter(&field, "$eq", 3, &it);
        bson_append_document_end(&match, &field);
    }
    /* The same without what the above finds inside of arrays. */
    BSON_APPEND_DOCUMENT_BEGIN(&match, "$expr", &expr);
    BSON_APPEND_ARRAY_BEGIN(&expr, "$and", &all);
    MUST(bson_iter_init(&it, r->key));
    for (i = 0; bson_iter_next(&it); i++) {
        char *path = mem_printf("$%s", s->paths[i]);

        (void)snprintf(number, sizeof number, "%zu", i);
        BSON_APPEND_DOCUMENT_BEGIN(&all, number, &equal);
        BSON_APPEND_ARRAY_BEGIN(&equal, "$eq", &operands);
        BSON_APPEND_UTF8(&operands, "0", path);
        BSON_APPEND_DOCUMENT_BEGIN(&operands, "1", &literal);
        (void)bson_append_iter(&literal, "$literal", 8, &it);
        bson_append_document_end(&operands, &literal);
        bson_append_array_end(&equal, &operands);
        bson_append_document_end(&all, &equal);
        mem_free(path);
    }
    bson_append_array_end(&expr, &all);
    bson_append_document_end(&match, &expr);
    bson_append_document_end(stage, &match);
}

/* Which documents are looked at one by one: an event that is open; an entity that is about to be
 * removed, or that an open event has added. */
static bson_t *apart_new(const struct repair *r, size_t source)
{
    bson_t *apart, list = BSON_INITIALIZER;
    char number[24];

    if (!has_log(r, source))
        return BCON_NEW("$literal", BCON_BOOL(false));
    if (!has_ledger(r, source))
        return BCON_NEW("$and", "[", "{", "$eq", "[", "{", "$type",
                        BCON_UTF8("$" LOG_EFFECTS ".id"), "}", BCON_UTF8("binData"), "]", "}", "{",
                        "$eq", "[", "{", "$type", BCON_UTF8("$" LOG_EFFECTS ".failed"), "}",
                        BCON_UTF8("missing"), "]", "}", "]");
    for (size_t i = 0; i < r->opened.n; i++) {
        (void)snprintf(number, sizeof number, "%zu", i);
        BSON_APPEND_BINARY(&list, number, BSON_SUBTYPE_BINARY, r->opened.items[i], EFFECT_ID_BYTES);
    }
    apart = BCON_NEW("$or", "[", "{", "$ne", "[", "{", "$type", BCON_UTF8("$_removed_by"), "}",
                     BCON_UTF8("missing"), "]", "}", "{", "$in", "[", BCON_UTF8("$_by"),
                     BCON_ARRAY(&list), "]", "}", "]");
    bson_destroy(&list);
    return apart;
}

/* name: {op: {$cond: [apart, value, null]}}; op NULL: without it. */
static void append_when(bson_t *group, const char *name, const char *op, const bson_t *apart,
                        const char *value)
{
    bson_t in;

    if (op == NULL) {
        BCON_APPEND(group, name, "{", "$cond", "[", BCON_DOCUMENT(apart), BCON_UTF8(value),
                    BCON_NULL, "]", "}");
        return;
    }
    BSON_APPEND_DOCUMENT_BEGIN(group, name, &in);
    append_when(&in, op, NULL, apart, value);
    bson_append_document_end(group, &in);
}

/* One reading of the documents: each is taken in one state. */
void repair_pipeline(const struct repair *r, size_t source, bson_t *out)
{
    const struct reconcile_source *s = &r->f->sources[source];
    bson_t pipeline, stage, group, *apart = apart_new(r, source);
    char name[24];

    BSON_APPEND_ARRAY_BEGIN(out, "pipeline", &pipeline);
    BSON_APPEND_DOCUMENT_BEGIN(&pipeline, "0", &stage);
    append_match(r, s, &stage);
    bson_append_document_end(&pipeline, &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&pipeline, "1", &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$group", &group);
    append_when(&group, "_id", NULL, apart, "$_id");
    if (has_ledger(r, source)) {
        append_when(&group, "by", "$first", apart, "$_by");
        append_when(&group, "rm", "$first", apart, "$_removed_by");
    } else if (has_log(r, source)) {
        append_when(&group, "e", "$first", apart, "$$ROOT");
    }
    for (size_t i = 0; i < s->counter->inc.n; i++) {
        (void)snprintf(name, sizeof name, "s%zu", i);
        reconcile_add_sum(s, i, name, &group);
    }
    bson_append_document_end(&stage, &group);
    bson_append_document_end(&pipeline, &stage);
    bson_append_array_end(out, &pipeline);
    bson_destroy(apart);
}

/* --- the set --- */

bool repair_makes(const struct repair *r)
{
    return r->apply && r->counter == NULL && r->f->upsert;
}

/* {path: {$eq: what is there}}, or that nothing is. */
static void append_unchanged(const struct repair *r, const char *path, bson_t *filter)
{
    bson_iter_t it, found;
    bson_t is;

    BSON_APPEND_DOCUMENT_BEGIN(filter, path, &is);
    if (bson_iter_init(&it, r->counter) && bson_iter_find_descendant(&it, path, &found))
        (void)bson_append_iter(&is, "$eq", 3, &found);
    else
        BSON_APPEND_BOOL(&is, "$exists", false);
    bson_append_document_end(filter, &is);
}

static bool has_version(const struct repair *r)
{
    bson_iter_t it;

    return r->counter && bson_iter_init_find(&it, r->counter, LOG_VERSION);
}

void repair_filter(const struct repair *r, bson_t *filter)
{
    repair_key(r, filter);
    if (r->counter == NULL || r->way == REPAIR_SNAPSHOT)
        return;
    for (size_t i = 0; i < r->f->n_columns; i++)
        append_unchanged(r, r->f->columns[i], filter);
    append_unchanged(r, LOG_VERSION, filter);
    if (!has_version(r))
        append_unchanged(r, LOG_APPLIED, filter);
}

/* Redis takes a mirrored counter only with a higher version than it has, which may be that of a
 * document that was removed meanwhile: 1 more would not do. Whoever moves the counter while this is
 * on its way is in the way of the set, so the number is not one that somebody else has given. */
static int64_t next_version(const struct repair *r)
{
    bson_iter_t it;
    int64_t have = 0;

    if (r->counter && bson_iter_init_find(&it, r->counter, LOG_VERSION) &&
        BSON_ITER_HOLDS_NUMBER(&it))
        have = bson_iter_as_int64(&it);
    if (!r->f->mirrored && r->counter == NULL)
        return 1;
    return r->f->mirrored && have < r->wall_ms ? r->wall_ms : have + 1;
}

void repair_update(const struct repair *r, bson_t *update)
{
    bool versioned = has_version(r) || r->way == REPAIR_COMPARE || r->f->mirrored;
    bool sets = versioned && (repair_makes(r) || r->f->mirrored);
    bson_t set, more;

    BSON_APPEND_DOCUMENT_BEGIN(update, repair_makes(r) ? "$setOnInsert" : "$set", &set);
    for (size_t i = 0; i < r->f->n_columns; i++)
        if (r->columns[i].difference != RECONCILE_SAME)
            BSON_APPEND_INT64(&set, r->f->columns[i], r->columns[i].counted);
    if (sets)
        BSON_APPEND_INT64(&set, LOG_VERSION, next_version(r));
    bson_append_document_end(update, &set);
    if (!versioned || sets)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(update, "$inc", &more);
    BSON_APPEND_INT64(&more, LOG_VERSION, 1);
    bson_append_document_end(update, &more);
}
