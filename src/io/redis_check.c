/*
 * What we may do at Redis, asked without doing it: a command within MULTI is looked at (rights,
 * cluster, replica, names that are not known: server.c, processCommand) and queued; DISCARD throws
 * it away.
 */
#include <hiredis/hiredis.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/redis.h"
#include "io/redis_private.h"

struct redis_asker {
    struct redis_link link;
};

/* The reply is the caller's when true. An error reply is an answer. */
static bool ask(struct redis_asker *a, int argc, const char **argv, redisReply **out, struct err *e)
{
    int64_t deadline_ms = clock_mono_ms() + a->link.timeout_ms;

    *out = NULL;
    if (!redis_link_open(&a->link, e))
        return false;
    if (redisAppendCommandArgv(a->link.context, argc, argv, NULL) != REDIS_OK) {
        (void)err_set(e, ERR_TRANSIENT, 0, "redis at %s: out of memory", a->link.where);
        return false;
    }
    if (!redis_link_flush(&a->link, deadline_ms, e) ||
        !redis_link_answer(&a->link, deadline_ms, out, e))
        return false;
    MUST(*out != NULL);
    return true;
}

static bool is_error(const redisReply *reply)
{
    return reply->type == REDIS_REPLY_ERROR;
}

/* "redis_version:7.0.15\r\n" */
static void add_version(struct redis_asker *a, struct buf *found)
{
    const char *info[] = {"INFO", "server"};
    static const char name[] = "redis_version:";
    redisReply *reply;
    struct err e;
    const char *at = NULL;

    buf_add_text(found, "answers");
    if (ask(a, 2, info, &reply, &e)) {
        if (reply->type == REDIS_REPLY_STRING)
            at = strstr(reply->str, name);
        if (at)
            buf_printf(found, ", version %.*s", (int)strcspn(at + strlen(name), "\r\n"),
                       at + strlen(name));
        freeReplyObject(reply);
    }
    if (at == NULL)
        buf_add_text(found, "; it does not tell its version");
}

struct redis_asker *redis_asker_new(const struct config *c, struct buf *found, struct err *e)
{
    struct redis_asker *a;

    if (!redis_ping(c, e))
        return NULL;
    a = mem_new(sizeof *a);
    struct redis_sigpipe before = redis_sigpipe_block();
    if (!redis_link_init(&a->link, c->redis.uri, c->redis.timeout_ms, e)) {
        mem_free(a);
        a = NULL;
    } else {
        add_version(a, found);
    }
    redis_sigpipe_restore(before);
    return a;
}

void redis_asker_free(struct redis_asker *a)
{
    if (a == NULL)
        return;
    redis_link_clear(&a->link);
    mem_free(a);
}

static bool in_multi(struct redis_asker *a, int argc, const char **argv, struct err *e)
{
    const char *discard[] = {"DISCARD"};
    redisReply *reply, *end;
    struct err ignored;
    bool ok;

    if (!ask(a, argc, argv, &reply, e))
        return false;
    ok = !is_error(reply) || redis_link_refused(&a->link, argv[0], reply, e);
    freeReplyObject(reply);
    if (ask(a, 1, discard, &end, &ignored))
        freeReplyObject(end);
    return ok;
}

static bool try(struct redis_asker *a, int argc, const char **argv, struct err *e)
{
    const char *multi[] = {"MULTI"};
    redisReply *reply;
    bool ok;

    if (!ask(a, 1, multi, &reply, e))
        return false;
    ok = !is_error(reply);
    freeReplyObject(reply);
    if (ok)
        return in_multi(a, argc, argv, e);
    return err_set(e, ERR_TRANSIENT, 0,
                   "it could only be tried within MULTI, which this user may not use");
}

bool redis_ask(struct redis_asker *a, int argc, const char **argv, struct err *e)
{
    struct redis_sigpipe before = redis_sigpipe_block();
    bool ok = try(a, argc, argv, e);

    redis_link_close(&a->link); /* whatever came of the transaction: it is over */
    redis_sigpipe_restore(before);
    return ok;
}
