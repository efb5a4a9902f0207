/*
 * reconcile_job.h - effects.reconcile_every: what `idemsink reconcile --apply` does, now and then
 * inside of `run`, by one process of all.
 */
#ifndef IDEMSINK_CLI_RECONCILE_JOB_H
#define IDEMSINK_CLI_RECONCILE_JOB_H

#include "base/metrics.h"
#include "io/mongo.h"
#include "run/chores.h"
#include "run/notifier.h"

struct reconcile_job;

/* NULL: reconcile_every is 0, or there is nothing to reconcile. All stays borrowed. */
struct reconcile_job *reconcile_job_new(struct mongo *m, const struct config *config,
                                        const char *owner, struct notifier *notifier,
                                        struct metrics *metrics);
struct chore reconcile_job_chore(struct reconcile_job *j);
void reconcile_job_free(struct reconcile_job *j); /* NULL is fine */

#endif
