/*
 * The guard, its keeper and threads against a keeper of locks in memory: nothing is written without
 * its lock, nobody waits while he holds one, and what was taken is released, whatever fails.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fakes/check.h"
#include "fakes/dice.h"
#include "run/guard.h"

enum { MOST = 40, KEYS_MAX = 64, LONG_MS = 10000, TTL_MS = 60000, SHORT_TTL_MS = 150 };

/* --- a Redis in memory --- */

struct held_key {
    char *key;
    char token[LOCK_TOKEN_SIZE];
    int64_t until_ms;
};

struct world {
    pthread_mutex_t lock;
    struct held_key keys[KEYS_MAX];
    size_t n_keys;
    struct buf log; /* "take issue renew release " */
    unsigned takes, renews;
    int64_t release_ms;                       /* how long the answer takes */
    bool fail_take, fail_release, fail_renew; /* the answer is lost; it is carried out */
    bool never_waits_holding;                 /* one guard only: whoever takes holds nothing */
    unsigned free_others_at;                  /* take: others' locks are gone then */
    bool steal_at_issue;                      /* the lock is somebody else's behind the number */
    struct dice *dice;
    unsigned permille; /* of calls whose answer is lost, carried out or not */

    int64_t last_number;
    bool no_number, fail_issue;

    struct config config;
    struct config_route route;
    struct metrics *metrics;
    struct guards *guards;
    struct sink sink;
};

static struct held_key *find(struct world *w, const char *key)
{
    for (size_t i = 0; i < w->n_keys; i++)
        if (strcmp(w->keys[i].key, key) == 0)
            return &w->keys[i];
    return NULL;
}

static void drop(struct world *w, struct held_key *k)
{
    mem_free(k->key);
    *k = w->keys[--w->n_keys];
}

static void put(struct world *w, const char *key, const char *token, int64_t until_ms)
{
    struct held_key *k = &w->keys[w->n_keys++];

    CHECK(w->n_keys <= KEYS_MAX, "too many keys");
    k->key = mem_text(key);
    (void)snprintf(k->token, sizeof k->token, "%s", token);
    k->until_ms = until_ms;
}

static void drop_expired(struct world *w)
{
    for (size_t i = w->n_keys; i-- > 0;)
        if (w->keys[i].until_ms <= clock_mono_ms())
            drop(w, &w->keys[i]);
}

static void drop_others(struct world *w)
{
    for (size_t i = w->n_keys; i-- > 0;)
        if (strcmp(w->keys[i].token, "other") == 0)
            drop(w, &w->keys[i]);
}

static void *fake_open(void *self)
{
    return self;
}

static void fake_close(void *session)
{
    (void)session;
}

static bool lost(const struct world *w, bool always)
{
    return always || (w->dice && dice_below(w->dice, 1000) < w->permille);
}

static bool answer(bool lost_answer, struct err *e)
{
    return !lost_answer || err_set(e, ERR_TRANSIENT, 0, "redis is away");
}

static bool fake_take(void *session, const struct lock_set *set, bool *yes, struct err *e)
{
    struct world *w = session;

    (void)pthread_mutex_lock(&w->lock);
    drop_expired(w);
    buf_add_text(&w->log, "take ");
    if (++w->takes == w->free_others_at)
        drop_others(w);
    for (size_t i = 0; i < w->n_keys; i++)
        CHECK(!w->never_waits_holding || strcmp(w->keys[i].token, "other") == 0,
              "%s is held while others are asked for", w->keys[i].key);
    bool carried_out = w->fail_take || w->dice == NULL || dice_below(w->dice, 100) < 90;
    bool is_lost = lost(w, w->fail_take) || !carried_out;

    for (size_t i = 0; i < set->n; i++) {
        CHECK(i == 0 || strcmp(set->keys[i - 1], set->keys[i]) < 0, "not sorted");
        yes[i] = carried_out && find(w, set->keys[i]) == NULL;
        if (yes[i])
            put(w, set->keys[i], set->token, clock_mono_ms() + set->ttl_ms);
        yes[i] = yes[i] && !is_lost;
    }
    (void)pthread_mutex_unlock(&w->lock);
    return answer(is_lost, e);
}

static bool fake_renew(void *session, const struct lock_set *set, bool *yes, struct err *e)
{
    struct world *w = session;

    (void)pthread_mutex_lock(&w->lock);
    drop_expired(w);
    buf_add_text(&w->log, "renew ");
    w->renews++;
    for (size_t i = 0; i < set->n; i++) {
        struct held_key *k = find(w, set->keys[i]);

        yes[i] = k != NULL && strcmp(k->token, set->token) == 0;
        if (yes[i])
            k->until_ms = clock_mono_ms() + set->ttl_ms;
    }
    bool is_lost = lost(w, w->fail_renew);
    (void)pthread_mutex_unlock(&w->lock);
    return answer(is_lost, e);
}

static bool fake_release(void *session, const struct lock_set *set, bool *yes, struct err *e)
{
    struct world *w = session;

    (void)pthread_mutex_lock(&w->lock);
    drop_expired(w);
    buf_add_text(&w->log, "release ");
    struct timespec takes = {.tv_nsec = w->release_ms * 1000000};
    bool is_lost = lost(w, w->fail_release);

    for (size_t i = 0; i < set->n && !w->fail_release; i++) {
        struct held_key *k = find(w, set->keys[i]);

        yes[i] = k != NULL && strcmp(k->token, set->token) == 0;
        if (yes[i])
            drop(w, k);
    }
    (void)pthread_mutex_unlock(&w->lock);
    (void)nanosleep(&takes, NULL);
    return answer(is_lost, e);
}

static bool fake_issue(void *session, uint32_t route, const char *token, const char *const *keys,
                       size_t n, int64_t *numbers, struct outcome *why)
{
    struct world *w = session;

    (void)route;
    (void)pthread_mutex_lock(&w->lock);
    buf_add_text(&w->log, "issue ");
    for (size_t i = 0; i < n; i++) {
        struct held_key *k = find(w, keys[i]);

        CHECK(k && strcmp(k->token, token) == 0, "a number for %s, which is not held", keys[i]);
        numbers[i] = w->no_number ? 0 : ++w->last_number;
        if (w->steal_at_issue)
            (void)snprintf(k->token, sizeof k->token, "other");
    }
    w->steal_at_issue = w->no_number = false;
    if (w->fail_issue)
        *why = (struct outcome){.fate = FATE_UNKNOWN, .retry = RETRY_NO_PRIMARY};
    bool ok = !w->fail_issue;
    (void)pthread_mutex_unlock(&w->lock);
    return ok;
}

static const struct lock_ops lock_ops = {.open = fake_open,
                                         .close = fake_close,
                                         .take = fake_take,
                                         .renew = fake_renew,
                                         .release = fake_release};
static const struct sink_ops sink_ops = {
    .open = fake_open, .close = fake_close, .issue = fake_issue};

static char name[] = "r", key[] = "k", off[] = "", fence[] = "f", field[] = "n";

static struct world *world_new(bool fenced, int64_t ttl_ms, int64_t wait_ms)
{
    struct world *w = mem_new(sizeof *w);

    CHECK(pthread_mutex_init(&w->lock, NULL) == 0, "mutex");
    w->route = (struct config_route){.name = name,
                                     .lock = {.key = key,
                                              .prefix = off,
                                              .ttl_ms = ttl_ms,
                                              .wait_ms = wait_ms,
                                              .fence = fenced ? fence : off,
                                              .fence_field = fenced ? field : off}};
    w->config =
        (struct config){.routes = &w->route, .n_routes = 1, .retry = {.first_ms = 1, .max_ms = 5}};
    w->metrics = metrics_new();
    w->sink = (struct sink){.ops = &sink_ops, .self = w};
    w->guards =
        guards_new(&w->config, (struct lock){.ops = &lock_ops, .self = w}, w->metrics, NULL);
    assert_non_null(w->guards);
    return w;
}

static void world_free(struct world *w)
{
    guards_free(w->guards);
    metrics_free(w->metrics);
    for (size_t i = w->n_keys; i-- > 0;)
        drop(w, &w->keys[i]);
    buf_clear(&w->log);
    (void)pthread_mutex_destroy(&w->lock);
    mem_free(w);
}

static struct guard *open_guard(struct world *w)
{
    struct guard *g = guard_open(w->guards, &w->sink, w);

    CHECK(guard_begin(g, 0), "the route has a lock");
    return g;
}

static size_t count_held(struct world *w)
{
    (void)pthread_mutex_lock(&w->lock);
    drop_expired(w);
    size_t n = w->n_keys;
    (void)pthread_mutex_unlock(&w->lock);
    return n;
}

static void assert_metric(struct world *w, const char *line)
{
    struct buf page = {0};

    metrics_render(w->metrics, &page);
    if (strstr(buf_text(&page), line) == NULL)
        fail_msg("%s is not in %s", line, buf_text(&page));
    buf_clear(&page);
}

static void assert_log(struct world *w, const char *expected)
{
    assert_string_equal(buf_text(&w->log), expected);
    buf_reset(&w->log);
}

/* --- operations --- */

struct batch {
    struct write_op ops[MOST];
    size_t index[MOST], n;
};

static char lanes[10];

/* "a1 b2": key a in lane 1, key b in lane 2; an upper-case key is of an event that removes. */
static struct batch batch_of(const char *text, bool fenced)
{
    struct batch b = {0};

    for (const char *at = text; *at; at += 2 + (at[2] == ' '), b.n++) {
        struct write_op *op = &b.ops[b.n];

        *op = (struct write_op){.lock = mem_text_n(at, 1), .lane = &lanes[at[1] - '0']};
        op->filter = bson_new();
        op->document = bson_new();
        b.index[b.n] = b.n;
        if (!fenced)
            continue;
        op->effects = mem_new(sizeof *op->effects);
        op->effects->action = *at < 'a' ? EFFECT_DELETE : EFFECT_STORE;
        op->effects->fence = BCON_NEW("_id", BCON_UTF8(op->lock));
    }
    return b;
}

static void batch_clear(struct batch *b)
{
    for (size_t i = 0; i < b->n; i++)
        write_op_clear(&b->ops[i]);
}

static void sleep_ms(int64_t ms)
{
    struct timespec t = {.tv_nsec = ms * 1000000};

    (void)nanosleep(&t, NULL);
}

static void wait_until_free(struct world *w)
{
    for (int64_t end_ms = clock_mono_ms() + LONG_MS; count_held(w) > 0;) {
        CHECK(clock_mono_ms() < end_ms, "%zu keys are held", count_held(w));
        sleep_ms(1);
    }
}

/* --- tests --- */

static void what_is_free_is_taken_at_once(void **state)
{
    struct world *w = world_new(false, TTL_MS, LONG_MS);
    struct guard *g = open_guard(w);
    struct batch b = batch_of("a1 b2 a3", false);

    (void)state;
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 3);
    assert_int_equal(count_held(w), 2);
    assert_metric(w, "idemsink_locks_held 2");
    guard_release(g, NULL, 0);
    assert_int_equal(count_held(w), 0);
    assert_log(w, "take release ");
    assert_metric(w, "idemsink_locks_held 0");
    assert_metric(w, "idemsink_locks_taken_total{route=\"r\"} 2");
    assert_metric(w, "idemsink_locks_lost_total{route=\"r\"} 0");
    batch_clear(&b);
    guard_close(g);
    world_free(w);
}

static void others_go_on_and_the_rest_comes_later(void **state)
{
    struct world *w = world_new(false, TTL_MS, LONG_MS);
    struct guard *g = open_guard(w);
    struct batch b = batch_of("a1 b1 c2", false);

    (void)state;
    put(w, "a", "other", INT64_MAX);
    w->free_others_at = 5;
    w->never_waits_holding = true;
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 1);
    assert_int_equal(b.index[0], 2);
    assert_int_equal(b.index[1], 0); /* b waits behind a, which is of its lane */
    assert_int_equal(b.index[2], 1);
    guard_release(g, NULL, 0);
    assert_int_equal(guard_take(g, &b.ops[1], &b.index[1], 2), 2);
    assert_int_equal(w->takes, 5);
    guard_release(g, NULL, 0);
    assert_int_equal(count_held(w), 0);
    batch_clear(&b);
    guard_close(g);
    world_free(w);
}

static void who_gets_nothing_in_time_goes_back(void **state)
{
    struct world *w = world_new(false, TTL_MS, 30);
    int64_t start_ms = clock_mono_ms(); /* the wait counts from guard_begin(), in open_guard() */
    struct guard *g = open_guard(w);
    struct batch b = batch_of("a1 b1", false);
    const char *text;

    (void)state;
    put(w, "a", "other", INT64_MAX);
    w->never_waits_holding = true;
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 0);
    assert_true(clock_mono_ms() - start_ms >= 30);
    assert_null(guard_why(g, 2, &text));
    assert_int_equal(count_held(w), 1); /* theirs */
    assert_metric(w, "idemsink_lock_waits_total{route=\"r\"} 2");
    batch_clear(&b);
    guard_close(g);
    world_free(w);
}

static void a_slow_write_keeps_its_lock(void **state)
{
    struct world *w = world_new(false, SHORT_TTL_MS, LONG_MS);
    struct guard *g = open_guard(w);
    struct batch b = batch_of("a1", false);
    int64_t end_ms = clock_mono_ms() + LONG_MS;
    unsigned renews = 0;

    (void)state;
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 1);
    while (renews < 2) { /* the write lasts */
        sleep_ms(1);
        (void)pthread_mutex_lock(&w->lock);
        renews = w->renews;
        (void)pthread_mutex_unlock(&w->lock);
        CHECK(clock_mono_ms() < end_ms, "not renewed");
    }
    guard_release(g, NULL, 0);
    batch_clear(&b);
    guard_close(g);
    world_free(w);
}

static void a_lock_that_is_lost_is_told(void **state)
{
    struct world *w = world_new(false, TTL_MS, LONG_MS);
    struct guard *g = open_guard(w);
    struct batch b = batch_of("a1 b2", false);

    (void)state;
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 2);
    (void)pthread_mutex_lock(&w->lock);
    (void)snprintf(find(w, "a")->token, LOCK_TOKEN_SIZE, "other");
    (void)pthread_mutex_unlock(&w->lock);
    guard_release(g, NULL, 0);
    assert_metric(w, "idemsink_locks_lost_total{route=\"r\"} 1");
    assert_int_equal(count_held(w), 1); /* theirs stays */
    batch_clear(&b);
    guard_close(g);
    world_free(w);
}

static int64_t number_of(const bson_t *b, const char *field_name)
{
    bson_iter_t at;

    return bson_iter_init_find(&at, b, field_name) ? bson_iter_as_int64(&at) : -1;
}

static void a_number_is_given_between_taking_and_confirming(void **state)
{
    static const struct outcome outcomes[3] = {{.fate = FATE_INSERTED},
                                               {.fate = FATE_LATER, .retry = RETRY_LOCK},
                                               {.fate = FATE_INSERTED}};
    struct world *w = world_new(true, TTL_MS, LONG_MS);
    struct guard *g = open_guard(w);
    struct batch b = batch_of("a1 B2 a3", true);

    (void)state;
    w->last_number = 41;
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 3);
    assert_log(w, "take issue renew ");
    /* B is sorted before a. */
    assert_int_equal(b.ops[0].effects->fence_number, 43);
    assert_int_equal(b.ops[1].effects->fence_number, 42);
    assert_int_equal(number_of(b.ops[0].effects->fence, "issued"), 43);
    assert_int_equal(number_of(b.ops[0].document, "n"), 43);
    assert_int_equal(number_of(b.ops[2].document, "n"), 43);
    assert_int_equal(number_of(b.ops[1].effects->fence, "issued"), 42);
    assert_int_equal(number_of(b.ops[1].document, "n"), -1); /* it stores nothing */
    guard_release(g, outcomes, 3);
    assert_metric(w, "idemsink_fence_refused_total{route=\"r\"} 1");
    batch_clear(&b);
    guard_close(g);
    world_free(w);
}

/* The number might be later than that of who holds the lock now. */
static void a_lock_that_is_lost_behind_its_number_is_no_lock(void **state)
{
    struct world *w = world_new(true, TTL_MS, 0);
    struct guard *g = open_guard(w);
    struct batch b = batch_of("a1", true);
    const char *text;

    (void)state;
    w->steal_at_issue = true;
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 0);
    assert_null(guard_why(g, 1, &text));
    assert_log(w, "take issue renew release ");
    assert_int_equal(count_held(w), 1); /* theirs */
    (void)pthread_mutex_lock(&w->lock);
    drop_others(w);
    w->no_number = true;
    (void)pthread_mutex_unlock(&w->lock);
    CHECK(guard_begin(g, 0), "lock");
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 0);
    assert_int_equal(count_held(w), 0);
    CHECK(guard_begin(g, 0), "lock");
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 1);
    guard_release(g, NULL, 0);
    batch_clear(&b);
    guard_close(g);
    world_free(w);
}

static void without_a_number_nothing_is_written(void **state)
{
    struct world *w = world_new(true, TTL_MS, LONG_MS);
    struct guard *g = open_guard(w);
    struct batch b = batch_of("a1", true);
    const struct outcome *why;
    const char *text;

    (void)state;
    w->fail_issue = true;
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 0);
    why = guard_why(g, 1, &text);
    assert_non_null(why);
    assert_int_equal(why->retry, RETRY_NO_PRIMARY);
    assert_int_equal(count_held(w), 0);
    batch_clear(&b);
    guard_close(g);
    world_free(w);
}

static void an_answer_that_got_lost_leaves_no_lock_behind(void **state)
{
    struct world *w = world_new(false, TTL_MS, LONG_MS);
    struct guard *g = open_guard(w), *other = open_guard(w);
    struct batch b = batch_of("a1 b2", false);
    const struct outcome *why;
    const char *text;

    (void)state;
    w->config.retry.first_ms = w->config.retry.max_ms =
        0; /* then it waits for a moment all the same */
    w->fail_take = true;
    assert_int_equal(guard_take(g, b.ops, b.index, b.n), 0);
    why = guard_why(g, 2, &text);
    assert_non_null(why);
    assert_int_equal(why->retry, RETRY_LOCK);
    assert_string_equal(text, "redis is away");
    wait_until_free(w); /* the keeper saw to it */
    w->fail_take = false;
    for (int64_t end_ms = clock_mono_ms() + LONG_MS;;) {
        if (guard_take(other, b.ops, b.index, b.n) == 2)
            break;
        CHECK(clock_mono_ms() < end_ms, "no lock");
    }
    (void)pthread_mutex_lock(&w->lock);
    w->fail_release = true;
    (void)pthread_mutex_unlock(&w->lock);
    guard_release(other, NULL, 0);
    assert_int_equal(count_held(w), 2);
    (void)pthread_mutex_lock(&w->lock);
    w->fail_release = false;
    (void)pthread_mutex_unlock(&w->lock);
    wait_until_free(w);
    batch_clear(&b);
    guard_close(other);
    guard_close(g);
    world_free(w);
}

/* While Redis is away one asks now and then, and the others don't. */
static void not_everybody_asks_while_redis_is_away(void **state)
{
    struct world *w = world_new(false, TTL_MS, LONG_MS);
    struct guard *g = open_guard(w);
    struct batch b = batch_of("a1", false);
    const char *text;
    unsigned tries = 0;

    (void)state;
    w->config.retry.first_ms = w->config.retry.max_ms = LONG_MS; /* up to half a second */
    w->fail_take = true;
    for (int64_t end_ms = clock_mono_ms() + 100; clock_mono_ms() < end_ms; tries++)
        assert_int_equal(guard_take(g, b.ops, b.index, b.n), 0);
    assert_non_null(guard_why(g, 1, &text));
    (void)pthread_mutex_lock(&w->lock);
    assert_true(tries > 1000 ? w->takes < tries / 10 : true);
    (void)pthread_mutex_unlock(&w->lock);
    batch_clear(&b);
    guard_close(g);
    world_free(w);
}

/* Many sets are owed to a Redis that is away: who leaves does not wait a time-out for each. */
static void who_leaves_does_not_wait_for_redis(void **state)
{
    enum { SETS = 8 };
    struct world *w = world_new(false, TTL_MS, LONG_MS);
    struct guard *g = open_guard(w);
    unsigned releases = 0;

    (void)state;
    w->fail_release = true;
    for (char i = 0; i < SETS; i++) {
        char text[] = {(char)('a' + i), '1', '\0'};
        struct batch b = batch_of(text, false);

        assert_int_equal(guard_take(g, b.ops, b.index, b.n), 1);
        guard_release(g, NULL, 0);
        batch_clear(&b);
    }
    guard_close(g);
    (void)pthread_mutex_lock(&w->lock);
    w->release_ms = 50;
    buf_reset(&w->log);
    (void)pthread_mutex_unlock(&w->lock);
    guards_free(w->guards);
    w->guards = NULL;
    for (const char *at = buf_text(&w->log); (at = strstr(at, "release ")) != NULL; at++)
        releases++;
    assert_true(releases <= SETS / 2); /* 0: one was on its way */
    world_free(w);
}

/* --- threads --- */

enum { THREADS = 3, BATCHES = 150, SHARED_KEYS = 6 };

static atomic_int writers[SHARED_KEYS];

struct writer {
    struct world *w;
    unsigned seed;
};

static void *writer_main(void *arg)
{
    struct writer *me = arg;
    struct guard *g = open_guard(me->w);

    for (int round = 0; round < BATCHES; round++) {
        char text[64] = "";
        size_t done = 0;

        for (int i = 0, n = 1 + rand_r(&me->seed) % 8; i < n; i++)
            (void)snprintf(text + strlen(text), sizeof text - strlen(text), "%s%c%d", i ? " " : "",
                           'a' + rand_r(&me->seed) % SHARED_KEYS, rand_r(&me->seed) % 3);
        struct batch b = batch_of(text, false);
        int64_t end_ms = clock_mono_ms() + LONG_MS;

        while (done < b.n) {
            CHECK(clock_mono_ms() < end_ms, "stuck with %s", text);
            CHECK(guard_begin(g, 0), "lock");
            size_t n = guard_take(g, &b.ops[done], &b.index[done], b.n - done);

            for (size_t i = done; i < done + n; i++)
                for (size_t j = done; j <= i; j++) /* each key once */
                    if (strcmp(b.ops[j].lock, b.ops[i].lock) == 0) {
                        CHECK(j < i || atomic_fetch_add(&writers[*b.ops[i].lock - 'a'], 1) == 0,
                              "two write under %s", b.ops[i].lock);
                        break;
                    }
            if (n > 0) {
                for (size_t i = done; i < done + n; i++)
                    atomic_store(&writers[*b.ops[i].lock - 'a'], 0);
                guard_release(g, NULL, 0);
            }
            done += n;
        }
        batch_clear(&b);
    }
    guard_close(g);
    return NULL;
}

static void nobody_writes_beside_another(void **state)
{
    struct world *w = world_new(false, TTL_MS, 5);
    struct writer all[THREADS];
    pthread_t threads[THREADS];
    struct dice dice = dice_seed("test_guard");
    unsigned seed = (unsigned)dice_below(&dice, 1000000);

    (void)state;
    w->dice = &dice;
    w->permille = 30;
    for (int i = 0; i < THREADS; i++) {
        all[i] = (struct writer){.w = w, .seed = seed + (unsigned)i};
        CHECK(pthread_create(&threads[i], NULL, writer_main, &all[i]) == 0, "thread");
    }
    for (int i = 0; i < THREADS; i++)
        (void)pthread_join(threads[i], NULL);
    wait_until_free(w);
    world_free(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_free_is_taken_at_once),
        cmocka_unit_test(others_go_on_and_the_rest_comes_later),
        cmocka_unit_test(who_gets_nothing_in_time_goes_back),
        cmocka_unit_test(a_slow_write_keeps_its_lock),
        cmocka_unit_test(a_lock_that_is_lost_is_told),
        cmocka_unit_test(a_number_is_given_between_taking_and_confirming),
        cmocka_unit_test(a_lock_that_is_lost_behind_its_number_is_no_lock),
        cmocka_unit_test(without_a_number_nothing_is_written),
        cmocka_unit_test(an_answer_that_got_lost_leaves_no_lock_behind),
        cmocka_unit_test(not_everybody_asks_while_redis_is_away),
        cmocka_unit_test(who_leaves_does_not_wait_for_redis),
        cmocka_unit_test(nobody_writes_beside_another),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
