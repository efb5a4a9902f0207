/*
 * Documents and their effects in transactions, on a real replica set: what is moved together, who
 * is refused alone, what becomes of conflicts and of a commit that nobody knows the end of.
 */
#include <pthread.h>

#include "mongo_help.h"

/* ---- a route with effects ---- */

struct world {
    struct help h;
    struct config_counter counters[2];
    struct config_pair inc[2];
    char counter_name[80], sequence_name[80], ledger_name[80];
    struct config_list group_fields;
    char *group_field[1];
};

static char n_field[] = "n", sum_field[] = "sum", none[] = "", no_field[] = "no",
            ref_field[] = "ref", group_name[] = "g", database[] = "idemsink_test";

/* Two counters in one collection: {_id: who} n, and {_id: to} sum. */
static void world_begin(struct world *w)
{
    struct config_route *r = &w->h.route;

    memset(w, 0, sizeof *w);
    help_begin(&w->h, "id");
    r->effects = EFFECTS_TRANSACTION;
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
}

static void with_sequence(struct world *w, enum config_sequence_mode mode, int64_t start)
{
    struct config_sequence *q = &w->h.route.sequence;

    w->h.route.n_counters = 0;
    *q = (struct config_sequence){.field = no_field,
                                  .mode = mode,
                                  .start = start,
                                  .collection = w->sequence_name,
                                  .database = database,
                                  .template = none,
                                  .template_field = ref_field,
                                  .group_fields = {w->group_field, 1}};
}

static void world_connect(struct world *w)
{
    struct err e;

    help_connect(&w->h);
    if (!mongo_decide_ways(w->h.mongo, &e))
        fail_msg("%s", e.text);
    assert_int_equal(mongo_way_of(w->h.mongo, 0), MONGO_ATOMIC);
    help_start(&w->h);
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

/* How many documents of a collection match. */
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

/* A field that must be an int64; INT64_MIN: no such document. */
static int64_t number_in(struct world *w, const char *name, const char *id, const char *field)
{
    mongoc_collection_t *c = mongoc_client_get_collection(w->h.raw, database, name);
    bson_t *f = help_bson("{'_id':%s}", id);
    mongoc_cursor_t *cursor = mongoc_collection_find_with_opts(c, f, NULL, NULL);
    const bson_t *found;
    int64_t n = INT64_MIN;
    bson_iter_t it;

    if (mongoc_cursor_next(cursor, &found)) {
        assert_true(bson_iter_init_find(&it, found, field));
        assert_int_equal(bson_iter_type(&it), BSON_TYPE_INT64);
        n = bson_iter_int64(&it);
    }
    mongoc_cursor_destroy(cursor);
    mongoc_collection_destroy(c);
    bson_destroy(f);
    return n;
}

static void put(struct world *w, const char *name, const char *document)
{
    help_command(&w->h, database, help_bson("{'insert':'%s','documents':[%s]}", name, document));
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

/* An event that counts one for who and by for to. */
static struct write_op event(int id, const char *who, const char *to, int64_t by)
{
    struct write_op op = help_insert(BCON_NEW("id", BCON_INT64(id)),
                                     BCON_NEW("id", BCON_INT64(id), "who", BCON_UTF8(who)));

    op.effects = mem_new(sizeof *op.effects);
    op.effects->moves = mem_array(2, sizeof *op.effects->moves);
    if (who[0])
        add_move(op.effects, 0, who, 1);
    if (to[0])
        add_move(op.effects, 1, to, by);
    return op;
}

static struct write_op numbered(int id, int group, bool text)
{
    struct write_op op = event(id, "", "", 0);
    struct effect_number *n = op.effects->number = mem_new(sizeof *n);
    bson_t parts = BSON_INITIALIZER;

    BSON_APPEND_INT64(op.document, "g", group);
    BSON_APPEND_INT64(&parts, "g", group);
    n->group = bson_new();
    BSON_APPEND_DOCUMENT(n->group, "_id", &parts);
    n->before = text ? mem_text("no-") : NULL;
    n->behind = text ? mem_text("") : NULL;
    n->digits = 3;
    bson_destroy(&parts);
    return op;
}

static struct write_op relation(const char *id, bool insert, const char *a, const char *b)
{
    struct write_op op = event(0, a, b, 1);

    bson_destroy(op.filter);
    op.filter = BCON_NEW("_id", BCON_UTF8(id));
    bson_destroy(op.document);
    op.document =
        insert ? BCON_NEW("a", BCON_UTF8(a), "b", BCON_UTF8(b), "by", BCON_UTF8(id)) : bson_new();
    op.effects->action = insert ? EFFECT_INSERT : EFFECT_DELETE;
    op.effects->entity = BCON_NEW("a", BCON_UTF8(a), "b", BCON_UTF8(b));
    return op;
}

static void clear(struct write_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++)
        write_op_clear(&ops[i]);
}

/* ---- counters ---- */

static void test_counted_once(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    struct write_op ops[] = {event(1, "a", "x", 5), event(2, "a", "y", 7), event(1, "a", "x", 5),
                             event(3, "b", "x", -2)};
    help_write(&w.h, ops, 4, "IIDI");
    help_write(&w.h, ops, 4, "DDDD");
    struct write_op more[] = {event(3, "b", "x", -2), event(4, "a", "x", 1)};
    help_write(&w.h, more, 2, "DI");
    assert_int_equal(number_in(&w, w.counter_name, "'a'", "n"), 3);
    assert_int_equal(number_in(&w, w.counter_name, "'b'", "n"), 1);
    assert_int_equal(number_in(&w, w.counter_name, "'x'", "sum"), 4);
    assert_int_equal(number_in(&w, w.counter_name, "'y'", "sum"), 7);
    assert_int_equal(help_count(&w.h, "{}"), 4);
    clear(ops, 4);
    clear(more, 2);
    world_end(&w);
}

static void test_no_counter_document(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    w.counters[0].upsert = false;
    world_connect(&w);
    put(&w, w.counter_name, "{'_id':'a','n':{'$numberLong':'10'}}");
    struct write_op ops[] = {event(1, "a", "x", 1), event(2, "nobody", "x", 1)};
    help_write(&w.h, ops, 2, "II");
    assert_int_equal(number_in(&w, w.counter_name, "'a'", "n"), 11);
    assert_int_equal(number_in(&w, w.counter_name, "'nobody'", "n"), INT64_MIN);
    assert_int_equal(number_in(&w, w.counter_name, "'x'", "sum"), 2);
    clear(ops, 2);
    world_end(&w);
}

static void test_version_of_a_mirrored_one(void **state)
{
    static char mirror[] = "count:{_id}";
    struct world w;

    (void)state;
    world_begin(&w);
    w.counters[0].mirror = mirror;
    world_connect(&w);
    struct write_op ops[] = {event(1, "a", "", 0), event(2, "a", "", 0)};
    help_write(&w.h, ops, 2, "II");
    struct write_op third = event(3, "a", "", 0);
    help_write(&w.h, &third, 1, "I");
    assert_int_equal(number_in(&w, w.counter_name, "'a'", "n"), 3);
    assert_int_equal(number_in(&w, w.counter_name, "'a'", "_version"), 2);
    clear(ops, 2);
    clear(&third, 1);
    world_end(&w);
}

/* Who moves a counter past int64, or one that is none, is refused alone; nobody else. */
static void test_refused_counters(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    put(&w, w.counter_name,
        "{'_id':'full','sum':{'$numberLong':'9223372036854775806'}},{'_id':'text','sum':'many'}");
    struct write_op ops[] = {event(1, "a", "x", 1), event(2, "a", "full", 1),
                             event(3, "a", "full", 1), event(4, "a", "text", 1),
                             event(5, "a", "x", 1)};
    const struct outcome *r = help_write(&w.h, ops, 5, "IINNI");
    assert_int_equal(r[2].reason, REASON_REJECTED);
    assert_non_null(strstr(r[2].text, w.counter_name));
    assert_int_equal(r[3].reason, REASON_REJECTED);
    assert_int_equal(number_in(&w, w.counter_name, "'full'", "sum"), INT64_MAX);
    assert_int_equal(number_in(&w, w.counter_name, "'a'", "n"), 3);
    assert_int_equal(number_in(&w, w.counter_name, "'x'", "sum"), 2);
    assert_int_equal(help_count(&w.h, "{}"), 3);
    clear(ops, 5);
    world_end(&w);
}

/* ---- documents that are refused ---- */

static void test_refused_documents(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    help_make_index(&w.h, "{'key':{'who':1},'name':'one_each','unique':true}");
    struct write_op ops[] = {event(1, "a", "x", 1), event(2, "b", "x", 1), event(3, "a", "x", 1),
                             event(4, "c", "x", 1), event(5, "b", "x", 1), event(6, "d", "x", 1)};
    const struct outcome *r = help_write(&w.h, ops, 6, "IININI");
    assert_int_equal(r[2].reason, REASON_UNIQUE_CONFLICT);
    assert_non_null(strstr(r[2].text, "one_each"));
    assert_int_equal(number_in(&w, w.counter_name, "'x'", "sum"), 4);
    assert_int_equal(number_in(&w, w.counter_name, "'a'", "n"), 1);
    help_write(&w.h, ops, 6, "DDNDND");
    assert_int_equal(number_in(&w, w.counter_name, "'x'", "sum"), 4);
    clear(ops, 6);
    world_end(&w);
}

static void test_validator(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    help_command(&w.h, database,
                 help_bson("{'collMod':'%s','validator':{'who':{'$ne':'bad'}}}", w.h.collection));
    struct write_op ops[] = {event(1, "a", "x", 1), event(2, "bad", "x", 1), event(3, "c", "x", 1)};
    const struct outcome *r = help_write(&w.h, ops, 3, "INI");
    assert_int_equal(r[1].reason, REASON_VALIDATION);
    assert_int_equal(number_in(&w, w.counter_name, "'x'", "sum"), 2);
    assert_int_equal(number_in(&w, w.counter_name, "'bad'", "n"), INT64_MIN);
    clear(ops, 3);
    world_end(&w);
}

/* 40 MiB: more than a transaction is given at once, and one document that nothing takes. */
static void test_large(void **state)
{
    enum { N = 40, BYTES = 1 << 20 };
    struct world w;
    struct write_op ops[N];
    char *fat = mem_new(17 << 20);

    (void)state;
    world_begin(&w);
    world_connect(&w);
    memset(fat, 'f', (17 << 20) - 1);
    for (int i = 0; i < N; i++) {
        ops[i] = event(i, "a", "x", 1);
        MUST(bson_append_utf8(ops[i].document, "fat", -1, fat, i == 7 ? 16777200 : BYTES));
    }
    const struct outcome *r = w.h.sink.ops->write(w.h.session, 0, ops, N);
    for (int i = 0; i < N; i++)
        if (r[i].fate != (i == 7 ? FATE_NEVER : FATE_INSERTED))
            fail_msg("%d: fate %d, code %d, %s", i, r[i].fate, r[i].code, r[i].text);
    assert_int_equal(r[7].reason, REASON_TOO_LARGE);
    assert_int_equal(number_in(&w, w.counter_name, "'x'", "sum"), N - 1);
    clear(ops, N);
    mem_free(fat);
    world_end(&w);
}

/* ---- sequences ---- */

static int64_t highest(struct world *w, int group)
{
    bson_t *filter = help_bson("{'g':%d}", group);
    bson_t *opts = help_bson("{'sort':{'no':-1},'limit':1}");
    mongoc_cursor_t *c = mongoc_collection_find_with_opts(w->h.c, filter, opts, NULL);
    const bson_t *found;
    bson_iter_t it;
    int64_t n = -1;

    if (mongoc_cursor_next(c, &found)) {
        assert_true(bson_iter_init_find(&it, found, "no"));
        assert_int_equal(bson_iter_type(&it), BSON_TYPE_INT64);
        n = bson_iter_int64(&it);
    }
    mongoc_cursor_destroy(c);
    bson_destroy(filter);
    bson_destroy(opts);
    return n;
}

static void test_gapless(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    with_sequence(&w, SEQUENCE_GAPLESS, 100);
    world_connect(&w);
    struct write_op ops[] = {numbered(1, 1, true), numbered(2, 2, true), numbered(1, 1, true),
                             numbered(3, 1, true)};
    help_write(&w.h, ops, 4, "IIDI");
    help_write(&w.h, ops, 4, "DDDD");
    assert_int_equal(help_count(&w.h, "{'id':1,'no':100,'ref':'no-100'}"), 1);
    assert_int_equal(help_count(&w.h, "{'id':3,'no':101,'ref':'no-101'}"), 1);
    assert_int_equal(help_count(&w.h, "{'id':2,'no':100,'ref':'no-100'}"), 1);
    assert_int_equal(number_in(&w, w.sequence_name, "{'g':{'$numberLong':'1'}}", "n"), 101);
    struct write_op more[] = {numbered(3, 1, true), numbered(4, 1, true)};
    help_write(&w.h, more, 2, "DI");
    assert_int_equal(highest(&w, 1), 102);
    clear(ops, 4);
    clear(more, 2);
    world_end(&w);
}

static void test_numbers_at_the_end(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    with_sequence(&w, SEQUENCE_GAPLESS, 1);
    world_connect(&w);
    put(&w, w.sequence_name,
        "{'_id':{'g':{'$numberLong':'1'}},'n':{'$numberLong':'9223372036854775806'}},"
        "{'_id':{'g':{'$numberLong':'2'}},'n':'seven'}");
    struct write_op ops[] = {numbered(1, 1, false), numbered(2, 1, false), numbered(3, 2, false),
                             numbered(4, 3, false)};
    const struct outcome *r = help_write(&w.h, ops, 4, "INNI");
    assert_non_null(strstr(r[1].text, w.sequence_name));
    assert_int_equal(highest(&w, 1), INT64_MAX);
    assert_int_equal(highest(&w, 3), 1);
    clear(ops, 4);
    world_end(&w);
}

static void test_max(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    with_sequence(&w, SEQUENCE_MAX, 10);
    world_connect(&w);
    help_make_index(&w.h, "{'key':{'g':1,'no':1},'name':'numbers','unique':true,"
                          "'partialFilterExpression':{'no':{'$exists':true}}}");
    put(&w, w.h.collection, "{'id':'other','g':1,'no':41},{'id':'text','g':1,'no':'99'}");
    struct write_op ops[] = {numbered(1, 1, true), numbered(2, 1, true), numbered(3, 2, true)};
    help_write(&w.h, ops, 3, "III");
    assert_int_equal(help_count(&w.h, "{'id':1,'g':1,'no':42,'ref':'no-042'}"), 1);
    assert_int_equal(help_count(&w.h, "{'id':2,'g':1,'no':43}"), 1);
    assert_int_equal(help_count(&w.h, "{'id':3,'g':2,'no':10}"), 1);
    assert_int_equal(count_in(&w, w.sequence_name, "{}"), 0);
    clear(ops, 3);
    world_end(&w);
}

/* ---- operations ---- */

static void test_relations(void **state)
{
    static char a[] = "a", b[] = "b", *entity_fields[] = {a, b};
    struct world w;

    (void)state;
    world_begin(&w);
    w.h.route.operation.ledger = w.ledger_name;
    w.h.route.operation.ledger_database = database;
    w.h.route.entity.key = w.h.route.entity.fields = (struct config_list){entity_fields, 2};
    world_connect(&w);

    struct write_op follow[] = {relation("e1", true, "u", "v"), relation("e2", true, "u", "w")};
    help_write(&w.h, follow, 2, "II");
    struct write_op unfollow[] = {relation("e3", false, "u", "v"), relation("e4", false, "q", "v")};
    help_write(&w.h, unfollow, 2, "II");
    help_write(&w.h, follow, 2, "DD"); /* old ones undo nothing */
    help_write(&w.h, unfollow, 2, "DD");
    assert_int_equal(help_count(&w.h, "{}"), 1);
    assert_int_equal(help_count(&w.h, "{'a':'u','b':'w','by':'e2'}"), 1);
    assert_int_equal(number_in(&w, w.counter_name, "'u'", "n"), 1);
    assert_int_equal(number_in(&w, w.counter_name, "'v'", "sum"), 0);
    assert_int_equal(number_in(&w, w.counter_name, "'w'", "sum"), 1);
    assert_int_equal(number_in(&w, w.counter_name, "'q'", "n"), INT64_MIN);
    assert_int_equal(count_in(&w, w.ledger_name, "{'did':true,'op':'insert'}"), 2);
    assert_int_equal(count_in(&w, w.ledger_name, "{'_id':'e4','did':false,'op':'delete'}"), 1);

    /* In one batch: removed and added again is another document; there and away again is none. */
    struct write_op mixed[] = {relation("e5", false, "u", "w"), relation("e6", true, "u", "w"),
                               relation("e7", true, "u", "x"), relation("e8", false, "u", "x"),
                               relation("e9", true, "u", "w")};
    help_write(&w.h, mixed, 5, "IIIII");
    assert_int_equal(help_count(&w.h, "{}"), 1);
    assert_int_equal(help_count(&w.h, "{'a':'u','b':'w','by':'e6'}"), 1);
    assert_int_equal(number_in(&w, w.counter_name, "'u'", "n"), 1);
    assert_int_equal(number_in(&w, w.counter_name, "'w'", "sum"), 1);
    assert_int_equal(count_in(&w, w.ledger_name, "{'_id':'e9','did':false}"), 1);
    assert_int_equal(count_in(&w, w.ledger_name, "{}"), 9);
    clear(follow, 2);
    clear(unfollow, 2);
    clear(mixed, 5);
    world_end(&w);
}

/* ---- a lock's number ---- */

static void test_fence(void **state)
{
    static char key[] = "k";
    struct world w;

    (void)state;
    world_begin(&w);
    w.h.route.lock.key = key;
    w.h.route.lock.fence = w.ledger_name;
    w.h.route.lock.fence_database = database;
    world_connect(&w);
    put(&w, w.ledger_name, "{'_id':'k','issued':{'$numberLong':'7'}}");
    struct write_op ops[] = {event(1, "a", "x", 1), event(2, "a", "x", 1), event(3, "a", "x", 1)};
    static const int64_t held[] = {7, 6};
    for (size_t i = 0; i < 2; i++) {
        ops[i].effects->fence = BCON_NEW("_id", BCON_UTF8("k"), "issued", BCON_INT64(held[i]));
        ops[i].effects->fence_number = held[i];
    }
    const struct outcome *r = help_write(&w.h, ops, 3, "ILI");
    assert_int_equal(r[1].retry, RETRY_LOCK);
    assert_int_equal(number_in(&w, w.ledger_name, "'k'", "fence"), 7);
    assert_int_equal(number_in(&w, w.counter_name, "'a'", "n"), 2);
    clear(ops, 3);
    world_end(&w);
}

/* ---- several at once ---- */

enum { RACERS = 4, RACE_EVENTS = 120, RACE_PART = 30 };

struct racer {
    struct world *w;
    pthread_t thread;
    int64_t inserted, numbers;
};

/* All events in parts, each part until nobody says LATER. */
static void *race(void *arg)
{
    struct racer *me = arg;
    void *session = me->w->h.sink.ops->open(me->w->h.sink.self);
    bool sequence = me->w->h.route.sequence.field != NULL;

    for (int at = 0; at < RACE_EVENTS; at += RACE_PART) {
        struct write_op ops[RACE_PART];
        bool again = true;

        for (int i = 0; i < RACE_PART; i++)
            ops[i] = sequence ? numbered(at + i, 1, false) : event(at + i, "hot", "hot2", 1);
        for (int tries = 0; again && tries < 50; tries++) {
            const struct outcome *r = me->w->h.sink.ops->write(session, 0, ops, RACE_PART);
            again = false;
            for (int i = 0; i < RACE_PART; i++) {
                me->inserted += r[i].fate == FATE_INSERTED;
                again = again || r[i].fate == FATE_LATER || r[i].fate == FATE_UNKNOWN;
            }
        }
        clear(ops, RACE_PART);
    }
    me->w->h.sink.ops->close(session);
    return NULL;
}

static void run_race(struct world *w)
{
    struct racer all[RACERS] = {{0}};
    int64_t inserted = 0;

    for (size_t i = 0; i < RACERS; i++) {
        all[i].w = w;
        assert_int_equal(pthread_create(&all[i].thread, NULL, race, &all[i]), 0);
    }
    for (size_t i = 0; i < RACERS; i++) {
        assert_int_equal(pthread_join(all[i].thread, NULL), 0);
        inserted += all[i].inserted;
    }
    assert_int_equal(inserted, RACE_EVENTS);
    assert_int_equal(help_count(&w->h, "{}"), RACE_EVENTS);
}

/* The same events from four workers, as after a rebalance that not all have noticed. */
static void test_racing_duplicates(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    run_race(&w);
    assert_int_equal(number_in(&w, w.counter_name, "'hot'", "n"), RACE_EVENTS);
    assert_int_equal(number_in(&w, w.counter_name, "'hot2'", "sum"), RACE_EVENTS);
    world_end(&w);
}

static void test_racing_numbers(void **state)
{
    static const enum config_sequence_mode modes[] = {SEQUENCE_GAPLESS, SEQUENCE_MAX};

    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct world w;

        world_begin(&w);
        with_sequence(&w, modes[i], 1);
        world_connect(&w);
        help_make_index(&w.h, "{'key':{'g':1,'no':1},'name':'numbers','unique':true,"
                              "'partialFilterExpression':{'no':{'$exists':true}}}");
        run_race(&w);
        assert_int_equal(highest(&w, 1), RACE_EVENTS);
        world_end(&w);
    }
}

/* ---- others in the way, answers that don't come ---- */

/* Short time-outs: a batch tries for as long as one socket time-out. */
static void impatient(struct world *w)
{
    w->h.config.mongo.socket_timeout_ms = 900;
    w->h.config.mongo.write_timeout_ms = 600;
}

/* Another program's transaction holds the counter: the batch waits, and comes back. */
static void test_somebody_elses_transaction(void **state)
{
    struct world w;
    bson_error_t be;

    (void)state;
    world_begin(&w);
    impatient(&w);
    world_connect(&w);
    put(&w, w.counter_name, "{'_id':'a','n':{'$numberLong':'0'}}");
    mongoc_client_session_t *other = mongoc_client_start_session(w.h.raw, NULL, &be);
    assert_non_null(other);
    assert_true(mongoc_client_session_start_transaction(other, NULL, &be));
    mongoc_collection_t *c = mongoc_client_get_collection(w.h.raw, database, w.counter_name);
    bson_t *filter = help_bson("{'_id':'a'}"), opts = BSON_INITIALIZER,
           *update = help_bson("{'$inc':{'n':{'$numberLong':'100'}}}");
    assert_true(mongoc_client_session_append(other, &opts, &be));
    if (!mongoc_collection_update_one(c, filter, update, &opts, NULL, &be))
        fail_msg("%s", be.message);
    struct write_op ops[] = {event(1, "a", "x", 1), event(2, "a", "x", 1)};
    const struct outcome *r = help_write(&w.h, ops, 2, "LL");
    assert_int_equal(r[0].retry, RETRY_CONFLICT);
    assert_int_equal(help_count(&w.h, "{}"), 0);
    assert_true(mongoc_client_session_commit_transaction(other, NULL, &be));
    help_write(&w.h, ops, 2, "II");
    assert_int_equal(number_in(&w, w.counter_name, "'a'", "n"), 102);
    mongoc_client_session_destroy(other);
    mongoc_collection_destroy(c);
    bson_destroy(filter);
    bson_destroy(&opts);
    bson_destroy(update);
    clear(ops, 2);
    world_end(&w);
}

/* Stored by somebody else, and not by the majority yet: what the look-up does not show is no
 * conflict with another event. */
static void test_stored_before_the_majority(void **state)
{
    struct world w;

    (void)state;
    world_begin(&w);
    impatient(&w);
    w.h.config.mongo.write_timeout_ms = 100; /* the abort waits for as long */
    world_connect(&w);
    help_command(&w.h, "admin",
                 help_bson("{'configureFailPoint':'disableSnapshotting','mode':'alwaysOn'}"));
    help_command(&w.h, database,
                 help_bson("{'insert':'%s','documents':[{'id':{'$numberLong':'1'}}],"
                           "'writeConcern':{'w':1}}",
                           w.h.collection));
    struct write_op op = event(1, "a", "x", 1);
    enum fate fate = w.h.sink.ops->write(w.h.session, 0, &op, 1)[0].fate;
    help_command(&w.h, "admin",
                 help_bson("{'configureFailPoint':'disableSnapshotting','mode':'off'}"));
    put(&w, w.counter_name, "{'_id':'z'}"); /* the server takes up what it has missed */
    assert_true(fate == FATE_LATER || fate == FATE_DUPLICATE);
    for (int tries = 0; fate == FATE_LATER && tries < 20; tries++)
        fate = w.h.sink.ops->write(w.h.session, 0, &op, 1)[0].fate;
    assert_int_equal(fate, FATE_DUPLICATE);
    assert_int_equal(count_in(&w, w.counter_name, "{'_id':'a'}"), 0);
    clear(&op, 1);
    world_end(&w);
}

/* A pool looks for a server that was away again after half a second. */
static void write_until_settled(struct world *w, const struct write_op *ops, const char *want)
{
    enum { TRIES = 20 };
    const struct outcome *r;
    int tries = 0;

    do {
        r = w->h.sink.ops->write(w->h.session, 0, ops, 2);
    } while ((r[0].fate == FATE_LATER || r[0].fate == FATE_UNKNOWN) && ++tries < TRIES);
    assert_int_equal(r[0].fate, want[0] == 'I' ? FATE_INSERTED : FATE_DUPLICATE);
    assert_int_equal(r[1].fate, r[0].fate);
}

/* What a batch is told while a fail point is on, what when it comes again, and that it has counted
 * once in the end. */
static void test_answers_that_do_not_come(void **state)
{
    static const struct {
        const char *what;
        int times;
        const char *data, *first, *again;
    } rows[] = {
        {"an aborted transaction", 2,
         "'failCommands':['insert'],'errorCode':251,'errorLabels':['TransientTransactionError']",
         "II", "DD"},
        {"a connection cut inside", 1, "'failCommands':['insert'],'closeConnection':true", "LL",
         "II"},
        {"a commit that takes too long, again and again", 4,
         "'failCommands':['commitTransaction'],'errorCode':50,"
         "'errorLabels':['UnknownTransactionCommitResult']",
         "II", "DD"},
        {"a commit that is done, and nobody knows", 100000,
         "'failCommands':['commitTransaction'],'writeConcernError':{'code':64,'errmsg':'slow'}",
         "UU", "DD"},
        {"a commit that is not done, and nobody knows", 100000,
         "'failCommands':['commitTransaction'],'closeConnection':true", "UU", "II"},
        {"no right to count", 1, "'failCommands':['update'],'errorCode':13", "LL", "II"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct world w;

        print_message("%s\n", rows[i].what);
        world_begin(&w);
        impatient(&w);
        world_connect(&w);
        struct write_op ops[] = {event(1, "a", "x", 1), event(2, "a", "x", 1)};
        help_fail_point(&w.h, rows[i].times, rows[i].data);
        help_write(&w.h, ops, 2, rows[i].first);
        help_fail_point_off(&w.h);
        write_until_settled(&w, ops, rows[i].again);
        assert_int_equal(number_in(&w, w.counter_name, "'a'", "n"), 2);
        assert_int_equal(number_in(&w, w.counter_name, "'x'", "sum"), 2);
        assert_int_equal(help_count(&w.h, "{}"), 2);
        clear(ops, 2);
        world_end(&w);
    }
}

/* write() ends within the server selection, connect and two socket time-outs, wherever the server
 * falls silent; and the transaction that it has left open is in nobody's way for long. */
static void test_ends_in_time(void **state)
{
    static const char *const commands[] = {"find", "update", "insert", "commitTransaction"};

    (void)state;
    for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
        struct world w;
        char data[128];

        world_begin(&w);
        impatient(&w);
        world_connect(&w);
        struct write_op ops[] = {event(1, "a", "x", 1)};
        (void)snprintf(data, sizeof data,
                       "'failCommands':['%s'],'blockConnection':true,'blockTimeMS':2000",
                       commands[i]);
        help_fail_point(&w.h, 1, data);
        int64_t before_ms = clock_mono_ms();
        const struct outcome *r = w.h.sink.ops->write(w.h.session, 0, ops, 1);
        int64_t took_ms = clock_mono_ms() - before_ms;
        /* libmongoc asks once more for a commit by itself, on a new connection. */
        assert_true(r[0].fate == FATE_LATER || r[0].fate == FATE_UNKNOWN || i == 3);
        assert_true(took_ms <= w.h.config.mongo.server_selection_timeout_ms +
                                   w.h.config.mongo.connect_timeout_ms +
                                   2 * w.h.config.mongo.socket_timeout_ms);
        help_fail_point_off(&w.h);
        /* The blocked command may still be there, with the locks of its transaction. */
        for (int tries = 0; r[0].fate != FATE_INSERTED && r[0].fate != FATE_DUPLICATE && tries < 20;
             tries++)
            r = w.h.sink.ops->write(w.h.session, 0, ops, 1);
        assert_true(r[0].fate == FATE_INSERTED || (i == 3 && r[0].fate == FATE_DUPLICATE));
        assert_int_equal(number_in(&w, w.counter_name, "'a'", "n"), 1);
        clear(ops, 1);
        world_end(&w);
    }
}

/* An operator kills all sessions while batches are under way. */
static void test_sessions_killed(void **state)
{
    struct world w;
    struct racer racer = {0};
    int kills = 0;

    (void)state;
    world_begin(&w);
    world_connect(&w);
    racer.w = &w;
    assert_int_equal(pthread_create(&racer.thread, NULL, race, &racer), 0);
    for (; kills < 20; kills++)
        help_command(&w.h, "admin", help_bson("{'killAllSessions':[]}"));
    assert_int_equal(pthread_join(racer.thread, NULL), 0);
    assert_int_equal(help_count(&w.h, "{}"), RACE_EVENTS);
    assert_int_equal(number_in(&w, w.counter_name, "'hot'", "n"), RACE_EVENTS);
    world_end(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_counted_once),
        cmocka_unit_test(test_no_counter_document),
        cmocka_unit_test(test_version_of_a_mirrored_one),
        cmocka_unit_test(test_refused_counters),
        cmocka_unit_test(test_refused_documents),
        cmocka_unit_test(test_validator),
        cmocka_unit_test(test_large),
        cmocka_unit_test(test_gapless),
        cmocka_unit_test(test_numbers_at_the_end),
        cmocka_unit_test(test_max),
        cmocka_unit_test(test_relations),
        cmocka_unit_test(test_fence),
        cmocka_unit_test(test_racing_duplicates),
        cmocka_unit_test(test_racing_numbers),
        cmocka_unit_test(test_somebody_elses_transaction),
        cmocka_unit_test(test_stored_before_the_majority),
        cmocka_unit_test(test_answers_that_do_not_come),
        cmocka_unit_test(test_ends_in_time),
        cmocka_unit_test(test_sessions_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
