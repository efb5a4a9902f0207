/*
 * redis_help.h - a real redis-server of the test's own, on a free port and a unix socket, and
 * somebody who listens to it.
 */
#ifndef IDEMSINK_TESTS_REDIS_HELP_H
#define IDEMSINK_TESTS_REDIS_HELP_H

#include <arpa/inet.h>
#include <hiredis/hiredis.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fakes/check.h"

enum { HELP_PATIENCE_MS = 60000 };

struct help_server {
    char dir[64];
    char socket[96];
    int port;
    pid_t pid;
};

static inline void help_pause(void)
{
    const struct timespec step = {.tv_nsec = 10 * 1000 * 1000};
    (void)nanosleep(&step, NULL); /* between two looks at a condition */
}

static inline int help_free_port(void)
{
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof in;
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    CHECK(bind(fd, (struct sockaddr *)&in, sizeof in) == 0, "no port");
    CHECK(getsockname(fd, (struct sockaddr *)&in, &len) == 0, "no port");
    (void)close(fd);
    return ntohs(in.sin_port);
}

/* A connection of the test's own; waits until the server answers. */
static inline redisContext *help_connect(const struct help_server *s)
{
    int64_t until_ms = clock_mono_ms() + HELP_PATIENCE_MS;
    const struct timeval patience = {.tv_sec = 20};

    for (;;) {
        redisContext *c = redisConnectUnixWithTimeout(s->socket, patience);
        if (c && !c->err) {
            CHECK(redisSetTimeout(c, patience) == REDIS_OK, "no timeout");
            return c;
        }
        redisFree(c);
        CHECK(clock_mono_ms() < until_ms, "redis-server does not answer");
        help_pause();
    }
}

/* The server's pid is ours: a redis-server that lost the race for its port has gone. */
static inline void help_start(struct help_server *s)
{
    char port[16];
    int status;

    for (int attempt = 0;; attempt++) {
        (void)snprintf(port, sizeof port, "%d", s->port);
        char *argv[] = {(char *)(uintptr_t) "redis-server",
                        (char *)(uintptr_t) "--port",
                        port,
                        (char *)(uintptr_t) "--bind",
                        (char *)(uintptr_t) "127.0.0.1",
                        (char *)(uintptr_t) "--unixsocket",
                        s->socket,
                        (char *)(uintptr_t) "--save",
                        (char *)(uintptr_t) "",
                        (char *)(uintptr_t) "--dir",
                        s->dir,
                        (char *)(uintptr_t) "--loglevel",
                        (char *)(uintptr_t) "warning",
                        (char *)(uintptr_t) "--logfile",
                        (char *)(uintptr_t) "redis.log",
                        NULL};
        s->pid = fork();
        CHECK(s->pid >= 0, "no process");
        if (s->pid == 0) { /* a test that aborts must not leave it behind */
            (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
            (void)execvp(argv[0], argv);
            _exit(127);
        }
        redisContext *c = help_connect(s);
        redisFree(c);
        if (waitpid(s->pid, &status, WNOHANG) == 0)
            return;
        CHECK(attempt < 5, "redis-server ends at once");
        s->port = help_free_port();
    }
}

static inline void help_server_open(struct help_server *s)
{
    (void)snprintf(s->dir, sizeof s->dir, "/tmp/idemsink-redis-XXXXXX");
    CHECK(mkdtemp(s->dir), "no folder");
    (void)snprintf(s->socket, sizeof s->socket, "%s/r.sock", s->dir);
    s->port = help_free_port();
    help_start(s);
}

static inline void help_stop(struct help_server *s, int signal)
{
    (void)kill(s->pid, SIGCONT);
    (void)kill(s->pid, signal);
    (void)waitpid(s->pid, NULL, 0);
    (void)unlink(s->socket);
}

static inline void help_server_close(struct help_server *s)
{
    char log[96];

    help_stop(s, SIGTERM);
    (void)snprintf(log, sizeof log, "%s/redis.log", s->dir);
    (void)unlink(log);
    (void)rmdir(s->dir);
}

/* One command of the test's own; its answer as a number (a text counts as 0). */
static inline long long help_do(redisContext *c, const char *command)
{
    redisReply *reply = redisCommand(c, command);

    CHECK(reply && reply->type != REDIS_REPLY_ERROR, "%s: %s", command,
          reply ? reply->str : c->errstr);
    long long n = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
    freeReplyObject(reply);
    return n;
}

/* --- a subscriber of channel "c", which looks up for each {"id":N} whether k:N is gone --- */

struct help_listener {
    const struct help_server *server;
    pthread_t thread;
    _Atomic bool ready;
    _Atomic unsigned *heard; /* by id */
    size_t n_ids;
    _Atomic unsigned stale; /* messages whose key was still there */
};

/* False: the connection is gone, or this was the end. */
static inline bool help_listen_once(struct help_listener *l, redisContext *sub, redisContext **ask,
                                    bool *end)
{
    redisReply *message = NULL;
    char command[64];
    long long id;

    if (redisGetReply(sub, (void **)&message) != REDIS_OK)
        return false;
    const char *body = message->element[2]->str;
    *end = body && strcmp(body, "end") == 0;
    if (!*end && body && sscanf(body, "{\"id\":%lld}", &id) == 1 && (size_t)id < l->n_ids) {
        (void)snprintf(command, sizeof command, "EXISTS k:%lld", id);
        redisReply *reply;
        while (!(reply = redisCommand(*ask, command))) { /* cut off, as all connections may be */
            redisFree(*ask);
            *ask = help_connect(l->server);
        }
        atomic_fetch_add(&l->stale, reply->integer != 0);
        freeReplyObject(reply);
        atomic_fetch_add(&l->heard[id], 1);
    }
    freeReplyObject(message);
    return !*end;
}

/* Subscribes again when the server went away. */
static inline void *help_listener_main(void *arg)
{
    struct help_listener *l = arg;
    bool end = false;

    while (!end) {
        redisContext *sub = help_connect(l->server), *ask = help_connect(l->server);
        redisReply *reply = redisCommand(sub, "SUBSCRIBE c");
        if (reply) {
            freeReplyObject(reply);
            atomic_store(&l->ready, true);
            while (help_listen_once(l, sub, &ask, &end))
                ;
        }
        atomic_store(&l->ready, false);
        redisFree(sub);
        redisFree(ask);
    }
    return NULL;
}

static inline void help_wait_listening(struct help_listener *l)
{
    int64_t until_ms = clock_mono_ms() + HELP_PATIENCE_MS;

    while (!atomic_load(&l->ready)) {
        CHECK(clock_mono_ms() < until_ms, "the listener does not get through");
        help_pause();
    }
}

static inline void help_listener_open(struct help_listener *l, const struct help_server *s,
                                      size_t ids)
{
    *l = (struct help_listener){.server = s, .n_ids = ids};
    l->heard = mem_array(ids, sizeof *l->heard);
    CHECK(pthread_create(&l->thread, NULL, help_listener_main, l) == 0, "no thread");
    help_wait_listening(l);
}

static inline void help_wait_heard(struct help_listener *l, size_t from, size_t to)
{
    int64_t until_ms = clock_mono_ms() + HELP_PATIENCE_MS;

    for (size_t i = from; i < to; i++) {
        while (atomic_load(&l->heard[i]) == 0) {
            CHECK(clock_mono_ms() < until_ms, "nobody heard of id %zu", i);
            help_pause();
        }
    }
}

static inline void help_listener_close(struct help_listener *l)
{
    redisContext *c = help_connect(l->server);

    help_wait_listening(l);
    (void)help_do(c, "PUBLISH c end");
    redisFree(c);
    CHECK(pthread_join(l->thread, NULL) == 0, "no thread");
    mem_free((void *)(uintptr_t)l->heard);
}

#endif
