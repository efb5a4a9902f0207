#include "core/letter.h"

#include <string.h>
#include <xxhash.h>

#include "base/mem.h"
#include "core/types.h"

static const char prefix[] = "idemsink.";

enum { TOPIC_MAX = 249 };

static bool is_ours(const struct record_header *h)
{
    return h->name.len >= sizeof prefix - 1 && memcmp(h->name.ptr, prefix, sizeof prefix - 1) == 0;
}

/* --- reading ------------------------------------------------------------------------------- */

/* "0", "-12": as we write it, and nothing else. */
static bool number_of(struct slice text, int64_t min, int64_t max, int64_t *out)
{
    const char *at = text.ptr;
    bool negative = text.len > 1 && at[0] == '-';
    int64_t n = 0;

    if (text.len == 0 || text.len > 20 ||
        (text.len > 1 + (size_t)negative && at[negative] == '0') ||
        (negative && text.len == 2 && at[1] == '0'))
        return false;
    for (size_t i = negative; i < text.len; i++) {
        if (at[i] < '0' || at[i] > '9' || __builtin_mul_overflow(n, 10, &n) ||
            __builtin_sub_overflow(n, at[i] - '0', &n))
            return false;
    }
    if (!negative && __builtin_sub_overflow(0, n, &n))
        return false;
    *out = n;
    return n >= min && n <= max;
}

/* What Kafka takes for one. */
static bool topic_of(struct slice text)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

    if (text.len == 0 || text.len > TOPIC_MAX || slice_equal(text, slice_text(".")) ||
        slice_equal(text, slice_text("..")))
        return false;
    for (size_t i = 0; i < text.len; i++)
        if (memchr(letters, ((const char *)text.ptr)[i], sizeof letters - 1) == NULL)
            return false;
    return true;
}

/* One of our headers, found once; NULL in fault while all is well. */
struct reader {
    const struct record *r;
    const char *fault;
};

static struct slice only(struct reader *in, const char *name, bool must, const char *fault)
{
    struct slice wanted = slice_text(name), found = {.ptr = NULL};
    size_t n = 0;

    for (size_t i = 0; i < in->r->n_headers; i++) {
        if (slice_equal(in->r->headers[i].name, wanted)) {
            found = in->r->headers[i].value;
            n++;
        }
    }
    if (in->fault == NULL && (n > 1 || (n == 1 && found.ptr == NULL) || (n == 0 && must)))
        in->fault = fault;
    return found;
}

static int64_t number(struct reader *in, const char *name, int64_t max, const char *fault)
{
    int64_t n = 0;
    struct slice text = only(in, name, true, fault);

    if (in->fault == NULL && !number_of(text, 0, max, &n))
        in->fault = fault;
    return n;
}

/* "dropped: too large, N bytes" */
static bool dropped(struct reader *in, const char *name, const char *fault, int64_t *bytes)
{
    static const char before[] = "dropped: too large, ", behind[] = " bytes";
    struct slice text = only(in, name, false, fault);
    size_t around = sizeof before - 1 + sizeof behind - 1;
    const char *at = text.ptr;

    *bytes = -1;
    if (text.len > around && memcmp(at, before, sizeof before - 1) == 0 &&
        memcmp(at + text.len - (sizeof behind - 1), behind, sizeof behind - 1) == 0 &&
        !number_of(slice_of(at + sizeof before - 1, text.len - around), 0, INT64_MAX, bytes))
        *bytes = -1;
    return text.ptr != NULL;
}

/*
 * The header is there since this module is; before, it was only when the topic refused the original
 * one. A topic with message.timestamp.type = LogAppendTime keeps none but its own.
 */
static void timestamp_of(struct reader *in, struct letter *out)
{
    static const char fault[] = "idemsink.timestamp is there twice, or no number";
    struct slice text = only(in, "idemsink.timestamp", false, fault);

    out->timestamp_type = RECORD_TIMESTAMP_NONE;
    out->timestamp_ms = -1;
    if (text.ptr == NULL) {
        if (in->r->timestamp_type == RECORD_TIMESTAMP_CREATE) {
            out->timestamp_type = RECORD_TIMESTAMP_CREATE;
            out->timestamp_ms = in->r->timestamp_ms;
        }
    } else if (!slice_equal(text, slice_text("none"))) {
        out->timestamp_type = RECORD_TIMESTAMP_CREATE;
        if (in->fault == NULL && !number_of(text, INT64_MIN, INT64_MAX, &out->timestamp_ms))
            in->fault = fault;
    }
}

static void read_ours(struct reader *in, struct letter *out)
{
    struct slice time;
    int64_t ignored;

    out->topic = only(in, "idemsink.topic", true, "idemsink.topic is missing, or there twice");
    if (in->fault == NULL && !topic_of(out->topic))
        in->fault = "idemsink.topic is no topic's name";
    out->partition = (int32_t)number(in, "idemsink.partition", INT32_MAX,
                                     "idemsink.partition is missing, there twice, or no number");
    out->offset = number(in, "idemsink.offset", INT64_MAX,
                         "idemsink.offset is missing, there twice, or no number");
    out->reason = only(in, "idemsink.reason", true, "idemsink.reason is missing, or there twice");
    out->error = only(in, "idemsink.error", true, "idemsink.error is missing, or there twice");
    out->attempts = (uint32_t)number(in, "idemsink.attempts", UINT32_MAX,
                                     "idemsink.attempts is missing, there twice, or no number");
    time = only(in, "idemsink.time", true, "idemsink.time is missing, or there twice");
    if (in->fault == NULL && !types_date(time.ptr, time.len, &out->time_ms))
        in->fault = "idemsink.time is no time";
    out->group = only(in, "idemsink.group", true, "idemsink.group is missing, or there twice");
    out->version =
        only(in, "idemsink.version", true, "idemsink.version is missing, or there twice");
    out->value_dropped =
        dropped(in, "idemsink.value", "idemsink.value is there twice", &out->value_bytes);
    out->headers_dropped =
        dropped(in, "idemsink.headers", "idemsink.headers is there twice", &ignored);
    out->key_dropped = dropped(in, "idemsink.key", "idemsink.key is there twice", &ignored);
    timestamp_of(in, out);
}

void letter_read(const struct record *r, struct letter *out)
{
    struct reader in = {.r = r};
    bool any = false;

    *out = (struct letter){.kind = LETTER_FOREIGN};
    for (size_t i = 0; i < r->n_headers; i++)
        any = any || is_ours(&r->headers[i]);
    if (!any)
        return;
    read_ours(&in, out);
    if (in.fault == NULL)
        out->kind = LETTER_OURS;
    else
        *out = (struct letter){.kind = LETTER_BROKEN, .fault = in.fault};
}

bool letter_is_whole(const struct letter *l)
{
    return !l->value_dropped && !l->headers_dropped && !l->key_dropped;
}

bool letter_is_of(const struct record *letter, const struct letter *l,
                  const struct record *original)
{
    bool same_key = original->key.ptr == NULL ? letter->key.ptr == NULL
                                              : slice_equal(original->key, letter->key);

    return (l->key_dropped || same_key) && original->value.ptr != NULL &&
           l->value_bytes == (int64_t)original->value.len &&
           l->timestamp_type != RECORD_TIMESTAMP_NONE &&
           original->timestamp_type != RECORD_TIMESTAMP_NONE &&
           l->timestamp_ms == original->timestamp_ms;
}

/* --- the record as it was ------------------------------------------------------------------ */

struct record *letter_restore(const struct record *r, const struct letter *l, const char *topic)
{
    struct record_header *theirs = mem_array(r->n_headers, sizeof *theirs);
    struct record_source from = {.topic = topic,
                                 .partition = l->partition,
                                 .offset = l->offset,
                                 .timestamp_type = l->timestamp_type,
                                 .timestamp_ms = l->timestamp_ms,
                                 .key = r->key,
                                 .value = r->value,
                                 .headers = theirs};
    struct record *restored;

    for (size_t i = 0; i < r->n_headers; i++)
        if (!is_ours(&r->headers[i]))
            theirs[from.n_headers++] = r->headers[i];
    restored = record_new(&from);
    restored->attempts = l->attempts < UINT32_MAX ? l->attempts + 1 : l->attempts;
    mem_free(theirs);
    return restored;
}

/* --- which one is the newest --------------------------------------------------------------- */

enum { FLAG_USED = 1, FLAG_WHOLE = 2, FIRST_CAP = 64 };

struct entry {
    uint64_t key[2]; /* of the record's place */
    int64_t time_ms, offset;
    int32_t partition;
    uint32_t flags;
};

struct letter_table {
    struct entry *entries;
    size_t cap; /* a power of two */
    size_t used;
};

struct letter_table *letter_table_new(void)
{
    struct letter_table *t = mem_new(sizeof *t);

    t->cap = FIRST_CAP;
    t->entries = mem_array(t->cap, sizeof *t->entries);
    return t;
}

void letter_table_free(struct letter_table *t)
{
    if (t == NULL)
        return;
    mem_free(t->entries);
    mem_free(t);
}

static XXH128_hash_t place_hash(const struct letter *l)
{
    XXH128_hash_t topic = XXH3_128bits(l->topic.ptr, l->topic.len);
    const uint64_t parts[] = {topic.low64, topic.high64, (uint64_t)l->partition,
                              (uint64_t)l->offset};

    return XXH3_128bits(parts, sizeof parts);
}

/* Its entry, or the free one where it belongs. */
static struct entry *find(const struct letter_table *t, uint64_t low, uint64_t high)
{
    size_t at = (size_t)low & (t->cap - 1);

    while (t->entries[at].flags != 0 &&
           (t->entries[at].key[0] != low || t->entries[at].key[1] != high))
        at = (at + 1) & (t->cap - 1);
    return &t->entries[at];
}

static void grow(struct letter_table *t)
{
    struct letter_table larger = {.cap = 2 * t->cap, .used = t->used};

    larger.entries = mem_array(larger.cap, sizeof *larger.entries);
    for (size_t i = 0; i < t->cap; i++)
        if (t->entries[i].flags != 0)
            *find(&larger, t->entries[i].key[0], t->entries[i].key[1]) = t->entries[i];
    mem_free(t->entries);
    *t = larger;
}

static bool newer(const struct entry *a, const struct entry *b)
{
    if ((a->flags & FLAG_WHOLE) != (b->flags & FLAG_WHOLE))
        return (a->flags & FLAG_WHOLE) != 0;
    if (a->time_ms != b->time_ms)
        return a->time_ms > b->time_ms;
    if (a->partition != b->partition)
        return a->partition > b->partition;
    return a->offset > b->offset;
}

void letter_table_add(struct letter_table *t, const struct letter *l, int32_t partition,
                      int64_t offset)
{
    XXH128_hash_t h = place_hash(l);
    struct entry fresh = {.key = {h.low64, h.high64},
                          .time_ms = l->time_ms,
                          .offset = offset,
                          .partition = partition,
                          .flags = FLAG_USED | (letter_is_whole(l) ? FLAG_WHOLE : 0U)};
    struct entry *entry = find(t, h.low64, h.high64);

    if (entry->flags == 0) {
        *entry = fresh;
        if (++t->used > t->cap / 4 * 3)
            grow(t);
    } else if (newer(&fresh, entry)) {
        *entry = fresh;
    }
}

bool letter_table_newest(const struct letter_table *t, const struct letter *l, int32_t partition,
                         int64_t offset)
{
    XXH128_hash_t h = place_hash(l);
    const struct entry *entry = find(t, h.low64, h.high64);

    return entry->flags != 0 && entry->partition == partition && entry->offset == offset;
}
