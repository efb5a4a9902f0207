/*
 * repair.h - one counter document against its truth, exactly, while workers move it; and the set
 * that loses no increment. Pure: io/mongo_repair.c only carries.
 *
 *   repair_begin(r, key)
 *   while ((step = repair_next(r, &source)) != REPAIR_END)
 *       ... carry it out: hand over what it finds, then repair_answer() ...
 *   repair_result(r)
 *
 * SNAPSHOT (a replica set): all is read in one snapshot transaction. What a worker commits behind
 * the snapshot conflicts with our set of the same document; then once more. Until then no effect of
 * it is in what was counted nor in the counter.
 *
 * COMPARE (a standalone): nothing reads two collections at one moment, so the order does it:
 *   READ   the counter: its numbers, _version, and the ids in _applied
 *   OPEN   routes with an operation: events that are open and move this counter
 *   COUNT  the documents: those that are closed, and apart those that are open
 *   OPEN   again: has another one been opened meanwhile?
 *   SET    where the numbers and _version are as they were READ (LOOK: the same without a set)
 * If SET matches, nothing was applied between READ and SET (each application adds to _version). So
 * a document that was closed when it was COUNTed had been applied before READ (it is closed behind
 * its application); one that was open had been if its id is in what was READ (ids of open ones are
 * not pruned); one that came later had not, and will be applied on top of what is SET. In an order
 * other than this one an increment is counted twice or lost: tests/model/test_repair.c runs through
 * all interleavings.
 */
#ifndef IDEMSINK_CORE_REPAIR_H
#define IDEMSINK_CORE_REPAIR_H

#include "core/reconcile.h"

enum repair_way { REPAIR_SNAPSHOT, REPAIR_COMPARE };

enum repair_step {
    REPAIR_BEGIN, /* a snapshot transaction */
    REPAIR_READ,  /* the counter document by repair_key(): repair_counter() */
    REPAIR_OPEN,  /* by repair_open_filter() in the ledger of the source's route: repair_opened() */
    REPAIR_COUNT, /* by repair_pipeline() in the source's collection: repair_counted() */
    REPAIR_SET,   /* an update with repair_filter() and repair_update(), an upsert when
                     repair_makes(); answered MISSED when it changed nothing */
    REPAIR_LOOK,  /* is there a document by repair_filter()? MISSED: no (repair_makes(): yes) */
    REPAIR_COMMIT, /* MISSED: aborted, or nobody knows */
    REPAIR_ABORT,
    REPAIR_WAIT, /* a little; others are at it */
    REPAIR_END
};

enum repair_answer {
    REPAIR_DONE,
    REPAIR_MISSED /* it was in the way of somebody else: begin again */
};

enum repair_end {
    REPAIR_SAME,
    REPAIR_DIFFERS, /* and was only looked at */
    REPAIR_REPAIRED,
    REPAIR_UNSETTLED, /* others were always faster */
    REPAIR_TOO_LARGE  /* the truth of a column does not fit into an int64; nothing was set */
};

struct repair;

/* All stays borrowed. apply: set what differs. wall_ms: of a mirrored counter that is repaired the
 * version is this at least, so that it is above what Redis has of an earlier document, too. */
struct repair *repair_new(const struct reconcile_family *f, const struct config *config,
                          enum repair_way way, bool apply, int64_t wall_ms);
void repair_free(struct repair *r); /* NULL is fine */

/* key: canonical, of reconcile_group() or reconcile_counter_key(); copied. */
void repair_begin(struct repair *r, const bson_t *key);
enum repair_step repair_next(struct repair *r, size_t *source);
void repair_answer(struct repair *r, enum repair_answer answer);

void repair_counter(struct repair *r, const bson_t *document); /* READ: when it is there */
void repair_opened(struct repair *r, const bson_t *event);     /* OPEN: each one's _id */
void repair_counted(struct repair *r, size_t source, const bson_t *group); /* COUNT: each result */

/* Appended to empty documents. */
void repair_key(const struct repair *r, bson_t *filter);
void repair_open_filter(const struct repair *r, size_t source, bson_t *filter);
void repair_pipeline(const struct repair *r, size_t source, bson_t *out);
bool repair_makes(const struct repair *r);
void repair_filter(const struct repair *r, bson_t *filter);
void repair_update(const struct repair *r, bson_t *update);

/* What was found, one for each column of the family. Valid until the next begin. */
struct repair_column {
    enum reconcile_difference difference;
    int64_t counted;
    bool too_large; /* what was counted does not fit */
    struct reconcile_value stored;
};
enum repair_end repair_result(const struct repair *r, const struct repair_column **columns);
bool repair_found_document(const struct repair *r); /* the counter document was there */

/* --- for reconcile.c and repair.c --- */
void reconcile_add_sum(const struct reconcile_source *s, size_t i, const char *name, bson_t *group);
/* fits: which of them are an int64; the others are 0. False: not all. */
bool reconcile_sums(const struct reconcile_source *s, const bson_t *group, int64_t *sums,
                    bool *fits);

#endif
