/*
 * fake_sink.h - a database that keeps the truth and looks at who writes what.
 *
 * It aborts the test, with a sentence, when
 *   - two workers of the process are in one lane at once,
 *   - records of a lane are not adjacent and rising in a batch,
 *   - a record is applied before the one before it in its lane was,
 *   - a dedup key is stored with another content than that of its first record,
 *   - an offset is committed past a record that is not done, or led back.
 *
 * "Applied" is what the lane waits for; "done" is what the offset waits for: stored and told about,
 * or dead-lettered. Any thread.
 */
#ifndef IDEMSINK_TESTS_FAKE_SINK_H
#define IDEMSINK_TESTS_FAKE_SINK_H

#include "fakes/fake_log.h"

struct fake_sink;

struct fake_sink_options {
    const struct fake_log *log;
    unsigned fail_batch, fail_record; /* permille: for now, outcome unknown */
    unsigned max_delay_us;
    /* By way of fake_planned.h: what a look-up or a fold settles is never executed, so its lane may
     * go on as soon as its document is there. */
    bool planned;
};

enum fake_fate { FAKE_INSERTED, FAKE_DUPLICATE, FAKE_LATER, FAKE_NEVER };

struct fake_sink *fake_sink_new(const struct fake_sink_options *options);
void fake_sink_free(struct fake_sink *s);

/* A worker writes a batch. LATER: r failed for now, or stands behind such a one in its lane; it may
 * have been applied all the same (the answer was lost). */
void fake_sink_write(struct fake_sink *s, struct dice *dice, int worker,
                     struct record *const *records, size_t n, enum fake_fate *fates);

/* The same in steps, for a writer that asks in its own way (fake_planned.c). */
void fake_sink_enter(struct fake_sink *s, int worker, struct record *const *records, size_t n);
void fake_sink_leave(struct fake_sink *s, struct record *const *records, size_t n);
/* One operation, as a server executes it: INSERTED, DUPLICATE, or NEVER. */
enum fake_fate fake_sink_execute(struct fake_sink *s, const struct record *r);
/* Is a document with r's dedup key there? */
bool fake_sink_has(struct fake_sink *s, const struct record *r);
/* r is told to be a duplicate: its lane may go on. */
void fake_sink_known(struct fake_sink *s, const struct record *r);

/* Another process applies this entry, and is done with it. */
void fake_sink_other(struct fake_sink *s, uint32_t partition, uint32_t index);

/* The process is about to settle r. */
void fake_sink_done(struct fake_sink *s, const struct record *r);

/* The group's committed offset of this partition moves. */
void fake_sink_commit(struct fake_sink *s, uint32_t partition, int64_t offset);
int64_t fake_sink_committed(struct fake_sink *s, uint32_t partition);

/* Is every entry of the log done? */
void fake_sink_check_all_done(struct fake_sink *s);

#endif
