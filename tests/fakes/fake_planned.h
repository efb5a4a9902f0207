/*
 * fake_planned.h - fake_sink.h behind the real plan: batches become commands, a model of the server
 * answers them with faults of every kind, and the plan makes one fate per record of it.
 *
 * One per worker thread. Half of the records that can never be stored are refused with a code that
 * nobody knows, as others are for a while; only the former may be given up. Some repetitions of a
 * dedup key carry another payload.
 */
#ifndef IDEMSINK_TESTS_FAKE_PLANNED_H
#define IDEMSINK_TESTS_FAKE_PLANNED_H

#include "core/plan.h"
#include "fakes/fake_sink.h"

struct fake_planned;

struct fake_planned_options {
    struct fake_sink *sink; /* made with planned */
    const struct fake_log *log;
    enum config_write write[FAKE_ROUTES];
    enum config_conflict conflict[FAKE_ROUTES];
    unsigned trouble; /* permille: of each command, and of each operation */
};

struct fake_planned *fake_planned_new(const struct fake_planned_options *options);
void fake_planned_free(struct fake_planned *f);

/* As fake_sink_write(); checks that what is told about other payloads is so. */
void fake_planned_write(struct fake_planned *f, struct dice *dice, int worker,
                        struct record *const *records, size_t n, enum fake_fate *fates);

struct fake_planned_stats {
    uint64_t commands, looks, conflicts, given_up;
};
struct fake_planned_stats fake_planned_stats(const struct fake_planned *f);

#endif
