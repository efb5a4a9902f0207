/*
 * The least that moves a topic into a collection once: librdkafka, jansson, bulk upserts. No order
 * per key, no rebalance, no commits, no bad records. What idemsink is measured against (bench/run).
 *
 *   bench_bare BROKERS TOPIC MONGO_URI DATABASE COLLECTION FIELD THREADS
 *
 * FIELD: the top-level member of each record that has a unique index in the collection.
 */
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include <jansson.h>
#include <librdkafka/rdkafka.h>
#include <mongoc/mongoc.h>

#include "base/clock.h"
#include "base/err.h"

enum { BULK = 1000, PARTITIONS_MAX = 256 };

struct bench {
    const char *brokers, *topic, *database, *collection, *field;
    mongoc_client_pool_t *pool;
    int threads, partitions;
    int64_t end[PARTITIONS_MAX];
};

struct part {
    struct bench *bench;
    int index;
    uint64_t records;
};

static void die(const char *what, const char *why)
{
    fprintf(stderr, "bench_bare: %s: %s\n", what, why);
    exit(1);
}

static void append(bson_t *to, const char *key, json_t *v)
{
    bson_t child;
    const char *name;
    json_t *member;
    size_t i;

    switch (json_typeof(v)) {
    case JSON_OBJECT:
        BSON_APPEND_DOCUMENT_BEGIN(to, key, &child);
        json_object_foreach(v, name, member) append(&child, name, member);
        bson_append_document_end(to, &child);
        break;
    case JSON_ARRAY:
        BSON_APPEND_ARRAY_BEGIN(to, key, &child);
        json_array_foreach(v, i, member)
        {
            char number[16];
            const char *text;
            (void)bson_uint32_to_string((uint32_t)i, &text, number, sizeof number);
            append(&child, text, member);
        }
        bson_append_array_end(to, &child);
        break;
    case JSON_STRING:
        bson_append_utf8(to, key, -1, json_string_value(v), (int)json_string_length(v));
        break;
    case JSON_INTEGER:
        BSON_APPEND_INT64(to, key, json_integer_value(v));
        break;
    case JSON_REAL:
        BSON_APPEND_DOUBLE(to, key, json_real_value(v));
        break;
    case JSON_TRUE:
    case JSON_FALSE:
        BSON_APPEND_BOOL(to, key, json_is_true(v));
        break;
    case JSON_NULL:
        BSON_APPEND_NULL(to, key);
        break;
    }
}

static void add(mongoc_bulk_operation_t *bulk, const struct bench *b, const rd_kafka_message_t *m)
{
    json_t *json = json_loadb(m->payload, m->len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL);
    bson_t filter = BSON_INITIALIZER, update = BSON_INITIALIZER, opts = BSON_INITIALIZER;
    bson_error_t e;

    if (json == NULL)
        die("record", "not JSON");
    append(&filter, b->field, json_object_get(json, b->field));
    append(&update, "$setOnInsert", json);
    BSON_APPEND_BOOL(&opts, "upsert", true);
    if (!mongoc_bulk_operation_update_one_with_opts(bulk, &filter, &update, &opts, &e))
        die("bulk", e.message);
    bson_destroy(&filter);
    bson_destroy(&update);
    bson_destroy(&opts);
    json_decref(json);
}

static mongoc_bulk_operation_t *bulk_new(mongoc_collection_t *collection)
{
    bson_t opts = BSON_INITIALIZER;
    mongoc_bulk_operation_t *bulk;

    BSON_APPEND_BOOL(&opts, "ordered", false);
    bulk = mongoc_collection_create_bulk_operation_with_opts(collection, &opts);
    bson_destroy(&opts);
    return bulk;
}

static void bulk_run(mongoc_bulk_operation_t *bulk)
{
    bson_error_t e;

    if (!mongoc_bulk_operation_execute(bulk, NULL, &e))
        die("write", e.message);
    mongoc_bulk_operation_destroy(bulk);
}

/* How many partitions this thread still has to read; assigns them. */
static int assign(rd_kafka_t *rk, const struct part *p)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);
    int n = 0;

    for (int i = p->index; i < p->bench->partitions; i += p->bench->threads) {
        if (p->bench->end[i] == 0)
            continue;
        rd_kafka_topic_partition_list_add(list, p->bench->topic, i)->offset = 0;
        n++;
    }
    (void)rd_kafka_assign(rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    return n;
}

static rd_kafka_t *consumer(const struct bench *b)
{
    const char *const settings[][2] = {{"bootstrap.servers", b->brokers},
                                       {"group.id", "bench-bare"},
                                       {"enable.auto.commit", "false"},
                                       {"auto.offset.reset", "earliest"},
                                       {"enable.partition.eof", "true"}};
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char why[512];
    rd_kafka_t *rk;

    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++)
        (void)rd_kafka_conf_set(conf, settings[i][0], settings[i][1], why, sizeof why);
    rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, why, sizeof why);
    if (rk == NULL)
        die("consumer", why);
    (void)rd_kafka_poll_set_consumer(rk);
    return rk;
}

static void *thread_main(void *arg)
{
    struct part *p = arg;
    rd_kafka_t *rk = consumer(p->bench);
    mongoc_client_t *client = mongoc_client_pool_pop(p->bench->pool);
    mongoc_collection_t *collection =
        mongoc_client_get_collection(client, p->bench->database, p->bench->collection);
    mongoc_bulk_operation_t *bulk = bulk_new(collection);
    int left = assign(rk, p), n = 0;

    while (left > 0) {
        rd_kafka_message_t *m = rd_kafka_consumer_poll(rk, 1000);

        if (m == NULL)
            continue;
        if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
            left--;
        } else if (m->err == 0) {
            add(bulk, p->bench, m);
            p->records++;
            if (++n == BULK) {
                bulk_run(bulk);
                bulk = bulk_new(collection);
                n = 0;
            }
        }
        rd_kafka_message_destroy(m);
    }
    if (n > 0)
        bulk_run(bulk);
    else
        mongoc_bulk_operation_destroy(bulk);
    mongoc_collection_destroy(collection);
    mongoc_client_pool_push(p->bench->pool, client);
    (void)rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
    return NULL;
}

static void look(struct bench *b)
{
    rd_kafka_t *rk = consumer(b);
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, b->topic, NULL);
    const struct rd_kafka_metadata *md = NULL;
    int64_t low;

    if (rd_kafka_metadata(rk, 0, topic, &md, 10000) != 0 || md->topic_cnt != 1)
        die("metadata", "no answer");
    b->partitions = md->topics[0].partition_cnt;
    MUST(b->partitions <= PARTITIONS_MAX);
    rd_kafka_metadata_destroy(md);
    for (int i = 0; i < b->partitions; i++)
        if (rd_kafka_query_watermark_offsets(rk, b->topic, i, &low, &b->end[i], 10000) != 0)
            die("watermarks", "no answer");
    rd_kafka_topic_destroy(topic);
    (void)rd_kafka_consumer_close(rk);
    rd_kafka_destroy(rk);
}

static double cpu_us(void)
{
    struct rusage u;

    (void)getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e6 +
           (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

static void pool_open(struct bench *b, const char *text)
{
    mongoc_uri_t *uri = mongoc_uri_new(text);
    mongoc_write_concern_t *w = mongoc_write_concern_new();

    if (uri == NULL)
        die("uri", text);
    mongoc_write_concern_set_wmajority(w, 5000);
    mongoc_write_concern_set_journal(w, true);
    mongoc_uri_set_write_concern(uri, w);
    (void)mongoc_uri_set_option_as_bool(uri, MONGOC_URI_RETRYWRITES, false);
    b->pool = mongoc_client_pool_new(uri);
    mongoc_write_concern_destroy(w);
    mongoc_uri_destroy(uri);
}

int main(int argc, char **argv)
{
    struct part parts[64];
    pthread_t threads[64];
    uint64_t records = 0;

    if (argc != 8) {
        fputs("usage: bench_bare BROKERS TOPIC MONGO_URI DATABASE COLLECTION FIELD THREADS\n",
              stderr);
        return 64;
    }
    struct bench b = {.brokers = argv[1],
                      .topic = argv[2],
                      .database = argv[4],
                      .collection = argv[5],
                      .field = argv[6],
                      .threads = (int)strtol(argv[7], NULL, 10)};
    MUST(b.threads >= 1 && b.threads <= 64);
    mongoc_init();
    pool_open(&b, argv[3]);
    look(&b);
    int64_t start_us = clock_mono_us();
    double cpu = cpu_us();
    for (int i = 0; i < b.threads; i++) {
        parts[i] = (struct part){.bench = &b, .index = i};
        MUST(pthread_create(&threads[i], NULL, thread_main, &parts[i]) == 0);
    }
    for (int i = 0; i < b.threads; i++) {
        (void)pthread_join(threads[i], NULL);
        records += parts[i].records;
    }
    double seconds = (double)(clock_mono_us() - start_us) / 1e6;
    printf("{\"records\":%" PRIu64
           ",\"seconds\":%.3f,\"records_per_second\":%.0f,\"cpu_us_per_record\":%.2f}\n",
           records, seconds, (double)records / seconds, (cpu_us() - cpu) / (double)records);
    mongoc_client_pool_destroy(b.pool);
    mongoc_cleanup();
    return 0;
}
