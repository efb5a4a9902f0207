/*
 * config_invalidate.c - what each [[route.invalidate]] needs, and what would do harm.
 */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"
#include "core/template.h"

/* Which keys have a meaning for which modes. */
enum {
    PUBSUB = 1 << INVALIDATE_PUBSUB,
    UNLINK = 1 << INVALIDATE_UNLINK,
    MONSQLIZE = 1 << INVALIDATE_MONSQLIZE
};
static const struct {
    const char *key;
    int modes;
} meanings[] = {
    {"channel", PUBSUB | MONSQLIZE},
    {"payload", PUBSUB},
    {"keys", UNLINK | MONSQLIZE},
    {"flavor", MONSQLIZE},
    {"patterns", MONSQLIZE},
    {"bookmarks", MONSQLIZE},
    {"receivers_echo_safe", MONSQLIZE},
};

bool config_has_meaning(enum config_invalidate_mode mode, const char *key)
{
    const char *dot = strrchr(key, '.'), *name = dot ? dot + 1 : key;

    for (size_t k = 0; k < sizeof meanings / sizeof meanings[0]; k++)
        if (strcmp(name, meanings[k].key) == 0)
            return (meanings[k].modes & (1 << mode)) != 0;
    return true;
}

static bool check_meanings(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_invalidate *v = &s->config->routes[i].invalidate[j];
    const char *mode = v->mode == INVALIDATE_PUBSUB   ? "pubsub"
                       : v->mode == INVALIDATE_UNLINK ? "unlink"
                                                      : "monsqlize";

    for (size_t k = 0; k < sizeof meanings / sizeof meanings[0]; k++)
        if (!config_has_meaning(v->mode, meanings[k].key) &&
            config_find(s, "route.%zu.invalidate.%zu.%s", i, j, meanings[k].key))
            return config_fail(config_at(s, "route.%zu.invalidate.%zu.%s", i, j, meanings[k].key),
                               "has no meaning for mode = \"%s\"", mode);
    return true;
}

static bool need(struct config_parse_state *s, size_t i, size_t j, const char *key)
{
    return config_fail(config_at(s, "route.%zu.invalidate.%zu.%s", i, j, key),
                       "is missing, and this mode needs it");
}

static bool check_monsqlize(struct config_parse_state *s, size_t i, size_t j,
                            struct config_invalidate *v)
{
    bool third = v->flavor == 3;

    if (!config_find(s, "route.%zu.invalidate.%zu.patterns", i, j))
        v->patterns = !third;
    if (*v->channel == '\0') {
        mem_free(v->channel);
        v->channel = mem_text("monsqlize:cache:invalidate");
    }
    if (v->flavor == 2)
        return config_fail(config_at(s, "route.%zu.invalidate.%zu.flavor", i, j),
                           "2 is neither 1 nor 3");
    if (v->bookmarks && !third)
        return config_fail(config_at(s, "route.%zu.invalidate.%zu.bookmarks", i, j),
                           "needs flavor = 3");
    if (v->keys.n > 0 && !third)
        return config_fail(
            config_at(s, "route.%zu.invalidate.%zu.keys", i, j),
            "exact keys need flavor = 3; receivers of version 1.x know patterns only");
    if (third && (v->patterns || v->bookmarks) && !v->receivers_echo_safe)
        return config_fail(
            config_at(s, "route.%zu.invalidate.%zu.%s", i, j,
                      v->patterns ? "patterns" : "bookmarks"),
            "two or more multi-level receivers of version 3.x send every pattern on to "
            "each other for ever; use keys, or set receivers_echo_safe = true when "
            "yours do not");
    if (!v->patterns && !v->bookmarks && v->keys.n == 0)
        return config_fail(config_at(s, "route.%zu.invalidate.%zu.keys", i, j),
                           "neither keys nor patterns: there is nothing to send");
    return true;
}

/* Records that wait for the end of a window hold up every rebalance and the end of the process. */
static bool check_window(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_invalidate *v = &s->config->routes[i].invalidate[j];
    int64_t drain_ms = s->config->worker.drain_timeout_ms;

    if (v->delivery == DELIVERY_BEST_EFFORT || v->coalesce_ms <= drain_ms / 2)
        return true;
    return config_fail(config_at(s, "route.%zu.invalidate.%zu.coalesce", i, j),
                       "%" PRId64 " ms is more than half of worker.drain_timeout (%" PRId64
                       " ms): with delivery = \"before_commit\" offsets wait for the end of "
                       "this time, and so would every rebalance; make it shorter",
                       v->coalesce_ms, drain_ms);
}

static bool check_invalidation(struct config_parse_state *s, size_t i, size_t j)
{
    struct config_invalidate *v = &s->config->routes[i].invalidate[j];

    if (!check_meanings(s, i, j) || !check_window(s, i, j))
        return false;
    if (*s->config->redis.uri == '\0')
        return config_fail(config_at(s, "route.%zu.invalidate.%zu", i, j),
                           "needs redis.uri, and there is none");
    switch (v->mode) {
    case INVALIDATE_PUBSUB:
        if (*v->channel == '\0')
            return need(s, i, j, "channel");
        return *v->payload ? true : need(s, i, j, "payload");
    case INVALIDATE_UNLINK:
        return v->keys.n > 0 ? true : need(s, i, j, "keys");
    case INVALIDATE_MONSQLIZE:
        return check_monsqlize(s, i, j, v);
    }
    return true;
}

/* The same compilation that the mapping makes of it, so that a mistake has a place. */
static bool check_template(struct config_parse_state *s, size_t i, enum template_kind kind,
                           const char *text)
{
    const struct config_route *r = &s->config->routes[i];
    struct template_names names = {.database = r->database, .collection = r->collection};
    struct err why;
    struct template *t = template_new(kind, text, &names, &why);
    bool needs_payload = t && template_needs_payload(t);

    template_free(t);
    if (needs_payload && !config_has_fields(r))
        return config_fail(s, "a value path, and a payload of this format has no fields; possible "
                              "are @key, @header.NAME and what else begins with @");
    return t || config_fail(s, "%s", why.text);
}

static bool check_templates(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_invalidate *v = &s->config->routes[i].invalidate[j];
    enum template_kind key_kind = v->mode == INVALIDATE_MONSQLIZE ? TEMPLATE_GLOB : TEMPLATE_TEXT;

    config_at(s, "route.%zu.invalidate.%zu.channel", i, j);
    if (*v->channel && !check_template(s, i, TEMPLATE_TEXT, v->channel))
        return false;
    config_at(s, "route.%zu.invalidate.%zu.payload", i, j);
    if (*v->payload && !check_template(s, i, TEMPLATE_JSON, v->payload))
        return false;
    for (size_t k = 0; k < v->keys.n; k++)
        if (!check_template(config_at(s, "route.%zu.invalidate.%zu.keys.%zu", i, j, k), i, key_kind,
                            v->keys.items[k]))
            return false;
    return true;
}

bool config_check_invalidations(struct config_parse_state *s)
{
    uint32_t index = 0;

    for (size_t i = 0; i < s->config->n_routes; i++)
        for (size_t j = 0; j < s->config->routes[i].n_invalidate; j++) {
            s->config->routes[i].invalidate[j].index = index++;
            if (!check_invalidation(s, i, j) || !check_templates(s, i, j))
                return false;
        }
    return true;
}
