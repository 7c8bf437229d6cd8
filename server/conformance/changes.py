"""Changes for trials: rows with numbers, in a stream of one source."""

from ...instance.sources.api import framed
from ...protocol.canal.entry_pb2 import Entry, EntryType, EventType, RowChange
from ...protocol.position import Position
from ...store.batch import Batch
from ..outputs.target import Place

SCHEMA, TABLE = "conformance", "changes"
COLUMN = "id"
"""The column with the number of a row, the primary key."""


def entry(number: int, size: int = 0, kind: "EventType.ValueType" = EventType.INSERT) -> Entry:
    """Return a change of the row with a number, with a text of ``size`` characters."""
    found = Entry(entryType=EntryType.ROWDATA)
    found.header.schemaName, found.header.tableName, found.header.eventType = SCHEMA, TABLE, kind
    found.header.logfileName, found.header.logfileOffset = "log.1", number
    change = RowChange(eventType=kind)
    row = change.rowDatas.add()
    for columns in (row.beforeColumns,) * (kind != EventType.INSERT) + (row.afterColumns,) * (kind != EventType.DELETE):
        columns.add(index=0, sqlType=-5, name=COLUMN, isKey=True, updated=True, value=str(number), mysqlType="bigint")
        columns.add(index=1, sqlType=12, name="text", updated=True, value="x" * size, mysqlType="text")
    found.storeValue = change.SerializeToString()
    return found


def statement(text: str) -> Entry:
    """Return a DDL."""
    found = Entry(entryType=EntryType.ROWDATA)
    found.header.schemaName, found.header.tableName, found.header.eventType = SCHEMA, TABLE, EventType.ALTER
    found.storeValue = RowChange(eventType=EventType.ALTER, isDdl=True, sql=text).SerializeToString()
    return found


def edge(kind: "EntryType.ValueType") -> Entry:
    """Return the begin or the end of a transaction."""
    return Entry(entryType=kind)


def batch(first: int, count: int, size: int = 0) -> Batch:
    """Return a batch of ``count`` rows, each in an entry of its own, with numbers from ``first`` on."""
    data = framed(entry(number, size) for number in range(first, first + count))
    return Batch(
        batch_id=first + 1,
        slices=[memoryview(data)] if data else [],
        from_=str(_position(first)),
        to=str(_position(first + count)),
        entries=count,
        rows=count,
        bytes=len(data),
        timestamp=1_700_000_000_000,
    )


def place_after(number: int) -> Place:
    """Return the place after the row before a number."""
    return Place(str(_position(number)), "")


def number_at(place: Place) -> int:
    """Return the number of the row that follows a place."""
    return Position.parse(place.position).begin


def _position(number: int) -> Position:
    return Position("conformance", "log.1", 0, number, 0)
