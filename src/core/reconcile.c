#include "core/reconcile.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/canonical.h"
#include "core/repair.h"
#include "core/types.h"

/* --- where the documents hold it --- */

static bool inside(const char *path, const char *of)
{
    size_t n = strlen(of);

    return strncmp(path, of, n) == 0 && (path[n] == '\0' || path[n] == '.');
}

/* NULL: nowhere, *why in words. */
static char *stored_path(const struct config_route *r, const char *source, const char **why)
{
    *why = *source == '@' ? "is not stored in the documents; [route.set] can store it"
                          : "is not stored in the documents: include or exclude leaves it out";
    return config_stored_path(r, source);
}

/* --- families --- */

static bool same_fields(const struct config_pairs *a, const struct config_pairs *b)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (strcmp(a->items[i].name, b->items[i].name) != 0)
            return false;
    return true;
}

bool reconcile_is_of(const struct reconcile_family *f, const struct config_counter *c)
{
    return strcmp(f->database, c->database) == 0 && strcmp(f->collection, c->collection) == 0 &&
           same_fields(f->fields, &c->filter);
}

static struct reconcile_family *family_of(struct reconcile_plan *p, const struct config_counter *c)
{
    for (size_t i = 0; i < p->n; i++)
        if (reconcile_is_of(&p->families[i], c))
            return &p->families[i];
    p->families = mem_grow(p->families, p->n + 1, sizeof *p->families);
    p->families[p->n] = (struct reconcile_family){
        .database = c->database, .collection = c->collection, .fields = &c->filter};
    return &p->families[p->n++];
}

static size_t column_of(struct reconcile_family *f, const char *name)
{
    for (size_t i = 0; i < f->n_columns; i++)
        if (strcmp(f->columns[i], name) == 0)
            return i;
    f->columns = mem_grow(f->columns, f->n_columns + 1, sizeof *f->columns);
    f->columns[f->n_columns] = name;
    return f->n_columns++;
}

static void unable(struct reconcile_family *f, const struct config_route *r, const char *source,
                   const char *why)
{
    if (f->unable == NULL)
        f->unable = mem_printf("route %s: \"%s\" %s", r->name, source, why);
}

static void add_amount(struct reconcile_family *f, struct reconcile_source *s, size_t i,
                       const struct config_route *r)
{
    json_t *value = json_loads(s->counter->inc.items[i].value, JSON_DECODE_ANY, NULL);
    const char *why;

    if (json_is_string(value)) {
        s->amounts[i] = stored_path(r, json_string_value(value), &why);
        if (s->amounts[i] == NULL)
            unable(f, r, json_string_value(value), why);
    } else {
        s->constants[i] = json_integer_value(value);
    }
    json_decref(value);
}

static void add_source(struct reconcile_plan *p, const struct config *config, uint32_t route,
                       const struct config_counter *c)
{
    const struct config_route *r = &config->routes[route];
    struct reconcile_family *f = family_of(p, c);
    const char *why;

    f->sources = mem_grow(f->sources, f->n_sources + 1, sizeof *f->sources);
    struct reconcile_source *s = &f->sources[f->n_sources++];
    *s = (struct reconcile_source){.route = route,
                                   .counter = c,
                                   .paths = mem_array(c->filter.n, sizeof *s->paths),
                                   .amounts = mem_array(c->inc.n, sizeof *s->amounts),
                                   .constants = mem_array(c->inc.n, sizeof *s->constants),
                                   .columns = mem_array(c->inc.n, sizeof *s->columns)};
    f->upsert = f->upsert || c->upsert;
    f->mirrored = f->mirrored || (c->mirror && *c->mirror);
    for (size_t i = 0; i < c->filter.n; i++) {
        s->paths[i] = stored_path(r, c->filter.items[i].value, &why);
        if (s->paths[i] == NULL)
            unable(f, r, c->filter.items[i].value, why);
    }
    for (size_t i = 0; i < c->inc.n; i++) {
        s->columns[i] = column_of(f, c->inc.items[i].name);
        add_amount(f, s, i, r);
    }
}

/* Whoever counts one field by other fields of the filter can't be added up with the rest. */
static void check_apart(struct reconcile_plan *p, const struct config *config)
{
    for (size_t i = 0; i < p->n; i++)
        for (size_t j = 0; j < p->n; j++) {
            struct reconcile_family *f = &p->families[i], *g = &p->families[j];
            bool same =
                strcmp(f->database, g->database) == 0 && strcmp(f->collection, g->collection) == 0;

            for (size_t c = 0; i != j && same && c < f->n_columns; c++)
                for (size_t d = 0; d < g->n_columns; d++)
                    if ((inside(f->columns[c], g->columns[d]) ||
                         inside(g->columns[d], f->columns[c])))
                        unable(f, &config->routes[f->sources[0].route], f->columns[c],
                               "is counted by another counter, too, whose filter has other fields");
        }
}

static void source_clear(struct reconcile_source *s)
{
    for (size_t i = 0; i < s->counter->filter.n; i++)
        mem_free(s->paths[i]);
    for (size_t i = 0; i < s->counter->inc.n; i++)
        mem_free(s->amounts[i]);
    mem_free(s->paths);
    mem_free(s->amounts);
    mem_free(s->constants);
    mem_free(s->columns);
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a && b && strcmp(a, b) == 0);
}

/* Do they count the same of one and the same documents? */
static bool same_source(const struct reconcile_source *a, const struct reconcile_source *b)
{
    if (a->counter->inc.n != b->counter->inc.n)
        return false;
    for (size_t i = 0; i < a->counter->filter.n; i++)
        if (!same_text(a->paths[i], b->paths[i]))
            return false;
    for (size_t i = 0; i < a->counter->inc.n; i++)
        if (a->columns[i] != b->columns[i] || a->constants[i] != b->constants[i] ||
            !same_text(a->amounts[i], b->amounts[i]))
            return false;
    return true;
}

static bool same_collection(const struct config_route *a, const struct config_route *b)
{
    return strcmp(a->database, b->database) == 0 && strcmp(a->collection, b->collection) == 0;
}

static size_t twin_of(const struct reconcile_family *f, size_t i, uint32_t route)
{
    for (size_t j = 0; j < f->n_sources; j++)
        if (j != i && f->sources[j].route == route && same_source(&f->sources[i], &f->sources[j]))
            return j;
    return SIZE_MAX;
}

/* Nothing tells which of several routes a document of their collection came by. So all of them have
 * to count the same of it, and it is counted once. */
static void check_shared(struct reconcile_family *f, const struct config *config)
{
    for (size_t i = 0; i < f->n_sources && f->unable == NULL; i++) {
        const struct config_route *own = &config->routes[f->sources[i].route];

        for (uint32_t r = 0; r < config->n_routes; r++)
            if (r != f->sources[i].route && same_collection(own, &config->routes[r]) &&
                twin_of(f, i, r) == SIZE_MAX)
                unable(f, own, f->columns[f->sources[i].columns[0]],
                       "can't be told apart from what another route without this counter stores "
                       "in the same collection");
    }
    for (size_t i = f->n_sources; f->unable == NULL && i-- > 0;) {
        const struct config_route *own = &config->routes[f->sources[i].route];
        bool twice = false;

        for (uint32_t r = 0; r < f->sources[i].route; r++)
            twice = twice || same_collection(own, &config->routes[r]);
        if (!twice)
            continue;
        source_clear(&f->sources[i]);
        for (size_t j = i + 1; j < f->n_sources; j++)
            f->sources[j - 1] = f->sources[j];
        f->n_sources--;
    }
}

void reconcile_plan_init(struct reconcile_plan *p, const struct config *config)
{
    *p = (struct reconcile_plan){0};
    for (uint32_t i = 0; i < config->n_routes; i++)
        for (size_t j = 0; j < config->routes[i].n_counters; j++)
            add_source(p, config, i, &config->routes[i].counters[j]);
    check_apart(p, config);
    for (size_t i = 0; i < p->n; i++)
        check_shared(&p->families[i], config);
}

void reconcile_plan_clear(struct reconcile_plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        for (size_t j = 0; j < p->families[i].n_sources; j++)
            source_clear(&p->families[i].sources[j]);
        mem_free(p->families[i].sources);
        mem_free(p->families[i].columns);
        mem_free(p->families[i].unable);
    }
    mem_free(p->families);
    *p = (struct reconcile_plan){0};
}

/* --- the truth of all --- */

void reconcile_add_sum(const struct reconcile_source *s, size_t i, const char *name, bson_t *group)
{
    char *path;

    if (s->amounts[i] == NULL) {
        BCON_APPEND(group, name, "{", "$sum", BCON_INT64(s->constants[i]), "}");
        return;
    }
    /* As the mapping has it: a number that is a whole one; what is no number was dead-lettered. */
    path = mem_printf("$%s", s->amounts[i]);
    BCON_APPEND(group, name, "{", "$sum", "{", "$cond", "[", "{", "$isNumber", BCON_UTF8(path), "}",
                "{", "$convert", "{", "input", BCON_UTF8(path), "to", BCON_UTF8("long"), "onError",
                BCON_INT64(0), "}", "}", BCON_INT64(0), "]", "}", "}");
    mem_free(path);
}

void reconcile_truth(const struct reconcile_family *f, size_t source, bson_t *out)
{
    const struct reconcile_source *s = &f->sources[source];
    bson_t pipeline, stage, group, id;
    char name[24];

    BSON_APPEND_ARRAY_BEGIN(out, "pipeline", &pipeline);
    BSON_APPEND_DOCUMENT_BEGIN(&pipeline, "0", &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stage, "$group", &group);
    BSON_APPEND_DOCUMENT_BEGIN(&group, "_id", &id);
    for (size_t i = 0; i < f->fields->n; i++) {
        char *path = mem_printf("$%s", s->paths[i]);

        (void)snprintf(name, sizeof name, "k%zu", i);
        BSON_APPEND_UTF8(&id, name, path);
        mem_free(path);
    }
    bson_append_document_end(&group, &id);
    for (size_t i = 0; i < s->counter->inc.n; i++) {
        (void)snprintf(name, sizeof name, "s%zu", i);
        reconcile_add_sum(s, i, name, &group);
    }
    bson_append_document_end(&stage, &group);
    bson_append_document_end(&pipeline, &stage);
    bson_append_array_end(out, &pipeline);
}

/* What the mapping takes for a part of a counter's filter. */
bool reconcile_add_part(bson_t *key, const char *name, const bson_iter_t *value)
{
    uint32_t len;
    int64_t whole;

    switch (bson_iter_type(value)) {
    case BSON_TYPE_UTF8:
        (void)bson_iter_utf8(value, &len);
        if (len == 0)
            return false;
        break;
    case BSON_TYPE_DOUBLE:
        if (!types_exact_integer(bson_iter_double(value), &whole))
            return false;
        break;
    case BSON_TYPE_INT32:
    case BSON_TYPE_INT64:
    case BSON_TYPE_BOOL:
    case BSON_TYPE_OID:
    case BSON_TYPE_DATE_TIME:
    case BSON_TYPE_BINARY:
    case BSON_TYPE_DECIMAL128:
        break;
    default:
        return false;
    }
    return canonical_append(key, name, value);
}

/* $sum of nothing is an int32; what doesn't fit goes over to doubles. */
bool reconcile_sums(const struct reconcile_source *s, const bson_t *group, int64_t *sums,
                    bool *fits)
{
    char name[24];
    bson_iter_t it;
    bool all = true;

    for (size_t i = 0; i < s->counter->inc.n; i++) {
        (void)snprintf(name, sizeof name, "s%zu", i);
        fits[i] = bson_iter_init_find(&it, group, name) &&
                  (BSON_ITER_HOLDS_INT32(&it) || BSON_ITER_HOLDS_INT64(&it));
        sums[i] = fits[i] ? bson_iter_as_int64(&it) : 0;
        all = all && fits[i];
    }
    return all;
}

bool reconcile_group(const struct reconcile_family *f, size_t source, const bson_t *group,
                     bson_t *key, int64_t *sums, bool *too_large)
{
    bson_iter_t it, parts;
    char name[24];
    size_t n = 0;

    *too_large = false;
    if (!bson_iter_init_find(&it, group, "_id") || !BSON_ITER_HOLDS_DOCUMENT(&it) ||
        !bson_iter_recurse(&it, &parts))
        return false;
    while (bson_iter_next(&parts)) { /* what a document does not have is left out */
        (void)snprintf(name, sizeof name, "k%zu", n);
        if (n == f->fields->n || strcmp(bson_iter_key(&parts), name) != 0 ||
            !reconcile_add_part(key, f->fields->items[n].name, &parts))
            return false;
        n++;
    }
    if (n != f->fields->n)
        return false;
    bool *fits = mem_array(f->sources[source].counter->inc.n, sizeof *fits);
    *too_large = !reconcile_sums(&f->sources[source], group, sums, fits);
    mem_free(fits);
    return !*too_large;
}

/* --- the counters --- */

void reconcile_counters(const struct reconcile_family *f, bson_t *filter, bson_t *projection)
{
    bson_t any, one, exists;
    char name[24];
    bool with_id = false;

    BSON_APPEND_ARRAY_BEGIN(filter, "$or", &any);
    for (size_t i = 0; i < f->n_columns; i++) {
        (void)snprintf(name, sizeof name, "%zu", i);
        BSON_APPEND_DOCUMENT_BEGIN(&any, name, &one);
        BSON_APPEND_DOCUMENT_BEGIN(&one, f->columns[i], &exists);
        BSON_APPEND_BOOL(&exists, "$exists", true);
        bson_append_document_end(&one, &exists);
        bson_append_document_end(&any, &one);
        BSON_APPEND_BOOL(projection, f->columns[i], true);
    }
    bson_append_array_end(filter, &any);
    for (size_t i = 0; i < f->fields->n; i++) {
        with_id = with_id || inside(f->fields->items[i].name, "_id");
        BSON_APPEND_BOOL(projection, f->fields->items[i].name, true);
    }
    if (!with_id)
        BSON_APPEND_BOOL(projection, "_id", false);
}

bool reconcile_counter_key(const struct reconcile_family *f, const bson_t *document, bson_t *key)
{
    bson_t found = BSON_INITIALIZER, like = BSON_INITIALIZER;
    bson_iter_t it;
    bool ok;

    for (size_t i = 0; i < f->fields->n; i++)
        BSON_APPEND_NULL(&like, f->fields->items[i].name);
    ok = canonical_key(document, &like, &found) && bson_iter_init(&it, &found);
    while (ok && bson_iter_next(&it))
        ok = reconcile_add_part(key, bson_iter_key(&it), &it);
    bson_destroy(&like);
    bson_destroy(&found);
    return ok;
}

struct reconcile_value reconcile_value_of(const bson_t *document, const char *column)
{
    bson_iter_t it, found;

    if (!bson_iter_init(&it, document) || !bson_iter_find_descendant(&it, column, &found))
        return (struct reconcile_value){.type = RECONCILE_ABSENT};
    if (BSON_ITER_HOLDS_INT64(&found))
        return (struct reconcile_value){.type = RECONCILE_INT64, .number = bson_iter_int64(&found)};
    if (BSON_ITER_HOLDS_INT32(&found))
        return (struct reconcile_value){.type = RECONCILE_INT32, .number = bson_iter_int32(&found)};
    return (struct reconcile_value){.type = RECONCILE_OTHER};
}

enum reconcile_difference reconcile_compare(int64_t counted, struct reconcile_value stored)
{
    switch (stored.type) {
    case RECONCILE_ABSENT:
        return counted == 0 ? RECONCILE_SAME : RECONCILE_MISSING;
    case RECONCILE_OTHER:
        return RECONCILE_TYPE;
    case RECONCILE_INT32:
    case RECONCILE_INT64:
        break;
    }
    if (stored.number != counted)
        return counted == 0 ? RECONCILE_EXTRA : RECONCILE_DIFFERENT;
    return stored.type == RECONCILE_INT32 && counted != 0 ? RECONCILE_TYPE : RECONCILE_SAME;
}

const char *reconcile_difference_name(enum reconcile_difference d)
{
    static const char *const names[] = {[RECONCILE_SAME] = "same",
                                        [RECONCILE_MISSING] = "missing",
                                        [RECONCILE_EXTRA] = "extra",
                                        [RECONCILE_DIFFERENT] = "different",
                                        [RECONCILE_TYPE] = "type"};

    return names[d];
}
