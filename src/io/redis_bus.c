/*
 * redis_bus.c - the bus port over one connection to Redis.
 */
#include <errno.h>
#include <hiredis/hiredis.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "io/redis.h"
#include "io/redis_private.h"

struct redis_bus {
    struct redis_link link;
    size_t *order; /* the set's keys, then its messages */
    size_t order_cap;
    struct buf values;  /* of the MIRROR that is written down now */
    bool script_passed; /* the set has the script of MIRRORs in it */
};

static void put_in_order(struct redis_bus *b, const struct invalidation *messages, size_t n)
{
    size_t at = 0;

    if (n > b->order_cap) {
        b->order = mem_grow(b->order, n, sizeof *b->order);
        b->order_cap = n;
    }
    for (int first = 1; first >= 0; first--)
        for (size_t i = 0; i < n; i++)
            if (invalidation_goes_first(messages[i].kind) == (first == 1))
                b->order[at++] = i;
    MUST(at == n);
}

/*
 * A generation key that expires must not begin at 1 again: the number would be one that it has had,
 * and entries that were stored under it just before may be there still. So it begins with the time
 * (in microseconds: INCRs of one key can't overtake that), and all of it is one step: a key without
 * its beginning or without its end can't be left behind.
 */
static const char next_generation[] = "redis.call('SET',KEYS[1],ARGV[1],'NX','PX',ARGV[2]) "
                                      "local n=redis.call('INCR',KEYS[1]) "
                                      "redis.call('PEXPIRE',KEYS[1],ARGV[2]) return n";

/*
 * A counter's values, unless newer ones are there. Versions are compared as texts, for Lua's
 * numbers are doubles: the longer is the higher.
 */
static const char set_if_newer[] =
    "local have=redis.call('HGET',KEYS[1],'" INVALIDATION_VERSION "') local new=ARGV[1] "
    "if have and string.find(have,'^%d+$') and (#have>#new or (#have==#new and have>=new)) then "
    "return 0 end "
    "redis.call('HSET',KEYS[1],'" INVALIDATION_VERSION "',new,unpack(ARGV,2)) return 1";
/* Its SHA-1. Should it be wrong, Redis says NOSCRIPT: tests/system/test_redis_caches.c */
static const char set_if_newer_sha[] = "c8cf2be6bd52eb71cf6806df672a5de366b9d0ad";

/* Counters have up to 20 fields. */
enum { WORDS_MAX = 48, NUMBER_SIZE = 24 };

/*
 * The first of a set brings the script, and by that Redis knows it when it comes to the others of
 * the same set: there is no NOSCRIPT to ask again for.
 */
static int words_of_mirror(struct redis_bus *b, const struct invalidation *m,
                           const char *words[WORDS_MAX], char *version)
{
    char *at;
    int n = 0;

    (void)snprintf(version, NUMBER_SIZE, "%" PRId64, m->version);
    words[n++] = b->script_passed ? "EVALSHA" : "EVAL";
    words[n++] = b->script_passed ? set_if_newer_sha : set_if_newer;
    b->script_passed = true;
    words[n++] = "1";
    words[n++] = m->name;
    words[n++] = version;
    buf_reset(&b->values);
    buf_add_text(&b->values, m->body);
    at = b->values.data;
    for (size_t i = 0; i < m->fields->n; i++) {
        MUST(n + 2 <= WORDS_MAX && at != NULL);
        words[n++] = m->fields->items[i].name;
        words[n++] = at;
        at = strchr(at, ' ');
        if (at)
            *at++ = '\0';
    }
    return n;
}

/* The words of m's command; how many. */
static int words_of(struct redis_bus *b, const struct invalidation *m, const char *words[WORDS_MAX],
                    char numbers[2][NUMBER_SIZE])
{
    int n = 0;

    if (m->kind == INVALIDATION_MIRROR)
        return words_of_mirror(b, m, words, numbers[0]);
    if (m->kind == INVALIDATION_INCR && m->expire_ms > 0) {
        (void)snprintf(numbers[0], NUMBER_SIZE, "%" PRId64, clock_wall_ms() * 1000);
        (void)snprintf(numbers[1], NUMBER_SIZE, "%" PRId64, m->expire_ms);
        words[n++] = "EVAL";
        words[n++] = next_generation;
        words[n++] = "1";
        words[n++] = m->name;
        words[n++] = numbers[0];
        words[n++] = numbers[1];
        return n;
    }
    words[n++] = invalidation_command(m->kind);
    words[n++] = m->name;
    if (m->kind == INVALIDATION_XADD) {
        (void)snprintf(numbers[0], NUMBER_SIZE, "%" PRId64, m->maxlen);
        words[n++] = "MAXLEN";
        words[n++] = "~";
        words[n++] = numbers[0];
        words[n++] = "*";
        words[n++] = INVALIDATION_FIELD;
    }
    if (m->body)
        words[n++] = m->body;
    return n;
}

static bool append(struct redis_bus *b, const struct invalidation *messages, size_t n,
                   struct err *e)
{
    b->script_passed = false;
    for (size_t i = 0; i < n; i++) {
        const char *words[WORDS_MAX];
        char numbers[2][NUMBER_SIZE];
        int count = words_of(b, &messages[b->order[i]], words, numbers);
        if (redisAppendCommandArgv(b->link.context, count, words, NULL) != REDIS_OK) {
            redis_link_close(&b->link);
            return err_set(e, ERR_TRANSIENT, 0,
                           "redis: a set of invalidations can't be written down");
        }
    }
    return true;
}

/* What one set came to. */
struct set {
    const struct invalidation *messages;
    size_t n;
    bool *sent;
    uint64_t *receivers;
    size_t answered; /* of them, however */
    bool refused;    /* *e has the first refusal */
    bool leave;      /* the connection should not be used again */
};

static void take_answer(struct redis_bus *b, struct set *s, const redisReply *reply, struct err *e)
{
    size_t i = b->order[s->answered++];
    enum invalidation_kind kind = s->messages[i].kind;
    struct err why;

    /* XADD answers the entry's id. */
    if (reply->type == (kind == INVALIDATION_XADD ? REDIS_REPLY_STRING : REDIS_REPLY_INTEGER)) {
        s->sent[i] = true;
        if (kind == INVALIDATION_PUBLISH && reply->integer > 0)
            *s->receivers += (uint64_t)reply->integer;
        return;
    }
    if (reply->type == REDIS_REPLY_ERROR) {
        redis_link_refused(&b->link, invalidation_command(kind), reply, &why);
        /* A replica may be what is left of a primary: who connects again may find the new one. */
        s->leave = s->leave || why.kind != ERR_CONFIG || redis_link_is_replica(reply);
    } else {
        err_set(&why, ERR_TRANSIENT, 0, "redis at %s: %s: the answer is not %s", b->link.where,
                invalidation_command(kind),
                kind == INVALIDATION_XADD ? "the id of an entry" : "a number");
        s->leave = true;
    }
    /* What keeps everything from being sent is told rather than what keeps one back. */
    if (!s->refused || (e->kind == ERR_CONFIG && why.kind != ERR_CONFIG))
        *e = why;
    s->refused = true;
}

/* False: not all were answered; the connection is closed. */
static bool exchange(struct redis_bus *b, struct set *s, struct err *e)
{
    int64_t deadline_ms = clock_mono_ms() + b->link.timeout_ms;
    struct err lost;

    if (!append(b, s->messages, s->n, e) || !redis_link_flush(&b->link, deadline_ms, e))
        return false;
    while (s->answered < s->n) {
        redisReply *reply = NULL;
        if (!redis_link_answer(&b->link, deadline_ms, &reply, &lost)) {
            /* An answer such as "max number of clients" says more than the hang-up behind it. */
            if (!s->refused || e->kind == ERR_CONFIG)
                *e = lost;
            return false;
        }
        take_answer(b, s, reply, e);
        freeReplyObject(reply);
    }
    return true;
}

/* *e may be touched when true, too. */
static bool send_set(struct redis_bus *b, struct set *s, struct err *e)
{
    bool reused = b->link.context != NULL;

    put_in_order(b, s->messages, s->n);
    for (;;) {
        if (!redis_link_open(&b->link, e))
            return false;
        if (exchange(b, s, e))
            break;
        /* A connection that lay idle may have been closed by the server (its `timeout`, a restart):
         * that is no outage. Everything here may be sent twice. */
        if (!reused || s->answered > 0 || e->code == ETIMEDOUT)
            return false;
        reused = false;
    }
    if (s->leave)
        redis_link_close(&b->link);
    return !s->refused;
}

static bool bus_send(void *self, const struct invalidation *messages, size_t n, bool *sent,
                     uint64_t *receivers, struct err *e)
{
    struct redis_bus *b = self;
    struct set s = {.messages = messages, .n = n, .sent = sent, .receivers = receivers};
    struct redis_sigpipe sigpipe = redis_sigpipe_block();

    struct err why;

    memset(sent, 0, n * sizeof *sent);
    *receivers = 0;
    bool ok = send_set(b, &s, &why);
    if (!ok)
        *e = why;
    redis_sigpipe_restore(sigpipe);
    return ok;
}

bool redis_bus_new(const struct config *c, struct bus *out, struct err *e)
{
    static const struct bus_ops ops = {.send = bus_send};
    struct redis_bus *b = mem_new(sizeof *b);

    if (!redis_link_init(&b->link, c->redis.uri, c->redis.timeout_ms, e)) {
        mem_free(b);
        return false;
    }
    *out = (struct bus){.ops = &ops, .self = b};
    return true;
}

void redis_bus_free(struct bus *bus)
{
    struct redis_bus *b = bus->self;

    if (!b)
        return;
    redis_link_clear(&b->link);
    mem_free(b->order);
    buf_clear(&b->values);
    mem_free(b);
    *bus = (struct bus){0};
}

static bool ping(struct redis_link *l, struct err *e)
{
    int64_t deadline_ms = clock_mono_ms() + l->timeout_ms;
    redisReply *reply = NULL;

    if (redisAppendCommand(l->context, "PING") != REDIS_OK)
        return err_set(e, ERR_TRANSIENT, 0, "redis at %s: PING can't be written down", l->where);
    if (!redis_link_flush(l, deadline_ms, e) || !redis_link_answer(l, deadline_ms, &reply, e))
        return false;
    bool ok = reply->type != REDIS_REPLY_ERROR || redis_link_refused(l, "PING", reply, e);
    freeReplyObject(reply);
    return ok;
}

bool redis_ping(const struct config *c, struct err *e)
{
    struct redis_sigpipe sigpipe = redis_sigpipe_block();
    struct redis_link link;
    bool ok = redis_link_init(&link, c->redis.uri, c->redis.timeout_ms, e) &&
              redis_link_open(&link, e) && ping(&link, e);

    redis_link_clear(&link);
    redis_sigpipe_restore(sigpipe);
    return ok;
}

#define TEXT_OF(x)  #x
#define TEXT_OF_(x) TEXT_OF(x)

const char *redis_library_version(void)
{
    return TEXT_OF_(HIREDIS_MAJOR) "." TEXT_OF_(HIREDIS_MINOR) "." TEXT_OF_(HIREDIS_PATCH);
}
