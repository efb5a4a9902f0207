/*
 * Documents and their effects one after the other, without transactions, on a real server: what is
 * stored, what moves, what is completed, what the server refuses.
 */
#include <inttypes.h>

#include "core/log_doc.h"
#include "io/mongo_lease.h"
#include "io/mongo_log_private.h"
#include "mongo_help.h"

/* ---- a route with effects = "log" ---- */

struct world {
    struct help h;
    struct config_counter counters[2];
    struct config_pair inc[2];
    char counter_name[80], sequence_name[80], ledger_name[80];
    struct config_list group_fields, entity_fields;
    char *group_field[1], *entity_field[1];
};

static char n_field[] = "n", sum_field[] = "sum", none[] = "", no_field[] = "no",
            ref_field[] = "ref", group_name[] = "g", entity_name[] = "pair",
            database[] = "idemsink_test";

static void world_begin(struct world *w)
{
    struct config_route *r = &w->h.route;

    memset(w, 0, sizeof *w);
    help_begin(&w->h, "id");
    w->h.config.effects.attempt_ms = 2000;
    w->h.config.effects.keep = 1000;
    w->h.config.effects.sweep_after_ms = 1;
    r->effects = EFFECTS_LOG;
    (void)snprintf(w->counter_name, sizeof w->counter_name, "%s_n", w->h.collection);
    (void)snprintf(w->sequence_name, sizeof w->sequence_name, "%s_seq", w->h.collection);
    (void)snprintf(w->ledger_name, sizeof w->ledger_name, "%s_led", w->h.collection);
    w->inc[0] = (struct config_pair){n_field, none};
    w->inc[1] = (struct config_pair){sum_field, none};
    for (size_t i = 0; i < 2; i++)
        w->counters[i] = (struct config_counter){.index = (uint32_t)i,
                                                 .collection = w->counter_name,
                                                 .database = database,
                                                 .inc = {&w->inc[i], 1},
                                                 .upsert = true,
                                                 .mirror = none};
    r->counters = w->counters;
    r->n_counters = 2;
    w->group_field[0] = group_name;
    w->entity_field[0] = entity_name;
    r->sequence.field = r->sequence.template_field = none;
}

static void with_sequence(struct world *w, enum config_sequence_mode mode, int64_t start)
{
    w->h.route.n_counters = 0;
    w->h.route.effects = EFFECTS_AUTO;
    w->h.route.sequence = (struct config_sequence){.field = no_field,
                                                   .mode = mode,
                                                   .start = start,
                                                   .collection = w->sequence_name,
                                                   .database = database,
                                                   .template = none,
                                                   .template_field = ref_field,
                                                   .group_fields = {w->group_field, 1}};
}

static void with_operation(struct world *w)
{
    w->h.route.order_by = entity_name;
    w->h.route.operation = (struct config_operation){
        .source = none, .ledger = w->ledger_name, .ledger_database = database};
    w->h.route.entity = (struct config_entity){{w->entity_field, 1}, {w->entity_field, 1}};
}

static void world_connect(struct world *w)
{
    struct err e;

    help_connect(&w->h);
    if (!mongo_decide_ways(w->h.mongo, &e))
        fail_msg("%s", e.text);
    assert_int_equal(mongo_way_of(w->h.mongo, 0), MONGO_STEPWISE);
    if (config_has_operation(&w->h.route)) {
        help_make_index(&w->h, "{'key':{'pair':1},'name':'pair','unique':true}");
        w->h.session = w->h.sink.ops->open(w->h.sink.self);
    } else {
        help_start(&w->h);
    }
}

static void drop(struct world *w, const char *name)
{
    mongoc_collection_t *c = mongoc_client_get_collection(w->h.raw, database, name);

    (void)mongoc_collection_drop(c, NULL);
    mongoc_collection_destroy(c);
}

static void world_end(struct world *w)
{
    drop(w, w->counter_name);
    drop(w, w->sequence_name);
    drop(w, w->ledger_name);
    help_close(&w->h);
}

static int64_t count_in(struct world *w, const char *name, const char *filter)
{
    mongoc_collection_t *c = mongoc_client_get_collection(w->h.raw, database, name);
    bson_t *f = help_bson("%s", filter);
    bson_error_t be;
    int64_t n = mongoc_collection_count_documents(c, f, NULL, NULL, NULL, &be);

    bson_destroy(f);
    mongoc_collection_destroy(c);
    if (n < 0)
        fail_msg("%s", be.message);
    return n;
}

static void put(struct world *w, const char *name, const char *document)
{
    help_command(&w->h, database, help_bson("{'insert':'%s','documents':[%s]}", name, document));
}

static void change(struct world *w, const char *name, const char *filter, const char *update)
{
    help_command(&w->h, database,
                 help_bson("{'update':'%s','updates':[{'q':%s,'u':%s,'multi':true}]}", name, filter,
                           update));
}

/* The counter document of id, as relaxed JSON without what it remembers. */
static void expect_counter(struct world *w, const char *id, const char *field, int64_t value)
{
    mongoc_collection_t *c = mongoc_client_get_collection(w->h.raw, database, w->counter_name);
    bson_t *f = help_bson("{'_id':'%s'}", id);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, f, NULL, NULL);
    const bson_t *found;
    bson_iter_t at;

    assert_true(mongoc_cursor_next(cursor, &found));
    assert_true(bson_iter_init_find(&at, found, field));
    assert_int_equal(bson_iter_type(&at), BSON_TYPE_INT64);
    assert_int_equal(bson_iter_int64(&at), value);
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    bson_destroy(f);
}

/* ---- operations ---- */

static void add_move(struct effects *f, uint32_t counter, const char *id, int64_t by)
{
    struct effect_move *m = &f->moves[f->n_moves++];

    m->counter = counter;
    m->filter = BCON_NEW("_id", BCON_UTF8(id));
    m->by = mem_array(1, sizeof *m->by);
    m->by[0] = by;
}

static struct write_op event(int id, const char *who, const char *to, int64_t by)
{
    struct write_op op = help_upsert(BCON_NEW("id", BCON_INT64(id)),
                                     BCON_NEW("id", BCON_INT64(id), "who", BCON_UTF8(who)));

    op.effects = mem_new(sizeof *op.effects);
    op.effects->moves = mem_array(2, sizeof *op.effects->moves);
    if (who[0])
        add_move(op.effects, 0, who, 1);
    if (to[0])
        add_move(op.effects, 1, to, by);
    return op;
}

static struct write_op numbered(int id, int group)
{
    struct write_op op = event(id, "", "", 0);
    struct effect_number *n = op.effects->number = mem_new(sizeof *n);

    BSON_APPEND_INT64(op.document, "g", group);
    n->group = BCON_NEW("_id", "{", "g", BCON_INT64(group), "}");
    return op;
}

/* Adds the entity, or removes it. */
static struct write_op operation(int id, const char *pair, bool add)
{
    struct write_op op = event(id, "a", "b", 1);

    op.effects->action = add ? EFFECT_INSERT : EFFECT_DELETE;
    op.effects->entity = BCON_NEW("pair", BCON_UTF8(pair));
    bson_destroy(op.filter);
    op.filter = BCON_NEW("_id", BCON_INT64(id));
    if (add)
        BSON_APPEND_UTF8(op.document, "pair", pair);
    else
        bson_reinit(op.document);
    return op;
}

static void clear(struct write_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        effects_free(ops[i].effects);
        ops[i].effects = NULL;
    }
    help_clear(ops, n);
}

static void write_one(struct world *w, struct write_op op, const char *want)
{
    help_write(&w->h, &op, 1, want);
    clear(&op, 1);
}

/* ---- counters ---- */

static void test_counters_move_once(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    struct write_op ops[] = {event(1, "ann", "bob", 5), event(2, "ann", "bob", 7),
                             event(1, "ann", "bob", 5), event(3, "bob", "ann", -2)};
    help_write(&w.h, ops, 4, "IIDI");
    help_write(&w.h, ops, 4, "DDDD");
    expect_counter(&w, "ann", "n", 2);
    expect_counter(&w, "bob", "sum", 12);
    expect_counter(&w, "bob", "n", 1);
    expect_counter(&w, "ann", "sum", -2);
    assert_int_equal(help_count(&w.h, "{'_effects':{'$exists':true}}"), 0);
    assert_int_equal(count_in(&w, w.counter_name, "{'_applied':{'$size':3}}"), 2);
    clear(ops, 4);
    world_end(&w);
}

/* The document is stored as it is, with names that other commands would take for paths. */
static void test_odd_names_are_kept(void **state)
{
    struct world w;
    const bson_t *found;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    struct write_op op = event(1, "ann", "", 0);
    bson_destroy(op.document);
    op.kind = WRITE_KIND_INSERT;
    op.document = help_bson("{'z':1,'id':{'$numberLong':'1'},'a.b':1,'a':{'c.d':2,'$e':3},'$x':4}");
    help_write(&w.h, &op, 1, "I");
    mongoc_cursor_t *cursor =
        mongoc_collection_find_with_opts(w.h.c, &(bson_t)BSON_INITIALIZER, NULL, NULL);
    assert_true(mongoc_cursor_next(cursor, &found));
    bson_t without = BSON_INITIALIZER;
    bson_copy_to_excluding_noinit(found, &without, "_id", NULL);
    assert_true(bson_equal(&without, op.document));
    bson_destroy(&without);
    mongoc_cursor_destroy(cursor);
    clear(&op, 1);
    world_end(&w);
}

static void test_missing_counters(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    w.counters[1].upsert = false;
    world_connect(&w);
    write_one(&w, event(1, "ann", "bob", 5), "I");
    expect_counter(&w, "ann", "n", 1);
    assert_int_equal(count_in(&w, w.counter_name, "{'_id':'bob'}"), 0);
    put(&w, w.counter_name, "{'_id':'bob','of':'others'}");
    write_one(&w, event(2, "ann", "bob", 5), "I");
    expect_counter(&w, "bob", "sum", 5);
    assert_int_equal(count_in(&w, w.counter_name, "{'of':'others','n':{'$exists':false}}"), 1);
    assert_int_equal(mongo_log_seen_of(w.h.mongo, 0).missing, 1);
    world_end(&w);
}

static void test_what_cant_be_counted(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    put(&w, w.counter_name, "{'_id':'ann','n':{'$numberLong':'9223372036854775806'}}");
    put(&w, w.counter_name, "{'_id':'bob','n':1.5},{'_id':'cid','n':'text'}");
    struct write_op ops[] = {event(1, "ann", "", 0), event(2, "ann", "dan", 3),
                             event(3, "bob", "dan", 4), event(4, "cid", "dan", 5),
                             event(5, "dan", "dan", 6)};
    help_write(&w.h, ops, 5, "IIIII");
    help_write(&w.h, ops, 5, "DDDDD");
    expect_counter(&w, "ann", "n", INT64_MAX);
    assert_int_equal(count_in(&w, w.counter_name, "{'n':1.5}"), 1);
    assert_int_equal(count_in(&w, w.counter_name, "{'n':'text'}"), 1);
    expect_counter(&w, "dan", "sum", 18);
    expect_counter(&w, "dan", "n", 1);
    assert_int_equal(help_count(&w.h, "{'_effects.failed':{'$type':'string'}}"), 3);
    assert_int_equal(mongo_log_seen_of(w.h.mongo, 0).failed, 3);
    clear(ops, 5);
    world_end(&w);
}

/* What is open is completed with what stands there, by a redelivery and by a sweep. */
/* "id": {"$binary": ...}: what tells an event's _effects from a payload's. */
static char *own_id(const struct world *w, int64_t id)
{
    bson_t *filter = BCON_NEW("id", BCON_INT64(id)), key = BSON_INITIALIZER;
    struct log_id own;
    bson_t holder = BSON_INITIALIZER;
    size_t len;

    assert_true(canonical_key(filter, filter, &key));
    log_event_id(&w->h.route, &key, &own);
    BSON_APPEND_BINARY(&holder, "id", BSON_SUBTYPE_BINARY, own.bytes, sizeof own.bytes);
    char *json = bson_as_canonical_extended_json(&holder, &len);
    char *inner = mem_text_n(json + 1, len - 2);
    bson_free(json);
    bson_destroy(&holder);
    bson_destroy(&key);
    bson_destroy(filter);
    return inner;
}

/* The third one is not its event's: a payload, say. */
static void test_completion(void **state)
{
    struct world w;
    struct mongo_swept swept;
    struct err e;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    for (int id = 1; id <= 3; id++) {
        char text[500], *own = own_id(&w, id < 3 ? id : 1);

        (void)snprintf(text, sizeof text,
                       "{'id':%d,'_effects':{%s,'at':{'$date':1000},'moves':[{'c':'%s.%s',"
                       "'f':{'_id':'old'},'by':{'n':{'$numberLong':'5'}}}]}}",
                       id, own, database, w.counter_name);
        put(&w, w.h.collection, text);
        mem_free(own);
    }
    write_one(&w, event(1, "new", "", 0), "I");
    expect_counter(&w, "old", "n", 5);
    struct mongo_sweep *s = mongo_sweep_new(w.h.mongo);
    for (int i = 0; i < 2; i++) {
        if (!mongo_log_sweep(s, 0, NULL, NULL, &swept, &e))
            fail_msg("%s", e.text);
        assert_int_equal(swept.completed, i == 0);
        assert_int_equal(swept.left, 0);
    }
    mongo_sweep_free(s);
    expect_counter(&w, "old", "n", 10);
    assert_int_equal(count_in(&w, w.counter_name, "{'_id':'new'}"), 0);
    assert_int_equal(help_count(&w.h, "{'_effects':{'$exists':true}}"), 1);
    world_end(&w);
}

/* As if the process had slept: what it sends is refused by the server's clock, step by step. */
static void test_too_late(void **state)
{
    struct world w;
    bson_error_t be;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    put(&w, w.counter_name, "{'_id':'ann','n':{'$numberLong':'1'}}");
    bson_t *key = help_bson("{'_id':'ann'}");
    struct log_id id = {{1}};
    struct log_change by = {"n", 1};
    struct log_move move = {
        .ns = "x.y", .filter = key, .changes = &by, .n_changes = 1, .ids = &id, .n_ids = 1};
    mongoc_collection_t *c = mongoc_client_get_collection(w.h.raw, database, w.counter_name);
    for (int late = 1; late >= 0; late--) {
        struct log_command command = {.kind = LOG_COUNT,
                                      .keep = 10,
                                      .at_ms = 1,
                                      .until_ms = clock_wall_ms() + (late ? -1000 : 60000)};
        bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, reply;
        bson_iter_t at;

        log_count_filter(&command, &move, &filter);
        log_count_update(&command, &move, &update);
        assert_true(mongoc_collection_update_one(c, &filter, &update, NULL, &reply, &be));
        assert_true(bson_iter_init_find(&at, &reply, "matchedCount"));
        assert_int_equal(bson_iter_as_int64(&at), late ? 0 : 1);
        bson_destroy(&filter);
        bson_destroy(&update);
        bson_destroy(&reply);
    }
    expect_counter(&w, "ann", "n", 2);
    mongoc_collection_destroy(c);
    bson_destroy(key);
    world_end(&w);
}

/* ---- sequences ---- */

static void test_block(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    with_sequence(&w, SEQUENCE_BLOCK, 10);
    world_connect(&w);
    help_make_index(&w.h, "{'key':{'g':1,'no':1},'name':'no','unique':true}");
    struct write_op ops[] = {numbered(1, 1), numbered(2, 2), numbered(3, 1), numbered(1, 1)};
    help_write(&w.h, ops, 4, "IIID");
    help_write(&w.h, ops, 4, "DDDD");
    write_one(&w, numbered(4, 1), "I");
    for (int no = 10; no <= 12; no++) {
        char filter[80];

        (void)snprintf(filter, sizeof filter, "{'g':1,'no':%d,'_effects':{'$exists':false}}", no);
        assert_int_equal(help_count(&w.h, filter), 1);
    }
    assert_int_equal(help_count(&w.h, "{'id':2,'no':{'$type':'long'}}"), 1);
    change(&w, w.sequence_name, "{'_id.g':1}",
           "{'$set':{'n':{'$numberLong':'9223372036854775807'}}}");
    write_one(&w, numbered(5, 1), "N");
    clear(ops, 4);
    world_end(&w);
}

static void test_max_beside_others(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    with_sequence(&w, SEQUENCE_MAX, 1);
    world_connect(&w);
    help_make_index(&w.h, "{'key':{'g':1,'no':1},'name':'no','unique':true,"
                          "'partialFilterExpression':{'no':{'$exists':true}}}");
    write_one(&w, numbered(1, 1), "I");
    /* A shell's number is a double; a text, which sorts above, is none. */
    put(&w, w.h.collection, "{'id':100,'g':1,'no':7.0},{'id':101,'g':1,'no':'99'}");
    struct write_op ops[] = {numbered(2, 1), numbered(3, 1)};
    help_write(&w.h, ops, 2, "II");
    assert_int_equal(help_count(&w.h, "{'id':1,'no':1}"), 1);
    assert_int_equal(help_count(&w.h, "{'id':2,'no':8}"), 1);
    assert_int_equal(help_count(&w.h, "{'id':3,'no':9}"), 1);
    clear(ops, 2);
    world_end(&w);
}

/* ---- operations ---- */

/* With each event a lane of its own nobody waits for what another has begun with the entity. */
static void test_each_event_its_own_lane(void **state)
{
    static char dedup[] = "@dedup";
    struct world w;
    struct err e;

    (void)state;
    world_begin(&w);
    with_operation(&w);
    w.h.route.order_by = dedup;
    w.h.route.dedup.key = w.h.route.dedup.fields;
    help_connect(&w.h);
    assert_false(mongo_decide_ways(w.h.mongo, &e));
    assert_int_equal(e.kind, ERR_CONFIG);
    assert_non_null(strstr(e.text, "order_by"));
    help_close(&w.h);
}

static void test_follow_and_unfollow(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    with_operation(&w);
    world_connect(&w);
    struct write_op ops[] = {operation(1, "x", true), operation(2, "x", true),
                             operation(3, "x", false), operation(4, "x", false),
                             operation(5, "y", true)};
    help_write(&w.h, ops, 5, "IIIII");
    expect_counter(&w, "a", "n", 1);
    assert_int_equal(help_count(&w.h, "{}"), 1);
    assert_int_equal(help_count(&w.h, "{'pair':'y','id':5,'_by':{'$exists':false}}"), 1);
    help_write(&w.h, ops, 5, "DDDDD");
    write_one(&w, operation(6, "x", true), "I");
    expect_counter(&w, "b", "sum", 2);
    assert_int_equal(count_in(&w, w.ledger_name, "{'did':true}"), 4);
    assert_int_equal(count_in(&w, w.ledger_name, "{'did':false}"), 2);
    assert_int_equal(count_in(&w, w.ledger_name, "{'_effects':{'$exists':true}}"), 0);
    clear(ops, 5);
    world_end(&w);
}

/* One identity for a follow and an unfollow: somebody's mistake, and told. */
static void test_conflicts_of_operations(void **state)
{
    static char hash[] = "_payload";
    struct world w;

    (void)state;
    world_begin(&w);
    with_operation(&w);
    w.h.route.dedup.conflict = CONFLICT_COUNT;
    w.h.route.dedup.conflict_field = hash;
    world_connect(&w);
    write_one(&w, operation(1, "x", true), "I");
    struct write_op ops[] = {operation(1, "x", false), operation(1, "x", true)};
    assert_true(help_write(&w.h, ops, 1, "D")[0].conflict);
    assert_false(help_write(&w.h, ops + 1, 1, "D")[0].conflict);
    assert_int_equal(help_count(&w.h, "{'pair':'x'}"), 1);
    clear(ops, 2);
    world_end(&w);
}

/* More of them than a sweep takes at once are not completed, now, or ever (their ids are of other
 * events): that keeps it from no other. */
static void goes_on_behind(bool of_others)
{
    enum { HELD = 600 };
    struct world w;
    struct mongo_swept swept;
    struct err e;

    world_begin(&w);
    with_operation(&w);
    world_connect(&w);
    mongoc_collection_t *ledger = mongoc_client_get_collection(w.h.raw, database, w.ledger_name);
    mongoc_bulk_operation_t *bulk = mongoc_collection_create_bulk_operation_with_opts(ledger, NULL);
    for (int id = 0; id <= HELD; id++) {
        struct write_op op = operation(id, id < HELD ? "held" : "x", true);
        struct log_command c = {.ops = &(const struct write_op *){&op},
                                .n = 1,
                                .at_ms = 1000 + (id == HELD),
                                .until_ms =
                                    id < HELD && !of_others ? clock_wall_ms() + 600000 : 1000,
                                .try_id = 1};
        bson_t document = BSON_INITIALIZER, made = BSON_INITIALIZER;

        log_event_document(&w.h.route, &c, 0, &made);
        if (of_others && id < HELD)
            BSON_APPEND_INT32(&document, "_id", id + 2 * HELD);
        bson_copy_to_excluding_noinit(&made, &document, bson_empty(&document) ? "" : "_id", NULL);
        bson_destroy(&made);
        mongoc_bulk_operation_insert(bulk, &document);
        bson_destroy(&document);
        clear(&op, 1);
    }
    assert_int_not_equal(mongoc_bulk_operation_execute(bulk, NULL, NULL), 0);
    struct mongo_sweep *s = mongo_sweep_new(w.h.mongo);
    if (!mongo_log_sweep(s, 0, NULL, NULL, &swept, &e))
        fail_msg("%s", e.text);
    mongo_sweep_free(s);
    assert_int_equal(swept.completed, 1);
    assert_int_equal(swept.left, of_others ? 0 : HELD);
    assert_int_equal(swept.others, of_others ? HELD : 0);
    assert_false(swept.more);
    assert_int_equal(help_count(&w.h, "{'pair':'x'}"), 1);
    assert_int_equal(help_count(&w.h, "{'pair':'held'}"), 0);
    mongoc_bulk_operation_destroy(bulk);
    mongoc_collection_destroy(ledger);
    world_end(&w);
}

static void test_sweep_goes_on_behind_what_is_left(void **state)
{
    (void)state;
    goes_on_behind(false);
    goes_on_behind(true);
}

/* Another attempt may still be at it: nobody goes on before that is over. */
static void test_one_attempt_at_a_time(void **state)
{
    struct world w;
    struct mongo_swept swept;
    struct err e;

    (void)state;
    world_begin(&w);
    with_operation(&w);
    world_connect(&w);
    struct write_op op = operation(1, "x", true);
    struct log_command c = {.ops = &(const struct write_op *){&op},
                            .n = 1,
                            .at_ms = 1000,
                            .until_ms = clock_wall_ms() + 60000,
                            .try_id = 1};
    bson_t document = BSON_INITIALIZER;
    mongoc_collection_t *ledger = mongoc_client_get_collection(w.h.raw, database, w.ledger_name);
    log_event_document(&w.h.route, &c, 0, &document);
    assert_true(mongoc_collection_insert_one(ledger, &document, NULL, NULL, NULL));
    help_write(&w.h, &op, 1, "L");
    assert_int_equal(help_count(&w.h, "{}"), 0);
    change(&w, w.ledger_name, "{}", "{'$set':{'_effects.until':{'$date':1000}}}");
    struct mongo_sweep *s = mongo_sweep_new(w.h.mongo);
    if (!mongo_log_sweep(s, 0, NULL, NULL, &swept, &e))
        fail_msg("%s", e.text);
    mongo_sweep_free(s);
    assert_int_equal(swept.completed, 1);
    assert_int_equal(help_count(&w.h, "{'pair':'x'}"), 1);
    expect_counter(&w, "a", "n", 1);
    help_write(&w.h, &op, 1, "D");
    bson_destroy(&document);
    mongoc_collection_destroy(ledger);
    clear(&op, 1);
    world_end(&w);
}

/* An entity that is too late is not added, and what others keep unique is no fault of ours. */
static void test_what_add_refuses(void **state)
{
    struct world w;
    bson_error_t be = {0};

    (void)state;
    world_begin(&w);
    with_operation(&w);
    world_connect(&w);
    bson_t *key = help_bson("{'pair':'x'}"), *document = help_bson("{'pair':'x','v':'$$NOW'}");
    struct log_entity entity = {.filter = key, .document = document, .id = {{7}}};
    for (int late = 1; late >= 0; late--) {
        struct log_command c = {.kind = LOG_ADD,
                                .entities = &entity,
                                .n_entities = 1,
                                .until_ms = clock_wall_ms() + (late ? -1000 : 60000)};
        bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER;
        bson_t *opts = BCON_NEW("upsert", BCON_BOOL(true));

        log_entity_filter(&c, 0, &filter);
        log_entity_update(&c, 0, &update);
        assert_int_equal(mongoc_collection_update_one(w.h.c, &filter, &update, opts, NULL, &be),
                         !late);
        assert_int_equal(be.code, late ? 241 : be.code);
        bson_destroy(&filter);
        bson_destroy(&update);
        bson_destroy(opts);
    }
    assert_int_equal(help_count(&w.h, "{'pair':'x','v':'$$NOW'}"), 1);
    help_make_index(&w.h, "{'key':{'who':1},'name':'who','unique':true}");
    put(&w, w.h.collection, "{'pair':'other','who':'a'}");
    struct write_op op = operation(9, "z", true);
    help_write(&w.h, &op, 1, "N");
    assert_int_equal(count_in(&w, w.counter_name, "{}"), 0);
    assert_int_equal(count_in(&w, w.ledger_name, "{'_effects.failed':{'$exists':true}}"), 1);
    clear(&op, 1);
    bson_destroy(key);
    bson_destroy(document);
    world_end(&w);
}

/* ---- bounds ---- */

/* effects.keep ids are kept; the next event has to wait until old ones may go, and is counted once.
 */
static void test_keep(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    w.h.config.effects.keep = 4;
    w.h.config.effects.attempt_ms = 500;
    world_connect(&w);
    for (int id = 0; id < 4; id++)
        write_one(&w, event(id, "hot", "", 0), "I");
    assert_int_equal(mongo_log_seen_of(w.h.mongo, 0).full, 0);
    write_one(&w, event(4, "hot", "", 0), "I");
    assert_int_equal(mongo_log_seen_of(w.h.mongo, 0).full, 1);
    write_one(&w, event(5, "hot", "", 0), "L");
    assert_int_equal(help_count(&w.h, "{'id':5}"), 0);
    int64_t until_ms = clock_mono_ms() + 30000;
    for (const char *got = "L"; got[0] == 'L';) {
        struct write_op op = event(5, "hot", "", 0);
        const struct outcome *o = w.h.sink.ops->write(w.h.session, 0, &op, 1);

        got = o[0].fate == FATE_LATER ? "L" : "I";
        assert_true(clock_mono_ms() < until_ms);
        clear(&op, 1);
    }
    expect_counter(&w, "hot", "n", 6);
    world_end(&w);
}

static int64_t registered(struct world *w, int64_t ms)
{
    char *filter = mem_printf("{'_id':'attempt idemsink_test.%s','ms':{'$numberLong':'%" PRId64
                              "'},'$expr':{'$gt':['$until','$$NOW']}}",
                              w->h.collection, ms);
    int64_t n = count_in(w, MONGO_LEASES, filter);

    mem_free(filter);
    return n;
}

/* Another process: it has registered nothing yet. */
static void write_as_another(struct world *w, int id)
{
    void *session = w->h.session;

    w->h.session = w->h.sink.ops->open(w->h.sink.self);
    write_one(w, event(id, "ann", "", 0), "I");
    w->h.sink.ops->close(w->h.session);
    w->h.session = session;
}

/* Both may mean one document, and an event leaves one id there. */
static void test_counters_of_two_names(void **state)
{
    static char text[] = "email";
    struct config_pair by_email[] = {{text, text}};
    struct world w;
    struct err e;

    (void)state;
    world_begin(&w);
    w.counters[1].filter = (struct config_pairs){by_email, 1};
    help_connect(&w.h);
    assert_false(mongo_decide_ways(w.h.mongo, &e));
    assert_non_null(strstr(e.text, "by different fields"));
    w.counters[1].collection = w.sequence_name;
    assert_true(mongo_decide_ways(w.h.mongo, &e));
    help_start(&w.h);
    world_end(&w);
}

/* The longest attempt of all processes stands there, until all that was begun under it is over. */
static void test_attempts_are_registered(void **state)
{
    struct world w;
    char filter[160];

    (void)state;
    world_begin(&w);
    world_connect(&w);
    (void)snprintf(filter, sizeof filter, "{'_id':'attempt idemsink_test.%s'}", w.h.collection);
    write_as_another(&w, 1);
    assert_int_equal(registered(&w, 2000), 1);
    change(&w, MONGO_LEASES, filter, "[{'$set':{'ms':{'$numberLong':'60000'}}}]");
    write_as_another(&w, 2);
    assert_int_equal(registered(&w, 60000), 1);
    change(&w, MONGO_LEASES, filter, "[{'$set':{'until':{'$subtract':['$$NOW',600000]}}}]");
    write_as_another(&w, 3);
    assert_int_equal(registered(&w, 2000), 1);
    change(&w, MONGO_LEASES, filter, "[{'$set':{'ms':{'$numberLong':'1'}}}]");
    write_as_another(&w, 4);
    assert_int_equal(registered(&w, 2000), 1);
    expect_counter(&w, "ann", "n", 4);
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counters_move_once),
        cmocka_unit_test(test_odd_names_are_kept),
        cmocka_unit_test(test_missing_counters),
        cmocka_unit_test(test_what_cant_be_counted),
        cmocka_unit_test(test_completion),
        cmocka_unit_test(test_too_late),
        cmocka_unit_test(test_block),
        cmocka_unit_test(test_max_beside_others),
        cmocka_unit_test(test_each_event_its_own_lane),
        cmocka_unit_test(test_follow_and_unfollow),
        cmocka_unit_test(test_conflicts_of_operations),
        cmocka_unit_test(test_sweep_goes_on_behind_what_is_left),
        cmocka_unit_test(test_one_attempt_at_a_time),
        cmocka_unit_test(test_what_add_refuses),
        cmocka_unit_test(test_keep),
        cmocka_unit_test(test_attempts_are_registered),
        cmocka_unit_test(test_counters_of_two_names),
    };

    mongoc_init();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    mongoc_cleanup();
    return failed;
}
