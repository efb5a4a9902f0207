/*
 * outcome.h - from a reply to one fate per operation. Pure.
 *
 * Judged per operation from the reply document, never from an error struct alone: bson_error_t says
 * 11000 even when a writeConcernError is there too (seen with libmongoc 1.23.1 and mongod 6.0.5).
 * Understands the server's own reply ({n, nModified, upserted, writeErrors, writeConcernError, ok})
 * and the one that libmongoc's bulk makes of it ({nMatched, nUpserted, nInserted, upserted,
 * writeErrors, writeConcernErrors}). docs/outcomes.md has the rules and the table of codes.
 */
#ifndef IDEMSINK_CORE_OUTCOME_H
#define IDEMSINK_CORE_OUTCOME_H

#include <stdbool.h>
#include <stddef.h>

#include <bson/bson.h>

#include "core/reason.h"

enum fate {
    FATE_INSERTED,  /* stored because of this operation */
    FATE_DUPLICATE, /* it was there already: a success */
    FATE_LOOK,      /* E11000: read by the dedup key, then decide */
    FATE_LATER,     /* failed for now and was not applied, or must wait for one before it */
    FATE_UNKNOWN,   /* nobody knows: send the same again */
    FATE_NEVER,     /* a permanent answer to this one operation: see reason */
    FATE_NOT_RUN,   /* an ordered command stopped before it: send it in the next command */
    FATE_SPLIT /* the command as a whole was refused because of some member: halve it. Alone: NEVER
                * when it has a reason that can be true of it, else UNKNOWN */
};

/* Why an unknown or later one must be sent again: the label `class` of the retry counter. */
enum retry_class {
    RETRY_NONE,
    RETRY_NETWORK,
    RETRY_NO_PRIMARY,
    RETRY_TIMEOUT,
    RETRY_WRITE_CONCERN,
    RETRY_CONFLICT,
    RETRY_RIGHTS,      /* an operator must grant something; nothing is dead-lettered */
    RETRY_CONFIG,      /* wrong topology, full disk and the like: an operator must act */
    RETRY_DEAD_LETTER, /* the dead-letter topic didn't take it */
    RETRY_LOCK,        /* the lock of [route.lock] is somebody else's, or can't be asked for */
    RETRY_OTHER,
    RETRY_CLASSES /* how many there are, not a class */
};
const char *retry_class_name(enum retry_class c); /* "no_primary" */

/*
 * UNKNOWN for a code of the server that isn't known to be permanent: it may be this operation's own
 * fault all the same (core/suspicion.h decides, over many attempts).
 */
enum outcome_doubt {
    DOUBT_NONE,
    DOUBT_AMONG, /* told about this operation among others of its command */
    DOUBT_ALONE  /* it was alone in its command; text is set */
};

struct outcome {
    enum fate fate;
    enum retry_class retry; /* for LATER, UNKNOWN and SPLIT */
    enum reason reason;     /* for NEVER and SPLIT */
    enum outcome_doubt doubt;
    bool conflict; /* DUPLICATE or NEVER: the stored document is of another payload */
    int code;      /* the server's, 0 when none */
    char *text; /* the server's message, for LOOK, NEVER, SPLIT alone and DOUBT_ALONE; mem_free();
                 * names index and key: for the dead letter, not for a log. LATER: set when it is
                 * held up with its like alone and others of the route go on: what to do about it,
                 * for the log. NULL otherwise */
};
void outcome_clear(struct outcome *o);

/* What kind of error the driver reported beside the reply. */
enum call_fault {
    CALL_FINE,      /* none */
    CALL_SERVER,    /* the server's answer: a code of the server */
    CALL_NETWORK,   /* connection closed, reset, or silent for too long */
    CALL_SELECTION, /* no server to send it to within the time-out */
    CALL_AUTH,      /* credentials were refused when connecting */
    CALL_DOCUMENT,  /* the driver itself refused a document of the command: nothing was sent */
    CALL_DRIVER     /* anything else */
};

struct outcome_call {
    enum call_fault fault;
    bool ordered;
    bool is_insert; /* an insert: what is neither in writeErrors nor behind a stop was inserted */
    int code;       /* the server's for CALL_SERVER; else only for people */
    const char *message; /* may be NULL */
};

/*
 * Fills out[0..n), which must hold nothing that needs outcome_clear(). reply may be NULL or empty
 * (nothing came back). Nothing in a reply can make it crash; what can't be understood is UNKNOWN
 * for all. true: the reply spoke of the operations one by one; false: all share one fate.
 */
bool outcome_judge(const struct outcome_call *call, const bson_t *reply, size_t n,
                   struct outcome *out);

/* A call that failed as a whole and was no write (a read, a ping): UNKNOWN, with class and code. */
void outcome_of_failure(const struct outcome_call *call, struct outcome *out);

/* Of a read for many: may its size, or one of them, be why it failed? */
bool outcome_may_be_one_of_many(const struct outcome_call *call);

/* One row per server code that does not get the default (UNKNOWN, class other; as a whole: SPLIT).
 */
struct outcome_code {
    int code;
    const char *name;
    enum fate one;   /* in writeErrors */
    enum fate whole; /* as the answer to the whole command */
    enum retry_class retry;
    enum reason reason;
    bool member; /* whole is SPLIT: once alone it is NEVER with this reason, if that can be */
    const char *source;
    const char *todo; /* what an operator must do so that it passes; NULL: it may pass by itself */
};
extern const struct outcome_code outcome_codes[];
extern const size_t outcome_codes_count;
const struct outcome_code *outcome_code_find(int code); /* NULL: not known */

/* What an operator can do about it, in words; never NULL. */
const char *outcome_advice(enum retry_class retry, int code);

#endif
