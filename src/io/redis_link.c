/*
 * redis_link.c - one connection to Redis.
 *
 * Any error makes a hiredis context dead (hiredis README, "Errors"): it is closed, the next call
 * connects again.
 */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/redis_private.h"

/* --- SIGPIPE: hiredis 0.14 writes with write(2) --- */

struct redis_sigpipe redis_sigpipe_block(void)
{
    struct redis_sigpipe before;
    sigset_t pipe_only, pending, old;

    (void)sigemptyset(&pipe_only);
    (void)sigaddset(&pipe_only, SIGPIPE);
    (void)sigpending(&pending);
    before.was_pending = sigismember(&pending, SIGPIPE) == 1;
    (void)pthread_sigmask(SIG_BLOCK, &pipe_only, &old);
    before.was_blocked = sigismember(&old, SIGPIPE) == 1;
    return before;
}

void redis_sigpipe_restore(struct redis_sigpipe before)
{
    const struct timespec at_once = {0};
    sigset_t pipe_only;

    (void)sigemptyset(&pipe_only);
    (void)sigaddset(&pipe_only, SIGPIPE);
    if (!before.was_pending)
        while (sigtimedwait(&pipe_only, NULL, &at_once) == -1 && errno == EINTR)
            ;
    if (!before.was_blocked)
        (void)pthread_sigmask(SIG_UNBLOCK, &pipe_only, NULL);
}

/* --- errors --- */

/* The connection is of no use any more. */
static bool gone(struct redis_link *l, const char *doing, struct err *e)
{
    const redisContext *c = l->context;
    int code = c && c->err == REDIS_ERR_IO ? errno : 0;

    bool late = code == EAGAIN || code == EWOULDBLOCK || code == EINPROGRESS || code == ETIMEDOUT;

#ifdef REDIS_ERR_TIMEOUT /* hiredis 1.0 and later */
    late = late || (c && c->err == REDIS_ERR_TIMEOUT);
#endif
    if (late)
        err_set(e, ERR_TRANSIENT, ETIMEDOUT, "redis at %s: %s: no answer within %lld ms", l->where,
                doing, (long long)l->timeout_ms);
    else
        err_set(e, ERR_TRANSIENT, code, "redis at %s: %s: %s", l->where, doing,
                c && c->errstr[0] ? c->errstr : "out of memory");
    redis_link_close(l);
    return false;
}

static bool too_late(struct redis_link *l, const char *doing, struct err *e)
{
    redis_link_close(l);
    return err_set(e, ERR_TRANSIENT, ETIMEDOUT, "redis at %s: %s: no answer within %lld ms",
                   l->where, doing, (long long)l->timeout_ms);
}

/* The first words of error replies, by what an operator has to do about them. Redis 7.0,
 * src/server.c, src/acl.c. */
static const struct {
    const char *word;
    enum err_kind kind;
    const char *hint;
} refusals[] = {
    {"READONLY", ERR_CONFIG, "it is a replica: point redis.uri at the primary"},
    {"NOAUTH", ERR_AUTH, "it wants a password: redis.uri has none"},
    {"WRONGPASS", ERR_AUTH, "user or password of redis.uri are wrong, or the user is off"},
    {"NOPERM", ERR_CONFIG,
     "the user of redis.uri has no right to this command, key or channel (ACL)"},
    {"MOVED", ERR_CONFIG,
     "it is a cluster, and the key lives on another node: clusters are not served"},
    {"ASK", ERR_CONFIG,
     "it is a cluster, and the key lives on another node: clusters are not served"},
    {"WRONGTYPE", ERR_CONFIG,
     "what has this name already is something else: another program uses it, or another rule"},
    {"OOM", ERR_CONFIG, "it is over its maxmemory"},
    {"MISCONF", ERR_CONFIG, "it can't save to disk and refuses writes until it can"},
    {"NOREPLICAS", ERR_CONFIG, "it has fewer replicas than min-replicas-to-write asks for"},
    {"LOADING", ERR_TRANSIENT, "it is loading its data"},
    {"BUSY", ERR_TRANSIENT, "it is busy with a script"},
    {"MASTERDOWN", ERR_TRANSIENT, "it is a replica without its primary"},
    {"CLUSTERDOWN", ERR_TRANSIENT, "the cluster is down"},
    {"TRYAGAIN", ERR_TRANSIENT, "the cluster is moving keys"},
};

/* "ERR ..." texts: only these are told apart, and none is passed on, for some repeat the arguments.
 */
#define SCRIPT_RIGHTS                                                                              \
    "the user of redis.uri has no right to a command or key of it (ACL): a lock needs +set +get "  \
    "+del +pexpire +eval +evalsha, a generation key that "                                         \
    "expires needs +eval +set +incr +pexpire, the mirror of a counter +eval +evalsha +hget +hset"
static const struct {
    const char *part;
    enum err_kind kind;
    const char *hint;
} generic[] = {
    {"max number of clients", ERR_TRANSIENT, "it has as many clients as maxclients allows"},
    {"DB index", ERR_CONFIG, "it has no database of the number in redis.uri"},
    {"unknown command", ERR_CONFIG,
     "it does not know the command: UNLINK needs Redis 4, XADD Redis 5, or it was renamed"},
    {"not an integer", ERR_CONFIG,
     "the key holds something that is no number: another program uses this name"},
    {"would overflow", ERR_CONFIG, "the number that the key holds is the highest: remove the key"},
    {"user executing the script", ERR_CONFIG, SCRIPT_RIGHTS}, /* Redis 7.0 */
    {"ACL failure in script", ERR_CONFIG, SCRIPT_RIGHTS},     /* 7.2 */
    {"SELECT is not allowed", ERR_CONFIG, "it is a cluster, which has database 0 only"},
    {"AUTH", ERR_AUTH, "it did not take the password of redis.uri (a user needs Redis 6)"},
    {"invalid password", ERR_AUTH, "the password of redis.uri is wrong"},
    {"invalid username", ERR_AUTH, "user or password of redis.uri are wrong"},
};

/* Before Redis 7 what a command in a script says stands in the middle: "ERR Error running script
 * (call to f_...): @user_script:1: -READONLY You can't ...". */
static bool says(const struct redisReply *reply, const char *word)
{
    size_t n = strlen(word);
    const char *at = strncmp(reply->str, "ERR Error running script", 24) == 0
                         ? strstr(reply->str, word)
                         : reply->str;

    return at && strncmp(at, word, n) == 0 && (at[n] == ' ' || at[n] == '\0');
}

bool redis_link_is_replica(const struct redisReply *reply)
{
    return says(reply, "READONLY");
}

bool redis_link_refused(const struct redis_link *l, const char *command,
                        const struct redisReply *reply, struct err *e)
{
    size_t word = strcspn(reply->str, " ");

    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        if (says(reply, refusals[i].word))
            return err_set(e, refusals[i].kind, 0, "redis at %s: %s refused with %s: %s", l->where,
                           command, refusals[i].word, refusals[i].hint);
    for (size_t i = 0; i < sizeof generic / sizeof generic[0]; i++)
        if (strcasestr(reply->str, generic[i].part))
            return err_set(e, generic[i].kind, 0, "redis at %s: %s refused: %s", l->where, command,
                           generic[i].hint);
    return err_set(e, ERR_CONFIG, 0, "redis at %s: %s refused with %.*s", l->where, command,
                   word > 32 ? 32 : (int)word, reply->str);
}

/* --- connecting --- */

static struct timeval timeval_of(int64_t ms)
{
    struct timeval t = {.tv_sec = (time_t)(ms / 1000), .tv_usec = (suseconds_t)(ms % 1000) * 1000};

    return t;
}

bool redis_link_init(struct redis_link *l, const char *uri, int64_t timeout_ms, struct err *e)
{
    *l = (struct redis_link){.timeout_ms = timeout_ms};
    if (!redis_uri_parse(uri, &l->uri, e))
        return false;
    if (l->uri.path)
        l->where = mem_text(l->uri.path);
    else
        l->where =
            mem_printf(strchr(l->uri.host, ':') ? "[%s]:%d" : "%s:%d", l->uri.host, l->uri.port);
    if (l->uri.tls && !redis_tls_new(&l->uri, &l->tls, e)) {
        redis_link_clear(l);
        return false;
    }
    return true;
}

void redis_link_clear(struct redis_link *l)
{
    redis_link_close(l);
    redis_tls_free(l->tls);
    l->tls = NULL;
    redis_uri_clear(&l->uri);
    mem_free(l->where);
    l->where = NULL;
}

void redis_link_close(struct redis_link *l)
{
    if (l->context)
        redisFree(l->context);
    l->context = NULL;
}

/* One command and its answer, which must be no error. */
static bool ask(struct redis_link *l, int argc, const char **argv, struct err *e)
{
    int64_t deadline_ms = clock_mono_ms() + l->timeout_ms;
    redisReply *reply = NULL;

    if (redisAppendCommandArgv(l->context, argc, argv, NULL) != REDIS_OK)
        return gone(l, argv[0], e);
    if (!redis_link_flush(l, deadline_ms, e) || !redis_link_answer(l, deadline_ms, &reply, e))
        return false;
    MUST(reply != NULL);
    bool ok = reply->type != REDIS_REPLY_ERROR || redis_link_refused(l, argv[0], reply, e);
    freeReplyObject(reply);
    if (!ok)
        redis_link_close(l);
    return ok;
}

static bool greet(struct redis_link *l, struct err *e)
{
    const char *auth[3] = {"AUTH"};
    int argc = 1;

    if (l->uri.user)
        auth[argc++] = l->uri.user;
    if (l->uri.password)
        auth[argc++] = l->uri.password;
    if (argc > 1 && !ask(l, argc, auth, e))
        return false;
    if (l->uri.db > 0) {
        char db[24];
        (void)snprintf(db, sizeof db, "%lld", (long long)l->uri.db);
        const char *select[] = {"SELECT", db};
        return ask(l, 2, select, e);
    }
    return true;
}

bool redis_link_open(struct redis_link *l, struct err *e)
{
    struct timeval timeout = timeval_of(l->timeout_ms);

    if (l->context)
        return true;
    errno = 0;
    if (l->uri.path)
        l->context = redisConnectUnixWithTimeout(l->uri.path, timeout);
    else
        l->context = redisConnectWithTimeout(l->uri.host, l->uri.port, timeout);
    if (!l->context || l->context->err)
        return gone(l, "connecting", e);
    if (redisSetTimeout(l->context, timeout) != REDIS_OK)
        return gone(l, "connecting", e);
    if (!l->uri.path && redisEnableKeepAlive(l->context) != REDIS_OK)
        return gone(l, "connecting", e);
    if (l->uri.tls && !redis_tls_start(l->tls, l->context, l->where, e)) {
        redis_link_close(l);
        return false;
    }
    return greet(l, e);
}

/* --- talking --- */

bool redis_link_flush(struct redis_link *l, int64_t deadline_ms, struct err *e)
{
    int done = 0;

    while (!done) {
        if (redisBufferWrite(l->context, &done) != REDIS_OK)
            return gone(l, "sending", e);
        if (!done && clock_mono_ms() > deadline_ms)
            return too_late(l, "sending", e);
    }
    return true;
}

bool redis_link_answer(struct redis_link *l, int64_t deadline_ms, struct redisReply **out,
                       struct err *e)
{
    void *reply = NULL;

    for (;;) {
        if (redisGetReplyFromReader(l->context, &reply) != REDIS_OK)
            return gone(l, "answering", e);
        if (reply)
            break;
        if (clock_mono_ms() > deadline_ms)
            return too_late(l, "answering", e);
        if (redisBufferRead(l->context) != REDIS_OK)
            return gone(l, "answering", e);
    }
    *out = reply;
    return true;
}
