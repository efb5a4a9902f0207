#include "core/tally.h"

#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"

enum { LEAST = 64 };

/* Two words of hash, then the columns. An unused entry has no hash; SEEN and DOUBT are bits of it.
 */
struct tally {
    uint64_t *words;
    size_t width, n_columns;
    size_t cap, used; /* cap: a power of two */
    size_t max_bytes;
    uint32_t part, parts;
};
static const uint64_t SEEN = 1, USED = 2, DOUBT = 4;

struct tally *tally_new(size_t n_columns, size_t max_bytes, uint32_t part, uint32_t parts)
{
    struct tally *t = mem_new(sizeof *t);

    MUST(parts > 0 && part < parts);
    *t = (struct tally){.width = 2 + n_columns,
                        .n_columns = n_columns,
                        .cap = LEAST,
                        .max_bytes = max_bytes,
                        .part = part,
                        .parts = parts};
    t->words = mem_array(LEAST * t->width, sizeof *t->words);
    return t;
}

void tally_free(struct tally *t)
{
    if (t)
        mem_free(t->words);
    mem_free(t);
}

size_t tally_bytes(const struct tally *t)
{
    return t->cap * t->width * sizeof *t->words;
}

uint64_t tally_entries(const struct tally *t)
{
    return t->used;
}

struct hash {
    uint64_t low, high; /* the three lowest bits of high are flags */
};

static struct hash hash_of(const bson_t *key)
{
    XXH128_hash_t h = XXH3_128bits(bson_get_data(key), key->len);

    return (struct hash){.low = h.low64, .high = (h.high64 & ~(SEEN | USED | DOUBT)) | USED};
}

/* By other bits than those that tell the place in the table. */
static bool is_of_part(const struct tally *t, struct hash h)
{
    return (h.high >> 3) % t->parts == t->part;
}

bool tally_wants(const struct tally *t, const bson_t *key)
{
    return is_of_part(t, hash_of(key));
}

/* The entry, or the free place for it. */
static uint64_t *place_in(uint64_t *words, size_t cap, size_t width, struct hash h)
{
    for (size_t i = (size_t)h.low & (cap - 1);; i = (i + 1) & (cap - 1)) {
        uint64_t *at = &words[i * width];

        if (!(at[1] & USED) || (at[0] == h.low && (at[1] & ~(SEEN | DOUBT)) == h.high))
            return at;
    }
}

static bool grow(struct tally *t)
{
    size_t cap = t->cap * 2;
    uint64_t *words;

    /* Old and new are there at once for a moment. */
    if ((cap + t->cap) * t->width * sizeof *words > t->max_bytes)
        return false;
    words = mem_array(cap * t->width, sizeof *words);
    for (size_t i = 0; i < t->cap; i++) {
        const uint64_t *from = &t->words[i * t->width];
        struct hash h = {.low = from[0], .high = from[1] & ~(SEEN | DOUBT)};

        if (from[1] & USED)
            memcpy(place_in(words, cap, t->width, h), from, t->width * sizeof *words);
    }
    mem_free(t->words);
    t->words = words;
    t->cap = cap;
    return true;
}

/* NULL: the table is full. */
static uint64_t *entry_for(struct tally *t, struct hash h)
{
    uint64_t *at = place_in(t->words, t->cap, t->width, h);

    if (at[1] & USED)
        return at;
    if (t->used + 1 > t->cap / 4 * 3) {
        if (!grow(t))
            return NULL;
        at = place_in(t->words, t->cap, t->width, h);
    }
    at[0] = h.low;
    at[1] = h.high;
    t->used++;
    return at;
}

bool tally_add(struct tally *t, const bson_t *key, const size_t *columns, const int64_t *sums,
               size_t n)
{
    struct hash h = hash_of(key);
    uint64_t *at = is_of_part(t, h) ? entry_for(t, h) : NULL;

    for (size_t i = 0; at && i < n; i++) {
        int64_t sum;

        if (__builtin_add_overflow((int64_t)at[2 + columns[i]], sums[i], &sum))
            at[1] |= DOUBT;
        else
            at[2 + columns[i]] = (uint64_t)sum;
    }
    return at || !is_of_part(t, h);
}

bool tally_doubt(struct tally *t, const bson_t *key)
{
    struct hash h = hash_of(key);
    uint64_t *at = is_of_part(t, h) ? entry_for(t, h) : NULL;

    if (at)
        at[1] |= DOUBT;
    return at || !is_of_part(t, h);
}

static uint64_t *entry_of(const struct tally *t, const bson_t *key)
{
    uint64_t *at = place_in(t->words, t->cap, t->width, hash_of(key));

    return at[1] & USED ? at : NULL;
}

const int64_t *tally_see(struct tally *t, const bson_t *key, bool *doubt)
{
    uint64_t *at = entry_of(t, key);

    *doubt = at != NULL && (at[1] & DOUBT);
    if (at == NULL)
        return NULL;
    at[1] |= SEEN;
    return (const int64_t *)&at[2];
}

static bool is_left(const struct tally *t, const uint64_t *at)
{
    uint64_t any = 0;

    for (size_t i = 0; i < t->n_columns; i++)
        any |= at[2 + i];
    return (at[1] & USED) && !(at[1] & SEEN) && (any != 0 || (at[1] & DOUBT));
}

bool tally_is_left(struct tally *t, const bson_t *key)
{
    uint64_t *at = entry_of(t, key);

    if (at == NULL || !is_left(t, at))
        return false;
    at[1] |= SEEN;
    return true;
}

bool tally_any_left(const struct tally *t)
{
    for (size_t i = 0; i < t->cap; i++)
        if (is_left(t, &t->words[i * t->width]))
            return true;
    return false;
}
