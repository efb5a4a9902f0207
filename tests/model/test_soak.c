/*
 * The real pipeline with real threads between a restless consumer group and a database that looks
 * at who writes what (fakes/fake_source.h, fakes/fake_sink.h): transient failures of records and of
 * whole batches, a dead-letter topic that is away now and then, rebalances every few milliseconds
 * with drains of 0 to 3 ms, so that workers and the notifier come back late. Once with a database
 * that judges by itself, once with the real plan between (fakes/fake_planned.h), in modes of
 * writing that the dice choose.
 *
 * IDEMSINK_SEED repeats the random choices (not the threads' timing), IDEMSINK_SOAK_SECONDS sets
 * how long it goes on before it must come to its end.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/retry.h"
#include "fakes/check.h"
#include "fakes/fake_planned.h"
#include "fakes/fake_source.h"
#include "run/pipeline.h"

enum {
    WORKERS = 4,
    CAP = 48,
    RUN_MAX = 6,
    BATCH_BYTES = 40000,
    MAX_RECORDS = 1500,
    MAX_BYTES = 800000,
    COMMIT_US = 2000,
    REBALANCE_US = 3000,
    DRAIN_MS = 3,
    ENTRIES_PER_SECOND = 40000, /* at most, of each partition: bounds the memory of a long run */
    STUCK_MS = 60000
};

struct soak {
    struct fake_log *log;
    struct fake_sink *sink;
    struct fake_source *source;
    struct source port;
    struct pipeline *pipeline;

    /* Intake thread. Each assignment of a partition has a number, which its records carry as
     * timestamp_ms. */
    struct dice dice;
    int64_t assignment[FAKE_PARTITIONS];
    int64_t committed[FAKE_PARTITIONS];
    int64_t commit_at_us;
    uint64_t offered, drains, deadlines;

    /* The last assignment of which nothing may be handed out any more. */
    _Atomic int64_t over[FAKE_PARTITIONS];
    atomic_uint_fast64_t taken, runs, deferred, again, rejected;

    pthread_mutex_t lock;
    pthread_cond_t told;
    struct settled *queue; /* lock; what the notifier has to settle */
    size_t n_queue, cap_queue;
    bool closing; /* lock */
};

struct thread {
    struct soak *soak;
    struct dice dice;
    struct fake_planned *planned; /* NULL: straight to the sink */
    int number;
    pthread_t id;
};

/* ---- intake ---- */

static void on_assigned(void *ctx, uint32_t slot, int64_t next_offset)
{
    struct soak *k = ctx;
    uint32_t p = fake_partition_of(slot);

    k->assignment[p]++;
    k->committed[p] = next_offset;
    pipeline_assign(k->pipeline, slot, next_offset);
}

static void on_revoked(void *ctx, const uint32_t *slots, size_t n, bool lost)
{
    struct soak *k = ctx;
    struct commit_point points[FAKE_PARTITIONS];
    size_t due = 0;
    struct err e;
    bool sent;

    if (!lost || dice_permille(&k->dice, 500)) {
        k->drains++;
        k->deadlines += !pipeline_drain(k->pipeline, slots, n,
                                        lost ? 0 : (int64_t)dice_below(&k->dice, DRAIN_MS + 1));
        for (size_t i = 0; i < n; i++)
            atomic_store(&k->over[fake_partition_of(slots[i])],
                         k->assignment[fake_partition_of(slots[i])]);
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t p = fake_partition_of(slots[i]);
        int64_t watermark = pipeline_revoke(k->pipeline, slots[i]);

        atomic_store(&k->over[p], k->assignment[p]);
        CHECK(pipeline_watermark(k->pipeline, slots[i]) == -1, "partition %u", p);
        if (watermark > k->committed[p])
            points[due++] = (struct commit_point){.slot = slots[i], .offset = watermark};
    }
    if (!lost && due > 0)
        (void)k->port.ops->commit(k->port.self, points, due, 1000, &sent, &e);
}

static void on_end(void *ctx, uint32_t slot, int64_t end_offset)
{
    struct soak *k = ctx;

    pipeline_end(k->pipeline, slot, end_offset);
}

static bool on_wants(void *ctx, uint32_t slot, bool again)
{
    struct soak *k = ctx;

    return pipeline_wants(k->pipeline, slot, again);
}

static void on_committed(void *ctx, const struct commit_point *points, size_t n, bool ok)
{
    struct soak *k = ctx;

    for (size_t i = 0; ok && i < n; i++) {
        uint32_t p = fake_partition_of(points[i].slot);

        if (points[i].offset > k->committed[p])
            k->committed[p] = points[i].offset;
    }
}

static void commit(struct soak *k)
{
    struct commit_point points[FAKE_PARTITIONS];
    int64_t now_us = clock_mono_us();
    size_t n = 0;
    struct err e;
    bool sent;

    if (now_us < k->commit_at_us)
        return;
    k->commit_at_us = now_us + COMMIT_US;
    for (uint32_t p = 0; p < FAKE_PARTITIONS; p++) {
        int64_t watermark = pipeline_watermark(k->pipeline, fake_slot(p));

        if (watermark > k->committed[p])
            points[n++] = (struct commit_point){.slot = fake_slot(p), .offset = watermark};
    }
    if (n > 0)
        CHECK(k->port.ops->commit(k->port.self, points, n, 0, &sent, &e), "commit");
}

/* The books add up (pipeline_stats() aborts when they don't) and the budget holds. */
static void look(struct soak *k)
{
    struct pipeline_slot_stats slots[FAKE_PARTITIONS];
    struct pipeline_stats stats;
    size_t open = 0;

    pipeline_stats(k->pipeline, &stats, slots, FAKE_PARTITIONS);
    for (size_t i = 0; i < stats.n_slots; i++)
        open += slots[i].open;
    CHECK(open == stats.open, "%zu in the slots, %zu in all", open, stats.open);
    CHECK(open <= MAX_RECORDS + FAKE_PARTITIONS, "%zu records are open", open);
    CHECK(stats.in_flight <= (size_t)WORKERS * CAP, "%zu records are with workers",
          stats.in_flight);
    CHECK(stats.sched.queued + stats.in_flight <= open, "%zu + %zu of %zu", stats.sched.queued,
          stats.in_flight, open);
}

static void *intake_main(void *arg)
{
    struct soak *k = arg;
    struct record *r;
    struct err e;

    while (!fake_source_finished(k->source)) {
        CHECK(k->port.ops->poll(k->port.self, 1, &r, &e), "poll");
        if (r != NULL) {
            fake_log_order(k->log, r);
            r->timestamp_ms = k->assignment[r->partition];
            CHECK(pipeline_offer(k->pipeline, r), "offset %" PRId64 " refused", r->offset);
            k->offered++;
        }
        commit(k);
        if (dice_permille(&k->dice, 10))
            look(k);
    }
    CHECK(k->port.ops->close(k->port.self, 1000, &e), "close");
    return NULL;
}

/* ---- notifier ---- */

static void notifier_push(struct soak *k, const struct settled *s, size_t n)
{
    (void)pthread_mutex_lock(&k->lock);
    if (k->n_queue + n > k->cap_queue) {
        k->cap_queue = 2 * (k->n_queue + n);
        k->queue = mem_grow(k->queue, k->cap_queue, sizeof(*k->queue));
    }
    for (size_t i = 0; i < n; i++)
        k->queue[k->n_queue++] = s[i];
    (void)pthread_cond_signal(&k->told);
    (void)pthread_mutex_unlock(&k->lock);
}

static void settle(struct soak *k, const struct settled *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        fake_sink_done(k->sink, s[i].record);
    pipeline_settle(k->pipeline, s, n);
}

static void *notifier_main(void *arg)
{
    struct thread *t = arg;
    struct soak *k = t->soak;

    (void)pthread_mutex_lock(&k->lock);
    for (;;) {
        while (k->n_queue == 0 && !k->closing)
            clock_cond_wait(&k->told, &k->lock, INT64_MAX);
        if (k->n_queue == 0)
            break;
        struct settled *queue = k->queue;
        size_t n = k->n_queue;
        k->queue = NULL;
        k->n_queue = k->cap_queue = 0;
        (void)pthread_mutex_unlock(&k->lock);
        struct timespec redis = {.tv_nsec = (long)dice_below(&t->dice, 1500000)};
        (void)nanosleep(&redis, NULL);
        settle(k, queue, n);
        mem_free(queue);
        (void)pthread_mutex_lock(&k->lock);
    }
    (void)pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* ---- workers ---- */

struct batch {
    struct record *records[CAP], *later[CAP], *finished[CAP];
    enum fake_fate fates[CAP];
    struct settled done[CAP];
    size_t n, n_later, n_done;
};

static void check_taken(struct soak *k, const struct batch *b, const int64_t *over)
{
    size_t bytes = 0;

    for (size_t i = 0; i < b->n; i++) {
        const struct record *r = b->records[i];

        bytes += r->bytes;
        CHECK(r->timestamp_ms > over[r->partition],
              "partition %d: offset %" PRId64 " is handed out after its assignment was over",
              r->partition, r->offset);
        CHECK(r->route == b->records[0]->route, "two routes in one batch");
        atomic_fetch_add(&k->again, r->attempts > 0);
        atomic_fetch_add(&k->runs, i > 0 && r->lane == b->records[i - 1]->lane);
    }
    CHECK(b->n <= CAP && (bytes <= BATCH_BYTES || b->n == 1), "%zu records, %zu bytes", b->n,
          bytes);
    atomic_fetch_add(&k->taken, b->n);
}

/* A record that can never be stored goes to the dead-letter topic, unless that is away or the
 * record is not ours any more. */
static bool dead_letter(struct soak *k, struct dice *dice, struct record *r)
{
    bool current;

    record_reject(r, REASON_REJECTED, 0, "bad");
    pipeline_current(k->pipeline, &r, 1, &current);
    if (!current || dice_permille(dice, 200))
        return false;
    atomic_fetch_add(&k->rejected, 1);
    return true;
}

static void route_one(struct soak *k, struct dice *dice, struct batch *b, size_t i)
{
    struct record *r = b->records[i];

    if (b->fates[i] == FAKE_LATER || (b->fates[i] == FAKE_NEVER && !dead_letter(k, dice, r))) {
        b->later[b->n_later++] = r;
        return;
    }
    b->finished[b->n_done] = r;
    b->done[b->n_done++] = (struct settled){
        .record = r,
        .outcome = b->fates[i] == FAKE_INSERTED    ? PIPELINE_INSERTED
                   : b->fates[i] == FAKE_DUPLICATE ? PIPELINE_DUPLICATE
                                                   : PIPELINE_DEAD,
    };
}

static void batch_run(struct thread *t, struct batch *b)
{
    struct soak *k = t->soak;
    const struct retry_policy policy = {.first_ms = 1, .max_ms = 4};

    b->n_later = b->n_done = 0;
    if (t->planned)
        fake_planned_write(t->planned, &t->dice, t->number, b->records, b->n, b->fates);
    else
        fake_sink_write(k->sink, &t->dice, t->number, b->records, b->n, b->fates);
    for (size_t i = 0; i < b->n; i++)
        route_one(k, &t->dice, b, i);
    pipeline_finish(k->pipeline, b->finished, b->n_done);
    if (dice_permille(&t->dice, 500))
        notifier_push(k, b->done, b->n_done);
    else
        settle(k, b->done, b->n_done);
    atomic_fetch_add(&k->deferred, b->n_later);
    pipeline_defer(k->pipeline, b->later, b->n_later,
                   retry_wait_ms(&policy, 1, (uint32_t)dice_next(&t->dice)));
}

static void *worker_main(void *arg)
{
    struct thread *t = arg;
    struct batch b;
    int64_t over[FAKE_PARTITIONS];

    for (;;) {
        for (size_t p = 0; p < FAKE_PARTITIONS; p++)
            over[p] = atomic_load(&t->soak->over[p]);
        b.n = pipeline_take(t->soak->pipeline, b.records, CAP, BATCH_BYTES, 1);
        if (b.n == 0)
            return NULL;
        check_taken(t->soak, &b, over);
        batch_run(t, &b);
    }
}

/* ---- the whole ---- */

static unsigned soak_seconds(void)
{
    const char *text = getenv("IDEMSINK_SOAK_SECONDS");
    unsigned long seconds = text != NULL ? strtoul(text, NULL, 10) : 4;

    return seconds < 1 ? 1 : seconds > 3600 ? 3600 : (unsigned)seconds;
}

static void soak_open(struct soak *k, struct dice *dice, uint32_t entries, bool planned)
{
    struct fake_sink_options sink = {
        .fail_batch = 50, .fail_record = 30, .max_delay_us = 1500, .planned = planned};

    *k = (struct soak){.log = fake_log_new(entries), .dice = dice_split(dice)};
    sink.log = k->log;
    k->sink = fake_sink_new(&sink);
    struct fake_source_options source = {
        .log = k->log,
        .sink = k->sink,
        .events = {.assigned = on_assigned,
                   .revoked = on_revoked,
                   .end = on_end,
                   .wants = on_wants,
                   .committed = on_committed,
                   .ctx = k},
        .dice = dice_split(dice),
        .rebalance_us = REBALANCE_US,
    };
    k->source = fake_source_new(&source);
    k->port = fake_source_port(k->source);
    struct pipeline_limits limits = {.max_records = MAX_RECORDS,
                                     .max_bytes = MAX_BYTES,
                                     .routes = FAKE_ROUTES,
                                     .run_max = RUN_MAX,
                                     .wake = k->port.ops->wake,
                                     .wake_ctx = k->port.self};
    k->pipeline = pipeline_new(&limits);
    (void)pthread_mutex_init(&k->lock, NULL);
    clock_cond_init(&k->told);
}

static void soak_close(struct soak *k)
{
    pipeline_free(k->pipeline);
    fake_source_free(k->source);
    fake_sink_free(k->sink);
    fake_log_free(k->log);
    (void)pthread_cond_destroy(&k->told);
    (void)pthread_mutex_destroy(&k->lock);
}

static void join_within(pthread_t id, int64_t wait_ms, const char *who)
{
    struct timespec until;

    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)(wait_ms / 1000);
    CHECK(pthread_timedjoin_np(id, NULL, &until) == 0, "%s is stuck", who);
}

/* Everything was delivered, counted once, and let go. And the run was as wild as it should be. */
static void check_end(struct soak *k)
{
    struct pipeline_slot_stats slots[FAKE_PARTITIONS];
    struct fake_source_stats source = fake_source_stats(k->source);
    struct pipeline_stats stats;
    uint64_t consumed = 0, outcomes = 0, late = 0, dropped = 0, entries = 0;

    fake_sink_check_all_done(k->sink);
    pipeline_stats(k->pipeline, &stats, slots, FAKE_PARTITIONS);
    CHECK(stats.n_slots == FAKE_PARTITIONS, "%zu slots", stats.n_slots);
    for (size_t i = 0; i < FAKE_PARTITIONS; i++) {
        consumed += slots[i].consumed;
        late += slots[i].late;
        dropped += slots[i].dropped;
        for (size_t o = 0; o < PIPELINE_OUTCOMES; o++)
            outcomes += slots[i].outcomes[o];
        entries += k->log->partitions[i].n;
        CHECK(!slots[i].assigned && slots[i].watermark == -1, "slot %u", slots[i].slot);
    }
    CHECK(stats.open == 0 && stats.open_bytes == 0 && stats.in_flight == 0, "%zu open, %zu out",
          stats.open, stats.in_flight);
    CHECK(stats.sched.queued == 0 && stats.sched.lanes == 0, "%zu lanes", stats.sched.lanes);
    CHECK(consumed == source.delivered && consumed == k->offered, "%" PRIu64 " consumed", consumed);
    CHECK(consumed == outcomes + late + dropped, "the books");
    (void)fprintf(
        stderr,
        "soak: %" PRIu64 " records, %" PRIu64 " deliveries, %" PRIu64 " taken, %" PRIu64
        " by others; %" PRIu64 " eager, %" PRIu64 " cooperative, %" PRIu64 " lost; %" PRIu64
        " drains, %" PRIu64 " past the deadline; %" PRIu64 " late, %" PRIu64 " dropped, %" PRIu64
        " deferred, %" PRIu64 " came back, %" PRIu64 " in runs, %" PRIu64 " dead\n",
        entries, source.delivered, (uint64_t)k->taken, source.applied_by_others, source.eager,
        source.cooperative, source.lost, k->drains, k->deadlines, late, dropped,
        (uint64_t)k->deferred, (uint64_t)k->again, (uint64_t)k->runs, (uint64_t)k->rejected);
    CHECK(k->deadlines > 0 && late > 0 && dropped > 0 && k->again > 0 && k->runs > 0 &&
              k->rejected > 0 && source.lost > 0 && source.applied_by_others > 0,
          "a thing that should have happened never did");
}

/* A way to write and a check for each route. */
static struct fake_planned_options planned_options(const struct soak *k, struct dice *dice)
{
    static const char *const writes[] = {"upsert", "insert", "auto"};
    static const char *const checks[] = {"off", "count", "dead_letter"};
    struct fake_planned_options o = {.sink = k->sink, .log = k->log, .trouble = 20};

    for (size_t i = 0; i < FAKE_ROUTES; i++) {
        o.write[i] = (enum config_write)dice_below(dice, 3);
        o.conflict[i] = (enum config_conflict)dice_below(dice, 3);
        (void)fprintf(stderr, "soak: route %zu: write %s, conflict %s\n", i, writes[o.write[i]],
                      checks[o.conflict[i]]);
    }
    return o;
}

static void planned_end(struct thread *threads)
{
    struct fake_planned_stats sum = {0};

    for (int i = 0; i < WORKERS; i++) {
        struct fake_planned_stats s = fake_planned_stats(threads[i].planned);

        sum.commands += s.commands;
        sum.looks += s.looks;
        sum.conflicts += s.conflicts;
        sum.given_up += s.given_up;
        fake_planned_free(threads[i].planned);
    }
    (void)fprintf(stderr,
                  "soak: %" PRIu64 " commands, %" PRIu64 " of them reads, %" PRIu64
                  " conflicts told, %" PRIu64 " given up for an unknown code\n",
                  sum.commands, sum.looks, sum.conflicts, sum.given_up);
    CHECK(sum.given_up > 0, "nothing was given up");
}

static void soak_run(unsigned seconds, bool planned)
{
    static struct soak k;
    struct dice dice = dice_seed("soak");
    struct thread threads[WORKERS + 1]; /* the last is the notifier */
    struct fake_planned_options options = {.trouble = 0};
    pthread_t intake;

    soak_open(&k, &dice, seconds * ENTRIES_PER_SECOND, planned);
    if (planned)
        options = planned_options(&k, &dice);
    for (int i = 0; i <= WORKERS; i++) {
        threads[i] = (struct thread){.soak = &k, .dice = dice_split(&dice), .number = i};
        if (planned && i < WORKERS)
            threads[i].planned = fake_planned_new(&options);
        CHECK(pthread_create(&threads[i].id, NULL, i < WORKERS ? worker_main : notifier_main,
                             &threads[i]) == 0,
              "thread");
    }
    CHECK(pthread_create(&intake, NULL, intake_main, &k) == 0, "thread");
    struct timespec run = {.tv_sec = (time_t)seconds};
    (void)nanosleep(&run, NULL);
    fake_source_calm(k.source);
    join_within(intake, STUCK_MS, "the intake");
    pipeline_stop(k.pipeline);
    for (int i = 0; i < WORKERS; i++)
        join_within(threads[i].id, STUCK_MS, "a worker");
    (void)pthread_mutex_lock(&k.lock);
    k.closing = true;
    (void)pthread_cond_signal(&k.told);
    (void)pthread_mutex_unlock(&k.lock);
    join_within(threads[WORKERS].id, STUCK_MS, "the notifier");
    check_end(&k);
    if (planned)
        planned_end(threads);
    soak_close(&k);
}

static void soak(void **state)
{
    (void)state;
    soak_run(soak_seconds(), false);
}

static void soak_with_the_plan(void **state)
{
    (void)state;
    soak_run((soak_seconds() + 1) / 2, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(soak),
                                       cmocka_unit_test(soak_with_the_plan)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
