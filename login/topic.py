"""A topic with TiDB's changes, which the reader of its secondary binlog and sources share. Needs confluent-kafka.

It has one partition, unless `Topic.parts` is asked for all. Records of transactions that were aborted are passed over;
the offsets of these, and of the markers of transactions, are holes.
"""

import logging
from collections.abc import Mapping, Sequence
from functools import partial
from types import NoneType
from typing import Any, Final, Self, cast

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from ..protocol.errors import PurgedError, SourceError
from ..protocol.tidb.entries import commit_ts_of
from ..protocol.tidb.search import OffsetSearch

logger = logging.getLogger(__name__)
_library = logging.getLogger(f"{__name__}.library")
_library.disabled = True  # what is in the way is told by errors

PARTITION: Final = 0
MOST_PARTITIONS: Final = 64
"""Of a topic of which all are read."""
LARGEST: Final = 1 << 30
"""Bytes of a record, at most: what Drainer lets a message have."""
QUEUED: Final = 32 << 10
"""KiB that are fetched ahead, ..."""
LEAST_QUEUED: Final = 256
"""... of a partition at least."""
SLICE: Final = 0.25
"""Seconds after which a call that waits for brokers looks whether it has to end."""
ENDED: Final = {
    KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001  so it is called
    KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.GROUP_AUTHORIZATION_FAILED,
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM,
    KafkaError._SSL,  # noqa: SLF001
    KafkaError._INVALID_ARG,  # noqa: SLF001
}
"""Errors that do not pass by themselves."""
OUT_OF_RANGE: Final = {KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE}  # noqa: SLF001
_FIXED: Final = {
    "allow.auto.create.topics": False,
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "fetch.queue.backoff.ms": 10,  # for which nothing is fetched when QUEUED is reached
    "fetch.wait.max.ms": 100,  # after which the broker says that there is no more
    "isolation.level": "read_committed",
    "log_level": 2,
    "queued.max.messages.kbytes": QUEUED,
    "receive.message.max.bytes": LARGEST + (1 << 20),
}


class Topic:
    """Reads one topic, or a partition of it. One thread at a time calls it."""

    def __init__(
        self,
        brokers: str,
        name: str,
        settings: Mapping[str, str] | None = None,
        *,
        timeout: float = 30.0,
        partition: int = PARTITION,
        queued: int = QUEUED,
    ) -> None:
        """Prepare; nothing is asked yet.

        ``brokers``: host:port, separated by commas. ``settings``: of librdkafka, such as those of SASL and TLS.
        ``timeout``: seconds that brokers may take to answer a question. ``queued``: KiB that are fetched ahead.

        Raises:
            SourceError: a setting is wrong.
        """
        self.name = name
        self.partition = partition
        self._make = partial(Topic, brokers, name, settings, timeout=timeout)
        self._queued = queued
        self._parts: list[Topic] = []  # of a topic of which all partitions are read
        self.trouble = ""
        """What is in the way of reading, until something is read; empty if nothing is known to be."""
        self.is_at_end = False
        """Whether all that the topic has was read."""
        self.written = 0
        """When the last record that was read was written, ms since 1970."""
        self._timeout = timeout
        self._denied: KafkaError | None = None
        config: dict[str, Any] = {
            "client.id": "sluice",
            **(settings or {}),
            **_FIXED,
            "queued.max.messages.kbytes": queued,
            "bootstrap.servers": brokers,
            "group.id": "sluice",  # has to be set, and is not used
            "error_cb": self._note,
        }
        try:
            self._consumer = Consumer(config, logger=_library)
        except KafkaException as error:
            raise SourceError(f"{self}: {error.args[0].str()}") from None

    def __str__(self) -> str:
        return f"topic {self.name}" + (f", partition {self.partition}" if self.partition else "")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Leave the brokers."""
        for it in self._parts[1:]:
            it.close()
        self._consumer.close()

    def parts(self) -> "Sequence[Topic]":
        """Return a reader of each partition, the first of which is this one; it closes the others.

        Raises SourceError, also for more than `MOST_PARTITIONS`.
        """
        if not self._parts:
            count = self.count()
            if count > MOST_PARTITIONS:
                raise SourceError(f"{self} has {count} partitions, and {MOST_PARTITIONS} are possible")
            queued = max(LEAST_QUEUED, self._queued // count)
            self._parts = [self, *(self._make(partition=it, queued=queued) for it in range(1, count))]
        return self._parts

    def count(self) -> int:
        """Return how many partitions the topic has now. Raises SourceError."""
        try:
            found = self._consumer.list_topics(self.name, self._timeout).topics[self.name]
        except KafkaException as error:
            raise self._meaning(error.args[0]) from None
        if found.error is not None:
            raise self._meaning(found.error)
        return len(found.partitions)

    def bounds(self) -> tuple[int, int]:
        """Return the first offset that the topic has, and the one after its last. Raises SourceError."""
        if self.partition == PARTITION and not self._parts and (count := self.count()) != 1:
            raise SourceError(
                f"{self} has {count} partitions, and one is possible, for the order of changes: Drainer needs a topic"
                " with one"
            )
        try:
            low, high = self._consumer.get_watermark_offsets(TopicPartition(self.name, self.partition), self._timeout)
        except KafkaException as error:
            raise self._meaning(error.args[0]) from None
        return low, high

    def seek(self, offset: int) -> None:
        """Read on from an offset, or from the first record after it."""
        self.is_at_end = False
        self._consumer.assign([TopicPartition(self.name, self.partition, offset)])

    def read(self, most: int, seconds: float) -> list[tuple[int, bytes]]:
        """Return up to ``most`` next records, with their offsets; none when none comes within ``seconds``.

        Raises:
            PurgedError: the topic no longer has the place.
            SourceError: it cannot be read, and that does not pass by itself.
        """
        found: list[tuple[int, bytes]] = []
        messages = self._consumer.consume(1, seconds)
        if most > 1:
            messages += self._consumer.consume(most - 1, 0)  # with a time, it would wait for all of them
        values = list(map(Message.value, messages))
        kinds = set(map(type, map(Message.error, messages)))
        if kinds == {NoneType} and None not in values:  # as mostly: nothing is Python for each
            self.is_at_end = False
            self.trouble = ""
            self.written = messages[-1].timestamp()[1]
            return cast("list[tuple[int, bytes]]", list(zip(map(Message.offset, messages), values, strict=True)))
        for message in messages:
            error, offset = message.error(), message.offset()
            if error is None:
                assert offset is not None
                self.is_at_end = False
                self.trouble = ""
                self.written = message.timestamp()[1]
                found.append((offset, message.value() or b""))
            elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001
                self.is_at_end = True
                self.trouble = ""
            elif not found:
                raise self._meaning(error)
            else:  # it comes again
                self._denied = error
        if not found and self._denied is not None:
            raise self._meaning(self._denied)
        return found

    def first(self, offset: int) -> tuple[int, bytes] | None:
        """Return the first record at or after an offset; None when there is none up to the end. Raises as `read`."""
        self.seek(offset)
        waited = 0.0
        while not self.is_at_end:
            for record in self.read(1, SLICE):
                return record
            waited += SLICE
            if waited >= self._timeout:
                raise SourceError(f"{self}: no broker answers. {self.trouble}".rstrip(" ."))
        return None

    def offset_at(self, milliseconds: int) -> int:
        """Return the offset of the first record that was written at a time or after it, in ms since 1970.

        It is the one after the last record when there is none. Raises SourceError.
        """
        wanted = TopicPartition(self.name, self.partition, max(milliseconds, 0))
        try:
            (found,) = self._consumer.offsets_for_times([wanted], self._timeout)
        except KafkaException as error:
            raise self._meaning(error.args[0]) from None
        if found.error is not None:
            raise self._meaning(found.error)
        return found.offset if found.offset >= 0 else self.bounds()[1]

    def after(self, offset: int, commit_ts: int) -> int | None:
        """Return where to go on after a record that was read; None when the topic does not have what follows it.

        It is another topic, too, if the record at the offset has another commit_ts. Raises as `find`.
        """
        low, high = self.bounds()
        if not low <= offset + 1 <= high:
            return None
        record = self.first(offset) if offset >= low else None
        is_same = record is None or record[0] > offset or commit_ts_of(record[1]) == commit_ts
        return offset + 1 if is_same else None

    def find(self, commit_ts: int) -> OffsetSearch:
        """Search the place after a commit_ts.

        Raises:
            DecodeError: a record on the way is not one of TiDB's secondary binlog.
            SourceError: the topic cannot be read.
        """
        search = OffsetSearch(*self.bounds(), commit_ts)
        while (wanted := search.wanted) is not None:
            record = self.first(wanted)
            search.tell(None if record is None else (record[0], commit_ts_of(record[1])))
        return search

    def _note(self, error: KafkaError) -> None:
        """Hear of trouble that the library goes on with."""
        self.trouble = str(error.str())
        if error.code() in ENDED:
            self._denied = error

    def _meaning(self, error: KafkaError) -> SourceError:
        text = f"{self}: {error.str()}"
        if error.code() in OUT_OF_RANGE:
            return PurgedError(f"{text}: the topic no longer has what was to be read next")
        return SourceError(text)
