/* What verify prints. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/verify.h"

/* --- lists --- */

void verify_fault(struct verify *v, const char *what, const char *where, const char *text,
                  bool is_json)
{
    struct buf *out = &v->faults, shown = {0};

    if (v->n_faults++ >= v->options.listed)
        return;
    buf_add_json_shown(&shown, text, strlen(text)); /* a key may be anything */
    if (!v->args->json) {
        printf("%-12s %s%s%s\n", what, where, *where ? " " : "", buf_text(&shown));
        buf_clear(&shown);
        return;
    }
    buf_printf(out, "%s{\"what\":\"%s\"", out->len > 0 ? "," : "", what);
    if (*where) {
        buf_add_text(out, ",\"collection\":\"");
        buf_add_json(out, where, strlen(where));
        buf_add_char(out, '"');
    }
    buf_printf(out, is_json ? ",\"key\":%s}" : ",\"record\":\"%s\"}", buf_text(&shown));
    buf_clear(&shown);
}

void verify_fault_of(struct verify *v, const char *what, const char *database,
                     const char *collection, const bson_t *key)
{
    char *where = mem_printf("%s.%s", database, collection);
    char *text = bson_as_relaxed_extended_json(key, NULL);

    verify_fault(v, what, where, text ? text : "{}", true);
    bson_free(text);
    mem_free(where);
}

/* With the place that `dlq show` takes, which tells two of one record apart, too. */
void verify_dead_letter(struct verify *v, const struct letter *l, const struct record *at)
{
    struct buf *out = &v->letters;
    int topic_len = (int)l->topic.len;
    const char *topic = (const char *)l->topic.ptr;

    if (!v->args->json) {
        struct buf reason = {0};

        buf_add_shown(&reason, l->reason.ptr, l->reason.len); /* anybody may have written it */
        printf("dead letter  %.*s:%d:%" PRId64 " %s (dlq show --offset %d:%" PRId64 ")\n",
               topic_len, topic, (int)l->partition, l->offset, buf_text(&reason),
               (int)at->partition, at->offset);
        buf_clear(&reason);
        return;
    }
    buf_printf(out, "%s{\"topic\":\"%.*s\",\"partition\":%d,\"offset\":%" PRId64 ",\"reason\":\"",
               out->len > 0 ? "," : "", topic_len, topic, (int)l->partition, l->offset);
    buf_add_json(out, l->reason.ptr, l->reason.len);
    buf_printf(out, "\",\"letter_partition\":%d,\"letter_offset\":%" PRId64 "}", (int)at->partition,
               at->offset);
}

static void missing_one(void *ctx, uint32_t slot, int64_t offset)
{
    struct verify *v = ctx;
    char *place =
        mem_printf("%s:%d:%" PRId64, v->names[slot].topic, (int)v->names[slot].partition, offset);

    verify_fault(v, "missing", "", place, false);
    mem_free(place);
}

/* --- the books --- */

struct row {
    const char *name, *help;
    uint64_t value;
};

/* Not getrusage(): its peak begins with that of whoever started this process, as exec() keeps it.
 */
static uint64_t peak_bytes(void)
{
    static const char field[] = "VmHWM:";
    FILE *status = fopen("/proc/self/status", "r");
    uint64_t kib = 0;
    char line[256];

    if (status == NULL)
        return 0;
    while (kib == 0 && fgets(line, sizeof line, status) != NULL)
        if (strncmp(line, field, sizeof field - 1) == 0)
            kib = strtoull(line + sizeof field - 1, NULL, 10);
    (void)fclose(status);
    return kib * 1024;
}

static void time_member(const char *name, int64_t wall_ms)
{
    char text[32];

    clock_format(wall_ms, text);
    printf("\"%s\":\"%s\",", name, text);
}

static void print_partitions(const struct verify *v)
{
    struct kafka_range range;

    fputs("\"partitions\":[", stdout);
    for (size_t i = 0; kafka_reader_range(v->reader, i, &range); i++)
        printf("%s{\"topic\":\"%s\",\"partition\":%d,\"from\":%" PRId64 ",\"to\":%" PRId64 "}",
               i ? "," : "", range.topic, (int)range.partition, range.from, range.end);
    fputs("],", stdout);
}

static void print_json(const struct verify *v, const struct row *rows, size_t n, bool balanced)
{
    const struct verify_options *o = &v->options;
    int64_t now_ms = clock_wall_ms();

    printf("{\"version\":\"%s\",", IDEMSINK_VERSION);
    time_member("started", v->started_ms);
    time_member("finished", now_ms);
    printf("\"seconds\":%.1f,", (double)(now_ms - v->started_ms) / 1000.0);
    printf("\"sample_percent\":%.10g,", o->part * 100);
    if (o->since_ms >= 0)
        time_member("since", o->since_ms);
    else
        fputs("\"since\":null,", stdout);
    printf("\"memory\":{\"bound_bytes\":%zu,\"table_bytes\":%zu,\"peak_rss_bytes\":%" PRIu64 "},",
           o->memory_bytes, audit_bytes(v->audit), peak_bytes());
    print_partitions(v);
    printf("\"collections\":[%s],", buf_text(&v->collections));
    if (v->args->dead_letters)
        printf("\"dead_letter_list\":[%s],", buf_text(&v->letters));
    for (size_t i = 0; i < n; i++)
        printf("\"%s\":%" PRIu64 ",", rows[i].name, rows[i].value);
    printf("\"faults\":[%s],\"faults_not_listed\":%zu,", buf_text(&v->faults),
           v->n_faults > o->listed ? v->n_faults - o->listed : 0);
    printf("\"balanced\":%s}\n", balanced ? "true" : "false");
}

static void print_text(const struct verify *v, const struct row *rows, size_t n, bool balanced)
{
    const struct verify_options *o = &v->options;
    char at[32];

    if (v->n_faults > o->listed)
        printf("%zu more; --list N lists more\n", v->n_faults - o->listed);
    for (size_t i = 0; i < n; i++)
        printf("%-15s %12" PRIu64 "  %s\n", rows[i].name, rows[i].value, rows[i].help);
    if (o->part < 1)
        printf("a sample: %.10g %% of the dedup keys\n", o->part * 100);
    if (o->since_ms >= 0) {
        clock_format(o->since_ms, at);
        printf("records since %s: which documents nobody asked for can't be told, and a different "
               "one may be of a record before that\n",
               at);
    }
    puts(balanced ? "the books balance" : "THE BOOKS DO NOT BALANCE");
}

bool verify_report(struct verify *v)
{
    struct audit_books b = audit_finish(v->audit, SIZE_MAX, missing_one, v);
    bool since = v->options.since_ms >= 0;
    uint64_t extra = b.extra + v->keyless;
    bool balanced = b.missing == 0 && b.different == 0 && b.doubled == 0 && v->dead_missing == 0 &&
                    v->counters_wrong == 0 && v->unnumbered == 0 &&
                    (extra == 0 || since || v->args->allow_extra);
    const struct row rows[] = {
        {"read", "records read", v->read},
        {"records", "records that ask for a document", b.records},
        {"distinct", "dedup keys among them", b.distinct},
        {"stored", "documents there and right", b.right - v->in_ledgers},
        {"missing", "dedup keys without document or dead letter", b.missing},
        {"different", "documents unlike the first record of their dedup key", b.different},
        {"doubled", "documents whose dedup key has another one", b.doubled},
        {"extra", "documents that no record asks for", since ? 0 : extra},
        {"outside", "documents of no record since then", since ? extra : 0},
        {"refused", "dedup keys that are dead letters instead", b.dead},
        {"bad", "records that can't be stored", v->bad},
        {"dead_letters", "dead letters of these records", v->dead_letters},
        {"dead_missing", "bad records without a dead letter", v->dead_missing},
        {"skipped", "tombstones skipped by rule", v->skipped},
        {"documents", "documents read", v->scanned},
        {"in_ledgers", "events in ledgers", v->in_ledgers},
        {"unnumbered", "documents without their number or its text", v->unnumbered},
        {"effects_failed", "documents and events in ledgers whose effects were given up",
         v->failed},
        {"counters", "counters and groups of sequences compared", v->counters},
        {"counters_wrong", "counters, sequences and ledgers that are not what they count",
         v->counters_wrong},
        {"counters_unable", "those that can't be compared (idemsink reconcile says why)",
         v->counters_unable},
    };
    const size_t n = sizeof rows / sizeof rows[0];

    if (v->args->json)
        print_json(v, rows, n, balanced);
    else
        print_text(v, rows, n, balanced);
    return balanced;
}
