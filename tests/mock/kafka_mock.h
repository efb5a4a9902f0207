/*
 * kafka_mock.h - a cluster in this process (librdkafka's mock), and members of a group on it. For
 * tests/mock/test_kafka_*.c. A new group takes its 3 s, so the tests are several programs that
 * ctest runs side by side.
 */
#ifndef IDEMSINK_TESTS_KAFKA_MOCK_H
#define IDEMSINK_TESTS_KAFKA_MOCK_H

#include "mock/kafka_help.h"

enum { PARTITIONS = 4 };

struct cluster {
    rd_kafka_t *rk;
    rd_kafka_mock_cluster_t *mock;
    const char *brokers;
};

static inline void cluster_open(struct cluster *c, const char *topic)
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

static inline void cluster_close(struct cluster *c)
{
    rd_kafka_mock_cluster_destroy(c->mock);
    rd_kafka_destroy(c->rk);
}

static inline void produce(const struct cluster *c, const char *topic, int records)
{
    rd_kafka_t *rk = help_producer(c->brokers, NULL);

    for (int i = 0; i < records; i++)
        help_produce(rk, topic, i % PARTITIONS, "key", "value");
    help_flush(rk);
    rd_kafka_destroy(rk);
}

static inline struct help_member *member_new(const struct cluster *c, const char *group,
                                             const char *topic)
{
    struct help_member *m = mem_new(sizeof *m);

    help_config(&m->h, c->brokers, group, topic);
    m->dense = true;
    return m;
}

/* The broker of the group's coordinator from now on. */
static inline void coordinator_is(const struct cluster *c, const char *group, int32_t broker)
{
    assert_int_equal(rd_kafka_mock_coordinator_set(c->mock, "group", group, broker), 0);
}

/* --- what is logged ------------------------------------------------------------------------- */

struct log_catch {
    int old;
    FILE *file;
};

static inline void log_catch_begin(struct log_catch *l)
{
    l->file = tmpfile();
    assert_non_null(l->file);
    l->old = dup(STDERR_FILENO);
    assert_true(l->old >= 0 && dup2(fileno(l->file), STDERR_FILENO) >= 0);
    log_setup(LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
}

/* Was a line logged since that has this text? */
static inline bool log_catch_end(struct log_catch *l, const char *text)
{
    char line[2000];
    bool found = false;

    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    assert_true(dup2(l->old, STDERR_FILENO) >= 0);
    (void)close(l->old);
    rewind(l->file);
    while (fgets(line, sizeof line, l->file) != NULL)
        found = found || strstr(line, text) != NULL;
    (void)fclose(l->file);
    return found;
}

#endif
