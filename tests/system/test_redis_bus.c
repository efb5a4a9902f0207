/*
 * test_redis_bus.c - notifier and bus against a real redis-server, which is cut off, frozen, ended
 * and made a replica, while a subscriber counts what it hears. Starts the server itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fakes/dice.h"
#include "fakes/notify_world.h"
#include "io/redis.h"
#include "redis_help.h"

enum { TIMEOUT_MS = 300 };

struct scene {
    struct help_server server;
    redisContext *own; /* the test's connection; not valid after the server ended */
    struct config config;
    struct bus bus;
    struct world world;
};

static void scene_redis(struct scene *s, char *uri)
{
    struct err e;

    s->config.redis.uri = uri; /* taken */
    s->config.redis.timeout_ms = TIMEOUT_MS;
    CHECK(redis_bus_new(&s->config, &s->bus, &e), "%s", e.text);
}

static void scene_open(struct scene *s, const char *toml)
{
    *s = (struct scene){.own = NULL};
    help_server_open(&s->server);
    s->own = help_connect(&s->server);
    scene_redis(s, mem_printf("redis://127.0.0.1:%d/0", s->server.port));
    world_open(&s->world, toml, s->bus);
}

static void scene_close(struct scene *s)
{
    assert_true(world_close(&s->world, 1, LONG_MS));
    redis_bus_free(&s->bus);
    mem_free(s->config.redis.uri);
    if (s->own)
        redisFree(s->own);
    help_server_close(&s->server);
}

static void make_keys(struct scene *s, int from, int to)
{
    char command[64];

    for (int i = from; i < to; i++) {
        (void)snprintf(command, sizeof command, "SET k:%d old", i);
        (void)help_do(s->own, command);
    }
}

static void keys_are_gone_when_the_message_comes(void **state)
{
    struct help_listener l;
    struct scene s;

    (void)state;
    scene_open(&s, HEAD ROUTE UNLINK PUBSUB WAITING);
    help_listener_open(&l, &s.server, 2000);
    make_keys(&s, 0, 2000);
    tell(&s.world, 0, 2000);
    assert_true(settled(&s.world, LONG_MS));
    help_wait_heard(&l, 0, 2000);
    assert_int_equal(atomic_load(&l.stale), 0);
    assert_int_equal(help_do(s.own, "DBSIZE"), 0);
    assert_int_equal(counter(&s.world, "idemsink_invalidation_receivers_total"), 2000);
    help_listener_close(&l);
    scene_close(&s);
}

/* Our connections are cut again and again; before_commit means that nothing is settled unheard. */
static void cut_connections_lose_nothing(void **state)
{
    enum { N = 3000, STEP = 30 };
    struct dice dice = dice_seed("test_redis_bus");
    struct help_listener l;
    struct scene s;
    size_t cuts = 0;

    (void)state;
    scene_open(&s, HEAD ROUTE UNLINK WAITING ONCE PUBSUB WAITING ONCE);
    help_listener_open(&l, &s.server, N);
    make_keys(&s, 0, N);
    for (int i = 0; i < N; i += STEP) {
        tell(&s.world, i, i + STEP);
        if (dice_permille(&dice, 500))
            cuts += (size_t)help_do(s.own, "CLIENT KILL TYPE normal SKIPME yes");
        while (pipeline_watermark(s.world.pipeline, 0) < i - 10 * STEP)
            help_pause(); /* so that it goes on between the cuts */
    }
    assert_true(settled(&s.world, LONG_MS));
    assert_int_equal(pipeline_watermark(s.world.pipeline, 0), N);
    help_wait_heard(&l, 0, N);
    assert_true(cuts > 10);
    assert_int_equal(help_do(s.own, "DBSIZE"), 0);
    help_listener_close(&l);
    scene_close(&s);
}

static void a_frozen_server_delays_and_loses_nothing(void **state)
{
    struct help_listener l;
    struct scene s;

    (void)state;
    scene_open(&s, HEAD ROUTE UNLINK PUBSUB WAITING);
    help_listener_open(&l, &s.server, 200);
    make_keys(&s, 0, 200);
    assert_int_equal(kill(s.server.pid, SIGSTOP), 0);
    tell(&s.world, 0, 200);
    while (notifier_stats(s.world.notifier).up)
        help_pause();
    assert_int_equal(pipeline_watermark(s.world.pipeline, 0), 0);
    assert_int_equal(kill(s.server.pid, SIGCONT), 0);
    assert_true(settled(&s.world, LONG_MS));
    help_wait_heard(&l, 0, 200);
    help_listener_close(&l);
    scene_close(&s);
}

/* The server ends, and comes back empty with new connections: the keys come in, and the repetition
 * reaches the subscriber that was not back yet when the messages came. */
static void a_server_that_comes_back_gets_everything(void **state)
{
    struct help_listener l;
    struct scene s;

    (void)state;
    scene_open(&s, HEAD ROUTE UNLINK PUBSUB "repeat_after = \"2s\"\n");
    help_listener_open(&l, &s.server, 500);
    tell(&s.world, 0, 100);
    help_wait_heard(&l, 0, 100);
    help_stop(&s.server, SIGKILL);
    redisFree(s.own);
    tell(&s.world, 100, 500);
    assert_int_equal(pipeline_watermark(s.world.pipeline, 0),
                     500); /* best effort holds nobody up */
    while (counted(&s.world, "0", "failed") < 3 * 400)
        help_pause();
    assert_true(notifier_stats(s.world.notifier).pending >= 800);
    help_start(&s.server);
    s.own = help_connect(&s.server);
    help_wait_heard(&l, 100, 500);
    assert_int_equal(atomic_load(&l.stale), 0);
    assert_int_equal(counted(&s.world, "0", "dropped"), 0);
    assert_int_equal(counter(&s.world, "idemsink_redis_reconnects_total"), 1);
    help_listener_close(&l);
    scene_close(&s);
}

static void a_replica_refuses_keys_and_takes_messages(void **state)
{
    struct help_listener l;
    struct scene s;

    (void)state;
    scene_open(&s, HEAD ROUTE UNLINK WAITING ONCE PUBSUB);
    help_listener_open(&l, &s.server, 1);
    make_keys(&s, 0, 1);
    (void)help_do(s.own, "REPLICAOF 127.0.0.1 1");
    tell(&s.world, 0, 1);
    help_wait_heard(&l, 0, 1);
    while (counted(&s.world, "0", "failed") < 3)
        help_pause();
    assert_int_equal(pipeline_watermark(s.world.pipeline, 0), 0);
    (void)help_do(s.own, "REPLICAOF NO ONE");
    assert_true(settled(&s.world, LONG_MS));
    assert_int_equal(help_do(s.own, "DBSIZE"), 0);
    help_listener_close(&l);
    scene_close(&s);
}

/* --- generations and streams --- */

static redisReply *ask(struct scene *s, const char *command)
{
    redisReply *reply = redisCommand(s->own, command);

    CHECK(reply && reply->type != REDIS_REPLY_ERROR, "%s: %s", command,
          reply ? reply->str : s->own->errstr);
    return reply;
}

/* What GET says, as a number; 0: nothing is there. */
static long long number_at(struct scene *s, const char *key)
{
    char command[64];
    (void)snprintf(command, sizeof command, "GET %s", key);
    redisReply *reply = ask(s, command);
    long long n = reply->type == REDIS_REPLY_STRING ? strtoll(reply->str, NULL, 10) : 0;
    freeReplyObject(reply);
    return n;
}

/* How many different {"id":N} the stream s has in its field "payload"; N below MAX_IDS. */
enum { MAX_IDS = 4000 };
static size_t ids_in_stream(struct scene *s)
{
    static bool seen[MAX_IDS];
    redisReply *entries = ask(s, "XRANGE s - +");
    size_t n = 0;
    int id;

    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < entries->elements; i++) {
        const redisReply *fields = entries->element[i]->element[1];
        assert_int_equal(fields->elements, 2);
        assert_string_equal(fields->element[0]->str, "payload");
        assert_int_equal(sscanf(fields->element[1]->str, "{\"id\":%d}", &id), 1);
        assert_in_range(id, 0, MAX_IDS - 1);
        n += !seen[id];
        seen[id] = true;
    }
    freeReplyObject(entries);
    return n;
}

/* Our connections are cut again and again: whoever was away finds all of it afterwards, in the
 * stream and in the generations. */
static void cuts_lose_no_generation_and_no_entry(void **state)
{
    enum { N = 2000, STEP = 40 };
    struct dice dice = dice_seed("test_redis_bus streams");
    struct scene s;
    size_t cuts = 0;
    char key[32];

    (void)state;
    scene_open(&s, HEAD ROUTE STREAM "maxlen = 100000\n" WAITING ONCE VERSION WAITING ONCE VERSION
                                     "expire = \"1h\"\n" WAITING ONCE);
    for (int i = 0; i < N; i += STEP) {
        tell(&s.world, i, i + STEP);
        if (dice_permille(&dice, 400))
            cuts += (size_t)help_do(s.own, "CLIENT KILL TYPE normal SKIPME yes");
        while (pipeline_watermark(s.world.pipeline, 0) < i - 10 * STEP)
            help_pause();
    }
    assert_true(settled(&s.world, LONG_MS));
    assert_int_equal(pipeline_watermark(s.world.pipeline, 0), N);
    assert_true(cuts > 5);
    assert_int_equal(ids_in_stream(&s), N);
    for (int i = 0; i < N; i++) {
        (void)snprintf(key, sizeof key, "g:%d", i);
        assert_true(number_at(&s, key) >= 2); /* both rules' */
    }
    scene_close(&s);
}

static bool send_one(struct scene *s, struct invalidation m, struct err *e)
{
    uint64_t receivers;
    bool sent;

    *e = (struct err){.kind = ERR_NONE};
    return s->bus.ops->send(s->bus.self, &m, 1, &sent, &receivers, e) && sent;
}

static char g[] = "g", st[] = "st", empty[] = "{}";

static void a_generation_counts_and_never_comes_again(void **state)
{
    const struct invalidation plain = {.kind = INVALIDATION_INCR, .name = g};
    const struct invalidation mortal = {.kind = INVALIDATION_INCR, .name = g, .expire_ms = 3600000};
    long long first;
    struct scene s;
    struct err e;

    (void)state;
    scene_open(&s, HEAD ROUTE UNLINK);
    for (int i = 1; i <= 3; i++) {
        assert_true(send_one(&s, plain, &e));
        assert_int_equal(number_at(&s, g), i);
    }
    assert_int_equal(help_do(s.own, "PTTL g"), -1);
    assert_true(send_one(&s, mortal, &e)); /* the rule was changed: it goes on, and gets an end */
    assert_int_equal(number_at(&s, g), 4);
    assert_in_range(help_do(s.own, "PTTL g"), 3600000 - LONG_MS, 3600000);
    (void)help_do(s.own, "DEL g");
    assert_true(send_one(&s, mortal, &e));
    first = number_at(&s, g);
    assert_true(first > clock_wall_ms() * 1000 - LONG_MS * 1000LL);
    (void)help_do(s.own, "PEXPIRE g 1000");
    assert_true(send_one(&s, mortal, &e));
    assert_int_equal(number_at(&s, g), first + 1);
    assert_in_range(help_do(s.own, "PTTL g"), 3600000 - LONG_MS, 3600000); /* each change counts */
    (void)help_do(s.own, "PEXPIRE g 1");
    while (help_do(s.own, "EXISTS g"))
        help_pause();
    assert_true(send_one(&s, mortal, &e));
    assert_true(number_at(&s, g) > first + 1);
    scene_close(&s);
}

static void a_stream_keeps_about_its_length(void **state)
{
    struct scene s;

    (void)state;
    scene_open(&s, HEAD ROUTE STREAM "maxlen = 150\n" WAITING ONCE);
    tell(&s.world, 0, 2000);
    assert_true(settled(&s.world, LONG_MS));
    assert_in_range(help_do(s.own, "XLEN s"), 150, 400); /* whole nodes of 100 go */
    assert_in_range(ids_in_stream(&s), 150, 400);
    scene_close(&s);
}

/* One name that something else has: its record waits, the others don't, until somebody clears up.
 */
static void what_has_the_name_holds_up_itself_alone(void **state)
{
    struct scene s;

    (void)state;
    scene_open(&s, HEAD ROUTE VERSION WAITING ONCE VERSION "expire = \"1h\"\n" STREAM WAITING ONCE);
    (void)help_do(s.own, "LPUSH g:1 x");
    (void)help_do(s.own, "SET s x");
    tell(&s.world, 0, 3);
    while (counted(&s.world, "0", "failed") < 3 || counted(&s.world, "1", "failed") < 3 ||
           counted(&s.world, "2", "failed") < 9)
        help_pause();
    assert_int_equal(number_at(&s, "g:0"), 2);
    assert_int_equal(number_at(&s, "g:2"), 2);
    assert_true(notifier_stats(s.world.notifier).up);
    assert_int_equal(pipeline_watermark(s.world.pipeline, 0), 0);
    (void)help_do(s.own, "DEL s");
    while (pipeline_watermark(s.world.pipeline, 0) < 1)
        help_pause();
    (void)help_do(s.own, "DEL g:1");
    assert_true(settled(&s.world, LONG_MS));
    assert_int_equal(ids_in_stream(&s), 3);
    scene_close(&s);
}

static void check_refused(struct scene *s, struct invalidation m, const char *text)
{
    struct err e;

    assert_false(send_one(s, m, &e));
    assert_int_equal(e.kind, ERR_CONFIG);
    if (!strstr(e.text, text))
        fail_msg("%s", e.text);
}

/* The sentences that a real server's refusals become. */
static void refusals_of_generations_and_streams(void **state)
{
    const struct invalidation plain = {.kind = INVALIDATION_INCR, .name = g},
                              mortal = {.kind = INVALIDATION_INCR, .name = g, .expire_ms = 60000},
                              entry = {.kind = INVALIDATION_XADD,
                                       .name = st,
                                       .body = empty,
                                       .maxlen = 10};
    struct scene s;

    (void)state;
    scene_open(&s, HEAD ROUTE UNLINK);
    (void)help_do(s.own, "SET g text");
    check_refused(&s, plain, "no number");
    check_refused(&s, mortal, "no number");
    (void)help_do(s.own, "SET g 9223372036854775807");
    check_refused(&s, plain, "remove the key");
    (void)help_do(s.own, "REPLICAOF 127.0.0.1 1");
    check_refused(&s, plain, "replica");
    check_refused(&s, mortal, "replica");
    check_refused(&s, entry, "replica");
    (void)help_do(s.own, "REPLICAOF NO ONE");
    (void)help_do(s.own, "DEL g");
    (void)help_do(s.own, "ACL SETUSER me on >pw ~g* +eval +incr +pexpire");
    assert_true(world_close(&s.world, 0, LONG_MS));
    redis_bus_free(&s.bus);
    mem_free(s.config.redis.uri);
    scene_redis(&s, mem_printf("unix://me:pw@%s", s.server.socket));
    world_open(&s.world, HEAD ROUTE UNLINK, s.bus);
    check_refused(&s, mortal, "+eval +set +incr +pexpire");
    check_refused(&s, entry, "ACL");
    assert_int_equal(help_do(s.own, "EXISTS g"), 0); /* all of it or nothing */
    (void)help_do(s.own, "ACL SETUSER me +set ~st +xadd");
    struct err e;
    assert_true(send_one(&s, plain, &e));
    assert_true(send_one(&s, mortal, &e));
    assert_true(send_one(&s, entry, &e));
    scene_close(&s);
}

static void check_ping(struct scene *s, char *uri, bool ok, enum err_kind kind)
{
    struct err e = {.kind = ERR_NONE};
    struct config c = {.redis = {.uri = uri, .timeout_ms = TIMEOUT_MS}};

    (void)s;
    if (redis_ping(&c, &e) != ok || e.kind != kind)
        fail_msg("%s: %s: %s", uri, err_kind_name(e.kind), e.text);
    assert_null(strstr(e.text, "sesame"));
    mem_free(uri);
}

static void credentials_and_databases(void **state)
{
    struct help_server *server;
    struct scene s;

    (void)state;
    scene_open(&s, HEAD ROUTE UNLINK);
    server = &s.server;
    check_ping(&s, mem_printf("redis://localhost:%d/15", server->port), true, ERR_NONE);
    check_ping(&s, mem_printf("unix://%s?db=3", server->socket), true, ERR_NONE);
    check_ping(&s, mem_printf("redis://127.0.0.1:%d/99", server->port), false, ERR_CONFIG);
    check_ping(&s, mem_printf("redis://:sesame@127.0.0.1:%d", server->port), false, ERR_AUTH);
    (void)help_do(s.own, "ACL SETUSER me on >open:sesame/%% ~k:* +unlink +publish +ping +select");
    check_ping(&s, mem_printf("redis://me:open%%3Asesame%%2f%%25@127.0.0.1:%d/1", server->port),
               true, ERR_NONE);
    check_ping(&s, mem_printf("redis://me:sesame@127.0.0.1:%d", server->port), false, ERR_AUTH);
    check_ping(&s, mem_printf("unix://me:sesame@%s", server->socket), false, ERR_AUTH);
    (void)help_do(s.own, "CONFIG SET requirepass sesame");
    check_ping(&s, mem_printf("redis://127.0.0.1:%d", server->port), false, ERR_AUTH);
    check_ping(&s, mem_printf("redis://:sesame@127.0.0.1:%d", server->port), true, ERR_NONE);
    check_ping(&s, mem_printf("redis://default:sesame@127.0.0.1:%d", server->port), true, ERR_NONE);
    scene_close(&s);
}

static void rights_are_told_without_names(void **state)
{
    static char name[] = "secret-name", body[] = "secret-body";
    const struct invalidation messages[] = {
        {.kind = INVALIDATION_UNLINK, .name = name},
        {.kind = INVALIDATION_PUBLISH, .name = name, .body = body}};
    struct err e = {.kind = ERR_NONE};
    uint64_t receivers;
    struct scene s;
    bool sent[2];

    (void)state;
    scene_open(&s, HEAD ROUTE UNLINK);
    (void)help_do(s.own, "ACL SETUSER me on >pw ~k:* resetchannels &c +unlink +publish");
    redis_bus_free(&s.bus);
    mem_free(s.config.redis.uri);
    assert_true(world_close(&s.world, 0, LONG_MS));
    scene_redis(&s, mem_printf("unix://me:pw@%s", s.server.socket));
    world_open(&s.world, HEAD ROUTE UNLINK, s.bus);
    assert_false(s.bus.ops->send(s.bus.self, messages, 2, sent, &receivers, &e));
    assert_int_equal(e.kind, ERR_CONFIG);
    assert_non_null(strstr(e.text, "NOPERM"));
    assert_null(strstr(e.text, "secret"));
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_gone_when_the_message_comes),
        cmocka_unit_test(cut_connections_lose_nothing),
        cmocka_unit_test(a_frozen_server_delays_and_loses_nothing),
        cmocka_unit_test(a_server_that_comes_back_gets_everything),
        cmocka_unit_test(a_replica_refuses_keys_and_takes_messages),
        cmocka_unit_test(cuts_lose_no_generation_and_no_entry),
        cmocka_unit_test(a_generation_counts_and_never_comes_again),
        cmocka_unit_test(a_stream_keeps_about_its_length),
        cmocka_unit_test(what_has_the_name_holds_up_itself_alone),
        cmocka_unit_test(refusals_of_generations_and_streams),
        cmocka_unit_test(credentials_and_databases),
        cmocka_unit_test(rights_are_told_without_names),
    };

    const struct sigaction ignore = {.sa_handler = SIG_IGN};

    (void)sigaction(SIGPIPE, &ignore, NULL); /* for the test's own connections */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
