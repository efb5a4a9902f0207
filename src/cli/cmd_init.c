/*
 * `idemsink init`: creates what is missing, and nothing else: the replica set (only when asked),
 * indexes, collections, the dead-letter topic. What lags it raises when asked: counters of
 * sequences.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/needs.h"
#include "io/kafka.h"
#include "io/mongo.h"

enum {
    BROKER_WAIT_MS = 30000,
    LOOK_WAIT_MS = 5000,         /* for what init could do without */
    MESSAGE_BYTES_OURS = 1048588 /* a topic's max.message.bytes when nobody has changed it */
};

static bool init_indexes(const struct config *c, bool raise, struct err *e)
{
    struct mongo *mongo = mongo_new(c, e);
    bool ok = mongo != NULL && mongo_ping(mongo, e) && needs_make(mongo, c, raise, e);

    mongo_free(mongo);
    return ok;
}

/* --- topics --- */

static bool is_there(const struct kafka_topics *topics, const char *name)
{
    for (size_t i = 0; i < topics->n; i++)
        if (strcmp(topics->items[i].name, name) == 0)
            return true;
    return false;
}

/* Who starts `run` now would wait for them. */
static void warn_about_missing(const struct config *c, const struct kafka_topics *topics)
{
    for (size_t r = 0; r < c->n_routes; r++)
        for (size_t t = 0; t < c->routes[r].topics.n; t++) {
            const char *name = c->routes[r].topics.items[t];

            if (name[0] != '^' && !is_there(topics, name))
                printf("warning: topic %s: not there, or we may not describe it; make it (init "
                       "makes none), or "
                       "correct route.topics\n",
                       name);
        }
}

/* One that takes whatever the input topics take, with the headers of a dead letter; never less than
 * what topics take by default. 0: not known, *of is whose. */
static int64_t bytes_for_letters(const struct config *c, const struct kafka_topics *topics,
                                 const char **of)
{
    struct kafka_topic_settings settings;
    int64_t largest = MESSAGE_BYTES_OURS;
    struct err e;
    struct kafka_asker *asker = kafka_asker_new(c, LOOK_WAIT_MS, &e);

    for (size_t i = 0; largest > 0 && i < topics->n; i++) {
        if (asker == NULL || !kafka_ask_settings(asker, topics->items[i].name, &settings, &e) ||
            settings.max_message_bytes < 0) {
            *of = topics->items[i].name;
            largest = 0;
        } else if (settings.max_message_bytes > largest) {
            largest = settings.max_message_bytes;
        }
    }
    kafka_asker_free(asker);
    return largest > 0 ? largest + KAFKA_LETTER_BYTES : 0;
}

/* As many partitions as the input topic that has most of them. */
static bool make_dead_letter_topic(const struct config *c, const struct kafka_topics *topics,
                                   struct err *e)
{
    struct kafka_new_topic wanted = {.name = c->dead_letter.topic, .partitions = 1};
    const char *of = "";
    bool made = false;

    for (size_t i = 0; i < topics->n; i++)
        if (topics->items[i].partitions > wanted.partitions)
            wanted.partitions = topics->items[i].partitions;
    if (!topics->dead_letter)
        wanted.max_message_bytes = bytes_for_letters(c, topics, &of);
    if (!kafka_topic_create_if_missing(c, &wanted, BROKER_WAIT_MS, &made, e))
        return false;
    if (!made)
        printf("dead-letter topic %s: was there\n", wanted.name);
    else if (wanted.max_message_bytes > 0)
        printf("dead-letter topic %s: made, max.message.bytes %" PRId64 "\n", wanted.name,
               wanted.max_message_bytes);
    else
        printf("dead-letter topic %s: made, with the brokers' max.message.bytes: that of %s can't "
               "be asked for (DescribeConfigs)\n",
               wanted.name, of);
    return true;
}

static bool init_topics(const struct config *c, struct err *e)
{
    bool wanted = c->dead_letter.topic[0] != '\0', ok = true;
    struct kafka_topics topics = {0};

    if (!kafka_describe(c, wanted ? BROKER_WAIT_MS : LOOK_WAIT_MS, &topics, e)) {
        if (!wanted)
            printf("warning: the input topics: can't tell whether they are there: %s\n", e->text);
        return !wanted;
    }
    warn_about_missing(c, &topics);
    if (wanted)
        ok = make_dead_letter_topic(c, &topics, e);
    kafka_topics_clear(&topics);
    return ok;
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
    if (code == EXIT_FINE && (!init_indexes(c, args->raise_sequences, &e) || !init_topics(c, &e)))
        code = cli_fail(&e);
    config_free(c);
    return code;
}
