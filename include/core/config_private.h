/*
 * config_private.h - what the files src/core/config*.c share. Nobody else includes it.
 */
#ifndef IDEMSINK_CORE_CONFIG_PRIVATE_H
#define IDEMSINK_CORE_CONFIG_PRIVATE_H

#include <jansson.h>

#include "core/config_keys.h"
#include "core/template.h"

/*
 * One parse. path is where we are ("route.0.dedup.key"): numbers count the elements of lists, and
 * the names below a table of free names follow as they are. It gives every error its place.
 */
struct config_parse_state {
    const struct config_input *in;
    json_t *tree; /* wrapped, see toml.h */
    struct config *config;
    struct buf path;
    const char *beside; /* the path of a key that the one at the path is compared with; NULL */
    struct err *e;
};

/* Goes one step down and tells what config_leave() needs to come back. */
size_t config_enter(struct config_parse_state *s, const char *member);
size_t config_enter_index(struct config_parse_state *s, size_t index);
void config_leave(struct config_parse_state *s, size_t mark);

/* Puts the path somewhere else altogether. Returns s. */
struct config_parse_state *config_at(struct config_parse_state *s, const char *fmt, ...)
    PRINTF_LIKE(2, 3);

/* The same, with the key that it is compared with, which may be what somebody has just written. */
struct config_parse_state *config_beside(struct config_parse_state *s, const char *path,
                                         const char *beside);

/* The error at the path: "name:line:column: key: what". The place is that of the nearest thing that
 * is there; that of the key beside it, where only that one is there, or by --set. */
bool config_fail(struct config_parse_state *s, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* The same for a name that no key has, with the nearest that there is. section: "" "worker"
 * "route.dedup" */
bool config_fail_unknown(struct config_parse_state *s, const char *section, const char *name);

/* The wrapped value at a path; NULL when it is not in the text (nor in an override). */
json_t *config_find(const struct config_parse_state *s, const char *fmt, ...) PRINTF_LIKE(2, 3);

/* What a wrapped value is, in words: "a string", "a table", "a date". */
const char *config_kind_of(const json_t *wrapped);
/* The same with the value behind it, where it is one value and no secret. Appends to out. */
void config_add_kind(const json_t *wrapped, bool secret, struct buf *out);

/* --- the key table
 * ------------------------------------------------------------------------------------------ */

/* Four structs hold keys; the name tells which. */
enum config_group { GROUP_MAIN, GROUP_ROUTE, GROUP_COUNTER, GROUP_INVALIDATE };
enum config_group config_group_of(const struct config_key *k);

/* NULL: there is none. The name is section "." name, or name when section is "". */
const struct config_key *config_key_find(const char *section, const char *name);

/* Is there a key below this name ("worker", "route.dedup")? */
bool config_section_exists(const char *section);

/* Members of a choices text. */
int config_choice_of(const char *choices, const char *word); /* -1: none */
void config_choice_name(const char *choices, int index, struct buf *out);

/* --- values
 * ---------------------------------------------------------------------------------------------------
 */

/* Strict: digits and a unit, nothing else, no overflow. */
bool config_parse_duration(const char *text, int64_t *ms);
bool config_parse_bytes(const char *text, int64_t *bytes);
void config_format_duration(int64_t ms, struct buf *out);
void config_format_bytes(int64_t bytes, struct buf *out);

/* Sets the field of k in the struct at base from the wrapped value at the path; errors name the
 * path. */
bool config_set_value(struct config_parse_state *s, const struct config_key *k, void *base,
                      const json_t *wrapped);
void config_set_default(const struct config_key *k, void *base);
void config_clear_value(const struct config_key *k, void *base);

/* A table of free names; one below the other is the same as a name with dots. */
bool config_read_pairs(struct config_parse_state *s, const struct config_key *k,
                       struct config_pairs *out, const json_t *wrapped);

/* --- paths and sources
 * ------------------------------------------------------------------------------------------ */

/* A path into a payload, or into a stored document. NULL: fine; else what is wrong with it. */
const char *config_path_fault(const char *path, bool document);

enum {
    SOURCE_KEY = 1,
    SOURCE_OFFSET = 2,
    SOURCE_TOPIC = 4,
    SOURCE_PARTITION = 8,
    SOURCE_TIMESTAMP = 16,
    SOURCE_HEADER = 32,
    SOURCE_DEDUP = 64,
    SOURCE_PATH = 128
};
/* NULL: fine; else what is wrong with it, in words that name what is possible. */
const char *config_source_fault(const char *source, unsigned allowed);

/* Are they the same, or is one inside of the other? */
bool config_paths_collide(const char *a, const char *b);

/* Do the route's payloads have fields that a path can name? */
bool config_has_fields(const struct config_route *r);

/* "database.collection" at the path: *collection, which has both, is parted. */
bool config_split_namespace(struct config_parse_state *s, char **collection, char **database);

bool config_is_in(const struct config_list *list, const char *text);
bool config_same_list(const struct config_list *a, const struct config_list *b);

/* A template of the route at the path. */
bool config_check_template(struct config_parse_state *s, size_t route, enum template_kind kind,
                           const char *text);

/* Where a path of the payload lies in the stored document; mem_free(). */
char *config_document_path(const struct config_route *r, const char *path);

/* --- the steps of config_parse()
 * ------------------------------------------------------------------------------ */
bool config_apply_overrides(struct config_parse_state *s);
bool config_substitute(struct config_parse_state *s); /* ${NAME} */
bool config_read(struct config_parse_state *s);
bool config_check(struct config_parse_state *s);
bool config_check_kafka(struct config_parse_state *s);
bool config_check_topics(struct config_parse_state *s);
bool config_check_routes(struct config_parse_state *s);
bool config_check_format(struct config_parse_state *s, size_t route);
bool config_check_invalidations(struct config_parse_state *s);
bool config_check_effects(struct config_parse_state *s);
bool config_check_counters(struct config_parse_state *s, size_t route, uint32_t *index);
/* What removes documents says which. Before what a route without [route.entity] needs. */
bool config_check_entity_there(struct config_parse_state *s, size_t route);
bool config_check_collections(struct config_parse_state *s); /* which serve one purpose only */

/* Does this key of [[route.invalidate]] say anything in this mode? */
bool config_has_meaning(enum config_invalidate_mode mode, const char *key);

/* Does this key of a sequence, an operation, a lock or the seen cache say anything in this route?
 */
bool config_effect_has_meaning(const struct config_route *r, const char *key);

/* "^regex" against a topic; *wrong when it can't be compiled. */
bool config_topic_matches(const char *pattern, const char *topic);
const char *config_topic_fault(const char *topic_or_pattern);
/* True: both patterns take the topic that is appended. False: none that could be found. */
bool config_patterns_meet(const char *a, const char *b, struct buf *topic);

/* A property of librdkafka that must not be shown. */
bool config_property_secret(const char *name);

#endif
