/*
 * redis.h - the bus over Redis (hiredis).
 *
 * URIs: redis://[[user]:password@]host[:port][/db][?db=N]
 *       unix://[[user]:password@]/path/to/socket[?db=N]
 *       rediss://... as redis:// over TLS, where the build has hiredis_ssl; ?cacert=FILE instead of
 * the system's certificates User and password are percent-decoded. Errors name host and port, never
 * the password.
 */
#ifndef IDEMSINK_IO_REDIS_H
#define IDEMSINK_IO_REDIS_H

#include <stdbool.h>

#include "base/err.h"
#include "core/config.h"
#include "ports/bus.h"
#include "ports/listener.h"
#include "ports/lock.h"
#include "ports/seen_store.h"

/* The version of hiredis that this was built with; it can't be asked for what is loaded. */
const char *redis_library_version(void);

/* config_drivers.redis_uri: can the URI be read? */
bool redis_uri_fine(const char *uri, struct buf *why) MUST_CHECK;

/* Does not connect: the first send does. ERR_CONFIG: the URI is not understood. */
bool redis_bus_new(const struct config *c, struct bus *out, struct err *e) MUST_CHECK;
void redis_bus_free(struct bus *b); /* without a Redis: nothing happens */

/* The lock port; c stays borrowed, nothing is to be freed. Each session is a connection of its own,
 * made by its first call. ERR_CONFIG: the URI is not understood. */
bool redis_lock_new(const struct config *c, struct lock *out, struct err *e) MUST_CHECK;

/* For the routes with seen.redis; c stays borrowed. Does not connect. ERR_CONFIG: the URI is not
 * understood. */
bool redis_seen_new(const struct config *c, struct seen_store *out, struct err *e) MUST_CHECK;
void redis_seen_free(struct seen_store *s); /* no session is left; none: nothing happens */

/* Subscribes to these, of which it makes copies, with its first call. ERR_CONFIG: the URI is not
 * understood. */
bool redis_listener_new(const struct config *c, const char *const *channels, size_t n,
                        struct listener *out, struct err *e) MUST_CHECK;
void redis_listener_free(struct listener *l); /* none: nothing happens */

/* Connects, authenticates, selects and pings, for check and start. */
bool redis_ping(const struct config *c, struct err *e) MUST_CHECK;

/*
 * For check: may we do this command with this key or channel? Tried within a transaction that is
 * thrown away, so that nothing happens. *found: "answers, version 7.0.15". False of redis_ask():
 * ERR_TRANSIENT: it could not be found out, another kind: no, and why.
 */
struct redis_asker;
struct redis_asker *redis_asker_new(const struct config *c, struct buf *found,
                                    struct err *e) MUST_CHECK;
void redis_asker_free(struct redis_asker *a); /* NULL is fine */
bool redis_ask(struct redis_asker *a, int argc, const char **argv, struct err *e) MUST_CHECK;

#endif
