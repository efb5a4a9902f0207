/*
 * config.h - the whole configuration, checked, in one read-only struct.
 *
 * Made once at start and never changed: any thread may read it without a lock.
 * All strings belong to the config.
 */
#ifndef IDEMSINK_CORE_CONFIG_H
#define IDEMSINK_CORE_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "base/err.h"
#include "core/config_effects.h"

enum config_on_bad { ON_BAD_STOP, ON_BAD_SKIP };
enum config_tombstone { TOMBSTONE_SKIP, TOMBSTONE_DEAD_LETTER, TOMBSTONE_DELETE };
enum config_conflict { CONFLICT_OFF, CONFLICT_COUNT, CONFLICT_DEAD_LETTER };
enum config_format { FORMAT_JSON, FORMAT_EXTJSON, FORMAT_BSON, FORMAT_STRING, FORMAT_BYTES };
enum config_write { WRITE_UPSERT, WRITE_INSERT, WRITE_AUTO };
enum config_read_from { READ_FROM_PRIMARY, READ_FROM_SECONDARY };
enum config_log_level { CONFIG_LOG_DEBUG, CONFIG_LOG_INFO, CONFIG_LOG_WARN, CONFIG_LOG_ERROR };
enum config_log_format { CONFIG_LOG_JSON, CONFIG_LOG_TEXT };

enum config_invalidate_mode {
    INVALIDATE_PUBSUB,
    INVALIDATE_UNLINK,
    INVALIDATE_MONSQLIZE,
    INVALIDATE_VERSION,
    INVALIDATE_STREAM
};
enum config_publish_on { PUBLISH_ALWAYS, PUBLISH_INSERTED };
enum config_delivery { DELIVERY_BEST_EFFORT, DELIVERY_BEFORE_COMMIT };

struct config_invalidate {
    uint32_t index; /* counted through all routes */
    int64_t line;   /* of the file, where its table begins; below 1: it came from --set */
    enum config_invalidate_mode mode;
    char *channel;           /* pubsub: a template; monsqlize: default monsqlize:cache:invalidate */
    char *stream;            /* stream: a template of its name */
    char *payload;           /* pubsub, stream: a JSON template */
    struct config_list keys; /* unlink, monsqlize, version: key templates */
    int64_t expire_ms;       /* version: life of a generation key after a change; 0: for ever */
    int64_t maxlen;          /* stream: how many entries it keeps, at least */
    int64_t flavor;          /* monsqlize: 1 or 3 */
    bool patterns;           /* monsqlize: the collection's pattern; default: with flavor 1 */
    bool bookmarks;          /* monsqlize, flavor 3: also the bookmark pattern */
    bool receivers_echo_safe;
    struct config_list collections; /* monsqlize: database.collection, whose patterns are sent;
                                       empty: the route's */
    enum config_publish_on publish_on;
    enum config_delivery delivery;
    int64_t coalesce_ms, repeat_after_ms; /* 0: off */
};

const char *config_invalidate_mode_name(enum config_invalidate_mode mode);

struct config_dedup {
    struct config_list key; /* sources */
    /* Document paths of the parts, as many; empty when into_id. Never empty otherwise: the given
     * ones, else each value path's place in the document (rename and under applied). None is _id or
     * below it. */
    struct config_list fields;
    bool into_id; /* dedup.into = "_id" */
    enum config_conflict conflict;
    char *conflict_field; /* a name at the top of the document; never empty */
};

struct config_route {
    char *name; /* for metrics and logs; default: "database.collection"; no two are equal */
    struct config_list topics; /* names, or one "^regex" */
    char *database, *collection;
    char *order_by; /* a source, "@partition" or "@dedup" */
    enum config_format format;
    char *value_field; /* STRING, BYTES: document path of the value, below under */
    bool drop_nulls;   /* members that are null are not stored */
    enum config_write write;
    enum config_tombstone tombstone;
    bool ensure_index; /* make a missing dedup index at start */
    bool trust_index;  /* no right to list indexes: go on without the proof */
    struct config_dedup dedup;
    struct config_pairs types; /* payload path -> type name */
    struct config_list include, exclude;
    struct config_pairs rename; /* payload path -> path */
    /* Document path -> JSON text of a string, number or boolean, or "@topic" "@partition" "@offset"
     * "@timestamp"
     * "@key" "@header.NAME". JSON never starts with an @. */
    struct config_pairs set;
    char *under;         /* document path; "" when off */
    char *source_fields; /* document path of the sub-document; "" when off */
    enum config_effects effects;
    bool beside_counters, beside_operation; /* found out: a route with them has its collection */
    struct config_counter *counters;
    size_t n_counters;
    struct config_sequence sequence;
    struct config_operation operation;
    struct config_entity entity;
    struct config_lock lock;
    struct config_seen seen;
    struct config_invalidate *invalidate;
    size_t n_invalidate;
};

struct config {
    struct {
        char *brokers, *group, *instance_id; /* instance_id "" when off */
        char *client_id;
        struct config_pairs properties; /* for librdkafka */
    } kafka;
    struct {
        char *uri;           /* secret */
        char *write_concern; /* "majority", or a number or tag as text */
        bool journal;
        int64_t server_selection_timeout_ms, connect_timeout_ms, socket_timeout_ms,
            write_timeout_ms;
    } mongo;
    struct {
        char *uri; /* "" when there is no Redis; secret */
        int64_t timeout_ms;
        int64_t max_pending;            /* invalidation targets kept while Redis is away */
        int64_t max_pending_bytes;      /* and what they take */
        int64_t before_commit_limit_ms; /* 0: without limit */
        char *instance_id; /* monsqlize; "" : INSTANCE_ID, POD_NAME, HOSTNAME, else made up */
    } redis;
    struct {
        int64_t threads, batch, run_max, linger_ms, max_records, max_bytes, drain_timeout_ms,
            commit_interval_ms;
    } worker;
    struct {
        int64_t first_ms, max_ms, max_unknown;
    } retry;
    struct {
        int64_t sweep_after_ms, attempt_ms, keep;
        int64_t reconcile_every_ms; /* 0: off */
        enum config_read_from reconcile_from;
    } effects;
    struct {
        char *topic; /* "" when there is none */
        enum config_on_bad on_bad_record;
    } dead_letter;
    struct {
        char *listen; /* "" : off */
    } http;
    struct {
        enum config_log_level level;
        enum config_log_format format;
    } log;
    struct config_route *routes;
    size_t n_routes;
};

/*
 * What the libraries that a value is for say to it; any may be NULL. False: why in words that hold
 * no secret. property: *known gets all names, "a|b|c", when it has none of this name.
 */
struct config_drivers {
    bool (*property)(const char *name, const char *value, struct buf *why, struct buf *known);
    bool (*mongo_uri)(const char *uri, struct buf *why);
    bool (*redis_uri)(const char *uri, struct buf *why);
};
/*
 * name is for messages: "name:12:3: worker.threads: 0 is below the minimum 1", or "--set KEY: ..."
 * for what came from there. Tells the first mistake (ERR_CONFIG); never guesses, never ignores an
 * unknown key, never shows a secret. overrides: "key=value" texts of --set, put over the text
 * before anything is checked: "worker.threads=8", "route.0.collection=a.b",
 * "route.NAME.collection=a.b". What begins with a quote, [ or { is TOML, the rest a string. env:
 * looks up an environment variable for ${NAME}; NULL for none set.
 */
struct config_input {
    const char *name;
    struct slice text;
    const char *const *overrides;
    size_t n_overrides;
    const char *(*env)(const char *name);
    struct config_drivers drivers;
};
struct config *config_parse(const struct config_input *in, struct err *e) MUST_CHECK;
void config_free(struct config *c); /* NULL is fine */

/* The effective configuration as TOML, every key written out, secrets as "***" and URIs without
 * their passwords. It is read back to the same configuration, but for those. Appends to out. */
void config_print(const struct config *c, struct buf *out);

/* Index of the route of this topic. Two expressions may meet in a topic that nobody thought of:
 * that is seen here at the latest, and neither has it. Compiles them each time: once per topic, not
 * per record. */
enum { CONFIG_NO_ROUTE = -1, CONFIG_TWO_ROUTES = -2 };
int config_route_of(const struct config *c, const char *topic);
/* Why a topic has no index of a route (ERR_CONFIG). Returns false. */
bool config_route_fail(const struct config *c, const char *topic, struct err *e);

/* Has it counters, a sequence or an operation? And the others. */
bool config_has_effects(const struct config_route *r);
bool config_has_operation(const struct config_route *r);
bool config_has_sequence(const struct config_route *r);
/* Is the source a placeholder of the template? "{{" is a brace. */
bool config_is_in_text(const struct config_sequence *q, const char *source);
/* The first part of the group that the text doesn't name: groups that differ in such parts alone
 * have equal texts. NULL: none, or there is no text. */
const char *config_not_in_text(const struct config_sequence *q);
bool config_has_lock(const struct config_route *r);
bool config_has_fence(const struct config_route *r); /* its lock has numbers */
bool config_has_seen(const struct config_route *r);
bool config_shares_seen(const struct config_route *r);  /* seen.redis */
char *config_seen_prefix(const struct config_route *r); /* with the route's name; mem_free() */

/* The path at which the route's documents hold what a source says (include, exclude, rename, under,
 * set, source_fields and the key are looked at); mem_free(). NULL: they don't. */
char *config_stored_path(const struct config_route *r, const char *source);

/* Does any route have invalidations? And a counter that is mirrored? */
bool config_has_invalidations(const struct config *c);
bool config_has_mirrors(const struct config *c);

/* Appends '; did you mean "b"?' when one of choices ("a|b|c") is near to word. */
void config_add_nearest_choice(const char *choices, const char *word, struct buf *out);

#endif
