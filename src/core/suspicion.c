#include "core/suspicion.h"

enum suspicion_verdict suspicion_judge(struct suspicion *s, const struct outcome *o,
                                       const struct suspicion_signs *signs, uint32_t max)
{
    bool passes = signs->among_stored || (s->code != 0 && signs->stored > s->stored);
    bool cleared = signs->cleared != s->cleared;

    if (o->doubt == DOUBT_AMONG && s->code == 0 && !passes)
        return SUSPICION_NONE; /* or a whole outage would be sent one by one */
    if (o->code != s->code || cleared) {
        *s =
            (struct suspicion){.code = o->code, .stored = signs->stored, .cleared = signs->cleared};
        return passes ? SUSPICION_AGAIN : SUSPICION_NONE;
    }
    if (!passes)
        return SUSPICION_NONE;
    s->stored = signs->stored;
    s->repeats += o->doubt == DOUBT_ALONE;
    return max > 0 && s->repeats >= max ? SUSPICION_GUILTY : SUSPICION_AGAIN;
}
