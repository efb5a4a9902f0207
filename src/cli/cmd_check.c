/*
 * `idemsink check`: the configuration as it is understood; with --connect each requirement is a
 * line with ok, wrong or unknown and what to do. All are asked, the exit code is that of the worst.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "io/kafka.h"
#include "io/mongo.h"
#include "io/redis.h"

enum { BROKER_WAIT_MS = 10000 };

static void line(const char *what, const char *verdict, const char *text)
{
    printf("%-34s %-8s %s\n", what, verdict, text);
}

/* Says what came out; keeps the exit code of the first thing that is wrong. */
static bool report(const char *what, bool ok, const struct err *e, const char *fine,
                   enum exit_code *code)
{
    line(what, ok ? "ok" : e->kind == ERR_TRANSIENT ? "unknown" : "wrong", ok ? fine : e->text);
    if (!ok && *code == EXIT_FINE)
        *code = e->kind == ERR_AUTH || e->kind == ERR_TRANSIENT ? exit_of(e) : EXIT_FOUND;
    return ok;
}

static void check_kafka(const struct config *c, enum exit_code *code)
{
    struct kafka_topics topics = {0};
    struct err e = {0};
    struct buf text = {0};
    bool there = kafka_describe(c, BROKER_WAIT_MS, &topics, &e);

    buf_printf(&text, "%d reached", topics.brokers);
    if (!report("kafka brokers", there, &e, buf_text(&text), code))
        goto out;
    for (size_t i = 0; i < topics.n; i++) {
        buf_reset(&text);
        buf_printf(&text, "%d partitions", topics.items[i].partitions);
        line(topics.items[i].name, "ok", buf_text(&text));
    }
    if (topics.missing) {
        (void)err_set(&e, ERR_CONFIG, 0,
                      "the topic is not there; make it, or correct route.topics");
        (void)report(topics.missing, false, &e, "", code);
    }
    if (c->dead_letter.topic[0]) {
        (void)err_set(&e, ERR_CONFIG, 0,
                      "the dead-letter topic is not there; run: idemsink init -c FILE");
        buf_reset(&text);
        buf_printf(&text, "dead-letter topic, %d partitions", topics.dead_letter_partitions);
        (void)report(c->dead_letter.topic, topics.dead_letter, &e, buf_text(&text), code);
    } else {
        line("dead-letter topic", "none",
             c->dead_letter.on_bad_record == ON_BAD_SKIP
                 ? "bad records are dropped (on_bad_record = \"skip\")"
                 : "the first bad record stops the process");
    }
    /* The protocol has no question for it that librdkafka 2.0.2 could ask. */
    line("kafka rights", "unknown",
         c->dead_letter.topic[0]
             ? "asked only when they are used: read on topics and group, write on the dead-letter "
               "topic"
             : "asked only when they are used: read on topics and group");
out:
    kafka_topics_clear(&topics);
    buf_clear(&text);
}

static void check_route(struct mongo *mongo, const struct config_route *route, enum exit_code *code)
{
    struct buf what = {0};
    const char *found = "";
    struct err e = {0};

    buf_printf(&what, "rights on %s.%s", route->database, route->collection);
    bool ok = mongo_check_rights(mongo, route, &found, &e);
    (void)report(buf_text(&what), ok, &e, found, code);
    buf_reset(&what);
    buf_printf(&what, "dedup index of %s.%s", route->database, route->collection);
    (void)report(buf_text(&what), mongo_prove_index(mongo, route, &e), &e, "proved", code);
    buf_clear(&what);
}

static void check_mongo(const struct config *c, enum exit_code *code)
{
    struct err e = {0};
    struct mongo *mongo = mongo_new(c, &e);
    struct buf text = {0};

    if (report("mongodb", mongo != NULL && mongo_ping(mongo, &e), &e, "a writable primary", code)) {
        mongo_describe(mongo, &text);
        line("mongodb server", "ok", buf_text(&text));
        for (size_t i = 0; i < c->n_routes; i++)
            check_route(mongo, &c->routes[i], code);
    }
    line("write concern",
         strcmp(c->mongo.write_concern, "majority") == 0 && c->mongo.journal ? "ok" : "weak",
         strcmp(c->mongo.write_concern, "majority") == 0 && c->mongo.journal
             ? "majority, journaled"
             : "an acknowledged event can be lost in a failover");
    buf_clear(&text);
    mongo_free(mongo);
}

enum exit_code cmd_check(const struct args *args)
{
    struct config *c = cli_config(args);
    struct mapping **mappings;
    enum exit_code code = EXIT_FINE;
    struct buf text = {0};
    struct err e;

    if (c == NULL)
        return EXIT_CONFIGURATION;
    mappings = cli_mappings(c, "check", &e);
    if (mappings == NULL) {
        code = cli_fail(&e);
    } else if (args->connect) {
        check_kafka(c, &code);
        check_mongo(c, &code);
        if (c->redis.uri[0])
            (void)report("redis", redis_ping(c, &e), &e, "answers", &code);
    } else {
        config_print(c, &text);
        fputs(buf_text(&text), stdout);
    }
    cli_mappings_free(mappings, c->n_routes);
    buf_clear(&text);
    config_free(c);
    return code;
}
