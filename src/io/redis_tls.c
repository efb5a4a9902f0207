/*
 * redis_tls.c - rediss://, where hiredis has TLS.
 *
 * hiredis' own redisCreateSSLContext() up to 1.4 checks that somebody trusted signed the
 * certificate, and not for which host (ssl.c: the server name is for SNI only), so the checks are
 * set up here.
 */
#include <hiredis/hiredis.h>

#include "base/mem.h"
#include "io/redis_private.h"

#ifdef IDEMSINK_REDIS_TLS

#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

struct redis_tls {
    SSL_CTX *context;
    char *host;
};

static const char *reason(void)
{
    const char *text = ERR_reason_error_string(ERR_peek_last_error());

    return text ? text : "no reason given";
}

bool redis_tls_new(const struct redis_uri *u, struct redis_tls **out, struct err *e)
{
    struct redis_tls *t = mem_new(sizeof *t);
    int loaded = 0;

    ERR_clear_error();
    t->host = mem_text(u->host);
    t->context = SSL_CTX_new(TLS_client_method());
    if (t->context && SSL_CTX_set_min_proto_version(t->context, TLS1_2_VERSION) == 1) {
        SSL_CTX_set_verify(t->context, SSL_VERIFY_PEER, NULL);
        loaded = u->cacert ? SSL_CTX_load_verify_locations(t->context, u->cacert, NULL)
                           : SSL_CTX_set_default_verify_paths(t->context);
    }
    if (loaded != 1) {
        err_set(e, ERR_CONFIG, 0, "redis.uri: the certificates to trust can't be read%s%s: %s",
                u->cacert ? " from " : "", u->cacert ? u->cacert : "", reason());
        redis_tls_free(t);
        return false;
    }
    *out = t;
    return true;
}

void redis_tls_free(struct redis_tls *t)
{
    if (!t)
        return;
    SSL_CTX_free(t->context);
    mem_free(t->host);
    mem_free(t);
}

/* Whom the certificate must name. */
static bool expect_host(SSL *ssl, const char *host)
{
    if (X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1)
        return true;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

bool redis_tls_start(struct redis_tls *t, struct redisContext *c, const char *where, struct err *e)
{
    SSL *ssl = SSL_new(t->context);

    ERR_clear_error();
    if (!ssl || !expect_host(ssl, t->host)) {
        SSL_free(ssl);
        return err_set(e, ERR_TRANSIENT, 0, "redis at %s: TLS can't be set up: %s", where,
                       reason());
    }
    if (redisInitiateSSL(c, ssl) == REDIS_OK) /* has taken ssl */
        return true;
    long verdict = SSL_get_verify_result(ssl);
    if (verdict != X509_V_OK)
        err_set(e, ERR_AUTH, 0, "redis at %s: TLS: its certificate is refused: %s", where,
                X509_verify_cert_error_string(verdict));
    else
        err_set(e, ERR_TRANSIENT, 0, "redis at %s: TLS: %s", where, c->errstr);
    SSL_free(ssl);
    return false;
}

#else

bool redis_tls_new(const struct redis_uri *u, struct redis_tls **out, struct err *e)
{
    (void)u;
    *out = NULL;
    return err_set(
        e, ERR_CONFIG, 0,
        "redis.uri: rediss:// needs TLS, and this build has none (hiredis %d.%d.%d without "
        "hiredis_ssl): use redis:// or unix://, a TLS tunnel, or a build with hiredis_ssl",
        HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}

void redis_tls_free(struct redis_tls *t)
{
    MUST(t == NULL);
}

bool redis_tls_start(struct redis_tls *t, struct redisContext *c, const char *where, struct err *e)
{
    (void)t;
    (void)c;
    return err_set(e, ERR_BUG, 0, "redis at %s: no TLS in this build", where);
}

#endif
