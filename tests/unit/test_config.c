#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

#include "core/config.h"
#include "core/config_secret.h"
#include "core/config_private.h"
#include "core/toml.h"

#define KAFKA  "[kafka]\nbrokers = \"b:9092\"\ngroup = \"g\"\n"
#define MONGO  "[mongo]\nuri = \"mongodb://h/\"\n"
#define ROUTE  "[[route]]\ntopics = [\"t\"]\ncollection = \"d.c.x\"\n"
#define DEDUP  "[route.dedup]\nkey = [\"id\"]\n"
#define ENOUGH KAFKA MONGO ROUTE DEDUP
#define REDIS  "[redis]\nuri = \"redis://h\"\n"

static const char *env(const char *name)
{
    static const struct {
        const char *name, *value;
    } vars[] = {{"NAME", "value"}, {"EMPTY", ""}, {"NUMBER", "7"}, {"DOLLAR", "${NAME}$$"}};

    for (size_t i = 0; i < sizeof vars / sizeof vars[0]; i++)
        if (strcmp(vars[i].name, name) == 0)
            return vars[i].value;
    return NULL;
}

static struct config *parse_with(const char *text, const char *const *overrides, size_t n)
{
    struct err e = {0};
    struct config *c = config_parse(&(struct config_input){.name = "f",
                                                           .text = slice_text(text),
                                                           .overrides = overrides,
                                                           .n_overrides = n,
                                                           .env = env},
                                    &e);

    assert_string_equal(e.text, "");
    assert_non_null(c);
    return c;
}

static struct config *parse(const char *text)
{
    return parse_with(text, NULL, 0);
}

/* --- reading
 * ------------------------------------------------------------------------------------------------------
 */

static void defaults(void **state)
{
    struct config *c = parse(ENOUGH);
    const struct config_route *r = &c->routes[0];

    (void)state;
    assert_string_equal(c->kafka.brokers, "b:9092");
    assert_string_equal(c->kafka.group, "g");
    assert_string_equal(c->kafka.instance_id, "");
    assert_string_equal(c->kafka.client_id, "idemsink");
    assert_int_equal(c->kafka.properties.n, 0);
    assert_string_equal(c->mongo.write_concern, "majority");
    assert_true(c->mongo.journal);
    assert_int_equal(c->mongo.server_selection_timeout_ms, 3000);
    assert_int_equal(c->mongo.connect_timeout_ms, 3000);
    assert_int_equal(c->mongo.socket_timeout_ms, 10000);
    assert_int_equal(c->mongo.write_timeout_ms, 5000);
    assert_string_equal(c->redis.uri, "");
    assert_int_equal(c->redis.timeout_ms, 2000);
    assert_int_equal(c->redis.max_pending, 100000);
    assert_int_equal(c->redis.before_commit_limit_ms, 0);
    assert_string_equal(c->redis.instance_id, "");
    assert_int_equal(c->worker.threads, 4);
    assert_int_equal(c->worker.batch, 1000);
    assert_int_equal(c->worker.run_max, 1000);
    assert_int_equal(c->worker.linger_ms, 5);
    assert_int_equal(c->worker.max_records, 50000);
    assert_int_equal(c->worker.max_bytes, 64 * 1024 * 1024);
    assert_int_equal(c->worker.drain_timeout_ms, 8000);
    assert_int_equal(c->worker.commit_interval_ms, 1000);
    assert_int_equal(c->retry.first_ms, 100);
    assert_int_equal(c->retry.max_ms, 30000);
    assert_string_equal(c->dead_letter.topic, "");
    assert_int_equal(c->dead_letter.on_bad_record, ON_BAD_STOP);
    assert_string_equal(c->http.listen, "127.0.0.1:9464");
    assert_int_equal(c->log.level, CONFIG_LOG_INFO);
    assert_int_equal(c->log.format, CONFIG_LOG_JSON);
    assert_int_equal(c->n_routes, 1);
    assert_string_equal(r->name, "d.c.x");
    assert_string_equal(r->database, "d");
    assert_string_equal(r->collection, "c.x");
    assert_string_equal(r->order_by, "@key");
    assert_int_equal(r->format, FORMAT_JSON);
    assert_int_equal(r->write, WRITE_UPSERT);
    assert_int_equal(r->tombstone, TOMBSTONE_SKIP);
    assert_false(r->ensure_index || r->trust_index || r->dedup.into_id);
    assert_int_equal(r->dedup.conflict, CONFLICT_OFF);
    assert_int_equal(r->types.n + r->include.n + r->exclude.n + r->rename.n + r->set.n, 0);
    assert_string_equal(r->under, "");
    assert_string_equal(r->source_fields, "");
    assert_int_equal(r->dedup.fields.n, 1);
    assert_string_equal(r->dedup.fields.items[0], "id");
    assert_false(config_has_invalidations(c));
    config_free(c);
    config_free(NULL);
}

static void choices_and_units(void **state)
{
    struct config *c =
        parse(ENOUGH "[log]\nlevel = \"error\"\nformat = \"text\"\n"
                     "[dead_letter]\non_bad_record = \"skip\"\n"
                     "[worker]\nlinger = \"0s\"\ndrain_timeout = \"2m\"\n"
                     "commit_interval = \"250ms\"\nmax_bytes = \"3MB\"\n"
                     "[redis]\nbefore_commit_limit = \"1h\"\n[http]\nlisten = \"[::1]:0\"\n");

    (void)state;
    assert_int_equal(c->log.level, CONFIG_LOG_ERROR);
    assert_int_equal(c->log.format, CONFIG_LOG_TEXT);
    assert_int_equal(c->dead_letter.on_bad_record, ON_BAD_SKIP);
    assert_int_equal(c->worker.linger_ms, 0);
    assert_int_equal(c->worker.drain_timeout_ms, 120000);
    assert_int_equal(c->worker.commit_interval_ms, 250);
    assert_int_equal(c->worker.max_bytes, 3000000);
    assert_int_equal(c->redis.before_commit_limit_ms, 3600000);
    config_free(c);
}

static void assert_pair(const struct config_pairs *p, size_t i, const char *name, const char *value)
{
    assert_true(i < p->n);
    assert_string_equal(p->items[i].name, name);
    assert_string_equal(p->items[i].value, value);
}

static void tables_of_free_names(void **state)
{
    struct config *c = parse(
        ENOUGH
        "[kafka.properties]\nclient.rack = \"a\"\n\"fetch.wait.max.ms\" = 5\ncheck.crcs = true\n"
        "isolation.level = \"read_committed\"\nauto.offset.reset = \"latest\"\n"
        "[route.types]\nz.at = \"date\"\nz.b.c = \"uuid\"\n\"a.b\" = \"date_us\"\n"
        "[route.rename]\na = \"b\"\nb = \"a\"\n"
        "[route.set]\ns = \"x\\\"\\u00e9\"\ni = -3\nf = 0.5\nt = true\nat.key = \"@@key\"\n"
        "at.real = \"@timestamp\"\nh = \"@header.x.y\"\n");
    const struct config_route *r = &c->routes[0];

    (void)state;
    assert_int_equal(c->kafka.properties.n, 5);
    assert_pair(&c->kafka.properties, 0, "client.rack", "a");
    assert_pair(&c->kafka.properties, 1, "fetch.wait.max.ms", "5");
    assert_pair(&c->kafka.properties, 2, "check.crcs", "true");
    assert_int_equal(r->types.n, 3);
    assert_pair(&r->types, 0, "z.at", "date");
    assert_pair(&r->types, 1, "z.b.c", "uuid");
    assert_pair(&r->types, 2, "a.b", "date_us");
    assert_pair(&r->rename, 0, "a", "b");
    assert_pair(&r->rename, 1, "b", "a");
    assert_int_equal(r->set.n, 7);
    assert_pair(&r->set, 0, "s", "\"x\\\"\xc3\xa9\"");
    assert_pair(&r->set, 1, "i", "-3");
    assert_pair(&r->set, 2, "f", "0.5");
    assert_pair(&r->set, 3, "t", "true");
    assert_pair(&r->set, 4, "at.key", "\"@key\"");
    assert_pair(&r->set, 5, "at.real", "@timestamp");
    assert_pair(&r->set, 6, "h", "@header.x.y");
    config_free(c);
}

static void dedup_fields_follow_the_payload(void **state)
{
    static const struct {
        const char *shape, *key, *field;
    } cases[] = {
        {"", "a.b", "a.b"},
        {"under = \"doc\"", "a.b", "doc.a.b"},
        {"rename.a = \"x.y\"", "a.b", "x.y.b"},
        {"rename.a = \"x\"", "ab.c", "ab.c"},
        {"rename.\"a.b\" = \"z\"", "a.b", "z"},
        {"rename.\"a.b\" = \"z\"", "a", "a"},
        {"under = \"p.q\"\nrename.a = \"x\"", "a", "p.q.x"},
        {"under = \"p\"\ndedup.fields = [\"own\"]", "@key", "own"},
        {"under = \"p\"\ndedup.fields = [\"p.own\"]", "@key", "p.own"},
        {"under = \"p.q\"\ndedup.fields = [\"p.r\"]", "@key", "p.r"},
        {"under = \"pp\"\ndedup.fields = [\"p\"]", "@key", "p"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf text = {0};
        struct config *c;

        buf_printf(&text, "%s\ndedup.key = [\"%s\"]\n%s\n", KAFKA MONGO ROUTE, cases[i].key,
                   cases[i].shape);
        c = parse(text.data);
        assert_int_equal(c->routes[0].dedup.fields.n, 1);
        assert_string_equal(c->routes[0].dedup.fields.items[0], cases[i].field);
        config_free(c);
        buf_clear(&text);
    }
}

static void an_identity_in_id(void **state)
{
    struct config *c =
        parse(KAFKA MONGO ROUTE "dedup = {key = [\"@key\", \"@offset\"], into = \"_id\"}");

    (void)state;
    assert_true(c->routes[0].dedup.into_id);
    assert_int_equal(c->routes[0].dedup.key.n, 2);
    assert_int_equal(c->routes[0].dedup.fields.n, 0);
    config_free(c);
}

static void routes_may_share_a_collection(void **state)
{
    struct config *c =
        parse(ENOUGH "[[route]]\nname = \"two\"\ntopics = [\"u\"]\ncollection = \"d.c.x\"\n"
                     "dedup = {key = [\"@key\"], fields = [\"id\"]}\n"
                     "[[route]]\nname = \"three\"\ntopics = [\"v\"]\ncollection = \"d.e\"\n"
                     "dedup = {key = [\"a\"], into = \"_id\"}\n"
                     "[[route]]\nname = \"four\"\ntopics = [\"w\"]\ncollection = \"d.e\"\n"
                     "dedup = {key = [\"@key\"], into = \"_id\"}\n");

    (void)state;
    assert_int_equal(c->n_routes, 4);
    config_free(c);
}

static void invalidations_have_their_defaults(void **state)
{
    struct config *c = parse(
        ENOUGH "[[route.invalidate]]\nmode = \"monsqlize\"\n"
               "[[route.invalidate]]\nmode = \"monsqlize\"\nflavor = \"3\"\nkeys = [\"k:{id}\"]\n"
               "[[route]]\ntopics = [\"^u\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]\n"
               "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"k\"]\ncoalesce = \"0s\"\n"
               "publish_on = \"inserted\"\ndelivery = \"before_commit\"\n"
               "[[route.invalidate]]\nmode = \"monsqlize\"\nflavor = 3\npatterns = true\n"
               "bookmarks = true\nreceivers_echo_safe = true\nchannel = \"own\"\n"
               "[[route.invalidate]]\nmode = \"version\"\nkeys = [\"g\", \"h\"]\n"
               "[[route.invalidate]]\nmode = \"version\"\nkeys = [\"g\"]\nexpire = \"1s\"\n"
               "[[route.invalidate]]\nmode = \"stream\"\nstream = \"s\"\npayload = \"{}\"\n" REDIS);
    const struct config_invalidate *v = c->routes[0].invalidate, *w = c->routes[1].invalidate;

    (void)state;
    assert_int_equal(c->routes[0].n_invalidate, 2);
    assert_int_equal(v[0].mode, INVALIDATE_MONSQLIZE);
    assert_string_equal(v[0].channel, "monsqlize:cache:invalidate");
    assert_int_equal(v[0].flavor, 1);
    assert_true(v[0].patterns);
    assert_false(v[0].bookmarks || v[0].receivers_echo_safe);
    assert_int_equal(v[0].publish_on, PUBLISH_ALWAYS);
    assert_int_equal(v[0].delivery, DELIVERY_BEST_EFFORT);
    assert_int_equal(v[0].coalesce_ms, 100);
    assert_int_equal(v[0].repeat_after_ms, 2000);
    assert_int_equal(v[1].flavor, 3);
    assert_false(v[1].patterns);
    assert_int_equal(w[0].mode, INVALIDATE_UNLINK);
    assert_int_equal(w[0].coalesce_ms, 0);
    assert_int_equal(w[0].publish_on, PUBLISH_INSERTED);
    assert_int_equal(w[0].delivery, DELIVERY_BEFORE_COMMIT);
    assert_true(w[1].patterns && w[1].bookmarks);
    assert_string_equal(w[1].channel, "own");
    assert_int_equal(w[2].mode, INVALIDATE_VERSION);
    assert_int_equal(w[2].keys.n, 2);
    assert_int_equal(w[2].expire_ms, 0);
    assert_int_equal(w[3].expire_ms, 1000);
    assert_int_equal(w[4].mode, INVALIDATE_STREAM);
    assert_string_equal(w[4].stream, "s");
    assert_int_equal(w[4].maxlen, 10000);
    for (uint32_t i = 0; i < 2; i++) {
        assert_int_equal(v[i].index, i);
        assert_int_equal(w[i].index, i + 2);
    }
    assert_true(config_has_invalidations(c));
    config_free(c);
}

/* --- from outside
 * -----------------------------------------------------------------------------------------------------
 */

static void the_environment(void **state)
{
    static const struct {
        const char *written, *read;
    } cases[] = {
        {"${NAME}", "value"},
        {"a${NAME}b${NUMBER}", "avalueb7"},
        {"${EMPTY}", ""},
        {"${NO:-x y}", "x y"},
        {"${EMPTY:-x}", "x"},
        {"${NAME:-x}", "value"},
        {"${NO:-}", ""},
        {"$${NAME}", "${NAME}"},
        {"a$$", "a$"},
        {"^a$", "^a$"},
        {"$NAME", "$NAME"},
        {"$", "$"},
        {"${DOLLAR}", "${NAME}$$"},
        {"$$$", "$$"},
    };
    struct config *c;

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf text = {0};

        buf_printf(&text, "%s[kafka.properties]\na = \"%s\"\n", ENOUGH, cases[i].written);
        c = parse(text.data);
        assert_pair(&c->kafka.properties, 0, "a", cases[i].read);
        config_free(c);
        buf_clear(&text);
    }
    c = parse(
        ENOUGH
        "[[route]]\ntopics = [\"${NAME}\"]\ncollection = \"d.${NAME}\"\ndedup.key = [\"id\"]\n"
        "ensure_index = \"${NO:-true}\"\nset.a = \"${NAME}\"\n[worker]\nthreads = "
        "\"${NUMBER}\"\n");
    assert_string_equal(c->routes[1].topics.items[0], "value");
    assert_string_equal(c->routes[1].collection, "value");
    assert_true(c->routes[1].ensure_index);
    assert_pair(&c->routes[1].set, 0, "a", "\"value\"");
    assert_int_equal(c->worker.threads, 7);
    config_free(c);
}

static void the_longest_name_of_a_route_counts(void **state)
{
    static const char *const sets[] = {"route.a.b.order_by=x", "route.a.order_by=y"};
    struct config *c = parse_with(
        KAFKA MONGO
        "[[route]]\nname = \"a.b\"\ntopics = [\"t\"]\ncollection = \"d.c\"\ndedup.key = [\"id\"]\n"
        "[[route]]\nname = \"a\"\ntopics = [\"u\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]\n",
        sets, 2);

    (void)state;
    assert_string_equal(c->routes[0].order_by, "x");
    assert_string_equal(c->routes[1].order_by, "y");
    config_free(c);
}

static void overrides(void **state)
{
    static const char *const sets[] = {
        "worker.threads=8",
        "kafka.group=123",
        "kafka.client_id=\"quoted = x\"",
        "http.listen=",
        "mongo.uri=mongodb://h/?a=b",
        "kafka.properties.client.rack=b",
        "kafka.properties.new.one=5",
        "route.0.topics=single",
        "route.two.topics=[\"x\", \"y\"]",
        "route.d.c.x.order_by=a.b",
        "route.0.dedup.key=[\"n\", \"m\"]",
        "route.two.types.a.b=date",
        "route.0.set.version=2",
        "route.0.set.word=two",
        "route.0.set.text=\"3\"",
        "route.two.invalidate.0.coalesce=5s",
        "worker.batch=${NUMBER}",
    };
    struct config *c = parse_with(
        ENOUGH
        "[kafka.properties]\nclient.rack = \"a\"\nz = 1\n"
        "[[route]]\nname = \"two\"\ntopics = [\"u\"]\ncollection = \"d.e\"\ndedup.key = [\"id\"]\n"
        "[[route.invalidate]]\nmode = \"monsqlize\"\n" REDIS,
        sets, sizeof sets / sizeof sets[0]);

    (void)state;
    assert_int_equal(c->worker.threads, 8);
    assert_int_equal(c->worker.batch, 7);
    assert_string_equal(c->kafka.group, "123");
    assert_string_equal(c->kafka.client_id, "quoted = x");
    assert_string_equal(c->http.listen, "");
    assert_string_equal(c->mongo.uri, "mongodb://h/?a=b");
    assert_int_equal(c->kafka.properties.n, 3);
    assert_pair(&c->kafka.properties, 0, "z", "1");
    assert_pair(&c->kafka.properties, 1, "client.rack", "b");
    assert_pair(&c->kafka.properties, 2, "new.one", "5");
    assert_int_equal(c->routes[0].topics.n, 1);
    assert_string_equal(c->routes[0].topics.items[0], "single");
    assert_int_equal(c->routes[1].topics.n, 2);
    assert_string_equal(c->routes[0].order_by, "a.b");
    assert_string_equal(c->routes[0].dedup.fields.items[1], "m");
    assert_pair(&c->routes[1].types, 0, "a.b", "date");
    assert_pair(&c->routes[0].set, 0, "version", "2");
    assert_pair(&c->routes[0].set, 1, "word", "\"two\"");
    assert_pair(&c->routes[0].set, 2, "text", "\"3\"");
    assert_int_equal(c->routes[1].invalidate[0].coalesce_ms, 5000);
    config_free(c);
}

/* --- out again
 * --------------------------------------------------------------------------------------------------------
 */

static void what_is_printed_reads_the_same(void **state)
{
    struct config *c = parse(
        ENOUGH REDIS
        "[dead_letter]\ntopic = \"dead\"\n[kafka.properties]\nclient.rack = \"$${NAME} $ $$$$\"\n"
        "[[route]]\nname = \"\\\"\\\\ \\u00e9\"\ntopics = [\"^u$\"]\ncollection = \"d.e\"\n"
        "under = \"p\"\ninclude = [\"a\", \"b.c\"]\ntombstone = \"dead_letter\"\n"
        "dedup.key = [\"a\"]\nrename.a = \"x\"\nset = {q = \"$${NAME}\", r = \"@@x\", s = "
        "\"@key\", t = 1e3, u = 0.1, v = false}\n"
        "[[route.invalidate]]\nmode = \"monsqlize\"\n"
        "[[route.invalidate]]\nmode = \"pubsub\"\nchannel = \"c{a}\"\npayload = '{\"a\": {a}}'\n"
        "[[route.invalidate]]\nmode = \"unlink\"\nkeys = [\"$${a}\"]\n"
        "[[route]]\nname = \"i\"\ntopics = [\"v\"]\ncollection = \"d.f\"\n"
        "dedup = {key = [\"@key\"], into = \"_id\"}\n");
    struct buf first = {0}, second = {0};

    (void)state;
    config_print(c, &first);
    config_free(c);
    c = parse(first.data);
    config_print(c, &second);
    assert_string_equal(first.data, second.data);
    assert_string_equal(c->kafka.properties.items[0].value, "${NAME} $ $$");
    assert_pair(&c->routes[1].set, 0, "q", "\"${NAME}\"");
    assert_pair(&c->routes[1].set, 1, "r", "\"@x\"");
    assert_non_null(strstr(first.data, "\nfields = [\"p.x\"]\n"));
    assert_non_null(strstr(first.data, "\ncollection = \"d.c.x\"\n"));
    assert_int_not_equal(first.data[0], '\n');
    config_free(c);
    buf_clear(&first);
    buf_clear(&second);
}

static void secrets_are_not_printed(void **state)
{
    struct config *c = parse_with(
        "[kafka.properties]\nsasl.password = \"geheim\"\n\"sasl.username\" = \"geheim\"\n"
        "ssl.key.pem = \"geheim\"\nssl.keystore.password = \"geheim\"\n"
        "sasl.oauthbearer.client.secret = \"geheim\"\nsasl.oauthbearer.config = \"geheim\"\n"
        "[mongo]\nuri = \"mongodb://me:geheim@h:1,h:2/?tlsCertificateKeyFilePassword=geheim&w=2\"\n"
        "[redis]\nuri = \"redis://:geheim@h:6379/0\"\n"
        "[kafka]\nbrokers = \"b\"\ngroup = \"g\"\n" ROUTE DEDUP,
        NULL, 0);
    struct buf out = {0};

    (void)state;
    config_print(c, &out);
    assert_null(strstr(out.data, "geheim"));
    assert_non_null(strstr(out.data, "uri = \"mongodb://me:***@h:1,h:2/"
                                     "?tlsCertificateKeyFilePassword=***&w=2\"\n"));
    assert_non_null(strstr(out.data, "uri = \"redis://:***@h:6379/0\"\n"));
    assert_non_null(strstr(out.data, "\"sasl.username\" = \"***\"\n"));
    config_free(c);
    buf_clear(&out);
}

static void passwords_in_uris(void **state)
{
    static const struct {
        const char *uri, *shown;
    } cases[] = {
        {"mongodb://h/", "mongodb://h/"},
        {"mongodb://u:p@h/", "mongodb://u:***@h/"},
        {"mongodb://u@h/", "mongodb://u@h/"},
        {"mongodb://u:p/w@x?y@h/db", "mongodb://u:***@h/db"},
        {"mongodb://u:p:q@h:27017/?appName=a", "mongodb://u:***@h:27017/?appName=a"},
        {"redis://:p@h", "redis://:***@h"},
        {"redis://p@h", "redis://***@h"},
        {"mongodb://u:S3CR/p", "mongodb://u:***"},
        {"mongodb://u:S3CR", "mongodb://u:***"},
        {"mongodb://S3CR!/x?y=z", "mongodb://***"},
        {"mongodb://h:1,[::1]:2,%2Ftmp%2Fx.sock/d?w=1",
         "mongodb://h:1,[::1]:2,%2Ftmp%2Fx.sock/d?w=1"},
        {"mongodb://h:1:2/", "mongodb://h:***"},
        {"mongodb+srv://a.b-c.net/?token=t", "mongodb+srv://a.b-c.net/?token=***"},
        {"redis://h:6379/0", "redis://h:6379/0"},
        {"unix:///run/redis.sock", "unix:///run/redis.sock"},
        {"unix://:p@/run/redis.sock", "unix://:***@/run/redis.sock"},
        {"u:p@h", "u:***@h"},
        {"mongodb://h/?authMechanismProperties=AWS_SESSION_TOKEN:t&a=b",
         "mongodb://h/?authMechanismProperties=***&a=b"},
        {"mongodb://h/?a&password&secret=", "mongodb://h/?a&password&secret=***"},
        {"", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct buf out = {0};

        config_redact_uri(cases[i].uri, &out);
        assert_string_equal(buf_text(&out), cases[i].shown);
        buf_clear(&out);
    }
}

static struct buf told;

static void tell(const char *text)
{
    buf_add_text(&told, text);
    buf_add_char(&told, '\n');
}

static void secrets_are_told_for_the_net(void **state)
{
    struct config *c = parse(
        "[kafka]\nbrokers = \"h:1\"\ngroup = \"orders\"\n[kafka.properties]\n"
        "\"sasl.username\" = \"orders\"\n\"sasl.password\" = \"kafka pass\"\n"
        "\"sasl.kerberos.kinit.cmd\" = \"echo k1nit-secret | kinit %{sasl.kerberos.principal}\"\n"
        "\"client.rack\" = \"rack-one\"\n"
        "[mongo]\nuri = "
        "\"mongodb://me:g%65heim@h/?tlsCertificateKeyFilePassword=f1le&appName=app\"\n"
        "[redis]\nuri = \"redis://:p%40ss:w/rd@h:6379\"\n" ROUTE DEDUP);

    (void)state;
    buf_reset(&told);
    config_secrets(c, tell);
    const char *const wanted[] = {"kafka pass\n", "k1nit-secret\n", "g%65heim\n", "geheim\n",
                                  "f1le\n",       "p%40ss\n",       "p@ss\n",     "p%40ss:w/rd\n",
                                  "p@ss:w/rd\n",  "\nrd\n"};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        if (strstr(buf_text(&told), wanted[i]) == NULL)
            fail_msg("%s is not among:\n%s", wanted[i], buf_text(&told));
    const char *const others[] = {"orders", "rack-one", "app\n", "\nh"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strstr(buf_text(&told), others[i]) != NULL)
            fail_msg("%s is among:\n%s", others[i], buf_text(&told));
    config_free(c);
    buf_clear(&told);
}

static void a_topic_finds_its_route(void **state)
{
    struct config *c =
        parse(KAFKA MONGO
              "[[route]]\ntopics = [\"^ord\"]\ncollection = \"d.a\"\ndedup.key = [\"id\"]\n"
              "[[route]]\ntopics = [\"x\", \"y\"]\ncollection = \"d.b\"\ndedup.key = [\"id\"]\n"
              "[[route]]\ntopics = [\"^(pay|z[0-9]+)$\"]\ncollection = \"d.c\"\ndedup.key = "
              "[\"id\"]\n");
    struct err e = {0};

    (void)state;
    assert_int_equal(config_route_of(c, "orders"), 0);
    assert_int_equal(config_route_of(c, "ord"), 0);
    assert_int_equal(config_route_of(c, "y"), 1);
    assert_int_equal(config_route_of(c, "z12"), 2);
    assert_int_equal(config_route_of(c, "z"), CONFIG_NO_ROUTE);
    assert_int_equal(config_route_of(c, "yy"), CONFIG_NO_ROUTE);
    assert_int_equal(config_route_of(c, ""), CONFIG_NO_ROUTE);
    assert_false(config_route_fail(c, "yy", &e));
    assert_string_equal(e.text, "no route reads topic yy");
    config_free(c);
}

/* --- the table, the file and the document
 * ------------------------------------------------------------------------------ */

static void read_file(const char *path, struct buf *out)
{
    FILE *f = fopen(path, "rb");
    char block[4096];
    size_t n;

    assert_non_null(f);
    while ((n = fread(block, 1, sizeof block, f)) > 0)
        buf_add(out, block, n);
    fclose(f);
}

/* "#key = value" and "#[table]" become live; "# text" stays. */
static void uncomment(struct buf *text)
{
    for (char *at = text->data; at; at = strchr(at, '\n')) {
        at += *at == '\n';
        if (at[0] == '#' && at[1] != ' ' && at[1] != '\n')
            *at = ' ';
    }
}

static const json_t *member(const json_t *wrapped, const char *path)
{
    while (wrapped && *path) {
        const json_t *v = json_object_get(wrapped, "v");
        size_t len = strcspn(path, ".");
        char name[64];

        if (json_is_array(v))
            v = json_object_get(json_array_get(v, 0), "v");
        snprintf(name, sizeof name, "%.*s", (int)len, path);
        wrapped = json_object_get(v, name);
        path += len + (path[len] == '.');
    }
    return wrapped;
}

static void value_text(const json_t *v, struct buf *out)
{
    if (json_is_string(v))
        buf_add_text(out, json_string_value(v));
    else if (json_is_integer(v))
        buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else
        buf_add_text(out, json_is_true(v) ? "true" : "false");
}

static void the_example_shows_every_key_at_its_default(void **state)
{
    struct buf text = {0};
    struct err e = {0};
    json_t *tree;

    (void)state;
    read_file(TEST_DATA "/../../config/idemsink.toml", &text);
    config_free(parse(text.data));
    uncomment(&text);
    tree = toml_parse("config/idemsink.toml", text.data, text.len, &e);
    assert_string_equal(e.text, "");
    for (size_t i = 0; i < config_keys_count; i++) {
        const struct config_key *k = &config_keys[i];
        const json_t *found = member(tree, k->name);
        struct buf value = {0};

        if (!found)
            fail_msg("%s is not in config/idemsink.toml", k->name);
        if (k->fallback) {
            value_text(json_object_get(found, "v"), &value);
            if (strcmp(buf_text(&value), k->fallback) != 0)
                fail_msg("%s: config/idemsink.toml has %s, the default is %s", k->name,
                         buf_text(&value), k->fallback);
        }
        buf_clear(&value);
    }
    json_decref(tree);
    buf_clear(&text);
}

/* Everything of the file switched on, and only what excludes each other taken out: no key in it is
 * unknown. */
static void the_example_has_no_unknown_key(void **state)
{
    static const char *const out[] = {
        " mode = \"pubsub\"\n",    " payload =", " bookmarks = false", " on_bad_record =",
        " uri = \"\"\n",           " stream =",  " maxlen =",          " expire =",
        " fields = [\"orderId\"]", " into =",
    };
    struct buf text = {0};
    struct config *c;

    (void)state;
    read_file(TEST_DATA "/../../config/idemsink.toml", &text);
    uncomment(&text);
    for (size_t i = 0; i < sizeof out / sizeof out[0]; i++) {
        char *found = strstr(text.data, out[i]);

        assert_non_null(found);
        *found = '#';
    }
    char *amount = strstr(text.data, "\"total\""); /* of the payload, which no entity's may be */

    assert_non_null(amount);
    memset(amount, '7', strlen("\"total\""));
    buf_add_text(&text, "mode = \"monsqlize\"\n");
    c = parse_with(text.data,
                   (const char *const[]){
                       "redis.uri=redis://h", "route.0.invalidate.0.flavor=3",
                       "route.0.invalidate.0.receivers_echo_safe=true", "route.0.sequence.field=n",
                       "route.0.sequence.template=\"{category}-{seq}\"",
                       "route.0.sequence.template_field=t", "route.0.sequence.collection=a.s",
                       "route.0.operation.source=what", "route.0.operation.ledger=a.l",
                       "route.0.lock.key=\"{k}\"", "route.0.lock.fence=a.f",
                       "route.0.lock.fence_field=f", "route.0.seen.entries=1000",
                       /* what removes takes back by the entity alone */
                       "route.0.counter.0.filter._id=from"},
                   14);
    assert_int_equal(c->routes[0].n_counters, 1);
    assert_int_equal(c->routes[0].n_invalidate, 1);
    config_free(c);
    buf_clear(&text);
}

static void add_row(const struct config_key *k, struct buf *out)
{
    static const char *const types[] = {"boolean", "integer", "duration", "size",
                                        "string",  "choice",  "list",     "table"};
    const char *quote = k->type == CONFIG_BOOL || k->type == CONFIG_INT ? "" : "\"";

    buf_printf(out, "| `%s` | %s | ", k->name, types[k->type]);
    if (k->flags & CONFIG_REQUIRED)
        buf_add_text(out, "required | ");
    else if (!k->fallback)
        buf_add_text(out, " | ");
    else
        buf_printf(out, "`%s%s%s` | ", quote, k->fallback, quote);
    if (k->type == CONFIG_ENUM)
        for (const char *at = k->choices; *at;) {
            size_t n = strcspn(at, "|");

            buf_printf(out, "%s`\"%.*s\"`", at > k->choices ? ", " : "", (int)n, at);
            at += n + (at[n] == '|');
        }
    else if (k->type == CONFIG_INT)
        buf_printf(out, "%" PRId64 " to %" PRId64, k->min, k->max);
    else if (k->type == CONFIG_LIST)
        buf_printf(out, "%" PRId64 " to %" PRId64 " entries", k->min, k->max);
    else if (k->type == CONFIG_DURATION || k->type == CONFIG_BYTES) {
        void (*format)(int64_t, struct buf *) =
            k->type == CONFIG_BYTES ? config_format_bytes : config_format_duration;

        format(k->min, out);
        buf_add_text(out, " to ");
        format(k->max, out);
    }
    buf_printf(out, " | %s |\n", k->help);
}

static void the_document_has_the_table(void **state)
{
    struct buf text = {0};
    size_t rows = 0;

    (void)state;
    read_file(TEST_DATA "/../../docs/configuration.md", &text);
    for (size_t i = 0; i < config_keys_count; i++) {
        struct buf row = {0};

        add_row(&config_keys[i], &row);
        if (!strstr(text.data, row.data))
            fail_msg("docs/configuration.md lacks this row:\n%s", row.data);
        buf_clear(&row);
    }
    for (const char *at = text.data; (at = strstr(at, "\n| `")); at++) {
        const char *name = at + 4;
        size_t len = strcspn(name, "`");

        for (size_t i = 0; i < config_keys_count; i++)
            rows +=
                strncmp(config_keys[i].name, name, len) == 0 && config_keys[i].name[len] == '\0';
    }
    assert_int_equal(rows, config_keys_count);
    buf_clear(&text);
}

static void the_examples_are_right(void **state)
{
    static const char *const files[] = {
        "config/examples/minimal.toml",  "config/examples/dead-letters.toml",
        "config/examples/caches.toml",   "examples/follows/idemsink.toml",
        "examples/orders/idemsink.toml", "examples/payments/idemsink.toml",
    };

    (void)state;
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        struct buf path = {0}, text = {0};

        buf_printf(&path, "%s/../../%s", TEST_DATA, files[i]);
        read_file(path.data, &text);
        config_free(parse(text.data));
        buf_clear(&path);
        buf_clear(&text);
    }
}

static void the_table_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < config_keys_count; i++) {
        const struct config_key *k = &config_keys[i];

        for (size_t j = 0; j < i; j++)
            assert_string_not_equal(k->name, config_keys[j].name);
        assert_true(k->min <= k->max);
        assert_non_null(k->help);
        assert_int_equal(k->help[strlen(k->help) - 1], '.');
        assert_true((k->type == CONFIG_ENUM) <= (k->choices != NULL));
        assert_false((k->flags & CONFIG_REQUIRED) && k->fallback);
        assert_null(strchr(k->help, '|'));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(choices_and_units),
        cmocka_unit_test(tables_of_free_names),
        cmocka_unit_test(dedup_fields_follow_the_payload),
        cmocka_unit_test(an_identity_in_id),
        cmocka_unit_test(routes_may_share_a_collection),
        cmocka_unit_test(invalidations_have_their_defaults),
        cmocka_unit_test(the_environment),
        cmocka_unit_test(overrides),
        cmocka_unit_test(the_longest_name_of_a_route_counts),
        cmocka_unit_test(what_is_printed_reads_the_same),
        cmocka_unit_test(secrets_are_not_printed),
        cmocka_unit_test(passwords_in_uris),
        cmocka_unit_test(secrets_are_told_for_the_net),
        cmocka_unit_test(a_topic_finds_its_route),
        cmocka_unit_test(the_example_shows_every_key_at_its_default),
        cmocka_unit_test(the_example_has_no_unknown_key),
        cmocka_unit_test(the_document_has_the_table),
        cmocka_unit_test(the_examples_are_right),
        cmocka_unit_test(the_table_is_sound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
