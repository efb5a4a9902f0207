/*
 * What a record moves beside its document: its entity, the counters with their amounts, the group
 * of its number and the text around it; and what can't be.
 */
#include "unit/mapping_fixture.h"

#include "core/effect.h"

#define HEAD                                                                                       \
    "[kafka]\nbrokers = \"b:9092\"\ngroup = \"g\"\n[mongo]\nuri = \"mongodb://h/\"\n[[route]]\n"
#define ROUTE  HEAD "topics = [\"top\"]\ncollection = \"d.c\"\n"
#define DEDUP  "[route.dedup]\nkey = [\"id\"]\n"
#define TYPES  "[route.types]\nid = \"long\"\nwhen = \"date\"\n"
#define COUNT  "[[route.counter]]\ncollection = \"d.users\"\n"
#define NUMBER "[route.sequence]\nfield = \"n\"\n"
#define FOLLOWS                                                                                    \
    ROUTE DEDUP "[route.entity]\nkey = [\"from\", \"to\"]\n[route.operation]\nsource = \"what\"\n" \
                "insert = [\"follow\", \"again\"]\ndelete = [\"unfollow\"]\n"
#define TOMBSTONES                                                                                 \
    ROUTE "tombstone = \"delete\"\n[route.dedup]\nkey = [\"@offset\"]\n"                           \
          "[route.entity]\nkey = [\"@key\"]\nfields = [\"user\"]\n"

struct row {
    const char *toml, *value, *expected;
};

static struct config *config_of(const char *toml)
{
    struct err e = {0};
    struct config *c =
        config_parse(&(struct config_input){.name = "f", .text = slice_text(toml)}, &e);

    if (c == NULL)
        fail_msg("%s\n%s", toml, e.text);
    return c;
}

static void show_moves(const struct effects *f, const struct config_route *route, struct buf *out)
{
    for (size_t i = 0; i < f->n_moves; i++) {
        const struct effect_move *move = &f->moves[i];

        assert_int_equal(move->counter, i);
        buf_printf(out, " count");
        fixture_show(move->filter, false, out);
        for (size_t k = 0; k < route->counters[i].inc.n; k++)
            buf_printf(out, "%+" PRId64, move->by[k]);
    }
}

/* "store FILTER DOCUMENT count{...}+1 group{...} before#3behind"; or "REASON: text" and the path.
 */
static void show(const struct write_op *op, const struct config_route *route, struct buf *out)
{
    static const char *const actions[] = {"store", "insert", "delete"};
    const struct effects *f = op->effects;

    assert_non_null(f);
    assert_true(f->bytes > 0 || f->n_moves == 0);
    buf_printf(out, "%s", actions[f->action]);
    fixture_show(op->filter, false, out);
    if (f->entity != NULL) {
        buf_add_text(out, " entity");
        fixture_show(f->entity, false, out);
    }
    assert_int_equal(f->entity != NULL, f->action != EFFECT_STORE);
    buf_add_char(out, ' ');
    fixture_show(op->document, false, out);
    show_moves(f, route, out);
    if (f->number == NULL)
        return;
    buf_add_text(out, " group");
    fixture_show(f->number->group, false, out);
    if (f->number->before != NULL)
        buf_printf(out, " %s#%d%s", f->number->before, f->number->digits, f->number->behind);
}

static void check_row(const struct row *row)
{
    struct config *c = config_of(row->toml);
    struct mapping *m = fixture_mapping(&c->routes[0]);
    struct record *r = fixture_record("K", row->value, row->value ? strlen(row->value) : 0);
    struct write_op op = {0};
    struct buf out = {0};

    switch (mapping_build(m, r, &op)) {
    case MAPPING_WRITE:
        show(&op, &c->routes[0], &out);
        break;
    case MAPPING_SKIP:
        buf_add_text(&out, "skip");
        break;
    case MAPPING_REJECTED:
        buf_printf(&out, "%s: %s", reason_name(r->rejected.reason), r->rejected.text);
        break;
    }
    if (strcmp(buf_text(&out), row->expected) != 0)
        fail_msg("%s\n%s\n  got      %s\n  expected %s", row->toml,
                 row->value ? row->value : "(null)", buf_text(&out), row->expected);
    write_op_clear(&op);
    buf_clear(&out);
    record_free(r);
    mapping_free(m);
    config_free(c);
}

#define CHECK_ROWS(rows)                                                                           \
    for (size_t i_ = 0; i_ < sizeof(rows) / sizeof(rows)[0]; i_++)                                 \
    check_row(&(rows)[i_])

/* --- counters --- */

static void filters(void **state)
{
    static const struct row rows[] = {
        {ROUTE DEDUP COUNT "filter = {_id = \"user\"}\ninc = {n = 1}", "{\"id\":1,\"user\":\"u\"}",
         "store{\"id\":1} {\"id\":1,\"user\":\"u\"} count{\"_id\":\"u\"}+1"},
        {ROUTE DEDUP COUNT
         "filter = {a = \"user\", b = \"@topic\", c = \"@key\", d = \"@header.h\"}\n"
         "inc = {n = 2, \"o.m\" = -3}",
         "{\"id\":1,\"user\":{\"x\":1}}",
         "effect_value: counter: \"user\" is an object or an array"},
        {ROUTE DEDUP COUNT
         "filter = {a = \"u.id\", b = \"@topic\", c = \"@key\", d = \"@header.h\"}\n"
         "inc = {n = 2, \"o.m\" = -3}",
         "{\"id\":1,\"u\":{\"id\":5.0}}",
         "store{\"id\":1} {\"id\":1,\"u\":{\"id\":f5}} "
         "count{\"a\":5,\"b\":\"top\",\"c\":\"K\",\"d\":\"hv\"}+2-3"},
        /* two counters in one collection, and numbers by their value */
        {ROUTE DEDUP COUNT "filter = {_id = \"a\"}\ninc = {n = 1}\n" COUNT
                           "filter = {_id = \"b\"}\ninc = {m = 1}",
         "{\"id\":1,\"a\":7.0,\"b\":7}",
         "store{\"id\":1} {\"id\":1,\"a\":f7,\"b\":7} count{\"_id\":7}+1 count{\"_id\":7}+1"},
        /* a type of the route's holds for the filter, too */
        {ROUTE DEDUP TYPES COUNT "filter = {_id = \"id\"}\ninc = {n = 1}", "{\"id\":\"12\"}",
         "store{\"id\":12} {\"id\":12} count{\"_id\":12}+1"},
        {ROUTE DEDUP COUNT "filter = {_id = \"user\"}\ninc = {n = 1}", "{\"id\":1}",
         "effect_value: counter: \"user\" is missing"},
        {ROUTE DEDUP COUNT "filter = {_id = \"user\"}\ninc = {n = 1}", "{\"id\":1,\"user\":null}",
         "effect_value: counter: \"user\" is null"},
        {ROUTE DEDUP COUNT "filter = {_id = \"user\"}\ninc = {n = 1}", "{\"id\":1,\"user\":\"\"}",
         "effect_value: counter: \"user\" is empty"},
        {ROUTE DEDUP COUNT "filter = {_id = \"@header.gone\"}\ninc = {n = 1}", "{\"id\":1}",
         "effect_value: counter: \"@header.gone\" is missing"},
    };

    (void)state;
    CHECK_ROWS(rows);
}

static void amounts(void **state)
{
#define AMOUNT ROUTE DEDUP COUNT "filter = {_id = \"@key\"}\ninc = {n = \"v\"}"
#define STORED "store{\"id\":1} {\"id\":1,\"v\":"
#define REFUSED                                                                                    \
    "effect_value: counter: \"v\", the amount of its field \"n\", is missing or no integer of 64 " \
    "bits"
    static const struct row rows[] = {
        {AMOUNT, "{\"id\":1,\"v\":5}", STORED "5} count{\"_id\":\"K\"}+5"},
        {AMOUNT, "{\"id\":1,\"v\":0}", STORED "0} count{\"_id\":\"K\"}+0"},
        {AMOUNT, "{\"id\":1,\"v\":-5}", STORED "-5} count{\"_id\":\"K\"}-5"},
        {AMOUNT, "{\"id\":1,\"v\":9223372036854775807}",
         STORED "9223372036854775807} count{\"_id\":\"K\"}+9223372036854775807"},
        {AMOUNT, "{\"id\":1,\"v\":-9223372036854775807}",
         STORED "-9223372036854775807} count{\"_id\":\"K\"}-9223372036854775807"},
        {AMOUNT, "{\"id\":1,\"v\":-9223372036854775808}", REFUSED}, /* it can't be taken back */
        {AMOUNT, "{\"id\":1,\"v\":3.0}", STORED "f3} count{\"_id\":\"K\"}+3"},
        {AMOUNT, "{\"id\":1,\"v\":3.5}", REFUSED},
        {AMOUNT, "{\"id\":1,\"v\":1e300}", REFUSED},
        {AMOUNT, "{\"id\":1,\"v\":9223372036854775808.0}", REFUSED},
        {AMOUNT, "{\"id\":1,\"v\":\"5\"}", REFUSED},
        {AMOUNT, "{\"id\":1,\"v\":true}", REFUSED},
        {AMOUNT, "{\"id\":1,\"v\":null}", REFUSED},
        {AMOUNT, "{\"id\":1,\"v\":[5]}", REFUSED},
        {AMOUNT, "{\"id\":1,\"v\":{\"x\":5}}", REFUSED},
        {AMOUNT, "{\"id\":1}", REFUSED},
        {ROUTE DEDUP "[route.types]\nv = \"long\"\n" COUNT
                     "filter = {_id = \"@key\"}\ninc = {n = \"v\"}",
         "{\"id\":1,\"v\":\"5\"}", STORED "5} count{\"_id\":\"K\"}+5"},
        {ROUTE DEDUP "[route.types]\nv = \"decimal\"\n" COUNT
                     "filter = {_id = \"@key\"}\ninc = {n = \"v\"}",
         "{\"id\":1,\"v\":\"5.5\"}", REFUSED},
        {ROUTE "format = \"extjson\"\n" DEDUP COUNT "filter = {_id = \"@key\"}\ninc = {n = \"v\"}",
         "{\"id\":1,\"v\":{\"$numberLong\":\"7\"}}",
         "store{\"id\":1} {\"id\":i1,\"v\":7} count{\"_id\":\"K\"}+7"},
        {ROUTE "format = \"extjson\"\n" DEDUP COUNT "filter = {_id = \"@key\"}\ninc = {n = \"v\"}",
         "{\"id\":1,\"v\":{\"$numberInt\":\"7\"}}",
         "store{\"id\":1} {\"id\":i1,\"v\":i7} count{\"_id\":\"K\"}+7"},
        {ROUTE "format = \"extjson\"\n" DEDUP COUNT "filter = {_id = \"@key\"}\ninc = {n = \"v\"}",
         "{\"id\":1,\"v\":{\"$oid\":\"507f1f77bcf86cd799439011\"}}", REFUSED},
    };

    (void)state;
    CHECK_ROWS(rows);
}

/* --- what the steps without transactions write down --- */

#define NO_PLACE(name)                                                                             \
    "unsafe_name: the document has a field \"" name                                                \
    "\" of its own, where effects without transactions write down how far they are (exclude or "   \
    "rename it)"
#define TWO "[[route]]\nname = \"second\"\ntopics = [\"other\"]\ncollection = \"d.c\"\n"

/* Whatever the way of the route is today, and from whichever route of the collection it comes. */
static void reserved_names(void **state)
{
    static const struct row rows[] = {
        {ROUTE DEDUP COUNT "filter = {_id = \"id\"}\ninc = {n = 1}", "{\"id\":1,\"_effects\":{}}",
         NO_PLACE("_effects")},
        {ROUTE "effects = \"transaction\"\n" DEDUP COUNT "filter = {_id = \"id\"}\ninc = {n = 1}",
         "{\"id\":1,\"_effects\":null}", NO_PLACE("_effects")},
        {ROUTE DEDUP COUNT "filter = {_id = \"id\"}\ninc = {n = 1}",
         "{\"id\":1,\"_by\":2,\"a\":{\"_effects\":3}}",
         "store{\"id\":1} {\"id\":1,\"_by\":2,\"a\":{\"_effects\":3}} count{\"_id\":1}+1"},
        {FOLLOWS, "{\"id\":1,\"what\":\"follow\",\"from\":1,\"to\":2,\"_by\":1}", NO_PLACE("_by")},
        {FOLLOWS, "{\"id\":1,\"what\":\"follow\",\"from\":1,\"to\":2,\"_removed_by\":1}",
         NO_PLACE("_removed_by")},
        {ROUTE DEDUP NUMBER TWO DEDUP COUNT "filter = {_id = \"id\"}\ninc = {n = 1}",
         "{\"id\":1,\"_effects\":1}", NO_PLACE("_effects")},
    };

    (void)state;
    CHECK_ROWS(rows);
}

/* --- sequences --- */

static void numbers(void **state)
{
    static const struct row rows[] = {
        {ROUTE DEDUP NUMBER, "{\"id\":1}", "store{\"id\":1} {\"id\":1} group{\"_id\":{}}"},
        {ROUTE DEDUP NUMBER "group = [\"a\"]", "{\"id\":1,\"a\":2.0}",
         "store{\"id\":1} {\"id\":1,\"a\":f2} group{\"_id\":{\"a\":2}}"},
        /* never glued: (1, 23) and (12, 3) are two */
        {ROUTE DEDUP NUMBER "group = [\"a\", \"b\"]", "{\"id\":1,\"a\":\"1\",\"b\":\"23\"}",
         "store{\"id\":1} {\"id\":1,\"a\":\"1\",\"b\":\"23\"} "
         "group{\"_id\":{\"a\":\"1\",\"b\":\"23\"}}"},
        {ROUTE DEDUP NUMBER "group = [\"a\", \"b\"]\ntemplate = \"{a}-{b}-{seq:06}.\"\n"
                            "template_field = \"ref\"",
         "{\"id\":1,\"a\":\"x\",\"b\":7}",
         "store{\"id\":1} {\"id\":1,\"a\":\"x\",\"b\":7} "
         "group{\"_id\":{\"a\":\"x\",\"b\":7}} x-7-#6."},
        {ROUTE DEDUP NUMBER "template = \"{seq}\"\ntemplate_field = \"ref\"", "{\"id\":1}",
         "store{\"id\":1} {\"id\":1} group{\"_id\":{}} #1"},
        {ROUTE DEDUP NUMBER "group = [\"a\", \"b\"]", "{\"id\":1,\"a\":1}",
         "effect_value: sequence.group: \"b\" is missing"},
        {ROUTE DEDUP NUMBER "group = [\"a\"]", "{\"id\":1,\"a\":[1]}",
         "effect_value: sequence.group: \"a\" is an object or an array"},
        {ROUTE DEDUP NUMBER "group = [\"a\"]\ntemplate = \"{a}-{seq}\"\ntemplate_field = \"ref\"",
         "{\"id\":1,\"a\":\"x-y\"}",
         "store{\"id\":1} {\"id\":1,\"a\":\"x-y\"} group{\"_id\":{\"a\":\"x-y\"}} x-y-#1"},
        {ROUTE DEDUP NUMBER "group = [\"a\"]\ntemplate = \"{a}-{seq}\"\ntemplate_field = \"ref\"",
         "{\"id\":1}", "effect_value: sequence.group: \"a\" is missing"},
        {ROUTE DEDUP NUMBER "template = \"{seq}\"\ntemplate_field = \"ref\"",
         "{\"id\":1,\"ref\":null}",
         "unsafe_name: the document has a field \"ref\" of its own, where sequence.template_field "
         "goes (exclude or rename it, or choose another template_field)"},
        {ROUTE DEDUP NUMBER, "{\"id\":1,\"_effects\":1}",
         "store{\"id\":1} {\"id\":1,\"_effects\":1} group{\"_id\":{}}"},
        {ROUTE DEDUP NUMBER, "{\"id\":1,\"n\":3}",
         "unsafe_name: the document has a field \"n\" of its own, where sequence.field goes "
         "(exclude or rename it, or choose another field)"},
    };

    (void)state;
    CHECK_ROWS(rows);
}

/* --- operations --- */

static void operations(void **state)
{
    static const struct row rows[] = {
        {FOLLOWS, "{\"id\":1,\"what\":\"follow\",\"from\":2,\"to\":\"x\"}",
         "insert{\"_id\":1} entity{\"from\":2,\"to\":\"x\"} "
         "{\"id\":1,\"what\":\"follow\",\"from\":2,\"to\":\"x\"}"},
        {FOLLOWS, "{\"id\":1,\"what\":\"again\",\"from\":2,\"to\":\"x\"}",
         "insert{\"_id\":1} entity{\"from\":2,\"to\":\"x\"} "
         "{\"id\":1,\"what\":\"again\",\"from\":2,\"to\":\"x\"}"},
        {FOLLOWS, "{\"id\":1,\"what\":\"unfollow\",\"from\":2,\"to\":\"x\"}",
         "delete{\"_id\":1} entity{\"from\":2,\"to\":\"x\"} {}"},
        {FOLLOWS COUNT "filter = {_id = \"to\"}\ninc = {n = 1}",
         "{\"id\":1,\"what\":\"unfollow\",\"from\":2,\"to\":\"x\"}",
         "delete{\"_id\":1} entity{\"from\":2,\"to\":\"x\"} {} count{\"_id\":\"x\"}+1"},
        {FOLLOWS NUMBER, "{\"id\":1,\"what\":\"unfollow\",\"from\":2,\"to\":\"x\"}",
         "delete{\"_id\":1} entity{\"from\":2,\"to\":\"x\"} {}"},
        {FOLLOWS, "{\"id\":1,\"what\":\"Follow\",\"from\":2,\"to\":\"x\"}",
         "operation_unknown: operation: the value of \"what\" is neither in operation.insert nor "
         "in "
         "operation.delete"},
        {FOLLOWS, "{\"id\":1,\"what\":\"follow\\u0000\",\"from\":2,\"to\":\"x\"}",
         "operation_unknown: operation: the value of \"what\" is neither in operation.insert nor "
         "in "
         "operation.delete"},
        {FOLLOWS, "{\"id\":1,\"what\":7,\"from\":2,\"to\":\"x\"}",
         "operation_unknown: operation: \"what\" is missing, or its value is no text"},
        {FOLLOWS, "{\"id\":1,\"from\":2,\"to\":\"x\"}",
         "operation_unknown: operation: \"what\" is missing, or its value is no text"},
        {FOLLOWS, "{\"id\":1,\"what\":\"unfollow\",\"from\":2}",
         "effect_value: entity: \"to\" is missing"},
        {FOLLOWS, "{\"what\":\"unfollow\",\"from\":2,\"to\":3}",
         "dedup_missing: dedup key: \"id\" is missing"},
        {FOLLOWS, NULL, "skip"},
    };

    (void)state;
    CHECK_ROWS(rows);
}

static void tombstones(void **state)
{
    static const struct row rows[] = {
        {TOMBSTONES, "{\"a\":1}",
         "insert{\"_id\":{\"topic\":\"top\",\"partition\":3,\"offset\":42}} entity{\"user\":\"K\"} "
         "{\"a\":1,\"user\":\"K\"}"},
        {TOMBSTONES, NULL,
         "delete{\"_id\":{\"topic\":\"top\",\"partition\":3,\"offset\":42}} entity{\"user\":\"K\"} "
         "{}"},
        {TOMBSTONES COUNT "filter = {_id = \"@key\"}\ninc = {n = 4}", NULL,
         "delete{\"_id\":{\"topic\":\"top\",\"partition\":3,\"offset\":42}} entity{\"user\":\"K\"} "
         "{} "
         "count{\"_id\":\"K\"}+4"},
    };

    (void)state;
    CHECK_ROWS(rows);
}

/* What is no effect has none; what has one says what it holds. */
static void ids_and_bytes(void **state)
{
    struct config *c = config_of(ROUTE DEDUP);
    struct mapping *m = fixture_mapping(&c->routes[0]);
    struct record *r = fixture_record("K", "{\"id\":1}", 8);
    struct write_op op = {0};
    uint8_t a[EFFECT_ID_BYTES], b[EFFECT_ID_BYTES];
    bson_t *one = BCON_NEW("k", BCON_INT64(1)), *two = BCON_NEW("k", BCON_INT64(2));

    (void)state;
    assert_int_equal(mapping_build(m, r, &op), MAPPING_WRITE);
    assert_null(op.effects);
    write_op_clear(&op);
    effect_id(one, a);
    effect_id(one, b);
    assert_memory_equal(a, b, sizeof a);
    effect_id(two, b);
    assert_memory_not_equal(a, b, sizeof a);
    effects_free(NULL);
    bson_destroy(one);
    bson_destroy(two);
    record_free(r);
    mapping_free(m);
    config_free(c);
}

/* --- what verify doesn't compare --- */

static void without_effects(void **state)
{
    static const struct {
        const char *toml, *document, *rest; /* NULL: nothing is left out */
    } rows[] = {
        {ROUTE DEDUP, "{\"id\":1,\"n\":2,\"_effects\":3}", NULL},
        {ROUTE DEDUP NUMBER "template = \"x{seq}\"\ntemplate_field = \"ref\"",
         "{\"n\":1,\"a\":{\"n\":2},\"ref\":\"x1\",\"_effects\":4,\"_by\":5}",
         "{\"a\":{\"n\":2},\"_effects\":4,\"_by\":5}"},
        {ROUTE DEDUP COUNT "filter = {_id = \"id\"}\ninc = {n = 1}",
         "{\"n\":1,\"_effects\":{},\"_by\":5,\"_removed_by\":6}",
         "{\"n\":1,\"_by\":5,\"_removed_by\":6}"},
        {FOLLOWS, "{\"_effects\":{},\"_by\":5,\"_removed_by\":6,\"id\":1}", "{\"id\":1}"},
        {ROUTE DEDUP "[route.lock]\nkey = \"l{id}\"\nfence = \"d.f\"\nfence_field = \"_f\"\n"
                     "[redis]\nuri = \"redis://h\"\n",
         "{\"id\":1,\"_f\":2,\"_effects\":3}", "{\"id\":1,\"_effects\":3}"},
        {ROUTE DEDUP TWO DEDUP COUNT "filter = {_id = \"id\"}\ninc = {n = 1}",
         "{\"id\":1,\"_effects\":3}", "{\"id\":1}"},
        {ROUTE DEDUP
         "[[route]]\nname = \"second\"\ntopics = [\"other\"]\ncollection = \"d.e\"\n" DEDUP NUMBER,
         "{\"id\":1,\"n\":3}", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct config *c = config_of(rows[i].toml);
        bson_t *document = bson_new_from_json((const uint8_t *)rows[i].document, -1, NULL), rest;

        assert_int_equal(mapping_without_effects(c, &c->routes[0], document, &rest),
                         rows[i].rest != NULL);
        if (rows[i].rest) {
            bson_t *expected = bson_new_from_json((const uint8_t *)rows[i].rest, -1, NULL);

            if (!bson_equal(&rest, expected))
                fail_msg("%zu: %s", i, bson_as_json(&rest, NULL));
            bson_destroy(expected);
            bson_destroy(&rest);
        }
        bson_destroy(document);
        config_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(filters),        cmocka_unit_test(amounts),
        cmocka_unit_test(numbers),        cmocka_unit_test(operations),
        cmocka_unit_test(tombstones),     cmocka_unit_test(ids_and_bytes),
        cmocka_unit_test(reserved_names), cmocka_unit_test(without_effects)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
