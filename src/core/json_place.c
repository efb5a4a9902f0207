#include "core/json_place.h"

#include <bson/bson.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "core/payload.h"

enum { LEVELS = 2048 }; /* jansson's JSON_PARSER_MAX_DEPTH */

/* The way from the top to where the walk is. */
struct level {
    const struct level *up;
    struct slice name; /* absent: an element of an array */
    size_t index;
};

struct walk {
    const char *text;
    size_t len, at;
    unsigned levels;         /* more are a fault */
    struct buf name;         /* scratch: the text that was read last, escapes resolved */
    const struct path *path; /* NULL: looks for faults only */
    size_t matched;          /* how many names of it were found */
    const size_t *wanted;    /* the byte of a value to find; NULL: none */
    bool found;
    struct json_place *place; /* of the fault, or of the innermost value found */
};

void json_place_clear(struct json_place *p)
{
    buf_clear(&p->path);
    *p = (struct json_place){0};
}

/* --- places --- */

static bool is_plain(struct slice name)
{
    const char *text = name.ptr;

    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)text[i] <= ' ' || strchr(".[]\"\\", text[i]) != NULL)
            return false;
    return name.len > 0;
}

static void print_path(const struct level *level, struct buf *out)
{
    if (level == NULL)
        return;
    print_path(level->up, out);
    if (level->name.ptr == NULL) {
        buf_printf(out, "[%zu]", level->index);
    } else if (is_plain(level->name)) {
        if (out->len > 0)
            buf_add_char(out, '.');
        buf_add(out, level->name.ptr, level->name.len);
    } else {
        buf_add_text(out, "[\"");
        buf_add_json(out, level->name.ptr, level->name.len);
        buf_add_text(out, "\"]");
    }
}

static void place_at(struct walk *w, size_t byte, const struct level *level, const char *what)
{
    struct json_place *p = w->place;
    size_t line_start = 0;

    json_place_clear(p);
    p->byte = byte;
    p->what = what;
    p->line = 1;
    for (size_t i = 0; i < byte && i < w->len; i++)
        if (w->text[i] == '\n') {
            p->line++;
            line_start = i + 1;
        }
    p->column = byte - line_start + 1;
    print_path(level, &p->path);
}

static bool fault(struct walk *w, size_t byte, const struct level *level, const char *what)
{
    place_at(w, byte, level, byte >= w->len ? "the text ends too early" : what);
    return false;
}

void json_place_print(const struct json_place *p, struct buf *out)
{
    buf_printf(out, "byte %zu", p->byte);
    if (p->line > 0)
        buf_printf(out, " (line %zu, column %zu)", p->line, p->column);
    if (p->path.len > 0)
        buf_printf(out, ", at %s", p->path.data);
    if (p->what)
        buf_printf(out, ": %s", p->what);
    if (p->has_first)
        buf_printf(out, "; the first one is at byte %zu", p->first);
}

/* --- the walk --- */

static char peek(const struct walk *w)
{
    if (w->at < w->len)
        return w->text[w->at];
    return '\0';
}

static void skip_space(struct walk *w)
{
    while (w->at < w->len && strchr(" \t\r\n", w->text[w->at]) != NULL && w->text[w->at] != '\0')
        w->at++;
}

/* jansson looks at the bytes before it looks at the token. */
static bool unexpected(struct walk *w, const struct level *level, const char *what)
{
    size_t n = w->len - w->at < 4 ? w->len - w->at : 4;
    bool whole = (unsigned char)peek(w) < 0x80;

    for (size_t i = 2; i <= n && !whole; i++)
        whole = payload_is_utf8(slice_of(w->text + w->at, i));
    return fault(w, w->at, level, whole ? what : "no UTF-8");
}

static bool hex4(const char *s, size_t left, unsigned *out)
{
    *out = 0;
    for (size_t i = 0; i < 4; i++) {
        const char *digits = "0123456789abcdef";
        const char *found = i < left && s[i] != '\0'
                                ? strchr(digits, s[i] >= 'A' && s[i] <= 'F' ? s[i] + 32 : s[i])
                                : NULL;
        if (found == NULL)
            return false;
        *out = *out * 16 + (unsigned)(found - digits);
    }
    return true;
}

static void add_character(struct buf *b, unsigned c)
{
    char bytes[4];
    size_t n = c < 0x80 ? 1 : c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const unsigned lead[] = {0, 0, 0xC0, 0xE0, 0xF0};

    for (size_t i = n; i > 1; i--) {
        bytes[i - 1] = (char)(0x80 | (c & 0x3F));
        c >>= 6;
    }
    bytes[0] = (char)(lead[n] | c);
    buf_add(b, bytes, n);
}

/* At the u of \uXXXX, maybe two of them. */
static bool read_unicode(struct walk *w, const struct level *level)
{
    size_t start = w->at - 1;
    unsigned high, low;

    if (!hex4(w->text + w->at + 1, w->len - w->at - 1, &high))
        return fault(w, start, level, "\\u without four hexadecimal digits");
    w->at += 5;
    if (high >= 0xDC00 && high <= 0xDFFF)
        return fault(w, start, level, "half of a surrogate pair");
    if (high >= 0xD800 && high <= 0xDBFF) {
        if (w->len - w->at < 6 || w->text[w->at] != '\\' || w->text[w->at + 1] != 'u' ||
            !hex4(w->text + w->at + 2, 4, &low) || low < 0xDC00 || low > 0xDFFF)
            return fault(w, start, level, "half of a surrogate pair");
        w->at += 6;
        high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    }
    add_character(&w->name, high);
    return true;
}

static bool read_escape(struct walk *w, const struct level *level)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found;

    w->at++;
    if (peek(w) == 'u')
        return read_unicode(w, level);
    found = peek(w) != '\0' ? strchr(from, peek(w)) : NULL;
    if (found == NULL)
        return fault(w, w->at < w->len ? w->at - 1 : w->at, level, "an unknown escape");
    buf_add_char(&w->name, to[found - from]);
    w->at++;
    return true;
}

/* One character of a text, as it stands there. */
static bool read_character(struct walk *w, const struct level *level)
{
    size_t n = 1;

    if ((unsigned char)w->text[w->at] < ' ')
        return fault(w, w->at, level, "a control character in a text; it must be escaped");
    if ((unsigned char)w->text[w->at] >= 0x80) {
        size_t left = w->len - w->at;
        for (n = 2; n <= 4 && n <= left; n++)
            if (payload_is_utf8(slice_of(w->text + w->at, n)))
                break;
        if (n > 4 || n > left) {
            place_at(w, w->at, level, "no UTF-8");
            return false;
        }
    }
    buf_add(&w->name, w->text + w->at, n);
    w->at += n;
    return true;
}

/* At the quote. The text is in w->name. */
static bool read_text(struct walk *w, const struct level *level)
{
    buf_reset(&w->name);
    w->at++;
    for (;;) {
        if (w->at >= w->len)
            return fault(w, w->at, level, "");
        if (w->text[w->at] == '"')
            break;
        if (w->text[w->at] == '\\' ? !read_escape(w, level) : !read_character(w, level))
            return false;
    }
    w->at++;
    return true;
}

static bool digits(struct walk *w)
{
    size_t start = w->at;

    while (peek(w) >= '0' && peek(w) <= '9')
        w->at++;
    return w->at > start;
}

static bool number_fits(const struct walk *w, size_t start, bool whole)
{
    char *copy = mem_text_n(w->text + start, w->at - start), *end;
    bool fits;

    errno = 0;
    if (whole) {
        (void)strtoll(copy, &end, 10);
        fits = errno == 0;
    } else {
        fits = !isinf(strtod(copy, &end)); /* the program never leaves the C locale */
    }
    mem_free(copy);
    return fits;
}

static bool read_number(struct walk *w, const struct level *level)
{
    size_t start = w->at;
    bool whole = true;

    if (peek(w) == '-')
        w->at++;
    if (peek(w) == '0')
        w->at++;
    else if (!digits(w))
        return fault(w, w->at, level, "a number without digits");
    if (peek(w) >= '0' && peek(w) <= '9')
        return fault(w, start, level, "a number with a zero in front");
    if (peek(w) == '.') {
        whole = false;
        w->at++;
        if (!digits(w))
            return fault(w, w->at, level, "no digit behind the decimal point");
    }
    if (peek(w) == 'e' || peek(w) == 'E') {
        whole = false;
        w->at++;
        if (peek(w) == '+' || peek(w) == '-')
            w->at++;
        if (!digits(w))
            return fault(w, w->at, level, "an exponent without digits");
    }
    if (number_fits(w, start, whole))
        return true;
    place_at(w, start, level, whole ? "an integer outside int64" : "a number too large for double");
    return false;
}

static bool read_word(struct walk *w, const struct level *level)
{
    static const char *const words[] = {"true", "false", "null"};

    for (size_t i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);

        if (w->len - w->at < n || memcmp(w->text + w->at, words[i], n) != 0)
            continue;
        w->at += n;
        if ((peek(w) >= 'a' && peek(w) <= 'z') || (peek(w) >= 'A' && peek(w) <= 'Z'))
            return fault(w, w->at - n, level, "a word that JSON does not know");
        return true;
    }
    if ((peek(w) >= 'a' && peek(w) <= 'z') || (peek(w) >= 'A' && peek(w) <= 'Z'))
        return fault(w, w->at, level, "a word that JSON does not know");
    return unexpected(w, level, "no value begins like this");
}

static bool read_value(struct walk *w, const struct level *level, unsigned depth, size_t matched);

/* matched: how many names of w->path lead to this object; SIZE_MAX: it is not on the way. */
static size_t match(const struct walk *w, size_t matched, struct slice name)
{
    if (w->path == NULL || matched >= w->path->n ||
        !slice_equal(slice_text(w->path->names[matched]), name))
        return SIZE_MAX;
    return matched + 1;
}

/* At a quote: "name": value */
static bool read_member(struct walk *w, const struct level *up, unsigned depth, size_t matched,
                        json_t *seen)
{
    size_t start = w->at;
    struct level level = {.up = up};
    json_t *first;
    bool ok;

    if (!read_text(w, up))
        return false;
    if (memchr(buf_text(&w->name), '\0', w->name.len) != NULL)
        return fault(w, start, up, "a name with a NUL in it");
    char *name = mem_text_n(buf_text(&w->name), w->name.len);
    level.name = slice_of(name, w->name.len);
    first = json_object_get(seen, name);
    if (first != NULL) {
        ok = fault(w, start, &level, "a name that this object has already");
        w->place->has_first = true;
        w->place->first = (size_t)json_integer_value(first);
    } else {
        json_object_set_new_nocheck(seen, name, json_integer((json_int_t)start));
        skip_space(w);
        ok = peek(w) == ':' || unexpected(w, &level, "no ':' behind the name");
        w->at += ok;
        ok = ok && read_value(w, &level, depth, match(w, matched, level.name));
    }
    mem_free(name);
    return ok;
}

static bool read_object(struct walk *w, const struct level *level, unsigned depth, size_t matched)
{
    json_t *seen = json_object();
    bool ok = true;

    w->at++;
    skip_space(w);
    if (peek(w) == '}') {
        w->at++;
        json_decref(seen);
        return true;
    }
    for (;;) {
        if (peek(w) != '"') {
            ok = unexpected(w, level, "a name in quotes must stand here");
            break;
        }
        ok = read_member(w, level, depth, matched, seen);
        skip_space(w);
        if (!ok || peek(w) != ',')
            break;
        w->at++;
        skip_space(w);
    }
    json_decref(seen);
    if (ok && peek(w) != '}')
        return unexpected(w, level, "neither ',' nor '}' behind the value");
    w->at += ok;
    return ok;
}

static bool read_array(struct walk *w, const struct level *up, unsigned depth)
{
    struct level level = {.up = up};

    w->at++;
    skip_space(w);
    if (peek(w) == ']') {
        w->at++;
        return true;
    }
    for (;; level.index++) {
        if (!read_value(w, &level, depth, SIZE_MAX))
            return false;
        skip_space(w);
        if (peek(w) != ',')
            break;
        w->at++;
    }
    if (peek(w) != ']')
        return unexpected(w, up, "neither ',' nor ']' behind the value");
    w->at++;
    return true;
}

static bool read_value(struct walk *w, const struct level *level, unsigned depth, size_t matched)
{
    char c;

    skip_space(w);
    c = peek(w);
    if (depth >= LEVELS)
        return fault(w, w->at, NULL, "nested more than 2048 levels deep");
    if (depth >= w->levels && (c == '{' || c == '['))
        return fault(w, w->at, level, "one level too deep");
    if (w->wanted != NULL && w->at == *w->wanted) {
        place_at(w, w->at, level, NULL);
        w->found = true;
        return false; /* no further */
    }
    if (matched != SIZE_MAX && matched >= w->matched && w->path != NULL) {
        w->matched = matched;
        place_at(w, w->at, level, NULL);
    }
    if (c == '{')
        return read_object(w, level, depth + 1, matched);
    if (c == '[')
        return read_array(w, level, depth + 1);
    if (c == '"')
        return read_text(w, level);
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(w, level);
    return read_word(w, level);
}

static bool walk(struct walk *w)
{
    bool ok = read_value(w, NULL, 0, 0);

    if (ok) {
        skip_space(w);
        ok = w->at == w->len || unexpected(w, NULL, "something follows the JSON value");
    }
    buf_clear(&w->name);
    return ok;
}

bool json_fault_find(struct slice text, struct json_place *out)
{
    return json_deep_find(text, LEVELS, out);
}

bool json_deep_find(struct slice text, unsigned levels, struct json_place *out)
{
    struct walk w = {
        .text = text.ptr ? text.ptr : "", .len = text.len, .levels = levels, .place = out};

    *out = (struct json_place){0};
    return !walk(&w);
}

bool json_value_find(struct slice text, const struct path *path, struct json_place *out)
{
    struct walk w = {.text = text.ptr ? text.ptr : "",
                     .len = text.len,
                     .levels = LEVELS,
                     .path = path,
                     .place = out};

    *out = (struct json_place){0};
    return walk(&w) && w.matched == path->n;
}

bool json_byte_find(struct slice text, size_t byte, struct json_place *out)
{
    struct walk w = {.text = text.ptr ? text.ptr : "",
                     .len = text.len,
                     .levels = LEVELS,
                     .wanted = &byte,
                     .place = out};

    *out = (struct json_place){0};
    (void)walk(&w);
    if (!w.found)
        json_place_clear(out);
    return w.found;
}

bool bson_value_find(struct slice bytes, const struct path *path, struct json_place *out)
{
    bson_iter_t it, in;
    size_t i;
    bson_t doc;

    *out = (struct json_place){0};
    if (!bson_init_static(&doc, bytes.ptr, bytes.len) || !bson_iter_init(&it, &doc))
        return false;
    for (i = 0; i < path->n && bson_iter_find(&it, path->names[i]); i++) {
        const char *key = bson_iter_key(&it);

        out->byte = (size_t)(key + strlen(key) + 1 - (const char *)bytes.ptr);
        buf_printf(&out->path, "%s%s", i > 0 ? "." : "", path->names[i]);
        if (!BSON_ITER_HOLDS_DOCUMENT(&it) || !bson_iter_recurse(&it, &in)) {
            i++;
            break;
        }
        it = in;
    }
    return i == path->n;
}
