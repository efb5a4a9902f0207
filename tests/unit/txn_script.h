/*
 * txn_script.h - a batch in a few words, and the talk between txn_plan and a server line by line.
 *
 * Operations are separated by "|": the event's key, then
 *   c0a+5  moves document a of counter 0 by 5 (counter 1 has upsert = false)
 *   gx     takes a number of group x          +x -x   adds, removes entity x
 *   lA     is of lane A                       !       has to be alone
 *   hx     its payload's hash is of x         fx      holds fence x
 *   b9     its document has 9 bytes more
 *
 * A line of the script is a command and, behind "->", its answer; without one all is well:
 *   look 1 2 -> found 2h(x) 3op(delete)       begin 2 (keys)      fence x
 *   state x y -> found x      count0 a+5 b-1      number x 3 -> last 7
 *   check0 a b -> found a (a double); a script that leaves it out means that there is none
 *   events 1+ 2-(did nothing)   insert 1 2#7 (number)   delete 1   replace 1#8
 *   commit   abort   wait
 * Answers: found ..., strange (a document whose key's bytes don't tell), last N, none, CODE@I (in
 * writeErrors), CODE (the whole command), CODEt (with TransientTransactionError), CODEu (with
 * UnknownTransactionCommitResult), seq@I text@I (11000 on the index of the sequence's number, of
 * its text), net, document, wc64, n1, and " at 900": it is 900 from now on.
 */
#ifndef IDEMSINK_TESTS_TXN_SCRIPT_H
#define IDEMSINK_TESTS_TXN_SCRIPT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/canonical.h"
#include "core/config.h"
#include "core/txn_plan.h"

enum { SCRIPT_OPS = 64 };
static const char script_lanes[256];

struct script {
    const char *name;
    const char *ops, *lines, *results;
    const char *done;          /* "added removed missing transactions conflicts"; NULL: any */
    size_t max_ops, max_bytes; /* 0: plenty */
    enum config_conflict conflict;
    enum config_sequence_mode mode; /* with groups */
};

static inline int script_int(const char *text)
{
    return (int)strtol(text, NULL, 10);
}

/* --- operations --- */

static inline bson_t *script_key(const char *name, const char *value, size_t len)
{
    bson_t *b = bson_new();

    bson_append_utf8(b, name, -1, value, (int)len);
    return b;
}

static inline void script_move(struct effects *f, const char *word)
{
    f->moves = mem_grow(f->moves, f->n_moves + 1, sizeof *f->moves);
    struct effect_move *m = &f->moves[f->n_moves++];

    *m = (struct effect_move){.counter = (uint32_t)(word[1] - '0'),
                              .filter = script_key("_id", word + 2, 1),
                              .by = mem_array(1, sizeof(int64_t))};
    m->by[0] = strtoll(word + 3, NULL, 10);
}

static inline void script_hash(bson_t *document, char of)
{
    uint8_t hash[CANONICAL_HASH_BYTES] = {(uint8_t)of};

    BSON_APPEND_BINARY(document, "h", BSON_SUBTYPE_BINARY, hash, sizeof hash);
}

static inline void script_word(struct write_op *op, const char *word)
{
    struct effects *f = op->effects;

    switch (*word) {
    case 'c':
        script_move(f, word);
        break;
    case 'g':
        f->number = mem_new(sizeof *f->number);
        f->number->group = script_key("_id", word + 1, 1);
        break;
    case '+':
    case '-':
        f->action = *word == '+' ? EFFECT_INSERT : EFFECT_DELETE;
        f->entity = script_key("e", word + 1, 1);
        break;
    case 'l':
        op->lane = &script_lanes[(unsigned char)word[1]];
        break;
    case '!':
        op->alone = true;
        break;
    case 'h':
        script_hash(op->document, word[1]);
        break;
    case 'f':
        f->fence = script_key("_id", word + 1, 1);
        f->fence_number = 7;
        break;
    case 'b': {
        size_t n = (size_t)strtoul(word + 1, NULL, 10);
        char *fat = mem_new(n + 1);
        memset(fat, 'x', n);
        BSON_APPEND_UTF8(op->document, "fat", fat);
        mem_free(fat);
        break;
    }
    default:
        fail_msg("no such word: %s", word);
    }
}

static inline size_t script_ops(const char *text, struct write_op *ops)
{
    char *copy = mem_text(text), *rest = copy, *one;
    size_t n = 0;

    while ((one = strsep(&rest, "|")) != NULL) {
        const char *key = strsep(&one, " ");
        struct write_op *op = &ops[n++];

        *op = (struct write_op){.kind = WRITE_KIND_INSERT,
                                .filter = script_key("k", key, strlen(key)),
                                .document = bson_new(),
                                .effects = mem_new(sizeof(struct effects))};
        for (const char *word; (word = strsep(&one, " ")) != NULL;)
            script_word(op, word);
    }
    mem_free(copy);
    return n;
}

/* --- commands as text --- */

static inline const char *script_text(const bson_t *b, char out[16])
{
    bson_iter_t at;

    assert_true(bson_iter_init(&at, b) && bson_iter_next(&at));
    (void)snprintf(out, 16, "%s", bson_iter_utf8(&at, NULL));
    return out;
}

static inline void script_show_ops(struct buf *out, const char *name, const struct txn_command *c)
{
    char key[16];

    buf_add_text(out, name);
    for (size_t i = 0; i < c->n; i++) {
        const bson_t *by = c->kind == TXN_FENCE ? c->ops[i]->effects->fence : c->ops[i]->filter;

        buf_printf(out, " %s", script_text(by, key));
        if (c->did)
            buf_add_char(out, c->did[i] ? '+' : '-');
        if (c->numbers)
            buf_printf(out, "#%lld", (long long)c->numbers[i]);
    }
}

static inline void script_show(struct buf *out, const struct txn_command *c)
{
    static const char *const names[] = {"look",    "begin",  "fence",  "state",  "count",
                                        "check",   "number", "events", "insert", "delete",
                                        "replace", "commit", "abort",  "wait"};
    char key[16];

    if (c->kind == TXN_BEGIN) {
        buf_printf(out, "begin %zu", c->n_keys);
        for (size_t i = 1; i < c->n_keys; i++)
            assert_true(c->keys[i - 1] < c->keys[i]);
    } else if (c->kind == TXN_COUNT) {
        buf_printf(out, "count%u", c->counter);
        for (size_t i = 0; i < c->n_moves; i++)
            buf_printf(out, " %s%+lld", script_text(c->moves[i].filter, key),
                       (long long)c->moves[i].by[0]);
    } else if (c->kind == TXN_CHECK) {
        buf_printf(out, "check%u", c->counter);
        for (size_t i = 0; i < c->n; i++)
            buf_printf(out, " %s", script_text(c->ops[i]->filter, key));
    } else if (c->kind == TXN_NUMBER) {
        buf_printf(out, "number %s %lld", script_text(c->group, key), (long long)c->count);
    } else {
        script_show_ops(out, names[c->kind], c);
    }
    if (c->kind == TXN_WAIT)
        assert_in_range(c->wait_ms, 1, 50);
}

/* --- answers --- */

static inline void script_found(struct txn_plan *p, const struct txn_command *c, char *words)
{
    for (char *word; (word = strsep(&words, " ")) != NULL;) {
        size_t len = strcspn(word, "h(o");
        char *hash = strstr(word, "h("), *op = strstr(word, "op(");
        bson_t *b = script_key(c->kind == TXN_STATE   ? "e"
                               : c->kind == TXN_CHECK ? "_id"
                                                      : "k",
                               word, len);

        if (hash)
            script_hash(b, hash[2]);
        if (op)
            BSON_APPEND_UTF8(b, "op", op[3] == 'd' ? "delete" : "insert");
        txn_plan_found(p, b);
        bson_destroy(b);
    }
}

static inline void script_error(bson_t *reply, int code, int index, const char *field)
{
    bson_t list, one, pattern;

    BSON_APPEND_ARRAY_BEGIN(reply, "writeErrors", &list);
    BSON_APPEND_DOCUMENT_BEGIN(&list, "0", &one);
    BSON_APPEND_INT32(&one, "index", index);
    BSON_APPEND_INT32(&one, "code", code);
    BSON_APPEND_DOCUMENT_BEGIN(&one, "keyPattern", &pattern);
    BSON_APPEND_INT32(&pattern, "group", 1);
    BSON_APPEND_INT32(&pattern, field, 1);
    bson_append_document_end(&one, &pattern);
    BSON_APPEND_UTF8(&one, "errmsg", "why");
    bson_append_document_end(&list, &one);
    bson_append_array_end(reply, &list);
}

/* "11000@1", "seq@0", "112t", "91u", "net", ... */
static inline void script_fault(const char *word, struct txn_call *call, bson_t *reply)
{
    const char *at = strchr(word, '@');
    bool seq = strncmp(word, "seq@", 4) == 0, text = strncmp(word, "text@", 5) == 0;
    int code = seq || text ? 11000 : script_int(word);

    if (strcmp(word, "net") == 0 || strcmp(word, "document") == 0) {
        call->call.fault = *word == 'n' ? CALL_NETWORK : CALL_DOCUMENT;
        call->call.message = "broken";
    } else if (strncmp(word, "wc", 2) == 0) {
        bson_t concern;
        BSON_APPEND_DOCUMENT_BEGIN(reply, "writeConcernError", &concern);
        BSON_APPEND_INT32(&concern, "code", script_int(word + 2));
        bson_append_document_end(reply, &concern);
    } else if (at) {
        BSON_APPEND_INT32(reply, "n", script_int(at + 1));
        script_error(reply, code, script_int(at + 1), seq ? "seq" : text ? "ref" : "other");
    } else if (*word == 'n') {
        BSON_APPEND_INT32(reply, "n", script_int(word + 1));
    } else {
        call->call.fault = CALL_SERVER;
        call->call.code = code;
        call->call.message = "why";
    }
    if (word[strlen(word) - 1] == 't' && code)
        call->label = TXN_LABEL_TRANSIENT;
    if (word[strlen(word) - 1] == 'u' && code)
        call->label = TXN_LABEL_UNKNOWN_COMMIT;
}

static inline void script_answer(struct txn_plan *p, const struct txn_command *c, char *answer)
{
    struct txn_call call = {.call = {.fault = CALL_FINE}};
    bson_t reply = BSON_INITIALIZER;
    const char *word = strsep(&answer, " ");
    int32_t n = (int32_t)(c->kind == TXN_COUNT ? c->n_moves : c->n);

    if (strcmp(word, "found") == 0) {
        script_found(p, c, answer);
    } else if (strcmp(word, "strange") == 0) {
        bson_t odd = BSON_INITIALIZER;
        txn_plan_found(p, &odd);
        bson_destroy(&odd);
    } else if (strcmp(word, "last") == 0) {
        txn_plan_number(p, strtoll(answer, NULL, 10));
    } else if (strcmp(word, "ok") == 0) {
        BSON_APPEND_INT32(&reply, "n", n);
        if (c->kind == TXN_NUMBER)
            txn_plan_number(p, c->count);
    } else if (strcmp(word, "none") != 0) {
        script_fault(word, &call, &reply);
    }
    if (!bson_empty(&reply))
        BSON_APPEND_INT32(&reply, "ok", 1);
    txn_plan_answer(p, &call, bson_empty(&reply) ? NULL : &reply);
    bson_destroy(&reply);
}

static inline void script_results(struct buf *out, const struct outcome *o, size_t n)
{
    static const char *const fates[] = {"inserted", "duplicate", "look", "later",
                                        "unknown",  "never",     "-",    "split"};

    for (size_t i = 0; i < n; i++) {
        buf_printf(out, "%s%s", i ? " " : "", fates[o[i].fate]);
        if (o[i].conflict)
            buf_add_text(out, "!");
        if (o[i].fate == FATE_NEVER)
            buf_printf(out, ":%s", reason_name(o[i].reason));
        if (o[i].fate == FATE_LATER || o[i].fate == FATE_UNKNOWN)
            buf_printf(out, ":%s", retry_class_name(o[i].retry));
        if (o[i].doubt == DOUBT_ALONE)
            buf_printf(out, "?%d", o[i].code);
    }
}

/* --- a run --- */

static char script_c[] = "c", script_d[] = "d", script_h[] = "h", script_f[] = "f",
            script_q[] = "q", script_seq[] = "seq", script_ref[] = "ref";
static struct config_pair script_inc = {.name = script_c};
static struct config_counter script_counters[2] = {
    {.collection = script_c, .database = script_d, .inc = {&script_inc, 1}, .upsert = true},
    {.collection = script_c, .database = script_d, .inc = {&script_inc, 1}}};

static inline struct config_route script_route(const struct script *s)
{
    struct config_route r = {
        .database = script_d, .collection = script_c, .counters = script_counters, .n_counters = 2};

    r.dedup.conflict = s->conflict;
    r.dedup.conflict_field = script_h;
    r.lock.fence_database = r.lock.fence = script_f;
    if (strstr(s->ops, " g")) {
        r.sequence = (struct config_sequence){.field = script_seq,
                                              .template_field = script_ref,
                                              .mode = s->mode,
                                              .start = 1,
                                              .collection = script_q,
                                              .database = script_d};
    }
    if (strstr(s->ops, " +") || strstr(s->ops, " -"))
        r.entity.key.n = 1;
    return r;
}

/* Says each command to the script and gives its answer; NULL when all is as written. */
static inline void script_talk(const struct script *s, struct txn_plan *p)
{
    char *copy = mem_text(s->lines), *rest = copy;
    struct txn_command c;
    int64_t now = 0;

    while (txn_plan_next(p, now, &c)) {
        if (c.kind == TXN_CHECK && (!rest || strncmp(rest, "check", 5) != 0)) {
            txn_plan_answer(p, &(struct txn_call){.call = {.fault = CALL_FINE}}, NULL);
            continue;
        }
        struct buf shown = {0};
        char *line = strsep(&rest, "\n");
        char *answer = line ? strstr(line, " -> ") : NULL, *at;
        char ok[] = "ok";

        script_show(&shown, &c);
        if (answer)
            *answer = '\0';
        answer = answer ? answer + 4 : ok;
        at = strstr(answer, " at ");
        if (at) {
            *at = '\0';
            now = script_int(at + 4);
        }
        if (!line || strcmp(line, buf_text(&shown)) != 0)
            fail_msg("%s: expected \"%s\", got \"%s\"", s->name, line ? line : "the end",
                     buf_text(&shown));
        buf_clear(&shown);
        script_answer(p, &c, answer);
    }
    if (rest && *rest)
        fail_msg("%s: it ended before \"%s\"", s->name, rest);
    mem_free(copy);
}

static inline void script_run(const struct script *s)
{
    struct txn_limits limits = {.max_ops = s->max_ops ? s->max_ops : 100,
                                .max_bytes = s->max_bytes ? s->max_bytes : 1 << 20};
    struct config_route route = script_route(s);
    struct txn_rules rules = {.route = &route, .deadline_ms = 1000, .random = 1};
    struct txn_plan *p = txn_plan_new(&limits);
    struct write_op ops[SCRIPT_OPS];
    size_t n = script_ops(s->ops, ops);
    struct buf text = {0};

    txn_plan_begin(p, ops, n, &rules);
    script_talk(s, p);
    script_results(&text, txn_plan_results(p), n);
    if (strcmp(buf_text(&text), s->results) != 0)
        fail_msg("%s: results\n  %s\nexpected\n  %s", s->name, buf_text(&text), s->results);
    if (s->done) {
        struct txn_done d = txn_plan_done(p);

        buf_reset(&text);
        buf_printf(&text, "%d %d %d %d %d", (int)d.added, (int)d.removed, (int)d.moves_missing,
                   (int)d.transactions, (int)d.conflicts);
        if (strcmp(buf_text(&text), s->done) != 0)
            fail_msg("%s: done %s, expected %s", s->name, buf_text(&text), s->done);
    }
    buf_clear(&text);
    txn_plan_free(p);
    for (size_t i = 0; i < n; i++)
        write_op_clear(&ops[i]);
}

static inline void script_run_all(const struct script *scripts, size_t n)
{
    for (size_t i = 0; i < n; i++)
        script_run(&scripts[i]);
}

#define SCRIPT_RUN(scripts) script_run_all((scripts), sizeof(scripts) / sizeof *(scripts))

#endif
