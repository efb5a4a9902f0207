/*
 * What the pipeline costs by itself: one thread makes records and offers them, workers take
 * batches, finish and settle them; nothing is written anywhere.
 *
 *   bench_pipeline [RECORDS [WORKERS [BATCH [KEYS]]]]
 */
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "run/pipeline.h"

enum { WORKERS_MAX = 64, PARTITIONS = 6, PAYLOAD_BYTES = 200, RUN_MAX = 16 };

struct bench {
    struct pipeline *pipeline;
    size_t records, workers, batch, keys;
};

static void *worker_main(void *arg)
{
    const struct bench *b = arg;
    struct record **records = mem_array(b->batch, sizeof(struct record *));
    struct settled *done = mem_array(b->batch, sizeof(*done));
    size_t n, batches = 0;

    while ((n = pipeline_take(b->pipeline, records, b->batch, 64u << 20, 5)) > 0) {
        for (size_t i = 0; i < n; i++)
            done[i] = (struct settled){.record = records[i], .outcome = PIPELINE_INSERTED};
        pipeline_finish(b->pipeline, records, n);
        pipeline_settle(b->pipeline, done, n);
        batches++;
    }
    mem_free(records);
    mem_free(done);
    return (void *)batches;
}

static struct record *make(const struct bench *b, size_t i)
{
    static const char payload[PAYLOAD_BYTES];
    char key[32];
    int len = snprintf(key, sizeof(key), "key-%zu", i * 2654435761u % b->keys);
    struct record_source from = {.topic = "bench",
                                 .slot = (uint32_t)(i % PARTITIONS),
                                 .offset = (int64_t)i,
                                 .timestamp_ms = -1,
                                 .key = slice_of(key, (size_t)len),
                                 .value = slice_of(payload, sizeof(payload))};
    struct record *r = record_new(&from);

    r->order_space = ORDER_KEY;
    r->order_key = r->key;
    return r;
}

/* Wall-clock time, and processor time of all threads together. */
struct stamp {
    int64_t wall_us, cpu_us;
};

static struct stamp now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (struct stamp){.wall_us = clock_mono_us(),
                          .cpu_us = (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000};
}

static void report(const char *what, size_t n, struct stamp start)
{
    struct stamp end = now();
    double wall_us = (double)(end.wall_us - start.wall_us);

    printf("%-34s %8.0f records/s  %5.0f ns a record, %5.0f ns of a processor\n", what,
           (double)n * 1e6 / wall_us, wall_us * 1e3 / (double)n,
           (double)(end.cpu_us - start.cpu_us) * 1e3 / (double)n);
}

static void bench_run(struct bench *b)
{
    struct pipeline_limits limits = {
        .max_records = 50000, .max_bytes = (size_t)1 << 30, .routes = 1, .run_max = RUN_MAX};
    pthread_t ids[WORKERS_MAX];
    size_t batches = 0;

    b->pipeline = pipeline_new(&limits);
    for (uint32_t slot = 0; slot < PARTITIONS; slot++)
        pipeline_assign(b->pipeline, slot, 0);
    for (size_t i = 0; i < b->workers; i++)
        MUST(pthread_create(&ids[i], NULL, worker_main, b) == 0);

    struct stamp start = now();
    for (size_t i = 0; i < b->records; i++) {
        while (!pipeline_wants(b->pipeline, (uint32_t)(i % PARTITIONS), false))
            sched_yield();
        MUST(pipeline_offer(b->pipeline, make(b, i)));
    }
    pipeline_stop(b->pipeline);
    for (size_t i = 0; i < b->workers; i++) {
        void *n;

        MUST(pthread_join(ids[i], &n) == 0);
        batches += (size_t)n;
    }
    report("make, offer, take, finish, settle", b->records, start);
    printf("%zu workers, batches of %zu, %.0f on average, %zu keys\n", b->workers, b->batch,
           (double)b->records / (double)batches, b->keys);
    for (uint32_t slot = 0; slot < PARTITIONS; slot++)
        (void)pipeline_revoke(b->pipeline, slot);
    pipeline_free(b->pipeline);
}

static size_t number(int argc, char **argv, int i, size_t otherwise)
{
    size_t n = i < argc ? strtoul(argv[i], NULL, 10) : otherwise;

    return n > 0 ? n : otherwise;
}

int main(int argc, char **argv)
{
    struct bench b = {.records = number(argc, argv, 1, 3000000),
                      .workers = number(argc, argv, 2, 4),
                      .batch = number(argc, argv, 3, 1000),
                      .keys = number(argc, argv, 4, 100000)};

    if (b.workers > WORKERS_MAX)
        b.workers = WORKERS_MAX;
    struct stamp start = now();
    for (size_t i = 0; i < b.records / 4; i++)
        record_free(make(&b, i));
    report("make and free, alone", b.records / 4, start);
    bench_run(&b);
    return 0;
}
