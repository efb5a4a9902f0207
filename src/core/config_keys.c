/*
 * config_keys.c - the table of every key, and how a name finds its row.
 */
#include <string.h>

#include "core/config_private.h"

#define MAIN(f)       offsetof(struct config, f)
#define ROUTE(f)      offsetof(struct config_route, f)
#define COUNTER(f)    offsetof(struct config_counter, f)
#define INVALIDATE(f) offsetof(struct config_invalidate, f)

/* clang-format off */
#define MS     INT64_C(1)
#define SECOND (1000 * MS)
#define MINUTE (60 * SECOND)
#define HOUR   (60 * MINUTE)
#define KIB INT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* In the order in which they are documented and printed: a section's own keys, then what lies below it. */
const struct config_key config_keys[] = {
    {"kafka.brokers", CONFIG_STRING, MAIN(kafka.brokers), NULL, 0, 0, NULL, CONFIG_REQUIRED,
     "Brokers to start from, host:port, several with commas."},
    {"kafka.group", CONFIG_STRING, MAIN(kafka.group), NULL, 0, 0, NULL, CONFIG_REQUIRED,
     "Consumer group; all processes with the same group share the partitions."},
    {"kafka.instance_id", CONFIG_STRING, MAIN(kafka.instance_id), "", 0, 0, NULL, 0,
     "Static membership: a name that is this process's own in the group and stays across restarts; empty: off."},
    {"kafka.client_id", CONFIG_STRING, MAIN(kafka.client_id), "idemsink", 0, 0, NULL, 0,
     "Name under which the brokers log this client."},
    {"kafka.properties", CONFIG_PAIRS, MAIN(kafka.properties), NULL, 0, 200, NULL, 0,
     "Any other property of librdkafka, checked by it."},

    {"mongo.uri", CONFIG_STRING, MAIN(mongo.uri), NULL, 0, 0, NULL, CONFIG_REQUIRED | CONFIG_SECRET,
     "Connection string, mongodb:// or mongodb+srv://."},
    {"mongo.write_concern", CONFIG_STRING, MAIN(mongo.write_concern), "majority", 0, 0, NULL, 0,
     "What acknowledges a write: majority, a number of members or a tag; less than majority can lose "
     "acknowledged writes in a fail-over."},
    {"mongo.journal", CONFIG_BOOL, MAIN(mongo.journal), "true", 0, 0, NULL, 0,
     "Whether the acknowledgement waits for the journal."},
    {"mongo.server_selection_timeout", CONFIG_DURATION, MAIN(mongo.server_selection_timeout_ms), "3s",
     100 * MS, 10 * MINUTE, NULL, 0, "How long one attempt looks for a usable server before it is tried again later."},
    {"mongo.connect_timeout", CONFIG_DURATION, MAIN(mongo.connect_timeout_ms), "3s",
     100 * MS, 10 * MINUTE, NULL, 0, "How long one connection may take to be made."},
    {"mongo.socket_timeout", CONFIG_DURATION, MAIN(mongo.socket_timeout_ms), "10s",
     1 * SECOND, 10 * MINUTE, NULL, 0, "How long an answer may take before the connection is given up and the write sent again."},
    {"mongo.write_timeout", CONFIG_DURATION, MAIN(mongo.write_timeout_ms), "5s",
     100 * MS, 10 * MINUTE, NULL, 0, "How long the server waits for the write concern (wtimeout); below socket_timeout."},

    {"redis.uri", CONFIG_STRING, MAIN(redis.uri), "", 0, 0, NULL, CONFIG_SECRET,
     "Where invalidations go, redis:// or rediss://; empty: no Redis."},
    {"redis.timeout", CONFIG_DURATION, MAIN(redis.timeout_ms), "2s", 10 * MS, 1 * MINUTE, NULL, 0,
     "How long connecting and one answer may take."},
    {"redis.max_pending", CONFIG_INT, MAIN(redis.max_pending), "100000", 1, 10000000, NULL, 0,
     "Different invalidations that are kept while Redis is away."},
    {"redis.max_pending_bytes", CONFIG_BYTES, MAIN(redis.max_pending_bytes), "64MiB", 64 * KIB, 1024 * GIB, NULL, 0,
     "Most bytes that they take; what comes first holds."},
    {"redis.before_commit_limit", CONFIG_DURATION, MAIN(redis.before_commit_limit_ms), "0s", 0, 24 * HOUR, NULL, 0,
     "How long a record may wait for Redis before its offset is committed without the invalidation; 0s: without limit."},
    {"redis.instance_id", CONFIG_STRING, MAIN(redis.instance_id), "", 0, 0, NULL, 0,
     "Sender in monSQLize messages, unlike that of every receiver; empty: INSTANCE_ID, POD_NAME or HOSTNAME of the "
     "environment, else made up."},

    {"worker.threads", CONFIG_INT, MAIN(worker.threads), "4", 1, 64, NULL, 0,
     "Threads that write, each with a connection of its own."},
    {"worker.batch", CONFIG_INT, MAIN(worker.batch), "1000", 1, 10000, NULL, 0,
     "Most records in one bulk."},
    {"worker.run_max", CONFIG_INT, MAIN(worker.run_max), "1000", 1, 10000, NULL, 0,
     "Most records of one ordering key in one bulk."},
    {"worker.linger", CONFIG_DURATION, MAIN(worker.linger_ms), "5ms", 0, 10 * SECOND, NULL, 0,
     "How long a bulk that is not full waits for more records."},
    {"worker.max_records", CONFIG_INT, MAIN(worker.max_records), "50000", 1, 10000000, NULL, 0,
     "Most records that are consumed and not settled; at least batch."},
    {"worker.max_bytes", CONFIG_BYTES, MAIN(worker.max_bytes), "64MiB", 1 * MIB, 1024 * GIB, NULL, 0,
     "Most bytes of their keys, values and headers, librdkafka's prefetch included."},
    {"worker.drain_timeout", CONFIG_DURATION, MAIN(worker.drain_timeout_ms), "8s", 100 * MS, 10 * MINUTE, NULL, 0,
     "How long revoked partitions and a stopping process may finish what is in flight; below half of "
     "max.poll.interval.ms and below the kill time of whatever stops the process."},
    {"worker.commit_interval", CONFIG_DURATION, MAIN(worker.commit_interval_ms), "1s", 10 * MS, 1 * MINUTE, NULL, 0,
     "How often offsets are committed."},

    {"retry.first", CONFIG_DURATION, MAIN(retry.first_ms), "100ms", 1 * MS, 1 * MINUTE, NULL, 0,
     "Longest wait before the first repetition; doubles from there, a random part of it is waited."},
    {"retry.max", CONFIG_DURATION, MAIN(retry.max_ms), "30s", 1 * MS, 1 * HOUR, NULL, 0,
     "Longest wait between two attempts; there is no last attempt."},
    {"retry.max_unknown", CONFIG_INT, MAIN(retry.max_unknown), "20", 0, 1000000, NULL, 0,
     "How often a record that MongoDB refuses with a code that nobody knows is repeated alone, other documents "
     "being stored meanwhile, before it is dead-lettered as rejected; 0: never."},

    {"effects.sweep_after", CONFIG_DURATION, MAIN(effects.sweep_after_ms), "30s", 1 * SECOND, 24 * HOUR, NULL, 0,
     "effects = log: how old an effect that was begun and not finished is when another process finishes it."},
    {"effects.attempt", CONFIG_DURATION, MAIN(effects.attempt_ms), "5s", 500 * MS, 5 * MINUTE, NULL, 0,
     "effects = log: how long one attempt may take by MongoDB's clock; what comes later is refused by the server."},
    {"effects.keep", CONFIG_INT, MAIN(effects.keep), "50000", 1000, 200000, NULL, 0,
     "effects = log: most operations that a counter document remembers as applied."},
    {"effects.reconcile_every", CONFIG_DURATION, MAIN(effects.reconcile_every_ms), "0s", 0, 8760 * HOUR, NULL, 0,
     "How often one of the processes compares all counters with the truth, and repairs them; 0s: never."},
    {"effects.reconcile_from", CONFIG_ENUM, MAIN(effects.reconcile_from), "primary", 0, 0, "primary|secondary", 0,
     "Where the truth is counted; what differs is looked at again on the primary."},

    {"dead_letter.topic", CONFIG_STRING, MAIN(dead_letter.topic), "", 0, 0, NULL, 0,
     "Topic for records that can never be stored; empty: none."},
    {"dead_letter.on_bad_record", CONFIG_ENUM, MAIN(dead_letter.on_bad_record), "stop", 0, 0, "stop|skip", 0,
     "Without a topic: stop at the first such record, or skip (lose) them, counted."},

    {"http.listen", CONFIG_STRING, MAIN(http.listen), "127.0.0.1:9464", 0, 0, NULL, 0,
     "host:port of /metrics, /healthz and /readyz; empty: off."},

    {"log.level", CONFIG_ENUM, MAIN(log.level), "info", 0, 0, "debug|info|warn|error", 0,
     "The least that is logged."},
    {"log.format", CONFIG_ENUM, MAIN(log.format), "json", 0, 0, "json|text", 0,
     "One JSON object or one readable line per event, on stderr."},

    {"route.name", CONFIG_STRING, ROUTE(name), NULL, 0, 0, NULL, 0,
     "Name in logs and metrics; default: the collection."},
    {"route.topics", CONFIG_LIST, ROUTE(topics), NULL, 1, 1000, NULL, CONFIG_REQUIRED,
     "Topics by name, or one \"^regex\" (POSIX extended)."},
    {"route.collection", CONFIG_STRING, ROUTE(collection), NULL, 0, 0, NULL, CONFIG_REQUIRED,
     "Where the documents go, database.collection."},
    {"route.order_by", CONFIG_STRING, ROUTE(order_by), "@key", 0, 0, NULL, 0,
     "Records with the same value are applied in partition order: @key, @partition, @dedup, @header.NAME or a value path; one without it takes its dedup key."},
    {"route.format", CONFIG_ENUM, ROUTE(format), "json", 0, 0, "json|extjson|bson|string|bytes", 0,
     "What the values are: JSON, Extended JSON v2, one BSON document, a text, or any bytes."},
    {"route.value_field", CONFIG_STRING, ROUTE(value_field), "value", 0, 0, NULL, 0,
     "format string, bytes: document path under which the whole value is stored."},
    {"route.drop_nulls", CONFIG_BOOL, ROUTE(drop_nulls), "false", 0, 0, NULL, 0,
     "Whether fields that are null are left out, also those of objects inside; elements of arrays stay."},
    {"route.write", CONFIG_ENUM, ROUTE(write), "upsert", 0, 0, "upsert|insert|auto", 0,
     "How documents are written, with the same result: upsert; insert, cheaper while duplicates are rare; auto (look up, "
     "then insert what is not there), cheaper where they are many."},
    {"route.tombstone", CONFIG_ENUM, ROUTE(tombstone), "skip", 0, 0, "skip|dead_letter|delete", 0,
     "What a record with a null value is; delete: it removes its entity ([route.entity])."},
    {"route.ensure_index", CONFIG_BOOL, ROUTE(ensure_index), "false", 0, 0, NULL, 0,
     "Whether missing indexes are made at start, as idemsink init does: of the dedup key, and those of effects."},
    {"route.trust_index", CONFIG_BOOL, ROUTE(trust_index), "false", 0, 0, NULL, 0,
     "Whether to start without the proof of the indexes where there is no right to list them."},
    {"route.include", CONFIG_LIST, ROUTE(include), NULL, 0, 1000, NULL, 0,
     "Payload paths that are stored; empty: all. Not together with exclude."},
    {"route.exclude", CONFIG_LIST, ROUTE(exclude), NULL, 0, 1000, NULL, 0,
     "Payload paths that are not stored."},
    {"route.under", CONFIG_STRING, ROUTE(under), "", 0, 0, NULL, 0,
     "Document path below which the whole payload is stored; empty: at the top."},
    {"route.source_fields", CONFIG_STRING, ROUTE(source_fields), "", 0, 0, NULL, 0,
     "Document path of a sub-document with topic, partition, offset, timestamp and key; empty: off."},
    {"route.effects", CONFIG_ENUM, ROUTE(effects), "auto", 0, 0, "auto|transaction|log", 0,
     "How counters and removals follow exactly once: in one transaction with the document, or by a log in it; auto: "
     "transaction, but for a standalone mongod."},
    {"route.dedup.key", CONFIG_LIST, ROUTE(dedup.key), NULL, 1, 8, NULL, CONFIG_REQUIRED,
     "The identity of the event: value paths, @key, @header.NAME or @offset."},
    {"route.dedup.into", CONFIG_ENUM, ROUTE(dedup.into_id), "", 0, 0, "|_id", CONFIG_AS_BOOL,
     "Empty: the identity is stored in fields under a unique index; _id: it is the document's _id."},
    {"route.dedup.fields", CONFIG_LIST, ROUTE(dedup.fields), NULL, 0, 8, NULL, 0,
     "Document paths of the parts of key, one each; default: where a value path lies in the document."},
    {"route.dedup.conflict", CONFIG_ENUM, ROUTE(dedup.conflict), "off", 0, 0, "off|count|dead_letter", 0,
     "Whether a duplicate with another payload than the stored one is told apart: counted and logged, or a dead letter."},
    {"route.dedup.conflict_field", CONFIG_STRING, ROUTE(dedup.conflict_field), "_payload_hash", 0, 0, NULL, 0,
     "Where the document holds the hash of its payload for that, a name at its top."},
    {"route.entity.key", CONFIG_LIST, ROUTE(entity.key), NULL, 0, 8, NULL, 0,
     "What an event adds or removes, where that is not the event itself: value paths, @key or @header.NAME."},
    {"route.entity.fields", CONFIG_LIST, ROUTE(entity.fields), NULL, 0, 8, NULL, 0,
     "Document paths of the parts of key, one each; default: where a value path lies in the document."},
    {"route.operation.source", CONFIG_STRING, ROUTE(operation.source), "", 0, 0, NULL, 0,
     "Which value says what the event does: a value path or @header.NAME; empty: all insert, tombstones delete."},
    {"route.operation.insert", CONFIG_LIST, ROUTE(operation.insert), NULL, 0, 20, NULL, 0,
     "Its values that add the entity."},
    {"route.operation.delete", CONFIG_LIST, ROUTE(operation.remove), NULL, 0, 20, NULL, 0,
     "Its values that remove the entity."},
    {"route.operation.ledger", CONFIG_STRING, ROUTE(operation.ledger), "", 0, 0, NULL, 0,
     "Collection with one document per event, database.collection; default: the route's with _ledger behind it."},
    {"route.operation.ledger_expire", CONFIG_DURATION, ROUTE(operation.ledger_expire_ms), "0s", 0, 87600 * HOUR, NULL, 0,
     "How long the ledger remembers an event, longer than Kafka can deliver it again; 0s: for ever."},
    {"route.sequence.field", CONFIG_STRING, ROUTE(sequence.field), "", 0, 0, NULL, 0,
     "Field of the document, at its top, that gets the number (int64); empty: no sequence."},
    {"route.sequence.group", CONFIG_LIST, ROUTE(sequence.group), NULL, 0, 8, NULL, 0,
     "Numbers are counted per value of these: value paths, @key, @header.NAME or @topic; empty: one count for all."},
    {"route.sequence.mode", CONFIG_ENUM, ROUTE(sequence.mode), "gapless", 0, 0, "gapless|block|max", 0,
     "gapless: 1, 2, 3 without a hole, by a transaction; block: a crash may leave holes; max: the highest there is + 1, "
     "for collections whose numbers others give, too."},
    {"route.sequence.start", CONFIG_INT, ROUTE(sequence.start), "1", 0, INT64_C(1000000000000000), NULL, 0,
     "The first number of a group."},
    {"route.sequence.collection", CONFIG_STRING, ROUTE(sequence.collection), "", 0, 0, NULL, 0,
     "Collection of the groups' counters, database.collection; default: the route's with _sequences behind it."},
    {"route.sequence.template", CONFIG_STRING, ROUTE(sequence.template), "", 0, 0, NULL, 0,
     "Text with the number and the parts of group in it, like {category}-{seq:06}; empty: none."},
    {"route.sequence.template_field", CONFIG_STRING, ROUTE(sequence.template_field), "", 0, 0, NULL, 0,
     "Field of the document, at its top, that gets the text."},
    {"route.lock.key", CONFIG_STRING, ROUTE(lock.key), "", 0, 0, NULL, 0,
     "Template of the lock's key in Redis, held while the record is written; empty: no lock."},
    {"route.lock.prefix", CONFIG_STRING, ROUTE(lock.prefix), "monsqlize:cache:lock:", 0, 0, NULL, 0,
     "What stands before the key: that of the programs that take the same locks (default: monSQLize's)."},
    {"route.lock.ttl", CONFIG_DURATION, ROUTE(lock.ttl_ms), "10s", 100 * MS, 10 * MINUTE, NULL, 0,
     "How long Redis keeps a lock whose holder has died."},
    {"route.lock.wait", CONFIG_DURATION, ROUTE(lock.wait_ms), "200ms", 0, 1 * MINUTE, NULL, 0,
     "How long a batch waits for locks; a record that has none by then goes back into its lane."},
    {"route.lock.fence", CONFIG_STRING, ROUTE(lock.fence), "", 0, 0, NULL, 0,
     "Collection of the fencing numbers, database.collection: a holder whose lock has run out can't write; empty: none."},
    {"route.lock.fence_field", CONFIG_STRING, ROUTE(lock.fence_field), "", 0, 0, NULL, 0,
     "Field of the document, at its top, that gets the fencing number (int64); empty: it is not stored there."},
    {"route.seen.entries", CONFIG_INT, ROUTE(seen.entries), "0", 0, 100000000, NULL, 0,
     "Dedup keys that are remembered as stored, so that a duplicate needs no MongoDB; 0: none."},
    {"route.seen.bytes", CONFIG_BYTES, ROUTE(seen.bytes), "128MiB", 64 * KIB, 1024 * GIB, NULL, 0,
     "Most bytes that they take; what comes first holds."},
    {"route.seen.ttl", CONFIG_DURATION, ROUTE(seen.ttl_ms), "10m", 1 * SECOND, 8760 * HOUR, NULL, 0,
     "How long a key is remembered."},
    {"route.seen.redis", CONFIG_STRING, ROUTE(seen.redis), "", 0, 0, NULL, 0,
     "Prefix of keys in Redis by which processes share what they have seen; {route} is the route's name; empty: off."},
    {"route.seen.drop_on", CONFIG_STRING, ROUTE(seen.drop_on), "", 0, 0, NULL, 0,
     "Channel of Redis on which others tell that they changed the collection: then all is forgotten; empty: off."},
    {"route.types", CONFIG_PAIRS, ROUTE(types), NULL, 0, 1000,
     "date|date_ms|date_s|date_us|objectid|decimal|long|double|uuid|binary|binary_url", 0,
     "Payload path = type that the value is converted to."},
    {"route.rename", CONFIG_PAIRS, ROUTE(rename), NULL, 0, 1000, NULL, 0,
     "Payload path = path under which the value is stored instead."},
    {"route.set", CONFIG_PAIRS, ROUTE(set), NULL, 0, 1000, NULL, 0,
     "Document path = constant, or a source: @topic, @partition, @offset, @timestamp, @key, @header.NAME."},

    {"route.counter.collection", CONFIG_STRING, COUNTER(collection), NULL, 0, 0, NULL, CONFIG_REQUIRED,
     "Where the counter documents are, database.collection."},
    {"route.counter.upsert", CONFIG_BOOL, COUNTER(upsert), "true", 0, 0, NULL, 0,
     "Whether a counter document that is not there is made; else the move is dropped and counted."},
    {"route.counter.mirror", CONFIG_STRING, COUNTER(mirror), "", 0, 0, NULL, 0,
     "Key of the hash in Redis that gets the acknowledged values, with all of the filter's fields in braces; empty: off."},
    {"route.counter.filter", CONFIG_PAIRS, COUNTER(filter), NULL, 1, 8, NULL, CONFIG_REQUIRED,
     "Field of the counter document = source: a value path, @key, @header.NAME, @topic."},
    {"route.counter.inc", CONFIG_PAIRS, COUNTER(inc), NULL, 1, 20, NULL, CONFIG_REQUIRED,
     "Field of the counter document = how much a new event adds: an integer, or a value path to one."},

    {"route.invalidate.mode", CONFIG_ENUM, INVALIDATE(mode), NULL, 0, 0, "pubsub|unlink|monsqlize|version|stream", CONFIG_REQUIRED,
     "PUBLISH a message, UNLINK keys, monSQLize's messages, INCR the keys of generations, or XADD to a stream."},
    {"route.invalidate.channel", CONFIG_STRING, INVALIDATE(channel), NULL, 0, 0, NULL, 0,
     "pubsub: template of the channel. monsqlize: the channel, default monsqlize:cache:invalidate."},
    {"route.invalidate.stream", CONFIG_STRING, INVALIDATE(stream), NULL, 0, 0, NULL, 0,
     "stream: template of the stream's name."},
    {"route.invalidate.maxlen", CONFIG_INT, INVALIDATE(maxlen), "10000", 1, 1000000000, NULL, 0,
     "stream: how many entries it keeps, at least (MAXLEN ~): as many as come while a receiver may be away."},
    {"route.invalidate.payload", CONFIG_STRING, INVALIDATE(payload), NULL, 0, 0, NULL, 0,
     "pubsub, stream: template of the message, JSON."},
    {"route.invalidate.keys", CONFIG_LIST, INVALIDATE(keys), NULL, 0, 100, NULL, 0,
     "unlink, monsqlize with flavor 3: templates of the cache keys. version: of the generation keys."},
    {"route.invalidate.expire", CONFIG_DURATION, INVALIDATE(expire_ms), "0s", 0, 8760 * HOUR, NULL, 0,
     "version: how long a generation key lives after its last change, at least 1s, and longer than every cache entry; "
     "0s: for ever."},
    {"route.invalidate.flavor", CONFIG_INT, INVALIDATE(flavor), "1", 1, 3, NULL, 0,
     "monsqlize: 1 for receivers of version 1.x, 3 for 3.x."},
    {"route.invalidate.patterns", CONFIG_BOOL, INVALIDATE(patterns), NULL, 0, 0, NULL, 0,
     "monsqlize: whether the pattern of the whole collection is sent; default: true for flavor 1, false for 3."},
    {"route.invalidate.collections", CONFIG_LIST, INVALIDATE(collections), NULL, 0, 20, NULL, 0,
     "monsqlize: the collections whose patterns are sent, database.collection, like those of counters; default: the route's."},
    {"route.invalidate.bookmarks", CONFIG_BOOL, INVALIDATE(bookmarks), "false", 0, 0, NULL, 0,
     "monsqlize with flavor 3: whether the pattern of the collection's bookmarks is sent."},
    {"route.invalidate.receivers_echo_safe", CONFIG_BOOL, INVALIDATE(receivers_echo_safe), "false", 0, 0, NULL, 0,
     "monsqlize with flavor 3: your word that receivers do not send patterns on for ever (two multi-level 3.x ones do)."},
    {"route.invalidate.publish_on", CONFIG_ENUM, INVALIDATE(publish_on), "always", 0, 0, "always|inserted", 0,
     "Whether a duplicate is told too; a process that dies between write and message needs that to be made good."},
    {"route.invalidate.delivery", CONFIG_ENUM, INVALIDATE(delivery), "best_effort", 0, 0, "best_effort|before_commit", 0,
     "Whether consumption goes on while Redis is away, or the offset waits for the message."},
    {"route.invalidate.coalesce", CONFIG_DURATION, INVALIDATE(coalesce_ms), "100ms", 0, 1 * MINUTE, NULL, 0,
     "Equal messages within this time become one at its start and one at its end; 0s: off."},
    {"route.invalidate.repeat_after", CONFIG_DURATION, INVALIDATE(repeat_after_ms), "2s", 0, 10 * MINUTE, NULL, 0,
     "Each message is sent once more after this time, for the reader that filled its cache with the old state; 0s: off."},
};
/* clang-format on */
const size_t config_keys_count = sizeof config_keys / sizeof config_keys[0];

static const char route_prefix[] = "route.", counter_prefix[] = "route.counter.",
                  invalidate_prefix[] = "route.invalidate.";

enum config_group config_group_of(const struct config_key *k)
{
    if (strncmp(k->name, invalidate_prefix, sizeof invalidate_prefix - 1) == 0)
        return GROUP_INVALIDATE;
    if (strncmp(k->name, counter_prefix, sizeof counter_prefix - 1) == 0)
        return GROUP_COUNTER;
    if (strncmp(k->name, route_prefix, sizeof route_prefix - 1) == 0)
        return GROUP_ROUTE;
    return GROUP_MAIN;
}

const struct config_key *config_key_find(const char *section, const char *name)
{
    size_t n = strlen(section);

    for (size_t i = 0; i < config_keys_count; i++) {
        const char *have = config_keys[i].name;

        if (n == 0 ? strcmp(have, name) == 0
                   : strncmp(have, section, n) == 0 && have[n] == '.' &&
                         strcmp(have + n + 1, name) == 0)
            return &config_keys[i];
    }
    return NULL;
}

bool config_section_exists(const char *section)
{
    size_t n = strlen(section);

    for (size_t i = 0; i < config_keys_count; i++)
        if (strncmp(config_keys[i].name, section, n) == 0 && config_keys[i].name[n] == '.')
            return true;
    return false;
}

int config_choice_of(const char *choices, const char *word)
{
    size_t n = strlen(word);
    int index = 0;

    for (const char *at = choices;; index++) {
        size_t len = strcspn(at, "|");

        if (len == n && memcmp(at, word, n) == 0)
            return index;
        if (at[len] == '\0')
            return -1;
        at += len + 1;
    }
}

void config_choice_name(const char *choices, int index, struct buf *out)
{
    const char *at = choices;

    for (; index > 0; index--)
        at += strcspn(at, "|") + 1;
    buf_add(out, at, strcspn(at, "|"));
}

/* --- the nearest name
 * --------------------------------------------------------------------------------------- */

enum { NAME_MAX_LEN = 64 };

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Letters to add, drop, change or swap with a neighbour; texts longer than any key are far from
 * all. */
static size_t distance(const char *a, size_t na, const char *b, size_t nb)
{
    size_t rows[3][NAME_MAX_LEN + 1], *before = rows[0], *last = rows[1], *row = rows[2];

    if (na > NAME_MAX_LEN || nb > NAME_MAX_LEN)
        return SIZE_MAX;
    for (size_t j = 0; j <= nb; j++) {
        last[j] = j;
        before[j] = 0;
    }
    for (size_t i = 1; i <= na; i++) {
        size_t *spare = before;

        row[0] = i;
        for (size_t j = 1; j <= nb; j++) {
            size_t change = last[j - 1] + (a[i - 1] != b[j - 1]);

            row[j] = least(change, least(last[j], row[j - 1]) + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], before[j - 2] + 1);
        }
        before = last;
        last = row;
        row = spare;
    }
    return last[nb];
}

static bool near(size_t d, size_t len)
{
    return d <= 1 + len / 3;
}

void config_add_nearest_choice(const char *choices, const char *word, struct buf *out)
{
    size_t best = SIZE_MAX, best_len = 0;
    const char *found = NULL;

    for (const char *at = choices;; at++) {
        size_t len = strcspn(at, "|");
        size_t d = distance(word, strlen(word), at, len);

        if (len > 0 && d < best) {
            best = d;
            found = at;
            best_len = len;
        }
        at += len;
        if (*at == '\0')
            break;
    }
    if (found && near(best, strlen(word)))
        buf_printf(out, "; did you mean \"%.*s\"?", (int)best_len, found);
}

/* The nearest of what may stand in this section; *best its length. NULL: none is near. */
static const char *nearest_sibling(const char *section, const char *name, size_t *best_len)
{
    size_t n = strlen(section), best = SIZE_MAX;
    const char *found = NULL;

    for (size_t i = 0; i < config_keys_count; i++) {
        const char *have = config_keys[i].name;
        size_t len, d;

        if (n > 0) {
            if (strncmp(have, section, n) != 0 || have[n] != '.')
                continue;
            have += n + 1;
        }
        len = strcspn(have, ".");
        d = distance(name, strlen(name), have, len);
        if (d < best) {
            best = d;
            found = have;
            *best_len = len;
        }
    }
    return found && near(best, strlen(name)) ? found : NULL;
}

/* The nearest key anywhere by its last word, for what stands in the wrong section. */
static const struct config_key *nearest_elsewhere(const char *name)
{
    const struct config_key *found = NULL;
    size_t best = SIZE_MAX;

    for (size_t i = 0; i < config_keys_count; i++) {
        const char *word = strrchr(config_keys[i].name, '.') + 1;
        size_t d = distance(name, strlen(name), word, strlen(word));

        if (d < best) {
            best = d;
            found = &config_keys[i];
        }
    }
    return near(best, strlen(name)) ? found : NULL;
}

static void list_siblings(const char *section, struct buf *out)
{
    size_t n = strlen(section), last_len = 0;
    const char *last = "";

    for (size_t i = 0; i < config_keys_count; i++) {
        const char *have = config_keys[i].name;
        size_t len;

        if (n > 0) {
            if (strncmp(have, section, n) != 0 || have[n] != '.')
                continue;
            have += n + 1;
        }
        len = strcspn(have, ".");
        if (len == last_len && memcmp(have, last, len) == 0)
            continue;
        buf_add_text(out, out->len ? ", " : "");
        buf_add(out, have, len);
        last = have;
        last_len = len;
    }
}

bool config_fail_unknown(struct config_parse_state *s, const char *section, const char *name)
{
    const struct config_key *k;
    struct buf known = {0};
    size_t len = 0;
    const char *sibling = nearest_sibling(section, name, &len);

    if (sibling)
        return config_fail(s, "unknown key; did you mean \"%.*s\"?", (int)len, sibling);
    if ((k = nearest_elsewhere(name)))
        return config_fail(s, "unknown key; did you mean %s?", k->name);
    list_siblings(section, &known);
    config_fail(s, "unknown key; known here: %s", buf_text(&known));
    buf_clear(&known);
    return false;
}
