/* --until-end: how far the topics reached at the start, and whether the whole group has got there.
 */
#include <poll.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/kafka_private.h"

enum {
    TOPICS_WAIT_MS = 15000,
    OFFSETS_WAIT_MS = 10000,
    AGAIN_MS = 100,
    ASK_EVERY_MS = 500,
    ASK_WAIT_MS = 1000
};

/* A topic that was made just now is not known to every broker. */
static bool passes(rd_kafka_resp_err_t err)
{
    return err == RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION ||
           err == RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART ||
           err == RD_KAFKA_RESP_ERR_LEADER_NOT_AVAILABLE ||
           err == RD_KAFKA_RESP_ERR_NOT_LEADER_FOR_PARTITION;
}

static rd_kafka_resp_err_t ask_end(struct kafka_source *s, const struct kafka_slot *slot,
                                   int64_t *low, int64_t *high)
{
    int64_t until_ms = clock_mono_ms() + OFFSETS_WAIT_MS;
    rd_kafka_resp_err_t err;

    for (;;) {
        int64_t left_ms = until_ms - clock_mono_ms();

        err = rd_kafka_query_watermark_offsets(s->rk, slot->topic, slot->partition, low, high,
                                               left_ms > AGAIN_MS ? (int)left_ms : AGAIN_MS);
        if (!passes(err) || left_ms <= AGAIN_MS)
            return err;
        (void)poll(NULL, 0, AGAIN_MS);
    }
}

static bool end_of(struct kafka_source *s, struct kafka_slot *slot, struct err *e)
{
    int64_t low = 0, high = 0;
    rd_kafka_resp_err_t err = ask_end(s, slot, &low, &high);

    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return err_set(e, kafka_error_kind(err), err, "kafka: can't ask for the end of %s[%d]: %s",
                       slot->topic, (int)slot->partition, rd_kafka_err2str(err));
    s->ends = mem_grow(s->ends, s->n_ends + 1, sizeof *s->ends);
    s->ends[s->n_ends++] = (struct kafka_end){.slot = slot, .offset = high, .reached = high <= low};
    return true;
}

bool kafka_end_snapshot(void *self, struct err *e)
{
    struct kafka_source *s = self;
    struct kafka_topics topics = {0};
    bool ok = kafka_topics_list(s->rk, s->config, TOPICS_WAIT_MS, &topics, e);

    if (ok && topics.missing != NULL)
        ok = err_set(e, ERR_CONFIG, 0, "topic %s does not exist", topics.missing);
    for (size_t t = 0; ok && t < topics.n; t++)
        for (int p = 0; ok && p < topics.items[t].partitions; p++)
            ok = end_of(s, kafka_slot_of(s, topics.items[t].name, p), e);
    kafka_topics_clear(&topics);
    return ok;
}

static struct kafka_end *end_at(struct kafka_source *s, const char *topic, int32_t partition)
{
    for (size_t i = 0; i < s->n_ends; i++)
        if (s->ends[i].slot->partition == partition && strcmp(s->ends[i].slot->topic, topic) == 0)
            return &s->ends[i];
    return NULL;
}

/* What other members, or we in an earlier assignment, have committed. No answer: not known yet. */
static void ask_group(struct kafka_source *s)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)s->n_ends);
    rd_kafka_resp_err_t err;
    int64_t held_back = 0;

    for (size_t i = 0; i < s->n_ends; i++)
        if (!s->ends[i].reached && !s->ends[i].slot->open)
            rd_kafka_topic_partition_list_add(list, s->ends[i].slot->topic,
                                              s->ends[i].slot->partition);
    err =
        list->cnt == 0 ? RD_KAFKA_RESP_ERR_NO_ERROR : rd_kafka_committed(s->rk, list, ASK_WAIT_MS);
    for (int i = 0; err == RD_KAFKA_RESP_ERR_NO_ERROR && i < list->cnt; i++) {
        struct kafka_end *end = end_at(s, list->elems[i].topic, list->elems[i].partition);

        if (end != NULL && list->elems[i].err == RD_KAFKA_RESP_ERR_NO_ERROR &&
            list->elems[i].offset >= end->offset)
            end->reached = true;
    }
    rd_kafka_topic_partition_list_destroy(list);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR &&
        log_limit_pass(&s->limits[LIMIT_OTHER], 30000, &held_back))
        log_warn("what the group has committed could not be asked for, trying on",
                 LOG_TEXT("why", rd_kafka_err2str(err)), LOG_INT("held_back", held_back));
}

bool kafka_end_reached(void *self, const struct commit_point *mine, size_t n, bool *reached,
                       struct err *e)
{
    struct kafka_source *s = self;
    int64_t now_ms = clock_mono_ms();
    size_t missing = 0;

    (void)e;
    *reached = false;
    for (size_t i = 0; i < s->n_ends; i++)
        for (size_t m = 0; m < n && !s->ends[i].reached; m++)
            if (mine[m].slot == s->ends[i].slot->number && mine[m].offset >= s->ends[i].offset)
                s->ends[i].reached = true;

    for (size_t i = 0; i < s->n_ends; i++) {
        if (!s->ends[i].reached && s->ends[i].slot->open)
            return true; /* ours, and not there yet: no need to ask for the others */
        missing += !s->ends[i].reached;
    }
    if (missing > 0 && now_ms - s->ends_asked_at_ms >= ASK_EVERY_MS) {
        s->ends_asked_at_ms = now_ms;
        ask_group(s);
        missing = 0;
        for (size_t i = 0; i < s->n_ends; i++)
            missing += !s->ends[i].reached;
    }
    *reached = missing == 0;
    return true;
}
