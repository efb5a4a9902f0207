/* What check --connect asks MongoDB and Redis. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "cli/check.h"
#include "io/mongo.h"
#include "io/redis.h"

enum { CLOCK_MS = 2000 };

/* --- MongoDB --- */

static void server(struct checks *c, const struct mongo_facts *f)
{
    check_printf(c, "mongodb version", f->wire < 9 ? CHECK_WARNING : CHECK_OK,
                 f->wire < 9 ? "%s; tested with 6.0, and nothing before 4.4 was ever tried" : "%s",
                 f->version);
    if (f->mongos)
        check_line(c, "mongodb topology", CHECK_OK, "sharded cluster");
    else if (f->set[0])
        check_printf(c, "mongodb topology", CHECK_OK, "replica set %s, %d member%s, primary %s",
                     f->set, f->members, f->members == 1 ? "" : "s", f->primary);
    else
        check_line(c, "mongodb topology", CHECK_WARNING,
                   "standalone: what its one disk loses is lost, and effects that need "
                   "transactions are not possible; a replica set of one is enough for those");
}

static void clocks(struct checks *c, const struct mongo_facts *f)
{
    int64_t apart = f->clock_ahead_ms < 0 ? -f->clock_ahead_ms : f->clock_ahead_ms;

    if (!f->has_clock)
        check_line(c, "clock", CHECK_UNKNOWN, "MongoDB does not tell its time");
    else if (apart - f->clock_unsure_ms > CLOCK_MS)
        check_printf(c, "clock", CHECK_WARNING,
                     "MongoDB's clock is %.1f s %s ours: times in documents, dead letters and "
                     "invalidations don't compare; set the clocks (NTP)",
                     (double)apart / 1000.0, f->clock_ahead_ms > 0 ? "ahead of" : "behind");
    else
        check_printf(c, "clock", CHECK_OK, "within %" PRId64 " ms of MongoDB's",
                     apart + f->clock_unsure_ms);
}

static void concern(struct checks *c, const struct mongo_facts *f)
{
    const char *w = c->config->mongo.write_concern;
    bool number = w[0] != '\0' && strspn(w, "0123456789") == strlen(w);
    struct err e;

    if (strcmp(w, "majority") == 0 && c->config->mongo.journal) {
        check_line(c, "write concern", CHECK_OK, "majority, journaled");
    } else if (number && f && f->set[0] && strtol(w, NULL, 10) > f->members) {
        err_set(&e, ERR_CONFIG, 0,
                "mongo.write_concern is %s, and the replica set has %d members with data: no "
                "write would ever be acknowledged",
                w, f->members);
        (void)check_answer(c, "write concern", false, &e, "");
    } else if (strcmp(w, "majority") != 0 && !number) {
        check_printf(c, "write concern", CHECK_UNKNOWN,
                     "the tag %s; whether the replica set knows it is seen at the first write", w);
    } else {
        check_printf(c, "write concern", CHECK_WARNING,
                     "%s%s: an acknowledged event can be lost in a fail-over", w,
                     c->config->mongo.journal ? "" : ", not journaled");
    }
}

void check_mongo(struct checks *c)
{
    struct err e;
    struct mongo *mongo = mongo_new(c->config, &e);
    struct mongo_facts facts;
    bool there = mongo != NULL && mongo_ping(mongo, &e);

    if (check_service(c, "mongodb", there, &e, "a writable primary", "mongo.uri")) {
        if (mongo_look(mongo, &facts, &e)) {
            server(c, &facts);
            clocks(c, &facts);
            concern(c, &facts);
        } else {
            (void)check_answer(c, "mongodb version", false, &e, "");
        }
        for (size_t i = 0; i < c->config->n_routes; i++)
            check_route(c, mongo, &c->config->routes[i]);
        check_leases(c, mongo);
    } else {
        concern(c, NULL);
    }
    mongo_free(mongo);
}

/* --- Redis --- */

/* A name as a template would make it: each placeholder becomes a word. */
static char *sample(const char *template)
{
    struct buf b = {0};

    buf_add(&b, "", 0);
    while (*template) {
        size_t n = strcspn(template, "{");

        buf_add(&b, template, n);
        template += n;
        if (*template) {
            buf_add_text(&b, "idemsink-check");
            n = strcspn(template, "}");
            template += n + (template[n] != '\0');
        }
    }
    return b.data ? b.data : mem_text("");
}

/* command's first argument is the name; two more are enough for every command that is sent. */
static void may(struct checks *c, struct redis_asker *asker, const char *command,
                const char *template)
{
    static const struct {
        const char *command;
        int argc;
        const char *argv[6]; /* "N": the name */
    } forms[] = {{"PUBLISH", 3, {"PUBLISH", "N", "idemsink check"}},
                 {"UNLINK", 2, {"UNLINK", "N"}},
                 {"INCR", 2, {"INCR", "N"}},
                 {"PEXPIRE", 3, {"PEXPIRE", "N", "1000"}},
                 {"GET", 2, {"GET", "N"}},
                 {"DEL", 2, {"DEL", "N"}},
                 {"EVAL", 4, {"EVAL", "return 1", "1", "N"}},
                 {"EVALSHA", 4, {"EVALSHA", "0", "1", "N"}},
                 {"HGET", 3, {"HGET", "N", "version"}},
                 {"HSET", 4, {"HSET", "N", "version", "0"}},
                 {"MGET", 2, {"MGET", "N"}},
                 {"SET", 4, {"SET", "N", "1", "NX"}},
                 {"XADD", 5, {"XADD", "N", "*", "payload", "idemsink check"}}};
    struct buf what = {0};
    char *name = sample(template);
    const char *argv[6];
    struct err e;

    buf_printf(&what, "redis %s %s", command, template);
    for (size_t f = 0; f < sizeof forms / sizeof forms[0]; f++) {
        if (strcmp(forms[f].command, command) != 0)
            continue;
        for (int i = 0; i < forms[f].argc; i++)
            argv[i] = strcmp(forms[f].argv[i], "N") == 0 ? name : forms[f].argv[i];
        bool ok = redis_ask(asker, forms[f].argc, argv, &e);
        if (!ok && e.kind == ERR_TRANSIENT)
            check_line(c, what.data, CHECK_UNKNOWN, e.text);
        else
            (void)check_answer(c, what.data, ok, &e, "allowed");
    }
    mem_free(name);
    buf_clear(&what);
}

static void rule(struct checks *c, struct redis_asker *asker, const struct config_invalidate *v)
{
    switch (v->mode) {
    case INVALIDATE_PUBSUB:
    case INVALIDATE_MONSQLIZE:
        may(c, asker, "PUBLISH", v->channel);
        break;
    case INVALIDATE_STREAM:
        may(c, asker, "XADD", v->stream);
        break;
    case INVALIDATE_UNLINK:
    case INVALIDATE_VERSION:
        for (size_t k = 0; k < v->keys.n; k++) {
            may(c, asker, v->mode == INVALIDATE_UNLINK ? "UNLINK" : "INCR", v->keys.items[k]);
            if (v->mode == INVALIDATE_VERSION && v->expire_ms > 0) { /* one script does it all */
                may(c, asker, "EVAL", v->keys.items[k]);
                may(c, asker, "SET", v->keys.items[k]);
                may(c, asker, "PEXPIRE", v->keys.items[k]);
            }
        }
        break;
    }
}

/* What a lock's commands and scripts need. */
static void lock(struct checks *c, struct redis_asker *asker, const struct config_route *r)
{
    static const char *const commands[] = {"SET", "GET", "DEL", "PEXPIRE", "EVAL", "EVALSHA"};
    struct buf name = {0};

    if (!config_has_lock(r))
        return;
    buf_printf(&name, "%s%s", r->lock.prefix, r->lock.key);
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        may(c, asker, commands[i], name.data);
    buf_clear(&name);
}

static void mirror(struct checks *c, struct redis_asker *asker, const struct config_counter *v)
{
    static const char *const commands[] = {"EVAL", "EVALSHA", "HGET", "HSET"};

    for (size_t i = 0; v->mirror[0] && i < sizeof commands / sizeof commands[0]; i++)
        may(c, asker, commands[i], v->mirror);
}

static void seen(struct checks *c, struct redis_asker *asker, const struct config_route *r)
{
    struct buf name = {0};

    if (!config_shares_seen(r))
        return;
    char *prefix = config_seen_prefix(r);
    buf_printf(&name, "%sidemsink-check", prefix);
    may(c, asker, "MGET", name.data);
    may(c, asker, "SET", name.data);
    mem_free(prefix);
    buf_clear(&name);
}

void check_redis(struct checks *c)
{
    struct redis_asker *asker;
    struct buf text = {0};
    struct err e;

    if (!c->config->redis.uri[0])
        return;
    asker = redis_asker_new(c->config, &text, &e);
    if (check_service(c, "redis", asker != NULL, &e, buf_text(&text), "redis.uri"))
        for (size_t r = 0; r < c->config->n_routes; r++) {
            for (size_t i = 0; i < c->config->routes[r].n_invalidate; i++)
                rule(c, asker, &c->config->routes[r].invalidate[i]);
            lock(c, asker, &c->config->routes[r]);
            for (size_t i = 0; i < c->config->routes[r].n_counters; i++)
                mirror(c, asker, &c->config->routes[r].counters[i]);
            seen(c, asker, &c->config->routes[r]);
        }
    redis_asker_free(asker);
    buf_clear(&text);
}
