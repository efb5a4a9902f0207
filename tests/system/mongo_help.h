/*
 * mongo_help.h - a collection of its own on a real server, and a sink on it. For
 * tests/system/test_mongo_*.c.
 *
 * $MONGO_URI: a replica set of one (scripts/stack env), with test commands for the fail points.
 */
#ifndef IDEMSINK_TESTS_MONGO_HELP_H
#define IDEMSINK_TESTS_MONGO_HELP_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <mongoc/mongoc.h>

#include "base/clock.h"
#include "base/mem.h"
#include "core/mapping.h"
#include "io/mongo.h"

enum { HELP_FIELDS_MAX = 4 };

struct help {
    struct config config;
    struct config_route route;
    char uri[512], collection[64];
    char *fields[HELP_FIELDS_MAX];
    struct mongo *mongo;
    struct sink sink;
    void *session;
    mongoc_client_t
        *raw; /* of the test itself; another application name, so that no fail point hits it */
    mongoc_collection_t *c;
};

static inline const char *help_uri(void)
{
    const char *uri = getenv("MONGO_URI");

    if (uri == NULL || *uri == '\0')
        fail_msg("MONGO_URI is not set: eval \"$(scripts/stack env)\"");
    return uri;
}

/* JSON with ' for " to BSON. */
static inline bson_t *help_bson(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
static inline bson_t *help_bson(const char *fmt, ...)
{
    char text[2048];
    bson_error_t be;
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    for (char *p = text; *p; p++)
        if (*p == '\'')
            *p = '"';
    bson_t *b = bson_new_from_json((const uint8_t *)text, -1, &be);
    if (b == NULL)
        fail_msg("%s: %s", text, be.message);
    return b;
}

/* Runs a command of the test itself; fails the test when it fails. */
static inline void help_command(struct help *h, const char *db, bson_t *command)
{
    bson_error_t be;

    if (!mongoc_client_command_simple(h->raw, db, command, NULL, NULL, &be))
        fail_msg("%s", be.message);
    bson_destroy(command);
}

/* dedup: "event_id" or "a,b"; "_id" for dedup.into = "_id". Connects to nothing yet. */
static inline void help_begin(struct help *h, const char *dedup)
{
    static int count;
    static char database[] = "idemsink_test", majority[] = "majority";
    char names[128], *save = NULL;

    memset(h, 0, sizeof *h);
    (void)snprintf(h->uri, sizeof h->uri, "%s", help_uri());
    (void)snprintf(h->collection, sizeof h->collection, "c%lld_%d", (long long)clock_wall_ms(),
                   count++);
    (void)snprintf(names, sizeof names, "%s", dedup);
    h->route = (struct config_route){
        .name = h->collection, .database = database, .collection = h->collection};
    h->route.dedup.into_id = strcmp(dedup, "_id") == 0;
    for (char *name = strtok_r(names, ",", &save); name && !h->route.dedup.into_id;
         name = strtok_r(NULL, ",", &save))
        h->fields[h->route.dedup.fields.n++] = mem_text(name);
    h->route.dedup.fields.items = h->fields;
    h->config.routes = &h->route;
    h->config.n_routes = 1;
    h->config.worker.threads = 4;
    h->config.worker.batch = 1000;
    h->config.mongo.uri = h->uri;
    h->config.mongo.write_concern = majority;
    h->config.mongo.journal = true;
    h->config.mongo.server_selection_timeout_ms = 3000;
    h->config.mongo.connect_timeout_ms = 2000;
    h->config.mongo.socket_timeout_ms = 3000;
    h->config.mongo.write_timeout_ms = 2000;
    h->raw = mongoc_client_new(help_uri());
    assert_non_null(h->raw);
    mongoc_client_set_error_api(h->raw, MONGOC_ERROR_API_VERSION_2);
    mongoc_client_set_appname(h->raw, "test");
    h->c = mongoc_client_get_collection(h->raw, h->route.database, h->collection);
}

static inline void help_connect(struct help *h)
{
    struct err e = {0};

    h->mongo = mongo_new(&h->config, &e);
    if (h->mongo == NULL)
        fail_msg("%s", e.text);
    h->sink = mongo_sink(h->mongo);
}

/* The dedup index and one session, on what help_connect() made. */
static inline void help_start(struct help *h)
{
    struct err e = {0};

    if (!mongo_make_index(h->mongo, &h->route, &e) || !mongo_prove_index(h->mongo, &h->route, &e))
        fail_msg("%s", e.text);
    h->session = h->sink.ops->open(h->sink.self);
}

/* All of it, on a collection as it is made by default. */
static inline void help_open(struct help *h, const char *dedup)
{
    help_begin(h, dedup);
    help_connect(h);
    help_start(h);
}

/* An index beside the dedup index: "{'key':{'x':1},'name':'x'}". */
static inline void help_make_index(struct help *h, const char *index)
{
    help_command(h, h->route.database,
                 help_bson("{'createIndexes':'%s','indexes':[%s]}", h->collection, index));
}

static inline void help_close(struct help *h)
{
    if (h->session)
        h->sink.ops->close(h->session);
    mongo_free(h->mongo);
    (void)mongoc_collection_drop(h->c, NULL);
    mongoc_collection_destroy(h->c);
    mongoc_client_destroy(h->raw);
    for (size_t i = 0; i < HELP_FIELDS_MAX; i++)
        mem_free(h->fields[i]);
}

static inline int64_t help_count(struct help *h, const char *filter)
{
    bson_t *f = help_bson("%s", filter);
    bson_error_t be;
    int64_t n = mongoc_collection_count_documents(h->c, f, NULL, NULL, NULL, &be);

    bson_destroy(f);
    if (n < 0)
        fail_msg("%s", be.message);
    return n;
}

static inline struct write_op help_upsert(bson_t *filter, bson_t *document)
{
    return (struct write_op){.kind = WRITE_KIND_UPSERT, .filter = filter, .document = document};
}

static inline struct write_op help_insert(bson_t *filter, bson_t *document)
{
    return (struct write_op){.kind = WRITE_KIND_INSERT, .filter = filter, .document = document};
}

/* {id, d: {d: ... {x: 1}}}, so many levels below the top. */
static inline bson_t *help_deep(int id, int levels)
{
    bson_t *inner = BCON_NEW("x", BCON_INT32(1));

    for (int i = 1; i < levels; i++) {
        bson_t *outer = bson_new();
        BSON_APPEND_DOCUMENT(outer, "d", inner);
        bson_destroy(inner);
        inner = outer;
    }
    bson_t *doc = BCON_NEW("id", BCON_INT32(id));
    BSON_APPEND_DOCUMENT(doc, "d", inner);
    bson_destroy(inner);
    return doc;
}

static inline void help_clear(struct write_op *ops, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        bson_destroy(ops[i].filter);
        bson_destroy(ops[i].document);
    }
}

/* Writes and expects one letter per operation: I D L U N. Returns the results. */
static inline const struct outcome *help_write(struct help *h, const struct write_op *ops, size_t n,
                                               const char *want)
{
    static const char names[] = {
        [FATE_INSERTED] = 'I', [FATE_DUPLICATE] = 'D', [FATE_LOOK] = '?',    [FATE_LATER] = 'L',
        [FATE_UNKNOWN] = 'U',  [FATE_NEVER] = 'N',     [FATE_NOT_RUN] = '?', [FATE_SPLIT] = '?'};
    char got[64] = "";
    const struct outcome *r = h->sink.ops->write(h->session, 0, ops, n);

    for (size_t i = 0; i < n && i < sizeof got - 1; i++)
        got[i] = names[r[i].fate];
    if (strcmp(got, want) != 0)
        fail_msg("results are %s, expected %s (first: code %d, class %s, %s)", got, want, r[0].code,
                 retry_class_name(r[0].retry), r[0].text ? r[0].text : "");
    return r;
}

/* A fail point on commands of the sink alone: data without braces,
 * "'failCommands':['update'],'errorCode':91". */
static inline void help_fail_point(struct help *h, int times, const char *data)
{
    help_command(h, "admin",
                 help_bson("{'configureFailPoint':'failCommand','mode':{'times':%d},"
                           "'data':{'appName':'idemsink',%s}}",
                           times, data));
}

static inline void help_fail_point_off(struct help *h)
{
    help_command(h, "admin", help_bson("{'configureFailPoint':'failCommand','mode':'off'}"));
}

#endif
