/*
 * What goes wrong in a transaction, and what becomes of each operation; txn_script.h has the words.
 */
#include "unit/txn_script.h"

static void one_is_bad(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "what stands before it is committed, what stands behind comes next",
         .ops = "1 c0a+1|2 c0a+1|3 c0a+1",
         .lines = "look 1 2 3\nbegin 1\ncount0 a+3\ninsert 1 2 3 -> 121@1\nabort\n"
                  "begin 1\ncount0 a+1\ninsert 1\ncommit\nbegin 1\ncount0 a+1\ninsert 3\ncommit",
         .results = "inserted never:validation inserted",
         .done = "0 0 0 2 0"},
        {.name = "the first",
         .ops = "1|2",
         .lines = "look 1 2\nbegin 0\ninsert 1 2 -> 121@0\nabort\nbegin 0\ninsert 2\ncommit",
         .results = "never:validation inserted"},
        {.name = "the part before it lost a conflict: it stays a part",
         .ops = "1|2|3",
         .lines = "look 1 2 3\nbegin 0\ninsert 1 2 3 -> 121@2\nabort\nbegin 0\ninsert 1 2 -> 112t\n"
                  "abort\nwait\nbegin 0\ninsert 1 2\ncommit",
         .results = "inserted inserted never:validation"},
        {.name = "E11000: it is there, and so is the next one",
         .ops = "1|2|3|4",
         .lines =
             "look 1 2 3 4\nbegin 0\ninsert 1 2 3 4 -> 11000@1\nabort\nlook 2 3 4 -> found 2 3\n"
             "begin 0\ninsert 1\ncommit\nbegin 0\ninsert 4\ncommit",
         .results = "inserted duplicate duplicate inserted"},
        {.name = "E11000 and not there, twice",
         .ops = "1|2",
         .lines = "look 1 2\nbegin 0\ninsert 1 2 -> 11000@0\nabort\nlook 1 2\n"
                  "begin 0\ninsert 1 2 -> 11000@0\nabort\nlook 1 2\nbegin 0\ninsert 2\ncommit",
         .results = "never:unique_conflict inserted"},
        {.name = "E11000 and not there, and then it passes",
         .ops = "1",
         .lines = "look 1\nbegin 0\ninsert 1 -> 11000@0\nabort\nlook 1\nbegin 0\ninsert 1\ncommit",
         .results = "inserted"},
        {.name = "a folded one is tried when the first can't be stored",
         .ops = "1|1|1",
         .lines = "look 1\nbegin 0\ninsert 1 -> 121@0\nabort\nbegin 0\ninsert 1\ncommit",
         .results = "never:validation inserted duplicate"},
        {.name = "a code that nobody knows: it goes alone, last",
         .ops = "1|2 lA|3|4 lA",
         .lines = "look 1 2 3 4\nbegin 0\ninsert 1 2 3 4 -> 424242@1\nabort\n"
                  "begin 0\ninsert 1 3\ncommit\nbegin 0\ninsert 2 -> 424242@0\nabort",
         .results = "inserted unknown:other?424242 inserted later:other"},
        {.name = "two of them alone: it hits whatever is sent",
         .ops = "1 !|2 !|3 !",
         .lines = "look 1\nlook 2\nlook 3\nbegin 0\ninsert 1 -> 424242@0\nabort\n"
                  "begin 0\ninsert 2 -> 424242@0\nabort",
         .results = "unknown:other?424242 unknown:other?424242 later:other"},
        {.name = "a suspected one among others that pass",
         .ops = "1 !|2 !|3 !|4",
         .lines = "look 4\nlook 1\nlook 2\nlook 3\nbegin 0\ninsert 4\ncommit\n"
                  "begin 0\ninsert 1 -> 424242@0\nabort\nbegin 0\ninsert 2 -> 424242@0\nabort\n"
                  "begin 0\ninsert 3\ncommit",
         .results = "unknown:other?424242 unknown:other?424242 inserted inserted"},
        {.name = "a reply that counts another number",
         .ops = "1|2",
         .lines = "look 1 2\nbegin 0\ninsert 1 2 -> n1\nabort",
         .results = "later:other later:other"},
        {.name = "an error of nobody",
         .ops = "1",
         .lines = "look 1\nbegin 0\ninsert 1 -> 121@7\nabort",
         .results = "later:other"},
    };
    SCRIPT_RUN(all);
}

static void counters(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "overflow: those who move it go alone, the others first",
         .ops = "1 c0a+5|2 c0b+1|3 c0a+1",
         .lines = "look 1 2 3\nbegin 2\ncount0 a+6 b+1 -> 2@0\nabort\n"
                  "begin 1\ncount0 b+1\ninsert 2\ncommit\n"
                  "begin 1\ncount0 a+5 -> 2@0\nabort\nbegin 1\ncount0 a+1\ninsert 3\ncommit",
         .results = "never:rejected inserted inserted"},
        {.name = "who does not move it is not to blame: alone by its counter only",
         .ops = "1 c0a+1 c1a+1|2 c1a+1|3",
         .lines = "look 1 2 3\nbegin 1\ncount0 a+1 -> 14@0\nabort\n"
                  "begin 1\ncount1 a+1\ninsert 2 3\ncommit\nbegin 1\ncount0 a+1 -> 14@0\nabort",
         .results = "never:rejected inserted inserted"},
        {.name = "an event that changes nothing is not to blame",
         .ops = "1 +x c0a+1|2 +x c0a+1|3 +y",
         .lines = "look 1 2 3\nbegin 1\nstate x y\ncount0 a+1 -> 2@0\nabort\n"
                  "begin 1\nstate x y\ncount0 a+1 -> 2@0\nabort\n"
                  "begin 0\nstate y\nevents 3+\ninsert 3\ncommit\n"
                  "begin 1\nstate x\ncount0 a+1 -> 2@0\nabort\n"
                  "begin 1\nstate x -> found x\nevents 2-\ncommit",
         .results = "never:rejected inserted inserted"},
        {.name = "made by two at once",
         .ops = "1 c0a+1",
         .lines =
             "look 1\nbegin 1\ncount0 a+1 -> 11000@0\nabort\nwait\nbegin 1\ncount0 a+1\ninsert 1\n"
             "commit",
         .results = "inserted",
         .done = "0 0 0 1 1"},
        {.name = "another unique index of the counters",
         .ops = "1 c0a+1",
         .lines =
             "look 1\nbegin 1\ncount0 a+1 -> 11000@0\nabort\nwait\n"
             "begin 1\ncount0 a+1 -> 11000@0\nabort\nwait\n"
             "begin 1\ncount0 a+1 -> 11000@0\nabort\nwait\nbegin 1\ncount0 a+1 -> 11000@0\nabort",
         .results = "never:unique_conflict"},
        {.name = "a code that nobody knows",
         .ops = "1 c0a+1|2",
         .lines = "look 1 2\nbegin 1\ncount0 a+1 -> 424242@0\nabort\nbegin 0\ninsert 2\ncommit\n"
                  "begin 1\ncount0 a+1 -> 424242@0\nabort",
         .results = "unknown:other?424242 inserted"},
    };
    SCRIPT_RUN(all);
}

/* $inc is content with a double; we are not. */
static void doubles(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "those who move it go alone, the others first",
         .ops = "1 c0a+5|2 c0b+1|3 c0a+1",
         .lines = "look 1 2 3\nbegin 2\ncount0 a+6 b+1\ncheck0 a b -> found a\nabort\n"
                  "begin 1\ncount0 b+1\ncheck0 b\ninsert 2\ncommit\n"
                  "begin 1\ncount0 a+5\ncheck0 a -> found a\nabort\n"
                  "begin 1\ncount0 a+1\ncheck0 a\ninsert 3\ncommit",
         .results = "never:rejected inserted inserted"},
        {.name = "two of them at once",
         .ops = "1 c0a+1|2 c0b+1|3",
         .lines = "look 1 2 3\nbegin 2\ncount0 a+1 b+1\ncheck0 a b -> found a b\nabort\n"
                  "begin 0\ninsert 3\ncommit\n"
                  "begin 1\ncount0 a+1\ncheck0 a -> found a\nabort\n"
                  "begin 1\ncount0 b+1\ncheck0 b -> found b\nabort",
         .results = "never:rejected never:rejected inserted"},
        {.name = "one event, two counters",
         .ops = "1 c0a+1 c1b+1",
         .lines = "look 1\nbegin 2\ncount0 a+1\ncount1 b+1\ncheck0 a\ncheck1 b -> found b\nabort",
         .results = "never:rejected"},
        {.name = "a read of many that can't tell: each by itself",
         .ops = "1 c0a+1|2 c0b+1",
         .lines = "look 1 2\nbegin 2\ncount0 a+1 b+1\ncheck0 a b -> strange\ncheck0 a\n"
                  "check0 b -> strange\nabort\n"
                  "begin 1\ncount0 a+1\ncheck0 a\ninsert 1\ncommit\n"
                  "begin 1\ncount0 b+1\ncheck0 b -> strange\nabort",
         .results = "inserted never:rejected"},
        {.name = "what does not move is not looked at",
         .ops = "1 +x c0a+1|2 +y c0b+1",
         .lines = "look 1 2\nbegin 2\nstate x y -> found x\ncount0 b+1\ncheck0 b\nevents 1- 2+\n"
                  "insert 2\ncommit",
         .results = "inserted inserted"},
        {.name = "a read that fails",
         .ops = "1 c0a+1",
         .lines = "look 1\nbegin 1\ncount0 a+1\ncheck0 a -> net\nabort",
         .results = "later:network"},
        {.name = "or meets a conflict",
         .ops = "1 c0a+1",
         .lines = "look 1\nbegin 1\ncount0 a+1\ncheck0 a -> 251t\nabort\nwait\n"
                  "begin 1\ncount0 a+1\ncheck0 a\ninsert 1\ncommit",
         .results = "inserted"},
    };
    SCRIPT_RUN(all);
}

static void conflicts(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "the chunk again",
         .ops = "1 c0a+1|2 c0a+1",
         .lines = "look 1 2\nbegin 1\ncount0 a+2 -> 112@0\nabort\nwait\nbegin 1\ncount0 a+2\n"
                  "insert 1 2 -> 251t\nabort\nwait\nbegin 1\ncount0 a+2\ninsert 1 2\ncommit",
         .results = "inserted inserted",
         .done = "0 0 0 1 2"},
        {.name = "until the deadline",
         .ops = "1 c0a+1|2",
         .lines = "look 1 2\nbegin 1\ncount0 a+1 -> 112@0 at 1000\nabort",
         .results = "later:conflict later:conflict"},
        {.name = "a wait that ends with it",
         .ops = "1 c0a+1",
         .lines = "look 1\nbegin 1\ncount0 a+1 -> 112t at 999\nabort\nwait -> ok at 1000",
         .results = "later:conflict"},
        {.name = "the fourth in a row halves the chunk, and a commit doubles it",
         .ops = "1|2|3|4|5",
         .max_ops = 4,
         .lines = "look 1 2 3 4 5\nbegin 0\ninsert 1 2 3 4 -> 112t\nabort\nwait\n"
                  "begin 0\ninsert 1 2 3 4 -> 112t\nabort\nwait\n"
                  "begin 0\ninsert 1 2 3 4 -> 112t\nabort\nwait\n"
                  "begin 0\ninsert 1 2 3 4 -> 112t\nabort\nwait\n"
                  "begin 0\ninsert 1 2\ncommit\nbegin 0\ninsert 3 4 5\ncommit",
         .results = "inserted inserted inserted inserted inserted"},
        {.name = "no place at the gate",
         .ops = "1 c0a+1",
         .lines = "look 1\nbegin 1 -> 112t\nabort\nwait\nbegin 1\ncount0 a+1\ninsert 1\ncommit",
         .results = "inserted"},
        {.name = "nothing is begun after the deadline",
         .ops = "1|2",
         .max_ops = 1,
         .lines = "look 1 2\nbegin 0\ninsert 1\ncommit -> ok at 1000",
         .results = "inserted later:timeout"},
        {.name = "nor looked up",
         .ops = "1",
         .lines = "look 1 -> ok at 1000",
         .results = "later:timeout"},
        {.name = "found ones are settled all the same",
         .ops = "1|2",
         .max_ops = 1,
         .lines = "look 1 2 -> found 2 at 1000",
         .results = "later:timeout duplicate"},
    };
    SCRIPT_RUN(all);
}

static void whole_commands(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "the network ends the batch, label or not",
         .ops = "1 c0a+1|2",
         .max_ops = 1,
         .lines = "look 1 2\nbegin 1\ncount0 a+1 -> net\nabort",
         .results = "later:network later:network"},
        {.name = "so does a primary that goes away",
         .ops = "1|2",
         .lines = "look 1 2\nbegin 0\ninsert 1 2 -> 10107t\nabort",
         .results = "later:no_primary later:no_primary"},
        {.name = "and a right that is missing",
         .ops = "1",
         .lines = "look 1\nbegin 0\ninsert 1 -> 13\nabort",
         .results = "later:rights"},
        {.name = "halved until the one is alone that brings it",
         .ops = "1|2|3|4",
         .lines = "look 1 2 3 4\nbegin 0\ninsert 1 2 3 4 -> 424242\nabort\n"
                  "begin 0\ninsert 1 2 -> 424242\nabort\nbegin 0\ninsert 1\ncommit\n"
                  "begin 0\ninsert 2 3 -> 424242\nabort\nbegin 0\ninsert 2 -> 424242\nabort\n"
                  "begin 0\ninsert 3\ncommit\nbegin 0\ninsert 4\ncommit",
         .results = "inserted unknown:other?424242 inserted inserted"},
        {.name = "the driver can't send it",
         .ops = "1|2",
         .lines =
             "look 1 2\nbegin 0\ninsert 1 2 -> document\nabort\nbegin 0\ninsert 1 -> document\n"
             "abort\nbegin 0\ninsert 2\ncommit",
         .results = "never:rejected inserted"},
        {.name = "a small one is not too large",
         .ops = "1",
         .lines = "look 1\nbegin 0\ninsert 1 -> 10334\nabort",
         .results = "unknown:other?10334"},
        {.name = "a large one is",
         .ops = "1 b15900000",
         .max_bytes = 16000000,
         .lines = "look 1\nbegin 0\ninsert 1 -> 10334\nabort",
         .results = "never:too_large"},
        {.name = "a look that fails",
         .ops = "1|2",
         .lines = "look 1 2 -> net",
         .results = "later:network later:network"},
        {.name = "a look of many that is refused: one by one",
         .ops = "1|2",
         .lines = "look 1 2 -> 424242\nlook 1 -> 424242",
         .results = "unknown:other?424242 later:other"},
        {.name = "a look of many that can't tell",
         .ops = "1|2",
         .lines = "look 1 2 -> strange\nlook 1 -> strange\nlook 2\nbegin 0\ninsert 2\ncommit",
         .results = "duplicate inserted"},
        {.name = "a fence can't be written",
         .ops = "1 fa|2",
         .lines = "look 1 2\nbegin 1\nfence a -> 121@0\nabort",
         .results = "later:config later:config"},
    };
    SCRIPT_RUN(all);
}

static void commits(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "no answer: asked again",
         .ops = "1 c0a+1",
         .lines =
             "look 1\nbegin 1\ncount0 a+1\ninsert 1\ncommit -> 91u\nwait\ncommit -> net\nwait\n"
             "commit",
         .results = "inserted",
         .done = "0 0 0 1 0"},
        {.name = "no answer until the deadline: unknown, and what is behind has not been sent",
         .ops = "1 lA|2|3 lA",
         .max_ops = 2,
         .lines = "look 1 2 3\nbegin 0\ninsert 1 2\ncommit -> net at 1000",
         .results = "unknown:network unknown:network later:network",
         .done = "0 0 0 0 0"},
        {.name = "too few members have it",
         .ops = "1",
         .lines = "look 1\nbegin 0\ninsert 1\ncommit -> wc64\nwait\ncommit",
         .results = "inserted"},
        {.name = "and never will",
         .ops = "1",
         .lines = "look 1\nbegin 0\ninsert 1\ncommit -> wc79",
         .results = "unknown:config"},
        {.name = "nothing was committed",
         .ops = "1",
         .lines =
             "look 1\nbegin 0\ninsert 1\ncommit -> 251t\nabort\nwait\nbegin 0\ninsert 1\ncommit",
         .results = "inserted",
         .done = "0 0 0 1 1"},
        {.name = "no answer, then that nothing was committed: looked up again",
         .ops = "1|2",
         .lines =
             "look 1 2\nbegin 0\ninsert 1 2\ncommit -> net\nwait\ncommit -> 251t\nabort\nwait\n"
             "look 1 2 -> found 1\nbegin 0\ninsert 2\ncommit",
         .results = "duplicate inserted"},
        {.name = "too large as a whole",
         .ops = "1|2",
         .lines = "look 1 2\nbegin 0\ninsert 1 2\ncommit -> 257\nabort\nlook 1 2\n"
                  "begin 0\ninsert 1\ncommit\nbegin 0\ninsert 2\ncommit",
         .results = "inserted inserted"},
        {.name = "a right is missing",
         .ops = "1",
         .lines = "look 1\nbegin 0\ninsert 1\ncommit -> 13",
         .results = "unknown:rights"},
    };
    SCRIPT_RUN(all);
}

/* The text of a dead letter says which counter it was, and what the server said. */
static void names_the_counter(void **state)
{
    (void)state;
    struct script s = {.name = "text", .ops = "1 c0a+1"};
    struct txn_limits limits = {.max_ops = 10, .max_bytes = 10000};
    struct config_route route = script_route(&s);
    struct txn_rules rules = {.route = &route, .deadline_ms = 1000};
    struct txn_plan *p = txn_plan_new(&limits);
    struct write_op ops[SCRIPT_OPS];
    size_t n = script_ops(s.ops, ops);

    s.lines = "look 1\nbegin 1\ncount0 a+1 -> 2@0\nabort";
    txn_plan_begin(p, ops, n, &rules);
    script_talk(&s, p);
    assert_string_equal(txn_plan_results(p)[0].text, "counter d.c: why (index on "
                                                     "{ \"group\" : 1, \"other\" : 1 })");
    assert_int_equal(txn_plan_results(p)[0].code, 2);
    s.lines = "look 1\nbegin 1\ncount0 a+1\ncheck0 a -> found a\nabort";
    txn_plan_begin(p, ops, n, &rules);
    script_talk(&s, p);
    assert_string_equal(txn_plan_results(p)[0].text,
                        "counter d.c: a field that it moves (c) holds a double or a decimal, which "
                        "would not count exactly: make it an integer (check --connect says how)");
    assert_int_equal(txn_plan_results(p)[0].code, 14);
    txn_plan_begin(p, ops, 0, &rules); /* reused, and empty */
    s.lines = "";
    script_talk(&s, p);
    txn_plan_free(p);
    write_op_clear(&ops[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_is_bad),       cmocka_unit_test(counters),
        cmocka_unit_test(doubles),          cmocka_unit_test(conflicts),
        cmocka_unit_test(whole_commands),   cmocka_unit_test(commits),
        cmocka_unit_test(names_the_counter)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
