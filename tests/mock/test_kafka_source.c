/* The source on librdkafka's mock cluster: what brokers do at their worst. */
#include <netinet/in.h>
#include <sys/socket.h>

#include "mock/kafka_help.h"

enum { PARTITIONS = 4, COMMIT_KEY = 8 /* OffsetCommit */ };

/* --- a cluster in this process -------------------------------------------------------------- */

struct cluster {
    rd_kafka_t *rk;
    rd_kafka_mock_cluster_t *mock;
    const char *brokers;
};

static void cluster_open(struct cluster *c, const char *topic)
{
    char text[200];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    rd_kafka_conf_set(conf, "log_level", "3", text, sizeof text);
    c->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    assert_non_null(c->rk);
    c->mock = rd_kafka_mock_cluster_new(c->rk, 3);
    assert_non_null(c->mock);
    c->brokers = rd_kafka_mock_cluster_bootstraps(c->mock);
    assert_int_equal(rd_kafka_mock_topic_create(c->mock, topic, PARTITIONS, 1), 0);
}

static void cluster_close(struct cluster *c)
{
    rd_kafka_mock_cluster_destroy(c->mock);
    rd_kafka_destroy(c->rk);
}

static void produce(const struct cluster *c, const char *topic, int records)
{
    rd_kafka_t *rk = help_producer(c->brokers, NULL);

    for (int i = 0; i < records; i++)
        help_produce(rk, topic, i % PARTITIONS, "key", "value");
    help_flush(rk);
    rd_kafka_destroy(rk);
}

static struct help_member *member_new(const struct cluster *c, const char *group, const char *topic)
{
    struct help_member *m = mem_new(sizeof *m);

    help_config(&m->h, c->brokers, group, topic);
    m->dense = true;
    return m;
}

/* The broker of the group's coordinator from now on. */
static void coordinator_is(const struct cluster *c, const char *group, int32_t broker)
{
    assert_int_equal(rd_kafka_mock_coordinator_set(c->mock, "group", group, broker), 0);
}

/* --- reading and committing ----------------------------------------------------------------- */

static void reads_everything_and_tells_the_ends(void **state)
{
    struct cluster c;
    struct err e = {0};
    bool reached = true;

    (void)state;
    cluster_open(&c, "t");
    produce(&c, "t", 400);
    struct help_member *m = member_new(&c, "g", "t");
    m->commit_on_revoke = true;
    help_member_open(m);
    assert_true(m->source.ops->end_snapshot(m->source.self, &e));
    assert_true(m->source.ops->end_reached(m->source.self, NULL, 0, &reached, &e));
    assert_false(reached);
    help_until(m, 20, m->records == 400 && m->ends == PARTITIONS);
    assert_int_equal(m->assigns, PARTITIONS);
    assert_int_equal(m->skipped + m->again, 0);

    struct commit_point mine[PARTITIONS];
    for (uint32_t i = 0; i < PARTITIONS; i++) {
        const char *topic;
        int32_t partition;

        m->source.ops->slot_name(m->source.self, i, &topic, &partition);
        assert_string_equal(topic, "t");
        assert_int_equal(m->slots[i].end, 100);
        assert_int_equal(m->source.ops->slot_end(m->source.self, i), 100);
        mine[i] = (struct commit_point){.slot = i, .offset = 100};
    }
    assert_true(m->source.ops->end_reached(m->source.self, mine, PARTITIONS - 1, &reached, &e));
    assert_false(reached);
    assert_true(m->source.ops->end_reached(m->source.self, mine, PARTITIONS, &reached, &e));
    assert_true(reached);

    struct kafka_health health;
    kafka_source_health(&m->source, &health);
    assert_true(health.joined);
    assert_int_equal(health.assigned, PARTITIONS);
    help_member_close(m);
    assert_true(m->revoke_commit_ok);
    mem_free(m);

    /* A second one of the same group finds everything done, by the group's offsets alone. */
    m = member_new(&c, "g", "t");
    help_member_open(m);
    assert_true(m->source.ops->end_snapshot(m->source.self, &e));
    help_until(
        m, 20,
        (assert_true(m->source.ops->end_reached(m->source.self, NULL, 0, &reached, &e)), reached));
    assert_int_equal(m->records, 0);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

/* Not wanting for longer than max.poll.interval.ms: still a member, nothing lost, nothing read. */
static void not_wanting_keeps_the_membership(void **state)
{
    struct cluster c;

    (void)state;
    cluster_open(&c, "t");
    produce(&c, "t", 4000);
    struct help_member *m = member_new(&c, "g", "t");
    help_property(&m->h, "session.timeout.ms", "6000");
    help_property(&m->h, "max.poll.interval.ms", "6000");
    help_property(&m->h, "heartbeat.interval.ms", "300");
    m->h.config.worker.drain_timeout_ms = 500;
    help_member_open(m);
    help_until(m, 20, m->records >= 1000);
    atomic_store(&m->wants, false);
    uint64_t before = m->records;
    for (int64_t end = clock_mono_ms() + 8000; clock_mono_ms() < end;)
        (void)help_step(m, 300);
    assert_int_equal(m->records, before);
    assert_int_equal(m->revokes, 0);
    atomic_store(&m->wants, true);
    m->source.ops->wake(m->source.self);
    help_until(m, 20, m->records == 4000);
    assert_int_equal(m->revokes + (int)m->skipped + (int)m->again, 0);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

static void one_commit_in_flight(void **state)
{
    struct cluster c;
    struct err e = {0};
    struct commit_point point = {.slot = 0, .offset = 10};
    bool sent;

    (void)state;
    cluster_open(&c, "t");
    produce(&c, "t", 400);
    struct help_member *m = member_new(&c, "g", "t");
    coordinator_is(&c, "g", 2);
    help_member_open(m);
    help_until(m, 20, m->records == 400);
    rd_kafka_mock_broker_set_rtt(c.mock, 2, 700);
    assert_true(m->source.ops->commit(m->source.self, &point, 1, 0, &sent, &e));
    assert_true(sent);
    point.offset = 20;
    assert_true(m->source.ops->commit(m->source.self, &point, 1, 0, &sent, &e));
    assert_false(sent);
    assert_int_equal(m->answers, 0);
    /* Waiting: for the one in flight, whose answer is told, and then for its own. */
    assert_true(m->source.ops->commit(m->source.self, &point, 1, 5000, &sent, &e));
    assert_true(sent);
    assert_int_equal(m->answers, 1);
    assert_int_equal(m->answers_ok, 1);
    assert_int_equal(m->slots[0].committed, 10);
    /* And one that is not answered in time: not known, and later told. */
    point.offset = 30;
    int64_t at = clock_mono_ms();
    assert_false(m->source.ops->commit(m->source.self, &point, 1, 200, &sent, &e));
    assert_true(clock_mono_ms() - at < 600);
    assert_int_equal(e.kind, ERR_TRANSIENT);
    help_until(m, 10, m->answers == 2);
    assert_int_equal(m->slots[0].committed, 30);
    rd_kafka_mock_broker_set_rtt(c.mock, 2, 0);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

static void a_refused_commit_is_not_ok(void **state)
{
    struct cluster c;
    struct err e = {0};
    struct commit_point point = {.slot = 1, .offset = 10};
    bool sent;

    (void)state;
    cluster_open(&c, "t");
    produce(&c, "t", 40);
    struct help_member *m = member_new(&c, "g", "t");
    coordinator_is(&c, "g", 1);
    help_property(&m->h, "session.timeout.ms",
                  "6000"); /* the mock group waits for the old member */
    help_member_open(m);
    help_until(m, 20, m->records == 40);

    rd_kafka_mock_push_request_errors(c.mock, COMMIT_KEY, 1,
                                      RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED);
    assert_true(m->source.ops->commit(m->source.self, &point, 1, 0, &sent, &e));
    help_until(m, 10, m->answers == 1);
    assert_int_equal(m->answers_ok, 0);

    rd_kafka_mock_push_request_errors(c.mock, COMMIT_KEY, 1, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID);
    assert_false(m->source.ops->commit(m->source.self, &point, 1, 5000, &sent, &e));
    assert_int_equal(e.code, RD_KAFKA_RESP_ERR_UNKNOWN_MEMBER_ID);
    assert_int_equal(m->slots[1].committed, -1);
    /* The membership was gone: joined again, and on. */
    help_until(m, 40, m->losts == 1 && m->assigns == 2 * PARTITIONS && m->records >= 80);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

/* What is not assigned here never enters a request, whatever the caller says. */
static void commits_only_what_is_assigned(void **state)
{
    struct cluster c;
    struct err e = {0};
    bool sent = true;
    bool reached;

    (void)state;
    cluster_open(&c, "t");
    produce(&c, "t", 40);
    struct help_member *m = member_new(&c, "g", "t");
    help_member_open(m);
    assert_true(m->source.ops->end_snapshot(m->source.self, &e)); /* makes the slots */
    struct commit_point all[PARTITIONS];
    for (uint32_t i = 0; i < PARTITIONS; i++)
        all[i] = (struct commit_point){.slot = i, .offset = 10};
    assert_true(m->source.ops->commit(m->source.self, all, PARTITIONS, 3000, &sent, &e));
    assert_false(sent);
    assert_true(m->source.ops->end_reached(m->source.self, NULL, 0, &reached, &e));
    assert_false(reached);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

/* --- brokers that are away ------------------------------------------------------------------ */

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
    help_until(m, 20, m->records == 40);
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
    help_until(m, 20, m->records == 40);
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

/* --- configuration -------------------------------------------------------------------------- */

static void refused(const char *name, const char *value, const char *with)
{
    struct help_config h;
    struct source_events events = {0};
    struct source source;
    struct err e = {0};

    help_config(&h, "127.0.0.1:1", "g", "t");
    help_property(&h, name, value);
    assert_false(kafka_source_new(&h.config, &events, &source, &e));
    assert_int_equal(e.kind, ERR_CONFIG);
    if (strstr(e.text, with) == NULL)
        fail_msg("\"%s\" does not say %s", e.text, with);
    assert_null(source.ops);
}

static void properties_are_checked_by_librdkafka(void **state)
{
    (void)state;
    refused("no.such.thing", "1", "kafka.properties.\"no.such.thing\"");
    refused("session.timeout.ms", "soon", "kafka.properties.\"session.timeout.ms\"");
    refused("max.poll.interval.ms", "3000", "worker.drain_timeout");
}

static void dead_letter_topic_is_no_input(void **state)
{
    struct cluster c;
    struct help_config h;
    struct source_events events = {0};
    struct source source;
    struct err e = {0};

    (void)state;
    help_config(&h, "127.0.0.1:1", "g", "t");
    (void)snprintf(h.dead, sizeof h.dead, "t");
    assert_false(kafka_source_new(&h.config, &events, &source, &e));
    assert_int_equal(e.kind, ERR_CONFIG);

    /* And a regex that would find it does not. */
    cluster_open(&c, "in.a");
    assert_int_equal(rd_kafka_mock_topic_create(c.mock, "in.dead", PARTITIONS, 1), 0);
    produce(&c, "in.a", 40);
    produce(&c, "in.dead", 40);
    struct help_member *m = member_new(&c, "g", "^in\\..*");
    (void)snprintf(m->h.dead, sizeof m->h.dead, "in.dead");
    help_member_open(m);
    help_until(m, 20, m->records >= 40 && m->ends >= PARTITIONS);
    assert_int_equal(m->assigns, PARTITIONS);
    assert_int_equal(m->records, 40);

    struct kafka_topics topics;
    assert_true(kafka_describe(&m->h.config, 5000, &topics, &e));
    assert_int_equal(topics.n, 1);
    assert_string_equal(topics.items[0].name, "in.a");
    assert_true(topics.dead_letter);
    assert_int_equal(topics.brokers, 3);
    kafka_topics_clear(&topics);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

/* poll() sleeps in between, and wake() from another thread ends that. */
static void *wake_soon(void *arg)
{
    struct help_member *m = arg;

    usleep(150000); /* so that the poll is likely to sleep; the test holds either way */
    m->source.ops->wake(m->source.self);
    return NULL;
}

static void wake_ends_a_poll(void **state)
{
    struct cluster c;
    pthread_t thread;

    (void)state;
    cluster_open(&c, "t");
    struct help_member *m = member_new(&c, "g", "t");
    help_member_open(m);
    help_until(m, 20, m->ends == PARTITIONS);
    int64_t at = clock_mono_ms();
    assert_int_equal(pthread_create(&thread, NULL, wake_soon, m), 0);
    assert_false(help_step(m, 20000));
    assert_true(clock_mono_ms() - at < 5000);
    pthread_join(thread, NULL);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_everything_and_tells_the_ends),
        cmocka_unit_test(not_wanting_keeps_the_membership),
        cmocka_unit_test(one_commit_in_flight),
        cmocka_unit_test(a_refused_commit_is_not_ok),
        cmocka_unit_test(commits_only_what_is_assigned),
        cmocka_unit_test(coordinator_down_at_close),
        cmocka_unit_test(slow_coordinator_at_close),
        cmocka_unit_test(silent_broker_holds_nobody),
        cmocka_unit_test(properties_are_checked_by_librdkafka),
        cmocka_unit_test(dead_letter_topic_is_no_input),
        cmocka_unit_test(wake_ends_a_poll),
    };

    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
