/*
 * invalidation.h - what is told to other programs' caches about one write.
 */
#ifndef IDEMSINK_CORE_INVALIDATION_H
#define IDEMSINK_CORE_INVALIDATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"

enum invalidation_kind {
    INVALIDATION_UNLINK, /* name: the key */
    INVALIDATION_PUBLISH /* name: the channel; body: the payload */
};

/*
 * One message. Two are the same target when kind, name and body are equal (the body has no
 * timestamp: `stamp` says where the sender puts one in).
 */
struct invalidation {
    enum invalidation_kind kind;
    uint32_t rule; /* which [[route.invalidate]] of the whole configuration, counted through:
                      config_invalidate.index */
    char *name;    /* NUL-terminated; mem_free() */
    char *body;    /* NUL-terminated JSON; NULL for UNLINK; mem_free(). The text @TIMESTAMP@ becomes
                      epoch ms at sending */
};

/* Grows by invalidation_add(); owns the texts. Zero-initialised is empty. */
struct invalidation_list {
    struct invalidation *items;
    size_t n, cap;
};
void invalidation_add(struct invalidation_list *l, enum invalidation_kind kind, uint32_t rule,
                      char *name, char *body); /* takes name and body */
/* The body as it is sent at this time, mem_free() it; NULL when the body has no time in it (or is
 * NULL). */
char *invalidation_stamped(const char *body, int64_t wall_ms);
void invalidation_list_clear(struct invalidation_list *l);
void invalidation_clear(struct invalidation *i);

#endif
