/* What verify does for routes with effects: ledgers, entities, and the counters' comparison. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/reconcile.h"
#include "cli/verify.h"
#include "core/canonical.h"
#include "core/log_doc.h"
#include "io/mongo_reconcile.h"

enum { TABLE_BYTES = 16 << 20, PER_SECOND = 1000 };

/* ---- documents ---- */

/* All routes of a collection give numbers, or nobody can tell who should have one. */
static bool is_numbered(const struct verify *v, const struct config_route *r)
{
    const struct config_sequence *s = &r->sequence;

    for (uint32_t i = 0; i < v->config->n_routes; i++) {
        const struct config_route *other = &v->config->routes[i];

        if (verify_books_of(v->config, i) == v->route &&
            (!config_has_sequence(other) || strcmp(other->sequence.field, s->field) != 0 ||
             strcmp(other->sequence.template_field, s->template_field) != 0))
            return false;
    }
    return true;
}

static bool has_number(const struct config_sequence *s, const bson_t *document)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, document, s->field) && BSON_ITER_HOLDS_INT(&it) &&
           (s->template_field[0] == '\0' ||
            (bson_iter_init_find(&it, document, s->template_field) && BSON_ITER_HOLDS_UTF8(&it)));
}

/* It is as its record asks; whether its counters are right without them the counters tell. */
static void find_failed(struct verify *v, const bson_t *document, const bson_t *key,
                        const char *database, const char *collection)
{
    bson_iter_t it, at;

    if (!bson_iter_init(&it, document) ||
        !bson_iter_find_descendant(&it, LOG_EFFECTS ".failed", &at))
        return;
    v->failed++;
    verify_fault_of(v, "failed", database, collection, key);
}

void verify_effects_of(struct verify *v, const bson_t *key, const bson_t *document)
{
    const struct config_route *r = &v->config->routes[v->route];

    if (is_numbered(v, r) && !has_number(&r->sequence, document)) {
        v->unnumbered++;
        verify_fault_of(v, "unnumbered", r->database, r->collection, key);
    }
    if (!config_has_operation(r) && (log_has_effects(r) || r->beside_counters))
        find_failed(v, document, key, r->database, r->collection);
}

/* ---- operations ---- */

bool verify_expect_operation(struct verify *v, const struct record *r, const struct write_op *op,
                             const bson_t *document, struct err *e)
{
    bool removes = op->effects->action == EFFECT_DELETE;
    bool forgets = v->config->routes[r->route].operation.ledger_expire_ms > 0;
    bson_t *what = BCON_NEW("op", BCON_UTF8(removes ? "delete" : "insert"));
    struct audit_event event = {
        .event = op->filter, .entity = op->effects->entity, .what = forgets ? NULL : what};
    bool ok = audit_event(v->audit, r, &event, e);

    /* With --since nobody knows what was there before. */
    if (ok && event.first && v->options.since_ms < 0)
        ok = audit_entity(v->audit, r, op->effects->entity, removes ? NULL : document, e);
    bson_destroy(what);
    return ok;
}

static bool in_ledger(const bson_t *document, void *ctx)
{
    struct verify *v = ctx;
    const struct config_route *r = &v->config->routes[v->route];
    bson_t key = BSON_INITIALIZER, what = BSON_INITIALIZER;
    bson_iter_t it;

    if (bson_iter_init_find(&it, document, "_id"))
        (void)canonical_append(&key, "_id", &it);
    if (bson_iter_init_find(&it, document, "op"))
        (void)bson_append_iter(&what, "op", 2, &it);
    find_failed(v, document, &key, r->operation.ledger_database, r->operation.ledger);
    switch (r->operation.ledger_expire_ms > 0 ? AUDIT_UNWANTED
                                              : audit_ledger(v->audit, v->books, &key, &what)) {
    case AUDIT_RIGHT:
        v->in_ledgers++;
        break;
    case AUDIT_DIFFERENT:
        verify_fault_of(v, "different", r->operation.ledger_database, r->operation.ledger, &key);
        break;
    case AUDIT_EXTRA:
        if (v->options.since_ms < 0)
            verify_fault_of(v, "extra", r->operation.ledger_database, r->operation.ledger, &key);
        break;
    case AUDIT_DOUBLE:
    case AUDIT_UNWANTED:
        break;
    }
    bson_destroy(&key);
    bson_destroy(&what);
    return true;
}

static bool is_first(const struct config *c, uint32_t route)
{
    const struct config_operation *o = &c->routes[route].operation;

    for (uint32_t i = 0; i < route; i++)
        if (config_has_operation(&c->routes[i]) &&
            strcmp(c->routes[i].operation.ledger, o->ledger) == 0 &&
            strcmp(c->routes[i].operation.ledger_database, o->ledger_database) == 0)
            return false;
    return true;
}

bool verify_scan_ledgers(struct verify *v, struct err *e)
{
    bson_t all = BSON_INITIALIZER, *projection = BCON_NEW("_id", BCON_INT32(1), "op", BCON_INT32(1),
                                                          LOG_EFFECTS ".failed", BCON_INT32(1));
    bool ok = true;

    for (uint32_t i = 0; ok && i < v->config->n_routes; i++) {
        const struct config_route *r = &v->config->routes[i];

        if (!config_has_operation(r) || !is_first(v->config, i))
            continue;
        v->route = i;
        v->books = verify_books_of(v->config, i);
        ok = mongo_scan_some(v->mongo, r->operation.ledger_database, r->operation.ledger, &all,
                             projection, false, in_ledger, v, e);
    }
    bson_destroy(&all);
    bson_destroy(projection);
    return ok;
}

/* ---- counters and sequences ---- */

static void found(void *ctx, const struct reconcile_finding *f)
{
    struct verify *v = ctx;
    char *where = mem_printf("%s.%s", f->database, f->collection);
    char *key = bson_as_relaxed_extended_json(f->key, NULL);
    struct buf text = {0};

    v->counters_wrong++;
    buf_printf(&text, "{\"key\":%s,\"field\":\"", key ? key : "{}");
    buf_add_json(&text, f->field, strlen(f->field));
    buf_printf(&text, "\",\"fault\":\"%s\",\"counted\":\"%s\",\"stored\":\"%s\"}", f->what,
               f->counted, f->stored);
    verify_fault(v, "counter", where, buf_text(&text), true);
    buf_clear(&text);
    bson_free(key);
    mem_free(where);
}

static void unable(void *ctx, const char *what, const char *why)
{
    struct verify *v = ctx;

    v->counters_unable++;
    if (!v->args->json)
        printf("%-12s %s: %s\n", "unable", what, why);
}

static void note(void *ctx, const char *text)
{
    (void)ctx;
    fprintf(stderr, "idemsink: %s\n", text);
}

static void progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    (void)ctx, (void)what, (void)done, (void)total;
}

static bool stopping(void *ctx, int64_t wait_ms)
{
    (void)ctx;
    if (wait_ms > 0)
        (void)usleep((useconds_t)wait_ms * 1000);
    return false;
}

bool verify_counters(struct verify *v, struct err *e)
{
    const struct reconcile_options options = {.counters = true,
                                              .sequences = true,
                                              .counter = -1,
                                              .per_second = PER_SECOND,
                                              .memory_bytes = TABLE_BYTES};
    const struct reconcile_calls calls = {.found = found,
                                          .unable = unable,
                                          .note = note,
                                          .progress = progress,
                                          .stopping = stopping,
                                          .ctx = v};
    struct reconcile_books books;
    bool any = false;

    for (size_t i = 0; i < v->config->n_routes; i++)
        any = any || config_has_effects(&v->config->routes[i]);
    if (!any)
        return true;
    if (!reconcile_all(v->mongo, v->config, &options, &calls, &books, e))
        return false;
    v->counters = books.counters + books.groups;
    return true;
}
