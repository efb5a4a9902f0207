/*
 * explain.h - what would become of a record, on stdout: `explain`, and `dlq show`.
 */
#ifndef IDEMSINK_CLI_EXPLAIN_H
#define IDEMSINK_CLI_EXPLAIN_H

#include "cli/cli.h"
#include "core/record.h"

/* Touches nothing. EXIT_FOUND: it would be a dead letter. */
enum exit_code explain_record(const struct config_route *route, const struct mapping *mapping,
                              struct record *r);

#endif
