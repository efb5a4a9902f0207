#include "core/tracker.h"

#include "base/mem.h"

enum { FIRST_CAPACITY = 64 }; /* a power of two, like every capacity */

/* In mark.offered_at_ms: done for good. */
#define SETTLED INT64_MIN

struct mark {
    int64_t offset;
    int64_t offered_at_ms;
};

/*
 * The window: marks with the numbers [head, tail), number n in ring[n & (capacity - 1)], in the
 * order of reading, so offsets only rise. The mark at head is never settled: settled ones are
 * popped at once. Hence the watermark is the offset at head, or next when the window is empty.
 */
struct slot {
    struct mark *ring; /* NULL until the first record of the epoch */
    size_t capacity;
    uint64_t head, tail;
    size_t pending;
    int64_t next; /* nothing below it may still come, but see fresh; -1 unknown */
    uint32_t epoch;
    bool assigned;
    bool fresh; /* neither a record nor an end was seen in this epoch */
};

struct tracker {
    struct slot *slots;
    size_t n_slots;
    size_t window; /* sum of tail - head */
};

struct tracker *tracker_new(void)
{
    return mem_new(sizeof(struct tracker));
}

void tracker_free(struct tracker *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->n_slots; i++)
        mem_free(t->slots[i].ring);
    mem_free(t->slots);
    mem_free(t);
}

static struct slot *slot_of(const struct tracker *t, uint32_t slot)
{
    return slot < t->n_slots ? &t->slots[slot] : NULL;
}

static void slots_grow(struct tracker *t, uint32_t slot)
{
    size_t n = (size_t)slot + 1;

    if (n <= t->n_slots)
        return;
    t->slots = mem_grow(t->slots, n, sizeof(*t->slots));
    for (size_t i = t->n_slots; i < n; i++)
        t->slots[i] = (struct slot){.next = -1};
    t->n_slots = n;
}

/* The memory goes too: a burst of one partition should not stay with every slot for ever. */
static void new_epoch(struct tracker *t, struct slot *s, bool assigned, int64_t next)
{
    t->window -= (size_t)(s->tail - s->head);
    mem_free(s->ring);
    *s = (struct slot){.next = next, .epoch = s->epoch + 1, .assigned = assigned, .fresh = true};
}

void tracker_assign(struct tracker *t, uint32_t slot, int64_t next_offset)
{
    slots_grow(t, slot);
    new_epoch(t, &t->slots[slot], true, next_offset < 0 ? -1 : next_offset);
}

void tracker_revoke(struct tracker *t, uint32_t slot)
{
    struct slot *s = slot_of(t, slot);

    if (s != NULL && s->assigned)
        new_epoch(t, s, false, -1);
}

bool tracker_assigned(const struct tracker *t, uint32_t slot)
{
    const struct slot *s = slot_of(t, slot);

    return s != NULL && s->assigned;
}

static struct mark *mark_of(const struct slot *s, uint64_t seq)
{
    return &s->ring[seq & (s->capacity - 1)];
}

static void ring_grow(struct slot *s)
{
    struct slot old = *s;

    s->capacity = old.capacity > 0 ? old.capacity * 2 : FIRST_CAPACITY;
    s->ring = mem_array(s->capacity, sizeof(*s->ring));
    for (uint64_t seq = old.head; seq < old.tail; seq++)
        *mark_of(s, seq) = *mark_of(&old, seq);
    mem_free(old.ring);
}

bool tracker_begin(struct tracker *t, struct record *r)
{
    struct slot *s = slot_of(t, r->slot);

    if (s == NULL || !s->assigned || r->offset < 0)
        return false;
    if (!s->fresh && r->offset < s->next)
        return false;
    if (s->tail - s->head == s->capacity)
        ring_grow(s);
    *mark_of(s, s->tail) = (struct mark){.offset = r->offset, .offered_at_ms = r->offered_at_ms};
    r->seq = s->tail++;
    r->epoch = s->epoch;
    s->next = r->offset + 1;
    s->fresh = false;
    s->pending++;
    t->window++;
    return true;
}

void tracker_end(struct tracker *t, uint32_t slot, int64_t end_offset)
{
    struct slot *s = slot_of(t, slot);

    if (s == NULL || !s->assigned || end_offset < 0 || end_offset < s->next)
        return;
    s->next = end_offset;
    s->fresh = false;
}

bool tracker_current(const struct tracker *t, const struct record *r)
{
    const struct slot *s = slot_of(t, r->slot);

    return s != NULL && s->assigned && s->epoch == r->epoch;
}

bool tracker_settle(struct tracker *t, const struct record *r)
{
    if (!tracker_current(t, r))
        return false;

    struct slot *s = slot_of(t, r->slot);
    uint64_t head = s->head;

    MUST(r->seq >= head && r->seq < s->tail);
    struct mark *m = mark_of(s, r->seq);
    MUST(m->offset == r->offset && m->offered_at_ms != SETTLED);
    m->offered_at_ms = SETTLED;
    s->pending--;
    while (s->head < s->tail && mark_of(s, s->head)->offered_at_ms == SETTLED)
        s->head++;
    t->window -= (size_t)(s->head - head);
    return true;
}

int64_t tracker_watermark(const struct tracker *t, uint32_t slot)
{
    const struct slot *s = slot_of(t, slot);

    if (s == NULL || !s->assigned)
        return -1;
    return s->head < s->tail ? mark_of(s, s->head)->offset : s->next;
}

int64_t tracker_position(const struct tracker *t, uint32_t slot)
{
    const struct slot *s = slot_of(t, slot);

    return s != NULL && s->assigned ? s->next : -1;
}

size_t tracker_pending(const struct tracker *t, uint32_t slot)
{
    const struct slot *s = slot_of(t, slot);

    return s != NULL ? s->pending : 0;
}

size_t tracker_window(const struct tracker *t, uint32_t slot)
{
    const struct slot *s = slot_of(t, slot);

    return s != NULL ? (size_t)(s->tail - s->head) : 0;
}

size_t tracker_window_total(const struct tracker *t)
{
    return t->window;
}

int64_t tracker_oldest_at_ms(const struct tracker *t, uint32_t slot)
{
    const struct slot *s = slot_of(t, slot);

    return s != NULL && s->head < s->tail ? mark_of(s, s->head)->offered_at_ms : 0;
}

uint32_t tracker_epoch(const struct tracker *t, uint32_t slot)
{
    const struct slot *s = slot_of(t, slot);

    return s != NULL ? s->epoch : 0;
}
