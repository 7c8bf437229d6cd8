"""A parser that needs no database: the test says what it reads."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from sluice.instance.columns import SourceColumn
from sluice.instance.conditions.where import Conditions
from sluice.instance.config import InstanceConfig
from sluice.instance.sink.filters import TableFilter
from sluice.instance.source import Expiry, Proof, TableReader
from sluice.instance.status import ParserStatus
from sluice.protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from sluice.protocol.canal.packet_pb2 import Messages
from sluice.protocol.errors import ConfigError, PurgedError, SluiceError, UnknownDestinationError, UnknownTableError
from sluice.protocol.gtid import GtidSet
from sluice.protocol.position import Position
from sluice.server.embedded import EmbeddedServer
from sluice.store.cursor import Cursor
from sluice.store.ring import Flag, Kind, Ring, Staging
from sluice.store.segment import SegmentWriter

FIRST = 1_700_000_000_000
"""When the first event was written, ms since 1970."""


class Source:
    """Fills the ring with transactions of one entry, numbered from 0: a parser that needs no database."""

    failure = None
    refused: Mapping[Cursor, SluiceError] = {}
    status = ParserStatus(behind=0.0)

    def __init__(
        self,
        config: InstanceConfig,
        ring: Ring,
        *,
        start: Cursor | None,
        later: Sequence[Cursor | None] = (),
        on_begin: Callable[[Position | None, GtidSet | None], None],
        on_state: Callable[[str, str], None],
        epoch: int = 0,
        stop: Position | None = None,
    ) -> None:
        self.ring = ring
        self.writer = SegmentWriter(ring.pool)
        self.source = ring.sources.intern(("", "101"))
        self.file = ring.files.intern(("bin.000001", 1_700_000_000))
        self.count = (start.position.begin - 4) // 100 if start is not None and start.position is not None else 0
        self.on_begin, self.on_state = on_begin, on_state

    def columns(self, schema: str, table: str, at: Position | None = None) -> list[SourceColumn]:
        if (schema, table) != ("shop", "goods"):
            raise UnknownTableError(f"{schema}.{table} is unknown")
        return [SourceColumn("id", "bigint(20) unsigned", is_key=True), SourceColumn("name", "varchar(20)", "utf8mb4")]

    def check_conditions(self, conditions: Conditions) -> None:
        """All can be judged."""

    def tables(self) -> list[tuple[str, str]]:
        return [("crm", "notes"), ("shop", "goods"), ("shop", "orders")]

    def table_reader(self) -> TableReader:
        """There is none."""
        raise ConfigError("this source has no tables to read")

    def find_place(self, wanted: int | str | None) -> Cursor:
        """It has all from its first event on, and nothing of a time before that."""
        if isinstance(wanted, int) and wanted < FIRST:
            raise PurgedError(f"the source has purged the binlog at the time {wanted} ms")
        return Cursor.at(Position("101", "bin.000001", FIRST // 1000, 4, 0))

    def expiries(self, places: Sequence[Position]) -> list[Expiry | None]:
        """Nothing is purged."""
        return [None] * len(places)

    def distances(self, places: Sequence[Position], to: Position) -> list[int | None]:
        """Nothing is known."""
        del to
        return [None] * len(places)

    def begin_at(self, places: Sequence[Cursor | None]) -> None:
        """It has begun."""

    def prove(self, place: Cursor, sample: bytes) -> Proof:
        """It has everything."""
        del sample
        return Proof(place)

    def probe(self) -> None:
        """It answers."""

    def announce(self, change: str) -> None:
        """It says nothing of itself."""

    def refilter(self, table_filter: TableFilter) -> None:
        """The test says what comes."""

    def end(self) -> Position:
        return Position("101", "bin.000001", 1_700_000_000, 4 + 100 * self.count, 0)

    def start(self) -> None:
        self.on_begin(Position("101", "bin.000001", 1_700_000_000, 4 + 100 * self.count, 0), None)
        self.on_state("running", "")

    def stop(self) -> None:
        """Nothing runs."""

    def join(self, timeout: float | None = None) -> None:
        """Nothing runs."""

    def put(
        self,
        count: int = 1,
        *,
        size: int = 0,
        commits: int | None = None,
        rows: int = 1,
        transaction: bool = False,
        table: str = "goods",
        keyed: bool = True,
    ) -> None:
        """Put entries of a table of `shop`, each larger by `size` bytes.

        The last `commits` of them end a transaction, by default all.

        An entry has `rows` rows; the first has its number, each further one 1000 more than the one before. Without
        ``keyed`` they have no primary key. With ``transaction``, a begin comes before them and an end after them.
        """
        staging = Staging()
        number_of = self.ring.tables.intern(("shop", table))
        if transaction:
            commits = 0
            self._put_edge(staging, EntryType.TRANSACTIONBEGIN, Kind.TRANSACTION_BEGIN)
        for left in reversed(range(count)):
            entry = Entry(entryType=EntryType.ROWDATA)
            entry.header.schemaName, entry.header.tableName = "shop", table
            entry.header.eventType = EventType.INSERT
            entry.header.logfileName = "bin.000001"
            change = RowChange(eventType=EventType.INSERT)
            for row in range(rows):
                number = str(self.count + 1000 * row)
                column = change.rowDatas.add().afterColumns.add()
                column.index, column.sqlType, column.name, column.isKey = 0, 4, "id", keyed
                column.mysqlType, column.updated, column.value = "bigint(20) unsigned", True, number
            change.sql = "." * size
            entry.storeValue = change.SerializeToString()
            self.writer.write_framed(entry.SerializeToString())
            flags = Flag.BOUNDARY if commits is None or left < commits else 0
            self._add(staging, Kind.ROW_DATA, flags, event_type=EventType.INSERT, table=number_of, rows=rows)
        if transaction:
            self._put_edge(staging, EntryType.TRANSACTIONEND, Kind.TRANSACTION_END, Flag.BOUNDARY)
        assert self.ring.put(staging)

    def _put_edge(self, staging: Staging, entry_type: "EntryType.ValueType", kind: Kind, flags: int = 0) -> None:
        entry = Entry(entryType=entry_type)
        entry.header.logfileName = "bin.000001"
        self.writer.write_framed(entry.SerializeToString())
        self._add(staging, kind, flags)

    def _add(self, staging: Staging, kind: Kind, flags: int, **more: int) -> None:
        begin = 4 + 100 * self.count
        staging.add_entry(
            self.writer,
            kind,
            flags=flags,
            source=self.source,
            execute_ms=int(time.time() * 1000),
            event_offset=begin,
            file=self.file,
            begin=begin,
            next_file=self.file,
            next_begin=begin + 100,
            **more,
        )
        self.count += 1


async def start_embedded(folder: Path, **settings: Any) -> tuple[EmbeddedServer, dict[str, Source]]:
    """Start the destinations ``example`` and ``other``; cursors are kept in the folder."""
    sources: dict[str, Source] = {}

    def load(destination: str) -> InstanceConfig:
        if destination not in {"example", "other"}:
            raise UnknownDestinationError(f"no destination {destination!r}")
        return InstanceConfig(
            destination=destination,
            file_data_dir=folder,
            **settings,
        )

    def make_source(config: InstanceConfig, ring: Ring, **callbacks: Any) -> Source:
        return sources.setdefault(config.destination, Source(config, ring, **callbacks))

    embedded = EmbeddedServer(load, make_source)
    for destination in ("example", "other"):
        await embedded.start(destination)
    return embedded, sources


def numbers(messages: Messages) -> list[int]:
    """The numbers of the entries of a batch."""
    changes = [RowChange.FromString(Entry.FromString(it).storeValue) for it in messages.messages]
    return [int(change.rowDatas[0].afterColumns[0].value) for change in changes]
