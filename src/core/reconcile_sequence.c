#include "core/reconcile_sequence.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "core/pick.h"
#include "core/reconcile.h"

static bson_t *stage_begin(bson_t *pipeline, const char *index, const char *name, bson_t *stage,
                           bson_t *in)
{
    BSON_APPEND_DOCUMENT_BEGIN(pipeline, index, stage);
    BSON_APPEND_DOCUMENT_BEGIN(stage, name, in);
    return in;
}

static void stage_end(bson_t *pipeline, bson_t *stage, bson_t *in)
{
    bson_append_document_end(stage, in);
    bson_append_document_end(pipeline, stage);
}

static void append_group_filter(const struct config_route *r, const bson_t *only, bson_t *match)
{
    const struct config_list *fields = &r->sequence.group_fields;
    bson_iter_t it, part;
    bson_t is;

    if (only == NULL || !bson_iter_init_find(&it, only, "_id") || !bson_iter_recurse(&it, &part))
        return;
    for (size_t i = 0; i < fields->n && bson_iter_next(&part); i++) {
        BSON_APPEND_DOCUMENT_BEGIN(match, fields->items[i], &is);
        (void)bson_append_iter(&is, "$eq", 3, &part);
        bson_append_document_end(match, &is);
    }
}

static void append_parts(const struct config_route *r, bson_t *group)
{
    const struct config_list *fields = &r->sequence.group_fields;
    char *number = mem_printf("$%s", r->sequence.field), name[24];
    bson_t id, key;

    BSON_APPEND_DOCUMENT_BEGIN(group, "_id", &id);
    BSON_APPEND_DOCUMENT_BEGIN(&id, "k", &key);
    for (size_t i = 0; i < fields->n; i++) {
        char *path = mem_printf("$%s", fields->items[i]);

        (void)snprintf(name, sizeof name, "k%zu", i);
        BSON_APPEND_UTF8(&key, name, path);
        mem_free(path);
    }
    bson_append_document_end(&id, &key);
    BSON_APPEND_UTF8(&id, "n", number);
    bson_append_document_end(group, &id);
    BCON_APPEND(group, "c", "{", "$sum", BCON_INT64(1), "}");
    mem_free(number);
}

/* By group and number, then by group. */
void sequence_audit_pipeline(const struct config_route *r, const bson_t *only, bson_t *out)
{
    bson_t pipeline, stage, in, *is_number = BCON_NEW("$isNumber", BCON_UTF8("$_id.n"));
    bson_t *number =
        BCON_NEW("$cond", "[", BCON_DOCUMENT(is_number), BCON_UTF8("$_id.n"), BCON_NULL, "]");

    BSON_APPEND_ARRAY_BEGIN(out, "pipeline", &pipeline);
    append_group_filter(r, only, stage_begin(&pipeline, "0", "$match", &stage, &in));
    stage_end(&pipeline, &stage, &in);
    append_parts(r, stage_begin(&pipeline, "1", "$group", &stage, &in));
    stage_end(&pipeline, &stage, &in);
    BCON_APPEND(stage_begin(&pipeline, "2", "$group", &stage, &in), "_id", BCON_UTF8("$_id.k"),
                "top", "{", "$max", BCON_DOCUMENT(number), "}", "low", "{", "$min",
                BCON_DOCUMENT(number), "}", "docs", "{", "$sum", BCON_UTF8("$c"), "}", "numbers",
                "{", "$sum", "{", "$cond", "[", BCON_DOCUMENT(is_number), BCON_INT64(1),
                BCON_INT64(0), "]", "}", "}", "doubles", "{", "$sum", "{", "$cond", "[", "{",
                "$and", "[", BCON_DOCUMENT(is_number), "{", "$gt", "[", BCON_UTF8("$c"),
                BCON_INT64(1), "]", "}", "]", "}", BCON_INT64(1), BCON_INT64(0), "]", "}", "}",
                "odd", "{", "$sum", "{", "$cond", "[", BCON_DOCUMENT(is_number), BCON_INT64(0),
                BCON_UTF8("$c"), "]", "}", "}");
    stage_end(&pipeline, &stage, &in);
    bson_append_array_end(out, &pipeline);
    bson_destroy(is_number);
    bson_destroy(number);
}

void sequence_audit_counter(const bson_t *group, bson_t *out)
{
    BCON_APPEND(out, "pipeline", "[", "{", "$match", BCON_DOCUMENT(group), "}", "]");
}

static int64_t number_of(const bson_t *b, const char *name)
{
    bson_iter_t it;

    return bson_iter_init_find(&it, b, name) ? bson_iter_as_int64(&it) : 0;
}

bool sequence_audit_group(const struct config_route *r, const bson_t *result, bson_t *group,
                          struct sequence_audit *out)
{
    const struct config_list *sources = &r->sequence.group;
    bson_iter_t it, part;
    bson_t id;
    char key[24], *name;
    size_t n = 0;
    bool ok = bson_iter_init_find(&it, result, "_id") && BSON_ITER_HOLDS_DOCUMENT(&it) &&
              bson_iter_recurse(&it, &part);

    BSON_APPEND_DOCUMENT_BEGIN(group, "_id", &id);
    for (; ok && bson_iter_next(&part); n++) {
        (void)snprintf(key, sizeof key, "k%zu", n);
        ok = n < sources->n && strcmp(bson_iter_key(&part), key) == 0;
        if (!ok)
            break;
        name = pick_part_name(sources->items[n]);
        ok = reconcile_add_part(&id, name, &part);
        mem_free(name);
    }
    bson_append_document_end(group, &id);
    *out = (struct sequence_audit){.highest = number_of(result, "top"),
                                   .lowest = number_of(result, "low"),
                                   .documents = number_of(result, "docs"),
                                   .numbers = number_of(result, "numbers"),
                                   .doubles = number_of(result, "doubles"),
                                   .unnumbered = number_of(result, "odd")};
    return ok && n == sources->n;
}

enum sequence_fault sequence_audit_judge(const struct config_route *r,
                                         const struct sequence_audit *a, bool with_counter)
{
    const struct config_sequence *q = &r->sequence;
    /* A removed entity leaves its number behind. */
    bool gapless = q->mode == SEQUENCE_GAPLESS && !config_has_operation(r);
    int64_t last = a->counter ? a->last : q->start - 1;

    if (a->unnumbered > 0)
        return SEQUENCE_UNNUMBERED;
    if (a->doubles > 0)
        return SEQUENCE_DOUBLE;
    if (gapless && (a->lowest != q->start || a->highest - q->start + 1 != a->numbers))
        return SEQUENCE_HOLES;
    if (!with_counter || q->mode == SEQUENCE_MAX)
        return SEQUENCE_FINE;
    if (last < a->highest)
        return SEQUENCE_LAGS;
    return gapless && last > a->highest ? SEQUENCE_AHEAD : SEQUENCE_FINE;
}

const char *sequence_fault_name(enum sequence_fault f)
{
    static const char *const names[] = {
        [SEQUENCE_FINE] = "fine",     [SEQUENCE_UNNUMBERED] = "unnumbered",
        [SEQUENCE_DOUBLE] = "double", [SEQUENCE_HOLES] = "holes",
        [SEQUENCE_LAGS] = "lags",     [SEQUENCE_AHEAD] = "ahead"};

    return names[f];
}
