/*
 * The source on a real broker: $KAFKA_BROKERS, as scripts/stack env says. Topics and groups are new
 * ones each time. $SOAK_SECONDS: the length of each rebalance soak.
 */
#include "io/kafka_private.h"
#include "mock/kafka_help.h"

enum { PARTITIONS = 6, MOST = 400000 };

static const char *brokers;

static void new_topic(struct help_config *h, const char *what, int partitions)
{
    struct err e = {0};
    bool made = false;
    char name[80];
    const struct kafka_new_topic wanted = {.name = name, .partitions = partitions};

    (void)snprintf(name, sizeof name, "%s-%lld", what, (long long)clock_wall_ms());
    help_config(h, brokers, name, name);
    if (!kafka_topic_create_if_missing(&h->config, &wanted, 10000, &made, &e))
        fail_msg("%s", e.text);
    assert_true(made);
}

/* --- rebalances ---------------------------------------------------------------------------- */

struct soak {
    struct help_config h;
    _Atomic bool stop;
    _Atomic int pauses; /* how often a member was seen with a paused partition */
    int64_t produced[PARTITIONS];
    _Atomic unsigned char seen[PARTITIONS][MOST];
};

static void *soak_produce(void *arg)
{
    struct soak *s = arg;
    rd_kafka_t *rk = help_producer(brokers, NULL);

    for (int round = 0; !atomic_load(&s->stop); round++) {
        for (int i = 0; i < 60; i++) {
            int p = i % PARTITIONS;

            if (s->produced[p] < MOST)
                help_produce(rk, s->h.topic, p, "key",
                             "{\"n\":1,\"text\":\"about as long as a small event\"}");
            s->produced[p] += s->produced[p] < MOST;
        }
        usleep(2000); /* the rate, not a synchronisation */
    }
    help_flush(rk);
    rd_kafka_destroy(rk);
    return NULL;
}

static void soak_seen(struct help_member *m, const struct record *r)
{
    struct soak *s = m->user;

    if (r->offset < MOST)
        atomic_store_explicit(&s->seen[r->partition][r->offset], 1, memory_order_relaxed);
}

/* Now this partition is refused and now that, each for long enough that it is paused. */
static bool soak_choose(struct help_member *m, uint32_t slot)
{
    struct soak *s = m->user;

    if (m->source.self != NULL && ((struct kafka_source *)m->source.self)->n_paused > 0)
        atomic_fetch_add_explicit(&s->pauses, 1, memory_order_relaxed);
    return (clock_mono_ms() / 300 + slot) % 4 != 0;
}

static struct help_member *soak_join(struct soak *s, bool cooperative)
{
    struct help_member *m = mem_new(sizeof *m);

    help_config(&m->h, brokers, s->h.group, s->h.topic);
    help_property(&m->h, "partition.assignment.strategy",
                  cooperative ? "cooperative-sticky" : "range");
    help_property(&m->h, "heartbeat.interval.ms", "300"); /* rebalances are noticed by it */
    m->dense = m->commit_on_revoke = true;
    m->user = s;
    m->on_record = soak_seen;
    m->choose = soak_choose;
    help_member_open(m);
    assert_int_equal(pthread_create(&m->thread, NULL, help_member_main, m), 0);
    return m;
}

struct soak_sum {
    uint64_t records, skipped, again, foreign;
    int assigns, revokes, losts;
};

static void soak_leave(struct help_member *m, struct soak_sum *sum)
{
    atomic_store(&m->stop, true);
    pthread_join(m->thread, NULL);
    assert_false(m->failed);
    sum->records += m->records;
    sum->skipped += m->skipped;
    sum->again += m->again;
    sum->foreign += m->foreign;
    sum->assigns += m->assigns;
    sum->revokes += m->revokes;
    sum->losts += m->losts;
    mem_free(m);
}

static uint64_t soak_missing(struct soak *s)
{
    uint64_t missing = 0;

    for (int p = 0; p < PARTITIONS; p++)
        for (int64_t o = 0; o < s->produced[p]; o++)
            missing += !atomic_load_explicit(&s->seen[p][o], memory_order_relaxed);
    return missing;
}

static void soak(bool cooperative)
{
    const char *text = getenv("SOAK_SECONDS");
    int seconds = text != NULL ? (int)strtol(text, NULL, 10) : 20;
    unsigned seed = (unsigned)clock_wall_ms();
    struct soak *s = mem_new(sizeof *s);
    struct soak_sum sum = {0};
    pthread_t producer;
    int64_t total = 0;

    new_topic(&s->h, "soak", PARTITIONS);
    assert_int_equal(pthread_create(&producer, NULL, soak_produce, s), 0);
    struct help_member *stays = soak_join(s, cooperative);
    struct help_member *second = NULL, *third = NULL;
    int64_t end_ms = clock_mono_ms() + seconds * 1000;
    for (int step = 0; clock_mono_ms() < end_ms; step++) {
        struct help_member **turn = step % 2 ? &second : &third;

        if (*turn == NULL)
            *turn = soak_join(s, cooperative);
        else
            soak_leave(*turn, &sum), *turn = NULL;
        usleep(500000 + (useconds_t)(rand_r(&seed) % 1500) * 1000);
    }
    atomic_store(&s->stop, true);
    pthread_join(producer, NULL);
    for (int p = 0; p < PARTITIONS; p++)
        total += s->produced[p];
    int64_t give_up_ms = clock_mono_ms() + 30000;
    while (soak_missing(s) > 0 && clock_mono_ms() < give_up_ms)
        usleep(100000);
    uint64_t missing = soak_missing(s);
    if (second != NULL)
        soak_leave(second, &sum);
    if (third != NULL)
        soak_leave(third, &sum);
    soak_leave(stays, &sum);
    print_message("%s: %lld produced, %llu delivered, %llu again, %llu skipped, %llu of others, "
                  "%llu never seen; "
                  "%d assigned, %d revokes, %d lost, %s; seed %u\n",
                  cooperative ? "cooperative-sticky" : "range", (long long)total,
                  (unsigned long long)sum.records, (unsigned long long)sum.again,
                  (unsigned long long)sum.skipped, (unsigned long long)sum.foreign,
                  (unsigned long long)missing, sum.assigns, sum.revokes, sum.losts,
                  atomic_load(&s->pauses) > 0 ? "with pauses" : "no pause", seed);
    assert_int_equal(sum.skipped, 0);
    assert_int_equal(sum.foreign, 0);
    assert_int_equal(missing, 0);
    assert_true(sum.revokes > 1);
    assert_true(atomic_load(&s->pauses) > 0);
    mem_free(s);
}

static void rebalances_range(void **state)
{
    (void)state;
    soak(false);
}

static void rebalances_cooperative(void **state)
{
    (void)state;
    soak(true);
}

/* --- transactions -------------------------------------------------------------------------- */

static void no_error(rd_kafka_error_t *error)
{
    if (error != NULL)
        fail_msg("%s", rd_kafka_error_string(error));
}

/* 0..2 committed, 3 marker, 4..5 aborted, 6 marker: the end is 7 and nothing of 4..5 is seen. */
static void transaction_markers_are_passed(void **state)
{
    struct help_member *m = mem_new(sizeof *m);

    (void)state;
    new_topic(&m->h, "tx", 1);
    rd_kafka_t *rk = help_producer(brokers, m->h.topic);
    no_error(rd_kafka_init_transactions(rk, 20000));
    no_error(rd_kafka_begin_transaction(rk));
    for (int i = 0; i < 3; i++)
        help_produce(rk, m->h.topic, 0, "k", "v");
    no_error(rd_kafka_commit_transaction(rk, 20000));
    no_error(rd_kafka_begin_transaction(rk));
    for (int i = 0; i < 2; i++)
        help_produce(rk, m->h.topic, 0, "k", "aborted");
    help_flush(rk);
    no_error(rd_kafka_abort_transaction(rk, 20000));
    rd_kafka_destroy(rk);

    m->commit_on_revoke = true;
    help_member_open(m);
    struct err e = {0};
    bool reached = false;
    if (!m->source.ops->end_snapshot(m->source.self, &e))
        fail_msg("%s", e.text);
    help_until(m, 20, m->ends == 1);
    assert_int_equal(m->records, 3);
    assert_int_equal(m->slots[0].end, 7);
    help_commit(m);
    help_until(m, 10, m->answers_ok == 1);
    struct commit_point mine = {.slot = 0, .offset = m->slots[0].committed};
    assert_int_equal(mine.offset, 7);
    assert_true(m->source.ops->end_reached(m->source.self, &mine, 1, &reached, &e));
    assert_true(reached);
    help_member_close(m);
    mem_free(m);
}

/* --- offsets of others --------------------------------------------------------------------- */

/* A group that another tool committed, with metadata of its own, goes on from there. */
static void starts_behind_a_foreign_commit(void **state)
{
    struct help_member *m = mem_new(sizeof *m);
    char text[200];

    (void)state;
    new_topic(&m->h, "foreign", 1);
    rd_kafka_t *rk = help_producer(brokers, NULL);
    for (int i = 0; i < 10; i++)
        help_produce(rk, m->h.topic, 0, "k", "v");
    help_flush(rk);
    rd_kafka_destroy(rk);

    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    rd_kafka_conf_set(conf, "bootstrap.servers", brokers, text, sizeof text);
    rd_kafka_conf_set(conf, "group.id", m->h.group, text, sizeof text);
    rd_kafka_t *other = rd_kafka_new(RD_KAFKA_CONSUMER, conf, text, sizeof text);
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_t *tp = rd_kafka_topic_partition_list_add(list, m->h.topic, 0);
    tp->offset = 7;
    tp->metadata = strdup("somebody else's");
    tp->metadata_size = strlen("somebody else's");
    assert_int_equal(rd_kafka_commit(other, list, 0), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_topic_partition_list_destroy(list);
    rd_kafka_destroy(other);

    m->dense = true;
    help_member_open(m);
    help_until(m, 20, m->ends == 1);
    assert_int_equal(m->records, 3);
    assert_int_equal(m->skipped + m->again, 0);
    help_member_close(m);
    mem_free(m);
}

/* --- topics that come later ---------------------------------------------------------------- */

static void a_missing_topic_is_waited_for(void **state)
{
    struct help_member *m = mem_new(sizeof *m);
    struct kafka_health health;
    struct err e = {0};
    bool made;
    char name[60];
    const struct kafka_new_topic wanted = {.name = name, .partitions = 2};

    (void)state;
    (void)snprintf(name, sizeof name, "late-%lld", (long long)clock_wall_ms());
    help_config(&m->h, brokers, name, name);
    help_property(&m->h, "topic.metadata.refresh.interval.ms", "500");
    help_property(&m->h, "topic.metadata.propagation.max.ms", "0");
    help_member_open(m);
    assert_false(m->source.ops->end_snapshot(m->source.self, &e));
    assert_int_equal(e.kind, ERR_CONFIG);
    help_until(m, 20, (kafka_source_health(&m->source, &health), health.problem[0] != '\0'));
    assert_false(m->failed);
    assert_true(kafka_topic_create_if_missing(&m->h.config, &wanted, 10000, &made, &e));
    assert_true(made);
    assert_true(kafka_topic_create_if_missing(&m->h.config, &wanted, 10000, &made, &e));
    assert_false(made);
    rd_kafka_t *rk = help_producer(brokers, NULL);
    for (int i = 0; i < 40; i++)
        help_produce(rk, name, i % 2, "k", "v");
    help_flush(rk);
    rd_kafka_destroy(rk);
    help_until(m, 30, m->records == 40);
    kafka_source_health(&m->source, &health);
    assert_string_equal(health.problem, "");
    assert_int_equal(health.assigned, 2);
    help_member_close(m);
    mem_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(transaction_markers_are_passed),
        cmocka_unit_test(starts_behind_a_foreign_commit),
        cmocka_unit_test(a_missing_topic_is_waited_for),
        cmocka_unit_test(rebalances_range),
        cmocka_unit_test(rebalances_cooperative),
    };

    brokers = getenv("KAFKA_BROKERS");
    if (brokers == NULL || brokers[0] == '\0') {
        fprintf(stderr, "KAFKA_BROKERS is not set: eval \"$(scripts/stack env)\"\n");
        return 1;
    }
    log_setup(LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
