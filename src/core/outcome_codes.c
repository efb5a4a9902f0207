#include "core/outcome.h"

/*
 * What is known about the server's codes. A code that is not here is not known to be permanent: the
 * operation is sent again, and a whole command is halved until the member that brings it is alone.
 *
 * Sources: "yml" is src/mongo/base/error_codes.yml of mongodb/mongo (names and categories), "spec"
 * the drivers' specification of retryable writes, "seen" mongod 6.0.5 by tests/system.
 * docs/outcomes.md shows this table and a test compares them.
 */
#define LATER(code, name, retry, source)                                                           \
    {                                                                                              \
        code, name, FATE_LATER, FATE_UNKNOWN, retry, REASON_NONE, false, source                    \
    }
#define UNKNOWN(code, name, retry, source)                                                         \
    {                                                                                              \
        code, name, FATE_UNKNOWN, FATE_UNKNOWN, retry, REASON_NONE, false, source                  \
    }
#define LOOK(code, name, source)                                                                   \
    {                                                                                              \
        code, name, FATE_LOOK, FATE_UNKNOWN, RETRY_OTHER, REASON_NONE, false, source               \
    }
/* Permanent for one operation. As the answer to a whole command it may be everybody's fault (a bad
 * write concern). */
#define NEVER(code, name, reason, source)                                                          \
    {                                                                                              \
        code, name, FATE_NEVER, FATE_SPLIT, RETRY_OTHER, reason, false, source                     \
    }
/* The same, but also as the answer to a whole command it is certainly one member's fault. */
#define MEMBER(code, name, reason, source)                                                         \
    {                                                                                              \
        code, name, FATE_NEVER, FATE_SPLIT, RETRY_OTHER, reason, true, source                      \
    }

/* clang-format off */
const struct outcome_code outcome_codes[] = {
    /* The same key is there, under some unique index. */
    LOOK(11000, "DuplicateKey", "seen"),
    LOOK(11001, "DuplicateKey (update)", "MongoDB 2.x and 3.x"),
    LOOK(12582, "DuplicateKey (capped)", "MongoDB 2.x and 3.x"),

    /* Permanent, whoever sends it and whenever. */
    NEVER(2, "BadValue", REASON_REJECTED, "seen: an insert above 16 MiB (then it is too_large)"),
    NEVER(9, "FailedToParse", REASON_REJECTED, "yml"),
    NEVER(14, "TypeMismatch", REASON_REJECTED, "yml"),
    MEMBER(15, "Overflow", REASON_TOO_DEEP, "seen: nesting, one operation or the whole command"),
    MEMBER(22, "InvalidBSON", REASON_REJECTED, "yml"),
    NEVER(28, "PathNotViable", REASON_UNSAFE_NAME, "seen"),
    NEVER(40, "ConflictingUpdateOperators", REASON_UNSAFE_NAME, "seen: a beside a.b"),
    NEVER(52, "DollarPrefixedFieldName", REASON_UNSAFE_NAME, "seen"),
    NEVER(53, "InvalidIdField", REASON_REJECTED, "seen"),
    NEVER(54, "NotSingleValueField", REASON_REJECTED, "yml"),
    NEVER(55, "InvalidDBRef", REASON_UNSAFE_NAME, "yml"),
    NEVER(56, "EmptyFieldName", REASON_UNSAFE_NAME, "seen"),
    NEVER(57, "DottedFieldName", REASON_UNSAFE_NAME, "yml"),
    NEVER(66, "ImmutableField", REASON_REJECTED, "yml"),
    NEVER(111, "NotExactValueField", REASON_REJECTED, "yml"),
    NEVER(116, "DocTooLargeForCapped", REASON_TOO_LARGE, "yml"),
    NEVER(121, "DocumentValidationFailure", REASON_VALIDATION, "seen"),
    NEVER(171, "CannotIndexParallelArrays", REASON_REJECTED, "seen"),
    NEVER(201, "CannotBuildIndexKeys", REASON_REJECTED, "yml"),
    MEMBER(378, "NonConformantBSON", REASON_REJECTED, "yml"),
    MEMBER(10334, "BSONObjectTooLarge", REASON_TOO_LARGE, "yml"),
    NEVER(16755, "cannot extract geo keys", REASON_REJECTED, "seen: 2dsphere index"),
    NEVER(17261, "text index: language override is no string", REASON_REJECTED, "seen"),
    NEVER(17262, "text index: unsupported language", REASON_REJECTED, "seen"),
    NEVER(17280, "KeyTooLong", REASON_REJECTED, "yml: 4.0 and older"),
    MEMBER(17419, "document after update is too large", REASON_TOO_LARGE, "server's update stage"),
    MEMBER(17420, "document to upsert is too large", REASON_TOO_LARGE, "seen"),

    /* This operation lost against another one for now. */
    LATER(112, "WriteConflict", RETRY_CONFLICT, "seen: in transactions"),
    LATER(117, "ConflictingOperationInProgress", RETRY_CONFLICT, "yml"),
    LATER(24, "LockTimeout", RETRY_CONFLICT, "yml"),
    LATER(46, "LockBusy", RETRY_CONFLICT, "yml"),
    LATER(215, "DatabaseDropPending", RETRY_CONFLICT, "yml"),
    LATER(239, "SnapshotTooOld", RETRY_CONFLICT, "yml"),
    LATER(246, "SnapshotUnavailable", RETRY_CONFLICT, "yml"),
    LATER(251, "NoSuchTransaction", RETRY_CONFLICT, "yml"),
    LATER(267, "PreparedTransactionInProgress", RETRY_CONFLICT, "yml"),
    LATER(272, "MigrationConflict", RETRY_CONFLICT, "yml"),
    LATER(365, "TemporarilyUnavailable", RETRY_CONFLICT, "yml"),
    LATER(12586, "BackgroundOperationInProgressForDatabase", RETRY_CONFLICT, "yml"),
    LATER(12587, "BackgroundOperationInProgressForNamespace", RETRY_CONFLICT, "yml"),

    /* The primary went away, or this one is not it. */
    UNKNOWN(91, "ShutdownInProgress", RETRY_NO_PRIMARY, "spec"),
    UNKNOWN(94, "NotYetInitialized", RETRY_NO_PRIMARY, "yml"),
    UNKNOWN(133, "FailedToSatisfyReadPreference", RETRY_NO_PRIMARY, "yml: mongos"),
    UNKNOWN(189, "PrimarySteppedDown", RETRY_NO_PRIMARY, "spec"),
    UNKNOWN(216, "ElectionInProgress", RETRY_NO_PRIMARY, "yml"),
    UNKNOWN(10058, "LegacyNotPrimary", RETRY_NO_PRIMARY, "yml"),
    UNKNOWN(10107, "NotWritablePrimary", RETRY_NO_PRIMARY, "spec, seen"),
    UNKNOWN(11600, "InterruptedAtShutdown", RETRY_NO_PRIMARY, "spec"),
    UNKNOWN(11602, "InterruptedDueToReplStateChange", RETRY_NO_PRIMARY, "spec, seen"),
    UNKNOWN(13435, "NotPrimaryNoSecondaryOk", RETRY_NO_PRIMARY, "spec"),
    UNKNOWN(13436, "NotPrimaryOrSecondary", RETRY_NO_PRIMARY, "spec"),

    /* The network, ours or between the servers. */
    UNKNOWN(6, "HostUnreachable", RETRY_NETWORK, "spec"),
    UNKNOWN(7, "HostNotFound", RETRY_NETWORK, "spec"),
    UNKNOWN(279, "ClientDisconnect", RETRY_NETWORK, "yml"),
    UNKNOWN(9001, "SocketException", RETRY_NETWORK, "spec"),
    UNKNOWN(46841, "ClientMarkedKilled", RETRY_NETWORK, "yml"),

    /* It took too long. */
    UNKNOWN(50, "MaxTimeMSExpired", RETRY_TIMEOUT, "yml"),
    UNKNOWN(89, "NetworkTimeout", RETRY_TIMEOUT, "spec"),
    UNKNOWN(202, "NetworkInterfaceExceededTimeLimit", RETRY_TIMEOUT, "yml"),
    UNKNOWN(262, "ExceededTimeLimit", RETRY_TIMEOUT, "spec"),
    UNKNOWN(290, "TransactionExceededLifetimeLimitSeconds", RETRY_TIMEOUT, "yml"),
    UNKNOWN(407, "PooledConnectionAcquisitionExceededTimeLimit", RETRY_TIMEOUT, "yml"),

    /* Applied somewhere, not acknowledged as asked. */
    UNKNOWN(64, "WriteConcernTimeout", RETRY_WRITE_CONCERN, "yml"),
    UNKNOWN(75, "WriteConcernLegacyOK", RETRY_WRITE_CONCERN, "yml"),
    UNKNOWN(79, "UnknownReplWriteConcern", RETRY_CONFIG, "yml: a tag that no member has"),
    UNKNOWN(100, "UnsatisfiableWriteConcern", RETRY_WRITE_CONCERN, "seen"),

    /* Rights and credentials: not the record's fault. */
    UNKNOWN(11, "UserNotFound", RETRY_RIGHTS, "yml"),
    UNKNOWN(13, "Unauthorized", RETRY_RIGHTS, "seen"),
    UNKNOWN(18, "AuthenticationFailed", RETRY_RIGHTS, "yml"),
    UNKNOWN(31, "RoleNotFound", RETRY_RIGHTS, "yml"),
    UNKNOWN(33, "PrivilegeNotFound", RETRY_RIGHTS, "yml"),
    UNKNOWN(391, "ReauthenticationRequired", RETRY_RIGHTS, "yml"),
    UNKNOWN(8000, "AtlasError", RETRY_RIGHTS, "Atlas: credentials, network list, or tier"),

    /* The other side is not what this program needs. */
    UNKNOWN(20, "IllegalOperation", RETRY_CONFIG, "seen: a transaction number on a standalone"),
    UNKNOWN(26, "NamespaceNotFound", RETRY_CONFIG, "yml"),
    UNKNOWN(59, "CommandNotFound", RETRY_CONFIG, "yml"),
    UNKNOWN(61, "ShardKeyNotFound", RETRY_CONFIG, "yml: the filter lacks the shard key"),
    UNKNOWN(72, "InvalidOptions", RETRY_CONFIG, "yml"),
    UNKNOWN(73, "InvalidNamespace", RETRY_CONFIG, "yml"),
    UNKNOWN(115, "CommandNotSupported", RETRY_CONFIG, "yml"),
    UNKNOWN(166, "CommandNotSupportedOnView", RETRY_CONFIG, "seen"),
    UNKNOWN(167, "OptionNotSupportedOnView", RETRY_CONFIG, "yml"),
    UNKNOWN(322, "APIVersionError", RETRY_CONFIG, "yml"),
    UNKNOWN(323, "APIStrictError", RETRY_CONFIG, "yml"),
    UNKNOWN(324, "APIDeprecationError", RETRY_CONFIG, "yml"),
    UNKNOWN(371, "UserWritesBlocked", RETRY_CONFIG, "yml"),
    UNKNOWN(14031, "OutOfDiskSpace", RETRY_CONFIG, "yml"),

    /* Known not to be one member's fault, so the command is not halved. */
    UNKNOWN(63, "StaleShardVersion", RETRY_OTHER, "yml"),
    UNKNOWN(96, "OperationFailed", RETRY_OTHER, "yml"),
    UNKNOWN(134, "ReadConcernMajorityNotAvailableYet", RETRY_OTHER, "spec"),
    UNKNOWN(146, "ExceededMemoryLimit", RETRY_OTHER, "yml"),
    UNKNOWN(150, "StaleEpoch", RETRY_OTHER, "yml"),
    UNKNOWN(249, "StaleDbVersion", RETRY_OTHER, "yml"),
    UNKNOWN(250, "StaleChunkHistory", RETRY_OTHER, "yml"),
    UNKNOWN(264, "TooManyFilesOpen", RETRY_OTHER, "yml"),
    UNKNOWN(402, "ResourceExhausted", RETRY_OTHER, "yml"),
    UNKNOWN(433, "AdmissionQueueOverflow", RETRY_OTHER, "yml"),
    UNKNOWN(449, "RateLimitExceeded", RETRY_OTHER, "yml"),
    UNKNOWN(462, "IngressRequestRateLimitExceeded", RETRY_OTHER, "yml"),
    UNKNOWN(11601, "Interrupted", RETRY_OTHER, "yml: killOp"),
    UNKNOWN(13388, "StaleConfig", RETRY_OTHER, "yml"),
};
/* clang-format on */

const size_t outcome_codes_count = sizeof outcome_codes / sizeof *outcome_codes;

const struct outcome_code *outcome_code_find(int code)
{
    for (size_t i = 0; i < outcome_codes_count; i++)
        if (outcome_codes[i].code == code)
            return &outcome_codes[i];
    return NULL;
}
