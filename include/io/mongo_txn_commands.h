/*
 * mongo_txn_commands.h - the commands of a transaction as BSON, and what is read from their
 * answers. Knows no server; for src/io/mongo_txn*.c and its tests.
 */
#ifndef IDEMSINK_IO_MONGO_TXN_COMMANDS_H
#define IDEMSINK_IO_MONGO_TXN_COMMANDS_H

#include "core/txn_plan.h"

/*
 * Appends the command to an empty document and says in which database it is run: FENCE, COUNT,
 * NUMBER (of the modes that keep a counter), EVENTS, INSERT and DELETE; for REPLACE the insert.
 * wall_ms: what an event of the ledger gets as its time. Borrowed from route.
 */
const char *mongo_txn_command(const struct config_route *route, const struct txn_command *c,
                              int64_t wall_ms, bson_t *out);

/* REPLACE: its delete. */
void mongo_txn_delete(const struct config_route *route, const struct txn_command *c, bson_t *out);

/* Appends the update of NUMBER, of the document that keeps a group's counter; and what its failure
 * with such a code means, in words. */
void mongo_txn_number_update(const struct config_sequence *q, int64_t count, bson_t *out);
bool mongo_txn_is_no_number(int code);
extern const char mongo_txn_no_number[];

/* The number in the answer to a NUMBER. False: there is none. */
bool mongo_txn_number(const bson_t *reply, int64_t *last);

/* Mode max: the read of the highest number in the group of c, and the number in its answer (rounded
 * down where somebody else stored no integer). False: it is not below 2^63. */
void mongo_txn_highest(const struct config_route *route, const struct txn_command *c,
                       bson_t *filter, bson_t *opts);
bool mongo_txn_highest_of(const struct config_route *route, const bson_t *document,
                          int64_t *highest);

#endif
