#include "io/mongo_lease.h"

#include "base/clock.h"
#include "base/mem.h"
#include "io/mongo_private.h"

/* Two processes that make the document at once: one of them meets the other's. */
enum { TRIES = 3, DUPLICATE_KEY = 11000 };

/*
 * One findAndModify. The answer is the document behind it, so "is it ours?" is whether our token
 * stands there: NULL when nothing matched.
 */
static bool change(struct mongo *m, const struct mongo_lease_terms *t, const bson_t *command,
                   bson_t *reply, bson_error_t *be)
{
    mongoc_client_t *client = mongoc_client_pool_pop(m->pool);
    bson_t opts = BSON_INITIALIZER;
    bool ok = mongoc_write_concern_append(m->concern, &opts);

    MUST(ok);
    ok = mongoc_client_write_command_with_opts(client, t->database, command, &opts, reply, be);
    bson_destroy(&opts);
    mongoc_client_pool_push(m->pool, client);
    return ok;
}

static bool fail(const struct mongo_lease_terms *t, const bson_error_t *be, struct err *e)
{
    char *what = mem_printf("lease \"%.100s\" in %.100s." MONGO_LEASES, t->name, t->database);

    (void)mongo_fail(e, what, be);
    mem_free(what);
    return false;
}

static bool is_ours(const bson_t *reply, const bson_oid_t *token)
{
    bson_iter_t it, value, found;

    return bson_iter_init(&it, reply) && bson_iter_find(&it, "value") &&
           BSON_ITER_HOLDS_DOCUMENT(&it) && bson_iter_recurse(&it, &value) &&
           bson_iter_find_descendant(&value, "token", &found) && BSON_ITER_HOLDS_OID(&found) &&
           bson_oid_equal(bson_iter_oid(&found), token);
}

/* {$cond: [free and due, ROOT with ours, ROOT]}. A missing field is below every date. */
static bson_t *take_command(const struct mongo_lease *l)
{
    const struct mongo_lease_terms *t = &l->terms;

    return BCON_NEW(
        "findAndModify", BCON_UTF8(MONGO_LEASES), "query", "{", "_id", BCON_UTF8(t->name), "}",
        "update", "[", "{", "$replaceWith", "{", "$cond", "[",                           /* */
        "{", "$and", "[",                                                                /* */
        "{", "$lte", "[", "$until", BCON_UTF8("$$NOW"), "]", "}",                        /* */
        "{", "$lte", "[", "$ran", "{", "$subtract", "[", BCON_UTF8("$$NOW"),             /* */
        BCON_INT64(t->every_ms), "]", "}", "]", "}",                                     /* */
        "]", "}",                                                                        /* */
        "{", "$mergeObjects", "[", BCON_UTF8("$$ROOT"), "{",                             /* */
        "owner", "{", "$literal", BCON_UTF8(t->owner), "}",                              /* */
        "token", BCON_OID(&l->token),                                                    /* */
        "until", "{", "$add", "[", BCON_UTF8("$$NOW"), BCON_INT64(t->hold_ms), "]", "}", /* */
        "}", "]", "}",                                                                   /* */
        BCON_UTF8("$$ROOT"), "]", "}", "}", "]", "upsert", BCON_BOOL(true), "new", BCON_BOOL(true));
}

bool mongo_lease_take(struct mongo *m, const struct mongo_lease_terms *terms,
                      struct mongo_lease *out, bool *held, struct err *e)
{
    bson_error_t be = {0};
    bool ok = false;

    *out = (struct mongo_lease){.terms = *terms};
    *held = false;
    bson_oid_init(&out->token, NULL);
    bson_t *command = take_command(out);
    for (int i = 0; !ok && i < TRIES; i++) {
        bson_t reply;

        out->until_ms = clock_mono_ms() + terms->hold_ms;
        ok = change(m, terms, command, &reply, &be);
        *held = ok && is_ours(&reply, &out->token);
        bson_destroy(&reply);
        if (!ok && be.code != DUPLICATE_KEY)
            break;
    }
    bson_destroy(command);
    return ok || fail(terms, &be, e);
}

/* {_id, token, and at the server still in time} */
static void append_ours(bson_t *command, const struct mongo_lease *l)
{
    BCON_APPEND(command, "query", "{", "_id", BCON_UTF8(l->terms.name), "token",
                BCON_OID(&l->token), "$expr", "{", "$gt", "[", "$until", BCON_UTF8("$$NOW"), "]",
                "}", "}");
}

bool mongo_lease_renew(struct mongo *m, struct mongo_lease *l, bool *held, struct err *e)
{
    bson_t *command = BCON_NEW("findAndModify", BCON_UTF8(MONGO_LEASES));
    int64_t until_ms = clock_mono_ms() + l->terms.hold_ms;
    bson_error_t be = {0};
    bson_t reply;

    append_ours(command, l);
    BCON_APPEND(command, "update", "[", "{", "$set", "{", "until", "{", "$add", "[",
                BCON_UTF8("$$NOW"), BCON_INT64(l->terms.hold_ms), "]", "}", "}", "}", "]", "new",
                BCON_BOOL(true));
    bool ok = change(m, &l->terms, command, &reply, &be);
    *held = ok && is_ours(&reply, &l->token);
    if (*held)
        l->until_ms = until_ms;
    bson_destroy(&reply);
    bson_destroy(command);
    return ok || fail(&l->terms, &be, e);
}

bool mongo_lease_keep(struct mongo *m, struct mongo_lease *l, bool *held, struct err *e)
{
    *held = true;
    return l->until_ms - clock_mono_ms() > l->terms.hold_ms / 2 || mongo_lease_renew(m, l, held, e);
}

bool mongo_lease_release(struct mongo *m, const struct mongo_lease *l, bool done, struct err *e)
{
    bson_t *command = BCON_NEW("findAndModify", BCON_UTF8(MONGO_LEASES));
    bson_error_t be = {0};
    bson_t reply;

    append_ours(command, l);
    BCON_APPEND(command, "update", "[", "{", "$set", "{", "until", BCON_UTF8("$$NOW"), "ran",
                done ? "$$NOW" : "$ran", "}", "}", "{", "$unset", "token", "}", "]");
    bool ok = change(m, &l->terms, command, &reply, &be);
    bson_destroy(&reply);
    bson_destroy(command);
    return ok || fail(&l->terms, &be, e);
}
