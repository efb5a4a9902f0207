#include "run/lock_keeper.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { AGAIN_MS = 200 };

/* A set of the keeper's own. */
struct owned {
    struct lock_set set;
    char token[LOCK_TOKEN_SIZE];
    char **keys;
    bool *yes;
    int64_t try_at_ms, until_ms;
    struct owned *next;
};

struct lock_keeper {
    pthread_t thread;
    void *session; /* of the thread */
    const struct lock_ops *ops;
    pthread_mutex_t lock;   /* leaf */
    pthread_cond_t changed; /* something is due earlier, or stopping */
    bool stopping;          /* lock */
    uint64_t last_id;       /* lock */
    struct lock_held *held; /* lock */
    struct owned *owed;     /* lock */
};

static struct owned *owned_new(const struct lock_set *set)
{
    struct owned *o = mem_new(sizeof *o);

    o->keys = mem_array(set->n, sizeof *o->keys);
    for (size_t i = 0; i < set->n; i++)
        o->keys[i] = mem_text(set->keys[i]);
    o->yes = mem_array(set->n, sizeof *o->yes);
    memcpy(o->token, set->token, strlen(set->token) + 1);
    o->set = *set;
    o->set.token = o->token;
    o->set.keys = (const char *const *)o->keys;
    return o;
}

static void owned_free(struct owned *o)
{
    for (size_t i = 0; i < o->set.n; i++)
        mem_free(o->keys[i]);
    mem_free(o->keys);
    mem_free(o->yes);
    mem_free(o);
}

/* When something is due; INT64_MAX: nothing is. With the lock. */
static int64_t due_locked(const struct lock_keeper *k)
{
    int64_t due_ms = INT64_MAX;

    for (const struct lock_held *h = k->held; h != NULL; h = h->next)
        due_ms = h->renew_at_ms < due_ms ? h->renew_at_ms : due_ms;
    for (const struct owned *o = k->owed; o != NULL; o = o->next)
        due_ms = o->try_at_ms < due_ms ? o->try_at_ms : due_ms;
    return due_ms;
}

static struct lock_held *held_due_locked(struct lock_keeper *k, int64_t now_ms)
{
    struct lock_held *h = k->held;

    while (h != NULL && h->renew_at_ms > now_ms)
        h = h->next;
    return h;
}

/* Whose locks turn out to be somebody else's is told when they are released. */
static void renew_locked(struct lock_keeper *k, struct lock_held *h)
{
    struct owned *copy = owned_new(&h->set);
    uint64_t id = h->id;
    struct err e;
    int64_t asked_at_ms;
    bool ok;

    h->renew_at_ms = INT64_MAX;
    (void)pthread_mutex_unlock(&k->lock);
    asked_at_ms = clock_mono_ms();
    ok = k->ops->renew(k->session, &copy->set, copy->yes, &e);
    (void)pthread_mutex_lock(&k->lock);
    for (h = k->held; h != NULL && h->id != id; h = h->next)
        ;
    if (h != NULL)
        h->renew_at_ms = asked_at_ms + (ok ? copy->set.ttl_ms / 3 : AGAIN_MS);
    owned_free(copy);
}

/* The first of the owed that is due leaves the list. */
static struct owned *owed_take_locked(struct lock_keeper *k, int64_t now_ms)
{
    for (struct owned **at = &k->owed; *at != NULL; at = &(*at)->next) {
        struct owned *o = *at;

        if (o->try_at_ms > now_ms)
            continue;
        *at = o->next;
        return o;
    }
    return NULL;
}

static void owe_locked(struct lock_keeper *k, struct owned *o, int64_t try_at_ms)
{
    o->try_at_ms = try_at_ms;
    o->next = k->owed;
    k->owed = o;
}

/* They run out by themselves. */
static void forget_locked(struct lock_keeper *k)
{
    while (k->owed) {
        struct owned *o = k->owed;

        k->owed = o->next;
        owned_free(o);
    }
}

static void release_locked(struct lock_keeper *k, struct owned *o)
{
    struct err e;
    bool over;

    (void)pthread_mutex_unlock(&k->lock);
    over = k->ops->release(k->session, &o->set, o->yes, &e) || clock_mono_ms() >= o->until_ms;
    (void)pthread_mutex_lock(&k->lock);
    if (!over)
        owe_locked(k, o, clock_mono_ms() + AGAIN_MS);
    else
        owned_free(o);
    if (!over && k->stopping) /* each would take a time-out */
        forget_locked(k);
}

static void *keeper_main(void *arg)
{
    struct lock_keeper *k = arg;

    (void)pthread_mutex_lock(&k->lock);
    for (;;) {
        int64_t now_ms = clock_mono_ms(), due_ms = due_locked(k);
        struct lock_held *held = held_due_locked(k, now_ms);
        struct owned *owed = held ? NULL : owed_take_locked(k, k->stopping ? INT64_MAX : now_ms);

        if (held)
            renew_locked(k, held);
        else if (owed)
            release_locked(k, owed);
        else if (k->stopping)
            break;
        else
            clock_cond_wait(&k->changed, &k->lock,
                            due_ms < now_ms + 60000 ? due_ms : now_ms + 60000);
    }
    (void)pthread_mutex_unlock(&k->lock);
    return NULL;
}

struct lock_keeper *lock_keeper_start(struct lock lock)
{
    struct lock_keeper *k = mem_new(sizeof *k);

    k->ops = lock.ops;
    k->session = lock.ops->open(lock.self);
    MUST(pthread_mutex_init(&k->lock, NULL) == 0);
    clock_cond_init(&k->changed);
    MUST(pthread_create(&k->thread, NULL, keeper_main, k) == 0);
    return k;
}

void lock_keeper_stop(struct lock_keeper *k)
{
    if (k == NULL)
        return;
    (void)pthread_mutex_lock(&k->lock);
    k->stopping = true;
    (void)pthread_cond_signal(&k->changed);
    (void)pthread_mutex_unlock(&k->lock);
    MUST(pthread_join(k->thread, NULL) == 0);
    MUST(k->held == NULL && k->owed == NULL);
    k->ops->close(k->session);
    (void)pthread_cond_destroy(&k->changed);
    (void)pthread_mutex_destroy(&k->lock);
    mem_free(k);
}

void lock_keeper_hold(struct lock_keeper *k, struct lock_held *h, int64_t asked_at_ms)
{
    (void)pthread_mutex_lock(&k->lock);
    h->id = ++k->last_id;
    h->renew_at_ms = asked_at_ms + h->set.ttl_ms / 3;
    h->next = k->held;
    k->held = h;
    (void)pthread_cond_signal(&k->changed);
    (void)pthread_mutex_unlock(&k->lock);
}

void lock_keeper_drop(struct lock_keeper *k, struct lock_held *h)
{
    (void)pthread_mutex_lock(&k->lock);
    for (struct lock_held **at = &k->held; *at != NULL; at = &(*at)->next) {
        if (*at != h)
            continue;
        *at = h->next;
        break;
    }
    (void)pthread_mutex_unlock(&k->lock);
}

void lock_keeper_owe(struct lock_keeper *k, const struct lock_set *set)
{
    struct owned *o = owned_new(set);
    int64_t now_ms = clock_mono_ms();

    o->until_ms = now_ms + set->ttl_ms;
    (void)pthread_mutex_lock(&k->lock);
    owe_locked(k, o, now_ms);
    (void)pthread_cond_signal(&k->changed);
    (void)pthread_mutex_unlock(&k->lock);
}
