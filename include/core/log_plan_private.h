/*
 * log_plan_private.h - shared by src/core/log_plan*.c only.
 */
#ifndef IDEMSINK_CORE_LOG_PLAN_PRIVATE_H
#define IDEMSINK_CORE_LOG_PLAN_PRIVATE_H

#include "core/log_doc.h"
#include "core/look.h"

enum log_state {
    LOG_WAITING, /* for a round */
    LOG_LOOKING, /* for a read */
    LOG_NEW,     /* to be written */
    LOG_OPEN,    /* its document is there, with _effects */
    LOG_SETTLED  /* its result is final */
};

struct log_item {
    enum log_state state;
    uint32_t lane;    /* index into lanes; LOG_NO_LANE: none */
    uint32_t leader;  /* the first with the same filter that may be stored */
    unsigned looked;  /* how often E11000 and "not found" contradicted each other */
    unsigned numbers; /* how many numbers others had */
    bool look_alone, found;
    bool present; /* the document of its key is there */
    bool wrote;   /* by us, now */
    bool numbered;
    bool late; /* its effects can't be done now */
    bool has_stored;
    uint8_t stored[CANONICAL_HASH_BYTES];
    struct log_id id;
    int64_t number, at_ms;
    bson_t *open; /* its _effects as they stand; NULL: as mapped */
    char *failed; /* why its effects can't be done */
    /* operations */
    bool remove, ours, claimed, claim_asked;
    bool there, other;          /* the entity is, and on its way out by another event */
    bool other_op;              /* stored as the other one of insert and delete */
    bool was_refused, reopened; /* it has failed, and did nothing */
    int64_t until_ms;
    bson_t *entity, *document; /* as they stand in open */
    struct outcome refused;    /* by ADD; its text is set */
};

struct log_lane {
    const void *name;
    size_t blocked_at; /* the first that failed for now; SIZE_MAX: none */
    uint32_t in, held; /* stamps: one of it is in the command; one of it is left out */
    uint32_t removes;  /* stamp: one that removes is in the round */
    enum retry_class why;
    int code;
};

#define LOG_NO_LANE UINT32_MAX

/* One item's share of a move. */
struct log_part {
    uint32_t item, next; /* of the same move; UINT32_MAX: none */
    uint32_t change, n_changes;
    bool applied; /* stands in _applied */
};

enum log_move_state { LOG_MOVE_SEND, LOG_MOVE_CHECK, LOG_MOVE_MAKE, LOG_MOVE_DONE };

struct log_move_item {
    enum log_move_state state;
    const char *ns;
    const bson_t *filter;
    uint64_t hash;
    uint32_t first, last; /* parts */
    unsigned tries;
    bool make, forced, check_alone;
    bool seen, full, strange_field; /* by CHECK */
    bool lone;                      /* one item's, apart from others of the same document */
};

enum log_phase {
    LOG_PHASE_PICK,
    LOG_PHASE_LOOK,
    LOG_PHASE_NUMBER,
    LOG_PHASE_WRITE,
    LOG_PHASE_ENTITY, /* see log_plan_entity.c */
    LOG_PHASE_COUNT,
    LOG_PHASE_FAIL,
    LOG_PHASE_LEAVE, /* REMOVE, CLEAN */
    LOG_PHASE_CLOSE,
    LOG_PHASE_PRUNE,
    LOG_PHASE_END
};

enum { LOG_HELD_MAX = 64, LOG_PRUNED_SLOTS = 1024 };

struct log_plan {
    struct log_limits limits;
    struct log_rules rules;
    const struct write_op *ops;
    size_t n, cap;
    bool has_effects, has_operation, has_number;
    int64_t until_ms, now_ms;
    uint64_t dice;

    struct log_item *items;
    struct outcome *results, *judged;
    struct log_lane *lanes;
    size_t n_lanes;
    uint32_t *slots;
    size_t n_slots;
    uint32_t *round; /* the items of this round */
    size_t n_round, round_max;
    size_t from; /* all before it are settled */
    uint32_t stamp;
    enum log_phase phase;
    unsigned step; /* within the phase */

    /* the command that is out */
    bool out;
    enum log_command_kind out_kind;
    uint32_t *sent; /* items or moves */
    size_t n_sent;
    const struct write_op **sent_ops;
    int64_t *sent_numbers;
    struct log_entity *sent_entities;
    size_t n_entities;
    int64_t try_id;
    struct look *look;
    bool look_strange;
    bool got_number, number_alone; /* each number by itself: not all that were asked for are left */
    int64_t last_number;
    int64_t wait_ms;
    unsigned waits;
    size_t lone_failures;
    bool stored_some;

    /* counters: log_plan_count.c */
    char **ns; /* of the route's counters */
    size_t n_ns;
    const struct config_route *ns_route;
    struct log_move_item *moves;
    size_t n_moves, cap_moves;
    struct log_part *parts;
    size_t n_parts, cap_parts;
    struct log_change *changes;
    size_t n_changes, cap_changes;
    bson_t **owned; /* filters of what was found open */
    size_t n_owned, cap_owned;
    uint32_t *move_slots;
    size_t n_move_slots;
    struct log_move *out_moves;
    struct log_change *out_changes;
    struct log_id *out_ids;
    size_t cap_out_moves, cap_out_changes, cap_out_ids;
    bson_t *key;
    struct {
        uint64_t hash;
        int64_t until_ms;
    } held[LOG_HELD_MAX];             /* counters that are full: nothing new for them */
    int64_t pruned[LOG_PRUNED_SLOTS]; /* when, by hash */

    struct write_op *entity_ops; /* made for READ: log_plan_entity.c */

    struct log_done done;
    char *failed_text;
};

/* log_plan.c. Takes o's text. */
void log_settle(struct log_plan *p, size_t i, struct outcome o);
void log_give_up(struct log_plan *p, enum retry_class retry, int code);
/* The whole command failed, or its answer can't be understood: false, and the batch is given up. */
bool log_whole_fine(struct log_plan *p, const struct outcome_call *call, const bson_t *reply);
void log_put(struct log_plan *p, size_t i); /* into the command being gathered */
uint64_t log_dice(struct log_plan *p);
void log_wait(struct log_plan *p);
struct outcome log_later(enum retry_class retry, int code);
bool log_is_effective(const struct log_plan *p, size_t i); /* open, and nothing in its way */

bool log_is_blocked(const struct log_plan *p, size_t i); /* behind one that failed for now */

void log_clear_item(struct log_item *item);
/* The document of its key has been there before; as its leader knows. */
void log_settle_present(struct log_plan *p, size_t i, size_t leader, enum fate fate);

/* Has the document that is there another payload than i's? */
bool log_is_other_content(const struct log_plan *p, size_t i, size_t leader);

/* log_plan_look.c */
void log_reopen_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply);
bool log_look_next(struct log_plan *p, struct log_command *c);
void log_look_found(struct log_plan *p, const bson_t *document);
void log_look_answer(struct log_plan *p, const struct outcome_call *call);

/* log_plan_write.c */
bool log_number_next(struct log_plan *p, struct log_command *c);
void log_number_answer(struct log_plan *p, const struct outcome_call *call);
bool log_write_next(struct log_plan *p, struct log_command *c);
void log_write_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply);

/* The number of documents that a write matched; -1: it does not say. */
int64_t log_matched(const bson_t *reply);

/* log_plan_count.c */
void log_count_free(struct log_plan *p);
void log_count_begin(struct log_plan *p); /* of a batch */
void log_count_round(struct log_plan *p); /* gathers the moves of the round */
void log_count_round_end(struct log_plan *p);
bool log_count_next(struct log_plan *p, struct log_command *c);
bool log_prune_next(struct log_plan *p, struct log_command *c);
void log_count_found(struct log_plan *p, const bson_t *document);
void log_count_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply);
bool log_count_held(struct log_plan *p, size_t i); /* it moves a counter that is full */

/* log_plan_entity.c */
bool log_entity_next(struct log_plan *p, struct log_command *c);
bool log_leave_next(struct log_plan *p, struct log_command *c);
void log_entity_found(struct log_plan *p, const bson_t *document);
void log_entity_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply);
void log_entity_open(struct log_plan *p, size_t i); /* its _effects have been read */

#endif
