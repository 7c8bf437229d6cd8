from collections.abc import Sequence

from typing_extensions import Buffer

class TouchedKeys:
    broken: str
    def __init__(
        self,
        schema: str,
        table: str,
        indexes: Sequence[int],
        *,
        member: str = "",
        ignore_case: bool = False,
        most: int = ...,
    ) -> None: ...
    def __len__(self) -> int: ...
    def add(self, data: Buffer) -> None: ...
