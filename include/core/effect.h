/*
 * effect.h - what one record moves beside its document. Pure data, made by the mapping.
 *
 * A route without [[route.counter]], [route.sequence] and [route.operation] has none of it
 * (write_op.effects is NULL), and takes the way of core/plan.h.
 */
#ifndef IDEMSINK_CORE_EFFECT_H
#define IDEMSINK_CORE_EFFECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bson/bson.h>

enum effect_action {
    EFFECT_STORE,  /* no [route.operation]: the document is the event */
    EFFECT_INSERT, /* the event adds its entity: write_op.document, under effects.entity */
    EFFECT_DELETE  /* the event removes its entity; write_op.document is empty */
};

/* One counter document of one [[route.counter]], and by how much its fields move when the event is
 * new (STORE), its entity was added (INSERT), or, with the other sign, removed (DELETE). */
struct effect_move {
    uint32_t counter; /* index into the route's counters */
    bson_t *filter;   /* canonical: equal documents, equal bytes */
    int64_t *by; /* as many as the counter has inc fields; as configured, without DELETE's sign */
};

/* The number of a new event in its group, and how its text looks. */
struct effect_number {
    bson_t *group; /* {_id: {a: ..., b: ...}}: the filter of its counter document; canonical */
    char *before, *behind; /* the number in sequence.template; NULL: no template */
    int digits;            /* of the number there, at least */
};

struct effects {
    enum effect_action action;
    bson_t *entity; /* INSERT, DELETE: equality on the fields of the entity index; else NULL */
    struct effect_move *moves;
    size_t n_moves;
    struct effect_number *number; /* NULL: no sequence */
    /* {_id: key} of the lock that is held for it; NULL: none. Once the lock is there {_id: key,
     * issued: fence_number}: who has been given a later number is the only one who can write. */
    bson_t *fence;
    int64_t fence_number;
    size_t bytes; /* of all this, for budgets */
};

void effects_free(struct effects *f); /* NULL is fine */

/* XXH3-128 of the bytes of an event's canonical filter; see log_event_id() in core/log_doc.h. */
enum { EFFECT_ID_BYTES = 16 };
void effect_id(const bson_t *event_filter, uint8_t id[EFFECT_ID_BYTES]);

#endif
