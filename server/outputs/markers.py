"""The markers among the entries of a batch, and batches without some of their entries."""

import dataclasses
from collections.abc import Sequence

from ...instance.skipped import Skipped
from ...protocol.canal.packet_pb2 import Messages
from ...protocol.canal.rows import decode_changes
from ...protocol.errors import MarkerError
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
    data, begin, skipped, pieces = b"".join(batch.slices), 0, list[Skipped](), list[bytes]()
    dropped = set[int]()
    while (marker := find_marker(data, begin)) is not None:
        if on_marker is OnMarker.STOP:
            raise marker
        skipped.append(Skipped(position_of(batch, marker.entry), str(marker)))
        pieces.append(cut(data, begin, marker.entry))
        begin = marker.entry + 1
        dropped.add(marker.entry)
    if not skipped:
        return batch, ()
    pieces.append(cut(data, begin, None))
    slices = [memoryview(it) for it in pieces if it]
    numbers = enumerate(varints(batch.positions))
    positions = b"".join(varint(it) for number, it in numbers if number // 2 not in dropped)
    return dataclasses.replace(batch, slices=slices, positions=positions), skipped
