#include "core/suspicion.h"

enum suspicion_verdict suspicion_judge(struct suspicion *s, const struct outcome *o,
                                       uint64_t stored, bool among_stored, uint32_t max)
{
    bool passes = among_stored || (s->code != 0 && stored > s->stored);

    if (o->doubt == DOUBT_AMONG && s->code == 0 && !passes)
        return SUSPICION_NONE; /* or a whole outage would be sent one by one */
    if (o->code != s->code) {
        *s = (struct suspicion){.code = o->code, .stored = stored};
        return passes ? SUSPICION_AGAIN : SUSPICION_NONE;
    }
    if (!passes)
        return SUSPICION_NONE;
    s->stored = stored;
    s->repeats += o->doubt == DOUBT_ALONE;
    return max > 0 && s->repeats >= max ? SUSPICION_GUILTY : SUSPICION_AGAIN;
}
