"""Changes of many tables, written to a target so that it is like the source after the last of them.

Rows of a table with a primary key are written together, as their last changes leave them; why that is right says
`sluice.client_sdk.spark.apply`. Rows without one are found by all columns. Both are written without a check of foreign
keys: the source has checked them. But what its InnoDB does by ON DELETE and ON UPDATE is not in its binlog (before
MySQL 9.6, and on MariaDB). So the tables of such a foreign key, and those that others connect with them, are written
change by change, in their order, with the check, and the target does the same.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ..protocol.canal.arrow import EnvelopeDecoder
from ..protocol.errors import TargetError
from ..protocol.identifiers import quote_table
from .changes import last_of_keys
from .statements import RESUMES, Statement, TargetTable
from .target import execute

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymysql.cursors import Cursor
    from typing_extensions import Buffer

Name = tuple[str, str]
"""Schema and name of a table."""


class Writer:
    """Writes changes over one session at a time. What it knows of the target's tables it asks once."""

    def __init__(
        self, source: str = "", *, is_checked: bool = False, admit: "Callable[[Cursor, Name], None] | None" = None
    ) -> None:
        """``source``: what the tables are of, for errors.

        ``is_checked``: the session counts the rows that a statement finds, and a change has to find its row. Triggers
        of the target are refused, and its foreign keys act. ``admit`` is called when a table is first written to.
        """
        self._source = source
        self._is_checked = is_checked
        self._admit = admit
        self._decoder = EnvelopeDecoder(split_keys=False)
        self._tables: dict[Name, TargetTable] = {}
        self._related: dict[Name, bool] = {}

    @property
    def is_known(self) -> bool:
        """Whether it knows something of tables, which may have been altered since."""
        return bool(self._tables)

    def forget(self) -> None:
        """Forget what it knows of tables: they may have been altered."""
        self._tables.clear()
        self._related.clear()

    def write(self, cursor: "Cursor", changes: pa.RecordBatch, data: "Buffer", packet: int) -> None:
        """Write changes, as `EnvelopeDecoder` decodes them from ``data``; ``packet``: bytes that a statement may have.

        Raises TargetError, and what a later try may not meet.
        """
        related: list[Name] = []
        for name, rows in _by_table(changes):
            some = changes.take(rows)
            has_key = some["_key"].null_count == 0
            table = self._table(cursor, name, needs_key=has_key)
            if has_key and self._related[name]:
                if some["_op"][0].as_py() == "READ":
                    raise TargetError(
                        f"{'.'.join(name)} on the target has foreign keys with ON DELETE or ON UPDATE, or is connected"
                        " by foreign keys with a table that has. A snapshot cannot fill it: while that runs, these"
                        " would not act alike on both sides. Drop them there, or copy the tables yourself and begin at"
                        " a position"
                    )
                related.append(name)
            elif has_key:
                self._write_by_key(cursor, table, some, packet)
            else:
                self._write_by_columns(cursor, table, some, packet)
        if related:
            cursor.execute("SET foreign_key_checks = 1")
            self._write_in_order(cursor, related, self._decoder.decode(data), packet)
            cursor.execute("SET foreign_key_checks = 0")

    def empty(self, cursor: "Cursor", name: Name) -> None:
        """Delete the rows of a table, once it is admitted. Raises as `write`."""
        self._table(cursor, name, needs_key=False)
        cursor.execute(f"DELETE FROM {quote_table(*name)}")  # noqa: S608

    def _table(self, cursor: "Cursor", name: Name, *, needs_key: bool) -> TargetTable:
        if name not in self._tables:
            shown = ".".join(name)
            source = f"{shown} of {self._source}" if self._source else shown
            table = TargetTable.load(cursor, name, source, needs_key=needs_key)
            self._related[name] = self._is_checked and _check_relations(cursor, name)
            if self._admit is not None:
                self._admit(cursor, name)
            self._tables[name] = table
        return self._tables[name]

    def _write_by_key(self, cursor: "Cursor", table: TargetTable, changes: pa.RecordBatch, packet: int) -> None:
        """Make each row as its last change leaves it."""
        last = last_of_keys(changes["_schema"], changes["_table"], changes["_key"])
        changes = changes if last is None else changes.take(last)
        deleted = pc.equal(changes["_op"], "DELETE")
        rows = pc.indices_nonzero(deleted).cast(pa.int32())
        execute(cursor, table, table.delete(changes["before"], changes["_key"], rows))
        rows = pc.indices_nonzero(pc.invert(deleted)).cast(pa.int32())
        execute(cursor, table, table.replace(changes["after"], changes["_key"], packet, rows))

    def _write_by_columns(self, cursor: "Cursor", table: TargetTable, changes: pa.RecordBatch, packet: int) -> None:
        """Repeat the changes in their order, each on one of the rows that are equal."""
        before, after, has_to_find = changes["before"], changes["after"], self._is_checked
        for operation, rows in _runs(changes["_op"]):
            if operation in ("INSERT", "READ"):
                execute(cursor, table, table.insert_each(after, packet, rows))
            elif operation == "UPDATE":
                execute(cursor, table, table.update_each(before, after, rows), has_to_find=has_to_find)
            else:
                execute(cursor, table, table.delete_each(before, rows), has_to_find=has_to_find)

    def _write_in_order(self, cursor: "Cursor", names: list[Name], changes: pa.RecordBatch, packet: int) -> None:
        """Repeat the changes of tables that refer to each other, in their order, and so that a repetition is harmless.

        A row that was changed by a cascade of the target meanwhile may have its new key already.
        """
        found: dict[int, tuple[TargetTable, list[Statement]]] = {}
        for name, rows in _by_table(changes):
            if name not in names:
                continue
            table = self._tables[name]
            operations = changes["_op"].take(rows)
            inserted, updated, deleted = (
                rows.filter(pc.equal(operations, it)) for it in ("INSERT", "UPDATE", "DELETE")
            )
            for number, statement in table.updates(changes["before"], changes["after"], updated):
                found[number] = table, [statement]
            for kind in (inserted, updated):
                for number, statement in table.upserts(changes["after"], packet, kind):
                    found.setdefault(number, (table, []))[1].append(statement)
            for number, statement in table.deletes(changes["before"], deleted):
                found[number] = table, [statement]
        for number in sorted(found):
            table, ways = found[number]
            for statement in ways:
                if execute(cursor, table, [statement]):
                    break


def _by_table(changes: pa.RecordBatch) -> Iterator[tuple[Name, pa.Int32Array]]:
    """Give the numbers of the rows of each table."""
    schemas, tables = (changes[name].dictionary_encode() for name in ("_schema", "_table"))
    numbers = pc.add(pc.multiply(schemas.indices, len(tables.dictionary)), tables.indices)
    for number in pc.unique(numbers).to_pylist():
        schema, table = divmod(number, len(tables.dictionary))
        name = schemas.dictionary[schema].as_py(), tables.dictionary[table].as_py()
        yield name, pc.indices_nonzero(pc.equal(numbers, number)).cast(pa.int32())


def _runs(operations: pa.StringArray) -> Iterator[tuple[str, pa.Int32Array]]:
    """Give the numbers of the rows that follow one another with the same operation."""
    encoded = pc.run_end_encode(operations, run_end_type=pa.int32())
    begin = 0
    for end, operation in zip(encoded.run_ends.to_pylist(), encoded.values.to_pylist(), strict=True):
        yield operation, pa.array(range(begin, end), pa.int32())
        begin = end


def _check_relations(cursor: "Cursor", name: Name) -> bool:
    """Whether foreign keys connect it with one that changes rows. Raises TargetError when it has triggers."""
    cursor.execute(_TRIGGERS, name)
    for (trigger,) in cursor.fetchall():
        raise TargetError(
            f"{'.'.join(name)} on the target has the trigger {trigger}, which would repeat what the source's triggers"
            f" have done already: drop it there. {RESUMES}"
        )
    connected, seen = [name], {name}
    for table in connected:
        cursor.execute(_FOREIGN_KEYS, (*table, *table))
        for schema, own, referenced_schema, referenced, changes_rows in cursor.fetchall():
            if changes_rows:
                return True
            for it in ((schema, own), (referenced_schema, referenced)):
                if it not in seen:
                    seen.add(it)
                    connected.append(it)
    return False


_TRIGGERS = (
    "SELECT trigger_name FROM information_schema.triggers WHERE event_object_schema = %s AND event_object_table = %s"
    " LIMIT 1"
)
_ACTIONS = "('CASCADE', 'SET NULL', 'SET DEFAULT')"
_FOREIGN_KEYS = (
    "SELECT constraint_schema, table_name, unique_constraint_schema, referenced_table_name,"  # noqa: S608
    f" delete_rule IN {_ACTIONS} OR update_rule IN {_ACTIONS} FROM information_schema.referential_constraints"
    " WHERE constraint_schema = %s AND table_name = %s"
    " OR unique_constraint_schema = %s AND referenced_table_name = %s"
)
