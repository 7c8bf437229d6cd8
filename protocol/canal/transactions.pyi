from collections.abc import Mapping, Sequence
from typing import final

from typing_extensions import Buffer

@final
class Transactions:
    is_open_marked: bool
    def __init__(
        self,
        data: Buffer,
        positions: bytes | None = None,
        mark: Sequence[bytes] | None = None,
        gtids: Mapping[str, str] | None = None,
    ) -> None: ...
    def __len__(self) -> int: ...
    def end(self, number: int) -> int: ...
    def groups(self, most: int) -> list[tuple[int, bool, bool]]: ...
    def names(self, first: int, last: int) -> str: ...
