/*
 * fault.c - see fault.h.
 */
#include "base/fault.h"

#ifdef IDEMSINK_FAULTS

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static struct {
    const char *name; /* NULL: none was asked for */
    size_t name_len;
    int signal;
    atomic_long left; /* how often the point is passed by before */
} fault;

static void read_environment(void)
{
    const char *text = getenv("IDEMSINK_FAULT"), *rest;
    char *end = NULL;
    long times = 1;

    if (text == NULL || *text == '\0')
        return;
    fault.name_len = strcspn(text, ":");
    rest = text + fault.name_len;
    if (*rest == ':')
        times = strtol(rest + 1, &end, 10);
    atomic_init(&fault.left, times - 1);
    fault.signal = end != NULL && strcmp(end, ":stop") == 0 ? SIGSTOP : SIGKILL;
    fault.name = text;
}

void fault_point(const char *name)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, read_environment);
    if (fault.name == NULL || strlen(name) != fault.name_len ||
        strncmp(name, fault.name, fault.name_len) != 0)
        return;
    if (atomic_fetch_sub(&fault.left, 1) == 0)
        (void)raise(fault.signal); /* this very thread: sent to the process, another one may be
                                      asked to stop it, and this one goes on meanwhile */
}

#endif
