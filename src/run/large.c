#include "run/large.h"

#include <pthread.h>

#include "base/err.h"
#include "base/mem.h"

/* Below, all threads together hold little: four with trees of 80 times this have 80 MiB. */
enum { LARGE_BYTES = 256 * 1024 };

/* From here on the allocator is asked to give the tree back: it would keep it for the thread, so
 * that each had the memory of the largest it ever saw (measured: 875 MiB with four threads and 10
 * MB of objects, 367 with this). For smaller ones that costs more than it saves. */
enum { TRIM_BYTES = 1024 * 1024 };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void large_begin(const struct record *r)
{
    if (r->value.len >= LARGE_BYTES)
        MUST(pthread_mutex_lock(&lock) == 0);
}

void large_end(const struct record *r)
{
    if (r->value.len < LARGE_BYTES)
        return;
    if (r->value.len >= TRIM_BYTES)
        mem_trim();
    MUST(pthread_mutex_unlock(&lock) == 0);
}
