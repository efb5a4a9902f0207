/*
 * test_redis.c - the bus against a server that answers what the test wants; and the URIs.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/redis.h"
#include "io/redis_private.h"
#include "mock/resp_server.h"

enum { TIMEOUT_MS = 300, MOST = 8 };

struct session {
    struct resp_server *server;
    struct config config;
    struct bus bus;
    struct err e;
    bool sent[MOST];
    uint64_t receivers;
};

static void open_uri(struct session *s, char *uri)
{
    s->config.redis.uri = uri; /* taken */
    s->config.redis.timeout_ms = TIMEOUT_MS;
    if (!redis_bus_new(&s->config, &s->bus, &s->e))
        fail_msg("%s", s->e.text);
}

static void session_open(struct session *s, const char *user_info, const char *behind,
                         const char *const *script)
{
    *s = (struct session){.server = resp_server_start(NULL, script)};
    open_uri(s, mem_printf("redis://%s127.0.0.1:%d%s", user_info, s->server->port, behind));
}

static void session_close(struct session *s)
{
    redis_bus_free(&s->bus);
    assert_null(s->bus.ops);
    mem_free(s->config.redis.uri);
    resp_server_stop(s->server);
}

static bool send_all(struct session *s, const struct invalidation *messages, size_t n)
{
    s->e = (struct err){.kind = ERR_NONE};
    return s->bus.ops->send(s->bus.self, messages, n, s->sent, &s->receivers, &s->e);
}

static char text_a[] = "a", text_b[] = "b", text_c[] = "c", text_x[] = "secret-body";
static const struct invalidation three[] = {
    {.kind = INVALIDATION_PUBLISH, .name = text_c, .body = text_x},
    {.kind = INVALIDATION_UNLINK, .name = text_a},
    {.kind = INVALIDATION_UNLINK, .name = text_b},
};

static bool send_three(struct session *s)
{
    return send_all(s, three, 3);
}

static void assert_sent(const struct session *s, bool publish, bool a, bool b)
{
    assert_int_equal(s->sent[0], publish);
    assert_int_equal(s->sent[1], a);
    assert_int_equal(s->sent[2], b);
}

static void assert_seen(struct session *s, const char *expected)
{
    struct buf seen = resp_server_seen(s->server);

    assert_string_equal(buf_text(&seen), expected);
    buf_clear(&seen);
}

/* --- URIs --- */

static void uris_are_understood(void **state)
{
    static const struct {
        const char *uri, *host, *path, *user, *password;
        int port, db;
    } cases[] = {
        {"redis://h", "h", NULL, NULL, NULL, 6379, 0},
        {"redis://", "localhost", NULL, NULL, NULL, 6379, 0},
        {"redis://h:7000/3", "h", NULL, NULL, NULL, 7000, 3},
        {"redis://h/", "h", NULL, NULL, NULL, 6379, 0},
        {"redis://h?db=5", "h", NULL, NULL, NULL, 6379, 5},
        {"redis://:pw@h:1", "h", NULL, NULL, "pw", 1, 0},
        {"redis://me:pw@[::1]:65535/15", "::1", NULL, "me", "pw", 65535, 15},
        {"redis://m%40e:p%3A%2f%25w:x@h", "h", NULL, "m@e", "p:/%w:x", 6379, 0},
        {"redis://me:p@w@h", "h", NULL, "me", "p@w", 6379, 0},
        {"redis://me:@h", "h", NULL, "me", "", 6379, 0},
        {"unix:///run/r.sock", NULL, "/run/r.sock", NULL, NULL, 0, 0},
        {"unix://me:pw@/run/r.sock?db=2", NULL, "/run/r.sock", "me", "pw", 0, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct redis_uri u;
        struct err e = {0};
        if (!redis_uri_parse(cases[i].uri, &u, &e))
            fail_msg("%s: %s", cases[i].uri, e.text);
        const char *got[] = {u.host, u.path, u.user, u.password};
        const char *want[] = {cases[i].host, cases[i].path, cases[i].user, cases[i].password};
        for (size_t k = 0; k < 4; k++) {
            assert_int_equal(got[k] == NULL, want[k] == NULL);
            if (want[k])
                assert_string_equal(got[k], want[k]);
        }
        assert_int_equal(u.port, cases[i].port);
        assert_int_equal(u.db, cases[i].db);
        redis_uri_clear(&u);
    }
}

static void wrong_uris_are_refused_without_their_password(void **state)
{
    static const char *const cases[] = {
        "",
        "h:6379",
        "http://h",
        "redis://me:sesame@h:x",
        "redis://h:0",
        "redis://h:65536",
        "redis://h:",
        "redis://h/x",
        "redis://h/1/2",
        "redis://sesame@h",
        "redis://:sesame%4@h",
        "redis://:sesame%zz@h",
        "redis://:sesame%00@h",
        "redis://:ses/ame@h",
        "redis://:ses#ame@h",
        "redis://[::1:6379",
        "redis://h?x=1",
        "redis://h?db=",
        "redis://h?cacert=/x",
        "unix://",
        "unix://sesame",
        "unix:///",
        "redis://h#x",
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct redis_uri u;
        struct err e = {0};
        if (redis_uri_parse(cases[i], &u, &e))
            fail_msg("%s is taken", cases[i]);
        assert_int_equal(e.kind, ERR_CONFIG);
        assert_non_null(strstr(e.text, "redis.uri"));
        assert_null(strstr(e.text, "ses"));
    }
}

#ifndef IDEMSINK_REDIS_TLS
static void tls_is_refused_where_there_is_none(void **state)
{
    char uri[] = "rediss://:sesame@h";
    struct config c = {.redis = {.uri = uri, .timeout_ms = 100}};
    struct bus bus = {0};
    struct err e = {0};

    (void)state;
    assert_false(redis_bus_new(&c, &bus, &e));
    assert_int_equal(e.kind, ERR_CONFIG);
    assert_non_null(strstr(e.text, "TLS"));
    assert_null(strstr(e.text, "sesame"));
    assert_false(redis_ping(&c, &e));
}
#endif

/* --- sending --- */

static void unlinks_go_first_and_receivers_add_up(void **state)
{
    static const char *const script[] = {":1\r\n", ":0\r\n", ":7\r\n", NULL};
    struct session s;

    (void)state;
    session_open(&s, "", "", script);
    assert_true(send_three(&s));
    assert_sent(&s, true, true, true);
    assert_int_equal(s.receivers, 7); /* the UNLINK's 1 is a key, not a receiver */
    assert_seen(&s, "UNLINK a|UNLINK b|PUBLISH c secret-body|");
    assert_true(send_three(&s));
    assert_int_equal(resp_server_connections(s.server), 1);
    session_close(&s);
}

/* One of each kind, the ones that go first behind the others. */
static const struct invalidation every[] = {
    {.kind = INVALIDATION_XADD, .name = text_c, .body = text_x, .maxlen = 500},
    {.kind = INVALIDATION_PUBLISH, .name = text_c, .body = text_x},
    {.kind = INVALIDATION_INCR, .name = text_a},
    {.kind = INVALIDATION_UNLINK, .name = text_b},
};

static void every_kind_has_its_command_and_its_answer(void **state)
{
    static const char *const script[] = {":5\r\n", ":1\r\n", "$3\r\n1-0\r\n", ":7\r\n", NULL};
    struct session s;

    (void)state;
    session_open(&s, "", "", script);
    assert_true(send_all(&s, every, 4));
    for (size_t i = 0; i < 4; i++)
        assert_true(s.sent[i]);
    assert_int_equal(s.receivers, 7); /* of PUBLISH alone */
    assert_seen(&s, "INCR a|UNLINK b|XADD c MAXLEN ~ 500 * payload secret-body|"
                    "PUBLISH c secret-body|");
    session_close(&s);
}

static void a_generation_that_expires_begins_with_the_time(void **state)
{
    const struct invalidation one = {
        .kind = INVALIDATION_INCR, .name = text_a, .expire_ms = 3600000};
    const char *const script[] = {":1790000000000001\r\n", NULL};
    int64_t from_us = clock_wall_ms() * 1000, start_us = 0;
    struct session s;

    (void)state;
    session_open(&s, "", "", script);
    assert_true(send_all(&s, &one, 1));
    assert_true(s.sent[0]);
    struct buf seen = resp_server_seen(s.server);
    const char *script_of = "EVAL redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) local "
                            "n=redis.call('INCR',KEYS[1]) redis.call('PEXPIRE',KEYS[1],ARGV[2]) "
                            "return n 1 a ";
    assert_memory_equal(buf_text(&seen), script_of, strlen(script_of));
    assert_int_equal(sscanf(buf_text(&seen) + strlen(script_of), "%" SCNd64 " 3600000|", &start_us),
                     1);
    assert_true(start_us >= from_us && start_us <= clock_wall_ms() * 1000);
    buf_clear(&seen);
    session_close(&s);
}

/* What one of a kind is refused keeps nobody back, and the connection stays. */
static void one_that_is_refused_holds_up_no_other(void **state)
{
    static const char *const script[] = {
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", ":1\r\n",
        "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n", ":0\r\n", NULL};
    static const char *const again[] = {":1\r\n", ":1\r\n", ":1\r\n", ":1\r\n", NULL};
    struct session s;

    (void)state;
    session_open(&s, "", "", script);
    assert_false(send_all(&s, every, 4));
    assert_false(s.sent[0] || s.sent[2]);
    assert_true(s.sent[1] && s.sent[3]);
    assert_int_equal(s.e.kind, ERR_CONFIG);
    assert_non_null(strstr(s.e.text, "INCR refused with WRONGTYPE: what has this name already"));
    resp_server_script(s.server, again);
    assert_false(send_all(&s, every, 4)); /* a number is no id of an entry */
    assert_false(s.sent[0]);
    assert_true(s.sent[1] && s.sent[2] && s.sent[3]);
    assert_non_null(strstr(s.e.text, "XADD: the answer is not the id of an entry"));
    assert_int_equal(resp_server_connections(s.server), 1);
    session_close(&s);
}

static void greets_with_user_password_and_database(void **state)
{
    static const char *const script[] = {"+OK\r\n", "+OK\r\n", NULL};
    struct session s;

    (void)state;
    session_open(&s, "me:p%20w@", "/4", script);
    assert_true(send_three(&s));
    assert_seen(&s, "AUTH me p w|SELECT 4|UNLINK a|UNLINK b|PUBLISH c secret-body|");
    session_close(&s);
    session_open(&s, ":pw@", "", script);
    assert_true(redis_ping(&s.config, &s.e));
    assert_seen(&s, "AUTH pw|PING|");
    session_close(&s);
}

static void unix_sockets_are_spoken_to(void **state)
{
    char dir[] = "/tmp/idemsink-redis-XXXXXX";
    struct session s = {0};

    (void)state;
    assert_non_null(mkdtemp(dir));
    char *path = mem_printf("%s/r.sock", dir);
    s.server = resp_server_start(path, NULL);
    open_uri(&s, mem_printf("unix://%s", path));
    assert_true(send_three(&s));
    session_close(&s);
    (void)unlink(path);
    (void)rmdir(dir);
    mem_free(path);
}

/* One answer to the first command, and what must come of it. */
static void check_refusal(const char *user_info, const char *answer, enum err_kind kind,
                          const char *text)
{
    const char *const script[] = {answer, NULL};
    struct session s;

    session_open(&s, user_info, "", script);
    assert_false(send_three(&s));
    if (s.e.kind != kind || !strstr(s.e.text, text))
        fail_msg("%s gives %s: %s", answer, err_kind_name(s.e.kind), s.e.text);
    assert_null(strstr(s.e.text, "secret"));
    assert_null(strstr(s.e.text, "sesame"));
    assert_false(s.sent[1]);
    session_close(&s);
}

static void refusals_say_what_to_do(void **state)
{
    (void)state;
    check_refusal(":sesame@", "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
                  ERR_AUTH, "wrong");
    check_refusal(":sesame@", "-ERR Client sent AUTH, but no password is set\r\n", ERR_AUTH,
                  "AUTH");
    check_refusal("", "-NOAUTH Authentication required.\r\n", ERR_AUTH, "password");
    check_refusal("", "-READONLY You can't write against a read only replica.\r\n", ERR_CONFIG,
                  "replica");
    check_refusal("", "-NOPERM this user has no permissions to access the 'secret' key\r\n",
                  ERR_CONFIG, "ACL");
    check_refusal("", "-MOVED 3999 127.0.0.1:6381\r\n", ERR_CONFIG, "cluster");
    check_refusal("", "-LOADING Redis is loading the dataset in memory\r\n", ERR_TRANSIENT,
                  "loading");
    check_refusal("", "-ERR unknown command 'UNLINK', with args beginning with: 'secret' \r\n",
                  ERR_CONFIG, "Redis 4");
    check_refusal("", "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n",
                  ERR_CONFIG, "something else");
    check_refusal("", "-ERR value is not an integer or out of range\r\n", ERR_CONFIG, "no number");
    check_refusal("", "-ERR increment or decrement would overflow\r\n", ERR_CONFIG,
                  "remove the key");
    /* Of scripts: as Redis 7.2 and 7.0 say it, and as those before did. */
    check_refusal("", "-ERR ACL failure in script: User me has no permissions to run\r\n",
                  ERR_CONFIG, "+eval");
    check_refusal("", "-ERR The user executing the script can't run this command script: f1\r\n",
                  ERR_CONFIG, "+eval");
    check_refusal("", "-READONLY You can't write against a read only replica. script: f1\r\n",
                  ERR_CONFIG, "replica");
    check_refusal("",
                  "-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: "
                  "-READONLY You can't write against a read only replica.\r\n",
                  ERR_CONFIG, "replica");
    check_refusal("",
                  "-ERR Error running script (call to f_1): @user_script:1: WRONGTYPE Operation "
                  "against a key\r\n",
                  ERR_CONFIG, "something else");
    check_refusal("", "-ERR something about secret\r\n", ERR_CONFIG, "refused with ERR");
    check_refusal("", "!after:-ERR max number of clients reached\r\n", ERR_TRANSIENT, "maxclients");
}

static void a_replica_takes_the_publish_and_is_left(void **state)
{
    static const char *const script[] = {"-READONLY no\r\n", "-READONLY no\r\n", ":3\r\n", NULL};
    struct session s;

    (void)state;
    session_open(&s, "", "", script);
    assert_false(send_three(&s));
    assert_sent(&s, true, false, false);
    assert_int_equal(s.receivers, 3);
    assert_true(send_three(&s)); /* over a new connection: perhaps there is a new primary */
    assert_int_equal(resp_server_connections(s.server), 2);
    session_close(&s);
}

static void no_answer_ends_in_time(void **state)
{
    static const char *const silent[] = {"!hang", NULL};
    static const char *const in_the_middle[] = {":1\r\n", "!hang", "!hang", NULL};
    struct session s;

    (void)state;
    session_open(&s, ":pw@", "", silent);
    int64_t from_ms = clock_mono_ms();
    assert_false(send_three(&s));
    assert_true(clock_mono_ms() - from_ms < 10 * TIMEOUT_MS);
    assert_int_equal(s.e.kind, ERR_TRANSIENT);
    assert_int_equal(s.e.code, ETIMEDOUT);
    session_close(&s);
    session_open(&s, "", "", in_the_middle);
    assert_false(send_three(&s));
    assert_sent(&s, false, true, false);
    assert_non_null(strstr(s.e.text, "no answer within 300 ms"));
    session_close(&s);
}

static void a_lost_connection_fails_what_was_not_answered(void **state)
{
    static const char *const scripts[][4] = {
        {":1\r\n", "!close", NULL},
        {":1\r\n", "!half", NULL},
        {":1\r\n", "hello\r\n", NULL},
    };
    struct session s;

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        session_open(&s, "", "", scripts[i]);
        assert_false(send_three(&s));
        assert_sent(&s, false, true, false);
        assert_int_equal(s.e.kind, ERR_TRANSIENT);
        resp_server_script(s.server, NULL);
        assert_true(send_three(&s));
        assert_sent(&s, true, true, true);
        session_close(&s);
    }
}

static void an_answer_that_is_no_number_is_not_taken_for_one(void **state)
{
    static const char *const script[] = {":1\r\n", "+OK\r\n", ":1\r\n", NULL};
    struct session s;

    (void)state;
    session_open(&s, "", "", script);
    assert_false(send_three(&s));
    assert_sent(&s, true, true, false);
    assert_int_equal(s.e.kind, ERR_TRANSIENT);
    session_close(&s);
}

/* A connection that the server closed while it lay idle is no outage; and SIGPIPE kills nobody. */
static void an_idle_connection_may_be_closed(void **state)
{
    static const char *const script[] = {":1\r\n", ":1\r\n", "!after::1\r\n", NULL};
    struct session s;

    (void)state;
    session_open(&s, "", "", script);
    assert_true(send_three(&s));
    assert_true(send_three(&s));
    assert_sent(&s, true, true, true);
    assert_int_equal(s.e.kind, ERR_NONE);
    assert_int_equal(resp_server_connections(s.server), 2);
    session_close(&s);
}

/* The first write to a peer that has gone is answered with a reset, the second raises SIGPIPE. */
static void a_big_set_to_a_dead_peer_kills_nobody(void **state)
{
    enum { BIG = 16 * 1024 * 1024 };
    static const char *const script[] = {":1\r\n", ":1\r\n", "!after::1\r\n", "!close", NULL};
    char *body = mem_new(BIG);
    struct invalidation big[2] = {{.kind = INVALIDATION_UNLINK, .name = text_a},
                                  {.kind = INVALIDATION_PUBLISH, .name = text_c, .body = body}};
    struct session s;

    (void)state;
    memset(body, 'x', BIG - 1);
    session_open(&s, "", "", script);
    assert_true(send_three(&s));
    assert_false(s.bus.ops->send(s.bus.self, big, 2, s.sent, &s.receivers, &s.e));
    assert_int_equal(s.e.kind, ERR_TRANSIENT);
    session_close(&s);
    mem_free(body);
}

static void what_stops_everything_is_told_first(void **state)
{
    static const char *const script[] = {"-READONLY no\r\n", "-LOADING wait\r\n", NULL};
    struct session s;

    (void)state;
    session_open(&s, "", "", script);
    assert_false(send_three(&s));
    assert_int_equal(s.e.kind, ERR_TRANSIENT);
    assert_non_null(strstr(s.e.text, "LOADING"));
    session_close(&s);
}

static void nobody_listens(void **state)
{
    struct session s;

    (void)state;
    session_open(&s, "", "", NULL);
    resp_server_stop(s.server);
    assert_false(send_three(&s));
    assert_int_equal(s.e.kind, ERR_TRANSIENT);
    assert_non_null(strstr(s.e.text, "127.0.0.1:"));
    assert_false(redis_ping(&s.config, &s.e));
    redis_bus_free(&s.bus);
    mem_free(s.config.redis.uri);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uris_are_understood),
        cmocka_unit_test(wrong_uris_are_refused_without_their_password),
#ifndef IDEMSINK_REDIS_TLS
        cmocka_unit_test(tls_is_refused_where_there_is_none),
#endif
        cmocka_unit_test(unlinks_go_first_and_receivers_add_up),
        cmocka_unit_test(every_kind_has_its_command_and_its_answer),
        cmocka_unit_test(a_generation_that_expires_begins_with_the_time),
        cmocka_unit_test(one_that_is_refused_holds_up_no_other),
        cmocka_unit_test(greets_with_user_password_and_database),
        cmocka_unit_test(unix_sockets_are_spoken_to),
        cmocka_unit_test(refusals_say_what_to_do),
        cmocka_unit_test(a_replica_takes_the_publish_and_is_left),
        cmocka_unit_test(no_answer_ends_in_time),
        cmocka_unit_test(a_lost_connection_fails_what_was_not_answered),
        cmocka_unit_test(an_answer_that_is_no_number_is_not_taken_for_one),
        cmocka_unit_test(an_idle_connection_may_be_closed),
        cmocka_unit_test(a_big_set_to_a_dead_peer_kills_nobody),
        cmocka_unit_test(what_stops_everything_is_told_first),
        cmocka_unit_test(nobody_listens),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
