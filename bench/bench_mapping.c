/*
 * bench_mapping - microseconds per record from JSON text to a write, against parsing alone.
 *
 *   bench_mapping FILE SOURCE[,SOURCE...] [PATH=TYPE...]
 *   bench_mapping flights.ndjson date,origin,destination
 *   bench_mapping earthquakes.ndjson id properties.time=date properties.updated=date
 *
 * The last number is with dedup.conflict: the hash of the payload beside it.
 *
 * Rounds of all are interleaved and the fastest of each counts: absolute times mean little, the
 * ratio does.
 */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/mapping.h"

enum { ROUNDS = 9, MAX_LIST = 16 };

struct lines {
    struct record **records;
    size_t n;
};

static struct lines read_lines(const char *name)
{
    struct lines l = {0};
    char *line = NULL;
    size_t cap = 0;
    ssize_t len;
    FILE *f = fopen(name, "r");

    if (f == NULL) {
        perror(name);
        exit(66);
    }
    while ((len = getline(&line, &cap, f)) > 0) {
        struct record_source s = {
            .topic = "t", .value = slice_of(line, (size_t)len), .timestamp_ms = -1};

        l.records = mem_grow(l.records, l.n + 1, sizeof(struct record *));
        l.records[l.n++] = record_new(&s);
    }
    free(line);
    fclose(f);
    return l;
}

static double parse_alone(const struct lines *l)
{
    int64_t start = clock_mono_us();

    for (size_t i = 0; i < l->n; i++) {
        struct slice v = l->records[i]->value;

        json_decref(json_loadb(v.ptr, v.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, NULL));
    }
    return (double)(clock_mono_us() - start) / (double)l->n;
}

static double map_all(const struct mapping *m, const struct lines *l)
{
    int64_t start = clock_mono_us();

    for (size_t i = 0; i < l->n; i++) {
        struct write_op op;

        if (mapping_build(m, l->records[i], &op) == MAPPING_WRITE)
            write_op_clear(&op);
    }
    return (double)(clock_mono_us() - start) / (double)l->n;
}

int main(int argc, char **argv)
{
    char *sources[MAX_LIST], *order = mem_text("@key"), *database = mem_text("d"),
                             *off = mem_text(""), *hash = mem_text("_payload_hash");
    struct config_pair types[MAX_LIST];
    struct config_route route = {.order_by = order,
                                 .database = database,
                                 .collection = database,
                                 .under = off,
                                 .source_fields = off,
                                 .types.items = types,
                                 .dedup.key.items = sources,
                                 .dedup.fields.items = sources};
    struct mapping_env env = {.instance_id = "bench"};
    struct err e;

    if (argc < 3) {
        fprintf(stderr, "usage: %s FILE SOURCE[,SOURCE...] [PATH=TYPE...]\n", argv[0]);
        return 64;
    }
    for (char *rest = argv[2], *one;
         route.dedup.key.n < MAX_LIST && (one = strsep(&rest, ",")) != NULL;)
        sources[route.dedup.key.n++] = one;
    route.dedup.fields.n = route.dedup.key.n;
    for (int i = 3; i < argc && route.types.n < MAX_LIST; i++) {
        char *name = strsep(&argv[i], "=");

        types[route.types.n++] = (struct config_pair){.name = name, .value = argv[i]};
    }

    struct lines l = read_lines(argv[1]);
    struct mapping *m = mapping_new(&route, &env, &e);
    struct config_route checked_route = route;
    double parse = 1e9, map = 1e9, checked = 1e9;

    checked_route.dedup.conflict = CONFLICT_COUNT;
    checked_route.dedup.conflict_field = hash;
    struct mapping *c = mapping_new(&checked_route, &env, &e);
    if (m == NULL || c == NULL) {
        fprintf(stderr, "%s\n", e.text);
        return 78;
    }
    for (int i = 0; i < ROUNDS; i++) {
        double p = parse_alone(&l), a = map_all(m, &l), b = map_all(c, &l);

        parse = p < parse ? p : parse;
        map = a < map ? a : map;
        checked = b < checked ? b : checked;
    }
    printf("%zu records: json_loadb %.2f us, mapping %.2f us, ratio %.2f; with the payload's hash "
           "%.2f us\n",
           l.n, parse, map, map / parse, checked);
    mapping_free(m);
    mapping_free(c);
    for (size_t i = 0; i < l.n; i++)
        record_free(l.records[i]);
    mem_free(l.records);
    mem_free(order);
    mem_free(database);
    mem_free(off);
    mem_free(hash);
    return 0;
}
