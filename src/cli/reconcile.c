/* All counters: a pass over each side, then each suspicion by itself. */
#include "cli/reconcile.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "core/mirror.h"
#include "core/tally.h"
#include "io/mongo_reconcile.h"

enum { LEASE_MS = 60000, SAY_EVERY = 256 };

/* One family, one part of its keys. */
struct family_work {
    struct reconcile_work *w;
    const struct reconcile_family *f;
    struct repair *repair;
    struct mongo_repairer *repairer;
    struct tally *tally;
    size_t source;
    int64_t *sums;
    bool full, second; /* second: what is left after the counters */
    bool warned;
    uint64_t done, total;
    const char *pass;
};

bool reconcile_go_on(struct reconcile_work *w)
{
    bool held = true;

    if (w->failed || w->books->stopped)
        return false;
    if (w->calls->stopping(w->calls->ctx, 0)) {
        w->books->stopped = true;
        return false;
    }
    if (w->o->lease && !mongo_lease_keep(w->m, &w->lease, &held, w->e))
        w->failed = true;
    else if (!held)
        w->failed = !err_set(w->e, ERR_TRANSIENT, 0,
                             "the lease \"%s\" has run out meanwhile; another process may be at it",
                             w->lease.terms.name);
    return !w->failed;
}

bool reconcile_turn(struct reconcile_work *w)
{
    int64_t now_us = clock_mono_us();

    if (!reconcile_go_on(w))
        return false;
    if (w->next_us > now_us && w->calls->stopping(w->calls->ctx, (w->next_us - now_us) / 1000)) {
        w->books->stopped = true;
        return false;
    }
    w->next_us = (w->next_us > now_us ? w->next_us : now_us) + 1000000 / w->o->per_second;
    return true;
}

static bool show(struct family_work *fw)
{
    if (++fw->done % SAY_EVERY != 0)
        return true;
    fw->w->calls->progress(fw->w->calls->ctx, fw->pass, fw->done, fw->total);
    return reconcile_go_on(fw->w);
}

/* ---- one suspicion ---- */

static void stored_text(const struct repair_column *c, char text[24])
{
    switch (c->stored.type) {
    case RECONCILE_ABSENT:
        text[0] = '\0';
        break;
    case RECONCILE_INT64:
    case RECONCILE_INT32:
        (void)snprintf(text, 24, "%" PRId64, c->stored.number);
        break;
    case RECONCILE_OTHER:
        (void)snprintf(text, 24, "no integer");
        break;
    }
}

static void tell(struct family_work *fw, const bson_t *key)
{
    const struct repair_column *columns;
    enum repair_end end = repair_result(fw->repair, &columns);
    char counted[24], stored[24];

    for (size_t i = 0; i < fw->f->n_columns; i++) {
        const struct repair_column *c = &columns[i];
        struct reconcile_finding found = {.what = reconcile_difference_name(c->difference),
                                          .database = fw->f->database,
                                          .collection = fw->f->collection,
                                          .key = key,
                                          .field = fw->f->columns[i],
                                          .counted = counted,
                                          .stored = stored,
                                          .done = end == REPAIR_REPAIRED    ? "repaired"
                                                  : end == REPAIR_UNSETTLED ? "unsettled"
                                                                            : ""};

        if (c->too_large)
            (void)snprintf(counted, sizeof counted, "beyond int64");
        else
            (void)snprintf(counted, sizeof counted, "%" PRId64, c->counted);
        stored_text(c, stored);
        if (c->too_large || (end == REPAIR_UNSETTLED && i == 0))
            found.what = c->too_large ? "too_large" : "busy";
        else if (c->difference == RECONCILE_SAME)
            continue;
        fw->w->books->differences++;
        fw->w->books->repaired += end == REPAIR_REPAIRED;
        fw->w->calls->found(fw->w->calls->ctx, &found);
    }
}

static void say_no_index(const struct reconcile_work *w, const struct config_route *route,
                         const char *path)
{
    char *text = mem_printf("%s.%s has no index that begins with \"%s\": each counter that is "
                            "looked at by itself reads the whole collection",
                            route->database, route->collection, path);

    w->calls->note(w->calls->ctx, text);
    mem_free(text);
}

/* Each look at one counter finds its documents by the fields of the filter's sources. */
static void warn_of_index(struct family_work *fw)
{
    const struct reconcile_work *w = fw->w;
    const struct reconcile_family *f = fw->f;

    fw->warned = true;
    for (size_t i = 0; i < f->n_sources; i++) {
        const struct reconcile_source *s = &f->sources[i];
        const struct config_route *route = &w->config->routes[s->route];

        if (!mongo_has_index(w->m, route->database, route->collection, s->paths, f->fields->n))
            say_no_index(w, route, s->paths[0]);
    }
}

/* A counter that was repaired has a new version, and its mirrors the old value until they are told.
 */
static bool mirror(struct family_work *fw, const bson_t *key)
{
    struct reconcile_work *w = fw->w;
    struct invalidation_list list = {0};
    bool ok = true;

    FAULT("repair.before_mirror");
    for (size_t i = 0; i < w->config->n_routes; i++)
        for (size_t j = 0; ok && j < w->config->routes[i].n_counters; j++) {
            const struct config_counter *c = &w->config->routes[i].counters[j];

            if (mirror_wanted(c) && reconcile_is_of(fw->f, c))
                ok = mongo_mirror_again(w->m, c, key, &list, w->e);
        }
    ok = ok && (list.n == 0 || w->calls->mirror(w->calls->ctx, &list, w->e));
    invalidation_list_clear(&list);
    return ok;
}

static bool look_at(struct family_work *fw, const bson_t *key)
{
    const struct repair_column *ignored;
    struct reconcile_work *w = fw->w;

    if (!reconcile_turn(w))
        return false;
    if (!fw->warned)
        warn_of_index(fw);
    repair_begin(fw->repair, key);
    if (!mongo_repair(fw->repairer, fw->f, fw->repair, w->e)) {
        w->failed = true;
        return false;
    }
    tell(fw, key);
    if (fw->f->mirrored && w->calls->mirror &&
        repair_result(fw->repair, &ignored) == REPAIR_REPAIRED && !mirror(fw, key))
        w->failed = true;
    return !w->failed;
}

/* ---- the passes ---- */

/* The first pass. False: the table is full. */
static bool note_sums(struct family_work *fw, const bson_t *key, bool known, bool too_large)
{
    const struct reconcile_source *s = &fw->f->sources[fw->source];

    if (known)
        return tally_add(fw->tally, key, s->columns, fw->sums, s->counter->inc.n);
    if (too_large)
        return tally_doubt(fw->tally, key);
    fw->w->books->foreign++;
    return true;
}

static bool counted(const bson_t *group, void *ctx)
{
    struct family_work *fw = ctx;
    bson_t key = BSON_INITIALIZER;
    bool too_large, go_on = true;
    bool known = reconcile_group(fw->f, fw->source, group, &key, fw->sums, &too_large);

    if (!fw->second) {
        fw->full = !note_sums(fw, &key, known, too_large);
        go_on = !fw->full;
    } else if ((known || too_large) && tally_wants(fw->tally, &key) &&
               tally_is_left(fw->tally, &key)) {
        fw->w->books->counters++;
        go_on = look_at(fw, &key);
    }
    bson_destroy(&key);
    return go_on && show(fw);
}

static bool count_sources(struct family_work *fw, const char *pass)
{
    struct reconcile_work *w = fw->w;

    fw->pass = pass;
    fw->done = fw->total = 0;
    for (fw->source = 0; fw->source < fw->f->n_sources && !fw->full; fw->source++) {
        const struct config_route *route = &w->config->routes[fw->f->sources[fw->source].route];
        bson_t pipeline = BSON_INITIALIZER;

        reconcile_truth(fw->f, fw->source, &pipeline);
        bool ok = mongo_aggregate(w->m, route->database, route->collection, &pipeline,
                                  w->o->secondary, counted, fw, w->e);
        bson_destroy(&pipeline);
        if (!ok)
            w->failed = true;
        if (w->failed || w->books->stopped)
            return false;
    }
    return true;
}

static bool stored(const bson_t *document, void *ctx)
{
    struct family_work *fw = ctx;
    bson_t key = BSON_INITIALIZER;
    bool go_on = true;

    if (reconcile_counter_key(fw->f, document, &key) && tally_wants(fw->tally, &key)) {
        bool suspect;
        const int64_t *sums = tally_see(fw->tally, &key, &suspect);

        fw->w->books->counters++;
        for (size_t i = 0; i < fw->f->n_columns; i++)
            suspect =
                suspect || reconcile_compare(sums ? sums[i] : 0,
                                             reconcile_value_of(document, fw->f->columns[i])) !=
                               RECONCILE_SAME;
        go_on = !suspect || look_at(fw, &key);
    }
    bson_destroy(&key);
    return go_on && show(fw);
}

static bool scan_counters(struct family_work *fw)
{
    struct reconcile_work *w = fw->w;
    bson_t filter = BSON_INITIALIZER, projection = BSON_INITIALIZER;

    fw->pass = "counters";
    fw->done = 0;
    fw->total = tally_entries(fw->tally);
    reconcile_counters(fw->f, &filter, &projection);
    bool ok = mongo_scan_some(w->m, fw->f->database, fw->f->collection, &filter, &projection,
                              w->o->secondary, stored, fw, w->e);
    bson_destroy(&filter);
    bson_destroy(&projection);
    w->failed = w->failed || !ok;
    return !w->failed && !w->books->stopped;
}

/* One part of so many; a part that does not fit into the memory is done in two. */
static bool compare_part(struct family_work *fw, uint32_t part, uint32_t parts)
{
    struct reconcile_work *w = fw->w;
    bool full, ok;

    fw->full = fw->second = false;
    fw->tally = tally_new(fw->f->n_columns, w->o->memory_bytes, part, parts);
    ok = count_sources(fw, "counting");
    full = fw->full;
    if (ok && !full)
        ok = scan_counters(fw);
    if (ok && !full && tally_any_left(fw->tally) && fw->f->upsert) {
        fw->second = true;
        ok = count_sources(fw, "missing ones");
    }
    if (tally_bytes(fw->tally) > w->books->table_bytes)
        w->books->table_bytes = tally_bytes(fw->tally);
    tally_free(fw->tally);
    if (ok && full)
        ok = compare_part(fw, part, parts * 2) && compare_part(fw, part + parts, parts * 2);
    return ok;
}

/* Where all has always been done in transactions nothing is ever open. */
static bool find_logged(struct reconcile_work *w, struct reconcile_family *f)
{
    for (size_t i = 0; i < f->n_sources && !w->failed; i++)
        w->failed = !mongo_was_log(w->m, f->sources[i].route, &f->sources[i].logged, w->e);
    return !w->failed;
}

static bool compare_family(struct reconcile_work *w, struct reconcile_family *f)
{
    enum repair_way way = w->snapshots ? REPAIR_SNAPSHOT : REPAIR_COMPARE;
    struct family_work fw = {.w = w, .f = f};
    size_t most = 0;
    bool ok;

    if (!find_logged(w, f))
        return false;
    for (size_t i = 0; i < f->n_sources; i++)
        if (f->sources[i].counter->inc.n > most)
            most = f->sources[i].counter->inc.n;
    fw.sums = mem_array(most, sizeof *fw.sums);
    fw.repair = repair_new(f, w->config, way, w->o->apply, clock_wall_ms());
    fw.repairer = mongo_repairer_new(w->m);
    ok = compare_part(&fw, 0, 1);
    mongo_repairer_free(fw.repairer);
    repair_free(fw.repair);
    mem_free(fw.sums);
    return ok;
}

/* ---- all ---- */

static bool is_wanted(const struct reconcile_work *w, const struct reconcile_family *f)
{
    for (size_t i = 0; i < f->n_sources; i++) {
        const struct config_route *r = &w->config->routes[f->sources[i].route];

        if ((w->o->route == NULL || strcmp(w->o->route, r->name) == 0) &&
            (w->o->counter < 0 || &r->counters[w->o->counter] == f->sources[i].counter))
            return true;
    }
    return false;
}

static void tell_unable(struct reconcile_work *w, const struct reconcile_family *f)
{
    char *what = mem_printf("%s.%s", f->database, f->collection);

    w->books->unable++;
    w->calls->unable(w->calls->ctx, what, f->unable);
    mem_free(what);
}

static bool compare_counters(struct reconcile_work *w)
{
    struct reconcile_plan plan;
    bool ok = true;

    reconcile_plan_init(&plan, w->config);
    for (size_t i = 0; ok && i < plan.n; i++) {
        struct reconcile_family *f = &plan.families[i];

        if (!is_wanted(w, f))
            continue;
        if (f->unable)
            tell_unable(w, f);
        else
            ok = compare_family(w, f);
    }
    reconcile_plan_clear(&plan);
    return ok;
}

static bool take_lease(struct reconcile_work *w)
{
    struct mongo_lease_terms terms = {.database = w->config->routes[0].database,
                                      .name = "reconcile",
                                      .owner = w->o->owner,
                                      .hold_ms = LEASE_MS,
                                      .every_ms = w->o->lease_every_ms};
    bool held;

    if (!w->o->lease)
        return true;
    w->failed = !mongo_lease_take(w->m, &terms, &w->lease, &held, w->e);
    w->books->busy = !w->failed && !held;
    return !w->failed && held;
}

bool reconcile_all(struct mongo *m, const struct config *config, const struct reconcile_options *o,
                   const struct reconcile_calls *calls, struct reconcile_books *books,
                   struct err *e)
{
    struct reconcile_work w = {
        .m = m, .config = config, .o = o, .calls = calls, .books = books, .e = e};
    struct err ignored;

    *books = (struct reconcile_books){0};
    if (!mongo_has_snapshots(m, &w.snapshots, e))
        return false;
    if (!take_lease(&w))
        return !w.failed;
    bool ok = (!o->counters || compare_counters(&w)) && (!o->sequences || reconcile_sequences(&w));
    FAULT("repair.before_release");
    /* It would run out by itself. */
    if (o->lease)
        (void)!mongo_lease_release(m, &w.lease, ok, &ignored);
    return !w.failed;
}
