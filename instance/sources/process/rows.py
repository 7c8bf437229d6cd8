"""Frames whose rows a function changes: decoded for it, and encoded again where it has changed something."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final, NamedTuple

from ....protocol import props
from ....protocol.canal import entry_pb2 as pb
from ....protocol.canal.packet_pb2 import Messages
from ....protocol.canal.rows import Change, Row, decode_changes
from ....protocol.canal.tags import ValueKind
from ....protocol.canal.types import JSON_NULL, kind_of, labels_of, sql_types
from .config import Added

LARGEST: Final = 64 << 20
"""Bytes that a function may add to a batch."""
LONGEST: Final = 1000
"""Characters of an error."""
_ROWS: Final = ("INSERT", "UPDATE", "DELETE")
_BITS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64}
_MICROSECOND: Final = timedelta(microseconds=1)

Function = Callable[[list[Row]], Iterable[Row]]
"""Takes rows in the order of the stream, and returns those that are to be delivered, which it may have changed."""


class Failure(NamedTuple):
    """An entry whose rows could not be processed."""

    place: tuple[int, int]
    """``begin`` and ``n`` of its position."""
    file: str
    schema: str
    table: str
    type: int
    ms: int
    server_id: int
    size: int
    reason: str


class Frame:
    """A frame, and what becomes of its entries.

    Args:
        data: the `Messages` of a batch, with the place of each entry.
        added: the columns that the function may add.
    """

    def __init__(self, data: bytes, added: Added) -> None:
        self._read = Messages.FromString(data)
        self._changes = decode_changes(data)
        self._pristine = decode_changes(data)  # a function may change the rows of the others
        self._added = added
        self._size = len(data)
        self._made: dict[int, bytes | None] = {}
        self.failures: list[Failure] = []

    def numbers(self) -> list[int]:
        """Return the numbers of the entries that have rows."""
        return [i for i, it in enumerate(self._changes) if it.entry_type == "ROWDATA" and it.type in _ROWS and _has(it)]

    def process(self, numbers: Sequence[int], function: Function) -> None:
        """Let the function process the rows of some entries, in one call. Raises what it raises, and ValueError."""
        rows = [self._changes[i].rows() for i in numbers]
        given = [row for some in rows for row in some]
        if not given:
            return
        kept = _kept(given, function(given))
        made: dict[int, bytes | None] = {}
        size = 0
        for number, some in zip(numbers, rows, strict=True):
            left = [i for i, row in enumerate(some) if id(row) in kept]
            made[number] = self._rebuild(number, some, left)
            size += len(made[number] or b"")
        if size > self._size + LARGEST:
            raise ValueError(f"a batch of {self._size} bytes became {size}, more than {LARGEST} in addition")
        self._made |= made

    def fail(self, number: int, reason: str) -> None:
        """Put a marker in the place of an entry."""
        it, reason = self._changes[number], reason[:LONGEST]
        entry = pb.Entry.FromString(self._read.messages[number])
        size = len(entry.storeValue)
        failure = (self._place(number), it.logfile_name, it.schema, it.table, entry.header.eventType)
        self.failures.append(Failure(*failure, it.execute_time, it.server_id, size, reason))
        change = pb.RowChange(eventType=pb.QUERY, isDdl=False, sql=f"-- {props.QUARANTINE}: {reason}")
        entry.header.eventType = pb.QUERY
        entry.header.props.append(pb.Pair(key=props.QUARANTINE, value=reason))
        entry.storeValue = change.SerializeToString()
        self._made[number] = entry.SerializeToString()

    def data(self) -> bytes:
        """Return the frame as it is now; nothing if no entry is left."""
        messages = [self._made.get(i, it) for i, it in enumerate(self._read.messages)]
        left = [i for i, it in enumerate(messages) if it is not None]
        if not left:
            return b""
        read = self._read
        head = Messages(batch_id=read.batch_id, from_position=read.from_position, to_position=read.to_position)
        head.positions.extend(number for i in left for number in self._place(i))
        # The places stand before the entries.
        return head.SerializeToString() + Messages(messages=filter(None, messages)).SerializeToString()

    def _place(self, number: int) -> tuple[int, int]:
        begin, n = self._read.positions[2 * number : 2 * number + 2]
        return begin, n

    def _rebuild(self, number: int, rows: Sequence[Row], left: Sequence[int]) -> bytes | None:
        """Return an entry with the rows that are left; None without any."""
        before = self._pristine[number].rows()
        message = self._read.messages[number]
        if not left:
            return None
        is_same = len(left) == len(rows)
        if is_same and all(_images(row) == _images(it) for row, it in zip(rows, before, strict=True)):
            return message
        entry = pb.Entry.FromString(message)
        change = pb.RowChange.FromString(entry.storeValue)
        types = self._added.get((rows[0].schema, rows[0].table), {})
        data = []
        for i in left:
            it, row, was = change.rowDatas[i], rows[i], before[i]
            columns = _columns(it.beforeColumns, row.before, was.before, types, None)
            others = _columns(it.afterColumns, row.after, was.after, types, row.before or {})
            data.append(pb.RowData(beforeColumns=columns, afterColumns=others, props=it.props))
        del change.rowDatas[:]
        change.rowDatas.extend(data)
        for prop in entry.header.props:
            if prop.key == "rowsCount":
                prop.value = str(len(left))
        entry.storeValue = change.SerializeToString()
        made = entry.SerializeToString()
        _compare(made, [rows[i] for i in left])
        return made


def _has(change: Change) -> bool:
    return not (change.is_ddl or change.sql)


def _images(row: Row) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    return row.before, row.after


def _kept(given: Sequence[Row], result: Iterable[Row] | None) -> set[int]:
    """Return which rows a function has returned. Raises ValueError for others, and for another order."""
    if result is None:
        raise ValueError("the function returned None: it returns the rows that are to be delivered")
    places = {id(row): i for i, row in enumerate(given)}
    last = -1
    kept = set()
    for row in result:
        place = places.get(id(row), -1)
        if place <= last:
            raise ValueError("the function returned what is not one of the rows it was given, in their order")
        last = place
        kept.add(id(row))
    return kept


def _columns(
    columns: Iterable[pb.Column],
    image: Mapping[str, Any] | None,
    before: Mapping[str, Any] | None,
    types: Mapping[str, str],
    others: Mapping[str, Any] | None,
) -> list[pb.Column]:
    """Return the columns of an image as the function has made it. Raises ValueError.

    ``others``: the image before the change, if this is the one after it.
    """
    if image is None or before is None:
        if image is not before:
            raise ValueError("an image is missing that the row had: only its values can be changed")
        return []
    made: list[pb.Column] = []
    first = 0
    for it in columns:
        first = max(first, it.index + 1)
        if it.name in image:
            made.append(it)
        elif it.isKey:
            raise ValueError(f"column {it.name} is of the primary key: it cannot be left out")
    for index, name in enumerate((it for it in image if it not in before), first):
        if name not in types:
            raise ValueError(f"column {name} is new: add it to sluice.processor.columns, with its type")
        made.append(pb.Column(index=index, name=name, mysqlType=types[name]))
    for it in made:
        value = image[it.name]
        if it.name in before and value == before[it.name]:
            continue
        if it.isKey:
            raise ValueError(f"column {it.name} is of the primary key: it cannot be changed")
        _set(it, value)
        it.updated = others is not None and (it.name not in others or others[it.name] != value)
    return made


def _set(column: pb.Column, value: Any) -> None:
    """Give a column a value. Raises ValueError."""
    plain, promoted, of_null = sql_types(column.mysqlType)
    column.isNull = value is None
    if value is None:
        column.sqlType, column.value = of_null, ""
        return
    try:
        column.value = _text(value, column.mysqlType, column.sqlType or plain)
    except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
        raise ValueError(f"column {column.name} cannot be {value!r:.200} as {column.mysqlType}: {error}") from None
    word = column.mysqlType.partition("(")[0].split(" ")[0].lower()
    is_large = isinstance(value, int) and value >> (_BITS.get(word, 64) - 1) > 0
    column.sqlType = promoted if is_large else plain


def _text(value: Any, mysql_type: str, sql_type: int) -> str:
    """Return a value as an entry has it. Raises ValueError, TypeError; `_compare` finds what is not of the type."""
    kind = kind_of(mysql_type, sql_type)
    if kind == ValueKind.INTEGER:
        return _integer(value, mysql_type)
    if kind == ValueKind.DECIMAL:
        return format(Decimal(value), "f")
    if kind == ValueKind.FLOAT:
        return repr(float(value))
    if kind == ValueKind.BYTES:
        return bytes(value).decode("latin-1") if isinstance(value, bytes | bytearray) else _refuse(value, "bytes")
    if kind == ValueKind.JSON:
        return "null" if value is JSON_NULL else json.dumps(value, ensure_ascii=False)
    if kind == ValueKind.ENUM:
        return str(labels_of(mysql_type).index(value) + 1)
    if kind == ValueKind.SET:
        labels = labels_of(mysql_type)
        return str(sum(1 << labels.index(it) for it in value))
    if isinstance(value, str):
        return value
    if kind in (ValueKind.DATE, ValueKind.DATETIME, ValueKind.TIME):
        return _moment(value, mysql_type)
    return _refuse(value, "a str")


def _refuse(value: object, wanted: str) -> str:
    raise TypeError(f"it is no {type(value).__name__}, but {wanted}")


def _integer(value: Any, mysql_type: str) -> str:
    if not isinstance(value, int):
        _refuse(value, "an int")
    words = mysql_type.lower().replace("(", " ").split()
    bits = _BITS.get(words[0])
    is_unsigned = "unsigned" in words
    if bits is not None:
        low, high = (0, 1 << bits) if is_unsigned else (-1 << (bits - 1), 1 << (bits - 1))
        if not low <= value < high:
            raise ValueError("it is out of range")
    return str(int(value))


def _moment(value: Any, mysql_type: str) -> str:
    digits = int(mysql_type.partition("(")[2].rstrip(")") or 0)
    if isinstance(value, datetime):
        text = value.isoformat(" ", "microseconds")
    elif isinstance(value, date):
        return value.isoformat()
    else:
        total = abs(value) // _MICROSECOND
        sign = "-" if value < timedelta(0) else ""
        seconds, micros = divmod(total, 1_000_000)
        text = f"{sign}{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{micros:06}"
    return text[: len(text) - 6 + digits] if digits else text[: len(text) - 7]


def _compare(made: bytes, rows: Sequence[Row]) -> None:
    """Raise ValueError where the values of rows are not those that clients would read."""
    (change,) = decode_changes(Messages(messages=[made]).SerializeToString())
    for wanted, found in zip(rows, change.rows(), strict=True):
        for image, read in zip(_images(wanted), _images(found), strict=True):
            for name, value in (image or {}).items():
                if read is None or read[name] != value:
                    text = None if read is None else read[name]
                    raise ValueError(f"column {name} cannot be {value!r:.200}: clients would read {text!r:.200}")
