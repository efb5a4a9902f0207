/*
 * test_redis_caches.c - mirrors of counters, and what processes share of what they have seen,
 * against a real redis-server, which it starts itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>

#include "base/mem.h"
#include "fakes/dice.h"
#include "io/redis.h"
#include "redis_help.h"

enum { TIMEOUT_MS = 300, BUSES = 2 };

struct scene {
    struct help_server server;
    redisContext *own;
    struct config config;
    struct bus buses[BUSES]; /* each a connection of its own */
};

static void scene_open(struct scene *s)
{
    struct err e;

    *s = (struct scene){.own = NULL};
    help_server_open(&s->server);
    s->own = help_connect(&s->server);
    s->config.redis.uri = mem_printf("redis://127.0.0.1:%d/0", s->server.port);
    s->config.redis.timeout_ms = TIMEOUT_MS;
    for (size_t i = 0; i < BUSES; i++)
        CHECK(redis_bus_new(&s->config, &s->buses[i], &e), "%s", e.text);
}

static void scene_close(struct scene *s)
{
    for (size_t i = 0; i < BUSES; i++)
        redis_bus_free(&s->buses[i]);
    mem_free(s->config.redis.uri);
    redisFree(s->own);
    help_server_close(&s->server);
}

/* --- mirrors --- */

static char key[] = "user:7:followers", other_key[] = "user:8:followers", followers[] = "followers",
            likes[] = "likes of", unused[] = "";
static struct config_pair two_fields[] = {{followers, unused}, {likes, unused}};
static const struct config_pairs fields = {two_fields, 2};

static struct invalidation mirror_of(char *name, char *values, int64_t version)
{
    return (struct invalidation){.kind = INVALIDATION_MIRROR,
                                 .name = name,
                                 .body = values,
                                 .fields = &fields,
                                 .version = version};
}

static void send_all(struct bus *bus, const struct invalidation *m, size_t n)
{
    uint64_t receivers;
    bool sent[16];
    struct err e;

    CHECK(n <= 16 && bus->ops->send(bus->self, m, n, sent, &receivers, &e), "%s", e.text);
    for (size_t i = 0; i < n; i++)
        assert_true(sent[i]);
}

static void send_one(struct bus *bus, char *name, char *values, int64_t version)
{
    struct invalidation m = mirror_of(name, values, version);

    send_all(bus, &m, 1);
}

static void assert_field(struct scene *s, const char *name, const char *field, const char *expected)
{
    redisReply *reply = redisCommand(s->own, "HGET %s %s", name, field);

    assert_non_null(reply);
    assert_int_equal(reply->type, REDIS_REPLY_STRING);
    assert_string_equal(reply->str, expected);
    freeReplyObject(reply);
}

static void a_late_writer_changes_nothing(void **state)
{
    char five[] = "5 -1", six[] = "6 -2", ten[] = "10 -3";
    struct scene s;

    (void)state;
    scene_open(&s);
    send_one(&s.buses[0], key, five, 5);
    assert_field(&s, key, "followers", "5");
    send_one(&s.buses[1], key, ten, 10); /* of 9 and 10 the text "9" is the greater */
    send_one(&s.buses[0], key, six, 9);
    assert_field(&s, key, "followers", "10");
    assert_field(&s, key, "likes of", "-3");
    assert_field(&s, key, "version", "10");
    send_one(&s.buses[0], key, six, 10); /* the same state, whatever it says */
    assert_field(&s, key, "followers", "10");
    scene_close(&s);
}

/* Versions come in any order over two connections: the highest stays, to the last digit. */
static void any_order(void **state)
{
    struct dice dice = dice_seed("mirrors");
    struct scene s;

    (void)state;
    scene_open(&s);
    for (int round = 0; round < 50; round++) {
        int64_t base = round % 2 ? INT64_C(9007199254740990) : 95; /* 2^53, and 100 */
        int64_t highest = 0;
        char name[32], text[32];

        (void)snprintf(name, sizeof name, "m:%d", round);
        for (int i = 0; i < 12; i++) {
            int64_t version = base + (int64_t)dice_below(&dice, 10);

            highest = version > highest ? version : highest;
            (void)snprintf(text, sizeof text, "%" PRId64 " 0", -version);
            send_one(&s.buses[dice_below(&dice, BUSES)], name, text, version);
        }
        (void)snprintf(text, sizeof text, "%" PRId64, highest);
        assert_field(&s, name, "version", text);
        (void)snprintf(text, sizeof text, "%" PRId64, -highest);
        assert_field(&s, name, "followers", text);
    }
    scene_close(&s);
}

/* The second and third of a set go by the script's hash, which the first brought; also after the
 * server has forgotten it. */
static void a_set_brings_the_script_once(void **state)
{
    char values[] = "9223372036854775807 -9223372036854775808";
    struct scene s;

    (void)state;
    scene_open(&s);
    for (int64_t round = 1; round <= 3; round++) {
        struct invalidation set[] = {mirror_of(key, values, round),
                                     mirror_of(other_key, values, round),
                                     mirror_of(key, values, round + 1)};

        (void)help_do(s.own, "CONFIG RESETSTAT");
        send_all(&s.buses[0], set, 3);
        redisReply *info = redisCommand(s.own, "INFO commandstats");
        assert_non_null(strstr(info->str, "cmdstat_eval:calls=1,"));
        assert_non_null(strstr(info->str, "cmdstat_evalsha:calls=2,"));
        freeReplyObject(info);
        (void)help_do(s.own, "SCRIPT FLUSH");
    }
    assert_field(&s, other_key, "followers", "9223372036854775807");
    assert_field(&s, other_key, "likes of", "-9223372036854775808");
    assert_field(&s, key, "version", "4");
    scene_close(&s);
}

static void a_key_of_another_type_is_refused(void **state)
{
    char values[] = "1 1";
    struct invalidation set[] = {mirror_of(key, values, 1), mirror_of(other_key, values, 1)};
    uint64_t receivers;
    struct scene s;
    struct err e;
    bool sent[2];

    (void)state;
    scene_open(&s);
    (void)help_do(s.own, "SET user:7:followers text");
    assert_false(s.buses[0].ops->send(s.buses[0].self, set, 2, sent, &receivers, &e));
    assert_false(sent[0]);
    assert_true(sent[1]);
    assert_int_equal(e.kind, ERR_CONFIG);
    assert_non_null(strstr(e.text, "WRONGTYPE"));
    assert_null(strstr(e.text, "followers"));
    scene_close(&s);
}

/* --- what others have seen --- */

enum { TTL_MS = 600000 };
static char r0_name[] = "orders", shared_by_name[] = "seen:{route}:{route}:", r1_name[] = "other",
            plain_prefix[] = "s:";

struct shared {
    struct config_route routes[2];
    struct config config;
    struct seen_store store;
    void *sessions[2]; /* two processes */
};

static void shared_open(struct shared *t, struct scene *s)
{
    struct err e;

    *t = (struct shared){.config = s->config};
    t->routes[0] = (struct config_route){
        .name = r0_name, .seen = {.entries = 1, .ttl_ms = TTL_MS, .redis = shared_by_name}};
    t->routes[1] = (struct config_route){
        .name = r1_name, .seen = {.entries = 1, .ttl_ms = TTL_MS, .redis = plain_prefix}};
    t->config.routes = t->routes;
    t->config.n_routes = 2;
    CHECK(redis_seen_new(&t->config, &t->store, &e), "%s", e.text);
    for (size_t i = 0; i < 2; i++)
        t->sessions[i] = t->store.ops->open(t->store.self);
}

static void shared_close(struct shared *t)
{
    for (size_t i = 0; i < 2; i++)
        t->store.ops->close(t->sessions[i]);
    redis_seen_free(&t->store);
}

static struct seen_id event(uint64_t n)
{
    return (struct seen_id){.high = n, .low = ~n};
}

/* How many of the events from..to-1 one of the processes finds. */
static size_t found(struct shared *t, size_t process, uint32_t route, uint64_t from, uint64_t to,
                    struct seen_generation *g)
{
    struct seen_id ids[3000];
    bool found[3000];
    size_t n = (size_t)(to - from), hits = 0;
    struct err e;

    for (uint64_t i = from; i < to; i++)
        ids[i - from] = event(i);
    while (!t->store.ops->ask(t->sessions[process], route, ids, n, found, g, &e))
        CHECK(e.code == ETIMEDOUT, "%s", e.text); /* the machine is busy */
    for (size_t i = 0; i < n; i++)
        hits += found[i];
    return hits;
}

static void enter(struct shared *t, size_t process, uint32_t route, uint64_t from, uint64_t to,
                  const struct seen_generation *g)
{
    struct seen_id ids[3000];
    struct err e;

    for (uint64_t i = from; i < to; i++)
        ids[i - from] = event(i);
    while (!t->store.ops->enter(t->sessions[process], route, ids, (size_t)(to - from), g, &e))
        CHECK(e.code == ETIMEDOUT, "%s", e.text);
}

static void what_one_enters_others_find(void **state)
{
    struct seen_generation g;
    struct shared t;
    struct scene s;

    (void)state;
    scene_open(&s);
    shared_open(&t, &s);
    assert_int_equal(found(&t, 0, 0, 0, 10, &g), 0);
    assert_string_equal(g.text, ""); /* nobody was there before: now there is a generation */
    assert_int_equal(found(&t, 0, 0, 0, 10, &g), 0);
    assert_true(strlen(g.text) == 16);
    enter(&t, 0, 0, 0, 2500, &g);
    assert_int_equal(found(&t, 1, 0, 0, 3000, &g), 2500);
    assert_int_equal(found(&t, 1, 1, 0, 3000, &g), 0); /* another route */
    assert_int_equal(help_do(s.own, "EXISTS seen:orders:orders:"
                                    "0000000000000007fffffffffffffff8"),
                     1);
    assert_in_range(help_do(s.own, "PTTL seen:orders:orders:0000000000000007fffffffffffffff8"),
                    TTL_MS - 60000, TTL_MS);
    shared_close(&t);
    scene_close(&s);
}

static void a_new_generation_knows_nothing(void **state)
{
    struct seen_generation before, g;
    struct shared t;
    struct scene s;
    struct err e;

    (void)state;
    scene_open(&s);
    shared_open(&t, &s);
    (void)found(&t, 0, 0, 0, 1, &g);
    (void)found(&t, 0, 0, 0, 1, &before);
    enter(&t, 0, 0, 0, 10, &before);
    assert_int_equal(found(&t, 1, 0, 0, 10, &g), 10);
    while (!t.store.ops->forget(t.sessions[1], 0, &e))
        CHECK(e.code == ETIMEDOUT, "%s", e.text);
    assert_int_equal(found(&t, 0, 0, 0, 10, &g), 0);
    assert_string_not_equal(g.text, before.text);
    enter(&t, 0, 0, 0, 10, &before); /* it wrote before that, and comes late */
    assert_int_equal(found(&t, 1, 0, 0, 10, &g), 0);
    enter(&t, 0, 0, 0, 5, &g);
    assert_int_equal(found(&t, 1, 0, 0, 10, &g), 5);
    (void)help_do(s.own, "DEL seen:orders:orders:generation"); /* as an operator may, too */
    assert_int_equal(found(&t, 1, 0, 0, 10, &g), 0);
    assert_int_equal(found(&t, 1, 0, 0, 10, &g), 0);
    shared_close(&t);
    scene_close(&s);
}

static bool asks(struct shared *t, struct err *e)
{
    struct seen_id id = event(1);
    struct seen_generation g;
    bool there = true;
    bool ok = t->store.ops->ask(t->sessions[0], 0, &id, 1, &there, &g, e);

    assert_true(ok || (!there && g.text[0] == '\0'));
    return ok;
}

static void until_it_answers(struct shared *t)
{
    struct err e;

    while (!asks(t, &e))
        CHECK(e.code == ETIMEDOUT, "%s", e.text);
}

/* A server that hangs costs a short time-out, one that went away and came back none. */
static void a_server_that_does_not_answer(void **state)
{
    struct shared t;
    struct scene s;
    struct err e;

    (void)state;
    scene_open(&s);
    shared_open(&t, &s);
    until_it_answers(&t);
    (void)help_do(s.own, "CLIENT KILL TYPE normal SKIPME yes");
    until_it_answers(&t); /* over a new connection */
    (void)kill(s.server.pid, SIGSTOP);
    assert_false(asks(&t, &e));
    assert_int_equal(e.kind, ERR_TRANSIENT);
    assert_non_null(strstr(e.text, "no answer within 100 ms"));
    (void)kill(s.server.pid, SIGCONT);
    until_it_answers(&t);
    (void)help_do(s.own, "ACL SETUSER default -mget");
    while (asks(&t, &e) || e.code == ETIMEDOUT)
        ;
    assert_int_equal(e.kind, ERR_CONFIG);
    assert_null(strstr(e.text, "orders")); /* names are no business of the log */
    (void)help_do(s.own, "ACL SETUSER default +mget");
    until_it_answers(&t);
    shared_close(&t);
    scene_close(&s);
}

/* --- the listener --- */

static enum listener_event hear(struct listener *l, struct listener_message *m)
{
    int64_t end_ms = clock_mono_ms() + HELP_PATIENCE_MS;
    enum listener_event event = LISTENER_NOTHING;
    struct err e;

    while (event == LISTENER_NOTHING) {
        CHECK(clock_mono_ms() < end_ms, "nothing is heard");
        event = l->ops->next(l->self, 100, m, &e);
    }
    return event;
}

static void rejoin(struct listener *l)
{
    struct listener_message m;

    while (hear(l, &m) != LISTENER_JOINED)
        ;
}

static void assert_hears(struct listener *l, const char *channel, const char *text)
{
    struct listener_message m;

    assert_int_equal(hear(l, &m), LISTENER_MESSAGE);
    assert_true(slice_equal(m.channel, slice_text(channel)));
    assert_true(slice_equal(m.text, slice_text(text)));
}

static void a_listener(void **state)
{
    static const char *const channels[] = {"a", "b"};
    struct listener_message m;
    struct listener l;
    struct scene s;
    struct err e;

    (void)state;
    scene_open(&s);
    CHECK(redis_listener_new(&s.config, channels, 2, &l, &e), "%s", e.text);
    rejoin(&l);
    assert_int_equal(help_do(s.own, "PUBLISH a one"), 1);
    assert_int_equal(help_do(s.own, "PUBLISH c nobody"), 0);
    assert_int_equal(help_do(s.own, "PUBLISH b two"), 1);
    assert_hears(&l, "a", "one");
    assert_hears(&l, "b", "two");
    (void)help_do(s.own, "CLIENT KILL TYPE pubsub");
    assert_int_equal(hear(&l, &m), LISTENER_LOST);
    rejoin(&l);
    (void)kill(s.server.pid, SIGSTOP); /* silent, and not closed: found by the PING */
    assert_int_equal(hear(&l, &m), LISTENER_LOST);
    (void)kill(s.server.pid, SIGCONT);
    rejoin(&l);
    int64_t until_ms = clock_mono_ms() + 5000; /* longer than silence and time-out */
    while (clock_mono_ms() < until_ms) {
        enum listener_event event = l.ops->next(l.self, 100, &m, &e);
        CHECK(event == LISTENER_NOTHING || event == LISTENER_LOST || event == LISTENER_JOINED, "?");
    }
    redisReply *info = redisCommand(s.own, "INFO commandstats");
    assert_non_null(strstr(info->str, "cmdstat_ping:"));
    freeReplyObject(info);
    l.ops->leave(l.self);
    rejoin(&l);
    (void)help_do(s.own, "ACL SETUSER default resetchannels");
    l.ops->leave(l.self);
    while (hear(&l, &m) != LISTENER_LOST)
        ;
    redis_listener_free(&l);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_writer_changes_nothing),
        cmocka_unit_test(any_order),
        cmocka_unit_test(a_set_brings_the_script_once),
        cmocka_unit_test(a_key_of_another_type_is_refused),
        cmocka_unit_test(what_one_enters_others_find),
        cmocka_unit_test(a_new_generation_knows_nothing),
        cmocka_unit_test(a_server_that_does_not_answer),
        cmocka_unit_test(a_listener),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
