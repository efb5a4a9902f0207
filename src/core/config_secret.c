/*
 * config_secret.c - what of a configuration must not be seen.
 */
#include "core/config_secret.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "base/mem.h"
#include "core/config_private.h"

/* --- URIs
 * ------------------------------------------------------------------------------------------------------------
 */

static bool option_secret(const char *option, size_t len)
{
    static const char *const words[] = {"password", "secret", "token", "authmechanismproperties"};
    char *name = mem_text_n(option, len);
    bool found = false;

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        found = found || strcasestr(name, words[i]) != NULL;
    mem_free(name);
    return found;
}

/* Nothing but hosts and ports? What else stands there may be a password whose '@' is missing. */
static bool only_hosts(const char *at, const char *end)
{
    bool port = false, address = false; /* behind a colon; within [ ] */

    for (; at < end; at++) {
        if (*at == ',')
            port = false;
        else if (*at == '[' || *at == ']')
            address = *at == '[';
        else if (*at == ':' && !address) {
            if (port)
                return false;
            port = true;
        } else if (port ? !isdigit((unsigned char)*at)
                        : !isalnum((unsigned char)*at) && strchr(".-_%:", *at) == NULL)
            return false;
    }
    return true;
}

/* Where in a URI what must not be seen begins and ends; equal: nowhere. */
struct uri_secret {
    const char *from, *to;
};

static struct uri_secret uri_secret(const char *uri)
{
    const char *scheme = strstr(uri, "://"), *user = scheme ? scheme + 3 : uri;
    /* A password may hold what should have been escaped, so the last '@' counts: rather too much is
     * hidden. */
    const char *host = strrchr(user, '@'), *authority = user + strcspn(user, "/?#");
    const char *colon;

    if (host == NULL && only_hosts(user, authority))
        return (struct uri_secret){user, user};
    if (host == NULL) /* mongodb://user:pass/word, the rest is missing */
        host = user + strlen(user);
    colon = memchr(user, ':', (size_t)(host - user));
    if (colon == NULL) /* a user alone; for Redis rather a password without its colon */
        colon = *host == '\0' || strncmp(uri, "mongodb", 7) != 0 ? user - 1 : host - 1;
    return (struct uri_secret){colon + 1, host};
}

/* "?a=b&password=c" */
static void redact_options(const char *at, struct buf *out)
{
    while (*at) {
        size_t name = 1 + strcspn(at + 1, "=&"), all = 1 + strcspn(at + 1, "&");

        if (at[name] == '=' && option_secret(at + 1, name - 1)) {
            buf_add(out, at, name + 1);
            buf_add_text(out, "***");
        } else
            buf_add(out, at, all);
        at += all;
    }
}

void config_redact_uri(const char *uri, struct buf *out)
{
    struct uri_secret secret = uri_secret(uri);
    size_t plain;

    if (secret.to > secret.from) {
        buf_add(out, uri, (size_t)(secret.from - uri));
        buf_add_text(out, "***");
        uri = secret.to;
    }
    plain = strcspn(uri, "?");
    buf_add(out, uri, plain);
    redact_options(uri + plain, out);
}

/* --- the secrets themselves
 * ----------------------------------------------------------------------------------------------------------------
 */

static int hex(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *found = c != '\0' ? strchr(digits, tolower((unsigned char)c)) : NULL;

    return found ? (int)(found - digits) : -1;
}

static char *decoded(const char *text)
{
    struct buf b = {0};

    for (; *text; text++) {
        int high = *text == '%' ? hex(text[1]) : -1, low = high >= 0 ? hex(text[2]) : -1;

        if (low < 0) {
            buf_add_char(&b, *text);
            continue;
        }
        buf_add_char(&b, (char)(16 * high + low));
        text += 2;
    }
    return b.data ? b.data : mem_text("");
}

static void tell(const char *from, size_t len, config_secret_fn *each)
{
    char *raw = mem_text_n(from, len), *plain = decoded(raw);

    each(raw);
    each(plain);
    mem_free(raw);
    mem_free(plain);
}

/* Whole, and each of its longer words: a library tells of a part. */
static void tell_words(const char *text, const char *between, size_t least, config_secret_fn *each)
{
    each(text);
    while (*text) {
        size_t n = strcspn(text, between);

        if (n >= least)
            tell(text, n, each);
        text += n + (text[n] != '\0');
    }
}

static void uri_secrets(const char *uri, config_secret_fn *each)
{
    struct uri_secret secret = uri_secret(uri);
    const char *at = strchr(secret.to, '?');

    tell(secret.from, (size_t)(secret.to - secret.from), each);
    for (const char *part = secret.from; part < secret.to; part++) {
        size_t n = strcspn(part, "@:/?#"); /* what should have been escaped ends it for a library */

        if (n > (size_t)(secret.to - part))
            n = (size_t)(secret.to - part);
        tell(part, n, each);
        part += n;
    }
    while (at && *at) {
        size_t name = 1 + strcspn(at + 1, "=&"), all = 1 + strcspn(at + 1, "&");

        if (at[name] == '=' && option_secret(at + 1, name - 1)) {
            char *value = mem_text_n(at + name + 1, all - name - 1);

            tell_words(value, ":,", 1, each);
            mem_free(value);
        }
        at += all;
    }
}

void config_secrets(const struct config *c, config_secret_fn *each)
{
    enum { WORD = 6 };

    uri_secrets(c->mongo.uri, each);
    uri_secrets(c->redis.uri, each);
    for (size_t i = 0; i < c->kafka.properties.n; i++) {
        const struct config_pair *p = &c->kafka.properties.items[i];

        if (!config_property_secret(p->name) || strstr(p->name, "username"))
            continue; /* a name is not shown, but it may be that of the group as well */
        if (strstr(p->name, "kinit.cmd") || strstr(p->name, "oauthbearer"))
            tell_words(p->value, " ,=\"'|;&", WORD, each);
        else
            each(p->value);
    }
}
