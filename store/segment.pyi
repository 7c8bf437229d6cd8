from collections.abc import Callable

from typing_extensions import Buffer

class SegmentPool:
    segment_size: int
    budget: int
    largest: int
    allocated: int
    pinned: int
    on_release: Callable[[], object] | None

    def __init__(self, segment_size: int = ..., budget: int = ...) -> None: ...

class Segment:
    capacity: int
    slots: int
    exports: int

    def __init__(self, pool: SegmentPool) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class SegmentWriter:
    def __init__(self, pool: SegmentPool) -> None: ...
    def close(self) -> int: ...
    def write(self, data: Buffer) -> int: ...
    def write_framed(self, entry: Buffer) -> int: ...
