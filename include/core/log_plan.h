/*
 * log_plan.h - a batch of operations with effects to single commands without transactions, and back
 * from their answers to one result per operation. Pure: io/mongo_log.c only carries.
 *
 *   log_plan_begin(p, ops, n, &rules);
 *   while (log_plan_next(p, now_ms, &command)) {
 *       ... carry it out; what comes back, first:
 *       log_plan_found(p, document) for each document         LOOK, CHECK, READ
 *       log_plan_number(p, last) if there is one              NUMBER, HIGHEST
 *       ... then exactly one ...
 *       log_plan_answer(p, &call, reply);
 *   }
 *   log_plan_results(p) is filled.
 *
 * The batch goes in rounds: at most max_ops and max_bytes, each event once, each entity once, and
 * of a lane nothing that adds behind something that removes.
 *
 *   LOOK    which events are stored. Closed (no _effects, or _effects.failed): a duplicate. Open:
 *           completed with what stands in its _effects, whatever was mapped now. An operation that
 *           was refused and has done nothing is begun anew: REOPEN
 *   NUMBER HIGHEST START WRITE   numbers, the events' documents, each with its _effects
 *   CLAIM ADD MARK READ DID      operations: log_plan_entity.c
 *   COUNT   each counter document once, summed, guarded by the ids of the events (not if one of
 *           them is in _applied), by the number of ids that are kept, and by until_ms: the server
 *           compares with its own clock. Fewer documents matched: CHECK reads them back: ids that
 *           are in there have been counted; MAKE makes a document that is missing
 *   FAIL    an event whose counter can't be moved (overflow, no integer there): it stays, its
 *           _effects say why, and nobody tries again
 *   REMOVE CLEAN   operations
 *   CLOSE   the events' _effects go
 *   PRUNE   ids that nobody can repeat any more go (rules.prune_ms)
 *
 * Why it is exactly once, whoever dies or sleeps wherever: docs/decisions/011-effects-stepwise.md.
 * Times are the server's, in milliseconds since 1970, never ahead of its clock.
 *
 * Without counters and operation (a sequence of mode block or max alone) there are no _effects:
 * LOOK, NUMBER or HIGHEST, WRITE.
 */
#ifndef IDEMSINK_CORE_LOG_PLAN_H
#define IDEMSINK_CORE_LOG_PLAN_H

#include "core/mapping.h"
#include "core/outcome.h"

struct log_plan;

struct log_limits {
    size_t max_ops;   /* of one round */
    size_t max_bytes; /* of one round: documents and what goes with them */
};

struct log_rules {
    const struct config_route *route; /* borrowed until the next begin */
    int64_t now_ms;                   /* the server's time, not ahead */
    int64_t attempt_ms; /* effects.attempt: until_ms is now_ms and this; the server refuses guarded
                           steps from then on */
    int64_t keep;       /* effects.keep */
    int64_t prune_ms;   /* ids older than this may go; INT64_MIN: none */
    uint64_t random;    /* for waits, and to tell attempts apart */
    bool complete_only; /* a sweep: what is not stored is not written */
};

enum log_command_kind {
    LOG_LOOK,    /* find look_filter(ops), log_look_projection() */
    LOG_NUMBER,  /* findAndModify group {$inc: {n: count}}, new; nothing there: no number */
    LOG_START,   /* insert the group's counter document, {_id: ..., n: start - 1} */
    LOG_HIGHEST, /* the highest number of ops[0]'s group in the collection */
    LOG_WRITE,   /* insert log_event_document() of each */
    LOG_REOPEN,  /* of operations that were refused, and are delivered again: _effects anew */
    LOG_CLAIM,   /* of ops that are open: _effects.until = until_ms where it is over; log_doc.h */
    LOG_ADD,     /* the entities' documents, unless they are there; guarded */
    LOG_MARK,    /* _removed_by = id, unless there is one; guarded */
    LOG_READ,  /* the entities: find look_filter(ops), where ops have the entities' filters alone */
    LOG_DID,   /* ledger: did = true */
    LOG_COUNT, /* moves, all of one collection: log_count_filter(), log_count_update() */
    LOG_CHECK, /* the same moves: log_check_filter(), log_check_projection() */
    LOG_MAKE,  /* upsert of the same, zeros; E11000 is fine */
    LOG_REMOVE, /* delete the entity where _removed_by is id; guarded */
    LOG_CLEAN,  /* unset the entity's _by where it is id; guarded */
    LOG_FAIL,   /* ops[0]: _effects.failed = text; guarded */
    LOG_CLOSE,  /* unset _effects where it has not failed; guarded */
    LOG_PRUNE,  /* moves: pull from _applied what is older than before_ms */
    LOG_WAIT    /* wait_ms; answer with CALL_FINE */
};

struct log_id {
    uint8_t bytes[EFFECT_ID_BYTES];
};
struct log_change {
    const char *field;
    int64_t by;
};
/* A counter document and what it gets. */
struct log_move {
    const char *ns; /* "database.collection" */
    const bson_t *filter;
    const struct log_change *changes;
    size_t n_changes;
    const struct log_id *ids;
    size_t n_ids;
    bool make;   /* when it is not there */
    bool forced; /* however many ids there are */
};

/* An entity and what becomes of it. */
struct log_entity {
    const bson_t *filter;
    const bson_t *document; /* ADD */
    struct log_id id;       /* of the event */
};

struct log_command {
    enum log_command_kind kind;
    const struct write_op *const *ops; /* n of them; valid until the answer */
    size_t n;
    const struct log_entity *entities; /* ADD, MARK, REMOVE, CLEAN: n_entities */
    size_t n_entities;
    const int64_t *numbers; /* WRITE, of a route with a sequence: n */
    bool ordered;           /* WRITE */
    const bson_t *group;    /* NUMBER, START, HIGHEST: {_id: {...}} */
    int64_t count;          /* NUMBER */
    const struct log_move *moves;
    size_t n_moves;
    size_t keep;      /* COUNT: not where this many ids are, unless forced */
    int64_t at_ms;    /* WRITE: _effects.at; COUNT: of its ids; FAIL of an operation: its attempt is
                         over */
    int64_t until_ms; /* of what is guarded; FAIL, DID, REMOVE and CLEAN have LOG_MARGIN_MS more */
    int64_t try_id;   /* WRITE, CLAIM: _effects.try */
    int64_t before_ms; /* PRUNE */
    const char *text;  /* FAIL */
    int64_t wait_ms;
};

struct log_plan *log_plan_new(const struct log_limits *limits); /* reused from batch to batch */
void log_plan_free(struct log_plan *p);                         /* NULL is fine */

/* ops stay borrowed. */
void log_plan_begin(struct log_plan *p, const struct write_op *ops, size_t n,
                    const struct log_rules *rules);
bool log_plan_next(struct log_plan *p, int64_t now_ms, struct log_command *command);

void log_plan_found(struct log_plan *p, const bson_t *document);
void log_plan_number(struct log_plan *p, int64_t last);
/* reply: of a write, as the server or libmongoc's bulk gives it; else NULL. */
void log_plan_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply);

/* The time is up: what has no result yet gets LATER with this class. Between an answer and the next
 * log_plan_next(). */
void log_plan_stop(struct log_plan *p, enum retry_class retry);

/* n results: INSERTED (also of an event that was completed), DUPLICATE, LATER, UNKNOWN or NEVER.
 * The plan owns them until the next begin. */
const struct outcome *log_plan_results(const struct log_plan *p);

/* Of this batch, for metrics, mirrors and tests. */
struct log_done {
    uint64_t added, removed; /* entities */
    uint64_t missing;        /* counter documents that were not there, upsert = false */
    uint64_t failed;         /* events whose effects can't be done */
    uint64_t completed;      /* events that were found open */
    uint64_t full;           /* counter documents that had more than keep ids */
    const char *failed_text; /* of the last of those; NULL: none */
};
struct log_done log_plan_done(const struct log_plan *p);

#endif
