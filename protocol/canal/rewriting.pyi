from collections.abc import Callable, Iterable
from typing import final

from typing_extensions import Buffer

from .tags import EventType

@final
class Plan:
    def __init__(
        self,
        schema: str,
        table: str,
        columns: Iterable[tuple[str, str]] = (),
        left_out: Iterable[EventType] = (),
    ) -> None: ...

@final
class Rewriter:
    def __init__(self, find: Callable[[str, str], Plan | None]) -> None: ...
    def rewrite(self, data: Buffer, *, statements: bool = False) -> bytes | None: ...
