from ..protocol.errors import FilterError
from .track import Judge

class Pinned:
    start: int
    errors: list[tuple[int, FilterError]]
    def __len__(self) -> int: ...

class Verdicts:
    judge: Judge
    first: int
    next: int
    is_busy: bool
    def __init__(self, judge: Judge, start: int) -> None: ...
    def take(self, pinned: Pinned) -> None: ...
    def reach(self, sequence: int) -> int: ...
    def refusal(self, sequence: int) -> FilterError | None: ...
