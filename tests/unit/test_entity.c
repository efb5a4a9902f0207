/* What several events do to entities together, against doing them one after the other. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "core/entity.h"
#include "fakes/dice.h"

enum { EVENTS = 40, ENTITIES = 6, ROUNDS = 20000, NOBODY = -1 };

struct entity_case {
    const char *name;
    bool there;
    const char *events; /* + adds, - removes */
    const char *steps;  /* what each did: + - or . */
    enum entity_write write;
    uint32_t last;
};

/* One entity, all that can happen to it. */
static void one_entity(void **state)
{
    static const struct entity_case cases[] = {
        {"nothing", false, "", "", ENTITY_KEEP, UINT32_MAX},
        {"added", false, "+", "+", ENTITY_INSERT, 0},
        {"added twice", false, "++", "+.", ENTITY_INSERT, 0},
        {"removed and not there", false, "-", ".", ENTITY_KEEP, UINT32_MAX},
        {"added and there", true, "+", ".", ENTITY_KEEP, UINT32_MAX},
        {"removed", true, "-", "-", ENTITY_DELETE, 0},
        {"removed twice", true, "--", "-.", ENTITY_DELETE, 0},
        {"added, removed", false, "+-", "+-", ENTITY_KEEP, 1},
        {"removed, added", true, "-+", "-+", ENTITY_REPLACE, 1},
        {"removed, added, added", true, "-++", "-+.", ENTITY_REPLACE, 1},
        {"added, removed, added", false, "+-+", "+-+", ENTITY_INSERT, 2},
        {"removed, added, removed", true, "-+-", "-+-", ENTITY_DELETE, 2},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct entity_case *c = &cases[i];
        struct entity_event events[4];
        enum entity_step steps[4];
        struct entity_end end;
        size_t n = 0;

        for (; c->events[n]; n++)
            events[n] = (struct entity_event){.entity = 0, .remove = c->events[n] == '-'};
        entity_fold(events, n, &c->there, 1, steps, &end);
        for (size_t k = 0; k < n; k++)
            if (steps[k] != (c->steps[k] == '.'   ? ENTITY_NOTHING
                             : c->steps[k] == '+' ? ENTITY_ADDED
                                                  : ENTITY_REMOVED))
                fail_msg("%s: event %zu did %d", c->name, k, steps[k]);
        if (end.write != c->write || end.last != c->last)
            fail_msg("%s: write %d of %u", c->name, end.write, end.last);
    }
}

/* Whose document is there after the writes: of an event, of before (ENTITIES and above), nobody's.
 */
static int after_the_write(const struct entity_end *end, int before)
{
    switch (end->write) {
    case ENTITY_KEEP:
        return before;
    case ENTITY_INSERT:
        return before == NOBODY ? (int)end->last : -2;
    case ENTITY_REPLACE:
        return before != NOBODY ? (int)end->last : -2;
    case ENTITY_DELETE:
        return before != NOBODY ? NOBODY : -2;
    }
    return -2;
}

static void check_round(struct dice *dice)
{
    struct entity_event events[EVENTS] = {{0}};
    enum entity_step steps[EVENTS];
    struct entity_end ends[ENTITIES];
    bool there[ENTITIES];
    int naive[ENTITIES], before[ENTITIES];
    size_t n = dice_below(dice, EVENTS + 1), entities = 1 + dice_below(dice, ENTITIES);

    for (size_t k = 0; k < entities; k++) {
        there[k] = dice_below(dice, 2);
        naive[k] = before[k] = there[k] ? 1000 : NOBODY;
    }
    for (size_t i = 0; i < n; i++)
        events[i] = (struct entity_event){.entity = (uint32_t)dice_below(dice, entities),
                                          .remove = dice_below(dice, 2)};
    entity_fold(events, n, there, entities, steps, ends);
    for (size_t i = 0; i < n; i++) {
        int *whose = &naive[events[i].entity];

        if (events[i].remove) {
            assert_int_equal(steps[i], *whose == NOBODY ? ENTITY_NOTHING : ENTITY_REMOVED);
            *whose = NOBODY;
        } else {
            assert_int_equal(steps[i], *whose == NOBODY ? ENTITY_ADDED : ENTITY_NOTHING);
            *whose = *whose == NOBODY ? (int)i : *whose;
        }
    }
    for (size_t k = 0; k < entities; k++) {
        assert_int_equal(after_the_write(&ends[k], before[k]), naive[k]);
        assert_int_equal(ends[k].there, naive[k] != NOBODY);
    }
}

static void against_one_after_the_other(void **state)
{
    struct dice dice = dice_seed("test_entity");

    (void)state;
    for (int round = 0; round < ROUNDS; round++)
        check_round(&dice);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(one_entity),
                                       cmocka_unit_test(against_one_after_the_other)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
