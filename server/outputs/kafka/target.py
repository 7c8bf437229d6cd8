"""A producer of Kafka: batches become records, and are confirmed when the brokers have them all."""

import contextlib
import logging
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.admin._metadata import TopicMetadata
from confluent_kafka.admin._resource import ResourceType

from ....protocol.canal.records import RecordEncoder, Records
from ....protocol.errors import MarkerError
from ....store.batch import Batch
from ..routing import Router, Rules
from ..settings import OnMarker
from ..target import DeliveryError, Prepared, RejectedError
from .settings import KafkaSettings, Key
from .translation import FIXED, Translated

logger = logging.getLogger(__name__)

SLICE: Final = 0.25
"""Seconds after which a call that waits for brokers looks whether it was abandoned."""
ANSWER: Final = 1.0
"""Seconds that a broker may take to answer a question, ..."""
ANSWERS: Final = 5
"""... so many times: the first connection takes longer."""
OVERHEAD: Final = 128
"""Bytes of a request beside a record's key and value."""
REJECTED: Final = {
    KafkaError.MSG_SIZE_TOO_LARGE: "raise max.message.bytes of the topic, or lower kafka.max.request.size",
    KafkaError.RECORD_LIST_TOO_LARGE: "raise max.message.bytes of the topic, or lower kafka.max.request.size",
    KafkaError.TOPIC_AUTHORIZATION_FAILED: "allow the user to WRITE and DESCRIBE the topic",
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: "allow the user IDEMPOTENT_WRITE on the cluster",
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "allow the user to WRITE and DESCRIBE the transactional id",
    KafkaError.UNKNOWN_TOPIC_OR_PART: "create the topic again; what it held is lost, and the output goes on at its"
    " cursor",
    KafkaError._UNKNOWN_TOPIC: "create the topic again; what it held is lost, and the output goes on at its cursor",  # noqa: SLF001  so it is called
    KafkaError._UNKNOWN_PARTITION: "create the topic again, or add partitions; what it held is lost, and the output"  # noqa: SLF001
    " goes on at its cursor",
    KafkaError._AUTHENTICATION: "correct kafka.sasl.mechanism, kafka.sasl.username and kafka.sasl.password",  # noqa: SLF001
    KafkaError._SSL: "correct kafka.ssl.ca.location, or what else of TLS the text names",  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED: "correct kafka.sasl.username and kafka.sasl.password",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "set kafka.sasl.mechanism to one that the broker has",
    KafkaError._INVALID_ARG: "correct the settings kafka.*",  # noqa: SLF001
    KafkaError.INVALID_TRANSACTION_TIMEOUT: "lower kafka.transaction.timeout.ms",
}
"""Errors that do not pass by themselves, and what to do."""
WAITING: Final = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}  # noqa: SLF001
FENCED: Final = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001


class KafkaTarget:
    """The topics that an output writes to. See `Target`.

    Args:
        rules: of topics and partitions.
        settings: what is configured of the output.
        translated: the settings of librdkafka.
        transactional_id: makes the name of the transactions, when it is opened; None sends without transactions.
        strict: whether FlatMessages are exactly as Canal's.
    """

    def __init__(
        self,
        rules: Rules,
        settings: KafkaSettings,
        translated: Translated,
        transactional_id: Callable[[], str] | None = None,
        *,
        strict: bool = False,
    ) -> None:
        self.trouble = ""
        self._settings = settings
        self._config = translated.settings
        self._transactional_id = transactional_id
        self._limit = translated.largest
        self._router = Router(rules)
        self._encoder = RecordEncoder(
            settings.form.value,
            self._router.route,
            whole=self._router.is_whole,
            limit=self._limit - OVERHEAD,
            keyed=settings.key is Key.PK,
            split_key_updates=settings.split_key_updates,
            statements=settings.statements,
            markers=settings.on_marker is OnMarker.SEND,
            strict=strict,
        )
        self._known: set[str] = set()
        """Topics that were there once: they are not made again."""
        self._producer: Producer | None = None
        self._abandoned = threading.Event()
        self._in_transaction = False
        self._failed: tuple[KafkaError, Message] | None = None
        self._denied: KafkaError | None = None

    # --- the calls of a delivery -------------------------------------------------------------------------------------

    def open(self) -> None:
        """See `Target.open`."""
        self._abandoned.clear()
        self._failed = self._denied = None
        self._in_transaction = False
        config: dict[str, Any] = {**self._config, **FIXED, "error_cb": self._note}
        if self._transactional_id is not None:
            config["transactional.id"] = self._transactional_id()
        try:
            self._producer = producer = Producer(config, logger=logger)
        except KafkaException as error:
            raise _error(error.args[0]) from None
        if self._transactional_id is not None:
            self._resume(producer.init_transactions)
        for topic in self._known.union(self._router.fixed_topics):
            self._look_up(topic, producer)

    def prepare(self, batch: Batch) -> Prepared:
        """See `Target.prepare`."""
        parts: list[Records] = []
        skipped: list[str] = []
        begin = 0
        while True:
            records = self._encoder.encode(batch.slices, batch.batch_id, begin=begin)
            if (refused := records.refused) is not None and not (
                isinstance(refused, MarkerError) and self._settings.on_marker is OnMarker.SKIP
            ):
                raise refused
            parts.append(records)
            if refused is None:
                break
            skipped.append(f"{refused}, in the batch from {batch.from_}")
            begin = records.end + 1
        return Prepared(
            batch,
            parts,
            sum(len(it.values) for it in parts),
            sum(len(value) for it in parts for value in it.values),
            skipped,
        )

    def send(self, batches: Sequence[Prepared]) -> None:
        """See `Target.send`."""
        producer = self._producer
        assert producer is not None
        if not any(it.records for it in batches):
            return
        if self._transactional_id is not None:
            self._call(producer.begin_transaction)
            self._in_transaction = True
        for batch in batches:
            for records in batch.content:
                self._produce(producer, records)
        while producer.flush(SLICE):
            self._look()
        self._look()
        if self._transactional_id is not None:
            self._resume(producer.commit_transaction)
            self._in_transaction = False
        self.trouble = ""

    def abandon(self) -> None:
        """See `Target.abandon`."""
        self._abandoned.set()
        if self._producer is not None:
            self._producer.purge(blocking=False)

    def close(self) -> None:
        """See `Target.close`."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        producer.purge()
        if self._in_transaction:  # readers of committed records wait for its end
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(1.0)
        producer.flush(0)

    # --- questions before anything is sent ---------------------------------------------------------------------------

    @property
    def fixed_topics(self) -> list[str]:
        """The topics that are known before there is a table."""
        return self._router.fixed_topics

    def fit(self, topic: str) -> str:
        """Say how a topic fits. Raises RejectedError when it does not, or is missing; DeliveryError."""
        try:
            return self._fit(self._asker(), topic)
        except _MissingError:
            raise self._missing(topic) from None

    # --- inside ------------------------------------------------------------------------------------------------------

    def _produce(self, producer: Producer, records: Records) -> None:
        names = self._router.topics
        for topic in {names[it] for it in records.topics} - self._known:
            self._look_up(topic, producer)
        keys = records.keys or [None] * len(records.values)
        produce, report = producer.produce, self._report
        for topic_number, partition, key, value in zip(
            records.topics, records.partitions, keys, records.values, strict=True
        ):
            while True:
                try:
                    produce(names[topic_number], value, key, partition, report)
                except BufferError:  # the queue is full
                    producer.poll(SLICE)
                    self._look()
                    continue
                except KafkaException as error:
                    raise _error(error.args[0], names[topic_number], value) from None
                break
        producer.poll(0)
        self._look()

    def _report(self, error: KafkaError | None, message: Message) -> None:
        """Hear of a record that was not taken; of others nothing is heard."""
        if error is not None and self._failed is None:
            self._failed = error, message

    def _note(self, error: KafkaError) -> None:
        """Hear of trouble that the library goes on with."""
        self.trouble = str(error.str())
        if error.code() in REJECTED:
            self._denied = error

    def _look(self) -> None:
        """Raise what has happened meanwhile."""
        if self._abandoned.is_set():
            raise DeliveryError("it was stopped")
        if self._failed is not None:
            error, message = self._failed
            raise _error(error, message.topic(), message.value())
        if self._denied is not None:
            raise _error(self._denied)

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except KafkaException as error:
            raise _error(error.args[0]) from None

    def _resume(self, call: Callable[[float], None]) -> None:
        """Make a call of the transactions again and again until it is done."""
        while True:
            try:
                call(SLICE)
            except KafkaException as error:
                self._look()
                reason = error.args[0]
                if reason.retriable() and not reason.txn_requires_abort():
                    continue
                raise _error(reason) from None
            return

    def _look_up(self, topic: str, producer: Producer) -> None:
        """See that a topic is there, and fits; the broker may make one that this output has never seen."""
        asker = self._asker(creates=topic not in self._known)
        for _attempt in range(20):  # a topic takes a moment to come
            self._look()
            with contextlib.suppress(_MissingError):
                self._fit(asker, topic)
                self._known.add(topic)
                return
            if topic in self._known:
                break
            producer.poll(0)
            self._abandoned.wait(SLICE)
        raise self._missing(topic)

    def _asker(self, *, creates: bool = False) -> AdminClient:
        config: dict[str, Any] = {**self._config, "log_level": 2, "error_cb": self._note}
        return AdminClient({**config, "allow.auto.create.topics": creates}, logger=logger)

    def _missing(self, topic: str) -> RejectedError:
        return RejectedError(
            f"topic {topic} does not exist: create it (kafka-topics.sh --create --topic {topic} --partitions"
            f" {self._router.partitions(topic)}). If it was deleted, what it held is lost, and the output goes on"
            " at its cursor"
        )

    def _fit(self, asker: AdminClient, topic: str) -> str:
        """Say how a topic fits. Raises RejectedError when it does not, _MissingError, DeliveryError."""
        found = self._find(asker, topic)
        if found.error is not None:
            raise _MissingError if _may_come(found.error) else _error(found.error, topic)
        needed = self._router.partitions(topic)
        if len(found.partitions) < needed:
            raise RejectedError(
                f"topic {topic} has {len(found.partitions)} partitions, and {needed} are configured: add partitions"
                f" (kafka-topics.sh --alter --topic {topic} --partitions {needed}), or lower partitionsNum"
            )
        largest = self._largest(asker, topic)
        if largest and largest < self._limit:
            raise RejectedError(
                f"topic {topic} takes requests of {largest} bytes (max.message.bytes), and they may have {self._limit}"
                f" here: set kafka.max.request.size = {largest}, or raise that of the topic"
            )
        return (
            f"topic {topic} has {len(found.partitions)} partitions and takes {largest or 'an unknown number of'} bytes"
        )

    def _find(self, asker: AdminClient, topic: str) -> TopicMetadata:
        for left in reversed(range(ANSWERS)):
            try:
                return asker.list_topics(topic, ANSWER).topics[topic]
            except KafkaException as error:
                asker.poll(0)  # for what `_note` is told
                self._look()
                if not left or error.args[0].code() not in WAITING:
                    raise _error(error.args[0], f"{topic} ({self.trouble})" if self.trouble else topic) from None
        raise AssertionError

    @staticmethod
    def _largest(asker: AdminClient, topic: str) -> int:
        """Return the bytes that the broker takes at once for a topic; 0 when it does not say."""
        asked = asker.describe_configs([ConfigResource(ResourceType.TOPIC, topic)], request_timeout=ANSWER)
        try:
            (answer,) = (it.result(ANSWER) for it in asked.values())
        except (KafkaException, TimeoutError):  # the user may not ask
            return 0
        return int(answer["max.message.bytes"].value)


class _MissingError(Exception):
    """A topic does not exist, or not yet."""


def _may_come(error: KafkaError) -> bool:
    return error.code() in (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)


def _error(error: KafkaError, topic: str | None = None, value: bytes | None = None) -> DeliveryError | RejectedError:
    """Return what an error of the library means to a delivery."""
    what = f"topic {topic}: " if topic else ""
    size = f" (a record of {len(value)} bytes)" if value is not None else ""
    text = f"{what}{error.str()}{size}"
    if error.code() in FENCED:
        return DeliveryError(
            f"{text}: another producer has the same transactional id; this one goes on only where this server still has"
            " the destination. If it comes again, two environments share the id: set transactionalId"
        )
    advice = REJECTED.get(error.code())
    return DeliveryError(text) if advice is None else RejectedError(f"{text}: {advice}")
