/*
 * dlq.h - what the commands `dlq list`, `dlq show` and `dlq replay` share: which dead letters are
 * meant, and what each is to this configuration.
 */
#ifndef IDEMSINK_CLI_DLQ_H
#define IDEMSINK_CLI_DLQ_H

#include "cli/cli.h"
#include "core/letter.h"

enum { DLQ_WAIT_MS = 10000 };

/* What a record of the dead-letter topic is to this configuration. Only an open one is replayed. */
enum dlq_state {
    DLQ_OPEN,
    DLQ_OLDER,      /* a newer letter speaks of the same record */
    DLQ_INCOMPLETE, /* it was too large for the topic: the record can't be made again from it */
    DLQ_NO_ROUTE,   /* no route reads the topic that it came from */
    DLQ_OTHER_GROUP,
    DLQ_FOREIGN, /* not idemsink's */
    DLQ_BROKEN,  /* it says it is, and can't be */
    DLQ_STATES
};
const char *dlq_state_name(enum dlq_state state); /* "no_route" */
const char *dlq_state_help(enum dlq_state state); /* why it is not replayed */

struct dlq_place { /* in the dead-letter topic */
    int32_t partition;
    int64_t offset;
};

struct dlq_topic; /* a name and its route */

struct dlq {
    const struct args *args;
    struct config *config;
    /* What the options ask for. */
    bool by_reason, reasons[REASON_COUNT];
    int64_t since_ms, until_ms, patience_ms;
    struct dlq_place *places;
    size_t n_places;

    /* Filled by dlq_survey(). */
    struct letter_table *table;
    int64_t *ends; /* by partition; what came later is for the next time */
    size_t n_ends;
    bool surveyed;
    struct dlq_topic *topics;
    size_t n_topics;
};

/* Reads the configuration and the options. Another code than EXIT_FINE: it said why. */
enum exit_code dlq_open(struct dlq *d, const struct args *args);
void dlq_close(struct dlq *d);

/* False: --topic names one that no route reads; it said so. */
bool dlq_topic_is_read(const struct dlq *d);

typedef bool dlq_fn(void *ctx, const struct record *r, const struct letter *l, struct err *e);

/* Every record of the dead-letter topic up to the end seen now, or by dlq_survey() before; false
 * from each ends it. */
bool dlq_scan(struct dlq *d, dlq_fn *each, void *ctx, struct err *e) MUST_CHECK;

/* The first pass: which letter of each record is the newest. */
bool dlq_survey(struct dlq *d, struct err *e) MUST_CHECK;

/* The record at this place of the topic, to be freed. ERR_INPUT: there is none. */
struct record *dlq_read(struct dlq *d, const struct dlq_place *place, struct err *e) MUST_CHECK;

/* Do the options mean this one? (--reason --topic --since --until) */
bool dlq_wanted(const struct dlq *d, const struct record *r, const struct letter *l);

/* DLQ_OLDER only after dlq_survey(). */
enum dlq_state dlq_state(struct dlq *d, const struct record *r, const struct letter *l);

/* When it was given up; of what is not ours, its timestamp. */
int64_t dlq_time_ms(const struct record *r, const struct letter *l);

/*
 * The record that l speaks of, to be freed, with its route: from the letter, or when that is not
 * whole from its own topic. NULL with ERR_INPUT: it is not there any more. OURS with a route only.
 */
struct record *dlq_restore(struct dlq *d, const struct record *r, const struct letter *l,
                           struct err *e) MUST_CHECK;

/* --- printing: dlq_print.c --- */

/* Bytes of anybody for a terminal, on one line: what is no printable UTF-8 becomes \xNN. */
void dlq_add_text(struct buf *out, struct slice s);

/* A JSON string, {"base64":"..."} when it is not UTF-8, or null. */
void dlq_add_json(struct buf *out, struct slice s);

/* Text as it is where it can be shown, else a dump in hexadecimal. */
void dlq_print_payload(struct slice s);

/* "orders:3:1042" of ours, "-" otherwise. */
void dlq_add_origin(struct buf *out, const struct letter *l);

/* The members of the letter without braces: "dead_letter":"0:17","state":"open",... */
void dlq_add_members(struct buf *out, const struct record *r, const struct letter *l,
                     enum dlq_state state);

#endif
