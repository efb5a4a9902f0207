/*
 * What a batch with effects asks for, and what its answers lead to; txn_script.h has the words.
 */
#include "unit/txn_script.h"

static void plain(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "nothing to move",
         .ops = "1|2",
         .results = "inserted inserted",
         .lines = "look 1 2\nbegin 0\ninsert 1 2\ncommit",
         .done = "0 0 0 1 0"},
        {.name = "summed per document, sorted, one command per counter",
         .ops = "1 c0b+1 c1a+1|2 c0a+2 c1a+1|3 c0b+5 c1z-3",
         .results = "inserted inserted inserted",
         .lines = "look 1 2 3\nbegin 3\ncount0 a+2 b+6\ncount1 a+2 z-3\ninsert 1 2 3\ncommit"},
        {.name = "found ones are not written and move nothing",
         .ops = "1 c0a+1|2 c0a+1|3 c0b+1",
         .lines = "look 1 2 3 -> found 1 3\nbegin 1\ncount0 a+1\ninsert 2\ncommit",
         .results = "duplicate inserted duplicate"},
        {.name = "all are there",
         .ops = "1 c0a+1|2 c0a+1",
         .lines = "look 1 2 -> found 2 1",
         .results = "duplicate duplicate",
         .done = "0 0 0 0 0"},
        {.name = "one event twice in a batch moves once",
         .ops = "1 c0a+1|1 c0a+1|2 c0a+1|1 c0a+1",
         .lines = "look 1 2\nbegin 1\ncount0 a+2\ninsert 1 2\ncommit",
         .results = "inserted duplicate inserted duplicate"},
        {.name = "chunks in the order given",
         .ops = "1 c0a+1|2 c0a+1|3 c0a+1",
         .max_ops = 2,
         .lines = "look 1 2 3\nbegin 1\ncount0 a+2\ninsert 1 2\ncommit\n"
                  "begin 1\ncount0 a+1\ninsert 3\ncommit",
         .results = "inserted inserted inserted",
         .done = "0 0 0 2 0"},
        {.name = "a chunk ends where its bytes do",
         .ops = "1 b3000|2 b3000|3 b10",
         .max_bytes = 5000,
         .lines = "look 1 2 3\nbegin 0\ninsert 1\ncommit\nbegin 0\ninsert 2 3\ncommit",
         .results = "inserted inserted inserted"},
        {.name = "larger than a chunk goes by itself",
         .ops = "1 b9000|2",
         .max_bytes = 5000,
         .lines = "look 1 2\nbegin 0\ninsert 1\ncommit\nbegin 0\ninsert 2\ncommit",
         .results = "inserted inserted"},
        {.name = "a sum that could pass int64 is cut, whatever the signs",
         .ops = "1 c0a+9223372036854775807|2 c0a-1|3 c0a+1",
         .lines = "look 1 2 3\nbegin 1\ncount0 a+9223372036854775807\ninsert 1\ncommit\n"
                  "begin 1\ncount0 a+0\ninsert 2 3\ncommit",
         .results = "inserted inserted inserted"},
        {.name = "documents that are not there are counted",
         .ops = "1 c1a+1|2 c1b+1",
         .lines = "look 1 2\nbegin 2\ncount1 a+1 b+1 -> n1\ninsert 1 2\ncommit",
         .results = "inserted inserted",
         .done = "0 0 1 1 0"},
        {.name = "but only with the transaction",
         .ops = "1 c1a+1",
         .lines = "look 1\nbegin 1\ncount1 a+1 -> n0\ninsert 1 -> 112t\nabort\nwait\n"
                  "begin 1\ncount1 a+1\ninsert 1\ncommit",
         .results = "inserted",
         .done = "0 0 0 1 1"},
        {.name = "a fence each",
         .ops = "1 fb|2 fa|3 fb",
         .lines = "look 1 2 3\nbegin 2\nfence a b\ninsert 1 2 3\ncommit",
         .results = "inserted inserted inserted"},
    };
    SCRIPT_RUN(all);
}

static void sequences(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "in the order of the operations",
         .ops = "1 gb|2 ga|3 gb",
         .lines = "look 1 2 3\nbegin 2\nnumber a 1 -> last 7\nnumber b 2 -> last 2\n"
                  "insert 1#1 2#7 3#2\ncommit",
         .results = "inserted inserted inserted"},
        {.name = "a duplicate takes none",
         .ops = "1 ga|2 ga|1 ga",
         .lines = "look 1 2 -> found 2\nbegin 1\nnumber a 1 -> last 4\ninsert 1#4\ncommit",
         .results = "inserted duplicate duplicate"},
        {.name = "to the ends of int64",
         .ops = "1 ga|2 gb",
         .lines = "look 1 2\nbegin 2\nnumber a 1 -> last 9223372036854775807\n"
                  "number b 1 -> last -9223372036854775808\n"
                  "insert 1#9223372036854775807 2#-9223372036854775808\ncommit",
         .results = "inserted inserted"},
        {.name = "a number that can't be the last of so many",
         .ops = "1 ga|2 ga",
         .lines = "look 1 2\nbegin 1\nnumber a 2 -> last -9223372036854775808\nabort",
         .results = "later:other later:other"},
        {.name = "no number",
         .ops = "1 ga",
         .lines = "look 1\nbegin 1\nnumber a 1 -> none\nabort",
         .results = "later:other"},
        {.name = "max: somebody took it",
         .ops = "1 ga|2 ga",
         .mode = SEQUENCE_MAX,
         .lines = "look 1 2\nbegin 1\nnumber a 2 -> last 3\ninsert 1#2 2#3 -> seq@1\nabort\nwait\n"
                  "begin 1\nnumber a 2 -> last 5\ninsert 1#4 2#5\ncommit",
         .results = "inserted inserted",
         .done = "0 0 0 1 1"},
        {.name = "max: but another index is the event's",
         .ops = "1 ga|2 ga",
         .mode = SEQUENCE_MAX,
         .lines = "look 1 2\nbegin 1\nnumber a 2\ninsert 1#1 2#2 -> 11000@1\nabort\n"
                  "look 2 -> found 2\nbegin 1\nnumber a 1\ninsert 1#1\ncommit",
         .results = "inserted duplicate"},
        {.name = "gapless: those of the group from there on wait, nobody else does",
         .ops = "1 ga|2 gb|3 ga|4 ga|5",
         .lines = "look 1 2 3 4 5\nbegin 2\nnumber a 3\nnumber b 1\n"
                  "insert 1#1 2#1 3#2 4#3 5#0 -> seq@2\nabort\n"
                  "begin 2\nnumber a 1\nnumber b 1\ninsert 1#1 2#1 5#0\ncommit",
         .results = "inserted inserted later:config later:config inserted",
         .done = "0 0 0 1 0"},
        {.name = "block with counters: and what is behind them in their lanes",
         .ops = "1 lA|2 ga lA|3 lA|4 ga lB|5 lB",
         .mode = SEQUENCE_BLOCK,
         .lines = "look 1 2 3 4 5\nbegin 1\nnumber a 2\ninsert 1#0 2#1 3#0 4#2 5#0 -> seq@1\n"
                  "abort\nbegin 0\ninsert 1#0\ncommit",
         .results = "inserted later:config later:config later:config later:config"},
        {.name = "a duplicate of one that waits",
         .ops = "1 ga|1 ga|2 gb",
         .lines = "look 1 2\nbegin 2\nnumber a 1\nnumber b 1\ninsert 1#1 2#1 -> seq@0\nabort\n"
                  "begin 1\nnumber b 1\ninsert 2#1\ncommit",
         .results = "later:config later:config inserted"},
        {.name = "its text is another document's: it is to blame, and nobody waits",
         .ops = "1 ga|2 ga|3 gb",
         .lines = "look 1 2 3\nbegin 2\nnumber a 2\nnumber b 1\n"
                  "insert 1#1 2#2 3#1 -> text@0\nabort\nlook 1 2 3\n"
                  "begin 2\nnumber a 2\nnumber b 1\ninsert 1#1 2#2 3#1 -> text@0\nabort\n"
                  "look 1 2 3\nbegin 2\nnumber a 1\nnumber b 1\ninsert 2#1 3#1\ncommit",
         .results = "never:unique_conflict inserted inserted"},
        {.name = "max: its text, too",
         .ops = "1 ga",
         .mode = SEQUENCE_MAX,
         .lines = "look 1\nbegin 1\nnumber a 1\ninsert 1#1 -> text@0\nabort\nlook 1\n"
                  "begin 1\nnumber a 1\ninsert 1#1 -> text@0\nabort\nlook 1",
         .results = "never:unique_conflict"},
        {.name = "its text, and it is there",
         .ops = "1 ga",
         .lines = "look 1\nbegin 1\nnumber a 1\ninsert 1#1 -> text@0\nabort\nlook 1 -> found 1",
         .results = "duplicate"},
        {.name = "no number of a group can be given: its events, alone",
         .ops = "1 ga|2 gb|3 ga",
         .lines = "look 1 2 3\nbegin 2\nnumber a 2 -> 2\nabort\n"
                  "begin 1\nnumber b 1\ninsert 2#1\ncommit\n"
                  "begin 1\nnumber a 1 -> 241\nabort\n"
                  "begin 1\nnumber a 1 -> last 9\ninsert 3#9\ncommit",
         .results = "never:rejected inserted inserted"},
    };
    SCRIPT_RUN(all);
}

static void operations(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "adds",
         .ops = "1 +x c0a+1|2 +y c0a+1",
         .lines = "look 1 2\nbegin 1\nstate x y -> found y\ncount0 a+1\nevents 1+ 2-\ninsert 1\n"
                  "commit",
         .results = "inserted inserted",
         .done = "1 0 0 1 0"},
        {.name = "removes with the other sign, if it is there",
         .ops = "1 -x c0a+3|2 -y c0b+3",
         .lines = "look 1 2\nbegin 2\nstate x y -> found x\ncount0 a-3\nevents 1+ 2-\ndelete 1\n"
                  "commit",
         .results = "inserted inserted",
         .done = "0 1 0 1 0"},
        {.name = "an old follow that comes again does nothing",
         .ops = "1 +x c0a+1",
         .lines = "look 1 -> found 1",
         .results = "duplicate"},
        {.name = "added and removed: nothing is written, both count",
         .ops = "1 +x c0a+1|2 -x c0a+1",
         .lines = "look 1 2\nbegin 1\nstate x\ncount0 a+0\nevents 1+ 2+\ncommit",
         .results = "inserted inserted",
         .done = "1 1 0 1 0"},
        {.name = "removed and added: replaced by the last",
         .ops = "1 -x c0a+1|2 +x c0a+1|3 +x c0a+1",
         .lines =
             "look 1 2 3\nbegin 1\nstate x -> found x\ncount0 a+0\nevents 1+ 2+ 3-\nreplace 2\n"
             "commit",
         .results = "inserted inserted inserted",
         .done = "1 1 0 1 0"},
        {.name = "nothing changes: no counters, only the ledger",
         .ops = "1 +x c0a+1|2 -y c0a+1",
         .lines = "look 1 2\nbegin 1\nstate x y -> found x\nevents 1- 2-\ncommit",
         .results = "inserted inserted"},
        {.name = "what adds takes a number, though it is removed again",
         .ops = "1 +x ga|2 -x|3 +x ga|4 +y ga",
         .lines = "look 1 2 3 4\nbegin 1\nstate x y -> found y\nnumber a 2 -> last 9\n"
                  "events 1+ 2+ 3+ 4-\ninsert 3#9\ncommit",
         .results = "inserted inserted inserted inserted"},
        {.name = "insert, delete, replace in the order of the operations",
         .ops = "1 +c|2 -b|3 -a|4 +a|5 +d",
         .lines = "look 1 2 3 4 5\nbegin 0\nstate c b a d -> found a b\nevents 1+ 2+ 3+ 4+ 5+\n"
                  "insert 1 5\ndelete 2\nreplace 4\ncommit",
         .results = "inserted inserted inserted inserted inserted"},
        {.name = "an entity whose key's bytes don't tell is asked for alone",
         .ops = "1 +x|2 +y",
         .lines = "look 1 2\nbegin 0\nstate x y -> strange\nstate x\nstate y -> strange\n"
                  "events 1+ 2-\ninsert 1\ncommit",
         .results = "inserted inserted"},
        {.name = "in the ledger already: written by somebody meanwhile",
         .ops = "1 +x c0a+1|2 +y",
         .lines = "look 1 2\nbegin 1\nstate x y\ncount0 a+1\nevents 1+ 2+ -> 11000@0\nabort\n"
                  "look 1 2 -> found 1\nbegin 0\nstate y\nevents 2+\ninsert 2\ncommit",
         .results = "duplicate inserted"},
        {.name = "a mail that another entity has: freed by what stands before",
         .ops = "1 -x|2 +y",
         .lines =
             "look 1 2\nbegin 0\nstate x y -> found x\nevents 1+ 2+\ninsert 2 -> 11000@0\nabort\n"
             "look 2\nbegin 0\nstate x -> found x\nevents 1+\ndelete 1\ncommit\n"
             "begin 0\nstate y\nevents 2+\ninsert 2\ncommit",
         .results = "inserted inserted"},
    };
    SCRIPT_RUN(all);
}

static void lanes(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "alone comes last, and its lane waits behind it",
         .ops = "1 ! lA|2 lA|3 lB|4",
         .lines = "look 2 3 4\nlook 1\nbegin 0\ninsert 3 4\ncommit\nbegin 0\ninsert 1\ncommit\n"
                  "begin 0\ninsert 2\ncommit",
         .results = "inserted inserted inserted inserted"},
        {.name = "behind one that is unknown nothing of its lane is written or settled",
         .ops = "1 ! lA|2 lA|3 lB|4 lA",
         .lines = "look 2 3 4 -> found 4\nlook 1\nbegin 0\ninsert 3\ncommit\n"
                  "begin 0\ninsert 1 -> 424242@0\nabort",
         .results = "unknown:other?424242 later:other inserted later:other"},
        {.name = "a fence that somebody else holds: its operations and their lanes",
         .ops = "1 fa lA|2 lA|3 fb lB|4 fa",
         .lines = "look 1 2 3 4\nbegin 2\nfence a b -> 11000@0\nabort\n"
                  "begin 1\nfence b\ninsert 3\ncommit",
         .results = "later:lock later:lock inserted later:lock"},
        {.name = "never is told in its lane's order",
         .ops = "1 lA|2 lA|3 lA",
         .lines = "look 1 2 3\nbegin 0\ninsert 1 2 3 -> 121@1\nabort\n"
                  "begin 0\ninsert 1 -> net\nabort",
         .results = "later:network later:network later:network"},
        {.name = "so is a duplicate",
         .ops = "1 lA|2 lA|3 lB",
         .lines = "look 1 2 3 -> found 2 3\nbegin 0\ninsert 1 -> net\nabort",
         .results = "later:network later:network duplicate"},
    };
    SCRIPT_RUN(all);
}

static void other_contents(void **state)
{
    (void)state;
    static const struct script all[] = {
        {.name = "counted",
         .ops = "1 hx|2 hx|3 hx",
         .conflict = CONFLICT_COUNT,
         .lines = "look 1 2 3 -> found 1h(x) 2h(y) 3",
         .results = "duplicate duplicate! duplicate"},
        {.name = "refused",
         .ops = "1 hx",
         .conflict = CONFLICT_DEAD_LETTER,
         .lines = "look 1 -> found 1h(y)",
         .results = "never!:conflict"},
        {.name = "off", .ops = "1 hx", .lines = "look 1 -> found 1h(y)", .results = "duplicate"},
        {.name = "folded ones too",
         .ops = "1 hx|1 hy|1 hx",
         .conflict = CONFLICT_COUNT,
         .lines = "look 1\nbegin 0\ninsert 1\ncommit",
         .results = "inserted duplicate! duplicate"},
        {.name = "a removal of the same identity",
         .ops = "1 -x|2 +x hx|2 -x",
         .conflict = CONFLICT_COUNT,
         .lines = "look 1 2 -> found 1op(insert) 2op(insert)h(x)",
         .results = "duplicate! duplicate duplicate!"},
        {.name = "folded, in the ledger",
         .ops = "1 +x hx|1 -x|1 +x hx",
         .conflict = CONFLICT_COUNT,
         .lines = "look 1\nbegin 0\nstate x\nevents 1+\ninsert 1\ncommit",
         .results = "inserted duplicate! duplicate"},
    };
    SCRIPT_RUN(all);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(plain), cmocka_unit_test(sequences),
                                       cmocka_unit_test(operations), cmocka_unit_test(lanes),
                                       cmocka_unit_test(other_contents)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
