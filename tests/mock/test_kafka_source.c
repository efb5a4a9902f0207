/* The source on librdkafka's mock cluster: reading, waking, health. */
#include "io/kafka_private.h"
#include "mock/kafka_mock.h"

enum { FETCH_KEY = 1, COMMIT_KEY = 8 };

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
    help_until(m, 40, m->records == 400 && m->ends == PARTITIONS);
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
        m, 40,
        (assert_true(m->source.ops->end_reached(m->source.self, NULL, 0, &reached, &e)), reached));
    assert_int_equal(m->records, 0);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

/* --- partitions that are not wanted ---------------------------------------------------------- */

static bool not_slot_0(struct help_member *m, uint32_t slot)
{
    (void)m;
    return slot != 0;
}

/* One that is refused holds the others up for a moment only, keeps its place, and loses nothing.
 * Then all are refused: nothing comes, the membership stays. */
static void a_refused_partition_does_not_stop_the_others(void **state)
{
    struct cluster c;

    (void)state;
    cluster_open(&c, "t");
    produce(&c, "t", 4000);
    struct help_member *m = member_new(&c, "g", "t");
    m->commit_on_revoke = true;
    m->choose = not_slot_0;
    help_member_open(m);
    const struct kafka_source *s = m->source.self;

    help_until(m, 40, m->records == 3000 && s->n_paused == 1);
    assert_int_equal(m->slots[0].next, -1); /* nothing was handed out */
    produce(&c, "t", 400);
    help_until(m, 40, m->records == 3300);

    m->choose = NULL;
    m->source.ops->wake(m->source.self);
    help_until(m, 40, m->records == 4400 && m->ends >= PARTITIONS);
    assert_int_equal(s->n_paused, 0);
    assert_int_equal(m->skipped + m->again, 0);
    assert_int_equal(m->slots[0].next, 1100);

    atomic_store(&m->wants, false);
    produce(&c, "t", 400);
    for (int i = 0; i < 10; i++)
        assert_false(help_step(m, 50));
    assert_int_equal(m->revokes, 0);
    assert_int_equal(s->n_paused, 0); /* nobody gains from it */
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

static bool only_the_last(struct help_member *m, uint32_t slot)
{
    (void)m;
    return slot == PARTITIONS - 1;
}

/* What paused partitions hold is bounded, and the queue waits behind what would be too much. */
static void paused_partitions_hold_little(void **state)
{
    enum { VALUE = 200000 };
    struct cluster c;
    char *value = mem_new(VALUE + 1);

    (void)state;
    cluster_open(&c, "t");
    memset(value, 'x', VALUE);
    rd_kafka_t *rk = help_producer(c.brokers, NULL);
    for (int p = 0; p < PARTITIONS; p++)
        help_produce(rk, "t", p, "key", value);
    help_flush(rk);
    rd_kafka_destroy(rk);
    mem_free(value);

    struct help_member *m = member_new(&c, "g", "t");
    m->h.config.worker.max_bytes = 1 << 20; /* a quarter holds one of them */
    m->choose = only_the_last;
    help_member_open(m);
    const struct kafka_source *s = m->source.self;
    help_until(m, 40, s->n_paused == 1 && s->blocked != NULL);
    for (int i = 0; i < 10; i++)
        help_step(m, 50);
    assert_int_equal(s->n_paused, 1);
    assert_in_range(s->held_bytes, VALUE, VALUE + 1000);

    m->choose = NULL;
    m->source.ops->wake(m->source.self);
    help_until(m, 40, m->records == PARTITIONS);
    assert_int_equal(s->n_paused, 0);
    assert_int_equal(s->held_bytes, 0);
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
    help_until(m, 40, m->ends == PARTITIONS);
    int64_t at = clock_mono_ms();
    assert_int_equal(pthread_create(&thread, NULL, wake_soon, m), 0);
    assert_false(help_step(m, 20000));
    assert_true(clock_mono_ms() - at < 5000);
    pthread_join(thread, NULL);
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

/* --- health --------------------------------------------------------------------------------- */

static const char *problem_at(struct help_member *m, int64_t later_ms)
{
    static struct kafka_health health;

    kafka_health_at(m->source.self, clock_mono_ms() + later_ms, &health);
    return health.problem;
}

static void refuse_fetches(struct cluster *c, struct help_member *m)
{
    enum { N = 6 };
    rd_kafka_resp_err_t errors[N];

    for (int i = 0; i < N; i++)
        errors[i] = RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED;
    rd_kafka_mock_push_request_errors_array(c->mock, FETCH_KEY, N, errors);
    help_until(m, 10, problem_at(m, 0)[0] != '\0');
}

/* Rights that were missing for a moment: red, and green again with what works, or with time. */
static void a_problem_passes(void **state)
{
    struct cluster c;
    struct commit_point point = {.slot = 0, .offset = 5};
    struct err e = {0};
    bool sent;

    (void)state;
    cluster_open(&c, "t");
    produce(&c, "t", 40);
    struct help_member *m = member_new(&c, "g", "t");
    help_member_open(m);
    help_until(m, 40, m->records == 40);
    assert_string_equal(problem_at(m, 0), "");

    refuse_fetches(&c, m);
    assert_non_null(strstr(problem_at(m, 0), "kafka refuses us"));
    assert_non_null(strstr(problem_at(m, 55000), "kafka refuses us"));
    assert_string_equal(problem_at(m, 61000), "");

    produce(&c, "t", 40);
    help_until(m, 40, m->records == 80);
    assert_string_equal(problem_at(m, 0), "");

    /* All fetches that were refused are over, or the next refusal would not be told of. */
    assert_int_equal(m->skipped + m->again, 0);
    refuse_fetches(&c, m);
    rd_kafka_mock_push_request_errors(c.mock, COMMIT_KEY, 1,
                                      RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED);
    assert_false(m->source.ops->commit(m->source.self, &point, 1, 5000, &sent, &e));
    assert_int_equal(e.kind, ERR_AUTH);
    assert_string_not_equal(problem_at(m, 0), "");
    assert_true(m->source.ops->commit(m->source.self, &point, 1, 5000, &sent, &e));
    assert_string_equal(problem_at(m, 0), "");
    help_member_close(m);
    mem_free(m);
    cluster_close(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_everything_and_tells_the_ends),
        cmocka_unit_test(a_refused_partition_does_not_stop_the_others),
        cmocka_unit_test(paused_partitions_hold_little),
        cmocka_unit_test(wake_ends_a_poll),
        cmocka_unit_test(a_problem_passes),
    };

    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
