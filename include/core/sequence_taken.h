/*
 * sequence_taken.h - a document that was refused because a value of the route's sequence is another
 * one's: which value it is, and what people are told. Pure.
 *
 * The number belongs to the group, so whoever comes next would meet the same: the counter lags
 * behind what the collection holds. The text belongs to one document: another record of the group
 * may make another of the same number. A server names the index that was made first of those that
 * refuse, and core/index_proof.h sees to it that this is the number's.
 */
#ifndef IDEMSINK_CORE_SEQUENCE_TAKEN_H
#define IDEMSINK_CORE_SEQUENCE_TAKEN_H

#include <bson/bson.h>

#include "core/config.h"

enum sequence_taken { SEQUENCE_TAKEN_NOTHING, SEQUENCE_TAKEN_NUMBER, SEQUENCE_TAKEN_TEXT };

/* error: an element of writeErrors with code 11000. Servers without keyPattern: NOTHING. */
enum sequence_taken sequence_taken_of(const struct config_route *route, const bson_iter_t *error);

/* For the dead letter of a record whose text is another document's. said: the server's words, taken
 * over. */
char *sequence_text_taken(const struct config_sequence *q, char *said);

/* What has to be done where a group's number is another document's. group: {_id: ...}. */
char *sequence_number_taken(const struct config_route *route, const bson_t *group, int64_t number);

#endif
