#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/sched.h"
#include "fakes/dice.h"

enum { NO_LIMIT = 1000000, NO_LINGER = 0 };

static struct sched *sched_with(size_t routes, size_t run_max)
{
    struct sched_limits limits = {.routes = routes, .run_max = run_max};

    return sched_new(&limits);
}

static struct record record_of(const char *key, int64_t offset)
{
    return (struct record){
        .offset = offset, .bytes = 1, .order_space = ORDER_KEY, .order_key = slice_text(key)};
}

static size_t take(struct sched *s, struct record **out, size_t cap)
{
    return sched_take(s, 0, NO_LINGER, out, cap, NO_LIMIT);
}

static void free_empty(struct sched *s)
{
    struct sched_stats stats = sched_stats(s);

    assert_int_equal(stats.queued, 0);
    assert_int_equal(stats.lanes, 0);
    assert_int_equal(stats.running, 0);
    assert_int_equal(stats.delayed, 0);
    sched_free(s);
}

static void a_lane_is_with_one_worker(void **state)
{
    struct sched *s = sched_with(1, 1);
    struct record a1 = record_of("a", 1), a2 = record_of("a", 2), b3 = record_of("b", 3);
    struct record *out[4];

    (void)state;
    sched_push(s, &a1);
    sched_push(s, &a2);
    sched_push(s, &b3);
    assert_int_equal(sched_ready(s, 0).records, 2);
    assert_int_equal(take(s, out, 4), 2);
    assert_ptr_equal(out[0], &a1);
    assert_ptr_equal(out[1], &b3);
    assert_int_equal(take(s, out, 4), 0);
    assert_int_equal(sched_ready(s, 0).records, 0);
    assert_true(sched_ready(s, 0).since_ms == INT64_MAX);
    assert_true(sched_holds_lane(&a1));
    sched_done(s, &b3);
    assert_false(sched_holds_lane(&b3));
    assert_int_equal(take(s, out, 4), 0);
    sched_done(s, &a1);
    assert_int_equal(take(s, out, 4), 1);
    assert_ptr_equal(out[0], &a2);
    sched_done(s, &a2);
    free_empty(s);
}

static void a_run_is_consecutive_and_bounded(void **state)
{
    struct sched *s = sched_with(1, 3);
    struct record r[6], *out[8];

    (void)state;
    for (int i = 0; i < 5; i++) {
        r[i] = record_of("hot", i);
        sched_push(s, &r[i]);
    }
    r[5] = record_of("cold", 5);
    sched_push(s, &r[5]);
    assert_int_equal(sched_ready(s, 0).records, 4);
    assert_int_equal(take(s, out, 8), 4);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(out[i], &r[i]);
    assert_ptr_equal(out[3], &r[5]);
    sched_done(s, &r[2]);
    sched_done(s, &r[0]);
    assert_int_equal(take(s, out, 8), 0); /* one of the run is still out */
    sched_done(s, &r[1]);
    assert_int_equal(take(s, out, 1), 1); /* cap cuts the run */
    assert_ptr_equal(out[0], &r[3]);
    assert_int_equal(take(s, out, 8), 0);
    sched_done(s, &r[3]);
    assert_int_equal(take(s, out, 8), 1);
    assert_ptr_equal(out[0], &r[4]);
    sched_done(s, &r[4]);
    sched_done(s, &r[5]);
    free_empty(s);
}

/* Two lanes, all of a before all of b, then turn by turn: a take follows the order of arrival. */
static void a_take_stays_near_the_oldest(void **state)
{
    struct sched *s = sched_with(1, 100);
    struct record r[60];
    struct record *out[10];
    size_t n;

    (void)state;
    for (int i = 0; i < 60; i++) {
        r[i] = record_of(i % 2 ? "b" : "a", i);
        sched_push(s, &r[i]);
    }
    /* cap 10: up to the arrival 20 after the oldest, so ten of a; its next ones would leave all of
     * b behind */
    assert_int_equal(sched_take(s, 0, 0, out, 10, SIZE_MAX), 10);
    assert_int_equal(out[9]->offset, 18);
    for (int i = 0; i < 10; i++)
        sched_done(s, out[i]);
    /* now b is first, with 1 as its oldest */
    assert_int_equal(sched_take(s, 0, 0, out, 6, SIZE_MAX), 6);
    assert_int_equal(out[5]->offset, 11);
    for (int i = 0; i < 6; i++)
        sched_done(s, out[i]);
    /* a begins at 20, the window ends at 36: eight of a, and none of b before them */
    assert_int_equal(sched_take(s, 0, 0, out, 8, SIZE_MAX), 8);
    assert_int_equal(out[7]->offset, 34);
    for (int i = 0; i < 8; i++)
        sched_done(s, out[i]);
    while ((n = sched_take(s, 0, 0, out, 10, SIZE_MAX)) > 0)
        for (size_t i = 0; i < n; i++)
            sched_done(s, out[i]);
    sched_free(s);
}

static void failed_ones_come_back_first_and_in_order(void **state)
{
    struct sched *s = sched_with(1, 4);
    struct record r[6], *out[8];

    (void)state;
    for (int i = 0; i < 6; i++) {
        r[i] = record_of("a", 10 + i);
        sched_push(s, &r[i]);
    }
    assert_int_equal(take(s, out, 8), 4);
    sched_defer(s, &r[3], 50); /* 11..13 failed; given back in any order */
    sched_done(s, &r[0]);
    sched_defer(s, &r[1], 70);
    assert_int_equal(sched_stats(s).delayed, 0);
    assert_true(sched_next_due(s) == INT64_MAX);
    sched_defer(s, &r[2], 60);
    assert_int_equal(sched_stats(s).delayed, 1);
    assert_int_equal(sched_next_due(s), 70);
    assert_int_equal(sched_take(s, 69, 0, out, 8, NO_LIMIT), 0);
    assert_int_equal(sched_ready(s, 70).records, 4);
    assert_int_equal(sched_ready(s, 70).since_ms, 70);
    assert_int_equal(sched_take(s, 70, 0, out, 8, NO_LIMIT), 4);
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(out[i], &r[1 + i]);
    for (int i = 0; i < 4; i++)
        sched_done(s, out[i]);
    assert_int_equal(take(s, out, 8), 1);
    sched_defer(s, &r[5], 5); /* alone in its lane; an earlier delay is forgotten */
    assert_int_equal(sched_next_due(s), 5);
    assert_int_equal(sched_take(s, 5, 0, out, 8, NO_LIMIT), 1);
    sched_done(s, &r[5]);
    free_empty(s);
}

static void the_earliest_due_comes_first(void **state)
{
    struct sched *s = sched_with(1, 1);
    const int64_t due[] = {40, 10, 30, 50, 20, 60, 5};
    const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g"};
    const size_t order[] = {6, 1, 4, 2, 0, 3, 5};
    struct record r[7], *out[8];

    (void)state;
    for (int i = 0; i < 7; i++) {
        r[i] = record_of(keys[i], i);
        sched_push(s, &r[i]);
    }
    assert_int_equal(take(s, out, 8), 7);
    for (int i = 0; i < 7; i++)
        sched_defer(s, &r[i], due[i]);
    assert_int_equal(sched_take(s, 30, 0, out, 2, NO_LIMIT), 2);
    assert_ptr_equal(out[0], &r[6]);
    assert_ptr_equal(out[1], &r[1]);
    assert_int_equal(sched_next_due(s), 40);
    assert_int_equal(sched_take(s, 100, 0, out + 2, 8, NO_LIMIT), 5);
    for (int i = 0; i < 7; i++) {
        assert_ptr_equal(out[i], &r[order[i]]);
        sched_done(s, out[i]);
    }
    free_empty(s);
}

static void lanes_are_slot_kind_and_bytes(void **state)
{
    struct sched *s = sched_with(1, 8);
    static const char LONG[] = "a key of more than thirty-two bytes, 1";
    static const char LONG2[] = "a key of more than thirty-two bytes, 2";
    struct record r[11], *out[16];

    (void)state;
    for (int i = 0; i < 11; i++)
        r[i] = record_of("k", i);
    r[1].slot = 1;
    r[2].order_space = ORDER_VALUE;
    r[3].order_key = slice_text("k2");
    r[4].order_key = slice_text("");
    r[5].order_space = ORDER_PARTITION;
    r[5].order_key = slice_of(NULL, 0);
    r[6].order_key = slice_text(LONG);
    r[7].order_key = slice_text(LONG2);
    r[8].order_space = r[9].order_space = ORDER_NONE; /* each its own, whatever the key */
    r[10].order_key = slice_text(LONG);
    for (int i = 0; i < 11; i++) {
        r[i].order_hash = 77; /* all collide: only the comparison is left */
        sched_push(s, &r[i]);
    }
    assert_int_equal(sched_stats(s).lanes, 10);
    assert_int_equal(take(s, out, 16), 11);
    assert_ptr_equal(out[6], &r[6]);
    assert_ptr_equal(out[7], &r[10]);
    for (int i = 0; i < 11; i++)
        sched_done(s, &r[i]);
    free_empty(s);
}

static void the_hash_depends_on_the_lane_alone(void **state)
{
    struct record a = record_of("k", 1), b = record_of("k", 2), given = record_of("k", 3);
    struct record other[3] = {record_of("l", 1), record_of("k", 1), record_of("k", 1)};

    (void)state;
    other[1].slot = 1;
    other[2].order_space = ORDER_DEDUP;
    given.order_hash = 5;
    assert_true(sched_hash(&a) == sched_hash(&b));
    assert_int_equal(sched_hash(&given), 5);
    for (int i = 0; i < 3; i++)
        assert_true(sched_hash(&a) != sched_hash(&other[i]));
    a.order_space = b.order_space = ORDER_NONE;
    assert_true(sched_hash(&a) != sched_hash(&b));
    assert_true(sched_hash(&a) != 0);
}

static void a_key_outlives_the_record_that_brought_it(void **state)
{
    struct sched *s = sched_with(1, 1);
    char text[] = "key of the first record, which is longer than the lane itself has room for";
    struct record a = record_of(text, 1), b, *out[2];

    (void)state;
    sched_push(s, &a);
    assert_int_equal(take(s, out, 2), 1);
    b = record_of("key of the first record, which is longer than the lane itself has room for", 2);
    memset(text, 'x', sizeof(text) - 1);
    sched_push(s, &b);
    assert_int_equal(take(s, out, 2), 0); /* the same lane */
    sched_done(s, &a);
    assert_int_equal(take(s, out, 2), 1);
    sched_done(s, &b);
    free_empty(s);
}

static void bytes_bound_a_take(void **state)
{
    struct sched *s = sched_with(1, 4);
    struct record r[5], *out[8];
    const char *const keys[] = {"a", "a", "a", "b", "b"};
    const size_t bytes[] = {500, 60, 30, 20, 1};

    (void)state;
    for (int i = 0; i < 5; i++) {
        r[i] = record_of(keys[i], i);
        r[i].bytes = bytes[i];
        sched_push(s, &r[i]);
    }
    assert_int_equal(sched_take(s, 0, 0, out, 8, 100), 1); /* too big, but the first */
    assert_int_equal(sched_take(s, 0, 0, out, 8, 20), 1);  /* of the other lane; 20, not 21 */
    assert_ptr_equal(out[0], &r[3]);
    sched_done(s, &r[0]);
    sched_done(s, &r[3]);
    assert_int_equal(sched_take(s, 0, 0, out, 8, 90), 2);
    assert_ptr_equal(out[1], &r[2]);
    assert_int_equal(sched_take(s, 0, 0, out, 8, 1), 1);
    sched_done(s, &r[1]);
    sched_done(s, &r[2]);
    sched_done(s, &r[4]);
    free_empty(s);
}

static void push_in_route(struct sched *s, struct record *r, uint32_t route, int64_t offered_at_ms)
{
    r->route = route;
    r->slot = route;
    r->offered_at_ms = offered_at_ms;
    sched_push(s, r);
}

static void a_take_is_of_one_route(void **state)
{
    struct sched *s = sched_with(3, 1);
    const char *const keys[] = {"a", "b", "c", "d"};
    struct record quiet = record_of("q", 0), busy[4], *out[8];

    (void)state;
    push_in_route(s, &quiet, 0, 100);
    for (int i = 0; i < 4; i++) {
        busy[i] = record_of(keys[i], i);
        push_in_route(s, &busy[i], 2, 103 + i);
    }
    assert_int_equal(sched_ready(s, 104).records, 4);
    assert_int_equal(sched_ready(s, 104).since_ms, 100);
    /* the quiet one lingers, the busy one fills a batch */
    assert_int_equal(sched_take(s, 104, 5, out, 3, NO_LIMIT), 3);
    for (int i = 0; i < 3; i++)
        assert_ptr_equal(out[i], &busy[i]);
    /* neither: what waits longest */
    assert_int_equal(sched_take(s, 104, 5, out + 3, 3, NO_LIMIT), 1);
    assert_ptr_equal(out[3], &quiet);
    for (int i = 0; i < 4; i++)
        sched_done(s, out[i]);
    sched_done(s, (take(s, out, 8), out[0]));
    free_empty(s);
}

static void a_busy_route_does_not_starve_a_quiet_one(void **state)
{
    struct sched *s = sched_with(2, 1);
    struct record quiet = record_of("q", 0), busy[8], *out[8];
    const char *const keys[] = {"a", "b", "c", "d", "e", "f", "g", "h"};

    (void)state;
    for (int i = 0; i < 8; i++) {
        busy[i] = record_of(keys[i], i);
        push_in_route(s, &busy[i], 0, 100 + i);
    }
    push_in_route(s, &quiet, 1, 103);
    assert_int_equal(sched_take(s, 108, 5, out, 4, NO_LIMIT), 4); /* waits longer */
    assert_int_equal(sched_take(s, 108, 5, out + 4, 4, NO_LIMIT), 1);
    assert_ptr_equal(out[4], &quiet); /* though the other could fill the batch once more */
    for (int i = 0; i < 5; i++)
        sched_done(s, out[i]);
    assert_int_equal(sched_take(s, 108, 5, out, 8, NO_LIMIT), 4);
    for (int i = 0; i < 4; i++)
        sched_done(s, out[i]);
    free_empty(s);
}

static void count(struct record *r, void *arg)
{
    size_t *n = arg;

    assert_false(sched_holds_lane(r));
    assert_int_equal(r->slot, 1);
    (*n)++;
}

static void drops_what_is_queued_of_a_slot(void **state)
{
    struct sched *s = sched_with(1, 1);
    struct record ready = record_of("a", 1), out1 = record_of("b", 2), behind = record_of("b", 3);
    struct record late = record_of("c", 4), other = record_of("a", 5), again = record_of("b", 2);
    struct record *all[] = {&out1, &late, &ready, &behind, &other}, *out[8];
    size_t n = 0;

    (void)state;
    other.slot = 0;
    for (size_t i = 0; i < 4; i++)
        all[i]->slot = 1;
    again.slot = 1;
    for (size_t i = 0; i < 2; i++)
        sched_push(s, all[i]);
    assert_int_equal(take(s, out, 8), 2);
    sched_defer(s, &late, 1000);
    for (size_t i = 2; i < 5; i++)
        sched_push(s, all[i]);
    assert_int_equal(sched_drop_slot(s, 7, count, &n), 0);
    assert_int_equal(sched_drop_slot(s, 1, count, &n), 3); /* ready, behind, late */
    assert_int_equal(n, 3);
    assert_true(sched_next_due(s) == INT64_MAX);
    sched_push(s, &again); /* a new epoch: waits for the old one's record of its key */
    assert_int_equal(take(s, out, 8), 1);
    assert_ptr_equal(out[0], &other);
    sched_done(s, &out1);
    assert_int_equal(take(s, out, 8), 1);
    assert_ptr_equal(out[0], &again);
    sched_done(s, &again);
    sched_done(s, &other);
    free_empty(s);
}

static void a_dropped_delay_is_forgotten(void **state)
{
    struct sched *s = sched_with(1, 2);
    struct record a = record_of("a", 1), b = record_of("a", 2), c = record_of("a", 1), *out[4];
    size_t n = 0;

    (void)state;
    a.slot = b.slot = c.slot = 1;
    sched_push(s, &a);
    sched_push(s, &b);
    assert_int_equal(take(s, out, 4), 2);
    sched_defer(s, &a, 1000);
    assert_int_equal(sched_drop_slot(s, 1, count, &n), 1);
    sched_push(s, &c);
    sched_done(s, &b);
    assert_int_equal(sched_next_due(s), INT64_MAX);
    assert_int_equal(take(s, out, 4), 1);
    sched_done(s, &c);
    free_empty(s);
}

/*
 * Against a model that keeps plain arrays and looks at everything each time.
 */
enum { M_SLOTS = 4, M_KEYS = 7, M_LANES = M_SLOTS * M_KEYS, M_ROUTES = 2, M_RECORDS = 400 };

enum m_where { M_UNUSED, M_QUEUED, M_OUT };
struct m_record {
    struct record r;
    size_t lane;
    enum m_where where;
    uint64_t arrival;
};
enum m_state { M_EMPTY, M_READY, M_RUNNING, M_DELAYED };
struct m_lane {
    enum m_state state;
    struct record *queue[M_RECORDS];
    size_t n, out;
    int64_t at_ms;
    bool deferred;
    uint64_t stamp; /* READY: when it became so */
};
struct model {
    struct sched *s;
    struct dice dice;
    size_t run_max;
    int64_t now_ms, next_offset;
    uint64_t stamps, arrivals[M_ROUTES];
    struct m_record all[M_RECORDS];
    struct m_lane lanes[M_LANES];
    size_t dropped;
};

static struct m_record *m_of(struct model *m, const struct record *r)
{
    for (size_t i = 0; i < M_RECORDS; i++) {
        if (&m->all[i].r == r)
            return &m->all[i];
    }
    fail();
    return NULL;
}

static uint32_t m_route(size_t lane)
{
    return (uint32_t)(lane / M_KEYS % M_ROUTES);
}

static void m_ready(struct model *m, struct m_lane *lane, int64_t at_ms)
{
    lane->state = M_READY;
    lane->at_ms = at_ms;
    lane->stamp = ++m->stamps;
}

static void m_wake(struct model *m)
{
    for (;;) {
        struct m_lane *first = NULL;

        for (size_t i = 0; i < M_LANES; i++) {
            struct m_lane *lane = &m->lanes[i];

            if (lane->state == M_DELAYED && lane->at_ms <= m->now_ms &&
                (first == NULL || lane->at_ms < first->at_ms))
                first = lane;
        }
        if (first == NULL)
            return;
        m_ready(m, first, first->at_ms);
    }
}

static void m_back(struct model *m, struct m_lane *lane)
{
    if (--lane->out > 0)
        return;
    if (lane->n == 0)
        lane->state = M_EMPTY;
    else if (lane->deferred)
        lane->state = M_DELAYED;
    else
        m_ready(m, lane, lane->queue[0]->offered_at_ms);
    lane->deferred = false;
}

static struct m_lane *m_first(struct model *m, size_t route)
{
    struct m_lane *first = NULL;

    for (size_t i = 0; i < M_LANES; i++) {
        struct m_lane *lane = &m->lanes[i];

        if (lane->state == M_READY && m_route(i) == route &&
            (first == NULL || lane->stamp < first->stamp))
            first = lane;
    }
    return first;
}

static size_t m_ready_records(const struct model *m, size_t route)
{
    size_t n = 0;

    for (size_t i = 0; i < M_LANES; i++) {
        const struct m_lane *lane = &m->lanes[i];

        if (lane->state == M_READY && m_route(i) == route)
            n += lane->n < m->run_max ? lane->n : m->run_max;
    }
    return n;
}

static void m_push(struct model *m)
{
    static const char *const KEYS[M_KEYS] = {
        "", "a", "b", "c", "\x01\x02", "a key that does not fit into the lane", "e"};
    struct m_record *free_one = NULL;

    for (size_t i = 0; i < M_RECORDS && free_one == NULL; i++)
        free_one = m->all[i].where == M_UNUSED ? &m->all[i] : NULL;
    if (free_one == NULL)
        return;
    size_t at = dice_permille(&m->dice, 300) ? 0 : dice_below(&m->dice, M_LANES);
    struct m_lane *lane = &m->lanes[at];

    free_one->r = record_of(KEYS[at % M_KEYS], m->next_offset++);
    free_one->r.slot = (uint32_t)(at / M_KEYS);
    free_one->r.route = m_route(at);
    free_one->r.bytes = 1 + dice_below(&m->dice, 20);
    free_one->r.offered_at_ms = m->now_ms;
    if (at % M_KEYS == 3)
        free_one->r.order_hash = 9; /* collides */
    free_one->lane = at;
    free_one->arrival = m->arrivals[m_route(at)]++;
    free_one->where = M_QUEUED;
    lane->queue[lane->n++] = &free_one->r;
    if (lane->state == M_EMPTY)
        m_ready(m, lane, m->now_ms);
    sched_push(m->s, &free_one->r);
}

static size_t m_pick(struct model *m, int64_t linger_ms, size_t cap)
{
    size_t best = M_ROUTES;
    bool best_fits = false;

    for (size_t i = 0; i < M_ROUTES; i++) {
        const struct m_lane *first = m_first(m, i);

        if (first == NULL)
            continue;
        bool fits = m_ready_records(m, i) >= cap || m->now_ms - first->at_ms >= linger_ms;
        if (best == M_ROUTES || fits > best_fits ||
            (fits == best_fits && first->at_ms < m_first(m, best)->at_ms)) {
            best = i;
            best_fits = fits;
        }
    }
    return best;
}

static void m_take(struct model *m)
{
    struct record *out[64];
    size_t cap = 1 + dice_below(&m->dice, 12), n = 0;
    size_t bytes = 1 + dice_below(&m->dice, 150), left = bytes;
    int64_t linger_ms = (int64_t)dice_below(&m->dice, 20);

    m_wake(m);
    size_t route = m_pick(m, linger_ms, cap);
    size_t got = sched_take(m->s, m->now_ms, linger_ms, out, cap, bytes);
    struct m_lane *lane;
    uint64_t before = 0;

    while (route < M_ROUTES && n < cap && (lane = m_first(m, route)) != NULL) {
        size_t run = 0;

        before = before > 0 ? before : m_of(m, lane->queue[0])->arrival + SCHED_WINDOW * cap;
        while (n < cap && run < m->run_max && run < lane->n &&
               (n == 0 || lane->queue[run]->bytes <= left) &&
               (run == 0 || m_of(m, lane->queue[run])->arrival < before)) {
            struct record *r = lane->queue[run++];

            assert_true(n < got);
            assert_ptr_equal(out[n++], r);
            left -= r->bytes < left ? r->bytes : left;
            m_of(m, r)->where = M_OUT;
        }
        if (run == 0)
            break;
        lane->n -= run;
        memmove(lane->queue, lane->queue + run, lane->n * sizeof(struct record *));
        lane->out = run;
        lane->state = M_RUNNING;
    }
    assert_int_equal(got, n);
}

static int64_t m_unique_due(const struct model *m)
{
    struct dice dice = m->dice;
    int64_t due = m->now_ms + 1 + (int64_t)dice_below(&dice, 100);

    for (size_t i = 0; i < M_LANES; i++) {
        if (m->lanes[i].at_ms == due) {
            due++;
            i = (size_t)-1;
        }
    }
    return due;
}

static void m_return(struct model *m)
{
    size_t at = dice_below(&m->dice, M_RECORDS);
    struct m_record *r = NULL;

    for (size_t i = 0; i < M_RECORDS && r == NULL; i++)
        r = m->all[(at + i) % M_RECORDS].where == M_OUT ? &m->all[(at + i) % M_RECORDS] : NULL;
    if (r == NULL)
        return;
    struct m_lane *lane = &m->lanes[r->lane];

    if (dice_permille(&m->dice, 700)) {
        r->where = M_UNUSED;
        sched_done(m->s, &r->r);
    } else {
        int64_t due = m_unique_due(m);
        size_t i = 0;

        while (i < lane->n && lane->queue[i]->offset < r->r.offset)
            i++;
        memmove(lane->queue + i + 1, lane->queue + i, (lane->n - i) * sizeof(struct record *));
        lane->queue[i] = &r->r;
        lane->n++;
        lane->at_ms = lane->deferred && lane->at_ms > due ? lane->at_ms : due;
        lane->deferred = true;
        r->where = M_QUEUED;
        sched_defer(m->s, &r->r, due);
    }
    m_back(m, lane);
}

static void m_dropped(struct record *r, void *arg)
{
    struct model *m = arg;
    struct m_record *mine = m_of(m, r);

    assert_int_equal(mine->where, M_QUEUED);
    mine->where = M_UNUSED;
    m->dropped++;
}

static void m_drop(struct model *m)
{
    uint32_t slot = (uint32_t)dice_below(&m->dice, M_SLOTS);
    size_t expected = 0, before = m->dropped;

    for (size_t i = (size_t)slot * M_KEYS; i < ((size_t)slot + 1) * M_KEYS; i++) {
        struct m_lane *lane = &m->lanes[i];

        expected += lane->n;
        lane->n = 0;
        lane->deferred = false;
        if (lane->state != M_RUNNING)
            lane->state = M_EMPTY;
    }
    assert_int_equal(sched_drop_slot(m->s, slot, m_dropped, m), expected);
    assert_int_equal(m->dropped - before, expected);
}

static void m_compare(struct model *m)
{
    struct sched_stats right = {0};
    int64_t due = INT64_MAX, since = INT64_MAX;
    size_t records = 0;

    m_wake(m);
    struct sched_ready ready = sched_ready(m->s, m->now_ms);
    struct sched_stats got = sched_stats(m->s);
    for (size_t i = 0; i < M_LANES; i++) {
        const struct m_lane *lane = &m->lanes[i];

        right.queued += lane->n;
        right.lanes += lane->state != M_EMPTY;
        right.running += lane->state == M_RUNNING;
        right.delayed += lane->state == M_DELAYED;
        if (lane->state == M_DELAYED && lane->at_ms < due)
            due = lane->at_ms;
    }
    for (size_t i = 0; i < M_ROUTES; i++) {
        const struct m_lane *first = m_first(m, i);
        size_t n = m_ready_records(m, i);

        records = n > records ? n : records;
        since = first != NULL && first->at_ms < since ? first->at_ms : since;
    }
    assert_int_equal(got.queued, right.queued);
    assert_int_equal(got.lanes, right.lanes);
    assert_int_equal(got.running, right.running);
    assert_int_equal(got.delayed, right.delayed);
    assert_int_equal(sched_next_due(m->s), due);
    assert_int_equal(ready.records, records);
    assert_int_equal(ready.since_ms, since);
}

static void m_finish(struct model *m)
{
    for (size_t i = 0; i < M_RECORDS; i++) {
        if (m->all[i].where != M_OUT)
            continue;
        sched_done(m->s, &m->all[i].r);
        m->all[i].where = M_UNUSED;
    }
    for (uint32_t slot = 0; slot < M_SLOTS; slot++)
        (void)sched_drop_slot(m->s, slot, m_dropped, m);
    free_empty(m->s);
}

static void does_what_a_naive_model_does(void **state)
{
    static struct model m;
    struct dice dice = dice_seed("sched");

    (void)state;
    for (size_t run_max = 1; run_max <= 9; run_max += 4) {
        m = (struct model){.s = sched_with(M_ROUTES, run_max),
                           .dice = dice_split(&dice),
                           .run_max = run_max,
                           .now_ms = 1000};
        for (int step = 0; step < 20000; step++) {
            uint64_t what = dice_below(&m.dice, 1000);

            m.now_ms += (int64_t)dice_below(&m.dice, 3);
            if (what < 400)
                m_push(&m);
            else if (what < 550)
                m_take(&m);
            else if (what < 990)
                m_return(&m);
            else
                m_drop(&m);
            m_compare(&m);
        }
        m_finish(&m);
    }
}

static void many_lanes_grow_the_table(void **state)
{
    enum { N = 5000 };
    struct sched *s = sched_with(1, 1);
    struct record *r = calloc(N, sizeof(*r)), **out = calloc(N, sizeof(struct record *));

    (void)state;
    assert_non_null(r);
    assert_non_null(out);
    for (int round = 0; round < 2; round++) { /* the second with recycled lanes */
        for (int i = 0; i < N; i++) {
            r[i] = (struct record){.offset = i, .order_space = ORDER_NONE, .slot = (uint32_t)i % 7};
            sched_push(s, &r[i]);
        }
        assert_int_equal(sched_stats(s).lanes, N);
        assert_int_equal(take(s, out, N), N);
        for (int i = 0; i < N; i++)
            assert_ptr_equal(out[i], &r[i]);
        for (int i = N; i > 0; i--)
            sched_done(s, &r[i - 1]);
    }
    free(r);
    free(out);
    free_empty(s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lane_is_with_one_worker),
        cmocka_unit_test(a_run_is_consecutive_and_bounded),
        cmocka_unit_test(a_take_stays_near_the_oldest),
        cmocka_unit_test(failed_ones_come_back_first_and_in_order),
        cmocka_unit_test(the_earliest_due_comes_first),
        cmocka_unit_test(lanes_are_slot_kind_and_bytes),
        cmocka_unit_test(the_hash_depends_on_the_lane_alone),
        cmocka_unit_test(a_key_outlives_the_record_that_brought_it),
        cmocka_unit_test(bytes_bound_a_take),
        cmocka_unit_test(a_take_is_of_one_route),
        cmocka_unit_test(a_busy_route_does_not_starve_a_quiet_one),
        cmocka_unit_test(drops_what_is_queued_of_a_slot),
        cmocka_unit_test(a_dropped_delay_is_forgotten),
        cmocka_unit_test(many_lanes_grow_the_table),
        cmocka_unit_test(does_what_a_naive_model_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
