/*
 * fake_log.h - partitions full of records, made from a seed.
 *
 * Offsets have gaps, batches end with markers that are no records, few keys are
 * much used (Zipf), some records repeat the dedup key of an earlier one of
 * their lane, some can never be stored. Partition 0 is one single lane; a few
 * records elsewhere have no ordering key at all.
 *
 * The memory is there from the start, so that workers may read entries while
 * the intake thread adds others.
 */
#ifndef IDEMSINK_TESTS_FAKE_LOG_H
#define IDEMSINK_TESTS_FAKE_LOG_H

#include "core/record.h"
#include "fakes/dice.h"

enum {
    FAKE_PARTITIONS = 6,
    FAKE_LANES = 100, /* of each partition */
    FAKE_ROUTES = 2
};
#define FAKE_NONE UINT32_MAX

struct fake_entry {
    int64_t offset;
    uint32_t lane;   /* FAKE_NONE: without an ordering key */
    uint32_t before; /* index of the entry before it in its lane, or FAKE_NONE */
    uint32_t first; /* index of the first entry with its dedup key; its own unless it repeats one */
    bool bad;       /* can never be stored */
};

struct fake_partition {
    struct fake_entry *entries;
    uint32_t n;
    int64_t end; /* one past the last thing in the log, record or marker */
    uint32_t last_of_lane[FAKE_LANES];
};

struct fake_log {
    struct fake_partition partitions[FAKE_PARTITIONS];
    uint32_t max; /* entries of one partition */
    double weights[FAKE_LANES];
};

struct fake_log *fake_log_new(uint32_t max);
void fake_log_free(struct fake_log *log);

/* Appends about n entries and perhaps markers. Intake thread. False: the log is full. */
bool fake_log_grow(struct fake_log *log, uint32_t partition, uint32_t n, struct dice *dice);

/* The first entry at or above offset. */
uint32_t fake_log_find(const struct fake_log *log, uint32_t partition, int64_t offset);

/* A slot is not a partition number, and slots have gaps. */
uint32_t fake_slot(uint32_t partition);
uint32_t fake_partition_of(uint32_t slot);

/* The record as a source delivers it; and what the mapping adds: route and ordering key. */
struct record *fake_log_record(const struct fake_log *log, uint32_t partition, uint32_t index);
void fake_log_order(const struct fake_log *log, struct record *r);

/* Which entry r is. */
uint32_t fake_log_index(const struct record *r);
const struct fake_entry *fake_log_entry(const struct fake_log *log, const struct record *r);

#endif
