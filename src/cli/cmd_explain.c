/*
 * `idemsink explain`: what would become of one payload, without touching anything.
 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "cli/explain.h"

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
    code = explain_record(&c->routes[route], mappings[route], r);
    record_free(r);
out:
    cli_mappings_free(mappings, c->n_routes);
    mem_free(instance_id);
    buf_clear(&payload);
    config_free(c);
    return code;
}
