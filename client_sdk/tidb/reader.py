"""The reader of TiDB's secondary binlog, for programs without asyncio."""

import logging
import math
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, Self

from ...login.topic import SLICE, Topic
from ...protocol.errors import BadParameterError, DecodeError, PurgedError, SluiceError
from ...protocol.tidb.entries import EntryEncoder
from ..batch import Batch
from .message import Message, batch_of, decode, file_of

logger = logging.getLogger(__name__)

OLDEST: Final = -2
"""The first record that the topic has, as an offset."""
NEWEST: Final = -1
"""The place after its last record, as an offset."""
MANY: Final = 1000
"""Records that are taken from the brokers at once."""
SIZE: Final = 1 << 20
"""Bytes of records after which a batch ends: the objects of a larger one do not stay in a processor's cache."""


def topic_of(topic: str, cluster_id: str | int) -> str:
    """Return the name of the topic: Drainer's for a cluster, unless it is given. Raises BadParameterError."""
    if not topic and not cluster_id:
        raise BadParameterError("topic or cluster_id has to be given: Drainer writes to <cluster_id>_obinlog", "topic")
    return topic or f"{cluster_id}_obinlog"


class TiDBReader:
    """Reads TiDB's secondary binlog from Kafka: what Drainer writes, and Sluice's outputs of the form ``tidb``.

    Iterating over it gives message after message, and waits for further ones for ever. What has no greater commit_ts
    than the start, or than the message before, is a repetition and left out. One thread at a time uses it.
    """

    def __init__(
        self,
        brokers: str,
        *,
        topic: str = "",
        cluster_id: str | int = "",
        commit_ts: int = 0,
        offset: int = NEWEST,
        after: tuple[int, int] | None = None,
        strict: bool = False,
        settings: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> None:
        """Connect, and find where to begin.

        Args:
            brokers: host:port, separated by commas.
            topic: its name; that of Drainer for the ``cluster_id`` when not given.
            cluster_id: of the TiDB cluster.
            commit_ts: begin with the first message after this one; wins over ``offset``.
            offset: begin with the message at this offset, or the first one after it: a number, `OLDEST` or `NEWEST`.
            after: go on after a message that was processed: its offset and its commit_ts; wins over the others. Unlike
                a commit_ts alone, it tells that nothing was missed although the topic no longer has the message.
            strict: whether a ``commit_ts`` before the oldest message is an error: the changes in between may be lost.
                Else it is a warning, and reading begins with the oldest.
            settings: of librdkafka, such as ``security.protocol`` and ``sasl.username``.
            timeout: seconds that brokers may take to answer a question.

        Raises:
            BadParameterError: an argument is missing or out of its range.
            PurgedError: the topic does not have the place.
            DecodeError: what is in the topic is not TiDB's secondary binlog.
            SourceError: it cannot be read.
        """
        if commit_ts < 0:
            raise BadParameterError(f"a commit_ts is a number from 1 on, or 0 for none, not {commit_ts}", "commit_ts")
        if offset < OLDEST:
            raise BadParameterError(f"an offset is a number from 0 on, OLDEST or NEWEST, not {offset}", "offset")
        name = topic_of(topic, cluster_id)
        if after is not None:
            _, commit_ts = after
        self._last = commit_ts
        self._encoder = EntryEncoder(file_of(name))
        self._pending: deque[tuple[int, bytes]] = deque()
        self._trouble = ""
        self._failure: SluiceError | None = None
        self._topic = Topic(brokers, name, settings, timeout=timeout)
        try:
            start = None if after is None else self._topic.after(*after)
            self._topic.seek(self._start(commit_ts, offset, strict=strict) if start is None else start)
        except BaseException:
            self._topic.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Message]:
        return self

    def __next__(self) -> Message:
        while True:
            if (message := self.get(SLICE)) is not None:
                return message

    @property
    def topic(self) -> str:
        """The name of the topic."""
        return self._topic.name

    @property
    def is_at_end(self) -> bool:
        """Whether all that the topic has was given."""
        return not self._pending and self._topic.is_at_end

    def close(self) -> None:
        """Leave the brokers."""
        self._topic.close()

    def get(self, timeout: float) -> Message | None:
        """Return the next message; None when none comes within ``timeout`` seconds.

        Raises:
            DecodeError: the record at an offset, which it names, is not one of TiDB's secondary binlog. It stays the
                next one: to go on after it, make a reader with the offset after it.
            PurgedError: what was to be read next has been removed from the topic.
            SourceError: the topic cannot be read, and that does not pass by itself. Brokers that are out of reach are
                waited for.
        """
        deadline = time.monotonic() + timeout
        while True:
            while self._pending:
                if self._failure is not None:
                    raise self._failure
                offset, value = self._pending[0]
                try:
                    message = decode(self._encoder, self.topic, offset, value)
                except DecodeError as error:
                    self._failure = error
                    raise
                self._pending.popleft()
                if message.commit_ts > self._last:
                    self._last = message.commit_ts
                    return message
            self._pending.extend(self._topic.read(MANY, max(deadline - time.monotonic(), 0)))
            self._warn()
            if not self._pending and time.monotonic() >= deadline:
                return None

    def take(self, timeout: float, most_rows: float = math.inf, most_bytes: int = SIZE) -> list[Message]:
        """Return the next messages, as many as are there at once; none when none comes within ``timeout`` seconds.

        They end with the one in which ``most_rows`` or ``most_bytes`` of records are reached. Raises as `get`, when
        what comes before the error was given.
        """
        messages: list[Message] = []
        size = rows = 0
        while size < most_bytes and rows < most_rows and (self._pending or not messages):
            try:
                message = self.get(0 if messages else timeout)
            except DecodeError:  # it comes again
                if messages:
                    break
                raise
            if message is None:
                break
            messages.append(message)
            size += len(message.value)
            rows += sum(it.rows for it in message.entries)
        return messages

    def batches(self) -> Iterator[Batch]:
        """Give messages joined to batches, as many as are there at a time; wait for further ones for ever.

        Of a batch all rows are decoded at once, also as Arrow. Raises as `take`.
        """
        while True:
            if messages := self.take(SLICE):
                yield batch_of(messages)

    def _start(self, commit_ts: int, offset: int, *, strict: bool) -> int:
        """Return the offset to read from."""
        if commit_ts:
            found = self._topic.find(commit_ts)
            if found.is_before_oldest:
                text = (
                    f"{self._topic} begins with the commit_ts {found.oldest} at offset {found.low}, after {commit_ts}:"
                    " the changes in between may be lost"
                )
                if strict:
                    raise PurgedError(text)
                logger.warning(text)
            return found.start
        low, high = self._topic.bounds()
        if offset in (OLDEST, NEWEST):
            return low if offset == OLDEST else high
        if not low <= offset <= high:
            raise PurgedError(f"{self._topic} has the offsets from {low} to {high}, and not {offset}")
        return offset

    def _warn(self) -> None:
        """Say what is in the way, once."""
        if self._topic.trouble != self._trouble:
            self._trouble = self._topic.trouble
            if self._trouble:
                logger.warning("%s cannot be read at present: %s", self._topic, self._trouble)
