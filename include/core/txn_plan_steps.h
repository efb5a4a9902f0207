/*
 * txn_plan_steps.h - the plan itself and its steps, for the files of txn_plan: what comes next
 * (txn_plan_gather.c), the commands (txn_plan_command.c), what reads tell (txn_plan_read.c), the
 * rest (txn_plan.c).
 */
#ifndef IDEMSINK_CORE_TXN_PLAN_STEPS_H
#define IDEMSINK_CORE_TXN_PLAN_STEPS_H

#include "core/txn_plan_private.h"

enum txn_step {
    TXN_STEP_IDLE, /* between transactions */
    TXN_STEP_BEGIN,
    TXN_STEP_FENCE,
    TXN_STEP_STATE,
    TXN_STEP_COUNT,
    TXN_STEP_CHECK,
    TXN_STEP_NUMBER,
    TXN_STEP_EVENTS,
    TXN_STEP_INSERT,
    TXN_STEP_DELETE,
    TXN_STEP_REPLACE,
    TXN_STEP_COMMIT,
    TXN_STEP_COMMIT_WAIT, /* it has not been answered */
    TXN_STEP_ABORT,
    TXN_STEP_WAIT
};

struct txn_plan {
    struct txn_limits limits;
    struct txn_rules rules;
    struct txn_batch batch;
    struct txn_chunk chunk;
    enum txn_step step, after; /* after: behind ABORT */
    size_t cursor;             /* in a step of several commands */

    /* The command that is out. what: of each of its operations, the item (LOOK), entity (STATE),
     * fence, doc (COUNT, CHECK) or member. */
    bool out, is_look, strange;
    size_t n, cap;
    uint32_t *what;
    const struct write_op **ops;
    struct write_op *entities; /* for STATE, CHECK */
    size_t checked;            /* documents of the counter that CHECK is at */
    bool check_alone;          /* each by itself: a read of many could not tell */
    int64_t *numbers;
    bool *did, *found;
    struct txn_move *moves;
    size_t cap_moves;
    struct look *look;

    size_t split_limit; /* most members of the next chunk */
    size_t part_end;    /* the next chunk ends before this item: known to be good so far */
    unsigned in_row;    /* conflicts since the last commit */
    unsigned lone_failures;
    uint32_t stamp, random;
    bool numbered;    /* NUMBER was answered with one */
    bool asked_again; /* a COMMIT of this transaction was not answered */
    bool ends;        /* behind ABORT the batch ends, with: */
    struct outcome end;
    uint64_t missing; /* of this transaction */
    struct txn_done done;
};

/* Fills the chunk with what comes next, and tells what is known. False: nothing is left. */
bool txn_gather(struct txn_plan *p);
/* The next command of p->step; false: it has none, or no more. */
bool txn_command_fill(struct txn_plan *p, struct txn_command *command);
void txn_command_look(struct txn_plan *p, struct txn_command *command);
/* The answer to a LOOK or STATE is complete, or failed. */
void txn_looked(struct txn_plan *p, const struct txn_call *call);
void txn_state_known(struct txn_plan *p);

#endif
