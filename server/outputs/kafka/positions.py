"""The place of an output, kept by the brokers: each transaction writes it beside its records.

So consumers that read committed records see each change once: what the topic says is taken, whatever became of the
server before it could store its cursor. The topic is compacted, so that it has the last place of each output.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from ..kept import Kept, counts
from ..target import Place, RejectedError
from .errors import meaning
from .topics import Topics

TOPIC: Final = "sluice-positions"
PARTITION: Final = 0
SETTINGS: Final = {"cleanup.policy": "compact", "segment.bytes": "16777216", "min.cleanable.dirty.ratio": "0.1"}
"""Of the topic when it is made: small segments are compacted soon, so that it is read in a moment."""
ADVICE: Final = "say where it goes on with `sluice seek`, which wins over the topic"
MANY, MOMENT = 1000, 0.05
"""Records that are read at once, and seconds until they are fewer."""


class Positions:
    """The record of one output. One thread calls it.

    Args:
        topics: asks the brokers for topics.
        config: of a client of these brokers.
        key: of the output's record: cluster/destination/output.
        pause: waits a moment, and raises what has happened meanwhile.
    """

    def __init__(self, topics: Topics, config: Mapping[str, Any], key: str, pause: Callable[[], None]) -> None:
        self.key = key
        self._topics = topics
        self._config = config
        self._pause = pause
        self._epoch = 0
        self.moved = ""
        """How the cursor of the client was last moved by hand; empty if it never was."""
        self.state = ""
        """What has to be known to prepare what follows the place that `open` returned."""
        self.is_written = False
        """Whether the topic has a record of the output in this epoch, so that servers of earlier ones stand down."""

    def open(self, epoch: int, *, moved: str | None, is_written: bool) -> Place | None:
        """Return the place where the output goes on; None when its cursor counts.

        Earlier producers have to be fenced before. Unless the record `is_written` in this epoch already, that has to be
        done before anything else. ``moved`` says how the cursor of the client was last moved by hand, empty if it never
        was, None if the client has lost its memory; ``is_written``: there has to be a record. Raises DeliveryError,
        RejectedError.
        """
        topic = self._topics.find(TOPIC)
        if topic is None and is_written:
            raise RejectedError(f"topic {TOPIC} is gone, and with it the place of this output: {ADVICE}")
        self._topics.learn(topic or self._topics.make(TOPIC, PARTITION + 1, SETTINGS))
        self._fit()
        found = self.read()
        if found is None and is_written:
            raise RejectedError(f"topic {TOPIC} has no record {self.key}, which this output wrote: {ADVICE}")
        self._epoch, self.is_written, self.state = epoch, False, ""
        if found is None or not counts(found, moved, is_written=is_written):
            self.moved = moved or ""
            return None
        self.moved, self.is_written = found.moved, found.epoch == epoch
        if found.epoch > epoch:
            raise RejectedError(
                f"topic {TOPIC} has the place of this output from epoch {found.epoch}, and this server is in epoch"
                f" {epoch}: another server has the destination. Or its cursors were lost: then {ADVICE}"
            )
        self.state = found.state
        return found.place

    def value(self, place: Place | None, state: str) -> bytes:
        """Return the record that says how far the output has come, and the `state` there."""
        return str(Kept(place, self._epoch, self.moved, state)).encode()

    def examine(self) -> str:
        """Say how the topic fits. Raises RejectedError when it does not, DeliveryError."""
        if self._topics.find(TOPIC) is None:
            return f"topic {TOPIC} does not exist yet: it is made at the start"
        return self._fit()

    def _fit(self) -> str:
        policy = self._topics.setting(TOPIC, "cleanup.policy")
        if policy is not None and policy != "compact":
            raise RejectedError(
                f"topic {TOPIC} loses the positions of outputs, because its cleanup.policy is {policy}:"
                f" kafka-configs.sh --alter --entity-type topics --entity-name {TOPIC}"
                " --add-config cleanup.policy=compact"
            )
        return f"topic {TOPIC} is compacted" if policy else f"topic {TOPIC} exists; its settings may not be read"

    def read(self) -> Kept | None:
        """Read the topic, committed, to the end that it has now. Raises DeliveryError, RejectedError."""
        # Records after an open transaction of another output are not to be read before that ends.
        end = self._topics.end(TOPIC, PARTITION)
        troubles: list[KafkaError] = []
        consumer = Consumer(
            {
                **self._config,
                "group.id": self.key,  # has to be set, and is not used
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "log_level": 2,
                "error_cb": troubles.append,
            }
        )
        try:
            consumer.assign([TopicPartition(TOPIC, PARTITION, OFFSET_BEGINNING)])
            return self._read(consumer, end, troubles)
        except KafkaException as error:
            raise meaning(error.args[0], TOPIC) from None
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, end: int, troubles: list[KafkaError]) -> Kept | None:
        last: tuple[bytes, int] | None = None
        here = 0
        while here < end:
            messages = consumer.consume(MANY, MOMENT)
            for message in messages:
                error, offset = message.error(), message.offset() or 0
                if error is None:
                    here = offset + 1
                    if message.key() == self.key.encode():
                        last = message.value() or b"", offset
                elif error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001  so it is called
                    here = offset
                else:
                    raise meaning(error, TOPIC)
            if not messages and troubles:
                raise meaning(troubles.pop(), TOPIC)
            if not messages:
                self._pause()
        return None if last is None else self._record(*last)

    def _record(self, value: bytes, offset: int) -> Kept:
        try:
            return Kept.parse(value)
        except ValueError as error:
            raise RejectedError(
                f"topic {TOPIC}: the record {self.key} at offset {offset} is {error}; {ADVICE}"
            ) from None
