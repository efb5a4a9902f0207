/*
 * route_state.h - what the workers know together about each route: how many documents were stored
 * in its collection, how many records were cleared, whether it is written, and if not since when,
 * why, and what to do.
 *
 * Any thread. One lock, a leaf; what it answers about held routes is read without it.
 */
#ifndef IDEMSINK_RUN_ROUTE_STATE_H
#define IDEMSINK_RUN_ROUTE_STATE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/metrics.h"
#include "core/config.h"
#include "core/outcome.h"

struct route_state;

/* config stays borrowed; the registry must not render any more when it is freed. */
struct route_state *route_state_new(const struct config *c, struct metrics *registry);
void route_state_free(struct route_state *s); /* NULL is fine */

/* n more documents were stored by this route. How many were stored in its collection, by whichever
 * route. */
uint64_t route_state_stored(struct route_state *s, uint32_t route, uint64_t n);

/* The same for records under suspicion that got through after all (core/suspicion.h). */
uint64_t route_state_cleared(struct route_state *s, uint32_t route, uint64_t n);

/* A batch of the route was not acknowledged, for a reason that is no record's own. True: this is
 * news, or was not said for a minute: find out more, say it, and call route_state_explain(). */
bool route_state_trouble(struct route_state *s, uint32_t route, enum retry_class why, int code);

/* What to do about it, for /readyz. Forgotten with the trouble. */
void route_state_explain(struct route_state *s, uint32_t route, const char *text);

/* Operations of the route were answered. True: it had been in trouble and that was said;
 * *lasted_ms says for how long. */
bool route_state_fine(struct route_state *s, uint32_t route, int64_t *lasted_ms);

/*
 * A record of the route waits until somebody acts, and others of it go on: nothing is held. *waits
 * is the record's own mark, false at first: each is counted once. text: what to do. True: this is
 * news, or was not said for a minute.
 */
bool route_state_part_waits(struct route_state *s, uint32_t route, bool *waits, const char *text);
/* A record got its end. True: it was the last of those that wait, and that some do had been said;
 * *lasted_ms as above. While others do, what to do stands as the last one said it. */
bool route_state_part_goes_on(struct route_state *s, uint32_t route, bool *waits,
                              int64_t *lasted_ms);

/*
 * By route, for as long as s: an operator must act (rights, configuration), so nothing more is to
 * be read for it; what is here tries on. Set and reset by the two above.
 */
const atomic_bool *route_state_held(const struct route_state *s);

/* Appends a line about each route in trouble. False: none is. A trouble that nobody has confirmed
 * for longer than an attempt can take (its partitions went away) is over. */
bool route_state_describe(struct route_state *s, struct buf *out);

#endif
