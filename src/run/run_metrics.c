#include "run/run_metrics.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

static const double batch_seconds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1,
                                       0.25,  0.5,    1,     2.5,  5,     10,   30};
static const double batch_records[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};
enum { N_SECONDS = sizeof batch_seconds / sizeof batch_seconds[0] };
enum { N_RECORDS = sizeof batch_records / sizeof batch_records[0] };

const char *pipeline_outcome_name(enum pipeline_outcome outcome)
{
    static const char *const names[] = {"inserted", "duplicate", "dead_letter", "skipped"};

    return (size_t)outcome < PIPELINE_OUTCOMES ? names[outcome] : "?";
}

static void make_effects(struct run_metrics *m, struct route_metrics *r, const char *labels)
{
    r->transactions =
        metrics_counter(m->registry, "idemsink_transactions_total",
                        "Transactions with documents and their effects, committed.", labels);
    r->transaction_conflicts = metrics_counter(
        m->registry, "idemsink_transaction_conflicts_total",
        "Transactions begun again, because others moved the same documents.", labels);
    r->missing = metrics_counter(m->registry, "idemsink_counters_missing_total",
                                 "Counter documents that were not there, with upsert = false: what "
                                 "they would have got is not counted anywhere.",
                                 labels);
}

void run_metrics_effects(const struct route_metrics *r, const struct sink *sink, void *session)
{
    struct sink_effects e = {0};

    if (!r->transactions || !sink->ops->effects)
        return;
    sink->ops->effects(session, &e);
    metric_add(r->transactions, e.transactions);
    metric_add(r->transaction_conflicts, e.conflicts);
    metric_add(r->missing, e.missing);
}

static void make_route(struct run_metrics *m, struct route_metrics *r,
                       const struct config_route *route)
{
    struct buf labels = {0};

    metrics_label(&labels, "route", route->name);
    if (config_has_effects(route))
        make_effects(m, r, labels.data);
    r->batch_records =
        metrics_histogram(m->registry, "idemsink_batch_records", "Operations in a bulk write.",
                          labels.data, batch_records, N_RECORDS);
    r->batch_seconds = metrics_histogram(m->registry, "idemsink_batch_seconds",
                                         "From the start of a bulk write to its judgement.",
                                         labels.data, batch_seconds, N_SECONDS);
    r->conflicts =
        metrics_counter(m->registry, "idemsink_conflicts_total",
                        "Records whose dedup key is there with another payload.", labels.data);
    for (size_t i = 0; i < PIPELINE_OUTCOMES; i++) {
        struct buf both = {0};

        buf_add(&both, labels.data, labels.len);
        metrics_label(&both, "outcome", pipeline_outcome_name((enum pipeline_outcome)i));
        r->outcomes[i] = metrics_counter(m->registry, "idemsink_records_total",
                                         "Records by route and what became of them.", both.data);
        buf_clear(&both);
    }
    buf_clear(&labels);
}

static struct metric *labelled(struct metrics *registry, const char *name, const char *help,
                               const char *label, const char *value)
{
    struct buf labels = {0};
    struct metric *s;

    metrics_label(&labels, label, value);
    s = metrics_counter(registry, name, help, labels.data);
    buf_clear(&labels);
    return s;
}

/* The partitions' figures are read from the pipeline at the moment of asking. */
struct slot_family {
    const char *name, *kind, *help;
};
static const struct slot_family slot_families[] = {
    {"idemsink_partition_consumed_total", "counter", "Records read of a partition."},
    {"idemsink_partition_records_total", "counter",
     "Records of a partition by what became of them; with the open ones their sum is what was "
     "consumed."},
    {"idemsink_committed_offset", "gauge",
     "What the group has committed, as last acknowledged or found."},
    {"idemsink_watermark_offset", "gauge", "What may be committed: all below it is settled."},
    {"idemsink_position_offset", "gauge", "The next offset to be read."},
    {"idemsink_lag_records", "gauge",
     "End of the partition as last seen, less the committed offset."},
    {"idemsink_open_records", "gauge", "Read and not settled."},
    {"idemsink_oldest_pending_age_seconds", "gauge",
     "For how long the record that holds the committable offset has been here; 0 when none is "
     "open."},
    {"idemsink_dead_letters_waiting", "gauge",
     "Records whose dead letter was not acknowledged yet: their partition is not committed past "
     "them."},
};
enum slot_family_name {
    F_CONSUMED,
    F_RECORDS,
    F_COMMITTED,
    F_WATERMARK,
    F_POSITION,
    F_LAG,
    F_OPEN,
    F_OLDEST,
    F_LETTERS,
    F_COUNT
};

static void slot_outcomes(struct buf *out, const char *labels, const struct pipeline_slot_stats *s)
{
    struct buf line = {0};
    const char *const names[] = {"late", "dropped"};
    const uint64_t values[] = {s->late, s->dropped};

    for (size_t i = 0; i < PIPELINE_OUTCOMES; i++) {
        buf_reset(&line);
        buf_add_text(&line, labels);
        metrics_label(&line, "outcome", pipeline_outcome_name((enum pipeline_outcome)i));
        metrics_line(out, slot_families[F_RECORDS].name, line.data, (double)s->outcomes[i]);
    }
    for (size_t i = 0; i < 2; i++) {
        buf_reset(&line);
        buf_add_text(&line, labels);
        metrics_label(&line, "outcome", names[i]);
        metrics_line(out, slot_families[F_RECORDS].name, line.data, (double)values[i]);
    }
    buf_clear(&line);
}

static void slot_line(struct buf *out, enum slot_family_name family, const char *labels,
                      const struct pipeline_slot_stats *s, int64_t end)
{
    const char *name = slot_families[family].name;

    switch (family) {
    case F_CONSUMED:
        metrics_line(out, name, labels, (double)s->consumed);
        break;
    case F_RECORDS:
        slot_outcomes(out, labels, s);
        break;
    case F_COMMITTED:
        if (s->committed >= 0)
            metrics_line(out, name, labels, (double)s->committed);
        break;
    case F_WATERMARK:
        if (s->watermark >= 0)
            metrics_line(out, name, labels, (double)s->watermark);
        break;
    case F_POSITION:
        if (s->position >= 0)
            metrics_line(out, name, labels, (double)s->position);
        break;
    case F_LAG: /* absent while unknown: neither 0 nor -1 would be true */
        if (end >= 0 && s->committed >= 0)
            metrics_line(out, name, labels, (double)(end > s->committed ? end - s->committed : 0));
        break;
    case F_OPEN:
        metrics_line(out, name, labels, (double)s->open);
        break;
    case F_OLDEST:
        metrics_line(out, name, labels,
                     s->oldest_at_ms > 0 ? (double)(clock_mono_ms() - s->oldest_at_ms) / 1000.0
                                         : 0);
        break;
    case F_LETTERS:
        metrics_line(out, name, labels, (double)s->letters);
        break;
    case F_COUNT:
        break;
    }
}

static struct pipeline_slot_stats *read_slots(struct pipeline *p, struct pipeline_stats *stats,
                                              size_t *n)
{
    struct pipeline_slot_stats *slots;

    pipeline_stats(p, stats, NULL, 0);
    slots = mem_array(stats->n_slots, sizeof *slots);
    *n = stats->n_slots;
    pipeline_stats(p, stats, slots, *n);
    return slots;
}

static void collect_slots(struct buf *out, const struct run_metrics *m,
                          const struct pipeline_slot_stats *slots, size_t n)
{
    struct buf labels = {0};

    for (int family = 0; family < F_COUNT; family++) {
        metrics_head(out, slot_families[family].name, slot_families[family].kind,
                     slot_families[family].help);
        for (size_t i = 0; i < n; i++) {
            const char *topic;
            int32_t partition;

            if (!slots[i].assigned &&
                family > F_RECORDS) /* a stale series would read as a stuck partition */
                continue;
            m->source.ops->slot_name(m->source.self, slots[i].slot, &topic, &partition);
            buf_reset(&labels);
            metrics_label(&labels, "topic", topic);
            buf_printf(&labels, ",partition=\"%d\"", (int)partition);
            slot_line(out, (enum slot_family_name)family, labels.data, &slots[i],
                      family == F_LAG ? m->source.ops->slot_end(m->source.self, slots[i].slot)
                                      : -1);
        }
    }
    buf_clear(&labels);
}

static void collect(struct buf *out, void *ctx)
{
    const struct run_metrics *m = ctx;
    struct pipeline_stats stats;
    size_t n;
    struct pipeline_slot_stats *slots = read_slots(m->pipeline, &stats, &n);
    const struct {
        const char *name, *help;
        size_t value;
    } gauges[] = {
        {"idemsink_queue_records", "Read and waiting for a worker.", stats.sched.queued},
        {"idemsink_open_bytes", "Bytes of all records that are read and not settled.",
         stats.open_bytes},
        {"idemsink_in_flight_records", "With a worker now.", stats.in_flight},
        {"idemsink_lanes", "Ordering keys with records here.", stats.sched.lanes},
        {"idemsink_lanes_delayed", "Ordering keys that wait for another attempt.",
         stats.sched.delayed},
    };

    for (size_t i = 0; i < sizeof gauges / sizeof gauges[0]; i++) {
        metrics_head(out, gauges[i].name, "gauge", gauges[i].help);
        metrics_line(out, gauges[i].name, "", (double)gauges[i].value);
    }
    collect_slots(out, m, slots, n);
    mem_free(slots);
}

struct run_metrics *run_metrics_new(struct metrics *registry, const struct config *c,
                                    struct pipeline *p, struct source source)
{
    struct run_metrics *m = mem_new(sizeof *m);

    m->registry = registry;
    m->pipeline = p;
    m->source = source;
    m->routes = mem_array(c->n_routes, sizeof *m->routes);
    for (size_t i = 0; i < c->n_routes; i++)
        make_route(m, &m->routes[i], &c->routes[i]);
    for (int i = RETRY_NONE + 1; i < RETRY_CLASSES; i++)
        m->retries[i] = labelled(registry, "idemsink_retries_total", "Records sent again, by why.",
                                 "class", retry_class_name((enum retry_class)i));
    m->retries[RETRY_NONE] = m->retries[RETRY_OTHER];
    for (int i = REASON_NONE + 1; i < REASON_COUNT; i++)
        m->dead_letters[i] = labelled(registry, "idemsink_dead_letters_total",
                                      "Records that can never be stored, by reason.", "reason",
                                      reason_name((enum reason)i));
    m->commits_ok =
        labelled(registry, "idemsink_commits_total", "Offset commits by result.", "result", "ok");
    m->commits_failed = labelled(registry, "idemsink_commits_total", "Offset commits by result.",
                                 "result", "failed");
    for (int i = 0; i < MOVES; i++) {
        static const char *const moves[MOVES] = {"assigned", "revoked", "lost"};

        m->rebalances[i] = labelled(registry, "idemsink_rebalances_total",
                                    "Assignments that came and went.", "type", moves[i]);
        m->partitions[i] = labelled(registry, "idemsink_partition_moves_total",
                                    "Partitions that came and went.", "type", moves[i]);
    }
    m->rewritten_logs = metrics_counter(
        registry, "idemsink_rewritten_logs_total",
        "Logs that end before what was committed (topic created anew, or cut).", "");
    metrics_collector(registry, collect, m);
    return m;
}

void run_metrics_free(struct run_metrics *m)
{
    if (m == NULL)
        return;
    mem_free(m->routes);
    mem_free(m);
}

void run_metrics_log_books(const struct run_metrics *m)
{
    struct pipeline_stats stats;
    size_t n;
    struct pipeline_slot_stats *slots = read_slots(m->pipeline, &stats, &n);
    struct pipeline_slot_stats sum = {0};

    for (size_t i = 0; i < n; i++) {
        const struct pipeline_slot_stats *s = &slots[i];
        const char *topic;
        int32_t partition;

        m->source.ops->slot_name(m->source.self, s->slot, &topic, &partition);
        log_info("books of a partition", LOG_TEXT("topic", topic), LOG_INT("partition", partition),
                 LOG_INT("consumed", s->consumed),
                 LOG_INT("inserted", s->outcomes[PIPELINE_INSERTED]),
                 LOG_INT("duplicate", s->outcomes[PIPELINE_DUPLICATE]),
                 LOG_INT("dead_letter", s->outcomes[PIPELINE_DEAD]),
                 LOG_INT("skipped", s->outcomes[PIPELINE_SKIPPED]), LOG_INT("late", s->late),
                 LOG_INT("dropped", s->dropped), LOG_INT("open", s->open));
        sum.consumed += s->consumed;
        sum.late += s->late;
        sum.dropped += s->dropped;
        sum.open += s->open;
        for (size_t k = 0; k < PIPELINE_OUTCOMES; k++)
            sum.outcomes[k] += s->outcomes[k];
    }
    log_info("books", LOG_INT("consumed", sum.consumed),
             LOG_INT("inserted", sum.outcomes[PIPELINE_INSERTED]),
             LOG_INT("duplicate", sum.outcomes[PIPELINE_DUPLICATE]),
             LOG_INT("dead_letter", sum.outcomes[PIPELINE_DEAD]),
             LOG_INT("skipped", sum.outcomes[PIPELINE_SKIPPED]), LOG_INT("late", sum.late),
             LOG_INT("dropped", sum.dropped), LOG_INT("open", sum.open));
    mem_free(slots);
}
