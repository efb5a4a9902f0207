/*
 * record.h - one consumed message, from the poll to the commit.
 *
 * A record owns a copy of its bytes in one allocation: a message of librdkafka
 * that is kept pins its whole fetch buffer (measured: 60 of 60,000 messages
 * kept 62 MB), and everything here waits for a while (docs/decisions/002).
 *
 * Two promises hang on a record and they end at different moments:
 *
 *   its lane    the next record of the same ordering key may not start before
 *               this one is applied. Ends at the MongoDB acknowledgement.
 *   its offset  the partition may not be committed past it before all it asked
 *               for is done. Ends when it is settled.
 *
 * At any time exactly one of these holds a record, and only the holder touches
 * it: the intake thread, the scheduler, one worker, the notifier.
 */
#ifndef IDEMSINK_CORE_RECORD_H
#define IDEMSINK_CORE_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "core/reason.h"
#include "core/suspicion.h"

struct json_t; /* jansson's */
struct lane;
struct values;

struct record_header {
    struct slice name;
    struct slice value; /* absent: a null value */
};

enum record_timestamp { RECORD_TIMESTAMP_NONE, RECORD_TIMESTAMP_CREATE, RECORD_TIMESTAMP_APPEND };

/* Why a record is on its way to the dead-letter topic. */
struct rejection {
    enum reason reason; /* REASON_NONE: it is not */
    int code;           /* the server's code, 0 when it was not asked */
    char *text;         /* for the operator; mem_free()d with the record */
    const char *path;   /* of the payload's value at fault; borrowed from the mapping; NULL: none */
};

/* Which kind of bytes the ordering key is, so that two kinds never meet in one lane. */
enum order_space {
    ORDER_KEY,       /* the Kafka key */
    ORDER_DEDUP,     /* the encoded dedup key */
    ORDER_VALUE,     /* an encoded value of the payload or of a header */
    ORDER_PARTITION, /* empty: one lane for the whole partition */
    ORDER_NONE       /* none could be found; the record is its own lane (offset) */
};

struct record {
    const char *topic; /* lives longer than every record */
    int32_t partition;
    uint32_t slot;  /* which topic and partition this process calls by this number, for ever */
    uint32_t route; /* index into config->routes */
    int64_t offset;
    enum record_timestamp timestamp_type;
    int64_t timestamp_ms; /* -1 when there is none */
    struct slice key, value;
    const struct record_header *headers;
    size_t n_headers;
    size_t bytes; /* key, value, headers and the record itself: what the budget counts */

    /* Set by mapping_order(). order_key points into key or into order_owned. */
    enum order_space order_space;
    struct slice order_key;
    void *order_owned;
    uint64_t order_hash;
    struct json_t *json;   /* the parsed payload when the intake had to parse it, else NULL */
    struct values *values; /* with json: what JSON has no word for; NULL when there is none */

    uint32_t attempts; /* how often a write or a dead letter was tried and failed for now */
    struct suspicion suspicion; /* while the server's answers to it are not understood */
    bool waits;                 /* until somebody acts, while others of its route go on */
    struct rejection rejected;  /* set: goes to the dead-letter topic and nowhere else */
    int64_t offered_at_ms;      /* monotonic; when pipeline_offer() took it */

    /* Private to tracker.c */
    uint32_t epoch;
    uint64_t seq;

    /* Private to sched.c */
    struct lane *lane;
    struct record *next;
    uint64_t arrival; /* counted through the route */

    /* Private to pipeline.c */
    bool letter_waits; /* counted as waiting for the dead-letter topic */

    /* For whoever holds the record: a list of its own (notifier, dead letters). */
    struct record *chain;
};

/* Copies everything. topic is borrowed and must outlive the record. The fields behind headers are
 * zero. */
struct record_source {
    const char *topic;
    int32_t partition;
    uint32_t slot;
    int64_t offset;
    enum record_timestamp timestamp_type;
    int64_t timestamp_ms;
    struct slice key, value;
    const struct record_header *headers;
    size_t n_headers;
};
struct record *record_new(const struct record_source *from);
void record_free(struct record *r); /* NULL is fine */

/* Marks r as never storable. The first rejection stays. text is formatted and cut to about 1 kB. */
void record_reject(struct record *r, enum reason reason, int code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* By the server, for ever: o is NEVER. */
void record_refused(struct record *r, const struct outcome *o);

/* The value of the payload that the rejection is about; path is borrowed. The first one stays. */
void record_reject_at(struct record *r, const char *path);

/* The last header of this name; false when there is none. */
bool record_header(const struct record *r, const char *name, struct slice *out);

#endif
