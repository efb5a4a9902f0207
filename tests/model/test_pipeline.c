/* What one thread, or a few with known moves, can show of the pipeline; the rest is the soak's. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fakes/check.h"
#include "run/pipeline.h"

enum { CAP = 64, PLENTY = 1000000, LONG_MS = 20000 };

static struct pipeline *pipeline_with(size_t max_records, size_t run_max)
{
    struct pipeline_limits limits = {
        .max_records = max_records, .max_bytes = PLENTY, .routes = 2, .run_max = run_max};

    return pipeline_new(&limits);
}

static struct record *record_at(uint32_t slot, const char *key, int64_t offset)
{
    struct record_source from = {
        .topic = "t", .slot = slot, .offset = offset, .key = slice_text(key)};
    struct record *r = record_new(&from);

    r->order_space = ORDER_KEY;
    r->order_key = r->key;
    return r;
}

static void offer(struct pipeline *p, uint32_t slot, const char *key, int64_t offset)
{
    assert_true(pipeline_offer(p, record_at(slot, key, offset)));
}

/* A lane of its own. */
static void offer_lone(struct pipeline *p, uint32_t slot, int64_t offset)
{
    struct record *r = record_at(slot, NULL, offset);

    r->order_space = ORDER_NONE;
    assert_true(pipeline_offer(p, r));
}

/* Of records that are there: this never waits. */
static size_t take(struct pipeline *p, struct record **out)
{
    return pipeline_take(p, out, CAP, PLENTY, 0);
}

static struct record *take_one(struct pipeline *p, int64_t offset)
{
    struct record *r;

    assert_int_equal(pipeline_take(p, &r, 1, PLENTY, 0), 1);
    assert_int_equal(r->offset, offset);
    return r;
}

static void settle(struct pipeline *p, struct record *r, enum pipeline_outcome outcome)
{
    struct settled s = {.record = r, .outcome = outcome};

    pipeline_settle(p, &s, 1);
}

static void finish_and_settle(struct pipeline *p, struct record **r, size_t n)
{
    pipeline_finish(p, r, n);
    for (size_t i = 0; i < n; i++)
        settle(p, r[i], PIPELINE_INSERTED);
}

static struct pipeline_slot_stats slot_stats(struct pipeline *p, uint32_t slot)
{
    struct pipeline_slot_stats slots[16], found = {.slot = UINT32_MAX};
    struct pipeline_stats stats;

    pipeline_stats(p, &stats, slots, 16);
    for (size_t i = 0; i < stats.n_slots; i++) {
        if (slots[i].slot == slot)
            found = slots[i];
    }
    assert_int_equal(found.slot, slot);
    return found;
}

static struct pipeline_stats whole(struct pipeline *p)
{
    struct pipeline_stats stats;

    pipeline_stats(p, &stats, NULL, 0);
    return stats;
}

static void lane_and_offset_end_apart(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);
    struct record *a, *b;

    (void)state;
    pipeline_assign(p, 4, 10);
    offer(p, 4, "k", 10);
    offer(p, 4, "k", 12);
    assert_int_equal(pipeline_watermark(p, 4), 10);
    a = take_one(p, 10);
    assert_int_equal(whole(p).in_flight, 1);
    pipeline_finish(p, &a, 1);
    assert_int_equal(whole(p).in_flight, 0);
    b = take_one(p, 12); /* the lane goes on though 10 is not settled */
    pipeline_finish(p, &b, 1);
    settle(p, b, PIPELINE_DUPLICATE);
    assert_int_equal(pipeline_watermark(p, 4), 10);
    assert_true(slot_stats(p, 4).oldest_at_ms > 0);
    settle(p, a, PIPELINE_INSERTED);
    assert_int_equal(pipeline_watermark(p, 4), 13);
    struct pipeline_slot_stats s = slot_stats(p, 4);
    assert_int_equal(s.consumed, 2);
    assert_int_equal(s.outcomes[PIPELINE_INSERTED], 1);
    assert_int_equal(s.outcomes[PIPELINE_DUPLICATE], 1);
    assert_int_equal(s.oldest_at_ms, 0);
    assert_int_equal(s.position, 13);
    assert_true(s.assigned);
    assert_int_equal(pipeline_revoke(p, 4), 13);
    assert_int_equal(pipeline_revoke(p, 4), -1);
    assert_int_equal(pipeline_revoke(p, 99), -1);
    pipeline_free(p);
}

static void refuses_what_is_not_above_or_not_ours(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);
    struct record *r = record_at(0, "k", 5), *out[CAP];

    (void)state;
    assert_false(pipeline_offer(p, r));
    pipeline_assign(p, 0, 0);
    offer(p, 0, "k", 5);
    assert_false(pipeline_offer(p, r)); /* still the caller's */
    record_free(r);
    assert_int_equal(slot_stats(p, 0).consumed, 1);
    finish_and_settle(p, out, take(p, out));
    pipeline_free(p);
}

static void late_records_change_nothing(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);
    struct record *settles, *defers, *again, *other;
    bool current[2];

    (void)state;
    pipeline_assign(p, 0, 0);
    offer(p, 0, "a", 0);
    offer(p, 0, "b", 1);
    settles = take_one(p, 0);
    defers = take_one(p, 1);
    assert_int_equal(pipeline_revoke(p, 0), 0);
    pipeline_assign(p, 0, 0);
    offer(p, 0, "a", 0);
    offer(p, 0, "b", 1);
    offer(p, 0, "c", 2);
    other = take_one(p, 2); /* a and b wait for the old epoch's */
    pipeline_current(p, (struct record *[]){settles, other}, 2, current);
    assert_false(current[0]);
    assert_true(current[1]);
    pipeline_defer(p, &defers, 1, 0); /* is not tried again */
    again = take_one(p, 1);
    assert_int_equal(again->attempts, 0);
    pipeline_finish(p, &settles, 1);
    settle(p, settles, PIPELINE_INSERTED);
    assert_int_equal(pipeline_watermark(p, 0), 0);
    struct pipeline_slot_stats s = slot_stats(p, 0);
    assert_int_equal(s.consumed, 5);
    assert_int_equal(s.late, 2);
    assert_int_equal(s.open, 3);
    assert_int_equal(s.outcomes[PIPELINE_INSERTED], 0);
    finish_and_settle(p, &again, 1);
    finish_and_settle(p, &other, 1);
    again = take_one(p, 0);
    finish_and_settle(p, &again, 1);
    assert_int_equal(pipeline_watermark(p, 0), 3);
    pipeline_free(p);
}

static void deferred_records_come_back_when_due(void **state)
{
    struct pipeline *p = pipeline_with(100, 4);
    struct record *out[CAP];

    (void)state;
    pipeline_assign(p, 0, 0);
    offer(p, 0, "a", 0);
    offer(p, 0, "a", 1);
    offer(p, 0, "a", 2);
    assert_int_equal(take(p, out), 3);
    finish_and_settle(p, out, 1);
    int64_t from_ms = clock_mono_ms();
    pipeline_defer(p, out + 1, 2, 30);
    assert_int_equal(whole(p).sched.delayed, 1);
    assert_int_equal(take(p, out), 2); /* sleeps until then */
    assert_true(clock_mono_ms() - from_ms >= 30);
    assert_int_equal(out[0]->offset, 1);
    assert_int_equal(out[1]->offset, 2);
    assert_int_equal(out[0]->attempts, 1);
    finish_and_settle(p, out, 2);
    assert_int_equal(pipeline_watermark(p, 0), 3);
    pipeline_free(p);
}

/* Each is counted from its first failure until it is out, whichever way it leaves. */
static void records_that_wait_for_the_dead_letter_topic_are_counted(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);
    struct record *out[CAP], *by_offset[3];
    static const char *const keys[] = {"a", "b", "c"};

    (void)state;
    pipeline_assign(p, 0, 0);
    for (int i = 0; i < 3; i++)
        offer(p, 0, keys[i], i);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(take(p, out), 3);
        for (int i = 0; i < 3; i++)
            by_offset[out[i]->offset] = out[i];
        assert_int_equal(slot_stats(p, 0).letters, round == 0 ? 0 : 2);
        for (int i = 0; i < 2; i++)
            record_reject(by_offset[i], REASON_TOO_DEEP, 0, "too deep");
        if (round < 2)
            pipeline_defer(p, out, 3, 0);
    }
    finish_and_settle(p, &by_offset[0], 1);
    assert_int_equal(slot_stats(p, 0).letters, 1);
    finish_and_settle(p, &by_offset[2], 1);
    assert_int_equal(pipeline_revoke(p, 0), 1);
    assert_int_equal(slot_stats(p, 0).letters, 1);
    pipeline_defer(p, &by_offset[1], 1, 0); /* late: dropped */
    assert_int_equal(slot_stats(p, 0).letters, 0);
    pipeline_free(p);
}

static void a_drain_drops_and_waits_for_the_unsettled(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);
    const uint32_t slots[] = {0, 7};
    struct record *a, *b, *c;

    (void)state;
    pipeline_assign(p, 0, 0);
    pipeline_assign(p, 1, 0);
    offer(p, 0, "a", 0);
    offer(p, 0, "b", 1);
    offer(p, 0, "a", 2);
    offer(p, 0, "c", 3);
    a = take_one(p, 0);
    b = take_one(p, 1);
    offer(p, 1, "a", 0);
    assert_false(pipeline_drain(p, slots, 2, 0)); /* two are with a worker; 7 is not known */
    assert_int_equal(slot_stats(p, 0).dropped, 2);
    pipeline_defer(p, &b, 1, 0); /* not again: dropped */
    assert_int_equal(slot_stats(p, 0).dropped, 3);
    offer(p, 0, "d", 9); /* nor this one; it keeps the watermark down all the same */
    assert_int_equal(slot_stats(p, 0).dropped, 4);
    assert_false(pipeline_wants(p, 0, false));
    assert_true(pipeline_wants(p, 1, false));
    c = take_one(p, 0); /* of slot 1, which goes on; there is nothing else to take */
    assert_int_equal(c->slot, 1);
    finish_and_settle(p, &c, 1);
    pipeline_finish(p, &a, 1);
    assert_false(pipeline_drain(p, slots, 1, 0)); /* finished, but the offset is not done */
    settle(p, a, PIPELINE_INSERTED);
    assert_true(pipeline_drain(p, slots, 1, 0));
    pipeline_end(p, 0, 50);
    assert_int_equal(pipeline_watermark(p, 0), 1); /* what was dropped is not settled */
    assert_int_equal(pipeline_revoke(p, 0), 1);
    pipeline_assign(p, 0, 1); /* reading and dispatch go on */
    assert_true(pipeline_wants(p, 0, false));
    offer(p, 0, "b", 1);
    b = take_one(p, 1);
    finish_and_settle(p, &b, 1);
    pipeline_free(p);
}

static void what_a_drain_drops_is_not_committed(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);
    const uint32_t slot = 0;

    (void)state;
    pipeline_assign(p, 0, 3);
    offer(p, 0, "a", 4);
    offer(p, 0, "b", 5);
    assert_true(pipeline_drain(p, &slot, 1, LONG_MS)); /* nothing is out: at once */
    pipeline_end(p, 0, 50);
    assert_int_equal(pipeline_watermark(p, 0), 4);
    assert_int_equal(pipeline_revoke(p, 0), 4);
    pipeline_free(p);
}

static void a_revoke_alone_drops_what_is_queued(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);

    (void)state;
    pipeline_assign(p, 0, 5);
    offer(p, 0, "a", 5);
    offer(p, 0, "a", 6);
    assert_int_equal(pipeline_revoke(p, 0), 5);
    assert_int_equal(slot_stats(p, 0).dropped, 2);
    pipeline_assign(p, 0, 5);
    offer(p, 0, "a", 5);
    pipeline_assign(p, 0, 5); /* without a revoke */
    assert_int_equal(slot_stats(p, 0).dropped, 3);
    assert_int_equal(whole(p).sched.lanes, 0);
    pipeline_free(p);
}

struct helper {
    struct pipeline *pipeline;
    struct record *record;
    pthread_t id;
};

static void *settle_one(void *arg)
{
    struct helper *h = arg;

    finish_and_settle(h->pipeline, &h->record, 1);
    return NULL;
}

static void a_drain_ends_when_the_last_one_is_settled(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);
    struct helper h = {.pipeline = p};
    const uint32_t slot = 0;

    (void)state;
    for (int64_t i = 0; i < 200; i++) { /* before, while, and after the drain starts to wait */
        pipeline_assign(p, 0, i);
        offer(p, 0, "a", i);
        h.record = take_one(p, i);
        int64_t from_ms = clock_mono_ms();
        assert_int_equal(pthread_create(&h.id, NULL, settle_one, &h), 0);
        assert_true(pipeline_drain(p, &slot, 1, LONG_MS));
        assert_true(clock_mono_ms() - from_ms < LONG_MS / 2);
        assert_int_equal(pipeline_revoke(p, 0), i + 1);
        (void)pthread_join(h.id, NULL);
    }
    pipeline_free(p);
}

/* How many records of lanes of their own the slot may hold until it is refused. */
static size_t fill(struct pipeline *p, uint32_t slot, int64_t from)
{
    size_t n = 0;

    for (; pipeline_wants(p, slot, false); n++) {
        assert_true(n < 10000);
        offer_lone(p, slot, from + (int64_t)n);
    }
    return n;
}

static void empty(struct pipeline *p)
{
    struct record *out[CAP];

    while (whole(p).sched.queued > 0)
        finish_and_settle(p, out, take(p, out));
}

static void the_budget_is_half_common_half_shared(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);

    (void)state;
    assert_false(pipeline_wants(p, 3, false));
    pipeline_assign(p, 0, 0);
    assert_int_equal(fill(p, 0, 0), 50); /* alone: half is common, half its share; not both twice */
    pipeline_revoke(p, 0);
    for (uint32_t slot = 0; slot < 5; slot++)
        pipeline_assign(p, slot, 0);
    assert_int_equal(fill(p, 0, 0), 50); /* the stuck one */
    for (uint32_t slot = 1; slot < 5; slot++)
        assert_int_equal(fill(p, slot, 0), 10); /* has no more than the common half */
    empty(p);
    assert_int_equal(fill(p, 1, 100), 50);
    empty(p);
    pipeline_free(p);
}

static void the_budget_holds_when_shares_shrink(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);
    const size_t right[] = {50, 25, 16, 9, 1, 1}; /* shares of 50, 25, 16, 12, 10, 8 */

    (void)state;
    for (uint32_t slot = 0; slot < 6; slot++) {
        pipeline_assign(p, slot, 0);
        assert_int_equal(fill(p, slot, 0), right[slot]);
    }
    assert_int_equal(whole(p).open, 102);
    empty(p);
    pipeline_free(p);
}

/* Large records: the first one of each partition is not let in for ever. */
static void one_of_each_is_bounded_too(void **state)
{
    struct pipeline_limits limits = {
        .max_records = 1000, .max_bytes = 4 * sizeof(struct record), .routes = 1, .run_max = 1};
    struct pipeline *p = pipeline_new(&limits);
    size_t let_in = 0;

    (void)state;
    for (uint32_t slot = 0; slot < 20; slot++)
        pipeline_assign(p, slot, 0);
    for (uint32_t slot = 0; slot < 20; slot++)
        let_in += fill(p, slot, 0);
    assert_int_equal(let_in, 6);
    empty(p);
    pipeline_free(p);
}

static void bytes_are_budgeted_too(void **state)
{
    struct pipeline_limits limits = {
        .max_records = 1000, .max_bytes = 40 * sizeof(struct record), .routes = 1, .run_max = 1};
    struct pipeline *p = pipeline_new(&limits);

    (void)state;
    pipeline_assign(p, 0, 0);
    assert_int_equal(fill(p, 0, 0), 20);
    assert_int_equal(whole(p).open_bytes, 20 * sizeof(struct record));
    empty(p);
    assert_int_equal(whole(p).open_bytes, 0);
    pipeline_free(p);
}

static void what_settles_behind_a_stuck_record_is_bounded(void **state)
{
    struct pipeline *p = pipeline_with(100, 1);
    struct record *stuck, *r;
    int64_t offset = 1;

    (void)state;
    pipeline_assign(p, 0, 0);
    offer_lone(p, 0, 0);
    stuck = take_one(p, 0);
    for (; pipeline_wants(p, 0, false); offset++) {
        offer_lone(p, 0, offset);
        r = take_one(p, offset);
        finish_and_settle(p, &r, 1);
        assert_true(offset < 10000);
    }
    assert_int_equal(whole(p).open, 1);
    assert_int_equal(offset, 100 * PIPELINE_WINDOW_FACTOR / 2);
    finish_and_settle(p, &stuck, 1);
    assert_true(pipeline_wants(p, 0, false));
    assert_int_equal(pipeline_watermark(p, 0), offset);
    pipeline_free(p);
}

static void count_wake(void *ctx)
{
    atomic_int *wakes = ctx;

    atomic_fetch_add(wakes, 1);
}

static void the_intake_is_woken_once_and_in_good_time(void **state)
{
    atomic_int wakes = 0;
    struct pipeline_limits limits = {.max_records = 100,
                                     .max_bytes = PLENTY,
                                     .routes = 1,
                                     .run_max = 1,
                                     .wake = count_wake,
                                     .wake_ctx = &wakes};
    struct pipeline *p = pipeline_new(&limits);
    struct record *out[CAP];

    (void)state;
    pipeline_assign(p, 0, 0);
    offer_lone(p, 0, 0);
    finish_and_settle(p, out, take(p, out));
    assert_int_equal(wakes, 0); /* nobody was refused */
    assert_int_equal(fill(p, 0, 1), 50);
    assert_int_equal(take(p, out), 50);
    finish_and_settle(p, out, 13); /* 37 of 50 are left */
    assert_int_equal(wakes, 0);
    finish_and_settle(p, out + 13, 1); /* 36: a quarter is free */
    assert_int_equal(wakes, 1);
    finish_and_settle(p, out + 14, 6);
    assert_int_equal(wakes, 1); /* was told */
    assert_true(pipeline_wants(p, 0, false));
    assert_int_equal(fill(p, 0, 100), 20);
    finish_and_settle(p, out + 20, 30);
    assert_int_equal(wakes, 2);
    empty(p);
    pipeline_free(p);
}

/* One that was set aside doesn't come back for each place that the others leave. */
static void set_aside_comes_back_with_little(void **state)
{
    atomic_int wakes = 0;
    struct pipeline_limits limits = {.max_records = 80,
                                     .max_bytes = PLENTY,
                                     .routes = 1,
                                     .run_max = 1,
                                     .wake = count_wake,
                                     .wake_ctx = &wakes};
    struct pipeline *p = pipeline_new(&limits);
    struct record *out[CAP];

    (void)state;
    pipeline_assign(p, 0, 0);
    pipeline_assign(p, 1, 0);
    assert_int_equal(fill(p, 0, 0), 40);
    assert_int_equal(take(p, out), 40);
    assert_false(pipeline_wants(p, 0, true));
    finish_and_settle(p, out, 20); /* half of the free half is there: enough for others */
    assert_true(pipeline_wants(p, 0, false));
    assert_false(pipeline_wants(p, 0, true));
    assert_int_equal(wakes, 0);
    finish_and_settle(p, out + 20, 10);
    assert_int_equal(wakes, 0);
    finish_and_settle(p, out + 30, 1); /* 9 of a share of 20 */
    assert_int_equal(wakes, 1);
    assert_true(pipeline_wants(p, 0, true));
    finish_and_settle(p, out + 31, 9);
    empty(p);
    pipeline_free(p);
}

static void a_take_lingers_for_more_and_not_longer(void **state)
{
    struct pipeline *p = pipeline_with(1000, 1);
    struct record *out[CAP];
    int64_t from_ms;

    (void)state;
    pipeline_assign(p, 0, 0);
    from_ms = clock_mono_ms();
    offer_lone(p, 0, 0);
    assert_int_equal(pipeline_take(p, out, CAP, PLENTY, 30), 1);
    assert_true(clock_mono_ms() - from_ms >= 30);
    finish_and_settle(p, out, 1);
    from_ms = clock_mono_ms();
    for (int64_t i = 1; i <= CAP; i++)
        offer_lone(p, 0, i);
    assert_int_equal(pipeline_take(p, out, CAP, PLENTY, LONG_MS), CAP); /* full: at once */
    assert_true(clock_mono_ms() - from_ms < LONG_MS / 2);
    finish_and_settle(p, out, CAP);
    pipeline_free(p);
}

/* Workers that take one batch each, and hold it until everybody has one. */
struct crew {
    struct pipeline *pipeline;
    size_t cap;
    int64_t linger_ms;
    atomic_int holding, left;
    int wanted;
};

static void *crew_member(void *arg)
{
    struct crew *c = arg;
    struct record *out[CAP];
    int64_t until_ms = clock_mono_ms() + LONG_MS / 4;
    size_t n = pipeline_take(c->pipeline, out, c->cap, PLENTY, c->linger_ms);

    if (n > 0) {
        atomic_fetch_add(&c->holding, 1);
        while (atomic_load(&c->holding) < c->wanted) {
            struct timespec t = {.tv_nsec = 200000};
            CHECK(clock_mono_ms() < until_ms, "%d of %d workers were woken",
                  atomic_load(&c->holding), c->wanted);
            (void)nanosleep(&t, NULL);
        }
        pipeline_finish(c->pipeline, out, n);
        for (size_t i = 0; i < n; i++)
            settle(c->pipeline, out[i], PIPELINE_SKIPPED);
    } else {
        atomic_fetch_add(&c->left, 1);
    }
    return NULL;
}

enum { CREW = 4 };

static void crew_start(struct crew *c, pthread_t *ids)
{
    for (int i = 0; i < CREW; i++)
        assert_int_equal(pthread_create(&ids[i], NULL, crew_member, c), 0);
}

static void crew_join(pthread_t *ids)
{
    for (int i = 0; i < CREW; i++)
        assert_int_equal(pthread_join(ids[i], NULL), 0);
}

/* No wake-up may be lost: each of them holds its batch until all have one. */
static void every_worker_that_is_needed_is_woken(void **state)
{
    static const struct {
        size_t cap;
        int64_t linger_ms;
        int records;
    } cases[] = {{1, 0, CREW}, {1, LONG_MS, CREW}, {10, LONG_MS, 10 * CREW}, {1, 1, CREW}};

    (void)state;
    for (int round = 0; round < 200; round++) {
        size_t k = (size_t)round % 4;
        struct pipeline *p = pipeline_with(1000, 1);
        struct crew c = {
            .pipeline = p, .cap = cases[k].cap, .linger_ms = cases[k].linger_ms, .wanted = CREW};
        pthread_t ids[CREW];

        pipeline_assign(p, 0, 0);
        crew_start(&c, ids);
        for (int i = 0; i < cases[k].records; i++)
            offer_lone(p, 0, i);
        crew_join(ids);
        assert_int_equal(pipeline_watermark(p, 0), cases[k].records);
        pipeline_free(p);
    }
}

/* The same through lanes that come back: all of them at once by a finish, and one after another by
 * their due times. */
static void finish_and_defer_wake_the_others(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        struct pipeline *p = pipeline_with(1000, 1);
        struct crew c = {.pipeline = p, .cap = 1, .wanted = CREW};
        const char *const keys[CREW] = {"a", "b", "c", "d"};
        struct record *first[CREW];
        pthread_t ids[CREW];

        pipeline_assign(p, 0, 0);
        for (int i = 0; i < CREW; i++)
            offer(p, 0, keys[i], i);
        for (int i = 0; i < CREW; i++)
            first[i] = take_one(p, i);
        crew_start(&c, ids);
        if (round % 2 == 0) {
            for (int i = 0; i < CREW; i++)
                offer(p, 0, keys[i], CREW + i); /* behind those that are out */
            finish_and_settle(p, first, CREW);
        } else {
            pipeline_defer(p, first, 1, 4);
            pipeline_defer(p, first + 1, CREW - 1, 2);
        }
        crew_join(ids);
        pipeline_free(p);
    }
}

static void a_stop_lets_everybody_go(void **state)
{
    struct pipeline *p = pipeline_with(1000, 1);
    struct crew c = {.pipeline = p, .cap = 10, .linger_ms = LONG_MS, .wanted = 1};
    pthread_t ids[CREW];
    int64_t from_ms = clock_mono_ms();
    struct record *r;

    (void)state;
    pipeline_assign(p, 0, 0);
    offer(p, 0, "a", 0);
    r = take_one(p, 0);
    offer(p, 0, "a", 1); /* must still run, after 0 */
    crew_start(&c, ids);
    pipeline_stop(p);
    assert_int_equal(c.left, 0);
    pipeline_defer(p, &r, 1, 5);
    crew_join(ids);
    while (pipeline_take(p, &r, 1, PLENTY, 0) > 0) /* the crew took one batch each */
        finish_and_settle(p, &r, 1);
    assert_int_equal(pipeline_watermark(p, 0), 2);
    assert_true(c.left >= CREW - 2);
    assert_true(clock_mono_ms() - from_ms < LONG_MS / 2);
    pipeline_free(p);
}

static int64_t cpu_ms(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void waiting_burns_no_time(void **state)
{
    struct pipeline *p = pipeline_with(1000, 1);
    struct crew c = {.pipeline = p, .cap = 1, .wanted = 1};
    pthread_t ids[CREW];
    struct record *r;

    (void)state;
    pipeline_assign(p, 0, 0);
    for (int i = 0; i < CREW; i++)
        offer_lone(p, 0, i);
    int64_t from_ms = cpu_ms();
    for (int i = 0; i < CREW; i++) {
        r = take_one(p, i);
        pipeline_defer(p, &r, 1, 300);
    }
    crew_start(&c, ids);
    crew_join(ids);
    assert_true(cpu_ms() - from_ms < 100);
    assert_int_equal(pipeline_watermark(p, 0), CREW);
    pipeline_free(p);
}

/* A route that nobody can write: nothing more is read, but where nothing is here to try with. */
static void a_held_route_is_not_wanted(void **state)
{
    atomic_bool held[2] = {true, false};
    atomic_int wakes = 0;
    struct pipeline_limits limits = {.max_records = 100,
                                     .max_bytes = PLENTY,
                                     .routes = 2,
                                     .run_max = 1,
                                     .wake = count_wake,
                                     .wake_ctx = &wakes,
                                     .held = held};
    struct pipeline *p = pipeline_new(&limits);
    struct record *r, *other;

    (void)state;
    for (uint32_t slot = 0; slot < 3; slot++)
        pipeline_assign(p, slot, 0);
    other = record_at(1, "k", 0);
    other->route = 1;
    assert_true(pipeline_offer(p, other));
    assert_true(pipeline_wants(p, 0, false));
    offer(p, 0, "k", 0);
    assert_false(pipeline_wants(p, 0, false));
    assert_true(pipeline_wants(p, 1, false)); /* of another route */
    assert_true(pipeline_wants(p, 2, false)); /* has nothing here */
    pipeline_nudge(p);
    assert_int_equal(atomic_load(&wakes), 0);
    atomic_store(&held[0], false);
    pipeline_nudge(p);
    assert_int_equal(atomic_load(&wakes), 1);
    assert_true(pipeline_wants(p, 0, false));

    atomic_store(&held[0], true); /* what is here may go in another way than by a write */
    assert_false(pipeline_wants(p, 0, false));
    for (int i = 0; i < 2; i++) {
        assert_int_equal(pipeline_take(p, &r, 1, PLENTY, 0), 1);
        finish_and_settle(p, &r, 1);
    }
    assert_int_equal(atomic_load(&wakes), 2);
    assert_true(pipeline_wants(p, 0, false));
    pipeline_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lane_and_offset_end_apart),
        cmocka_unit_test(refuses_what_is_not_above_or_not_ours),
        cmocka_unit_test(late_records_change_nothing),
        cmocka_unit_test(deferred_records_come_back_when_due),
        cmocka_unit_test(records_that_wait_for_the_dead_letter_topic_are_counted),
        cmocka_unit_test(a_drain_drops_and_waits_for_the_unsettled),
        cmocka_unit_test(what_a_drain_drops_is_not_committed),
        cmocka_unit_test(a_revoke_alone_drops_what_is_queued),
        cmocka_unit_test(a_drain_ends_when_the_last_one_is_settled),
        cmocka_unit_test(the_budget_is_half_common_half_shared),
        cmocka_unit_test(the_budget_holds_when_shares_shrink),
        cmocka_unit_test(one_of_each_is_bounded_too),
        cmocka_unit_test(bytes_are_budgeted_too),
        cmocka_unit_test(what_settles_behind_a_stuck_record_is_bounded),
        cmocka_unit_test(the_intake_is_woken_once_and_in_good_time),
        cmocka_unit_test(set_aside_comes_back_with_little),
        cmocka_unit_test(a_take_lingers_for_more_and_not_longer),
        cmocka_unit_test(every_worker_that_is_needed_is_woken),
        cmocka_unit_test(finish_and_defer_wake_the_others),
        cmocka_unit_test(a_stop_lets_everybody_go),
        cmocka_unit_test(waiting_burns_no_time),
        cmocka_unit_test(a_held_route_is_not_wanted),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
