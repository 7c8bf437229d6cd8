"""What errors of Kafka mean to a delivery: which pass by themselves, and what to do about the others."""

from typing import Final

from confluent_kafka import KafkaError

from ..routing import NAMES
from ..target import DeliveryError, RejectedError

GONE: Final = "the topic is gone, and what it held is lost: create it again, and the output resumes at its cursor"
_SIZE: Final = "raise max.message.bytes of the topic, or lower kafka.max.request.size"
_NAME: Final = f"correct the topic, or the rule of dynamicTopic: {NAMES}"
_RECORD: Final = (
    "the topic refuses the record. A compacted topic needs a key: set key = pk, and exclude DDL and tables without a"
    " primary key. For other topics, check the rules of the brokers"
)
_MADE: Final = (
    "the brokers refuse to create the topic with these settings: create it yourself (kafka-topics.sh --create)"
)
_USER: Final = "correct kafka.sasl.username and kafka.sasl.password"
_OLD: Final = "the brokers are too old for this: upgrade them, or check whether a setting kafka.* requires it"
_LISTENER: Final = "kafka.bootstrap.servers names a listener that is not for clients: name that of the brokers"
_ASKED: Final = "the brokers refuse the request, also when it is repeated: their logs show why"
_SETTINGS: Final = "correct the settings kafka.*"

REJECTED: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: _SIZE,
    KafkaError.RECORD_LIST_TOO_LARGE: _SIZE,
    KafkaError.INVALID_MSG: _RECORD,  # so older brokers say INVALID_RECORD
    KafkaError.INVALID_RECORD: _RECORD,
    KafkaError._INVALID_DIFFERENT_RECORD: _RECORD,  # noqa: SLF001
    KafkaError.INVALID_TIMESTAMP: "correct the clock of this host, or raise message.timestamp.*.max.ms of the topic",
    KafkaError.TOPIC_EXCEPTION: _NAME,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow the user to WRITE and DESCRIBE the topic",
    KafkaError.GROUP_AUTHORIZATION_FAILED: "allow the user to READ the group",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow the user IDEMPOTENT_WRITE on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow the user to WRITE and DESCRIBE the transactional id",
    KafkaError.UNKNOWN_TOPIC_OR_PART: GONE,
    KafkaError._UNKNOWN_TOPIC: GONE,  # noqa: SLF001  so it is called
    KafkaError._UNKNOWN_PARTITION: GONE,  # noqa: SLF001
    KafkaError.INVALID_PARTITIONS: _MADE,
    KafkaError.INVALID_REPLICATION_FACTOR: _MADE,
    KafkaError.INVALID_REPLICA_ASSIGNMENT: _MADE,
    KafkaError.INVALID_CONFIG: _MADE,
    KafkaError.POLICY_VIOLATION: _MADE,
    KafkaError._AUTHENTICATION: "correct kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password",  # noqa: SLF001
    KafkaError._SSL: "correct kafka.ssl.ca.location, or another TLS setting that the text names",  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: _USER,
    KafkaError.UNACCEPTABLE_CREDENTIAL: _USER,
    KafkaError.INVALID_PRINCIPAL_TYPE: _USER,
    KafkaError.DELEGATION_TOKEN_AUTH_DISABLED: _USER,
    KafkaError.DELEGATION_TOKEN_NOT_FOUND: _USER,
    KafkaError.DELEGATION_TOKEN_OWNER_MISMATCH: _USER,
    KafkaError.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: _USER,
    KafkaError.DELEGATION_TOKEN_AUTHORIZATION_FAILED: _USER,
    KafkaError.DELEGATION_TOKEN_EXPIRED: _USER,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "set kafka.sasl.mechanism to one that the broker has",
    KafkaError.ILLEGAL_SASL_STATE: "set kafka.security.protocol to that of the broker's listener",
    KafkaError.SECURITY_DISABLED: "set kafka.security.protocol to that of the broker's listener",
    KafkaError.MISMATCHED_ENDPOINT_TYPE: _LISTENER,
    KafkaError.UNSUPPORTED_ENDPOINT_TYPE: _LISTENER,
    KafkaError.UNSUPPORTED_VERSION: _OLD,
    KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT: _OLD,
    KafkaError._UNSUPPORTED_FEATURE: _OLD,  # noqa: SLF001
    KafkaError.UNSUPPORTED_COMPRESSION_TYPE: "set kafka.compression.type to one that the broker and the topic take",
    KafkaError.INVALID_REQUIRED_ACKS: _ASKED,
    KafkaError.INVALID_REQUEST: _ASKED,
    KafkaError._INVALID_ARG: _SETTINGS,  # noqa: SLF001
    KafkaError._NOT_CONFIGURED: _SETTINGS,  # noqa: SLF001
    KafkaError._NOT_IMPLEMENTED: _SETTINGS,  # noqa: SLF001
    KafkaError._UNKNOWN_PROTOCOL: _SETTINGS,  # noqa: SLF001
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "lower kafka.transaction.timeout.ms",
}
"""Errors that do not pass by themselves, and what to do."""
TOO_LARGE: Final = {KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE}
WAITING: Final = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001
FENCED: Final = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001


def meaning(error: KafkaError, topic: str | None = None, record: str = "") -> DeliveryError | RejectedError:
    """Return what an error of the library means to a delivery."""
    text = "".join([f"topic {topic}: " if topic else "", error.str(), f" ({record})" if record else ""])
    if error.code() in FENCED:
        return DeliveryError(
            f"{text}: another producer has the same transactional id; this one goes on only where this server still has"
            " the destination. If it comes again, two environments share the id: set transactionalId"
        )
    advice = REJECTED.get(error.code())
    return DeliveryError(text) if advice is None else RejectedError(f"{text}: {advice}")
