#include "cli/explain.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"

static void print_bson(const char *what, const bson_t *b)
{
    char *text = bson_as_relaxed_extended_json(b, NULL);

    printf("%-13s %s\n", what, text ? text : "(can't be shown)");
    bson_free(text);
}

static void print_lane(const struct record *r)
{
    static const char *const spaces[] = {"the Kafka key", "the dedup key", "a value of the record",
                                         "the whole partition",
                                         "none: the record is a lane of its own"};

    if (r->order_space == ORDER_KEY)
        printf("%-13s %s: \"%.*s\"\n", "lane", spaces[r->order_space], (int)r->order_key.len,
               (const char *)r->order_key.ptr);
    else
        printf("%-13s %s\n", "lane", spaces[r->order_space]);
}

static void print_invalidations(const struct mapping *mapping, struct record *r)
{
    struct invalidation_list list = {0};
    size_t skipped = 0;

    mapping_invalidations(mapping, r, true, &list, &skipped);
    for (size_t i = 0; i < list.n; i++) {
        char *body = invalidation_stamped(list.items[i].body, clock_wall_ms());

        if (list.items[i].kind == INVALIDATION_UNLINK)
            printf("%-13s UNLINK %s\n", "invalidation", list.items[i].name);
        else
            printf("%-13s PUBLISH %s %s\n", "invalidation", list.items[i].name,
                   body ? body : list.items[i].body);
        mem_free(body);
    }
    if (skipped > 0)
        printf("%-13s %zu left out: a template's value is missing or not allowed there\n",
               "invalidation", skipped);
    invalidation_list_clear(&list);
}

enum exit_code explain_record(const struct config_route *route, const struct mapping *mapping,
                              struct record *r)
{
    struct write_op op = {0};
    enum exit_code code = EXIT_FINE;

    printf("%-13s %s -> %s.%s\n", "route", route->name, route->database, route->collection);
    mapping_order(mapping, r);
    print_lane(r);
    switch (mapping_build(mapping, r, &op)) {
    case MAPPING_WRITE:
        print_bson("dedup key", op.filter);
        printf("%-13s %s\n", "write",
               op.kind == WRITE_KIND_UPSERT
                   ? "updateOne(dedup key, {$setOnInsert: document}, upsert)"
                   : "insert (a top-level name of the document is no path)");
        print_bson("document", op.document);
        print_invalidations(mapping, r);
        break;
    case MAPPING_SKIP:
        printf("%-13s skipped by a rule of the configuration (tombstone)\n", "outcome");
        break;
    case MAPPING_REJECTED:
        printf("%-13s dead letter\n%-13s %s\n%-13s %s\n%-13s %s\n", "outcome", "reason",
               reason_name(r->rejected.reason), "error", r->rejected.text, "meaning",
               reason_help(r->rejected.reason));
        code = EXIT_FOUND;
        break;
    }
    write_op_clear(&op);
    return code;
}
