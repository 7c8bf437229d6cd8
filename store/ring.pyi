"""The ring of slots: what is stored of the stream, in order, from the oldest entry that somebody needs."""

import threading
from collections.abc import Callable, Hashable
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple

from typing_extensions import Buffer

from sluice.store.segment import SegmentPool, SegmentWriter

class Kind(IntEnum):
    """What a slot stands for."""

    TRANSACTION_BEGIN = 1
    ROW_DATA = 2
    TRANSACTION_END = 3
    DDL = 4
    QUERY = 5
    ADVANCE = 6
    QUARANTINE = 7
    GAP = 8

class Flag(IntFlag):
    """What is special about a slot."""

    BOUNDARY = 1
    FUTURE_SCHEMA = 2

Place = tuple[int, int, int, int]
"""(source, file, begin, n) by their numbers in the registries."""

class SlotView(NamedTuple):
    """A copy of one slot; the fields are explained in ring.pxd."""

    kind: int
    event_type: int
    flags: int
    table: int
    rows: int
    length: int
    source: int
    server_id: int
    execute_ms: int
    commit_us: int
    event_offset: int
    file: int
    begin: int
    n: int
    next_file: int
    next_begin: int
    next_n: int
    gtid: int
    gtid_first: int
    gtid_last: int

class Staging:
    """Slots that are finished but not yet in the ring, in order."""

    count: int
    taken: int
    bytes: int

    def __len__(self) -> int: ...
    def clear(self) -> None:
        """Drops what is not yet put: at the end of the staging's life, or before the stream is read again."""

    def add_entry(
        self,
        writer: SegmentWriter,
        kind: Kind,
        *,
        event_type: int = 0,
        flags: int = 0,
        table: int = 0,
        rows: int = 0,
        source: int = 0,
        server_id: int = 0,
        execute_ms: int = 0,
        commit_us: int = 0,
        event_offset: int = 0,
        file: int = 0,
        begin: int = 0,
        n: int = 0,
        next_file: int = 0,
        next_begin: int = 0,
        next_n: int = 0,
        gtid: int = 0,
        gtid_first: int = 0,
        gtid_last: int = 0,
    ) -> None:
        """Ends the writer's unfinished entry with a slot of these values; `ADVANCE` has no entry to end."""

class Registry:
    """Numbers for things that slots refer to: from 1, in the order of their first sight, never taken back."""

    def intern(self, key: Hashable) -> int:
        """The number of the key, given to it now if it is new."""

    def __getitem__(self, number: int) -> Any:
        """The key of a number; None for 0, which stands for nothing."""

    def __len__(self) -> int:
        """The highest number given."""

class Collected:
    """What `Ring.collect` found."""

    start: int
    stop: int
    slices: list[memoryview]
    entries: int
    bytes: int
    rows: int
    last: int
    execute_ms: int
    complete: bool

class Ring:
    """The slots of a destination and the memory of their entries, between the oldest needed and the newest put."""

    pool: SegmentPool
    sources: Registry
    files: Registry
    tables: Registry
    gtid_sources: Registry
    size: int
    memory: int
    bytes: int
    first: int
    next: int
    closed: bool
    waiting: bool
    on_put: Callable[[], object] | None

    def __init__(self, size: int = 16384, memory: int = 16384 * 1024, segment_size: int = 1 << 20) -> None: ...
    def __len__(self) -> int: ...
    def put(self, staging: Staging, stop: threading.Event | None = None) -> bool:
        """Moves the staged slots into the ring; blocks while it is full. False when it was closed or `stop` set."""

    def wake(self) -> None:
        """Lets a put that waits look again: for room, and whether it shall stop."""

    def close(self) -> None:
        """Drops everything and ends every put, now and later."""

    def free_to(self, sequence: int) -> None:
        """Frees the slots before the sequence."""

    def begin_at(self, source: int, file: int, begin: int, n: int) -> None:
        """Tells an empty ring the place where the stream begins; else it is the place of the first slot."""

    def slot(self, sequence: int) -> SlotView:
        """What the ring knows of one entry."""

    def place(self, sequence: int) -> Place:
        """The place of a slot."""

    def after(self, sequence: int) -> Place | None:
        """The place after a slot, or after the one before the oldest: None when the stream has not begun."""

    def last_boundary(self, start: int, stop: int) -> int:
        """The last slot in [start, stop) after which the stream is outside any transaction, or -1."""

    def last_data(self, start: int, stop: int) -> int:
        """The last slot in [start, stop) that has an entry, or -1."""

    def at_event(self, file: int, offset: int) -> int:
        """The first slot whose event starts at that offset of that file or later in the stream, or `next`."""

    def at_time(self, milliseconds: int) -> int:
        """The begin of the first transaction with an event of that time or later, or `next`."""

    def gtid_runs(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """The transactions that end in [start, stop): (number of the GTID source, first, last), merged."""

    def measure(self, start: int, stop: int, allowed: Buffer | None = None) -> tuple[int, int, int, int]:
        """How much lies in [start, stop): (transactions, entries, rows, bytes), of the allowed tables only."""

    def collect(
        self,
        start: int,
        *,
        max_entries: int = 0,
        max_bytes: int = 0,
        memory_limit: int = 0,
        ddl_isolation: bool = False,
        allowed: Buffer | None = None,
    ) -> Collected:
        """The next batch from `start` on; limits of 0 do not limit. It has at least one entry if any is there."""
