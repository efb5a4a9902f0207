/*
 * One command of the server for each of the plan's, however many operations it is for: in a
 * transaction each costs a way there and back, and what is locked by then waits for it.
 */
#include "io/mongo_txn_commands.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "core/look.h"
#include "core/sequence.h"
#include "core/types.h"

/* ---- lists ---- */

/* The elements of an array, one after another. */
struct list {
    bson_t *command;
    bson_t array;
    uint32_t n;
};

static void list_begin(struct list *l, bson_t *command, const char *name)
{
    *l = (struct list){.command = command};
    MUST(bson_append_array_begin(command, name, -1, &l->array));
}

static void element_begin(struct list *l, bson_t *element)
{
    char digits[16];
    const char *key;
    size_t len = bson_uint32_to_string(l->n++, &key, digits, sizeof digits);

    MUST(bson_append_document_begin(&l->array, key, (int)len, element));
}

static void element_end(struct list *l, bson_t *element)
{
    MUST(bson_append_document_end(&l->array, element));
}

static void list_end(struct list *l)
{
    MUST(bson_append_array_end(l->command, &l->array));
}

/* ---- the lock's numbers, counters ---- */

/* Its document holds the number that was given last; only with that one may be written, and whoever
 * wants another meanwhile meets this transaction. */
static void fence_command(const struct config_route *route, const struct txn_command *c,
                          bson_t *out)
{
    struct list l;

    BSON_APPEND_UTF8(out, "update", route->lock.fence);
    list_begin(&l, out, "updates");
    for (size_t i = 0; i < c->n; i++) {
        const struct effects *f = c->ops[i]->effects;
        bson_t update, u, set;

        element_begin(&l, &update);
        BSON_APPEND_DOCUMENT(&update, "q", f->fence);
        BSON_APPEND_DOCUMENT_BEGIN(&update, "u", &u);
        BSON_APPEND_DOCUMENT_BEGIN(&u, "$set", &set);
        BSON_APPEND_INT64(&set, "fence", f->fence_number);
        bson_append_document_end(&u, &set);
        bson_append_document_end(&update, &u);
        BSON_APPEND_BOOL(&update, "upsert", true);
        element_end(&l, &update);
    }
    list_end(&l);
}

/* int64 always: a double would stick at 2^53. */
static void count_command(const struct config_route *route, const struct txn_command *c,
                          bson_t *out)
{
    const struct config_counter *counter = &route->counters[c->counter];
    bool mirror = counter->mirror != NULL && counter->mirror[0] != '\0';
    struct list l;

    BSON_APPEND_UTF8(out, "update", counter->collection);
    list_begin(&l, out, "updates");
    for (size_t i = 0; i < c->n_moves; i++) {
        bson_t update, u, inc;

        element_begin(&l, &update);
        BSON_APPEND_DOCUMENT(&update, "q", c->moves[i].filter);
        BSON_APPEND_DOCUMENT_BEGIN(&update, "u", &u);
        BSON_APPEND_DOCUMENT_BEGIN(&u, "$inc", &inc);
        for (size_t f = 0; f < counter->inc.n; f++)
            BSON_APPEND_INT64(&inc, counter->inc.items[f].name, c->moves[i].by[f]);
        if (mirror)
            BSON_APPEND_INT64(&inc, "_version", 1);
        bson_append_document_end(&u, &inc);
        bson_append_document_end(&update, &u);
        if (counter->upsert)
            BSON_APPEND_BOOL(&update, "upsert", true);
        element_end(&l, &update);
    }
    list_end(&l);
}

/* ---- numbers ---- */

const char mongo_txn_no_number[] =
    "n of the group's counter holds no integer, or what comes next passes 2^63 - 1";

/*
 * {$set: {n: {$toLong: {$cond: [{$in: [{$type: N}, ["int", "long"]]}, {$add: [N, count]},
 * "none"]}}}} where N is "$n", or start - 1 where there is none: a fresh group begins at start.
 * $toLong refuses (241) the text, and what $add has made a double because it passes int64 (it does
 * so silently; measured on 6.0.5). A double is refused though it may be whole: who wrote it counts
 * in doubles.
 */
void mongo_txn_number_update(const struct config_sequence *q, int64_t count, bson_t *out)
{
    bson_t n = BSON_INITIALIZER, sum = BSON_INITIALIZER, type = BSON_INITIALIZER;

    BCON_APPEND(&n, "$cond", "[", "{", "$eq", "[", "{", "$type", BCON_UTF8("$n"), "}",
                BCON_UTF8("missing"), "]", "}", BCON_INT64(q->start - 1), BCON_UTF8("$n"), "]");
    BCON_APPEND(&sum, "$add", "[", BCON_DOCUMENT(&n), BCON_INT64(count), "]");
    BCON_APPEND(&type, "$in", "[", "{", "$type", BCON_DOCUMENT(&n), "}", "[", BCON_UTF8("int"),
                BCON_UTF8("long"), "]", "]");
    BCON_APPEND(out, "update", "[", "{", "$set", "{", "n", "{", "$toLong", "{", "$cond", "[",
                BCON_DOCUMENT(&type), BCON_DOCUMENT(&sum), BCON_UTF8("none"), "]", "}", "}", "}",
                "}", "]");
    bson_destroy(&type);
    bson_destroy(&sum);
    bson_destroy(&n);
}

bool mongo_txn_is_no_number(int code)
{
    enum { TYPE_MISMATCH = 14, CONVERSION_FAILED = 241 };

    return code == CONVERSION_FAILED || code == TYPE_MISMATCH;
}

static void number_command(const struct config_route *route, const struct txn_command *c,
                           bson_t *out)
{
    bson_t fields;

    BSON_APPEND_UTF8(out, "findAndModify", route->sequence.collection);
    BSON_APPEND_DOCUMENT(out, "query", c->group);
    mongo_txn_number_update(&route->sequence, c->count, out);
    BSON_APPEND_BOOL(out, "upsert", true);
    BSON_APPEND_BOOL(out, "new", true);
    BSON_APPEND_DOCUMENT_BEGIN(out, "fields", &fields);
    BSON_APPEND_BOOL(&fields, "n", true);
    bson_append_document_end(out, &fields);
}

bool mongo_txn_number(const bson_t *reply, int64_t *last)
{
    bson_iter_t it, n;

    if (!bson_iter_init(&it, reply) || !bson_iter_find_descendant(&it, "value.n", &n) ||
        !BSON_ITER_HOLDS_INT64(&n))
        return false;
    *last = bson_iter_int64(&n);
    return true;
}

void mongo_txn_highest(const struct config_route *route, const struct txn_command *c,
                       bson_t *filter, bson_t *opts)
{
    const struct config_sequence *q = &route->sequence;
    bson_iter_t id, part;
    bson_t sort, projection, number;

    MUST(bson_iter_init_find(&id, c->group, "_id") && bson_iter_recurse(&id, &part));
    for (size_t i = 0; i < q->group_fields.n && bson_iter_next(&part); i++)
        MUST(bson_append_iter(filter, q->group_fields.items[i], -1, &part));
    /* Numbers alone, of any type; texts and dates sort above them. It implies $exists, which the
     * index is limited to. */
    BSON_APPEND_DOCUMENT_BEGIN(filter, q->field, &number);
    BSON_APPEND_DOUBLE(&number, "$gte", -INFINITY);
    bson_append_document_end(filter, &number);
    BSON_APPEND_DOCUMENT_BEGIN(opts, "sort", &sort);
    BSON_APPEND_INT32(&sort, q->field, -1);
    bson_append_document_end(opts, &sort);
    BSON_APPEND_INT64(opts, "limit", 1);
    BSON_APPEND_BOOL(opts, "singleBatch", true);
    BSON_APPEND_DOCUMENT_BEGIN(opts, "projection", &projection);
    BSON_APPEND_BOOL(&projection, q->field, true);
    BSON_APPEND_BOOL(&projection, "_id", false);
    bson_append_document_end(opts, &projection);
}

bool mongo_txn_highest_of(const struct config_route *route, const bson_t *document,
                          int64_t *highest)
{
    bson_decimal128_t decimal;
    bson_value_t value = {0};
    bson_iter_t it;
    double d;

    if (!bson_iter_init_find(&it, document, route->sequence.field))
        return false;
    if (BSON_ITER_HOLDS_INT32(&it) || BSON_ITER_HOLDS_INT64(&it)) {
        *highest = bson_iter_as_int64(&it);
        return true;
    }
    if (BSON_ITER_HOLDS_DECIMAL128(&it) && bson_iter_decimal128(&it, &decimal)) {
        types_canonical_decimal(&decimal, &value);
        *highest = value.value_type == BSON_TYPE_INT64 ? value.value.v_int64 : 0;
        return value.value_type == BSON_TYPE_INT64;
    }
    if (!BSON_ITER_HOLDS_DOUBLE(&it))
        return false;
    d = floor(bson_iter_double(&it));
    if (!(d >= -0x1p63 && d < 0x1p63))
        return false;
    *highest = (int64_t)d;
    return true;
}

/* ---- the ledger ---- */

static void events_command(const struct config_route *route, const struct txn_command *c,
                           int64_t wall_ms, bson_t *out)
{
    const struct config_dedup *dedup = &route->dedup;
    uint8_t hash[CANONICAL_HASH_BYTES];
    struct list l;

    BSON_APPEND_UTF8(out, "insert", route->operation.ledger);
    list_begin(&l, out, "documents");
    for (size_t i = 0; i < c->n; i++) {
        const struct write_op *op = c->ops[i];
        bool removes = op->effects->action == EFFECT_DELETE;
        bson_t event;

        element_begin(&l, &event);
        MUST(bson_concat(&event, op->filter)); /* {_id: ...} */
        BSON_APPEND_DATE_TIME(&event, "at", wall_ms);
        BSON_APPEND_UTF8(&event, "op", removes ? "delete" : "insert");
        BSON_APPEND_BOOL(&event, "did", c->did[i]);
        if (dedup->conflict != CONFLICT_OFF && look_hash(op->document, dedup->conflict_field, hash))
            MUST(bson_append_binary(&event, dedup->conflict_field, -1, BSON_SUBTYPE_BINARY, hash,
                                    CANONICAL_HASH_BYTES));
        element_end(&l, &event);
    }
    list_end(&l);
}

/* ---- documents ---- */

/* The mapping has seen to it that the payload has no fields of these names. */
static void add_numbered(bson_t *to, const struct config_sequence *q, const struct write_op *op,
                         int64_t number)
{
    const struct effect_number *how = op->effects->number;
    struct buf b = {0};

    MUST(bson_concat(to, op->document));
    BSON_APPEND_INT64(to, q->field, number);
    if (how->before == NULL)
        return;
    buf_add_text(&b, how->before);
    sequence_add_number(&b, number, how->digits);
    buf_add_text(&b, how->behind);
    MUST(bson_append_utf8(to, q->template_field, -1, b.data, (int)b.len));
    buf_clear(&b);
}

static void insert_command(const struct config_route *route, const struct txn_command *c,
                           bson_t *out)
{
    struct list l;

    BSON_APPEND_UTF8(out, "insert", route->collection);
    list_begin(&l, out, "documents");
    for (size_t i = 0; i < c->n; i++) {
        bson_t document;

        element_begin(&l, &document);
        if (c->numbers)
            add_numbered(&document, &route->sequence, c->ops[i], c->numbers[i]);
        else
            MUST(bson_concat(&document, c->ops[i]->document));
        element_end(&l, &document);
    }
    list_end(&l);
}

void mongo_txn_delete(const struct config_route *route, const struct txn_command *c, bson_t *out)
{
    struct list l;

    BSON_APPEND_UTF8(out, "delete", route->collection);
    list_begin(&l, out, "deletes");
    for (size_t i = 0; i < c->n; i++) {
        bson_t one;

        element_begin(&l, &one);
        BSON_APPEND_DOCUMENT(&one, "q", c->ops[i]->effects->entity);
        BSON_APPEND_INT32(&one, "limit", 1);
        element_end(&l, &one);
    }
    list_end(&l);
}

const char *mongo_txn_command(const struct config_route *route, const struct txn_command *c,
                              int64_t wall_ms, bson_t *out)
{
    switch (c->kind) {
    case TXN_FENCE:
        fence_command(route, c, out);
        return route->lock.fence_database;
    case TXN_COUNT:
        count_command(route, c, out);
        return route->counters[c->counter].database;
    case TXN_NUMBER:
        number_command(route, c, out);
        return route->sequence.database;
    case TXN_EVENTS:
        events_command(route, c, wall_ms, out);
        return route->operation.ledger_database;
    case TXN_DELETE:
        mongo_txn_delete(route, c, out);
        return route->database;
    case TXN_INSERT:
    case TXN_REPLACE:
        insert_command(route, c, out);
        return route->database;
    case TXN_LOOK:
    case TXN_BEGIN:
    case TXN_STATE:
    case TXN_CHECK:
    case TXN_COMMIT:
    case TXN_ABORT:
    case TXN_WAIT:
        break;
    }
    MUST(false); /* no command of the server */
    return NULL;
}
