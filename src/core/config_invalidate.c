/*
 * config_invalidate.c - what each [[route.invalidate]] needs, and what would do harm. The mapping
 * relies on it.
 */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"
#include "core/template.h"

enum { LEAST_EXPIRE_MS = 1000 };

/* Which keys have a meaning for which modes, and which of these can't be without. */
enum {
    PUBSUB = 1 << INVALIDATE_PUBSUB,
    UNLINK = 1 << INVALIDATE_UNLINK,
    MONSQLIZE = 1 << INVALIDATE_MONSQLIZE,
    VERSION = 1 << INVALIDATE_VERSION,
    STREAM = 1 << INVALIDATE_STREAM
};
static const struct {
    const char *key;
    int modes, needed;
} meanings[] = {
    {"channel", PUBSUB | MONSQLIZE, PUBSUB},
    {"stream", STREAM, STREAM},
    {"maxlen", STREAM, 0},
    {"payload", PUBSUB | STREAM, PUBSUB | STREAM},
    {"keys", UNLINK | MONSQLIZE | VERSION, UNLINK | VERSION},
    {"expire", VERSION, 0},
    {"flavor", MONSQLIZE, 0},
    {"patterns", MONSQLIZE, 0},
    {"collections", MONSQLIZE, 0},
    {"bookmarks", MONSQLIZE, 0},
    {"receivers_echo_safe", MONSQLIZE, 0},
};
static const char section[] = "route.invalidate";

const char *config_invalidate_mode_name(enum config_invalidate_mode mode)
{
    static const char *const names[] = {"pubsub", "unlink", "monsqlize", "version", "stream"};

    return names[mode];
}

bool config_has_meaning(enum config_invalidate_mode mode, const char *key)
{
    const char *dot = strrchr(key, '.'), *name = dot ? dot + 1 : key;

    for (size_t k = 0; k < sizeof meanings / sizeof meanings[0]; k++)
        if (strcmp(name, meanings[k].key) == 0)
            return (meanings[k].modes & (1 << mode)) != 0;
    return true;
}

static bool is_empty(const struct config_invalidate *v, const struct config_key *k)
{
    const void *field = (const char *)v + k->field;

    MUST(k->type == CONFIG_STRING || k->type == CONFIG_LIST);
    if (k->type == CONFIG_LIST)
        return ((const struct config_list *)field)->n == 0;
    return **(char *const *)field == '\0';
}

static bool check_meanings(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_invalidate *v = &s->config->routes[i].invalidate[j];

    for (size_t k = 0; k < sizeof meanings / sizeof meanings[0]; k++) {
        const char *key = meanings[k].key;

        if (!config_has_meaning(v->mode, key) &&
            config_find(s, "route.%zu.invalidate.%zu.%s", i, j, key))
            return config_fail(config_at(s, "route.%zu.invalidate.%zu.%s", i, j, key),
                               "has no meaning for mode = \"%s\"",
                               config_invalidate_mode_name(v->mode));
    }
    for (size_t k = 0; k < sizeof meanings / sizeof meanings[0]; k++)
        if ((meanings[k].needed & (1 << v->mode)) &&
            is_empty(v, config_key_find(section, meanings[k].key)))
            return config_fail(config_at(s, "route.%zu.invalidate.%zu.%s", i, j, meanings[k].key),
                               "is missing, and this mode needs it");
    return true;
}

/* A name with a wildcard in it can't be quoted in a pattern: other collections would match, too. */
static bool check_pattern_names(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_route *r = &s->config->routes[i];

    if (strpbrk(r->database, "*?[]\\") == NULL && strpbrk(r->collection, "*?[]\\") == NULL)
        return true;
    return config_fail(config_at(s, "route.%zu.invalidate.%zu.patterns", i, j),
                       "the name %s.%s holds a wildcard, which a pattern can't quote; use keys "
                       "(flavor = 3)",
                       r->database, r->collection);
}

static bool check_collections(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_invalidate *v = &s->config->routes[i].invalidate[j];

    if (v->collections.n > 0 && !v->patterns && !v->bookmarks)
        return config_fail(
            config_at(s, "route.%zu.invalidate.%zu.collections", i, j),
            "has no meaning without patterns or bookmarks: keys name what they mean");
    for (size_t k = 0; k < v->collections.n; k++) {
        const char *name = v->collections.items[k];
        size_t dot = strcspn(name, ".");

        config_at(s, "route.%zu.invalidate.%zu.collections.%zu", i, j, k);
        if (dot == 0 || name[dot] == '\0' || name[dot + 1] == '\0')
            return config_fail(s, "\"%.80s\" is not database.collection", name);
        if (strpbrk(name, "*?[]\\") != NULL)
            return config_fail(s, "\"%.80s\" holds a wildcard, which a pattern can't quote", name);
        for (size_t n = 0; n < k; n++)
            if (strcmp(name, v->collections.items[n]) == 0)
                return config_fail(s, "\"%.80s\" is there twice", name);
    }
    return true;
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
    if (!check_collections(s, i, j))
        return false;
    return !(v->patterns || v->bookmarks) || v->collections.n > 0 || check_pattern_names(s, i, j);
}

static bool check_expire(struct config_parse_state *s, size_t i, size_t j)
{
    int64_t expire_ms = s->config->routes[i].invalidate[j].expire_ms;

    if (expire_ms == 0 || expire_ms >= LEAST_EXPIRE_MS)
        return true;
    return config_fail(config_at(s, "route.%zu.invalidate.%zu.expire", i, j),
                       "%" PRId64
                       " ms is below the minimum 1s: a generation key has to live longer "
                       "than every cache entry that has its number; 0s: for ever",
                       expire_ms);
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
    if (v->mode == INVALIDATE_VERSION)
        return check_expire(s, i, j);
    return v->mode != INVALIDATE_MONSQLIZE || check_monsqlize(s, i, j, v);
}

/* The same compilation that the mapping makes of it, so that a mistake has a place. */
bool config_check_template(struct config_parse_state *s, size_t i, enum template_kind kind,
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
    if (*v->channel && !config_check_template(s, i, TEMPLATE_TEXT, v->channel))
        return false;
    config_at(s, "route.%zu.invalidate.%zu.stream", i, j);
    if (*v->stream && !config_check_template(s, i, TEMPLATE_TEXT, v->stream))
        return false;
    config_at(s, "route.%zu.invalidate.%zu.payload", i, j);
    if (*v->payload && !config_check_template(s, i, TEMPLATE_JSON, v->payload))
        return false;
    for (size_t k = 0; k < v->keys.n; k++)
        if (!config_check_template(config_at(s, "route.%zu.invalidate.%zu.keys.%zu", i, j, k), i,
                                   key_kind, v->keys.items[k]))
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
