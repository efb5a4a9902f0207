/*
 * cli.h - what the commands share: arguments, exit codes, loading a configuration.
 */
#ifndef IDEMSINK_CLI_CLI_H
#define IDEMSINK_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "core/config.h"
#include "core/mapping.h"

/* Public: product's exit codes. */
enum exit_code {
    EXIT_FINE = 0,
    EXIT_FOUND = 1, /* a check or an audit found something */
    EXIT_BAD_USAGE = 64,
    EXIT_UNREACHABLE = 69, /* a service cannot be reached */
    EXIT_BROKEN = 70,      /* a broken promise of ours */
    EXIT_DEADLINE = 75,    /* the shutdown deadline passed */
    EXIT_CREDENTIALS = 77, /* credentials or rights refused */
    EXIT_CONFIGURATION = 78
};
enum exit_code exit_of(const struct err *e);

enum { ARGS_MAX = 64 };

struct args {
    const char *config_file;
    const char *sets[ARGS_MAX]; /* --set key=value */
    size_t n_sets;
    bool until_end, connect, replica_set, dead_letters, json;
    bool raise_sequences;          /* init */
    const char *topic, *key;       /* explain */
    const char *headers[ARGS_MAX]; /* explain: NAME=VALUE */
    size_t n_headers;
    bool null;                    /* explain: no value */
    const char *offset;           /* explain: topic:partition:offset */
    const char *memory;           /* verify: most memory for its table */
    bool allow_extra;             /* verify: documents nobody asked for are no fault */
    const char *sample, *list;    /* verify */
    const char *places[ARGS_MAX]; /* dlq: PARTITION:OFFSET in the dead-letter topic */
    size_t n_places;
    const char *reasons[ARGS_MAX]; /* dlq */
    size_t n_reasons;
    const char *since, *until; /* dlq, verify: RFC 3339, or so long ago */
    const char *last;          /* dlq list: how many */
    const char *patience;      /* dlq replay */
    bool all, raw, dry_run;    /* dlq */
    bool not_stored;           /* dlq list */
    bool apply, secondary;     /* reconcile */
    const char *route;         /* reconcile: its name */
    const char *counter;       /* reconcile: its number within the route */
    const char *rate;          /* reconcile */
};

/* Reads and checks the configuration; says what is wrong on stderr and returns NULL. */
struct config *cli_config(const struct args *args);

/* One line on stderr: no route reads this topic, `more` behind that, and which topics they read. */
void cli_say_no_route(const struct args *args, const struct config *c, const char *topic,
                      const char *more);

/* "idemsink: text" on stderr, one line. Returns the exit code of the error. */
enum exit_code cli_fail(const struct err *e);

/* The sender's name in monsqlize messages: unique to this process. mem_free() it. */
char *cli_instance_id(const struct config *c);

/* One mapping per route; NULL and *e when a template or source can't be understood. */
struct mapping **cli_mappings(const struct config *c, const char *instance_id, struct err *e);
void cli_mappings_free(struct mapping **mappings, size_t n);

/* The route's name in front of the text of an error, unless it begins with that. Returns false. */
bool cli_wrap_route(struct err *e, const struct config_route *route);

enum exit_code cmd_run(const struct args *args);
enum exit_code cmd_check(const struct args *args);
enum exit_code cmd_init(const struct args *args);
enum exit_code cmd_explain(const struct args *args);
enum exit_code cmd_verify(const struct args *args);
enum exit_code cmd_reconcile(const struct args *args);
enum exit_code cmd_dlq_list(const struct args *args);
enum exit_code cmd_dlq_show(const struct args *args);
enum exit_code cmd_dlq_replay(const struct args *args);

#endif
