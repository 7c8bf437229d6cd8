"""The TABLE_MAP event: what a row event's columns are made of.

Body, after the event header (all integers little-endian; "packed" is MySQL's length-encoded integer):

    table id          6 bytes (4 where the post-header is 6 bytes long)
    flags             2 bytes
    schema            length 1 byte, text, 0x00
    table             length 1 byte, text, 0x00
    column count      packed
    column types      1 byte each
    metadata length   packed
    metadata          0 to 2 bytes per column, by its type
    nullable          1 bit per column, the first column in the lowest bit
    optional metadata until the end: type 1 byte, length packed, value (see ``Optional``)

Sources: MySQL ``libbinlogevents/include/rows_event.h`` and MariaDB ``sql/log_event_server.cc`` (the same numbers).
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING

from .....protocol.errors import DecodeError
from ....columns import SourceColumn
from ....values.types import BYTES_PER_CHARACTER, DISPLAY_WIDTHS, LABEL_ESCAPES, Type

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class Optional(IntEnum):
    """Fields of the optional metadata; without binlog_row_metadata=FULL only the first two and GEOMETRY_TYPE."""

    SIGNEDNESS = 1  # 1 bit a numeric column (and a YEAR: `counts_years`), the first in the highest bit; set: unsigned
    DEFAULT_CHARSET = 2  # collation of most character columns, then pairs (which character column, collation)
    COLUMN_CHARSET = 3  # a collation per character column
    COLUMN_NAME = 4
    SET_VALUES = 5  # a SET column: number of labels, then each
    ENUM_VALUES = 6
    GEOMETRY_TYPE = 7
    SIMPLE_PRIMARY_KEY = 8  # column numbers
    PRIMARY_KEY_WITH_PREFIX = 9  # pairs (column number, prefix length, 0 for the whole column)
    ENUM_AND_SET_DEFAULT_CHARSET = 10  # as 2 and 3, counting ENUM and SET columns
    ENUM_AND_SET_COLUMN_CHARSET = 11
    COLUMN_VISIBILITY = 12  # 1 bit per column, the first column in the highest bit; set: visible
    VECTOR_DIMENSIONALITY = 13


_METADATA_BYTES: dict[int, int] = {
    Type.FLOAT: 1,
    Type.DOUBLE: 1,
    Type.VARCHAR: 2,
    Type.BIT: 2,
    Type.TIMESTAMP2: 1,
    Type.DATETIME2: 1,
    Type.TIME2: 1,
    Type.BLOB_COMPRESSED: 1,
    Type.VARCHAR_COMPRESSED: 2,
    Type.VECTOR: 1,
    Type.JSON: 1,
    Type.NEWDECIMAL: 2,
    Type.ENUM: 2,
    Type.SET: 2,
    Type.TINY_BLOB: 1,
    Type.MEDIUM_BLOB: 1,
    Type.LONG_BLOB: 1,
    Type.BLOB: 1,
    Type.VAR_STRING: 2,
    Type.STRING: 2,
    Type.GEOMETRY: 1,
}
_BIG_ENDIAN_METADATA = {Type.STRING, Type.ENUM, Type.SET, Type.NEWDECIMAL}
_NUMERIC = {
    Type.TINY,
    Type.SHORT,
    Type.INT24,
    Type.LONG,
    Type.LONGLONG,
    Type.FLOAT,
    Type.DOUBLE,
    Type.NEWDECIMAL,
}
_CHARACTER = {
    Type.STRING,
    Type.VAR_STRING,
    Type.VARCHAR,
    Type.BLOB,
    Type.VARCHAR_COMPRESSED,
    Type.BLOB_COMPRESSED,
    Type.VECTOR,
}
_NUMBER_NAMES: dict[int, str] = {
    Type.TINY: "tinyint",
    Type.SHORT: "smallint",
    Type.INT24: "mediumint",
    Type.LONG: "int",
    Type.LONGLONG: "bigint",
    Type.FLOAT: "float",
    Type.DOUBLE: "double",
}
_TEMPORAL_NAMES: dict[int, str] = {
    Type.TIMESTAMP: "timestamp",
    Type.DATE: "date",
    Type.NEWDATE: "date",
    Type.TIME: "time",
    Type.DATETIME: "datetime",
    Type.YEAR: "year",
    Type.TIMESTAMP2: "timestamp",
    Type.DATETIME2: "datetime",
    Type.TIME2: "time",
}
_BLOB_NAMES = {1: "tiny", 2: "", 3: "medium", 4: "long"}
_GEOMETRY_NAMES = (
    "geometry",
    "point",
    "linestring",
    "polygon",
    "multipoint",
    "multilinestring",
    "multipolygon",
    "geomcollection",
)
_BINARY_COLLATION = 63


class _Reader:
    """Reads forward through bytes; to read beyond their end is a DecodeError."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    def __bool__(self) -> bool:
        return self.position < len(self.data)

    def take(self, size: int) -> bytes:
        start = self.position
        if size > len(self.data) - start:
            raise DecodeError(f"TABLE_MAP ends at byte {len(self.data)}, within a field of {size} bytes at {start}")
        self.position += size
        return self.data[start : self.position]

    def integer(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def packed(self) -> int:
        first = self.integer(1)
        if first < 251:
            return first
        if first in (251, 255):
            raise DecodeError(f"TABLE_MAP has no length-encoded integer at byte {self.position - 1}")
        return self.integer({252: 2, 253: 3, 254: 8}[first])

    def text(self) -> str:
        return self.take(self.packed()).decode("utf-8", "replace")

    def name(self) -> str:
        value = self.take(self.integer(1)).decode("utf-8", "replace")
        if self.take(1) != b"\0":
            raise DecodeError(f"TABLE_MAP has a name without its final zero at byte {self.position - 1}")
        return value

    def all_packed(self) -> list[int]:
        values = []
        while self:
            values.append(self.packed())
        return values


def counts_years(version: str) -> bool | None:
    """Whether a server of that version writes a sign for YEAR columns, too; None if unknown.

    MariaDB does, MySQL 8.0.20 does not, 8.0.27 does: `is_numeric_type` of its sql/field.h became
    `has_signedess_information_type` of sql/field_common_properties.h, which 8.0.20 does not have and 8.0.27 includes.
    """
    numbers = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if numbers is None or "mariadb" in version.lower():
        return True
    release = tuple(map(int, numbers.groups()))
    return None if (8, 0, 20) < release < (8, 0, 27) else release > (8, 0, 20)


def _signs(types: tuple[int, ...], data: bytes, *, years: bool) -> tuple[bool, ...]:
    """Read which columns are unsigned; of a YEAR it means nothing."""
    counted = _NUMERIC | {Type.YEAR} if years else _NUMERIC
    bits = _high_bits(data)
    return tuple(kind in counted and next(bits) and kind != Type.YEAR for kind in types)


def _high_bits(data: bytes) -> Iterator[bool]:
    return (bool(byte & (0x80 >> bit)) for byte in data for bit in range(8))


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table as one TABLE_MAP event describes it. Lists have one item per column unless said otherwise.

    ``types`` are real types: an ENUM or SET, which the event writes as STRING, is ENUM or SET here. ``metas`` are the
    numbers that belong to them: maximum bytes of strings, width of the length before a BLOB, bytes of an ENUM or SET,
    fractional digits, ``precision << 8 | scale`` of a DECIMAL, bits of a BIT. A field that the event lacks is None.
    """

    table_id: int
    schema: str
    table: str
    types: tuple[int, ...]
    metas: tuple[int, ...]
    unsigned: tuple[bool, ...] | None
    other_unsigned: tuple[bool, ...] | None
    """What ``unsigned`` is if YEAR columns have no sign; None if that is known, or the same."""
    collations: tuple[int | None, ...] | None
    names: tuple[str, ...] | None
    labels: tuple[tuple[bytes, ...] | None, ...]
    label_collations: tuple[int | None, ...] | None
    geometry_types: tuple[int | None, ...]
    dimensions: tuple[int | None, ...]
    primary_key: tuple[int, ...]  # column numbers
    nullable: tuple[bool, ...]
    mariadb: bool

    @property
    def text_collations(self) -> tuple[tuple[int | None, ...], ...]:
        """How the texts of each column compare, as far as the event says it: one item, or none."""
        given = [it for it in (self.collations, self.label_collations) if it is not None]
        found = tuple(next((it for it in column if it is not None), None) for column in zip(*given, strict=True))
        return (found,) if any(found) else ()

    @property
    def has_names(self) -> bool:
        """Whether the source writes full metadata, so that no schema is needed to name and type the columns."""
        return self.names is not None

    @classmethod
    def parse(cls, body: bytes, *, post_header: int = 8, mariadb: bool = False, years: bool | None = True) -> TableMap:
        """Parse the event's body, without event header and checksum.

        ``post_header`` is the length that the FORMAT_DESCRIPTION event gives for TABLE_MAP: 8, or 6 before MySQL 5.1.4.
        ``mariadb``: the source is MariaDB, which counts GEOMETRY among the character columns. ``years``: it writes a
        sign for YEAR columns, too; what `counts_years` says of its version.
        Raises DecodeError when the body is cut or contradicts itself.
        """
        reader = _Reader(body)
        table_id = reader.integer(post_header - 2)
        reader.take(2)
        schema = sys.intern(reader.name())  # many tables share it
        table = reader.name()
        count = reader.packed()
        codes = reader.take(count)
        metadata = _Reader(reader.take(reader.packed()))
        types, metas = zip(*(_real_type(code, metadata) for code in codes), strict=True) if count else ((), ())
        if metadata:
            raise DecodeError(f"TABLE_MAP of {schema}.{table} has more column metadata than columns")
        bits = reader.take((count + 7) // 8)
        nullable = tuple(bool(bits[i >> 3] >> (i & 7) & 1) for i in range(count))
        fields: dict[int, bytes] = {}
        while reader:
            kind = reader.integer(1)
            fields[kind] = reader.take(reader.packed())
        try:
            return cls._with_optional(table_id, schema, table, types, metas, nullable, fields, mariadb, years)
        except (StopIteration, IndexError, RuntimeError, ValueError) as error:
            raise DecodeError(f"TABLE_MAP of {schema}.{table} has optional metadata that does not fit it") from error

    @classmethod
    def _with_optional(
        cls,
        table_id: int,
        schema: str,
        table: str,
        types: tuple[int, ...],
        metas: tuple[int, ...],
        nullable: tuple[bool, ...],
        fields: Mapping[int, bytes],
        mariadb: bool,
        years: bool | None,
    ) -> TableMap:
        character = _CHARACTER | {Type.GEOMETRY} if mariadb else _CHARACTER
        unsigned, other = _unsigned(types, fields.get(Optional.SIGNEDNESS), years)
        names = None
        if Optional.COLUMN_NAME in fields:
            reader = _Reader(fields[Optional.COLUMN_NAME])
            names = tuple(reader.text() for _ in types)
            if reader:
                raise DecodeError(f"TABLE_MAP of {schema}.{table} names more columns than it has")
        key = _primary_key(fields)
        if any(number >= len(types) for number in key):
            raise DecodeError(f"TABLE_MAP of {schema}.{table} has a primary key on a column that it does not have")
        return cls(
            table_id=table_id,
            schema=schema,
            table=table,
            types=types,
            metas=metas,
            unsigned=unsigned,
            other_unsigned=other if other != unsigned else None,
            collations=_collations(
                types, character, fields.get(Optional.DEFAULT_CHARSET), fields.get(Optional.COLUMN_CHARSET)
            ),
            names=names,
            labels=_labels(types, fields),
            label_collations=_collations(
                types,
                {Type.ENUM, Type.SET},
                fields.get(Optional.ENUM_AND_SET_DEFAULT_CHARSET),
                fields.get(Optional.ENUM_AND_SET_COLUMN_CHARSET),
            ),
            geometry_types=_numbers(types, Type.GEOMETRY, fields.get(Optional.GEOMETRY_TYPE)),
            dimensions=_numbers(types, Type.VECTOR, fields.get(Optional.VECTOR_DIMENSIONALITY)),
            primary_key=key,
            nullable=nullable,
            mariadb=mariadb,
        )

    def columns(self, charsets: Mapping[int, str]) -> list[SourceColumn]:
        """Describe the columns by the event alone, which must carry full metadata.

        ``charsets`` gives the character set of a collation id (``information_schema.COLLATIONS``; for MariaDB's
        ids above 2,000 also ``COLLATION_CHARACTER_SET_APPLICABILITY``). What MariaDB's metadata does not say: that a
        BINARY column is an INET4, INET6 or UUID, and that a TINYINT is a ``tinyint(1)``.

        Raises DecodeError when names are missing or a collation is unknown.
        """
        if self.names is None or self.unsigned is None:
            raise DecodeError(
                f"TABLE_MAP of {self.schema}.{self.table} has no column names: the source does not write "
                "binlog_row_metadata=FULL"
            )
        columns = []
        for i, name in enumerate(self.names):
            collation = self.collations[i] if self.collations else None
            charset = None
            if collation is not None and collation != _BINARY_COLLATION:
                charset = charsets.get(collation)
                if charset is None:
                    raise DecodeError(f"{self.schema}.{self.table}.{name} has the unknown collation {collation}")
            columns.append(SourceColumn(name, self.type_text(i, charset, charsets), charset, i in self.primary_key))
        return columns

    def type_text(self, i: int, charset: str | None, charsets: Mapping[int, str]) -> str:
        """Compose the type of a column as information_schema.COLUMN_TYPE of MySQL 8 or MariaDB writes it.

        Raises DecodeError when the type is unknown.
        """
        kind, meta = self.types[i], self.metas[i]
        is_unsigned = self.unsigned is not None and self.unsigned[i]
        unsigned = " unsigned" if is_unsigned else ""
        display = f"({DISPLAY_WIDTHS[kind][is_unsigned]})" if self.mariadb and kind in DISPLAY_WIDTHS else ""
        if kind in _NUMBER_NAMES:
            return _NUMBER_NAMES[kind] + display + unsigned
        if kind in _TEMPORAL_NAMES:
            return _TEMPORAL_NAMES[kind] + (f"({meta})" if meta else display)
        width = BYTES_PER_CHARACTER.get(charset or "", 1)
        match kind:
            case Type.NEWDECIMAL:
                return f"decimal({meta >> 8},{meta & 0xFF}){unsigned}"
            case Type.STRING:
                return f"char({meta // width})" if charset else f"binary({meta})"
            case Type.VARCHAR | Type.VAR_STRING:
                return f"varchar({meta // width})" if charset else f"varbinary({meta})"
            case Type.VARCHAR_COMPRESSED:  # the declared length counts the header byte
                text = f"varchar({(meta - 1) // width})" if charset else f"varbinary({meta - 1})"
                return text + " /*M!100301 COMPRESSED*/"
            case Type.BLOB | Type.BLOB_COMPRESSED:
                text = _BLOB_NAMES.get(meta, "") + ("text" if charset else "blob")
                return text + (" /*M!100301 COMPRESSED*/" if kind == Type.BLOB_COMPRESSED else "")
            case Type.ENUM | Type.SET:
                collation = self.label_collations[i] if self.label_collations else None
                charset = None if collation == _BINARY_COLLATION else charsets.get(collation or 0)
                return f"{Type(kind).name.lower()}({self._quoted_labels(i, charset)})"
            case Type.BIT:
                return f"bit({meta})"
            case Type.JSON:
                return "json"
            case Type.GEOMETRY:
                number = self.geometry_types[i] or 0
                name = _GEOMETRY_NAMES[number] if number < len(_GEOMETRY_NAMES) else "geometry"
                return "geometrycollection" if self.mariadb and name == "geomcollection" else name
            case Type.VECTOR:
                return f"vector({self.dimensions[i]})" if self.dimensions[i] else "vector"
        raise DecodeError(f"{self.schema}.{self.table}: column {i} has the unknown type {kind}")

    def _quoted_labels(self, i: int, charset: str | None) -> str:
        from ....values.charset import decode  # noqa: PLC0415 - only full metadata needs it

        labels = (decode(label, charset or "utf8mb4") for label in self.labels[i] or ())
        return ",".join("'" + label.translate(LABEL_ESCAPES) + "'" for label in labels)


def _real_type(code: int, metadata: _Reader) -> tuple[int, int]:
    """Read the metadata of a column; the real type with its number."""
    data = metadata.take(_METADATA_BYTES.get(code, 0))
    if code in _BIG_ENDIAN_METADATA:
        first, second = data
        if code == Type.NEWDECIMAL:
            return code, first << 8 | second
        # The first byte is the real type; its bits 4 and 5, inverted, are bits 8 and 9 of the length.
        if first in (Type.ENUM, Type.SET):
            return first, second
        if code == Type.STRING and first:
            return first | 0x30, second | ((first & 0x30) ^ 0x30) << 4
        return code, second
    meta = int.from_bytes(data, "little")
    if code == Type.BIT:  # bits beyond whole bytes, whole bytes
        meta = (meta >> 8) * 8 + (meta & 0xFF)
    return code, meta


def _unsigned(
    types: tuple[int, ...], signs: bytes | None, years: bool | None
) -> tuple[tuple[bool, ...] | None, tuple[bool, ...] | None]:
    """Return which columns are unsigned, and which are if YEAR columns have no sign, as far as that is possible."""
    if signs is None:
        return (None if _NUMERIC.intersection(types) else (False,) * len(types)), None
    counted = sum(kind in _NUMERIC for kind in types)
    if years is None and len(signs) < (counted + types.count(Type.YEAR) + 7) // 8:
        years = False  # the bits have no room for them
    other = _signs(types, signs, years=False) if years is None and len(signs) == (counted + 7) // 8 else None
    return _signs(types, signs, years=years is not False), other


def _labels(types: tuple[int, ...], fields: Mapping[int, bytes]) -> tuple[tuple[bytes, ...] | None, ...]:
    """Read the labels of SET and ENUM columns."""
    labels: list[tuple[bytes, ...] | None] = [None] * len(types)
    for field, kind in ((Optional.SET_VALUES, Type.SET), (Optional.ENUM_VALUES, Type.ENUM)):
        if field in fields:
            reader = _Reader(fields[field])
            for i, real in enumerate(types):
                if real == kind:
                    labels[i] = tuple(reader.take(reader.packed()) for _ in range(reader.packed()))
    return tuple(labels)


def _primary_key(fields: Mapping[int, bytes]) -> tuple[int, ...]:
    if Optional.SIMPLE_PRIMARY_KEY in fields:
        return tuple(_Reader(fields[Optional.SIMPLE_PRIMARY_KEY]).all_packed())
    if Optional.PRIMARY_KEY_WITH_PREFIX in fields:
        return tuple(_Reader(fields[Optional.PRIMARY_KEY_WITH_PREFIX]).all_packed()[::2])
    return ()


def _collations(
    types: tuple[int, ...], counted: set[Type], default: bytes | None, each: bytes | None
) -> tuple[int | None, ...] | None:
    which = [i for i, kind in enumerate(types) if kind in counted]
    collations: list[int | None] = [None] * len(types)
    if default is not None:
        usual, *exceptions = _Reader(default).all_packed()
        for i in which:
            collations[i] = usual
        for number, collation in zip(exceptions[::2], exceptions[1::2], strict=True):
            collations[which[number]] = collation
    elif each is not None:
        for i, collation in zip(which, _Reader(each).all_packed(), strict=True):
            collations[i] = collation
    elif which:
        return None
    return tuple(collations)


def _numbers(types: tuple[int, ...], counted: Type, data: bytes | None) -> tuple[int | None, ...]:
    values = iter(_Reader(data).all_packed() if data is not None else ())
    return tuple(next(values, None) if kind == counted else None for kind in types)
