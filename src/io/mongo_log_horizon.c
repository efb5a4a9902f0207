/*
 * mongo_log_horizon.c - carries core/log_horizon.h: how long attempts may take, by a document in
 * MONGO_LEASES, and which ids may go.
 *
 *   {_id: "attempt DATABASE.COLLECTION" (of the events), ms: the longest, until: date}
 */
#include "base/clock.h"
#include "base/mem.h"
#include "io/mongo_lease.h"
#include "io/mongo_log_private.h"

enum { TRIES = 3, DUPLICATE_KEY = 11000, WRITE_CONCERN = 64 };

/* When the oldest open event of the route began; INT64_MAX: none is open. */
static bool oldest_open(struct mongo_log *l, uint32_t route, int64_t *out)
{
    bson_t filter = BSON_INITIALIZER, opts = BSON_INITIALIZER, in;
    bson_iter_t at, value;
    const bson_t *found;
    bson_error_t be;

    *out = INT64_MAX;
    mongo_log_open_filter(&filter, INT64_MAX);
    mongo_log_read_opts(l->m, &opts);
    BSON_APPEND_DOCUMENT_BEGIN(&opts, "sort", &in);
    BSON_APPEND_INT32(&in, LOG_EFFECTS ".at", 1);
    bson_append_document_end(&opts, &in);
    BSON_APPEND_DOCUMENT_BEGIN(&opts, "projection", &in);
    BSON_APPEND_INT32(&in, LOG_EFFECTS ".at", 1);
    bson_append_document_end(&opts, &in);
    BSON_APPEND_INT64(&opts, "limit", 1);
    mongoc_collection_t *c = mongo_log_events(l, route);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, &filter, &opts, l->m->primary);
    if (mongoc_cursor_next(cursor, &found) && bson_iter_init(&at, found) &&
        bson_iter_find_descendant(&at, LOG_EFFECTS ".at", &value) &&
        BSON_ITER_HOLDS_DATE_TIME(&value))
        *out = bson_iter_date_time(&value);
    bool ok = !mongoc_cursor_error(cursor, &be);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    bson_destroy(&filter);
    bson_destroy(&opts);
    return ok;
}

/*
 * A longer one stays while attempts under it may not have been over at now_ms; else ours stands
 * there from now on, and its end never goes back. Not $$NOW: X is made of now_ms, and we may have
 * slept since.
 */
static bson_t *register_command(const char *name, int64_t attempt_ms, int64_t now_ms)
{
    return BCON_NEW("findAndModify", BCON_UTF8(MONGO_LEASES), "query", "{", "_id", BCON_UTF8(name),
                    "}", "update", "[", "{", "$replaceWith", "{", "$cond", "[",        /* */
                    "{", "$and", "[",                                                  /* */
                    "{", "$gt", "[", "$ms", BCON_INT64(attempt_ms), "]", "}",          /* */
                    "{", "$gt", "[", "$until", BCON_DATE_TIME(now_ms), "]", "}",       /* */
                    "]", "}",                                                          /* */
                    BCON_UTF8("$$ROOT"),                                               /* */
                    "{", "$mergeObjects", "[", BCON_UTF8("$$ROOT"), "{",               /* */
                    "ms", BCON_INT64(attempt_ms), "until", "{", "$max", "[", "$until", /* */
                    "{", "$add", "[", BCON_UTF8("$$NOW"), BCON_INT64(log_horizon_hold(attempt_ms)),
                    "]", "}", /* */
                    "]", "}", "}", "]", "}", "]", "}", "}", "]", "upsert", BCON_BOOL(true), "new",
                    BCON_BOOL(true));
}

static bool take_registration(struct log_horizon *h, const bson_t *reply)
{
    bson_iter_t it, value, ms, until;

    if (!bson_iter_init_find(&it, reply, "value") || !BSON_ITER_HOLDS_DOCUMENT(&it) ||
        !bson_iter_recurse(&it, &value) || !bson_iter_find_descendant(&value, "ms", &ms) ||
        !BSON_ITER_HOLDS_INT64(&ms) || !bson_iter_recurse(&it, &value) ||
        !bson_iter_find_descendant(&value, "until", &until) || !BSON_ITER_HOLDS_DATE_TIME(&until))
        return false;
    log_horizon_registered(h, bson_iter_int64(&ms), bson_iter_date_time(&until));
    return true;
}

static bool register_attempt(struct mongo_log *l, uint32_t route, int64_t now_ms,
                             struct outcome_call *call, bson_error_t *be)
{
    struct log_horizon *h = &l->horizons[route];
    const struct config_route *r = &l->m->config->routes[route];
    mongoc_collection_t *events = mongo_log_events(l, route);
    bool ledger = config_has_operation(r), ok = false;
    char *name = mem_printf("attempt %s.%s", ledger ? r->operation.ledger_database : r->database,
                            mongoc_collection_get_name(events));
    bson_t *command = register_command(name, h->attempt_ms, now_ms), opts = BSON_INITIALIZER, reply;
    bson_iter_t at;

    MUST(mongoc_write_concern_append(l->m->concern, &opts));
    for (int i = 0; !ok && i < TRIES; i++) { /* two that make it at once */
        ok = mongoc_client_write_command_with_opts(l->client, r->database, command, &opts, &reply,
                                                   be);
        if (!ok) {
            mongo_log_failed(l, be, call);
        } else if (bson_iter_init_find(&at, &reply, "writeConcernError")) {
            *call = (struct outcome_call){
                .fault = CALL_SERVER, .code = WRITE_CONCERN, .message = "write concern"};
        } else if (!take_registration(h, &reply)) {
            *call = (struct outcome_call){.fault = CALL_DRIVER,
                                          .message = "idemsink_leases: ms and until of an attempt "
                                                     "are not of idemsink's making"};
        } else {
            *call = (struct outcome_call){.fault = CALL_FINE};
        }
        bson_destroy(&reply);
        if (!ok && be->code != DUPLICATE_KEY)
            break;
    }
    bson_destroy(command);
    bson_destroy(&opts);
    mem_free(name);
    mongoc_collection_destroy(events);
    return call->fault == CALL_FINE;
}

bool mongo_log_is_registered(const struct mongo_log *l, uint32_t route, int64_t now_ms)
{
    return !log_has_effects(&l->m->config->routes[route]) ||
           log_horizon_is_registered(&l->horizons[route], now_ms);
}

bool mongo_log_register(struct mongo_log *l, uint32_t route, struct outcome_call *call,
                        bson_error_t *be)
{
    struct log_horizon *h = &l->horizons[route];
    int64_t now_ms = mongo_log_now(l), open_ms;

    if (!log_has_effects(&l->m->config->routes[route]))
        return true;
    bool due = log_horizon_due(h, clock_mono_ms()) && oldest_open(l, route, &open_ms);
    if (!due && log_horizon_is_registered(h, now_ms))
        return true;
    if (!register_attempt(l, route, now_ms, call, be))
        return false;
    if (due)
        log_horizon_read(h, now_ms, clock_mono_ms(), open_ms);
    return true;
}
