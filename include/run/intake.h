/*
 * intake.h - the one thread that talks to the source: reads, offers, commits,
 * and answers for the partitions that come and go.
 *
 * It never waits for the database, for Redis or for a worker, except for a
 * bounded time inside a revoke and at the end. The source may ask the brokers
 * at an assignment (5 s at most), and with --until-end whether the group is
 * through (1 s at most, now and then).
 */
#ifndef IDEMSINK_RUN_INTAKE_H
#define IDEMSINK_RUN_INTAKE_H

#include "core/config.h"
#include "core/mapping.h"
#include "ports/source.h"
#include "run/pipeline.h"
#include "run/run_metrics.h"
#include "run/stop.h"

struct intake;

struct intake_options {
    const struct config *config;
    struct mapping *const *mappings; /* by route */
    struct pipeline *pipeline;
    struct run_metrics *metrics; /* set before intake_main() */
    struct stop *stop;
    bool until_end; /* ask for the stop once the whole group has committed up to the ends seen at
                       start */
};

/* The source is made with intake_events() and then given to intake_main() by intake_connect(). */
struct intake *intake_new(const struct intake_options *options);
void intake_free(struct intake *in);
struct source_events intake_events(struct intake *in);
void intake_connect(struct intake *in, struct source source, struct run_metrics *metrics);

/*
 * The thread's function; arg is a struct intake *. Runs until stop is asked, then drains, commits
 * and leaves the group, within worker.drain_timeout. Returns NULL.
 */
void *intake_main(void *arg);

/* Any thread: the intake has gone round within the last ms milliseconds (a drain takes its time).
 */
bool intake_alive(const struct intake *in, int64_t ms);

/* After the thread has ended: everything that was out came back, the last commit was acknowledged
 * and the group was left. Only then may the source be freed. */
bool intake_clean(const struct intake *in);

#endif
