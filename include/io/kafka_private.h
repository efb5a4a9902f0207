/*
 * kafka_private.h - what the files of io/kafka_*.c know of each other.
 */
#ifndef IDEMSINK_IO_KAFKA_PRIVATE_H
#define IDEMSINK_IO_KAFKA_PRIVATE_H

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/log.h"
#include "io/kafka.h"

/* --- kafka_conf.c ------------------------------------------------------------------------- */

struct kafka_setting {
    const char *name, *value;
};

/*
 * defaults, then the operator's kafka.properties, then what must be. A property that must not be
 * theirs was refused by core/config_check.c already. Lists end with a nameless one. Logs go to our
 * log.
 */
bool kafka_conf_build(const struct config *config, const struct kafka_setting *defaults,
                      const struct kafka_setting *musts, rd_kafka_conf_t **out, struct err *e);

/* rd_kafka_new() that takes conf in every outcome. */
rd_kafka_t *kafka_handle_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, struct err *e);

/*
 * A short-lived handle for questions to the brokers, and the refusal of our credentials that it
 * meets: librdkafka tells of that in its error callback and tries on, and the question ends as one
 * that nobody answered. *refusal outlives the handle.
 */
rd_kafka_t *kafka_admin_handle(const struct config *config, struct err *refusal, struct err *e);

/* Keeps the first one that is ERR_AUTH. */
void kafka_refusal_keep(struct err *refusal, rd_kafka_resp_err_t err, const char *reason);

/* After a question has failed with *e: when it was for a refusal, that is the error. Runs the
 * handle's callbacks. Returns false. */
bool kafka_refused(rd_kafka_t *rk, const struct err *refusal, struct err *e);

/* NULL: the operator did not write it. The name must have no other in librdkafka. */
const char *kafka_property(const struct config *config, const char *name);

enum err_kind kafka_error_kind(rd_kafka_resp_err_t code);

/* The record behind a message, copied. headers is scratch memory of the caller that grows. */
struct kafka_scratch {
    struct record_header *headers;
    size_t cap;
};
struct record *kafka_record_new(const rd_kafka_message_t *m, const char *topic, uint32_t slot,
                                struct kafka_scratch *scratch);

/* --- kafka_admin.c ------------------------------------------------------------------------ */

bool kafka_topics_list(rd_kafka_t *rk, const struct config *config, int wait_ms,
                       struct kafka_topics *out, struct err *e);

/* The same of exactly these topics, whoever reads them. False too when one does not exist. */
bool kafka_topics_named(rd_kafka_t *rk, const struct config *config, const char *const *names,
                        size_t n, int wait_ms, struct kafka_topics *out, struct err *e);

/* The value of topic.blacklist: the dead-letter topic and Kafka's own, behind what the operator
 * wrote. */
void kafka_topics_hidden(const struct config *config, struct buf *out);

/* --- kafka_source.c and its parts --------------------------------------------------------- */

struct kafka_source;

struct kafka_slot {
    uint32_t number;
    char *topic;
    int32_t partition;
    int route;
    _Atomic bool assigned; /* written by the intake */

    /* The intake's */
    bool open;           /* from its assignment until its revoke was handled */
    bool paused;         /* by us */
    struct record *held; /* read and not wanted yet; NULL: none */
    uint32_t generation; /* counts the assignments */
    int64_t start;       /* the committed offset at the assignment, -1: none or not known */
    int64_t last;        /* the last offset read in this assignment, -1: none */
};

struct kafka_end {
    struct kafka_slot *slot;
    int64_t offset;
    bool reached;
};

enum kafka_limit {
    LIMIT_BROKERS,
    LIMIT_RIGHTS,
    LIMIT_TOPIC,
    LIMIT_COMMIT,
    LIMIT_OTHER,
    LIMIT_COUNT
};

struct kafka_source {
    const struct config *config;
    struct source_events events;
    rd_kafka_t *rk;

    pthread_mutex_t lock;       /* leaf */
    struct kafka_slot **slots;  /* lock; grows, never shrinks; the slots themselves stay in place */
    size_t n_slots;             /* lock */
    struct kafka_health health; /* lock */
    int64_t problem_at_ms;      /* lock; when health.problem was last met */

    int wake_fd; /* an eventfd: something may have come */
    _Atomic bool woken, main_ready, reply_ready;
    _Atomic bool room;    /* something may be wanted that was not */
    _Atomic bool joining; /* from JoinGroup sent to SyncGroup answered */

    /* All below: the intake's */
    rd_kafka_queue_t *main, *records, *replies, *closing;
    int64_t main_at_ms;        /* when the main queue was last served */
    struct kafka_slot **parts; /* assigned */
    size_t n_parts, cap_parts;
    size_t n_paused, held_bytes; /* of the paused ones */
    struct kafka_slot *blocked;  /* the queue waits behind what it holds; NULL: it doesn't wait */
    int64_t blocked_at_ms;
    struct kafka_slot *last_slot; /* of the last message, and its topic */
    const rd_kafka_topic_t *last_topic;
    size_t taken_bytes; /* since the fetchers were woken */
    struct kafka_scratch scratch;

    struct commit_point *flight; /* the commit in flight */
    uint32_t *flight_generation;
    size_t n_flight;
    bool in_flight;
    bool flight_ok; /* of the last one answered */
    struct err flight_err;

    struct kafka_end *ends;
    size_t n_ends;
    int64_t ends_asked_at_ms;

    int64_t close_until_ms; /* 0: not closing */
    bool closed, failed, ever_assigned;
    bool troubled; /* health.problem may be set */
    struct err failure;
    struct log_limit limits[LIMIT_COUNT];
};

/* The slot of this name, made when it is new. Intake. */
struct kafka_slot *kafka_slot_of(struct kafka_source *s, const char *topic, int32_t partition);

/* Leads the partition's records into our queue, before librdkafka starts fetching; ends that. */
void kafka_part_open(struct kafka_source *s, struct kafka_slot *slot, int64_t start);
void kafka_part_close(struct kafka_source *s, struct kafka_slot *slot);

/* poll() fails from now on. The first failure stays. */
void kafka_source_fail(struct kafka_source *s, enum err_kind kind, int code, const char *fmt, ...)
    PRINTF_LIKE(4, 5);

/* kafka_group.c: librdkafka's callbacks, all inside poll() and close() */
void kafka_on_rebalance(rd_kafka_t *rk, rd_kafka_resp_err_t err,
                        rd_kafka_topic_partition_list_t *list, void *opaque);
void kafka_on_error(rd_kafka_t *rk, int err, const char *reason, void *opaque);
/* An error in the place of a record. slot may be NULL. */
void kafka_on_consumer_error(struct kafka_source *s, const struct kafka_slot *slot,
                             const rd_kafka_message_t *m);
/* Everything still assigned is taken away, as lost. */
void kafka_group_lose_all(struct kafka_source *s);
/* A record came, or a commit was accepted: what was wrong is over. Intake. */
void kafka_health_clear(struct kafka_source *s);
/* kafka_source_health() at this monotonic time. Any thread. */
void kafka_health_at(struct kafka_source *s, int64_t now_ms, struct kafka_health *out);

/* kafka_prefetch.c: how much librdkafka may fetch ahead, as text for its properties */
enum { KAFKA_MESSAGE_BYTES = 340 /* what a message costs beside its key and value, measured */ };
struct kafka_prefetch {
    char kbytes[24], messages[24], response_bytes[24], fetch_bytes[24];
};
void kafka_prefetch_limits(int64_t budget_bytes, int brokers, struct kafka_prefetch *out);
/* So many bytes were read from the queue. */
void kafka_prefetch_taken(struct kafka_source *s, size_t bytes);
/* slot's next record, which is not wanted: the queue waits behind it. Takes r. */
void kafka_hold(struct kafka_source *s, struct kafka_slot *slot, struct record *r, int64_t now_ms);
/* A held record that is wanted by now; NULL: none. When the queue still waits s->blocked is set. */
struct record *kafka_hold_next(struct kafka_source *s, int64_t now_ms);
int64_t kafka_hold_wait_ms(const struct kafka_source *s, int64_t wait_ms);
/* The assignment of slot is over. */
void kafka_hold_drop(struct kafka_source *s, struct kafka_slot *slot);

/* kafka_commit.c */
bool kafka_commit(void *self, const struct commit_point *points, size_t n, int wait_ms, bool *sent,
                  struct err *e);
void kafka_commit_serve(struct kafka_source *s);
/* To be called before the handle is made. */
void kafka_commit_heed_joins(struct kafka_source *s, rd_kafka_conf_t *conf);

/* kafka_end.c */
bool kafka_end_snapshot(void *self, struct err *e);
bool kafka_end_reached(void *self, const struct commit_point *mine, size_t n, bool *reached,
                       struct err *e);

#endif
