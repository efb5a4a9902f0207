/*
 * redis_listener.c - the listener port: SUBSCRIBE over a connection of its own.
 *
 * A connection whose other end has vanished is silent, as is one on which nobody says anything. So
 * after a while without a word a PING goes out, which subscribers may send (Redis 3).
 */
#include <hiredis/hiredis.h>
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/redis.h"
#include "io/redis_private.h"

enum { SILENCE_MS = 3000 };

struct redis_listener {
    struct redis_link link;
    char **channels;
    size_t n;
    redisReply *last;           /* holds the message that was handed out */
    int64_t heard_ms, asked_ms; /* asked_ms 0: no PING is out */
};

static void forget_last(struct redis_listener *l)
{
    if (l->last)
        freeReplyObject(l->last);
    l->last = NULL;
}

static bool command(struct redis_listener *l, const char *word, char *const *args, size_t n,
                    struct err *e)
{
    const char **words = mem_array(n + 1, sizeof(const char *));

    words[0] = word;
    for (size_t i = 0; i < n; i++)
        words[i + 1] = args[i];
    bool ok = redisAppendCommandArgv(l->link.context, (int)n + 1, words, NULL) == REDIS_OK;
    mem_free(words);
    if (!ok) {
        redis_link_close(&l->link);
        return err_set(e, ERR_TRANSIENT, 0, "redis: a command can't be written down");
    }
    return redis_link_flush(&l->link, clock_mono_ms() + l->link.timeout_ms, e);
}

static bool is_kind(const redisReply *r, const char *kind)
{
    return r->type == REDIS_REPLY_ARRAY && r->elements > 0 &&
           r->element[0]->type == REDIS_REPLY_STRING && strcmp(r->element[0]->str, kind) == 0;
}

/* Messages that come in between don't matter: who joins has to forget all. */
static bool join(struct redis_listener *l, struct err *e)
{
    size_t confirmed = 0;

    if (!redis_link_open(&l->link, e) || !command(l, "SUBSCRIBE", l->channels, l->n, e))
        return false;
    int64_t deadline_ms = clock_mono_ms() + l->link.timeout_ms;
    while (confirmed < l->n) {
        redisReply *reply;

        if (!redis_link_answer(&l->link, deadline_ms, &reply, e))
            return false;
        bool refused = reply->type == REDIS_REPLY_ERROR;
        if (refused)
            (void)redis_link_refused(&l->link, "SUBSCRIBE", reply, e);
        confirmed += is_kind(reply, "subscribe");
        freeReplyObject(reply);
        if (refused)
            return false;
    }
    l->heard_ms = clock_mono_ms();
    l->asked_ms = 0;
    return true;
}

/* Is there somebody at the other end? False: no. */
static bool look_after(struct redis_listener *l, int64_t now_ms, struct err *e)
{
    if (l->asked_ms > 0 && now_ms - l->asked_ms > l->link.timeout_ms)
        return err_set(e, ERR_TRANSIENT, 0, "redis at %s: a subscriber hears nothing any more",
                       l->link.where);
    if (l->asked_ms > 0 || now_ms - l->heard_ms < SILENCE_MS)
        return true;
    l->asked_ms = now_ms;
    return command(l, "PING", NULL, 0, e);
}

/* The next word from there, in l->last; NULL: none by until_ms. */
static bool hear(struct redis_listener *l, int64_t until_ms, struct err *e)
{
    void *reply = NULL;

    for (;;) {
        if (redisGetReplyFromReader(l->link.context, &reply) != REDIS_OK)
            return err_set(e, ERR_TRANSIENT, 0, "redis at %s: an answer that is not understood",
                           l->link.where);
        if (reply) {
            l->last = reply;
            l->heard_ms = clock_mono_ms();
            l->asked_ms = 0;
            return true;
        }
        int64_t now_ms = clock_mono_ms();
        if (!look_after(l, now_ms, e))
            return false;
        if (now_ms >= until_ms)
            return true;
        struct pollfd p = {.fd = l->link.context->fd, .events = POLLIN};
        int64_t wait_ms = until_ms - now_ms < 500 ? until_ms - now_ms : 500;
        if (poll(&p, 1, (int)wait_ms) > 0 && redisBufferRead(l->link.context) != REDIS_OK)
            return err_set(e, ERR_TRANSIENT, 0, "redis at %s: the connection is gone",
                           l->link.where);
    }
}

static enum listener_event next(struct redis_listener *l, int wait_ms, struct listener_message *out,
                                struct err *e)
{
    int64_t until_ms = clock_mono_ms() + wait_ms;

    forget_last(l);
    if (!l->link.context)
        return join(l, e) ? LISTENER_JOINED : LISTENER_LOST;
    while (hear(l, until_ms, e)) {
        if (!l->last)
            return LISTENER_NOTHING;
        if (is_kind(l->last, "message") && l->last->elements == 3 &&
            l->last->element[1]->type == REDIS_REPLY_STRING &&
            l->last->element[2]->type == REDIS_REPLY_STRING) {
            out->channel = slice_of(l->last->element[1]->str, l->last->element[1]->len);
            out->text = slice_of(l->last->element[2]->str, l->last->element[2]->len);
            return LISTENER_MESSAGE;
        }
        forget_last(l);
    }
    return LISTENER_LOST;
}

static enum listener_event listener_next(void *self, int wait_ms, struct listener_message *out,
                                         struct err *e)
{
    struct redis_listener *l = self;
    struct redis_sigpipe before = redis_sigpipe_block();
    enum listener_event event = next(l, wait_ms, out, e);

    if (event == LISTENER_LOST)
        redis_link_close(&l->link);
    redis_sigpipe_restore(before);
    return event;
}

static void listener_leave(void *self)
{
    struct redis_listener *l = self;

    forget_last(l);
    redis_link_close(&l->link);
}

bool redis_listener_new(const struct config *c, const char *const *channels, size_t n,
                        struct listener *out, struct err *e)
{
    static const struct listener_ops ops = {.next = listener_next, .leave = listener_leave};
    struct redis_listener *l = mem_new(sizeof *l);

    if (!redis_link_init(&l->link, c->redis.uri, c->redis.timeout_ms, e)) {
        mem_free(l);
        return false;
    }
    l->channels = mem_array(n, sizeof(char *));
    for (; l->n < n; l->n++)
        l->channels[l->n] = mem_text(channels[l->n]);
    *out = (struct listener){.ops = &ops, .self = l};
    return true;
}

void redis_listener_free(struct listener *listener)
{
    struct redis_listener *l = listener->self;

    if (!l)
        return;
    forget_last(l);
    redis_link_clear(&l->link);
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->channels[i]);
    mem_free(l->channels);
    mem_free(l);
    *listener = (struct listener){0};
}
