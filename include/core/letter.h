/*
 * letter.h - a record of the dead-letter topic read back: what became of which record, and that
 * record as it was.
 *
 * Anybody may write to the topic, so nothing is believed before it is looked at: a letter is ours
 * only when every header of docs/dead-letters.md is there once and is what idemsink writes.
 */
#ifndef IDEMSINK_CORE_LETTER_H
#define IDEMSINK_CORE_LETTER_H

#include "core/record.h"

enum letter_kind {
    LETTER_OURS,
    LETTER_FOREIGN, /* not one header of idemsink's */
    LETTER_BROKEN   /* some, but not all, or not as idemsink writes them: fault says which */
};

struct letter {
    enum letter_kind kind;
    const char *fault; /* BROKEN: in words */

    /* OURS. The slices point into the record. */
    struct slice topic; /* a topic's name for sure */
    int32_t partition;
    int64_t offset;
    struct slice reason, error, group, version;
    uint32_t attempts;
    int64_t time_ms;                                  /* when it was given up */
    bool value_dropped, headers_dropped, key_dropped; /* it was too large for the topic */
    int64_t value_bytes; /* value_dropped: how long it was; -1: it doesn't say */

    /* Of the record as it was. NONE: it had none, or nobody knows it any more (a topic that puts in
     * its own, and a letter of a version that didn't write it down). */
    enum record_timestamp timestamp_type;
    int64_t timestamp_ms;
};

/* r outlives the letter. */
void letter_read(const struct record *r, struct letter *out);

/* Nothing is missing: it can be what it was. OURS only. */
bool letter_is_whole(const struct letter *l);

/*
 * Of one that is not whole: is this the record, as its topic still has it? The topic may have been
 * made anew since, so not the place alone decides, but timestamp, length of the value, and the key
 * where the letter has it.
 */
bool letter_is_of(const struct record *letter, const struct letter *l,
                  const struct record *original);

/*
 * The record as it was read the first time, to be freed: key, value, headers without ours,
 * timestamp, and the place it came from. attempts counts this one. topic is l->topic as a text that
 * outlives it. OURS and whole only.
 */
struct record *letter_restore(const struct record *r, const struct letter *l, const char *topic);

/*
 * Of several letters of one record (it failed again, or was sent twice by a crash) the newest, by
 * the time it was given up; but one that is whole stands before one that isn't. 40 bytes each in
 * a table that is at most 3/4 full and doubles: the letters of 10 million records take 640 MiB.
 */
struct letter_table;
struct letter_table *letter_table_new(void);
void letter_table_free(struct letter_table *t); /* NULL is fine */

/* The place is that in the dead-letter topic. OURS only. */
void letter_table_add(struct letter_table *t, const struct letter *l, int32_t partition,
                      int64_t offset);
/* False too when the record of l was never added. */
bool letter_table_newest(const struct letter_table *t, const struct letter *l, int32_t partition,
                         int64_t offset);

#endif
