from collections.abc import Sequence

from ....store.ring import Ring, Staging
from ...sink.filters import TableFilter

class Stager:
    staging: Staging
    tables: set[tuple[str, str]]
    """Schema and name of the tables of which an entry was staged."""
    entries: int
    """That were staged, or did not pass the filter."""
    is_done: bool
    """Whether the stop position is reached."""

    def __init__(self, ring: Ring, wanted: TableFilter) -> None: ...
    def refilter(self, wanted: TableFilter) -> None: ...
    # Takes a frame. Raises DecodeError for one that has no entries with places.
    # ``files``: by name, the numbers of source and file in the ring, and whether what is in the file is before the
    # start (-1) or after it (1), or some is (0), and the same of the stop; the first one is where the frame begins.
    # ``last``: the place after the frame: file, begin, n. ``start`` and ``stop``: begin and n.
    def begin(
        self,
        frame: bytes,
        files: dict[str, tuple[int, int, int, int]],
        last: tuple[str, int, int],
        start: tuple[int, int] = ...,
        stop: tuple[int, int] = ...,
    ) -> None: ...
    def run(self) -> bool: ...
    def mark(self, text: str, file: str, begin: int, n: int, key: str = ...) -> None: ...
    def advance(self, file: str, begin: int, n: int) -> None: ...
    def execute(self, file: str, begin: int, n: int, runs: Sequence[tuple[int, int, int]]) -> None: ...
    def close(self) -> None: ...
