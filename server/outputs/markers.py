"""What of a batch an output does not take: markers and others, and batches without these entries."""

import dataclasses
from collections.abc import Callable, Sequence

from ...instance.skipped import Skipped
from ...protocol.canal.packet_pb2 import Messages
from ...protocol.canal.rows import decode_changes
from ...protocol.errors import MarkerError, RefusedError
from ...protocol.props import MARKERS
from ...protocol.wire import varint
from ...store.batch import Batch
from .places import position_of, varints
from .settings import OnMarker


def find_marker(data: bytes, begin: int = 0) -> MarkerError | None:
    """Return what says that changes are missing, if an entry from ``begin`` on is a marker. Raises DecodeError."""
    if not any(key.encode() in data for key in MARKERS):
        return None
    for number, change in enumerate(decode_changes(data)):
        if number >= begin and not change.header_props.keys().isdisjoint(MARKERS):
            return MarkerError(number, change.schema, change.table, change.sql)
    return None


def cut(data: bytes, begin: int, end: int | None) -> bytes:
    """Return the entries from one to before another, framed as they were."""
    return Messages(messages=Messages.FromString(data).messages[begin:end]).SerializeToString()


def without_markers(batch: Batch, on_marker: OnMarker) -> tuple[Batch, Sequence[Skipped]]:
    """Return a batch without the markers that are to be left out. Raises MarkerError for one that is not."""
    if on_marker is OnMarker.SEND:
        return batch, ()
    return without(batch, find_marker, lambda _: on_marker is OnMarker.SKIP)


def without(
    batch: Batch, find: Callable[[bytes, int], RefusedError | None], may_skip: Callable[[RefusedError], bool]
) -> tuple[Batch, Sequence[Skipped]]:
    """Return a batch without what is to be left out. Raises RefusedError for what is refused and is not.

    ``find`` returns what is refused of a batch from an entry on, None if nothing is, as `find_marker`.
    """
    data, begin, skipped, pieces = b"".join(batch.slices), 0, list[Skipped](), list[bytes]()
    dropped = set[int]()
    while (refused := find(data, begin)) is not None:
        if not may_skip(refused):
            raise refused
        skipped.append(Skipped(position_of(batch, refused.entry), str(refused)))
        pieces.append(cut(data, begin, refused.entry))
        begin = refused.entry + 1
        dropped.add(refused.entry)
    if not skipped:
        return batch, ()
    pieces.append(cut(data, begin, None))
    slices = [memoryview(it) for it in pieces if it]
    numbers = enumerate(varints(batch.positions))
    positions = b"".join(varint(it) for number, it in numbers if number // 2 not in dropped)
    return dataclasses.replace(batch, slices=slices, positions=positions), skipped
