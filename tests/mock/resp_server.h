/*
 * resp_server.h - a Redis of few words: answers each command with the next line of a script.
 *
 * A script is a list of texts, NULL behind the last. One per command received, over all
 * connections: the answer as it goes over the wire, or
 *   "!close"  the connection is closed without an answer
 *   "!half"   half an answer, then closed
 *   "!hang"   no answer; the connection stays open
 *   "!after:" and an answer: it is sent, then the connection is closed
 * Behind the script everything is answered ":1".
 */
#ifndef IDEMSINK_TESTS_RESP_SERVER_H
#define IDEMSINK_TESTS_RESP_SERVER_H

#include <arpa/inet.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/bytes.h"
#include "fakes/check.h"

struct resp_server {
    int fd;
    int peer; /* lock; -1: none */
    int port;
    pthread_t thread;
    pthread_mutex_t lock;
    const char *const *script; /* lock */
    struct buf seen;           /* lock; "CMD arg arg|CMD|" */
    int connections;           /* lock */
};

/* One line of the protocol ending in CRLF; false: the peer is gone. */
static inline bool resp_line(int fd, struct buf *line)
{
    char c;

    buf_reset(line);
    while (read(fd, &c, 1) == 1) {
        if (c == '\n')
            return true;
        if (c != '\r')
            buf_add_char(line, c);
    }
    return false;
}

static inline bool resp_command(struct resp_server *s, int fd)
{
    struct buf line = {0};
    bool ok = resp_line(fd, &line) && line.data && line.data[0] == '*';
    long parts = ok ? strtol(line.data + 1, NULL, 10) : 0;

    for (long i = 0; ok && i < parts; i++) {
        long len = resp_line(fd, &line) ? strtol(buf_text(&line) + 1, NULL, 10) : -1;
        char c = 0;
        ok = len >= 0;
        (void)pthread_mutex_lock(&s->lock);
        if (i > 0)
            buf_add_char(&s->seen, ' ');
        for (; ok && len > 0; len--) {
            ok = read(fd, &c, 1) == 1;
            buf_add_char(&s->seen, c);
        }
        (void)pthread_mutex_unlock(&s->lock);
        ok = ok && read(fd, &c, 1) == 1 && read(fd, &c, 1) == 1;
    }
    buf_clear(&line);
    if (ok) {
        (void)pthread_mutex_lock(&s->lock);
        buf_add_char(&s->seen, '|');
        (void)pthread_mutex_unlock(&s->lock);
    }
    return ok;
}

/* False: the connection is to be closed. */
static inline bool resp_answer(struct resp_server *s, int fd)
{
    const char *answer = ":1\r\n";
    bool goes_on = true;

    (void)pthread_mutex_lock(&s->lock);
    if (s->script && *s->script)
        answer = *s->script++;
    (void)pthread_mutex_unlock(&s->lock);
    if (strcmp(answer, "!close") == 0)
        return false;
    if (strcmp(answer, "!hang") == 0)
        return true;
    if (strcmp(answer, "!half") == 0) {
        answer = ":";
        goes_on = false;
    }
    if (strncmp(answer, "!after:", 7) == 0) {
        answer += 7;
        goes_on = false;
    }
    return send(fd, answer, strlen(answer), MSG_NOSIGNAL) > 0 && goes_on;
}

static inline void *resp_main(void *arg)
{
    struct resp_server *s = arg;

    for (;;) {
        int fd = accept(s->fd, NULL, NULL);
        if (fd < 0)
            return NULL;
        (void)pthread_mutex_lock(&s->lock);
        s->peer = fd;
        s->connections++;
        (void)pthread_mutex_unlock(&s->lock);
        while (resp_command(s, fd) && resp_answer(s, fd))
            ;
        (void)pthread_mutex_lock(&s->lock);
        s->peer = -1;
        (void)close(fd);
        (void)pthread_mutex_unlock(&s->lock);
    }
}

/* path: of a unix socket, or NULL for a free port of 127.0.0.1. */
static inline struct resp_server *resp_server_start(const char *path, const char *const *script)
{
    struct resp_server *s = calloc(1, sizeof *s);
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    socklen_t len = sizeof in;

    CHECK(s, "no memory");
    s->peer = -1;
    s->script = script;
    CHECK(pthread_mutex_init(&s->lock, NULL) == 0, "no mutex");
    s->fd = socket(path ? AF_UNIX : AF_INET, SOCK_STREAM, 0);
    if (path) {
        (void)snprintf(un.sun_path, sizeof un.sun_path, "%s", path);
        CHECK(bind(s->fd, (struct sockaddr *)&un, sizeof un) == 0, "can't bind %s", path);
    } else {
        CHECK(bind(s->fd, (struct sockaddr *)&in, sizeof in) == 0, "can't bind");
        CHECK(getsockname(s->fd, (struct sockaddr *)&in, &len) == 0, "no port");
        s->port = ntohs(in.sin_port);
    }
    CHECK(listen(s->fd, 8) == 0, "can't listen");
    CHECK(pthread_create(&s->thread, NULL, resp_main, s) == 0, "no thread");
    return s;
}

static inline void resp_server_script(struct resp_server *s, const char *const *script)
{
    (void)pthread_mutex_lock(&s->lock);
    s->script = script;
    (void)pthread_mutex_unlock(&s->lock);
}

/* What was seen since the last call. The caller clears it. */
static inline struct buf resp_server_seen(struct resp_server *s)
{
    (void)pthread_mutex_lock(&s->lock);
    struct buf seen = s->seen;
    s->seen = (struct buf){0};
    (void)pthread_mutex_unlock(&s->lock);
    return seen;
}

static inline int resp_server_connections(struct resp_server *s)
{
    (void)pthread_mutex_lock(&s->lock);
    int n = s->connections;
    (void)pthread_mutex_unlock(&s->lock);
    return n;
}

static inline void resp_server_stop(struct resp_server *s)
{
    (void)shutdown(s->fd, SHUT_RDWR);
    (void)pthread_mutex_lock(&s->lock);
    if (s->peer >= 0)
        (void)shutdown(s->peer, SHUT_RDWR);
    (void)pthread_mutex_unlock(&s->lock);
    CHECK(pthread_join(s->thread, NULL) == 0, "no thread");
    (void)close(s->fd);
    (void)pthread_mutex_destroy(&s->lock);
    buf_clear(&s->seen);
    free(s);
}

#endif
