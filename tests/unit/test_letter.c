#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/mem.h"
#include "core/letter.h"

enum { MAX = 24 };

struct headers {
    struct record_header items[MAX];
    size_t n;
};

static void add(struct headers *h, const char *name, const char *value)
{
    h->items[h->n++] = (struct record_header){slice_text(name), slice_text(value)};
}

/* As the producer of dead letters writes them. */
static struct headers usual(void)
{
    struct headers h = {.n = 0};

    add(&h, "theirs", "1");
    add(&h, "idemsink.reason", "json_syntax");
    add(&h, "idemsink.error", "byte 1: nothing");
    add(&h, "idemsink.topic", "orders");
    add(&h, "idemsink.partition", "3");
    add(&h, "idemsink.offset", "1042");
    add(&h, "idemsink.attempts", "2");
    add(&h, "idemsink.time", "2026-01-02T03:04:05.678Z");
    add(&h, "idemsink.group", "g");
    add(&h, "idemsink.version", "0.1.0");
    add(&h, "idemsink.timestamp", "1600000000123");
    add(&h, "Idemsink.reason", "somebody else's");
    return h;
}

static void change(struct headers *h, const char *name, const char *value)
{
    for (size_t i = 0; i < h->n; i++)
        if (slice_equal(h->items[i].name, slice_text(name)))
            h->items[i].value = slice_text(value);
}

static void drop(struct headers *h, const char *name)
{
    for (size_t i = 0; i < h->n; i++)
        if (slice_equal(h->items[i].name, slice_text(name)))
            h->items[i--] = h->items[--h->n];
}

static struct record *record_of(const struct headers *h)
{
    return record_new(&(struct record_source){.topic = "dead",
                                              .partition = 9,
                                              .offset = 99,
                                              .timestamp_type = RECORD_TIMESTAMP_CREATE,
                                              .timestamp_ms = 777,
                                              .key = slice_of("k\0k", 3),
                                              .value = slice_text("{"),
                                              .headers = h->items,
                                              .n_headers = h->n});
}

static enum letter_kind kind_of(const struct headers *h)
{
    struct record *r = record_of(h);
    struct letter l;
    enum letter_kind kind;

    letter_read(r, &l);
    kind = l.kind;
    assert_int_equal(l.fault != NULL, kind == LETTER_BROKEN);
    record_free(r);
    return kind;
}

static void reads_what_was_written(void **state)
{
    struct headers h = usual();
    struct record *r = record_of(&h);
    struct letter l;

    (void)state;
    letter_read(r, &l);
    assert_int_equal(l.kind, LETTER_OURS);
    assert_true(slice_equal(l.topic, slice_text("orders")));
    assert_int_equal(l.partition, 3);
    assert_int_equal(l.offset, 1042);
    assert_true(slice_equal(l.reason, slice_text("json_syntax")));
    assert_true(slice_equal(l.error, slice_text("byte 1: nothing")));
    assert_true(slice_equal(l.group, slice_text("g")));
    assert_true(slice_equal(l.version, slice_text("0.1.0")));
    assert_int_equal(l.attempts, 2);
    assert_int_equal(l.time_ms, 1767323045678);
    assert_int_equal(l.timestamp_ms, 1600000000123);
    assert_true(letter_is_whole(&l));
    record_free(r);
}

static void the_record_is_as_it_was(void **state)
{
    struct headers h = usual();
    struct record *r = record_of(&h), *again;
    struct letter l;
    struct slice got;

    (void)state;
    letter_read(r, &l);
    again = letter_restore(r, &l, "orders");
    record_free(r);
    assert_string_equal(again->topic, "orders");
    assert_int_equal(again->partition, 3);
    assert_int_equal(again->offset, 1042);
    assert_int_equal(again->timestamp_type, RECORD_TIMESTAMP_CREATE);
    assert_int_equal(again->timestamp_ms, 1600000000123);
    assert_int_equal(again->attempts, 3);
    assert_int_equal(again->rejected.reason, REASON_NONE);
    assert_true(slice_equal(again->key, slice_of("k\0k", 3)));
    assert_true(slice_equal(again->value, slice_text("{")));
    assert_int_equal(again->n_headers, 2);
    assert_true(record_header(again, "theirs", &got));
    assert_true(record_header(again, "Idemsink.reason", &got));
    assert_false(record_header(again, "idemsink.reason", &got));
    record_free(again);
}

static void what_has_no_header_of_ours_is_foreign(void **state)
{
    struct headers h = {.n = 0};

    (void)state;
    assert_int_equal(kind_of(&h), LETTER_FOREIGN);
    add(&h, "idemsink", "x");
    add(&h, "Idemsink.topic", "x");
    add(&h, "xidemsink.topic", "x");
    assert_int_equal(kind_of(&h), LETTER_FOREIGN);
    add(&h, "idemsink.unheard_of", "x");
    assert_int_equal(kind_of(&h), LETTER_BROKEN);
}

static void every_header_must_be_there_once(void **state)
{
    static const char *const names[] = {"reason",   "error", "topic", "partition", "offset",
                                        "attempts", "time",  "group", "version"};
    char name[40];

    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct headers missing = usual(), twice = usual(), null = usual();

        (void)snprintf(name, sizeof name, "idemsink.%s", names[i]);
        drop(&missing, name);
        assert_int_equal(kind_of(&missing), LETTER_BROKEN);
        for (size_t k = 0; k < twice.n; k++)
            if (slice_equal(twice.items[k].name, slice_text(name))) {
                twice.items[twice.n++] = twice.items[k];
                break;
            }
        assert_int_equal(kind_of(&twice), LETTER_BROKEN);
        change(&null, name, NULL);
        assert_int_equal(kind_of(&null), LETTER_BROKEN);
    }
    struct headers unknown = usual();
    add(&unknown, "idemsink.of_a_later_version", "x");
    add(&unknown, "idemsink.of_a_later_version", "x");
    assert_int_equal(kind_of(&unknown), LETTER_OURS);
}

static void only_what_we_write_is_believed(void **state)
{
    static const struct {
        const char *name, *value;
    } rows[] = {
        {"topic", ""},
        {"topic", "."},
        {"topic", ".."},
        {"topic", "^orders"},
        {"topic", "or ders"},
        {"topic", "orders\n"},
        {"topic",
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
         "aaaaa"},
        {"partition", ""},
        {"partition", "-1"},
        {"partition", "+1"},
        {"partition", "01"},
        {"partition", " 1"},
        {"partition", "1 "},
        {"partition", "0x1"},
        {"partition", "2147483648"},
        {"offset", "-0"},
        {"offset", "-"},
        {"offset", "9223372036854775808"},
        {"offset", "99999999999999999999999"},
        {"attempts", "4294967296"},
        {"attempts", "1.0"},
        {"time", "yesterday"},
        {"time", ""},
        {"timestamp", "now"},
        {"timestamp", ""},
        {"timestamp", "-9223372036854775809"},
    };
    char name[40];

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct headers h = usual();

        (void)snprintf(name, sizeof name, "idemsink.%s", rows[i].name);
        change(&h, name, rows[i].value);
        if (kind_of(&h) != LETTER_BROKEN)
            fail_msg("%s = \"%s\" is believed", name, rows[i].value);
    }
    struct headers nul = usual();
    nul.items[3].value = slice_of("or\0ders", 7);
    assert_int_equal(kind_of(&nul), LETTER_BROKEN);
    struct headers most = usual();
    change(&most, "idemsink.partition", "2147483647");
    change(&most, "idemsink.offset", "9223372036854775807");
    change(&most, "idemsink.attempts", "4294967295");
    change(&most, "idemsink.error", "");
    assert_int_equal(kind_of(&most), LETTER_OURS);
    struct record *r = record_of(&most), *again;
    struct letter l;
    letter_read(r, &l);
    assert_int_equal(l.offset, INT64_MAX);
    again = letter_restore(r, &l, "orders");
    assert_true(again->attempts == UINT32_MAX); /* and not 0 */
    record_free(again);
    record_free(r);
}

static void the_timestamp_is_the_original_one(void **state)
{
    struct headers h = usual();
    struct letter l;
    struct record *r;

    (void)state;
    change(&h, "idemsink.timestamp", "-5");
    r = record_of(&h);
    letter_read(r, &l);
    assert_int_equal(l.timestamp_type, RECORD_TIMESTAMP_CREATE);
    assert_int_equal(l.timestamp_ms, -5);
    record_free(r);

    change(&h, "idemsink.timestamp", "none");
    r = record_of(&h);
    letter_read(r, &l);
    assert_int_equal(l.kind, LETTER_OURS);
    assert_int_equal(l.timestamp_type, RECORD_TIMESTAMP_NONE);
    record_free(r);

    drop(&h, "idemsink.timestamp"); /* of an older version */
    r = record_of(&h);
    letter_read(r, &l);
    assert_int_equal(l.timestamp_type, RECORD_TIMESTAMP_CREATE);
    assert_int_equal(l.timestamp_ms, 777);
    r->timestamp_type = RECORD_TIMESTAMP_APPEND; /* the dead-letter topic's: nobody knows */
    letter_read(r, &l);
    assert_int_equal(l.timestamp_type, RECORD_TIMESTAMP_NONE);
    record_free(r);
}

static void what_is_not_whole_says_so(void **state)
{
    static const char *const names[] = {"idemsink.value", "idemsink.headers", "idemsink.key"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        struct headers h = usual();
        struct record *r;
        struct letter l;

        add(&h, names[i], "dropped: too large, 5 bytes");
        r = record_of(&h);
        letter_read(r, &l);
        assert_int_equal(l.kind, LETTER_OURS);
        assert_false(letter_is_whole(&l));
        record_free(r);
        add(&h, names[i], "dropped: too large, 5 bytes");
        assert_int_equal(kind_of(&h), LETTER_BROKEN);
    }
}

/* The place may hold another record by now. */
static void only_the_record_itself_completes_a_letter(void **state)
{
    struct headers h = usual();
    struct record *r, *original;
    struct letter l;
    struct record_source from = {.topic = "orders",
                                 .partition = 3,
                                 .offset = 1042,
                                 .timestamp_type = RECORD_TIMESTAMP_CREATE,
                                 .timestamp_ms = 1600000000123,
                                 .key = slice_of("k\0k", 3),
                                 .value = slice_text("12345")};

    (void)state;
    add(&h, "idemsink.value", "dropped: too large, 5 bytes");
    r = record_of(&h);
    letter_read(r, &l);
    assert_int_equal(l.value_bytes, 5);
    for (int i = 0; i < 8; i++) {
        struct record_source other = from;

        if (i == 1)
            other.value = slice_text("1234");
        if (i == 2)
            other.value = slice_of(NULL, 0);
        if (i == 3)
            other.key = slice_text("k");
        if (i == 4)
            other.key = slice_of(NULL, 0);
        if (i == 5)
            other.timestamp_ms++;
        if (i == 6)
            other.timestamp_type = RECORD_TIMESTAMP_NONE;
        if (i == 7)
            other.timestamp_type = RECORD_TIMESTAMP_APPEND; /* what the topic gives all */
        original = record_new(&other);
        assert_int_equal(letter_is_of(r, &l, original), i == 0 || i == 7);
        record_free(original);
    }
    record_free(r);

    change(&h, "idemsink.value", "dropped, nobody knows how much");
    r = record_of(&h);
    letter_read(r, &l);
    assert_true(l.value_dropped);
    assert_int_equal(l.value_bytes, -1);
    original = record_new(&from);
    assert_false(letter_is_of(r, &l, original));
    record_free(original);
    record_free(r);
}

/* --- the table --- */

static struct letter letter_at(int32_t partition, int64_t offset, int64_t time_ms)
{
    return (struct letter){.kind = LETTER_OURS,
                           .topic = slice_text("orders"),
                           .partition = partition,
                           .offset = offset,
                           .time_ms = time_ms};
}

static void the_newest_letter_of_a_record_counts(void **state)
{
    struct letter_table *t = letter_table_new();
    struct letter early = letter_at(1, 5, 100), late = letter_at(1, 5, 200),
                  other = letter_at(1, 6, 50), elsewhere = letter_at(2, 5, 50);

    (void)state;
    elsewhere.topic = slice_text("other");
    assert_false(letter_table_newest(t, &early, 0, 10));
    letter_table_add(t, &late, 0, 10); /* the topic has several partitions: read in any order */
    letter_table_add(t, &early, 1, 70);
    letter_table_add(t, &other, 0, 11);
    letter_table_add(t, &elsewhere, 0, 12);
    assert_true(letter_table_newest(t, &late, 0, 10));
    assert_false(letter_table_newest(t, &early, 1, 70));
    assert_true(letter_table_newest(t, &other, 0, 11));
    assert_true(letter_table_newest(t, &elsewhere, 0, 12));

    /* Sent twice in one millisecond. */
    letter_table_add(t, &late, 0, 13);
    assert_true(letter_table_newest(t, &late, 0, 13));
    assert_false(letter_table_newest(t, &late, 0, 10));
    letter_table_free(t);
}

static void a_whole_letter_stands_before_a_newer_part(void **state)
{
    struct letter_table *t = letter_table_new();
    struct letter whole = letter_at(1, 5, 100), part = letter_at(1, 5, 200);

    (void)state;
    part.value_dropped = true;
    letter_table_add(t, &whole, 0, 1);
    letter_table_add(t, &part, 0, 2);
    assert_true(letter_table_newest(t, &whole, 0, 1));
    letter_table_free(t);
    t = letter_table_new();
    letter_table_add(t, &part, 0, 2);
    letter_table_add(t, &whole, 0, 1);
    assert_true(letter_table_newest(t, &whole, 0, 1));
    letter_table_free(t);
}

static void the_table_grows(void **state)
{
    struct letter_table *t = letter_table_new();
    enum { N = 5000 };

    (void)state;
    for (int i = 0; i < 2 * N; i++) {
        struct letter l = letter_at(i % N % 7, i % N, i);

        letter_table_add(t, &l, 0, i);
    }
    for (int i = 0; i < 2 * N; i++) {
        struct letter l = letter_at(i % N % 7, i % N, i);

        assert_int_equal(letter_table_newest(t, &l, 0, i), i >= N);
    }
    letter_table_free(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_was_written),
        cmocka_unit_test(the_record_is_as_it_was),
        cmocka_unit_test(what_has_no_header_of_ours_is_foreign),
        cmocka_unit_test(every_header_must_be_there_once),
        cmocka_unit_test(only_what_we_write_is_believed),
        cmocka_unit_test(the_timestamp_is_the_original_one),
        cmocka_unit_test(what_is_not_whole_says_so),
        cmocka_unit_test(only_the_record_itself_completes_a_letter),
        cmocka_unit_test(the_newest_letter_of_a_record_counts),
        cmocka_unit_test(a_whole_letter_stands_before_a_newer_part),
        cmocka_unit_test(the_table_grows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
