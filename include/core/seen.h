/*
 * seen.h - which events are known to be settled: a bounded set that forgets the one that nobody
 * asked for longest.
 *
 * It answers "stored, for certain" or "don't know", never "new". So a caller adds only what has
 * been acknowledged durably, and asks the database about all that is not there.
 *
 * Memory is taken once, by seen_new(): SEEN_ENTRY_BYTES for each entry and 4 for each slot of the
 * table (at least one and a half per entry). The system gives it page by page as it is used.
 *
 * Plain data structure: no thread, no lock, no clock. The caller brings a time that does not go
 * back.
 */
#ifndef IDEMSINK_CORE_SEEN_H
#define IDEMSINK_CORE_SEEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <bson/bson.h>

/* Stands for an event: a hash of 128 bits. */
struct seen_id {
    uint64_t high, low;
};

/*
 * Of the canonical filter of an event (write_op.filter). seed: secret to those who write the events
 * (or they could aim two at one id), and of one collection only: an event that is stored there is
 * not stored elsewhere. payload_hash (CANONICAL_HASH_BYTES) where another payload under the same
 * key is not the same to the caller (dedup.conflict): then it has an id of its own; else NULL.
 */
struct seen_id seen_id(uint64_t seed, const bson_t *filter, const uint8_t *payload_hash);

/* The seed of the collection with this UUID, the same in every process. */
enum { SEEN_UUID_BYTES = 16 };
uint64_t seen_seed(const uint8_t uuid[SEEN_UUID_BYTES]);

struct seen;

enum { SEEN_ENTRY_BYTES = 32 };

/* Keeps at most max_entries (1 to 2^31), and so many that all its memory is at most max_bytes (at
 * least 1024), for ttl_ms each. */
struct seen *seen_new(size_t max_entries, size_t max_bytes, int64_t ttl_ms);
void seen_free(struct seen *s); /* NULL is fine */

/* Was it added less than ttl_ms ago, and not forgotten since? Asking does not make it live longer,
 * it only keeps it from being the first to go when room is needed. */
bool seen_has(struct seen *s, struct seen_id id, int64_t now_ms);

/* It is settled, as of now. */
void seen_add(struct seen *s, struct seen_id id, int64_t now_ms);

void seen_forget(struct seen *s); /* all */

size_t
seen_entries(const struct seen *s); /* those whose time is over and nobody asked for included */
size_t seen_capacity(const struct seen *s);  /* what it holds at most */
size_t seen_bytes(const struct seen *s);     /* that have been used so far */
size_t seen_max_bytes(const struct seen *s); /* when it is full */

#endif
