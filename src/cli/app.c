#include "cli/app.h"

#include <jansson.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/secret.h"
#include "cli/needs.h"
#include "cli/reconcile_job.h"
#include "cli/sweep.h"

enum {
    HEARTBEAT_MAX_MS = 60000, /* beside what a drain may take */
    REDIS_PATIENCE_MS = 10000 /* a restart of Redis is not worth a red light */
};

static void page_metrics(struct buf *out, void *ctx)
{
    struct app *a = ctx;

    metrics_render(a->metrics, out);
}

static bool page_healthy(struct buf *why, void *ctx)
{
    struct app *a = ctx;

    if (atomic_load(&a->phase) == APP_RUNNING &&
        !intake_alive(a->intake, HEARTBEAT_MAX_MS + a->config->worker.drain_timeout_ms)) {
        buf_add_text(why, "the intake thread is stuck");
        return false;
    }
    buf_add_text(why, "ok");
    return true;
}

static bool page_ready(struct buf *why, void *ctx)
{
    struct app *a = ctx;
    struct kafka_health health;
    struct pipeline_stats stats;
    int phase = atomic_load(&a->phase);

    if (phase != APP_RUNNING) {
        buf_add_text(why, phase == APP_STARTING ? "starting: the dedup indexes are not proved yet"
                                                : "stopping");
        return false;
    }
    kafka_source_health(&a->source, &health);
    if (health.problem[0]) {
        buf_add_text(why, "kafka: ");
        secret_hide(health.problem, why); /* librdkafka's words */
        return false;
    }
    if (!health.joined) {
        buf_add_text(why, "not in the consumer group yet");
        return false;
    }
    pipeline_stats(a->pipeline, &stats, NULL, 0);
    /* Without records nothing would ever clear it. */
    if (stats.open > 0 && route_state_describe(a->routes, why))
        return false;
    if (atomic_load(&a->shared.dead_letters_at_ms) != 0 && stats.open > 0) {
        buf_printf(
            why,
            "dead letters are not acknowledged by topic %s: is it there? idemsink init makes it",
            a->config->dead_letter.topic);
        return false;
    }
    if (a->notifier && notifier_stuck(a->notifier, REDIS_PATIENCE_MS, why))
        return false;
    buf_printf(why, "ok, %zu partition%s", health.assigned, health.assigned == 1 ? "" : "s");
    return true;
}

static void wake_source(void *ctx)
{
    struct app *a = ctx;

    a->source.ops->wake(a->source.self);
}

static void build_info(struct app *a)
{
    struct buf labels = {0};

    metrics_label(&labels, "version", IDEMSINK_VERSION);
    metrics_label(&labels, "librdkafka", kafka_library_version());
    metrics_label(&labels, "libmongoc", mongo_library_version());
    metric_set(metrics_gauge(a->metrics, "idemsink_build_info",
                             "Always 1; the versions are in the labels.", labels.data),
               1);
    buf_clear(&labels);
}

static struct pipeline *make_pipeline(struct app *a)
{
    const struct config *c = a->config;
    struct pipeline_limits limits = {.max_records = (size_t)c->worker.max_records,
                                     /* the other half is librdkafka's prefetch */
                                     .max_bytes = (size_t)c->worker.max_bytes / 2,
                                     .routes = c->n_routes,
                                     .run_max = (size_t)c->worker.run_max,
                                     .wake = wake_source,
                                     .wake_ctx = a,
                                     .held = route_state_held(a->routes)};

    return pipeline_new(&limits);
}

bool app_open(struct app *a, struct config *config, void (*on_stop)(void *ctx), struct err *e)
{
    struct http_pages pages = {
        .metrics = page_metrics, .healthy = page_healthy, .ready = page_ready, .ctx = a};

    a->config = config;
    stop_init(&a->stop, on_stop, NULL);
    a->metrics = metrics_new();
    build_info(a);
    a->instance_id = cli_instance_id(config);
    a->mappings = cli_mappings(config, a->instance_id, e);
    if (a->mappings == NULL)
        return false;
    a->mongo = mongo_new(config, e);
    if (a->mongo == NULL || !kafka_deadletter_new(config, &a->deadletter, e))
        return false;
    if (config->redis.uri[0] && !redis_bus_new(config, &a->bus, e))
        return false;
    if (config->redis.uri[0] && !redis_lock_new(config, &a->lock, e))
        return false;
    a->routes = route_state_new(config, a->metrics);
    a->pipeline = make_pipeline(a);
    if (config->http.listen[0]) {
        a->http = http_start(config->http.listen, &pages, e);
        if (a->http == NULL)
            return false;
        log_info("listening", LOG_TEXT("address", config->http.listen),
                 LOG_INT("port", http_port(a->http)));
    }
    return true;
}

bool app_prove_indexes(struct app *a, struct err *e)
{
    return mongo_decide_ways(a->mongo, e) && needs_prove(a->mongo, a->config, e) &&
           mongo_finish_open(a->mongo, e);
}

void app_add_chore(struct app *a, const struct chore *job)
{
    MUST(a->n_jobs < APP_CHORES_MAX && a->chores == NULL);
    a->jobs[a->n_jobs++] = *job;
}

/* What others have seen is about one collection, and not about another one of the same name. */
static void find_identity(struct app *a, const struct config_route *r, struct seen_identity *out)
{
    bool ledger = config_has_operation(r);
    struct err e;

    if (!config_shares_seen(r))
        return;
    out->known =
        mongo_collection_uuid(a->mongo, ledger ? r->operation.ledger_database : r->database,
                              ledger ? r->operation.ledger : r->collection, out->uuid, &e);
    if (!out->known)
        log_warn("seen.redis is not used until the next start: without the UUID of the collection "
                 "what others have seen could be about another one",
                 LOG_TEXT("route", r->name), LOG_TEXT("error", e.text));
}

static struct seen_cache *open_seen(struct app *a)
{
    const struct config *c = a->config;
    struct seen_identity *identities = mem_array(c->n_routes, sizeof *identities);
    struct seen_cache_options o = {
        .config = c, .identities = identities, .store = a->seen_store, .metrics = a->metrics};

    for (size_t i = 0; i < c->n_routes; i++)
        find_identity(a, &c->routes[i], &identities[i]);
    struct seen_cache *made = seen_cache_new(&o);
    mem_free(identities);
    return made;
}

static bool open_seen_store(struct app *a, struct err *e)
{
    bool any = false;

    for (size_t i = 0; i < a->config->n_routes; i++)
        any = any || config_shares_seen(&a->config->routes[i]);
    return !any || redis_seen_new(a->config, &a->seen_store, e);
}

static bool start_listening(struct app *a, struct err *e)
{
    struct seen_listener_options o = {.config = a->config,
                                      .cache = a->seen,
                                      .instance_id = a->instance_id,
                                      .metrics = a->metrics};
    size_t n;
    const char **channels = seen_listener_channels(a->config, &n);
    bool ok = n == 0 || redis_listener_new(a->config, channels, n, &a->listener, e);

    mem_free(channels);
    o.listener = a->listener;
    if (ok && n > 0)
        a->seen_listener = seen_listener_start(&o);
    return ok;
}

bool app_start(struct app *a, bool until_end, struct err *e)
{
    struct intake_options options = {.config = a->config,
                                     .mappings = a->mappings,
                                     .pipeline = a->pipeline,
                                     .stop = &a->stop,
                                     .until_end = until_end};
    struct source_events events;

    a->intake = intake_new(&options);
    events = intake_events(a->intake);
    if (!kafka_source_new(a->config, &events, &a->source, e))
        return false;
    a->run_metrics = run_metrics_new(a->metrics, a->config, a->pipeline, a->source);
    intake_connect(a->intake, a->source, a->run_metrics);
    if (a->bus.ops && (config_has_invalidations(a->config) || config_has_mirrors(a->config)))
        a->notifier = notifier_new(a->config, a->mappings, a->bus, a->pipeline, a->metrics);
    if (!open_seen_store(a, e))
        return false;
    a->shared.config = a->config;
    a->shared.mappings = a->mappings;
    a->shared.pipeline = a->pipeline;
    a->shared.sink = mongo_sink(a->mongo);
    a->guards = guards_new(a->config, a->lock, a->metrics, &a->stop);
    a->shared.guards = a->guards;
    a->shared.deadletter = a->deadletter;
    a->shared.notifier = a->notifier;
    a->shared.seen = a->seen = open_seen(a);
    if (!start_listening(a, e))
        return false;
    a->shared.metrics = a->run_metrics;
    a->shared.routes = a->routes;
    a->shared.stop = &a->stop;
    app_log_start(a);
    struct daemon_parts parts = {.intake = a->intake, .shared = &a->shared};
    a->daemon = daemon_start(&parts);
    a->sweep = sweep_new(a->mongo, a->config, a->instance_id, a->metrics);
    if (a->sweep) {
        struct chore sweep = sweep_chore(a->sweep);
        app_add_chore(a, &sweep);
    }
    a->reconcile = reconcile_job_new(a->mongo, a->config, a->instance_id, a->notifier, a->metrics);
    if (a->reconcile) {
        struct chore reconcile = reconcile_job_chore(a->reconcile);
        app_add_chore(a, &reconcile);
    }
    if (a->n_jobs > 0)
        a->chores = chores_start(a->jobs, a->n_jobs);
    atomic_store(&a->phase, APP_RUNNING);
    return true;
}

void app_log_start(const struct app *a)
{
    static const char *const writes[] = {"upsert", "insert", "auto"};
    static const char *const conflicts[] = {"off", "count", "dead_letter"};
    const struct config *c = a->config;

    log_info(
        "started", LOG_TEXT("version", IDEMSINK_VERSION),
        LOG_TEXT("librdkafka", kafka_library_version()),
        LOG_TEXT("libmongoc", mongo_library_version()), LOG_TEXT("jansson", jansson_version_str()),
        LOG_TEXT("hiredis_built_with", redis_library_version()), LOG_TEXT("group", c->kafka.group),
        LOG_TEXT("brokers", c->kafka.brokers), LOG_INT("threads", c->worker.threads),
        LOG_TEXT("write_concern", c->mongo.write_concern),
        LOG_TEXT("journal", c->mongo.journal ? "yes" : "no"),
        LOG_TEXT("dead_letter_topic", c->dead_letter.topic));
    for (size_t i = 0; i < c->n_routes; i++) {
        const struct config_route *r = &c->routes[i];
        struct buf topics = {0}, key = {0};

        for (size_t k = 0; k < r->topics.n; k++)
            buf_printf(&topics, "%s%s", k ? " " : "", r->topics.items[k]);
        for (size_t k = 0; k < r->dedup.key.n; k++)
            buf_printf(&key, "%s%s", k ? " " : "", r->dedup.key.items[k]);
        log_info("route", LOG_TEXT("name", r->name), LOG_TEXT("topics", buf_text(&topics)),
                 LOG_TEXT("database", r->database), LOG_TEXT("collection", r->collection),
                 LOG_TEXT("dedup_key", buf_text(&key)),
                 LOG_TEXT("stored_in", config_has_operation(r) ? "ledger"
                                       : r->dedup.into_id      ? "_id"
                                                               : "fields"),
                 LOG_TEXT("order_by", r->order_by),
                 LOG_TEXT("write", config_has_effects(r) ? "with effects" : writes[r->write]),
                 LOG_TEXT("conflict", conflicts[r->dedup.conflict]),
                 LOG_TEXT("dedup_index", r->trust_index ? "trusted" : "proved"));
        buf_clear(&topics);
        buf_clear(&key);
        needs_log_effects(r);
    }
}

bool app_stop(struct app *a, int64_t notifier_ms)
{
    if (a->chores)
        chores_ask_stop(a->chores); /* they come to their end while the records are drained */
    bool clean = daemon_stop(a->daemon);

    a->daemon = NULL;
    if (!clean)
        return false;
    clean = chores_stop(a->chores, notifier_ms); /* the last of them may have repaired a mirror */
    if (a->notifier)
        clean = notifier_stop(a->notifier, notifier_ms) && clean;
    return clean;
}

void app_close(struct app *a)
{
    if (a->http)
        http_stop(a->http);
    sweep_free(a->sweep);
    reconcile_job_free(a->reconcile);
    notifier_free(a->notifier);
    seen_listener_stop(a->seen_listener);
    redis_listener_free(&a->listener);
    seen_cache_free(a->seen);
    redis_seen_free(&a->seen_store);
    guards_free(a->guards);
    kafka_deadletter_free(&a->deadletter);
    kafka_source_free(&a->source);
    redis_bus_free(&a->bus);
    if (a->pipeline)
        pipeline_free(a->pipeline);
    mongo_free(a->mongo);
    intake_free(a->intake);
    run_metrics_free(a->run_metrics);
    route_state_free(a->routes);
    metrics_free(a->metrics);
    if (a->config)
        cli_mappings_free(a->mappings, a->config->n_routes);
    mem_free(a->instance_id);
    stop_clear(&a->stop);
    config_free(a->config);
}
