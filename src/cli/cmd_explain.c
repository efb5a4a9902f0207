/*
 * `idemsink explain`: what would become of one payload, without touching anything.
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"

static void read_stdin(struct buf *out)
{
    char part[8192];
    size_t n;

    while ((n = fread(part, 1, sizeof part, stdin)) > 0)
        buf_add(out, part, n);
}

static struct record *record_from(const struct args *args, const struct buf *payload)
{
    struct record_header headers[ARGS_MAX];
    struct record_source from = {.topic = args->topic,
                                 .timestamp_ms = -1,
                                 .key = slice_text(args->key),
                                 .value = slice_of(buf_text(payload), payload->len),
                                 .headers = headers};

    for (size_t i = 0; i < args->n_headers; i++) {
        const char *equals = strchr(args->headers[i], '=');
        const char *end = equals ? equals : args->headers[i] + strlen(args->headers[i]);

        headers[i].name = slice_of(args->headers[i], (size_t)(end - args->headers[i]));
        headers[i].value = slice_text(equals ? equals + 1 : NULL);
    }
    from.n_headers = args->n_headers;
    return record_new(&from);
}

static void print_bson(const char *what, const bson_t *b)
{
    char *text = bson_as_relaxed_extended_json(b, NULL);

    printf("%-13s %s\n", what, text ? text : "(can't be shown)");
    bson_free(text);
}

static void print_lane(const struct record *r)
{
    static const char *const spaces[] = {"the Kafka key", "the dedup key", "a value of the record",
                                         "the whole partition",
                                         "none: the record is a lane of its own"};

    if (r->order_space == ORDER_KEY)
        printf("%-13s %s: \"%.*s\"\n", "lane", spaces[r->order_space], (int)r->order_key.len,
               (const char *)r->order_key.ptr);
    else
        printf("%-13s %s\n", "lane", spaces[r->order_space]);
}

static void print_invalidations(const struct mapping *mapping, struct record *r)
{
    struct invalidation_list list = {0};
    size_t skipped = 0;

    mapping_invalidations(mapping, r, true, &list, &skipped);
    for (size_t i = 0; i < list.n; i++) {
        char *body = invalidation_stamped(list.items[i].body, clock_wall_ms());

        if (list.items[i].kind == INVALIDATION_UNLINK)
            printf("%-13s UNLINK %s\n", "invalidation", list.items[i].name);
        else
            printf("%-13s PUBLISH %s %s\n", "invalidation", list.items[i].name,
                   body ? body : list.items[i].body);
        mem_free(body);
    }
    if (skipped > 0)
        printf("%-13s %zu left out: a template's value is missing or not allowed there\n",
               "invalidation", skipped);
    invalidation_list_clear(&list);
}

static enum exit_code explain(const struct config_route *route, const struct mapping *mapping,
                              struct record *r)
{
    struct write_op op = {0};
    enum exit_code code = EXIT_FINE;

    printf("%-13s %s -> %s.%s\n", "route", route->name, route->database, route->collection);
    mapping_order(mapping, r);
    print_lane(r);
    switch (mapping_build(mapping, r, &op)) {
    case MAPPING_WRITE:
        print_bson("dedup key", op.filter);
        printf("%-13s %s\n", "write",
               op.kind == WRITE_KIND_UPSERT
                   ? "updateOne(dedup key, {$setOnInsert: document}, upsert)"
                   : "insert (a top-level name of the document is no path)");
        print_bson("document", op.document);
        print_invalidations(mapping, r);
        break;
    case MAPPING_SKIP:
        printf("%-13s skipped by a rule of the configuration (tombstone)\n", "outcome");
        break;
    case MAPPING_REJECTED:
        printf("%-13s dead letter\n%-13s %s\n%-13s %s\n%-13s %s\n", "outcome", "reason",
               reason_name(r->rejected.reason), "error", r->rejected.text, "meaning",
               reason_help(r->rejected.reason));
        code = EXIT_FOUND;
        break;
    }
    write_op_clear(&op);
    return code;
}

enum exit_code cmd_explain(const struct args *args)
{
    struct config *c = cli_config(args);
    struct mapping **mappings = NULL;
    struct buf payload = {0};
    char *instance_id = NULL;
    enum exit_code code = EXIT_CONFIGURATION;
    struct err e;
    int route;

    if (c == NULL)
        return code;
    if (args->topic == NULL || (route = config_route_of(c, args->topic)) < 0) {
        fprintf(stderr, "idemsink: %s: %s\n", args->config_file,
                args->topic ? "no route has this topic" : "which topic? --topic T is missing");
        code = args->topic ? EXIT_CONFIGURATION : EXIT_BAD_USAGE;
        goto out;
    }
    instance_id = cli_instance_id(c);
    mappings = cli_mappings(c, instance_id, &e);
    if (mappings == NULL) {
        code = cli_fail(&e);
        goto out;
    }
    read_stdin(&payload);
    struct record *r = record_from(args, &payload);
    code = explain(&c->routes[route], mappings[route], r);
    record_free(r);
out:
    cli_mappings_free(mappings, c->n_routes);
    mem_free(instance_id);
    buf_clear(&payload);
    config_free(c);
    return code;
}
