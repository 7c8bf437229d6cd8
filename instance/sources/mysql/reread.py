"""Row events in quarantine, read from the source once more."""

import threading
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from ....protocol.errors import SourceError
from ....protocol.position import Position
from ....store.cursor import Cursor
from ....store.ring import Kind, Ring
from ...quarantine import path_of, read
from ...source import Reread
from .config import MysqlConfig
from .connection import Connection
from .parser import Parser
from .start import StartFinder

PATIENCE = 60.0
"""Seconds that the source may take for one event."""


def reread(config: MysqlConfig, connection: Connection, position: Position) -> Reread:
    """Decode the row event at a position again. See `sluice.instance.source.Examination.reread`."""
    start = Cursor.at(position)
    with TemporaryDirectory(prefix="sluice-reread-") as folder:
        alone = config.model_copy(
            update={"slave_id": 0, "gtid_on": False, "quarantine": True, "file_data_dir": Path(folder)}
            | {"auto_reset_latest_pos_mode": False, "filter_table_error": False}
        )
        StartFinder(connection, alone, lambda: Connection(alone)).find(start)
        kinds, data = _between(alone, start, replace(position, n=position.n + 1))
        again = read(path_of(alone.file_data_dir, alone.destination))
    if Kind.QUARANTINE in kinds or not data:
        return Reread(b"", again[0].error if again else "the filters of the destination drop it now")
    return Reread(data, "")


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
