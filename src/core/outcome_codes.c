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
        code, name, FATE_LATER, FATE_UNKNOWN, retry, REASON_NONE, false, source, NULL              \
    }
#define UNKNOWN(code, name, retry, source)                                                         \
    {                                                                                              \
        code, name, FATE_UNKNOWN, FATE_UNKNOWN, retry, REASON_NONE, false, source, NULL            \
    }
/* It stays until somebody does `todo`. */
#define OPERATOR(code, name, retry, todo, source)                                                  \
    {                                                                                              \
        code, name, FATE_UNKNOWN, FATE_UNKNOWN, retry, REASON_NONE, false, source, todo            \
    }
#define LOOK(code, name, source)                                                                   \
    {                                                                                              \
        code, name, FATE_LOOK, FATE_UNKNOWN, RETRY_OTHER, REASON_NONE, false, source, NULL         \
    }
/* Permanent for one operation. As the answer to a whole command it may be everybody's fault (a bad
 * write concern). */
#define NEVER(code, name, reason, source)                                                          \
    {                                                                                              \
        code, name, FATE_NEVER, FATE_SPLIT, RETRY_OTHER, reason, false, source, NULL               \
    }
/* The same, and as the answer to a whole command it is one member's fault if one is so large or so
 * deep. */
#define MEMBER(code, name, reason, source)                                                         \
    {                                                                                              \
        code, name, FATE_NEVER, FATE_SPLIT, RETRY_OTHER, reason, true, source, NULL                \
    }

#define TODO_USER                                                                                  \
    "the user of mongo.uri can't log in: if its password was changed or the user dropped, start "  \
    "again with "                                                                                  \
    "the right one, or set it back"
#define TODO_GRANT  "grant the user of mongo.uri what it lacks: idemsink check --connect names it"
#define TODO_DISK   "the server can't write to its disk: make room or repair it"
#define TODO_SERVER "this server does not know what was asked: see its version and mongo.uri"
#define TODO_VIEW   "the collection is a view: see route.collection"
#define TODO_API    "the server API of mongo.uri does not allow it: see its options"

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
    NEVER(22, "InvalidBSON", REASON_REJECTED, "yml"),
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
    NEVER(201, "CannotBuildIndexKeys", REASON_REJECTED, "seen: text index over an array"),
    NEVER(357, "InvalidBSONType", REASON_REJECTED, "yml"),
    NEVER(378, "NonConformantBSON", REASON_REJECTED, "yml"),
    MEMBER(10334, "BSONObjectTooLarge", REASON_TOO_LARGE, "yml"),
    NEVER(13026, "no legacy coordinate pair", REASON_REJECTED, "seen: 2d index"),
    NEVER(13027, "point not in interval", REASON_REJECTED, "seen: 2d index"),
    NEVER(13068, "geo field only has 1 element", REASON_REJECTED, "seen: 2d index"),
    NEVER(16755, "cannot extract geo keys", REASON_REJECTED, "seen: 2dsphere index"),
    NEVER(16766, "hashed indexes do not support array values", REASON_REJECTED, "seen: hashed index"),
    NEVER(16804, "location array not in correct format", REASON_REJECTED, "seen: 2d index"),
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
    LATER(107, "LockFailed", RETRY_CONFLICT, "yml"),
    LATER(215, "DatabaseDropPending", RETRY_CONFLICT, "yml"),
    LATER(225, "TransactionTooOld", RETRY_CONFLICT, "yml"),
    LATER(239, "SnapshotTooOld", RETRY_CONFLICT, "yml"),
    LATER(246, "SnapshotUnavailable", RETRY_CONFLICT, "yml"),
    LATER(251, "NoSuchTransaction", RETRY_CONFLICT, "yml"),
    LATER(267, "PreparedTransactionInProgress", RETRY_CONFLICT, "yml"),
    LATER(272, "MigrationConflict", RETRY_CONFLICT, "yml"),
    LATER(282, "TransactionCoordinatorReachedAbortDecision", RETRY_CONFLICT, "yml"),
    LATER(319, "MovePrimaryInProgress", RETRY_CONFLICT, "yml"),
    LATER(338, "ReshardCollectionInProgress", RETRY_CONFLICT, "yml"),
    LATER(342, "ReshardingCriticalSectionTimeout", RETRY_CONFLICT, "yml"),
    LATER(356, "TxnRetryCounterTooOld", RETRY_CONFLICT, "yml"),
    LATER(358, "InternalTransactionNotSupported", RETRY_CONFLICT, "yml"),
    LATER(363, "RetryableTransactionInProgress", RETRY_CONFLICT, "yml"),
    LATER(365, "TemporarilyUnavailable", RETRY_CONFLICT, "yml"),
    LATER(406, "MigrationBlockingOperationCoordinatorCleaningUp", RETRY_CONFLICT, "yml"),
    LATER(412, "UpdatesStillPending", RETRY_CONFLICT, "yml"),
    LATER(414, "AddOrRemoveShardInProgress", RETRY_CONFLICT, "yml"),
    LATER(453, "InterruptedDueToReshardingCriticalSection", RETRY_CONFLICT, "yml"),
    LATER(50915, "BackupCursorOpenConflictWithCheckpoint", RETRY_CONFLICT, "yml"),
    LATER(12586, "BackgroundOperationInProgressForDatabase", RETRY_CONFLICT, "yml"),
    LATER(12587, "BackgroundOperationInProgressForNamespace", RETRY_CONFLICT, "yml"),

    /* The primary went away, or this one is not it. */
    UNKNOWN(91, "ShutdownInProgress", RETRY_NO_PRIMARY, "spec"),
    UNKNOWN(94, "NotYetInitialized", RETRY_NO_PRIMARY, "yml"),
    UNKNOWN(133, "FailedToSatisfyReadPreference", RETRY_NO_PRIMARY, "yml: mongos"),
    UNKNOWN(149, "NoConfigPrimary", RETRY_NO_PRIMARY, "yml: mongos"),
    UNKNOWN(189, "PrimarySteppedDown", RETRY_NO_PRIMARY, "spec"),
    UNKNOWN(199, "ReplicaSetMonitorRemoved", RETRY_NO_PRIMARY, "yml: mongos"),
    UNKNOWN(216, "ElectionInProgress", RETRY_NO_PRIMARY, "yml"),
    UNKNOWN(281, "TransactionCoordinatorSteppingDown", RETRY_NO_PRIMARY, "yml"),
    UNKNOWN(333, "ServiceExecutorInShutdown", RETRY_NO_PRIMARY, "yml"),
    UNKNOWN(372, "CloseConnectionForShutdownCommand", RETRY_NO_PRIMARY, "yml"),
    UNKNOWN(10058, "LegacyNotPrimary", RETRY_NO_PRIMARY, "yml"),
    UNKNOWN(10107, "NotWritablePrimary", RETRY_NO_PRIMARY, "spec, seen"),
    UNKNOWN(11600, "InterruptedAtShutdown", RETRY_NO_PRIMARY, "spec"),
    UNKNOWN(11602, "InterruptedDueToReplStateChange", RETRY_NO_PRIMARY, "spec, seen"),
    UNKNOWN(13435, "NotPrimaryNoSecondaryOk", RETRY_NO_PRIMARY, "spec"),
    UNKNOWN(13436, "NotPrimaryOrSecondary", RETRY_NO_PRIMARY, "spec"),
    UNKNOWN(56846, "ConfigServerUnreachable", RETRY_NO_PRIMARY, "yml: mongos"),

    /* The network, ours or between the servers. */
    UNKNOWN(6, "HostUnreachable", RETRY_NETWORK, "spec"),
    UNKNOWN(7, "HostNotFound", RETRY_NETWORK, "spec"),
    UNKNOWN(141, "SSLHandshakeFailed", RETRY_NETWORK, "yml: between the servers"),
    UNKNOWN(145, "PooledConnectionsDropped", RETRY_NETWORK, "yml: mongos"),
    UNKNOWN(172, "TransportSessionClosed", RETRY_NETWORK, "yml"),
    UNKNOWN(230, "DNSHostNotFound", RETRY_NETWORK, "yml: between the servers"),
    UNKNOWN(231, "DNSProtocolError", RETRY_NETWORK, "yml: between the servers"),
    UNKNOWN(279, "ClientDisconnect", RETRY_NETWORK, "yml"),
    UNKNOWN(288, "ChecksumMismatch", RETRY_NETWORK, "yml: bytes changed on the way"),
    UNKNOWN(303, "SplitHorizonChange", RETRY_NETWORK, "yml"),
    UNKNOWN(317, "ConnectionPoolExpired", RETRY_NETWORK, "yml"),
    UNKNOWN(384, "ConnectionError", RETRY_NETWORK, "yml"),
    UNKNOWN(398, "StreamTerminated", RETRY_NETWORK, "yml"),
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
    OPERATOR(79, "UnknownReplWriteConcern", RETRY_CONFIG,
             "no member of the replica set knows this tag: see mongo.write_concern",
             "seen: a tag that no member has"),
    UNKNOWN(100, "UnsatisfiableWriteConcern", RETRY_WRITE_CONCERN, "seen"),

    /* Rights and credentials: not the record's fault. */
    OPERATOR(11, "UserNotFound", RETRY_RIGHTS, TODO_USER, "yml"),
    OPERATOR(13, "Unauthorized", RETRY_RIGHTS, TODO_GRANT, "seen"),
    OPERATOR(18, "AuthenticationFailed", RETRY_RIGHTS, TODO_USER, "seen"),
    OPERATOR(31, "RoleNotFound", RETRY_RIGHTS, TODO_GRANT, "yml"),
    OPERATOR(33, "PrivilegeNotFound", RETRY_RIGHTS, TODO_GRANT, "yml"),
    OPERATOR(214, "AuthenticationRestrictionUnmet", RETRY_RIGHTS,
             "the user may not log in from this address: change its authenticationRestrictions", "yml"),
    OPERATOR(334, "MechanismUnavailable", RETRY_RIGHTS,
             "the server does not take this authMechanism: see mongo.uri", "yml"),
    OPERATOR(337, "AuthenticationAbandoned", RETRY_RIGHTS, TODO_USER, "yml"),
    OPERATOR(391, "ReauthenticationRequired", RETRY_RIGHTS, TODO_USER, "yml"),
    OPERATOR(404, "LDAPRoleAcquisitionError", RETRY_RIGHTS,
             "the server can't ask its LDAP server for the user's roles: repair that", "yml"),
    OPERATOR(8000, "AtlasError", RETRY_RIGHTS,
             "Atlas refuses it: see the database user, the IP access list and the limits of the tier",
             "Atlas: credentials, network list, or tier"),

    /* The other side is not what this program needs. */
    OPERATOR(20, "IllegalOperation", RETRY_CONFIG,
             "this server can't do what was asked (transactions need a replica set): see mongo.uri",
             "seen: a transaction number on a standalone"),
    OPERATOR(26, "NamespaceNotFound", RETRY_CONFIG,
             "the collection is gone and can't be made by a write: make it (idemsink init)", "yml"),
    OPERATOR(42, "LogWriteFailed", RETRY_CONFIG, TODO_DISK, "yml"),
    OPERATOR(39, "FileStreamFailed", RETRY_CONFIG, TODO_DISK, "yml"),
    OPERATOR(59, "CommandNotFound", RETRY_CONFIG, TODO_SERVER, "yml"),
    OPERATOR(61, "ShardKeyNotFound", RETRY_CONFIG,
             "the shard key has to be part of the dedup key: see dedup.key and the collection's shard key",
             "yml: the filter lacks the shard key"),
    OPERATOR(72, "InvalidOptions", RETRY_CONFIG, TODO_SERVER, "yml"),
    OPERATOR(73, "InvalidNamespace", RETRY_CONFIG, "MongoDB does not take this collection: see route.collection",
             "yml"),
    OPERATOR(76, "NoReplicationEnabled", RETRY_CONFIG,
             "the server is no member of a replica set and can't meet mongo.write_concern", "yml"),
    OPERATOR(93, "InvalidReplicaSetConfig", RETRY_CONFIG, "repair the replica set's configuration", "yml"),
    OPERATOR(115, "CommandNotSupported", RETRY_CONFIG, TODO_SERVER, "yml"),
    OPERATOR(123, "NotAReplicaSet", RETRY_CONFIG,
             "the server is no member of a replica set: see mongo.uri", "yml"),
    OPERATOR(148, "ReadConcernMajorityNotEnabled", RETRY_CONFIG,
             "the look-up needs read concern majority: start mongod without enableMajorityReadConcern: false",
             "yml"),
    OPERATOR(166, "CommandNotSupportedOnView", RETRY_CONFIG, TODO_VIEW, "seen"),
    OPERATOR(167, "OptionNotSupportedOnView", RETRY_CONFIG, TODO_VIEW, "yml"),
    OPERATOR(263, "OperationNotSupportedInTransaction", RETRY_CONFIG, TODO_SERVER, "yml"),
    OPERATOR(301, "DataCorruptionDetected", RETRY_CONFIG, "the server's data files are damaged: see its log",
             "yml"),
    OPERATOR(322, "APIVersionError", RETRY_CONFIG, TODO_API, "yml"),
    OPERATOR(323, "APIStrictError", RETRY_CONFIG, TODO_API, "yml"),
    OPERATOR(324, "APIDeprecationError", RETRY_CONFIG, TODO_API, "yml"),
    OPERATOR(347, "APIMismatchError", RETRY_CONFIG, TODO_API, "yml"),
    OPERATOR(371, "UserWritesBlocked", RETRY_CONFIG,
             "somebody has blocked all writes (setUserWriteBlockMode): unblock them", "yml"),
    OPERATOR(14031, "OutOfDiskSpace", RETRY_CONFIG, TODO_DISK, "yml"),

    /* Known not to be one member's fault, so the command is not halved. */
    UNKNOWN(63, "StaleShardVersion", RETRY_OTHER, "yml"),
    UNKNOWN(70, "ShardNotFound", RETRY_OTHER, "yml"),
    UNKNOWN(90, "CallbackCanceled", RETRY_OTHER, "yml"),
    UNKNOWN(96, "OperationFailed", RETRY_OTHER, "yml"),
    UNKNOWN(134, "ReadConcernMajorityNotAvailableYet", RETRY_OTHER, "spec"),
    UNKNOWN(146, "ExceededMemoryLimit", RETRY_OTHER, "yml"),
    UNKNOWN(150, "StaleEpoch", RETRY_OTHER, "yml"),
    UNKNOWN(175, "QueryPlanKilled", RETRY_OTHER, "yml: the look-up"),
    UNKNOWN(208, "TooManyLocks", RETRY_OTHER, "yml"),
    UNKNOWN(237, "CursorKilled", RETRY_OTHER, "yml: the look-up"),
    UNKNOWN(249, "StaleDbVersion", RETRY_OTHER, "yml"),
    UNKNOWN(250, "StaleChunkHistory", RETRY_OTHER, "yml"),
    UNKNOWN(261, "TooManyLogicalSessions", RETRY_OTHER, "yml"),
    UNKNOWN(264, "TooManyFilesOpen", RETRY_OTHER, "yml"),
    UNKNOWN(310, "PeriodicJobIsStopped", RETRY_OTHER, "yml"),
    UNKNOWN(312, "OperationIsKilledAndDelisted", RETRY_OTHER, "yml"),
    UNKNOWN(343, "ShardCannotRefreshDueToLocksHeld", RETRY_OTHER, "yml"),
    UNKNOWN(355, "InterruptedDueToStorageChange", RETRY_OTHER, "yml"),
    UNKNOWN(402, "ResourceExhausted", RETRY_OTHER, "yml"),
    UNKNOWN(433, "AdmissionQueueOverflow", RETRY_OTHER, "yml"),
    UNKNOWN(449, "RateLimitExceeded", RETRY_OTHER, "yml"),
    UNKNOWN(450, "PooledConnectionAcquisitionRejected", RETRY_OTHER, "yml"),
    UNKNOWN(462, "IngressRequestRateLimitExceeded", RETRY_OTHER, "yml"),
    UNKNOWN(11601, "Interrupted", RETRY_OTHER, "seen: killOp"),
    UNKNOWN(13388, "StaleConfig", RETRY_OTHER, "yml"),
    UNKNOWN(91331, "RetriableRemoteCommandFailure", RETRY_OTHER, "yml: mongos"),
    UNKNOWN(10045600, "InterruptedDueToFCVChange", RETRY_OTHER, "yml"),
};
/* clang-format on */

const size_t outcome_codes_count = sizeof outcome_codes / sizeof *outcome_codes;

const char *outcome_advice(enum retry_class retry, int code)
{
    static const char *const advice[RETRY_CLASSES] = {
        [RETRY_NETWORK] = "see whether the servers of mongo.uri can be reached from here",
        [RETRY_NO_PRIMARY] = "no primary can be reached: see the members of the replica set",
        [RETRY_TIMEOUT] = "the server takes too long: see its load and its disk",
        [RETRY_WRITE_CONCERN] = "too few members acknowledge: see those that are away or behind",
        [RETRY_LOCK] = "see Redis, which keeps the locks, and who holds them",
        [RETRY_RIGHTS] = TODO_GRANT,
        [RETRY_CONFIG] = TODO_SERVER,
    };
    const struct outcome_code *row = outcome_code_find(code);

    if (row && row->todo)
        return row->todo;
    return (unsigned)retry < RETRY_CLASSES && advice[retry] ? advice[retry]
                                                            : "see the server's log";
}

const struct outcome_code *outcome_code_find(int code)
{
    for (size_t i = 0; i < outcome_codes_count; i++)
        if (outcome_codes[i].code == code)
            return &outcome_codes[i];
    return NULL;
}
