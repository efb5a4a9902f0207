/*
 * needs.h - what the routes need in MongoDB before the first record, for run, replay and init.
 */
#ifndef IDEMSINK_CLI_NEEDS_H
#define IDEMSINK_CLI_NEEDS_H

#include "cli/cli.h"
#include "io/mongo_needs.h"

enum { NEEDS_QUICK_MS = 2000, NEEDS_CHECK_MS = 30000, NEEDS_TYPES_MS = 2000 };

/* Before run: what is missing is made where a route has ensure_index (collections always), and all
 * of it is proved. ERR_TRANSIENT: ask again later. */
bool needs_prove(struct mongo *m, const struct config *c, struct err *e) MUST_CHECK;
/* The same of one route. */
bool needs_prove_route(struct mongo *m, const struct config_route *r, struct err *e) MUST_CHECK;

/* For init: makes what is missing and says of each what it was, on stdout. raise: counters of
 * sequences that lag are raised. */
bool needs_make(struct mongo *m, const struct config *c, bool raise, struct err *e) MUST_CHECK;

/* What order_by promises for entities and groups; nothing where there are none. */
void needs_order_text(const struct config_route *r, struct buf *out);

/* One line for a route with effects, at start: what moves, and in which order. (The way it goes is
 * said where it is decided.) */
void needs_log_effects(const struct config_route *r);

#endif
