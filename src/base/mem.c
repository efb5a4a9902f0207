#include "base/mem.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__ /* the headers above say */
#include <malloc.h>
#endif

static void *checked(void *p)
{
    if (p == NULL) {
        fputs("idemsink: out of memory\n", stderr);
        abort();
    }
    return p;
}

void *mem_new(size_t size)
{
    return checked(calloc(1, size ? size : 1));
}

void *mem_array(size_t n, size_t size)
{
    return checked(calloc(n ? n : 1, size ? size : 1));
}

void *mem_grow(void *old, size_t n, size_t size)
{
    if (size != 0 && n > SIZE_MAX / size)
        return checked(NULL);
    size_t bytes = n * size;

    return checked(realloc(old, bytes > 0 ? bytes : 1));
}

char *mem_text(const char *s)
{
    return s ? mem_text_n(s, strlen(s)) : NULL;
}

char *mem_text_n(const char *s, size_t len)
{
    char *copy = checked(malloc(len + 1));

    if (len > 0)
        memcpy(copy, s, len);
    copy[len] = '\0';
    return copy;
}

char *mem_printf(const char *fmt, ...)
{
    va_list args;
    char *text = NULL;
    int n;

    va_start(args, fmt);
    n = vasprintf(&text, fmt, args);
    va_end(args);
    return checked(n < 0 ? NULL : text);
}

void mem_free(void *p)
{
    free(p);
}

void mem_trim(void)
{
#ifdef __GLIBC__
    (void)malloc_trim(0);
#endif
}
