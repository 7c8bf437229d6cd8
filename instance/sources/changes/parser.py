"""The thread of a destination: it reads files of changes from a folder, and fills the ring.

Each entry has the place that it had in the stream of the original source. GTIDs come with notes, one after each write
of the output that wrote the files: between two notes a cursor has those of the earlier one, so that another source
repeats a few transactions and leaves out none.
"""

import time
from collections.abc import Iterator
from typing import Any, Final

from ....protocol.canal.rows import envelope
from ....protocol.errors import (
    BadPositionError,
    DecodeError,
    NotConfiguredError,
    PurgedError,
    SourceError,
    UnknownTableError,
)
from ....protocol.frames import read_note
from ....protocol.gtid import GtidSet, MariadbGtidSet, MysqlGtidSet, parse_gtids
from ....protocol.position import Position
from ....store.archive import Index, read_file
from ....store.cursor import Cursor
from ....store.remote import RemotePath
from ....store.ring import Ring
from ...columns import SourceColumn
from ...source import TableReader
from .config import ChangesConfig
from .frames import FrameParser
from .places import Start, end_of, find_files, find_first

PAUSE: Final = 0.2
REMOTE_PAUSE: Final = 5.0
"""Seconds between two looks at whether there are more files: on a disk, and in an object store."""


class ChangesParser(FrameParser):
    """Reads files of changes: see `sluice.instance.source.Parser`."""

    _config: ChangesConfig

    def __init__(self, config: ChangesConfig, ring: Ring, **given: Any) -> None:
        """See `sluice.instance.source.ParserFactory`."""
        super().__init__(config, ring, **given)
        self._config = config
        self._executed: GtidSet | None = None

    # --- what any thread may ask

    def end(self) -> Position:
        """Return the place after the last whole file. Raises SourceError."""
        return end_of(find_files(self._config))

    def find_place(self, wanted: int | str | None) -> Cursor:
        """See `sluice.instance.source.Parser.find_place`: places of a time are those where files begin."""
        if isinstance(wanted, str):
            raise BadPositionError(f"not a position, nor a time: {wanted[:200]!r}")
        files = find_files(self._config)
        found = next((it for it in files if wanted is None or it.last_time >= wanted), None)
        if found is None:
            return Cursor.at(end_of(files), files[-1].gtids)
        return Cursor.at(Position.parse(found.from_position), found.gtids_before)

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        """Raise UnknownTableError: the entries alone say what columns they have."""
        del at
        raise UnknownTableError(f"{schema}.{table}: {self._config.source_title} are not asked for columns")

    def tables(self) -> list[tuple[str, str]]:
        """Return the tables of which a change was read."""
        return sorted(self._stager.tables)

    def table_reader(self) -> TableReader:
        """See `sluice.instance.source.Parser.table_reader`: files have changes only."""
        raise NotConfiguredError("files of changes are the source: they have no tables that a snapshot could read")

    def announce(self, change: str) -> None:
        """See `sluice.instance.source.Parser.announce`: only a log on disk has something to say, and there is none."""

    # --- the thread

    def _read(self) -> None:
        """Read until told to stop, or up to the stop position. Raises SluiceError."""
        start = self._find_start()
        self._connections += 1
        if self._next is None:
            self._executed = parse_gtids(start.gtids) if start.gtids else None
            self._on_begin(start.position, None if self._executed is None else self._executed.copy())
        self._next = start.position
        previous: Index | None = None
        for index in self._files(start.number):
            self._check_follower(previous, index)
            previous = index
            if not self._read_file(index):
                return

    def _find_start(self) -> Start:
        places = self._places if self._next is None else (Cursor.at(self._next),)
        start, refused = find_first(self._config, find_files(self._config), places)
        if self._next is None:
            self.refused = {place: error for place, error in refused.items() if place is not None}
        if start is None:
            raise next(iter(refused.values()))
        return start

    def _files(self, number: int) -> Iterator[Index]:
        """Give the files from one on; at the end wait for more, if that is configured."""
        files = find_files(self._config)[number:]
        while not self._stopping.is_set():
            yield from files
            last = int(files[-1].file.partition("-")[0])
            while not self._stopping.is_set():
                self._read_until = time.monotonic()
                if later := find_files(self._config, last):
                    files = later
                    break
                if self._config.at_end == "end" or self._stop_at is not None:
                    return
                self._set_state("running", "")
                self._stopping.wait(REMOTE_PAUSE if isinstance(self._config.folder, RemotePath) else PAUSE)

    def _check_follower(self, previous: Index | None, index: Index) -> None:
        """Raise PurgedError when files are missing before one, and it is not configured to go on."""
        if previous is None or previous.to_position in ("", index.from_position):
            return
        text = (
            f"{self._config.folder / index.file} begins at {index.from_position}, and the file before it ends at"
            f" {previous.to_position}: files are missing between them, or the output was moved there"
        )
        if not self._config.auto_reset_latest_pos_mode:
            raise PurgedError(f"{text}. Put them back, or set canal.auto.reset.latest.pos.mode = true to go on")
        self._next = Position.parse(index.from_position)
        self._executed = parse_gtids(index.gtids_before) if index.gtids_before else None
        self._begin(b"", self._next, self._next)
        self._stager.mark(text, self._next.file, self._next.begin, self._next.n)

    def _read_file(self, index: Index) -> bool:
        """Read a file; False when it is to stop."""
        frames = read_file(self._config.folder, index)
        while True:
            try:
                frame = next(frames, None)
            except (OSError, DecodeError) as error:
                raise SourceError(f"{self._config.place} cannot be read: {error}") from error
            if frame is None:
                return True
            self._set_state("running", "")
            self.failure = None
            if self._stopping.is_set():
                return False
            self._bytes += len(frame)
            try:
                is_read = self._read_frame(frame)
            except DecodeError as error:
                raise SourceError(f"{self._config.folder / index.file}: {error}") from error
            if not is_read or self._stager.is_done:
                return False
            self._frames += 1

    def _read_frame(self, frame: bytes) -> bool:
        """Put what a frame has; False when it is to stop."""
        if (found := read_note(frame)) is not None:
            return self._note(*found)
        begin, end = map(Position.parse, envelope(frame)[1:])
        if self._is_put(end):
            return True
        return not self._is_stop(begin) and self._put_frame(frame, begin, end)

    def _note(self, position: str, gtids: str) -> bool:
        """Put which transactions were executed at a place."""
        at, executed = Position.parse(position), parse_gtids(gtids)
        assert self._next is not None
        if not (at.is_comparable(self._next) and at >= self._next):
            return True
        runs = [
            (self._ring.gtid_sources.intern(("", source)), first, last)
            for source, first, last in _difference(executed, self._executed)
        ]
        self._executed = executed
        self._begin(b"", at, at)
        self._stager.execute(at.file, at.begin, at.n, runs)
        return self._put()


def _difference(executed: GtidSet, before: GtidSet | None) -> Iterator[tuple[object, int, int]]:
    """Give the runs of transactions that one set has and an earlier one has not."""
    if isinstance(executed, MysqlGtidSet):
        yield from executed.subtract(before) if isinstance(before, MysqlGtidSet) else executed
    else:
        known = dict(before) if isinstance(before, MariadbGtidSet) else {}
        for source, number in executed:
            if number > known.get(source, 0):
                yield source, number, number
