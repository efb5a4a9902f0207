/*
 * http.h - /metrics, /healthz and /readyz over HTTP (libmicrohttpd), on a thread of its own.
 *
 * GET and HEAD only; 404 and 405 otherwise, 413 for a request with a body. At most 32 connections,
 * each ends after 10 s without traffic.
 */
#ifndef IDEMSINK_IO_HTTP_H
#define IDEMSINK_IO_HTTP_H

#include <stdbool.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"

struct http;

/* Called on the HTTP thread, one at a time. */
struct http_pages {
    void (*metrics)(struct buf *out, void *ctx); /* Prometheus' text format 0.0.4 */
    /* True: 200, false: 503. why is the body: a short text, also when true. */
    bool (*healthy)(struct buf *why, void *ctx);
    bool (*ready)(struct buf *why, void *ctx);
    void *ctx;
};

/*
 * listen: "127.0.0.1:9464", "[::1]:9464", "localhost:0", ":9464" (every address). Port 0: a free
 * one. pages is copied. NULL: ERR_CONFIG, the text names http.listen.
 */
struct http *http_start(const char *listen, const struct http_pages *pages,
                        struct err *e) MUST_CHECK;
uint16_t http_port(const struct http *h);
void http_stop(struct http *h); /* NULL is fine */

#endif
