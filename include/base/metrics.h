/*
 * metrics.h - counters, gauges and histograms in Prometheus' text format.
 *
 * A series is looked up or made once (a lock) and then moved without one:
 * adding is one atomic addition. Reading is approximate but never torn.
 * What is known only at the moment of reading (offsets, queue sizes) is written
 * by a collector that is called at each rendering.
 */
#ifndef IDEMSINK_BASE_METRICS_H
#define IDEMSINK_BASE_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

struct metrics;
struct metric; /* one series; lives as long as its metrics */

struct metrics *metrics_new(void);
void metrics_free(struct metrics *m);

/*
 * The series of this name and labels (`route="orders",outcome="inserted"`, or
 * "" for none; label values escaped by metrics_label()). name, help and labels
 * are copied. One name has one kind and one help text.
 */
struct metric *metrics_counter(struct metrics *m, const char *name, const char *help,
                               const char *labels);
struct metric *metrics_gauge(struct metrics *m, const char *name, const char *help,
                             const char *labels);
/* bounds: upper limits, ascending, n of them; +Inf is added. The unit is the caller's (seconds: as
 * doubles). */
struct metric *metrics_histogram(struct metrics *m, const char *name, const char *help,
                                 const char *labels, const double *bounds, size_t n);

/* Any thread. */
void metric_add(struct metric *s, int64_t n);        /* counter, gauge */
void metric_set(struct metric *s, int64_t value);    /* gauge */
void metric_observe(struct metric *s, double value); /* histogram */
int64_t metric_value(const struct metric *s);

/* Appends name="value" to b, with a comma in front when b is not empty; escaped. */
void metrics_label(struct buf *b, const char *name, const char *value);

/* Called at every rendering with m's own lock not held; writes whole families with metrics_head()
 * and metrics_line(). */
typedef void metrics_collect_fn(struct buf *out, void *ctx);
void metrics_collector(struct metrics *m, metrics_collect_fn *collect, void *ctx);
void metrics_head(struct buf *out, const char *name, const char *kind, const char *help);
void metrics_line(struct buf *out, const char *name, const char *labels, double value);

/* The whole page. Any thread. */
void metrics_render(struct metrics *m, struct buf *out);

#endif
