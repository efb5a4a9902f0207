#include "run/route_state.h"

#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"

enum { SAY_AGAIN_MS = 60000, FLAP_MS = 5000 };

struct state {
    enum retry_class why; /* RETRY_NONE: it is written */
    int code;
    int64_t since_ms, until_ms;        /* monotonic; not confirmed until then: over */
    int64_t said_at_ms[RETRY_CLASSES]; /* 0: never */
    bool told[RETRY_CLASSES];          /* in this trouble */
    char *text;
    struct {
        char *text; /* NULL: none waits */
        size_t n;   /* how many were said to; those whose partition went away are among them */
        int64_t since_ms, until_ms, said_at_ms;
        bool told;
    } part; /* records that wait until somebody acts, while others go on */
};

struct route_state {
    const struct config *config;
    int64_t attempt_ms; /* how long it can take until the next attempt has failed */
    pthread_mutex_t lock;
    struct state *states;     /* lock; by route */
    atomic_bool *held;        /* written under lock */
    uint32_t *first;          /* by route: the first route with its collection; constant */
    _Atomic uint64_t *stored; /* by first */
    _Atomic uint64_t *cleared;
};

static bool is_blocked(const struct state *st, enum retry_class why, int64_t now_ms)
{
    return (st->why == why && now_ms < st->until_ms) ||
           (why == RETRY_CONFIG && st->part.text && now_ms < st->part.until_ms);
}

static void collect(struct buf *out, void *ctx)
{
    struct route_state *s = ctx;
    int64_t now_ms = clock_mono_ms();
    struct buf labels = {0};

    metrics_head(out, "idemsink_route_blocked", "gauge",
                 "1 while what a route writes is not acknowledged, for this class of reason.");
    (void)pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->config->n_routes; i++) {
        const struct state *st = &s->states[i];

        for (int c = RETRY_NONE + 1; c < RETRY_CLASSES; c++) {
            if (c == RETRY_DEAD_LETTER)
                continue;
            buf_reset(&labels);
            metrics_label(&labels, "route", s->config->routes[i].name);
            metrics_label(&labels, "class", retry_class_name((enum retry_class)c));
            metrics_line(out, "idemsink_route_blocked", labels.data,
                         is_blocked(st, (enum retry_class)c, now_ms));
        }
    }
    (void)pthread_mutex_unlock(&s->lock);
    buf_clear(&labels);
}

static uint32_t first_of(const struct config *c, size_t route)
{
    size_t i = 0;

    while (i < route && (strcmp(c->routes[i].database, c->routes[route].database) != 0 ||
                         strcmp(c->routes[i].collection, c->routes[route].collection) != 0))
        i++;
    return (uint32_t)i;
}

struct route_state *route_state_new(const struct config *c, struct metrics *registry)
{
    struct route_state *s = mem_new(sizeof *s);
    size_t n = c->n_routes > 0 ? c->n_routes : 1;

    s->config = c;
    s->attempt_ms = c->retry.max_ms + c->mongo.server_selection_timeout_ms +
                    c->mongo.connect_timeout_ms + 2 * c->mongo.socket_timeout_ms;
    MUST(pthread_mutex_init(&s->lock, NULL) == 0);
    s->states = mem_array(n, sizeof *s->states);
    s->held = mem_array(n, sizeof *s->held);
    s->first = mem_array(n, sizeof *s->first);
    s->stored = mem_array(n, sizeof *s->stored);
    s->cleared = mem_array(n, sizeof *s->cleared);
    for (size_t i = 0; i < c->n_routes; i++)
        s->first[i] = first_of(c, i);
    metrics_collector(registry, collect, s);
    return s;
}

void route_state_free(struct route_state *s)
{
    if (s == NULL)
        return;
    for (size_t i = 0; i < s->config->n_routes; i++) {
        mem_free(s->states[i].text);
        mem_free(s->states[i].part.text);
    }
    (void)pthread_mutex_destroy(&s->lock);
    mem_free(s->states);
    mem_free(s->held);
    mem_free(s->first);
    mem_free(s->stored);
    mem_free(s->cleared);
    mem_free(s);
}

uint64_t route_state_stored(struct route_state *s, uint32_t route, uint64_t n)
{
    return atomic_fetch_add(&s->stored[s->first[route]], n) + n;
}

uint64_t route_state_cleared(struct route_state *s, uint32_t route, uint64_t n)
{
    return atomic_fetch_add(&s->cleared[s->first[route]], n) + n;
}

/* It does not pass by itself. */
static bool needs_somebody(enum retry_class why)
{
    return why == RETRY_RIGHTS || why == RETRY_CONFIG;
}

/* Once in a trouble and then each minute; what comes and goes, not more than every few seconds. */
static bool is_news(const struct state *st, enum retry_class why, int64_t now_ms)
{
    return st->said_at_ms[why] == 0 ||
           now_ms - st->said_at_ms[why] >= (st->told[why] ? SAY_AGAIN_MS : FLAP_MS);
}

bool route_state_trouble(struct route_state *s, uint32_t route, enum retry_class why, int code)
{
    struct state *st = &s->states[route];
    int64_t now_ms = clock_mono_ms();

    (void)pthread_mutex_lock(&s->lock);
    if (st->why == RETRY_NONE || now_ms >= st->until_ms)
        st->since_ms = now_ms;
    if (st->why != why) {
        mem_free(st->text);
        st->text = NULL;
    }
    st->why = why;
    st->code = code;
    st->until_ms = now_ms + s->attempt_ms;
    atomic_store(&s->held[route], needs_somebody(why));
    bool say = is_news(st, why, now_ms);
    if (say) {
        st->said_at_ms[why] = now_ms;
        st->told[why] = true;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return say;
}

void route_state_explain(struct route_state *s, uint32_t route, const char *text)
{
    (void)pthread_mutex_lock(&s->lock);
    mem_free(s->states[route].text);
    s->states[route].text = s->states[route].why == RETRY_NONE ? NULL : mem_text(text);
    (void)pthread_mutex_unlock(&s->lock);
}

bool route_state_fine(struct route_state *s, uint32_t route, int64_t *lasted_ms)
{
    struct state *st = &s->states[route];

    (void)pthread_mutex_lock(&s->lock);
    bool told = false;
    for (int c = 0; c < RETRY_CLASSES; c++) {
        told = told || st->told[c];
        st->told[c] = false;
    }
    *lasted_ms = clock_mono_ms() - st->since_ms;
    st->why = RETRY_NONE;
    mem_free(st->text);
    st->text = NULL;
    atomic_store(&s->held[route], false);
    (void)pthread_mutex_unlock(&s->lock);
    return told;
}

bool route_state_part_waits(struct route_state *s, uint32_t route, bool *waits, const char *text)
{
    struct state *st = &s->states[route];
    int64_t now_ms = clock_mono_ms();

    (void)pthread_mutex_lock(&s->lock);
    bool same = st->part.text && strcmp(st->part.text, text) == 0;
    bool say =
        st->part.said_at_ms == 0 || now_ms - st->part.said_at_ms >= (same ? SAY_AGAIN_MS : FLAP_MS);
    if (st->part.text == NULL || now_ms >= st->part.until_ms) {
        st->part.since_ms = now_ms;
        st->part.n = 0;
    }
    st->part.n += !*waits || st->part.n == 0;
    *waits = true;
    if (!same) {
        mem_free(st->part.text);
        st->part.text = mem_text(text);
    }
    st->part.until_ms = now_ms + s->attempt_ms;
    if (say) {
        st->part.said_at_ms = now_ms;
        st->part.told = true;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return say;
}

bool route_state_part_goes_on(struct route_state *s, uint32_t route, bool *waits,
                              int64_t *lasted_ms)
{
    struct state *st = &s->states[route];

    if (!*waits)
        return false;
    *waits = false;
    (void)pthread_mutex_lock(&s->lock);
    st->part.n -= st->part.n > 0;
    bool told = st->part.told && st->part.n == 0;
    *lasted_ms = clock_mono_ms() - st->part.since_ms;
    if (st->part.n == 0) {
        mem_free(st->part.text);
        st->part.text = NULL;
        st->part.told = false;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return told;
}

const atomic_bool *route_state_held(const struct route_state *s)
{
    return s->held;
}

/* "route orders, collection shop.orders, for 3 s: what to do" */
static void add_place(struct buf *out, const struct config_route *r, int64_t ms, const char *todo)
{
    buf_printf(out, "route %s, collection %s.%s, for %lld s: %s", r->name, r->database,
               r->collection, (long long)ms / 1000, todo);
}

bool route_state_describe(struct route_state *s, struct buf *out)
{
    int64_t now_ms = clock_mono_ms();
    bool any = false;

    (void)pthread_mutex_lock(&s->lock);
    for (size_t i = 0; i < s->config->n_routes; i++) {
        const struct state *st = &s->states[i];
        const struct config_route *r = &s->config->routes[i];

        if (st->part.text && now_ms < st->part.until_ms) {
            buf_printf(out, "%srecords wait until somebody acts: ", any ? "\n" : "");
            add_place(out, r, now_ms - st->part.since_ms, st->part.text);
            any = true;
        }
        if (st->why == RETRY_NONE || now_ms >= st->until_ms)
            continue;
        buf_printf(out, "%sMongoDB does not acknowledge: %s", any ? "\n" : "",
                   retry_class_name(st->why));
        if (st->code != 0)
            buf_printf(out, " (code %d)", st->code);
        buf_add_text(out, ", ");
        add_place(out, r, now_ms - st->since_ms,
                  st->text ? st->text : outcome_advice(st->why, st->code));
        any = true;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return any;
}
