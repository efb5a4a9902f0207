/*
 * fake_bus.h - a Redis that fails as it is told, and remembers what it was sent.
 *
 * Any thread may look and change it; what waits gives up after 30 s with a sentence.
 */
#ifndef IDEMSINK_TESTS_FAKE_BUS_H
#define IDEMSINK_TESTS_FAKE_BUS_H

#include "fakes/dice.h"
#include "ports/bus.h"

struct fake_bus;

enum fake_bus_mode {
    FAKE_BUS_WELL,
    FAKE_BUS_AWAY,     /* nothing is answered */
    FAKE_BUS_READONLY, /* only PUBLISHes are answered, all else is refused */
    FAKE_BUS_RANDOM    /* well, away, the connection lost in the middle, late: by the dice */
};

struct fake_bus *fake_bus_new(struct dice dice);
void fake_bus_free(struct fake_bus *b);
struct bus fake_bus_port(struct fake_bus *b);

void fake_bus_set_mode(struct fake_bus *b, enum fake_bus_mode mode);

/* From now on a send is held up until it is let go; the wait is for one that is. */
void fake_bus_hang(struct fake_bus *b, bool hang);
void fake_bus_wait_hanging(struct fake_bus *b);

/* How often this name (and, if not NULL, this body) was answered well. */
size_t fake_bus_count(struct fake_bus *b, const char *name, const char *body);
size_t fake_bus_total(struct fake_bus *b); /* all that were answered well */
size_t fake_bus_calls(struct fake_bus *b);
void fake_bus_wait_count(struct fake_bus *b, const char *name, size_t at_least);
void fake_bus_wait_calls(struct fake_bus *b, size_t at_least);

/* The n-th that was answered well, from 0; its texts are valid until fake_bus_free(). */
struct invalidation fake_bus_sent(struct fake_bus *b, size_t n);

/* The n-th that was answered well, from 0; "" behind the last. Valid until fake_bus_free(). */
const char *fake_bus_name(struct fake_bus *b, size_t n);
const char *fake_bus_body(struct fake_bus *b, size_t n);

#endif
