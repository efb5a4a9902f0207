#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/secret.h"

/* Libraries end their texts with a line break, or put several lines into one. */
static void one_line(char *text)
{
    size_t len = strlen(text);

    while (len > 0 && (text[len - 1] == '\n' || text[len - 1] == '\r' || text[len - 1] == ' '))
        text[--len] = '\0';
    for (; *text; text++)
        if (*text == '\n' || *text == '\r')
            *text = ' ';
}

bool err_set(struct err *e, enum err_kind kind, int code, const char *fmt, ...)
{
    char text[2 * ERR_TEXT_MAX]; /* the arguments may point into e->text */
    struct buf shown = {0};
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (secret_known())
        secret_hide(text, &shown);
    e->kind = kind;
    e->code = code;
    (void)snprintf(e->text, sizeof e->text, "%.*s", ERR_TEXT_MAX - 1,
                   secret_known() ? buf_text(&shown) : text);
    one_line(e->text);
    buf_clear(&shown);
    return false;
}

bool err_wrap(struct err *e, const char *what)
{
    return err_set(e, e->kind, e->code, "%s: %s", what, e->text);
}

const char *err_kind_name(enum err_kind kind)
{
    static const char *const names[] = {"none", "input", "transient", "config", "auth", "bug"};

    return (size_t)kind < sizeof names / sizeof names[0] ? names[kind] : "?";
}

void must_failed(const char *file, int line, const char *cond)
{
    (void)fprintf(stderr, "idemsink: a promise of the program itself is broken: %s:%d: %s\n", file,
                  line, cond);
#ifdef FUZZING_BUILD_MODE_UNSAFE_FOR_PRODUCTION
    abort(); /* the fuzzer keeps the input of what it sees as a crash */
#endif
    _exit(70);
}
