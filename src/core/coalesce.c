/*
 * coalesce.c - see coalesce.h.
 */
#include "core/coalesce.h"

#include <string.h>

#include <xxhash.h>

#include "base/err.h"
#include "base/mem.h"

#define uthash_malloc(size)    mem_new(size)
#define uthash_free(ptr, size) mem_free(ptr)
#include <uthash.h>

/* A circular list; a target's two heads are elements like all others. */
struct coalesce_link {
    struct coalesce_link *prev, *next;
    struct coalesce_waiter *waiter; /* NULL: a head */
    struct target *target;
};

enum target_state { TARGET_PENDING, TARGET_SENDING, TARGET_RESTING };

struct target {
    enum target_state state;
    bool again;     /* SENDING: added meanwhile, so due again at due_at */
    bool repeat;    /* RESTING: a repetition is to come; SENDING: this is it */
    bool collapsed; /* the collapsed form of its rule */
    int64_t
        due_at; /* PENDING, SENDING with again: next send; RESTING: repetition, or end of window */
    int64_t window_ends_at;
    uint64_t seq; /* equal times: first come first served */
    size_t heap_index;
    struct coalesce_link waiting; /* for the next send to start */
    struct coalesce_link riding;  /* on the send that is on its way */
    struct target *rule_prev, *rule_next;
    struct invalidation message; /* its texts lie in key, but for a MIRROR's values */
    char *values;                /* MIRROR: message.body */
    char *newer; /* MIRROR, SENDING: what is to be sent once it is back; NULL: nothing */
    int64_t newer_version;
    UT_hash_handle hh;
    size_t key_len;
    char key[]; /* rule, command, name NUL body NUL */
};

struct heap {
    struct target **items;
    size_t n, cap;
};

struct rule {
    struct coalesce_rule set;
    struct invalidation collapsed; /* name NULL: none */
    struct target *targets;
    struct coalesce_counts counts;
};

/* By invalidation_goes_first(): keys, then messages; and what rests. */
enum { HEAP_KEYS, HEAP_MESSAGES, HEAP_REST, HEAPS };

struct coalesce {
    struct rule *rules;
    size_t n_rules, max_targets, max_bytes, max_set;
    size_t bytes; /* of all targets */
    struct target *table;
    struct heap heaps[HEAPS];
    struct target **sending;
    const struct invalidation **messages;
    size_t n_sending, n_repeating;
    uint64_t seq;
    bool draining;
    uint64_t
        seed; /* names come from data: whoever writes it must not be able to aim at one bucket */
    struct buf key; /* scratch: the last target_find()'s */
    unsigned hash;  /* of key */
};

/* --- links --- */

static void link_init(struct coalesce_link *l)
{
    l->prev = l->next = l;
}

static bool link_empty(const struct coalesce_link *head)
{
    return head->next == head;
}

static void link_remove(struct coalesce_link *l)
{
    l->prev->next = l->next;
    l->next->prev = l->prev;
    link_init(l);
}

static void link_append(struct coalesce_link *head, struct coalesce_link *l)
{
    l->prev = head->prev;
    l->next = head;
    head->prev->next = l;
    head->prev = l;
}

/* All of from behind to; from is empty afterwards. */
static void link_splice(struct coalesce_link *to, struct coalesce_link *from)
{
    if (link_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    link_init(from);
}

/* --- heaps --- */

static bool goes_first(const struct target *t)
{
    return invalidation_goes_first(t->message.kind);
}

static bool earlier(const struct target *a, const struct target *b)
{
    if (a->due_at != b->due_at)
        return a->due_at < b->due_at;
    if (goes_first(a) != goes_first(b)) /* in the rest heap only */
        return goes_first(a);
    return a->seq < b->seq;
}

static void heap_put(struct heap *h, size_t i, struct target *t)
{
    h->items[i] = t;
    t->heap_index = i;
}

static void heap_up(struct heap *h, size_t i)
{
    struct target *t = h->items[i];

    while (i > 0 && earlier(t, h->items[(i - 1) / 2])) {
        heap_put(h, i, h->items[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    heap_put(h, i, t);
}

static void heap_down(struct heap *h, size_t i)
{
    struct target *t = h->items[i];

    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n)
            break;
        if (child + 1 < h->n && earlier(h->items[child + 1], h->items[child]))
            child++;
        if (!earlier(h->items[child], t))
            break;
        heap_put(h, i, h->items[child]);
        i = child;
    }
    heap_put(h, i, t);
}

static void heap_add(struct heap *h, struct target *t)
{
    if (h->n == h->cap) {
        h->cap = h->cap ? 2 * h->cap : 64;
        h->items = mem_grow(h->items, h->cap, sizeof *h->items);
    }
    heap_put(h, h->n++, t);
    heap_up(h, h->n - 1);
}

static void heap_remove(struct heap *h, struct target *t)
{
    size_t i = t->heap_index;
    struct target *last = h->items[--h->n];

    if (last == t)
        return;
    heap_put(h, i, last);
    heap_up(h, i);
    heap_down(h, last->heap_index);
}

static struct heap *heap_of(struct coalesce *c, const struct target *t)
{
    if (t->state == TARGET_RESTING)
        return &c->heaps[HEAP_REST];
    return &c->heaps[goes_first(t) ? HEAP_KEYS : HEAP_MESSAGES];
}

/* --- targets --- */

static struct rule *rule_of(const struct coalesce *c, uint32_t rule)
{
    MUST(rule < c->n_rules);
    return &c->rules[rule];
}

static void make_key(struct buf *key, const struct invalidation *i)
{
    buf_reset(key);
    buf_add(key, &i->rule, sizeof i->rule);
    buf_add_char(key, invalidation_command(i->kind)[0]); /* all begin differently */
    buf_add(key, i->name, strlen(i->name) + 1);
    if (i->body && i->kind != INVALIDATION_MIRROR)
        buf_add(key, i->body, strlen(i->body) + 1);
}

/* Leaves the key in c->key and c->hash for target_new(). */
static struct target *target_find(struct coalesce *c, const struct invalidation *i)
{
    struct target *t = NULL;

    make_key(&c->key, i);
    c->hash = (unsigned)XXH3_64bits_withSeed(c->key.data, c->key.len, c->seed);
    HASH_FIND_BYHASHVALUE(hh, c->table, c->key.data, c->key.len, c->hash, t);
    return t;
}

static size_t size_of(const char *values)
{
    return values ? strlen(values) + 1 : 0;
}

/* Takes values. */
static void set_values(struct coalesce *c, struct target *t, char *values, int64_t version)
{
    c->bytes += size_of(values);
    c->bytes -= size_of(t->values);
    mem_free(t->values);
    t->values = t->message.body = values;
    t->message.version = version;
}

static void set_newer(struct coalesce *c, struct target *t, char *values, int64_t version)
{
    c->bytes += size_of(values);
    c->bytes -= size_of(t->newer);
    mem_free(t->newer);
    t->newer = values;
    t->newer_version = version;
}

/* The message with the higher version counts. What is on its way is read without us, so it stays as
 * it is until it is back. False: i is not newer. */
static bool take_version(struct coalesce *c, struct target *t, const struct invalidation *i)
{
    if (i->version <= (t->newer ? t->newer_version : t->message.version))
        return false;
    if (t->state == TARGET_SENDING)
        set_newer(c, t, mem_text(i->body), i->version);
    else
        set_values(c, t, mem_text(i->body), i->version);
    return true;
}

/* Of what target_find() just did not find. Not in any state yet. */
static struct target *target_new(struct coalesce *c, const struct invalidation *i)
{
    struct target *t = mem_new(sizeof *t + c->key.len);
    struct rule *rule = rule_of(c, i->rule);

    memcpy(t->key, c->key.data, c->key.len);
    t->key_len = c->key.len;
    t->message = *i;
    t->message.name = t->key + sizeof i->rule + 1;
    if (i->kind == INVALIDATION_MIRROR)
        set_values(c, t, mem_text(i->body), i->version);
    else
        t->message.body = i->body ? t->message.name + strlen(t->message.name) + 1 : NULL;
    t->window_ends_at = INT64_MIN;
    link_init(&t->waiting);
    link_init(&t->riding);
    t->rule_next = rule->targets;
    if (rule->targets)
        rule->targets->rule_prev = t;
    rule->targets = t;
    HASH_ADD_KEYPTR_BYHASHVALUE(hh, c->table, t->key, t->key_len, c->hash, t);
    c->bytes += sizeof *t + t->key_len;
    return t;
}

/* Must have left its state and have no waiters. */
static void target_free(struct coalesce *c, struct target *t)
{
    if (t->rule_prev)
        t->rule_prev->rule_next = t->rule_next;
    else
        rule_of(c, t->message.rule)->targets = t->rule_next;
    if (t->rule_next)
        t->rule_next->rule_prev = t->rule_prev;
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): uthash, and t is in the table */
    HASH_DELETE(hh, c->table, t);
    c->bytes -= sizeof *t + t->key_len + size_of(t->values) + size_of(t->newer);
    mem_free(t->values);
    mem_free(t->newer);
    mem_free(t);
}

static void target_rest(struct coalesce *c, struct target *t, int64_t until_ms, bool repeat)
{
    t->state = TARGET_RESTING;
    t->again = false;
    t->repeat = repeat;
    t->due_at = until_ms;
    t->seq = c->seq++;
    heap_add(heap_of(c, t), t);
}

static void target_pend(struct coalesce *c, struct target *t, int64_t due_ms)
{
    if (t->newer) {
        set_values(c, t, t->newer, t->newer_version);
        c->bytes -= size_of(t->newer); /* it was counted, and is now as the other */
        t->newer = NULL;
    }
    t->state = TARGET_PENDING;
    t->again = false;
    t->repeat = false;
    t->due_at = due_ms;
    t->seq = c->seq++;
    heap_add(heap_of(c, t), t);
}

/* Something was added to t: a send must start from now on. */
static void target_want(struct coalesce *c, struct target *t, bool fresh, int64_t now_ms)
{
    struct rule *rule = rule_of(c, t->message.rule);
    int64_t due_at = t->window_ends_at > now_ms && !c->draining ? t->window_ends_at : now_ms;

    if (!fresh && (t->state == TARGET_PENDING || (t->state == TARGET_SENDING && t->again))) {
        rule->counts.merged++;
        return;
    }
    if (!fresh && t->state == TARGET_SENDING) {
        t->again = true;
        t->due_at = due_at;
        return;
    }
    if (!fresh)
        heap_remove(&c->heaps[HEAP_REST], t);
    target_pend(c, t, due_at);
}

/* t goes first, and so is to be sent not later than the messages added with it. */
static void target_hurry(struct coalesce *c, struct target *t, int64_t due_ms)
{
    if (t->due_at <= due_ms)
        return;
    t->due_at = due_ms;
    if (t->state == TARGET_PENDING)
        heap_up(heap_of(c, t), t->heap_index);
}

/* --- the cap --- */

static bool forget_resting(struct coalesce *c)
{
    struct heap *rest = &c->heaps[HEAP_REST];

    if (rest->n == 0)
        return false;
    struct target *t = rest->items[0];
    if (t->repeat)
        rule_of(c, t->message.rule)->counts.repeats_dropped++;
    heap_remove(rest, t);
    target_free(c, t);
    return true;
}

static bool above_cap(const struct coalesce *c)
{
    return HASH_CNT(hh, c->table) > c->max_targets || c->bytes > c->max_bytes;
}

/* For one more; forgets what rests to make it. */
static bool has_room(struct coalesce *c)
{
    while (HASH_CNT(hh, c->table) >= c->max_targets || c->bytes >= c->max_bytes)
        if (!forget_resting(c))
            return false;
    return true;
}

/* Above the cap, where only those may be that somebody waits for: makes room, at the cost of
 * t (PENDING or SENDING, may be NULL) if it must be. */
static void shed(struct coalesce *c, struct target *t)
{
    while (above_cap(c))
        if (!forget_resting(c))
            break;
    if (!above_cap(c) || !t || t->state != TARGET_PENDING || t->collapsed ||
        !link_empty(&t->waiting))
        return;
    rule_of(c, t->message.rule)->counts.dropped++;
    heap_remove(heap_of(c, t), t);
    target_free(c, t);
}

/* Lowers every due time above now to now. */
static void heap_hurry(struct heap *h, int64_t now_ms)
{
    for (size_t i = 0; i < h->n; i++)
        if (h->items[i]->due_at > now_ms)
            h->items[i]->due_at = now_ms;
    for (size_t i = h->n / 2; i > 0; i--)
        heap_down(h, i - 1);
}

static void hurry_keys(struct coalesce *c, int64_t now_ms)
{
    heap_hurry(&c->heaps[HEAP_KEYS], now_ms);
    for (size_t i = 0; i < c->n_sending; i++) {
        struct target *t = c->sending[i];
        if (t->again && goes_first(t) && t->due_at > now_ms)
            t->due_at = now_ms;
    }
}

/* The PENDING PUBLISHes of the rule become its collapsed form, their waiters wait for that. */
static struct target *collapse(struct coalesce *c, struct rule *rule, int64_t now_ms)
{
    struct target *all = target_find(c, &rule->collapsed), *next;
    bool fresh = !all;

    if (fresh)
        all = target_new(c, &rule->collapsed);
    all->collapsed = true;
    target_want(c, all, fresh, now_ms);
    for (struct target *t = rule->targets; t; t = next) {
        next = t->rule_next;
        if (t == all || t->state != TARGET_PENDING || t->message.kind != INVALIDATION_PUBLISH)
            continue;
        for (struct coalesce_link *l = t->waiting.next; l != &t->waiting; l = l->next)
            l->target = all;
        link_splice(&all->waiting, &t->waiting);
        heap_remove(heap_of(c, t), t);
        target_free(c, t);
        rule->counts.collapsed++;
    }
    /* What covers them may be sent sooner than they would have been. */
    hurry_keys(c, now_ms);
    return all;
}

/* The target that will stand for i; NULL: dropped. */
static struct target *place(struct coalesce *c, const struct invalidation *i, bool waited_for,
                            int64_t now_ms)
{
    struct rule *rule = rule_of(c, i->rule);
    struct target *t = target_find(c, i);

    if (t && i->kind == INVALIDATION_MIRROR && !take_version(c, t, i)) {
        rule->counts.merged++;
        return NULL; /* nothing to send that is not sent anyway, or was */
    }
    if (!t && !has_room(c)) {
        if (i->kind == INVALIDATION_PUBLISH && rule->collapsed.name) {
            rule->counts.collapsed++;
            return collapse(c, rule, now_ms);
        }
        if (!waited_for) {
            rule->counts.dropped++;
            return NULL;
        }
    }
    if (t)
        target_want(c, t, false, now_ms);
    else
        target_want(c, t = target_new(c, i), true, now_ms);
    return t;
}

/* --- the calls --- */

struct coalesce *coalesce_new(const struct coalesce_rule *rules, size_t n_rules, size_t max_targets,
                              size_t max_bytes, size_t max_set)
{
    struct coalesce *c = mem_new(sizeof *c);

    MUST(max_targets > 0 && max_bytes > 0 && max_set > 0);
    c->rules = mem_array(n_rules ? n_rules : 1, sizeof *c->rules);
    c->n_rules = n_rules;
    for (size_t i = 0; i < n_rules; i++) {
        const struct invalidation *collapsed = rules[i].collapsed;
        c->rules[i].set = rules[i];
        c->rules[i].set.collapsed = NULL;
        if (collapsed) {
            MUST(collapsed->kind == INVALIDATION_PUBLISH && collapsed->rule == i);
            c->rules[i].collapsed = *collapsed;
            c->rules[i].collapsed.name = mem_text(collapsed->name);
            c->rules[i].collapsed.body = mem_text(collapsed->body);
        }
    }
    c->max_targets = max_targets;
    c->max_bytes = max_bytes;
    c->max_set = max_set;
    c->seed = (uint64_t)(uintptr_t)c;
    c->sending = mem_array(max_set, sizeof(struct target *));
    c->messages = mem_array(max_set, sizeof(const struct invalidation *));
    return c;
}

void coalesce_free(struct coalesce *c)
{
    struct target *t, *next;

    if (!c)
        return;
    HASH_ITER(hh, c->table, t, next)
    {
        MUST(link_empty(&t->waiting) && link_empty(&t->riding));
        target_free(c, t);
    }
    for (size_t i = 0; i < c->n_rules; i++)
        invalidation_clear(&c->rules[i].collapsed);
    for (size_t i = 0; i < HEAPS; i++)
        mem_free(c->heaps[i].items);
    mem_free(c->rules);
    mem_free(c->sending);
    mem_free(c->messages);
    buf_clear(&c->key);
    mem_free(c);
}

void coalesce_add(struct coalesce *c, struct invalidation_list *l, struct coalesce_waiter *w,
                  int64_t now_ms)
{
    int64_t message_at = INT64_MAX;

    if (w && l->n > 0)
        w->links = mem_array(l->n, sizeof *w->links);
    for (int keys = 0; keys <= 1; keys++) { /* the messages' times are needed for the keys */
        for (size_t i = 0; i < l->n; i++) {
            const struct invalidation *item = &l->items[i];
            bool waits = w && rule_of(c, item->rule)->set.waits;
            bool now = invalidation_goes_first(item->kind) == (keys == 1);
            struct target *t = now ? place(c, item, waits, now_ms) : NULL;
            if (!t)
                continue;
            if (keys)
                target_hurry(c, t, message_at);
            else if (t->due_at < message_at)
                message_at = t->due_at;
            if (waits) {
                struct coalesce_link *link = &w->links[w->n_links++];
                link->waiter = w;
                link->target = t;
                link_append(&t->waiting, link);
                w->missing++;
            }
        }
    }
    if (w && w->missing == 0) {
        mem_free(w->links);
        w->links = NULL;
    }
    invalidation_list_clear(l);
}

void coalesce_abandon(struct coalesce *c, struct coalesce_waiter *w)
{
    for (size_t i = 0; i < w->n_links; i++) {
        struct coalesce_link *link = &w->links[i];
        struct target *t = link->target;
        if (!t) /* was released */
            continue;
        link_remove(link);
        if (link_empty(&t->waiting))
            shed(c, t);
    }
    mem_free(w->links);
    w->links = NULL;
    w->n_links = 0;
    w->missing = 0;
}

static void hand_out(struct coalesce *c, struct target *t, int64_t now_ms)
{
    heap_remove(heap_of(c, t), t);
    t->state = TARGET_SENDING;
    t->again = false;
    if (t->repeat)
        c->n_repeating++;
    else
        t->window_ends_at = now_ms + rule_of(c, t->message.rule)->set.coalesce_ms;
    link_splice(&t->riding, &t->waiting);
    c->messages[c->n_sending] = &t->message;
    c->sending[c->n_sending++] = t;
}

size_t coalesce_due(struct coalesce *c, int64_t now_ms, const struct invalidation *const **out)
{
    MUST(c->n_sending == 0);
    for (size_t i = 0; i < HEAPS; i++) {
        struct heap *h = &c->heaps[i];
        while (h->n > 0 && h->items[0]->due_at <= now_ms && c->n_sending < c->max_set) {
            struct target *t = h->items[0];
            if (i != HEAP_REST || t->repeat) {
                hand_out(c, t, now_ms);
            } else { /* only its window was remembered */
                heap_remove(h, t);
                target_free(c, t);
            }
        }
    }
    *out = c->messages;
    return c->n_sending;
}

static void release(struct coalesce_link *riding, struct coalesce_waiter ***tail)
{
    while (!link_empty(riding)) {
        struct coalesce_link *link = riding->next;
        struct coalesce_waiter *w = link->waiter;
        link_remove(link);
        link->target = NULL;
        if (--w->missing > 0)
            continue;
        mem_free(w->links);
        w->links = NULL;
        w->n_links = 0;
        w->next = NULL;
        **tail = w;
        *tail = &w->next;
    }
}

static void target_sent(struct coalesce *c, struct target *t)
{
    struct rule *rule = rule_of(c, t->message.rule);
    int64_t window_ms = rule->set.coalesce_ms, after_ms = rule->set.repeat_after_ms;

    if (t->repeat)
        rule->counts.repeated++;
    else
        rule->counts.sent++;
    if (t->again) {
        target_pend(c, t, t->due_at);
        shed(c, t);
    } else if (t->repeat || c->draining || (after_ms == 0 && window_ms == 0)) {
        target_free(c, t);
    } else {
        int64_t started_at = t->window_ends_at - window_ms;
        target_rest(c, t, started_at + (after_ms > window_ms ? after_ms : window_ms), after_ms > 0);
        shed(c, NULL);
    }
}

static void target_failed(struct coalesce *c, struct target *t, int64_t retry_at_ms)
{
    rule_of(c, t->message.rule)->counts.failed++;
    link_splice(&t->waiting, &t->riding);
    if (t->repeat && !t->again) {
        if (c->draining)
            target_free(c, t);
        else
            target_rest(c, t, retry_at_ms, true);
        return;
    }
    /* A message not before the time that the keys added with it go by; a key may always go sooner.
     */
    if (t->again && !goes_first(t) && t->due_at > retry_at_ms)
        retry_at_ms = t->due_at;
    target_pend(c, t, retry_at_ms);
    shed(c, t);
}

struct coalesce_waiter *coalesce_sent(struct coalesce *c, const bool *ok, int64_t retry_at_ms)
{
    struct coalesce_waiter *released = NULL, **tail = &released;

    for (size_t i = 0; i < c->n_sending; i++) {
        if (ok[i]) {
            release(&c->sending[i]->riding, &tail);
            target_sent(c, c->sending[i]);
        }
    }
    for (size_t i = 0; i < c->n_sending; i++)
        if (!ok[i])
            target_failed(c, c->sending[i], retry_at_ms);
    c->n_sending = 0;
    c->n_repeating = 0;
    return released;
}

int64_t coalesce_next_due(const struct coalesce *c)
{
    int64_t next = INT64_MAX;

    for (size_t i = 0; i < HEAPS; i++)
        if (c->heaps[i].n > 0 && c->heaps[i].items[0]->due_at < next)
            next = c->heaps[i].items[0]->due_at;
    return next;
}

void coalesce_drain(struct coalesce *c, int64_t now_ms)
{
    c->draining = true;
    while (forget_resting(c))
        ;
    heap_hurry(&c->heaps[HEAP_KEYS], now_ms);
    heap_hurry(&c->heaps[HEAP_MESSAGES], now_ms);
    for (size_t i = 0; i < c->n_sending; i++)
        if (c->sending[i]->again && c->sending[i]->due_at > now_ms)
            c->sending[i]->due_at = now_ms;
}

size_t coalesce_pending(const struct coalesce *c)
{
    size_t again = 0; /* a repetition on its way whose target was added to meanwhile */

    for (size_t i = 0; i < c->n_sending && c->n_repeating > 0; i++)
        again += c->sending[i]->repeat && c->sending[i]->again;
    return c->heaps[HEAP_KEYS].n + c->heaps[HEAP_MESSAGES].n + c->n_sending - c->n_repeating +
           again;
}

size_t coalesce_targets(const struct coalesce *c)
{
    return HASH_CNT(hh, c->table);
}

struct coalesce_counts coalesce_counts(const struct coalesce *c, uint32_t rule)
{
    return rule_of(c, rule)->counts;
}
