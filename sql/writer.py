"""Changes of many tables, written to a target so that it is like the source after the last of them.

Rows of a table with a primary key are written together, as their last changes leave them; why that is right says
`sluice.client_sdk.spark.apply`. Rows without one are found by all columns. Both are written without a check of foreign
keys: the source has checked them. But what its InnoDB does by ON DELETE and ON UPDATE is not in its binlog (before
MySQL 9.6, and on MariaDB). So the tables of such a foreign key, and those that others connect with them, are written
change by change, in their order, with the check, and the target does the same.
"""

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ..protocol.canal.arrow import EnvelopeDecoder
from ..protocol.errors import TargetError
from ..protocol.identifiers import quote_table
from .changes import ends_of_keys
from .statements import Conflict, Statement, TargetTable
from .tables import KnownTable, Name, Tables
from .target import DuplicateRowError, RefusedRowError, execute, set_modes

if TYPE_CHECKING:
    from collections.abc import Callable

    from pymysql.cursors import Cursor
    from typing_extensions import Buffer

LONGEST_KEY = 200
"""Characters of a key that are shown."""


class Writer:
    """Writes changes over one session at a time."""

    def __init__(self, tables: Tables, *, is_checked: bool = False) -> None:
        """``tables``: of the target.

        ``is_checked``: the session counts the rows that a statement finds, and a change has to find its row.
        """
        self._tables = tables
        self._is_checked = is_checked
        self._decoder = EnvelopeDecoder(split_keys=False)

    def write(
        self, cursor: "Cursor", changes: pa.RecordBatch, data: "Buffer", packet: int, *, is_safe: bool = True
    ) -> None:
        """Write changes, as `EnvelopeDecoder` decodes them from ``data``; ``packet``: bytes that a statement may have.

        ``is_safe``: the target may have some of these changes, or later ones, already. Else it is as the source was
        before them, and a row in the place of a new one is an error.

        Raises TargetError, and what a later try may not meet.
        """
        related: list[Name] = []
        for name, rows in by_table(changes):
            some = changes.take(rows)
            has_key = some["_key"].null_count == 0
            known = self._tables.get(cursor, name, needs_key=has_key)
            table = known.table
            if has_key and known.related:
                if some["_op"][0].as_py() == "READ":
                    raise TargetError(
                        f"{'.'.join(name)} on the target has foreign keys with ON DELETE or ON UPDATE, or is connected"
                        " by foreign keys with a table that has. A snapshot cannot fill it: while that runs, these"
                        " would not act alike on both sides. Drop them there, or copy the tables yourself and begin at"
                        " a position"
                    )
                related.append(name)
            elif has_key and (is_safe or some["_op"][0].as_py() == "READ"):
                self._write_by_key(cursor, table, some, packet)
            elif has_key:
                self._merge_by_key(cursor, known, some, packet)
            else:
                self._write_by_columns(cursor, table, some, packet)
        if related:
            cursor.execute("SET foreign_key_checks = 1")
            self._write_in_order(cursor, related, self._decoder.decode(data), packet)
            cursor.execute("SET foreign_key_checks = 0")

    def restore(self, cursor: "Cursor") -> None:
        """Set up a session again in which `write` has failed."""
        set_modes(cursor, is_strict=True)
        cursor.execute("SET foreign_key_checks = 0")

    def empty(self, cursor: "Cursor", name: Name) -> None:
        """Delete the rows of a table, once it is admitted. Raises as `write`."""
        self._tables.get(cursor, name, needs_key=False)
        cursor.execute(f"DELETE FROM {quote_table(*name)}")  # noqa: S608

    def _write_by_key(self, cursor: "Cursor", table: TargetTable, changes: pa.RecordBatch, packet: int) -> None:
        """Make each row as its last change leaves it, whatever is in its place."""
        ends = ends_of_keys(changes["_schema"], changes["_table"], changes["_key"])
        changes = changes if ends is None else changes.take(ends[1])
        deleted = pc.equal(changes["_op"], "DELETE")
        rows = pc.indices_nonzero(deleted).cast(pa.int32())
        keys = changes["_key"]
        _execute(cursor, table, keys, rows, lambda some: table.delete(changes["before"], keys, some))
        rows = pc.indices_nonzero(pc.invert(deleted)).cast(pa.int32())
        _execute(cursor, table, keys, rows, lambda some: table.insert(changes["after"], keys, packet, some))

    def _merge_by_key(self, cursor: "Cursor", known: KnownTable, changes: pa.RecordBatch, packet: int) -> None:
        """Do the same where each row is as its first change has found it: all deletes come first, then all inserts.

        A row is deleted and inserted again if its values move in a unique index, for another one may take them or have
        them. All others are changed where they are. Rows in the place of inserted ones are an error.
        """
        table, keys = known.table, changes["_key"]
        ends = ends_of_keys(changes["_schema"], changes["_table"], keys)
        first, last = ends or (_numbers(len(keys)), _numbers(len(keys)))
        was = pc.not_equal(changes["_op"].take(first), "INSERT")
        is_ = pc.not_equal(changes["_op"].take(last), "DELETE")
        both = pc.and_(was, is_)
        old, new = first.filter(both), last.filter(both)
        stays = known.keeps_unique(changes["before"].take(old), changes["after"].take(new))
        moves = pc.invert(stays)
        deleted = pa.concat_arrays([first.filter(pc.and_not(was, is_)), old.filter(moves)]).cast(pa.int32())
        inserted = pa.concat_arrays([last.filter(pc.and_not(is_, was)), new.filter(moves)]).cast(pa.int32())
        kept = new.filter(stays).cast(pa.int32())
        after = changes["after"]
        _execute(cursor, table, keys, deleted, lambda some: table.delete(changes["before"], keys, some))
        change, fail = Conflict.UPDATE, Conflict.FAIL
        _execute(cursor, table, keys, kept, lambda some: table.insert(after, keys, packet, some, conflict=change))
        _execute(cursor, table, keys, inserted, lambda some: table.insert(after, keys, packet, some, conflict=fail))

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
        for name, rows in by_table(changes):
            if name not in names:
                continue
            table = self._tables.get(cursor, name, needs_key=True).table
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


def _execute(
    cursor: "Cursor",
    table: TargetTable,
    keys: pa.ListArray,
    rows: pa.Int32Array,
    make: "Callable[[pa.Int32Array], Iterable[Statement]]",
) -> None:
    """Run statements for rows; when one of many rows is refused, find out which row it is, and name its key."""
    try:
        execute(cursor, table, make(rows))
    except DuplicateRowError:
        raise
    except RefusedRowError:
        for number in range(len(rows)):
            one = rows.slice(number, 1)
            try:
                execute(cursor, table, make(one))
            except DuplicateRowError:  # it was written before the one that is refused
                continue
            except RefusedRowError as error:
                key = ", ".join(map(str, keys.take(one)[0].as_py() or ()))
                raise RefusedRowError(f"{error}. The key of the row is {key[:LONGEST_KEY]}") from error
        raise


def by_table(changes: pa.RecordBatch) -> Iterator[tuple[Name, pa.Int32Array]]:
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


def _numbers(count: int) -> pa.Int64Array:
    """Return 0, 1, 2 and so on."""
    return pa.array(range(count), pa.int64())
