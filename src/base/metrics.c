#include "base/metrics.h"

#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

enum { BOUNDS_MAX = 24, COLLECTORS_MAX = 8 };

enum family_kind { FAMILY_COUNTER, FAMILY_GAUGE, FAMILY_HISTOGRAM };

static const char *const kind_names[] = {"counter", "gauge", "histogram"};

struct metric {
    struct metric *next;
    char *labels;
    _Atomic int64_t value; /* counter, gauge; histogram: how many observations */
    const struct family *family;
    _Atomic int64_t buckets[BOUNDS_MAX]; /* not cumulative */
    _Atomic int64_t sum_micro;           /* millionths: enough for seconds, and an atomic integer */
};

struct family {
    struct family *next;
    char *name, *help;
    enum family_kind kind;
    double bounds[BOUNDS_MAX];
    size_t n_bounds;
    struct metric *first; /* lock; newest first */
};

struct metrics {
    pthread_mutex_t lock; /* leaf */
    struct family *first; /* lock; in the order made */
    struct family **last; /* lock */
    struct {
        metrics_collect_fn *collect;
        void *ctx;
    } collectors[COLLECTORS_MAX]; /* lock */
    size_t n_collectors;          /* lock */
};

struct metrics *metrics_new(void)
{
    struct metrics *m = mem_new(sizeof *m);

    MUST(pthread_mutex_init(&m->lock, NULL) == 0);
    m->last = &m->first;
    return m;
}

void metrics_free(struct metrics *m)
{
    if (m == NULL)
        return;
    for (struct family *f = m->first, *next; f; f = next) {
        next = f->next;
        for (struct metric *s = f->first, *following; s; s = following) {
            following = s->next;
            mem_free(s->labels);
            mem_free(s);
        }
        mem_free(f->name);
        mem_free(f->help);
        mem_free(f);
    }
    (void)pthread_mutex_destroy(&m->lock);
    mem_free(m);
}

static struct family *family_locked(struct metrics *m, const char *name, const char *help,
                                    enum family_kind kind)
{
    for (struct family *f = m->first; f; f = f->next) {
        if (strcmp(f->name, name) == 0) {
            MUST(f->kind == kind);
            return f;
        }
    }
    struct family *f = mem_new(sizeof *f);
    f->name = mem_text(name);
    f->help = mem_text(help);
    f->kind = kind;
    *m->last = f;
    m->last = &f->next;
    return f;
}

static struct metric *series(struct metrics *m, const char *name, const char *help,
                             const char *labels, enum family_kind kind, const double *bounds,
                             size_t n)
{
    struct metric *s;

    MUST(n <= BOUNDS_MAX);
    (void)pthread_mutex_lock(&m->lock);
    struct family *f = family_locked(m, name, help, kind);
    if (f->n_bounds == 0 && n > 0) {
        memcpy(f->bounds, bounds, n * sizeof *bounds);
        f->n_bounds = n;
    }
    for (s = f->first; s && strcmp(s->labels, labels) != 0; s = s->next)
        ;
    if (s == NULL) {
        s = mem_new(sizeof *s);
        s->labels = mem_text(labels);
        s->family = f;
        s->next = f->first;
        f->first = s;
    }
    (void)pthread_mutex_unlock(&m->lock);
    return s;
}

struct metric *metrics_counter(struct metrics *m, const char *name, const char *help,
                               const char *labels)
{
    return series(m, name, help, labels, FAMILY_COUNTER, NULL, 0);
}

struct metric *metrics_gauge(struct metrics *m, const char *name, const char *help,
                             const char *labels)
{
    return series(m, name, help, labels, FAMILY_GAUGE, NULL, 0);
}

struct metric *metrics_histogram(struct metrics *m, const char *name, const char *help,
                                 const char *labels, const double *bounds, size_t n)
{
    return series(m, name, help, labels, FAMILY_HISTOGRAM, bounds, n);
}

void metric_add(struct metric *s, int64_t n)
{
    atomic_fetch_add_explicit(&s->value, n, memory_order_relaxed);
}

void metric_set(struct metric *s, int64_t value)
{
    atomic_store_explicit(&s->value, value, memory_order_relaxed);
}

int64_t metric_value(const struct metric *s)
{
    return atomic_load_explicit(&s->value, memory_order_relaxed);
}

void metric_observe(struct metric *s, double value)
{
    const struct family *f = s->family;
    size_t i = 0;

    while (i < f->n_bounds && value > f->bounds[i])
        i++;
    if (i < f->n_bounds)
        atomic_fetch_add_explicit(&s->buckets[i], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&s->sum_micro, (int64_t)llround(value * 1e6), memory_order_relaxed);
    atomic_fetch_add_explicit(&s->value, 1, memory_order_relaxed);
}

void metrics_label(struct buf *b, const char *name, const char *value)
{
    buf_printf(b, "%s%s=\"", b->len > 0 ? "," : "", name);
    for (; *value; value++) {
        if (*value == '"' || *value == '\\')
            buf_printf(b, "\\%c", *value);
        else if (*value == '\n')
            buf_add_text(b, "\\n");
        else
            buf_add_char(b, *value);
    }
    buf_add_char(b, '"');
}

void metrics_collector(struct metrics *m, metrics_collect_fn *collect, void *ctx)
{
    (void)pthread_mutex_lock(&m->lock);
    MUST(m->n_collectors < COLLECTORS_MAX);
    m->collectors[m->n_collectors].collect = collect;
    m->collectors[m->n_collectors].ctx = ctx;
    m->n_collectors++;
    (void)pthread_mutex_unlock(&m->lock);
}

void metrics_head(struct buf *out, const char *name, const char *kind, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind);
}

void metrics_line(struct buf *out, const char *name, const char *labels, double value)
{
    buf_add_text(out, name);
    if (labels[0])
        buf_printf(out, "{%s}", labels);
    if (fabs(value) < 9e15 && value == floor(value))
        buf_printf(out, " %lld\n", (long long)value);
    else
        buf_printf(out, " %.9g\n", value);
}

static void render_histogram(struct buf *out, const struct family *f, const struct metric *s)
{
    const char *comma = s->labels[0] ? "," : "";
    int64_t total = 0;

    for (size_t i = 0; i < f->n_bounds; i++) {
        total += atomic_load_explicit(&s->buckets[i], memory_order_relaxed);
        buf_printf(out, "%s_bucket{%s%sle=\"%g\"} %lld\n", f->name, s->labels, comma, f->bounds[i],
                   (long long)total);
    }
    int64_t count = metric_value(s);
    buf_printf(out, "%s_bucket{%s%sle=\"+Inf\"} %lld\n", f->name, s->labels, comma,
               (long long)(count > total ? count : total));
    const char *open = s->labels[0] ? "{" : "", *close = s->labels[0] ? "}" : "";
    buf_printf(out, "%s_sum%s%s%s %.6f\n", f->name, open, s->labels, close,
               (double)atomic_load_explicit(&s->sum_micro, memory_order_relaxed) / 1e6);
    buf_printf(out, "%s_count%s%s%s %lld\n", f->name, open, s->labels, close,
               (long long)(count > total ? count : total));
}

void metrics_render(struct metrics *m, struct buf *out)
{
    size_t n;

    (void)pthread_mutex_lock(&m->lock);
    for (const struct family *f = m->first; f; f = f->next) {
        metrics_head(out, f->name, kind_names[f->kind], f->help);
        for (const struct metric *s = f->first; s; s = s->next) {
            if (f->kind == FAMILY_HISTOGRAM)
                render_histogram(out, f, s);
            else
                metrics_line(out, f->name, s->labels, (double)metric_value(s));
        }
    }
    n = m->n_collectors;
    (void)pthread_mutex_unlock(&m->lock);
    for (size_t i = 0; i < n; i++)
        m->collectors[i].collect(out, m->collectors[i].ctx);
}
