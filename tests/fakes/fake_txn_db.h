/*
 * fake_txn_db.h - a database with snapshot transactions, for txn_plan: events (or a ledger and
 * entities), counters, groups, unique indexes. One thread; its answers are as seen from
 * mongod 6.0.5:
 *
 * - who writes what another open transaction has written, or what was committed after his snapshot,
 *   gets 112 with TransientTransactionError at once; an error aborts the transaction;
 * - a duplicate key is E11000 at its index, also where it was committed after the snapshot (or
 * 112);
 * - an open transaction keeps what it wrote until COMMIT, ABORT, the session's next one or its time
 *   is up.
 */
#ifndef IDEMSINK_TESTS_FAKE_TXN_DB_H
#define IDEMSINK_TESTS_FAKE_TXN_DB_H

#include "core/config.h"
#include "core/txn_plan.h"
#include "fakes/dice.h"

enum { FAKE_DB_COUNTERS = 2, FAKE_DB_FIELDS = 2, FAKE_DB_SESSIONS = 8, FAKE_DB_NOBODY = -1 };

/* What there is to know of an event; small numbers, each below its n. */
struct fake_db_event {
    uint32_t lane, entity, group, mail;
    uint32_t account[FAKE_DB_COUNTERS]; /* a document of each counter */
    int64_t by; /* for the second field of counter 0; all others move by 1 */
    bool remove;
    bool invalid; /* its document is refused (121) */
};

struct fake_db_shape {
    const struct fake_db_event *events; /* their number is their key */
    uint32_t n, lanes, entities, groups, accounts;
    bool operation, sequence, mails, fences;
    bool doubles; /* some documents of counter 0 hold doubles: fake_db_inexact() */
    enum config_sequence_mode mode;
    int64_t start;
    unsigned trouble; /* permille of commands; may be set to 0 on the way */
    int64_t lifetime; /* of a transaction */
};

struct fake_db;
struct fake_db *fake_db_new(const struct fake_db_shape *shape, const struct dice *dice);
void fake_db_free(struct fake_db *db);
void fake_db_calm(struct fake_db *db); /* no trouble from now on */

/* Carries c out for a session and answers p. WAIT is not for here. */
void fake_db_serve(struct fake_db *db, int session, int64_t now, struct txn_plan *p,
                   const struct txn_command *c);

/* Another program stores a document with the group's next number, unless somebody is at it; the
 * operator raises the counters to what is there, but for those that a transaction holds. */
void fake_db_foreign(struct fake_db *db, uint32_t group);
void fake_db_raise(struct fake_db *db);

/* The lock of a lane was given to somebody: his number. */
int64_t fake_db_issue(struct fake_db *db, uint32_t lane);

/* --- what is committed --- */

bool fake_db_has_event(const struct fake_db *db, uint32_t event);
bool fake_db_did(const struct fake_db *db, uint32_t event); /* the ledger: it changed something */
int64_t fake_db_number(const struct fake_db *db, uint32_t event);  /* of its document */
int64_t fake_db_entity(const struct fake_db *db, uint32_t entity); /* whose document; or nobody's */
bool fake_db_counter(const struct fake_db *db, uint32_t counter, uint32_t account,
                     int64_t fields[FAKE_DB_FIELDS]);                 /* false: there is none */
int64_t fake_db_group(const struct fake_db *db, uint32_t group);      /* the last number given */
int64_t fake_db_foreigners(const struct fake_db *db, uint32_t group); /* numbers of others */
/* The events in the order in which they were committed. */
const uint32_t *fake_db_applied(const struct fake_db *db, size_t *n);
/* Of counter 1 only every second document is there, and stays so. */
bool fake_db_counts(uint32_t counter, uint32_t account);
bool fake_db_inexact(const struct fake_db_shape *shape, uint32_t counter, uint32_t account);

#endif
