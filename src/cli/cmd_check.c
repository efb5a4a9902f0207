/*
 * `idemsink check`: the configuration as it is understood, by the drivers too; with --connect each
 * requirement is a line with ok, wrong, warning, can't tell or none and what to do. All are asked;
 * the exit code is that of the first that is wrong.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "cli/check.h"
#include "io/kafka.h"
#include "io/mongo.h"
#include "io/redis.h"

/* --- lines --- */

static const char *const verdicts[] = {"ok", "wrong", "can't tell", "warning", "none"};

static void json_text(const char *name, const char *text, const char *behind)
{
    struct buf b = {0};

    buf_add_json(&b, text, strlen(text));
    printf("\"%s\":\"%s\"%s", name, buf_text(&b), behind);
    buf_clear(&b);
}

/* An error names the collection; so does the line. */
static const char *without(const char *text, const char *what)
{
    const char *last = strrchr(what, ' ');
    const char *name = last ? last + 1 : what;
    size_t n = strlen(name);

    return strncmp(text, name, n) == 0 && strncmp(text + n, ": ", 2) == 0 ? text + n + 2 : text;
}

void check_line(struct checks *c, const char *what, enum check_verdict verdict, const char *text)
{
    text = without(text, what);
    if (!c->json) {
        printf("%-*s %-10s %s\n", c->width, what, verdicts[verdict], text);
        c->n++;
        return;
    }
    fputs(c->n++ > 0 ? ",\n{" : "{\"checks\":[\n{", stdout);
    json_text("what", what, ",");
    json_text("verdict", verdicts[verdict], ",");
    json_text("text", text, "}");
}

void check_printf(struct checks *c, const char *what, enum check_verdict verdict, const char *fmt,
                  ...)
{
    char text[1024];
    va_list args;

    va_start(args, fmt);
    (void)vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    check_line(c, what, verdict, text);
}

static bool answer_line(struct checks *c, const char *what, bool ok, const struct err *e,
                        const char *fine)
{
    check_line(c, what,
               ok                         ? CHECK_OK
               : e->kind == ERR_TRANSIENT ? CHECK_UNKNOWN
                                          : CHECK_WRONG,
               ok ? fine : e->text);
    return ok;
}

bool check_answer(struct checks *c, const char *what, bool ok, const struct err *e,
                  const char *fine)
{
    if (!ok && c->code == EXIT_FINE)
        c->code = e->kind == ERR_AUTH || e->kind == ERR_TRANSIENT ? exit_of(e) : EXIT_FOUND;
    return answer_line(c, what, ok, e, fine);
}

bool check_service(struct checks *c, const char *what, bool ok, const struct err *e,
                   const char *fine, const char *keys)
{
    struct err more = {0};

    if (ok || e->kind != ERR_TRANSIENT || strstr(e->text, "answers") != NULL) /* it says more */
        return check_answer(c, what, ok, e, fine);
    (void)err_set(&more, e->kind, e->code, "%s; does it run, and is %s right?", e->text, keys);
    return check_answer(c, what, false, &more, fine);
}

void check_count(struct buf *out, size_t n, const char *what)
{
    buf_printf(out, "%zu %s%s", n, what, n == 1 ? "" : "s");
}

/* --- what the drivers think of it --- */

/* A property that librdkafka doesn't know, a URI that libmongoc can't read: nobody is asked. */
static bool drivers_agree(const struct config *c, struct err *e)
{
    struct bus bus = {0};
    struct mongo *mongo;

    if (!kafka_check_properties(c, e))
        return false;
    mongo = mongo_new(c, e);
    mongo_free(mongo);
    if (mongo == NULL)
        return false;
    if (c->redis.uri[0] && !redis_bus_new(c, &bus, e))
        return false;
    redis_bus_free(&bus);
    return true;
}

static enum exit_code understood(const struct args *args, const struct config *c)
{
    struct buf text = {0};

    config_print(c, &text);
    if (args->json)
        puts("{\"checks\":[],\"ok\":true}");
    else
        fputs(buf_text(&text), stdout);
    buf_clear(&text);
    return EXIT_FINE;
}

static void widen(int *width, const char *before, const char *name, const char *more)
{
    enum { WIDEST = 72 };
    size_t n = strlen(before) + strlen(name) + strlen(more) + (*more ? 1 : 0);

    if (n > (size_t)*width)
        *width = n < WIDEST ? (int)n : WIDEST;
}

/* The longest of src/cli/check_route.c. */
static void widen_for_effects(int *width, const struct config_route *r)
{
    if (config_has_effects(r))
        widen(width, "order in ", r->name, "");
    if (config_has_sequence(r)) {
        widen(width, "sequence text index of ", r->database, r->collection);
        widen(width, "collection of sequence counters ", r->sequence.database,
              r->sequence.collection);
    }
    if (config_has_operation(r)) {
        widen(width, "index of open effects of ", r->database, r->collection);
        widen(width, "expiry of the ledger of ", r->operation.ledger_database, r->operation.ledger);
    }
    if (config_has_lock(r))
        widen(width, "redis EVALSHA ", r->lock.prefix, r->lock.key);
    for (size_t i = 0; i < r->n_counters; i++) {
        widen(width, "redis HSET ", r->counters[i].mirror, "");
        widen(width, "collection of counters ", r->counters[i].database, r->counters[i].collection);
        widen(width, "index of open effects of ", r->database, r->collection);
        if (r->counters[i].inc.n == 1)
            widen(width, r->counters[i].inc.items[0].name, "counter  in .",
                  r->counters[i].collection);
    }
    if (r->lock.fence && r->lock.fence[0])
        widen(width, "collection of fence ", r->lock.fence_database, r->lock.fence);
}

/* Lines are printed as answers come, so the longest name has to be known before. */
static int width_of_names(const struct config *c)
{
    int width = 34;

    widen(&width, "dead letters ", c->dead_letter.topic, "");
    widen(&width, "group ", c->kafka.group, "");
    for (size_t r = 0; r < c->n_routes; r++) {
        const struct config_route *route = &c->routes[r];

        widen(&width, "dedup index of ", route->database, route->collection);
        widen_for_effects(&width, route);
        for (size_t t = 0; t < route->topics.n; t++)
            widen(&width, "topic ", route->topics.items[t], "");
        for (size_t i = 0; i < route->n_invalidate; i++) {
            const struct config_invalidate *v = &route->invalidate[i];

            widen(&width, "redis PUBLISH ", v->channel ? v->channel : "", "");
            widen(&width, "redis XADD ", v->stream ? v->stream : "", "");
            for (size_t k = 0; k < v->keys.n; k++)
                widen(&width, "redis PEXPIRE ", v->keys.items[k], "");
        }
    }
    return width;
}

static enum exit_code connected(const struct args *args, const struct config *c)
{
    struct checks checks = {.config = c, .json = args->json, .width = width_of_names(c)};

    check_line(&checks, "configuration", CHECK_OK, args->config_file);
    check_kafka(&checks);
    check_mongo(&checks);
    check_redis(&checks);
    if (args->json)
        printf("],\"ok\":%s}\n", checks.code == EXIT_FINE ? "true" : "false");
    return checks.code;
}

enum exit_code cmd_check(const struct args *args)
{
    struct config *c = cli_config(args);
    struct mapping **mappings;
    enum exit_code code;
    struct err e;

    if (c == NULL)
        return EXIT_CONFIGURATION;
    mappings = cli_mappings(c, "check", &e);
    if (mappings == NULL || !drivers_agree(c, &e))
        code = cli_fail(&e);
    else
        code = args->connect ? connected(args, c) : understood(args, c);
    cli_mappings_free(mappings, c->n_routes);
    config_free(c);
    return code;
}
