/*
 * txn_plan.h - a batch of operations with effects to transactions, and back from their answers to
 * one result per operation. Pure: io/mongo_txn.c only carries.
 *
 *   txn_plan_begin(p, ops, n, &rules);
 *   while (txn_plan_next(p, now_ms, &command))
 *       ... carry it out, then exactly one of ...
 *       txn_plan_found(p, document) for each document, then txn_plan_answer(p, &call, NULL)
 *                                                             LOOK, STATE, CHECK
 *       txn_plan_number(p, last), then txn_plan_answer(...)          NUMBER
 *       txn_plan_answer(p, &call, reply)                             all others
 *   txn_plan_results(p) is filled.
 *
 * One chunk of the batch (at most max_ops and max_bytes, in the order given) is one transaction:
 *
 *   LOOK     which events are stored: duplicates (outside of it, majority)
 *   BEGIN    waits in the process for others on the same counters and groups, then starts
 *   FENCE    lock's numbers; a larger one there: somebody holds the lock now
 *   STATE    which entities are there; core/entity.h decides what each event does
 *   COUNT    one command per [[route.counter]]: summed per counter document, in canonical order
 *   CHECK    reads which of them hold a double or a decimal in a field that was moved
 *   NUMBER   one command per group, in canonical order
 *   EVENTS   the ledger's documents
 *   INSERT   DELETE REPLACE   the documents
 *   COMMIT
 *
 * Counters and numbers come first: two transactions on one counter document exclude each other, and
 * the loser has lost one small command (WriteConflict comes at once, measured on 6.0.5).
 *
 * What it decides (design and measurements: docs/decisions/010-effects-atomic.md):
 * - Operations of one event are folded: the first is written, the others are duplicates, as in
 *   plan.h. As there are lanes (what stands behind one that failed for now gets LATER), `alone`
 *   and conflicts.
 * - Conflicts: the ledger's document has the hash of op->document under conflict_field, like an
 *   event that is its own document; removing events have none. What is there as an insert and comes
 *   as a delete, or the other way round, is a conflict too (`op` of the ledger).
 * - An error of one operation aborts the transaction (E11000 inside of one does, measured): E11000
 *   is judged by a LOOK (for it and what stands behind it: one redelivered elsewhere is seldom
 *   alone): there = DUPLICATE; twice not there = NEVER unique_conflict; others as core/outcome.h
 *   says. Then what stands before it in the chunk is committed without what stands behind, which
 *   comes next: each operation is written at most twice, whoever is bad.
 * - E11000 on the index of a sequence's number (core/sequence_taken.h): mode max: somebody else
 * took it: the chunk again after a wait. Else the group's counter is behind what the collection
 * holds, which is no event's fault: LATER (RETRY_CONFIG) for those of the group from there on, with
 * a text for the operator; the others without them. On the index of its text: as any other E11000.
 * - All modes of a sequence are numbered inside the transaction here, so that block has no holes
 *   either. Duplicates and events that change nothing take no number; what adds its entity does,
 *   though a later event of the chunk removes it.
 * - COUNT or NUMBER refused, or found by CHECK ($inc leaves a double a double, which counts exactly
 *   up to 2^53 only; in the filter of COUNT the same costs four times as much, measured): those who
 * move that document (or are of that group) go alone, one per transaction; who is refused alone is
 * NEVER, the text names the collection. A chunk is cut where the sum of the amounts of one document
 * could pass int64.
 * - FENCE refused: LATER (RETRY_LOCK) for the operations of that fence; the others without them.
 * - TransientTransactionError and conflicts: ABORT, WAIT (random, doubling), the chunk again,
 *   until the deadline; then LATER (RETRY_CONFLICT) for all that is left. Every fourth in a row
 *   halves the chunk (a cache that is full says WriteConflict, too), as a refusal of a whole
 *   command does that no operation is named for.
 * - COMMIT without an answer (UnknownTransactionCommitResult, network, write concern): again after
 *   a wait, until the deadline, then UNKNOWN for the chunk: the next delivery's LOOK tells. Does a
 *   later one say that nothing was committed, the chunk is looked up again before it is repeated.
 * - Network, no primary, rights, configuration: ends the batch: LATER for all that is left, since
 *   nothing of it is committed.
 *
 * What the answers are (io/mongo_txn.c): the server's own reply to the one command that a
 * txn_command is, with its writeErrors; labels from its errorLabels, and TRANSIENT for what failed
 * on the network before COMMIT.
 * - BEGIN: no place at the gate in time: CALL_SERVER, 112, TRANSIENT. Nothing was begun.
 * - LOOK in the ledger: the projection has `op` beside look_projection()'s.
 * - FENCE: {update} with upsert, of different fences: 11000 at index i: a larger number is there.
 * - COUNT: n below n_moves with upsert = false: some are not there (txn_done.moves_missing).
 * - NUMBER: refused (2, 14, 241 or another code of the server): no number of this group can be
 *   given: overflow, or what stands there is none. No txn_plan_number() then.
 * - NUMBER: `last` is what n becomes, start - 1 + count where nothing stands; max: the highest that
 *   is there + count. The plan hands them out in the order of the operations.
 * - REPLACE: {delete}, then {insert}: the reply of the insert; of the delete when that failed.
 * - ABORT: also behind a BEGIN that failed, and behind a COMMIT that said that nothing was
 *   committed; only the gate is given back then. Behind a COMMIT that nobody knows the end of there
 *   is none: the end of the batch gives the gate back.
 */
#ifndef IDEMSINK_CORE_TXN_PLAN_H
#define IDEMSINK_CORE_TXN_PLAN_H

#include "core/mapping.h"
#include "core/outcome.h"

struct txn_plan;

struct txn_limits {
    size_t max_ops;   /* of one transaction */
    size_t max_bytes; /* of one transaction: documents and what goes with them; 12 MiB leaves room
                         in an oplog entry of 16 MB (before 4.2 there was one for all) */
};

struct txn_rules {
    const struct config_route *route; /* borrowed until the next begin */
    int64_t deadline_ms;              /* nothing is begun after it */
    uint32_t random;                  /* for waits */
};

enum txn_command_kind {
    TXN_LOOK,
    TXN_BEGIN,
    TXN_FENCE,
    TXN_STATE,
    TXN_COUNT,
    TXN_CHECK,
    TXN_NUMBER,
    TXN_EVENTS,
    TXN_INSERT,
    TXN_DELETE,
    TXN_REPLACE,
    TXN_COMMIT,
    TXN_ABORT, /* its answer is not looked at */
    TXN_WAIT   /* wait_ms; answer with CALL_FINE */
};

/* A counter document and what it gets; by: as many as its counter has inc fields. */
struct txn_move {
    const bson_t *filter;
    const int64_t *by;
};

struct txn_command {
    enum txn_command_kind kind;
    /* n of them, valid until the answer. LOOK, STATE, CHECK: look_filter(ops), look_projection() of
     * their filter (for STATE and CHECK these are no events: their filters are those of entities
     * and counter documents, and there is nothing else). FENCE: one per fence. DELETE, REPLACE: by
     * effects.entity. EVENTS, INSERT, REPLACE: their documents. */
    const struct write_op *const *ops;
    size_t n;
    bool events;            /* LOOK: in the ledger, else in the route's collection */
    const int64_t *numbers; /* INSERT, REPLACE of a route with a sequence: n of them */
    const bool *did;        /* EVENTS: n, whether something was added or removed */
    uint32_t counter;       /* COUNT, CHECK: which; COUNT: n_moves documents */
    const struct txn_move *moves;
    size_t n_moves;
    const bson_t *group; /* NUMBER: {_id: ...}, and how many numbers */
    int64_t count;
    const uint64_t *keys; /* BEGIN: hashes of counter documents and groups, sorted, different */
    size_t n_keys;
    int64_t wait_ms;
};

struct txn_plan *txn_plan_new(const struct txn_limits *limits); /* reused from batch to batch */
void txn_plan_free(struct txn_plan *p);                         /* NULL is fine */

void txn_plan_begin(struct txn_plan *p, const struct write_op *ops, size_t n,
                    const struct txn_rules *rules);
bool txn_plan_next(struct txn_plan *p, int64_t now_ms, struct txn_command *command);

void txn_plan_found(struct txn_plan *p, const bson_t *document); /* LOOK, STATE, CHECK: each one */
void txn_plan_number(struct txn_plan *p, int64_t last); /* NUMBER: the last of the count numbers */

/* What the labels of the reply say, beside the call. */
enum txn_label { TXN_LABEL_NONE, TXN_LABEL_TRANSIENT, TXN_LABEL_UNKNOWN_COMMIT };
struct txn_call {
    struct outcome_call call;
    enum txn_label label;
};
void txn_plan_answer(struct txn_plan *p, const struct txn_call *call, const bson_t *reply);

/* n results: INSERTED, DUPLICATE, LATER, UNKNOWN or NEVER. The plan owns them until the next begin.
 */
const struct outcome *txn_plan_results(const struct txn_plan *p);

/* Of what has been committed in this batch, for metrics, mirrors and tests. */
struct txn_done {
    uint64_t added, removed; /* entities */
    uint64_t moves_missing;  /* counter documents that were not there, upsert = false */
    uint64_t transactions, conflicts;
};
struct txn_done txn_plan_done(const struct txn_plan *p);

#endif
