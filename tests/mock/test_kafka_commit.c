/* Commits of the source on the mock cluster: refused, slow, and of what is not assigned. */
#include "mock/kafka_mock.h"

enum { COMMIT_KEY = 8 /* OffsetCommit */ };

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
    help_until(m, 40, m->records == 400);
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
    help_until(m, 40, m->records == 40);

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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_commit_in_flight),
        cmocka_unit_test(a_refused_commit_is_not_ok),
        cmocka_unit_test(commits_only_what_is_assigned),
    };

    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
