/* One repair on the server: core/repair.h says what, in which order. */
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/mem.h"
#include "io/mongo_private.h"
#include "io/mongo_reconcile.h"

enum { WAIT_LEAST_MS = 2, WAIT_MOST_MS = 50, DUPLICATE_KEY = 11000, WRITE_CONFLICT = 112 };

struct mongo_repairer {
    struct mongo *m;
    mongoc_client_t *client;
    mongoc_client_session_t *session; /* NULL: not yet, or not here */
    int64_t wait_ms;
};

/* What one step needs. */
struct step {
    struct mongo_repairer *p;
    const struct reconcile_family *f;
    struct repair *r;
    size_t source;
    struct err *e;
};

struct mongo_repairer *mongo_repairer_new(struct mongo *m)
{
    struct mongo_repairer *p = mem_new(sizeof *p);

    *p = (struct mongo_repairer){.m = m, .client = mongoc_client_pool_pop(m->pool)};
    return p;
}

void mongo_repairer_free(struct mongo_repairer *p)
{
    if (p == NULL)
        return;
    if (p->session)
        mongoc_client_session_destroy(p->session);
    mongoc_client_pool_push(p->m->pool, p->client);
    mem_free(p);
}

static bool in_transaction(const struct mongo_repairer *p)
{
    return p->session && mongoc_client_session_in_transaction(p->session);
}

/* Options of whatever runs in the transaction; outside of one majority-committed reads. */
static bson_t *opts_new(const struct step *s, bool reads)
{
    bson_t *opts = bson_new();
    bson_error_t be;

    if (in_transaction(s->p)) {
        MUST(mongoc_client_session_append(s->p->session, opts, &be));
    } else if (reads) {
        mongoc_read_concern_t *majority = mongoc_read_concern_new();

        mongoc_read_concern_set_level(majority, MONGOC_READ_CONCERN_LEVEL_MAJORITY);
        mongoc_read_concern_append(majority, opts);
        mongoc_read_concern_destroy(majority);
    } else {
        MUST(mongoc_write_concern_append(s->p->m->concern, opts));
    }
    return opts;
}

static bool fail(const struct step *s, const char *doing, const char *database,
                 const char *collection, const bson_error_t *be)
{
    char what[256];

    (void)snprintf(what, sizeof what, "%s %.100s.%.100s", doing, database, collection);
    return mongo_fail(s->e, what, be);
}

/* Somebody else was at the same document, or the transaction was thrown away: again. */
static bool in_the_way(const bson_error_t *be, const bson_t *reply)
{
    return be->code == DUPLICATE_KEY || be->code == WRITE_CONFLICT ||
           (reply && (mongoc_error_has_label(reply, "TransientTransactionError") ||
                      mongoc_error_has_label(reply, "UnknownTransactionCommitResult")));
}

static enum repair_answer outcome(bool ok, bool matched)
{
    return ok && matched ? REPAIR_DONE : REPAIR_MISSED;
}

/* ---- steps ---- */

static bool begin(const struct step *s)
{
    struct mongo_repairer *p = s->p;
    mongoc_transaction_opt_t *opts = mongoc_transaction_opts_new();
    mongoc_read_concern_t *snapshot = mongoc_read_concern_new();
    bson_error_t be = {0};
    bool ok = true;

    mongoc_read_concern_set_level(snapshot, MONGOC_READ_CONCERN_LEVEL_SNAPSHOT);
    mongoc_transaction_opts_set_read_concern(opts, snapshot);
    mongoc_transaction_opts_set_write_concern(opts, p->m->concern);
    mongoc_transaction_opts_set_read_prefs(opts, p->m->primary);
    if (p->session == NULL)
        p->session = mongoc_client_start_session(p->client, NULL, &be);
    ok = p->session && mongoc_client_session_start_transaction(p->session, opts, &be);
    if (!ok)
        ok = mongo_fail(s->e, "beginning a transaction", &be);
    mongoc_read_concern_destroy(snapshot);
    mongoc_transaction_opts_destroy(opts);
    if (ok)
        repair_answer(s->r, REPAIR_DONE);
    return ok;
}

/* What the cursor finds, each to take(). */
static bool read_all(const struct step *s, mongoc_cursor_t *cursor,
                     void (*take)(const struct step *s, const bson_t *document),
                     const char *database, const char *collection)
{
    const bson_t *document, *reply = NULL;
    bson_error_t be = {0};
    bool ok = true;

    while (mongoc_cursor_next(cursor, &document))
        take(s, document);
    if (mongoc_cursor_error_document(cursor, &be, &reply)) {
        ok = in_transaction(s->p) && in_the_way(&be, reply);
        if (ok)
            repair_answer(s->r, REPAIR_MISSED);
        else
            ok = fail(s, "reading", database, collection, &be);
    } else {
        repair_answer(s->r, REPAIR_DONE);
    }
    mongoc_cursor_destroy(cursor);
    return ok;
}

static void take_counter(const struct step *s, const bson_t *document)
{
    repair_counter(s->r, document);
}

static void take_opened(const struct step *s, const bson_t *document)
{
    repair_opened(s->r, document);
}

static void take_counted(const struct step *s, const bson_t *document)
{
    repair_counted(s->r, s->source, document);
}

static bool read_counter(const struct step *s)
{
    mongoc_collection_t *c =
        mongoc_client_get_collection(s->p->client, s->f->database, s->f->collection);
    bson_t filter = BSON_INITIALIZER, *opts = opts_new(s, true);

    repair_key(s->r, &filter);
    BSON_APPEND_INT64(opts, "limit", 1);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, &filter, opts, s->p->m->primary);
    bool ok = read_all(s, cursor, take_counter, s->f->database, s->f->collection);
    bson_destroy(&filter);
    bson_destroy(opts);
    mongoc_collection_destroy(c);
    return ok;
}

static const struct config_route *route_of(const struct step *s)
{
    return &s->p->m->config->routes[s->f->sources[s->source].route];
}

static bool read_opened(const struct step *s)
{
    const struct config_operation *o = &route_of(s)->operation;
    mongoc_collection_t *c =
        mongoc_client_get_collection(s->p->client, o->ledger_database, o->ledger);
    bson_t filter = BSON_INITIALIZER, *opts = opts_new(s, true);

    repair_open_filter(s->r, s->source, &filter);
    BCON_APPEND(opts, "projection", "{", "_id", BCON_BOOL(true), "}");
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, &filter, opts, s->p->m->primary);
    bool ok = read_all(s, cursor, take_opened, o->ledger_database, o->ledger);
    bson_destroy(&filter);
    bson_destroy(opts);
    mongoc_collection_destroy(c);
    return ok;
}

static bool count(const struct step *s)
{
    const struct config_route *route = route_of(s);
    mongoc_collection_t *c =
        mongoc_client_get_collection(s->p->client, route->database, route->collection);
    bson_t pipeline = BSON_INITIALIZER, *opts = opts_new(s, true);

    repair_pipeline(s->r, s->source, &pipeline);
    mongoc_cursor_t *cursor =
        mongoc_collection_aggregate(c, MONGOC_QUERY_NONE, &pipeline, opts, s->p->m->primary);
    bool ok = read_all(s, cursor, take_counted, route->database, route->collection);
    bson_destroy(&pipeline);
    bson_destroy(opts);
    mongoc_collection_destroy(c);
    return ok;
}

static int64_t number_of(const bson_t *reply, const char *name)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, reply, name) ? bson_iter_as_int64(&it) : 0;
}

static bool set(const struct step *s)
{
    mongoc_collection_t *c =
        mongoc_client_get_collection(s->p->client, s->f->database, s->f->collection);
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, *opts = opts_new(s, false), reply;
    bool makes = repair_makes(s->r);
    bson_error_t be = {0};

    repair_filter(s->r, &filter);
    repair_update(s->r, &update);
    BSON_APPEND_BOOL(opts, "upsert", makes);
    bool ok = mongoc_collection_update_one(c, &filter, &update, opts, &reply, &be);
    bool done = ok && number_of(&reply, makes ? "upsertedCount" : "matchedCount") == 1;
    if (ok || in_the_way(&be, &reply)) {
        repair_answer(s->r, outcome(ok, done));
        ok = true;
    } else {
        ok = fail(s, "repairing a counter in", s->f->database, s->f->collection, &be);
    }
    bson_destroy(&reply);
    bson_destroy(&filter);
    bson_destroy(&update);
    bson_destroy(opts);
    mongoc_collection_destroy(c);
    return ok;
}

static bool look(const struct step *s)
{
    mongoc_collection_t *c =
        mongoc_client_get_collection(s->p->client, s->f->database, s->f->collection);
    bson_t filter = BSON_INITIALIZER, *opts = opts_new(s, true);
    bson_error_t be = {0};

    repair_filter(s->r, &filter);
    int64_t n = mongoc_collection_count_documents(c, &filter, opts, s->p->m->primary, NULL, &be);
    if (n >= 0)
        repair_answer(s->r, outcome(true, (n > 0) == repair_found_document(s->r)));
    bson_destroy(&filter);
    bson_destroy(opts);
    mongoc_collection_destroy(c);
    return n >= 0 || fail(s, "reading", s->f->database, s->f->collection, &be);
}

static bool commit(const struct step *s)
{
    bson_error_t be = {0};
    bson_t reply;
    bool ok = mongoc_client_session_commit_transaction(s->p->session, &reply, &be);

    if (ok || in_the_way(&be, &reply)) {
        repair_answer(s->r, outcome(ok, ok));
        ok = true;
    } else {
        ok = mongo_fail(s->e, "committing a repair", &be);
    }
    bson_destroy(&reply);
    return ok;
}

static void abort_transaction(struct mongo_repairer *p)
{
    bson_error_t be;

    if (in_transaction(p))
        (void)mongoc_client_session_abort_transaction(p->session, &be);
}

/* Longer each time, so that a hot counter's workers come through as well. */
static void wait_a_little(struct mongo_repairer *p)
{
    p->wait_ms = p->wait_ms == 0 ? WAIT_LEAST_MS : p->wait_ms * 2;
    if (p->wait_ms > WAIT_MOST_MS)
        p->wait_ms = WAIT_MOST_MS;
    (void)usleep((useconds_t)(p->wait_ms + clock_mono_us() % WAIT_LEAST_MS) * 1000);
}

static bool run_step(const struct step *s, enum repair_step step)
{
    switch (step) {
    case REPAIR_BEGIN:
        FAULT("repair.before_begin");
        return begin(s);
    case REPAIR_READ:
        FAULT("repair.before_read");
        return read_counter(s);
    case REPAIR_OPEN:
        FAULT("repair.before_open");
        return read_opened(s);
    case REPAIR_COUNT:
        FAULT("repair.before_count");
        return count(s);
    case REPAIR_SET:
        FAULT("repair.before_set");
        return set(s);
    case REPAIR_LOOK:
        return look(s);
    case REPAIR_COMMIT:
        FAULT("repair.before_commit");
        return commit(s);
    case REPAIR_ABORT:
        abort_transaction(s->p);
        break;
    case REPAIR_WAIT:
        wait_a_little(s->p);
        break;
    case REPAIR_END:
        break;
    }
    repair_answer(s->r, REPAIR_DONE);
    return true;
}

bool mongo_repair(struct mongo_repairer *p, const struct reconcile_family *f, struct repair *r,
                  struct err *e)
{
    struct step s = {.p = p, .f = f, .r = r, .e = e};
    enum repair_step step;

    p->wait_ms = 0;
    while ((step = repair_next(r, &s.source)) != REPAIR_END)
        if (!run_step(&s, step)) {
            abort_transaction(p);
            return false;
        }
    return true;
}
