#include "core/sequence.h"

#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "core/template.h"

enum { PIECES_MAX = 16, DIGITS_MAX = 19 };

/* A source and the text that follows it. */
struct piece {
    char *source; /* NULL: the number */
    struct template *value;
    char *literal; /* "" none */
};

struct sequence_text {
    char *start; /* before the first piece */
    struct piece pieces[PIECES_MAX];
    size_t n;
    size_t number; /* which of them is the number */
    int digits;
};

/* "{{" and "}}" are braces. Returns how many bytes of text up to a placeholder or the end. */
static size_t literal_len(const char *text)
{
    size_t n = 0;

    while (text[n] != '\0') {
        if ((text[n] == '{' || text[n] == '}') && text[n + 1] == text[n])
            n += 2;
        else if (text[n] == '{' || text[n] == '}')
            break;
        else
            n++;
    }
    return n;
}

static char *literal_of(const char *text, size_t len)
{
    struct buf out = {0};

    buf_add_text(&out, "");
    for (size_t i = 0; i < len; i++) {
        buf_add_char(&out, text[i]);
        i += text[i] == '{' || text[i] == '}';
    }
    return out.data;
}

/* "seq" or "seq:06"; *digits 0: neither, but meant so. */
static bool is_number(const char *inside, size_t len, int *digits)
{
    if (len < 3 || memcmp(inside, "seq", 3) != 0 || (len > 3 && inside[3] != ':'))
        return false;
    *digits = len == 3;
    if (len < 6 || inside[4] != '0' || inside[5] == '0') /* {seq:6} would be read as six blanks */
        return true;
    for (size_t i = 5; i < len; i++) {
        if (inside[i] < '0' || inside[i] > '9' || *digits > DIGITS_MAX) {
            *digits = 0;
            return true;
        }
        *digits = *digits * 10 + (inside[i] - '0');
    }
    return true;
}

static bool piece_new(struct sequence_text *t, const char *inside, size_t len, struct err *e)
{
    struct piece *p = &t->pieces[t->n];
    struct template_names names = {.database = "", .collection = ""};
    char *text;
    int digits;

    if (is_number(inside, len, &digits)) {
        if (t->number != SIZE_MAX)
            return err_set(e, ERR_CONFIG, 0, "the number is there twice");
        if (digits < 1 || digits > DIGITS_MAX)
            return err_set(e, ERR_CONFIG, 0,
                           "\"{%.*s}\" is neither {seq} nor {seq:0N} (N digits at least, 1 to %d; "
                           "{seq:06} makes 000042)",
                           (int)(len < 40 ? len : 40), inside, DIGITS_MAX);
        t->number = t->n++;
        t->digits = digits;
        return true;
    }
    p->source = mem_text_n(inside, len);
    text = mem_printf("{%s}", p->source);
    t->n++;
    p->value = template_new(TEMPLATE_TEXT, text, &names, e);
    mem_free(text);
    return p->value != NULL;
}

/* "{seq}0{a}": 1 and "0x" would be as 10 and "x". */
static bool number_runs_on(const struct sequence_text *t)
{
    char behind = t->pieces[t->number].literal[0];

    return t->number + 1 < t->n && behind >= '0' && behind <= '9';
}

static bool compile(struct sequence_text *t, const char *text, struct err *e)
{
    size_t len = literal_len(text);

    t->start = literal_of(text, len);
    for (const char *at = text + len; *at != '\0'; at += len) {
        size_t inside = strcspn(at + 1, "{}");

        if (*at != '{' || at[1 + inside] != '}')
            return err_set(e, ERR_CONFIG, 0, "a brace has no partner (\"{{\" is a brace)");
        if (t->n == PIECES_MAX)
            return err_set(e, ERR_CONFIG, 0, "more than %d placeholders", PIECES_MAX);
        if (!piece_new(t, at + 1, inside, e))
            return false;
        at += inside + 2;
        len = literal_len(at);
        t->pieces[t->n - 1].literal = literal_of(at, len);
        if (len == 0 && *at == '{')
            return err_set(e, ERR_CONFIG, 0,
                           "nothing stands between \"{%s}\" and what follows it, so nobody could "
                           "tell where one ends: put a separator there",
                           t->number == t->n - 1 ? "seq" : t->pieces[t->n - 1].source);
    }
    if (t->number == SIZE_MAX)
        return err_set(e, ERR_CONFIG, 0, "{seq} is missing");
    return !number_runs_on(t) ||
           err_set(e, ERR_CONFIG, 0,
                   "a digit stands behind {seq}, so nobody could tell where the number ends");
}

struct sequence_text *sequence_text_new(const char *text, struct err *e)
{
    struct sequence_text *t = mem_new(sizeof *t);

    t->number = SIZE_MAX;
    if (compile(t, text, e))
        return t;
    sequence_text_free(t);
    return NULL;
}

void sequence_text_free(struct sequence_text *t)
{
    if (!t)
        return;
    for (size_t i = 0; i < t->n; i++) {
        template_free(t->pieces[i].value);
        mem_free(t->pieces[i].source);
        mem_free(t->pieces[i].literal);
    }
    mem_free(t->start);
    mem_free(t);
}

const char *sequence_text_source(const struct sequence_text *t, size_t i)
{
    size_t at = i < t->number ? i : i + 1;

    return at < t->n ? t->pieces[at].source : NULL;
}

/* A value may hold the separator, as ids do. Where two groups become one text for it, the unique
 * index on the text says so. */
static bool fill_piece(const struct piece *p, const struct record *r, struct buf *out,
                       const char **what, const char **why)
{
    size_t from = out->len;

    *what = p->source;
    *why = "is missing or no scalar";
    if (!template_fill(p->value, r, out))
        return false;
    *why = "is empty";
    if (out->len == from)
        return false;
    buf_add_text(out, p->literal);
    return true;
}

bool sequence_text_fill(const struct sequence_text *t, const struct record *r, struct buf *before,
                        struct buf *behind, const char **what, const char **why)
{
    buf_add_text(before, t->start);
    for (size_t i = 0; i < t->n; i++) {
        if (i == t->number)
            buf_add_text(behind, t->pieces[i].literal);
        else if (!fill_piece(&t->pieces[i], r, i < t->number ? before : behind, what, why))
            return false;
    }
    return true;
}

int sequence_text_digits(const struct sequence_text *t)
{
    return t->digits;
}

void sequence_add_number(struct buf *out, int64_t number, int digits)
{
    buf_printf(out, "%s%0*" PRIu64, number < 0 ? "-" : "", digits,
               number < 0 ? (uint64_t)0 - (uint64_t)number : (uint64_t)number);
}
