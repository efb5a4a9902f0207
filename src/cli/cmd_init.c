/*
 * `idemsink init`: creates what is missing, and nothing else: the replica set (only when asked),
 * the dedup indexes, the dead-letter topic.
 */
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "io/kafka.h"
#include "io/mongo.h"

enum { BROKER_WAIT_MS = 30000 };

static bool init_indexes(const struct config *c, struct err *e)
{
    struct mongo *mongo = mongo_new(c, e);
    bool ok = mongo != NULL && mongo_ping(mongo, e);

    for (size_t i = 0; ok && i < c->n_routes; i++) {
        ok =
            mongo_make_index(mongo, &c->routes[i], e) && mongo_prove_index(mongo, &c->routes[i], e);
        if (ok)
            printf("dedup index of %s.%s: there and right\n", c->routes[i].database,
                   c->routes[i].collection);
        else
            (void)cli_wrap_route(e, &c->routes[i]);
    }
    mongo_free(mongo);
    return ok;
}

/* As many partitions as the input topic that has most of them. */
static bool init_dead_letter_topic(const struct config *c, struct err *e)
{
    struct kafka_topics topics = {0};
    int partitions = 1;
    bool made = false;

    if (c->dead_letter.topic[0] == '\0')
        return true;
    if (!kafka_describe(c, BROKER_WAIT_MS, &topics, e))
        return false;
    for (size_t i = 0; i < topics.n; i++)
        if (topics.items[i].partitions > partitions)
            partitions = topics.items[i].partitions;
    kafka_topics_clear(&topics);
    if (!kafka_topic_create_if_missing(c, c->dead_letter.topic, partitions, BROKER_WAIT_MS, &made,
                                       e))
        return false;
    printf("dead-letter topic %s: %s\n", c->dead_letter.topic, made ? "made" : "was there");
    return true;
}

enum exit_code cmd_init(const struct args *args)
{
    struct config *c = cli_config(args);
    enum exit_code code = EXIT_FINE;
    struct err e;

    if (c == NULL)
        return EXIT_CONFIGURATION;
    if (args->replica_set && !mongo_init_replica_set(c, &e))
        code = cli_fail(&e);
    else if (args->replica_set)
        puts("replica set: has a primary");
    if (code == EXIT_FINE && (!init_indexes(c, &e) || !init_dead_letter_topic(c, &e)))
        code = cli_fail(&e);
    config_free(c);
    return code;
}
