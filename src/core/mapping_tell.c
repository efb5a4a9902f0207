/*
 * What other programs' caches are told (product of one [[route.invalidate]] each).
 *
 * monSQLize's readers, by version:
 *   1.x  match keys against {"type":"invalidate","pattern":P}: a collection is
 * *"ns":{"collection":"C","db":"D",* 3.x  the same message with *:D.C:* (bookmarks: D:C:bm:*), or
 * {"type":"invalidateKey","key":K} for one key. Two or more of them echo every pattern for ever, so
 * patterns need receivers_echo_safe.
 */
#include <string.h>

#include "base/mem.h"
#include "core/mapping_private.h"
#include "core/payload.h"

#define WILDCARDS "*?[]\\"

/* --- compiling --- */

/* {"type":T,FIELD:VALUE,"instanceId":ID,"timestamp":NOW}, which is the order that monSQLize itself
 * writes. */
static char *message(const struct mapping *m, const char *type, const char *field,
                     struct slice value)
{
    struct buf b = {0};

    buf_printf(&b, "{\"type\":\"%s\",\"%s\":\"", type, field);
    template_add_json(&b, value);
    buf_add_text(&b, "\",\"instanceId\":\"");
    template_add_json(&b, slice_text(m->env.instance_id));
    buf_add_text(&b, "\",\"timestamp\":" TEMPLATE_TIMESTAMP "}");
    return b.data; /* the caller's, by mem_free() */
}

static void add_pattern(const struct mapping *m, struct mapping_tell *tell, char *pattern)
{
    tell->patterns[tell->n_patterns++] = message(m, "invalidate", "pattern", slice_text(pattern));
    mem_free(pattern);
}

static void add_patterns(const struct mapping *m, struct mapping_tell *tell, const char *db,
                         const char *collection)
{
    const struct config_invalidate *c = tell->config;

    if (c->flavor == 1 && c->patterns)
        add_pattern(m, tell,
                    mem_printf("*\"ns\":{\"collection\":\"%s\",\"db\":\"%s\",*", collection, db));
    if (c->flavor == 3 && c->patterns)
        add_pattern(m, tell, mem_printf("*:%s.%s:*", db, collection));
    if (c->flavor == 3 && c->bookmarks)
        add_pattern(m, tell, mem_printf("%s:%s:bm:*", db, collection));
}

static bool monsqlize_new(const struct mapping *m, struct mapping_tell *tell, struct err *e)
{
    const struct config_list *others = &tell->config->collections;

    if (m->env.instance_id == NULL || m->env.instance_id[0] == '\0')
        return err_set(e, ERR_CONFIG, 0, "invalidate: monsqlize needs an instance id of its own");
    tell->patterns = mem_array(2 * (others->n + 1), sizeof(char *));
    if (others->n == 0)
        add_patterns(m, tell, m->route->database, m->route->collection);
    for (size_t i = 0; i < others->n; i++) {
        size_t dot = strcspn(others->items[i], ".");
        char *db = mem_text_n(others->items[i], dot);

        add_patterns(m, tell, db, others->items[i] + dot + 1);
        mem_free(db);
    }
    return true;
}

static bool template_of(struct mapping *m, struct template **out, enum template_kind kind,
                        const char *text, struct err *e)
{
    struct template_names names = {.database = m->route->database,
                                   .collection = m->route->collection};

    *out = template_new(kind, text, &names, e);
    if (*out == NULL)
        return err_wrap(e, "invalidate");
    m->tells_payload = m->tells_payload || template_needs_payload(*out);
    return true;
}

/* That everything is there which the mode needs, and nothing that would do harm, is
 * config_invalidate.c's. */
static bool tell_new(struct mapping *m, struct mapping_tell *tell, struct err *e)
{
    const struct config_invalidate *c = tell->config;
    bool monsqlize = c->mode == INVALIDATE_MONSQLIZE, stream = c->mode == INVALIDATE_STREAM,
         pubsub = c->mode == INVALIDATE_PUBSUB;

    if ((stream || pubsub || monsqlize) &&
        !template_of(m, &tell->name, TEMPLATE_TEXT, stream ? c->stream : c->channel, e))
        return false;
    if (stream || pubsub)
        return template_of(m, &tell->payload, TEMPLATE_JSON, c->payload, e);
    tell->keys = mem_array(c->keys.n, sizeof(struct template *));
    for (; tell->n_keys < c->keys.n; tell->n_keys++) {
        if (!template_of(m, &tell->keys[tell->n_keys], monsqlize ? TEMPLATE_GLOB : TEMPLATE_TEXT,
                         c->keys.items[tell->n_keys], e))
            return false;
    }
    return !monsqlize || monsqlize_new(m, tell, e);
}

bool mapping_tell_new(struct mapping *m, struct err *e)
{
    m->n_tells = m->route->n_invalidate;
    m->tells = mem_array(m->n_tells, sizeof(*m->tells));
    for (size_t i = 0; i < m->n_tells; i++) {
        m->tells[i].config = &m->route->invalidate[i];
        if (!tell_new(m, &m->tells[i], e))
            return false;
    }
    return true;
}

void mapping_tell_free(struct mapping *m)
{
    for (size_t i = 0; m->tells != NULL && i < m->n_tells; i++) {
        struct mapping_tell *tell = &m->tells[i];

        template_free(tell->name);
        template_free(tell->payload);
        for (size_t k = 0; k < tell->n_keys; k++)
            template_free(tell->keys[k]);
        mem_free(tell->keys);
        for (size_t p = 0; p < tell->n_patterns; p++)
            mem_free(tell->patterns[p]);
        mem_free(tell->patterns);
    }
    mem_free(m->tells);
}

/* --- one record --- */

struct teller {
    const struct mapping *m;
    const struct record *r;
    struct invalidation_list *out;
    size_t skipped;
    left_out_fn *left_out; /* NULL: nobody wants to know */
    void *ctx;
};

static void leave_out(struct teller *t, const struct mapping_tell *tell,
                      const struct template *template)
{
    char *source;

    t->skipped++;
    if (t->left_out == NULL)
        return;
    source = template_unfilled(template, t->r);
    t->left_out(t->ctx, tell->config, source);
    mem_free(source);
}

/* NULL: left out, and counted. An empty text is no key and no channel. */
static char *filled(struct teller *t, const struct mapping_tell *tell,
                    const struct template *template)
{
    struct buf b = {0};

    if (template_fill(template, t->r, &b) && b.len > 0)
        return b.data;
    buf_clear(&b);
    leave_out(t, tell, template);
    return NULL;
}

/* One message with a text: to a channel or a stream. */
static void tell_payload(struct teller *t, const struct mapping_tell *tell)
{
    const struct config_invalidate *c = tell->config;
    bool stream = c->mode == INVALIDATE_STREAM;
    char *name = filled(t, tell, tell->name);
    char *body = name != NULL ? filled(t, tell, tell->payload) : NULL;

    if (body == NULL)
        mem_free(name);
    else if (stream)
        invalidation_add(t->out, INVALIDATION_XADD, c->index, name, body)->maxlen = c->maxlen;
    else
        (void)invalidation_add(t->out, INVALIDATION_PUBLISH, c->index, name, body);
}

static void tell_keys(struct teller *t, const struct mapping_tell *tell)
{
    const struct config_invalidate *c = tell->config;
    bool version = c->mode == INVALIDATE_VERSION;

    for (size_t i = 0; i < tell->n_keys; i++) {
        char *key = filled(t, tell, tell->keys[i]);

        if (key != NULL)
            invalidation_add(t->out, version ? INVALIDATION_INCR : INVALIDATION_UNLINK, c->index,
                             key, NULL)
                ->expire_ms = version ? c->expire_ms : 0;
    }
}

static void tell_monsqlize(struct teller *t, const struct mapping_tell *tell)
{
    char *channel = filled(t, tell, tell->name);

    if (channel == NULL)
        return;
    for (size_t i = 0; i < tell->n_patterns; i++)
        invalidation_add(t->out, INVALIDATION_PUBLISH, tell->config->index, mem_text(channel),
                         mem_text(tell->patterns[i]));
    for (size_t i = 0; i < tell->n_keys; i++) {
        char *key = filled(t, tell, tell->keys[i]);

        if (key == NULL)
            continue;
        if (payload_is_utf8(slice_text(key)))
            invalidation_add(t->out, INVALIDATION_PUBLISH, tell->config->index, mem_text(channel),
                             message(t->m, "invalidateKey", "key", slice_text(key)));
        else
            leave_out(t, tell, tell->keys[i]);
        mem_free(key);
    }
    mem_free(channel);
}

static void tell_all(struct teller *t, struct record *r, bool inserted)
{
    const struct mapping *m = t->m;

    if (m->tells_payload)
        /* again, when it was released; a path in nothing is missing */
        (void)payload_parse(r, &m->payload, false);
    for (size_t i = 0; i < m->n_tells; i++) {
        const struct mapping_tell *tell = &m->tells[i];

        if (tell->config->publish_on == PUBLISH_INSERTED && !inserted)
            continue;
        if (tell->config->mode == INVALIDATE_MONSQLIZE)
            tell_monsqlize(t, tell);
        else if (tell->payload != NULL)
            tell_payload(t, tell);
        else
            tell_keys(t, tell);
    }
    payload_release(r);
}

void mapping_invalidations(const struct mapping *m, struct record *r, bool inserted,
                           struct invalidation_list *out, size_t *skipped)
{
    struct teller t = {.m = m, .r = r, .out = out};

    tell_all(&t, r, inserted);
    *skipped += t.skipped;
}

void mapping_left_out(const struct mapping *m, struct record *r, bool inserted, left_out_fn *tell,
                      void *ctx)
{
    struct invalidation_list list = {0};
    struct teller t = {.m = m, .r = r, .out = &list, .left_out = tell, .ctx = ctx};

    tell_all(&t, r, inserted);
    invalidation_list_clear(&list);
}

bool mapping_collapsed(const struct mapping *m, size_t rule, struct invalidation *out)
{
    const struct mapping_tell *tell = &m->tells[rule];
    const struct config_invalidate *c = tell->config;
    const char *one = c->collections.n == 1 ? c->collections.items[0] : NULL;
    struct buf name = {0}, pattern = {0};

    if (c->mode != INVALIDATE_MONSQLIZE || c->flavor != 3 || !c->receivers_echo_safe ||
        strchr(c->channel, '{') != NULL || c->collections.n > 1)
        return false;
    if (one)
        buf_add_text(&name, one);
    else
        buf_printf(&name, "%s.%s", m->route->database, m->route->collection);
    bool quotable = strpbrk(name.data, WILDCARDS) == NULL;
    buf_printf(&pattern, "*:%s:*", name.data);
    buf_clear(&name);
    if (!quotable) {
        buf_clear(&pattern);
        return false;
    }
    *out = (struct invalidation){.kind = INVALIDATION_PUBLISH,
                                 .rule = c->index,
                                 .name = mem_text(c->channel),
                                 .body =
                                     message(m, "invalidate", "pattern", slice_text(pattern.data))};
    buf_clear(&pattern);
    return true;
}
