/*
 * err.h - how a call says no.
 *
 * A function that can fail returns bool and takes a struct err * as its last
 * parameter. true: the work is done and *e was not touched. false: nothing was
 * half done that the caller must undo, and *e says why.
 *
 * kind answers "what do I do now" and is the only field code may branch on.
 * code is the number the library gave us, for the log and the metrics label.
 * text is for a human: lower case, no full stop, names the thing that failed,
 * carries no payload and no secret.
 */
#ifndef IDEMSINK_BASE_ERR_H
#define IDEMSINK_BASE_ERR_H

#include <stdbool.h>

enum err_kind {
    ERR_NONE = 0,
    ERR_INPUT,     /* this record can never succeed as it is: dead-letter it */
    ERR_TRANSIENT, /* the world is away or busy: the same call may work later */
    ERR_CONFIG,    /* an operator must change something: stop before harm is done */
    ERR_AUTH,      /* credentials or rights were refused: an operator must change something */
    ERR_BUG,       /* one of our own promises is broken: stop and dump state */
};

#define ERR_TEXT_MAX 512

struct err {
    enum err_kind kind;
    int code;
    char text[ERR_TEXT_MAX];
};

#define MUST_CHECK              __attribute__((warn_unused_result))
#define PRINTF_LIKE(fmt, first) __attribute__((format(printf, fmt, first)))

/* Fills *e (cut to ERR_TEXT_MAX) and returns false, so that a failing path is one line. */
bool err_set(struct err *e, enum err_kind kind, int code, const char *fmt, ...) PRINTF_LIKE(4, 5);

/* Puts "what: " in front of the text of an error on its way up. Returns false. */
bool err_wrap(struct err *e, const char *what);

const char *err_kind_name(enum err_kind kind);

/*
 * A promise of ours that does not depend on anything from outside. Stays on in
 * release: a process that goes on with broken books could commit what is not
 * stored, one that leaves (exit code 70) only repeats work.
 */
#define MUST(cond) ((cond) ? (void)0 : must_failed(__FILE__, __LINE__, #cond))

__attribute__((noreturn)) void must_failed(const char *file, int line, const char *cond);

#endif
