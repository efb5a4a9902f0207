/*
 * redis_lock.c - the lock port over Redis, as monSQLize's DistributedCacheLockManager does it
 * (vextjs/monSQLize, lib/transaction/DistributedCacheLockManager.js, seen at 1.x and 2):
 * `<prefix><key>`, SET NX PX with a token, and scripts that compare it before they renew or delete.
 * What it sends stands in tests/system/test_lock.py.
 */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/redis.h"
#include "io/redis_private.h"

enum lock_kind { LOCK_TAKE, LOCK_RENEW, LOCK_RELEASE };

/* sha1: of the text, as SCRIPT LOAD answers it (test_redis_lock). Both take the token and the time,
 * so that they are called alike. */
static const struct {
    const char *text, *sha1;
} scripts[] = {
    [LOCK_RENEW] = {REDIS_LOCK_RENEW, REDIS_LOCK_RENEW_SHA1},
    [LOCK_RELEASE] = {REDIS_LOCK_RELEASE, REDIS_LOCK_RELEASE_SHA1},
};
static const char *const names[] = {"SET", "EVALSHA", "EVALSHA"};

struct lock_session {
    struct redis_link link;
    size_t *todo; /* keys that the script has to be sent for as a text */
    size_t cap;
};

/* --- one set --- */

struct exchange {
    enum lock_kind kind;
    const struct lock_set *set;
    bool *yes;
    bool text;     /* EVAL instead of EVALSHA */
    bool again;    /* an answer got lost: SET says no to what it did itself the time before */
    size_t n_todo; /* refused with NOSCRIPT */
    size_t answered;
};

/* A command for key i. */
static bool append(struct lock_session *s, const struct exchange *x, enum lock_kind kind, size_t i,
                   struct err *e)
{
    char ttl[24];
    const char *key = x->set->keys[i];

    (void)snprintf(ttl, sizeof ttl, "%" PRId64, x->set->ttl_ms);
    const char *take[] = {"SET", key, x->set->token, "PX", ttl, "NX"};
    const char *script[] = {x->text ? "EVAL" : "EVALSHA",
                            x->text ? scripts[kind].text : scripts[kind].sha1,
                            "1",
                            key,
                            x->set->token,
                            ttl};
    int argc = kind == LOCK_RELEASE ? 5 : 6;

    if (redisAppendCommandArgv(s->link.context, argc, kind == LOCK_TAKE ? take : script, NULL) ==
        REDIS_OK)
        return true;
    redis_link_close(&s->link);
    return err_set(e, ERR_TRANSIENT, 0, "redis at %s: a set of locks can't be written down",
                   s->link.where);
}

/* What key i gets from this reply. False: *e. */
static bool judge(struct lock_session *s, struct exchange *x, enum lock_kind kind, size_t i,
                  const redisReply *reply, struct err *e)
{
    bool status = reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;

    if (reply->type == REDIS_REPLY_ERROR && strncmp(reply->str, "NOSCRIPT", 8) == 0 && !x->text) {
        s->todo[x->n_todo++] = i;
        return true;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        (void)redis_link_refused(&s->link, names[kind], reply, e);
        return false;
    }
    if (kind == LOCK_TAKE ? !status && reply->type != REDIS_REPLY_NIL
                          : reply->type != REDIS_REPLY_INTEGER)
        return err_set(e, ERR_TRANSIENT, 0, "redis at %s: %s: the answer is not one of a lock",
                       s->link.where, names[kind]);
    x->yes[i] = x->yes[i] || status || (reply->type == REDIS_REPLY_INTEGER && reply->integer == 1);
    return true;
}

/* The commands of one kind for the keys in which[] (NULL: all). False: *e, and closed. */
static bool round_of(struct lock_session *s, struct exchange *x, enum lock_kind kind,
                     const size_t *which, size_t n, struct err *e)
{
    int64_t deadline_ms = clock_mono_ms() + s->link.timeout_ms;
    bool ok = true;

    for (size_t i = 0; ok && i < n; i++)
        ok = append(s, x, kind, which ? which[i] : i, e);
    if (!ok || !redis_link_flush(&s->link, deadline_ms, e))
        return false;
    for (size_t i = 0; i < n; i++) {
        redisReply *reply = NULL;
        struct err lost;

        if (!redis_link_answer(&s->link, deadline_ms, &reply, ok ? e : &lost))
            return false;
        x->answered++;
        ok = judge(s, x, kind, which ? which[i] : i, reply, ok ? e : &lost) && ok;
        freeReplyObject(reply);
    }
    if (!ok) /* a replica may be what is left of a primary: who connects again may find the new one
              */
        redis_link_close(&s->link);
    return ok;
}

static bool script_round(struct lock_session *s, struct exchange *x, enum lock_kind kind,
                         struct err *e)
{
    size_t n_text;

    x->text = false;
    x->n_todo = 0;
    if (!round_of(s, x, kind, NULL, x->set->n, e))
        return false;
    n_text = x->n_todo;
    x->text = true;
    return n_text == 0 || round_of(s, x, kind, s->todo, n_text, e);
}

static bool all_rounds(struct lock_session *s, struct exchange *x, struct err *e)
{
    if (x->kind != LOCK_TAKE)
        return script_round(s, x, x->kind, e);
    return round_of(s, x, LOCK_TAKE, NULL, x->set->n, e) &&
           (!x->again || script_round(s, x, LOCK_RENEW, e));
}

static bool run(struct lock_session *s, struct exchange *x, struct err *e)
{
    bool reused = s->link.context != NULL;

    for (;;) {
        if (!redis_link_open(&s->link, e))
            return false;
        if (all_rounds(s, x, e))
            return true;
        /* A connection that lay idle may have been closed by the server (its `timeout`, a restart):
         * that is no outage. */
        if (!reused || x->answered > 0 || e->code == ETIMEDOUT)
            return false;
        reused = false;
        x->again = true;
    }
}

static bool exchange(void *session, enum lock_kind kind, const struct lock_set *set, bool *yes,
                     struct err *e)
{
    struct lock_session *s = session;
    struct exchange x = {.kind = kind, .set = set, .yes = yes};
    struct redis_sigpipe sigpipe;
    bool ok;

    memset(yes, 0, set->n * sizeof *yes);
    if (set->n == 0)
        return true;
    if (set->n > s->cap) {
        s->todo = mem_grow(s->todo, set->n, sizeof *s->todo);
        s->cap = set->n;
    }
    sigpipe = redis_sigpipe_block();
    ok = run(s, &x, e);
    redis_sigpipe_restore(sigpipe);
    return ok;
}

static bool lock_take(void *session, const struct lock_set *set, bool *yes, struct err *e)
{
    return exchange(session, LOCK_TAKE, set, yes, e);
}

static bool lock_renew(void *session, const struct lock_set *set, bool *yes, struct err *e)
{
    return exchange(session, LOCK_RENEW, set, yes, e);
}

static bool lock_release(void *session, const struct lock_set *set, bool *yes, struct err *e)
{
    return exchange(session, LOCK_RELEASE, set, yes, e);
}

/* --- the port --- */

static void *lock_open(void *self)
{
    const struct config *c = self;
    struct lock_session *s = mem_new(sizeof *s);
    struct err e;

    MUST(redis_link_init(&s->link, c->redis.uri, c->redis.timeout_ms, &e)); /* redis_lock_new() */
    return s;
}

static void lock_close(void *session)
{
    struct lock_session *s = session;

    redis_link_clear(&s->link);
    mem_free(s->todo);
    mem_free(s);
}

bool redis_lock_new(const struct config *c, struct lock *out, struct err *e)
{
    static const struct lock_ops ops = {.open = lock_open,
                                        .close = lock_close,
                                        .take = lock_take,
                                        .renew = lock_renew,
                                        .release = lock_release};
    struct redis_link probe;
    bool ok = redis_link_init(&probe, c->redis.uri, c->redis.timeout_ms, e);

    redis_link_clear(&probe);
    if (ok)
        *out = (struct lock){.ops = &ops, .self = (void *)(uintptr_t)c};
    return ok;
}
