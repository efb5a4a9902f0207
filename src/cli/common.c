#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/secret.h"
#include "cli/cli.h"
#include "core/config_secret.h"
#include "io/kafka.h"
#include "io/mongo.h"
#include "io/redis.h"

enum exit_code exit_of(const struct err *e)
{
    switch (e->kind) {
    case ERR_CONFIG:
    case ERR_INPUT:
        return EXIT_CONFIGURATION;
    case ERR_AUTH:
        return EXIT_CREDENTIALS;
    case ERR_TRANSIENT:
        return EXIT_UNREACHABLE;
    case ERR_NONE:
    case ERR_BUG:
        break;
    }
    return EXIT_BROKEN;
}

enum exit_code cli_fail(const struct err *e)
{
    struct buf text = {0}; /* it may quote what anybody wrote */

    buf_add_shown(&text, e->text, strlen(e->text));
    fprintf(stderr, "idemsink: %s\n", buf_text(&text));
    buf_clear(&text);
    return exit_of(e);
}

static bool read_file(const char *name, struct buf *out, struct err *e)
{
    FILE *f = fopen(name, "re");
    char part[8192];
    size_t n;
    bool ok;

    if (f == NULL)
        return err_set(e, ERR_CONFIG, errno, "%s: %s", name, strerror(errno));
    while ((n = fread(part, 1, sizeof part, f)) > 0)
        buf_add(out, part, n);
    ok = !ferror(f);
    (void)fclose(f);
    return ok ? true : err_set(e, ERR_CONFIG, errno, "%s: can't be read", name);
}

/* A variable that is called a secret is one, wherever it was put by mistake. */
static const char *environment(const char *name)
{
    static const char *const words[] = {"PASS", "SECRET", "TOKEN", "CREDENTIAL", "PWD"};
    const char *value = getenv(name);

    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcasestr(name, words[i]) != NULL)
            secret_add(value);
    return value;
}

struct config *cli_config(const struct args *args)
{
    struct buf text = {0};
    struct config *c = NULL;
    struct err e;

    if (read_file(args->config_file, &text, &e)) {
        struct config_input in = {.name = args->config_file,
                                  .text = slice_of(buf_text(&text), text.len),
                                  .overrides = args->sets,
                                  .n_overrides = args->n_sets,
                                  .env = environment,
                                  .drivers = {.property = kafka_property_fine,
                                              .mongo_uri = mongo_uri_fine,
                                              .redis_uri = redis_uri_fine}};
        c = config_parse(&in, &e);
    }
    if (c == NULL)
        (void)cli_fail(&e);
    else
        config_secrets(c, secret_add);
    buf_clear(&text);
    return c;
}

char *cli_instance_id(const struct config *c)
{
    static const char *const names[] = {"INSTANCE_ID", "POD_NAME", "HOSTNAME"};

    if (c->redis.instance_id[0])
        return mem_text(c->redis.instance_id);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const char *value = getenv(names[i]);
        if (value && value[0])
            return mem_text(value);
    }
    return mem_printf("instance-%lld-%08x", (long long)clock_wall_ms(), (unsigned)random_bits());
}

struct mapping **cli_mappings(const struct config *c, const char *instance_id, struct err *e)
{
    struct mapping **mappings = mem_array(c->n_routes, sizeof(struct mapping *));
    struct mapping_env env = {.instance_id = instance_id};

    for (size_t i = 0; i < c->n_routes; i++) {
        mappings[i] = mapping_new(&c->routes[i], &env, e);
        if (mappings[i] == NULL) {
            (void)cli_wrap_route(e, &c->routes[i]);
            cli_mappings_free(mappings, i);
            return NULL;
        }
    }
    return mappings;
}

void cli_mappings_free(struct mapping **mappings, size_t n)
{
    if (mappings == NULL)
        return;
    for (size_t i = 0; i < n; i++)
        mapping_free(mappings[i]);
    mem_free(mappings);
}

bool cli_wrap_route(struct err *e, const struct config_route *route)
{
    size_t n = strlen(route->name);

    if (strncmp(e->text, route->name, n) == 0 && strncmp(e->text + n, ": ", 2) == 0)
        return false;
    return err_wrap(e, route->name);
}
