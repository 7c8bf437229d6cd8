"""Table plans for tests: a table described in words, its rows as bytes, the columns that come out."""

import re
from typing import Any

from sluice.instance.columns import SourceColumn
from sluice.instance.sources.mysql.decode.plan import PlanOptions, TablePlan
from sluice.instance.sources.mysql.decode.table_map import TableMap
from sluice.protocol.canal.entry_pb2 import Column as PbColumn
from sluice.protocol.canal.entry_pb2 import RowChange
from sluice.protocol.canal.tags import EventType

WIRE = {  # first word of the type -> type code; its metadata follows from the digits in the type
    "tinyint": 1,
    "smallint": 2,
    "int": 3,
    "float": 4,
    "double": 5,
    "bigint": 8,
    "mediumint": 9,
    "date": 10,
    "year": 13,
    "varchar": 15,
    "varbinary": 15,
    "bit": 16,
    "timestamp": 17,
    "datetime": 18,
    "time": 19,
    "json": 245,
    "decimal": 246,
    "text": 252,
    "blob": 252,
    "char": 254,
    "binary": 254,
    "geometry": 255,
    "vector": 242,
    "inet4": 254,
    "inet6": 254,
    "uuid": 254,
}
SIZES = {"inet4": 4, "inet6": 16, "uuid": 16, "text": 2, "blob": 2, "json": 4, "geometry": 4, "vector": 4}


def packed(data: bytes) -> bytes:
    """Precede the bytes by their length of one byte."""
    return bytes([len(data)]) + data


def table_map(*columns: tuple[int, bytes], optional: bytes = b"", schema: str = "shop", table: str = "t") -> bytes:
    """Return the body of a TABLE_MAP event of columns that are given by type code and metadata."""
    metadata = b"".join(meta for _, meta in columns)
    return (
        (7).to_bytes(6, "little")
        + b"\1\0"
        + packed(schema.encode())
        + b"\0"
        + packed(table.encode())
        + b"\0"
        + packed(bytes(code for code, _ in columns))
        + packed(metadata)
        + bytes((len(columns) + 7) // 8)
        + optional
    )


def wire(mysql_type: str) -> tuple[int, bytes]:
    """Return the type code and the metadata that MySQL 5.6 and above writes for a type (texts in utf8mb4)."""
    word = re.split(r"[( ]", mysql_type)[0]
    if word in ("enum", "set"):
        labels = mysql_type.count(",") + 1
        return 254, bytes([247 if word == "enum" else 248, 1 if word == "enum" else (labels + 7) // 8])
    code = WIRE[word]
    numbers = [int(number) for number in re.findall(r"\d+", mysql_type.replace(word, "", 1))]
    first = numbers[0] if numbers else 0
    match word:
        case "decimal":
            return code, bytes(numbers)
        case "bit":
            return code, bytes([first % 8, first // 8])
        case "varchar" | "varbinary":
            return code, (first * (4 if word == "varchar" else 1)).to_bytes(2, "little")
        case "char" | "binary" | "inet4" | "inet6" | "uuid":
            size = SIZES.get(word) or first * (4 if word == "char" else 1)
            return code, bytes([254 ^ (size >> 4 & 0x30), size & 0xFF])
        case "float" | "double":
            return code, bytes([4 if word == "float" else 8])
        case "timestamp" | "datetime" | "time":
            return code, bytes([first])
        case "text" | "blob" | "json" | "geometry" | "vector":
            return code, bytes([SIZES[word]])
    return code, b""


def plan(*mysql_types: str, code: int | None = None, charset: str = "utf8mb4", **options: Any) -> TablePlan:
    """Plan a table whose columns c0, c1 … have these types; the first is the primary key.

    ``code`` is the type code of all, where it is not the one of today's servers.
    """
    described = [wire(kind) if code is None else (code, b"") for kind in mysql_types]
    text = {"char", "varchar", "text"}
    columns = [
        SourceColumn(f"c{i}", kind, charset if re.split(r"[( ]", kind)[0] in text else None, i == 0)
        for i, kind in enumerate(mysql_types)
    ]
    return TablePlan(TableMap.parse(table_map(*described)), columns, 1, PlanOptions(**options))


def rows(encoded: bytes) -> list[tuple[list[PbColumn], list[PbColumn]]]:
    """Return the columns before and after of each row."""
    return [(list(row.beforeColumns), list(row.afterColumns)) for row in RowChange.FromString(encoded).rowDatas]


def column(mysql_type: str, data: bytes, **options: Any) -> PbColumn:
    """Return the column of an inserted row that has one value."""
    ((_, (only,)),) = rows(plan(mysql_type, **options).encode(b"\xfe" + data, EventType.INSERT))
    return only


def text(mysql_type: str, data: bytes, **options: Any) -> str:
    """Return the text of one value."""
    return column(mysql_type, data, **options).value
