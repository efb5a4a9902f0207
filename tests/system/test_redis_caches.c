/*
 * test_redis_caches.c - mirrors of counters against a real redis-server, which it starts itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_late_writer_changes_nothing),
        cmocka_unit_test(any_order),
        cmocka_unit_test(a_set_brings_the_script_once),
        cmocka_unit_test(a_key_of_another_type_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
