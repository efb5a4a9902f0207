#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "core/audit.h"

static struct err e;

static bool expect(struct audit *a, uint64_t lane, int id, const char *content, int64_t offset)
{
    struct record r = {.topic = "t", .order_hash = lane << 48, .offset = offset, .slot = 3};
    bson_t *key = BCON_NEW("id", BCON_INT32(id));
    bson_t *document = BCON_NEW("id", BCON_INT32(id), "v", content);
    bool ok = audit_expect(a, &r, key, document, &e);

    bson_destroy(key);
    bson_destroy(document);
    return ok;
}

static enum audit_verdict stored(struct audit *a, int id, const char *content)
{
    bson_t *key = BCON_NEW("id", BCON_INT32(id));
    bson_t *document = BCON_NEW("_id", BCON_INT32(77), "v", content, "id", BCON_INT32(id));
    enum audit_verdict v = audit_stored(a, 0, key, document);

    bson_destroy(key);
    bson_destroy(document);
    return v;
}

static void dead(struct audit *a, int64_t offset)
{
    assert_true(audit_dead(a, slice_text("t"), 0, offset, &e));
    assert_true(audit_is_dead(a, slice_text("t"), 0, offset));
    assert_false(audit_is_dead(a, slice_text("t"), 1, offset));
    assert_false(audit_is_dead(a, slice_text("u"), 0, offset));
}

static void remember(void *ctx, uint32_t slot, int64_t offset)
{
    assert_int_equal(slot, 3);
    *(int64_t *)ctx = offset;
}

static void balanced_books(void **state)
{
    struct audit *a = audit_new(1 << 20, 0, UINT64_MAX);
    int64_t missing = -1;

    (void)state;
    dead(a, 12);
    assert_true(expect(a, 1, 1, "first", 10));
    assert_true(expect(a, 1, 1, "first", 11));
    assert_true(expect(a, 1, 2, "x", 12));
    assert_int_equal(stored(a, 1, "first"), AUDIT_RIGHT);
    struct audit_books b = audit_finish(a, 10, remember, &missing);
    assert_int_equal(b.records, 3);
    assert_int_equal(b.distinct, 2);
    assert_int_equal(b.right, 1);
    assert_int_equal(b.dead, 1);
    assert_int_equal(b.missing, 0);
    assert_int_equal(missing, -1);
    audit_free(a);
}

static void every_kind_of_fault(void **state)
{
    struct audit *a = audit_new(1 << 20, 0, UINT64_MAX);
    int64_t missing = -1;

    (void)state;
    assert_true(expect(a, 1, 1, "first", 10));
    assert_true(expect(a, 1, 1, "second of the same lane", 11));
    assert_true(expect(a, 1, 2, "x", 12));
    assert_int_equal(stored(a, 1, "second of the same lane"), AUDIT_DIFFERENT);
    assert_int_equal(stored(a, 1, "first"), AUDIT_DOUBLE);
    assert_int_equal(stored(a, 9, "nobody asked"), AUDIT_EXTRA);
    struct audit_books b = audit_finish(a, 10, remember, &missing);
    assert_int_equal(b.different, 1);
    assert_int_equal(b.doubled, 1);
    assert_int_equal(b.extra, 1);
    assert_int_equal(b.missing, 1);
    assert_int_equal(missing, 12);
    audit_free(a);
}

/* Two lanes race for one dedup key: either first is right, a lane's second never is. */
static void lanes_race(void **state)
{
    (void)state;
    for (int winner = 0; winner < 3; winner++) {
        const char *const contents[] = {"of lane 1", "of lane 2", "second of lane 2"};
        struct audit *a = audit_new(1 << 20, 0, UINT64_MAX);

        assert_true(expect(a, 1, 1, contents[0], 1));
        assert_true(expect(a, 2, 1, contents[1], 2));
        assert_true(expect(a, 2, 1, contents[2], 3));
        assert_int_equal(stored(a, 1, contents[winner]),
                         winner < 2 ? AUDIT_RIGHT : AUDIT_DIFFERENT);
        audit_free(a);
    }
}

/* Each delivery's content differs (source_fields), and every key comes by two lanes. */
static void two_contents_of_every_key(void **state)
{
    enum { KEYS = 50000 };
    struct audit *a = audit_new((size_t)1 << 30, 0, UINT64_MAX);
    char text[32];

    (void)state;
    for (int lane = 1; lane <= 2; lane++) {
        for (int i = 0; i < KEYS; i++) {
            (void)snprintf(text, sizeof text, "%d of %d", i, lane);
            assert_true(expect(a, (uint64_t)lane, i, text, i));
        }
    }
    for (int i = 0; i < KEYS; i++) {
        (void)snprintf(text, sizeof text, "%d of %d", i, 1 + i % 2);
        assert_int_equal(stored(a, i, text), AUDIT_RIGHT);
    }
    struct audit_books b = audit_finish(a, 0, NULL, NULL);
    assert_int_equal(b.distinct, KEYS);
    assert_int_equal(b.right, KEYS);
    assert_int_equal(b.missing, 0);
    audit_free(a);
}

/* The first of its lane was refused by the server (a validator), so the second has to be stored. */
static void behind_a_dead_letter(void **state)
{
    const char *const contents[] = {"second", "refused", "altered", NULL};
    const enum audit_verdict right[] = {AUDIT_RIGHT, AUDIT_RIGHT, AUDIT_DIFFERENT};

    (void)state;
    for (int i = 0; i < 4; i++) {
        struct audit *a = audit_new(1 << 20, 0, UINT64_MAX);
        int64_t missing = -1;

        dead(a, 1);
        assert_true(expect(a, 1, 1, "refused", 1));
        assert_true(expect(a, 1, 1, "second", 2));
        if (contents[i]) /* "refused" may have been stored when it was delivered once more */
            assert_int_equal(stored(a, 1, contents[i]), right[i]);
        struct audit_books b = audit_finish(a, 1, remember, &missing);
        assert_int_equal(b.missing, contents[i] ? 0 : 1);
        assert_int_equal(missing, contents[i] ? -1 : 2);
        assert_int_equal(b.dead, 0);
        audit_free(a);
    }
}

/* All records of a key are dead letters: it needs no document. */
static void nothing_but_dead_letters(void **state)
{
    struct audit *a = audit_new(1 << 20, 0, UINT64_MAX);

    (void)state;
    dead(a, 1);
    dead(a, 2);
    assert_true(expect(a, 1, 1, "a", 1));
    assert_true(expect(a, 1, 1, "b", 2));
    struct audit_books b = audit_finish(a, 0, NULL, NULL);
    assert_int_equal(b.dead, 1);
    assert_int_equal(b.missing, 0);
    assert_int_equal(stored(a, 1, "c"), AUDIT_DIFFERENT);
    audit_free(a);
}

static void grows_and_says_when_full(void **state)
{
    const size_t max = (size_t)16 * 1024 * AUDIT_ENTRY_BYTES;
    struct audit *a = audit_new(max, 0, UINT64_MAX);
    int n = 0;

    (void)state;
    while (n <= 16 * 1024 && expect(a, 1, n, "x", n)) {
        assert_true(audit_bytes(a) <= max);
        n++;
    }
    /* Half of the tables doubled up to here or more, each at most three quarters full */
    assert_in_range(n, 16 * 1024 / 3, 16 * 1024 * 3 / 4);
    assert_int_equal(e.kind, ERR_CONFIG);
    assert_non_null(strstr(e.text, "dedup keys"));
    for (int i = 0; i < n; i++)
        assert_int_equal(stored(a, i, "x"), AUDIT_RIGHT);
    audit_free(a);
}

/* What has no room is refused before it is half in the books. */
static void full_by_marks(void **state)
{
    struct audit *a = audit_new((size_t)8 * 1024 * AUDIT_ENTRY_BYTES, 0, UINT64_MAX);
    char text[32];
    int n = 0;

    (void)state;
    for (; n <= 8 * 1024; n++) {
        (void)snprintf(text, sizeof text, "%d", n);
        if (!expect(a, (uint64_t)(1 + n % 7), n / 7, text, n))
            break;
    }
    struct audit_books b = audit_finish(a, 0, NULL, NULL);
    assert_int_equal(b.records, n);
    assert_true(audit_bytes(a) <= (size_t)8 * 1024 * AUDIT_ENTRY_BYTES);
    assert_false(audit_dead(a, slice_text("t"), 0, 1, &e));
    audit_free(a);
}

static uint64_t part(int k, int n)
{
    return k == n ? UINT64_MAX : UINT64_MAX / (uint64_t)n * (uint64_t)k;
}

/* The parts share no key and leave none out; both sides choose the same ones. */
static void samples_are_parts(void **state)
{
    enum { KEYS = 20000, PARTS = 4 };
    uint64_t all = 0;

    (void)state;
    for (int k = 0; k < PARTS; k++) {
        struct audit *a =
            audit_new((size_t)1 << 30, k == 0 ? 0 : part(k, PARTS) + 1, part(k + 1, PARTS));
        uint64_t unwanted = 0;

        for (int i = 0; i < KEYS; i++)
            assert_true(expect(a, 1, i, "x", i));
        for (int i = 0; i < KEYS; i++) {
            enum audit_verdict v = stored(a, i, "x");

            assert_true(v == AUDIT_RIGHT || v == AUDIT_UNWANTED);
            unwanted += v == AUDIT_UNWANTED;
        }
        struct audit_books b = audit_finish(a, 0, NULL, NULL);
        assert_int_equal(b.distinct, KEYS - unwanted);
        assert_int_equal(b.right, b.distinct);
        assert_int_equal(b.missing + b.extra, 0);
        assert_in_range(b.distinct, KEYS / PARTS * 9 / 10, KEYS / PARTS * 11 / 10);
        all += b.distinct;
        audit_free(a);
    }
    assert_int_equal(all, KEYS);
}

/* --- operations --- */

/* An event that adds the entity with this content, or removes it (NULL). */
static void operation(struct audit *a, uint64_t lane, int event, int entity, const char *content,
                      int64_t offset)
{
    struct record r = {.topic = "t", .order_hash = lane << 48, .offset = offset, .slot = 3};
    bson_t *id = BCON_NEW("_id", BCON_INT32(event)), *key = BCON_NEW("id", BCON_INT32(entity));
    bson_t *what = BCON_NEW("op", content ? "insert" : "delete");
    bson_t *document = content ? BCON_NEW("id", BCON_INT32(entity), "v", content) : NULL;
    struct audit_event found = {.event = id, .entity = key, .what = what};

    assert_true(audit_event(a, &r, &found, &e));
    if (found.first)
        assert_true(audit_entity(a, &r, key, document, &e));
    bson_destroy(id);
    bson_destroy(key);
    bson_destroy(what);
    bson_destroy(document);
}

static enum audit_verdict ledger(struct audit *a, int event, const char *op)
{
    bson_t *id = BCON_NEW("_id", BCON_INT32(event)), *what = BCON_NEW("op", op);
    enum audit_verdict v = audit_ledger(a, 0, id, what);

    bson_destroy(id);
    bson_destroy(what);
    return v;
}

static void operations_in_order(void **state)
{
    struct audit *a = audit_new(1 << 20, 0, UINT64_MAX);
    int64_t missing = -1;

    (void)state;
    operation(a, 1, 1, 1, "first", 10);
    operation(a, 1, 2, 1, "again", 11); /* is there already */
    operation(a, 1, 3, 2, "x", 12);
    operation(a, 1, 4, 2, NULL, 13);
    operation(a, 1, 3, 2, "x", 14); /* delivered again: undoes nothing */
    operation(a, 1, 5, 3, NULL, 15);
    operation(a, 1, 6, 3, "y", 16);
    dead(a, 17);
    operation(a, 1, 7, 3, NULL, 17); /* never happened */
    assert_int_equal(stored(a, 1, "first"), AUDIT_RIGHT);
    assert_int_equal(stored(a, 1, "first"), AUDIT_DOUBLE);
    assert_int_equal(stored(a, 2, "x"), AUDIT_EXTRA);
    assert_int_equal(stored(a, 9, "x"), AUDIT_EXTRA);
    for (int i = 1; i < 6; i++)
        assert_int_equal(ledger(a, i, i == 4 || i == 5 ? "delete" : "insert"), AUDIT_RIGHT);
    assert_int_equal(ledger(a, 6, "delete"), AUDIT_DIFFERENT);
    assert_int_equal(ledger(a, 8, "insert"), AUDIT_EXTRA);
    struct audit_books b = audit_finish(a, 10, remember, &missing);
    assert_int_equal(b.missing, 1); /* entity 3 */
    assert_int_equal(missing, 16);
    assert_int_equal(b.dead, 1);
    assert_int_equal(b.distinct, 7);
    audit_free(a);
}

static void entities_of_several_lanes(void **state)
{
    struct audit *a = audit_new(1 << 20, 0, UINT64_MAX);

    (void)state;
    for (int entity = 1; entity < 3; entity++) {
        operation(a, 1, entity, entity, "x", entity);
        operation(a, 2, 10 + entity, entity, NULL, 10 + entity);
        assert_int_equal(ledger(a, entity, "insert"), AUDIT_RIGHT);
        assert_int_equal(ledger(a, 10 + entity, "delete"), AUDIT_RIGHT);
    }
    assert_int_equal(stored(a, 1, "x"), AUDIT_RIGHT); /* or not, as 2 */
    assert_int_equal(audit_finish(a, 10, NULL, NULL).missing, 0);
    audit_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(balanced_books),
        cmocka_unit_test(every_kind_of_fault),
        cmocka_unit_test(lanes_race),
        cmocka_unit_test(two_contents_of_every_key),
        cmocka_unit_test(behind_a_dead_letter),
        cmocka_unit_test(nothing_but_dead_letters),
        cmocka_unit_test(grows_and_says_when_full),
        cmocka_unit_test(full_by_marks),
        cmocka_unit_test(samples_are_parts),
        cmocka_unit_test(operations_in_order),
        cmocka_unit_test(entities_of_several_lanes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
