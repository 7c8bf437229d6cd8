"""What an instance asks of a parser."""

from collections.abc import Callable, Sequence
from typing import Protocol

from sluice.instance.config import InstanceConfig
from sluice.instance.parser.columns import Column
from sluice.instance.parser.status import ParserStatus
from sluice.instance.sink.filters import TableFilter
from sluice.protocol.errors import SluiceError
from sluice.protocol.gtid import GtidSet
from sluice.protocol.position import Position
from sluice.store.cursor import Cursor
from sluice.store.ring import Ring


class Parser(Protocol):
    """What fills the ring, in a thread of its own."""

    @property
    def status(self) -> ParserStatus:
        """How far it is."""

    @property
    def failure(self) -> SluiceError | None:
        """Why it cannot read the source at present; None when it can."""

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
        later: Sequence[Cursor] = (),
        on_begin: Callable[[Position | None, GtidSet | None], None],
        on_state: Callable[[str, str], None],
    ) -> Parser:
        """Make a parser that begins at ``start``, or where the configuration says if that is None.

        When the source has purged that place, it begins at the first of ``later``, in this order, that is left.

        It calls, in its own thread, ``on_begin`` with the place where the stream begins and the GTIDs executed there
        (None for what is not known) before its first put, and ``on_state`` with ``running`` or ``error`` and a text.
        """
