/*
 * `idemsink explain`: what would become of one payload, without touching anything.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/dlq.h"
#include "cli/explain.h"
#include "core/payload.h"
#include "io/kafka.h"

enum { BROKER_WAIT_MS = 10000 };

struct explaining {
    const struct args *args;
    struct config *config;
    char *topic; /* of the record; owned */
    struct record *record;
    struct mongo *mongo;
};

static void read_stdin(struct buf *out)
{
    char part[8192];
    size_t n;

    if (isatty(STDIN_FILENO))
        fputs(
            "idemsink: type or paste the payload, then Ctrl-D (or: idemsink explain ... < FILE)\n",
            stderr);
    do { /* no read behind the end: a terminal would want a second Ctrl-D */
        n = fread(part, 1, sizeof part, stdin);
        buf_add(out, part, n);
    } while (n > 0 && !feof(stdin));
}

static struct record *record_from(const struct explaining *x, struct slice value)
{
    const struct args *args = x->args;
    struct record_header headers[ARGS_MAX];
    struct record_source from = {.topic = x->topic,
                                 .timestamp_ms = -1,
                                 .key = slice_text(args->key),
                                 .value = value,
                                 .headers = headers};

    for (size_t i = 0; i < args->n_headers; i++) {
        size_t name = strcspn(args->headers[i], "="); /* check_usage() has seen that it is there */

        headers[i].name = slice_of(args->headers[i], name);
        headers[i].value = slice_text(args->headers[i] + name + 1);
    }
    from.n_headers = args->n_headers;
    return record_new(&from);
}

static void given_record(struct explaining *x)
{
    struct buf payload = {0};

    x->topic = mem_text(x->args->topic);
    if (!x->args->null)
        read_stdin(&payload);
    x->record = record_from(x, x->args->null ? slice_of(NULL, 0)
                                             : slice_of(buf_text(&payload), payload.len));
    buf_clear(&payload);
}

/* --- a record of Kafka --- */

/* From the right: a name of a topic holds no colon, but who knows. */
static bool parse_number(char *text, int64_t max, int64_t *out)
{
    char *end;
    char *colon = strrchr(text, ':');

    if (colon == NULL || colon[1] < '0' || colon[1] > '9')
        return false;
    *out = strtoll(colon + 1, &end, 10);
    *colon = '\0';
    return *end == '\0' && *out <= max;
}

static enum exit_code stored_record(struct explaining *x)
{
    int64_t offset, partition;
    enum exit_code code;
    struct err e;

    x->topic = mem_text(x->args->offset);
    if (!parse_number(x->topic, INT64_MAX - 1, &offset) ||
        !parse_number(x->topic, INT32_MAX, &partition) || x->topic[0] == '\0') {
        fprintf(stderr, "idemsink: --offset %s: topic:partition:offset, like orders:0:42\n",
                x->args->offset);
        return EXIT_BAD_USAGE;
    }
    x->record = kafka_read_one(x->config, x->topic, (int32_t)partition, offset, BROKER_WAIT_MS, &e);
    if (x->record != NULL)
        return EXIT_FINE;
    code = cli_fail(&e);
    return e.kind == ERR_INPUT ? EXIT_FOUND : code; /* as dlq show has it */
}

/* In quotes unless it is absent. */
static void add_quoted(struct buf *out, struct slice s)
{
    if (s.ptr == NULL) {
        buf_add_text(out, "null");
        return;
    }
    buf_add_char(out, '"');
    if (payload_is_utf8(s))
        buf_add_json(out, s.ptr, s.len);
    else
        dlq_add_text(out, s);
    buf_add_char(out, '"');
}

static void add_bytes(struct sheet *out, const char *name, struct slice s)
{
    struct buf text = {0}, json = {0};

    add_quoted(&text, s);
    dlq_add_json(&json, s);
    sheet_add(out, name, s.ptr ? buf_text(&text) : "none", buf_text(&json));
    buf_clear(&text);
    buf_clear(&json);
}

static void add_headers(struct sheet *out, const struct record *r)
{
    for (size_t i = 0; i < r->n_headers; i++) {
        const struct record_header *h = &r->headers[i];
        struct buf text = {0}, json = {0};

        buf_add_char(&text, '[');
        add_quoted(&text, h->name);
        buf_add_char(&text, ',');
        add_quoted(&text, h->value);
        buf_add_char(&text, ']');
        buf_add_char(&json, '[');
        dlq_add_json(&json, h->name);
        buf_add_char(&json, ',');
        dlq_add_json(&json, h->value);
        buf_add_char(&json, ']');
        sheet_add_item(out, "header", buf_text(&text), buf_text(&json));
        buf_clear(&text);
        buf_clear(&json);
    }
}

static void add_record(struct sheet *out, const struct record *r)
{
    static const char *const kinds[] = {"", "created", "appended"};
    char at[32];

    sheet_printf(out, "record", "%s:%d:%lld", r->topic, (int)r->partition, (long long)r->offset);
    if (r->timestamp_type != RECORD_TIMESTAMP_NONE) {
        clock_format(r->timestamp_ms, at);
        sheet_printf(out, "timestamp", "%s (%s)", at, kinds[r->timestamp_type]);
    }
    add_bytes(out, "key", r->key);
    add_headers(out, r);
    if (r->value.ptr == NULL)
        sheet_add(out, "value", "none (a tombstone)", "null");
    else
        sheet_printf(out, "value", "%zu bytes", r->value.len);
}

/* --- all of it --- */

static enum exit_code usage(const char *text)
{
    fprintf(stderr, "idemsink: %s\n", text);
    return EXIT_BAD_USAGE;
}

static enum exit_code check_usage(const struct args *a)
{
    if (a->topic == NULL && a->offset == NULL)
        return usage("which topic? --topic T is missing (or --offset T:P:O)");
    if (a->offset != NULL && (a->key || a->n_headers > 0 || a->null))
        return usage("--offset brings key, headers and value: no --key, --header or --null");
    for (size_t i = 0; i < a->n_headers; i++)
        if (strchr(a->headers[i], '=') == NULL || a->headers[i][0] == '=')
            return usage("a --header is NAME=VALUE; NAME= is one with an empty value");
    return EXIT_FINE;
}

static enum exit_code show(struct explaining *x, uint32_t route, struct mapping *mapping)
{
    struct explain_in in = {.config = x->config,
                            .route = &x->config->routes[route],
                            .mapping = mapping,
                            .mongo = x->mongo};
    struct sheet sheet = {0};
    enum exit_code code;

    if (x->args->offset)
        add_record(&sheet, x->record);
    code = explain_rows(&in, x->record, &sheet);
    if (!x->args->offset && x->record->value.ptr != NULL && x->record->value.len == 0)
        sheet_add(&sheet, "hint",
                  "stdin was empty, which is an empty value; a record without a value (a "
                  "tombstone, which removes where tombstone = \"delete\") is --null",
                  NULL);
    sheet_print(&sheet, x->args->json, stdout);
    sheet_clear(&sheet);
    return code;
}

static enum exit_code explain(struct explaining *x)
{
    char *instance_id = cli_instance_id(x->config);
    struct mapping **mappings = NULL;
    enum exit_code code = EXIT_CONFIGURATION;
    struct err e;
    int route;

    if (x->args->offset && (code = stored_record(x)) != EXIT_FINE)
        goto out;
    code = EXIT_CONFIGURATION;
    if (x->args->topic && x->record) /* as if it came from there */
        x->record->topic = x->args->topic;
    route = config_route_of(x->config, x->args->topic ? x->args->topic : x->topic);
    if (route == CONFIG_TWO_ROUTES &&
        !config_route_fail(x->config, x->args->topic ? x->args->topic : x->topic, &e)) {
        code = cli_fail(&e);
        goto out;
    }
    if (route < 0) {
        bool dead = strcmp(x->topic ? x->topic : "", x->config->dead_letter.topic) == 0;

        cli_say_no_route(x->args, x->config, x->args->topic ? x->args->topic : x->topic,
                         x->args->topic ? ""
                         : dead ? ", the one of the dead letters (idemsink dlq show --offset P:O)"
                                : " (--topic T explains it as a record of T)");
        goto out;
    }
    mappings = cli_mappings(x->config, instance_id, &e);
    if (mappings == NULL || (x->args->connect && (x->mongo = mongo_new(x->config, &e)) == NULL)) {
        code = cli_fail(&e);
        goto out;
    }
    if (x->record == NULL)
        given_record(x);
    code = show(x, (uint32_t)route, mappings[route]);
out:
    cli_mappings_free(mappings, x->config->n_routes);
    mem_free(instance_id);
    return code;
}

enum exit_code cmd_explain(const struct args *args)
{
    struct explaining x = {.args = args};
    enum exit_code code = check_usage(args);

    if (code != EXIT_FINE)
        return code;
    x.config = cli_config(args);
    if (x.config == NULL)
        return EXIT_CONFIGURATION;
    code = explain(&x);
    record_free(x.record);
    mongo_free(x.mongo);
    mem_free(x.topic);
    config_free(x.config);
    return code;
}
