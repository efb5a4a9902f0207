#include "core/audit.h"

#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

enum { FLAG_USED = 1, FLAG_STORED = 2, FLAG_DEAD = 4, FLAG_OTHERS = 8 };

struct entry {
    uint64_t key[2];
    uint64_t content;
    int64_t offset; /* of the first record */
    uint32_t lane;  /* 32 bits of the hash of the first record's lane */
    uint16_t slot;
    uint16_t flags;
};
_Static_assert(sizeof(struct entry) == AUDIT_ENTRY_BYTES, "documented");

/* Another lane's first content of a key: rare, so a plain list, sorted at no time. */
struct other {
    uint64_t key[2];
    uint64_t content;
    uint32_t lane;
};

struct audit {
    size_t max_bytes;
    struct entry *entries;
    size_t cap; /* a power of two */
    size_t used;
    struct other *others;
    size_t n_others, others_cap;
    struct audit_books books;
};

struct audit *audit_new(size_t max_bytes)
{
    struct audit *a = mem_new(sizeof *a);

    a->max_bytes = max_bytes;
    a->cap = 1024;
    a->entries = mem_array(a->cap, sizeof *a->entries);
    return a;
}

void audit_free(struct audit *a)
{
    if (a == NULL)
        return;
    mem_free(a->entries);
    mem_free(a->others);
    mem_free(a);
}

static XXH128_hash_t key_hash(uint32_t route, const bson_t *key)
{
    return XXH3_128bits_withSeed(bson_get_data(key), key->len, route);
}

/* A sum over the fields, so that their order doesn't count. Each field goes in with type, name and
 * value. */
static uint64_t content_hash(const bson_t *document)
{
    const uint8_t *end = bson_get_data(document) + document->len - 1;
    const uint8_t *start = NULL;
    uint64_t sum = 0;
    bool skip = false;
    bson_iter_t it;

    if (!bson_iter_init(&it, document))
        return 0;
    for (;;) {
        bool more = bson_iter_next(&it);
        const uint8_t *next = more ? (const uint8_t *)bson_iter_key(&it) - 1 : end;

        if (start && !skip)
            sum += XXH3_64bits(start, (size_t)(next - start));
        if (!more)
            return sum;
        start = next;
        skip = strcmp(bson_iter_key(&it), "_id") == 0;
    }
}

/* The entry of this key, or the free one where it belongs. */
static struct entry *find(struct entry *entries, size_t cap, const uint64_t key[2])
{
    size_t i = (size_t)key[0] & (cap - 1);

    while ((entries[i].flags & FLAG_USED) &&
           (entries[i].key[0] != key[0] || entries[i].key[1] != key[1]))
        i = (i + 1) & (cap - 1);
    return &entries[i];
}

static bool grow(struct audit *a, struct err *e)
{
    size_t cap = a->cap * 2;
    struct entry *entries;

    if ((cap + a->cap) * sizeof *entries > a->max_bytes)
        return err_set(
            e, ERR_CONFIG, 0,
            "%zu dedup keys need more memory than %zu MiB; give verify more with --memory", a->used,
            a->max_bytes >> 20);
    entries = mem_array(cap, sizeof *entries);
    for (size_t i = 0; i < a->cap; i++)
        if (a->entries[i].flags & FLAG_USED)
            *find(entries, cap, a->entries[i].key) = a->entries[i];
    mem_free(a->entries);
    a->entries = entries;
    a->cap = cap;
    return true;
}

static bool other_known(const struct audit *a, const uint64_t key[2], uint64_t content,
                        const uint32_t *lane)
{
    for (size_t i = 0; i < a->n_others; i++) {
        const struct other *o = &a->others[i];

        if (o->key[0] == key[0] && o->key[1] == key[1] &&
            (o->content == content || (lane && o->lane == *lane)))
            return true;
    }
    return false;
}

static void other_add(struct audit *a, struct entry *at, uint64_t content, uint32_t lane)
{
    if (other_known(a, at->key, content, &lane))
        return;
    if (a->n_others == a->others_cap) {
        a->others_cap = a->others_cap ? a->others_cap * 2 : 64;
        a->others = mem_grow(a->others, a->others_cap, sizeof *a->others);
    }
    a->others[a->n_others++] =
        (struct other){.key = {at->key[0], at->key[1]}, .content = content, .lane = lane};
    at->flags |= FLAG_OTHERS;
}

bool audit_expect(struct audit *a, const struct record *r, const bson_t *key,
                  const bson_t *document, struct err *e)
{
    XXH128_hash_t h = key_hash(r->route, key);
    uint64_t k[2] = {h.low64, h.high64};
    uint64_t content = content_hash(document);
    uint32_t lane = (uint32_t)(r->order_hash >> 32);
    struct entry *at = find(a->entries, a->cap, k);

    MUST(r->slot <= UINT16_MAX);
    a->books.records++;
    if (at->flags & FLAG_USED) {
        if (at->content != content && at->lane != lane)
            other_add(a, at, content, lane);
        return true;
    }
    if (a->used + 1 > a->cap / 4 * 3) {
        if (!grow(a, e))
            return false;
        at = find(a->entries, a->cap, k);
    }
    *at = (struct entry){.key = {k[0], k[1]},
                         .content = content,
                         .offset = r->offset,
                         .slot = (uint16_t)r->slot,
                         .lane = lane,
                         .flags = FLAG_USED};
    a->used++;
    a->books.distinct++;
    return true;
}

static struct entry *known(struct audit *a, uint32_t route, const bson_t *key)
{
    XXH128_hash_t h = key_hash(route, key);
    uint64_t k[2] = {h.low64, h.high64};
    struct entry *at = find(a->entries, a->cap, k);

    return at->flags & FLAG_USED ? at : NULL;
}

void audit_dead(struct audit *a, uint32_t route, const bson_t *key)
{
    struct entry *at = known(a, route, key);

    if (at)
        at->flags |= FLAG_DEAD;
}

enum audit_verdict audit_stored(struct audit *a, uint32_t route, const bson_t *key,
                                const bson_t *document)
{
    struct entry *at = known(a, route, key);
    uint64_t content;

    if (at == NULL) {
        a->books.extra++;
        return AUDIT_EXTRA;
    }
    if (at->flags & FLAG_STORED) {
        a->books.doubled++;
        return AUDIT_DOUBLE;
    }
    at->flags |= FLAG_STORED;
    content = content_hash(document);
    if (content == at->content ||
        ((at->flags & FLAG_OTHERS) && other_known(a, at->key, content, NULL))) {
        a->books.right++;
        return AUDIT_RIGHT;
    }
    a->books.different++;
    return AUDIT_DIFFERENT;
}

struct audit_books audit_finish(struct audit *a, size_t max, audit_missing_fn *each, void *ctx)
{
    a->books.dead = a->books.missing = 0;
    for (size_t i = 0; i < a->cap; i++) {
        const struct entry *at = &a->entries[i];

        if (!(at->flags & FLAG_USED) || (at->flags & FLAG_STORED))
            continue;
        if (at->flags & FLAG_DEAD) {
            a->books.dead++;
        } else if (a->books.missing++ < max && each) {
            each(ctx, at->slot, at->offset);
        }
    }
    return a->books;
}
