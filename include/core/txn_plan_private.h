/*
 * txn_plan_private.h - what the files of txn_plan share: the operations of a batch and what is
 * known of each (txn_plan_batch.c), the chunk that is one transaction (txn_plan_chunk.c), what an
 * answer says (txn_plan_judge.c), bytes as small numbers (txn_plan_names.c). The plan itself is in
 * txn_plan_steps.h.
 */
#ifndef IDEMSINK_CORE_TXN_PLAN_PRIVATE_H
#define IDEMSINK_CORE_TXN_PLAN_PRIVATE_H

#include "core/canonical.h"
#include "core/entity.h"
#include "core/sequence_taken.h"
#include "core/txn_plan.h"

#define TXN_NONE UINT32_MAX

/* --- names: equal bytes of one tag get one number, counted from 0 --- */

struct txn_name {
    uint64_t tag;
    const void *bytes; /* borrowed */
    size_t len;
};
struct txn_names {
    struct txn_name *list;
    uint32_t *slots; /* open addressing; number + 1, 0 empty */
    size_t n, cap, n_slots;
};
void txn_names_reset(struct txn_names *t, size_t most); /* room for so many */
void txn_names_clear(struct txn_names *t);
uint32_t txn_names_find(const struct txn_names *t, struct txn_name name); /* or TXN_NONE */
uint32_t txn_names_add(struct txn_names *t, struct txn_name name);
struct txn_name txn_name_of(uint64_t tag, const bson_t *document);
int txn_name_compare(const struct txn_name *a, const struct txn_name *b); /* the canonical order */

/* --- the batch --- */

enum txn_item_state {
    TXN_ITEM_WAITING,
    TXN_ITEM_TAKEN, /* in the chunk */
    TXN_ITEM_DONE   /* its result is final */
};

struct txn_item {
    enum txn_item_state state;
    uint32_t lane;    /* TXN_NONE: none */
    uint32_t leader;  /* the first of the same event; itself when it is that one */
    uint32_t heir;    /* of a leader that can never be written: the next that is tried; 0: none */
    bool alone;       /* a chunk of its own, behind the others */
    bool look;        /* is to be looked up */
    bool look_alone;  /* a look of many could not tell */
    bool refused;     /* E11000: that is why it is looked up; results has the server's text */
    unsigned in_vain; /* how often it was refused and not there */
    /* Known, and told when its lane gets there: */
    bool present; /* the event is there */
    bool never;   /* results has why */
    /* What the stored one says of its payload: */
    bool has_hash, has_action;
    enum effect_action action;
    uint8_t hash[CANONICAL_HASH_BYTES];
};

struct txn_lane {
    uint32_t in;       /* stamp: a member is in the chunk being gathered */
    uint32_t held;     /* stamp: an earlier member is not, so no later one may be */
    size_t blocked_at; /* the first member that failed for now; SIZE_MAX */
    enum retry_class why;
    int code;
};

struct txn_batch {
    const struct write_op *ops;
    size_t n, cap;
    const struct config_route *route;
    struct txn_item *items;
    struct outcome *results;
    struct txn_lane *lanes;
    struct txn_names names;
    uint32_t *first; /* per name, while folding */
    size_t from;     /* all before it are done */
    size_t looking;  /* how many are to be looked up */
    bool stored_some;
};

void txn_batch_begin(struct txn_batch *b, const struct write_op *ops, size_t n,
                     const struct config_route *route);
void txn_batch_clear(struct txn_batch *b);
/* The result of i; takes o's text. */
void txn_batch_done(struct txn_batch *b, size_t i, struct outcome o);
/* i can never be written; its lane tells. Takes o's text. */
void txn_batch_never(struct txn_batch *b, size_t i, struct outcome o);
/* E11000 for i. Takes o's text. */
void txn_batch_refused(struct txn_batch *b, size_t i, struct outcome o);
void txn_batch_look(struct txn_batch *b, size_t i);
void txn_batch_found(struct txn_batch *b, size_t i, const bson_t *document);
void txn_batch_not_found(struct txn_batch *b, size_t i);
/* Whose result i will share; i itself when it has to be tried. */
size_t txn_batch_leader(struct txn_batch *b, size_t i);
bool txn_batch_is_blocked(const struct txn_batch *b, size_t i);
/* The result of one that is known, present or never. */
void txn_batch_tell(struct txn_batch *b, size_t i, size_t leader);
/* LATER for all that is left, unless it is known. */
void txn_batch_give_up(struct txn_batch *b, enum retry_class retry, int code);

/* --- the chunk --- */

struct txn_chunk {
    const struct config_route *route;
    const struct write_op *ops; /* the batch's */
    uint32_t *items;            /* n members: indexes into the batch, rising */
    size_t n, cap, bytes;

    struct txn_names docs, groups, entities, fences; /* docs: the tag is the counter */
    size_t cap_sums;
    uint32_t *doc_of;                          /* per member and counter of the route */
    uint32_t *group_of, *entity_of, *fence_of; /* per member; TXN_NONE */
    uint32_t *first_of_group, *first_of_fence; /* members */
    bson_t **filters;                          /* per doc */
    uint32_t *order; /* room for the numbers of docs, groups or fences in canonical order */

    size_t fields;   /* most inc fields of a counter */
    uint64_t *reach; /* per doc and field: the sum of the amounts without their signs */
    int64_t *sums;   /* per doc and field: what moves */
    bool *moved;     /* per doc */
    size_t n_order;
    int64_t *count; /* per group: how many numbers */
    int64_t *next;  /* per group: the next that is handed out */

    bool *there, *asked, *ask_alone; /* per entity */
    struct entity_event *events;     /* per member */
    enum entity_step *steps;         /* per member */
    struct entity_end *ends;         /* per entity; last: a member */
    int64_t *numbers;                /* per member that takes one */
    uint64_t *keys;                  /* of the gate */
};

void txn_chunk_clear(struct txn_chunk *c);
/* Empty, with room for `most` members. */
void txn_chunk_begin(struct txn_chunk *c, const struct txn_batch *b, size_t most);
/* Would the amounts of its counters stay within int64 with this one? An empty chunk takes all. */
bool txn_chunk_fits(const struct txn_chunk *c, const struct write_op *op);
size_t txn_chunk_bytes_of(const struct write_op *op); /* what it adds to the transaction */
void txn_chunk_add(struct txn_chunk *c, size_t item);

size_t txn_chunk_keys(struct txn_chunk *c); /* how many c->keys */
/* What is there is known (or nothing has to be): which member moves what. */
void txn_chunk_fold(struct txn_chunk *c);
/* Does the member add its document, remove an entity or nothing? STORE adds. */
enum entity_step txn_chunk_step(const struct txn_chunk *c, size_t member);
/* Numbers of docs of a counter that move, groups that need numbers, fences, into c->order, sorted.
 */
void txn_chunk_docs(struct txn_chunk *c, uint32_t counter);
void txn_chunk_groups(struct txn_chunk *c);
void txn_chunk_fences(struct txn_chunk *c);
/* The last of the group's numbers is known. False: it can't be. */
bool txn_chunk_number(struct txn_chunk *c, uint32_t group, int64_t last);
void txn_chunk_hand_out(struct txn_chunk *c); /* all groups' are known: fills c->numbers */
bool txn_chunk_moves(const struct txn_chunk *c, size_t member, uint32_t doc); /* does it move it? */

/* --- answers --- */

enum txn_says {
    TXN_SAYS_DONE,
    TXN_SAYS_ONE,      /* of the operation `at`: outcome is LOOK, NEVER, or UNKNOWN in doubt */
    TXN_SAYS_CONFLICT, /* the transaction is gone; it may pass the next time */
    TXN_SAYS_SPLIT,    /* refused as a whole because of some member: outcome */
    TXN_SAYS_END       /* failed as a whole: outcome's class */
};
struct txn_verdict {
    enum txn_says says;
    size_t at;
    int64_t n;                 /* of the reply; -1: it has none */
    enum sequence_taken taken; /* ONE, LOOK */
    struct outcome outcome;    /* text is the caller's */
};
/* n: how many operations the command had. */
struct txn_verdict txn_judge(const struct txn_call *call, const bson_t *reply, size_t n,
                             const struct config_route *route);
enum txn_commit {
    TXN_COMMIT_DONE,
    TXN_COMMIT_UNKNOWN, /* ask again */
    TXN_COMMIT_FAILED,  /* nobody knows and asking again is no use: outcome */
    TXN_COMMIT_NOT,     /* nothing was committed: as a conflict */
    TXN_COMMIT_SPLIT
};
enum txn_commit txn_judge_commit(const struct txn_call *call, const bson_t *reply,
                                 struct outcome *out);

#endif
