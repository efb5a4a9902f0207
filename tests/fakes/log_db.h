/*
 * log_db.h - a database for core/log_plan.h: documents, counters with _applied, entities, one
 * clock, which may be set back.
 *
 * A command of the plan becomes a flight: statements that are carried out one by one, each atomic,
 * with others' in between, now or much later, whether or not anybody still waits for the answer.
 */
#ifndef IDEMSINK_TESTS_LOG_DB_H
#define IDEMSINK_TESTS_LOG_DB_H

#include <string.h>

#include "base/mem.h"
#include "core/canonical.h"
#include "core/log_doc.h"
#include "core/log_horizon.h"
#include "fakes/check.h"

enum { DB_EVENTS = 4096, DB_COUNTERS = 16, DB_ENTITIES = 256, DB_IDS = 20000 };

struct db_counter {
    bool exists;
    int64_t value[2]; /* followers, following */
    int64_t version;
    size_t n;
    struct {
        struct log_id id;
        int64_t t;
    } applied[DB_IDS];
    bool is_double;
    struct log_id ever[DB_EVENTS]; /* all that were counted, pruned or not */
    size_t n_ever;
};
struct db_entity {
    bool exists, has_by, has_removed;
    struct log_id by, removed;
    int32_t of; /* the event whose document it is */
};
struct db {
    int64_t now;
    int64_t back; /* by how much the server's clock is behind it: what it was set back by */
    const struct config_route *route;
    bson_t *events[DB_EVENTS]; /* NULL: not there */
    bool closed[DB_EVENTS];    /* surely: not to be looked at */
    struct db_counter counters[DB_COUNTERS];
    struct db_entity entities[DB_ENTITIES];
    int64_t sequence[4];                /* INT64_MIN: not there */
    bool unique_number;                 /* the number of an event is unique in its group */
    int64_t attempt_ms, attempts_until; /* what is registered, log_horizon.h */
    size_t twice, late; /* ids that were counted twice; that would have been, but for the time */
    size_t one_of;      /* a unique index: of so many entities side by side at most one is there */
    int64_t taken_text; /* the number whose text is another document's; 0: none */
};

/* The server's clock. */
static inline int64_t db_clock(const struct db *db)
{
    return db->now - db->back;
}

/* One statement, with everything that it needs of its own. */
struct db_statement {
    int64_t key; /* event, counter or entity */
    bson_t *document;
    int64_t by[2];
    struct log_id *ids;
    size_t n_ids;
    bool forced, make;
    struct log_id id;
};
struct db_flight {
    enum log_command_kind kind;
    struct db_statement *s;
    size_t n, next;
    size_t keep;
    int64_t at_ms, until_ms, before_ms, try_id, count;
    char *text;
    bool ordered, stopped;
    /* the answer */
    bson_t **found;
    size_t n_found, cap_found;
    struct {
        size_t index;
        int code;
        const char *about; /* the field that the index is about */
    } * errors;            /* room for one per statement */
    size_t n_errors, matched;
    int64_t number;
    bool has_number;
};

/* Of dates, too, of which bson_iter_as_int64() makes 0. */
static inline int64_t db_number(const bson_t *b, const char *field)
{
    bson_iter_t at;

    if (!bson_iter_init_find(&at, b, field))
        return -1;
    return BSON_ITER_HOLDS_DATE_TIME(&at) ? bson_iter_date_time(&at) : bson_iter_as_int64(&at);
}

static inline const char *db_key_name(const struct config_route *r)
{
    return config_has_operation(r) ? "_id" : "k";
}

static inline struct db_flight *db_send(const struct db *db, const struct log_command *c)
{
    struct db_flight *f = mem_new(sizeof *f);
    size_t n = c->n_moves ? c->n_moves : c->n_entities ? c->n_entities : c->n;

    f->kind = c->kind;
    f->n = n;
    f->keep = c->keep;
    f->at_ms = c->at_ms;
    f->until_ms = c->until_ms;
    f->before_ms = c->before_ms;
    f->try_id = c->try_id;
    f->count = c->count;
    f->ordered = c->ordered;
    f->text = mem_text(c->text);
    if (c->kind == LOG_NUMBER || c->kind == LOG_START || c->kind == LOG_HIGHEST) {
        bson_iter_t at, in;

        f->n = 1;
        f->s = mem_array(1, sizeof *f->s);
        CHECK(bson_iter_init_find(&at, c->group, "_id") && bson_iter_recurse(&at, &in) &&
                  bson_iter_next(&in),
              "a group");
        f->s[0].key = bson_iter_as_int64(&in);
        return f;
    }
    f->s = mem_array(n ? n : 1, sizeof *f->s);
    for (size_t k = 0; k < n; k++) {
        struct db_statement *s = &f->s[k];

        if (c->n_moves) {
            const struct log_move *m = &c->moves[k];

            CHECK(strcmp(m->ns, "db.users") == 0, "%s", m->ns);
            s->key = db_number(m->filter, "_id");
            s->ids = mem_array(m->n_ids ? m->n_ids : 1, sizeof *s->ids);
            for (size_t i = 0; i < m->n_ids; i++)
                s->ids[i] = m->ids[i];
            s->n_ids = m->n_ids;
            s->forced = m->forced;
            for (size_t i = 0; i < m->n_changes; i++)
                s->by[strcmp(m->changes[i].field, "following") == 0] += m->changes[i].by;
        } else if (c->n_entities) {
            s->key = db_number(c->entities[k].filter, "s");
            s->id = c->entities[k].id;
            if (c->entities[k].document)
                s->document = bson_copy(c->entities[k].document);
        } else {
            s->key =
                db_number(c->ops[k]->filter, c->kind == LOG_READ ? "s" : db_key_name(db->route));
            if (c->kind == LOG_WRITE) {
                s->document = bson_new();
                log_event_document(db->route, c, k, s->document);
            } else if (c->kind == LOG_REOPEN) {
                s->document = bson_new();
                log_reopen_update(db->route, c, k, s->document);
            }
        }
    }
    return f;
}

static inline void db_flight_free(struct db_flight *f)
{
    if (!f)
        return;
    for (size_t k = 0; k < f->n; k++) {
        if (f->s[k].document)
            bson_destroy(f->s[k].document);
        mem_free(f->s[k].ids);
    }
    for (size_t k = 0; k < f->n_found; k++)
        bson_destroy(f->found[k]);
    mem_free(f->found);
    mem_free(f->errors);
    mem_free(f->s);
    mem_free(f->text);
    mem_free(f);
}

static inline void db_find(struct db_flight *f, bson_t *document)
{
    if (f->n_found == f->cap_found) {
        f->cap_found = f->cap_found ? 2 * f->cap_found : 16;
        f->found = mem_grow(f->found, f->cap_found, sizeof *f->found);
    }
    f->found[f->n_found++] = document;
}

static inline void db_error(struct db_flight *f, int code, const char *about)
{
    if (!f->errors)
        f->errors = mem_array(f->n, sizeof *f->errors);
    CHECK(f->n_errors < f->n, "one per statement");
    f->errors[f->n_errors].index = f->next;
    f->errors[f->n_errors].code = code;
    f->errors[f->n_errors++].about = about;
    f->stopped = f->ordered;
}

/* {_effects: ...} of an open event; NULL: closed, failed or not there. */
static inline bson_t *db_effects(const struct db *db, int64_t e)
{
    bson_iter_t at;
    const uint8_t *data;
    uint32_t len;

    if (!db->events[e] || db->closed[e] || !bson_iter_init_find(&at, db->events[e], "_effects"))
        return NULL;
    bson_iter_document(&at, &len, &data);
    bson_t *b = bson_new_from_data(data, len);
    if (bson_has_field(b, "failed")) {
        bson_destroy(b);
        return NULL;
    }
    return b;
}

static inline void db_set_effects(struct db *db, int64_t e, const bson_t *effects)
{
    bson_t *b = bson_new();

    bson_copy_to_excluding_noinit(db->events[e], b, "_effects", NULL);
    if (effects)
        BSON_APPEND_DOCUMENT(b, "_effects", effects);
    bson_destroy(db->events[e]);
    db->events[e] = b;
    db->closed[e] = !effects;
}

static inline bool db_has_id(const struct db_counter *c, const struct log_id *id)
{
    for (size_t i = 0; i < c->n; i++)
        if (memcmp(&c->applied[i].id, id, sizeof *id) == 0)
            return true;
    return false;
}

static inline size_t db_counted_ever(const struct db_counter *c, const struct db_statement *s)
{
    size_t n = 0;

    for (size_t i = 0; i < s->n_ids; i++)
        for (size_t k = 0; k < c->n_ever && k < DB_EVENTS; k++)
            n += memcmp(&c->ever[k], &s->ids[i], sizeof s->ids[i]) == 0;
    return n;
}

static inline void db_count(struct db *db, struct db_flight *f, const struct db_statement *s)
{
    struct db_counter *c = &db->counters[s->key];
    int64_t sum[2];

    if (!c->exists || c->is_double || (!s->forced && f->keep > 0 && c->n >= f->keep))
        return;
    for (size_t i = 0; i < s->n_ids; i++)
        if (db_has_id(c, &s->ids[i]))
            return;
    if (db_clock(db) >= f->until_ms) {
        db->late += db_counted_ever(c, s);
        return;
    }
    for (int i = 0; i < 2; i++) {
        if (__builtin_add_overflow(c->value[i], s->by[i], &sum[i])) {
            db_error(f, 2, "");
            return;
        }
    }
    memcpy(c->value, sum, sizeof sum);
    c->version++;
    db->twice += db_counted_ever(c, s);
    CHECK(c->n + s->n_ids <= DB_IDS, "room for ids");
    for (size_t i = 0; i < s->n_ids; i++) {
        c->ever[c->n_ever++ % DB_EVENTS] = s->ids[i];
        c->applied[c->n].id = s->ids[i];
        c->applied[c->n++].t = f->at_ms;
    }
    f->matched++;
}

static inline void db_check(struct db *db, struct db_flight *f, const struct db_statement *s)
{
    struct db_counter *c = &db->counters[s->key];
    bson_t list, one;
    size_t n = 0;

    if (!c->exists)
        return;
    bson_t *b = BCON_NEW("_id", BCON_INT64(s->key), "_size", BCON_INT32((int32_t)c->n));
    if (c->is_double)
        BSON_APPEND_DOUBLE(b, "followers", 1.5);
    BSON_APPEND_ARRAY_BEGIN(b, "_applied", &list);
    for (size_t i = 0; i < s->n_ids; i++) {
        char name[16];

        if (!db_has_id(c, &s->ids[i]))
            continue;
        (void)snprintf(name, sizeof name, "%zu", n++);
        BSON_APPEND_DOCUMENT_BEGIN(&list, name, &one);
        BSON_APPEND_BINARY(&one, "i", BSON_SUBTYPE_BINARY, s->ids[i].bytes, EFFECT_ID_BYTES);
        bson_append_document_end(&list, &one);
    }
    bson_append_array_end(b, &list);
    db_find(f, b);
}

static inline void db_prune(struct db *db, struct db_flight *f, const struct db_statement *s)
{
    struct db_counter *c = &db->counters[s->key];
    size_t n = 0;

    for (size_t i = 0; i < c->n; i++)
        if (c->applied[i].t >= f->before_ms)
            c->applied[n++] = c->applied[i];
    c->n = n;
    f->matched++;
}

static inline bool db_number_taken(const struct db *db, const bson_t *document)
{
    bson_iter_t at;
    int64_t group = db_number(document, "g"), seq;

    if (!db->unique_number || !bson_iter_init_find(&at, document, "seq"))
        return false;
    seq = bson_iter_as_int64(&at);
    for (size_t e = 0; e < DB_EVENTS; e++)
        if (db->events[e] && db_number(db->events[e], "g") == group &&
            db_number(db->events[e], "seq") == seq)
            return true;
    return false;
}

static inline void db_write(struct db *db, struct db_flight *f, const struct db_statement *s)
{
    if (db->events[s->key]) {
        db_error(f, 11000, "k");
    } else if (db_number_taken(db, s->document)) {
        db_error(f, 11000, "seq");
    } else if (db->taken_text && db_number(s->document, "seq") == db->taken_text) {
        db_error(f, 11000, "ref");
    } else {
        db->events[s->key] = bson_copy(s->document);
        f->matched++;
    }
}

static inline void db_event(struct db *db, struct db_flight *f, const struct db_statement *s)
{
    bson_t *effects = db_effects(db, s->key), *changed = bson_new();

    if (effects && db_clock(db) < f->until_ms) {
        if (f->kind == LOG_CLAIM) {
            if (db_number(effects, "until") < db_clock(db)) {
                bson_copy_to_excluding_noinit(effects, changed, "until", "try", NULL);
                BSON_APPEND_DATE_TIME(changed, "until", f->until_ms + LOG_OVER_MS);
                BSON_APPEND_INT64(changed, "try", f->try_id);
                db_set_effects(db, s->key, changed);
                f->matched++;
            }
        } else if (f->kind == LOG_CLOSE) {
            db_set_effects(db, s->key, NULL);
            f->matched++;
        } else if (f->kind == LOG_FAIL) {
            bson_copy_to_excluding_noinit(effects, changed, f->at_ms ? "until" : "failed", NULL);
            if (f->at_ms)
                BSON_APPEND_DATE_TIME(changed, "until", f->at_ms);
            BSON_APPEND_UTF8(changed, "failed", f->text);
            db_set_effects(db, s->key, changed);
            f->matched++;
        } else {
            bson_t *b = bson_new();

            bson_copy_to_excluding_noinit(db->events[s->key], b, "did", NULL);
            BSON_APPEND_BOOL(b, "did", true);
            bson_destroy(db->events[s->key]);
            db->events[s->key] = b;
            f->matched++;
        }
    }
    if (effects)
        bson_destroy(effects);
    bson_destroy(changed);
}

/* A refused event, and nobody is at it. */
static inline void db_reopen(struct db *db, struct db_flight *f, const struct db_statement *s)
{
    bson_iter_t at, in;
    bson_t *anew, set, effects;
    uint32_t len;
    const uint8_t *data;

    if (!db->events[s->key] || db_clock(db) >= f->until_ms ||
        !bson_iter_init_find(&at, db->events[s->key], "did") || bson_iter_as_bool(&at) ||
        !bson_iter_init_find(&at, db->events[s->key], "_effects") || !bson_iter_recurse(&at, &in) ||
        !bson_iter_find(&in, "failed") || !bson_iter_recurse(&at, &in) ||
        !bson_iter_find(&in, "until") || bson_iter_date_time(&in) >= db_clock(db))
        return;
    anew = s->document;
    CHECK(bson_iter_init_find(&at, anew, "$set"), "a set");
    bson_iter_document(&at, &len, &data);
    CHECK(bson_init_static(&set, data, len) && bson_iter_init_find(&at, &set, "_effects"), "it");
    bson_iter_document(&at, &len, &data);
    CHECK(bson_init_static(&effects, data, len), "its _effects");
    db_set_effects(db, s->key, &effects);
    f->matched++;
}

static inline bool db_is_taken(const struct db *db, int64_t entity)
{
    size_t from = db->one_of ? (size_t)entity / db->one_of * db->one_of : 0;

    for (size_t i = from; i < from + db->one_of; i++)
        if (db->entities[i].exists)
            return true;
    return false;
}

static inline void db_entity(struct db *db, struct db_flight *f, const struct db_statement *s)
{
    struct db_entity *e = &db->entities[s->key];
    bool in_time = db_clock(db) < f->until_ms;

    switch (f->kind) {
    case LOG_ADD:
        if (!e->exists && db_is_taken(db, s->key)) {
            db_error(f, 11000, "k");
        } else if (e->exists) {
            f->matched++;
        } else if (!in_time) {
            db_error(f, 241, "");
        } else {
            *e = (struct db_entity){.exists = true,
                                    .has_by = true,
                                    .by = s->id,
                                    .of = (int32_t)db_number(s->document, "k")};
            f->matched++;
        }
        return;
    case LOG_MARK:
        if (e->exists && !e->has_removed && in_time) {
            e->has_removed = true;
            e->removed = s->id;
            f->matched++;
        }
        return;
    case LOG_REMOVE:
        if (e->exists && e->has_removed && in_time &&
            memcmp(&e->removed, &s->id, sizeof s->id) == 0)
            *e = (struct db_entity){.exists = false};
        return;
    case LOG_CLEAN:
        if (e->exists && e->has_by && in_time && memcmp(&e->by, &s->id, sizeof s->id) == 0)
            e->has_by = false;
        return;
    default:
        break;
    }
    if (!e->exists)
        return;
    bson_t *b = BCON_NEW("s", BCON_INT64(s->key));
    if (e->has_by)
        BSON_APPEND_BINARY(b, "_by", BSON_SUBTYPE_BINARY, e->by.bytes, EFFECT_ID_BYTES);
    if (e->has_removed)
        BSON_APPEND_BINARY(b, "_removed_by", BSON_SUBTYPE_BINARY, e->removed.bytes,
                           EFFECT_ID_BYTES);
    db_find(f, b);
}

static inline void db_give_number(struct db *db, struct db_flight *f, const struct db_statement *s)
{
    int64_t *n = &db->sequence[s->key];

    f->matched++;
    if (f->kind == LOG_START) {
        if (*n != INT64_MIN)
            db_error(f, 11000, "k");
        else
            *n = db->route->sequence.start - 1;
    } else if (f->kind == LOG_HIGHEST) {
        for (size_t e = 0; e < DB_EVENTS; e++) {
            if (!db->events[e] || db_number(db->events[e], "g") != s->key)
                continue;
            int64_t seq = db_number(db->events[e], "seq");
            f->number = f->has_number && f->number > seq ? f->number : seq;
            f->has_number = true;
        }
    } else if (*n != INT64_MIN && *n > INT64_MAX - f->count) {
        db_error(f, 2, "");
    } else if (*n != INT64_MIN) {
        f->number = *n += f->count;
        f->has_number = true;
    }
}

/* Carries out one statement. False: there is none left. */
static inline bool db_step(struct db *db, struct db_flight *f)
{
    if (f->next >= f->n || f->stopped)
        return false;
    const struct db_statement *s = &f->s[f->next];
    struct db_counter *c = &db->counters[s->key < DB_COUNTERS ? s->key : 0];
    switch (f->kind) {
    case LOG_LOOK:
        if (db->events[s->key])
            db_find(f, bson_copy(db->events[s->key]));
        break;
    case LOG_NUMBER:
    case LOG_START:
    case LOG_HIGHEST:
        db_give_number(db, f, s);
        break;
    case LOG_WRITE:
        db_write(db, f, s);
        break;
    case LOG_REOPEN:
        db_reopen(db, f, s);
        break;
    case LOG_CLAIM:
    case LOG_DID:
    case LOG_FAIL:
    case LOG_CLOSE:
        db_event(db, f, s);
        break;
    case LOG_ADD:
    case LOG_MARK:
    case LOG_READ:
    case LOG_REMOVE:
    case LOG_CLEAN:
        db_entity(db, f, s);
        break;
    case LOG_COUNT:
        db_count(db, f, s);
        break;
    case LOG_CHECK:
        db_check(db, f, s);
        break;
    case LOG_MAKE:
        c->exists = true;
        f->matched++;
        break;
    case LOG_PRUNE:
        db_prune(db, f, s);
        break;
    case LOG_WAIT:
        break;
    }
    f->next++;
    return f->next < f->n && !f->stopped;
}

static inline bool db_is_over(const struct db_flight *f)
{
    return f->next >= f->n || f->stopped;
}

/* Gives the answer to the plan, in the form of libmongoc's bulk. */
static inline void db_answer(struct log_plan *p, const struct db_flight *f)
{
    struct outcome_call call = {.fault = CALL_FINE, .ordered = f->ordered};
    bson_t reply = BSON_INITIALIZER, list, one;

    for (size_t k = 0; k < f->n_found; k++)
        log_plan_found(p, f->found[k]);
    if (f->has_number)
        log_plan_number(p, f->number);
    BSON_APPEND_INT64(&reply, f->kind == LOG_WRITE ? "nInserted" : "nMatched", (int64_t)f->matched);
    BSON_APPEND_ARRAY_BEGIN(&reply, "writeErrors", &list);
    for (size_t k = 0; k < f->n_errors; k++) {
        char name[24];

        (void)snprintf(name, sizeof name, "%zu", k);
        BSON_APPEND_DOCUMENT_BEGIN(&list, name, &one);
        BSON_APPEND_INT32(&one, "index", (int32_t)f->errors[k].index);
        BSON_APPEND_INT32(&one, "code", f->errors[k].code);
        BSON_APPEND_UTF8(&one, "errmsg", "index: x");
        if (f->errors[k].code == 11000) {
            bson_t *pattern = BCON_NEW("g", BCON_INT32(1), f->errors[k].about, BCON_INT32(1));
            BSON_APPEND_DOCUMENT(&one, "keyPattern", pattern);
            bson_destroy(pattern);
        }
        bson_append_document_end(&list, &one);
    }
    bson_append_array_end(&reply, &list);
    if (f->n_errors > 0) {
        call.fault = CALL_SERVER;
        call.code = f->errors[0].code;
    }
    log_plan_answer(p, &call, &reply);
    bson_destroy(&reply);
}

/* One findAndModify: mongo_log_horizon.c. What stands there behind it is the answer. */
static inline void db_register(struct db *db, struct log_horizon *h, int64_t now_ms)
{
    int64_t until = db_clock(db) + log_horizon_hold(h->attempt_ms);

    if (db->attempt_ms <= h->attempt_ms || db->attempts_until <= now_ms) {
        db->attempt_ms = h->attempt_ms;
        if (db->attempts_until < until)
            db->attempts_until = until;
    }
    log_horizon_registered(h, db->attempt_ms, db->attempts_until);
}

static inline int64_t db_oldest_open(const struct db *db)
{
    int64_t oldest = INT64_MAX;

    for (size_t e = 0; e < DB_EVENTS; e++) {
        bson_t *effects = db_effects(db, (int64_t)e);

        if (!effects)
            continue;
        if (db_number(effects, "at") < oldest)
            oldest = db_number(effects, "at");
        bson_destroy(effects);
    }
    return oldest;
}

static inline void db_clear(struct db *db)
{
    for (size_t e = 0; e < DB_EVENTS; e++)
        if (db->events[e])
            bson_destroy(db->events[e]);
    memset(db, 0, sizeof *db);
    for (size_t g = 0; g < 4; g++)
        db->sequence[g] = INT64_MIN;
}

#endif
