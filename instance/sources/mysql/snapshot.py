"""Reading rows of tables for snapshots: a chunk is one consistent read between two looks at the end of the binlog."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pymysql

from ....login import tables
from ....login.session import MysqlSession
from ....login.tables import LITERAL, SETTINGS, KeyRange, SnapshotTable
from ....login.visibility import wait_until_visible
from ....protocol.canal.resultset import RowEncoder
from ....protocol.errors import BadParameterError, SourceError
from ....protocol.position import Position
from ....store.snapshot import Chunk, Piece, Wish
from ...source import ReadableTable
from ...zones import offsets_of
from .condition import translate
from .config import MysqlConfig
from .connection import Connection
from .start import StartFinder

PIECE: Final = 1 << 20
"""Bytes of rows that are given at once."""
CHUNK: Final = 8 << 20
"""Bytes of rows that are read at once, about ..."""
MOST: Final = 4 * CHUNK
"""... and at most, but for a last row."""
FIRST_ROWS: Final = 500
GROWTH: Final = 8
"""Rows of the first chunk of a table, and by how much the next one may be longer."""


@dataclass(frozen=True, slots=True)
class _Table:
    """A table with what is asked of it."""

    table: SnapshotTable
    where: str
    key: tuple[int, ...]
    """The columns of its key, by their places."""
    delivered: tuple[int, ...]
    """The columns that pass the filter, by their places."""


class TableReader:
    """Reads tables of the source of a destination: see `sluice.instance.source.TableReader`."""

    def __init__(self, config: MysqlConfig, known_files: Callable[[], Sequence[tuple[str, int]]]) -> None:
        """``known_files`` are binlog files with their times of creation; others are looked at."""
        self._config = config
        self._known_files = known_files
        self._zone = offsets_of(config.time_zone)
        self._rows: dict[tuple[str, str], int] = {}
        self._connection: Connection | None = None

    def close(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """Make a call that waits for the source fail; any thread may call this."""
        connection = self._connection
        if connection is not None:
            connection.shutdown()

    def describe(self, schema: str, table: str, where: str) -> ReadableTable:
        """See `sluice.instance.source.TableReader.describe`."""
        with self._asking(f"{schema}.{table}") as connection:
            found = self._describe(connection, schema, table, where)
            expected = tables.estimate(connection.session, found.table, KeyRange())
            return ReadableTable(schema, table, expected, found.key, connection.facts.lower_case_table_names != 0)

    def read(self, wish: Wish) -> Chunk:
        """See `sluice.instance.source.TableReader.read`."""
        if not all(map(LITERAL.fullmatch, (*(wish.after or ()), *(wish.end or ())))):
            raise SourceError(f"the progress of the snapshot of {wish.schema}.{wish.name} was changed: cancel it")
        with self._asking(f"{wish.schema}.{wish.name}") as connection:
            session = connection.session
            wait_until_visible(session, self._end(connection))
            found = self._describe(connection, wish.schema, wish.name, wish.where)
            end = wish.end or tables.last_key(connection.session, found.table)
            high = self._begin(connection)
            pieces: list[Piece] = []
            is_last = end is None
            if end is not None:
                is_last = self._select(session, found, KeyRange(wish.after, end), wish.rate, pieces)
        with self._asking(f"{wish.schema}.{wish.name}") as connection:  # the same one, unless the chunk was too long
            return Chunk(
                pieces=pieces or [Piece(RowEncoder(wish.schema, wish.name, ()).take_block()[0], None)],
                high=self._commit(connection, high),
                key=found.key,
                end=end,
                is_last=is_last,
                server_id=connection.facts.server_id,
                time=time.time(),  # noqa: TID251  shown in each row
            )

    @contextmanager
    def _asking(self, table: str) -> Iterator[Connection]:
        """Give the connection; after an error the next call has another one."""
        try:
            if self._connection is None:
                self._connection = Connection(self._config)
                self._connection.query(SETTINGS)
            yield self._connection
        except (pymysql.MySQLError, OSError) as error:
            self.close()
            raise SourceError(f"{self._config.master_address} does not give rows of {table}: {error}") from error
        except SourceError:
            self.close()
            raise

    def _end(self, connection: Connection) -> Position:
        return StartFinder(connection, self._config, lambda: Connection(self._config)).end_position(self._known_files())

    def _begin(self, connection: Connection) -> Position | None:
        """Begin a consistent read; return its place in the binlog, which MariaDB knows exactly."""
        session = connection.session
        if not connection.facts.mariadb:
            return None
        session.rows("START TRANSACTION WITH CONSISTENT SNAPSHOT")
        status = dict(session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'"))
        file, offset = status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])
        finder = StartFinder(connection, self._config, lambda: Connection(self._config))
        return finder.position_of(file, offset, self._known_files())

    def _commit(self, connection: Connection, high: Position | None) -> Position:
        """End the consistent read; return the place up to which it may have seen changes."""
        if high is None:
            return self._end(connection)
        connection.session.rows("COMMIT")
        return high

    def _describe(self, connection: Connection, schema: str, name: str, where: str) -> _Table:
        if connection.facts.row_image != "FULL":
            raise SourceError(
                f"binlog_row_image is {connection.facts.row_image}: changes do not have whole rows, so they cannot take"
                " the place of those that a snapshot has read. SET GLOBAL binlog_row_image = 'FULL', and let the"
                " applications reconnect"
            )
        table = tables.describe(connection.session, schema, name)
        if not table.key:
            raise BadParameterError(
                f"{schema}.{name} has no key that it could be read by in parts: neither a primary key nor a unique key"
                " without NULLs, or its first column is an ENUM or SET",
                "tables",
            )
        conditions = self._config.conditions()
        if conditions is not None and conditions.of(schema, name) is not None:
            raise BadParameterError(
                f"sluice.instance.filter.where keeps changes of {schema}.{name} back: without these it cannot be said"
                " which rows that are read are outdated",
                "tables",
            )
        fields = self._config.field_filter()
        places = {column.name: place for place, column in enumerate(table.columns)}
        delivered = tuple(place for name_, place in places.items() if fields.keeps(schema, name, name_))
        key = tuple(sorted(places[part.column.name] for part in table.key))
        if not set(key) <= set(delivered):
            raise BadParameterError(
                f"the filter of columns leaves out the key of {schema}.{name}: its changes cannot be matched with rows"
                " that are read",
                "tables",
            )
        return _Table(table, translate(where, table), key, delivered)

    def _select(self, session: MysqlSession, found: _Table, part: KeyRange, rate: int, pieces: list[Piece]) -> bool:
        """Read the next rows of a range; return whether those were all."""
        table = found.table
        wanted = self._rows.get((table.schema, table.name), FIRST_ROWS)
        limit = min(wanted, rate) if rate else wanted
        columns = [table.columns[place] for place in found.delivered]
        encoder = RowEncoder(
            table.schema,
            table.name,
            [(column.name, column.mysql_type, column.is_key) for column in columns],
            len(table.key),
            indexes=found.delivered,
            keys=found.key,
            zone=self._zone,
        )
        selected = ", ".join([*(column.text for column in columns), table.bounds])
        chosen = f"{part.where(table)} AND ({found.where})" if found.where else part.where(table)
        sql = f"SELECT {selected} FROM {table.forced}{chosen}{table.order} LIMIT {limit}"
        rows = size = 0
        for _ in tables.feed(session, sql, encoder, PIECE):
            size += encoder.size
            rows += encoder.rows
            block, last = encoder.take_block()
            pieces.append(Piece(block, table.key_of([(text or b"").decode() for text in last])))
            if size > MOST and not encoder.is_finished:
                self.close()  # the rest is not read
                break
        if size:
            fitting = max(1, rows * CHUNK // size)
            self._rows[table.schema, table.name] = min(fitting, wanted * GROWTH)
        return rows < limit and encoder.is_finished
