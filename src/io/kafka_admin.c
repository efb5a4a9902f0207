/* Questions to the brokers outside of consuming and producing, and the one thing we make: a topic.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/kafka_private.h"

/* --- topics -------------------------------------------------------------------------------- */

static const char *const internal_topics[] = {"__consumer_offsets", "__transaction_state",
                                              "__share_group_state"};

static void add_exact_regex(struct buf *out, const char *name)
{
    if (out->len > 0)
        buf_add_char(out, ',');
    buf_add_char(out, '^');
    for (const char *c = name; *c != '\0'; c++) {
        if (*c == '.') /* the only character of a topic name that means something in a regex */
            buf_add_char(out, '\\');
        buf_add_char(out, *c);
    }
    buf_add_char(out, '$');
}

static bool named_exactly(const struct config *config, const char *topic)
{
    for (size_t r = 0; r < config->n_routes; r++)
        for (size_t t = 0; t < config->routes[r].topics.n; t++)
            if (strcmp(config->routes[r].topics.items[t], topic) == 0)
                return true;
    return false;
}

static bool hidden(const struct config *config, const char *topic)
{
    if (named_exactly(config, topic))
        return false;
    if (config->dead_letter.topic != NULL && strcmp(config->dead_letter.topic, topic) == 0)
        return true;
    for (size_t i = 0; i < sizeof internal_topics / sizeof *internal_topics; i++)
        if (strcmp(internal_topics[i], topic) == 0)
            return true;
    return false;
}

void kafka_topics_hidden(const struct config *config, struct buf *out)
{
    const char *theirs = kafka_property(config, "topic.blacklist");

    if (theirs != NULL)
        buf_add_text(out, theirs);
    if (config->dead_letter.topic != NULL && config->dead_letter.topic[0] != '\0' &&
        hidden(config, config->dead_letter.topic))
        add_exact_regex(out, config->dead_letter.topic);
    for (size_t i = 0; i < sizeof internal_topics / sizeof *internal_topics; i++)
        if (hidden(config, internal_topics[i]))
            add_exact_regex(out, internal_topics[i]);
}

static const char *first_missing(const struct config *config, const struct kafka_topics *topics)
{
    for (size_t r = 0; r < config->n_routes; r++)
        for (size_t t = 0; t < config->routes[r].topics.n; t++) {
            const char *name = config->routes[r].topics.items[t];
            bool found = name[0] == '^';

            for (size_t i = 0; i < topics->n && !found; i++)
                found = strcmp(topics->items[i].name, name) == 0;
            if (!found)
                return name;
        }
    return NULL;
}

static bool all_topics(rd_kafka_t *rk, const struct config *config, int wait_ms,
                       const struct rd_kafka_metadata **out, struct err *e)
{
    rd_kafka_resp_err_t err = rd_kafka_metadata(rk, 1, NULL, out, wait_ms);

    if (err == RD_KAFKA_RESP_ERR_NO_ERROR)
        return true;
    return err_set(e, kafka_error_kind(err), err, "kafka at %s: %s", config->kafka.brokers,
                   rd_kafka_err2str(err));
}

static void add_topic(struct kafka_topics *out, const struct rd_kafka_metadata_topic *t, int route)
{
    out->items = mem_grow(out->items, out->n + 1, sizeof *out->items);
    out->items[out->n++] = (struct kafka_topic){
        .name = mem_text(t->topic), .partitions = t->partition_cnt, .route = route};
}

bool kafka_topics_list(rd_kafka_t *rk, const struct config *config, int wait_ms,
                       struct kafka_topics *out, struct err *e)
{
    const struct rd_kafka_metadata *all;
    const char *dead = config->dead_letter.topic;

    bool ok = true;

    *out = (struct kafka_topics){0};
    if (!all_topics(rk, config, wait_ms, &all, e))
        return false;
    out->brokers = all->broker_cnt;
    for (int i = 0; ok && i < all->topic_cnt; i++) {
        const struct rd_kafka_metadata_topic *t = &all->topics[i];
        int route = hidden(config, t->topic) ? -1 : config_route_of(config, t->topic);

        if (dead != NULL && strcmp(t->topic, dead) == 0) {
            out->dead_letter = true;
            out->dead_letter_partitions = t->partition_cnt;
        }
        if (route >= 0)
            add_topic(out, t, route);
        else if (route == CONFIG_TWO_ROUTES)
            ok = config_route_fail(config, t->topic, e);
    }
    rd_kafka_metadata_destroy(all);
    if (ok)
        out->missing = mem_text(first_missing(config, out));
    else
        kafka_topics_clear(out);
    return ok;
}

bool kafka_topics_named(rd_kafka_t *rk, const struct config *config, const char *const *names,
                        size_t n, int wait_ms, struct kafka_topics *out, struct err *e)
{
    const struct rd_kafka_metadata *all;
    bool ok = true;

    *out = (struct kafka_topics){0};
    if (!all_topics(rk, config, wait_ms, &all, e))
        return false;
    out->brokers = all->broker_cnt;
    for (size_t k = 0; ok && k < n; k++) {
        const struct rd_kafka_metadata_topic *t = NULL;

        for (int i = 0; i < all->topic_cnt && t == NULL; i++)
            if (strcmp(all->topics[i].topic, names[k]) == 0)
                t = &all->topics[i];
        if (t == NULL)
            ok = err_set(e, ERR_CONFIG, 0, "topic %s does not exist", names[k]);
        else
            add_topic(out, t, config_route_of(config, t->topic));
    }
    rd_kafka_metadata_destroy(all);
    return ok;
}

void kafka_topics_clear(struct kafka_topics *t)
{
    for (size_t i = 0; i < t->n; i++)
        mem_free(t->items[i].name);
    mem_free(t->items);
    mem_free(t->missing);
    *t = (struct kafka_topics){0};
}

bool kafka_describe(const struct config *config, int wait_ms, struct kafka_topics *out,
                    struct err *e)
{
    struct err refusal;
    rd_kafka_t *rk = kafka_admin_handle(config, &refusal, e);
    bool ok;

    *out = (struct kafka_topics){0};
    if (rk == NULL)
        return false;
    ok = kafka_topics_list(rk, config, wait_ms, out, e) || kafka_refused(rk, &refusal, e);
    rd_kafka_destroy(rk);
    return ok;
}

/* --- making a topic ------------------------------------------------------------------------ */

static bool create_answer(rd_kafka_event_t *event, const char *topic, bool *made, struct err *e)
{
    rd_kafka_resp_err_t err = rd_kafka_event_error(event);
    const char *text = rd_kafka_event_error_string(event);
    size_t n = 0;

    if (err == RD_KAFKA_RESP_ERR_NO_ERROR) {
        const rd_kafka_topic_result_t **results =
            rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &n);
        MUST(n == 1);
        err = rd_kafka_topic_result_error(results[0]);
        text = rd_kafka_topic_result_error_string(results[0]);
    }
    *made = err == RD_KAFKA_RESP_ERR_NO_ERROR;
    if (*made || err == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS)
        return true;
    return err_set(e, kafka_error_kind(err), err, "kafka: can't make topic %s: %s", topic,
                   text != NULL ? text : rd_kafka_err2str(err));
}

static bool create(rd_kafka_t *rk, const struct kafka_new_topic *w, int wait_ms, bool *made,
                   struct err *e)
{
    const char *topic = w->name;
    char text[256], number[24];
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_AdminOptions_t *options =
        rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_NewTopic_t *wanted =
        rd_kafka_NewTopic_new(topic, w->partitions, -1, text, sizeof text);
    rd_kafka_event_t *event = NULL;
    bool ok;

    if (wanted == NULL) {
        ok = err_set(e, ERR_CONFIG, 0, "kafka: can't make topic %s: %s", topic, text);
        goto out;
    }
    if (w->max_message_bytes > 0) {
        (void)snprintf(number, sizeof number, "%" PRId64, w->max_message_bytes);
        (void)rd_kafka_NewTopic_set_config(wanted, "max.message.bytes", number);
    }
    (void)rd_kafka_AdminOptions_set_request_timeout(options, wait_ms, text, sizeof text);
    (void)rd_kafka_AdminOptions_set_operation_timeout(options, wait_ms, text, sizeof text);
    rd_kafka_CreateTopics(rk, &wanted, 1, options, queue);
    event = rd_kafka_queue_poll(queue, wait_ms + 1000);
    if (event == NULL)
        ok = err_set(e, ERR_TRANSIENT, 0, "kafka: no answer to making topic %s within %d ms", topic,
                     wait_ms);
    else
        ok = create_answer(event, topic, made, e);
out:
    if (event != NULL)
        rd_kafka_event_destroy(event);
    if (wanted != NULL)
        rd_kafka_NewTopic_destroy(wanted);
    rd_kafka_AdminOptions_destroy(options);
    rd_kafka_queue_destroy(queue);
    return ok;
}

bool kafka_topic_create_if_missing(const struct config *config,
                                   const struct kafka_new_topic *wanted, int wait_ms, bool *made,
                                   struct err *e)
{
    struct err refusal;
    rd_kafka_t *rk = kafka_admin_handle(config, &refusal, e);
    bool ok;

    *made = false;
    if (rk == NULL)
        return false;
    ok = create(rk, wanted, wait_ms, made, e) || kafka_refused(rk, &refusal, e);
    rd_kafka_destroy(rk);
    return ok;
}
