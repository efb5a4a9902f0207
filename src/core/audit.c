#include "core/audit.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

#include "base/mem.h"

enum {
    FLAG_USED = 1,
    FLAG_STORED = 2,
    FLAG_DEAD = 4,
    FLAG_LIVE = 8,
    FLAG_OTHERS = 16,
    FLAG_MARK = 32,
    FLAG_ENTITY = 64 /* LIVE: it is there at the end */
};

struct entry {
    uint64_t key[2];
    uint64_t content;
    int64_t offset; /* of the first record */
    uint32_t lane;  /* 32 bits of the hash of the first record's lane */
    uint16_t slot;
    uint16_t flags;
};
_Static_assert(sizeof(struct entry) == AUDIT_ENTRY_BYTES, "documented");

/*
 * A table that doubles needs the old and the new half as much again for a moment. So there are many
 * small ones, which double one after another: that moment costs one of them.
 */
enum { SHARD_BITS = 6, SHARDS = 1 << SHARD_BITS, SHARD_LEAST = 64 };

/* An open hash. There is always room for ROOM more entries: what one call may add. */
struct shard {
    struct entry *entries;
    size_t cap; /* a power of two */
    size_t used;
};
enum { ROOM = 3 };

struct audit {
    size_t max_bytes, bytes;
    struct shard shards[SHARDS];
    uint64_t from, to; /* which dedup keys, by their hash */
    bool full;         /* a shard that has to grow can't */
    struct audit_books books;
};

struct audit *audit_new(size_t max_bytes, uint64_t from, uint64_t to)
{
    struct audit *a = mem_new(sizeof *a);

    *a = (struct audit){.max_bytes = max_bytes, .from = from, .to = to};
    for (size_t i = 0; i < SHARDS; i++) {
        a->shards[i] = (struct shard){.entries = mem_array(SHARD_LEAST, sizeof(struct entry)),
                                      .cap = SHARD_LEAST};
        a->bytes += SHARD_LEAST * sizeof(struct entry);
    }
    return a;
}

void audit_free(struct audit *a)
{
    if (a == NULL)
        return;
    for (size_t i = 0; i < SHARDS; i++)
        mem_free(a->shards[i].entries);
    mem_free(a);
}

size_t audit_bytes(const struct audit *a)
{
    return a->bytes;
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
static struct entry *find_in(struct entry *entries, size_t cap, const uint64_t key[2])
{
    size_t i = (size_t)key[0] & (cap - 1);

    while ((entries[i].flags & FLAG_USED) &&
           (entries[i].key[0] != key[0] || entries[i].key[1] != key[1]))
        i = (i + 1) & (cap - 1);
    return &entries[i];
}

static struct entry *find(const struct audit *a, const uint64_t key[2])
{
    const struct shard *s = &a->shards[key[1] >> (64 - SHARD_BITS)];

    return find_in(s->entries, s->cap, key);
}

/* An entry was added to the shard of this key. Entries move. */
static void added(struct audit *a, const uint64_t key[2])
{
    struct shard *s = &a->shards[key[1] >> (64 - SHARD_BITS)];
    size_t cap = s->cap * 2, more = cap * sizeof(struct entry);
    struct entry *entries;

    if (++s->used + ROOM <= s->cap / 4 * 3)
        return;
    if (a->full || a->bytes + more > a->max_bytes) {
        a->full = true;
        return;
    }
    entries = mem_array(cap, sizeof *entries);
    for (size_t i = 0; i < s->cap; i++)
        if (s->entries[i].flags & FLAG_USED)
            *find_in(entries, cap, s->entries[i].key) = s->entries[i];
    mem_free(s->entries);
    a->bytes += more - s->cap * sizeof *entries;
    s->entries = entries;
    s->cap = cap;
}

/* False: nothing more may be added. */
static bool has_room(const struct audit *a, struct err *e)
{
    return !a->full || err_set(e, ERR_CONFIG, 0,
                               "%" PRIu64 " dedup keys fill the %zu MiB that verify has for them",
                               a->books.distinct, a->max_bytes >> 20);
}

/*
 * A key that several lanes bring with different contents is rare, but may be every key
 * (source_fields differ with each delivery). What the further lanes brought lies in the same table,
 * under keys made of the dedup key and the lane or the content: entries that only mark that it was
 * so.
 */
enum mark_kind { MARK_LANE, MARK_CONTENT, MARK_PLACE };

static struct entry *mark_at(const struct audit *a, const uint64_t key[2], enum mark_kind kind,
                             uint64_t what, uint64_t own_key[2])
{
    uint64_t parts[4] = {key[0], key[1], (uint64_t)kind, what};
    XXH128_hash_t h = XXH3_128bits_withSeed(parts, sizeof parts, UINT64_MAX);

    own_key[0] = h.low64;
    own_key[1] = h.high64;
    return find(a, own_key);
}

/* Returns whether it was there. */
static bool mark(struct audit *a, const uint64_t key[2], enum mark_kind kind, uint64_t what)
{
    uint64_t own_key[2];
    struct entry *at = mark_at(a, key, kind, what, own_key);

    if (at->flags & FLAG_USED)
        return true;
    *at = (struct entry){.key = {own_key[0], own_key[1]}, .flags = FLAG_USED | FLAG_MARK};
    added(a, own_key);
    return false;
}

static bool marked(const struct audit *a, const uint64_t key[2], enum mark_kind kind, uint64_t what)
{
    uint64_t own_key[2];

    return (mark_at(a, key, kind, what, own_key)->flags & FLAG_USED) != 0;
}

/* Only the first content that a lane brings can be stored on its behalf. */
static void other_lane(struct audit *a, struct entry *at, uint64_t content, uint32_t lane)
{
    uint64_t key[2] = {at->key[0], at->key[1]};

    at->flags |= FLAG_OTHERS;
    if (!mark(a, key, MARK_LANE, lane))
        (void)mark(a, key, MARK_CONTENT, content);
}

/* The place of a record takes the part of the key in a mark. */
static void place_key(struct slice topic, int32_t partition, uint64_t out[2])
{
    out[0] = XXH3_64bits(topic.ptr ? topic.ptr : "", topic.len);
    out[1] = (uint64_t)(uint32_t)partition;
}

bool audit_dead(struct audit *a, struct slice topic, int32_t partition, int64_t offset,
                struct err *e)
{
    uint64_t place[2];

    if (!has_room(a, e))
        return false;
    place_key(topic, partition, place);
    (void)mark(a, place, MARK_PLACE, (uint64_t)offset);
    return true;
}

bool audit_is_dead(const struct audit *a, struct slice topic, int32_t partition, int64_t offset)
{
    uint64_t place[2];

    place_key(topic, partition, place);
    return marked(a, place, MARK_PLACE, (uint64_t)offset);
}

/* The entry of this key, made when it is new; valid until something is added. */
static struct entry *expected(struct audit *a, const uint64_t key[2])
{
    struct entry *at = find(a, key);

    if (at->flags & FLAG_USED)
        return at;
    *at = (struct entry){.key = {key[0], key[1]}, .flags = FLAG_USED};
    a->books.distinct++;
    added(a, key);
    return find(a, key);
}

static bool wanted(const struct audit *a, const uint64_t key[2])
{
    uint64_t place = key[1] << 32 | key[1] >> 32; /* the shard is taken from the other end */

    return place >= a->from && place <= a->to;
}

bool audit_expect(struct audit *a, const struct record *r, const bson_t *key,
                  const bson_t *document, struct err *e)
{
    XXH128_hash_t h = key_hash(r->route, key);
    uint64_t k[2] = {h.low64, h.high64};
    uint64_t content;
    uint32_t lane = (uint32_t)(r->order_hash >> 32);
    struct entry *at;

    MUST(r->slot <= UINT16_MAX);
    if (!wanted(a, k))
        return true;
    if (!has_room(a, e))
        return false;
    content = content_hash(document);
    at = expected(a, k);
    a->books.records++;
    if (audit_is_dead(a, slice_text(r->topic), r->partition, r->offset)) {
        at->flags |= FLAG_DEAD;
        (void)mark(a, k, MARK_CONTENT, content);
    } else if (at->flags & FLAG_LIVE) {
        if ((at->lane != lane || at->slot != (uint16_t)r->slot) &&
            (at->content != content || (at->flags & FLAG_OTHERS)))
            other_lane(a, at, content, lane);
    } else {
        at->content = content;
        at->offset = r->offset;
        at->slot = (uint16_t)r->slot;
        at->lane = lane;
        at->flags |= FLAG_LIVE;
    }
    return true;
}

/* --- operations --- */

/* Events and entities of a route have keys of their own. */
static void event_key(uint32_t route, const bson_t *event, uint64_t out[2])
{
    XXH128_hash_t h = XXH3_128bits_withSeed(bson_get_data(event), event->len, ~(uint64_t)route);

    out[0] = h.low64;
    out[1] = h.high64;
}

static bool is_entity_wanted(const struct audit *a, uint32_t route, const bson_t *entity)
{
    XXH128_hash_t h = key_hash(route, entity);
    uint64_t k[2] = {h.low64, h.high64};

    return wanted(a, k);
}

bool audit_event(struct audit *a, const struct record *r, struct audit_event *event, struct err *e)
{
    bool dead = audit_is_dead(a, slice_text(r->topic), r->partition, r->offset);
    struct entry *at;
    uint64_t k[2];

    MUST(r->slot <= UINT16_MAX);
    event->first = false;
    if (!is_entity_wanted(a, r->route, event->entity))
        return true;
    if (!has_room(a, e))
        return false;
    event_key(r->route, event->event, k);
    at = expected(a, k);
    a->books.records++;
    if (dead) {
        at->flags |= FLAG_DEAD;
    } else if (!(at->flags & FLAG_LIVE)) {
        event->first = true;
        at->content = event->what ? content_hash(event->what) : 0;
        at->offset = r->offset;
        at->slot = (uint16_t)r->slot;
        at->flags |= event->what ? FLAG_LIVE : FLAG_LIVE | FLAG_STORED;
    }
    return true;
}

bool audit_entity(struct audit *a, const struct record *r, const bson_t *entity,
                  const bson_t *document, struct err *e)
{
    XXH128_hash_t h = key_hash(r->route, entity);
    uint64_t k[2] = {h.low64, h.high64};
    uint32_t lane = (uint32_t)(r->order_hash >> 32);
    struct entry *at = find(a, k);

    if (!has_room(a, e))
        return false;
    if (!(at->flags & FLAG_USED)) {
        *at = (struct entry){.key = {k[0], k[1]},
                             .flags = FLAG_USED | FLAG_ENTITY,
                             .lane = lane,
                             .slot = (uint16_t)r->slot};
        added(a, k);
        at = find(a, k);
    }
    if (at->lane != lane || at->slot != (uint16_t)r->slot)
        at->flags |= FLAG_OTHERS;
    if (document == NULL) {
        at->flags &= (uint16_t)~FLAG_LIVE;
    } else if (!(at->flags & FLAG_LIVE)) {
        at->content = content_hash(document);
        at->offset = r->offset;
        at->flags |= FLAG_LIVE;
    }
    return true;
}

enum audit_verdict audit_ledger(struct audit *a, uint32_t route, const bson_t *event,
                                const bson_t *what)
{
    bool part = a->from > 0 || a->to < UINT64_MAX;
    struct entry *at;
    uint64_t k[2];

    event_key(route, event, k);
    at = find(a, k);
    if (!(at->flags & FLAG_USED)) {
        a->books.extra += !part;
        return part ? AUDIT_UNWANTED : AUDIT_EXTRA;
    }
    at->flags |= FLAG_STORED; /* twice is not possible: it is the _id */
    if (!(at->flags & FLAG_LIVE) || at->content == content_hash(what)) {
        a->books.right++;
        return AUDIT_RIGHT;
    }
    a->books.different++;
    return AUDIT_DIFFERENT;
}

/* The only ones are the entity's that its events leave there. */
static enum audit_verdict entity_stored(struct audit *a, struct entry *at, const bson_t *document)
{
    if (at->flags & FLAG_STORED) {
        a->books.doubled++;
        return AUDIT_DOUBLE;
    }
    at->flags |= FLAG_STORED;
    if (!(at->flags & (FLAG_LIVE | FLAG_OTHERS))) {
        a->books.extra++;
        return AUDIT_EXTRA;
    }
    if ((at->flags & FLAG_OTHERS) || at->content == content_hash(document)) {
        a->books.right++;
        return AUDIT_RIGHT;
    }
    a->books.different++;
    return AUDIT_DIFFERENT;
}

enum audit_verdict audit_stored(struct audit *a, uint32_t route, const bson_t *key,
                                const bson_t *document)
{
    XXH128_hash_t h = key_hash(route, key);
    uint64_t k[2] = {h.low64, h.high64};
    struct entry *at;
    uint64_t content;

    if (!wanted(a, k))
        return AUDIT_UNWANTED;
    at = find(a, k);
    if (!(at->flags & FLAG_USED)) {
        a->books.extra++;
        return AUDIT_EXTRA;
    }
    if (at->flags & FLAG_ENTITY)
        return entity_stored(a, at, document);
    if (at->flags & FLAG_STORED) {
        a->books.doubled++;
        return AUDIT_DOUBLE;
    }
    at->flags |= FLAG_STORED;
    content = content_hash(document);
    if (((at->flags & FLAG_LIVE) && content == at->content) ||
        ((at->flags & (FLAG_OTHERS | FLAG_DEAD)) && marked(a, at->key, MARK_CONTENT, content))) {
        a->books.right++;
        return AUDIT_RIGHT;
    }
    a->books.different++;
    return AUDIT_DIFFERENT;
}

static void finish_entry(struct audit *a, const struct entry *at, size_t max,
                         audit_missing_fn *each, void *ctx)
{
    if (!(at->flags & FLAG_USED) || (at->flags & (FLAG_STORED | FLAG_MARK)))
        return;
    if ((at->flags & FLAG_ENTITY) && (!(at->flags & FLAG_LIVE) || (at->flags & FLAG_OTHERS)))
        return; /* removed at the end, or nobody can tell */
    if (!(at->flags & FLAG_LIVE))
        a->books.dead++;
    else if (a->books.missing++ < max && each)
        each(ctx, at->slot, at->offset);
}

struct audit_books audit_finish(struct audit *a, size_t max, audit_missing_fn *each, void *ctx)
{
    a->books.dead = a->books.missing = 0;
    for (size_t s = 0; s < SHARDS; s++)
        for (size_t i = 0; i < a->shards[s].cap; i++)
            finish_entry(a, &a->shards[s].entries[i], max, each, ctx);
    return a->books;
}
