"""What errors of Kafka mean to a delivery: which pass by themselves, and what to do about the others."""

from typing import Final

from confluent_kafka import KafkaError

from ..target import DeliveryError, RejectedError

GONE: Final = "the topic is gone, and what it held is lost: create it again, and the output goes on at its cursor"
REJECTED: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic, or lower kafka.max.request.size",
    KafkaError.RECORD_LIST_TOO_LARGE: "raise max.message.bytes of the topic, or lower kafka.max.request.size",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow the user to WRITE and DESCRIBE the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow the user IDEMPOTENT_WRITE on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow the user to WRITE and DESCRIBE the transactional id",
    KafkaError.UNKNOWN_TOPIC_OR_PART: GONE,
    KafkaError._UNKNOWN_TOPIC: GONE,  # noqa: SLF001  so it is called
    KafkaError._UNKNOWN_PARTITION: GONE,  # noqa: SLF001
    KafkaError._AUTHENTICATION: "correct kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password",  # noqa: SLF001
    KafkaError._SSL: "correct kafka.ssl.ca.location, or what else of TLS the text names",  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: "correct kafka.sasl.username and kafka.sasl.password",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "set kafka.sasl.mechanism to one that the broker has",
    KafkaError._INVALID_ARG: "correct the settings kafka.*",  # noqa: SLF001
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
