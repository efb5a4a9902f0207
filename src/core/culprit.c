#include "core/culprit.h"

enum { LARGE_BYTES = 15 << 20, DEEP_LEVELS = 80 };

/* Has it more levels of objects and arrays, itself being the first? */
static bool is_deeper(bson_iter_t at, unsigned levels)
{
    bson_iter_t in;

    while (bson_iter_next(&at)) {
        if (!BSON_ITER_HOLDS_DOCUMENT(&at) && !BSON_ITER_HOLDS_ARRAY(&at))
            continue;
        if (levels <= 1 || (bson_iter_recurse(&at, &in) && is_deeper(in, levels - 1)))
            return true;
    }
    return false;
}

bool culprit_can_be(enum reason reason, const struct write_op *op)
{
    bson_iter_t it;

    if (reason == REASON_TOO_LARGE)
        return (size_t)op->filter->len + op->document->len > LARGE_BYTES;
    if (reason == REASON_TOO_DEEP)
        return bson_iter_init(&it, op->document) && is_deeper(it, DEEP_LEVELS);
    return false;
}
