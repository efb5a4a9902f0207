/*
 * Many sessions, and a server that steps down or stands still in the middle. They write the same
 * keys in the three modes of route.write, each with a payload of its own, and are told what is a
 * conflict. $MONGO_PIDS: the first is stopped and continued.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "core/canonical.h"
#include "fakes/dice.h"
#include "mongo_help.h"

enum { WRITERS = 4, KEYS = 4000, BATCH = 200, MODES = 3 };

enum told { TOLD_NOTHING, TOLD_INSERTED, TOLD_DUPLICATE, TOLD_CONFLICT };

struct race {
    struct help *h;
    struct config_route routes[MODES]; /* into one collection */
    char told[WRITERS][KEYS];          /* enum told; each writer its own */
    _Atomic int inserted[KEYS];        /* how often the sink said so */
    _Atomic int64_t resent, longest_ms;
    _Atomic bool failed; /* an answer that can't be */
    _Atomic int done_batches;
    bool mixed; /* some by insert */
};

struct writer {
    struct race *race;
    struct dice dice;
    pthread_t thread;
    int number;
};

/* One batch, sent until every operation has its end. */
static void write_batch(struct writer *w, void *session, const int *keys, size_t n)
{
    struct write_op ops[BATCH];
    int key_of[BATCH];
    size_t open = n;

    for (size_t i = 0; i < n; i++) {
        key_of[i] = keys[i];
        uint8_t hash[CANONICAL_HASH_BYTES] = {(uint8_t)w->number};
        ops[i] = help_upsert(BCON_NEW("id", BCON_INT64(keys[i])),
                             BCON_NEW("id", BCON_INT64(keys[i]), "by", BCON_INT32(w->number)));
        BSON_APPEND_BINARY(ops[i].document, "h", BSON_SUBTYPE_BINARY, hash, sizeof hash);
        if (w->number % MODES > 0 || (w->race->mixed && keys[i] % 3 == 0))
            ops[i].kind = WRITE_KIND_INSERT;
    }
    for (int tries = 0; open > 0 && tries < 3000; tries++) {
        int64_t start_ms = clock_mono_ms();
        const struct outcome *r =
            w->race->h->sink.ops->write(session, (uint32_t)(w->number % MODES), ops, open);
        int64_t took_ms = clock_mono_ms() - start_ms;
        size_t kept = 0;

        if (took_ms > atomic_load(&w->race->longest_ms))
            atomic_store(&w->race->longest_ms, took_ms);
        for (size_t i = 0; i < open; i++) {
            char *told = &w->race->told[w->number][key_of[i]];
            if (r[i].fate == FATE_DUPLICATE)
                *told = r[i].conflict ? TOLD_CONFLICT : TOLD_DUPLICATE;
            if (r[i].fate == FATE_INSERTED) {
                *told = TOLD_INSERTED;
                atomic_fetch_add(&w->race->inserted[key_of[i]], 1);
            } else if (r[i].fate == FATE_NEVER)
                atomic_store(&w->race->failed, true);
        }
        for (size_t i = 0; i < open;
             i++) { /* r belongs to the session: read before the next write */
            if (r[i].fate == FATE_LATER || r[i].fate == FATE_UNKNOWN) {
                struct write_op moved = ops[i];
                ops[i] = ops[kept];
                ops[kept] = moved;
                int key = key_of[i];
                key_of[i] = key_of[kept];
                key_of[kept++] = key;
            }
        }
        if (kept > 0) {
            atomic_fetch_add(&w->race->resent, 1);
            usleep(20000); /* back-off */
        }
        open = kept;
    }
    if (open > 0)
        atomic_store(&w->race->failed, true);
    help_clear(ops, n);
    atomic_fetch_add(&w->race->done_batches, 1);
}

/* Each writer delivers every key once, in an order of its own. */
static void *writer_main(void *arg)
{
    struct writer *w = arg;
    void *session = w->race->h->sink.ops->open(w->race->h->sink.self);
    int *keys = mem_array(KEYS, sizeof *keys);

    for (int i = 0; i < KEYS; i++)
        keys[i] = i;
    /* Neighbours stay near each other, so that writers meet. */
    for (int i = 0; i < KEYS; i++) {
        int j = i + (int)dice_below(&w->dice, (uint64_t)(KEYS - i < 300 ? KEYS - i : 300)),
            k = keys[i];
        keys[i] = keys[j];
        keys[j] = k;
    }
    for (int i = 0; i < KEYS; i += BATCH)
        write_batch(w, session, keys + i, BATCH);
    mem_free(keys);
    w->race->h->sink.ops->close(session);
    return NULL;
}

static void race_start(struct race *r, struct writer *writers, struct help *h, bool mixed,
                       const char *name)
{
    struct dice dice = dice_seed(name);

    memset(r, 0, sizeof *r);
    static char field[] = "h";

    r->h = h;
    r->mixed = mixed;
    for (int i = 0; i < MODES; i++) {
        r->routes[i] = h->route;
        r->routes[i].write = (enum config_write)i;
        r->routes[i].dedup.conflict = CONFLICT_COUNT;
        r->routes[i].dedup.conflict_field = field;
    }
    h->config.routes = r->routes;
    h->config.n_routes = MODES;
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (struct writer){.race = r, .dice = dice_split(&dice), .number = i};
        assert_int_equal(pthread_create(&writers[i].thread, NULL, writer_main, &writers[i]), 0);
    }
}

/* Whose payload is stored says what each writer has to be told. */
static void check_told(struct race *r)
{
    bson_t all = BSON_INITIALIZER;
    mongoc_cursor_t *c = mongoc_collection_find_with_opts(r->h->c, &all, NULL, NULL);
    const bson_t *doc;
    bson_iter_t id, by;

    while (mongoc_cursor_next(c, &doc)) {
        assert_true(bson_iter_init_find(&id, doc, "id") && bson_iter_init_find(&by, doc, "by"));
        int64_t k = bson_iter_int64(&id);
        for (int w = 0; w < WRITERS; w++) {
            bool own = bson_iter_int32(&by) == w;
            int told = r->told[w][k];
            if (own ? told != TOLD_INSERTED && told != TOLD_DUPLICATE : told != TOLD_CONFLICT)
                fail_msg("writer %d was told %d of key %d, which is of writer %d", w, told, (int)k,
                         bson_iter_int32(&by));
        }
    }
    mongoc_cursor_destroy(c);
    bson_destroy(&all);
}

/* exact: no answer was lost, so each insertion was told to exactly one. */
static void race_end(struct race *r, struct writer *writers, bool exact)
{
    int64_t told = 0;

    for (int i = 0; i < WRITERS; i++)
        pthread_join(writers[i].thread, NULL);
    r->h->config.routes = &r->h->route;
    r->h->config.n_routes = 1;
    check_told(r);
    assert_false(atomic_load(&r->failed));
    assert_int_equal(help_count(r->h, "{}"), KEYS);
    for (int k = 0; k < KEYS; k++) {
        int n = atomic_load(&r->inserted[k]);
        if (n > 1)
            fail_msg("key %d was said to be inserted %d times", k, n);
        told += n;
    }
    if (exact)
        assert_int_equal(told, KEYS);
    fprintf(stderr,
            "  %lld of %d told as inserted, %lld batches sent again, longest write %lld ms\n",
            (long long)told, KEYS, (long long)atomic_load(&r->resent),
            (long long)atomic_load(&r->longest_ms));
}

static void test_race(void **state)
{
    struct help h;
    static struct race r;
    struct writer writers[WRITERS];

    (void)state;
    for (int mixed = 0; mixed < 2; mixed++) {
        help_open(&h, "id");
        race_start(&r, writers, &h, mixed == 1, "test_race");
        race_end(&r, writers, true);
        help_close(&h);
    }
}

/* An index that was made earlier is the one that E11000 names in a race: still duplicates, none
 * lost. */
static void test_race_with_an_earlier_index(void **state)
{
    struct help h;
    static struct race r;
    struct writer writers[WRITERS];
    struct err e = {0};

    (void)state;
    help_begin(&h, "id");
    help_command(
        &h, h.route.database,
        help_bson("{'createIndexes':'%s','indexes':[{'key':{'id':1,'by':1},'name':'earlier',"
                  "'unique':true},{'key':{'id':-1},'name':'twin','unique':true}]}",
                  h.collection));
    help_connect(&h);
    assert_true(mongo_make_index(h.mongo, &h.route, &e));
    h.session = h.sink.ops->open(h.sink.self);
    race_start(&r, writers, &h, false, "test_race_with_an_earlier_index");
    race_end(&r, writers, true);
    help_close(&h);
}

static void wait_for_batches(struct race *r, int n)
{
    for (int64_t end_ms = clock_mono_ms() + 60000; atomic_load(&r->done_batches) < n;) {
        if (clock_mono_ms() > end_ms)
            fail_msg("only %d batches after 60 s", atomic_load(&r->done_batches));
        usleep(1000);
    }
}

/* The only member steps down for a second, twice, while four write. */
static void test_step_down(void **state)
{
    struct help h;
    static struct race r;
    struct writer writers[WRITERS];

    (void)state;
    help_open(&h, "id");
    race_start(&r, writers, &h, false, "test_step_down");
    for (int i = 1; i <= 2; i++) {
        bson_t *command = help_bson("{'replSetStepDown':1,'force':true}");
        wait_for_batches(&r, i * 8);
        assert_true(mongoc_client_command_simple(h.raw, "admin", command, NULL, NULL, NULL));
        bson_destroy(command);
    }
    race_end(&r, writers, false);
    assert_true(atomic_load(&r.resent) > 0);
    help_close(&h);
}

static void test_killed_connections(void **state)
{
    struct help h;
    static struct race r;
    struct writer writers[WRITERS];

    (void)state;
    help_open(&h, "id");
    race_start(&r, writers, &h, false, "test_killed_connections");
    for (int i = 1; i <= 6; i++) {
        wait_for_batches(&r, i * 10);
        help_fail_point(&h, 3,
                        i % 2 ? "'failCommands':['update','insert','find'],'closeConnection':true"
                              : "'failCommands':['update','insert','find'],'errorCode':11602");
    }
    race_end(&r, writers, false);
    help_fail_point_off(&h);
    assert_true(atomic_load(&r.resent) > 0);
    help_close(&h);
}

static pid_t server_pid(void)
{
    const char *pids = getenv("MONGO_PIDS");
    long pid = pids ? strtol(pids, NULL, 10) : 0;

    if (pid <= 0)
        fail_msg("MONGO_PIDS is not set: eval \"$(scripts/stack env)\"");
    return (pid_t)pid;
}

/* A server that stands still for longer than the socket time-out: each write ends in time, nothing
 * is lost. */
static void test_frozen_server(void **state)
{
    struct help h;
    static struct race r;
    struct writer writers[WRITERS];
    pid_t pid = server_pid();
    struct err e = {0};

    (void)state;
    help_begin(&h, "id");
    h.config.mongo.socket_timeout_ms = 1000;
    h.config.mongo.connect_timeout_ms = 1000;
    h.config.mongo.server_selection_timeout_ms = 1000;
    h.config.mongo.write_timeout_ms = 500;
    help_connect(&h);
    assert_true(mongo_make_index(h.mongo, &h.route, &e));
    race_start(&r, writers, &h, false, "test_frozen_server");
    wait_for_batches(&r, 10);
    assert_int_equal(kill(pid, SIGSTOP), 0);
    usleep(5000000); /* the length of the freeze */
    assert_int_equal(kill(pid, SIGCONT), 0);
    race_end(&r, writers, false);
    assert_true(atomic_load(&r.resent) > 0);
    /* Selection, connecting, and two answers. */
    assert_true(atomic_load(&r.longest_ms) < 4500);
    help_close(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_race),          cmocka_unit_test(test_race_with_an_earlier_index),
        cmocka_unit_test(test_step_down),     cmocka_unit_test(test_killed_connections),
        cmocka_unit_test(test_frozen_server),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
