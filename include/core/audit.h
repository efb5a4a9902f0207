/*
 * audit.h - the books of `idemsink verify`: what the topics ask for against
 * what the collections hold. Pure; brought together by cli/cmd_verify.c.
 *
 *   audit_dead()    for every dead letter
 *   audit_expect()  for every record that asks for a document, in the order of each partition
 *   audit_stored()  for every document
 *   audit_finish()  what is missing
 *
 * Memory: AUDIT_ENTRY_BYTES per slot of open hashes that are at most 3/4 full and double one by
 * one: 10 million dedup keys need 2^24 slots, 0.67 GB. Keys and contents are compared by hash (128
 * and 64 bits): a false match has a chance of about 10^-19 per pair of contents.
 */
#ifndef IDEMSINK_CORE_AUDIT_H
#define IDEMSINK_CORE_AUDIT_H

#include <bson/bson.h>

#include "base/err.h"
#include "core/record.h"

enum { AUDIT_ENTRY_BYTES = 40 };

struct audit;

/*
 * max_bytes: where the table stops growing with an error. Only the dedup keys whose hash lies in
 * from..to are looked at: 0 and UINT64_MAX for all, 0 and UINT64_MAX / 100 for one in a hundred,
 * the same ones whenever and wherever it is asked.
 */
struct audit *audit_new(size_t max_bytes, uint64_t from, uint64_t to);
void audit_free(struct audit *a);
size_t audit_bytes(const struct audit *a); /* what the table takes now */

/* A dead letter speaks of the record at this place. False: the table is full (ERR_CONFIG). */
bool audit_dead(struct audit *a, struct slice topic, int32_t partition, int64_t offset,
                struct err *e) MUST_CHECK;
bool audit_is_dead(const struct audit *a, struct slice topic, int32_t partition, int64_t offset);

/*
 * r asks for document under key (its filter). The first one of a key that is no dead letter says
 * what must be stored. One with other content counts as the same event; from another lane its
 * content is as right, since lanes have no order among each other. A key of which all records are
 * dead letters needs no document; if there is one, it has to be of one of them. False: the table is
 * full (ERR_CONFIG).
 */
bool audit_expect(struct audit *a, const struct record *r, const bson_t *key,
                  const bson_t *document, struct err *e) MUST_CHECK;

/* UNWANTED: not one of the keys that are looked at. */
enum audit_verdict { AUDIT_RIGHT, AUDIT_DIFFERENT, AUDIT_EXTRA, AUDIT_DOUBLE, AUDIT_UNWANTED };

/* A document that is there. The names of top-level fields may stand in any order, `_id` is not
 * compared (the server makes it, or the key is in it). */
enum audit_verdict audit_stored(struct audit *a, uint32_t route, const bson_t *key,
                                const bson_t *document);

/*
 * Routes with an operation (core/entity.h) have two books: the ledger, where every event has to be,
 * and the entities, where what is there at the end follows from their events in the lane's order.
 *
 * audit_event: r's event, with its entity's key; what: {op: "insert"} or "delete". *first: it is
 * the first with this identity and no dead letter, so that it did something: then audit_entity()
 * with the document that it adds, or NULL where it removes. An entity whose events come by several
 * lanes may end either way. The keys that are looked at are chosen by the entity in both.
 */
struct audit_event {
    const bson_t *event, *entity; /* their keys */
    const bson_t *what;           /* NULL: the ledger forgets, the event need not be there */
    bool first;
};
bool audit_event(struct audit *a, const struct record *r, struct audit_event *event,
                 struct err *e) MUST_CHECK;
bool audit_entity(struct audit *a, const struct record *r, const bson_t *entity,
                  const bson_t *document, struct err *e) MUST_CHECK;
/* A document of the ledger. Not known: EXTRA, or UNWANTED where only a part is looked at. Of a
 * document of the collection: audit_stored(). */
enum audit_verdict audit_ledger(struct audit *a, uint32_t route, const bson_t *event,
                                const bson_t *what);

struct audit_books {
    uint64_t records, distinct; /* that asked for a document; dedup keys among them */
    uint64_t right, different, extra, doubled; /* documents */
    uint64_t dead, missing;                    /* dedup keys without a document */
};

/* each: called for the first max missing ones with the place of their first record. */
typedef void audit_missing_fn(void *ctx, uint32_t slot, int64_t offset);
struct audit_books audit_finish(struct audit *a, size_t max, audit_missing_fn *each, void *ctx);

#endif
