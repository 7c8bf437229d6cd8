"""Applying changes to a target: each row as its last change leaves it, exactly once.

What is applied at once is a micro-batch, or those of its changes that fall into some buckets. Of all changes of a key
in the micro-batch only the last one counts. So it makes no difference in which order keys are written and by which
task, although other unique keys of the target, or its collations, may see two of them as one: a row that is written
removes whatever is in its place (REPLACE), which was about to go or to be written, too, for at the end of the
micro-batch there are no two such rows on the source. Deleting removes exactly the row of that key.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from ...protocol.errors import TargetError
from ...sql.changes import ends_of_keys, is_ascending
from ...sql.statements import TargetTable
from ...sql.target import ROWS, SIZE, Target, execute
from .progress import Place, Run

if TYPE_CHECKING:
    from pymysql.cursors import Cursor


@dataclass(frozen=True, slots=True)
class Applied:
    """What was done."""

    rows: int
    """Changes that came."""
    written: int
    """Rows of the target that were written or deleted for them."""
    place: Place
    """Of the last change."""


class Applier:
    """Applies changes over one connection. What it knows of the target's tables it asks once."""

    def __init__(self, target: Target, run: Run, schemas: Mapping[str, str], *, is_source: bool = False) -> None:
        """``schemas``: what schemas of the source are called on the target, where that is another name.

        ``is_source``: the target is the source itself, so that another name is needed.
        """
        self._target = target
        self._run = run
        self._schemas = dict(schemas)
        self._is_source = is_source
        self._tables: dict[tuple[str, str], TargetTable] = {}

    def apply(self, changes: pa.Table, batch: str) -> Applied:
        """Apply all changes of a micro-batch that fall into some buckets, in any order; there has to be one.

        ``batch`` names the micro-batch. Those of its changes that were applied before are left out.

        Raises:
            TargetError: the target refuses, stays out of reach, or does not fit, another run has taken over, or the
                changes come from members of a source.
        """
        last = last_changes(changes)
        if last["_pos"].field("member").null_count < last.num_rows:
            raise TargetError(
                "the changes come from several members of a group, and a mirror has one source: use an output of type"
                " mysql for the group, or mirror a destination of each member"
            )
        is_known = bool(self._tables)
        try:
            written = self._apply(last, batch)
        except TargetError:
            if not is_known:
                raise
            self._tables.clear()  # they may have been altered since
            written = self._apply(last, batch)
        return Applied(changes.num_rows, written, _place(last, -1))

    def _apply(self, last: pa.RecordBatch, batch: str) -> int:
        written, is_done = 0, False
        while not is_done:
            count, is_done = self._target.transact(lambda cursor: self._write(cursor, last, batch))
            written += count
        return written

    def _write(self, cursor: "Cursor", last: pa.RecordBatch, batch: str) -> tuple[int, bool]:
        """Write the next transaction: how many rows, and whether nothing is left."""
        places = self._run.places(cursor, last["_bucket"].unique().to_pylist())
        left = _left(last, places)
        if not left.num_rows:
            return 0, True
        some = left.slice(0, _size(left))
        is_delete = pc.equal(some["_op"], "DELETE")
        for table, rows in self._by_table(cursor, some, is_delete):
            execute(cursor, table, table.delete(some["before"], some["_key"], rows))
        for table, rows in self._by_table(cursor, some, pc.invert(is_delete)):
            execute(cursor, table, table.insert(some["after"], some["_key"], self._target.packet, rows))
        place = _place(some, -1)
        self._run.advance(cursor, [bucket for bucket, at in places.items() if at < place], batch, place)
        return some.num_rows, some.num_rows == left.num_rows

    def _by_table(
        self, cursor: "Cursor", changes: pa.RecordBatch, chosen: pa.BooleanArray
    ) -> Iterator[tuple[TargetTable, pa.Int32Array]]:
        """Give the numbers of the chosen rows of each table."""
        schemas, tables = (changes[name].dictionary_encode() for name in ("_schema", "_table"))
        numbers = pc.add(pc.multiply(schemas.indices, len(tables.dictionary)), tables.indices)
        for number in pc.unique(numbers.filter(chosen)).to_pylist():
            rows = pc.indices_nonzero(pc.and_(chosen, pc.equal(numbers, number))).cast(pa.int32())
            schema, table = (it.dictionary[it.indices[rows[0].as_py()].as_py()].as_py() for it in (schemas, tables))
            yield self._table(cursor, schema, table), rows

    def _table(self, cursor: "Cursor", schema: str, table: str) -> TargetTable:
        if (schema, table) not in self._tables:
            copy = copy_of((schema, table), self._schemas, is_source=self._is_source)
            self._tables[schema, table] = TargetTable.load(cursor, copy, f"{schema}.{table}")
        return self._tables[schema, table]


def copy_of(table: tuple[str, str], schemas: Mapping[str, str], *, is_source: bool) -> tuple[str, str]:
    """Return schema and name that a table has on the target. Raises TargetError when it is the table itself."""
    schema, name = table
    copy = schemas.get(schema, schema), name
    if copy == table and is_source:
        raise TargetError(
            f"{schema}.{name} would be mirrored to itself, for the target has the identity of the source: name another"
            f" schema for {schema} on the target, or leave it out by the filter. If these are two MariaDB servers that"
            " have the same server_id, give the target another one: SET GLOBAL server_id"
        )
    return copy


def last_changes(changes: pa.Table) -> pa.RecordBatch:
    """Return the last change of each key, in the order of the source."""
    (found,) = changes.combine_chunks().to_batches()
    places = pa.table([found["_pos"].field(name) for name in Place._fields], names=Place._fields)
    if not is_ascending(*(column.cast(pa.int64()).chunk(0) for column in places.columns)):
        found = found.take(pc.sort_indices(places, sort_keys=[(name, "ascending") for name in Place._fields]))
    ends = ends_of_keys(found["_schema"], found["_table"], found["_key"])
    return found if ends is None else found.take(ends[1])


def _left(changes: pa.RecordBatch, places: Mapping[int, Place]) -> pa.RecordBatch:
    """Return those that are after the places of their buckets."""
    first = min(places.values())
    changes = changes.slice(_count_before(changes, first))
    later = {bucket: place for bucket, place in places.items() if place > first}
    if not later or not changes.num_rows or max(later.values()) < _place(changes, 0):
        return changes
    numbers = pa.array(range(changes.num_rows))
    is_done = pa.array([False] * changes.num_rows)
    for place in set(later.values()):
        buckets = pa.array([bucket for bucket, at in later.items() if at == place], changes["_bucket"].type)
        is_before = pc.less(numbers, _count_before(changes, place))
        is_done = pc.or_(is_done, pc.and_(is_before, pc.is_in(changes["_bucket"], buckets)))
    return changes.filter(pc.invert(is_done))


def _count_before(changes: pa.RecordBatch, place: Place) -> int:
    """Return how many are before a place or at it."""
    return bisect_right(range(changes.num_rows), place, key=lambda number: _place(changes, number))


def _size(changes: pa.RecordBatch) -> int:
    """Return how many of the first changes fit a transaction; changes of one place stay together."""
    size: int = min(ROWS, changes.num_rows)
    while size > 1 and changes.slice(0, size).nbytes > SIZE:
        size //= 2
    while size < changes.num_rows and _place(changes, size) == _place(changes, size - 1):
        size += 1
    return size


def _place(changes: pa.RecordBatch, index: int) -> Place:
    place = changes["_pos"][index].as_py()
    return Place(*(place[name] for name in Place._fields))
