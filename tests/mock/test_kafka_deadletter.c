/* Dead letters through the producer and back through the reader, on the mock cluster. */
#include "mock/kafka_help.h"

enum { PRODUCE_KEY = 0, INIT_PRODUCER_KEY = 22, PARTITIONS = 3 };

struct bench {
    rd_kafka_t *rk;
    rd_kafka_mock_cluster_t *mock;
    struct help_config h;
    struct deadletter dead;
};

static void bench_cluster(struct bench *b, const char *message_timeout_ms)
{
    char text[200];
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    rd_kafka_conf_set(conf, "log_level", "3", text, sizeof text);
    b->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, text, sizeof text);
    assert_non_null(b->rk);
    b->mock = rd_kafka_mock_cluster_new(b->rk, 1);
    assert_non_null(b->mock);
    assert_int_equal(rd_kafka_mock_topic_create(b->mock, "dead", PARTITIONS, 1), 0);
    help_config(&b->h, rd_kafka_mock_cluster_bootstraps(b->mock), "the-group", "in");
    (void)snprintf(b->h.dead, sizeof b->h.dead, "dead");
    help_property(&b->h, "message.timeout.ms", message_timeout_ms);
    help_property(&b->h, "enable.partition.eof", "true"); /* a consumer's: must not hurt */
}

static void bench_producer(struct bench *b)
{
    struct err e = {0};

    if (!kafka_deadletter_new(&b->h.config, &b->dead, &e))
        fail_msg("%s", e.text);
    assert_non_null(b->dead.ops);
}

static void bench_open(struct bench *b, const char *message_timeout_ms)
{
    bench_cluster(b, message_timeout_ms);
    bench_producer(b);
}

static void bench_close(struct bench *b)
{
    kafka_deadletter_free(&b->dead);
    rd_kafka_mock_cluster_destroy(b->mock);
    rd_kafka_destroy(b->rk);
}

static struct record *bad(const char *key, const char *value, int64_t offset)
{
    struct record *r = record_new(&(struct record_source){.topic = "in",
                                                          .partition = 5,
                                                          .offset = offset,
                                                          .timestamp_type = RECORD_TIMESTAMP_CREATE,
                                                          .timestamp_ms = 1600000000123 + offset,
                                                          .key = slice_text(key),
                                                          .value = slice_text(value)});
    record_reject(r, REASON_JSON_SYNTAX, 0, "no JSON at byte %d", 7);
    return r;
}

/* Everything in the topic, by original offset. */
static size_t read_back(struct bench *b, struct record **out, size_t cap)
{
    const char *topics[] = {"dead"};
    struct err e = {0};
    struct kafka_reader *reader = kafka_reader_new(&b->h.config, topics, 1, 5000, &e);
    size_t n = 0;
    uint64_t done, total;
    static char name[] = "dead"; /* outlives the reader, for the records */

    if (reader == NULL)
        fail_msg("%s", e.text);
    for (int64_t end = clock_mono_ms() + 15000; clock_mono_ms() < end;) {
        struct record *r;
        enum kafka_read got = kafka_reader_next(reader, 100, &r, &e);

        if (got == KAFKA_READ_END)
            break;
        assert_int_not_equal(got, KAFKA_READ_ERROR);
        if (got == KAFKA_READ_RECORD) {
            struct slice text;
            char number[24] = "";

            assert_true(n < cap);
            assert_true(record_header(r, "idemsink.offset", &text));
            assert_true(text.len < sizeof number);
            memcpy(number, text.ptr, text.len);
            size_t at = (size_t)strtoul(number, NULL, 10);
            assert_true(at < cap);
            assert_null(out[at]);
            assert_int_equal(r->route, UINT32_MAX);
            r->topic = name;
            out[at] = r;
            n++;
        }
    }
    kafka_reader_progress(reader, &done, &total);
    assert_int_equal(done, total);
    assert_int_equal(total, n);
    kafka_reader_free(reader);
    return n;
}

static void same_slice(struct slice a, struct slice b)
{
    assert_int_equal(a.ptr == NULL, b.ptr == NULL);
    assert_int_equal(a.len, b.len);
    if (a.len > 0)
        assert_memory_equal(a.ptr, b.ptr, a.len);
}

static void header_is(const struct record *r, const char *name, const char *value)
{
    struct slice got;

    if (!record_header(r, name, &got))
        fail_msg("no header %s", name);
    if (!slice_equal(got, slice_text(value)))
        fail_msg("%s is %.*s, not %s", name, (int)got.len, (const char *)got.ptr, value);
}

/* --- as it was ------------------------------------------------------------------------------ */

static const struct record_header some_headers[] = {
    {{"one", 3}, {"a\0b", 3}},
    {{"one", 3}, {"again", 5}},
    {{"null", 4}, {NULL, 0}},
    {{"empty", 5}, {"", 0}},
    {{"idemsink.reason", 15}, {"x", 1}},
    {{"idemsink.error", 14}, {"old", 3}},
    {{"idemsinker", 10}, {"stays", 5}},
};

static void byte_for_byte(void **state)
{
    struct bench b;
    struct err e = {0};
    struct record *in[6], *out[6] = {0};
    const struct slice keys[] = {{NULL, 0}, {"", 0}, {"k\0\xff", 3}, {"k", 1}, {"a", 1}, {"b", 1}};
    const struct slice values[] = {{"v", 1}, {"\0\x80{", 3}, {NULL, 0},
                                   {"", 0},  {"v", 1},       {"w", 1}};
    bool ok[6] = {false};

    (void)state;
    bench_open(&b, "5000");
    for (int64_t i = 0; i < 6; i++) {
        in[i] = record_new(&(struct record_source){.topic = "in",
                                                   .partition = 5,
                                                   .offset = i,
                                                   .timestamp_type = RECORD_TIMESTAMP_CREATE,
                                                   .timestamp_ms = 1600000000123 + i,
                                                   .key = keys[i],
                                                   .value = values[i],
                                                   .headers = some_headers,
                                                   .n_headers = i == 4 ? 0 : 7});
        record_reject(in[i], REASON_UNIQUE_CONFLICT, 11000, "index a_1: %d", 3);
        in[i]->attempts = (uint32_t)i;
    }
    assert_true(b.dead.ops->send(b.dead.self, in, 6, ok, &e));
    assert_int_equal(read_back(&b, out, 6), 6);
    for (size_t i = 0; i < 6; i++) {
        char attempts[24];

        assert_true(ok[i]);
        same_slice(out[i]->key, in[i]->key);
        same_slice(out[i]->value, in[i]->value);
        assert_int_equal(out[i]->timestamp_type, RECORD_TIMESTAMP_CREATE);
        assert_int_equal(out[i]->timestamp_ms, in[i]->timestamp_ms);
        /* Theirs, in their order, without our old ones; then ours. */
        assert_int_equal(out[i]->n_headers, (i == 4 ? 0 : 5) + 10);
        for (size_t k = 0, at = 0; k < in[i]->n_headers; k++)
            if (k != 4 && k != 5) {
                same_slice(out[i]->headers[at].name, some_headers[k].name);
                same_slice(out[i]->headers[at++].value, some_headers[k].value);
            }
        (void)snprintf(attempts, sizeof attempts, "%zu", i);
        header_is(out[i], "idemsink.reason", "unique_conflict");
        header_is(out[i], "idemsink.error", "index a_1: 3");
        header_is(out[i], "idemsink.topic", "in");
        header_is(out[i], "idemsink.partition", "5");
        header_is(out[i], "idemsink.attempts", attempts);
        header_is(out[i], "idemsink.group", "the-group");
        header_is(out[i], "idemsink.version", IDEMSINK_VERSION);
        struct slice time;
        assert_true(record_header(out[i], "idemsink.time", &time));
        assert_int_equal(time.len, strlen("2026-01-02T03:04:05.678Z"));
        record_free(in[i]);
        record_free(out[i]);
    }
    bench_close(&b);
}

static void same_key_same_partition(void **state)
{
    enum { N = 60 };
    struct bench b;
    struct err e = {0};
    struct record *in[N], *out[N] = {0};
    bool ok[N], used[PARTITIONS] = {false};

    (void)state;
    bench_open(&b, "5000");
    for (int i = 0; i < N; i++) {
        char key[10];

        (void)snprintf(key, sizeof key, "key%d", i % 20);
        in[i] = bad(key, "v", i);
    }
    assert_true(b.dead.ops->send(b.dead.self, in, N, ok, &e));
    assert_int_equal(read_back(&b, out, N), N);
    for (int i = 0; i < N; i++) {
        used[out[i]->partition] = true;
        assert_int_equal(out[i]->partition, out[i % 20]->partition);
    }
    for (int p = 0; p < PARTITIONS; p++)
        assert_true(used[p]);
    for (int i = 0; i < N; i++) {
        record_free(in[i]);
        record_free(out[i]);
    }
    bench_close(&b);
}

static void the_error_is_cut(void **state)
{
    struct bench b;
    struct err e = {0};
    struct record *in[1] = {bad("k", "v", 0)}, *out[1] = {NULL};
    struct slice text;
    bool ok[1];

    (void)state;
    bench_open(&b, "5000");
    mem_free(in[0]->rejected.text);
    in[0]->rejected.text = mem_array(3001, 1);
    in[0]->rejected.text[0] = 'a';
    for (size_t i = 1; i + 1 < 3000; i += 2) /* two bytes each, so that 1024 is the middle of one */
        memcpy(in[0]->rejected.text + i, "\xc3\xa4", 2);
    assert_true(b.dead.ops->send(b.dead.self, in, 1, ok, &e));
    assert_int_equal(read_back(&b, out, 1), 1);
    assert_true(record_header(out[0], "idemsink.error", &text));
    assert_int_equal(text.len, 1023);
    record_free(in[0]);
    record_free(out[0]);
    bench_close(&b);
}

/* --- refused -------------------------------------------------------------------------------- */

/* The brokers refuse a batch for one of its records; only that one loses anything. */
static void too_large_loses_its_value_alone(void **state)
{
    struct bench b;
    struct err e = {0};
    struct record *in[3], *out[3] = {0};
    bool ok[3];

    (void)state;
    bench_open(&b, "5000");
    for (int i = 0; i < 3; i++)
        in[i] = bad("one key", "some value", i);
    rd_kafka_mock_push_request_errors(b.mock, PRODUCE_KEY, 2, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE);
    assert_true(b.dead.ops->send(b.dead.self, in, 3, ok, &e));
    assert_int_equal(read_back(&b, out, 3), 3);
    for (int i = 0; i < 3; i++) {
        struct slice text;

        assert_true(ok[i]);
        assert_int_equal(record_header(out[i], "idemsink.value", &text), i == 0);
        if (i == 0)
            assert_null(out[i]->value.ptr);
        else
            same_slice(out[i]->value, in[i]->value);
        same_slice(out[i]->key, in[i]->key);
        record_free(in[i]);
    }
    header_is(out[0], "idemsink.value", "dropped: too large, 10 bytes");
    for (int i = 0; i < 3; i++)
        record_free(out[i]);
    bench_close(&b);
}

static void too_large_without_value_loses_the_rest(void **state)
{
    struct bench b;
    struct err e = {0};
    struct record *in[1] = {bad("a key", "some value", 0)}, *out[1] = {NULL};
    bool ok[1];

    (void)state;
    bench_open(&b, "5000");
    rd_kafka_mock_push_request_errors(b.mock, PRODUCE_KEY, 4, RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                                      RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE,
                                      RD_KAFKA_RESP_ERR_INVALID_TIMESTAMP);
    assert_true(b.dead.ops->send(b.dead.self, in, 1, ok, &e));
    assert_int_equal(read_back(&b, out, 1), 1);
    assert_null(out[0]->value.ptr);
    assert_null(out[0]->key.ptr);
    header_is(out[0], "idemsink.key", "dropped: too large, 5 bytes");
    header_is(out[0], "idemsink.headers", "dropped: too large, 0 bytes");
    header_is(out[0], "idemsink.timestamp", "1600000000123");
    assert_true(out[0]->timestamp_ms > 1600000000123);
    record_free(in[0]);
    record_free(out[0]);
    bench_close(&b);
}

/* 0 would become the time of sending, and nobody would know. */
static void a_timestamp_that_cannot_be_sent_is_kept(void **state)
{
    const int64_t times[] = {0, -5, -1, 1};
    struct bench b;
    struct err e = {0};
    struct record *in[4], *out[4] = {0};
    bool ok[4];

    (void)state;
    bench_open(&b, "5000");
    for (int i = 0; i < 4; i++) {
        in[i] = bad("k", "v", i);
        in[i]->timestamp_ms = times[i];
    }
    in[2]->timestamp_type = RECORD_TIMESTAMP_NONE;
    assert_true(b.dead.ops->send(b.dead.self, in, 4, ok, &e));
    assert_int_equal(read_back(&b, out, 4), 4);
    header_is(out[0], "idemsink.timestamp", "0");
    header_is(out[1], "idemsink.timestamp", "-5");
    for (int i = 0; i < 3; i++)
        assert_true(out[i]->timestamp_ms > 1600000000000);
    header_is(out[2], "idemsink.timestamp", "none");
    header_is(out[3], "idemsink.timestamp", "1");
    assert_int_equal(out[3]->timestamp_ms, 1);
    for (int i = 0; i < 4; i++) {
        record_free(in[i]);
        record_free(out[i]);
    }
    bench_close(&b);
}

/* The brokers refuse the batch for its size and then take nothing: one more time-out, not one for
 * each record. */
static void the_first_time_out_ends_the_rescues(void **state)
{
    enum { N = 8, ERRORS = 1000, TIMEOUT_MS = 1500 };
    struct bench b;
    struct err e = {0};
    struct record *in[N];
    rd_kafka_resp_err_t errors[ERRORS];
    bool ok[N];

    (void)state;
    bench_open(&b, "1500");
    for (int i = 0; i < N; i++)
        in[i] = bad("same key", "v", i);
    for (int i = 0; i < ERRORS; i++)
        errors[i] =
            i == 0 ? RD_KAFKA_RESP_ERR_MSG_SIZE_TOO_LARGE : RD_KAFKA_RESP_ERR_NOT_ENOUGH_REPLICAS;
    rd_kafka_mock_push_request_errors_array(b.mock, PRODUCE_KEY, ERRORS, errors);
    int64_t at = clock_mono_ms();
    assert_false(b.dead.ops->send(b.dead.self, in, N, ok, &e));
    int64_t took = clock_mono_ms() - at;
    print_message("send: %lld ms: %s\n", (long long)took, e.text);
    assert_in_range(took, TIMEOUT_MS - 500, 3 * TIMEOUT_MS);
    for (int i = 0; i < N; i++) {
        assert_false(ok[i]);
        record_free(in[i]);
    }
    assert_int_equal(e.kind, ERR_TRANSIENT);
    if (strstr(e.text, "min.insync.replicas") == NULL) /* the brokers answer */
        fail_msg("%s", e.text);
    bench_close(&b);
}

static void not_delivered_is_not_ok(void **state)
{
    struct bench b;
    struct err e = {0};
    struct record *in[2] = {bad("a", "v", 0), bad("b", "v", 1)}, *out[2] = {0};
    bool ok[2] = {true, true};

    (void)state;
    bench_open(&b, "1500");
    rd_kafka_mock_broker_set_down(b.mock, 1);
    int64_t at = clock_mono_ms();
    assert_false(b.dead.ops->send(b.dead.self, in, 2, ok, &e));
    int64_t took = clock_mono_ms() - at;
    assert_true(took >= 1000 && took < 6000);
    assert_false(ok[0]);
    assert_false(ok[1]);
    assert_int_equal(e.kind, ERR_TRANSIENT);
    if (strstr(e.text, "dead-letter topic dead") == NULL ||
        strstr(e.text, "can't be reached") == NULL)
        fail_msg("%s", e.text);

    /* Back again: the same send works. */
    rd_kafka_mock_broker_set_up(b.mock, 1);
    int64_t end = clock_mono_ms() + 20000;
    while (!b.dead.ops->send(b.dead.self, in, 2, ok, &e))
        assert_true(clock_mono_ms() < end);
    assert_true(ok[0] && ok[1]);
    assert_int_equal(read_back(&b, out, 2), 2);
    for (int i = 0; i < 2; i++) {
        record_free(in[i]);
        record_free(out[i]);
    }
    bench_close(&b);
}

static void rights_are_named(void **state)
{
    struct bench b;
    struct err e = {0};
    struct record *in[1] = {bad("a", "v", 0)};
    bool ok[1] = {true};

    (void)state;
    bench_open(&b, "3000");
    rd_kafka_mock_push_request_errors(b.mock, PRODUCE_KEY, 1,
                                      RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED);
    assert_false(b.dead.ops->send(b.dead.self, in, 1, ok, &e));
    assert_false(ok[0]);
    assert_int_equal(e.kind, ERR_AUTH);
    record_free(in[0]);
    bench_close(&b);
}

/* After a fatal error the handle takes nothing any more: the next send has a new one. */
static void a_fatal_error_is_survived(void **state)
{
    struct bench b;
    struct err e = {0};
    struct record *in[1] = {bad("a", "v", 0)}, *out[1] = {NULL};
    bool ok[1] = {true};

    (void)state;
    bench_cluster(&b, "3000");
    rd_kafka_mock_push_request_errors(b.mock, INIT_PRODUCER_KEY, 1,
                                      RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED);
    bench_producer(&b);
    assert_false(b.dead.ops->send(b.dead.self, in, 1, ok, &e));
    assert_false(ok[0]);
    assert_int_equal(e.kind, ERR_AUTH);
    assert_true(b.dead.ops->send(b.dead.self, in, 1, ok, &e));
    assert_true(ok[0]);
    assert_int_equal(read_back(&b, out, 1), 1);
    record_free(in[0]);
    record_free(out[0]);
    bench_close(&b);
}

/* --- several workers ------------------------------------------------------------------------ */

struct worker {
    struct bench *b;
    int64_t from;
    pthread_t thread;
};

enum { WORKERS = 4, ROUNDS = 20, EACH = 5 };

static void *worker_main(void *arg)
{
    struct worker *w = arg;

    for (int i = 0; i < ROUNDS; i++) {
        struct record *in[EACH];
        bool ok[EACH];
        struct err e = {0};

        for (int k = 0; k < EACH; k++)
            in[k] = bad("k", "v", w->from + i * EACH + k);
        assert_true(w->b->dead.ops->send(w->b->dead.self, in, EACH, ok, &e));
        for (int k = 0; k < EACH; k++) {
            assert_true(ok[k]);
            record_free(in[k]);
        }
    }
    return NULL;
}

static void several_workers(void **state)
{
    enum { ALL = WORKERS * ROUNDS * EACH };
    struct bench b;
    struct worker workers[WORKERS];
    struct record *out[ALL] = {0};

    (void)state;
    bench_open(&b, "5000");
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (struct worker){.b = &b, .from = i * ROUNDS * EACH};
        assert_int_equal(pthread_create(&workers[i].thread, NULL, worker_main, &workers[i]), 0);
    }
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i].thread, NULL);
    assert_int_equal(read_back(&b, out, ALL), ALL);
    for (int i = 0; i < ALL; i++)
        record_free(out[i]);
    bench_close(&b);
}

static void no_topic_no_producer(void **state)
{
    struct help_config h;
    struct deadletter dead;
    struct err e = {0};

    (void)state;
    help_config(&h, "127.0.0.1:1", "g", "t");
    assert_true(kafka_deadletter_new(&h.config, &dead, &e));
    assert_null(dead.ops);
    kafka_deadletter_free(&dead);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(byte_for_byte),
        cmocka_unit_test(same_key_same_partition),
        cmocka_unit_test(the_error_is_cut),
        cmocka_unit_test(too_large_loses_its_value_alone),
        cmocka_unit_test(too_large_without_value_loses_the_rest),
        cmocka_unit_test(a_timestamp_that_cannot_be_sent_is_kept),
        cmocka_unit_test(the_first_time_out_ends_the_rescues),
        cmocka_unit_test(not_delivered_is_not_ok),
        cmocka_unit_test(rights_are_named),
        cmocka_unit_test(a_fatal_error_is_survived),
        cmocka_unit_test(several_workers),
        cmocka_unit_test(no_topic_no_producer),
    };

    log_setup(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
