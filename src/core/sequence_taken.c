#include "core/sequence_taken.h"

#include <inttypes.h>
#include <string.h>

#include "base/bytes.h"
#include "base/mem.h"

enum { GROUP_MAX = 200 }; /* bytes of a group in a text */

enum sequence_taken sequence_taken_of(const struct config_route *route, const bson_iter_t *error)
{
    const struct config_sequence *q = &route->sequence;
    enum sequence_taken taken = SEQUENCE_TAKEN_NOTHING;
    bson_iter_t in, pattern;

    if (!config_has_sequence(route) || !BSON_ITER_HOLDS_DOCUMENT(error) ||
        !bson_iter_recurse(error, &in) || !bson_iter_find(&in, "keyPattern") ||
        !BSON_ITER_HOLDS_DOCUMENT(&in) || !bson_iter_recurse(&in, &pattern))
        return taken;
    while (bson_iter_next(&pattern)) {
        const char *name = bson_iter_key(&pattern);

        if (strcmp(name, q->field) == 0)
            return SEQUENCE_TAKEN_NUMBER;
        if (q->template_field[0] != '\0' && strcmp(name, q->template_field) == 0)
            taken = SEQUENCE_TAKEN_TEXT;
    }
    return taken;
}

char *sequence_text_taken(const struct config_sequence *q, char *said)
{
    char *text = mem_printf("another document has its text in %s (sequence.template_field; the "
                            "number is in %s): %s",
                            q->template_field, q->field, said ? said : "E11000");

    mem_free(said);
    return text;
}

char *sequence_number_taken(const struct config_route *route, const bson_t *group, int64_t number)
{
    const struct config_sequence *q = &route->sequence;
    char *json = bson_as_relaxed_extended_json(group, NULL);
    size_t len = json ? strlen(json) : 0, cut = json ? bytes_cut_utf8(json, len, GROUP_MAX) : 0;
    char *text = mem_printf(
        "group %.*s%s of the sequence waits, others go on: its next number, %" PRId64
        ", stands in %s of a document in %s.%s already, so its counter in %s.%s lags. Run idemsink "
        "init -c FILE --raise-sequences (it may run beside this), or take that document away",
        (int)cut, json ? json : "", cut < len ? "..." : "", number, q->field, route->database,
        route->collection, q->database, q->collection);

    bson_free(json);
    return text;
}
