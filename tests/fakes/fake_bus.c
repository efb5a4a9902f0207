#include "fakes/fake_bus.h"

#include <pthread.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fakes/check.h"

enum { PATIENCE_MS = 30000 };

struct fake_bus {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct dice dice;
    enum fake_bus_mode mode;
    bool hang, hanging;
    struct invalidation_list sent;
    size_t calls;
};

/* Of n messages the first how many are answered? */
static size_t answered_locked(struct fake_bus *b, size_t n, unsigned *delay_us)
{
    if (b->mode == FAKE_BUS_AWAY)
        return 0;
    if (b->mode != FAKE_BUS_RANDOM)
        return n;
    if (dice_permille(&b->dice, 200))
        *delay_us = (unsigned)dice_below(&b->dice, 3000);
    if (dice_permille(&b->dice, 100))
        return 0;
    return dice_permille(&b->dice, 150) ? (size_t)dice_below(&b->dice, n) : n;
}

static bool bus_send(void *self, const struct invalidation *messages, size_t n, bool *sent,
                     uint64_t *receivers, struct err *e)
{
    struct fake_bus *b = self;
    unsigned delay_us = 0;
    size_t left, refused = 0;

    (void)pthread_mutex_lock(&b->lock);
    b->calls++;
    b->hanging = b->hang;
    (void)pthread_cond_broadcast(&b->changed);
    while (b->hang)
        (void)pthread_cond_wait(&b->changed, &b->lock);
    b->hanging = false;
    left = answered_locked(b, n, &delay_us);
    bool all = left == n;
    *receivers = 0;
    for (int first = 1; first >= 0; first--) {
        for (size_t i = 0; i < n; i++) {
            const struct invalidation *m = &messages[i];
            if (invalidation_goes_first(m->kind) != (first == 1))
                continue;
            bool refuse = b->mode == FAKE_BUS_READONLY && m->kind != INVALIDATION_PUBLISH;
            sent[i] = left > 0 && !refuse;
            refused += refuse;
            left -= left > 0;
            if (!sent[i])
                continue;
            struct invalidation *kept =
                invalidation_add(&b->sent, m->kind, m->rule, mem_text(m->name), mem_text(m->body));
            kept->expire_ms = m->expire_ms;
            kept->maxlen = m->maxlen;
            *receivers += m->kind == INVALIDATION_PUBLISH ? 2 : 0;
        }
    }
    (void)pthread_cond_broadcast(&b->changed);
    (void)pthread_mutex_unlock(&b->lock);
    if (delay_us > 0) {
        const struct timespec delay = {.tv_nsec = (long)delay_us * 1000};
        (void)nanosleep(&delay, NULL); /* the answer is late; nobody waits for this length */
    }
    if (!all)
        return err_set(e, ERR_TRANSIENT, 0, "the fake redis is away");
    return refused == 0 || err_set(e, ERR_CONFIG, 0, "the fake redis is a replica");
}

struct fake_bus *fake_bus_new(struct dice dice)
{
    struct fake_bus *b = mem_new(sizeof *b);

    b->dice = dice;
    CHECK(pthread_mutex_init(&b->lock, NULL) == 0, "no mutex");
    clock_cond_init(&b->changed);
    return b;
}

void fake_bus_free(struct fake_bus *b)
{
    invalidation_list_clear(&b->sent);
    (void)pthread_cond_destroy(&b->changed);
    (void)pthread_mutex_destroy(&b->lock);
    mem_free(b);
}

struct bus fake_bus_port(struct fake_bus *b)
{
    static const struct bus_ops ops = {.send = bus_send};

    return (struct bus){.ops = &ops, .self = b};
}

void fake_bus_set_mode(struct fake_bus *b, enum fake_bus_mode mode)
{
    (void)pthread_mutex_lock(&b->lock);
    b->mode = mode;
    (void)pthread_mutex_unlock(&b->lock);
}

void fake_bus_hang(struct fake_bus *b, bool hang)
{
    (void)pthread_mutex_lock(&b->lock);
    b->hang = hang;
    (void)pthread_cond_broadcast(&b->changed);
    (void)pthread_mutex_unlock(&b->lock);
}

static size_t count_locked(const struct fake_bus *b, const char *name, const char *body)
{
    size_t n = 0;

    for (size_t i = 0; i < b->sent.n; i++) {
        const struct invalidation *m = &b->sent.items[i];
        n += strcmp(m->name, name) == 0 && (!body || (m->body && strcmp(m->body, body) == 0));
    }
    return n;
}

size_t fake_bus_count(struct fake_bus *b, const char *name, const char *body)
{
    (void)pthread_mutex_lock(&b->lock);
    size_t n = count_locked(b, name, body);
    (void)pthread_mutex_unlock(&b->lock);
    return n;
}

size_t fake_bus_total(struct fake_bus *b)
{
    (void)pthread_mutex_lock(&b->lock);
    size_t n = b->sent.n;
    (void)pthread_mutex_unlock(&b->lock);
    return n;
}

size_t fake_bus_calls(struct fake_bus *b)
{
    (void)pthread_mutex_lock(&b->lock);
    size_t n = b->calls;
    (void)pthread_mutex_unlock(&b->lock);
    return n;
}

void fake_bus_wait_hanging(struct fake_bus *b)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;

    (void)pthread_mutex_lock(&b->lock);
    while (!b->hanging) {
        CHECK(clock_mono_ms() < until_ms, "nothing was sent");
        clock_cond_wait(&b->changed, &b->lock, until_ms);
    }
    (void)pthread_mutex_unlock(&b->lock);
}

void fake_bus_wait_count(struct fake_bus *b, const char *name, size_t at_least)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;

    (void)pthread_mutex_lock(&b->lock);
    while (count_locked(b, name, NULL) < at_least) {
        CHECK(clock_mono_ms() < until_ms, "%s was not sent %zu times", name, at_least);
        clock_cond_wait(&b->changed, &b->lock, until_ms);
    }
    (void)pthread_mutex_unlock(&b->lock);
}

void fake_bus_wait_calls(struct fake_bus *b, size_t at_least)
{
    int64_t until_ms = clock_mono_ms() + PATIENCE_MS;

    (void)pthread_mutex_lock(&b->lock);
    while (b->calls < at_least) {
        CHECK(clock_mono_ms() < until_ms, "there were no %zu calls", at_least);
        clock_cond_wait(&b->changed, &b->lock, until_ms);
    }
    (void)pthread_mutex_unlock(&b->lock);
}

static const char *text_of(struct fake_bus *b, size_t n, bool name)
{
    const char *text = NULL;

    (void)pthread_mutex_lock(&b->lock);
    if (n < b->sent.n)
        text = name ? b->sent.items[n].name : b->sent.items[n].body;
    (void)pthread_mutex_unlock(&b->lock);
    return text ? text : "";
}

struct invalidation fake_bus_sent(struct fake_bus *b, size_t n)
{
    (void)pthread_mutex_lock(&b->lock);
    CHECK(n < b->sent.n, "message %zu was not sent", n);
    struct invalidation m = b->sent.items[n];
    (void)pthread_mutex_unlock(&b->lock);
    return m;
}

const char *fake_bus_name(struct fake_bus *b, size_t n)
{
    return text_of(b, n, true);
}

const char *fake_bus_body(struct fake_bus *b, size_t n)
{
    return text_of(b, n, false);
}
