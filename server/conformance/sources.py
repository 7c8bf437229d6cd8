"""Tries a source as a destination would read it: from every place, for ever, and with input that is wrong."""

import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from itertools import takewhile
from typing import Any, Final, Protocol

from ...instance.sources.api import API, Piece, Settings, SourceError, SourceKind
from ...instance.sources.plugin.config import PluginConfig, model_of
from ...instance.sources.plugin.parser import Asking, Bounds, take_apart
from ...protocol.canal.rows import decode_rows
from ...protocol.errors import SluiceError
from .changes import COLUMN
from .faults import LONGEST, BrokenError, Fault, bounded, broken

FEW: Final = 12
"""Rows that are read from every place."""
MANY: Final = 300
SIZE: Final = 32 << 10
"""Rows of a large part of a source, and characters of each: 9 MiB."""
MEMORY: Final = 4 << 20
"""Bytes that a source may hold while that is read."""
IDLE: Final = 2.0
"""Seconds after which a source has to say that it has nothing more."""


class Write(Protocol):
    """Makes the source have more rows."""

    def __call__(self, first: int, count: int, size: int) -> object:
        """Insert ``count`` rows, with the column ``id`` from ``first`` on, and a text of ``size`` characters each."""


def source_faults(
    name: str, kind: SourceKind, settings: Settings, write: Write, spoil: Callable[[], object]
) -> list[Fault]:
    """Try a source; return what is wrong, nothing if all is well.

    Args:
        name: of the entry point.
        kind: the class that the entry point names.
        settings: its settings, of a source that is empty.
        write: makes the source have more rows.
        spoil: makes the source have something that cannot be read, after all else.
    """
    version = getattr(kind, "api", None)
    if version != API:
        return [Fault("api", f"it is written for version {version!r} of the interface, and this is version {API}")]
    brought: Any = kind
    try:
        model = model_of(name, brought)
        given = {field: getattr(settings, field) for field in type(settings).model_fields}
        config = model(destination="conformance", **given)
    except SluiceError as error:
        return [Fault("class", str(error))]
    return list(_Trial(config, write, spoil).faults())


class _Trial:
    def __init__(self, config: PluginConfig, write: Write, spoil: Callable[[], object]) -> None:
        self._config, self._write, self._spoil = config, write, spoil
        self._count = 0

    def faults(self) -> Iterator[Fault]:
        trials = {
            "empty": self._try_empty,
            "order": self._try_order,
            "resume": self._try_resume,
            "growth": self._try_growth,
            "memory": self._try_memory,
            "hostile": self._try_hostile,
        }
        for promise, run in trials.items():
            yield from broken(promise, run)

    # --- the promises

    def _try_empty(self) -> None:
        """A source without changes ends where it begins, and says soon that it has nothing."""
        with self._asking() as source:
            bounds = self._bounds(source)
            if bounds.oldest != bounds.end:
                raise BrokenError(f"it has nothing, and offsets from {bounds.oldest} to {bounds.end}")
            if self._present(source, bounds.end):
                raise BrokenError("it has nothing, and gives a piece")

    def _try_order(self) -> None:
        """All changes come once, in their order, up to the end."""
        self._add(FEW)
        with self._asking() as source:
            bounds = self._bounds(source)
            pieces = self._present(source, bounds.oldest)
        found = self._ids(pieces, bounds.oldest)
        if found != list(range(self._count)):
            raise BrokenError(f"rows 0 to {self._count - 1} were written, and it gives {found}")
        if pieces[-1].end != bounds.end:
            raise BrokenError(f"the last piece ends at {pieces[-1].end}, and the source at {bounds.end}")

    def _try_resume(self) -> None:
        """From the end of each piece another object goes on exactly there, with the same bytes."""
        with self._asking() as source:
            before = self._bounds(source)
            pieces = self._present(source, before.oldest)
        for number, piece in enumerate(pieces):
            with self._asking() as source:
                if (bounds := self._bounds(source)) != before:
                    raise BrokenError(f"nothing was written, and it is {bounds}, after {before}")
                if self._present(source, piece.end) != pieces[number + 1 :]:
                    raise BrokenError(f"from offset {piece.end} on it gives other pieces than before")

    def _try_growth(self) -> None:
        """What is written while it is read comes, after it has said that there is nothing more."""
        with self._asking() as source:
            pieces = source.pieces(self._bounds(source).end)
            for _ in range(3):
                self._wait(pieces)
                first = self._count
                self._add(2)
                found: list[Piece] = []
                latest = time.monotonic() + LONGEST
                while len(self._ids(found)) < 2 and time.monotonic() < latest:
                    piece = bounded(partial(next, pieces, None), IDLE)
                    found += [piece] if piece is not None else []
                if self._ids(found) != [first, first + 1]:
                    raise BrokenError(f"rows {first} and {first + 1} were written, and it gives {self._ids(found)}")

    def _try_memory(self) -> None:
        """It reads on, and keeps nothing of what it has given."""
        with self._asking() as source:
            begin = self._bounds(source).end
            self._add(MANY, SIZE)
            tracemalloc.start()
            try:
                rows = 0
                for piece in source.pieces(begin):
                    if piece is None:
                        break
                    rows += len(decode_rows(piece.data))
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
        if rows != MANY:
            raise BrokenError(f"{MANY} rows were written, and it gives {rows}")
        if peak > MEMORY:
            raise BrokenError(f"it holds {peak >> 20} MiB of {MANY * SIZE >> 20} MiB that it reads")

    def _try_hostile(self) -> None:
        """What cannot be read is a SourceError that says what and where, and what precedes it still comes."""
        self._add(1)
        self._spoil()
        with self._asking() as source:
            begin = self._bounds(source).oldest
            pieces = source.pieces(begin)
            found: list[int] = []
            try:
                while (piece := bounded(partial(next, pieces))) is not None:
                    found += self._ids([piece], begin)
                    begin = piece.end
            except SourceError as error:
                if error.__cause__ is not None:
                    raise BrokenError(f"it fails, and names nothing that is wrong with its input: {error}") from None
            else:
                raise BrokenError("it passes over what cannot be read, and says nothing")
        if found != list(range(self._count)):
            raise BrokenError("changes before what cannot be read do not come")

    # --- inside

    @contextmanager
    def _asking(self) -> Iterator[Asking]:
        with closing(bounded(lambda: Asking(self._config))) as source:
            yield source

    def _bounds(self, source: Asking) -> Bounds:
        return bounded(source.bounds)

    def _add(self, count: int, size: int = 10) -> None:
        self._write(self._count, count, size)
        self._count += count

    def _present(self, source: Asking, offset: int) -> list[Piece]:
        """Return the pieces that it has now. Raises BrokenError when it waits for more."""
        pieces = source.pieces(offset)
        return bounded(lambda: [it for it in takewhile(bool, pieces) if it is not None])

    def _wait(self, pieces: Iterator[Piece | None]) -> None:
        try:
            found = bounded(partial(next, pieces), IDLE)
        except StopIteration:
            raise BrokenError("it ends where more may come") from None
        if found is not None:
            raise BrokenError(f"it gives a piece after its end, which ends at {found.end}")

    def _ids(self, pieces: list[Piece], begin: int = 0) -> list[int]:
        """Return the numbers of the rows of pieces. Raises SourceError when they are not as Sluice needs them."""
        found = []
        for piece in pieces:
            take_apart(self._config, piece, "log.1", begin)
            found += [int((row.after or {})[COLUMN]) for row in decode_rows(piece.data)]
        return found
