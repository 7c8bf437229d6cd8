from collections.abc import Iterable
from typing import final

from typing_extensions import Buffer

@final
class RowEncoder:
    rows: int
    is_finished: bool
    error: bytes | None
    def __init__(self, schema: str, table: str, columns: Iterable[tuple[str, str, bool]], extra: int = 0) -> None: ...
    @property
    def size(self) -> int: ...
    def feed(self, data: Buffer) -> None: ...
    def take(self, seconds: float) -> tuple[bytes, list[bytes | None]]: ...
