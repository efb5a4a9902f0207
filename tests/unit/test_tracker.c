#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/tracker.h"
#include "fakes/dice.h"

static struct record record_at(uint32_t slot, int64_t offset)
{
    return (struct record){.slot = slot, .offset = offset, .offered_at_ms = 1000 + offset};
}

static struct record read_at(struct tracker *t, uint32_t slot, int64_t offset)
{
    struct record r = record_at(slot, offset);

    assert_true(tracker_begin(t, &r));
    return r;
}

static void acks_in_any_order(void **state) /* H-017 */
{
    struct tracker *t = tracker_new();
    const int64_t offsets[] = {0, 1, 5, 6, 9};
    const size_t acks[] = {4, 0, 2, 1, 3};
    const int64_t right[] = {0, 1, 1, 6, 10};
    struct record r[5];

    (void)state;
    tracker_assign(t, 0, 0);
    for (size_t i = 0; i < 5; i++)
        r[i] = read_at(t, 0, offsets[i]);
    assert_int_equal(tracker_watermark(t, 0), 0);
    for (size_t i = 0; i < 5; i++) {
        assert_true(tracker_settle(t, &r[acks[i]]));
        assert_int_equal(tracker_watermark(t, 0), right[i]);
        assert_int_equal(tracker_pending(t, 0), 4 - i);
    }
    tracker_free(t);
}

static void late_acks_count_for_nothing(void **state) /* H-018 */
{
    struct tracker *t = tracker_new();
    struct record old[10];

    (void)state;
    tracker_assign(t, 0, 10);
    for (int i = 0; i < 10; i++)
        old[i] = read_at(t, 0, 10 + i);
    for (int i = 0; i < 5; i++)
        assert_true(tracker_settle(t, &old[i]));
    assert_int_equal(tracker_watermark(t, 0), 15);
    tracker_revoke(t, 0);
    assert_int_equal(tracker_watermark(t, 0), -1);
    tracker_assign(t, 0, 15);
    struct record again = read_at(t, 0, 15);
    struct record next = read_at(t, 0, 16);

    assert_int_equal(tracker_watermark(t, 0), 15);
    assert_false(tracker_settle(t, &old[6]));
    assert_int_equal(tracker_watermark(t, 0), 15);
    assert_false(tracker_settle(t, &old[5]));
    assert_int_equal(tracker_watermark(t, 0), 15);
    assert_true(tracker_settle(t, &again));
    assert_int_equal(tracker_watermark(t, 0), 16);
    assert_true(tracker_settle(t, &next));
    assert_int_equal(tracker_watermark(t, 0), 17);
    tracker_free(t);
}

static void every_assign_and_revoke_is_a_new_epoch(void **state)
{
    struct tracker *t = tracker_new();

    (void)state;
    tracker_assign(t, 2, 0);
    uint32_t first = tracker_epoch(t, 2);
    struct record r = read_at(t, 2, 0);
    assert_int_equal(r.epoch, first);
    assert_true(tracker_current(t, &r));
    tracker_revoke(t, 2);
    assert_false(tracker_current(t, &r));
    assert_false(tracker_settle(t, &r));
    assert_false(tracker_assigned(t, 2));
    uint32_t second = tracker_epoch(t, 2);
    assert_true(second > first);
    tracker_revoke(t, 2); /* is not assigned: nothing happens */
    assert_int_equal(tracker_epoch(t, 2), second);
    tracker_assign(t, 2, 0);
    assert_false(tracker_current(t, &r));
    struct record s = read_at(t, 2, 0);
    tracker_assign(t, 2, 5); /* without a revoke between */
    assert_false(tracker_settle(t, &s));
    assert_int_equal(tracker_watermark(t, 2), 5);
    assert_int_equal(tracker_pending(t, 2), 0);
    assert_int_equal(tracker_window_total(t), 0);
    tracker_free(t);
}

static void the_end_passes_trailing_markers(void **state)
{
    struct tracker *t = tracker_new();

    (void)state;
    tracker_assign(t, 0, 0);
    struct record a = read_at(t, 0, 0), b = read_at(t, 0, 2);

    tracker_end(t, 0, 7); /* seen while two are pending: effective when they settle */
    assert_int_equal(tracker_watermark(t, 0), 0);
    assert_int_equal(tracker_position(t, 0), 7);
    assert_true(tracker_settle(t, &b));
    assert_int_equal(tracker_watermark(t, 0), 0);
    assert_true(tracker_settle(t, &a));
    assert_int_equal(tracker_watermark(t, 0), 7);
    tracker_end(t, 0, 3); /* an old one */
    tracker_end(t, 0, -1);
    assert_int_equal(tracker_watermark(t, 0), 7);
    struct record c = read_at(t, 0, 7); /* goes on after the end */
    assert_int_equal(tracker_watermark(t, 0), 7);
    tracker_end(t, 0, 8);
    assert_true(tracker_settle(t, &c));
    assert_int_equal(tracker_watermark(t, 0), 8);
    tracker_end(t, 0, 12);
    assert_int_equal(tracker_watermark(t, 0), 12);
    struct record below = record_at(0, 11);
    assert_false(tracker_begin(t, &below)); /* the watermark would fall */
    tracker_free(t);
}

static void an_end_below_the_last_read_is_ignored(void **state)
{
    struct tracker *t = tracker_new();

    (void)state;
    tracker_assign(t, 0, 0);
    struct record a = read_at(t, 0, 9);
    tracker_end(t, 0, 9);
    tracker_end(t, 0, 4);
    assert_int_equal(tracker_position(t, 0), 10);
    assert_true(tracker_settle(t, &a));
    assert_int_equal(tracker_watermark(t, 0), 10);
    tracker_free(t);
}

static void starts_without_a_committed_offset(void **state)
{
    struct tracker *t = tracker_new();

    (void)state;
    tracker_assign(t, 0, -1);
    tracker_assign(t, 1, -1);
    assert_int_equal(tracker_watermark(t, 0), -1);
    assert_int_equal(tracker_position(t, 0), -1);
    struct record r = read_at(t, 0, 15); /* what was before is compacted away */
    assert_int_equal(tracker_watermark(t, 0), 15);
    assert_true(tracker_settle(t, &r));
    assert_int_equal(tracker_watermark(t, 0), 16);
    tracker_end(t, 1, 0); /* an empty partition */
    assert_int_equal(tracker_watermark(t, 1), 0);
    assert_int_equal(tracker_watermark(t, 99), -1);
    tracker_free(t);
}

static void refuses_what_does_not_rise(void **state)
{
    struct tracker *t = tracker_new();
    struct record same = record_at(0, 5), below = record_at(0, 4), nowhere = record_at(3, 4);
    struct record negative = record_at(0, -1);

    (void)state;
    tracker_assign(t, 0, 0);
    struct record r = read_at(t, 0, 5);
    assert_false(tracker_begin(t, &same));
    assert_false(tracker_begin(t, &below));
    assert_false(tracker_begin(t, &nowhere));
    assert_false(tracker_begin(t, &negative));
    assert_int_equal(tracker_pending(t, 0), 1);
    assert_int_equal(tracker_position(t, 0), 6);
    assert_true(tracker_settle(t, &r));
    assert_int_equal(tracker_watermark(t, 0), 6);
    tracker_revoke(t, 0);
    assert_false(tracker_begin(t, &same));
    tracker_free(t);
}

static void the_first_record_may_lie_below_the_committed_offset(void **state)
{
    struct tracker *t = tracker_new();

    (void)state;
    tracker_assign(t, 0, 100);
    tracker_end(t, 0, 0);
    assert_int_equal(tracker_watermark(t, 0), 100);
    struct record r = read_at(t, 0, 3); /* the log was made anew, the broker said earliest */
    assert_int_equal(tracker_watermark(t, 0), 3);
    assert_true(tracker_settle(t, &r));
    assert_int_equal(tracker_watermark(t, 0), 4);
    tracker_assign(t, 0, 100);
    tracker_end(t, 0, 100);
    struct record late = record_at(0, 99);
    assert_false(tracker_begin(t, &late)); /* but not after something was seen at 100 */
    tracker_free(t);
}

static void knows_window_and_oldest(void **state)
{
    struct tracker *t = tracker_new();

    (void)state;
    tracker_assign(t, 0, 0);
    tracker_assign(t, 1, 0);
    assert_int_equal(tracker_oldest_at_ms(t, 0), 0);
    struct record stuck = read_at(t, 0, 1), other = read_at(t, 1, 8);
    for (int64_t i = 2; i < 1000; i++) { /* the ring grows around the stuck one */
        struct record r = read_at(t, 0, i * 3);
        assert_true(tracker_settle(t, &r));
    }
    assert_int_equal(tracker_pending(t, 0), 1);
    assert_int_equal(tracker_window(t, 0), 999);
    assert_int_equal(tracker_window_total(t), 1000);
    assert_int_equal(tracker_oldest_at_ms(t, 0), 1001);
    assert_int_equal(tracker_oldest_at_ms(t, 1), 1008);
    assert_true(tracker_settle(t, &stuck));
    assert_int_equal(tracker_window(t, 0), 0);
    assert_int_equal(tracker_window_total(t), 1);
    assert_int_equal(tracker_oldest_at_ms(t, 0), 0);
    assert_int_equal(tracker_watermark(t, 0), 999 * 3 + 1);
    assert_true(tracker_settle(t, &other));
    tracker_free(t);
}

/*
 * Against a model that remembers everything and computes each answer from nothing.
 */
enum { SLOTS = 4, MOST = 4096 };

struct model_record {
    struct record r;
    bool settled;
};
struct model_slot {
    bool assigned;
    int64_t start, last, end; /* last: -1 when nothing was read in this epoch */
    size_t first;             /* index of the epoch's first record */
};
struct model {
    struct tracker *t;
    struct dice dice;
    struct model_record all[SLOTS][MOST];
    size_t n[SLOTS];
    struct model_slot slot[SLOTS];
};

static void compare(const struct model *m, uint32_t slot)
{
    const struct model_slot *s = &m->slot[slot];
    int64_t position = s->last >= 0 ? s->last + 1 : s->start;
    int64_t watermark = -1, oldest = 0;
    size_t pending = 0, window = 0;

    if (s->end > position)
        position = s->end;
    if (!s->assigned)
        position = -1;
    for (size_t i = m->n[slot]; s->assigned && i > s->first; i--) {
        const struct model_record *r = &m->all[slot][i - 1];

        if (r->settled)
            continue;
        watermark = r->r.offset;
        oldest = r->r.offered_at_ms;
        window = m->n[slot] - (i - 1);
        pending++;
    }
    if (pending == 0)
        watermark = position;
    assert_int_equal(tracker_assigned(m->t, slot), s->assigned);
    assert_int_equal(tracker_watermark(m->t, slot), watermark);
    assert_int_equal(tracker_position(m->t, slot), position);
    assert_int_equal(tracker_pending(m->t, slot), pending);
    assert_int_equal(tracker_window(m->t, slot), window);
    assert_int_equal(tracker_oldest_at_ms(m->t, slot), oldest);
}

static void model_read(struct model *m, uint32_t slot)
{
    struct model_slot *s = &m->slot[slot];
    int64_t from = s->last >= 0 ? s->last + 1 : s->start >= 0 ? s->start : 0;
    int64_t floor = s->last + 1 > s->end ? s->last + 1 : s->end;
    struct record r = record_at(slot, from + (int64_t)dice_below(&m->dice, 4) - 1);
    bool right = s->assigned && r.offset >= 0 && r.offset >= floor;

    if (m->n[slot] == MOST)
        return;
    assert_int_equal(tracker_begin(m->t, &r), right);
    if (!right)
        return;
    m->all[slot][m->n[slot]++] = (struct model_record){.r = r};
    s->last = r.offset;
}

static void model_settle(struct model *m, uint32_t slot)
{
    const struct model_slot *s = &m->slot[slot];
    size_t back = 1 + dice_below(&m->dice, dice_permille(&m->dice, 900) ? 20 : 300);

    if (back > m->n[slot])
        return;
    size_t i = m->n[slot] - back;
    struct model_record *r = &m->all[slot][i];
    bool right = s->assigned && i >= s->first;

    if (r->settled)
        return;
    assert_int_equal(tracker_current(m->t, &r->r), right);
    assert_int_equal(tracker_settle(m->t, &r->r), right);
    r->settled = right; /* a late one may come late again, it makes no difference */
}

static void model_epoch(struct model *m, uint32_t slot, bool assign)
{
    struct model_slot *s = &m->slot[slot];
    int64_t start = dice_permille(&m->dice, 200) ? -1 : (int64_t)dice_below(&m->dice, 50);

    *s = (struct model_slot){.assigned = assign,
                             .start = assign ? start : -1,
                             .last = -1,
                             .end = -1,
                             .first = m->n[slot]};
    if (assign)
        tracker_assign(m->t, slot, start);
    else
        tracker_revoke(m->t, slot);
}

static void model_end(struct model *m, uint32_t slot)
{
    struct model_slot *s = &m->slot[slot];
    int64_t position = tracker_position(m->t, slot);
    int64_t end = position + (int64_t)dice_below(&m->dice, 6) - 2;

    tracker_end(m->t, slot, end);
    if (s->assigned && end >= 0 && end >= position)
        s->end = end;
}

static void does_what_a_naive_model_does(void **state)
{
    static struct model m;

    (void)state;
    m = (struct model){.t = tracker_new(), .dice = dice_seed("tracker")};
    for (uint32_t slot = 0; slot < SLOTS; slot++) {
        m.slot[slot] = (struct model_slot){.start = -1, .last = -1, .end = -1};
        assert_int_equal(tracker_watermark(m.t, slot), -1);
    }
    for (int step = 0; step < 60000; step++) {
        uint32_t slot = (uint32_t)dice_below(&m.dice, SLOTS);
        uint64_t what = dice_below(&m.dice, 1000);

        if (what < 450)
            model_read(&m, slot);
        else if (what < 970)
            model_settle(&m, slot);
        else if (what < 985)
            model_end(&m, slot);
        else
            model_epoch(&m, slot, dice_permille(&m.dice, 700));
        compare(&m, slot);
    }
    tracker_free(m.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(acks_in_any_order),
        cmocka_unit_test(late_acks_count_for_nothing),
        cmocka_unit_test(every_assign_and_revoke_is_a_new_epoch),
        cmocka_unit_test(the_end_passes_trailing_markers),
        cmocka_unit_test(an_end_below_the_last_read_is_ignored),
        cmocka_unit_test(starts_without_a_committed_offset),
        cmocka_unit_test(refuses_what_does_not_rise),
        cmocka_unit_test(the_first_record_may_lie_below_the_committed_offset),
        cmocka_unit_test(knows_window_and_oldest),
        cmocka_unit_test(does_what_a_naive_model_does),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
