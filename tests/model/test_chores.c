/* The thread of the jobs: one after the other, each in its time, and it ends promptly. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fakes/check.h"
#include "run/chores.h"

enum { PATIENCE_MS = 60000, LONG_MS = 3600 * 1000 };

struct world {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int running;    /* how many jobs run now */
    int runs[3];    /* by job */
    bool was_asked; /* the patient job has seen the end */
};

struct job_ctx {
    struct world *w;
    int index;
    bool fine;
};

static void world_init(struct world *w)
{
    *w = (struct world){0};
    CHECK(pthread_mutex_init(&w->lock, NULL) == 0, "mutex");
    clock_cond_init(&w->changed);
}

static void world_clear(struct world *w)
{
    (void)pthread_cond_destroy(&w->changed);
    (void)pthread_mutex_destroy(&w->lock);
}

static void enter(struct job_ctx *j, int by)
{
    (void)pthread_mutex_lock(&j->w->lock);
    j->w->running += by;
    CHECK(j->w->running <= 1, "two jobs run at once");
    if (by > 0)
        j->w->runs[j->index]++;
    (void)pthread_cond_broadcast(&j->w->changed);
    (void)pthread_mutex_unlock(&j->w->lock);
}

static bool run_short(void *ctx, const struct chore_stop *stop)
{
    struct job_ctx *j = ctx;

    enter(j, 1);
    CHECK(stop->self != NULL, "no one to ask");
    enter(j, -1);
    return j->fine;
}

/* Works until it is told to leave. */
static bool run_patient(void *ctx, const struct chore_stop *stop)
{
    struct job_ctx *j = ctx;

    CHECK(!stop->asked(stop->self, 0), "asked to stop before anybody did");
    enter(j, 1);
    while (!stop->asked(stop->self, LONG_MS))
        ;
    (void)pthread_mutex_lock(&j->w->lock);
    j->w->was_asked = true;
    (void)pthread_mutex_unlock(&j->w->lock);
    enter(j, -1);
    return true;
}

static void wait_runs(struct world *w, int job, int n)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;

    (void)pthread_mutex_lock(&w->lock);
    while (w->runs[job] < n) {
        CHECK(clock_mono_ms() < until_ms, "job %d has run %d times of %d", job, w->runs[job], n);
        clock_cond_wait(&w->changed, &w->lock, until_ms);
    }
    (void)pthread_mutex_unlock(&w->lock);
}

static void test_one_after_the_other(void **state)
{
    struct world w;

    (void)state;
    world_init(&w);
    struct job_ctx a = {&w, 0, true}, b = {&w, 1, true}, never = {&w, 2, true};
    const struct chore jobs[] = {
        {.name = "never", .first_ms = LONG_MS, .every_ms = 1, .ctx = &never, .run = run_short},
        {.name = "a", .every_ms = 2, .ctx = &a, .run = run_short},
        {.name = "b", .first_ms = 1, .every_ms = 3, .ctx = &b, .run = run_short}};
    struct chores *c = chores_start(jobs, 3);

    wait_runs(&w, 0, 20);
    wait_runs(&w, 1, 20);
    assert_true(chores_stop(c, PATIENCE_MS));
    assert_int_equal(w.runs[2], 0);
    assert_int_equal(w.running, 0);
    world_clear(&w);
}

/* A failed run comes again sooner, a good one in its time. */
static void test_again_after_a_failure(void **state)
{
    struct world w;

    (void)state;
    world_init(&w);
    struct job_ctx bad = {&w, 0, false}, good = {&w, 1, true};
    const struct chore jobs[] = {
        {.name = "bad", .every_ms = LONG_MS, .again_ms = 1, .ctx = &bad, .run = run_short},
        {.name = "good", .every_ms = LONG_MS, .again_ms = 1, .ctx = &good, .run = run_short}};
    struct chores *c = chores_start(jobs, 2);

    wait_runs(&w, 0, 10);
    assert_true(chores_stop(c, PATIENCE_MS));
    assert_int_equal(w.runs[1], 1);
    world_clear(&w);
}

/* Neither a job that waits nor one that is far away keeps the process. */
static void test_ends_promptly(void **state)
{
    struct world w;

    (void)state;
    world_init(&w);
    struct job_ctx patient = {&w, 0, true}, behind = {&w, 1, true};
    const struct chore jobs[] = {
        {.name = "patient", .every_ms = 1, .ctx = &patient, .run = run_patient},
        {.name = "behind", .first_ms = 1, .every_ms = 1, .ctx = &behind, .run = run_short}};
    struct chores *c = chores_start(jobs, 2);

    wait_runs(&w, 0, 1);
    assert_true(chores_stop(c, PATIENCE_MS));
    assert_true(w.was_asked);
    assert_int_equal(w.runs[0], 1);
    assert_int_equal(w.runs[1], 0); /* none begins any more */

    const struct chore far = {
        .name = "far", .first_ms = LONG_MS, .every_ms = LONG_MS, .ctx = &behind, .run = run_short};
    c = chores_start(&far, 1);
    assert_true(chores_stop(c, PATIENCE_MS));
    assert_int_equal(w.runs[1], 0);
    assert_true(chores_stop(NULL, 0));
    world_clear(&w);
}

static bool run_deaf(void *ctx, const struct chore_stop *stop)
{
    struct job_ctx *j = ctx;

    (void)stop;
    enter(j, 1);
    (void)pthread_mutex_lock(&j->w->lock);
    while (!j->w->was_asked) /* as a server that does not answer */
        (void)pthread_cond_wait(&j->w->changed, &j->w->lock);
    (void)pthread_mutex_unlock(&j->w->lock);
    enter(j, -1);
    return true;
}

static void test_a_deaf_job_is_told(void **state)
{
    struct world w;

    (void)state;
    world_init(&w);
    struct job_ctx deaf = {&w, 0, true};
    const struct chore job = {.name = "deaf", .every_ms = 1, .ctx = &deaf, .run = run_deaf};
    struct chores *c = chores_start(&job, 1);

    wait_runs(&w, 0, 1);
    assert_false(chores_stop(c, 1));
    (void)pthread_mutex_lock(&w.lock);
    w.was_asked = true;
    (void)pthread_cond_broadcast(&w.changed);
    (void)pthread_mutex_unlock(&w.lock);
    assert_true(chores_stop(c, PATIENCE_MS)); /* it can be asked again */
    world_clear(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_after_the_other),
        cmocka_unit_test(test_again_after_a_failure),
        cmocka_unit_test(test_ends_promptly),
        cmocka_unit_test(test_a_deaf_job_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
