/*
 * plan.h - a batch of operations to the commands to send, and back from the
 * replies to one result per operation. Pure: the sink only carries.
 *
 *   plan_begin(p, ops, n, &rules);
 *   while (plan_next(p, &command)) {
 *       ... execute command; libmongoc's reply and error ...
 *       plan_reply(p, &call, reply);                     for UPSERT and INSERT
 *       plan_found(p, document); ... plan_looked(p, &call); for LOOK
 *   }
 *   plan_results(p) is filled.
 *
 * What it decides:
 * - Operations with the same filter bytes are folded: the first is sent, the others are duplicates
 * once it is stored, and LATER when it failed for now. If it can never be stored, the next of them
 * is tried: another content may pass, as it would have in a batch of its own.
 * - A command holds one kind only, so that one wire command answers it. It is ordered when two of
 * its operations are of one lane (itself or through a folded one), unordered otherwise. Upserts of
 * duplicates raise no error, so an ordered one hardly ever stops. When ordered commands stopped
 * more often than the longest lane is long, one operation per lane is sent at a time, unordered.
 * - Behind a stop of an ordered command it goes on with what was not run. What is of the lane of an
 * operation that failed for now is not sent: it gets LATER.
 * - FATE_SPLIT halves the command until the member that can't be sent is alone; that one is NEVER
 * when the driver refused it, or the server as too_large or too_deep and it is anywhere near that
 * (15 MiB, 80 levels); else UNKNOWN, in doubt.
 * - An operation that is marked `alone` is sent in a command of its own once nothing else can be
 * sent, so that a suspected one holds up its own lane only.
 * - FATE_LOOK asks for a read by the dedup key. Found: DUPLICATE. Not found: sent once more,
 * because the document may have gone meanwhile (a roll-back, an expiry); not found again: NEVER
 * (unique_conflict).
 * - A read is for many operations at once. What is found in it is settled when its lane gets there.
 * - rules.look_first: what is there already is found out before anything is sent, and not sent. So
 * it is for the rest of a batch once an ordered insert was stopped by E11000.
 * - rules.conflict: the document's hash of its payload is compared for every duplicate, folded ones
 * included; another one is a conflict: counted (DUPLICATE, conflict set) or NEVER. A document
 * without a hash is no conflict. An upsert that matched needs a read for that; what is behind it in
 * its lane is settled only with it.
 * - A command or read whose outcome is unknown as a whole ends the batch: what was not sent yet
 * gets LATER, so that an outage costs one time-out and not one per command.
 * - A command is at most max_ops and max_bytes (one operation at least), and what its errors could
 * echo stays below 16 MB (measured on 6.0.5: 600 duplicates with keys of 50 kB make the server
 * close the connection).
 */
#ifndef IDEMSINK_CORE_PLAN_H
#define IDEMSINK_CORE_PLAN_H

#include "core/mapping.h"
#include "core/outcome.h"

struct plan;

struct plan_limits {
    size_t max_ops;   /* at least 1, at most 100,000 (the server's maxWriteBatchSize) */
    size_t max_bytes; /* filters and documents; below 48,000,000 (maxMessageSizeBytes) with room for
                         overhead */
};

struct plan_rules {
    bool look_first;
    enum config_conflict conflict;
    const char *conflict_field; /* borrowed until the next plan_begin() */
};

enum plan_command_kind { PLAN_UPSERT, PLAN_INSERT, PLAN_LOOK };

struct plan_command {
    enum plan_command_kind kind;
    bool ordered;
    const struct write_op *const *ops; /* n of them; valid until the answer is given. LOOK: find
                                          look_filter() of them, with look_projection() */
    size_t n;
};

struct plan *plan_new(const struct plan_limits
                          *limits); /* reused from batch to batch; no allocation in steady state */
void plan_free(struct plan *p);     /* NULL is fine */

/* ops stay borrowed. lane NULL: no order. rules NULL: none. */
void plan_begin(struct plan *p, const struct write_op *ops, size_t n,
                const struct plan_rules *rules);

/* false: all have their result. Each true must be answered before the next call. */
bool plan_next(struct plan *p, struct plan_command *command);
void plan_reply(struct plan *p, const struct outcome_call *call, const bson_t *reply);
void plan_found(struct plan *p, const bson_t *document); /* each one of the answer to a LOOK */
void plan_looked(struct plan *p,
                 const struct outcome_call *call); /* its end: all of it, or failed */

/* The time is up: what has no result yet gets LATER with this class; plan_next() is false from now
 * on. Between an answer and the next plan_next(). */
void plan_stop(struct plan *p, enum retry_class retry);

/* n results, INSERTED, DUPLICATE, LATER, UNKNOWN or NEVER; the plan owns them until the next
 * plan_begin(). */
const struct outcome *plan_results(const struct plan *p);

#endif
