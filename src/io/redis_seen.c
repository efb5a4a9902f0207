/*
 * redis_seen.c - the seen_store port in Redis.
 *
 *   <prefix><32 hex digits>  what was seen; holds the generation under which it was entered
 *   <prefix>generation       the one in force, 16 hex digits; made by whoever misses it
 */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "io/redis.h"
#include "io/redis_private.h"

enum {
    TIMEOUT_MS = 100, /* at most: a slow answer is worth less than the look that it saves */
    ENTER_MAX = 1000, /* in one exchange, so that the time-out is for this many */
    ID_DIGITS = 32
};

struct redis_seen {
    const struct config *config;
    char **prefixes; /* by route; NULL: not shared */
    char **generations;
};

struct seen_link {
    struct redis_seen *store;
    struct redis_link link;
    const char **words;
    size_t words_cap;
    struct buf names; /* of the keys, one behind the other, each with its NUL */
};

/* --- words --- */

static size_t name_size(const struct seen_link *l, uint32_t route)
{
    return strlen(l->store->prefixes[route]) + ID_DIGITS + 1;
}

static void make_names(struct seen_link *l, uint32_t route, const struct seen_id *ids, size_t n)
{
    buf_reset(&l->names);
    for (size_t i = 0; i < n; i++) {
        buf_printf(&l->names, "%s%016" PRIx64 "%016" PRIx64, l->store->prefixes[route], ids[i].high,
                   ids[i].low);
        buf_add_char(&l->names, '\0');
    }
}

static void new_generation(char text[sizeof(struct seen_generation)])
{
    (void)snprintf(text, sizeof(struct seen_generation), "%016" PRIx64, random_bits());
}

/* --- exchanges --- */

static bool write_down(struct seen_link *l, int argc, const char **argv, struct err *e)
{
    if (redisAppendCommandArgv(l->link.context, argc, argv, NULL) == REDIS_OK)
        return true;
    redis_link_close(&l->link);
    return err_set(e, ERR_TRANSIENT, 0, "redis: a command can't be written down");
}

static bool misread(struct seen_link *l, const char *command, struct err *e)
{
    redis_link_close(&l->link);
    return err_set(e, ERR_TRANSIENT, 0, "redis at %s: %s: an answer that is not understood",
                   l->link.where, command);
}

static bool next_answer(struct seen_link *l, const char *command, int64_t deadline_ms,
                        redisReply **out, struct err *e)
{
    if (!redis_link_answer(&l->link, deadline_ms, out, e))
        return false;
    if ((*out)->type != REDIS_REPLY_ERROR)
        return true;
    (void)redis_link_refused(&l->link, command, *out, e);
    freeReplyObject(*out);
    redis_link_close(&l->link); /* what else was written down is not waited for */
    return false;
}

/* SET <name> <value> [NX], alone. */
static bool set_generation(struct seen_link *l, uint32_t route, bool only_if_missing, struct err *e)
{
    char text[sizeof(struct seen_generation)];
    const char *words[] = {"SET", l->store->generations[route], text, "NX"};
    redisReply *reply;

    new_generation(text);
    if (!redis_link_open(&l->link, e) || !write_down(l, only_if_missing ? 4 : 3, words, e))
        return false;
    int64_t deadline_ms = clock_mono_ms() + l->link.timeout_ms;
    if (!redis_link_flush(&l->link, deadline_ms, e) ||
        !next_answer(l, words[0], deadline_ms, &reply, e))
        return false;
    freeReplyObject(reply);
    return true;
}

static bool same_text(const redisReply *r, const struct seen_generation *g)
{
    return r->type == REDIS_REPLY_STRING && strlen(g->text) == r->len &&
           memcmp(g->text, r->str, r->len) == 0;
}

/* The first of the values is the generation. */
static bool take_found(const redisReply *reply, size_t n, bool *found, struct seen_generation *g)
{
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements != n + 1)
        return false;
    const redisReply *first = reply->element[0];
    if (first->type == REDIS_REPLY_STRING && first->len < sizeof g->text)
        memcpy(g->text, first->str, first->len + 1);
    for (size_t i = 0; g->text[0] && i < n; i++)
        found[i] = same_text(reply->element[i + 1], g);
    return true;
}

static bool ask(struct seen_link *l, uint32_t route, const struct seen_id *ids, size_t n,
                bool *found, struct seen_generation *g, struct err *e)
{
    redisReply *reply;

    if (!redis_link_open(&l->link, e))
        return false;
    make_names(l, route, ids, n);
    if (n + 2 > l->words_cap) {
        l->words_cap = n + 2;
        l->words = mem_grow(l->words, l->words_cap, sizeof(const char *));
    }
    l->words[0] = "MGET";
    l->words[1] = l->store->generations[route];
    for (size_t i = 0; i < n; i++)
        l->words[i + 2] = l->names.data + i * name_size(l, route);
    if (!write_down(l, (int)n + 2, l->words, e))
        return false;
    int64_t deadline_ms = clock_mono_ms() + l->link.timeout_ms;
    if (!redis_link_flush(&l->link, deadline_ms, e) ||
        !next_answer(l, "MGET", deadline_ms, &reply, e))
        return false;
    bool understood = take_found(reply, n, found, g);
    freeReplyObject(reply);
    if (!understood)
        return misread(l, "MGET", e);
    return g->text[0] || set_generation(l, route, true, e);
}

static bool enter(struct seen_link *l, uint32_t route, const struct seen_id *ids, size_t n,
                  const struct seen_generation *g, struct err *e)
{
    char ttl[24];

    if (!redis_link_open(&l->link, e))
        return false;
    (void)snprintf(ttl, sizeof ttl, "%" PRId64, l->store->config->routes[route].seen.ttl_ms);
    make_names(l, route, ids, n);
    for (size_t i = 0; i < n; i++) {
        const char *words[] = {"SET", l->names.data + i * name_size(l, route), g->text, "PX", ttl};

        if (!write_down(l, 5, words, e))
            return false;
    }
    int64_t deadline_ms = clock_mono_ms() + l->link.timeout_ms;
    if (!redis_link_flush(&l->link, deadline_ms, e))
        return false;
    for (size_t i = 0; i < n; i++) {
        redisReply *reply;

        if (!next_answer(l, "SET", deadline_ms, &reply, e))
            return false;
        freeReplyObject(reply);
    }
    return true;
}

/* --- the port --- */

static void *link_open(void *self)
{
    struct seen_link *l = mem_new(sizeof *l);
    struct redis_seen *store = self;
    int64_t timeout_ms = store->config->redis.timeout_ms;
    struct err ignored;

    l->store = store;
    /* The same URI and build as in redis_seen_new(). */
    MUST(redis_link_init(&l->link, store->config->redis.uri,
                         timeout_ms < TIMEOUT_MS ? timeout_ms : TIMEOUT_MS, &ignored));
    return l;
}

static void link_close(void *session)
{
    struct seen_link *l = session;

    redis_link_clear(&l->link);
    buf_clear(&l->names);
    mem_free(l->words);
    mem_free(l);
}

/* A connection that the server closed while it lay idle is no outage: once more over a new one. */
static bool store_ask(void *session, uint32_t route, const struct seen_id *ids, size_t n,
                      bool *found, struct seen_generation *generation, struct err *e)
{
    struct seen_link *l = session;
    struct redis_sigpipe before = redis_sigpipe_block();
    bool reused = l->link.context != NULL, ok = false;

    for (int tries = reused ? 2 : 1; tries > 0 && !ok; tries--) {
        memset(found, 0, n * sizeof *found);
        generation->text[0] = '\0';
        ok = ask(l, route, ids, n, found, generation, e);
        if (!ok && e->code == ETIMEDOUT)
            break;
    }
    if (!ok) {
        memset(found, 0, n * sizeof *found);
        generation->text[0] = '\0';
    }
    redis_sigpipe_restore(before);
    return ok;
}

static bool store_enter(void *session, uint32_t route, const struct seen_id *ids, size_t n,
                        const struct seen_generation *generation, struct err *e)
{
    struct redis_sigpipe before = redis_sigpipe_block();
    bool ok = true;

    for (size_t i = 0; ok && i < n; i += ENTER_MAX)
        ok = enter(session, route, ids + i, n - i < ENTER_MAX ? n - i : ENTER_MAX, generation, e);
    redis_sigpipe_restore(before);
    return ok;
}

static bool store_forget(void *session, uint32_t route, struct err *e)
{
    struct redis_sigpipe before = redis_sigpipe_block();
    bool ok = set_generation(session, route, false, e);

    if (!ok) /* once more: the connection may have been closed while nobody used it */
        ok = set_generation(session, route, false, e);

    redis_sigpipe_restore(before);
    return ok;
}

bool redis_seen_new(const struct config *c, struct seen_store *out, struct err *e)
{
    static const struct seen_store_ops ops = {.open = link_open,
                                              .close = link_close,
                                              .ask = store_ask,
                                              .enter = store_enter,
                                              .forget = store_forget};
    struct redis_link tried;
    struct redis_seen *s;

    bool ok = redis_link_init(&tried, c->redis.uri, c->redis.timeout_ms, e);
    redis_link_clear(&tried);
    if (!ok)
        return false;
    s = mem_new(sizeof *s);
    s->config = c;
    s->prefixes = mem_array(c->n_routes, sizeof(char *));
    s->generations = mem_array(c->n_routes, sizeof(char *));
    for (size_t i = 0; i < c->n_routes; i++) {
        if (!config_shares_seen(&c->routes[i]))
            continue;
        s->prefixes[i] = config_seen_prefix(&c->routes[i]);
        s->generations[i] = mem_printf("%sgeneration", s->prefixes[i]);
    }
    *out = (struct seen_store){.ops = &ops, .self = s};
    return true;
}

void redis_seen_free(struct seen_store *store)
{
    struct redis_seen *s = store->self;

    if (!s)
        return;
    for (size_t i = 0; i < s->config->n_routes; i++) {
        mem_free(s->prefixes[i]);
        mem_free(s->generations[i]);
    }
    mem_free(s->prefixes);
    mem_free(s->generations);
    mem_free(s);
    *store = (struct seen_store){0};
}
