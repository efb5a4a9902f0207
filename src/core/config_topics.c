/*
 * config_topics.c - topic names and patterns, and that no topic has two ways to go.
 */
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "core/config_private.h"

enum { TOPIC_MAX = 249, REPETITIONS_MAX = 1000 };

/* "{m,n}" multiplies when nested, and the C library builds all of it: ((a{999}){999}){999} takes
 * all memory. */
static bool repeats_too_much(const char *pattern)
{
    long product = 1;

    for (const char *at = strchr(pattern, '{'); at; at = strchr(at + 1, '{')) {
        size_t len = strspn(at + 1, "0123456789,");

        for (const char *digits = at + 1; digits < at + 1 + len;) {
            char *end;
            long n = strtol(digits, &end, 10);

            if (n > REPETITIONS_MAX || (n > 1 && (product *= n) > REPETITIONS_MAX))
                return true;
            digits = end > digits ? end : digits + 1;
        }
    }
    return false;
}

const char *config_topic_fault(const char *text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    regex_t re;

    if (strlen(text) > TOPIC_MAX)
        return "is longer than 249 letters";
    if (*text == '^') {
        if (repeats_too_much(text))
            return "repeats more than 1000 times";
        if (regcomp(&re, text, REG_EXTENDED | REG_NOSUB) != 0)
            return "is not a POSIX extended regular expression";
        regfree(&re);
        return NULL;
    }
    if (strspn(text, letters) != strlen(text))
        return "is not a topic name: letters, digits, '.', '_' and '-' (a regex starts with ^)";
    if (strcmp(text, "__consumer_offsets") == 0 || strcmp(text, "__transaction_state") == 0 ||
        strcmp(text, "__share_group_state") == 0)
        return "is Kafka's own topic, which is never read as input";
    if (strcmp(text, ".") == 0 || strcmp(text, "..") == 0 || *text == '\0')
        return "is not a topic name";
    return NULL;
}

bool config_topic_matches(const char *pattern, const char *topic)
{
    regex_t re;
    bool matches;

    if (regcomp(&re, pattern, REG_EXTENDED | REG_NOSUB) != 0)
        return false;
    matches = regexec(&re, topic, 0, NULL, 0) == 0;
    regfree(&re);
    return matches;
}

/* Does this entry of a route's topics take this topic? */
static bool takes(const char *entry, const char *topic)
{
    return *entry == '^' ? config_topic_matches(entry, topic) : strcmp(entry, topic) == 0;
}

static bool check_names(struct config_parse_state *s, size_t route)
{
    const struct config_list *topics = &s->config->routes[route].topics;
    const char *dead = s->config->dead_letter.topic;

    for (size_t i = 0; i < topics->n; i++) {
        const char *entry = topics->items[i], *fault = config_topic_fault(entry);

        config_at(s, "route.%zu.topics.%zu", route, i);
        if (fault)
            return config_fail(s, "\"%.60s\" %s", entry, fault);
        if (*entry == '^' && topics->n > 1)
            return config_fail(s, "a regex stands alone; make another [[route]] for the rest");
        if (*dead && takes(entry, dead))
            return config_fail(s,
                               "\"%.60s\" takes the dead-letter topic \"%.60s\" too: every dead "
                               "letter would be read again",
                               entry, dead);
    }
    return true;
}

/* Can a topic go both ways? It is put into topic where neither names it. */
static bool overlap(const char *a, const char *b, struct buf *topic)
{
    if (*a == '^' && *b == '^')
        return strcmp(a, b) == 0 || config_patterns_meet(a, b, topic);
    return *b == '^' ? takes(b, a) : takes(a, b);
}

static bool check_pair(struct config_parse_state *s, const char *a, const char *b,
                       const char *first_route)
{
    struct buf topic = {0};
    bool apart = !overlap(a, b, &topic);

    if (!apart && topic.len > 0)
        config_fail(
            s,
            "\"%.60s\" overlaps with \"%.60s\" of route \"%.60s\": both take \"%.60s\", and a "
            "topic belongs to one route",
            b, a, first_route, buf_text(&topic));
    else if (!apart)
        config_fail(s,
                    "\"%.60s\" overlaps with \"%.60s\" of route \"%.60s\": a topic belongs to one "
                    "route",
                    b, a, first_route);
    buf_clear(&topic);
    return apart;
}

static bool check_overlap(struct config_parse_state *s, size_t first, size_t second)
{
    const struct config_route *a = &s->config->routes[first], *b = &s->config->routes[second];

    for (size_t i = 0; i < a->topics.n; i++)
        for (size_t j = 0; j < b->topics.n; j++) {
            config_at(s, "route.%zu.topics.%zu", second, j);
            if (!check_pair(s, a->topics.items[i], b->topics.items[j], a->name))
                return false;
        }
    return true;
}

bool config_check_topics(struct config_parse_state *s)
{
    for (size_t i = 0; i < s->config->n_routes; i++)
        if (!check_names(s, i))
            return false;
    for (size_t i = 0; i < s->config->n_routes; i++)
        for (size_t j = 0; j < i; j++)
            if (!check_overlap(s, j, i))
                return false;
    return true;
}
