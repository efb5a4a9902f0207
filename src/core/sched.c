#include "core/sched.h"

#include <string.h>
#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"

enum {
    FIRST_BUCKETS = 1024, /* a power of two, like every number of buckets */
    KEY_INLINE = 32       /* longer keys get an allocation of their own */
};

enum lane_state {
    LANE_NONE, /* being made or taken apart; never seen outside a call */
    LANE_READY,
    LANE_RUNNING,
    LANE_DELAYED
};

struct lane {
    struct lane *bucket_next; /* also links the free list */
    struct lane *next, *prev; /* READY: the list of the route */
    struct lane *slot_next, *slot_prev;
    struct record *head, *tail; /* queued here, by offset */
    size_t queued;
    size_t out;      /* records of the run that are with a worker; RUNNING: at least 1 */
    bool deferred;   /* RUNNING: a record of the run came back, at_ms is when to go on */
    int64_t at_ms;   /* READY: since when; DELAYED: until when */
    size_t heap_pos; /* DELAYED */
    enum lane_state state;

    uint64_t hash;
    uint32_t slot, route;
    enum order_space space;
    size_t key_len;
    char *long_key; /* instead of key; the records that brought it may be gone */
    char key[KEY_INLINE];
};

struct ready_list {
    struct lane *head, *tail;
    size_t records;    /* that one take of everything would get: at most run_max of each lane */
    uint64_t arrivals; /* records that were ever pushed */
};

/*
 * The table is chained through the lanes themselves, in our own code and not in
 * uthash: a lane is on average entered and removed once a record, and uthash
 * would add 56 bytes and a second list to each.
 */
struct sched {
    size_t run_max;
    struct ready_list *ready; /* by route */
    size_t n_routes;
    struct lane **buckets;
    size_t n_buckets;
    struct lane **slots; /* first lane of each slot, for sched_drop_slot() */
    size_t n_slots;
    struct lane **heap; /* DELAYED lanes, the earliest first */
    size_t heap_cap;
    struct lane *spare;
    struct sched_stats stats; /* stats.delayed is also the size of the heap */
};

struct sched *sched_new(const struct sched_limits *limits)
{
    struct sched *s = mem_new(sizeof(*s));

    s->run_max = limits->run_max > 0 ? limits->run_max : 1;
    s->n_routes = limits->routes;
    s->ready = mem_array(s->n_routes, sizeof(*s->ready));
    s->n_buckets = FIRST_BUCKETS;
    s->buckets = mem_array(s->n_buckets, sizeof(struct lane *));
    return s;
}

void sched_free(struct sched *s)
{
    if (s == NULL)
        return;
    MUST(s->stats.lanes == 0);
    while (s->spare != NULL) {
        struct lane *lane = s->spare;

        s->spare = lane->bucket_next;
        mem_free(lane);
    }
    mem_free(s->ready);
    mem_free(s->buckets);
    mem_free(s->slots);
    mem_free(s->heap);
    mem_free(s);
}

/* ---- the ready lists ---- */

static size_t run_of(const struct sched *s, const struct lane *lane)
{
    return lane->queued < s->run_max ? lane->queued : s->run_max;
}

static void ready_add(struct sched *s, struct lane *lane)
{
    struct ready_list *list = &s->ready[lane->route];

    lane->next = NULL;
    lane->prev = list->tail;
    if (list->tail != NULL)
        list->tail->next = lane;
    else
        list->head = lane;
    list->tail = lane;
    list->records += run_of(s, lane);
}

static void ready_remove(struct sched *s, struct lane *lane)
{
    struct ready_list *list = &s->ready[lane->route];

    if (lane->prev != NULL)
        lane->prev->next = lane->next;
    else
        list->head = lane->next;
    if (lane->next != NULL)
        lane->next->prev = lane->prev;
    else
        list->tail = lane->prev;
    list->records -= run_of(s, lane);
}

/* ---- the heap of due times ---- */

static void heap_put(struct sched *s, size_t pos, struct lane *lane)
{
    s->heap[pos] = lane;
    lane->heap_pos = pos;
}

static void heap_up(struct sched *s, size_t pos, struct lane *lane)
{
    while (pos > 0 && s->heap[(pos - 1) / 2]->at_ms > lane->at_ms) {
        heap_put(s, pos, s->heap[(pos - 1) / 2]);
        pos = (pos - 1) / 2;
    }
    heap_put(s, pos, lane);
}

static void heap_down(struct sched *s, size_t pos, struct lane *lane)
{
    size_t n = s->stats.delayed;

    for (size_t child = 2 * pos + 1; child < n; child = 2 * pos + 1) {
        if (child + 1 < n && s->heap[child + 1]->at_ms < s->heap[child]->at_ms)
            child++;
        if (s->heap[child]->at_ms >= lane->at_ms)
            break;
        heap_put(s, pos, s->heap[child]);
        pos = child;
    }
    heap_put(s, pos, lane);
}

static void heap_add(struct sched *s, struct lane *lane)
{
    size_t n = s->stats.delayed++;

    if (n == s->heap_cap) {
        s->heap_cap = n > 0 ? n * 2 : 64;
        s->heap = mem_grow(s->heap, s->heap_cap, sizeof(struct lane *));
    }
    heap_up(s, n, lane);
}

static void heap_remove(struct sched *s, struct lane *lane)
{
    size_t pos = lane->heap_pos;
    struct lane *last = s->heap[--s->stats.delayed];

    if (last == lane)
        return;
    if (last->at_ms < lane->at_ms)
        heap_up(s, pos, last);
    else
        heap_down(s, pos, last);
}

/* ---- lanes ---- */

/* The only place where a lane changes its state, and with it its container. */
static void lane_move(struct sched *s, struct lane *lane, enum lane_state to)
{
    if (lane->state == LANE_READY)
        ready_remove(s, lane);
    else if (lane->state == LANE_RUNNING)
        s->stats.running--;
    else if (lane->state == LANE_DELAYED)
        heap_remove(s, lane);
    lane->state = to;
    if (to == LANE_READY)
        ready_add(s, lane);
    else if (to == LANE_RUNNING)
        s->stats.running++;
    else if (to == LANE_DELAYED)
        heap_add(s, lane);
}

static struct slice key_of(const struct record *r)
{
    return r->order_space == ORDER_NONE ? slice_of(&r->offset, sizeof(r->offset)) : r->order_key;
}

static bool lane_is_of(const struct lane *lane, const struct record *r, uint64_t hash,
                       struct slice key)
{
    return lane->hash == hash && lane->slot == r->slot && lane->space == r->order_space &&
           lane->key_len == key.len &&
           (key.len == 0 ||
            memcmp(lane->long_key ? lane->long_key : lane->key, key.ptr, key.len) == 0);
}

uint64_t sched_hash(const struct record *r)
{
    struct slice key = key_of(r);
    uint64_t hash = r->order_hash;

    if (hash == 0) {
        uint64_t seed = (uint64_t)r->slot * 8 + (uint64_t)r->order_space;

        hash = XXH3_64bits_withSeed(key.len > 0 ? key.ptr : "", key.len, seed);
    }
    return hash != 0 ? hash : 1;
}

static struct lane **bucket_of(const struct sched *s, uint64_t hash)
{
    return &s->buckets[hash & (s->n_buckets - 1)];
}

static void table_grow(struct sched *s)
{
    struct lane **old = s->buckets;
    size_t n_old = s->n_buckets;

    s->n_buckets = n_old * 2;
    s->buckets = mem_array(s->n_buckets, sizeof(struct lane *));
    for (size_t i = 0; i < n_old; i++) {
        for (struct lane *lane = old[i], *next; lane != NULL; lane = next) {
            struct lane **bucket = bucket_of(s, lane->hash);

            next = lane->bucket_next;
            lane->bucket_next = *bucket;
            *bucket = lane;
        }
    }
    mem_free(old);
}

static struct lane **slot_lanes(struct sched *s, uint32_t slot)
{
    size_t n = (size_t)slot + 1;

    if (n > s->n_slots) {
        s->slots = mem_grow(s->slots, n, sizeof(struct lane *));
        for (size_t i = s->n_slots; i < n; i++)
            s->slots[i] = NULL;
        s->n_slots = n;
    }
    return &s->slots[slot];
}

static struct lane *lane_alloc(struct sched *s)
{
    struct lane *lane = s->spare;

    if (lane == NULL)
        return mem_grow(NULL, 1, sizeof(*lane));
    s->spare = lane->bucket_next;
    return lane;
}

/* In no container yet, without records. */
static struct lane *lane_new(struct sched *s, const struct record *r, uint64_t hash,
                             struct slice key)
{
    struct lane *lane = lane_alloc(s);

    if (s->stats.lanes == s->n_buckets)
        table_grow(s);
    struct lane **bucket = bucket_of(s, hash), **first = slot_lanes(s, r->slot);

    *lane = (struct lane){.bucket_next = *bucket,
                          .slot_next = *first,
                          .hash = hash,
                          .slot = r->slot,
                          .route = r->route,
                          .space = r->order_space,
                          .key_len = key.len};
    if (key.len > KEY_INLINE)
        lane->long_key = mem_text_n(key.ptr, key.len);
    else if (key.len > 0)
        memcpy(lane->key, key.ptr, key.len);
    if (*first != NULL)
        (*first)->slot_prev = lane;
    *first = lane;
    *bucket = lane;
    s->stats.lanes++;
    return lane;
}

/* Whatever is queued in it has to be kept by the caller. */
static void lane_free(struct sched *s, struct lane *lane)
{
    struct lane **bucket = bucket_of(s, lane->hash);

    lane_move(s, lane, LANE_NONE);
    while (*bucket != lane)
        bucket = &(*bucket)->bucket_next;
    *bucket = lane->bucket_next;
    if (lane->slot_prev != NULL)
        lane->slot_prev->slot_next = lane->slot_next;
    else
        s->slots[lane->slot] = lane->slot_next;
    if (lane->slot_next != NULL)
        lane->slot_next->slot_prev = lane->slot_prev;
    mem_free(lane->long_key);
    s->stats.lanes--;
    lane->bucket_next = s->spare;
    s->spare = lane;
}

/* One record of the run is back. After the last one the lane goes on. */
static void lane_back(struct sched *s, struct lane *lane)
{
    MUST(lane->state == LANE_RUNNING && lane->out > 0);
    if (--lane->out > 0)
        return;
    if (lane->head == NULL) {
        lane_free(s, lane);
    } else if (lane->deferred) {
        lane->deferred = false;
        lane_move(s, lane, LANE_DELAYED);
    } else {
        lane->at_ms = lane->head->offered_at_ms;
        lane_move(s, lane, LANE_READY);
    }
}

/* ---- the calls ---- */

void sched_push(struct sched *s, struct record *r)
{
    struct slice key = key_of(r);
    uint64_t hash = sched_hash(r);
    struct lane *lane = *bucket_of(s, hash);

    MUST(r->route < s->n_routes);
    while (lane != NULL && !lane_is_of(lane, r, hash, key))
        lane = lane->bucket_next;
    if (lane == NULL)
        lane = lane_new(s, r, hash, key);
    MUST(lane->route == r->route);

    r->lane = lane;
    r->next = NULL;
    r->arrival = s->ready[r->route].arrivals++;
    if (lane->tail != NULL)
        lane->tail->next = r;
    else
        lane->head = r;
    lane->tail = r;
    lane->queued++;
    s->stats.queued++;
    if (lane->state == LANE_NONE) {
        lane->at_ms = r->offered_at_ms;
        lane_move(s, lane, LANE_READY);
    } else if (lane->state == LANE_READY && lane->queued <= s->run_max) {
        s->ready[lane->route].records++;
    }
}

static void wake_due(struct sched *s, int64_t now_ms)
{
    while (s->stats.delayed > 0 && s->heap[0]->at_ms <= now_ms)
        lane_move(s, s->heap[0], LANE_READY);
}

struct sched_ready sched_ready(struct sched *s, int64_t now_ms)
{
    struct sched_ready ready = {.records = 0, .since_ms = INT64_MAX};

    wake_due(s, now_ms);
    for (size_t i = 0; i < s->n_routes; i++) {
        const struct ready_list *list = &s->ready[i];

        if (list->records > ready.records)
            ready.records = list->records;
        if (list->head != NULL && list->head->at_ms < ready.since_ms)
            ready.since_ms = list->head->at_ms;
    }
    return ready;
}

static struct ready_list *pick_route(struct sched *s, int64_t now_ms, int64_t linger_ms, size_t cap)
{
    struct ready_list *best = NULL;
    bool best_fits = false;

    for (size_t i = 0; i < s->n_routes; i++) {
        struct ready_list *list = &s->ready[i];

        if (list->head == NULL)
            continue;
        bool fits = list->records >= cap || now_ms - list->head->at_ms >= linger_ms;
        if (best == NULL || (fits && !best_fits) ||
            (fits == best_fits && list->head->at_ms < best->head->at_ms)) {
            best = list;
            best_fits = fits;
        }
    }
    return best;
}

/* What a take may still get. */
struct share {
    size_t records, bytes;
    uint64_t before; /* arrivals; the first record of a lane comes whatever its arrival */
};

/* Moves the first records of the lane to out: at most run_max, and as long as *left lasts; the
 * first one anyway when force is set. Returns how many. */
static size_t take_run(struct sched *s, struct lane *lane, struct record **out, struct share *left,
                       bool force)
{
    size_t max = left->records < s->run_max ? left->records : s->run_max;
    size_t n = 0;

    if (!force && lane->head->bytes > left->bytes)
        return 0;
    lane_move(s, lane, LANE_RUNNING);
    do {
        struct record *r = lane->head;

        left->bytes -= r->bytes < left->bytes ? r->bytes : left->bytes;
        lane->head = r->next;
        r->next = NULL;
        out[n++] = r;
    } while (n < max && lane->head != NULL && lane->head->arrival < left->before &&
             lane->head->bytes <= left->bytes);
    if (lane->head == NULL)
        lane->tail = NULL;
    lane->queued -= n;
    lane->out = n;
    s->stats.queued -= n;
    left->records -= n;
    return n;
}

size_t sched_take(struct sched *s, int64_t now_ms, int64_t linger_ms, struct record **out,
                  size_t cap, size_t max_bytes)
{
    size_t n = 0;

    wake_due(s, now_ms);
    struct ready_list *list = pick_route(s, now_ms, linger_ms, cap);
    if (list == NULL || list->head == NULL)
        return 0;
    struct share left = {.records = cap,
                         .bytes = max_bytes,
                         .before = list->head->head->arrival + (uint64_t)SCHED_WINDOW * cap};
    while (list->head != NULL && left.records > 0) {
        size_t got = take_run(s, list->head, out + n, &left, n == 0);

        if (got == 0)
            break;
        n += got;
    }
    return n;
}

void sched_done(struct sched *s, struct record *r)
{
    struct lane *lane = r->lane;

    MUST(lane != NULL);
    r->lane = NULL;
    lane_back(s, lane);
}

void sched_defer(struct sched *s, struct record *r, int64_t due_ms)
{
    struct lane *lane = r->lane;
    struct record *before = NULL;

    MUST(lane != NULL);
    /* Only other records of the same run can be in front of it, so this is short. */
    for (struct record *i = lane->head; i != NULL && i->offset < r->offset; i = i->next)
        before = i;
    r->next = before != NULL ? before->next : lane->head;
    if (before != NULL)
        before->next = r;
    else
        lane->head = r;
    if (r->next == NULL)
        lane->tail = r;
    lane->queued++;
    s->stats.queued++;
    lane->at_ms = lane->deferred && lane->at_ms > due_ms ? lane->at_ms : due_ms;
    lane->deferred = true;
    lane_back(s, lane);
}

bool sched_holds_lane(const struct record *r)
{
    return r->lane != NULL;
}

int64_t sched_next_due(const struct sched *s)
{
    return s->stats.delayed > 0 ? s->heap[0]->at_ms : INT64_MAX;
}

size_t sched_drop_slot(struct sched *s, uint32_t slot, sched_drop_fn *drop, void *arg)
{
    size_t n = 0;

    for (struct lane *lane = slot < s->n_slots ? s->slots[slot] : NULL, *next; lane != NULL;
         lane = next) {
        struct record *r = lane->head;

        next = lane->slot_next;
        n += lane->queued;
        s->stats.queued -= lane->queued;
        if (lane->state == LANE_RUNNING) {
            lane->head = lane->tail = NULL;
            lane->queued = 0;
            lane->deferred = false;
        } else {
            lane_free(s, lane);
        }
        while (r != NULL) {
            struct record *after = r->next;

            r->lane = NULL;
            r->next = NULL;
            drop(r, arg);
            r = after;
        }
    }
    return n;
}

struct sched_stats sched_stats(const struct sched *s)
{
    return s->stats;
}
