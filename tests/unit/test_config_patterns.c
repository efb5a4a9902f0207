/* Can one topic match two patterns? Known pairs, and random ones against the C library over all
 * short words. */
#include <regex.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "core/config_private.h"
#include "fakes/dice.h"

static void pairs_that_are_known(void **state)
{
    static const struct {
        const char *a, *b, *topic; /* NULL: they don't meet, or nobody can say */
    } pairs[] = {
        {"^orders", "^orders\\.eu", "orders.eu"},
        {"^orders$", "^orders\\.", NULL},
        {"^a", "^b", NULL},
        {"^a.*z$", "^ab", "abz"},
        {"^(a|b)$", "^(b|c)$", "b"},
        {"^(a|b)$", "^(c|d)$", NULL},
        {"^eu\\..*", "^.*\\.orders$", "eu.orders"},
        {"^[a-f]+$", "^[e-z]+$", "e"},
        {"^[a-e]+$", "^[f-z]+$", NULL},
        {"^[^a-z]", "^[a-z]", NULL},
        {"^a{3}$", "^a{2,4}$", "aaa"},
        {"^a{2}$", "^a{3,}$", NULL},
        {"^(ab){2}$", "^abab$", "abab"},
        {"^a?b$", "^b$", "b"},
        {"^a+b$", "^b$", NULL},
        {"^[[:digit:]]+$", "^[0-9]{2}$", "00"},
        {"^[[:digit:]]+$", "^[[:alpha:]]+$", NULL},
        {"^[[:punct:]]$", "^-$", "-"},
        {"^[]x]$", "^x$", "x"},
        {"^[.]$", "^\\.$", NULL}, /* "." is no topic */
        {"^[.]+$", "^\\.+$", "..."},
        {"^x|y", "^zy$", "zy"}, /* the ^ is of the first alternative only */
        {"^x|y$", "^yz", "yzy"},
        {"^a$|^b$", "^b$", "b"},
        {"^a^b", "^a", NULL}, /* matches nothing */
        {"^a$b", "^a", NULL},
        {"^(^a)$", "^a", "a"},
        {"^()a", "^a", "a"},
        {"^(|b)a", "^ba", "ba"},
        {"^é", "^.", NULL}, /* no topic has such a letter */
        {"^a.c", "^a.d", NULL},
        {"^a.c", "^a..d", "abcd"},
        /* not decided here */
        {"^(a)\\1$", "^aa$", NULL},
        {"^\\w$", "^a$", NULL},
        {"^a**", "^a", NULL},
        {"^[[=a=]]", "^a", NULL},
        /* too large: not decided either */
        {"^(a{30}){30}b", "^a{900}b", NULL},
        {"^.*a.{11}$", "^.*b.{11}$", NULL},
    };

    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
        for (int swap = 0; swap < 2; swap++) {
            const char *a = swap ? pairs[i].b : pairs[i].a, *b = swap ? pairs[i].a : pairs[i].b;
            struct buf topic = {0};
            bool meet = config_patterns_meet(a, b, &topic);

            if (meet != (pairs[i].topic != NULL))
                fail_msg("%s and %s: %s", a, b, meet ? buf_text(&topic) : "no");
            /* A shortest one: which of several does not matter. */
            if (meet && topic.len != strlen(pairs[i].topic))
                fail_msg("%s and %s meet in %s", a, b, buf_text(&topic));
            buf_clear(&topic);
        }
}

/* --- random ones --- */

enum { DEPTH = 2 };

static void add_random(struct dice *dice, struct buf *out, int depth)
{
    static const char *const atoms[] = {"a", "b", ".", "[ab]", "[^a]", "\\.", "[a-c]", "$", "^"};
    size_t n = dice_below(dice, 3) + 1;

    for (size_t i = 0; i < n; i++) {
        static const char *const often[] = {"*", "+", "?", "{2}", "{1,2}", "{0,1}", "{2,}"};
        size_t which = dice_below(dice, depth > 0 ? 12 : 7);

        if (depth < DEPTH && (which == 7 || which == 8))
            which = 0; /* the C library takes ^ and $ in repeated groups for less than they are */

        if (which < 9)
            buf_add_text(out, atoms[which]);
        else {
            buf_add_char(out, '(');
            add_random(dice, out, depth - 1);
            if (dice_below(dice, 2)) {
                buf_add_char(out, '|');
                add_random(dice, out, depth - 1);
            }
            buf_add_char(out, ')');
        }
        if (which != 7 && which != 8 && dice_below(dice, 3) == 0)
            buf_add_text(out, often[dice_below(dice, 7)]);
    }
}

enum { WORD_LETTERS = 5, WORD_MAX = 5 };

/* A word of up to five letters that both take, by trying all. */
static bool try_all(const regex_t *a, const regex_t *b, char *word)
{
    static const char some[WORD_LETTERS] = "abcz.";

    for (size_t len = 1; len <= WORD_MAX; len++) {
        size_t all = 1;

        for (size_t i = 0; i < len; i++)
            all *= WORD_LETTERS;
        for (size_t n = 0; n < all; n++) {
            size_t rest = n;

            for (size_t i = 0; i < len; i++, rest /= WORD_LETTERS)
                word[i] = some[rest % WORD_LETTERS];
            word[len] = '\0';
            if (config_topic_fault(word) == NULL && regexec(a, word, 0, NULL, 0) == 0 &&
                regexec(b, word, 0, NULL, 0) == 0)
                return true;
        }
    }
    return false;
}

static void what_can_be_found_is_found(void **state)
{
    struct dice dice = dice_seed("what_can_be_found_is_found");
    size_t met = 0, rounds = 1500;

    (void)state;
    for (size_t i = 0; i < rounds; i++) {
        struct buf a = {0}, b = {0}, topic = {0};
        char word[WORD_MAX + 1] = "";
        regex_t ra, rb;

        buf_add_char(&a, '^');
        buf_add_char(&b, '^');
        add_random(&dice, &a, DEPTH);
        add_random(&dice, &b, DEPTH);
        assert_int_equal(regcomp(&ra, a.data, REG_EXTENDED | REG_NOSUB), 0);
        assert_int_equal(regcomp(&rb, b.data, REG_EXTENDED | REG_NOSUB), 0);
        bool meet = config_patterns_meet(a.data, b.data, &topic);
        bool found = try_all(&ra, &rb, word);

        if (found && !meet)
            fail_msg("%s and %s meet in \"%s\"", a.data, b.data, word);
        if (meet && found && topic.len > strlen(word))
            fail_msg("%s and %s: \"%s\", but \"%s\" is shorter", a.data, b.data, topic.data, word);
        if (meet)
            assert_true(regexec(&ra, topic.data, 0, NULL, 0) == 0 &&
                        regexec(&rb, topic.data, 0, NULL, 0) == 0);
        met += meet;
        regfree(&ra);
        regfree(&rb);
        buf_clear(&a);
        buf_clear(&b);
        buf_clear(&topic);
    }
    assert_true(met > rounds / 10 && met < rounds); /* the test knows both */
}

/* What could not be decided is seen with the topic itself. */
static void a_topic_that_two_routes_take_has_none(void **state)
{
    static char one[] = "^(o)\\1", two[] = "^oo$", name_one[] = "d.a", name_two[] = "second";
    char *topics_one[] = {one}, *topics_two[] = {two};
    struct config_route routes[] = {
        {.name = name_one, .topics = {.items = topics_one, .n = 1}},
        {.name = name_two, .topics = {.items = topics_two, .n = 1}},
    };
    struct config c = {.routes = routes, .n_routes = 2};
    struct buf topic = {0};
    struct err e = {0};

    (void)state;
    assert_false(config_patterns_meet(one, two, &topic));
    assert_int_equal(config_route_of(&c, "ooo"), 0);
    assert_int_equal(config_route_of(&c, "x"), CONFIG_NO_ROUTE);
    assert_int_equal(config_route_of(&c, "oo"), CONFIG_TWO_ROUTES);
    assert_false(config_route_fail(&c, "oo", &e));
    assert_int_equal(e.kind, ERR_CONFIG);
    assert_string_equal(
        e.text, "topic oo is taken by route \"d.a\" and by route \"second\" (\"^oo$\"): a topic "
                "belongs to one route; change one of the two expressions");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_that_are_known),
        cmocka_unit_test(what_can_be_found_is_found),
        cmocka_unit_test(a_topic_that_two_routes_take_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
