"""What a subscriber is given: batches, and ranges and their parts."""

import builtins
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ..protocol.canal.packet_pb2 import Messages
from ..protocol.position import Position

UNMARKED = 0
"""Id of a batch that is read by its positions: it is not to be confirmed."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of entries: slices of framed entries, and the mark to confirm it by.

    The slices pin memory of the ring for as long as they are referenced.
    """

    batch_id: int
    slices: list[memoryview]
    from_: str
    to: str
    entries: int
    rows: int
    bytes: int
    timestamp: int
    """Time of the last entry's event, ms since 1970."""
    positions: builtins.bytes = b""
    """The place of each entry, as in ``Messages.positions`` of packet.proto."""
    is_late: bool = False
    """Its rows are `LateRows`: they belong to an earlier place, and ``from_`` equals ``to``."""
    gtids: Mapping[str, str] = field(default_factory=dict)
    """Of its transactions, see `sluice.store.reading.Reading.named`; only there for an output that asks for them."""
    snapshot: int = 0
    """Id of the snapshot that its rows are of, 0 for changes; ``from_`` equals ``to``."""


@dataclass(frozen=True, slots=True)
class LateRows:
    """The rows of an event that could not be decoded in its place, for the clients that have passed it since."""

    position: Position
    """Where they belong."""
    schema: str
    table: str
    entries: builtins.bytes
    """Their entries, framed as in ``Messages.messages``; more than one only of an UPDATE that was split."""
    rows: int
    timestamp: int
    """Time of their event, ms since 1970."""
    positions: builtins.bytes
    """The place of each entry, as in ``Messages.positions`` of packet.proto."""

    def batch(self, batch_id: int, at: str) -> Batch:
        """Return the batch for a client that is at a position."""
        return Batch(
            batch_id=batch_id,
            slices=[memoryview(self.entries)],
            from_=at,
            to=at,
            entries=len(Messages.FromString(self.entries).messages),
            rows=self.rows,
            bytes=len(self.entries),
            timestamp=self.timestamp,
            positions=self.positions,
            is_late=True,
        )


@dataclass(frozen=True, slots=True)
class Range:
    """A part of the stream that a subscriber was told of, to be read by its positions and confirmed."""

    batch_id: int
    """Its mark; -1 if nothing is to be confirmed."""
    from_: str
    to: str
    entries: int
    rows: int
    bytes: int
    partial: bool
    """It ends inside a transaction; the durable cursor stays before that one."""
    reached: bool
    """It ends at the latest permitted place, or nothing wanted is left up to there."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a range: from the place before its first entry up to the next part."""

    from_: str
    to: str
    entries: int
    rows: int
    bytes: int


def join_parts(pieces: list[Part], from_: str, to: str, parts: int) -> list[Part]:
    """Join consecutive pieces of a range into at most ``parts`` parts of about equal bytes."""
    total = sum(piece.bytes for piece in pieces)
    joined: list[Part] = []
    begin = from_
    entries = rows = size = before = 0
    for piece in pieces:
        entries, rows, size = entries + piece.entries, rows + piece.rows, size + piece.bytes
        if before + size >= total * (len(joined) + 1) // parts and len(joined) + 1 < parts:
            joined.append(Part(begin, piece.to, entries, rows, size))
            begin = piece.to
            before += size
            entries = rows = size = 0
    if entries or not joined:
        joined.append(Part(begin, to, entries, rows, size))
    else:
        joined[-1] = replace(joined[-1], to=to)
    return joined


@dataclass(frozen=True, slots=True)
class RangeLimits:
    """How far a range may go; 0 and None do not limit."""

    until: Position | None = None
    rows: int = 0
    bytes: int = 0
