/*
 * The consumer: the records of all partitions in one queue of ours, read one message a call.
 *
 * One queue, so that librdkafka's limits hold for all partitions together. The main queue carries
 * only events and is served whatever the budget says. A record whose partition is not wanted is
 * held, and the queue waits behind it; when that lasts, its partition is paused, so that one that
 * is stuck doesn't stop the others. docs/decisions/005.
 */
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/kafka_private.h"

enum {
    MAIN_EVERY_MS = 100, /* librdkafka >= 2.1 counts only this as polling */
    BLOCK_MAX_MS = 1000, /* and never sleep longer, whatever was signalled */
    BROKERS_GUESSED = 3, /* for the prefetch, when none could be asked */
    ASK_BROKERS_MS = 3000,
    DESTROY_WAIT_S = 1
};

void kafka_source_fail(struct kafka_source *s, enum err_kind kind, int code, const char *fmt, ...)
{
    char text[ERR_TEXT_MAX];
    va_list args;

    if (s->failed)
        return;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err_set(&s->failure, kind, code, "%s", text);
    s->failed = true;
}

/* --- waking -------------------------------------------------------------------------------- */

static void signal_fd(int fd)
{
    const uint64_t one = 1;
    ssize_t written = write(fd, &one, sizeof one);

    (void)written; /* full means that it is signalled already */
}

static void on_records_ready(rd_kafka_t *rk, void *opaque)
{
    struct kafka_source *s = opaque;

    (void)rk;
    signal_fd(s->wake_fd);
}

static void on_main_ready(rd_kafka_t *rk, void *opaque)
{
    struct kafka_source *s = opaque;

    (void)rk;
    atomic_store(&s->main_ready, true);
    signal_fd(s->wake_fd);
}

static void on_reply_ready(rd_kafka_t *rk, void *opaque)
{
    struct kafka_source *s = opaque;

    (void)rk;
    atomic_store(&s->reply_ready, true);
    signal_fd(s->wake_fd);
}

static void source_wake(void *self)
{
    struct kafka_source *s = self;

    atomic_store(&s->woken, true);
    atomic_store(&s->room, true);
    signal_fd(s->wake_fd);
}

static void sleep_until_signalled(struct kafka_source *s, int64_t ms)
{
    struct pollfd fd = {.fd = s->wake_fd, .events = POLLIN};
    uint64_t count;

    if (poll(&fd, 1, (int)(ms < BLOCK_MAX_MS ? ms : BLOCK_MAX_MS)) > 0) {
        ssize_t got = read(s->wake_fd, &count, sizeof count);

        (void)got; /* the flags say what it was */
    }
}

/* --- slots --------------------------------------------------------------------------------- */

struct kafka_slot *kafka_slot_of(struct kafka_source *s, const char *topic, int32_t partition)
{
    struct kafka_slot *slot;

    for (size_t i = 0; i < s->n_slots; i++)
        if (s->slots[i]->partition == partition && strcmp(s->slots[i]->topic, topic) == 0)
            return s->slots[i];

    slot = mem_new(sizeof *slot);
    slot->topic = mem_text(topic);
    slot->partition = partition;
    slot->route = config_route_of(s->config, topic);
    slot->start = slot->last = -1;

    pthread_mutex_lock(&s->lock);
    slot->number = (uint32_t)s->n_slots;
    s->slots = mem_grow(s->slots, s->n_slots + 1, sizeof *s->slots);
    s->slots[s->n_slots++] = slot;
    pthread_mutex_unlock(&s->lock);
    return slot;
}

static struct kafka_slot *slot_at(struct kafka_source *s, uint32_t number)
{
    struct kafka_slot *slot;

    pthread_mutex_lock(&s->lock);
    MUST(number < s->n_slots);
    slot = s->slots[number];
    pthread_mutex_unlock(&s->lock);
    return slot;
}

static void source_slot_name(void *self, uint32_t number, const char **topic, int32_t *partition)
{
    const struct kafka_slot *slot = slot_at(self, number);

    *topic = slot->topic;
    *partition = slot->partition;
}

static void queue_drop(rd_kafka_queue_t **queue)
{
    if (*queue == NULL)
        return;
    rd_kafka_queue_cb_event_enable(*queue, NULL, NULL);
    rd_kafka_queue_destroy(*queue);
    *queue = NULL;
}

void kafka_part_open(struct kafka_source *s, struct kafka_slot *slot, int64_t start)
{
    rd_kafka_queue_t *own = rd_kafka_queue_get_partition(s->rk, slot->topic, slot->partition);

    MUST(own != NULL);
    rd_kafka_queue_forward(own, s->records); /* not into the main queue */
    rd_kafka_queue_destroy(own);
    slot->open = true;
    s->last_slot = NULL; /* a topic made anew may lie where an old one was freed */
    slot->generation++;
    slot->start = start;
    slot->last = -1;
    atomic_store(&slot->assigned, true);
    if (s->n_parts == s->cap_parts) {
        s->cap_parts = s->cap_parts * 2 + 8;
        s->parts = mem_grow(s->parts, s->cap_parts, sizeof(struct kafka_slot *));
    }
    s->parts[s->n_parts++] = slot;
}

/* What of it is still in the queue is of an older version, which librdkafka drops. */
void kafka_part_close(struct kafka_source *s, struct kafka_slot *slot)
{
    kafka_hold_drop(s, slot);
    slot->open = false;
    atomic_store(&slot->assigned, false);
    for (size_t i = 0; i < s->n_parts; i++)
        if (s->parts[i] == slot) {
            memmove(&s->parts[i], &s->parts[i + 1],
                    (s->n_parts - i - 1) * sizeof(struct kafka_slot *));
            s->n_parts--;
            break;
        }
}

static int64_t source_slot_end(void *self, uint32_t number)
{
    struct kafka_source *s = self;
    const struct kafka_slot *slot = slot_at(s, number);
    int64_t low, high;

    if (!atomic_load(&slot->assigned) ||
        rd_kafka_get_watermark_offsets(s->rk, slot->topic, slot->partition, &low, &high) !=
            RD_KAFKA_RESP_ERR_NO_ERROR)
        return -1;
    return high < 0 ? -1 : high;
}

/* --- reading ------------------------------------------------------------------------------- */

/* The first record of an assignment: is it where the group had stopped? The low watermark is what
 * librdkafka has from the fetch that brought the record; asking the broker would hold the intake
 * up.
 */
static void note_first(struct kafka_source *s, const struct kafka_slot *slot, int64_t offset)
{
    int64_t low, high;

    if (slot->start < 0 || offset == slot->start)
        return;
    if (offset < slot->start)
        log_warn("the log was truncated or the topic made anew", LOG_TEXT("topic", slot->topic),
                 LOG_INT("partition", slot->partition), LOG_INT("committed", slot->start),
                 LOG_INT("offset", offset));
    else if (rd_kafka_get_watermark_offsets(s->rk, slot->topic, slot->partition, &low, &high) ==
                 RD_KAFKA_RESP_ERR_NO_ERROR &&
             low > slot->start)
        log_warn("records were deleted by retention before they were read",
                 LOG_TEXT("topic", slot->topic), LOG_INT("partition", slot->partition),
                 LOG_INT("committed", slot->start), LOG_INT("first_offset_left", low));
}

/* NULL: it was an event. */
static struct record *record_of(struct kafka_source *s, struct kafka_slot *slot,
                                const rd_kafka_message_t *m)
{
    struct record *r;

    if (m->err == RD_KAFKA_RESP_ERR__PARTITION_EOF) {
        s->events.end(s->events.ctx, slot->number, m->offset);
        return NULL;
    }
    if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
        kafka_on_consumer_error(s, slot, m);
        return NULL;
    }
    if (slot->last < 0)
        note_first(s, slot, m->offset);
    slot->last = m->offset;
    kafka_health_clear(s);
    r = kafka_record_new(m, slot->topic, slot->number, &s->scratch);
    r->route = (uint32_t)slot->route;
    return r;
}

/* A fetch brings many of one partition in a row. */
static struct kafka_slot *slot_of_message(struct kafka_source *s, const rd_kafka_message_t *m)
{
    struct kafka_slot *last = s->last_slot;

    if (last == NULL || last->partition != m->partition || m->rkt != s->last_topic) {
        last = kafka_slot_of(s, rd_kafka_topic_name(m->rkt), m->partition);
        s->last_slot = last;
        s->last_topic = m->rkt;
    }
    return last;
}

/*
 * rd_kafka_consume_queue() is rd_kafka_consumer_poll() on another queue: one message, and none of
 * an older version of the partition (before a revoke, before a pause).
 * rd_kafka_consume_batch_queue() takes messages off the queue first and judges them later: with
 * more than one a call 2.0.2 loses records whenever the library pauses partitions by itself, as it
 * does in every cooperative rebalance (fixed in 2.1.0).
 */
static struct record *next_record(struct kafka_source *s, int64_t now_ms)
{
    struct record *r = kafka_hold_next(s, now_ms);

    while (r == NULL && s->blocked == NULL && !s->failed) {
        rd_kafka_message_t *m = rd_kafka_consume_queue(s->records, 0);

        if (m == NULL)
            return NULL;

        struct kafka_slot *slot = slot_of_message(s, m);
        size_t bytes = m->len + m->key_len + KAFKA_MESSAGE_BYTES;

        if (slot->open)
            r = record_of(s, slot, m);
        rd_kafka_message_destroy(m);
        kafka_prefetch_taken(s, bytes);
        if (r != NULL && !s->events.wants(s->events.ctx, slot->number, false)) {
            kafka_hold(s, slot, r, now_ms);
            r = NULL;
        }
    }
    return r;
}

/* Events, errors and rebalances: their callbacks run in here. */
static void serve_main(struct kafka_source *s)
{
    rd_kafka_message_t *m;

    while (!s->failed && (m = rd_kafka_consumer_poll(s->rk, 0)) != NULL) {
        if (m->err == RD_KAFKA_RESP_ERR_NO_ERROR)
            /* Its place in the order of its partition is not known any more: start over from the
             * committed offset. */
            kafka_source_fail(s, ERR_BUG, 0,
                              "a record of %s[%d] came outside of its partition's queue",
                              rd_kafka_topic_name(m->rkt), (int)m->partition);
        else
            kafka_on_consumer_error(s, NULL, m);
        rd_kafka_message_destroy(m);
    }
}

static void serve(struct kafka_source *s, int64_t now_ms)
{
    if (atomic_exchange(&s->main_ready, false) || now_ms - s->main_at_ms >= MAIN_EVERY_MS) {
        s->main_at_ms = now_ms;
        serve_main(s);
    }
    if (atomic_exchange(&s->reply_ready, false))
        kafka_commit_serve(s);
}

static bool source_poll(void *self, int wait_ms, struct record **out, struct err *e)
{
    struct kafka_source *s = self;
    int64_t now_ms = clock_mono_ms();
    int64_t until_ms = now_ms + wait_ms;

    *out = NULL;
    for (;;) {
        serve(s, now_ms);
        if (!s->failed)
            *out = next_record(s, now_ms);
        if (*out != NULL)
            return true;
        if (s->failed) {
            *e = s->failure;
            return false;
        }
        if (atomic_exchange(&s->woken, false) || now_ms >= until_ms)
            return true;
        sleep_until_signalled(s, kafka_hold_wait_ms(s, until_ms - now_ms));
        now_ms = clock_mono_ms();
    }
}

/* --- closing ------------------------------------------------------------------------------- */

static bool source_close(void *self, int wait_ms, struct err *e)
{
    struct kafka_source *s = self;
    rd_kafka_error_t *error;

    if (s->closed)
        return true;
    s->close_until_ms = clock_mono_ms() + wait_ms;
    queue_drop(&s->main); /* librdkafka wants it back before */
    s->closing = rd_kafka_queue_new(s->rk);
    error = rd_kafka_consumer_close_queue(s->rk, s->closing);
    if (error != NULL) {
        /* After a fatal error there is nothing to leave any more. */
        log_warn("consumer left without a goodbye", LOG_TEXT("why", rd_kafka_error_string(error)));
        rd_kafka_error_destroy(error);
        kafka_group_lose_all(s);
        queue_drop(&s->closing);
        return true;
    }

    while (!rd_kafka_consumer_closed(s->rk)) {
        int64_t left_ms = s->close_until_ms - clock_mono_ms();

        if (left_ms <= 0)
            return err_set(e, ERR_TRANSIENT, 0,
                           "kafka did not let the consumer leave its group within %d ms", wait_ms);

        rd_kafka_message_t *m =
            rd_kafka_consume_queue(s->closing, left_ms < 50 ? (int)left_ms : 50);
        if (m != NULL) {
            if (m->err != RD_KAFKA_RESP_ERR_NO_ERROR)
                kafka_on_consumer_error(s, NULL, m);
            rd_kafka_message_destroy(m);
        }
    }
    kafka_group_lose_all(s);
    queue_drop(&s->closing);
    s->closed = true;
    return true;
}

/* --- life ---------------------------------------------------------------------------------- */

static const struct source_ops ops = {
    .poll = source_poll,
    .commit = kafka_commit,
    .wake = source_wake,
    .end_snapshot = kafka_end_snapshot,
    .end_reached = kafka_end_reached,
    .slot_name = source_slot_name,
    .slot_end = source_slot_end,
    .close = source_close,
};

/* How many there are; -1: not to be started, *e. Credentials that are refused at the start are
 * wrong ones. */
static int brokers_now(const struct config *config, struct err *e)
{
    struct kafka_topics topics = {0};
    struct err asked = {0};
    int n;

    if (!kafka_describe(config, ASK_BROKERS_MS, &topics, &asked)) {
        if (asked.kind == ERR_CONFIG || asked.kind == ERR_AUTH) {
            *e = asked;
            return -1;
        }
        log_warn("kafka can't be asked for the number of brokers, trying on",
                 LOG_TEXT("why", asked.text), LOG_INT("assumed", BROKERS_GUESSED));
        return BROKERS_GUESSED;
    }
    n = topics.brokers;
    kafka_topics_clear(&topics);
    return n > 0 ? n : BROKERS_GUESSED;
}

static bool conf_new(struct kafka_source *s, const struct kafka_prefetch *prefetch,
                     rd_kafka_conf_t **out, struct err *e)
{
    const struct config *c = s->config;
    bool fixed_member = c->kafka.instance_id != NULL && c->kafka.instance_id[0] != '\0';
    struct buf hidden = {0};
    bool ok;

    kafka_topics_hidden(c, &hidden);
    const struct kafka_setting defaults[] = {
        {.name = "auto.offset.reset", .value = "earliest"},
        /* How soon a killed member's partitions are taken over; a fixed member shall be back before
           that. */
        {.name = "session.timeout.ms", .value = fixed_member ? "45000" : "15000"},
        {.name = "fetch.wait.max.ms", .value = "100"},
        {.name = "fetch.error.backoff.ms", .value = "100"},
        /* 10 s else: a broker that restarts within the session would find us gone. */
        {.name = "reconnect.backoff.max.ms", .value = "1000"},
        {.name = "topic.metadata.refresh.interval.ms", .value = "60000"},
        {.name = "socket.nagle.disable", .value = "true"},
        {.name = "log.connection.close", .value = "false"},
        {.name = "queued.max.messages.kbytes", .value = prefetch->kbytes},
        {.name = "queued.min.messages", .value = prefetch->messages},
        {.name = "fetch.message.max.bytes", .value = prefetch->fetch_bytes},
        {.name = "fetch.max.bytes", .value = prefetch->response_bytes},
        /* Before 2.2.0 see kafka_prefetch_taken(). */
        {.name = rd_kafka_version() >= 0x020200ff ? "fetch.queue.backoff.ms" : NULL, .value = "5"},
        {0},
    };
    const struct kafka_setting musts[] = {
        {"group.id", c->kafka.group},
        /* librdkafka's own commits know nothing of what is stored. */
        {"enable.auto.commit", "false"},
        {"enable.auto.offset.store", "false"},
        {"enable.partition.eof", "true"}, /* without it transaction markers stay as lag */
        {"isolation.level", "read_committed"},
        {"topic.blacklist", buf_text(&hidden)}, /* a regex must not find the dead letters */
        /* Only a producer's matter, but fetch.max.bytes may not be below it. */
        {"message.max.bytes", "1000"},
        {fixed_member ? "group.instance.id" : NULL, c->kafka.instance_id},
        {0},
    };
    ok = kafka_conf_build(c, defaults, musts, out, e);
    buf_clear(&hidden);
    return ok;
}

static bool subscribe(struct kafka_source *s, struct err *e)
{
    const struct config *c = s->config;
    rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(8);
    rd_kafka_resp_err_t err;

    for (size_t r = 0; r < c->n_routes; r++)
        for (size_t t = 0; t < c->routes[r].topics.n; t++) {
            const char *name = c->routes[r].topics.items[t];

            if (rd_kafka_topic_partition_list_find(list, name, RD_KAFKA_PARTITION_UA) == NULL)
                rd_kafka_topic_partition_list_add(list, name, RD_KAFKA_PARTITION_UA);
            if (c->dead_letter.topic != NULL && strcmp(name, c->dead_letter.topic) == 0) {
                rd_kafka_topic_partition_list_destroy(list);
                return err_set(
                    e, ERR_CONFIG, 0,
                    "route %s reads the dead-letter topic %s: a bad record would go round for ever",
                    c->routes[r].name, name);
            }
        }
    err = rd_kafka_subscribe(s->rk, list);
    rd_kafka_topic_partition_list_destroy(list);
    if (err != RD_KAFKA_RESP_ERR_NO_ERROR)
        return err_set(e, ERR_CONFIG, err, "kafka: can't subscribe the topics of the routes: %s",
                       rd_kafka_err2str(err));
    return true;
}

static bool start(struct kafka_source *s, struct err *e)
{
    struct kafka_prefetch prefetch;
    rd_kafka_conf_t *conf;
    int brokers = brokers_now(s->config, e);

    if (brokers < 0)
        return false;
    kafka_prefetch_limits(s->config->worker.max_bytes / 2, brokers, &prefetch);
    if (!conf_new(s, &prefetch, &conf, e))
        return false;
    rd_kafka_conf_set_opaque(conf, s);
    rd_kafka_conf_set_rebalance_cb(conf, kafka_on_rebalance);
    rd_kafka_conf_set_error_cb(conf, kafka_on_error);
    kafka_commit_heed_joins(s, conf);
    s->rk = kafka_handle_new(RD_KAFKA_CONSUMER, conf, e);
    if (s->rk == NULL)
        return false;

    rd_kafka_poll_set_consumer(s->rk);
    s->main = rd_kafka_queue_get_consumer(s->rk);
    s->replies = rd_kafka_queue_new(s->rk);
    s->records = rd_kafka_queue_new(s->rk);
    rd_kafka_queue_cb_event_enable(s->main, on_main_ready, s);
    rd_kafka_queue_cb_event_enable(s->replies, on_reply_ready, s);
    rd_kafka_queue_cb_event_enable(s->records, on_records_ready, s);
    log_info("kafka consumer", LOG_TEXT("librdkafka", rd_kafka_version_str()),
             LOG_TEXT("brokers", s->config->kafka.brokers),
             LOG_TEXT("group", s->config->kafka.group), LOG_INT("broker_count", brokers));
    return subscribe(s, e);
}

bool kafka_source_new(const struct config *config, const struct source_events *events,
                      struct source *out, struct err *e)
{
    struct kafka_source *s = mem_new(sizeof *s);

    *out = (struct source){0};
    s->config = config;
    s->events = *events;
    pthread_mutex_init(&s->lock, NULL);
    s->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    MUST(s->wake_fd >= 0);
    struct source made = {.ops = &ops, .self = s};
    if (!start(s, e)) {
        kafka_source_free(&made);
        return false;
    }
    *out = made;
    return true;
}

/*
 * librdkafka before 2.3.0 aborts in rd_kafka_destroy() when a cooperative-sticky member goes before
 * its first assignment (librdkafka issue 4312): a process that is told to end while it starts.
 */
static bool destroy_aborts(const struct kafka_source *s)
{
    const char *strategy = kafka_property(s->config, "partition.assignment.strategy");

    return rd_kafka_version() < 0x020300ff && s->rk != NULL && !s->ever_assigned &&
           strategy != NULL && strstr(strategy, "cooperative") != NULL;
}

static void *destroy_main(void *arg)
{
    struct kafka_source *s = arg;

    rd_kafka_destroy_flags(s->rk, s->closed ? 0 : RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE);
    return NULL;
}

/*
 * Before 2.1.0 rd_kafka_destroy() waits for ever once a topic was deleted that had been assigned
 * (librdkafka issue 4187). The group is left already, so nothing is lost by not waiting.
 */
static bool destroy_in_time(struct kafka_source *s)
{
    pthread_t thread;
    struct timespec until;

    MUST(pthread_create(&thread, NULL, destroy_main, s) == 0);
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += DESTROY_WAIT_S;
    if (pthread_timedjoin_np(thread, NULL, &until) == 0)
        return true;
    (void)pthread_detach(thread);
    log_warn("the consumer's threads do not end, left to the end of the process",
             LOG_INT("waited_s", DESTROY_WAIT_S));
    return false;
}

void kafka_source_free(struct source *source)
{
    struct kafka_source *s = source->self;

    if (s == NULL)
        return;
    *source = (struct source){0};
    if (destroy_aborts(s))
        return; /* stays with its threads until the process ends, which is why we are here */
    for (size_t i = 0; i < s->n_parts; i++)
        kafka_hold_drop(s, s->parts[i]);
    queue_drop(&s->main);
    queue_drop(&s->replies);
    queue_drop(&s->records);
    queue_drop(&s->closing);
    if (s->rk != NULL && !destroy_in_time(s))
        return;
    (void)close(s->wake_fd);
    for (size_t i = 0; i < s->n_slots; i++) {
        mem_free(s->slots[i]->topic);
        mem_free(s->slots[i]);
    }
    mem_free(s->slots);
    mem_free(s->parts);
    mem_free(s->scratch.headers);
    mem_free(s->flight);
    mem_free(s->flight_generation);
    mem_free(s->ends);
    pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

void kafka_source_health(const struct source *source, struct kafka_health *out)
{
    kafka_health_at(source->self, clock_mono_ms(), out);
}
