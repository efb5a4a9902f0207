/*
 * culprit.h - whether an operation can be what a server says of the whole command. Pure.
 */
#ifndef IDEMSINK_CORE_CULPRIT_H
#define IDEMSINK_CORE_CULPRIT_H

#include "core/mapping.h"
#include "core/reason.h"

/* Too large (limit: 16 MiB), too deep (some 180 levels): is it anywhere near that? A server in
 * trouble may say anything, of anybody. False for all other reasons. */
bool culprit_can_be(enum reason reason, const struct write_op *op);

#endif
