from array import array
from enum import IntEnum
from typing import NamedTuple

from typing_extensions import Buffer

UNKNOWN: int

class By(IntEnum):
    TIME = 0
    ARRIVAL = 1
    COLUMN = 2

class Mark(IntEnum):
    LATE = 1
    PART = 2
    BROKEN = 4

class State(NamedTuple):
    bytes: int
    is_full: bool
    transactions: int
    next: int
    key: int
    late: int
    is_open: bool
    is_waited: bool

class Order:
    released: int
    streaming: int
    def __init__(self, by: By, *, window: int = 0) -> None: ...
    def add_member(
        self, name: str, *, pool: int, exact: bool = False, whole_seconds: bool = False, waited: bool = True
    ) -> int: ...
    def resume(self, number: int) -> None: ...
    def set_full(self, number: int, full: bool) -> None: ...
    def state(self, number: int) -> State: ...
    def add(self, number: int, stamps: Buffer, sizes: Buffer, *, is_open: bool, now: int) -> None: ...
    def heartbeat(self, number: int, time: int) -> None: ...
    def set_offset(self, number: int, offset: int) -> None: ...
    def set_waited(self, number: int, waited: bool) -> None: ...
    def reset(self, number: int) -> None: ...
    def leave(self, number: int) -> None: ...
    def remove(self, number: int) -> None: ...
    def holders(self) -> list[int]: ...
    def release(self, most: int) -> array[int]: ...
