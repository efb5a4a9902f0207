#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "io/mongo_private.h"

static void on_log(mongoc_log_level_t level, const char *domain, const char *message, void *ctx)
{
    (void)ctx;
    /* Nothing of a connection string: it may hold a password. */
    if (strstr(message, "://"))
        message = "(a message with a connection string, withheld)";
    /* At the end of the process it can't end its sessions on a server that is away: they expire. */
    /* Nor is an abort news of what the server has aborted by itself, or does within 60 s. */
    if (strstr(message, "endSessions") || strstr(message, "abortTransaction"))
        level = MONGOC_LOG_LEVEL_DEBUG;
    if (level == MONGOC_LOG_LEVEL_ERROR || level == MONGOC_LOG_LEVEL_CRITICAL ||
        level == MONGOC_LOG_LEVEL_WARNING)
        log_warn("libmongoc", LOG_TEXT("domain", domain), LOG_TEXT("text", message));
    else if (level != MONGOC_LOG_LEVEL_TRACE)
        log_debug("libmongoc", LOG_TEXT("domain", domain), LOG_TEXT("text", message));
}

static void library_start(void)
{
    mongoc_log_set_handler(on_log, NULL);
    mongoc_init();
}

/* mongoc_init() once, and its log into ours. */
static void library(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    MUST(pthread_once(&once, library_start) == 0);
}

const char *mongo_library_version(void)
{
    return mongoc_get_version();
}

/* ---- errors ---- */

enum call_fault mongo_fault(const bson_error_t *be)
{
    switch (be->domain) {
    case MONGOC_ERROR_SERVER:
    case MONGOC_ERROR_WRITE_CONCERN:
        return CALL_SERVER;
    case MONGOC_ERROR_STREAM:
        return CALL_NETWORK;
    case MONGOC_ERROR_SERVER_SELECTION:
        return CALL_SELECTION;
    case MONGOC_ERROR_SASL:
    case MONGOC_ERROR_SCRAM:
        return CALL_AUTH;
    case MONGOC_ERROR_CLIENT:
        if (be->code == MONGOC_ERROR_CLIENT_AUTHENTICATE)
            return CALL_AUTH;
        return be->code == MONGOC_ERROR_CLIENT_TOO_BIG ? CALL_DOCUMENT : CALL_DRIVER;
    case MONGOC_ERROR_PROTOCOL:
        return be->code == MONGOC_ERROR_PROTOCOL_INVALID_REPLY ? CALL_NETWORK : CALL_DRIVER;
    case MONGOC_ERROR_BSON:
        return CALL_DOCUMENT;
    default:
        return CALL_DRIVER;
    }
}

static enum err_kind kind_of(const bson_error_t *be, const struct outcome_call *call,
                             enum retry_class retry)
{
    switch (retry) {
    case RETRY_RIGHTS:
        return ERR_AUTH;
    case RETRY_CONFIG:
        return ERR_CONFIG;
    case RETRY_OTHER:
        /* The server's own "no" to what was asked, with a code that isn't known to pass; asking
         * again would not change it. */
        return (call->fault == CALL_SERVER && outcome_code_find(call->code) == NULL) ||
                       be->domain == MONGOC_ERROR_PROTOCOL
                   ? ERR_CONFIG
                   : ERR_TRANSIENT;
    case RETRY_NONE:
    case RETRY_NETWORK:
    case RETRY_NO_PRIMARY:
    case RETRY_TIMEOUT:
    case RETRY_WRITE_CONCERN:
    case RETRY_CONFLICT:
    case RETRY_DEAD_LETTER:
    case RETRY_LOCK:
    case RETRY_CLASSES:
        break;
    }
    return ERR_TRANSIENT;
}

bool mongo_fail(struct err *e, const char *what, const bson_error_t *be)
{
    struct outcome_call call = {.fault = mongo_fault(be), .code = (int)be->code};
    const char *text =
        strstr(be->message, "://") ? "(withheld: it holds a connection string)" : be->message;
    struct outcome o;

    outcome_of_failure(&call, &o);
    enum err_kind kind = kind_of(be, &call, o.retry);
    if (call.fault == CALL_AUTH) /* "Authentication failed." is all that the server says */
        return err_set(e, kind, (int)be->code,
                       "%s: MongoDB refuses the user of mongo.uri (%.200s): is its name right, its "
                       "password, its authSource?",
                       what, text);
    const struct outcome_code *row = outcome_code_find(o.code);
    if (kind == ERR_AUTH && row && row->todo)
        return err_set(e, kind, (int)be->code, "%s: %.300s; %s", what, text, row->todo);
    return err_set(e, kind, (int)be->code, "%s: %s", what, text);
}

void mongo_say_no_answer(const char *what, enum call_fault fault, const bson_error_t *be)
{
    enum { SAY_AGAIN_MS = 10000 };
    static struct log_limit limit;
    int64_t held_back;
    struct err e;

    if (fault != CALL_NETWORK && fault != CALL_SELECTION && fault != CALL_AUTH)
        return;
    if (!log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
        return;
    (void)mongo_fail(&e, what, be);
    log_warn("MongoDB does not answer, trying on", LOG_TEXT("error", e.text),
             LOG_INT("held_back", held_back));
}

/* ---- URI and pool ---- */

static bool set_timeout(mongoc_uri_t *uri, const char *option, int64_t ms)
{
    if (mongoc_uri_has_option(uri, option))
        return true;
    return mongoc_uri_set_option_as_int32(uri, option, ms > INT32_MAX ? INT32_MAX : (int32_t)ms);
}

/* What libmongoc knows, without what it takes for old: for "did you mean". */
static const char uri_options[] =
    "appname|authmechanism|authmechanismproperties|authsource|canonicalizehostname|"
    "connecttimeoutms|compressors|directconnection|gssapiservicename|heartbeatfrequencyms|"
    "journal|loadbalanced|localthresholdms|maxidletimems|maxpoolsize|maxstalenessseconds|"
    "readconcernlevel|readpreference|readpreferencetags|replicaset|retryreads|retrywrites|"
    "serverselectiontimeoutms|serverselectiontryonce|socketcheckintervalms|sockettimeoutms|"
    "srvservicename|srvmaxhosts|tls|tlscertificatekeyfile|tlscertificatekeyfilepassword|"
    "tlscafile|tlsallowinvalidcertificates|tlsallowinvalidhostnames|tlsinsecure|"
    "tlsdisablecertificaterevocationcheck|tlsdisableocspendpointcheck|w|waitqueuetimeoutms|"
    "wtimeoutms|zlibcompressionlevel";

/* libmongoc's message about a wrong URI, unless it shows a part that may be the password. */
static bool uri_fail(struct err *e, const char *uri, const char *message)
{
    const char *user = strstr(uri, "://");
    const char *at = user ? strrchr(user, '@') : NULL;

    if (at)
        return err_set(e, ERR_CONFIG, 0,
                       "mongo.uri: libmongoc does not understand it (no details, because it holds "
                       "credentials; user and password need percent-encoding of : / ? # [ ] @ %%)");
    return err_set(e, ERR_CONFIG, 0, "mongo.uri: %s", message);
}

/* What libmongoc would only warn of: an option that it does not know, so that it has no effect. The
 * first is told, without its value. */
static void on_uri_log(mongoc_log_level_t level, const char *domain, const char *message, void *ctx)
{
    static const char option[] = "Unsupported URI option \"",
                      compressor[] = "Unsupported compressor";
    struct buf *out = ctx;

    (void)level;
    (void)domain;
    if (out->len > 0)
        return;
    if (strncmp(message, compressor, sizeof compressor - 1) == 0)
        buf_printf(out,
                   "compressors has a name that libmongoc %s does not know or was built without",
                   mongoc_get_version());
    if (strncmp(message, option, sizeof option - 1) != 0)
        return;
    char *name = mem_text(message + sizeof option - 1);
    char *quote = strrchr(name, '"');

    if (quote)
        *quote = '\0';
    buf_add_text(out, "libmongoc knows no such option: \"");
    buf_add_json(out, name, bytes_cut_utf8(name, strlen(name), 60));
    buf_add_char(out, '"');
    config_add_nearest_choice(uri_options, name, out);
    mem_free(name);
}

bool mongo_uri_fine(const char *text, struct buf *why)
{
    static const char key[] = "mongo.uri: ";
    struct buf ignored = {0};
    bson_error_t be = {0};
    struct err e;

    library();
    /* The error says it, and mongo_new() what else there is. */
    mongoc_log_set_handler(on_uri_log, &ignored);
    mongoc_uri_t *uri = mongoc_uri_new_with_error(text, &be);
    bool fine = uri != NULL && ignored.len == 0;
    mongoc_log_set_handler(on_log, NULL);

    if (uri == NULL && !uri_fail(&e, text, be.message))
        buf_add_text(why, e.text + strlen(key));
    if (uri != NULL && !fine) {
        const char *options = strchr(text, '?');

        /* A password with a '?' is not for the eyes. */
        if (options != NULL && strchr(options, '@') != NULL && !uri_fail(&e, text, ""))
            buf_add_text(why, e.text + strlen(key));
        else
            buf_add(why, ignored.data, ignored.len);
    }
    buf_clear(&ignored);
    mongoc_uri_destroy(uri);
    return fine;
}

static void warn_about_uri(const char *text)
{
    mongoc_uri_t *uri = mongoc_uri_new(text);

    if (mongoc_uri_get_option_as_bool(uri, MONGOC_URI_RETRYWRITES, false))
        log_warn("mongo.uri: retryWrites=true is not used, writes are sent again by idemsink",
                 LOG_TEXT("key", "mongo.uri"));
    if (mongoc_uri_has_option(uri, MONGOC_URI_W) ||
        mongoc_uri_has_option(uri, MONGOC_URI_JOURNAL) ||
        mongoc_uri_has_option(uri, MONGOC_URI_WTIMEOUTMS))
        log_warn("mongo.uri: its write concern is not used, mongo.write_concern, journal and "
                 "write_timeout are",
                 LOG_TEXT("key", "mongo.uri"));
    mongoc_uri_destroy(uri);
}

mongoc_uri_t *mongo_uri(const struct config *c, struct err *e)
{
    bson_error_t be = {0};

    library();
    mongoc_uri_t *uri = mongoc_uri_new_with_error(c->mongo.uri, &be);
    if (!uri) {
        uri_fail(e, c->mongo.uri, be.message);
        return NULL;
    }
    bool ok =
        mongoc_uri_set_option_as_bool(uri, MONGOC_URI_RETRYWRITES, false) &&
        set_timeout(uri, MONGOC_URI_SERVERSELECTIONTIMEOUTMS,
                    c->mongo.server_selection_timeout_ms) &&
        set_timeout(uri, MONGOC_URI_CONNECTTIMEOUTMS, c->mongo.connect_timeout_ms) &&
        set_timeout(uri, MONGOC_URI_SOCKETTIMEOUTMS, c->mongo.socket_timeout_ms) &&
        (mongoc_uri_has_option(uri, MONGOC_URI_APPNAME) || mongoc_uri_set_appname(uri, "idemsink"));
    int64_t socket_ms = mongoc_uri_get_option_as_int32(uri, MONGOC_URI_SOCKETTIMEOUTMS, 0);
    if (ok && socket_ms > 0 && socket_ms <= c->mongo.write_timeout_ms) {
        mongoc_uri_destroy(uri);
        err_set(e, ERR_CONFIG, 0,
                "mongo.uri: socketTimeoutMS %" PRId64 " is not above mongo.write_timeout (%" PRId64
                " ms): a write concern that is slow would look like a broken connection",
                socket_ms, c->mongo.write_timeout_ms);
        return NULL;
    }
    if (ok)
        return uri;
    mongoc_uri_destroy(uri);
    err_set(e, ERR_CONFIG, 0, "mongo.uri: libmongoc refuses a time-out or the application name");
    return NULL;
}

static mongoc_write_concern_t *concern_of(const struct config *c)
{
    mongoc_write_concern_t *wc = mongoc_write_concern_new();
    const char *w = c->mongo.write_concern;

    if (strcmp(w, "majority") == 0)
        mongoc_write_concern_set_w(wc, MONGOC_WRITE_CONCERN_W_MAJORITY);
    else if (w[0] != '\0' && strspn(w, "0123456789") == strlen(w))
        mongoc_write_concern_set_w(wc, (int32_t)strtol(w, NULL, 10));
    else
        mongoc_write_concern_set_wtag(wc, w);
    if (c->mongo.journal)
        mongoc_write_concern_set_journal(wc, true);
    mongoc_write_concern_set_wtimeout_int64(wc, c->mongo.write_timeout_ms);
    if (strcmp(w, "majority") != 0 || !c->mongo.journal)
        log_warn(
            "the write concern is weaker than majority with journal: an acknowledged event can "
            "be lost in a fail-over",
            LOG_TEXT("write_concern", w), LOG_INT("journal", c->mongo.journal));
    return wc;
}

struct mongo *mongo_new(const struct config *c, struct err *e)
{
    bson_error_t be = {0};
    mongoc_uri_t *uri = mongo_uri(c, e);

    if (!uri)
        return NULL;
    mongoc_client_pool_t *pool = mongoc_client_pool_new_with_error(uri, &be);
    if (!pool) {
        mongoc_uri_destroy(uri);
        uri_fail(e, c->mongo.uri, be.message);
        return NULL;
    }
    warn_about_uri(c->mongo.uri);
    MUST(mongoc_client_pool_set_error_api(pool, MONGOC_ERROR_API_VERSION_2));
    int32_t wanted = (int32_t)c->worker.threads + 2;
    int32_t given = mongoc_uri_get_option_as_int32(uri, MONGOC_URI_MAXPOOLSIZE, 100);
    mongoc_client_pool_max_size(pool, (uint32_t)(given > wanted ? given : wanted));

    struct mongo *m = mem_new(sizeof *m);
    *m = (struct mongo){
        .config = c,
        .uri = uri,
        .socket_timeout_ms = mongoc_uri_get_option_as_int32(uri, MONGOC_URI_SOCKETTIMEOUTMS, 10000),
        .pool = pool,
        .concern = concern_of(c),
        .primary = mongoc_read_prefs_new(MONGOC_READ_PRIMARY),
        .gate = mongo_gate_new(),
        .ways = mem_array(c->n_routes ? c->n_routes : 1, sizeof *m->ways),
        .log_counts = mem_array(c->n_routes ? c->n_routes : 1, sizeof *m->log_counts)};
    return m;
}

void mongo_free(struct mongo *m)
{
    if (!m)
        return;
    mongoc_client_pool_destroy(m->pool);
    mongoc_uri_destroy(m->uri);
    mongoc_write_concern_destroy(m->concern);
    mongoc_read_prefs_destroy(m->primary);
    mongo_gate_free(m->gate);
    mem_free(m->ways);
    mem_free(m->log_counts);
    mem_free(m);
}

/* ---- who is there ---- */

const char *mongo_text_field(const bson_t *doc, const char *name)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, doc, name) && BSON_ITER_HOLDS_UTF8(&it)
               ? bson_iter_utf8(&it, NULL)
               : "";
}

bool mongo_true_field(const bson_t *doc, const char *name)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, doc, name) && bson_iter_as_bool(&it);
}

bool mongo_hello(mongoc_client_t *client, const mongoc_read_prefs_t *prefs, bson_t *reply,
                 bson_error_t *be)
{
    bson_t hello = BSON_INITIALIZER;

    BSON_APPEND_INT32(&hello, "hello", 1);
    bool ok = mongoc_client_command_simple(client, "admin", &hello, prefs, reply, be);
    bson_destroy(&hello);
    return ok;
}

bool mongo_ping(struct mongo *m, struct err *e)
{
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    bson_t reply;
    bson_error_t be = {0};
    bool ok = mongo_hello(client, m->primary, &reply, &be);

    if (!ok)
        mongo_fail(e, "mongodb", &be);
    if (!ok && mongo_fault(&be) == CALL_SELECTION)
        mongo_explain_selection(m->uri, e);
    if (ok && !mongo_true_field(&reply, "isWritablePrimary"))
        ok = err_set(e, ERR_TRANSIENT, 0, "mongodb: %s is not a writable primary",
                     *mongo_text_field(&reply, "me") ? mongo_text_field(&reply, "me")
                                                     : "the server that answers");
    bson_destroy(&reply);
    mongoc_client_pool_push(m->pool, client);
    return ok;
}
