#include "run/chores.h"

#include <pthread.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/mem.h"

struct job {
    struct chore chore;
    int64_t due_ms;
};

struct chores {
    pthread_t thread;
    pthread_mutex_t lock;   /* leaf */
    pthread_cond_t changed; /* stopping or ended */
    bool stopping, ended;   /* lock */
    struct job *jobs;       /* of the thread */
    size_t n;
};

/* Waits until then. True: the process leaves. */
static bool wait_until(struct chores *c, int64_t until_ms)
{
    bool stopping;

    (void)pthread_mutex_lock(&c->lock);
    while (!c->stopping && clock_mono_ms() < until_ms)
        clock_cond_wait(&c->changed, &c->lock, until_ms);
    stopping = c->stopping;
    (void)pthread_mutex_unlock(&c->lock);
    return stopping;
}

static bool asked(void *self, int64_t wait_ms)
{
    return wait_until(self, clock_mono_ms() + wait_ms);
}

/* The one that is due first; of two the one that stands first. */
static struct job *next_job(struct chores *c)
{
    struct job *first = &c->jobs[0];

    for (size_t i = 1; i < c->n; i++)
        if (c->jobs[i].due_ms < first->due_ms)
            first = &c->jobs[i];
    return first;
}

static void *chores_main(void *arg)
{
    struct chores *c = arg;
    struct chore_stop stop = {.asked = asked, .self = c};

    for (;;) {
        struct job *job = next_job(c);

        if (wait_until(c, job->due_ms))
            break;
        int64_t now_ms = clock_mono_ms();
        bool fine = job->chore.run(job->chore.ctx, &stop);
        bool soon = !fine && job->chore.again_ms > 0;

        job->due_ms = now_ms + (soon ? job->chore.again_ms : job->chore.every_ms);
    }
    (void)pthread_mutex_lock(&c->lock);
    c->ended = true;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

struct chores *chores_start(const struct chore *jobs, size_t n)
{
    struct chores *c = mem_new(sizeof *c);
    int64_t now_ms = clock_mono_ms();

    MUST(n > 0);
    MUST(pthread_mutex_init(&c->lock, NULL) == 0);
    clock_cond_init(&c->changed);
    c->jobs = mem_array(n, sizeof *c->jobs);
    c->n = n;
    for (size_t i = 0; i < n; i++) {
        MUST(jobs[i].every_ms > 0);
        c->jobs[i] = (struct job){.chore = jobs[i], .due_ms = now_ms + jobs[i].first_ms};
    }
    MUST(pthread_create(&c->thread, NULL, chores_main, c) == 0);
    return c;
}

void chores_ask_stop(struct chores *c)
{
    (void)pthread_mutex_lock(&c->lock);
    c->stopping = true;
    (void)pthread_cond_broadcast(&c->changed);
    (void)pthread_mutex_unlock(&c->lock);
}

bool chores_stop(struct chores *c, int64_t wait_ms)
{
    int64_t until_ms = clock_mono_ms() + wait_ms;
    bool ended;

    if (c == NULL)
        return true;
    chores_ask_stop(c);
    (void)pthread_mutex_lock(&c->lock);
    while (!c->ended && clock_mono_ms() < until_ms)
        clock_cond_wait(&c->changed, &c->lock, until_ms);
    ended = c->ended;
    (void)pthread_mutex_unlock(&c->lock);
    if (!ended)
        return false;
    MUST(pthread_join(c->thread, NULL) == 0);
    (void)pthread_cond_destroy(&c->changed);
    (void)pthread_mutex_destroy(&c->lock);
    mem_free(c->jobs);
    mem_free(c);
    return true;
}
