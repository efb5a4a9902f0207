/*
 * `idemsink verify`: the topics, up to the end offsets seen at start, against the collections and
 * the dead-letter topic. Three passes, each streaming: dead letters, topics, collections.
 */
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/verify.h"
#include "core/letter.h"

enum { BROKER_WAIT_MS = 10000 };

/*
 * --memory is for the whole process. Beside the table of dedup keys there are librdkafka's prefetch
 * (half of worker.max_bytes), a batch of documents as the server sends it (16 MiB at most) and as
 * libmongoc reads it, one record with its tree, and the libraries themselves.
 */
enum { BESIDE_BYTES = 96 << 20, TABLE_LEAST_BYTES = 16 << 20, TERMINAL_MS = 250, LINES_MS = 10000 };

/* --- progress: one line that moves on a terminal, a new line now and then elsewhere --- */

static void pass_begin(struct verify *v, const char *what)
{
    v->progress = progress_begin(what, clock_mono_ms(), v->terminal ? 0 : LINES_MS,
                                 v->terminal ? TERMINAL_MS : LINES_MS);
}

static void show_progress(struct verify *v, uint64_t done, uint64_t total)
{
    int64_t now_ms = clock_mono_ms();
    struct buf text = {0};

    if (!progress_due(&v->progress, now_ms))
        return;
    progress_text(&v->progress, now_ms, done, total, &text);
    fprintf(stderr, v->terminal ? "\r\033[K%s" : "idemsink: %s\n", buf_text(&text));
    buf_clear(&text);
}

static void pass_end(const struct verify *v)
{
    if (v->terminal)
        fputs("\r\033[K", stderr);
}

uint32_t verify_books_of(const struct config *c, uint32_t route)
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

/*
 * What of a document is compared: not the hash of the payload, since a document from before the
 * check has none, nor what effects put into it, which is not the record's. The caller's,
 * compared_free().
 */
struct compared {
    bson_t without_hash, without_effects;
    bool is_hashed, has_effects;
    const bson_t *document;
};

static void compared_make(struct verify *v, uint32_t route, const bson_t *document,
                          struct compared *out)
{
    out->document = document;
    out->is_hashed = mapping_without_hash(v->mappings[route], document, &out->without_hash);
    if (out->is_hashed)
        out->document = &out->without_hash;
    out->has_effects = mapping_without_effects(v->config, &v->config->routes[route], out->document,
                                               &out->without_effects);
    if (out->has_effects)
        out->document = &out->without_effects;
}

static void compared_free(struct compared *c)
{
    if (c->is_hashed)
        bson_destroy(&c->without_hash);
    if (c->has_effects)
        bson_destroy(&c->without_effects);
}

static bool expect_document(struct verify *v, uint32_t route, const struct record *r,
                            const struct write_op *op, struct err *e)
{
    struct compared c;
    bool ok;

    compared_make(v, route, op->document, &c);
    ok = config_has_operation(&v->config->routes[route])
             ? verify_expect_operation(v, r, op, c.document, e)
             : audit_expect(v->audit, r, op->filter, c.document, e);
    compared_free(&c);
    return ok;
}

static bool expect_record(struct verify *v, struct record *r, struct err *e)
{
    struct write_op op = {0};
    uint32_t route = r->route;
    bool ok = true;

    v->read++;
    name_slot(v, r);
    v->names[r->slot] = (struct partition_name){.topic = r->topic, .partition = r->partition};
    mapping_order(v->mappings[route], r);
    switch (mapping_build(v->mappings[route], r, &op)) {
    case MAPPING_WRITE:
        r->route = verify_books_of(v->config, route);
        ok = expect_document(v, route, r, &op, e);
        break;
    case MAPPING_SKIP:
        v->skipped++;
        break;
    case MAPPING_REJECTED:
        v->bad++;
        if (v->dead_letters_are_kept &&
            !audit_is_dead(v->audit, slice_text(r->topic), r->partition, r->offset)) {
            char *place = mem_printf("%s:%d:%" PRId64, r->topic, (int)r->partition, r->offset);

            v->dead_missing++;
            verify_fault(v, "dead_missing", "", place, false);
            mem_free(place);
        }
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

    pass_begin(v, what);
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
            pass_end(v);
            return true;
        case KAFKA_READ_ERROR:
            return false;
        }
        kafka_reader_progress(reader, &done, &total);
        show_progress(v, done, total);
    }
}

/* A table that is full: how much more it takes, by what was read so far. */
static bool full(const struct verify *v, struct err *e)
{
    uint64_t done, total;
    double need;

    if (e->kind != ERR_CONFIG || audit_bytes(v->audit) < v->options.memory_bytes / 8)
        return false;
    kafka_reader_progress(v->reader, &done, &total);
    need = (double)audit_bytes(v->audit) * 2 * (double)total / (double)(done > 0 ? done : 1);
    err_set(e, ERR_CONFIG, 0,
            "the dedup keys of %" PRIu64 " of %" PRIu64 " records fill the memory of --memory; "
            "give it about %.0fMiB, or look at a part of the keys with --sample (1/%.0f)",
            done, total, need / (1 << 20) + (BESIDE_BYTES >> 20),
            need / (double)audit_bytes(v->audit) + 1);
    return false;
}

static bool read_topics(struct verify *v, struct err *e)
{
    return read_all(v, v->reader, "records", expect_record, e) || full(v, e);
}

/* --- the dead letters --- */

/* Is it one of the records that are read? */
static bool is_read(const struct verify *v, const char *topic, int64_t partition, int64_t offset)
{
    struct kafka_range range;

    for (size_t i = 0; kafka_reader_range(v->reader, i, &range); i++)
        if (range.partition == partition && strcmp(range.topic, topic) == 0)
            return offset >= range.from && offset < range.end;
    return false;
}

/* One of a topic that no route reads is somebody else's, and so is one of another group: what that
 * one could not store says nothing about us. */
static bool dead_letter(struct verify *v, struct record *r, struct err *e)
{
    struct letter l;
    bool ok = true;

    letter_read(r, &l);
    if (l.kind != LETTER_OURS || !slice_equal(l.group, slice_text(v->config->kafka.group)))
        return true;
    char *topic = mem_text_n(l.topic.ptr, l.topic.len);
    if (is_read(v, topic, l.partition, l.offset)) {
        v->dead_letters++;
        ok = audit_dead(v->audit, l.topic, l.partition, l.offset, e);
        if (v->args->dead_letters)
            verify_dead_letter(v, &l, r);
    }
    mem_free(topic);
    return ok;
}

/* From its begin, whatever --since says: a dead letter carries the time of its record. */
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

static void fault_of_document(struct verify *v, const char *what, const bson_t *key)
{
    const struct config_route *route = &v->config->routes[v->route];

    verify_fault_of(v, what, route->database, route->collection, key);
}

/* A document without its dedup fields is told by its _id. */
static void no_key(struct verify *v, const bson_t *document)
{
    bson_t id = BSON_INITIALIZER;
    bson_iter_t it;

    v->keyless++;
    if (bson_iter_init_find(&it, document, "_id"))
        (void)bson_append_iter(&id, "_id", 3, &it);
    if (v->options.since_ms < 0)
        fault_of_document(v, "extra", &id);
    bson_destroy(&id);
}

static enum audit_verdict judge(struct verify *v, const bson_t *key, const bson_t *document)
{
    struct compared c;
    enum audit_verdict verdict;

    compared_make(v, v->route, document, &c);
    verdict = audit_stored(v->audit, v->route, key, c.document);
    compared_free(&c);
    if (verdict == AUDIT_RIGHT || verdict == AUDIT_DIFFERENT)
        verify_effects_of(v, key, document);
    return verdict;
}

static bool stored(const bson_t *document, void *ctx)
{
    struct verify *v = ctx;
    bson_t key = BSON_INITIALIZER;

    if (!mapping_key_of_document(v->mappings[v->route], document, &key)) {
        if (v->options.from == 0) /* belongs to the first part */
            no_key(v, document);
    } else {
        switch (judge(v, &key, document)) {
        case AUDIT_RIGHT:
        case AUDIT_UNWANTED:
            break;
        case AUDIT_DIFFERENT:
            fault_of_document(v, "different", &key);
            break;
        case AUDIT_EXTRA:
            if (v->options.since_ms < 0)
                fault_of_document(v, "extra", &key);
            break;
        case AUDIT_DOUBLE:
            fault_of_document(v, "doubled", &key);
            break;
        }
    }
    bson_destroy(&key);
    v->scanned++;
    show_progress(v, v->scanned, v->expected);
    return true;
}

static bool scan_collections(struct verify *v, struct err *e)
{
    for (uint32_t i = 0; i < v->config->n_routes; i++) {
        const struct config_route *route = &v->config->routes[i];
        uint64_t before = v->scanned;

        if (verify_books_of(v->config, i) != i)
            continue;
        v->route = i;
        int64_t count = mongo_count(v->mongo, route);
        v->expected = v->scanned + (count > 0 ? (uint64_t)count : 0);
        pass_begin(v, "documents");
        if (!mongo_scan(v->mongo, route, stored, v, e))
            return false;
        pass_end(v);
        buf_printf(&v->collections, "%s{\"collection\":\"", v->collections.len > 0 ? "," : "");
        buf_add_json(&v->collections, route->database, strlen(route->database));
        buf_add_char(&v->collections, '.');
        buf_add_json(&v->collections, route->collection, strlen(route->collection));
        buf_printf(&v->collections, "\",\"documents\":%" PRIu64 "}", v->scanned - before);
    }
    return true;
}

/* --- all of it --- */

static bool divide_memory(struct verify *v)
{
    size_t beside = BESIDE_BYTES + (size_t)v->config->worker.max_bytes / 2;

    if (v->options.memory_bytes < beside + TABLE_LEAST_BYTES) {
        fprintf(stderr,
                "idemsink: --memory %s: at least %zuMiB (half of worker.max_bytes for the records "
                "that librdkafka reads ahead, %d MiB for a batch of documents and the libraries, "
                "the rest for dedup keys)\n",
                v->args->memory, (beside + TABLE_LEAST_BYTES + (1 << 20) - 1) >> 20,
                BESIDE_BYTES >> 20);
        return false;
    }
    v->audit = audit_new(v->options.memory_bytes - beside, v->options.from, v->options.to);
    /* What the table lets go shall be gone, and threads that only pass records on need no heap of
     * their own. */
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
    (void)mallopt(M_ARENA_MAX, 2);
    return true;
}

static bool verify_open(struct verify *v, const char *instance_id, struct err *e)
{
    v->mappings = cli_mappings(v->config, instance_id, e);
    if (v->mappings == NULL)
        return false;
    v->mongo = mongo_new(v->config, e);
    if (v->mongo == NULL || !mongo_ping(v->mongo, e))
        return false;
    v->reader = kafka_reader_since(v->config, NULL, 0, v->options.since_ms, BROKER_WAIT_MS, e);
    return v->reader != NULL;
}

static void verify_close(struct verify *v)
{
    kafka_reader_free(v->reader);
    mongo_free(v->mongo);
    cli_mappings_free(v->mappings, v->config->n_routes);
    audit_free(v->audit);
    mem_free(v->names);
    buf_clear(&v->faults);
    buf_clear(&v->letters);
    buf_clear(&v->collections);
    config_free(v->config);
}

enum exit_code cmd_verify(const struct args *args)
{
    struct verify v = {.args = args, .started_ms = clock_wall_ms()};
    enum exit_code code = EXIT_BAD_USAGE;
    struct err e;

    if (!verify_options_parse(args, v.started_ms, &v.options))
        return EXIT_BAD_USAGE;
    v.config = cli_config(args);
    if (v.config == NULL)
        return EXIT_CONFIGURATION;
    v.terminal = isatty(STDERR_FILENO) == 1;
    if (divide_memory(&v)) {
        if (verify_open(&v, "verify", &e) && read_dead_letters(&v, &e) && read_topics(&v, &e) &&
            scan_collections(&v, &e) && verify_scan_ledgers(&v, &e) && verify_counters(&v, &e))
            code = verify_report(&v) ? EXIT_FINE : EXIT_FOUND;
        else {
            pass_end(&v);
            code = cli_fail(&e);
        }
    }
    verify_close(&v);
    return code;
}
