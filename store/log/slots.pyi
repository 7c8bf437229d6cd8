from typing import NamedTuple

from typing_extensions import Buffer

from ..chain import Had
from ..ring import Ring, Staging
from ..segment import SegmentWriter

class Packed(NamedTuple):
    stop: int
    slot_count: int
    slots: bytes
    slices: list[memoryview]
    size: int
    rows: int
    execute_ms: int
    sources: list[int]
    files: list[int]
    tables: list[int]
    gtid_sources: list[int]
    boundary: bool

def crc32(data: Buffer, before: int = 0) -> int: ...
def pack(ring: Ring, start: int, stop: int, most: int) -> Packed: ...
def unpack(
    slots: Buffer,
    count: int,
    entries: Buffer,
    sources: list[int],
    files: list[int],
    tables: list[int],
    gtid_sources: list[int],
    staging: Staging,
    writer: SegmentWriter,
    had: Had | None = None,
) -> None: ...
