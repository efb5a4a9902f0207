#include "run/seen_listener.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "core/drop_message.h"

enum { WAIT_MS = 200, BACKOFF_STEP_MS = 50, BACKOFF_MAX_MS = 2000, SAY_AGAIN_MS = 60000 };

struct seen_listener {
    struct seen_listener_options o;
    struct seen_session *session;
    struct metric *listening;
    uint32_t failures; /* in a row */
    bool joined;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stopping; /* lock */
};

static bool drops(const struct config_route *r)
{
    return config_has_seen(r) && r->seen.drop_on != NULL && r->seen.drop_on[0] != '\0';
}

const char **seen_listener_channels(const struct config *c, size_t *n)
{
    const char **channels = mem_array(c->n_routes, sizeof(const char *));

    *n = 0;
    for (size_t i = 0; i < c->n_routes; i++) {
        bool there = !drops(&c->routes[i]);

        for (size_t k = 0; k < *n && !there; k++)
            there = strcmp(channels[k], c->routes[i].seen.drop_on) == 0;
        if (!there)
            channels[(*n)++] = c->routes[i].seen.drop_on;
    }
    return channels;
}

/* --- what is heard --- */

static bool is_about(const struct seen_listener *l, const struct config_route *r,
                     const struct listener_message *m)
{
    if (!drops(r) || !slice_equal(m->channel, slice_text(r->seen.drop_on)))
        return false;
    if (drop_message_concerns(m->text, r->database, r->collection, l->o.instance_id))
        return true;
    return config_has_operation(r) && drop_message_concerns(m->text, r->operation.ledger_database,
                                                            r->operation.ledger, l->o.instance_id);
}

static void lose(struct seen_listener *l, const struct err *e)
{
    static struct log_limit limit;
    int64_t held_back;

    for (uint32_t i = 0; i < l->o.config->n_routes; i++)
        if (drops(&l->o.config->routes[i]))
            seen_cache_trust(l->o.cache, i, false);
    l->failures++;
    l->joined = false;
    metric_set(l->listening, 0);
    l->o.listener.ops->leave(l->o.listener.self);
    if (log_limit_pass(&limit, SAY_AGAIN_MS, &held_back))
        log_warn("nobody listens on seen.drop_on: the seen cache is not used until somebody does",
                 LOG_TEXT("error", e->text), LOG_INT("held_back", held_back));
}

/* Of one route. False: others can't be told that theirs is worth nothing any more. */
static bool forget(struct seen_listener *l, uint32_t route)
{
    struct err e;

    seen_cache_forget(l->o.cache, route);
    if (seen_forget_shared(l->session, route, &e))
        return true;
    lose(l, &e);
    return false;
}

static void join(struct seen_listener *l)
{
    const struct config *c = l->o.config;

    for (uint32_t i = 0; i < c->n_routes; i++)
        if (drops(&c->routes[i]) && !forget(l, i))
            return;
    for (uint32_t i = 0; i < c->n_routes; i++)
        if (drops(&c->routes[i]))
            seen_cache_trust(l->o.cache, i, true);
    if (l->failures > 0)
        log_info("seen.drop_on is listened to again", LOG_INT("failures", l->failures));
    l->failures = 0;
    l->joined = true;
    metric_set(l->listening, 1);
}

static void hear(struct seen_listener *l, const struct listener_message *m)
{
    for (uint32_t i = 0; i < l->o.config->n_routes; i++)
        if (is_about(l, &l->o.config->routes[i], m) && !forget(l, i))
            return;
}

/* --- the thread --- */

static bool may_go_on(struct seen_listener *l, int64_t wait_ms)
{
    int64_t until_ms = clock_mono_ms() + wait_ms;

    MUST(pthread_mutex_lock(&l->lock) == 0);
    while (!l->stopping && clock_mono_ms() < until_ms)
        clock_cond_wait(&l->changed, &l->lock, until_ms);
    bool go_on = !l->stopping;
    MUST(pthread_mutex_unlock(&l->lock) == 0);
    return go_on;
}

static int64_t backoff_ms(const struct seen_listener *l)
{
    if (l->joined || l->failures == 0)
        return 0;
    return l->failures < BACKOFF_MAX_MS / BACKOFF_STEP_MS ? (int64_t)l->failures * BACKOFF_STEP_MS
                                                          : BACKOFF_MAX_MS;
}

static void *listener_main(void *arg)
{
    struct seen_listener *l = arg;
    struct listener_message m;
    struct err e;

    while (may_go_on(l, backoff_ms(l))) {
        switch (l->o.listener.ops->next(l->o.listener.self, WAIT_MS, &m, &e)) {
        case LISTENER_NOTHING:
            break;
        case LISTENER_JOINED:
            join(l);
            break;
        case LISTENER_MESSAGE:
            hear(l, &m);
            break;
        case LISTENER_LOST:
            lose(l, &e);
            break;
        }
    }
    return NULL;
}

struct seen_listener *seen_listener_start(const struct seen_listener_options *options)
{
    struct seen_listener *l = mem_new(sizeof *l);
    sigset_t all, before;

    l->o = *options;
    l->session = seen_session_open(l->o.cache);
    l->listening = metrics_gauge(l->o.metrics, "idemsink_seen_listening",
                                 "1 while the channels of seen.drop_on are listened to.", "");
    MUST(pthread_mutex_init(&l->lock, NULL) == 0);
    clock_cond_init(&l->changed);
    (void)sigfillset(&all);
    MUST(pthread_sigmask(SIG_SETMASK, &all, &before) == 0);
    MUST(pthread_create(&l->thread, NULL, listener_main, l) == 0);
    MUST(pthread_sigmask(SIG_SETMASK, &before, NULL) == 0);
    return l;
}

void seen_listener_stop(struct seen_listener *l)
{
    if (!l)
        return;
    MUST(pthread_mutex_lock(&l->lock) == 0);
    l->stopping = true;
    MUST(pthread_cond_signal(&l->changed) == 0);
    MUST(pthread_mutex_unlock(&l->lock) == 0);
    MUST(pthread_join(l->thread, NULL) == 0);
    seen_session_close(l->session);
    (void)pthread_cond_destroy(&l->changed);
    (void)pthread_mutex_destroy(&l->lock);
    mem_free(l);
}
