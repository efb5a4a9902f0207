/*
 * secret.h - the net below: texts that must not get into any error or log line, whoever made it.
 *
 * Libraries quote what they were given. err_set() and log_write() pass through here, so that
 * nothing of a password is seen even where nobody thought of it. What shows configuration knows by
 * itself what is secret (core/config.h).
 */
#ifndef IDEMSINK_BASE_SECRET_H
#define IDEMSINK_BASE_SECRET_H

#include <stdbool.h>

#include "base/bytes.h"

/* Below this a text is no secret: it would be found in every other word. */
enum { SECRET_LEAST = 4 };

/* Copies it. Before there are other threads; afterwards all is only read. NULL and short ones: no.
 */
void secret_add(const char *text);
void secret_clear(void); /* for tests, and before another configuration is read */

bool secret_known(void); /* are there any? */

/* Appends text with *** for each secret, also for the beginning of one at the very end, where a
 * text may have been cut. */
void secret_hide(const char *text, struct buf *out);

#endif
