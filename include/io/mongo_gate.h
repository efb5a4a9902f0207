/*
 * mongo_gate.h - who moves the same counters goes one after another, inside of this process.
 *
 * Two transactions on one counter document exclude each other: the later one fails at once
 * (WriteConflict, measured on 6.0.5) and has to begin again. So a batch names what it will touch,
 * as hashes, and waits until nobody else here holds any of it. Between processes the server
 * decides.
 *
 * All keys are taken at once or none, so there is no deadlock; who came first goes first where two
 * want the same key, so nobody starves. A hash that stands for two things makes somebody wait in
 * vain, no more. Any thread.
 */
#ifndef IDEMSINK_IO_MONGO_GATE_H
#define IDEMSINK_IO_MONGO_GATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct mongo_gate;

/* One thread's place in it; zero-initialised, used again and again. The members are the gate's. */
struct mongo_gate_pass {
    uint64_t *keys;
    size_t n, cap;
    bool inside; /* they are held: may be read by its thread */
    struct mongo_gate_pass *before, *behind;
};
void mongo_gate_pass_clear(struct mongo_gate_pass *p);

struct mongo_gate *mongo_gate_new(void);
void mongo_gate_free(struct mongo_gate *g); /* NULL is fine; nobody is in it */

/* keys: sorted, all different; copied. False: not until deadline_ms (of clock_mono_ms()), and
 * nothing is held. */
bool mongo_gate_enter(struct mongo_gate *g, struct mongo_gate_pass *p, const uint64_t *keys,
                      size_t n, int64_t deadline_ms);
void mongo_gate_leave(struct mongo_gate *g, struct mongo_gate_pass *p); /* not inside: is fine */

#endif
