/*
 * check.h - what the files of `idemsink check` share: one line for each requirement.
 */
#ifndef IDEMSINK_CLI_CHECK_H
#define IDEMSINK_CLI_CHECK_H

#include "cli/cli.h"

/* UNKNOWN is "can't tell": it is no fault, but nobody has seen that it is right. */
enum check_verdict { CHECK_OK, CHECK_WRONG, CHECK_UNKNOWN, CHECK_WARNING, CHECK_NONE };

struct checks {
    const struct config *config;
    bool json;
    int width; /* of the column of names */
    size_t n;
    enum exit_code code; /* of the first thing that is wrong, or that can't be reached */
};

/* The text may begin with `what` once more ("shop.orders: ..."): that is left out. */
void check_line(struct checks *c, const char *what, enum check_verdict verdict, const char *text);
void check_printf(struct checks *c, const char *what, enum check_verdict verdict, const char *fmt,
                  ...) __attribute__((format(printf, 4, 5)));

/* What came out of a question: `fine`, or why not, which is wrong, or unknown when it is
 * ERR_TRANSIENT. Returns ok. */
bool check_answer(struct checks *c, const char *what, bool ok, const struct err *e,
                  const char *fine);

/* The same of a service: one that can't be reached is told with the keys to look at. */
bool check_service(struct checks *c, const char *what, bool ok, const struct err *e,
                   const char *fine, const char *keys);

/* "1 partition", "3 partitions" */
void check_count(struct buf *out, size_t n, const char *what);

void check_kafka(struct checks *c);
void check_mongo(struct checks *c);
void check_redis(struct checks *c);

/* What a route needs in MongoDB: rights, indexes, and what its effects rest on. */
struct mongo;
void check_route(struct checks *c, struct mongo *mongo, const struct config_route *r);
/* And what reconcile needs beside that when it runs now and then. */
void check_leases(struct checks *c, struct mongo *mongo);

#endif
