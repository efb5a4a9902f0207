/*
 * entity.h - what becomes of entities when events add and remove them, one after another. Pure.
 *
 * Several events of a batch may be about one entity. Together they end in one write of its
 * document, and each has moved its counters or not: what it found decides.
 */
#ifndef IDEMSINK_CORE_ENTITY_H
#define IDEMSINK_CORE_ENTITY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct entity_event {
    uint32_t entity; /* a small number */
    bool remove;
};

enum entity_step {
    ENTITY_NOTHING, /* it was there already, or not there: nothing moved */
    ENTITY_ADDED,
    ENTITY_REMOVED
};

enum entity_write {
    ENTITY_KEEP,   /* as it was */
    ENTITY_INSERT, /* of the event `last` */
    ENTITY_DELETE,
    ENTITY_REPLACE /* removed and added again: by the document of the event `last` */
};
struct entity_end {
    enum entity_write write;
    uint32_t last; /* INSERT, REPLACE: whose document; an index into the events */
    bool there;    /* at the end */
};

/*
 * there[i]: is entity i there at the start? events in their order; fills steps (as many as events)
 * and ends (as many as entities).
 */
void entity_fold(const struct entity_event *events, size_t n, const bool *there, size_t n_entities,
                 enum entity_step *steps, struct entity_end *ends);

#endif
