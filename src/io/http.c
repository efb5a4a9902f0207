#include "io/http.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"

enum { CONNECTIONS = 32, IDLE_SECONDS = 10, CONNECTION_BYTES = 32 * 1024, BACKLOG = 64 };
enum { HTTP_TOO_LARGE = 413 }; /* libmicrohttpd renamed its own */

struct http {
    struct http_pages pages;
    struct MHD_Daemon *daemon;
    uint16_t port;
};

/* --- answering --- */

static enum MHD_Result answer(struct MHD_Connection *c, unsigned status, const char *type,
                              struct buf *body)
{
    const char *text = buf_text(body);
    struct MHD_Response *r;

    /* libmicrohttpd copies, and does not write; its parameter has no const. */
    r = MHD_create_response_from_buffer(body->len, (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    buf_clear(body);
    if (r == NULL)
        return MHD_NO;
    enum MHD_Result ok = MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, type);
    if (ok == MHD_YES)
        ok = MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
    if (ok == MHD_YES && status == MHD_HTTP_METHOD_NOT_ALLOWED)
        ok = MHD_add_response_header(r, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
    if (ok == MHD_YES)
        ok = MHD_queue_response(c, status, r);
    MHD_destroy_response(r);
    return ok;
}

static enum MHD_Result say(struct MHD_Connection *c, unsigned status, const char *text)
{
    struct buf body = {0};

    buf_printf(&body, "%s\n", text);
    return answer(c, status, "text/plain; charset=utf-8", &body);
}

static enum MHD_Result say_whether(const struct http *h, struct MHD_Connection *c,
                                   bool (*ask)(struct buf *why, void *ctx))
{
    struct buf body = {0};
    bool good = ask(&body, h->pages.ctx);

    if (body.len == 0)
        buf_add_text(&body, good ? "ok" : "not ok");
    buf_add_char(&body, '\n');
    return answer(c, good ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, "text/plain; charset=utf-8",
                  &body);
}

static bool has_body(struct MHD_Connection *c)
{
    const char *length =
        MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

    return MHD_lookup_connection_value(c, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING) !=
               NULL ||
           (length != NULL && strspn(length, "0") != strlen(length));
}

/* The first call for a request, with its headers, answers it: the body of one that has one is never
 * read. */
static enum MHD_Result serve(void *cls, struct MHD_Connection *c, const char *url,
                             const char *method, const char *version, const char *data,
                             size_t *size, /* NOLINT(readability-non-const-parameter): MHD's type */
                             void **request)
{
    const struct http *h = cls;
    struct buf body = {0};

    (void)version;
    (void)data;
    (void)size;
    (void)request;
    if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
        return say(c, MHD_HTTP_METHOD_NOT_ALLOWED, "GET and HEAD only");
    if (has_body(c))
        return say(c, HTTP_TOO_LARGE, "no request body, please");
    if (strcmp(url, "/healthz") == 0)
        return say_whether(h, c, h->pages.healthy);
    if (strcmp(url, "/readyz") == 0)
        return say_whether(h, c, h->pages.ready);
    if (strcmp(url, "/metrics") != 0)
        return say(c, MHD_HTTP_NOT_FOUND, "not found; there are /metrics, /healthz and /readyz");
    h->pages.metrics(&body, h->pages.ctx);
    return answer(c, MHD_HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", &body);
}

/* --- listening --- */

static bool wrong(struct err *e, const char *listen, const char *what)
{
    return err_set(e, ERR_CONFIG, 0, "http.listen \"%s\": %s", listen, what);
}

/* "host:port" to its parts, in one copy; brackets go. */
static bool split(const char *listen, char *copy, char **host, char **port, struct err *e)
{
    char *colon = strrchr(copy, ':');

    if (colon == NULL || colon[1] == '\0')
        return wrong(e, listen, "a port is missing: it looks like \"127.0.0.1:9464\"");
    *colon = '\0';
    *port = colon + 1;
    *host = copy;
    if (copy[0] == '[') {
        if (colon[-1] != ']')
            return wrong(e, listen, "the '[' of an IPv6 address has no ']' before the port");
        colon[-1] = '\0';
        *host = copy + 1;
    } else if (strchr(copy, ':') != NULL) {
        return wrong(e, listen, "an IPv6 address needs brackets: \"[::1]:9464\"");
    }
    if (strspn(*port, "0123456789") != strlen(*port) || strlen(*port) > 5 ||
        strtol(*port, NULL, 10) > UINT16_MAX)
        return wrong(e, listen, "the port is not a number up to 65535");
    return true;
}

static int listen_on(const struct addrinfo *a)
{
    const int on = 1;
    int fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);

    if (fd < 0)
        return -1;
    if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
        (a->ai_family != AF_INET6 ||
         setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on) == 0) &&
        bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
        return fd;
    int why = errno;
    (void)close(fd);
    errno = why;
    return -1;
}

/* -1: *e. */
static int open_socket(const char *address, struct err *e)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
    struct addrinfo *found = NULL;
    char *copy = mem_text(address), *host = NULL, *port = NULL;
    int fd = -1, code;

    if (!split(address, copy, &host, &port, e))
        goto out;
    MUST(host != NULL && port != NULL);
    if (host[0] == '\0')
        hints.ai_family = AF_INET;
    code = getaddrinfo(host[0] ? host : NULL, port, &hints, &found);
    if (code != 0) {
        (void)wrong(e, address, gai_strerror(code));
        goto out;
    }
    fd = listen_on(found);
    if (fd < 0 && errno == EADDRINUSE)
        err_set(e, ERR_CONFIG, errno,
                "http.listen \"%s\": the address is in use, perhaps by another worker on this "
                "machine: give "
                "each its own port, or port 0 for a free one, or \"\" for none",
                address);
    else if (fd < 0)
        err_set(e, ERR_CONFIG, errno, "http.listen \"%s\": %s", address, strerror(errno));
out:
    if (found != NULL)
        freeaddrinfo(found);
    mem_free(copy);
    return fd;
}

static uint16_t port_of(int fd)
{
    struct sockaddr_storage a = {0};
    socklen_t len = sizeof a;
    struct sockaddr_in in;
    struct sockaddr_in6 in6;

    MUST(getsockname(fd, (struct sockaddr *)&a, &len) == 0);
    if (a.ss_family == AF_INET6) {
        memcpy(&in6, &a, sizeof in6);
        return ntohs(in6.sin6_port);
    }
    memcpy(&in, &a, sizeof in);
    return ntohs(in.sin_port);
}

/* Its thread inherits the signal mask: signals are for the main thread. */
static struct MHD_Daemon *start_daemon(struct http *h, int fd)
{
    sigset_t all, before;

    (void)sigfillset(&all);
    MUST(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    struct MHD_Daemon *d = MHD_start_daemon(
        MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_AUTO, 0, NULL, NULL, serve, h,
        MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_SECONDS, MHD_OPTION_CONNECTION_MEMORY_LIMIT,
        (size_t)CONNECTION_BYTES, MHD_OPTION_END);
    MUST(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return d;
}

struct http *http_start(const char *listen, const struct http_pages *pages, struct err *e)
{
    int fd = open_socket(listen, e);
    struct http *h;

    if (fd < 0)
        return NULL;
    h = mem_new(sizeof *h);
    h->pages = *pages;
    h->port = port_of(fd);
    h->daemon = start_daemon(h, fd);
    if (h->daemon == NULL) {
        err_set(e, ERR_CONFIG, errno, "http.listen \"%s\": libmicrohttpd did not start: %s", listen,
                strerror(errno));
        (void)close(fd);
        mem_free(h);
        return NULL;
    }
    return h;
}

uint16_t http_port(const struct http *h)
{
    return h->port;
}

void http_stop(struct http *h)
{
    if (h == NULL)
        return;
    MHD_stop_daemon(h->daemon); /* closes the socket */
    mem_free(h);
}
