/*
 * tracker.h - how far each partition may be committed.
 *
 * A slot is one topic and partition. Offsets enter in the order they were read,
 * with gaps (compaction and transaction markers leave them), and settle in any
 * order. The watermark is the lowest offset that is not settled, or one past
 * the last read when all are; with nothing pending it moves on to the offset at
 * which the end of the partition was seen, so that trailing transaction markers
 * don't stay as lag. Only delivered offsets exist: a gap is never waited for.
 *
 * Epochs. A worker may still be busy with a record when its partition is taken
 * away, and the same partition may come back before that worker is done:
 *
 *   1. offset 7 is read, a worker starts on it
 *   2. the partition is revoked, the drain deadline passes, 7 is not settled
 *   3. the partition is assigned again, from the committed 7: read once more
 *   4. the worker of step 1 settles its 7
 *
 * Step 4 must not settle the 7 of step 3. So every assign and every revoke
 * starts a new epoch of the slot, records carry the epoch they were read in,
 * and anything that comes late is ignored.
 *
 * Plain data: no thread, no lock, no clock. All calls O(1) amortised; 16 bytes
 * for each record between the watermark and the position.
 */
#ifndef IDEMSINK_CORE_TRACKER_H
#define IDEMSINK_CORE_TRACKER_H

#include "base/err.h"
#include "core/record.h"

struct tracker;

struct tracker *tracker_new(void);
void tracker_free(struct tracker *t);

/* next_offset: where reading starts (the committed offset), or -1 when unknown: then the watermark
 * is -1 until the first record or end comes. Assigning an assigned slot starts a new epoch too. */
void tracker_assign(struct tracker *t, uint32_t slot, int64_t next_offset);
void tracker_revoke(struct tracker *t, uint32_t slot);
bool tracker_assigned(const struct tracker *t, uint32_t slot);

/*
 * Enters r's offset and stamps r's epoch and seq. False, and nothing is changed, when the slot is
 * not assigned or the offset is not above all that were read, or seen as the end, before in this
 * epoch (the log was rewritten under us: a topic deleted and created again). The first record of an
 * epoch may lie below next_offset: the committed offset did not exist any more and the broker
 * said where to go on. Refusing it would stop every later start at the same place, and a
 * watermark that stayed above it would pass what is not settled.
 */
bool tracker_begin(struct tracker *t, struct record *r) MUST_CHECK;

/* The end of the partition was seen at this offset (one past the last thing in the log). Smaller
 * values than the position are ignored. */
void tracker_end(struct tracker *t, uint32_t slot, int64_t end_offset);

/* Is r still of the epoch in force? A record that is not must not be tried again. */
bool tracker_current(const struct tracker *t, const struct record *r);

/* r is finished for good. Returns false, and changes nothing, when r is late. Settling a record
 * twice in its epoch is a broken promise and aborts. */
bool tracker_settle(struct tracker *t, const struct record *r);

/* The offset to commit: the next one to read after a restart. -1: unknown, commit nothing. Never
 * falls within one epoch, but for a first record below next_offset. After tracker_revoke(): -1. */
int64_t tracker_watermark(const struct tracker *t, uint32_t slot);

/* Where reading goes on: one past the last offset read, or the end that was seen, or where reading
 * starts; -1 when unknown. */
int64_t tracker_position(const struct tracker *t, uint32_t slot);

/* Read, and not settled. */
size_t tracker_pending(const struct tracker *t, uint32_t slot);

/* Records from the watermark to the position, settled or not: what a crash now would repeat, and
 * what the tracker remembers. tracker_window_total(): of all slots. */
size_t tracker_window(const struct tracker *t, uint32_t slot);
size_t tracker_window_total(const struct tracker *t);

/* offered_at_ms of the record that holds the watermark; 0 when none is pending. */
int64_t tracker_oldest_at_ms(const struct tracker *t, uint32_t slot);

uint32_t tracker_epoch(const struct tracker *t, uint32_t slot);

#endif
