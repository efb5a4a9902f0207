#include "fakes/fake_sink.h"

#include <inttypes.h>
#include <pthread.h>
#include <time.h>

#include "base/mem.h"
#include "fakes/check.h"

enum {
    APPLIED = 1,
    DONE = 2,
    STORED = 4
}; /* STORED: on the entry that is the document's content */

struct part {
    unsigned char *flags;     /* by entry */
    int busy[FAKE_LANES];     /* which worker is in there, plus one */
    int64_t committed;        /* -1: nothing yet */
    uint32_t committed_index; /* all entries below it are done and committed */
};

struct fake_sink {
    struct fake_sink_options o;
    pthread_mutex_t lock;
    struct part parts[FAKE_PARTITIONS]; /* lock */
};

struct fake_sink *fake_sink_new(const struct fake_sink_options *options)
{
    struct fake_sink *s = mem_new(sizeof(*s));

    s->o = *options;
    (void)pthread_mutex_init(&s->lock, NULL);
    for (size_t i = 0; i < FAKE_PARTITIONS; i++) {
        s->parts[i].flags = mem_array(options->log->max, 1);
        s->parts[i].committed = -1;
    }
    return s;
}

void fake_sink_free(struct fake_sink *s)
{
    for (size_t i = 0; i < FAKE_PARTITIONS; i++)
        mem_free(s->parts[i].flags);
    (void)pthread_mutex_destroy(&s->lock);
    mem_free(s);
}

/* Planned: what stands before index and is there already counts as applied. */
static void pass_present_locked(struct fake_sink *s, uint32_t partition, uint32_t index)
{
    const struct fake_entry *entries = s->o.log->partitions[partition].entries;
    unsigned char *flags = s->parts[partition].flags;
    uint32_t at = entries[index].before;

    while (at != FAKE_NONE && (flags[at] & APPLIED) == 0 && !entries[at].bad &&
           (flags[entries[at].first] & STORED) != 0) {
        flags[at] |= APPLIED;
        at = entries[at].before;
    }
    CHECK(at == FAKE_NONE || (flags[at] & APPLIED) != 0,
          "partition %u: offset %" PRId64 " is reached before offset %" PRId64 " of its lane",
          partition, entries[index].offset, entries[at].offset);
}

/* Returns whether it was new. */
static bool apply_locked(struct fake_sink *s, uint32_t partition, uint32_t index)
{
    const struct fake_entry *entries = s->o.log->partitions[partition].entries;
    const struct fake_entry *e = &entries[index];
    unsigned char *flags = s->parts[partition].flags;

    if (s->o.planned)
        pass_present_locked(s, partition, index);
    CHECK(e->before == FAKE_NONE || (flags[e->before] & APPLIED) != 0,
          "partition %u: offset %" PRId64 " is applied before offset %" PRId64 " of its lane",
          partition, e->offset, entries[e->before].offset);
    flags[index] |= APPLIED;
    if (e->bad || (flags[e->first] & STORED) != 0)
        return false;
    CHECK(e->first == index,
          "partition %u: the document of offset %" PRId64 " is stored with the content of offset "
          "%" PRId64,
          partition, entries[e->first].offset, e->offset);
    flags[index] |= STORED;
    return true;
}

static void enter_locked(struct fake_sink *s, int worker, struct record *const *records, size_t n)
{
    const struct record *last = NULL;

    for (size_t i = 0; i < n; i++) {
        const struct fake_entry *e = fake_log_entry(s->o.log, records[i]);

        if (e->lane == FAKE_NONE) {
            last = NULL;
            continue;
        }
        int *busy = &s->parts[records[i]->partition].busy[e->lane];
        bool goes_on = last != NULL && last->partition == records[i]->partition &&
                       fake_log_entry(s->o.log, last)->lane == e->lane;
        CHECK(*busy == 0 || goes_on,
              "partition %d: worker %d gets offset %" PRId64 " of a lane in which worker %d is",
              records[i]->partition, worker, e->offset, *busy - 1);
        CHECK(!goes_on || last->offset < e->offset,
              "partition %d: offset %" PRId64 " comes after %" PRId64, records[i]->partition,
              e->offset, last->offset);
        *busy = worker + 1;
        last = records[i];
    }
}

static void leave_locked(struct fake_sink *s, struct record *const *records, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const struct fake_entry *e = fake_log_entry(s->o.log, records[i]);

        if (e->lane != FAKE_NONE)
            s->parts[records[i]->partition].busy[e->lane] = 0;
    }
}

static void delay(const struct fake_sink *s, struct dice *dice)
{
    struct timespec t = {0};

    if (s->o.max_delay_us == 0 || dice_permille(dice, 300))
        return;
    t.tv_nsec = (long)dice_below(dice, s->o.max_delay_us) * 1000;
    (void)nanosleep(&t, NULL);
}

/* Behind a record that failed for now nothing of its lane is applied. */
static bool stands_behind(const struct fake_sink *s, const struct record *r,
                          const struct record *failed)
{
    const struct fake_entry *e = fake_log_entry(s->o.log, r);

    return failed != NULL && failed->partition == r->partition && e->lane != FAKE_NONE &&
           fake_log_entry(s->o.log, failed)->lane == e->lane;
}

static void write_locked(struct fake_sink *s, struct dice *dice, struct record *const *records,
                         size_t n, enum fake_fate *fates)
{
    bool lost = dice_permille(dice, s->o.fail_batch);
    size_t reached = lost ? dice_below(dice, n + 1) : n; /* the connection breaks in the middle */
    const struct record *failed = NULL;

    for (size_t i = 0; i < n; i++) {
        fates[i] = FAKE_LATER;
        if (i >= reached || stands_behind(s, records[i], failed))
            continue;
        if (dice_permille(dice, s->o.fail_record)) {
            failed = records[i];
            continue;
        }
        bool is_new = apply_locked(s, (uint32_t)records[i]->partition, fake_log_index(records[i]));
        if (lost)
            continue;
        if (fake_log_entry(s->o.log, records[i])->bad)
            fates[i] = FAKE_NEVER;
        else
            fates[i] = is_new ? FAKE_INSERTED : FAKE_DUPLICATE;
    }
}

void fake_sink_write(struct fake_sink *s, struct dice *dice, int worker,
                     struct record *const *records, size_t n, enum fake_fate *fates)
{
    (void)pthread_mutex_lock(&s->lock);
    enter_locked(s, worker, records, n);
    (void)pthread_mutex_unlock(&s->lock);
    delay(s, dice);
    (void)pthread_mutex_lock(&s->lock);
    write_locked(s, dice, records, n, fates);
    leave_locked(s, records, n);
    (void)pthread_mutex_unlock(&s->lock);
}

void fake_sink_enter(struct fake_sink *s, int worker, struct record *const *records, size_t n)
{
    (void)pthread_mutex_lock(&s->lock);
    enter_locked(s, worker, records, n);
    (void)pthread_mutex_unlock(&s->lock);
}

void fake_sink_leave(struct fake_sink *s, struct record *const *records, size_t n)
{
    (void)pthread_mutex_lock(&s->lock);
    leave_locked(s, records, n);
    (void)pthread_mutex_unlock(&s->lock);
}

enum fake_fate fake_sink_execute(struct fake_sink *s, const struct record *r)
{
    (void)pthread_mutex_lock(&s->lock);
    bool is_new = apply_locked(s, (uint32_t)r->partition, fake_log_index(r));
    (void)pthread_mutex_unlock(&s->lock);
    if (fake_log_entry(s->o.log, r)->bad)
        return FAKE_NEVER;
    return is_new ? FAKE_INSERTED : FAKE_DUPLICATE;
}

bool fake_sink_has(struct fake_sink *s, const struct record *r)
{
    const struct fake_entry *e = fake_log_entry(s->o.log, r);

    (void)pthread_mutex_lock(&s->lock);
    bool has = (s->parts[r->partition].flags[e->first] & STORED) != 0;
    (void)pthread_mutex_unlock(&s->lock);
    return has;
}

void fake_sink_known(struct fake_sink *s, const struct record *r)
{
    CHECK(fake_sink_has(s, r), "partition %d: offset %" PRId64 " is no duplicate", r->partition,
          r->offset);
    (void)fake_sink_execute(s, r);
}

void fake_sink_other(struct fake_sink *s, uint32_t partition, uint32_t index)
{
    (void)pthread_mutex_lock(&s->lock);
    (void)apply_locked(s, partition, index);
    s->parts[partition].flags[index] |= DONE;
    (void)pthread_mutex_unlock(&s->lock);
}

void fake_sink_done(struct fake_sink *s, const struct record *r)
{
    unsigned char *flags = &s->parts[r->partition].flags[fake_log_index(r)];

    (void)pthread_mutex_lock(&s->lock);
    CHECK((*flags & APPLIED) != 0, "partition %d: offset %" PRId64 " is settled and not applied",
          r->partition, r->offset);
    *flags |= DONE;
    (void)pthread_mutex_unlock(&s->lock);
}

void fake_sink_commit(struct fake_sink *s, uint32_t partition, int64_t offset)
{
    const struct fake_partition *p = &s->o.log->partitions[partition];
    struct part *part = &s->parts[partition];

    (void)pthread_mutex_lock(&s->lock);
    CHECK(offset >= part->committed, "partition %u: commit leads back from %" PRId64 " to %" PRId64,
          partition, part->committed, offset);
    CHECK(offset <= p->end, "partition %u: commit of %" PRId64 " beyond the end, %" PRId64,
          partition, offset, p->end);
    part->committed = offset;
    for (; part->committed_index < p->n && p->entries[part->committed_index].offset < offset;
         part->committed_index++)
        CHECK((part->flags[part->committed_index] & DONE) != 0,
              "partition %u: commit of %" PRId64 " passes offset %" PRId64 ", which is not done",
              partition, offset, p->entries[part->committed_index].offset);
    (void)pthread_mutex_unlock(&s->lock);
}

int64_t fake_sink_committed(struct fake_sink *s, uint32_t partition)
{
    (void)pthread_mutex_lock(&s->lock);
    int64_t committed = s->parts[partition].committed;
    (void)pthread_mutex_unlock(&s->lock);
    return committed;
}

void fake_sink_check_all_done(struct fake_sink *s)
{
    for (uint32_t i = 0; i < FAKE_PARTITIONS; i++) {
        const struct fake_partition *p = &s->o.log->partitions[i];

        for (uint32_t k = 0; k < p->n; k++) {
            unsigned char flags = s->parts[i].flags[k];

            CHECK((flags & (APPLIED | DONE)) == (APPLIED | DONE),
                  "partition %u: offset %" PRId64 " was lost", i, p->entries[k].offset);
            CHECK(p->entries[k].bad || (s->parts[i].flags[p->entries[k].first] & STORED) != 0,
                  "partition %u: the document of offset %" PRId64 " is not there", i,
                  p->entries[k].offset);
        }
    }
}
