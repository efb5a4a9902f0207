/* What a route needs, from a route made by hand: without a parser, so that mutants are judged by
 * it. test_need.c has the same from configurations as people write them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <bson/bson.h>
#include <cmocka.h>

#include "base/mem.h"
#include "core/index_proof.h"
#include "core/need.h"

/* Orders: a number per category (in the document) and region (in the text alone), a counter of
 * days; and an entity with a ledger when asked. */
struct made {
    char database[2], collection[2], none[1], by[8], id[3], cat[4], region[7], no[3], ref[4],
        template[32], day[4], ledger[7], under[1];
    char *keys[1], *group[2], *group_fields[1], *entity[1], *exclude[1];
    struct config_pair filter[1], inc[1];
    struct config_counter counter;
    struct config_route r;
};

static void make(struct made *m, bool operation)
{
    *m = (struct made){.database = "d",
                       .collection = "c",
                       .by = "@key",
                       .id = "id",
                       .cat = "cat",
                       .region = "region",
                       .no = "no",
                       .ref = "ref",
                       .template = "{region}-{seq}",
                       .day = "day",
                       .ledger = "ledger"};
    m->keys[0] = m->id;
    m->group[0] = m->cat;
    m->group[1] = m->region;
    m->group_fields[0] = m->cat;
    m->exclude[0] = m->region;
    m->filter[0] = (struct config_pair){m->day, m->day};
    m->inc[0] = (struct config_pair){m->no, m->none};
    m->counter = (struct config_counter){.database = m->database,
                                         .collection = m->day,
                                         .filter = {m->filter, 1},
                                         .inc = {m->inc, 1},
                                         .upsert = true,
                                         .mirror = m->none};
    m->r = (struct config_route){.name = m->collection,
                                 .database = m->database,
                                 .collection = m->collection,
                                 .order_by = m->by,
                                 .under = m->under,
                                 .source_fields = m->none,
                                 .dedup = {.key = {m->keys, 1}, .fields = {m->keys, 1}},
                                 .exclude = {m->exclude, 1},
                                 .counters = &m->counter,
                                 .n_counters = 1};
    m->r.sequence = (struct config_sequence){.field = m->no,
                                             .group = {m->group, 2},
                                             .group_fields = {m->group_fields, 1},
                                             .start = 1,
                                             .collection = m->ref,
                                             .database = m->database,
                                             .template = m->template,
                                             .template_field = m->ref};
    if (!operation)
        return;
    m->entity[0] = m->cat;
    m->r.entity = (struct config_entity){.key = {m->entity, 1}, .fields = {m->entity, 1}};
    m->r.operation = (struct config_operation){.source = m->none,
                                               .ledger = m->ledger,
                                               .ledger_database = m->database,
                                               .ledger_expire_ms = 3600000};
}

static const struct need_index *find(const struct needs *needs, enum need_use use)
{
    for (size_t i = 0; i < needs->n_indexes; i++)
        if (needs->indexes[i].use == use)
            return &needs->indexes[i];
    return NULL;
}

static void counters_and_texts(void **state)
{
    struct made m;
    struct needs needs;
    const struct need_index *n;

    (void)state;
    make(&m, false);
    needs_of(&m.r, false, &needs);
    n = find(&needs, NEED_COUNTER);
    assert_non_null(n);
    assert_true(n->unique);
    assert_string_equal(n->name, "idemsink_counter_day");
    assert_null(find(&needs, NEED_SEQUENCE)); /* the document doesn't have the region */
    n = find(&needs, NEED_SEQUENCE_TEXT);
    assert_int_equal(n->fields.n, 2); /* the text doesn't have the category */
    assert_string_equal(n->fields.items[0], "cat");
    assert_string_equal(n->fields.items[1], "ref");
    needs_clear(&needs);
}

/* upsert = false: by steps it must be one document all the same. */
static void counters_that_are_found(void **state)
{
    struct made m;
    struct needs needs;

    (void)state;
    make(&m, false);
    m.counter.upsert = false;
    needs_of(&m.r, false, &needs);
    assert_non_null(find(&needs, NEED_COUNTER_FOUND));
    assert_null(find(&needs, NEED_COUNTER));
    needs_clear(&needs);
    needs_of(&m.r, true, &needs);
    assert_non_null(find(&needs, NEED_COUNTER));
    assert_null(find(&needs, NEED_COUNTER_FOUND));
    needs_clear(&needs);
}

static void counters_of_two_names(void **state)
{
    static char a[] = "a", b[] = "b", other[] = "other";
    struct config_pair ab[] = {{a, a}, {b, b}}, ba[] = {{b, b}, {a, a}}, two[] = {{a, b}, {b, a}};
    struct config_counter counters[2];
    struct made m;

    (void)state;
    make(&m, false);
    assert_null(need_counter_named_twice(&m.r));
    counters[0] = counters[1] = m.counter;
    counters[0].filter = (struct config_pairs){ab, 2};
    counters[1].filter =
        (struct config_pairs){two, 2}; /* of other sources: two documents, or one */
    m.r.counters = counters;
    m.r.n_counters = 2;
    assert_null(need_counter_named_twice(&m.r));
    counters[1].filter = (struct config_pairs){ba, 2};
    assert_ptr_equal(need_counter_named_twice(&m.r), &counters[1]);
    counters[1].filter = (struct config_pairs){ab, 1};
    assert_ptr_equal(need_counter_named_twice(&m.r), &counters[1]);
    counters[1].collection = other;
    assert_null(need_counter_named_twice(&m.r));
}

static void places(void **state)
{
    struct made m;
    char *path;

    (void)state;
    make(&m, false);
    assert_null(config_stored_path(&m.r, "region"));
    path = config_stored_path(&m.r, "cat");
    assert_string_equal(path, "cat");
    mem_free(path);
}

static void order(void **state)
{
    static char dedup[] = "@dedup", category[] = "cat";
    struct made m;

    (void)state;
    make(&m, true);
    assert_int_equal(need_order_of_entity(&m.r), NEED_ORDER_SAID);
    m.r.order_by = dedup;
    assert_int_equal(need_order_of_entity(&m.r), NEED_ORDER_BROKEN);
    m.r.order_by = category;
    assert_int_equal(need_order_of_entity(&m.r), NEED_ORDER_PROVED);
}

static bool holds(const struct need_index *n, const char *index)
{
    struct index_proof p;
    struct err e;
    bson_t *b = bson_new_from_json((const uint8_t *)index, -1, NULL);

    assert_non_null(b);
    index_proof_begin(&p, n);
    index_proof_index(&p, b);
    bson_destroy(b);
    return index_proof_end(&p, &e);
}

static void proofs(void **state)
{
    struct made m;
    struct needs needs;
    const struct need_index *n;

    (void)state;
    make(&m, true);
    needs_of(&m.r, false, &needs);
    n = find(&needs, NEED_SEQUENCE_TEXT);
    assert_true(holds(n, "{\"key\":{\"cat\":1,\"ref\":1},\"name\":\"x\",\"unique\":true,"
                         "\"partialFilterExpression\":{\"ref\":{\"$exists\":true}}}"));
    assert_false(holds(n, "{\"key\":{\"cat\":1,\"ref\":1},\"name\":\"x\",\"unique\":true,"
                          "\"partialFilterExpression\":{\"ref\":{\"$gt\":\"b\"}}}"));
    n = find(&needs, NEED_EXPIRY);
    assert_true(holds(n, "{\"key\":{\"at\":1},\"name\":\"x\",\"expireAfterSeconds\":3600}"));
    assert_false(holds(n, "{\"key\":{\"at\":1},\"name\":\"x\",\"expireAfterSeconds\":60}"));
    n = find(&needs, NEED_BY_ID);
    assert_string_equal(n->what, "ledger");
    assert_true(holds(n, "{\"key\":{\"at\":1},\"name\":\"x\",\"expireAfterSeconds\":3600}"));
    assert_false(holds(n, "{\"key\":{\"t\":1},\"name\":\"x\",\"expireAfterSeconds\":3600}"));
    needs_clear(&needs);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_and_texts),
        cmocka_unit_test(counters_that_are_found),
        cmocka_unit_test(counters_of_two_names),
        cmocka_unit_test(places),
        cmocka_unit_test(order),
        cmocka_unit_test(proofs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
