/* Which messages make a route forget what it has seen: shop.orders, told by "me". */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/drop_message.h"

static void test_messages(void **state)
{
    static const struct {
        const char *message;
        bool concerns;
    } rows[] = {
        /* of others, about ours */
        {"{\"type\":\"invalidate\",\"pattern\":\"*\\\"ns\\\":{\\\"collection\\\":\\\"orders\\\","
         "\\\"db\\\":\\\"shop\\\",*\",\"instanceId\":\"you\",\"timestamp\":1}",
         true},
        {"{\"type\":\"invalidate\",\"pattern\":\"*:shop.orders:*\",\"instanceId\":\"you\"}", true},
        {"{\"type\":\"invalidate\",\"pattern\":\"shop:orders:bm:*\",\"instanceId\":\"you\"}", true},
        {"{\"type\":\"invalidate\",\"pattern\":\"*:shop.orders:*\"}", true},
        /* about others */
        {"{\"type\":\"invalidate\",\"pattern\":\"*\\\"ns\\\":{\\\"collection\\\":\\\"users\\\","
         "\\\"db\\\":\\\"shop\\\",*\",\"instanceId\":\"you\"}",
         false},
        {"{\"type\":\"invalidate\",\"pattern\":\"*:shop.users:*\",\"instanceId\":\"you\"}", false},
        {"{\"type\":\"invalidate\",\"pattern\":\"shop:users:bm:*\",\"instanceId\":\"you\"}", false},
        {"{\"type\":\"invalidate\",\"pattern\":\"*:shop.orders2.x:*\",\"instanceId\":\"you\"}",
         true},
        /* of ourselves */
        {"{\"type\":\"invalidate\",\"pattern\":\"*:shop.orders:*\",\"instanceId\":\"me\"}", false},
        {"{\"type\":\"invalidateKey\",\"key\":\"k\",\"instanceId\":\"me\"}", false},
        /* may be about anything */
        {"{\"type\":\"invalidateKey\",\"key\":\"user:7\",\"instanceId\":\"you\"}", true},
        {"{\"type\":\"invalidate\",\"pattern\":\"*\",\"instanceId\":\"you\"}", true},
        {"{\"type\":\"invalidate\",\"pattern\":\"*:shop.*\",\"instanceId\":\"you\"}", true},
        {"{\"type\":\"invalidate\",\"pattern\":\"*:sh?p.users:*\",\"instanceId\":\"you\"}", true},
        {"{\"type\":\"invalidate\",\"pattern\":\"*:a:b.c:*\",\"instanceId\":\"you\"}", true},
        {"{\"type\":\"invalidate\",\"pattern\":\"*\\\"ns\\\":{\\\"collection\\\":\\\"u*\\\","
         "\\\"db\\\":\\\"shop\\\",*\"}",
         true},
        {"{\"type\":\"invalidate\",\"pattern\":\"*\\\"ns\\\":{\\\"collection\\\":\\\"users\\\",*"
         "\"}",
         true},
        {"{\"type\":\"invalidate\",\"pattern\":7}", true},
        {"{\"type\":\"invalidate\"}", true},
        {"{\"id\": 5}", true},
        {"[]", true},
        {"\"me\"", true},
        {"orders changed", true},
        {"", true},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (drop_message_concerns(slice_text(rows[i].message), "shop", "orders", "me") !=
            rows[i].concerns)
            fail_msg("%s", rows[i].message);
}

/* The name of another collection may hold ours. */
static void test_names(void **state)
{
    (void)state;
    assert_true(drop_message_concerns(slice_text("{\"pattern\":\"*:a.b:*\"}"), "a", "b", "me"));
    assert_false(drop_message_concerns(slice_text("{\"pattern\":\"*:a.c:*\"}"), "a", "b", "me"));
    assert_true(drop_message_concerns(slice_text("{\"pattern\":\"*:a.b:*\"}"), "a", "b", NULL));
    assert_true(drop_message_concerns(slice_of("", 0), "a", "b", NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_messages),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
