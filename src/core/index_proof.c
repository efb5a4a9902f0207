/* Judges what the server lists about a collection, its indexes and its shard key; believes nothing
 * else. */
#include "core/index_proof.h"

#include <stdio.h>
#include <string.h>

static const char *const id_field[] = {"_id"};

/* ---- small readers ---- */

static bool sub_document(const bson_t *doc, const char *name, bson_t *out)
{
    bson_iter_t it;
    uint32_t len;
    const uint8_t *data;

    if (!bson_iter_init_find(&it, doc, name) || !BSON_ITER_HOLDS_DOCUMENT(&it))
        return false;
    bson_iter_document(&it, &len, &data);
    return bson_init_static(out, data, len);
}

static const char *text_field(const bson_t *doc, const char *name)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, doc, name) && BSON_ITER_HOLDS_UTF8(&it)
               ? bson_iter_utf8(&it, NULL)
               : "";
}

static bool true_field(const bson_t *doc, const char *name)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, doc, name) && bson_iter_as_bool(&it);
}

/* Absent is simple. */
static bool simple_collation(const bson_t *options)
{
    bson_t collation;

    return !sub_document(options, "collation", &collation) ||
           strcmp(text_field(&collation, "locale"), "simple") == 0;
}

static bool is_field(const struct index_proof *p, const char *name)
{
    for (size_t i = 0; i < p->n_fields; i++)
        if (strcmp(p->fields[i], name) == 0)
            return true;
    return false;
}

/* A field of the key, or a part of one: equal keys agree in it. */
static bool inside_a_field(const struct index_proof *p, const char *name)
{
    for (size_t i = 0; i < p->n_fields; i++) {
        size_t n = strlen(p->fields[i]);

        if (strncmp(p->fields[i], name, n) == 0 && (name[n] == '\0' || name[n] == '.'))
            return true;
    }
    return false;
}

/* Exactly our fields, in any order. plain: all of them ascending or descending. */
static bool same_fields(const struct index_proof *p, const bson_t *key, bool *plain)
{
    bson_iter_t it;
    size_t n = 0;

    *plain = true;
    if (!bson_iter_init(&it, key))
        return false;
    while (bson_iter_next(&it)) {
        if (!is_field(p, bson_iter_key(&it)))
            return false;
        if (!BSON_ITER_HOLDS_NUMBER(&it)) /* "hashed", "text", "2dsphere" */
            *plain = false;
        n++;
    }
    return n == p->n_fields; /* names are pairwise different on both sides */
}

void index_proof_fields(const struct index_proof *p, struct buf *out)
{
    for (size_t i = 0; i < p->n_fields; i++)
        buf_printf(out, "%s%s", i ? ", " : "", p->fields[i]);
}

/* ---- judging ---- */

void index_proof_begin(struct index_proof *p, const struct config_route *route)
{
    const struct config_dedup *d = &route->dedup;

    *p = (struct index_proof){.route = route};
    p->fields = d->into_id ? id_field : (const char *const *)d->fields.items;
    p->n_fields = d->into_id ? 1 : d->fields.n;
    snprintf(p->ns, sizeof p->ns, "%s.%s", route->database, route->collection);
}

bool index_proof_collection(struct index_proof *p, const bson_t *info, struct err *e)
{
    const char *type = text_field(info, "type");
    bson_t options;

    p->exists = true;
    if (strcmp(type, "view") == 0 || strcmp(type, "timeseries") == 0)
        return err_set(e, ERR_CONFIG, 0,
                       "%s is a %s, which can't have a unique index: choose a plain collection",
                       p->ns, strcmp(type, "view") == 0 ? "view" : "time-series collection");
    if (!sub_document(info, "options", &options))
        return true;
    if (true_field(&options, "capped"))
        return err_set(e, ERR_CONFIG, 0,
                       "%s is capped: an event delivered again after its document was rolled out "
                       "would be stored again; choose a plain collection",
                       p->ns);
    if (bson_has_field(&options, "expireAfterSeconds"))
        return err_set(e, ERR_CONFIG, 0,
                       "%s expires its documents (expireAfterSeconds): an event delivered again "
                       "after that would be stored again",
                       p->ns);
    if (!simple_collation(&options))
        return err_set(e, ERR_CONFIG, 0,
                       "%s has a default collation: look-ups would take different keys for equal; "
                       "choose a collection without one",
                       p->ns);
    return true;
}

/*
 * "dropped": what servers before 5.0 leave behind of a collection. "unsplittable": since 8.0 those
 * that are not sharded are listed too, with the key {_id: 1}. A hashed field is as good as a plain
 * one: equal values have equal hashes.
 */
bool index_proof_shard_key(struct index_proof *p, const bson_t *entry, struct err *e)
{
    bson_t key;
    bson_iter_t it;

    if (true_field(entry, "dropped") || true_field(entry, "unsplittable"))
        return true;
    if (!sub_document(entry, "key", &key) || !bson_iter_init(&it, &key))
        return err_set(e, ERR_CONFIG, 0,
                       "%s: config.collections lists it without a shard key, so it can't be proved "
                       "that the dedup key holds it; is this a sharded cluster of MongoDB?",
                       p->ns);
    while (bson_iter_next(&it))
        if (!inside_a_field(p, bson_iter_key(&it)))
            return err_set(
                e, ERR_CONFIG, 0,
                "%s is sharded by %s, which is no part of the dedup key: no index is unique "
                "across shards then; add it to dedup.key or shard by the dedup key",
                p->ns, bson_iter_key(&it));
    return true;
}

/* What keeps this index over our fields from doing its work; NULL: nothing. */
static const char *flaw_of(const bson_t *index, bool building, bool plain, bool is_id)
{
    if (building)
        return "is still being built: wait for it";
    if (!plain)
        return "is hashed, text or geo, and such an index can't be unique";
    if (!is_id && !true_field(index, "unique"))
        return "is not unique";
    if (bson_has_field(index, "partialFilterExpression"))
        return "is partial: what its filter leaves out is not unique";
    if (true_field(index, "sparse"))
        return "is sparse: documents without the fields are not unique";
    if (bson_has_field(index, "expireAfterSeconds"))
        return "is a TTL index: an event delivered again after its expiry would be stored again";
    if (!simple_collation(index))
        return "has a collation: different keys would count as equal";
    return NULL;
}

void index_proof_index(struct index_proof *p, const bson_t *listed)
{
    bson_t spec, key;
    const bson_t *index = listed;
    bool plain, building = sub_document(listed, "spec", &spec);

    if (building) /* {spec: {...}, buildUUID: ...} */
        index = &spec;
    if (!sub_document(index, "key", &key))
        return;
    const char *name = text_field(index, "name");
    bool is_id = bson_has_field(&key, "_id") && bson_count_keys(&key) == 1;

    if (bson_has_field(index, "expireAfterSeconds"))
        snprintf(p->expiring, sizeof p->expiring, "%s", name);
    if (!same_fields(p, &key, &plain)) {
        if (!p->found && !is_id && true_field(index, "unique") && !p->earlier[0])
            snprintf(p->earlier, sizeof p->earlier, "%s", name);
        return;
    }
    const char *flaw = flaw_of(index, building, plain, is_id);
    if (flaw)
        snprintf(p->wrong, sizeof p->wrong, "index %.120s %s", name, flaw);
    else if (!p->found)
        snprintf(p->found_name, sizeof p->found_name, "%s", name);
    p->found = p->found || !flaw;
}

void index_proof_forbidden(struct index_proof *p, const char *action, const char *role)
{
    size_t n = strlen(p->forbidden);

    snprintf(p->forbidden + n, sizeof p->forbidden - n, "%s%s (role %s has it)", n ? ", " : "",
             action, role);
}

/* ---- the verdict ---- */

static bool expires(const struct index_proof *p, struct err *e)
{
    if (!p->expiring[0])
        return false;
    err_set(e, ERR_CONFIG, 0,
            "%s has the TTL index %s, which removes documents: an event delivered again after that "
            "would be stored again; drop it or choose another collection",
            p->ns, p->expiring);
    return true;
}

static bool not_proved(const struct index_proof *p, struct err *e)
{
    struct buf fields = {0};

    index_proof_fields(p, &fields);
    if (p->wrong[0])
        err_set(
            e, ERR_CONFIG, 0,
            "%s: no unique index on exactly (%s): %s; drop that index, then run: idemsink init -c "
            "FILE",
            p->ns, buf_text(&fields), p->wrong);
    else
        err_set(e, ERR_CONFIG, 0,
                "%s: %s has no unique index on exactly (%s); run: idemsink init -c FILE (or set "
                "ensure_index = true in the route)",
                p->ns, p->exists ? "the collection" : "the collection is not there and so",
                buf_text(&fields));
    buf_clear(&fields);
    return false;
}

static bool may_not_ask(const struct index_proof *p, struct err *e)
{
    return err_set(e, ERR_AUTH, 13,
                   "%s: no right to %s, so it can't be proved that the dedup index is there; grant "
                   "it, or set trust_index = true in the route",
                   p->ns, p->forbidden);
}

bool index_proof_end(const struct index_proof *p, struct err *e)
{
    if (expires(p, e))
        return false;
    if (p->wrong[0] && !p->found)
        return not_proved(p, e);
    if (p->forbidden[0])
        return p->route->trust_index || may_not_ask(p, e);
    /* Every collection gets a unique index on _id when it is made. */
    return p->found || p->route->dedup.into_id || not_proved(p, e);
}

bool index_proof_may_make(const struct index_proof *p, bool *missing, struct err *e)
{
    *missing = false;
    if (expires(p, e))
        return false;
    if (p->forbidden[0] && !p->route->trust_index)
        return may_not_ask(p, e);
    if (p->found || p->route->dedup.into_id)
        return true;
    if (p->wrong[0])
        return not_proved(p, e);
    *missing = true;
    return true;
}
