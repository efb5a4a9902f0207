/*
 * config_value.c - one value: from TOML (or the table's default) into its field, with its bounds.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/config_private.h"

/* --- texts of numbers
 * ------------------------------------------------------------------------------------------ */

struct unit {
    const char *name;
    int64_t factor;
};
/* Largest first: printing takes the first that divides. */
static const struct unit duration_units[] = {
    {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}, {NULL, 0},
};
static const struct unit byte_units[] = {
    {"TiB", INT64_C(1) << 40},
    {"GiB", INT64_C(1) << 30},
    {"MiB", INT64_C(1) << 20},
    {"KiB", INT64_C(1) << 10},
    {"TB", INT64_C(1000000000000)},
    {"GB", 1000000000},
    {"MB", 1000000},
    {"kB", 1000},
    {"B", 1},
    {NULL, 0},
};

/* Digits only. Returns what follows them; NULL: none, or more than int64. */
static const char *parse_digits(const char *text, int64_t *out)
{
    int64_t n = 0;
    const char *at = text;

    for (; *at >= '0' && *at <= '9'; at++) {
        int digit = *at - '0';

        if (n > (INT64_MAX - digit) / 10)
            return NULL;
        n = n * 10 + digit;
    }
    *out = n;
    return at > text ? at : NULL;
}

static bool parse_with_unit(const char *text, const struct unit *units, int64_t *out)
{
    int64_t n;
    const char *rest = parse_digits(text, &n);

    if (!rest)
        return false;
    for (; units->name; units++)
        if (strcmp(rest, units->name) == 0) {
            if (n > INT64_MAX / units->factor)
                return false;
            *out = n * units->factor;
            return true;
        }
    return false;
}

static void format_with_unit(int64_t n, const struct unit *units, struct buf *out)
{
    if (n == 0)
        while (units[1].name && units->factor != 1000 && units->factor != 1)
            units++;
    while (units[1].name && n % units->factor != 0)
        units++;
    buf_printf(out, "%" PRId64 "%s", n / units->factor, units->name);
}

bool config_parse_duration(const char *text, int64_t *ms)
{
    return parse_with_unit(text, duration_units, ms);
}

bool config_parse_bytes(const char *text, int64_t *bytes)
{
    return parse_with_unit(text, byte_units, bytes);
}

void config_format_duration(int64_t ms, struct buf *out)
{
    format_with_unit(ms, duration_units, out);
}

void config_format_bytes(int64_t bytes, struct buf *out)
{
    format_with_unit(bytes, byte_units, out);
}

static bool parse_int(const char *text, int64_t *out)
{
    bool minus = text[0] == '-';
    const char *rest = parse_digits(text + minus, out);

    if (!rest || *rest)
        return false;
    if (minus)
        *out = -*out;
    return true;
}

/* --- errors
 * ------------------------------------------------------------------------------------------------------
 */

/* A text of the operator's in an error: short, one line, in quotes. */
static void show_text(const char *text, struct buf *out)
{
    size_t len = strlen(text), shown = bytes_cut_utf8(text, len, len > 60 ? 57 : len);

    buf_add_char(out, '"');
    buf_add_json(out, text, shown);
    buf_add_text(out, shown < len ? "...\"" : "\"");
}

static bool fail_text(struct config_parse_state *s, const struct config_key *k, const char *text,
                      const char *what)
{
    struct buf shown = {0};

    if (k->flags & CONFIG_SECRET)
        return config_fail(s, "the value %s", what);
    show_text(text, &shown);
    config_fail(s, "%s %s", buf_text(&shown), what);
    buf_clear(&shown);
    return false;
}

void config_add_kind(const json_t *wrapped, bool secret, struct buf *out)
{
    const json_t *v = json_object_get(wrapped, "v");
    char number[32];

    buf_add_text(out, config_kind_of(wrapped));
    if (secret || json_is_object(v) || json_is_array(v))
        return;
    buf_add_text(out, ": ");
    if (json_is_string(v)) /* dates, inf and nan are kept as texts */
        show_text(json_string_value(v), out);
    else if (json_is_boolean(v))
        buf_add_text(out, json_is_true(v) ? "true" : "false");
    else if (json_is_integer(v))
        buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(v));
    else {
        (void)snprintf(number, sizeof number, "%.17g", json_real_value(v));
        buf_add_text(out, number);
    }
}

static bool fail_kind(struct config_parse_state *s, const struct config_key *k, const char *wanted,
                      const json_t *wrapped)
{
    struct buf kind = {0};

    config_add_kind(wrapped, k->flags & CONFIG_SECRET, &kind);
    config_fail(s, "has to be %s, not %s", wanted, buf_text(&kind));
    buf_clear(&kind);
    return false;
}

static void format_number(const struct config_key *k, int64_t n, struct buf *out)
{
    if (k->type == CONFIG_DURATION)
        config_format_duration(n, out);
    else if (k->type == CONFIG_BYTES)
        config_format_bytes(n, out);
    else
        buf_printf(out, "%" PRId64, n);
}

static bool check_bounds(struct config_parse_state *s, const struct config_key *k, int64_t n)
{
    struct buf value = {0}, bound = {0};
    bool fine = n >= k->min && n <= k->max;

    if (!fine) {
        format_number(k, n, &value);
        format_number(k, n < k->min ? k->min : k->max, &bound);
        config_fail(s, "%s is %s %s", buf_text(&value),
                    n < k->min ? "below the minimum" : "above the maximum", buf_text(&bound));
    }
    buf_clear(&value);
    buf_clear(&bound);
    return fine;
}

/* --- into the struct
 * -----------------------------------------------------------------------------------------------
 */

static void *field_of(const struct config_key *k, void *base)
{
    return (char *)base + k->field;
}

static void set_text(char **field, const char *text)
{
    mem_free(*field);
    *field = mem_text(text);
}

static void set_choice(const struct config_key *k, void *base, int index)
{
    if (k->flags & CONFIG_AS_BOOL)
        *(bool *)field_of(k, base) = index == 1;
    else
        *(int *)field_of(k, base) = index;
}

static void clear_list(struct config_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->items[i]);
    mem_free(l->items);
    *l = (struct config_list){0};
}

static void clear_pairs(struct config_pairs *p)
{
    for (size_t i = 0; i < p->n; i++) {
        mem_free(p->items[i].name);
        mem_free(p->items[i].value);
    }
    mem_free(p->items);
    *p = (struct config_pairs){0};
}

void config_clear_value(const struct config_key *k, void *base)
{
    void *field = field_of(k, base);

    if (k->type == CONFIG_STRING) {
        mem_free(*(char **)field);
        *(char **)field = NULL;
    } else if (k->type == CONFIG_LIST)
        clear_list(field);
    else if (k->type == CONFIG_PAIRS)
        clear_pairs(field);
}

void config_set_default(const struct config_key *k, void *base)
{
    const char *text = k->fallback;
    void *field = field_of(k, base);
    bool understood = true;

    switch (k->type) {
    case CONFIG_STRING:
        *(char **)field = mem_text(text ? text : "");
        break;
    case CONFIG_BOOL:
        *(bool *)field = text && strcmp(text, "true") == 0;
        break;
    case CONFIG_INT:
        understood = text && parse_int(text, field);
        break;
    case CONFIG_DURATION:
        understood = text && config_parse_duration(text, field);
        break;
    case CONFIG_BYTES:
        understood = text && config_parse_bytes(text, field);
        break;
    case CONFIG_ENUM:
        set_choice(k, base, text ? config_choice_of(k->choices, text) : 0);
        break;
    case CONFIG_LIST:
    case CONFIG_PAIRS:
        break; /* empty, as the struct is */
    }
    MUST(understood); /* a row of the table */
}

/* A number or truth value may also come as text: that is how it comes from the environment. */
static bool set_int(struct config_parse_state *s, const struct config_key *k, void *base,
                    const json_t *wrapped)
{
    const json_t *v = json_object_get(wrapped, "v");
    int64_t n;

    if (json_is_integer(v))
        n = json_integer_value(v);
    else if (!json_is_string(v) || json_object_get(wrapped, "t"))
        return fail_kind(s, k, "an integer", wrapped);
    else if (!parse_int(json_string_value(v), &n))
        return fail_text(s, k, json_string_value(v), "is not an integer");
    if (!check_bounds(s, k, n))
        return false;
    *(int64_t *)field_of(k, base) = n;
    return true;
}

static bool set_bool(struct config_parse_state *s, const struct config_key *k, void *base,
                     const json_t *wrapped)
{
    const json_t *v = json_object_get(wrapped, "v");
    bool value = json_is_true(v);

    if (json_is_string(v) && !json_object_get(wrapped, "t")) {
        value = strcmp(json_string_value(v), "true") == 0;
        if (!value && strcmp(json_string_value(v), "false") != 0)
            return fail_text(s, k, json_string_value(v), "is neither true nor false");
    } else if (!json_is_boolean(v))
        return fail_kind(s, k, "true or false", wrapped);
    *(bool *)field_of(k, base) = value;
    return true;
}

static bool set_measure(struct config_parse_state *s, const struct config_key *k, void *base,
                        const char *text)
{
    int64_t n = 0;

    if (k->type == CONFIG_DURATION && !config_parse_duration(text, &n))
        return fail_text(s, k, text, "is not a duration: digits and ms, s, m or h, like \"5s\"");
    if (k->type == CONFIG_BYTES && !config_parse_bytes(text, &n))
        return fail_text(s, k, text,
                         "is not a size: digits and B, kB, KiB, MB, MiB, GB, GiB, like \"64MiB\"");
    if (!check_bounds(s, k, n))
        return false;
    *(int64_t *)field_of(k, base) = n;
    return true;
}

static bool set_enum(struct config_parse_state *s, const struct config_key *k, void *base,
                     const char *word)
{
    struct buf what = {0};
    int index = config_choice_of(k->choices, word);
    const char *at = k->choices;

    if (index >= 0) {
        set_choice(k, base, index);
        return true;
    }
    buf_add_text(&what, "is not known; possible: ");
    for (const char *start = at;; at += strcspn(at, "|") + 1) {
        size_t len = strcspn(at, "|");

        buf_printf(&what, "%s\"%.*s\"", at > start ? ", " : "", (int)len, at);
        if (at[len] == '\0')
            break;
    }
    config_add_nearest_choice(k->choices, word, &what);
    fail_text(s, k, word, buf_text(&what));
    buf_clear(&what);
    return false;
}

static bool set_list(struct config_parse_state *s, const struct config_key *k, void *base,
                     const json_t *wrapped)
{
    const json_t *v = json_object_get(wrapped, "v");
    struct config_list *list = field_of(k, base);
    size_t n = json_array_size(v), mark;

    if (!json_is_array(v))
        return fail_kind(s, k, "a list of strings", wrapped);
    if ((int64_t)n < k->min)
        return config_fail(s, "is empty, and needs at least %" PRId64, k->min);
    if ((int64_t)n > k->max)
        return config_fail(s, "has %zu entries, and may have %" PRId64, n, k->max);
    list->items = mem_array(n ? n : 1, sizeof list->items[0]);
    for (size_t i = 0; i < n; i++) {
        const json_t *item = json_array_get(v, i), *text = json_object_get(item, "v");

        mark = config_enter_index(s, i);
        if (!json_is_string(text) || json_object_get(item, "t"))
            return fail_kind(s, k, "a list of strings", item);
        if (json_string_length(text) == 0)
            return config_fail(s, "an empty entry");
        for (size_t j = 0; j < i; j++)
            if (strcmp(list->items[j], json_string_value(text)) == 0)
                return fail_text(s, k, json_string_value(text), "is there twice");
        list->items[list->n++] = mem_text(json_string_value(text));
        config_leave(s, mark);
    }
    return true;
}

bool config_set_value(struct config_parse_state *s, const struct config_key *k, void *base,
                      const json_t *wrapped)
{
    const json_t *v = json_object_get(wrapped, "v");
    const char *wanted = k->type == CONFIG_DURATION ? "a duration in quotes, like \"5s\""
                         : k->type == CONFIG_BYTES  ? "a size in quotes, like \"64MiB\""
                                                    : "a string";

    if (k->type == CONFIG_BOOL)
        return set_bool(s, k, base, wrapped);
    if (k->type == CONFIG_INT)
        return set_int(s, k, base, wrapped);
    if (k->type == CONFIG_LIST)
        return set_list(s, k, base, wrapped);
    if (k->type == CONFIG_PAIRS)
        return config_read_pairs(s, k, field_of(k, base), wrapped);
    if (!json_is_string(v) || json_object_get(wrapped, "t"))
        return fail_kind(s, k, wanted, wrapped);
    if (k->type == CONFIG_ENUM)
        return set_enum(s, k, base, json_string_value(v));
    if (k->type != CONFIG_STRING)
        return set_measure(s, k, base, json_string_value(v));
    if ((k->flags & CONFIG_REQUIRED) && json_string_length(v) == 0)
        return config_fail(s, "is empty");
    set_text(field_of(k, base), json_string_value(v));
    return true;
}
