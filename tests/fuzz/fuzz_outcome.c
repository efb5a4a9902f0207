/*
 * Hostile answers: any bytes as a reply, and whole conversations of a plan with a server that
 * answers with anything. No crash, an end, and fates that fit together.
 *
 * Byte 0: bit 0 a conversation, else one reply; bit 1 the driver's shape instead of the server's
 * (of a made reply), bits 4 and 5 ordered and insert, bit 6 a message, bit 7 the length is put
 * right.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/look.h"
#include "core/outcome.h"
#include "core/plan.h"

enum { OPS = 24, LANES = 4, KEYS = 12 };

static void must(int cond)
{
    if (!cond)
        abort();
}

/* Bytes of the input, then zeroes. */
struct bytes {
    const uint8_t *at, *end;
};

static uint8_t byte(struct bytes *b)
{
    return b->at < b->end ? *b->at++ : 0;
}

/* Numbers that a reply may hold: small ones most often, and what does not belong there. */
static void append_number(bson_t *to, const char *name, struct bytes *b)
{
    uint8_t kind = byte(b), value = byte(b);

    if (kind < 200)
        BSON_APPEND_INT32(to, name, value % OPS);
    else if (kind < 215)
        BSON_APPEND_INT64(to, name, (int64_t)((uint64_t)value << (value % 60)));
    else if (kind < 225)
        BSON_APPEND_DOUBLE(to, name, value / 4.0 - 7);
    else if (kind < 235)
        BSON_APPEND_INT32(to, name, -(int32_t)value);
    else if (kind < 245)
        BSON_APPEND_UTF8(to, name, "x");
}

static void append_code(bson_t *to, struct bytes *b)
{
    uint8_t value = byte(b);

    if (value < outcome_codes_count)
        BSON_APPEND_INT32(to, "code", outcome_codes[value].code);
    else if (value < 240)
        BSON_APPEND_INT32(to, "code", 424242 + value % 4);
    else
        append_number(to, "code", b);
}

static void append_list(bson_t *to, const char *name, bool errors, size_t n, struct bytes *b)
{
    bson_t list, e;
    char key[16];

    BSON_APPEND_ARRAY_BEGIN(to, name, &list);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(key, sizeof key, "%zu", i);
        if (byte(b) > 250) {
            BSON_APPEND_BOOL(&list, key, true);
            continue;
        }
        BSON_APPEND_DOCUMENT_BEGIN(&list, key, &e);
        append_number(&e, "index", b);
        if (errors) {
            append_code(&e, b);
            if (byte(b) < 128)
                BSON_APPEND_UTF8(&e, "errmsg", "E11000 index: x dup key: {");
        }
        bson_append_document_end(&list, &e);
    }
    bson_append_array_end(to, &list);
}

static void append_concern(bson_t *reply, bool driver, struct bytes *b)
{
    bson_t e;

    if (driver) {
        append_list(reply, "writeConcernErrors", true, byte(b) % 2, b);
        return;
    }
    if (byte(b) > 60)
        return;
    BSON_APPEND_DOCUMENT_BEGIN(reply, "writeConcernError", &e);
    append_code(&e, b);
    bson_append_document_end(reply, &e);
}

/* In the shape of the server or of the driver's bulk; most are sound, some contradict themselves.
 */
static void make_reply(bson_t *reply, bool driver, bool insert, size_t n, struct bytes *b)
{
    size_t errors = byte(b) % 4, upserted = insert ? 0 : byte(b) % 4;
    int32_t done = (int32_t)(n > errors ? n - errors : 0);

    if (byte(b) > 230) { /* refused as a whole */
        BSON_APPEND_DOUBLE(reply, "ok", 0);
        append_code(reply, b);
        BSON_APPEND_UTF8(reply, "errmsg", "no");
    } else if (byte(b) > 220) {
        append_number(reply, "n", b);
    } else if (driver) {
        BSON_APPEND_INT32(reply, "nInserted", insert ? done : 0);
        BSON_APPEND_INT32(reply, "nMatched", insert ? 0 : done - (int32_t)upserted);
        BSON_APPEND_INT32(reply, "nUpserted", (int32_t)upserted);
    } else {
        BSON_APPEND_INT32(reply, "n", done);
        BSON_APPEND_DOUBLE(reply, "ok", 1);
    }
    if (upserted > 0)
        append_list(reply, "upserted", false, upserted, b);
    if (driver || errors > 0)
        append_list(reply, "writeErrors", true, errors, b);
    append_concern(reply, driver, b);
    if (byte(b) > 220) {
        const char *label = byte(b) % 2 ? "RetryableWriteError" : "NoWritesPerformed";
        bson_t labels;
        BSON_APPEND_ARRAY_BEGIN(reply, "errorLabels", &labels);
        BSON_APPEND_UTF8(&labels, "0", label);
        bson_append_array_end(reply, &labels);
    }
}

static struct outcome_call make_call(uint8_t flags, uint8_t code)
{
    return (struct outcome_call){
        .fault = (enum call_fault)(code % (CALL_DRIVER + 1)),
        .ordered = flags & 0x10,
        .is_insert = flags & 0x20,
        .code = code % 3 && code < outcome_codes_count ? outcome_codes[code].code : code * 100,
        .message = flags & 0x40 ? "Document 1 is too large" : NULL,
    };
}

/* ---- one reply ---- */

static void check_one(const struct outcome *o)
{
    must((unsigned)o->fate <= FATE_SPLIT && (unsigned)o->retry < RETRY_CLASSES);
    if (o->fate == FATE_NEVER)
        must(o->reason != REASON_NONE && o->text != NULL);
    if (o->fate == FATE_LOOK)
        must(o->text != NULL);
    if (o->fate == FATE_LATER || o->fate == FATE_UNKNOWN)
        must(o->retry != RETRY_NONE && (o->text != NULL) == (o->doubt == DOUBT_ALONE));
    if (o->doubt != DOUBT_NONE) {
        const struct outcome_code *row = outcome_code_find(o->code);
        must(o->code != 0 && (o->fate == FATE_UNKNOWN || o->fate == FATE_SPLIT));
        must(row == NULL || row->one == FATE_NEVER); /* never what is known to pass */
    }
}

static void check(const struct outcome_call *call, bool each, size_t n, const struct outcome *out)
{
    bool stopped = false;

    for (size_t i = 0; i < n; i++) {
        const struct outcome *o = &out[i];
        check_one(o);
        must((o->fate == FATE_NOT_RUN) == stopped);
        if (o->doubt == DOUBT_ALONE)
            must(n == 1);
        if (!each)
            must(o->fate == FATE_UNKNOWN || o->fate == FATE_SPLIT);
        else
            must(o->fate != FATE_SPLIT);
        if (each && call->ordered && o->fate != FATE_INSERTED && o->fate != FATE_DUPLICATE)
            stopped = true;
    }
}

static void judge_once(const uint8_t *data, size_t size)
{
    struct outcome out[OPS];
    struct outcome_call call = make_call(data[0], data[1]);
    size_t n = 1 + data[2] % (OPS - 1);
    bson_t reply;

    /* Half of the time any bytes, half of the time the length field is put right. */
    uint8_t *copy = mem_array(size - 2, 1);
    memcpy(copy, data + 3, size - 3);
    if (data[0] & 0x80 && size - 3 >= 5) {
        uint32_t len = (uint32_t)(size - 3);
        for (size_t i = 0; i < 4; i++)
            copy[i] = (uint8_t)(len >> (8 * i));
        copy[len - 1] = 0;
    }
    bool have = bson_init_static(&reply, copy, size - 3);
    memset(out, 0, sizeof out);
    check(&call, outcome_judge(&call, have ? &reply : NULL, n, out), n, out);
    for (size_t i = 0; i < n; i++)
        outcome_clear(&out[i]);
    mem_free(copy);

    struct bytes b = {data + 3, data + size};
    bson_t made = BSON_INITIALIZER;
    make_reply(&made, data[0] & 2, call.is_insert, n, &b);
    check(&call, outcome_judge(&call, &made, n, out), n, out);
    for (size_t i = 0; i < n; i++)
        outcome_clear(&out[i]);
    bson_destroy(&made);
}

/* ---- a conversation ---- */

static const char lanes[LANES];

static void make_op(struct write_op *op, struct bytes *b)
{
    uint8_t flags = byte(b), where = byte(b);

    *op = (struct write_op){.kind = flags & 1 ? WRITE_KIND_INSERT : WRITE_KIND_UPSERT,
                            .filter = bson_new(),
                            .document = bson_new(),
                            .alone = (flags & 6) == 6,
                            .lane = flags & 8 ? NULL : &lanes[where % LANES]};
    BSON_APPEND_INT32(op->filter, "k", where % KEYS);
    BSON_APPEND_INT32(op->document, "k", where % KEYS);
    BSON_APPEND_INT32(op->document, "v", flags);
    if (flags & 16)
        BSON_APPEND_BINARY(op->document, "hash", BSON_SUBTYPE_BINARY,
                           (const uint8_t *)"0123456789abcdef", 16);
}

static void answer_look(struct plan *p, const struct plan_command *c, struct bytes *b)
{
    struct outcome_call call = {.fault = CALL_FINE};

    for (size_t i = 0; i < c->n; i++) {
        uint8_t what = byte(b);
        bson_t document = BSON_INITIALIZER;
        if (what & 1) {
            BSON_APPEND_INT32(&document, "k", what & 2 ? what : what % KEYS);
        } else if (what & 4) {
            bson_concat(&document, c->ops[i]->filter);
            if (what & 8)
                BSON_APPEND_BINARY(&document, "hash", BSON_SUBTYPE_BINARY,
                                   (const uint8_t *)"0123456789abcdef", what & 16 ? 16 : 3);
        }
        if (what & 7)
            plan_found(p, &document);
        bson_destroy(&document);
    }
    if (byte(b) > 200)
        call = make_call(0, byte(b));
    plan_looked(p, &call);
}

static void answer_write(struct plan *p, const struct plan_command *c, struct bytes *b)
{
    uint8_t flags = byte(b);
    struct outcome_call call = {.fault = CALL_FINE};
    bson_t reply = BSON_INITIALIZER;

    if (flags > 180)
        call = make_call(flags, byte(b));
    call.ordered = c->ordered;
    call.is_insert = c->kind == PLAN_INSERT;
    if (flags % 8 != 0)
        make_reply(&reply, flags & 2, call.is_insert, c->n, b);
    plan_reply(p, &call, flags % 16 == 8 ? NULL : &reply);
    bson_destroy(&reply);
}

static void converse(const uint8_t *data, size_t size)
{
    struct bytes b = {data + 1, data + size};
    struct plan_limits limits = {.max_ops = 1 + byte(&b) % OPS, .max_bytes = 100 + 20u * byte(&b)};
    struct plan_rules rules = {.look_first = byte(&b) & 1,
                               .conflict = (enum config_conflict)(byte(&b) % 3),
                               .conflict_field = "hash"};
    struct plan *p = plan_new(&limits);
    struct write_op ops[OPS];
    struct plan_command c;
    size_t commands = 0;

    for (int batch = 0; batch < 2; batch++) {
        size_t n = byte(&b) % (OPS + 1);
        for (size_t i = 0; i < n; i++)
            make_op(&ops[i], &b);
        plan_begin(p, ops, n, &rules);
        while (plan_next(p, &c)) {
            must(c.n > 0 && c.n <= n && commands++ < 4000);
            must(c.kind == PLAN_LOOK || c.n <= limits.max_ops);
            for (size_t i = 0; i < c.n; i++)
                must(!c.ops[i]->alone || c.n == 1);
            if (c.kind == PLAN_LOOK)
                answer_look(p, &c, &b);
            else
                answer_write(p, &c, &b);
            if (byte(&b) > 253)
                plan_stop(p, RETRY_TIMEOUT);
        }
        for (size_t i = 0; i < n; i++) {
            const struct outcome *o = &plan_results(p)[i];
            check_one(o);
            must(o->fate == FATE_INSERTED || o->fate == FATE_DUPLICATE || o->fate == FATE_LATER ||
                 o->fate == FATE_UNKNOWN || o->fate == FATE_NEVER);
        }
        plan_begin(p, NULL, 0, NULL); /* nothing of ops is touched any more */
        for (size_t i = 0; i < n; i++) {
            bson_destroy(ops[i].filter);
            bson_destroy(ops[i].document);
        }
    }
    plan_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 3)
        return 0;
    if (data[0] & 1)
        converse(data, size);
    else
        judge_once(data, size);
    return 0;
}
