"""What an instance needs of the parser of a source, and a command of the source itself."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, Self

from ..protocol.errors import SluiceError
from ..protocol.gtid import GtidSet
from ..protocol.position import Position
from ..store.cursor import Cursor
from ..store.ring import Ring
from .columns import SourceColumn
from .config import InstanceConfig
from .sink.filters import TableFilter
from .status import ParserStatus


class Parser(Protocol):
    """What fills the ring, in a thread of its own."""

    @property
    def status(self) -> ParserStatus:
        """How far it is."""

    @property
    def failure(self) -> SluiceError | None:
        """Why it cannot read the source at present; None if it can."""

    @property
    def refused(self) -> Mapping[Cursor, SluiceError]:
        """The given places that the source did not have when last asked where to begin, and why."""

    def end(self) -> Position:
        """Ask the source for its current end. Any thread may ask, and may have to wait. Raises SourceError."""

    def columns(self, schema: str, table: str) -> list[SourceColumn]:
        """Ask the source for the columns that a table has now, without those that are filtered out.

        Any thread may ask, and may have to wait. Raises UnknownTableError and SourceError.
        """

    def tables(self) -> list[tuple[str, str]]:
        """Ask the source for schema and name of the tables that it has now, whatever the filter.

        Any thread may ask, and may have to wait. Raises SourceError.
        """

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        """Begin at the first of these places that the source has, at once, unless it has begun."""

    def refilter(self, table_filter: TableFilter) -> None:
        """Use another filter, from the next statement that arrives."""

    def start(self) -> None:
        """Start the thread."""

    def stop(self) -> None:
        """Tell the thread to end; return at once."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""


class Examination(Protocol):
    """What the commands ask a source without starting anything. Methods raise SourceError when it does not answer."""

    @property
    def exposure(self) -> str:
        """Who could read the password of the account, and what helps; empty while it is safe."""

    @property
    def protection(self) -> str:
        """What protects the password."""

    @property
    def unchecked_tls(self) -> str:
        """What TLS leaves open; empty when nothing."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def check(self, *, is_replaced: bool) -> None:
        """Raise SourceError with all that keeps the source from being read.

        ``is_replaced``: what reads it under the same configuration now will be stopped first.
        """

    def summary(self) -> str:
        """Return what the source is, and where it ends."""

    def advice(self) -> list[str]:
        """Return what would make the source better to read."""

    def tables(self) -> list[tuple[str, str]]:
        """Return schema and name of its tables as they are now, whatever the filter."""

    def find(self, place: Cursor | None) -> str:
        """Return where the stream would begin for a saved place; None is the place that the configuration says.

        Raises PurgedError and SourceChangedError when the source does not have it.
        """

    def refused(self, places: Sequence[Cursor | None]) -> Mapping[Cursor | None, SluiceError]:
        """Return the places that the source does not have, and why; when it has none, raise the first reason."""


class ParserFactory(Protocol):
    """Makes the parser of a destination."""

    def __call__(
        self,
        config: InstanceConfig,
        ring: Ring,
        *,
        start: Cursor | None,
        later: Sequence[Cursor | None] = (),
        on_begin: Callable[[Position | None, GtidSet | None], None],
        on_state: Callable[[str, str], None],
    ) -> Parser:
        """Make a parser that begins at ``start``, or where the configuration says if that is None.

        If the source does not have that place, the parser begins at the first of ``later``, in this order, that the
        source has; None is the place that the configuration says. ``refused`` says why it lacks the others.

        It calls, in its own thread, ``on_begin`` with the place where the stream begins and the GTIDs executed there
        (None if unknown) before its first put, and ``on_state`` with ``running`` or ``error`` and a text.
        """
