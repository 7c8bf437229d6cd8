"""What an instance asks of a parser."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from ..protocol.errors import SluiceError
from ..protocol.gtid import GtidSet
from ..protocol.position import Position
from ..store.cursor import Cursor
from ..store.ring import Ring
from .columns import Column
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
        """Why it cannot read the source at present; None when it can."""

    @property
    def refused(self) -> Mapping[Cursor, SluiceError]:
        """The places given that the source did not have when it was last asked where to begin, and why."""

    def end(self) -> Position:
        """Ask the source for its current end; any thread may ask, and may have to wait. Raises SourceError."""

    def columns(self, schema: str, table: str) -> list[Column]:
        """Ask the source for the columns of a table as they are now, without those that are filtered out.

        Any thread may ask, and may have to wait. Raises UnknownTableError and SourceError.
        """

    def tables(self) -> list[tuple[str, str]]:
        """Ask the source for schema and name of its tables as they are now, whatever the filter.

        Any thread may ask, and may have to wait. Raises SourceError.
        """

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        """Begin at the first of these places that the source has, at once, unless it has begun."""

    def refilter(self, table_filter: TableFilter) -> None:
        """Let through what another filter does, from the next statement that arrives on."""

    def start(self) -> None:
        """Start the thread."""

    def stop(self) -> None:
        """Tell the thread to end; return at once."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""


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

        When the source does not have that place, it begins at the first of ``later``, in this order, that it has; None
        is the place that the configuration says. Of the others ``refused`` says why not.

        It calls, in its own thread, ``on_begin`` with the place where the stream begins and the GTIDs executed there
        (None for what is not known) before its first put, and ``on_state`` with ``running`` or ``error`` and a text.
        """
