/*
 * log_doc.h - what the steps of core/log_plan.h write into documents, and read from them. Pure.
 *
 * An event that is open has, at the top of its document (or of the ledger's):
 *
 *   _effects: {id: its log_event_id(), at: date,
 *              moves: [{c: "database.collection", f: {filter}, by: {field: int64}}]}
 *
 * `make: false` in a move: its counter documents are never made. Of an operation also entity: {its
 * filter}, document: {what ADD stores}, until: date (nobody else may go on before that), try: int64
 * (whose attempt it is). failed: text: it can't be completed, and nobody tries.
 *
 * A counter document has _applied: [{i: id, t: date}] and _version: int64, one more per update.
 */
#ifndef IDEMSINK_CORE_LOG_DOC_H
#define IDEMSINK_CORE_LOG_DOC_H

#include "core/log_plan.h"
#include "core/look.h"

#define LOG_EFFECTS    "_effects"
#define LOG_BY         "_by"
#define LOG_REMOVED_BY "_removed_by"
#define LOG_APPLIED    "_applied"
#define LOG_VERSION    "_version"

/*
 * What stands for an event in _applied: four bytes of its collection, twelve of its canonical
 * filter (XXH3). Two routes may count in one document, and each prunes its own ids only.
 */
void log_event_id(const struct config_route *route, const bson_t *filter, struct log_id *out);

/* Is this _effects of idemsink's making, and of the event with this id? Else it is a payload's, of
 * a time or route without effects, and nothing that it says is done. */
bool log_is_ours(const bson_t *effects, const struct log_id *id);

/* Has the route counters or an operation: are there _effects? */
bool log_has_effects(const struct config_route *route);

/* The whole document of the k-th of a WRITE, as it is to be inserted. Appends to an empty one. */
void log_event_document(const struct config_route *route, const struct log_command *c, size_t k,
                        bson_t *out);

/* Of a LOOK. */
void log_look_projection(const struct config_route *route, const bson_t *like, bson_t *projection);

/* {$expr: {$lt: ["$$NOW", until]}}'s content, appended to a filter. */
void log_append_until(bson_t *filter, int64_t until_ms);

void log_count_filter(const struct log_command *c, const struct log_move *m, bson_t *filter);
void log_count_update(const struct log_command *c, const struct log_move *m, bson_t *update);
void log_check_filter(const struct log_command *c, bson_t *filter);
/* The filter's fields, those that change, of _applied only what is of the moves, and _size: how
 * many there are in all. */
void log_check_projection(const struct log_command *c, bson_t *projection);
void log_make_update(const struct log_move *m, bson_t *update);
void log_prune_filter(const struct log_command *c, const struct log_move *m, bson_t *filter);
void log_prune_update(const struct config_route *route, const struct log_command *c,
                      bson_t *update);
/* Of CLOSE, FAIL, DID: the events. */
void log_close_filter(const struct log_command *c, bson_t *filter);
void log_close_update(const struct log_command *c, bson_t *update);

/* Of ADD, MARK, REMOVE, CLEAN: the k-th entity. ADD's update is a pipeline, an array. */
void log_entity_filter(const struct log_command *c, size_t k, bson_t *filter);
void log_entity_update(const struct log_command *c, size_t k, bson_t *update);
void log_read_projection(const struct log_command *c, bson_t *projection);

/* The k-th: one that has failed, did nothing, and whose last attempt is over. */
void log_reopen_filter(const struct log_command *c, size_t k, bson_t *filter);
void log_reopen_update(const struct config_route *route, const struct log_command *c, size_t k,
                       bson_t *update);

void log_claim_filter(const struct log_command *c, bson_t *filter);
void log_claim_update(const struct log_command *c, bson_t *update);

/* The dedup key of a stored event, for sweeps; false: it is not there. */
bool log_event_filter(const struct config_route *route, const bson_t *document, bson_t *filter);

#endif
