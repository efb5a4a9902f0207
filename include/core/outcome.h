/*
 * outcome.h - from a reply to one fate per operation. Pure.
 *
 * Judged per operation from the reply document, never from an error struct
 * alone (measured, facts of MongoDB 6.0.5: bson_error_t says 11000 even when a
 * writeConcernError is there too). Understands the server's own reply
 * ({n, nModified, upserted, writeErrors, writeConcernError, ok}) and the one that libmongoc's bulk
 * makes of it ({nMatched, nUpserted, upserted, writeErrors, writeConcernErrors}).
 */
#ifndef IDEMSINK_CORE_OUTCOME_H
#define IDEMSINK_CORE_OUTCOME_H

#include <bson/bson.h>

#include "base/err.h"
#include "core/reason.h"

enum fate {
    FATE_INSERTED,  /* stored because of this operation */
    FATE_DUPLICATE, /* it was there already: a success */
    FATE_LOOK,      /* E11000: read by the dedup key, then decide */
    FATE_LATER,   /* this one failed for now (write conflict, ...) or must wait for one before it */
    FATE_UNKNOWN, /* nobody knows: send the same again */
    FATE_NEVER,   /* a permanent answer to this one operation: see reason */
    FATE_NOT_RUN, /* an ordered command stopped before it: send it in the next command */
    FATE_SPLIT    /* the command as a whole was refused because of some member: halve it */
};

/* Why an unknown or later one must be sent again: the label `class` of the retry counter. */
enum retry_class {
    RETRY_NONE,
    RETRY_NETWORK,
    RETRY_NO_PRIMARY,
    RETRY_TIMEOUT,
    RETRY_WRITE_CONCERN,
    RETRY_CONFLICT,
    RETRY_RIGHTS,      /* 13, 18: an operator must grant something; nothing is dead-lettered */
    RETRY_CONFIG,      /* wrong topology and the like: an operator must act */
    RETRY_DEAD_LETTER, /* the dead-letter topic didn't take it */
    RETRY_OTHER,
    RETRY_CLASSES
};
const char *retry_class_name(enum retry_class c);

struct outcome {
    enum fate fate;
    enum retry_class retry; /* for LATER and UNKNOWN */
    enum reason reason;     /* for NEVER */
    int code;               /* the server's, 0 when none */
    char *text; /* the server's message, for LOOK and NEVER; mem_free(); NULL otherwise */
};
void outcome_clear(struct outcome *o);

/* What the driver said beside the reply. ok: it reported success. */
struct outcome_call {
    bool ok;
    bool ordered;
    bool is_insert;  /* an insert: what is neither in writeErrors nor behind a stop was inserted */
    uint32_t domain; /* bson_error_t; 0 when ok */
    int code;
    const char *message;
};

/* Fills out[0..n). reply may be NULL or empty (nothing came back). */
void outcome_judge(const struct outcome_call *call, const bson_t *reply, size_t n,
                   struct outcome *out);

#endif
