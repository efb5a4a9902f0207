/*
 * `idemsink dlq show`: one dead letter, the record in it, and what would become of that now.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/dlq.h"
#include "cli/explain.h"
#include "io/mongo.h"

struct show {
    struct dlq dlq;
    struct record *r;
    struct letter l;
    enum dlq_state state;
};

/* --- the letter --- */

static void row(const char *name, struct slice s)
{
    struct buf text = {0};

    if (s.ptr == NULL)
        buf_add_text(&text, "(null)");
    else
        dlq_add_text(&text, s);
    printf("%-13s %s\n", name, buf_text(&text));
    buf_clear(&text);
}

static void print_letter(const struct show *s)
{
    const struct letter *l = &s->l;
    struct buf origin = {0};
    enum reason reason;
    char at[32];

    printf("%-13s %s partition %d offset %" PRId64 "\n", "dead letter",
           s->dlq.config->dead_letter.topic, (int)s->r->partition, s->r->offset);
    if (l->kind != LETTER_OURS) {
        printf("%-13s %s: %s%s%s\n", "state", dlq_state_name(s->state), dlq_state_help(s->state),
               l->kind == LETTER_BROKEN ? ": " : "", l->kind == LETTER_BROKEN ? l->fault : "");
        return;
    }
    if (s->state == DLQ_INCOMPLETE) /* "now" says more */
        printf("%-13s %s\n", "state", dlq_state_name(s->state));
    else if (s->state != DLQ_OPEN)
        printf("%-13s %s: %s\n", "state", dlq_state_name(s->state), dlq_state_help(s->state));
    dlq_add_origin(&origin, l);
    printf("%-13s %s\n", "record", buf_text(&origin));
    buf_clear(&origin);
    row("reason", l->reason);
    row("error", l->error);
    char *name = mem_text_n(l->reason.ptr, l->reason.len);
    if (reason_parse(name, &reason))
        printf("%-13s %s\n", "meaning", reason_help(reason));
    mem_free(name);
    clock_format(l->time_ms, at);
    printf("%-13s %s, after %" PRIu32 " attempts\n", "given up", at, l->attempts);
    row("group", l->group);
    row("version", l->version);
}

/* --- the record in it --- */

static bool ours(const struct record_header *h)
{
    static const char prefix[] = "idemsink.";

    return h->name.len >= sizeof prefix - 1 &&
           slice_equal(slice_of(h->name.ptr, sizeof prefix - 1), slice_text(prefix));
}

static void print_record(const struct show *s)
{
    const struct record *r = s->r;
    char at[32];

    if (s->l.timestamp_type != RECORD_TIMESTAMP_NONE) {
        clock_format(s->l.timestamp_ms, at);
        printf("%-13s %s\n", "timestamp", at);
    }
    for (size_t i = 0; i < r->n_headers; i++) {
        struct buf text = {0};

        if (s->l.kind == LETTER_OURS && ours(&r->headers[i]))
            continue;
        dlq_add_text(&text, r->headers[i].name);
        buf_add_text(&text, r->headers[i].value.ptr != NULL ? " = " : " (null)");
        dlq_add_text(&text, r->headers[i].value);
        printf("%-13s %s\n", "header", buf_text(&text));
        buf_clear(&text);
    }
    row("key", r->key);
    if (r->value.ptr == NULL) {
        printf("%-13s %s\n", "value",
               s->l.value_dropped ? "(not here: it was too large for the topic)" : "(null)");
        return;
    }
    printf("%-13s %zu bytes\n", "value", r->value.len);
    dlq_print_payload(r->value);
}

static void print_json(const struct show *s)
{
    const struct record *r = s->r;
    struct buf out = {0};
    bool first = true;

    buf_add_char(&out, '{');
    dlq_add_members(&out, r, &s->l, s->state);
    if (s->l.timestamp_type != RECORD_TIMESTAMP_NONE)
        buf_printf(&out, ",\"timestamp_ms\":%" PRId64, s->l.timestamp_ms);
    buf_add_text(&out, ",\"headers\":[");
    for (size_t i = 0; i < r->n_headers; i++) {
        if (s->l.kind == LETTER_OURS && ours(&r->headers[i]))
            continue;
        buf_add_text(&out, first ? "[" : ",[");
        first = false;
        dlq_add_json(&out, r->headers[i].name);
        buf_add_char(&out, ',');
        dlq_add_json(&out, r->headers[i].value);
        buf_add_char(&out, ']');
    }
    buf_add_text(&out, "],\"key\":");
    dlq_add_json(&out, r->key);
    buf_add_text(&out, ",\"value\":");
    dlq_add_json(&out, r->value);
    (void)fwrite(out.data, 1, out.len, stdout);
    buf_clear(&out);
}

/* --- what would become of it now --- */

static enum exit_code explain_now(struct show *s, struct sheet *sheet)
{
    const struct config *c = s->dlq.config;
    char *instance_id = cli_instance_id(c);
    struct err e;
    struct mapping **mappings = cli_mappings(c, instance_id, &e);
    struct mongo *mongo = NULL;
    struct record *again = NULL;
    enum exit_code code = EXIT_FINE;

    if (mappings == NULL || (s->dlq.args->connect && (mongo = mongo_new(c, &e)) == NULL) ||
        (again = dlq_restore(&s->dlq, s->r, &s->l, &e)) == NULL) {
        if (mappings != NULL && e.kind == ERR_INPUT)
            sheet_add(sheet, "outcome", e.text, NULL);
        else
            code = cli_fail(&e);
    } else {
        struct explain_in in = {.config = c,
                                .route = &c->routes[again->route],
                                .mapping = mappings[again->route],
                                .mongo = mongo};

        code = explain_rows(&in, again, sheet);
        if (code == EXIT_FOUND) /* that it is one still is what was asked */
            code = EXIT_FINE;
    }
    record_free(again);
    mongo_free(mongo);
    cli_mappings_free(mappings, c->n_routes);
    mem_free(instance_id);
    return code;
}

static bool can_be_explained(const struct show *s)
{
    return s->state <= DLQ_INCOMPLETE;
}

static enum exit_code print_all(struct show *s)
{
    struct sheet sheet = {0};
    enum exit_code code;

    s->state = dlq_state(&s->dlq, s->r, &s->l);
    code = can_be_explained(s) ? explain_now(s, &sheet) : EXIT_FINE;
    if (s->dlq.args->json) {
        print_json(s);
        if (can_be_explained(s)) {
            fputs(",\"now\":", stdout);
            sheet_print(&sheet, true, stdout);
        }
        puts("}");
    } else {
        print_letter(s);
        print_record(s);
        if (can_be_explained(s)) {
            puts("\nnow:");
            sheet_print(&sheet, false, stdout);
        }
    }
    sheet_clear(&sheet);
    return code;
}

static enum exit_code print_raw(const struct show *s)
{
    if (s->r->value.ptr == NULL) {
        fprintf(stderr, "idemsink: %d:%" PRId64 " has no value%s\n", (int)s->r->partition,
                s->r->offset,
                s->l.value_dropped ? ": it was too large for the dead-letter topic" : "");
        return EXIT_FOUND;
    }
    (void)fwrite(s->r->value.ptr, 1, s->r->value.len, stdout);
    return EXIT_FINE;
}

enum exit_code cmd_dlq_show(const struct args *args)
{
    struct show s = {.r = NULL};
    enum exit_code code;
    struct err e;

    if (args->n_places != 1) {
        fprintf(stderr, "idemsink: which one? --offset PARTITION:OFFSET, once, as dlq list shows "
                        "it\n");
        return EXIT_BAD_USAGE;
    }
    code = dlq_open(&s.dlq, args);
    if (code == EXIT_FINE) {
        s.r = dlq_read(&s.dlq, &s.dlq.places[0], &e);
        if (s.r == NULL) {
            code = cli_fail(&e);
            if (e.kind == ERR_INPUT)
                code = EXIT_FOUND;
        } else {
            letter_read(s.r, &s.l);
            if (args->raw)
                code = print_raw(&s);
            else
                code = dlq_survey(&s.dlq, &e) ? print_all(&s) : cli_fail(&e);
        }
    }
    record_free(s.r);
    dlq_close(&s.dlq);
    return code;
}
