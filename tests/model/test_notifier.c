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
#include <pthread.h>

#include "fakes/fake_bus.h"
#include "fakes/notify_world.h"

struct play {
    struct world world;
    struct fake_bus *bus;
};

static void play_open(struct play *p, const char *toml)
{
    p->bus = fake_bus_new(dice_seed("test_notifier"));
    world_open(&p->world, toml, fake_bus_port(p->bus));
}

static bool play_close(struct play *p, uint32_t slots, int64_t timeout_ms)
{
    bool clean = world_close(&p->world, slots, timeout_ms);

    fake_bus_free(p->bus);
    return clean;
}

static void best_effort_waits_for_nothing(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD ROUTE UNLINK PUBSUB);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    tell(&p.world, 0, 10);
    assert_int_equal(pipeline_watermark(p.world.pipeline, 0), 10);
    fake_bus_wait_calls(p.bus, 3);
    assert_int_equal(gauge(&p.world, "idemsink_redis_up"), 0);
    assert_int_equal(notifier_stats(p.world.notifier).pending, 20);
    fake_bus_set_mode(p.bus, FAKE_BUS_WELL);
    for (int i = 0; i < 10; i++) {
        char key[16];
        (void)snprintf(key, sizeof key, "k:%d", i);
        fake_bus_wait_count(p.bus, key, 1);
    }
    fake_bus_wait_count(p.bus, "c", 10);
    for (size_t i = 0; i < 10; i++) /* UNLINKs first */
        assert_int_equal(fake_bus_name(p.bus, i)[0], 'k');
    assert_true(play_close(&p, 1, LONG_MS));
}

static void before_commit_waits_for_the_answer(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD ROUTE UNLINK WAITING PUBSUB);
    fake_bus_hang(p.bus, true);
    tell(&p.world, 0, 3);
    fake_bus_wait_hanging(p.bus);
    assert_int_equal(pipeline_watermark(p.world.pipeline, 0), 0);
    assert_int_equal(notifier_stats(p.world.notifier).waiting, 3);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    fake_bus_hang(p.bus, false);
    fake_bus_wait_calls(p.bus, 4);
    assert_int_equal(pipeline_watermark(p.world.pipeline, 0), 0);
    fake_bus_set_mode(p.bus, FAKE_BUS_WELL);
    assert_true(settled(&p.world, LONG_MS));
    assert_int_equal(pipeline_watermark(p.world.pipeline, 0), 3);
    assert_int_equal(fake_bus_count(p.bus, "k:2", NULL), 1);
    assert_true(play_close(&p, 1, LONG_MS));
}

static void a_send_on_its_way_does_not_count(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD ROUTE
              "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"all\"]\n" WAITING ONCE);
    fake_bus_hang(p.bus, true);
    tell(&p.world, 0, 1);
    fake_bus_wait_hanging(p.bus);
    tell(&p.world, 1, 5); /* their write may be younger than what the receiver reads now */
    fake_bus_hang(p.bus, false);
    assert_true(settled(&p.world, LONG_MS));
    assert_int_equal(fake_bus_count(p.bus, "all", NULL), 2);
    assert_int_equal(counted(&p.world, "0", "sent"), 2);
    assert_int_equal(counted(&p.world, "0", "coalesced"), 3);
    assert_true(play_close(&p, 1, LONG_MS));
}

static void nothing_is_told_about_what_is_not_stored(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD ROUTE UNLINK WAITING);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    pipeline_assign(p.world.pipeline, 0, 0);
    offer(&p.world, 0, 0);
    assert_int_equal(work(&p.world, PIPELINE_DEAD), 1);
    offer(&p.world, 0, 1);
    assert_int_equal(work(&p.world, PIPELINE_SKIPPED), 1);
    assert_int_equal(pipeline_watermark(p.world.pipeline, 0), 2);
    assert_int_equal(notifier_stats(p.world.notifier).pending, 0);
    offer(&p.world, 0, 2);
    assert_int_equal(work(&p.world, PIPELINE_DUPLICATE), 1);
    assert_int_equal(notifier_stats(p.world.notifier).pending, 1);
    fake_bus_set_mode(p.bus, FAKE_BUS_WELL);
    assert_true(settled(&p.world, LONG_MS));
    assert_int_equal(fake_bus_calls(p.bus) > 0, true);
    assert_true(play_close(&p, 1, LONG_MS));
}

static void the_time_is_that_of_sending(void **state)
{
    struct play p;
    long long sent_ms = 0;

    (void)state;
    play_open(&p, HEAD ROUTE "[[route.invalidate]]\nmode = \"monsqlize\"\n");
    fake_bus_hang(p.bus, true);
    tell(&p.world, 0, 1);
    fake_bus_wait_hanging(p.bus);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    fake_bus_hang(p.bus, false);
    fake_bus_wait_calls(p.bus, 3); /* at least 50 + 100 ms went by */
    int64_t before_ms = clock_wall_ms();
    fake_bus_set_mode(p.bus, FAKE_BUS_WELL);
    fake_bus_wait_count(p.bus, "monsqlize:cache:invalidate", 1);
    assert_int_equal(
        sscanf(fake_bus_body(p.bus, 0),
               "{\"type\":\"invalidate\",\"pattern\":\"*\\\"ns\\\":{\\\"collection\\\":"
               "\\\"orders\\\",\\\"db\\\":\\\"shop\\\",*\",\"instanceId\":\"me\","
               "\"timestamp\":%lld}",
               &sent_ms),
        1);
    assert_true(sent_ms >= before_ms && sent_ms <= clock_wall_ms());
    assert_true(play_close(&p, 1, LONG_MS));
}

static void the_limit_lets_records_go(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD "redis.before_commit_limit = \"200ms\"\n" ROUTE UNLINK WAITING);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    int64_t from_ms = clock_mono_ms();
    tell(&p.world, 0, 5);
    assert_true(settled(&p.world, LONG_MS));
    assert_true(clock_mono_ms() - from_ms >= 200);
    assert_int_equal(pipeline_watermark(p.world.pipeline, 0), 5);
    assert_int_equal(counter(&p.world, "idemsink_invalidations_expired_total"), 5);
    fake_bus_set_mode(p.bus, FAKE_BUS_WELL); /* late, but sent */
    fake_bus_wait_count(p.bus, "k:4", 1);
    assert_true(play_close(&p, 1, LONG_MS));
}

/* The order of one event: keys and generations, then messages and entries. What a rule says about
 * its keys and its stream arrives. */
static void generations_and_streams(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD ROUTE STREAM "maxlen = 77\n" PUBSUB VERSION "expire = \"1h\"\n" UNLINK);
    fake_bus_hang(p.bus, true);
    tell(&p.world, 0, 1);
    fake_bus_wait_hanging(p.bus);
    fake_bus_hang(p.bus, false);
    fake_bus_wait_count(p.bus, "s", 1);
    fake_bus_wait_count(p.bus, "c", 1);
    assert_string_equal(fake_bus_name(p.bus, 0), "g:0");
    assert_string_equal(fake_bus_name(p.bus, 1), "k:0");
    assert_int_equal(fake_bus_count(p.bus, "s", "{\"id\":0}"), 1);
    assert_int_equal(fake_bus_sent(p.bus, 0).expire_ms, 3600000);
    assert_int_equal(fake_bus_sent(p.bus, 2).maxlen + fake_bus_sent(p.bus, 3).maxlen, 77);
    assert_true(play_close(&p, 1, LONG_MS));
}

/* Nothing stands for them: above the cap they are dropped, and counted by mode. */
static void at_the_cap_generations_and_entries_are_dropped(void **state)
{
    struct play p;
    struct buf page = {0};

    (void)state;
    play_open(&p, HEAD "redis.max_pending = 10\n" ROUTE VERSION STREAM);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    tell(&p.world, 0, 100);
    assert_int_equal(notifier_stats(p.world.notifier).pending, 10);
    assert_int_equal(counted(&p.world, "0", "dropped") + counted(&p.world, "1", "dropped"), 190);
    assert_int_equal(counted(&p.world, "0", "collapsed") + counted(&p.world, "1", "collapsed"), 0);
    metrics_render(p.world.metrics, &page);
    assert_non_null(strstr(buf_text(&page), "idemsink_invalidations_total{route=\"r\",rule=\"0\","
                                            "mode=\"version\",result=\"dropped\"} 95"));
    assert_non_null(strstr(buf_text(&page), "rule=\"1\",mode=\"stream\",result=\"dropped\"} 95"));
    buf_clear(&page);
    assert_true(play_close(&p, 1, 0));
}

static void a_refused_unlink_keeps_no_publish_back(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD ROUTE UNLINK WAITING ONCE PUBSUB);
    fake_bus_set_mode(p.bus, FAKE_BUS_READONLY);
    tell(&p.world, 0, 1);
    fake_bus_wait_count(p.bus, "c", 1);
    fake_bus_wait_calls(p.bus, 4);
    assert_true(notifier_stats(p.world.notifier).up);
    assert_int_equal(pipeline_watermark(p.world.pipeline, 0), 0);
    fake_bus_set_mode(p.bus, FAKE_BUS_WELL);
    assert_true(settled(&p.world, LONG_MS));
    assert_true(play_close(&p, 1, LONG_MS));
}

/* Records behind Redis are told about once patience is over, with the reason, until the answer. */
static void who_waits_for_long_is_told(void **state)
{
    struct play p;
    struct buf why = {0};

    (void)state;
    play_open(&p, HEAD ROUTE UNLINK WAITING ONCE);
    assert_false(notifier_stuck(p.world.notifier, 0, &why)); /* nobody waits */
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    tell(&p.world, 0, 3);
    fake_bus_wait_calls(p.bus, 2); /* the first one is over */
    assert_false(notifier_stuck(p.world.notifier, LONG_MS, &why));
    assert_int_equal(why.len, 0);
    assert_true(notifier_stuck(p.world.notifier, 0, &why));
    assert_non_null(strstr(buf_text(&why), "3 records wait for Redis"));
    assert_non_null(strstr(buf_text(&why), ": the fake redis is away"));
    fake_bus_set_mode(p.bus, FAKE_BUS_WELL);
    assert_true(settled(&p.world, LONG_MS));
    assert_false(notifier_stuck(p.world.notifier, 0, &why));
    buf_clear(&why);
    assert_true(play_close(&p, 1, LONG_MS));
}

static void nobody_waits_for_best_effort(void **state)
{
    struct play p;
    struct buf why = {0};

    (void)state;
    play_open(&p, HEAD ROUTE UNLINK);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    tell(&p.world, 0, 3);
    fake_bus_wait_calls(p.bus, 3);
    assert_false(notifier_stuck(p.world.notifier, 0, &why));
    fake_bus_set_mode(p.bus, FAKE_BUS_WELL);
    assert_true(play_close(&p, 1, LONG_MS));
}

static void repeated_once(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD ROUTE UNLINK "coalesce = \"0s\"\nrepeat_after = \"100ms\"\n");
    tell(&p.world, 0, 1);
    fake_bus_wait_count(p.bus, "k:0", 2);
    tell(&p.world, 1, 2); /* its repetition comes after what a second one of k:0 would be */
    fake_bus_wait_count(p.bus, "k:1", 2);
    assert_int_equal(fake_bus_count(p.bus, "k:0", NULL), 2);
    assert_true(play_close(&p, 1, LONG_MS));
}

static void the_end_flushes_and_repeats_nothing(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD ROUTE "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"all\"]\n"
                             "coalesce = \"1m\"\nrepeat_after = \"1m\"\n");
    tell(&p.world, 0, 1);
    fake_bus_wait_count(p.bus, "all", 1);
    tell(&p.world, 1, 2);
    int64_t from_ms = clock_mono_ms();
    assert_true(world_stop(&p.world, 1, LONG_MS));
    assert_true(clock_mono_ms() - from_ms < LONG_MS / 2);
    assert_int_equal(fake_bus_count(p.bus, "all", NULL), 2);
    assert_int_equal(counted(&p.world, "0", "repeated"), 0);
    world_free(&p.world);
    fake_bus_free(p.bus);
}

static void the_end_does_not_wait_for_ever(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD ROUTE UNLINK WAITING);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    tell(&p.world, 0, 3);
    assert_int_equal(pipeline_watermark(p.world.pipeline, 0), 0);
    int64_t from_ms = clock_mono_ms();
    assert_false(play_close(&p, 1, 200)); /* records are left: they will be read again */
    assert_true(clock_mono_ms() - from_ms < LONG_MS / 2);
    play_open(&p, HEAD ROUTE UNLINK);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    tell(&p.world, 0, 3);
    assert_true(play_close(&p, 1, 200)); /* best effort: nobody waited */
}

static void at_the_cap_best_effort_is_dropped_and_counted(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD "redis.max_pending = 10\n" ROUTE UNLINK);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    tell(&p.world, 0, 200);
    assert_int_equal(pipeline_watermark(p.world.pipeline, 0), 200);
    assert_int_equal(notifier_stats(p.world.notifier).pending, 10);
    assert_int_equal(counted(&p.world, "0", "dropped"), 190);
    assert_true(play_close(&p, 1, 0));
    play_open(&p, HEAD "redis.max_pending = 10\n" ROUTE UNLINK WAITING);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    tell(&p.world, 0, 200);
    assert_int_equal(notifier_stats(p.world.notifier).pending, 200);
    fake_bus_set_mode(p.bus, FAKE_BUS_WELL);
    assert_true(settled(&p.world, LONG_MS));
    assert_int_equal(fake_bus_total(p.bus), 200);
    assert_true(play_close(&p, 1, LONG_MS));
}

static void at_the_cap_keys_become_their_collection(void **state)
{
    struct play p;

    (void)state;
    play_open(&p, HEAD "redis.max_pending = 10\n" ROUTE
                       "[[route.invalidate]]\nmode = \"monsqlize\"\nflavor = 3\n"
                       "keys = [\"x:shop.orders:{id}\"]\nreceivers_echo_safe = true\n" WAITING);
    fake_bus_set_mode(p.bus, FAKE_BUS_AWAY);
    tell(&p.world, 0, 100);
    assert_true(notifier_stats(p.world.notifier).pending <= 11);
    assert_int_equal(counted(&p.world, "0", "dropped"), 0);
    fake_bus_set_mode(p.bus, FAKE_BUS_WELL);
    assert_true(settled(&p.world, LONG_MS));
    bool pattern = false;
    for (size_t i = 0; i < fake_bus_total(p.bus); i++)
        pattern |= strstr(fake_bus_body(p.bus, i), "\"pattern\":\"*:shop.orders:*\"") != NULL;
    assert_true(pattern);
    assert_true(play_close(&p, 1, LONG_MS));
}

static void what_no_template_fits_is_counted(void **state)
{
    struct play p;
    struct buf page = {0};

    (void)state;
    play_open(&p,
              HEAD ROUTE "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"{gone}\"]\n" WAITING);
    tell(&p.world, 0, 3);
    assert_int_equal(pipeline_watermark(p.world.pipeline, 0), 3);
    metrics_render(p.world.metrics, &page);
    assert_non_null(strstr(buf_text(&page), "idemsink_invalidations_skipped_total{route=\"r\"} 3"));
    buf_clear(&page);
    assert_true(play_close(&p, 1, LONG_MS));
}

/* --- the soak --- */

enum { SLOTS = 4, WORKERS = 3 };

struct soak {
    struct play p;
    struct dice dice;
    int64_t next[SLOTS];
    size_t revokes, late; /* late: the drain's deadline passed */
    char letter;          /* with which the keys begin that records wait for */
    bool streams;         /* do they wait for STREAM, too? */
};

static void *soak_worker(void *arg)
{
    struct world *w = arg;

    while (work(w, PIPELINE_INSERTED) > 0)
        ;
    return NULL;
}

/* All below the watermark were told about, by every rule that waits. */
static void soak_check(struct soak *s, uint32_t slot, int64_t from, int64_t watermark)
{
    for (int64_t i = from; i < watermark; i++) {
        char key[32], entry[32];
        (void)snprintf(key, sizeof key, "%c:%" PRId64, s->letter, (int64_t)slot * PLENTY + i);
        (void)snprintf(entry, sizeof entry, "{\"id\":%s}", key + 2);
        CHECK(fake_bus_count(s->p.bus, key, NULL) > 0,
              "offset %" PRId64 " of slot %u is committed, %s was not sent", i, slot, key);
        CHECK(!s->streams || fake_bus_count(s->p.bus, "s", entry) > 0,
              "offset %" PRId64 " of slot %u is committed, it is not in the stream", i, slot);
    }
}

static void soak_revoke(struct soak *s, uint32_t slot, int64_t committed[SLOTS], int64_t drain_ms)
{
    s->late += !pipeline_drain(s->p.world.pipeline, &slot, 1, drain_ms);
    s->revokes++;
    int64_t watermark = pipeline_revoke(s->p.world.pipeline, slot);

    if (watermark > committed[slot]) {
        soak_check(s, slot, committed[slot], watermark);
        committed[slot] = watermark;
    }
}

static void soak_run(const char *toml, int64_t offsets)
{
    struct soak s = {.dice = dice_seed("test_notifier soak"),
                     .letter = strstr(toml, "\"version\"") ? 'g' : 'k',
                     .streams = strstr(toml, "\"stream\"") != NULL};
    int64_t committed[SLOTS] = {0};
    pthread_t workers[WORKERS];
    bool more = true;

    play_open(&s.p, toml);
    fake_bus_set_mode(s.p.bus, FAKE_BUS_RANDOM);
    for (uint32_t i = 0; i < SLOTS; i++)
        pipeline_assign(s.p.world.pipeline, i, 0);
    for (size_t i = 0; i < WORKERS; i++)
        CHECK(pthread_create(&workers[i], NULL, soak_worker, &s.p.world) == 0, "no thread");
    while (more) {
        uint32_t slot = (uint32_t)dice_below(&s.dice, SLOTS);
        more = false;
        for (uint64_t n = dice_below(&s.dice, 40); n > 0 && s.next[slot] < offsets; n--)
            offer(&s.p.world, slot, s.next[slot]++);
        if (dice_permille(&s.dice, 60)) {
            soak_revoke(&s, slot, committed, (int64_t)dice_below(&s.dice, 10));
            pipeline_assign(s.p.world.pipeline, slot, committed[slot]);
            s.next[slot] = committed[slot];
        }
        for (uint32_t i = 0; i < SLOTS; i++)
            more |= s.next[i] < offsets;
    }
    fake_bus_set_mode(s.p.bus, FAKE_BUS_WELL);
    for (uint32_t i = 0; i < SLOTS; i++) {
        while (pipeline_watermark(s.p.world.pipeline, i) < offsets)
            (void)sched_yield();
        soak_revoke(&s, i, committed, LONG_MS);
        assert_int_equal(committed[i], offsets);
    }
    pipeline_stop(s.p.world.pipeline);
    for (size_t i = 0; i < WORKERS; i++)
        CHECK(pthread_join(workers[i], NULL) == 0, "no thread");
    fprintf(stderr, "%zu revokes, %zu of them late; %zu sets, %zu messages\n", s.revokes, s.late,
            fake_bus_calls(s.p.bus), fake_bus_total(s.p.bus));
    assert_true(play_close(&s.p, 0, LONG_MS));
}

static void nothing_is_committed_untold(void **state)
{
    (void)state;
    soak_run(HEAD ROUTE UNLINK WAITING "coalesce = \"3ms\"\nrepeat_after = \"5ms\"\n" PUBSUB, 1500);
    soak_run(HEAD "redis.max_pending = 20\n" ROUTE UNLINK WAITING ONCE PUBSUB WAITING, 1000);
    soak_run(HEAD ROUTE VERSION WAITING
             "coalesce = \"3ms\"\nrepeat_after = \"5ms\"\n" STREAM WAITING ONCE,
             700);
    soak_run(HEAD "redis.max_pending = 20\n" ROUTE VERSION WAITING ONCE STREAM WAITING, 500);
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
        cmocka_unit_test(generations_and_streams),
        cmocka_unit_test(at_the_cap_generations_and_entries_are_dropped),
        cmocka_unit_test(a_refused_unlink_keeps_no_publish_back),
        cmocka_unit_test(who_waits_for_long_is_told),
        cmocka_unit_test(nobody_waits_for_best_effort),
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
