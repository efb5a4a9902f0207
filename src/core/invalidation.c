#include "core/invalidation.h"

#include "base/mem.h"

/* NOLINTNEXTLINE(readability-non-const-parameter): it takes the texts and frees them later */
void invalidation_add(struct invalidation_list *l, enum invalidation_kind kind, uint32_t rule,
                      char *name, char *body)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 8;
        l->items = mem_grow(l->items, l->cap, sizeof(*l->items));
    }
    l->items[l->n++] =
        (struct invalidation){.kind = kind, .rule = rule, .name = name, .body = body};
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
