#include "cli/explain.h"

#include <stdlib.h>
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/bson_diff.h"
#include "core/json_bson.h"
#include "core/json_place.h"
#include "core/look.h"
#include "core/payload.h"

enum { DIFFERENCES_MAX = 20 };

/* --- the lane --- */

static void add_lane_bytes(struct slice bytes, struct buf *out)
{
    buf_add_text(out, ": \"");
    if (payload_is_utf8(bytes)) {
        buf_add_json(out, bytes.ptr, bytes.len);
    } else {
        buf_add_text(out, "0x");
        for (size_t i = 0; i < bytes.len; i++)
            buf_printf(out, "%02x", ((const unsigned char *)bytes.ptr)[i]);
    }
    buf_add_char(out, '"');
}

static void lane_text(const struct explain_in *in, const struct record *r, struct buf *out)
{
    static const char *const spaces[] = {"the Kafka key", "the dedup key", "a value of the record",
                                         "the whole partition",
                                         "none: the record is a lane of its own"};
    bson_t value = BSON_INITIALIZER;

    buf_add_text(out, spaces[r->order_space]);
    if (mapping_order_value(in->mapping, r, &value)) {
        char *json = bson_as_relaxed_extended_json(&value, NULL);

        buf_add_text(out, ": ");
        buf_add_json_shown(out, json ? json : "{}", json ? strlen(json) : 2);
        bson_free(json);
    } else if (r->order_space == ORDER_KEY || r->order_space == ORDER_VALUE) {
        add_lane_bytes(r->order_key, out); /* or a header's */
    } else if (r->order_space == ORDER_DEDUP && strcmp(in->route->order_by, "@dedup") != 0) {
        buf_printf(out, ", because the record has no %s (order_by)", in->route->order_by);
    }
    bson_destroy(&value);
}

/* --- the write --- */

static void append_concern(const struct config *c, bson_t *command)
{
    const char *w = c->mongo.write_concern;
    bson_t concern;

    BSON_APPEND_DOCUMENT_BEGIN(command, "writeConcern", &concern);
    if (w[0] != '\0' && strspn(w, "0123456789") == strlen(w))
        BSON_APPEND_INT32(&concern, "w", (int32_t)strtol(w, NULL, 10));
    else
        BSON_APPEND_UTF8(&concern, "w", w);
    if (c->mongo.journal)
        BSON_APPEND_BOOL(&concern, "j", true);
    BSON_APPEND_INT64(&concern, "wtimeout", c->mongo.write_timeout_ms);
    bson_append_document_end(command, &concern);
}

static bool append_update(const struct write_op *op, bson_t *list)
{
    bson_t member, update;
    bool ok;

    BSON_APPEND_DOCUMENT_BEGIN(list, "0", &member);
    ok = BSON_APPEND_DOCUMENT(&member, "q", op->filter);
    BSON_APPEND_DOCUMENT_BEGIN(&member, "u", &update);
    ok = ok && BSON_APPEND_DOCUMENT(&update, "$setOnInsert", op->document);
    bson_append_document_end(&member, &update);
    BSON_APPEND_BOOL(&member, "upsert", true);
    BSON_APPEND_BOOL(&member, "multi", false);
    bson_append_document_end(list, &member);
    return ok;
}

/* As the server gets it when the record is alone in its batch. */
static void add_command(const struct explain_in *in, const struct write_op *op, struct sheet *out)
{
    bool upsert = op->kind == WRITE_KIND_UPSERT;
    bson_t command = BSON_INITIALIZER, list;
    bool ok;

    BSON_APPEND_UTF8(&command, upsert ? "update" : "insert", in->route->collection);
    BSON_APPEND_ARRAY_BEGIN(&command, upsert ? "updates" : "documents", &list);
    ok = upsert ? append_update(op, &list) : BSON_APPEND_DOCUMENT(&list, "0", op->document);
    bson_append_array_end(&command, &list);
    BSON_APPEND_BOOL(&command, "ordered", false);
    append_concern(in->config, &command);
    BSON_APPEND_UTF8(&command, "$db", in->route->database);
    if (ok)
        sheet_add_bson(out, "command", &command);
    bson_destroy(&command);
}

static void add_write(const struct explain_in *in, const struct write_op *op, struct sheet *out)
{
    const char *how = "insert; E11000 is a duplicate when a look-up by the dedup key finds it";

    if (op->kind == WRITE_KIND_UPSERT)
        how = "updateOne(dedup key, {$setOnInsert: document}, upsert)";
    else if (in->route->write == WRITE_AUTO)
        how = "find by the dedup key, and insert unless it is there; E11000 is a duplicate when a "
              "look-up finds it";
    sheet_add_bson(out, "dedup key", op->filter);
    if (op->effects) {
        explain_effects(in, op, out);
        return;
    }
    sheet_add(out, "write", how, NULL);
    sheet_add_bson(out, "document", op->document);
    add_command(in, op, out);
}

/* --- invalidations --- */

static void add_quoted(struct buf *b, const char *before, const char *text)
{
    buf_add_text(b, before);
    buf_add_char(b, '"');
    buf_add_json(b, text, strlen(text));
    buf_add_char(b, '"');
}

static void add_invalidation(const struct invalidation *one, struct sheet *out)
{
    static const char *const where[INVALIDATION_KINDS] = {
        "\"key\":", "\"key\":", "\"channel\":", "\"stream\":", "\"key\":"};
    char *stamped = invalidation_stamped(one->body, clock_wall_ms());
    const char *body = stamped ? stamped : one->body;
    struct buf text = {0}, json = {0};

    buf_printf(&text, "%s %s", invalidation_command(one->kind), one->name);
    buf_printf(&json, "{\"command\":\"%s\",", invalidation_command(one->kind));
    add_quoted(&json, where[one->kind], one->name);
    if (one->expire_ms > 0) {
        buf_printf(&text, ", which expires after %" PRId64 " ms", one->expire_ms);
        buf_printf(&json, ",\"expire_ms\":%" PRId64, one->expire_ms);
    }
    if (one->maxlen > 0) {
        buf_printf(&text, " MAXLEN ~ %" PRId64 " * " INVALIDATION_FIELD, one->maxlen);
        buf_printf(&json, ",\"maxlen\":%" PRId64, one->maxlen);
    }
    if (body) {
        buf_printf(&text, " %s", body);
        add_quoted(&json, ",\"message\":", body);
    }
    buf_add_char(&json, '}');
    sheet_add_item(out, "invalidation", buf_text(&text), buf_text(&json));
    mem_free(stamped);
    buf_clear(&text);
    buf_clear(&json);
}

struct left_out {
    const struct config_route *route;
    struct sheet *out;
};

static void add_left_out(void *ctx, const struct config_invalidate *rule, const char *source)
{
    const struct left_out *l = ctx;
    const char *mode = config_invalidate_mode_name(rule->mode);
    size_t number = (size_t)(rule - l->route->invalidate) + 1;
    struct buf text = {0}, json = {0};

    buf_printf(&text, "left out by rule %zu of the route (mode %s", number, mode);
    buf_printf(&json, "{\"command\":null,\"left_out\":1,\"rule\":%zu,\"mode\":\"%s\"", number,
               mode);
    if (rule->line > 0) {
        buf_printf(&text, ", line %" PRId64, rule->line);
        buf_printf(&json, ",\"line\":%" PRId64, rule->line);
    }
    if (source != NULL) {
        buf_printf(&text, "): {%s} is missing or not allowed there", source);
        add_quoted(&json, ",\"source\":", source);
    } else {
        buf_add_text(&text, "): the text is empty, or not UTF-8");
    }
    buf_add_char(&json, '}');
    sheet_add_item(l->out, "invalidation", buf_text(&text), buf_text(&json));
    buf_clear(&text);
    buf_clear(&json);
}

static void add_invalidations(const struct explain_in *in, struct record *r, struct sheet *out)
{
    struct invalidation_list list = {0};
    struct left_out left_out = {.route = in->route, .out = out};
    size_t skipped = 0;

    mapping_invalidations(in->mapping, r, true, &list, &skipped);
    for (size_t i = 0; i < list.n; i++)
        add_invalidation(&list.items[i], out);
    if (skipped > 0)
        mapping_left_out(in->mapping, r, true, add_left_out, &left_out);
    invalidation_list_clear(&list);
}

/* --- what is there --- */

struct differences {
    struct sheet *out;
    size_t n;
};

static void add_difference(void *ctx, enum bson_diff_kind kind, const char *path)
{
    static const char *const words[] = {"not stored", "only stored", "another type",
                                        "another value", "another order of its members"};
    struct differences *d = ctx;
    struct buf text = {0};

    if (d->n++ >= DIFFERENCES_MAX)
        return;
    buf_printf(&text, "%s: %s", path, words[kind]);
    sheet_add_item(d->out, "differs", buf_text(&text), NULL);
    buf_clear(&text);
}

enum exit_code explain_refusal(struct sheet *out, const char *name, const struct err *e)
{
    bool unknown = e->kind == ERR_TRANSIENT || e->kind == ERR_AUTH;

    sheet_printf(out, name, "%s: %s", unknown ? "can't tell" : "wrong", e->text);
    return unknown ? exit_of(e) : EXIT_FOUND;
}

/* The payloads' hashes say more than a comparison: set and source_fields don't count. */
static bool is_conflict(const struct explain_in *in, const bson_t *document, const bson_t *stored)
{
    const struct config_dedup *dedup = &in->route->dedup;
    uint8_t own[CANONICAL_HASH_BYTES], its[CANONICAL_HASH_BYTES];

    return dedup->conflict != CONFLICT_OFF && look_hash(document, dedup->conflict_field, own) &&
           look_hash(stored, dedup->conflict_field, its) && memcmp(own, its, sizeof own) != 0;
}

/* What nobody has sent: the number and its text, and what is left to be done. */
static bson_t *without_effects(const struct config_route *r, const bson_t *stored)
{
    const char *number = config_has_sequence(r) ? r->sequence.field : "_effects";
    const char *text =
        config_has_sequence(r) && r->sequence.template[0] ? r->sequence.template_field : "_effects";
    const char *fence = config_has_fence(r) ? r->lock.fence_field : "_effects";
    bson_t *rest = bson_new();

    bson_copy_to_excluding_noinit(stored, rest, "_effects", number, text, fence, NULL);
    return rest;
}

static bool add_verdict(const struct explain_in *in, const bson_t *document, const bson_t *stored,
                        struct sheet *out)
{
    bool dead = in->route->dedup.conflict == CONFLICT_DEAD_LETTER;
    bool equal = bson_diff(document, stored, NULL, NULL) == 0;

    if (is_conflict(in, document, stored))
        sheet_add(out, "stored",
                  dead ? "there, of another payload: a dead letter (conflict), the first one stays"
                       : "there, of another payload: a duplicate and a conflict, the first one "
                         "stays",
                  NULL);
    else
        sheet_add(out, "stored",
                  equal ? "there and equal: a duplicate"
                        : "there and different: a duplicate, the first one stays",
                  NULL);
    return equal;
}

static enum exit_code add_stored(const struct explain_in *in, const struct write_op *op,
                                 struct sheet *out)
{
    struct differences d = {.out = out};
    bson_t *stored = NULL, *sent = NULL;
    struct err e;

    if (!mongo_find(in->mongo, in->route, op->filter, &stored, &e))
        return explain_refusal(out, "stored", &e);
    if (stored != NULL)
        sent = without_effects(in->route, stored);
    if (stored == NULL) {
        sheet_add(out, "stored", "not there: it would be inserted", NULL);
    } else if (!add_verdict(in, op->document, sent, out)) {
        sheet_add_bson(out, "is there", stored);
        (void)bson_diff(op->document, sent, add_difference, &d);
        if (d.n > DIFFERENCES_MAX)
            sheet_printf(out, "differs", "and %zu more", d.n - DIFFERENCES_MAX);
    }
    bool dead = stored != NULL && in->route->dedup.conflict == CONFLICT_DEAD_LETTER &&
                is_conflict(in, op->document, stored);
    enum exit_code code = op->effects ? explain_effects_now(in, op, stored, out) : EXIT_FINE;
    bson_destroy(stored);
    bson_destroy(sent);
    return dead ? EXIT_FOUND : code;
}

static enum exit_code add_way(const struct explain_in *in, struct sheet *out)
{
    enum exit_code code = EXIT_FINE;
    struct buf text = {0};
    enum mongo_way way;
    struct err e;

    if (!mongo_check_way(in->mongo, in->route, &way, &text, &e))
        code = explain_refusal(out, "effects", &e);
    else if (way != MONGO_PLAIN)
        sheet_add(out, "effects", buf_text(&text), NULL);
    buf_clear(&text);
    return code;
}

static enum exit_code add_connected(const struct explain_in *in, const struct write_op *op,
                                    struct sheet *out)
{
    enum exit_code code = add_way(in, out), stored;
    const char *found;
    struct err e;

    if (mongo_check_index(in->mongo, in->route, &found, &e))
        sheet_add(out, "index", found, NULL);
    else
        code = explain_refusal(out, "index", &e);
    stored = config_has_operation(in->route) ? explain_operation_now(in, op, out)
                                             : add_stored(in, op, out);
    return code == EXIT_FINE ? stored : code;
}

/* --- what is wrong --- */

static void add_place(const struct json_place *p, struct sheet *out)
{
    struct buf text = {0}, json = {0};

    json_place_print(p, &text);
    buf_printf(&json, "{\"byte\":%zu", p->byte);
    if (p->line > 0)
        buf_printf(&json, ",\"line\":%zu,\"column\":%zu", p->line, p->column);
    add_quoted(&json, ",\"path\":", buf_text(&p->path));
    if (p->what)
        add_quoted(&json, ",\"what\":", p->what);
    if (p->has_first)
        buf_printf(&json, ",\"first_byte\":%zu", p->first);
    buf_add_char(&json, '}');
    sheet_add(out, "place", buf_text(&text), buf_text(&json));
    buf_clear(&text);
    buf_clear(&json);
}

/* Of the value that the rejection names. One that is missing has none, but what should hold it. */
static void add_value_place(const struct record *r, enum config_format format, struct sheet *out)
{
    struct json_place place;
    struct path path = {0};
    struct err e;

    if (r->rejected.path && !path_init(&path, r->rejected.path, &e))
        return;
    if (format == FORMAT_BSON ? bson_value_find(r->value, &path, &place)
                              : json_value_find(r->value, &path, &place))
        add_place(&place, out);
    else if (r->rejected.reason == REASON_DEDUP_MISSING ||
             r->rejected.reason == REASON_DEDUP_NOT_SCALAR ||
             r->rejected.reason == REASON_TYPE_CONVERSION) {
        place.what = "the last value on the way";
        add_place(&place, out);
    }
    json_place_clear(&place);
    path_clear(&path);
}

/* How many the payload may have. */
static unsigned levels_of(const struct config_route *route)
{
    unsigned levels = JSON_BSON_LEVELS - (route->under[0] != '\0');

    for (const char *c = route->under; *c; c++)
        levels -= *c == '.';
    return levels;
}

/* Text and bytes have no parts. */
static void add_rejection(const struct explain_in *in, const struct record *r, struct sheet *out)
{
    enum config_format format = in->route->format;
    struct json_place place;

    sheet_add(out, "outcome", "dead letter", NULL);
    sheet_add(out, "reason", reason_name(r->rejected.reason), NULL);
    sheet_add(out, "error", r->rejected.text, NULL);
    if (payload_has_fields(format) && r->value.ptr && r->value.len > 0) {
        if (payload_fault_find(r->value, format, &place) ||
            (r->rejected.reason == REASON_TOO_DEEP && format != FORMAT_BSON &&
             json_deep_find(r->value, levels_of(in->route), &place)))
            add_place(&place, out);
        else if (r->rejected.path || r->rejected.reason == REASON_NOT_AN_OBJECT)
            add_value_place(r, format, out);
        json_place_clear(&place);
    }
    sheet_add(out, "meaning", reason_help(r->rejected.reason), NULL);
}

/* --- all of it --- */

enum exit_code explain_rows(const struct explain_in *in, struct record *r, struct sheet *out)
{
    struct write_op op = {0};
    struct buf lane = {0};
    enum exit_code code = EXIT_FINE;

    sheet_printf(out, "route", "%s -> %s.%s", in->route->name, in->route->database,
                 in->route->collection);
    mapping_order(in->mapping, r);
    lane_text(in, r, &lane);
    sheet_add(out, "lane", buf_text(&lane), NULL);
    buf_clear(&lane);
    switch (mapping_build(in->mapping, r, &op)) {
    case MAPPING_WRITE:
        add_write(in, &op, out);
        if (op.lock)
            sheet_add(out, "lock", op.lock, NULL);
        add_invalidations(in, r, out);
        if (in->mongo)
            code = add_connected(in, &op, out);
        break;
    case MAPPING_SKIP:
        sheet_add(out, "outcome", "skipped by a rule of the configuration (tombstone)", NULL);
        break;
    case MAPPING_REJECTED:
        add_rejection(in, r, out);
        code = EXIT_FOUND;
        break;
    }
    write_op_clear(&op);
    return code;
}
