/* Who answers there: for check. */
#include <string.h>

#include "base/clock.h"
#include "io/mongo_private.h"

static void version(struct mongo *m, mongoc_client_t *client, struct mongo_facts *out)
{
    bson_t build = BSON_INITIALIZER, reply;
    bson_error_t be;

    BSON_APPEND_INT32(&build, "buildInfo", 1);
    bool ok = mongoc_client_command_simple(client, "admin", &build, m->primary, &reply, &be);
    (void)snprintf(out->version, sizeof out->version, "%.20s",
                   ok ? mongo_text_field(&reply, "version") : "not told");
    bson_destroy(&reply);
    bson_destroy(&build);
}

static int count(const bson_t *hello, const char *name)
{
    bson_iter_t it, list;
    int n = 0;

    if (bson_iter_init_find(&it, hello, name) && BSON_ITER_HOLDS_ARRAY(&it) &&
        bson_iter_recurse(&it, &list))
        while (bson_iter_next(&list))
            n++;
    return n;
}

static void take(const bson_t *hello, int64_t before_ms, int64_t after_ms, struct mongo_facts *out)
{
    bson_iter_t it;

    (void)snprintf(out->set, sizeof out->set, "%.100s", mongo_text_field(hello, "setName"));
    (void)snprintf(out->primary, sizeof out->primary, "%.200s", mongo_text_field(hello, "primary"));
    out->mongos = strcmp(mongo_text_field(hello, "msg"), "isdbgrid") == 0;
    out->members = count(hello, "hosts") + count(hello, "passives");
    if (bson_iter_init_find(&it, hello, "maxWireVersion"))
        out->wire = (int)bson_iter_as_int64(&it);
    out->has_clock = bson_iter_init_find(&it, hello, "localTime") && BSON_ITER_HOLDS_DATE_TIME(&it);
    if (out->has_clock) { /* it was read somewhere between */
        out->clock_ahead_ms = bson_iter_date_time(&it) - (before_ms + after_ms) / 2;
        out->clock_unsure_ms = (after_ms - before_ms + 1) / 2;
    }
}

bool mongo_look(struct mongo *m, struct mongo_facts *out, struct err *e)
{
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    bson_error_t be = {0};
    bson_t hello;
    int64_t before_ms;

    *out = (struct mongo_facts){0};
    version(m, client, out); /* opens the connection, too */
    before_ms = clock_wall_ms();
    bool ok = mongo_hello(client, m->primary, &hello, &be);
    if (ok)
        take(&hello, before_ms, clock_wall_ms(), out);
    else
        mongo_fail(e, "mongodb", &be);
    bson_destroy(&hello);
    mongoc_client_pool_push(m->pool, client);
    return ok;
}
