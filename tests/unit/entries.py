"""Entries for the tests of the compiled codecs: strategies, two encodings, and plain Python readers to compare with."""

import json
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from sluice.protocol.canal.entry_pb2 import (
    DELETE,
    INSERT,
    ROWDATA,
    TRANSACTIONBEGIN,
    TRANSACTIONEND,
    UPDATE,
    Entry,
    EventType,
    Header,
    RowChange,
    RowData,
    TransactionBegin,
    TransactionEnd,
)
from sluice.protocol.canal.entry_pb2 import Column as PbColumn
from sluice.protocol.canal.types import JSON_NULL

LABELS = ("a", "it's", "x,y", "", "(ü)")
QUOTED = ",".join("'" + label.replace("'", "''") + "'" for label in LABELS)

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
fractions = st.integers(0, 6).flatmap(
    lambda n: st.just("") if n == 0 else st.integers(0, 10**n - 1).map(f".{{:0{n}d}}".format)
)
dates = st.dates(date(1000, 1, 1)).map(date.isoformat) | st.sampled_from(["0000-00-00", "2020-00-00", "2021-02-31"])
clocks = st.builds(
    "{:02d}:{:02d}:{:02d}{}".format, st.integers(0, 23), st.integers(0, 59), st.integers(0, 59), fractions
)

TYPES: dict[tuple[str, int], st.SearchStrategy[str]] = {  # (mysqlType, sqlType) -> texts of values
    ("tinyint(4)", -6): st.integers(-128, 127).map(str),
    ("bigint(20) unsigned", 3): st.integers(0, 2**64 - 1).map(str),
    ("bigint(20)", -5): st.integers(-(2**63), 2**63 - 1).map(str),
    ("INT(11)", 4): st.integers(-(2**31), 2**31 - 1).map(str),
    ("bit(64)", -7): st.integers(0, 2**64 - 1).map(str),
    ("year(4)", 12): st.sampled_from(["0000", "1901", "2155"]),
    ("decimal(65,30)", 3): st.decimals(allow_nan=False, allow_infinity=False, places=5).map("{:f}".format),
    ("double", 8): st.floats(allow_nan=False).map(lambda x: repr(x).replace("inf", "Infinity")),
    ("float unsigned", 7): st.sampled_from(["1.0E10", "3.4028235E38", "0.001", "-0.0"]),
    ("date", 91): dates,
    ("datetime(6)", 93): st.builds("{} {}".format, dates, clocks),
    ("timestamp", 93): st.builds("{} {}".format, dates, clocks),
    ("time(3)", 92): st.builds("{}{}".format, st.sampled_from(["", "-", "8", "-8"]), clocks),
    ("varchar(32)", 12): texts,
    ("longtext", 2005): texts,
    ("char(1)", 1): texts,
    ("uuid", 1): texts,
    ("varbinary(16)", 2004): st.binary(max_size=30).map(lambda it: it.decode("latin1")),
    ("mediumblob", 2004): st.binary(max_size=30).map(lambda it: it.decode("latin1")),
    ("geometry", 2004): st.binary(max_size=30).map(lambda it: it.decode("latin1")),
    ("json", 12): st.recursive(st.none() | st.integers() | texts, st.lists).map(json.dumps)
    | st.sampled_from(["", "JSON_REPLACE(`a`, '$.b', 1)", '{"k": 1.5, "l": {"m": [true, null]}}']),
    (f"enum({QUOTED})", 4): st.integers(0, len(LABELS)).map(str),
    (f"set({QUOTED})", -7): st.integers(0, 2 ** len(LABELS) - 1).map(str),
}


@st.composite
def tables(draw: st.DrawFn) -> list[tuple[str, str, int, bool]]:
    """Columns: name, mysqlType, sqlType, isKey."""
    names = draw(st.lists(texts.filter(bool), unique=True, max_size=6))
    return [(name, *draw(st.sampled_from(list(TYPES))), draw(st.booleans())) for name in names]


@st.composite
def images(draw: st.DrawFn, table: list[tuple[str, str, int, bool]], *, after: bool) -> list[PbColumn]:
    columns = []
    for index, (name, mysql_type, sql_type, is_key) in enumerate(table):
        column = PbColumn(index=index, sqlType=sql_type, name=name, isKey=is_key, mysqlType=mysql_type)
        column.updated = after and draw(st.booleans())
        column.isNull = draw(st.booleans())
        if column.isNull and mysql_type.startswith("set"):
            column.sqlType = 2004
        elif not column.isNull:
            column.value = draw(TYPES[mysql_type, sql_type])
        if draw(st.integers(0, 9)):  # a minimal image leaves columns out
            columns.append(column)
    return columns


@st.composite
def entries(draw: st.DrawFn) -> Entry:
    header = Header(
        version=1,
        logfileName="mysql-bin.000001",
        logfileOffset=draw(st.integers(0, 2**63 - 1)),
        serverId=draw(st.integers(0, 2**32 - 1)),
        serverenCode="UTF-8",
        executeTime=draw(st.integers(0, 2**41)),
        schemaName=draw(texts),
        tableName=draw(texts),
        eventLength=draw(st.integers(0, 2**31)),
        gtid=draw(texts),
    )
    header.props.add(key="rowsCount", value=draw(texts))
    if xa := draw(st.sampled_from(["", "", "", "committed X'61',X'',1", "one-phase X'62',X'63',-1"])):
        header.props.add(key="sluice.xa", value=xa)
    kind = draw(st.sampled_from(["rows", "rows", "rows", "ddl", "begin", "end"]))
    if kind == "begin":
        begin = TransactionBegin(threadId=draw(st.integers(0, 2**40)))
        return Entry(header=header, entryType=TRANSACTIONBEGIN, storeValue=begin.SerializeToString())
    if kind == "end":
        end = TransactionEnd(transactionId=draw(texts))
        return Entry(header=header, entryType=TRANSACTIONEND, storeValue=end.SerializeToString())
    if kind == "ddl":
        header.eventType = draw(st.sampled_from([type_ for type_ in EventType.values() if type_ > DELETE]))
        ddl = RowChange(
            eventType=header.eventType, isDdl=draw(st.booleans()), sql=draw(texts), ddlSchemaName=draw(texts)
        )
        ddl.props.add(key=draw(texts), value=draw(texts))
        return Entry(header=header, entryType=ROWDATA, storeValue=ddl.SerializeToString())
    header.eventType = draw(st.sampled_from([INSERT, UPDATE, DELETE]))
    table = draw(tables())
    change = RowChange(tableId=7, eventType=header.eventType, isDdl=False)
    for _ in range(draw(st.integers(1, 4))):
        row = RowData()
        if header.eventType != INSERT:
            row.beforeColumns.extend(draw(images(table, after=False)))
        if header.eventType != DELETE:
            row.afterColumns.extend(draw(images(table, after=True)))
        change.rowDatas.append(row)
    absent = draw(st.sampled_from([None, None, [], ["x"], ['a"b', "ü"]]))
    if absent is not None:
        change.props.add(key="sluice.absent", value=json.dumps(absent, ensure_ascii=False, separators=(",", ":")))
    return Entry(header=header, entryType=ROWDATA, storeValue=encode_change(change, draw(st.booleans())))


def varint(number: int, width: int = 1) -> bytes:
    """Of at least `width` bytes."""
    number &= 2**64 - 1
    out = bytearray()
    while number > 0x7F or len(out) < width - 1:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def length_delimited(field: int, data: bytes, width: int = 1) -> bytes:
    return varint(field << 3 | 2) + varint(len(data), width) + data


def encode_column(column: PbColumn) -> bytes:
    """As the server writes it: first all that is the same for every row, then `updated` and the value."""
    head = PbColumn()
    head.CopyFrom(column)
    head.ClearField("updated")
    head.ClearField("value")
    value = b"" if column.isNull else length_delimited(8, column.value.encode())
    return head.SerializeToString() + varint(5 << 3) + varint(column.updated) + value


def encode_change(change: RowChange, is_ours: bool) -> bytes:
    """In the order of fields that Sluice writes and with padded lengths, or in that of protobuf (and of Canal)."""
    if not is_ours:
        return change.SerializeToString()
    head = RowChange()
    head.CopyFrom(change)
    head.ClearField("rowDatas")
    rows = []
    for row in change.rowDatas:
        images = [(1, row.beforeColumns), (2, row.afterColumns)]
        columns = [length_delimited(field, encode_column(it), 2) for field, image in images for it in image]
        rows.append(length_delimited(12, b"".join(columns), 5))
    return head.SerializeToString() + b"".join(rows)


def frame(batch: list[Entry], width: int = 1) -> bytes:
    return b"".join(length_delimited(2, entry.SerializeToString(), width) for entry in batch)


# The plain readers.


def plain_value(column: PbColumn, *, null_dates: bool = False) -> Any:
    if column.isNull:
        return None
    text = column.value
    match column.mysqlType.lower().split("(")[0].split()[0]:
        case "tinyint" | "bigint" | "int" | "bit" | "year":
            return int(text)
        case "decimal":
            return Decimal(text)
        case "double" | "float":
            return float(text)
        case "date" | "datetime" | "timestamp" as kind:
            try:
                return date.fromisoformat(text) if kind == "date" else datetime.fromisoformat(text)
            except ValueError:
                return None if null_dates else text
        case "time":
            hours, minutes, seconds = text.removeprefix("-").split(":")
            whole, _, fraction = seconds.partition(".")
            micros = int(fraction.ljust(6, "0"))
            duration = timedelta(hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=micros)
            return -duration if text.startswith("-") else duration
        case "json":
            if text in ("", "null"):
                return JSON_NULL
            return text if text.startswith("JSON_") else json.loads(text)
        case "enum":
            return ("", *LABELS)[int(text)]
        case "set":
            return frozenset(label for i, label in enumerate(LABELS) if int(text) >> i & 1)
        case "varbinary" | "mediumblob" | "geometry":
            return text.encode("latin1")
    return text


def plain_xa(entry: Entry) -> str | None:
    return next((pair.value for pair in entry.header.props if pair.key == "sluice.xa"), None)


def plain_rows(entry: Entry, *, null_dates: bool = False) -> list[tuple[Any, Any, tuple[str, ...]]]:
    """Image before, image after, names of the changed columns."""
    change = RowChange.FromString(entry.storeValue)
    rows = []
    for row in change.rowDatas:
        before = {it.name: plain_value(it, null_dates=null_dates) for it in row.beforeColumns}
        after = {it.name: plain_value(it, null_dates=null_dates) for it in row.afterColumns}
        rows.append((before or None, after or None, tuple(it.name for it in row.afterColumns if it.updated)))
    return rows


def plain_flat(entry: Entry, batch_id: int, ts: int, *, strict: bool) -> dict[str, Any]:
    """The FlatMessage of an entry with rows or a statement."""
    change = RowChange.FromString(entry.storeValue)
    is_dml = change.eventType in (INSERT, UPDATE, DELETE) and not change.isDdl
    data: list[dict[str, str | None]] = []
    old: list[dict[str, str | None]] = []
    sql_type: dict[str, int] = {}
    mysql_type: dict[str, str] = {}
    keys: list[str] = []
    updated: set[str] = set()
    absent = (
        None if strict or not is_dml else next((it.value for it in change.props if it.key == "sluice.absent"), None)
    )
    for row in change.rowDatas if is_dml else ():
        image = list(row.beforeColumns if change.eventType == DELETE else row.afterColumns)
        key_image = list(row.beforeColumns) if change.eventType == UPDATE and absent is not None else image
        keys = keys if data else [it.name for it in key_image if it.isKey]
        if absent is not None and change.eventType == UPDATE:
            given = {it.index for it in image}
            image = [*image, *(it for it in row.beforeColumns if it.index not in given)]
        data.append({it.name: None if it.isNull else it.value for it in image})
        sql_type |= {it.name: it.sqlType for it in image}
        mysql_type |= {it.name: it.mysqlType for it in image}
        updated = (updated if strict else set()) | {it.name for it in image if it.updated}
        old.append({it.name: None if it.isNull else it.value for it in row.beforeColumns if it.name in updated})
    if absent is not None and change.eventType in (UPDATE, DELETE) and change.rowDatas and not keys:
        found = [it.name for it in change.rowDatas[0].beforeColumns]
        keys = found if absent != "[]" or len(found) < len(sql_type) else []
    xa = None if strict else plain_xa(entry)
    return {
        **({} if absent is None else {"absent": json.loads(absent)}),
        "data": data or None,
        "database": entry.header.schemaName,
        "es": entry.header.executeTime,
        "gtid": entry.header.gtid,
        "id": batch_id,
        "isDdl": change.isDdl,
        "mysqlType": mysql_type or None,
        "old": (old or None) if change.eventType == UPDATE else None,
        "pkNames": keys or None,
        "sql": change.sql,
        "sqlType": sql_type or None,
        "table": entry.header.tableName,
        "ts": ts,
        "type": EventType.Name(change.eventType),
        **({} if xa is None else {"xa": xa}),
    }


def among_others(data: bytes) -> memoryview:
    """The bytes, with others after them in memory: who reads beyond the end finds those."""
    return memoryview(data + b"\xff" * 16)[: len(data)]


def mutated(data: st.DataObject, whole: bytes, most: int = 4) -> bytes:
    """Set a few bytes to others."""
    broken = bytearray(whole)
    for _ in range(data.draw(st.integers(1, most))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(st.integers(0, 255))
    return bytes(broken)
