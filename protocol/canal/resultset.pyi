from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import final

from typing_extensions import Buffer

from ..mask import Masker
from .touched import TouchedKeys

@final
class RowBlock:
    def __len__(self) -> int: ...
    @property
    def size(self) -> int: ...
    def leave_out(self, touched: TouchedKeys) -> int: ...
    def entry(self, seconds: float, header: bytes = b"") -> bytes: ...

@final
class RowEncoder:
    rows: int
    is_finished: bool
    error: bytes | None
    def __init__(
        self,
        schema: str,
        table: str,
        columns: Iterable[tuple[str, str, bool]],
        extra: int = 0,
        *,
        indexes: Sequence[int] | None = None,
        keys: Collection[int] = (),
        zone: Sequence[tuple[int, int]] = ...,
        masks: Mapping[str, tuple[int, int, str]] | None = None,
        masker: Masker | None = None,
    ) -> None: ...
    @property
    def size(self) -> int: ...
    def feed(self, data: Buffer) -> None: ...
    def take(self, seconds: float) -> tuple[bytes, list[bytes | None]]: ...
    def take_block(self) -> tuple[RowBlock, list[bytes | None]]: ...
