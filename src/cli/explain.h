/*
 * explain.h - what would become of a record: `explain`, and `dlq show`.
 */
#ifndef IDEMSINK_CLI_EXPLAIN_H
#define IDEMSINK_CLI_EXPLAIN_H

#include "cli/cli.h"
#include "cli/sheet.h"
#include "core/record.h"
#include "io/mongo.h"

struct explain_in {
    const struct config *config;
    const struct config_route *route;
    const struct mapping *mapping;
    struct mongo *mongo; /* asked what is there already and for the index; NULL: nobody is asked */
};

/* Adds rows; changes nothing anywhere. EXIT_FOUND: it would be a dead letter. MongoDB's refusals
 * are rows too, and the exit code. */
enum exit_code explain_rows(const struct explain_in *in, struct record *r, struct sheet *out);

/* A row "wrong: ..." or "can't tell: ..."; returns the exit code that goes with it. */
enum exit_code explain_refusal(struct sheet *out, const char *name, const struct err *e);

/* explain_effects.c, for operations that have some: how it would be written, what would move; with
 * MongoDB what is there of it (event: its document; NULL: it is new). */
void explain_effects(const struct explain_in *in, const struct write_op *op, struct sheet *out);
enum exit_code explain_effects_now(const struct explain_in *in, const struct write_op *op,
                                   const bson_t *event, struct sheet *out);
/* The same where the event is known by a ledger. */
enum exit_code explain_operation_now(const struct explain_in *in, const struct write_op *op,
                                     struct sheet *out);

#endif
