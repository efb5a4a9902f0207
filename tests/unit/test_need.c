/* What routes need in MongoDB before they start, from configurations as people write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <bson/bson.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/index_proof.h"
#include "core/need.h"

static struct config *try_parse(const char *route, struct err *e)
{
    struct buf text = {0};
    struct config *c;

    buf_add_text(&text, "[kafka]\nbrokers = 'b'\ngroup = 'g'\n[mongo]\nuri = 'mongodb://h'\n"
                        "[redis]\nuri = 'redis://h'\n[[route]]\ntopics = ['t']\n"
                        "collection = 'd.c'\n");
    buf_add_text(&text, route);
    c = config_parse(&(struct config_input){.name = "test", .text = slice_text(buf_text(&text))},
                     e);
    buf_clear(&text);
    return c;
}

static struct config *parse(const char *route)
{
    struct err e = {0};
    struct config *c = try_parse(route, &e);

    if (c == NULL)
        fail_msg("%s", e.text);
    return c;
}

/* "name d.c(a,b)" with what is special about it behind. */
static void describe(const struct need_index *n, struct buf *out)
{
    buf_printf(out, "%s %s.%s(", n->name[0] ? n->name : "-", n->database, n->collection);
    for (size_t i = 0; i < n->fields.n; i++)
        buf_printf(out, "%s%s", i ? "," : "", n->fields.items[i]);
    buf_printf(out, ")%s", n->unique ? "" : " any");
    if (n->partial)
        buf_printf(out, " if %s", n->partial);
    if (n->expire_s >= 0)
        buf_printf(out, " %llds", (long long)n->expire_s);
    if (n->may_expire)
        buf_printf(out, " may %s", n->may_expire);
    buf_add_char(out, '\n');
}

static void expect(const char *route, bool steps, const char *indexes)
{
    struct config *c = parse(route);
    struct needs needs;
    struct buf got = {0};

    needs_of(&c->routes[0], steps, &needs);
    for (size_t i = 0; i < needs.n_indexes; i++)
        describe(&needs.indexes[i], &got);
    assert_string_equal(buf_text(&got), indexes);
    buf_clear(&got);
    needs_clear(&needs);
    config_free(c);
}

#define KEY        "dedup.key = ['id']\n"
#define COUNT      "[[route.counter]]\ncollection = 'd.u'\nfilter = {_id = 'user'}\ninc = {n = 1}\n"
#define COUNT_ENDS "[[route.counter]]\ncollection = 'd.u'\nfilter = {_id = 'from'}\ninc = {n = 1}\n"
#define OPERATION                                                                                  \
    "[route.operation]\nsource = 'what'\ninsert = ['a']\ndelete = ['b']\nledger_expire = '%s'\n"   \
    "[route.entity]\nkey = ['from', 'to.id']\n"

static void indexes_of_each_effect(void **state)
{
    (void)state;
    expect(KEY, false, "idemsink_dedup d.c(id)\n");
    expect("dedup = {key = ['id'], into = '_id'}\n", false, "- d.c(_id)\n");
    expect(KEY COUNT, false, "idemsink_dedup d.c(id)\n- d.u(_id)\n");
    expect(KEY COUNT, true,
           "idemsink_dedup d.c(id)\n- d.u(_id)\n"
           "idemsink_open d.c(_effects.at) any if _effects.at\n");
    expect(KEY "[[route.counter]]\ncollection = 'd.s'\nfilter = {day = 'day', cat = 'a.c'}\n"
               "inc = {n = 1}\n"
               "[[route.counter]]\ncollection = 'd.s'\nfilter = {cat = 'x', day = 'day'}\n"
               "inc = {m = 1}\n",
           false, "idemsink_dedup d.c(id)\nidemsink_counter_day_cat d.s(day,cat)\n");
}

static void indexes_of_operations(void **state)
{
    char route[512];

    (void)state;
    (void)snprintf(route, sizeof route, KEY OPERATION, "0s");
    expect(route, false, "idemsink_entity d.c(from,to.id)\n- d.c_ledger(_id)\n");
    (void)snprintf(route, sizeof route, KEY OPERATION COUNT_ENDS, "90500ms");
    expect(route, true,
           "idemsink_entity d.c(from,to.id)\n- d.c_ledger(_id) may at\n"
           "idemsink_expire d.c_ledger(at) any 91s\n- d.u(_id)\n"
           "idemsink_open d.c_ledger(_effects.at) any if _effects.at\n");
}

static void indexes_of_sequences(void **state)
{
    (void)state;
    expect(KEY "sequence = {field = 'no'}\n", false,
           "idemsink_dedup d.c(id)\nidemsink_sequence d.c(no) if no\n- d.c_sequences(_id)\n");
    expect(KEY "rename = {'order.cat' = 'kind'}\nunder = 'p'\n"
               "sequence = {field = 'no', group = ['order.cat', 'id'], mode = 'block'}\n",
           true,
           "idemsink_dedup d.c(p.id)\nidemsink_sequence d.c(p.kind,p.id,no) if no\n"
           "- d.c_sequences(_id)\n");
    expect(KEY "sequence = {field = 'no', group = ['cat'], mode = 'max'}\n", true,
           "idemsink_dedup d.c(id)\nidemsink_sequence d.c(cat,no) if no\n");
    /* Each text says its group, or the index does. */
    expect(KEY "sequence = {field = 'no', group = ['cat', 'sub'], template = '{cat}-{seq:04}', "
               "template_field = 'ref'}\n",
           false,
           "idemsink_dedup d.c(id)\nidemsink_sequence d.c(cat,sub,no) if no\n"
           "idemsink_sequence_text d.c(sub,ref) if ref\n- d.c_sequences(_id)\n");
    /* A part that is in the text alone: there is no index on the number. */
    expect(KEY "sequence = {field = 'no', group = ['@header.h'], template = '{@header.h}-{seq}', "
               "template_field = 'ref'}\n",
           false,
           "idemsink_dedup d.c(id)\nidemsink_sequence_text d.c(ref) if ref\n"
           "- d.c_sequences(_id)\n");
}

static void a_fence_is_kept(void **state)
{
    (void)state;
    expect(KEY "lock = {key = '{id}', fence = 'd.f'}\n", false,
           "idemsink_dedup d.c(id)\n- d.f(_id)\n");
}

/* --- where a source is stored --- */

static void stored_paths(void **state)
{
    static const struct {
        const char *route, *source, *path;
    } list[] = {
        {KEY, "a.b", "a.b"},
        {KEY "exclude = ['a']\n", "a.b", NULL},
        {KEY "exclude = ['a.c']\n", "a.b", "a.b"},
        {KEY "include = ['a']\n", "a.b", "a.b"},
        {KEY "include = ['c']\n", "a.b", NULL},
        {KEY "exclude = ['id']\n", "id", "id"}, /* the key is put back */
        {KEY "rename = {a = 'x'}\nunder = 'p'\n", "a.b", "p.x.b"},
        {KEY, "@key", NULL},
        {KEY "source_fields = 's.f'\n", "@key", "s.f.key"},
        {KEY "source_fields = 's'\n", "@header.x", NULL},
        {KEY "set = {h = '@header.x'}\n", "@header.x", "h"},
        {KEY "set = {h = '@header.xy'}\n", "@header.x", NULL},
        {"dedup = {key = ['@key'], into = '_id'}\n", "@key", "_id"},
        {"dedup = {key = ['@key', 'a.b'], into = '_id'}\n", "a.b", "_id.a_b"},
        {"dedup = {key = ['@key'], fields = ['k']}\n", "@key", "k"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct config *c = parse(list[i].route);
        char *path = config_stored_path(&c->routes[0], list[i].source);

        if (list[i].path == NULL)
            assert_null(path);
        else
            assert_string_equal(path, list[i].path);
        mem_free(path);
        config_free(c);
    }
}

static void groups_that_nothing_keeps_apart(void **state)
{
    static const char *const list[][2] = {
        {"group = ['@header.h']", "\"@header.h\" is not in the document, so"},
        {"group = ['@header.h'], template = '{seq}', template_field = 't'",
         "nor in sequence.template"},
        {"group = ['@header.h'], template = '{{@header.h}}{seq}', template_field = 't'",
         "nor in sequence.template"},
        {"group = ['@header.h'], template = '{@header.h}-{seq}', template_field = 't', mode = "
         "'max'",
         "mode = \"max\" reads"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct err e = {0};
        char route[256];

        (void)snprintf(route, sizeof route, KEY "sequence = {field = 'no', %s}\n", list[i][0]);
        struct config *c = try_parse(route, &e);
        assert_null(c);
        if (!strstr(e.text, list[i][1]) || !strstr(e.text, ": route.sequence.group: "))
            fail_msg("%s", e.text);
    }
}

/* --- collections --- */

static void expect_collections(const char *route, bool steps, const char *wanted)
{
    static const char letters[] = "fiurlc"; /* of enum need_action */
    struct config *c = parse(route);
    struct needs needs;
    struct buf got = {0};

    needs_of(&c->routes[0], steps, &needs);
    for (size_t i = 0; i < needs.n_collections; i++) {
        const struct need_collection *n = &needs.collections[i];

        buf_printf(&got, "%s%s:", n->before ? "!" : "", n->collection);
        for (int bit = 0; bit < NEED_ACTIONS; bit++)
            if (n->actions & (1U << bit))
                buf_add_char(&got, letters[bit]);
        buf_add_char(&got, ' ');
    }
    assert_string_equal(buf_text(&got), wanted);
    buf_clear(&got);
    needs_clear(&needs);
    config_free(c);
}

static void collections_and_rights(void **state)
{
    char route[512];

    (void)state;
    expect_collections(KEY, false, "c:fiul ");
    expect_collections("write = 'insert'\ntrust_index = true\n" KEY, false, "c:fi ");
    expect_collections("ensure_index = true\n" KEY, false, "c:fiulc ");
    expect_collections(KEY COUNT, false, "!c:fil !u:fiul ");
    expect_collections(KEY COUNT "upsert = false\n", false, "!c:fil u:ful ");
    expect_collections(KEY COUNT, true, "c:fiul u:fiul idemsink_leases:fiu ");
    expect_collections(KEY "sequence = {field = 'no', mode = 'block'}\n", true,
                       "c:fiul c_sequences:fiul ");
    expect_collections(KEY "sequence = {field = 'no', mode = 'max'}\n", true, "c:fiul ");
    (void)snprintf(route, sizeof route, KEY OPERATION COUNT_ENDS, "0s");
    expect_collections(route, false, "!c:fiurl !c_ledger:fil !u:fiul ");
    expect_collections(route, true, "c:fiurl c_ledger:fiul u:fiul idemsink_leases:fiu ");
    expect_collections(KEY COUNT "upsert = false\n" COUNT, false, "!c:fil !u:fiul ");
}

/* --- order --- */

static void order(void **state)
{
    static const struct {
        const char *route;
        enum need_order entity, group;
    } list[] = {
        {KEY, NEED_ORDER_NONE, NEED_ORDER_NONE},
        {KEY "sequence = {field = 'no', group = ['cat']}\n", NEED_ORDER_NONE, NEED_ORDER_SAID},
        {"order_by = 'cat'\n" KEY "sequence = {field = 'no', group = ['x', 'cat']}\n",
         NEED_ORDER_NONE, NEED_ORDER_PROVED},
        {"order_by = '@partition'\n" KEY "sequence = {field = 'no'}\n", NEED_ORDER_NONE,
         NEED_ORDER_PROVED},
        {"order_by = '@dedup'\n" KEY "sequence = {field = 'no', group = ['cat']}\n",
         NEED_ORDER_NONE, NEED_ORDER_BROKEN},
        {"order_by = '@dedup'\n" KEY "sequence = {field = 'no', group = ['id']}\n", NEED_ORDER_NONE,
         NEED_ORDER_PROVED},
        {"order_by = 'from'\n" KEY "operation = {source = 'w', insert = ['a'], delete = ['b']}\n"
         "entity.key = ['from', 'to']\n",
         NEED_ORDER_PROVED, NEED_ORDER_NONE},
        {"order_by = 'who'\n" KEY "operation = {source = 'w', insert = ['a'], delete = ['b']}\n"
         "entity.key = ['from', 'to']\n",
         NEED_ORDER_SAID, NEED_ORDER_NONE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++) {
        struct config *c = parse(list[i].route);

        assert_int_equal(need_order_of_entity(&c->routes[0]), list[i].entity);
        assert_int_equal(need_order_of_group(&c->routes[0]), list[i].group);
        config_free(c);
    }
}

/* --- their proofs, beyond test_index_proof.c --- */

static struct need_index *need_of(struct needs *needs, enum need_use use)
{
    for (size_t i = 0; i < needs->n_indexes; i++)
        if (needs->indexes[i].use == use)
            return &needs->indexes[i];
    fail_msg("no such need");
    return NULL;
}

/* One index of the server; words: of the error, or NULL. */
static void judge(struct needs *needs, enum need_use use, const char *index, const char *words)
{
    struct index_proof p;
    struct err e = {0};
    bson_t *b = bson_new_from_json((const uint8_t *)index, -1, NULL);

    assert_non_null(b);
    index_proof_begin(&p, need_of(needs, use));
    index_proof_index(&p, b);
    if (index_proof_end(&p, &e) != (words == NULL) || (words && !strstr(e.text, words)))
        fail_msg("%s: %s", index, e.text);
    bson_destroy(b);
}

#define NO(more)        "{\"key\":{\"cat\":1,\"no\":1},\"name\":\"x\"" more "}"
#define ONLY_IF(filter) ",\"unique\":true,\"partialFilterExpression\":" filter

static void proofs_of_partial_ones(void **state)
{
    struct config *c = parse(KEY "sequence = {field = 'no', group = ['cat']}\n" COUNT);
    struct needs needs;

    (void)state;
    needs_of(&c->routes[0], true, &needs);
    judge(&needs, NEED_SEQUENCE, NO(",\"unique\":true"), NULL);
    judge(&needs, NEED_SEQUENCE, NO(",\"unique\":true,\"sparse\":true"), NULL);
    judge(&needs, NEED_SEQUENCE, NO(ONLY_IF("{\"no\":{\"$exists\":true}}")), NULL);
    judge(&needs, NEED_SEQUENCE, NO(ONLY_IF("{\"cat\":{\"$exists\":true}}")), "another filter");
    judge(&needs, NEED_SEQUENCE, NO(ONLY_IF("{\"no\":{\"$gt\":5}}")), "another filter");
    judge(&needs, NEED_SEQUENCE, NO(ONLY_IF("{\"no\":{\"$exists\":true,\"$gt\":5}}")),
          "another filter");
    judge(&needs, NEED_SEQUENCE, NO(ONLY_IF("{\"no\":{\"$exists\":true},\"a\":1}")),
          "another filter");
    judge(&needs, NEED_SEQUENCE, NO(""), "is not unique");
    judge(&needs, NEED_SEQUENCE, "{\"key\":{\"no\":1},\"name\":\"x\",\"unique\":true}",
          "keeps the numbers of a group apart");
    judge(&needs, NEED_OPEN, "{\"key\":{\"_effects.at\":1},\"name\":\"x\"}", NULL);
    judge(&needs, NEED_OPEN, "{\"key\":{\"_effects.at\":\"hashed\"},\"name\":\"x\"}", "is hashed");
    judge(&needs, NEED_COUNTER, "{\"key\":{\"_id\":1},\"name\":\"_id_\"}", NULL);
    /* A TTL on the counters of groups starts them again; one on the users is not ours. */
    judge(&needs, NEED_BY_ID, "{\"key\":{\"t\":1},\"name\":\"x\",\"expireAfterSeconds\":9}",
          "numbers would begin again");
    judge(&needs, NEED_COUNTER, "{\"key\":{\"t\":1},\"name\":\"x\",\"expireAfterSeconds\":9}",
          NULL);
    needs_clear(&needs);
    config_free(c);
}

static void proofs_of_the_ledger(void **state)
{
    char route[512];
    struct needs needs;

    (void)state;
    (void)snprintf(route, sizeof route, KEY OPERATION, "1h");
    struct config *c = parse(route);
    needs_of(&c->routes[0], false, &needs);
    judge(&needs, NEED_BY_ID, "{\"key\":{\"at\":1},\"name\":\"x\",\"expireAfterSeconds\":3600}",
          NULL);
    judge(&needs, NEED_BY_ID, "{\"key\":{\"t\":1},\"name\":\"x\",\"expireAfterSeconds\":3600}",
          "would count again");
    judge(&needs, NEED_EXPIRY, "{\"key\":{\"at\":1},\"name\":\"x\",\"expireAfterSeconds\":3600}",
          NULL);
    judge(&needs, NEED_EXPIRY, "{\"key\":{\"at\":1},\"name\":\"x\",\"expireAfterSeconds\":60}",
          "another time");
    judge(&needs, NEED_EXPIRY, "{\"key\":{\"at\":1},\"name\":\"x\"}", "is no TTL index");
    judge(&needs, NEED_IDENTITY, "{\"key\":{\"t\":1},\"name\":\"x\",\"expireAfterSeconds\":3600}",
          "taken back from no counter");
    needs_clear(&needs);
    config_free(c);
    (void)snprintf(route, sizeof route, KEY OPERATION, "0s");
    c = parse(route);
    needs_of(&c->routes[0], false, &needs);
    judge(&needs, NEED_BY_ID, "{\"key\":{\"at\":1},\"name\":\"x\",\"expireAfterSeconds\":3600}",
          "would count again");
    needs_clear(&needs);
    config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indexes_of_each_effect), cmocka_unit_test(indexes_of_operations),
        cmocka_unit_test(indexes_of_sequences),   cmocka_unit_test(a_fence_is_kept),
        cmocka_unit_test(stored_paths),           cmocka_unit_test(groups_that_nothing_keeps_apart),
        cmocka_unit_test(collections_and_rights), cmocka_unit_test(order),
        cmocka_unit_test(proofs_of_partial_ones), cmocka_unit_test(proofs_of_the_ledger),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
