/*
 * test_replay.c - the real replay and mapping with a database, a dead-letter topic and a Redis that
 * do as they are told, record by record.
 *
 * A record's value is {"id": N, "n": M}. What the database does with a dedup key N stands in
 * world.rules[N].
 */
#include "unit/mapping_fixture.h"

#include "base/clock.h"
#include "fakes/fake_bus.h"
#include "run/replay.h"

enum { KEYS = 64, ITEMS = 64 };

struct rule {
    bool never;       /* refused for good, with code 121 */
    unsigned unknown; /* so often nobody knows; it is applied all the same the first time */
    enum retry_class retry;
    bool later;  /* always: the one before it in its lane is not done */
    bool stored; /* n is what was stored */
    int64_t n;
    unsigned sent;
};

struct letter_sent {
    int64_t offset;
    enum reason reason;
    uint32_t attempts;
};

struct world {
    struct config config;
    struct config_route *route;
    struct mapping *mapping;
    struct rule rules[KEYS];
    size_t writes, largest; /* calls, operations of one */
    const void *lanes[KEYS];
    struct outcome outcomes[ITEMS];

    unsigned bury_fails; /* so often the dead-letter topic takes nothing */
    struct letter_sent letters[ITEMS];
    size_t n_letters, n_sends;

    struct fake_bus *bus;
    struct replay *replay;
    struct replay_item items[ITEMS];
    size_t n;
    int64_t done[ITEMS]; /* offsets, as they were told */
    size_t n_done;
    size_t told_at_done[ITEMS]; /* what the bus had answered by then */
};

/* --- the ports --- */

static void *sink_open(void *self)
{
    return self;
}

static void sink_close(void *session)
{
    (void)session;
}

static int64_t number_of(const bson_t *b, const char *name)
{
    bson_iter_t it;

    assert_true(bson_iter_init_find(&it, b, name));
    return bson_iter_as_int64(&it);
}

static struct outcome apply(struct world *w, const struct write_op *op)
{
    struct rule *rule = &w->rules[number_of(op->filter, "id")];
    bool was_stored = rule->stored;

    rule->sent++;
    w->lanes[number_of(op->filter, "id")] = op->lane;
    if (rule->later)
        return (struct outcome){.fate = FATE_LATER, .retry = rule->retry};
    if (rule->never)
        return (struct outcome){.fate = FATE_NEVER, .reason = REASON_VALIDATION, .code = 121};
    if (!was_stored) {
        rule->stored = true;
        rule->n = number_of(op->document, "n");
    }
    if (rule->unknown > 0) {
        rule->unknown--;
        return (struct outcome){.fate = FATE_UNKNOWN, .retry = rule->retry, .code = 91};
    }
    return (struct outcome){.fate = was_stored ? FATE_DUPLICATE : FATE_INSERTED};
}

static const struct outcome *sink_write(void *session, uint32_t route, const struct write_op *ops,
                                        size_t n)
{
    struct world *w = session;

    assert_int_equal(route, 0);
    assert_true(n > 0 && n <= (size_t)w->config.worker.batch);
    w->writes++;
    w->largest = n > w->largest ? n : w->largest;
    for (size_t i = 0; i < n; i++)
        w->outcomes[i] = apply(w, &ops[i]);
    return w->outcomes;
}

static bool dead_send(void *self, struct record *const *records, size_t n, bool *ok, struct err *e)
{
    struct world *w = self;
    bool takes = w->bury_fails == 0;

    w->n_sends++;
    w->bury_fails -= !takes;
    for (size_t i = 0; i < n; i++) {
        assert_int_not_equal(records[i]->rejected.reason, REASON_NONE);
        ok[i] = takes;
        if (takes)
            w->letters[w->n_letters++] = (struct letter_sent){.offset = records[i]->offset,
                                                              .reason = records[i]->rejected.reason,
                                                              .attempts = records[i]->attempts};
    }
    return takes || err_set(e, ERR_TRANSIENT, 0, "the topic is away");
}

static void on_done(void *ctx, const struct replay_item *item)
{
    struct world *w = ctx;

    assert_int_not_equal(item->fate, REPLAY_OPEN);
    w->told_at_done[w->n_done] = fake_bus_total(w->bus);
    w->done[w->n_done++] = item->record->offset;
}

/* --- the world --- */

static void world_open(struct world *w, const char *spec)
{
    static const struct sink_ops sink = {
        .open = sink_open, .close = sink_close, .write = sink_write};
    static const struct deadletter_ops dead = {.send = dead_send};
    struct err e = {0};

    *w = (struct world){.route = fixture_route(spec)};
    w->mapping = mapping_new(w->route, &fixture_env, &e);
    if (w->mapping == NULL)
        fail_msg("%s", e.text);
    w->config.routes = w->route;
    w->config.n_routes = 1;
    w->config.worker.batch = 8;
    w->config.retry.first_ms = 1;
    w->config.retry.max_ms = 4;
    w->bus = fake_bus_new((struct dice){.state = 1});
    struct replay_options options = {.config = &w->config,
                                     .mappings = &w->mapping,
                                     .sink = {.ops = &sink, .self = w},
                                     .deadletter = {.ops = &dead, .self = w},
                                     .bus = fake_bus_port(w->bus),
                                     .patience_ms = 60,
                                     .done = on_done,
                                     .ctx = w};
    w->replay = replay_new(&options);
}

static void world_close(struct world *w)
{
    for (size_t i = 0; i < w->n; i++)
        record_free(w->items[i].record);
    replay_free(w->replay);
    fake_bus_free(w->bus);
    mapping_free(w->mapping);
    fixture_route_free(w->route);
}

/* value NULL: {"id": id, "n": offset} */
static void add(struct world *w, int32_t partition, int64_t offset, const char *key, int id,
                const char *value)
{
    char text[64];

    (void)snprintf(text, sizeof text, "{\"id\": %d, \"n\": %d}", id, (int)offset);
    w->items[w->n] = (struct replay_item){
        .record = record_new(&(struct record_source){.topic = "t",
                                                     .partition = partition,
                                                     .offset = offset,
                                                     .key = slice_text(key),
                                                     .value = slice_text(value ? value : text)}),
        .partition = 9,
        .offset = (int64_t)w->n};
    w->items[w->n++].record->attempts = 7;
}

static enum replay_fate fate_of(const struct world *w, int64_t offset)
{
    for (size_t i = 0; i < w->n; i++)
        if (w->items[i].record->offset == offset)
            return w->items[i].fate;
    fail();
    return REPLAY_OPEN;
}

static bool told(const struct world *w, int64_t offset)
{
    size_t n = 0;

    for (size_t i = 0; i < w->n_done; i++)
        n += w->done[i] == offset;
    assert_in_range(n, 0, 1);
    return n == 1;
}

static bool run(struct world *w, struct err *e)
{
    *e = (struct err){0};
    return replay_run(w->replay, w->items, w->n, e);
}

/* --- the tests --- */

static void every_fate(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\n");
    w.rules[2].stored = true;
    w.rules[3].never = true;
    add(&w, 0, 10, "a", 1, NULL);
    add(&w, 0, 20, "a", 2, NULL);
    add(&w, 0, 30, "a", 3, NULL);
    add(&w, 0, 40, "a", 4, "{");
    w.items[w.n] = (struct replay_item){.record = record_new(&(struct record_source){
                                            .topic = "t", .offset = 50})}; /* a tombstone */
    w.n++;
    assert_true(run(&w, &e));
    assert_int_equal(fate_of(&w, 10), REPLAY_INSERTED);
    assert_int_equal(fate_of(&w, 20), REPLAY_DUPLICATE);
    assert_int_equal(fate_of(&w, 30), REPLAY_REFUSED);
    assert_int_equal(fate_of(&w, 40), REPLAY_REFUSED);
    assert_int_equal(fate_of(&w, 50), REPLAY_SKIPPED);
    for (int64_t offset = 10; offset <= 50; offset += 10)
        assert_true(told(&w, offset));
    assert_int_equal(w.n_letters, 2);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(w.letters[i].attempts, 7);
        assert_int_equal(w.letters[i].reason,
                         w.letters[i].offset == 30 ? REASON_VALIDATION : REASON_JSON_SYNTAX);
    }
    world_close(&w);
}

static void first_is_who_was_first(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\n");
    add(&w, 1, 30, "k", 1, NULL);
    add(&w, 0, 90, "k", 2, NULL);
    add(&w, 1, 10, "k", 1, NULL);
    add(&w, 0, 80, "k", 2, NULL);
    add(&w, 1, 20, "k", 1, NULL);
    assert_true(run(&w, &e));
    assert_int_equal(w.rules[1].n, 10);
    assert_int_equal(w.rules[2].n, 80);
    assert_int_equal(fate_of(&w, 10), REPLAY_INSERTED);
    assert_int_equal(fate_of(&w, 30), REPLAY_DUPLICATE);
    world_close(&w);
}

static void a_lane_is_a_key_in_its_partition(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\n");
    add(&w, 0, 1, "k", 1, NULL);
    add(&w, 0, 2, "k", 2, NULL);
    add(&w, 0, 3, "other", 3, NULL);
    add(&w, 1, 4, "k", 4, NULL);
    assert_true(run(&w, &e));
    assert_non_null(w.lanes[1]);
    assert_ptr_equal(w.lanes[1], w.lanes[2]);
    assert_ptr_not_equal(w.lanes[1], w.lanes[3]);
    assert_ptr_not_equal(w.lanes[1], w.lanes[4]);
    world_close(&w);
}

static void what_nobody_knows_is_sent_again(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\n");
    w.rules[1].unknown = 3;
    w.rules[1].retry = RETRY_NETWORK;
    add(&w, 0, 10, "a", 1, NULL);
    add(&w, 0, 20, "b", 2, NULL);
    assert_true(run(&w, &e));
    assert_int_equal(fate_of(&w, 10), REPLAY_DUPLICATE); /* it was applied at once */
    assert_int_equal(w.rules[1].sent, 4);
    assert_int_equal(w.rules[2].sent, 1); /* and not again with it */
    assert_true(told(&w, 10) && told(&w, 20));
    assert_int_equal(w.n_letters, 0);
    world_close(&w);
}

static void an_outage_is_not_the_letters_fault(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\n");
    for (int i = 0; i < 20; i++) {
        w.rules[i].unknown = UINT32_MAX;
        w.rules[i].retry = RETRY_NO_PRIMARY;
        add(&w, 0, i, "a", i, NULL);
    }
    assert_false(run(&w, &e));
    assert_int_equal(e.kind, ERR_TRANSIENT);
    for (int i = 0; i < 20; i++) {
        assert_int_equal(fate_of(&w, i), REPLAY_OPEN);
        assert_false(told(&w, i));
    }
    assert_int_equal(w.n_letters, 0);
    assert_int_equal(w.rules[8].sent, 0); /* the second batch was not tried */
    world_close(&w);
}

static void one_that_stays_unknown_does_not_keep_the_others(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\n");
    w.rules[3].unknown = UINT32_MAX;
    w.rules[3].retry = RETRY_OTHER;
    w.rules[4].later = true; /* behind it in its lane */
    w.rules[4].retry = RETRY_OTHER;
    for (int i = 0; i < 20; i++)
        add(&w, 0, i, "a", i, NULL);
    assert_false(run(&w, &e));
    assert_int_equal(e.kind, ERR_TRANSIENT);
    for (int i = 0; i < 20; i++)
        assert_int_equal(fate_of(&w, i), i == 3 || i == 4 ? REPLAY_OPEN : REPLAY_INSERTED);
    assert_int_equal(w.largest, 8);
    world_close(&w);
}

static void missing_rights_are_not_waited_for(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\n");
    w.rules[1].unknown = UINT32_MAX;
    w.rules[1].retry = RETRY_RIGHTS;
    add(&w, 0, 10, "a", 1, NULL);
    assert_false(run(&w, &e));
    assert_int_equal(e.kind, ERR_AUTH);
    assert_int_equal(w.rules[1].sent, 1);
    world_close(&w);
}

static void refused_counts_when_the_letter_is_acknowledged(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\n");
    w.rules[1].never = true;
    w.bury_fails = 2;
    add(&w, 0, 10, "a", 1, NULL);
    assert_true(run(&w, &e));
    assert_int_equal(fate_of(&w, 10), REPLAY_REFUSED);
    assert_int_equal(w.n_letters, 1);
    assert_int_equal(w.n_sends, 3);
    assert_int_equal(w.rules[1].sent, 1); /* judged is judged */
    world_close(&w);

    world_open(&w, "dedup id\n");
    w.rules[1].never = true;
    w.bury_fails = UINT32_MAX;
    add(&w, 0, 10, "a", 1, NULL);
    add(&w, 0, 20, "b", 2, NULL);
    assert_false(run(&w, &e));
    assert_int_equal(e.kind, ERR_TRANSIENT);
    assert_int_equal(fate_of(&w, 10), REPLAY_OPEN);
    assert_false(told(&w, 10));
    assert_int_equal(fate_of(&w, 20), REPLAY_INSERTED);
    world_close(&w);
}

/* --- Redis --- */

static void caches_are_told_before_it_counts(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\nunlink k:{id}\npubsub c {\"all\":1}\n");
    w.rules[2].stored = true;
    w.rules[3].never = true;
    for (int i = 1; i <= 3; i++)
        add(&w, 0, i, "a", i, NULL);
    assert_true(run(&w, &e));
    assert_int_equal(fake_bus_count(w.bus, "k:1", NULL), 1);
    assert_int_equal(fake_bus_count(w.bus, "k:2", NULL), 1); /* a duplicate, too */
    assert_int_equal(fake_bus_count(w.bus, "k:3", NULL), 0);
    assert_int_equal(fake_bus_count(w.bus, "c", NULL), 1); /* each target once */
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(w.told_at_done[i], 3);
    world_close(&w);
}

static void best_effort_is_counted_when_it_is_lost(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\nunlink k:{id}\n");
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    add(&w, 0, 1, "a", 1, NULL);
    add(&w, 0, 2, "a", 2, NULL);
    assert_true(run(&w, &e));
    assert_int_equal(fate_of(&w, 1), REPLAY_INSERTED);
    assert_int_equal(replay_untold(w.replay), 2);
    world_close(&w);
}

static void before_commit_keeps_it_open(void **state)
{
    struct world w;
    struct err e;

    (void)state;
    world_open(&w, "dedup id\nunlink k:{id}\n");
    w.route->invalidate[0].delivery = DELIVERY_BEFORE_COMMIT;
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    w.rules[2].never = true;
    add(&w, 0, 1, "a", 1, NULL);
    add(&w, 0, 2, "a", 2, NULL);
    assert_false(run(&w, &e));
    assert_int_equal(e.kind, ERR_TRANSIENT);
    assert_int_equal(fate_of(&w, 1), REPLAY_OPEN);
    assert_false(told(&w, 1));
    assert_int_equal(fate_of(&w, 2), REPLAY_REFUSED);
    assert_int_equal(replay_untold(w.replay), 0);
    fake_bus_set_mode(w.bus, FAKE_BUS_WELL);
    assert_true(run(&w, &e)); /* those that are open */
    assert_int_equal(fate_of(&w, 1), REPLAY_DUPLICATE);
    assert_int_equal(w.n_letters, 1);
    world_close(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_fate),
        cmocka_unit_test(first_is_who_was_first),
        cmocka_unit_test(a_lane_is_a_key_in_its_partition),
        cmocka_unit_test(what_nobody_knows_is_sent_again),
        cmocka_unit_test(an_outage_is_not_the_letters_fault),
        cmocka_unit_test(one_that_stays_unknown_does_not_keep_the_others),
        cmocka_unit_test(missing_rights_are_not_waited_for),
        cmocka_unit_test(refused_counts_when_the_letter_is_acknowledged),
        cmocka_unit_test(caches_are_told_before_it_counts),
        cmocka_unit_test(best_effort_is_counted_when_it_is_lost),
        cmocka_unit_test(before_commit_keeps_it_open),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
