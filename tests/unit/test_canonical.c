/* One form for all that MongoDB holds for equal, and one hash for all that says the same. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core/canonical.h"

#include "fakes/dice.h"

/* Extended JSON with ' for ". */
static bson_t *bson_of(const char *text)
{
    char *json = mem_text(text);
    bson_error_t e;

    for (char *c = json; *c; c++)
        *c = *c == '\'' ? '"' : *c;
    bson_t *b = bson_new_from_json((const uint8_t *)json, -1, &e);
    if (b == NULL)
        fail_msg("%s: %s", text, e.message);
    mem_free(json);
    return b;
}

static void hash_of(const char *text, uint8_t hash[CANONICAL_HASH_BYTES])
{
    bson_t *b = bson_of(text);

    assert_true(canonical_hash(b, hash));
    bson_destroy(b);
}

static bool same_hash(const char *a, const char *b)
{
    uint8_t x[CANONICAL_HASH_BYTES], y[CANONICAL_HASH_BYTES];

    hash_of(a, x);
    hash_of(b, y);
    return memcmp(x, y, sizeof x) == 0;
}

static void equal_contents(void **state)
{
    static const char *const pairs[][2] = {
        {"{'a':1,'b':2}", "{'b':2,'a':1}"},
        {"{'x':{'a':1,'b':{'c':1,'d':2}}}", "{'x':{'b':{'d':2,'c':1},'a':1}}"},
        {"{'x':[{'a':1,'b':2}]}", "{'x':[{'b':2,'a':1}]}"},
        {"{'a':{'$numberInt':'1'}}", "{'a':{'$numberLong':'1'}}"},
        {"{'a':{'$numberLong':'1'}}", "{'a':{'$numberDouble':'1.0'}}"},
        {"{'a':{'$numberLong':'-7'}}", "{'a':{'$numberDecimal':'-7.00'}}"},
        {"{'a':[{'$numberDecimal':'1.50'}]}", "{'a':[{'$numberDecimal':'1.5'}]}"},
        {"{'a':{'$numberDouble':'-0.0'}}", "{'a':{'$numberLong':'0'}}"},
        {"{'':1,'$x':2,'a.b':3}", "{'a.b':3,'':1,'$x':2}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (!same_hash(pairs[i][0], pairs[i][1]))
            fail_msg("%s and %s differ", pairs[i][0], pairs[i][1]);
}

static void different_contents(void **state)
{
    static const char *const pairs[][2] = {
        {"{'a':1}", "{'a':2}"},
        {"{'a':1}", "{'b':1}"},
        {"{'a':1}", "{'a':'1'}"},
        {"{'a':1}", "{'a':true}"},
        {"{'a':null}", "{}"},
        {"{'a':[1,2]}", "{'a':[2,1]}"},
        {"{'a':[1]}", "{'a':{'0':1}}"},
        {"{'a':{'b':1}}", "{'a':{},'b':1}"},
        {"{'a':{'$numberDouble':'1.5'}}", "{'a':{'$numberDouble':'1.25'}}"},
        {"{'a':{'$numberLong':'9007199254740993'}}", "{'a':{'$numberLong':'9007199254740992'}}"},
        {"{'a':'x'}", "{'a':'x\\u0000'}"},
        {"{'a':''}", "{'a':{}}"},
    };

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        if (same_hash(pairs[i][0], pairs[i][1]))
            fail_msg("%s and %s are the same", pairs[i][0], pairs[i][1]);
}

/* What documents hold already must mean the same in every version. Made with Python's bson and
 * xxhash: xxh3_128(bson.encode({"a": Int64(1), "b": {"c": "x", "d": [Int64(2), None]}})). */
static void the_hash_never_changes(void **state)
{
    static const uint8_t expected[] = {0x1e, 0x9e, 0xfa, 0x7e, 0xde, 0x3f, 0xd7, 0xae,
                                       0x91, 0xd5, 0xbc, 0xf4, 0x87, 0x82, 0x80, 0xfd};
    uint8_t hash[CANONICAL_HASH_BYTES];

    (void)state;
    hash_of("{'b':{'d':[2,null],'c':'x'},'a':1.0}", hash);
    assert_memory_equal(hash, expected, sizeof hash);
}

/* A document of many fields in any order. */
static void any_order(void **state)
{
    struct dice dice = dice_seed("test_canonical");
    uint8_t first[CANONICAL_HASH_BYTES], hash[CANONICAL_HASH_BYTES];

    (void)state;
    for (int run = 0; run < 200; run++) {
        int n = 1 + (int)dice_below(&dice, 60), order[60];

        for (int i = 0; i < n; i++)
            order[i] = i;
        for (int round = 0; round < 3; round++) {
            bson_t b = BSON_INITIALIZER, child;

            for (int i = n - 1; i > 0; i--) {
                int j = (int)dice_below(&dice, (uint64_t)i + 1), swap = order[i];

                order[i] = order[j];
                order[j] = swap;
            }
            for (int i = 0; i < n; i++) {
                char name[16];

                snprintf(name, sizeof name, "f%d", order[i]);
                if (order[i] % 3 == 0) {
                    BSON_APPEND_DOCUMENT_BEGIN(&b, name, &child);
                    BSON_APPEND_INT32(&child, round == 1 ? "x" : "y", 1);
                    BSON_APPEND_INT32(&child, round == 1 ? "y" : "x", 1);
                    bson_append_document_end(&b, &child);
                } else {
                    BSON_APPEND_INT32(&b, name, order[i]);
                }
            }
            assert_true(canonical_hash(&b, round ? hash : first));
            if (round)
                assert_memory_equal(hash, first, sizeof hash);
            bson_destroy(&b);
        }
    }
}

/* The key of a stored document as the filter has it; NULL: bytes don't tell. */
static void key_is(const char *document, const char *like, const char *expected)
{
    bson_t *d = bson_of(document), *l = bson_of(like), key = BSON_INITIALIZER;
    bool ok = canonical_key(d, l, &key);

    if (expected == NULL) {
        assert_false(ok);
    } else {
        bson_t *e = bson_of(expected);
        if (!ok || !bson_equal(e, &key))
            fail_msg("%s: %s", document, bson_as_canonical_extended_json(&key, NULL));
        bson_destroy(e);
    }
    bson_destroy(d);
    bson_destroy(l);
    bson_destroy(&key);
}

static void keys_of_documents(void **state)
{
    (void)state;
    key_is("{'x':0,'k':{'$numberInt':'1'}}", "{'k':0}", "{'k':{'$numberLong':'1'}}");
    key_is("{'k':{'$numberDouble':'1.0'}}", "{'k':0}", "{'k':{'$numberLong':'1'}}");
    key_is("{'k':{'$numberDecimal':'1.50'}}", "{'k':0}", "{'k':{'$numberDecimal':'1.5'}}");
    key_is("{'b':'y','a':'x'}", "{'a':0,'b':0}", "{'a':'x','b':'y'}");
    key_is("{'o':{'id':'x','n':1}}", "{'o.id':0}", "{'o.id':'x'}");
    key_is("{'o.id':'no','o':{'p':{'id':true}}}", "{'o.p.id':0}", "{'o.p.id':true}");
    key_is("{'_id':{'b':1.0,'a':'x'}}", "{'_id':{}}", "{'_id':{'b':{'$numberLong':'1'},'a':'x'}}");
    key_is("{'k':['x','y']}", "{'k':0}", NULL);
    key_is("{'o':[{'id':'x'}]}", "{'o.id':0}", NULL);
    key_is("{'o':'x'}", "{'o.id':0}", NULL);
    key_is("{'a':1}", "{'a':0,'b':0}", NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_contents),         cmocka_unit_test(different_contents),
        cmocka_unit_test(the_hash_never_changes), cmocka_unit_test(any_order),
        cmocka_unit_test(keys_of_documents),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
