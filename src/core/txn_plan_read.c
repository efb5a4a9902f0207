/*
 * What the reads tell: which events are stored, which entities are there.
 */
#include <string.h>

#include "base/err.h"
#include "base/mem.h"
#include "core/look.h"
#include "core/txn_plan_steps.h"

void txn_plan_found(struct txn_plan *p, const bson_t *document)
{
    bool inside = p->step == TXN_STEP_STATE || p->step == TXN_STEP_CHECK;
    size_t k;

    MUST(p->out && (p->is_look || inside));
    k = look_find(p->look, document);
    if (k == SIZE_MAX) {
        p->strange = true;
        return;
    }
    p->found[k] = true;
    if (!inside)
        txn_batch_found(&p->batch, p->what[k], document);
}

/* The read of many can't tell: each by itself. */
static void look_alone(struct txn_plan *p)
{
    for (size_t k = 0; k < p->n; k++)
        p->batch.items[p->what[k]].look_alone = !p->found[k];
}

static void look_failed(struct txn_plan *p, const struct outcome_call *call)
{
    bool somebody = outcome_may_be_one_of_many(call);
    struct outcome o;

    if (somebody && p->n > 1) {
        look_alone(p);
        return;
    }
    outcome_of_failure(call, &o);
    if (somebody && o.code != 0) { /* as for a write that is not understood */
        o.doubt = DOUBT_ALONE;
        o.text = mem_text(call->message ? call->message : "the read was refused");
        txn_batch_done(&p->batch, p->what[0], o);
    }
    txn_batch_give_up(&p->batch, o.retry, o.code);
}

void txn_looked(struct txn_plan *p, const struct txn_call *call)
{
    if (call->call.fault != CALL_FINE) {
        look_failed(p, &call->call);
        return;
    }
    if (p->strange)
        look_alone(p);
    for (size_t k = 0; k < p->n && !p->strange; k++)
        if (!p->found[k])
            txn_batch_not_found(&p->batch, p->what[k]);
}

void txn_state_known(struct txn_plan *p)
{
    struct txn_chunk *c = &p->chunk;

    for (size_t k = 0; k < p->n; k++) {
        uint32_t entity = p->what[k];

        c->there[entity] = p->found[k];
        if (!p->found[k] && p->strange && p->n > 1) {
            c->asked[entity] = false;
            c->ask_alone[entity] = true;
        }
    }
}
