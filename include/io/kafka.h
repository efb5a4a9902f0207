/*
 * kafka.h - Kafka behind the ports, for those who wire the program together.
 *
 *   source       a member of the consumer group          (ports/source.h)
 *   dead letters an idempotent producer                  (ports/deadletter.h)
 *   reader       whole topics from begin to end, without a group
 *   admin        topics: which there are, making one
 *
 * Facts about librdkafka are those of version 2.0.2 (Debian 12), read in its
 * source and tried; what is newer behaves the same or better where it matters.
 */
#ifndef IDEMSINK_IO_KAFKA_H
#define IDEMSINK_IO_KAFKA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "core/config.h"
#include "core/record.h"
#include "ports/deadletter.h"
#include "ports/source.h"

/* The version of librdkafka in this process, "2.0.2". */
const char *kafka_library_version(void);

/* --- the source --------------------------------------------------------------------------- */

/*
 * Makes the consumer and subscribes. config outlives the source; *events is copied. Asks the
 * brokers for their number first (at most 3 s: each may have a response under way, and they share
 * what that may bring); brokers that can't be reached are no error, poll() keeps
 * trying. False: ERR_CONFIG, with librdkafka's own words about a property it doesn't take; ERR_AUTH
 * when the brokers refuse the credentials now (later that is only logged, and a problem of the
 * health).
 */
bool kafka_source_new(const struct config *config, const struct source_events *events,
                      struct source *out, struct err *e) MUST_CHECK;

/* After close() returned true, or when poll() was never called; waits at most 1 s for librdkafka's
 * threads. No other thread may use the source any more. Sets *source to nothing; nothing is fine.
 */
void kafka_source_free(struct source *source);

/* For /readyz and the log. Any thread. */
struct kafka_health {
    bool joined;     /* in the group: an assignment is known, an empty one too */
    size_t assigned; /* partitions */
    /* What an operator has to change (rights, a missing topic); "" when nothing. Gone with the next
     * record or accepted commit, with an assignment, or 60 s after it was last met. librdkafka
     * may tell only once of a partition that it may not read. */
    char problem[256];
};
void kafka_source_health(const struct source *source, struct kafka_health *out);

/* --- dead letters ------------------------------------------------------------------------- */

/*
 * The producer for config->dead_letter.topic. With an empty topic *out has no ops. False:
 * ERR_CONFIG.
 *
 * A dead letter is the record as it was (key, value, headers, timestamp) with the headers of
 * docs/dead-letters.md. If the brokers refuse it for its size it goes again without its value and
 * with idemsink.value = "dropped: too large, N bytes"; if that is too large too, without its
 * headers (idemsink.headers) and key (idemsink.key). If they refuse its timestamp, or it is not
 * above 0, it goes with the time of sending; idemsink.timestamp has the original one in ms.
 */
bool kafka_deadletter_new(const struct config *config, struct deadletter *out,
                          struct err *e) MUST_CHECK;

/* No send() may be under way. Nothing is fine. */
void kafka_deadletter_free(struct deadletter *dead);

/* --- whole topics ------------------------------------------------------------------------- */

struct kafka_reader;

/*
 * Reads every partition of these topics from its first record to the end offset seen now; committed
 * transactions only. Joins no group and commits nothing. topics == NULL: all that the routes
 * subscribe. Memory is bounded by half of worker.max_bytes, as with the source. Waits at most
 * wait_ms for the brokers. NULL: ERR_CONFIG (a topic does not exist), ERR_AUTH, ERR_TRANSIENT.
 */
struct kafka_reader *kafka_reader_new(const struct config *config, const char *const *topics,
                                      size_t n, int wait_ms, struct err *e) MUST_CHECK;
void kafka_reader_free(struct kafka_reader *r); /* NULL is fine */

/* From the first record on whose timestamp is since_ms or later, by the brokers' index of times:
 * what is behind it may be older. -1: from the first record. */
struct kafka_reader *kafka_reader_since(const struct config *config, const char *const *topics,
                                        size_t n, int64_t since_ms, int wait_ms,
                                        struct err *e) MUST_CHECK;

/* What it reads of the slot-th partition: from, and up to before end. False: it has no such one. */
struct kafka_range {
    const char *topic; /* lives as long as the reader */
    int32_t partition;
    int64_t from, end;
};
bool kafka_reader_range(const struct kafka_reader *r, size_t slot, struct kafka_range *out);

enum kafka_read { KAFKA_READ_RECORD, KAFKA_READ_NOTHING, KAFKA_READ_END, KAFKA_READ_ERROR };

/*
 * RECORD: *out, which the caller frees; partitions come mixed, each in order of offsets.
 * record.topic lives as long as the reader; record.slot numbers the partitions of this reader from
 * 0; record.route is that of the topic, UINT32_MAX when no route has it. NOTHING: none within
 * wait_ms. END: all is read. ERROR: *e, the reader is finished.
 */
enum kafka_read kafka_reader_next(struct kafka_reader *r, int wait_ms, struct record **out,
                                  struct err *e) MUST_CHECK;

/* Offsets passed and offsets there are: an upper bound of the records, gaps count too. */
void kafka_reader_progress(const struct kafka_reader *r, uint64_t *done, uint64_t *total);

/*
 * The record at this place, which the caller frees; topic outlives it; partition and offset are not
 * negative. record.route is not set. NULL: ERR_INPUT (no such partition, offset, or record there),
 * ERR_CONFIG (no such topic), ERR_AUTH, ERR_TRANSIENT (no answer within wait_ms).
 */
struct record *kafka_read_one(const struct config *config, const char *topic, int32_t partition,
                              int64_t offset, int wait_ms, struct err *e) MUST_CHECK;

/* --- admin -------------------------------------------------------------------------------- */

struct kafka_topic {
    char *name;
    int partitions;
    int route; /* -1: no route reads it */
};
struct kafka_topics {
    struct kafka_topic *items;
    size_t n;
    int brokers;
    bool dead_letter; /* the dead-letter topic is there */
    int dead_letter_partitions;
    char *missing; /* the first topic that a route names and that is not there; NULL: none */
};

/* The topics that the routes subscribe, as the brokers know them now. What a regex finds never
 * includes the dead-letter topic and Kafka's own topics. False: ERR_TRANSIENT (not reached within
 * wait_ms), ERR_AUTH, ERR_CONFIG. */
bool kafka_describe(const struct config *config, int wait_ms, struct kafka_topics *out,
                    struct err *e) MUST_CHECK;
void kafka_topics_clear(struct kafka_topics *t);

/* --- what is there and what we may do, for check: kafka_check.c ------------------------------ */

/* config_drivers.property: does librdkafka take this one? */
bool kafka_property_fine(const char *name, const char *value, struct buf *why,
                         struct buf *known) MUST_CHECK;

/* Does librdkafka take the configuration: names and values of the properties, and what they are
 * together? Makes the handles of the consumer and of the producer, without brokers. ERR_CONFIG. */
bool kafka_check_properties(const struct config *config, struct err *e) MUST_CHECK;

struct kafka_asker;

/* NULL: ERR_CONFIG. Each question below waits at most wait_ms. False: ERR_AUTH names the right that
 * is missing, ERR_TRANSIENT: it could not be found out, ERR_CONFIG: it is not there. */
struct kafka_asker *kafka_asker_new(const struct config *config, int wait_ms,
                                    struct err *e) MUST_CHECK;
void kafka_asker_free(struct kafka_asker *a); /* NULL is fine */

struct kafka_topic_state {
    int partitions, leaderless; /* partitions without a leader */
    int replicas, in_sync;      /* of the partition that has fewest */
};
bool kafka_ask_topic(struct kafka_asker *a, const char *topic, struct kafka_topic_state *out,
                     struct err *e) MUST_CHECK;

struct kafka_topic_settings {
    int64_t max_message_bytes, min_insync, retention_ms; /* -1: not known; retention: or for ever */
    bool compacted;
};
bool kafka_ask_settings(struct kafka_asker *a, const char *topic, struct kafka_topic_settings *out,
                        struct err *e) MUST_CHECK;

/* May we read it? One fetch behind its end. */
bool kafka_ask_read(struct kafka_asker *a, const char *topic, struct err *e) MUST_CHECK;

/* May we write it? Sends a message that is one byte larger than its max.message.bytes, which the
 * broker refuses after it has looked at the right. */
bool kafka_ask_write(struct kafka_asker *a, const char *topic, int64_t max_message_bytes,
                     struct err *e) MUST_CHECK;

/* May we be a member of the group and commit? Does neither. */
struct kafka_group_state {
    size_t members;
    char state[24]; /* "Stable"; "" when nobody was in it yet */
};
bool kafka_ask_group(struct kafka_asker *a, struct kafka_group_state *out,
                     struct err *e) MUST_CHECK;

/* What a dead letter adds to its record at most, with room: its topic's max.message.bytes should be
 * so much above those of the input topics. */
enum { KAFKA_LETTER_BYTES = 4096 };

/* Makes the topic, with the brokers' default replication. *made: it was not there; one that is
 * there stays as it is. True when it is there afterwards. */
struct kafka_new_topic {
    const char *name;
    int partitions;
    int64_t max_message_bytes; /* 0: what the brokers have */
};
bool kafka_topic_create_if_missing(const struct config *config,
                                   const struct kafka_new_topic *wanted, int wait_ms, bool *made,
                                   struct err *e) MUST_CHECK;

#endif
