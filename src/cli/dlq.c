#include "cli/dlq.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/types.h"
#include "io/kafka.h"

enum { PATIENCE_MS = 30000 };

struct dlq_topic {
    char *name;
    int route;
};

const char *dlq_state_name(enum dlq_state state)
{
    static const char *const names[DLQ_STATES] = {
        "open", "older", "incomplete", "no_route", "other_group", "foreign", "broken"};

    return (size_t)state < DLQ_STATES ? names[state] : "?";
}

const char *dlq_state_help(enum dlq_state state)
{
    static const char *const texts[DLQ_STATES] = {
        "",
        "a newer dead letter speaks of the same record",
        "it was too large for the topic, and its record is gone from its own",
        "no route reads the topic that it came from",
        "another consumer group sent it there",
        "idemsink did not send it there",
        "its headers are not as idemsink writes them"};

    return (size_t)state < DLQ_STATES ? texts[state] : "?";
}

/* --- the options --------------------------------------------------------------------------- */

static enum exit_code usage(const char *option, const char *value, const char *what)
{
    fprintf(stderr, "idemsink: %s %s: %s\n", option, value, what);
    return EXIT_BAD_USAGE;
}

/* "90s" "15m" "2h" "7d" */
static bool read_span(const char *text, int64_t *ms)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};
    char *end = NULL;
    long long n = *text >= '0' && *text <= '9' ? strtoll(text, &end, 10) : -1;

    for (size_t i = 0; n >= 0 && n <= 1000000000 && i < sizeof units / sizeof units[0]; i++) {
        if (strcmp(end, units[i].name) == 0) {
            *ms = n * units[i].ms;
            return true;
        }
    }
    return false;
}

/* Leaves *ms as it is when there is no such option. */
static bool read_time(const char *text, int64_t *ms)
{
    int64_t span_ms;

    if (text == NULL || types_date(text, strlen(text), ms))
        return true;
    if (!read_span(text, &span_ms))
        return false;
    *ms = clock_wall_ms() - span_ms;
    return true;
}

/* A number without a sign, and what stands behind it. */
static bool read_number(const char **text, int64_t max, int64_t *out)
{
    char *end;

    if (**text < '0' || **text > '9')
        return false;
    errno = 0;
    *out = strtoll(*text, &end, 10);
    *text = end;
    return errno == 0 && *out <= max;
}

static bool read_place(const char *text, struct dlq_place *out)
{
    int64_t partition;

    if (!read_number(&text, INT32_MAX, &partition) || *text++ != ':' ||
        !read_number(&text, INT64_MAX - 1, &out->offset) || *text != '\0')
        return false;
    out->partition = (int32_t)partition;
    return true;
}

static enum exit_code read_options(struct dlq *d)
{
    const struct args *a = d->args;

    d->since_ms = INT64_MIN;
    d->until_ms = INT64_MAX;
    d->by_reason = a->n_reasons > 0;
    for (size_t i = 0; i < a->n_reasons; i++) {
        enum reason reason;

        if (!reason_parse(a->reasons[i], &reason))
            return usage("--reason", a->reasons[i],
                         "no such reason; docs/dead-letters.md has their names");
        d->reasons[reason] = true;
    }
    if (!read_time(a->since, &d->since_ms))
        return usage("--since", a->since, "a time of RFC 3339, or so long ago, like 90s 15m 2h 7d");
    if (!read_time(a->until, &d->until_ms))
        return usage("--until", a->until, "a time of RFC 3339, or so long ago, like 90s 15m 2h 7d");
    d->patience_ms = PATIENCE_MS;
    if (a->patience && (!read_span(a->patience, &d->patience_ms) || d->patience_ms == 0))
        return usage("--patience", a->patience, "a time above 0, like 90s 15m 2h");
    d->places = mem_array(a->n_places, sizeof *d->places);
    for (; d->n_places < a->n_places; d->n_places++)
        if (!read_place(a->places[d->n_places], &d->places[d->n_places]))
            return usage("--offset", a->places[d->n_places],
                         "PARTITION:OFFSET in the dead-letter topic, as dlq list shows it");
    if (d->n_places > 0 && (a->n_reasons > 0 || a->topic || a->since || a->until))
        return usage("--offset", a->places[0],
                     "names one dead letter: no --reason, --topic, --since or --until beside it");
    return EXIT_FINE;
}

enum exit_code dlq_open(struct dlq *d, const struct args *args)
{
    enum exit_code code;

    *d = (struct dlq){.args = args};
    if ((code = read_options(d)) != EXIT_FINE)
        return code;
    d->config = cli_config(args);
    if (d->config == NULL)
        return EXIT_CONFIGURATION;
    if (d->config->dead_letter.topic[0] == '\0') {
        fprintf(stderr, "idemsink: %s: dead_letter.topic is not set: there are no dead letters\n",
                args->config_file);
        return EXIT_CONFIGURATION;
    }
    d->table = letter_table_new();
    return EXIT_FINE;
}

bool dlq_topic_is_read(const struct dlq *d)
{
    const char *topic = d->args->topic;

    if (topic == NULL || config_route_of(d->config, topic) != CONFIG_NO_ROUTE)
        return true;
    cli_say_no_route(d->args, d->config, topic, ", so nothing of it can be replayed");
    return false;
}

void dlq_close(struct dlq *d)
{
    for (size_t i = 0; i < d->n_topics; i++)
        mem_free(d->topics[i].name);
    mem_free(d->topics);
    mem_free(d->places);
    mem_free(d->ends);
    letter_table_free(d->table);
    config_free(d->config);
}

/* --- reading ------------------------------------------------------------------------------- */

static bool came_later(const struct dlq *d, const struct record *r)
{
    size_t partition = (size_t)r->partition;

    return d->surveyed && (partition >= d->n_ends || r->offset >= d->ends[partition]);
}

bool dlq_scan(struct dlq *d, dlq_fn *each, void *ctx, struct err *e)
{
    const char *topic = d->config->dead_letter.topic;
    struct kafka_reader *reader = kafka_reader_new(d->config, &topic, 1, DLQ_WAIT_MS, e);
    enum kafka_read got = KAFKA_READ_NOTHING;
    bool ok = true;

    if (reader == NULL)
        return err_wrap(e, "dead-letter topic");
    while (ok && got != KAFKA_READ_END) {
        struct record *r;
        struct letter l;

        got = kafka_reader_next(reader, 500, &r, e);
        if (got == KAFKA_READ_ERROR) {
            ok = false;
        } else if (got == KAFKA_READ_RECORD) {
            letter_read(r, &l);
            if (!came_later(d, r))
                ok = each(ctx, r, &l, e);
            record_free(r);
        }
    }
    kafka_reader_free(reader);
    return ok;
}

static bool count_one(void *ctx, const struct record *r, const struct letter *l, struct err *e)
{
    struct dlq *d = ctx;
    size_t partition = (size_t)r->partition;

    (void)e;
    if (partition >= d->n_ends) {
        d->ends = mem_grow(d->ends, partition + 1, sizeof *d->ends);
        for (; d->n_ends <= partition; d->n_ends++)
            d->ends[d->n_ends] = 0;
    }
    d->ends[partition] = r->offset + 1;
    /* Another group's letter of the same record is another story. */
    if (l->kind == LETTER_OURS && slice_equal(l->group, slice_text(d->config->kafka.group)))
        letter_table_add(d->table, l, r->partition, r->offset);
    return true;
}

bool dlq_survey(struct dlq *d, struct err *e)
{
    d->surveyed = dlq_scan(d, count_one, d, e);
    return d->surveyed;
}

struct record *dlq_read(struct dlq *d, const struct dlq_place *place, struct err *e)
{
    return kafka_read_one(d->config, d->config->dead_letter.topic, place->partition, place->offset,
                          DLQ_WAIT_MS, e);
}

/* --- what it is ---------------------------------------------------------------------------- */

int64_t dlq_time_ms(const struct record *r, const struct letter *l)
{
    return l->kind == LETTER_OURS ? l->time_ms : r->timestamp_ms;
}

bool dlq_wanted(const struct dlq *d, const struct record *r, const struct letter *l)
{
    int64_t at_ms = dlq_time_ms(r, l);
    bool by_what = d->by_reason || d->args->topic != NULL;

    if (at_ms < d->since_ms || at_ms > d->until_ms)
        return false;
    if (l->kind != LETTER_OURS)
        return !by_what;
    if (d->args->topic != NULL && !slice_equal(l->topic, slice_text(d->args->topic)))
        return false;
    for (int i = 0; d->by_reason && i < REASON_COUNT; i++)
        if (d->reasons[i] && slice_equal(l->reason, slice_text(reason_name((enum reason)i))))
            return true;
    return !d->by_reason;
}

/* The route of the topic that l came from, and its name for as long as d lives. -1: none. */
static int route_of(struct dlq *d, const struct letter *l, const char **topic)
{
    char *name;
    int route;

    for (size_t i = 0; i < d->n_topics; i++) {
        if (slice_equal(slice_text(d->topics[i].name), l->topic)) {
            *topic = d->topics[i].name;
            return d->topics[i].route;
        }
    }
    name = mem_text_n(l->topic.ptr, l->topic.len);
    /* The dead-letter topic itself is nobody's input, whatever a letter says. */
    route = strcmp(name, d->config->dead_letter.topic) == 0 ? -1 : config_route_of(d->config, name);
    if (route < 0) { /* not kept: anybody can write names into the topic */
        mem_free(name);
        return -1;
    }
    d->topics = mem_grow(d->topics, d->n_topics + 1, sizeof *d->topics);
    d->topics[d->n_topics++] = (struct dlq_topic){.name = name, .route = route};
    *topic = name;
    return route;
}

enum dlq_state dlq_state(struct dlq *d, const struct record *r, const struct letter *l)
{
    const char *topic;

    if (l->kind != LETTER_OURS)
        return l->kind == LETTER_BROKEN ? DLQ_BROKEN : DLQ_FOREIGN;
    if (!slice_equal(l->group, slice_text(d->config->kafka.group)))
        return DLQ_OTHER_GROUP;
    if (route_of(d, l, &topic) < 0)
        return DLQ_NO_ROUTE;
    if (d->surveyed && !letter_table_newest(d->table, l, r->partition, r->offset))
        return DLQ_OLDER;
    return letter_is_whole(l) ? DLQ_OPEN : DLQ_INCOMPLETE;
}

struct record *dlq_restore(struct dlq *d, const struct record *r, const struct letter *l,
                           struct err *e)
{
    const char *topic = NULL;
    int route = route_of(d, l, &topic);
    struct record *again;

    MUST(route >= 0 && topic != NULL);
    if (letter_is_whole(l)) {
        again = letter_restore(r, l, topic);
    } else {
        again = kafka_read_one(d->config, topic, l->partition, l->offset, DLQ_WAIT_MS, e);
        if (again == NULL && e->kind == ERR_CONFIG) /* no such topic any more */
            e->kind = ERR_INPUT;
        if (again == NULL)
            return NULL;
        if (!letter_is_of(r, l, again)) {
            record_free(again);
            (void)err_set(e, ERR_INPUT, 0, "%s:%d:%" PRId64 " is another record now", topic,
                          (int)l->partition, l->offset);
            return NULL;
        }
        again->attempts = l->attempts < UINT32_MAX ? l->attempts + 1 : l->attempts;
    }
    again->route = (uint32_t)route;
    return again;
}
