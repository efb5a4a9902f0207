/*
 * test_notifier.c - the real notifier and pipeline, a real configuration, and a Redis that fails as
 * it is told. The soak at the end: before_commit means that no offset is ever committed whose
 * invalidation was not sent, whatever fails and whenever partitions are taken away.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "fakes/check.h"
#include "fakes/fake_bus.h"
#include "run/notifier.h"

enum { CAP = 64, PLENTY = 10000000, LONG_MS = 20000 };

#define HEAD                                                                                       \
    "kafka.brokers = \"b\"\nkafka.group = \"g\"\nmongo.uri = \"mongodb://h\"\n"                    \
    "redis.uri = \"redis://h\"\n"
#define ROUTE                                                                                      \
    "[[route]]\nname = \"r\"\ntopics = [\"t\"]\ncollection = \"shop.orders\"\ndedup.key = "        \
    "[\"id\"]\n"
#define UNLINK "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"k:{id}\"]\n"
#define PUBSUB                                                                                     \
    "[[route.invalidate]]\nmode = \"pubsub\"\nchannel = \"c\"\npayload = '{\"id\":{id}}'\n"
#define WAITING "delivery = \"before_commit\"\n"
#define ONCE    "coalesce = \"0s\"\nrepeat_after = \"0s\"\n"

struct world {
    struct config *config;
    struct mapping *mapping;
    struct metrics *metrics;
    struct pipeline *pipeline;
    struct fake_bus *bus;
    struct notifier *notifier;
};

static void world_open(struct world *w, const char *toml)
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
    w->bus = fake_bus_new(dice_seed("test_notifier"));
    w->notifier =
        notifier_new(w->config, &w->mapping, fake_bus_port(w->bus), w->pipeline, w->metrics);
}

/* The partition goes away, then the notifier: as at the end of the process. */
static bool world_close(struct world *w, uint32_t slots, int64_t timeout_ms)
{
    for (uint32_t i = 0; i < slots; i++)
        (void)pipeline_revoke(w->pipeline, i);
    bool clean = notifier_stop(w->notifier, timeout_ms);
    notifier_free(w->notifier);
    pipeline_stop(w->pipeline);
    pipeline_free(w->pipeline);
    fake_bus_free(w->bus);
    metrics_free(w->metrics);
    mapping_free(w->mapping);
    config_free(w->config);
    return clean;
}

static void offer(struct world *w, uint32_t slot, int64_t offset)
{
    char value[64];
    (void)snprintf(value, sizeof value, "{\"id\":%" PRId64 "}", (int64_t)slot * PLENTY + offset);
    struct record_source from = {
        .topic = "t", .slot = slot, .offset = offset, .value = slice_text(value)};
    struct record *r = record_new(&from);

    mapping_order(w->mapping, r);
    CHECK(pipeline_offer(w->pipeline, r), "offset %" PRId64 " is not taken", offset);
}

/* What a worker does with what there is. Returns how many. */
static size_t work(struct world *w, enum pipeline_outcome outcome)
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

static void tell(struct world *w, int64_t from, int64_t to)
{
    if (from == 0)
        pipeline_assign(w->pipeline, 0, 0);
    for (int64_t i = from; i < to; i++)
        offer(w, 0, i);
    for (int64_t left = to - from; left > 0;)
        left -= (int64_t)work(w, PIPELINE_INSERTED);
}

/* Until everything of slot 0 is settled. */
static bool settled(struct world *w, int64_t timeout_ms)
{
    const uint32_t slot = 0;

    return pipeline_drain(w->pipeline, &slot, 1, timeout_ms);
}

static int64_t counted(struct world *w, const char *rule, const char *result)
{
    struct buf labels = {0};

    metrics_label(&labels, "route", "r");
    metrics_label(&labels, "rule", rule);
    metrics_label(&labels, "result", result);
    int64_t value =
        metric_value(metrics_counter(w->metrics, "idemsink_invalidations_total", "", labels.data));
    buf_clear(&labels);
    return value;
}

static int64_t gauge(struct world *w, const char *name)
{
    return metric_value(metrics_gauge(w->metrics, name, "", ""));
}

static int64_t counter(struct world *w, const char *name)
{
    return metric_value(metrics_counter(w->metrics, name, "", ""));
}

static void best_effort_waits_for_nothing(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD ROUTE UNLINK PUBSUB);
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    tell(&w, 0, 10);
    assert_int_equal(pipeline_watermark(w.pipeline, 0), 10);
    fake_bus_wait_calls(w.bus, 3);
    assert_int_equal(gauge(&w, "idemsink_redis_up"), 0);
    assert_int_equal(notifier_stats(w.notifier).pending, 20);
    fake_bus_set_mode(w.bus, FAKE_BUS_WELL);
    for (int i = 0; i < 10; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k:%d", i);
        fake_bus_wait_count(w.bus, key, 1);
    }
    fake_bus_wait_count(w.bus, "c", 10);
    for (size_t i = 0; i < 10; i++) /* UNLINKs first */
        assert_int_equal(fake_bus_name(w.bus, i)[0], 'k');
    assert_true(world_close(&w, 1, LONG_MS));
}

static void before_commit_waits_for_the_answer(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD ROUTE UNLINK WAITING PUBSUB);
    fake_bus_hang(w.bus, true);
    tell(&w, 0, 3);
    fake_bus_wait_hanging(w.bus);
    assert_int_equal(pipeline_watermark(w.pipeline, 0), 0);
    assert_int_equal(notifier_stats(w.notifier).waiting, 3);
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    fake_bus_hang(w.bus, false);
    fake_bus_wait_calls(w.bus, 4);
    assert_int_equal(pipeline_watermark(w.pipeline, 0), 0);
    fake_bus_set_mode(w.bus, FAKE_BUS_WELL);
    assert_true(settled(&w, LONG_MS));
    assert_int_equal(pipeline_watermark(w.pipeline, 0), 3);
    assert_int_equal(fake_bus_count(w.bus, "k:2", NULL), 1);
    assert_true(world_close(&w, 1, LONG_MS));
}

static void a_send_on_its_way_does_not_count(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD ROUTE
               "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"all\"]\n" WAITING ONCE);
    fake_bus_hang(w.bus, true);
    tell(&w, 0, 1);
    fake_bus_wait_hanging(w.bus);
    tell(&w, 1, 5); /* their write may be younger than what the receiver reads now */
    fake_bus_hang(w.bus, false);
    assert_true(settled(&w, LONG_MS));
    assert_int_equal(fake_bus_count(w.bus, "all", NULL), 2);
    assert_int_equal(counted(&w, "0", "sent"), 2);
    assert_int_equal(counted(&w, "0", "coalesced"), 3);
    assert_true(world_close(&w, 1, LONG_MS));
}

static void nothing_is_told_about_what_is_not_stored(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD ROUTE UNLINK WAITING);
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    pipeline_assign(w.pipeline, 0, 0);
    offer(&w, 0, 0);
    assert_int_equal(work(&w, PIPELINE_DEAD), 1);
    offer(&w, 0, 1);
    assert_int_equal(work(&w, PIPELINE_SKIPPED), 1);
    assert_int_equal(pipeline_watermark(w.pipeline, 0), 2);
    assert_int_equal(notifier_stats(w.notifier).pending, 0);
    offer(&w, 0, 2);
    assert_int_equal(work(&w, PIPELINE_DUPLICATE), 1);
    assert_int_equal(notifier_stats(w.notifier).pending, 1);
    fake_bus_set_mode(w.bus, FAKE_BUS_WELL);
    assert_true(settled(&w, LONG_MS));
    assert_int_equal(fake_bus_calls(w.bus) > 0, true);
    assert_true(world_close(&w, 1, LONG_MS));
}

static void the_time_is_that_of_sending(void **state)
{
    struct world w;
    long long sent_ms = 0;

    (void)state;
    world_open(&w, HEAD ROUTE "[[route.invalidate]]\nmode = \"monsqlize\"\n");
    fake_bus_hang(w.bus, true);
    tell(&w, 0, 1);
    fake_bus_wait_hanging(w.bus);
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    fake_bus_hang(w.bus, false);
    fake_bus_wait_calls(w.bus, 3); /* at least 50 + 100 ms went by */
    int64_t before_ms = clock_wall_ms();
    fake_bus_set_mode(w.bus, FAKE_BUS_WELL);
    fake_bus_wait_count(w.bus, "monsqlize:cache:invalidate", 1);
    assert_int_equal(
        sscanf(fake_bus_body(w.bus, 0),
               "{\"type\":\"invalidate\",\"pattern\":\"*\\\"ns\\\":{\\\"collection\\\":"
               "\\\"orders\\\",\\\"db\\\":\\\"shop\\\",*\",\"instanceId\":\"me\","
               "\"timestamp\":%lld}",
               &sent_ms),
        1);
    assert_true(sent_ms >= before_ms && sent_ms <= clock_wall_ms());
    assert_true(world_close(&w, 1, LONG_MS));
}

static void the_limit_lets_records_go(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD "redis.before_commit_limit = \"200ms\"\n" ROUTE UNLINK WAITING);
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    int64_t from_ms = clock_mono_ms();
    tell(&w, 0, 5);
    assert_true(settled(&w, LONG_MS));
    assert_true(clock_mono_ms() - from_ms >= 200);
    assert_int_equal(pipeline_watermark(w.pipeline, 0), 5);
    assert_int_equal(counter(&w, "idemsink_invalidations_expired_total"), 5);
    fake_bus_set_mode(w.bus, FAKE_BUS_WELL); /* late, but sent */
    fake_bus_wait_count(w.bus, "k:4", 1);
    assert_true(world_close(&w, 1, LONG_MS));
}

static void a_refused_unlink_keeps_no_publish_back(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD ROUTE UNLINK WAITING ONCE PUBSUB);
    fake_bus_set_mode(w.bus, FAKE_BUS_READONLY);
    tell(&w, 0, 1);
    fake_bus_wait_count(w.bus, "c", 1);
    fake_bus_wait_calls(w.bus, 4);
    assert_true(notifier_stats(w.notifier).up);
    assert_int_equal(pipeline_watermark(w.pipeline, 0), 0);
    fake_bus_set_mode(w.bus, FAKE_BUS_WELL);
    assert_true(settled(&w, LONG_MS));
    assert_true(world_close(&w, 1, LONG_MS));
}

static void repeated_once(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD ROUTE UNLINK "coalesce = \"0s\"\nrepeat_after = \"100ms\"\n");
    tell(&w, 0, 1);
    fake_bus_wait_count(w.bus, "k:0", 2);
    tell(&w, 1, 2); /* its repetition comes after what a second one of k:0 would be */
    fake_bus_wait_count(w.bus, "k:1", 2);
    assert_int_equal(fake_bus_count(w.bus, "k:0", NULL), 2);
    assert_true(world_close(&w, 1, LONG_MS));
}

static void the_end_flushes_and_repeats_nothing(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD ROUTE "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"all\"]\n"
                              "coalesce = \"1m\"\nrepeat_after = \"1m\"\n");
    tell(&w, 0, 1);
    fake_bus_wait_count(w.bus, "all", 1);
    tell(&w, 1, 2);
    (void)pipeline_revoke(w.pipeline, 0);
    struct fake_bus *bus = w.bus;
    int64_t from_ms = clock_mono_ms();
    assert_true(notifier_stop(w.notifier, LONG_MS));
    assert_true(clock_mono_ms() - from_ms < LONG_MS / 2);
    assert_int_equal(fake_bus_count(bus, "all", NULL), 2);
    assert_int_equal(counted(&w, "0", "repeated"), 0);
    notifier_free(w.notifier);
    pipeline_free(w.pipeline);
    fake_bus_free(w.bus);
    metrics_free(w.metrics);
    mapping_free(w.mapping);
    config_free(w.config);
}

static void the_end_does_not_wait_for_ever(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD ROUTE UNLINK WAITING);
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    tell(&w, 0, 3);
    assert_int_equal(pipeline_watermark(w.pipeline, 0), 0);
    int64_t from_ms = clock_mono_ms();
    assert_false(world_close(&w, 1, 200)); /* records are left: they will be read again */
    assert_true(clock_mono_ms() - from_ms < LONG_MS / 2);
    world_open(&w, HEAD ROUTE UNLINK);
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    tell(&w, 0, 3);
    assert_true(world_close(&w, 1, 200)); /* best effort: nobody waited */
}

static void at_the_cap_best_effort_is_dropped_and_counted(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD "redis.max_pending = 10\n" ROUTE UNLINK);
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    tell(&w, 0, 200);
    assert_int_equal(pipeline_watermark(w.pipeline, 0), 200);
    assert_int_equal(notifier_stats(w.notifier).pending, 10);
    assert_int_equal(counted(&w, "0", "dropped"), 190);
    assert_true(world_close(&w, 1, 0));
    world_open(&w, HEAD "redis.max_pending = 10\n" ROUTE UNLINK WAITING);
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    tell(&w, 0, 200);
    assert_int_equal(notifier_stats(w.notifier).pending, 200);
    fake_bus_set_mode(w.bus, FAKE_BUS_WELL);
    assert_true(settled(&w, LONG_MS));
    assert_int_equal(fake_bus_total(w.bus), 200);
    assert_true(world_close(&w, 1, LONG_MS));
}

static void at_the_cap_keys_become_their_collection(void **state)
{
    struct world w;

    (void)state;
    world_open(&w, HEAD "redis.max_pending = 10\n" ROUTE
                        "[[route.invalidate]]\nmode = \"monsqlize\"\nflavor = 3\n"
                        "keys = [\"x:shop.orders:{id}\"]\nreceivers_echo_safe = true\n" WAITING);
    fake_bus_set_mode(w.bus, FAKE_BUS_AWAY);
    tell(&w, 0, 100);
    assert_true(notifier_stats(w.notifier).pending <= 11);
    assert_int_equal(counted(&w, "0", "dropped"), 0);
    fake_bus_set_mode(w.bus, FAKE_BUS_WELL);
    assert_true(settled(&w, LONG_MS));
    bool pattern = false;
    for (size_t i = 0; i < fake_bus_total(w.bus); i++)
        pattern |= strstr(fake_bus_body(w.bus, i), "\"pattern\":\"*:shop.orders:*\"") != NULL;
    assert_true(pattern);
    assert_true(world_close(&w, 1, LONG_MS));
}

static void what_no_template_fits_is_counted(void **state)
{
    struct world w;
    struct buf page = {0};

    (void)state;
    world_open(&w,
               HEAD ROUTE "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"{gone}\"]\n" WAITING);
    tell(&w, 0, 3);
    assert_int_equal(pipeline_watermark(w.pipeline, 0), 3);
    metrics_render(w.metrics, &page);
    assert_non_null(strstr(buf_text(&page), "idemsink_invalidations_skipped_total{route=\"r\"} 3"));
    buf_clear(&page);
    assert_true(world_close(&w, 1, LONG_MS));
}

/* --- the soak --- */

enum { SLOTS = 4, WORKERS = 3 };

struct soak {
    struct world w;
    struct dice dice;
    int64_t next[SLOTS];
    size_t revokes, late; /* late: the drain's deadline passed */
};

static void *soak_worker(void *arg)
{
    struct world *w = arg;

    while (work(w, PIPELINE_INSERTED) > 0)
        ;
    return NULL;
}

/* All below the watermark were told about. */
static void soak_check(struct soak *s, uint32_t slot, int64_t from, int64_t watermark)
{
    for (int64_t i = from; i < watermark; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "k:%" PRId64, (int64_t)slot * PLENTY + i);
        CHECK(fake_bus_count(s->w.bus, key, NULL) > 0,
              "offset %" PRId64 " of slot %u is committed, %s was not sent", i, slot, key);
    }
}

static void soak_revoke(struct soak *s, uint32_t slot, int64_t committed[SLOTS], int64_t drain_ms)
{
    s->late += !pipeline_drain(s->w.pipeline, &slot, 1, drain_ms);
    s->revokes++;
    int64_t watermark = pipeline_revoke(s->w.pipeline, slot);

    if (watermark > committed[slot]) {
        soak_check(s, slot, committed[slot], watermark);
        committed[slot] = watermark;
    }
}

static void soak_run(const char *toml, int64_t offsets)
{
    struct soak s = {.dice = dice_seed("test_notifier soak")};
    int64_t committed[SLOTS] = {0};
    pthread_t workers[WORKERS];
    bool more = true;

    world_open(&s.w, toml);
    fake_bus_set_mode(s.w.bus, FAKE_BUS_RANDOM);
    for (uint32_t i = 0; i < SLOTS; i++)
        pipeline_assign(s.w.pipeline, i, 0);
    for (size_t i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&workers[i], NULL, soak_worker, &s.w) == 0, "no thread");
    while (more) {
        uint32_t slot = (uint32_t)dice_below(&s.dice, SLOTS);
        more = false;
        for (uint64_t n = dice_below(&s.dice, 40); n > 0 && s.next[slot] < offsets; n--)
            offer(&s.w, slot, s.next[slot]++);
        if (dice_permille(&s.dice, 60)) {
            soak_revoke(&s, slot, committed, (int64_t)dice_below(&s.dice, 10));
            pipeline_assign(s.w.pipeline, slot, committed[slot]);
            s.next[slot] = committed[slot];
        }
        for (uint32_t i = 0; i < SLOTS; i++)
            more |= s.next[i] < offsets;
    }
    fake_bus_set_mode(s.w.bus, FAKE_BUS_WELL);
    for (uint32_t i = 0; i < SLOTS; i++) {
        while (pipeline_watermark(s.w.pipeline, i) < offsets)
            (void)sched_yield();
        soak_revoke(&s, i, committed, LONG_MS);
        assert_int_equal(committed[i], offsets);
    }
    pipeline_stop(s.w.pipeline);
    for (size_t i = 0; i < WORKERS; i++)
        CHECK(pthread_join(workers[i], NULL) == 0, "no thread");
    fprintf(stderr, "%zu revokes, %zu of them late; %zu sets, %zu messages\n", s.revokes, s.late,
            fake_bus_calls(s.w.bus), fake_bus_total(s.w.bus));
    assert_true(world_close(&s.w, 0, LONG_MS));
}

static void nothing_is_committed_untold(void **state)
{
    (void)state;
    soak_run(HEAD ROUTE UNLINK WAITING "coalesce = \"3ms\"\nrepeat_after = \"5ms\"\n" PUBSUB, 1500);
    soak_run(HEAD "redis.max_pending = 20\n" ROUTE UNLINK WAITING ONCE PUBSUB WAITING, 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_effort_waits_for_nothing),
        cmocka_unit_test(before_commit_waits_for_the_answer),
        cmocka_unit_test(a_send_on_its_way_does_not_count),
        cmocka_unit_test(nothing_is_told_about_what_is_not_stored),
        cmocka_unit_test(the_time_is_that_of_sending),
        cmocka_unit_test(the_limit_lets_records_go),
        cmocka_unit_test(a_refused_unlink_keeps_no_publish_back),
        cmocka_unit_test(repeated_once),
        cmocka_unit_test(the_end_flushes_and_repeats_nothing),
        cmocka_unit_test(the_end_does_not_wait_for_ever),
        cmocka_unit_test(at_the_cap_best_effort_is_dropped_and_counted),
        cmocka_unit_test(at_the_cap_keys_become_their_collection),
        cmocka_unit_test(what_no_template_fits_is_counted),
        cmocka_unit_test(nothing_is_committed_untold),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
