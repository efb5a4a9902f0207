/* A field of a counter document against what was counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/reconcile.h"

static bson_t *bson(const char *json)
{
    bson_error_t be;
    bson_t *b = bson_new_from_json((const uint8_t *)json, -1, &be);

    if (b == NULL)
        fail_msg("%s: %s", json, be.message);
    return b;
}

static void test_compare(void **state)
{
    static const struct {
        int64_t counted;
        const char *stored;
        enum reconcile_difference want;
    } rows[] = {
        {0, "{}", RECONCILE_SAME},
        {1, "{}", RECONCILE_MISSING},
        {0, "{\"n\":{\"$numberLong\":\"0\"}}", RECONCILE_SAME},
        {0, "{\"n\":{\"$numberInt\":\"0\"}}", RECONCILE_SAME},
        {2, "{\"n\":{\"$numberInt\":\"2\"}}", RECONCILE_TYPE},
        {2, "{\"n\":{\"$numberInt\":\"3\"}}", RECONCILE_DIFFERENT},
        {2, "{\"n\":{\"$numberLong\":\"2\"}}", RECONCILE_SAME},
        {0, "{\"n\":{\"$numberLong\":\"-1\"}}", RECONCILE_EXTRA},
        {0, "{\"n\":0.0}", RECONCILE_TYPE},
        {2, "{\"n\":2.0}", RECONCILE_TYPE},
        {2, "{\"n\":null}", RECONCILE_TYPE},
        {2, "{\"n\":\"2\"}", RECONCILE_TYPE},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        bson_t *b = bson(rows[i].stored);
        enum reconcile_difference got =
            reconcile_compare(rows[i].counted, reconcile_value_of(b, "n"));

        if (got != rows[i].want)
            fail_msg("%s: %s", rows[i].stored, reconcile_difference_name(got));
        bson_destroy(b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_compare),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
