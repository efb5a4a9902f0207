#include "core/effect.h"

#include <xxhash.h>

#include "base/mem.h"

void effects_free(struct effects *f)
{
    if (!f)
        return;
    bson_destroy(f->entity);
    bson_destroy(f->fence);
    for (size_t i = 0; i < f->n_moves; i++) {
        bson_destroy(f->moves[i].filter);
        mem_free(f->moves[i].by);
    }
    mem_free(f->moves);
    if (f->number) {
        bson_destroy(f->number->group);
        mem_free(f->number->before);
        mem_free(f->number->behind);
    }
    mem_free(f->number);
    mem_free(f);
}

void effect_id(const bson_t *event_filter, uint8_t id[EFFECT_ID_BYTES])
{
    XXH128_canonical_t canonical;

    XXH128_canonicalFromHash(&canonical,
                             XXH3_128bits(bson_get_data(event_filter), event_filter->len));
    for (size_t i = 0; i < EFFECT_ID_BYTES; i++)
        id[i] = canonical.digest[i];
}
