/*
 * config_print.c - the effective configuration as TOML, without what must not be seen.
 */
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"
#include "core/config_secret.h"

/* --- values
 * -------------------------------------------------------------------------------------------------------------
 */

/* A basic string that is read back as it is: what looks like ${NAME} or $$ gets another dollar
 * sign. */
static void print_string(const char *text, struct buf *out)
{
    buf_add_char(out, '"');
    while (*text) {
        size_t n = strcspn(text, "$");

        buf_add_json(out, text, n);
        text += n;
        if (*text == '$') {
            buf_add_text(out, text[1] == '{' || text[1] == '$' ? "$$" : "$");
            text++;
        }
    }
    buf_add_char(out, '"');
}

static void print_list(const struct config_list *l, struct buf *out)
{
    buf_add_char(out, '[');
    for (size_t i = 0; i < l->n; i++) {
        buf_add_text(out, i ? ", " : "");
        print_string(l->items[i], out);
    }
    buf_add_char(out, ']');
}

static void print_secret(const struct config_key *k, const char *text, struct buf *out)
{
    struct buf shown = {0};
    size_t n = strlen(k->name);

    if (n > 4 && strcmp(k->name + n - 4, ".uri") == 0)
        config_redact_uri(text, &shown);
    else
        buf_add_text(&shown, *text ? "***" : "");
    print_string(buf_text(&shown), out);
    buf_clear(&shown);
}

/* "database." before a collection; the text was parted. */
static void print_database(const struct config_key *k, const void *base, struct buf *out)
{
    const struct config_route *r = base;
    const struct config_counter *c = base;
    const char *database = NULL;

    if (strcmp(k->name, "route.collection") == 0)
        database = r->database;
    else if (strcmp(k->name, "route.sequence.collection") == 0)
        database = r->sequence.database;
    else if (strcmp(k->name, "route.operation.ledger") == 0)
        database = r->operation.ledger_database;
    else if (strcmp(k->name, "route.lock.fence") == 0)
        database = r->lock.fence_database;
    else if (strcmp(k->name, "route.counter.collection") == 0)
        database = c->database;
    if (database)
        buf_printf(out, "%s.", database);
}

static void print_string_key(const struct config_key *k, const void *base, struct buf *out)
{
    const char *text = *(char *const *)((const char *)base + k->field);
    struct buf whole = {0};

    if (k->flags & CONFIG_SECRET) {
        print_secret(k, text, out);
        return;
    }
    print_database(k, base, &whole);
    buf_add_text(&whole, text);
    print_string(buf_text(&whole), out);
    buf_clear(&whole);
}

static void print_measure(const struct config_key *k, int64_t n, struct buf *out)
{
    buf_add_char(out, '"');
    if (k->type == CONFIG_DURATION)
        config_format_duration(n, out);
    else
        config_format_bytes(n, out);
    buf_add_char(out, '"');
}

static void print_value(const struct config_key *k, const void *base, struct buf *out)
{
    const void *field = (const char *)base + k->field;
    struct buf word = {0};

    switch (k->type) {
    case CONFIG_STRING:
        print_string_key(k, base, out);
        break;
    case CONFIG_BOOL:
        buf_add_text(out, *(const bool *)field ? "true" : "false");
        break;
    case CONFIG_INT:
        buf_printf(out, "%" PRId64, *(const int64_t *)field);
        break;
    case CONFIG_DURATION:
    case CONFIG_BYTES:
        print_measure(k, *(const int64_t *)field, out);
        break;
    case CONFIG_ENUM:
        config_choice_name(
            k->choices, k->flags & CONFIG_AS_BOOL ? (int)*(const bool *)field : *(const int *)field,
            &word);
        print_string(buf_text(&word), out);
        buf_clear(&word);
        break;
    case CONFIG_LIST:
        print_list(field, out);
        break;
    case CONFIG_PAIRS:
        break; /* print_pairs() */
    }
}

/* --- sections
 * --------------------------------------------------------------------------------------------------------------
 */

/* A constant is kept as JSON, whose strings and numbers are TOML's too, but for ${ and a leading @.
 */
static void print_constant(const char *json, struct buf *out)
{
    struct buf shown = {0};

    if (*json != '"') {
        if (*json == '@')
            print_string(json, out);
        else
            buf_add_text(out, json);
        return;
    }
    buf_add_json_shown(&shown, json, strlen(json)); /* jansson leaves DEL, which TOML refuses */
    buf_add_text(out, json[1] == '@' ? "\"@" : "\"");
    for (const char *at = shown.data + 1; *at; at++) {
        if (*at == '$' && (at[1] == '{' || at[1] == '$'))
            buf_add_char(out, '$');
        buf_add_char(out, *at);
    }
    buf_clear(&shown);
}

static void print_pairs(const struct config_key *k, const void *base, struct buf *out)
{
    const struct config_pairs *p = (const void *)((const char *)base + k->field);
    bool properties = strcmp(k->name, "kafka.properties") == 0;

    if (p->n > 0)
        buf_printf(out, "\n[%s]\n", k->name);
    for (size_t i = 0; i < p->n; i++) {
        buf_add_char(out, '"');
        buf_add_json(out, p->items[i].name, strlen(p->items[i].name));
        buf_add_text(out, "\" = ");
        if (properties && config_property_secret(p->items[i].name))
            buf_add_text(out, "\"***\"");
        else if (strcmp(k->name, "route.set") == 0 || strcmp(k->name, "route.counter.inc") == 0)
            print_constant(p->items[i].value, out);
        else
            print_string(p->items[i].value, out);
        buf_add_char(out, '\n');
    }
}

/* Keys without a meaning here would be refused when read back. */
static bool meaningless(const struct config *c, const struct config_key *k, const void *base)
{
    const struct config_invalidate *v = base;

    if (strcmp(k->name, "dead_letter.on_bad_record") == 0)
        return *c->dead_letter.topic != '\0';
    if (config_group_of(k) == GROUP_ROUTE && !config_effect_has_meaning(base, k->name))
        return true;
    if (strcmp(k->name, "route.dedup.fields") == 0)
        return ((const struct config_route *)base)->dedup.into_id;
    return config_group_of(k) == GROUP_INVALIDATE && !config_has_meaning(v->mode, k->name);
}

static void print_group(const struct config *c, enum config_group group, const void *base,
                        struct buf *out)
{
    const char *section = "", *name;
    size_t section_len = 0, len;

    for (size_t i = 0; i < config_keys_count; i++) {
        const struct config_key *k = &config_keys[i];

        if (config_group_of(k) != group || meaningless(c, k, base))
            continue;
        if (k->type == CONFIG_PAIRS) {
            print_pairs(k, base, out);
            continue;
        }
        name = strrchr(k->name, '.') + 1;
        len = (size_t)(name - k->name) - 1;
        if (len != section_len || memcmp(section, k->name, len) != 0) {
            bool list = strncmp(k->name, "route", len) == 0 || group == GROUP_INVALIDATE ||
                        group == GROUP_COUNTER;

            buf_printf(out, list ? "\n[[%.*s]]\n" : "\n[%.*s]\n", (int)len, k->name);
            section = k->name;
            section_len = len;
        }
        buf_printf(out, "%s = ", name);
        print_value(k, base, out);
        buf_add_char(out, '\n');
    }
}

void config_print(const struct config *c, struct buf *out)
{
    size_t start = out->len;

    print_group(c, GROUP_MAIN, c, out);
    for (size_t i = 0; i < c->n_routes; i++) {
        print_group(c, GROUP_ROUTE, &c->routes[i], out);
        for (size_t j = 0; j < c->routes[i].n_counters; j++)
            print_group(c, GROUP_COUNTER, &c->routes[i].counters[j], out);
        for (size_t j = 0; j < c->routes[i].n_invalidate; j++)
            print_group(c, GROUP_INVALIDATE, &c->routes[i].invalidate[j], out);
    }
    if (out->len > start && out->data[start] == '\n') { /* no empty line in front of the first */
        memmove(out->data + start, out->data + start + 1, out->len - start);
        out->len--;
    }
}
