/* librdkafka's configuration, its log, and the way from its message to a record. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "io/kafka_private.h"

const char *kafka_library_version(void)
{
    return rd_kafka_version_str();
}

const char *kafka_property(const struct config *config, const char *name)
{
    for (size_t i = 0; i < config->kafka.properties.n; i++)
        if (strcmp(config->kafka.properties.items[i].name, name) == 0)
            return config->kafka.properties.items[i].value;
    return NULL;
}

/* Any thread of librdkafka. */
static void on_log(const rd_kafka_t *rk, int level, const char *facility, const char *text)
{
    (void)rk;
    /* One table of properties serves the consumer and the producer. */
    if (strcmp(facility, "CONFWARN") == 0 && strstr(text, "will be ignored by this") != NULL)
        return;

    /* What librdkafka calls an error is a connection that it makes again by itself. */
    enum log_level ours = level <= 2   ? LOG_LEVEL_ERROR
                          : level <= 4 ? LOG_LEVEL_WARN
                          : level <= 6 ? LOG_LEVEL_INFO
                                       : LOG_LEVEL_DEBUG;
    log_write(ours, "kafka library",
              LOG_FIELDS(LOG_TEXT("what", facility), LOG_TEXT("text", text)));
}

static bool set(rd_kafka_conf_t *conf, const char *name, const char *value, const char *ours,
                struct err *e)
{
    char text[400];

    if (rd_kafka_conf_set(conf, name, value, text, sizeof text) == RD_KAFKA_CONF_OK)
        return true;
    if (ours != NULL)
        return err_set(e, ERR_CONFIG, 0, "%s: %s", ours, text);
    return err_set(e, ERR_CONFIG, 0, "kafka.properties.\"%s\": %s", name, text);
}

/* The table that librdkafka prints for people: "name | C/P | ...", from its third line on. */
static void all_properties(struct buf *out)
{
    char *text = NULL, *save = NULL;
    size_t len = 0;
    FILE *f = open_memstream(&text, &len);

    if (f == NULL)
        return;
    rd_kafka_conf_properties_show(f);
    (void)fclose(f);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        size_t name = strspn(line, "abcdefghijklmnopqrstuvwxyz0123456789._");

        if (name > 0 && line[name] == ' ' && strchr(line, '|') != NULL) {
            buf_add_text(out, out->len > 0 ? "|" : "");
            buf_add(out, line, name);
        }
    }
    mem_free(text);
}

bool kafka_property_fine(const char *name, const char *value, struct buf *why, struct buf *known)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    char text[400] = "";
    rd_kafka_conf_res_t result = rd_kafka_conf_set(conf, name, value, text, sizeof text);

    rd_kafka_conf_destroy(conf);
    buf_add_text(why, text);
    if (result == RD_KAFKA_CONF_UNKNOWN)
        all_properties(known);
    return result == RD_KAFKA_CONF_OK;
}

static const char *key_behind(const char *property)
{
    return strcmp(property, "bootstrap.servers") == 0   ? "kafka.brokers"
           : strcmp(property, "group.id") == 0          ? "kafka.group"
           : strcmp(property, "group.instance.id") == 0 ? "kafka.instance_id"
           : strcmp(property, "client.id") == 0         ? "kafka.client_id"
                                                        : property;
}

static bool apply(rd_kafka_conf_t *conf, const struct config *config,
                  const struct kafka_setting *defaults, const struct kafka_setting *musts,
                  struct err *e)
{
    if (config->kafka.client_id != NULL && config->kafka.client_id[0] != '\0' &&
        !set(conf, "client.id", config->kafka.client_id, "kafka.client_id", e))
        return false;
    for (const struct kafka_setting *d = defaults; d->name != NULL; d++)
        if (!set(conf, d->name, d->value, key_behind(d->name), e))
            return false;

    for (size_t i = 0; i < config->kafka.properties.n; i++) {
        const struct config_pair *p = &config->kafka.properties.items[i];

        if (!set(conf, p->name, p->value, NULL, e))
            return false;
    }

    if (!set(conf, "bootstrap.servers", config->kafka.brokers, "kafka.brokers", e))
        return false;
    for (const struct kafka_setting *m = musts; m->name != NULL; m++)
        if (!set(conf, m->name, m->value, key_behind(m->name), e))
            return false;
    return true;
}

bool kafka_conf_build(const struct config *config, const struct kafka_setting *defaults,
                      const struct kafka_setting *musts, rd_kafka_conf_t **out, struct err *e)
{
    rd_kafka_conf_t *conf = rd_kafka_conf_new();

    rd_kafka_conf_set_log_cb(conf, on_log);
    if (!apply(conf, config, defaults, musts, e)) {
        rd_kafka_conf_destroy(conf);
        return false;
    }
    *out = conf;
    return true;
}

rd_kafka_t *kafka_handle_new(rd_kafka_type_t type, rd_kafka_conf_t *conf, struct err *e)
{
    char text[400], mechanism[32] = "";
    size_t len = sizeof mechanism;
    bool token = rd_kafka_conf_get(conf, "sasl.mechanisms", mechanism, &len) == RD_KAFKA_CONF_OK &&
                 strcmp(mechanism, "OAUTHBEARER") == 0;
    rd_kafka_t *rk;

    /* A token is refreshed by whoever polls; not every handle is polled all the time. */
    rd_kafka_conf_enable_sasl_queue(conf, token);
    rk = rd_kafka_new(type, conf, text, sizeof text);
    if (rk == NULL) {
        rd_kafka_conf_destroy(conf);
        err_set(e, ERR_CONFIG, 0, "kafka: %s", text);
        return NULL;
    }
    if (token)
        rd_kafka_error_destroy(rd_kafka_sasl_background_callbacks_enable(rk));
    return rk;
}

/* --- questions to the brokers -------------------------------------------------------------- */

static void on_admin_error(rd_kafka_t *rk, int err, const char *reason, void *opaque)
{
    (void)rk;
    kafka_refusal_keep(opaque, (rd_kafka_resp_err_t)err, reason);
}

rd_kafka_t *kafka_admin_handle(const struct config *config, struct err *refusal, struct err *e)
{
    static const struct kafka_setting none[] = {{0}};
    static const struct kafka_setting musts[] = {{"statistics.interval.ms", "0"}, {0}};
    rd_kafka_conf_t *conf;

    *refusal = (struct err){0};
    if (!kafka_conf_build(config, none, musts, &conf, e))
        return NULL;
    rd_kafka_conf_set_opaque(conf, refusal);
    rd_kafka_conf_set_error_cb(conf, on_admin_error);
    return kafka_handle_new(RD_KAFKA_PRODUCER, conf, e);
}

void kafka_refusal_keep(struct err *refusal, rd_kafka_resp_err_t err, const char *reason)
{
    if (refusal->kind == ERR_NONE && kafka_error_kind(err) == ERR_AUTH)
        err_set(refusal, ERR_AUTH, err, "kafka refuses the credentials: %s", reason);
}

bool kafka_refused(rd_kafka_t *rk, const struct err *refusal, struct err *e)
{
    rd_kafka_poll(rk, 0);
    if (refusal->kind == ERR_AUTH && e->kind == ERR_TRANSIENT)
        *e = *refusal;
    return false;
}

enum err_kind kafka_error_kind(rd_kafka_resp_err_t code)
{
    switch ((int)code) {
    case RD_KAFKA_RESP_ERR__AUTHENTICATION:
    case RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED:
    case RD_KAFKA_RESP_ERR_UNSUPPORTED_SASL_MECHANISM:
    case RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_GROUP_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_CLUSTER_AUTHORIZATION_FAILED:
    case RD_KAFKA_RESP_ERR_TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
        return ERR_AUTH;
    case RD_KAFKA_RESP_ERR__UNKNOWN_TOPIC:
    case RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION:
    case RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART:
    case RD_KAFKA_RESP_ERR_INVALID_SESSION_TIMEOUT:
    case RD_KAFKA_RESP_ERR_TOPIC_EXCEPTION:
    case RD_KAFKA_RESP_ERR__INVALID_ARG:
        return ERR_CONFIG;
    default:
        return ERR_TRANSIENT;
    }
}

static size_t headers_of(const rd_kafka_message_t *m, struct kafka_scratch *scratch)
{
    rd_kafka_headers_t *list;

    if (rd_kafka_message_headers(m, &list) != RD_KAFKA_RESP_ERR_NO_ERROR)
        return 0;

    size_t n = rd_kafka_header_cnt(list);
    if (n > scratch->cap) {
        scratch->headers = mem_grow(scratch->headers, n, sizeof *scratch->headers);
        scratch->cap = n;
    }
    for (size_t i = 0; i < n; i++) {
        const char *name = NULL;
        const void *value = NULL;
        size_t len = 0;

        rd_kafka_header_get_all(list, i, &name, &value, &len);
        scratch->headers[i] =
            (struct record_header){.name = slice_text(name), .value = slice_of(value, len)};
    }
    return n;
}

struct record *kafka_record_new(const rd_kafka_message_t *m, const char *topic, uint32_t slot,
                                struct kafka_scratch *scratch)
{
    rd_kafka_timestamp_type_t type;
    int64_t at_ms = rd_kafka_message_timestamp(m, &type);
    /* Null is the pointer, not the length: a value of no bytes is no tombstone. */
    struct record_source from = {.topic = topic,
                                 .partition = m->partition,
                                 .slot = slot,
                                 .offset = m->offset,
                                 .timestamp_type = RECORD_TIMESTAMP_NONE,
                                 .timestamp_ms = at_ms,
                                 .key = slice_of(m->key, m->key_len),
                                 .value = slice_of(m->payload, m->len)};

    if (type == RD_KAFKA_TIMESTAMP_CREATE_TIME)
        from.timestamp_type = RECORD_TIMESTAMP_CREATE;
    else if (type == RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME)
        from.timestamp_type = RECORD_TIMESTAMP_APPEND;
    from.n_headers = headers_of(m, scratch);
    from.headers = scratch->headers;
    return record_new(&from);
}
