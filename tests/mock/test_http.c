/*
 * test_http.c - the pages over a real socket on a free port.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <arpa/inet.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/mem.h"
#include "io/http.h"

static _Atomic bool good;
static size_t metrics_size; /* set while no server runs */

static void page_metrics(struct buf *out, void *ctx)
{
    buf_printf(out, "# of %s\n", (const char *)ctx);
    for (size_t i = 0; i < metrics_size; i++)
        buf_add_char(out, 'x');
}

static bool page_whether(struct buf *why, void *ctx)
{
    (void)ctx;
    if (!atomic_load(&good))
        buf_add_text(why, "starting");
    return atomic_load(&good);
}

static struct http *start(const char *listen)
{
    static char ctx[] = "the test";
    const struct http_pages pages = {page_metrics, page_whether, page_whether, ctx};
    struct err e = {0};
    struct http *h = http_start(listen, &pages, &e);

    if (!h)
        fail_msg("%s", e.text);
    assert_true(http_port(h) > 0);
    return h;
}

static int connect_to(uint16_t port, bool six)
{
    struct sockaddr_in in = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    struct sockaddr_in6 in6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = IN6ADDR_LOOPBACK_INIT};
    const struct timeval patience = {.tv_sec = 20};
    int fd = socket(six ? AF_INET6 : AF_INET, SOCK_STREAM, 0);

    assert_true(fd >= 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(six ? connect(fd, (struct sockaddr *)&in6, sizeof in6)
                         : connect(fd, (struct sockaddr *)&in, sizeof in),
                     0);
    return fd;
}

/* The whole answer to a request that ends the connection. */
static struct buf ask(struct http *h, const char *request)
{
    struct buf answer = {0};
    char part[4096];
    ssize_t n;
    int fd = connect_to(http_port(h), false);

    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), strlen(request));
    while ((n = recv(fd, part, sizeof part, 0)) > 0)
        buf_add(&answer, part, (size_t)n);
    assert_int_equal(n, 0);
    (void)close(fd);
    return answer;
}

static void check(struct http *h, const char *request, const char *status, const char *part)
{
    struct buf answer = ask(h, request);

    if (strncmp(buf_text(&answer), status, strlen(status)) != 0 || !strstr(buf_text(&answer), part))
        fail_msg("%s\ngives\n%s", request, buf_text(&answer));
    buf_clear(&answer);
}

#define GET(path) "GET " path " HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"

static void pages_are_served(void **state)
{
    struct http *h;

    (void)state;
    metrics_size = 1 << 20;
    h = start("127.0.0.1:0");
    struct buf page = ask(h, GET("/metrics"));
    assert_non_null(strstr(page.data, "HTTP/1.1 200"));
    assert_non_null(
        strstr(page.data, "Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
    assert_non_null(strstr(page.data, "\r\n\r\n# of the test\nxxx"));
    assert_true(page.len > metrics_size);
    buf_clear(&page);
    atomic_store(&good, false);
    check(h, GET("/readyz"), "HTTP/1.1 503", "\r\n\r\nstarting\n");
    check(h, GET("/healthz"), "HTTP/1.1 503", "\r\n\r\nstarting\n");
    atomic_store(&good, true);
    check(h, GET("/readyz?verbose=1"), "HTTP/1.1 200", "\r\n\r\nok\n");
    check(h, GET("/healthz"), "HTTP/1.1 200", "\r\n\r\nok\n");
    check(h, "HEAD /healthz HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "HTTP/1.1 200",
          "Content-Length: 3\r\n");
    http_stop(h);
    metrics_size = 0;
}

static void everything_else_is_refused(void **state)
{
    struct http *h = start("127.0.0.1:0");

    (void)state;
    atomic_store(&good, true);
    check(h, GET("/"), "HTTP/1.1 404", "/metrics");
    check(h, GET("/metrics/"), "HTTP/1.1 404", "");
    check(h, "POST /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 100000000\r\n\r\n",
          "HTTP/1.1 405", "Allow: GET, HEAD\r\n");
    check(h, "DELETE /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", "HTTP/1.1 405",
          "");
    check(h, "GET /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello", "HTTP/1.1 413",
          "");
    check(h, "GET /metrics HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n",
          "HTTP/1.1 413", "");
    check(h, "nonsense\r\n\r\n", "", "");
    check(h, GET("/healthz"), "HTTP/1.1 200", "ok");
    http_stop(h);
}

static void other_addresses(void **state)
{
    struct http *h = start("[::1]:0");

    (void)state;
    (void)close(connect_to(http_port(h), true));
    http_stop(h);
    h = start("localhost:0");
    http_stop(h);
    http_stop(NULL);
}

static void more_connections_than_allowed_leave_it_alive(void **state)
{
    enum { MANY = 80 }; /* 32 are let in, the rest waits in the backlog */
    struct http *h = start("127.0.0.1:0");
    int fds[MANY];

    (void)state;
    atomic_store(&good, true);
    for (size_t i = 0; i < MANY; i++)
        fds[i] = connect_to(http_port(h), false);
    for (size_t i = 0; i < MANY; i++)
        (void)close(fds[i]);
    check(h, GET("/healthz"), "HTTP/1.1 200", "ok");
    http_stop(h);
}

static void wrong_addresses_are_the_operators(void **state)
{
    static const char *const cases[] = {
        "127.0.0.1", "9464",      "127.0.0.1:",  "127.0.0.1:65536", "127.0.0.1:x",
        "::1:9464",  "[::1:9464", "256.0.0.1:1", "192.0.2.1:9464",  "127.0.0.1:-1"};
    const struct http_pages pages = {page_metrics, page_whether, page_whether, NULL};
    struct http *first = start("127.0.0.1:0");
    char *taken = mem_printf("127.0.0.1:%d", http_port(first));
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_null(http_start(cases[i], &pages, &e));
        assert_int_equal(e.kind, ERR_CONFIG);
        assert_non_null(strstr(e.text, "http.listen"));
        assert_non_null(strstr(e.text, cases[i]));
    }
    assert_null(http_start(taken, &pages, &e));
    assert_int_equal(e.kind, ERR_CONFIG);
    assert_non_null(strstr(e.text, "another worker"));
    mem_free(taken);
    http_stop(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pages_are_served),
        cmocka_unit_test(everything_else_is_refused),
        cmocka_unit_test(other_addresses),
        cmocka_unit_test(more_connections_than_allowed_leave_it_alive),
        cmocka_unit_test(wrong_addresses_are_the_operators),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
