/* Brokers and topics that are away: closing keeps its time limits. */
#include <netinet/in.h>
#include <sys/socket.h>

#include "mock/kafka_mock.h"

/* As the process would: it leaves without freeing, which could take minutes. (Kept where the leak
 * checker sees it.) */
static struct help_member *abandoned[8];

static void abandon(struct help_member *m)
{
    for (size_t i = 0; i < sizeof abandoned / sizeof *abandoned; i++)
        if (abandoned[i] == NULL) {
            abandoned[i] = m;
            return;
        }
    fail();
}

static void close_in_time(struct help_member *m, int wait_ms, bool must_end)
{
    struct err e = {0};
    int64_t at = clock_mono_ms();
    bool ended = m->source.ops->close(m->source.self, wait_ms, &e);
    int64_t took = clock_mono_ms() - at;

    print_message("close: %s after %lld ms%s%s\n", ended ? "ended" : "gave up", (long long)took,
                  ended ? "" : ": ", e.text);
    assert_true(took <= wait_ms + 300);
    if (must_end)
        assert_true(ended);
    if (!ended)
        assert_int_equal(e.kind, ERR_TRANSIENT);
}

static void coordinator_down_at_close(void **state)
{
    struct cluster c;

    (void)state;
    cluster_open(&c, "t");
    produce(&c, "t", 40);
    struct help_member *m = member_new(&c, "g", "t");
    coordinator_is(&c, "g", 3);
    m->commit_on_revoke = m->quiet = true;
    m->commit_wait_ms = 700;
    help_member_open(m);
    help_until(m, 40, m->records == 40);
    rd_kafka_mock_broker_set_down(c.mock, 3);
    close_in_time(m, 3000, false);
    assert_int_equal(m->revokes, 1); /* the drain took place */
    assert_false(m->revoke_commit_ok);
    assert_true(m->revoke_commit_took_ms < 1000);
    abandon(m);
    cluster_close(&c);
}

static void slow_coordinator_at_close(void **state)
{
    struct cluster c;

    (void)state;
    cluster_open(&c, "t");
    produce(&c, "t", 40);
    struct help_member *m = member_new(&c, "g", "t");
    coordinator_is(&c, "g", 3);
    m->commit_on_revoke = m->quiet = true;
    m->commit_wait_ms = 60000; /* close() has the last word */
    help_member_open(m);
    help_until(m, 40, m->records == 40);
    rd_kafka_mock_broker_set_rtt(c.mock, 3, 30000);
    close_in_time(m, 2000, false);
    assert_false(m->revoke_commit_ok);
    abandon(m);
    cluster_close(&c);
}

/* A listening socket that never says a word. */
static int silent_broker(char *address, size_t size)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (const struct sockaddr *)&at, sizeof at), 0);
    assert_int_equal(listen(fd, 16), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&at, &len), 0);
    (void)snprintf(address, size, "127.0.0.1:%d", ntohs(at.sin_port));
    return fd;
}

static void silent_broker_holds_nobody(void **state)
{
    char address[40];
    int fd = silent_broker(address, sizeof address);
    struct help_member *m = mem_new(sizeof *m);
    struct kafka_health health;
    int64_t at = clock_mono_ms();

    (void)state;
    help_config(&m->h, address, "g", "t");
    help_member_open(m);
    assert_true(clock_mono_ms() - at < 5000);
    for (int i = 0; i < 10; i++)
        assert_false(help_step(m, 100));
    assert_false(m->failed);
    kafka_source_health(&m->source, &health);
    assert_false(health.joined);
    close_in_time(m, 1500, false);
    abandon(m);
    (void)close(fd);
}

/* --- a topic that is deleted ----------------------------------------------------------------- */

static void a_deleted_topic_does_not_hold_the_end(void **state)
{
    struct cluster c;
    struct kafka_health health;

    (void)state;
    cluster_open(&c, "t");
    produce(&c, "t", 40);
    struct help_member *m = member_new(&c, "g", "t");
    help_property(&m->h, "topic.metadata.refresh.interval.ms", "500");
    help_member_open(m);
    help_until(m, 40, m->records == 40); /* a join that has to be repeated takes a session */
    rd_kafka_mock_topic_set_error(c.mock, "t", RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART);
    help_until(m, 40, (kafka_source_health(&m->source, &health), health.problem[0] != '\0'));
    help_until(m, 40, m->revokes == 1);
    close_in_time(m, 5000, true);
    (void)alarm(10); /* ends the program: librdkafka 2.0.2 would wait for ever */
    kafka_source_free(&m->source);
    (void)alarm(0);
    abandon(m); /* its configuration may still be read */
    cluster_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(coordinator_down_at_close),
        cmocka_unit_test(slow_coordinator_at_close),
        cmocka_unit_test(silent_broker_holds_nobody),
        cmocka_unit_test(a_deleted_topic_does_not_hold_the_end),
    };

    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
