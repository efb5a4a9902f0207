/* Every kind of mistake, with the whole text of its error: the place, the key, the value, the
 * bound, the way out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/config.h"

/* Ten lines that are enough, so what a test adds begins in line 11, inside of [route.dedup]. */
#define KAFKA  "[kafka]\nbrokers = \"b:9092\"\ngroup = \"g\"\n"
#define MONGO  "[mongo]\nuri = \"mongodb://h/\"\n"
#define ROUTE  "[[route]]\ntopics = [\"t\"]\ncollection = \"d.c\"\n"
#define DEDUP  "[route.dedup]\nkey = [\"id\"]\n"
#define ENOUGH KAFKA MONGO ROUTE DEDUP
#define REDIS  "[redis]\nuri = \"redis://h\"\n"

struct mistake {
    const char *text, *expected;
};

static const char *env(const char *name)
{
    static const struct {
        const char *name, *value;
    } vars[] = {{"NAME", "value"}, {"EMPTY", ""}, {"NUMBER", "7"}, {"BAD", "\xff"}};

    for (size_t i = 0; i < sizeof vars / sizeof vars[0]; i++)
        if (strcmp(vars[i].name, name) == 0)
            return vars[i].value;
    return NULL;
}

static struct config_drivers drivers;

static void assert_fails_with(const char *before, const char *text, const char *override,
                              const char *expected)
{
    struct buf whole = {0};
    struct err e = {0};
    struct config *c;

    buf_printf(&whole, "%s%s", before, text);
    c = config_parse(&(struct config_input){.name = "f",
                                            .text = slice_of(whole.data, whole.len),
                                            .overrides = &override,
                                            .n_overrides = override ? 1 : 0,
                                            .env = env,
                                            .drivers = drivers},
                     &e);
    if (c)
        print_error("accepted: %s%s\n", text, override ? override : "");
    assert_null(c);
    assert_string_equal(e.text, expected);
    assert_int_equal(e.kind, ERR_CONFIG);
    buf_clear(&whole);
}

#define ASSERT_ALL(before, mistakes)                                                               \
    for (size_t i_ = 0; i_ < sizeof(mistakes) / sizeof(mistakes)[0]; i_++)                         \
    assert_fails_with((before), (mistakes)[i_].text, NULL, (mistakes)[i_].expected)

static void what_is_required(void **state)
{
    static const struct mistake mistakes[] = {
        {"", "f:1:1: kafka.brokers: is missing"},
        {"[kafka]\nbrokers = \"b\"\n", "f:1:2: kafka.group: is missing"},
        {"[kafka]\nbrokers = \"\"\n", "f:2:1: kafka.brokers: is empty"},
        {KAFKA, "f:1:1: mongo.uri: is missing"},
        {KAFKA MONGO, "f:1:1: route: there is no [[route]], so there is nothing to do"},
        {"route = []\n" KAFKA MONGO,
         "f:1:1: route: there is no [[route]], so there is nothing to do"},
        {KAFKA MONGO "[[route]]\n", "f:6:1: route.topics: is missing"},
        {KAFKA MONGO "[[route]]\ntopics = [\"t\"]", "f:6:1: route.collection: is missing"},
        {KAFKA MONGO ROUTE, "f:6:1: route.dedup.key: is missing"},
        {KAFKA MONGO ROUTE "[route.dedup]", "f:9:8: route.dedup.key: is missing"},
        {KAFKA MONGO ROUTE "[route.dedup]\nkey = []",
         "f:10:1: route.dedup.key: is empty, and needs at least 1"},
        {ENOUGH "[[route.invalidate]]", "f:11:1: route.invalidate.mode: is missing"},
    };

    (void)state;
    ASSERT_ALL("", mistakes);
}

static void names_that_nobody_knows(void **state)
{
    static const struct mistake mistakes[] = {
        {"[worker]\ntreads = 1", "f:12:1: worker.treads: unknown key; did you mean \"threads\"?"},
        {"[worker]\nBatch = 1", "f:12:1: worker.Batch: unknown key; did you mean \"batch\"?"},
        {"[wroker]", "f:11:2: wroker: unknown key; did you mean \"worker\"?"},
        {"[retry]\nbatch = 1", "f:12:1: retry.batch: unknown key; did you mean worker.batch?"},
        {"[retry]\nwholesale = 1",
         "f:12:1: retry.wholesale: unknown key; known here: first, max, max_unknown"},
        {"feilds = 1", "f:11:1: route.dedup.feilds: unknown key; did you mean \"fields\"?"},
        {"conflagrate = \"count\"",
         "f:11:1: route.dedup.conflagrate: unknown key; known here: key, into, "
         "fields, conflict, conflict_field"},
        {"[worker.batch.x]\ny = 1", "f:11:9: worker.batch: has to be an integer, not a table"},
        {"[[route]]\nformats = \"bson\"",
         "f:12:1: route.formats: unknown key; did you mean \"format\"?"},
        {"[[route]]\n[[route.invalidate]]\nmod = 1",
         "f:13:1: route.invalidate.mod: unknown key; did you mean \"mode\"?"},
        {"[log]\nlevel = \"debog\"",
         "f:12:1: log.level: \"debog\" is not known; possible: \"debug\", \"info\", \"warn\", "
         "\"error\"; did you mean \"debug\"?"},
        {"[log]\nformat = \"yaml\"",
         "f:12:1: log.format: \"yaml\" is not known; possible: \"json\", \"text\""},
        {"into = \"id\"", "f:11:1: route.dedup.into: \"id\" is not known; possible: \"\", \"_id\"; "
                          "did you mean \"_id\"?"},
        {"[route.types]\nat = \"dat\"", "f:12:1: route.types.at: \"dat\" is not a type; possible: "
                                        "date|date_ms|date_s|date_us|objectid|decimal|long|double|"
                                        "uuid|binary|binary_url; did you mean "
                                        "\"date\"?"},
        {REDIS "[[route.invalidate]]\nmode = \"streams\"",
         "f:14:1: route.invalidate.mode: \"streams\" is not known; possible: \"pubsub\", "
         "\"unlink\", \"monsqlize\", \"version\", \"stream\"; did you mean \"stream\"?"},
        {"\"a\\nb\" = 1", "f:11:1: route.dedup.a\\nb: unknown key; known here: key, into, fields, "
                          "conflict, conflict_field"},
    };

    (void)state;
    ASSERT_ALL(ENOUGH, mistakes);
}

static void wrong_types(void **state)
{
    static const struct mistake mistakes[] = {
        {"[worker]\nthreads = \"four\"", "f:12:1: worker.threads: \"four\" is not an integer"},
        {"[worker]\nthreads = 1.5",
         "f:12:1: worker.threads: has to be an integer, not a float: 1.5"},
        {"[worker]\nthreads = true",
         "f:12:1: worker.threads: has to be an integer, not a boolean: true"},
        {"[worker]\nthreads = 1979-05-27",
         "f:12:1: worker.threads: has to be an integer, not a date or time: \"1979-05-27\""},
        {"[worker]\nthreads = inf",
         "f:12:1: worker.threads: has to be an integer, not inf or nan: \"inf\""},
        {"[worker]\nlinger = 5",
         "f:12:1: worker.linger: has to be a duration in quotes, like \"5s\", not an integer: 5"},
        {"[worker]\nmax_bytes = 5",
         "f:12:1: worker.max_bytes: has to be a size in quotes, like \"64MiB\", not an integer: 5"},
        {"[mongo]\njournal = \"yes\"", "f:11:1: Error while parsing table header: cannot redefine "
                                       "existing table 'mongo'"},
        {"[[route]]\nensure_index = \"yes\"",
         "f:12:1: route.ensure_index: \"yes\" is neither true nor false"},
        {"[[route]]\nensure_index = 1",
         "f:12:1: route.ensure_index: has to be true or false, not an integer: 1"},
        {"[[route]]\ntopics = \"t\"",
         "f:12:1: route.topics: has to be a list of strings, not a string: \"t\""},
        {"[[route]]\ntopics = [\"a\",\n  1]",
         "f:13:3: route.topics: has to be a list of strings, not an integer: 1"},
        {"[[route]]\ntopics = [\"a\", \"\"]", "f:12:16: route.topics: an empty entry"},
        {"[[route]]\ntopics = [\"a\", \"b\", \"a\"]",
         "f:12:21: route.topics: \"a\" is there twice"},
        {"[http]\nlisten = 9464", "f:12:1: http.listen: has to be a string, not an integer: 9464"},
        {"[http]\nlisten = [\"a\"]", "f:12:1: http.listen: has to be a string, not a list"},
        {"[http]\nlisten = {a = 1}", "f:12:1: http.listen: has to be a string, not a table"},
        {"[route.types]\na = 1",
         "f:12:1: route.types.a: has to be the name of a type in quotes, not an integer: 1"},
        {"[route.rename]\na = 1",
         "f:12:1: route.rename.a: has to be a path in quotes, not an integer: 1"},
        {"[route.set]\na = [1]",
         "f:12:1: route.set.a: has to be a string, a number or true or false, not a list"},
        {"[route.set]\na = 1979-05-27", "f:12:1: route.set.a: has to be a string, a number or true "
                                        "or false, not a date or time: \"1979-05-27\""},
        {"[route.set]\na = nan", "f:12:1: route.set.a: has to be a string, a number or true or "
                                 "false, not inf or nan: \"nan\""},
        {"[kafka.properties]\na = 1.5",
         "f:12:1: kafka.properties.a: has to be a string, an integer or "
         "true or false, not a float: 1.5"},
        {"[kafka.properties]\n\"sasl.password\" = 1.5",
         "f:12:1: kafka.properties.sasl.password: has to be a string, an integer or true or false, "
         "not a float"},
        {"[redis]\nuri = 12345", "f:12:1: redis.uri: has to be a string, not an integer"},
        {"[http]\nlisten = 1979-05-27T07:32:00Z",
         "f:12:1: http.listen: has to be a string, not a date or time: \"1979-05-27T07:32:00Z\""},
        {"[kafka]\n", "f:11:1: Error while parsing table header: cannot redefine existing table "
                      "'kafka'"},
    };
    static const struct mistake alone[] = {
        {"worker = 1", "f:1:1: worker: has to be a table, not an integer"},
        {"route = 1", "f:1:1: route: has to be a list of tables, [[route]], not an integer"},
        {"route = [1]", "f:1:10: route: has to be a table, not an integer"},
        {"[route]\ntopics = [\"t\"]",
         "f:1:2: route: has to be a list of tables, [[route]], not a table"},
        {"[[route]]\ninvalidate = 1", "f:2:1: route.invalidate: has to be a list of tables, "
                                      "[[route.invalidate]], not an integer"},
        {"[[route]]\ntypes = 1", "f:2:1: route.types: has to be a table, not an integer"},
        {"[[worker]]", "f:1:3: worker: has to be a table, not a list"},
        {"[kafka]\nproperties = [1]", "f:2:1: kafka.properties: has to be a table, not a list"},
    };

    (void)state;
    ASSERT_ALL(ENOUGH, mistakes);
    ASSERT_ALL("", alone);
}

static void out_of_bounds(void **state)
{
    static const struct mistake mistakes[] = {
        {"[worker]\nthreads = 0", "f:12:1: worker.threads: 0 is below the minimum 1"},
        {"[worker]\nthreads = -9223372036854775808",
         "f:12:1: worker.threads: -9223372036854775808 is below the minimum 1"},
        {"[worker]\nthreads = 65", "f:12:1: worker.threads: 65 is above the maximum 64"},
        {"[worker]\nthreads = \"65\"", "f:12:1: worker.threads: 65 is above the maximum 64"},
        {"[worker]\nlinger = \"11s\"", "f:12:1: worker.linger: 11s is above the maximum 10s"},
        {"[worker]\nmax_bytes = \"1023KiB\"",
         "f:12:1: worker.max_bytes: 1023KiB is below the minimum 1MiB"},
        {"[worker]\nmax_bytes = \"2000TiB\"",
         "f:12:1: worker.max_bytes: 2000TiB is above the maximum 1TiB"},
        {"[worker]\ndrain_timeout = \"0s\"",
         "f:12:1: worker.drain_timeout: 0s is below the minimum 100ms"},
        {"[retry]\nmax = \"61m\"", "f:12:1: retry.max: 61m is above the maximum 1h"},
        {"fields = [\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\",\"i\"]",
         "f:11:1: route.dedup.fields: has 9 entries, and may have 8"},
    };
    static const char *const no_durations[] = {"5",
                                               "s",
                                               "5 s",
                                               "5S",
                                               "-5s",
                                               "+5s",
                                               "",
                                               "5ss",
                                               "1.5s",
                                               "5us",
                                               "0x5s",
                                               "9223372036854775808ms",
                                               "9223372036854775807s"};
    static const char *const no_sizes[] = {"64",  "64mb",       "64 MiB", "MiB",
                                           "64M", "9000000TiB", "1e3B"};

    (void)state;
    ASSERT_ALL(ENOUGH, mistakes);
    for (size_t i = 0; i < sizeof no_durations / sizeof no_durations[0]; i++) {
        struct buf text = {0}, expected = {0};

        buf_printf(&text, "[worker]\nlinger = \"%s\"", no_durations[i]);
        buf_printf(
            &expected,
            "f:12:1: worker.linger: \"%s\" is not a duration: digits and ms, s, m or h, like "
            "\"5s\"",
            no_durations[i]);
        assert_fails_with(ENOUGH, text.data, NULL, expected.data);
        buf_clear(&text);
        buf_clear(&expected);
    }
    for (size_t i = 0; i < sizeof no_sizes / sizeof no_sizes[0]; i++) {
        struct buf text = {0}, expected = {0};

        buf_printf(&text, "[worker]\nmax_bytes = \"%s\"", no_sizes[i]);
        buf_printf(
            &expected,
            "f:12:1: worker.max_bytes: \"%s\" is not a size: digits and B, kB, KiB, MB, MiB, "
            "GB, GiB, like \"64MiB\"",
            no_sizes[i]);
        assert_fails_with(ENOUGH, text.data, NULL, expected.data);
        buf_clear(&text);
        buf_clear(&expected);
    }
}

static void what_does_not_fit_together(void **state)
{
    static const struct mistake mistakes[] = {
        {"[worker]\nbatch = 10\nmax_records = 9",
         "f:13:1: worker.max_records: 9 is below worker.batch (10): no bulk could ever be full"},
        {"[retry]\nfirst = \"2s\"\nmax = \"1s\"",
         "f:12:1: retry.first: 2000 ms is above retry.max (1000 ms)"},
        {"[worker]\ndrain_timeout = \"150s\"",
         "f:12:1: worker.drain_timeout: 150000 ms is not below half of max.poll.interval.ms "
         "(300000 "
         "ms): the group would expel the process while it drains"},
        {"[kafka.properties]\nmax.poll.interval.ms = 16000\n[worker]\ndrain_timeout = \"9s\"",
         "f:14:1: worker.drain_timeout: 9000 ms is not below half of max.poll.interval.ms (16000 "
         "ms): "
         "the group would expel the process while it drains"},
        {"[kafka.properties]\nmax.poll.interval.ms = 16000",
         "f:12:19: worker.drain_timeout: 8000 ms is not below half of max.poll.interval.ms (16000 "
         "ms): "
         "the group would expel the process while it drains"},
        {"[http]\nlisten = \"9464\"",
         "f:12:1: http.listen: is not host:port, like \"127.0.0.1:9464\""},
        {"[http]\nlisten = \":9464\"",
         "f:12:1: http.listen: is not host:port, like \"127.0.0.1:9464\""},
        {"[http]\nlisten = \"h:65536\"",
         "f:12:1: http.listen: is not host:port, like \"127.0.0.1:9464\""},
        {"[http]\nlisten = \"u:S3cr3t@h:80\"",
         "f:12:1: http.listen: is not host:port, like \"127.0.0.1:9464\""},
        {"[http]\nlisten = \"S3cr3t@h:80\"",
         "f:12:1: http.listen: is not host:port, like \"127.0.0.1:9464\""},
        {"[http]\nlisten = \"h:x\"",
         "f:12:1: http.listen: is not host:port, like \"127.0.0.1:9464\""},
        {"[http]\nlisten = \"::1:80\"",
         "f:12:1: http.listen: is not host:port, like \"127.0.0.1:9464\""},
        {"[http]\nlisten = \"[]:80\"",
         "f:12:1: http.listen: is not host:port, like \"127.0.0.1:9464\""},
        {"[redis]\nuri = \"h:6379\"",
         "f:12:1: redis.uri: has to start with redis://, rediss:// or unix://"},
        {"[dead_letter]\ntopic = \"dead\"\non_bad_record = \"stop\"",
         "f:13:1: dead_letter.on_bad_record: has no meaning together with dead_letter.topic: bad "
         "records go to the topic, so neither stop nor skip applies; remove one of the two"},
        {"[dead_letter]\ntopic = \"^dead\"",
         "f:12:1: dead_letter.topic: has to be one topic, not a regex"},
        {"[dead_letter]\ntopic = \"a b\"", "f:12:1: dead_letter.topic: \"a b\" is not a topic "
                                           "name: letters, digits, '.', '_' and '-' (a "
                                           "regex starts with ^)"},
        {"[dead_letter]\ntopic = \"t\"", "f:7:11: route.topics: \"t\" takes the dead-letter topic "
                                         "\"t\" too: every dead letter would "
                                         "be read again"},
    };
    static const struct mistake mongo[] = {
        {"[mongo]\nuri = \"h:27017\"",
         "f:2:1: mongo.uri: has to start with mongodb:// or mongodb+srv://"},
        {MONGO "write_concern = \"\"", "f:3:1: mongo.write_concern: is empty"},
        {MONGO "write_concern = \"0\"", "f:3:1: mongo.write_concern: \"0\" members: has to be 1 to "
                                        "50, as without an acknowledgement "
                                        "nothing could be committed"},
        {MONGO "write_concern = \"-1\"", "f:3:1: mongo.write_concern: \"-1\" members: has to be 1 "
                                         "to 50, as without an acknowledgement "
                                         "nothing could be committed"},
        {MONGO "write_timeout = \"10s\"",
         "f:3:1: mongo.write_timeout: 10000 ms is not below mongo.socket_timeout (10000 ms): the "
         "server's answer would always come too late"},
    };

    (void)state;
    ASSERT_ALL(ENOUGH, mistakes);
    for (size_t i = 0; i < sizeof mongo / sizeof mongo[0]; i++) {
        struct buf text = {0};

        buf_printf(&text, "%s\n%s", mongo[i].text, KAFKA ROUTE DEDUP);
        assert_fails_with("", text.data, NULL, mongo[i].expected);
        buf_clear(&text);
    }
}

static void properties_that_are_ours(void **state)
{
    static const struct mistake mistakes[] = {
        {"enable.auto.commit = false",
         "enable.auto.commit: it can't be set: offsets are committed only "
         "after MongoDB's acknowledgement"},
        {"auto.commit.enable = false",
         "auto.commit.enable: it can't be set: offsets are committed only "
         "after MongoDB's acknowledgement"},
        {"enable.auto.offset.store = true",
         "enable.auto.offset.store: it can't be set: offsets are "
         "committed only after MongoDB's acknowledgement"},
        {"enable.partition.eof = true",
         "enable.partition.eof: it can't be set: it is needed to see the "
         "end of a partition, and is always on"},
        {"isolation.level = \"read_uncommitted\"",
         "isolation.level: \"read_uncommitted\" can't be set: "
         "records of aborted transactions would be stored"},
        {"enable.idempotence = true",
         "enable.idempotence: it can't be set: dead letters are always written idempotently"},
        {"acks = 1",
         "acks: it can't be set: a dead letter is settled only after all in-sync replicas "
         "have it"},
        {"request.required.acks = 1",
         "request.required.acks: it can't be set: a dead letter is settled "
         "only after all in-sync replicas have it"},
        {"transactional.id = \"x\"",
         "transactional.id: it can't be set: dead letters are not written in transactions"},
        {"group.id = \"x\"", "group.id: it can't be set: it is kafka.group"},
        {"bootstrap.servers = \"x\"", "bootstrap.servers: it can't be set: they are kafka.brokers"},
        {"metadata.broker.list = \"x\"",
         "metadata.broker.list: it can't be set: they are kafka.brokers"},
        {"group.instance.id = \"x\"",
         "group.instance.id: it can't be set: it is kafka.instance_id"},
        {"client.id = \"x\"", "client.id: it can't be set: it is kafka.client_id"},
        {"rebalance_cb = \"x\"",
         "rebalance_cb: it can't be set: callbacks are code, and are idemsink's own"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        for (int quoted = 0; quoted < 2; quoted++) {
            struct buf text = {0}, expected = {0};
            size_t name = strcspn(mistakes[i].text, " "), column = 1, last = 0;

            /* client.id is a table client with id, and the place is that of the last name. */
            for (size_t j = 0; !quoted && j < name; j++)
                if (mistakes[i].text[j] == '.')
                    last = j + 1;
            column += last;
            buf_printf(&text, "[kafka.properties]\n%s%.*s%s%s", quoted ? "\"" : "", (int)name,
                       mistakes[i].text, quoted ? "\"" : "", mistakes[i].text + name);
            buf_printf(&expected, "f:12:%zu: kafka.properties.%s", column, mistakes[i].expected);
            assert_fails_with(ENOUGH, text.data, NULL, expected.data);
            buf_clear(&text);
            buf_clear(&expected);
        }
    assert_fails_with(ENOUGH, "[kafka.properties]\n\"a.b\" = 1\na.b = 2", NULL,
                      "f:12:1: kafka.properties.a.b: is there twice, as a name with dots and as a "
                      "table");
}

static bool no_property(const char *name, const char *value, struct buf *why, struct buf *known)
{
    if (strncmp(name, "fetch.", 6) == 0 && strcmp(name, "fetch.min.bytes") != 0)
        buf_add_text(known, "group.id|fetch.min.bytes|linger.ms");
    else if (strcmp(value, "bad") == 0)
        buf_printf(why, "\"%s\" is no value of it", value);
    return why->len + known->len == 0;
}

static bool no_uri(const char *uri, struct buf *why)
{
    if (strstr(uri, "bad"))
        buf_add_text(why, "is not understood");
    return why->len == 0;
}

static void brokers(void **state)
{
    static const char *const good[] = {"h",       "h:1",         "h:65535",
                                       "a:1,b:2", " a:1 , b:2 ", "[::1]:9092",
                                       "[::1]",   "SSL://h:1",   "127.0.0.1"};
    static const struct mistake bad[] = {
        {"h:", "h:"},
        {"h:x", "h:x"},
        {"h:0", "h:0"},
        {"h:65536", "h:65536"},
        {"h:909200", "h:909200"},
        {":9092", ":9092"},
        {"a:1,", ""},
        {"a:1,,b:1", ""},
        {",", ""},
        {"a:1;b:1", "a:1;b:1"},
        {"a b", "a b"},
        {"::1", "::1"},
        {"[::1", "[::1"},
        {"[]:1", "[]:1"},
        {"kafka://h/x", "kafka://h/x"},
        {" ", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct buf text = {0};
        struct err e = {0};

        buf_printf(&text, "[kafka]\nbrokers = \"%s\"\ngroup = \"g\"\n" MONGO ROUTE DEDUP, good[i]);
        struct config *c = config_parse(
            &(struct config_input){.name = "f", .text = slice_of(text.data, text.len)}, &e);
        if (!c)
            fail_msg("%s: %s", good[i], e.text);
        config_free(c);
        buf_clear(&text);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct buf text = {0}, expected = {0};

        buf_printf(&text, "[kafka]\nbrokers = \"%s\"\ngroup = \"g\"\n" MONGO ROUTE DEDUP,
                   bad[i].text);
        buf_printf(&expected, "f:2:1: kafka.brokers: \"%s\" is not host:port", bad[i].expected);
        assert_fails_with("", text.data, NULL, expected.data);
        buf_clear(&text);
        buf_clear(&expected);
    }
}

/* Names and URIs that the libraries refuse: with the place, and without a secret. */
static void what_the_libraries_refuse(void **state)
{
    static const struct mistake mistakes[] = {
        {"[kafka.properties]\n\"fetch.min.byte\" = 5",
         "f:12:1: kafka.properties.fetch.min.byte: librdkafka knows no such property; did you mean "
         "\"fetch.min.bytes\"?"},
        {"[kafka.properties]\n\"fetch.something.else\" = 5",
         "f:12:1: kafka.properties.fetch.something.else: librdkafka knows no such property"},
        {"[kafka.properties]\n\"linger.ms\" = \"bad\"",
         "f:12:1: kafka.properties.linger.ms: \"bad\": \"bad\" is no value of it"},
        {"[kafka.properties]\n\"ssl.key.password\" = \"bad\"",
         "f:12:1: kafka.properties.ssl.key.password: librdkafka refuses the value"},
        {"[redis]\nuri = \"redis://user:bad@h\"", "f:12:1: redis.uri: is not understood"},
    };

    (void)state;
    drivers =
        (struct config_drivers){.property = no_property, .mongo_uri = no_uri, .redis_uri = no_uri};
    ASSERT_ALL(ENOUGH, mistakes);
    assert_fails_with(KAFKA "[mongo]\nuri = \"mongodb://u:bad@h/\"\n" ROUTE DEDUP, "", NULL,
                      "f:5:1: mongo.uri: is not understood");
    drivers = (struct config_drivers){0};
}

static void topics_with_two_ways(void **state)
{
    static const struct mistake mistakes[] = {
        {"[[route]]\nname = \"x\"\ntopics = [\"u\", \"t\"]\ncollection = \"d.e\"\ndedup.key = "
         "[\"id\"]",
         "f:13:16: route.topics: \"t\" overlaps with \"t\" of route \"d.c\": a topic belongs to "
         "one "
         "route"},
        {"[[route]]\ntopics = [\"^.$\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]",
         "f:12:11: route.topics: \"^.$\" overlaps with \"t\" of route \"d.c\": a topic belongs to "
         "one "
         "route"},
        {"[[route]]\ntopics = [\"^u\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]\n"
         "[[route]]\ntopics = [\"^u\"]\ncollection = \"d.f\"\ndedup.key = [\"id\"]",
         "f:16:11: route.topics: \"^u\" overlaps with \"^u\" of route \"d.e\": a topic belongs to "
         "one "
         "route"},
        {"[[route]]\ntopics = [\"^u.*[.]eu$\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]\n"
         "[[route]]\ntopics = [\"^us\"]\ncollection = \"d.f\"\ndedup.key = [\"id\"]",
         "f:16:11: route.topics: \"^us\" overlaps with \"^u.*[.]eu$\" of route \"d.e\": both take "
         "\"us.eu\", and a topic belongs to one route"},
        {"[[route]]\ntopics = [\"^u\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]\n"
         "[[route]]\ntopics = [\"u1\"]\ncollection = \"d.f\"\ndedup.key = [\"id\"]",
         "f:16:11: route.topics: \"u1\" overlaps with \"^u\" of route \"d.e\": a topic belongs to "
         "one "
         "route"},
        {"[[route]]\ntopics = [\"^u\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]\n"
         "[dead_letter]\ntopic = \"u.dead\"",
         "f:12:11: route.topics: \"^u\" takes the dead-letter topic \"u.dead\" too: every dead "
         "letter "
         "would be read again"},
        {"[[route]]\ntopics = [\"u\", \"^v\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]",
         "f:12:16: route.topics: a regex stands alone; make another [[route]] for the rest"},
        {"[[route]]\ntopics = [\"^(\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]",
         "f:12:11: route.topics: \"^(\" is not a POSIX extended regular expression"},
        {"[[route]]\ntopics = [\"^((a{255}){255}){255}\"]\ncollection = \"d.e\"\ndedup.key = "
         "[\"id\"]",
         "f:12:11: route.topics: \"^((a{255}){255}){255}\" repeats more than 1000 times"},
        {"[[route]]\ntopics = [\"a/b\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]",
         "f:12:11: route.topics: \"a/b\" is not a topic name: letters, digits, '.', '_' and '-' (a "
         "regex starts with ^)"},
        {"[[route]]\ntopics = [\"__consumer_offsets\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]",
         "f:12:11: route.topics: \"__consumer_offsets\" is Kafka's own topic, which is never read "
         "as input"},
        {"[[route]]\ntopics = [\"..\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]",
         "f:12:11: route.topics: \"..\" is not a topic name"},
    };

    (void)state;
    ASSERT_ALL(ENOUGH, mistakes);
}

static void collections_and_names(void **state)
{
    static const struct mistake mistakes[] = {
        {"c", "f:3:1: route.collection: \"c\" has to be database.collection"},
        {".c", "f:3:1: route.collection: \".c\" has to be database.collection"},
        {"d.", "f:3:1: route.collection: \"d.\" has to be database.collection"},
        {"d d.c",
         "f:3:1: route.collection: \"d d.c\" is not a database name (64 bytes or more, or one "
         "of /\\ \"$*<>:|?)"},
        {"d.system.x",
         "f:3:1: route.collection: \"d.system.x\" is not a collection that documents can go to"},
        {"d.a$b",
         "f:3:1: route.collection: \"d.a$b\" is not a collection that documents can go to"},
        {"d..a", "f:3:1: route.collection: \"d..a\" is not a collection that documents can go to"},
    };
    static const struct mistake names[] = {
        {"name = \"12\"",
         "f:4:1: route.name: \"12\" is a number, and --set counts routes by number"},
        {"name = \"a\\u0007b\"", "f:4:1: route.name: has a control character"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        struct buf text = {0};

        buf_printf(&text, "[[route]]\ntopics = [\"t\"]\ncollection = \"%s\"\n%s", mistakes[i].text,
                   DEDUP KAFKA MONGO);
        assert_fails_with("", text.data, NULL, mistakes[i].expected);
        buf_clear(&text);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct buf text = {0};

        buf_printf(&text, "%s%s\n%s", ROUTE, names[i].text, DEDUP KAFKA MONGO);
        assert_fails_with("", text.data, NULL, names[i].expected);
        buf_clear(&text);
    }
    assert_fails_with(
        ENOUGH, "[[route]]\ntopics = [\"u\"]\ncollection = \"d.c\"\ndedup.key = [\"id\"]", NULL,
        "f:11:1: route.name: two routes are called \"d.c\" (without a name a route is "
        "called as its collection); give one of them another name");
}

static void sources_and_paths(void **state)
{
    static const struct mistake mistakes[] = {
        {"order_by = \"@offset\"", "f:9:1: route.order_by: \"@offset\" is not possible here: @key, "
                                   "@partition, @dedup, @header.NAME or a value path"},
        {"order_by = \"@header.\"", "f:9:1: route.order_by: \"@header.\" names no header"},
        {"order_by = \"a..b\"",
         "f:9:1: route.order_by: \"a..b\" has an empty name between its dots"},
        {"order_by = \"\"", "f:9:1: route.order_by: \"\" is an empty path"},
        {"include = [\"a\", \"b.\"]",
         "f:9:17: route.include: \"b.\" has an empty name between its dots"},
        {"include = [\"a\", \"a.b\"]",
         "f:9:17: route.include: \"a.b\" and \"a\": one covers the other"},
        {"exclude = [\"@key\"]",
         "f:9:12: route.exclude: \"@key\" is a source, and a path is needed here"},
        {"include = [\"a\"]\nexclude = [\"b\"]",
         "f:10:1: route.exclude: include says what is stored, so exclude has nothing to say; use "
         "one of "
         "them"},
        {"under = \"a.$b\"",
         "f:9:1: route.under: \"a.$b\" has a name that starts with $, which MongoDB "
         "keeps for itself"},
        {"source_fields = \".a\"",
         "f:9:1: route.source_fields: \".a\" has an empty name between its dots"},
        {"under = \"a\"\nsource_fields = \"a.b\"",
         "f:10:1: route.source_fields: collides with \"a\", where under puts the payload"},
        {"types.a.\"\" = \"date\"",
         "f:9:7: route.types.a: \"a.\" has an empty name between its dots"},
        {"rename.a = \"b.\"", "f:9:8: route.rename.a: \"b.\" has an empty name between its dots"},
        {"rename.\"\" = \"b\"", "f:9:1: route.rename: \"\" is an empty path"},
        {"rename.a = \"b\"\nrename.c = \"b.d\"",
         "f:10:8: route.rename.c: \"b.d\" collides with \"b\", the new path of a"},
        {"types.a = \"date\"\ntypes.\"a.b\" = \"long\"",
         "f:10:7: route.types.a.b: covers, or is covered by, \"a\""},
        {"rename.a = \"b\"\nrename.\"a.b\" = \"d\"",
         "f:10:8: route.rename.a.b: covers, or is covered by, \"a\""},
        {"set.\"$a\" = 1",
         "f:9:5: route.set.$a: \"$a\" has a name that starts with $, which MongoDB "
         "keeps for itself"},
        {"set.a = \"@dedup\"", "f:9:5: route.set.a: \"@dedup\" is not possible here: @topic, "
                               "@partition, @offset, @timestamp, "
                               "@key or @header.NAME (a text that starts with @ is written @@...)"},
        {"set.a = 1\nset.\"a.b\" = 2",
         "f:10:5: route.set.a.b: collides with \"a\", also in [route.set]"},
        {"under = \"doc\"\nset.doc.a = 2",
         "f:10:9: route.set.doc.a: collides with \"doc\", where under puts the payload"},
        {"source_fields = \"src\"\nset.src = 2",
         "f:10:5: route.set.src: collides with \"src\", which is source_fields"},
        {"set.id = 2", "f:9:5: route.set.id: collides with \"id\", a field of the dedup key"},
        {"source_fields = \"id\"", "f:9:1: route.dedup.fields: \"id\" collides with source_fields"},
        {"set._id = 1", "f:9:5: route.set._id: every document would have this one _id, and only "
                        "the first could be stored"},
        {"rename.a = \"id\"",
         "f:9:8: route.rename.a: \"id\" collides with \"id\", a field of the dedup key"},
        {"rename.a = \"id.x\"",
         "f:9:8: route.rename.a: \"id.x\" collides with \"id\", a field of the dedup key"},
        {"rename.a = \"s.x\"\nset.s = 1",
         "f:9:8: route.rename.a: \"s.x\" collides with \"s\", where [route.set] puts something"},
        {"rename.a = \"src\"\nsource_fields = \"src\"",
         "f:9:8: route.rename.a: \"src\" collides with \"src\", which is source_fields"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        struct buf text = {0}, expected = {0};

        buf_printf(&text, "%s\n%s", mistakes[i].text, DEDUP);
        buf_add_text(&expected, mistakes[i].expected);
        /* without dedup.fields the place of its default is the nearest: the section in the line
         * behind */
        if (strstr(mistakes[i].expected, "route.dedup.fields")) {
            buf_reset(&expected);
            buf_printf(&expected, "f:10:8:%s", strchr(mistakes[i].expected, ' '));
        }
        assert_fails_with(KAFKA MONGO ROUTE, text.data, NULL, expected.data);
        buf_clear(&text);
        buf_clear(&expected);
    }
}

/* What we put into a document ourselves never meets. */
static void places_that_are_taken(void **state)
{
    static const char prefix[] = KAFKA MONGO ROUTE;
    static const struct mistake mistakes[] = {
        {"dedup = {key = [\"id\"], conflict = \"count\", conflict_field = \"a.b\"}",
         "f:9:44: route.dedup.conflict_field: \"a.b\" is no name of its own at the top of the "
         "document"},
        {"dedup = {key = [\"id\"], conflict = \"count\", conflict_field = \"_id\"}",
         "f:9:44: route.dedup.conflict_field: \"_id\" is no name of its own at the top of the "
         "document"},
        {"dedup = {key = [\"id\"], conflict = \"count\", conflict_field = \"\"}",
         "f:9:44: route.dedup.conflict_field: \"\" is an empty path"},
        {"dedup = {key = [\"id\"], conflict = \"count\", conflict_field = \"$h\"}",
         "f:9:44: route.dedup.conflict_field: \"$h\" has a name that starts with $, which MongoDB "
         "keeps for itself"},
        {"dedup = {key = [\"id.x\"], conflict = \"count\", conflict_field = \"id\"}",
         "f:9:46: route.dedup.conflict_field: \"id\" collides with \"id.x\", a field of the dedup "
         "key"},
        {"dedup = {key = [\"id\"], conflict = \"count\"}\nsource_fields = \"_payload_hash\"",
         "f:9:1: route.dedup.conflict_field: \"_payload_hash\" collides with \"_payload_hash\", "
         "which is source_fields"},
        {"dedup = {key = [\"id\"], conflict = \"count\"}\nset._payload_hash = 1",
         "f:10:5: route.set._payload_hash: collides with \"_payload_hash\", which is "
         "dedup.conflict_field"},
        {"dedup = {key = [\"id\"], conflict = \"count\"}\nrename.a = \"_payload_hash\"",
         "f:10:8: route.rename.a: \"_payload_hash\" collides with \"_payload_hash\", which is "
         "dedup.conflict_field"},
        {"dedup = {key = [\"id\"], conflict = \"count\"}\nunder = \"_payload_hash.x\"",
         "f:9:1: route.dedup.conflict_field: \"_payload_hash\" collides with "
         "\"_payload_hash.x.id\", a field of the dedup key"},
        {"dedup = {key = [\"@key\"], fields = [\"k\"], conflict = \"count\"}\n"
         "under = \"_payload_hash\"",
         "f:9:1: route.dedup.conflict_field: \"_payload_hash\" collides with \"_payload_hash\", "
         "where under puts the payload"},
        {"dedup = {key = [\"id\"], into = \"_id\"}\nunder = \"_id\"",
         "f:10:1: route.under: _id is the dedup key (dedup.into = \"_id\")"},
        {"dedup = {key = [\"id\"], into = \"_id\"}\nsource_fields = \"_id\"",
         "f:10:1: route.source_fields: _id is the dedup key (dedup.into = \"_id\")"},
        {"dedup = {key = [\"id\"], into = \"_id\"}\nrename.other = \"_id\"",
         "f:10:8: route.rename.other: \"_id\" collides with \"_id\", which is the dedup key "
         "(dedup.into = \"_id\")"},
    };

    (void)state;
    ASSERT_ALL(prefix, mistakes);
    assert_fails_with(ENOUGH,
                      "[[route]]\nname = \"two\"\ntopics = [\"u\"]\ncollection = \"d.c\"\n"
                      "dedup = {key = [\"id\"], conflict = \"count\"}",
                      NULL,
                      "f:15:24: route.dedup.conflict: route \"d.c\" goes into the same collection "
                      "d.c with another conflict or conflict_field: both need the same");
}

/* Renames that move the key itself, and fields that nothing of ours is at. */
static void places_that_are_free(void **state)
{
    static const char *const texts[] = {
        "dedup = {key = [\"id\"], into = \"_id\"}\nrename.id = \"_id\"",
        "dedup = {key = [\"id\"]}\nrename.id = \"key\"",
        "dedup = {key = [\"order.id\"]}\nrename.order = \"o\"",
        "dedup = {key = [\"id\"]}\nset._id = \"@key\"",
        "dedup = {key = [\"id\"]}\nset._payload_hash = 1", /* the check is off */
        ("dedup = {key = [\"id\"], conflict = \"dead_letter\"}\nunder = \"p\"\nrename.a = "
         "\"_payload_hash\""),
        "dedup = {key = [\"id\"]}\nwrite = \"auto\"",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct buf text = {0};
        struct err e = {0};

        buf_printf(&text, "%s%s", KAFKA MONGO ROUTE, texts[i]);
        struct config *c = config_parse(
            &(struct config_input){.name = "f", .text = slice_of(text.data, text.len)}, &e);
        if (!c)
            fail_msg("%s: %s", texts[i], e.text);
        config_free(c);
        buf_clear(&text);
    }
}

static void dedup_keys(void **state)
{
    static const struct mistake mistakes[] = {
        {"key = [\"@partition\"]",
         "f:10:8: route.dedup.key: \"@partition\" is not possible here: @key, "
         "@header.NAME, @offset or a value path"},
        {"key = [\"a\", \".b\"]",
         "f:10:13: route.dedup.key: \".b\" has an empty name between its dots"},
        {"key = [\"a\", \"@key\"]", "f:10:13: route.dedup.key: \"@key\" has no place in the "
                                    "document: name one for each part with "
                                    "dedup.fields, or set dedup.into = \"_id\""},
        {"key = [\"a\", \"a.b\"]", "f:9:8: route.dedup.fields: \"a.b\" collides with \"a\""},
        {"key = [\"a\"]\nfields = [\"x\", \"y\"]",
         "f:11:1: route.dedup.fields: has 2 paths, and dedup.key has 1 parts: one each"},
        {"key = [\"a\"]\nfields = [\"x.\"]",
         "f:11:11: route.dedup.fields: \"x.\" has an empty name between its dots"},
        {"key = [\"a\"]\nfields = [\"$x\"]",
         "f:11:11: route.dedup.fields: \"$x\" has a name that starts "
         "with $, which MongoDB keeps for itself"},
        {"key = [\"a\", \"b\"]\nfields = [\"x\", \"x.y\"]",
         "f:11:16: route.dedup.fields: \"x.y\" collides with \"x\""},
        {"key = [\"a\"]\nfields = [\"_id\"]",
         "f:11:11: route.dedup.fields: \"_id\": for an identity that is the document's _id set "
         "dedup.into = \"_id\""},
        {"key = [\"a\"]\nfields = [\"x\"]\ninto = \"_id\"",
         "f:11:1: route.dedup.fields: has no meaning together with dedup.into = \"_id\""},
        {"into = \"_id\"\nkey = [\"a.b\", \"a_b\"]",
         "f:11:15: route.dedup.key: \"a_b\" and \"a.b\" would have one name in the sub-document "
         "that is _id "
         "(\"@\" is left out, \".\" and \"$\" are \"_\" there)"},
        {"into = \"_id\"\nkey = [\"x\", \"key\", \"@key\"]",
         "f:11:20: route.dedup.key: \"@key\" and \"key\" would have one name in the sub-document "
         "that is _id "
         "(\"@\" is left out, \".\" and \"$\" are \"_\" there)"},
        {"key = [\"a\"]\ninto = \"_id\"\n[route.set]\n_id = 1",
         "f:13:1: route.set._id: _id is the dedup key (dedup.into = \"_id\")"},
    };
    static const struct mistake under[] = {
        {"under = \"doc\"\ndedup = {key = [\"@key\"], fields = [\"doc\"]}",
         "\"doc\" is taken: under puts the payload at \"doc\""},
        {"under = \"a.b\"\ndedup = {key = [\"@key\"], fields = [\"a\"]}",
         "\"a\" is taken: under puts the payload at \"a.b\""},
    };
    static const struct mistake shared[] = {
        {"dedup.key = [\"other\"]", "f:15:1"},
        {"dedup = {key = [\"id\", \"b\"]}", "f:15:1"},
        {"dedup = {key = [\"id\"], into = \"_id\"}", "f:15:1"},
        {"dedup = {key = [\"id\"], fields = [\"x\"]}", "f:15:1"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        struct buf text = {0};

        buf_printf(&text, "[route.dedup]\n%s", mistakes[i].text);
        assert_fails_with(KAFKA MONGO ROUTE, text.data, NULL, mistakes[i].expected);
        buf_clear(&text);
    }
    for (size_t i = 0; i < sizeof under / sizeof under[0]; i++) {
        char expected[200];

        snprintf(expected, sizeof expected,
                 "f:10:36: route.dedup.fields: %s; choose a path beside or below that",
                 under[i].expected);
        assert_fails_with(KAFKA MONGO ROUTE, under[i].text, NULL, expected);
    }
    for (size_t i = 0; i < sizeof shared / sizeof shared[0]; i++) {
        struct buf text = {0}, expected = {0};

        buf_printf(&text, "[[route]]\nname = \"two\"\ntopics = [\"u\"]\ncollection = \"d.c\"\n%s",
                   shared[i].text);
        buf_printf(&expected,
                   "%s: route.dedup: route \"d.c\" goes into the same collection d.c with another "
                   "dedup key: both need the same fields in the same order",
                   shared[i].expected);
        assert_fails_with(ENOUGH, text.data, NULL, expected.data);
        buf_clear(&text);
        buf_clear(&expected);
    }
}

static void invalidations(void **state)
{
    static const struct mistake mistakes[] = {
        {"mode = \"pubsub\"\npayload = \"{}\"",
         "f:13:1: route.invalidate.channel: is missing, and this mode needs it"},
        {"mode = \"pubsub\"\nchannel = \"c\"",
         "f:13:1: route.invalidate.payload: is missing, and this mode needs it"},
        {"mode = \"pubsub\"\nchannel = \"c\"\npayload = \"{}\"\nkeys = [\"k\"]",
         "f:17:1: route.invalidate.keys: has no meaning for mode = \"pubsub\""},
        {"mode = \"unlink\"", "f:13:1: route.invalidate.keys: is missing, and this mode needs it"},
        {"mode = \"unlink\"\nkeys = [\"k\"]\nflavor = 1",
         "f:16:1: route.invalidate.flavor: has no meaning for mode = \"unlink\""},
        {"mode = \"monsqlize\"\npayload = \"{}\"",
         "f:15:1: route.invalidate.payload: has no meaning for mode = \"monsqlize\""},
        {"mode = \"monsqlize\"\nflavor = 2",
         "f:15:1: route.invalidate.flavor: 2 is neither 1 nor 3"},
        {"mode = \"monsqlize\"\nbookmarks = true",
         "f:15:1: route.invalidate.bookmarks: needs flavor = 3"},
        {"mode = \"monsqlize\"\nkeys = [\"k\"]",
         "f:15:1: route.invalidate.keys: exact keys need flavor = 3; receivers of version 1.x know "
         "patterns only"},
        {"mode = \"monsqlize\"\ndelivery = \"before_commit\"\ncoalesce = \"4001ms\"",
         "f:16:1: route.invalidate.coalesce: 4001 ms is more than half of worker.drain_timeout "
         "(8000 ms): with delivery = \"before_commit\" offsets wait for the end of this time, and "
         "so would every rebalance; make it shorter"},
        {"mode = \"monsqlize\"\nflavor = \"3\"",
         "f:13:1: route.invalidate.keys: neither keys nor patterns: there is nothing to send"},
        {"mode = \"monsqlize\"\ncollections = [\"users\"]",
         "f:15:16: route.invalidate.collections: \"users\" is not database.collection"},
        {"mode = \"monsqlize\"\ncollections = [\"a.b\", \"a.*\"]",
         "f:15:23: route.invalidate.collections: \"a.*\" holds a wildcard, which a pattern can't "
         "quote"},
        {"mode = \"monsqlize\"\ncollections = [\"a.b\", \"a.b\"]",
         "f:15:23: route.invalidate.collections: \"a.b\" is there twice"},
        {"mode = \"unlink\"\nkeys = [\"k\"]\ncollections = [\"a.b\"]",
         "f:16:1: route.invalidate.collections: has no meaning for mode = \"unlink\""},
        {"mode = \"monsqlize\"\npatterns = false",
         "f:13:1: route.invalidate.keys: neither keys nor patterns: there is nothing to send"},
        {"mode = \"monsqlize\"\nflavor = 3\npatterns = true",
         "f:16:1: route.invalidate.patterns: two or more multi-level receivers of version 3.x send "
         "every pattern on to each other for ever; use keys, or set receivers_echo_safe = true "
         "when "
         "yours do not"},
        {"mode = \"monsqlize\"\nflavor = 3\nkeys = [\"k\"]\nbookmarks = true",
         "f:17:1: route.invalidate.bookmarks: two or more multi-level receivers of version 3.x "
         "send "
         "every pattern on to each other for ever; use keys, or set receivers_echo_safe = true "
         "when "
         "yours do not"},
        {"mode = \"version\"", "f:13:1: route.invalidate.keys: is missing, and this mode needs it"},
        {"mode = \"version\"\nkeys = [\"g\"]\nexpire = \"999ms\"",
         "f:16:1: route.invalidate.expire: 999 ms is below the minimum 1s: a generation key has to "
         "live longer than every cache entry that has its number; 0s: for ever"},
        {"mode = \"version\"\nkeys = [\"g\"]\nmaxlen = 10",
         "f:16:1: route.invalidate.maxlen: has no meaning for mode = \"version\""},
        {"mode = \"unlink\"\nkeys = [\"g\"]\nexpire = \"1h\"",
         "f:16:1: route.invalidate.expire: has no meaning for mode = \"unlink\""},
        {"mode = \"version\"\nkeys = [\"g{\"]",
         "f:15:9: route.invalidate.keys: template \"g{\": \"{\" without \"}\""},
        {"mode = \"stream\"\npayload = \"{}\"",
         "f:13:1: route.invalidate.stream: is missing, and this mode needs it"},
        {"mode = \"stream\"\nstream = \"\"\npayload = \"{}\"",
         "f:15:1: route.invalidate.stream: is missing, and this mode needs it"},
        {"mode = \"stream\"\nstream = \"s\"",
         "f:13:1: route.invalidate.payload: is missing, and this mode needs it"},
        {"mode = \"stream\"\nstream = \"s\"\npayload = \"{}\"\nchannel = \"c\"",
         "f:17:1: route.invalidate.channel: has no meaning for mode = \"stream\""},
        {"mode = \"stream\"\nstream = \"s\"\npayload = \"{}\"\nmaxlen = 0",
         "f:17:1: route.invalidate.maxlen: 0 is below the minimum 1"},
        {"mode = \"stream\"\nstream = \"s}\"\npayload = \"{}\"",
         "f:15:1: route.invalidate.stream: template \"s}\": \"}\" without \"{\" (write \"}}\" for "
         "a brace)"},
        {"mode = \"stream\"\nstream = \"s\"\npayload = \"x\"",
         "f:16:1: route.invalidate.payload: template \"x\": invalid token near 'x'"},
        {"mode = \"unlink\"\nkeys = [\"a\", \"k:{id\"]",
         "f:15:14: route.invalidate.keys: template \"k:{id\": \"{\" without \"}\""},
        {"mode = \"pubsub\"\nchannel = \"c}\"\npayload = \"{}\"",
         "f:15:1: route.invalidate.channel: template \"c}\": \"}\" without \"{\" (write \"}}\" for "
         "a "
         "brace)"},
        {"mode = \"pubsub\"\nchannel = \"c\"\npayload = \"null\"",
         "f:16:1: route.invalidate.payload: template \"null\": a payload of null says nothing"},
    };

    (void)state;
    assert_fails_with(ENOUGH,
                      REDIS "[[route.invalidate]]\nmode = \"monsqlize\"\nflavor = 3\n"
                            "keys = [\"k\"]\ncollections = [\"a.b\"]",
                      NULL,
                      "f:17:1: route.invalidate.collections: has no meaning without patterns or "
                      "bookmarks: keys name what they mean");
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++) {
        struct buf text = {0};

        buf_printf(&text, "%s[[route.invalidate]]\n%s", REDIS, mistakes[i].text);
        assert_fails_with(ENOUGH, text.data, NULL, mistakes[i].expected);
        buf_clear(&text);
    }
    assert_fails_with(ENOUGH, REDIS "[[route.invalidate]]\nmode = \"monsqlize\"\n",
                      "route.0.collection=d.a*",
                      "f:13:1: route.invalidate.patterns: the name d.a* holds a wildcard, which a "
                      "pattern can't quote; use keys (flavor = 3)");
    assert_fails_with(ENOUGH, "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"k\"]", NULL,
                      "f:11:1: route.invalidate: needs redis.uri, and there is none");
}

static void the_seen_cache(void **state)
{
    static const struct mistake mistakes[] = {
        {"[route.seen]\nttl = \"1m\"", "f:12:1: route.seen.ttl: has no meaning without "
                                       "seen.entries"},
        {"[route.seen]\nentries = 10\nredis = \"s:\"",
         "f:13:1: route.seen.redis: needs redis.uri, and there is none"},
        {"[route.seen]\nentries = 10\ndrop_on = \"c\"",
         "f:13:1: route.seen.drop_on: needs redis.uri, and there is none"},
        {"[route.entity]\nkey = [\"a\"]\n[route.operation]\nsource = \"what\"\n"
         "insert = [\"i\"]\ndelete = [\"d\"]\nledger_expire = \"5m\"\n[route.seen]\n"
         "entries = 10\nttl = \"5m\"",
         "f:20:1: route.seen.ttl: 300000 ms is not below operation.ledger_expire (300000 ms): "
         "the cache would remember an event that the ledger has forgotten"},
    };
    static const struct mistake prefixes[] = {
        {"[route.seen]\nentries = 10\nredis = \"s:{rout}:\"",
         "f:15:1: route.seen.redis: of braces only {route} is understood: the name of the route"},
        {"[route.seen]\nentries = 10\nredis = \"s:{route}}\"",
         "f:15:1: route.seen.redis: of braces only {route} is understood: the name of the route"},
    };
    static const char weak[] =
        "f:12:1: route.seen.entries: needs mongo.write_concern = \"majority\" and mongo.journal = "
        "true: with less, a failover can take back what is remembered as stored, and its next "
        "delivery would be dropped as a duplicate";

    (void)state;
    ASSERT_ALL(ENOUGH, mistakes);
    ASSERT_ALL(REDIS ENOUGH, prefixes);
    assert_fails_with(ENOUGH, "[route.seen]\nentries = 10", "mongo.write_concern=2", weak);
    assert_fails_with(ENOUGH, "[route.seen]\nentries = 10", "mongo.journal=false", weak);
}

static void the_environment(void **state)
{
    static const struct mistake mistakes[] = {
        {"[http]\nlisten = \"${NO_SUCH}\"", "f:12:1: http.listen: the environment variable NO_SUCH "
                                            "is not set; ${NO_SUCH:-default} would "
                                            "give a default"},
        {"fields = [\"a\", \"${NO_SUCH}\"]",
         "f:11:16: route.dedup.fields: the environment variable NO_SUCH is not set; "
         "${NO_SUCH:-default} would give a default"},
        {"[kafka.properties]\n\"sasl.password\" = \"${NO_SUCH}\"",
         "f:12:1: kafka.properties.sasl.password: the environment variable NO_SUCH is not set; "
         "${NO_SUCH:-default} would give a default"},
        {"[http]\nlisten = \"${NAME\"",
         "f:12:1: http.listen: ${ without its }; a dollar sign itself is $$"},
        {"[http]\nlisten = \"${}\"",
         "f:12:1: http.listen: after ${ comes NAME} or NAME:-default}; a "
         "dollar sign itself is $$"},
        {"[http]\nlisten = \"${1A}\"",
         "f:12:1: http.listen: after ${ comes NAME} or NAME:-default}; a "
         "dollar sign itself is $$"},
        {"[http]\nlisten = \"${NAME:x}\"", "f:12:1: http.listen: after ${ comes NAME} or "
                                           "NAME:-default}; a dollar sign itself is $$"},
        {"[http]\nlisten = \"${BAD}\"",
         "f:12:1: http.listen: the environment gives something that is not UTF-8"},
        {"[http]\nlisten = \"a\\u0000b\"", "f:12:1: http.listen: holds a NUL"},
        {"[worker]\nthreads = \"${NAME}\"", "f:12:1: worker.threads: \"value\" is not an integer"},
    };

    (void)state;
    ASSERT_ALL(ENOUGH, mistakes);
}

static void overrides(void **state)
{
    static const struct mistake mistakes[] = {
        {"worker.threads", "--set number 1 has no '=': has to be KEY=VALUE"},
        {"worker.threads=0", "--set worker.threads: 0 is below the minimum 1"},
        {"worker.threds=1", "--set worker.threds: unknown key; did you mean \"threads\"?"},
        {"wroker.threads=1", "--set wroker.threads: unknown key; did you mean \"worker\"?"},
        {"nothing=1", "--set nothing: unknown key; known here: kafka, mongo, redis, worker, retry, "
                      "effects, dead_letter, http, log, route"},
        {"=1", "--set : unknown key; known here: kafka, mongo, redis, worker, retry, effects, "
               "dead_letter, http, "
               "log, route"},
        {"route.1.order_by=a",
         "--set route.1.order_by: there is no route number 1, the file has 1 (counted from 0)"},
        {"route.x.order_by=a",
         "--set route.x.order_by: no route has this name; write route.NUMBER.KEY "
         "or route.NAME.KEY"},
        {"route.0.invalidate.0.mode=unlink",
         "--set route.0.invalidate.0.mode: there is no invalidate "
         "number 0, the file has 0 (counted from 0)"},
        {"route.0.oder_by=a", "--set route.0.oder_by: unknown key; did you mean \"order_by\"?"},
        {"route.0.dedup.kee=a", "--set route.0.dedup.kee: unknown key; did you mean \"key\"?"},
        {"route.0.order_by=@offset", "--set route.0.order_by: \"@offset\" is not "
                                     "possible here: @key, @partition, "
                                     "@dedup, @header.NAME or a value path"},
        {"route.0.topics=[\"a\"",
         "--set route.0.topics: the value is not TOML: value:1:9: Error while "
         "parsing array: encountered end-of-file"},
        {"route.0.topics=[\"a\"]\nx = 1", "--set route.0.topics: has to be one value"},
        {"route.0.types=a", "--set route.0.types: write route.0.types.NAME=VALUE"},
        {"route.0.types.a=dat",
         "--set route.0.types.a: \"dat\" is not a type; possible: "
         "date|date_ms|date_s|date_us|objectid|decimal|long|double|uuid|binary|binary_url; did you "
         "mean "
         "\"date\"?"},
        {"kafka.properties.group.id=x", "--set kafka.properties.group.id: it can't be set: it is "
                                        "kafka.group"},
        {"http.listen=\xff", "--set: not valid UTF-8"},
        {"http.listen=${NO_SUCH}", "--set http.listen: the environment variable NO_SUCH is "
                                   "not set; ${NO_SUCH:-default} would give a default"},
        {"mongo.uri=geheim", "--set mongo.uri: has to start with mongodb:// or mongodb+srv://"},
        {"route.0.write=isnert", "--set route.0.write: \"isnert\" is not known; possible: "
                                 "\"upsert\", \"insert\", \"auto\"; did you mean \"insert\"?"},
        /* Two keys that don't fit: the one that was set tells where. */
        {"kafka.properties.max.poll.interval.ms=10000",
         "--set kafka.properties.max.poll.interval.ms: worker.drain_timeout: 8000 ms is not below "
         "half of max.poll.interval.ms (10000 ms): the group would expel the process while it "
         "drains"},
        {"mongo.socket_timeout=3s",
         "--set mongo.socket_timeout: mongo.write_timeout: 5000 ms is not below "
         "mongo.socket_timeout (3000 ms): the server's answer would always come too late"},
        {"retry.first=60s", "--set retry.first: 60000 ms is above retry.max (30000 ms)"},
        {"mongo.uri=\"geheim", "--set mongo.uri: the value is not TOML: (not shown)"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof mistakes[0]; i++)
        assert_fails_with(ENOUGH, "", mistakes[i].text, mistakes[i].expected);
    assert_fails_with("worker = 1\n" ENOUGH, "", "worker.threads=2",
                      "--set worker.threads: lies below something that is no table");
}

/* Whatever is wrong with it, the value of a secret key is not in the text. */
static void secrets_stay_secret(void **state)
{
    static const char *const texts[] = {
        "[mongo]\nuri = \"geheim\"",   "[mongo]\nuri = [\"geheim\"]", "[mongo]\nuri = \"geheim",
        "[mongo]\nuri = geheim",       "[redis]\nuri = \"geheim\"",   "[mongo]\nuri = \"\\geheim\"",
        "[mongo]\nuri = \"${geheim\"", "[mongo]\nuri.geheim = 1",
    };

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct buf text = {0};
        struct err e = {0};
        struct config *c;

        buf_printf(&text, "%s\n%s", texts[i],
                   strstr(texts[i], "mongo") ? KAFKA ROUTE DEDUP : KAFKA MONGO ROUTE DEDUP);
        c = config_parse(
            &(struct config_input){.name = "f", .text = slice_of(text.data, text.len), .env = env},
            &e);
        assert_null(c);
        assert_non_null(strstr(e.text, "f:2:"));
        assert_null(strstr(e.text, "eheim"));
        buf_clear(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_required),
        cmocka_unit_test(names_that_nobody_knows),
        cmocka_unit_test(wrong_types),
        cmocka_unit_test(out_of_bounds),
        cmocka_unit_test(what_does_not_fit_together),
        cmocka_unit_test(properties_that_are_ours),
        cmocka_unit_test(brokers),
        cmocka_unit_test(what_the_libraries_refuse),
        cmocka_unit_test(topics_with_two_ways),
        cmocka_unit_test(collections_and_names),
        cmocka_unit_test(sources_and_paths),
        cmocka_unit_test(places_that_are_taken),
        cmocka_unit_test(places_that_are_free),
        cmocka_unit_test(dedup_keys),
        cmocka_unit_test(invalidations),
        cmocka_unit_test(the_seen_cache),
        cmocka_unit_test(the_environment),
        cmocka_unit_test(overrides),
        cmocka_unit_test(secrets_stay_secret),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
