/*
 * `idemsink verify`: the topics, up to the end offsets seen at start, against the collections and
 * the dead-letter topic. Three passes, each streaming: dead letters, topics, collections.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "core/audit.h"
#include "io/kafka.h"
#include "io/mongo.h"

enum { BROKER_WAIT_MS = 10000, SHOWN_MAX = 10 };

struct partition_name {
    const char *topic; /* lives as long as the reader */
    int32_t partition;
};

struct verify {
    const struct args *args;
    struct config *config;
    struct mapping **mappings;
    struct mongo *mongo;
    struct kafka_reader *reader; /* of the topics; kept open for its topic names */
    struct audit *audit;
    struct partition_name *names; /* by slot */
    size_t n_names;
    struct buf listed; /* --dead-letters with --json: the list's entries */
    uint64_t bad, skipped, dead_letters, dead_missing, keyless;
    bool dead_letters_are_kept;
    uint32_t route;             /* whose collection is being scanned */
    uint64_t scanned, expected; /* documents */
    int64_t progress_at_ms, pass_started_ms;
};

static void progress(struct verify *v, const char *what, uint64_t done, uint64_t total)
{
    int64_t now = clock_mono_ms();
    double seconds = (double)(now - v->pass_started_ms) / 1000.0;

    if (now < v->progress_at_ms || !isatty(STDERR_FILENO))
        return;
    v->progress_at_ms = now + 250;
    double rate = seconds > 0 ? (double)done / seconds : 0;
    fprintf(stderr, "\r\033[K%s: %" PRIu64 " of %" PRIu64 ", %.0f/s, about %.0f s left", what, done,
            total, rate, rate > 0 && total > done ? (double)(total - done) / rate : 0.0);
}

static void pass_begin(struct verify *v)
{
    v->pass_started_ms = clock_mono_ms();
    v->progress_at_ms = v->pass_started_ms + 250;
}

static void pass_end(void)
{
    if (isatty(STDERR_FILENO))
        fputs("\r\033[K", stderr);
}

/* Routes that share a collection share their books: the first of them stands for all. */
static uint32_t books_of(const struct config *c, uint32_t route)
{
    for (uint32_t i = 0; i < route; i++)
        if (strcmp(c->routes[i].database, c->routes[route].database) == 0 &&
            strcmp(c->routes[i].collection, c->routes[route].collection) == 0)
            return i;
    return route;
}

static void name_slot(struct verify *v, const struct record *r)
{
    if (r->slot < v->n_names)
        return;
    v->names = mem_grow(v->names, (size_t)r->slot + 1, sizeof *v->names);
    for (; v->n_names <= r->slot; v->n_names++)
        v->names[v->n_names] = (struct partition_name){0};
}

/* --- the topics --- */

static bool expect_record(struct verify *v, struct record *r, struct err *e)
{
    struct write_op op = {0};
    uint32_t route = r->route;
    bool ok = true;

    name_slot(v, r);
    v->names[r->slot] = (struct partition_name){.topic = r->topic, .partition = r->partition};
    mapping_order(v->mappings[route], r);
    switch (mapping_build(v->mappings[route], r, &op)) {
    case MAPPING_WRITE:
        r->route = books_of(v->config, route);
        ok = audit_expect(v->audit, r, op.filter, op.document, e);
        break;
    case MAPPING_SKIP:
        v->skipped++;
        break;
    case MAPPING_REJECTED:
        v->bad++;
        if (v->dead_letters_are_kept &&
            !audit_is_dead(v->audit, slice_text(r->topic), r->partition, r->offset))
            v->dead_missing++;
        break;
    }
    write_op_clear(&op);
    return ok;
}

/* Hands every record to each() and frees it. */
static bool read_all(struct verify *v, struct kafka_reader *reader, const char *what,
                     bool (*each)(struct verify *v, struct record *r, struct err *e), struct err *e)
{
    struct record *r = NULL;
    uint64_t done, total;

    pass_begin(v);
    for (;;) {
        switch (kafka_reader_next(reader, 500, &r, e)) {
        case KAFKA_READ_RECORD: {
            bool ok = each(v, r, e);
            record_free(r);
            if (!ok)
                return false;
            break;
        }
        case KAFKA_READ_NOTHING:
            break;
        case KAFKA_READ_END:
            pass_end();
            return true;
        case KAFKA_READ_ERROR:
            return false;
        }
        kafka_reader_progress(reader, &done, &total);
        progress(v, what, done, total);
    }
}

/* --- the dead letters --- */

static bool header_number(const struct record *r, const char *name, int64_t *out)
{
    struct slice text;
    char digits[24];

    if (!record_header(r, name, &text) || text.ptr == NULL || text.len == 0 ||
        text.len >= sizeof digits)
        return false;
    memcpy(digits, text.ptr, text.len);
    digits[text.len] = '\0';
    *out = strtoll(digits, NULL, 10);
    return true;
}

static void list_dead_letter(struct verify *v, const char *topic, int64_t partition, int64_t offset,
                             struct slice reason)
{
    struct buf *out = &v->listed;

    if (!v->args->json) {
        printf("dead letter  %s/%" PRId64 "@%" PRId64 " %.*s\n", topic, partition, offset,
               (int)reason.len, (const char *)reason.ptr);
        return;
    }
    buf_printf(out,
               "%s{\"topic\":\"%s\",\"partition\":%" PRId64 ",\"offset\":%" PRId64 ",\"reason\":\"",
               out->len > 0 ? "," : "", topic, partition, offset);
    buf_add_json(out, reason.ptr, reason.len);
    buf_add_text(out, "\"}");
}

/* One of a topic that no route reads is somebody else's. */
static bool dead_letter(struct verify *v, struct record *r, struct err *e)
{
    struct slice from, reason = {0};
    int64_t partition, offset;
    bool ok = true;

    if (!record_header(r, "idemsink.topic", &from) || from.ptr == NULL ||
        !header_number(r, "idemsink.partition", &partition) ||
        !header_number(r, "idemsink.offset", &offset))
        return true;
    char *topic = mem_text_n(from.ptr, from.len);
    if (config_route_of(v->config, topic) >= 0) {
        v->dead_letters++;
        ok = audit_dead(v->audit, from, (int32_t)partition, offset, e);
        if (v->args->dead_letters) {
            (void)record_header(r, "idemsink.reason", &reason);
            list_dead_letter(v, topic, partition, offset, reason);
        }
    }
    mem_free(topic);
    return ok;
}

static bool read_dead_letters(struct verify *v, struct err *e)
{
    const char *topic = v->config->dead_letter.topic;
    struct kafka_reader *reader;
    bool ok;

    v->dead_letters_are_kept = topic[0] != '\0';
    if (!v->dead_letters_are_kept)
        return true;
    reader = kafka_reader_new(v->config, &topic, 1, BROKER_WAIT_MS, e);
    if (reader == NULL)
        return err_wrap(e, "dead-letter topic");
    ok = read_all(v, reader, "dead letters", dead_letter, e);
    kafka_reader_free(reader);
    return ok;
}

/* --- the collections --- */

static bool stored(const bson_t *document, void *ctx)
{
    struct verify *v = ctx;
    bson_t key = BSON_INITIALIZER;

    if (mapping_key_of_document(v->mappings[v->route], document, &key))
        (void)audit_stored(v->audit, v->route, &key, document);
    else
        v->keyless++;
    bson_destroy(&key);
    v->scanned++;
    progress(v, "documents", v->scanned, v->expected);
    return true;
}

static bool scan_collections(struct verify *v, struct err *e)
{
    for (uint32_t i = 0; i < v->config->n_routes; i++) {
        if (books_of(v->config, i) != i)
            continue;
        v->route = i;
        int64_t count = mongo_count(v->mongo, &v->config->routes[i]);
        v->expected = v->scanned + (count > 0 ? (uint64_t)count : 0);
        pass_begin(v);
        if (!mongo_scan(v->mongo, &v->config->routes[i], stored, v, e))
            return false;
        pass_end();
    }
    return true;
}

/* --- the verdict --- */

struct missing {
    struct verify *v;
    size_t shown;
};

static void missing_one(void *ctx, uint32_t slot, int64_t offset)
{
    struct missing *m = ctx;

    if (m->shown++ < SHOWN_MAX && !m->v->args->json)
        printf("missing      %s/%d@%" PRId64 "\n", m->v->names[slot].topic,
               (int)m->v->names[slot].partition, offset);
}

static bool print_books(struct verify *v)
{
    struct missing m = {.v = v};
    struct audit_books b = audit_finish(v->audit, SIZE_MAX, missing_one, &m);
    uint64_t extra = b.extra + v->keyless;
    bool balanced = b.missing == 0 && b.different == 0 && b.doubled == 0 && v->dead_missing == 0 &&
                    (extra == 0 || v->args->allow_extra);
    const struct {
        const char *name, *help;
        uint64_t value;
    } rows[] = {
        {"records", "records that ask for a document", b.records},
        {"distinct", "dedup keys among them", b.distinct},
        {"stored", "documents there and right", b.right},
        {"missing", "dedup keys without document or dead letter", b.missing},
        {"different", "documents unlike the first record of their dedup key", b.different},
        {"doubled", "documents whose dedup key has another one", b.doubled},
        {"extra", "documents that no record asks for", extra},
        {"refused", "dedup keys that are dead letters instead", b.dead},
        {"bad", "records that can't be stored", v->bad},
        {"dead_letters", "dead letters of these topics", v->dead_letters},
        {"dead_missing", "bad records without a dead letter", v->dead_missing},
        {"skipped", "tombstones skipped by rule", v->skipped},
    };
    const size_t n = sizeof rows / sizeof rows[0];

    if (v->args->json) {
        fputs("{", stdout);
        if (v->args->dead_letters)
            printf("\"dead_letter_list\":[%s],", buf_text(&v->listed));
        for (size_t i = 0; i < n; i++)
            printf("\"%s\":%" PRIu64 ",", rows[i].name, rows[i].value);
        printf("\"balanced\":%s}\n", balanced ? "true" : "false");
        return balanced;
    }
    for (size_t i = 0; i < n; i++)
        printf("%-12s %12" PRIu64 "  %s\n", rows[i].name, rows[i].value, rows[i].help);
    puts(balanced ? "the books balance" : "THE BOOKS DO NOT BALANCE");
    return balanced;
}

static bool parse_memory(const char *text, size_t *out)
{
    char *end = NULL;
    unsigned long long n;

    *out = (size_t)2 << 30;
    if (text == NULL)
        return true;
    n = strtoull(text, &end, 10);
    if (strcmp(end, "MiB") == 0)
        n <<= 20;
    else if (strcmp(end, "GiB") == 0)
        n <<= 30;
    else
        n = 0;
    *out = (size_t)n;
    return n >= (1u << 20);
}

static bool verify_open(struct verify *v, const char *instance_id, struct err *e)
{
    v->mappings = cli_mappings(v->config, instance_id, e);
    if (v->mappings == NULL)
        return false;
    v->mongo = mongo_new(v->config, e);
    if (v->mongo == NULL || !mongo_ping(v->mongo, e))
        return false;
    v->reader = kafka_reader_new(v->config, NULL, 0, BROKER_WAIT_MS, e);
    return v->reader != NULL;
}

static void verify_close(struct verify *v)
{
    kafka_reader_free(v->reader);
    mongo_free(v->mongo);
    cli_mappings_free(v->mappings, v->config->n_routes);
    audit_free(v->audit);
    mem_free(v->names);
    buf_clear(&v->listed);
    config_free(v->config);
}

enum exit_code cmd_verify(const struct args *args)
{
    struct verify v = {.args = args, .config = cli_config(args)};
    enum exit_code code;
    size_t memory;
    struct err e;

    if (v.config == NULL)
        return EXIT_CONFIGURATION;
    if (!parse_memory(args->memory, &memory)) {
        (void)fprintf(stderr, "idemsink: --memory %s: a size like 512MiB or 2GiB, at least 1MiB\n",
                      args->memory);
        config_free(v.config);
        return EXIT_BAD_USAGE;
    }
    v.audit = audit_new(memory);
    if (verify_open(&v, "verify", &e) && read_dead_letters(&v, &e) &&
        read_all(&v, v.reader, "records", expect_record, &e) && scan_collections(&v, &e))
        code = print_books(&v) ? EXIT_FINE : EXIT_FOUND;
    else
        code = cli_fail(&e);
    verify_close(&v);
    return code;
}
