/*
 * redis_bus.c - the bus port over one connection to Redis.
 */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/redis.h"
#include "io/redis_private.h"

struct redis_bus {
    struct redis_link link;
    size_t *order; /* the set's UNLINKs, then its PUBLISHes */
    size_t order_cap;
};

static void put_in_order(struct redis_bus *b, const struct invalidation *messages, size_t n)
{
    static const enum invalidation_kind kinds[] = {INVALIDATION_UNLINK, INVALIDATION_PUBLISH};
    size_t at = 0;

    if (n > b->order_cap) {
        b->order = mem_grow(b->order, n, sizeof *b->order);
        b->order_cap = n;
    }
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < n; i++)
            if (messages[i].kind == kinds[k])
                b->order[at++] = i;
    MUST(at == n);
}

static const char *command_of(const struct invalidation *m)
{
    return m->kind == INVALIDATION_UNLINK ? "UNLINK" : "PUBLISH";
}

static bool append(struct redis_bus *b, const struct invalidation *messages, size_t n,
                   struct err *e)
{
    for (size_t i = 0; i < n; i++) {
        const struct invalidation *m = &messages[b->order[i]];
        bool unlink = m->kind == INVALIDATION_UNLINK;
        const char *argv[] = {command_of(m), m->name, m->body};
        if (redisAppendCommandArgv(b->link.context, unlink ? 2 : 3, argv, NULL) != REDIS_OK) {
            redis_link_close(&b->link);
            return err_set(e, ERR_TRANSIENT, 0,
                           "redis: a set of invalidations can't be written down");
        }
    }
    return true;
}

/* What one set came to. */
struct set {
    const struct invalidation *messages;
    size_t n;
    bool *sent;
    uint64_t *receivers;
    size_t answered; /* of them, however */
    bool refused;    /* *e has the first refusal */
    bool leave;      /* the connection should not be used again */
};

static void take_answer(struct redis_bus *b, struct set *s, const redisReply *reply, struct err *e)
{
    size_t i = b->order[s->answered++];
    struct err why;

    if (reply->type == REDIS_REPLY_INTEGER) {
        s->sent[i] = true;
        if (s->messages[i].kind == INVALIDATION_PUBLISH && reply->integer > 0)
            *s->receivers += (uint64_t)reply->integer;
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        redis_link_refused(&b->link, command_of(&s->messages[i]), reply, &why);
        /* A replica may be what is left of a primary: who connects again may find the new one. */
        s->leave = s->leave || why.kind != ERR_CONFIG || strncmp(reply->str, "READONLY", 8) == 0;
    } else {
        err_set(&why, ERR_TRANSIENT, 0, "redis at %s: %s: the answer is not a number",
                b->link.where, command_of(&s->messages[i]));
        s->leave = true;
    }
    /* What keeps everything from being sent is told rather than what keeps one back. */
    if (!s->refused || (e->kind == ERR_CONFIG && why.kind != ERR_CONFIG))
        *e = why;
    s->refused = true;
}

/* False: not all were answered; the connection is closed. */
static bool exchange(struct redis_bus *b, struct set *s, struct err *e)
{
    int64_t deadline_ms = clock_mono_ms() + b->link.timeout_ms;
    struct err lost;

    if (!append(b, s->messages, s->n, e) || !redis_link_flush(&b->link, deadline_ms, e))
        return false;
    while (s->answered < s->n) {
        redisReply *reply = NULL;
        if (!redis_link_answer(&b->link, deadline_ms, &reply, &lost)) {
            /* An answer such as "max number of clients" says more than the hang-up behind it. */
            if (!s->refused || e->kind == ERR_CONFIG)
                *e = lost;
            return false;
        }
        take_answer(b, s, reply, e);
        freeReplyObject(reply);
    }
    return true;
}

/* *e may be touched when true, too. */
static bool send_set(struct redis_bus *b, struct set *s, struct err *e)
{
    bool reused = b->link.context != NULL;

    put_in_order(b, s->messages, s->n);
    for (;;) {
        if (!redis_link_open(&b->link, e))
            return false;
        if (exchange(b, s, e))
            break;
        /* A connection that lay idle may have been closed by the server (its `timeout`, a restart):
         * that is no outage. Everything here may be sent twice. */
        if (!reused || s->answered > 0 || e->code == ETIMEDOUT)
            return false;
        reused = false;
    }
    if (s->leave)
        redis_link_close(&b->link);
    return !s->refused;
}

static bool bus_send(void *self, const struct invalidation *messages, size_t n, bool *sent,
                     uint64_t *receivers, struct err *e)
{
    struct redis_bus *b = self;
    struct set s = {.messages = messages, .n = n, .sent = sent, .receivers = receivers};
    struct redis_sigpipe sigpipe = redis_sigpipe_block();

    struct err why;

    memset(sent, 0, n * sizeof *sent);
    *receivers = 0;
    bool ok = send_set(b, &s, &why);
    if (!ok)
        *e = why;
    redis_sigpipe_restore(sigpipe);
    return ok;
}

bool redis_bus_new(const struct config *c, struct bus *out, struct err *e)
{
    static const struct bus_ops ops = {.send = bus_send};
    struct redis_bus *b = mem_new(sizeof *b);

    if (!redis_link_init(&b->link, c->redis.uri, c->redis.timeout_ms, e)) {
        mem_free(b);
        return false;
    }
    *out = (struct bus){.ops = &ops, .self = b};
    return true;
}

void redis_bus_free(struct bus *bus)
{
    struct redis_bus *b = bus->self;

    if (!b)
        return;
    redis_link_clear(&b->link);
    mem_free(b->order);
    mem_free(b);
    *bus = (struct bus){0};
}

static bool ping(struct redis_link *l, struct err *e)
{
    int64_t deadline_ms = clock_mono_ms() + l->timeout_ms;
    redisReply *reply = NULL;

    if (redisAppendCommand(l->context, "PING") != REDIS_OK)
        return err_set(e, ERR_TRANSIENT, 0, "redis at %s: PING can't be written down", l->where);
    if (!redis_link_flush(l, deadline_ms, e) || !redis_link_answer(l, deadline_ms, &reply, e))
        return false;
    bool ok = reply->type != REDIS_REPLY_ERROR || redis_link_refused(l, "PING", reply, e);
    freeReplyObject(reply);
    return ok;
}

bool redis_ping(const struct config *c, struct err *e)
{
    struct redis_sigpipe sigpipe = redis_sigpipe_block();
    struct redis_link link;
    bool ok = redis_link_init(&link, c->redis.uri, c->redis.timeout_ms, e) &&
              redis_link_open(&link, e) && ping(&link, e);

    redis_link_clear(&link);
    redis_sigpipe_restore(sigpipe);
    return ok;
}

#define TEXT_OF(x)  #x
#define TEXT_OF_(x) TEXT_OF(x)

const char *redis_library_version(void)
{
    return TEXT_OF_(HIREDIS_MAJOR) "." TEXT_OF_(HIREDIS_MINOR) "." TEXT_OF_(HIREDIS_PATCH);
}
