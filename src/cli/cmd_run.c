/*
 * `idemsink run`: start, wait for a signal or for the end, leave in order.
 *
 * Signals are blocked in every thread and taken by the main thread alone with
 * sigtimedwait(). A thread that wants the process to end sends SIGUSR2. From
 * the first stop on SIGTERM and SIGINT leave at once, and an alarm leaves when
 * the deadline has passed, whatever a library may be waiting for: a crash is a
 * tested path, so leaving without clean-up costs only work that is done again.
 */
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "cli/app.h"

enum {
    SERVICES_RETRY_MS = 1000,
    SAY_AGAIN_MS = 10000, /* what is waited for */
    AFTER_DRAIN_MS = 1500 /* for what comes behind the drain: joining, flushing, freeing */
};

static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void leave_at_once(int signal_number)
{
    (void)signal_number;
    say("idemsink: second signal: leaving at once; what is not committed will be delivered "
        "again\n");
    _exit(EXIT_DEADLINE);
}

static void leave_late(int signal_number)
{
    (void)signal_number;
    say("idemsink: shutdown deadline passed: leaving; what is not committed will be delivered "
        "again\n");
    _exit(EXIT_DEADLINE);
}

static void awaited(sigset_t *set)
{
    (void)sigemptyset(set);
    (void)sigaddset(set, SIGTERM);
    (void)sigaddset(set, SIGINT);
    (void)sigaddset(set, SIGUSR2);
}

/* Before the first thread, which inherits it. */
static void signals_block(void)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN};
    sigset_t set;

    awaited(&set);
    (void)sigaction(SIGPIPE, &ignore, NULL);
    MUST(pthread_sigmask(SIG_BLOCK, &set, NULL) == 0);
}

/* The signal that came; 0: the time is over. wait_ms < 0: without limit. */
static int signals_wait(int64_t wait_ms)
{
    struct timespec t = {.tv_sec = wait_ms / 1000, .tv_nsec = (wait_ms % 1000) * 1000000};
    sigset_t set;
    int got;

    awaited(&set);
    do {
        got = wait_ms < 0 ? sigwaitinfo(&set, NULL) : sigtimedwait(&set, NULL, &t);
    } while (got < 0 && wait_ms < 0);
    if (got == SIGTERM || got == SIGINT)
        log_info("signal: draining", LOG_TEXT("signal", got == SIGTERM ? "SIGTERM" : "SIGINT"));
    return got < 0 ? 0 : got;
}

static void wake_main(void *ctx)
{
    (void)ctx;
    (void)kill(getpid(), SIGUSR2);
}

static void deadline_arm(int64_t ms)
{
    struct sigaction second = {.sa_handler = leave_at_once}, late = {.sa_handler = leave_late};
    struct itimerval timer = {.it_value = {.tv_sec = ms / 1000, .tv_usec = (ms % 1000) * 1000}};
    sigset_t set;

    (void)sigaction(SIGTERM, &second, NULL);
    (void)sigaction(SIGINT, &second, NULL);
    (void)sigaction(SIGALRM, &late, NULL);
    (void)setitimer(ITIMER_REAL, &timer, NULL);
    awaited(&set);
    (void)sigdelset(&set, SIGUSR2);
    (void)pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

/* One attempt at the dedup indexes, in a thread of its own: making one may take hours, and finding
 * no server takes as long as the driver waits for one, while a signal is to be heard at once. */
struct proof {
    struct app *app;
    struct err e;
    bool proved;
};

static void *proof_main(void *arg)
{
    struct proof *p = arg;

    p->proved = app_prove_indexes(p->app, &p->e);
    (void)kill(getpid(), SIGUSR2); /* the one that is waited for, or it would end the run */
    return NULL;
}

static void say_stopped_early(void)
{
    log_info("stopped before anything was read",
             LOG_TEXT("waited_for", "MongoDB: the dedup indexes"));
}

/* Does not return when a signal comes: nothing has been read yet. */
static bool prove_interruptibly(struct app *a, int64_t since_ms, struct err *e)
{
    struct proof p = {.app = a};
    pthread_t thread;
    int got;

    MUST(pthread_create(&thread, NULL, proof_main, &p) == 0);
    while ((got = signals_wait(SAY_AGAIN_MS)) != SIGUSR2) {
        if (got == SIGTERM || got == SIGINT) {
            say_stopped_early();
            _exit(EXIT_FINE);
        }
        if (got == 0)
            log_info("waiting for MongoDB: the dedup indexes are looked at, or made",
                     LOG_INT("since_ms", clock_mono_ms() - since_ms));
    }
    MUST(pthread_join(thread, NULL) == 0);
    if (!p.proved)
        *e = p.e;
    return p.proved;
}

/* MongoDB may be away when the process starts: it waits for it, as it would in the middle. False:
 * stop, see *e (ERR_NONE: a signal came). */
static bool wait_for_indexes(struct app *a, struct err *e)
{
    static struct log_limit limit;
    int64_t since_ms = clock_mono_ms();

    while (!prove_interruptibly(a, since_ms, e)) {
        if (e->kind != ERR_TRANSIENT)
            return false;
        if (log_limit_pass(&limit, SAY_AGAIN_MS, NULL))
            log_warn("MongoDB can't be reached yet; waiting for it", LOG_TEXT("error", e->text),
                     LOG_INT("since_ms", clock_mono_ms() - since_ms));
        int got = signals_wait(SERVICES_RETRY_MS);
        if (got == SIGTERM || got == SIGINT) {
            say_stopped_early();
            e->kind = ERR_NONE;
            return false;
        }
    }
    return true;
}

static enum exit_code run_until_stopped(struct app *a, bool until_end)
{
    int64_t drain_ms = a->config->worker.drain_timeout_ms;
    struct err e;

    if (!wait_for_indexes(a, &e) || !app_start(a, until_end, &e)) {
        enum exit_code code = e.kind == ERR_NONE ? EXIT_FINE : cli_fail(&e);
        app_close(a);
        return code;
    }
    (void)signals_wait(-1);
    stop_ask(&a->stop, NULL);
    atomic_store(&a->phase, APP_STOPPING);
    deadline_arm(drain_ms + AFTER_DRAIN_MS);
    bool clean = app_stop(a, AFTER_DRAIN_MS / 2);
    bool failed = stop_failed(&a->stop, &e);
    run_metrics_log_books(a->run_metrics);
    if (failed)
        log_error("stopped by an error", LOG_TEXT("error", e.text));
    if (!clean) {
        if (!failed)
            log_error("shutdown deadline passed; what is not committed will be delivered again",
                      LOG_INT("deadline_ms", drain_ms));
        _exit(failed ? (int)exit_of(&e) : EXIT_DEADLINE);
    }
    app_close(a);
    return failed ? exit_of(&e) : EXIT_FINE;
}

enum exit_code cmd_run(const struct args *args)
{
    static const enum log_level levels[] = {LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN,
                                            LOG_LEVEL_ERROR};
    struct config *config = cli_config(args);
    struct app app = {0};
    struct err e;

    if (config == NULL)
        return EXIT_CONFIGURATION;
    log_setup(levels[config->log.level],
              config->log.format == CONFIG_LOG_JSON ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT);
    signals_block();
    if (!app_open(&app, config, wake_main, &e)) {
        app_close(&app);
        return cli_fail(&e);
    }
    return run_until_stopped(&app, args->until_end);
}
