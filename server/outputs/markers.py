"""The markers among the entries of a batch, and batches without some of their entries."""

from ...protocol.canal.packet_pb2 import Messages
from ...protocol.canal.rows import decode_changes
from ...protocol.errors import MarkerError
from ...protocol.props import MARKERS


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
