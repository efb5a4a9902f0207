/*
 * config_secret.h - what of a configuration must not be seen: in print, in errors, in the log.
 */
#ifndef IDEMSINK_CORE_CONFIG_SECRET_H
#define IDEMSINK_CORE_CONFIG_SECRET_H

#include "core/config.h"

/*
 * "mongodb://u:p@h/" -> "mongodb://u:***@h/"; options that hold secrets too, and what looks like a
 * password whose '@' is missing. Appends to out.
 */
void config_redact_uri(const char *uri, struct buf *out);

/* Calls each with every secret text of the configuration, as written and percent-decoded, and with
 * the words of those of which a library may tell a part. */
typedef void config_secret_fn(const char *text);
void config_secrets(const struct config *c, config_secret_fn *each);

#endif
