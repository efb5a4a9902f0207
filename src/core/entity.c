#include "core/entity.h"

static enum entity_write write_of(bool before, bool changed, bool after)
{
    if (before)
        return !after ? ENTITY_DELETE : changed ? ENTITY_REPLACE : ENTITY_KEEP;
    return after ? ENTITY_INSERT : ENTITY_KEEP;
}

void entity_fold(const struct entity_event *events, size_t n, const bool *there, size_t n_entities,
                 enum entity_step *steps, struct entity_end *ends)
{
    for (size_t i = 0; i < n_entities; i++)
        ends[i] = (struct entity_end){.there = there[i], .last = UINT32_MAX};
    for (size_t i = 0; i < n; i++) {
        struct entity_end *e = &ends[events[i].entity];

        steps[i] = ENTITY_NOTHING;
        if (events[i].remove == e->there) {
            steps[i] = events[i].remove ? ENTITY_REMOVED : ENTITY_ADDED;
            e->there = !events[i].remove;
            e->last = (uint32_t)i;
        }
    }
    for (size_t i = 0; i < n_entities; i++)
        ends[i].write = write_of(there[i], ends[i].last != UINT32_MAX, ends[i].there);
}
