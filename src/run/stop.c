#include "run/stop.h"

void stop_init(struct stop *s, void (*on_ask)(void *ctx), void *ctx)
{
    *s = (struct stop){.on_ask = on_ask, .ctx = ctx};
    MUST(pthread_mutex_init(&s->lock, NULL) == 0);
}

void stop_clear(struct stop *s)
{
    (void)pthread_mutex_destroy(&s->lock);
}

void stop_ask(struct stop *s, const struct err *why)
{
    bool first;

    (void)pthread_mutex_lock(&s->lock);
    first = !s->asked;
    s->asked = true;
    if (first && why) {
        s->failed = true;
        s->why = *why;
    }
    (void)pthread_mutex_unlock(&s->lock);
    if (first)
        s->on_ask(s->ctx);
}

bool stop_asked(struct stop *s)
{
    (void)pthread_mutex_lock(&s->lock);
    bool asked = s->asked;
    (void)pthread_mutex_unlock(&s->lock);
    return asked;
}

bool stop_failed(struct stop *s, struct err *why)
{
    (void)pthread_mutex_lock(&s->lock);
    bool failed = s->failed;
    if (failed)
        *why = s->why;
    (void)pthread_mutex_unlock(&s->lock);
    return failed;
}
