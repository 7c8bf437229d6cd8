"""A record of TiDB's secondary binlog, and what is read from several."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from ...protocol.canal.rows import Change, Row
from ...protocol.canal.tags import POSITIONS
from ...protocol.errors import DecodeError
from ...protocol.position import Position
from ...protocol.tidb.encoder import Entry
from ...protocol.tidb.entries import EntryEncoder
from ...protocol.wire import varint
from ..batch import Batch

if TYPE_CHECKING:
    from ...protocol.tidb.secondary_pb2 import Binlog

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Message:
    """A transaction or a DDL."""

    topic: str
    offset: int
    """Of its record in the topic."""
    commit_ts: int
    """TiDB's number of it; they ascend. Its upper 46 bits are ms since 1970."""
    value: bytes = field(repr=False)
    """The record."""
    entries: Sequence[Entry] = field(repr=False)
    """The same as entries of Canal."""

    @property
    def time(self) -> datetime:
        """When it was committed, by the clock of the TiDB cluster."""
        return _EPOCH + timedelta(milliseconds=self.commit_ts >> 18)

    @property
    def is_ddl(self) -> bool:
        """Whether it is a DDL: the only kind of record that is not a transaction, with its two ends."""
        return len(self.entries) == 1

    @property
    def binlog(self) -> "Binlog":
        """The record as TiDB's protobuf object; needs protobuf (``sluice-cdc[protobuf]``)."""
        try:
            from ...protocol.tidb.secondary_pb2 import Binlog  # noqa: PLC0415  most consumers never need it
        except ModuleNotFoundError as error:
            if error.name is None or not error.name.startswith("google"):
                raise
            raise ImportError(
                "a record as protobuf object needs protobuf: pip install 'sluice-cdc[protobuf]'"
            ) from error

        return Binlog.FromString(self.value)

    def batch(self) -> Batch:
        """Return it as a `Batch`, which gives its rows in all forms."""
        return batch_of([self])

    def changes(self) -> list[Change]:
        """Return begin, changes and end of the transaction, or the DDL; see `Batch.changes`."""
        return self.batch().changes()

    def rows(self) -> list[Row]:
        """Return its rows, none for a DDL; see `Batch.rows`."""
        return self.batch().rows()


def decode(encoder: EntryEncoder, topic: str, offset: int, value: bytes) -> Message:
    """Decode a record. Raises DecodeError with its offset."""
    try:
        commit_ts, entries = encoder.encode(value, offset)
    except DecodeError as error:
        raise DecodeError(f"topic {topic}, offset {offset}: {error}") from None
    return Message(topic, offset, commit_ts, value, entries)


def batch_of(messages: Sequence[Message]) -> Batch:
    """Return messages as one `Batch`; its id is the last offset, and its positions have the commit_ts."""
    first, last = messages[0], messages[-1]
    places = b"".join(varint(it.commit_ts) + varint(n) for it in messages for n in range(len(it.entries)))
    entries = (entry.data for it in messages for entry in it.entries)
    return Batch(
        last.offset,
        str(place(first.topic, first.commit_ts)),
        str(place(last.topic, last.commit_ts + 1)),
        b"".join((varint(POSITIONS), varint(len(places)), places, *entries)),
    )


def place(topic: str, commit_ts: int) -> Position:
    """Return the position before the transaction with a commit_ts, or the next one after it."""
    return Position("tidb", file_of(topic), 0, commit_ts, 0)


def file_of(topic: str) -> str:
    """Return what entries name as their file: topic and partition."""
    return f"{topic}.0"
