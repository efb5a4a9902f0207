/*
 * config_check.c - what has to fit together outside of the routes.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "core/config_private.h"

/* --- kafka.properties
 * ---------------------------------------------------------------------------------------------- */

/* What a guarantee rests on, or what has a key of its own. */
static const struct {
    const char *name;
    const char *value; /* NULL: any */
    const char *why;
} ours[] = {
    {"enable.auto.commit", NULL, "offsets are committed only after MongoDB's acknowledgement"},
    {"auto.commit.enable", NULL, "offsets are committed only after MongoDB's acknowledgement"},
    {"enable.auto.offset.store", NULL,
     "offsets are committed only after MongoDB's acknowledgement"},
    {"enable.partition.eof", NULL, "it is needed to see the end of a partition, and is always on"},
    {"isolation.level", "read_uncommitted", "records of aborted transactions would be stored"},
    {"enable.idempotence", NULL, "dead letters are always written idempotently"},
    {"acks", NULL, "a dead letter is settled only after all in-sync replicas have it"},
    {"request.required.acks", NULL,
     "a dead letter is settled only after all in-sync replicas have it"},
    {"transactional.id", NULL, "dead letters are not written in transactions"},
    {"group.id", NULL, "it is kafka.group"},
    {"bootstrap.servers", NULL, "they are kafka.brokers"},
    {"metadata.broker.list", NULL, "they are kafka.brokers"},
    {"group.instance.id", NULL, "it is kafka.instance_id"},
    {"client.id", NULL, "it is kafka.client_id"},
    {"delivery.report.only.error", NULL, "a dead letter is settled by its delivery report"},
    {"message.timeout.ms", "0", "a worker would wait for a dead letter without end"},
    {"delivery.timeout.ms", "0", "a worker would wait for a dead letter without end"},
    {"log.queue", NULL, "librdkafka's log goes into idemsink's own"},
};

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);

    return n >= m && strcmp(text + n - m, end) == 0;
}

bool config_property_secret(const char *name)
{
    static const char *const words[] = {"password",
                                        "secret",
                                        "key.pem",
                                        "username",
                                        "token",
                                        "jaas",
                                        "oauthbearer.config",
                                        "oauthbearer.extensions",
                                        "kinit.cmd"};

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasestr(name, words[i]))
            return true;
    return false;
}

static bool unknown_property(struct config_parse_state *s, const char *name, const char *known)
{
    struct buf nearest = {0};

    config_add_nearest_choice(known, name, &nearest);
    config_fail(s, "librdkafka knows no such property%s", buf_text(&nearest));
    buf_clear(&nearest);
    return false;
}

static bool ask_library(struct config_parse_state *s, const struct config_pair *p)
{
    struct buf why = {0}, known = {0};
    bool fine =
        !s->in->drivers.property || s->in->drivers.property(p->name, p->value, &why, &known);

    if (!fine && known.len > 0)
        (void)unknown_property(s, p->name, buf_text(&known));
    else if (!fine && config_property_secret(p->name))
        config_fail(s, "librdkafka refuses the value");
    else if (!fine)
        config_fail(s, "\"%.60s\": %s", p->value, buf_text(&why));
    buf_clear(&why);
    buf_clear(&known);
    return fine;
}

static bool check_property(struct config_parse_state *s, const struct config_pair *p)
{
    config_at(s, "kafka.properties.%s", p->name);
    for (size_t i = 0; i < sizeof ours / sizeof ours[0]; i++)
        if (strcmp(p->name, ours[i].name) == 0 &&
            (!ours[i].value || strcmp(p->value, ours[i].value) == 0))
            return config_fail(s, "%s%s%s can't be set: %s", ours[i].value ? "\"" : "",
                               ours[i].value ? ours[i].value : "it", ours[i].value ? "\"" : "",
                               ours[i].why);
    if (ends_with(p->name, "_cb"))
        return config_fail(s, "it can't be set: callbacks are code, and are idemsink's own");
    return ask_library(s, p);
}

static bool check_drain(struct config_parse_state *s)
{
    int64_t poll_ms = 300000; /* librdkafka's default of max.poll.interval.ms */
    const struct config_pairs *p = &s->config->kafka.properties;

    for (size_t i = 0; i < p->n; i++)
        if (strcmp(p->items[i].name, "max.poll.interval.ms") == 0 &&
            strspn(p->items[i].value, "0123456789") == strlen(p->items[i].value))
            poll_ms = strtoll(p->items[i].value, NULL, 10);
    if (s->config->worker.drain_timeout_ms * 2 < poll_ms)
        return true;
    return config_fail(
        config_beside(s, "worker.drain_timeout", "kafka.properties.max.poll.interval.ms"),
        "%" PRId64 " ms is not below half of max.poll.interval.ms (%" PRId64
        " ms): the group would expel the process while it drains",
        s->config->worker.drain_timeout_ms, poll_ms);
}

static int64_t small_number(const char *digits)
{
    return strtoll(digits, NULL, 10);
}

/* One of "host", "host:9092", "[::1]:9092", "SSL://host:9092", as librdkafka takes them; it would
 * try a wrong one for ever. */
static bool is_broker(const char *text, size_t len)
{
    char *copy = mem_text_n(text, len), *host = strstr(copy, "://"), *port;
    bool fine;

    host = host ? host + 3 : copy;
    port = *host == '[' ? strchr(host, ']') : host + strcspn(host, ":");
    fine = port && port > host + (*host == '[') && strpbrk(host, " \t/;,@?") == NULL;
    if (fine && *port == ']')
        port++;
    if (fine && *port != '\0')
        fine = *port == ':' && port[1] != '\0' && strlen(port + 1) <= 5 &&
               strspn(port + 1, "0123456789") == strlen(port + 1) && small_number(port + 1) >= 1 &&
               small_number(port + 1) <= 65535;
    mem_free(copy);
    return fine;
}

static bool check_brokers(struct config_parse_state *s)
{
    const char *at = s->config->kafka.brokers;

    for (;;) {
        size_t len;

        at += strspn(at, " \t");
        len = strcspn(at, ",");
        for (; len > 0 && strchr(" \t", at[len - 1]); len--)
            ;
        if (!is_broker(at, len))
            return config_fail(config_at(s, "kafka.brokers"), "\"%.*s\" is not host:port",
                               (int)(len < 60 ? len : 60), at);
        at += strcspn(at, ",");
        if (*at++ == '\0')
            return true;
    }
}

bool config_check_kafka(struct config_parse_state *s)
{
    const struct config_pairs *p = &s->config->kafka.properties;

    for (size_t i = 0; i < p->n; i++)
        if (!check_property(s, &p->items[i]))
            return false;
    return check_brokers(s) && check_drain(s);
}

/* --- the rest
 * ---------------------------------------------------------------------------------------------------------
 */

static bool starts_with(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

static bool check_uri(struct config_parse_state *s, const char *key, const char *uri,
                      bool (*fine)(const char *uri, struct buf *why))
{
    struct buf why = {0};
    bool ok = !fine || fine(uri, &why);

    if (!ok)
        config_fail(config_at(s, "%s", key), "%s", buf_text(&why));
    buf_clear(&why);
    return ok;
}

static bool check_mongo(struct config_parse_state *s)
{
    const struct config *c = s->config;
    const char *uri = c->mongo.uri, *w = c->mongo.write_concern;

    if (!starts_with(uri, "mongodb://") && !starts_with(uri, "mongodb+srv://"))
        return config_fail(config_at(s, "mongo.uri"),
                           "has to start with mongodb:// or mongodb+srv://");
    if (!check_uri(s, "mongo.uri", uri, s->in->drivers.mongo_uri))
        return false;
    config_at(s, "mongo.write_concern");
    if (*w == '\0')
        return config_fail(s, "is empty");
    if (strspn(w, "-0123456789") == strlen(w) &&
        (strspn(w, "0123456789") != strlen(w) || strlen(w) > 2 || small_number(w) < 1 ||
         small_number(w) > 50))
        return config_fail(s,
                           "\"%.20s\" members: has to be 1 to 50, as without an acknowledgement "
                           "nothing could be committed",
                           w);
    if (c->mongo.write_timeout_ms >= c->mongo.socket_timeout_ms)
        return config_fail(config_beside(s, "mongo.write_timeout", "mongo.socket_timeout"),
                           "%" PRId64 " ms is not below mongo.socket_timeout (%" PRId64
                           " ms): the server's answer would always come too late",
                           c->mongo.write_timeout_ms, c->mongo.socket_timeout_ms);
    return true;
}

static bool check_worker(struct config_parse_state *s)
{
    const struct config *c = s->config;

    if (c->worker.max_records < c->worker.batch)
        return config_fail(config_beside(s, "worker.max_records", "worker.batch"),
                           "%" PRId64 " is below worker.batch (%" PRId64
                           "): no bulk could ever be full",
                           c->worker.max_records, c->worker.batch);
    if (c->retry.first_ms > c->retry.max_ms)
        return config_fail(config_beside(s, "retry.first", "retry.max"),
                           "%" PRId64 " ms is above retry.max (%" PRId64 " ms)", c->retry.first_ms,
                           c->retry.max_ms);
    return true;
}

/* host:port, the host may be [IPv6]. */
static bool is_listen(const char *text)
{
    const char *colon = strrchr(text, ':'), *host_end = colon;

    if (!colon || colon == text || strlen(colon + 1) > 5 || colon[1] == '\0' ||
        strspn(colon + 1, "0123456789") != strlen(colon + 1) || small_number(colon + 1) > 65535)
        return false;
    if (*text == '[')
        return host_end[-1] == ']' && host_end - text > 2;
    return memchr(text, ':', (size_t)(host_end - text)) == NULL && !strpbrk(text, " /[]@");
}

static bool check_dead_letter(struct config_parse_state *s)
{
    const char *topic = s->config->dead_letter.topic;
    const char *fault;

    if (*topic == '\0')
        return true;
    if (*topic == '^')
        return config_fail(config_at(s, "dead_letter.topic"), "has to be one topic, not a regex");
    if ((fault = config_topic_fault(topic)))
        return config_fail(config_at(s, "dead_letter.topic"), "\"%.60s\" %s", topic, fault);
    if (config_find(s, "dead_letter.on_bad_record"))
        return config_fail(config_at(s, "dead_letter.on_bad_record"),
                           "has no meaning together with dead_letter.topic: bad records go to the "
                           "topic, so neither stop nor skip applies; remove one of the two");
    return true;
}

bool config_check(struct config_parse_state *s)
{
    const struct config *c = s->config;

    if (!config_check_kafka(s) || !check_mongo(s))
        return false;
    if (*c->redis.uri && !starts_with(c->redis.uri, "redis://") &&
        !starts_with(c->redis.uri, "rediss://") && !starts_with(c->redis.uri, "unix://"))
        return config_fail(config_at(s, "redis.uri"),
                           "has to start with redis://, rediss:// or unix://");
    if (*c->redis.uri && !check_uri(s, "redis.uri", c->redis.uri, s->in->drivers.redis_uri))
        return false;
    if (!check_worker(s) || !check_dead_letter(s))
        return false;
    if (*c->http.listen && !is_listen(c->http.listen))
        return config_fail(config_at(s, "http.listen"),
                           "is not host:port, like \"127.0.0.1:9464\"");
    return config_check_routes(s) && config_check_topics(s) && config_check_effects(s) &&
           config_check_invalidations(s);
}
