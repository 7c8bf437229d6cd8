from array import array
from collections.abc import Callable, Iterable
from typing import NamedTuple

from typing_extensions import Buffer

from ..errors import RefusedError

class Route(NamedTuple):
    topic: int
    partition: int
    bare: int
    hash_partitions: int = 0
    columns: tuple[str, ...] | None = None
    seed: int = 0

class Records:
    values: list[bytes]
    keys: list[bytes | None] | None
    topics: array[int]
    partitions: array[int]
    rows: array[int]
    entries: array[int]
    end: int
    refused: RefusedError | None

class Encoder:
    state: str
    def undo(self) -> None: ...
    def encode(
        self,
        slices: Iterable[Buffer],
        batch_id: int,
        *,
        begin: int = 0,
        ts: int | None = None,
        positions: bytes = b"",
    ) -> Records: ...

class RecordEncoder(Encoder):
    def __init__(
        self,
        form: str,
        route: Callable[[str, str], Route],
        *,
        whole: bool,
        limit: int,
        keyed: bool = False,
        split_key_updates: bool = False,
        statements: bool = False,
        markers: bool = False,
        strict: bool = False,
    ) -> None: ...

def java_hash(text: str) -> int: ...
def hash_partition(hash_: int, partitions: int) -> int: ...
