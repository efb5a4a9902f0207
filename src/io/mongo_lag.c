/*
 * Do the counters of a sequence lag behind the numbers that are in the collection?
 *
 * The documents are read first and their counters afterwards: numbers that are given meanwhile are
 * in the counters by then, so a running process makes no false alarm.
 */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/canonical.h"
#include "core/pick.h"
#include "io/mongo_needs.h"
#include "io/mongo_private.h"

enum {
    GROUPS_AT_ONCE = 1000,
    NEWEST = 10000,        /* documents of a quick look at a big collection */
    MAX_TIME_EXPIRED = 50, /* the server's codes */
    BAD_VALUE = 2,         /* no such index */
    DUPLICATE_KEY = 11000
};

struct group {
    bson_t *filter; /* {_id: ...}, canonical */
    int64_t highest, counter;
};

struct comparing {
    struct mongo *m;
    const struct config_route *route;
    mongoc_client_t *client;
    mongoc_collection_t *counters;
    mongoc_read_concern_t *majority;
    bool raise;
    struct group groups[GROUPS_AT_ONCE];
    size_t n;
    struct mongo_lag *out;
};

/* --- the highest numbers --- */

/* {_id: {a: "$path"}, n: {$max: "$field"}} */
static void append_grouping(const struct comparing *x, bson_t *stage)
{
    const struct config_sequence *q = &x->route->sequence;
    char path[512];
    bson_t group, id, max;

    BSON_APPEND_DOCUMENT_BEGIN(stage, "$group", &group);
    BSON_APPEND_DOCUMENT_BEGIN(&group, "_id", &id);
    for (size_t i = 0; i < q->group.n; i++) {
        char *name = pick_part_name(q->group.items[i]);

        snprintf(path, sizeof path, "$%.500s", x->route->sequence.group_fields.items[i]);
        BSON_APPEND_UTF8(&id, name, path);
        mem_free(name);
    }
    bson_append_document_end(&group, &id);
    snprintf(path, sizeof path, "$%.500s", q->field);
    BSON_APPEND_DOCUMENT_BEGIN(&group, "n", &max);
    BSON_APPEND_UTF8(&max, "$max", path);
    bson_append_document_end(&group, &max);
    bson_append_document_end(stage, &group);
}

/*
 * Only numbers count, and what is below the start is in nobody's way. A document without its group
 * is none of ours; saying so lets the server answer from the index alone, without a document
 * (measured on 6.0.5: without $ne it reads each one, behind the index, at a fifth of the speed).
 */
static void append_numbers(const struct comparing *x, bson_t *stage)
{
    const struct config_sequence *q = &x->route->sequence;
    bson_t match, condition;

    BSON_APPEND_DOCUMENT_BEGIN(stage, "$match", &match);
    for (size_t i = 0; i < q->group_fields.n; i++) {
        BSON_APPEND_DOCUMENT_BEGIN(&match, q->group_fields.items[i], &condition);
        BSON_APPEND_NULL(&condition, "$ne");
        bson_append_document_end(&match, &condition);
    }
    BSON_APPEND_DOCUMENT_BEGIN(&match, q->field, &condition);
    BSON_APPEND_INT64(&condition, "$gte", q->start);
    bson_append_document_end(&match, &condition);
    bson_append_document_end(stage, &match);
}

static void pipeline_of(const struct comparing *x, bool newest, bson_t *out)
{
    bson_t stages, stage;

    BSON_APPEND_ARRAY_BEGIN(out, "pipeline", &stages);
    if (newest) {
        BSON_APPEND_DOCUMENT_BEGIN(&stages, "0", &stage);
        BSON_APPEND_INT32(&stage, "$limit", NEWEST);
        bson_append_document_end(&stages, &stage);
    }
    BSON_APPEND_DOCUMENT_BEGIN(&stages, newest ? "1" : "0", &stage);
    append_numbers(x, &stage);
    bson_append_document_end(&stages, &stage);
    BSON_APPEND_DOCUMENT_BEGIN(&stages, newest ? "2" : "1", &stage);
    append_grouping(x, &stage);
    bson_append_document_end(&stages, &stage);
    bson_append_array_end(out, &stages);
}

/* The index holds all that is asked for, so no document has to be read; or the order of storage,
 * backwards. */
enum hint { HINT_NONE, HINT_INDEX, HINT_NEWEST };

static void opts_of(const struct comparing *x, enum hint hint, int64_t max_ms, bson_t *out)
{
    bson_t key;

    if (max_ms > 0)
        BSON_APPEND_INT64(out, "maxTimeMS", max_ms);
    BSON_APPEND_BOOL(out, "allowDiskUse", true);
    mongoc_read_concern_append(x->majority, out);
    if (hint == HINT_NONE)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(out, "hint", &key);
    for (size_t i = 0; i < x->route->sequence.group.n && hint == HINT_INDEX; i++)
        BSON_APPEND_INT32(&key, x->route->sequence.group_fields.items[i], 1);
    if (hint == HINT_INDEX)
        BSON_APPEND_INT32(&key, x->route->sequence.field, 1);
    else
        BSON_APPEND_INT32(&key, "$natural", -1);
    bson_append_document_end(out, &key);
}

/* --- their counters --- */

static int by_bytes(const void *a, const void *b)
{
    const struct group *x = a, *y = b;

    return bson_compare(x->filter, y->filter);
}

static bool ask_counters(struct comparing *x, struct err *e)
{
    bson_t filter = BSON_INITIALIZER, opts = BSON_INITIALIZER, in, list;
    bson_iter_t id, n;
    const bson_t *doc;
    bson_error_t be;
    char key[16];
    const char *index;
    bool ok = true;

    BSON_APPEND_DOCUMENT_BEGIN(&filter, "_id", &in);
    BSON_APPEND_ARRAY_BEGIN(&in, "$in", &list);
    for (uint32_t i = 0; i < x->n; i++) {
        (void)bson_uint32_to_string(i, &index, key, sizeof key);
        if (bson_iter_init_find(&id, x->groups[i].filter, "_id"))
            BSON_APPEND_VALUE(&list, index, bson_iter_value(&id));
    }
    bson_append_array_end(&in, &list);
    bson_append_document_end(&filter, &in);
    mongoc_read_concern_append(x->majority, &opts);
    mongoc_cursor_t *cursor =
        mongoc_collection_find_with_opts(x->counters, &filter, &opts, x->m->primary);
    while (mongoc_cursor_next(cursor, &doc)) {
        struct group like = {.filter = bson_new()}, *found = NULL;

        if (bson_iter_init_find(&id, doc, "_id") && canonical_append(like.filter, "_id", &id))
            found = bsearch(&like, x->groups, x->n, sizeof x->groups[0], by_bytes);
        if (found && bson_iter_init_find(&n, doc, "n"))
            found->counter = bson_iter_as_int64(&n);
        bson_destroy(like.filter);
    }
    if (mongoc_cursor_error(cursor, &be))
        ok = mongo_fail(e, "reading the counters of a sequence", &be);
    mongoc_cursor_destroy(cursor);
    bson_destroy(&filter);
    bson_destroy(&opts);
    return ok;
}

/* $max: whoever has raised it further meanwhile keeps what he has. */
static bool raise(struct comparing *x, const struct group *g, struct err *e)
{
    bson_t update = BSON_INITIALIZER, opts = BSON_INITIALIZER, max;
    bson_error_t be = {0};
    bool ok = false;

    BSON_APPEND_DOCUMENT_BEGIN(&update, "$max", &max);
    BSON_APPEND_INT64(&max, "n", g->highest);
    bson_append_document_end(&update, &max);
    BSON_APPEND_BOOL(&opts, "upsert", true);
    mongoc_write_concern_append(x->m->concern, &opts);
    for (int i = 0; i < 2 && !ok; i++) { /* two who make one at once: the second finds it */
        ok = mongoc_collection_update_one(x->counters, g->filter, &update, &opts, NULL, &be);
        if (!ok && be.code != DUPLICATE_KEY)
            break;
    }
    bson_destroy(&update);
    bson_destroy(&opts);
    return ok || mongo_fail(e, "raising a counter of a sequence", &be);
}

static void tell_first(const struct group *g, struct mongo_lag *out)
{
    char *json = bson_as_relaxed_extended_json(g->filter, NULL);

    snprintf(out->group, sizeof out->group, "%s", json);
    bson_free(json);
    out->highest = g->highest;
    out->counter = g->counter;
}

static bool compare(struct comparing *x, struct err *e)
{
    bool ok;

    qsort(x->groups, x->n, sizeof x->groups[0], by_bytes);
    ok = x->n == 0 || ask_counters(x, e);
    for (size_t i = 0; ok && i < x->n; i++) {
        const struct group *g = &x->groups[i];

        if (g->counter >= g->highest)
            continue;
        if (x->out->behind++ == 0)
            tell_first(g, x->out);
        if (x->raise)
            ok = raise(x, g, e);
    }
    x->out->groups += x->n;
    for (size_t i = 0; i < x->n; i++)
        bson_destroy(x->groups[i].filter);
    x->n = 0;
    return ok;
}

/* --- both --- */

/* A group that no record of ours can have had: a part is missing, or no scalar. */
static bool is_ours(const struct comparing *x, const bson_iter_t *id)
{
    size_t n = 0;
    bson_iter_t part;

    if (!BSON_ITER_HOLDS_DOCUMENT(id) || !bson_iter_recurse(id, &part))
        return false;
    for (; bson_iter_next(&part); n++)
        if (BSON_ITER_HOLDS_NULL(&part) || BSON_ITER_HOLDS_UNDEFINED(&part) ||
            BSON_ITER_HOLDS_ARRAY(&part) || BSON_ITER_HOLDS_DOCUMENT(&part))
            return false;
    return n == x->route->sequence.group.n;
}

static int64_t number_of(const bson_iter_t *n)
{
    if (BSON_ITER_HOLDS_DOUBLE(n) && bson_iter_double(n) >= (double)INT64_MAX)
        return INT64_MAX;
    return bson_iter_as_int64(n);
}

static bool add_group(struct comparing *x, const bson_t *doc, struct err *e)
{
    struct group *g = &x->groups[x->n];
    bson_iter_t id, n;

    if (!bson_iter_init_find(&id, doc, "_id") || !bson_iter_init_find(&n, doc, "n") ||
        !is_ours(x, &id))
        return true;
    *g = (struct group){
        .filter = bson_new(), .highest = number_of(&n), .counter = x->route->sequence.start - 1};
    x->n++;
    if (!canonical_append(g->filter, "_id", &id)) {
        bson_destroy(g->filter);
        x->n--;
    }
    return x->n < GROUPS_AT_ONCE || compare(x, e);
}

/* *code: the server's, when it is its. */
static bool run(struct comparing *x, enum hint hint, int64_t max_ms, uint32_t *code, struct err *e)
{
    bson_t pipeline = BSON_INITIALIZER, opts = BSON_INITIALIZER;
    mongoc_collection_t *c =
        mongoc_client_get_collection(x->client, x->route->database, x->route->collection);
    bson_error_t be = {0};
    const bson_t *doc;
    bool ok = true;
    char what[256];

    *code = 0;
    snprintf(what, sizeof what, "%s.%s: comparing its sequence", x->route->database,
             x->route->collection);
    pipeline_of(x, hint == HINT_NEWEST, &pipeline);
    opts_of(x, hint, max_ms, &opts);
    mongoc_cursor_t *cursor =
        mongoc_collection_aggregate(c, MONGOC_QUERY_NONE, &pipeline, &opts, x->m->primary);
    while (ok && mongoc_cursor_next(cursor, &doc))
        ok = add_group(x, doc, e);
    if (ok && mongoc_cursor_error(cursor, &be)) {
        *code = mongo_fault(&be) == CALL_SERVER ? be.code : 0;
        ok = mongo_fail(e, what, &be);
    }
    ok = ok && compare(x, e);
    for (size_t i = 0; i < x->n; i++)
        bson_destroy(x->groups[i].filter);
    x->n = 0;
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    bson_destroy(&pipeline);
    bson_destroy(&opts);
    return ok;
}

static bool run_best(struct comparing *x, enum mongo_lag_how how, int64_t max_ms, struct err *e)
{
    uint32_t code;
    bool ok = run(x, HINT_INDEX, max_ms, &code, e);

    if (!ok && code == BAD_VALUE) /* no such index, or in another order */
        ok = run(x, HINT_NONE, max_ms, &code, e);
    if (ok || code != MAX_TIME_EXPIRED)
        return ok;
    if (how == MONGO_LAG_QUICK) {
        *x->out = (struct mongo_lag){.sample = true};
        return run(x, HINT_NEWEST, max_ms, &code, e);
    }
    return err_set(e, ERR_TRANSIENT, MAX_TIME_EXPIRED,
                   "%s.%s: %lld s were not enough to compare all numbers with their counters; "
                   "idemsink init compares them without a limit",
                   x->route->database, x->route->collection, (long long)max_ms / 1000);
}

bool mongo_compare_sequence(struct mongo *m, const struct config_route *route,
                            enum mongo_lag_how how, int64_t max_ms, struct mongo_lag *out,
                            struct err *e)
{
    struct comparing *x;
    bool ok;

    *out = (struct mongo_lag){0};
    if (!config_has_sequence(route) || route->sequence.mode == SEQUENCE_MAX)
        return true;
    out->impossible = route->sequence.group_fields.n < route->sequence.group.n;
    if (out->impossible)
        return true;
    x = mem_new(sizeof *x);
    x->m = m;
    x->route = route;
    x->out = out;
    x->raise = how == MONGO_LAG_RAISE;
    x->client = mongo_patient_client(m);
    x->counters = mongoc_client_get_collection(x->client, route->sequence.database,
                                               route->sequence.collection);
    x->majority = mongoc_read_concern_new();
    mongoc_read_concern_set_level(x->majority, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
    ok = run_best(x, how, max_ms, e);
    mongoc_read_concern_destroy(x->majority);
    mongoc_collection_destroy(x->counters);
    mongoc_client_destroy(x->client);
    mem_free(x);
    return ok;
}

bool mongo_lag_fail(const struct config_route *route, const struct mongo_lag *lag, struct err *e)
{
    const struct config_sequence *q = &route->sequence;
    char counter[64] = "has no counter";

    if (lag->counter >= q->start)
        snprintf(counter, sizeof counter, "is at %lld", (long long)lag->counter);
    return err_set(
        e, ERR_CONFIG, 0,
        "%s.%s: the sequence lags: group %s %s, and the highest %s in %s.%s is %lld; %zu "
        "of %zu groups; numbers would be given twice, so run: idemsink init -c FILE "
        "--raise-sequences",
        q->database, q->collection, lag->group, counter, q->field, route->database,
        route->collection, (long long)lag->highest, lag->behind, lag->groups);
}
