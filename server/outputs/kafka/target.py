"""A producer of Kafka: batches become records, and are confirmed when the brokers have them all."""

import contextlib
import json
import logging
import socket
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from ....store.batch import Batch
from ....store.cursor import read_moved
from ..forms.encoding import AnyRecords, PluginRecords, encode
from ..forms.registry import form_of
from ..places import positions_of
from ..routing import Router, Rules
from ..target import DeliveryError, Place, Prepared, RejectedError, server_of
from .errors import REJECTED, TOO_LARGE, meaning
from .naming import describe, find, position
from .positions import PARTITION, Positions
from .positions import TOPIC as POSITIONS
from .settings import KafkaSettings
from .statistics import INTERVAL, read_statistics
from .topics import Topics
from .translation import BATCH, FIXED, Translated

_library = logging.getLogger(f"{__name__}.library")
_library.disabled = True  # what is in the way is told by errors, that of a fenced producer too

SLICE: Final = 0.25
"""Seconds after which a call that waits for brokers looks whether it was abandoned."""
GLANCE: Final = 0.002
"""Seconds between two looks at how many records are not confirmed."""
OVERHEAD: Final = 128
"""Bytes of a request beside a record's key and value."""


class KafkaTarget:
    """The topics that an output writes to. See `Target`.

    Args:
        rules: of topics and partitions.
        settings: what is configured of the output.
        translated: the settings of librdkafka.
        identify: makes the name of the transactions, and the key of the output's place, when it is opened; None sends
            without transactions.
        source: host and port of what the changes are read from.
        shape: see `Output.shape`.
        strict: whether FlatMessages are exactly as Canal's.
    """

    def __init__(
        self,
        rules: Rules,
        settings: KafkaSettings,
        translated: Translated,
        identify: Callable[[], tuple[str, str]] | None = None,
        *,
        source: tuple[str, int] = ("", 0),
        shape: str = "",
        strict: bool = False,
    ) -> None:
        self.trouble = ""
        self.is_ahead = False
        self.statistics: dict[str, float] = {}
        """See `Target.statistics`."""
        self._settings = settings
        self._config = translated.settings
        self._identify = identify
        self._router = Router(rules)
        self._topics = Topics(self._config, self._router, translated.largest, self._wait, self._note)
        self._form = form_of(settings.form)
        self._encoder = self._form.encoder(settings, self._router, translated.largest - OVERHEAD, strict=strict)
        self._progress = self._form.progress(settings, shape, translated.largest)
        self._source = source
        self._resumed: tuple[str, tuple[str, int]] | None = None  # for the next batch: it follows on another attempt
        self._positions: Positions | None = None
        self._epoch = 0
        self._producer: Producer | None = None
        self._sending: Sequence[Prepared] = ()
        self._abandoned = threading.Event()
        self._in_transaction = False
        self._failed: tuple[KafkaError, Message] | None = None
        self._denied: KafkaError | None = None

    # --- the calls of a delivery -------------------------------------------------------------------------------------

    def open(self, memory: str, moved: str, epoch: int) -> Place | None:
        """See `Target.open`."""
        self._abandoned.clear()
        self._epoch = epoch
        self._failed = self._denied = None
        self._in_transaction = False
        config: dict[str, Any] = {**self._config, **FIXED, "error_cb": self._note}
        config |= {"stats_cb": self._measure, "statistics.interval.ms": INTERVAL}
        key = ""
        if self._identify is not None:
            config["transactional.id"], key = self._identify()
        try:
            self._producer = producer = Producer(config, logger=_library)
        except KafkaException as error:
            raise meaning(error.args[0]) from None
        if self._identify is not None:
            self._resume(producer.init_transactions)
        known = self.remember(memory, moved)
        place, state = None, self._progress.confirmed
        self._topics.open(known.get("topics", {}))
        if self._identify is not None:
            self._positions = Positions(self._topics, self._config, key, self._wait)
            place = self._positions.open(epoch, moved=known.get("moved"), is_written=known.get("written", False))
            state = state if place is None else self._positions.state
            if not self._positions.is_written:
                self._transact(producer, (), place, state)
        self._topics.require(self._router.fixed_topics)
        self._progress.confirmed = state
        self._resumed = state, resolve(self._source)
        return place

    def remember(self, memory: str, moved: str) -> dict[str, Any]:
        """Go on as what was kept with the cursor says; return what it says of topics and places."""
        known: dict[str, Any] = json.loads(memory or "{}")
        self._progress.restore(known, moved)
        self._resumed = self._progress.confirmed, self._source
        if moved:
            return {"moved": moved, "topics": None}
        return known | ({"moved": read_moved(known["moved"])} if "moved" in known else {})

    @property
    def keeps_place(self) -> bool:
        """See `Target.keeps_place`."""
        return self._identify is not None

    @property
    def takes_transactions(self) -> bool:
        """See `Target.takes_transactions`."""
        return self._form.takes_transactions

    def memory_before(self, batches: Sequence[Prepared]) -> str | None:
        """See `Target.memory_before`."""
        return self._memory() if self._progress.before(batches) else None

    def memory_after(self, prepared: Prepared) -> str:
        """See `Target.memory_after`."""
        self._progress.after(prepared)
        return self._memory()

    def _memory(self) -> str:
        known: dict[str, Any] = {"topics": self._topics.ids, **self._progress.kept()}
        if self._positions is not None:
            known |= {"moved": self._positions.moved, "written": self._positions.is_written}
        return json.dumps(known)

    def losses(self) -> list[str]:
        """See `Target.losses`."""
        return self._topics.losses()

    def prepare(self, batch: Batch) -> Prepared:
        """See `Target.prepare`."""
        encoder = self._encoder
        if self._resumed is not None:
            (state, source), self._resumed = self._resumed, None
            self._form.begin_at(encoder, self._progress.resume(state, server_of(batch)), source)
        parts, skipped = encode(encoder, batch, self._settings)
        return Prepared(
            batch,
            parts,
            sum(len(it.values) for it in parts),
            sum(len(value) for it in parts for value in it.values),
            skipped,
            encoder.state,
        )

    def send(self, batches: Sequence[Prepared], place: Place | None) -> None:
        """See `Target.send`."""
        producer = self._producer
        assert producer is not None
        if not any(it.records for it in batches):
            return
        self._transact(producer, batches, place, batches[-1].state)
        self.trouble = ""

    def idle(self) -> None:
        """See `Target.idle`: statistics would pile up. A connection that a broker closes meanwhile is not trouble."""
        if self._producer is not None:
            trouble = self.trouble
            self._serve(self._producer.poll, 0)
            self.trouble = trouble

    def abandon(self) -> None:
        """See `Target.abandon`."""
        self._abandoned.set()
        if self._producer is not None:
            self._producer.purge(blocking=False)

    def close(self) -> None:
        """See `Target.close`."""
        self._topics.close()
        producer, self._producer, self._sending = self._producer, None, ()
        if producer is None:
            return
        producer.purge()
        with contextlib.suppress(KafkaException, DeliveryError):  # a fenced producer fails in every call
            if self._in_transaction:  # readers of committed records wait for its end
                producer.abort_transaction(1.0)
            self._serve(producer.flush, 0)

    # --- questions before anything is sent ---------------------------------------------------------------------------

    @property
    def fixed_topics(self) -> list[str]:
        """The topics that are known before there is a table."""
        return self._router.fixed_topics

    def fit(self, topic: str) -> str:
        """See `Topics.fit`."""
        return self._topics.fit(topic)

    def fit_positions(self) -> str:
        """Say how the topic of the places fits; raises as `fit`."""
        self._topics.open({})
        return Positions(self._topics, self._config, "", self._wait).examine()

    # --- inside ------------------------------------------------------------------------------------------------------

    def _transact(self, producer: Producer, batches: Sequence[Prepared], place: Place | None, state: str) -> None:
        """Send batches, and the place and state after them, as one where there are transactions."""
        self._sending = batches
        if self._positions is not None:
            self._call(producer.begin_transaction)
            self._in_transaction = True
        for batch in batches:
            places = list(positions_of(batch.batch)) if self._settings.headers else []
            for records in batch.content:
                self._produce(producer, records, places)
        if self._positions is not None:
            self._put(producer, POSITIONS, self._positions.value(place, state), self._positions.key.encode(), PARTITION)
        self._flush(producer, batches)
        if self._positions is not None:
            self._resume(producer.commit_transaction)
            self._in_transaction = False
            self._positions.is_written = True
        self._sending = ()

    def _flush(self, producer: Producer, batches: Sequence[Prepared]) -> None:
        """Return when all is confirmed.

        Full requests leave by themselves. What is flushed leaves at once, but the library's thread spins while it waits
        for the request under way: so only the last one is flushed.
        """
        last = left_over(batches) + (self._positions is not None)
        while len(producer) > last:
            self._serve(producer.poll, GLANCE)
            self._look()
        while self._serve(producer.flush, SLICE):
            self._look()
        self._look()

    def _produce(self, producer: Producer, records: AnyRecords, places: Sequence[str]) -> None:
        """Hand records over to the library; ``places`` are those of the batch's entries, for headers."""
        names = self._router.topics
        self._topics.require({names[it] for it in records.topics})
        keys = records.keys or [None] * len(records.values)
        parts = zip(records.topics, records.partitions, keys, records.values, strict=True)
        own = records.headers if isinstance(records, PluginRecords) else None
        if places or own:
            epoch = str(self._epoch).encode()
            for number, (topic, partition, key, value) in enumerate(parts):
                headers = list(own[number]) if own else []
                if places:
                    place = places[records.entries[number]]
                    headers += [("sluice-position", place.encode()), ("sluice-epoch", epoch)]
                self._put(producer, names[topic], value, key, partition, headers=headers)
        produce, report = producer.produce, self._report
        for topic, partition, key, value in parts:
            try:
                produce(names[topic], value, key, partition, report)
            except BufferError:  # the queue is full
                self._put(producer, names[topic], value, key, partition)
            except KafkaException as error:
                raise self._refused(error.args[0], names[topic], value) from None
        self._serve(producer.poll, 0)
        self._look()

    def _put(
        self, producer: Producer, topic: str, value: bytes, key: bytes | None, partition: int, **headers: Any
    ) -> None:
        """Put a record into the queue as soon as it has room."""
        while True:
            try:
                producer.produce(topic, value, key, partition, self._report, **headers)
            except BufferError:
                self._serve(producer.flush, GLANCE)  # also requests that are not full
                self._look()
                continue
            except KafkaException as error:
                raise self._refused(error.args[0], topic, value) from None
            return

    def _report(self, error: KafkaError | None, message: Message) -> None:
        """Hear of a record that was not taken; of others nothing is heard."""
        if error is None:
            return
        # What is refused for its size takes others of the same request with it.
        if self._failed is None or (error.code() in TOO_LARGE and len(message) > len(self._failed[1])):
            self._failed = error, message

    def _note(self, error: KafkaError) -> None:
        """Hear of trouble that the library goes on with."""
        self.trouble = str(error.str())
        if error.code() in REJECTED:
            self._denied = error

    def _measure(self, report: str) -> None:
        self.statistics = read_statistics(report)

    def _wait(self) -> None:
        """Wait a moment; raises as `_look`."""
        self._abandoned.wait(SLICE)
        self._look()

    def _look(self) -> None:
        """Raise what has happened meanwhile."""
        if self._abandoned.is_set():
            raise DeliveryError("it was stopped")
        if self._failed is not None:
            error, message = self._failed
            raise self._refused(error, message.topic(), message.value())
        if self._denied is not None:
            raise meaning(self._denied)

    def _refused(self, error: KafkaError, topic: str | None, value: bytes | None) -> DeliveryError | RejectedError:
        """Return what an error means that befell a record."""
        place = find(self._sending, value or b"")
        if place is None:
            return meaning(error, topic)
        found = meaning(error, topic, describe(place, self._form))
        if isinstance(found, RejectedError):
            found.position = position(place)
        return found

    def _serve(self, call: Callable[[float], int], seconds: float) -> int:
        """Let the library work, and call back. Raises DeliveryError where that has ended the producer."""
        try:
            return call(seconds)
        except KafkaException as error:  # what is fatal is raised by whatever call hears of it, and by no callback
            raise meaning(error.args[0]) from None
        except SystemError as error:  # confluent-kafka gives NULL without an exception where a producer was fenced
            raise DeliveryError(f"the producer has ended: {error}") from error

    def _call(self, call: Callable[[], None]) -> None:
        try:
            call()
        except KafkaException as error:
            raise meaning(error.args[0]) from None

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
                raise meaning(reason) from None
            return


def left_over(batches: Sequence[Prepared]) -> int:
    """Return how many records at most are in requests that do not leave by themselves: the last ones of partitions."""
    if sum(it.bytes for it in batches) < BATCH:
        return sum(it.records for it in batches)
    content = [records for it in batches for records in it.content]
    partitions: set[tuple[int, int]] = set()
    for records in content:
        partitions.update(zip(records.topics, records.partitions, strict=True))
    sizes: Counter[tuple[int, int]] = Counter()
    count = 0
    for records in reversed(content):
        backwards = map(reversed, (records.topics, records.partitions, records.values))
        for topic, partition, value in zip(*backwards, strict=True):
            place = topic, partition
            if place in partitions:
                count += 1
                sizes[place] += len(value)
                if sizes[place] >= BATCH:
                    partitions.remove(place)
                    if not partitions:
                        return count
    return count


def resolve(source: tuple[str, int]) -> tuple[str, int]:
    """Return the IP address of a host, with the port; empty without a host. Raises DeliveryError."""
    host, port = source
    if not host:
        return source
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:
        raise DeliveryError(f"the address of the source {host} is unknown: {error}") from None
    return str(found[0][4][0]), port
