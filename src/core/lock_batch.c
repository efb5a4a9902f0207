#include "core/lock_batch.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

struct wish {
    const char *key;
    size_t op;
};

struct lock_batch {
    const struct write_op *ops;
    size_t n, n_keys, cap;
    struct wish *wishes; /* sorted */
    const char **keys;
    size_t *key_of;
    const void **waiting; /* open addressing: lanes whose rest has to wait */
    size_t n_buckets;     /* a power of two, at least twice cap */
};

struct lock_batch *lock_batch_new(void)
{
    return mem_new(sizeof(struct lock_batch));
}

void lock_batch_free(struct lock_batch *b)
{
    if (b == NULL)
        return;
    mem_free(b->wishes);
    mem_free(b->keys);
    mem_free(b->key_of);
    mem_free(b->waiting);
    mem_free(b);
}

static void reserve(struct lock_batch *b, size_t n)
{
    if (n <= b->cap)
        return;
    b->cap = n;
    b->wishes = mem_grow(b->wishes, n, sizeof *b->wishes);
    b->keys = mem_grow(b->keys, n, sizeof *b->keys);
    b->key_of = mem_grow(b->key_of, n, sizeof *b->key_of);
    for (b->n_buckets = 2; b->n_buckets < 2 * n; b->n_buckets *= 2)
        ;
    b->waiting = mem_grow(b->waiting, b->n_buckets, sizeof *b->waiting);
}

static int by_key(const void *left, const void *right)
{
    return strcmp(((const struct wish *)left)->key, ((const struct wish *)right)->key);
}

void lock_batch_begin(struct lock_batch *b, const struct write_op *ops, size_t n)
{
    reserve(b, n);
    b->ops = ops;
    b->n = n;
    b->n_keys = 0;
    for (size_t i = 0; i < n; i++)
        b->wishes[i] = (struct wish){.key = ops[i].lock, .op = i};
    if (n > 0)
        qsort(b->wishes, n, sizeof *b->wishes, by_key);
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || strcmp(b->wishes[i].key, b->wishes[i - 1].key) != 0)
            b->keys[b->n_keys++] = b->wishes[i].key;
        b->key_of[b->wishes[i].op] = b->n_keys - 1;
    }
}

const char *const *lock_batch_keys(const struct lock_batch *b, size_t *n)
{
    *n = b->n_keys;
    return b->keys;
}

size_t lock_batch_key_of(const struct lock_batch *b, size_t i)
{
    return b->key_of[i];
}

/* The place of a lane in the table: its own, or an empty one. */
static const void **place_of(struct lock_batch *b, const void *lane)
{
    uint64_t hash = (uint64_t)(uintptr_t)lane * UINT64_C(0x9E3779B97F4A7C15);
    size_t i = (size_t)(hash >> 32) & (b->n_buckets - 1);

    while (b->waiting[i] != NULL && b->waiting[i] != lane)
        i = (i + 1) & (b->n_buckets - 1);
    return &b->waiting[i];
}

size_t lock_batch_ready(struct lock_batch *b, const bool *given, bool *ready, bool *needed)
{
    size_t n = 0;

    memset(b->waiting, 0, b->n_buckets * sizeof *b->waiting);
    memset(needed, 0, b->n_keys * sizeof *needed);
    for (size_t i = 0; i < b->n; i++) {
        const void *lane = b->ops[i].lane;

        ready[i] = given[b->key_of[i]] && (lane == NULL || *place_of(b, lane) == NULL);
        if (ready[i]) {
            needed[b->key_of[i]] = true;
            n++;
        } else if (lane != NULL) {
            *place_of(b, lane) = lane;
        }
    }
    return n;
}

void lock_batch_part(struct write_op *ops, size_t *index, const bool *ready, size_t n)
{
    struct write_op *rest = mem_array(n, sizeof *rest);
    size_t *rest_index = mem_array(n, sizeof *rest_index);
    size_t front = 0, n_rest = 0;

    for (size_t i = 0; i < n; i++) {
        if (ready[i]) {
            ops[front] = ops[i];
            if (index)
                index[front] = index[i];
            front++;
        } else {
            rest[n_rest] = ops[i];
            rest_index[n_rest++] = index ? index[i] : 0;
        }
    }
    for (size_t i = 0; i < n_rest; i++) {
        ops[front + i] = rest[i];
        if (index)
            index[front + i] = rest_index[i];
    }
    mem_free(rest);
    mem_free(rest_index);
}
