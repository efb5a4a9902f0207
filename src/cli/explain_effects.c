/* What a record would move beside its document. */
#include <inttypes.h>
#include <string.h>

#include "cli/explain.h"
#include "core/mirror.h"
#include "core/sequence.h"

static void add_json_text(struct buf *json, const char *name, const char *text)
{
    buf_printf(json, "\"%s\":\"", name);
    buf_add_json(json, text, strlen(text));
    buf_add_char(json, '"');
}

static void add_bson(struct buf *out, const bson_t *b)
{
    char *json = bson_as_relaxed_extended_json(b, NULL);

    buf_add_json_shown(out, json ? json : "{}", json ? strlen(json) : 2);
    bson_free(json);
}

static void add_namespace(struct buf *json, const char *database, const char *collection)
{
    buf_add_text(json, "\"collection\":\"");
    buf_add_json(json, database, strlen(database));
    buf_add_char(json, '.');
    buf_add_json(json, collection, strlen(collection));
    buf_add_char(json, '"');
}

/* --- how it is written --- */

static const char *when(const struct config_route *r)
{
    switch (r->effects) {
    case EFFECTS_TRANSACTION:
        return "in one transaction";
    case EFFECTS_LOG:
        return "without a transaction, with a note in the document of what is left to be done";
    case EFFECTS_AUTO:
        break;
    }
    return "in a transaction where the server has them, else one after the other (effects = "
           "\"auto\")";
}

static void add_write(const struct explain_in *in, const struct write_op *op, struct sheet *out)
{
    const struct config_route *r = in->route;
    static const char *const what[] = {
        [EFFECT_STORE] = "only when the event is new: the document and its effects",
        [EFFECT_INSERT] =
            "only when the event is new: the ledger, and where the entity is not there "
            "the document and its effects",
        [EFFECT_DELETE] =
            "only when the event is new: the ledger, and where the entity is there it "
            "is removed and its counters move back"};

    sheet_printf(out, "write", "%s, %s", what[op->effects->action], when(r));
    if (op->effects->action != EFFECT_STORE) {
        sheet_add(out, "operation", op->effects->action == EFFECT_INSERT ? "insert" : "delete",
                  NULL);
        sheet_printf(out, "ledger", "%s.%s", r->operation.ledger_database, r->operation.ledger);
        sheet_add_bson(out, "entity", op->effects->entity);
    }
    if (op->effects->action != EFFECT_DELETE)
        sheet_add_bson(out, "document", op->document);
}

/* --- counters --- */

/* INT64_MIN is never there. */
static int64_t amount(const struct effects *f, const struct effect_move *move, size_t i)
{
    return f->action == EFFECT_DELETE ? -move->by[i] : move->by[i];
}

/* Where its values are to be found in Redis afterwards. */
static void add_mirror(const struct config_counter *c, const bson_t *filter, struct buf *text,
                       struct buf *json)
{
    struct buf key = {0};

    if (mirror_wanted(c) && mirror_key(c, filter, &key)) {
        buf_add_text(text, "; mirror ");
        buf_add_json_shown(text, key.data, key.len);
        buf_add_char(json, ',');
        add_json_text(json, "mirror", key.data);
    } else if (mirror_wanted(c)) {
        buf_add_text(text, "; no mirror: a field of its key is empty or no scalar");
        buf_add_text(json, ",\"mirror\":null");
    }
    buf_clear(&key);
}

static void add_move(const struct config_route *r, const struct effects *f,
                     const struct effect_move *move, struct sheet *out)
{
    const struct config_counter *c = &r->counters[move->counter];
    struct buf text = {0}, json = {0};

    buf_printf(&text, "%s.%s ", c->database, c->collection);
    add_bson(&text, move->filter);
    buf_add_char(&json, '{');
    add_namespace(&json, c->database, c->collection);
    buf_add_text(&json, ",\"filter\":");
    add_bson(&json, move->filter);
    buf_add_text(&json, ",\"inc\":{");
    for (size_t i = 0; i < c->inc.n; i++) {
        int64_t by = amount(f, move, i);

        buf_printf(&text, "%s %s %s%" PRId64, i ? "," : ":", c->inc.items[i].name,
                   by < 0 ? "" : "+", by);
        buf_add_text(&json, i ? ",\"" : "\"");
        buf_add_json(&json, c->inc.items[i].name, strlen(c->inc.items[i].name));
        buf_printf(&json, "\":%" PRId64, by);
    }
    if (!c->upsert)
        buf_add_text(&text, " (if it is there)");
    buf_printf(&json, "},\"upsert\":%s", c->upsert ? "true" : "false");
    add_mirror(c, move->filter, &text, &json);
    buf_add_char(&json, '}');
    sheet_add_item(out, "counter", buf_text(&text), buf_text(&json));
    buf_clear(&text);
    buf_clear(&json);
}

/* --- the number --- */

/* "A-B-######": as many places as the number has at least. */
static void add_text(const struct effect_number *n, struct buf *out)
{
    buf_add_text(out, n->before);
    for (int i = 0; i < n->digits; i++)
        buf_add_char(out, '#');
    buf_add_text(out, n->behind);
}

static const char *mode_name(const struct config_sequence *q)
{
    static const char *const names[] = {
        [SEQUENCE_GAPLESS] = "gapless", [SEQUENCE_BLOCK] = "block", [SEQUENCE_MAX] = "max"};

    return names[q->mode];
}

static void add_number(const struct config_route *r, const struct effect_number *n,
                       struct sheet *out)
{
    const struct config_sequence *q = &r->sequence;
    struct buf text = {0}, json = {0}, shown = {0};

    buf_printf(&text, "%s: the next of group ", q->field);
    add_bson(&text, n->group);
    buf_add_char(&json, '{');
    add_json_text(&json, "field", q->field);
    buf_add_char(&json, ',');
    add_json_text(&json, "mode", mode_name(q));
    buf_add_text(&json, ",\"group\":");
    add_bson(&json, n->group);
    if (q->mode != SEQUENCE_MAX) {
        buf_printf(&text, " in %s.%s", q->database, q->collection);
        buf_add_char(&json, ',');
        add_namespace(&json, q->database, q->collection);
    }
    if (n->before) {
        add_text(n, &shown);
        buf_printf(&text, "; %s: \"%s\"", q->template_field, buf_text(&shown));
        buf_add_char(&json, ',');
        add_json_text(&json, "text_field", q->template_field);
        buf_add_char(&json, ',');
        add_json_text(&json, "text", buf_text(&shown));
    }
    buf_printf(&text, " (mode %s)", mode_name(q));
    buf_add_char(&json, '}');
    sheet_add(out, "number", buf_text(&text), buf_text(&json));
    buf_clear(&text);
    buf_clear(&json);
    buf_clear(&shown);
}

void explain_effects(const struct explain_in *in, const struct write_op *op, struct sheet *out)
{
    const struct effects *f = op->effects;

    add_write(in, op, out);
    for (size_t i = 0; i < f->n_moves; i++)
        add_move(in->route, f, &f->moves[i], out);
    if (f->number)
        add_number(in->route, f->number, out);
}

/* --- what is there --- */

/* Where its counter is; another record may be faster. */
static enum exit_code number_now(const struct explain_in *in, const struct effect_number *n,
                                 struct sheet *out)
{
    const struct config_sequence *q = &in->route->sequence;
    int64_t last = q->start - 1;
    bson_t *counter = NULL;
    bson_iter_t it;
    struct err e;

    if (q->mode == SEQUENCE_MAX)
        return EXIT_FINE;
    if (!mongo_find_in(in->mongo, q->database, q->collection, n->group, &counter, &e))
        return explain_refusal(out, "next number", &e);
    if (counter && bson_iter_init_find(&it, counter, "n"))
        last = bson_iter_as_int64(&it);
    bson_destroy(counter);
    if (last == INT64_MAX)
        sheet_add(out, "next number", "none: the last one has been given", "null");
    else {
        char json[32];

        (void)snprintf(json, sizeof json, "%" PRId64, last + 1);
        sheet_add(out, "next number", json, json);
    }
    return EXIT_FINE;
}

enum exit_code explain_effects_now(const struct explain_in *in, const struct write_op *op,
                                   const bson_t *event, struct sheet *out)
{
    if (event != NULL)
        sheet_add(out, "moves",
                  bson_has_field(event, "_effects")
                      ? "what is left of it: the event is there, and its effects are not all done "
                        "yet (this record would complete them, as the sweep does)"
                      : "nothing: the event is there already",
                  NULL);
    return event == NULL && op->effects->number ? number_now(in, op->effects->number, out)
                                                : EXIT_FINE;
}

/* An entity that somebody is just taking away is not there any more. *event is the caller's. */
static bool find_both(const struct explain_in *in, const struct write_op *op, bson_t **event,
                      bool *entity, struct err *e)
{
    bson_t *there = NULL;
    bool ok = mongo_find(in->mongo, in->route, op->filter, event, e) &&
              mongo_find_in(in->mongo, in->route->database, in->route->collection,
                            op->effects->entity, &there, e);

    *entity = there != NULL && !bson_has_field(there, "_removed_by");
    bson_destroy(there);
    return ok;
}

/* Of an event that is new. */
static enum exit_code entity_moves(const struct explain_in *in, const struct write_op *op,
                                   bool there, struct sheet *out)
{
    bool insert = op->effects->action == EFFECT_INSERT;

    if (insert == there) {
        sheet_add(out, "moves",
                  insert ? "nothing: the entity is there already, and stays as it is"
                         : "nothing: there is no entity to remove",
                  NULL);
        return EXIT_FINE;
    }
    sheet_add(out, "moves", insert ? "the entity is added" : "the entity is removed", NULL);
    return op->effects->number ? number_now(in, op->effects->number, out) : EXIT_FINE;
}

enum exit_code explain_operation_now(const struct explain_in *in, const struct write_op *op,
                                     struct sheet *out)
{
    enum exit_code code;
    bson_t *event = NULL;
    bool entity;
    struct err e;

    if (!find_both(in, op, &event, &entity, &e)) {
        bson_destroy(event);
        return explain_refusal(out, "stored", &e);
    }
    sheet_add(out, "stored",
              event ? "in the ledger: a duplicate" : "not in the ledger: the event is new", NULL);
    sheet_add(out, "entity now", entity ? "there" : "not there", NULL);
    code = event ? explain_effects_now(in, op, event, out) : entity_moves(in, op, entity, out);
    bson_destroy(event);
    return code;
}
