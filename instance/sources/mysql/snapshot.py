"""Reading rows of tables for snapshots: a chunk is one consistent read between two looks at the end of the binlog.

A table without a key is read as a whole, as it was at one place in the binlog. MariaDB says where that of a consistent
read is. MySQL does not, so another session locks this table against changes for the moment in which the read begins and
the place is looked up: LOCK TABLES … READ waits until no transaction is left that has changed the table, so that all
changes before the place are visible, and none comes before the lock has ended. A table whose engine has no transactions
is locked until it is read, by FLUSH TABLES … WITH READ LOCK.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

import pymysql
from pymysql.constants import ER

from ....login import tables
from ....login.columns import SnapshotColumn
from ....login.session import MysqlSession
from ....login.tables import LITERAL, SETTINGS, Key, KeyRange, SnapshotTable
from ....login.visibility import wait_until_visible
from ....protocol.canal.resultset import RowBlock, RowEncoder
from ....protocol.errors import BadParameterError, SluiceError, SourceError
from ....protocol.identifiers import quote_name
from ....protocol.mask import KINDS, Masker
from ....protocol.position import Position
from ....store.snapshot import Chunk, Piece, Wish
from ...columns import SourceColumn
from ...conditions.sql import translate
from ...source import ReadableTable
from ...zones import offsets_of
from .config import MysqlConfig
from .connection import Connection
from .start import StartFinder

PIECE: Final = 1 << 20
"""Bytes of rows that are given at once."""
CHUNK: Final = 8 << 20
"""Bytes of rows that are read at once, about ..."""
MOST: Final = 4 * CHUNK
"""... and at most, but for a last row."""
PATIENCE: Final = 3
"""Seconds for which the lock of a table is waited for, since new changes of the table wait as long."""
FIRST_ROWS: Final = 500
GROWTH: Final = 8
"""Rows of the first chunk of a table, and by how much the next one may be longer."""

_BEGIN: Final = "START TRANSACTION WITH CONSISTENT SNAPSHOT"


@dataclass(frozen=True, slots=True)
class _Table:
    """A table with what is asked of it."""

    table: SnapshotTable
    where: str
    key: tuple[int, ...]
    """The columns of its key, by their places; none if it is read as a whole."""
    delivered: tuple[int, ...]
    """The columns that pass the filter, by their places."""

    @property
    def selected(self) -> str:
        """What is selected of a row: the columns, then the row of the key."""
        columns = (self.table.columns[place].text for place in self.delivered)
        return ", ".join(filter(None, [*columns, self.table.bounds]))


class TableReader:
    """Reads tables of the source of a destination: see `sluice.instance.source.TableReader`."""

    def __init__(
        self,
        config: MysqlConfig,
        known_files: Callable[[], Sequence[tuple[str, int]]],
        source: Callable[[], str] = lambda: "",
    ) -> None:
        """``known_files`` are binlog files with their times of creation; others are looked at.

        ``source`` says what positions call the server whose binlog is read; empty for any.
        """
        self._config = config
        self._known_files = known_files
        self._source = source
        self._zone = offsets_of(config.time_zone)
        self._rows: dict[tuple[str, str], int] = {}
        self._connection: Connection | None = None
        self._lock: Connection | None = None
        self._begun: tuple[_Table, Position, bool] | None = None
        """The table of `begin`, its place, and whether the lock has to last until it is read."""

    def close(self) -> None:
        """Close the connections."""
        self._begun = None
        self._unlock()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def interrupt(self) -> None:
        """Make a call that waits for the source fail; any thread may call this."""
        for connection in (self._connection, self._lock):
            if connection is not None:
                connection.shutdown()

    def describe(
        self, schema: str, table: str, where: str, member: str = "", *, is_scanned: bool = False
    ) -> Sequence[ReadableTable]:
        """See `sluice.instance.source.TableReader.describe`."""
        if member:
            raise BadParameterError(f"the source is a single one, and has no member {member}", "member")
        with self._asking(f"{schema}.{table}") as connection:
            found = self._describe(connection, schema, table, where)
            expected = tables.estimate(connection.session, found.table, KeyRange())
            if not (found.key or where or is_scanned):
                self._check_size(found.table, tables.storage(connection.session, found.table)[0])
            readable = ReadableTable(
                schema,
                table,
                expected,
                found.key,
                connection.facts.lower_case_table_names != 0,
                tuple(found.table.columns[place] for place in found.delivered),
                found.table.key,
            )
            return [readable]

    def begin(self, wish: Wish) -> Position:
        """See `sluice.instance.source.TableReader.begin`."""
        with self._asking(f"{wish.schema}.{wish.name}") as connection:
            session = connection.session
            found = self._describe(connection, wish.schema, wish.name, wish.where)
            _, is_transactional = tables.storage(session, found.table)
            if is_transactional and connection.facts.mariadb:
                wait_until_visible(session, self._end(connection), PATIENCE)
                place = self._begin_read(connection)
            else:
                self._lock = Connection(self._config)  # that of one session ends when it begins a transaction
                _lock(self._lock, found.table, is_transactional=is_transactional)
                place = self._end(self._lock)
                if place.source != connection.facts.source:
                    raise SourceError(f"{connection.name} is several servers: a table without a key needs one of them")
                session.rows(_BEGIN)
            self._begun = found, place, not is_transactional
            return place

    def read(self, wish: Wish) -> Chunk:
        """See `sluice.instance.source.TableReader.read`."""
        if not all(map(LITERAL.fullmatch, (*(wish.after or ()), *(wish.end or ())))):
            raise SourceError(f"the progress of the snapshot of {wish.schema}.{wish.name} was changed: cancel it")
        pieces: list[Piece] = []
        end: Key | None = None
        high: Position | None = None
        is_last = True
        with self._asking(f"{wish.schema}.{wish.name}") as connection:
            session = connection.session
            if self._begun is not None:
                found, high, is_locked = self._begun
                if not is_locked:
                    self._unlock()
                self._select_all(session, found, pieces)
                self._unlock()
                self._begun = None
            else:
                wait_until_visible(session, self._end(connection))
                found = self._describe(connection, wish.schema, wish.name, wish.where)
                if found.key:  # else it had one
                    end = wish.end or tables.last_key(session, found.table)
                if end is not None:
                    if connection.facts.mariadb and tables.storage(session, found.table)[1]:
                        high = self._begin_read(connection)
                    is_last = self._select(session, found, KeyRange(wish.after, end), wish.rate, pieces)
        with self._asking(f"{wish.schema}.{wish.name}") as connection:  # the same one, unless the chunk was too long
            if high is not None:
                connection.session.rows("COMMIT")
            return Chunk(
                pieces=pieces or [Piece(RowEncoder(wish.schema, wish.name, ()).take_block()[0], None)],
                high=high or self._end(connection),
                key=found.key,
                end=end,
                is_last=is_last,
                server_id=connection.facts.server_id,
                time=time.time(),  # noqa: TID251  shown in each row
            )

    def scan(self, wish: Wish) -> Iterator[RowBlock]:
        """See `sluice.instance.source.TableReader.scan`."""
        with self._asking(f"{wish.schema}.{wish.name}") as connection:
            session = connection.session
            wait_until_visible(session, self._end(connection))
            found = self._describe(connection, wish.schema, wish.name, wish.where)
            encoder = self._encoder(found)
            chosen = f" WHERE {found.where}" if found.where else ""
            sql = f"SELECT {found.selected} FROM {found.table.forced}{chosen}{found.table.order}"
            for _ in tables.feed(session, sql, encoder, PIECE):
                yield encoder.take_block()[0]

    def end(self) -> Position:
        """See `sluice.instance.source.TableReader.end`."""
        with self._asking("tables") as connection:
            return self._end(connection)

    @contextmanager
    def _asking(self, table: str) -> Iterator[Connection]:
        """Give the connection, to the server whose binlog is read; after an error the next call has another one."""
        try:
            if self._connection is None:
                self._connection = Connection(self._config)
                self._connection.query(SETTINGS)
                self._connection.query("SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            here, read = self._connection.facts.source, self._source()
            if read not in ("", here):  # an address may lead to another server while the dump stays with the first
                raise SourceError(
                    f"{self._connection.name} is now the server {here}, but the binlog is read from {read}: the rows of"
                    f" {table} are read as soon as both are the same server. Let the address lead to one of them alone"
                )
            yield self._connection
        except (pymysql.MySQLError, OSError) as error:
            self.close()
            raise SourceError(f"{self._config.master_address} does not give rows of {table}: {error}") from error
        except SluiceError:
            self.close()
            raise

    def _end(self, connection: Connection) -> Position:
        return StartFinder(connection, self._config, lambda: Connection(self._config)).end_position(self._known_files())

    def _begin_read(self, connection: Connection) -> Position:
        """Begin a consistent read of MariaDB; return its place in the binlog, which it knows exactly."""
        session = connection.session
        session.rows(_BEGIN)
        status = dict(session.rows("SHOW STATUS LIKE 'binlog_snapshot_%'"))
        file, offset = status["Binlog_snapshot_file"], int(status["Binlog_snapshot_position"])
        finder = StartFinder(connection, self._config, lambda: Connection(self._config))
        return finder.position_of(file, offset, self._known_files())

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.close()

    def _check_size(self, table: SnapshotTable, size: int) -> None:
        limit = self._config.snapshot_whole_bytes
        if size > limit or not limit:
            raise BadParameterError(
                f"{table} has no key by which it could be read in parts: a primary key, or a unique key without NULLs,"
                f" that does not begin with an ENUM or SET. Its {size} bytes are more than"
                f" sluice.instance.snapshot.withoutKey.maxBytes ({limit}) allows to read as a whole. Give it a key, or"
                " raise that limit",
                "tables",
            )

    def _describe(self, connection: Connection, schema: str, name: str, where: str) -> _Table:
        if connection.facts.row_image != "FULL":
            raise SourceError(
                f"binlog_row_image is {connection.facts.row_image}: changes do not have whole rows, so they cannot take"
                " the place of those that a snapshot has read. SET GLOBAL binlog_row_image = 'FULL', and let the"
                " applications reconnect"
            )
        table = tables.describe(connection.session, schema, name)
        conditions = self._config.conditions()
        if conditions is not None and conditions.of(schema, name) is not None:
            raise BadParameterError(
                f"sluice.instance.filter.where keeps changes of {schema}.{name} back, so that it cannot be said which"
                " rows that are read are outdated: leave the table out, or let the client have that condition instead",
                "tables",
            )
        grouping = self._config.grouping()
        if grouping.of(schema, name) is not None:
            raise BadParameterError(
                f"the rows of {schema}.{name} are delivered as those of another table (sluice.group.as), and rows that"
                " are read cannot be matched with them: leave the table out of the snapshot",
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
        masks = self._config.masks().of(schema, name)
        if masked := next((it.name for it in table.columns if it.is_key and it.name.upper() in masks), "") or next(
            (part.column.name for part in table.key if part.column.name.upper() in masks), ""
        ):
            raise BadParameterError(
                f"{table}.{masked} has a mask, and is part of the key by which rows are known: leave the table out of"
                " the snapshot",
                "tables",
            )
        plain = [table.columns[place].name for place in delivered if table.columns[place].name.upper() not in masks]
        return _Table(table, translate(where, table, plain), key, delivered)

    def _select(self, session: MysqlSession, found: _Table, part: KeyRange, rate: int, pieces: list[Piece]) -> bool:
        """Read the next rows of a range; return whether those were all."""
        table = found.table
        wanted = self._rows.get((table.schema, table.name), FIRST_ROWS)
        limit = min(wanted, rate) if rate else wanted
        encoder = self._encoder(found)
        chosen = f"{part.where(table)} AND ({found.where})" if found.where else part.where(table)
        sql = f"SELECT {found.selected} FROM {table.forced}{chosen}{table.order} LIMIT {limit}"
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

    def _select_all(self, session: MysqlSession, found: _Table, pieces: list[Piece]) -> None:
        """Read all rows of a table."""
        encoder = self._encoder(found)
        chosen = f" WHERE {found.where}" if found.where else ""
        size = 0
        for _ in tables.feed(session, f"SELECT {found.selected} FROM {found.table.sql}{chosen}", encoder, PIECE):
            size += encoder.size
            self._check_size(found.table, size)
            pieces.append(Piece(encoder.take_block()[0], None))

    def _encoder(self, found: _Table) -> RowEncoder:
        columns = [found.table.columns[place] for place in found.delivered]
        masks = self._config.masks().of(found.table.schema, found.table.name)
        given = {
            column.name: (KINDS[mask.kind], mask.characters, mask.shown(_source_column(column)).mysql_type)
            for column in columns
            if (mask := masks.get(column.name.upper())) is not None
        }
        return RowEncoder(
            found.table.schema,
            found.table.name,
            [(column.name, column.mysql_type, column.is_key) for column in columns],
            len(found.table.key),
            indexes=found.delivered,
            keys=found.key,
            zone=self._zone,
            masks=given,
            masker=Masker(self._config.mask_secret.get_secret_value().encode()) if given else None,
        )


def _source_column(column: SnapshotColumn) -> SourceColumn:
    return SourceColumn(column.name, column.mysql_type, column.charset)


def _lock(connection: Connection, table: SnapshotTable, *, is_transactional: bool) -> None:
    """Keep a table from being changed; all transactions that have changed it are at their end."""
    session = connection.session
    # Only without autocommit does InnoDB of MySQL 5.6 wait for transactions, and not for single statements.
    session.rows(f"SET autocommit = 0, lock_wait_timeout = {PATIENCE}, innodb_lock_wait_timeout = {PATIENCE}")
    try:
        if is_transactional:
            session.rows(f"LOCK TABLES {table.sql} READ")
        else:  # that would not wait for what is to be written to the binlog, before MySQL 5.7 and on MariaDB
            session.rows(f"FLUSH TABLES {table.sql} WITH READ LOCK")
    except pymysql.MySQLError as error:
        if error.args[0] == ER.LOCK_WAIT_TIMEOUT:
            raise SourceError(
                f"{table} has no key, so its snapshot begins while nothing changes it: a transaction has held it for"
                f" {PATIENCE} s; end that, or wait for the next attempt"
            ) from error
        refusals = ER.DBACCESS_DENIED_ERROR, ER.TABLEACCESS_DENIED_ERROR, ER.SPECIFIC_ACCESS_DENIED_ERROR
        if error.args[0] in refusals:
            more = "" if is_transactional else "GRANT RELOAD ON *.* TO it; "
            raise SourceError(
                f"{table} has no key, so its snapshot locks it for a moment, which the account may not:"
                f" {more}GRANT LOCK TABLES ON {quote_name(table.schema)}.* TO it"
            ) from error
        raise
