/* What is asked for beside the document and can't be meant: the place and the whole text of each
 * error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core/config.h"

#define HEAD                                                                                       \
    "[kafka]\nbrokers = \"b:9092\"\ngroup = \"g\"\n[mongo]\nuri = "                                \
    "\"mongodb://h/\"\n[[route]]\ntopics = [\"t\"]\ncollection = \"d.c\"\n"
#define DEDUP     "[route.dedup]\nkey = [\"id\"]\n"
#define COUNTER   "[[route.counter]]\ncollection = \"d.users\"\n"
#define BY_USER   "filter = {_id = \"u\"}\n"
#define BY_ONE    "inc = {n = 1}\n"
#define SEQUENCE  "[route.sequence]\nfield = \"n\"\n"
#define ENTITY    "[route.entity]\nkey = [\"a\", \"b\"]\n"
#define OPERATION "[route.operation]\nsource = \"what\"\ninsert = [\"x\"]\ndelete = [\"y\"]\n"
#define REDIS     "[redis]\nuri = \"redis://h\"\n"

struct mistake {
    const char *toml, *expected;
};

static struct config *parse(const char *toml, struct err *e)
{
    return config_parse(&(struct config_input){.name = "f", .text = slice_text(toml)}, e);
}

static void check(const struct mistake *m)
{
    struct err e = {0};
    struct config *c = parse(m->toml, &e);

    if (c)
        fail_msg("accepted: %s", m->toml);
    if (strcmp(e.text, m->expected) != 0)
        fail_msg("%s\n  got      %s\n  expected %s", m->toml, e.text, m->expected);
    assert_int_equal(e.kind, ERR_CONFIG);
}

#define CHECK_ALL(mistakes)                                                                        \
    for (size_t i_ = 0; i_ < sizeof(mistakes) / sizeof(mistakes)[0]; i_++)                         \
    check(&(mistakes)[i_])

static void counters(void **state)
{
    static const struct mistake mistakes[] = {
        {HEAD DEDUP "[[route.counter]]", "f:11:1: route.counter.collection: is missing"},
        {HEAD DEDUP COUNTER, "f:11:1: route.counter.filter: is missing"},
        {HEAD DEDUP COUNTER "filter = {}\ninc = {n = 1}",
         "f:13:1: route.counter.filter: is empty: which counter document is it?"},
        {HEAD DEDUP COUNTER BY_USER, "f:11:1: route.counter.inc: is missing"},
        {HEAD DEDUP COUNTER BY_USER "inc = {}",
         "f:14:1: route.counter.inc: is empty: nothing would be counted"},
        {HEAD DEDUP "[[route.counter]]\ncollection = \"users\"\n" BY_USER BY_ONE,
         "f:12:1: route.counter.collection: \"users\" has to be database.collection"},
        {HEAD DEDUP COUNTER "filter = {_id = \"@offset\"}\n" BY_ONE,
         "f:13:11: route.counter.filter._id: \"@offset\" is not possible here: @key, @topic, "
         "@header.NAME or a value path"},
        {HEAD DEDUP COUNTER "filter = {_id = \"\"}\n" BY_ONE,
         "f:13:11: route.counter.filter._id: \"\" is an empty path"},
        {HEAD DEDUP COUNTER "filter = {\"a.b\" = \"u\", a = \"v\"}\n" BY_ONE,
         "f:13:24: route.counter.filter.a: collides with \"a.b\""},
        {HEAD DEDUP COUNTER "filter = {\"$a\" = \"u\"}\n" BY_ONE,
         "f:13:11: route.counter.filter.$a: \"$a\" has a name that starts with $, which MongoDB "
         "keeps for itself"},
        {HEAD DEDUP COUNTER BY_USER "inc = {_id = 1}",
         "f:14:8: route.counter.inc._id: collides with \"_id\" of filter, by which the counter is "
         "found"},
        {HEAD DEDUP COUNTER "filter = {a = \"u\"}\n"
                            "inc = {_id = 1}",
         "f:14:8: route.counter.inc._id: _id can't be counted"},
        {HEAD DEDUP COUNTER "filter = {a = \"u\"}\n"
                            "inc = {\"a.b\" = 1}",
         "f:14:8: route.counter.inc.a.b: collides with \"a\" of filter, by which the counter is "
         "found"},
        {HEAD DEDUP COUNTER BY_USER "inc = {n = 1, \"n.m\" = 2}",
         "f:14:15: route.counter.inc.n.m: collides with \"n\""},
        {HEAD DEDUP COUNTER BY_USER "inc = {_version = 1}",
         "f:14:8: route.counter.inc._version: is a name that idemsink keeps for itself"},
        {HEAD DEDUP COUNTER BY_USER "inc = {\"_applied.x\" = 1}",
         "f:14:8: route.counter.inc._applied.x: is a name that idemsink keeps for itself"},
        {HEAD DEDUP COUNTER BY_USER "inc = {n = 1.5}",
         "f:14:8: route.counter.inc.n: has to be an integer, or a value path in quotes, not a "
         "float: 1.5"},
        {HEAD DEDUP COUNTER BY_USER "inc = {n = true}",
         "f:14:8: route.counter.inc.n: has to be an integer, or a value path in quotes, not a "
         "boolean: true"},
        {HEAD DEDUP COUNTER BY_USER "inc = {n = \"@key\"}",
         "f:14:8: route.counter.inc.n: \"@key\" is a source, and a path is needed here"},
        {HEAD DEDUP COUNTER BY_USER "inc = {n = -9223372036854775808}",
         "f:14:8: route.counter.inc.n: has no counterpart with the other sign"},
        {HEAD DEDUP COUNTER BY_USER BY_ONE "mirror = \"u:{_id}\"",
         "f:15:1: route.counter.mirror: needs redis.uri, and there is none"},
        {REDIS HEAD DEDUP COUNTER BY_USER BY_ONE "mirror = \"u:{name}\"",
         "f:17:1: route.counter.mirror: {name} is no field of the counter's filter; the fields of "
         "filter are {_id}"},
        {REDIS HEAD DEDUP COUNTER BY_USER BY_ONE "mirror = \"u:{_id\"",
         "f:17:1: route.counter.mirror: a brace has no partner"},
        {REDIS HEAD DEDUP COUNTER BY_USER BY_ONE "mirror = \"likes\"",
         "f:17:1: route.counter.mirror: {_id} is missing, so that counters which differ in it "
         "alone would share one key of Redis; the fields of filter are {_id}"},
        {REDIS HEAD DEDUP COUNTER "filter = {a = \"u\", \"b.c\" = \"v\"}\n" BY_ONE
                                  "mirror = \"k:{a}\"",
         "f:17:1: route.counter.mirror: {b.c} is missing, so that counters which differ in it "
         "alone would share one key of Redis; the fields of filter are {a}, {b.c}"},
        {REDIS HEAD DEDUP COUNTER BY_USER BY_ONE "mirror = \"k:{_id}\"\n" COUNTER BY_USER
                                                 "inc = {m = 1}\nmirror = \"k:{_id}\"",
         "f:22:1: route.counter.mirror: is the key of another counter of route \"d.c\", too, and "
         "Redis would take the values of one of them alone: name another key"},
        {HEAD "format = \"bytes\"\n"
              "[route.dedup]\nkey = [\"@offset\"]\ninto = \"_id\"\n" COUNTER BY_USER BY_ONE,
         "f:15:11: route.counter.filter._id: \"u\": a payload of this format has no fields"},
        {HEAD "format = \"bytes\"\n"
              "[route.dedup]\nkey = [\"@offset\"]\ninto = \"_id\"\n" COUNTER
              "filter = {_id = \"@key\"}\n"
              "inc = {n = \"v\"}",
         "f:16:8: route.counter.inc.n: \"v\": a payload of this format has no fields"},
        {HEAD "tombstone = \"delete\"\n"
              "[route.dedup]\nkey = [\"@offset\"]\n"
              "[route.entity]\nkey = [\"@key\"]\nfields = [\"k\"]\n" COUNTER BY_USER BY_ONE,
         "f:17:11: route.counter.filter._id: \"u\" is no part of entity.key: an event that removes "
         "could name another counter than the one that added; possible are the parts of "
         "entity.key, and @topic in a route of one topic"},
        {HEAD "tombstone = \"delete\"\n"
              "[route.dedup]\nkey = [\"@offset\"]\n"
              "[route.entity]\nkey = [\"@key\"]\nfields = [\"k\"]\n" COUNTER
              "filter = {_id = \"@key\"}\n"
              "inc = {n = \"v\"}",
         "f:18:8: route.counter.inc.n: \"v\": with [route.entity] only integers: an event that "
         "removes could take back another amount than was added"},
    };

    (void)state;
    CHECK_ALL(mistakes);
}

static void sequences(void **state)
{
    static const struct mistake mistakes[] = {
        {HEAD DEDUP "[route.sequence]\ngroup = [\"a\"]",
         "f:12:1: route.sequence.group: has no meaning without sequence.field"},
        {HEAD DEDUP "[route.sequence]\nfield = \"a.b\"",
         "f:12:1: route.sequence.field: \"a.b\" is no name of its own at the top of the document"},
        {HEAD DEDUP "[route.sequence]\nfield = \"_id\"",
         "f:12:1: route.sequence.field: \"_id\" is no name of its own at the top of the document"},
        {HEAD DEDUP "[route.sequence]\nfield = \"id\"",
         "f:12:1: route.sequence.field: \"id\" is a field of the dedup key"},
        {HEAD DEDUP "[route.sequence]\nfield = \"$n\"",
         "f:12:1: route.sequence.field: \"$n\" has a name that starts with $, which MongoDB keeps "
         "for itself"},
        {HEAD DEDUP "[route.set]\nn = \"@topic\"\n" SEQUENCE,
         "f:14:1: route.sequence.field: \"n\" is set by [route.set], too"},
        {HEAD "under = \"n\"\n" DEDUP SEQUENCE,
         "f:13:1: route.sequence.field: \"n\" is a field of the dedup key"},
        {HEAD "source_fields = \"n\"\n" DEDUP SEQUENCE,
         "f:13:1: route.sequence.field: \"n\" is source_fields, too"},
        {HEAD
         "[route.dedup]\nkey = [\"id\"]\nconflict = \"count\"\nconflict_field = \"n\"\n" SEQUENCE,
         "f:14:1: route.sequence.field: \"n\" is dedup.conflict_field, too"},
        {HEAD DEDUP SEQUENCE "group = [\"@offset\"]",
         "f:13:10: route.sequence.group: \"@offset\" is not possible here: @key, @topic, "
         "@header.NAME or a value path"},
        {HEAD DEDUP SEQUENCE "group = [\"a\", \"a\"]",
         "f:13:15: route.sequence.group: \"a\" is there twice"},
        {HEAD DEDUP SEQUENCE "mode = \"fast\"", "f:13:1: route.sequence.mode: \"fast\" is not "
                                                "known; possible: \"gapless\", \"block\", \"max\""},
        {HEAD "effects = \"log\"\n" DEDUP SEQUENCE,
         "f:12:8: route.sequence.mode: \"gapless\" needs transactions, and effects = \"log\" is "
         "for where there are none; \"block\" does without"},
        {HEAD "effects = \"log\"\n" DEDUP ENTITY OPERATION SEQUENCE "mode = \"block\"",
         "f:19:1: route.sequence.field: numbers of what an operation adds need transactions, and "
         "effects = \"log\" is for where there are none"},
        {HEAD DEDUP SEQUENCE "mode = \"max\"\ncollection = \"d.s\"",
         "f:14:1: route.sequence.collection: has no meaning for mode = \"max\", which has no "
         "counters"},
        {HEAD DEDUP SEQUENCE "collection = \"s\"",
         "f:13:1: route.sequence.collection: \"s\" has to be database.collection"},
        {HEAD DEDUP SEQUENCE "template = \"{seq}\"",
         "f:11:8: route.sequence.template_field: is missing: a text and the field that gets it "
         "belong together"},
        {HEAD DEDUP SEQUENCE "template_field = \"r\"",
         "f:11:8: route.sequence.template: is missing: a text and the field that gets it belong "
         "together"},
        {HEAD DEDUP SEQUENCE "template = \"{seq}\"\ntemplate_field = \"n\"",
         "f:14:1: route.sequence.template_field: is the field of the number, too"},
        {HEAD DEDUP SEQUENCE "template = \"{seq}\"\ntemplate_field = \"id\"",
         "f:14:1: route.sequence.template_field: \"id\" is a field of the dedup key"},
        {HEAD DEDUP SEQUENCE "group = [\"a\", \"b.c\"]\n"
                             "template = \"{a}-{A}-{seq}\"\ntemplate_field = \"r\"",
         "f:14:1: route.sequence.template: \"{A}\" is no part of sequence.group; possible are "
         "{seq}, {seq:0N}, {a}, {b.c}"},
        {HEAD DEDUP SEQUENCE "group = [\"a\"]\n"
                             "template = \"{seq}-{a:02}\"\ntemplate_field = \"r\"",
         "f:14:1: route.sequence.template: \"{a:02}\" is no part of sequence.group; possible are "
         "{seq}, {seq:0N}, {a}"},
        {HEAD DEDUP SEQUENCE "template = \"{x}-{seq}\"\ntemplate_field = \"r\"",
         "f:13:1: route.sequence.template: \"{x}\" is no part of sequence.group; possible are "
         "{seq}, {seq:0N}"},
        {HEAD DEDUP SEQUENCE "template = \"{seq:6}\"\ntemplate_field = \"r\"",
         "f:13:1: route.sequence.template: \"{seq:6}\" is neither {seq} nor {seq:0N} (N digits at "
         "least, 1 to 19; {seq:06} makes 000042)"},
        {HEAD DEDUP SEQUENCE "template = \"{a}{seq}\"\ntemplate_field = \"r\"",
         "f:13:1: route.sequence.template: nothing stands between \"{a}\" and what follows it, so "
         "nobody could tell where one ends: put a separator there"},
        {HEAD DEDUP SEQUENCE "template = \"{@nothing}-{seq}\"\ntemplate_field = \"r\"",
         "f:13:1: route.sequence.template: template: \"@nothing\" is no source: a value path, "
         "@key, @header.NAME, @topic, @partition, @offset or @timestamp"},
        {HEAD "format = \"string\"\n"
              "[route.dedup]\nkey = [\"@key\"]\ninto = \"_id\"\n" SEQUENCE
              "template = \"{a}-{seq}\"\ntemplate_field = \"r\"",
         "f:15:1: route.sequence.template: \"{a}\" is no part of sequence.group; possible are "
         "{seq}, "
         "{seq:0N}"},
        {HEAD DEDUP SEQUENCE "start = \"x\"",
         "f:13:1: route.sequence.start: \"x\" is not an integer"},
        {HEAD DEDUP SEQUENCE "template = \"{a}\"\ntemplate_field = \"r\"",
         "f:13:1: route.sequence.template: {seq} is missing"},
    };

    (void)state;
    CHECK_ALL(mistakes);
}

#define SAME_EVENT                                                                                 \
    "all of it is in entity.key, so that all events of an entity would be one and the same: what " \
    "removes it, or adds it again, would be a duplicate of what came first; name what tells the "  \
    "events apart: an id of the event (@header.NAME, a value path), or \"@offset\""

static void operations(void **state)
{
    static const struct mistake mistakes[] = {
        {HEAD DEDUP OPERATION,
         "f:12:1: route.operation.source: needs entity.key: which document is removed?"},
        {HEAD DEDUP "[route.operation]\ninsert = [\"x\"]",
         "f:12:1: route.operation.insert: has no meaning without operation.source"},
        {HEAD DEDUP "[route.entity]\nfields = [\"a\"]",
         "f:12:1: route.entity.fields: has no meaning without entity.key"},
        {HEAD "tombstone = \"delete\"\n" DEDUP,
         "f:9:1: route.tombstone: \"delete\" needs [route.entity]: which document is removed?"},
        {HEAD "tombstone = \"delete\"\n[route.dedup]\nkey = [\"@key\"]\n",
         "f:9:1: route.tombstone: \"delete\" needs [route.entity]: which document is removed?"},
        {HEAD "tombstone = \"delete\"\n[route.dedup]\nkey = [\"@key\"]\n"
              "[route.entity]\nkey = [\"@key\"]\nfields = [\"k\"]",
         "f:11:1: route.dedup.key: " SAME_EVENT},
        {HEAD "[route.dedup]\nkey = [\"b\", \"a\"]\n" ENTITY OPERATION,
         "f:10:1: route.dedup.key: " SAME_EVENT},
        {HEAD DEDUP ENTITY, "f:12:1: route.entity.key: nothing removes: set operation.source, or "
                            "tombstone = \"delete\""},
        {HEAD DEDUP ENTITY "[route.operation]\nsource = \"what\"\ninsert = [\"x\"]",
         "f:13:8: route.operation.delete: is missing: which values of \"what\" are meant?"},
        {HEAD DEDUP ENTITY "[route.operation]\nsource = \"what\"\ndelete = [\"x\"]",
         "f:13:8: route.operation.insert: is missing: which values of \"what\" are meant?"},
        {HEAD DEDUP ENTITY
         "[route.operation]\nsource = \"what\"\ninsert = [\"x\"]\ndelete = [\"z\", \"x\"]",
         "f:16:16: route.operation.delete: \"x\" is in operation.insert, too"},
        {HEAD DEDUP ENTITY
         "[route.operation]\nsource = \"@key\"\ninsert = [\"x\"]\ndelete = [\"y\"]",
         "f:14:1: route.operation.source: \"@key\" is not possible here: @header.NAME or a value "
         "path"},
        {HEAD DEDUP "[route.entity]\nkey = [\"@offset\"]\n" OPERATION,
         "f:12:8: route.entity.key: \"@offset\" is not possible here: @key, @header.NAME or a "
         "value path"},
        {HEAD DEDUP "[route.entity]\nkey = [\"a\", \"a\"]\n" OPERATION,
         "f:12:13: route.entity.key: \"a\" is there twice"},
        {HEAD DEDUP "[route.entity]\nkey = [\"@key\"]\n" OPERATION,
         "f:12:8: route.entity.key: \"@key\" has no place in the document: name one for each part "
         "with entity.fields"},
        {HEAD DEDUP "[route.entity]\nkey = [\"a\", \"b\"]\nfields = [\"x\"]\n" OPERATION,
         "f:13:1: route.entity.fields: has 1 paths, and entity.key has 2 parts: one each"},
        {HEAD DEDUP "[route.entity]\nkey = [\"a\", \"b\"]\nfields = [\"x\", \"x.y\"]\n" OPERATION,
         "f:13:16: route.entity.fields: \"x.y\" collides with \"x\""},
        {HEAD DEDUP "[route.entity]\nkey = [\"a\"]\nfields = [\"$x\"]\n" OPERATION,
         "f:13:11: route.entity.fields: \"$x\" has a name that starts with $, which MongoDB keeps "
         "for itself"},
        {HEAD "tombstone = \"delete\"\n" DEDUP "[route.entity]\nkey = [\"@key\"]\nfields = [\"k\"]",
         "f:11:8: route.dedup.key: \"id\": with tombstone = \"delete\" a record that removes has "
         "no payload; possible are @key, @header.NAME and, for dedup.key, @offset"},
        {HEAD "tombstone = \"delete\"\n"
              "[route.dedup]\nkey = [\"@offset\"]\n"
              "[route.entity]\nkey = [\"a\"]",
         "f:13:8: route.entity.key: \"a\": with tombstone = \"delete\" a record that removes has "
         "no payload; possible are @key, @header.NAME and, for dedup.key, @offset"},
        {HEAD
         "tombstone = \"delete\"\n"
         "[route.dedup]\nkey = [\"@offset\"]\n"
         "[route.entity]\nkey = [\"@key\"]\nfields = [\"k\"]\n[route.operation]\ninsert = [\"x\"]",
         "f:15:8: route.operation.source: is missing, and insert and delete are its values"},
        {HEAD DEDUP ENTITY OPERATION "ledger = \"x\"",
         "f:17:1: route.operation.ledger: \"x\" has to be database.collection"},
        {HEAD "format = \"string\"\n"
              "[route.dedup]\nkey = [\"@offset\"]\n"
              "[route.entity]\nkey = [\"@key\"]\nfields = [\"k\"]\n" OPERATION,
         "f:16:1: route.operation.source: \"what\": a payload of this format has no fields"},
        {HEAD "[route.dedup]\nkey = [\"id\"]\ninto = \"_id\"\n" ENTITY OPERATION,
         "f:11:1: route.dedup.into: has no meaning together with [route.entity]: the identity of "
         "the event is the _id of its document in the ledger"},
        {HEAD DEDUP ENTITY OPERATION "[[route]]\nname = \"other\"\ntopics = [\"u\"]\ncollection = "
                                     "\"d.c\"\n[route.dedup]\nkey = [\"id\"]",
         "f:17:1: route.entity: route \"d.c\" goes into the same collection d.c with another "
         "entity, or none: both need the same fields in the same order"},
    };

    (void)state;
    CHECK_ALL(mistakes);
}

static void together(void **state)
{
    static const struct mistake mistakes[] = {
        {HEAD "effects = \"log\"\n" DEDUP,
         "f:9:1: route.effects: there is nothing for it: no [[route.counter]], [route.sequence], "
         "[route.operation] or lock.fence"},
        {HEAD "effects = \"transaction\"\n" DEDUP,
         "f:9:1: route.effects: there is nothing for it: no [[route.counter]], [route.sequence], "
         "[route.operation] or lock.fence"},
        {HEAD "effects = \"both\"\n" DEDUP SEQUENCE,
         "f:9:1: route.effects: \"both\" is not known; possible: \"auto\", \"transaction\", "
         "\"log\""},
        {HEAD "write = \"insert\"\n" DEDUP SEQUENCE,
         "f:9:1: route.write: has no meaning together with counters, a sequence, an operation or a "
         "fence: they decide how the documents are written"},
        {HEAD "write = \"auto\"\n" DEDUP COUNTER BY_USER BY_ONE,
         "f:9:1: route.write: has no meaning together with counters, a sequence, an operation or a "
         "fence: they decide how the documents are written"},
        {HEAD DEDUP "[route.seen]\nttl = \"1m\"",
         "f:12:1: route.seen.ttl: has no meaning without seen.entries"},
        {HEAD DEDUP "[route.seen]\nentries = 10\nredis = \"seen:\"",
         "f:13:1: route.seen.redis: needs redis.uri, and there is none"},
        {HEAD DEDUP "[route.seen]\nentries = 10\ndrop_on = \"c\"",
         "f:13:1: route.seen.drop_on: needs redis.uri, and there is none"},
    };

    (void)state;
    CHECK_ALL(mistakes);
}

#define COUNTER_IN(collection)                                                                     \
    "[[route.counter]]\ncollection = \"" collection "\"\nfilter = {_id = \"a\"}\n" BY_ONE
#define SECOND(collection)                                                                         \
    "[[route]]\nname = \"two\"\ntopics = [\"u\"]\ncollection = \"" collection "\"\n" DEDUP
#define OWN_KIND ", too: each kind of document needs a collection of its own"
#define FENCE    "[route.lock]\nkey = \"{id}\"\nfence = \"d.f\"\n"

/* What removes takes back from the counter that was moved, by as much. */
static void counters_of_entities(void **state)
{
    static const char names_another[] =
        "is no part of entity.key: an event that removes could name "
        "another counter than the one that added; possible are the parts "
        "of entity.key, and @topic in a route of one topic";
    static const struct mistake mistakes[] = {
        {HEAD DEDUP ENTITY OPERATION COUNTER "filter = {_id = \"a\"}\ninc = {n = \"v\"}",
         "f:20:8: route.counter.inc.n: \"v\": with [route.entity] only integers: an event that "
         "removes could take back another amount than was added"},
    };
    static const char *const others[] = {
        HEAD DEDUP ENTITY OPERATION COUNTER BY_USER BY_ONE,
        HEAD DEDUP ENTITY OPERATION COUNTER "filter = {x = \"a\", y = \"@key\"}\n" BY_ONE,
        HEAD DEDUP ENTITY OPERATION COUNTER "filter = {_id = \"@header.h\"}\n" BY_ONE,
        "[kafka]\nbrokers = \"b:9092\"\ngroup = \"g\"\n[mongo]\nuri = \"mongodb://h/\"\n"
        "[[route]]\ntopics = [\"t\", \"u\"]\ncollection = \"d.c\"\n" DEDUP ENTITY OPERATION COUNTER
        "filter = {_id = \"@topic\"}\n" BY_ONE,
        "[kafka]\nbrokers = \"b:9092\"\ngroup = \"g\"\n[mongo]\nuri = \"mongodb://h/\"\n"
        "[[route]]\ntopics = [\"^t\"]\ncollection = \"d.c\"\n" DEDUP ENTITY OPERATION COUNTER
        "filter = {_id = \"@topic\"}\n" BY_ONE,
    };

    (void)state;
    CHECK_ALL(mistakes);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct err e = {0};

        assert_null(parse(others[i], &e));
        if (strstr(e.text, names_another) == NULL)
            fail_msg("%s\n  got %s", others[i], e.text);
    }
}

static void collections(void **state)
{
    static const struct mistake mistakes[] = {
        {HEAD DEDUP COUNTER_IN("d.c"), "f:12:1: route.counter.collection: d.c is the collection of "
                                       "the documents of route \"d.c\"" OWN_KIND},
        {HEAD DEDUP COUNTER_IN("d.two") SECOND("d.two"),
         "f:12:1: route.counter.collection: d.two is the collection of the documents of route "
         "\"two\"" OWN_KIND},
        {HEAD DEDUP SEQUENCE "collection = \"d.c\"\n",
         "f:13:1: route.sequence.collection: d.c is the collection of the documents of route "
         "\"d.c\"" OWN_KIND},
        {HEAD DEDUP ENTITY OPERATION "ledger = \"d.c\"\n",
         "f:17:1: route.operation.ledger: d.c is the collection of the documents of route "
         "\"d.c\"" OWN_KIND},
        {REDIS HEAD DEDUP FENCE COUNTER_IN("d.f"),
         "f:17:1: route.counter.collection: d.f is the collection of the fence of route "
         "\"d.c\"" OWN_KIND},
        {HEAD DEDUP ENTITY OPERATION "ledger = \"d.l\"\n" COUNTER_IN("d.l"),
         "f:19:1: route.counter.collection: d.l is the collection of the ledger of route "
         "\"d.c\"" OWN_KIND},
        {HEAD DEDUP SEQUENCE "collection = \"d.s\"\n" COUNTER_IN("d.s"),
         "f:15:1: route.counter.collection: d.s is the collection of the counters of the sequence "
         "of route \"d.c\"" OWN_KIND},
        {HEAD DEDUP ENTITY OPERATION "ledger = \"d.l\"\n" SECOND("d.e") ENTITY OPERATION
         "ledger = \"d.l\"\n",
         "f:30:1: route.operation.ledger: d.l is that of route \"d.c\", too: an event of one would "
         "be a duplicate in the other, and be stored by none; name another one"},
        {HEAD DEDUP SEQUENCE "collection = \"d.s\"\n" SECOND("d.e") SEQUENCE
         "collection = \"d.s\"\n",
         "f:22:1: route.sequence.collection: d.s is that of route \"d.c\", too: a number of one "
         "would be missing in the other: both have to go into one collection with the same field "
         "and group, or have counters of their own"},
        {REDIS HEAD DEDUP FENCE SECOND("d.e") FENCE "prefix = \"x:\"\n",
         "f:24:1: route.lock.fence: d.f is that of route \"d.c\", too: with another lock.prefix "
         "equal keys are different locks, and their numbers would be one: name another one"},
    };

    (void)state;
    CHECK_ALL(mistakes);
}

static struct config *accepted(const char *toml)
{
    struct err e = {0};
    struct config *c = parse(toml, &e);

    if (!c)
        fail_msg("%s", e.text);
    return c;
}

#define MIRRORED                                                                                   \
    "[[route.counter]]\ncollection = \"d.users\"\nfilter = {_id = \"a\"}\n" BY_ONE                 \
    "mirror = \"k:{_id}\"\n"

/* What two may share; and @topic where there is one. */
static void shared(void **state)
{
    static const char *const all[] = {
        HEAD DEDUP COUNTER_IN("d.users") COUNTER_IN("d.users") SECOND("d.e") COUNTER_IN("d.users"),
        HEAD DEDUP SEQUENCE SECOND("d.c") SEQUENCE,
        REDIS HEAD DEDUP MIRRORED SECOND("d.e") MIRRORED,
        HEAD "[route.dedup]\nkey = [\"a\", \"id\"]\n" ENTITY OPERATION,
        HEAD DEDUP SEQUENCE "group = [\"a\"]\ntemplate = \"{{a}}{seq}\"\ntemplate_field = \"r\"",
        REDIS HEAD DEDUP FENCE SECOND("d.e") FENCE,
        HEAD DEDUP ENTITY OPERATION COUNTER "filter = {_id = \"@topic\"}\n" BY_ONE,
        HEAD DEDUP SEQUENCE "mode = \"max\"\n" SECOND("d.e") SEQUENCE "mode = \"max\"\n",
    };

    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        config_free(accepted(all[i]));
}

/* Such texts are allowed, and check --connect warns of them. */
static void text_without_a_part(void **state)
{
    static const struct {
        const char *toml, *part;
    } rows[] = {
        {"group = [\"a\", \"b\"]\ntemplate = \"{a}-{seq}\"\ntemplate_field = \"r\"", "b"},
        {"group = [\"a\", \"b\"]\ntemplate = \"{b}-{seq}-{a}\"\ntemplate_field = \"r\"", NULL},
        {"group = [\"a\"]\ntemplate = \"{{a}}{seq}\"\ntemplate_field = \"r\"", "a"},
        {"group = [\"a\"]", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *toml = mem_printf("%s%s", HEAD DEDUP SEQUENCE, rows[i].toml);
        struct config *c = accepted(toml);
        const char *part = config_not_in_text(&c->routes[0].sequence);

        if ((part == NULL) != (rows[i].part == NULL) || (part && strcmp(part, rows[i].part) != 0))
            fail_msg("%s: %s", rows[i].toml, part ? part : "none");
        config_free(c);
        mem_free(toml);
    }
}

/* What is not said. */
static void defaults(void **state)
{
    struct config *c = accepted(HEAD DEDUP ENTITY OPERATION SEQUENCE COUNTER_IN("d.users"));
    const struct config_route *r = &c->routes[0];

    (void)state;
    assert_int_equal(r->n_counters, 1);
    assert_string_equal(r->counters[0].database, "d");
    assert_string_equal(r->counters[0].collection, "users");
    assert_true(r->counters[0].upsert);
    assert_string_equal(r->sequence.database, "d");
    assert_string_equal(r->sequence.collection, "c_sequences");
    assert_int_equal(r->sequence.start, 1);
    assert_int_equal(r->sequence.mode, SEQUENCE_GAPLESS);
    assert_string_equal(r->operation.ledger_database, "d");
    assert_string_equal(r->operation.ledger, "c_ledger");
    assert_int_equal(r->operation.ledger_expire_ms, 0);
    assert_int_equal(r->entity.fields.n, 2);
    assert_string_equal(r->entity.fields.items[0], "a");
    assert_int_equal(r->effects, EFFECTS_AUTO);
    assert_true(config_has_effects(r) && config_has_operation(r) && config_has_sequence(r));
    config_free(c);
}

/* Without any of it, a route has none. */
static void none(void **state)
{
    struct config *c = accepted(HEAD DEDUP);
    const struct config_route *r = &c->routes[0];

    (void)state;
    assert_false(config_has_effects(r) || config_has_operation(r) || config_has_sequence(r));
    assert_false(config_has_seen(r) || config_has_lock(r));
    config_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(counters),
                                       cmocka_unit_test(sequences),
                                       cmocka_unit_test(operations),
                                       cmocka_unit_test(together),
                                       cmocka_unit_test(counters_of_entities),
                                       cmocka_unit_test(collections),
                                       cmocka_unit_test(shared),
                                       cmocka_unit_test(text_without_a_part),
                                       cmocka_unit_test(defaults),
                                       cmocka_unit_test(none)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
