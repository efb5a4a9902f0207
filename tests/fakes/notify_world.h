/*
 * notify_world.h - a real notifier with a real pipeline, configuration and mapping around it, and
 * what a test does with them. One route, "r"; slot s and offset o have the value {"id": s * PLENTY
 * + o}.
 */
#ifndef IDEMSINK_TESTS_NOTIFY_WORLD_H
#define IDEMSINK_TESTS_NOTIFY_WORLD_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fakes/check.h"
#include "run/notifier.h"

enum { CAP = 64, PLENTY = 10000000, LONG_MS = 20000 };

/* The parts of a configuration. The Redis of it is not the test's: that one is the bus. */
#define HEAD                                                                                       \
    "kafka.brokers = \"b\"\nkafka.group = \"g\"\nmongo.uri = \"mongodb://h\"\n"                    \
    "redis.uri = \"redis://h\"\n"
#define ROUTE                                                                                      \
    "[[route]]\nname = \"r\"\ntopics = [\"t\"]\ncollection = \"shop.orders\"\ndedup.key = "        \
    "[\"id\"]\n"
#define UNLINK "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"k:{id}\"]\n"
#define PUBSUB                                                                                     \
    "[[route.invalidate]]\nmode = \"pubsub\"\nchannel = \"c\"\npayload = '{\"id\":{id}}'\n"
#define VERSION "[[route.invalidate]]\nmode = \"version\"\nkeys = [\"g:{id}\"]\n"
#define STREAM                                                                                     \
    "[[route.invalidate]]\nmode = \"stream\"\nstream = \"s\"\npayload = '{\"id\":{id}}'\n"
#define WAITING "delivery = \"before_commit\"\n"
#define ONCE    "coalesce = \"0s\"\nrepeat_after = \"0s\"\n"

struct world {
    struct config *config;
    struct mapping *mapping;
    struct metrics *metrics;
    struct pipeline *pipeline;
    struct notifier *notifier;
};

static inline void world_open(struct world *w, const char *toml, struct bus bus)
{
    static const struct mapping_env env = {.instance_id = "me"};
    struct config_input in = {.name = "test", .text = slice_text(toml)};
    struct pipeline_limits limits = {
        .max_records = 100000, .max_bytes = 1u << 30, .routes = 1, .run_max = 16};
    struct err e = {0};

    w->config = config_parse(&in, &e);
    CHECK(w->config, "%s", e.text);
    w->mapping = mapping_new(&w->config->routes[0], &env, &e);
    CHECK(w->mapping, "%s", e.text);
    w->metrics = metrics_new();
    w->pipeline = pipeline_new(&limits);
    w->notifier = notifier_new(w->config, &w->mapping, bus, w->pipeline, w->metrics);
}

/* The partitions go away, then the notifier: as at the end of the process. */
static inline bool world_stop(struct world *w, uint32_t slots, int64_t timeout_ms)
{
    for (uint32_t i = 0; i < slots; i++)
        (void)pipeline_revoke(w->pipeline, i);
    return notifier_stop(w->notifier, timeout_ms);
}

static inline void world_free(struct world *w)
{
    notifier_free(w->notifier);
    pipeline_stop(w->pipeline);
    pipeline_free(w->pipeline);
    metrics_free(w->metrics);
    mapping_free(w->mapping);
    config_free(w->config);
}

static inline bool world_close(struct world *w, uint32_t slots, int64_t timeout_ms)
{
    bool clean = world_stop(w, slots, timeout_ms);

    world_free(w);
    return clean;
}

static inline void offer(struct world *w, uint32_t slot, int64_t offset)
{
    char value[64];
    (void)snprintf(value, sizeof value, "{\"id\":%" PRId64 "}", (int64_t)slot * PLENTY + offset);
    struct record_source from = {
        .topic = "t", .slot = slot, .offset = offset, .value = slice_text(value)};
    struct record *r = record_new(&from);

    mapping_order(w->mapping, r);
    CHECK(pipeline_offer(w->pipeline, r), "offset %" PRId64 " is not taken", offset);
}

/* What a worker does with what there is; how many that was. Waits when there is nothing, 0 at the
 * end. */
static inline size_t work(struct world *w, enum pipeline_outcome outcome)
{
    struct record *records[CAP];
    struct settled settled[CAP];
    size_t n = pipeline_take(w->pipeline, records, CAP, PLENTY, 0);

    pipeline_finish(w->pipeline, records, n);
    for (size_t i = 0; i < n; i++)
        settled[i] = (struct settled){.record = records[i], .outcome = outcome};
    if (n > 0)
        notifier_push(w->notifier, w->mapping, 0, settled, n);
    return n;
}

/* These offsets of slot 0 are stored; the first is 0 the first time. */
static inline void tell(struct world *w, int64_t from, int64_t to)
{
    if (from == 0)
        pipeline_assign(w->pipeline, 0, 0);
    for (int64_t i = from; i < to; i++)
        offer(w, 0, i);
    for (int64_t left = to - from; left > 0;)
        left -= (int64_t)work(w, PIPELINE_INSERTED);
}

/* Until everything of slot 0 is settled. */
static inline bool settled(struct world *w, int64_t timeout_ms)
{
    const uint32_t slot = 0;

    return pipeline_drain(w->pipeline, &slot, 1, timeout_ms);
}

static inline int64_t counted(struct world *w, const char *rule, const char *result)
{
    const struct config_route *route = &w->config->routes[0];
    struct buf labels = {0};

    metrics_label(&labels, "route", "r");
    metrics_label(&labels, "rule", rule);
    metrics_label(&labels, "mode",
                  config_invalidate_mode_name(route->invalidate[rule[0] - '0'].mode));
    metrics_label(&labels, "result", result);
    int64_t value =
        metric_value(metrics_counter(w->metrics, "idemsink_invalidations_total", "", labels.data));
    buf_clear(&labels);
    return value;
}

static inline int64_t gauge(struct world *w, const char *name)
{
    return metric_value(metrics_gauge(w->metrics, name, "", ""));
}

static inline int64_t counter(struct world *w, const char *name)
{
    return metric_value(metrics_counter(w->metrics, name, "", ""));
}

#endif
