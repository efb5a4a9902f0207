#include <stdio.h>
#include <string.h>

#include <bson/bson.h>
#include <hiredis/hiredis.h>
#include <jansson.h>
#include <microhttpd.h>
#include <mongoc/mongoc.h>
#include <librdkafka/rdkafka.h>

#include "cli/cli.h"

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_LIST };

struct option {
    const char *name, *value, *help;
    enum option_kind kind;
    size_t field;   /* in struct args */
    size_t counter; /* OPTION_LIST: its length */
};

#define FIELD(f) offsetof(struct args, f)

static const struct option options[] = {
    {"-c", "FILE", "the configuration", OPTION_TEXT, FIELD(config_file), 0},
    {"--set", "key=value", "set a configuration key, after the file; may be repeated", OPTION_LIST,
     FIELD(sets), FIELD(n_sets)},
    {"--until-end", NULL, "stop once the group has committed up to the end offsets seen at start",
     OPTION_FLAG, FIELD(until_end), 0},
    {"--connect", NULL, "also ask the brokers, MongoDB and Redis", OPTION_FLAG, FIELD(connect), 0},
    {"--replica-set", NULL, "first initiate the replica set named in mongo.uri, if it is not yet",
     OPTION_FLAG, FIELD(replica_set), 0},
    {"--raise-sequences", NULL,
     "raise counters of sequences that lag behind the numbers in the documents", OPTION_FLAG,
     FIELD(raise_sequences), 0},
    {"--topic", "T", "the topic that the payload would come from", OPTION_TEXT, FIELD(topic), 0},
    {"--key", "K", "its Kafka key", OPTION_TEXT, FIELD(key), 0},
    {"--header", "N=V", "one of its headers; may be repeated", OPTION_LIST, FIELD(headers),
     FIELD(n_headers)},
    {"--null", NULL, "it has no value (a tombstone); nothing is read from stdin", OPTION_FLAG,
     FIELD(null), 0},
    {"--offset", "T:P:O", "read the record at topic:partition:offset instead of stdin", OPTION_TEXT,
     FIELD(offset), 0},
    {"--dead-letters", NULL, "list each dead letter", OPTION_FLAG, FIELD(dead_letters), 0},
    {"--allow-extra", NULL, "documents that no record asks for are no fault", OPTION_FLAG,
     FIELD(allow_extra), 0},
    {"--memory", "SIZE", "most memory for the process (default 2GiB)", OPTION_TEXT, FIELD(memory),
     0},
    {"--sample", "PART", "only so many of the dedup keys: 5%, or 1/20 (the first of 20), 2/20 ...",
     OPTION_TEXT, FIELD(sample), 0},
    {"--since", "TIME", "only records from then on: RFC 3339, a date, or 90m 36h 7d ago",
     OPTION_TEXT, FIELD(since), 0},
    {"--list", "N", "list so many faults (default 10, with --json 1000)", OPTION_TEXT, FIELD(list),
     0},
    {"--apply", NULL, "repair what differs, losing no increment that arrives meanwhile",
     OPTION_FLAG, FIELD(apply), 0},
    {"--secondary", NULL, "count on a secondary; what differs is looked at on the primary",
     OPTION_FLAG, FIELD(secondary), 0},
    {"--route", "NAME", "only the counters and sequence of this route", OPTION_TEXT, FIELD(route),
     0},
    {"--counter", "N", "only this [[route.counter]] of --route, from 0", OPTION_TEXT,
     FIELD(counter), 0},
    {"--rate", "N/s", "look at so many counters one by one, at most (default 1000/s)", OPTION_TEXT,
     FIELD(rate), 0},
    {"--json", NULL, "print the result as JSON", OPTION_FLAG, FIELD(json), 0},
};
enum { N_OPTIONS = sizeof options / sizeof options[0] };

/* Of the commands `dlq ...`, before those above. */
static const struct option dlq_options[] = {
    {"--offset", "P:O", "the dead letter at partition:offset of the topic; may be repeated",
     OPTION_LIST, FIELD(places), FIELD(n_places)},
    {"--reason", "R", "only those with this reason; may be repeated", OPTION_LIST, FIELD(reasons),
     FIELD(n_reasons)},
    {"--topic", "T", "only those of records of this topic", OPTION_TEXT, FIELD(topic), 0},
    {"--since", "TIME", "only those given up then or later: RFC 3339, or 15m 2h 7d ago",
     OPTION_TEXT, FIELD(since), 0},
    {"--until", "TIME", "only those given up then or earlier", OPTION_TEXT, FIELD(until), 0},
    {"--last", "N", "only the newest N", OPTION_TEXT, FIELD(last), 0},
    {"--all", NULL, "also those that a newer one of the same record stands for", OPTION_FLAG,
     FIELD(all), 0},
    {"--connect", NULL, "also ask MongoDB what is there already", OPTION_FLAG, FIELD(connect), 0},
    {"--not-stored", NULL, "only those whose document is not in MongoDB; needs --connect",
     OPTION_FLAG, FIELD(not_stored), 0},
    {"--raw", NULL, "print the bytes of the value and nothing else", OPTION_FLAG, FIELD(raw), 0},
    {"--patience", "TIME", "give up when nothing is acknowledged for so long (default 30s)",
     OPTION_TEXT, FIELD(patience), 0},
    {"--dry-run", NULL, "say what would be done and do nothing", OPTION_FLAG, FIELD(dry_run), 0},
};
enum { N_DLQ_OPTIONS = sizeof dlq_options / sizeof dlq_options[0] };

/* Of `dlq show`, before those. */
static const struct option show_offset = {
    "--offset",  "P:O",         "the dead letter at partition:offset of the topic",
    OPTION_LIST, FIELD(places), FIELD(n_places)};

struct command {
    const char *name, *help;
    enum exit_code (*run)(const struct args *args);
    const char *options; /* names, each between spaces */
};

static const struct command commands[] = {
    {"run", "the worker: consume, insert once, commit after the acknowledgement", cmd_run,
     " -c --set --until-end "},
    {"check", "check the configuration, and with --connect everything it needs", cmd_check,
     " -c --set --connect --json "},
    {"init", "create what is missing: indexes, collections of effects, dead-letter topic", cmd_init,
     " -c --set --replica-set --raise-sequences "},
    {"explain", "show what would happen to a payload from stdin or a record of Kafka, or why not",
     cmd_explain, " -c --set --topic --key --header --null --offset --connect --json "},
    {"verify", "compare the topics with the collections; exit 0 only when the books balance",
     cmd_verify, " -c --set --dead-letters --allow-extra --memory --sample --since --list --json "},
    {"reconcile",
     "compare counters and sequences with what they count; exit 0 only when all are right",
     cmd_reconcile,
     " -c --set --apply --secondary --route --counter --rate --memory --list --json "},
    {"dlq list", "list the dead letters, newest last", cmd_dlq_list,
     " -c --set --reason --topic --since --until --last --all --connect --not-stored --json "},
    {"dlq show", "show one dead letter, and what would become of its record now", cmd_dlq_show,
     " -c --set --offset --connect --raw --json "},
    {"dlq replay", "send dead letters through their route again: all of this group, or some",
     cmd_dlq_replay,
     " -c --set --offset --reason --topic --since --until --patience "
     "--dry-run --json "},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void help(FILE *to)
{
    fputs("idemsink inserts each event of Kafka topics into MongoDB once.\n\nusage: idemsink "
          "COMMAND -c FILE [option]...\n\n",
          to);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\n  idemsink COMMAND --help    the options of a command\n  idemsink --version         "
          "versions of the "
          "program and of the libraries it runs with\n",
          to);
}

static bool has_option(const struct command *c, const char *name)
{
    const char *at = c->options;
    size_t len = strlen(name);

    while ((at = strstr(at, name)) != NULL) {
        if (at[-1] == ' ' && at[len] == ' ')
            return true;
        at += len;
    }
    return false;
}

static bool is_dlq(const struct command *c)
{
    return strncmp(c->name, "dlq ", 4) == 0;
}

static const struct option *find_option(const struct command *c, const char *name)
{
    if (strcmp(c->name, "dlq show") == 0 && strcmp(show_offset.name, name) == 0)
        return &show_offset;
    for (size_t i = 0; is_dlq(c) && i < N_DLQ_OPTIONS; i++)
        if (strcmp(dlq_options[i].name, name) == 0 && has_option(c, name))
            return &dlq_options[i];
    for (size_t i = 0; i < N_OPTIONS; i++)
        if (strcmp(options[i].name, name) == 0 && has_option(c, name))
            return &options[i];
    return NULL;
}

static void option_help(const struct command *c, const struct option *o)
{
    char left[40];

    if (find_option(c, o->name) != o)
        return;
    (void)snprintf(left, sizeof left, "%s %s", o->name, o->value ? o->value : "");
    printf("  %-18s %s\n", left, o->help);
}

static void command_help(const struct command *c)
{
    printf("idemsink %s: %s\n\n", c->name, c->help);
    for (size_t i = 0; i < N_OPTIONS; i++)
        option_help(c, &options[i]);
    option_help(c, &show_offset);
    for (size_t i = 0; i < N_DLQ_OPTIONS; i++)
        option_help(c, &dlq_options[i]);
}

static void version(void)
{
    printf("idemsink %s\nlibrdkafka %s\nlibmongoc %s\nlibbson %s\njansson %s\nhiredis "
           "%d.%d.%d\nlibmicrohttpd %s\n",
           IDEMSINK_VERSION, rd_kafka_version_str(), mongoc_get_version(), bson_get_version(),
           jansson_version_str(), HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH, MHD_get_version());
}

static enum exit_code usage(const char *what, const char *word)
{
    fprintf(stderr, "idemsink: %s \"%s\"; try: idemsink --help\n", what, word);
    return EXIT_BAD_USAGE;
}

static enum exit_code usage_of(const struct command *c, const char *what, const char *word)
{
    fprintf(stderr, "idemsink: %s \"%s\"; try: idemsink %s --help\n", what, word, c->name);
    return EXIT_BAD_USAGE;
}

/* A word that is no option is mostly the configuration. */
static enum exit_code usage_word(const struct command *c, const struct args *args, const char *word)
{
    if (word[0] == '-')
        return usage_of(c, "unknown option", word);
    if (args->config_file != NULL)
        return usage_of(c, "what is this, beside the options:", word);
    fprintf(
        stderr,
        "idemsink: \"%s\" is no option; the configuration is given with -c: idemsink %s -c %s\n",
        word, c->name, word);
    return EXIT_BAD_USAGE;
}

static bool store(struct args *args, const struct option *o, const char *value)
{
    char *at = (char *)args + o->field;

    if (o->kind == OPTION_FLAG) {
        *(bool *)(void *)at = true;
    } else if (o->kind == OPTION_TEXT) {
        *(const char **)(void *)at = value;
    } else {
        size_t *n = (size_t *)(void *)((char *)args + o->counter);
        if (*n == ARGS_MAX)
            return false;
        ((const char **)(void *)at)[(*n)++] = value;
    }
    return true;
}

static enum exit_code run_command(const struct command *c, int argc, char **argv)
{
    struct args args = {0};

    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) {
            command_help(c);
            return EXIT_FINE;
        }
        const struct option *o = find_option(c, argv[i]);
        if (o == NULL)
            return usage_word(c, &args, argv[i]);
        if (o->kind != OPTION_FLAG && i + 1 == argc)
            return usage_of(c, "no value behind", argv[i]);
        if (!store(&args, o, o->kind == OPTION_FLAG ? NULL : argv[++i]))
            return usage_of(c, "more than 64 of", o->name);
    }
    if (args.config_file == NULL)
        return usage_of(c, "which configuration? -c FILE is missing behind", c->name);
    return c->run(&args);
}

/* Its name is one word, or two. */
static bool is_called(const struct command *c, int argc, char **argv, int *words)
{
    size_t first = strcspn(c->name, " ");

    *words = c->name[first] == '\0' ? 1 : 2;
    return argc > *words && strlen(argv[1]) == first && strncmp(argv[1], c->name, first) == 0 &&
           (*words == 1 || strcmp(argv[2], c->name + first + 1) == 0);
}

static enum exit_code dlq_help(int argc, char **argv)
{
    bool asked = argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0);

    if (argc > 2 && !asked)
        return usage("dlq list, dlq show or dlq replay, and not", argv[2]);
    fputs("usage: idemsink dlq list|show|replay -c FILE [option]...\n\n", asked ? stdout : stderr);
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (is_dlq(&commands[i]))
            fprintf(asked ? stdout : stderr, "  %-10s %s\n", commands[i].name, commands[i].help);
    fputs("\n  idemsink dlq list --help    the options of a command\n", asked ? stdout : stderr);
    return asked ? EXIT_FINE : EXIT_BAD_USAGE;
}

int main(int argc, char **argv)
{
    int words;

    if (argc < 2) {
        help(stderr);
        return EXIT_BAD_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
        help(stdout);
        return EXIT_FINE;
    }
    if (strcmp(argv[1], "--version") == 0) {
        version();
        return EXIT_FINE;
    }
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (is_called(&commands[i], argc, argv, &words))
            return (int)run_command(&commands[i], argc - 1 - words, argv + 1 + words);
    if (strcmp(argv[1], "dlq") == 0)
        return (int)dlq_help(argc, argv);
    return (int)usage("unknown command", argv[1]);
}
