/*
 * `idemsink reconcile`: counters and sequences against what they count; with --apply they are
 * repaired.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/reconcile.h"
#include "cli/verify.h"
#include "core/progress.h"
#include "io/redis.h"

enum {
    MIRROR_TRIES = 5,
    MIRROR_AGAIN_MS = 500,
    RATE = 1000,
    RATE_MOST = 100000,
    TERMINAL_MS = 250,
    LINES_MS = 10000
};

struct command {
    const struct args *args;
    struct reconcile_options options;
    size_t listed, n_found;
    bool terminal;
    struct progress progress;
    struct buf found, unable; /* as JSON */
    int64_t started_ms;
    struct bus bus; /* for mirrors of what is repaired; none where nothing is mirrored */
};

/* ---- options ---- */

static bool wrong(const char *option, const char *text, const char *what)
{
    fprintf(stderr, "idemsink: %s %s: %s\n", option, text, what);
    return false;
}

static bool parse_rate(const char *text, int64_t *out)
{
    char *end;

    *out = RATE;
    if (text == NULL)
        return true;
    *out = strtoll(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || (*end != '\0' && strcmp(end, "/s") != 0) || *out < 1 ||
        *out > RATE_MOST)
        return wrong("--rate", text, "counters per second, like 100/s (1 to 100000)");
    return true;
}

static const struct config_route *find_route(const struct config *c, const char *name)
{
    for (size_t i = 0; i < c->n_routes; i++)
        if (strcmp(c->routes[i].name, name) == 0)
            return &c->routes[i];
    return NULL;
}

static bool parse_choice(struct command *cmd, const struct config *c)
{
    const struct args *a = cmd->args;
    const struct config_route *route = a->route ? find_route(c, a->route) : NULL;
    char *end;

    cmd->options.route = a->route;
    cmd->options.counter = -1;
    if (a->route && !route)
        return wrong("--route", a->route, "no route has this name");
    if (a->counter == NULL)
        return true;
    if (!route)
        return wrong("--counter", a->counter, "of which route? --route is missing");
    cmd->options.counter = strtoll(a->counter, &end, 10);
    if (a->counter[0] < '0' || a->counter[0] > '9' || *end != '\0' ||
        (uint64_t)cmd->options.counter >= route->n_counters)
        return wrong("--counter", a->counter, "the route has no such counter; the first is 0");
    cmd->options.sequences = false;
    return true;
}

static bool parse(struct command *cmd)
{
    struct verify_options shared;

    cmd->options = (struct reconcile_options){.apply = cmd->args->apply,
                                              .secondary = cmd->args->secondary,
                                              .counters = true,
                                              .sequences = true,
                                              .lease = cmd->args->apply};
    if (!verify_options_parse(cmd->args, cmd->started_ms, &shared) ||
        !parse_rate(cmd->args->rate, &cmd->options.per_second))
        return false;
    cmd->listed = shared.listed;
    cmd->options.memory_bytes = shared.memory_bytes / 2; /* the rest is for batches and libraries */
    return true;
}

/* ---- what is told ---- */

static void clear_line(const struct command *cmd)
{
    if (cmd->terminal)
        fputs("\r\033[K", stderr);
}

static void found_json(struct command *cmd, const struct reconcile_finding *f, const char *key)
{
    struct buf *out = &cmd->found;

    buf_printf(out, "%s{\"what\":\"%s\",\"collection\":\"", out->len > 0 ? "," : "", f->what);
    buf_add_json(out, f->database, strlen(f->database));
    buf_add_char(out, '.');
    buf_add_json(out, f->collection, strlen(f->collection));
    buf_printf(out, "\",\"key\":%s,\"field\":\"", key);
    buf_add_json(out, f->field, strlen(f->field));
    /* As text: many readers of JSON would make a double of a large number. */
    buf_printf(out, "\",\"counted\":\"%s\",\"stored\":\"%s\",\"done\":\"%s\"}", f->counted,
               f->stored, f->done);
}

static void found(void *ctx, const struct reconcile_finding *f)
{
    struct command *cmd = ctx;
    char *text = bson_as_relaxed_extended_json(f->key, NULL);
    struct buf key = {0};

    if (cmd->n_found++ < cmd->listed) {
        buf_add_json_shown(&key, text ? text : "{}", text ? strlen(text) : 2);
        if (cmd->args->json) {
            found_json(cmd, f, buf_text(&key));
        } else {
            clear_line(cmd);
            if (cmd->n_found == 1)
                printf("%-12s %20s %20s  %s\n", "", "counted", "stored", "");
            printf("%-12s %20s %20s  %s of %s.%s %s%s%s\n", f->what, f->counted,
                   *f->stored ? f->stored : "-", f->field, f->database, f->collection,
                   buf_text(&key), *f->done ? ": " : "", f->done);
        }
    }
    buf_clear(&key);
    bson_free(text);
}

static void unable(void *ctx, const char *what, const char *why)
{
    struct command *cmd = ctx;
    struct buf *out = &cmd->unable;

    if (!cmd->args->json) {
        clear_line(cmd);
        printf("%-12s %s: %s\n", "unable", what, why);
        return;
    }
    buf_printf(out, "%s{\"what\":\"", out->len > 0 ? "," : "");
    buf_add_json(out, what, strlen(what));
    buf_add_text(out, "\",\"why\":\"");
    buf_add_json(out, why, strlen(why));
    buf_add_text(out, "\"}");
}

static void note(void *ctx, const char *text)
{
    clear_line(ctx);
    fprintf(stderr, "idemsink: %s\n", text);
}

static void progress(void *ctx, const char *what, uint64_t done, uint64_t total)
{
    struct command *cmd = ctx;
    int64_t now_ms = clock_mono_ms();
    struct buf text = {0};

    if (cmd->progress.what != what)
        cmd->progress = progress_begin(what, now_ms, cmd->terminal ? 0 : LINES_MS,
                                       cmd->terminal ? TERMINAL_MS : LINES_MS);
    if (!progress_due(&cmd->progress, now_ms))
        return;
    progress_text(&cmd->progress, now_ms, done, total, &text);
    fprintf(stderr, cmd->terminal ? "\r\033[K%s" : "idemsink: %s\n", buf_text(&text));
    buf_clear(&text);
}

static bool send_once(struct command *cmd, struct invalidation_list *l, struct err *e)
{
    bool *sent = mem_array(l->n, sizeof *sent);
    uint64_t receivers = 0;
    bool ok = cmd->bus.ops->send(cmd->bus.self, l->items, l->n, sent, &receivers, e);

    mem_free(sent);
    return ok;
}

/* Sent twice does no harm: versions are compared. */
static bool mirror(void *ctx, struct invalidation_list *l, struct err *e)
{
    struct command *cmd = ctx;
    struct err why;
    bool ok = false;

    for (int i = 0; !ok && i < MIRROR_TRIES; i++) {
        if (i > 0)
            (void)usleep(MIRROR_AGAIN_MS * 1000);
        ok = send_once(cmd, l, &why);
    }
    invalidation_list_clear(l);
    return ok || err_set(e, why.kind, why.code,
                         "a counter was repaired, and its mirror keeps the old value until the "
                         "counter moves again or its key is removed from Redis: %s",
                         why.text);
}

static bool stopping(void *ctx, int64_t wait_ms)
{
    (void)ctx;
    if (wait_ms > 0)
        (void)usleep((useconds_t)wait_ms * 1000);
    return false;
}

/* ---- the end ---- */

static bool report(struct command *cmd, const struct reconcile_books *b)
{
    bool balanced = b->differences == b->repaired && b->unable == 0;
    const struct {
        const char *name, *help;
        uint64_t value;
    } rows[] = {
        {"counters", "counter documents compared", b->counters},
        {"groups", "groups of sequences looked at", b->groups},
        {"differences", "fields that are not what is counted", b->differences},
        {"repaired", "of them", b->repaired},
        {"unable", "counters, sequences and ledgers that can't be looked at", b->unable},
        {"foreign", "keys of documents that no event can have made; not counted", b->foreign},
    };
    const size_t n = sizeof rows / sizeof rows[0];

    if (!cmd->args->json) {
        clear_line(cmd);
        if (cmd->n_found > cmd->listed)
            printf("%zu more; --list N lists more\n", cmd->n_found - cmd->listed);
        for (size_t i = 0; i < n; i++)
            printf("%-12s %12" PRIu64 "  %s\n", rows[i].name, rows[i].value, rows[i].help);
        puts(!balanced             ? "THE COUNTERS ARE NOT WHAT IS COUNTED"
             : b->differences == 0 ? "the counters are what is counted"
                                   : "the counters were not what is counted, and are now");
        return balanced;
    }
    printf("{\"version\":\"%s\",\"seconds\":%.1f,\"table_bytes\":%zu,", IDEMSINK_VERSION,
           (double)(clock_wall_ms() - cmd->started_ms) / 1000.0, b->table_bytes);
    for (size_t i = 0; i < n; i++)
        printf("\"%s\":%" PRIu64 ",", rows[i].name, rows[i].value);
    printf("\"found\":[%s],\"not_listed\":%zu,\"unable_list\":[%s],\"balanced\":%s}\n",
           buf_text(&cmd->found), cmd->n_found > cmd->listed ? cmd->n_found - cmd->listed : 0,
           buf_text(&cmd->unable), balanced ? "true" : "false");
    return balanced;
}

/* Nothing is repaired whose mirrors can't be. */
static bool open_bus(struct command *cmd, const struct config *config, struct err *e)
{
    return !cmd->options.apply || !config_has_mirrors(config) ||
           (redis_bus_new(config, &cmd->bus, e) && redis_ping(config, e));
}

static enum exit_code run(struct command *cmd, const struct config *config, struct err *e)
{
    const struct reconcile_calls calls = {.found = found,
                                          .unable = unable,
                                          .note = note,
                                          .progress = progress,
                                          .mirror = mirror,
                                          .stopping = stopping,
                                          .ctx = cmd};
    struct mongo *m = mongo_new(config, e);
    struct reconcile_books books;
    bool ok = m && mongo_ping(m, e) && open_bus(cmd, config, e) &&
              reconcile_all(m, config, &cmd->options, &calls, &books, e);

    mongo_free(m);
    redis_bus_free(&cmd->bus);
    clear_line(cmd);
    if (ok && books.busy)
        ok = err_set(e, ERR_TRANSIENT, 0,
                     "another process reconciles just now: its lease is in %s.%s, and runs out a "
                     "minute behind its end",
                     config->routes[0].database, MONGO_LEASES);
    if (!ok)
        return cli_fail(e);
    return report(cmd, &books) ? EXIT_FINE : EXIT_FOUND;
}

enum exit_code cmd_reconcile(const struct args *args)
{
    struct command cmd = {.args = args, .started_ms = clock_wall_ms()};
    enum exit_code code = EXIT_BAD_USAGE;
    struct config *config;
    struct err e;

    if (!parse(&cmd))
        return EXIT_BAD_USAGE;
    config = cli_config(args);
    if (config == NULL)
        return EXIT_CONFIGURATION;
    if (parse_choice(&cmd, config)) {
        char *owner = cli_instance_id(config);

        cmd.options.owner = owner;
        cmd.terminal = isatty(STDERR_FILENO) == 1;
        code = run(&cmd, config, &e);
        mem_free(owner);
    }
    buf_clear(&cmd.found);
    buf_clear(&cmd.unable);
    config_free(config);
    return code;
}
