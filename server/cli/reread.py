"""Quarantined row events, read from the source once more."""

import threading
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ...instance.quarantine import Item, path_of, read
from ...instance.sources.mysql.config import MysqlConfig
from ...instance.sources.mysql.connection import Connection
from ...instance.sources.mysql.parser import Parser
from ...instance.sources.mysql.start import StartFinder
from ...protocol.errors import SourceError
from ...protocol.position import Position
from ...store.cursor import Cursor
from ...store.ring import Kind, Ring

PATIENCE = 60.0
"""Seconds that the source may take for one event."""


@dataclass(frozen=True, slots=True)
class Reread:
    """What became of an item: the entries that it stands for, framed as in `Messages`, or why there are none."""

    item: Item
    data: bytes
    reason: str


def listed(config: MysqlConfig) -> list[Item]:
    """Return the items of a destination."""
    return read(path_of(config.file_data_dir, config.destination))


def reread(config: MysqlConfig, item: Item) -> Reread:
    """Read an item's event again, with the schema as it is now; nothing that is stored changes.

    Raises:
        PurgedError: the source no longer has the event.
        SourceChangedError: it belongs to another source or history.
        SourceError: the source cannot be read.
    """
    position = Position.parse(item.position)
    start = Cursor.at(position)
    with TemporaryDirectory(prefix="sluice-reread-") as folder:
        alone = config.model_copy(
            update={"slave_id": 0, "gtid_on": False, "quarantine": True, "file_data_dir": Path(folder)}
            | {"auto_reset_latest_pos_mode": False, "filter_table_error": False}
        )
        with Connection(alone) as connection:
            StartFinder(connection, alone, lambda: Connection(alone)).find(start)
        kinds, data = _between(alone, start, replace(position, n=position.n + 1))
        again = listed(alone)
    if Kind.QUARANTINE in kinds or not data:
        return Reread(item, b"", again[0].error if again else "the filters of the destination drop it now")
    return Reread(item, data, "")


def _between(config: MysqlConfig, start: Cursor, stop: Position) -> tuple[set[int], bytes]:
    """Return kinds and bytes of the row entries between two positions."""
    ring = Ring()
    ended = threading.Event()
    error: list[str] = []

    def on_state(state: str, text: str) -> None:
        if state != "running":
            error.extend([text] if text else [])
            ended.set()

    parser = Parser(config, ring, start=start, stop=stop, on_state=on_state)
    parser.start()
    try:
        if not ended.wait(PATIENCE):
            raise SourceError(f"the source did not send the event within {PATIENCE:g} s")
        if error:
            raise SourceError(error[0])
        return _rows(ring)
    finally:
        parser.stop()
        parser.join(PATIENCE)
        ring.close()


def _rows(ring: Ring) -> tuple[set[int], bytes]:
    kinds, parts = set(), []
    for sequence in range(ring.first, ring.next):
        kind = ring.slot(sequence).kind
        if kind in (Kind.ROW_DATA, Kind.QUARANTINE):
            kinds.add(kind)
            parts += [bytes(part) for part in ring.collect(sequence, max_entries=1).slices]
    return kinds, b"".join(parts)
