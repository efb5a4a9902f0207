#include "base/secret.h"

#include <string.h>
#include <strings.h>

#include "base/mem.h"

/* Written before there are other threads. Longest first: one may be a part of another. */
static char **secrets;
static size_t n_secrets;

void secret_add(const char *text)
{
    size_t at = 0, len = text ? strlen(text) : 0;

    if (len < SECRET_LEAST)
        return;
    for (size_t i = 0; i < n_secrets; i++)
        if (strcmp(secrets[i], text) == 0)
            return;
    secrets = mem_grow(secrets, n_secrets + 1, sizeof *secrets);
    while (at < n_secrets && strlen(secrets[at]) >= len)
        at++;
    memmove(secrets + at + 1, secrets + at, (n_secrets - at) * sizeof *secrets);
    secrets[at] = mem_text(text);
    n_secrets++;
}

void secret_clear(void)
{
    for (size_t i = 0; i < n_secrets; i++)
        mem_free(secrets[i]);
    mem_free(secrets);
    secrets = NULL;
    n_secrets = 0;
}

bool secret_known(void)
{
    return n_secrets > 0;
}

/* How many bytes of the text begin a secret; 0: none. */
static size_t secret_at(const char *text, size_t left)
{
    for (size_t i = 0; i < n_secrets; i++) {
        size_t len = strlen(secrets[i]);

        /* A library may take it for a host, which it writes in small letters. */
        if (len <= left ? strncasecmp(text, secrets[i], len) == 0
                        : left >= SECRET_LEAST && strncasecmp(text, secrets[i], left) == 0)
            return len < left ? len : left;
    }
    return 0;
}

void secret_hide(const char *text, struct buf *out)
{
    size_t left = strlen(text);

    while (left > 0) {
        size_t n = secret_at(text, left);

        if (n > 0)
            buf_add_text(out, "***");
        else
            buf_add_char(out, *text);
        n += n == 0;
        text += n;
        left -= n;
    }
}
