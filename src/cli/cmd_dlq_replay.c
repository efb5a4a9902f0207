/*
 * `idemsink dlq replay`: dead letters through their route once more.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/mem.h"
#include "cli/dlq.h"
#include "io/kafka.h"
#include "cli/needs.h"
#include "io/mongo.h"
#include "io/redis.h"
#include "run/replay.h"

struct replaying {
    struct dlq dlq;
    char *instance_id;
    struct mapping **mappings;
    struct mongo *mongo;
    struct deadletter deadletter;
    struct bus bus;
    struct lock lock;
    struct guards *guards;
    struct metrics *metrics; /* nobody asks for them */
    struct replay *replay;
    bool *proved; /* by route: its dedup index */

    struct replay_item *items;
    size_t n, cap, bytes;
    uint64_t fates[REPLAY_FATES];
    uint64_t would_send;       /* --dry-run */
    uint64_t left[DLQ_STATES]; /* meant and not replayed, by why */
    uint64_t absent;           /* --offset: no record there */
    bool any;                  /* --json: something stands in the list */
};

/* --- what became of each --- */

static void print_row(struct replaying *p, const struct dlq_place *at, const char *origin,
                      const char *fate, const char *text)
{
    struct buf place = {0};

    buf_printf(&place, "%d:%" PRId64, (int)at->partition, at->offset);
    printf("%-11s %-24s %s%s%s\n", buf_text(&place), origin, fate, *text ? ": " : "", text);
    buf_clear(&place);
    p->any = true;
}

static void print_json_row(struct replaying *p, const struct replay_item *item, const char *fate)
{
    const struct record *r = item->record;
    struct buf out = {0};

    buf_printf(&out,
               "%s{\"dead_letter\":\"%d:%" PRId64
               "\",\"topic\":\"%s\",\"partition\":%d,\"offset\":%" PRId64 ",\"fate\":\"%s\"",
               p->any ? ",\n" : "", (int)item->partition, item->offset, r->topic, (int)r->partition,
               r->offset, fate);
    if (item->conflict)
        buf_add_text(&out, ",\"conflict\":true");
    if (r->rejected.reason != REASON_NONE) {
        buf_printf(&out, ",\"reason\":\"%s\",\"error\":", reason_name(r->rejected.reason));
        dlq_add_json(&out, slice_text(r->rejected.text));
        buf_printf(&out, ",\"attempts\":%" PRIu32, r->attempts);
    }
    buf_add_char(&out, '}');
    fputs(buf_text(&out), stdout);
    buf_clear(&out);
    p->any = true;
}

static void print_item(struct replaying *p, const struct replay_item *item, const char *fate)
{
    const struct record *r = item->record;
    struct buf origin = {0}, text = {0};

    if (p->dlq.args->json) {
        print_json_row(p, item, item->conflict ? "duplicate" : fate);
        return;
    }
    buf_printf(&origin, "%s:%d:%" PRId64, r->topic, (int)r->partition, r->offset);
    if (r->rejected.reason != REASON_NONE) {
        buf_printf(&text, "%s: ", reason_name(r->rejected.reason));
        dlq_add_text(&text, slice_text(r->rejected.text));
    }
    print_row(p, &(struct dlq_place){.partition = item->partition, .offset = item->offset},
              buf_text(&origin), fate, buf_text(&text));
    buf_clear(&origin);
    buf_clear(&text);
}

static void item_done(void *ctx, const struct replay_item *item)
{
    struct replaying *p = ctx;

    p->fates[item->fate]++;
    print_item(p, item,
               item->conflict ? "duplicate (of another payload)" : replay_fate_name(item->fate));
}

static void left_out(struct replaying *p, const struct record *r, const struct letter *l,
                     enum dlq_state state)
{
    struct buf text = {0}, origin = {0};

    p->left[state]++;
    if (p->dlq.args->json) {
        buf_add_text(&text, p->any ? ",\n{" : "{");
        dlq_add_members(&text, r, l, state);
        buf_add_text(&text, ",\"fate\":\"not_replayed\"}");
        fputs(buf_text(&text), stdout);
        p->any = true;
    } else {
        dlq_add_origin(&origin, l);
        print_row(p, &(struct dlq_place){.partition = r->partition, .offset = r->offset},
                  buf_text(&origin), "not replayed", dlq_state_help(state));
    }
    buf_clear(&text);
    buf_clear(&origin);
}

/* --- the batch --- */

static bool prove(struct replaying *p, uint32_t route, struct err *e)
{
    const struct config_route *c = &p->dlq.config->routes[route];

    if (p->proved[route])
        return true;
    if (!needs_prove_route(p->mongo, c, e))
        return err_wrap(e, c->name);
    p->proved[route] = true;
    return true;
}

static void dry_run(struct replaying *p, struct replay_item *item)
{
    struct mapping *mapping = p->mappings[item->record->route];
    struct write_op op = {0};

    mapping_order(mapping, item->record);
    switch (mapping_build(mapping, item->record, &op)) {
    case MAPPING_WRITE:
        p->would_send++;
        print_item(p, item, "would be sent to MongoDB");
        break;
    case MAPPING_SKIP:
        p->fates[REPLAY_SKIPPED]++;
        print_item(p, item, "would be skipped");
        break;
    case MAPPING_REJECTED:
        p->fates[REPLAY_REFUSED]++;
        print_item(p, item, "would be refused");
        break;
    }
    write_op_clear(&op);
}

/* The batch so far goes its way. */
static bool flush(struct replaying *p, struct err *e)
{
    bool ok = true;

    for (size_t i = 0; ok && i < p->n; i++) {
        if (p->dlq.args->dry_run)
            dry_run(p, &p->items[i]);
        else
            ok = prove(p, p->items[i].record->route, e);
    }
    if (ok && !p->dlq.args->dry_run)
        ok = replay_run(p->replay, p->items, p->n, e);
    for (size_t i = 0; i < p->n; i++) {
        if (!ok && p->items[i].fate == REPLAY_OPEN) {
            p->fates[REPLAY_OPEN]++;
            print_item(p, &p->items[i], "not acknowledged");
        }
        record_free(p->items[i].record);
    }
    p->n = p->bytes = 0;
    return ok;
}

/* Takes over again, the record that r speaks of. */
static bool take(struct replaying *p, const struct record *r, struct record *again, struct err *e)
{
    if (p->n == p->cap) {
        p->cap = p->cap ? 2 * p->cap : 64;
        p->items = mem_grow(p->items, p->cap, sizeof *p->items);
    }
    p->items[p->n++] =
        (struct replay_item){.record = again, .partition = r->partition, .offset = r->offset};
    p->bytes += again->bytes;
    return p->bytes < (size_t)p->dlq.config->worker.max_bytes / 2 || flush(p, e);
}

static bool take_or_leave(struct replaying *p, const struct record *r, const struct letter *l,
                          enum dlq_state state, struct err *e)
{
    struct record *again = NULL;

    if (state == DLQ_OPEN || state == DLQ_INCOMPLETE) {
        again = dlq_restore(&p->dlq, r, l, e);
        if (again == NULL && e->kind != ERR_INPUT)
            return false;
    }
    if (again != NULL)
        return take(p, r, again, e);
    left_out(p, r, l, state);
    return true;
}

static bool replay_one(void *ctx, const struct record *r, const struct letter *l, struct err *e)
{
    struct replaying *p = ctx;
    enum dlq_state state;

    if (!dlq_wanted(&p->dlq, r, l))
        return true;
    state = dlq_state(&p->dlq, r, l);
    if (state == DLQ_OLDER || state == DLQ_OTHER_GROUP || state == DLQ_FOREIGN) {
        p->left[state]++; /* not ours, or not any more: as many as there may be */
        return true;
    }
    return take_or_leave(p, r, l, state, e);
}

static bool replay_places(struct replaying *p, struct err *e)
{
    for (size_t i = 0; i < p->dlq.n_places; i++) {
        const struct dlq_place *place = &p->dlq.places[i];
        struct record *r = dlq_read(&p->dlq, place, e);
        struct letter l;
        bool ok;

        if (r == NULL && e->kind != ERR_INPUT)
            return false;
        if (r == NULL) {
            p->absent++;
            fprintf(stderr, "idemsink: %s\n", e->text);
            continue;
        }
        letter_read(r, &l);
        ok = take_or_leave(p, r, &l, dlq_state(&p->dlq, r, &l), e);
        record_free(r);
        if (!ok)
            return false;
    }
    return true;
}

/* --- start and end --- */

static bool replay_open(struct replaying *p, struct err *e)
{
    struct config *c = p->dlq.config;

    p->instance_id = cli_instance_id(c);
    p->mappings = cli_mappings(c, p->instance_id, e);
    p->proved = mem_array(c->n_routes, sizeof *p->proved);
    if (p->mappings == NULL || p->dlq.args->dry_run)
        return p->mappings != NULL;
    p->mongo = mongo_new(c, e);
    if (p->mongo == NULL || !mongo_ping(p->mongo, e) || !mongo_decide_ways(p->mongo, e) ||
        !mongo_finish_open(p->mongo, e) || !kafka_deadletter_new(c, &p->deadletter, e))
        return false;
    if (c->redis.uri[0] && (config_has_invalidations(c) || config_has_mirrors(c)) &&
        !redis_bus_new(c, &p->bus, e))
        return false;
    if (c->redis.uri[0] && !redis_lock_new(c, &p->lock, e))
        return false;
    p->metrics = metrics_new();
    p->guards = guards_new(c, p->lock, p->metrics, NULL);
    p->replay = replay_new(&(struct replay_options){.config = c,
                                                    .mappings = p->mappings,
                                                    .sink = mongo_sink(p->mongo),
                                                    .deadletter = p->deadletter,
                                                    .bus = p->bus,
                                                    .guards = p->guards,
                                                    .patience_ms = p->dlq.patience_ms,
                                                    .done = item_done,
                                                    .ctx = p});
    return true;
}

static void replay_close(struct replaying *p)
{
    replay_free(p->replay);
    guards_free(p->guards);
    metrics_free(p->metrics);
    kafka_deadletter_free(&p->deadletter);
    redis_bus_free(&p->bus);
    mongo_free(p->mongo);
    if (p->dlq.config != NULL)
        cli_mappings_free(p->mappings, p->dlq.config->n_routes);
    for (size_t i = 0; i < p->n; i++)
        record_free(p->items[i].record);
    mem_free(p->items);
    mem_free(p->proved);
    mem_free(p->instance_id);
    dlq_close(&p->dlq);
}

static void print_would(const struct replaying *p)
{
    printf("would be sent %" PRIu64, p->would_send);
    if (p->fates[REPLAY_SKIPPED] > 0)
        printf(", would be skipped %" PRIu64, p->fates[REPLAY_SKIPPED]);
    printf(", would be refused %" PRIu64, p->fates[REPLAY_REFUSED]);
}

static void print_fates(const struct replaying *p)
{
    const char *between = p->dlq.args->json ? "],\n" : "";

    for (int i = p->dlq.args->json || p->fates[REPLAY_OPEN] > 0 ? 0 : 1; i < REPLAY_FATES; i++) {
        const char *name =
            i == REPLAY_OPEN ? "not_acknowledged" : replay_fate_name((enum replay_fate)i);

        printf(p->dlq.args->json ? "%s\"%s\":%" PRIu64 : "%s%s %" PRIu64, between, name,
               p->fates[i]);
        between = p->dlq.args->json ? "," : ", ";
    }
    if (p->dlq.args->json && p->dlq.args->dry_run)
        printf(",\"would_be_sent\":%" PRIu64, p->would_send);
}

static void print_sum(const struct replaying *p)
{
    uint64_t untold = p->replay != NULL ? replay_untold(p->replay) : 0;
    const char *between;

    if (p->dlq.args->dry_run && !p->dlq.args->json)
        print_would(p);
    else
        print_fates(p);
    if (p->dlq.args->json)
        fputs(",\"not_replayed\":{", stdout);
    between = p->dlq.args->json ? "" : "; not replayed: ";
    for (int i = DLQ_OPEN + 1; i < DLQ_STATES; i++) {
        const char *name = dlq_state_name((enum dlq_state)i);

        if (p->dlq.args->json)
            printf("%s\"%s\":%" PRIu64, between, name, p->left[i]);
        else if (p->left[i] > 0)
            printf("%s%s %" PRIu64, between, name, p->left[i]);
        if (p->dlq.args->json || p->left[i] > 0)
            between = p->dlq.args->json ? "," : ", ";
    }
    if (p->dlq.args->json)
        printf("},\"untold\":%" PRIu64 "}\n", untold);
    else
        puts("");
    if (untold > 0)
        fprintf(stderr, "idemsink: %" PRIu64 " invalidations were not taken by Redis\n", untold);
}

static enum exit_code verdict(const struct replaying *p)
{
    return p->fates[REPLAY_REFUSED] + p->absent + p->left[DLQ_INCOMPLETE] + p->left[DLQ_NO_ROUTE] +
                           p->left[DLQ_BROKEN] >
                       0 ||
                   (p->dlq.n_places > 0 && p->left[DLQ_FOREIGN] + p->left[DLQ_OTHER_GROUP] > 0)
               ? EXIT_FOUND
               : EXIT_FINE;
}

enum exit_code cmd_dlq_replay(const struct args *args)
{
    struct replaying p = {.n = 0};
    enum exit_code code = dlq_open(&p.dlq, args);
    struct err e;
    bool ok;

    if (code == EXIT_FINE && !dlq_topic_is_read(&p.dlq))
        code = EXIT_CONFIGURATION;
    if (code != EXIT_FINE) {
        replay_close(&p);
        return code;
    }
    (void)setvbuf(stdout, NULL, _IOLBF, 0); /* what is printed is done, also before a crash */
    ok = replay_open(&p, &e);
    if (ok) {
        if (args->json)
            puts("{\"letters\":[");
        ok = p.dlq.n_places > 0 ? replay_places(&p, &e)
                                : dlq_survey(&p.dlq, &e) && dlq_scan(&p.dlq, replay_one, &p, &e);
        ok = ok && flush(&p, &e);
        print_sum(&p);
    }
    code = ok ? verdict(&p) : cli_fail(&e);
    replay_close(&p);
    return code;
}
