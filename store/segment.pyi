"""Memory that entries are written to once and read from until it is recycled."""

from collections.abc import Callable

from typing_extensions import Buffer

class SegmentPool:
    """The segments of one ring, and the account of their memory."""

    segment_size: int
    allocated: int
    pinned: int
    on_release: Callable[[], object] | None

    def __init__(self, segment_size: int = 1 << 20) -> None: ...

class Segment:
    """A piece of memory. It supports the buffer protocol, read-only; an exported buffer keeps it from being reused."""

    capacity: int
    slots: int
    exports: int

    def __init__(self, pool: SegmentPool) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

class SegmentWriter:
    """Appends entries to the current segment of a pool; an entry never spans two segments."""

    def __init__(self, pool: SegmentPool) -> None: ...
    def close(self) -> int:
        """Throws the unfinished entry away and gives the segment up, so that it can be recycled."""

    def write(self, data: Buffer) -> int:
        """Appends bytes to the unfinished entry."""

    def write_framed(self, entry: Buffer) -> int:
        """Appends an encoded Entry framed as `Messages.messages`: tag 0x12, length, entry."""
