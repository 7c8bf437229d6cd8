"""A batch of changes."""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Self

from sluice.protocol.rows import Change, Row, decode_changes, decode_rows

if TYPE_CHECKING:
    from sluice.protocol.entry_pb2 import Entry

InvalidDates = Literal["text", "null"]
"""What a date that Python cannot hold (``0000-00-00``) becomes: its text, or None."""

logger = logging.getLogger(__name__)

_MARKER = "sluice."  # how the property of a header begins that makes the entry a marker

EMPTY = -1  # the id of a batch without entries


@dataclass(slots=True)
class Batch:
    """What one get returned; false when it holds nothing. Iterating over it gives its rows.

    Decoding is done when asked for, and anew each time. `DecodeError` says that a value does not fit its column's type.
    """

    batch_id: int
    """Its mark, -1 without entries; ascending, and never used again."""
    from_: str
    """Position of the first entry."""
    to: str
    """Position after the last entry."""
    data: bytes = field(repr=False)
    """Canal's ``Messages``, as received."""
    invalid_dates: InvalidDates = "text"
    acked: bool = field(default=False, compare=False)
    """Whether this client has acked it."""

    def __bool__(self) -> bool:
        return self.batch_id != EMPTY

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows())

    def rows(self) -> list[Row]:
        """All rows, in order. Markers are logged as warnings: rows are missing where they stand."""
        for marker in self.markers():
            logger.warning("rows are missing at %s:%d: %s", marker.logfile_name, marker.logfile_offset, marker.sql)
        return decode_rows(self.data, invalid_dates=self.invalid_dates)

    def changes(self) -> list[Change]:
        """All entries, in order: the ends of transactions and DDL too."""
        return decode_changes(self.data, invalid_dates=self.invalid_dates)

    def markers(self) -> list[Change]:
        """Return what stands in the place of rows that could not be decoded, or of a gap; ``sql`` says why."""
        if _MARKER.encode() not in self.data:
            return []
        return [it for it in self.changes() if any(key.startswith(_MARKER) for key in it.header_props)]

    def entries(self) -> "list[Entry]":
        """Return all entries as Canal's protobuf objects."""
        from sluice.protocol.entry_pb2 import Entry  # noqa: PLC0415  most consumers never need it
        from sluice.protocol.packet_pb2 import Messages  # noqa: PLC0415

        return [Entry.FromString(entry) for entry in Messages.FromString(self.data).messages]


@dataclass(frozen=True, slots=True)
class Range:
    """A range that was marked: read it by `rows`, in parts if it is large, then ack ``to``."""

    batch_id: int
    """Its mark; -1 when there is nothing to ack."""
    from_: str
    to: str
    """Where it ends: the next one begins there."""
    entries: int
    rows: int
    bytes: int
    """Of the encoded entries."""
    partial: bool
    """It ends inside a transaction: the durable cursor stays before that one."""
    reached: bool
    """Nothing wanted lies between its end and the ``until`` of the call; without that, ``latest``."""
    latest: str
    """The source's end when the call came; empty when the source did not say."""
    acked: str
    """Position up to which everything is acked."""

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Make it from the answer of the server."""
        return cls(
            answer["batchId"],
            answer["from"],
            *(answer[name] for name in ("to", "entries", "rows", "bytes", "partial", "reached", "latest", "acked")),
        )


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a range."""

    from_: str
    to: str
    entries: int
    rows: int
    bytes: int

    @classmethod
    def of(cls, answer: Mapping[str, Any]) -> Self:
        """Make it from the answer of the server."""
        return cls(*(answer[name] for name in ("from", "to", "entries", "rows", "bytes")))
