/*
 * drop_message.h - is a message on the channel of seen.drop_on about our collection? Pure.
 *
 * monSQLize tells that a collection was changed by {"type":"invalidate","pattern":P,"instanceId":I}
 * or {"type":"invalidateKey","key":K,"instanceId":I} (docs/caches.md); its receivers ignore their
 * own. Whatever is not understood is about ours: to forget costs time, not to costs an event.
 */
#ifndef IDEMSINK_CORE_DROP_MESSAGE_H
#define IDEMSINK_CORE_DROP_MESSAGE_H

#include <stdbool.h>

#include "base/bytes.h"

/* False: we said it ourselves (instance_id), or it names another collection and none but that. */
bool drop_message_concerns(struct slice message, const char *database, const char *collection,
                           const char *instance_id);

#endif
