/*
 * test_redis_lock.c - the lock port against a server that answers what the test wants.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/redis.h"
#include "io/redis_private.h"
#include "mock/resp_server.h"

enum { TIMEOUT_MS = 300, MOST = 3 };

#define RENEW   "EVALSHA " REDIS_LOCK_RENEW_SHA1 " 1 "
#define RELEASE "EVALSHA " REDIS_LOCK_RELEASE_SHA1 " 1 "

static const char *const keys[MOST] = {"p:a", "p:b", "p:c"};
static const struct lock_set set = {.token = "tok", .ttl_ms = 9000, .keys = keys, .n = MOST};

struct world {
    struct resp_server *server;
    struct config config;
    struct lock lock;
    void *session;
    struct err e;
    bool yes[MOST];
};

static void world_open(struct world *w, const char *const *script)
{
    *w = (struct world){.server = resp_server_start(NULL, script)};
    w->config.redis.uri = mem_printf("redis://127.0.0.1:%d", w->server->port);
    w->config.redis.timeout_ms = TIMEOUT_MS;
    assert_true(redis_lock_new(&w->config, &w->lock, &w->e));
    w->session = w->lock.ops->open(w->lock.self);
}

static void world_close(struct world *w)
{
    w->lock.ops->close(w->session);
    mem_free(w->config.redis.uri);
    resp_server_stop(w->server);
}

static void assert_seen(struct world *w, const char *expected)
{
    struct buf seen = resp_server_seen(w->server);

    assert_string_equal(buf_text(&seen), expected);
    buf_clear(&seen);
}

static void assert_yes(const struct world *w, bool a, bool b, bool c)
{
    assert_int_equal(w->yes[0], a);
    assert_int_equal(w->yes[1], b);
    assert_int_equal(w->yes[2], c);
}

static bool take(struct world *w)
{
    return w->lock.ops->take(w->session, &set, w->yes, &w->e);
}

static bool renew(struct world *w)
{
    return w->lock.ops->renew(w->session, &set, w->yes, &w->e);
}

static bool release(struct world *w)
{
    return w->lock.ops->release(w->session, &set, w->yes, &w->e);
}

static void what_is_nobodys_is_taken(void **state)
{
    static const char *const script[] = {"+OK\r\n", "$-1\r\n", "+OK\r\n", NULL};
    struct world w;

    (void)state;
    world_open(&w, script);
    assert_true(take(&w));
    assert_yes(&w, true, false, true);
    /* As monSQLize's acquireLock() sends it. */
    assert_seen(&w, "SET p:a tok PX 9000 NX|SET p:b tok PX 9000 NX|SET p:c tok PX 9000 NX|");
    world_close(&w);
}

static void scripts_are_called_by_name(void **state)
{
    static const char *const script[] = {":1\r\n", ":0\r\n", ":1\r\n", ":0\r\n",
                                         ":1\r\n", ":1\r\n", NULL};
    struct world w;

    (void)state;
    world_open(&w, script);
    assert_true(renew(&w));
    assert_yes(&w, true, false, true);
    assert_seen(&w, RENEW "p:a tok 9000|" RENEW "p:b tok 9000|" RENEW "p:c tok 9000|");
    assert_true(release(&w));
    assert_yes(&w, false, true, true);
    assert_seen(&w, RELEASE "p:a tok|" RELEASE "p:b tok|" RELEASE "p:c tok|");
    assert_int_equal(resp_server_connections(w.server), 1);
    world_close(&w);
}

static void an_unknown_script_is_sent(void **state)
{
    static const char *const script[] = {"-NOSCRIPT No matching script.\r\n",
                                         ":0\r\n",
                                         "-NOSCRIPT No matching script.\r\n",
                                         ":1\r\n",
                                         ":1\r\n",
                                         NULL};
    struct world w;

    (void)state;
    world_open(&w, script);
    assert_true(release(&w));
    assert_yes(&w, true, false, true);
    assert_seen(&w, RELEASE "p:a tok|" RELEASE "p:b tok|" RELEASE "p:c tok|EVAL " REDIS_LOCK_RELEASE
                            " 1 p:a tok|EVAL " REDIS_LOCK_RELEASE " 1 p:c tok|");
    world_close(&w);
}

/* The server closed the connection while it lay idle: no outage. Whether the first attempt arrived
 * nobody knows, so a key that has our token counts as taken. */
static void an_idle_connection_that_was_closed(void **state)
{
    static const char *const script[] = {":1\r\n",  ":1\r\n", "!after::1\r\n", "+OK\r\n", "$-1\r\n",
                                         "$-1\r\n", ":1\r\n", ":1\r\n",        ":0\r\n",  NULL};
    struct world w;

    (void)state;
    world_open(&w, script);
    assert_true(renew(&w));
    assert_true(take(&w));
    assert_yes(&w, true, true, false);
    assert_int_equal(resp_server_connections(w.server), 2);
    world_close(&w);
}

static void nothing_is_known_after_a_fault(void **state)
{
    static const char *const scripts[][4] = {
        {"+OK\r\n", "!close", NULL}, {"+OK\r\n", "!half", NULL}, {"+OK\r\n", "!hang", NULL}};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct world w;
        int64_t start_ms = clock_mono_ms();

        world_open(&w, scripts[i]);
        assert_false(take(&w));
        assert_int_equal(w.e.kind, ERR_TRANSIENT);
        assert_in_range(clock_mono_ms() - start_ms, 0, 20 * TIMEOUT_MS);
        world_close(&w);
    }
}

static void a_refusal_says_what_to_do(void **state)
{
    static const struct {
        const char *answer;
        enum err_kind kind;
        const char *part;
    } cases[] = {
        {"-READONLY You can't write against a read only replica.\r\n", ERR_CONFIG, "primary"},
        {"-NOPERM this user has no permissions\r\n", ERR_CONFIG, "ACL"},
        {"-OOM command not allowed\r\n", ERR_CONFIG, "maxmemory"},
        {"-LOADING Redis is loading\r\n", ERR_TRANSIENT, "loading"},
        {":7\r\n", ERR_TRANSIENT, "not one of a lock"},
        {"+QUEUED\r\n", ERR_TRANSIENT, "not one of a lock"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *script[] = {cases[i].answer, "+OK\r\n", "+OK\r\n", "+OK\r\n",
                                "+OK\r\n",       "+OK\r\n", NULL};
        struct world w;

        world_open(&w, script);
        assert_false(take(&w));
        assert_int_equal(w.e.kind, cases[i].kind);
        if (strstr(w.e.text, cases[i].part) == NULL)
            fail_msg("%s: %s", cases[i].answer, w.e.text);
        assert_true(take(&w)); /* over a connection of its own */
        assert_yes(&w, true, true, true);
        assert_int_equal(resp_server_connections(w.server), 2);
        world_close(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_nobodys_is_taken),
        cmocka_unit_test(scripts_are_called_by_name),
        cmocka_unit_test(an_unknown_script_is_sent),
        cmocka_unit_test(an_idle_connection_that_was_closed),
        cmocka_unit_test(nothing_is_known_after_a_fault),
        cmocka_unit_test(a_refusal_says_what_to_do),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
