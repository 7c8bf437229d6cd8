from array import array

from typing_extensions import Buffer

from ...store.ring import Ring, Staging
from ...store.segment import SegmentWriter

class Pool:
    member: str
    ring: Ring
    taken: int
    def __init__(self, member: str, ring: Ring, key: str) -> None: ...
    def take(self, now: int) -> tuple[array[int], array[int], bool]: ...

def move(pools: list[Pool], slices: Buffer, to: Ring, staging: Staging, writer: SegmentWriter) -> None: ...
