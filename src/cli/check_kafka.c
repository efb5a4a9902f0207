/* What check --connect asks the brokers. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/check.h"
#include "io/kafka.h"

enum { BROKER_WAIT_MS = 10000 };

struct asking {
    struct checks *checks;
    struct kafka_asker *asker;
    int64_t largest; /* max.message.bytes of the input topics; -1: not known of one of them */
    const char *largest_of;
};

static void named(struct buf *b, const char *before, const char *name)
{
    buf_reset(b);
    buf_printf(b, "%s%s", before, name);
}

/* --- input topics --- */

static bool state_line(struct asking *a, const char *what, const char *topic)
{
    struct kafka_topic_state state;
    struct buf text = {0};
    struct err e;

    if (!kafka_ask_topic(a->asker, topic, &state, &e)) {
        if (e.kind == ERR_CONFIG)
            err_set(&e, ERR_CONFIG, e.code,
                    "the topic is not there; make it, or correct route.topics");
        return check_answer(a->checks, what, false, &e, "");
    }
    check_count(&text, (size_t)state.partitions, "partition");
    if (state.leaderless > 0) {
        err_set(&e, ERR_TRANSIENT, 0, "%s, %d of them without a leader: these wait", text.data,
                state.leaderless);
        (void)check_answer(a->checks, what, false, &e, "");
    } else {
        check_line(a->checks, what, CHECK_OK, text.data);
    }
    buf_clear(&text);
    return true;
}

static void largest_message(struct asking *a, const char *topic,
                            const struct kafka_topic_settings *settings)
{
    if (a->largest < 0)
        return;
    if (settings->max_message_bytes < 0) {
        a->largest = -1;
        a->largest_of = topic;
    } else if (settings->max_message_bytes > a->largest) {
        a->largest = settings->max_message_bytes;
        a->largest_of = topic;
    }
}

static double days(int64_t ms)
{
    return (double)ms / 86400000.0;
}

/* What the ledger has forgotten is new when it is read again. settings NULL: not known, *why. */
static void ledger_line(struct asking *a, const struct config_route *r, const char *topic,
                        const struct kafka_topic_settings *settings, const struct err *why)
{
    int64_t expire_ms = r->operation.ledger_expire_ms;
    struct buf what = {0};

    buf_printf(&what, "ledger of %s for %s", r->name, topic);
    if (settings == NULL)
        check_printf(a->checks, what.data, CHECK_UNKNOWN,
                     "whether ledger_expire is longer than its retention.ms: %s", why->text);
    else if (settings->compacted || settings->retention_ms < 0)
        check_printf(a->checks, what.data, CHECK_WARNING,
                     "forgets after %.3g days (ledger_expire), and the topic keeps records for "
                     "ever: those that are read again later count again",
                     days(expire_ms));
    else if (expire_ms <= settings->retention_ms)
        check_printf(a->checks, what.data, CHECK_WARNING,
                     "forgets after %.3g days (ledger_expire), and the topic keeps records for "
                     "%.3g days (retention.ms): those that are read again in between count again; "
                     "ledger_expire should be longer",
                     days(expire_ms), days(settings->retention_ms));
    else
        check_printf(a->checks, what.data, CHECK_OK,
                     "remembers for %.3g days, and the topic for %.3g days", days(expire_ms),
                     days(settings->retention_ms));
    buf_clear(&what);
}

static bool reads(const struct config_route *r, const char *topic)
{
    for (size_t i = 0; i < r->topics.n; i++)
        if (strcmp(r->topics.items[i], topic) == 0)
            return true;
    return false;
}

/* route: by whose expression the topic was found; -1: by its name. */
static void input_topic(struct asking *a, const char *topic, int route)
{
    const struct config *c = a->checks->config;
    struct kafka_topic_settings settings = {.max_message_bytes = -1};
    struct buf what = {0};
    struct err e, why;

    named(&what, "topic ", topic);
    if (state_line(a, what.data, topic)) {
        named(&what, "read ", topic);
        (void)check_answer(a->checks, what.data, kafka_ask_read(a->asker, topic, &e), &e,
                           "allowed");
        bool known = kafka_ask_settings(a->asker, topic, &settings, &why);
        largest_message(a, topic, &settings);
        for (size_t i = 0; i < c->n_routes; i++)
            if (c->routes[i].operation.ledger_expire_ms > 0 &&
                ((int)i == route || reads(&c->routes[i], topic)))
                ledger_line(a, &c->routes[i], topic, known ? &settings : NULL, &why);
    }
    buf_clear(&what);
}

static bool named_before(const struct config *c, size_t route, size_t topic)
{
    for (size_t r = 0; r <= route; r++)
        for (size_t t = 0; t < (r == route ? topic : c->routes[r].topics.n); t++)
            if (strcmp(c->routes[r].topics.items[t], c->routes[route].topics.items[topic]) == 0)
                return true;
    return false;
}

/* What an expression finds now. */
static void found_topics(struct asking *a, const struct kafka_topics *topics, int route,
                         const char *expression)
{
    struct buf what = {0};
    size_t n = 0;

    for (size_t i = 0; i < topics->n; i++) {
        bool by_name = false;

        if (topics->items[i].route != route)
            continue;
        for (size_t r = 0; r < a->checks->config->n_routes; r++)
            for (size_t t = 0; t < a->checks->config->routes[r].topics.n; t++)
                by_name = by_name || strcmp(a->checks->config->routes[r].topics.items[t],
                                            topics->items[i].name) == 0;
        if (by_name)
            continue;
        input_topic(a, topics->items[i].name, route);
        n++;
    }
    if (n == 0) {
        named(&what, "topics ", expression);
        check_line(a->checks, what.data, CHECK_WARNING,
                   "no topic matches now, or none that we may describe");
        buf_clear(&what);
    }
}

static void input_topics(struct asking *a, const struct kafka_topics *topics)
{
    const struct config *c = a->checks->config;

    for (size_t r = 0; r < c->n_routes; r++)
        for (size_t t = 0; t < c->routes[r].topics.n; t++) {
            const char *name = c->routes[r].topics.items[t];

            if (name[0] == '^')
                found_topics(a, topics, (int)r, name);
            else if (!named_before(c, r, t))
                input_topic(a, name, -1);
        }
}

/* --- the group --- */

static void group(struct asking *a)
{
    struct kafka_group_state state;
    struct buf what = {0}, text = {0};
    struct err e;

    named(&what, "group ", a->checks->config->kafka.group);
    if (kafka_ask_group(a->asker, &state, &e)) {
        buf_add_text(&text, "allowed; ");
        if (state.state[0] == '\0' || strcmp(state.state, "Dead") == 0) {
            buf_add_text(&text, "nobody was in it yet");
        } else {
            check_count(&text, state.members, "member");
            buf_printf(&text, ", %s", state.state);
        }
        check_line(a->checks, what.data, CHECK_OK, text.data);
    } else {
        (void)check_answer(a->checks, what.data, false, &e, "");
    }
    buf_clear(&what);
    buf_clear(&text);
}

/* --- dead letters --- */

static void dead_letter_size(struct asking *a, const char *what,
                             const struct kafka_topic_settings *settings)
{
    int64_t mine = settings->max_message_bytes;

    if (a->largest < 0)
        check_printf(a->checks, what, CHECK_UNKNOWN,
                     "max.message.bytes is %" PRId64 "; that of %s is not known", mine,
                     a->largest_of);
    else if (mine < a->largest + KAFKA_LETTER_BYTES)
        check_printf(a->checks, what, CHECK_WARNING,
                     "max.message.bytes is %" PRId64 ", and %s takes %" PRId64
                     ": a dead letter that is too large goes without its value; set it to %" PRId64
                     " or more",
                     mine, a->largest_of, a->largest, a->largest + KAFKA_LETTER_BYTES);
    else
        check_printf(a->checks, what, CHECK_OK, "max.message.bytes is %" PRId64, mine);
}

static void dead_letter_settings(struct asking *a, const char *topic, int replicas,
                                 int64_t *max_message_bytes)
{
    struct kafka_topic_settings s;
    struct buf what = {0};
    struct err e;

    *max_message_bytes = -1;
    named(&what, "size of ", topic);
    if (!kafka_ask_settings(a->asker, topic, &s, &e)) {
        check_line(a->checks, what.data, CHECK_UNKNOWN, e.text);
    } else {
        *max_message_bytes = s.max_message_bytes;
        dead_letter_size(a, what.data, &s);
        named(&what, "keeping of ", topic);
        if (s.min_insync > replicas) {
            err_set(&e, ERR_CONFIG, 0,
                    "min.insync.replicas is %" PRId64
                    " and it has %d: no dead letter would ever be acknowledged",
                    s.min_insync, replicas);
            (void)check_answer(a->checks, what.data, false, &e, "");
        } else if (s.compacted) {
            check_line(a->checks, what.data, CHECK_WARNING,
                       "cleanup.policy compacts it: of several dead letters with one key the last "
                       "stays, and one without a key is refused; set it to delete");
        } else if (s.retention_ms >= 0) {
            check_printf(a->checks, what.data, CHECK_OK, "for %.3g days (retention.ms)",
                         (double)s.retention_ms / 86400000.0);
        } else {
            check_line(a->checks, what.data, CHECK_OK, "for ever");
        }
    }
    buf_clear(&what);
}

static void dead_letter_topic(struct asking *a, const char *topic)
{
    struct kafka_topic_state state;
    struct buf what = {0}, text = {0};
    int64_t max_message_bytes;
    struct err e;

    named(&what, "dead letters ", topic);
    if (!kafka_ask_topic(a->asker, topic, &state, &e)) {
        if (e.kind == ERR_CONFIG)
            err_set(&e, ERR_CONFIG, e.code,
                    "the topic is not there; run: idemsink init -c FILE (or make it)");
        (void)check_answer(a->checks, what.data, false, &e, "");
    } else {
        check_count(&text, (size_t)state.partitions, "partition");
        buf_add_text(&text, ", ");
        check_count(&text, (size_t)state.replicas, "replica");
        check_line(a->checks, what.data, CHECK_OK, text.data);
        dead_letter_settings(a, topic, state.replicas, &max_message_bytes);
        named(&what, "write ", topic);
        bool ok = kafka_ask_write(a->asker, topic, max_message_bytes, &e);
        if (!ok && e.kind == ERR_TRANSIENT)
            check_line(a->checks, what.data, CHECK_UNKNOWN, e.text);
        else
            (void)check_answer(a->checks, what.data, ok, &e, "allowed");
    }
    buf_clear(&what);
    buf_clear(&text);
}

/* --- all of it --- */

void check_kafka(struct checks *c)
{
    struct asking a = {.checks = c};
    struct kafka_topics topics = {0};
    struct buf text = {0};
    struct err e;

    bool there = kafka_describe(c->config, BROKER_WAIT_MS, &topics, &e);
    check_count(&text, (size_t)topics.brokers, "broker");
    if (check_service(c, "kafka", there, &e, text.data,
                      "kafka.brokers (and security.protocol in kafka.properties)")) {
        a.asker = kafka_asker_new(c->config, BROKER_WAIT_MS, &e);
        if (a.asker == NULL) {
            (void)check_answer(c, "kafka client", false, &e, "");
        } else {
            input_topics(&a, &topics);
            group(&a);
            if (c->config->dead_letter.topic[0])
                dead_letter_topic(&a, c->config->dead_letter.topic);
        }
    }
    if (!c->config->dead_letter.topic[0])
        check_line(c, "dead letters", CHECK_NONE,
                   c->config->dead_letter.on_bad_record == ON_BAD_SKIP
                       ? "bad records are dropped (on_bad_record = \"skip\")"
                       : "the first bad record stops the process");
    kafka_asker_free(a.asker);
    kafka_topics_clear(&topics);
    buf_clear(&text);
}
