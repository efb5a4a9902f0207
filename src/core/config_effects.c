/*
 * config_effects.c - sequences, operations, locks and the seen cache: what each needs, and which of
 * them go together. Counters: config_counters.c.
 */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"
#include "core/sequence.h"
#include "core/template.h"

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

static bool fail_no_part(struct config_parse_state *s, const struct config_list *group,
                         const char *source)
{
    struct buf possible = {0};

    for (size_t j = 0; j < group->n; j++)
        buf_printf(&possible, ", {%s}", group->items[j]);
    (void)config_fail(s, "\"{%.60s}\" is no part of sequence.group; possible are {seq}, {seq:0N}%s",
                      source, buf_text(&possible));
    buf_clear(&possible);
    return false;
}

/* Two values of it can be told apart, and the number is that of the group that it names. */
static bool check_sequence_template(struct config_parse_state *s, size_t i)
{
    const struct config_sequence *q = &s->config->routes[i].sequence;
    struct err why;
    struct sequence_text *t = sequence_text_new(q->template, &why);
    const char *source;
    bool ok = true;

    config_at(s, "route.%zu.sequence.template", i);
    if (!t)
        return config_fail(s, "%s", why.text);
    for (size_t j = 0; ok && (source = sequence_text_source(t, j)) != NULL; j++)
        ok = config_is_in(&q->group, source) || fail_no_part(s, &q->group, source);
    sequence_text_free(t);
    return ok;
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

bool config_is_in_text(const struct config_sequence *q, const char *source)
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

const char *config_not_in_text(const struct config_sequence *q)
{
    for (size_t j = 0; is_set(q->template) && j < q->group.n; j++)
        if (!config_is_in_text(q, q->group.items[j]))
            return q->group.items[j];
    return NULL;
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
        if (field != NULL || (q->mode != SEQUENCE_MAX && config_is_in_text(q, source)))
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
    if (config_has_operation(r) && r->effects == EFFECTS_LOG)
        return config_fail(config_at(s, "route.%zu.sequence.field", i),
                           "numbers of what an operation adds need transactions, and effects = "
                           "\"log\" is for where there are none");
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

/* Else the event that removes an entity is taken for the one that has added it. */
static bool check_events_of_entity(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];

    for (size_t j = 0; j < r->dedup.key.n; j++)
        if (!config_is_in(&r->entity.key, r->dedup.key.items[j]))
            return true;
    return config_fail(config_at(s, "route.%zu.dedup.key", i),
                       "all of it is in entity.key, so that all events of an entity would be one "
                       "and the same: what removes it, or adds it again, would be a duplicate of "
                       "what came first; name what tells the events apart: an id of the event "
                       "(@header.NAME, a value path), or \"@offset\"");
}

bool config_check_entity_there(struct config_parse_state *s, size_t i)
{
    const struct config_route *r = &s->config->routes[i];

    if (config_has_operation(r))
        return true;
    if (r->tombstone == TOMBSTONE_DELETE)
        return config_fail(config_at(s, "route.%zu.tombstone", i),
                           "\"delete\" needs [route.entity]: which document is removed?");
    return !is_set(r->operation.source) ||
           config_fail(config_at(s, "route.%zu.operation.source", i),
                       "needs entity.key: which document is removed?");
}

static bool check_operation(struct config_parse_state *s, size_t i)
{
    struct config_route *r = &s->config->routes[i];
    struct config_operation *o = &r->operation;
    bool removes = is_set(o->source) || r->tombstone == TOMBSTONE_DELETE;

    if (!config_has_operation(r))
        return check_alone(s, i, "operation", "source") && check_alone(s, i, "entity", "key");
    if (!removes)
        return config_fail(config_at(s, "route.%zu.entity.key", i),
                           "nothing removes: set operation.source, or tombstone = \"delete\"");
    if (!check_sources(s, i, "entity.key", &r->entity.key,
                       SOURCE_KEY | SOURCE_HEADER | SOURCE_PATH) ||
        !check_entity_fields(s, i) || !check_tombstones(s, i) || !check_events_of_entity(s, i) ||
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
        if (!check_together(s, i) || !config_check_counters(s, i, &index) ||
            !check_sequence(s, i) || !check_operation(s, i) || !check_sequence_places(s, i) ||
            !check_shared_entities(s, i) || !check_lock(s, i) || !check_seen(s, i))
            return false;
    return config_check_collections(s);
}
