import builtins
from collections.abc import Callable, Hashable, Iterable
from enum import IntEnum, IntFlag
from typing import Any, NamedTuple, Protocol, TypeAlias
from weakref import WeakValueDictionary

from typing_extensions import Buffer

from .masks import Mask, Masks
from .restarts import Restarts
from .segment import SegmentPool, SegmentWriter
from .verdicts import Pinned, Verdicts

class Kind(IntEnum):
    TRANSACTION_BEGIN = 1
    ROW_DATA = 2
    TRANSACTION_END = 3
    DDL = 4
    QUERY = 5
    ADVANCE = 6
    QUARANTINE = 7
    GAP = 8

class Flag(IntFlag):
    BOUNDARY = 1
    FUTURE_SCHEMA = 2
    TEXT = 4

# (source, file, begin, n) by their numbers in the registries.
Place: TypeAlias = tuple[int, int, int, int]

class SlotView(NamedTuple):
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
    count: int
    taken: int
    bytes: int
    released: Place | None

    def __len__(self) -> int: ...
    def clear(self) -> None: ...
    def put_places(self) -> list[Place]: ...
    def gtid_in_part(self) -> tuple[int, int] | None: ...
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
    ) -> None: ...

class Registry:
    def intern(self, key: Hashable) -> int: ...
    def __getitem__(self, number: int) -> Any: ...
    def __len__(self) -> int: ...
    def __contains__(self, key: Hashable) -> bool: ...

class Collected:
    start: int
    stop: int
    slices: list[memoryview]
    positions: builtins.bytes
    entries: int
    bytes: int
    rows: int
    last: int
    execute_ms: int
    complete: bool

class Stop(Protocol):
    def is_set(self) -> bool: ...

class Ring:
    pool: SegmentPool
    sources: Registry
    files: Registry
    tables: Registry
    gtid_sources: Registry
    restarts: Restarts
    masks: Masks
    verdicts: WeakValueDictionary[str, Verdicts]
    size: int
    memory: int
    bytes: int
    first: int
    next: int
    put_rows: int
    put_bytes: int
    put_execute_ms: int
    freed_rows: int
    freed_bytes: int
    freed_execute_ms: int
    closed: bool
    waiting: bool
    on_put: Callable[[], object] | None

    def __init__(self, size: int = 16384, memory: int = ..., segment_size: int = 0) -> None: ...
    def __len__(self) -> int: ...
    def put(self, staging: Staging, stop: Stop | None = None) -> bool: ...
    @property
    def fill(self) -> float: ...
    @property
    def blocked_seconds(self) -> float: ...
    def wake(self) -> None: ...
    def close(self) -> None: ...
    def free_to(self, sequence: int) -> None: ...
    def begin_at(self, source: int, file: int, begin: int, n: int) -> None: ...
    def slot(self, sequence: int) -> SlotView: ...
    def place(self, sequence: int) -> Place: ...
    def after(self, sequence: int) -> Place | None: ...
    def last_boundary(self, start: int, stop: int) -> int: ...
    def last_data(self, start: int, stop: int) -> int: ...
    def at_event(self, file: int, offset: int) -> int: ...
    def at_time(self, milliseconds: int) -> int: ...
    def gtid_runs(self, start: int, stop: int) -> list[tuple[int, int, int]]: ...
    def named_transactions(self, start: int, stop: int) -> list[tuple[int, int, int, int]]: ...
    def measure(
        self,
        start: int,
        stop: int,
        allowed: Buffer | None = None,
        verdicts: Verdicts | None = None,
        texts: bool = True,
    ) -> tuple[int, int, int, int]: ...
    def wanted_by(self, start: int, stop: int, held: int, masks: Iterable[Mask]) -> tuple[list[Mask], int]: ...
    def pin(self, start: int, max_slots: int, max_bytes: int) -> Pinned | None: ...
    def collect(
        self,
        start: int,
        *,
        stop: int = -1,
        max_entries: int = 0,
        max_bytes: int = 0,
        memory_limit: int = 0,
        ddl_isolation: bool = False,
        content: int = 0,
        allowed: Buffer | None = None,
        verdicts: Verdicts | None = None,
        texts: bool = True,
    ) -> Collected: ...
    def cut(
        self,
        start: int,
        stop: int,
        *,
        max_rows: int = 0,
        max_bytes: int = 0,
        inside: bool = False,
        allowed: Buffer | None = None,
        verdicts: Verdicts | None = None,
        texts: bool = True,
    ) -> tuple[int, int]: ...
    def read(
        self,
        start: int,
        stop: int,
        *,
        max_bytes: int = 0,
        transactions: bool = True,
        whole: bool = True,
        allowed: Buffer | None = None,
        verdicts: Verdicts | None = None,
        texts: bool = True,
    ) -> Collected: ...
    def split(
        self,
        start: int,
        stop: int,
        parts: int,
        *,
        transactions: bool = True,
        allowed: Buffer | None = None,
        verdicts: Verdicts | None = None,
        texts: bool = True,
    ) -> list[tuple[int, int, int, int]]: ...
