#include "core/log_doc.h"

#include <stdio.h>
#include <string.h>

#include <xxhash.h>

#include "base/bytes.h"
#include "base/err.h"
#include "base/mem.h"
#include "core/log_horizon.h"
#include "core/look.h"
#include "core/sequence.h"

bool log_has_effects(const struct config_route *route)
{
    return route->n_counters > 0 || config_has_operation(route);
}

/* Of the collection that has its events. */
static void tag_of(const struct config_route *r, uint8_t tag[4])
{
    bool ledger = config_has_operation(r);
    const char *database = ledger ? r->operation.ledger_database : r->database;
    const char *collection = ledger ? r->operation.ledger : r->collection;
    XXH32_canonical_t canonical;

    XXH32_canonicalFromHash(
        &canonical, XXH32(collection, strlen(collection), XXH32(database, strlen(database), 0)));
    memcpy(tag, canonical.digest, 4);
}

void log_event_id(const struct config_route *route, const bson_t *filter, struct log_id *out)
{
    effect_id(filter, out->bytes);
    tag_of(route, out->bytes);
}

static const char *conflict_field_of(const struct config_route *route)
{
    return route->dedup.conflict == CONFLICT_OFF ? NULL : route->dedup.conflict_field;
}

bool log_is_ours(const bson_t *effects, const struct log_id *id)
{
    bson_iter_t at;
    const uint8_t *bytes;
    uint32_t len;

    if (!bson_iter_init_find(&at, effects, "id") || !BSON_ITER_HOLDS_BINARY(&at))
        return false;
    bson_iter_binary(&at, NULL, &len, &bytes);
    return len == sizeof id->bytes && memcmp(bytes, id->bytes, len) == 0;
}

/* --- WRITE --- */

static const char *index_name(size_t i, char text[16])
{
    const char *name;

    (void)bson_uint32_to_string((uint32_t)i, &name, text, 16);
    return name;
}

static void append_moves(const struct config_route *route, const struct effects *f, bson_t *to)
{
    bson_t list, move, by;
    char text[16];

    MUST(BSON_APPEND_ARRAY_BEGIN(to, "moves", &list));
    for (size_t i = 0; i < f->n_moves; i++) {
        const struct effect_move *m = &f->moves[i];
        const struct config_counter *c = &route->counters[m->counter];
        char *ns = mem_printf("%s.%s", c->database, c->collection);

        MUST(bson_append_document_begin(&list, index_name(i, text), -1, &move));
        MUST(BSON_APPEND_UTF8(&move, "c", ns));
        MUST(BSON_APPEND_DOCUMENT(&move, "f", m->filter));
        MUST(BSON_APPEND_DOCUMENT_BEGIN(&move, "by", &by));
        for (size_t j = 0; j < c->inc.n; j++)
            MUST(BSON_APPEND_INT64(&by, c->inc.items[j].name,
                                   f->action == EFFECT_DELETE ? -m->by[j] : m->by[j]));
        MUST(bson_append_document_end(&move, &by));
        if (!c->upsert)
            MUST(BSON_APPEND_BOOL(&move, "make", false));
        MUST(bson_append_document_end(&list, &move));
        mem_free(ns);
    }
    MUST(bson_append_array_end(to, &list));
}

static void append_effects(const struct config_route *route, const struct log_command *c, size_t k,
                           bson_t *out)
{
    const struct write_op *op = c->ops[k];
    const struct effects *f = op->effects;
    struct log_id id;
    bson_t effects;

    MUST(BSON_APPEND_DOCUMENT_BEGIN(out, LOG_EFFECTS, &effects));
    log_event_id(route, op->filter, &id);
    MUST(BSON_APPEND_BINARY(&effects, "id", BSON_SUBTYPE_BINARY, id.bytes, sizeof id.bytes));
    MUST(BSON_APPEND_DATE_TIME(&effects, "at", c->at_ms));
    append_moves(route, f, &effects);
    if (f->entity) {
        MUST(BSON_APPEND_DOCUMENT(&effects, "entity", f->entity));
        if (f->action == EFFECT_INSERT)
            MUST(BSON_APPEND_DOCUMENT(&effects, "document", op->document));
        MUST(BSON_APPEND_DATE_TIME(&effects, "until", c->until_ms + LOG_OVER_MS));
        MUST(BSON_APPEND_INT64(&effects, "try", c->try_id));
    }
    MUST(bson_append_document_end(out, &effects));
}

static void append_number(const struct config_route *route, const struct effect_number *n,
                          int64_t number, bson_t *out)
{
    struct buf text = {0};

    MUST(BSON_APPEND_INT64(out, route->sequence.field, number));
    if (!n->before)
        return;
    buf_add_text(&text, n->before);
    sequence_add_number(&text, number, n->digits);
    buf_add_text(&text, n->behind);
    MUST(bson_append_utf8(out, route->sequence.template_field, -1, buf_text(&text), (int)text.len));
    buf_clear(&text);
}

static void append_ledger(const struct config_route *route, const struct log_command *c,
                          const struct write_op *op, bson_t *out)
{
    const char *field = conflict_field_of(route);
    bson_iter_t at;

    MUST(bson_concat(out, op->filter));
    MUST(BSON_APPEND_DATE_TIME(out, "at", c->at_ms));
    MUST(BSON_APPEND_UTF8(out, "op", op->effects->action == EFFECT_DELETE ? "delete" : "insert"));
    MUST(BSON_APPEND_BOOL(out, "did", false));
    if (field && bson_iter_init_find(&at, op->document, field))
        MUST(bson_append_iter(out, field, -1, &at));
}

void log_event_document(const struct config_route *route, const struct log_command *c, size_t k,
                        bson_t *out)
{
    const struct write_op *op = c->ops[k];
    bson_iter_t id;

    if (config_has_operation(route)) {
        append_ledger(route, c, op, out);
    } else {
        if (!bson_has_field(op->document, "_id") && bson_iter_init_find(&id, op->filter, "_id"))
            MUST(bson_append_iter(out, "_id", -1, &id));
        MUST(bson_concat(out, op->document));
        if (c->numbers && op->effects && op->effects->number)
            append_number(route, op->effects->number, c->numbers[k], out);
    }
    if (log_has_effects(route) && op->effects)
        append_effects(route, c, k, out);
}

void log_reopen_update(const struct config_route *route, const struct log_command *c, size_t k,
                       bson_t *update)
{
    bson_t set;

    MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &set));
    append_effects(route, c, k, &set);
    MUST(bson_append_document_end(update, &set));
}

void log_look_projection(const struct config_route *route, const bson_t *like, bson_t *projection)
{
    look_projection(like, conflict_field_of(route), projection);
    if (log_has_effects(route))
        MUST(BSON_APPEND_INT32(projection, LOG_EFFECTS, 1));
    if (!config_has_operation(route))
        return;
    MUST(BSON_APPEND_INT32(projection, "op", 1));
    MUST(BSON_APPEND_INT32(projection, "did", 1));
}

/* --- guards --- */

void log_append_until(bson_t *filter, int64_t until_ms)
{
    bson_t expr, pair;

    MUST(BSON_APPEND_DOCUMENT_BEGIN(filter, "$expr", &expr));
    MUST(BSON_APPEND_ARRAY_BEGIN(&expr, "$lt", &pair));
    MUST(BSON_APPEND_UTF8(&pair, "0", "$$NOW"));
    MUST(BSON_APPEND_DATE_TIME(&pair, "1", until_ms));
    MUST(bson_append_array_end(&expr, &pair));
    MUST(bson_append_document_end(filter, &expr));
}

static void append_exists(bson_t *filter, const char *path, bool exists)
{
    bson_t is;

    MUST(BSON_APPEND_DOCUMENT_BEGIN(filter, path, &is));
    MUST(BSON_APPEND_BOOL(&is, "$exists", exists));
    MUST(bson_append_document_end(filter, &is));
}

static void append_ids(bson_t *to, const char *name, const struct log_id *ids, size_t n)
{
    bson_t list;
    char text[16];

    MUST(bson_append_array_begin(to, name, -1, &list));
    for (size_t i = 0; i < n; i++)
        MUST(bson_append_binary(&list, index_name(i, text), -1, BSON_SUBTYPE_BINARY, ids[i].bytes,
                                EFFECT_ID_BYTES));
    MUST(bson_append_array_end(to, &list));
}

/* --- COUNT --- */

void log_count_filter(const struct log_command *c, const struct log_move *m, bson_t *filter)
{
    bson_t in, not, types;
    char path[48];

    MUST(bson_concat(filter, m->filter));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(filter, LOG_APPLIED ".i", &in));
    append_ids(&in, "$nin", m->ids, m->n_ids);
    MUST(bson_append_document_end(filter, &in));
    for (size_t i = 0; i < m->n_changes; i++) { /* $inc goes on with a double, and a decimal */
        MUST(bson_append_document_begin(filter, m->changes[i].field, -1, &in));
        MUST(BSON_APPEND_DOCUMENT_BEGIN(&in, "$not", &not ));
        MUST(BSON_APPEND_ARRAY_BEGIN(&not, "$type", &types));
        MUST(BSON_APPEND_INT32(&types, "0", BSON_TYPE_DOUBLE));
        MUST(BSON_APPEND_INT32(&types, "1", BSON_TYPE_DECIMAL128));
        MUST(bson_append_array_end(&not, &types));
        MUST(bson_append_document_end(&in, &not ));
        MUST(bson_append_document_end(filter, &in));
    }
    if (!m->forced && c->keep > 0) {
        (void)snprintf(path, sizeof path, LOG_APPLIED ".%zu", c->keep - 1);
        append_exists(filter, path, false);
    }
    log_append_until(filter, c->until_ms);
}

void log_count_update(const struct log_command *c, const struct log_move *m, bson_t *update)
{
    bson_t inc, push, applied, each, one;
    char text[16];

    MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$inc", &inc));
    for (size_t i = 0; i < m->n_changes; i++)
        MUST(BSON_APPEND_INT64(&inc, m->changes[i].field, m->changes[i].by));
    MUST(BSON_APPEND_INT64(&inc, LOG_VERSION, 1));
    MUST(bson_append_document_end(update, &inc));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$push", &push));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&push, LOG_APPLIED, &applied));
    MUST(BSON_APPEND_ARRAY_BEGIN(&applied, "$each", &each));
    for (size_t i = 0; i < m->n_ids; i++) {
        MUST(bson_append_document_begin(&each, index_name(i, text), -1, &one));
        MUST(bson_append_binary(&one, "i", -1, BSON_SUBTYPE_BINARY, m->ids[i].bytes,
                                EFFECT_ID_BYTES));
        MUST(BSON_APPEND_DATE_TIME(&one, "t", c->at_ms));
        MUST(bson_append_document_end(&each, &one));
    }
    MUST(bson_append_array_end(&applied, &each));
    MUST(bson_append_document_end(&push, &applied));
    MUST(bson_append_document_end(update, &push));
}

void log_check_filter(const struct log_command *c, bson_t *filter)
{
    bson_t list, one;
    char text[16];

    if (c->n_moves == 1) {
        MUST(bson_concat(filter, c->moves[0].filter));
        return;
    }
    MUST(BSON_APPEND_ARRAY_BEGIN(filter, "$or", &list));
    for (size_t i = 0; i < c->n_moves; i++) {
        MUST(bson_append_document_begin(&list, index_name(i, text), -1, &one));
        MUST(bson_concat(&one, c->moves[i].filter));
        MUST(bson_append_document_end(&list, &one));
    }
    MUST(bson_append_array_end(filter, &list));
}

static void append_applied_or_none(bson_t *to, const char *name)
{
    bson_t list, none;

    MUST(bson_append_array_begin(to, name, -1, &list));
    MUST(BSON_APPEND_UTF8(&list, "0", "$" LOG_APPLIED));
    MUST(BSON_APPEND_ARRAY_BEGIN(&list, "1", &none));
    MUST(bson_append_array_end(&list, &none));
    MUST(bson_append_array_end(to, &list));
}

/* {$filter: {input: _applied or [], cond: {$in: ["$$this.i", [ids]]}}} */
static void append_applied(const struct log_command *c, bson_t *projection)
{
    bson_t applied, filter, input, cond, in, ids;
    char text[16];
    size_t n = 0;

    MUST(BSON_APPEND_DOCUMENT_BEGIN(projection, LOG_APPLIED, &applied));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&applied, "$filter", &filter));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&filter, "input", &input));
    append_applied_or_none(&input, "$ifNull");
    MUST(bson_append_document_end(&filter, &input));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&filter, "cond", &cond));
    MUST(BSON_APPEND_ARRAY_BEGIN(&cond, "$in", &in));
    MUST(BSON_APPEND_UTF8(&in, "0", "$$this.i"));
    MUST(BSON_APPEND_ARRAY_BEGIN(&in, "1", &ids));
    for (size_t i = 0; i < c->n_moves; i++)
        for (size_t j = 0; j < c->moves[i].n_ids; j++, n++)
            MUST(bson_append_binary(&ids, index_name(n, text), -1, BSON_SUBTYPE_BINARY,
                                    c->moves[i].ids[j].bytes, EFFECT_ID_BYTES));
    MUST(bson_append_array_end(&in, &ids));
    MUST(bson_append_array_end(&cond, &in));
    MUST(bson_append_document_end(&filter, &cond));
    MUST(bson_append_document_end(&applied, &filter));
    MUST(bson_append_document_end(projection, &applied));
}

static void append_once(bson_t *projection, const char *field)
{
    bson_iter_t at;

    if (!bson_iter_init_find(&at, projection, field))
        MUST(BSON_APPEND_INT32(projection, field, 1));
}

void log_check_projection(const struct log_command *c, bson_t *projection)
{
    bson_t size, of;
    bson_iter_t at;

    for (size_t i = 0; i < c->n_moves; i++) {
        const struct log_move *m = &c->moves[i];

        MUST(bson_iter_init(&at, m->filter));
        while (bson_iter_next(&at))
            append_once(projection, bson_iter_key(&at));
        for (size_t k = 0; k < m->n_changes; k++)
            append_once(projection, m->changes[k].field);
    }
    append_applied(c, projection);
    MUST(BSON_APPEND_DOCUMENT_BEGIN(projection, "_size", &size));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&size, "$size", &of));
    append_applied_or_none(&of, "$ifNull");
    MUST(bson_append_document_end(&size, &of));
    MUST(bson_append_document_end(projection, &size));
}

void log_make_update(const struct log_move *m, bson_t *update)
{
    bson_t set;

    MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$setOnInsert", &set));
    for (size_t i = 0; i < m->n_changes; i++)
        MUST(BSON_APPEND_INT64(&set, m->changes[i].field, 0));
    MUST(BSON_APPEND_INT64(&set, LOG_VERSION, 0));
    MUST(bson_append_document_end(update, &set));
}

void log_prune_filter(const struct log_command *c, const struct log_move *m, bson_t *filter)
{
    bson_t less;

    MUST(bson_concat(filter, m->filter));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(filter, LOG_APPLIED ".t", &less));
    MUST(BSON_APPEND_DATE_TIME(&less, "$lt", c->before_ms));
    MUST(bson_append_document_end(filter, &less));
}

/* Of the route's own ids: what they begin with tells. */
static void append_own(const struct config_route *route, bson_t *which)
{
    uint8_t low[EFFECT_ID_BYTES] = {0}, high[EFFECT_ID_BYTES];
    bson_t own;

    memset(high, 0xff, sizeof high);
    tag_of(route, low);
    tag_of(route, high);
    MUST(BSON_APPEND_DOCUMENT_BEGIN(which, "i", &own));
    MUST(BSON_APPEND_BINARY(&own, "$gte", BSON_SUBTYPE_BINARY, low, sizeof low));
    MUST(BSON_APPEND_BINARY(&own, "$lte", BSON_SUBTYPE_BINARY, high, sizeof high));
    MUST(bson_append_document_end(which, &own));
}

void log_prune_update(const struct config_route *route, const struct log_command *c, bson_t *update)
{
    bson_t pull, which, less;

    MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$pull", &pull));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&pull, LOG_APPLIED, &which));
    MUST(BSON_APPEND_DOCUMENT_BEGIN(&which, "t", &less));
    MUST(BSON_APPEND_DATE_TIME(&less, "$lt", c->before_ms));
    MUST(bson_append_document_end(&which, &less));
    append_own(route, &which);
    MUST(bson_append_document_end(&pull, &which));
    MUST(bson_append_document_end(update, &pull));
}

/* --- CLOSE, FAIL, DID --- */

void log_close_filter(const struct log_command *c, bson_t *filter)
{
    look_filter(c->ops, c->n, filter);
    append_exists(filter, LOG_EFFECTS, true);
    append_exists(filter, LOG_EFFECTS ".failed", false);
    log_append_until(filter, c->until_ms);
}

void log_close_update(const struct log_command *c, bson_t *update)
{
    bson_t in;

    switch (c->kind) {
    case LOG_FAIL:
        MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &in));
        MUST(BSON_APPEND_UTF8(&in, LOG_EFFECTS ".failed", c->text));
        if (c->at_ms != 0) /* a redelivery may begin at once */
            MUST(BSON_APPEND_DATE_TIME(&in, LOG_EFFECTS ".until", c->at_ms));
        break;
    case LOG_DID:
        MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$set", &in));
        MUST(BSON_APPEND_BOOL(&in, "did", true));
        break;
    default:
        MUST(BSON_APPEND_DOCUMENT_BEGIN(update, "$unset", &in));
        MUST(BSON_APPEND_BOOL(&in, LOG_EFFECTS, true));
        break;
    }
    MUST(bson_append_document_end(update, &in));
}

bool log_event_filter(const struct config_route *route, const bson_t *document, bson_t *filter)
{
    const struct config_dedup *d = &route->dedup;
    bson_t like = BSON_INITIALIZER;
    bool ok;

    if (config_has_operation(route) || d->into_id)
        MUST(BSON_APPEND_INT32(&like, "_id", 1));
    else
        for (size_t i = 0; i < d->fields.n; i++)
            MUST(BSON_APPEND_INT32(&like, d->fields.items[i], 1));
    ok = canonical_key(document, &like, filter);
    bson_destroy(&like);
    return ok;
}
