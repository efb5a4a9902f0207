/* How the source starts: what it refuses and what it tells about; and that it stays a member. */
#include "io/kafka_private.h"
#include "mock/kafka_mock.h"

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
    help_until(m, 40, m->records >= 40 && m->ends >= PARTITIONS);
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

/* --- memory --------------------------------------------------------------------------------- */

/* Whatever the budget and the number of brokers, values, messages and responses stay in it, but for
 * the least that a response may be. */
static void prefetch_stays_in_its_budget(void **state)
{
    struct kafka_prefetch p;

    (void)state;
    for (int64_t budget = 512 << 10; budget <= INT64_C(1) << 31; budget *= 2)
        for (int brokers = 1; brokers <= 100; brokers++) {
            kafka_prefetch_limits(budget, brokers, &p);
            int64_t response = atoll(p.response_bytes), fetch = atoll(p.fetch_bytes);
            int64_t all = atoll(p.kbytes) * 1024 + atoll(p.messages) * KAFKA_MESSAGE_BYTES +
                          4 * response * brokers;

            assert_true(all <= budget || response == 64 << 10);
            assert_true(all > budget / 2);
            assert_true(fetch <= response && fetch >= 64 << 10);
        }
}

/* --- where it starts ------------------------------------------------------------------------ */

static void group_has_committed(const struct cluster *c, int64_t offset)
{
    char text[200];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);

    rd_kafka_conf_set(conf, "bootstrap.servers", c->brokers, text, sizeof text);
    rd_kafka_conf_set(conf, "group.id", "g", text, sizeof text);
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    assert_non_null(rk);
    rd_kafka_topic_partition_list_add(list, "t", 0)->offset = offset;
    assert_int_equal(rd_kafka_commit(rk, list, 0), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(rk);
}

/* The mock cluster keeps 5 MiB of a partition. */
static void records_that_are_gone_are_told(void **state)
{
    enum { RECORDS = 8, BYTES = 1 << 20 };
    struct cluster c;
    struct log_catch caught;

    (void)state;
    cluster_open(&c, "t");
    group_has_committed(&c, 1);
    rd_kafka_t *rk = help_producer(c.brokers, NULL);
    char *value = mem_array(BYTES + 1, 1);
    memset(value, 'x', BYTES);
    for (int i = 0; i < RECORDS; i++) {
        help_produce(rk, "t", 0, "k", value);
        help_flush(rk);
    }
    mem_free(value);
    rd_kafka_destroy(rk);

    struct help_member *m = member_new(&c, "g", "t");
    m->dense = false;
    log_catch_begin(&caught);
    help_member_open(m);
    help_until(m, 40, m->ends == PARTITIONS);
    assert_true(log_catch_end(&caught, "records were deleted by retention"));
    assert_in_range(m->records, 1, RECORDS - 2);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

/* --- membership ----------------------------------------------------------------------------- */

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
    help_until(m, 40, m->records >= 1000);
    atomic_store(&m->wants, false);
    uint64_t before = m->records;
    for (int64_t end = clock_mono_ms() + 8000; clock_mono_ms() < end;)
        (void)help_step(m, 300);
    assert_int_equal(m->records, before);
    assert_int_equal(m->revokes, 0);
    atomic_store(&m->wants, true);
    m->source.ops->wake(m->source.self);
    help_until(m, 40, m->records == 4000);
    assert_int_equal(m->revokes + (int)m->skipped + (int)m->again, 0);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(properties_are_checked_by_librdkafka),
        cmocka_unit_test(dead_letter_topic_is_no_input),
        cmocka_unit_test(prefetch_stays_in_its_budget),
        cmocka_unit_test(records_that_are_gone_are_told),
        cmocka_unit_test(not_wanting_keeps_the_membership),
    };

    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
