from array import array

from typing_extensions import Buffer

from ...protocol.gtid import GtidSet
from ...store.ring import Ring, Staging
from ...store.segment import SegmentWriter

class Pool:
    member: str
    ring: Ring
    taken: int
    executed: GtidSet | None
    def __init__(self, member: str, ring: Ring, *, column: str = "", first: int = 0) -> None: ...
    def take(self, now: int, is_over: bool = False) -> tuple[array[int], array[int], bool]: ...

def move(pools: list[Pool], slices: Buffer, to: Ring, staging: Staging, writer: SegmentWriter) -> None: ...
