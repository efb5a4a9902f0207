/*
 * invalidation.h - what is told to other programs' caches about one write.
 */
#ifndef IDEMSINK_CORE_INVALIDATION_H
#define IDEMSINK_CORE_INVALIDATION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bytes.h"
#include "core/config_effects.h"

/* UNLINK, INCR and MIRROR change what readers find, the others say so: of one write those come
 * first. */
enum invalidation_kind {
    INVALIDATION_UNLINK,  /* name: the key */
    INVALIDATION_INCR,    /* name: the key of a generation */
    INVALIDATION_PUBLISH, /* name: the channel; body: the payload */
    INVALIDATION_XADD,    /* name: the stream; body: the payload */
    INVALIDATION_MIRROR   /* name: the key of a hash; body: a counter's values, a space between them
                           */
};
enum { INVALIDATION_KINDS = INVALIDATION_MIRROR + 1 };
/* The field of a stream's entry that holds the payload. */
#define INVALIDATION_FIELD "payload"

/*
 * One message. Two of one rule are the same target when kind, name and body are equal (the time is
 * not in the body yet); of MIRRORs when kind and name are, and the one with the higher version
 * counts.
 */
struct invalidation {
    enum invalidation_kind kind;
    uint32_t rule;     /* which [[route.invalidate]] of the whole configuration, counted through:
                          config_invalidate.index */
    char *name;        /* NUL-terminated; mem_free() */
    char *body;        /* NUL-terminated JSON; NULL for UNLINK and INCR; mem_free(). The text
                          @TIMESTAMP@ becomes epoch ms at sending */
    int64_t expire_ms; /* INCR: how long the key lives from then on; 0: for ever. The rule's */
    int64_t maxlen;    /* XADD: how many entries the stream keeps, at least. The rule's */
    /* MIRROR: the names of the values, the rule's, borrowed from the configuration; which state of
     * the counter document they are. */
    const struct config_pairs *fields;
    int64_t version;
};
/* Of a MIRROR's hash: the field that holds the version. */
#define INVALIDATION_VERSION "version"

/* Grows by invalidation_add(); owns the texts. Zero-initialised is empty. */
struct invalidation_list {
    struct invalidation *items;
    size_t n, cap;
};
/* Takes name and body. What it returns is valid until the next one; expire_ms and maxlen are 0. */
struct invalidation *invalidation_add(struct invalidation_list *l, enum invalidation_kind kind,
                                      uint32_t rule, char *name, char *body);
/* Must it be carried out before what its write says to others? */
bool invalidation_goes_first(enum invalidation_kind kind);
const char *invalidation_command(enum invalidation_kind kind); /* "UNLINK" "INCR" ... */
/* The body as it is sent at this time, mem_free() it; NULL when the body has no time in it (or is
 * NULL). */
char *invalidation_stamped(const char *body, int64_t wall_ms);
void invalidation_list_clear(struct invalidation_list *l);
void invalidation_clear(struct invalidation *i);

#endif
