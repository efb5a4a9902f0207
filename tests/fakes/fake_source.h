/*
 * fake_source.h - the source port over a fake log, in a restless consumer group.
 *
 * Every few milliseconds it rebalances: eagerly (all partitions are revoked), cooperatively (some
 * are), or by losing some: then another process has owned them for a while before this one is told.
 * What is not ours lies idle or is worked on by another process, which starts at the committed
 * offset, may go away without committing, and knows nothing of what our late workers still do.
 * What comes back is delivered again from the committed offset.
 *
 * Commits go to the fake sink, which checks them. Some answers are lost; those of partitions
 * that another process owns already are refused.
 */
#ifndef IDEMSINK_TESTS_FAKE_SOURCE_H
#define IDEMSINK_TESTS_FAKE_SOURCE_H

#include "fakes/fake_sink.h"
#include "ports/source.h"

struct fake_source;

struct fake_source_options {
    struct fake_log *log;
    struct fake_sink *sink;
    struct source_events events;
    struct dice dice;
    uint32_t rebalance_us; /* on average; 0: everything is assigned at the first poll, for good */
};

struct fake_source_stats {
    uint64_t delivered, applied_by_others;
    uint64_t eager, cooperative, lost; /* rebalances */
};

struct fake_source *fake_source_new(const struct fake_source_options *options);
void fake_source_free(struct fake_source *s);
struct source fake_source_port(struct fake_source *s);

/* Any thread: from the next poll on nothing is appended, and all partitions are and stay ours. */
void fake_source_calm(struct fake_source *s);

/* Intake thread: calm, and committed up to the end of every partition. */
bool fake_source_finished(struct fake_source *s);

/* After the intake thread has ended. */
struct fake_source_stats fake_source_stats(const struct fake_source *s);

#endif
