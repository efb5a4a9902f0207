/*
 * outcome_rule.h - which rule of a collection's validator refused a document.
 */
#ifndef IDEMSINK_CORE_OUTCOME_RULE_H
#define IDEMSINK_CORE_OUTCOME_RULE_H

#include <bson/bson.h>

#include "base/bytes.h"

/*
 * Appends the rules that errInfo of a write error (code 121) tells, as
 *
 *   o.v: bsonType {"bsonType":"int"}, type did not match, it is string; required, missing: a, b
 *
 * at most about 500 bytes: operators, the validator's own words, names and types, never a value of
 * the document. Nothing when it tells none: the servers do so from MongoDB 5.0 on
 * (https://www.mongodb.com/docs/manual/core/schema-validation/). Anything may stand in it.
 */
void outcome_add_rule(const bson_iter_t *err_info, struct buf *out);

#endif
