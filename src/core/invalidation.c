#include "core/invalidation.h"

#include "base/mem.h"

void invalidation_add(struct invalidation_list *l, enum invalidation_kind kind, uint32_t rule,
                      char *name, char *body)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 8;
        l->items = mem_grow(l->items, l->cap, sizeof(*l->items));
    }

    struct invalidation *i = &l->items[l->n++];
    i->kind = kind;
    i->rule = rule;
    i->name = name;
    i->body = body;
}

void invalidation_clear(struct invalidation *i)
{
    mem_free(i->name);
    mem_free(i->body);
    i->name = i->body = NULL;
}

void invalidation_list_clear(struct invalidation_list *l)
{
    for (size_t i = 0; i < l->n; i++)
        invalidation_clear(&l->items[i]);
    mem_free(l->items);
    *l = (struct invalidation_list){0};
}
