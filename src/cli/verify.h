/*
 * verify.h - what the files of `idemsink verify` share.
 */
#ifndef IDEMSINK_CLI_VERIFY_H
#define IDEMSINK_CLI_VERIFY_H

#include "cli/cli.h"
#include "core/audit.h"
#include "core/letter.h"
#include "core/progress.h"
#include "io/kafka.h"
#include "io/mongo.h"

/* --- verify_options.c --- */

struct verify_options {
    size_t memory_bytes; /* for the whole process */
    size_t listed;       /* how many faults are listed */
    double part;         /* of the dedup keys: 1 is all */
    uint64_t from, to;   /* their hashes */
    int64_t since_ms;    /* records from this time on; -1: all */
};

/* Says on stderr what can't be understood. */
bool verify_options_parse(const struct args *args, int64_t now_ms, struct verify_options *out);

/* --- cmd_verify.c --- */

struct partition_name {
    const char *topic; /* lives as long as the reader */
    int32_t partition;
};

struct verify {
    const struct args *args;
    struct verify_options options;
    struct config *config;
    struct mapping **mappings;
    struct mongo *mongo;
    struct kafka_reader *reader; /* of the topics; kept open for its topic names */
    struct audit *audit;
    struct partition_name *names; /* by slot */
    size_t n_names;
    bool dead_letters_are_kept;
    uint32_t route; /* whose collection is being scanned */
    uint32_t books; /* its books */
    bool terminal;  /* stderr is one */
    struct progress progress;
    int64_t started_ms; /* wall clock */

    /* The books, beside the audit's own */
    uint64_t read, bad, skipped, dead_letters, dead_missing, keyless, scanned, expected;
    uint64_t in_ledgers, counters, counters_wrong, counters_unable, unnumbered, failed;

    /* Faults and dead letters that are listed, as JSON */
    struct buf faults, letters;
    size_t n_faults;
    struct buf collections; /* their names and documents, as JSON */
};

/* Routes that share a collection share their books: the first of them stands for all. */
uint32_t verify_books_of(const struct config *c, uint32_t route);

/* --- verify_effects.c --- */

/* What a document with this key that is there says of its effects: is its number missing, were they
 * given up? */
void verify_effects_of(struct verify *v, const bson_t *key, const bson_t *document);

/* A record of a route with an operation; r->route is that of the books. document: op's, to compare.
 */
bool verify_expect_operation(struct verify *v, const struct record *r, const struct write_op *op,
                             const bson_t *document, struct err *e);
bool verify_scan_ledgers(struct verify *v, struct err *e);
bool verify_counters(struct verify *v, struct err *e);

/* --- verify_report.c --- */

/* One more fault; the first ones are listed. text: "topic:0:7", or a dedup key. */
void verify_fault(struct verify *v, const char *what, const char *where, const char *text,
                  bool is_json);
/* The same for a document, by its key. */
void verify_fault_of(struct verify *v, const char *what, const char *database,
                     const char *collection, const bson_t *key);
/* at: the dead letter itself. */
void verify_dead_letter(struct verify *v, const struct letter *l, const struct record *at);

/* Prints the books. True: they balance. */
bool verify_report(struct verify *v);

#endif
