#include "core/invalidation.h"

#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "core/template.h"

struct invalidation *invalidation_add(struct invalidation_list *l, enum invalidation_kind kind,
                                      uint32_t rule, char *name, char *body)
{
    if (l->n == l->cap) {
        l->cap = l->cap ? l->cap * 2 : 8;
        l->items = mem_grow(l->items, l->cap, sizeof(*l->items));
    }

    struct invalidation *i = &l->items[l->n++];
    *i = (struct invalidation){.kind = kind, .rule = rule};
    i->name = name;
    i->body = body;
    return i;
}

bool invalidation_goes_first(enum invalidation_kind kind)
{
    return kind == INVALIDATION_UNLINK || kind == INVALIDATION_INCR || kind == INVALIDATION_MIRROR;
}

const char *invalidation_command(enum invalidation_kind kind)
{
    static const char *const names[INVALIDATION_KINDS] = {"UNLINK", "INCR", "PUBLISH", "XADD",
                                                          "EVALSHA"};

    return names[kind];
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

char *invalidation_stamped(const char *body, int64_t wall_ms)
{
    const char *at = body ? strstr(body, TEMPLATE_TIMESTAMP) : NULL;
    struct buf b = {0};

    if (at == NULL)
        return NULL;
    for (; at; at = strstr(body, TEMPLATE_TIMESTAMP)) {
        buf_add(&b, body, (size_t)(at - body));
        buf_printf(&b, "%lld", (long long)wall_ms);
        body = at + strlen(TEMPLATE_TIMESTAMP);
    }
    buf_add_text(&b, body);
    return b.data;
}
