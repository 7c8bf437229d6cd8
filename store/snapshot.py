"""Snapshots: tables as they are, given to one subscriber between the changes, without any I/O.

A table is read in chunks, in the order of its key, while changes flow on. Each chunk has a window. It opens before the
chunk is read, and from then on the keys of all rows are noted in which the subscriber is given changes. What was before
in the binlog is visible to what reads the chunk, and the end of the binlog is looked up after it: ``high``. The rows
are given when the subscriber has come to ``high``. Those whose keys were noted are left out, for their changes were
given, which are newer or will not be older. Every other row has not changed between, and is at ``high``, and since, as
it was read. So no row is ever older than one that was given before.

A table without a key is given as a whole: nothing says which of its rows a change has brought. Its window knows one
place, ``low`` and ``high`` in one, at which the table was as it was read, exactly. The subscriber waits there: it is
given no change from the opening of the window until the place is known, and then those before it, and no others before
the rows. These take the place of all rows of the table that it has, since those are as of the same place.

A window ends without its rows when it cannot be said which rows changed: after a statement, such as a DDL, when the
connection to the source broke, or when the subscriber moved to another place. What was given and not confirmed is read
again after a rollback. How far the subscriber has confirmed is stored with its cursor.
"""

import json
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final

from ..protocol.errors import GoneError, SourceChangedError
from ..protocol.position import Position

if TYPE_CHECKING:
    from ..protocol.canal.resultset import RowBlock
    from ..protocol.canal.touched import TouchedKeys
    from .track import Track

QUEUED: Final = 16 << 20
"""Bytes of rows that may wait for a subscriber; with more, nothing is read for it."""

LIVE: Final = {"live": True}
"""Of a field that is not stored."""

Key = tuple[str, ...]
"""A row of a table's key, as the source writes it."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which rows of its tables a subscriber wants."""

    tables: str = ""
    """Which tables of those that it gets changes of, as a filter; empty for all."""
    where: Mapping[str, str] = field(default_factory=dict)
    """Conditions on the rows, by ``schema.table``; rows of other tables come all."""
    rate: int = 0
    """Rows a second that are read at most; 0 for any number."""
    member: str = ""
    """Of a group: the member whose tables are wanted; empty for those of all."""


@dataclass(slots=True)
class TableProgress:
    """A table of a snapshot, and how much of it the subscriber has confirmed."""

    schema: str
    name: str
    where: str = ""
    """Condition on the rows; empty for all."""
    expected: int = 0
    """Rows of the table, about."""
    rows: int = 0
    """That were read and are confirmed; those that came by changes are among them."""
    bytes: int = 0
    """Of them, encoded."""
    after: Key | None = None
    """The last row that is confirmed; None before the first."""
    end: Key | None = None
    """The last row of the table when it was begun: what is after it comes by changes. None before the first chunk."""
    is_done: bool = False
    member: str = ""
    """Of a group: the one whose table it is."""


@dataclass(frozen=True, slots=True)
class ChunkStatus:
    """Rows of a table that are read, or were last read."""

    table: str
    """``schema.table``"""
    after: Key | None
    """The row of the key before them; None at the beginning of the table."""
    to: Key | None = None
    """The last of them; None while they are read, and of a table without rows."""
    rows: int = 0
    bytes: int = 0
    """Encoded."""


@dataclass(slots=True)
class Snapshot:
    """Tables that a subscriber has asked for, one after the other."""

    snapshot_id: int
    tables: list[TableProgress]
    rate: int = 0
    """Rows a second at most; 0 for any number."""
    is_paused: bool = False
    error: str = field(default="", metadata=LIVE)
    """Why the last attempt to read failed; it is tried again, unless it is paused."""
    chunk: ChunkStatus | None = field(default=None, metadata=LIVE)
    """What is read, or waits for the subscriber; None before the first in this life, and while it is paused."""
    begun: tuple[float, int] | None = field(default=None, metadata=LIVE)
    """When it was first read in this life, in seconds of a clock that is never set, and the rows confirmed by then."""

    @property
    def rows(self) -> int:
        """That are confirmed."""
        return sum(table.rows for table in self.tables)

    def pace(self, now: float) -> float:
        """Return how many rows a second were confirmed in this life."""
        if self.begun is None:
            return 0.0
        since, rows = self.begun
        return (self.rows - rows) / max(now - since, 0.001)

    @property
    def is_done(self) -> bool:
        """Whether everything is confirmed."""
        return all(table.is_done for table in self.tables)


@dataclass(frozen=True, slots=True)
class Piece:
    """Some rows of a chunk, which are one batch."""

    block: "RowBlock"
    last: Key | None
    """The last of them, whether it is left out or not; None without any."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of a table that were read at once, at a moment between the opening of the window and ``high``."""

    pieces: Sequence[Piece]
    high: Position
    key: Sequence[int]
    """The columns of the key that the rows have, by their places in the table."""
    end: Key | None
    """The last row of the table when it was begun."""
    is_last: bool
    """The table has no more rows up to there."""
    server_id: int
    time: float
    """When they were read, Unix time."""

    @property
    def last(self) -> Key | None:
        """The last row; None without any."""
        return next((piece.last for piece in reversed(self.pieces) if piece.last is not None), None)


@dataclass(frozen=True, slots=True)
class Given:
    """What a batch brings a snapshot forward by, when it is confirmed."""

    snapshot_id: int
    table: int
    """Its place in the snapshot."""
    before: Key | None
    """The row before the first; without it nothing moves on, for something between is missing."""
    last: Key | None
    end: Key | None
    rows: int
    bytes: int
    is_last: bool


@dataclass(frozen=True, slots=True)
class Frontier:
    """How far a snapshot was read, or given."""

    table: int
    after: Key | None
    end: Key | None
    is_done: bool
    """The table is."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be read next for a subscriber."""

    snapshot_id: int
    table: int
    schema: str
    name: str
    where: str
    after: Key | None
    end: Key | None
    rate: int
    member: str = ""
    """Of a group: the one whose table it is."""


class Window:
    """A chunk that is read, or waits for the subscriber."""

    def __init__(self, wish: Wish, touched: "TouchedKeys", *, is_whole: bool = False) -> None:
        """``touched`` is for the key of the table as it was when the window opened; ``is_whole``: it had none."""
        self.wish = wish
        self.touched = touched
        self.is_whole = is_whole
        self.chunk: Chunk | None = None
        self.pieces: deque[Piece] = deque()
        self.high: Position | None = None
        """Where the subscriber is given the rows; None while that is unknown."""
        self.slot: int | None = None
        """The slot there, once the ring has come to it."""
        self.before = wish.after

    def fill(self, chunk: Chunk) -> None:
        """Take what was read."""
        self.chunk, self.high = chunk, chunk.high
        self.pieces.extend(chunk.pieces)

    @property
    def is_given(self) -> bool:
        """Whether all its rows are."""
        return self.chunk is not None and not self.pieces

    def locate(self, track: "Track") -> int | None:
        """Return the slot at ``high``; None while the ring is not there. Raises SourceChangedError."""
        if self.slot is None and self.high is not None:
            try:
                self.slot = track.stop_of(self.high)
            except GoneError:  # the subscriber has confirmed more than that
                self.slot = 0
        return self.slot

    @property
    def frontier(self) -> Frontier | None:
        """How far it is read; None while it is not."""
        chunk, wish = self.chunk, self.wish
        if chunk is None:
            return None
        return Frontier(wish.table, chunk.last or wish.after, chunk.end, chunk.is_last)

    def take(self) -> "tuple[list[RowBlock], Given]":
        """Return the rows of the next batch, without those that changes have brought, and what it brings forward."""
        chunk = self.chunk
        assert chunk is not None
        pieces = [self.pieces.popleft() for _ in range(len(self.pieces) if self.is_whole else 1)]
        blocks = [piece.block for piece in pieces]
        rows, size = sum(map(len, blocks)), sum(block.size for block in blocks)
        if not self.is_whole:
            blocks[0].leave_out(self.touched)
        last = self.before if pieces[0].last is None else pieces[0].last
        is_last = chunk.is_last and not self.pieces
        wish = self.wish
        given = Given(wish.snapshot_id, wish.table, self.before, last, chunk.end, rows, size, is_last)
        self.before = last
        return blocks, given


class Windows:
    """The windows of a subscriber that reads a ring, oldest first."""

    def __init__(self) -> None:
        """There is none."""
        self._windows: deque[Window] = deque()
        self._given: dict[int, Frontier] = {}
        self.yields = False
        """Changes have a turn before the next rows."""

    def __bool__(self) -> bool:
        return bool(self._windows)

    @property
    def has_room(self) -> bool:
        """Whether another chunk may be read."""
        waiting = sum(piece.block.size for window in self._windows for piece in window.pieces)
        return waiting < QUEUED and all(window.chunk is not None for window in self._windows)

    @property
    def members(self) -> set[str]:
        """Of which members of a group there are any."""
        return {window.wish.member for window in self._windows}

    def frontier(self, snapshot_id: int) -> Frontier | None:
        """Return how far a snapshot is read; None if nothing of it is that is not confirmed."""
        read = (window.frontier for window in reversed(self._windows) if window.wish.snapshot_id == snapshot_id)
        return next((found for found in read if found is not None), self._given.get(snapshot_id))

    def give(self, given: Given) -> None:
        """Count rows as given."""
        self._given[given.snapshot_id] = Frontier(given.table, given.last, given.end, given.is_last)

    def open(self, window: Window) -> None:
        """Note from here on what the subscriber is given."""
        self._windows.append(window)

    def has(self, window: Window) -> bool:
        """Whether a window is still open."""
        return window in self._windows

    def confirm(self, given: Given) -> None:
        """Note that rows are confirmed that were given."""
        found = self._given.get(given.snapshot_id)
        if found is not None and (found.table, found.after) == (given.table, given.last):
            del self._given[given.snapshot_id]

    def roll_back(self) -> None:
        """Forget what was given and is not confirmed, and what was read after it."""
        if self._given:
            self._given.clear()
            self.clear()

    def clear(self) -> None:
        """End all of them; rows that were not given are read again."""
        self._windows.clear()

    def note(self, slices: Iterable[memoryview]) -> None:
        """Note which rows the subscriber is given changes of."""
        for data in slices:
            for window in self._windows:
                window.touched.add(data)

    def find(self, track: "Track", get: int) -> Window | None:
        """Return the window whose rows can be given at a slot that is between two transactions."""
        while self._windows:
            window = self._windows[0]
            if window.is_given:
                self._windows.popleft()
                continue
            try:
                slot = window.locate(track)
            except SourceChangedError:
                self.clear()
                return None
            if window.touched.broken or (window.is_whole and slot is not None and get > slot):
                self.clear()
                return None
            return window if window.chunk is not None and slot is not None and get >= slot else None
        return None

    def hold(self, track: "Track", get: int, stop: int) -> int:
        """Return where a subscriber waits that is at a slot and could go on up to ``stop``."""
        for window in self._windows:
            if window.is_whole and not window.is_given:
                if window.high is None:
                    return get
                try:
                    slot = window.locate(track)
                except SourceChangedError:
                    self.clear()
                    return stop
                stop = stop if slot is None else min(stop, slot)
        return max(get, stop)


class Snapshots:
    """The snapshots of a subscriber, in the order in which they are taken."""

    def __init__(self, text: str = "") -> None:
        """Read what `stored` has written. Raises ValueError, KeyError or TypeError if it is something else."""
        self.all = [_read(item) for item in json.loads(text)] if text else []

    def stored(self) -> str:
        """Return them as a text; empty for none."""
        if not self.all:
            return ""
        live = {it.name for it in fields(Snapshot) if it.metadata == LIVE}
        kept = [{name: value for name, value in asdict(it).items() if name not in live} for it in self.all]
        return json.dumps(kept, separators=(",", ":"))

    @property
    def is_running(self) -> bool:
        """Whether there is one that is not complete."""
        return any(not it.is_done for it in self.all)

    @property
    def is_active(self) -> bool:
        """Whether there is one that is neither complete nor paused."""
        return any(not (it.is_done or it.is_paused) for it in self.all)

    def get(self, snapshot_id: int) -> Snapshot | None:
        """Return the one with an id."""
        return next((it for it in self.all if it.snapshot_id == snapshot_id), None)

    def next(self, windows: Windows) -> Wish | None:
        """Return what is to be read after what is read; None if nothing is."""
        for snapshot in self.all:
            if snapshot.is_paused:
                continue
            read = windows.frontier(snapshot.snapshot_id)
            for number, table in enumerate(snapshot.tables):
                if read is not None and number < read.table:
                    continue
                after, end, is_done = table.after, table.end, table.is_done
                if read is not None and number == read.table:
                    after, end, is_done = read.after, read.end, read.is_done
                if not is_done:
                    names = table.schema, table.name, table.where
                    return Wish(snapshot.snapshot_id, number, *names, after, end, snapshot.rate, table.member)
        return None

    def confirm(self, given: Given) -> bool:
        """Count what has arrived; return whether that has brought a snapshot forward."""
        snapshot = self.get(given.snapshot_id)
        table = snapshot.tables[given.table] if snapshot is not None else None
        if table is None or table.is_done or table.after != given.before:
            return False
        table.after, table.end, table.is_done = given.last, given.end, given.is_last
        table.rows += given.rows
        table.bytes += given.bytes
        return True


def _read(item: dict[str, Any]) -> Snapshot:
    tables = [
        TableProgress(
            str(it["schema"]),
            str(it["name"]),
            str(it["where"]),
            int(it["expected"]),
            int(it["rows"]),
            int(it["bytes"]),
            _key(it["after"]),
            _key(it["end"]),
            bool(it["is_done"]),
            str(it.get("member", "")),  # an earlier version knew no groups
        )
        for it in item["tables"]
    ]
    return Snapshot(int(item["snapshot_id"]), tables, int(item["rate"]), bool(item["is_paused"]))


def _key(texts: Any) -> Key | None:
    return None if texts is None else tuple(map(str, texts))
