/*
 * mem.h - memory that is always there.
 *
 * Exhaustion is a crash: libbson's and librdkafka's own allocators abort, so
 * the process could not survive it anyway, and an abort is safe (uncommitted
 * offsets are replayed, writes are idempotent). The budgets of worker.max_bytes
 * keep it from being reached. Everything is released with mem_free().
 */
#ifndef IDEMSINK_BASE_MEM_H
#define IDEMSINK_BASE_MEM_H

#include <stddef.h>

void *mem_new(size_t size);                       /* zeroed */
void *mem_array(size_t n, size_t size);           /* zeroed; aborts when n * size overflows */
void *mem_grow(void *old, size_t n, size_t size); /* realloc to n elements; new ones not zeroed */
char *mem_text(const char *s);                    /* a copy; NULL for NULL */
char *mem_text_n(const char *s, size_t len);      /* a copy of len bytes and a NUL behind them */
char *mem_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void mem_free(void *p); /* NULL is fine */

/* Gives back to the system what the allocator keeps of freed memory, for all threads. It costs
 * about a millisecond for 10 MB of small blocks. Without glibc it does nothing. */
void mem_trim(void);

#endif
