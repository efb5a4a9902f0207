#include "fakes/fake_log.h"

#include <string.h>

#include "base/mem.h"

enum { LONGEST_PADDING = 80 };

struct fake_log *fake_log_new(uint32_t max)
{
    struct fake_log *log = mem_new(sizeof(*log));
    double sum = 0;

    log->max = max;
    for (size_t i = 0; i < FAKE_PARTITIONS; i++) {
        struct fake_partition *p = &log->partitions[i];

        p->entries = mem_array(max, sizeof(*p->entries));
        for (size_t lane = 0; lane < FAKE_LANES; lane++)
            p->last_of_lane[lane] = FAKE_NONE;
    }
    for (size_t lane = 0; lane < FAKE_LANES; lane++)
        log->weights[lane] = sum += 1.0 / (double)(lane + 1);
    for (size_t lane = 0; lane < FAKE_LANES; lane++)
        log->weights[lane] /= sum;
    return log;
}

void fake_log_free(struct fake_log *log)
{
    for (size_t i = 0; i < FAKE_PARTITIONS; i++)
        mem_free(log->partitions[i].entries);
    mem_free(log);
}

static uint32_t pick_lane(const struct fake_log *log, uint32_t partition, struct dice *dice)
{
    double x = (double)dice_below(dice, 1u << 20) / (double)(1u << 20);
    uint32_t lane = 0;

    if (partition == 0)
        return 0;
    if (dice_permille(dice, 50))
        return FAKE_NONE;
    while (lane + 1 < FAKE_LANES && log->weights[lane] < x)
        lane++;
    return lane;
}

static void add(struct fake_log *log, uint32_t partition, struct dice *dice)
{
    struct fake_partition *p = &log->partitions[partition];
    struct fake_entry *e = &p->entries[p->n];

    *e = (struct fake_entry){.lane = pick_lane(log, partition, dice),
                             .before = FAKE_NONE,
                             .first = p->n,
                             .bad = dice_permille(dice, 10)};
    e->offset = p->end + (dice_permille(dice, 50) ? (int64_t)dice_below(dice, 5) : 0);
    if (e->lane != FAKE_NONE) {
        e->before = p->last_of_lane[e->lane];
        p->last_of_lane[e->lane] = p->n;
        if (e->before != FAKE_NONE && !e->bad && !p->entries[e->before].bad &&
            dice_permille(dice, 100))
            e->first = p->entries[e->before].first;
    }
    p->end = e->offset + 1;
    p->n++;
}

bool fake_log_grow(struct fake_log *log, uint32_t partition, uint32_t n, struct dice *dice)
{
    struct fake_partition *p = &log->partitions[partition];

    for (uint32_t i = 0; i < n && p->n < log->max; i++)
        add(log, partition, dice);
    if (dice_permille(dice, 500))
        p->end += 1 + (int64_t)dice_below(dice, 3); /* markers */
    return p->n < log->max;
}

uint32_t fake_log_find(const struct fake_log *log, uint32_t partition, int64_t offset)
{
    const struct fake_partition *p = &log->partitions[partition];
    uint32_t low = 0, high = p->n;

    while (low < high) {
        uint32_t middle = low + (high - low) / 2;

        if (p->entries[middle].offset < offset)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

uint32_t fake_slot(uint32_t partition)
{
    return partition * 2 + 1;
}

uint32_t fake_partition_of(uint32_t slot)
{
    return (slot - 1) / 2;
}

struct record *fake_log_record(const struct fake_log *log, uint32_t partition, uint32_t index)
{
    const struct fake_entry *e = &log->partitions[partition].entries[index];
    char key[64], value[sizeof(index) + LONGEST_PADDING] = {0};
    struct record_source from = {.topic = partition % FAKE_ROUTES == 0 ? "even" : "odd",
                                 .partition = (int32_t)partition,
                                 .slot = fake_slot(partition),
                                 .offset = e->offset,
                                 .timestamp_ms = -1};

    if (e->lane != FAKE_NONE) { /* every third is too long for what the scheduler has room for */
        int len =
            snprintf(key, sizeof(key), "%skey-%u",
                     e->lane % 3 == 2 ? "a prefix that makes this a long one, " : "", e->lane);
        from.key = slice_of(key, (size_t)len);
    }
    memcpy(value, &index, sizeof(index));
    from.value = slice_of(value, sizeof(index) + index % LONGEST_PADDING);
    return record_new(&from);
}

void fake_log_order(const struct fake_log *log, struct record *r)
{
    uint32_t partition = (uint32_t)r->partition;

    r->route = partition % FAKE_ROUTES;
    if (partition == 0) {
        r->order_space = ORDER_PARTITION;
    } else if (fake_log_entry(log, r)->lane == FAKE_NONE) {
        r->order_space = ORDER_NONE;
    } else {
        r->order_space = ORDER_KEY;
        r->order_key = r->key;
    }
}

uint32_t fake_log_index(const struct record *r)
{
    uint32_t index;

    memcpy(&index, r->value.ptr, sizeof(index));
    return index;
}

const struct fake_entry *fake_log_entry(const struct fake_log *log, const struct record *r)
{
    return &log->partitions[r->partition].entries[fake_log_index(r)];
}
