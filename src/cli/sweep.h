/*
 * sweep.h - the job that completes the effects which others have left open, and what /metrics says
 * of routes whose effects go without transactions.
 */
#ifndef IDEMSINK_CLI_SWEEP_H
#define IDEMSINK_CLI_SWEEP_H

#include "base/metrics.h"
#include "io/mongo.h"
#include "run/chores.h"

struct sweep;

/* NULL: no route needs it. All stays borrowed; owner is for people who look at the lease. Once
 * mongo_decide_ways() has been called. */
struct sweep *sweep_new(struct mongo *m, const struct config *config, const char *owner,
                        struct metrics *metrics);
struct chore sweep_chore(struct sweep *s);
void sweep_free(struct sweep *s); /* NULL is fine */

#endif
