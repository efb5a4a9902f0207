#include "core/reason.h"

#include <stddef.h>
#include <string.h>

struct row {
    const char *name;
    const char *help;
};

/* In the order of the enum. docs/dead-letters.md has the same names; a test compares. */
static const struct row rows[REASON_COUNT] = {
    [REASON_NONE] = {"none", "nothing is wrong with the record"},
    [REASON_JSON_SYNTAX] = {"json_syntax", "the value is not one JSON text as RFC 8259 defines it; "
                                           "the error says at which byte. Fix the producer"},
    [REASON_EXTJSON_SYNTAX] =
        {"extjson_syntax", "an object with a name that Extended JSON keeps for its types ($oid, "
                           "$date, ...) is none of its forms. Fix the producer, or say format = "
                           "\"json\" where these are ordinary names"},
    [REASON_BSON_SYNTAX] = {"bson_syntax",
                            "the value is not one BSON document as bsonspec.org defines it; the "
                            "error says at which byte. Fix the producer"},
    [REASON_NOT_AN_OBJECT] = {"not_an_object",
                              "the value is JSON but an array or a bare value, which MongoDB can't "
                              "store as a document. Send an object"},
    [REASON_INVALID_UTF8] =
        {"invalid_utf8",
         "the value holds bytes that are not UTF-8. Make the producer encode text as UTF-8"},
    [REASON_DUPLICATE_NAME] = {"duplicate_name", "an object names a field twice, so that nobody "
                                                 "knows which one is meant. Fix the producer"},
    [REASON_NUMBER_RANGE] = {"number_range",
                             "an integer outside int64 or a real outside double would be stored as "
                             "another number. Send it as a string"},
    [REASON_SCHEMA_REGISTRY_FRAMING] = {"schema_registry_framing",
                                        "the value begins with a schema registry's magic byte "
                                        "(Avro, Protobuf or JSON Schema serializer). Let the "
                                        "producer send plain JSON, or convert the topic first"},
    [REASON_COMPRESSED] = {"compressed",
                           "the value was compressed by the application (gzip, zlib, zstd, "
                           "lz4, snappy). Use the producer's compression.type"},
    [REASON_DEDUP_MISSING] =
        {"dedup_missing",
         "a part of the dedup key is not in the record. Fix the producer or dedup.key"},
    [REASON_DEDUP_NULL] = {"dedup_null",
                           "a part of the dedup key is null, which would make all such events one"},
    [REASON_DEDUP_EMPTY] =
        {"dedup_empty",
         "a part of the dedup key is an empty string, which would make all such events one"},
    [REASON_DEDUP_NOT_SCALAR] = {"dedup_not_scalar",
                                 "a part of the dedup key is an object, an array, inside an array, "
                                 "or a number that is no exact integer"},
    [REASON_TYPE_CONVERSION] = {"type_conversion",
                                "a value can't become the type that the route's types ask for; the "
                                "error names the path. Fix either"},
    [REASON_UNSAFE_NAME] = {"unsafe_name",
                            "a field can't be stored under its name, or would overwrite or be "
                            "overwritten by another; the error says "
                            "which. Rename, exclude or choose another target in the route"},
    [REASON_EMPTY_VALUE] = {"empty_value",
                            "the value has no bytes (and is no tombstone). Fix the producer"},
    [REASON_TOMBSTONE] = {"tombstone", "the record has no value and the route says tombstone = "
                                       "\"dead_letter\". Nothing was deleted"},
    [REASON_TOO_LARGE] =
        {"too_large",
         "the document would be larger than MongoDB's 16 MiB. Split it or exclude fields"},
    [REASON_TOO_DEEP] =
        {"too_deep", "objects and arrays are nested deeper than the 100 levels that MongoDB takes"},
    [REASON_EFFECT_VALUE] = {"effect_value",
                             "a value that an entity, a counter, a sequence or a lock needs is "
                             "missing or can't be used "
                             "for it; the error says which. Fix the producer or the route"},
    [REASON_OPERATION_UNKNOWN] = {"operation_unknown",
                                  "what operation.source names is neither one of operation.insert "
                                  "nor one of operation.delete"},
    [REASON_UNIQUE_CONFLICT] =
        {"unique_conflict",
         "another document has the same value under another unique index, and none has this dedup "
         "key: two events "
         "claim one value. The error names index and value; decide which is right, then produce it "
         "again"},
    [REASON_CONFLICT] = {"conflict",
                         "the document with this dedup key was made of another payload, and the "
                         "route's dedup.conflict refuses that. Compare the two; the first one is "
                         "stored"},
    [REASON_VALIDATION] =
        {"validation",
         "the collection's validator refuses the document (code 121). Fix producer or validator"},
    [REASON_REJECTED] = {"rejected", "MongoDB refuses this document for good; the error has its "
                                     "code and text. Read them, then produce it again"},
};

const char *reason_name(enum reason reason)
{
    return (size_t)reason < REASON_COUNT ? rows[reason].name : "unknown";
}

const char *reason_help(enum reason reason)
{
    return (size_t)reason < REASON_COUNT ? rows[reason].help
                                         : "a reason of another version of idemsink";
}

bool reason_parse(const char *name, enum reason *out)
{
    for (size_t i = REASON_NONE + 1; i < REASON_COUNT; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            *out = (enum reason)i;
            return true;
        }
    }
    return false;
}
