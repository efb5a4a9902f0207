#include "core/template.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "core/payload.h"
#include "core/pick.h"
#include "core/types.h"
#include "core/values.h"

/* A literal, or a placeholder. */
struct piece {
    char *text; /* literal; NULL: pick */
    size_t len;
    struct pick pick;
    bool quoted; /* JSON: between quotes */
};

struct template
{
    enum template_kind kind;
    struct piece *pieces;
    size_t n;
    bool needs_payload;
};

/* --- compiling --- */

struct parser {
    struct template *t;
    const struct template_names *names;
    const char *whole, *at;
    struct buf literal; /* not yet a piece */
    struct buf sample;  /* JSON: the text with every placeholder filled */
    bool quoted;
    struct err *e;
};

static struct piece *add_piece(struct template *t)
{
    t->pieces = mem_grow(t->pieces, t->n + 1, sizeof(*t->pieces));
    t->pieces[t->n] = (struct piece){0};
    return &t->pieces[t->n++];
}

static void end_literal(struct parser *p)
{
    if (p->literal.len == 0)
        return;

    struct piece *piece = add_piece(p->t);
    piece->text = mem_text_n(p->literal.data, p->literal.len);
    piece->len = p->literal.len;
    buf_reset(&p->literal);
}

/* An array may stand wherever any value may, and nowhere else: not as a name, not as a part of a
 * number. */
static const char *sample_of(const struct parser *p)
{
    return p->quoted ? "x" : "[]";
}

/* @db and @collection never change: they are literals. */
static void add_name(struct parser *p, const char *name)
{
    bool json = p->t->kind == TEMPLATE_JSON;

    if (json && !p->quoted)
        buf_add_char(&p->literal, '"');
    if (json)
        template_add_json(&p->literal, slice_text(name));
    else
        buf_add_text(&p->literal, name);
    if (json && !p->quoted)
        buf_add_char(&p->literal, '"');
    buf_add_text(&p->sample, sample_of(p));
}

/* at is behind "{". */
static bool placeholder(struct parser *p)
{
    size_t len = strcspn(p->at, "}");
    char *source;
    bool ok = true;

    if (p->at[len] != '}')
        return err_set(p->e, ERR_CONFIG, 0, "template \"%s\": \"{\" without \"}\"", p->whole);
    source = mem_text_n(p->at, len);
    p->at += len + 1;
    if (strcmp(source, "@db") == 0) {
        add_name(p, p->names->database);
    } else if (strcmp(source, "@collection") == 0) {
        add_name(p, p->names->collection);
    } else {
        end_literal(p);
        struct piece *piece = add_piece(p->t);

        piece->quoted = p->quoted;
        buf_add_text(&p->sample, sample_of(p));
        ok = pick_init(&piece->pick, source, p->e) || err_wrap(p->e, "template");
        p->t->needs_payload = p->t->needs_payload || piece->pick.kind == PICK_VALUE;
    }
    mem_free(source);
    return ok;
}

static bool parse_text(struct parser *p)
{
    while (*p->at != '\0') {
        char c = *p->at++;

        if ((c == '{' || c == '}') && *p->at == c) {
            p->at++;
            buf_add_char(&p->literal, c);
        } else if (c == '}') {
            return err_set(p->e, ERR_CONFIG, 0,
                           "template \"%s\": \"}\" without \"{\" (write \"}}\" for a brace)",
                           p->whole);
        } else if (c != '{') {
            buf_add_char(&p->literal, c);
        } else if (!placeholder(p)) {
            return false;
        }
    }
    return true;
}

static bool begins_source(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '@';
}

static void add_json_char(struct parser *p, char c)
{
    buf_add_char(&p->literal, c);
    buf_add_char(&p->sample, c);
}

static bool parse_json(struct parser *p)
{
    static const char stamp[] = TEMPLATE_TIMESTAMP;

    while (*p->at != '\0') {
        char c = *p->at++;

        if (c == '{' && begins_source(*p->at)) {
            if (!placeholder(p))
                return false;
        } else if (c == '\\' && p->quoted && *p->at != '\0') {
            add_json_char(p, c);
            add_json_char(p, *p->at++);
        } else if (c == '@' && !p->quoted && strncmp(p->at - 1, stamp, strlen(stamp)) == 0) {
            buf_add_text(&p->literal, stamp);
            buf_add_text(&p->sample, sample_of(p));
            p->at += strlen(stamp) - 1;
        } else {
            p->quoted = p->quoted != (c == '"');
            add_json_char(p, c);
        }
    }
    return true;
}

/* The text of a JSON template must be JSON, and not null: receivers of cache messages choke on
 * that. */
static bool sample_is_json(struct parser *p)
{
    json_error_t error;
    json_t *json = json_loadb(buf_text(&p->sample), p->sample.len, JSON_DECODE_ANY, &error);
    bool ok = json != NULL && !json_is_null(json);

    json_decref(json);
    if (!ok)
        return err_set(p->e, ERR_CONFIG, 0, "template \"%s\": %s", p->whole,
                       json == NULL ? error.text : "a payload of null says nothing");
    return true;
}

struct template *template_new(enum template_kind kind, const char *text,
                              const struct template_names *names, struct err *e)
{
    struct template *t = mem_new(sizeof(*t));
    struct parser p = {.t = t, .names = names, .whole = text, .at = text, .e = e};
    bool ok;

    t->kind = kind;
    ok = kind == TEMPLATE_JSON ? parse_json(&p) && sample_is_json(&p) : parse_text(&p);
    end_literal(&p);
    if (ok && t->n == 0)
        ok = err_set(e, ERR_CONFIG, 0, "template: the text is empty");
    buf_clear(&p.literal);
    buf_clear(&p.sample);
    if (ok)
        return t;
    template_free(t);
    return NULL;
}

void template_free(struct template *t)
{
    if (t == NULL)
        return;
    for (size_t i = 0; i < t->n; i++) {
        mem_free(t->pieces[i].text);
        pick_clear(&t->pieces[i].pick);
    }
    mem_free(t->pieces);
    mem_free(t);
}

bool template_needs_payload(const struct template *t)
{
    return t->needs_payload;
}

/* --- filling --- */

void template_add_json(struct buf *out, struct slice text)
{
    static const char stamp[] = TEMPLATE_TIMESTAMP;
    const char *at = text.ptr, *end = at + text.len, *hit;

    while ((hit = memmem(at, (size_t)(end - at), stamp, strlen(stamp))) != NULL) {
        buf_add_json(out, at, (size_t)(hit - at));
        buf_add_text(
            out, "\\u0040"); /* the same character for the reader, another text for the sender */
        at = hit + 1;
    }
    buf_add_json(out, at, (size_t)(end - at));
}

static bool is_wild(char c)
{
    return c == '*' || c == '?' || c == '[' || c == ']' || c == '\\';
}

static bool add_string(const struct template *t, const struct piece *piece, struct slice s,
                       struct buf *out)
{
    const char *text = s.ptr;

    if (t->kind == TEMPLATE_JSON) {
        if (!payload_is_utf8(s))
            return false;
        if (!piece->quoted)
            buf_add_char(out, '"');
        template_add_json(out, s);
        if (!piece->quoted)
            buf_add_char(out, '"');
        return true;
    }
    for (size_t i = 0; i < s.len; i++) {
        if (text[i] == '\0' || (t->kind == TEMPLATE_GLOB && is_wild(text[i])))
            return false;
    }
    buf_add(out, text, s.len);
    return true;
}

static void add_real(double d, struct buf *out)
{
    char text[TYPES_DOUBLE_TEXT];

    types_double_text(d, text);
    buf_add_text(out, text);
}

static void add_uuid(const uint8_t *bytes, struct buf *out)
{
    for (size_t i = 0; i < 16; i++)
        buf_printf(out, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", bytes[i]);
}

/* A value that JSON has no word for, as a template shows it; false: as nothing. *number: it needs
 * no quotes in JSON. */
static bool add_value(const bson_value_t *v, struct buf *out, bool *number)
{
    char text[BSON_DECIMAL128_STRING];

    *number = true;
    switch (v->value_type) {
    case BSON_TYPE_INT32:
        buf_printf(out, "%" PRId32, v->value.v_int32);
        return true;
    case BSON_TYPE_INT64:
        buf_printf(out, "%" PRId64, v->value.v_int64);
        return true;
    case BSON_TYPE_DOUBLE: /* beside the tree because it is infinite or none, or canonical */
        if (!isfinite(v->value.v_double))
            return false;
        add_real(v->value.v_double, out);
        return true;
    case BSON_TYPE_DECIMAL128:
        if (!types_decimal_is_finite(&v->value.v_decimal128))
            return false;
        bson_decimal128_to_string(&v->value.v_decimal128, text);
        buf_add_text(out, text);
        return true;
    case BSON_TYPE_DATE_TIME:
        buf_printf(out, "%" PRId64, v->value.v_datetime);
        return true;
    case BSON_TYPE_OID:
        *number = false;
        bson_oid_to_string(&v->value.v_oid, text);
        buf_add_text(out, text);
        return true;
    case BSON_TYPE_BINARY:
        *number = false;
        if (v->value.v_binary.subtype != BSON_SUBTYPE_UUID || v->value.v_binary.data_len != 16)
            return false;
        add_uuid(v->value.v_binary.data, out);
        return true;
    default:
        return false;
    }
}

static bool add_encoded(const struct template *t, const struct piece *piece, const struct record *r,
                        const struct value *value, struct buf *out)
{
    bson_value_t scalar = {0};
    struct buf text = {0};
    bool number,
        ok = values_scalar(r->values, value, &scalar) && add_value(&scalar, &text, &number);

    if (ok && number)
        buf_add(out, text.data, text.len);
    else if (ok)
        ok = add_string(t, piece, slice_of(text.data, text.len), out);
    buf_clear(&text);
    return ok;
}

static bool add_node(const struct template *t, const struct piece *piece, const json_t *node,
                     struct buf *out)
{
    switch (json_typeof(node)) {
    case JSON_STRING:
        return add_string(t, piece, slice_of(json_string_value(node), json_string_length(node)),
                          out);
    case JSON_INTEGER:
        buf_printf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(node));
        return true;
    case JSON_REAL:
        add_real(json_real_value(node), out);
        return true;
    case JSON_TRUE:
    case JSON_FALSE:
        buf_add_text(out, json_is_true(node) ? "true" : "false");
        return true;
    default:
        return false;
    }
}

static bool add_pick(const struct template *t, const struct piece *piece, const struct record *r,
                     struct buf *out)
{
    const struct value *value;
    struct slice bytes;
    int64_t number;
    json_t *node;

    if (piece->pick.kind == PICK_VALUE) {
        if (path_get(&piece->pick.path, r->json, &node) != PATH_FOUND)
            return false;
        value = values_get(r->values, node);
        return value != NULL ? add_encoded(t, piece, r, value, out) : add_node(t, piece, node, out);
    }
    if (pick_bytes(&piece->pick, r, &bytes))
        return add_string(t, piece, bytes, out);
    if (!pick_number(&piece->pick, r, &number))
        return false;
    buf_printf(out, "%lld", (long long)number);
    return true;
}

bool template_fill(const struct template *t, const struct record *r, struct buf *out)
{
    for (size_t i = 0; i < t->n; i++) {
        const struct piece *piece = &t->pieces[i];

        if (piece->text != NULL)
            buf_add(out, piece->text, piece->len);
        else if (!add_pick(t, piece, r, out))
            return false;
    }
    return true;
}

char *template_unfilled(const struct template *t, const struct record *r)
{
    char *source = NULL;

    for (size_t i = 0; i < t->n && source == NULL; i++) {
        const struct piece *piece = &t->pieces[i];
        struct buf b = {0};

        if (piece->text == NULL && !add_pick(t, piece, r, &b))
            source = pick_text(&piece->pick);
        buf_clear(&b);
    }
    return source;
}
