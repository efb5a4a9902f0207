/*
 * What is fetched and not read: its limits, and the records that nobody wants yet.
 *
 * The limits of librdkafka count for the queue that a partition's records go to, and so for all
 * partitions together, because there is one. They are looked at before a fetch; what that brings is
 * bounded by the size of a response.
 */
#include <stdio.h>

#include "base/mem.h"
#include "io/kafka_private.h"

enum {
    HOLD_MS = 100, /* how long the queue waits behind a record that is not wanted */
    HOLD_PART = 4  /* the part of max_bytes that paused partitions may hold */
};

/* --- limits -------------------------------------------------------------------------------- */

static int64_t between(int64_t least, int64_t n, int64_t most)
{
    return n < least ? least : n > most ? most : n;
}

/*
 * Three eighths for the values, three for what each message costs besides (the byte limit counts
 * values alone), a quarter for the responses that are under way, one from each broker, when they
 * are unpacked: a sixteenth as they are fetched. Of batches that compress better, or are larger
 * than that, one response from each broker comes on top.
 */
void kafka_prefetch_limits(int64_t budget_bytes, int brokers, struct kafka_prefetch *out)
{
    int64_t part = budget_bytes / 8 * 3;
    int64_t response = between(64 << 10, budget_bytes / 16 / (brokers > 0 ? brokers : 1), 8 << 20);

    (void)snprintf(out->kbytes, sizeof out->kbytes, "%lld",
                   (long long)between(1, part / 1024, 2000000));
    (void)snprintf(out->messages, sizeof out->messages, "%lld",
                   (long long)between(1, part / KAFKA_MESSAGE_BYTES, 10000000));
    (void)snprintf(out->response_bytes, sizeof out->response_bytes, "%lld", (long long)response);
    /* Several partitions in a response, so that they come side by side. */
    (void)snprintf(out->fetch_bytes, sizeof out->fetch_bytes, "%lld",
                   (long long)between(64 << 10, response / 4, 1 << 20));
}

static rd_kafka_topic_partition_list_t *list_of(struct kafka_slot *const *slots, size_t n)
{
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new((int)n);

    for (size_t i = 0; i < n; i++)
        rd_kafka_topic_partition_list_add(list, slots[i]->topic, slots[i]->partition)->offset =
            RD_KAFKA_OFFSET_END;
    return list;
}

/*
 * Before 2.2.0 a broker's thread that found the queue full, or all its partitions paused, looks
 * again after a second unless something else wakes it (fetch.queue.backoff.ms came with 2.2.0;
 * librdkafka issue 2879). Any request does: this one isn't waited for.
 */
static void wake_fetchers(struct kafka_source *s)
{
    rd_kafka_topic_partition_list_t *list;

    s->taken_bytes = 0;
    if (s->n_parts == 0 || rd_kafka_version() >= 0x020200ff)
        return;
    list = list_of(s->parts, s->n_parts);
    (void)rd_kafka_offsets_for_times(s->rk, list, 0);
    rd_kafka_topic_partition_list_destroy(list);
}

void kafka_prefetch_taken(struct kafka_source *s, size_t bytes)
{
    s->taken_bytes += bytes;
    if (s->taken_bytes >= (size_t)s->config->worker.max_bytes / 16)
        wake_fetchers(s);
}

/* --- records that are not wanted ----------------------------------------------------------- */

void kafka_hold(struct kafka_source *s, struct kafka_slot *slot, struct record *r, int64_t now_ms)
{
    slot->held = r;
    s->blocked = slot;
    s->blocked_at_ms = now_ms;
}

static bool wanted(struct kafka_source *s, const struct kafka_slot *slot)
{
    return s->events.wants(s->events.ctx, slot->number, slot->paused);
}

static struct record *give(struct kafka_slot *slot)
{
    struct record *r = slot->held;

    slot->held = NULL;
    return r;
}

/* What the paused ones hold is bounded, whatever that costs the others: with records so large and
 * so many partitions that are stuck. */
static bool may_hold(const struct kafka_source *s, const struct record *r)
{
    return s->n_paused == 0 ||
           s->held_bytes + r->bytes <= (size_t)s->config->worker.max_bytes / HOLD_PART;
}

/* What is fetched of it is thrown away and fetched again. */
static void pause_one(struct kafka_source *s, struct kafka_slot *slot)
{
    rd_kafka_topic_partition_list_t *list = list_of(&slot, 1);

    slot->paused = rd_kafka_pause_partitions(s->rk, list) == RD_KAFKA_RESP_ERR_NO_ERROR &&
                   list->elems[0].err == RD_KAFKA_RESP_ERR_NO_ERROR;
    rd_kafka_topic_partition_list_destroy(list);
    if (slot->paused) {
        s->n_paused++;
        s->held_bytes += slot->held->bytes;
    }
}

/* Only what pause_one() paused: 2.0.2 rewinds others (librdkafka issue 4636). */
static void resume_one(struct kafka_source *s, struct kafka_slot *slot)
{
    rd_kafka_topic_partition_list_t *list = list_of(&slot, 1);

    /* A handle that ends needs no call that waits for it. */
    if (s->close_until_ms == 0 && !s->failed)
        (void)rd_kafka_resume_partitions(s->rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    slot->paused = false;
    s->n_paused--;
    s->held_bytes -= slot->held->bytes;
}

static struct record *next_paused(struct kafka_source *s)
{
    for (size_t i = 0; i < s->n_parts; i++) {
        struct kafka_slot *slot = s->parts[i];

        if (!slot->paused || !wanted(s, slot))
            continue;
        resume_one(s, slot);
        wake_fetchers(s);
        atomic_store(&s->room, true); /* look at the others as well */
        return give(slot);
    }
    return NULL;
}

/* Not when all are refused: they have enough to do. */
static bool others_wanted(struct kafka_source *s)
{
    for (size_t i = 0; i < s->n_parts; i++)
        if (s->parts[i] != s->blocked && !s->parts[i]->paused && wanted(s, s->parts[i]))
            return true;
    return false;
}

struct record *kafka_hold_next(struct kafka_source *s, int64_t now_ms)
{
    struct kafka_slot *slot = s->blocked;
    struct record *r;

    if (s->n_paused > 0 && atomic_exchange(&s->room, false) && (r = next_paused(s)) != NULL)
        return r;
    if (slot == NULL)
        return NULL;
    if (wanted(s, slot)) {
        s->blocked = NULL;
        return give(slot);
    }
    if (now_ms - s->blocked_at_ms >= HOLD_MS && may_hold(s, slot->held) && others_wanted(s)) {
        pause_one(s, slot);
        if (slot->paused)
            s->blocked = NULL;
    }
    return NULL;
}

int64_t kafka_hold_wait_ms(const struct kafka_source *s, int64_t wait_ms)
{
    return s->blocked != NULL && wait_ms > HOLD_MS ? HOLD_MS : wait_ms;
}

void kafka_hold_drop(struct kafka_source *s, struct kafka_slot *slot)
{
    if (s->blocked == slot)
        s->blocked = NULL;
    if (slot->paused) /* the flag would outlive the assignment */
        resume_one(s, slot);
    record_free(slot->held);
    slot->held = NULL;
}
