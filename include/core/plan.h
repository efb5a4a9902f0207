/*
 * plan.h - a batch of operations to the commands to send, and back from the
 * replies to one result per operation. Pure: the sink only carries.
 *
 *   plan_begin(p, ops, n);
 *   while (plan_next(p, &command)) {
 *       ... execute command; libmongoc's reply and error ...
 *       plan_reply(p, &call, reply);         for UPSERT and INSERT
 *       plan_looked(p, found | not | failed) for LOOK
 *   }
 *   plan_results(p) is filled.
 *
 * What it decides:
 * - Operations with the same filter bytes are folded: the first is sent, the others share its
 * result as duplicates (or its failure).
 * - A command holds one kind only, so that one wire command answers it. It is ordered when two of
 *   its operations are of one lane, unordered otherwise (duplicates of upserts raise no error, so
 * an ordered one hardly ever stops).
 * - Behind a stop of an ordered command it goes on with what was not run. What is of the lane of an
 * operation that failed for now is not sent: it gets LATER.
 * - FATE_SPLIT halves the command until the member that can't be sent is alone; that one is NEVER
 *   (too_large, too_deep or rejected).
 * - FATE_LOOK asks for a read by the dedup key: found is DUPLICATE, not found is NEVER
 *   (unique_conflict, with index and key in the text), a failed read is UNKNOWN.
 * - A command is at most max_ops and max_bytes; the sum of what E11000 errors could echo keeps a
 * reply below 16 MB (measured: 600 duplicates with 50 kB keys make the server close the
 * connection).
 */
#ifndef IDEMSINK_CORE_PLAN_H
#define IDEMSINK_CORE_PLAN_H

#include "core/mapping.h"
#include "core/outcome.h"

struct plan;

struct plan_limits {
    size_t max_ops;
    size_t max_bytes;
};

enum plan_command_kind { PLAN_UPSERT, PLAN_INSERT, PLAN_LOOK };

struct plan_command {
    enum plan_command_kind kind;
    bool ordered;
    const struct write_op *const *ops; /* n of them; valid until the answer is given. LOOK: one */
    size_t n;
};

enum plan_look { PLAN_LOOK_FOUND, PLAN_LOOK_MISSING, PLAN_LOOK_FAILED };

struct plan *plan_new(const struct plan_limits *limits); /* reused from batch to batch */
void plan_free(struct plan *p);

void plan_begin(struct plan *p, const struct write_op *ops, size_t n); /* ops stay borrowed */
bool plan_next(struct plan *p, struct plan_command *command);
void plan_reply(struct plan *p, const struct outcome_call *call, const bson_t *reply);
void plan_looked(struct plan *p, enum plan_look answer, const struct outcome_call *call);

/* n results, INSERTED, DUPLICATE, LATER, UNKNOWN or NEVER; the plan owns them until the next
 * plan_begin(). */
const struct outcome *plan_results(const struct plan *p);

#endif
