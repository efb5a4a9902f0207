/* Judges what the server lists about a collection, its indexes and its shard key; believes nothing
 * else. */
#include "core/index_proof.h"

#include <stdio.h>
#include <string.h>

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
    for (size_t i = 0; i < p->need->fields.n; i++)
        if (strcmp(p->need->fields.items[i], name) == 0)
            return true;
    return false;
}

/* A field of the key, or a part of one: equal keys agree in it. */
static bool inside_a_field(const struct index_proof *p, const char *name)
{
    for (size_t i = 0; i < p->need->fields.n; i++) {
        const char *field = p->need->fields.items[i];
        size_t n = strlen(field);

        if (strncmp(field, name, n) == 0 && (name[n] == '\0' || name[n] == '.'))
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
    return n == p->need->fields.n; /* names are pairwise different on both sides */
}

void index_proof_fields(const struct index_proof *p, struct buf *out)
{
    for (size_t i = 0; i < p->need->fields.n; i++)
        buf_printf(out, "%s%s", i ? ", " : "", p->need->fields.items[i]);
}

/* What the server calls it. */
static const char *kind_of(const struct need_index *need)
{
    return need->unique ? "unique index" : need->expire_s >= 0 ? "TTL index" : "index";
}

/* "{field: {$exists: true}}" is how we make partial ones. */
static bool is_our_filter(const bson_t *filter, const char *field)
{
    bson_iter_t it, inner;

    return bson_count_keys(filter) == 1 && bson_iter_init_find(&it, filter, field) &&
           BSON_ITER_HOLDS_DOCUMENT(&it) && bson_iter_recurse(&it, &inner) &&
           bson_iter_next(&inner) && strcmp(bson_iter_key(&inner), "$exists") == 0 &&
           bson_iter_as_bool(&inner) && !bson_iter_next(&inner);
}

/* ---- judging ---- */

void index_proof_begin(struct index_proof *p, const struct need_index *need)
{
    *p = (struct index_proof){.need = need};
    snprintf(p->ns, sizeof p->ns, "%s.%s", need->database, need->collection);
}

/* "capped: an event delivered again after that ..." */
static bool refuse_expiry(const struct index_proof *p, const char *how, struct err *e)
{
    return err_set(e, ERR_CONFIG, 0, "%s %s: %s; choose another collection", p->ns, how,
                   p->need->if_expired);
}

/* Nothing can be written there in a transaction, and what rolls out begins again at zero. A TTL on
 * counters may be meant; that can't. */
static bool refuse_capped(const struct index_proof *p, struct err *e)
{
    return err_set(e, ERR_CONFIG, 0,
                   "%s is capped, which rolls its oldest documents out and takes no transaction: "
                   "counters would begin again; choose another collection",
                   p->ns);
}

static bool is_of_counter(const struct need_index *need)
{
    return need->use == NEED_COUNTER || need->use == NEED_COUNTER_FOUND;
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
    if (p->need->if_expired && true_field(&options, "capped"))
        return refuse_expiry(p, "is capped, which rolls its oldest documents out", e);
    if (is_of_counter(p->need) && true_field(&options, "capped"))
        return refuse_capped(p, e);
    if (p->need->if_expired && bson_has_field(&options, "expireAfterSeconds"))
        return refuse_expiry(p, "expires its documents (expireAfterSeconds)", e);
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
    bool dedup = p->need->use == NEED_IDENTITY && strcmp(p->need->what, "dedup index") == 0;
    bson_t key;
    bson_iter_t it;

    if (!p->need->unique || true_field(entry, "dropped") || true_field(entry, "unsplittable"))
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
                "%s is sharded by %s, which is no part of the %s: no index is unique across shards "
                "then; %s",
                p->ns, bson_iter_key(&it), dedup ? "dedup key" : p->need->what,
                dedup ? "add it to dedup.key or shard by the dedup key"
                      : "shard by its fields, or choose a collection that is not sharded");
    return true;
}

/* Documents that it leaves out, and must not. A partial or sparse one holds all that have the field
 * that ours is about. */
static const char *gap_of(const struct need_index *need, const bson_t *index)
{
    bson_t filter;

    if (sub_document(index, "partialFilterExpression", &filter) &&
        (need->partial == NULL || !is_our_filter(&filter, need->partial)))
        return need->partial ? "is partial with another filter than {$exists: true}"
                             : "is partial: what its filter leaves out is not unique";
    if (need->partial == NULL && true_field(index, "sparse"))
        return "is sparse: documents without the fields are not unique";
    return NULL;
}

/* Only the index that is made for it may expire, and when it was told to. */
static const char *expiry_flaw_of(const struct need_index *need, const bson_t *index)
{
    bson_iter_t it;

    if (need->expire_s < 0)
        return bson_has_field(index, "expireAfterSeconds")
                   ? "is a TTL index: an event delivered again after its expiry would be stored "
                     "again"
                   : NULL;
    if (!bson_iter_init_find(&it, index, "expireAfterSeconds"))
        return "is no TTL index";
    return bson_iter_as_int64(&it) == need->expire_s
               ? NULL
               : "expires after another time than operation.ledger_expire (collMod changes it)";
}

/* What keeps this index over our fields from doing its work; NULL: nothing. */
static const char *flaw_of(const struct need_index *need, const bson_t *index, bool building,
                           bool plain)
{
    bool is_id = need->fields.n == 1 && strcmp(need->fields.items[0], "_id") == 0;
    const char *flaw;

    if (building)
        return "is still being built: wait for it";
    if (!plain)
        return need->unique ? "is hashed, text or geo, and such an index can't be unique"
                            : "is hashed, text or geo";
    if (need->unique && !is_id && !true_field(index, "unique"))
        return "is not unique";
    if ((flaw = gap_of(need, index)) != NULL || (flaw = expiry_flaw_of(need, index)) != NULL)
        return flaw;
    if (!simple_collation(index))
        return "has a collation: different keys would count as equal";
    return NULL;
}

/* Removes documents, and not only those of the ledger whose time is over. */
static bool may_not_expire(const struct need_index *need, const bson_t *index, const bson_t *key)
{
    if (need->if_expired == NULL || !bson_has_field(index, "expireAfterSeconds"))
        return false;
    return need->may_expire == NULL || bson_count_keys(key) != 1 ||
           !bson_has_field(key, need->may_expire);
}

/* Is this other unique index one that ours has to be made before? */
static bool must_be_later(const struct need_index *need, const bson_t *key)
{
    bool is_id = bson_has_field(key, "_id") && bson_count_keys(key) == 1;
    bson_iter_t it;

    if (need->use == NEED_IDENTITY)
        return !is_id;
    if (need->before == NULL || !bson_iter_init(&it, key))
        return false;
    while (bson_iter_next(&it))
        if (strcmp(bson_iter_key(&it), need->before) == 0)
            return true;
    return false;
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

    if (may_not_expire(p->need, index, &key))
        snprintf(p->expiring, sizeof p->expiring, "%s", name);
    if (!same_fields(p, &key, &plain)) {
        if (!p->found && !p->earlier[0] && true_field(index, "unique") &&
            must_be_later(p->need, &key))
            snprintf(p->earlier, sizeof p->earlier, "%s", name);
        return;
    }
    const char *flaw = flaw_of(p->need, index, building, plain);
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
            "%s has the TTL index %s, which removes documents: %s; drop it or choose another "
            "collection",
            p->ns, p->expiring, p->need->if_expired);
    return true;
}

/* The dedup index needs no word. */
static const char *purpose_of(const struct need_index *need)
{
    static const char two_counters[] =
        ", so two writers could make two documents of one counter, and without transactions an "
        "event that comes again could move the other one";
    static const char *const purposes[] = {
        [NEED_COUNTER] = two_counters,
        [NEED_COUNTER_FOUND] = ", so several documents may be one counter, and each move reads all",
        [NEED_SEQUENCE] = ", which keeps the numbers of a group apart",
        [NEED_SEQUENCE_TEXT] = ", which keeps the texts of the sequence apart",
        [NEED_EXPIRY] = ", which operation.ledger_expire asks for",
        [NEED_OPEN] = ", by which effects that are not done yet are found",
        [NEED_BY_ID] = ""};

    return need->use == NEED_IDENTITY ? "" : purposes[need->use];
}

static bool not_proved(const struct index_proof *p, struct err *e)
{
    struct buf fields = {0};

    index_proof_fields(p, &fields);
    if (p->wrong[0])
        err_set(e, ERR_CONFIG, 0,
                "%s: no %s on exactly (%s): %s; drop that index, then run: idemsink init -c FILE",
                p->ns, kind_of(p->need), buf_text(&fields), p->wrong);
    else
        err_set(e, ERR_CONFIG, 0,
                "%s: %s has no %s on exactly (%s)%s; run: idemsink init -c FILE (or set "
                "ensure_index = true in the route)",
                p->ns, p->exists ? "the collection" : "the collection is not there and so",
                kind_of(p->need), buf_text(&fields), purpose_of(p->need));
    buf_clear(&fields);
    return false;
}

static bool may_not_ask(const struct index_proof *p, struct err *e)
{
    return err_set(e, ERR_AUTH, 13,
                   "%s: no right to %s, so it can't be proved that the %s is there; grant it, or "
                   "set trust_index = true in the route",
                   p->ns, p->forbidden, p->need->what);
}

/* A duplicate that is named by another index costs a look-up only; a number would pass for a text.
 */
static bool comes_too_late(const struct index_proof *p, struct err *e)
{
    if (p->need->use == NEED_IDENTITY || !p->earlier[0])
        return false;
    err_set(e, ERR_CONFIG, 0,
            "%s: the unique index %s on %s was made before the %s, so the server would name it "
            "where a number is taken, too, and good records would be dead letters; drop it, then "
            "run: idemsink init -c FILE",
            p->ns, p->earlier, p->need->before, p->need->what);
    return true;
}

bool index_proof_end(const struct index_proof *p, struct err *e)
{
    if (expires(p, e))
        return false;
    if (p->wrong[0] && !p->found)
        return not_proved(p, e);
    if (comes_too_late(p, e))
        return false;
    if (p->forbidden[0])
        return p->need->trust || may_not_ask(p, e);
    /* Every collection gets a unique index on _id when it is made. */
    return p->found || p->need->name[0] == '\0' || not_proved(p, e);
}

bool index_proof_may_make(const struct index_proof *p, bool *missing, struct err *e)
{
    *missing = false;
    if (expires(p, e))
        return false;
    if (p->forbidden[0] && !p->need->trust)
        return may_not_ask(p, e);
    if (comes_too_late(p, e))
        return false;
    if (p->found || p->need->name[0] == '\0')
        return true;
    if (p->wrong[0])
        return not_proved(p, e);
    *missing = true;
    return true;
}
