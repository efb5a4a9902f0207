/*
 * redis_private.h - what the files of the Redis module share. For src/io/redis_*.c only.
 */
#ifndef IDEMSINK_IO_REDIS_PRIVATE_H
#define IDEMSINK_IO_REDIS_PRIVATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct redisContext;
struct redisReply;

/* --- redis_uri.c --- */

struct redis_uri {
    bool tls;
    char *host, *path; /* one of them; host without brackets */
    int port;
    char *user, *password; /* decoded; NULL: none */
    int64_t db;
    char *cacert; /* NULL: the system's */
};

/* ERR_CONFIG names what is wrong, never a part of the user info. */
bool redis_uri_parse(const char *text, struct redis_uri *out, struct err *e) MUST_CHECK;
void redis_uri_clear(struct redis_uri *u);

/* --- redis_tls.c --- */

struct redis_tls;

/* ERR_CONFIG: this build has no TLS, or the certificates can't be read. */
bool redis_tls_new(const struct redis_uri *u, struct redis_tls **out, struct err *e) MUST_CHECK;
void redis_tls_free(struct redis_tls *t); /* NULL is fine */

/* The handshake on a fresh connection; the certificate must be trusted and name the host of the
 * URI. */
bool redis_tls_start(struct redis_tls *t, struct redisContext *c, const char *where,
                     struct err *e) MUST_CHECK;

/* --- redis_link.c: one connection --- */

struct redis_link {
    struct redis_uri uri;
    int64_t timeout_ms;
    char *where;                  /* "host:port", for errors */
    struct redisContext *context; /* NULL: not connected */
    struct redis_tls *tls;        /* NULL: not over TLS */
};

/* Whatever it says, redis_link_clear() may follow. */
bool redis_link_init(struct redis_link *l, const char *uri, int64_t timeout_ms,
                     struct err *e) MUST_CHECK;
void redis_link_clear(struct redis_link *l);

/* Connects when it isn't. Leaves it closed on any error. */
bool redis_link_open(struct redis_link *l, struct err *e) MUST_CHECK;
void redis_link_close(struct redis_link *l);

/* Writes what was appended, before deadline_ms (monotonic). False: *e, and closed. */
bool redis_link_flush(struct redis_link *l, int64_t deadline_ms, struct err *e) MUST_CHECK;

/* The next answer, never NULL when true; freeReplyObject() by the caller. An error reply is an
 * answer. */
bool redis_link_answer(struct redis_link *l, int64_t deadline_ms, struct redisReply **out,
                       struct err *e) MUST_CHECK;

/* What an error reply to `command` means, for an operator. Nothing of the data gets into the text.
 * Returns false. */
bool redis_link_refused(const struct redis_link *l, const char *command,
                        const struct redisReply *reply, struct err *e);

/* Was it refused because the server is a replica? A script's error has the word inside. */
bool redis_link_is_replica(const struct redisReply *reply);

/* --- redis_lock.c: its scripts, and their names by EVALSHA; for tests, too --- */

#define REDIS_LOCK_RENEW                                                                           \
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) "     \
    "else return 0 end"
#define REDIS_LOCK_RENEW_SHA1 "53f2c61c14d7b92a6f44852b306cc8ed3636d4db"
#define REDIS_LOCK_RELEASE                                                                         \
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 "   \
    "end"
#define REDIS_LOCK_RELEASE_SHA1 "b998f9dfb154cdbea8cda65ad5177aadf0e945a2"

/* A peer that hangs up must not kill the process: SIGPIPE is blocked for this thread, and taken
 * back if it came. */
struct redis_sigpipe {
    bool was_pending, was_blocked;
};
struct redis_sigpipe redis_sigpipe_block(void);
void redis_sigpipe_restore(struct redis_sigpipe before);

#endif
