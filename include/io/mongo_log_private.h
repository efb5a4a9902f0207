/*
 * mongo_log_private.h - shared by src/io/mongo_log*.c only.
 */
#ifndef IDEMSINK_IO_MONGO_LOG_PRIVATE_H
#define IDEMSINK_IO_MONGO_LOG_PRIVATE_H

#include "core/log_doc.h"
#include "core/log_horizon.h"
#include "core/log_plan.h"
#include "io/mongo_private.h"

struct mongo_log {
    struct mongo *m;
    mongoc_client_t *client; /* borrowed */
    struct log_plan *plan;
    uint64_t seed;
    int64_t clock_server_ms, clock_mono_ms; /* both clocks at one moment; 0: not known */
    bool clock_stale;                       /* to be asked again */
    struct log_horizon *horizons;           /* by route */
};

const struct outcome *mongo_log_run(struct mongo_log *l, uint32_t route, const struct write_op *ops,
                                    size_t n, bool complete_only);

/* The server's time, not ahead of it; once mongo_log_clock() has looked. */
int64_t mongo_log_now(const struct mongo_log *l);
bool mongo_log_clock(struct mongo_log *l, struct outcome_call *call, bson_error_t *be);

/* mongo_log_horizon.c: before a batch begins. How long attempts may take is told to all who prune,
 * and the route's horizon goes on. False: *call says why, and nothing may begin. */
bool mongo_log_register(struct mongo_log *l, uint32_t route, struct outcome_call *call,
                        bson_error_t *be);
/* May one begin at now_ms? */
bool mongo_log_is_registered(const struct mongo_log *l, uint32_t route, int64_t now_ms);

/* mongo_log_steps.c: the commands. Each answers the plan. */
void mongo_log_read(struct mongo_log *l, uint32_t route, const struct log_command *c);
void mongo_log_number(struct mongo_log *l, uint32_t route, const struct log_command *c);
void mongo_log_update(struct mongo_log *l, uint32_t route, const struct log_command *c);

/* The collection of the route's events: its own, or the ledger; mongoc_collection_destroy(). */
mongoc_collection_t *mongo_log_events(struct mongo_log *l, uint32_t route);

/* Appends: open, not failed, and begun before (INT64_MAX: whenever). */
void mongo_log_open_filter(bson_t *filter, int64_t before_ms);

/* Appends the read concern that can't be rolled back, where writes have it. */
void mongo_log_read_opts(const struct mongo *m, bson_t *opts);

/* Fills *call from a failure. */
void mongo_log_failed(struct mongo_log *l, const bson_error_t *be, struct outcome_call *call);

#endif
