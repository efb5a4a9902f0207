/*
 * chores.h - what has to be done now and then beside the records: one thread that runs jobs, one
 * after the other, until the process leaves.
 *
 * A job logs its own errors. None may be needed for a record to be settled: a job that takes its
 * time keeps the others waiting.
 */
#ifndef IDEMSINK_RUN_CHORES_H
#define IDEMSINK_RUN_CHORES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a job asks between its steps. */
struct chore_stop {
    /* True: the process leaves, come to an end. Waits for it up to so long (0: only asks). */
    bool (*asked)(void *self, int64_t wait_ms);
    void *self;
};

struct chore {
    const char *name; /* borrowed */
    int64_t first_ms; /* from the start to its first run */
    int64_t every_ms; /* from the begin of one run to the next; at least 1 */
    int64_t again_ms; /* the same behind a run that failed; 0: every_ms */
    void *ctx;        /* borrowed */
    /* False: it did not come to its end, for what it has logged. */
    bool (*run)(void *ctx, const struct chore_stop *stop);
};

struct chores;

/* Copies the jobs and starts the thread. */
struct chores *chores_start(const struct chore *jobs, size_t n);

/* Asks the running job to end and no other begins. Any thread; returns at once. */
void chores_ask_stop(struct chores *c);

/* chores_ask_stop(), and waits for the thread up to so long. False: a job does not end (a server
 * that does not answer); nothing is freed, and the caller must _exit(). NULL is fine. */
bool chores_stop(struct chores *c, int64_t wait_ms);

#endif
