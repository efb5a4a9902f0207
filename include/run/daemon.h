/*
 * daemon.h - starts the threads in order and stops them in order; decides
 * nothing else.
 *
 * Threads: the caller's (main: waits for signals), intake, N workers, notifier;
 * the HTTP server's belongs to io. All leaf locks, so there is no lock order.
 */
#ifndef IDEMSINK_RUN_DAEMON_H
#define IDEMSINK_RUN_DAEMON_H

#include "core/config.h"
#include "run/intake.h"
#include "run/worker.h"

struct daemon;

struct daemon_parts {
    struct intake *intake;        /* connected */
    struct worker_shared *shared; /* with everything in it */
};

/* Starts the workers and the intake. The parts stay borrowed. */
struct daemon *daemon_start(const struct daemon_parts *parts);

/*
 * After stop was asked: waits for the intake (which drains, commits and leaves the group), then
 * ends the workers and joins everything. Bounded by worker.drain_timeout and, when records are
 * stuck with a worker, not possible: false, and the caller must _exit() without freeing anything.
 */
bool daemon_stop(struct daemon *d);

#endif
