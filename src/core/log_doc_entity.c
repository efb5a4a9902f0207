/* What the steps of operations write into the documents of entities. */
#include "core/log_doc.h"

#include "base/err.h"

void log_entity_filter(const struct log_command *c, size_t k, bson_t *filter)
{
    MUST(bson_concat(filter, c->ops[k]->effects->entity));
}

void log_entity_update(const struct log_command *c, size_t k, bson_t *update)
{
    (void)c;
    (void)k;
    (void)update;
}

void log_read_projection(const struct log_command *c, bson_t *projection)
{
    (void)c;
    (void)projection;
}
