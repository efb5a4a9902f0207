#include "run/daemon.h"

#include <pthread.h>

#include "base/mem.h"

struct daemon {
    struct daemon_parts parts;
    pthread_t intake;
    pthread_t *workers;
    size_t n_workers;
};

struct daemon *daemon_start(const struct daemon_parts *parts)
{
    struct daemon *d = mem_new(sizeof *d);

    d->parts = *parts;
    d->n_workers = (size_t)parts->shared->config->worker.threads;
    d->workers = mem_array(d->n_workers, sizeof *d->workers);
    for (size_t i = 0; i < d->n_workers; i++)
        MUST(pthread_create(&d->workers[i], NULL, worker_main, parts->shared) == 0);
    MUST(pthread_create(&d->intake, NULL, intake_main, parts->intake) == 0);
    return d;
}

bool daemon_stop(struct daemon *d)
{
    MUST(pthread_join(d->intake, NULL) == 0);
    pipeline_stop(d->parts.shared->pipeline);
    if (!intake_clean(d->parts.intake))
        return false;
    for (size_t i = 0; i < d->n_workers; i++)
        MUST(pthread_join(d->workers[i], NULL) == 0);
    mem_free(d->workers);
    mem_free(d);
    return true;
}
