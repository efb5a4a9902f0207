/*
 * redis_uri.c - redis://user:password@host:port/db to its parts.
 */
#include <ctype.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "io/redis.h"
#include "io/redis_private.h"

enum { PORT_DEFAULT = 6379, PORT_MAX = 65535, DB_MAX = 1000000 };

static bool wrong(struct err *e, const char *what)
{
    return err_set(e, ERR_CONFIG, 0,
                   "redis.uri: %s (it looks like redis://user:password@host:6379/0)", what);
}

static const char *text_of(struct slice s)
{
    return s.ptr;
}

/* Up to the first of the characters in `stop`, which stay in *rest. */
static struct slice cut(struct slice *rest, const char *stop)
{
    struct slice head = {rest->ptr, 0};

    while (head.len < rest->len && !strchr(stop, text_of(*rest)[head.len]))
        head.len++;
    rest->ptr = text_of(*rest) + head.len;
    rest->len -= head.len;
    return head;
}

/* Is the next character c? Then it is taken. */
static bool taken(struct slice *rest, char c)
{
    if (rest->len == 0 || *text_of(*rest) != c)
        return false;
    rest->ptr = text_of(*rest) + 1;
    rest->len--;
    return true;
}

static bool number(struct slice s, int64_t max, int64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < s.len; i++) {
        if (!isdigit((unsigned char)text_of(s)[i]) || *out > max)
            return false;
        *out = 10 * *out + (text_of(s)[i] - '0');
    }
    return s.len > 0 && *out <= max;
}

static int hex(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)tolower((unsigned char)c);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Percent escapes resolved. NULL: a bad one, or one of a NUL. */
static char *decoded(struct slice s)
{
    struct buf b = {0};

    buf_add(&b, "", 0);
    while (s.len > 0) {
        char c = *text_of(s);
        if (taken(&s, '%')) {
            int high = s.len >= 2 ? hex(text_of(s)[0]) : -1;
            int low = s.len >= 2 ? hex(text_of(s)[1]) : -1;
            if (high < 0 || low < 0 || high + low == 0) {
                buf_clear(&b);
                return NULL;
            }
            c = (char)(16 * high + low);
            (void)taken(&s, *text_of(s));
        }
        (void)taken(&s, *text_of(s));
        buf_add_char(&b, c);
    }
    return b.data ? b.data : mem_text("");
}

static bool parse_user(struct slice s, struct redis_uri *out, struct err *e)
{
    struct slice user = cut(&s, ":");

    if (!taken(&s, ':'))
        return wrong(e, "a user without a password: \"user:password@\" or \":password@\"");
    out->user = user.len > 0 ? decoded(user) : NULL;
    out->password = decoded(s);
    if (!out->password || (user.len > 0 && !out->user))
        return wrong(e, "user or password hold a '%' that begins no escape; a '%' itself is %25");
    return true;
}

static bool parse_host(struct slice s, struct redis_uri *out, struct err *e)
{
    struct slice host;
    int64_t port = PORT_DEFAULT;

    if (taken(&s, '[')) {
        host = cut(&s, "]");
        if (!taken(&s, ']'))
            return wrong(e, "the '[' of an IPv6 address has no ']'");
    } else {
        host = cut(&s, ":");
    }
    if (s.len > 0 && !(taken(&s, ':') && number(s, PORT_MAX, &port) && port > 0))
        return wrong(e, "the port is not a number from 1 to 65535; in a password '/', '?', '#' and "
                        "'@' are written %2F, %3F, %23 and %40");
    out->host = host.len > 0 ? mem_text_n(host.ptr, host.len) : mem_text("localhost");
    out->port = (int)port;
    return true;
}

static bool parse_query(struct slice s, struct redis_uri *out, struct err *e)
{
    while (s.len > 0) {
        struct slice name = cut(&s, "=&");
        struct slice value = {0};
        if (taken(&s, '='))
            value = cut(&s, "&");
        if (slice_equal(name, slice_text("db"))) {
            if (!number(value, DB_MAX, &out->db))
                return wrong(e, "db is not a number");
        } else if (slice_equal(name, slice_text("cacert")) && out->tls && value.len > 0) {
            mem_free(out->cacert);
            out->cacert = decoded(value);
            if (!out->cacert)
                return wrong(e, "cacert holds a '%' that begins no escape");
        } else {
            return wrong(e, "behind the '?' only db=N is known, and cacert=FILE with rediss://");
        }
        (void)taken(&s, '&');
    }
    return true;
}

static bool starts(struct slice *s, const char *with)
{
    size_t len = strlen(with);

    if (s->len < len || strncmp(s->ptr, with, len) != 0)
        return false;
    s->ptr = text_of(*s) + len;
    s->len -= len;
    return true;
}

static bool parse(struct slice s, struct redis_uri *out, struct err *e)
{
    bool local = starts(&s, "unix://");
    struct slice user, authority, path;

    if (!local) {
        out->tls = starts(&s, "rediss://");
        if (!out->tls && !starts(&s, "redis://"))
            return wrong(e, "starts with none of redis://, rediss:// and unix://");
    }
    authority = cut(&s, "/?#");
    /* The last '@' ends the user info: people forget to escape one in a password. */
    for (size_t i = authority.len; i > 0; i--) {
        if (text_of(authority)[i - 1] != '@')
            continue;
        user = slice_of(authority.ptr, i - 1);
        authority = slice_of(text_of(authority) + i, authority.len - i);
        if (!parse_user(user, out, e))
            return false;
        break;
    }
    if (!local && !parse_host(authority, out, e))
        return false;
    path = cut(&s, "?#");
    if (local) {
        if (authority.len > 0 || path.len < 2)
            return wrong(e, "unix:// needs the absolute path of a socket: unix:///run/redis.sock");
        out->path = mem_text_n(path.ptr, path.len);
    } else if (path.len > 1) {
        (void)taken(&path, '/');
        if (!number(path, DB_MAX, &out->db))
            return wrong(e, "the database behind the '/' is not a number");
    }
    if (taken(&s, '?'))
        return parse_query(s, out, e);
    return s.len == 0 || wrong(e, "holds a '#'; in a password it is written %23");
}

bool redis_uri_parse(const char *text, struct redis_uri *out, struct err *e)
{
    *out = (struct redis_uri){0};
    if (parse(slice_text(text), out, e))
        return true;
    redis_uri_clear(out);
    return false;
}

bool redis_uri_fine(const char *uri, struct buf *why)
{
    static const char key[] = "redis.uri: ";
    struct redis_uri parsed;
    struct err e;

    if (redis_uri_parse(uri, &parsed, &e)) {
        redis_uri_clear(&parsed);
        return true;
    }
    buf_add_text(why, e.text + (strncmp(e.text, key, sizeof key - 1) == 0 ? sizeof key - 1 : 0));
    return false;
}

void redis_uri_clear(struct redis_uri *u)
{
    mem_free(u->host);
    mem_free(u->path);
    mem_free(u->user);
    mem_free(u->password);
    mem_free(u->cacert);
    *u = (struct redis_uri){0};
}
