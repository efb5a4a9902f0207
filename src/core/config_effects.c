/*
 * config_effects.c - counters, sequences, operations, locks and the seen cache: what each needs,
 * and which of them go together.
 */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"
#include "core/sequence.h"
#include "core/template.h"

/* Names that we keep in counter documents ourselves. */
static const char *const kept_names[] = {"_applied", "_version"};

/* Routes that no file was read for have no texts. */
static bool is_set(const char *text)
{
    return text != NULL && *text != '\0';
}

bool config_has_operation(const struct config_route *r)
{
    return r->entity.key.n > 0;
}

bool config_has_sequence(const struct config_route *r)
{
    return is_set(r->sequence.field);
}

bool config_has_lock(const struct config_route *r)
{
    return is_set(r->lock.key);
}

bool config_has_fence(const struct config_route *r)
{
    return config_has_lock(r) && is_set(r->lock.fence);
}

bool config_shares_seen(const struct config_route *r)
{
    return config_has_seen(r) && is_set(r->seen.redis);
}

char *config_seen_prefix(const struct config_route *r)
{
    static const char place[] = "{route}";
    struct buf b = {0};
    const char *at = r->seen.redis;

    for (const char *found = strstr(at, place); found; found = strstr(at, place)) {
        buf_add(&b, at, (size_t)(found - at));
        buf_add_text(&b, r->name);
        at = found + strlen(place);
    }
    buf_add_text(&b, at);
    return b.data;
}

bool config_has_seen(const struct config_route *r)
{
    return r->seen.entries > 0;
}

bool config_has_mirrors(const struct config *c)
{
    for (size_t i = 0; i < c->n_routes; i++)
        for (size_t j = 0; j < c->routes[i].n_counters; j++)
            if (is_set(c->routes[i].counters[j].mirror))
                return true;
    return false;
}

bool config_has_effects(const struct config_route *r)
{
    return r->n_counters > 0 || config_has_sequence(r) || config_has_operation(r) ||
           config_has_fence(r);
}

/* What is written without the key that makes it mean anything. */
static bool check_alone(struct config_parse_state *s, size_t i, const char *section,
                        const char *needed)
{
    const json_t *table = config_find(s, "route.%zu.%s", i, section);
    const char *name;
    json_t *v = json_object_get(table, "v"), *child;

    json_object_foreach(v, name,
                        child) return config_fail(config_at(s, "route.%zu.%s.%s", i, section, name),
                                                  "has no meaning without %s.%s", section, needed);
    return true;
}

static bool check_sources(struct config_parse_state *s, size_t i, const char *key,
                          const struct config_list *sources, unsigned allowed)
{
    const struct config_route *r = &s->config->routes[i];

    for (size_t j = 0; j < sources->n; j++) {
        const char *source = sources->items[j], *fault = config_source_fault(source, allowed);

        config_at(s, "route.%zu.%s.%zu", i, key, j);
        if (fault)
            return config_fail(s, "\"%.60s\" %s", source, fault);
        if (*source != '@' && !config_has_fields(r))
            return config_fail(s, "\"%.60s\": a payload of this format has no fields", source);
        for (size_t k = 0; k < j; k++)
            if (strcmp(source, sources->items[k]) == 0)
                return config_fail(s, "\"%.60s\" is there twice", source);
    }
    return true;
}

/* "db.coll", or the route's with something behind it. */
static bool split_or_make(struct config_parse_state *s, const struct config_route *r,
                          const char *behind, char **collection, char **database)
{
    if (!is_set(*collection)) {
        mem_free(*collection);
        *collection = mem_printf("%s.%s%s", r->database, r->collection, behind);
    }
    return config_split_namespace(s, collection, database);
}

bool config_effect_has_meaning(const struct config_route *r, const char *key)
{
    const struct {
        const char *prefix;
        bool there;
    } sections[] = {{"route.sequence.", config_has_sequence(r)},
                    {"route.entity.", config_has_operation(r)},
                    {"route.operation.", config_has_operation(r)},
                    {"route.lock.", config_has_lock(r)},
                    {"route.seen.", config_has_seen(r)}};

    if (strcmp(key, "route.dedup.into") == 0 || strcmp(key, "route.dedup.fields") == 0)
        return !config_has_operation(r);
    if (strcmp(key, "route.sequence.collection") == 0 && r->sequence.mode == SEQUENCE_MAX)
        return false;
    for (size_t i = 0; i < sizeof sections / sizeof sections[0]; i++)
        if (strncmp(key, sections[i].prefix, strlen(sections[i].prefix)) == 0)
            return sections[i].there;
    return true;
}

/* --- counters --- */

static bool check_counter_names(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_counter *c = &s->config->routes[i].counters[j];

    for (size_t k = 0; k < c->inc.n; k++) {
        const char *name = c->inc.items[k].name;

        config_at(s, "route.%zu.counter.%zu.inc.%s", i, j, name);
        for (size_t n = 0; n < c->filter.n; n++)
            if (config_paths_collide(name, c->filter.items[n].name))
                return config_fail(s,
                                   "collides with \"%.60s\" of filter, by which the counter is "
                                   "found",
                                   c->filter.items[n].name);
        for (size_t n = 0; n < k; n++)
            if (config_paths_collide(name, c->inc.items[n].name))
                return config_fail(s, "collides with \"%.60s\"", c->inc.items[n].name);
        for (size_t n = 0; n < sizeof kept_names / sizeof kept_names[0]; n++)
            if (config_paths_collide(name, kept_names[n]))
                return config_fail(s, "is a name that idemsink keeps for itself");
        if (config_paths_collide(name, "_id"))
            return config_fail(s, "_id can't be counted");
    }
    for (size_t k = 0; k < c->filter.n; k++)
        for (size_t n = 0; n < k; n++)
            if (config_paths_collide(c->filter.items[k].name, c->filter.items[n].name))
                return config_fail(
                    config_at(s, "route.%zu.counter.%zu.filter.%s", i, j, c->filter.items[k].name),
                    "collides with \"%.60s\"", c->filter.items[n].name);
    return true;
}

/* Formats without fields have nothing that a path could name. */
static bool check_counter_sources(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_route *r = &s->config->routes[i];
    const struct config_counter *c = &r->counters[j];
    static const char why[] = "a payload of this format has no fields";

    for (size_t k = 0; !config_has_fields(r) && k < c->filter.n; k++)
        if (*c->filter.items[k].value != '@')
            return config_fail(
                config_at(s, "route.%zu.counter.%zu.filter.%s", i, j, c->filter.items[k].name),
                "\"%.60s\": %s", c->filter.items[k].value, why);
    for (size_t k = 0; !config_has_fields(r) && k < c->inc.n; k++)
        if (*c->inc.items[k].value == '"')
            return config_fail(
                config_at(s, "route.%zu.counter.%zu.inc.%s", i, j, c->inc.items[k].name),
                "%.60s: %s", c->inc.items[k].value, why);
    return true;
}

/* @topic is the same for all events of an entity where there is one topic. */
static bool is_of_entity(const struct config_route *r, const char *source)
{
    for (size_t j = 0; j < r->entity.key.n; j++)
        if (strcmp(r->entity.key.items[j], source) == 0)
            return true;
    return strcmp(source, "@topic") == 0 && r->topics.n == 1 && *r->topics.items[0] != '^';
}

/* What removes an entity takes back what added it: the same amount, from the same counter. Both
 * come from the removing event, so nothing may go in that could be another there. */
static bool check_counter_of_entity(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_route *r = &s->config->routes[i];
    const struct config_counter *c = &r->counters[j];

    for (size_t k = 0; k < c->filter.n; k++)
        if (!is_of_entity(r, c->filter.items[k].value))
            return config_fail(
                config_at(s, "route.%zu.counter.%zu.filter.%s", i, j, c->filter.items[k].name),
                "\"%.60s\" is no part of entity.key: an event that removes could name another "
                "counter than the one that added; possible are the parts of entity.key, and @topic "
                "in a route of one topic",
                c->filter.items[k].value);
    for (size_t k = 0; k < c->inc.n; k++)
        if (*c->inc.items[k].value == '"')
            return config_fail(
                config_at(s, "route.%zu.counter.%zu.inc.%s", i, j, c->inc.items[k].name),
                "%.60s: with [route.entity] only integers: an event that removes could take back "
                "another amount than was added",
                c->inc.items[k].value);
    return true;
}

/* Each placeholder is a field of the filter. */
static bool check_mirror(struct config_parse_state *s, size_t i, size_t j)
{
    const struct config_counter *c = &s->config->routes[i].counters[j];
    const char *at = c->mirror;

    config_at(s, "route.%zu.counter.%zu.mirror", i, j);
    if (!is_set(at))
        return true;
    for (size_t k = 0; k < c->inc.n; k++)
        if (strcmp(c->inc.items[k].name, "version") == 0)
            return config_fail(config_at(s, "route.%zu.counter.%zu.inc.version", i, j),
                               "is the name under which a mirror holds its version; count it under "
                               "another one, or without mirror");
    if (!is_set(s->config->redis.uri))
        return config_fail(s, "needs redis.uri, and there is none");
    for (size_t open = strcspn(at, "{"); at[open]; open = strcspn(at, "{")) {
        size_t len = strcspn(at + open + 1, "}");
        bool known = false;

        for (size_t k = 0; k < c->filter.n; k++)
            known = known || (strlen(c->filter.items[k].name) == len &&
                              memcmp(c->filter.items[k].name, at + open + 1, len) == 0);
        if (at[open + 1 + len] == '\0' || !known)
            return config_fail(s, "\"{%.*s\" is no field of the counter's filter in braces",
                               (int)(len < 60 ? len : 60), at + open + 1);
        at += open + len + 2;
    }
    return true;
}

static bool check_counters(struct config_parse_state *s, size_t i, uint32_t *index)
{
    struct config_route *r = &s->config->routes[i];

    for (size_t j = 0; j < r->n_counters; j++) {
        struct config_counter *c = &r->counters[j];

        c->index = (*index)++;
        config_at(s, "route.%zu.counter.%zu.filter", i, j);
        if (c->filter.n == 0)
            return config_fail(s, "is empty: which counter document is it?");
        config_at(s, "route.%zu.counter.%zu.inc", i, j);
        if (c->inc.n == 0)
            return config_fail(s, "is empty: nothing would be counted");
        config_at(s, "route.%zu.counter.%zu.collection", i, j);
        if (!config_split_namespace(s, &c->collection, &c->database) ||
            !check_counter_names(s, i, j) || !check_counter_sources(s, i, j) ||
            (config_has_operation(r) && !check_counter_of_entity(s, i, j)) ||
            !check_mirror(s, i, j))
            return false;
    }
    return true;
}

/* --- sequences --- */

/* A name of its own at the top of the document, where nothing else is put. */
static bool check_own_name(struct config_parse_state *s, size_t i, const char *key,
                           const char *name)
{
    const struct config_route *r = &s->config->routes[i];
    const char *fault = config_path_fault(name, true);

    config_at(s, "route.%zu.%s", i, key);
    if (fault)
        return config_fail(s, "\"%.60s\" %s", name, fault);
    if (strchr(name, '.') || strcmp(name, "_id") == 0)
        return config_fail(s, "\"%.60s\" is no name of its own at the top of the document", name);
    for (size_t j = 0; j < r->dedup.fields.n; j++)
        if (config_paths_collide(name, r->dedup.fields.items[j]))
            return config_fail(s, "\"%.60s\" is a field of the dedup key", name);
    for (size_t j = 0; j < r->set.n; j++)
        if (config_paths_collide(name, r->set.items[j].name))
            return config_fail(s, "\"%.60s\" is set by [route.set], too", name);
    if (is_set(r->under) && config_paths_collide(name, r->under))
        return config_fail(s, "\"%.60s\" is where under puts the payload", name);
    if (is_set(r->source_fields) && config_paths_collide(name, r->source_fields))
        return config_fail(s, "\"%.60s\" is source_fields, too", name);
    if (r->dedup.conflict != CONFLICT_OFF && strcmp(name, r->dedup.conflict_field) == 0)
        return config_fail(s, "\"%.60s\" is dedup.conflict_field, too", name);
    return true;
}

/* Two values of it can be told apart, and a payload of this format has them. */
static bool check_sequence_template(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];
    struct err why;
    struct sequence_text *t = sequence_text_new(r->sequence.template, &why);
    bool needs_payload = t && sequence_text_needs_payload(t);

    sequence_text_free(t);
    config_at(s, "route.%zu.sequence.template", i);
    if (needs_payload && !config_has_fields(r))
        return config_fail(s, "a value path, and a payload of this format has no fields");
    return t || config_fail(s, "%s", why.text);
}

static bool check_sequence_text(struct config_parse_state *s, size_t i)
{
    const struct config_sequence *q = &s->config->routes[i].sequence;

    if (is_set(q->template) != is_set(q->template_field))
        return config_fail(config_at(s, "route.%zu.sequence.%s", i,
                                     is_set(q->template) ? "template_field" : "template"),
                           "is missing: a text and the field that gets it belong together");
    if (!is_set(q->template))
        return true;
    if (strcmp(q->template_field, q->field) == 0)
        return config_fail(config_at(s, "route.%zu.sequence.template_field", i),
                           "is the field of the number, too");
    return check_own_name(s, i, "sequence.template_field", q->template_field) &&
           check_sequence_template(s, i);
}

/* As a placeholder; "{{" is a brace. */
static bool is_in_text(const struct config_sequence *q, const char *source)
{
    size_t n = strlen(source);

    for (const char *at = strchr(q->template, '{'); at; at = strchr(at + 1, '{')) {
        if (at[1] == '{')
            at++;
        else if (strncmp(at + 1, source, n) == 0 && at[1 + n] == '}')
            return true;
    }
    return false;
}

/* A unique index has to keep the numbers of each group apart, so the group is in the document, or
 * in the text that is. Fills group_fields. */
static bool check_sequence_places(struct config_parse_state *s, size_t i)
{
    struct config_route *r = &s->config->routes[i];
    struct config_sequence *q = &r->sequence;

    q->group_fields.items = mem_array(q->group.n, sizeof q->group_fields.items[0]);
    for (size_t j = 0; j < q->group.n; j++) {
        const char *source = q->group.items[j];
        char *field = config_stored_path(r, source);

        if (field != NULL)
            q->group_fields.items[q->group_fields.n++] = field;
        if (field != NULL || (q->mode != SEQUENCE_MAX && is_in_text(q, source)))
            continue;
        config_at(s, "route.%zu.sequence.group.%zu", i, j);
        if (q->mode == SEQUENCE_MAX)
            return config_fail(s,
                               "\"%.60s\" is not in the document, where mode = \"max\" reads the "
                               "highest number of the group: put it there (route.set, "
                               "source_fields), or take another mode",
                               source);
        return config_fail(s,
                           "\"%.60s\" is not in the document%s, so no unique index could tell the "
                           "numbers of two groups apart: put it there (route.set, source_fields), "
                           "or into sequence.template",
                           source, is_set(q->template) ? ", nor in sequence.template" : "");
    }
    return true;
}

static bool check_sequence(struct config_parse_state *s, size_t i)
{
    struct config_route *r = &s->config->routes[i];
    struct config_sequence *q = &r->sequence;

    if (!config_has_sequence(r))
        return check_alone(s, i, "sequence", "field");
    if (!check_own_name(s, i, "sequence.field", q->field) ||
        !check_sources(s, i, "sequence.group", &q->group,
                       SOURCE_KEY | SOURCE_HEADER | SOURCE_TOPIC | SOURCE_PATH))
        return false;
    if (q->mode == SEQUENCE_GAPLESS && r->effects == EFFECTS_LOG)
        return config_fail(config_at(s, "route.%zu.sequence.mode", i),
                           "\"gapless\" needs transactions, and effects = \"log\" is for where "
                           "there are none; \"block\" does without");
    config_at(s, "route.%zu.sequence.collection", i);
    if (q->mode == SEQUENCE_MAX && is_set(q->collection))
        return config_fail(s, "has no meaning for mode = \"max\", which has no counters");
    return split_or_make(s, r, "_sequences", &q->collection, &q->database) &&
           check_sequence_text(s, i);
}

/* --- operations --- */

static bool check_entity_fields(struct config_parse_state *s, size_t i)
{
    struct config_route *r = &s->config->routes[i];
    struct config_list *fields = &r->entity.fields;

    config_at(s, "route.%zu.entity.fields", i);
    if (fields->n > 0 && fields->n != r->entity.key.n)
        return config_fail(s, "has %zu paths, and entity.key has %zu parts: one each", fields->n,
                           r->entity.key.n);
    for (size_t j = 0; fields->n < r->entity.key.n; j++) {
        const char *source = r->entity.key.items[j];

        if (j == 0)
            fields->items = mem_grow(fields->items, r->entity.key.n, sizeof fields->items[0]);
        if (*source == '@')
            return config_fail(config_at(s, "route.%zu.entity.key.%zu", i, j),
                               "\"%.60s\" has no place in the document: name one for each part "
                               "with entity.fields",
                               source);
        fields->items[fields->n++] = config_document_path(r, source);
    }
    for (size_t j = 0; j < fields->n; j++) {
        const char *fault = config_path_fault(fields->items[j], true);

        config_at(s, "route.%zu.entity.fields.%zu", i, j);
        if (fault)
            return config_fail(s, "\"%.60s\" %s", fields->items[j], fault);
        for (size_t k = 0; k < j; k++)
            if (config_paths_collide(fields->items[j], fields->items[k]))
                return config_fail(s, "\"%.60s\" collides with \"%.60s\"", fields->items[j],
                                   fields->items[k]);
    }
    return true;
}

static bool check_operation_values(struct config_parse_state *s, size_t i)
{
    const struct config_operation *o = &s->config->routes[i].operation;

    for (size_t j = 0; j < o->insert.n; j++)
        for (size_t k = 0; k < o->remove.n; k++)
            if (strcmp(o->insert.items[j], o->remove.items[k]) == 0)
                return config_fail(config_at(s, "route.%zu.operation.delete.%zu", i, k),
                                   "\"%.60s\" is in operation.insert, too", o->remove.items[k]);
    if (o->insert.n == 0 || o->remove.n == 0)
        return config_fail(
            config_at(s, "route.%zu.operation.%s", i, o->insert.n == 0 ? "insert" : "delete"),
            "is missing: which values of \"%.60s\" are meant?", o->source);
    return true;
}

static bool check_operation_source(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];
    const char *source = r->operation.source;
    const char *fault = config_source_fault(source, SOURCE_HEADER | SOURCE_PATH);

    config_at(s, "route.%zu.operation.source", i);
    if (fault)
        return config_fail(s, "\"%.60s\" %s", source, fault);
    if (*source != '@' && !config_has_fields(r))
        return config_fail(s, "\"%.60s\": a payload of this format has no fields", source);
    return check_operation_values(s, i);
}

/* A tombstone has a key and headers, and nothing else. */
static bool check_tombstones(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];
    const struct {
        const char *key;
        const struct config_list *sources;
    } lists[] = {{"dedup.key", &r->dedup.key}, {"entity.key", &r->entity.key}};

    if (r->tombstone != TOMBSTONE_DELETE)
        return true;
    for (size_t l = 0; l < 2; l++)
        for (size_t j = 0; j < lists[l].sources->n; j++)
            if (*lists[l].sources->items[j] != '@')
                return config_fail(config_at(s, "route.%zu.%s.%zu", i, lists[l].key, j),
                                   "\"%.60s\": with tombstone = \"delete\" a record that removes "
                                   "has no payload; possible are @key, @header.NAME and, for "
                                   "dedup.key, @offset",
                                   lists[l].sources->items[j]);
    return true;
}

static bool check_operation(struct config_parse_state *s, size_t i)
{
    struct config_route *r = &s->config->routes[i];
    struct config_operation *o = &r->operation;
    bool removes = is_set(o->source) || r->tombstone == TOMBSTONE_DELETE;

    if (!config_has_operation(r)) {
        if (r->tombstone == TOMBSTONE_DELETE)
            return config_fail(config_at(s, "route.%zu.tombstone", i),
                               "\"delete\" needs [route.entity]: which document is removed?");
        if (is_set(o->source))
            return config_fail(config_at(s, "route.%zu.operation.source", i),
                               "needs entity.key: which document is removed?");
        return check_alone(s, i, "operation", "source") && check_alone(s, i, "entity", "key");
    }
    if (!removes)
        return config_fail(config_at(s, "route.%zu.entity.key", i),
                           "nothing removes: set operation.source, or tombstone = \"delete\"");
    if (!check_sources(s, i, "entity.key", &r->entity.key,
                       SOURCE_KEY | SOURCE_HEADER | SOURCE_PATH) ||
        !check_entity_fields(s, i) || !check_tombstones(s, i) ||
        (is_set(o->source) && !check_operation_source(s, i)))
        return false;
    if (!is_set(o->source) && (o->insert.n > 0 || o->remove.n > 0))
        return config_fail(config_at(s, "route.%zu.operation.source", i),
                           "is missing, and insert and delete are its values");
    return split_or_make(config_at(s, "route.%zu.operation.ledger", i), r, "_ledger", &o->ledger,
                         &o->ledger_database);
}

/* --- lock, seen --- */

/* The key of a record without payload can't be made of one. */
static bool check_lock_of_tombstones(struct config_parse_state *s, size_t i)
{
    struct config_route *r = &s->config->routes[i];
    struct template_names names = {.database = r->database, .collection = r->collection};
    struct err ignored;
    struct template *t = template_new(TEMPLATE_TEXT, r->lock.key, &names, &ignored);
    bool fine = r->tombstone != TOMBSTONE_DELETE || !t || !template_needs_payload(t);

    template_free(t);
    return fine ||
           config_fail(s, "with tombstone = \"delete\" a record that removes has no payload; "
                          "possible are @key, @header.NAME and what else begins with @");
}

static bool check_fence_field(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];
    const char *field = r->lock.fence_field;

    config_at(s, "route.%zu.lock.fence_field", i);
    if (!is_set(field))
        return true;
    if (!is_set(r->lock.fence))
        return config_fail(s, "has no meaning without lock.fence");
    if (config_has_sequence(r) &&
        (strcmp(field, r->sequence.field) == 0 || strcmp(field, r->sequence.template_field) == 0))
        return config_fail(s, "is a field of the sequence, too");
    return check_own_name(s, i, "lock.fence_field", field);
}

static bool check_lock(struct config_parse_state *s, size_t i)
{
    struct config_route *r = &s->config->routes[i];
    struct config_lock *l = &r->lock;

    if (!config_has_lock(r))
        return check_alone(s, i, "lock", "key");
    config_at(s, "route.%zu.lock.key", i);
    if (!is_set(s->config->redis.uri))
        return config_fail(s, "needs redis.uri, and there is none");
    if (!config_check_template(s, i, TEMPLATE_TEXT, l->key))
        return false;
    if (!check_lock_of_tombstones(s, i) || !check_fence_field(s, i))
        return false;
    config_at(s, "route.%zu.lock.fence", i);
    if (!is_set(l->fence))
        return true;
    if (r->effects == EFFECTS_LOG)
        return config_fail(s, "needs transactions, and effects = \"log\" is for where there are "
                              "none");
    return config_split_namespace(s, &l->fence, &l->fence_database);
}

/* Nothing but {route} can be put into it. */
static bool check_seen_prefix(struct config_parse_state *s, size_t i)
{
    static const char place[] = "{route}";
    const char *at = s->config->routes[i].seen.redis;

    config_at(s, "route.%zu.seen.redis", i);
    for (at += strcspn(at, "{}"); *at; at += strcspn(at, "{}")) {
        if (strncmp(at, place, strlen(place)) != 0)
            return config_fail(s, "of braces only {route} is understood: the name of the route");
        at += strlen(place);
    }
    return true;
}

/* What a failover can take back must not be remembered as stored, and nothing for longer than the
 * ledger does. */
static bool check_seen(struct config_parse_state *s, size_t i)
{
    const struct config *c = s->config;
    const struct config_route *r = &c->routes[i];
    int64_t expire_ms = r->operation.ledger_expire_ms;

    if (!config_has_seen(r))
        return check_alone(s, i, "seen", "entries");
    config_at(s, "route.%zu.seen.entries", i);
    if (strcmp(c->mongo.write_concern, "majority") != 0 || !c->mongo.journal)
        return config_fail(s, "needs mongo.write_concern = \"majority\" and mongo.journal = true: "
                              "with less, a failover can take back what is remembered as stored, "
                              "and its next delivery would be dropped as a duplicate");
    if (config_has_operation(r) && expire_ms > 0 && r->seen.ttl_ms >= expire_ms)
        return config_fail(config_at(s, "route.%zu.seen.ttl", i),
                           "%" PRId64 " ms is not below operation.ledger_expire (%" PRId64
                           " ms): the cache would remember an event that the ledger has forgotten",
                           r->seen.ttl_ms, expire_ms);
    if ((is_set(r->seen.redis) || is_set(r->seen.drop_on)) && !is_set(c->redis.uri))
        return config_fail(
            config_at(s, "route.%zu.seen.%s", i, is_set(r->seen.redis) ? "redis" : "drop_on"),
            "needs redis.uri, and there is none");
    return !is_set(r->seen.redis) || check_seen_prefix(s, i);
}

/* What effects decide themselves can't be asked for otherwise. */
static bool check_together(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];

    if (!config_has_effects(r) && r->effects != EFFECTS_AUTO)
        return config_fail(config_at(s, "route.%zu.effects", i),
                           "there is nothing for it: no [[route.counter]], [route.sequence], "
                           "[route.operation] or lock.fence");
    if (config_has_effects(r) && r->write != WRITE_UPSERT)
        return config_fail(config_at(s, "route.%zu.write", i),
                           "has no meaning together with counters, a sequence, an operation or "
                           "a fence: they decide how the documents are written");
    return true;
}

/* One index on the entities has to serve all who go into a collection. */
static bool check_shared_entities(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];

    for (size_t j = 0; j < i; j++) {
        const struct config_route *other = &s->config->routes[j];
        bool same = strcmp(r->database, other->database) == 0 &&
                    strcmp(r->collection, other->collection) == 0;

        if (same && !config_same_list(&r->entity.fields, &other->entity.fields))
            return config_fail(config_at(s, "route.%zu.entity", i),
                               "route \"%.60s\" goes into the same collection %.80s.%.80s with "
                               "another entity, or none: both need the same fields in the same "
                               "order",
                               other->name, r->database, r->collection);
    }
    return true;
}

/* The documents of routes without effects, too, may come to lie where others look for theirs. */
static void find_neighbours(struct config *c)
{
    for (size_t i = 0; i < c->n_routes; i++) {
        for (size_t j = 0; j < c->n_routes; j++) {
            struct config_route *a = &c->routes[i];
            const struct config_route *b = &c->routes[j];

            if (i == j || strcmp(a->database, b->database) != 0 ||
                strcmp(a->collection, b->collection) != 0)
                continue;
            a->beside_counters = a->beside_counters || b->n_counters > 0;
            a->beside_operation = a->beside_operation || config_has_operation(b);
        }
    }
}

bool config_check_effects(struct config_parse_state *s)
{
    uint32_t index = 0;

    find_neighbours(s->config);
    for (size_t i = 0; i < s->config->n_routes; i++)
        if (!check_together(s, i) || !check_counters(s, i, &index) || !check_sequence(s, i) ||
            !check_operation(s, i) || !check_sequence_places(s, i) ||
            !check_shared_entities(s, i) || !check_lock(s, i) || !check_seen(s, i))
            return false;
    return config_check_collections(s);
}
