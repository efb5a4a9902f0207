#include "io/mongo_gate.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/err.h"
#include "base/mem.h"

/* All that hold or wait, in the order in which they came. There are as many as worker threads. */
struct mongo_gate {
    pthread_mutex_t lock;
    pthread_cond_t left;
    struct mongo_gate_pass *first, *last;
};

struct mongo_gate *mongo_gate_new(void)
{
    struct mongo_gate *g = mem_new(sizeof *g);
    pthread_condattr_t attr;

    MUST(pthread_mutex_init(&g->lock, NULL) == 0);
    MUST(pthread_condattr_init(&attr) == 0);
    MUST(pthread_condattr_setclock(&attr, CLOCK_MONOTONIC) == 0);
    MUST(pthread_cond_init(&g->left, &attr) == 0);
    MUST(pthread_condattr_destroy(&attr) == 0);
    return g;
}

void mongo_gate_free(struct mongo_gate *g)
{
    if (!g)
        return;
    MUST(g->first == NULL);
    MUST(pthread_cond_destroy(&g->left) == 0);
    MUST(pthread_mutex_destroy(&g->lock) == 0);
    mem_free(g);
}

void mongo_gate_pass_clear(struct mongo_gate_pass *p)
{
    mem_free(p->keys);
    *p = (struct mongo_gate_pass){0};
}

static void keep_keys(struct mongo_gate_pass *p, const uint64_t *keys, size_t n)
{
    if (n > p->cap) {
        p->keys = mem_grow(p->keys, n, sizeof *p->keys);
        p->cap = n;
    }
    if (n > 0)
        memcpy(p->keys, keys, n * sizeof *keys);
    p->n = n;
}

/* ---- the queue; under the lock ---- */

static void join(struct mongo_gate *g, struct mongo_gate_pass *p)
{
    p->before = g->last;
    p->behind = NULL;
    if (g->last)
        g->last->behind = p;
    else
        g->first = p;
    g->last = p;
}

static void part(struct mongo_gate *g, struct mongo_gate_pass *p)
{
    if (p->before)
        p->before->behind = p->behind;
    else
        g->first = p->behind;
    if (p->behind)
        p->behind->before = p->before;
    else
        g->last = p->before;
    pthread_cond_broadcast(&g->left);
}

static bool share_a_key(const struct mongo_gate_pass *a, const struct mongo_gate_pass *b)
{
    size_t i = 0, j = 0;

    while (i < a->n && j < b->n) {
        if (a->keys[i] == b->keys[j])
            return true;
        if (a->keys[i] < b->keys[j])
            i++;
        else
            j++;
    }
    return false;
}

/* Those that wait before p count as those that hold: else a stream of small batches would keep a
 * large one waiting for ever. */
static bool may_go(const struct mongo_gate_pass *p)
{
    for (const struct mongo_gate_pass *other = p->before; other; other = other->before)
        if (share_a_key(p, other))
            return false;
    return true;
}

/* ---- in and out ---- */

bool mongo_gate_enter(struct mongo_gate *g, struct mongo_gate_pass *p, const uint64_t *keys,
                      size_t n, int64_t deadline_ms)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ms / 1000),
                             .tv_nsec = (long)(deadline_ms % 1000) * 1000000};
    int waited = 0;

    MUST(!p->inside);
    keep_keys(p, keys, n);
    MUST(pthread_mutex_lock(&g->lock) == 0);
    join(g, p);
    while (!(p->inside = may_go(p)) && waited != ETIMEDOUT)
        waited = pthread_cond_timedwait(&g->left, &g->lock, &until);
    if (!p->inside)
        part(g, p);
    MUST(pthread_mutex_unlock(&g->lock) == 0);
    return p->inside;
}

void mongo_gate_leave(struct mongo_gate *g, struct mongo_gate_pass *p)
{
    if (!p->inside)
        return;
    MUST(pthread_mutex_lock(&g->lock) == 0);
    part(g, p);
    MUST(pthread_mutex_unlock(&g->lock) == 0);
    p->inside = false;
}
