"""Reading tables as they are now: `spark.read.format("sluice")` with the option ``snapshot``.

The rows have the form of those of the stream: typed columns of one table, or the envelope of all, each row an INSERT
without a position. Every part of a table is read by a SELECT of its own, so the rows are not those of one moment. For
those, take a position before, and apply the changes from there on afterwards (docs/spark.md).
"""

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Final, cast

import pyarrow as pa
import pymysql
from pyspark.sql.datasource import DataSourceReader, InputPartition

from ...login.columns import SnapshotColumn
from ...login.tables import KeyRange, SnapshotTable, describe
from ...login.visibility import wait_until_visible
from ...protocol.errors import BadParameterError, SourceError
from ...protocol.position import Position
from ...sql.database import Database, reason
from .keyranges import connect, ranges, read
from .options import Options
from .ranges import Envelope, Form, Typed, place_of_one

ZONE: Final = "UTC"
"""Of the texts of TIMESTAMP values."""


def database_of(options: Options) -> Database:
    """Return the database that the options name. Raises BadParameterError."""
    return Database.of(
        options.snapshot or "",
        password=options.snapshot_password,
        password_file=options.snapshot_password_file,
        variable="SLUICE_SNAPSHOT_PASSWORD",
    )


def form_of(options: Options) -> Form:
    """Return the form that the options ask for; the database is asked for the columns of the table."""
    if options.table is None:
        return Envelope()
    columns = options.columns
    if columns is None:
        table = describe_all(database_of(options), [options.table])[0]
        columns = tuple((column.name, column.mysql_type) for column in table.columns)
    return Typed(options.table, columns, ZONE, options.invalid_dates, options.missing_columns, options.metadata)


def describe_all(database: Database, names: Sequence[tuple[str, str]]) -> list[SnapshotTable]:
    """Ask a database for tables. Raises SourceError, also for one that it does not have."""
    with closing(connect(database)) as session:
        try:
            return [describe(session, *name) for name in names]
        except (pymysql.MySQLError, OSError) as error:
            raise SourceError(f"{database} does not describe its tables: {reason(error)}") from error


@dataclass
class TablePartition(InputPartition):
    """What one task reads: a range of a table."""

    table: SnapshotTable
    part: KeyRange


class TableReader(DataSourceReader):
    """The rows of tables, in ranges of their keys."""

    def __init__(self, options: Options, form: Form) -> None:
        """Nothing is sent yet. Raises BadParameterError."""
        self._options = options
        self._form = form
        self._database = database_of(options)

    def partitions(self) -> Sequence[InputPartition]:
        """Cut the tables into ranges."""
        options = self._options
        names = [options.table] if options.table is not None else self._ask()
        parts: list[InputPartition] = []
        if options.from_ is not None:
            self._wait(place_of_one(options.from_))
        for table in describe_all(self._database, names):
            chosen = replace(table, columns=self._chosen(table))
            parts += [TablePartition(chosen, part) for part in ranges(self._database, chosen, options.snapshot_rows)]
        return parts

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a range, in an executor."""
        options, given = self._options, cast("TablePartition", partition)
        decoder = self._form.decoder()
        rate = options.max_rows_per_second and options.max_rows_per_second / options.partitions
        for piece in read(self._database, given.table, given.part, rate=rate):
            yield self._form.choose(decoder.decode(piece.data))

    def _wait(self, position: Position) -> None:
        """Wait until the database shows all that stands before a position."""
        with closing(connect(self._database)) as session:
            try:
                wait_until_visible(session, position)
            except (pymysql.MySQLError, OSError) as error:
                raise SourceError(f"{self._database} refuses: {reason(error)}") from error

    def _ask(self) -> list[tuple[str, str]]:
        """Ask the server for the tables that the stream has."""
        with self._options.client() as client:
            found = [split_name(name) for name in client.tables(self._options.filter or "")]
        if not found:
            raise BadParameterError(
                f"destination {self._options.destination} has no table that matches: name one by option table", "filter"
            )
        return found

    def _chosen(self, table: SnapshotTable) -> tuple[SnapshotColumn, ...]:
        if not isinstance(self._form, Typed):
            return table.columns
        wanted = dict(self._form.columns)
        return tuple(column for column in table.columns if column.name in wanted)


def split_name(name: str) -> tuple[str, str]:
    """Return schema and name of ``schema.table``."""
    schema, _, table = name.partition(".")
    return schema, table
