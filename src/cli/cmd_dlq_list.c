/*
 * `idemsink dlq list`: the dead letters, newest last.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/dlq.h"
#include "io/mongo.h"

/* What MongoDB says about the record today. */
enum now { NOW_UNKNOWN, NOW_STORED, NOW_MISSING, NOW_REFUSED, NOW_SKIPPED, NOW_GONE, NOWS };

static const char *now_name(enum now now)
{
    static const char *const names[NOWS] = {"-", "stored", "missing", "refused", "skipped", "gone"};

    return names[now];
}

struct row {
    int64_t time_ms;
    struct dlq_place place;
    char *text;
};

struct list {
    struct dlq dlq;
    struct row *rows;
    size_t n, cap, last; /* last: that many of the newest are shown */
    uint64_t counts[DLQ_STATES], nows[DLQ_STATES][NOWS];
    struct mapping **mappings; /* --connect */
    struct mongo *mongo;
};

static int by_time(const void *left, const void *right)
{
    const struct row *a = left, *b = right;

    if (a->time_ms != b->time_ms)
        return a->time_ms < b->time_ms ? -1 : 1;
    if (a->place.partition != b->place.partition)
        return a->place.partition < b->place.partition ? -1 : 1;
    return (a->place.offset > b->place.offset) - (a->place.offset < b->place.offset);
}

/* Only the newest stay. */
static void trim(struct list *list)
{
    size_t gone = list->n > list->last ? list->n - list->last : 0;

    if (list->n > 0)
        qsort(list->rows, list->n, sizeof *list->rows, by_time);
    for (size_t i = 0; i < gone; i++)
        mem_free(list->rows[i].text);
    for (size_t i = 0; i < list->n - gone; i++)
        list->rows[i] = list->rows[i + gone];
    list->n -= gone;
}

static void add_row(struct list *list, const struct record *r, const struct letter *l, char *text)
{
    if (list->n == list->cap) {
        if (list->last <= list->cap / 2)
            trim(list);
        if (list->n > list->cap / 2 || list->cap == 0) {
            list->cap = list->cap ? 2 * list->cap : 64;
            list->rows = mem_grow(list->rows, list->cap, sizeof *list->rows);
        }
    }
    list->rows[list->n] = (struct row){.time_ms = dlq_time_ms(r, l),
                                       .place = {.partition = r->partition, .offset = r->offset}};
    list->rows[list->n++].text = text;
}

/* --- what is there now --- */

/* NOW_UNKNOWN with *e: MongoDB or Kafka can't be asked. */
static enum now ask_now(struct list *list, const struct record *r, const struct letter *l,
                        struct err *e)
{
    enum now now = NOW_REFUSED;
    struct record *again = dlq_restore(&list->dlq, r, l, e);
    struct write_op op = {0};
    bson_t *found = NULL;

    if (again == NULL)
        return e->kind == ERR_INPUT ? NOW_GONE : NOW_UNKNOWN;
    uint32_t route = again->route;
    mapping_order(list->mappings[route], again);
    switch (mapping_build(list->mappings[route], again, &op)) {
    case MAPPING_WRITE:
        if (!mongo_find(list->mongo, &list->dlq.config->routes[route], op.filter, &found, e))
            now = NOW_UNKNOWN;
        else
            now = found != NULL ? NOW_STORED : NOW_MISSING;
        break;
    case MAPPING_SKIP:
        now = NOW_SKIPPED;
        break;
    case MAPPING_REJECTED:
        break;
    }
    if (found != NULL)
        bson_destroy(found);
    write_op_clear(&op);
    record_free(again);
    return now;
}

/* --- a row --- */

static char *table_row(const struct list *list, const struct record *r, const struct letter *l,
                       enum dlq_state state, enum now now)
{
    struct buf place = {0}, origin = {0}, out = {0};
    char at[32] = "-";

    buf_printf(&place, "%d:%" PRId64, (int)r->partition, r->offset);
    dlq_add_origin(&origin, l);
    if (dlq_time_ms(r, l) >= 0)
        clock_format(dlq_time_ms(r, l), at);
    buf_printf(&out, "%-11s %-24s ", buf_text(&place), at);
    if (l->kind == LETTER_OURS) {
        struct buf reason = {0};

        dlq_add_text(&reason, l->reason);
        buf_printf(&out, "%-16s %-24s %8" PRIu32 "  ", buf_text(&reason), buf_text(&origin),
                   l->attempts);
        buf_clear(&reason);
    } else {
        buf_printf(&out, "%-16s %-24s %8s  ", "-", buf_text(&origin), "-");
    }
    if (list->mongo != NULL)
        buf_printf(&out, "%-8s ", now_name(now));
    if (state != DLQ_OPEN)
        buf_printf(&out, "(%s) ", dlq_state_name(state));
    dlq_add_text(&out, l->kind == LETTER_BROKEN ? slice_text(l->fault) : l->error);
    buf_clear(&place);
    buf_clear(&origin);
    return out.data;
}

static char *json_row(const struct record *r, const struct letter *l, enum dlq_state state,
                      enum now now)
{
    struct buf out = {0};

    buf_add_char(&out, '{');
    dlq_add_members(&out, r, l, state);
    if (now != NOW_UNKNOWN)
        buf_printf(&out, ",\"now\":\"%s\"", now_name(now));
    buf_add_char(&out, '}');
    return out.data;
}

/* Of what can't be asked about nobody knows. */
static bool is_not_stored(enum now now)
{
    return now == NOW_MISSING || now == NOW_REFUSED || now == NOW_GONE;
}

static bool list_one(void *ctx, const struct record *r, const struct letter *l, struct err *e)
{
    struct list *list = ctx;
    enum now now = NOW_UNKNOWN;
    enum dlq_state state;

    if (!dlq_wanted(&list->dlq, r, l))
        return true;
    state = dlq_state(&list->dlq, r, l);
    list->counts[state]++;
    if (state == DLQ_OLDER && !list->dlq.args->all)
        return true;
    if (list->mongo != NULL && state <= DLQ_INCOMPLETE) {
        now = ask_now(list, r, l, e);
        if (now == NOW_UNKNOWN)
            return false;
        list->nows[state][now]++;
    }
    if (list->dlq.args->not_stored && !is_not_stored(now))
        return true;
    add_row(list, r, l,
            list->dlq.args->json ? json_row(r, l, state, now) : table_row(list, r, l, state, now));
    return true;
}

/* --- all of it --- */

static void print_nows(const uint64_t *nows)
{
    const char *between = ": ";

    for (int i = 0; i < NOWS; i++) {
        if (nows[i] == 0)
            continue;
        printf("%s%" PRIu64 " %s", between, nows[i], now_name((enum now)i));
        between = ", ";
    }
}

static void print_counts(const struct list *list)
{
    const char *between = "";

    for (int i = 0; i < DLQ_STATES; i++) {
        if (list->counts[i] == 0)
            continue;
        printf("%s%" PRIu64 " %s", between, list->counts[i], dlq_state_name((enum dlq_state)i));
        print_nows(list->nows[i]);
        between = list->mongo != NULL ? "; " : ", ";
    }
    puts(*between == '\0' ? "no dead letters" : "");
    if (list->nows[DLQ_OPEN][NOW_REFUSED] > 0)
        puts("refused: bad still, by what the route says today; replayed, each of them is a new "
             "dead letter");
    if (list->counts[DLQ_OLDER] > 0 && !list->dlq.args->all)
        puts("older: a newer dead letter speaks of the same record; --all shows them");
}

static void print_list(struct list *list)
{
    bool json = list->dlq.args->json;

    trim(list);
    if (json)
        puts("[");
    else if (list->n > 0)
        printf("%-11s %-24s %-16s %-24s %8s  %s%s\n", "DEAD LETTER", "TIME", "REASON", "RECORD",
               "ATTEMPTS", list->mongo != NULL ? "NOW      " : "", "ERROR");
    for (size_t i = 0; i < list->n; i++)
        printf("%s%s\n", list->rows[i].text, json && i + 1 < list->n ? "," : "");
    if (json)
        puts("]");
    else
        print_counts(list);
}

static bool parse_last(const char *text, size_t *out)
{
    char *end = NULL;

    *out = SIZE_MAX;
    if (text == NULL)
        return true;
    *out = *text >= '0' && *text <= '9' ? (size_t)strtoull(text, &end, 10) : 0;
    return *out > 0 && *end == '\0';
}

static bool list_connect(struct list *list, struct err *e)
{
    if (!list->dlq.args->connect)
        return true;
    list->mappings = cli_mappings(list->dlq.config, "dlq", e);
    if (list->mappings == NULL)
        return false;
    list->mongo = mongo_new(list->dlq.config, e);
    return list->mongo != NULL && mongo_ping(list->mongo, e);
}

enum exit_code cmd_dlq_list(const struct args *args)
{
    struct list list = {.n = 0};
    enum exit_code code;
    struct err e;

    if (!parse_last(args->last, &list.last)) {
        fprintf(stderr, "idemsink: --last %s: a number above 0\n", args->last);
        return EXIT_BAD_USAGE;
    }
    if (args->not_stored && !args->connect) {
        fputs("idemsink: --not-stored: only MongoDB knows, so --connect must stand beside it\n",
              stderr);
        return EXIT_BAD_USAGE;
    }
    code = dlq_open(&list.dlq, args);
    if (code == EXIT_FINE) {
        (void)dlq_topic_is_read(&list.dlq); /* a warning: dead letters of it may be there still */
        if (list_connect(&list, &e) && dlq_survey(&list.dlq, &e) &&
            dlq_scan(&list.dlq, list_one, &list, &e))
            print_list(&list);
        else
            code = cli_fail(&e);
    }
    for (size_t i = 0; i < list.n; i++)
        mem_free(list.rows[i].text);
    mem_free(list.rows);
    mongo_free(list.mongo);
    if (list.dlq.config != NULL)
        cli_mappings_free(list.mappings, list.dlq.config->n_routes);
    dlq_close(&list.dlq);
    return code;
}
