/* Dead letters that a real broker refuses, and what is made of them: $KAFKA_BROKERS. */
#include "mock/kafka_help.h"

enum { LIMIT = 2000, RECORDS = 6 };

static const char *brokers;

static void make_topic(const char *name)
{
    char text[200];
    size_t n;
    rd_kafka_t *rk = help_producer(brokers, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_NewTopic_t *topic = rd_kafka_NewTopic_new(name, 1, -1, text, sizeof text);

    assert_int_equal(rd_kafka_NewTopic_set_config(topic, "max.message.bytes", "2000"), 0);
    rd_kafka_CreateTopics(rk, &topic, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 20000);
    assert_non_null(event);
    const rd_kafka_topic_result_t **results =
        rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &n);
    assert_int_equal(rd_kafka_topic_result_error(results[0]), RD_KAFKA_RESP_ERR_NO_ERROR);
    rd_kafka_event_destroy(event);
    rd_kafka_NewTopic_destroy(topic);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(rk);
}

static struct record *bad(int64_t offset, size_t key_len, size_t value_len, int64_t timestamp_ms)
{
    static char bytes[100000];
    static const struct record_header header = {{"theirs", 6}, {"kept", 4}};

    memset(bytes, 'x', sizeof bytes);
    struct record *r = record_new(&(struct record_source){.topic = "in",
                                                          .partition = 1,
                                                          .offset = offset,
                                                          .timestamp_type = RECORD_TIMESTAMP_CREATE,
                                                          .timestamp_ms = timestamp_ms,
                                                          .key = slice_of(bytes, key_len),
                                                          .value = slice_of(bytes, value_len),
                                                          .headers = &header,
                                                          .n_headers = 1});
    record_reject(r, REASON_TOO_DEEP, 0, "too deep");
    return r;
}

static void header_is(const struct record *r, const char *name, const char *value)
{
    struct slice got = {0};

    assert_int_equal(record_header(r, name, &got), value != NULL);
    if (value != NULL && !slice_equal(got, slice_text(value)))
        fail_msg("%s is %.*s, not %s", name, (int)got.len, (const char *)got.ptr, value);
}

static void read_back(struct help_config *h, struct record **out)
{
    const char *topics[] = {h->dead};
    struct err e = {0};
    struct kafka_reader *reader = kafka_reader_new(&h->config, topics, 1, 10000, &e);
    enum kafka_read got = KAFKA_READ_NOTHING;
    struct record *r;
    int64_t end = clock_mono_ms() + 20000;

    if (reader == NULL)
        fail_msg("%s", e.text);
    while (got != KAFKA_READ_END) {
        assert_true(clock_mono_ms() < end);
        got = kafka_reader_next(reader, 200, &r, &e);
        assert_int_not_equal(got, KAFKA_READ_ERROR);
        if (got == KAFKA_READ_RECORD) {
            struct slice text;

            r->topic = "dead"; /* outlives the reader */
            assert_true(record_header(r, "idemsink.offset", &text));
            int at = *(const char *)text.ptr - '0';
            assert_true(at >= 0 && at < RECORDS && out[at] == NULL);
            out[at] = r;
        }
    }
    kafka_reader_free(reader);
}

/* One send with good and bad ones: each keeps as much as the broker takes. */
static void refused_dead_letters(void **state)
{
    const int64_t now = clock_wall_ms(), far = now + 5 * 24 * 3600 * 1000LL;
    struct record *in[RECORDS] = {
        bad(0, 3, 100, now),     bad(1, 3, 50000, now), bad(2, 3, 200, now),
        bad(3, 50000, 100, now), bad(4, 3, 300, far),   bad(5, 3, 400, 1000),
    };
    struct record *out[RECORDS] = {0};
    struct help_config h;
    struct deadletter dead;
    struct err e = {0};
    bool ok[RECORDS] = {false};
    char name[60], text[60];

    (void)state;
    (void)snprintf(name, sizeof name, "dead-%lld", (long long)now);
    help_config(&h, brokers, "g", "in");
    (void)snprintf(h.dead, sizeof h.dead, "%s", name);
    make_topic(name);
    if (!kafka_deadletter_new(&h.config, &dead, &e))
        fail_msg("%s", e.text);
    if (!dead.ops->send(dead.self, in, RECORDS, ok, &e))
        fail_msg("%s", e.text);
    read_back(&h, out);
    for (int i = 0; i < RECORDS; i++) {
        assert_true(ok[i]);
        assert_non_null(out[i]);
        header_is(out[i], "theirs", i == 3 ? NULL : "kept");
        header_is(out[i], "idemsink.reason", "too_deep");
        assert_int_equal(out[i]->key.len, i == 3 ? 0 : 3);
        assert_int_equal(out[i]->value.len, i == 1 || i == 3 ? 0 : in[i]->value.len);
        if (i != 4)
            assert_int_equal(out[i]->timestamp_ms, in[i]->timestamp_ms);
    }
    header_is(out[0], "idemsink.value", NULL);
    header_is(out[1], "idemsink.value", "dropped: too large, 50000 bytes");
    assert_null(out[1]->value.ptr);
    header_is(out[3], "idemsink.key", "dropped: too large, 50000 bytes");
    (void)snprintf(text, sizeof text, "%lld", (long long)far);
    header_is(out[4], "idemsink.timestamp", text);
    header_is(out[5], "idemsink.timestamp", "1000");
    for (int i = 0; i < RECORDS; i++) {
        record_free(in[i]);
        record_free(out[i]);
    }
    kafka_deadletter_free(&dead);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(refused_dead_letters)};

    brokers = getenv("KAFKA_BROKERS");
    if (brokers == NULL || brokers[0] == '\0') {
        fprintf(stderr, "KAFKA_BROKERS is not set: eval \"$(scripts/stack env)\"\n");
        return 1;
    }
    log_setup(LOG_LEVEL_WARN, LOG_FORMAT_TEXT);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
