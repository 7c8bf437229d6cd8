"""What an instance needs of the parser of a source, and a command of the source itself."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, runtime_checkable

from ..protocol.cut import Before
from ..protocol.errors import GoneError, PurgedError, ReshapedError, SluiceError, SourceChangedError
from ..protocol.gtid import GtidSet, Transactions
from ..protocol.position import Position
from ..store.cursor import Cursor
from ..store.ring import Ring
from ..store.snapshot import Chunk, Wish
from .columns import SourceColumn
from .config import InstanceConfig
from .quarantine import Item
from .sink.filters import TableFilter
from .status import ParserStatus

if TYPE_CHECKING:
    from ..login.columns import KeyPart, SnapshotColumn
    from ..protocol.canal.resultset import RowBlock
    from .agreement import Agreement
    from .conditions.where import Conditions

EXAMPLES: Final = 20
"""Differences that a report describes; further ones are counted."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Where the stream goes on at another server."""

    place: Cursor
    """Where: the place that was asked for if GTIDs say it, else the same one as a place of the server."""
    lost: Transactions = field(default_factory=Transactions)
    """The transactions before it that the server does not have, and will not get."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """When a source may purge a place."""

    at: float
    """Unix time after which it may, as it is configured; 0: at any time, for nothing older is left."""
    kept: float
    """Seconds for which it keeps what it has written; 0 if it does not say."""


LOST: Final = (PurgedError, SourceChangedError, GoneError, ReshapedError)
"""Failures by which a feed will never go on; after any other it tries again by itself."""


class Feed(Protocol):
    """What fills a ring, in a thread of its own."""

    @property
    def failure(self) -> SluiceError | None:
        """Why it cannot read at present; None if it can."""

    def start(self) -> None:
        """Start the thread."""

    def stop(self) -> None:
        """Tell the thread to end; return at once."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended."""


class FeedFactory(Protocol):
    """Makes what fills the ring of a catch-up reader; see `ParserFactory`."""

    def __call__(
        self,
        config: InstanceConfig,
        ring: Ring,
        *,
        start: Cursor,
        on_begin: Callable[[Position | None, Before], None],
        on_state: Callable[[str, str], None],
        stop: Position | None = None,
    ) -> Feed:
        """Make one that begins at ``start``, and ends at ``stop`` if it comes there."""


KeepStart = Callable[[str, Position, GtidSet | None], Future[None]]
"""Stores where a member begins that joins a group, and what was executed there, if that is known."""


class Parser(Feed, Protocol):
    """What fills the ring of a destination from its source."""

    @property
    def status(self) -> ParserStatus:
        """How far it is."""

    @property
    def refused(self) -> Mapping[Cursor, SluiceError]:
        """The given places that the source did not have when last asked where to begin, and why."""

    def end(self) -> Position:
        """Ask the source for its current end. Any thread may ask, and may have to wait. Raises SourceError."""

    def find_place(self, wanted: int | str | None) -> Cursor:
        """Ask the source for the place before its first transaction at or after a time, or for another place.

        A time is in ms since 1970; if nothing is so late, that is the end. A text is ``FILE:OFFSET``, as the source
        writes it, between two transactions, or a GTID set: all that was executed before. None asks for the oldest
        place. Any thread may ask, and may have to wait.

        Raises:
            PurgedError: the source may have purged changes of that time, or has purged the place.
            BadPositionError: the text is something else, or lies inside a transaction: the error names its ends.
            SourceError: it cannot be asked, or has no such place.
        """

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        """Return the columns that a table has now at the source, without those that are filtered out, masks considered.

        With a place: that it had there, as far as the history goes. Any thread may ask, and may have to wait. Raises
        UnknownTableError and SourceError.
        """

    def check_conditions(self, conditions: "Conditions") -> None:
        """Make sure, as far as the source can be asked, that rows as they are written now can be judged by conditions.

        Any thread may ask, and may have to wait. Raises FilterError, and SourceError.
        """

    def tables(self) -> list[tuple[str, str]]:
        """Ask the source for schema and name of the tables that it has now, whatever the filter.

        Any thread may ask, and may have to wait. Raises SourceError.
        """

    def table_reader(self) -> "TableReader":
        """Make what reads tables of the source for a snapshot. Raises ConfigError if the source has none to read."""

    def expiries(self, places: Sequence[Position]) -> Sequence[Expiry | None]:
        """Ask the source when it may purge each of these places; None: no end is in sight.

        Any thread may ask, and may have to wait. Raises SourceError.
        """

    def distances(self, places: Sequence[Position], to: Position) -> Sequence[int | None]:
        """Ask the source how many bytes of its binlog lie between each of these places and a later one.

        None if it does not say. Any thread may ask, and may have to wait. Raises SourceError.
        """

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        """Begin at the first of these places that the source has, at once, unless it has begun."""

    def prove(self, place: Cursor, sample: bytes) -> "Proof":
        """Find where the stream goes on that was read up to a place of another server, or of the same one.

        ``sample`` are the last entries before it, framed as in `Messages`: servers without GTIDs are compared by these.
        Said before `start`. Any thread may ask, and may have to wait until a replica has executed what it has received;
        `stop` ends that.

        Raises:
            SourceChangedError: it cannot be known.
            PurgedError: what comes next is purged.
            SourceError: it cannot be asked.
        """

    def probe(self) -> None:
        """Run the health check of the source, as in `InstanceConfig.probing`; by one thread. Raises SourceError."""

    def announce(self, change: str) -> None:
        """Put a marker (`sluice.protocol.props.SHAPE`) with this text before the first rows; said before `start`."""

    def refilter(self, table_filter: TableFilter) -> None:
        """Use another filter, from the next statement that arrives."""


@runtime_checkable
class Grouped(Protocol):
    """A parser of a group, whose members come and go."""

    def use_keep_start(self, keep_start: KeepStart) -> None:
        """Call this before anything is put of a member that joins; said before `start`.

        Without it no member joins: what reads again where a client is reads the members that the client's place has.
        """

    def halt(self, member: str) -> None:
        """Read a member no longer, until `go_on`; what it has brought and is not put yet is dropped. Returns at once.

        The others are read on, and wait for it as for one that does not answer.
        """

    def is_halted(self, member: str) -> bool:
        """Whether nothing more of a member is put."""

    def go_on(self, member: str) -> None:
        """Read a member on where it was halted."""

    def probe_member(self, member: str) -> None:
        """Run the health check of a member, see `Parser.probe`. Raises SourceError."""

    def reconfigure(self, config: InstanceConfig) -> None:
        """Go on with another configuration, for which `InstanceConfig.goes_on_with` holds; any thread may ask.

        Raises ConfigError, and goes on as before.
        """


class MemberParser(Parser, Protocol):
    """A parser that reads a member of a group."""

    names_places: bool
    """Name the place where another server of the source is read on, before anything comes: cuts are compared by it."""
    heartbeat: float
    """Seconds without a change after which the source is asked to say that it has none; 0: a while."""
    on_caught_up: Callable[[float], None]
    """Called in its thread when everything is put that the source had at a monotonic time, which it is given.

    It is called again as often as `heartbeat`.
    """

    def agree_with(self, agreement: "Agreement", member: str) -> None:
        """Compare the columns of split tables with those of the other members, too; called before it begins."""

    def clock(self) -> float | None:
        """Ask the source by how many seconds its clock is ahead of ours; None if it has no clock of its own.

        Any thread may ask, and may have to wait. Raises SourceError.
        """


@dataclass(frozen=True, slots=True)
class ReadableTable:
    """A table that a snapshot can read."""

    schema: str
    name: str
    expected: int
    """Its rows, about."""
    key: tuple[int, ...]
    """The columns of its key, by their places in the table; none if it is read as a whole."""
    ignore_case: bool
    """Names of tables that differ by case only are of one table."""
    columns: "tuple[SnapshotColumn, ...]"
    """Those that are delivered."""
    parts: "tuple[KeyPart, ...]"
    """Its key, in the order of the index."""
    member: str = ""
    """Of a group: the one whose table it is."""


class TableReader(Protocol):
    """Reads the rows of tables. A method may wait for the source, and raises SourceError if that does not answer."""

    def describe(
        self, schema: str, table: str, where: str, member: str = "", *, is_scanned: bool = False
    ) -> Sequence[ReadableTable]:
        """Look at a table; in a group at that of a member, or at those of all members that have it.

        Raises BadParameterError if one, or the condition, cannot be used. ``is_scanned``: it is only for `scan`, so
        that it may have any size without a key.
        """

    def begin(self, wish: Wish) -> Position:
        """Begin to read a table without a key, as it was at the place in the stream that is returned, exactly.

        That place is not before the end of the stream at the time of the call. Until `read` is called, the source may
        be kept from changing the table. Raises BadParameterError if the table cannot be used.
        """

    def read(self, wish: Wish) -> Chunk:
        """Read the next rows of a table, in a consistent read; all that are left after `begin`.

        It sees all that stands in the stream before the call, and nothing after the chunk's ``high``. Raises
        BadParameterError if the table, or the condition, cannot be used any more.
        """

    def scan(self, wish: Wish) -> "Iterator[RowBlock]":
        """Read all rows of a table, whatever its size, in a consistent read; in the order of its key, if it has one.

        It sees all that stands in the stream before the call. Raises as `read`.
        """

    def end(self) -> Position:
        """Return the place after all that any read before the call has seen."""

    def interrupt(self) -> None:
        """Make a call that waits for the source fail; any thread may call this."""

    def close(self) -> None:
        """End the connections."""


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """What changed tables."""

    place: Position
    """From where on it holds."""
    time: float
    """When it was noted, Unix time."""
    sql: str
    """The statement; empty if the source was asked."""
    tables: tuple[str, ...]
    """``schema.table``, a schema for all in it, ``*`` for all there are."""
    is_first: bool
    """The history begins here, with all tables as the source had them."""


class SchemaArchive(Protocol):
    """The history of the tables of a destination; nothing has to run for it. Methods raise HistoryError."""

    def tables(self, at: Position | None) -> Mapping[str, Sequence[str]]:
        """Return the tables at a place, or at the end: the columns of each ``schema.table``, a text for each.

        Raises BadPositionError when they are not known there.
        """

    def changes(self) -> Iterable[SchemaChange]:
        """Give what changed tables."""

    def export(self) -> Iterable[Mapping[str, Any]]:
        """Give everything as objects of JSON, from which `replace` makes it again."""

    def replace(self, lines: Iterable[Mapping[str, Any]]) -> int:
        """Put what was exported in the place of what is known; return how many places it has.

        Raises BadParameterError that names the object which is wrong; then nothing changes.
        """


@dataclass(frozen=True, slots=True)
class Reread:
    """What became of a row event in quarantine: its entries, framed as in `Messages`, or why there are none."""

    data: bytes
    reason: str
    positions: bytes = b""
    """Where the entries belong, as in ``Messages.positions``."""


@dataclass(slots=True)
class Findings:
    """What a comparison found."""

    start: str
    stop: str
    unread: Counter[str] = field(default_factory=Counter)
    """How much could not be compared, by reason."""
    different: int = 0
    differences: list[str] = field(default_factory=list)
    """Descriptions of the first differences."""
    seconds: float = 0.0

    def differs(self, text: str) -> None:
        """Note a difference."""
        self.different += 1
        if len(self.differences) < EXAMPLES:
            self.differences.append(text)


@dataclass(frozen=True, slots=True)
class Definition:
    """How a table is defined."""

    sql: str
    """As SHOW CREATE TABLE writes it."""
    collation: str
    """Of the table."""
    schema_charset: str
    schema_collation: str


class Examination(Protocol):
    """What the commands ask a source without starting anything.

    Methods raise SourceError when it does not answer, and ConfigError when a source of its kind cannot do it.
    """

    @property
    def exposure(self) -> str:
        """What lets others read the password of the account, and what helps; empty while it is safe."""

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

    def tables(self, column: str = "") -> list[tuple[str, str]]:
        """Return schema and name of its tables as they are now, whatever the filter.

        Those that have a column, whatever the case of its name, if one is given.
        """

    def find(self, place: Cursor | None) -> str:
        """Return where the stream would begin for a saved place; None is the place that the configuration says.

        Raises PurgedError and SourceChangedError when the source does not have it.
        """

    def refused(self, places: Sequence[Cursor | None]) -> Mapping[Cursor | None, SluiceError]:
        """Return the places that the source does not have, and why; when it has none, raise the first reason."""

    def shortage(self, configs: Sequence[Any]) -> str:
        """Return what the source has too little of for all its destinations, and what helps; empty when nothing.

        ``configs`` are their configurations; this source is that of the first.
        """

    def table_reader(self) -> TableReader:
        """Make what reads its tables, over connections of its own."""

    def definition(self, schema: str, table: str) -> Definition:
        """Return how a table is defined now."""

    def reread(self, item: Item) -> Reread:
        """Decode a row event in quarantine again, with the tables as they are now; nothing that is stored changes.

        Raises PurgedError and SourceChangedError when its bytes were not kept and the source does not have it.
        """


class ParserFactory(Protocol):
    """Makes the parser of a destination."""

    def __call__(
        self,
        config: InstanceConfig,
        ring: Ring,
        *,
        start: Cursor | None,
        later: Sequence[Cursor | None] = (),
        on_begin: Callable[[Position | None, Before], None],
        on_state: Callable[[str, str], None],
        epoch: int = 0,
        stop: Position | None = None,
    ) -> Parser:
        """Make a parser that begins at ``start``, or where the configuration says if that is None.

        If the source does not have that place, the parser begins at the first of ``later``, in this order, that the
        source has; None is the place that the configuration says, `sluice.store.cursor.OLDEST` the oldest one of a
        source that has purged those before it in the list. ``refused`` says why it lacks the others.

        It calls, in its own thread, ``on_begin`` with the place where the stream begins and the GTIDs executed there
        (None if unknown) before its first put, and ``on_state`` with ``running`` or ``error`` and a text.

        What it writes where other servers write, too, it writes as of ``epoch``: a later one keeps it out. Its thread
        ends when it has read up to ``stop``.
        """
