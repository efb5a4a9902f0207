/*
 * config_regex.c - can one topic match two patterns?
 *
 * Both are made into automata over the letters of topic names, and walked at once, breadth first:
 * the first word that both take is a shortest one. What a POSIX extended expression may say beyond
 * that (back references, \w, [=a=] ...), or what grows too large, is not decided; and a word that
 * was found counts only when the C library's own regexec() takes it in both. So a pair that is
 * called overlapping is, and one that is not may still meet: config_route_of() sees that with the
 * topic itself.
 */
#include <string.h>

#include "base/mem.h"
#include "core/config_private.h"

static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

enum {
    N_LETTERS = sizeof letters - 1,
    NODES_MAX = 1024,
    WORDS = NODES_MAX / 64,
    PAIRS_MAX = 1024, /* pairs of states that are looked at */
    NAME_MAX_LETTERS = 249
};

enum node_kind { NODE_PASS, NODE_SPLIT, NODE_LETTER, NODE_START, NODE_END, NODE_MATCH };

struct node {
    enum node_kind kind;
    int next, other; /* -1: none (yet) */
    bool takes[N_LETTERS];
};

struct machine {
    const char *at; /* what is left of the pattern */
    struct node *nodes;
    int n;
    int start;
    bool undecided;
};

/* A part of the machine: in by start, out by end, which is a NODE_PASS without a next. */
struct part {
    int start, end;
};

/* ---- from the pattern to the machine ---- */

static int add_node(struct machine *m, enum node_kind kind)
{
    if (m->n == NODES_MAX) {
        m->undecided = true;
        return 0;
    }
    m->nodes[m->n] = (struct node){.kind = kind, .next = -1, .other = -1};
    return m->n++;
}

static struct part part_of(struct machine *m, enum node_kind kind)
{
    int node = add_node(m, kind), end = add_node(m, NODE_PASS);

    m->nodes[node].next = end;
    return (struct part){node, end};
}

static struct part joined(struct machine *m, struct part a, struct part b)
{
    m->nodes[a.end].next = b.start;
    return (struct part){a.start, b.end};
}

static struct part either(struct machine *m, struct part a, struct part b)
{
    int split = add_node(m, NODE_SPLIT), end = add_node(m, NODE_PASS);

    m->nodes[split].next = a.start;
    m->nodes[split].other = b.start;
    m->nodes[a.end].next = m->nodes[b.end].next = end;
    return (struct part){split, end};
}

/* none: may be left out; many: may come again. */
static struct part repeated(struct machine *m, struct part a, bool none, bool many)
{
    int split = add_node(m, NODE_SPLIT), end = add_node(m, NODE_PASS);

    m->nodes[a.end].next = many ? split : end;
    m->nodes[split].next = a.start;
    m->nodes[split].other = end;
    return (struct part){none ? split : a.start, end};
}

static void take(struct machine *m, int node, unsigned char first, unsigned char last)
{
    for (size_t i = 0; i < N_LETTERS; i++)
        if ((unsigned char)letters[i] >= first && (unsigned char)letters[i] <= last)
            m->nodes[node].takes[i] = true;
}

/* "[:alpha:]" at m->at, behind the "[". */
static void take_class(struct machine *m, int node)
{
    static const struct {
        const char *name, *ranges;
    } classes[] = {
        {":alpha:]", "azAZ"},
        {":digit:]", "09"},
        {":alnum:]", "azAZ09"},
        {":lower:]", "az"},
        {":upper:]", "AZ"},
        {":xdigit:]", "afAF09"},
        {":punct:]", "--.._"
                     "_"},
        {":graph:]", "!~"},
        {":print:]", " ~"},
        {":space:]", ""},
        {":blank:]", ""},
        {":cntrl:]", ""},
    };

    for (size_t i = 0; i < sizeof classes / sizeof classes[0]; i++) {
        size_t len = strlen(classes[i].name);

        if (strncmp(m->at, classes[i].name, len) != 0)
            continue;
        m->at += len;
        for (const char *r = classes[i].ranges; *r; r += 2)
            take(m, node, (unsigned char)r[0], (unsigned char)r[1]);
        return;
    }
    m->undecided = true;
}

/* m->at behind the "[". */
static struct part bracket(struct machine *m)
{
    struct part p = part_of(m, NODE_LETTER);
    bool none_of = *m->at == '^', first = true;

    m->at += none_of;
    for (; !m->undecided && (first || *m->at != ']'); first = false) {
        unsigned char from = (unsigned char)*m->at, to = from;

        if (from == '\0') {
            m->undecided = true;
        } else if (from == '[' && m->at[1] == ':') {
            m->at++;
            take_class(m, p.start);
            continue;
        } else if (from == '[' && (m->at[1] == '.' || m->at[1] == '=')) {
            m->undecided = true;
        } else if (m->at[1] == '-' && m->at[2] != ']' && m->at[2] != '\0') {
            to = (unsigned char)m->at[2];
            m->undecided = to == '['; /* perhaps [.x.] */
            m->at += 2;
        }
        m->at += *m->at != '\0';
        take(m, p.start, from, to);
    }
    m->at += *m->at == ']';
    for (size_t i = 0; none_of && i < N_LETTERS; i++)
        m->nodes[p.start].takes[i] = !m->nodes[p.start].takes[i];
    return p;
}

static struct part alternatives(struct machine *m);

/* One letter, set, group or anchor. */
static struct part atom(struct machine *m)
{
    unsigned char c = (unsigned char)*m->at++;
    struct part p;

    switch (c) {
    case '^':
        return part_of(m, NODE_START);
    case '$':
        return part_of(m, NODE_END);
    case '[':
        return bracket(m);
    case '(':
        p = alternatives(m);
        m->undecided = m->undecided || *m->at != ')';
        m->at += *m->at == ')';
        return p;
    case '.':
        p = part_of(m, NODE_LETTER);
        take(m, p.start, 1, 255);
        return p;
    case '\\':
        c = (unsigned char)*m->at;
        /* a letter or digit means something: \w, \b, \1 */
        m->undecided = m->undecided || c == '\0' || !strchr("^.[$()|*+?{\\]}-_", c);
        m->at += c != '\0';
        break;
    case '*':
    case '+':
    case '?':
    case '{':
        m->undecided = true; /* behind nothing */
        break;
    default:
        break;
    }
    p = part_of(m, NODE_LETTER);
    take(m, p.start, c, c);
    return p;
}

static int small_number(struct machine *m)
{
    int n = 0;

    for (; *m->at >= '0' && *m->at <= '9'; m->at++)
        n = n < NODES_MAX ? n * 10 + (*m->at - '0') : n;
    return n;
}

/* "{least,most}" at m->at; most -1: without end. */
static void interval(struct machine *m, int *least, int *most)
{
    m->at++;
    if (*m->at < '0' || *m->at > '9')
        m->undecided = true;
    *least = *most = small_number(m);
    if (*m->at == ',') {
        m->at++;
        *most = *m->at == '}' ? -1 : small_number(m);
    }
    m->undecided = m->undecided || *m->at != '}' || (*most >= 0 && *most < *least);
    m->at += *m->at == '}';
}

/* An atom and what says how often: it is read again for each time. */
static struct part piece(struct machine *m)
{
    const char *from = m->at, *behind;
    struct part p = atom(m), all;
    int least, most;

    if (*m->at == '\0' || !strchr("*+?{", *m->at))
        return p;
    if (*from == '^' || *from == '$')
        m->undecided = true;
    if (*m->at != '{') {
        char how = *m->at++;

        m->undecided = m->undecided || (*m->at && strchr("*+?{", *m->at));
        return repeated(m, p, how != '+', how != '?');
    }
    interval(m, &least, &most);
    behind = m->at;
    m->undecided = m->undecided || (*behind && strchr("*+?{", *behind));
    all = part_of(m, NODE_PASS);
    for (int i = 0; !m->undecided && i < (most < 0 ? least + 1 : most); i++) {
        m->at = from;
        p = atom(m);
        if (i >= least)
            p = repeated(m, p, true, most < 0);
        all = joined(m, all, p);
    }
    m->at = behind;
    return all;
}

static struct part sequence(struct machine *m)
{
    struct part p = part_of(m, NODE_PASS);

    while (!m->undecided && *m->at && *m->at != '|' && *m->at != ')')
        p = joined(m, p, piece(m));
    return p;
}

static struct part alternatives(struct machine *m)
{
    struct part p = sequence(m);

    while (!m->undecided && *m->at == '|') {
        m->at++;
        p = either(m, p, sequence(m));
    }
    return p;
}

static void machine_make(struct machine *m, const char *pattern)
{
    *m = (struct machine){.at = pattern};
    m->nodes = mem_array(NODES_MAX, sizeof *m->nodes);

    struct part p = alternatives(m);
    int match = add_node(m, NODE_MATCH);

    m->nodes[p.end].next = match;
    m->start = p.start;
    m->undecided = m->undecided || *m->at != '\0';
}

/* ---- the walk ---- */

/* Where a machine can be behind some letters. matched: whatever follows, it has matched. */
struct state {
    uint64_t nodes[WORDS];
    bool matched;
};

/* Adds a node and what it leads to without a letter. */
static void reach(const struct machine *m, struct state *s, int node, bool at_start, bool at_end)
{
    int stack[2 * NODES_MAX + 1], n = 0;

    for (stack[n++] = node; n > 0;) {
        int i = stack[--n];
        uint64_t bit = UINT64_C(1) << (i % 64);
        const struct node *it = &m->nodes[i];

        if (s->nodes[i / 64] & bit)
            continue;
        s->nodes[i / 64] |= bit;
        s->matched = s->matched || it->kind == NODE_MATCH;
        if (it->kind == NODE_LETTER || (it->kind == NODE_START && !at_start) ||
            (it->kind == NODE_END && !at_end))
            continue;
        if (it->next >= 0)
            stack[n++] = it->next;
        if (it->other >= 0)
            stack[n++] = it->other;
    }
}

static struct state first_state(const struct machine *m)
{
    struct state s = {0};

    reach(m, &s, m->start, true, false);
    return s;
}

/* Behind one more letter. A match may begin anywhere. */
static struct state next_state(const struct machine *m, const struct state *from, size_t letter)
{
    struct state s = {.matched = from->matched};

    if (s.matched)
        return s;
    for (int w = 0; w * 64 < m->n; w++)
        for (uint64_t left = from->nodes[w]; left; left &= left - 1) {
            const struct node *it = &m->nodes[w * 64 + __builtin_ctzll(left)];

            if (it->kind == NODE_LETTER && it->takes[letter])
                reach(m, &s, it->next, false, false);
        }
    reach(m, &s, m->start, false, false);
    return s;
}

/* Does the word end well here? */
static bool accepts(const struct machine *m, const struct state *s)
{
    struct state at_end = {0};

    for (int i = 0; i < m->n && !s->matched; i++)
        if ((s->nodes[i / 64] >> (i % 64) & 1) && m->nodes[i].kind == NODE_END)
            reach(m, &at_end, m->nodes[i].next, false, true);
    return s->matched || at_end.matched;
}

struct pair {
    struct state a, b;
    int before; /* the pair one letter earlier */
    int depth;
    int dots; /* all letters so far, up to 3; -1: there are others */
    char letter;
};

static bool known(const struct pair *pairs, int n, const struct pair *p)
{
    for (int i = 0; i < n; i++)
        if (memcmp(pairs[i].a.nodes, p->a.nodes, sizeof p->a.nodes) == 0 &&
            memcmp(pairs[i].b.nodes, p->b.nodes, sizeof p->b.nodes) == 0 &&
            pairs[i].a.matched == p->a.matched && pairs[i].b.matched == p->b.matched &&
            pairs[i].dots == p->dots)
            return true;
    return false;
}

static void spell(const struct pair *pairs, int last, struct buf *out)
{
    char word[NAME_MAX_LETTERS + 1];
    size_t n = (size_t)pairs[last].depth;

    for (int i = last; pairs[i].before >= 0; i = pairs[i].before)
        word[pairs[i].depth - 1] = pairs[i].letter;
    buf_add(out, word, n);
}

static bool is_empty(const struct state *s)
{
    static const struct state empty;

    return !s->matched && memcmp(s->nodes, empty.nodes, sizeof s->nodes) == 0;
}

/* Letters that no node of either tells apart lead to the same: one of each kind is enough. */
static size_t kinds_of_letters(const struct machine *a, const struct machine *b, size_t kinds[])
{
    size_t n = 0;

    for (size_t i = 0; i < N_LETTERS; i++) {
        bool same = false;

        for (size_t k = 0; k < n && !same; k++) {
            same = true;
            for (int j = 0; same && j < a->n; j++)
                same = a->nodes[j].takes[i] == a->nodes[j].takes[kinds[k]];
            for (int j = 0; same && j < b->n; j++)
                same = b->nodes[j].takes[i] == b->nodes[j].takes[kinds[k]];
        }
        if (!same)
            kinds[n++] = i;
    }
    return n;
}

/* "." and ".." are no topics, so what they lead to is not what other letters do. */
static int dots_with(int dots, char letter)
{
    return letter != '.' || dots < 0 ? -1 : dots < 3 ? dots + 1 : 3;
}

static bool walk(const struct machine *a, const struct machine *b, struct pair *pairs,
                 struct buf *word)
{
    size_t kinds[N_LETTERS], n_kinds = kinds_of_letters(a, b, kinds);
    int n = 0;

    pairs[n++] = (struct pair){.a = first_state(a), .b = first_state(b), .before = -1};
    for (int i = 0; i < n; i++) {
        if (pairs[i].depth == NAME_MAX_LETTERS)
            return false;
        for (size_t k = 0; k < n_kinds; k++) {
            struct pair p = {.a = next_state(a, &pairs[i].a, kinds[k]),
                             .b = next_state(b, &pairs[i].b, kinds[k]),
                             .before = i,
                             .depth = pairs[i].depth + 1,
                             .dots = dots_with(pairs[i].dots, letters[kinds[k]]),
                             .letter = letters[kinds[k]]};

            if (is_empty(&p.a) || is_empty(&p.b) || known(pairs, n, &p))
                continue;
            if (n == PAIRS_MAX)
                return false;
            pairs[n] = p;
            if (accepts(a, &p.a) && accepts(b, &p.b) && (p.dots < 0 || p.dots > 2)) {
                spell(pairs, n, word);
                return true;
            }
            n++;
        }
    }
    return false;
}

bool config_patterns_meet(const char *a, const char *b, struct buf *topic)
{
    struct machine ma, mb;
    bool meet = false;

    machine_make(&ma, a);
    machine_make(&mb, b);
    if (!ma.undecided && !mb.undecided) {
        struct pair *pairs = mem_array(PAIRS_MAX, sizeof *pairs);

        meet = walk(&ma, &mb, pairs, topic) && config_topic_matches(a, buf_text(topic)) &&
               config_topic_matches(b, buf_text(topic));
        mem_free(pairs);
    }
    mem_free(ma.nodes);
    mem_free(mb.nodes);
    return meet;
}
