/*
 * log_plan_entity.c - operations: what becomes of the entities of a round.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/log_plan_private.h"

void log_entity_free(struct log_plan *p)
{
    mem_free(p->entity_ops);
}

void log_entity_begin(struct log_plan *p)
{
    (void)p;
}

void log_entity_open(struct log_plan *p, size_t i)
{
    (void)p;
    (void)i;
}

bool log_entity_next(struct log_plan *p, struct log_command *c)
{
    (void)p;
    (void)c;
    return false;
}

bool log_leave_next(struct log_plan *p, struct log_command *c)
{
    (void)p;
    (void)c;
    return false;
}

void log_entity_found(struct log_plan *p, const bson_t *document)
{
    (void)p;
    (void)document;
}

void log_entity_answer(struct log_plan *p, const struct outcome_call *call, const bson_t *reply)
{
    (void)p;
    (void)call;
    (void)reply;
}
