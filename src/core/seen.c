#include "core/seen.h"

#include <string.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/canonical.h"

enum { NONE = 0 }; /* of entry numbers, which begin with 1 */

struct entry {
    struct seen_id id;
    int64_t until_ms;
    uint32_t newer,
        older; /* in the order in which they were asked for; free ones: older is the next */
};
_Static_assert(sizeof(struct entry) == SEEN_ENTRY_BYTES, "what seen.h says of memory");

/* Open addressing, each entry as near behind its own slot as there was room; what is taken out is
 * filled from behind, so there are no marks of what has been. */
struct seen {
    uint32_t *slots;
    size_t mask; /* number of slots - 1 */
    struct entry *entries;
    size_t cap;
    size_t used;    /* the first that have been used since all was forgotten, free ones included */
    size_t touched; /* the first that were ever used */
    size_t n;
    uint32_t newest, oldest, free;
    int64_t ttl_ms;
};

struct seen_id seen_id(uint64_t seed, const bson_t *filter, const uint8_t *payload_hash)
{
    uint8_t both[2 * sizeof(struct seen_id)];
    XXH128_hash_t h = XXH3_128bits_withSeed(bson_get_data(filter), filter->len, seed);

    _Static_assert(CANONICAL_HASH_BYTES == sizeof(struct seen_id), "two halves");
    if (payload_hash) {
        memcpy(both, &h, sizeof h);
        memcpy(both + sizeof h, payload_hash, CANONICAL_HASH_BYTES);
        h = XXH3_128bits_withSeed(both, sizeof both, seed);
    }
    return (struct seen_id){.high = h.high64, .low = h.low64};
}

uint64_t seen_seed(const uint8_t uuid[SEEN_UUID_BYTES])
{
    return XXH3_64bits(uuid, SEEN_UUID_BYTES);
}

/* --- the memory --- */

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* The most entries that fit, and the slots for them. */
static size_t best_capacity(size_t max_entries, size_t max_bytes, size_t *slots)
{
    size_t best = 0;

    *slots = 4;
    for (size_t n = 4; n <= (size_t)1 << 32 && n * sizeof(uint32_t) < max_bytes; n *= 2) {
        size_t room = (max_bytes - n * sizeof(uint32_t)) / sizeof(struct entry);
        size_t cap = least(least(max_entries, room), n / 3 * 2);

        if (cap > best) {
            best = cap;
            *slots = n;
        }
    }
    return best;
}

struct seen *seen_new(size_t max_entries, size_t max_bytes, int64_t ttl_ms)
{
    struct seen *s = mem_new(sizeof *s);
    size_t slots;

    MUST(max_entries > 0 && max_entries <= (size_t)1 << 31 && max_bytes >= 1024 && ttl_ms > 0);
    s->cap = best_capacity(max_entries, max_bytes - sizeof *s, &slots);
    s->slots = mem_array(slots, sizeof *s->slots);
    s->mask = slots - 1;
    s->entries = mem_array(s->cap, sizeof *s->entries);
    s->ttl_ms = ttl_ms;
    return s;
}

void seen_free(struct seen *s)
{
    if (!s)
        return;
    mem_free(s->slots);
    mem_free(s->entries);
    mem_free(s);
}

static struct entry *entry_of(struct seen *s, uint32_t number)
{
    return &s->entries[number - 1];
}

/* --- the table --- */

static size_t home_of(const struct seen *s, struct seen_id id)
{
    return (size_t)id.low & s->mask;
}

/* Its slot, or the empty one where it would be. */
static size_t slot_of(struct seen *s, struct seen_id id)
{
    size_t at = home_of(s, id);

    for (; s->slots[at] != NONE; at = (at + 1) & s->mask) {
        const struct entry *e = entry_of(s, s->slots[at]);
        if (e->id.low == id.low && e->id.high == id.high)
            break;
    }
    return at;
}

/* What stands behind the gap and may stand in it goes there. */
static void slot_clear(struct seen *s, size_t gap)
{
    for (size_t at = (gap + 1) & s->mask; s->slots[at] != NONE; at = (at + 1) & s->mask) {
        size_t home = home_of(s, entry_of(s, s->slots[at])->id);

        if (((at - home) & s->mask) < ((at - gap) & s->mask))
            continue; /* its own slot lies behind the gap */
        s->slots[gap] = s->slots[at];
        gap = at;
    }
    s->slots[gap] = NONE;
}

/* --- the order --- */

static void unlink_entry(struct seen *s, uint32_t number)
{
    struct entry *e = entry_of(s, number);

    if (e->newer != NONE)
        entry_of(s, e->newer)->older = e->older;
    else
        s->newest = e->older;
    if (e->older != NONE)
        entry_of(s, e->older)->newer = e->newer;
    else
        s->oldest = e->newer;
}

static void link_newest(struct seen *s, uint32_t number)
{
    struct entry *e = entry_of(s, number);

    e->newer = NONE;
    e->older = s->newest;
    if (s->newest != NONE)
        entry_of(s, s->newest)->newer = number;
    else
        s->oldest = number;
    s->newest = number;
}

/* --- the calls --- */

static void take_out(struct seen *s, size_t slot)
{
    uint32_t number = s->slots[slot];

    slot_clear(s, slot);
    unlink_entry(s, number);
    entry_of(s, number)->older = s->free;
    s->free = number;
    s->n--;
}

bool seen_has(struct seen *s, struct seen_id id, int64_t now_ms)
{
    size_t slot = slot_of(s, id);
    uint32_t number = s->slots[slot];

    if (number == NONE)
        return false;
    if (entry_of(s, number)->until_ms <= now_ms) {
        take_out(s, slot);
        return false;
    }
    if (s->newest != number) {
        unlink_entry(s, number);
        link_newest(s, number);
    }
    return true;
}

static uint32_t number_for_one_more(struct seen *s)
{
    uint32_t number;

    if (s->n == s->cap)
        take_out(s, slot_of(s, entry_of(s, s->oldest)->id));
    if (s->free == NONE) {
        s->used++;
        s->touched = s->used > s->touched ? s->used : s->touched;
        return (uint32_t)s->used;
    }
    number = s->free;
    s->free = entry_of(s, number)->older;
    return number;
}

void seen_add(struct seen *s, struct seen_id id, int64_t now_ms)
{
    uint32_t number = s->slots[slot_of(s, id)];

    if (number != NONE) {
        unlink_entry(s, number);
    } else {
        number = number_for_one_more(s);
        entry_of(s, number)->id = id;
        s->slots[slot_of(s, id)] = number; /* anew: room was made */
        s->n++;
    }
    entry_of(s, number)->until_ms = now_ms + s->ttl_ms;
    link_newest(s, number);
}

/* Somebody may say it very often: it should not cost more than what there is. */
static void clear_slots(struct seen *s)
{
    if (s->n > s->mask / 64) {
        memset(s->slots, 0, (s->mask + 1) * sizeof *s->slots);
        return;
    }
    for (uint32_t number = s->newest; number != NONE; number = entry_of(s, number)->older) {
        size_t at = home_of(s, entry_of(s, number)->id);

        while (s->slots[at] != number) /* past those that are cleared already */
            at = (at + 1) & s->mask;
        s->slots[at] = NONE;
    }
}

void seen_forget(struct seen *s)
{
    clear_slots(s);
    s->n = s->used = 0;
    s->newest = s->oldest = s->free = NONE;
}

size_t seen_entries(const struct seen *s)
{
    return s->n;
}

size_t seen_capacity(const struct seen *s)
{
    return s->cap;
}

static size_t bytes_of(const struct seen *s, size_t entries)
{
    return sizeof *s + (s->mask + 1) * sizeof *s->slots + entries * sizeof *s->entries;
}

size_t seen_bytes(const struct seen *s)
{
    return bytes_of(s, s->touched);
}

size_t seen_max_bytes(const struct seen *s)
{
    return bytes_of(s, s->cap);
}
