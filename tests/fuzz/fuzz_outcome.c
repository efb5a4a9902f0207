/* Any bytes as a reply: no crash, and fates that fit together. */
#include <stdint.h>
#include <stdlib.h>

#include "base/mem.h"
#include "core/outcome.h"

static void must(int cond)
{
    if (!cond)
        abort();
}

static void check(const struct outcome_call *call, bool each, size_t n, const struct outcome *out)
{
    bool stopped = false;

    for (size_t i = 0; i < n; i++) {
        const struct outcome *o = &out[i];
        must((unsigned)o->fate <= FATE_SPLIT && (unsigned)o->retry < RETRY_CLASSES);
        must((o->fate == FATE_NOT_RUN) == stopped);
        if (o->fate == FATE_NEVER)
            must(o->reason != REASON_NONE && o->text != NULL);
        if (o->fate == FATE_LOOK)
            must(o->text != NULL);
        if (o->fate == FATE_LATER || o->fate == FATE_UNKNOWN)
            must(o->retry != RETRY_NONE && o->text == NULL);
        if (o->fate == FATE_SPLIT)
            must(!each);
        if (!each)
            must(o->fate == FATE_UNKNOWN || o->fate == FATE_SPLIT);
        if (each && call->ordered && o->fate != FATE_INSERTED && o->fate != FATE_DUPLICATE)
            stopped = true;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome out[16];
    bson_t reply;

    if (size < 3)
        return 0;
    struct outcome_call call = {
        .fault = (enum call_fault)(data[0] % (CALL_DRIVER + 1)),
        .ordered = data[0] & 0x10,
        .is_insert = data[0] & 0x20,
        .code = data[1] * 100,
        .message = data[0] & 0x40 ? "Document 1 is too large" : NULL,
    };
    size_t n = 1 + data[2] % 16;

    /* Half of the time any bytes, half of the time the length field is put right. */
    uint8_t *copy = mem_array(size - 2, 1);
    for (size_t i = 3; i < size; i++)
        copy[i - 3] = data[i];
    if (data[0] & 0x80 && size - 3 >= 5) {
        uint32_t len = (uint32_t)(size - 3);
        for (size_t i = 0; i < 4; i++)
            copy[i] = (uint8_t)(len >> (8 * i));
        copy[len - 1] = 0;
    }
    bool have = bson_init_static(&reply, copy, size - 3);
    bool each = outcome_judge(&call, have ? &reply : NULL, n, out);
    check(&call, each, n, out);
    for (size_t i = 0; i < n; i++)
        outcome_clear(&out[i]);
    mem_free(copy);
    return 0;
}
