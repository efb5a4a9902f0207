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

#endif
