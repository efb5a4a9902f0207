/*
 * log.h - one structured line per event, on stderr.
 *
 *   log_info("partition revoked", LOG_TEXT("topic", t), LOG_INT("partition", p));
 *
 * Safe from any thread. Never a payload, never a secret. An error is logged
 * where it is handled, once.
 */
#ifndef IDEMSINK_BASE_LOG_H
#define IDEMSINK_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

enum log_level { LOG_LEVEL_DEBUG, LOG_LEVEL_INFO, LOG_LEVEL_WARN, LOG_LEVEL_ERROR };
enum log_format { LOG_FORMAT_JSON, LOG_FORMAT_TEXT };

struct log_field {
    const char *name; /* NULL ends a list */
    const char *text; /* NULL: number counts */
    int64_t number;
};

/* A function, so that literals and arrays raise no warning about a test that is always true. */
static inline const char *log_text_of(const char *text)
{
    return text ? text : "";
}

#define LOG_TEXT(n, t) ((struct log_field){.name = (n), .text = log_text_of(t)})
#define LOG_INT(n, v)  ((struct log_field){.name = (n), .number = (int64_t)(v)})

/* At start, before other threads. Until then: info, text. */
void log_setup(enum log_level level, enum log_format format);
bool log_enabled(enum log_level level);

/* fields ends with a nameless one. */
void log_write(enum log_level level, const char *event, const struct log_field *fields);

#define LOG_FIELDS(...)       ((const struct log_field[]){__VA_ARGS__, {.name = (const char *)0}})
#define log_debug(event, ...) log_write(LOG_LEVEL_DEBUG, (event), LOG_FIELDS(__VA_ARGS__))
#define log_info(event, ...)  log_write(LOG_LEVEL_INFO, (event), LOG_FIELDS(__VA_ARGS__))
#define log_warn(event, ...)  log_write(LOG_LEVEL_WARN, (event), LOG_FIELDS(__VA_ARGS__))
#define log_error(event, ...) log_write(LOG_LEVEL_ERROR, (event), LOG_FIELDS(__VA_ARGS__))

/* For what repeats: true at most once per every_ms for one static struct log_limit. */
struct log_limit {
    _Atomic int64_t next_at_ms;
    _Atomic int64_t held_back;
};
bool log_limit_pass(struct log_limit *limit, int64_t every_ms, int64_t *held_back);

#endif
